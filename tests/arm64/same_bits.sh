#!/usr/bin/env bash
# Every workload has the same losses and the same state on 64-bit ARM as on the machine at hand, where both multiply
# matrices with plain loops in the place of OpenBLAS.
set -euo pipefail

if [[ $# -ne 2 || ! -x $1/bin/graphsink-bench || ! -x $2/bin/graphsink-bench ]]; then
  echo "usage: ${BASH_SOURCE[0]} BUILD ARM64_BUILD (both with graphsink-bench)" >&2
  exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# In one mode: the tests compare modes.
steps=(--device cpu --size test --steps 20 --untimed --mode sink --text "$root/LICENSE")
library=(-O2 -ffp-contract=off -shared -fPIC "$here/plain_products.c" -o)

gcc "${library[@]}" "$scratch/here.so"
LD_PRELOAD=$scratch/here.so "$1/bin/graphsink-bench" "${steps[@]}" --json "$scratch/here.json"
aarch64-linux-gnu-gcc --sysroot="$root/build/arm64-root" "${library[@]}" "$scratch/arm64.so"
qemu-aarch64-static -R 3G -L "$root/build/arm64-root" -E LD_PRELOAD="$scratch/arm64.so" \
  "$2/bin/graphsink-bench" "${steps[@]}" --json "$scratch/arm64.json"
"$root/profiling/compare.py" "$scratch/here.json" "$scratch/arm64.json"
