"""What a plan consists of: each function here is one item, or a part of one. Nothing raises because a program failed."""

import json
import os
import re
import statistics
import sys

from gpu.gtest import Suite, SuiteRun
from gpu.session import NOT_RUN, Ended, Session, Skipped


def need(session: Session, *tools: str) -> None:
    for tool in tools:
        if not session.has_tool(tool):
            raise Skipped(f"{tool} is not installed")


def need_program(session: Session, name: str) -> None:
    if not (session.bin / name).exists():
        raise Skipped(f"{name} is not in the pack")


def need_torch(session: Session) -> None:
    if not session.meta.get("torch"):
        raise Skipped("there is no PyTorch that sees this GPU")


# --- a first look

HELLO = [("01_hello", 40), ("05_control_flow", 25), ("04_custom_cuda_op", 25), ("02_eager", 20), ("06_two_devices", 20)]


def hello(session: Session) -> None:
    for name, limit in HELLO:
        ended = session.run(f"hello-{name}", limit, [session.bin / name])
        session.say_end_of(ended.text, 3 if ended.passed else 10)
    steps = 20 if session.is_emulated else 300
    ended = session.run("hello-train_mnist", 40, [session.bin / "train_mnist", "--device", "cuda:0", "--steps", steps])
    session.say_end_of(ended.text, 2)


def probe(session: Session, program: str, limit: float = 150) -> None:
    """Prints what only a GPU can answer. The driver's log, which it also prints, stays in the logs."""
    need_program(session, program)
    ended = session.run(program, limit, [session.bin / program])
    answers = [line.rstrip() for line in ended.text.splitlines() if not line.startswith("[")]
    session.say_all([line for line in answers if " message " not in line])


def products(session: Session) -> None:
    """The answers of gpu_products are a file of their own, because they are many. The summary has for each product what
    cuBLASLt suggests first and what is fastest."""
    need_program(session, "gpu_products")
    ended = session.run("gpu_products", 180, [session.bin / "gpu_products"])
    answers = [line.rstrip() for line in ended.text.splitlines() if not line.startswith("[")]
    session.keep_text("products.txt", "\n".join(answers) + "\n")
    session.say_all([line for line in answers if not re.search(r" #[1-9]\s", line)])


# --- times


def last_json(text: str):
    """The first JSON object in the output of a program."""
    begin = text.find("{")
    return json.JSONDecoder().raw_decode(text[begin:])[0] if begin >= 0 else None


def baseline(session: Session, name: str = "launch_baseline") -> None:
    for links in (10,) if session.is_emulated else (1000, 100, 10):
        ended = session.run(f"{name}-{links}", 40, [session.bin / "launch_baseline", links], quiet=True)
        if not ended.passed:
            session.say_end_of(ended.text)
            continue
        row = last_json(ended.text)
        session.keep(f"{name}-{links}", row)
        session.say(f"    {links} links: interactive over a hand-written loop {row['interactive_over_loop']:.3f}, sink over a bare "
                    f"cudaGraphLaunch {row['sink_over_graph_launch']:.3f} ({row['sink']['enqueue_us']:.2f} us over "
                    f"{row['bare_graph_launch']['enqueue_us']:.2f} us), SinkCache {row['sink_cache_minus_graph_launch_us']:+.2f} us")


def say_bench_row(session: Session, row: dict) -> None:
    step, enqueue = row.get("step_us") or {}, row.get("enqueue_us") or {}
    session.say(f"    {row['workload']:10} {row['mode']:21} step {step.get('median', 0):10.2f} us  enqueue {enqueue.get('median', 0):8.2f} us  "
                f"launches {row.get('graph_launches_per_step') or 0:g}  kernels {row.get('kernels_per_step') or 0:g}  fallbacks "
                f"{row.get('fallbacks', '?')}  loss {row['loss_last']:.4f} {row.get('state_hash', '')}")


def slim(row: dict) -> dict:
    """A row of graphsink-bench without what says nothing, so that the results of many runs stay small."""
    return {key: value for key, value in row.items() if value is not None}


