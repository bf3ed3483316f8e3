#!/usr/bin/env python3
"""Mutations of what orders work: takes single barriers, waits, copies and edges out of a copy of this tree, the software
CUDA device included, and counts how many of these mutants the CI tier of tests/run.sh catches. Sites are found by pattern
and drawn by a seed.
"""

import argparse
import difflib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRATCH = ROOT / "build" / "mutants"  # a copy of the tree; the tree itself is never changed
LEAST_CAUGHT = 0.95

CUDA = ["kernels", "src/device/cuda"]
ISSUE = ["src/device/cuda", "src/exec", "src/api"]
EMULATOR = ["tests/cuda_emulator"]
# Statements that are taken out: kind, folders, pattern.
STATEMENTS = [
    ("barrier", CUDA, r"__syncthreads\(|__syncwarp\("),
    ("event wait", ISSUE, r"cudaStreamWaitEvent\(|cuda(Event|Stream)Synchronize\(|\b(make_wait|wait|wait_for|wait_for_user|sync)\("),
    ("copy", ISSUE, r"cudaMem(cpy|set)Async\(|(?<!std::)\b(copy|upload|download)\(|std::mem(cpy|set)\("),
    ("copy", ["kernels"], r"\bcopy_bytes\("),
    ("copy", ["src/passes"], r"\badd_copy\("),
    ("dependency edge", ["src/passes"], r"\bdeps\.push_back\("),
    ("dependency edge", ISSUE, r"cudaEventRecord\(|cudaStreamUpdateCaptureDependencies\(|\bis_(open|forked)\b.* = (true|.*!= 0)"),
    ("plan edge", ["src/passes"],
     r"\bafter\.push_back\(|\bwait_for\(|\.(reads|writes)\)?\.push_back\(|^(writer|readers)\[.*( = |push_back)|"
     r"\blast_effect = |\b(last_end|needed)(\[s\])? = |^needed = |\b(mark_written|forget_crossings|join|use)\(|"
     r"\bvariable_written\[.* = true|\bcrossings_\.push_back\("),
    ("event wait", EMULATOR, r"\b(executor|event|changed_)\b.*\b(wait|notify_all)\(|\bwait_for\w*\(|\bask_again_after\("),
    ("copy", EMULATOR, r"std::mem(cpy|set)\("),
    ("dependency edge", EMULATOR,
     r"\b(before|after|all|ends|edges|frontier\w*|dropped|left)\.(push_back|insert)\(|\bfrontier = |\btail = |\bmissing\["),
]
# Parts of expressions that are replaced: kind, folders, pattern, replacement.
EXPRESSIONS = [
    ("barrier", CUDA, r"__syncthreads_(or|and|count)(?=\()", ""),
    ("event wait", ISSUE, r"cuda(Event|Stream)Synchronize\((?:[^()]|\([^()]*\))*\)(?= [!=]=)", "cudaSuccess"),
    ("copy", ["src/passes"], r"\bvalues_\.kept(?=\()", ""),
    ("dependency edge", ISSUE, r"before\.nodes, before\.edges, before\.count", "nullptr, nullptr, 0"),
]
# Faults that work by chance on some machine or with some order of events: kind, file, what stands there, what it becomes.
# --chance tries them all.
CHANCE = [
    ("wrong memory", "src/exec/issue/bound_plan.cpp", "plan_->nodes[i].on_host ? on_host[stream] : workspaces_[stream].get()",
     "workspaces_[stream] ? workspaces_[stream].get() : static_cast<void*>(on_host[stream])"),
    ("wrong memory", "src/passes/plan_queries.cpp", "(node.on_host ? result.host : result.device)", "result.device"),
    ("wrong memory", "src/exec/memory/program_memory.cpp", "[&] { return target.allocate_host(invariant); }",
     "[&] { return target.allocate(invariant); }"),
    ("missing wait", "src/exec/issue/bound_plan.cpp", "if (waited_for != stream || !task.after.empty()) device.wait(*stream);", ""),
    ("missing wait", "src/exec/issue/step_runner.cpp",
     "if (island.starts_beside) device().make_wait(session_.stream_beside(), stream());", ""),
    ("missing wait between devices", "src/exec/issue/bound_plan.cpp",
     "devices[at(plan_->stream_devices[at(later)])]->make_wait(*streams[at(later)], *streams[at(earlier)]);",
     "if (plan_->stream_devices[at(later)] == plan_->stream_devices[at(earlier)])"
     " devices[at(plan_->stream_devices[at(later)])]->make_wait(*streams[at(later)], *streams[at(earlier)]);"),
    ("stale predicate", "src/device/cuda/stream_capture.cpp",
     'if (kind == TaskKind::loop) decide(on);', ""),
    ("stale predicate", "src/device/cuda/device.cpp", "wait(stream);\n    return static_cast<const void*>(decision_.get());",
     "return static_cast<const void*>(decision_.get());"),
    ("ring overwritten early", "src/exec/issue/launch_queue.cpp",
     "if (waiting() == LaunchSlots::kCapacity) device.wait(stream);", "(void)device, (void)stream;"),
    ("ring overwritten early", "src/device/launch_ring.h", "std::uint32_t number = ring.next ? *ring.next : 0;",
     "std::uint32_t number = ring.next ? *ring.next : 0;\n  if (ring.next) tell_host(ring.taken, number + 1);"),
]
# By folder, the test programs that are most likely to notice, and the entries of ctest that run them; the others follow.
FIRST_TESTS = {
    "kernels": {"test_kernels": "kernels"},
    "src/passes": {"test_passes": "passes", "test_api": "api"},
    "src/device/cuda": {"test_device": "device", "test_api": "api"},
    "src/exec": {"test_exec": "exec", "test_api": "api"},
    "src/api": {"test_api": "api"},
    "tests/cuda_emulator": {"cuda_emulator_test": "cuda_emulator", "conformance_test": "conformance_test"},
}
DECLARATION = re.compile(r"(?!return\b|throw\b|else\b)[\w:<>,&*\s]*[\w>&*]\s+[&*]?\w+\s*[({=;]")
HEADER = re.compile(r"\b(if constexpr|if|for|while|switch)\s*$")


