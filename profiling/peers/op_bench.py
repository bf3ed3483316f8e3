#!/usr/bin/env python3
"""Times single ops on one thread of the CPU or on a GPU: graphsink's (op_times) and PyTorch's, on the same data.

Runs where PyTorch is installed. Both take turns, --rounds times. A row shows the medians of the rounds, the median of the
ratios of neighbours and, for machines that do other work as well, the same of processor time. The means of all results
have to agree. On a GPU both are launched as CUDA graphs of many calls, so that launches do not count; graphsink's ops are
steps, which begin and end with a small kernel each.
"""

import argparse
import json
import math
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import numpy
import torch
from torch.nn import functional

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WINDOW_SECONDS = 20e-3
CALLS_OF_A_GRAPH = 20
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}


def random_numbers(count, sequence):
    """Pseudo-random numbers in [0, 1); the same formula is in op_times.cpp."""
    mask = 0xFFFFFFFF
    h = (numpy.arange(1, count + 1, dtype=numpy.uint64) + sequence * 7919) & mask
    h = (h * 2654435761) & mask
    h ^= h >> 15
    h = (h * 2246822519) & mask
    h ^= h >> 13
    return h * 2.0**-32


class Inputs:
    """Makes the operands of an op, one after the other, as op_times does."""

    def __init__(self, size, device):
        self.n, self.device, self.made = size, device, 0

    def numbers(self, shape):
        self.made += 1
        return random_numbers(math.prod(shape), self.made - 1).reshape(shape)

    def floats(self, *shape, low=-3.0, high=3.0, dtype=torch.float32):
        return torch.from_numpy(low + (high - low) * self.numbers(shape)).to(dtype).to(self.device)

    def matrix(self, low=-3.0, high=3.0, dtype=torch.float32):
        return self.floats(self.n, self.n, low=low, high=high, dtype=dtype)

    def indices(self, count, end):
        return torch.from_numpy((end * self.numbers((count,))).astype(numpy.int64)).to(self.device)


# Each function makes operands from Inputs and returns what is timed.
def of_matrix(op, **made):
    def build(inputs):
        x = inputs.matrix(**made)
        return lambda: op(x)

    return build


def of_two(op, **made):
    def build(inputs):
        a, b = inputs.matrix(**made), inputs.matrix(**made)
        return lambda: op(a, b)

    return build


def of_indices(op):
    def build(inputs):
        x, indices = inputs.matrix(), inputs.indices(inputs.n, inputs.n)
        return lambda: op(x, indices)

    return build


def with_gradient(op, operand=None):
    """The result, and the gradient of its sum."""

    def build(inputs):
        x = inputs.matrix().requires_grad_()
        other = operand(inputs) if operand else None

        def run():
            y = op(x, other)
            return y.detach(), torch.autograd.grad(y.sum(), x)[0]

        return run

    return build


def layer_norm(inputs):
    x, gain, bias = inputs.matrix(), inputs.floats(inputs.n), inputs.floats(inputs.n)
    return lambda: functional.layer_norm(x, (inputs.n,), gain, bias)


