"""Python functions as ops of a graph: what they compute, how they fail, and who owns them."""
from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import weakref

import numpy as np
import pytest

import graphsink as gs

on_cuda = pytest.mark.skipif(not gs.cuda.is_available(), reason="no CUDA device")

MODES = [gs.interactive_serial, gs.interactive_parallel, gs.split_sink, gs.sink]


@gs.host_op(out=lambda x: (x.dtype, x.shape), grad=lambda inputs, outputs, grads: 2.0 * inputs[0] * grads[0])
def square(x):
    return x * x


def training(device):
    """A step whose loss goes through a Python function."""
    g = gs.Graph()
    x = g.feed("x", gs.f32, (4, 3))
    w = gs.Variable("w", np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2))
    loss = gs.mean(square(x @ w))
    gs.sgd(loss, [w], lr=0.1)
    g.record("loss", loss)
    return gs.compile(g, device), w


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("steps", [1, 4])
def test_trains_with_equal_bits_in_all_modes(device, mode, steps):
    data = np.random.default_rng(1).standard_normal((8, 4, 3)).astype(np.float32)
    losses = []
    program, w = training(device)
    for begin in range(0, 8, steps):
        program.write("x", data[begin:begin + steps])
        program.run(mode, steps=steps)
        losses += program.records("loss").tolist()
    expected, v = [], np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2).astype(np.float64)
    for x in data.astype(np.float64):
        y = x @ v
        expected.append((y * y).mean())
        v -= 0.1 * x.T @ (2 * y / y.size)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    reference, other = training(device)
    reference.write("x", data)
    reference.run(gs.interactive_serial, steps=8)
    assert losses == reference.records("loss").tolist()
    assert (w.read() == other.read()).all()


def test_several_outputs_dtypes_and_numbers(device):
    @gs.host_op(out=lambda x, n: [(x.dtype, x.shape), (gs.i32, ()), (gs.bf16, x.shape)])
    def parts(x, n):
        assert x.dtype == np.float32 and n.dtype == np.int32
        return x.T[::-1].T, int(n) + 1, x

    g = gs.Graph()
    x = g.input("x", gs.f32, (2, 3))
    n = g.input("n", gs.i32)
    for name, value in zip("abc", parts(x, n)):
        g.output(name, value)
    program = gs.compile(g, device)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    program.write("x", data)
    program.write("n", 4)
    program.run()
    assert (program.output("a") == data[:, ::-1]).all()
    assert program.output("b") == 5
    assert (program.output("c") == data).all()


def test_open_dimensions(device):
    g = gs.Graph()
    x = g.input("x", gs.f32, (gs.open(4), 2))
    total = gs.host_op(lambda x: x.sum(axis=1), out=lambda x: (x.dtype, x.shape[:1]))
    y = total(x)
    assert isinstance(y.shape[0], gs.Dim)
    g.output("y", y)
    program = gs.compile(g, device)
    for rows in (4, 7, 1):
        program.write("x", np.ones((rows, 2), np.float32))
        program.run()
        assert program.output("y").tolist() == [2.0] * rows


def test_effects_run_in_order_though_nothing_uses_them(device):
    seen = []
    note = gs.host_op(lambda x: seen.append(float(x)), out=None, effect=True)
    g = gs.Graph()
    x = g.feed("x", gs.f32)
    assert note(x) == ()
    note(x + 0.5)
    program = gs.compile(g, device)
    for mode in MODES:
        program.write("x", np.array([1, 2], np.float32))
        program.run(mode, steps=2)
    program.sync()
    assert seen == [1, 1.5, 2, 2.5] * len(MODES)


def test_an_array_that_the_function_keeps_stays_as_it_was(device):
    kept = []

    @gs.host_op(out=lambda x: (x.dtype, x.shape))
    def keeps(x):
        kept.append(x[1:])
        return x

    g = gs.Graph()
    x = g.feed("x", gs.f32, (3,))
    g.output("y", keeps(x) + 1.0)
    program = gs.compile(g, device)
    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    program.write("x", data)
    program.run(steps=4)
    program.sync()
    del program
    assert [view.tolist() for view in kept] == data[:, 1:].tolist()


