"""PyTorch, as far as torch_bench.py uses it outside of its models. Losses are those that graphsink-bench has just printed."""

import json
import subprocess
import sys
import types

__version__ = "stand-in"
losses = {}
run = subprocess.run


def run_and_remember(command, **options):
    done = run(command, **options)
    if "--export" in command:
        row = json.loads(done.stdout)["rows"][-1]
        losses[row["workload"]] = row["loss_first"], row["loss_last"]
    return done


class Step:
    def __init__(self, name):
        self.name, self.fed, self.loss = name.removesuffix("-module"), 0, self

    def __call__(self):
        pass

    def feed(self, step):
        self.fed = step

    def clone(self):
        return losses[self.name][self.fed > 0]


class Graph:
    def replay(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def make_step(name, _tensors, mode, _nodes):
    assert mode in ("eager", "compile", "graph"), mode
    return Step(name)


subprocess.run = run_and_remember
cuda = types.SimpleNamespace(is_available=lambda: True, synchronize=lambda: None, CUDAGraph=Graph, graph=lambda graph: graph)
compiler = types.SimpleNamespace(reset=lambda: None)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace()))


def manual_seed(_number):
    pass


def set_num_threads(_number):
    pass


def read_safetensors(path, device):
    assert path.is_file() and device == "cuda"


sys.modules["torch_models"] = types.SimpleNamespace(make_step=make_step, read_safetensors=read_safetensors)
