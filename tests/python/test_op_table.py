"""Every row of the op table through Python: its call gives what the reference in C++ gives, and so does the same call with
all arguments by keyword."""
from __future__ import annotations

import collections
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import graphsink as gs
from expected import SOURCES, make_ops, written_by_cpp
from op_rows import ROWS

# As in tests/kernels/op_table_test.cpp; other dtypes are exact.
TOLERANCES = {"f32": 4e-6, "f64": 1e-13, "f16": 2.0 ** -10, "bf16": 2.0 ** -7}
DTYPES = {"f32": gs.f32, "f64": gs.f64, "f16": gs.f16, "bf16": gs.bf16, "i32": gs.i32, "i64": gs.i64, "u8": gs.u8,
          "bool": gs.boolean}

script = make_ops()
FUNCTIONS: dict[str, list[Any]] = collections.defaultdict(list)
for each in ("ops.h", "select.h"):
    for function in script.parse(SOURCES / "include" / "graphsink" / each).functions:
        if function.name not in script.LEFT_OUT:
            FUNCTIONS[function.name].append(function)


def positional_names(function: Any) -> list[str]:
    """The parameters that Python takes without their names, too."""
    skipped = ("Placement", "Where")
    return [p.name for p in function.parameters if p.type not in skipped and not p.type.endswith("Options")]


class ByKeyword:
    """Stands for the package: calls ops with all arguments by keyword, and counts the calls."""

    def __init__(self) -> None:
        self.called: collections.Counter[str] = collections.Counter()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self.called[name] += 1
            return getattr(gs, name)(**dict(zip(self.names(name, arguments), arguments)), **options)
        return call

    @staticmethod
    def names(name: str, arguments: tuple[Any, ...]) -> list[str]:
        for function in FUNCTIONS[name]:
            names = positional_names(function)
            takes_graph = function.parameters[0].type == "const Graph&"
            takes_list = len(function.parameters) > 1 and function.parameters[1].type.startswith("std::vector")
            if takes_graph == isinstance(arguments[0], gs.Graph) and len(names) >= len(arguments) and \
                    (name != "split" or takes_list == isinstance(arguments[1], list)):
                return names
        raise AssertionError(f"{name}() takes no {len(arguments)} arguments without names")


class Case:
    def __init__(self, name: str, expected: dict[str, gs.Tensor], metadata: dict[str, str]):
        self.name = name
        numbers = itertools.takewhile(lambda i: f"{name}x{i}" in expected, itertools.count())
        self.operands = [expected[f"{name}x{i}"] for i in numbers]
        self.y = expected[f"{name}y"].numpy()
        self.dtype = metadata[f"{name}dtype"]
        self.terms = int(metadata[f"{name}terms"])

    def check(self, made: np.ndarray[Any, Any]) -> None:
        assert made.shape == self.y.shape
        # A sum of many terms is as inexact as its largest partial sum, which is no half.
        scale = np.sqrt(max(1, self.terms)) if self.dtype in ("f32", "f64") else 1.0
        tolerance = TOLERANCES.get(self.dtype, 0.0)
        with np.errstate(invalid="ignore"):
            is_near = np.abs(made - self.y) <= tolerance * np.maximum(np.maximum(1.0, np.abs(self.y)), scale)
        is_equal = (made == self.y) | (np.isnan(made) & np.isnan(self.y))
        assert np.all(is_near | is_equal), f"{self.name}: {made} instead of {self.y}"


Row = tuple[str, int, list[Case]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Case]]]:
    """The cases of the rows of each op."""
    made = written_by_cpp(pathlib.Path(tmp_path_factory.mktemp("op_table")) / "cases", "op_table")
    expected, metadata = made.tensors, made.metadata
    cases: dict[str, list[Case]] = collections.defaultdict(list)
    for name in expected:
        row, number, part = name.split("/")
        if part == "y":
            cases[row].append(Case(f"{row}/{number}/", expected, metadata))
    rows: dict[str, list[list[Case]]] = collections.defaultdict(list)
    for row in sorted(cases, key=int):
        rows[metadata[f"{row}/"]].append(cases[row])
    return rows


def test_each_row_has_a_call(table: dict[str, list[list[Case]]]) -> None:
    assert {name: len(rows) for name, rows in ROWS.items()} == {name: len(rows) for name, rows in table.items()}


@pytest.mark.parametrize("name", ROWS)
def test_gives_what_the_reference_gives(name: str, table: dict[str, list[list[Case]]], device: gs.DeviceId) -> None:
    ops = ByKeyword()
    for call, cases in zip(ROWS[name], table[name]):
        graph = gs.Graph()
        for i, case in enumerate(cases):
            operands = [graph.constant(x) for x in case.operands]
            for outputs, through in (("positional", gs), ("keyword", ops)):
                y = call(through, *operands)
                assert y.dtype == DTYPES[case.dtype]
                graph.output(f"{outputs}{i}", y)
        program = gs.compile(graph, device)
        for mode in (gs.sink, gs.interactive):
            program.run(mode)
            for i, case in enumerate(cases):
                case.check(program.output(f"positional{i}"))
                case.check(program.output(f"keyword{i}"))
    assert ops.called[name] > 0


