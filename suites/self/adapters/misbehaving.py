"""An adapter that returns o = v and ht = h0 (or zero), and misbehaves on the cases whose id names how.

Why: the suite must give a verdict on every such case and still run the others. The case id is all it looks at.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np

DECLARATION = {"gdn_cts": 1, "name": "misbehaving", "version": "1", "contract": "fp32-recurrent",
               "capabilities": "ops=prefill;io=fp32,bf16;varlen;h0;ht;empty", "properties": "deterministic",
               "packages": {"numpy": np.__version__}, "module": "misbehaving.main"}


def say(message):
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def main():
    for line in sys.stdin:
        request = json.loads(line)
        if "hello" in request:
            say(DECLARATION)
            continue
        how = request["case"].split(":")[0]
        with h5py.File(request["inputs"], "r") as f:
            inputs = {name: f[name][...] for name in f if isinstance(f[name], h5py.Dataset)}
        o = inputs["v"].astype(np.float32)
        ht = np.zeros((request["N"], request["HV"], request["K"], request["V"]), np.float32)
        if "h0" in inputs:
            ht[...] = inputs["h0"]
        answer = {"id": request["id"], "status": "ok", "seconds": 0.25, "module": "misbehaving.main", "packages": {"pid": str(os.getpid())}}
        if how == "exits":
            print("no more memory", file=sys.stderr, flush=True)
            os._exit(3)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "hangs":  # and so does a child in a process group of its own
            child = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
            with open(os.environ["MISBEHAVING_CHILD"], "w") as f:
                f.write(str(child.pid))
            time.sleep(600)
        if how == "garbage":
            say("Loading weights:\t100%")
        if how == "flood":
            block = "x" * 65536
            while True:
                sys.stdout.write(block)
        if how == "chatty":
            for _ in range(300):
                print("w" * 1000, file=sys.stderr)
        if how == "wrong_id":
            answer["id"] -= 1
        if how == "wrong_shape":
            o = o[:, :, :-1]
        if how == "transposed":
            ht = ht.swapaxes(2, 3)
        if how == "wrong_dtype":
            o = o.astype(np.int32)
        if how == "unrounded":
            o = o + np.float32(2.0**-20)
        if how == "half":
            o = o.astype(np.float16)
        if how == "not_supported":
            answer = {"id": request["id"], "status": "not_supported", "message": "not on Sundays"}
        if how == "error":
            answer = {"id": request["id"], "status": "error", "message": "ValueError: bad\nluck"}
        if how == "strange_status":
            answer["status"] = "fine"
        if how == "violation":
            answer["violations"] = ["input k changed"]
        if how != "no_file":
            with h5py.File(request["outputs"], "w") as f:
                f["result" if how == "wrong_name" else "o"] = o
                f["ht"] = ht
        if how == "text_file":
            with open(request["outputs"], "w") as f:
                f.write("0.1 0.2 0.3\n")
        if how == "removes_folder":
            shutil.rmtree(os.path.dirname(request["outputs"]))
        say(answer)
        if how == "twice":
            say(answer)
        if how == "dies_after":
            os._exit(0)


main()
