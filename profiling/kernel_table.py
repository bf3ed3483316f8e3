#!/usr/bin/env python3
"""What the GPU spent its time on, by op and line of code, also inside of sunk graphs, of which profilers show only
kernels. Joins two files: what ran (the SQLite export of an Nsight Systems report that was made with
--cuda-graph-trace=node, or a file of profiling/kernel_times.cpp), and the names of captured nodes
(GRAPHSINK_NODE_NAMES=FILE in the environment of the program, or write_node_names()). profiling/nsys.sh makes both.
"""

import argparse
import contextlib
import json
import os
import sqlite3
import sys

LEFT_COLUMNS = ("op", "where", "work")


class Problem(Exception):
    """What cannot be read, with the remedy."""


class Trace:
    """What ran: sums of work by node, launches by graph, and which node was copied from which."""

    def __init__(self):
        self.work = []  # of each kind, node and name: (kind, node, name, count, nanoseconds, bytes)
        self.launches = {}  # graph: (count, nanoseconds)
        self.originals = {}
        self.dropped = 0


def read_lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except OSError as e:
        raise Problem(f"{path}: {e.strerror}") from e
    except ValueError as e:
        raise Problem(f"{path} is no file of JSON objects, one a line: {e}") from e


def read_times(path):
    trace = Trace()
    for line in read_lines(path):
        if line["kind"] == "graph":
            trace.launches[line["graph"]] = (line["count"], line["ns"])
        elif line["kind"] == "clone":
            trace.originals[line["node"]] = line["original"]
        elif line["kind"] == "span":  # which the sums have
            continue
        elif line["kind"] == "dropped":
            trace.dropped += line["count"]
        else:
            trace.work.append(tuple(line[key] for key in ("kind", "node", "name", "count", "ns", "bytes")))
    return trace


