"""Gate a Python kernel with GDN-CTS: one function, one declaration, serve().

    from gdn_cts_adapter import serve, round_output

    def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
        ...                                  # numpy in; torch.from_numpy and the like from here on
        return round_output(problem, o), ht

    serve(run, {"name": "my_kernel", "contract": "bf16-chunk", "capabilities": "ops=prefill;io=bf16;varlen;h0;ht"})

The suite starts the program once and talks to it over stdin and stdout (protocol: README.md beside this package).
Needs numpy and h5py only.
"""
import json
import os
import sys
import time
import traceback

import h5py
import numpy as np

PROTOCOL = 1
__all__ = ["NotSupported", "Problem", "round_output", "round_to", "serve"]


class NotSupported(Exception):
    """Raised by a run function for what its kernel cannot do; the text is shown as the reason."""


class Problem:
    """A problem parsed from its canonical text, for example prefill/n2_t64+3_h1_hv2_k64_v64/bf16/h0.

    operation, rule, io, gate, beta, state: strings ("bf16"); lengths: tokens of each sequence; heads, value_heads,
    key_dim, value_dim, padding (rows past the last sequence); initial_state, final_state: bool; slots and draft of decode
    and verify; raw: bool, gates come as a, A_log, dt_bias; stage and chunk of stages; hidden, conv (taps) and l2 ("root",
    "max", "none") of the layer; text.
    """

    def __init__(self, text):
        self.text = text
        parts = text.split("/")
        self.operation, shape, self.io = parts[:3]
        fields = dict(zip("n t h hv k v".split(), shape.split("_")))
        numbers = {name: field[len(name):] for name, field in fields.items()}
        count = int(numbers["n"])
        self.lengths = []
        for item in numbers["t"].split("+"):
            length, _, repeat = item.partition("x")
            self.lengths += [int(length)] * int(repeat or 1)
        if "+" not in numbers["t"] and "x" not in numbers["t"]:
            self.lengths *= count
        self.heads, self.value_heads = int(numbers["h"]), int(numbers["hv"])
        self.key_dim, self.value_dim = int(numbers["k"]), int(numbers["v"])
        self.gate = self.beta = self.state = "fp32"
        self.initial_state, self.final_state = False, True
        self.padding, self.rule, self.slots, self.draft, self.raw = 0, "gated_delta", 0, 0, False
        self.stage, self.chunk = "", 0
        self.hidden, self.conv, self.l2 = 0, 0, "root"
        for option in parts[3].split(",") if len(parts) > 3 else []:
            key, _, value = option.partition("=")
            if key == "h0":
                self.initial_state = True
            elif key == "noht":
                self.final_state = False
            elif key in ("g", "beta", "state", "rule", "stage", "l2"):
                setattr(self, "gate" if key == "g" else key, value)
            elif key == "raw":
                self.raw = True
            elif key in ("pad", "slots", "draft", "chunk", "hidden", "conv"):
                setattr(self, "padding" if key == "pad" else key, int(value))

    @property
    def sequences(self):
        return len(self.lengths)

    @property
    def tokens(self):
        return sum(self.lengths)


def _round_to_bf16(x):
    if x.dtype == np.float64:  # to odd in float32 first, so that the second rounding sees what the first dropped
        with np.errstate(over="ignore"):
            nearest = x.astype(np.float32)
        bits = nearest.view(np.uint32).copy()
        with np.errstate(invalid="ignore"):
            bits -= (np.abs(nearest) > np.abs(x)).astype(np.uint32)
            bits |= (nearest.astype(np.float64) != x).astype(np.uint32) & ~np.isnan(x)
    else:
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, np.uint32(0x7FC00000), rounded).astype(np.uint32).view(np.float32)


def round_to(x, fmt):
    """x rounded to nearest even to "bf16", "fp16" or "fp32", as a float array that holds exactly those values."""
    x = np.asarray(x)
    if fmt == "bf16":
        return _round_to_bf16(x)
    if fmt == "fp16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16)
    if fmt == "fp32":
        with np.errstate(over="ignore"):
            return x.astype(np.float32)
    raise NotSupported(f"no rounding to {fmt} in this package")


def round_output(problem, o):
    """o rounded to the io dtype of the problem; for kernels that leave the last rounding to their caller."""
    return round_to(o, problem.io)


def _declaration(declaration):
    d = dict(declaration() if callable(declaration) else declaration)
    packages = {"python": sys.version.split()[0], "numpy": np.__version__, "h5py": h5py.__version__}
    packages.update(d.get("packages", {}))
    return {**d, "gdn_cts": PROTOCOL, "packages": packages}


