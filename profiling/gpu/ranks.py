"""Items with several processes: what MPI and NCCL move between GPUs. They need a pack that was built with ranks, the MPI
that it was built with, and, where they say so, NCCL and a GPU for each rank."""

import glob
import json
import os
import re
import shutil
import sys

from gpu import machine
from gpu.items import need, need_program
from gpu.session import Ended, Session, Skipped

# These let Open MPI start as root, and more ranks than there are cores. It would bind one or two ranks to a core each, which
# the threads of CUDA and NCCL would share, and more ranks to more.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
            "OMPI_MCA_hwloc_base_binding_policy": "none"}
# Each rank sees one GPU, as its first one. Only rank 0 is traced.
RANK = """#!/bin/sh
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${PMI_LOCAL_RANK:-0}}}
if [ "${GPUS:-0}" -gt 0 ]; then
  device=$((rank % GPUS))
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then device=$(echo "$CUDA_VISIBLE_DEVICES" | cut -d , -f $((device + 1))); fi
  export CUDA_VISIBLE_DEVICES="$device"
fi
if [ "$rank" -eq 0 ] && [ -n "${TRACED_BY_CUPTI:-}" ]; then export CUDA_INJECTION64_PATH="$TRACED_BY_CUPTI"; fi
if [ "$rank" -eq 0 ] && [ -n "${TRACED_BY_NSYS:-}" ]; then
  exec nsys profile --trace=cuda --cuda-graph-trace=node --force-overwrite=true --output="$TRACED_BY_NSYS" "$@"
fi
exec "$@"
"""
# What the rehearsal runs of the tests, on the software device.
FEW = "Nccl.*:Overlap.*:Devices/Collectives*"


def gpus(session: Session) -> int:
    """On the software device all ranks share one. CUDA_VISIBLE_DEVICES says which GPUs this process may use."""
    if session.is_emulated:
        return 1
    visible = [device for device in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if device]
    return len(visible or re.findall(r"(?m)^GPU \d+", machine.output_of("nvidia-smi", "-L")))


def counts(session: Session) -> list[int]:
    """How many ranks are tried: as many as have a GPU each."""
    return [1, 2] if session.is_emulated else [n for n in (1, 2, 4, 8) if n <= gpus(session)]


def find_nccl(session: Session) -> str:
    """The library that stands for NCCL, or "" without one."""
    if session.is_emulated:
        stand_in = session.bin / "libnccl_standin.so"
        return str(stand_in) if stand_in.exists() else ""
    named = os.environ.get("GRAPHSINK_NCCL", "")
    listed = re.findall(r"libnccl\.so\.2 .*=> (\S+)", machine.output_of("ldconfig", "-p"))
    folders = [file for pattern in machine.LIBRARY_FOLDERS for file in sorted(glob.glob(os.path.join(pattern, "libnccl.so.2")))]
    return next((file for file in [named, *listed, *folders] if file and os.path.exists(file)), "")


def need_ranks(session: Session, program: str) -> None:
    if not all((session.bin / name).exists() for name in (program, "test_ranks")):  # every pack has the bench
        raise Skipped(f"{program} is not in the pack; make one with profiling/gpu_check.sh --ranks --pack FILE")
    need(session, "mpirun")


def need_nccl(session: Session, ranks: int = 2) -> str:
    library = find_nccl(session)
    if not library:
        raise Skipped("there is no libnccl.so.2, on the library path or in GRAPHSINK_NCCL")
    if ranks > max(counts(session), default=0):
        raise Skipped(f"{ranks} ranks need {ranks} GPUs, and {gpus(session)} answer" if not session.is_emulated else "a rehearsal has two ranks")
    return library


def environment(session: Session, **more) -> dict:
    env = dict(session.env, **OPEN_MPI, **{key: str(value) for key, value in more.items()})
    if not session.is_emulated:
        env["GPUS"] = str(max(gpus(session), 1))
    if library := find_nccl(session):
        env["GRAPHSINK_NCCL"] = library
    return env


def start(session: Session, name: str, limit: float, ranks: int, command: list, env: dict | None = None, **settings) -> Ended:
    """Starts so many ranks of the command."""
    script = session.logs / "rank.sh"
    script.write_text(RANK)
    script.chmod(0o755)
    return session.run(name, limit, ["mpirun", "-n", ranks, script, *command], env=environment(session) if env is None else env, **settings)


