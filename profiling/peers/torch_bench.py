#!/usr/bin/env python3
"""Measures PyTorch and graphsink on the same workloads: same shapes, initial weights, data, precision and optimizer.

Runs where PyTorch is installed. Both take turns, --rounds times; a row is the median of its rounds, and PyTorch's losses
have to agree with graphsink's. Modes of PyTorch: torch-eager; torch-compile (mode reduce-overhead on a GPU);
torch-graph, the whole step in one CUDA graph (GPU only).
"""

import argparse
import json
import math
import pathlib
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_models
from compare import print_comparison

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORKLOADS = ["chain", "wide", "mlp", "charmlp", "lstm", "gpt"]
OUR_MODES = ["interactive-serial", "sink"]
WARM_UP = 3  # steps, as in graphsink-bench
WINDOWS = 15
WINDOW_SECONDS = 20e-3
# Of the first loss and of the last one, by which rounding has been amplified in training.
FIRST_TOLERANCE, LAST_TOLERANCE = 1e-5, 1e-2


def spread(samples):
    return {"min": min(samples), "median": statistics.median(samples), "max": max(samples)}


class Trial:
    """One mode of one workload, as profiling/trial.h measures it."""

    def __init__(self, name, tensors, mode, device, nodes, steps):
        self.name, self.mode, self.device, self.steps = name, mode, device, steps
        start = time.perf_counter()
        self.step = torch_models.make_step(name, tensors, mode, nodes)
        self.run = self.step
        losses = [self.run_fed(i) for i in range(WARM_UP)]
        if mode == "graph":
            self.capture()
        self.compile_us = (time.perf_counter() - start) * 1e6
        losses += [self.run_fed(i) for i in range(WARM_UP, WARM_UP + steps)]
        self.losses = [float(loss) for loss in losses]

    def run_fed(self, step):
        self.step.feed(step)
        self.run()
        return self.step.loss.clone()

    def capture(self):
        """The whole step; its warm-up were the steps before."""
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.run = graph.replay

    def sync(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds_of(self, steps):
        self.sync()
        start = time.perf_counter()
        for _ in range(steps):
            self.run()
        self.sync()
        return time.perf_counter() - start

    def row(self):
        steps, seconds = 1, self.seconds_of(1)
        while seconds < WINDOW_SECONDS:
            steps = math.ceil(steps * min(10, 1.3 * WINDOW_SECONDS / seconds))
            seconds = self.seconds_of(steps)
        step_us = [self.seconds_of(steps) / steps * 1e6 for _ in range(WINDOWS)]
        latency_us = [self.seconds_of(1) * 1e6 for _ in range(WINDOWS)]
        return {
            "workload": self.name,
            "mode": f"torch-{self.mode}",
            "device": self.device,
            "steps": self.steps,
            "steps_per_launch": 1,
            "compile_us": self.compile_us,
            "step_us": spread(step_us),
            "latency_us": spread(latency_us),
            "enqueue_us": None,
            "loss_first": self.losses[0],
            "loss_last": self.losses[-1],
            "loss_hash": f"{zlib.crc32(struct.pack(f'<{len(self.losses)}d', *self.losses)):08x}",
            "state_hash": None,
        }


def run_ours(options, workload, folder):
    command = [options.bench, "--workload", workload, "--mode", ",".join(OUR_MODES), "--steps", options.steps, "--json", "-"]
    command += ["--device", "cuda:0" if options.device == "cuda" else "cpu", "--size", options.size, "--nodes", options.nodes]
    command += ["--threads", options.threads, "--export", folder]
    return json.loads(subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=True).stdout)


def run_torch(options, workload, mode, tensors):
    torch.manual_seed(1)
    torch.compiler.reset()
    return Trial(workload, tensors, mode, options.device, options.nodes, options.steps).row()


def merged(rounds):
    """A row from the same row of all rounds: times are the medians of theirs."""
    row = dict(rounds[0])
    for field in ("step_us", "latency_us", "enqueue_us"):
        if row[field]:
            row[field] = {part: statistics.median(r[field][part] for r in rounds) for part in row[field]}
    return row


def measure(options, workload, modes, folder):
    """The machine, and the rows of a workload."""
    rounds = []
    for number in range(options.rounds):
        print(f"{workload}: round {number + 1} of {options.rounds}", file=sys.stderr)
        report = run_ours(options, workload, folder)
        tensors = torch_models.read_safetensors(folder / f"{workload}.safetensors", options.device)
        rows = report["rows"] + [run_torch(options, workload, mode, tensors) for mode in modes]
        if workload == "lstm":
            row = run_torch(options, "lstm-module", "eager", tensors)
            rows.append({**row, "workload": workload, "mode": "torch-eager-nn.LSTM"})
        rounds.append(rows)
    return report["machine"], [merged(same) for same in zip(*rounds)]


def problems_in(rows):
    ours = {row["workload"]: row for row in rows if row["mode"] == OUR_MODES[-1]}
    problems = []
    for row in rows:
        expected = ours[row["workload"]]
        for field, tolerance in (("loss_first", FIRST_TOLERANCE), ("loss_last", LAST_TOLERANCE)):
            if not math.isclose(row[field], expected[field], rel_tol=tolerance):
                problems.append(f"{row['workload']} {row['mode']}: {field} {row[field]:.6f}, graphsink {expected[field]:.6f}")
    return problems


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="exit: 0, 1 if losses differ, 2 if something is missing or wrong")
    parser.add_argument("--bench", type=pathlib.Path, help="graphsink-bench; default: that of build/cpu or build/cuda")
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="names, separated by commas (default: %(default)s)")
    parser.add_argument("--mode", help="eager, compile, graph, separated by commas; default: all that the device has")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="of both on the CPU (default: 1)")
    parser.add_argument("--steps", type=int, default=100, help="counted steps (default: %(default)s)")
    parser.add_argument("--size", choices=["test", "full", "large"], default="full", help="large: of gpt alone, that of GPT-2 small")
    parser.add_argument("--nodes", type=int, default=1000, help="of chain (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="write the report to this file")
    options = parser.parse_args()
    preset = "cuda" if options.device == "cuda" else "cpu"
    options.bench = options.bench or ROOT / "build" / preset / "bin" / "graphsink-bench"
    if not options.bench.is_file():
        parser.error(f"there is no {options.bench}; build it with tests/run.sh --build {preset}, or name it with --bench")
    return options


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = False  # graphsink's f32 is IEEE, unless asked
    modes = options.mode.split(",") if options.mode else ["eager", "compile"] + ["graph"] * (options.device == "cuda")
    report = {"machine": None, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        for workload in options.workload.split(","):
            report["machine"], rows = measure(options, workload, modes, pathlib.Path(folder))
            report["rows"] += rows
            report["machine"] |= {"torch": torch.__version__, "threads": options.threads, "python": platform.python_version()}
            if options.json:  # after each workload, so that what was measured is there if a later one does not end
                options.json.write_text(json.dumps(report, indent=1) + "\n")
    print_comparison(report, report, base="sink")
    problems = problems_in(report["rows"])
    for problem in problems:
        print("PROBLEM: " + problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
