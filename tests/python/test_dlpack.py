"""CUDA memory by DLPack and __cuda_array_interface__, in and out, and views of outputs."""
from __future__ import annotations

import ctypes
import gc
import time
import weakref

import numpy as np
import pytest

import cuda_arrays as arrays
import graphsink as gs
from test_bind_memory import aligned

needs_cuda = pytest.mark.skipif(not gs.cuda.is_available() or arrays.cudart is None,
                                reason="no CUDA device, or no CUDA runtime to allocate memory with")
KINDS = [arrays.OldArray, arrays.VersionedArray, arrays.InterfaceArray]
LEGACY = 1


def build(device=None):
    g = gs.Graph()
    x = g.input("x", gs.f32, (3,))
    w = gs.Variable("w", [0.0, 0.0, 0.0])
    y = x + g.value(w)
    g.assign(w, y)
    g.output("y", y)
    return gs.compile(g, device if device is not None else gs.cuda(0)), w


@needs_cuda
@pytest.mark.parametrize("kind", KINDS)
def test_steps_use_cuda_memory_itself(kind):
    program, w = build()
    x_memory, w_memory, y_memory = kind([1, 2, 3]), kind([10, 20, 30]), kind([0, 0, 0])
    assert program.bind_memory("x", x_memory) is x_memory
    program.bind_memory(w, w_memory)
    program.bind_memory("y", y_memory)
    for mode in (gs.interactive, gs.sink, gs.sink):
        program.run(mode)
    program.sync()
    assert w_memory.read().tolist() == [13, 26, 39] and y_memory.read().tolist() == [13, 26, 39]
    assert np.array_equal(program.output("y"), y_memory.read())
    given = [x_memory, w_memory, y_memory]
    if kind is not arrays.InterfaceArray:
        assert [array.streams for array in given] == [[LEGACY]] * 3
        assert [(array.made, array.deleted) for array in given] == [(1, 0)] * 3
    gone = [weakref.ref(array) for array in given]
    del program, given
    gc.collect()
    if kind is not arrays.InterfaceArray:
        assert [x_memory.deleted, w_memory.deleted, y_memory.deleted] == [1, 0, 1]  # the Variable is there
    assert w.read().tolist() == [13, 26, 39]
    del w
    gc.collect()
    if kind is not arrays.InterfaceArray:
        assert w_memory.deleted == 1
    del x_memory, w_memory, y_memory
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


@needs_cuda
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_keeps_the_arrays(kind):
    program, _ = build()
    array = kind([1, 2, 3])
    program.bind_memory("x", array)
    ref = weakref.ref(array)
    del array
    gc.collect()
    assert ref() is not None
    program.run()
    assert program.output("y").tolist() == [1, 2, 3]
    program.bind_memory("x", kind([4, 5, 6]))  # in its place
    gc.collect()
    assert ref() is None
    program.run()
    assert program.output("y").tolist() == [5, 7, 9]


@needs_cuda
@pytest.mark.parametrize("kind", [arrays.OldArray, arrays.VersionedArray])
def test_the_stream_is_given_on(kind):
    class Stream:
        ptr = arrays.new_stream()

    program, w = build()
    array = kind([1, 2, 3])
    program.bind_memory("x", array, stream=Stream())
    program.bind_memory("x", array, stream=Stream.ptr)
    program.bind_memory("x", array, stream=0)
    program.bind_memory("x", array, stream=2)
    assert array.streams == [Stream.ptr, Stream.ptr, LEGACY, 2]
    program.run(stream=Stream())
    assert program.output("y").tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="cuda_stream"):
        program.bind_memory("x", array, stream="x")


_kept = []  # which a stream may call after a test has failed


def slow_work(stream, done):
    """Gives the stream something to do that takes long."""
    @arrays.HostFunction
    def work(_):
        time.sleep(0.1)
        done.append(True)

    _kept.append(work)
    arrays.check(arrays.cudart.cudaLaunchHostFunc(ctypes.c_void_p(stream), work, None))


@needs_cuda
def test_work_of_the_array_is_waited_for():
    program, _ = build()
    done = []

    class Busy(arrays.VersionedArray):
        def __dlpack__(self, **options):
            slow_work(options["stream"], done)
            return super().__dlpack__(**options)

    program.bind_memory("x", Busy([1, 2, 3]))
    assert done == [True]
    stream = arrays.new_stream()
    slow_work(stream, done)
    program.bind_memory("y", arrays.InterfaceArray([0, 0, 0], stream=stream))
    assert done == [True, True]
    program.run()
    assert program.output("y").tolist() == [1, 2, 3]


