"""SinkCache: work of Python code on a CUDA stream, captured and launched."""
from __future__ import annotations

import enum
import gc
import threading
import weakref

import numpy as np
import pytest

import graphsink as gs
from cuda_calls import Counter, Memory, Stream, call, needs_cuda
from test_host_op import run_script


class Calls:
    """A function that counts its calls and does its work. Those with a number in `fails` raise what is there."""

    def __init__(self, fails: dict[int, BaseException] | None = None):
        self.counter = Counter()
        self.streams: list[int] = []
        self.fails = fails or {}

    def __call__(self, stream: int) -> str:
        self.streams.append(stream)
        self.counter.tick(stream)
        if error := self.fails.get(len(self.streams)):
            raise error
        return "dropped"


@needs_cuda
def test_a_key_is_warm_then_captured_then_launched():
    sinks, stream, work = gs.SinkCache(), Stream(), Calls()
    for i in range(6):
        sinks.run(stream.number, (32, "decode"), work)
        assert work.counter.count() == i + 1
    assert work.streams == [stream.number] * 2
    report = sinks.report()
    assert (report.calls, report.steps, report.warm, report.launches, report.captures) == (6, 6, 1, 5, 1)
    assert (report.keys, report.captured, report.as_is, report.failures) == (1, 1, 0, [])
    assert 0 < report.bytes < report.max_bytes
    sinks.clear()
    assert sinks.report().keys == 0


@needs_cuda
@pytest.mark.parametrize("warm_runs", [0, 3])
def test_steps_are_one_launch(warm_runs):
    sinks, stream, work = gs.SinkCache(warm_runs=warm_runs), Stream(), Calls()
    for i in range(3):
        sinks.run(stream.number, 1, work, steps=5)
        assert work.counter.count() == 5 * (i + 1)
    report = sinks.report()
    assert (report.calls, report.steps, report.warm, report.loops, report.launches) == (3, 15, warm_runs, 3, 3)
    assert len(work.streams) == warm_runs + 1
    with pytest.raises(gs.Error, match="0 steps") as caught:
        sinks.run(stream.number, 1, work, steps=0)
    assert caught.value.file == __file__


@needs_cuda
def test_an_exception_passes_through_where_the_function_runs_as_it_is():
    error = ValueError("no data")
    sinks, stream, work = gs.SinkCache(), Stream(), Calls({1: error})
    with pytest.raises(ValueError) as caught:
        sinks.run(stream.number, 1, work)
    assert caught.value is error and error.__cause__ is None
    assert caught.traceback[-1].name == "__call__"
    assert (sinks.report().warm, sinks.report().failures) == (0, [])
    for _ in range(3):
        sinks.run(stream.number, 1, work)
    assert sinks.report().launches == 2 and work.counter.count() == 4


@needs_cuda
def test_an_exception_in_a_capture_is_told_and_the_call_runs_as_it_is():
    messages = []
    sinks, stream = gs.SinkCache(log=lambda level, text: messages.append((level, text))), Stream()
    work = Calls({2: ValueError("no data\nsecond line")})
    for i in range(4):
        sinks.run(stream.number, ("a", 1), work)
        assert work.counter.count() == i + 1, "each call has done its work once"
    assert len(work.streams) == 4, "warm, a capture that failed, as it is, a capture"
    report = sinks.report()
    assert (report.warm, report.as_is, report.launches) == (1, 1, 2)
    (failure,) = report.failures
    assert failure.problem.startswith("the function threw: ValueError: no data (test_sink_cache.py:") and failure.count == 1
    assert failure.key == '{{"a", 1}}'
    ((level, text),) = messages
    assert level == gs.LogLevel.warning and "no data" in text
    assert "; if only the first calls do this, warm_runs leaves them out" in text, "the name of the keyword"