def conv2d(inputs):
    x, w = inputs.floats(4, 16, inputs.n // 16, inputs.n // 16), inputs.floats(32, 16, 3, 3)
    return lambda: functional.conv2d(x, w, padding=1)


def matmul(inputs):
    a, b = (inputs.floats(inputs.n // 2, inputs.n // 2) for _ in range(2))
    return lambda: a @ b


def attention(inputs):
    q, k, v = (inputs.floats(1, 8, inputs.n // 4, 64) for _ in range(3))
    return lambda: functional.scaled_dot_product_attention(q, k, v)


def pool_of(pool):
    return lambda x, *_: pool(x[None], 2)[0]


POSITIVE = {"low": 0.1}
OPS = {
    "add": of_two(torch.add),
    "add_f16": of_two(torch.add, dtype=torch.float16),
    "add_bf16": of_two(torch.add, dtype=torch.bfloat16),
    "mul": of_two(torch.mul),
    "div": of_two(torch.div, low=0.5),
    "maximum": of_two(torch.maximum),
    "where": of_two(lambda a, b: torch.where(a < b, a, b)),
    "pow_2.5": of_matrix(lambda x: torch.pow(x, 2.5), **POSITIVE),
    "pow_2": of_matrix(lambda x: torch.pow(x, 2.0)),
    "pow": of_two(torch.pow, **POSITIVE),
    "exp": of_matrix(torch.exp),
    "exp_f64": of_matrix(torch.exp, dtype=torch.float64),
    "log": of_matrix(torch.log, **POSITIVE),
    "log_f64": of_matrix(torch.log, **POSITIVE, dtype=torch.float64),
    "sin": of_matrix(torch.sin),
    "sin_f64": of_matrix(torch.sin, dtype=torch.float64),
    "cos": of_matrix(torch.cos),
    "tanh": of_matrix(torch.tanh),
    "sigmoid": of_matrix(torch.sigmoid),
    "gelu": of_matrix(lambda x: functional.gelu(x, approximate="tanh")),
    "silu": of_matrix(functional.silu),
    "erf": of_matrix(torch.erf),
    "sqrt": of_matrix(torch.sqrt, **POSITIVE),
    "relu": of_matrix(torch.relu),
    "cast_bf16": of_matrix(lambda x: x.to(torch.bfloat16)),
    "cast_f16": of_matrix(lambda x: x.to(torch.float16)),
    "sum": of_matrix(torch.sum),
    "sum_axis0": of_matrix(lambda x: x.sum(0)),
    "sum_axis1": of_matrix(lambda x: x.sum(1)),
    "sum_bf16": of_matrix(torch.sum, dtype=torch.bfloat16),
    "sum_f64": of_matrix(torch.sum, dtype=torch.float64),
    "max_axis0": of_matrix(lambda x: x.amax(0)),
    "max_axis1": of_matrix(lambda x: x.amax(1)),
    "argmax_axis1": of_matrix(lambda x: x.argmax(1)),
    "softmax": of_matrix(lambda x: x.softmax(1)),
    "softmax_axis0": of_matrix(lambda x: x.softmax(0)),
    "log_softmax": of_matrix(lambda x: x.log_softmax(1)),
    "softmax_grad": with_gradient(lambda x, w: x.softmax(1) * w, Inputs.matrix),
    "cross_entropy": of_indices(functional.cross_entropy),
    "cross_entropy_grad": with_gradient(functional.cross_entropy, lambda inputs: inputs.indices(inputs.n, inputs.n)),
    "layer_norm": layer_norm,
    "transpose": of_matrix(lambda x: x.T.contiguous()),
    "concat": of_two(lambda a, b: torch.cat([a, b], 1)),
    "gather_axis1": of_indices(lambda x, indices: x.index_select(1, indices)),
    "embedding": of_indices(lambda x, indices: functional.embedding(indices, x)),
    "max_pool2d": of_matrix(pool_of(functional.max_pool2d)),
    "max_pool2d_grad": with_gradient(pool_of(functional.max_pool2d)),
    "avg_pool2d": of_matrix(pool_of(functional.avg_pool2d)),
    "conv2d": conv2d,
    "matmul_512": matmul,
    "attention": attention,
}


def as_graph(run):
    """A function that makes CALLS_OF_A_GRAPH calls in one launch. Throws if PyTorch cannot capture them."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_OF_A_GRAPH):
            run()
    return graph.replay


def time_torch(name, size, windows, device):
    """The median time of a call in microseconds, and the means of its results and of their absolute values."""
    run = OPS[name](Inputs(size, device))
    results = run()
    results = results if isinstance(results, tuple) else (results,)
    whole = numpy.concatenate([result.double().cpu().numpy().ravel() for result in results])
    several, calls_at_once = run, 1
    if device == "cuda":
        try:
            several, calls_at_once = as_graph(run), CALLS_OF_A_GRAPH
        except RuntimeError as e:
            print(f"{name}: PyTorch cannot capture it: {str(e).splitlines()[0]}", file=sys.stderr)

    def seconds_of(calls):
        """By the clock on the wall, and on the processor."""
        start, start_cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            several()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start, time.process_time() - start_cpu

    calls, seconds = 1, seconds_of(1)[0]
    while seconds < WINDOW_SECONDS:
        calls = math.ceil(calls * min(10, 1.3 * WINDOW_SECONDS / seconds))
        seconds = seconds_of(calls)[0]
    us, cpu_us = (statistics.median(s) / calls / calls_at_once * 1e6 for s in zip(*(seconds_of(calls) for _ in range(windows))))
    tolerance = TOLERANCES.get(results[0].dtype, 1e-12)
    return {"us": us, "cpu_us": cpu_us, "mean": float(whole.mean()), "mean_absolute": float(abs(whole).mean()), "tolerance": tolerance}


def time_ours(options, names):
    """The rows of op_times, by op."""
    device = "cuda:0" if options.device == "cuda" else "cpu"
    command = [options.program, "--device", device, "--ops", ",".join(names), "--size", options.size, "--windows", options.windows]
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:  # the ops before the one that failed have their rows
        print(f"PROBLEM: {options.program.name} ended with {done.returncode}", file=sys.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.endswith("}")]
    return {row["op"]: row | {"us": row["us"]["median"]} for row in rows}


def compare(name, pairs):
    """A row of the rounds of both, ours first."""
    ours, theirs = pairs[0]
    allowed = theirs["tolerance"] * theirs["mean_absolute"]
    return {
        "op": name,
        "graphsink_us": statistics.median(pair[0]["us"] for pair in pairs),
        "torch_us": statistics.median(pair[1]["us"] for pair in pairs),
        "ratio": statistics.median(pair[0]["us"] / pair[1]["us"] for pair in pairs),
        "ratio_of_cpu_time": statistics.median(pair[0]["cpu_us"] / pair[1]["cpu_us"] for pair in pairs),
        "agrees": all(abs(ours[mean] - theirs[mean]) <= allowed for mean in ("mean", "mean_absolute")),
    }


def measure(options):
    """The rows, one after the other. A process of op_times on a GPU takes a second to begin, so it times all ops there."""
    if options.device == "cuda":
        rounds = [time_ours(options, options.ops) for _ in range(options.rounds)]
    for name in options.ops:
        pairs = []
        for number in range(options.rounds):
            ours = rounds[number] if options.device == "cuda" else time_ours(options, [name])
            if name in ours:
                pairs.append((ours[name], time_torch(name, options.size, options.windows, options.device)))
        if pairs:
            yield compare(name, pairs)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="exit: 0, 1 if results differ or an op failed, 2 if something is missing or wrong")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: %(default)s, on one thread")
    parser.add_argument("--program", type=pathlib.Path, help="op_times; default: that of build/cpu or build/cuda")
    parser.add_argument("--ops", default=",".join(OPS), help="names, separated by commas; default: all, which are %(default)s")
    parser.add_argument("--size", type=int, default=1024, help="rows and columns of matrices (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=5, help="of 20 ms in a turn, of which the median counts (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="write the report to this file")
    options = parser.parse_args()
    options.ops = options.ops.split(",")
    unknown = [name for name in options.ops if name not in OPS]
    if unknown:
        parser.error(f"there is no op {', '.join(unknown)}; the ops are {', '.join(OPS)}")
    options.program = options.program or ROOT / "build" / options.device / "bin" / "op_times"
    if not options.program.is_file():
        parser.error(f"there is no {options.program}; build it with tests/run.sh --build {options.device}, or name it with --program")
    return options


def main():
    options = parse()
    torch.set_num_threads(1)
    if options.device == "cuda":  # graphsink's f32 is IEEE, unless asked
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    name = torch.cuda.get_device_name() if options.device == "cuda" else processor()
    machine = {"processor": name, "torch": torch.__version__, "threads": 1, "size": options.size}
    print(f"{machine['processor']}, PyTorch {machine['torch']}, one thread, size {options.size}")
    print(f"{'op':20} {'graphsink':>12} {'PyTorch':>12} {'ratio':>8} {'of CPU time':>12}")
    rows = []
    for row in measure(options):
        rows.append(row)
        note = "" if row["agrees"] else "  PROBLEM: other results"
        print(f"{row['op']:20} {row['graphsink_us']:9.1f} us {row['torch_us']:9.1f} us {row['ratio']:8.2f} {row['ratio_of_cpu_time']:12.2f}{note}", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    return 0 if len(rows) == len(options.ops) and all(row["agrees"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
