"""A recipe for Conan 2. packaging/README.md says how to use it, and what has been tried."""
import os

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import check_sha256, copy, get, unzip
from conan.tools.scm import Version

# The oldest compilers that CMakeLists.txt takes.
COMPILERS = {"gcc": "12", "clang": "16"}


class Graphsink(ConanFile):
    name = "graphsink"
    version = "0.2.0"
    description = "Computation graphs as CUDA Graphs launched in one call"
    license = "Apache-2.0"
    topics = ("cuda", "cuda-graphs", "machine-learning")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "flavour": ["cpu", "cuda"], "images": [True, False], "ranks": [True, False]}
    default_options = {"shared": False, "flavour": "cpu", "images": False, "ranks": False,
                       # A static one would need what it was built with by name, which graphsink::ranks does not know.
                       "zeromq/*:shared": True,
                       # Without threads OpenBLAS takes no locks, and products of several threads are wrong.
                       "openblas/*:use_thread": True}
    # The archive of packaging/source_archive.sh may lie beside this file.
    exports_sources = "graphsink-*.tar.xz"

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("graphsink runs on Linux")
        compiler = str(self.settings.compiler)
        if compiler not in COMPILERS or Version(self.settings.compiler.version) < COMPILERS[compiler]:
            raise ConanInvalidConfiguration("graphsink needs g++ 12 or clang 16, or newer")
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self, src_folder="sources")

    def requirements(self):
        self.requires("openblas/[>=0.3.20 <1]")
        self.requires("spdlog/[>=1.10 <2]")
        self.requires("zlib/[>=1.2.11 <2]")
        self.requires("nlohmann_json/[>=3.9 <4]", visible=False)  # its headers alone, in the library's sources alone
        if self.options.images:
            self.requires("libpng/[>=1.6 <2]")
            self.requires("libjpeg-turbo/[>=2 <4]")
            self.requires("libarchive/[>=3.6 <4]")
        if self.options.ranks:
            self.requires("zeromq/[>=4.3 <5]")
            self.requires("cppzmq/[>=4.8 <5]", visible=False)  # likewise

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25 <5]")

    def source(self):
        archive = self.conf.get("user.graphsink:archive", check_type=str)
        sha256 = self.conf.get("user.graphsink:sha256", check_type=str)
        if archive and "://" in archive:
            get(self, archive, sha256=sha256, strip_root=True)
            return
        archive = archive or os.path.join(self.export_sources_folder, f"graphsink-{self.version}.tar.xz")
        if not os.path.isfile(archive):
            raise ConanException(f"there is no {archive}: put the archive of packaging/source_archive.sh beside conanfile.py, or "
                                 "name it by -c user.graphsink:archive=, a path or a URL")
        if sha256:
            check_sha256(self, archive, sha256)
        unzip(self, archive, strip_root=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["GRAPHSINK_FLAVOUR"] = str(self.options.flavour)
        toolchain.cache_variables["GRAPHSINK_IMAGES"] = "ON" if self.options.images else "OFF"
        toolchain.cache_variables["GRAPHSINK_RANKS"] = "ON" if self.options.ranks else "OFF"
        toolchain.cache_variables["GRAPHSINK_PYTHON"] = "OFF"
        toolchain.cache_variables["GRAPHSINK_BUILD_TESTS"] = "OFF"
        toolchain.cache_variables["GRAPHSINK_BUILD_SAMPLES"] = "OFF"
        toolchain.cache_variables["CMAKE_UNITY_BUILD"] = "ON"  # several files as one, which takes less time
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        licenses = os.path.join(self.package_folder, "licenses")
        copy(self, "LICENSE", self.source_folder, licenses)
        # Of what is compiled in; the others are those of the Python package.
        copy(self, "*.txt", os.path.join(self.source_folder, "packaging", "licenses"), licenses,
             excludes=("nanobind.txt", "robin-map.txt"))
        CMake(self).install()

    def package_info(self):
        # CMake reads the package's own files, which have graphsink_device_sources() and the components, too.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "graphsink")]
        # What generators for other tools read. They link the CUDA runtime themselves.
        self.cpp_info.libs = ["graphsink"]
        self.cpp_info.system_libs = ["pthread", "dl"]
