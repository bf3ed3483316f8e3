#!/usr/bin/env python3
"""How much of the time of collectives the GPU did other work beside them. Reads what ran: the SQLite export of an Nsight
Systems report that was made with --cuda-graph-trace=node, or a file of profiling/kernel_times.cpp that was made with
GRAPHSINK_KERNEL_TIMES_LEVEL=timeline in the environment of the program.

Exit: 0 the table was printed, 1 there are no collectives, 2 the file cannot be read.
"""

import argparse
import collections
import contextlib
import itertools
import json
import re
import sqlite3
import sys

COLLECTIVE = re.compile(r"nccl", re.IGNORECASE)


class Problem(Exception):
    """What cannot be read, with the remedy."""


def read_spans(path):
    """Names of kernels, and when each began and ended, in nanoseconds."""
    try:
        with open(path, "rb") as file:
            is_database = file.read(15) == b"SQLite format 3"
        if not is_database:
            with open(path, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            return [(line["name"], line["start"], line["end"]) for line in lines if line["kind"] == "span"]
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return list(database.execute("SELECT s.value, k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"))
    except OSError as e:
        raise Problem(f"{path}: {e.strerror}") from e
    except (ValueError, KeyError, TypeError, sqlite3.DatabaseError) as e:
        raise Problem(f"{path} is no timeline: {e}; see --help") from e


def overlaps(spans):
    """A row for each kind of collective: how often it ran, for how long, how long other kernels ran meanwhile, and how many."""
    others = sorted((start, end) for name, start, end in spans if not COLLECTIVE.search(name))
    rows = collections.defaultdict(lambda: {"count": 0, "ns": 0, "beside_ns": 0, "kernels_beside": 0, "with_others": 0})
    first = 0  # those before it ended before the collective began
    for start, end, name in sorted((start, end, name) for name, start, end in spans if COLLECTIVE.search(name)):
        while first < len(others) and others[first][1] <= start:
            first += 1
        row, covered, beside = rows[name], start, 0
        for other_start, other_end in itertools.islice(others, first, None):
            if other_start >= end:
                break
            if other_end <= start:
                continue
            beside += 1
            begin = max(other_start, covered)
            if (last := min(other_end, end)) > begin:
                row["beside_ns"] += last - begin
                covered = last
        row["count"] += 1
        row["ns"] += end - start
        row["kernels_beside"] += beside
        row["with_others"] += beside > 0
    return [{"name": name, **row} for name, row in sorted(rows.items(), key=lambda pair: -pair[1]["ns"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="the timeline")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE, too")
    options = parser.parse_args()
    try:
        rows = overlaps(read_spans(options.trace))
    except Problem as e:
        print(f"overlap.py: {e}", file=sys.stderr)
        return 2
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    if not rows:
        print("overlap.py: no collective of NCCL ran", file=sys.stderr)
        return 1
    print(f"{'us':>12} {'beside':>7} {'runs':>6} {'with others':>11} {'kernels':>8}  collective")
    for row in rows:
        share = 100 * row["beside_ns"] / max(row["ns"], 1)
        print(f"{row['ns'] / 1e3:12.1f} {share:5.0f} % {row['count']:6} {row['with_others']:11} {row['kernels_beside']:8}  {row['name'][:100]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
