"""Softmax under nvbench without any harness, the way nvbench's own examples for torch do it."""

import json
import sys
import tempfile
from pathlib import Path

import cuda.bench as bench
import torch

TOKENS, HIDDEN = 512, 4096


def softmax(state):
    """Time ``torch.softmax`` on [TOKENS, HIDDEN] bfloat16."""
    stream = torch.cuda.ExternalStream(state.get_stream().addressof())
    with torch.cuda.stream(stream):
        x = torch.randn(TOKENS, HIDDEN, dtype=torch.bfloat16, device="cuda")
        torch.softmax(x, -1)

    def launcher(launch):
        with torch.cuda.stream(torch.cuda.ExternalStream(launch.get_stream().addressof())):
            torch.softmax(x, -1)

    state.exec(launcher, batched=False)


bench.register(softmax)
with tempfile.TemporaryDirectory() as folder:
    out = Path(folder, "result.json")
    bench.run_all_benchmarks([sys.argv[0], "--devices", "0", "--json", str(out), *sys.argv[1:]])
    summaries = json.loads(out.read_text())["benchmarks"][0]["states"][0]["summaries"]
values = {s["tag"]: s["data"][0]["value"] for s in summaries}
found = {name: float(values[f"nv/cold/time/{name}/mean"]) for name in ("cpu", "gpu")}
print("RESULT", json.dumps(found), flush=True)
