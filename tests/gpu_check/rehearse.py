#!/usr/bin/env python3
"""The plans of profiling/gpu_check.sh --from, rehearsed with a pack for the software CUDA device: tests that crash, hang and
lose the device in the middle, calls that are cut off, and the folder of results that is left.

usage: rehearse.py PACK FOLDER [--full]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHECK = ROOT / "profiling" / "gpu_check.sh"
STAND_INS = ROOT / "tests" / "gpu_check" / "stand_ins"
MOST_SECONDS = 600  # of one call
MOST_BYTES = 200_000  # of a file of results

# What the runner must say of each test of planted_faults.
PLANTED = {"A_Passes": r"ok", "B_Crashes": r"CRASHED \(-11\), alone CRASHED \(-11\)", "C_PassesBehindTheCrash": r"ok",
           "D_Hangs": r"TIMED OUT, alone TIMED OUT", "E_PassesBehindTheHang": r"ok",
           "F_LosesTheDevice": r"LOST THE DEVICE \(.*\), alone LOST THE DEVICE \(.*\)", "G_PassesInAnotherProcess": r"ok",
           "H_LeavesACaptureOpen": r"FAILED, alone FAILED", "I_IsTheVictimOfTheOneBefore": r"FAILED, alone ok", "J_IsSkipped": r"skipped",
           "K_Passes": r"ok"}
# Items that cannot run in a rehearsal, because only a GPU can answer.
ALWAYS_SKIPPED = {"probe", "products", "open_questions", "tests_fusion", "tests_random", "names_by_nsys", "ops", "ranks_overlap_nsys",
                  "ranks_random_4"}

pack, folder, is_full = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), "--full" in sys.argv[3:]
environment = dict(os.environ, PATH=f"{STAND_INS / 'bin'}:{os.environ['PATH']}", PYTHONPATH=str(STAND_INS / "python"), TMPDIR=str(folder / "tmp"),
                   PYTHONDONTWRITEBYTECODE="1")
failures = []


def expect(is_right, message):
    if not is_right:
        failures.append(message)
        print(f"!! {message}", flush=True)


def arguments_of(name, plan, resume):
    return [CHECK, "--from", pack, "--out", folder / name, "--plan", plan, "--minutes", "9", *(["--resume", folder / resume] if resume else [])]


def call(name, plan, resume=None):
    """A call that comes to its end."""
    begun = time.monotonic()
    done = subprocess.run([str(a) for a in arguments_of(name, plan, resume)], env=environment, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
    print(f"== {name}: exit {done.returncode}, {time.monotonic() - begun:.0f} s", flush=True)
    if done.returncode not in (0, 1) or not (folder / name / "summary.txt").is_file():
        sys.exit(f"{name} ended with {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.returncode


def interrupted_call(name, plan, word, number, resume=None):
    """A call that gets a signal as soon as its summary has this word."""
    summary = folder / name / "summary.txt"
    with open(folder / f"{name}.output", "w", encoding="utf-8") as output:
        process = subprocess.Popen([str(a) for a in arguments_of(name, plan, resume)], env=environment, stdout=output, stderr=output, start_new_session=True)
        end = time.monotonic() + MOST_SECONDS
        while time.monotonic() < end and not (summary.is_file() and re.search(word, summary.read_text(encoding="utf-8"))):
            if process.poll() is not None:
                sys.exit(f"{name} ended before it came to {word}:\n" + (folder / f"{name}.output").read_text(encoding="utf-8")[-3000:])
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(60)
    print(f"== {name}: ended by {number.name} at {word!r}", flush=True)


def read(name, file):
    return json.loads((folder / name / file).read_text(encoding="utf-8"))


def check_planted(name, suite, is_resumed=False):
    """Of a call that goes on behind one that was cut off, the cut may have left a test alone in its process from the start."""
    tests = read(name, f"{suite}.json")
    for test, wanted in PLANTED.items():
        if is_resumed:
            wanted = f"{wanted}|{wanted.rpartition(', alone ')[2]}"
        outcome = tests.get(f"planted_faults:PlantedCuda.{test}", {}).get("outcome", "missing")
        expect(re.fullmatch(wanted, outcome), f"{name}, {suite}: {test} is {outcome!r}, not {wanted!r}")
    others = {key: test["outcome"] for key, test in tests.items() if not key.startswith("planted_faults:")}
    expect(others, f"{name}, {suite}: no other tests")
    expect(set(others.values()) <= {"ok", "skipped"}, f"{name}, {suite}: of the other tests fail {[key for key, o in others.items() if o not in ('ok', 'skipped')]}")


def check_complete(name):
    results = read(name, "results.json")
    for item, entry in results["items"].items():
        wanted = entry["verdict"].startswith("skipped") if item in ALWAYS_SKIPPED else entry["verdict"] == "done"
        expect(wanted, f"{name}: the item {item} is {entry['verdict']!r}")
    expect(not results["problems"], f"{name}: problems {results['problems']}")
    summary = (folder / name / "summary.txt").read_text(encoding="utf-8")
    expect("not reached or not complete: nothing" in summary, f"{name}: the summary does not say that the plan is complete")
    expect(summary.endswith("the end\n"), f"{name}: the summary has no end")


def check_folder(name):
    """It can be committed as it is."""
    hidden = [str(folder), str(ROOT), str(pack.parent), os.path.expanduser("~"), socket.gethostname()]
    for file in (folder / name).iterdir():
        expect(file.stat().st_size <= MOST_BYTES, f"{name}/{file.name} has {file.stat().st_size} bytes")
        text = file.read_text(encoding="utf-8")
        for word in hidden:
            expect(len(word) < 4 or word not in text, f"{name}/{file.name} names {word}")
    expect((folder / f"{name}.logs.tar.gz").is_file() and not (folder / f"{name}.logs").exists(), f"{name}: the logs are not packed")


def check_no_process_is_left():
    for status in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            text = status.read_bytes()
        except OSError:
            continue
        is_ours = f"TMPDIR={folder / 'tmp'}".encode() in text and int(status.parent.name) != os.getpid()
        expect(not is_ours, f"process {status.parent.name} is left")


def rehearse_first():
    interrupted_call("first-1", "first", r"planted_faults\.0\.0: FAILED", signal.SIGTERM)
    items = read("first-1", "results.json")["items"]
    expect(items["bench"]["verdict"] == "done" and items["tests"]["verdict"] == "cut off" and items["existing_trainer"]["verdict"] == "not reached",
           f"first-1: items are {items}")
    expect("existing_trainer (not reached)" in (folder / "first-1/summary.txt").read_text(encoding="utf-8"), "first-1: what was not reached is not listed")
    check_folder("first-1")
    check_no_process_is_left()
    expect(call("first-2", "first", "first-1") == 1, "first-2: failed tests must fail the call")
    expect("bench: done in the call that is resumed" in (folder / "first-2/summary.txt").read_text(encoding="utf-8"), "first-2 did not go on")
    check_planted("first-2", "tests", is_resumed=True)
    check_complete("first-2")
    check_folder("first-2")


def rehearse_again():
    call("again", "again", "first-2")
    tests = read("again", "tests_again.json")
    wanted = {name: outcome.split(", ")[0] for name, outcome in PLANTED.items() if ", " in outcome} | {"I_IsTheVictimOfTheOneBefore": "ok"}
    expect(len(tests) == len(wanted), f"again: {len(tests)} tests, not {len(wanted)}")
    for name, outcome in wanted.items():
        found = tests.get(f"planted_faults:PlantedCuda.{name}", {}).get("outcome", "missing")
        expect(re.fullmatch(outcome, found), f"again: {name} is {found!r}, not {outcome!r}")
    check_planted("again", "tests_fused")
    results = read("again", "results.json")
    for way in ("cupti", "ncu"):
        expect({f"names-{way}-{workload}" for workload in ("mlp", "lstm-scan", "hetero")} <= set(results), f"again: no names by {way}")
    expect(all(results[name]["ns_without_a_name"] == 0 for name in results if name.startswith("names-cupti")), "again: nodes without a name")
    expect(results["endurance-nodes"]["nodes"], "again: no bytes of nodes")
    results["problems"] = [p for p in results["problems"] if not p.startswith("memcheck-planted_faults")]  # which fail there, too
    (folder / "again/results.json").write_text(json.dumps(results), encoding="utf-8")
    check_complete("again")
    check_folder("again")


def rehearse_speed():
    interrupted_call("speed-1", "speed", "10 links", signal.SIGKILL)
    for file in ("results.json", "meta.json"):
        read("speed-1", file)
    expect(call("speed-2", "speed", "speed-1") == 0, "speed-2 failed")
    results = read("speed-2", "results.json")
    rows = results["bench"]["rows"]
    expect(results["bench"]["rounds"] == 2 and {row["mode"] for row in rows} == {"interactive-serial", "sink"}, "speed-2: the rounds are not merged")
    expect(results["endurance"]["launches"]["launches"] == 30, "speed-2: no endurance")
    expect({"bench-16-steps", "bench-64-steps", "bench-programmatic-on", "bench-programmatic-off", "torch", "torch-gpt2-small", "ncu-mlp"} <= set(results),
           f"speed-2 has only {list(results)}")
    check_complete("speed-2")
    check_folder("speed-2")


def rehearse_ranks():
    with tarfile.open(pack) as archive:
        has_ranks = any(name.endswith("bin/test_ranks") for name in archive.getnames())
    if not has_ranks or shutil.which("mpirun") is None:
        print("== NOT CHECKED: the plan ranks; the build has no test_ranks, or there is no mpirun", flush=True)
        return
    expect(call("ranks", "ranks") == 0, "ranks failed")
    results = read("ranks", "results.json")
    expect(any(row["kernels_beside"] > 0 for row in results.get("overlap-cupti", [])), "ranks: nothing ran beside a collective")
    training = results.get("ranks-training", {})
    expect({way: (len(told["losses"]), told["unrolled"]) for way, told in training.items()} == {"mpi": (18, False), "nccl": (18, True)},
           f"ranks: of train_text there is {training}")
    for way in ("nccl", "mpi"):
        rows = results.get(f"ranks-{way}", {"rows": []})["rows"]
        expect([(row["ranks"], row["workload"]) for row in rows] == [(n, w) for n in (1, 2) for w in ("mlp", "gpt")], f"ranks: by {way} there are {rows}")
    check_complete("ranks")
    check_folder("ranks")


def rehearse_items():
    command = [str(argument) for argument in arguments_of("items", "first", None)] + ["--items", "launch_baseline,hello"]
    expect(subprocess.run(command, env=environment, capture_output=True, check=False, timeout=MOST_SECONDS).returncode == 0, "items: the call failed")
    expect(list(read("items", "results.json")["items"]) == ["launch_baseline", "hello"], "items: other items than the chosen ones, or in another order")
    check_complete("items")


def check_page():
    for name in ["first-1", "speed-1"]:  # as whoever commits results would
        subprocess.run(["rm", "-rf", folder / name], check=True)
    front = folder / "front.md"
    front.write_text((ROOT / "docs" / "gpu.md").read_text(encoding="utf-8"), encoding="utf-8")
    command = [ROOT / "profiling/results_page.py", "--results", folder, "--page", front]
    expect(subprocess.run([*command, "--check"], check=False, capture_output=True).returncode == 1, "a page that is missing goes unnoticed")
    expect(subprocess.run(command, check=False).returncode == 0, "no page can be made of the results")
    expect(subprocess.run([*command, "--check"], check=False).returncode == 0, "the page is not what it should be as soon as it is made")
    text = (folder / "README.md").read_text(encoding="utf-8")
    for word in ("software CUDA device", "| mlp |", "PlantedCuda.D_Hangs", "bytes a node", "### compute-sanitizer"):
        expect(word in text, f"the page of results lacks {word!r}")
    text = front.read_text(encoding="utf-8")
    for word in ("runs on software CUDA device, the newest of", "`PlantedCuda.D_Hangs`", "100 % of the time of lstm-scan", "| Several GPUs in one graph |"):
        expect(word in text, f"the block of docs/gpu.md lacks {word!r}")


def main():
    (folder / "tmp").mkdir(parents=True)
    rehearse_first()
    rehearse_again()
    if is_full:
        rehearse_items()
        rehearse_speed()
        rehearse_ranks()
    check_no_process_is_left()
    check_page()
    print(f"== rehearsal: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
