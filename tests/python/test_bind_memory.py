"""Memory of arrays as the place of inputs, outputs and Variables."""
from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import cuda_arrays as arrays
import graphsink as gs


def aligned(values, offset=0):
    """An array that begins `offset` bytes behind a multiple of 64."""
    values = np.asarray(values, np.float32)
    memory = np.zeros(values.nbytes + 256, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    array = memory[begin:begin + values.nbytes].view(np.float32).reshape(values.shape)
    array[...] = values
    return array


class Owner(np.ndarray):
    """An array that can tell when it is gone."""


def build():
    g = gs.Graph()
    x = g.input("x", gs.f32, (3,))
    w = gs.Variable("w", [0.0, 0.0, 0.0])
    y = x + g.value(w)
    g.assign(w, y)
    g.output("y", y)
    return gs.compile(g), x, w, y


@pytest.mark.parametrize("offset", [0, 64, 128, 192])
def test_steps_use_the_memory_itself(offset):
    program, _, w, y = build()
    x_memory, w_memory, y_memory = aligned([1, 2, 3], offset), aligned([10, 20, 30], offset), aligned([0, 0, 0], offset)
    assert program.bind_memory("x", x_memory) is x_memory
    program.bind_memory(w, w_memory)
    program.bind_memory(y, y_memory)
    for mode in (gs.interactive, gs.sink, gs.sink):
        program.run(mode)
    program.sync()
    assert w_memory.tolist() == [13, 26, 39] and y_memory.tolist() == [13, 26, 39]
    x_memory[:] = 0
    w.write([5.0, 6.0, 7.0])
    assert w_memory.tolist() == [5, 6, 7]
    program.run()
    program.sync()
    assert y_memory.tolist() == [5, 6, 7]


def test_the_arrays_live_as_long_as_they_are_used():
    program, x, w, y = build()
    arrays = [aligned([1, 2, 3]).view(Owner) for _ in range(3)]
    for value, array in zip((x, w, y), arrays):
        program.bind_memory(value, array)
    gone = [weakref.ref(array) for array in arrays]
    del arrays, array
    gc.collect()
    assert all(ref() is not None for ref in gone)
    program.run()
    program.sync()
    del program
    gc.collect()
    assert gone[0]() is None and gone[1]() is not None and gone[2]() is None
    assert w.read().tolist() == [2, 4, 6]
    del w, x, y, value  # Values keep the graph, which uses the Variable
    gc.collect()
    assert gone[1]() is None


@pytest.mark.parametrize("offset", [4, 32, 68])
def test_an_array_that_is_not_aligned_is_refused_or_copied(offset):
    program, _, _, _ = build()
    array = aligned([1, 2, 3], offset)
    with pytest.raises(gs.Error, match=f"begins {offset % 64} bytes behind a multiple of 64.*copy=True"):
        program.bind_memory("x", array)
    bound = program.bind_memory("x", array, copy=True)
    assert bound.ctypes.data % 64 == 0 and bound.tolist() == [1, 2, 3]
    program.run()
    assert program.output("y").tolist() == [1, 2, 3]


def test_read_only_arrays_are_for_inputs():
    program, _, w, y = build()
    array = aligned([1, 2, 3])
    array.flags.writeable = False
    for value in (w, y):
        with pytest.raises(gs.Error, match="read-only"):
            program.bind_memory(value, array)
    program.bind_memory("x", array)
    program.run()
    assert program.output("y").tolist() == [1, 2, 3]
    with pytest.raises(gs.Error, match="lies in a read-only array"):
        program.write("x", [4, 5, 6])
    assert array.tolist() == [1, 2, 3]


def test_what_is_bound_in_the_place_of_a_read_only_array_is_written():
    program, _, _, _ = build()
    array = aligned([1, 2, 3])
    array.flags.writeable = False
    program.bind_memory("x", array)
    program.bind_memory("x", aligned([1, 2, 3]))
    program.write("x", [4, 5, 6])
    program.run()
    assert program.output("y").tolist() == [4, 5, 6]


def test_what_does_not_fit_is_refused():
    program, _, _, _ = build()
    for array, problem in [(aligned([1, 2]), r"f32\[2\], expected f32\[3\]"),
                           (aligned([1, 2, 3]).astype(np.float64), "expected f32"),
                           (aligned([1, 2, 3, 4, 5])[::2], "gaps"), ([1, 2, 3], "DLPack")]:
        with pytest.raises(gs.Error, match=problem):
            program.bind_memory("x", array)


def test_open_dimensions_are_refused():
    graph = gs.Graph()
    graph.output("y", graph.input("x", gs.f32, (gs.open(3),)) * 2)
    program = gs.compile(graph)
    for name in ("x", "y"):
        with pytest.raises(gs.Error, match=r"it is f32\[open\(3\)\], and an array has one size.*; remedy: use write\(\) or output\(\)"):
            program.bind_memory(name, aligned([1, 2, 3]))


@pytest.mark.skipif(not gs.cuda.is_available(), reason="no CUDA device")
def test_host_memory_is_refused_by_a_gpu():
    g = gs.Graph()
    g.output("y", g.input("x", gs.f32, (3,)) + 1.0)
    with pytest.raises(gs.Error, match="memory of the host"):
        gs.compile(g, gs.cuda(0)).bind_memory("x", aligned([1, 2, 3]))


def test_torch():
    torch = pytest.importorskip("torch")
    program, _, _, y = build()
    result = torch.zeros(3)
    program.bind_memory(y, result)
    program.write("x", torch.ones(3))
    program.run()
    program.sync()
    assert result.tolist() == [1, 1, 1]


def test_a_tensor_gives_its_memory_by_dlpack():
    tensor = gs.Tensor([1.0, 2.0, 3.0])
    array = np.from_dlpack(tensor)
    assert array.tolist() == [1, 2, 3] and array.ctypes.data == tensor.numpy().ctypes.data
    assert tensor.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="gs.f32"):
        np.from_dlpack(tensor.to(gs.bf16))


