#!/usr/bin/env bash
# usage: pack_root.sh CUDA_PACK EMULATED_PACK: in a root that has nothing but the C library, a shell, Python and the libraries
# of the CUDA toolkit, every program of the first pack must load, and a plan must run on the second one.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../samples/setup.sh"

cuda_pack=$(realpath "$1") emulated_pack=$(realpath "$2")
if [[ $(id -u) -ne 0 ]] || ! unshare --mount --propagation private mount -t tmpfs none /mnt 2>/dev/null; then
  gs_warn 'NOT CHECKED: packs in a bare root; only root may mount one, and not everywhere'
  exit 0
fi
toolkit=$(dirname "$(dirname "$(gs_nvcc)")")
root=$(mktemp -d)
trap 'rmdir "$root"' EXIT

commands=(bash sh env cat dirname id cksum tr timeout sleep ls true mkdir rm)

# copy FILE...: each with the libraries that it loads, at the same paths.
copy() {
  local file
  for file in "$@"; do
    printf '%s\n' "$file"
    ldd "$file" 2>/dev/null | grep -o '/[^ ]*' || true
  done | sort -u | while IFS= read -r file; do
    [[ -e $root$file ]] || install -D "$(realpath "$file")" "$root$file"
  done
}

build_root() {
  local command libraries python
  mount -t tmpfs none "$root"
  mkdir -p "$root"/usr/{bin,lib,lib64}
  ln -s usr/bin usr/lib usr/lib64 "$root/"
  for command in "${commands[@]}"; do copy "$(type -P "$command")"; done
  libraries=$(dirname "$(ldd "$(type -P bash)" | grep -o '/[^ ]*/libc\.so\.6')")
  copy "$libraries"/lib{c,m,dl,pthread,rt,util,resolv}.so.[0-9]
  # Programs for the software device may have ranks; those for a GPU have none.
  local library
  for library in libmpi.so.40 libzmq.so.5; do
    if [[ -e $libraries/$library ]]; then copy "$libraries/$library"; fi
  done
  python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
  copy "$python"
  mkdir -p "$root/usr/bin"
  ln -sf "$python" "$root/usr/bin/python3"
  python=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
  mkdir -p "$root/$python" "$root/usr/local/cuda/lib64" "$root"/{proc,dev,tmp,out,pack}
  mount --bind "$python" "$root/$python"
  copy "$python"/lib-dynload/*.so
  # What only a toolkit for developers has stays outside.
  find -L "$toolkit/lib64" -maxdepth 1 -name '*.so.13*' -type f -exec cp -L --target-directory "$root/usr/local/cuda/lib64" {} +
  rm -rf "$root"/usr/lib/x86_64-linux-gnu/openblas*
  mount -t proc none "$root/proc"
  mount --rbind /dev "$root/dev"
  mkdir -p "$root/profiling"
  cp "$GS_ROOT/profiling/gpu_check.sh" "$root/profiling/"
  cp "$cuda_pack" "$root/pack/cuda.tar.xz"
  cp "$emulated_pack" "$root/pack/emulated.tar.xz"
}

inside() { chroot "$root" env -i HOME=/ PATH=/usr/bin:/bin TMPDIR=/tmp "$@"; }

# Without a GPU nothing passes, but the first thing that a plan does is to look for what programs miss.
check_cuda() {
  local program failed=0 code=0 folder
  inside bash /profiling/gpu_check.sh --from /pack/cuda.tar.xz --out /out/cuda --minutes 0.2 >"$root/out/log" 2>&1 || code=$?
  if [[ $code -ne 1 ]] || ! grep -q 'libraries that programs miss: none' "$root/out/cuda/summary.txt"; then
    cat "$root/out/log" >&2
    return 1
  fi
  folder=$(cd "$root" && echo tmp/graphsink-pack-*)
  for program in "$root/$folder"/bin/*; do
    program=${program##*/}
    case $program in
      test_*) arguments=(--gtest_list_tests) ;;
      conformance_record) arguments=(--list) ;;
      *.so | gpu_* | launch_baseline | existing_check_gradients | [0-9]*) continue ;; # they have no argument that runs nothing
      *) arguments=(--help) ;;
    esac
    code=0
    inside LD_BIND_NOW=1 "LD_LIBRARY_PATH=/$folder/lib:/$folder/cuda" "/$folder/bin/$program" "${arguments[@]}" >"$root/out/log" 2>&1 || code=$?
    if [[ $code -ne 0 || ! -s $root/out/log ]]; then
      gs_warn "$program ended with $code: $(tail -n 3 "$root/out/log")"
      failed=1
    fi
  done
  gs_say "pack of a cuda build in a bare root: $(find "$root/$folder/bin" -type f | wc -l) programs"
  return "$failed"
}

check_emulated() {
  local code=0
  rm -rf "$root"/tmp/*
  inside bash /profiling/gpu_check.sh --from /pack/emulated.tar.xz --out /out/emulated --minutes 9 >"$root/out/log" 2>&1 || code=$?
  if [[ $code -ne 1 ]] || ! grep -q 'not reached or not complete: nothing' "$root/out/emulated/summary.txt" ||
    ! grep -q '"problems":\[\]' "$root/out/emulated/results.json"; then
    cat "$root/out/log" >&2
    return 1
  fi
  gs_say 'pack for the software device in a bare root: the plan first is complete'
}

in_namespace() {
  build_root
  check_cuda
  check_emulated
}

if [[ -n ${GS_IN_ROOT:-} ]]; then
  root=$GS_IN_ROOT
  trap - EXIT
  in_namespace
else
  GS_IN_ROOT=$root unshare --mount --propagation private bash "${BASH_SOURCE[0]}" "$cuda_pack" "$emulated_pack"
fi
