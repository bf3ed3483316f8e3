"""Sources, orders, Loader, batches()."""
import collections
import gc
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import graphsink as gs

X = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
Y = np.arange(100, dtype=np.int32)
BATCH = 8


def reader(device):
    """A program that records the sum of each batch of "x" and of "y", so that it shows which samples came."""
    graph = gs.Graph()
    x, y = graph.feed("x", gs.f32, (BATCH, 4)), graph.feed("y", gs.i32, (BATCH,))
    graph.record("x", gs.sum(x))
    graph.record("y", gs.cast(y, gs.f64))
    return gs.compile(graph, device)


def epoch(program, loader):
    steps = 0
    while n := loader.next():
        program.run(steps=n)
        steps += n
    return steps, program.records("x"), program.records("y")


class DataSet:
    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return {"x": X[i], "y": Y[i]}


@pytest.mark.parametrize("source", [{"x": X, "y": Y}, gs.tensor_source({"x": X, "y": Y}), DataSet()], ids=["dict", "source", "data set"])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_comes_in_its_order(device, source, workers):
    program = reader(device)
    order = gs.sample_order(100, batch=BATCH, seed=3)
    with gs.Loader(program, source, order, steps_per_launch=5, workers=workers) as loader:
        assert loader.batches == loader.order.batches == 12
        for number in range(2):
            steps, sums, seen = epoch(program, loader)
            expected = np.array([order.batch(number, b).samples for b in range(12)])
            assert steps == 12
            assert np.array_equal(seen, expected)
            assert np.allclose(sums, X[expected].sum((1, 2)), rtol=1e-5)
        assert loader.report().batches == 24
        assert "24 batches" in str(loader.report())


def test_a_function_is_called_while_data_are_late(device):
    called = threading.Event()

    class Late(DataSet):
        def __getitem__(self, i):
            return super().__getitem__(i) if i == 0 or called.wait(60) else None

    def while_waiting():
        if called.is_set():
            return
        called.set()
        raise LookupError("no patience")

    program, order = reader(device), gs.sample_order(100, batch=BATCH)
    with gs.Loader(program, Late(), order, steps_per_launch=5, workers=2, while_waiting=while_waiting) as loader:
        with pytest.raises(LookupError, match="no patience"):
            loader.next()
        assert np.array_equal(epoch(program, loader)[2], [order.batch(0, b).samples for b in range(12)])


def test_a_loader_goes_on_where_it_was(device):
    program = reader(device)
    order = gs.sample_order(100, batch=BATCH, seed=1)
    with gs.Loader(program, DataSet(), order, steps_per_launch=4) as loader:
        assert loader.next() == 4
        position = loader.position
        assert position == gs.LoaderPosition(0, 4)
        loader.seek(gs.LoaderPosition(1, 10))
        assert loader.next(most=1) == 1
        program.run()
        assert program.records("y")[0].tolist() == order.batch(1, 10).samples
        loader.seek(position)
        loader.set_steps_per_launch(2)
        assert loader.next() == 2
    with pytest.raises(TypeError, match="feeds is a dict of fields"):
        gs.Loader(program, {"x": X}, order, ["x"])


def test_samples_are_prepared_by_a_function_of_their_key(device):
    program = reader(device)

    def prepare(key, sample):
        return {"x": sample["x"] * 0 + key.epoch, "y": sample["y"]}

    with gs.Loader(program, {"x": X, "y": Y}, gs.sample_order(100, batch=BATCH), prepare=prepare, seed=5, workers=2) as loader:
        for number in range(2):
            _, sums, _ = epoch(program, loader)
            assert np.all(sums == number * BATCH * 4)


def test_a_mask_tells_padding(device):
    graph = gs.Graph()
    y = graph.feed("y", gs.i32, (BATCH,))
    real = graph.feed("real", gs.f32, (BATCH,))
    graph.record("real", gs.sum(real))
    graph.output("y", y)
    program = gs.compile(graph, device)
    order = gs.sample_order(20, batch=BATCH, last_batch=gs.LastBatch.pad)
    with gs.Loader(program, {"y": Y[:20]}, order, mask="real") as loader:
        while n := loader.next():
            program.run(steps=n)
    assert program.records("real").tolist() == [8, 8, 4]


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_source_raises_comes_in_the_place_of_its_batch(workers):
    class Broken(DataSet):
        def __getitem__(self, i):
            if i == 30:
                raise KeyError("sample 30")
            return super().__getitem__(i)

    program = reader(gs.cpu())
    with gs.Loader(program, Broken(), gs.sample_order(100, batch=BATCH, is_shuffled=False), workers=workers) as loader:
        for _ in range(3):
            assert loader.next() == 1
        with pytest.raises(KeyError, match="sample 30") as caught:
            loader.next()
        assert any(frame.name == "__getitem__" for frame in caught.traceback)


