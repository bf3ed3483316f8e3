#!/usr/bin/env python3
"""profiling/nsys.sh and kernel_table.py: what ran is joined with the names of captured nodes, whether CUPTI has recorded
it (on the software device) or Nsight Systems (a stand-in, whose databases have the documented tables).

usage: profile_test.py BIN_DIR
"""

import contextlib
import json
import os
import pathlib
import sqlite3
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NSYS = ROOT / "profiling" / "nsys.sh"
TABLE = ROOT / "profiling" / "kernel_table.py"
OVERLAP = ROOT / "profiling" / "overlap.py"
STEPS = 12

# Takes the place of nsys: `profile` runs the program and keeps the level that was asked for, `export` makes the database.
FAKE_NSYS = """#!/usr/bin/env bash
set -eu
for argument; do case $argument in --output=*) output=${argument#*=} ;; --cuda-graph-trace=*) level=${argument#*=} ;; esac; done
if [[ $1 == export ]]; then cp "$FAKE_DATABASES/$(<"${@: -1}").sqlite" "$output"; exit; fi
printf %s "$level" >"$output.nsys-rep"
while [[ $1 != /* ]]; do shift; done
"$@"
"""


def run(*command, **environment):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def make_database(path, statements):
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


STRINGS = ["CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)",
           "INSERT INTO StringIds VALUES (1, 'gemm(float*)'), (2, 'tanh(float*)'), (3, 'Graph Node Creation')"]
# Of two launches of a graph of gemm, tanh and a copy, and a kernel that is in no graph.
NODE_LEVEL = STRINGS + [
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER, shortName INTEGER,"
    " graphNodeId INTEGER)",
    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 3000, 1, 1, 101), (3000, 4000, 2, 2, 102), (9000, 14000, 1, 1, 101),"
    " (14000, 15000, 2, 2, 102), (50, 550, 2, 2, NULL)",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, bytes INTEGER, graphNodeId INTEGER)",
    "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (4000, 4500, 64, 103), (15000, 15500, 64, 103)",
    "CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER, end INTEGER, nameId INTEGER, globalTid INTEGER,"
    " graphNodeId INTEGER, originalGraphNodeId INTEGER)",
    # The first is a copy of a copy.
    "INSERT INTO CUDA_GRAPH_NODE_EVENTS VALUES (0, 0, 3, 1, 1, NULL), (0, 0, 3, 1, 51, 1), (0, 0, 3, 1, 101, 51),"
    " (0, 0, 3, 1, 102, 2), (0, 0, 3, 1, 103, 3)"]
GRAPH_LEVEL = STRINGS + [
    "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, graphId INTEGER)",
    "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (0, 4000, 9), (9000, 15000, 9)"]
NAMES = [
    {"id": 1, "graph": 9, "op": "matmul", "where": "net.cpp:4", "node": 3, "bytes": 4000, "flops": 80000, "work": "kernel gemm"},
    {"id": 2, "graph": 9, "op": "matmul", "where": "net.cpp:4", "node": 3, "bytes": 4000, "flops": 80000, "work": "kernel tanh"},
    {"id": 3, "graph": 9, "work": "memcpy"}]
EXPECTED = {  # by op and work: nanoseconds, calls, bytes, operations
    ("matmul", "2 different"): (10000, 2, 8000, 160000),
    ("graphsink", "memcpy"): (1000, 2, 128, 0),
    ("", "tanh(float*)"): (500, 1, 0, 0)}


