"""A folder of results, and the tables of it."""

import collections
import json
import pathlib
import re


def table(header: list[str], rows: list[list], left: int = 1) -> list[str]:
    """A table whose first `left` columns are texts, and whose others are numbers."""
    if not rows:
        return []
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" if i < left else "--:" for i in range(len(header))) + "|"]
    return lines + ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]


def number(value, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def links_of(runs: list["Run"], page: str) -> str:
    """Links to the sections of these runs in the page of results, which is at this path."""
    return ", ".join(f"[{run.name}]({page}#{run.name})" for run in runs)


class Run:
    """A folder of results."""

    def __init__(self, folder: pathlib.Path):
        self.name = folder.name
        self.meta = json.loads((folder / "meta.json").read_text())
        self.results = json.loads((folder / "results.json").read_text())
        self.summary = (folder / "summary.txt").read_text().splitlines()
        self.suites = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("tests*.json"))}
        if "tests" in self.results:  # the first run had all outcomes in one place
            self.suites["tests"] = {key: {"outcome": outcome} for key, outcome in self.results["tests"].items()}

    def rows(self, name: str) -> list[dict]:
        return self.results.get(name, {}).get("rows", [])

    # --- tests

    def counts(self, suite: str) -> collections.Counter:
        return collections.Counter(kind_of(test["outcome"]) for test in self.suites[suite].values())

    def test_table(self) -> list[str]:
        rows = []
        for suite in self.suites:
            counts = self.counts(suite)
            rows.append([f"`{suite}`", counts["ok"], counts["failed"], counts["failed, alone ok"], counts["skipped"], counts["not run"]])
        return table(["suite", "passed", "failed", "failed, alone ok", "skipped", "not run"], rows)

    def failures(self) -> list[str]:
        names = {key: test["outcome"] for suite in self.suites.values() for key, test in suite.items()
                 if kind_of(test["outcome"]) not in ("ok", "skipped", "not run")}
        return [f"* `{key}`: {outcome}" for key, outcome in sorted(names.items())]

    # --- conformance

    def conformance(self) -> list[str]:
        found = [line.split("] ", 1)[-1].strip() for line in self.summary]
        return [line for line in found if re.match(r"(cases|answers): \d+|\d+ (disagreements|mismatches)", line)]

    # --- times

    def launch_table(self) -> list[str]:
        rows = []
        for name, result in self.results.items():
            if name.startswith("launch_baseline") and isinstance(result, dict):
                rows.append([result["nodes"], number(result["bare_loop"]["enqueue_us"]), number(result["interactive_serial"]["enqueue_us"]),
                             number(result["bare_graph_launch"]["enqueue_us"]), number(result["sink"]["enqueue_us"]), number(result["sink_cache"]["enqueue_us"]),
                             number(result["bare_graph_launch"]["wall_us"]), number(result["sink"]["wall_us"])])
        return table(["kernels", "bare loop", "interactive", "bare cudaGraphLaunch", "sink", "SinkCache", "bare graph, whole", "sink, whole"], rows)

    def probe_lines(self) -> list[str]:
        """What the probe says of the costs of launches and nodes."""
        lines = []
        for line in self.summary:
            if match := re.search(r"\]\s+(costs|node_costs)\s{2,}(\S.*)", line):
                words = match[2].strip()
                if not words.startswith("ENDED"):
                    lines.append(re.sub(r"\s{3,}", ":  ", words))
        return ["```", *lines, "```"] if lines else []

    def bench_table(self, name: str) -> list[str]:
        by_workload: dict[str, dict[str, dict]] = {}
        for row in self.rows(name):
            by_workload.setdefault(row["workload"], {})[row["mode"]] = row
        rows = []
        for workload, modes in by_workload.items():
            sink, plain = modes.get("sink"), modes.get("interactive-serial")
            if not sink or not sink.get("step_us"):
                continue
            step, before = sink["step_us"]["median"], (plain or {}).get("step_us", {}).get("median")
            rows.append([workload, sink.get("steps_per_launch"), number(before), number(step), number(before / step if before else None),
                         number((sink.get("enqueue_us") or {}).get("median")), number(sink.get("kernels_per_step"), 0), sink.get("fallbacks"),
                         None if not plain else "yes" if plain.get("state_hash") == sink.get("state_hash") else "NO"])
        return table(["workload", "steps a launch", "interactive us", "sink us", "ratio", "enqueue us", "kernels", "fallbacks", "same bits"], rows)

    def torch_table(self, name: str) -> list[str]:
        by_workload: dict[str, dict[str, float]] = {}
        for row in self.rows(name):
            by_workload.setdefault(row["workload"], {})[row["mode"]] = row["step_us"]["median"]
        modes = sorted({mode for known in by_workload.values() for mode in known if mode.startswith("torch")})
        rows = []
        for workload, known in by_workload.items():
            sink = known.get("sink")
            if sink:
                rows.append([workload, number(sink), *[f"{number(known[mode])} ({known[mode] / sink:.2f}x)" if mode in known else "" for mode in modes]])
        return table(["workload", "sink us", *[mode.removeprefix("torch-") + " us" for mode in modes]], rows)

    def op_table(self) -> list[str]:
        rows = [[row["op"], number(row["graphsink_us"], 1), number(row["torch_us"], 1), number(row["ratio"]), "yes" if row["agrees"] else "NO"]
                for row in sorted(self.rows("ops"), key=lambda row: -row["ratio"])]
        return table(["op", "graphsink us", "PyTorch us", "ratio", "agrees"], rows)

    def ncu_table(self, name: str) -> list[str]:
        result = self.results[name]
        rows = [[row["op"], f"`{row['kernel'][:50]}`", row["launches"], number(row["us"]), number(100 * row["us"] / max(result["us"], 1e-9), 1),
                 number(row.get("compute"), 1), number(row.get("memory"), 1), number(row.get("dram"), 1)] for row in result["rows"][:15]]
        return table(["op", "kernel", "launches", "us", "% of the step", "compute %", "memory %", "DRAM %"], rows, left=2)

    def endurance_lines(self) -> list[str]:
        lines = []
        for name in ("endurance", "endurance-nodes"):
            result = self.results.get(name) or {}
            for part, unit in (("launches", "us_a_launch"), ("programs", "us_a_program")):
                if part in result:
                    grown = result[part]["grown_bytes"]
                    lines.append(f"* {result[part][part]:,} {part}, {number(result[part][unit])} us each; grown by {grown['host']:,} bytes of the host and "
                                 f"{grown['device'] if grown['device'] is not None else 'unknown'} bytes of the device")
            if result.get("nodes"):
                rows = [[f"{row['nodes']:,}", row["graphs"], number(row["bytes_a_graph"], 0), number(row["bytes_a_node"], 0), number(row["us_a_graph"], 1)]
                        for row in result["nodes"]]
                lines += ["", *table(["nodes of a graph", "graphs", "bytes a graph", "bytes a node", "us to instantiate"], rows, left=0)]
        return lines

    # --- the section

    def section(self) -> list[str]:
        meta = self.meta
        lines = [f"## {self.name}", "", f"{meta['device']}, driver {meta['driver'] or '-'}, CUDA {meta.get('toolkit') or '-'}, {meta['cores']} cores"
                 f"{', PyTorch ' + meta['torch'] if meta.get('torch') else ''}; commit {meta['commit'][:12]}, {meta['date']}, plan {meta['plan']}."]
        if meta.get("note"):
            lines += ["", meta["note"]]
        parts = [("Launches, in microseconds of the calling thread", self.launch_table()), ("Costs of CUDA, asked by the probe", self.probe_lines())]
        for name in self.results:
            if name.startswith("bench"):
                parts.append((f"Steps of workloads (`{name}`)", self.bench_table(name)))
            elif name.startswith("torch"):
                parts.append((f"Against PyTorch (`{name}`)", self.torch_table(name)))
            elif name.startswith("ncu-shares-"):
                parts.append((f"Shares of peak in a step of {name.removeprefix('ncu-shares-')}, by Nsight Compute", self.ncu_table(name)))
            elif name.startswith("ncu-"):
                parts.append((f"One step of {name.removeprefix('ncu-')}, by Nsight Compute", self.ncu_table(name)))
        parts += [("Single ops against PyTorch", self.op_table()), ("Endurance and device memory", self.endurance_lines()),
                  ("Tests", self.test_table()), ("Tests that did not pass", self.failures())]
        sanitizers = [f"* {name}: {text}" for name, text in self.results.get("sanitizers", {}).items()]
        parts.append(("compute-sanitizer", sanitizers))
        parts.append(("Conformance of the assumptions about CUDA", [f"* {line}" for line in self.conformance()]))
        rest = [f"* {name}: {entry['verdict']}" for name, entry in self.results.get("items", {}).items() if entry["verdict"] != "done"]
        parts.append(("Not run", rest))
        for title, content in parts:
            if content:
                lines += ["", f"### {title}", "", *content]
        return lines


def kind_of(outcome: str) -> str:
    if outcome.endswith("alone ok"):
        return "failed, alone ok"
    if outcome.startswith("there is no such test"):
        return "not run"
    return outcome if outcome in ("ok", "skipped", "not run") else "failed"