@pytest.mark.parametrize("sample, text", [
    ({"x": X[0]}, 'no "y"'),
    ({"x": X[0], "y": 1.5}, "cannot hold"),
    ({"x": X[0, :2], "y": 1}, r"f32\[2\], not f32\[4\]"),
    ((X[0],), "1 parts for 2 fields"),
    (X[0], "one array for several fields"),
])
def test_samples_of_another_form_are_refused(sample, text):
    source = gs.function_source(10, {"x": (gs.f32, (4,)), "y": (gs.i32, ())}, lambda i: sample)
    with pytest.raises((gs.Error, TypeError), match=text):
        source.read(0)


def test_fields_are_named_by_text():
    class Numbered(DataSet):
        def __getitem__(self, i):
            return {"x": X[i], 5: Y[i]}

    with pytest.raises(TypeError, match="named by a str.* the key 5"):
        gs.source_of(Numbered())
    assert list(gs.source_of([(x, y) for x, y in zip(X, Y)]).fields) == ["0", "1"]
    assert list(gs.source_of(list(X)).fields) == ["0"]


def test_an_array_that_cannot_be_used_says_its_dtype():
    with pytest.raises(gs.Error, match=f"no array of {np.dtype(np.longdouble)} can be used"):
        gs.tensor_source({"x": np.zeros(3, np.longdouble)})


def test_a_source_tells_its_fields():
    source = gs.source_of(DataSet())
    assert len(source) == source.size == 100
    assert source.fields == {"x": (np.dtype("float32"), (4,)), "y": (np.dtype("int32"), ())}
    assert np.array_equal(source.read(7)["x"], X[7])
    assert gs.index_source(5).read(3)["index"] == 3
    with pytest.raises(gs.Error, match="10"):
        gs.index_source(10).read(10)
    with pytest.raises(TypeError, match="gs.batches"):
        gs.source_of(iter([1, 2]))


def test_files_are_sources(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "both.npz", x=X, y=Y)
    (tmp_path / "tokens.bin").write_bytes(np.arange(50, dtype=np.uint16).tobytes())
    assert np.array_equal(gs.npy_source({"x": tmp_path / "x.npy"}).read(9)["x"], X[9])
    assert gs.npz_source(tmp_path / "both.npz").read(9)["y"] == 9
    window = gs.token_source(tmp_path / "tokens.bin", length=8, stride=4).read(2)
    assert window["input"].tolist() == list(range(8, 16)) and window["target"].tolist() == list(range(9, 17))
    with pytest.raises(gs.Error, match="x.npy") as caught:
        gs.npy_source({"x": tmp_path / "gone" / "x.npy"})
    assert caught.value.code == gs.ErrorCode.io and caught.value.file == __file__


def test_orders():
    weighted = gs.weighted_order([0, 1, 0], 30, batch=10)
    assert weighted.batch(0, 0).samples == [1] * 10
    lengths = gs.length_order([1, 9, 2, 8], [(4, 2), (10, 2)], is_shuffled=False)
    assert lengths.batches == 2 and lengths.batch(0, 1).bucket == 1
    ranks = [gs.sample_order(10, batch=5, rank=r, world=2, seed=1).batch(0, 0).samples for r in range(2)]
    assert sorted(sum(ranks, [])) == list(range(10))


def test_batches_of_any_iterable(device):
    program = reader(device)
    steps = []
    for n in gs.batches(program, ((X[i:i + 8], Y[i:i + 8]) for i in range(0, 80, 8)), ["x", "y"], steps_per_launch=4):
        program.run(steps=n)
        steps.append(n)
    assert steps == [4, 4, 2]
    assert np.array_equal(program.records("y"), np.arange(80).reshape(10, 8))
    with pytest.raises(TypeError, match="name a feed for each"):
        list(gs.batches(program, [(X[:8], Y[:8])]))
    for n in gs.batches(program, [{"x": X[:8], "y": Y[:8]}]):
        assert n == 1


@pytest.mark.parametrize("steps_per_launch", [1, 3])
def test_an_iterable_may_use_its_memory_again(device, steps_per_launch):
    def filled():
        x, y = np.zeros((BATCH, 4), np.float32), np.zeros(BATCH, np.int32)
        for first in range(0, 80, 8):
            x[:], y[:] = X[first:first + 8], Y[first:first + 8]
            yield {"x": x, "y": gs.Tensor(y) if first == 8 else y}
        x[:] = np.nan

    program = reader(device)
    seen = []
    for n in gs.batches(program, filled(), steps_per_launch=steps_per_launch):
        program.run(steps=n)
        seen += program.records("y").tolist()
        assert np.isfinite(program.records("x")).all()
    assert seen == np.arange(80).reshape(10, 8).tolist()


