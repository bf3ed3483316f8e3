#!/usr/bin/env bash
# The source archive of packaging/source_archive.sh: a second clone in another folder, made under other settings, gives the
# same bytes; it holds the tracked files, owned by nobody in particular; and outside of git it is configured and a layer of
# the library built from it, with the version of the headers. $1 is a build folder, whose compiler is used. Exit 77: this
# is no clone of git.
set -euo pipefail

build=$(cd "$1" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ! command -v git xz >/dev/null || [[ $(git -C "$root" rev-parse --show-toplevel 2>/dev/null) != "$(cd "$root" && pwd -P)" ]]; then
  echo "source archive test: skipped, because $root is no clone of git, or git or xz is missing" >&2
  exit 77
fi
# Not below the build, which may lie in a clone.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  echo "source archive test: $*" >&2
  exit 1
}

quietly() {
  local log=$scratch/$1.log
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    fail "failed: $*"
  fi
}

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

quietly archive "$root/packaging/source_archive.sh" --output "$scratch/here"
archive=$(echo "$scratch"/here/*)
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
[[ $(basename "$archive") == "graphsink-$version.tar.xz" ]] || fail "expected graphsink-$version.tar.xz, not $(basename "$archive")"

commit=$(git -C "$root" rev-parse HEAD)
quietly clone git clone --no-local --no-hardlinks "$root" "$scratch/clone"
quietly checkout git -C "$scratch/clone" -c advice.detachedHead=false checkout "$commit"
git -C "$scratch/clone" config core.autocrlf true
git -C "$scratch/clone" config tar.umask 0077
mkdir "$scratch/there"
# The script of this folder, so that a change of it is tried before it is committed.
cp "$root/packaging/source_archive.sh" "$scratch/clone/packaging/"
(
  umask 0077
  TZ=Asia/Tokyo XZ_OPT=-1 quietly again "$scratch/clone/packaging/source_archive.sh" --output "$scratch/there"
)
cmp "$archive" "$scratch/there/$(basename "$archive")" || fail "expected the same bytes from another clone"

tar --numeric-owner -tvJf "$archive" >"$scratch/list"
if grep -v ' 0/0 ' "$scratch/list"; then fail "expected user and group 0"; fi
tar -tJf "$archive" | sed -n "s|^graphsink-$version/\(.*[^/]\)$|\1|p" | sort >"$scratch/packed"
git -C "$root" ls-tree -r --name-only "$commit" | sort >"$scratch/tracked"
diff "$scratch/tracked" "$scratch/packed" || fail "expected the tracked files, and no others"

tar -xJf "$archive" -C "$scratch"
sources=$scratch/graphsink-$version
status=0
"$sources/packaging/source_archive.sh" --output "$scratch/nothing" 2>"$scratch/refusal" || status=$?
if [[ $status != 2 ]] || ! grep -q 'is no clone of git' "$scratch/refusal"; then
  fail "expected the script to refuse what is no clone"
fi
export CCACHE_BASEDIR=$sources
quietly configure cmake -G Ninja -S "$sources" -B "$scratch/build" "-DCMAKE_CXX_COMPILER=$(cached CMAKE_CXX_COMPILER)" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=$(cached CMAKE_CXX_FLAGS_RELWITHDEBINFO)" \
  -DCMAKE_UNITY_BUILD=ON -DGRAPHSINK_FLAVOUR=cpu -DGRAPHSINK_BUILD_TESTS=OFF -DGRAPHSINK_BUILD_SAMPLES=OFF
grep -q "^Version: $version$" "$scratch/build/graphsink.pc" || fail "expected version $version outside of git"
quietly build cmake --build "$scratch/build" --target graphsink_base
grep -qaF "$version" "$scratch/build/libgraphsink_base.a" || fail "expected version $version in what was compiled"
echo "source archive: $(basename "$archive"), $(wc -l <"$scratch/packed") files, $(stat -c %s "$archive") bytes; it builds"
