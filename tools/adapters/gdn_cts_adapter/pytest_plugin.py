"""pytest: one test per conformance case of a kernel.

    pytest -p gdn_cts_adapter.pytest_plugin --gdn-cts-kernel my_module:my_kernel [--gdn-cts-level smoke]

(installed with pip, the package is a plugin by itself, without -p). my_module:my_kernel as for python3 -m gdn_cts_adapter; or any
option that names a kernel, such as --gdn-cts-kernel='--plugin ./libmine.so'. The gate runs once, when the first of the tests
does, over the cases that pytest selected (-k works). A case that the kernel does not support is skipped with its reason; a test
called gate, there when nothing was deselected, fails where the gate objects to more than single cases.
"""
import os
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


def pytest_addoption(parser):
    group = parser.getgroup("gdn-cts", "conformance of a Gated DeltaNet kernel")
    group.addoption("--gdn-cts-kernel", metavar="MODULE:FUNCTION", help="gate this kernel, one test per case")
    group.addoption("--gdn-cts-level", default="smoke", metavar="LEVEL", help="smoke (default), ci, nightly or exhaustive")
    group.addoption("--gdn-cts-profile", action="append", default=[], metavar="PROFILE", help="what the kernel claims (default core); may be repeated")
    group.addoption("--gdn-cts-program", metavar="FILE", help="the program (default: gdn-cts beside this package or on the PATH)")
    group.addoption("--gdn-cts-options", default="", metavar="TEXT", help="more options of gdn-cts verify, such as '--golden DIR -j 4'")


def program(config):
    chosen = config.getoption("--gdn-cts-program")
    beside = [os.path.join(HERE, *up, "gdn-cts") for up in (("..", "..", "..", "build", "bin"), ("..", "..", "..", "..", "bin"))]
    return chosen or next((f for f in beside if os.access(f, os.X_OK)), "gdn-cts")


def verify(config):
    kernel = config.getoption("--gdn-cts-kernel")
    if not kernel.startswith("--"):
        kernel = "--exec " + shlex.quote(f"{shlex.quote(sys.executable)} -m gdn_cts_adapter {shlex.quote(kernel)}")
    line = [program(config), "verify", *shlex.split(kernel), "--level", config.getoption("--gdn-cts-level")]
    for profile in config.getoption("--gdn-cts-profile"):
        line += ["--profile", profile]
    return line + shlex.split(config.getoption("--gdn-cts-options"))


def call(line):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.path.dirname(HERE), os.environ.get("PYTHONPATH", "")]))}
    try:
        return subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    except OSError as error:
        raise pytest.UsageError(f"{line[0]}: {error.strerror}; --gdn-cts-program says where it is") from None


class Failed(Exception):
    pass


class Gate(pytest.Collector):
    """All cases of the kernel; runs the gate when the first of them is asked for."""

    results = None

    def collect(self):
        listed = call(verify(self.config) + ["--list"])
        if listed.returncode:
            raise pytest.UsageError(listed.stderr.strip().splitlines()[-1])
        for row in listed.stdout.splitlines()[:-1]:
            yield Case.from_parent(self, name=row.split()[0])
        yield Case.from_parent(self, name="gate")

    def result(self, name):
        if self.results is None:
            self.results = self.run()
        return self.results.get(name)

    def run(self):
        selected = [i.name for i in self.session.items if i.parent is self]
        line = verify(self.config)
        if "gate" not in selected or len(selected) < self.collected:
            for case in selected:
                line += [] if case == "gate" else ["--case", case]
        with tempfile.TemporaryDirectory() as folder:
            junit = os.path.join(folder, "junit.xml")
            done = call(line + ["--junit", junit])
            if done.returncode not in (0, 1):
                return {"gate": ("failure", done.stderr.strip())}
            results, objections = {}, []
            for test in ET.parse(junit).iter("testcase"):
                child = next(iter(test), None)
                found = ("passed", "") if child is None else (child.tag, child.text or child.get("message", ""))
                if test.get("classname") == "gate":
                    objections.append(test.get("name"))
                else:
                    results[test.get("name")] = found
            summary = next((x for x in reversed(done.stdout.splitlines()) if x.startswith(("PASS", "FAIL"))), "")
            results["gate"] = ("failure" if done.returncode else "passed", "\n".join([summary, *objections]))
            return results


class Case(pytest.Item):
    def runtest(self):
        found = self.parent.result(self.name)
        if found is None:
            raise Failed(self.parent.result("gate")[1] or "the gate did not run this case")
        tag, text = found
        if tag == "skipped":
            pytest.skip(text)
        if tag != "passed":
            raise Failed(text.replace("reproduce  gdn-cts ", f"reproduce  {shlex.quote(program(self.config))} "))

    def repr_failure(self, excinfo):
        return str(excinfo.value) if isinstance(excinfo.value, Failed) else super().repr_failure(excinfo)

    def reportinfo(self):
        return "gdn-cts", None, self.name


def pytest_collection_modifyitems(session, config, items):
    if not config.getoption("--gdn-cts-kernel"):
        return
    gate = Gate.from_parent(session, name="gdn-cts")
    cases = list(gate.collect())
    gate.collected = len(cases)
    items.extend(cases)
