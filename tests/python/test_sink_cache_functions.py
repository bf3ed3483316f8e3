"""gs.SinkCache: what users give to it that is not as expected, and what their functions raise."""
from __future__ import annotations

import gc

import numpy as np
import pytest

import graphsink as gs
from cuda_calls import Memory, Stream, needs_cuda
from test_sink_cache import DeviceArray


@needs_cuda
def test_an_array_of_one_integer_is_no_address():
    """A wrong address would be the number that it holds."""
    memory = Memory()
    array = DeviceArray(memory, (), None)
    array.__class__ = type("Indexed", (DeviceArray,), {"__index__": lambda self: 4096})
    sinks, stream = gs.SinkCache(check_every=1), Stream()
    sinks.register_memory(array)

    def fill(s):
        memory.fill(s, 5, offset=0)

    for _ in range(3):
        sinks.run(stream.number, 1, fill)
    sinks.forget_memory(array)
    sinks.run(stream.number, 1, fill)
    assert ["not alive any more" in failure.problem for failure in sinks.report().failures] == [True]


@needs_cuda
def test_an_error_that_has_no_parts_passes_through():
    error = gs.Error("op", "file", 1, "", "problem", "remedy", None, "text")

    def fails(s):
        raise error

    stream = Stream()
    for options in ({"warm_runs": 1}, {"warm_runs": 0, "strict": True}):
        with pytest.raises(gs.Error) as caught:
            gs.SinkCache(**options).run(stream.number, 1, fails)
        assert caught.value is error or caught.value.__cause__ is error


@needs_cuda
def test_keys_name_the_module_of_a_type():
    with pytest.raises(TypeError, match=r"not of numpy\.bool"):
        gs.SinkCache().run(None, np.True_, lambda s: None)


@needs_cuda
def test_what_an_exception_says_stays_as_it_is():
    said, logged = "Program::run() of MyOptions::z, Graph::input", []

    def fails(s):
        raise ValueError(said)

    sinks, stream = gs.SinkCache(warm_runs=0, log=lambda level, text: logged.append(text)), Stream()
    with pytest.raises(ValueError):
        sinks.run(stream.number, 1, fails)
    assert said in sinks.report().failures[0].problem and said in str(sinks.report()) and said in logged[0]


@needs_cuda
def test_an_interrupt_in_a_capture_ends_the_call_and_is_counted():
    called = []

    def fails(s):
        called.append(s)
        raise KeyboardInterrupt

    sinks, stream = gs.SinkCache(warm_runs=0), Stream()
    with pytest.raises(KeyboardInterrupt):
        sinks.run(stream.number, 1, fails)
    assert len(called) == 1 and "KeyboardInterrupt" in sinks.report().failures[0].problem


@needs_cuda
@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_garbage_collector_rests_in_the_function(is_enabled):
    seen, stream = [], Stream()
    if not is_enabled:
        gc.disable()
    try:
        for warm_runs in (0, 1):
            gs.SinkCache(warm_runs=warm_runs).run(stream.number, 1, lambda s: seen.append(gc.isenabled()))
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()
    assert seen == [False, False]
