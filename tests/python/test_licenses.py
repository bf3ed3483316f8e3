"""A wheel holds the licences of what is compiled into it. Only where the package was installed by pip."""
import importlib.metadata
import pathlib
import re

import graphsink as gs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LICENSES = ROOT / "packaging" / "licenses"


def wheel() -> importlib.metadata.Distribution:
    """The distribution that the imported package belongs to. One that is installed beside a package of CMake is another."""
    try:
        found = importlib.metadata.distribution("graphsink")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package was not installed by pip")
    if not pathlib.Path(str(found.locate_file("graphsink/__init__.py"))).resolve() == pathlib.Path(gs.__file__).resolve():
        pytest.skip("the package that is imported was not installed by pip")
    return found


def test_a_wheel_has_the_licences() -> None:
    distribution = wheel()
    installed = {path.name: path for path in distribution.files or [] if ".dist-info/licenses/" in path.as_posix()}
    expected = [ROOT / "LICENSE", *sorted(LICENSES.glob("*.txt"))]
    assert set(installed) == {path.name for path in expected}
    for path in expected:
        assert pathlib.Path(str(installed[path.name].locate())).read_text() == path.read_text(), path.name
    assert distribution.metadata["License-Expression"] == "Apache-2.0"


def test_each_licence_has_its_row() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+\.txt)` \| ([^|]+) \|", (LICENSES / "README.md").read_text(), re.M))
    assert set(rows) == {path.name for path in LICENSES.glob("*.txt")}
    pinned = re.search(r"^nanobind==(.+)$", (ROOT / "python" / "requirements.txt").read_text(), re.M)
    assert pinned and rows["nanobind.txt"] == pinned[1]
    nanobind = importlib.metadata.distribution("nanobind")
    if nanobind.version == pinned[1]:
        (text,) = (path for path in nanobind.files or [] if path.name == "LICENSE")
        assert pathlib.Path(str(text.locate())).read_text() == (LICENSES / "nanobind.txt").read_text()
