"""StreamLoader: batches in device memory, for work of Python code on a CUDA stream."""
from __future__ import annotations

import ctypes
import gc
import threading
import weakref

import numpy as np
import pytest

import cuda_arrays as arrays
import graphsink as gs
from cuda_calls import Memory, Stream, call, needs_cuda
from test_data import BATCH, DataSet, X, Y, epoch, reader
from test_dlpack import slow_work
from test_host_op import run_script

BYTES = 4 * BATCH
ORDER = gs.sample_order(100, batch=BATCH, seed=3)


def address(loader, field):
    return loader.data(field).__cuda_array_interface__["data"][0]


def copy(stream, to, source, size, kind=3):
    call("cudaMemcpyAsync", ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), kind, ctypes.c_void_p(stream))


def fetch(loader, field, stream, samples=None):
    """The elements that work on the stream finds."""
    memory = loader.data(field)
    to = np.empty(memory.shape, memory.dtype)
    copy(stream, to.ctypes.data, address(loader, field), to.nbytes, kind=2)
    call("cudaStreamSynchronize", ctypes.c_void_p(stream))
    return to[:samples]


@needs_cuda
@pytest.mark.parametrize("source", [{"x": X, "y": Y}, gs.tensor_source({"x": X, "y": Y}), DataSet()], ids=["dict", "source", "data set"])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_gives_the_batches_of_a_loader_at_one_address(source, workers):
    program, stream = reader(gs.cuda(0)), Stream()
    with gs.StreamLoader(stream.number, source, ORDER, workers) as loader, gs.Loader(program, source, ORDER) as reference:
        assert (loader.batches, loader.most_samples) == (12, BATCH)
        assert loader.fields == {"x": (np.dtype("float32"), (4,)), "y": (np.dtype("int32"), ())}
        places = {name: address(loader, name) for name in loader.fields}
        for number in range(2):
            assert loader.position == gs.LoaderPosition(number, 0)
            seen, sums = [], []
            while samples := loader.next():
                assert samples == BATCH
                assert places == {name: address(loader, name) for name in loader.fields}
                seen.append(fetch(loader, "y", stream.number).tolist())
                sums.append(fetch(loader, "x", stream.number))
            _, expected, batches = epoch(program, reference)
            assert np.array_equal(seen, batches)
            assert np.array_equal(np.array(sums), X[batches.astype(int)])
            assert np.allclose(np.array(sums).sum((1, 2)), expected, rtol=1e-4, atol=1e-5)
        report = loader.report()
        assert isinstance(report, gs.LoaderReport)
        assert (report.launches, report.batches, report.samples) == (24, 24, 24 * BATCH)
        assert report.copies - 24 in (0, 1), "the next batch may be on its way"
        assert report.copied_bytes >= report.copies * 5 * BYTES and report.copied_ahead <= report.copies
        assert f"{report.copies} copies to the device" in str(report)


class Tape:
    """A list of batches of int32 in device memory, to which the work of a user adds one at its front."""

    def __init__(self, batches):
        self.size = batches * BYTES
        self.memory, self.other = Memory(self.size), Memory(self.size)

    def add(self, stream, batch):
        copy(stream, self.other.address, self.memory.address, self.size)
        copy(stream, self.memory.address + BYTES, self.other.address, self.size - BYTES)
        copy(stream, self.memory.address, batch, BYTES)

    def read(self):
        return np.frombuffer(self.memory.read(), np.int32).reshape(-1, BATCH)[::-1].tolist()


@needs_cuda
def test_feeds_the_loop_of_a_sink_cache():
    sinks, stream, tape = gs.SinkCache(), Stream(), Tape(24)
    loader = gs.StreamLoader(stream.number, DataSet(), ORDER, workers=2)
    batch = address(loader, "y")
    for _ in range(2):
        while samples := loader.next():
            sinks.run(stream.number, samples, lambda s: tape.add(s, batch))
    assert tape.read() == [ORDER.batch(e, b).samples for e in range(2) for b in range(12)]
    assert (sinks.report().launches, sinks.report().failures) == (23, [])


