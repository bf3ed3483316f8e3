"""gs.Error: its parts, and the line of the user's Python that it and explain() name."""
from __future__ import annotations

import copy
import functools
import inspect
import json
import pathlib
import pickle
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphsink as gs
import library_of_user


def line_of(mark: str, module: Any = None) -> int:
    """The line of a file that ends with "# LINE: mark"."""
    source = pathlib.Path(module.__file__ if module else __file__).read_text(encoding="utf-8").split("\n")
    (line,) = [number for number, text in enumerate(source, 1) if text.endswith(f"# LINE: {mark}")]
    return line


def error_of(call: Callable[[], Any]) -> gs.Error:
    with pytest.raises(gs.Error) as caught:
        call()
    return caught.value


def vector() -> gs.Value:
    return gs.Graph().constant([1.0, 2.0])


# ---- The exception

def test_an_error_has_parts() -> None:
    error = error_of(lambda: gs.matmul(vector(), vector()))
    assert isinstance(error, RuntimeError)
    assert error.op == "matmul" and error.file == __file__ and error.scope == "" and error.code == gs.ErrorCode.misuse
    assert error.problem and error.remedy and error.problem in str(error) and f"remedy: {error.remedy}" in str(error)
    assert re.match(rf"test_errors\.py:{error.line}: matmul: ", str(error))
    assert gs.Error is type(error) and gs.Error.__module__.startswith("graphsink")


@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_errors_can_be_copied_and_pickled(copied: Callable[[gs.Error], gs.Error]) -> None:
    with gs.Scope("a"):
        error = error_of(lambda: gs.matmul(vector(), vector()))
    made = copied(error)
    assert type(made) is gs.Error and str(made) == str(error) and made.scope == "a"
    for part in ("op", "file", "line", "scope", "problem", "remedy", "code"):
        assert getattr(made, part) == getattr(error, part)


def test_codes_tell_kinds_apart(tmp_path: pathlib.Path) -> None:
    assert error_of(lambda: gs.read_checkpoint(tmp_path / "none")).code == gs.ErrorCode.io
    assert error_of(lambda: gs.compile(gs.Graph(), gs.cuda(99))).code in (gs.ErrorCode.unavailable, gs.ErrorCode.misuse)
    graph = gs.Graph()
    graph.stop_when(graph.step() == 2)
    program = gs.compile(graph)
    program.run(steps=5)
    assert error_of(program.sync).code == gs.ErrorCode.stopped and program.steps() == 3


def test_a_step_that_fails_names_the_line_of_its_op(device: gs.DeviceId) -> None:
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (2,))
    graph.output("y", gs.check_finite(x))  # LINE: finite
    program = gs.compile(graph, device)
    program.write("x", np.array([1, np.inf], np.float32))
    program.run()
    error = error_of(program.sync)
    assert error.code == gs.ErrorCode.step_failed and error.file == __file__ and error.line == line_of("finite")


# ---- The line

def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)
    return call


@decorated
def in_decorated_function(x: gs.Value) -> gs.Value:
    return gs.matmul(x, x)  # LINE: decorated


class Layer:
    def __init__(self, x: gs.Value):
        self.x = x

    def __call__(self) -> gs.Value:
        return gs.matmul(self.x, self.x)  # LINE: method

    @property
    def made(self) -> gs.Value:
        return self.x @ self.x  # LINE: property


def in_generator(x: gs.Value) -> Any:
    yield 1
    yield gs.matmul(x, x)  # LINE: generator


