#!/usr/bin/env bash
# The CPU bodies give the same bits with every set of vector instructions this processor has. Exit: 0 they do, 1 they do
# not, 77 there is only one set here, so that nothing was compared.
set -euo pipefail

if [[ $# -ne 1 || ! -x $1/test_models ]]; then
  echo "usage: ${BASH_SOURCE[0]} BIN_DIR (with test_models)" >&2
  exit 2
fi
expected='' levels=' '
for level in baseline avx2 avx512; do
  lines=$(GRAPHSINK_VECTOR_LEVEL=$level "$1/test_models" --gtest_filter='*Determinism*cpu' | grep '^bits of')
  printf '%s\n' "$lines"
  used=$(sed -n '1s/.*, vectors //p' <<<"$lines")
  bits=${lines//, vectors $used/}
  if [[ -z $used || $(wc -l <<<"$bits") -ne 2 ]]; then
    echo "expected two lines, of ops and of workloads, and the level they used" >&2
    exit 1
  fi
  if [[ -n $expected && $bits != "$expected" ]]; then
    echo "these bits differ from those of the level before" >&2
    exit 1
  fi
  expected=$bits
  [[ $levels == *" $used "* ]] || levels+="$used "
done
if ! GRAPHSINK_VECTOR_LEVEL=avx3 "$1/test_models" --gtest_filter='*Determinism*cpu' |
  grep 'GRAPHSINK_VECTOR_LEVEL is "avx3", and changes nothing'; then
  echo "a level that does not exist was not said" >&2
  exit 1
fi
echo "compared:$levels"
[[ $(wc -w <<<"$levels") -gt 1 ]] || exit 77