@needs_cuda
def test_read_only_memory_is_for_inputs():
    program, w = build()
    for made in (arrays.VersionedArray, arrays.InterfaceArray):
        for value in ("y", w):
            with pytest.raises(gs.Error, match="read-only"):
                program.bind_memory(value, made([1, 2, 3], is_read_only=True))
        program.bind_memory("x", made([1, 2, 3], is_read_only=True))
    program.run()
    assert program.output("y").tolist() == [1, 2, 3]


def of_other_memory():
    return np.zeros(64, np.float32).ctypes.data // 256 * 256


REFUSED = [
    (lambda kind: kind(np.array([1, 2, 3], np.float64)), r"f64\[3\], expected f32\[3\]"),
    (lambda kind: kind(np.array([1, 2, 3], np.int16)), "not one of graphsink"),
    (lambda kind: kind([1, 2]), r"f32\[2\], expected f32\[3\]"),
    (lambda kind: kind([[1, 2, 3]]), r"f32\[1, 3\], expected f32\[3\]"),
    (lambda kind: kind([1, 2, 3], offset=64), "begins 64 bytes behind a multiple of 256"),
    (lambda kind: kind([1, 2, 3], strides=(8,) if kind is arrays.InterfaceArray else (2,)), "gaps")]
REFUSED_DLPACK = [
    (lambda kind: kind([1, 2, 3], device=1), "memory of cuda:1, and the program runs on cuda:0"),
    (lambda kind: kind([1, 2, 3], kind=arrays.CPU), "memory of the host"),
    (lambda kind: kind([1, 2, 3], kind=10), "another device"),
    (lambda kind: kind([1, 2, 3], address=of_other_memory()), "not memory of a CUDA device")]
REFUSED_FIELDS = [
    ({"mask": object()}, "mask"), ({"typestr": ">f4"}, '">f4"'), ({"typestr": "<c8"}, '"<c8"'), ({"typestr": None}, "typestr"),
    ({"shape": None}, "shape"), ({"shape": "abc"}, "shape"), ({"shape": (1.5,)}, "shape"), ({"data": None}, "data"),
    ({"data": (1,)}, "data"), ({"typestr": ""}, '""'), ({"data": ("a", False)}, "data"), ({"strides": (4, 4)}, "strides"), ({"stream": 0}, "ambiguous"),
    ({"stream": "x"}, "stream"), ({"shape": (-1,)}, "negative|-1")]


def refuse(array, problem):
    program, _ = build()
    with pytest.raises(gs.Error, match=problem) as caught:
        program.bind_memory("x", array)
    assert caught.value.file == __file__
    del caught
    gc.collect()
    assert getattr(array, "made", 0) == getattr(array, "deleted", 0)
    program.write("x", [1.0, 2.0, 3.0])  # it is as before
    program.run()
    assert program.output("y").tolist() == [1, 2, 3]


@needs_cuda
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made,problem", REFUSED)
def test_what_does_not_fit_is_refused(kind, made, problem):
    refuse(made(kind), problem)


@needs_cuda
@pytest.mark.parametrize("kind", [arrays.OldArray, arrays.VersionedArray])
@pytest.mark.parametrize("made,problem", REFUSED_DLPACK)
def test_other_memory_is_refused(kind, made, problem):
    refuse(made(kind), problem)


@needs_cuda
@pytest.mark.parametrize("fields,problem", REFUSED_FIELDS)
def test_fields_are_checked(fields, problem):
    refuse(arrays.InterfaceArray([1, 2, 3], **fields), problem)


@needs_cuda
def test_other_versions_and_capsules_are_refused():
    refuse(arrays.VersionedArray([1, 2, 3], major=2), "version 2")

    class Wrong(arrays.VersionedArray):
        def __dlpack__(self, **options):
            return "no capsule"

    refuse(Wrong([1, 2, 3]), "no tensor of DLPack")
    array = arrays.VersionedArray([1, 2, 3])
    refuse(array.capsule(True), "capsule alone")

    class Failing(arrays.VersionedArray):
        def __dlpack__(self, **options):
            raise BufferError("it is conjugated")

    with pytest.raises(BufferError, match="conjugated"):
        build()[0].bind_memory("x", Failing([1, 2, 3]))


@needs_cuda
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_memory_is_none_of_the_host(kind, device):
    array = kind([1, 2, 3])
    program, w = build(device)
    for give in (lambda: program.write("x", array), lambda: w.write(array), lambda: gs.Tensor(array),
                 lambda: program.bind_memory("x", array, copy=True)):
        with pytest.raises(gs.Error, match="not of the host|in memory of the host"):
            give()
    if device == gs.cpu():
        with pytest.raises(gs.Error, match="the program runs on cpu"):
            program.bind_memory("x", array)