@pytest.mark.parametrize("mark, call", [
    ("lambda", lambda x: gs.matmul(x, x)),  # LINE: lambda
    ("comprehension", lambda x: [gs.matmul(y, y) for y in (x,)]),  # LINE: comprehension
    ("generator expression", lambda x: list(gs.matmul(y, y) for y in (x,))),  # LINE: generator expression
    ("map", lambda x: list(map(gs.matmul, [x], [x]))),  # LINE: map
    ("partial", lambda x: functools.partial(gs.matmul, x)(x)),  # LINE: partial
    ("operator", lambda x: x @ x),  # LINE: operator
    ("reduce", lambda x: functools.reduce(lambda a, b: a @ b, [x, x])),  # LINE: reduce
    ("decorated", in_decorated_function),
    ("method", lambda x: Layer(x)()),
    ("property", lambda x: Layer(x).made),
    ("generator", lambda x: list(in_generator(x))),
    ("index", lambda x: x[5]),  # LINE: index
    ("index of three", lambda x: x[0, 0, 0]),  # LINE: index of three
], ids=lambda a: a if isinstance(a, str) else "")
def test_names_the_line_that_calls(mark: str, call: Callable[[gs.Value], Any]) -> None:
    error = error_of(lambda: call(vector()))
    assert (error.file, error.line) == (__file__, line_of(mark))


@pytest.mark.parametrize("mark, call", [
    ("if_", lambda x: gs.if_(gs.any(x > 0), lambda: x, lambda: x @ x)),  # LINE: if_
    ("if_ predicate", lambda x: gs.if_(x, lambda: x, lambda: x)),  # LINE: if_ predicate
    ("switch_", lambda x: gs.switch_(x, [lambda: x])),  # LINE: switch_
    ("while_", lambda x: gs.while_(x, lambda s: s, lambda s: s)),  # LINE: while_
    ("scan", lambda x: gs.scan(x, None, lambda s, _: (s @ s, None), iterations=2)),  # LINE: scan
    ("scan types", lambda x: gs.scan(x, None, lambda s, _: (gs.sum(s), None), iterations=2)),  # LINE: scan types
    ("grad", lambda x: gs.grad(x, x)),  # LINE: grad
    ("adamw", lambda x: gs.adamw(x, [gs.Variable("v", [1.0])])),  # LINE: adamw
    ("sgd", lambda x: gs.sgd(gs.sum(x), {"v": gs.Variable("v", [1.0])}, momentum=-1)),  # LINE: sgd
    ("apply", lambda x: gs.apply(gs.Sgd(), [gs.Variable("v", [1.0])], [])),  # LINE: apply
    ("average", lambda x: gs.exponential_average(gs.Graph(), [gs.Variable("v", [1.0])], 2)),  # LINE: average
    ("schedule", lambda x: gs.cosine_schedule(gs.Graph(), peak=-1)),  # LINE: schedule
    ("variables", lambda x: gs.variables({"v": x})),  # LINE: variables
    ("restore", lambda x: gs.load_state_dict([gs.Variable("v", [1.0])], {"w": [1.0]})),  # LINE: restore
    ("load", lambda x: gs.load("/none/of/this", [])),  # LINE: load
    ("save", lambda x: gs.save("/none/of/this", [])),  # LINE: save
], ids=lambda a: a if isinstance(a, str) else "")
def test_names_the_line_that_calls_through_the_package(mark: str, call: Callable[[gs.Value], Any]) -> None:
    error = error_of(lambda: call(vector()))
    assert (error.file, error.line) == (__file__, line_of(mark)), str(error)


def test_names_the_line_in_another_file() -> None:
    error = error_of(lambda: library_of_user.wrong_product(vector()))
    assert (error.file, error.line) == (library_of_user.__file__, line_of("product", library_of_user))
    error = error_of(lambda: library_of_user.wrong_branch(gs.Graph().constant(1.0)))
    assert (error.file, error.line) == (library_of_user.__file__, line_of("product", library_of_user))


@pytest.mark.parametrize("file", ["<ipython-input-3>", "/tmp/ipykernel_77/123.py", "<stdin>", "<string>", "übung zwei.py", "a" * 300])
def test_names_the_line_of_a_cell(file: str) -> None:
    names = {"gs": gs, "x": vector()}
    cell = compile("y = 1\n\nz = gs.matmul(\n    x,\n    x)\n", file, "exec")
    error = error_of(lambda: exec(cell, names))  # noqa: S102
    assert error.file == file and error.line in (3, 4, 5)
    assert f":{error.line}: matmul" in str(error)


