#!/usr/bin/env python3
"""What a step, a write and building 10,000 nodes cost from Python over C++: medians of rounds in which both take turns.

    PYTHONPATH=build/cpu/python python_cost.py build/cpu/bin/python_cost [--rounds N]

A step adds 1 to a Variable on the CPU; run() is called and not waited for. A write is one of f32 [32, 784]. Both need a build with
-DGRAPHSINK_PYTHON=ON.
"""
from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable

import numpy as np

import graphsink as gs

CALLS, NODES = 2000, 10_000


def us_of(calls: int, call: Callable[[], object]) -> float:
    """Microseconds of one call, the median of blocks."""
    blocks = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        blocks.append(1e6 * (time.perf_counter() - start) / calls)
    return statistics.median(blocks)


def step() -> float:
    graph = gs.Graph()
    v = gs.Variable("v", 0.0)
    graph.assign(v, graph.value(v) + 1.0)
    program = gs.compile(graph)
    program.run()
    program.run()
    program.sync()
    return us_of(CALLS, program.run)


def write() -> float:
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (32, 784))
    graph.output("y", gs.sum(x))
    program = gs.compile(graph)
    data = np.zeros((32, 784), np.float32)
    return us_of(CALLS // 10, lambda: program.write("x", data))


def build() -> float:
    def once() -> None:
        graph = gs.Graph()
        x = graph.input("x", gs.f32, (1,))
        for _ in range(NODES):
            x = x + 1.0
        graph.output("y", x)

    return us_of(1, once)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="python_cost, built from python_cost.cpp")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rounds = []
    for _ in range(options.rounds):
        cpp = json.loads(subprocess.run([options.program], capture_output=True, check=True, text=True).stdout)
        rounds.append((cpp, {"step": step(), "write": write(), "build": build()}))
    print(f"medians of {options.rounds} rounds, microseconds")
    print(f"{'':8}{'C++':>12}{'Python':>12}{'more':>12}")
    for name in ("step", "write", "build"):
        cpp, python = (statistics.median(each[side][name] for each in rounds) for side in (0, 1))
        more = statistics.median(each[1][name] - each[0][name] for each in rounds)
        print(f"{name:8}{cpp:12.2f}{python:12.2f}{more:12.2f}")


if __name__ == "__main__":
    main()
