"""What test_ranks.py starts by mpirun, on several ranks: ranks_program.py FUNCTION FOLDER. A check that fails raises, which ends
all ranks."""
from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

if sys.argv[1] == "over_nccl":
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)  # for the stand-in, which calls the software device of the package

import graphsink as gs
from graphsink import ranks



def initialise_mpi() -> None:
    """As an import of mpi4py does. Of ranks that variables have started, MPI knows one alone."""
    paths = re.findall(r"\S*/libmpi\.so\S*", Path("/proc/self/maps").read_text(encoding="utf-8"))
    if paths:
        assert ctypes.CDLL(paths[0], mode=ctypes.RTLD_GLOBAL).MPI_Init_thread(None, None, 3, ctypes.byref(ctypes.c_int())) == 0


if sys.argv[1] == "beside_mpi":
    initialise_mpi()

ROWS, STEPS = 4, 4  # rows of a rank in each step
COMM = ranks.world(patience_s=600)
RANK, SIZE = COMM.rank, COMM.size
FOLDER = Path(sys.argv[2])
DEVICES = [gs.cpu(), gs.cuda(0)] if gs.cuda.is_available() else [gs.cpu()]

random = np.random.default_rng(3)
INPUTS = random.standard_normal((STEPS, SIZE * ROWS, 6)).astype(np.float32)
TARGETS = random.integers(0, 3, (STEPS, SIZE * ROWS), dtype=np.int32)
MINE = slice(RANK * ROWS, (RANK + 1) * ROWS)


def two_layers() -> Any:
    return gs.variables({"w1": gs.kaiming((6, 16), seed=1), "b1": gs.zeros((16,)), "w2": gs.kaiming((16, 3), seed=2)})


def loss_of(model: Any, x: gs.Value, t: gs.Value) -> gs.Value:
    return gs.cross_entropy(gs.tanh(x @ model["w1"] + model["b1"]) @ model["w2"], t)


def feeds(graph: gs.Graph, name: str = "", rows: int = ROWS) -> tuple[gs.Value, gs.Value]:
    return graph.feed("x" + name, gs.f32, (rows, 6)), graph.feed("t" + name, gs.i32, (rows,))


def bits(model: Any) -> bytes:
    return b"".join(made.tobytes() for made in gs.state_dict(model).values())


def write(program: gs.Program, rows: slice, name: str = "") -> None:
    program.write("x" + name, np.ascontiguousarray(INPUTS[:, rows]))
    program.write("t" + name, np.ascontiguousarray(TARGETS[:, rows]))


def run(graph: gs.Graph, device: gs.DeviceId, mode: gs.Mode = gs.Mode.sink, rows: slice = MINE, seed: int = 0) -> None:
    program = gs.compile(graph, device, seed=seed)
    write(program, rows)
    program.run(mode, steps=STEPS)
    program.sync()


def of_one_process(options: gs.Adamw | gs.Sgd, device: gs.DeviceId) -> bytes:
    """The gradients of each rank's rows, added up in the order of the ranks."""
    model, graph = two_layers(), gs.Graph()
    sums: Any = None
    for rank in range(SIZE):
        gradients = gs.grad(loss_of(model, *feeds(graph, str(rank))), model)
        sums = gradients if sums is None else {name: sums[name] + gradients[name] for name in sums}
    gs.apply(options, model, {name: value / SIZE for name, value in sums.items()})
    program = gs.compile(graph, device)
    for rank in range(SIZE):
        rows = slice(rank * ROWS, (rank + 1) * ROWS)
        write(program, rows, str(rank))
    program.run(gs.Mode.interactive_serial, steps=STEPS)
    program.sync()
    return bits(model)


def check_data_parallel(device: gs.DeviceId) -> None:
    options = gs.Adamw(lr=1e-2, clip_norm=0.5)
    expected = of_one_process(options, device)
    for mode, bucket_bytes in ((gs.Mode.sink, 1), (gs.Mode.sink, 1 << 20), (gs.Mode.interactive_serial, 1 << 20)):
        model, graph = two_layers(), gs.Graph()
        if RANK > 0:
            model["w1"].write(np.full((6, 16), 7, np.float32))
        ranks.broadcast_variables(model, COMM)
        loss = loss_of(model, *feeds(graph))
        gs.apply(options, model, ranks.average(gs.grad(loss, model), COMM, bucket_bytes=bucket_bytes))
        run(graph, device, mode)
        assert bits(model) == expected, (mode, bucket_bytes)