def bench(session: Session, name: str, workloads: str, *arguments, limit: float = 40) -> None:
    """A process for each workload, so that one that hangs does not take the others along."""
    report = {"machine": None, "rows": []}
    for workload in workloads.split(","):
        file = session.logs / f"{name}-{workload}.json"
        small = ["--size", "test", "--nodes", 20] if session.is_emulated else []
        ended = session.run(f"{name}-{workload}", limit, [session.bin / "graphsink-bench", "--device", "cuda:0", "--workload", workload, *small,
                                                         *arguments, "--json", file], quiet=True)
        if not ended.passed:
            session.say_end_of(ended.text)
            continue
        told = json.loads(file.read_text())
        report["machine"] = told["machine"]
        report["rows"] += [slim(row) for row in told["rows"]]
        for row in told["rows"]:
            say_bench_row(session, row)
        session.keep(name, report)


def wrapped(session: Session, program: str):
    """A script that starts a program of the pack with the pack's libraries, which python3 and PyTorch must not load."""
    script = session.logs / f"{program}.sh"
    settings = " ".join(f"{key}='{session.env[key]}'" for key in ("LD_LIBRARY_PATH", "GRAPHSINK_SOURCE_DIR", "GRAPHSINK_DATA", "GRAPHSINK_KERNEL_CACHE")
                        if key in session.env)
    script.write_text(f"#!/bin/sh\nexec env {settings} {session.bin / program} \"$@\"\n")
    script.chmod(0o755)
    return script


def torch(session: Session, name: str, limit: float, modes: str, workloads: str, rounds: int = 1, steps: int = 100, size: str = "full") -> None:
    need_torch(session)
    report = session.logs / f"{name}.json"
    if session.is_emulated:
        steps, size = 2, "test"
    ended = session.run(name, limit, [sys.executable, session.sources / "profiling/peers/torch_bench.py", "--device", "cuda", "--bench",
                                      wrapped(session, "graphsink-bench"), "--steps", steps, "--mode", modes, "--workload", workloads,
                                      "--rounds", rounds, "--size", size, "--json", report], env=dict(os.environ))
    session.say_end_of(ended.text, 45)
    if report.exists():
        told = json.loads(report.read_text())
        session.keep(name, {"machine": told["machine"], "rows": [slim(row) for row in told["rows"]]})


def trainer(session: Session, rounds: int, steps: int) -> None:
    """Code that knows nothing of graphsink, as it is and sunk, in turns."""
    speeds: dict[str, list[float]] = {"existing_trainer": [], "existing_trainer_sunk": []}
    need_program(session, "existing_trainer_sunk")
    for number in range(rounds):
        for program, seen in speeds.items():
            ended = session.run(f"{program}-{number}", 40, [session.bin / program, "--batch", 1, "--steps", 3 if session.is_emulated else steps,
                                                            "--text", session.sources / "LICENSE", "--losses", session.logs / f"{program}.losses"], quiet=True)
            if m := re.search(r"([0-9.]+) steps per second", ended.text):
                seen.append(float(m[1]))
            elif not ended.passed:
                session.say_end_of(ended.text)
    losses = [session.logs / f"{program}.losses" for program in speeds]
    same = all(file.exists() for file in losses) and losses[0].read_bytes() == losses[1].read_bytes()
    session.keep("existing_trainer", {"batch": 1, "steps_per_second": speeds, "losses_equal": same})
    session.say(f"existing_trainer at batch 1: steps per second {speeds}; losses {'equal' if same else 'DIFFER'}")


# --- tests

# Everything that runs on the GPU, and nothing that does not.
DEVICE = ("*/cuda*:*_cuda:*Cuda*:Sink*:Enqueue.*:CallerStream.*:NodeNames.*:Fusion.*:CachedFusion.*:MatmulTest.*:"
          "ProgrammaticLaunchOption.*:SeveralDevices.*")
# It runs first and alone: some drivers free a body twice after its capture was broken.
ALONE = "*.ABodyThatBreaksTheCaptureIsNamed"
# A host node of a launch waits for the thread that launches: these may wait for ever.
MAY_HANG = ("*Polls.NeverWait*/cuda*:HostWatch.*:CudaBeside.AnOpOnTheHostRuns*:SinkCacheBound.NoneInFlightGoes:"
            "*WritesDoNotWaitForTheStepsBefore/cuda*")