def say_tests(session: Session, ended: Ended) -> None:
    """Each rank prints what each test came to, on lines that may be mixed up with those of the others."""
    failed = sorted(set(re.findall(r"\[  FAILED  \] ([\w/]+\.[\w/]+)", ended.text)))
    passed = len(re.findall(r"\[       OK \]", ended.text))
    session.say(f"    {passed} tests passed, of all ranks together; failed: {', '.join(failed) or 'none'}")
    if not ended.passed:
        session.say_end_of(ended.text, 15)


# --- what there is


def ranks_machine(session: Session) -> None:
    """Must show: GPUs, MPI and NCCL. How GPUs reach each other is in the log."""
    library = find_nccl(session)
    mpi = machine.output_of("mpirun", "--version").splitlines()[:1]
    session.meta["gpus"] = gpus(session)
    session.say(f"{gpus(session)} GPUs; MPI: {mpi[0] if mpi else 'no mpirun'}; NCCL: {os.path.realpath(library) if library else 'no libnccl.so.2'}; "
                f"ranks are tried by {', '.join(map(str, counts(session)))}")
    if not session.is_emulated and session.has_tool("nvidia-smi"):
        session.run("topology", 20, ["nvidia-smi", "topo", "-m"], quiet=True, may_fail=True, env=dict(os.environ))


def alone(session: Session) -> None:
    """Must pass with one GPU: collectives of a communicator of one rank, captured and launched again and again."""
    need_program(session, "test_ranks")
    need_nccl(session, 1)
    ended = session.run("ranks-alone", 120, [session.bin / "test_ranks", "--gtest_filter=NcclAlone.*:NcclLibrary.*:NcclHeader*"], env=environment(session))
    say_tests(session, ended)


# --- tests


def tests(session: Session, ranks: int, by_nccl: bool, only: str = "*", limit: float = 240) -> None:
    """Must pass. Over NCCL with two ranks, bits too: a sum of two numbers has one order."""
    need_ranks(session, "test_ranks")
    if by_nccl:
        need_nccl(session, ranks)
    chosen = FEW if session.is_emulated and only == "*" else only
    env = environment(session, **({"GS_TEST_NCCL": 1} if by_nccl else {}))
    name = f"ranks-tests-{'nccl' if by_nccl else 'mpi'}-{ranks}" + ("" if only == "*" else "-" + re.sub(r"\W+", "", only))
    say_tests(session, start(session, name, limit, ranks, [session.bin / "test_ranks", f"--gtest_filter={chosen}"], env=env, stall=120))


def mistakes(session: Session) -> None:
    """Must show what each of three ranks sees when one throws, stalls, is killed, or calls something else."""
    need_ranks(session, "test_ranks")
    ended = session.run("ranks-mistakes", 200, [sys.executable, session.sources / "tests/ranks/mistakes.py", session.bin / "test_ranks", shutil.which("mpirun"), "-n"],
                        env=environment(session))
    session.say_end_of(ended.text, 3 if ended.passed else 30)


def ways(session: Session) -> dict[str, list[str]]:
    """What moves values between two ranks, and the flags for it: MPI and, where each rank has a GPU, NCCL."""
    return {"mpi": [], "nccl": ["--nccl"]} if find_nccl(session) and len(counts(session)) > 1 else {"mpi": []}


def samples(session: Session) -> None:
    """Must train, with MPI and, where each rank has a GPU, with NCCL."""
    need_ranks(session, "12_ranks")
    for flags in ways(session).values():
        ended = start(session, "12_ranks" + "".join(flags), 60, 2, [session.bin / "12_ranks", *flags])
        session.say_end_of(ended.text, 2 if ended.passed else 10)


LOSS_BOUND = 1e-3  # between ways to add up the gradients, which have other orders


