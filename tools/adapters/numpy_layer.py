#!/usr/bin/env python3
"""The layer around the rule in numpy, float32: the smallest whole adapter of layer_prefill and layer_decode, and one that shares no code with the suite.

    gdn-cts verify --profile layer --exec 'python3 tools/adapters/numpy_layer.py'

Separate projections, a history of W-1 columns, states in and out, packed sequences; a token's numbers depend on it and on the states alone.
"""
import numpy as np

from gdn_cts_adapter import round_output, serve

EPS = np.float32(1e-6)


def sigmoid(x):
    x = x.astype(np.float64)
    e = np.exp(-np.abs(x))
    return (np.where(x >= 0, 1, e) / (1 + e)).astype(np.float32)


def silu(x):
    return x * sigmoid(x)


def normed(x, mean):
    total = (x * x).sum(axis=-1, keepdims=True)
    return x / np.sqrt((total / np.float32(x.shape[-1]) if mean else total) + EPS)


def unit(problem, x):
    if problem.l2 == "none":
        return x
    if problem.l2 == "max":
        return x / np.maximum(np.sqrt((x * x).sum(axis=-1, keepdims=True)), EPS)
    return normed(x, mean=False)


def decays(a, A_log, dt_bias):
    """exp(-exp(A_log) softplus(a + dt_bias)), right in both tails."""
    x = a.astype(np.float64) + dt_bias
    # log of softplus, so that exp(A_log) alone need not be representable
    log_soft = np.where(x < -30, x, np.log(np.maximum(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), 1e-300)))
    return np.exp(-np.exp(A_log.astype(np.float64) + log_soft)).astype(np.float32)


def layer(problem, tensors, scale, cu_seqlens):
    t = {name: x.astype(np.float32) for name, x in tensors.items()}
    H, HV, K, V, W = problem.heads, problem.value_heads, problem.key_dim, problem.value_dim, problem.conv
    y = np.zeros_like(t["x"])
    history = t["conv_state"]  # [N,channels,W-1], oldest first
    states = t["h0"].copy() if problem.initial_state else np.zeros((problem.sequences, HV, K, V), np.float32)
    for n in range(problem.sequences):
        begin, end = (cu_seqlens[n], cu_seqlens[n + 1]) if cu_seqlens is not None else (0, problem.tokens)
        for row in range(begin, end):
            u = normed(t["x"][row], mean=True) * t["norm_in_w"]
            m, z, a, b = (t[w] @ u for w in ("w_qkv", "w_z", "w_a", "w_b"))
            window = np.concatenate([history[n], m[:, None]], axis=1)
            history[n] = window[:, 1:]  # what the projection gave, before the convolution
            c = silu((window * t["w_conv"]).sum(axis=1))
            q, k, v = c[:H * K].reshape(H, K), c[H * K:2 * H * K].reshape(H, K), c[2 * H * K:].reshape(HV, V)
            q, k = (np.repeat(unit(problem, x), HV // H, axis=0)[:, :, None] for x in (q, k))
            S = states[n]  # [HV,K,V], in place
            S *= decays(a, t["A_log"], t["dt_bias"])[:, None, None]
            S += k * (sigmoid(b)[:, None] * (v - (S * k).sum(axis=1)))[:, None, :]
            o = np.float32(scale) * (S * q).sum(axis=1)
            y[row] = t["w_out"] @ (normed(o, mean=True) * t["norm_w"] * silu(z.reshape(HV, V))).reshape(-1)
    results = {"y": round_output(problem, y), "conv_state": round_output(problem, history)}
    return {**results, "ht": states} if problem.final_state else results


if __name__ == "__main__":
    serve(None, {
        "name": "numpy_layer",
        "description": "the layer token by token, numpy float32",
        "version": "1",
        "contract": "fp32-recurrent",
        "capabilities": "ops=layer_prefill,layer_decode;io=fp32,bf16,fp16;state=fp32;gate=fp32,bf16,fp16;varlen;h0;ht;noht;empty;g_min=-inf",
        "properties": "deterministic;masks_select",
        "module": "numpy_layer.layer",
    }, layer=layer)
