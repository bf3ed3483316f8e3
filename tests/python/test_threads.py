"""Calls that wait let other threads of Python run: each script would wait for ever if one of them kept the GIL."""
from __future__ import annotations

import pytest
from test_host_op import run_script

# The op of `program` goes on only when the thread `worker`, which needs the GIL, has answered: so it ends only if the call
# that waits for it has let both run.
PROGRAM = """
import queue, tempfile
asked, answered = queue.Queue(), queue.Queue()
def work():
    while asked.get() is not None: answered.put(1)
worker = threading.Thread(target=work); worker.start()
def ask(x):
    asked.put(1); answered.get()
    return x + np.float32(1)
def build():
    g = gs.Graph()
    x = g.input("x", gs.f32)
    v = gs.Variable("v", 0.0)
    y = gs.host_op(ask, out=(gs.f32, ()))(x)
    g.assign(v, y); g.record("y", y); g.output("y", y)
    program = gs.compile(g, device)
    program.write("x", 1)
    return program, v
program, v = build()
"""

CALLS = ["program.sync()", "program.records('y')", "program.output('y')", "program.steps()", "program.set_steps(3)",
         "program.bind()", "program.memory()", "program.time_ops(2)", "v.read()", "v.write(1.0)", "gs.snapshot(program)",
         "program.write('x', 2)", "program.run(gs.interactive_serial)", "del program", "program.counters()",
         "gs.save(tempfile.mkdtemp() + '/c.safetensors', program)"]


def test_calls_that_wait_release_the_gil(device):
    out = run_script(PROGRAM + f"""
for call in {CALLS!r}:
    for mode in (gs.interactive, gs.sink):
        program, v = build()
        program.run(mode, steps=3)
        exec(call)
        program = None
asked.put(None); worker.join()
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
