"""graphsink turns a training or inference graph, or the parts of it that allow it, into CUDA Graphs launched in one call.

    import graphsink as gs

A graph is built by functions on Values (gs.relu, gs.matmul, operators), either by hand in a gs.Graph or by a function
under @gs.program. compile() plans it for a device and returns a Program, which runs steps. Names, defaults and errors are
those of the C++ library; options are keyword arguments, shapes tuples, dtypes those of NumPy.
"""
from __future__ import annotations

import atexit as _atexit
import os as _os
from collections.abc import Mapping as _Mapping
from typing import Any as _Any

import numpy as _np

from graphsink import _core
from graphsink._core import *
from graphsink._core import Checkpoint, Eager, Graph, Program, Restored, Tensor, Value, Variable
from graphsink import _trees
from graphsink._context import current_eager as _current_eager
from graphsink._context import current_graph as current_graph, eager as eager
from graphsink._context import wait_for_programs as _wait_for_programs
from graphsink._control import grad as grad, if_ as if_, scan as scan, switch_ as switch_, while_ as while_
from graphsink._data import (
    Loader as Loader, StreamLoader as StreamLoader, batches as batches, source_of as source_of, tensor_source as tensor_source
)
from graphsink._error import Error as Error
from graphsink._host_op import HostOp as HostOp, host_op as host_op
from graphsink._mixed import program_of as _program_of, takes_a_graph as _takes_a_graph
from graphsink._optim import (
    Adamw as Adamw, ParameterGroup as ParameterGroup, Sgd as Sgd, adamw as adamw, apply as apply,
    exponential_average as exponential_average, sgd as sgd
)
from graphsink._program import TracedProgram as TracedProgram, Traced as Traced, feed as feed, input as input, program as program
from graphsink._train import evaluate as evaluate, train as train
from graphsink._types import bf16 as bf16

# What the modules of the package call, and no user.
for _name in ("HostFunction", "LoaderCore", "adamw_groups", "annotations", "exponential_average_values", "grad_values", "here",
              "host_op_values", "if_values", "require_dtype", "restore_program", "restore_variables", "run_evaluation", "run_training",
              "scan_values", "set_package_folder", "sgd_groups", "snapshot_program", "snapshot_variables", "StreamLoaderCore",
              "switch_values", "tensor_source_of", "while_values"):
    globals().pop(_name, None)

compile = _takes_a_graph(_core.compile)
write_graph = _takes_a_graph(_core.write_graph)

_atexit.register(_wait_for_programs)
_core.set_package_folder(_os.path.dirname(_os.path.abspath(__file__)) + _os.sep)

f32 = _np.dtype(_np.float32)
f64 = _np.dtype(_np.float64)
f16 = _np.dtype(_np.float16)
i32 = _np.dtype(_np.int32)
i64 = _np.dtype(_np.int64)
u8 = _np.dtype(_np.uint8)
boolean = _np.dtype(_np.bool_)

__version__: str = _core.version()


class _Cuda:
    """gs.cuda(0) is a CUDA device, and gs.cuda.is_available() says whether there is one."""

    def __call__(self, index: int = 0) -> _core.DeviceId:
        return _core.cuda_device(index)

    @staticmethod
    def is_available() -> bool:
        """Whether a CUDA device can be used: there is one, with its driver, and this build has CUDA."""
        return _core.cuda_device_count() > 0


cuda = _Cuda()


def tensor(data: _Any, dtype: _Any = None) -> Value:
    """A Value of these elements: within gs.eager() one that is computed already, within a function of @gs.program a constant
    of its graph. An array keeps its dtype, and another one as `dtype` is an Error; numbers become `dtype`, or f32."""
    graph = current_graph()
    if graph is not None:
        return graph.constant(data, dtype)
    current = _current_eager()
    if current is None:
        raise TypeError("gs.tensor() belongs to no graph here; use it within gs.eager() or a function of @gs.program, or call "
                        "Graph.constant() or Eager.tensor()")
    return current.tensor(data, dtype)


