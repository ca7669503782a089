#!/usr/bin/env python3
"""FlashQLA (Qwen): its TileLang kernels of the gated delta rule, on a GPU of the Hopper generation.

    python3 -m pip install flash-qla h5py        # beside PyTorch with CUDA; needs nvcc
    gdn-cts verify --exec 'python3 tools/adapters/flash_qla_gated_delta_rule.py bf16' --timeout 400

bf16: chunk_gated_delta_rule with tensors of that dtype. Kernels are compiled at their first call, for each number of heads
and each scale: hence the timeout.

Tried with flash-qla 0.1.3, tilelang 0.1.15, torch 2.11.0 on an H200. Read in that source (ops/gated_delta_rule/chunk/hopper):
- K = V = 128, C = 64; state [K,V], carried in fp32; gates are summed by a scan from the start of the chunk;
- the inverse is taken of I + beta K K^T without gates, by blocks of 16 in fp32 and a last product in TF32, rounded to the io dtype, then multiplied
  by decays and beta and rounded again, which is declared as beta in that dtype;
- residual form: v - e^G S^T k is rounded once; corrected values, decayed ones for the state, the state as operand and the scores are rounded to the io dtype;
- a sequence without tokens is refused (no `empty`).
"""
import sys

import numpy as np

from gdn_cts_adapter import NotSupported, serve

IO = sys.argv[1] if sys.argv[1:] == ["bf16"] else sys.exit("usage: flash_qla_gated_delta_rule.py bf16")


def declaration():
    global torch, function
    from importlib.metadata import version
    import torch
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    from flash_qla import chunk_gated_delta_rule as function
    from flash_qla.ops.gated_delta_rule.chunk import fused_gdr_fwd
    torch.set_grad_enabled(False)
    return {
        "name": f"flash_qla_{IO}",
        "description": f"FlashQLA {function.__name__} on {torch.cuda.get_device_name()}",
        "version": version("flash_qla"),
        "device": "cuda",
        "convention": "layout=BTHD",
        "contract": f"{IO}-chunk;vectors=residual;gram=tf32/rz;M={IO};beta={IO};gate_sum=prefix_tree;accumulator=tensor_core;D=fp32/flush;u_exp=2e-5;g_min=-10000",
        "capabilities": f"ops=prefill;io={IO};state=fp32;gate=fp32;beta=fp32;K=128;V=128;varlen;h0;ht;noht;g_min=-10000;beta_max=2",
        "properties": "deterministic;symmetric",
        "module": f"{function.__module__}.{function.__name__} -> {fused_gdr_fwd.__module__}.{fused_gdr_fwd.__name__}",
        "packages": {p: version(p) for p in ("flash_qla", "tilelang", "apache-tvm-ffi", "torch")},
    }


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    if problem.rule != "gated_delta":
        raise NotSupported(f"rule {problem.rule}")
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

    def tensor(x, dtype="fp32"):
        return torch.from_numpy(np.ascontiguousarray(x)).to("cuda").to(dtypes[dtype])  # exact: x holds values of that dtype

    options = {} if cu_seqlens is None else {"cu_seqlens": torch.from_numpy(np.asarray(cu_seqlens, np.int64)).to("cuda")}
    o, ht = function(*(tensor(x, problem.io) for x in (q, k, v)), g=tensor(g), beta=tensor(beta), scale=scale,
                     initial_state=None if h0 is None else tensor(h0), output_final_state=problem.final_state, **options)
    return o.float().cpu().numpy(), None if ht is None else ht.cpu().numpy()


if __name__ == "__main__":
    serve(run, declaration)
