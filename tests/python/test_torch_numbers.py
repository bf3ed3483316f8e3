"""graphsink computes what PyTorch does: the numbers that torch_numbers.py has written, within stated bounds."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import graphsink as gs
import torch_numbers as numbers

Values = dict[str, gs.Value]
IN = numbers.inputs()
KEPT = numbers.read()
# Largest error, in parts of the largest element of a result: a few roundings of f32, more where they add up.
BOUND = 1e-6
BOUNDS = {"training": 5e-6}


class Inputs:
    """Variables with the inputs, made when they are asked for, so that gradients reach them."""

    def __init__(self, graph: gs.Graph):
        self.graph = graph
        self.variables: dict[str, gs.Variable] = {}

    def __getitem__(self, name: str) -> gs.Value:
        data = IN[name]
        if data.dtype != np.float32:
            return self.graph.constant(data)
        return self.graph.value(self.variables.setdefault(name, gs.Variable(name, data)))

    def gradients(self, loss: gs.Value, **names: str) -> Values:
        """The gradients for these inputs, by the names of the results."""
        found = gs.grad(loss, [self.variables[name] for name in names.values()])
        return dict(zip(names, found))


def layer_norm(of: Inputs) -> Values:
    y = gs.layer_norm(of["x"], of["gain"], of["bias"])
    return {"y": y, **of.gradients(gs.sum(y * upstream(of, "up")), dx="x", dgain="gain", dbias="bias")}


def upstream(of: Inputs, name: str) -> gs.Value:
    return of.graph.constant(IN[name])


def cross_entropy(of: Inputs) -> Values:
    logits, targets = of["logits"], of["targets"]
    mean = gs.cross_entropy(logits, targets)
    return {"mean": mean, **of.gradients(mean, dlogits="logits"),
            "rows": gs.cross_entropy(logits, targets, ignore_index=1, per_row=True),
            "mean_without_1": gs.cross_entropy(logits, targets, ignore_index=1)}


def conv2d(of: Inputs) -> Values:
    y = gs.conv2d(of["image"], of["filters"], stride=(2, 1), padding=(1, 1), groups=2)
    return {"y": y, **of.gradients(gs.sum(y * upstream(of, "image_up")), dimage="image", dfilters="filters")}


def attention(of: Inputs) -> Values:
    y = gs.attention(of["q"], of["k"], of["v"], of["mask"])
    return {"y": y, **of.gradients(gs.sum(y * upstream(of, "attention_up")), dq="q", dk="k", dv="v")}


def lstm(of: Inputs) -> Values:
    """A scan over the steps, with the cell of the LSTM written out."""
    inputs, recurrent, bias = of["lstm_input"], of["lstm_recurrent"], of["lstm_bias"]

    def cell(state: tuple[gs.Value, gs.Value], x: gs.Value) -> tuple[tuple[gs.Value, gs.Value], gs.Value]:
        h, c = state
        sums = gs.matmul(x, inputs, transpose_b=True) + gs.matmul(h, recurrent, transpose_b=True) + bias
        i, f, g, o = gs.split(sums, 4, 1)
        c = gs.sigmoid(f) * c + gs.sigmoid(i) * gs.tanh(g)
        h = gs.sigmoid(o) * gs.tanh(c)
        return (h, c), h

    (h, c), _ = gs.scan((of["lstm_h"], of["lstm_c"]), of["lstm_x"], cell)
    gradients = of.gradients(gs.sum(h) + gs.sum(c * c), dinput="lstm_input", drecurrent="lstm_recurrent", dbias="lstm_bias")
    return {"h": h, "c": c, **gradients}


def activations(of: Inputs) -> Values:
    x = of["x"]
    found = {"gelu_tanh": gs.gelu(x), "gelu_erf": x * 0.5 * (gs.erf(x * 2 ** -0.5) + 1), "silu": gs.silu(x)}
    for name, y in list(found.items()):
        found |= of.gradients(gs.sum(y * upstream(of, "up")), **{"d" + name: "x"})
    return found


CASES: dict[str, Callable[[Inputs], Values]] = {
    case.__name__: case for case in (layer_norm, cross_entropy, conv2d, attention, lstm, activations)}


def error(found: np.ndarray, case: str, key: str) -> float:
    kept = KEPT[case][key]
    assert found.shape == kept.shape and np.all(np.isfinite(found))
    return float(np.max(np.abs(found - kept)) / np.max(np.abs(kept)))


def require_close(found: dict[str, np.ndarray], case: str) -> None:
    assert set(found) == set(KEPT[case])
    errors = {key: error(np.asarray(value, np.float64), case, key) for key, value in found.items()}
    assert max(errors.values()) <= BOUNDS.get(case, BOUND), errors


def test_every_case_is_tested():
    assert set(KEPT) == set(numbers.CASES) == set(CASES) | {"schedule", "training"}
    assert numbers.FILE.stat().st_size < 60_000


@pytest.mark.parametrize("case", CASES)
def test_ops_and_gradients(case, device):
    graph = gs.Graph()
    for key, value in CASES[case](Inputs(graph)).items():
        graph.output(key, value)
    program = gs.compile(graph, device)
    for mode in (gs.interactive, gs.sink, gs.sink):
        program.run(mode)
        require_close({key: program.output(key) for key in KEPT[case]}, case)


def test_a_schedule(device):
    graph = gs.Graph()
    graph.record("rates", gs.cosine_schedule(graph, **numbers.SCHEDULE))
    program = gs.compile(graph, device)
    program.run(steps=int(numbers.SCHEDULE["steps"]))
    require_close({"rates": program.records("rates")}, "schedule")


def test_a_training(device):
    graph = gs.Graph()
    w, b = gs.Variable("w", IN["w"]), gs.Variable("b", IN["b"])
    x, t = graph.feed("x", gs.f32, IN["batches"].shape[1:]), graph.feed("t", gs.i64, IN["labels"].shape[1:])
    loss = gs.cross_entropy(x @ w + b, t)
    optimizer = gs.adamw(loss, [w, b], **numbers.TRAINING)
    graph.record("losses", loss)
    graph.record("norms", optimizer.gradient_norm)
    program = gs.compile(graph, device)
    program.write("x", IN["batches"])
    program.write("t", IN["labels"])
    program.run(steps=numbers.STEPS)
    require_close({"losses": program.records("losses"), "norms": program.records("norms"), "w": w.read(), "b": b.read()}, "training")
    assert KEPT["training"]["norms"].max() > numbers.TRAINING["clip_norm"]  # it clips


def test_torch_computes_what_the_file_has():
    torch = pytest.importorskip("torch")
    assert numbers.differences(torch) == []
