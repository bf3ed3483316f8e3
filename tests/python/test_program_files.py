"""Graphs with their Variables in a file: built here, run here and in C++."""
import gc
import os
import pathlib
import re
import subprocess
import weakref

import numpy as np
import pytest

import graphsink as gs


def training():
    """A graph that trains, with records, an output, a schedule and random numbers."""
    w = gs.variables({"a": gs.kaiming((8, 16), seed=1), "b": gs.kaiming((16, 4), seed=2)}, "w")
    graph = gs.Graph()
    x, t = graph.feed("x", gs.f32, (32, 8)), graph.feed("t", gs.i32, (32,))
    rate = gs.cosine_schedule(graph, peak=1e-2, warmup=3, steps=50)
    hidden = gs.dropout(gs.relu(x @ w["a"]), 0.1)
    loss = gs.cross_entropy(hidden @ w["b"], t)
    optimizer = gs.adamw(loss, w, lr=rate, clip_norm=1.0)
    graph.record("loss", loss)
    graph.record("row", gs.mean(hidden, 0))
    graph.output("norm", optimizer.gradient_norm)
    return graph


def feed(program, steps):
    random = np.random.default_rng(steps)
    program.write("x", random.normal(size=(steps, 32, 8)).astype(np.float32))
    program.write("t", random.integers(0, 4, (steps, 32), dtype=np.int32))


def test_a_program_goes_on_from_a_file_with_the_same_bits(device, tmp_path):
    graph = training()
    program = gs.compile(graph, device)
    feed(program, 5)
    program.run(steps=5)
    assert program.records("row").shape == (5, 16)
    program.records("loss")
    gs.write_graph(tmp_path / "model", graph, step=program.steps(), metadata={"name": "small"})
    expected = None
    for mode in gs.Mode:
        loaded = gs.read_graph(tmp_path / "model")
        assert loaded.step == 5 and loaded.metadata["name"] == "small"
        assert set(loaded.feeds) == {"x", "t"} and set(loaded.outputs) == {"norm"}
        assert (loaded.records["row"].dtype, loaded.records["row"].shape) == (np.dtype("float32"), (16,))
        again = gs.compile(loaded.graph, device)
        again.set_steps(loaded.step)
        feed(again, 7)
        again.run(mode, steps=7)
        found = again.records("loss"), again.records("row"), again.output("norm")
        assert found[1].shape == (7, 16)
        expected = expected or found
        assert all(np.array_equal(a, b) for a, b in zip(found, expected)), mode
    feed(program, 7)
    program.run(steps=7)
    assert np.array_equal(program.records("loss"), expected[0])


def test_a_file_is_a_checkpoint(device, tmp_path):
    graph = training()
    program = gs.compile(graph, device)
    gs.write_graph(tmp_path / "model", graph, step=3)
    before = gs.state_dict(program)
    feed(program, 2)
    program.run(steps=2)
    restored = gs.load(tmp_path / "model", program)
    assert restored.unused == [] and program.steps() == 3
    for name, array in gs.state_dict(program).items():
        np.testing.assert_array_equal(array, before[name])
    file = gs.read_checkpoint(tmp_path / "model")
    other = gs.Checkpoint({**file.tensors, "graphsink.other": np.zeros(1, np.float32)}, file.metadata)
    with pytest.raises(gs.Error, match='tensor "graphsink.other" belongs to no Variable'):
        gs.restore(program, other)


def test_a_checkpoint_keeps_its_own_metadata(tmp_path):
    program = gs.compile(training())
    with pytest.raises(ValueError, match='metadata has "step", which save\\(\\) itself writes'):
        gs.save(tmp_path / "kept", program, metadata={"step": "epoch 3"})
    assert not (tmp_path / "kept").exists()
    gs.save(tmp_path / "kept", program, metadata={"epoch": "3"})
    assert gs.read_checkpoint(tmp_path / "kept").metadata == {"epoch": "3", "step": "0"}


