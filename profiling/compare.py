#!/usr/bin/env python3
"""Compares two reports of graphsink-bench or of profiling/peers: the time of a step, row by row. A row of B is compared
with A's row of the same workload, mode and steps per launch.
"""

import argparse
import json
import pathlib
import sys


def key(row):
    return row["workload"], row["mode"], row.get("steps_per_launch", 1)


def describe(machine):
    return ", ".join(f"{name} {machine[name]}" for name in ("cpu", "cores", "device", "fusion", "blas", "torch", "threads") if machine.get(name))


def overlap(a, b):
    return a["min"] <= b["max"] and b["min"] <= a["max"]


def columns_of_times(before, after, base):
    """The columns of times, and a remark for the end of the line. Reports of --untimed have no times."""
    if not before or not after:
        return f"{'-':>11} {'-':>11} {'-':>8}  {'-':<21}", ""
    times = f"{after['min']:.1f}..{after['max']:.1f}"
    remark = "" if base or not overlap(before, after) else "  ranges overlap"
    return (f"{before['median']:>11.2f} {after['median']:>11.2f} {after['median'] / before['median']:>7.2f}x  {times:<21}",
            remark)


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
        times, remark = columns_of_times(other["step_us"], row["step_us"], base)
        print(f"{row['workload']:<9} {row['mode']:<21} {times} {row['loss_first']:.4f} -> {row['loss_last']:.4f}{remark}")
    return pairs


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="exit: 0, 1 if hashes of losses or of the state differ, 2 if a file cannot be read or shares no row with the other",
    )
    parser.add_argument("a", metavar="A.json", type=pathlib.Path)
    parser.add_argument("b", metavar="B.json", type=pathlib.Path)
    parser.add_argument("--base", metavar="MODE", help="compare every row of B with A's row of this mode; hashes may then differ")
    options = parser.parse_args()
    try:
        a, b = (json.loads(path.read_text()) for path in (options.a, options.b))
        pairs = print_comparison(a, b, options.base)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {options.a} and {options.b}: {type(error).__name__}: {error}; give two reports of graphsink-bench --json",
              file=sys.stderr)
        return 2
    if not pairs:
        print("error: no row of one is in the other; measure the same workloads and modes", file=sys.stderr)
        return 2
    if options.base:
        return 0
    different = [a for a, b in pairs if (a["loss_hash"], a["state_hash"]) != (b["loss_hash"], b["state_hash"])]
    for row in different:
        print(f"results differ: {row['workload']} {row['mode']}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