@needs_cuda
def test_strict_raises_an_error_with_the_exception_as_its_cause():
    error = ValueError("no data")
    sinks, stream, work = gs.SinkCache(strict=True), Stream(), Calls({2: error})
    sinks.run(stream.number, 1, work)
    with pytest.raises(gs.Error, match=r"the work of key \{1\} cannot be launched: the function threw: ValueError: no data") as caught:
        sinks.run(stream.number, 1, work)
    assert caught.value.__cause__ is error and caught.value.file == __file__
    assert work.counter.count() == 1, "nothing of the second call has run"
    sinks.run(stream.number, 1, work)
    assert work.counter.count() == 2

    def waits(_):
        call("cudaDeviceSynchronize")

    sinks = gs.SinkCache(strict=True, warm_runs=0)
    with pytest.raises(gs.Error, match="cudaDeviceSynchronize") as caught:
        sinks.run(stream.number, 1, waits)
    assert isinstance(caught.value.__cause__, RuntimeError)
    sinks.try_again()
    assert sinks.report().refused == 0


@needs_cuda
@pytest.mark.parametrize("strict", [False, True])
def test_ctrl_c_in_a_capture_is_no_failed_capture(strict):
    sinks, stream, work = gs.SinkCache(strict=strict), Stream(), Calls({2: KeyboardInterrupt()})
    sinks.run(stream.number, 1, work)
    with pytest.raises(KeyboardInterrupt):
        sinks.run(stream.number, 1, work)
    assert len(work.streams) == 2 and work.counter.count() == 1


@needs_cuda
def test_an_error_of_graphsink_in_a_capture_keeps_its_remedy():
    """run() on another stream, within a function that is captured, would do its work now."""
    sinks, inner, stream, other = gs.SinkCache(), gs.SinkCache(), Stream(), Stream()
    work, of_other = Calls(), Calls()

    def step(s):
        inner.run(other.number, 1, of_other)
        work(s)

    sinks.run(stream.number, 1, step)
    sinks.run(stream.number, 1, step)
    (failure,) = sinks.report().failures
    assert "sink: run() was called in a function that a SinkCache captures" in failure.problem
    assert failure.remedy == "pass the stream that the function is given, or one that waits for an event of it"
    assert work.counter.count() == 2 and of_other.counter.count() == 2


@needs_cuda
def test_a_cache_and_a_program_take_part_in_a_capture():
    graph = gs.Graph()
    v = gs.Variable("v", 0.0)
    graph.assign(v, graph.value(v) + 1.0)
    program = gs.compile(graph, gs.cuda(0))
    program.bind()
    sinks, stream, work = gs.SinkCache(), Stream(), Calls()

    def step(s):
        program.enqueue(s)
        sinks.run(s, "inner", work)

    for _ in range(4):
        sinks.run(stream.number, "outer", step)
    call("cudaDeviceSynchronize")
    assert v.read() == 4 and work.counter.count() == 4
    report = sinks.report()
    assert report.inside == 1 and report.failures == [], report


class Half(enum.IntEnum):
    one = 1


KEYS = [1, 1.0, True, "1", "True", "1.0", "None", None, 0, 0.0, -0.0, False, "", (), ((),), (1,), ((1,),), (1, 2), ((1, 2),), ((1,), 2),
        (1, (2,)), ("12",), ("1", "2"), (1.0, 2), (True, 2), 2**63, 2**64, -2**63, -2**64, str(2**64), "a\0b", "a", "\udc80", "?", float("nan"),
        float("inf"), "inf", (None,), (None, None), 0.1, np.nextafter(0.1, 1)]


@needs_cuda
def test_different_keys_are_never_equal():
    sinks, stream = gs.SinkCache(warm_runs=100), Stream()
    for n, key in enumerate(KEYS):
        sinks.run(stream.number, key, lambda s: None)
        assert sinks.report().keys == n + 1, f"{key!r} is taken for one before it"
    for key in [*KEYS, np.int64(1), Half.one, (np.int32(1), np.uint8(2)), np.float64(0.1)]:
        sinks.run(stream.number, key, lambda s: None)
        assert sinks.report().keys == len(KEYS), f"{key!r} is a new key"


@needs_cuda
@pytest.mark.parametrize("key", [[1], {1: 2}, np.zeros(2), np.zeros(()), np.float32(1), b"1", object(), (1, [2]), gs.cpu()], ids=repr)
def test_what_is_no_key_is_refused(key):
    with pytest.raises(TypeError, match="a key consists of int, float, bool, str, None and tuples"):
        gs.SinkCache().run(None, key, lambda s: None)


class OfTorch:
    def __init__(self, number):
        self.cuda_stream = number


class OfCupy:
    def __init__(self, number):
        self.ptr = number