def test_outputs_are_bound_by_name():
    program, _ = build(gs.cpu())
    memory = aligned([0, 0, 0])
    assert program.bind_memory("y", memory) is memory
    program.write("x", [1.0, 2.0, 3.0])
    program.run()
    program.sync()
    assert memory.tolist() == [1, 2, 3]
    with pytest.raises(gs.Error, match='no input or feed "z"'):
        program.bind_memory("z", memory)


def test_a_view_of_the_host_is_an_array():
    program, w = build(gs.cpu())
    memory = aligned([0, 0, 0])
    with pytest.raises(gs.Error, match="not in memory of bind_memory.*output\\(\\)"):
        program.output_view("y")
    program.bind_memory("y", memory)
    for _ in range(2):
        with pytest.raises(gs.Error, match="no run"):
            program.output_view("y")
        with pytest.raises(gs.Error, match="nothing was written"):
            program.run()
    with pytest.raises(gs.Error, match='no output "x".*it has "y"'):
        program.output_view("x")
    with pytest.raises(TypeError, match="str or given as a Value"):
        program.output_view(w)
    program.write("x", [1.0, 2.0, 3.0])
    program.run()
    view = program.output_view("y")
    assert view.tolist() == [1, 2, 3] and view.dtype == np.float32
    assert view.ctypes.data == memory.ctypes.data and not view.flags.writeable
    with pytest.raises(ValueError):
        view[0] = 1
    ref = weakref.ref(memory)
    del memory, program, w
    gc.collect()
    assert ref() is not None and view.tolist() == [1, 2, 3]  # it keeps the memory
    del view
    gc.collect()
    assert ref() is None


def test_a_view_of_bf16_is_no_array():
    g = gs.Graph()
    x = g.input("x", gs.bf16, (4,))
    y = x * 2.0
    g.output("y", y)
    program = gs.compile(g)
    memory = aligned(np.zeros(2)).view(np.int16)
    array = arrays.VersionedArray(memory, kind=arrays.CPU, address=memory.ctypes.data)
    array.code = arrays.BFLOAT
    program.bind_memory(y, array)
    program.write("x", gs.Tensor([1.0, 2.0, 3.0, 4.0]).to(gs.bf16))
    program.run()
    view = program.output_view("y")
    assert view.dtype == gs.bf16 and view.__dlpack_device__() == (arrays.CPU, 0)
    tensor, flags = arrays.tensor_in(view.__dlpack__(max_version=(1, 0)))
    assert (tensor.data, tensor.code, tensor.bits, flags) == (memory.ctypes.data, arrays.BFLOAT, 16, arrays.READ_ONLY)
    assert (memory.astype(np.int32) << 16).view(np.float32).tolist() == [2, 4, 6, 8]
    assert not hasattr(view, "__cuda_array_interface__")
    with pytest.raises(ValueError, match="no stream"):
        view.__dlpack__(max_version=(1, 0), stream=1)


@needs_cuda
def test_a_view_of_a_device_gives_its_memory():
    program, _ = build()
    memory = arrays.VersionedArray([0, 0, 0])
    program.bind_memory("y", memory)
    program.write("x", [1.0, 2.0, 3.0])
    program.run()
    view = program.output_view("y")
    assert view.__dlpack_device__() == (arrays.CUDA, 0)
    assert view.dtype == gs.f32 and view.shape == (3,) and repr(view) == "OutputView(f32[3], cuda:0)"
    for stream in (None, -1, 1, 2, arrays.new_stream()):
        tensor, flags = arrays.tensor_in(view.__dlpack__(stream=stream, max_version=(1, 1)))
        assert flags == arrays.READ_ONLY
        assert (tensor.data, tensor.device_type, tensor.device_id, tensor.ndim) == (memory.address, arrays.CUDA, 0, 1)
        assert (tensor.code, tensor.bits, tensor.lanes, tensor.shape[0], tensor.byte_offset) == (2, 32, 1, 3, 0)
    interface = view.__cuda_array_interface__
    assert interface == {"shape": (3,), "typestr": "<f4", "data": (memory.address, True), "strides": None, "stream": None, "version": 3}
    assert arrays.read(interface["data"][0], memory.like).tolist() == [1, 2, 3]
    for options, error in (({}, BufferError), ({"max_version": (0, 8)}, BufferError), ({"max_version": (1, 0), "copy": True}, BufferError),
                           ({"max_version": (1, 0), "dl_device": (1, 0)}, BufferError),
                           ({"max_version": (1, 0), "stream": 0}, ValueError), ({"max_version": (1, 0), "stream": -2}, ValueError),
                           ({"max_version": (1, 0), "stream": "x"}, TypeError), ({"max_version": ("a",)}, TypeError)):
        with pytest.raises(error):
            view.__dlpack__(**options)
    program.run()
    for give in (lambda: view.__dlpack__(max_version=(1, 0)), lambda: view.__cuda_array_interface__):
        with pytest.raises(gs.Error, match="has run since.*after each run"):
            give()


