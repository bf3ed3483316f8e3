"""Ranks: processes that run one program together, each on data of its own, and exchange values by collectives, which are ops
of the graph.

    from graphsink import ranks

    comm = ranks.world()                                       # started by mpirun -n 4 python train.py, torchrun or srun
    ranks.broadcast_variables([w, b], comm)                    # all ranks begin with the values of rank 0
    gradients = ranks.average(gs.grad(loss, [w, b]), comm)
    gs.apply(gs.Adamw(lr=1e-3), [w, b], gradients)             # data-parallel: all ranks make one update
    return {"loss": ranks.all_reduce(loss, comm, reduction=ranks.Reduction.mean)}

All ranks build the same collectives, in the same order, and run the same steps; docs/ranks.md says what else they have in
common, and what is checked. Calls that wait for other ranks let other Python threads run.

A process that ends by an exception which nobody catches does not wait for the other ranks, and mpirun ends these. One that ends by
sys.exit() with a status that is not 0 waits for the steps of its programs alone. One that ends in order waits for the others where
MPI is finalised.
"""
from __future__ import annotations

import dataclasses as _dataclasses
import os as _os
import pathlib as _pathlib
import sys as _sys
from typing import Any as _Any

from graphsink import _context, _core, _optim, _trees, _types

try:
    from graphsink import _ranks  # type: ignore[attr-defined, unused-ignore]
    from graphsink._ranks import (  # type: ignore[import-not-found, unused-ignore]
        Comm as Comm, Reduction as Reduction, all_gather as all_gather, all_reduce as all_reduce, all_to_all as all_to_all,
        broadcast as broadcast, cross_entropy_parallel as cross_entropy_parallel, enter_parallel as enter_parallel,
        leave_parallel as leave_parallel, mpi_world as mpi_world, nccl_world as nccl_world,
        newest_sharded_checkpoint as newest_sharded_checkpoint, one_rank as one_rank, reduce_scatter as reduce_scatter,
        send_receive as send_receive, world as world
    )
except ImportError as _error:
    raise ImportError(
        "this package was built without graphsink.ranks; install MPI or ZeroMQ (on Debian: apt-get install libopenmpi-dev "
        f"openmpi-bin, or libzmq3-dev cppzmq-dev), and the package again, from its sources: pip install . --config-settings=cmake.define.GRAPHSINK_RANKS=ON ({_error})",
        name="graphsink._ranks") from _error

_BUCKET_BYTES = 4 << 20


def divided_variable(name: str, whole: _types.ArrayLike, axis: int, comm: Comm, dtype: _types.DTypeLike | None = None,
                     on: _core.Placement = _core.anywhere) -> _core.Variable:
    """The part of this rank of a parameter that is divided along an axis, as tensor parallelism does: a Variable named
    "<name>.part<r>", which begins with the r-th of as many equal parts of `whole` as there are ranks. `whole` is equal on all
    ranks, which all call this; `dtype` and `on` are as for Variable. With one rank it is Variable(name, whole).

    Parts are contiguous: a matrix that holds queries, keys and values has to be (w, 3, w), divided along axis 2. Optimizers need
    nothing else: a norm, of clip_norm or a loss scale, is that of the gradients of all parts, and of parameters that are not divided
    once; what an optimizer updates beside parts has equal values on all ranks, which they compare.

    In a checkpoint each rank saves the parts that it has, and reshard() makes them for another number of ranks. Raises Error where
    the axis cannot be divided."""
    made: _core.Variable = _ranks.divided_variable_of(name, _core.Variable(name, whole, dtype, on), axis, comm)
    return made


def average(values: _Any, comm: Comm, *, bucket_bytes: int = _BUCKET_BYTES, same_program: bool = True) -> _Any:
    """The means of each of these values over all ranks, for gradients: each is what one rank would compute of the mean loss of
    all data, if every rank has as much of it. `values` is a tree of Values, as grad() gives it, and so is the result.

    Tensors of one dtype are put together for one exchange, as long as they have no more than bucket_bytes together; a larger one
    is exchanged alone.

    The ranks train one program, and compare it before its first step: the ops by which they compute and apply the gradients, with
    types, attributes and numbers, and the values of the Variables that all ranks update alike. Say same_program=False, on all
    ranks, where these differ on purpose."""
    return _trees.like(values, iter(_ranks.average_values(_trees.leaves(values), comm, bucket_bytes, same_program)))


