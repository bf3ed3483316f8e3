"""The words of docs/concepts.md in Python."""
import numpy as np

# [program]
import graphsink as gs

w, seen = gs.Variable("w", gs.kaiming((16, 1), seed=1)), gs.Variable("seen", gs.zeros(()))


@gs.program
def train(x: gs.Value = gs.feed(gs.f32, 32, 16), rate: gs.Value = gs.input(gs.f32)) -> dict[str, gs.Value]:
    y = x @ w
    loss = gs.mean(y * y)
    gs.sgd(loss, [w], lr=rate)
    seen.assign(seen + 32.0)
    return {"loss": loss, "y": y}  # a scalar is recorded in every step, the others are outputs


program = train.compile(target=gs.cuda(0) if gs.cuda.is_available() else gs.cpu())
program.write(x=gs.uniform((8, 32, 16), seed=7, low=-1, high=1), rate=0.05)
program.run(gs.interactive, steps=8)
program.write(x=gs.uniform((8, 32, 16), seed=8, low=-1, high=1))
program.run(gs.sink, steps=8)
losses = program.records("loss")
print(len(losses), "steps", program.plan().launches_per_step, "launch a step")
# [program]
assert len(losses) == 16 and losses[-1] < losses[0]
assert program.output("y").shape == (32, 1) and np.array(seen.read()) == 512
