#!/usr/bin/env python3
"""FlashInfer: its gated delta rule kernels (CuTe DSL), on a GPU of the Hopper generation.

    python3 -m pip install 'flashinfer-python[cu13]' h5py        # beside PyTorch with CUDA
    gdn-cts verify --exec 'python3 tools/adapters/flashinfer_gated_delta_rule.py prefill' --timeout 300

prefill: chunk_gated_delta_rule as FlashInfer dispatches it, which splits short batches over time (context parallel).
prefill_fused: with use_cp=False, the one kernel that walks through a sequence.
decode (--profile decode,verify): gated_delta_rule_decode_pretranspose and, for draft tokens, gated_delta_rule_mtp, on a pool of fp32 states.
Kernels are compiled at their first call, seconds each: hence the timeout.

Tried with flashinfer-python 0.7.4, nvidia-cutlass-dsl 4.8.1, torch 2.11.0 on an H200. Read in that source:
- K = V = 128, 16-bit q, k, v, o; state [V,K] in fp32; an empty sequence leaves no final state;
- prefill: takes alpha = e^g and adds 1e-10 to it before its logarithm, so that no decay is below 1e-10; logarithms (fast, 2^-22 off) are summed by
  a scan from the start of the chunk, C = 64, hence u_exp = 2e-5. L is stored in fp16 whatever the io dtype, its inverse is put together from blocks of 8
  in fp16 and rounded once more, times beta, to bf16. Residual form; S^T k is rounded before it is taken from v. Corrected values are rounded for the output,
  and those once more, decayed, for the state. What is rounded twice, or where another rounding is of the size of the operand's, is declared as
  truncated, which has the size of two roundings: M, S_op, Vn_s;
- decode: float32 inside with fast exp and log, o rounded to bf16; gates are raw (a, A_log, dt_bias), beta is the sigmoid of a logit. Gates and beta are handed
  over as the fp32 numbers of which that function gives them; beta > 1 has none. Pool index -1 skips the row;
- draft tokens: the same, but gated_delta_rule_mtp makes the logits a and b bf16. Snapshots go into a buffer; the accepted state is put into its slot by the caller.
"""
import sys

import numpy as np

from gdn_cts_adapter import NotSupported, serve

KERNELS = ("prefill", "prefill_fused", "decode")
WHICH = sys.argv[1] if len(sys.argv) == 2 and sys.argv[1] in KERNELS else sys.exit("usage: flashinfer_gated_delta_rule.py " + "|".join(KERNELS))
ran = []                                             # functions that ran since the start, in order


def watch(module, name):
    """Has calls of module.name noted in ran."""
    function = getattr(module, name)

    def noted(*arguments, **options):
        where = f"{function.__module__}.{function.__name__}"
        if where not in ran:
            ran.append(where)
        return function(*arguments, **options)

    setattr(module, name, noted)


def declaration():
    global torch, flashinfer_prefill, flashinfer_decode
    from importlib.metadata import version
    import torch
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    import flashinfer.gdn_decode as flashinfer_decode
    import flashinfer.gdn_prefill as flashinfer_prefill
    for name in ("chunk_gated_delta_rule_sm90", "cp_delta_rule_dsl_sm90"):
        watch(flashinfer_prefill, name)
    for name in ("run_pretranspose_decode", "run_mtp_decode"):
        watch(flashinfer_decode, name)
    torch.set_grad_enabled(False)
    prefill = {
        "convention": "state=VK;gate=linear;empty=untouched",
        "contract": "bf16-chunk;vectors=residual;block=8;gram=fp16;M=bf16/rz;S_op=bf16/rz;Vn_s=bf16/rz;gate_sum=prefix_tree;accumulator=tensor_core;"
                    "D=fp32/flush;u_exp=2e-5;g_min=-10000",
        "capabilities": "ops=prefill;io=bf16;state=fp32;gate=fp32;beta=fp32;K=128;V=128;varlen;h0;ht;noht;empty;g_min=-10000;beta_max=2",
        "properties": "deterministic;symmetric",
    }
    decode = {
        "convention": "state=VK",
        "contract": "fp32-recurrent;D=fp32/flush;u_exp=2e-5",
        "capabilities": "ops=decode,verify;io=bf16;state=fp32;gate=fp32;beta=fp32;K=128;V=128;h0;ht;raw_gates;A_log_max=88;g_min=-inf;beta_max=1",
        "properties": "deterministic;symmetric;masks_select",
    }
    return {
        "name": f"flashinfer_{WHICH}",
        "description": f"FlashInfer on {torch.cuda.get_device_name()}",
        "version": version("flashinfer-python"),
        "device": "cuda",
        "module": lambda: ", ".join(ran),
        "packages": {p: version(p) for p in ("flashinfer-python", "nvidia-cutlass-dsl", "apache-tvm-ffi", "torch")},
        **(decode if WHICH == "decode" else prefill),
    }


