"""What docs/python.md shows: the program of first.cpp in Python, as a function, with memory of arrays, a loader and an op of Python."""
import numpy as np

import graphsink as gs

device = gs.cuda(0) if gs.cuda.is_available() else gs.cpu()
random = np.random.default_rng(0)
labels = random.integers(0, 10, (100, 32), dtype=np.int32)
images = random.random((100, 32, 784), dtype=np.float32)
w1, w2 = gs.Variable("w1", gs.kaiming((784, 256), seed=1)), gs.Variable("w2", gs.kaiming((256, 10), seed=2))

# [graph]
g = gs.Graph()
x = g.feed("x", gs.f32, (32, 784))
t = g.feed("t", gs.i32, (32,))
loss = gs.cross_entropy(gs.relu(x @ w1) @ w2, t)
gs.adamw(loss, [w1, w2], lr=1e-3)
g.record("loss", loss)

step = gs.compile(g, device)
step.write("x", images)  # or step.write(x, images)
step.write("t", labels)
step.run(gs.interactive)
step.run(gs.sink, steps=100)
losses = step.records("loss")  # float64 [101]
# [graph]
assert losses.shape == (101,) and losses.dtype == np.float64


# [traced]
@gs.program
def train(x: gs.Value = gs.feed(gs.f32, 32, 784), t: gs.Value = gs.feed(gs.i32, 32)) -> dict[str, gs.Value]:
    loss = gs.cross_entropy(gs.relu(x @ w1) @ w2, t)
    gs.adamw(loss, [w1, w2], lr=1e-3)
    return {"loss": loss}  # entries that are scalars of floats are recorded in every step


step = train.compile(target=device)
step.write(x=images, t=labels)
step.run(steps=100)
# [traced]
assert len(step.records("loss")) == 100


# [host_op]
@gs.host_op(out=lambda x: (x.dtype, x.shape))
def clip(x):
    return np.clip(x, -1, 1)


@gs.program(target=device)
def clipped(x):
    return clip(x * 2)


# [host_op]
assert clipped([0.25, 3.0]).tolist() == [0.5, 1.0]
