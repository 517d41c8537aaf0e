"""An established front door, as checkouts have them: own loader, markers, exit 0 whatever happens.

It writes neither records nor anything else that mxfleet would have to be told about: a row of the
established 18 columns and lines that other scripts read. The operators compute in plain Python.
"""

# ruff: noqa: SIM905

import argparse
import csv
import importlib.util
import inspect
import json
import os
import statistics
import time
from pathlib import Path

from mcoplib_mxbenchmark_op_wrapper import OpBenchmarkBase

SUPPORTED_OPERATORS = [
    "est_axpy",
    "est_fatal",
    "est_quiet",
    "est_raises",
    "est_waits",
    "est_wrong",
]

BASE_DIR = Path(__file__).absolute().parent
HEADER = (
    "op_name,Device,Device Name,Acc_Pass,Cos_Dist,Op,dtype,Shape,Samples,CPU Time (sec),Noise,"
    "GPU Time (sec),Noise,Elem/s (elem/sec),GlobalMem BW (bytes/sec),BWUtil,Samples,Batch GPU (sec)"
).split(",")


def load_runner(op):
    path = BASE_DIR / "runners" / f"mcoplib_mxbenchmark_{op}_runners.py"
    spec = importlib.util.spec_from_file_location(op, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for _, value in inspect.getmembers(module, inspect.isclass):
        if issubclass(value, OpBenchmarkBase) and value is not OpBenchmarkBase:
            return value
    raise RuntimeError(f"no runner in {path}")


def measure(launch, count):
    took = []
    for _ in range(count):
        began = time.perf_counter()
        launch()
        took.append(time.perf_counter() - began)
    mean = statistics.mean(took)
    return mean, statistics.pstdev(took) / mean


def run(op, csv_path):
    with (BASE_DIR / "config" / f"{op}.json").open() as stream:
        config = json.load(stream)
    print(f"Env: {os.environ.get('CHECKOUT_ENV')}")
    print(f"Folder: {BASE_DIR}")
    runner = load_runner(op)(op, config)
    passed, distance = runner.run_verification(config["device_id"])
    print(f"[VERIFY] {op} -> {'PASS' if passed else 'FAIL'} (1-CosSim: {distance:.2e})")
    if not passed:
        print(f"[FATAL] {op}: verification failed, no sampling")
        return
    launch = runner.make_launcher()
    print("  >> [WARMUP] Running 10 iterations... ", end="")
    for _ in range(10):
        launch()
    print("Done.")
    samples = max(1, config.get("samples", 100) - 16)
    mean, noise = measure(launch, samples)
    if runner.leaves_no_row:
        return
    row = [op, 0, config["device_name"], "Yes", f"{distance:.2e}", op, config["dtype"]]
    row += [runner.shape(), samples, mean, noise, mean, noise, runner.size() / mean]
    row += [8 * runner.size() / mean, "", samples, mean]
    fresh = not csv_path.exists()
    with csv_path.open("a", newline="") as stream:
        writer = csv.writer(stream)
        if fresh:
            writer.writerow(HEADER)
        writer.writerow(row)
    print(f"[APPEND] {op}")
    print("[SUMMARY] Appended: 1, Skipped: 0")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--op")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--csv", type=Path, default=BASE_DIR / "statistics" / "ops.csv")
    parser.add_argument("--generate", action="store_true")
    options = parser.parse_args()
    if options.list:
        for op in sorted(SUPPORTED_OPERATORS):
            print(f"  * {op}")
    elif options.op not in SUPPORTED_OPERATORS:
        print(f"[FATAL] {options.op} is not supported")
    else:
        run(options.op, options.csv)


if __name__ == "__main__":
    main()
