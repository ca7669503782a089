#!/usr/bin/env python3
"""The recurrence in numpy, float32: the smallest whole adapter, and a kernel that shares no code with the suite.

    gdn-cts verify --exec 'python3 tools/adapters/numpy_recurrence.py'

With steps on a pool of states (decode), draft tokens (verify) and raw gates; a kernel without them needs none of that.
"""
import numpy as np

from gdn_cts_adapter import NotSupported, round_output, serve


def gates(a, A_log, dt_bias):
    """-exp(A_log) softplus(a + dt_bias), right in both tails."""
    x = a.astype(np.float64) + dt_bias
    with np.errstate(invalid="ignore"):  # infinity times 0, where A_log = -inf means no decay
        return np.where(A_log == -np.inf, 0, -np.exp(A_log.astype(np.float64)) * (np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))))


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens, a=None, A_log=None, dt_bias=None, state_indices=None, accepted=None, snapshots=None):
    if problem.rule != "gated_delta":
        raise NotSupported(f"rule {problem.rule}")
    g = gates(a, A_log, dt_bias) if problem.raw else g
    q, k, v, beta = (x.astype(np.float32) for x in (q, k, v, beta))
    ratio = problem.value_heads // problem.heads
    alpha = np.exp(np.asarray(g, np.float64)).astype(np.float32)  # numpy's float32 exp is off by more than 2 ulp
    scale = np.float32(scale)
    o = np.zeros(v.shape, np.float32)

    def step(state, t):  # state [HV,K,V], updated in place
        key, query = np.repeat(k[t], ratio, axis=0)[:, :, None], np.repeat(q[t], ratio, axis=0)[:, :, None]
        state *= alpha[t][:, None, None]
        read = (state * key).sum(axis=1)
        delta = beta[t][:, None] * (v[t] - read)
        state += key * delta[:, None, :]
        o[t] = scale * (state * query).sum(axis=1)

    if problem.operation != "prefill":
        shots = np.zeros((len(v), *h0.shape[1:]), np.float32)
        for n, slot in enumerate(state_indices):
            if slot < 0:  # no sequence in this row
                continue
            if accepted is not None and accepted[n] > 0:  # goes on from the snapshot of the last accepted token
                h0[slot] = snapshots[n * problem.draft + accepted[n] - 1]
            state = h0[slot].copy()
            for t in range(cu_seqlens[n], cu_seqlens[n + 1]):
                step(state, t)
                shots[t] = state
            if problem.operation == "decode":
                h0[slot] = state
        return round_output(problem, o), h0, shots
    ht = np.zeros((len(cu_seqlens) - 1, problem.value_heads, problem.key_dim, problem.value_dim), np.float32)
    if h0 is not None:
        ht[...] = h0
    for n, state in enumerate(ht):
        for t in range(cu_seqlens[n], cu_seqlens[n + 1]):
            step(state, t)
    return round_output(problem, o), ht


if __name__ == "__main__":
    serve(run, {
        "name": "numpy_recurrence",
        "description": "gated delta rule, token by token, numpy float32",
        "version": "1",
        "convention": "",
        "contract": "fp32-recurrent",
        "capabilities": "ops=prefill,decode,verify;io=fp32,bf16,fp16;state=fp32;gate=fp32,bf16;beta=fp32,bf16;varlen;h0;ht;empty;g_min=-inf;beta_max=2;raw_gates",
        "properties": "deterministic;symmetric;masks_select",
        "module": "numpy_recurrence.run",
    })
