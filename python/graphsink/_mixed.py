"""What a function says that takes one kind of program, or a graph, and is given another one."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from graphsink import _core
from graphsink._program import Traced, TracedProgram

F = TypeVar("F", bound=Callable[..., Any])


def program_of(given: Any, function: str) -> _core.Program:
    """The Program that a function runs, of what it was given."""
    if isinstance(given, TracedProgram):
        return given.program
    if isinstance(given, _core.Program):
        return given
    wanted = f"{function}: it takes a program, which is a gs.Program, made by gs.compile(graph), or a gs.TracedProgram, made by compile() of a " \
             f"function of @gs.program"
    if isinstance(given, Traced):
        raise TypeError(f"{wanted}; {_name(given)} is such a function, and no program yet: give {_name(given)}.compile()")
    if isinstance(given, _core.Graph):
        raise TypeError(f"{wanted}; a gs.Graph is no program yet: give gs.compile(graph)")
    raise TypeError(f"{wanted}; not {type(given).__name__}")


def takes_a_graph(function: F) -> F:
    """A function of the library that takes a Graph, and says what else was given in its place."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            given = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, (Traced, TracedProgram, _core.Program))), None)
            if given is None:
                raise
            raise TypeError(_in_place_of_a_graph(function.__name__, given)) from error

    # What nanobind's functions have in the place of a signature.
    call.__nb_signature__ = function.__nb_signature__  # type: ignore[attr-defined]
    del call.__wrapped__
    return call  # type: ignore[return-value]


def _in_place_of_a_graph(function: str, given: Any) -> str:
    wanted = f"{function}: it takes a gs.Graph"
    if isinstance(given, Traced):
        name = _name(given)
        remedy = f"call {name}.compile()" if function == "compile" else f"give {name}.compile().graph"
        return f"{wanted}; {name} is a function of @gs.program, which makes a graph of its own: {remedy}"
    if isinstance(given, TracedProgram):
        remedy = "use it as it is" if function == "compile" else "give its .graph"
        return f"{wanted}, and was given a gs.TracedProgram, which compile() of a function of @gs.program has made: {remedy}"
    remedy = "use it as it is" if function == "compile" else "give the graph that it was compiled of"
    return f"{wanted}, and was given a gs.Program, which gs.compile() has made: {remedy}"


def _name(traced: Traced) -> str:
    return getattr(traced, "__name__", "the function")
