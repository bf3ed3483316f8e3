"""Items that need a tool of CUDA: compute-sanitizer, Nsight Compute (ncu), Nsight Systems (nsys), CUPTI."""

import collections
import concurrent.futures
import csv
import json
import os
import pathlib
import re

from gpu.gtest import Suite, SuiteRun, environment, has_failed, read_output
from gpu.items import DEVICE, need, need_program, sanitizer, slim
from gpu.session import Session, Skipped

MOST_UNDER_MEMCHECK = 12  # tests that failed and run once more under compute-sanitizer


# --- what failed before


def order_of_failures(failed: dict[str, str]) -> list[str]:
    """One of each group of tests first, and among these what crashed or lost the device."""
    order = sorted(failed, key=lambda key: (failed[key].startswith(("FAILED", "TIMED")), key))
    seen: set[str] = set()
    first, rest = [], []
    for key in order:
        group = key.split(".")[0]
        (rest if group in seen else first).append(key)
        seen.add(group)
    return first + rest


def again(session: Session) -> None:
    """Each test that failed in RESULTS, in a process of its own."""
    before = session.results.get("failed_before")
    if before is None:
        before = {key: outcome for key, outcome in session.earlier.items() if has_failed(outcome) and (session.bin / key.split(":")[0]).exists()}
        session.keep("failed_before", before)
    if not before:
        raise Skipped("no RESULTS were given, or nothing failed there")
    results = session.tests.setdefault("tests_again", {})
    keys = [key for key in order_of_failures(before) if results.get(key, {"outcome": "not run"})["outcome"] == "not run"]
    env = environment(session, fused=False)
    session.say(f"again: {len(keys)} tests")

    def one(key: str) -> tuple[str, list[str]]:
        program, name = key.split(":", 1)
        ended = session.run("again-" + re.sub("[^A-Za-z0-9_.]", "_", key), 3600, [session.bin / program, f"--gtest_filter={name}"],
                            quiet=True, env=env, stall=5 if session.is_emulated else 120, may_fail=True)
        found = read_output(ended.text, ended.code, [name])
        outcome = found.of.get(name, "there is no such test any more" if ended.passed else "not run")
        if session.was_cut_off(ended):
            outcome = "not run"
        with session.lock:
            results[key] = {"outcome": outcome} | ({"ms": found.ms[name]} if name in found.ms else {})
        session.save()
        return outcome, SuiteRun.telling(ended.text, name)

    with concurrent.futures.ThreadPoolExecutor(session.jobs) as pool:
        for key, (outcome, telling) in zip(keys, pool.map(one, keys)):
            session.say(f"    {outcome} (before: {before[key]}): {key}")
            if has_failed(outcome):
                session.say_all(["    " + line for line in telling])


