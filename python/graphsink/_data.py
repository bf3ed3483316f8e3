"""Sources, and what brings their samples to a program."""
from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from graphsink import _core
from graphsink._mixed import program_of
from graphsink._program import TracedProgram
from graphsink._types import DType


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
        parts = first if isinstance(first, (tuple, list)) else (first,)
        first = {str(number): part for number, part in enumerate(parts)}
    for name in first:
        if not isinstance(name, str):
            raise TypeError(f"fields are named by a str, and a sample of the data set has the key {name!r}; return a dict with names, or "
                            "a tuple")
    fields = {name: _field(part) for name, part in first.items()}
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


_open: weakref.WeakSet[_OfSamples] = weakref.WeakSet()


class _OfSamples:
    """What loaders have in common."""

    core: _core.LoaderCore | _core.StreamLoaderCore
    source: _core.Source

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        return self.core.batches

    @property
    def position(self) -> _core.LoaderPosition:
        """Place of the batch that next() brings next."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Loader(_OfSamples):
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
    when_starved       what next() does if only some batches of a launch are there: wait, or shrink the launch, which is
                       refused where ranks exchange values
    prepare            a function of a SampleKey and a sample, a dict of arrays by the names of the fields, that returns what the
                       feeds take of it, by their names; it must depend on its arguments alone
    seed               the seed of the SampleKey
    mask               a feed of f32 or booleans [batch], by name or Value: whether a sample is one in its turn, or padding
    while_waiting      a function without arguments that next() calls about every 50 ms while it waits for samples or reads them.
                       What it raises, and what Ctrl-C raises then, next() raises: nothing is skipped

    Used by the thread that uses the program, in one call at a time: another call beside it, or one in the source or in `prepare`,
    raises Error. Functions of train() may ask for the position and the report(). What the source or `prepare` raises, next() raises
    in the place of the batch.
    """

    core: _core.LoaderCore

    def __init__(self, program: _core.Program | TracedProgram, source: Any, order: _core.SampleOrder,
                 feeds: Mapping[str, Any] | None = None, *, steps_per_launch: int = 1, workers: int = 1, ahead: int = 2,
                 when_starved: _core.WhenStarved = _core.WhenStarved.wait,
                 prepare: Callable[[_core.SampleKey, dict[str, Any]], Any] | None = None, seed: int = 0,
                 mask: Any = None, while_waiting: Callable[[], object] | None = None) -> None:
        self.source = source_of(source)
        if feeds is not None and not isinstance(feeds, Mapping):
            raise TypeError('feeds is a dict of fields and the feeds that take them, such as {"image": "x", "label": t}')
        wanted = dict(feeds) if feeds is not None else {name: name for name in self.source.fields}
        self.core = _core.LoaderCore(program_of(program, "Loader"), self.source, order, wanted, steps_per_launch, workers, ahead, when_starved,
                                     prepare, seed, mask, while_waiting)
        _open.add(self)

    def next(self, most: int | None = None) -> int:
        """Writes the slices of the next launch, of at most `most` steps, to the program and returns how many steps it has. 0
        at the end of an epoch; the call after that begins the next one."""
        return self.core.next(most)

    @property
    def order(self) -> _core.SampleOrder:
        """The order that it was made with."""
        return self.core.order

    def set_steps_per_launch(self, steps: int) -> None:
        """Changes steps_per_launch. If the number is another than before, what was prepared ahead is prepared anew."""
        self.core.set_steps_per_launch(steps)


class StreamLoader(_OfSamples):
    """Feeds work on a CUDA stream with batches of samples of a source, in an order: the function of a SinkCache, or other code
    that holds a stream.

        loader = gs.StreamLoader(stream, {"image": images, "label": labels}, gs.sample_order(60000, batch=32, seed=1))
        image, label = (torch.from_dlpack(loader.data(name)) for name in ("image", "label"))    # once
        while samples := loader.next():        # an epoch
            sinks.run(stream, samples, lambda s: train(s, image[:samples], label[:samples]))

    The samples and their order are those of a Loader. Each batch is brought to the same device memory, in the order of `stream`:
    work that the stream is given after next() sees the new batch, and work from before has read the one before. Call next() before
    SinkCache.run(), never in its function; the steps of one run() share a batch. Further streams must wait for this one.

    stream             an int (cudaStream_t), an object with __cuda_stream__(), cuda_stream (torch.cuda.Stream) or ptr, or None for
                       the legacy stream
    source, order      as a Loader takes them
    workers, ahead     those of a Loader, for launches of one batch
    prepare, seed      a function of a SampleKey and a sample, a dict of arrays, that returns `fields`
    fields             what `prepare` makes: dtypes and shapes by name; by default the fields of the source
    mask               the name of one more field, f32: 1 for a sample in its turn, 0 for padding
    most_samples       samples that there is room for; by default those of the first or the last batch of an epoch. Needed for
                       buckets of several sizes
    device             the number of the CUDA device of the stream
    log                a function of a LogLevel and a message, for failures that cannot be raised
    while_waiting      that of a Loader

    Used by one thread at a time; other Python threads run while it waits. What the source or `prepare` raises, next() raises in the
    place of the batch, which the call after that tries again. Keeps the stream's object. Raises Error in a build without CUDA.
    """

    core: _core.StreamLoaderCore

    def __init__(self, stream: Any, source: Any, order: _core.SampleOrder, workers: int = 1, ahead: int = 2, *,
                 prepare: Callable[[_core.SampleKey, dict[str, Any]], Any] | None = None, seed: int = 0,
                 fields: Mapping[str, tuple[Any, Sequence[int]]] | None = None, mask: str | None = None, most_samples: int = 0,
                 device: int = 0, log: Callable[[_core.LogLevel, str], None] | None = None,
                 while_waiting: Callable[[], object] | None = None) -> None:
        self.source = source_of(source)
        self.core = _core.StreamLoaderCore(stream, self.source, order, workers, ahead, prepare, seed,
                                           None if fields is None else dict(fields), mask, most_samples, device, log, while_waiting)
        _open.add(self)

    def next(self) -> int:
        """Brings the next batch, and returns how many samples it has, with those that pad it. 0 at the end of an epoch, where it
        brings nothing; the call after that begins the next one. Raises Error while the stream is being captured."""
        return self.core.next()

    @property
    def fields(self) -> dict[str, tuple[DType, tuple[int, ...]]]:
        """The dtype and the shape of each field of a sample, by name, with the mask."""
        return self.core.fields

    @property
    def most_samples(self) -> int:
        """The first size of data()."""
        return self.core.most_samples

    def data(self, field: str) -> _core.BatchMemory:
        """The device memory of a field, [most_samples, ...], for torch.from_dlpack(), cupy.asarray() and others: the same for all
        batches. What lies behind the samples of a smaller batch is undefined. Arrays that are made of it keep the memory, also
        when the loader is closed. Raises Error for a name that there is not."""
        return self.core.data(field)

    def report(self) -> _core.StreamLoaderReport:
        """What the loader has done so far, and what it waited for."""
        return self.core.report()