def test_a_graph_from_a_file_is_built_further(device, tmp_path):
    graph = gs.Graph()
    x, w = graph.input("x", gs.f32, (3,)), gs.Variable("w", np.array([1, 2, 3], np.float32))
    y = gs.sum(x * w)
    graph.output("y", y)
    graph.record("square", y * y)
    gs.write_graph(tmp_path / "model", graph)
    loaded = gs.read_graph(tmp_path / "model")
    loaded.graph.output("dy", gs.grad(loaded.outputs["y"], loaded.variables[0]))
    loaded.graph.output("ds", gs.grad(loaded.records["square"], loaded.variables[0]))
    program = gs.compile(loaded.graph, device)
    program.write("x", np.array([1, 0, 2], np.float32))
    program.run()
    assert program.output("dy").tolist() == [1, 0, 2]
    assert program.output("ds").tolist() == [14, 0, 28]


def test_a_graph_with_functions_of_python_is_refused(tmp_path):
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (3,))
    graph.output("y", gs.host_op(lambda a: a, out=(gs.f32, (3,)))(x))
    with pytest.raises(gs.Error, match="host_op|external"):
        gs.write_graph(tmp_path / "model", graph)


@pytest.fixture(scope="module")
def user_ops():
    """An extension module of a user's, with the op bent."""
    folder = pathlib.Path(gs.__file__).parents[1]
    if not list(folder.glob("python_user_ops.*")):
        pytest.skip("python_user_ops was not built: only where CMake builds tests beside the package")
    return pytest.importorskip("python_user_ops")


def bent_training(user_ops):
    """A graph with the op of the module in its step, its gradient and the body of a branch."""
    w = gs.Variable("w", gs.kaiming((8, 4), seed=3))
    graph = gs.Graph()
    x = graph.feed("x", gs.f32, (32, 8))
    with gs.Scope("layer"):
        y = user_ops.bent(x @ w, 0.25)
    y = gs.if_(gs.sum(y) > 0, lambda: user_ops.bent(y, -1.0), lambda: y)
    loss = gs.mean(y * y)
    gs.sgd(loss, [w], lr=0.1)
    graph.record("loss", loss)
    graph.output("y", y)
    return graph


def bits(graph, device, mode=gs.sink):
    program = gs.compile(graph, device)
    program.write("x", np.random.default_rng(0).normal(size=(4, 32, 8)).astype(np.float32))
    program.run(mode, steps=4)
    return program.records("loss").tobytes() + program.output("y").tobytes() + program.variables[0].read().tobytes()


def test_ops_of_the_user_are_those_of_the_table(user_ops, device, tmp_path):
    graph = bent_training(user_ops)
    (entry,) = user_ops.file_ops
    assert isinstance(entry, gs.FileOp) and repr(entry) == 'FileOp("bent", version 1)'
    with pytest.raises(gs.Error, match='the op "bent"'):
        gs.write_graph(tmp_path / "model", graph)
    gs.write_graph(tmp_path / "model", graph, ops=user_ops.file_ops)
    program = gs.compile(graph, device)
    assert 'bent' in program.explain() and "layer" in program.explain_json()
    expected = bits(graph, device)
    for mode in gs.Mode:
        assert bits(gs.read_graph(tmp_path / "model", ops=list(user_ops.file_ops)).graph, device, mode) == expected, mode


def test_a_file_with_another_op_is_refused(user_ops, tmp_path):
    gs.write_graph(tmp_path / "model", bent_training(user_ops), ops=user_ops.file_ops)
    for ops, problem in ((None, 'the op "bent" is not known'), ((), 'the op "bent" is not known'),
                         (user_ops.newer_file_ops, "has version 1, and the newest that is known is 2"),
                         (2 * user_ops.file_ops, 'two ops are named "bent"')):
        with pytest.raises(gs.Error, match=problem) as caught:
            gs.read_graph(tmp_path / "model", **({} if ops is None else {"ops": ops}))
        assert caught.value.file == __file__
    for wrong in (["bent"], 1, [None]):
        with pytest.raises(TypeError):
            gs.read_graph(tmp_path / "model", ops=wrong)
    both = (*user_ops.file_ops, *user_ops.newer_file_ops)
    assert gs.read_graph(tmp_path / "model", ops=both).variables[0].name == "w"


