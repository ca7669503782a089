#!/usr/bin/env python3
"""JAX: the gated delta rule of ejkernel, EasyDeL's kernel library, in its XLA form on the CPU.

    python3 -m pip install ejkernel jax h5py numpy        # Python 3.11 to 3.13
    gdn-cts verify --exec 'python3 tools/adapters/jax_ejkernel.py'

Tried with ejkernel 0.0.80.3, jax and jaxlib 0.10.2 on the CPU. Read in that source:
- several tokens: chunkwise, in chunks of 64 as configured here; gates summed by jnp.cumsum from the start of the chunk; L inverted by a
  triangular solve against the identity, U and W by products with that inverse; all of it in the dtype of q or in fp32;
- every exponent is clamped to -20..20 first, so that what should have decayed further is still there with e^-20 = 2.1e-9;
- one token with a state: another function, token by token and without that clamp;
- XLA takes subnormal numbers as zero on this CPU (tried), so every point flushes;
- scale is always K^-1/2, applied to q; q and k are given once per value head; the final state is cast to the dtype of q, so only fp32 is declared;
- a batch row is a sequence; seg_ids, for packed ones, know no initial state of each and are not used (no `varlen`).
"""
import numpy as np

from gdn_cts_adapter import serve

POINTS = "q_in k_in v_in beta G D gram M bv bk U W Vn_o Vn_s S_op S_carried P q_scaled k_scaled out ht".split()


def declaration():
    global call
    from importlib.metadata import version
    import jax
    jax.config.update("jax_platforms", "cpu")
    from ejkernel.kernels._registry import Backend, Platform, kernel_registry
    from ejkernel.modules.operations import gated_delta_rule
    from ejkernel.modules.operations.configs import GatedDeltaRuleConfig
    config = GatedDeltaRuleConfig(chunk_size=64, platform="xla", backend="any")
    ran = kernel_registry.get("gated_delta_rule", platform=Platform.XLA, backend=Backend.ANY)
    call = jax.jit(lambda q, k, v, beta, g, h0: gated_delta_rule(q, k, v, beta, g, None, h0, use_qk_l2norm=False, return_state=True, platform="xla",
                                                                 cfg=config))
    return {
        "name": "ejkernel",
        "description": "ejkernel gated_delta_rule, XLA, CPU",
        "version": version("ejkernel"),
        "convention": "layout=BTHD;heads=repeated;scale=fixed",
        "contract": "fp32-chunk;solve=block_inverse;block=64;gate_sum=prefix_tree;g_min=-10000;" + ";".join(f"{p}=fp32/flush" for p in POINTS),
        "capabilities": "ops=prefill;io=fp32;state=fp32;gate=fp32;beta=fp32;h0;ht;noht;g_min=-10000;beta_max=2",
        "properties": "deterministic;symmetric",
        "module": f"{ran.__module__}.{ran.__name__}",
        "packages": {"ejkernel": version("ejkernel"), "jax": version("jax"), "jaxlib": version("jaxlib")},
    }


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    o, ht = call(q, k, v, beta, g, h0)
    return np.asarray(o), np.asarray(ht)


if __name__ == "__main__":
    serve(run, declaration)
