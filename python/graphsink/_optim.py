"""Optimizers, for trees of parameters."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphsink import _core, _trees
from graphsink._types import Operand


# See norm_of_all of sgd().
NormOfAll = Callable[[_core.Value], _core.Value]


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters, a tree of Variables, that share options. An option that is None is that of the optimizer."""

    parameters: Any
    lr: Operand | None = None
    weight_decay: Operand | None = None


@dataclass(frozen=True)
class Sgd:
    """Options of sgd(), for apply()."""

    lr: Operand = 1e-2
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: Operand = 0.0
    clip_norm: Operand = 0.0
    accumulate: int = 1
    loss_scale: _core.LossScale | None = None
    norm_of_all: NormOfAll | None = None


@dataclass(frozen=True)
class Adamw:
    """Options of adamw(), for apply()."""

    lr: Operand = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: Operand = 0.01
    clip_norm: Operand = 0.0
    accumulate: int = 1
    loss_scale: _core.LossScale | None = None
    norm_of_all: NormOfAll | None = None


def _groups(parameters: Any) -> list[tuple[list[_core.Variable], Operand | None, Operand | None]]:
    """One group of all parameters of a tree, or several if they are ParameterGroups."""
    if isinstance(parameters, ParameterGroup):
        parameters = [parameters]
    if isinstance(parameters, (list, tuple)) and parameters and isinstance(parameters[0], ParameterGroup):
        return [(_variables(group.parameters), group.lr, group.weight_decay) for group in parameters]
    return [(_variables(parameters), None, None)]


def _gradients(op: str, parameters: Any, gradients: Any) -> list[Any]:
    """The gradients, in the order of the parameters that _groups() gives."""
    tree = parameters
    if isinstance(parameters, ParameterGroup):
        tree = parameters.parameters
    elif isinstance(parameters, (list, tuple)) and parameters and isinstance(parameters[0], ParameterGroup):
        tree = [group.parameters for group in parameters]
    return _trees.leaves_matched(tree, gradients, op, "the gradients", "the parameters")


def _variables(tree: Any) -> list[_core.Variable]:
    found = _trees.leaves(tree)
    for name, leaf in zip(_trees.names(tree), found):
        if not isinstance(leaf, _core.Variable):
            raise TypeError(f"parameters are Variables; {name or 'the tree'} is a {type(leaf).__name__}")
    return found


def _sgd(loss: Operand | None, gradients: list[Any], parameters: Any, o: Sgd) -> _core.Optimizer:
    return _core.sgd_groups(loss, gradients, _groups(parameters), o.lr, o.momentum, o.nesterov, o.weight_decay, o.clip_norm,
                            o.accumulate, o.loss_scale, o.norm_of_all)


def _adamw(loss: Operand | None, gradients: list[Any], parameters: Any, o: Adamw) -> _core.Optimizer:
    return _core.adamw_groups(loss, gradients, _groups(parameters), o.lr, o.beta1, o.beta2, o.eps, o.weight_decay,
                              o.clip_norm, o.accumulate, o.loss_scale, o.norm_of_all)


def sgd(loss: Operand, parameters: Any, *, lr: Operand = 1e-2, momentum: float = 0.0, nesterov: bool = False,
        weight_decay: Operand = 0.0, clip_norm: Operand = 0.0, accumulate: int = 1,
        loss_scale: _core.LossScale | None = None, norm_of_all: NormOfAll | None = None) -> _core.Optimizer:
    """Adds the gradients of `loss`, the update and its commit to the graph: parameter -= lr * (gradient + weight_decay *
    parameter), or with momentum velocity = momentum * velocity + gradient + weight_decay * parameter; parameter -= lr *
    velocity.

    `parameters` is a tree of Variables, or a list of ParameterGroups. lr, weight_decay and clip_norm are numbers or Values;
    a number as `lr` becomes a Variable, Optimizer.lr, which the host may write between runs. clip_norm is the largest norm of
    all gradients together, 0 for no limit. accumulate is the number of steps whose gradients are averaged for one update. norm_of_all
    makes the norm of all gradients, where those of this process are a part of them, from the norm of these, an f32 scalar."""
    return _sgd(loss, [], parameters, Sgd(lr, momentum, nesterov, weight_decay, clip_norm, accumulate, loss_scale, norm_of_all))


def adamw(loss: Operand, parameters: Any, *, lr: Operand = 1e-3, beta1: float = 0.9, beta2: float = 0.999,
          eps: float = 1e-8, weight_decay: Operand = 0.01, clip_norm: Operand = 0.0, accumulate: int = 1,
          loss_scale: _core.LossScale | None = None, norm_of_all: NormOfAll | None = None) -> _core.Optimizer:
    """AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2). Parameters and options as in
    sgd()."""
    return _adamw(loss, [], parameters, Adamw(lr, beta1, beta2, eps, weight_decay, clip_norm, accumulate, loss_scale, norm_of_all))


def apply(options: Sgd | Adamw, parameters: Any, gradients: Any) -> _core.Optimizer:
    """The same updates with gradients that you computed or changed yourself: a tree of the form of `parameters`, in which names
    of dicts and fields say what belongs together, in any order; or a list with one Value for each parameter, in their order. For
    several ParameterGroups it is a list with the tree of each. Raises TypeError where the names differ."""
    flat = _gradients("apply", parameters, gradients)
    if isinstance(options, Sgd):
        return _sgd(None, flat, parameters, options)
    return _adamw(None, flat, parameters, options)


def exponential_average(graph: _core.Graph, parameters: Any, decay: Operand = 0.999) -> Any:
    """Averages of parameters over the steps: a tree of Variables "<parameter>.ema" of the form of `parameters`. Call it
    after the optimizer. decay is a number from 0 to below 1, or a Value."""
    made = _core.exponential_average_values(graph, _variables(parameters), decay)
    return _trees.like(parameters, iter(made))
