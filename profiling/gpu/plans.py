"""The plans: lists of items in the order of what they tell. An item that does not fit into the rest of the time is left
for the next call, which --resume goes on with."""

import dataclasses
import functools
import threading
from collections.abc import Callable

from gpu import items, machine, ranks, tools
from gpu.gtest import counts_of, has_failed
from gpu.session import CutOff, Session, Skipped


@dataclasses.dataclass
class Item:
    """`least`: seconds without which it is not worth beginning. `beside`: it runs beside the items that follow, up to the
    next one that is `alone`, because that one measures times or must not be disturbed."""

    name: str
    function: Callable[[Session], None]
    least: float = 10
    beside: bool = False
    alone: bool = False


def item(name: str, function: Callable, *arguments, least: float = 10, beside: bool = False, alone: bool = False, **named) -> Item:
    return Item(name, functools.partial(function, *arguments, **named) if not arguments else lambda session: function(session, *arguments, **named),
                least, beside, alone)


BENCHED = "chain,wide,mlp,charmlp,lstm,lstm-scan,gpt,jacobi,branch,hetero,generate"


def bench(session: Session, name: str, workloads: str, modes: str, *arguments, steps: int = 100) -> None:
    if session.is_emulated:
        workloads, modes, steps = "chain,mlp", "interactive-serial,sink", 2
    items.bench(session, name, workloads, "--steps", steps, "--mode", modes, *arguments)


def first() -> list[Item]:
    """Does it work at all, how fast is it, and which tests and assumptions fail. Times come before what loads the machine."""
    return [
        item("hello", items.hello, alone=True),
        item("probe", items.probe, "gpu_probe", alone=True),
        item("launch_baseline", items.baseline, alone=True),
        item("bench", bench, "bench", BENCHED, "interactive-serial,interactive-parallel,sink", least=60, alone=True),
        item("torch", items.torch, "torch", 100, "eager,graph", "mlp,charmlp,lstm,gpt,wide", least=30, alone=True),
        item("tests_alone", items.tests_alone, alone=True),
        item("conformance", items.conformance, 4, 200, beside=True),
        item("tests", items.tests, least=30),
        item("tests_fusion", items.tests_fusion, least=20),
        item("tests_may_hang", items.tests_may_hang, alone=True),
        item("tests_random", items.tests_random, least=40),
        item("existing_trainer", items.trainer, 2, 1000, alone=True),
        item("memcheck", items.sanitizer, "memcheck", 60, "01_hello"),
    ]


def again() -> list[Item]:
    """What failed, closely; then everything that had no time before."""
    return [
        item("products", items.products, least=30, alone=True),
        item("open_questions", items.probe, "gpu_open_questions", 170, alone=True),
        item("again", tools.again, alone=True),
        item("again_under_memcheck", tools.again_under_memcheck, least=20),
        item("endurance_nodes", items.bytes_per_node, alone=True),
        item("tests_alone", items.tests_alone, alone=True),
        item("conformance", items.conformance, 3, 250, beside=True),
        item("tests_fused", items.tests_fused, least=40),
        item("tests_may_hang", items.tests_may_hang, alone=True),
        item("names_by_cupti", tools.names_by_cupti, least=20, alone=True),
        item("names_by_ncu", tools.names_by_ncu, least=20),
        item("names_by_nsys", tools.names_by_cupti, "nsys", least=20),
        item("sanitized_programs", tools.sanitized_programs, least=30),
        item("memcheck_tests", tools.sanitized_tests, "memcheck", least=40),
        item("racecheck_tests", tools.sanitized_tests, "racecheck", least=40),
        item("initcheck_tests", tools.sanitized_tests, "initcheck", least=30),
        item("bench", bench, "bench", "mlp,gpt,lstm-scan", "interactive-serial,sink", least=20, alone=True),
    ]


def rounds(session: Session) -> None:
    small = session.is_emulated
    items.rounds(session, "chain,mlp" if small else BENCHED, "interactive-serial,sink", 2 if small else 100, 2 if small else 3)


def speed() -> list[Item]:
    """How fast it is, against hand-written code and against PyTorch, and where the time goes. Nothing runs beside anything."""
    steps = [item(f"{launch}_steps_a_launch", bench, f"bench-{launch}-steps", "chain,mlp,charmlp,lstm,gpt", "sink", "--steps-per-launch", launch,
                  steps=6 * launch, least=20, alone=True) for launch in (16, 64)]
    return [
        item("clocks_before", tools.clocks, alone=True),
        item("products", items.products, least=30, alone=True),
        item("rounds", rounds, least=60, alone=True),
        item("gpt2_small", items.torch, "torch-gpt2-small", 150, "eager,graph", "gpt", steps=8, size="large", least=60, alone=True),
        item("programmatic_off", bench, "bench-programmatic-off", "chain,wide,mlp,lstm,gpt", "sink", least=15, alone=True),
        item("programmatic_on", bench, "bench-programmatic-on", "chain,wide,mlp,lstm,gpt", "sink", "--programmatic-launch", least=15, alone=True),
        *steps,
        item("torch", items.torch, "torch", 100, "eager,graph", "mlp,charmlp,lstm,gpt,wide", least=30, alone=True),
        item("ncu_gpt", tools.ncu, "gpt", 90, least=20, alone=True),
        item("ncu_mlp", tools.ncu, "mlp", 60, least=20, alone=True),
        item("ncu_lstm_scan", tools.ncu, "lstm-scan", 90, least=20, alone=True),
        item("ops", items.ops, least=40, alone=True),
        item("endurance", items.endurance, least=40, alone=True),
        item("endurance_nodes", items.bytes_per_node, alone=True),
        item("gpt2_small_compile", items.torch, "torch-gpt2-small-compile", 200, "compile", "gpt", steps=8, size="large", least=80, alone=True),
        item("torch_compile", items.torch, "torch-compile", 140, "compile", "mlp,gpt", least=50, alone=True),
        item("existing_trainer", items.trainer, 5, 2000, least=20, alone=True),
        item("no_fuse", bench, "bench-no-fuse", "wide,mlp,lstm,gpt", "sink", "--no-fuse", least=15, alone=True),
        item("no_unroll", bench, "bench-no-unroll", "lstm-scan,generate,jacobi", "sink", "--no-unroll", least=15, alone=True),
        item("crossing_cost", items.crossings, alone=True),
        item("shape_changes", items.shape_changes, least=20, alone=True),
        item("clocks_after", tools.clocks, alone=True),
    ]


