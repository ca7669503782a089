#!/usr/bin/env python3
"""Hugging Face transformers: the GatedDeltaNet module of Qwen3-Next or Qwen3.5 with the hidden norm of its decoder layer, as a kernel of the layer.

    tools/adapters/setup_transformers.sh          # once: PyTorch and transformers into build/venv-transformers
    gdn-cts verify --profile layer --exec 'build/venv-transformers/bin/python tools/adapters/transformers_layer.py qwen3_next fp32'

Models qwen3_next (projections packed per key head), qwen3_5 (separate ones); dtypes fp32, bf16. Tried with torch 2.15.0 and transformers
5.24.0 on the CPU. Read in that source:
- more than one token runs torch_chunk_gated_delta_rule, one token on a cache torch_recurrent_gated_delta_rule, each in float32 whatever the model's
  dtype; q and k are normalised inside by rsqrt(sum x^2 + 1e-6); the scale is always K^-1/2;
- the cache keeps W columns of the history, before the convolution, oldest first; a resumed prefill of any length reads it;
- the hidden norm multiplies by 1 + its weight; the gated norm by its weight;
- in bf16 every module output is rounded: hidden norm, projections, convolution, SiLU, sigmoid(b), the rule's output, that normalised, that weighted and gated;
- packed sequences need kernels of other packages, so sequences of equal length are one call with a batch row each and others one call each: that packed
  ones stay apart shows nothing about transformers.
A state that is zero (no h0, a history of zeros) is an empty cache, as a model starts; any other is put into the cache by its own methods.
"""
import inspect
import sys

import numpy as np

from gdn_cts_adapter import serve

MODELS = {"qwen3_next": ("Qwen3Next", "Qwen3NextConfig"), "qwen3_5": ("Qwen3_5", "Qwen3_5TextConfig")}
DTYPES = ("fp32", "bf16")
if len(sys.argv) != 3 or sys.argv[1] not in MODELS or sys.argv[2] not in DTYPES:
    sys.exit(f"usage: transformers_layer.py {'|'.join(MODELS)} {'|'.join(DTYPES)}")
MODEL, IO = sys.argv[1:]
RULE = "fp32-chunk;solve=substitution;vectors=wu;gate_sum=prefix_seq;chunk=64;g_min=-10000"
ROUNDED = "x_norm proj conv_sum conv core normal normed beta"


