"""Every public name of the C++ headers has a binding, or stands here with the reason why not; and defaults are those of C++."""
from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import graphsink as gs
from expected import SOURCES, make_ops
from headers import Declared, declared

try:
    from graphsink import ranks
except ImportError:
    ranks = None  # NOT CHECKED: ranks.h, in a build without MPI

split_commas = make_ops().split_commas

# Headers for ops, kernels and devices that are written in C++, and for what only C++ needs.
HEADERS_OF_CPP = {
    "attrs.h", "axis_map.h", "body.h", "cuda.h", "device_functions.h", "external.h", "field_io.h", "file_op.h", "fields.h", "half.h", "kernel.h", "key.h", "op.h",
    "step_block.h", "stream.h", "version.h"}
HEADERS = sorted(path.name for path in (SOURCES / "include" / "graphsink").glob("*.h")
                 if path.name not in HEADERS_OF_CPP and (ranks or path.name != "ranks.h"))

KEYWORDS = "its members are keyword arguments"
LEFT_OUT = {
    "to_string": "str() and repr()", "line_of": "Error.file and Error.line", "operands": "lists of operands are taken as they are",
    "assign": "Variable.assign()", "bytes_text": "a text of reports", "is_sunk": "names of modes say it",
    "is_serial": "names of modes say it", "is_split": "names of modes say it", "kAllModes": "list(Mode)",
    "size_of": "dtype.itemsize", "is_half": "dtypes are NumPy's", "is_float": "dtypes are NumPy's", "dtype_of": "dtypes are NumPy's",
    "DType": "dtypes are NumPy's", "Shape": "a tuple", "TensorType": "dtype and shape", "Index": "slices of Python",
    "Arg": "Values, Variables and numbers", "Axes": "an integer or a tuple", "NewShape": "a tuple", "ResultSize": "an integer, a Bucket or None",
    "Scan": "a tuple", "Digits": "a dict of arrays", "Text": "str.encode() and NumPy", "IdxFile": "idx_source()",
    "read_idx": "idx_source()", "read_digits": "idx_source()", "seeded_digits": "for samples in C++", "read_text": "NumPy",
    "checksum": "zlib.crc32()", "CosineSchedule": KEYWORDS, "LinearSchedule": KEYWORDS, "StepSchedule": KEYWORDS,
    "OneCycleSchedule": KEYWORDS, "SgdOptions": "Sgd", "AdamwOptions": "Adamw", "StepAction": "a tuple", "StepValues": "a tuple",
    "LengthBucket": "a tuple", "Field": "a tuple", "u8_to_f32": "NumPy", "normalize": "NumPy", "flip_horizontal": "NumPy",
    "random_flip": "NumPy", "crop": "NumPy", "random_crop": "NumPy", "idle_share": "LoaderReport.idle_share",
    "workers_to_keep_up": "LoaderReport.workers_to_keep_up"}
CLASSES = {"Value", "Variable", "Graph", "Program", "Eager", "Tensor", "Loader", "SampleOrder", "Source", "Bucket", "Where", "Error", "SinkCache",
           "StreamLoader", "Comm"}
