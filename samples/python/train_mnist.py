"""Trains a small network on 8,000 handwritten digits and tests it on 2,000 others, as samples/train_mnist.cpp does."""
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import graphsink as gs
import numpy as np

TESTS, TEST_BATCH, BATCH = 2000, 500, 32


def find_digits(folder: str | None) -> tuple[Any, Any]:
    """Images f32 [n, 784] and labels i32 [n] of MNIST's IDX files, or made-up ones where there are none."""
    place = Path(folder or os.environ.get("GRAPHSINK_DATA") or "../shared/data")
    images, labels = place / "t10k-images-idx3-ubyte.gz", place / "t10k-labels-idx1-ubyte.gz"
    if images.exists() and labels.exists():
        source = gs.idx_source(images, labels)
        samples = [source.read(i) for i in range(source.size)]
        return np.stack([s["image"] for s in samples]), np.stack([s["label"] for s in samples])
    if folder:
        sys.exit(f"error: {place}: expected {images.name} and {labels.name}, seen none")
    print("NOTICE: no MNIST files, training on made-up digits; name a directory of t10k-*.gz with --data")
    random = np.random.default_rng(1)
    made = random.integers(0, 10, 10000, dtype=np.int32)
    bars = (made[:, None] == np.arange(784) // 79).astype(np.float32)
    return (0.5 * bars + 0.5 * random.random((10000, 784))).astype(np.float32), made


def logits(x: gs.Value, parameters: dict[str, gs.Variable]) -> gs.Value:
    hidden = gs.relu(x @ parameters["w1"] + parameters["b1"])
    return hidden @ parameters["w2"] + parameters["b2"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="directory of the IDX files; else $GRAPHSINK_DATA, else ../shared/data")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save", help="folder of checkpoints; a training goes on from the newest of them")
    parser.add_argument("--workers", type=int, default=1, help="threads that read samples")
    options = parser.parse_args()

    images, labels = find_digits(options.data)
    train_count = min(len(labels) - TESTS, 8000)
    target = gs.cuda(0) if gs.cuda.is_available() else gs.cpu()
    parameters = gs.variables({"w1": gs.kaiming((784, 256), seed=1), "b1": gs.zeros((256,)),
                               "w2": gs.kaiming((256, 10), seed=2), "b2": gs.zeros((10,))})

    graph = gs.Graph()
    x = graph.feed("image", gs.f32, (BATCH, 784))
    t = graph.feed("label", gs.i32, (BATCH,))
    loss = gs.cross_entropy(logits(x, parameters), t)
    graph.record("loss", loss)
    gs.adamw(loss, parameters, lr=1e-3)
    program = gs.compile(graph, target)

    # A second program on the same Variables finds out which share of the last digits is classified correctly.
    test = gs.Graph()
    x, t = test.feed("image", gs.f32, (TEST_BATCH, 784)), test.feed("label", gs.i32, (TEST_BATCH,))
    test.record("accuracy", gs.accuracy(logits(x, parameters), t))
    test_program = gs.compile(test, target)
    test_loader = gs.Loader(test_program, {"image": images[-TESTS:], "label": labels[-TESTS:]},
                            gs.sample_order(TESTS, batch=TEST_BATCH, is_shuffled=False), steps_per_launch=4)

    loader = gs.Loader(program, {"image": images[:train_count], "label": labels[:train_count]},
                       gs.sample_order(train_count, batch=BATCH, seed=1), workers=options.workers)
    result = gs.train(program, loader, steps=options.steps, records=["loss"],
                      evaluate=lambda: gs.evaluate(test_program, test_loader, ["accuracy"]),
                      save=gs.SaveOptions(options.save, every=500) if options.save else None)
    print(f"test accuracy: {100 * result.evaluation['accuracy']:.1f} %")


if __name__ == "__main__":
    main()
