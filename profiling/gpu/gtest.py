"""Test programs on a GPU: many processes at a time, and what crashes, hangs or loses the device costs one test."""

import collections
import concurrent.futures
import dataclasses
import re
import threading

from gpu.session import NOT_RUN, TIMED_OUT, CutOff, Session, Skipped

# What is said of a device that no longer answers. All later tests of the process fail, too.
LOST_DEVICE = re.compile(r"IllegalAddress|LaunchFailure|IllegalInstruction|MisalignedAddress|HardwareStackError|illegal memory access|"
                         r"device is lost|unspecified launch failure")
PASSED = ("ok", "skipped", "there is no such test any more")
# The lines of a failed test's output that say why it failed.
TELLING = re.compile(r"Failure|[Ee]rror|=====|Returning|expect|actual|Which|Expected|exception", re.I)
MOST_ATTEMPTS = 12  # processes for the tests of one batch
MOST_ALONE = 60  # failures of a suite that are repeated; if more fail, then the first ones tell enough


@dataclasses.dataclass
class Batch:
    program: str
    names: list[str]
    number: int
    weight: float  # expected seconds; the longest batch begins first


@dataclasses.dataclass
class Suite:
    """Tests that run beside each other. `programs`: by program, the GoogleTest filter. `size`: tests of a batch, by program.
    `stall`: seconds in which one test has to end. `fused`: with the run-time compiler. `tool`: in front of each program."""

    name: str
    programs: dict[str, str]
    fused: bool = False
    size: dict[str, int] = dataclasses.field(default_factory=dict)
    default_size: int = 16
    stall: float = 60
    tool: tuple = ()
    repeats_failures: bool = True
    jobs: int = 0  # processes at a time; 0: as the call was told


def environment(session: Session, fused: bool) -> dict:
    """Without a run-time compiler, plans are those of the software CUDA device, for which the tests were written."""
    return session.env if fused else dict(session.env, GRAPHSINK_NVRTC="")


def names_of(session: Session, program: str, pattern: str, env: dict) -> list[str]:
    if not (session.bin / program).exists():
        return []
    ended = session.run(f"list-{program}", 60, [session.bin / program, f"--gtest_filter={pattern}", "--gtest_list_tests"], quiet=True, env=env)
    names, suite = [], ""
    for line in ended.text.splitlines():
        word = line.split("#")[0].rstrip()
        if line.startswith(("[", "Running")) or not word:
            continue
        if not word.startswith(" "):
            suite = word
        elif suite.endswith("."):
            names.append(suite + word.strip())
    return names


@dataclasses.dataclass
class Outcomes:
    """What the output of one process says of its tests."""

    of: dict[str, str] = dataclasses.field(default_factory=dict)
    ms: dict[str, float] = dataclasses.field(default_factory=dict)


def read_output(text: str, code: int | None, asked: list[str]) -> Outcomes:
    found, running = Outcomes(), None
    for line in text.splitlines():
        if m := re.search(r"\[ RUN      \] (\S+)", line):
            running = m[1]
        elif m := re.search(r"\[(       OK |  SKIPPED |  FAILED  )\] ([^\s,]+).*\(([\d,.']+) ms\)", line):
            if running == m[2]:
                found.of[running] = {"OK": "ok", "SKIPPED": "skipped", "FAILED": "FAILED"}[m[1].strip()]
                found.ms[running] = float(re.sub(r"[^\d]", "", m[3]))
                running = None
    if running:
        found.of[running] = "TIMED OUT" if code == TIMED_OUT else f"CRASHED ({code})"
    # The tests behind the first one that lost the device tell nothing: they are run again.
    if LOST_DEVICE.search(text) and (len(found.of) < len(asked) or "FAILED" in found.of.values()):
        order = [name for name in asked if name in found.of]
        first = next((name for name in order if found.of[name] == "FAILED" and has_lost(text, name)), None)
        if first:
            found.of[first] = f"LOST THE DEVICE ({has_lost(text, first)})"
            for name in order[order.index(first) + 1:]:
                found.of.pop(name, None)
    return found


def has_lost(text: str, name: str) -> str:
    """The words by which the output of this test says that the device is lost, or nothing."""
    begin = text.find(f"[ RUN      ] {name}\n")
    end = text.find("[ RUN      ]", begin + 1)
    found = LOST_DEVICE.search(text[begin:] if end < 0 else text[begin:end])
    return found[0] if begin >= 0 and found else ""


