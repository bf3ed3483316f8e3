"""A Python function as an op, with a gradient: docs/how-to/own-op.md."""
# [program]
import graphsink as gs
import numpy as np


def gradient(inputs: list[gs.Value], outputs: list[gs.Value], grads: list[gs.Value]) -> list[gs.Value]:
    x, = inputs  # called once, while the graph is built
    return [gs.where(x < 0.0, grads[0] * 0.5, grads[0])]


@gs.host_op(out=lambda x: (x.dtype, x.shape), grad=gradient)
def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, 0.5 * x, x)  # called in every step, on the host


graph = gs.Graph()
w = gs.Variable("w", [-2.0, -1.0, 3.0])
loss = gs.sum(leaky(graph.value(w)) ** 2.0)
graph.output("gradient", gs.grad(loss, [w])[0])
program = gs.compile(graph)
program.run()
print(program.output("gradient"))
# [program]
assert program.output("gradient").tolist() == [-1.0, -0.5, 6.0]
