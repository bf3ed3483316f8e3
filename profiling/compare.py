#!/usr/bin/env python3
"""Compares two reports of graphsink-bench or of profiling/peers: the time of a step, row by row.

usage: compare.py A.json B.json

A row of B is compared with A's row of the same workload, mode and steps per launch. Exit: 0, 1 if results (hashes of
losses or state) of a row differ, 2 if a file cannot be read or has nothing in common with the other.
"""

import json
import pathlib
import sys


def key(row):
    return row["workload"], row["mode"], row.get("steps_per_launch", 1)


def describe(machine):
    return ", ".join(f"{name} {machine[name]}" for name in ("cpu", "cores", "device", "torch", "threads") if machine.get(name))


def overlap(a, b):
    return a["min"] <= b["max"] and b["min"] <= a["max"]


def print_comparison(a, b, base=None):
    """Rows of b over those of a; with `base` every row of b over a's row of that mode. Returns the pairs."""
    others = {key(row): row for row in a["rows"]}
    pairs = []
    print(f"{describe(b['machine'])}")
    print(f"{'workload':<9} {'mode':<21} {'A us/step':>11} {'B us/step':>11} {'B/A':>8}  {'B min..max':<21} {'loss':<18}")
    for row in b["rows"]:
        other = others.get((row["workload"], base or row["mode"], row.get("steps_per_launch", 1)))
        if not other:
            continue
        pairs.append((other, row))
        before, after = other["step_us"], row["step_us"]
        times = f"{after['min']:.1f}..{after['max']:.1f}"
        same = "" if base or not overlap(before, after) else "  ranges overlap"
        print(f"{row['workload']:<9} {row['mode']:<21} {before['median']:>11.2f} {after['median']:>11.2f} "
              f"{after['median'] / before['median']:>7.2f}x  {times:<21} {row['loss_first']:.4f} -> {row['loss_last']:.4f}{same}")
    return pairs


def main():
    if len(sys.argv) != 3 or "--help" in sys.argv or "-h" in sys.argv:
        print(__doc__.strip(), file=sys.stdout if "--help" in sys.argv or "-h" in sys.argv else sys.stderr)
        return 0 if "--help" in sys.argv or "-h" in sys.argv else 2
    try:
        a, b = (json.loads(pathlib.Path(name).read_text()) for name in sys.argv[1:])
        pairs = print_comparison(a, b)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {' and '.join(sys.argv[1:])}: {type(error).__name__}: {error}; give two reports of graphsink-bench --json",
              file=sys.stderr)
        return 2
    if not pairs:
        print("error: no row of one is in the other; measure the same workloads and modes", file=sys.stderr)
        return 2
    different = [before for before, after in pairs for field in ("loss_hash", "state_hash") if before.get(field) != after.get(field)]
    for row in different:
        print(f"results differ: {row['workload']} {row['mode']}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
