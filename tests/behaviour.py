#!/usr/bin/env python3
"""What a change of structure must not change: results of every workload in every mode and of random graphs, as hashes,
and what each step takes: launches, kernels, copies, memory. Of a build for the CPU also instructions, which valgrind
counts where it is installed: those of a step, and those of a program of 100,000 nodes until it runs. Texts are the
LICENSE; images are those of ../shared/data, or made up where there are none (`data` in the file).

usage: behaviour.py --record FILE BUILD...     writes them; a build has graphsink-bench and test_random_graph
       behaviour.py --compare FILE BUILD...    exit 1 if a result differs from the file's, or if a step takes more

Hashes are those of one kind of processor: matrix products on the CPU are OpenBLAS's, which has several kernels.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HASHES = ("loss_hash", "state_hash")
COUNTS = ("graph_launches_per_step", "kernels_per_step", "copies_per_step", "host_nodes_per_step", "api_calls_per_step",
          "conditional_nodes", "arena_bytes", "live_bytes", "islands")
MODES = "interactive-serial,interactive-parallel,split-serial,split-parallel,sink,split-sink"  # automatic measures


def environment(**more):
    return {**os.environ, "GS_EMU_SEED": "0", **more}


def workloads(build, steps_per_launch):
    command = [f"{build}/bin/graphsink-bench", "--untimed", "--size", "test", "--steps", "20", "--threads", "2", "--mode", MODES,
               "--steps-per-launch", str(steps_per_launch), "--text", str(ROOT / "LICENSE"), "--json", "-"]
    run = subprocess.run(command, capture_output=True, env=environment(), text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    report = json.loads(run.stdout)  # what was left out is on stderr
    rows = {}
    data = sorted({f"{row['data']['name']} {row['data']['checksum']}" for row in report["rows"] if row["data"]})
    for row in report["rows"]:
        name = f"{row['workload']} {row['device']} {row['mode']} x{steps_per_launch}"
        rows[name] = {field: row[field] for field in (*HASHES, *COUNTS)}
        if row["device"] == "cpu":
            del rows[name]["copies_per_step"]  # whether a value is copied depends on who is faster, host or device
    return {**report["machine"], "data": data}, rows


def random_graphs(build, count):
    """A hash for each seed."""
    with tempfile.NamedTemporaryFile("r") as file:
        hashes = environment(GS_HASHES=file.name, GS_GRAPHS=str(count))
        run = subprocess.run([f"{build}/bin/test_random_graph", "--gtest_brief=1", "--gtest_filter=*InEveryMode*"],
                             stdout=subprocess.PIPE, env=hashes, text=True)
        graphs = dict(sorted(line.split() for line in file.read().splitlines()))
    if run.returncode != 0 or len(graphs) != count:
        sys.exit(f"{run.stdout}{build}: {len(graphs)} of {count} random graphs have a hash")
    return graphs


def instructions(build):
    """Of one thread in user mode: those of a step, by workload; and of building, compiling and binding a long chain."""

    def count(workload, steps, nodes=1000):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"{build}/bin/graphsink-bench", "--untimed",
                   "--device", "cpu", "--size", "test", "--threads", "1", "--mode", "sink", "--workload", workload, "--steps",
                   str(steps), "--nodes", str(nodes), "--text", str(ROOT / "LICENSE")]
        run = subprocess.run(command, capture_output=True, env=environment(), text=True)
        counted = re.search(r"Collected : (\d+)", run.stderr)
        if run.returncode != 0 or not counted:
            sys.exit(run.stderr)
        return int(counted[1])

    result = {f"step of {name}": (count(name, 120) - count(name, 20)) // 100 for name in ("chain", "mlp", "lstm")}
    one, three = (count("chain", steps, 100_000) for steps in (1, 3))
    return {**result, "100,000 nodes": one - 2 * (three - one)}  # there are 3 steps of warm-up


def observed(builds, graphs):
    result = {"machine": {}, "workloads": {}, "random_graphs": {}}
    for build in builds:
        flavour = None
        for steps_per_launch in (1, 16):
            machine, rows = workloads(build, steps_per_launch)
            flavour = machine["flavour"]
            result["machine"] = {field: machine[field] for field in ("cpu", "blas", "compiler", "data")}
            result["workloads"].update({f"{flavour}: {name}": row for name, row in rows.items()})
        result["random_graphs"][flavour] = random_graphs(build, graphs)
        if flavour == "cpu" and shutil.which("valgrind"):
            result["instructions"] = instructions(build)
        print(f"{flavour}: {len(result['workloads'])} rows of workloads so far, "
              f"{len(result['random_graphs'][flavour])} random graphs", flush=True)
    return result


def differences(before, after):
    """Sentences; those about fewer launches or less memory are no failures and begin with 'less'."""
    if before["machine"] != after["machine"]:
        yield f"less comparable: recorded on {before['machine']}, this is {after['machine']}"
    for name in before["workloads"]:
        if name.split(":")[0] in after["random_graphs"] and name not in after["workloads"]:
            yield f"{name}: in the file, and not here"
    for name, row in after["workloads"].items():
        old = before["workloads"].get(name)
        if old is None:
            yield f"{name}: not in the file"
            continue
        for field, value in row.items():
            if value != old[field]:
                is_less = field in COUNTS and None not in (value, old[field]) and value < old[field]
                yield f"{'less: ' if is_less else ''}{name}: {field} {old[field]} -> {value}"
    for flavour, graphs in after["random_graphs"].items():
        for seed, value in graphs.items():
            old = before["random_graphs"].get(flavour, {}).get(seed)
            if old != value:
                yield f"{flavour}: random graph {seed}: {old} -> {value}"


def more_instructions(before, after):
    for name, old in before.get("instructions", {}).items():
        if name not in after.get("instructions", {}):
            yield f"less compared: instructions of {name} are not counted (no build of flavour cpu, or no valgrind)"
            continue
        count = after["instructions"][name]
        ratio = count / old
        limit = 1.02 if name.startswith("step") else 1.1
        text = f"{name}: {old:,} -> {count:,} instructions, {ratio:.3f} times"
        yield text if ratio > limit else f"less than {limit} times: {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", metavar="FILE", type=pathlib.Path)
    what.add_argument("--compare", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--graphs", type=int, default=500, help="random graphs of each build, a multiple of 10 (default: 500)")
    parser.add_argument("builds", metavar="BUILD", nargs="+")
    arguments = parser.parse_args()
    seen = observed(arguments.builds, arguments.graphs)
    if arguments.record:
        arguments.record.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
        return 0
    failed = False
    before = json.loads(arguments.compare.read_text())
    for text in (*differences(before, seen), *more_instructions(before, seen)):
        print(text)
        failed |= not text.startswith("less")
    print("DIFFERENT" if failed else "the same")
    return failed


if __name__ == "__main__":
    sys.exit(main())