def test_a_name_that_is_no_text_is_no_line() -> None:
    error = error_of(lambda: exec(compile("gs.matmul(x, x)", "a\udc80.py", "exec"), {"gs": gs, "x": vector()}))  # noqa: S102
    assert (error.file, error.line) == ("", 0)


def test_names_the_line_on_another_thread() -> None:
    seen: list[gs.Error] = []

    def work() -> None:
        seen.append(error_of(lambda: gs.matmul(vector(), vector())))  # LINE: thread

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (seen[0].file, seen[0].line) == (__file__, line_of("thread"))


def test_names_the_line_of_traced_functions() -> None:
    @gs.program
    def wrong(x: gs.input(gs.f32, 2)) -> Any:  # type: ignore[valid-type]
        with gs.Scope("part"):
            return gs.matmul(x, x)  # LINE: traced
    error = error_of(wrong.compile)
    assert (error.file, error.line, error.scope) == (__file__, line_of("traced"), "part")
    error = error_of(lambda: wrong(np.ones(3, np.float32)))
    assert error.line == line_of("traced")

    @gs.program
    def right(x: gs.input(gs.f32, 2)) -> Any:  # type: ignore[valid-type]
        return x + 1
    error = error_of(lambda: right(np.ones(3, np.float32)))  # LINE: call
    assert (error.file, error.line) == (__file__, line_of("call"))
    step = right.compile()
    error = error_of(lambda: step.write(x=np.ones(3, np.float32)))  # LINE: write
    assert error.line == line_of("write")
    error = error_of(lambda: step.write(y=np.ones(2, np.float32)))  # LINE: write of another
    assert error.line == line_of("write of another") and '"x"' in str(error)


def test_explain_names_lines() -> None:
    parameters = gs.variables({"w": np.ones((2, 2), np.float32)})

    @gs.program
    def train(x: gs.feed(gs.f32, 3, 2)) -> Any:  # type: ignore[valid-type]
        y = gs.tanh(x @ parameters["w"])  # LINE: layer
        y = gs.if_(gs.sum(y) > 0, lambda: gs.sin(y),  # LINE: then
                   lambda: gs.cos(y))  # LINE: else
        y = gs.while_(y, lambda s: gs.sum(s) > 10, lambda s: gs.erf(s), max_iterations=3)  # LINE: loop
        loss = gs.sum(gs.exp(y))  # LINE: loss
        gs.adamw(loss, parameters)  # LINE: optimizer
        return {"loss": loss}

    step = train.compile(tuning=gs.Tuning(fuse=False))
    step.write(x=np.ones((3, 2), np.float32))
    text = step.explain()
    for mark in ("layer", "then", "else", "loop", "loss", "optimizer"):
        assert f"test_errors.py:{line_of(mark)}" in text, f"{mark}\n{text}"
    assert "graphsink/_" not in text
    lines = {str(task.get("where")) for task in json.loads(step.explain_json())["tasks"]}
    assert any(f"test_errors.py:{line_of('loss')}" in where for where in lines)
    assert any(f"test_errors.py:{line_of('layer')}" in repr(value.where) for value in step.memory().largest)
    step.run()
    times = step.time_ops(2)
    (product,) = [time for time in times if time.where.line == line_of("layer") and time.op == "matmul"][:1]
    assert product.where.file == __file__ and product.runs > 0
    assert product.inputs == [(gs.f32, (3, 2)), (gs.f32, (2, 2))] and product.outputs == [(gs.f32, (3, 2))]


def test_where_is_cheap_to_ask_for() -> None:
    """gs._core.here() names this line, from any depth of the stack."""
    def deep(n: int) -> Any:
        return deep(n - 1) if n else gs._core.here()
    where = deep(100)
    assert where.file == __file__ and where.scope == "" and repr(where).startswith("test_errors.py:")
    assert where.line == inspect.getsourcelines(deep)[1] + 1


