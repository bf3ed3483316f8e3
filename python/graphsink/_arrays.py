"""Numbers, and nested lists of them, as arrays."""
from __future__ import annotations

from typing import Any

import numpy as np

from graphsink._types import DType, bf16


def from_numbers(data: object, dtype: DType | None) -> np.ndarray[Any, Any]:
    """A contiguous array in the byte order of the machine. Numbers that are no arrays become `dtype`: rounded if it is a
    float, else only if it holds them. Arrays of bf16 become float32. Raises TypeError for what is no number."""
    array = np.asarray(data)
    if array.dtype.name == "bfloat16":  # of ml_dtypes: the caller makes bf16 of it again
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"expected an array or numbers, not {type(data).__name__} (dtype {array.dtype})")
    if not isinstance(data, (np.ndarray, np.generic)) and dtype is not None:
        wanted: np.dtype[Any] = np.dtype(np.float32) if dtype == bf16 else np.dtype(dtype)  # type: ignore[arg-type]
        with np.errstate(all="ignore"):
            made = array.astype(wanted)
        is_held = np.array_equal(np.isinf(made), np.isinf(array)) if wanted.kind == "f" else np.array_equal(made, array)
        if not is_held:
            raise TypeError(f"{wanted} cannot hold all of the given numbers")
        array = made
    # DLPack of NumPy is for arrays that may be written to, in the byte order of the machine.
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