def apply_sharded(options: _optim.Sgd | _optim.Adamw, parameters: _Any, gradients: _Any, comm: Comm, *,
                  bucket_bytes: int = _BUCKET_BYTES, same_program: bool = True) -> _core.Optimizer:
    """apply(options, parameters, average(gradients, comm)) with the state of the optimizer divided among the ranks: each has one
    part of it, updates that part of every parameter, and gets the others from the other ranks (Rajbhandari et al. 2020, "ZeRO",
    stage 1). Parameters have the same bits, except that a norm, of clip_norm or a loss scale, may differ in the last bits.

    `gradients` are those of this rank, not averaged, and belong to parameters as in apply(). Of a parameter, rank r has
    "<parameter>.shard<r>", which begins with the value that the parameter has now: call broadcast_variables() before, and whoever
    overwrites the parameter later must overwrite the shards, too. Each rank saves Optimizer.variables() in a checkpoint of its
    own: in train(), in the folder of shard_folder(). reshard() makes those for another number of ranks.
    `bucket_bytes` and `same_program` are as for average()."""
    given = [getattr(options, field.name) for field in _dataclasses.fields(options)]
    bind = _ranks.apply_sharded_sgd if isinstance(options, _optim.Sgd) else _ranks.apply_sharded_adamw
    flat = _optim._gradients("apply_sharded", parameters, gradients)
    made: _core.Optimizer = bind(flat, _optim._groups(parameters), comm, bucket_bytes, same_program, *given)
    return made


def reshard(checkpoints: list[_core.Checkpoint], variables: _Any) -> _core.Checkpoint:
    """The checkpoint of this rank, for restore(), made from those of all ranks that saved one step, in the order of the ranks: for
    a training with apply_sharded() that goes on with another number of ranks, or as a single one with apply(), or the other way
    round. `variables` are those of the program that goes on: program.variables. Tensors that no Variable takes stay in the
    result. Raises Error for checkpoints of different steps, where shards are missing or have other sizes, and for a tensor that is
    no shard and not equal in all of them."""
    made: _core.Checkpoint = _ranks.reshard_variables(checkpoints, _optim._variables(variables))
    return made


def shard_folder(folder: str | _os.PathLike[str], comm: Comm, variables: _Any) -> _pathlib.Path:
    """The folder of this rank for train(), "<folder>/rank<r>-of-<size>", which is made if it is not there. All ranks call it, with
    a folder that all machines share, between compile() and train(), with program.variables.

    All ranks then go on from the newest step that all ranks have saved, with as many ranks as now or another number; newer files in
    this rank's folder are removed. A file in `folder` itself, of a training that divides nothing, counts as that of one rank. Let
    ranks write with in_background=False and keep_newest of at least 2, so that a step is there that all have. After a kill in the
    first save, which some ranks have finished and others have not, the training begins anew. Raises Error on all ranks where one
    of them cannot read or write, where they see different files, and where there are other files, but none of a step that all have."""
    made: _pathlib.Path = _ranks.shard_folder_of(folder, comm, _optim._variables(variables))
    return made


def broadcast_variables(variables: _Any, comm: Comm, root: int = 0) -> None:
    """Writes the values that rank `root` has to the Variables of all ranks, a tree of them, before the first step. Waits for all
    ranks. Raises Error where a rank has other types, and if a rank does not come."""
    _ranks.broadcast_variable_list(_optim._variables(variables), comm, root)


def _leave_steps(programs: list[_core.Program]) -> bool:
    """Where the process ends by an exception, its programs are left as they are: their steps may wait for other ranks, and other
    ranks for this one."""
    if not _ranks.has_other_ranks() or not hasattr(_sys, "last_value") or hasattr(_sys, "ps1"):
        return False
    for program in programs:
        _ranks.leave(program)
    return True


_context.leave_steps = _leave_steps
