"""Trains the network of first.py with several processes, each on its part of every batch: mpirun -n 2 python ranks.py. Alone it
is one rank, whose plan is that of a program without ranks."""
import argparse

import graphsink as gs
import numpy as np
from graphsink import ranks

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--nccl", action="store_true", help="each process has a GPU of its own, between which NCCL moves the gradients")
options = parser.parse_args()

comm = ranks.nccl_world() if options.nccl else ranks.world()
batch = 32 // comm.size  # of a rank

# Any seed will do: all ranks begin with the values of rank 0.
w1, b1 = gs.Variable("w1", gs.kaiming((784, 256), seed=1 + comm.rank)), gs.Variable("b1", gs.zeros((256,)))
w2, b2 = gs.Variable("w2", gs.kaiming((256, 10), seed=2)), gs.Variable("b2", gs.zeros((10,)))
parameters = [w1, b1, w2, b2]
ranks.broadcast_variables(parameters, comm)


@gs.program
def train(x: gs.Value = gs.feed(gs.f32, batch, 784), t: gs.Value = gs.feed(gs.i32, batch)) -> dict[str, gs.Value]:
    h = gs.relu(x @ w1 + b1)
    loss = gs.cross_entropy(h @ w2 + b2, t)
    gradients = ranks.average(gs.grad(loss, parameters), comm)
    optimizer = gs.apply(gs.Adamw(lr=1e-3, clip_norm=1.0), parameters, gradients)
    return {"loss": ranks.all_reduce(loss, comm, reduction=ranks.Reduction.mean), "norm": optimizer.gradient_norm}


gpus = gs.cuda_device_count()
any_device = gs.cuda(comm.rank % gpus) if gpus else gs.cpu()  # one each, if ranks are numbered machine by machine
step = train.compile(target=gs.cuda(comm.device) if options.nccl else any_device)
random = np.random.default_rng(0)
labels = random.integers(0, 10, 6400, dtype=np.int32)
images = (random.random((6400, 784)) + 0.3 * (labels[:, None] == np.arange(784) // 79)).astype(np.float32)
order = gs.sample_order(6400, batch=batch, seed=1, rank=comm.rank, world=comm.size)  # of each batch this rank's samples
loader = gs.Loader(step, {"x": images, "t": labels}, order)
gs.train(step, loader, steps=options.steps, steps_per_launch=50, progress=False, ends_on_interrupt=False)
if comm.rank == 0:
    losses = step.records("loss")
    print(f"{comm.size} ranks, {len(losses)} steps: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
