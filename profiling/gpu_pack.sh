#!/usr/bin/env bash
# usage: gpu_pack.sh FILE ARCHITECTURES BUILD [PROGRAM...]: what gpu_check.sh --pack does. BUILD is a finished build folder,
# or empty: then the preset cuda-pack is built, with GS_PACK_RANKS=true in the environment also graphsink::ranks. PROGRAM: of
# its programs only these, for a rehearsal.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../samples/setup.sh"

most_megabytes=40
file=$1 architectures=$2 build=$3
shift 3
programs=("$@")

# What programs read of the sources, and what runs them.
sources=(LICENSE include/graphsink/ops.h tests/golden tests/conformance/golden.txt profiling/peers profiling/gpu)
sources+=(profiling/compare.py profiling/gpu_run.py profiling/kernel_table.py profiling/nsys.sh profiling/overlap.py)
sources+=(tests/ranks/mistakes.py)

if [[ -z $build ]]; then
  gs_require_packages "${GS_BUILD_PACKAGES[@]}"
  GS_CMAKE_ARGS+=("-DCMAKE_CUDA_ARCHITECTURES=${architectures//,/;}")
  # The plan starts ranks by mpirun: without ZeroMQ, which the other machine may not have.
  [[ ${GS_PACK_RANKS:-false} == false ]] ||
    GS_CMAKE_ARGS+=(-DGRAPHSINK_RANKS=ON -DCMAKE_REQUIRE_FIND_PACKAGE_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_ZeroMQ=ON)
  gs_build cuda-pack
  build=$GS_ROOT/build/cuda-pack
fi
build=$(realpath "$build")

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
flavour=$(cached GRAPHSINK_FLAVOUR)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,lib,src}

# Of a build without ranks, programs of a former one with them may lie there.
is_of_ranks() { [[ $1 == 12_ranks || $1 == test_ranks ]]; }
is_wanted() {
  if is_of_ranks "$1" && [[ $(cached GRAPHSINK_RANKS) == OFF ]]; then return 1; fi
  [[ ${#programs[@]} -eq 0 && $1 != planted_faults ]] || [[ " ${programs[*]} " == *" $1 "* ]]
}
for program in "$build"/bin/*; do
  name=${program##*/}
  if [[ ! -f $program || ! -x $program ]] || ! is_wanted "$name"; then continue; fi
  [[ $(head -c 4 "$program" | tail -c 3) == ELF ]] || continue
  strip -o "$work/bin/$name" "$program"
done
for program in "${programs[@]}"; do
  [[ -x $work/bin/$program ]] || { gs_warn "$build/bin has no $program; build everything there" && exit 2; }
done
[[ -x $work/bin/graphsink-bench && -x $work/bin/test_device ]] ||
  { gs_warn "$build/bin lacks graphsink-bench or test_device; build everything there, with tests and samples" && exit 2; }
find "$build" -maxdepth 1 -name 'libgraphsink.so*' -exec cp -a {} "$work/lib/" \;
find "$work/lib" -type f -exec strip {} \;

# needed FILE...: paths of the libraries that they load.
needed() { { ldd "$@" 2>/dev/null || true; } | awk '/=> \//{ print $3 }' | sort -u; }
# Neither the C library nor the driver brings these. Of the toolkit only the small runtime is carried: the version that the
# programs were built with.
needed "$work"/bin/* "$work"/lib/*.so* |
  grep -E '/lib(openblas|gfortran|quadmath|spdlog|fmt|z|gtest|stdc\+\+|gcc_s|cudart|graphsink_cuda_emulator)[.a-z0-9_-]*\.so' |
  while IFS= read -r library; do cp -L "$library" "$work/lib/${library##*/}"; done

cd "$GS_ROOT"
tar -cf - --exclude=__pycache__ "${sources[@]}" | tar -xf - -C "$work/src"
data=${GRAPHSINK_DATA:-$GS_ROOT/../shared/data}
if compgen -G "$data/t10k-*" >/dev/null || [[ -r $data/tinyshakespeare.txt ]]; then
  mkdir "$work/data"
  find "$data" -maxdepth 1 \( -name 't10k-*' -o -name tinyshakespeare.txt \) -exec cp {} "$work/data/" \;
else
  gs_warn "no data in $data: on the other machine, models train on made-up digits and the license"
fi
built_in=$(cached CMAKE_HOME_DIRECTORY)
commit=$(git -C "$built_in" rev-parse HEAD 2>/dev/null || echo unknown)
[[ -z $(git -C "$built_in" status --porcelain --untracked-files=no 2>/dev/null) ]] || commit+='+changes'
# Nobody knows which commit an old build is of.
newer=$(find "$built_in"/{include,src,kernels,samples,profiling,tests,cmake,CMakeLists.txt} -newer "$build/.ninja_log" \
  \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cmake' -o -name CMakeLists.txt \) -print -quit 2>/dev/null || true)
if [[ -n $newer ]]; then
  gs_warn "$newer is newer than the build in $build: build there again, or its results belong to no commit"
  commit+='+stale'
fi
python3 - "$work/pack.json" "$commit" "$flavour" "$(cached CMAKE_CUDA_ARCHITECTURES)" "$built_in" <<'PYTHON'
import datetime, json, sys

file, commit, flavour, architectures, built_in = sys.argv[1:]
packed = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
with open(file, "w") as out:
    json.dump({"commit": commit, "flavour": flavour, "architectures": architectures or "90", "built_in": built_in, "packed": packed}, out, indent=1)
PYTHON

mkdir -p "$(dirname "$file")"
tar -C "$work" --owner=0 --group=0 -cf - . | xz -T0 "-${GS_PACK_LEVEL:-6}" >"$file.unfinished"
mv "$file.unfinished" "$file"
bytes=$(stat -c %s "$file")
gs_say "packed $(find "$work/bin" -type f | wc -l) programs of $commit: $file, $((bytes / 1000000)) MB"
if [[ $bytes -gt $((most_megabytes * 1000000)) && ${#programs[@]} -eq 0 ]]; then
  gs_warn "$file has more than $most_megabytes MB: is the library in $build shared (BUILD_SHARED_LIBS=ON)?"
  exit 1
fi
