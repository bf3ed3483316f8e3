"""The workloads of graphsink-bench in PyTorch: the same shapes, initial weights, data and optimizer settings."""

import json
import struct

import torch
import torch.nn.functional as F

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32, "I64": torch.int64, "BOOL": torch.bool}


def read_safetensors(path, device):
    """Tensors by name, of a file that graphsink-bench --export wrote."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(data[8 + length + begin : 8 + length + end]), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).to(device)
    return tensors


class Workload:
    """Subclasses say what a step computes. `p` has the parameters by name, `feeds` the data of all steps."""

    lr = 1e-3
    warmup = 0  # steps in which the learning rate rises
    weight_decay = 0.01  # of matrices, and with vectors_decay of vectors
    vectors_decay = True
    clip_norm = 0.0

    def __init__(self, tensors):
        names = sorted(name for name in tensors if name.startswith("feed."))
        self.feeds = [tensors[name] for name in names]
        self.p = {n: t.clone().requires_grad_() for n, t in tensors.items() if self.is_parameter(n)}
        if self.feeds:
            self.feeds[1] = self.feeds[1].long()  # targets; cross_entropy takes no other type

    @staticmethod
    def is_parameter(name):
        return not name.startswith(("feed.", "adamw.")) and not name.endswith((".adamw.m", ".adamw.v"))

    def loss(self, *data):
        raise NotImplementedError

    def groups(self):
        vectors = [t for t in self.p.values() if t.dim() == 1]
        matrices = [t for t in self.p.values() if t.dim() > 1]
        groups = [{"params": matrices, "weight_decay": self.weight_decay}]
        if vectors:
            groups.append({"params": vectors, "weight_decay": self.weight_decay if self.vectors_decay else 0.0})
        return groups


class Mlp(Workload):
    def loss(self, x, t):
        x = torch.relu(x @ self.p["w1"])
        return F.cross_entropy(torch.relu(x @ self.p["w2"]) @ self.p["w3"], t)


class CharMlp(Workload):
    lr = 3e-3
    vectors_decay = False

    def loss(self, x, t):
        x = F.embedding(x, self.p["table"]).flatten(1)
        return F.cross_entropy(torch.tanh(x @ self.p["w1"] + self.p["b1"]) @ self.p["w2"] + self.p["b2"], t)


class Lstm(Workload):
    """Built from operations, as graphsink's is."""

    lr = 2e-3
    vectors_decay = False
    clip_norm = 1.0

    def layer(self, x, i):
        recurrent = self.p[f"lstm.{i}.recurrent"]
        inputs = (x @ self.p[f"lstm.{i}.input"] + self.p[f"lstm.{i}.bias"]).unbind(0)
        h = c = None
        outputs = []
        for sums in inputs:
            sums = sums if h is None else sums + h @ recurrent
            i, f, g, o = sums.chunk(4, 1)
            written = torch.sigmoid(i) * torch.tanh(g)
            c = written if c is None else torch.sigmoid(f) * c + written
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs)

    def loss(self, x, t):
        x = F.embedding(x.t(), self.p["table"])
        for i in range(2):
            x = self.layer(x, i)
        x = x.transpose(0, 1).reshape(-1, x.shape[2])
        return F.cross_entropy(x @ self.p["out.w"] + self.p["out.b"], t)


class LstmModule(Lstm):
    """The same with torch.nn.LSTM, PyTorch's own implementation of both layers."""

    def __init__(self, tensors):
        super().__init__(tensors)
        hidden = self.p["table"].shape[1]
        self.module = torch.nn.LSTM(hidden, hidden, num_layers=2).to(self.p["table"].device)
        for i in range(2):
            for theirs, ours in (("weight_ih", "input"), ("weight_hh", "recurrent"), ("bias_ih", "bias")):
                weight = getattr(self.module, f"{theirs}_l{i}")
                weight.data = self.p.pop(f"lstm.{i}.{ours}").detach().t().contiguous()
                self.p[f"{theirs}.{i}"] = weight
            bias = getattr(self.module, f"bias_hh_l{i}")  # a second bias, which the model does not have
            bias.data.zero_()
            bias.requires_grad_(False)

    def loss(self, x, t):
        x, _ = self.module(F.embedding(x.t(), self.p["table"]))
        x = x.transpose(0, 1).reshape(-1, x.shape[2])
        return F.cross_entropy(x @ self.p["out.w"] + self.p["out.b"], t)


