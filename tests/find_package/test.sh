#!/usr/bin/env bash
# Installs the build in $1 and uses it from a project that knows only the prefix: y = 3 x is learned to w = 3, and ops in
# a .cu file of the project do what own_op.cu checks. Then a project that contains graphsink is configured: it gets the
# library, no tests, no samples, warnings stay warnings, and nothing is installed. A compiler that is too old is refused.
set -euo pipefail

if [[ $# -ne 1 || ! -f $1/CMakeCache.txt ]]; then
  echo "usage: ${BASH_SOURCE[0]} BUILD_DIR (one that is configured and built)" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$source/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The value of an entry of the build's cache.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

flags=$(cached CMAKE_CXX_FLAGS)
sanitize=$(cached GRAPHSINK_SANITIZE)
[[ -z $sanitize ]] || flags+=" -fsanitize=$sanitize"

cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
# The package can be moved to another machine: it names no folder of the build or of the sources.
if grep -rnF -e "$build" -e "$root" "$scratch/prefix" --include='*.cmake'; then
  echo "expected no path of the build in the package" >&2
  exit 1
fi
cp -r "$source" "$scratch/project"
cmake -G Ninja -S "$scratch/project" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$scratch/prefix" \
  -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" -DCMAKE_CXX_FLAGS="$flags"
cmake --build "$scratch/build"

output=$("$scratch/build/uses_graphsink")
echo "$output"
if [[ $output != "loss "*", w 3" ]]; then
  echo "expected 'loss ..., w 3'" >&2
  exit 1
fi
"$scratch/build/own_op" >"$scratch/own_op"
cat "$scratch/own_op"
expected="own ops on cpu"
[[ $(cached GRAPHSINK_FLAVOUR) != emulated ]] || expected+=" and cuda"  # the software device is always there
if [[ $(<"$scratch/own_op") != "$expected"* ]]; then
  echo "expected '$expected'" >&2
  exit 1
fi

mkdir "$scratch/parent"
cat >"$scratch/parent/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES CXX)
add_subdirectory($root graphsink)
add_library(uses_graphsink STATIC $source/main.cpp)
target_link_libraries(uses_graphsink PRIVATE graphsink::graphsink)
add_library(own_op STATIC $source/own_op.cu)
target_link_libraries(own_op PRIVATE graphsink::graphsink)
graphsink_device_sources(own_op)
TEXT
cmake -G Ninja -S "$scratch/parent" -B "$scratch/inside" -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)" >/dev/null
ninja -C "$scratch/inside" -t targets all >"$scratch/targets"
if grep -E 'test_api|graphsink-bench|train_mnist' "$scratch/targets"; then
  echo "expected no tests and no samples inside of another project"
  exit 1
fi
if ! grep -q "FLAGS = .*-include $root/kernels/support/host_builtins.h" "$scratch/inside/build.ninja" ||
  ! grep -q 'own_op[.]cu[.]o' "$scratch/inside/build.ninja"; then
  echo "expected graphsink_device_sources() to compile own_op.cu inside of another project"
  exit 1
fi
if grep -q -e -Werror "$scratch/inside/build.ninja"; then
  echo "expected warnings to be no errors inside of another project"
  exit 1
fi
cmake --install "$scratch/inside" --prefix "$scratch/nothing" >/dev/null
if [[ -e $scratch/nothing/include ]]; then
  echo "expected nothing to be installed by another project"
  exit 1
fi

# The compiler of the build, as if it were version 11.
cat >"$scratch/old-compiler" <<TEXT
#!/bin/sh
exec "$(cached CMAKE_CXX_COMPILER)" -U__GNUC__ -D__GNUC__=11 -U__clang_major__ -D__clang_major__=11 "\$@"
TEXT
chmod +x "$scratch/old-compiler"
if cmake -G Ninja -S "$root" -B "$scratch/old" -DCMAKE_CXX_COMPILER="$scratch/old-compiler" &>"$scratch/refusal" ||
  ! grep -q 'graphsink needs g++ 12 or clang 16, or newer; this is [A-Za-z]* 11' "$scratch/refusal"; then
  echo "expected a compiler of version 11 to be refused, with the versions that are needed"
  cat "$scratch/refusal"
  exit 1
fi