@needs_cuda
def test_next_in_the_function_of_a_cache_is_refused():
    sinks, stream = gs.SinkCache(strict=True, warm_runs=0), Stream()
    loader = gs.StreamLoader(stream.number, DataSet(), ORDER)
    with pytest.raises(gs.Error) as caught:
        sinks.run(stream.number, 1, lambda s: loader.next())
    assert isinstance(caught.value.__cause__, gs.Error)
    assert "in a function that a SinkCache captures" in str(caught.value.__cause__)
    assert loader.next() == BATCH and loader.position.batch == 1


@needs_cuda
def test_goes_on_where_it_was():
    stream = Stream()
    with gs.StreamLoader(stream.number, DataSet(), ORDER) as loader:
        for _ in range(3):
            loader.next()
        position = loader.position
        assert position == gs.LoaderPosition(0, 3)
        loader.seek(gs.LoaderPosition(1, 11))
        assert loader.next() == BATCH and loader.next() == 0
        assert loader.position == gs.LoaderPosition(2, 0)
        loader.seek(position)
        loader.next()
        assert fetch(loader, "y", stream.number).tolist() == ORDER.batch(0, 3).samples
        with pytest.raises(gs.Error, match="StreamLoader.seek") as caught:
            loader.seek(gs.LoaderPosition(0, 12))
        assert caught.value.file == __file__


@needs_cuda
def test_prepared_fields_and_a_mask():
    def prepare(key, sample):
        return {"twice": 2 * sample["y"], "pair": np.array([sample["y"], key.epoch + key.seed], np.float64)}

    stream = Stream()
    order = gs.sample_order(100, batch=BATCH, last_batch=gs.LastBatch.pad, is_shuffled=False)
    fields = {"twice": (gs.i32, ()), "pair": (gs.f64, (2,))}
    with gs.StreamLoader(stream.number, DataSet(), order, 2, prepare=prepare, seed=7, fields=fields, mask="real") as loader:
        assert list(loader.fields) == ["twice", "pair", "real"] and loader.fields["real"] == (np.dtype("float32"), ())
        for batch in range(13):
            assert loader.next() == BATCH
            expected = (np.arange(BATCH) + batch * BATCH) % 100
            assert fetch(loader, "twice", stream.number).tolist() == (2 * expected).tolist()
            assert fetch(loader, "pair", stream.number).tolist() == [[y, 7] for y in expected]
            assert fetch(loader, "real", stream.number).tolist() == [1.0 if batch * BATCH + i < 100 else 0.0 for i in range(BATCH)]
        assert loader.next() == 0


@needs_cuda
def test_batches_of_several_sizes():
    stream = Stream()
    order = gs.sample_order(20, batch=BATCH, last_batch=gs.LastBatch.shorter, is_shuffled=False)
    with gs.StreamLoader(stream.number, {"y": Y[:20]}, order) as loader:
        seen = []
        while samples := loader.next():
            seen.append(fetch(loader, "y", stream.number, samples).tolist())
        assert seen == [Y[0:8].tolist(), Y[8:16].tolist(), Y[16:20].tolist()]
    lengths = gs.length_order([1] * 4 + [9] * 12, [(4, 2), (10, 6)], is_shuffled=False)
    with gs.StreamLoader(stream.number, {"y": Y[:16]}, lengths, most_samples=7) as loader:
        assert loader.data("y").shape == (7,)
        assert [loader.next() for _ in range(5)] == [2, 2, 6, 6, 0]


DTYPES = [np.float32, np.float64, np.float16, np.int32, np.int64, np.uint8, np.bool_]


@needs_cuda
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
def test_data_is_an_array_of_every_dtype(dtype):
    stream, values = Stream(), (np.arange(100 * 6).reshape(100, 2, 3) % 2).astype(dtype)
    loader = gs.StreamLoader(stream.number, {"v": values}, gs.sample_order(100, batch=BATCH, is_shuffled=False))
    memory = loader.data("v")
    assert memory.dtype == np.dtype(dtype) and memory.shape == (BATCH, 2, 3)
    loader.next()
    assert np.array_equal(fetch(loader, "v", stream.number), values[:BATCH])
    interface = memory.__cuda_array_interface__
    assert (interface["typestr"], interface["shape"], interface["stream"]) == (np.dtype(dtype).str, (BATCH, 2, 3), stream.number)
    assert interface["data"][1] is False and interface["strides"] is None and interface["version"] == 3
    capsules = memory.__dlpack__(stream=stream.number, max_version=(1, 0)), memory.__dlpack__(stream=stream.number)
    tensor, flags = arrays.tensor_in(capsules[0])
    assert flags == 0 and (tensor.data, tensor.device_type, tensor.ndim) == (interface["data"][0], arrays.CUDA, 3)
    assert tensor.bits == 8 * np.dtype(dtype).itemsize
    tensor, flags = arrays.tensor_in(capsules[1])
    assert flags is None and tensor.data == interface["data"][0]