def test_a_function_may_change_its_operands(device):
    @gs.host_op(out=lambda x: (x.dtype, x.shape))
    def doubled(x):
        x *= 2
        return x

    g = gs.Graph()
    x = g.input("x", gs.f32, (3,))
    g.output("y", doubled(x) + x)
    program = gs.compile(g, device)
    program.write("x", [1, 2, 3])
    for _ in range(3):
        program.run()
    assert program.output("y").tolist() == [3, 6, 9]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_exception_fails_the_step_and_is_the_cause(device, mode):
    class Strange(Exception):
        pass

    calls = []

    @gs.host_op(out=lambda x: (x.dtype, x.shape))
    def picky(x):
        calls.append(1)
        if x > 2:
            raise Strange("more than two")
        return x

    g = gs.Graph()
    x = g.feed("x", gs.f32)
    v = gs.Variable("v", 0.0)
    g.assign(v, picky(x) + g.value(v))
    program = gs.compile(g, device)
    program.write("x", np.array([1, 2, 3, 4], np.float32))
    program.run(mode, steps=4)
    with pytest.raises(gs.Error, match="host_op\\(picky\\).*Strange: more than two") as raised:
        program.sync()
    assert raised.value.code == gs.ErrorCode.step_failed
    assert raised.value.file == __file__
    cause = raised.value.__cause__
    assert isinstance(cause, Strange) and cause.__traceback__.tb_frame.f_code.co_name == "picky"
    assert program.steps() == 2 and v.read() == 3
    program.write("x", np.array(1, np.float32))
    program.run(mode)
    assert program.steps() == 3 and v.read() == 4


@pytest.mark.parametrize("returned, problem", [
    (lambda x: x.astype(np.float64), r"returned f64\[3\] for an output of f32\[3\]"),
    (lambda x: x[:2], r"returned f32\[2\] for an output of f32\[3\]"),
    (lambda x: None, "TypeError"),
    (lambda x: "text", "TypeError"),
])
def test_results_are_checked(device, returned, problem):
    g = gs.Graph()
    x = g.input("x", gs.f32, (3,))
    g.output("y", gs.host_op(returned, out=(gs.f32, (3,)))(x))
    program = gs.compile(g, device)
    program.write("x", [1, 2, 3])
    program.run()
    with pytest.raises(gs.Error, match=problem):
        program.sync()


def test_the_number_of_results_is_checked(device):
    g = gs.Graph()
    x = g.input("x", gs.f32)
    a, b = gs.host_op(lambda x: (x, x, x), out=[(gs.f32, ()), (gs.f32, ())])(x)
    g.output("y", a + b)
    program = gs.compile(g, device)
    program.write("x", 1)
    program.run()
    with pytest.raises(gs.Error, match="returned 3 results for 2 outputs"):
        program.sync()


def test_without_a_gradient_grad_raises():
    g = gs.Graph()
    x = g.input("x", gs.f32, (3,))
    y = gs.host_op(lambda x: x, out=(gs.f32, (3,)))(x)
    with pytest.raises(gs.Error, match=r"has no gradient.*give host_op\(\) a grad="):
        gs.grad(gs.sum(y), x)
    z = gs.host_op(lambda x: x, out=(gs.f32, (3,)), grad=lambda i, o, d: [d[0], d[0]])(x)
    with pytest.raises(TypeError, match="each of 1 inputs"):
        gs.grad(gs.sum(z), x)


@pytest.mark.parametrize("out", [gs.f32, [gs.f32], (gs.f32,), [(gs.f32, (), 1)]])
def test_types_of_outputs_are_checked(out):
    g = gs.Graph()
    x = g.input("x", gs.f32)
    with pytest.raises(TypeError, match="out"):
        gs.host_op(lambda x: x, out=out)(x)


def test_the_program_itself_cannot_be_used_in_its_step(device):
    def reads(x):
        program.sync()
        return x

    g = gs.Graph()
    x = g.input("x", gs.f32)
    g.output("y", gs.host_op(reads, out=(gs.f32, ()))(x))
    program = gs.compile(g, device)
    program.write("x", 1)
    program.run()
    with pytest.raises(gs.Error, match="body of an op of the same program"):
        program.sync()


def test_explain_names_the_function_its_line_and_its_cost(device):
    program, _ = training(device)
    text = program.explain()
    assert "host_op(square)" in text and "test_host_op.py" in text
    if device != gs.cpu():
        assert "runs on the host" in text and "Python's lock" in text


