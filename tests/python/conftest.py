"""Fixtures of all tests of the Python package."""
from __future__ import annotations

import pytest

import graphsink as gs


def devices() -> list[gs.DeviceId]:
    """The CPU, and a CUDA device, which is one in software in the flavour emulated, where there is one."""
    return [gs.cpu(), gs.cuda(0)] if gs.cuda.is_available() else [gs.cpu()]


@pytest.fixture(params=devices(), ids=str)
def device(request: pytest.FixtureRequest) -> gs.DeviceId:
    return request.param