@needs_cuda
def test_bf16_has_dlpack_alone():
    stream = Stream()
    source = gs.tensor_source({"v": gs.Tensor(np.ones((BATCH, 2), np.float32)).to(gs.bf16)})
    memory = gs.StreamLoader(stream.number, source, gs.sample_order(BATCH, batch=BATCH)).data("v")
    assert memory.dtype == gs.bf16 and repr(memory) == "BatchMemory(bf16[8, 2], cuda:0)"
    assert not hasattr(memory, "__cuda_array_interface__")
    capsule = memory.__dlpack__(stream=-1)
    assert arrays.tensor_in(capsule)[0].code == arrays.BFLOAT
    for options, error in (({"stream": 0}, ValueError), ({"stream": "x"}, TypeError), ({"copy": True}, BufferError)):
        with pytest.raises(error):
            memory.__dlpack__(**options)


def hold(stream):
    """Gives the stream something to do that ends when the result is set."""
    gate = threading.Event()

    @arrays.HostFunction
    def work(_):
        gate.wait(20)

    _kept.append(work)
    call("cudaLaunchHostFunc", ctypes.c_void_p(stream), work, None)
    return gate


_kept = []  # which a stream may call after a test has failed


def is_busy(stream):
    return arrays.cudart.cudaStreamQuery(ctypes.c_void_p(stream)) != 0


@needs_cuda
def test_other_streams_wait_for_that_of_the_loader():
    stream, other, done = Stream(), Stream(), []
    memory = gs.StreamLoader(stream.number, DataSet(), ORDER).data("x")
    for of_reader in (other.number, 1, 2, None):
        done.clear()
        slow_work(stream.number, done)
        memory.__dlpack__(stream=of_reader)
        assert done == [True], of_reader
    legacy = gs.StreamLoader(None, DataSet(), ORDER).data("x")
    assert legacy.__cuda_array_interface__["stream"] == 1
    for number, give in ((stream.number, lambda: memory.__dlpack__(stream=stream.number)),
                         (stream.number, lambda: memory.__dlpack__(stream=-1)),
                         (stream.number, lambda: memory.__cuda_array_interface__), (None, legacy.__dlpack__),
                         (None, lambda: legacy.__dlpack__(stream=1))):
        gate = hold(number)
        give()
        assert is_busy(number), "it has not waited"
        gate.set()
        call("cudaStreamSynchronize", ctypes.c_void_p(number))


@needs_cuda
def test_a_program_takes_the_batch_where_it_is():
    stream, graph = Stream(), gs.Graph()
    graph.output("y", graph.input("x", gs.f32, (BATCH, 4)) * 2.0)
    program = gs.compile(graph, gs.cuda(0))
    loader = gs.StreamLoader(stream.number, {"x": X}, gs.sample_order(100, batch=BATCH, is_shuffled=False))
    program.bind_memory("x", loader.data("x"), stream=stream.number)
    for batch in range(3):
        loader.next()
        program.run(stream=stream.number)
        assert np.array_equal(program.output("y"), 2 * X[batch * BATCH:(batch + 1) * BATCH])


@needs_cuda
@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_source_raises_comes_in_the_place_of_its_batch(workers):
    class Broken(DataSet):
        fails = True

        def __getitem__(self, i):
            if i == 30 and self.fails:
                raise KeyError("sample 30")
            return super().__getitem__(i)

    data, stream = Broken(), Stream()
    loader = gs.StreamLoader(stream.number, data, gs.sample_order(100, batch=BATCH, is_shuffled=False), workers)
    for _ in range(3):
        loader.next()
    for _ in range(2):
        with pytest.raises(KeyError, match="sample 30") as caught:
            loader.next()
        assert any(frame.name == "__getitem__" for frame in caught.traceback)
    data.fails = False
    loader.next()
    assert fetch(loader, "y", stream.number).tolist() == Y[24:32].tolist()


