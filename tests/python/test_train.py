"""train(), evaluate(), and what ends them."""
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import graphsink as gs
from graphsink import _context

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = (X @ np.array([1, -2, 3, 0.5], np.float32))[:, None].astype(np.float32)


class Model:
    """Linear regression: a program that trains, a loader, and the losses of all steps."""

    def __init__(self, device, seed=1, **loader):
        self.w = gs.Variable("w", gs.zeros((4, 1)))
        graph = gs.Graph()
        x, y = graph.feed("x", gs.f32, (8, 4)), graph.feed("y", gs.f32, (8, 1))
        loss = gs.mean((x @ self.w - y) ** 2.0)
        graph.record("loss", loss)
        gs.adamw(loss, [self.w], lr=0.05)
        self.program = gs.compile(graph, device)
        self.loader = gs.Loader(self.program, {"x": X, "y": Y}, gs.sample_order(64, batch=8, seed=seed), **loader)
        self.losses = []

    def train(self, **options):
        options = {"progress": False, "records": ["loss"], "on_step": lambda step, values: self.losses.append(values[0]), **options}
        return gs.train(self.program, self.loader, **options)


def test_steps_of_a_launch_change_no_loss(device):
    expected = None
    for steps_per_launch, workers in ((1, 0), (7, 1), (0, 2)):
        model = Model(device, workers=workers)
        result = model.train(steps=40, steps_per_launch=steps_per_launch)
        assert (result.end, result.steps, result.first) == (gs.TrainEnd.steps, 40, 0)
        expected = expected or model.losses
        assert len(model.losses) == 40 and model.losses == expected


def test_actions_evaluations_and_the_log_come_at_their_steps(device, tmp_path):
    model = Model(device)
    seen, evaluations = [], []

    def evaluate():
        evaluations.append(len(model.losses))
        return {"error": 1.0 / (1 + len(evaluations))}

    result = model.train(steps=20, steps_per_launch=8, actions=[(5, seen.append)], evaluate=evaluate, evaluate_every=10,
                         log_file=tmp_path / "log.jsonl")
    assert seen == [5, 10, 15, 20] and evaluations == [10, 20]
    assert result.evaluation == {"error": 1.0 / 3}
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(20))


def test_evaluate_gives_means_of_records(device):
    graph = gs.Graph()
    x = graph.feed("x", gs.f32, (8, 4))
    graph.record("mean", gs.mean(x))
    program = gs.compile(graph, device)
    loader = gs.Loader(program, {"x": X}, gs.sample_order(64, batch=8, is_shuffled=False))
    found = gs.evaluate(program, loader, ["mean", gs.Metric("mean", gs.MetricKind.sum, name="sum")])
    assert gs.evaluate(program, loader, "mean") == gs.evaluate(program, loader, gs.Metric("mean")) == {"mean": found["mean"]}
    assert found["mean"] == pytest.approx(X.mean(), rel=1e-4) and found["sum"] == pytest.approx(8 * X.mean(), rel=1e-4)


def test_a_batch_of_padding_alone_counts_nothing(device):
    """A rank of several may have one: its masked mean is 0/0, and its weight 0."""
    graph = gs.Graph()
    x, is_real = graph.feed("x", gs.f32, (2, 4)), graph.feed("is_real", gs.f32, (2,))
    count = gs.sum(is_real)
    graph.record("mean", gs.sum(gs.mean(x, 1) * is_real) / count)
    graph.record("count", count)
    program = gs.compile(graph, device)
    order = gs.sample_order(5, batch=2, rank=1, world=2, last_batch=gs.LastBatch.pad, is_shuffled=False)
    assert [order.batch(0, i).real for i in range(2)] == [2, 0]
    loader = gs.Loader(program, {"x": X[:5]}, order, mask="is_real")
    found = gs.evaluate(program, loader, gs.Metric("mean", weight="count"))
    assert found["mean"] == pytest.approx(X[order.batch(0, 0).samples].mean(), rel=1e-5)


def test_a_training_goes_on_from_its_file(device, tmp_path):
    whole = Model(device)
    whole.train(steps=30)
    first = Model(device)
    result = first.train(steps=17, save=gs.SaveOptions(tmp_path, every=10))
    assert result.saved.endswith("step-000000000017.safetensors")
    second = Model(device)
    result = second.train(steps=30, save=gs.SaveOptions(tmp_path))
    assert result.first == 17 and second.losses == whole.losses[17:]
    assert np.array_equal(second.w.read(), whole.w.read())
    assert str(gs.newest_checkpoint(tmp_path)) == result.saved


