#!/usr/bin/env bash
# Uses the build in $1 as other projects do, which know nothing of its folders: y = 3 x is learned to w = 3, and ops in a
# .cu file of the project do what own_op.cu checks; a program that is written for nvcc (guest.cu) runs where the flavour has
# CUDA. The library is installed and found by find_package() and, in the
# flavour cpu, by pkg-config and in the packages of cpack, as a static and as a shared library; it is built inside of
# another project by add_subdirectory() and FetchContent. A compiler that is too old is refused.
set -euo pipefail

if [[ $# -ne 1 || ! -f $1/CMakeCache.txt ]]; then
  echo "usage: ${BASH_SOURCE[0]} BUILD_DIR (one that is configured and built)" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$source/../.." && pwd)
scratch=$build/package_test
# Beside the build, and with its options: so a compiler cache knows the objects of the shared library.
shared=$build.shared
rm -rf "$scratch" "$shared"
mkdir "$scratch"
trap 'rm -rf "$scratch" "$shared"' EXIT

fail() {
  echo "package test: $*" >&2
  exit 1
}

# The value of an entry of the build's cache.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

flags=$(cached CMAKE_CXX_FLAGS)
sanitize=$(cached GRAPHSINK_SANITIZE)
[[ -z $sanitize ]] || flags+=" -fsanitize=$sanitize"
flavour=$(cached GRAPHSINK_FLAVOUR)
compiler=$(cached CMAKE_CXX_COMPILER)
# Those of the build, for the builds of the library.
library_options=("-DCMAKE_CXX_COMPILER=$compiler" -DCMAKE_BUILD_TYPE=RelWithDebInfo
  "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=$(cached CMAKE_CXX_FLAGS_RELWITHDEBINFO)")

has_images=OFF
[[ ! -e $build/libgraphsink_images.a ]] || has_images=ON
has_ranks=OFF
[[ ! -e $build/libgraphsink_ranks.a ]] || has_ranks=ON

# quietly LOG COMMAND...: shows the output of a command only if it fails.
quietly() {
  local log=$scratch/$1.log
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    fail "failed: $*"
  fi
}

# check_programs FOLDER: the programs of a project that was built in the folder.
check_programs() {
  local output
  output=$("$1/uses_graphsink")
  [[ $output == "loss "*", w 3" ]] || fail "$1: expected 'loss ..., w 3', not '$output'"
  output=$("$1/own_op")
  local expected="own ops on cpu"
  [[ $flavour != emulated ]] || expected+=" and cuda" # the software device is always there
  [[ $output == "$expected"* ]] || fail "$1: expected '$expected', not '$output'"
  if [[ -x $1/own_images ]]; then
    output=$("$1/own_images" "$1/images")
    [[ $output == "images: 1 of class dot, pixel 130" ]] || fail "$1: expected an image, not '$output'"
  fi
  if [[ -x $1/own_ranks ]]; then
    output=$("$1/own_ranks")
    [[ $output == "rank 0 of 1: 3" ]] || fail "$1: expected a rank, not '$output'"
  fi
  [[ $flavour != cpu ]] || return 0
  output=$("$1/guest")
  expected='guest: '
  [[ $flavour != emulated ]] || expected+=right
  [[ $output == "$expected"* ]] || fail "$1: expected '$expected', not '$output'"
}

# check_prefix NAME PREFIX: find_package() in a project that knows only the prefix.
check_prefix() {
  local name=$1 prefix=$2
  # The package can be moved to another machine: it names no folder of the build or of the sources.
  if grep -rnF -e "$build" -e "$root" "$prefix" --include='*.cmake' --include='*.pc'; then
    fail "expected no path of the build in the package"
  fi
  cp -r "$source" "$scratch/$name.project"
  quietly "$name.configure" cmake -G Ninja -S "$scratch/$name.project" -B "$scratch/$name" \
    "-DCMAKE_PREFIX_PATH=$prefix" "-DCMAKE_CXX_COMPILER=$compiler" "-DCMAKE_CXX_FLAGS=$flags" "-DUSES_IMAGES=$has_images" "-DUSES_RANKS=$has_ranks"
  quietly "$name.build" cmake --build "$scratch/$name"
  # As Conan's toolchains set it.
  quietly "$name.prefer_config" cmake -S "$scratch/$name.project" -B "$scratch/$name.prefer_config" -G Ninja \
    "-DCMAKE_PREFIX_PATH=$prefix" "-DCMAKE_CXX_COMPILER=$compiler" "-DCMAKE_CXX_FLAGS=$flags" -DCMAKE_FIND_PACKAGE_PREFER_CONFIG=ON
  check_programs "$scratch/$name"
  echo "$name: find_package() works"
}

# check_pkg_config NAME PREFIX: a compiler with the flags that pkg-config gives.
check_pkg_config() {
  local name=$1 pc arguments
  pc=$(find "$2" -name graphsink.pc)
  read -ra arguments <<<"$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs graphsink)"
  mkdir "$scratch/$name"
  "$compiler" "$source/main.cpp" "${arguments[@]}" -o "$scratch/$name/uses_graphsink"
  "$compiler" -x c++ -include "$root/kernels/support/host_builtins.h" "$source/own_op.cu" -x none "${arguments[@]}" \
    -o "$scratch/$name/own_op"
  check_programs "$scratch/$name"
  echo "$name: pkg-config works, version $(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --modversion graphsink)"
}

# check_licenses FILE: the licence of the library, and those of the headers whose code is in it.
check_licenses() {
  local name
  [[ -f $1 ]] || fail "expected the licences in $1"
  grep -q 'Apache License' "$1" || fail "expected the Apache License in $1"
  for name in nlohmann-json spdlog fmt; do
    grep -qxF -- "---- It contains code of $name:" "$1" || fail "expected the licence of $name in $1"
    grep -qF "$(sed -n '/^Copyright/{p;q}' "$root/packaging/licenses/$name.txt")" "$1" || fail "expected the text of $name in $1"
  done
}

# check_packages NAME BUILD PACKAGE...: what cpack makes of a build, unpacked into clean folders.
check_packages() {
  local name=$1 of=$2 package
  shift 2
  quietly "$name.cpack" cpack --config "$of/CPackConfig.cmake" -B "$scratch/$name.packages" -G 'DEB;TGZ'
  mkdir "$scratch/$name.root" "$scratch/$name.tar"
  for package in "$@"; do
    dpkg -x "$(find "$scratch/$name.packages" -maxdepth 1 -name "${package}_*.deb")" "$scratch/$name.root"
    check_licenses "$scratch/$name.root/usr/share/doc/$package/copyright"
  done
  [[ $(find "$scratch/$name.packages" -maxdepth 1 -name '*.deb' | wc -l) == "$#" ]] || fail "expected $# packages: $*"
  tar -xzf "$(find "$scratch/$name.packages" -maxdepth 1 -name '*.tar.gz')" -C "$scratch/$name.tar" --strip-components=1
}

quietly install cmake --install "$build" --prefix "$scratch/prefix"
check_licenses "$scratch/prefix/share/doc/libgraphsink-dev/copyright"
check_prefix installed "$scratch/prefix"

if [[ $flavour == cpu && -z $sanitize ]]; then
  check_pkg_config pkg-config "$scratch/prefix"
  check_packages static "$build" libgraphsink-dev
  check_prefix static-deb "$scratch/static.root/usr"
  check_prefix static-tar "$scratch/static.tar"

  echo "building the shared library"
  quietly shared.configure cmake -G Ninja -S "$root" -B "$shared" "${library_options[@]}" \
    "-DGRAPHSINK_WERROR=$(cached GRAPHSINK_WERROR)" "-DCMAKE_UNITY_BUILD=$(cached CMAKE_UNITY_BUILD)" -DBUILD_SHARED_LIBS=ON -DGRAPHSINK_BUILD_TESTS=OFF \
    -DGRAPHSINK_BUILD_SAMPLES=OFF -DCMAKE_INSTALL_PREFIX=/usr
  quietly shared.build cmake --build "$shared"
  version=$(sed -n 's/^Version: //p' "$shared/graphsink.pc")
  library=$shared/libgraphsink.so.$version
  readelf -d "$library" | grep -q "soname: \[libgraphsink.so.${version%.*}\]" || fail "expected the soname .so.${version%.*}"
  # Of the library nothing can be seen but what the headers declare, and what the compiler makes of std templates.
  nm -DC --defined-only "$library" | cut -c 20- >"$scratch/symbols"
  if grep -v -E 'graphsink::|(^| )std::|__gnu_cxx::|__gnu_cxx|^guard variable for std::' "$scratch/symbols"; then
    fail "expected these symbols to be hidden"
  fi
  if grep -E 'graphsink::(Session|BoundPlan|CpuDevice|StepRunner|Walk|add_op)' "$scratch/symbols"; then
    fail "expected what no public header declares to be hidden"
  fi
  check_packages shared "$shared" libgraphsink-dev "libgraphsink${version%.*}"
  libraries=$(dirname "$(find "$scratch/shared.root" -name 'libgraphsink.so')")
  export LD_LIBRARY_PATH=$libraries
  check_prefix shared-deb "$scratch/shared.root/usr"
  check_pkg_config shared-pkg-config "$scratch/shared.root/usr"
  check_prefix shared-tar "$scratch/shared.tar"
  unset LD_LIBRARY_PATH
fi

# parent TEXT: a project that contains graphsink, which the text brings in. The library's build folder is named, so that
# both ways to bring it in share its objects. No compiler cache knows these: they are compiled without optimization, and
# several files as one.
parent() {
  mkdir -p "$scratch/inside.project"
  cat >"$scratch/inside.project/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
$1
add_executable(uses_graphsink $source/main.cpp)
target_link_libraries(uses_graphsink PRIVATE graphsink::graphsink)
add_executable(own_op $source/own_op.cu)
target_link_libraries(own_op PRIVATE graphsink::graphsink)
graphsink_device_sources(own_op)
TEXT
  quietly inside.configure cmake -G Ninja -S "$scratch/inside.project" -B "$scratch/inside" "${library_options[@]}" \
    -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -DCMAKE_UNITY_BUILD=ON
}

parent "add_subdirectory($root graphsink)"
grep -q '^-- graphsink: flavour cpu, the default, because GRAPHSINK_FLAVOUR is not set; .*=cuda .*=emulated' \
  "$scratch/inside.configure.log" || fail "expected the project inside of another to say which flavour it took, and why"
ninja -C "$scratch/inside" -t targets all >"$scratch/targets"
if grep -E 'test_api|graphsink-bench|train_mnist' "$scratch/targets"; then
  fail "expected no tests and no samples inside of another project"
fi
if ! grep -q "FLAGS = .*-include $root/kernels/support/host_builtins.h" "$scratch/inside/build.ninja" ||
  ! grep -q 'own_op[.]cu[.]o' "$scratch/inside/build.ninja"; then
  fail "expected graphsink_device_sources() to compile own_op.cu inside of another project"
fi
if grep -q -e -Werror "$scratch/inside/build.ninja"; then
  fail "expected warnings to be no errors inside of another project"
fi
quietly inside.install cmake --install "$scratch/inside" --prefix "$scratch/nothing"
[[ ! -e $scratch/nothing/include ]] || fail "expected nothing to be installed by another project"

if [[ $flavour == cpu && -z $sanitize ]]; then
  echo "building inside of other projects"
  quietly inside.build cmake --build "$scratch/inside" --target uses_graphsink own_op
  check_programs "$scratch/inside"
  echo "inside: add_subdirectory() works"
  rm "$scratch/inside/uses_graphsink" "$scratch/inside/own_op"
  parent "include(FetchContent)
FetchContent_Declare(graphsink SOURCE_DIR $root BINARY_DIR $scratch/inside/graphsink)
FetchContent_MakeAvailable(graphsink)"
  quietly fetched.build cmake --build "$scratch/inside" --target uses_graphsink own_op
  check_programs "$scratch/inside"
  echo "fetched: FetchContent works"
fi

# The compiler of the build, as if it were version 11.
cat >"$scratch/old-compiler" <<TEXT
#!/bin/sh
exec "$compiler" -U__GNUC__ -D__GNUC__=11 -U__clang_major__ -D__clang_major__=11 "\$@"
TEXT
chmod +x "$scratch/old-compiler"
if cmake -G Ninja -S "$root" -B "$scratch/old" -DCMAKE_CXX_COMPILER="$scratch/old-compiler" &>"$scratch/refusal" ||
  ! grep -q 'graphsink needs g++ 12 or clang 16, or newer; this is [A-Za-z]* 11' "$scratch/refusal"; then
  cat "$scratch/refusal"
  fail "expected a compiler of version 11 to be refused, with the versions that are needed"
fi
