#!/usr/bin/env python3
"""ONNX: operator LinearAttention with update_rule gated_delta, in ONNX's reference evaluator and in ONNX Runtime, on the CPU.

    python3 -m pip install onnx onnxruntime h5py numpy
    gdn-cts verify --exec 'python3 tools/adapters/onnx_linear_attention.py reference'

reference: onnx.reference, the operator of ai.onnx 27.  ort_function: the same operator in ONNX Runtime, which has no kernel
for it and runs the operator's function body.  ort: operator com.microsoft.LinearAttention in ONNX Runtime, a kernel of its own.

Tried with onnx 1.23.2, onnxruntime 1.32.0 and numpy 2.4.6. Read in onnx: float32 inside, token by token, state [K,V]; scale is applied to
the sum; o is rounded once. Of the operator:
- query heads may be a multiple of key and value heads but not the other way round, so that q and k are given once per value head;
- update rules delta, gated and linear are rules delta, retention and linear here, and a decay per key channel is kda;
- a batch row is a sequence: there is no cu_seqlens (no `varlen`);
- decay and beta have the dtype of q: this adapter takes fp32 throughout, which ONNX Runtime's CPU kernels have as well.
"""
import sys

import numpy as np

from gdn_cts_adapter import serve

WHICH = sys.argv[1] if len(sys.argv) == 2 and sys.argv[1] in ("reference", "ort", "ort_function") else sys.exit(
    "usage: onnx_linear_attention.py reference|ort|ort_function")
RULES = {"gated_delta": "gated_delta", "kda": "gated_delta", "delta": "delta", "retention": "gated", "linear": "linear"}  # ours: ONNX's
DOMAIN = "com.microsoft" if WHICH == "ort" else ""


def declaration():
    global helper, runtime, evaluator
    import onnx
    from onnx import helper
    packages = {"onnx": onnx.__version__}
    if WHICH == "reference":
        from onnx.reference import ReferenceEvaluator as evaluator
        from onnx.reference.ops.op_linear_attention import LinearAttention
        module = f"{LinearAttention.__module__}.{LinearAttention.__name__}"
    else:
        import onnxruntime as runtime
        packages["onnxruntime"] = runtime.__version__
        module = f"onnxruntime, {DOMAIN or 'function body of ai.onnx'}.LinearAttention"
    return {
        "name": f"onnx_{WHICH}",
        "description": f"LinearAttention of {DOMAIN or 'ai.onnx'}, {'ONNX Runtime' if WHICH != 'reference' else 'reference evaluator'}, CPU",
        "version": packages["onnx" if WHICH == "reference" else "onnxruntime"],
        "convention": "layout=BTHD;heads=repeated",
        "contract": "fp32-recurrent",
        "capabilities": f"ops=prefill;rules={','.join(RULES)};io=fp32;state=fp32;gate=fp32;beta=fp32;h0;ht;noht;g_min=-inf;beta_max=2",
        "properties": "deterministic;symmetric;masks_select",
        "module": module,
        "packages": packages,
    }


def model(shapes, outputs, heads, scale, rule):
    real = 1  # TensorProto.FLOAT
    names = [n if n in shapes else "" for n in ("q", "k", "v", "h0", "g", "beta")]
    node = helper.make_node("LinearAttention", names, ["o", "ht"], domain=DOMAIN, q_num_heads=heads, kv_num_heads=heads,
                            scale=scale, update_rule=RULES[rule])
    graph = helper.make_graph([node], "gated_delta", *([helper.make_tensor_value_info(n, real, s) for n, s in group.items()]
                                                       for group in (shapes, outputs)))
    opsets = [helper.make_opsetid("", 27)] + ([helper.make_opsetid(DOMAIN, 1)] if DOMAIN else [])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(problem, q, k, v, g, beta, scale, h0, cu_seqlens):
    B, T, HV, V = v.shape
    inputs = {n: x.reshape(B, T, -1) for n, x in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta)) if x is not None}
    if h0 is not None:
        inputs["h0"] = h0
    made = model({n: x.shape for n, x in inputs.items()}, {"o": (B, T, HV * V), "ht": (B, HV, k.shape[3], V)}, HV, scale, problem.rule)
    if WHICH == "reference":
        o, ht = evaluator(made).run(None, inputs)
    else:
        o, ht = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
    return o.reshape(B, T, HV, V), ht


if __name__ == "__main__":
    serve(run, declaration)