class OfCudaCore:
    def __init__(self, number):
        self.number = number

    def __cuda_stream__(self):
        return 0, self.number


class OfProperty(OfTorch):
    """The first version of the protocol; it goes before other attributes."""

    def __init__(self, number):
        super().__init__("no number")
        self.__cuda_stream__ = (0, number)


@needs_cuda
@pytest.mark.parametrize("kind", [int, OfTorch, OfCupy, OfCudaCore, OfProperty])
def test_streams_of_other_packages(kind):
    sinks, stream, work = gs.SinkCache(), Stream(), Calls()
    given = kind(stream.number)
    for _ in range(3):
        sinks.run(given, 1, work)
    assert work.streams == [stream.number] * 2 and work.counter.count() == 3
    graph = gs.Graph()
    graph.output("y", gs.relu(graph.constant([1.0])))
    program = gs.compile(graph, gs.cuda(0))
    program.run(stream=given)
    assert program.output("y") == 1


@needs_cuda
def test_the_legacy_stream():
    sinks, work = gs.SinkCache(), Calls()
    for _ in range(4):
        sinks.run(None, 1, work)
    assert work.streams[0] == 0 and work.streams[1] != 0 and work.counter.count() == 4
    for wrong in ("x", object(), -1, OfTorch("x"), 1.5):
        with pytest.raises(TypeError, match="a stream is an integer"):
            sinks.run(wrong, 1, work)
    with pytest.raises(TypeError):
        sinks.run(None, 1, 5)


