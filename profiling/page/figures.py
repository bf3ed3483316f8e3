"""The table of docs/gpu.md that compares what a GPU has shown with the goals. Every figure is a ratio of two times of one run,
and comes from the newest run that has both."""

import collections
import dataclasses
import re
import statistics

from page.run import Run, links_of, table


@dataclasses.dataclass
class Figure:
    """`values`: the ratios, each with the words that say of what."""

    values: list[tuple[str, float]]
    run: Run


def launches(field: str):
    """Of launch_baseline: the same kernels by bare CUDA calls; the median of its rounds."""

    def find(runs: list[Run]) -> Figure | None:
        for run in runs:
            by_kernels = collections.defaultdict(list)
            for name, result in run.results.items():
                if re.fullmatch(r"launch_baseline(-round\d+)?-\d+", name) and isinstance(result, dict):
                    by_kernels[result["nodes"]].append(result[field])
            if by_kernels:
                return Figure([(f"{kernels:,} kernels", statistics.median(values)) for kernels, values in sorted(by_kernels.items())], run)
        return None

    return find


def median_steps(run: Run, name: str) -> dict[tuple[str, str], float]:
    return {(row["workload"], row["mode"]): row["step_us"]["median"] for row in run.rows(name) if row.get("step_us")}


def against_torch(workload: str, mode: str):
    def find(runs: list[Run]) -> Figure | None:
        for run in runs:
            for name in run.results:
                steps = median_steps(run, name) if name.startswith("torch") else {}
                sink, other = steps.get((workload, "sink")), steps.get((workload, f"torch-{mode}"))
                if sink and other:
                    return Figure([("", sink / other)], run)
        return None

    return find


def loops(workload: str):
    """A step whose loops are WHILE nodes over one in which the host decides about each iteration."""

    def find(runs: list[Run]) -> Figure | None:
        for run in runs:
            for name in run.results:
                steps = median_steps(run, name) if name.startswith("bench") else {}
                sink, host = steps.get((workload, "sink")), steps.get((workload, "interactive-serial"))
                if sink and host:
                    return Figure([("", sink / host)], run)
        return None

    return find


def host_time(runs: list[Run]) -> Figure | None:
    """Processor time of the calling thread for a step of a launch of 64 steps, over that for a launch of one step."""
    for run in runs:
        single = {}
        for name in run.results:
            if name.startswith("bench"):
                single |= {row["workload"]: row["enqueue_us"]["median"] for row in run.rows(name)
                           if row["mode"] == "sink" and row.get("steps_per_launch") == 1 and row.get("enqueue_us")}
        values = [(row["workload"], row["enqueue_us"]["median"] / 64 / single[row["workload"]]) for row in run.rows("bench-64-steps")
                  if row["mode"] == "sink" and row.get("steps_per_launch") == 64 and row.get("enqueue_us") and row["workload"] in single]
        if values:
            return Figure(values, run)
    return None


def no_item_yet(_: list[Run]) -> Figure | None:
    """No plan measures it yet."""
    return None


# What is measured, the goal (the number of a ratio that should not be exceeded, and its words), and how it is found.
FIGURES = [
    ("`sink`: time of the call over `cudaGraphLaunch` of a hand-written graph", (1.05, "1.05"), launches("sink_over_graph_launch")),
    ("`interactive`: time of the calls over a hand-written loop of launches", (1.15, "1.15"), launches("interactive_over_loop")),
    ("step of `mlp` over a hand-written graph of the same kernels", (1.1, "1.1"), no_item_yet),
    ("crossing from GPU to CPU and back over a hand-written one", (1.1, "1.1"), no_item_yet),
    ("host CPU for a step of a launch of 64 steps over that of one step", (1 / 30, "1/30"), host_time),
    *[(f"`{workload}`: WHILE in a launch over a loop that the host drives", (1 / 2, "1/2"), loops(workload)) for workload in ("lstm-scan", "jacobi", "generate")],
    ("`mlp`: `sink` over PyTorch eager", None, against_torch("mlp", "eager")),
    ("`mlp`: `sink` over PyTorch's whole-step graph", (1 / 4, "1/4"), against_torch("mlp", "graph")),
    ("`mlp`: `sink` over torch.compile", None, against_torch("mlp", "compile")),
    ("`lstm`: `sink` over PyTorch eager", (1 / 8, "1/8"), against_torch("lstm", "eager")),
    ("`lstm`: `sink` over PyTorch's `nn.LSTM`, eager", None, against_torch("lstm", "eager-nn.LSTM")),
    ("`lstm`: `sink` over PyTorch's whole-step graph", None, against_torch("lstm", "graph")),
    ("`lstm`: `sink` over torch.compile", None, against_torch("lstm", "compile")),
]


def ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def targets(runs: list[Run], page: str) -> list[str]:
    rows = []
    for what, goal, find in FIGURES:
        figure = find(runs)
        if not figure:
            rows.append([what, goal[1] if goal else None, "not measured yet", None, None])
            continue
        measured = ", ".join(f"{ratio(value)}{f' ({of})' if of else ''}" for of, value in figure.values)
        met = [value <= goal[0] for _, value in figure.values] if goal else []
        verdict = "" if not goal else "yes" if all(met) else "in part" if any(met) else "no"
        rows.append([what, goal[1] if goal else None, measured, verdict, links_of([figure.run], page)])
    return table(["ratio of two times", "at most", "measured", "met", "run"], rows, left=5)
