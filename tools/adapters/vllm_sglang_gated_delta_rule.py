#!/usr/bin/env python3
"""vLLM and SGLang: the Triton kernels of the gated delta rule that they serve Qwen3-Next and its kin with, on the GPU.

    python3 -m pip install vllm h5py        # or sglang
    gdn-cts verify --exec 'python3 tools/adapters/vllm_sglang_gated_delta_rule.py vllm_chunk --quick'

vllm_chunk, sglang_chunk: chunk_gated_delta_rule, prefill.  vllm_recurrent: fused_recurrent_gated_delta_rule, decode and draft tokens
on a pool of states.
--quick: of each Triton kernel the first configuration that the package lists, where Triton times all of them for each new shape.

Tried with vllm 0.33.0 and sglang 0.5.23, torch 2.11.0, triton 3.6.0 on an H200, with the kernels' files from the packages' wheels and stand-ins for what else
of the packages they import (reports/published says which). Both packages took the kernels over from flash-linear-attention. Read in that source:
- state [V,K]; key heads fewer than value heads without copies; q, k, v in bf16 or fp16, g and beta in fp32 as the models pass them;
- chunk: C = 64; gates summed by a scan from the start of the chunk, so that a very negative gate absorbs later ones; L in fp32, in vLLM with beta k
  as an operand in TF32; its inverse by blocks of 16, in SGLang with TF32 products; M, beta v, beta e^G k, U, W, Vn, the state as operand and the scores
  rounded to the dtype of q; the carried state is fp32;
- recurrent: float32 inside, q times scale first, o rounded once. Pool row 0 is nobody's in vLLM and an index <= 0 skips the row, so the pool is handed over
  with such a row in front. Draft tokens leave their states in rows of the pool, and num_accepted_tokens, which vLLM counts from 1, says
  which of them to go on from: with none accepted the slot's own state is put where the first one's would be;
- an empty sequence shifts the chunks of those after it (no `empty`);
- SGLang's chunk kernel leaves the final state in the pool that it read the initial one from.
"""
import sys

import numpy as np

from gdn_cts_adapter import NotSupported, serve
from gdn_cts_adapter.triton_kernels import one_configuration

KERNELS = ("vllm_chunk", "vllm_recurrent", "sglang_chunk")
arguments = [a for a in sys.argv[1:] if a != "--quick"]
WHICH = arguments[0] if len(arguments) == 1 and arguments[0] in KERNELS else sys.exit("usage: vllm_sglang_gated_delta_rule.py " + "|".join(KERNELS) + " [--quick]")
QUICK = "--quick" in sys.argv[1:]
PACKAGE = WHICH.split("_")[0]


def declaration():
    global torch, function
    from importlib.metadata import version
    import torch
    import triton
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    if QUICK:
        one_configuration()
    if WHICH == "vllm_chunk":
        from vllm.third_party.flash_linear_attention.ops.chunk import chunk_gated_delta_rule as function
    elif WHICH == "vllm_recurrent":
        from vllm.third_party.flash_linear_attention.ops.fused_recurrent import fused_recurrent_gated_delta_rule as function
    else:
        from sglang.kernels.ops.attention.fla.chunk import chunk_gated_delta_rule as function
    torch.set_grad_enabled(False)
    chunk = {
        "convention": "layout=BTHD;state=VK",
        "contract": "bf16-chunk;gram=tf32/rz;gate_sum=prefix_tree;accumulator=tensor_core;g_min=-10000",
        "capabilities": "ops=prefill;io=bf16;state=fp32;gate=fp32;beta=fp32;K=1..256;varlen;h0;ht;noht;g_min=-10000;beta_max=2",
        "properties": "deterministic;symmetric",
    }
    recurrent = {
        "convention": "state=VK",
        "contract": "fp32-recurrent",
        "capabilities": "ops=decode,verify;io=fp32,bf16,fp16;state=fp32;gate=fp32;beta=fp32;h0;ht;g_min=-inf;beta_max=2",
        "properties": "deterministic;symmetric;masks_select",
    }
    return {
        "name": WHICH,
        "description": f"{PACKAGE} {function.__name__} on {torch.cuda.get_device_name()}" + (", one Triton configuration, not autotuned" if QUICK else ""),
        "version": version(PACKAGE),
        "device": "cuda",
        "module": f"{function.__module__}.{function.__name__}",
        "packages": {PACKAGE: version(PACKAGE), "torch": torch.__version__, "triton": triton.__version__},
        **(recurrent if WHICH == "vllm_recurrent" else chunk),
    }