HANDLE = "a handle of C++"
LEFT_OUT_MEMBERS = {
    "Value.type": "dtype and shape", "Value.valid": HANDLE, "Value.graph": HANDLE, "Value.node": HANDLE, "Value.output": HANDLE,
    "Value.eager": HANDLE, "Variable.type": "dtype and shape", "Variable.valid": HANDLE, "Variable.data": HANDLE, "Graph.data": HANDLE,
    "Tensor.valid": HANDLE, "Tensor.require_valid": HANDLE, "Tensor.type": "dtype and shape", "Tensor.as": "numpy()", "Tensor.at": "numpy()",
    "Tensor.data": "numpy()", "Tensor.bytes": "numpy()", "Tensor.slice": "numpy()", "Tensor.concat": "numpy()", "Tensor.scalar": "Tensor(number)", "Tensor.full": "gs.full()",
    "Tensor.kaiming": "gs.kaiming()", "Tensor.xavier": "gs.xavier()", "Tensor.uniform": "gs.uniform()", "Tensor.normal": "gs.normal()",
    "Eager.read": "gs.read()", "Where.current": "the line of Python that calls",
    "Where.file_name": "Where.file", "Error.where": "Error.file, line and scope", "Loader.feeds": "__init__()",
    "Target.takes_further_devices": "compile() says it", "Target.has_profiled_nodes": "for profilers in C++",
    "Target.host_nodes_in_bodies": "explain() says it", "ValueMemory.type": "dtype and shape", "NewDim.size": "made by keep() alone",
    "StreamLoader.memory": "what data() gives keeps it",
    "StagedSlices.size": "len()", "StagedSlices.type": "dtype and shape", "StagedSlices.bytes": "slice()",
    "NewDim.kept": "made by keep() alone", "Placement.kind": "repr()", "Placement.device": "repr()", "Dim.bucket": "repr()",
    "Bucket.is_every_size": "repr()"}
if ranks:
    LEFT_OUT_MEMBERS["Comm.group"] = HANDLE
# Names that another change brings. It takes them out of this list, as a name that is there must not stand in it.
COMING: set[str] = set()

# Options: the functions that take their members as keywords, and other names that these have.
OPTIONS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "CompileOptions": (gs.compile, {}), "Tuning": (gs.Tuning.__init__, {}), "Limits": (gs.Limits.__init__, {}),
    "Guards": (gs.Guards.__init__, {}), "RunOptions": (gs.Program.run, {}), "WriteOptions": (gs.Program.write, {}),
    "RecordOptions": (gs.Graph.record, {}), "WhileOptions": (gs.while_, {}), "ScanOptions": (gs.scan, {}),
    "SgdOptions": (gs.sgd, {"gradients": ""}), "AdamwOptions": (gs.adamw, {"gradients": ""}), "GradientOptions": (gs.adamw, {}),
    "LossScale": (gs.LossScale.__init__, {}), "CosineSchedule": (gs.cosine_schedule, {}), "LinearSchedule": (gs.linear_schedule, {}),
    "StepSchedule": (gs.step_schedule, {}), "OneCycleSchedule": (gs.one_cycle_schedule, {}),
    "CheckpointOptions": (gs.write_checkpoint, {}), "WriteGraphOptions": (gs.write_graph, {}),
    "GraphFileOptions": (gs.read_graph, {}), "RestoreOptions": (gs.restore, {}), "LoaderOptions": (gs.Loader.__init__, {}),
    "StreamLoaderOptions": (gs.StreamLoader.__init__, {}),
    "OrderOptions": (gs.sample_order, {}), "TrainOptions": (gs.train, {}), "SaveOptions": (gs.SaveOptions.__init__, {}),
    "Patience": (gs.Patience.__init__, {}), "IdxSourceOptions": (gs.idx_source, {}), "TokenSourceOptions": (gs.token_source, {}),
    "NpzSourceOptions": (gs.npz_source, {}), "MatmulOptions": (gs.matmul, {}), "ReduceOptions": (gs.sum, {}), "VarOptions": (gs.var, {}),
    "SortOptions": (gs.sort, {}), "CumsumOptions": (gs.cumsum, {}), "Conv2dOptions": (gs.conv2d, {}), "Pool2dOptions": (gs.max_pool2d, {}),
    "CrossEntropyOptions": (gs.cross_entropy, {}), "AttentionOptions": (gs.attention, {}), "TopPOptions": (gs.sample_top_p, {}),
    "SinkOptions": (gs.SinkCache.__init__, {}), "SinkRunOptions": (gs.SinkCache.run, {}), "ImageOptions": (gs.image_folder_source, {}),
    "RandomPartOptions": (gs.RandomPart.__init__, {})}
