#!/usr/bin/env python3
"""MLX: the gated delta rule of mlx-lm and of MLX itself, on the CPU.

    python3 -m pip install 'mlx[cpu]' mlx-lm h5py numpy        # Python 3.11 or newer; MLX compiles with the C++ compiler it finds
    gdn-cts verify --exec 'python3 tools/adapters/mlx_gated_delta.py ops'

ops: mlx_lm.models.gated_delta.gated_delta_ops, which mlx-lm's models (Qwen3-Next, Qwen3.5, OLMo-Hybrid, Kimi-Linear) run
wherever there is no Metal.  fast, fast_bf16, fast_fp16: mlx.core.fast.gated_delta_update, MLX's own operation, by the dtype of q, k and v.

Tried with mlx 0.32.4 and mlx-lm 0.32.2 on the CPU of Linux. Read in that source:
- ops: a loop over tokens. The decay is linear, state [V,K] in fp32; q, k, v, beta of a narrower dtype are widened by the
  product with the state, and o is rounded once to the dtype of q. There is no scale: the caller folds it into q; a gate per
  key channel (KDA) is the same code;
- fast: is bit for bit what ops gives with decay and beta rounded to the dtype of q (tried), so those two points of the contract
  are of that dtype: in bf16 a decay above 0.998 is 1;
- raw gates: mlx-lm's gated_delta_update takes a, A_log, dt_bias and beta's logits. Logits cannot give every beta exactly, so the two
  functions that it consists of are called here, compute_g and gated_delta_ops;
- a batch row is a sequence: there is no cu_seqlens (no `varlen`), and no call without tokens (no `empty`).
On a Mac the models run Metal kernels instead. This adapter asks for the CPU, so that it says nothing about them.
"""
import sys

import numpy as np

from gdn_cts_adapter import serve

DECLARED = {
    "ops": ("fp32-recurrent", "io=fp32,bf16,fp16;beta=fp32,bf16,fp16;rules=gated_delta,kda;raw_gates;A_log_max=88"),
    "fast": ("fp32-recurrent", "io=fp32;beta=fp32,bf16,fp16"),
    "fast_bf16": ("fp32-recurrent;beta=bf16;D=bf16", "io=bf16;beta=fp32,bf16,fp16"),
    "fast_fp16": ("fp32-recurrent;beta=fp16;D=fp16", "io=fp16;beta=fp32,bf16,fp16"),
}
WHICH = sys.argv[1] if len(sys.argv) == 2 and sys.argv[1] in DECLARED else sys.exit("usage: mlx_gated_delta.py " + "|".join(DECLARED))
function = None


def declaration():
    global function, module, mx
    from importlib.metadata import version
    import mlx.core as mx
    from mlx_lm.models import gated_delta as module
    mx.set_default_device(mx.cpu)
    function = module.gated_delta_ops if WHICH == "ops" else mx.fast.gated_delta_update
    contract, capabilities = DECLARED[WHICH]
    return {
        "name": f"mlx_{WHICH}",
        "description": "mlx-lm gated_delta_ops, CPU" if WHICH == "ops" else "MLX fast.gated_delta_update, CPU",
        "version": version("mlx-lm" if WHICH == "ops" else "mlx"),
        "convention": "layout=BTHD;state=VK;gate=linear;scale=folded",
        "contract": contract,
        "capabilities": "ops=prefill;state=fp32;gate=fp32;h0;ht;noht;g_min=-inf;beta_max=2;" + capabilities,
        "properties": "deterministic;symmetric;masks_select",
        "module": f"{function.__module__}.{function.__name__}",
        "packages": {"mlx": version("mlx"), "mlx-lm": version("mlx-lm")},
    }


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens, a=None, A_log=None, dt_bias=None):
    dtypes = {"fp32": mx.float32, "bf16": mx.bfloat16, "fp16": mx.float16}

    def tensor(x, dtype="fp32"):
        return mx.array(np.ascontiguousarray(x, np.float32)).astype(dtypes[dtype])  # exact: x holds values of that dtype

    decay = module.compute_g(tensor(A_log), tensor(a), tensor(dt_bias)) if problem.raw else tensor(g)
    o, ht = function(*(tensor(x, problem.io) for x in (q, k, v)), decay, tensor(beta, problem.beta),
                     None if h0 is None else tensor(h0))
    return np.array(o.astype(mx.float32)), np.array(ht)


if __name__ == "__main__":
    serve(run, declaration)