def test_a_batch_is_as_write_takes_it(device):
    graph = gs.Graph()
    graph.record("sum", gs.cast(gs.sum(graph.feed("x", gs.bf16, (3,))), gs.f32))
    program = gs.compile(graph, device)
    sums = []
    for n in gs.batches(program, [[gs.Tensor([1.0, 2.0, 3.0], gs.bf16)], [[2, 3, 4]], [np.full(3, 2, np.float32)]], ["x"], steps_per_launch=2):
        program.run(steps=n)
        sums += program.records("sum").tolist()
        if sums == [6, 9]:
            break
    assert sums == [6, 9]

    def launches(*batches):
        return list(gs.batches(reader(device), [{"y": Y[:8], **batch} for batch in batches], steps_per_launch=4))

    good = {"x": X[:8]}
    assert launches(good, good, good) == [3]
    with pytest.raises(gs.Error, match="masked"):
        launches(good, {"x": np.ma.masked_greater(X[:8], 0)})
    with pytest.raises(gs.Error, match=r"was given f64\[1, 8, 4\]"):
        launches(good, {"x": X[:8].astype(np.float64)})
    with pytest.raises(ValueError, match=r'a batch has "y", and the first one had "x", "y"'):
        launches(good, {})


@pytest.mark.parametrize("steps_per_launch", [1, 2, 3, 8])
def test_batches_before_an_error_come_first(steps_per_launch):
    def failing():
        for i in range(5):
            yield X[8 * i:8 * i + 8], Y[8 * i:8 * i + 8]
        raise OSError("the network is gone")

    steps = []
    with pytest.raises(OSError, match="the network is gone"):
        for n in gs.batches(reader(gs.cpu()), failing(), ["x", "y"], steps_per_launch=steps_per_launch):
            steps.append(n)
    assert sum(steps) == 5
    with pytest.raises(ValueError, match='a feed has two arrays of a batch: "x", "x"'):
        next(gs.batches(reader(gs.cpu()), [(X[:8], X[:8])], ["x", "x"]))


class Sample(collections.UserDict):
    pass


def test_a_sample_may_be_any_mapping(device):
    class Mappings(DataSet):
        def __getitem__(self, i):
            return Sample(super().__getitem__(i))

    program = reader(device)
    with gs.Loader(program, Mappings(), gs.sample_order(100, batch=BATCH, is_shuffled=False)) as loader:
        assert loader.next() == 1
        program.run()
    assert program.records("y").tolist() == [list(range(8))]
    source = gs.function_source(3, {"x": (gs.f32, ())}, lambda i: Sample(t=1.0))
    with pytest.raises(gs.Error, match='sample 2: the sample has no "x"'):
        source.read(2)


def test_a_function_gets_and_gives_bf16_as_float32():
    graph = gs.Graph()
    graph.record("sum", gs.cast(gs.sum(graph.feed("x", gs.bf16, (2, 3))), gs.f32))
    program = gs.compile(graph)
    source = gs.tensor_source({"x": gs.Tensor(np.arange(12, dtype=np.float32).reshape(4, 3), gs.bf16)})
    order = gs.sample_order(4, batch=2, is_shuffled=False)
    with gs.Loader(program, source, order, prepare=lambda key, sample: {"x": sample["x"] * 2}) as loader:
        assert loader.next() == 1
        program.run()
    assert program.records("sum").tolist() == [30.0]
    with gs.Loader(program, source, order, prepare=lambda key, sample: {"x": sample["x"] + np.float32(0.1)}) as loader:
        with pytest.raises(gs.Error, match=r'sample 0: "x" is f32\[3\], not bf16\[3\]'):
            loader.next()