@atexit.register
def _close_all() -> None:
    """Workers that call Python must be gone before the interpreter is. A loader that a daemon thread is using stays open."""
    for loader in list(_open):
        loader.core.end_with_python()


def batches(program: _core.Program | TracedProgram, iterable: Iterable[Any], feeds: Iterable[str] | None = None, *,
            steps_per_launch: int = 1) -> Iterator[int]:
    """Feeds a program from any iterable of batches, such as a torch.utils.data.DataLoader:

        for steps in gs.batches(step, data_loader, ["x", "t"], steps_per_launch=16):
            step.run(steps=steps)

    A batch is a dict of arrays by the names of feeds, which are the same in each, or a tuple of arrays in the order of `feeds`.
    Batches of one shape and dtype are gathered into launches of at most steps_per_launch steps; what is yielded is the number of
    steps that were written. A batch is copied before the next one is taken from the iterable, which may reuse its memory; those of
    the next launch are taken while the steps run. What the iterable raises is raised when the steps of the batches before were
    given."""
    if steps_per_launch < 1:
        raise ValueError(f"batches: a launch has at least one step, not {steps_per_launch}")
    to = program_of(program, "batches")
    names = list(feeds) if feeds is not None else None
    if names is not None and len(set(names)) != len(names):
        raise ValueError(f"batches: a feed has two arrays of a batch: {_listed(names)}")
    copied = _copied(iterable, names, {name: value.dtype for name, value in to.inputs.items()})
    gathered: list[dict[str, _core.Tensor]] = []
    failure: Exception | None = None
    while True:
        try:
            batch = next(copied, None)
        except Exception as error:
            batch, failure = None, error
        if gathered and (batch is None or _types(batch) != _types(gathered[0])):
            yield _write(to, gathered)
            gathered = []
        if batch is None:
            break
        gathered.append(batch)
        if len(gathered) == steps_per_launch:
            yield _write(to, gathered)
            gathered = []
    if failure is not None:
        raise failure


def _copied(iterable: Iterable[Any], names: list[str] | None, dtypes: dict[str, Any]) -> Iterator[dict[str, _core.Tensor]]:
    """A copy of each batch, by the names of the feeds."""
    first: set[str] | None = None
    for batch in iterable:
        parts = _parts(batch, names)
        first = set(parts) if first is None else first
        if set(parts) != first:
            raise ValueError(f"batches: a batch has {_listed(parts)}, and the first one had {_listed(first)}; give each batch the same "
                             "names, because a feed that is left out would keep the data of another batch")
        yield {name: _copy(part, dtypes.get(name)) for name, part in parts.items()}


def _parts(batch: Any, names: list[str] | None) -> dict[str, Any]:
    if isinstance(batch, Mapping):
        return dict(batch)
    parts = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if names is None or len(names) != len(parts):
        raise TypeError(f"a batch has {len(parts)} arrays; name a feed for each, in their order: gs.batches(program, "
                        "iterable, [\"x\", \"t\"])")
    return dict(zip(names, parts))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names, key=str)) or "no arrays"


def _copy(part: Any, dtype: Any) -> _core.Tensor:
    """The elements of an array, or numbers and lists of them in the dtype of the feed."""
    if isinstance(part, _core.Tensor):
        return part.to(part.dtype)
    return _core.Tensor(part) if hasattr(part, "dtype") or dtype is None else _core.Tensor(part, dtype)


def _types(tensors: dict[str, _core.Tensor]) -> dict[str, tuple[str, Sequence[Any]]]:
    return {name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()}


def _write(program: _core.Program, gathered: list[dict[str, _core.Tensor]]) -> int:
    for name, first in gathered[0].items():
        slices = np.stack([batch[name].numpy() for batch in gathered])
        program.write(name, slices if slices.dtype == first.dtype else _core.Tensor(slices).to(first.dtype))
    return len(gathered)
