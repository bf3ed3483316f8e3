#!/usr/bin/env python3
"""The recipes of packaging/ belong to these sources: they have the version of the headers, name files that exist, set options
that CMakeLists.txt has and require what it looks for; and the port of vcpkg configures the sources with each of its features.

usage: recipes_test.py [--with-images] [--with-ranks]   (features whose libraries are on this machine)
"""
import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONAN = ROOT / "packaging" / "conan"
PORT = ROOT / "packaging" / "vcpkg" / "graphsink"
CMAKE = (ROOT / "CMakeLists.txt").read_text()
# The packages that CMake looks for: their names in Conan and in vcpkg. None is part of the system.
PACKAGES = {"OpenBLAS": ("openblas", "openblas"), "spdlog": ("spdlog", "spdlog"), "ZLIB": ("zlib", "zlib"),
            "nlohmann_json": ("nlohmann_json", "nlohmann-json"), "PNG": ("libpng", "libpng"), "JPEG": ("libjpeg-turbo", "libjpeg-turbo"),
            "LibArchive": ("libarchive", "libarchive"), "ZeroMQ": ("zeromq", "zeromq"), "cppzmq": ("cppzmq", "cppzmq"),
            "Threads": None, "Doxygen": None, "MPI": None}  # ranks are built on ZeroMQ, where both could be
FIELDS = {"name", "version", "description", "license", "supports", "dependencies", "features"}
with_features: list[str] = []


def version() -> str:
    numbers = re.findall(r"^#define GRAPHSINK_VERSION_[A-Z]+ (\d+)$", (ROOT / "include/graphsink/version.h").read_text(), re.M)
    return ".".join(numbers)


def class_values(path: pathlib.Path) -> dict[str, object]:
    """The fields of the one class of a recipe that are constants."""
    (recipe,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))
    return {node.targets[0].id: ast.literal_eval(node.value) for node in recipe.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}


def names(dependencies: list[str | dict[str, object]]) -> list[str]:
    return [item if isinstance(item, str) else str(item["name"]) for item in dependencies]