def several_ranks() -> list[Item]:
    """Programs of several processes, on a machine of two to eight GPUs with MPI and NCCL. What needs less runs with less, and
    the others say what is missing."""
    random = "*RandomRanks*"
    return [
        item("ranks_machine", ranks.ranks_machine, alone=True),
        item("ranks_alone", ranks.alone, alone=True),
        item("ranks_samples", ranks.samples, alone=True),
        item("ranks_training", ranks.training, alone=True),
        item("ranks_tests_nccl", ranks.tests, 2, True, least=40, alone=True),
        item("ranks_scaling_nccl", ranks.scaling, True, least=40, alone=True),
        item("ranks_overlap_cupti", ranks.overlap, "cupti", least=20, alone=True),
        item("ranks_overlap_nsys", ranks.overlap, "nsys", least=20, alone=True),
        item("ranks_scaling_mpi", ranks.scaling, False, least=40, alone=True),
        item("ranks_tests_mpi", ranks.tests, 2, False, least=40, alone=True),
        item("ranks_mistakes", ranks.mistakes, least=40, alone=True),
        item("ranks_random_4", ranks.tests, 4, True, random, least=40, alone=True),
    ]


PLANS: dict[str, Callable[[], list[Item]]] = {"first": first, "again": again, "speed": speed, "ranks": several_ranks}


class PlanRun:
    """Runs the items of a plan. What is in session.items when the process ends, however it ends, is true."""

    def __init__(self, session: Session, plan: list[Item]):
        self.session, self.plan = session, plan
        self.beside: list[tuple[Item, threading.Thread]] = []

    def mark(self, item: Item, verdict: str, seconds: float | None = None) -> None:
        with self.session.lock:
            self.session.items[item.name] = {"verdict": verdict} | ({} if seconds is None else {"seconds": round(seconds, 1)})
        self.session.save()

    def run_one(self, item: Item) -> None:
        session, begun = self.session, self.session.elapsed()
        self.mark(item, "cut off")
        verdict = "done"
        try:
            item.function(session)
        except Skipped as e:
            verdict = f"skipped: {e}"
            session.say(f"{item.name}: skipped: {e}")
        except Exception as e:  # pylint: disable=broad-exception-caught  # the next items must have their turn
            verdict = f"broke off: {type(e).__name__}: {session.hide(str(e))}"
            session.say(f"{item.name}: BROKE OFF: {type(e).__name__}: {e}")
        if verdict == "done" and session.left() < 8:
            verdict = "cut off"
        self.mark(item, verdict, session.elapsed() - begun)

    def join(self) -> None:
        for _, thread in self.beside:
            while thread.is_alive():
                thread.join(0.5)  # a signal can end this wait
        self.beside.clear()

    def run(self) -> None:
        for item in self.plan:
            if self.session.items.get(item.name, {}).get("verdict", "").startswith(("done", "skipped")):
                self.session.say(f"{item.name}: done in the call that is resumed")
                continue
            self.mark(item, "not reached")
        for item in self.plan:
            if self.session.items[item.name]["verdict"] != "not reached":
                continue
            if item.alone:
                self.join()
            if self.session.left() < item.least:
                continue
            if item.beside:
                thread = threading.Thread(target=self.run_one, args=(item,), daemon=True)
                self.beside.append((item, thread))
                thread.start()
            else:
                self.run_one(item)
        self.join()

    def report(self) -> bool:
        """Says what is left, and returns whether the plan is complete."""
        rest = [f"{item.name} ({verdict})" for item in self.plan
                if (verdict := self.session.items[item.name]["verdict"]) in ("not reached", "cut off") or verdict.startswith("broke off")]
        seconds = {name: entry["seconds"] for name, entry in self.session.items.items() if "seconds" in entry}
        for suite, tests in self.session.tests.items():
            self.session.say(f"{suite}: {counts_of(tests)}")
            self.session.say_all([f"{test['outcome']}: {key}" for key, test in sorted(tests.items()) if has_failed(test["outcome"])])
        self.session.say(f"problems: {'; '.join(self.session.problems) or 'none'}")
        self.session.say("seconds: " + ", ".join(f"{name} {took:.0f}" for name, took in seconds.items()))
        self.session.say(f"not reached or not complete: {', '.join(rest) or 'nothing'}")
        return not rest


def run_plan(session: Session, name: str, chosen: list[str]) -> bool:
    """Runs a plan, or the chosen items of it in their order. Returns whether everything ran. Also when the call is told to
    end, what is left is listed."""
    items_of_plan = PLANS[name]()
    if chosen:
        by_name = {item.name: item for item in items_of_plan}
        items_of_plan = [by_name[name] for name in chosen]
    run = PlanRun(session, items_of_plan)
    complete = False
    try:
        machine.describe(session)
        run.run()
    except CutOff as e:
        session.say(f"CUT OFF: {e}")
    finally:
        for item in run.plan:
            session.items.setdefault(item.name, {"verdict": "not reached"})
        complete = run.report()
    return complete
