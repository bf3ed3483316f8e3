"""Calls that wait let other threads of Python run: each script would wait for ever if one of them kept the GIL."""
from __future__ import annotations

import os

import pytest

import cuda_arrays as arrays
import graphsink as gs
from test_host_op import run_script

# The op of `program` goes on only when the thread `worker`, which needs the GIL, has answered: so it ends only if the call
# that waits for it has let both run.
PROGRAM = f"""
import queue, tempfile
sys.path.insert(0, {os.path.dirname(__file__)!r})
import cuda_arrays as arrays
""" + """
asked, answered = queue.Queue(), queue.Queue()
def work():
    while asked.get() is not None: answered.put(1)
worker = threading.Thread(target=work); worker.start()
def ask(x):
    asked.put(1); answered.get()
    return x + np.float32(1)
def build():
    g = gs.Graph()
    x = g.feed("x", gs.f32, (1,))
    v = gs.Variable("v", [0.0])
    y = gs.host_op(ask, out=(gs.f32, (1,)))(x)
    g.assign(v, y); g.record("y", gs.sum(y)); g.output("y", y)
    program = gs.compile(g, device)
    program.write("x", [1])
    return program, v
program, v = build()
"""

# What the calls use: `v` is the Variable of the program that runs.
ARGUMENTS = """
folder = tempfile.mkdtemp()
checkpoint = gs.snapshot(program)
gs.save(folder + "/checkpoint", program)
def graph_of(v):
    g = gs.Graph()
    g.output("v", g.value(v))
    return g
def loader_of(program):
    return gs.Loader(program, {"x": np.ones(8, np.float32)}, gs.sample_order(8, batch=1))
def memory():
    if device != gs.cpu(): return arrays.VersionedArray([0.0])
    page = np.zeros(128, np.uint8)
    begin = -page.ctypes.data % 64
    return page[begin:begin + 4].view(np.float32)
def view(program):
    view = program.output_view("y")
    return view if device == gs.cpu() else view.__dlpack__(max_version=(1, 0))
"""

CALLS = ["program.sync()", "program.records('y')", "program.output('y')", "program.steps()", "program.set_steps(3)",
         "program.bind()", "program.memory()", "program.time_ops(2)", "v.read()", "v.write([1.0])", "gs.snapshot(program)",
         "program.write('x', [2])", "program.run(gs.interactive_serial)", "del program", "program.counters()",
         "gs.save(folder + '/saved', program)", "gs.restore(program, checkpoint)", "gs.restore([v], checkpoint)",
         "gs.load(folder + '/checkpoint', program)", "gs.state_dict(program)", "gs.write_graph(folder + '/graph', graph_of(v))",
         "gs.train(program, loader_of(program), steps=8, progress=False)", "gs.evaluate(program, loader_of(program), ['y'])"]
CALLS_OF_MEMORY = ["program.bind_memory('y', memory())", "view(program)"]


def run_calls(device, calls, prepare="", functions=""):
    """Each call waits for a run, in two modes."""
    out = run_script(PROGRAM + ARGUMENTS + functions + f"""
for call in {calls!r}:
    for mode in (gs.interactive, gs.sink):
        program, v = build()
        {prepare}
        program.run(mode, steps=3)
        exec(call)
        program = None
asked.put(None); worker.join()
print("end")
""", device)
    assert out == "end\n"


def test_calls_that_wait_release_the_gil(device):
    run_calls(device, CALLS)


def test_calls_of_memory_release_the_gil(device):
    if device != gs.cpu() and arrays.cudart is None:
        pytest.skip("no CUDA runtime to allocate memory with")
    run_calls(device, CALLS_OF_MEMORY, "program.bind_memory('y', memory())")


# What there may be on the device beside the program. A device that does one thing at a time computes and frees these only
# when the program has run.
OTHERS = """
import gc
def has_run(graph):
    program = gs.compile(graph, device)
    program.run(); program.sync()
    return program
def variable():
    v = gs.Variable("other", [[1.0]])
    has_run(graph_of(v))
    return v
def optimizer():
    v = gs.Variable("other", [[1.0]])
    g = gs.Graph()
    made = gs.sgd(gs.sum(g.value(v)), [v], lr=0.1, momentum=0.1)
    has_run(g)
    return made
def loaded():
    gs.write_graph(folder + "/other", graph_of(gs.Variable("other", [[1.0]])))
    made = gs.read_graph(folder + "/other")
    has_run(made.graph)
    return made
def staged():
    g = gs.Graph()
    g.record("x", gs.sum(g.feed("x", gs.f32, (1,))))
    return gs.compile(g, device).stage("x", 1)
def make_others():
    global eager, value, top, padded, other, graph, outputs, trained, alone, read, slices, cycle
    eager = gs.Eager(device)
    value = eager.tensor([[1.0]])
    top, padded = gs.top_k(value, 1), gs.nonzero(value)
    other, graph, outputs = variable(), graph_of(variable()), gs.Graph().value(variable())
    trained, alone, read, slices = optimizer(), has_run(graph_of(gs.Variable("other", [[1.0]]))), loaded(), staged()
    cycle = [variable()]; cycle.append(cycle)
"""
CALLS_OF_EAGER = ["gs.relu(value)", "value + 1", "1 - value", "-value", "value == value", "value != value", "value.T",
                  "value[0]", "gs.concat([value, value], 0)", "gs.sum(padded)", "gs.top_k(value, 1)", "gs.Eager(device)",
                  "eager.tensor([1.0])", "gs.read(value)", "repr(value)", "float(value)"]
