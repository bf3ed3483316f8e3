"""A Python function as an op of a sunk step: it runs on the host, between copies, and has a gradient."""
from __future__ import annotations

from typing import Any

import graphsink as gs
import numpy as np


def gradient(inputs: list[gs.Value], outputs: list[gs.Value], grads: list[gs.Value]) -> list[gs.Value]:
    """Called once, while the graph is built: the gradient of x as Values."""
    x, = inputs
    return [grads[0] * gs.cast(gs.abs(x) < 1.0, gs.f32)]


@gs.host_op(out=lambda x: (x.dtype, x.shape), grad=gradient)
def clip(x: Any) -> Any:
    """Called in every step, with an array."""
    return np.clip(x, -1.0, 1.0)


def main() -> None:
    w = gs.Variable("w", gs.full((4, 4), 0.5))
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (8, 4))
    loss = gs.mean((clip(x @ w) - 0.25) ** 2.0)
    gs.sgd(loss, [w], lr=0.5)
    graph.record("loss", loss)

    program = gs.compile(graph, gs.cuda(0) if gs.cuda.is_available() else gs.cpu())
    program.write("x", np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32))
    program.run(steps=20)
    losses = program.records("loss")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    for reason in program.plan().reasons:
        print(f"{reason.what}: {reason.why}; {reason.cost}")


if __name__ == "__main__":
    main()
