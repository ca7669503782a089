#!/usr/bin/env python3
"""The stages of the chunkwise form in numpy, float32: an adapter for authors of one sub-kernel, which shares no code with the suite.

    gdn-cts verify --profile stages/inverse --exec 'python3 tools/adapters/numpy_stages.py inverse'

Without arguments it offers all six; with names of stages, these alone.
"""
import sys

import numpy as np

from gdn_cts_adapter import round_to, serve


def chunks(problem, cu_seqlens):  # (number, first row, rows, sequence)
    number = 0
    for n in range(len(cu_seqlens) - 1):
        for first in range(cu_seqlens[n], cu_seqlens[n + 1], problem.chunk):
            yield number, first, min(problem.chunk, cu_seqlens[n + 1] - first), n
            number += 1


def power(x):  # numpy's float32 exp is off by more than 2 ulp
    return np.exp(np.asarray(x, np.float64)).astype(np.float32)


def head_major(t, first, rows, ratio=1):  # [rows,H,D] as [HV,rows,D]
    return np.repeat(t[first:first + rows].astype(np.float32), ratio, axis=1).swapaxes(0, 1)


def gate_sum(problem, t, scale, cu):
    G = np.zeros(t["g"].shape, np.float32)
    for _, first, rows, _ in chunks(problem, cu):
        G[first:first + rows] = np.cumsum(t["g"][first:first + rows].astype(np.float32), axis=0, dtype=np.float32)
    return {"G": G}


def pairs(G, rows):  # e^(G_i-G_j) on and below the diagonal, [HV,rows,rows]
    below = np.tril(np.ones((rows, rows), bool))
    return np.where(below, power(np.where(below, G[:, :, None] - G[:, None, :], 0)), np.float32(0))


def gram(problem, t, scale, cu):
    L = np.zeros((*t["G"].shape, problem.chunk), np.float32)
    ratio = problem.value_heads // problem.heads
    for _, first, rows, _ in chunks(problem, cu):
        k, G, beta = head_major(t["k"], first, rows, ratio), t["G"][first:first + rows].T, t["beta"][first:first + rows].astype(np.float32).T
        L[first:first + rows, :, :rows] = (np.tril(k @ k.swapaxes(1, 2), -1) * beta[:, :, None] * pairs(G, rows)).swapaxes(0, 1)
    return {"L": L}


def inverse(problem, t, scale, cu):
    M = np.zeros(t["L"].shape, np.float32)
    for _, first, rows, _ in chunks(problem, cu):
        L = head_major(t["L"], first, rows)
        m = np.tile(np.eye(rows, dtype=np.float32), (L.shape[0], 1, 1))
        for i in range(1, rows):  # forward substitution
            m[:, i, :] -= (L[:, i, None, :i] @ m[:, :i, :])[:, 0]
        M[first:first + rows, :, :rows] = m.swapaxes(0, 1)
    return {"M": round_to(M, problem.io)}


def uw(problem, t, scale, cu):
    U, W = np.zeros(t["v"].shape, np.float32), np.zeros((*t["G"].shape, problem.key_dim), np.float32)
    ratio = problem.value_heads // problem.heads
    for _, first, rows, _ in chunks(problem, cu):
        M = head_major(t["M"], first, rows)[:, :, :rows]
        beta, G = t["beta"][first:first + rows].astype(np.float32).T[:, :, None], t["G"][first:first + rows].T[:, :, None]
        U[first:first + rows] = (M @ (beta * head_major(t["v"], first, rows))).swapaxes(0, 1)
        W[first:first + rows] = (M @ (beta * head_major(t["k"], first, rows, ratio) * power(G))).swapaxes(0, 1)
    return {"U": round_to(U, problem.io), "W": round_to(W, problem.io)}


def chunk_states(problem, t, scale, cu):
    ratio, all_chunks = problem.value_heads // problem.heads, list(chunks(problem, cu))
    S = np.zeros((len(cu) - 1, problem.value_heads, problem.key_dim, problem.value_dim), np.float32)
    if "h0" in t:
        S[...] = t["h0"]
    states, Vn = np.zeros((len(all_chunks), *S.shape[1:]), np.float32), np.zeros(t["U"].shape, np.float32)
    for number, first, rows, n in all_chunks:
        states[number] = S[n]
        G, k = t["G"][first:first + rows].T, head_major(t["k"], first, rows, ratio)
        v = head_major(t["U"], first, rows) - head_major(t["W"], first, rows) @ S[n]
        Vn[first:first + rows] = v.swapaxes(0, 1)
        S[n] = power(G[:, -1])[:, None, None] * S[n] + k.swapaxes(1, 2) @ (power(G[:, -1:] - G)[:, :, None] * v)
    result = {"states": round_to(states, problem.io), "Vn": round_to(Vn, problem.io)}
    return {**result, "ht": round_to(S, problem.state)} if problem.final_state else result


def output(problem, t, scale, cu):
    o, ratio = np.zeros(t["Vn"].shape, np.float32), problem.value_heads // problem.heads
    for number, first, rows, _ in chunks(problem, cu):
        q, k, G = head_major(t["q"], first, rows, ratio), head_major(t["k"], first, rows, ratio), t["G"][first:first + rows].T
        local = np.tril(q @ k.swapaxes(1, 2)) * pairs(G, rows) @ head_major(t["Vn"], first, rows)
        o[first:first + rows] = (np.float32(scale) * (power(G)[:, :, None] * (q @ t["states"][number].astype(np.float32)) + local)).swapaxes(0, 1)
    return {"o": round_to(o, problem.io)}


STAGES = {"gate_sum": gate_sum, "gram": gram, "inverse": inverse, "uw": uw, "chunk_states": chunk_states, "output": output}

if __name__ == "__main__":
    offered = sys.argv[1:] or list(STAGES)
    serve(None, {
        "name": "numpy_stages",
        "description": "stages of the chunkwise form, numpy float32",
        "version": "1",
        "contract": "fp32-chunk",
        "capabilities": "ops=stages;stages=" + ",".join(offered) + ";chunks=16,32,64,128;io=fp32,bf16,fp16;gate=fp32,bf16;varlen;h0;ht;empty;beta_max=2",
        "properties": "deterministic;symmetric",
    }, {name: STAGES[name] for name in offered})
