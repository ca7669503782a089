#!/usr/bin/env python3
"""Hugging Face transformers: the PyTorch gated delta rule of Qwen3-Next, chunkwise or token by token.

    tools/adapters/setup_transformers.sh          # once: PyTorch and transformers into build/venv-transformers
    gdn-cts verify --exec 'build/venv-transformers/bin/python tools/adapters/transformers_qwen3_next.py chunk'
    gdn-cts verify --exec 'build/venv-transformers/bin/python tools/adapters/transformers_qwen3_next.py recurrent'

Tried with torch 2.15.0 and transformers 5.24.0 on the CPU. Read in that source:
- both functions compute in float32 and round o once to the dtype of q; ht is float32; scale is always K^-1/2,
  applied to q first; value head h reads key head h / (HV/H); use_qk_l2norm_in_kernel is off unless asked for;
- chunk: C = 64, gate sums from the start of the chunk (so a very negative gate absorbs later ones and g = -inf
  gives NaN), U and W by triangular solves, one matrix product per chunk and point;
- neither takes cu_seqlens: a batch row is a sequence. So sequences of equal length are one call with a batch row each,
  and sequences of different length one call each; that packed ones stay apart shows nothing about transformers;
- where the package fla can be imported, transformers runs FLA's kernels under these names. This adapter declares
  the contract of the PyTorch code, so it refuses to start then.
"""
import inspect
import sys

import numpy as np

from gdn_cts_adapter import serve

WHICH = sys.argv[1] if len(sys.argv) == 2 and sys.argv[1] in ("chunk", "recurrent") else sys.exit(
    "usage: transformers_qwen3_next.py chunk|recurrent")
DECLARED = {
    "chunk": {
        "contract": "fp32-chunk;solve=substitution;vectors=wu;gate_sum=prefix_seq;chunk=64;g_min=-10000",
        "capabilities": "ops=prefill;io=fp32,bf16,fp16;state=fp32;gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;g_min=-10000;beta_max=2",
        "properties": "deterministic;symmetric",
    },
    "recurrent": {
        "contract": "fp32-recurrent",
        "capabilities": "ops=prefill;io=fp32,bf16,fp16;state=fp32;gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;g_min=-inf;beta_max=2",
        "properties": "deterministic;symmetric;masks_select",
    },
}
function = None


def declaration():
    global function, torch
    import torch
    import transformers
    from transformers.models.qwen3_next import modeling_qwen3_next
    public = getattr(modeling_qwen3_next, f"torch_{WHICH}_gated_delta_rule")
    # The public name is a wrapper; what it calls was chosen when the module was imported.
    function = inspect.getclosurevars(public).nonlocals.get("implementation", public)
    if not function.__module__.startswith("transformers."):
        raise RuntimeError(f"transformers runs {function.__module__}.{function.__qualname__} here: use the adapter of that package")
    function = public
    torch.set_grad_enabled(False)
    return {
        "name": f"transformers_{WHICH}",
        "description": f"transformers torch_{WHICH}_gated_delta_rule (Qwen3-Next), CPU",
        "version": transformers.__version__,
        "convention": "scale=fixed",
        "module": f"{function.__module__}.{function.__qualname__}",
        "packages": {"torch": torch.__version__, "transformers": transformers.__version__},
        **DECLARED[WHICH],
    }


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

    def tensor(x, dtype):
        return torch.from_numpy(np.ascontiguousarray(x)).to(dtypes[dtype])  # exact: x holds values of that dtype

    tokens = [tensor(x, d) for x, d in ((q, problem.io), (k, problem.io), (v, problem.io), (g, problem.gate), (beta, problem.beta))]
    state = None if h0 is None else tensor(h0, problem.state)
    o = torch.zeros(tokens[2].shape, dtype=torch.float32)
    ht = torch.zeros(problem.sequences, problem.value_heads, problem.key_dim, problem.value_dim)

    def call(first, last):  # sequences of equal length
        begin, end = int(cu_seqlens[first]), int(cu_seqlens[last])
        rows, length = last - first, (end - begin) // (last - first)
        batch = [x[begin:end].reshape(rows, length, *x.shape[1:]) for x in tokens]
        out, final = function(*batch[:3], g=batch[3], beta=batch[4], initial_state=None if state is None else state[first:last],
                              output_final_state=problem.final_state)
        o[begin:end] = out.reshape(end - begin, *out.shape[2:])
        if final is not None:
            ht[first:last] = final

    if len(set(problem.lengths)) == 1:
        call(0, problem.sequences)
    else:
        for n in range(problem.sequences):
            call(n, n + 1)
    return o.numpy(), ht.numpy()


if __name__ == "__main__":
    serve(run, declaration)