@needs_cuda
def test_a_view_waits_for_the_program():
    program, _ = build()
    done = []
    memory = arrays.VersionedArray([0, 0, 0])
    program.bind_memory("y", memory)
    program.write("x", [1.0, 2.0, 3.0])
    stream = arrays.new_stream()
    for give in (lambda view: view.__dlpack__(stream=1, max_version=(1, 0)), lambda view: view.__cuda_array_interface__):
        done.clear()
        slow_work(stream, done)
        program.run(stream=stream)
        view = program.output_view("y")
        give(view)
        assert done == [True]
    assert memory.read().tolist() == [2, 4, 6]


@needs_cuda
def test_a_view_is_the_input_of_another_program():
    program, _ = build()
    other, _ = build()
    program.bind_memory("y", arrays.VersionedArray([0, 0, 0]))
    program.write("x", [1.0, 2.0, 3.0])
    program.run()
    view = program.output_view("y")
    with pytest.raises(gs.Error, match="read-only"):
        other.bind_memory("y", view)
    other.bind_memory("x", view)
    ref = weakref.ref(program)
    del view, program
    gc.collect()
    assert ref() is not None  # the view keeps the program
    other.run()
    assert other.output("y").tolist() == [1, 2, 3]
    del other
    gc.collect()
    assert ref() is None


def program_in_a_cycle():
    """A program whose op calls a function that refers to a view, which keeps the program."""
    kept = []
    g = gs.Graph()
    x = g.input("x", gs.f32, (3,))
    g.output("y", gs.host_op(lambda x: x + len(kept), out=(gs.f32, (3,)))(x) * 1.0)
    program = gs.compile(g, gs.cuda(0))
    program.bind_memory("y", arrays.VersionedArray([0, 0, 0]))
    program.write("x", [1.0, 2.0, 3.0])
    program.run()
    kept.append(program.output_view("y"))
    return weakref.ref(program)


@needs_cuda
def test_a_view_in_a_cycle_is_freed():
    ref = program_in_a_cycle()
    gc.collect()
    assert ref() is None


@needs_cuda
def test_interfaces_may_say_read_only_by_a_number_and_are_dicts():
    program, w = build()
    array = arrays.InterfaceArray([1, 2, 3])
    array.__cuda_array_interface__["data"] = (array.memory.address, 0)
    program.bind_memory("x", array)
    array.__cuda_array_interface__["data"] = (array.memory.address, 1)
    with pytest.raises(gs.Error, match="read-only"):
        program.bind_memory(w, array)
    array.__cuda_array_interface__ = []
    refuse(array, "is no dict")


@needs_cuda
def test_work_of_an_interface_without_a_stream_is_waited_for():
    program, _ = build()
    done = []
    array = arrays.InterfaceArray([1, 2, 3])
    slow_work(LEGACY, done)
    program.bind_memory("x", array)
    assert done == [True]


@needs_cuda
@pytest.mark.parametrize("stream", [True, np.array(0), np.zeros(1, np.int64), 1.0, -1])
def test_streams_are_integers(stream):
    program, _ = build()
    with pytest.raises(TypeError, match="a stream is an integer"):
        program.bind_memory("x", arrays.VersionedArray([1, 2, 3]), stream=stream)


@needs_cuda
def test_a_run_that_is_refused_ends_no_view():
    program, _ = build()
    memory = arrays.VersionedArray([0, 0, 0])
    program.bind_memory("y", memory)
    program.write("x", [1.0, 2.0, 3.0])
    program.run()
    view = program.output_view("y")
    with pytest.raises(gs.Error):
        program.run(steps=0)
    program.write("x", [4.0, 5.0, 6.0])
    assert view.__cuda_array_interface__["data"] == (memory.address, True)


@needs_cuda
def test_views_in_callbacks_end_with_the_next_step():
    g = gs.Graph()
    x = g.feed("x", gs.f32, (2, 3))
    g.output("y", gs.mean(x, 0))
    g.record("mean", gs.mean(x))
    program = gs.compile(g, gs.cuda(0))
    memory = arrays.VersionedArray([0, 0, 0])
    program.bind_memory("y", memory)
    loader = gs.Loader(program, {"x": np.ones((8, 3), np.float32)}, gs.sample_order(8, batch=2))
    views = []
    gs.train(program, loader, steps=3, steps_per_launch=1, actions=[(1, lambda step: views.append(program.output_view("y")))],
             progress=False)
    assert len(views) == 3
    for view in views[:2]:
        with pytest.raises(gs.Error, match="has run since"):
            view.__cuda_array_interface__
