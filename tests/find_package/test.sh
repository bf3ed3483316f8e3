#!/usr/bin/env bash
# Installs the build in $1 and uses it from a project that knows only the prefix: y = 3 x is learned to w = 3.
set -euo pipefail

if [[ $# -ne 1 || ! -f $1/CMakeCache.txt ]]; then
  echo "usage: ${BASH_SOURCE[0]} BUILD_DIR (one that is configured and built)" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The value of an entry of the build's cache.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

flags=$(cached CMAKE_CXX_FLAGS)
sanitize=$(cached GRAPHSINK_SANITIZE)
[[ -z $sanitize ]] || flags+=" -fsanitize=$sanitize"

cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log"
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
