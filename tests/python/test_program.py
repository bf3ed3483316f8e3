"""@gs.program, records and outputs, checkpoints, gs.eager(), and what a run costs."""
from __future__ import annotations

import collections
import contextlib
import copy
import gc
import io
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphsink as gs

Images = gs.feed(gs.f32, 4, 3)


# ---- Functions that are traced

def test_state_is_not_made_for_each_signature(device: gs.DeviceId) -> None:
    """A smaller batch at the end would have another optimizer."""
    w = gs.Variable("w", np.zeros(3, np.float32))

    def train(x: gs.Value) -> gs.Value:
        loss = gs.mean(x * w)
        gs.sgd(loss, [w], momentum=0.9)
        return loss

    closed, shared = gs.program(target=device)(train), gs.program(target=device)(lambda x: gs.sum(x * w))
    closed(np.ones((4, 3), np.float32))
    closed(np.ones((4, 3), np.float32))
    with pytest.raises(gs.Error, match="train was called with arrays of another shape or dtype.*'.*momentum|velocity.*gs.open") as caught:
        closed(np.ones((2, 3), np.float32))
    assert "state of an optimizer" in caught.value.problem and caught.value.op == "train"
    closed(np.ones((4, 3), np.float32))
    shared(np.ones((4, 3), np.float32))
    shared(np.ones((2, 3), np.float32))  # what it makes no Variables for

    @gs.program(target=device)
    def opened(x: gs.Value = gs.input(gs.f32, gs.open(4), 3)) -> gs.Value:
        return train(x)

    opened(np.ones((4, 3), np.float32))
    opened(np.ones((2, 3), np.float32))


@pytest.mark.parametrize("call", [
    lambda: gs.kaiming((4, 4), 1, 1),
    lambda: gs.xavier((4, 4), 1, 1),
    lambda: gs.Metric("loss", 1),
    lambda: gs.sample_order(10, batch=2, last_batch=1),
    lambda: gs.one_cycle_schedule(gs.Graph(), steps=10, annealing=1),
    lambda: gs.token_source("none", length=4, type=1)])