def test_errors_of_a_script(tmp_path: pathlib.Path) -> None:
    """What a user sees who runs a script: the traceback and the text."""
    script = tmp_path / "mine.py"
    script.write_text("import graphsink as gs\nx = gs.Graph().constant([1.0])\n\nx @ x\n", encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and re.search(r"graphsink.*Error: mine\.py:4: matmul: ", done.stderr), done.stderr


# Programs whose first step ends when the main thread waits: it has set `waits`, and does not give Python's lock away before.
# A shell may have started them with SIGINT ignored, as it does behind `&`.
INTERRUPTED = """
import _thread, signal, sys, threading
import numpy as np
import graphsink as gs

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.setswitchinterval(1000)
waits = threading.Event()

@gs.host_op(out=lambda x: (x.dtype, x.shape))
def interrupted(x):
    if not waits.wait(60): raise TimeoutError
    _thread.interrupt_main()
    if x > 0: raise ValueError("of the function")
    return x

def program_of(x, build):
    graph = gs.Graph()
    build(graph, interrupted(graph.constant(np.float32(x))))
    return gs.compile(graph)

def chain(error):
    return [type(error).__name__] + (chain(error.__context__) if error is not None else [])
"""


def interrupted(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED + script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_interrupt_keeps_the_error_of_a_failed_step() -> None:
    assert interrupted("""
program = program_of(1, lambda graph, y: graph.output("y", y))
try:
    try:
        raise LookupError
    except LookupError:
        program.run()
        waits.set()
        program.sync()
except KeyboardInterrupt as interrupt:
    error = interrupt.__context__
    print(chain(interrupt), error.code, repr(error.__cause__), "of the function" in str(error))
program.sync()
""") == "['KeyboardInterrupt', 'Error', 'LookupError', 'NoneType'] ErrorCode.step_failed ValueError('of the function') True\n"


def test_an_interrupt_keeps_that_a_run_has_stopped() -> None:
    assert interrupted("""
program = program_of(0, lambda graph, y: graph.stop_when(y == 0.0))
program.run(steps=3)
waits.set()
try:
    program.sync()
except KeyboardInterrupt as interrupt:
    print(chain(interrupt), interrupt.__context__.code)
""") == "['KeyboardInterrupt', 'Error', 'NoneType'] ErrorCode.stopped\n"


def test_an_interrupt_takes_no_records() -> None:
    assert interrupted("""
program = program_of(0, lambda graph, y: graph.record("y", y + 7.0))
program.run()
waits.set()
try:
    program.records("y")
except KeyboardInterrupt:
    print(program.records("y"), program.lost_records("y"))
""") == "[7.] 0\n"


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupt_ends_a_wait_for_data_and_skips_nothing(workers: int) -> None:
    """The first sample comes when the interrupt was met."""
    assert interrupted(f"""
met = threading.Event()

def sample(i):
    if i == 0 and not met.is_set():
        _thread.interrupt_main()
        if not met.wait(60): print("nobody was interrupted")
    return np.float32(i)

graph = gs.Graph()
x = graph.feed("x", gs.f32, (2,))
graph.record("x", x)
program = gs.compile(graph)
order = gs.sample_order(6, batch=2, is_shuffled=False)
with gs.Loader(program, gs.function_source(6, {{"x": (np.float32, ())}}, sample), order, workers={workers}) as loader:
    try:
        loader.next()
    except KeyboardInterrupt:
        met.set()
    while steps := loader.next():
        program.run(steps=steps)
    print(program.records("x").tolist())
""") == "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]\n"


@pytest.mark.parametrize("call, text", [
    (lambda program, loader: gs.train(program, loader, steps=-1), "steps is -1"),
    (lambda program, loader: gs.train(program, loader), "set steps or epochs, or should_stop"),
    (lambda program, loader: gs.train(program, loader, steps=1, save=gs.SaveOptions("", every=5)), "set SaveOptions.folder"),
    (lambda program, loader: gs.train(program, loader, steps=1, save=gs.SaveOptions("x", every=-1)), "SaveOptions.every is -1"),
    (lambda program, loader: gs.train(program, loader, steps=1, log_file="/nowhere/x"), "check log_file and"),
    (lambda program, loader: gs.read(program.inputs["x"]), "use Program.output() after a run")])
def test_errors_name_what_python_has(call, text) -> None:
    """Keywords in the place of members of options; attributes."""
    graph = gs.Graph()
    graph.record("y", gs.mean(graph.feed("x", gs.f32, (2, 3))))
    program = gs.compile(graph)
    loader = gs.Loader(program, {"x": np.zeros((4, 3), np.float32)}, gs.sample_order(4, batch=2))
    error = error_of(lambda: call(program, loader))
    assert text in str(error) and (text in error.problem or text in error.remedy)
    assert "::" not in str(error)


def test_an_error_of_a_loss_scale_names_the_keyword() -> None:
    w = gs.Variable("w", gs.zeros((2,)))
    gradients = gs.grad(gs.sum(gs.Graph().value(w) * 2.0), [w])
    error = error_of(lambda: gs.apply(gs.Sgd(lr=0.1, loss_scale=gs.LossScale()), [w], gradients))
    assert "name it in LossScale.variable" in error.remedy


def test_errors_of_sources_name_keywords(tmp_path: pathlib.Path) -> None:
    """They name members of options of C++, which Python does not have."""
    arrays, packed, tokens = tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "tokens.bin"
    np.savez_compressed(packed, x=np.zeros(100, np.float32))
    with zipfile.ZipFile(arrays, "w") as file:
        file.writestr("text", "no array")
    np.full(20, 7, np.uint16).tofile(tokens)
    header = np.zeros(256, np.int32)
    header[:3] = 20240520, 1, 20
    (tmp_path / "header.bin").write_bytes(header.tobytes() + tokens.read_bytes())
    graph = gs.Graph()
    graph.record("sum", gs.sum(graph.feed("x", gs.f32, (2,))), capacity=3)
    program = gs.compile(graph)
    loader = gs.Loader(program, {"x": np.zeros(64, np.float32)}, gs.sample_order(64, batch=2), steps_per_launch=16)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: gs.npz_source(arrays), "name the arrays to read (names)"),
        (lambda: gs.npz_source(packed, most_unpacked=8), "allow more (most_unpacked)"),
        (lambda: gs.token_source(tmp_path / "header.bin", length=4, type=gs.TokenType.int32), "leave type out"),
        (lambda: gs.token_source(tokens, length=4, vocabulary=5).read(0), "set type to that of the tokens, and vocabulary to"),
        (lambda: gs.token_source(tmp_path / "a.npz", length=4, type=gs.TokenType.int32), "set type to that of its tokens"),
        (lambda: gs.evaluate(program, loader, "sum"), "with room (capacity) for")]
    for call, text in calls:
        error = error_of(call)
        assert text in error.remedy, error
        assert not re.search(r"::|[A-Z]\w*Options", str(error)), error


