"""A file of the user's, whose lines errors name."""
from __future__ import annotations

import graphsink as gs


def wrong_product(x: gs.Value) -> gs.Value:
    return gs.matmul(x, x)  # LINE: product


def wrong_branch(x: gs.Value) -> gs.Value:
    return gs.if_(x > 0, lambda: x, lambda: wrong_product(x))  # LINE: branch
