"""What C++ computes (python_expected.cpp), and what its headers declare."""
from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
from typing import Any

import graphsink as gs

SOURCES = pathlib.Path(__file__).resolve().parents[2]


def written_by_cpp(path: pathlib.Path, *arguments: str) -> gs.Checkpoint:
    """What python_expected writes, which the build puts beside the package."""
    program = pathlib.Path(gs.__file__).parents[1] / "python_expected"
    assert program.exists(), f"{program} is missing: build the target python_expected"
    subprocess.run([program, *arguments, path], check=True, timeout=100)
    return gs.read_checkpoint(path)


def make_ops() -> Any:
    """The script that makes the bindings of ops, as a module."""
    spec = importlib.util.spec_from_file_location("make_ops", SOURCES / "python" / "make_ops.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_ops"] = module
    spec.loader.exec_module(module)
    return module


def header(name: str) -> str:
    """The text of a public header, without comments."""
    text = (SOURCES / "include" / "graphsink" / name).read_text(encoding="utf-8")
    return "\n".join(line.partition("//")[0].rstrip() for line in text.split("\n"))