def test_names_of_the_caller_stay_as_they_are() -> None:
    graph = gs.Graph()
    name = "std::Foo::bar Mode Foo::Options ::"
    graph.output(name, graph.constant(1.0))
    error = error_of(lambda: graph.output(name, graph.constant(1.0)))
    assert name in error.problem and name in str(error)


@pytest.mark.parametrize("name", ["Graph::input", "MyOptions::z", "SaveOptions::every", "/data/gs::Graph/x", "Program::run()", "a (Graph::feed"])
def test_names_between_quotes_stay_as_they_are(name: str) -> None:
    graph = gs.Graph()
    graph.output(name, graph.constant(1.0))
    error = error_of(lambda: graph.output(name, graph.constant(1.0)))
    assert f'"{name}"' in error.problem and f'"{name}"' in str(error)


def test_texts_of_exceptions_stay_as_they_are(device: gs.DeviceId) -> None:
    said = "MyOptions::z of at::Tensor::item() in Program::run() (Graph::input)"

    @gs.host_op(out=(gs.f32, (2,)))
    def fails(x: Any) -> Any:
        raise ValueError(said)

    graph = gs.Graph()
    graph.output("y", fails(graph.constant([1.0, 2.0])))
    program = gs.compile(graph, device)
    program.run()
    error = error_of(program.sync)
    assert said in error.problem and said in str(error) and isinstance(error.__cause__, ValueError)