def declaration():
    global torch, config_class, modeling, DynamicCache
    import importlib

    import torch
    import transformers
    from transformers.cache_utils import DynamicCache
    modeling = importlib.import_module(f"transformers.models.{MODEL}.modeling_{MODEL}")
    config_class = getattr(importlib.import_module(f"transformers.models.{MODEL}.configuration_{MODEL}"), MODELS[MODEL][1])
    ran = []
    for name in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn", "causal_conv1d_update"):
        public = getattr(modeling, name)
        # The public name is a wrapper; what it calls was chosen when the module was imported.
        real = inspect.getclosurevars(public).nonlocals.get("implementation", public)
        if not real.__module__.startswith("transformers."):
            raise RuntimeError(f"transformers runs {real.__module__}.{real.__qualname__} here, and this adapter declares its own code")
        ran.append(real.__qualname__)
    torch.set_grad_enabled(False)
    module = getattr(modeling, MODELS[MODEL][0] + "GatedDeltaNet")
    return {
        "name": f"transformers_layer_{MODEL}_{IO}",
        "description": f"transformers {module.__name__} and the hidden norm before it, {IO}, CPU",
        "version": transformers.__version__,
        "convention": "scale=fixed;history=full;norm_in=offset" + (";projections=packed" if MODEL == "qwen3_next" else ""),
        "contract": RULE + ("" if IO == "fp32" else "".join(f";{point}=bf16" for point in ROUNDED.split())),
        "capabilities": f"ops=layer_prefill,layer_decode;io={IO};l2=root;state=fp32;gate=fp32,bf16,fp16;varlen;h0;ht;noht;empty;short_offsets;g_min=-10000",
        "properties": "deterministic;symmetric",
        "module": f"{module.__module__}.{module.__qualname__} ({', '.join(ran)})",
        "packages": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def modules(problem, tensors):
    """The hidden norm and the layer with these weights."""
    config = config_class(hidden_size=problem.hidden, num_hidden_layers=1, layer_types=["linear_attention"], rms_norm_eps=1e-6,
                          linear_conv_kernel_dim=problem.conv, linear_key_head_dim=problem.key_dim, linear_value_head_dim=problem.value_dim,
                          linear_num_key_heads=problem.heads, linear_num_value_heads=problem.value_heads, vocab_size=16)
    prefix = MODELS[MODEL][0]
    norm = getattr(modeling, prefix + "RMSNorm")(problem.hidden, eps=config.rms_norm_eps)
    with torch.device("meta"):  # no random weights first
        layer = getattr(modeling, prefix + "GatedDeltaNet")(config, 0)

    def weight(name, dtype, *shape):
        t = torch.from_numpy(np.ascontiguousarray(tensors[name], dtype=np.float32)).to(dtype)  # exact: values of that dtype
        return torch.nn.Parameter(t.reshape(shape) if shape else t)

    io, gate = (getattr(torch, {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[d]) for d in (problem.io, problem.gate))
    norm.weight = weight("norm_in_w", torch.float32)
    if MODEL == "qwen3_next":
        layer.in_proj_qkvz.weight, layer.in_proj_ba.weight = weight("w_qkv", io), weight("w_b", io)
    else:
        layer.in_proj_qkv.weight, layer.in_proj_z.weight = weight("w_qkv", io), weight("w_z", io)
        layer.in_proj_a.weight, layer.in_proj_b.weight = weight("w_a", io), weight("w_b", io)
    layer.conv1d.weight = weight("w_conv", io, -1, 1, problem.conv)
    layer.out_proj.weight = weight("w_out", io)
    layer.norm.weight = weight("norm_w", torch.float32)
    layer.A_log, layer.dt_bias = weight("A_log", gate), weight("dt_bias", gate)
    return config, norm.eval(), layer.eval(), io


def run(problem, tensors, scale, cu_seqlens):
    config, norm, layer, io = modules(problem, tensors)
    x = torch.from_numpy(np.asarray(tensors["x"], np.float32)).to(io)
    history = torch.from_numpy(np.asarray(tensors["conv_state"], np.float32)).to(io)  # [N,channels,W]
    h0 = torch.from_numpy(np.asarray(tensors["h0"], np.float32)) if problem.initial_state else None
    y = torch.zeros(x.shape, dtype=io)
    after = history.clone()
    ht = torch.zeros(problem.sequences, problem.value_heads, problem.key_dim, problem.value_dim) if h0 is None else h0.clone()
    fresh = h0 is None and not history[..., 1:].any()

    def call(first, last):  # sequences of equal length
        rows, begin, length = last - first, sum(problem.lengths[:first]), problem.lengths[first]
        cache = DynamicCache(config=config)
        if not fresh:
            cache.update_conv_state(history[first:last].clone(), 0, conv_kernel_size=problem.conv)
            if h0 is not None:
                cache.update_recurrent_state(h0[first:last].clone(), 0)
        hidden = x[begin:begin + rows * length].reshape(rows, length, -1)
        y[begin:begin + rows * length] = layer(norm(hidden), cache=cache).reshape(rows * length, -1)
        after[first:last] = cache.get_conv_state(0)
        ht[first:last] = cache.get_recurrent_state(0)

    if len(set(problem.lengths)) == 1 and problem.lengths[0]:
        call(0, problem.sequences)
    else:
        for n, length in enumerate(problem.lengths):
            if length:  # no tokens, no call
                call(n, n + 1)
    results = {"y": y.float().numpy(), "conv_state": after.float().numpy()}
    return {**results, "ht": ht.numpy()} if problem.final_state else results


if __name__ == "__main__":
    serve(None, declaration, layer=run)