class Overlap(unittest.TestCase):
    """profiling/overlap.py: what ran beside collectives."""

    # Two collectives; of the first one, 40 ns are covered by three kernels, of which two overlap each other.
    SPANS = [("ncclDevKernel_AllReduce(x)", 100, 200), ("gemm", 50, 110), ("gemm", 120, 130), ("tanh", 125, 140), ("gemm", 190, 300),
             ("ncclDevKernel_AllReduce(x)", 400, 500)]
    EXPECTED = [{"name": "ncclDevKernel_AllReduce(x)", "count": 2, "ns": 200, "beside_ns": 40, "kernels_beside": 4, "with_others": 1}]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def rows(self, trace):
        done = run(OVERLAP, trace, "--json", self.path / "rows.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("20 %", done.stdout)
        return json.loads((self.path / "rows.json").read_text(encoding="utf-8"))

    def test_of_cupti(self):
        lines = [{"kind": "span", "node": 1, "name": name, "start": start, "end": end} for name, start, end in self.SPANS]
        lines.append({"kind": "kernel", "node": 1, "name": "gemm", "count": 3, "ns": 180, "bytes": 0})
        self.assertEqual(self.rows(write_lines(self.path / "trace.jsonl", lines)), self.EXPECTED)

    def test_of_nsight_systems(self):
        statements = ["CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)",
                      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER)"]
        for number, (name, start, end) in enumerate(self.SPANS):
            statements.append(f"INSERT INTO StringIds VALUES ({number}, '{name}')")
            statements.append(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {end}, {number})")
        self.assertEqual(self.rows(make_database(self.path / "trace.sqlite", statements)), self.EXPECTED)

    def test_of_a_program(self):
        """The software device records when each kernel ran."""
        trace = self.path / "trace.jsonl"
        done = run(BIN_DIR / "train_mnist", "--device", "cuda:0", "--steps", STEPS, "--steps-per-launch", "4",
                   CUDA_INJECTION64_PATH=str(BIN_DIR / "libgraphsink_kernel_times.so"), GRAPHSINK_KERNEL_TIMES=str(trace),
                   GRAPHSINK_KERNEL_TIMES_LEVEL="timeline")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
        spans = [line for line in lines if line["kind"] == "span"]
        self.assertEqual(len(spans), sum(line["count"] for line in lines if line["kind"] in ("kernel", "memcpy", "memset")))
        self.assertTrue(all(line["start"] <= line["end"] for line in spans))
        done = run(OVERLAP, trace)
        self.assertEqual((done.returncode, done.stderr), (1, "overlap.py: no collective of NCCL ran\n"))

    def test_says_what_it_cannot_read(self):
        (self.path / "other.txt").write_text("no timeline\n", encoding="utf-8")
        for name in ("missing.jsonl", "other.txt"):
            done = run(OVERLAP, self.path / name)
            self.assertEqual(done.returncode, 2)
            self.assertIn(name, done.stderr)


class Profile(unittest.TestCase):
    def setUp(self):
        # pylint: disable-next=consider-using-with
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rows(self, path=None):
        table = json.loads((path or self.folder / "kernels.json").read_text(encoding="utf-8"))
        self.launches = table["launches"]
        return {(row["op"], row["work"]): (row["ns"], row["calls"], row["bytes"], row["flops"]) for row in table["rows"]}

    def test_a_report_is_joined_with_the_names(self):
        report = make_database(self.folder / "nodes.sqlite", NODE_LEVEL)
        names = write_lines(self.folder / "names.jsonl", NAMES)
        done = run(TABLE, report, "--names", names, "--json", self.folder / "kernels.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows(), EXPECTED)
        lines = done.stdout.splitlines()
        self.assertIn("95.7 % of it in graphs", lines[0])
        self.assertEqual(lines[2].split(), "0.010 87.0 2 5.00 0.8 16.0 matmul net.cpp:4 2 different".split())

    def test_times_of_cupti_are_joined_in_the_same_way(self):
        times = write_lines(self.folder / "nodes.jsonl", [
            {"kind": "kernel", "node": 101, "name": "gemm(float*)", "count": 2, "ns": 8000, "bytes": 0},
            {"kind": "kernel", "node": 102, "name": "tanh(float*)", "count": 2, "ns": 2000, "bytes": 0},
            {"kind": "memcpy", "node": 103, "name": "memcpy", "count": 2, "ns": 1000, "bytes": 128},
            {"kind": "kernel", "node": 0, "name": "tanh(float*)", "count": 1, "ns": 500, "bytes": 0},
            {"kind": "clone", "node": 51, "original": 1}, {"kind": "clone", "node": 101, "original": 51},
            {"kind": "clone", "node": 102, "original": 2}, {"kind": "clone", "node": 103, "original": 3},
            {"kind": "dropped", "count": 7}])
        names = write_lines(self.folder / "names.jsonl", NAMES)
        done = run(TABLE, times, "--names", names, "--json", self.folder / "kernels.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows(), EXPECTED)
        self.assertIn("7 records were lost", done.stdout)

    def test_scopes_have_a_table_of_their_own(self):
        report = make_database(self.folder / "nodes.sqlite", NODE_LEVEL)
        names = write_lines(self.folder / "names.jsonl", [{**NAMES[0], "scope": "layer0"}, {**NAMES[1], "scope": "layer1"}, NAMES[2]])
        done = run(TABLE, report, "--names", names, "--json", self.folder / "kernels.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows(), EXPECTED, "rows are by line, not by scope")
        scopes = json.loads((self.folder / "kernels.json").read_text(encoding="utf-8"))["scopes"]
        self.assertEqual(scopes, {"layer0": 8000, "layer1": 2000, "": 1500})
        table = done.stdout[done.stdout.index("by scope"):].splitlines()
        self.assertEqual([line.split() for line in table[1:5]],
                         [["ms", "%", "scope"], ["0.008", "69.6", "layer0"], ["0.002", "17.4", "layer1"],
                          ["0.002", "13.0", "outside", "of", "scopes"]])

    def test_graphs_without_names_are_said_to_be_unknown(self):
        report = make_database(self.folder / "nodes.sqlite", NODE_LEVEL)
        done = run(TABLE, report, "--json", self.folder / "kernels.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows()["unknown graph", "gemm(float*)"], (8000, 2, 0, 0))
        self.assertIn("0.011 ms are in graphs of which the names say nothing", done.stdout)

    def test_what_cannot_be_read_is_said(self):
        empty = make_database(self.folder / "empty.sqlite", STRINGS)
        other = make_database(self.folder / "other.sqlite", ["CREATE TABLE t (x INTEGER)"])
        text = self.folder / "text"
        text.write_text("no JSON\n", encoding="utf-8")
        for path, message in ((empty, "does the program use the GPU?"), (other, "nsys export --type sqlite"),
                              (text, "no file of JSON objects"), (self.folder / "none", "is no file")):
            done = run(TABLE, path)
            self.assertEqual(done.returncode, 1, path)
            self.assertIn(message, done.stderr)

    def fake_nsys(self):
        tool = self.folder / "tools" / "nsys"
        tool.parent.mkdir()
        tool.write_text(FAKE_NSYS, encoding="utf-8")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        make_database(self.folder / "node.sqlite", NODE_LEVEL)
        make_database(self.folder / "graph.sqlite", GRAPH_LEVEL)
        return {"PATH": f"{tool.parent}:{os.environ['PATH']}", "FAKE_DATABASES": str(self.folder)}

    def test_nsight_systems_runs_the_program_twice(self):
        program = self.folder / "program"
        names = write_lines(self.folder / "all_names", NAMES)
        program.write_text(f'#!/bin/sh\necho run "$@"\n[ -z "$GRAPHSINK_NODE_NAMES" ] || cp {names} "$GRAPHSINK_NODE_NAMES"\n',
                           encoding="utf-8")
        program.chmod(0o755)
        out = self.folder / "out"
        done = run(NSYS, "--out", out, program, "with", "arguments", **self.fake_nsys())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rows(out / "kernels.json"), EXPECTED)
        self.assertEqual(self.launches, {"9": [2, 10000]})
        self.assertEqual(done.stdout.splitlines()[-1].split(), "9 2 0.010 5.00".split())
        for log in ("launches.log", "nodes.log"):
            self.assertIn("run with arguments", (out / log).read_text(encoding="utf-8"))

    def test_a_program_that_fails_is_said_to(self):
        done = run(NSYS, "--out", self.folder / "out", "/bin/false", **self.fake_nsys())
        self.assertEqual(done.returncode, 1)
        self.assertIn("false failed with exit status 1", done.stderr)

    def test_wrong_usage(self):
        for arguments in ([], ["--top", "0", "/bin/true"], ["--nonsense"], [self.folder / "no_program"], ["--out"],
                          ["--cupti", "/bin/true"]):
            done = run(NSYS, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertTrue(done.stderr, arguments)

    def test_a_sunk_training_step_on_the_software_device(self):
        out = self.folder / "out"
        done = run(NSYS, "--cupti", "--out", out, BIN_DIR / "train_mnist", "--device", "cuda:0", "--steps", STEPS,
                   "--steps-per-launch", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = self.rows(out / "kernels.json")
        self.assertFalse([op for op, _ in rows if op == "unknown graph"], "all nodes that ran have names")
        products = {op: numbers for (op, _), numbers in rows.items() if op.startswith("matmul")}
        self.assertTrue(products)
        for _, calls, size, operations in products.values():
            self.assertGreater(calls, 0)
            self.assertGreater(size, 0)
            self.assertGreater(operations, 0)
        table = json.loads((out / "kernels.json").read_text(encoding="utf-8"))["rows"]
        self.assertTrue(any("mlp.cpp:" in row["where"] for row in table))
        # The first step runs op by op, the others as launches of up to 4 steps.
        self.assertGreater(sum(count for count, _ in self.launches.values()), 0)
        self.assertTrue([work for op, work in rows if op == "" and work.startswith("void ")], "kernels in no graph")


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1))
    unittest.main()
