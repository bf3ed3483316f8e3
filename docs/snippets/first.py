"""A small network, trained in one launch of 100 steps."""
# [program]
import graphsink as gs
import numpy as np

w1, w2 = gs.Variable("w1", gs.kaiming((784, 256), seed=1)), gs.Variable("w2", gs.kaiming((256, 10), seed=2))


@gs.program  # called once, to build the graph
def train(x: gs.Value = gs.feed(gs.f32, 32, 784), t: gs.Value = gs.feed(gs.i32, 32)) -> dict[str, gs.Value]:
    loss = gs.cross_entropy(gs.relu(x @ w1) @ w2, t)
    gs.adamw(loss, [w1, w2], lr=1e-3)
    return {"loss": loss}  # a scalar of floats is recorded in every step


step = train.compile(target=gs.cuda(0) if gs.cuda.is_available() else gs.cpu())
random = np.random.default_rng(0)
labels = random.integers(0, 10, (100, 32), dtype=np.int32)  # a slice of 32 for each of 100 steps
images = random.random((100, 32, 784), dtype=np.float32) + (labels[..., None] == np.arange(784) // 79)
step.write(x=images, t=labels)
step.run(steps=100)  # one launch, and the GIL is free meanwhile
losses = step.records("loss")
# [program]
print(step.explain())
assert len(losses) == 100 and losses[-1] < losses[0], losses
