#!/usr/bin/env python3
"""The recurrence in numpy, float32: the smallest whole adapter, and a kernel that shares no code with the suite.

    gdn-cts verify --exec 'python3 tools/adapters/numpy_recurrence.py'
"""
import numpy as np

from gdn_cts_adapter import NotSupported, round_output, serve


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    if problem.rule != "gated_delta":
        raise NotSupported(f"rule {problem.rule}")
    q, k, v, g, beta = (x.astype(np.float32) for x in (q, k, v, g, beta))
    ratio = problem.value_heads // problem.heads
    alpha = np.exp(g.astype(np.float64)).astype(np.float32)  # numpy's float32 exp is off by more than 2 ulp
    scale = np.float32(scale)
    o = np.zeros(v.shape, np.float32)
    ht = np.zeros((len(cu_seqlens) - 1, problem.value_heads, problem.key_dim, problem.value_dim), np.float32)
    if h0 is not None:
        ht[...] = h0
    for n, state in enumerate(ht):  # state [HV,K,V], updated in place
        for t in range(cu_seqlens[n], cu_seqlens[n + 1]):
            key, query = np.repeat(k[t], ratio, axis=0)[:, :, None], np.repeat(q[t], ratio, axis=0)[:, :, None]
            state *= alpha[t][:, None, None]
            read = (state * key).sum(axis=1)
            delta = beta[t][:, None] * (v[t] - read)
            state += key * delta[:, None, :]
            o[t] = scale * (state * query).sum(axis=1)
    return round_output(problem, o), ht


if __name__ == "__main__":
    serve(run, {
        "name": "numpy_recurrence",
        "description": "gated delta rule, token by token, numpy float32",
        "version": "1",
        "convention": "",
        "contract": "fp32-recurrent",
        "capabilities": "ops=prefill;io=fp32,bf16,fp16;state=fp32;gate=fp32,bf16;beta=fp32,bf16;varlen;h0;ht;empty;g_min=-inf;beta_max=2",
        "properties": "deterministic;symmetric;masks_select",
        "module": "numpy_recurrence.run",
    })