def test_an_op_of_the_user_has_errors_and_gradients(user_ops):
    graph = gs.Graph()
    x = graph.input("x", gs.f64, (2,))
    with pytest.raises(gs.Error) as caught:
        user_ops.bent(x, 0.0)
    assert caught.value.op == "bent"
    with gs.eager():
        assert np.asarray(user_ops.bent(gs.tensor([1.0, 2.0, 3.0]), 2.0)).tolist() == [1, 2, 4]


def test_a_file_that_is_none_is_an_error(tmp_path):
    (tmp_path / "model").write_bytes(b"no graph")
    with pytest.raises(gs.Error) as caught:
        gs.read_graph(tmp_path / "model")
    assert caught.value.code == gs.ErrorCode.io and caught.value.file == __file__


SAMPLE = pathlib.Path(gs.__file__).parents[2] / "bin" / "11_program_file"


def run_sample(device, *arguments):
    """What the C++ sample says of the last values of records, by name. It takes a CUDA device where it sees one."""
    environment = {**os.environ, **({"GS_EMU_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""} if device == gs.cpu() else {})}
    done = subprocess.run([SAMPLE, *arguments], capture_output=True, text=True, timeout=100, env=environment)
    assert done.returncode == 0, done.stderr
    return {name: float(value) for name, value in re.findall(r"^(\w+) after \d+ steps: (\S+)$", done.stdout, re.MULTILINE)}


def run_as_the_sample(program, steps):
    """Runs steps on the data that the sample makes up for training(), and returns what it says of records."""
    program.write("t", np.zeros((steps, 32), np.int32))
    program.write("x", gs.uniform((steps, 32, 8), seed=2, low=-1.0, high=1.0).numpy())
    program.run(steps=steps)
    return {"loss": program.records("loss")[-1], "row": program.records("row")[-1, -1]}


def bits_of(variables):
    return {variable.name: variable.read().tobytes() for variable in variables}


@pytest.mark.skipif(not SAMPLE.exists(), reason=f"{SAMPLE} was not built: only where CMake builds samples beside the package")
@pytest.mark.parametrize("mode", gs.Mode, ids=lambda mode: mode.name)
def test_cpp_goes_on_with_what_python_has_written(device, mode, tmp_path):
    """Three trainings with the same bits: one in Python, one in C++ after its first steps, and one from C++'s file."""
    graph = training()
    program = gs.compile(graph, device)
    run_as_the_sample(program, 5)
    gs.write_graph(tmp_path / "0", graph, step=program.steps())
    for launch in range(2):
        expected = run_as_the_sample(program, 4)
        found = run_sample(device, tmp_path / f"{launch}", "4", "--mode", mode.name.replace("_", "-"), "--save",
                           tmp_path / f"{launch + 1}")
        assert found == expected
        saved = gs.read_graph(tmp_path / f"{launch + 1}")
        assert saved.step == program.steps() and bits_of(saved.variables) == bits_of(program.variables)
    again = gs.compile(saved.graph, device)
    again.set_steps(saved.step)
    assert run_as_the_sample(again, 3) == run_as_the_sample(program, 3)
    assert bits_of(again.variables) == bits_of(program.variables)


def test_a_loaded_graph_has_one_graph_whose_names_stay(tmp_path):
    gs.write_graph(tmp_path / "model", training())
    loaded = gs.read_graph(tmp_path / "model")
    loaded.graph.output("more", loaded.records["loss"])
    assert loaded.graph is loaded.graph
    program = gs.compile(loaded.graph)
    with pytest.raises(gs.Error, match="not in memory of bind_memory"):
        program.output_view("more")
    with pytest.raises(gs.Error, match='it has "more", "norm"'):
        program.output_view("other")


def function_of_a_loaded_graph(path):
    """A function that is an op of a graph from a file, and that refers to what was loaded."""
    loaded = gs.read_graph(path)

    class Function:
        def __init__(self):
            self.loaded = loaded

        def __call__(self, x):
            return x + 1

    function = Function()
    gs.host_op(function, out=(gs.f32, ()))(loaded.records["loss"])
    return weakref.ref(function)


def test_a_loaded_graph_that_a_function_refers_to_is_freed(tmp_path):
    gs.write_graph(tmp_path / "model", training())
    gone = function_of_a_loaded_graph(tmp_path / "model")
    gc.collect()
    assert gone() is None
