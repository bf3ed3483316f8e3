"""The exception of the package."""
from __future__ import annotations

from typing import Any


class Error(RuntimeError):
    """What graphsink refuses or cannot do. The text names the op, the line of Python, what was expected and seen, and what
    to do about it; the parts are attributes.

    op       the op, the file or the call that refused
    file     of the line of Python that called; "" where none is known
    line     the number of that line, 0 where none is known
    scope    "encoder/layer3"; "" outside of scopes
    problem  what was expected and what was seen, with shapes
    remedy   what to do about it
    code     the kind of failure, an ErrorCode
    """

    def __init__(self, op: str, file: str, line: int, scope: str, problem: str, remedy: str, code: Any, text: str) -> None:
        super().__init__(text)
        self.op = op
        self.file = file
        self.line = line
        self.scope = scope
        self.problem = problem
        self.remedy = remedy
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.op, self.file, self.line, self.scope, self.problem, self.remedy, self.code, str(self))
        return type(self), parts
