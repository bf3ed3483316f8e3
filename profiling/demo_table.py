#!/usr/bin/env python3
"""Prints what the demo found and writes demo.json, from what its programs left in a directory.

usage: demo_table.py DIR
Exit: 0 if every workload gave the same bits in all modes and the losses of the trained ones fell, else 1.
"""

import json
import pathlib
import re
import sys

TRAINED = ("mlp", "charmlp", "lstm", "lstm-scan", "gpt", "hetero", "branch", "dynamic", "nonzero")
MODES = ("interactive-serial", "interactive-parallel", "sink")


def read_log(path):
    return path.read_text(encoding="utf-8", errors="replace")


def training_of(log):
    """What a training program computed: losses and results, without what depends on time."""
    after = re.split(r"(?m)^training on .*\n", log, maxsplit=1)[1]  # a notice before it has these words in its middle
    return re.sub(r"  [\d.]+ steps/s", "", re.sub(r"(?m)^step (?!(\d+)/\1 ).*\n", "", after))


def time_text(microseconds):
    return f"{microseconds:.1f} us" if microseconds < 1000 else f"{microseconds / 1000:.2f} ms"


def loss_text(loss):
    return f"{loss:.3f}" if abs(loss) < 1000 else f"{loss:.0f}"


def lines_of_rows(report):
    """A table of all workloads and modes."""
    layout = "{:<9} {:<21} {:>10} {:>10} {:>9} {:>9} {:>8}  {:<16} {}"
    lines = [layout.format("workload", "mode", "a step", "speed-up", "launches", "kernels", "arena", "loss", "state")]
    serial = {row["workload"]: row["step_us"]["median"] for row in report["rows"] if row["mode"] == MODES[0]}
    for row in report["rows"]:
        step = row["step_us"]["median"]
        lines.append(
            layout.format(
                row["workload"],
                row["mode"],
                time_text(step),
                f"{serial[row['workload']] / step:.2f} x",
                f"{round(row['graph_launches_per_step'], 2):g}",
                f"{row['kernels_per_step']:.0f}",
                size_text(row["arena_bytes"]),
                loss_text(row["loss_first"]) + " -> " + loss_text(row["loss_last"]),
                row["state_hash"][:8],
            )
        )
    return lines


def lines_of_sources(report, alone, one_thread):
    """Where the speed-up of sink over an interpreter of single ops comes from, as factors whose product it is."""
    def steps(of, mode):
        return {row["workload"]: row["step_us"]["median"] for row in of["rows"] if row["mode"] == mode}

    serial, sink = steps(report, MODES[0]), steps(report, MODES[2])
    unfused, narrow = steps(alone, MODES[0]), steps(one_thread, MODES[2])
    layout = "{:<9} {:>16} {:>12} {:>12} {:>12} {:>12} {:>9}"
    lines = ["where it comes from: each op alone -> fused ops -> one launch a step -> all cores",
             layout.format("workload", "each op alone", "fusion", "one launch", "cores", "sunk", "speed-up")]
    for name in serial:
        factors = (unfused[name] / serial[name], serial[name] / narrow[name], narrow[name] / sink[name])
        lines.append(layout.format(name, time_text(unfused[name]), *(f"x {factor:.2f}" for factor in factors), time_text(sink[name]),
                                   f"{unfused[name] / sink[name]:.2f} x"))
    return lines


def size_text(bytes):
    return f"{bytes / 1024:.0f} KiB" if bytes >= 1024 else f"{bytes} B"


def problems_in(report, others):
    problems = []
    for workload in dict.fromkeys(row["workload"] for row in report["rows"]):
        rows = [row for row in report["rows"] if row["workload"] == workload]
        if sorted(row["mode"] for row in rows) != sorted(MODES):
            problems.append(f"{workload}: a mode is missing")
        for field in ("loss_hash", "state_hash"):
            if len({row[field] for row in rows}) != 1:
                problems.append(f"{workload}: {field} differs between modes")
        for name, other in others.items():
            if any(row["workload"] == workload and row["loss_hash"] != rows[0]["loss_hash"] for row in other["rows"]):
                problems.append(f"{workload}: loss_hash differs {name}")
        if workload in TRAINED and not all(row["loss_last"] < 0.8 * row["loss_first"] for row in rows):
            problems.append(f"{workload}: the loss does not fall")
    return problems


def print_problems(problems):
    for problem in problems:
        print("PROBLEM: " + problem)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    report = json.loads((folder / "bench.json").read_text())
    alone, one_thread = (json.loads((folder / f"{name}.json").read_text()) for name in ("no-fuse", "one-thread"))
    problems = problems_in(report, {"without fusion": alone, "on one thread": one_thread})
    machine = report["machine"]
    print(f"{machine['cpu'] or 'unknown CPU'}, {machine['cores']} cores, device {machine['device']}, {machine['compiler']}, {machine['blas']}")
    print("\n".join([*lines_of_rows(report), "", *lines_of_sources(report, alone, one_thread)]))
    logs = {}
    for program in ("mnist", "text"):
        modes = [read_log(folder / f"{program}-{mode}.log") for mode in ("interactive-serial", "sink")]
        if training_of(modes[0]) != training_of(modes[1]):
            problems.append(f"train_{program}: results differ between interactive-serial and sink")
        logs[program] = modes[1]
    accuracy = float(re.search(r"test accuracy: ([\d.]+) %", logs["mnist"]).group(1))
    is_mnist = "NOTICE" not in logs["mnist"]
    report["mnist_accuracy"] = accuracy if is_mnist else None
    resumed, undisturbed = ((folder / name / "step-000000000040.safetensors").read_bytes() for name in ("resumed", "undisturbed"))
    report["resumed_equal"] = resumed == undisturbed
    if not report["resumed_equal"]:
        problems.append("train_text: a resumed run differs from an undisturbed one")
    report["sampled_text"] = logs["text"].split("continuation:\n", 1)[1].rstrip("\n")
    report["problems"] = problems
    (folder / "demo.json").write_text(json.dumps(report, indent=2) + "\n")

    print(f"\ntest accuracy on {'MNIST' if is_mnist else 'made-up digits'}: {accuracy} %")
    print("the character model writes:\n" + "\n".join("  | " + line for line in report["sampled_text"].split("\n")))
    print_problems(problems)
    if not problems:
        print("all modes agree bit for bit, so does a resumed run, the losses fall")
    print(f"written to {folder / 'demo.json'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
