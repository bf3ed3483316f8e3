"""Arrays of CUDA memory without a library that makes some: what PyTorch, CuPy and Numba hand out, by ctypes.

The CUDA runtime is that of the extension module where this shows it, as with the software device.
"""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from graphsink import _core

CPU, CUDA, READ_ONLY = 1, 2, 1
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
BFLOAT = 4


def runtime() -> Any:
    """The CUDA runtime, or None."""
    for name in (_core.__file__, "libcudart.so.13", "libcudart.so"):
        try:
            library = ctypes.CDLL(name)
            library.cudaMalloc, library.cudaMemcpy, library.cudaLaunchHostFunc  # noqa: B018
            return library
        except (OSError, AttributeError):
            pass
    return None


cudart = runtime()


def check(code: int) -> None:
    assert code == 0, f"CUDA error {code}"


class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DlTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DlTensor)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.argtypes, new_capsule.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
is_valid = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
pointer_of = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))

# What capsules need until they are deleted, and how often each array's were, by their addresses.
_alive: dict[int, tuple[Any, DeviceArray]] = {}


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(address: int) -> None:
    _, array = _alive.pop(address)
    array.deleted += 1


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule: int) -> None:
    """A capsule that nobody has taken anything out of."""
    for name in (b"dltensor", b"dltensor_versioned"):
        if is_valid(capsule, name):
            _delete(pointer_of(capsule, name))


class DeviceArray:
    """CUDA memory with the elements of an array of NumPy. Options change what it says of itself."""

    def __init__(self, elements: npt.ArrayLike, *, offset: int = 0, strides: tuple[int, ...] | None = None, device: int = 0,
                 kind: int = CUDA, major: int = 1, is_read_only: bool = False, address: int | None = None):
        self.like = np.asarray(elements, np.float32) if not isinstance(elements, np.ndarray) else elements
        self.strides, self.device, self.kind, self.major, self.is_read_only = strides, device, kind, major, is_read_only
        self.streams: list[Any] = []  # those that consumers gave
        self.made = self.deleted = 0  # capsules
        self.offset = offset
        self.code = CODES[self.like.dtype.kind]
        self._allocated = ctypes.c_void_p()
        if address is None:
            check(cudart.cudaMalloc(ctypes.byref(self._allocated), ctypes.c_size_t(self.like.nbytes + 512)))
            self.address = (self._allocated.value or 0) + offset
            self.write(self.like)
        else:
            self.address = address

    def __del__(self) -> None:
        if self._allocated.value is not None:
            cudart.cudaFree(self._allocated)

    def write(self, elements: npt.ArrayLike) -> None:
        source = np.ascontiguousarray(elements, self.like.dtype)
        check(cudart.cudaMemcpy(ctypes.c_void_p(self.address), ctypes.c_void_p(source.ctypes.data), ctypes.c_size_t(source.nbytes), 1))

    def read(self) -> npt.NDArray[Any]:
        return read(self.address, self.like)

    def capsule(self, is_versioned: bool) -> Any:
        shape = (ctypes.c_int64 * self.like.ndim)(*self.like.shape)
        strides = None if self.strides is None else (ctypes.c_int64 * self.like.ndim)(*self.strides)
        managed: Any = ManagedVersioned() if is_versioned else Managed()
        managed.deleter = ctypes.cast(_delete, ctypes.c_void_p)
        if is_versioned:
            managed.major, managed.flags = self.major, READ_ONLY if self.is_read_only else 0
        dtype = self.like.dtype
        # The offset is in a field of its own, as some libraries have it.
        managed.tensor = DlTensor(self.address - self.offset, self.kind, self.device, self.like.ndim, self.code, 8 * dtype.itemsize,
                                  1, shape, strides, self.offset)
        address = ctypes.addressof(managed)
        _alive[address] = ((managed, shape, strides), self)
        self.made += 1
        return new_capsule(address, b"dltensor_versioned" if is_versioned else b"dltensor", ctypes.cast(_destroy, ctypes.c_void_p))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.device


class OldArray(DeviceArray):
    """Of a library from before versions, which has no keyword for them."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.capsule(False)


class VersionedArray(DeviceArray):
    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        self.streams.append(stream)
        return self.capsule(max_version is not None and max_version[0] >= 1)


class InterfaceArray:
    """__cuda_array_interface__ alone. Options are fields of it; None leaves one out."""

    def __init__(self, elements: npt.ArrayLike, *, offset: int = 0, is_read_only: bool = False, **fields: Any):
        self.memory = DeviceArray(elements, offset=offset)
        like = self.memory.like
        said = {"shape": like.shape, "typestr": like.dtype.str, "data": (self.memory.address, is_read_only), "version": 3,
                "strides": None, "stream": None, **fields}
        self.__cuda_array_interface__ = {name: value for name, value in said.items() if value is not None}

    def read(self) -> npt.NDArray[Any]:
        return self.memory.read()


def read(address: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements of CUDA memory."""
    to = np.empty_like(like, order="C")
    check(cudart.cudaMemcpy(ctypes.c_void_p(to.ctypes.data), ctypes.c_void_p(address), ctypes.c_size_t(to.nbytes), 2))
    return to


def tensor_in(capsule: Any) -> tuple[DlTensor, int | None]:
    """The tensor in a capsule, and the flags of a versioned one."""
    if is_valid(id(capsule), b"dltensor_versioned"):
        managed = ManagedVersioned.from_address(pointer_of(id(capsule), b"dltensor_versioned"))
        return managed.tensor, managed.flags
    return Managed.from_address(pointer_of(id(capsule), b"dltensor")).tensor, None


HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def new_stream() -> int:
    stream = ctypes.c_void_p()
    check(cudart.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
    assert stream.value is not None
    return stream.value