def check_sharded(device: gs.DeviceId) -> None:
    for options in (gs.Adamw(lr=1e-2), gs.Sgd(lr=0.1, momentum=0.9)):
        model, graph = two_layers(), gs.Graph()
        groups = [gs.ParameterGroup([model["w1"]], lr=1e-3), gs.ParameterGroup([model["b1"], model["w2"]])]
        gradients = gs.grad(loss_of(model, *feeds(graph)), [model["w1"], model["b1"], model["w2"]])
        gs.apply(options, groups, ranks.average(gradients, COMM))
        run(graph, device)
        expected = bits(model)

        model, graph = two_layers(), gs.Graph()
        groups = [gs.ParameterGroup([model["w1"]], lr=1e-3), gs.ParameterGroup([model["b1"], model["w2"]])]
        gradients = gs.grad(loss_of(model, *feeds(graph)), [model["w1"], model["b1"], model["w2"]])
        made = ranks.apply_sharded(options, groups, gradients, COMM, bucket_bytes=100)
        run(graph, device)
        assert bits(model) == expected, options
        if SIZE > 1:
            assert [v.name for v in made.state][:3] == [f"{name}.shard{RANK}" for name in ("w1", "b1", "w2")]


def check_files_of_sharded_states() -> None:
    """A single process goes on from the files of all ranks, and each rank from its own."""
    model, graph = two_layers(), gs.Graph()
    ranks.apply_sharded(gs.Adamw(lr=1e-2), model, gs.grad(loss_of(model, *feeds(graph)), model), COMM)
    program = gs.compile(graph)
    write(program, MINE)
    program.run(steps=STEPS)
    program.sync()  # no step exchanges values any more
    folder = ranks.shard_folder(FOLDER / "states", COMM, program.variables)
    gs.write_checkpoint(folder / f"step-{STEPS:012}.safetensors", gs.snapshot(program))
    COMM.barrier()
    assert ranks.shard_folder(FOLDER / "states", COMM, program.variables) == folder
    files = ranks.newest_sharded_checkpoint(FOLDER / "states")
    assert [file.parent.name for file in files] == [f"rank{rank}-of-{SIZE}" for rank in range(SIZE)]

    single, graph = two_layers(), gs.Graph()
    gs.apply(gs.Adamw(lr=1e-2), single, gs.grad(loss_of(single, *feeds(graph)), single))
    alone = gs.compile(graph)
    gs.restore(alone, ranks.reshard([gs.read_checkpoint(file) for file in files], alone.variables))
    assert bits(single) == bits(model)


def check_dropout(device: gs.DeviceId) -> None:
    """Of a part of the batch each rank drops what one process drops of the whole."""
    found = []
    for comm, rows in ((COMM, MINE), (ranks.one_rank(), slice(0, SIZE * ROWS))):
        model, graph = two_layers(), gs.Graph()
        with gs.RandomPart(comm.rank):
            x, t = feeds(graph, rows=rows.stop - rows.start)
            loss = loss_of(model, gs.dropout(x, 0.5), t)
        gs.apply(gs.Sgd(lr=0.1), model, ranks.average(gs.grad(loss, model), comm))
        run(graph, device, rows=rows, seed=4)
        found.append(gs.state_dict(model))
    for name in found[0]:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-4, atol=1e-5)


def all_reduced(x: Any, **options: Any) -> Any:
    return np.asarray(gs.read(ranks.all_reduce(gs.tensor(x), COMM, **options)))


