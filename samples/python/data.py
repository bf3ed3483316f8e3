"""Three ways of feeding a program: arrays in memory, a data set of Python's, and any iterable of batches, such as a
torch.utils.data.DataLoader."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import graphsink as gs
import numpy as np

X = np.random.default_rng(0).normal(size=(1024, 8)).astype(np.float32)
Y = (X @ np.arange(8, dtype=np.float32))[:, None]
BATCH = 32


def build() -> gs.Program:
    """Linear regression on batches of the feeds "x" and "y"."""
    w = gs.Variable("w", gs.zeros((8, 1)))
    graph = gs.Graph()
    x, y = graph.feed("x", gs.f32, (BATCH, 8)), graph.feed("y", gs.f32, (BATCH, 1))
    error = x @ w - y
    loss = gs.mean(error * error)
    graph.record("loss", loss)
    gs.sgd(loss, [w], lr=0.1)
    return gs.compile(graph)


class Samples:
    """A data set: len() and samples by number. Threads of a Loader ask for them."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": X[i], "y": Y[i]}


def some_batches() -> Iterator[tuple[Any, Any]]:
    for begin in range(0, len(X), BATCH):
        yield X[begin:begin + BATCH], Y[begin:begin + BATCH]


def main() -> None:
    order = gs.sample_order(len(X), batch=BATCH, seed=7)
    losses = []
    for source in ({"x": X, "y": Y}, Samples()):
        program = build()
        gs.train(program, gs.Loader(program, source, order), steps=100, progress=False)
        losses.append(program.records("loss"))
        print(f"{type(source).__name__}: loss {losses[-1][-1]:.6f}")
    assert np.array_equal(losses[0], losses[1])  # the same samples in the same order

    program = build()
    for steps in gs.batches(program, some_batches(), ["x", "y"], steps_per_launch=16):
        program.run(steps=steps)
    print(f"iterable of batches: loss {program.records('loss')[-1]:.6f}")

    try:
        import torch.utils.data  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        print("no torch here: its DataLoader was not tried")
        return
    program = build()
    torch_batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
                                                batch_size=BATCH, shuffle=True)
    for steps in gs.batches(program, torch_batches, ["x", "y"], steps_per_launch=16):
        program.run(steps=steps)
    print(f"DataLoader: loss {program.records('loss')[-1]:.6f}")


if __name__ == "__main__":
    main()
