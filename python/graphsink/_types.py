"""Names for what functions of graphsink take."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Union

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from graphsink._core import Dim, NewDim, Value, Variable


class BFloat16:
    """The dtype bf16, which NumPy does not have: gs.bf16. Equal to that of ml_dtypes, and of JAX."""

    name: Final = "bfloat16"
    itemsize: Final = 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat16) or getattr(other, "name", None) == "bfloat16"

    def __hash__(self) -> int:
        return hash("bfloat16")

    def __repr__(self) -> str:
        return "gs.bf16"


bf16: Final = BFloat16()

DType = Union["np.dtype[Any]", BFloat16]
DTypeLike = Union["np.dtype[Any]", type[Any], str, BFloat16]
Operand = Union["Value", "Variable", float]
Array = npt.NDArray[Any]
Float64Array = npt.NDArray[np.float64]
# Arrays of NumPy, PyTorch on the CPU and others, a Tensor, numbers and nested lists of them.
ArrayLike = Any
DimsLike = Sequence[Union[int, "Dim"]]
NewShapeLike = Sequence[Union[int, "NewDim"]]
Index = Any
# What tells the calls of a SinkCache apart.
Key = Union[int, float, str, None, tuple["Key", ...]]