# These are items of their own; rows of misuse are mistakes on purpose, which may cost the device.
NOT_IN_SUITE = {"test_random_graph", "test_fusion", "test_ranks", "test_misuse"}
# An op's test launches much, so its program has small batches.
BATCH_SIZES = {"test_kernels": 8, "test_models": 4, "test_api": 12, "test_fusion": 4, "test_random_graph": 1}
RANDOM = "Parts/Differential.*:RandomGraph.*"
# What the rehearsal runs of all this, on the software device.
FEW = {"test_device": "CudaCaptureTest.*", "test_exec": DEVICE}


def device_tests(session: Session) -> dict[str, str]:
    """The tests of every packed program, so that none is forgotten. A program without tests on a device lists none."""
    programs = sorted(path.name for path in session.bin.glob("test_*"))
    return {program: f"{DEVICE}-{ALONE}:{MAY_HANG}" for program in programs if program not in NOT_IN_SUITE}


def suite_of(session: Session, programs: dict[str, str], **settings) -> None:
    if session.is_emulated:
        programs = {program: pattern for program, pattern in FEW.items() if program in programs or len(programs) > 1}
    if (session.bin / "planted_faults").exists():
        programs = programs | {"planted_faults": "*"}
    SuiteRun(session, Suite(programs=programs, size=BATCH_SIZES, **settings)).run()


def tests_alone(session: Session) -> None:
    SuiteRun(session, Suite("tests_alone", {"test_device": ALONE}, stall=30)).run()


def tests(session: Session) -> None:
    suite_of(session, device_tests(session), name="tests", stall=5 if session.is_emulated else 90)


def tests_fused(session: Session) -> None:
    """The whole suite and all random graphs with the run-time compiler; the random graphs take longest and begin first."""
    programs = {"test_random_graph": RANDOM, "test_fusion": "*"} | device_tests(session)
    suite_of(session, programs, name="tests_fused", fused=True, stall=5 if session.is_emulated else 180)


def tests_fusion(session: Session) -> None:
    SuiteRun(session, Suite("tests_fusion", {"test_fusion": "*"}, fused=True, size=BATCH_SIZES, stall=60)).run()


def tests_may_hang(session: Session) -> None:
    programs = {"test_api": MAY_HANG, "test_exec": MAY_HANG, "test_capture": MAY_HANG}
    SuiteRun(session, Suite("tests_may_hang", programs, default_size=1, stall=45)).run()


def tests_random(session: Session) -> None:
    some = "RandomGraph.ThoseThatOnceFailed:Parts/Differential.*/0:Parts/Differential.*/1"
    SuiteRun(session, Suite("tests_random", {"test_random_graph": some}, fused=True, default_size=1, stall=150)).run()


def conformance(session: Session, jobs: int, limit: float) -> None:
    """The answers of the CUDA runtime. Only a GPU can confirm any."""
    need_program(session, "conformance_record")
    golden = session.sources / "tests/conformance/golden.txt"
    what = ["--check", golden] if session.is_emulated else ["--record", golden, "--out", session.out / "golden.txt"]
    ended = session.run("conformance", limit, [session.bin / "conformance_record", "--jobs", jobs, *what])
    lines = [line for line in ended.text.splitlines() if not line.startswith("[")]
    session.say_all(lines[-120:])


# --- tools


def say_findings(session: Session, ended: Ended, lines: int = 12) -> None:
    session.say_all([line for line in ended.text.splitlines() if line.startswith("=====")][:lines])


def sanitizer(session: Session, tool: str, limit: float, program: str, *arguments) -> Ended:
    need(session, "compute-sanitizer")
    name = f"{tool}-{program}" + ("-" + re.sub("[^A-Za-z0-9]+", "_", str(arguments[0]))[:40] if arguments else "")
    ended = session.run(name, limit, ["compute-sanitizer", "--tool", tool, "--report-api-errors", "no", "--error-exitcode", "9",
                                      session.bin / program, *arguments])
    summary = [line.strip("= ") for line in ended.text.splitlines() if "SUMMARY" in line and "were not printed" not in line]
    with session.lock:
        session.results.setdefault("sanitizers", {})[name] = summary[-1] if summary else f"ended with {ended.code}"
    if ended.code is not NOT_RUN:
        say_findings(session, ended)
    session.save()
    return ended


# --- speed