class Site:
    def __init__(self, kind, path, text, begin, end, replacement):
        self.kind, self.path, self.begin, self.end, self.replacement = kind, path, begin, end, replacement
        self.line = text.count("\n", 0, begin) + 1
        self.code = " ".join(text[begin:end].split())

    def __str__(self):
        return f"{self.kind:<15}  {self.path}:{self.line}"

    def mutated(self, text):
        return text[: self.begin] + self.replacement + text[self.end :]

    def diff(self, text):
        lines = difflib.unified_diff(text.splitlines(), self.mutated(text).splitlines(), self.path, "mutant", lineterm="")
        return "\n".join("    " + line for line in list(lines)[2:])


def blanked(text):
    """The text with comments and the contents of literals replaced by spaces, at the same offsets."""
    raw_text = r'R"(?P<delimiter>\w*)\(.*?\)(?P=delimiter)"'
    pattern = raw_text + r'|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#[^\n]*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)


def statements(text):
    """(begin, end) of every expression statement, without the `if (...)` and the like in front of it."""
    outer, depth, begin = [], 0, 0
    opened = []  # for each open parenthesis: is it the header of an if, for, while, switch
    for i, c in enumerate(text):
        if c in "([":
            opened.append(depth == 0 and HEADER.search(text, 0, i) is not None)
            depth += 1
        elif c in ")]":
            depth -= 1
            if opened.pop() and depth == 0:
                begin = i + 1
        elif c == "{":
            outer.append((depth, begin))
            depth, begin = 0, i + 1
        elif c == "}":
            depth, start = outer.pop()
            begin = start if depth > 0 else i + 1
        elif c == ";" and depth == 0:
            yield begin, i + 1
            begin = i + 1
        elif c == ":" and depth == 0 and re.search(r"\b(case [\w:]+|default)\s*$", text[max(0, i - 60) : i]):
            begin = i + 1
        elif depth == 0 and text[begin : i + 1].strip() == "else" and not text[i + 1].isalnum():
            begin = i + 1


def files_in(folder):
    paths = (ROOT / folder).rglob("*")
    return sorted(p for p in paths if p.suffix in (".cpp", ".cu", ".h") and not re.search(r"_test\.|test_", p.name))


def find_sites():
    sites = []
    folders = sorted({folder for row in STATEMENTS + EXPRESSIONS for folder in row[1]})
    for folder in folders:
        for path in files_in(folder):
            text = path.read_text()
            code, name = blanked(text), str(path.relative_to(ROOT))
            if name == "kernels/support/host_builtins.h":
                continue  # what barriers are on the CPU: nothing
            for begin, end in statements(code):
                begin += len(code[begin:end]) - len(code[begin:end].lstrip())
                statement = code[begin:end]
                if DECLARATION.match(statement) or statement.startswith("return"):
                    continue
                kind = next((k for k, where, p in STATEMENTS if folder in where and re.search(p, statement)), None)
                if kind:
                    sites.append(Site(kind, name, text, begin, end, "{}"))
            for kind, where, pattern, replacement in EXPRESSIONS:
                if folder in where:
                    sites += [Site(kind, name, text, m.start(), m.end(), replacement) for m in re.finditer(pattern, code)]
    return sorted(sites, key=lambda site: (site.path, site.begin))


