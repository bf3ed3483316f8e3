"""Control flow in the graph, and gradients, with trees of Values."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphsink import _core, _trees
from graphsink._types import Operand


def _leaves(problem: str, expected: Any, made: Any) -> list[Any]:
    """The leaves of `made` in the order of those of `expected`. Raises TypeError with the problem for another form."""
    leaves = _trees.leaves_of_form(expected, made)
    if leaves is None:
        raise TypeError(f"{problem}: {expected!r} and {made!r}")
    return leaves


def if_(predicate: Operand, then_body: Callable[[], Any], else_body: Callable[[], Any]) -> Any:
    """A branch of the graph: the results of `then_body` if the predicate, a boolean scalar, is true, else those of
    `else_body`. Both are called while the graph is built, and return a Value, or trees of one form with Values of the same
    types; dicts of one form have the same keys, in any order. The gradient is that of the branch that was taken."""
    return switch_bodies("if_", [then_body, else_body], lambda bodies: _core.if_values(predicate, *bodies))


def switch_(index: Operand, bodies: Sequence[Callable[[], Any]]) -> Any:
    """A choice among several bodies: the results of bodies[index]. A step in which the index, one integer, is not the number
    of a body fails. All bodies return a Value, or trees of one form with Values of the same types."""
    return switch_bodies("switch_", bodies, lambda flat: _core.switch_values(index, flat))


def switch_bodies(op: str, bodies: Sequence[Callable[[], Any]], build: Callable[[list[Any]], list[Any]]) -> Any:
    results: list[Any] = []

    def flat(body: Callable[[], Any]) -> Callable[[], list[Any]]:
        def call() -> list[Any]:
            result = body()
            results.append(result)
            return _leaves(f"{op}: each body must return what the other returns, of the same form", results[0], result)

        return call

    values = build([flat(body) for body in bodies])
    return _trees.like(results[0], iter(values))


def _call(function: Callable[..., Any], init: Any, values: list[Any]) -> Any:
    """The elements of a list or tuple are arguments of their own."""
    state = _trees.like(init, iter(values))
    return function(*state) if isinstance(init, (list, tuple)) else function(state)


def while_(init: Any, condition: Callable[..., _core.Value], body: Callable[..., Any], *, max_iterations: int = 0,
           recompute: bool = False) -> Any:
    """A loop of the graph: state = init; while condition(state): state = body(state); returns the last state.

    `init` is a Value, Variable or number, or a tree of them. The elements of a list or a tuple are given to both functions as
    arguments of their own, any other tree as one. `condition` returns a boolean scalar, `body` a tree of the form of `init`
    with Values of the same types. Both are called while the graph is built. A loop with max_iterations has a gradient, and
    fails the step if its condition still holds then; with `recompute` the gradient takes less memory and more time."""
    def flat_body(values: list[Any]) -> list[Any]:
        result = _call(body, init, values)
        if isinstance(init, (list, tuple)) and isinstance(result, (list, tuple)):
            result = type(init)(result) if not hasattr(init, "_fields") else type(init)(*result)
        return _leaves("while_: the body must return a state of the form of the first one", init, result)

    values = _core.while_values(_trees.leaves(init), lambda state: _call(condition, init, state), flat_body, max_iterations,
                                recompute)
    return _trees.like(init, iter(values))


def scan(init: Any, inputs: Any, body: Callable[[Any, Any], tuple[Any, Any]], *, iterations: int = 0,
         recompute: bool = False) -> tuple[Any, Any]:
    """A loop over the slices of `inputs` along their first axis: body(state, slices) -> (next state, what to keep).

    `init`, `inputs` and what is kept are trees. Returns the last state, and what was kept, stacked: [iterations, ...]. Without
    inputs (None) give the number of iterations. It has a gradient."""
    kept: list[Any] = []

    def flat_body(state: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        result = body(_trees.like(init, iter(state)), _trees.like(inputs, iter(slices)))
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError("scan: the body must return the next state and what to keep (None for nothing)")
        kept.append(result[1])
        return (_leaves("scan: the body must return a state of the form of the first one", init, result[0]),
                _leaves("scan: each call of the body must return what to keep of one form", kept[0], result[1]))

    state, outputs = _core.scan_values(_trees.leaves(init), _trees.leaves(inputs), flat_body, iterations, recompute)
    return _trees.like(init, iter(state)), _trees.like(kept[0], iter(outputs))


def grad(loss: Operand, wrt: Any) -> Any:
    """d loss / d wrt, a tree of the form of `wrt`, whose leaves are Values and Variables. `loss` is a float scalar. What
    grad() adds has gradients itself."""
    return _trees.like(wrt, iter(_core.grad_values(loss, _trees.leaves(wrt))))
