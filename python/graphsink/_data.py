"""Sources, and what brings their samples to a program."""
from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from graphsink import _core
from graphsink._program import TracedProgram


def tensor_source(tensors: Mapping[str, Any]) -> _core.Source:
    """The rows of arrays of equal first dimensions: an array "image" [60000, 784] gives a field "image" [784]. Copies them."""
    return _core.tensor_source_of(dict(tensors))


def source_of(data: Any) -> _core.Source:
    """A Source of what there is: a Source; a dict of arrays, whose rows are the samples; or a data set with len() and data[i],
    as torch.utils.data.Dataset, whose samples are dicts or tuples of arrays of equal types. Fields of a tuple are named "0",
    "1" and so on. data[i] is called by the threads of a Loader, one at a time."""
    if isinstance(data, _core.Source):
        return data
    if isinstance(data, Mapping):
        return tensor_source(data)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise TypeError(f"a source is a gs.Source, a dict of arrays, or a data set with len() and data[i], not "
                        f"{type(data).__name__}; for an iterable of batches use gs.batches()")
    if len(data) == 0:
        raise ValueError("a source has at least one sample, and the data set has none")
    first = data[0]
    if not isinstance(first, Mapping):
        first = dict(enumerate(first)) if isinstance(first, (tuple, list)) else {0: first}
    fields = {str(name): _field(part) for name, part in first.items()}
    return _core.function_source(len(data), fields, data.__getitem__)


def _field(part: Any) -> tuple[Any, tuple[int, ...]]:
    if hasattr(part, "dtype") and hasattr(part, "shape"):
        return part.dtype, tuple(part.shape)
    array = np.asarray(part)
    # Python's own numbers: labels and the like.
    if array.dtype.kind not in "fib":
        raise TypeError(f"a sample consists of arrays and numbers, not of {part!r}")
    if array.dtype.kind == "i" and not np.array_equal(array.astype(np.int32), array):
        return np.int64, array.shape
    kinds: dict[str, Any] = {"f": np.float32, "i": np.int32, "b": np.bool_}
    return kinds[array.dtype.kind], array.shape


_open: weakref.WeakSet[Loader] = weakref.WeakSet()


class Loader:
    """Feeds a program with batches of samples of a source, in an order:

        loader = gs.Loader(step, {"image": images, "label": labels}, gs.sample_order(60000, batch=32, seed=1))
        while steps := loader.next():          # an epoch
            step.run(steps=steps)

    `source` is what source_of() takes. `feeds` says which field goes to which feed, by name or Value; by default each field goes
    to the feed of its name. Threads read and prepare the batches of coming launches while the launches before are running; the
    same samples come in the same order for every number of workers and of steps in a launch.

    steps_per_launch   batches that next() gives to the program
    workers            threads that read and prepare samples; 0: next() does it itself. Functions of Python take turns
    ahead              launches that are prepared ahead of the one that next() returns
    when_starved       what next() does if only some batches of a launch are there: wait, or shrink the launch
    prepare            a function of a SampleKey and a sample, a dict of arrays by the names of the fields, that returns what the
                       feeds take of it, by their names; it must depend on its arguments alone
    seed               the seed of the SampleKey
    mask               a feed of f32 or booleans [batch], by name or Value: whether a sample is one in its turn, or padding

    Used by the thread that uses the program. What the source or `prepare` raises, next() raises in the place of the batch.
    """

    def __init__(self, program: _core.Program | TracedProgram, source: Any, order: _core.SampleOrder,
                 feeds: Mapping[str, Any] | None = None, *, steps_per_launch: int = 1, workers: int = 1, ahead: int = 2,
                 when_starved: _core.WhenStarved = _core.WhenStarved.wait,
                 prepare: Callable[[_core.SampleKey, dict[str, Any]], Any] | None = None, seed: int = 0,
                 mask: Any = None) -> None:
        made = source_of(source)
        wanted = dict(feeds) if feeds is not None else {name: name for name in made.fields}
        self.source = made
        self.core = _core.LoaderCore(_program_of(program), made, order, wanted, steps_per_launch, workers, ahead, when_starved,
                                     prepare, seed, mask)
        _open.add(self)

    def next(self, most: int | None = None) -> int:
        """Writes the slices of the next launch, of at most `most` steps, to the program and returns how many steps it has. 0
        at the end of an epoch; the call after that begins the next one."""
        return self.core.next(most)

    def set_steps_per_launch(self, steps: int) -> None:
        """Changes steps_per_launch. If the number is another than before, what was prepared ahead is prepared anew."""
        self.core.set_steps_per_launch(steps)

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        return self.core.batches

    @property
    def position(self) -> _core.LoaderPosition:
        return self.core.position

    def seek(self, position: _core.LoaderPosition) -> None:
        """Goes to another place in the order."""
        self.core.seek(position)

    def report(self) -> _core.LoaderReport:
        """What the loader has done so far, and what it waited for."""
        return self.core.report()

    def close(self) -> None:
        """Waits for the workers to finish their sample, and ends them. Further calls raise Error."""
        self.core.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    """Workers that call Python must be gone before the interpreter is."""
    for loader in list(_open):
        loader.close()


def _program_of(program: _core.Program | TracedProgram) -> _core.Program:
    return program.program if isinstance(program, TracedProgram) else program


def batches(program: _core.Program | TracedProgram, iterable: Iterable[Any], feeds: Iterable[str] | None = None, *,
            steps_per_launch: int = 1) -> Iterator[int]:
    """Feeds a program from any iterable of batches, such as a torch.utils.data.DataLoader:

        for steps in gs.batches(step, data_loader, ["x", "t"], steps_per_launch=16):
            step.run(steps=steps)

    A batch is a dict of arrays by the names of feeds, or a tuple of arrays in the order of `feeds`. Batches of one shape are
    gathered into launches of at most steps_per_launch steps; what is yielded is the number of steps that were written. The
    batches are copied; the next ones are taken from the iterable while the steps run."""
    if steps_per_launch < 1:
        raise ValueError(f"batches: a launch has at least one step, not {steps_per_launch}")
    to = _program_of(program)
    names = list(feeds) if feeds is not None else None
    gathered: list[dict[str, np.ndarray[Any, Any]]] = []
    for batch in iterable:
        arrays = {name: np.asarray(part) for name, part in _parts(batch, names).items()}
        if gathered and _shapes(gathered[0]) != _shapes(arrays):
            yield _write(to, gathered)
            gathered = []
        gathered.append(arrays)
        if len(gathered) == steps_per_launch:
            yield _write(to, gathered)
            gathered = []
    if gathered:
        yield _write(to, gathered)


def _parts(batch: Any, names: list[str] | None) -> dict[str, Any]:
    if isinstance(batch, Mapping):
        return dict(batch)
    parts = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if names is None or len(names) != len(parts):
        raise TypeError(f"a batch has {len(parts)} arrays; name a feed for each, in their order: gs.batches(program, "
                        "iterable, [\"x\", \"t\"])")
    return dict(zip(names, parts))


def _shapes(arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _write(program: _core.Program, gathered: list[dict[str, np.ndarray[Any, Any]]]) -> int:
    for name in gathered[0]:
        program.write(name, np.stack([batch[name] for batch in gathered]))
    return len(gathered)
