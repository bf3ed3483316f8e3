"""Every Python program of the pages (docs/snippets) runs, and prints what the pages say."""
import pathlib
import sys

import pytest

import graphsink as gs

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import snippets  # noqa: E402


@pytest.mark.parametrize("name", sorted(path.name for path in snippets.SNIPPETS.glob("*.py")))
def test_a_program_of_the_pages_runs(name, monkeypatch):
    """On the CPU, but for those that are named cuda_*: what a device of software takes is of no interest here."""
    if name.startswith("cuda_"):
        if not gs.cuda.is_available():
            pytest.skip("it needs a CUDA device, or the software one")
    else:
        monkeypatch.setenv("GS_EMU_DEVICES", "0")
    assert snippets.run([sys.executable, str(snippets.SNIPPETS / name)], name) is None
