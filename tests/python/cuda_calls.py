"""Calls of the CUDA runtime by ctypes: the code of a user who knows nothing of graphsink."""
from __future__ import annotations

import ctypes
from typing import Any

import pytest

import cuda_arrays
import graphsink as gs

RUNTIME = cuda_arrays.cudart
SIZE = 64
# Of whoever needs a device that such calls reach.
needs_cuda = pytest.mark.skipif(not gs.cuda.is_available() or not hasattr(RUNTIME, "cudaMemsetAsync"),
                                reason="no CUDA device, or a CUDA runtime that ctypes does not find")


def call(name: str, *arguments: Any) -> None:
    code = getattr(RUNTIME, name)(*arguments)
    if code != 0:
        RUNTIME.cudaGetErrorName.restype = ctypes.c_char_p
        raise RuntimeError(f"{name}: {RUNTIME.cudaGetErrorName(code).decode()}")


class Stream:
    """A stream that does not wait for the legacy one."""

    def __init__(self) -> None:
        self.number = cuda_arrays.new_stream()

    def __del__(self) -> None:
        RUNTIME.cudaStreamDestroy(ctypes.c_void_p(self.number))


class Memory:
    """Bytes of the device, all 0."""

    def __init__(self, size: int = SIZE) -> None:
        made = ctypes.c_void_p()
        call("cudaMalloc", ctypes.byref(made), ctypes.c_size_t(size))
        assert made.value is not None
        self.address, self.size = made.value, size
        call("cudaMemset", ctypes.c_void_p(self.address), 0, ctypes.c_size_t(size))
        call("cudaDeviceSynchronize")

    def __del__(self) -> None:
        RUNTIME.cudaFree(ctypes.c_void_p(self.address))

    def read(self) -> bytes:
        """After all work of the device."""
        data = ctypes.create_string_buffer(self.size)
        call("cudaDeviceSynchronize")
        call("cudaMemcpy", data, ctypes.c_void_p(self.address), ctypes.c_size_t(self.size), 2)
        return data.raw

    def fill(self, stream: int, value: int, offset: int) -> None:
        """The bytes from `offset` on."""
        call("cudaMemsetAsync", ctypes.c_void_p(self.address + offset), value, ctypes.c_size_t(self.size - offset), ctypes.c_void_p(stream))


class Counter:
    """Counts how often the work of tick() has run, up to SIZE - 1 times: a mark in memory moves on by one."""

    def __init__(self) -> None:
        self.tape, self.copy = Memory(), Memory()
        call("cudaMemset", ctypes.c_void_p(self.tape.address), 1, ctypes.c_size_t(1))
        call("cudaDeviceSynchronize")

    def tick(self, stream: int) -> None:
        def copy(to: int, source: int, size: int) -> None:
            call("cudaMemcpyAsync", ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), 3, ctypes.c_void_p(stream))

        copy(self.copy.address, self.tape.address, SIZE)
        copy(self.tape.address + 1, self.copy.address, SIZE - 1)
        call("cudaMemsetAsync", ctypes.c_void_p(self.tape.address), 0, ctypes.c_size_t(1), ctypes.c_void_p(stream))

    def count(self) -> int:
        return self.tape.read().index(1)