def test_lists_of_numbers_are_a_source():
    source = gs.source_of({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [1, 2], "big": [2**40, 1], "is": [True, False]})
    assert source.fields == {"x": (np.dtype("float32"), (2,)), "y": (np.dtype("int32"), ()), "big": (np.dtype("int64"), ()),
                             "is": (np.dtype("bool"), ())}
    assert source.read(1)["x"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("function", ["source", "prepare"])
def test_an_error_says_which_sample(function):
    def bad(i):
        return {"x": X[i, :3], "y": Y[i]}

    def fails(i):
        raise KeyError(i)

    for sample, error in [(bad, gs.Error), (fails, KeyError)]:
        source = gs.function_source(100, {"x": (gs.f32, (4,)), "y": (gs.i32, ())}, sample if function == "source" else DataSet().__getitem__)
        prepare = None if function == "source" else lambda key, _, make=sample: make(key.sample)
        with gs.Loader(reader(gs.cpu()), source, gs.sample_order(100, batch=BATCH, is_shuffled=False), prepare=prepare) as loader:
            with pytest.raises(error) as caught:
                loader.next()
        if error is gs.Error:
            assert caught.value.problem == 'sample 0: "x" is f32[3], not f32[4]'
        elif hasattr(caught.value, "__notes__"):  # from Python 3.11 on
            assert caught.value.__notes__ == ["graphsink: sample 0 of the source"]


def test_what_is_no_field_is_refused():
    for array in (np.zeros(3, np.uint16), np.zeros(3, np.complex64)):
        with pytest.raises(gs.Error, match=f'the field "0" is of {array.dtype}, which is no dtype of graphsink'):
            gs.source_of([(array,)])
    for kind in ((gs.f32, 3), gs.f32, (gs.f32,)):
        with pytest.raises(gs.Error, match=r'the field "x" is described by .*, not by a dtype and a shape; remedy: give both'):
            gs.function_source(1, {"x": kind}, lambda i: i)
    with pytest.raises(gs.Error, match="the order is of 101 samples, and the source has 100"):
        gs.Loader(reader(gs.cpu()), DataSet(), gs.sample_order(101, batch=BATCH))
    assert gs.weighted_order([1.0, 0.0, 2.0], 8, batch=2).size == 3


def test_positions_compare_and_travel():
    position = gs.LoaderPosition(1, 2)
    assert position != None and not position == 3 and position == gs.LoaderPosition(1, 2)  # noqa: E711
    assert pickle.loads(pickle.dumps(position)) == position and len({position, gs.LoaderPosition(1, 2)}) == 1


def test_a_loader_and_its_program_are_freed():
    class Owner:
        def sample(self, i):
            return {"x": X[i], "y": Y[i]}

    owner = Owner()
    owner.program = reader(gs.cpu())
    source = gs.function_source(100, {"x": (gs.f32, (4,)), "y": (gs.i32, ())}, owner.sample)
    owner.loader = gs.Loader(owner.program, source, gs.sample_order(100, batch=BATCH), prepare=lambda k, s: owner.sample(3))
    assert owner.loader.next() == 1
    gone = weakref.ref(owner)
    del owner, source
    gc.collect()
    assert gone() is None


def test_a_closed_loader_refuses():
    loader = gs.Loader(reader(gs.cpu()), DataSet(), gs.sample_order(100, batch=BATCH))
    loader.close()
    loader.close()
    with pytest.raises(gs.Error, match="closed"):
        loader.next()


# Calls of a loader that change it, or wait for it.
CALLS = {"next": lambda loader: loader.next(), "seek": lambda loader: loader.seek(gs.LoaderPosition()),
         "set_steps_per_launch": lambda loader: loader.set_steps_per_launch(2), "close": lambda loader: loader.close()}
LOOKS = {"position": lambda loader: loader.position, "report": lambda loader: loader.report()}
UNDER_WAY = "another call of the same Loader is under way"


def refusal(call, loader):
    with pytest.raises(gs.Error) as caught:
        call(loader)
    return caught.value


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("call", CALLS | LOOKS)
def test_one_thread_uses_a_loader_at_a_time(call, workers):
    begun, may_end = threading.Event(), threading.Event()

    class Slow(DataSet):
        def __getitem__(self, i):
            if threading.current_thread() is not threading.main_thread():
                begun.set()
                assert may_end.wait(60)
            return super().__getitem__(i)

    loader = gs.Loader(reader(gs.cpu()), Slow(), gs.sample_order(100, batch=BATCH), workers=workers)
    thread = threading.Thread(target=loader.next)
    thread.start()
    assert begun.wait(60)
    try:
        error = refusal((CALLS | LOOKS)[call], loader)
        assert error.problem == UNDER_WAY and "use it on one thread" in error.remedy
        assert error.file == __file__ and loader.batches == 12
    finally:
        may_end.set()
        thread.join()
    assert loader.next() == 1 and loader.report().batches == 2


@pytest.mark.parametrize("function", ["data set", "prepare"])
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("call", CALLS)
def test_a_source_cannot_call_its_loader(call, workers, function):
    """The error comes in the place of the batch, and the loader stays as it was."""
    calls = True

    def sample(i):
        if calls and i == 30:
            CALLS[call](loader)
        return {"x": X[i], "y": Y[i]}

    class Calling(DataSet):
        __getitem__ = staticmethod(sample if function == "data set" else DataSet().__getitem__)

    prepare = (lambda key, s: sample(key.sample)) if function == "prepare" else None
    order = gs.sample_order(100, batch=BATCH, is_shuffled=False)
    loader = gs.Loader(reader(gs.cpu()), Calling(), order, workers=workers, prepare=prepare)
    for _ in range(3):
        assert loader.next() == 1
    error = refusal(gs.Loader.next, loader)
    assert error.problem in (UNDER_WAY, "its own source or `prepare` has called it") and "not in its source" in error.remedy
    calls = False
    assert sum(loader.next() for _ in range(9)) == 9 and loader.next() == 0


@pytest.mark.parametrize("call", CALLS)
def test_a_worker_cannot_call_its_loader_between_two_calls_either(call):
    is_done, problems = threading.Event(), []

    class Calling(DataSet):
        def __getitem__(self, i):
            if i == 8 and not is_done.is_set():
                returned.wait(60)
                problems.append(refusal(CALLS[call], loader).problem)
                is_done.set()
            return super().__getitem__(i)

    returned = threading.Event()
    loader = gs.Loader(reader(gs.cpu()), Calling(), gs.sample_order(100, batch=BATCH, is_shuffled=False))
    assert loader.next() == 1
    returned.set()
    assert is_done.wait(60)
    assert problems == ["its own source or `prepare` has called it"]
    assert loader.next() == 1


def test_a_worker_may_drop_the_last_reference_to_its_loader():
    """What waits for the worker is then ended by another thread."""
    returned, is_done = threading.Event(), threading.Event()
    loaders = []

    class Dropping(DataSet):
        def __getitem__(self, i):
            if i == 8:
                returned.wait(60)
                loaders.clear()
                is_done.set()
            return super().__getitem__(i)

    loaders.append(gs.Loader(reader(gs.cpu()), Dropping(), gs.sample_order(100, batch=BATCH, is_shuffled=False)))
    gone = weakref.ref(loaders[0])
    assert loaders[0].next() == 1
    returned.set()
    assert is_done.wait(60)
    assert gone() is None and reader(gs.cpu()).steps() == 0


def test_a_source_may_use_another_loader():
    other = gs.Loader(reader(gs.cpu()), DataSet(), gs.sample_order(100, batch=BATCH))

    class Nested(DataSet):
        def __getitem__(self, i):
            other.next()
            return super().__getitem__(i)

    loader = gs.Loader(reader(gs.cpu()), Nested(), gs.sample_order(100, batch=BATCH))
    assert loader.next() == 1


DAEMON = """
import sys, threading, time
sys.path.insert(0, {folder!r})
import numpy as np
import graphsink as gs
import test_data
class Slow(test_data.DataSet):
    def __getitem__(self, i):
        time.sleep(0.001)
        return super().__getitem__(i)
program = test_data.reader(gs.cpu())
loader = gs.Loader(program, Slow(), gs.sample_order(100, batch=8), workers={workers})
begun = threading.Event()
def call_loader():
    while True:
        if n := loader.next(): program.run(steps=n)
        begun.set()
def train():
    gs.train(program, loader, steps=10**9, progress=False, actions=[(1, lambda steps: begun.set())])
def train_with_a_function():
    gs.train(program, loader, steps=10**9, progress=False, records=["x"], on_step=lambda step, values: begun.set())
def run():
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (64, 64))
    graph.output("y", x @ x)
    alone = gs.compile(graph, gs.cpu())
    alone.write("x", np.zeros((64, 64), np.float32))
    while True:
        alone.run()
        alone.sync()
        begun.set()
threading.Thread(target={function}, daemon=True).start()
begun.wait(60)
time.sleep(0.003 * {times})
print("end")
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("function", ["call_loader", "train", "train_with_a_function", "run"])
def test_an_interpreter_ends_with_a_daemon_thread(function, workers):
    for times in range(4):
        script = DAEMON.format(folder=__file__.rpartition("/")[0], function=function, workers=workers, times=times)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_an_interpreter_ends_with_open_loaders():
    program = f"""
import sys
sys.path.insert(0, {str(__file__.rpartition('/')[0])!r})
import graphsink as gs
import test_data
program = test_data.reader(gs.cpu())
loader = gs.Loader(program, test_data.DataSet(), gs.sample_order(100, batch=8), workers=4, steps_per_launch=4)
print(loader.next())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "4\n", done
    assert "leaked" not in done.stderr
