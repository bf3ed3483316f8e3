"""Models built in Python have the bits of those built in C++, in every mode and for every number of steps a launch."""
from __future__ import annotations

import pathlib
import zlib

import numpy as np
import pytest

import graphsink as gs
import models
from expected import written_by_cpp

STEPS = 6
# The Variable whose first size is that of the vocabulary, or of an image.
SIZED = {"mlp": "w1", "charmlp": "table", "lstm-scan": "table", "gpt": "tokens"}


@pytest.fixture(scope="module", params=SIZED)
def workload(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, gs.Checkpoint]:
    path = pathlib.Path(tmp_path_factory.mktemp("workload")) / "expected"
    return request.param, written_by_cpp(path, request.param, str(STEPS))


def checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def state_of(model: models.Model) -> bytes:
    return b"".join(variable.read().tobytes() for variable in model.variables)


@pytest.mark.parametrize("steps", [1, 2, STEPS])
def test_training_has_the_bits_of_cpp(workload: tuple[str, gs.Checkpoint], device: gs.DeviceId, steps: int) -> None:
    name, expected = workload
    tensors, hashes = expected.tensors, expected.metadata
    assert hashes["steps"] == str(STEPS)
    feeds = [tensors["feed0"].numpy(), tensors["feed1"].numpy()]
    for mode in gs.Mode:
        model = models.workload(name, tensors[f"initial/{SIZED[name]}"].shape[0])
        for variable in model.variables:
            np.testing.assert_array_equal(variable.read(), tensors[f"initial/{variable.name}"].numpy(), variable.name)
        program = gs.compile(model.graph, device)
        for first in range(0, STEPS, steps):
            for value, data in zip(model.feeds, feeds):
                program.write(value, data[first:first + steps])
            program.run(mode, steps=steps)
        losses = program.records("loss")
        assert len(losses) == STEPS and losses[-1] != losses[0]
        assert checksum(losses.tobytes()) == hashes[f"{device}/loss_hash"], f"{mode}: {losses}"
        assert checksum(state_of(model)) == hashes[f"{device}/state_hash"], f"{mode}"
