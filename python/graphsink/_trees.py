"""Trees of Values and Variables: dicts, lists, tuples, named tuples and dataclasses, nested in any way."""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

T = TypeVar("T")


def leaves(tree: Any) -> list[Any]:
    """The leaves in the order of fields, of elements, and of the keys of a dict as they were put in. None has no leaf."""
    return [leaf for _, leaf in _paths(tree)]


def names(tree: Any) -> list[str]:
    """A name for each leaf: "layer1.weight", "0.bias"."""
    return [_text(path) for path, _ in _paths(tree)]


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
    """What is equal for trees of one form. The keys of dicts may have any order."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return dict, {key: form(tree[key]) for key in tree}
    if isinstance(tree, (list, tuple)):
        return type(tree), tuple(form(element) for element in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return type(tree), tuple((f.name, form(getattr(tree, f.name))) for f in dataclasses.fields(tree))
    return "leaf"


def leaves_of_form(tree: Any, other: Any) -> list[Any] | None:
    """The leaves of `other` in the order of those of `tree` that they belong to: by their keys in dicts. None if the form is
    another one."""
    if form(tree) != form(other):
        return None
    by_path = dict(_paths(other))
    return [by_path[path] for path, _ in _paths(tree)]


def _paths(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves with the keys, names of fields and positions that lead to each."""
    if tree is None:
        return []
    parts: list[tuple[Any, Any]]
    if isinstance(tree, Mapping):
        parts = [(key, tree[key]) for key in tree]
    elif isinstance(tree, (list, tuple)):
        parts = list(zip(getattr(tree, "_fields", range(len(tree))), tree))
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        parts = [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    else:
        return [(path, tree)]
    return [found for key, part in parts for found in _paths(part, (*path, key))]


def _text(path: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in path)


def _has_names(tree: Any) -> bool:
    """Whether a dict, a named tuple or a dataclass is in it."""
    if isinstance(tree, (list, tuple)) and not hasattr(tree, "_fields"):
        return any(_has_names(element) for element in tree)
    return isinstance(tree, (Mapping, tuple)) or dataclasses.is_dataclass(tree) and not isinstance(tree, type)


def leaves_matched(tree: Any, other: Any, op: str, what: str, of: str) -> list[Any]:
    """The leaves of `other` that belong to those of `tree`, in the order of `tree`: those of dicts, named tuples and
    dataclasses by their names. Lists and tuples alone, nested in any way, name nothing and have the order of `tree` already.
    Raises TypeError of `op` where `other` has names, and others than `tree`; it is called `what`, and `tree` `of`."""
    if not _has_names(other):
        return leaves(other)
    by_path = dict(_paths(other))
    expected = [path for path, _ in _paths(tree)]
    known = set(expected)
    missing = [_text(path) or "one alone" for path in expected if path not in by_path]
    unused = [_text(path) or "one alone" for path in by_path if path not in known]
    if missing or unused:
        found = [f"{of} have {missing[0]}, and {what} do not"] if missing else []
        found += [f"{what} have {unused[0]}, and {of} do not"] if unused else []
        raise TypeError(f"{op}: {what} and {of} differ in their names: {'; '.join(found)}; give {what} as a tree of the form of {of}, "
                        f"or as a list in their order")
    return [by_path[path] for path in expected]


def map_leaves(function: Callable[[Any], T], tree: Any) -> Any:
    return like(tree, iter([function(leaf) for leaf in leaves(tree)]))
