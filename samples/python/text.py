"""Trains a model of characters on a text, and generates text with it: a loop in the graph, one launch a line."""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import graphsink as gs
import numpy as np

BATCH, LENGTH, WIDTH = 16, 32, 64


def parameters(vocabulary: int) -> dict[str, Any]:
    tree: dict[str, Any] = {"embedding": gs.normal((vocabulary, WIDTH), seed=1, deviation=0.1),
                            "w": gs.xavier((2 * WIDTH, WIDTH), seed=2), "b": gs.zeros((WIDTH,)),
                            "out": gs.xavier((WIDTH, vocabulary), seed=3)}
    return dict(gs.variables(tree))


def cell(p: dict[str, Any], state: gs.Value, tokens: gs.Value) -> tuple[gs.Value, gs.Value]:
    """One character of each line of a batch: the next state [batch, width], and the logits of the next character."""
    x = gs.concat([gs.embedding(p["embedding"], tokens), state], 1)
    state = gs.tanh(x @ p["w"] + p["b"])
    return state, state @ p["out"]


def train_graph(p: dict[str, Any]) -> gs.Graph:
    graph = gs.Graph()
    text = graph.feed("text", gs.i32, (LENGTH + 1, BATCH))

    def one(state: gs.Value, tokens: list[gs.Value]) -> tuple[gs.Value, gs.Value]:
        state, logits = cell(p, state, tokens[0])
        return state, gs.cross_entropy(logits, tokens[1])

    _, losses = gs.scan(graph.constant(gs.zeros((BATCH, WIDTH))), [text[:-1], text[1:]], one)
    loss = gs.mean(losses)
    graph.record("loss", loss)
    gs.adamw(loss, p, lr=3e-3, clip_norm=1.0)
    return graph


def generate_graph(p: dict[str, Any], count: int) -> gs.Graph:
    """Draws `count` characters, each from the probabilities that the ones before it give."""
    graph = gs.Graph()
    first = graph.input("first", gs.i32, (1,))

    def one(state: tuple[gs.Value, gs.Value], _: None) -> tuple[tuple[gs.Value, gs.Value], gs.Value]:
        hidden, logits = cell(p, state[0], state[1])
        drawn = gs.sample_top_p(logits, 0.9, temperature=0.8)
        return (hidden, drawn), drawn

    _, drawn = gs.scan((graph.constant(gs.zeros((1, WIDTH))), first), None, one, iterations=count)
    graph.output("text", drawn)
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=Path(__file__).parents[2] / "LICENSE", help="a file of text")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    characters = sorted(set(text))
    numbers = np.array([characters.index(c) for c in text], np.int32)

    p = parameters(len(characters))
    target = gs.cuda(0) if gs.cuda.is_available() else gs.cpu()
    program = gs.compile(train_graph(p), target)
    random = np.random.default_rng(0)
    for begin in range(0, options.steps, 50):
        steps = min(50, options.steps - begin)
        begins = random.integers(0, len(numbers) - LENGTH - 1, (steps, BATCH))
        windows = numbers[begins[:, None, :] + np.arange(LENGTH + 1)[None, :, None]]
        program.write("text", windows)
        program.run(steps=steps)
        print(f"loss {program.records('loss')[-1]:.3f}")

    writer = gs.compile(generate_graph(p, 200), target)
    writer.write("first", [characters.index("T") if "T" in characters else 0])
    writer.run()
    print("T" + "".join(characters[i] for i in writer.output("text").ravel()))


if __name__ == "__main__":
    main()