@on_cuda
def test_a_run_of_several_steps_takes_a_launch_for_each():
    program, _ = training(gs.cuda(0))
    text, plan = program.explain(), program.plan()
    assert "several steps take several launches" in text and "the step holds host nodes, and a loop in a launch may not" in text
    assert plan.sinks_whole and plan.launches_per_step == 1 and plan.host_nodes > 0
    for run in (1, 2):
        program.write("x", np.ones((4, 4, 3), np.float32))
        program.run(steps=4)
        counted = program.counters()
        assert counted.graph_launches == 4 * run - 1  # the first step runs op by op
        assert counted.host_nodes == 4 * run * plan.host_nodes


def halving():
    """A step whose loop calls a Python function: four steps take 3, 2, 4 and 0 iterations."""
    @gs.host_op(out=(gs.f32, ()))
    def half(x):
        return x / np.float32(2)

    g = gs.Graph()
    x = g.feed("x", gs.f32)
    g.record("y", gs.while_(x + 0.0, lambda y: y > 1.0, half))
    program = gs.compile(g, gs.cuda(0))
    return program


@on_cuda
def test_a_loop_around_a_function_is_driven_by_the_host():
    program = halving()
    text, plan = program.explain(), program.plan()
    assert "a loop is driven by the host" in text and "test_host_op.py" in text
    assert "host_op(half) in its body runs on the host, and a conditional node may not hold host nodes" in text
    assert not plan.sinks_whole and plan.launches_per_step == 2  # before and behind the loop
    launches = []
    for run in (1, 2):
        program.write("x", np.array([8, 4, 16, 1], np.float32))
        program.run(steps=4)
        assert program.records("y").tolist() == [1, 1, 1, 1]
        assert program.counters().host_nodes == 9 * run
        launches.append(program.counters().graph_launches)
    assert launches[1] - launches[0] == 4 * 2 + 9  # and one for each iteration


def colours_of(html):
    """The colours of the boxes, by what is written in them."""
    colours = {}
    for colour, text in re.findall(r'<span title="[^"]*" style="background:(#\w+);[^"]*">([^<]*)</span>', html):
        colours.setdefault(text, set()).add(colour)
    return colours


@on_cuda
def test_the_picture_is_coloured_by_device():
    program, _ = training(gs.cuda(0))
    html = program._repr_html_()
    colours = colours_of(html)
    assert colours["matmul"] == colours["sgd"]
    assert len(colours["matmul"] | colours["host_op(square)"] | colours["copy"]) == 3
    assert "0: launch</span>" in html and "dashed" not in html
    html = halving()._repr_html_()
    assert "op by op</span>" in html and "dashed" in html


def test_eager(device):
    with gs.eager(device):
        if device != gs.cpu():
            with pytest.raises(gs.Error, match="use an Eager on gs.cpu"):
                square(gs.tensor([1.0]))
            return
        y = square(gs.tensor([1.0, 2.0, 3.0]))
        assert np.asarray(y + 1.0).tolist() == [2, 5, 10]


def test_methods(device):
    class Scale:
        factor = 3

        @gs.host_op(out=lambda x: (x.dtype, x.shape))
        def apply(self, x):
            return np.float32(self.factor) * x

    g = gs.Graph()
    x = g.input("x", gs.f32)
    g.output("y", Scale().apply(x))
    program = gs.compile(g, device)
    program.write("x", 2)
    program.run()
    assert program.output("y") == 6


class Owner:
    """Its op refers to it, and it to the program."""

    def __init__(self, device):
        self.calls = 0
        g = self.graph = gs.Graph()
        x = g.input("x", gs.f32)
        g.output("y", gs.host_op(self.count, out=(gs.f32, ()))(x))
        self.program = gs.compile(g, device)
        self.program.write("x", 1)

    def count(self, x):
        self.calls += 1
        return x


def test_no_cycle_leaks(device):
    owner = Owner(device)
    owner.program.run()
    owner.program.sync()
    assert owner.calls == 1
    gone, graph, program = weakref.ref(owner), weakref.ref(owner.graph), weakref.ref(owner.program)
    del owner
    gc.collect()
    assert gone() is None and graph() is None and program() is None


