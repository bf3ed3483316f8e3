"""The block of docs/gpu.md that says for each claim whether a GPU has confirmed it, computed from the folders of results.

Everywhere here `runs` are all runs, the newest first. A figure comes from the newest run that has it."""

import collections
import dataclasses
import re

from page.figures import targets
from page.run import Run, kind_of, links_of, table

# Suites of tests, by whether programs had the run-time compiler. The first run had all of them in one, "tests".
WITHOUT_COMPILER = ("tests", "tests_alone", "tests_may_hang", "tests_again")
WITH_COMPILER = ("tests_fused", "tests_fusion", "tests_random")
# These programs had the compiler in the first run, too.
ALWAYS_COMPILED = ("test_fusion:", "test_random_graph:")
MOST_NAMES = 6  # of tests that fail


@dataclasses.dataclass
class Answer:
    text: str
    runs: list[Run]


NONE = Answer("not tried yet", [])


# --- tests


@dataclasses.dataclass
class Outcome:
    kind: str  # see kind_of()
    run: Run


RANKS = {"failed": 0, "failed, alone ok": 1, "ok": 2, "skipped": 3, "not run": 4}


def outcomes_of(run: Run, suites: tuple[str, ...]) -> dict[str, Outcome]:
    """The outcome of each test in a run, the worst one if several suites have the test."""
    found: dict[str, Outcome] = {}
    for suite in suites:
        for key, test in run.suites.get(suite, {}).items():
            if suite == "tests" and suites is WITHOUT_COMPILER and key.startswith(ALWAYS_COMPILED):
                continue
            kind = "gone" if test["outcome"].startswith("there is no such test") else kind_of(test["outcome"])
            if key not in found or RANKS.get(kind, 9) < RANKS.get(found[key].kind, 9):
                found[key] = Outcome(kind, run)
    return found


def last_outcomes(runs: list[Run], suites: tuple[str, ...], pattern: str = "") -> dict[str, Outcome]:
    """What each test ended with when it ran last. A test that a newer run of its whole suite does not list is forgotten:
    it was renamed or removed."""
    found: dict[str, Outcome] = {}
    complete: set[str] = set()  # programs whose tests a newer run lists
    for run in runs:
        for key, outcome in outcomes_of(run, suites).items():
            is_listed = re.search(pattern, key) and key.split(":")[0] not in complete
            if is_listed and (key not in found or found[key].kind == "not run"):
                found[key] = outcome
        complete |= {key.split(":")[0] for suite in ("tests", "tests_fused") if suite in suites for key in run.suites.get(suite, {})}
    return {key: outcome for key, outcome in found.items() if outcome.kind != "gone"}


def answer_of_tests(found: dict[str, Outcome]) -> Answer:
    counts = collections.Counter(outcome.kind for outcome in found.values())
    failed = sorted(key for key, outcome in found.items() if outcome.kind.startswith("failed"))
    ran = counts["ok"] + len(failed)
    runs = {outcome.run.name: outcome.run for outcome in found.values() if outcome.kind not in ("not run", "skipped")}
    if ran == 0:
        return NONE
    words = f"yes: {'both' if ran == 2 else 'all'} {ran:,} tests pass"
    if failed:
        words = f"{'in part' if counts['ok'] else 'no'}: {counts['ok']:,} of {ran:,} tests pass; failed: "
        words += ", ".join(f"`{key.split(':', 1)[1]}`" for key in failed[:MOST_NAMES])
        words += f" and {len(failed) - MOST_NAMES} more" if len(failed) > MOST_NAMES else ""
    for kind, text in (("skipped", "skipped, which need another GPU"), ("not run", "not reached")):
        words += f"; {counts[kind]:,} {text}" if counts[kind] else ""
    return Answer(words, sorted(runs.values(), key=lambda run: run.meta["date"], reverse=True))


def tests(suites: tuple[str, ...], pattern: str = ""):
    return lambda runs: answer_of_tests(last_outcomes(runs, suites, pattern))


def several_gpus(runs: list[Run]) -> Answer:
    found = last_outcomes(runs, WITHOUT_COMPILER + WITH_COMPILER, r":SeveralDevices\.|OfAnotherDeviceIsRefused")
    answer = answer_of_tests(found)
    if answer is not NONE or not found:
        return answer
    run = next(iter(found.values())).run
    return Answer(f"not tried: the machine has one GPU, and {len(found)} tests were skipped", [run])


# --- bits


