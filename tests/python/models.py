"""The models of samples/models in Python, built by the same calls: mlp, charmlp, lstm-scan and gpt."""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import graphsink as gs


@dataclass
class Model:
    """A graph that records "loss", its feeds, and all Variables in the order of those of the C++ model."""

    graph: gs.Graph
    feeds: list[gs.Value]
    variables: list[gs.Variable]


@dataclass
class TextModel:
    """`logits` makes i32 [n, context] to [n * predictions, vocabulary]."""

    context: int
    predictions: int
    parameters: list[gs.Variable]
    logits: Callable[[gs.Value], gs.Value]


@dataclass
class TextTraining:
    batch: int
    lr: float = 3e-3
    warmup: int = 0
    weight_decay: float = 0.01
    clip_norm: float = 0.0


def mlp(inputs: int, hidden: int, classes: int, batch: int, seed: int) -> Model:
    w1 = gs.Variable("w1", gs.kaiming((inputs, hidden), seed))
    w2 = gs.Variable("w2", gs.kaiming((hidden, hidden), seed + 1))
    w3 = gs.Variable("w3", gs.kaiming((hidden, classes), seed + 2))
    graph = gs.Graph()
    x = graph.feed("x", gs.f32, (batch, inputs))
    t = graph.feed("t", gs.i32, (batch,))
    loss = gs.cross_entropy(gs.relu(gs.relu(x @ w1) @ w2) @ w3, t)
    optimizer = gs.adamw(loss, [w1, w2, w3], lr=1e-3)
    graph.record("loss", loss)
    return Model(graph, [x, t], [*optimizer.variables(), w1, w2, w3])


def charmlp(vocabulary: int, width: int, hidden: int, seed: int) -> TextModel:
    context = 8
    table = gs.Variable("table", gs.uniform((vocabulary, width), seed, -1.0, 1.0))
    w1 = gs.Variable("w1", gs.kaiming((context * width, hidden), seed + 1))
    b1 = gs.Variable("b1", gs.zeros((hidden,)))
    w2 = gs.Variable("w2", gs.kaiming((hidden, vocabulary), seed + 2))
    b2 = gs.Variable("b2", gs.zeros((vocabulary,)))

    def logits(tokens: gs.Value) -> gs.Value:
        x = gs.reshape(gs.embedding(table, tokens), (-1, context * width))
        return gs.tanh(x @ w1 + b1) @ w2 + b2

    return TextModel(context, 1, [table, w1, b1, w2, b2], logits)


@dataclass
class LstmLayer:
    input: gs.Variable
    recurrent: gs.Variable
    bias: gs.Variable

    @staticmethod
    def make(index: int, hidden: int, seed: int) -> LstmLayer:
        bound = 1 / math.sqrt(hidden)
        bias = np.zeros(4 * hidden, np.float32)
        bias[hidden:2 * hidden] = 1
        return LstmLayer(gs.Variable(f"lstm.{index}.input", gs.uniform((hidden, 4 * hidden), seed, -bound, bound)),
                         gs.Variable(f"lstm.{index}.recurrent", gs.uniform((hidden, 4 * hidden), seed + 1, -bound, bound)),
                         gs.Variable(f"lstm.{index}.bias", bias))

    def scan(self, graph: gs.Graph, x: gs.Value) -> gs.Value:
        """x [context, n, hidden] -> the same."""
        _, n, hidden = x.shape
        zeros = graph.constant(np.zeros((n, hidden), np.float32))

        def iterate(state: tuple[gs.Value, gs.Value], sums: gs.Value) -> tuple[tuple[gs.Value, gs.Value], gs.Value]:
            h, c = state
            i, f, g, o = gs.split(sums + h @ self.recurrent, 4, 1)
            written = gs.sigmoid(i) * gs.tanh(g)
            c = gs.sigmoid(f) * c + written
            h = gs.sigmoid(o) * gs.tanh(c)
            return (h, c), h

        _, outputs = gs.scan((zeros, zeros), x @ self.input + self.bias, iterate)
        return outputs


def lstm_scan(graph: gs.Graph, vocabulary: int, layers: int, hidden: int, context: int, seed: int) -> TextModel:
    table = gs.Variable("table", gs.uniform((vocabulary, hidden), seed, -0.1, 0.1))
    stack = [LstmLayer.make(i, hidden, seed + 1 + 2 * i) for i in range(layers)]
    w = gs.Variable("out.w", gs.kaiming((hidden, vocabulary), seed + 100))
    b = gs.Variable("out.b", gs.zeros((vocabulary,)))

    def logits(tokens: gs.Value) -> gs.Value:
        x = gs.embedding(table, gs.permute(tokens, [1, 0]))
        for layer in stack:
            x = layer.scan(graph, x)
        return gs.reshape(gs.permute(x, [1, 0, 2]), (-1, hidden)) @ w + b

    parameters = [table, *(p for layer in stack for p in (layer.input, layer.recurrent, layer.bias)), w, b]
    return TextModel(context, context, parameters, logits)


