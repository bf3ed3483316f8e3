"""What profiling/figures.py writes into the pages: tables and single values, from reports in profiling/results/figures, and
constants of the sources."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable

import demo_table
from page.run import table

PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = PROJECT / "profiling" / "results" / "figures"
PAGE_WORKLOADS = ("chain", "mlp", "lstm", "gpt")  # of the table in README.md


@dataclasses.dataclass
class Measured:
    """A file of profiling/results/figures: the reports of a command, by name, with where they come from."""

    command: str
    machine: str
    commit: str
    date: str
    reports: dict
    transcribed: str = ""  # why the reports are not those of the command

    def rows(self, report: str) -> list[dict]:
        return self.reports[report]["rows"]

    def step_us(self, report: str, workload: str, mode: str) -> float | None:
        return next((row["step_us"]["median"] for row in self.rows(report) if (row["workload"], row["mode"]) == (workload, mode)), None)

    def source(self) -> str:
        return f"`{self.command}`: {self.machine}; commit {self.commit}, {self.date}{', transcribed' if self.transcribed else ''}."


def text_of(measured: dict) -> str:
    """A file of profiling/results/figures: as JSON, with a line for each row."""
    reports = []
    for name, report in measured["reports"].items():
        fields = [f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in report.items() if key not in ("rows", "lines")]
        for key in ("rows", "lines"):
            if key in report:
                rows = ",".join(f"\n    {json.dumps(row)}" for row in report[key])
                fields.append(f'   "{key}": [{rows}\n   ]' if rows else f'   "{key}": []')
        reports.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(fields) + "\n  }")
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in measured.items() if key != "reports"]
    return "{\n" + ",\n".join([*lines, ' "reports": {\n' + ",\n".join(reports) + "\n }"]) + "\n}\n"


def load(folder: pathlib.Path = FOLDER) -> dict[str, Measured]:
    return {file.stem: Measured(**json.loads(file.read_text(encoding="utf-8"))) for file in sorted(folder.glob("*.json"))}


def fenced(lines: list[str]) -> list[str]:
    return ["```text", *(line.rstrip() for line in lines), "```"]


def front(all_measured: dict[str, Measured]) -> list[str]:
    demo, rows = all_measured["demo"], []
    for workload in PAGE_WORKLOADS:
        serial, sink = (demo.step_us("bench", workload, mode) for mode in ("interactive-serial", "sink"))
        rows.append([f"`{workload}`", demo_table.time_text(serial), demo_table.time_text(sink), f"{serial / sink:.2f} x"])
    return [*table(["workload", "op by op", "sunk", "speed-up"], rows), "", demo.source()]


def modes(all_measured: dict[str, Measured]) -> list[str]:
    demo = all_measured["demo"]
    lines = demo_table.lines_of_rows(demo.reports["bench"])
    lines += ["", *demo_table.lines_of_sources(*(demo.reports[name] for name in ("bench", "no-fuse", "one-thread")))]
    return [*fenced(lines), "", demo.source()]


def planning(all_measured: dict[str, Measured]) -> list[str]:
    planned = all_measured["planning"]
    rows = [[f"{int(name.removeprefix('nodes-')):,}", f"{report['rows'][0]['compile_us'] / 1000:.0f} ms"]
            for name, report in sorted(planned.reports.items(), key=lambda item: int(item[0].removeprefix("nodes-")))]
    return [*table(["nodes", "planning"], rows, left=0), "", planned.source()]


def over_sink(measured: Measured, workload: str, modes: tuple[str, ...]) -> float | None:
    """The least time of these modes of PyTorch over that of sink."""
    ratios = measured.reports["torch"].get("ratios", {})  # of a transcribed report
    name = "nn.LSTM" if modes == ("torch-eager-nn.LSTM",) else workload
    if name in ratios:
        return ratios[name]
    sink, others = measured.step_us("torch", workload, "sink"), [measured.step_us("torch", workload, mode) for mode in modes]
    others = [other for other in others if other is not None]
    return min(others) / sink if sink and others else None


def torch(all_measured: dict[str, Measured]) -> list[str]:
    """A row for each number of threads and workload, a column of ratios for each machine; times of the first machine alone."""
    machines = {"the Xeon": "xeon", "the EPYC": "zen4"}
    both, rows = ("torch-eager", "torch-compile"), []
    for threads in (2, 1):
        for workload in ("wide", "mlp", "charmlp", "lstm", "gpt", "nn.LSTM"):
            is_module = workload == "nn.LSTM"
            of, modes = ("lstm", ("torch-eager-nn.LSTM",)) if is_module else (workload, both)
            first = all_measured[f"torch-xeon-{threads}"]
            times = [None if is_module and mode != "sink" else first.step_us("torch", of, mode) for mode in ("sink", *both)]
            ratios = [over_sink(all_measured[f"torch-{machine}-{threads}"], of, modes) for machine in machines.values()]
            rows.append([threads, "`lstm`, PyTorch's `nn.LSTM`" if is_module else f"`{of}`", *("" if us is None else f"{us:,.0f}" for us in times),
                         *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])
    header = ["threads", "workload", "graphsink sink", "torch eager", "torch.compile", *(f"ratio on {name}" for name in machines)]
    sources = [f"* {all_measured[f'torch-{machine}-{threads}'].source()}" for machine in machines.values() for threads in (2, 1)]
    return [*table(header, rows, left=2), "", *sources]


def single_ops(all_measured: dict[str, Measured]) -> list[str]:
    rows = []
    for measured in (all_measured["ops-xeon"], all_measured["ops-zen4"]):
        report = measured.reports["ops"]
        largest = report.get("largest_ratio")  # of a transcribed report
        if largest is None:
            slowest = max(report["rows"], key=lambda row: row["ratio"])
            largest = f"{slowest['ratio']:.2f} (`{slowest['op']}`)"
        rows.append([measured.machine, report.get("ops", len(report["rows"])), largest])
    return [*table(["machine", "ops", "largest ratio to PyTorch"], rows), "",
            *(f"* {all_measured[name].source()}" for name in ("ops-xeon", "ops-zen4"))]


def output(name: str) -> Callable[[dict[str, Measured]], list[str]]:
    """What a command printed."""
    return lambda all_measured: [*fenced(all_measured[name].reports["output"]["lines"]), "", all_measured[name].source()]


# By the name in <!-- figures: NAME -->.
TABLES = {"front": front, "modes": modes, "planning": planning, "torch": torch, "single-ops": single_ops,
          "profile-gpt": output("profile-gpt"), "profile-nsys": output("profile-nsys")}


def chain_op(mode: str) -> Callable[[dict[str, Measured]], str]:
    """The time of an op of `chain`, which has a kernel for each."""

    def value(all_measured: dict[str, Measured]) -> str:
        row = next(row for row in all_measured["demo"].rows("bench") if (row["workload"], row["mode"]) == ("chain", mode))
        return f"{1000 * row['step_us']['median'] / row['kernels_per_step']:.0f} ns"

    return value


def constant(file: str, pattern: str, text: Callable[[str], str]) -> Callable[[dict[str, Measured]], str]:
    """A constant of the sources, which `pattern` finds, in words."""

    def value(_: dict[str, Measured]) -> str:
        found = re.search(pattern, (PROJECT / file).read_text(encoding="utf-8"))
        if not found:
            raise KeyError(f"{file} has nothing like {pattern}")
        return text(found[1])

    return value


# By the name in <!-- figure: NAME -->.
VALUES = {
    "chain-op-sunk": chain_op("sink"),
    "chain-op-by-op": chain_op("interactive-serial"),
    "mnist-accuracy": lambda all_measured: f"{all_measured['demo'].reports['demo']['mnist_accuracy']} %",
    "trial-share": constant("src/exec/choose/mode_chooser.h", r"kTrialShare = ([\d.]+);", lambda share: f"{100 * float(share):g} %"),
    "most-unrolled": constant("src/passes/planner_ir.h", r"kMostUnrolled = (\d+);", str),
    "shape-cache": constant("include/graphsink/options.h", r"shape_cache_bytes = std::size_t\{1\} << (\d+);", lambda bits: f"{2 ** (int(bits) - 30):g} GiB"),
    "host-op-patience": constant("include/graphsink/options.h", r"host_op_patience\{(\d+)\}", lambda ms: f"{int(ms) / 1000:g} s"),
    "rank-patience": constant("include/graphsink/ranks.h", r"patience_s = ([\d.]+);", lambda seconds: f"{float(seconds) / 60:g} minutes"),
    "linger": constant("src/ranks/tcp_mesh.cpp", r"kLingerMs = ([\d']+)", lambda ms: f"{int(ms.replace(chr(39), '')) / 1000:g} s"),
    "linger-given-up": constant("src/ranks/tcp_mesh.cpp", r"kLingerMsGivenUp = ([\d']+)", lambda ms: f"{int(ms.replace(chr(39), '')) / 1000:g} s"),
}
