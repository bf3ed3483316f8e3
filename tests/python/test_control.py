"""Control flow with trees, bodies that throw, scopes, gradients and optimizers of trees."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphsink as gs


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass
class State:
    x: Any
    count: Any


def outputs(graph: gs.Graph, device: gs.DeviceId, **values: Any) -> dict[str, np.ndarray[Any, Any]]:
    for name, value in values.items():
        graph.output(name, value)
    program = gs.compile(graph, device)
    program.run()
    return {name: program.output(name) for name in values}


# ---- Trees

@pytest.mark.parametrize("tree", [
    lambda x, y: x, lambda x, y: [x, y], lambda x, y: (x, y), lambda x, y: {"b": x, "a": y}, lambda x, y: {"n": [x, {"m": (y,)}]},
    lambda x, y: Pair(x, y), lambda x, y: State(x, y), lambda x, y: [State(x, Pair(y, x)), None]])
def test_results_have_the_form_that_bodies_return(tree: Callable[[Any, Any], Any], device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x, y = graph.constant([1.0, 2.0]), graph.constant([10.0])
    taken = gs.if_(graph.constant(True, gs.boolean), lambda: tree(x + 1, y), lambda: tree(x, y + 1))
    picked = gs.switch_(graph.constant(1, gs.i32), [lambda: tree(x, y), lambda: tree(x * 2, y * 2), lambda: tree(x, y)])
    once = graph.constant(1.0)

    def body(step: Any, state: Any) -> Any:
        return step - 1, state

    _, state = gs.while_((once, tree(x, y)), lambda step, state: step > 0, body)
    assert all(type(made) is type(tree(x, y)) for made in (taken, picked, state))
    made = outputs(graph, device, **{f"{name}{i}": leaf for name, result in (("if", taken), ("switch", picked), ("while", state))
                                     for i, leaf in enumerate(leaves(result))})
    for i, (a, b, c) in enumerate(zip(leaves(tree(np.array([2.0, 3.0]), np.array([10.0]))),
                                      leaves(tree(np.array([2.0, 4.0]), np.array([20.0]))),
                                      leaves(tree(np.array([1.0, 2.0]), np.array([10.0]))))):
        np.testing.assert_array_equal(made[f"if{i}"], a)
        np.testing.assert_array_equal(made[f"switch{i}"], b)
        np.testing.assert_array_equal(made[f"while{i}"], c)


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in leaves(value)]
    if isinstance(tree, (list, tuple)):
        return [leaf for value in tree for leaf in leaves(value)]
    if isinstance(tree, State):
        return leaves([tree.x, tree.count])
    return [] if tree is None else [tree]


def test_dicts_say_by_their_keys_what_belongs_together(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x = graph.constant(2.0)
    taken = gs.if_(x < 0, lambda: {"a": x, "b": [{"c": x, "d": x}]}, lambda: {"b": [{"d": x * 3, "c": x * 2}], "a": x * 4})
    picked = gs.switch_(graph.constant(1, gs.i32), [lambda: {"a": x, "b": x}, lambda: {"b": x * 6, "a": x * 5}])
    looped = gs.while_({"n": x, "p": x, "q": x}, lambda s: s["n"] > 0, lambda s: {"q": s["q"] + 1, "n": s["n"] - 1, "p": s["p"] * 3})
    for recompute in (False, True):  # then the body is called twice, for segments and for the rest
        calls: list[int] = []

        def body(s: Any, _: Any) -> Any:
            calls.append(1)
            made = {"r": s["p"], "s": s["q"]}
            return {"q": s["q"] + 1, "p": s["p"] * 3}, made if len(calls) == 1 else dict(reversed(made.items()))

        state, kept = gs.scan({"p": x, "q": x}, None, body, iterations=5, recompute=recompute)
        made = outputs(graph, device, **{f"{name}{recompute}": value for name, value in {**state, **kept}.items()})
        expected = {"p": 486, "q": 7, "r": [2, 6, 18, 54, 162], "s": [2, 3, 4, 5, 6]}
        assert {name: made[f"{name}{recompute}"].tolist() for name in expected} == expected
        assert len(calls) == (2 if recompute else 1)
    made = outputs(graph, device, a=taken["a"], c=taken["b"][0]["c"], d=taken["b"][0]["d"], e=picked["a"], f=picked["b"],
                   g=looped["n"], h=looped["p"], i=looped["q"])
    assert {name: float(array) for name, array in made.items()} == {"a": 8, "c": 4, "d": 6, "e": 10, "f": 12, "g": 0, "h": 18, "i": 4}


def test_while_gives_elements_of_a_list_as_arguments(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    zero = graph.constant(0.0)
    count, total = gs.while_([zero, zero], lambda n, s: n < 5, lambda n, s: (n + 1, s + n))
    tree = gs.while_({"n": zero, "s": zero}, lambda s: s["n"] < 3, lambda s: {"n": s["n"] + 1, "s": s["s"] + 2})
    value = gs.while_(zero, lambda n: n < 7, lambda n: n + 1)
    made = outputs(graph, device, count=count, total=total, n=tree["n"], s=tree["s"], value=value)
    assert {name: float(array) for name, array in made.items()} == {"count": 5, "total": 10, "n": 3, "s": 6, "value": 7}


def test_while_with_a_bound_has_a_gradient(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x = graph.constant(3.0)
    for recompute in (False, True):
        _, y = gs.while_((graph.constant(0.0), x), lambda n, y: n < 4, lambda n, y: (n + 1, y * x), max_iterations=10,
                         recompute=recompute)
        made = outputs(graph, device, **{f"y{recompute}": y, f"g{recompute}": gs.grad(y, x)})
        assert made[f"y{recompute}"] == 3 ** 5 and made[f"g{recompute}"] == 5 * 3 ** 4


def test_scan_keeps_trees(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    xs = {"a": graph.constant(np.arange(4.0, dtype=np.float32)), "b": graph.constant(np.ones((4, 2), np.float32))}

    def body(state: State, now: dict[str, gs.Value]) -> tuple[State, Any]:
        total = state.x + now["a"]
        return State(total, state.count + 1), {"total": total, "more": [now["b"] * total]}

    state, kept = gs.scan(State(graph.constant(0.0), graph.constant(0.0)), xs, body)
    made = outputs(graph, device, x=state.x, count=state.count, total=kept["total"], more=kept["more"][0])
    np.testing.assert_array_equal(made["total"], [0, 1, 3, 6])
    np.testing.assert_array_equal(made["more"], np.repeat([[0], [1], [3], [6]], 2, axis=1))
    assert made["x"] == 6 and made["count"] == 4


def test_scan_without_inputs_and_without_results(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    state, kept = gs.scan(graph.constant(1.0), None, lambda s, _: (s * 2, None), iterations=5)
    assert kept is None
    assert outputs(graph, device, y=state)["y"] == 32


@pytest.mark.parametrize("build", [
    lambda x: gs.if_(x > 0, lambda: [x], lambda: (x,)),
    lambda x: gs.if_(x > 0, lambda: {"a": x}, lambda: {"b": x}),
    lambda x: gs.if_(x > 0, lambda: x, lambda: [x, x]),
    lambda x: gs.while_((x, x), lambda a, b: a > 0, lambda a, b: (a,)),
    lambda x: gs.while_(x, lambda a: a > 0, lambda a: (a, a)),
    lambda x: gs.scan(x, None, lambda s, _: s, iterations=2),
    lambda x: gs.scan(x, None, lambda s, _: ([s], None), iterations=2)])
def test_other_forms_are_type_errors(build: Callable[[gs.Value], Any]) -> None:
    with pytest.raises(TypeError, match="return"):
        build(gs.Graph().constant(1.0))


def test_bodies_of_other_types_are_errors() -> None:
    x = gs.Graph().constant([1.0, 2.0])
    with pytest.raises(gs.Error):
        gs.if_(gs.any(x > 0), lambda: x, lambda: gs.sum(x))
    with pytest.raises(gs.Error):
        gs.while_(x, lambda s: gs.any(s > 0), lambda s: gs.sum(s))
    with pytest.raises(gs.Error):
        gs.while_(x, lambda s: s > 0, lambda s: s)


def test_no_bodies_are_an_error() -> None:
    with pytest.raises((gs.Error, TypeError)):
        gs.switch_(gs.Graph().constant(0, gs.i32), [])


def test_variables_in_bodies_of_traced_functions(device: gs.DeviceId) -> None:
    v = gs.Variable("v", [2.0])

    @gs.program(target=device)
    def compute(x):  # type: ignore[no-untyped-def]
        doubled = gs.while_(x, lambda s: gs.sum(s) < 10, lambda s: s + v * 2)
        return gs.if_(gs.sum(x) > 0, lambda: -v, lambda: v + 0.0), doubled, gs.if_(gs.sum(x) > 0, lambda: v, lambda: x)

    taken, doubled, variable = compute(np.array([1.0], np.float32))
    assert (taken, doubled, variable) == (-2, 13, 2)


# ---- Bodies that throw

class Mine(Exception):
    pass


def throw(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("error", [Mine("text"), KeyboardInterrupt(), SystemExit(3), gs.Error, StopIteration(1)], ids=repr)
@pytest.mark.parametrize("build", [
    lambda x, fail: gs.if_(x > 0, lambda: x * 2, lambda: fail(x * 3)), lambda x, fail: gs.if_(x > 0, lambda: fail(x), lambda: x),
    lambda x, fail: gs.switch_(gs.cast(x, gs.i32), [lambda: x, lambda: fail(x + 1)]),
    lambda x, fail: gs.while_(x, lambda s: fail(s > 0), lambda s: s - 1),
    lambda x, fail: gs.while_(x, lambda s: s > 0, lambda s: fail(s - 1)),
    lambda x, fail: gs.scan(x, None, lambda s, _: fail((s, s)), iterations=3),
    lambda x, fail: gs.if_(x > 0, lambda: gs.while_(x, lambda s: s > 0, lambda s: fail(s - 1)), lambda: x)])
def test_a_body_that_throws_leaves_the_graph_usable(build: Callable[..., Any], error: Any, device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x = graph.constant(3.0)
    before = x + 1

    def fail(_: Any) -> Any:
        if error is gs.Error:
            gs.matmul(x, x)
        raise error

    with pytest.raises(error if error is gs.Error else type(error)) as caught:
        build(x, fail)
    if error is not gs.Error:
        assert caught.value is error
    after = gs.while_(before, lambda s: s > 0, lambda s: s - 1) + x
    assert outputs(graph, device, before=before, after=after) == {"before": 4, "after": 3}


def test_values_of_a_body_that_threw_are_errors() -> None:
    graph = gs.Graph()
    x = graph.constant(3.0)
    kept: list[gs.Value] = []
    with pytest.raises(Mine):
        gs.if_(x > 0, lambda: kept.append(x * 2) or throw(Mine()), lambda: x)
    with pytest.raises(gs.Error):
        graph.output("y", kept[0] + 1)


# ---- Scopes

def scope_of(graph: gs.Graph) -> str:
    """That in which the Error of a wrong call is made."""
    with pytest.raises(gs.Error) as caught:
        gs.matmul(graph.constant(1.0), graph.constant(1.0))
    return caught.value.scope


def test_scopes_nest_and_end() -> None:
    graph = gs.Graph()
    assert scope_of(graph) == ""
    with gs.Scope("a"):
        assert scope_of(graph) == "a"
        with gs.Scope("b"), gs.Scope("c"):
            assert scope_of(graph) == "a/b/c"
            assert gs.Variable("w", [1.0]).name == "a/b/c/w"
        assert scope_of(graph) == "a"
    assert scope_of(graph) == ""


def test_scopes_end_with_an_exception() -> None:
    graph = gs.Graph()
    with pytest.raises(Mine), gs.Scope("a"), gs.Scope("b"):
        throw(Mine())
    assert scope_of(graph) == ""


def test_scopes_of_bodies_that_throw() -> None:
    graph = gs.Graph()
    x = graph.constant(1.0)

    def body() -> Any:
        with gs.Scope("inner"):
            throw(Mine())

    with gs.Scope("outer"):
        with pytest.raises(Mine):
            gs.if_(x > 0, body, lambda: x)
        assert scope_of(graph) == "outer"


def test_generators_hold_scopes() -> None:
    """A generator that is left open keeps its scope until it goes, as `with` in a generator does; one that ends after the
    scope around it takes nothing else with it."""
    graph = gs.Graph()

    def layers() -> Iterator[str]:
        for i in range(3):
            with gs.Scope(f"layer{i}"):
                yield scope_of(graph)

    assert list(layers()) == ["layer0", "layer1", "layer2"]
    assert scope_of(graph) == ""
    with gs.Scope("outer"):
        open_one = layers()
        assert next(open_one) == "outer/layer0"
    assert scope_of(graph) == ""
    with gs.Scope("other"), gs.Scope("one"):
        open_one.close()
        assert scope_of(graph) == "other/one"
    assert scope_of(graph) == ""


def test_a_scope_may_be_entered_again() -> None:
    graph = gs.Graph()
    scope = gs.Scope("a")
    for _ in range(2):
        with scope:
            assert scope_of(graph) == "a"
        assert scope_of(graph) == ""
    with scope:
        with scope:
            assert scope_of(graph) == "a/a"
        assert scope_of(graph) == "a"
    assert scope_of(graph) == ""


# ---- Gradients and optimizers of trees

def test_gradients_have_the_form_of_what_they_are_for(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    v, x = gs.Variable("v", [2.0, 3.0]), graph.constant([1.0, 5.0])
    gradients = gs.grad(gs.sum(x * v * v), {"v": v, "more": [x]})
    made = outputs(graph, device, v=gradients["v"], x=gradients["more"][0])
    np.testing.assert_array_equal(made["v"], [4, 30])
    np.testing.assert_array_equal(made["x"], [4, 9])


@pytest.mark.parametrize("make", [gs.sgd, gs.adamw])
def test_parameters_are_trees(make: Any, device: gs.DeviceId) -> None:
    parameters = gs.variables({"layer": {"w": np.array([1.0, 2.0], np.float32)}, "b": np.array([3.0], np.float32)}, "model")
    assert parameters["layer"]["w"].name == "model.layer.w" and parameters["b"].name == "model.b"
    graph = gs.Graph()
    loss = gs.sum(graph.value(parameters["layer"]["w"]) ** 2) + gs.sum(graph.value(parameters["b"]) ** 2)
    optimizer = make(loss, parameters, lr=0.1, clip_norm=1.0)
    graph.record("loss", loss)
    graph.record("norm", optimizer.gradient_norm)
    program = gs.compile(graph, device)
    program.run(steps=5)
    losses = program.records("loss")
    assert losses[0] == pytest.approx(14) and np.all(np.diff(losses) < 0) and program.records("norm")[0] == pytest.approx(2 * 14 ** 0.5)
    optimizer.lr.write(0.0)
    program.run(steps=2)
    last = program.records("loss")
    assert last[0] == last[1]


def test_groups_have_options_of_their_own(device: gs.DeviceId) -> None:
    a, b = gs.Variable("a", [1.0]), gs.Variable("b", [1.0])
    graph = gs.Graph()
    loss = gs.sum(graph.value(a) + graph.value(b))
    optimizer = gs.sgd(loss, [gs.ParameterGroup({"a": a}), gs.ParameterGroup([b], lr=0.25)], lr=0.5)
    program = gs.compile(graph, device)
    program.run()
    assert a.read() == 0.5 and b.read() == 0.75
    assert [lr.read() for lr in optimizer.group_lr if lr is not None] != []


def test_apply_takes_gradients(device: gs.DeviceId) -> None:
    a, b = gs.Variable("a", [1.0]), gs.Variable("b", [1.0])
    graph = gs.Graph()
    loss = gs.sum(graph.value(a) * 3 + graph.value(b))
    gradients = gs.grad(loss, {"a": a, "b": b})
    gs.apply(gs.Sgd(lr=0.1), {"a": a, "b": b}, {"a": gradients["a"] * 2, "b": gradients["b"]})
    gs.compile(graph, device).run()
    np.testing.assert_allclose([a.read()[0], b.read()[0]], [0.4, 0.9], rtol=1e-6)


def updated(parameters: Callable[[Any, Any], Any], gradients: Callable[[Any, Any], Any]) -> list[float]:
    """Two parameters that begin with 1, after one update with gradients of 3 and 1 at the rate 0.1."""
    a, b = gs.Variable("a", [1.0]), gs.Variable("b", [1.0])
    graph = gs.Graph()
    by_name = gs.grad(gs.sum(graph.value(a) * 3 + graph.value(b)), {"a": a, "b": b})
    gs.apply(gs.Sgd(lr=0.1), parameters(a, b), gradients(by_name["a"], by_name["b"]))
    gs.compile(graph).run()
    return [round(float(v.read()[0]), 5) for v in (a, b)]


class Swapped(NamedTuple):
    b: Any
    a: Any


@pytest.mark.parametrize("gradients", [
    lambda a, b: {"b": b, "a": a}, lambda a, b: Swapped(b, a), lambda a, b: [a, b], lambda a, b: ((a,), [b])
], ids=["dict", "named tuple", "list", "nested lists"])
def test_apply_pairs_gradients_and_parameters_by_name_or_else_by_position(gradients: Any) -> None:
    assert updated(lambda a, b: {"a": a, "b": b}, gradients) == [0.7, 0.9]


def test_apply_pairs_gradients_of_groups_by_name() -> None:
    def both_first(a: Any, b: Any) -> Any:
        return gs.ParameterGroup({"a": a, "b": b})

    assert updated(both_first, lambda a, b: {"b": b, "a": a}) == [0.7, 0.9]
    assert updated(lambda a, b: [both_first(a, b)], lambda a, b: [{"b": b, "a": a}]) == [0.7, 0.9]
    assert updated(lambda a, b: {0: a, 1: b}, lambda a, b: {1: b, 0: a}) == [0.7, 0.9]
    assert updated(lambda a, b: [gs.ParameterGroup({"x": a}), gs.ParameterGroup({"x": b})], lambda a, b: [{"x": a}, {"x": b}]) == [0.7, 0.9]


@pytest.mark.parametrize("parameters, gradients, found", [
    (lambda a, b: {"a": a, "b": b}, lambda a, b: {"a": a, "c": b}, "have b, and the gradients do not; the gradients have c, and"),
    (lambda a, b: {"a": a, "b": b}, lambda a, b: {"a": a}, "the parameters have b, and the gradients do not; give"),
    (lambda a, b: [a, b], lambda a, b: {"b": b, "a": a}, "the parameters have 0, "),
    (lambda a, b: a, lambda a, b: {"a": a}, "the parameters have one alone, and the gradients do not"),
    (lambda a, b: [gs.ParameterGroup(a), gs.ParameterGroup(b)], lambda a, b: {"b": b, "a": a}, "the parameters have 0, "),
])
def test_apply_refuses_gradients_with_other_names(parameters: Any, gradients: Any, found: str) -> None:
    with pytest.raises(TypeError, match=f"^apply: .*{found}"):
        updated(parameters, gradients)


def test_parameters_must_be_variables() -> None:
    graph = gs.Graph()
    x = graph.constant([1.0])
    with pytest.raises(TypeError, match="w is a Value"):
        gs.sgd(gs.sum(x), {"w": x})


def test_exponential_averages_are_trees(device: gs.DeviceId) -> None:
    a = gs.Variable("a", [1.0])
    graph = gs.Graph()
    gs.sgd(gs.sum(graph.value(a)), [a], lr=1.0)
    averages = gs.exponential_average(graph, {"a": a}, 0.5)
    assert averages["a"].name == "a.ema"
    gs.compile(graph, device).run(steps=2)
    assert a.read() == -1 and averages["a"].read() == pytest.approx(-0.25)


def test_loss_scales(device: gs.DeviceId) -> None:
    v = gs.Variable("v", [1.0])
    graph = gs.Graph()
    optimizer = gs.sgd(gs.sum(graph.value(v) * 2), [v], lr=0.25, loss_scale=gs.LossScale(initial=8.0))
    graph.record("scale", optimizer.loss_scale)
    program = gs.compile(graph, device)
    program.run()
    assert v.read() == 0.5 and program.records("scale")[0] == 8


# ---- RandomPart

def test_parts_draw_what_the_whole_draws() -> None:
    def mask(rows: int, part: int | None) -> np.ndarray:
        g = gs.Graph()
        x = g.input("x", np.float32, (rows, 3))
        with gs.RandomPart(part) if part is not None else contextlib.nullcontext():
            g.output("y", gs.dropout(x, 0.5))
        program = gs.compile(g, target=gs.cpu(), seed=5)
        program.write(x, np.ones((rows, 3), np.float32))
        program.run()
        return program.output("y")

    whole = mask(8, None)
    assert np.array_equal(np.concatenate([mask(4, 0), mask(4, 1)]), whole)
    assert not np.array_equal(mask(4, 1), mask(4, 0))
    with pytest.raises(gs.Error, match="-1"), gs.RandomPart(-1):
        pass


def test_parts_along_another_axis_draw_what_the_whole_draws() -> None:
    def mask(shape: tuple[int, int], *parts: gs.RandomPart) -> np.ndarray:
        g = gs.Graph()
        x = g.input("x", np.float32, shape)
        with contextlib.ExitStack() as stack:
            for part in parts:
                stack.enter_context(part)
            g.output("y", gs.dropout(x, 0.5))
        program = gs.compile(g, target=gs.cpu(), seed=5)
        program.write(x, np.ones(shape, np.float32))
        program.run()
        return program.output("y")

    whole = mask((4, 15))
    columns = [gs.RandomPart(number, axis=-1, parts=3) for number in range(3)]
    assert np.array_equal(np.concatenate([mask((4, 5), part) for part in columns], axis=1), whole)
    assert np.array_equal(mask((2, 5), gs.RandomPart(1), columns[2]), whole[2:, 10:])
    assert np.array_equal(mask((4, 15), columns[1], gs.RandomPart(0, axis=1, parts=1)), whole)
    with pytest.raises(gs.Error, match=r"along axis 1 into 0 parts.*give parts, the number"), gs.RandomPart(0, axis=1):
        pass
    with pytest.raises(gs.Error, match="3 of 3"), gs.RandomPart(3, axis=1, parts=3):
        pass
    with pytest.raises(gs.Error, match=r"divides axis 2, which \[4, 15\] does not have"):
        mask((4, 15), gs.RandomPart(1, axis=2, parts=2))
    with pytest.raises(TypeError):
        gs.RandomPart(0, 1, 2)  # type: ignore[call-overload, misc]


def test_a_norm_of_several_parts_clips() -> None:
    """A function that makes the norm larger, as that of other ranks does, makes the update smaller."""
    def step(norm_of_all: Callable[[gs.Value], gs.Value] | None) -> float:
        g = gs.Graph()
        w = gs.Variable("w", np.full(4, 2.0, np.float32))
        gs.sgd(gs.sum(g.value(w) * 1.0), w, lr=1.0, clip_norm=1.0, norm_of_all=norm_of_all)
        program = gs.compile(g, target=gs.cpu())
        program.run()
        program.sync()
        return float(2.0 - w.read()[0])

    assert step(lambda norm: norm * 2.0) == pytest.approx(step(None) / 2)


def test_threads_share_the_object_of_a_part() -> None:
    """Each thread leaves the part that it entered, in whatever order."""
    part, entered, left = gs.RandomPart(1), threading.Barrier(2), threading.Event()

    def masks(leaves_first: bool) -> list[bytes]:
        made = []
        for is_inside in (True, False):
            if is_inside:
                part.__enter__()
                entered.wait(60)
            else:
                if not leaves_first:
                    left.wait(60)
                part.__exit__(None, None, None)
                left.set()
            g = gs.Graph()
            g.output("y", gs.dropout(g.input("x", np.float32, (8,)), 0.5))
            program = gs.compile(g, target=gs.cpu(), seed=5)
            program.write("x", np.ones(8, np.float32))
            program.run()
            made.append(np.asarray(program.output("y")).tobytes())
        return made

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(masks, (True, False))
    assert first == second and first[0] != first[1]
