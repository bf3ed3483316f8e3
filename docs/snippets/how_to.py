"""What the how-tos show in C++, in Python."""
import os
import tempfile

import graphsink as gs
import numpy as np

os.chdir(tempfile.mkdtemp())
images = np.random.default_rng(0).random((320, 784), dtype=np.float32)
labels = np.arange(320, dtype=np.int32) % 10


def model() -> tuple[gs.Graph, gs.Program]:
    graph = gs.Graph()
    x, t = graph.feed("image", gs.f32, (32, 784)), graph.feed("label", gs.i32, (32,))
    w = gs.Variable("w", gs.kaiming((784, 10), seed=1))
    loss = gs.cross_entropy(x @ w, t)
    gs.sgd(loss, [w], lr=0.05)
    graph.record("loss", loss)
    return graph, gs.compile(graph, seed=5)


graph, program = model()
# [loader]
loader = gs.Loader(program, {"image": images, "label": labels}, gs.sample_order(320, batch=32, seed=1), steps_per_launch=4,
                   workers=2)
while steps := loader.next():  # an epoch
    program.run(steps=steps)
# [loader]
assert len(program.records("loss")) == 10

# [train]
result = gs.train(program, loader, steps=40, records=["loss"], save=gs.SaveOptions("run", every=10), progress=False)
print(result.end, result.steps, result.saved)
# [train]
assert result.steps == 40

# [checkpoint]
gs.save("run.safetensors", program)
_, resumed = model()
gs.load("run.safetensors", resumed)
# [checkpoint]
assert resumed.steps() == 40
gs.write_graph("model.safetensors", graph)
assert "image" in gs.read_graph("model.safetensors").feeds

# [while]
g = gs.Graph()
a = g.input("a", gs.f32, ())
root, iterations = gs.while_((a, g.constant(0, gs.i32)), lambda u, n: (u * u - a) ** 2.0 > 1e-8,
                             lambda u, n: (0.5 * (u + a / u), n + 1), max_iterations=50)
g.output("root", root)
g.output("larger", gs.if_(root > 2.0, lambda: root, lambda: a))
g.output("gradient", gs.grad(root, [a])[0])
# [while]
square_root = gs.compile(g)
square_root.write("a", 9.0)
square_root.run()
assert abs(float(square_root.output("root")) - 3) < 1e-4 and abs(float(square_root.output("gradient")) - 1 / 6) < 1e-3

# [open]
g = gs.Graph()
rows = g.input("rows", gs.f32, (gs.open(32, gs.next_power_of_two()), 16))
g.output("mean", gs.masked_mean(gs.sum(rows, 1), gs.valid_mask(rows, 0)))
means = gs.compile(g)
for count in (20, 31, 17):
    means.write("rows", np.ones((count, 16), np.float32))
    means.run()
    print(means.output("mean"))  # 16: padding is left out
# [open]
assert float(means.output("mean")) == 16

# [eager]
with gs.eager():
    x = gs.tensor([1.0, 2.0, 3.0])
    print(x - gs.mean(x))  # computed already
# [eager]

# [finite]
g = gs.Graph()
g.output("y", gs.log(g.value(gs.Variable("zero", [0.0]))))
checked = gs.compile(g, check_finite=True)
checked.run()
try:
    checked.sync()
except gs.Error as error:
    print(error.code, error)
# [finite]
assert checked.steps() == 0

# [placements]
g = gs.Graph()
x = g.input("x", gs.f32, (64,))
g.output("y", gs.add(gs.tanh(x), 1.0, on=gs.on_cpu))
placed = gs.compile(g, gs.cuda(0) if gs.cuda.is_available() else gs.cpu())
for reason in placed.plan().reasons:
    print(reason.what, reason.why, reason.remedy)
# [placements]
placed.write("x", np.zeros(64, np.float32))
placed.run()
# [times]
for op in placed.time_ops(20):
    print(op.op, op.us, "us")
print(placed.memory())
# [times]
assert placed.output("y")[0] == 1