def test_memory_that_is_bound_later_has_no_output_before_a_run(device):
    g = gs.Graph()
    g.output("y", g.input("x", gs.f32, (3,)) + 1.0)
    program = gs.compile(g, device)
    program.write("x", [1.0, 2.0, 3.0])
    made = aligned if device == gs.cpu() else arrays.VersionedArray
    if device != gs.cpu() and arrays.cudart is None:
        pytest.skip("no CUDA runtime to allocate memory with")
    for _ in range(2):
        program.bind_memory("y", made([7, 7, 7]))
        with pytest.raises(gs.Error, match="no run has computed the output in this memory.*call run\\(\\) after"):
            program.output_view("y")
        program.bind()
        program.write("x", [1.0, 2.0, 3.0])
        with pytest.raises(gs.Error, match="no run"):
            program.output_view("y")
        program.run()
        program.output_view("y")


def test_an_output_that_is_an_input_is_viewed():
    g = gs.Graph()
    x = g.input("x", gs.f32, (3,))
    g.output("y", x)
    g.output("z", x + 1.0)
    program = gs.compile(g)
    memory = aligned([1, 2, 3])
    program.bind_memory("x", memory)
    program.run()
    assert program.output_view("y").ctypes.data == memory.ctypes.data
    assert program.output("y").tolist() == program.output_view("y").tolist() == [1, 2, 3]


def bind_empty(shape, device, make):
    g = gs.Graph()
    w = gs.Variable("w", np.empty(shape, np.float32))
    g.output("y", g.input("x", gs.f32, shape) + g.value(w))
    program = gs.compile(g, device)
    for what in ("x", "y", w):
        program.bind_memory(what, make())
    program.run()
    assert program.output("y").shape == shape
    return program.output_view("y")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0, 2)])
@pytest.mark.parametrize("make", [lambda shape: np.empty(shape, np.float32), lambda shape: np.empty(shape, np.float32, order="F"),
                                  lambda shape: np.lib.stride_tricks.as_strided(aligned([1.0], 4), shape, (4,) * len(shape)),
                                  lambda shape: arrays.VersionedArray(np.empty(shape, np.float32), kind=arrays.CPU, address=0)])
def test_arrays_without_elements_have_neither_gaps_nor_an_address(shape, make):
    assert bind_empty(shape, gs.cpu(), lambda: make(shape)).shape == shape


@pytest.mark.skipif(not gs.cuda.is_available() or arrays.cudart is None, reason="no CUDA device, or no CUDA runtime")
@pytest.mark.parametrize("fields", [{}, {"strides": (40, 8)}])
def test_cuda_arrays_without_elements(fields):
    like = np.empty((0, 3), np.float32)
    view = bind_empty((0, 3), gs.cuda(0), lambda: arrays.InterfaceArray(like, data=(0, False), **fields))
    assert view.__cuda_array_interface__["data"] == (0, True)
    bind_empty((0, 3), gs.cuda(0), lambda: arrays.VersionedArray(like, address=0, strides=(10, 2) if fields else None))


def test_read_only_memory_of_a_variable_that_no_step_writes():
    g = gs.Graph()
    w = gs.Variable("w", [1.0, 2.0, 3.0])
    g.output("y", g.value(w) + 1.0)
    array = aligned([1, 2, 3])
    array.flags.writeable = False
    with pytest.raises(gs.Error, match=r"steps or write\(\) may write to it"):
        gs.compile(g).bind_memory(w, array)


def test_bf16_has_no_copy():
    g = gs.Graph()
    g.output("y", g.input("x", gs.bf16, (2,)) * 2.0)
    with pytest.raises(gs.Error, match="NumPy, which has no bf16") as caught:
        gs.compile(g).bind_memory("x", np.zeros(2, np.float32), copy=True)
    assert "copy=True" not in caught.value.remedy


def test_a_tensor_that_requires_a_gradient_is_refused():
    class Tensor:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **options):
            raise BufferError("it requires a gradient")

    program, _, _, _ = build()
    with pytest.raises(gs.Error, match=r"detach\(\)"):
        program.bind_memory("x", Tensor())


@pytest.mark.parametrize("told", [[1, 0, 0], (1,), 5, None, ("a", 0), (1, "b")])
def test_devices_that_are_none(told):
    class Wrong:
        def __dlpack_device__(self):
            return told

    program, _, _, _ = build()
    with pytest.raises(TypeError, match="two integers"):
        program.bind_memory("x", Wrong())