if ranks:
    OPTIONS |= {"WorldOptions": (ranks.mpi_world, {}), "NcclOptions": (ranks.nccl_world, {}), "AllReduceOptions": (ranks.all_reduce, {}),
                "ReduceScatterOptions": (ranks.reduce_scatter, {}),
                "AverageOptions": (ranks.average, {})}
# Where Python says it in another way.
OTHER_DEFAULTS = {"progress": True}
# What C++ refuses to leave out when it runs, Python refuses when it is called.
REQUIRED = {"SaveOptions.folder", "Patience.metric", "Patience.evaluations", "TokenSourceOptions.length"}


def keywords(function: Any) -> dict[str, Any]:
    """The parameters of a function, of Python or of nanobind, and their defaults, Parameter.empty where there is none."""
    if not hasattr(function, "__nb_signature__"):
        return {p.name: p.default for p in inspect.signature(function).parameters.values()}
    found: dict[str, Any] = {}
    for signature, _, defaults in function.__nb_signature__:
        inside = signature[signature.index("(") + 1:signature.rindex(") ->")]
        for parameter in split_commas(inside):
            name, _, default = parameter.partition(":")
            number = re.search(r"\\=?(\d+)$", default)
            found.setdefault(name, defaults[int(number[1])] if number else inspect.Parameter.empty)
    return found


def is_default(seen: Any, written: str) -> bool:
    """Whether a default of Python is what C++ has as `written`."""
    if written == "{}":
        return seen in (None, "None", "") or not seen or seen == gs.anywhere or isinstance(seen, (gs.Tuning, gs.Limits, gs.Guards))
    if written in ("true", "false"):
        return seen is (written == "true")
    if match := re.fullmatch(r'"(.*)"', written):
        return seen == match[1]
    if match := re.fullmatch(r"(?:\w+::)*(\w+)(?:\(\))?", written):
        if not match[1][0].isdigit():
            name = match[1]
            return seen == getattr(gs, name, None) or getattr(seen, "name", None) == name or \
                (callable(getattr(gs, name, None)) and seen == getattr(gs, name)())
    if match := re.fullmatch(r"\{(.*)\}", written):
        numbers = tuple(int(part) for part in match[1].split(","))
        return seen == (numbers if len(numbers) > 1 else numbers[0])
    if match := re.fullmatch(r"std::\w+\{(\d+)\} << (\d+)", written):
        return seen == int(match[1]) << int(match[2])
    if written.endswith("::max()"):
        return seen == 2 ** 64 - 1
    return seen == float(written)


def all_declared() -> dict[str, Declared]:
    return {name: declared(name) for name in HEADERS}


def has(name: str) -> bool:
    """Whether the package has it, or its module for ranks."""
    return is_in(gs, name) or is_in(ranks, name)


