"""The 20-line example: trains a small network on made-up data, many steps in one launch."""
import graphsink as gs
import numpy as np

w1, b1 = gs.Variable("w1", gs.kaiming((784, 256), seed=1)), gs.Variable("b1", gs.zeros((256,)))
w2, b2 = gs.Variable("w2", gs.kaiming((256, 10), seed=2)), gs.Variable("b2", gs.zeros((10,)))


@gs.program  # called once, to build the graph
def train(x: gs.Value = gs.feed(gs.f32, 32, 784), t: gs.Value = gs.feed(gs.i32, 32)) -> dict[str, gs.Value]:
    h = gs.relu(x @ w1 + b1)
    loss = gs.cross_entropy(h @ w2 + b2, t)
    optimizer = gs.adamw(loss, [w1, b1, w2, b2], lr=1e-3, clip_norm=1.0)
    return {"loss": loss, "norm": optimizer.gradient_norm}  # records: one scalar a step


step = train.compile(target=gs.cuda(0) if gs.cuda.is_available() else gs.cpu())
random = np.random.default_rng(0)
labels = random.integers(0, 10, (5, 100, 32), dtype=np.int32)
images = random.random((5, 100, 32, 784), dtype=np.float32) + 0.3 * (labels[..., None] == np.arange(784) // 79)
for x, t in zip(images, labels):
    step.write(x=x.astype(np.float32), t=t)
    step.run(steps=100)  # one launch, 100 training steps
    print(f"loss {step.records('loss')[-1]:.4f}")
print(step.explain())  # the lines are those of this file
