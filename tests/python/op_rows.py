"""The calls of the op table (tests/op_table) in Python: for each op a function for each of its rows, in their order.

The attributes are those of the row, and what a row leaves to the defaults is left to them here, too. `ops` is the package,
or stands for it (test_op_table.py).
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import graphsink as gs

MOST, LEAST = sys.maxsize, -sys.maxsize - 1
FOLDED = [((), False), ((1,), False), ((0, -1), True)]


def unary(name: str) -> list[Callable[..., Any]]:
    return [lambda ops, x: getattr(ops, name)(x)]


def binary(name: str) -> list[Callable[..., Any]]:
    return [lambda ops, a, b: getattr(ops, name)(a, b)]


def reduction(name: str, *rows: tuple[Any, bool]) -> list[Callable[..., Any]]:
    """Rows with axes, (): all of them, and whether these are kept."""
    def row(axes: Any, keep_axes: bool) -> Callable[..., Any]:
        if axes == ():
            return lambda ops, x: getattr(ops, name)(x, keep_axes=keep_axes)
        return lambda ops, x: getattr(ops, name)(x, axes, keep_axes=keep_axes)
    return [row(axes, keep_axes) for axes, keep_axes in rows]


def matmul(**options: Any) -> Callable[..., Any]:
    return lambda ops, a, b: ops.matmul(a, b, **options)


def extreme(name: str) -> list[Callable[..., Any]]:
    rows = [((), False), ((1,), False), ((0,), True), ((0, -1), False)]
    return [row for each in rows for row in 2 * reduction(name, each)]


def place(name: str) -> list[Callable[..., Any]]:
    return [lambda ops, x: getattr(ops, name)(x, 0), lambda ops, x: getattr(ops, name)(x, -1, keep_axes=True),
            lambda ops, x: getattr(ops, name)(x, 1)]


def pool(name: str) -> list[Callable[..., Any]]:
    return [lambda ops, x: getattr(ops, name)(x, (2, 2)),
            lambda ops, x: getattr(ops, name)(x, (3, 2), stride=(2, 1), padding=(1, 1)),
            lambda ops, x: getattr(ops, name)(x, 1, stride=(2, 3))]


def permute(*axes: int) -> Callable[..., Any]:
    return lambda ops, x: ops.permute(x, list(axes))


def slices(begins: list[int], ends: list[int], steps: list[int] | None = None) -> Callable[..., Any]:
    if steps is None:
        return lambda ops, x: ops.slice(x, begins, ends)
    return lambda ops, x: ops.slice(x, begins, ends, steps)


def pad(before: list[int], after: list[int], value: float) -> Callable[..., Any]:
    if value == 0:
        return lambda ops, x: ops.pad(x, before, after)
    return lambda ops, x: ops.pad(x, before, after, value)


def concat(axis: int) -> Callable[..., Any]:
    return lambda ops, *values: ops.concat(list(values), axis)


def split(sizes_or_parts: Any, axis: int) -> Callable[..., Any]:
    def call(ops: Any, x: Any) -> Any:
        turned = ops.split(x, sizes_or_parts, axis)[::-1]
        return ops.concat([*turned, turned[0]], axis)
    return call


def triangle(name: str) -> list[Callable[..., Any]]:
    def row(diagonal: int) -> Callable[..., Any]:
        if diagonal == 0:
            return lambda ops, x: getattr(ops, name)(x)
        return lambda ops, x: getattr(ops, name)(x, diagonal)
    return [row(diagonal) for diagonal in (0, 2, -1, 40)]


def cast(dtype: Any) -> Callable[..., Any]:
    return lambda ops, x: ops.cast(x, dtype)


def arange(dtype: Any) -> Callable[..., Any]:
    if dtype is gs.i32:
        return lambda ops, x: ops.arange(x, -2)
    return lambda ops, x: ops.arange(x, -2, dtype)


def one_hot(dtype: Any) -> Callable[..., Any]:
    if dtype is gs.f32:
        return lambda ops, x: ops.one_hot(x, 5)
    return lambda ops, x: ops.one_hot(x, 5, dtype)


def randint(dtype: Any) -> Callable[..., Any]:
    if dtype is gs.i32:
        return lambda ops, x: ops.randint(x, -7, -6)
    return lambda ops, x: ops.randint(x, -7, -6, dtype)


def bernoulli(probability: float) -> Callable[..., Any]:
    return lambda ops, x: ops.bernoulli(x * 0 * 0 + probability)


def softmax(name: str, *axes: int) -> list[Callable[..., Any]]:
    def row(axis: int) -> Callable[..., Any]:
        if axis == -1:
            return lambda ops, x: getattr(ops, name)(x)
        return lambda ops, x: getattr(ops, name)(x, axis)
    return [row(axis) for axis in axes]


def conv2d(**options: Any) -> Callable[..., Any]:
    return lambda ops, x, w: ops.conv2d(x, w, **options)


def cross_entropy(targets: Any, **options: Any) -> Callable[..., Any]:
    return lambda ops, x, t: ops.cross_entropy(x, ops.cast(t, targets), **options)


def top_k(k: int, axis: int, part: str) -> Callable[..., Any]:
    if axis == -1:
        return lambda ops, x: getattr(ops.top_k(x, k), part)
    return lambda ops, x: getattr(ops.top_k(x, k, axis), part)


def sort(axis: int, part: str, **options: Any) -> Callable[..., Any]:
    if axis == -1:
        return lambda ops, x: getattr(ops.sort(x, **options), part)
    return lambda ops, x: getattr(ops.sort(x, axis, **options), part)


def sorts(axis: int, parts: list[str]) -> list[Callable[..., Any]]:
    return [sort(axis, part, **options) for options in ({}, {"descending": True}) for part in parts]


def cumsum(axis: int) -> list[Callable[..., Any]]:
    def row(**options: bool) -> Callable[..., Any]:
        return lambda ops, x: ops.cumsum(x, axis, **options)
    return [row(), row(reverse=True), row(exclusive=True), row(exclusive=True, reverse=True)]


def attention(**options: Any) -> Callable[..., Any]:
    return lambda ops, q, k, v: ops.attention(q, k, v, **options)


def masked_attention(**options: Any) -> Callable[..., Any]:
    return lambda ops, q, k, v, x: ops.attention(q, k, v, ops.less(x, 0), **options)


def biased_attention(**options: Any) -> Callable[..., Any]:
    return lambda ops, q, k, v, bias: ops.attention(q, k, v, bias, **options)


def group_norm(groups: int) -> Callable[..., Any]:
    return lambda ops, x, gain, bias: ops.group_norm(x, groups, gain, bias, 0.1)


ROWS: dict[str, list[Callable[..., Any]]] = {
    **{name: unary(name) for name in (
        "relu", "tanh", "exp", "neg", "abs", "log", "sqrt", "rsqrt", "sin", "cos", "sigmoid", "silu", "gelu", "erf", "sign",
        "floor", "ceil", "round", "stop_gradient", "logical_not", "transpose", "check_finite")},
    **{name: binary(name) for name in (
        "add", "sub", "mul", "div", "pow", "minimum", "maximum", "logical_and", "logical_or", "logical_xor", "equal", "not_equal",
        "less", "less_equal", "greater", "greater_equal", "broadcast_like", "sum_like", "reshape_like", "embedding")},
    "clamp": [lambda ops, x: ops.clamp(x, -0.7123, 1.1357), lambda ops, x: ops.clamp(x, 1, 3),
              lambda ops, x: ops.clamp(x, -1, 1)],
    "where": [lambda ops, x, a, b: ops.where(ops.less(ops.cast(x, gs.f32), 0.5), a, b)],
    "masked_mean": [lambda ops, x, values: ops.masked_mean(values, ops.less(ops.cast(x, gs.f32), 0.5))],
    "cast": [cast(dtype) for dtype in (gs.f32, gs.f64, gs.f16, gs.bf16, gs.i32, gs.i64, gs.u8, gs.boolean)],
    "matmul": [
        matmul(), matmul(transpose_a=True), matmul(transpose_b=True), matmul(transpose_a=True, transpose_b=True),
        matmul(), matmul(out=gs.f32), matmul(transpose_b=True), matmul(transpose_b=True, out=gs.f32),
        matmul(transpose_a=True), matmul(transpose_a=True, out=gs.f32), matmul(transpose_a=True, transpose_b=True),
        matmul(transpose_a=True, transpose_b=True, out=gs.f32)],
    "sum": reduction("sum", ((), False), (1, False), ((0,), True), ([0, -1], False), (-2, False)),
    "mean": reduction("mean", ((), False), (-1, True), (0, False)),
    "logsumexp": reduction("logsumexp", *FOLDED),
    "any": reduction("any", *FOLDED),
    "all": reduction("all", *FOLDED),
    "prod": reduction("prod", *FOLDED, ((), False), (1, False), ((), False)),
    "var": [*reduction("var", *FOLDED), lambda ops, x: ops.var(x, (0, -1), keep_axes=True, correction=1),
            lambda ops, x: ops.var(x, correction=1)],
    "reshape": [
        lambda ops, x: ops.reshape(x, (6,)), lambda ops, x: ops.reshape(x, [-1, 3]), lambda ops, x: ops.reshape(x, ()),
        lambda ops, x: ops.reshape(x, (-1, 37)), lambda ops, x: ops.reshape(x, (gs.keep(0), 2, -1)),
        lambda ops, x: ops.reshape(x, (gs.keep(0), 2, -1)), lambda ops, x: ops.reshape(x, (-1, gs.keep(-1), gs.keep(0)))],
    "dim": [lambda ops, x: ops.dim(x, -2)],
    "cross_entropy": [cross_entropy(gs.i32), cross_entropy(gs.i64, ignore_index=1), cross_entropy(gs.i64, per_row=True),
                      cross_entropy(gs.i32, ignore_index=0, per_row=True)],
    "permute": [permute(), permute(0), permute(1, 0), permute(1, 0, 2), permute(-1, 0, 1), permute(2, 1, 0),
                permute(0, 2, 1, 3), permute(0, 2, 3, 1), permute(3, 1, 4, 0, 2)],
    "slice": [
        slices([], []), slices([2], [MOST]), slices([-3], [-1]), slices([4], [1]), slices([MOST], [LEAST], [-1]),
        slices([-2], [gs.to_end], [-2]), slices([-2], [-20], [-3]), slices([1, 0], [MOST, MOST], [2, 3]),
        slices([0, 1, 4], [2, -1, 12], [1, 1, 1]), slices([0, MOST, 1], [MOST, LEAST, MOST], [1, -2, 1]),
        slices([1, 1], [2, 2], [5, -1])],
    "pad": [pad([], [], 1), pad([2], [1], 1), pad([0], [0], 1), pad([0, 4], [0, 8], 0), pad([1, 0], [2, 0], 1),
            pad([0, 1, 2], [1, 0, 3], 1), pad([0, 0, 1, 1], [0, 0, 1, 1], 0)],
    "concat": [concat(0), concat(-1), concat(1)],
    "split": [split([2, 3], 0), split([4, 0, 8], -1), split(3, 1), split(1, 0)],
    "gather": [lambda ops, x, i: ops.gather(x, i), lambda ops, x, i: ops.gather(x, i, 1),
               lambda ops, x, i: ops.gather(x, i, -1)],
    "scatter_add": [lambda ops, x, i, u: ops.scatter_add(x, i, u), lambda ops, x, i, u: ops.scatter_add(x, i, u, -2)],
    "tril": triangle("tril"),
    "triu": triangle("triu"),
    "take_along_axis": [lambda ops, x, i: ops.take_along_axis(x, i, 1), lambda ops, x, i: ops.take_along_axis(x, i, -1)],
    "one_hot": [one_hot(dtype) for dtype in (gs.f32, gs.f64, gs.f16, gs.bf16, gs.i32, gs.i64, gs.u8, gs.boolean)],
    "arange": [arange(dtype) for dtype in (gs.f32, gs.f64, gs.i32, gs.i64)],
    "flatten": [lambda ops, x: ops.flatten(x), lambda ops, x: ops.flatten(x, -2)],
    "squeeze": [lambda ops, x: ops.squeeze(x, -1), lambda ops, x: ops.squeeze(x, 0)],
    "unsqueeze": [lambda ops, x: ops.unsqueeze(x, 1), lambda ops, x: ops.unsqueeze(x, -1)],
    "stack": [lambda ops, *values: ops.stack(list(values)), lambda ops, *values: ops.stack(list(values), 1),
              lambda ops, *values: ops.stack(list(values), -1)],
    "conv2d": [conv2d(), conv2d(stride=(2, 1), padding=(1, 2)), conv2d(stride=(1, 3), padding=(0, 1), dilation=(2, 1)),
               conv2d(stride=2), conv2d(padding=1, groups=2), conv2d(padding=(1, 1), groups=5), conv2d(groups=3)],
    "max_pool2d": pool("max_pool2d"),
    "avg_pool2d": pool("avg_pool2d"),
    "max": extreme("max"),
    "min": extreme("min"),
    "argmax": place("argmax"),
    "argmin": place("argmin"),
    "accuracy": [lambda ops, x, t: ops.accuracy(x, t), lambda ops, x, t: ops.accuracy(x, ops.cast(t, gs.i64)),
                 lambda ops, x, t, mask: ops.accuracy(x, t, ops.equal(mask, 1))],
    "top_k": [
        top_k(1, -1, "values"), top_k(1, -1, "values"), top_k(1, -1, "indices"),
        top_k(3, 1, "values"), top_k(3, 1, "values"), top_k(3, 1, "indices"),
        top_k(1024, 0, "values"), top_k(1024, 0, "indices"), top_k(2, 1, "values")],
    "sort": [
        sort(1, "values"), *sorts(-1, ["values", "values", "indices"]), *sorts(1, ["values", "values", "indices"]),
        *sorts(0, ["values", "indices"]), *sorts(1, ["values", "indices"])],
    "cumsum": [*cumsum(0), *cumsum(-1), *cumsum(1), *cumsum(0)],
    "batch_norm": [
        lambda ops, x, gain, bias: ops.batch_norm(x, gain, bias).y,
        lambda ops, x, gain, bias: ops.batch_norm(x, gain, bias, 0.5).y,
        lambda ops, x, gain, bias: ops.batch_norm(x, gain, bias).mean,
        lambda ops, x, gain, bias: ops.batch_norm(x, gain, bias).variance,
        lambda ops, x, gain, bias, mean, v: ops.batch_norm(x, gain, bias, mean, ops.mul(v, v))],
    "group_norm": [group_norm(1), group_norm(2), group_norm(4)],
    "randint": [randint(gs.i32), randint(gs.i64)],
    "bernoulli": [bernoulli(0.0), bernoulli(1.0)],
    "softmax": softmax("softmax", -1, 1, 0),
    "log_softmax": softmax("log_softmax", -1, -2),
    "layer_norm": [lambda ops, x, gain, bias: ops.layer_norm(x, gain, bias),
                   lambda ops, x, gain, bias: ops.layer_norm(x, gain, bias, 0.5)],
    "rms_norm": [lambda ops, x, gain: ops.rms_norm(x, gain), lambda ops, x, gain: ops.rms_norm(x, gain, 0.5)],
    "attention": [
        attention(), attention(), attention(causal=True), attention(causal=True, scale=0.25),
        masked_attention(), masked_attention(scale=0.5), biased_attention(), biased_attention(causal=True),
        masked_attention(causal=True), biased_attention()],
    "random_uniform": [lambda ops, x: ops.random_uniform(x, 1.5, 1.5)],
    "random_normal": [lambda ops, x: ops.random_normal(x, 2.5, 0.0)],
    "dropout": [lambda ops, x: ops.dropout(x, 0.0)],
}