def tensor(x, dtype="fp32"):
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return torch.from_numpy(np.ascontiguousarray(x)).to("cuda").to(dtypes[dtype])  # exact: x holds values of that dtype


def prefill(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    N, HV, K, V = problem.sequences, problem.value_heads, problem.key_dim, problem.value_dim
    final = torch.full((N, HV, V, K), 77.0, device="cuda")  # what an empty sequence leaves is seen
    before = final.clone() if h0 is None else tensor(h0)
    result = flashinfer_prefill.chunk_gated_delta_rule(
        *(tensor(x, problem.io) for x in (q, k, v)), tensor(g), tensor(beta), scale=scale, initial_state=None if h0 is None else before,
        output_final_state=problem.final_state, cu_seqlens=torch.from_numpy(np.asarray(cu_seqlens, np.int64)).to("cuda"),
        output_state=final if problem.final_state else None, use_cp=False if WHICH == "prefill_fused" else "auto")
    o, ht = result if problem.final_state else (result, None)
    return o.float().cpu().numpy(), None if ht is None else ht.cpu().numpy()


def gates(g):
    """a with -softplus(a) = g, where A_log and dt_bias are 0."""
    x = -np.asarray(g, np.float64)
    with np.errstate(all="ignore"):
        return np.where(x > 40, x, np.log(np.expm1(np.minimum(x, 41)))).astype(np.float32)


def logits(beta):
    b = np.asarray(beta, np.float64)
    with np.errstate(all="ignore"):
        return (np.log(b) - np.log1p(-b)).astype(np.float32)


def steps(problem, q, k, v, g, beta, scale, h0, cu_seqlens, state_indices, accepted, snapshots, a, A_log, dt_bias):
    N, T, HV, draft = len(state_indices), int(cu_seqlens[-1]), problem.value_heads, problem.draft
    rows = T // N
    if rows * N != T or (problem.operation == "decode" and rows != 1):
        raise NotSupported(f"{T} tokens in {N} rows")
    if problem.operation == "verify" and rows < 2:
        raise NotSupported("gated_delta_rule_mtp takes two draft tokens or more")
    pool = tensor(h0)
    if accepted is not None:                         # the scheduler's copy
        for n, slot in enumerate(state_indices):
            if slot >= 0 and accepted[n] > 0:
                pool[int(slot)] = tensor(snapshots[n * draft + int(accepted[n]) - 1])
    inputs = [tensor(x[:T].reshape(N, rows, *x.shape[1:]), problem.io) for x in (q, k, v)]
    if a is None:
        a, A_log, dt_bias = gates(g), np.zeros(HV, np.float32), np.zeros(HV, np.float32)
    common = dict(A_log=tensor(A_log), a=tensor(a[:T].reshape(N, rows, HV)), dt_bias=tensor(dt_bias), b=tensor(logits(beta)[:T].reshape(N, rows, HV)),
                  scale=scale, use_qk_l2norm=False)
    indices = torch.from_numpy(np.asarray(state_indices, np.int32)).to("cuda")
    after = None
    if problem.operation == "verify":
        after = torch.zeros(N, rows, *h0.shape[1:], device="cuda")
        o, _ = flashinfer_decode.gated_delta_rule_mtp(*inputs, initial_state=pool, initial_state_indices=indices, intermediate_states_buffer=after,
                                                      disable_state_update=True, **common)
    else:
        o, _ = flashinfer_decode.gated_delta_rule_decode_pretranspose(*inputs, state=None, initial_state=pool, initial_state_indices=indices,
                                                                      backend="flashinfer", **common)
    out = np.zeros(v.shape, np.float32)
    out[:T] = o.float().cpu().numpy().reshape(T, *v.shape[1:])
    ht = pool.cpu().numpy()
    if after is None:
        return out, ht
    shots = np.zeros((len(v), *h0.shape[1:]), np.float32)
    shots[:T] = after.cpu().numpy().reshape(T, *h0.shape[1:])
    return out, ht, shots


def run(problem, q, k, v, g=None, beta=None, scale=1, h0=None, cu_seqlens=None, state_indices=None, accepted=None, snapshots=None, a=None, A_log=None, dt_bias=None):
    if problem.rule != "gated_delta":
        raise NotSupported(f"rule {problem.rule}")
    if problem.operation == "prefill":
        return prefill(problem, q, k, v, g, beta, scale, h0, cu_seqlens)
    return steps(problem, q, k, v, g, beta, scale, h0, cu_seqlens, state_indices, accepted, snapshots, a, A_log, dt_bias)


if __name__ == "__main__":
    serve(run, declaration)
