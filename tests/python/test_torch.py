"""With PyTorch on the CPU, where it is installed: memory, data sets, state dicts."""
from __future__ import annotations

import numpy as np
import pytest

import graphsink as gs

torch = pytest.importorskip("torch")


def test_tensors_share_memory():
    made = gs.Tensor([[1.0, 2.0], [3.0, 4.0]])
    seen = torch.from_dlpack(made)
    assert seen.data_ptr() == made.numpy().ctypes.data and seen.tolist() == [[1, 2], [3, 4]]
    seen[0, 0] = 7
    assert made.numpy()[0, 0] == 7


def test_outputs_are_seen_where_they_lie():
    for dtype in (torch.float32, torch.bfloat16):
        graph = gs.Graph()
        graph.output("y", graph.input("x", dtype, (64,)) * 2.0)
        program = gs.compile(graph)
        x, y = torch.arange(64).to(dtype), torch.zeros(128, dtype=dtype)
        y = y[-y.data_ptr() % 64 // y.itemsize:][:64]
        program.bind_memory("y", y)
        program.write("x", x)
        program.run()
        view = torch.from_dlpack(program.output_view("y"))
        assert view.dtype == dtype and view.data_ptr() == y.data_ptr() and torch.equal(view, 2 * x)


def test_tensors_of_every_dtype_are_written(device):
    for dtype, name in ((torch.float32, gs.f32), (torch.float64, gs.f64), (torch.float16, gs.f16), (torch.bfloat16, gs.bf16),
                        (torch.int32, gs.i32), (torch.int64, gs.i64), (torch.uint8, gs.u8), (torch.bool, gs.boolean)):
        graph = gs.Graph()
        x = graph.input("x", dtype, (2, 3))
        assert x.dtype == name
        graph.output("y", gs.transpose(x))
        program = gs.compile(graph, device)
        data = (torch.arange(6).reshape(3, 2) % 2 if dtype == torch.bool else torch.arange(6).reshape(3, 2)).to(dtype)
        program.write("x", data.T)  # with steps of its own
        program.run()
        assert np.array_equal(program.output("y").astype(np.float64), data.to(torch.float64).numpy())


def test_a_data_set_and_a_data_loader_feed_a_program(device):
    x = torch.arange(64, dtype=torch.float32).reshape(16, 4)
    y = torch.arange(16, dtype=torch.int32)
    data = torch.utils.data.TensorDataset(x, y)

    graph = gs.Graph()
    fx, fy = graph.feed("x", gs.f32, (4, 4)), graph.feed("y", gs.i32, (4,))
    graph.record("x", gs.sum(fx, 1))
    graph.record("y", gs.cast(fy, gs.f32))
    program = gs.compile(graph, device)
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(0))
    for steps in gs.batches(program, loader, ["x", "y"], steps_per_launch=3):
        program.run(steps=steps)
    seen = program.records("y").ravel().astype(int)
    assert sorted(seen) == list(range(16))
    assert np.array_equal(program.records("x").ravel(), x.sum(1).numpy()[seen])

    order = gs.sample_order(16, batch=4, seed=1)
    with gs.Loader(program, data, order, {"0": "x", "1": "y"}, workers=2) as samples:
        while steps := samples.next():
            program.run(steps=steps)
    assert program.records("y").ravel().astype(int).tolist() == sum((order.batch(0, b).samples for b in range(4)), [])


def test_state_dicts_go_both_ways(device):
    layer = torch.nn.Linear(3, 2)
    state = {name: tensor for name, tensor in layer.state_dict().items()}
    parameters = gs.variables({"weight": gs.zeros((2, 3)), "bias": gs.zeros((2,))})
    gs.load_state_dict(parameters, state)
    graph = gs.Graph()
    x = graph.input("x", gs.f32, (5, 3))
    graph.output("y", gs.matmul(x, parameters["weight"], transpose_b=True) + parameters["bias"])
    program = gs.compile(graph, device)
    data = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    program.write("x", data)
    program.run()
    assert np.allclose(program.output("y"), layer(data).detach().numpy(), rtol=1e-5, atol=1e-6)
    back = {name: torch.from_numpy(array) for name, array in gs.state_dict(program).items()}
    layer.load_state_dict(back)
    assert all(torch.equal(back[name], state[name]) for name in state)