def is_in(found: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def test_headers_are_read() -> None:
    every = all_declared()
    assert "matmul" in every["ops.h"].functions and "run" in every["program.h"].types["Program"].methods
    assert every["counters.h"].types["Counters"].members["kernels"] == "0" and "to_end" in every["graph.h"].constants
    assert every["mode.h"].types["Mode"].values[0] == "sink"


@pytest.mark.parametrize("header", HEADERS)
def test_names_have_bindings(header: str) -> None:
    made = declared(header)
    names = made.functions | set(made.types) | {name for name in made.constants if not re.match(r"k[A-Z]", name)}
    missing = {name for name in names if not has(name) and name not in LEFT_OUT and name not in COMING and name not in OPTIONS}
    assert not missing, f"{header}: bind these, or say in LEFT_OUT why not: {sorted(missing)}"


@pytest.mark.parametrize("header", HEADERS)
def test_members_have_bindings(header: str) -> None:
    missing = []
    for name, made in declared(header).types.items():
        if name in LEFT_OUT or name in OPTIONS or name in COMING or not has(name):
            continue
        members = {*made.members, *made.values, *(made.methods if name in CLASSES or not made.members else ())}
        missing += [f"{name}.{member}" for member in members]
    # A constructor of Python takes what is data in C++.
    missing = [m for m in missing if not has(m) and m not in LEFT_OUT_MEMBERS and m not in COMING and not is_annotated(m)]
    assert not missing, f"{header}: bind these, or say in LEFT_OUT_MEMBERS why not: {sorted(missing)}"


def is_annotated(member: str) -> bool:
    """Fields of dataclasses, and attributes that __init__() sets."""
    name, _, attribute = member.partition(".")
    of = getattr(gs if is_in(gs, name) else ranks, name)
    return attribute in getattr(of, "__annotations__", {}) or attribute in keywords(of.__init__)


@pytest.mark.parametrize("options", OPTIONS)
def test_options_are_keywords_with_the_defaults_of_cpp(options: str) -> None:
    (members,) = [made.types[options].members for made in all_declared().values() if options in made.types]
    function, names = OPTIONS[options]
    seen = keywords(function)
    assert members
    for member, written in members.items():
        name = names.get(member, member)
        if not name:
            continue
        assert name in seen, f"{options}.{member} is no keyword of {function.__name__}()"
        if f"{options}.{member}" in REQUIRED:
            assert seen[name] is inspect.Parameter.empty
        elif member in OTHER_DEFAULTS:
            assert seen[name] == OTHER_DEFAULTS[member]
        else:
            assert is_default(seen[name], written), f"{options}.{member}: {seen[name]!r}, in C++ {written}"


def test_both_sources_of_images_have_the_same_options() -> None:
    folder, tar = keywords(gs.image_folder_source), keywords(gs.tar_source)
    assert list(folder)[1:] == list(tar)[1:] and list(folder.values())[1:] == list(tar.values())[1:]


def test_options_of_optimizers_are_the_same_for_apply() -> None:
    for options, function in ((gs.Sgd, gs.sgd), (gs.Adamw, gs.adamw)):
        defaults = [{name: default for name, default in keywords(of).items() if default is not inspect.Parameter.empty}
                    for of in (options.__init__, function)]
        assert defaults[0] == defaults[1]


def test_public_names_have_docstrings() -> None:
    """Of Python's names that no list of C++ has, too. What only the package calls is not public."""
    missing = []
    for name, found in [*vars(gs).items(), *vars(ranks or gs).items()]:
        if name.startswith("_") or not str(getattr(found, "__module__", "")).startswith("graphsink") or isinstance(found, enum.Enum):
            continue
        if callable(found) and not said(found):
            missing.append(name)
        if inspect.isclass(found):
            missing += [f"{name}.{method}" for method, of in vars(found).items()
                        if callable(of) and not method.startswith("_") and not said(of)]
    assert not missing


def said(found: Any) -> str:
    if hasattr(found, "__nb_signature__"):
        return "".join(text or "" for _, text, *_ in found.__nb_signature__)
    return getattr(found, "__doc__", None) or ""


def test_lists_hold_nothing_that_is_there_or_gone() -> None:
    every = all_declared()
    names = {name for made in every.values() for name in made.functions | set(made.types) | made.constants}
    members = {f"{name}.{member}" for made in every.values() for name, of in made.types.items()
               for member in {*of.members, *of.methods, *of.values}}
    assert not {name for name in COMING if has(name)}, "take these out of COMING"
    assert not {name for name in LEFT_OUT if has(name) and name not in ("assign", "CosineSchedule", "one_hot")}
    assert not {name for name in LEFT_OUT_MEMBERS if has(name)}
    assert set(LEFT_OUT) <= names, sorted(set(LEFT_OUT) - names)
    assert set(LEFT_OUT_MEMBERS) <= members, sorted(set(LEFT_OUT_MEMBERS) - members)