def check_eager() -> None:
    """On the CPU, because an Eager on a GPU has collectives of nccl_world() alone."""
    every = [np.arange(2 * SIZE, dtype=np.float32).reshape(SIZE, 2) + 10 * rank for rank in range(SIZE)]
    x = every[RANK]
    ring = [(rank - 1) % SIZE for rank in range(SIZE)]
    with gs.eager():
        assert np.array_equal(all_reduced(x), sum(every))
        assert np.array_equal(all_reduced(x, reduction=ranks.Reduction.max), every[-1])
        for made, expected in (
                (ranks.all_reduce(gs.tensor(x), COMM, reduction=ranks.Reduction.sum, same_loss=True), sum(every)),
                (ranks.all_gather(gs.tensor(x), COMM), np.concatenate(every)),
                (ranks.reduce_scatter(gs.tensor(x), COMM), sum(every)[RANK:RANK + 1]),
                (ranks.broadcast(gs.tensor(x), COMM, root=SIZE - 1), every[-1]),
                (ranks.all_to_all(gs.tensor(x), COMM), np.concatenate([each[RANK:RANK + 1] for each in every])),
                (ranks.send_receive(gs.tensor(x), COMM, ring), every[ring[RANK]]),
                (ranks.enter_parallel(gs.tensor(x), COMM), x), (ranks.leave_parallel(gs.tensor(x), COMM), sum(every))):
            assert np.array_equal(gs.read(made), expected)
        targets = gs.tensor(np.arange(SIZE, dtype=np.int32))
        parallel = gs.read(ranks.cross_entropy_parallel(gs.tensor(x), targets, COMM))
        whole = gs.read(gs.cross_entropy(gs.tensor(np.concatenate(every, axis=1)), targets))
        np.testing.assert_allclose(parallel, whole, rtol=1e-5)