def again_under_memcheck(session: Session) -> None:
    need(session, "compute-sanitizer")
    still = {key: test["outcome"] for key, test in session.tests.get("tests_again", {}).items()
             if test["outcome"].startswith(("FAILED", "CRASHED", "LOST", "TIMED"))}
    if not still:
        raise Skipped("nothing fails again")
    keys = order_of_failures(still)[:MOST_UNDER_MEMCHECK]
    with concurrent.futures.ThreadPoolExecutor(max(1, session.jobs // 2)) as pool:
        list(pool.map(lambda key: sanitizer(session, "memcheck", 6 if session.is_emulated else 90, key.split(":")[0], f"--gtest_filter={key.split(':', 1)[1]}"), keys))


# --- compute-sanitizer

# Tests whose memory accesses tell most, by tool: bodies of loops, captures, reductions in shared memory.
BATCHES = {
    "memcheck": [("test_exec", DEVICE), ("test_device", "CudaCaptureTest.*:CudaCapturedBodyTest.*:CudaArena*"), ("test_capture", "SinkCache*"),
                 ("test_api", "*AllModesGiveTheSameBits/cuda*:*LoopIsAConditionalNode/cuda*:*BranchInsideALoop/cuda*:Enqueue.*"),
                 ("test_kernels", "*attention*cuda:*sort*cuda:*embedding*cuda:*scatter*cuda:*gather*cuda:*top_k*cuda")],
    "racecheck": [("test_kernels", "*softmax*cuda:*sum*cuda:*norm*cuda:*attention*cuda:*cross_entropy*cuda:*transpose*cuda:*cumsum*cuda")],
    "initcheck": [("test_exec", DEVICE)],
}
PROGRAMS = [("memcheck", "train_text", ["--steps", 20, "--steps-per-launch", 4, "--evaluate-on", 64, "--device", "cuda:0"]),
            ("racecheck", "train_text", ["--steps", 4, "--steps-per-launch", 4, "--evaluate-on", 64, "--device", "cuda:0"]),
            ("initcheck", "train_mnist", ["--steps", 20, "--device", "cuda:0"]),
            ("racecheck", "05_control_flow", []), ("memcheck", "05_control_flow", []), ("synccheck", "01_hello", [])]


def sanitized_programs(session: Session) -> None:
    need(session, "compute-sanitizer")
    with concurrent.futures.ThreadPoolExecutor(max(1, session.jobs // 2)) as pool:
        list(pool.map(lambda one: sanitizer(session, one[0], 120, one[1], *one[2]), PROGRAMS))


def sanitized_tests(session: Session, tool: str) -> None:
    """Batches of tests under a tool; its errors make a process fail, which the outcome of each test does not show."""
    need(session, "compute-sanitizer")
    programs = {"test_exec": DEVICE} if session.is_emulated else dict(BATCHES[tool])
    suite = Suite(f"tests_{tool}", programs, size={"test_kernels": 6}, default_size=8, stall=120, repeats_failures=False,
                  tool=("compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9"))
    SuiteRun(session, suite).run()
    found = collections.Counter()
    for log in sorted(session.logs.glob(f"{suite.name}.*.log")):
        text = log.read_text(errors="replace")
        summaries = [line.strip("= ") for line in text.splitlines() if "SUMMARY" in line and "were not printed" not in line]
        found[summaries[-1] if summaries else "without a summary"] += 1
        if summaries and not re.search(r"SUMMARY: 0 ", summaries[-1]):
            session.say(f"    {log.name}: {summaries[-1]}")
            session.say_all(["    " + line for line in text.splitlines() if line.startswith("=====")][1:9])
    with session.lock:
        session.results.setdefault("sanitizers", {})[suite.name] = dict(found)
    session.say(f"{suite.name}: processes by what they ended with: {dict(found)}")


# --- names of nodes

DURATION = "gpu__time_duration.sum"
# Clocks are left as they are: a shared machine does not let them be locked. Caches are, too: a step finds them as its kernels
# leave them.
NCU = ["ncu", "--clock-control", "none", "--cache-control", "none"]
NAMED = ["mlp", "lstm-scan", "hetero"]


def bench_command(session: Session, workload: str, *arguments) -> list:
    small = ["--size", "test"] if session.is_emulated else []
    return [session.bin / "graphsink-bench", "--device", "cuda:0", "--workload", workload, *small, *arguments]


def names_by_cupti(session: Session, way: str = "cupti") -> None:
    """Every node that ran in a graph must have a name of write_node_names()."""
    need_program(session, "libgraphsink_kernel_times.so")
    if way == "nsys":
        need(session, "nsys")
    for workload in NAMED:
        out = session.logs / f"names-{way}-{workload}"
        ended = session.run(f"names-{way}-{workload}", 60, [session.sources / "profiling/nsys.sh", *(["--cupti"] if way == "cupti" else []), "--out", out,
                                                           *bench_command(session, workload, "--mode", "sink", "--untimed", "--steps", 12)])
        if not ended.passed:
            session.say_end_of(ended.text)
            continue
        rows = json.loads((out / "kernels.json").read_text())["rows"]
        unknown = [row for row in rows if row["op"] == "unknown graph"]
        without = sum(row["ns"] for row in unknown)
        session.keep(f"names-{way}-{workload}", {"rows": len(rows), "ns": sum(row["ns"] for row in rows), "ns_without_a_name": without})
        session.say(f"    {workload}: {len(rows)} rows, {'every node has a name' if not unknown else f'{without / 1e3:.1f} us are in nodes WITHOUT A NAME'}")
        session.say_end_of(ended.text, 12)


def csv_rows(path: pathlib.Path) -> list[dict]:
    with open(path, newline="", errors="replace") as file:
        lines = [line for line in file if line.startswith('"')]
    return list(csv.DictReader(lines))


def names_by_ncu(session: Session) -> None:
    """The kernels that ncu sees must include, by their names, all kernel nodes of write_node_names(). Two runs of the same
    program: under ncu nobody can ask CUPTI for the ids of nodes."""
    need(session, "ncu")
    for workload in NAMED:
        names, table = session.logs / f"names-ncu-{workload}.jsonl", session.logs / f"names-ncu-{workload}.csv"
        command = bench_command(session, workload, "--mode", "sink", "--untimed", "--steps", 1)
        ended = session.run(f"names-{workload}", 40, command, quiet=True, env=dict(session.env, GRAPHSINK_NODE_NAMES=str(names)))
        if ended.passed:
            ended = session.run(f"names-ncu-{workload}", 90, [*NCU, "--metrics", DURATION, "--csv", "--page", "raw", "--print-kernel-base", "mangled",
                                                             "--log-file", table, *command])
        if not ended.passed or not names.exists() or not table.exists():
            session.say_end_of(table.read_text(errors="replace") if table.exists() else ended.text)
            session.problems.append(f"names-ncu-{workload}: no names or no table")
            continue
        named = collections.Counter(line["work"].removeprefix("kernel ") for line in map(json.loads, names.read_text().splitlines())
                                    if line["work"].startswith("kernel "))
        seen = collections.Counter(row.get("Kernel Name", "") for row in csv_rows(table))
        missing = {name: count for name, count in named.items() if seen[name] < count}
        session.keep(f"names-ncu-{workload}", {"named": sum(named.values()), "seen": sum(seen.values()), "missing": missing})
        session.say(f"    {workload}: {sum(named.values())} kernel nodes, ncu saw {sum(seen.values())} kernels; "
                    f"{'agree' if not missing else f'MISSING there: {dict(list(missing.items())[:4])}'}")


# --- shares of peak

SHARES = {"compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed", "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
          "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"}


def number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def by_op_and_kernel(kernels: list[dict], ops: list[dict]) -> list[dict]:
    """One row for each op and kernel, the longest first; shares of peak are weighted by time. The two tables are the same
    raw page of ncu, once with the names of the kernels, once with the names of the ops that launched them."""
    groups: dict[tuple[str, str], list] = {}
    for kernel, op in zip(kernels, ops):
        if (ns := number(kernel.get(DURATION))) is not None:
            groups.setdefault((op["Kernel Name"], kernel["Kernel Name"]), []).append((ns, {n: number(kernel.get(c)) for n, c in SHARES.items()}))
    rows = []
    for (op, kernel), launches in groups.items():
        row = {"op": op, "kernel": kernel[:100], "launches": len(launches), "us": round(sum(ns for ns, _ in launches) / 1e3, 2)}
        for name in SHARES:
            known = [(ns, shares[name]) for ns, shares in launches if shares[name] is not None]
            weight = sum(ns for ns, _ in known)
            row[name] = round(sum(ns * share for ns, share in known) / weight, 1) if weight else None
        rows.append(slim(row))
    return sorted(rows, key=lambda row: -row["us"])


WARM_UP = 3  # steps of graphsink-bench in front of the counted one
MOST_KERNELS = 1500  # of a table of durations, which take about 12 ms each
MOST_SHARES = 250  # kernels whose shares of peak are measured, which takes ten passes and 0.4 s each


def ncu_rows(session: Session, name: str, metrics: str, workload: str, skipped: int, most: int, limit: float) -> list[dict]:
    """One step, op by op: rows by op and kernel. The first `skipped` kernels are not measured, and then at most `most`."""
    report = session.logs / name
    ended = session.run(name, limit, [*NCU, "--metrics", metrics, "--launch-skip", str(skipped), "--launch-count", str(most), "--nvtx",
                                      "--force-overwrite", "--export", report,
                                      *bench_command(session, workload, "--mode", "interactive-serial", "--steps", 1, "--untimed")])
    if not ended.passed:
        session.say_end_of(ended.text)
        return []
    tables = []
    for rename in ("none", "kernel"):
        table = session.logs / f"{name}.{rename}.csv"
        session.run(f"{name}-{rename}", 40, ["ncu", "--import", f"{report}.ncu-rep", "--csv", "--page", "raw", "--print-units", "base",
                                             "--print-nvtx-rename", rename, "--log-file", table], quiet=True)
        tables.append(csv_rows(table) if table.exists() else [])
    # What was skipped is less than the steps of warm-up have, as products count as one kernel. Only the last step counts.
    kernels, ops = tables
    for row in ops:  # ncu may put the domain before the name of a range
        row["Kernel Name"] = row["Kernel Name"].rpartition(":")[2]
    first = max((i for i, row in enumerate(ops) if row["Kernel Name"] == "begin_step"), default=0)
    return by_op_and_kernel(kernels[first:], ops[first:])


def ncu(session: Session, workload: str, limit: float) -> None:
    """Durations of the kernels of one step first; then, of as many as there is time for, their shares of peak."""
    need(session, "ncu")
    report = session.logs / f"ncu-{workload}-count.json"
    counted = session.run(f"ncu-{workload}-count", 60, bench_command(session, workload, "--mode", "interactive-serial", "--steps", 1, "--untimed", "--json", report),
                          quiet=True)
    if not counted.passed:
        return
    skipped = int(WARM_UP * json.loads(report.read_text())["rows"][0]["kernels_per_step"])
    for name, metrics, most in ((f"ncu-{workload}", DURATION, MOST_KERNELS), (f"ncu-shares-{workload}", ",".join([DURATION, *SHARES.values()]), MOST_SHARES)):
        rows = ncu_rows(session, name, metrics, workload, skipped, most, limit)
        if not rows:
            return
        total = sum(row["us"] for row in rows)
        session.keep(name, {"us": round(total, 1), "rows": rows[:60]})
        session.say(f"    {workload}: {total:.1f} us in {sum(row['launches'] for row in rows)} kernels")
        session.say_all([f"{row['us']:9.2f} us {100 * row['us'] / max(total, 1e-9):5.1f} %  compute {row.get('compute', 0):5.1f} %  memory "
                         f"{row.get('memory', 0):5.1f} %  DRAM {row.get('dram', 0):5.1f} %  x{row['launches']:<4} {row['op']}  {row['kernel'][:70]}"
                         for row in rows[:25]])


def clocks(session: Session) -> None:
    need(session, "nvidia-smi")
    ended = session.run("clocks", 20, ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu,memory.used",
                                       "--format=csv"], quiet=True, env=dict(os.environ))
    session.say_end_of(ended.text, 2)