@needs_cuda
def test_errors_name_what_python_has():
    stream = Stream()
    make = gs.StreamLoader
    refused = [
        (lambda: make(stream.number, DataSet(), ORDER, workers=-1), "workers is -1"),
        (lambda: make(stream.number, DataSet(), ORDER, ahead=0), "ahead"),
        (lambda: make(stream.number, DataSet(), ORDER, mask="x"), 'two fields are named "x"'),
        (lambda: make(stream.number, DataSet(), ORDER, fields={"x": (gs.f32, ())}), "fields without `prepare`"),
        (lambda: make(stream.number, DataSet(), ORDER, most_samples=-1), "most_samples is -1"),
        (lambda: make(stream.number, DataSet(), ORDER, device=99), "99"),
        (lambda: make(stream.number, DataSet(), ORDER).data("z"), 'no field "z".*it has "x", "y"'),
        (lambda: make(stream.number, DataSet(), ORDER, most_samples=4).next(), "room for 4.*set most_samples")]
    for call_, text in refused:
        with pytest.raises(gs.Error, match="(?s)" + text) as caught:
            call_()
        assert caught.value.file == __file__ and "::" not in str(caught.value)
    with pytest.raises(TypeError, match="a stream is an integer"):
        make("x", DataSet(), ORDER)
    with pytest.raises(TypeError, match="a source is"):
        make(stream.number, iter([1]), ORDER)
    loader = make(stream.number, DataSet(), ORDER)
    memory = loader.data("x")
    loader.close()
    loader.close()
    for use in (loader.next, loader.report, lambda: loader.data("x"), lambda: loader.position, lambda: loader.fields):
        with pytest.raises(gs.Error, match="closed"):
            use()
    assert memory.__dlpack__() is not None