def training(session: Session) -> None:
    """Must show equal losses, whether gradients cross the host or, where each rank has a GPU, NCCL moves them, and with NCCL
    several steps in a launch. Each rank sees all GPUs, and takes its own."""
    need_ranks(session, "train_text")
    found = {}
    for way, flags in ways(session).items():
        file = session.logs / f"ranks-training-{way}.jsonl"
        command = [session.bin / "train_text", "--ranks", *flags, "--steps", 18 if session.is_emulated else 100, "--evaluate-on", 64, "--metrics", file]
        ended = start(session, f"ranks-training-{way}", 90, 2, command, env=environment(session) | {"GPUS": "0"})
        told = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        losses = [line["loss"] for line in told if "loss" in line]
        if not ended.passed or not losses:
            session.say_end_of(ended.text)
            continue
        devices = re.search(r"ranks on (.+)", ended.text)
        found[way] = {"devices": devices[1] if devices else "", "unrolled": "steps a launch, unrolled" in ended.text, "losses": losses}
        session.say(f"    {way}: ranks on {found[way]['devices']}, loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    session.keep("ranks-training", found)
    if "nccl" in found and not found["nccl"]["unrolled"]:
        session.problems.append("ranks-training: with NCCL each step is a launch")
    if len(found) == 2 and max(abs(a - b) for a, b in zip(found["mpi"]["losses"], found["nccl"]["losses"])) > LOSS_BOUND:
        session.problems.append("ranks-training: other losses with NCCL")


# --- times


def bench_command(session: Session, by_nccl: bool, workloads: str, *arguments) -> list:
    small = ["--size", "test"] if session.is_emulated else []
    return [session.bin / "graphsink-bench", "--ranks", *(["--nccl"] if by_nccl else ["--device", "cuda:0"]), "--workload", workloads, *small, *arguments]


def scaling(session: Session, by_nccl: bool) -> None:
    """Must show the time of a data-parallel step beside that of the same step without collectives, for each number of
    ranks; with NCCL a step is one launch without host nodes, and all ranks end with the same Variables."""
    need_ranks(session, "graphsink-bench")
    name, rows = f"ranks-{'nccl' if by_nccl else 'mpi'}", []
    if by_nccl:
        need_nccl(session)
    for ranks in counts(session):
        file = session.logs / f"{name}-{ranks}.json"
        ended = start(session, f"{name}-{ranks}", 90, ranks, bench_command(session, by_nccl, "mlp,gpt", "--steps", 2 if session.is_emulated else 100, "--json", file), quiet=True)
        if not ended.passed:
            session.say_end_of(ended.text)
            continue
        report = json.loads(file.read_text())
        rows += report["rows"]
        for row in report["rows"]:
            session.say(f"    {ranks} ranks, {row['workload']:6} step {row['step_us']:10.2f} us, no exchange {row['without_us']:10.2f} us, efficiency {100 * row['efficiency']:4.0f} %, "
                        f"{row['bytes_per_step']} bytes, {row['host_nodes']} host nodes, {row['streams']} streams")
        session.keep(name, {"machine": report["machine"], "rows": rows})
    crossing = [row for row in rows if by_nccl and row["host_nodes"] > 0]
    if crossing:
        session.problems.append(f"{name}: steps with host nodes")


def overlap(session: Session, way: str) -> None:
    """Must show kernels beside all_reduce of gradients, but for the last bucket."""
    need_ranks(session, "graphsink-bench")
    need_nccl(session)
    trace = session.logs / f"overlap-{way}"
    if way == "nsys":
        need(session, "nsys")
        env = environment(session, TRACED_BY_NSYS=trace)
    else:
        need_program(session, "libgraphsink_kernel_times.so")
        env = environment(session, TRACED_BY_CUPTI=session.bin / "libgraphsink_kernel_times.so", GRAPHSINK_KERNEL_TIMES=f"{trace}.jsonl",
                          GRAPHSINK_KERNEL_TIMES_LEVEL="timeline")
    if session.is_emulated:  # a collective waits for what can run beside it
        env["GS_NCCL_BESIDE"] = "100"
    command = bench_command(session, True, "gpt", "--untimed", "--steps", 5 if session.is_emulated else 50, "--bucket", 1 << 12 if session.is_emulated else 1 << 20)
    ended = start(session, f"overlap-{way}", 120, 2, command, env=env)
    file = trace.with_suffix(".jsonl")
    if way == "nsys" and ended.passed:
        file = trace.with_suffix(".sqlite")
        session.run("overlap-export", 60, ["nsys", "export", "--type", "sqlite", "--force-overwrite=true", "--output", file, f"{trace}.nsys-rep"], quiet=True)
    if not ended.passed or not file.exists():
        session.say_end_of(ended.text)
        session.problems.append(f"overlap-{way}: no trace")
        return
    rows = session.logs / f"overlap-{way}.rows.json"
    table = session.run(f"overlap-{way}-table", 60, [sys.executable, session.sources / "profiling/overlap.py", file, "--json", rows], quiet=True, env=dict(os.environ))
    session.say_end_of(table.text, 8)
    told = json.loads(rows.read_text()) if rows.exists() else []
    session.keep(f"overlap-{way}", told)
    if not any(row["kernels_beside"] for row in told if "reduce" in row["name"].lower()):
        session.problems.append(f"overlap-{way}: nothing ran beside all_reduce")