def test_files_lie_in_folders_of_any_name(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xff run")
    model = Model(gs.cpu())
    result = model.train(steps=5, save=gs.SaveOptions(folder), log_file=tmp_path / os.fsdecode(b"\xfe.jsonl"))
    assert os.path.dirname(result.saved) == str(folder) and os.path.exists(result.saved)
    assert Model(gs.cpu()).train(steps=7, save=gs.SaveOptions(folder)).first == 5
    assert str(gs.newest_checkpoint(folder)).startswith(str(folder))
    with pytest.raises(gs.Error, match="none"):
        gs.read_checkpoint(folder / "none")


@pytest.mark.parametrize("where", ["on_step", "evaluate", "actions", "should_stop"])
def test_what_a_function_raises_ends_the_training(where):
    def fail(*_):
        raise ValueError("from here")

    options = {"actions": [(3, fail)]} if where == "actions" else {where: fail}
    if where == "evaluate":
        options["evaluate_every"] = 5
    model = Model(gs.cpu())
    with pytest.raises(ValueError, match="from here"):
        model.train(steps=50, **options)
    assert model.program.steps() < 50 or where == "evaluate"
    assert Model(gs.cpu()).train(steps=3).steps == 3


@pytest.mark.parametrize("call", ["next", "close", "seek", "set_steps_per_launch", "train", "evaluate"])
@pytest.mark.parametrize("where", ["on_step", "evaluate", "actions", "should_stop"])
def test_a_function_cannot_use_the_loader(where, call):
    model = Model(gs.cpu(), steps_per_launch=2)
    calls = {"next": model.loader.next, "close": model.loader.close, "seek": lambda: model.loader.seek(gs.LoaderPosition()),
             "set_steps_per_launch": lambda: model.loader.set_steps_per_launch(3), "train": lambda: model.train(steps=3),
             "evaluate": lambda: gs.evaluate(model.program, model.loader, ["loss"])}

    def function(*_):
        calls[call]()
        return {}

    with pytest.raises(gs.Error, match="another call of the same Loader is under way") as caught:
        model.train(steps=20, evaluate_every=5 if where == "evaluate" else 0,
                    **{where: [(3, function)] if where == "actions" else function})
    assert "should_stop ends a training" in caught.value.remedy
    assert model.train(steps=30, epochs=100).steps == 30


@pytest.mark.parametrize("workers", [0, 2])
def test_a_function_may_ask_the_loader_where_it_is(workers):
    model, seen = Model(gs.cpu(), workers=workers), []
    model.train(steps=20, steps_per_launch=4, actions=[(4, lambda steps: seen.append((steps, model.loader.position, model.loader.report())))])
    assert [steps for steps, _, _ in seen] == [4, 8, 12, 16, 20]
    assert all(position == gs.LoaderPosition(steps // 8, steps % 8) for steps, position, _ in seen)
    assert all(report.batches >= steps for steps, _, report in seen)


def test_another_thread_cannot_use_the_loader_of_a_training():
    model, errors = Model(gs.cpu()), []

    def other():
        for use in (model.loader.next, model.loader.close, model.loader.report, lambda: model.loader.position):
            with pytest.raises(gs.Error, match="another call of the same Loader") as caught:
                use()
            errors.append(caught.value)

    def action(_):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    model.train(steps=6, actions=[(5, action)])
    assert len(errors) == 4


def test_another_thread_cannot_use_the_program_of_a_training():
    """By this problem the end of Python knows threads that are refused because it waits for their program."""
    model, problems = Model(gs.cpu()), []

    def other():
        with pytest.raises(gs.Error) as caught:
            model.program.steps()
        problems.append(caught.value.problem)

    def action(_):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    model.train(steps=6, actions=[(5, action)])
    assert problems == [_context.REFUSAL]


def test_a_function_may_stop_it():
    model = Model(gs.cpu())
    result = model.train(steps=1000, steps_per_launch=1, should_stop=lambda: len(model.losses) >= 5)
    assert result.end == gs.TrainEnd.should_stop and 5 <= result.steps < 1000


def test_progress_goes_through_sys_stdout(capsys):
    Model(gs.cpu()).train(steps=20, progress=True)
    assert "step 20/20" in capsys.readouterr().out


def test_options_that_do_not_fit_are_errors():
    model = Model(gs.cpu())
    with pytest.raises(gs.Error, match="nothing") as caught:
        model.train(steps=1, records=["nothing"])
    assert caught.value.file == __file__
    with pytest.raises(gs.Error, match="nothing ends the training"):
        model.train()
    with pytest.raises(gs.Error, match="on_step would not be told"):
        model.train(steps=1, records=[])
    with pytest.raises(TypeError, match="evaluate must return a dict"):
        model.train(steps=1, evaluate=lambda: None)
    assert model.train(steps=5, records="loss").steps == 5


def test_ctrl_c_ends_behind_the_launch_with_a_file(tmp_path):
    """The process tells by a line when it is within the training, and is interrupted there. A shell that starts the tests in
    the background has it ignore interrupts."""
    program = textwrap.dedent(f"""
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import graphsink as gs
        from test_train import Model
        model = Model(gs.cpu())
        def told(steps):
            if steps == 100: print("training", flush=True)
        result = model.train(steps=10**9, steps_per_launch=10, actions=[(100, told)], save=gs.SaveOptions({str(tmp_path)!r}))
        print(result.end, result.steps == len(model.losses), result.saved != "")
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=100)
    finally:
        process.kill()
    assert out == "TrainEnd.interrupted True True\n" and process.returncode == 0


def viewed():
    """A program with an output in memory of its own, and a loader."""
    graph = gs.Graph()
    mean = gs.mean(graph.feed("x", gs.f32, (8, 4)), 0)
    graph.output("y", mean)
    graph.record("mean", gs.mean(mean))
    graph.assign(gs.Variable("w", gs.zeros((4,))), mean)
    program = gs.compile(graph)
    memory = np.zeros(4096, np.uint8)
    begin = -memory.ctypes.data % 64
    y = memory[begin:begin + 16].view(np.float32)
    program.bind_memory("y", y)
    return program, gs.Loader(program, {"x": X}, gs.sample_order(64, batch=8))


def test_views_of_outputs_in_callbacks_end():
    program, loader = viewed()
    with pytest.raises(gs.Error, match="steps is -1"):
        gs.train(program, loader, steps=-1)
    with pytest.raises(gs.Error, match="no run has computed"):
        program.output_view("y")
    stamps = []

    def fails(step, values):
        program.output_view("y")
        stamps.append(step)
        if len(stamps) == 3:  # what was committed is told before the call ends
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        gs.train(program, loader, steps=8, steps_per_launch=1, records=["mean"], on_step=fails, progress=False)
    assert len(stamps) >= 3 and program.output_view("y").shape == (4,)
    program, loader = viewed()
    gs.evaluate(program, loader, ["mean"])
    assert program.output_view("y").shape == (4,)