@needs_cuda
def test_each_thread_has_a_cache():
    """No thread waits for the device meanwhile, which would break the captures of the others."""
    caches = [(gs.SinkCache(), Stream(), Calls()) for _ in range(3)]

    def work(sinks, stream, function):
        for n in range(40):
            sinks.run(stream.number, n % 2, function)

    threads = [threading.Thread(target=work, args=cache) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sinks, _, function in caches:
        assert (len(function.streams), function.counter.count(), sinks.report().launches) == (4, 40, 38), sinks.report()


@needs_cuda
def test_another_thread_in_the_same_cache_gets_an_error():
    sinks, stream, work = gs.SinkCache(), Stream(), Calls()
    seen = []

    def other():
        for use in (lambda: sinks.run(stream.number, 1, work), sinks.clear, sinks.report):
            try:
                use()
            except gs.Error as error:
                seen.append(error.problem)

    def step(s):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert sinks.report().calls == 1
        work(s)

    sinks.run(stream.number, 1, step)
    assert seen == ["another thread is in a call of the same SinkCache"] * 3
    other()
    assert len(seen) == 3


class DeviceArray:
    """An array as numba.cuda has it."""

    def __init__(self, memory: Memory, shape, strides):
        self.__cuda_array_interface__ = {"data": (memory.address, False), "shape": shape, "typestr": "<f4", "strides": strides, "version": 3}


@needs_cuda
@pytest.mark.parametrize("shape, strides, covers", [((16,), None, True), ((15,), None, False), ((4, 4), (4, 16), True), ((4, 2), (16, 4), False),
                                                    ((0,), None, False)])
def test_registered_memory_is_found_to_be_gone(shape, strides, covers):
    """The work writes to the last four bytes: whether the array reaches so far decides whether it matters."""
    memory = Memory()
    array = DeviceArray(memory, shape, strides)
    sinks, stream = gs.SinkCache(check_every=1), Stream()
    sinks.register_memory(array)

    def fill(s):
        memory.fill(s, 5, offset=60)

    for _ in range(3):
        sinks.run(stream.number, 1, fill)
    assert sinks.report().failures == [] and sinks.report().checks == 1
    sinks.forget_memory(array)
    sinks.run(stream.number, 1, fill)
    assert ["not alive any more" in failure.problem for failure in sinks.report().failures] == [True] * covers
    assert memory.read()[60:] == b"\5" * 4


@needs_cuda
def test_memory_may_be_an_address_or_of_dlpack():
    sinks = gs.SinkCache()
    sinks.register_memory(4096, 100)
    sinks.register_memory(4096, bytes=100)
    sinks.forget_memory(4096)
    sinks.register_memory(np.zeros((3, 4)))
    sinks.forget_memory(4096)
    for wrong in (True, np.int64(4096), np.True_, -1, 1 << 80, 1.0):
        with pytest.raises(TypeError, match="memory is an address"):
            sinks.register_memory(wrong, 100)
    for interface in ([], {}, {"data": (1,), "shape": (1,), "typestr": "<f4"}, {"data": (1, 0), "shape": "x", "typestr": "<f4"},
                      {"data": (1, 0), "shape": (1,), "typestr": "f"}):
        wrong = DeviceArray(Memory(), (1,), None)
        wrong.__cuda_array_interface__ = interface
        with pytest.raises(gs.Error, match="register_memory: .*__cuda_array_interface__"):
            sinks.register_memory(wrong)
    with pytest.raises(TypeError, match="an address needs the number of bytes"):
        sinks.register_memory(4096)
    with pytest.raises(TypeError, match="memory is an address"):
        sinks.register_memory("x")


@needs_cuda
def test_a_report_prints_a_table(tmp_path):
    sinks, stream, work = gs.SinkCache(), Stream(), Calls()
    for _ in range(3):
        sinks.run(stream.number, (1, 2), work)
    report = sinks.report()
    assert str(report).startswith("3 calls: 2 launches, 1 warm, 0 as they are for a reason below\n1 capture: 1 instantiated")
    assert "a trial with watch_legacy_stream or check_every finds it" in str(report)
    assert repr(report).startswith("SinkReport(calls=3, steps=3, warm=1, ")
    sinks.write_node_names(tmp_path / "names")
    assert "{{1, 2}}" in (tmp_path / "names").read_text()
    with pytest.raises(gs.Error, match="nowhere"):
        sinks.write_node_names(tmp_path / "nowhere" / "names")


@needs_cuda
def test_a_cache_whose_functions_refer_to_it_is_freed():
    class Owner:
        def log(self, level, text):
            self.text = text

        def step(self, stream):
            raise ValueError(self)

    owner, stream = Owner(), Stream()
    owner.sinks = gs.SinkCache(log=owner.log, warm_runs=0, strict=True)
    try:
        owner.sinks.run(stream.number, 1, owner.step)
    except gs.Error as error:
        owner.error = error
    assert isinstance(owner.error.__cause__, ValueError) and "ValueError" in owner.text
    gone, cache = weakref.ref(owner), weakref.ref(owner.sinks)
    del owner
    gc.collect()
    assert gone() is None and cache() is None


@needs_cuda
def test_a_cache_that_lives_to_the_end_is_no_leak():
    out = run_script("""
sys.path.insert(0, {folder!r})
from cuda_calls import Counter, Stream
counter, stream = Counter(), Stream()
def log(level, text): print("logged", sinks)
sinks = gs.SinkCache(log=log)
def fails(s): raise ValueError(sinks)
for key in (1, 2): sinks.run(stream.number, key, counter.tick, steps=4)
for _ in range(3):
    try: sinks.run(stream.number, 3, fails)
    except ValueError as e: error = e
print(counter.count())
""".format(folder=__file__.rpartition("/")[0]), gs.cuda(0))
    assert out == "8\n"


@needs_cuda
def test_a_cache_that_waits_for_a_loop_lets_python_run():
    """The loop comes behind a function of Python's, which needs the GIL: the script would never end."""
    out = run_script("""
import ctypes
sys.path.insert(0, {folder!r})
from cuda_calls import Counter, Stream, call
counter, stream, called = Counter(), Stream(), []
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: called.append(1))
sinks = gs.SinkCache()
sinks.run(stream.number, 1, counter.tick, steps=3)
call("cudaLaunchHostFunc", ctypes.c_void_p(stream.number), function, None)
sinks.run(stream.number, 1, counter.tick, steps=3)
assert sinks.report().loops == 2
sinks = None
print(called, counter.count())
""".format(folder=__file__.rpartition("/")[0]), gs.cuda(0))
    assert out == "[1] 6\n"


def test_without_a_device_an_error_says_what_to_do():
    out = run_script("""
called = []
try:
    gs.SinkCache().run(None, 1, called.append)
except gs.Error as error:
    print(error.code, bool(error.remedy), os.path.basename(error.file), called)
""", gs.cpu(), GS_EMU_DEVICES="0", CUDA_VISIBLE_DEVICES="")
    assert out == "ErrorCode.unavailable True <string> []\n"