def test_a_program_keeps_the_functions_of_its_graph(device):
    owner = Owner(device)
    program = owner.program
    del owner
    gc.collect()
    program.run()
    assert program.output("y") == 1


def test_an_exception_that_refers_to_the_program_leaks_nothing(device):
    class Bad(Owner):
        def count(self, x):
            raise ValueError("bad")

    bad = Bad(device)
    bad.program.run()
    with pytest.raises(gs.Error):
        bad.program.sync()
    bad.program.run()  # this failure is reported to nobody
    gone = weakref.ref(bad)
    del bad
    gc.collect()
    assert gone() is None


def test_a_program_that_its_own_step_drops_ends_later(device):
    out = run_script("""
import gc
programs = []
def drops(x):
    programs.clear()
    gc.collect()
    print("dropped", flush=True)
    return x
def make():
    g = gs.Graph()
    x = g.input("x", gs.f32)
    g.output("y", gs.host_op(drops, out=(gs.f32, ()))(x))
    programs.append(gs.compile(g, device))
    programs[0].write("x", 1)
    programs[0].run()
for _ in range(2):
    make()
    if device != gs.cpu(): programs[0].sync()  # the software device works while somebody waits for it
    while programs: pass
""", device)
    assert out == "dropped\ndropped\n"


WATCHDOG = "import faulthandler; faulthandler.dump_traceback_later(180, exit=True)\n"


def run_script(text: str, device: gs.DeviceId, code: int = 0, watchdog: str = WATCHDOG, **variables: str) -> str:
    script = (watchdog + f"import os, sys, threading, numpy as np, graphsink as gs\ndevice = {device!r}\n" + text)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(gs.__file__)), **variables}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == code, done.stderr
    assert "nanobind: leaked" not in done.stderr, done.stderr
    return done.stdout


PROGRAM = """
import time
started = threading.Event()
def slow(x):
    started.set()
    for _ in range(50): time.sleep(0)
    print("done", flush=True)
    return x
g = gs.Graph()
x = g.input("x", gs.f32)
g.output("y", gs.host_op(slow, out=(gs.f32, ()))(x))
program = gs.compile(g, device)
program.write("x", 1)
"""


def test_the_interpreter_waits_for_steps_before_it_ends(device):
    assert run_script(PROGRAM + "program.run(steps=3)", device) == "done\n" * 3


def test_the_process_may_end_within_a_function(device):
    run_script(PROGRAM + "program.run(steps=3)\nsys.exit(5)", device, 5)
    run_script(PROGRAM + "threading.Thread(target=lambda: (started.wait(), os._exit(6))).start()\n"
               "program.run(steps=100000); program.sync()", device, 6)


def test_a_cycle_is_no_leak_at_exit(device):
    run_script(PROGRAM + """
class Owner: pass
owner = Owner(); owner.program = program; slow.owner = owner
program.run(); program.sync()
""", device)


def test_a_child_of_fork_gets_an_error_or_just_ends(device):
    out = run_script(PROGRAM + """
program.run(); program.sync()
child = os.fork()
if child == 0:
    try: program.run()
    except gs.Error as error: print("refused" if "fork" in str(error) else error, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
child = os.fork()
if child == 0: sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
program.run(); program.sync()
""", device, watchdog="")  # at its end a child would wait for the thread of the watchdog
    assert out == "done\nrefused\ndone\n"


@pytest.mark.parametrize("error, text", [
    (ValueError("real reason\nsecond line"), "ValueError: real reason"), (ValueError("x\udc80"), "x.udc80"), (KeyError(3), "KeyError: 3")])
def test_an_exception_of_any_text_is_told_and_kept(device, error, text):
    error.add_note("a hint")

    @gs.host_op(out=lambda x: (x.dtype, x.shape))
    def fails(x):
        raise error

    graph = gs.Graph()
    graph.output("y", fails(graph.input("x", gs.f32, (2,))))
    program = gs.compile(graph, device)
    program.write("x", [1.0, 2.0])
    with pytest.raises(gs.Error, match=text) as caught:
        program.run()
        program.sync()
    assert caught.value.__cause__ is error