@pytest.mark.skipif(gs.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_says_so():
    with pytest.raises(gs.Error, match="feed a Program by a Loader") as caught:
        gs.StreamLoader(None, DataSet(), ORDER)
    assert caught.value.code == gs.ErrorCode.unavailable and caught.value.file == __file__


@needs_cuda
def test_arrays_keep_the_memory_without_the_loader():
    stream = Stream()
    loader = gs.StreamLoader(stream.number, DataSet(), gs.sample_order(100, batch=BATCH, is_shuffled=False))
    loader.next()
    memory = loader.data("y")
    capsule = memory.__dlpack__(stream=stream.number)
    place, gone = address(loader, "y"), weakref.ref(loader)
    del loader, memory
    gc.collect()
    assert gone() is None
    others = [Memory(5 * BYTES) for _ in range(8)]  # which get memory that is free again
    assert all(other.address != place for other in others)
    to = np.zeros(BATCH, np.int32)
    copy(stream.number, to.ctypes.data, place, BYTES, kind=2)
    call("cudaStreamSynchronize", ctypes.c_void_p(stream.number))
    assert to.tolist() == Y[:BATCH].tolist() and arrays.tensor_in(capsule)[0].data == place


class OfTorch:
    def __init__(self, stream):
        self.stream, self.cuda_stream = stream, stream.number


@needs_cuda
def test_a_loader_whose_functions_refer_to_it_is_freed():
    class Owner:
        def sample(self, i):
            return {"x": X[i], "y": Y[i]}

        def prepare(self, key, sample):
            return sample

        def log(self, level, text):
            pass

    owner = Owner()
    source = gs.function_source(100, {"x": (gs.f32, (4,)), "y": (gs.i32, ())}, owner.sample)
    owner.stream = OfTorch(Stream())
    owner.stream.owner = owner
    owner.loader = gs.StreamLoader(owner.stream, source, ORDER, 2, prepare=owner.prepare, log=owner.log)
    owner.memory = owner.loader.data("x")
    owner.capsule = owner.memory.__dlpack__(stream=-1)
    assert owner.loader.next() == BATCH
    gone = weakref.ref(owner)
    del owner, source
    gc.collect()
    assert gone() is None


@needs_cuda
def test_a_loader_and_its_data_keep_the_stream():
    stream = OfTorch(Stream())
    loader = gs.StreamLoader(stream, DataSet(), ORDER)
    memory, gone = loader.data("x"), weakref.ref(stream)
    del stream
    assert gone() is not None and loader.next() == BATCH
    del loader
    assert gone() is not None and memory.__dlpack__() is not None, "it waits for the stream"
    del memory
    assert gone() is None
    loader = gs.StreamLoader(OfTorch(Stream()), DataSet(), ORDER)
    gc.collect()
    assert loader.next() == BATCH and len(fetch(loader, "y", loader.data("y").__cuda_array_interface__["stream"])) == BATCH


@needs_cuda
def test_one_thread_uses_it_at_a_time():
    """Another thread that calls while next() waits for a sample gets an Error; other Python threads run meanwhile."""
    begun, may_end, seen = threading.Event(), threading.Event(), []

    class Slow(DataSet):
        def __getitem__(self, i):
            begun.set()
            assert may_end.wait(60)
            return super().__getitem__(i)

    source = gs.function_source(100, {"x": (gs.f32, (4,)), "y": (gs.i32, ())}, Slow().__getitem__)
    stream = Stream()
    loader = gs.StreamLoader(stream.number, source, ORDER)

    def other():
        begun.wait(60)
        for use in (loader.next, loader.report, loader.close, lambda: loader.seek(gs.LoaderPosition()), lambda: loader.position):
            try:
                use()
            except gs.Error as error:
                seen.append(error.problem)
        may_end.set()

    thread = threading.Thread(target=other)
    thread.start()
    assert loader.next() == BATCH
    thread.join()
    assert seen == ["another call of the same StreamLoader is under way"] * 5
    assert loader.next() == BATCH
    loader = gs.StreamLoader(None, DataSet(), ORDER, 0, prepare=lambda key, sample: loader.next())
    with pytest.raises(gs.Error, match="another call of the same StreamLoader"):
        loader.next()


@needs_cuda
@pytest.mark.parametrize("call", [lambda loader: loader.next(), lambda loader: loader.close(), lambda loader: loader.position])
def test_a_worker_cannot_call_its_loader(call):
    """Also between two calls of the loader: close() would wait for the worker that calls it."""
    returned, is_done, problems = threading.Event(), threading.Event(), []

    class Calling(DataSet):
        def __getitem__(self, i):
            if i == BATCH and not is_done.is_set():
                assert returned.wait(60)
                with pytest.raises(gs.Error, match="not in its source") as caught:
                    call(loader)
                problems.append(caught.value.problem)
                is_done.set()
            return super().__getitem__(i)

    stream = Stream()
    loader = gs.StreamLoader(stream.number, Calling(), gs.sample_order(100, batch=BATCH, is_shuffled=False))
    assert loader.next() == BATCH
    returned.set()
    assert is_done.wait(60) and problems == ["its own source or `prepare` has called it"]
    assert loader.next() == BATCH


@needs_cuda
def test_threads_have_loaders_of_their_own():
    results = {}

    def work(n):
        stream = Stream()
        with gs.StreamLoader(stream.number, DataSet(), ORDER, workers=n) as loader:
            results[n] = [fetch(loader, "y", stream.number).tolist() for _ in iter(loader.next, 0)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[n] for n in range(3)] == [[ORDER.batch(0, b).samples for b in range(12)]] * 3


@needs_cuda
def test_an_interpreter_ends_with_open_loaders():
    out = run_script("""
sys.path.insert(0, {folder!r})
import test_data
from cuda_calls import Stream
stream = Stream()
order = gs.sample_order(100, batch=8)
def log(level, text): print("logged", loader)
def prepare(key, sample): return sample if loader else None
loader = True
loader = gs.StreamLoader(stream.number, test_data.DataSet(), order, 4, prepare=prepare, log=log)
memory = loader.data("x")
capsule = memory.__dlpack__()
print(loader.next())
""".format(folder=__file__.rpartition("/")[0]), gs.cuda(0))
    assert out == "8\n"