DROPS = ["del value", "del top", "del padded", "del eager, value, top, padded", "del other", "del graph", "del outputs",
         "del trained", "del alone", "del read", "del slices", "del cycle; gc.collect()"]


def test_ops_of_an_eager_release_the_gil(device):
    run_calls(device, CALLS_OF_EAGER, "make_others()", OTHERS)


def test_what_frees_memory_of_the_device_releases_the_gil(device):
    run_calls(device, DROPS, "make_others()", OTHERS)


def test_what_frees_memory_of_the_device_may_outlive_the_interpreter(device):
    out = run_script(PROGRAM + ARGUMENTS + OTHERS + """
asked.put(None); worker.join()
def slow(x):
    for _ in range(50): os.sched_yield()
    return x
g = gs.Graph()
g.output("y", gs.host_op(slow, out=(gs.f32, ()))(g.input("x", gs.f32)))
program = gs.compile(g, device)
program.write("x", 1)
make_others()
print("end", flush=True)
program.run(steps=3)
""", device)
    assert out == "end\n"


@pytest.mark.parametrize("drop", ["other", "graph", "outputs", "trained", "read", "cycle"])
def test_a_function_may_drop_what_frees_memory_of_its_device(device, drop):
    out = run_script(PROGRAM + ARGUMENTS + OTHERS + f"""
def drop(x):
    global {drop}
    del {drop}
    gc.collect()
    return x
g = gs.Graph()
g.output("y", gs.host_op(drop, out=(gs.f32, ()))(g.input("x", gs.f32)))
program = gs.compile(g, device)
program.write("x", 1)
for mode in (gs.interactive, gs.sink):
    make_others()
    program.run(mode); program.sync()
asked.put(None); worker.join()
print("end")
""", device)
    assert out == "end\n"


# They wait in rare cases only, or compute.
OTHER_CALLS = ["program.stage('x', 1)", "program.write(staged)", "gs.read(value)", "np.asarray(value)",
               "eager.tensor([1.0])", "gs.Eager(device)", "gs.relu(value)", "value + 1", "-value", "value == 1", "value[0]",
               "gs.concat([value, value], 0)"]


def test_other_calls_release_the_gil_too(device):
    """No thread is made to let another run: the one that counts does so only while a call has released the GIL."""
    out = run_script(f"""
import time
sys.setswitchinterval(1e6)
counted, is_done, kept = 0, False, []
def count():
    global counted
    while not is_done:
        counted += 1
        time.sleep(0)
counter = threading.Thread(target=count); counter.start()
g = gs.Graph()
g.record("x", gs.sum(g.feed("x", gs.f32, (1,))))
program = gs.compile(g, device)
program.write("x", [1])
program.run()
eager = gs.Eager(device)
value = eager.tensor([1.0])
for call in {OTHER_CALLS!r}:
    code = compile(call, call, "eval")
    before = seen = counted
    while seen == before:
        staged = program.stage("x", 1)
        before = counted
        kept.append(eval(code))  # what is freed may let others run, too
        seen = counted
is_done = True; counter.join()
print("end")
""", device)
    assert out == "end\n"


def test_two_programs_on_two_threads(device):
    out = run_script(PROGRAM + """
results = []
def train():
    program, v = build()
    for _ in range(20): program.run(steps=3)
    results.append((program.steps(), v.read().item(), len(program.records("y"))))
threads = [threading.Thread(target=train) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
asked.put(None); worker.join()
print(results)
""", device)
    assert out == "[(60, 2.0, 60), (60, 2.0, 60)]\n"


@pytest.mark.parametrize("how", ["del program", "program = None", "sys.exit(0)"])
def test_a_program_may_be_dropped_while_its_function_waits_for_the_gil(device, how):
    run_script(PROGRAM + f"""
program.run(steps=5)
try:
    {how}
finally:
    program = None
    asked.put(None); worker.join()
""", device)