def test_what_is_no_op_is_refused_where_it_is_made():
    with pytest.raises(TypeError, match="a function of arrays"):
        gs.host_op(3, out=None)
    with pytest.raises(TypeError, match="grad is a function"):
        gs.host_op(lambda x: x, out=None, grad=3)
    x = gs.Graph().input("x", gs.f32, (2,))
    for out, text in ((("foo", (2,)), "foo"), ((gs.f32, (2.5,)), "2.5"), ((gs.f32, 2), "is a tuple")):
        with pytest.raises((TypeError, gs.Error), match=text):
            gs.host_op(lambda a: a, out=out)(x)


def test_an_op_of_an_eager_tells_its_cause():
    error = ValueError("at once")

    @gs.host_op(out=lambda x: (x.dtype, x.shape))
    def fails(x):
        raise error

    with gs.eager(), pytest.raises(gs.Error, match="at once") as caught:
        gs.read(fails(gs.tensor([1.0])))
    assert caught.value.__cause__ is error


# Functions of @gs.program that the functions of host ops call.
TRACED = """
def op(function): return gs.host_op(function, out=lambda x: (x.dtype, x.shape))
ones = np.ones(2, np.float32)

def inner_error(call):
    try: call()
    except gs.Error as error:
        assert isinstance(error.__cause__, gs.Error) and error.code == gs.ErrorCode.step_failed, error
        return f"{error.__cause__.op}: {error.__cause__.problem}"
    return "no error"
"""
REFUSED = "was called by the body of an op, while another call of it with the same types runs, which may wait for that op"


def test_a_function_may_call_another_signature_of_its_program():
    assert run_script(TRACED + """
@op
def doubled_first(x): return step(x[:1])["y"] + x
@gs.program
def step(x): return {"y": x * 2.0} if x.shape == (1,) else {"y": doubled_first(x)}
print(step(ones)["y"], step(ones)["y"])
""", gs.cpu()) == "[3. 3.] [3. 3.]\n"


def test_a_function_that_calls_its_own_program_fails(device):
    assert run_script(TRACED + """
@op
def again(x): return step(x)["y"]
@gs.program(target=device)
def step(x): return {"y": again(x)}
print(inner_error(lambda: step(ones)), inner_error(lambda: step(ones)), sep="\\n")
""", device) == 2 * f"step: {REFUSED}\n"


@on_cuda
def test_a_function_of_a_step_on_a_gpu_does_not_wait_for_its_program():
    assert run_script(TRACED + """
@op
def doubled_first(x): return step(x[:1])["y"] + x
@gs.program(target=device)
def step(x): return {"y": x * 2.0} if x.shape == (1,) else {"y": doubled_first(x)}
try: step(ones)
except gs.Error as error: print("in the body of a CPU op" in error.__cause__.remedy)
""", gs.cuda(0)) == "True\n"


def test_programs_that_call_each_other_from_two_threads_fail():
    """The second may find that the first has failed already. Then it calls it anew, and that call raises."""
    assert run_script(TRACED + """
begun = {"a": threading.Event(), "b": threading.Event()}
def begin(mine, other): begun[mine].set(); assert begun[other].wait(60)
@op
def call_b(x): begin("a", "b"); return b(x)["y"]
@op
def call_a(x): begin("b", "a"); return a(x)["y"]
@gs.program
def a(x): return {"y": call_b(x)}
@gs.program
def b(x): return {"y": call_a(x)}
found = {}
def run(program):
    try: found[program.__name__] = program(ones)
    except gs.Error as error: found[program.__name__] = error
threads = [threading.Thread(target=run, args=[program]) for program in (a, b)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for name in ("a", "b"): print(found[name])
""", gs.cpu()).count(REFUSED) == 2


def test_a_function_waits_for_a_program_that_waits_for_nobody():
    assert run_script(TRACED + """
asks = threading.Event()
@gs.program
def plain(x): return {"y": x + 1.0}
plain(ones)
@op
def call(x): asks.set(); return plain(x)["y"]
@gs.program
def step(x): return {"y": call(x)}
(of_plain,) = plain._steps.values()
found = []
thread = threading.Thread(target=lambda: found.append(step(ones)["y"]))
with of_plain._lock:  # as while another thread calls it
    thread.start()
    assert asks.wait(60)
thread.join()
print(found[0])
""", gs.cpu()) == "[2. 2.]\n"