class Gpt(Workload):
    lr = 1e-3
    warmup = 100
    weight_decay = 0.1
    vectors_decay = False
    clip_norm = 1.0

    def __init__(self, tensors):
        super().__init__(tensors)
        self.layers = sum(name.endswith(".qkv.w") for name in self.p)
        self.heads = {16: 2, 128: 4, 768: 12}[self.p["tokens"].shape[1]]  # of the sizes test, full and large

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.p[f"{name}.gain"], self.p[f"{name}.bias"])

    def linear(self, x, name):
        return x @ self.p[f"{name}.w"] + self.p[f"{name}.b"]

    def block(self, x, name):
        n, context, width = x.shape
        qkv = self.linear(self.norm(x, f"{name}.norm1"), f"{name}.qkv").split(width, -1)
        q, k, v = (part.view(n, context, self.heads, -1).transpose(1, 2) for part in qkv)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, context, width)
        x = x + self.linear(mixed, f"{name}.project")
        wide = F.gelu(self.linear(self.norm(x, f"{name}.norm2"), f"{name}.widen"), approximate="tanh")
        return x + self.linear(wide, f"{name}.narrow")

    def loss(self, x, t):
        x = F.embedding(x, self.p["tokens"]) + self.p["places"]
        for i in range(self.layers):
            x = self.block(x, f"block.{i}")
        x = self.norm(x, "norm").flatten(0, 1)
        return F.cross_entropy(x @ self.p["tokens"].t(), t)


TRAINED = {"mlp": Mlp, "charmlp": CharMlp, "lstm": Lstm, "lstm-module": LstmModule, "gpt": Gpt}


class Step:
    """A training step on data in fixed places, so that it can be captured. `loss` is that of the last step."""

    def __init__(self, workload, mode):
        self.workload = workload
        self.data = [feed[0].clone() for feed in workload.feeds]
        device = self.data[0].device
        on_gpu = device.type == "cuda"
        # What a graph or compiled code reads anew in every step has to be a tensor.
        self.rate = workload.lr if mode == "eager" else torch.tensor(workload.lr, device=device)
        self.steps = 0 if mode == "eager" else torch.zeros((), device=device)
        # Fused, the fastest of PyTorch's; compiled code is made from the plain one.
        self.optimizer = torch.optim.AdamW(
            workload.groups(), lr=self.rate, fused=mode != "compile", capturable=on_gpu and mode != "eager"
        )
        self.parameters = list(workload.p.values())
        self.loss = torch.zeros((), device=device)
        self.compute, self.update = workload.loss, self.optimizer.step
        if mode == "compile":
            self.compute = torch.compile(workload.loss, mode="reduce-overhead" if on_gpu else None)
            self.update = torch.compile(self.optimizer.step)

    def feed(self, step):
        for place, feed in zip(self.data, self.workload.feeds):
            place.copy_(feed[step])

    def set_rate(self):
        if not self.workload.warmup:
            return
        self.steps += 1
        if isinstance(self.steps, torch.Tensor):
            self.rate.copy_(self.workload.lr * torch.clamp(self.steps / self.workload.warmup, max=1.0))
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = self.workload.lr * min(self.steps / self.workload.warmup, 1.0)

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.compute(*self.data)
        loss.backward()
        if self.workload.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.workload.clip_norm)
        self.set_rate()
        self.update()
        self.loss.copy_(loss.detach())


class SyntheticStep:
    """chain and wide: `compute` gives the next state and the loss; nothing is trained."""

    def __init__(self, compute, state):
        self.compute, self.state = compute, state
        self.loss = torch.zeros((), device=state.device)

    def feed(self, step):
        pass

    def __call__(self):
        with torch.no_grad():
            state, loss = self.compute(self.state)
            self.state.copy_(state)
            self.loss.copy_(loss)


def link(x, i):
    return x * 0.99999 if i % 2 == 0 else x + 0.00001


def chain(nodes):
    def compute(x):
        for i in range(nodes - 3):  # three of graphsink's nodes are the step's own
            x = link(x, i)
        return x, x

    return compute


def wide(branches, depth):
    def compute(x):
        joined = None
        for branch in range(branches):
            y = x * (1.0 + 0.001 * branch)
            for i in range(1, depth):
                y = link(y, i)
            joined = y if joined is None else joined + y
        mean = joined * (1.0 / (branches * (1.0 + 0.0005 * (branches - 1))))
        return mean, mean.sum()

    return compute


def make_step(name, tensors, mode, nodes):
    """A fresh step of a workload in mode eager, compile or graph."""
    if name in ("chain", "wide"):
        state = tensors["state"].clone()
        compute = chain(nodes) if name == "chain" else wide(*((8, 32) if state.numel() > 256 else (4, 4)))
        return SyntheticStep(torch.compile(compute) if mode == "compile" else compute, state)
    return Step(TRAINED[name](tensors), mode)