def graph_calls(ops: Any, graph: gs.Graph) -> Iterator[tuple[gs.Value, Any]]:
    """Ops that take a graph instead of a Value, and what they give."""
    yield ops.random_uniform(graph, gs.f64, (2, 3), 1.5, 1.5), np.full((2, 3), 1.5)
    yield ops.random_normal(graph, gs.f32, (2, 3), 2.5, 0.0), np.full((2, 3), 2.5, np.float32)
    yield ops.randint(graph, gs.i64, (4,), -7, -6), np.full((4,), -7)
    yield ops.bernoulli(graph, (4,), 1.0), np.full((4,), True)
    yield ops.arange(graph, gs.i32, 2.0, 11.0, 4.0), np.arange(2, 11, 4, np.int32)
    yield ops.arange(graph, gs.f32, 2.0, 4.0), np.arange(2, 4, 1, np.float32)


def select_calls(ops: Any, graph: gs.Graph) -> Iterator[tuple[gs.Value, Any]]:
    """The ops of select.h, whose results have as many rows as the data say."""
    array = np.array([[3, 0, 1], [0, 3, 3]], np.float32)
    x = graph.constant(array)
    places = ops.nonzero(x, 6)
    yield places.values, np.array([[0, 0], [0, 2], [1, 1], [1, 2], [0, 0], [0, 0]], np.int32)
    yield places.count, np.array(4, np.int32)
    yield ops.valid_mask(places), np.array([True] * 4 + [False] * 2)
    flat = ops.flat_nonzero(x, 5)
    yield flat.values, np.array([0, 2, 4, 5, 0], np.int32)
    chosen = ops.masked_select(x, x > 0, 6)
    yield chosen.values, np.array([3, 1, 3, 3, 0, 0], np.float32)
    yield ops.sum(chosen), np.array(10, np.float32)
    yield ops.mean(chosen), np.array(2.5, np.float32)
    yield ops.softmax(ops.masked_select(x, x > 2, 5)).values, np.array([1 / 3] * 3 + [0] * 2, np.float32)
    ten = graph.constant(np.arange(10, 16, dtype=np.float32))
    yield ops.gather(ten, flat).values, np.array([10, 12, 14, 15, 0], np.float32)
    yield ops.scatter_add(ten, flat, ops.gather(ten, flat).values), np.array([20, 11, 24, 13, 28, 30], np.float32)
    parts = ops.unique(x, 6)
    yield parts.values.values, np.array([0, 1, 3, 0, 0, 0], np.float32)
    yield parts.values.count, np.array(3, np.int32)
    yield parts.counts, np.array([2, 1, 3, 0, 0, 0], np.int32)
    yield parts.inverse, np.array([[2, 0, 1], [0, 2, 2]], np.int32)
    # The largest logit alone has more than the share p; a high temperature gives none that.
    yield ops.sample_top_p(graph.constant([[0.0, 9.0, 0.0]]), 0.5), np.array([1], np.int32)
    yield ops.sample_top_p(graph.constant([[0.0, 9.0, 0.0]]), 1e-9, temperature=100.0), np.array([1], np.int32)


@pytest.mark.parametrize("calls", [graph_calls, select_calls])
def test_other_ways_to_call(calls: Any, device: gs.DeviceId) -> None:
    for through in (gs, ByKeyword()):
        graph = gs.Graph()
        expected = []
        for i, (value, array) in enumerate(calls(through, graph)):
            graph.output(str(i), value)
            expected.append(array)
        program = gs.compile(graph, device)
        program.run()
        for i, array in enumerate(expected):
            np.testing.assert_allclose(program.output(str(i)), array, rtol=1e-6, strict=True)


def test_every_op_is_called() -> None:
    ops = ByKeyword()
    for calls in (graph_calls, select_calls):
        for _ in calls(ops, gs.Graph()):
            pass
    assert set(FUNCTIONS) == set(ROWS) | set(ops.called)


def test_a_docstring_is_the_comment_of_its_own_function(tmp_path: pathlib.Path) -> None:
    """Not that of an overload in front of it, which is a template and has no binding, nor that of an operator."""
    header = tmp_path / "some_ops.h"
    header.write_text("// For lists.\ntemplate <class T>\nValue first(const T& x) {\n  return first(list(x));\n}\n"
                      "// The second.\nValue second(Arg x);  // of two\n"
                      "inline Value operator+(Arg a) { return a; }  // see add()\nValue third(Arg x);\n", encoding="utf-8")
    comments = {function.name: function.comment for function in script.parse(header).functions}
    assert comments == {"second": "The second.\nof two", "third": ""}
