#!/usr/bin/env bash
# Makes build/arm64-root, the headers and libraries of 64-bit ARM that cmake/arm64.cmake compiles against and qemu-user
# loads. They are unpacked from Debian's packages: nothing is installed, and no program of them runs. The libraries of
# graphsink::images are not among them: images are not tested on 64-bit ARM.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/arm64-root
packages=libc6-dev,libstdc++-12-dev,zlib1g-dev,libopenblas-pthread-dev,libopenblas0-pthread,libspdlog-dev
packages+=,nlohmann-json3-dev,libgtest-dev,libcli11-dev
[[ $# -eq 0 ]] || { echo "usage: ${BASH_SOURCE[0]}" >&2 && exit 2; }

if [[ -f $root/packages && $(<"$root/packages") == "$packages" ]]; then
  echo "$root is there"
  exit
fi
rm -rf "$root"
mkdir -p "$root"
mmdebstrap --variant=extract --architectures=arm64 --include="$packages" bookworm "$root"
# Absolute links mean files below the root.
find "$root/usr" -type l -lname '/*' | while read -r link; do ln -srfn "$root$(readlink "$link")" "$link"; done
echo "$packages" >"$root/packages"