def copy_tree():
    """Makes the scratch tree equal to this one; files that are equal already keep their times."""
    kept = set()
    for folder in ["cmake", "include", "kernels", "profiling", "samples", "src", "tests", "."]:
        paths = (ROOT / folder).rglob("*") if folder != "." else ROOT.glob("*")
        for path in paths:
            if not path.is_file() or path.name.startswith("."):
                continue
            target = SCRATCH / path.relative_to(ROOT)
            kept.add(target)
            if target.exists() and target.read_bytes() == path.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for path in SCRATCH.rglob("*"):
        if path.is_file() and path not in kept and SCRATCH / "build" not in path.parents:
            path.unlink()


class Stage:
    """A stage of the CI tier: a build in the scratch tree, and its tests as tests/run.sh runs them."""

    def __init__(self, name, jobs, environment, options=(), definitions=(), limit=600):
        self.name, self.jobs, self.environment = name, jobs, environment
        self.limit = limit  # seconds for one process of tests: what takes longer hangs, and is caught by that
        self.options, self.definitions = list(options), list(definitions)
        self.folder = SCRATCH / "build" / name

    def prepare(self):
        """Builds the unchanged tree, which must pass."""
        configure = ["cmake", "-S", SCRATCH, "--preset", self.name, f"-DGRAPHSINK_TEST_TIMEOUT={self.limit}", *self.definitions]
        done = subprocess.run(configure, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        if problem := self.build():
            sys.exit(f"the unchanged tree does not build in {self.folder}:\n{problem}")
        if failed := self.failed_tests():
            sys.exit(f"the unchanged tree fails in {self.folder}: {failed}")

    def build(self, programs=("test_programs",)):
        command = ["cmake", "--build", self.folder, "--parallel", str(self.jobs), "--target", *programs]
        done = subprocess.run(command, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout[-3000:] + done.stderr[-3000:]

    def run(self, command, limit):
        # The sanitizers' shadows have fixed places, which a random layout may have taken.
        prefix = ["setarch", "-R"] if "san" in self.name else []
        try:
            return subprocess.run(prefix + command, env={**os.environ, **self.environment}, timeout=limit, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            return None

    def failed_tests(self, entries=".*"):
        """The first test of these entries that fails; "" if none does. They run in shards, as in the tree's own tests: a
        whole program in one process may take longer than the limit, which would be taken for a mutant that hangs."""
        command = ["ctest", "--test-dir", self.folder, "--stop-on-failure", "--parallel", str(self.jobs)]
        only = ["-R", f"^({entries})(_[0-9]+)?$", "-LE", "slow", "-E", "^(samples|bench)$"]
        done = self.run(command + only + self.options, 1800)
        if done is None:
            return "time-out"
        failed = re.search(r"\d+ - (\S+) \(", done.stdout.partition("The following tests FAILED")[2])
        return failed.group(1) if failed else "" if done.returncode == 0 else done.stdout[-300:]


def ci_tier(jobs):
    # The first builds without line counts, which change no test, but slow every run of one down.
    plain = Stage("emulated", jobs, {"GS_EMU_SEED": "0"}, definitions=["-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1"],
                  limit=240)
    asan = Stage("emulated-asan", jobs, {"GS_EMU_SEED": "1", "GS_EMU_PROTECT": "1"})
    return [plain, asan, Stage("emulated-tsan", jobs, {"GS_EMU_SEED": "2"})]


def verdict(site, stage, programs):
    """What caught the mutant that is in the scratch tree now; "" if nothing did, None if it does not compile."""
    if programs:
        if stage.build(programs):
            return None
        if failed := stage.failed_tests("|".join(programs.values())):
            return f"{failed} in {stage.name}"
    if stage.build():
        return None
    failed = stage.failed_tests()
    return f"{failed} in {stage.name}" if failed else ""


def print_counts(sites):
    kinds = sorted({site.kind for site in sites})
    print(f"{len(sites)} sites: " + ", ".join(f"{k} {sum(s.kind == k for s in sites)}" for k in kinds))


def try_mutant(site, stage, programs=None):
    target = SCRATCH / site.path
    original = target.read_text()
    target.write_text(site.mutated(original))
    try:
        return verdict(site, stage, programs)
    finally:
        target.write_text(original)


def chance_sites():
    sites = []
    for kind, name, old, new in CHANCE:
        text = (ROOT / name).read_text()
        if text.count(old) != 1:
            sys.exit(f"{name} has not exactly one place of: {old}")
        begin = text.index(old)
        sites.append(Site(kind, name, text, begin, begin + len(old), new))
    return sites


def prepare(stage):
    start = time.monotonic()
    stage.prepare()
    print(f"the unchanged tree passes in {stage.name}, {time.monotonic() - start:.0f} s", flush=True)


def report(number, site, caught_by, start):
    seconds = f"{time.monotonic() - start:.0f} s"
    outcome = f"caught    {site} by {caught_by}" if caught_by else f"survived  {site} {site.code}"
    if caught_by is None:
        outcome = f"no mutant {site} does not compile"
    print(f"[{number}] {outcome}, {seconds}", flush=True)


def run(draws, count, stages):
    """What caught each site that was tried ("" if nothing did, None if it does not compile): of each draw, the first `count`
    sites that compile. What several draws have in common is tried once.
    """
    copy_tree()
    first, *others = stages
    prepare(first)
    outcomes = {}
    while batch := {site for draw in draws for site in missing_from(draw, count, outcomes)}:
        # In the order of files, so that few are compiled twice.
        for number, site in enumerate(sorted(batch, key=lambda site: (site.path, site.begin)), 1):
            start = time.monotonic()
            likely = next((tests for folder, tests in FIRST_TESTS.items() if site.path.startswith(folder)), None)
            outcomes[site] = try_mutant(site, first, likely)
            report(f"{number:2}/{len(batch)}", site, outcomes[site], start)
    # The other stages take longer and see only what the first has not caught.
    for stage in others:
        if survivors := [site for site in outcomes if outcomes[site] == ""]:
            print(f"{len(survivors)} not caught so far go on to {stage.name}", flush=True)
            prepare(stage)
            for number, site in enumerate(survivors, 1):
                start = time.monotonic()
                outcomes[site] = try_mutant(site, stage)
                report(f"{number:2}/{len(survivors)}", site, outcomes[site], start)
    return outcomes


def tried_of(draw, count, outcomes):
    """The first `count` sites of the draw that were tried and compile."""
    return [site for site in draw if outcomes.get(site) is not None][:count]


def missing_from(draw, count, outcomes):
    """The sites of the draw to try next, so that `count` of it are tried in the end."""
    return [site for site in draw if site not in outcomes][: count - len(tried_of(draw, count, outcomes))]


def shuffled(sites, seed):
    result = list(sites)
    random.Random(seed).shuffle(result)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog="exit: 0 enough were caught, 1 too few, 2 wrong usage")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="each draws sites of its own (default: 1)")
    parser.add_argument("--count", type=int, default=40, help="mutants to try for each seed (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print all sites and try none")
    parser.add_argument("--only", metavar="REGEX", help="draw from sites whose file:line or kind matches")
    parser.add_argument("--chance", action="store_true", help="try the faults that work by chance on some machine instead")
    parser.add_argument("--keep", action="store_true", help=f"leave the copy in {SCRATCH.relative_to(ROOT)}")
    arguments = parser.parse_args()

    sites = chance_sites() if arguments.chance else find_sites()
    if arguments.only:
        sites = [site for site in sites if re.search(arguments.only, str(site))]
    print_counts(sites)
    if arguments.list:
        print("\n".join(f"{site}  {site.code}" for site in sites))
        return 0
    if arguments.chance:
        draws, arguments.count = {"--chance": sites}, len(sites)
    else:
        draws = {f"--seed {seed}": shuffled(sites, seed) for seed in arguments.seed}
        print(f"drawing {min(arguments.count, len(sites))} for each of {', '.join(draws)}", flush=True)
    start = time.monotonic()
    outcomes = run(draws.values(), arguments.count, ci_tier(arguments.jobs))
    for site in outcomes:
        if outcomes[site] == "":
            print(f"\nsurvived: {site}\n{site.diff((SCRATCH / site.path).read_text())}")
    print()
    tried, caught = 0, 0
    for name, draw in draws.items():
        results = [outcomes[site] for site in tried_of(draw, arguments.count, outcomes)]
        print(f"{sum(map(bool, results))} of {len(results)} mutants caught, {name}")
        tried, caught = tried + len(results), caught + sum(map(bool, results))
    print(f"{caught} of {tried} in all, {time.monotonic() - start:.0f} s")
    if not arguments.keep:
        shutil.rmtree(SCRATCH, ignore_errors=True)
    return 0 if tried and caught >= LEAST_CAUGHT * tried else 1


if __name__ == "__main__":
    sys.exit(main())
