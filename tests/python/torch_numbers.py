"""Computes with PyTorch what test_torch_numbers.py compares graphsink with, where PyTorch is not installed, too.

usage: torch_numbers.py            writes torch_numbers.json, beside this file
       torch_numbers.py --check    exit 1 if PyTorch computes something else than the file has

Inputs are multiples of 1/64, made of integers alone, so that both sides have the same bits everywhere.
"""
from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

FILE = pathlib.Path(__file__).with_suffix(".json")
Floats = npt.NDArray[np.float32]

STEPS = 8  # of the trainings
TRAINING = {"lr": 0.05, "weight_decay": 0.1, "clip_norm": 0.5}
SCHEDULE = {"peak": 0.5, "warmup": 4, "steps": 20, "final": 0.1}


def integers(seed: int, count: int) -> list[int]:
    """The upper bits of a linear congruential generator (Knuth's MMIX)."""
    state, found = seed, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        found.append(state >> 33)
    return found


def floats(seed: int, *shape: int, scale: int = 1) -> Floats:
    """Numbers from -2 to 2, times `scale`."""
    made = np.array([number % 257 - 128 for number in integers(seed, int(np.prod(shape)))], np.float32)
    return (made * np.float32(scale / 64)).reshape(shape)


def classes(seed: int, count: int, number: int) -> npt.NDArray[np.int64]:
    return np.array([each % number for each in integers(seed, count)], np.int64)


def inputs() -> dict[str, npt.NDArray[Any]]:
    """What both sides compute with, by name."""
    return {
        "x": floats(1, 6, 8), "gain": floats(2, 8), "bias": floats(3, 8), "up": floats(4, 6, 8),
        "logits": floats(5, 6, 5, scale=2), "targets": classes(6, 6, 5),
        "image": floats(7, 2, 4, 6, 5), "filters": floats(8, 6, 2, 3, 2), "image_up": floats(9, 2, 6, 3, 6),
        "q": floats(10, 2, 2, 4, 8), "k": floats(11, 2, 2, 5, 8), "v": floats(12, 2, 2, 5, 8),
        "mask": (classes(13, 40, 3) > 0).reshape(2, 1, 4, 5) | (np.arange(5) == 0), "attention_up": floats(14, 2, 2, 4, 8),
        "lstm_x": floats(15, 3, 4, 5), "lstm_h": floats(16, 4, 6), "lstm_c": floats(17, 4, 6),
        "lstm_input": floats(18, 24, 5) / 4, "lstm_recurrent": floats(19, 24, 6) / 4, "lstm_bias": floats(20, 24) / 4,
        "batches": floats(21, STEPS, 16, 4), "labels": classes(22, STEPS * 16, 3).reshape(STEPS, 16), "w": floats(23, 4, 3) / 4,
        "b": floats(24, 3) / 4}


