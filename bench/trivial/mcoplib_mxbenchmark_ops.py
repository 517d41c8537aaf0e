"""The front door of an established checkout that does next to nothing, and imports no torch.

Beside it, what mxfleet itself adds to a run shows. Its row has the time of a sum where such rows
have the time of a kernel, so that it is merged like theirs.
"""

import argparse
import json
import time
from pathlib import Path

SUPPORTED_OPERATORS = [
    "bench_trivial",
]
HEADER = (
    "op_name,Device,Device Name,Acc_Pass,Cos_Dist,Op,dtype,Shape,Samples,CPU Time (sec),Noise,"
    "GPU Time (sec),Noise,Elem/s (elem/sec),GlobalMem BW (bytes/sec),BWUtil,Samples,Batch GPU (sec)"
)


def measure(name, config):
    """Whether the sum is right, and the operator's row."""
    size = config["size"]
    began = time.perf_counter()
    total = sum(range(size + 1))
    seconds = time.perf_counter() - began
    passed = total == size * (size + 1) // 2
    print(f"[VERIFY] {name} -> {'PASS' if passed else 'FAIL'} (1-CosSim: 0.00e+00)")
    measured = f"1,{seconds:.9f},0.0,{seconds:.9f},0.0,,,,,"
    return passed, f"{name},0,CPU,Yes,0.0,{name},{config['dtype']},({size}),{measured}"


def main():
    """Measure the operator that is asked for into the table that is named."""
    parse = argparse.ArgumentParser()
    parse.add_argument("--op", choices=SUPPORTED_OPERATORS, required=True)
    parse.add_argument("--csv", type=Path, required=True)
    parse.add_argument("--generate", action="store_true")
    args = parse.parse_args()
    config = Path(__file__).resolve().parent / "config" / f"{args.op}.json"
    passed, row = measure(args.op, json.loads(config.read_text()))
    if not passed:
        print("[FATAL] wrong sum")
        return
    args.csv.write_text(f"{HEADER}\n{row}\n")
    print(f"[APPEND] {args.op}")
    print("[SUMMARY] Appended: 1, Skipped: 0")


if __name__ == "__main__":
    main()
