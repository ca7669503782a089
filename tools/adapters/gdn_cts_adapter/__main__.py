"""Serves a function as a kernel: python3 -m gdn_cts_adapter MODULE:FUNCTION (also FILE.py:FUNCTION).

The function is a run function (see the package), its declaration is its attribute `gdn_cts`:

    def my_kernel(problem, q, k, v, g, beta, scale, h0, cu_seqlens): ...
    my_kernel.gdn_cts = {"contract": "bf16-chunk", "capabilities": "ops=prefill;io=bf16;varlen;h0;ht"}
"""
import importlib
import importlib.util
import os
import sys

from . import serve


def load(name):
    """(run function, declaration) of MODULE:FUNCTION; the declaration's name and module are filled in when missing."""
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute:
        raise ValueError(f"'{name}' is not MODULE:FUNCTION")
    if module_name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(os.path.basename(module_name)[:-3], module_name)
        if spec is None or not os.path.exists(module_name):
            raise ImportError(f"no file {module_name}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(module_name)
    run = getattr(module, attribute)
    declaration = getattr(run, "gdn_cts", None)
    if declaration is None:
        raise AttributeError(f"{name} has no attribute gdn_cts: a dictionary that declares contract and capabilities")
    if callable(declaration):
        declaration = declaration()
    return run, {"name": attribute, "module": f"{module.__name__}.{attribute}", **declaration}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python3 -m gdn_cts_adapter MODULE:FUNCTION")
    loaded = {}

    def declaration():
        loaded["run"], declared = load(sys.argv[1])
        return declared

    serve(lambda *a, **more: loaded["run"](*a, **more), declaration)


if __name__ == "__main__":
    main()