def test_control_flow_of_values_of_an_eager_is_that_of_python() -> None:
    with gs.eager():
        x = gs.tensor([1.0])
        error = error_of(lambda: gs.if_(gs.sum(x) > 0, lambda: x, lambda: -x))
    assert error.remedy == "use the control flow of your language"


def test_the_options_that_texts_name_are_those_of_the_headers() -> None:
    root = pathlib.Path(__file__).parents[2]
    headers = " ".join(path.read_text(encoding="utf-8") for path in (root / "include" / "graphsink").glob("*.h"))
    known = re.search(r"kOptions\[\] = \{(.*?)\}", (root / "python/src/errors.cpp").read_text(encoding="utf-8"), re.DOTALL)
    assert known is not None
    listed = {name for name in re.findall(r'"(\w+)"', known[1]) if name.endswith("Options")}
    assert listed == set(re.findall(r"\bstruct (\w+Options)\b", headers))


# ---- Words of C++

def test_remedies_of_host_ops_speak_python(tmp_path: pathlib.Path) -> None:
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (2,))
    seen = gs.host_op(lambda x: x, out=lambda x: (x.dtype, x.shape))(x)
    graph.output("y", seen)
    written = error_of(lambda: gs.write_graph(tmp_path / "graph.safetensors", graph))
    assert "what host_op() made has none: write it with ops of graphsink" in written.remedy
    w = gs.Variable("w", [1.0, 2.0])
    loss = gs.sum(gs.host_op(lambda x: x, out=lambda x: (x.dtype, x.shape))(graph.value(w)))
    differentiated = error_of(lambda: gs.grad(loss, [w]))
    assert "give host_op() a grad=" in differentiated.remedy
    for error in (written, differentiated):
        assert not re.search(r"OpDef|::|external_op|\{\.", str(error)), error


@pytest.mark.skipif(not gs.cuda.is_available(), reason="ops run on the host of a GPU")
def test_plans_of_host_ops_speak_python() -> None:
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (2,))
    graph.output("y", gs.host_op(lambda x: x, out=lambda x: (x.dtype, x.shape))(x))
    program = gs.compile(graph, gs.cuda(0))
    wanted = "write it with ops of graphsink, or as an op in C++ that has a CUDA body"
    assert wanted in program.explain() and any(wanted in reason.remedy for reason in program.plan().reasons)
    assert any(wanted in reason["remedy"] for reason in json.loads(program.explain_json())["reasons"])
    for text in (program.explain(), program.explain_json(), program.explain_dot()):
        assert not re.search(r"OpDef|\w::|\{\.", text), text


def test_phrases_that_are_put_into_python_are_those_of_the_library() -> None:
    root = pathlib.Path(__file__).parents[2]
    table = (root / "python/src/errors.cpp").read_text(encoding="utf-8").split("kPhrases[] = {\n")[1].split("\n};\n")[0]
    pairs = re.findall(r'\{"((?:[^"\\]|\\.)*)",', table)
    assert len(pairs) > 5
    # Texts that stand in several literals are one.
    sources = "".join(re.sub(r'"\s*\n\s*"', "", path.read_text(encoding="utf-8")) for path in sorted((root / "src").rglob("*.cpp")))
    assert [phrase for phrase in pairs if phrase not in sources] == []
