"""Values and Variables as Python sees them: indexing, operators, what is refused, dtypes, shapes, open dimensions."""
from __future__ import annotations

import copy
import operator
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphsink as gs


def computed(device: gs.DeviceId, build: Callable[[gs.Graph], dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a graph after one step."""
    graph = gs.Graph()
    names = list(build(graph).items())
    for name, value in names:
        graph.output(name, value)
    program = gs.compile(graph, device)
    program.run()
    return {name: program.output(name) for name, _ in names}


# ---- Indexing

def random_index(rng: random.Random, shape: tuple[int, ...]) -> Any:
    """Integers, slices of both directions, None and at most one ellipsis."""
    parts: list[Any] = []
    for size in shape[:rng.randint(0, len(shape))]:
        kind = rng.randrange(4)
        if kind == 0:
            parts.append(rng.randrange(-size, size))
        else:
            bounds = [rng.choice([None, rng.randint(-size - 2, size + 2)]) for _ in range(2)]
            parts.append(slice(*bounds, rng.choice([None, 1, 2, 3, -1, -2, -3])))
    for _ in range(rng.choice([0, 0, 1, 2])):
        parts.insert(rng.randint(0, len(parts)), None)
    if rng.randrange(3) == 0:
        at = rng.randint(0, len(parts))
        parts.insert(at, ...)
        # What comes behind the ellipsis counts from the last axis, and must fit the axes there.
        named = [part for part in parts if part is not None and part is not ...]
        sizes = [*shape[:len([p for p in parts[:at] if p is not None])],
                 *shape[len(shape) - len([p for p in parts[at + 1:] if p is not None]):]]
        if any(isinstance(part, int) and not -size <= part < size for part, size in zip(named, sizes)):
            parts.pop(at)
    return parts[0] if len(parts) == 1 and rng.randrange(2) else tuple(parts)


def test_indexing_is_that_of_numpy(device: gs.DeviceId) -> None:
    rng = random.Random(1)
    array = np.arange(5 * 4 * 3, dtype=np.float32).reshape(5, 4, 3)
    given = [(slice(None, None, -1),), (-1,), 0, ..., None, (None, ..., None), (), (slice(None), -1), (..., -1), (..., 0, None),
             slice(4, None, -2), slice(1, 0), slice(None, -20, -1), (np.int64(2), np.int32(-1)), (slice(np.int8(1), None),),
             (0, 1, 2), (slice(3, 1), None, 0), (1, ..., 2), (None, 2, None, slice(None, None, -3), None),
             slice(None, 2**70), slice(-2**70, None), slice(2**70, None), slice(2**70, None, -2), slice(None, -2**70, -1)]
    indices = [*given, *(random_index(rng, array.shape) for _ in range(200))]
    made = computed(device, lambda g: {str(i): g.constant(array)[index] for i, index in enumerate(indices)})
    for i, index in enumerate(indices):
        np.testing.assert_array_equal(made[str(i)], array[index], f"x[{index!r}]", strict=True)


def test_indexing_open_axes(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (gs.open(4), 3))
    indices = [(slice(1, None),), (slice(None, None, -1), 0), (-1,), (..., None), (slice(None), slice(0, 2))]
    for i, index in enumerate(indices):
        graph.output(str(i), x[index])
    program = gs.compile(graph, device)
    for rows in (4, 7, 2):
        array = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        program.write("x", array)
        program.run()
        for i, index in enumerate(indices):
            np.testing.assert_array_equal(program.output(str(i)), array[index], f"x[{index!r}]")


@pytest.mark.parametrize("index", [1.0, "a", True, [0, 1], np.array([0, 1]), np.array([True, False]), slice(0.5, None)],
                         ids=str)
def test_other_indices_are_refused(index: Any) -> None:
    x = gs.Graph().constant([[1.0, 2.0]])
    with pytest.raises(TypeError, match="gs.gather.*gs.masked_select"):
        x[index]


@pytest.mark.parametrize("index", [(0, 0, 0), 2, -3, (slice(None), 7)], ids=str)
def test_indices_out_of_bounds_are_errors(index: Any) -> None:
    x = gs.Graph().constant([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(gs.Error) as caught:
        x[index]
    assert caught.value.file == __file__


def test_two_ellipses_are_refused() -> None:
    with pytest.raises((IndexError, gs.Error, TypeError)):
        gs.Graph().constant([[1.0]])[..., ...]


def test_slices_of_step_zero_are_refused() -> None:
    with pytest.raises((ValueError, gs.Error)):
        gs.Graph().constant([1.0])[::0]


# ---- Operators

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.lt, operator.le, operator.gt,
             operator.ge, operator.eq, operator.ne]
NUMBERS = [2, 0.5, np.float32(3), np.int64(2), np.float64(1.5), np.array(2.0, np.float32)]


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_operators_with_numbers_on_both_sides(op: Callable[..., Any], device: gs.DeviceId) -> None:
    array = np.array([1.0, 2.0, 3.0, 0.5], np.float32)

    def build(graph: gs.Graph) -> dict[str, Any]:
        x = graph.constant(array)
        made = {}
        for i, number in enumerate(NUMBERS):
            made[f"{i} right"], made[f"{i} left"] = op(x, number), op(number, x)
        return made

    made = computed(device, build)
    for i, number in enumerate(NUMBERS):
        number = np.float32(number)
        np.testing.assert_allclose(made[f"{i} right"], op(array, number), rtol=1e-6, strict=True)
        np.testing.assert_allclose(made[f"{i} left"], op(number, array), rtol=1e-6, strict=True)


def test_operators_of_values_and_variables(device: gs.DeviceId) -> None:
    a, b = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32), np.array([[0.5, 2.0], [-1.0, 1.0]], np.float32)
    v = gs.Variable("v", b)

    def build(graph: gs.Graph) -> dict[str, Any]:
        x = graph.constant(a)
        t = x > 0
        return {"matmul": x @ v, "rmatmul": v @ x, "neg": -x, "abs": abs(x), "rsub": v - x, "and": t & (x < 3),
                "or": t | (x < -1), "xor": t ^ True, "rand": True & t, "invert": ~t, "T": x.T, "variable": graph.value(v)[0] + x,
                "eq": v == x, "ne": v != x, "pow": abs(x) ** 2}

    made = computed(device, build)
    t = a > 0
    expected = {"matmul": a @ b, "rmatmul": b @ a, "neg": -a, "abs": abs(a), "rsub": b - a, "and": t & (a < 3),
                "or": t | (a < -1), "xor": t ^ True, "rand": t, "invert": ~t, "T": a.T, "variable": b[0] + a, "eq": a == b, "ne": a != b,
                "pow": a ** 2}
    for name, array in expected.items():
        np.testing.assert_allclose(made[name], array, rtol=1e-6, err_msg=name, strict=True)


def test_operators_of_variables_alone_have_no_graph() -> None:
    v = gs.Variable("v", [1.0, 2.0])
    for use in (lambda: v * 2, lambda: -v, lambda: v[0], lambda: v.assign(1.0)):
        with pytest.raises(gs.Error, match=r"graph\.value\(variable\)") as caught:
            use()
        assert caught.value.op in ("mul", "neg", "[]", "assign")


def test_arrays_are_no_operands() -> None:
    x = gs.Graph().constant([1.0, 2.0])
    for wrong in (np.ones(2, np.float32), [1.0, 2.0], None, "1"):
        with pytest.raises(TypeError):
            x + wrong
        with pytest.raises(TypeError):
            wrong - x
    with pytest.raises(TypeError, match=r"Graph\.constant\(\)"):
        gs.add(x, np.ones(2, np.float32))


def test_integers_are_exact(device: gs.DeviceId) -> None:
    big = 2 ** 53 - 1
    made = computed(device, lambda g: {"y": g.constant(np.array([1], np.int64)) + big})
    assert made["y"].dtype == np.int64 and made["y"][0] == big + 1
    with pytest.raises(gs.Error, match="64 bits"):
        gs.Graph().constant(np.array([1], np.int64)) + 2 ** 70


# ---- What a Value of a graph cannot tell

@pytest.mark.parametrize("make", [lambda: gs.Graph().constant([1.0, 2.0]), lambda: gs.Variable("v", [1.0, 2.0])],
                         ids=["Value", "Variable"])
@pytest.mark.parametrize("ask, remedy", [
    (bool, r"gs\.if_"), (len, r"\.shape"), (iter, r"gs\.scan"), (list, r"gs\.scan"), (float, r"Program\.output|Variable\.read"),
    (int, r"Program\.output|Variable\.read"), (operator.index, r"gs\.gather"), (lambda x: 1.0 in x, r"gs\.any"),
    (lambda x: 1.0 if x else 2.0, r"gs\.where"), (lambda x: (lambda a, b: a)(*x), r"gs\.scan"),
    (lambda x: [1, 2][x], r"gs\.gather"), (lambda x: range(x), r"gs\.gather")])
def test_conversions_raise_type_errors_with_remedies(make: Callable[[], Any], ask: Callable[[Any], Any], remedy: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        ask(make())


def test_values_are_no_arrays() -> None:
    x = gs.Graph().constant([1.0, 2.0])
    for convert in (np.asarray, np.array, lambda v: np.asarray(v, np.float32)):
        with pytest.raises(TypeError, match=r"Program\.output"):
            convert(x)
    with pytest.raises(gs.Error, match="no elements before a program runs"):
        gs.Variable("v", x)


def test_variables_are_no_arrays_either() -> None:
    with pytest.raises(TypeError, match=r"read\(\)"):
        np.asarray(gs.Variable("v", [1.0, 2.0]))


def test_hash_is_identity_and_equal_compares_elements(device: gs.DeviceId) -> None:
    made = computed(device, lambda g: {"y": g.constant([1.0, 2.0]) == g.constant([1.0, 3.0])})
    np.testing.assert_array_equal(made["y"], [True, False])
    graph = gs.Graph()
    x, y = graph.constant([1.0]), graph.constant([1.0])
    places = {x: "x", y: "y"}
    assert places[x] == "x" and places[y] == "y" and len({x, y, x}) == 2
    v, w = gs.Variable("v", [1.0]), gs.Variable("v", [1.0])
    assert v == v and v != w and {v: 1, w: 2}[v] == 1 and v in [w, v] and len({v, w}) == 2


def test_equal_variables_have_equal_hashes() -> None:
    v = gs.Variable("v", [1.0])
    graph = gs.Graph()
    graph.output("y", graph.value(v))
    (same,) = gs.compile(graph).variables
    assert same == v and hash(same) == hash(v) and same is not v


def test_values_compare_with_none_and_texts() -> None:
    x, v = gs.Graph().constant([1.0]), gs.Variable("v", [1.0])
    assert not (x == None) and x != None  # noqa: E711
    assert not (v == None) and v != None and v != "v"  # noqa: E711


# ---- Dtypes and shapes

SPELLINGS = {
    gs.f32: [np.float32, "float32", "f32", np.dtype("float32"), np.dtype("<f4")], gs.f64: [np.float64, "float64", "f64", float],
    gs.f16: [np.float16, "float16", "f16"], gs.i32: [np.int32, "int32", "i32"], gs.i64: [np.int64, "int64", "i64", int],
    gs.u8: [np.uint8, "uint8", "u8"], gs.boolean: [np.bool_, "bool", bool], gs.bf16: ["bfloat16", "bf16"]}


@pytest.mark.parametrize("dtype", SPELLINGS, ids=str)
def test_dtypes_have_numpys_names(dtype: Any, device: gs.DeviceId) -> None:
    graph = gs.Graph()
    for number, spelling in enumerate([dtype, *SPELLINGS[dtype]]):
        x = graph.input(f"x{number}", spelling, (2,))
        assert x.dtype == dtype
    graph.output("y", x)
    program = gs.compile(graph, device)
    array = np.array([0, 1], np.float32 if dtype == gs.bf16 else dtype)
    program.write(x, gs.Tensor(array, gs.bf16) if dtype == gs.bf16 else array)
    program.run()
    np.testing.assert_array_equal(program.output("y"), array, strict=True)


@pytest.mark.parametrize("wrong", ["float8", np.int8, np.complex64, object, "", 3, None, np.dtype("M8[s]")], ids=str)
def test_other_dtypes_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError):
        gs.Graph().input("x", wrong, (2,))


def test_dtypes_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert gs.bf16 == np.dtype(ml_dtypes.bfloat16)
    assert gs.Graph().input("x", ml_dtypes.bfloat16, ()).dtype == gs.bf16
    assert gs.Variable("v", np.ones(2, ml_dtypes.bfloat16)).dtype == gs.bf16


def test_bf16_is_one_dtype() -> None:
    class Same:
        name = "bfloat16"
    assert gs.bf16 == Same() and gs.bf16 != gs.f16 and gs.bf16 != "f32" and hash(gs.bf16) == hash(type(gs.bf16)())
    assert {gs.bf16: 1}[gs.Graph().input("x", gs.bf16, ()).dtype] == 1


def test_data_of_other_byte_orders_and_strides() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (base[::2, ::-1], base.T, base.astype(">f4"), np.broadcast_to(np.float32(3), (2, 3)), base[1:1], base[:, 2],
                  np.asfortranarray(base)):
        np.testing.assert_array_equal(gs.Variable("v", array).read(), array.astype(np.float32), strict=True)
    read_only = base.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(gs.Tensor(read_only).numpy(), base)


def test_numbers_become_f32_or_the_dtype() -> None:
    assert gs.Variable("v", [1, 2]).dtype == gs.f32
    assert gs.Variable("v", 1.5).shape == ()
    assert gs.Variable("v", [[1, 2], [3, 4]], gs.i64).dtype == gs.i64
    assert gs.Variable("v", np.float64(1)).dtype == gs.f64
    assert gs.Variable("v", [True, False], gs.boolean).dtype == gs.boolean
    with pytest.raises(TypeError, match="cannot hold"):
        gs.Graph().constant([1.5], gs.i32)
    for wrong in ("text", None, [None], [[1.0], [1.0, 2.0]], {1: 2}, object()):
        with pytest.raises((TypeError, ValueError)):
            gs.Variable("v", wrong)


@pytest.mark.parametrize("dtype, given, expected", [
    (gs.i64, 2 ** 53 + 1, int), (gs.i64, -2 ** 63, int), (gs.i32, -7, int), (gs.u8, 255, int), (gs.boolean, True, bool),
    (gs.f16, 1.5, float), (gs.bf16, 1.5, float), (gs.f32, 1.5, float), (gs.f64, 1e300, float)])
def test_items_are_what_python_has_for_the_dtype(dtype: Any, given: Any, expected: type) -> None:
    item = gs.Tensor(given, dtype).item()
    assert item == given and type(item) is expected
    with pytest.raises(gs.Error, match="item"):
        gs.Tensor([given, given], dtype).item()


def test_every_byte_but_zero_of_an_array_of_bools_is_true() -> None:
    array = np.array([[2, 0, 1], [255, 1, 0]], np.uint8).view(bool)
    for given in (array, array.T):  # the second is copied element by element
        graph = gs.Graph()
        graph.output("as_f32", gs.cast(graph.constant(given), gs.f32))
        program = gs.compile(graph)
        program.run()
        np.testing.assert_array_equal(program.output("as_f32"), given.view(np.uint8) != 0)
        np.testing.assert_array_equal(gs.Tensor(given).numpy().view(np.uint8), given.view(np.uint8) != 0)


@pytest.mark.parametrize("given, dtype, seen, wanted, remedy", [
    (np.array([1.5, 2.5]), gs.f32, "f64", "f32", ".astype(gs.f32)"),
    (np.array([1.5]), gs.i32, "f64", "i32", ".astype(gs.i32)"),
    (np.array([1.5]), gs.boolean, "f64", "bool", ".astype(gs.boolean)"),
    (np.float64(1.5), gs.f32, "f64", "f32", ".astype(gs.f32)"),
    (np.array([1.5], np.float32), gs.bf16, "f32", "bf16", "gs.Tensor(array, gs.bf16)"),
    (gs.Tensor([1.5]), gs.f64, "f32", "f64", ".to(gs.f64)")])
def test_a_dtype_that_an_array_does_not_have_is_refused(given: Any, dtype: Any, seen: str, wanted: str, remedy: str) -> None:
    for make in (gs.Graph().constant, gs.Eager(gs.cpu()).tensor):
        with pytest.raises(gs.Error) as raised:
            make(given, dtype)
        assert raised.value.problem == f"the array is of {seen}, which it keeps, and the dtype is given as {wanted}"
        assert remedy in raised.value.remedy
        assert make(gs.Tensor(given, dtype), dtype).dtype == dtype


def test_shapes_are_tuples() -> None:
    graph = gs.Graph()
    assert graph.constant(np.zeros((2, 0, 3), np.float32)).shape == (2, 0, 3)
    assert graph.constant(1.0).shape == () and graph.constant(1.0).ndim == 0
    assert graph.input("a", gs.f32).shape == () and graph.input("b", gs.f32, [np.int64(2), 3]).shape == (2, 3)
    for wrong in (3, (2.0,), ("2",), (True,), None):
        with pytest.raises(TypeError):
            graph.input("c", gs.f32, wrong)
    with pytest.raises(gs.Error):
        graph.input("c", gs.f32, (-1,))


def test_open_dimensions_are_dims() -> None:
    x = gs.Graph().input("x", gs.f32, (gs.open(4), 3))
    assert isinstance(x.shape[0], gs.Dim) and x.shape[0].is_open and x.shape[0].size == 4 and x.shape[1] == 3
    assert x.shape[0] == gs.open(4) and x.shape[0] != gs.open(5) and x.shape[0] != 4 and repr(x.shape[0]) == "open(4)"
    assert hash(x.shape[0]) == hash(gs.open(4))


def test_buckets_pad_what_was_written(device: gs.DeviceId) -> None:
    assert gs.next_power_of_two().round_up(5) == 8
    assert [gs.multiples_of(6).round_up(n) for n in (1, 6, 7)] == [6, 6, 12]
    assert gs.one_of([2, 9]).round_up(10) == -1
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (gs.open(2, gs.multiples_of(4)),))
    assert x.shape[0].size == 4
    for name, value in {"x": x, "size": gs.true_size(x, 0), "mask": gs.valid_mask(x, 0), "dim": gs.dim(x, 0)}.items():
        graph.output(name, value)
    program = gs.compile(graph, device)
    program.write("x", np.ones(6, np.float32))
    program.run()
    np.testing.assert_array_equal(program.output("x"), [1] * 6 + [0] * 2)
    np.testing.assert_array_equal(program.output("mask"), [True] * 6 + [False] * 2)
    assert program.output("size") == 6 and program.output("dim") == 8


def test_what_a_value_of_an_eager_has_not_names_no_graph(device: gs.DeviceId) -> None:
    with gs.eager(device):
        x = gs.tensor([1.0, 2.0])
        for call in (len, iter, operator.index):
            with pytest.raises(TypeError, match=r"numpy.asarray\(\), or take elements by x\[i\]") as caught:
                call(x)
            assert "graph" not in str(caught.value)


def test_a_number_that_would_be_rounded_is_said_in_python() -> None:
    x = gs.Graph().input("x", gs.i64, (2,))
    with pytest.raises(gs.Error, match=r"g.constant\(number, gs.i64\)"):
        x + (2**53 + 1)


def test_masked_elements_are_refused(device: gs.DeviceId) -> None:
    masked = np.ma.masked_array(np.array([1, 2], np.float32), [False, True])
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (2,))
    graph.output("y", gs.host_op(lambda a: np.ma.masked_less(a, 0), out=lambda a: (a.dtype, a.shape))(x))
    program = gs.compile(graph, device)
    for call in (lambda: program.write("x", masked), lambda: graph.constant(masked), lambda: gs.Variable("v", masked)):
        with pytest.raises(gs.Error, match=r"masked.*array.filled\(0\)"):
            call()
    program.write("x", np.ma.masked_array(masked.data, False))  # none of them is
    program.run()
    np.testing.assert_array_equal(program.output("y"), masked.data)
    program.write("x", [1.0, -1.0])
    with pytest.raises(gs.Error, match="masked"):
        program.run()
        program.sync()


@pytest.mark.parametrize("made", [gs.cpu(), gs.cuda(1), gs.anywhere, gs.on_cpu, gs.on_device, gs.on_device(2)], ids=repr)
def test_devices_and_placements_may_be_parts_of_what_is_copied(made: Any) -> None:
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert copied == made and hash(copied) == hash(made)
