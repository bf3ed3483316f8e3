#!/usr/bin/env python3
"""Adds one part of gpu_check.sh to OUT_DIR/gpu_check.json and writes gpu_check.md anew.

usage: gpu_report.py OUT_DIR PART VERDICT SECONDS NOTE...
"""

import datetime
import json
import pathlib
import subprocess
import sys


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def number(value, form):
    return "" if value is None else format(value, form)


def bench_table(rows):
    lines = [
        "| workload | mode | K | step us | latency us | enqueue us | API calls | launches | kernels | state |",
        "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --- |",
    ]
    for row in rows:
        enqueue = (row["enqueue_us"] or {}).get("median")
        lines.append(
            f"| {row['workload']} | {row['mode']} | {row['steps_per_launch']} | {row['step_us']['median']:.2f} "
            f"| {row['latency_us']['median']:.2f} | {number(enqueue, '.2f')} | {number(row.get('api_calls_per_step'), '.3g')} "
            f"| {number(row.get('graph_launches_per_step'), '.3g')} | {number(row.get('kernels_per_step'), '.5g')} "
            f"| {(row['state_hash'] or '')[:8]} |"
        )
    return lines


def crossing_table(rows):
    lines = ["| bytes | mode | us per crossing | step us | without crossings |", "| --: | --- | --: | --: | --: |"]
    for row in rows:
        lines.append(
            f"| {row['bytes']} | {row['mode']} | {row['us_per_crossing']:.3f} | {row['step_us']:.2f} "
            f"| {row['step_without_us']:.2f} |"
        )
    return lines


def baseline_table(baseline):
    lines = ["| | enqueue us | wall us | enqueue ns per kernel |", "| --- | --: | --: | --: |"]
    for name in ("bare_loop", "interactive_serial", "bare_graph_launch", "sink"):
        row = baseline[name]
        lines.append(f"| {name} | {row['enqueue_us']} | {row['wall_us']} | {row['enqueue_ns_per_kernel']} |")
    lines += [
        "",
        f"interactive-serial over the hand-written loop: {baseline['interactive_over_loop']} (at most 1.15); "
        f"sink over a bare cudaGraphLaunch: {baseline['sink_over_graph_launch']} (at most 1.05)",
    ]
    return lines


def markdown(report):
    lines = ["# GPU check", "", f"GPU: {report['gpu']}; nvcc: {report['nvcc']}; commit: {report['commit']}", ""]
    for name, part in report["parts"].items():
        lines += [f"## {name}: {part['verdict']}", "", f"{part['when']}, {part['seconds']} s", ""]
        lines += [f"* {note}" for note in part["notes"]] + [""]
        for title, result in part["results"].items():
            if title == "launch_baseline":
                lines += ["### Against bare CUDA calls", ""] + baseline_table(result) + [""]
            elif title == "crossing_cost":
                lines += ["### What a crossing between host and device costs", ""] + crossing_table(result["rows"]) + [""]
            else:
                lines += [f"### {title}", ""] + bench_table(result["rows"]) + [""]
    return "\n".join(lines)


def main():
    folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
    path = folder / "gpu_check.json"
    report = json.loads(path.read_text()) if path.exists() else {"parts": {}}
    report["gpu"] = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    report["nvcc"] = (output_of("nvcc", "--version") or output_of("/usr/local/cuda/bin/nvcc", "--version") or "").split("\n")[-1]
    report["commit"] = output_of("git", "rev-parse", "HEAD")
    results = {}
    for file in sorted((folder / f"logs-{name}").glob("*.json")):
        try:
            results[file.stem] = json.loads(file.read_text())
        except ValueError:  # its program failed, which the notes say
            continue
    report["parts"][name] = {
        "verdict": sys.argv[3],
        "seconds": int(sys.argv[4]),
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "notes": sys.argv[5:],
        "results": results,
    }
    path.write_text(json.dumps(report, indent=1) + "\n")
    (folder / "gpu_check.md").write_text(markdown(report) + "\n")


if __name__ == "__main__":
    main()