class SuiteRun:
    def __init__(self, session: Session, suite: Suite):
        self.session, self.suite = session, suite
        self.env = environment(session, suite.fused)
        self.found = session.tests.setdefault(suite.name, {})
        self.lock = threading.Lock()
        self.alone = 0
        self.reasons: dict[str, list[str]] = {}

    def batches(self, lists: dict[str, list[str]]) -> list[Batch]:
        made = []
        for program, names in lists.items():
            size = self.suite.size.get(program, self.suite.default_size)
            for number, first in enumerate(range(0, len(names), size)):
                chosen = names[first:first + size]
                known = [self.session.earlier_ms.get(f"{program}:{name}") for name in chosen]
                # Where nothing is known, a program whose batches are small has long tests.
                weight = sum(60 / size if ms is None else ms / 1000 for ms in known)
                made.append(Batch(program, chosen, number, weight))
        made.sort(key=lambda batch: -batch.weight)
        return made

    def command(self, program: str, names: list[str]) -> list:
        return [*self.suite.tool, self.session.bin / program, f"--gtest_filter={':'.join(names)}"]

    def run_batch(self, batch: Batch) -> float:
        """Goes on behind the test that crashed, hung or lost the device, in a new process. Returns the seconds."""
        begun, todo, attempt = self.session.elapsed(), list(batch.names), 0
        while todo and attempt < MOST_ATTEMPTS and self.session.left() > 8:
            log = f"{self.suite.name}.{batch.program}.{batch.number}.{attempt}"
            ended = self.session.run(log, 3600, self.command(batch.program, todo), quiet=True, env=self.env, stall=self.suite.stall, may_fail=True)
            attempt += 1
            if ended.code is NOT_RUN:
                break
            outcomes = read_output(ended.text, ended.code, todo)
            if self.session.was_cut_off(ended):
                outcomes.of = {name: outcome for name, outcome in outcomes.of.items() if outcome in (*PASSED, "FAILED")}
            for name, outcome in outcomes.of.items():
                self.note(batch.program, name, outcome, outcomes.ms.get(name), ended.text, is_alone=len(todo) == 1)
            rest = [name for name in todo if name not in outcomes.of]
            if len(rest) == len(todo):
                break
            todo = rest
        self.session.save()
        return self.session.elapsed() - begun

    def note(self, program: str, name: str, outcome: str, ms: float | None, text: str, is_alone: bool) -> None:
        if outcome not in PASSED:
            telling = self.telling(text, name)
            if not is_alone and self.suite.repeats_failures and self.may_repeat():
                alone, telling = self.run_alone(program, name)
                outcome = f"{outcome}, alone {alone}"
            self.reasons[f"{program}:{name}"] = telling
        with self.session.lock:
            self.found[f"{program}:{name}"] = {"outcome": outcome} | ({} if ms is None else {"ms": ms})

    def may_repeat(self) -> bool:
        with self.lock:
            self.alone += 1
            return self.alone <= MOST_ALONE and self.session.left() > 15

    def run_alone(self, program: str, name: str) -> tuple[str, list[str]]:
        """A test that failed behind another one may be its victim, so it has another chance in a process of its own."""
        log = f"{self.suite.name}.alone.{program}.{re.sub('[^A-Za-z0-9_.]', '_', name)}"
        ended = self.session.run(log, 3600, self.command(program, [name]), quiet=True, env=self.env, stall=self.suite.stall, may_fail=True)
        outcome = read_output(ended.text, ended.code, [name]).of.get(name, "not run")
        if self.session.was_cut_off(ended):
            outcome = "not run"
        return outcome, self.telling(ended.text, name)

    @staticmethod
    def telling(text: str, name: str) -> list[str]:
        begin = max(text.find(f"[ RUN      ] {name}\n"), 0)
        end = text.find("[ RUN      ]", begin + 1)
        lines = (text[begin:] if end < 0 else text[begin:end]).splitlines()[1:]
        return [line for line in lines if TELLING.search(line) and not line.startswith("[====")][:6]

    def run(self) -> None:
        session, suite, begun = self.session, self.suite, self.session.elapsed()
        with concurrent.futures.ThreadPoolExecutor(suite.jobs or session.jobs) as pool:
            listed = pool.map(lambda pair: names_of(session, *pair, self.env), suite.programs.items())
            lists = dict(zip(suite.programs, listed))
            if not any(lists.values()):
                raise Skipped(f"none of {', '.join(suite.programs)} is in the pack")
            known = {key for key, test in self.found.items() if not test["outcome"].endswith("not run")}  # of a call that was cut off
            lists = {program: [name for name in names if f"{program}:{name}" not in known] for program, names in lists.items()}
            batches = self.batches(lists)
            for batch in batches:
                for name in batch.names:
                    self.found[f"{batch.program}:{name}"] = {"outcome": "not run"}
            session.say(f"{suite.name}: {sum(map(len, lists.values()))} tests in {len(batches)} batches: " +
                        ", ".join(f"{program} {len(names)}" for program, names in lists.items() if names))
            waiting = {pool.submit(self.run_batch, batch): batch for batch in batches}
            try:
                for future in concurrent.futures.as_completed(waiting):
                    batch = waiting[future]
                    session.say(f"    {suite.name} {batch.program} {batch.number}: {len(batch.names)} tests, {future.result():.1f} s")
            except CutOff:
                pool.shutdown(cancel_futures=True)
                self.report(begun)
                raise
        self.report(begun)

    def report(self, begun: float) -> None:
        self.session.say(f"{self.suite.name}: {counts_of(self.found)}, {self.session.elapsed() - begun:.0f} s")
        for key, test in sorted(self.found.items()):
            if test["outcome"] not in (*PASSED, "not run"):
                self.session.say(f"    {test['outcome']}: {key}")
                self.session.say_all(["    " + line for line in self.reasons.get(key, [])])
        self.session.save()


def counts_of(tests: dict[str, dict]) -> dict[str, int]:
    """How many tests ended in each way."""
    return dict(collections.Counter(re.sub(r" \(.*?\)", "", test["outcome"]) for test in tests.values()))


def has_failed(outcome: str) -> bool:
    return outcome not in (*PASSED, "not run")
