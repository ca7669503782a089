"""Two kernels for the test of the pytest plugin: the numpy recurrence, and the same with heads exchanged where there are four."""
import os
import sys

arguments, sys.argv = sys.argv, ["x"]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tools", "adapters"))
from numpy_recurrence import run  # noqa: E402

sys.argv = arguments


def good(*inputs, **more):
    return run(*inputs, **more)


def bad(problem, *inputs, **more):
    o, ht = run(problem, *inputs, **more)
    return (o[:, ::-1] if problem.value_heads == 4 else o), ht


def undeclared(*inputs):
    return run(*inputs)


good.gdn_cts = bad.gdn_cts = {"contract": "fp32-recurrent", "capabilities": "ops=prefill;io=fp32,bf16,fp16;varlen;h0;ht;empty;g_min=-inf"}
