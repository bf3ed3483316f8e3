#!/usr/bin/env python3
"""The report of gpu_check.sh: OUT_DIR/gpu_check.json, and gpu_check.md made from it.

usage: gpu_report.py --add OUT_DIR PART VERDICT BUILD_SECONDS SECONDS LOG_DIR [NOTE...]
           adds a part, with the *.json of LOG_DIR as its results
       gpu_report.py --merge OUT_DIR DIR...
           puts the reports of several calls into one; of a part that ran several times the latest one counts
       gpu_report.py --count-cases XML...
           how many test cases of GoogleTest's reports ran, and how many of them on a CUDA device
       gpu_report.py --require-device-cases XML...
           prints nothing; exit code 1 if none ran on a CUDA device
       gpu_report.py --profile KERNELS_CSV OPS_CSV OUT_JSON
           what ncu measured in the last step: the same raw page twice, with the names of kernels and with those of ops
"""

import csv
import datetime
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

COMMAND_LINE = {"--add": 6, "--merge": 2, "--count-cases": 1, "--require-device-cases": 1, "--profile": 3}

# Columns of ncu's raw page.
DURATION = "gpu__time_duration.sum"
SHARES = {
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
}
US_OF = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}


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
    for name in ("bare_loop", "interactive_serial", "bare_graph_launch", "sink", "sink_cache"):
        row = baseline[name]
        lines.append(f"| {name} | {row['enqueue_us']} | {row['wall_us']} | {row['enqueue_ns_per_kernel']} |")
    lines += [
        "",
        f"interactive-serial over the hand-written loop: {baseline['interactive_over_loop']} (at most 1.15); "
        f"sink over a bare cudaGraphLaunch: {baseline['sink_over_graph_launch']} (at most 1.05); SinkCache::run() takes "
        f"{baseline['sink_cache_minus_graph_launch_us']} us more than a bare cudaGraphLaunch (at most 1)",
    ]
    return lines


def profile_table(profile):
    lines = [
        f"{profile['kernels']} kernels, {profile['us']:.1f} us in kernels; shares of peak are weighted by time.",
        "",
        "| op | kernel | launches | us | % of the step | compute % | memory % | DRAM % |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    for row in profile["rows"]:
        lines.append(
            f"| {row['op']} | `{row['kernel'][:60]}` | {row['launches']} | {row['us']:.2f} "
            f"| {100 * row['us'] / max(profile['us'], 1e-9):.1f} | {number(row['compute'], '.1f')} "
            f"| {number(row['memory'], '.1f')} | {number(row['dram'], '.1f')} |"
        )
    return lines


def changes_table(rows):
    lines = ["| runs of a size | mode | us a step | to interactive | launches | captures | in place |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(
            f"| {row['repeats']} | {row['mode']} | {row['step_us']:.2f} | {row['ratio']:.3f} | {row['launches']} "
            f"| {row['captures']} | {row['updates']} |"
        )
    return lines


def result_table(title, result):
    if title == "launch_baseline":
        return ["### Against bare CUDA calls", ""] + baseline_table(result)
    if title == "crossing_cost":
        return ["### What a crossing between host and device costs", ""] + crossing_table(result["rows"])
    if title == "shape_changes":
        return ["### Inputs of many sizes", ""] + changes_table(result["rows"])
    if title.startswith("profile-"):
        return [f"### One step of {title.removeprefix('profile-')}, op by op", ""] + profile_table(result)
    return [f"### {title}", ""] + bench_table(result["rows"])


def markdown(report):
    lines = ["# GPU check", ""]
    for name, part in report["parts"].items():
        machine = part["machine"]
        lines += [
            f"## {name}: {part['verdict']}",
            "",
            f"{part['when']}; built in {part['build_seconds']} s, ran for {part['seconds']} s; "
            f"GPU: {machine['gpu']}; nvcc: {machine['nvcc']}; commit: {machine['commit']}",
            "",
        ]
        lines += [f"* {note}" for note in part["notes"]] + [""]
        for title, result in part["results"].items():
            lines += result_table(title, result) + [""]
    return "\n".join(lines)


def read_report(folder):
    path = folder / "gpu_check.json"
    return json.loads(path.read_text()) if path.exists() else {"parts": {}}


def write_report(folder, report):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "gpu_check.md").write_text(markdown(report) + "\n")