class Recipes(unittest.TestCase):
    def setUp(self) -> None:
        self.recipe = (CONAN / "conanfile.py").read_text()
        self.conan = class_values(CONAN / "conanfile.py")
        self.port = (PORT / "portfile.cmake").read_text()
        self.vcpkg = json.loads((PORT / "vcpkg.json").read_text())

    def test_versions_are_those_of_the_headers(self) -> None:
        self.assertEqual(self.conan["version"], version())
        self.assertEqual(self.vcpkg["version"], version())
        page, (minor, _) = (ROOT / "docs/start-cpp.md").read_text(), version().rsplit(".", 1)
        for text in f"`libgraphsink.so.{minor}`", f"`libgraphsink{minor}`", f"--requires=graphsink/{version()} ":
            self.assertIn(text, page)

    def test_options_exist(self) -> None:
        declared = set(re.findall(r"(?:option|set)\((GRAPHSINK_[A-Z_]+)", CMAKE))
        for used in re.findall(r'cache_variables\["(GRAPHSINK_\w+)"\]', self.recipe), re.findall(r"-D(GRAPHSINK_\w+)=", self.port):
            self.assertGreaterEqual(len(set(used)), 6)
            self.assertLessEqual(set(used), declared)
        flavours = re.search(r"PROPERTY STRINGS (cpu .*)\)", CMAKE)
        assert flavours
        self.assertLessEqual(set(self.conan["options"]["flavour"]), set(flavours[1].split()))

    def test_packages_are_those_that_cmake_looks_for(self) -> None:
        looked_for = set()
        for file in ROOT / "CMakeLists.txt", ROOT / "cmake/images.cmake", ROOT / "cmake/ranks.cmake":
            text = re.sub(r"#.*", "", file.read_text())
            looked_for |= set(re.findall(r"find_package\((\w+)", text)) | set(re.findall(r"(\w+):lib[\w-]+-dev", text))
        self.assertEqual(looked_for | {"cppzmq"}, set(PACKAGES))
        for_conan = set(re.findall(r'self\.requires\("([\w-]+)/', self.recipe))
        features = self.vcpkg["features"]
        for_vcpkg = set(names(self.vcpkg["dependencies"])) - {"vcpkg-cmake", "vcpkg-cmake-config"}
        for_vcpkg |= set(names(features["images"]["dependencies"])) | set(names(features["ranks"]["dependencies"]))
        self.assertEqual(for_conan, {both[0] for both in PACKAGES.values() if both})
        self.assertEqual(for_vcpkg, {both[1] for both in PACKAGES.values() if both})
        profile = (CONAN / "debian12.profile").read_text()
        self.assertEqual(set(re.findall(r"^([\w-]+)/", profile, re.M)), for_conan | {"cmake"})

    def test_compilers_are_those_that_cmake_takes(self) -> None:
        (assigned,) = (node for node in ast.parse(self.recipe).body if isinstance(node, ast.Assign))
        compilers = ast.literal_eval(assigned.value)
        self.assertIn(f"g++ {compilers['gcc']} or clang {compilers['clang']}, or newer", CMAKE)

    def test_the_manifest_has_the_form_of_vcpkg(self) -> None:
        self.assertEqual(set(self.vcpkg), FIELDS)
        self.assertRegex(self.vcpkg["name"], r"^[a-z0-9]+(-[a-z0-9]+)*$")
        self.assertRegex(self.vcpkg["version"], r"^\d+(\.\d+)*$")
        self.assertEqual(self.vcpkg["license"], self.conan["license"])
        for feature in self.vcpkg["features"].values():
            self.assertEqual(set(feature), {"description", "dependencies"})
        for dependencies in [self.vcpkg["dependencies"], *(feature["dependencies"] for feature in self.vcpkg["features"].values())]:
            self.assertEqual(names(dependencies), sorted(names(dependencies)))
            for item in dependencies:
                self.assertLessEqual(set(item) if isinstance(item, dict) else set(), {"name", "features", "host"})
        self.assertEqual(set(re.findall(r'"(\w+)" IN_LIST FEATURES', self.port)), set(self.vcpkg["features"]))

    def test_files_exist(self) -> None:
        for name in re.findall(r'CMAKE_CURRENT_LIST_DIR}/([\w.-]+)"', self.port):
            self.assertTrue((PORT / name).is_file(), name)
        self.assertTrue((CONAN / "test_package" / "conanfile.py").is_file())
        self.assertTrue((ROOT / "LICENSE").is_file())
        readme = (ROOT / "packaging" / "README.md").read_text()
        for name in re.findall(r"`((?:packaging|tests)/[\w./-]+)`", readme):
            self.assertTrue((ROOT / name).exists(), name)

    def test_the_port_configures_the_sources(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for features in [], with_features:
                out = pathlib.Path(folder) / f"with{len(features)}"
                ran = subprocess.run(
                    ["cmake", f"-DOUT={out}", f"-DSOURCES={ROOT}", f"-DFEATURES={';'.join(features)}", "-P",
                     ROOT / "tests/package/vcpkg_port.cmake"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(ran.returncode, 0, ran.stdout)
                share = out / "packages/share/graphsink"
                self.assertEqual(sorted(file.name for file in share.iterdir()), ["copyright", "usage"])
                copyright_text = (share / "copyright").read_text()
                for name in "Apache License", "NVIDIA", "Victor Zverovich":
                    self.assertIn(name, copyright_text)
                cache = (out / "Release/CMakeCache.txt").read_text()
                self.assertIn("GRAPHSINK_FLAVOUR:STRING=cpu", cache)
                for feature in "images", "ranks":
                    self.assertIn(f"GRAPHSINK_{feature.upper()}:STRING={'ON' if feature in features else 'OFF'}", cache)


if __name__ == "__main__":
    with_features = [name for name in ("images", "ranks") if f"--with-{name}" in sys.argv]
    unittest.main(argv=sys.argv[:1] + [argument for argument in sys.argv[1:] if not argument.startswith("--with-")])