def same_bits(runs: list[Run]) -> Answer:
    """Each mode of graphsink-bench against interactive-serial of the same report."""
    verdicts: dict[tuple[str, str], tuple[bool, Run]] = {}
    for run in runs:
        for name in run.results:
            if not name.startswith("bench"):
                continue
            hashes = {(row["workload"], row["mode"]): row.get("state_hash") for row in run.rows(name)}
            for (workload, mode), bits in hashes.items():
                reference = hashes.get((workload, "interactive-serial"))
                if mode != "interactive-serial" and reference:
                    verdicts.setdefault((workload, mode), (bits == reference, run))
    if not verdicts:
        return NONE
    wrong = [f"{workload} in {mode}" for (workload, mode), (is_same, _) in verdicts.items() if not is_same]
    workloads, modes = {workload for workload, _ in verdicts}, sorted({mode for _, mode in verdicts})
    words = f"no: other bits for {', '.join(wrong)}" if wrong else f"yes: {len(workloads)} workloads, {' and '.join(modes)} against interactive-serial"
    used = {run.name: run for _, run in verdicts.values()}
    return Answer(words, list(used.values()))


# --- what CUDA answers


def conformance(runs: list[Run]) -> Answer:
    for run in runs:
        text = "\n".join(run.conformance())
        total, confirmed = re.search(r"answers: (\d+)", text), re.search(r"answers: .* (\d+) gpu-confirmed", text)
        disagreements = re.search(r"(\d+) disagreements", text)
        if total and confirmed and disagreements:
            missing, wrong = int(total[1]) - int(confirmed[1]), int(disagreements[1])
            words = "no" if wrong else "in part" if missing else "yes"
            words += f": {int(confirmed[1])} of {int(total[1])} answers confirmed, {wrong} disagreements"
            if wanted := re.search(r"(\d+) for want of devices", text):
                words += f"; {wanted[1]} cases need another GPU"
            return Answer(words, [run])
    return NONE


# --- compute-sanitizer


def program_of(name: str) -> str:
    """What a result of compute-sanitizer is about: a program, or one test of a test program."""
    program, _, arguments = name.split("-", 1)[1].partition("-")
    return f"{'a test of ' if 'gtest_filter' in arguments else ''}`{program}`"


def place_of_error(run: Run, name: str) -> str:
    """The kernel of the first error that the tool printed."""
    lines = "\n".join(run.summary)
    begin = lines.find(f"{name}: ")
    found = re.search(r"=====\s+at (?:void )?(.+?)\(", lines[begin:]) if begin >= 0 else None
    if not found:
        return ""
    return f", the first in `{found[1]}`" + ("" if "graphsink" in found[1] else ", which is no kernel of graphsink")


def sanitizer(tool: str):
    def answer(runs: list[Run]) -> Answer:
        entries: dict[str, tuple[object, Run]] = {}
        for run in runs:
            for name, result in run.results.get("sanitizers", {}).items():
                if name.startswith(f"{tool}-") or name == f"tests_{tool}":
                    entries.setdefault(name, (result, run))
        clean, wrong, without = [], [], []
        for name, (result, run) in entries.items():
            for text, count in (result if isinstance(result, dict) else {result: 1}).items():
                what = f"{count} processes of tests" if isinstance(result, dict) else program_of(name)
                # A test program that ends with 1 has failed by itself, and the tool has seen all of it.
                crashed = re.search(rf"{re.escape(name)}: (?:FAILED, code (?!1$|9$)(-?\d+)|TIMED OUT)$", "\n".join(run.results.get("problems", [])), re.M)
                number = re.search(r"SUMMARY: (\d+) ", text)
                if number and int(number[1]) > 0:
                    more = "more than " if "not printed" in text else ""
                    wrong.append(f"{what} has {more}{int(number[1]):,} errors{place_of_error(run, name)}")
                elif crashed or not number:
                    ended = f"ended with code {crashed[1]}" if crashed and crashed[1] else "ended without a summary"
                    without.append(f"no verdict on {what}, which {ended} under the tool")
                else:
                    clean.append(what)
        if not entries:
            return NONE
        words = "no" if wrong else "in part" if without and clean else "yes" if clean else "no verdict"
        parts = ([f"0 errors in {', '.join(clean)}"] if clean else []) + wrong + without
        if entries.keys().isdisjoint([f"tests_{tool}"]) and tool != "synccheck":
            parts.append("batches of tests not reached")
        used = {run.name: run for _, run in entries.values()}
        return Answer(f"{words}: {'; '.join(parts)}", list(used.values()))

    return answer


# --- names of nodes


