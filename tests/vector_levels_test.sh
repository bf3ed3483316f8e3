#!/usr/bin/env bash
# The CPU bodies give the same bits with every set of vector instructions this processor has.
set -euo pipefail

if [[ $# -ne 1 || ! -x $1/test_models ]]; then
  echo "usage: ${BASH_SOURCE[0]} BIN_DIR (with test_models)" >&2
  exit 2
fi
expected=''
for level in baseline avx2 avx512; do
  bits=$(GRAPHSINK_VECTOR_LEVEL=$level "$1/test_models" --gtest_filter='*Determinism*cpu' | grep '^bits of')
  printf '%s\n%s\n' "at most $level" "$bits"
  if [[ $(wc -l <<<"$bits") -ne 2 ]]; then
    echo "expected two lines, of ops and of workloads" >&2
    exit 1
  fi
  if [[ -n $expected && $bits != "$expected" ]]; then
    echo "these bits differ from those of the level before" >&2
    exit 1
  fi
  expected=$bits
done