def check_divided_model(device: gs.DeviceId) -> None:
    """Two layers whose weights are divided among the ranks, with clipped gradients, train as one process does."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(6, 4)).astype(np.float32)
    w1, w2 = (generator.normal(size=shape).astype(np.float32) for shape in ((4, 12), (12, 2)))
    found = []
    for comm in (COMM, ranks.one_rank()):
        a, b = ranks.divided_variable("w1", w1, 1, comm), ranks.divided_variable("w2", w2, 0, comm)
        bias = gs.Variable("bias", np.zeros(2, np.float32))
        graph = gs.Graph()
        rows = ranks.enter_parallel(graph.constant(x), comm)
        y = ranks.leave_parallel(gs.tanh(rows @ a) @ b, comm) + bias
        gs.sgd(gs.mean(y * y), [a, b, bias], lr=0.1, clip_norm=0.5)
        program = gs.compile(graph, device)
        program.run(steps=8)
        program.sync()
        found.append((a.read(), b.read(), bias.read()))
        assert a.name == ("w1" if comm.size == 1 else f"w1.part{RANK}")
    (a, b, bias), (whole_a, whole_b, whole_bias) = found
    for mine, whole in ((a, np.split(whole_a, SIZE, 1)[RANK]), (b, np.split(whole_b, SIZE, 0)[RANK]), (bias, whole_bias)):
        np.testing.assert_allclose(mine, whole, rtol=1e-4, atol=1e-5)


def check_traced_function(device: gs.DeviceId) -> None:
    w = gs.Variable("w", gs.full((2,), 3.0))

    @gs.program
    def step(x: Any = gs.input(gs.f32, 2)) -> dict[str, gs.Value]:
        together = ranks.all_reduce(x * w, COMM)
        return {"sum": gs.sum(together), "of_w": gs.sum(ranks.all_reduce(w, COMM, reduction=ranks.Reduction.mean))}

    program = step.compile(target=device)
    program.write(x=np.full(2, RANK + 1, np.float32))
    program.run(steps=3)
    assert list(program.records("sum")) == [3.0 * SIZE * (SIZE + 1)] * 3 and list(program.records("of_w")) == [6.0] * 3
    assert SIZE == 1 or "ranks_program.py" in program.explain()


def check_groups() -> None:
    group = COMM.split(RANK % 2, key=-RANK)
    mine = [rank for rank in reversed(range(SIZE)) if rank % 2 == RANK % 2]
    assert (group.rank, group.size, group.device) == (mine.index(RANK), len(mine), -1)
    with gs.eager():
        assert gs.read(ranks.all_reduce(gs.tensor(float(RANK)), group)) == sum(mine)
    assert repr(COMM) == f"Comm(rank {RANK} of {SIZE})" and repr(ranks.one_rank()) == "Comm(rank 0 of 1)"
    error = raised(lambda: COMM.split(-1))
    assert error.op == "split" and error.file == __file__


def raised(call: Any) -> gs.Error:
    try:
        call()
    except gs.Error as error:
        return error
    raise AssertionError("no Error")


def check_failed_step(device: gs.DeviceId) -> None:
    """An index of the last rank lies outside of its axis: all ranks raise, and none has committed the step."""
    table = gs.Variable("table", gs.zeros((5, 2)))
    graph = gs.Graph()
    index = graph.input("index", gs.i32, (3,))
    loss = gs.sum(gs.embedding(table, index) + 1.0)
    gs.apply(gs.Sgd(lr=1.0), [table], ranks.average(gs.grad(loss, [table]), COMM))
    program = gs.compile(graph, device)
    last = SIZE - 1
    program.write("index", np.array([0, 1, 12 if RANK == last else 2], np.int32))

    def step() -> None:
        program.run()
        program.sync()

    error = raised(step)
    assert error.code == gs.ErrorCode.step_failed and "index 12" in str(error), error
    assert RANK == last or f"the step failed on rank {last}" in str(error), error
    assert not table.read().any()
    program.write("index", np.array([0, 1, 2], np.int32))
    step()
    assert table.read().any()


def check_plans(device: gs.DeviceId) -> None:
    """Ranks with different plans: all of them raise."""
    if SIZE == 1:
        return

    def planned() -> None:
        graph = gs.Graph()
        x = graph.input("x", gs.f32, (2,))
        graph.output("y", ranks.all_reduce(x, COMM) if RANK == 0 else ranks.all_gather(x, COMM))
        program = gs.compile(graph, device)
        program.write("x", np.zeros(2, np.float32))
        program.run()

    text = str(raised(planned))
    assert "all_reduce" in text and "all_gather" in text and "ranks_program.py" in text, text


def check_errors() -> None:
    """They name what Python has, and say what to do."""
    if SIZE == 1:
        return

    def differ() -> None:
        w, graph = gs.Variable("w", gs.zeros((2,))), gs.Graph()
        loss = gs.sum(graph.value(w) * (2.0 if RANK == 0 else 3.0))
        gs.apply(gs.Sgd(lr=0.1), [w], ranks.average(gs.grad(loss, [w]), COMM))
        gs.compile(graph).run()

    error = raised(differ)
    assert "same_program=False" in error.remedy, error
    graph = gs.Graph()
    graph.output("y", ranks.all_reduce(graph.input("x", gs.f32, (2,)), COMM))
    error = raised(lambda: gs.write_graph(FOLDER / f"graph{RANK}.safetensors", graph))
    assert "files have no ranks" in error.problem and "one_rank()" in error.remedy, error
    program = gs.compile(graph)
    program.write("x", np.zeros(2, np.float32))
    program.run()
    of_thread: list[gs.Error] = []
    thread = threading.Thread(target=lambda: of_thread.append(raised(COMM.barrier)))
    thread.start()
    thread.join()
    program.sync()
    assert "Comm.split(0) makes one" in of_thread[0].remedy, of_thread


def check_training(device: gs.DeviceId) -> None:
    """Each rank has its samples; one writes the files, from which all go on."""
    size = 48 * SIZE
    x = np.random.default_rng(5).standard_normal((size, 6)).astype(np.float32)
    t = (x[:, :3].argmax(axis=1)).astype(np.int32)

    def trained(steps: int, folder: Path) -> tuple[bytes, gs.TrainResult]:
        model, graph = two_layers(), gs.Graph()
        loss = loss_of(model, *feeds(graph))
        gs.apply(gs.Adamw(lr=1e-2), model, ranks.average(gs.grad(loss, model), COMM))
        graph.record("loss", ranks.all_reduce(loss, COMM, reduction=ranks.Reduction.mean))
        program = gs.compile(graph, device)
        order = gs.sample_order(size, batch=ROWS, seed=1, rank=RANK, world=SIZE)
        result = gs.train(program, gs.Loader(program, {"x": x, "t": t}, order), steps=steps, progress=False, ends_on_interrupt=False,
                          records=["loss"], save=gs.SaveOptions(folder, every=10, writes=RANK == 0))
        COMM.barrier()  # the file of rank 0 is there
        return bits(model), result

    whole, _ = trained(20, FOLDER / f"{device}-whole")
    trained(10, FOLDER / f"{device}-parts")
    resumed, result = trained(20, FOLDER / f"{device}-parts")
    assert resumed == whole and result.first == 10
    with gs.eager():
        sums = all_reduced(np.frombuffer(whole, np.float32), reduction=ranks.Reduction.max)
    assert sums.tobytes() == whole


def check_threads() -> None:
    """While a rank waits in barrier(), its other threads run: rank 0 comes when a thread of the last rank has written a file."""
    sign = FOLDER / "written"

    def write() -> None:
        time.sleep(0.2)  # the main thread waits then
        sign.touch()

    if RANK == SIZE - 1:
        threading.Thread(target=write).start()
    while RANK == 0 and not sign.exists():
        time.sleep(0.01)
    COMM.barrier()


def check_nccl() -> None:
    if not gs.cuda.is_available() or SIZE > 1:
        os.environ["GRAPHSINK_NCCL"] = "/nowhere/libnccl.so.2"
        error = raised(lambda: ranks.nccl_world(patience_s=60))
        assert error.code == gs.ErrorCode.unavailable, error
    else:
        assert repr(ranks.nccl_world(device=0)) == "Comm(rank 0 of 1, cuda:0)"
    assert raised(lambda: ranks.world(patience_s=-1)).file == __file__


def checks() -> None:
    for device in DEVICES:
        check_data_parallel(device)
        check_sharded(device)
        check_dropout(device)
        check_traced_function(device)
        check_divided_model(device)
        check_failed_step(device)
        check_plans(device)
        check_training(device)
    check_errors()
    check_files_of_sharded_states()
    check_eager()
    check_groups()
    check_threads()
    check_nccl()
    print(f"<rank {RANK} of {SIZE}: all is well>")


def over_nccl() -> None:
    """Ranks whose values a stand-in for NCCL moves, inside of launches."""
    comm = ranks.nccl_world(device=0)
    assert repr(comm) == f"Comm(rank {RANK} of {SIZE}, cuda:0)"
    device, model, graph = gs.cuda(comm.device), two_layers(), gs.Graph()
    options = gs.Adamw(lr=1e-2)
    gs.apply(options, model, ranks.average(gs.grad(loss_of(model, *feeds(graph)), model), comm))
    assert gs.compile(graph, device).plan().launches_per_step == 1
    run(graph, device)
    expected = np.frombuffer(of_one_process(options, device), np.float32)
    np.testing.assert_allclose(np.frombuffer(bits(model), np.float32), expected, rtol=1e-4, atol=1e-5)
    with gs.eager(device):
        assert gs.read(ranks.all_reduce(gs.tensor([1.0, 2.0]), comm)).tolist() == [SIZE, 2 * SIZE]
    print(f"<rank {RANK} of {SIZE}: all is well>")


def forks() -> None:
    """A child of fork() ends in order, and cannot exchange anything."""
    child = os.fork()
    if child == 0:
        calls = [COMM.barrier, ranks.world]
        if "OMPI_COMM_WORLD_SIZE" in os.environ:
            calls.append(ranks.mpi_world)
        for call in calls:
            assert "was called in a child of fork()" in str(raised(call)), call
        return
    assert os.waitpid(child, 0)[1] == 0
    COMM.barrier()
    print(f"<rank {RANK} of {SIZE}: all is well>")


def beside_mpi() -> None:
    """All further groups, too, are those of the ranks that variables have started."""
    for comm in (COMM, ranks.world(patience_s=60)):
        assert repr(comm) == f"Comm(rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']})"
        comm.barrier()
    print(f"<rank {RANK} of {SIZE}: all is well>")


def others_wait() -> None:
    """For rank 1, which ends meanwhile."""
    if RANK != 1:
        COMM.barrier()
        print("came out of barrier()", flush=True)


def raises(error: BaseException) -> None:
    others_wait()
    raise error


def raises_with_steps() -> None:
    """Its last step waits for rank 0, which does not run it."""
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (2,))
    graph.output("y", ranks.all_reduce(x, ranks.world()))
    program = gs.compile(graph, DEVICES[-1])
    program.write("x", np.zeros(2, np.float32))
    program.run()
    program.sync()
    if RANK == 1:
        program.run()
    raises(ValueError("no data"))


def is_interrupted() -> None:
    raises(KeyboardInterrupt())


def ends_with_3() -> None:
    others_wait()
    sys.exit(3)


if __name__ == "__main__":
    {function.__name__: function for function in (checks, over_nccl, forks, beside_mpi, raises_with_steps, is_interrupted, ends_with_3)}[sys.argv[1]]()
