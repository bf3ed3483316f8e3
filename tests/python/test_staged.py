"""Slices of feeds in the memory from which the device reads them."""
import gc
import weakref

import numpy as np
import pytest

import graphsink as gs


def reader(device):
    graph = gs.Graph()
    x = graph.feed("x", gs.f32, (4, 3))
    graph.record("sum", gs.sum(x))
    return gs.compile(graph, device)


def test_slices_are_written_in_place(device):
    program = reader(device)
    for launch in range(4):
        slices = program.stage("x", 3)
        assert (len(slices), slices.dtype, slices.shape) == (3, np.dtype("float32"), (4, 3))
        for i in range(3):
            array = slices.slice(i)
            array[:] = launch + i
        program.write(slices)
        assert len(slices) == 0 and not array.flags.writeable
        program.run(steps=3)
    assert program.records("sum").tolist() == [12.0 * (launch + i) for launch in range(4) for i in range(3)]


def test_only_numbers_of_the_program_are_copied(device):
    program = reader(device)
    copied = []
    for stages in (True, False):
        before = program.counters().host_copied_bytes
        if stages:
            slices = program.stage("x", 100)
            for i in range(100):
                slices.slice(i)[:] = 1
            program.write(slices)
        else:
            program.write("x", np.ones((100, 4, 3), np.float32))
        program.run(steps=100)
        program.sync()
        copied.append(program.counters().host_copied_bytes - before)
    assert copied[0] < 4800 <= copied[1]


def test_some_are_taken(device):
    program = reader(device)
    slices = program.stage(program.inputs["x"], 3)
    for i in range(3):
        slices.slice(i)[:] = i
    first = slices.take(2)
    assert (len(first), len(slices)) == (2, 1)
    for each in (first, slices):
        steps = len(each)
        program.write(each)
        program.run(steps=steps)
    assert program.records("sum").tolist() == [0, 12, 24]


def test_an_array_keeps_its_slices(device):
    """Memory that an array shows is not that of other slices, also when the object of the slices is gone."""
    program = reader(device)
    kept = []
    for number in range(3):
        staged = program.stage("x", 2)
        kept.append(staged.slice(0))
        kept[-1][:] = number
        del staged
    used = program.stage("x", 2)
    used.slice(0)[:], used.slice(1)[:] = 10, 20
    for array in kept:
        array[:] = 99
    program.write(used)
    for array in kept:
        array[:] = 77
    program.run(steps=2)
    assert program.records("sum").tolist() == [120.0, 240.0]
    gone = weakref.ref(kept[0])
    kept.clear()
    assert gone() is None  # without the garbage collector


def test_an_array_keeps_the_program(device):
    program = reader(device)
    array = program.stage("x", 1).slice(0)
    there = weakref.ref(program)
    del program
    gc.collect()
    array[:] = 1
    assert there() is not None and array.sum() == 12
    del array
    gc.collect()
    assert there() is None


def test_what_does_not_fit_is_refused(device):
    program = reader(device)
    slices = program.stage("x", 2)
    with pytest.raises(gs.Error, match="2"):
        slices.slice(2)
    with pytest.raises(gs.Error):
        reader(device).write(slices)
    program.write(slices)
    with pytest.raises(gs.Error):
        program.write(slices)
    with pytest.raises(gs.Error, match="no input or feed"):
        program.stage("y", 1)
