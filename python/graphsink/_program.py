"""@gs.program: functions that are traced into graphs."""
from __future__ import annotations

import functools
import inspect
import sys
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

import numpy as np

from graphsink import _arrays, _context, _core, _picture, _trees
from graphsink._types import DTypeLike


@dataclass(frozen=True)
class InputType:
    """The type of a parameter of a traced function: gs.input() or gs.feed() as its default or annotation."""

    dtype: Any
    shape: tuple[int | _core.Dim, ...]
    is_feed: bool


def _input_type(dtype: DTypeLike, dims: Sequence[Any], is_feed: bool) -> Any:
    if len(dims) == 1 and isinstance(dims[0], (list, tuple)):
        dims = dims[0]
    return InputType(dtype, tuple(dims), is_feed)


def input(dtype: DTypeLike, *dims: Any) -> Any:
    """Default, or annotation, of a parameter of a traced function that is an input: data that are the same for every step of a run."""
    return _input_type(dtype, dims, False)


def feed(dtype: DTypeLike, *dims: Any) -> Any:
    """Default, or annotation, of a parameter of a traced function that is a feed: one slice of this shape for each step of a run."""
    return _input_type(dtype, dims, True)


class _AtOnce:
    """Takes a lock, and raises Error of a function where it is held: for functions of host ops, which would wait for ever for a
    call that waits for their own step."""

    def __init__(self, lock: threading.RLock, function: str):
        self._lock = lock
        self._function = function

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            _core.refuse_in_host_op(self._function)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class TracedProgram:
    """A traced function on a device: a Program whose inputs and feeds are the parameters of the function."""

    def __init__(self, program: _core.Program, graph: _core.Graph, result: Any, output_names: list[str]):
        self.program = program
        self.graph = graph
        self._result = result
        self._output_names = output_names
        self._lock = threading.RLock()
        # Whether its steps end whatever other programs and their host ops do.
        self._is_alone = program.target.id == _core.cpu() and not program.variables and not _core.has_host_ops(graph)

    def _call(self, function: str, arrays: Mapping[str, Any]) -> Any:
        """One step with these arrays. Calls from several threads take turns, but not with the other members of the program, such as
        run(), and with train(): beside one of these it raises Error."""
        with self._lock if self._is_alone or not _core.is_in_host_op() else _AtOnce(self._lock, function):
            self.write(**arrays)
            self.run()
            return self.result()

    def write(self, /, *args: Never, **data: Any) -> None:
        """Gives data to inputs and feeds, by the names of the parameters."""
        if args:
            raise TypeError("write: a gs.TracedProgram, made by compile() of a function of @gs.program, takes arrays by the names of the "
                            "parameters, such as write(x=array); write(\"x\", array) is of gs.Program, which its .program is")
        for name, array in data.items():
            self.program.write(name, array)

    def run(self, mode: _core.Mode = _core.Mode.sink, *, steps: int = 1, stream: Any = None) -> None:
        """Runs steps: see Program.run()."""
        self.program.run(mode, steps=steps, stream=stream)

    def result(self) -> Any:
        """What the last step returned: arrays in the form of what the function returns. Waits for all steps."""
        return _trees.like(self._result, iter([self.program.output(name) for name in self._output_names]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python asks for these of objects that are not made yet
            raise AttributeError(name)
        return getattr(self.program, name)

    def _repr_html_(self) -> str:
        return _picture.html_of(self.program.explain_json())


class _Programs(dict["Traced", "Traced"]):
    """What an object keeps of its traced methods. A copy of the object traces them anew."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Programs, ()


class Traced:
    """A function that builds a graph, made by @gs.program. Calls from several threads with the types of one signature take turns,
    and so does the tracing of others. A call in the function of a host op does not wait for a call that may wait for that op:
    it raises Error."""

    def __init__(self, function: Callable[..., Any], target: _core.DeviceId | None, options: dict[str, Any],
                 types: dict[str, InputType] | None = None):
        functools.update_wrapper(self, function)
        self._function = function
        self._target = target
        self._options = options
        self._steps: dict[Any, TracedProgram] = {}
        self._lock = threading.RLock()
        self._of_classes: dict[type, Traced] = {}
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__}: a generator or a coroutine cannot be traced; write a function that returns Values")
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{function.__name__}: {parameter} has no name that arrays could be given to; name each parameter")
        self._types = types if types is not None else self._typed_parameters(sys._getframe(2).f_locals)

    def _typed_parameters(self, local_names: Mapping[str, Any]) -> dict[str, InputType]:
        """Types of the parameters that have gs.input() or gs.feed() as their default or annotation."""
        found = {}
        for name, parameter in self._signature.parameters.items():
            for said in (parameter.default, self._annotation(parameter.annotation, local_names)):
                if isinstance(said, InputType):
                    found[name] = said
        return found

    def _annotation(self, hint: Any, local_names: Mapping[str, Any]) -> Any:
        """What an annotation stands for, which is a text where a file says `from __future__ import annotations`; its names
        are those that the function sees, and those of its decorator."""
        if not isinstance(hint, str):
            return hint
        closure = inspect.getclosurevars(self._function).nonlocals
        try:
            return eval(hint, {**self._function.__globals__, **local_names, **closure})  # noqa: S307
        except Exception:
            if "feed(" in hint or "input(" in hint:
                raise
            return None

    def trace(self, types: dict[str, InputType] | None = None) -> tuple[_core.Graph, Any, list[str]]:
        """Calls the function with the inputs of a new graph. Returns the graph, what the function returned, and the names of
        the outputs that its leaves became."""
        all_types = {**self._types, **(types or {})}
        graph = _core.Graph()
        arguments = {}
        with _context.tracing(graph):
            for name, parameter in self._signature.parameters.items():
                if name in all_types:
                    kind = all_types[name]
                    add = graph.feed if kind.is_feed else graph.input
                    arguments[name] = add(name, kind.dtype, kind.shape)
                elif parameter.default is inspect.Parameter.empty:
                    raise TypeError(f"{self._function.__name__}: the type of the parameter {name!r} is not known; give it one, "
                                    f"for example {name}=gs.feed(gs.f32, 32, 784), or call the function with arrays")
            result = self._function(**arguments)
            return graph, result, _add_outputs(graph, result)

    def compile(self, target: _core.DeviceId | None = None, **options: Any) -> TracedProgram:
        """Traces the function, whose parameters must have types, and compiles it: see gs.compile() for the options."""
        return self._compile(None, target if target is not None else self._target, {**self._options, **options})

    def _compile(self, types: dict[str, InputType] | None, target: _core.DeviceId | None, options: dict[str, Any]) -> TracedProgram:
        graph, result, names = self.trace(types)
        made = _core.compile(graph, target if target is not None else _core.cpu(), **options)
        return TracedProgram(made, graph, result, names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one step with these arrays and returns arrays. The function is traced once for each signature; parameters
        without a type are inputs of the types of the arrays, and numbers, and lists of them, are f32. Given Values, of a
        graph that is being traced or of an Eager, it builds what it builds there, as a plain function does."""
        if args and isinstance(args[0], type):  # from Python 3.13 on a classmethod passes its class so
            return self.__get__(args[0])(*args[1:], **kwargs)
        if any(isinstance(leaf, _core.Value) for leaf in _trees.leaves([args, kwargs])):
            return self._function(*args, **kwargs)
        given = self._signature.bind(*args, **kwargs).arguments
        left_out = [name for name in self._types if name not in given]
        if left_out:
            raise TypeError(f"{self._name()}() is missing the array for {', '.join(map(repr, left_out))}; run() of what "
                            f"{self._name()}.compile() returns keeps what was written before")
        arrays = {name: value if name in self._types else self._as_array(name, value) for name, value in given.items()}
        types = {name: InputType(array.dtype, tuple(array.shape), False)
                 for name, array in arrays.items() if name not in self._types}
        key = tuple((name, str(kind.dtype), kind.shape) for name, kind in types.items())
        step = self._steps.get(key) or self._traced(key, types)
        return step._call(self._name(), arrays)

    def _name(self) -> str:
        return getattr(self._function, "__name__", "the function")

    def _traced(self, key: Any, types: dict[str, InputType]) -> TracedProgram:
        """The program of a signature, which is made by the first call. To compile for a GPU may wait for work on it."""
        waits = self._target is not None and self._target != _core.cpu()
        with _AtOnce(self._lock, self._name()) if waits and _core.is_in_host_op() else self._lock:
            if key not in self._steps:
                made = self._compile(types, self._target, self._options)
                for other in self._steps.values():
                    self._require_shared_state(made, other)
                self._steps[key] = made
            return self._steps[key]

    def _require_shared_state(self, made: TracedProgram, other: TracedProgram) -> None:
        """Raises Error for Variables of one name that the function makes anew for each signature, such as the state and the rate
        of an optimizer: steps of one would not see what those of the other have left."""
        before = {variable.name: variable for variable in other.variables}
        apart = [variable.name for variable in made.variables if before.get(variable.name, variable) != variable]
        if apart:
            _core.refuse(self._name(), "was called with arrays of another shape or dtype than before, and makes Variables for each signature: "
                         f"{', '.join(map(repr, apart[:3]))}{', ...' if len(apart) > 3 else ''}, such as the state of an optimizer, which would "
                         "train with other numbers than one state for all", "declare the dimension that changes open, as in x=gs.input(gs.f32, "
                         "gs.open(32), 784), so that there is one signature; or leave out the smaller batch, and make Variables outside")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and (hasattr(TracedProgram, name) or hasattr(_core.Program, name)):
            function = getattr(self._function, "__name__", "this")
            raise AttributeError(f"{function} is a function of @gs.program, and no program: {name} is of the gs.TracedProgram that "
                                 f"{function}.compile() returns", name=name, obj=self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _as_array(self, name: str, value: Any) -> Any:
        """An argument for a parameter without a type."""
        try:
            array = value
            if not hasattr(value, "shape") or not hasattr(value, "dtype"):
                array = _arrays.from_numbers(value, None if np.asarray(value).dtype.kind == "b" else np.dtype(np.float32))
            _core.require_dtype(array.dtype)
        except TypeError as error:
            raise TypeError(f"{self._function.__name__}: the argument for {name!r} is no input of a graph: {error}") from None
        return array

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Methods are traced with their object bound."""
        if instance is None:
            return self
        # The object keeps it, so that its programs are not traced again, and go with it.
        kept: dict[Any, Traced] = {}
        if isinstance(instance, type):
            kept = self._of_classes
        elif hasattr(instance, "__dict__"):
            kept = instance.__dict__.setdefault("_graphsink_programs", _Programs())
        key = instance if isinstance(instance, type) else self
        bound = kept.get(key)
        if bound is None or bound._function.__self__ is not instance:  # type: ignore[attr-defined]
            if isinstance(kept, _Programs) and bound is not None:  # of an object of which this one is a copy
                kept = instance.__dict__["_graphsink_programs"] = _Programs()
            method = typing.cast(Any, self._function).__get__(instance, owner)
            bound = kept[key] = Traced(method, self._target, self._options, self._types)
        return bound


def _add_outputs(graph: _core.Graph, result: Any) -> list[str]:
    """Makes outputs of the leaves of what a traced function has returned. The entries of a dict are named by its keys, and
    those that are float scalars are recorded in every step."""
    names = [name or "output" for name in _trees.names(result)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TypeError(f"two parts of what the function returns would be named {sorted(twice)[0]!r}; give its dicts other keys")
    for name, leaf in zip(names, _trees.leaves(result)):
        if not isinstance(leaf, (_core.Value, _core.Variable)):
            raise TypeError(f"the function returns {type(leaf).__name__} as {name!r}; return Values: gs.tensor() makes one of numbers")
        graph.output(name, leaf)
        if isinstance(result, dict) and isinstance(leaf, _core.Value) and leaf.shape == () and _is_float(leaf.dtype):
            graph.record(name, leaf)
    return names


def _is_float(dtype: Any) -> bool:
    return dtype == "bfloat16" or getattr(dtype, "kind", "f") == "f"


@typing.overload
def program(function: Callable[..., Any], /) -> Traced: ...
@typing.overload
def program(*, target: _core.DeviceId | None = None, **options: Any) -> Callable[[Callable[..., Any]], Traced]: ...
def program(function: Callable[..., Any] | None = None, /, *, target: _core.DeviceId | None = None, **options: Any) -> Any:
    """Makes a function a program: it is called once for each signature, with the inputs of a graph as arguments, and what it
    builds is compiled. Control flow that depends on data is written with gs.if_(), gs.while_() and gs.scan().

        @gs.program
        def train(x: gs.Value = gs.feed(gs.f32, 32, 784), t: gs.Value = gs.feed(gs.i32, 32)):
            loss = gs.cross_entropy(gs.relu(x @ w1) @ w2, t)
            gs.adamw(loss, [w1, w2])
            return {"loss": loss}

        step = train.compile(target=gs.cuda(0))
        step.write(x=images, t=labels)
        step.run(steps=100)
        print(step.records("loss"))

    Or `train(images, labels)`, which runs one step and returns arrays. Options are those of gs.compile()."""
    if function is not None:
        return Traced(function, target, options)
    return lambda made: Traced(made, target, options)
