"""The graph or the Eager that the current task builds with."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakSet, WeakValueDictionary

from graphsink import _core
from graphsink._error import Error

# Graphs by the number that all of their Values know, and all programs, as long as somebody uses them.
graphs: WeakValueDictionary[int, _core.Graph] = WeakValueDictionary()
programs: WeakSet[_core.Program] = WeakSet()

# Given all programs when the interpreter begins to end: whether nobody must wait for their steps. graphsink.ranks sets it.
leave_steps: Callable[[list[_core.Program]], bool] = lambda all_programs: False

_graph: ContextVar[_core.Graph | None] = ContextVar("graphsink_graph", default=None)
_eager: ContextVar[_core.Eager | None] = ContextVar("graphsink_eager", default=None)


# The problem of an Error of a call beside one of another thread; ending.cpp knows it, too.
REFUSAL = "another thread is in a call of it"


def _is_busy(program: _core.Program) -> bool:
    """Waits for the steps of a program, and logs a failed one that nobody has asked for: the program may never be destroyed. True if
    another thread is in a call of it."""
    try:
        program.log_failed_step()
    except Error as error:  # also in a child of fork()
        return error.problem == REFUSAL
    except Exception:
        pass
    return False


def wait_for_programs() -> None:
    """Called before the interpreter ends: functions of host ops cannot run behind that."""
    _core.begin_end()
    known = list(programs)
    if not leave_steps(known):
        tries = 30
        for program in known:
            while _is_busy(program) and tries > 0:  # a call of a daemon thread ends first, unless it takes long
                tries -= 1
                time.sleep(0.01)
    _core.end_python(has_daemons=threading.active_count() > 1)


def current_graph() -> _core.Graph | None:
    """The graph that is being traced by this task, or None."""
    return _graph.get()


def current_eager() -> _core.Eager | None:
    return _eager.get()


@contextmanager
def tracing(graph: _core.Graph) -> Iterator[_core.Graph]:
    """Within it, `graph` is the graph of Variables and numbers that are assigned, and of gs.tensor()."""
    graph_before, eager_before = _graph.set(graph), _eager.set(None)
    try:
        yield graph
    finally:
        _eager.reset(eager_before)
        _graph.reset(graph_before)


@contextmanager
def eager(device: _core.DeviceId | None = None) -> Iterator[_core.Eager]:
    """Within it, gs.tensor() makes Values that are computed as soon as the op that makes them returns."""
    made = _core.Eager(device if device is not None else _core.cpu())
    graph_before, eager_before = _graph.set(None), _eager.set(made)
    try:
        yield made
    finally:
        _eager.reset(eager_before)
        _graph.reset(graph_before)
