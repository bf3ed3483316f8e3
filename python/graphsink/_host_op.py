"""Python functions as ops of a graph."""
from __future__ import annotations

import functools
import os
import traceback
import typing
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphsink import _core
from graphsink._types import Operand


class Type(NamedTuple):
    """The type of an operand or an output of an op. An open dimension is a gs.Dim."""

    dtype: Any
    shape: tuple[Any, ...]


# Functions that have failed, the newest last, with exceptions that no Error may have reported yet.
_failed: weakref.WeakKeyDictionary[_core.HostFunction, None] = weakref.WeakKeyDictionary()


class HostOp:
    """A Python function that is an op, made by gs.host_op(). Called with operands it adds a node to their graph, and returns
    a Value, or a tuple of them if there are several outputs."""

    def __init__(self, function: Callable[..., Any], out: Any, grad: Callable[..., Any] | None, effect: bool):
        if not callable(function):
            raise TypeError(f"host_op: the op is a function of arrays, not {function!r}")
        if grad is not None and not callable(grad):
            raise TypeError(f"host_op: grad is a function of Values, not {grad!r}")
        functools.update_wrapper(self, function)
        self._function = function
        self._out = out
        self._grad = grad
        self._effect = effect

    def __call__(self, *operands: Operand) -> Any:
        name = getattr(self._function, "__name__", type(self._function).__name__)
        values = _core.host_op_values(name, self._function, self._out, self._grad, self._effect, list(operands))
        return values[0] if len(values) == 1 else tuple(values)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Methods are called with their object."""
        if instance is None:
            return self
        bound = typing.cast(Any, self._function).__get__(instance, owner)
        return HostOp(bound, self._out, self._grad, self._effect)


@typing.overload
def host_op(function: Callable[..., Any], /, *, out: Any, grad: Callable[..., Any] | None = None,
            effect: bool = False) -> HostOp: ...
@typing.overload
def host_op(*, out: Any, grad: Callable[..., Any] | None = None,
            effect: bool = False) -> Callable[[Callable[..., Any]], HostOp]: ...
def host_op(function: Callable[..., Any] | None = None, /, *, out: Any, grad: Callable[..., Any] | None = None,
            effect: bool = False) -> Any:
    """Makes a Python function an op of a graph, which runs on the host in every step.

        @gs.host_op(out=lambda x: (gs.i32, x.shape[:1]))
        def longest(x):
            return np.array([len(line) for line in x], np.int32)

        y = longest(x)

    The function is called with a NumPy array for each operand, bf16 as float32, and returns an array for each output, of
    its dtype and shape. The operands are copies, which the function may keep and change.

    out     the type of the output, (dtype, shape); a list of types for several outputs; None for no output; or a function of
            the types of the operands, which have .dtype and .shape, that returns one of these. With open dimensions, which are
            gs.Dims in a shape, it is a function: it is called again for each set of sizes.
    grad    grad(inputs, outputs, grads) builds the gradients of the inputs in the graph, from lists of Values; where the loss
            does not depend on an output, its gradient is None. It returns a Value or None for each input. Without it
            gs.grad() raises Error.
    effect  the function does something that the graph cannot see: it prints, counts or writes a file. Such an op runs even if
            nothing uses its outputs, in the order in which ops with effects were built.

    The function runs on a thread of the library with Python's lock (the GIL): a call costs 25 to 30 us, and about 1 ms where
    another Python thread computes, and only one function computes at a time. It must not use CUDA, and no Program whose step
    it is part of. An exception fails the step, which then commits nothing: sync() raises Error, whose __cause__ is the
    exception. On a GPU a loop or several steps of a run with such an op are driven by the host: see Program.explain()."""
    if function is not None:
        return HostOp(function, out, grad, effect)
    return lambda made: HostOp(made, out, grad, effect)


def output_types(out: Any, inputs: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[tuple[Any, tuple[Any, ...]]]:
    """The types of all outputs, for operands of these types."""
    is_fixed = not callable(out)
    made = out if is_fixed else out(*(Type(dtype, shape) for dtype, shape in inputs))
    if made is None:
        made = []
    several = isinstance(made, list) or isinstance(made, tuple) and bool(made) and isinstance(made[0], tuple)
    types = []
    for each in made if several else [made]:
        if not isinstance(each, tuple) or len(each) != 2:
            raise TypeError(f"host_op: `out` is (dtype, shape), a list of such pairs, or a function that returns them, not {each!r}")
        dtype, shape = each
        if not isinstance(shape, (tuple, list)):
            raise TypeError(f"host_op: the shape of an output is a tuple, not {shape!r}")
        for size in shape:
            if not isinstance(size, (int, np.integer, _core.Dim)):
                raise TypeError(f"host_op: a size of an output is an integer, not {size!r}")
        _core.require_dtype(dtype)
        if is_fixed and any(isinstance(size, _core.Dim) and size.is_open for size in shape):
            raise TypeError("host_op: an output with an open dimension needs a function of the operands' types as `out`, for "
                            "example out=lambda x: (x.dtype, x.shape)")
        types.append((dtype, tuple(shape)))
    return types


def gradients(grad: Callable[..., Any], inputs: list[Any], outputs: list[Any], grads: list[Any]) -> list[Any]:
    """What the function of gradients returns, as a list with an element for each input."""
    made = grad(inputs, outputs, grads)
    listed = list(made) if isinstance(made, (list, tuple)) else [made]
    if len(listed) != len(inputs):
        raise TypeError(f"host_op: grad must return a Value or None for each of {len(inputs)} inputs, not {made!r}")
    return listed


def describe(error: BaseException) -> str:
    """An exception in one line, with the place that raised it."""
    try:
        reason = str(error)
    except Exception:
        reason = ""
    text = type(error).__qualname__ + (": " + reason.splitlines()[0] if reason else "")
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else text


def note_failure(function: _core.HostFunction) -> None:
    _failed.pop(function, None)
    _failed[function] = None


def cause_of(op: str, problem: str) -> BaseException | None:
    """Takes the exception of the function of a host op that an Error reports."""
    for function in reversed(list(_failed)):
        if function.name == op:
            cause = function.take_failure(problem)
            if cause is not None:
                return cause
    return None
