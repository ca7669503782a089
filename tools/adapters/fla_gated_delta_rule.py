#!/usr/bin/env python3
"""flash-linear-attention (FLA): its Triton kernels of the gated delta rule, on the GPU.

    python3 -m pip install fla-core einops        # beside PyTorch with CUDA, Triton, h5py
    gdn-cts verify --exec 'python3 tools/adapters/fla_gated_delta_rule.py chunk --quick'

chunk: bf16 tensors.  chunk_fp16: fp16 ones.  chunk_fp32: fp32 ones, whose products FLA does in TF32.  recurrent: fused_recurrent.
--quick: of each Triton kernel the first configuration that the package lists, where FLA times all of them for each new
shape (minutes a shape); the records say so.
--any-gate: declares chunk for every gate, down to -inf, to see what it does below the -1e4 that it is declared for otherwise.

Tried with fla-core 0.6.0, torch 2.11.0, triton 3.6.0 on an H200. Read in that source:
- chunk: C = 64; gates summed by a scan (a tree) from the start of the chunk and taken to base 2, so that a very negative gate
  absorbs later ones; L in fp32 from products of the io dtype, its inverse by blocks of 16 with TF32 products; M, beta v,
  beta e^G k, U, W, Vn, the state as operand and the scores rounded to the io dtype; Vn is scaled by its decay
  before it is rounded for the state; the carried state is fp32; scale is applied to the sum;
- recurrent: float32 inside, q times scale first, o rounded once; ht is float32;
- packed sequences are a batch of 1 with cu_seqlens; K up to 256;
- other packages take over where they are installed (FlashQLA, TileLang): a call that one of them answers is an error
  here, since the contract declared is that of the Triton kernels.
"""
import logging
import sys

import numpy as np

from gdn_cts_adapter import NotSupported, serve
from gdn_cts_adapter.triton_kernels import one_configuration

arguments = [a for a in sys.argv[1:] if a not in ("--quick", "--any-gate")]
QUICK = "--quick" in sys.argv[1:]
WHICH = arguments[0] if len(arguments) == 1 and arguments[0] in ("chunk", "chunk_fp16", "chunk_fp32", "recurrent") else sys.exit(
    "usage: fla_gated_delta_rule.py chunk|chunk_fp16|chunk_fp32|recurrent [--quick] [--any-gate]")
G_MIN = "-inf" if "--any-gate" in sys.argv[1:] else "-10000"
K_MAX = 128 if QUICK and WHICH == "chunk_fp32" else 256  # the first configurations need more shared memory than there is
CHUNK = f"ops=prefill;state=fp32;gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;K=1..{K_MAX};varlen;h0;ht;noht;empty;g_min={G_MIN};beta_max=2;io="
SUMS = f";gate_sum=prefix_tree;accumulator=tensor_core;g_min={G_MIN}"
TF32 = ";bv=fp32;q_scaled=fp32;k_scaled=fp32;" + ";".join(f"{p}=tf32/rz" for p in "q_in k_in gram M bk W Vn_o Vn_s S_op P".split())
DECLARED = {
    "chunk": ("bf16-chunk;gram=tf32/rz" + SUMS, CHUNK + "bf16", "deterministic;symmetric"),
    "chunk_fp16": ("fp16-chunk;gram=tf32/rz" + SUMS, CHUNK + "fp16", "deterministic;symmetric"),
    "chunk_fp32": ("tf32-chunk" + TF32 + SUMS, CHUNK + "fp32", "deterministic;symmetric"),
    "recurrent": ("fp32-recurrent", "ops=prefill;io=fp32,bf16,fp16;state=fp32;gate=fp32,bf16,fp16;beta=fp32,bf16,fp16;varlen;h0;ht;noht;empty;g_min=-inf;beta_max=2",
                  "deterministic;symmetric;masks_select"),
}
others = []  # backends that took a call over
function = None


class Listener(logging.Handler):
    def emit(self, record):
        text = record.getMessage()
        if " -> " in text and "rejected" not in text:
            others.append(text.rsplit(" -> ", 1)[1])


def declaration():
    global function, torch
    import fla
    import torch
    import triton
    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device")
    log = logging.getLogger("fla.backends")
    log.setLevel(logging.INFO)
    log.addHandler(Listener())
    if QUICK:
        one_configuration()
    from fla.ops import gated_delta_rule
    function = gated_delta_rule.fused_recurrent_gated_delta_rule if WHICH == "recurrent" else gated_delta_rule.chunk_gated_delta_rule
    torch.set_grad_enabled(False)
    contract, capabilities, properties = DECLARED[WHICH]
    return {
        "name": f"fla_{WHICH}",
        "description": f"FLA {function.__name__} on {torch.cuda.get_device_name()}" + (", one Triton configuration, not autotuned" if QUICK else ""),
        "version": fla.__version__,
        "device": "cuda",
        "convention": "layout=BTHD;empty=copies_h0",
        "contract": contract,
        "capabilities": capabilities,
        "properties": properties,
        "module": f"{function.__module__}.{function.__name__}",
        "packages": {"fla-core": fla.__version__, "torch": torch.__version__, "triton": triton.__version__},
    }


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    if problem.rule != "gated_delta":
        raise NotSupported(f"rule {problem.rule}")
    dtypes = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

    def tensor(x, dtype):
        return torch.from_numpy(np.ascontiguousarray(x)).to("cuda").to(dtypes[dtype])  # exact: x holds values of that dtype

    packed = cu_seqlens is not None
    options = {"cu_seqlens": torch.from_numpy(np.asarray(cu_seqlens, np.int64)).to("cuda")} if packed else {}
    o, ht = function(*(tensor(x, problem.io) for x in (q, k, v)), g=tensor(g, problem.gate), beta=tensor(beta, problem.beta), scale=scale,
                     initial_state=None if h0 is None else tensor(h0, problem.state), output_final_state=problem.final_state, **options)
    torch.cuda.synchronize()
    if others:
        raise RuntimeError(f"FLA ran {others[0]} in place of its Triton kernels")
    return o.float().cpu().numpy(), None if ht is None else ht.cpu().numpy()


if __name__ == "__main__":
    serve(run, declaration)