def rounds(session: Session, workloads: str, modes: str, steps: int, number: int) -> None:
    """Hand-written baselines and workloads, all in turns, so that what disturbs the machine disturbs each of them."""
    for round_ in range(1, number + 1):
        baseline(session, "launch_baseline" if round_ == 1 else f"launch_baseline-round{round_}")
        bench(session, f"bench-round{round_}", workloads, "--steps", steps, "--mode", modes)
    merge_rounds(session, number)


def merge_rounds(session: Session, number: int) -> None:
    """One report in place of one for each round. The median of a row is that of the rounds' medians, which stay with it."""
    reports = [session.results.pop(f"bench-round{round_}", None) for round_ in range(1, number + 1)]
    reports = [report for report in reports if report]
    if not reports:
        return
    by_row: dict[tuple[str, str], list[dict]] = {}
    for report in reports:
        for row in report["rows"]:
            by_row.setdefault((row["workload"], row["mode"]), []).append(row)
    merged = []
    for same in by_row.values():
        row = dict(same[-1])
        for field in ("step_us", "latency_us", "enqueue_us"):
            medians = [other[field]["median"] for other in same if other.get(field)]
            if medians:
                row[field] = {"min": min(medians), "median": statistics.median(medians), "max": max(medians)}
        merged.append(row)
        step = row.get("step_us", {"min": 0, "median": 0, "max": 0})
        session.say(f"    {row['workload']:10} {row['mode']:21} step {step['median']:10.2f} us, in {len(same)} rounds {step['min']:.2f} to {step['max']:.2f}")
    session.keep("bench", {"machine": reports[-1]["machine"], "rounds": len(reports), "rows": merged})


def ops(session: Session, limit: float = 200) -> None:
    """Single ops against PyTorch's."""
    need_torch(session)
    need_program(session, "op_times")
    if session.is_emulated:
        raise Skipped("a rehearsal has no PyTorch to compare with")
    report = session.logs / "ops.json"
    ended = session.run("ops", limit, [sys.executable, session.sources / "profiling/peers/op_bench.py", "--device", "cuda", "--program",
                                       wrapped(session, "op_times"), "--size", 2048, "--rounds", 1, "--json", report], env=dict(os.environ))
    session.say_end_of(ended.text, 60)
    if report.exists():
        session.keep("ops", json.loads(report.read_text()))


def simple_report(session: Session, program: str, limit: float, *arguments) -> None:
    """A program that writes its report to --json."""
    need_program(session, program)
    report = session.logs / f"{program}.json"
    ended = session.run(program, limit, [session.bin / program, "--device", "cuda:0", *arguments, "--json", report])
    session.say_end_of(ended.text, 40)
    if report.exists():
        session.keep(program, json.loads(report.read_text()))


def crossings(session: Session) -> None:
    simple_report(session, "crossing_cost", 60, *(["--bytes", 64, "--round-trips", 1] if session.is_emulated else []))


def shape_changes(session: Session) -> None:
    simple_report(session, "shape_changes", 60, *(["--steps", 20, "--windows", 1] if session.is_emulated else []))


def endurance(session: Session) -> None:
    counts = ["--launches", 30, "--programs", 3] if session.is_emulated else []
    simple_report(session, "endurance", 180, "--nodes", 0, *counts)


def bytes_per_node(session: Session) -> None:
    """Device memory that a captured node takes. A process for each size, because the driver keeps what graphs gave back."""
    need_program(session, "endurance")
    told = []
    for nodes in (1, 10) if session.is_emulated else (1, 10, 100, 1000, 10000):
        ended = session.run(f"endurance-nodes-{nodes}", 40, [session.bin / "endurance", "--device", "cuda:0", "--launches", 0, "--programs", 0,
                                                            "--nodes", nodes, "--json", "-"], quiet=True)
        if not ended.passed:
            session.say_end_of(ended.text)
            continue
        (row,) = last_json(ended.text)["nodes"]
        told.append(row)
        session.say(f"    {row['graphs']} graphs of {nodes} kernels: {row['bytes_a_graph']:.0f} bytes each, {row['bytes_a_node']:.0f} bytes a node, "
                    f"{row['us_a_graph']:.1f} us to instantiate")
        session.keep("endurance-nodes", {"nodes": told})