def names(way: str):
    """Of CUPTI and Nsight Systems the result says how much time is in nodes without a name, of ncu which kernels it lacks."""

    def answer(runs: list[Run]) -> Answer:
        found: dict[str, tuple[dict, Run]] = {}
        for run in runs:
            for name, result in run.results.items():
                if name.startswith(f"names-{way}-"):
                    found.setdefault(name.removeprefix(f"names-{way}-"), (result, run))
        if not found:
            return NONE
        parts, is_right = [], []
        for workload, (result, _) in found.items():
            if way == "ncu":
                missing = sum(result["missing"].values())
                parts.append(f"{result['named'] - missing} of {result['named']} kernels of {workload}")
                is_right.append(missing == 0)
            else:
                share = result["ns_without_a_name"] / max(result["ns"], 1)
                parts.append(f"{100 * (1 - share):.0f} % of the time of {workload}")
                is_right.append(share == 0)
        words = "yes" if all(is_right) else "in part" if any(is_right) else "no"
        used = {run.name: run for _, run in found.values()}
        return Answer(f"{words}: {', '.join(parts)}", list(used.values()))

    return answer


# --- effects


def programmatic_effect(runs: list[Run]) -> Answer:
    for run in runs:
        off, on = ({row["workload"]: row for row in run.rows(f"bench-programmatic-{state}")} for state in ("off", "on"))
        both = [workload for workload in off if workload in on]
        if both:
            ratios = {workload: off[workload]["step_us"]["median"] / on[workload]["step_us"]["median"] for workload in both}
            saves = [ratio > 1.02 for ratio in ratios.values()]
            words = "yes" if all(saves) else "in part" if any(saves) else "no"
            same = all(off[workload].get("state_hash") == on[workload].get("state_hash") for workload in both)
            return Answer(f"{words}: {', '.join(f'{workload} {ratio:.2f}' for workload, ratio in ratios.items())}; {'the same' if same else 'OTHER'} bits", [run])
    return NONE


def existing_code(runs: list[Run]) -> Answer:
    for run in runs:
        for line in run.summary:
            if found := re.search(r"existing_trainer at batch 1: steps per second \{'existing_trainer': \[([^]]+)\], 'existing_trainer_sunk': \[([^]]+)\]\}; losses (\w+)", line):
                plain, sunk = (max(map(float, text.split(","))) for text in (found[1], found[2]))
                return Answer(f"{'yes' if found[3] == 'equal' else 'no'}: losses {found[3].lower()}, {sunk:,.0f} steps per second instead of {plain:,.0f}", [run])
    return NONE


CLAIMS = [
    ("All modes of a workload give the same bits", same_bits),
    ("Random graphs give the same results in every mode", tests(WITH_COMPILER, "^test_random_graph:")),
    ("The device tests pass without run-time kernels", tests(WITHOUT_COMPILER)),
    ("The device tests pass with run-time kernels", tests(WITH_COMPILER, "^(?!test_random_graph:)")),
    ("Kernels that are fused at run time work (`test_fusion`)", tests(WITH_COMPILER, "^test_fusion:")),
    ("`SinkCache` works (`test_capture`)", tests(WITHOUT_COMPILER + WITH_COMPILER, "^test_capture:")),
    ("Code that exists is sunk with equal losses (`samples/existing_trainer`)", existing_code),
    ("`Program::enqueue` works", tests(WITHOUT_COMPILER + WITH_COMPILER, r":Enqueue\.")),
    ("Programmatic launch works", tests(WITHOUT_COMPILER + WITH_COMPILER, "rogrammatic")),
    ("Programmatic launch saves time (a step without it over one with it)", programmatic_effect),
    ("Several GPUs in one graph", several_gpus),
    ("CUDA answers as the software device does (`tests/conformance`)", conformance),
    ("No invalid access to memory (memcheck)", sanitizer("memcheck")),
    ("No data race (racecheck)", sanitizer("racecheck")),
    ("No read of uninitialized memory (initcheck)", sanitizer("initcheck")),
    ("No invalid barrier (synccheck)", sanitizer("synccheck")),
    ("CUPTI finds the names of all nodes", names("cupti")),
    ("Nsight Compute finds the names of all nodes", names("ncu")),
    ("Nsight Systems finds the names of all nodes", names("nsys")),
]


def block(runs: list[Run], page: str) -> str:
    """Two tables, with links to sections of the page of results, which is at this path."""
    if not runs:
        return "No GPU has run anything yet."
    devices = sorted({run.meta["device"] for run in runs})
    commits = list(dict.fromkeys(run.meta["commit"][:7] for run in runs))
    lines = [f"{len(runs)} runs on {' and '.join(devices)}, the newest of commit {commits[0]}{', others of ' + ', '.join(commits[1:]) if commits[1:] else ''}. "
             "Each line has the newest results that there are; "
             "a test counts as it ended when it ran last.", ""]
    rows = []
    for claim, ask in CLAIMS:
        answer = ask(runs)
        rows.append([claim, answer.text, links_of(answer.runs, page)])
    lines += table(["claim", "confirmed", "run"], rows, left=3)
    return "\n".join([*lines, "", *targets(runs, page)])
