#!/usr/bin/env bash
# Each public header compiles alone, without a warning, with every compiler at hand, also with what the package of the
# flavour emulated defines for its users; a CUDA body in a file that no CUDA
# compiler sees does not, and says why; nor does a program in C++17.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
warnings=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
failed=0

# compile HEADER COMPILER ARGUMENT...
# shellcheck disable=SC2317  # xargs calls it
compile() {
  local header=$1 one
  shift
  one=$(mktemp -d -p "$scratch")
  echo "#include \"graphsink/$header\"" >"$one/one.cpp"
  "$@" -std=c++20 -I"$root/include" -c "$one/one.cpp" -o "$one/one.o" 2>"$one/messages" && return
  echo "$1: include/graphsink/$header does not compile alone:"
  head -n 20 "$one/messages"
  return 1
}
export -f compile
export root scratch

# check COMPILER ARGUMENT...: all headers, as many at a time as there are cores.
check() {
  local headers=("$root"/include/graphsink/*.h)
  printf '%s\0' "${headers[@]##*/}" |
    xargs -0 -P "$(nproc)" -I '{}' bash -c 'compile "$@"' compile '{}' "$@" || failed=1
  echo "$1: ${#headers[@]} headers"
}

compilers=(g++)
for version in 16 17 18 19 20; do
  if command -v "clang++-$version" >/dev/null; then compilers+=("clang++-$version"); fi
done
# As every file of a program that links the package of the flavour emulated, where .cu files alone may have kernels.
emulated=(-DGRAPHSINK_CUDA -DGRAPHSINK_EMULATED)
for compiler in "${compilers[@]}"; do check "$compiler" "${warnings[@]}"; done
check g++ "${warnings[@]}" "${emulated[@]}"
for nvcc in nvcc /usr/local/cuda/bin/nvcc; do
  if command -v "$nvcc" >/dev/null; then
    check "$nvcc" -x cu -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow --Werror all-warnings
    break
  fi
done

cat >"$scratch/launch.cpp" <<'CPP'
#include "graphsink/cuda.h"
void kernel(int);
void body(graphsink::CudaArgs& a) { a.launch(kernel, {}, {}, 0, 1); }
CPP
for compiler in "${compilers[@]}"; do
  if "$compiler" -std=c++20 -I"$root/include" -fsyntax-only "${emulated[@]}" "$scratch/launch.cpp" 2>"$scratch/messages"; then
    echo "$compiler: CudaArgs::launch() compiles where no CUDA compiler sees it"
    failed=1
  elif ! grep -q 'put the CUDA body into a .cu file' "$scratch/messages"; then
    echo "$compiler: CudaArgs::launch() does not say what to do:"
    head -n 20 "$scratch/messages"
    failed=1
  fi
done

# An older standard is refused in one line, in place of hundreds about concepts and ranges.
echo '#include "graphsink/graphsink.h"' >"$scratch/old.cpp"
for compiler in "${compilers[@]}"; do
  if "$compiler" -std=c++17 -I"$root/include" -fsyntax-only "$scratch/old.cpp" 2>"$scratch/messages" ||
    [[ $(grep -c 'error: ' "$scratch/messages") != 1 ]] || ! grep -q 'graphsink needs C++20' "$scratch/messages"; then
    echo "$compiler: C++17 is not refused in one line:"
    head -n 20 "$scratch/messages"
    failed=1
  fi
done
exit "$failed"