def layer_norm(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    x, gain, bias = (of[name].requires_grad_() for name in ("x", "gain", "bias"))
    y = torch.nn.functional.layer_norm(x, (8,), gain, bias, 1e-5)
    y.backward(of["up"])
    return {"y": y, "dx": x.grad, "dgain": gain.grad, "dbias": bias.grad}


def cross_entropy(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    logits = of["logits"].requires_grad_()
    mean = torch.nn.functional.cross_entropy(logits, of["targets"])
    mean.backward()
    rows = torch.nn.functional.cross_entropy(logits, of["targets"], ignore_index=1, reduction="none")
    ignored = torch.nn.functional.cross_entropy(logits, of["targets"], ignore_index=1)
    return {"mean": mean, "dlogits": logits.grad, "rows": rows, "mean_without_1": ignored}


def conv2d(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    image, filters = of["image"].requires_grad_(), of["filters"].requires_grad_()
    y = torch.nn.functional.conv2d(image, filters, stride=(2, 1), padding=(1, 1), groups=2)
    y.backward(of["image_up"])
    return {"y": y, "dimage": image.grad, "dfilters": filters.grad}


def attention(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    q, k, v = (of[name].requires_grad_() for name in "qkv")
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=of["mask"])
    y.backward(of["attention_up"])
    return {"y": y, "dq": q.grad, "dk": k.grad, "dv": v.grad}


def lstm(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    cell = torch.nn.LSTMCell(5, 6)
    with torch.no_grad():
        for name, value in (("weight_ih", "lstm_input"), ("weight_hh", "lstm_recurrent"), ("bias_ih", "lstm_bias")):
            getattr(cell, name).copy_(of[value])
        cell.bias_hh.zero_()
    h, c = of["lstm_h"], of["lstm_c"]
    for x in of["lstm_x"]:
        h, c = cell(x, (h, c))
    (h.sum() + (c * c).sum()).backward()
    return {"h": h, "c": c, "dinput": cell.weight_ih.grad, "drecurrent": cell.weight_hh.grad, "dbias": cell.bias_ih.grad}


def activations(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    found = {}
    functions = {"gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "gelu_erf": torch.nn.functional.gelu,
                 "silu": torch.nn.functional.silu}
    for name, function in functions.items():
        x = of["x"].clone().requires_grad_()
        y = function(x)
        y.backward(of["up"])
        found |= {name: y, "d" + name: x.grad}
    return found


def schedule(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    """The warm-up by LambdaLR, then CosineAnnealingLR."""
    peak, warmup, steps, final = SCHEDULE["peak"], int(SCHEDULE["warmup"]), int(SCHEDULE["steps"]), SCHEDULE["final"]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / warmup)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - warmup, eta_min=peak * final)
    both = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [warmup])
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        both.step()
    return {"rates": torch.tensor(rates, dtype=torch.float64)}


def training(torch: Any, of: dict[str, Any]) -> dict[str, Any]:
    """A linear layer with AdamW and clipping."""
    w, b = of["w"].requires_grad_(), of["b"].requires_grad_()
    optimizer = torch.optim.AdamW([w, b], lr=TRAINING["lr"], weight_decay=TRAINING["weight_decay"])
    losses, norms = [], []
    for x, t in zip(of["batches"], of["labels"]):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(x @ w + b, t)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_([w, b], TRAINING["clip_norm"]))
        losses.append(loss.detach())
        optimizer.step()
    return {"losses": torch.stack(losses), "norms": torch.stack(norms), "w": w, "b": b}


CASES: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {
    case.__name__: case for case in (layer_norm, cross_entropy, conv2d, attention, lstm, activations, schedule, training)}


def computed(torch: Any) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """What PyTorch computes, by case and name."""
    found = {}
    for name, case in CASES.items():
        tensors = {key: torch.from_numpy(np.array(value)) for key, value in inputs().items()}
        found[name] = {key: value.detach().numpy() for key, value in case(torch, tensors).items()}
    return found


def read() -> dict[str, dict[str, npt.NDArray[np.float64]]]:
    """What the file has."""
    numbers = json.loads(FILE.read_text(encoding="utf-8"))["numbers"]
    return {case: {key: np.array(value) for key, value in of.items()} for case, of in numbers.items()}


def differences(torch: Any) -> list[str]:
    """Where PyTorch computes something else than the file has."""
    found, kept = computed(torch), read()
    names = {f"{case}.{key}" for numbers in (found, kept) for case, of in numbers.items() for key in of}
    return sorted(name for name in names if not is_close(found, kept, *name.split(".")))


def is_close(found: Any, kept: Any, case: str, key: str) -> bool:
    if key not in found.get(case, {}) or key not in kept.get(case, {}):
        return False
    a, b = found[case][key], kept[case][key]
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-5, atol=1e-6))


def rounded(value: npt.NDArray[Any]) -> Any:
    """Nested lists, of nine digits, which hold every f32."""
    return [rounded(each) for each in value] if value.ndim else float(f"{value:.9g}")


def write(torch: Any) -> None:
    made = {"torch": torch.__version__, "date": datetime.date.today().isoformat(), "made_by": "tests/python/torch_numbers.py",
            "numbers": {case: {key: rounded(value) for key, value in of.items()} for case, of in computed(torch).items()}}
    FILE.write_text(json.dumps(made, separators=(",", ":")).replace('},"', '},\n"') + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    import torch
    if not arguments.check:
        write(torch)
        return 0
    found = differences(torch)
    print("\n".join(found) or "PyTorch computes what the file has")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