@dataclass
class Parameters:
    """Makes parameters of different random values, and keeps them."""

    seed: int
    all: list[gs.Variable] = field(default_factory=list)

    def matrix(self, name: str, rows: int, columns: int, deviation: float) -> gs.Variable:
        self.seed += 1
        bound = deviation * math.sqrt(3.0)
        self.all.append(gs.Variable(name, gs.uniform((rows, columns), self.seed, -bound, bound)))
        return self.all[-1]

    def vector(self, name: str, size: int, value: float) -> gs.Variable:
        self.all.append(gs.Variable(name, gs.full((size,), value)))
        return self.all[-1]


class Block:
    def __init__(self, p: Parameters, layers: int, width: int, heads: int, index: int):
        self.name, self.heads = f"block.{index}", heads
        added = 0.02 / math.sqrt(2.0 * layers)
        norm1, norm2 = f"{self.name}.norm1", f"{self.name}.norm2"
        self.gain1, self.bias1 = p.vector(f"{norm1}.gain", width, 1), p.vector(f"{norm1}.bias", width, 0)
        self.qkv = p.matrix(f"{self.name}.qkv.w", width, 3 * width, 0.02), p.vector(f"{self.name}.qkv.b", 3 * width, 0)
        self.project = p.matrix(f"{self.name}.project.w", width, width, added), p.vector(f"{self.name}.project.b", width, 0)
        self.gain2, self.bias2 = p.vector(f"{norm2}.gain", width, 1), p.vector(f"{norm2}.bias", width, 0)
        self.widen = p.matrix(f"{self.name}.widen.w", width, 4 * width, 0.02), p.vector(f"{self.name}.widen.b", 4 * width, 0)
        self.narrow = p.matrix(f"{self.name}.narrow.w", 4 * width, width, added), p.vector(f"{self.name}.narrow.b", width, 0)

    def __call__(self, x: gs.Value) -> gs.Value:
        with gs.Scope(self.name):
            x = x + self.attend(gs.layer_norm(x, self.gain1, self.bias1))
            wide = gs.gelu(gs.layer_norm(x, self.gain2, self.bias2) @ self.widen[0] + self.widen[1])
            return x + (wide @ self.narrow[0] + self.narrow[1])

    def attend(self, x: gs.Value) -> gs.Value:
        _, context, width = x.shape
        q, k, v = (gs.permute(gs.reshape(part, (-1, context, self.heads, width // self.heads)), [0, 2, 1, 3])
                   for part in gs.split(x @ self.qkv[0] + self.qkv[1], 3, -1))
        mixed = gs.attention(q, k, v, causal=True)
        return gs.reshape(gs.permute(mixed, [0, 2, 1, 3]), (-1, context, width)) @ self.project[0] + self.project[1]


def gpt(vocabulary: int, layers: int, width: int, heads: int, context: int, seed: int) -> TextModel:
    p = Parameters(seed)
    tokens_table = p.matrix("tokens", vocabulary, width, 0.02)
    places = p.matrix("places", context, width, 0.02)
    blocks = [Block(p, layers, width, heads, i) for i in range(layers)]
    gain, bias = p.vector("norm.gain", width, 1), p.vector("norm.bias", width, 0)

    def logits(tokens: gs.Value) -> gs.Value:
        x = gs.embedding(tokens_table, tokens) + places
        for block in blocks:
            x = block(x)
        return gs.matmul(gs.reshape(gs.layer_norm(x, gain, bias), (-1, width)), tokens_table, transpose_b=True)

    return TextModel(context, context, p.all, logits)


def train(graph: gs.Graph, model: TextModel, options: TextTraining) -> Model:
    """Cross entropy and AdamW; vectors have no weight decay."""
    x = graph.feed("x", gs.i32, (options.batch, model.context))
    t = graph.feed("t", gs.i32, (options.batch, model.predictions))
    loss = gs.cross_entropy(model.logits(x), gs.flatten(t, 0))
    groups = [gs.ParameterGroup([p for p in model.parameters if len(p.shape) > 1]),
              gs.ParameterGroup([p for p in model.parameters if len(p.shape) == 1], weight_decay=0)]
    lr = gs.cosine_schedule(graph, peak=options.lr, warmup=options.warmup) if options.warmup > 0 else options.lr
    optimizer = gs.adamw(loss, groups, lr=lr, weight_decay=options.weight_decay, clip_norm=options.clip_norm)
    graph.record("loss", loss)
    return Model(graph, [x, t], [*model.parameters, *optimizer.variables()])


def workload(name: str, size: int, seed: int = 1) -> Model:
    """A workload of graphsink-bench at its test size. `size` is that of the vocabulary, or of an image."""
    graph = gs.Graph()
    if name == "mlp":
        return mlp(size, 16, 10, 8, seed)
    if name == "charmlp":
        return train(graph, charmlp(size, 4, 16, seed), TextTraining(8))
    if name == "lstm-scan":
        return train(graph, lstm_scan(graph, size, 2, 8, 5, seed), TextTraining(2, lr=2e-3, clip_norm=1))
    return train(graph, gpt(size, 2, 16, 2, 8, seed), TextTraining(2, lr=1e-3, warmup=100, weight_decay=0.1, clip_norm=1))
