"""The end of Python: while daemon threads use the library, and with steps that nobody has asked for."""
import subprocess
import sys

import pytest

import graphsink as gs

# Exit handlers that were registered before the library's run behind it.
BEGIN = """
import atexit, faulthandler, pathlib, sys, threading
faulthandler.dump_traceback_later(50, exit=True)
def at_exit():
    last()
    print("end")
atexit.register(at_exit)
import numpy as np
import graphsink as gs
graph = gs.Graph()
x = graph.input("x", gs.f32, (64, 64))
w = gs.Variable("w", gs.zeros((64, 64)))
graph.assign(w, x @ graph.value(w))
program = gs.compile(graph, gs.cpu())
program.write("x", np.eye(64, dtype=np.float32))
begun, is_over, lock = threading.Event(), threading.Event(), threading.Lock()
"""
# A thread looks at the program, may be refused, and is joined.
WATCHED = """
def work():
    while not is_over.is_set():
        try:
            program.counters()
        except gs.Error:
            pass
        begun.set()
def last():
    is_over.set()
    thread.join()
"""
# A thread takes turns by a lock, which the library does not know.
LOCKED = """
def work():
    while True:
        with lock:
            program.run(steps=200)
        begun.set()
def last():
    with lock:
        pass
"""
# A mistake of a thread is an Error as ever.
MISTAKEN = """
caught = []
def work():
    begun.set()
    is_over.wait()
    try:
        gs.sample_order(0, batch=8)
    except gs.Error as error:
        caught.append(error)
def last():
    is_over.set()
    thread.join()
    assert len(caught) == 1
"""
# A thread wants the next batch when the loader is closed.
LOADED = """
fed = gs.Graph()
fed.record("sum", gs.sum(fed.feed("x", gs.f32, (4, 4))))
reader = gs.compile(fed, gs.cpu())
loader = gs.Loader(reader, gs.tensor_source({"x": np.ones((8, 4), np.float32)}), gs.sample_order(8, batch=4), workers=1)
def work():
    begun.set()
    while True:
        loader.next()
def last():
    thread.join()
"""
# A training ends, with its file, and does not return to what would go on with another one.
TRAINED = """
folder = pathlib.Path(sys.argv[1])
fed = gs.Graph()
fed.record("sum", gs.sum(fed.feed("x", gs.f32, (4, 4))))
reader = gs.compile(fed, gs.cpu())
loader = gs.Loader(reader, gs.tensor_source({"x": np.ones((8, 4), np.float32)}), gs.sample_order(8, batch=4), workers=1)
def work():
    while True:
        gs.train(reader, loader, steps=10**9, progress=False, save=gs.SaveOptions(folder), actions=[(1, lambda steps: begun.set())])
def last():
    thread.join()
    assert len(list(folder.glob("*.safetensors"))) == 1
"""
END = """
thread = threading.Thread(target=work, daemon=True)
thread.start()
begun.wait()
{run}
"""
RUN = """
for _ in range(3):
    while True:
        try:
            program.run(steps=200)
            break
        except gs.Error:
            pass
"""


@pytest.mark.parametrize("script", [WATCHED + END.format(run=RUN), LOCKED + END.format(run=""), MISTAKEN + END.format(run=""),
                                    LOADED + END.format(run=""),
                                    TRAINED + END.format(run="")],
                         ids=["watched", "locked", "mistaken", "loaded", "trained"])
def test_exit_handlers_may_wait_for_daemon_threads(script, tmp_path):
    for run in range(3):
        done = subprocess.run([sys.executable, "-c", BEGIN + script, str(tmp_path / str(run))], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


FAILED = """
import numpy as np
import graphsink as gs
graph = gs.Graph()
rows = graph.input("rows", gs.i32, (1,))
graph.output("y", gs.gather(graph.constant(np.zeros(3)), rows, 0))
def log(level, text):
    print("own log:", text, flush=True)
def failed(**options):
    program = gs.compile(graph, {device}, **options)
    program.write("rows", np.array([7], np.int32))
    program.run(steps=3)
    return program
"""
# The frame of a daemon thread keeps a program, and the globals.
DAEMON = """
import threading
begun = threading.Event()
def work():
    other = program
    begun.set()
    threading.Event().wait()
program = failed()
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""
TEXT = "a program ended with a failed step that nobody asked for: "


@pytest.mark.parametrize("script, times", [
    ("program = failed()", 1), ("program = failed(log=log)", 1), ("cycle = [failed()]; cycle.append(cycle)", 1),
    ("program = failed()\ntry: program.sync()\nexcept gs.Error: pass", 0), (DAEMON, 1)],
    ids=["default", "log", "cycle", "asked", "daemon"])
def test_a_failed_step_that_nobody_asked_for_is_logged_at_the_end(script: str, times: int, device: gs.DeviceId) -> None:
    done = subprocess.run([sys.executable, "-c", FAILED.format(device=repr(device)) + script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(TEXT) == done.stdout.count(": gather: ") == times == len(done.stdout.splitlines()), done.stdout
    assert ("own log: " in done.stdout) == ("log=log" in script)