def read_report(path):
    """The SQLite export of a report of Nsight Systems. Tables that have no rows are missing in it."""
    trace = Trace()
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        def columns(table):
            return {row[1] for row in database.execute(f"PRAGMA table_info({table})")}

        def sums(table, name, size):
            has = columns(table)
            if not has:
                return []
            node = "ifnull(graphNodeId, 0)" if "graphNodeId" in has else "0"
            return database.execute(
                f"SELECT {node}, {name}, count(*), sum(end - start), {size} FROM {table} GROUP BY 1, 2 ORDER BY 1, 2")

        try:
            if not columns("StringIds"):
                raise Problem(f"{path} is no export of Nsight Systems: use `nsys export --type sqlite REPORT`")
            strings = dict(database.execute("SELECT id, value FROM StringIds"))
            for node, name, count, time, size in sums("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName", 0):
                trace.work.append(("kernel", node, strings.get(name, "without a name"), count, time, size))
            for kind in ("memcpy", "memset"):
                for node, name, count, time, size in sums(f"CUPTI_ACTIVITY_KIND_{kind.upper()}", f"'{kind}'", "sum(bytes)"):
                    trace.work.append((kind, node, name, count, time, size))
            if columns("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
                for graph, count, time in database.execute(
                        "SELECT graphId, count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE GROUP BY 1"):
                    trace.launches[graph] = (count, time)
            if "originalGraphNodeId" in columns("CUDA_GRAPH_NODE_EVENTS"):
                trace.originals.update(database.execute(
                    "SELECT graphNodeId, originalGraphNodeId FROM CUDA_GRAPH_NODE_EVENTS"
                    " WHERE originalGraphNodeId IS NOT NULL AND originalGraphNodeId <> 0"))
        except sqlite3.DatabaseError as e:
            raise Problem(f"{path} cannot be read as an export of Nsight Systems: {e}") from e
    return trace


def read_trace(path):
    if not os.path.isfile(path):
        raise Problem(f"{path} is no file; profiling/nsys.sh makes one")
    with open(path, "rb") as file:
        is_database = file.read(15) == b"SQLite format 3"
    return read_report(path) if is_database else read_times(path)


def name_of(node, trace, names):
    """What the names say of the node or, first found, of one that it was copied from; None if they say nothing."""
    seen = set()
    while node and node not in seen:
        if node in names:
            return names[node]
        seen.add(node)
        node = trace.originals.get(node)
    return None


def label_of(kind, node, work, name):
    """The columns op, where and work of the row that this belongs to."""
    if name is None:
        return ("" if node == 0 else "unknown graph"), "", work
    if "op" in name:
        return name["op"], name.get("where", ""), ""
    if "key" in name:
        return "key " + name["key"], "", work
    return "graphsink", "", work


def table(trace, names):
    """The rows, the longest first. Each op of a graph counts as often as its most frequent node ran."""
    rows, ops = {}, {}
    for kind, node, work, count, time, size in trace.work:
        name = name_of(node, trace, names)
        label = label_of(kind, node, work, name)
        row = rows.setdefault(label, {"ns": 0, "calls": 0, "bytes": 0, "flops": 0, "works": set(),
                                      **dict(zip(LEFT_COLUMNS, label))})
        row["ns"] += time
        row["works"].add(work)
        if name is not None and "op" in name:
            op = ops.setdefault((name["graph"], name["node"], label), {"row": row, "calls": 0, "name": name})
            op["calls"] = max(op["calls"], count)
        else:
            row["calls"] += count
            row["bytes"] += size
    for op in ops.values():
        op["row"]["calls"] += op["calls"]
        op["row"]["bytes"] += op["calls"] * op["name"]["bytes"]
        op["row"]["flops"] += op["calls"] * op["name"].get("flops", 0)
    for row in rows.values():
        works = sorted(row.pop("works"))
        if not row["work"]:
            row["work"] = works[0] if len(works) == 1 else f"{len(works)} different"
    return sorted(rows.values(), key=lambda row: (-row["ns"], row["op"], row["where"], row["work"]))


def scopes(trace, names):
    """(nanoseconds, scope) of what the user's scopes took, the longest first; empty where no op has a scope."""
    times = {}
    for _, node, _, _, time, _ in trace.work:
        name = name_of(node, trace, names) or {}
        scope = name.get("scope", "")
        times[scope] = times.get(scope, 0) + time
    return [] if set(times) <= {""} else sorted(((time, scope) for scope, time in times.items()), reverse=True)


def rate(amount, nanoseconds):
    return f"{amount / nanoseconds:.1f}" if amount and nanoseconds else ""


def print_table(header, rows, left):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [cell.ljust(width) if i >= left else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def shortened(work, most=60):
    text = work.removeprefix("void ").replace("(anonymous namespace)::", "")
    return text if len(text) <= most else text[: most - 3] + "..."


def print_rows(rows, trace, top):
    total = sum(row["ns"] for row in rows)
    in_graphs = sum(time for _, node, _, _, time, _ in trace.work if node)
    print(f"{total / 1e6:.3f} ms of kernels, copies and fills, {100 * in_graphs / total:.1f} % of it in graphs")
    shown = [(f"{row['ns'] / 1e6:.3f}", f"{100 * row['ns'] / total:.1f}", str(row["calls"]),
              f"{row['ns'] / 1e3 / row['calls']:.2f}", rate(row["bytes"], row["ns"]), rate(row["flops"], row["ns"]),
              row["op"], row["where"], shortened(row["work"])) for row in rows[:top]]
    print_table(("ms", "%", "calls", "us a call", "GB/s", "GFLOP/s", "op", "where", "kernel, copy or fill"), shown, 6)
    if len(rows) > top:
        rest = sum(row["ns"] for row in rows[top:])
        print(f"and {len(rows) - top} more rows with {100 * rest / total:.1f} %: see --top and --json")


def print_scopes(rows, top):
    total = sum(time for time, _ in rows)
    print("\nby scope")
    print_table(("ms", "%", "scope"), [(f"{time / 1e6:.3f}", f"{100 * time / total:.1f}", scope or "outside of scopes")
                                      for time, scope in rows[:top]], 2)


def print_launches(trace):
    print("\nlaunches of graphs, measured in a run that does not look inside")
    rows = [(str(graph), str(count), f"{time / 1e6:.3f}", f"{time / 1e3 / count:.2f}")
            for graph, (count, time) in sorted(trace.launches.items(), key=lambda item: -item[1][1])]
    print_table(("graph", "launches", "ms", "us a launch"), rows, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="exit: 0 a table was printed, 1 there is none, 2 wrong usage")
    parser.add_argument("trace", metavar="TRACE", help="what ran, by node")
    parser.add_argument("--names", metavar="FILE", help="names of captured nodes")
    parser.add_argument("--launches", metavar="TRACE", help="what ran in another run, by launch of a graph")
    parser.add_argument("--top", type=int, default=30, metavar="N", help="print N rows (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all rows as JSON, too; times in ns, bytes and flops in all")
    arguments = parser.parse_args()
    if arguments.top < 1:
        parser.error("--top must be at least 1")
    try:
        trace = read_trace(arguments.trace)
        names = {line["id"]: line for line in read_lines(arguments.names)} if arguments.names else {}
        launches = read_trace(arguments.launches) if arguments.launches else trace
        rows = table(trace, names)
        if not rows or not any(row["ns"] for row in rows):
            raise Problem(f"{arguments.trace} has no kernels, copies or fills: does the program use the GPU?")
        print_rows(rows, trace, arguments.top)
        unknown = sum(row["ns"] for row in rows if row["op"] == "unknown graph")
        if unknown:
            print(f"{unknown / 1e6:.3f} ms are in graphs of which the names say nothing: of other libraries, or in steps that "
                  "were captured before GRAPHSINK_NODE_NAMES was set")
        if trace.dropped:
            print(f"{trace.dropped} records were lost, so the times above are too small: profile fewer steps")
        by_scope = scopes(trace, names)
        if by_scope:
            print_scopes(by_scope, arguments.top)
        if launches.launches:
            print_launches(launches)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump({"rows": rows, "scopes": {scope: time for time, scope in by_scope},
                           "launches": {str(g): c for g, c in launches.launches.items()}}, file, indent=1)
    except Problem as e:
        print(f"kernel_table: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