def add(folder, name, verdict, build_seconds, seconds, logs, *notes):
    folder = pathlib.Path(folder)
    report = read_report(folder)
    results = {}
    for file in sorted(pathlib.Path(logs).glob("*.json")):
        try:
            results[file.stem] = json.loads(file.read_text())
        except ValueError:  # its program failed, which the notes say
            continue
    nvcc = output_of("nvcc", "--version") or output_of("/usr/local/cuda/bin/nvcc", "--version") or ""
    report["parts"][name] = {
        "verdict": verdict,
        "build_seconds": int(build_seconds),
        "seconds": int(seconds),
        "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "machine": {
            "gpu": output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
            "nvcc": nvcc.split("\n")[-1],
            "commit": output_of("git", "rev-parse", "HEAD"),
        },
        "notes": notes,
        "results": results,
    }
    write_report(folder, report)


def merge(out, *folders):
    merged = read_report(pathlib.Path(out))
    for folder in folders:
        path = pathlib.Path(folder)
        if not (path / "gpu_check.json").exists():
            sys.exit(f"error: {path} has no gpu_check.json; name the OUT_DIR of a call of gpu_check.sh")
        for name, part in read_report(path)["parts"].items():
            before = merged["parts"].get(name)
            if not before or before["when"] <= part["when"]:
                merged["parts"][name] = part
    write_report(pathlib.Path(out), merged)


def count_cases(files):
    """All that ran, those on the device, failed ones, skipped ones. Cases with "cuda" elsewhere in their names are of the
    planner, which needs no device; without one, those counted here are not registered or skipped."""
    ran = device = failed = skipped = 0
    for file in files:
        try:
            cases = xml.etree.ElementTree.parse(file).iter("testcase")
        except (OSError, xml.etree.ElementTree.ParseError):  # its program ended before it could write it
            continue
        for case in cases:
            if case.get("status") != "run":
                continue
            if case.get("result") == "skipped":
                skipped += 1
                continue
            ran += 1
            name = case.get("name")
            on_device = name.endswith(("/cuda", "_cuda")) or "/cuda_" in name
            device += on_device or case.get("classname").startswith("Cuda")
            failed += case.find("failure") is not None
    return ran, device, failed, skipped


def print_counts(*files):
    ran, device, failed, skipped = count_cases(files)
    print(f"{ran} test cases ran, {device} of them on the CUDA device; {failed} failed, {skipped} skipped")


def require_device_cases(*files):
    return count_cases(files)[1] == 0


def measured(file):
    """The kernels of a raw page of ncu, in the order of their launches: (name, us, share of peak by SHARES)."""
    with open(file, newline="") as text:
        lines = [line for line in text if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if not rows or DURATION not in rows[0]:
        sys.exit(f"error: {file} has no column {DURATION}; is it the raw page of ncu as CSV?")

    def value(row, column):
        text = (row.get(column) or "").replace(",", "")
        return float(text) if text else None

    us = US_OF[rows[0][DURATION]]  # the row below the header has the units
    return [
        (row["Kernel Name"], value(row, DURATION) * us, {name: value(row, column) for name, column in SHARES.items()})
        for row in rows[1:]
    ]


def profile(kernels_file, ops_file, out):
    kernels, ops = measured(kernels_file), measured(ops_file)
    if [us for _, us, _ in kernels] != [us for _, us, _ in ops]:
        sys.exit("error: the two files are not of the same measurement")
    # ncu may put the domain before the name of a range; a kernel outside of all ranges keeps its own name.
    ops = [(name.rpartition(":")[2] if name != kernel else "", us) for (name, us, _), (kernel, _, _) in zip(ops, kernels)]
    starts = [i for i, (op, _) in enumerate(ops) if op == "begin_step"]
    first = starts[-1] if starts else 0
    groups = {}
    for (kernel, us, shares), (op, _) in zip(kernels[first:], ops[first:]):
        groups.setdefault((op, kernel), []).append((us, shares))
    rows = []
    for (op, kernel), launches in groups.items():
        total = sum(us for us, _ in launches)
        row = {"op": op, "kernel": kernel, "launches": len(launches), "us": total}
        for name in SHARES:
            known = [(us, shares[name]) for us, shares in launches if shares[name] is not None]
            weight = sum(us for us, _ in known)
            row[name] = sum(us * share for us, share in known) / weight if weight else None
        rows.append(row)
    rows.sort(key=lambda row: -row["us"])
    result = {"kernels": len(ops) - first, "us": sum(row["us"] for row in rows), "rows": rows}
    pathlib.Path(out).write_text(json.dumps(result, indent=1) + "\n")


def main():
    action, arguments = (sys.argv + [""])[1], sys.argv[2:]
    if action not in COMMAND_LINE or len(arguments) < COMMAND_LINE[action]:
        print(__doc__, file=sys.stderr)
        return 0 if action in ("--help", "-h") else 2
    functions = {"--add": add, "--merge": merge, "--count-cases": print_counts,
                 "--require-device-cases": require_device_cases, "--profile": profile}
    return functions[action](*arguments) or 0


if __name__ == "__main__":
    sys.exit(main())