def variables(tree: _Any, prefix: str = "") -> _Any:
    """Variables for a tree of arrays, in the form of the tree: those of {"layer": {"w": ...}} are named "layer.w"."""
    names = [f"{prefix}.{name}" if prefix and name else prefix or name for name in _trees.names(tree)]
    made = [Variable(name, leaf) for name, leaf in zip(names, _trees.leaves(tree))]
    return _trees.like(tree, iter(made))


def snapshot(of: Program | TracedProgram | _Any) -> Checkpoint:
    """Copies the Variables of a program, and the number of its next step; or those of a tree of Variables."""
    if isinstance(of, (Program, TracedProgram, Traced, Graph)):
        return _core.snapshot_program(_program_of(of, "snapshot"))
    return _core.snapshot_variables(_trees.leaves(of))


def restore(to: Program | TracedProgram | _Any, checkpoint: Checkpoint, *, allow_missing: bool = False, allow_unused: bool = False,
            convert: bool = False, without_step: bool = False, log: _Any = None) -> Restored:
    """Writes each tensor to the Variable of the same name, of a program, whose step becomes that of the checkpoint, or of a
    tree of Variables. Everything is checked before anything is written.

    allow_missing: Variables that are not in the checkpoint keep their values. allow_unused: tensors without a Variable are
    ignored. convert: elements are converted to the Variable's dtype. without_step: a program keeps its step. log: a function
    that takes warnings."""
    if isinstance(to, (Program, TracedProgram, Traced, Graph)):
        return _core.restore_program(_program_of(to, "restore"), checkpoint, allow_missing=allow_missing, allow_unused=allow_unused, convert=convert,
                                     without_step=without_step, log=log)
    return _core.restore_variables(_trees.leaves(to), checkpoint, allow_missing=allow_missing, allow_unused=allow_unused,
                                   convert=convert, log=log)


def save(path: _Any, of: Program | TracedProgram | _Any, metadata: _Mapping[str, str] | None = None) -> None:
    """Writes snapshot(of) to a safetensors file, so that after a crash the file is the one before or the new one. `metadata` are
    texts of yours that go with it. Raises ValueError for one of a name that snapshot() uses itself, such as "step"."""
    copied = snapshot(of)
    taken = sorted(set(copied.metadata) & set(metadata or {}))
    if taken:
        raise ValueError(f'save: metadata has "{taken[0]}", which save() itself writes for a program; give yours another name')
    _core.write_checkpoint(path, Checkpoint(copied.tensors, {**copied.metadata, **(metadata or {})}))


def load(path: _Any, to: Program | TracedProgram | _Any, **options: _Any) -> Restored:
    """restore(to, read_checkpoint(path))."""
    return restore(to, _core.read_checkpoint(path), **options)


def state_dict(of: Program | TracedProgram | _Any) -> dict[str, _Any]:
    """The Variables of a program, or of a tree, as arrays by name."""
    return {name: made.numpy() for name, made in snapshot(of).tensors.items()}


def load_state_dict(to: Program | TracedProgram | _Any, state: _Mapping[str, _Any], **options: _Any) -> Restored:
    """Writes arrays, such as those of a state_dict() of PyTorch on the CPU, to the Variables of the same names. A Variable of bf16,
    which NumPy does not have, takes an array of float32 without `convert`, if bf16 holds all of its numbers."""
    is_program = isinstance(to, (Program, TracedProgram, Traced, Graph))
    variables = _program_of(to, "load_state_dict").variables if is_program else _trees.leaves(to)
    of_bf16 = {each.name for each in variables if isinstance(each, Variable) and each.dtype == bf16}
    tensors = {name: _as_bf16(data) if name in of_bf16 else data for name, data in state.items()}
    return restore(to, Checkpoint(tensors), without_step=True, **options)


def _as_bf16(data: _Any) -> _Any:
    """The same numbers in bf16 if they are float32 and lose nothing by it, else what was given."""
    numbers = Tensor(data)
    if numbers.dtype != f32:
        return data
    made = numbers.to(bf16)
    return made if _np.array_equal(made.numpy(), numbers.numpy(), equal_nan=True) else data
