"""The loop around a program that is trained."""
from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from graphsink import _core
from graphsink._data import Loader
from graphsink._mixed import program_of
from graphsink._program import TracedProgram


def evaluate(program: _core.Program | TracedProgram, loader: Loader, metrics: Sequence[_core.Metric | str] | _core.Metric | str,
             mode: _core.Mode = _core.Mode.sink) -> dict[str, float]:
    """Runs a program for one epoch of its loader, from the first batch on, and returns the metrics of its records, such as the
    mean of "accuracy". The program may share Variables with one that is trained."""
    given = [metrics] if isinstance(metrics, (str, _core.Metric)) else metrics
    wanted = [_core.Metric(metric) if isinstance(metric, str) else metric for metric in given]
    return _core.run_evaluation(program_of(program, "evaluate"), loader.core, wanted, mode)


def train(program: _core.Program | TracedProgram, loader: Loader, *, steps: int = 0, epochs: int = 0,
          mode: _core.Mode = _core.Mode.sink, steps_per_launch: int = 0, longest_launch: int = 100,
          records: Sequence[str] | str = (), on_step: Callable[[int, tuple[float, ...]], None] | None = None,
          actions: Sequence[tuple[int, Callable[[int], None]]] = (),
          evaluate: Callable[[], dict[str, float]] | None = None, evaluate_every: int = 0,
          patience: _core.Patience | None = None, save: _core.SaveOptions | None = None,
          log_file: str | os.PathLike[str] | None = None, log_every: int = 1, progress: bool = True,
          should_stop: Callable[[], bool] | None = None, ends_on_interrupt: bool = True,
          log: Callable[[_core.LogLevel, str], None] | None = None) -> _core.TrainResult:
    """Trains a program with the batches of a loader: launches of many steps, evaluations, checkpoints, metrics, stops.

        loader = gs.Loader(step, {"x": images, "t": labels}, gs.sample_order(60000, batch=32))
        result = gs.train(step, loader, steps=10000, records=["loss"], save=gs.SaveOptions("run1", every=1000))

    The same steps see the same batches whatever the options say, so that a training that goes on from a file ends with the bits
    of one that was never interrupted.

    steps, epochs      ends it, whichever comes first; both count from the very beginning. 0: no matter
    steps_per_launch   0: found by measurement, as far as a launch takes at most `longest_launch` milliseconds; 16 in a program of
                       several ranks, which launch alike, so that should_stop and on_step may wait for the other ranks
    records            of scalars: what on_step gets, and what log_file and the progress show
    on_step            called for each step in order with its number and the values of `records`, of which there must be some
    actions            pairs of a number n and a function that is called between two launches at each multiple of n steps
    evaluate           called at each multiple of evaluate_every steps and at the end: returns metrics, see gs.evaluate()
    save               files from which a training goes on. A second training that writes in the same folder meanwhile, of this
                       process or another, raises Error
    log_file           a line of JSON for each step that is a multiple of log_every, and for each evaluation; of one training, and
                       one rank, at a time. Lines are whole, also behind a kill. Numbers that JSON does not have are "nan",
                       "inf" and "-inf"
    progress           a line that changes on a terminal, otherwise a line for each tenth of the way
    should_stop        asked between launches
    ends_on_interrupt  the first Ctrl-C ends the training behind the launch, with a file, and TrainResult.end says so; the second
                       raises KeyboardInterrupt. In the main thread, unless somebody else handles SIGINT
    log                takes warnings

    Other Python threads run while launches do. What a function raises ends the training and is raised here; before, all that
    was committed is saved."""
    with _Interrupt(ends_on_interrupt) as interrupt:
        return _core.run_training(
            program_of(program, "train"), loader.core, steps, epochs, mode, steps_per_launch, longest_launch,
            [records] if isinstance(records, str) else list(records), on_step, list(actions), _checked(evaluate), evaluate_every, patience, save, log_file, log_every, _progress() if progress else "none",
            should_stop, interrupt.was_seen, log)


def _checked(evaluate: Callable[[], dict[str, float]] | None) -> Callable[[], dict[str, float]] | None:
    """The function of an evaluation, which must return a dict of numbers."""
    if evaluate is None:
        return None

    def call() -> dict[str, float]:
        found = evaluate()
        if not isinstance(found, dict):
            raise TypeError(f"train: evaluate must return a dict of numbers, not {found!r}")
        return {str(name): float(number) for name, number in found.items()}

    return call


class _Interrupt:
    """Within it the first Ctrl-C is noted, and the second raises KeyboardInterrupt: in the main thread, and unless somebody
    else handles it."""

    def __init__(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted and threading.current_thread() is threading.main_thread()
        self._seen = False

    def was_seen(self) -> bool:
        return self._seen

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._seen:
            signal.default_int_handler(number, frame)
        self._seen = True

    def __enter__(self) -> _Interrupt:
        self._is_wanted = self._is_wanted and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_wanted:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_wanted:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _progress() -> str:
    """Where the progress goes: to the terminal of the process, or through sys.stdout, which a notebook shows."""
    try:
        if sys.stdout.fileno() == 1 and sys.stdout.isatty():
            sys.stdout.flush()
            return "terminal"
    except (AttributeError, OSError, io.UnsupportedOperation):
        pass
    return "cell" if sys.stdout is not None else "none"