def _reason(error):
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ({os.path.basename(where.filename)}:{where.lineno})"


def _answer(run, request, module, stages, layer):
    with h5py.File(request["inputs"], "r") as f:
        inputs = {name: f[name][...] for name in f if isinstance(f[name], h5py.Dataset)}
    problem = Problem(request["problem"])
    before = {name: a.copy() for name, a in inputs.items()}
    names = ("q", "k", "v", "g", "beta")
    more = {n: inputs[n] for n in ("angle", "a", "A_log", "dt_bias", "state_indices", "accepted", "snapshots") if n in inputs}
    begin = time.perf_counter()
    if problem.operation in ("stages", "layer_prefill", "layer_decode"):
        if problem.operation != "stages":
            function = layer
        elif problem.stage in (stages or {}):
            function = stages[problem.stage]
        else:
            raise NotSupported(f"stage {problem.stage}")
        cu_seqlens = inputs.pop("cu_seqlens", None)
        before.pop("cu_seqlens", None)
        results = function(problem, inputs, request["scale"], cu_seqlens)
        seconds = time.perf_counter() - begin
        with h5py.File(request["outputs"], "w") as f:
            for name, a in results.items():
                f[name] = np.asarray(a)
        changed = [n for n, a in inputs.items() if n not in results and a.tobytes() != before[n].tobytes()]
        answer = {"status": "ok", "message": "", "seconds": seconds, "violations": [f"input {n} changed" for n in changed]}
        if module:
            answer["module"] = module() if callable(module) else module
        return answer
    results = run(problem, *(inputs.get(n) for n in names), request["scale"], inputs.get("h0"), inputs.get("cu_seqlens"), **more)
    seconds = time.perf_counter() - begin
    in_place = ("h0", "snapshots") if problem.operation in ("decode", "verify") else ()
    changed = [n for n, a in inputs.items() if n not in in_place and a.tobytes() != before[n].tobytes()]
    with h5py.File(request["outputs"], "w") as f:
        f["o"] = np.asarray(results[0])
        if problem.final_state:
            f["ht"] = np.asarray(results[1])
        if problem.operation == "verify":
            f["snapshots"] = np.asarray(results[2])
    answer = {"status": "ok", "message": "", "seconds": seconds, "violations": [f"input {n} changed" for n in changed]}
    if module:
        answer["module"] = module() if callable(module) else module
    return answer


def serve(run, declaration, stages=None, layer=None):
    """Answers the suite until it closes our stdin.

    run(problem, q, k, v, g, beta, scale, h0, cu_seqlens) -> (o, ht). Arrays are numpy, in the declared convention;
    bf16 arrives as float32 holding exactly the bf16 values; h0 is None when the state starts at zero, cu_seqlens
    where a batch row is a sequence, a tensor where the rule fixes it. o and ht: arrays of the values of the io and state dtype (round_output helps); ht may be
    None where problem.final_state is False. Only a kernel that declares them gets more, by name: raw gates
    (raw_gates; g is None) as a, A_log, dt_bias; decode and verify (ops=) state_indices, and after draft tokens accepted
    and snapshots. There h0 is the pool, which may be changed in place and is returned as ht, and verify returns
    (o, ht, snapshots). README.md beside this package says what they hold. An exception is an error of that case, NotSupported its reason.

    stages: for a kernel that declares stages, {stage: function(problem, tensors, scale, cu_seqlens) -> {output: array}}; tensors
    and outputs by name, as README.md lists them. run may be None where only stages are declared.
    layer: for a kernel that declares layer_prefill or layer_decode, one such function: it returns y, conv_state and, where
    problem.final_state, ht.

    declaration: dict, or a function that returns one (called when the suite asks, so that a failing import is
    reported in one line). Keys: name, and as in kernels/gdn_kernel.h: version, description, convention, contract,
    capabilities, properties; module (a string or function: what really ran), packages (versions), device.
    """
    # Only answers may reach stdout, whatever libraries print.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message):
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    module = None
    for line in sys.stdin:
        request = json.loads(line)
        if "hello" in request:
            try:
                answer = _declaration(declaration)
                module = answer.get("module")
                if callable(module):
                    answer["module"] = module()
            except Exception as error:  # the suite shows it, and stops
                traceback.print_exc()
                answer = {"gdn_cts": PROTOCOL, "error": _reason(error)}
            say(answer)
            continue
        try:
            answer = _answer(run, request, module, stages, layer)
        except NotSupported as reason:
            answer = {"status": "not_supported", "message": str(reason)}
        except Exception as error:
            traceback.print_exc()
            answer = {"status": "error", "message": _reason(error)}
        say({"id": request["id"], **answer})
