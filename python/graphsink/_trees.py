"""Trees of Values and Variables: dicts, lists, tuples, named tuples and dataclasses, nested in any way."""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

T = TypeVar("T")


def leaves(tree: Any) -> list[Any]:
    """The leaves in the order of fields, of elements, and of the keys of a dict as they were put in. None has no leaf."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if node is None:
            return
        if isinstance(node, Mapping):
            for key in node:
                visit(node[key])
        elif isinstance(node, (list, tuple)):
            for element in node:
                visit(element)
        elif dataclasses.is_dataclass(node) and not isinstance(node, type):
            for field in dataclasses.fields(node):
                visit(getattr(node, field.name))
        else:
            found.append(node)

    visit(tree)
    return found


def like(tree: Any, values: Iterator[Any]) -> Any:
    """A tree of the same form with the leaves that the iterator gives."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        entries = {key: like(tree[key], values) for key in tree}
        if type(tree) is dict or not isinstance(tree, MutableMapping):
            return entries
        made = copy.copy(tree)
        made.update(entries)
        return made
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(like(element, values) for element in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(like(element, values) for element in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        copied = copy.copy(tree)
        for field in dataclasses.fields(tree):
            object.__setattr__(copied, field.name, like(getattr(tree, field.name), values))
        return copied
    return next(values)


def form(tree: Any) -> Any:
    """What is equal for trees of one form."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return dict, tuple((key, form(tree[key])) for key in tree)
    if isinstance(tree, (list, tuple)):
        return type(tree), tuple(form(element) for element in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return type(tree), tuple((f.name, form(getattr(tree, f.name))) for f in dataclasses.fields(tree))
    return "leaf"


def map_leaves(function: Callable[[Any], T], tree: Any) -> Any:
    return like(tree, iter([function(leaf) for leaf in leaves(tree)]))


def names(tree: Any, prefix: str = "") -> list[str]:
    """A name for each leaf: "layer1.weight", "0.bias"."""
    def join(name: object) -> str:
        return f"{prefix}.{name}" if prefix else str(name)

    if tree is None:
        return []
    if isinstance(tree, Mapping):
        return [name for key in tree for name in names(tree[key], join(key))]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return [name for key, value in zip(tree._fields, tree) for name in names(value, join(key))]
    if isinstance(tree, (list, tuple)):
        return [name for i, value in enumerate(tree) for name in names(value, join(i))]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [name for f in dataclasses.fields(tree) for name in names(getattr(tree, f.name), join(f.name))]
    return [prefix]
