#!/usr/bin/env python3
"""Runs a plan on a machine with a GPU, with programs that were built elsewhere (profiling/gpu_check.sh --from calls it).

It tries things in the order of what they tell, each with a time-out, until the minutes are over. What comes out is
written as it comes, so nothing is lost when the call is cut off. Needs nothing but Python 3.10 and the pack.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu import plans  # noqa: E402
from gpu.gtest import has_failed  # noqa: E402
from gpu.session import CutOff, Session  # noqa: E402

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="exit: 0 everything ran and passed, 1 something failed or was not reached, 2 wrong usage")
    parser.add_argument("--pack", type=pathlib.Path, required=True, help="folder with an unpacked archive of gpu_check.sh --pack")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of results; made if it is not there")
    parser.add_argument("--plan", choices=plans.PLANS, default="first", help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=9, help="of this call; default: %(default)s")
    parser.add_argument("--resume", type=pathlib.Path, metavar="RESULTS",
                        help="folder of results of an earlier call: of the same plan, to go on where it stopped; of another one, to try again what failed there")
    parser.add_argument("--items", metavar="ITEM,..", help="only these items of the plan, in this order; any wrong name lists them all")
    parser.add_argument("--jobs", type=int, help="processes at a time; default: three quarters of the cores")
    options = parser.parse_args()
    if not (options.pack / "pack.json").is_file():
        parser.error(f"{options.pack} is no unpacked pack: it has no pack.json; make one with profiling/gpu_check.sh --pack FILE")
    known = [item.name for item in plans.PLANS[options.plan]()]
    for name in (options.items or "").split(","):
        if name and name not in known:
            parser.error(f"--items {name}: the items of the plan {options.plan} are {', '.join(known)}")
    if options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if options.resume and not results_file(options.resume).is_file():
        parser.error(f"{options.resume} has no results.json; name the --out folder of an earlier call")
    return options


def results_file(resume: pathlib.Path) -> pathlib.Path:
    return resume / "results.json" if resume.is_dir() else resume


def resume_from(session: Session, resume: pathlib.Path) -> None:
    """Takes over what is done if RESULTS is of the same plan; learns in any case what failed and how long tests take."""
    file = results_file(resume)
    folder, told = file.parent, json.loads(file.read_text())
    meta = json.loads((folder / "meta.json").read_text()) if (folder / "meta.json").is_file() else {}
    is_same = meta.get("plan") == session.plan and "items" in told
    suites = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("tests*.json"))}
    if "tests" in told:  # results of before there was a file for each suite
        suites.setdefault("tests", {key: {"outcome": outcome} for key, outcome in told.pop("tests").items()})
    for suite in suites.values():
        for key, test in suite.items():
            if has_failed(test["outcome"]) or key not in session.earlier:
                session.earlier[key] = test["outcome"]
            if "ms" in test:
                session.earlier_ms[key] = test["ms"]
    if not is_same:
        session.say(f"learns from {resume.name}: {sum(map(has_failed, session.earlier.values()))} tests failed there")
        return
    if (folder / "summary.txt").is_file():
        session.lines = (folder / "summary.txt").read_text().splitlines()
    session.say(f"goes on with {resume.name}")
    session.meta["resumed"] = meta["date"]
    session.items, session.problems = told.pop("items"), told.pop("problems", [])
    session.results, session.tests = told, {name: suite for name, suite in suites.items()}
    if (folder / "golden.txt").is_file() and folder.resolve() != session.out.resolve():
        shutil.copy(folder / "golden.txt", session.out)


def fails(session: Session) -> bool:
    outcomes = [test["outcome"] for suite in session.tests.values() for test in suite.values()]
    return any(map(has_failed, outcomes)) or bool(session.problems)


def main() -> int:
    options = parse()
    jobs = options.jobs or max(2, (os.cpu_count() or 2) * 3 // 4)
    session = Session(options.pack.resolve(), options.out.resolve(), options.plan, options.minutes, jobs)

    def cut_off(number, _):
        for other in ENDING_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        session.stop()
        raise CutOff(f"signal {signal.Signals(number).name}")

    for number in ENDING_SIGNALS:
        signal.signal(number, cut_off)
    complete = False
    try:
        if options.resume:
            resume_from(session, options.resume)
        complete = plans.run_plan(session, options.plan, options.items.split(",") if options.items else [])
    finally:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        session.say("the end")
        session.finish()
    os._exit(0 if complete and not fails(session) else 1)  # threads of items that were cut off may still wait


if __name__ == "__main__":
    main()