def test_a_number_is_no_member_of_an_enumeration(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        call()


def test_a_number_is_no_mode(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    graph.output("y", graph.constant(np.ones(2, np.float32)))
    program = gs.compile(graph, device)
    for number in (3, True):
        with pytest.raises(TypeError):
            program.run(number)  # type: ignore[arg-type]
    assert program.steps() == 0


def test_traced_once_for_each_signature(device: gs.DeviceId) -> None:
    calls = []

    @gs.program(target=device)
    def compute(x, y, scale=2.0):  # type: ignore[no-untyped-def]
        calls.append((x.dtype, x.shape))
        return (x - y) * scale

    ones = np.ones((2, 2), np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(compute(3 * ones, ones), 4 * ones, strict=True)
    assert calls == [(gs.f32, (2, 2))]
    assert compute(3.0, 1.0) == 4 and compute(3, y=1) == 4 and compute(np.float32(5), 1) == 8
    assert calls[1:] == [(gs.f32, ())]
    np.testing.assert_array_equal(compute([3.0, 1.0], [1.0, 1.0]), [4, 0])
    assert compute(np.array([3], np.int64), np.array([1], np.int64), np.int64(3)) == 6
    np.testing.assert_array_equal(compute(ones, ones, 5.0), 0 * ones)
    assert len(calls) == 5


def test_results_are_trees(device: gs.DeviceId) -> None:
    @dataclass
    class Result:
        total: Any
        parts: Any

    @gs.program(target=device)
    def compute(x):  # type: ignore[no-untyped-def]
        return Result(gs.sum(x), {"half": (x / 2, [x]), "none": None, "ordered": collections.OrderedDict(a=-x)})

    made = compute(np.array([2.0, 4.0], np.float32))
    assert isinstance(made, Result) and made.total == 6 and made.parts["none"] is None
    assert isinstance(made.parts["ordered"], collections.OrderedDict) and isinstance(made.parts["half"], tuple)
    np.testing.assert_array_equal(made.parts["half"][0], [1, 2])
    np.testing.assert_array_equal(made.parts["half"][1][0], [2, 4])
    np.testing.assert_array_equal(made.parts["ordered"]["a"], [-2, -4])


def test_annotations_that_are_texts(device: gs.DeviceId) -> None:
    """As in this file: names of the module, of the function around, and of parameters alone."""
    rows = 5

    @gs.program
    def compute(x: Images, y: gs.input(gs.f32, rows, 3),  # type: ignore[no-untyped-def,valid-type]
                z: gs.feed(gs.i32, gs.open(2)), k: int = 3):  # type: ignore[valid-type]
        return gs.sum(x) + gs.sum(y) + k

    step = compute.compile(device)
    assert step.graph.inputs["x"].shape == (4, 3) and step.graph.inputs["y"].shape == (5, 3)
    assert step.graph.inputs["z"].dtype == gs.i32 and step.inputs["z"].shape == (gs.open(2),)
    step.write(x=np.ones((2, 4, 3), np.float32), y=np.ones((5, 3), np.float32), z=np.zeros((2, 7), np.int32))
    step.run(steps=2)
    assert step.result() == 30


def test_types_as_defaults(device: gs.DeviceId) -> None:
    @gs.program
    def compute(x=gs.feed(gs.f32, 2), y=gs.input(gs.f32, 2), k=2.0):  # type: ignore[no-untyped-def]
        return x * y + k

    step = compute.compile(device)
    assert list(step.inputs) == ["x", "y"] and step.inputs["x"].shape == (2,)
    step.write(x=[[1.0, 2.0], [3.0, 4.0]], y=[10.0, 20.0])
    step.run(steps=2)
    np.testing.assert_array_equal(step.result(), [32, 82])


def test_wrong_annotations_are_named() -> None:
    with pytest.raises((AttributeError, TypeError)):
        @gs.program
        def compute(x: gs.feed(gs.float31, 2)):  # type: ignore[no-untyped-def,valid-type,attr-defined]
            return x

    @gs.program
    def other(x: NotDefined):  # type: ignore[no-untyped-def,name-defined]  # noqa: F821
        return x + 1
    assert other(1.0) == 2
    with pytest.raises(TypeError, match="type of the parameter 'x' is not known"):
        other.compile()


def test_a_flat_array_is_of_no_input_of_more_dimensions(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    graph.output("y", graph.input("x", gs.f32, (2, 3)) + 1)
    graph.output("z", graph.input("rows", gs.f32, (gs.open(2), 3)) + 1)
    graph.output("k", graph.feed("k", gs.f32, (4,)) + graph.input("rate", gs.f32, ()) + gs.sum(graph.input("all", gs.f32, (gs.open(2),))))
    program = gs.compile(graph, device)
    for name, size in [("x", 6), ("rows", 6), ("k", 8)]:
        with pytest.raises(gs.Error, match=rf"was given f32\[{size}\]; remedy: reshape the array"):
            program.write(name, np.zeros(size, np.float32))
    program.write("x", [1, 2, 3, 4, 5, 6])  # numbers have no shape
    program.write("k", np.zeros(4, np.float32))
    program.write("all", np.zeros(5, np.float32))
    program.write("rate", np.ones(1, np.float32))


def test_a_call_gives_all_arrays(device: gs.DeviceId) -> None:
    """Data of the call before would be used again without a word."""
    @gs.program(target=device)
    def total(x: gs.Value = gs.feed(gs.f32, 2), t: gs.Value = gs.input(gs.f32)) -> gs.Value:
        return gs.sum(x) + t

    ones = np.ones(2, np.float32)
    assert total(ones, np.float32(1)) == 3
    with pytest.raises(TypeError, match=r"total\(\) is missing the array for 't'; run\(\) of what total.compile\(\) returns keeps"):
        total(ones)
    with pytest.raises(TypeError, match="'x', 't'"):
        total()
    assert total(t=np.float32(2), x=ones) == 4


@pytest.mark.parametrize("function", [lambda *x: x[0], lambda **x: x, lambda x, /: x])
def test_parameters_must_have_names(function: Any) -> None:
    with pytest.raises(TypeError, match="name each parameter"):
        gs.program(function)


def test_methods_are_traced_once_for_each_object() -> None:
    traced = []

    class Model:
        def __init__(self, value: float):
            self.w = gs.Variable("w", [value])

        @gs.program
        def forward(self, x):  # type: ignore[no-untyped-def]
            traced.append(self)
            return x * self.w

        @gs.program
        def train(self, x: gs.feed(gs.f32, 1)):  # type: ignore[no-untyped-def,valid-type]
            loss = gs.sum(x * self.w)
            gs.sgd(loss, [self.w], lr=1.0)
            return {"loss": loss}

    a, b = Model(2.0), Model(3.0)
    for _ in range(2):
        assert a.forward(np.ones(1, np.float32)) == 2 and b.forward(np.ones(1, np.float32)) == 3
    assert traced == [a, b]
    step = a.train.compile()
    step.write(x=np.ones((1, 1), np.float32))
    step.run(steps=2)
    np.testing.assert_array_equal(step.records("loss"), [2, 1])
    assert a.forward(np.ones(1, np.float32)) == 0 and Model.forward.__name__ == "forward"
    gone = weakref.ref(a)
    del a
    traced.clear()
    gc.collect()
    assert gone() is None


def failing_program(log: Any, device: gs.DeviceId) -> gs.Program:
    graph = gs.Graph()
    graph.output("y", gs.gather(graph.constant(np.zeros(3)), graph.constant(np.array([7], np.int32)), 0))
    program = gs.compile(graph, device, log=log)
    program.run()
    return program


def traced_program(log: Any, device: gs.DeviceId) -> Any:
    traced = gs.program(target=device, log=log)(lambda x: x * 2.0)
    assert traced(np.ones(1, np.float32)) == 2
    return traced


@pytest.mark.parametrize("build", [failing_program, traced_program])
@pytest.mark.parametrize("in_host_op", [False, True])
def test_a_program_whose_log_function_refers_to_it_is_freed(build: Callable[[Any, gs.DeviceId], Any], in_host_op: bool,
                                                            device: gs.DeviceId) -> None:
    messages: list[str] = []

    class Owner:
        def __init__(self) -> None:
            self.messages = messages  # the function needs what is freed with it
            self.program = build(self.log, device)

        def log(self, level: gs.LogLevel, text: str) -> None:
            self.messages.append(text)

    def free(x: Any) -> Any:
        gone.append(weakref.ref(Owner()))
        gc.collect()
        return x

    gone: list[Any] = []
    if in_host_op:  # the program ends behind it
        graph = gs.Graph()
        graph.output("y", gs.host_op(free, out=(gs.f32, ()))(graph.constant(1.0)))
        step = gs.compile(graph, gs.cpu())
        step.run()
        step.sync()
        del step, graph
    else:
        free(1.0)
    gc.collect()
    assert [ref() for ref in gone] == [None]
    assert [text.count("ended with a failed step that nobody asked for: ") for text in messages] == [1] * (build is failing_program)


def test_a_log_function_at_module_level_is_no_leak(device: gs.DeviceId) -> None:
    script = f"""
import graphsink as gs
graph = gs.Graph()
x = graph.input("x", gs.f32, ())
graph.output("y", x * 2.0)
program = gs.compile(graph, {device!r}, log=lambda level, text: print(program))
program.write("x", 1.0)
program.run()
print(program.output("y"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.0\n", "")


def test_a_function_that_throws_leaves_no_graph_behind() -> None:
    @gs.program
    def wrong(x):  # type: ignore[no-untyped-def]
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        wrong(1.0)
    assert gs.current_graph() is None
    with pytest.raises(TypeError, match="belongs to no graph"):
        gs.tensor([1.0])


def test_a_function_that_branches_on_data_is_told_how() -> None:
    @gs.program
    def wrong(x):  # type: ignore[no-untyped-def]
        return x if x > 0 else -x
    with pytest.raises(TypeError, match=r"gs\.if_"):
        wrong(1.0)


def test_assignments_come_in_the_order_of_the_lines(device: gs.DeviceId) -> None:
    x = gs.Variable("x", [1.0])

    @gs.program(target=device)
    def compute(y, z):  # type: ignore[no-untyped-def]
        x.assign(y)
        first = x + 0
        x.assign(z)
        x.assign(x * 2)
        return first, x - y

    first, last = compute([0.25], [0.5])
    assert (first, last, x.read()) == (0.25, 0.75, 1.0)


def test_ops_take_places(device: gs.DeviceId) -> None:
    @gs.program(target=device)
    def compute(x, y, z):  # type: ignore[no-untyped-def]
        return gs.sub(gs.add(x, y, on=gs.on_cpu), z, on=gs.on_device)
    ones = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(compute(ones, ones, ones), ones)


# ---- Records and outputs

def test_records_have_the_shape_of_what_is_recorded(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x = graph.feed("x", gs.f32, (2, 3))
    v = gs.Variable("v", [1.0, 2.0])
    graph.record("sum", gs.sum(x))
    graph.record("rows", gs.sum(x, 1), capacity=4)
    graph.record("all", x)
    graph.record("v", v)
    program = gs.compile(graph, device)
    data = np.arange(5 * 6, dtype=np.float32).reshape(5, 2, 3)
    for mode in (gs.sink, gs.interactive):
        program.write("x", data)
        program.run(mode, steps=5)
        np.testing.assert_array_equal(program.records("sum"), data.sum((1, 2)).astype(np.float64), strict=True)
        np.testing.assert_array_equal(program.records("all"), data)
        np.testing.assert_array_equal(program.records("v"), [[1, 2]] * 5)
        np.testing.assert_array_equal(program.records("rows"), data.sum(2)[1:])
        assert program.record_capacity("rows") == 4 and program.lost_records("rows") > 0
    assert program.records("all").shape == (0, 2, 3) and program.try_records("sum").shape == (0,)
    with pytest.raises(gs.Error):
        program.records("none")


def test_outputs_own_their_memory(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (2,))
    y = x * 2
    graph.output("y", y)
    graph.output("half", gs.cast(y, gs.bf16))
    program = gs.compile(graph, device)
    program.write(x, [1.0, 2.0])
    program.run()
    first = program.output("y")
    program.write("x", np.array([5.0, 6.0], np.float32))
    program.run()
    np.testing.assert_array_equal(first, [2, 4])
    np.testing.assert_array_equal(program.output(y), [10, 12])
    assert first.flags.writeable and program.output("half").dtype == np.float32
    del program
    np.testing.assert_array_equal(first, [2, 4])


def test_programs_tell_about_themselves(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    graph.output("y", graph.input("x<b>", gs.f32, (2,)) + 1)
    program = gs.compile(graph, device)
    program.write("x<b>", [1.0, 2.0])
    program.run(steps=3)
    assert program.steps() == 3 and program.poll() and program.plan().nodes > 0 and program.counters().api_calls >= 0
    assert program.target.id == device and "digraph" in program.explain_dot()
    html = program._repr_html_()
    assert html.startswith("<div") and ">add</span>" in html and "test_program.py" in html and html.count("<div") == html.count("</div>")
    assert "PlanSummary(" in repr(program.plan()) and "Counters(" in repr(program.counters())
    assert list(program.inputs) == ["x<b>"]
    for call in (lambda: program.output(3), lambda: program.write(None, [1.0]), lambda: program.run(gs.sink, steps="3")):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(gs.Error, match="no input or feed"):
        program.write("y", [1.0])


# ---- Checkpoints

def trained(device: gs.DeviceId, steps: int) -> tuple[gs.TracedProgram, dict[str, gs.Variable]]:
    parameters = gs.variables({"layer": {"w": np.array([1.0, 2.0], np.float32)}, "b": np.array(3.0, np.float32)})

    @gs.program
    def train():  # type: ignore[no-untyped-def]
        loss = gs.sum((parameters["layer"]["w"] * 3.0) ** 2) + parameters["b"] * parameters["b"]
        gs.adamw(loss, parameters, lr=0.1)
        return {"loss": loss}

    step = train.compile(device)
    step.run(steps=steps)
    return step, parameters


def test_training_goes_on_from_a_file(device: gs.DeviceId, tmp_path: pathlib.Path) -> None:
    whole, _ = trained(device, 7)
    first, _ = trained(device, 4)
    gs.save(tmp_path / "a.safetensors", first, {"note": "übung"})
    second, _ = trained(device, 1)
    second.sync()
    restored = gs.load(str(tmp_path / "a.safetensors"), second)
    assert "layer.w" in restored.loaded and not restored.missing and second.steps() == 4
    second.run(steps=3)
    np.testing.assert_array_equal(second.records("loss")[-3:], whole.records("loss")[-3:])
    for name, array in gs.state_dict(whole).items():
        np.testing.assert_array_equal(gs.state_dict(second)[name], array, name)
    assert gs.read_checkpoint(tmp_path / "a.safetensors").metadata["note"] == "übung"


def test_state_dicts_go_round(device: gs.DeviceId) -> None:
    step, parameters = trained(device, 3)
    state = gs.state_dict(parameters)
    assert list(state) == ["b", "layer.w"] or list(state) == ["layer.w", "b"]
    kept = {name: array.copy() for name, array in state.items()}
    step.run()
    step.sync()
    assert not np.array_equal(gs.state_dict(parameters)["b"], kept["b"])
    np.testing.assert_array_equal(state["b"], kept["b"])
    gs.load_state_dict(parameters, kept)
    for name, array in gs.state_dict(parameters).items():
        np.testing.assert_array_equal(array, kept[name], name)
    assert set(gs.state_dict(step)) > set(kept)
    with pytest.raises(gs.Error):
        gs.load_state_dict(step, kept)
    gs.load_state_dict(step, kept, allow_missing=True)
    assert step.steps() == 4
    with pytest.raises(gs.Error):
        gs.load_state_dict(parameters, {**kept, "b": np.float64(1)})
    gs.load_state_dict(parameters, {**kept, "b": np.float64(1), "more": kept["b"]}, convert=True, allow_unused=True)
    assert parameters["b"].read() == 1


def test_numbers_in_checkpoints_are_f32() -> None:
    assert gs.Checkpoint({"v": [1.0, 2.0]}).tensors["v"].dtype == gs.f32 and gs.Tensor([1.0]).dtype == gs.f32
    v = gs.Variable("v", [0.0, 0.0])
    gs.load_state_dict({"v": v}, {"v": [1.0, 2.0]})
    np.testing.assert_array_equal(v.read(), [1, 2])


def test_a_state_dict_of_bf16_goes_round(device: gs.DeviceId) -> None:
    """It reads bf16 as float32, which loses nothing. Numbers that bf16 does not hold are converted only where that is wanted."""
    numbers = [1.5, -0.0, np.inf, np.nan, 1e-40]
    v, graph = gs.Variable("v", numbers, gs.bf16), gs.Graph()
    graph.output("y", graph.value(v) * graph.value(v))
    program = gs.compile(graph, device)
    for of in (program, {"v": v}):
        state = gs.state_dict(of)
        assert state["v"].dtype == np.float32
        v.write([0.0] * 5)
        assert gs.load_state_dict(of, state).loaded == ["v"]
        np.testing.assert_array_equal(gs.state_dict(of)["v"].view(np.uint32), state["v"].view(np.uint32))
        gs.load_state_dict(of, {"v": [1, 2, 3, 4, 5]})
        for others in (np.full(5, 1.001, np.float32), np.ones(5, np.float64)):
            with pytest.raises(gs.Error, match="set convert"):
                gs.load_state_dict(of, {"v": others})
            np.testing.assert_array_equal(v.read(), [1, 2, 3, 4, 5])
            gs.load_state_dict(of, {"v": others}, convert=True)
            np.testing.assert_array_equal(v.read(), np.ones(5))
            v.write([1, 2, 3, 4, 5])


def test_a_checkpoint_names_its_file_in_any_bytes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.safetensors")
    gs.save(path, [gs.Variable("v", [1.0])])
    read = gs.read_checkpoint(path)
    assert read.source == str(path) and os.path.exists(read.source)
    with pytest.raises(gs.Error, match="shape"):
        gs.restore([gs.Variable("v", [1.0, 2.0])], read)


def test_bf16_goes_round(tmp_path: pathlib.Path) -> None:
    v = gs.Variable("v", [1.0, 1.5], gs.bf16)
    gs.save(tmp_path / "v", [v])
    v.write([0.0, 0.0])
    gs.load(tmp_path / "v", [v])
    np.testing.assert_array_equal(v.read(), [1, 1.5])
    assert gs.read_checkpoint(tmp_path / "v").tensors["v"].dtype == gs.bf16


# ---- gs.eager()

def test_eager_prints_what_is_computed(device: gs.DeviceId) -> None:
    def compute(x: Any, y: Any) -> Any:
        m = x * y
        print(m)
        return m + (x - y)

    text = io.StringIO()
    with gs.eager(device), contextlib.redirect_stdout(text):
        z = compute(gs.tensor([1.0]), gs.tensor([2.0]))
        assert gs.read(z) == 1 and np.asarray(z) == 1 and np.asarray(z, np.float64).dtype == np.float64
    assert text.getvalue().strip() == "f32[1] [2]"
    assert gs.program(compute, target=device)([1.0], [2.0]) == 1
    with pytest.raises(TypeError, match="gs.eager"):
        gs.tensor([1.0])


def test_values_of_an_eager_are_numbers(device: gs.DeviceId) -> None:
    with gs.eager(device):
        x = gs.tensor([2.5]) * 2
        assert x > 4 and not x < 4 and float(x) == 5 and int(x) == 5 and (1 if gs.sum(x) == 5 else 0)
        with pytest.raises(ValueError):
            float(gs.tensor([1.0, 2.0]))


def test_eager_within_a_traced_function() -> None:
    @gs.program
    def compute(x):  # type: ignore[no-untyped-def]
        with gs.eager():
            two = float(gs.read(gs.tensor([1.0]) + 1)[0])
        return x * two + gs.tensor(1.0)
    assert compute(3.0) == 7


# ---- What a run costs, and what an import brings

def test_a_run_calls_no_python(device: gs.DeviceId) -> None:
    step, _ = trained(device, 2)
    program = step.program
    program.sync()
    events: list[str] = []

    def seen(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            events.append(frame.f_code.co_name)

    def is_seen() -> None:
        pass

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        is_seen()
        program.run(gs.sink, steps=100)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    program.sync()
    assert events == ["is_seen"]
    assert program.steps() == 102


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


TRAINING = """
import graphsink as gs
v = gs.Variable("v", [1.0, 2.0])
@gs.program
def train(x):
    loss = gs.sum(v * x)
    gs.adamw(loss, [v])
    return {"loss": loss}
train([1.0, 2.0])
try:
    v @ v
except gs.Error as error:
    str(error)
gs.state_dict([v])
"""


def test_only_numpy_is_imported() -> None:
    code = TRAINING + """
import sys
ours = {"graphsink", "numpy", "__main__", "__mp_main__"}
print(sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - ours))
"""
    without_sites = run_python("import sys; print(sorted({name.partition('.')[0] for name in sys.modules}))")
    found = set(eval(run_python(code))) - set(eval(without_sites))  # noqa: S307
    assert not found


def test_imports_without_a_device() -> None:
    code = TRAINING + """
print(gs.cuda.is_available(), gs.cuda_device_count())
try:
    gs.compile(gs.Graph(), gs.cuda(0))
except gs.Error as error:
    print(error.code == gs.ErrorCode.unavailable, bool(error.remedy))
"""
    printed = run_python(code, GS_EMU_DEVICES="0", CUDA_VISIBLE_DEVICES="").split()
    assert printed == ["False", "0", "True", "True"]


def test_a_variable_lives_on_a_further_device() -> None:
    """Its update runs there, and the parameters are those of one device."""
    code = """
import graphsink as gs
import numpy as np

def trained(on, further):
    w1 = gs.Variable("w1", np.full((4, 4), 0.5, np.float32))
    w2 = gs.Variable("w2", np.full((4, 2), 0.25, np.float32), on=on)
    g = gs.Graph()
    x = g.feed("x", gs.f32, (3, 4))
    gs.adamw(gs.mean(gs.tanh(x @ w1) @ w2), [w1, w2], lr=0.1)
    program = gs.compile(g, gs.cuda(0), further_devices=further)
    program.write(x, np.arange(48, dtype=np.float32).reshape(4, 3, 4))
    program.run(steps=4)
    further_bytes = [memory.variables for memory in program.memory().further_devices]
    return w1.read().tobytes() + w2.read().tobytes(), further_bytes, w2.placement == on

if gs.cuda_device_count() < 2:
    raise SystemExit
one, _, _ = trained(gs.anywhere, [])
two, further_bytes, is_placed = trained(gs.on_device(1), [gs.cuda(1)])
print(one == two, further_bytes, is_placed)
"""
    printed = run_python(code, GS_EMU_DEVICES="2")
    if not printed:
        pytest.skip("there is one CUDA device, or none")
    assert printed == "True [768] True\n"


def test_no_leaks_are_reported() -> None:
    """nanobind tells of objects that outlive the interpreter."""
    done = subprocess.run([sys.executable, "-c", TRAINING], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "leaked" not in done.stderr and done.stderr == ""


class Scaled:
    """With a traced method that a subclass overrides."""

    def __init__(self, factor=2.0):
        self.factor = factor

    @gs.program
    def apply(self, x):
        return x * self.factor

    @classmethod
    @gs.program
    def of_class(cls, x):
        return x * len(cls.__name__)


class Shifted(Scaled):
    def apply(self, x):
        return super().apply(x) + 100


def test_a_traced_method_stays_that_of_its_class_and_object():
    shifted = Shifted()
    assert [shifted.apply([1.0])[0] for _ in range(3)] == [102, 102, 102]
    first = Scaled()
    assert first.apply([1.0])[0] == 2
    for copied in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        copied.factor = 100.0
        assert copied.apply([1.0])[0] == 100 and first.apply([1.0])[0] == 2
    assert Scaled.of_class([1.0])[0] == 6 and Shifted.of_class([1.0])[0] == 7


def test_threads_take_turns_with_a_traced_function():
    @gs.program
    def double(x):
        return x * 2.0

    wrong = []

    def call(k):
        for _ in range(50):
            if double(np.full(4, k, np.float32)).tolist() != [2.0 * k] * 4:
                wrong.append(k)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_numbers_become_the_dtype_of_a_typed_parameter():
    @gs.program
    def typed(i=gs.input(gs.i32, 2), d=gs.input(gs.f64, 1)):
        return i + 1, d

    i, d = typed([1, 2], [0.1])
    assert i.tolist() == [2, 3] and d[0] == 0.1
    with pytest.raises(TypeError, match="cannot hold"):
        gs.program(lambda x: x * 2.0)([1e300])
    with pytest.raises(TypeError, match="cannot hold"):
        gs.Variable("v", [1e300])


def test_a_traced_function_within_another_builds_there(device):
    inner = gs.program(lambda x: x * 2.0)

    @gs.program(target=device)
    def outer(x):
        return inner(x) + 1.0

    assert outer([3.0])[0] == 7
    with gs.eager(device):
        assert gs.read(inner(gs.tensor([3.0])))[0] == 6


@pytest.mark.parametrize("argument, text", [
    (np.zeros(2, np.int8), "'x'.*int8"), (None, "'x'"), ("text", "'x'"), ({"a": 1.0}, "'x'"), (2 ** 70, "'x'"),
    (np.zeros(2, np.uint64), "uint64")])
def test_an_argument_that_is_no_input_is_named(argument, text):
    with pytest.raises(TypeError, match=text):
        gs.program(lambda x: x)(argument)


def test_what_cannot_be_traced_or_returned_is_refused():
    def generates(x):
        yield x

    async def waits(x):
        return x

    for function in (generates, waits):
        with pytest.raises(TypeError, match="generator or a coroutine"):
            gs.program(function)
    with pytest.raises(TypeError, match="returns int as 'b'"):
        gs.program(lambda x: {"a": x, "b": 3})([1.0])
    with pytest.raises(TypeError, match="'a.b'"):
        gs.program(lambda x: {"a.b": x, "a": {"b": x}})([1.0])
    with pytest.raises(TypeError, match="stream"):
        gs.program(lambda x=gs.input(gs.f32, 1): x).compile().run(stream="a")
    x = gs.Graph().input("x", gs.f32, (2,))
    with pytest.raises(gs.Error, match="index 5 lies outside of axis 0"):
        x[5]


# ---- The two kinds of programs in the place of one another

@gs.program
def doubled(x: gs.Value = gs.feed(gs.f32, 2, 2)) -> dict[str, gs.Value]:
    return {"y": gs.sum(x * 2)}


def test_a_function_in_the_place_of_a_program_is_said(tmp_path: pathlib.Path) -> None:
    source, order = {"x": np.zeros((4, 2), np.float32)}, gs.sample_order(4, batch=2)
    calls: dict[str, Callable[[], Any]] = {
        "Loader": lambda: gs.Loader(doubled, source, order),  # type: ignore[arg-type]
        "train": lambda: gs.train(doubled, gs.Loader(doubled.compile(), source, order), steps=1),  # type: ignore[arg-type]
        "evaluate": lambda: gs.evaluate(doubled, gs.Loader(doubled.compile(), source, order), ["y"]),  # type: ignore[arg-type]
        "batches": lambda: next(gs.batches(doubled, [source], ["x"])),  # type: ignore[arg-type]
        "snapshot": lambda: gs.save(tmp_path / "file", doubled),
    }
    for function, call in calls.items():
        with pytest.raises(TypeError, match=rf"{function}: .*gs\.Program.*gs\.TracedProgram.*@gs\.program.*give doubled\.compile\(\)"):
            call()
    with pytest.raises(TypeError, match=r"gs\.Graph is no program yet: give gs\.compile\(graph\)"):
        gs.save(tmp_path / "file", gs.Graph())
    with pytest.raises(TypeError, match="Loader: .*; not str"):
        gs.Loader("doubled", source, order)  # type: ignore[arg-type]


def test_a_program_in_the_place_of_a_graph_is_said(tmp_path: pathlib.Path) -> None:
    traced = doubled.compile()
    for given, words in ((doubled, r"doubled is a function of @gs\.program.*call doubled\.compile\(\)"),
                         (traced, r"a gs\.TracedProgram.*use it as it is"), (traced.program, r"a gs\.Program.*use it as it is")):
        with pytest.raises(TypeError, match="compile: it takes a gs.Graph.*" + words):
            gs.compile(given)  # type: ignore[arg-type]
    for given, words in ((doubled, r"doubled\.compile\(\)\.graph"), (traced, r"give its \.graph"), (traced.program, "the graph that it was compiled of")):
        with pytest.raises(TypeError, match="write_graph: it takes a gs.Graph.*" + words):
            gs.write_graph(tmp_path / "file", given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="incompatible function arguments"):
        gs.compile(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="incompatible function arguments"):
        gs.compile(gs.Graph(), "cuda")  # type: ignore[arg-type]


def test_what_only_the_other_kind_has_is_said() -> None:
    with pytest.raises(TypeError, match=r"gs\.TracedProgram.*write\(x=array\).*gs\.Program"):
        doubled.compile().write("x", np.zeros(2, np.float32))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r'gs\.Program.*write\("x", array\).*gs\.TracedProgram'):
        doubled.compile().program.write(x=np.zeros(2, np.float32))  # type: ignore[call-overload]
    for name in ("run", "write", "records", "explain"):
        with pytest.raises(AttributeError, match=rf"doubled is a function of @gs\.program.*{name}.*doubled\.compile\(\)"):
            getattr(doubled, name)
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        doubled.other  # type: ignore[attr-defined]