def tensor(x, dtype="fp32"):
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return torch.from_numpy(np.ascontiguousarray(x)).to("cuda").to(dtypes[dtype])  # exact: x holds values of that dtype


def prefill(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    N, HV, K, V = problem.sequences, problem.value_heads, problem.key_dim, problem.value_dim
    options = {} if cu_seqlens is None else {"cu_seqlens": torch.from_numpy(np.asarray(cu_seqlens, np.int32)).to("cuda")}
    state = torch.zeros(N, HV, V, K, device="cuda") if h0 is None else tensor(h0)
    if PACKAGE == "sglang":
        options.update(initial_state=state, initial_state_indices=torch.arange(N, dtype=torch.int32, device="cuda"))
    else:
        options.update(initial_state=None if h0 is None else state, output_final_state=problem.final_state)
    o, final, *_ = function(*(tensor(x, problem.io) for x in (q, k, v)), g=tensor(g), beta=tensor(beta), scale=scale, **options)
    final = state if PACKAGE == "sglang" else final
    return o.float().cpu().numpy(), None if final is None else final.cpu().numpy()


def steps(problem, q, k, v, g, beta, scale, h0, cu_seqlens, state_indices, accepted, snapshots):
    N, HV, d = len(state_indices), problem.value_heads, problem.draft
    lengths = np.diff(cu_seqlens)
    # Rows of vLLM's pool: nobody's, the slots, then one for each draft token.
    pool = torch.zeros(1 + len(h0) + N * max(d, 1), *h0.shape[1:], device="cuda")
    pool[1:1 + len(h0)] = tensor(h0)
    indices = torch.zeros(N, max(d, 1), dtype=torch.int32, device="cuda")
    begin = torch.ones(N, dtype=torch.int32, device="cuda")
    for n, slot in enumerate(state_indices):
        if slot < 0:
            continue
        if d == 0:  # a step in place
            indices[n, 0] = 1 + int(slot)
            continue
        row = 1 + len(h0) + n * d
        indices[n] = torch.arange(row, row + d, dtype=torch.int32)
        if accepted is not None and accepted[n] > 0:
            pool[row:row + d] = tensor(snapshots[n * d:(n + 1) * d])
            begin[n] = int(accepted[n])
            pool[1 + int(slot)] = pool[row + int(accepted[n]) - 1]  # kept by the scheduler's own copy
        else:
            pool[row] = pool[1 + int(slot)]
    T = int(cu_seqlens[-1])
    inputs = [tensor(x[None, :T], problem.io) for x in (q, k, v)]
    o, _ = function(*inputs, g=tensor(g[None, :T]), beta=tensor(beta[None, :T]), scale=scale, initial_state=pool, inplace_final_state=True,
                    cu_seqlens=torch.from_numpy(np.asarray(cu_seqlens, np.int32)).to("cuda"), ssm_state_indices=indices,
                    num_accepted_tokens=begin if d else None)
    out = np.zeros(v.shape, np.float32)
    out[:T] = o[0].float().cpu().numpy()
    states = pool.cpu().numpy()
    ht = states[1:1 + len(h0)].copy()
    if problem.operation == "verify":
        return out, ht, states[1 + len(h0):]
    if d:  # the plain step after draft tokens leaves its state in the row of the first one
        for n, slot in enumerate(state_indices):
            if slot >= 0 and lengths[n] > 0:
                ht[slot] = states[1 + len(h0) + n * d]
    return out, ht


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens, state_indices=None, accepted=None, snapshots=None):
    if problem.rule != "gated_delta":
        raise NotSupported(f"rule {problem.rule}")
    if problem.operation == "prefill":
        return prefill(problem, q, k, v, g, beta, scale, h0, cu_seqlens)
    return steps(problem, q, k, v, g, beta, scale, h0, cu_seqlens, state_indices, accepted, snapshots)


if __name__ == "__main__":
    serve(run, declaration)
