# What a build needs on a machine where packages cannot be installed: unpacked Debian packages, cuBLAS from Python.
# Sourced by gpu_check.sh after samples/setup.sh.
# shellcheck shell=bash

# Package, files that show it is there (shell patterns; below usr/include, usr/lib/MULTIARCH or lib/MULTIARCH), and the
# packages of what it loads when a program runs, as they are called in Debian 12.
gs_deps_table() {
  cat <<'TABLE'
zlib1g-dev zlib.h,libz.so
zlib1g libz.so.1
libopenblas-pthread-dev openblas*/cblas.h,openblas*/libopenblas.so
libopenblas0-pthread openblas*/libopenblas.so.0
libgfortran5 libgfortran.so.5
libquadmath0 libquadmath.so.0
libspdlog-dev spdlog/spdlog.h,libspdlog.so
libspdlog1.10 libspdlog.so.1*
libfmt-dev fmt/format.h,libfmt.so
libfmt9 libfmt.so.*
libcli11-dev CLI/CLI.hpp
nlohmann-json3-dev nlohmann/json.hpp
libgtest-dev gtest/gtest.h,libgtest.a
TABLE
}

# The packages of the table that are needed: those that a build names, and what goes with them.
gs_deps_needed() {
  local build=" ${GS_BUILD_PACKAGES[*]} " package files
  while read -r package files; do
    case $package in
      zlib1g) [[ $build == *' zlib1g-dev '* ]] || continue ;;
      libopenblas0-pthread | libgfortran5 | libquadmath0) [[ $build == *' libopenblas-pthread-dev '* ]] || continue ;;
      libspdlog1.10 | libfmt-dev | libfmt9) [[ $build == *' libspdlog-dev '* ]] || continue ;;
      *) [[ $build == *" $package "* ]] || continue ;;
    esac
    printf '%s %s\n' "$package" "$files"
  done < <(gs_deps_table)
}

# gs_find_below FILE ROOT...: the first file that matches below one of the roots; fails if there is none.
gs_find_below() {
  local file=$1 root folder match multiarch
  multiarch=$(g++ -print-multiarch 2>/dev/null || true)
  shift
  for root in "$@"; do
    for folder in usr/include "usr/include/$multiarch" "usr/lib/$multiarch" "lib/$multiarch" usr/lib usr/lib64 usr/local/include usr/local/lib; do
      for match in "$root/$folder"/$file; do
        [[ ! -e $match && ! -L $match ]] || { printf '%s\n' "$match" && return 0; }
      done
    done
  done
  return 1
}

# gs_use_deps DIR: prints where each needed package was found, in the system or in DIR (which may be empty), and makes a
# configuration find those of DIR. What programs load is linked into one folder, which they know by their rpath: through
# LD_LIBRARY_PATH python3 and the tools would load libraries of DIR, too.
gs_use_deps() {
  local deps=$1 roots=('') package files file found place missing=() program
  local libraries=$GS_ROOT/build/gpu_check_deps/lib multiarch
  multiarch=$(g++ -print-multiarch 2>/dev/null || true)
  if [[ -n $deps ]]; then
    [[ -d $deps/usr ]] || { gs_warn "$deps has no usr; unpack the packages there with dpkg -x" && return 2; }
    deps=$(realpath "$deps")
    roots+=("$deps")
    export PATH=$PATH:$deps/usr/bin
  fi
  for program in g++ cmake ninja python3; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  [[ -z $deps ]] || rm -rf "$libraries" # programs built without --deps keep what they were linked with
  mkdir -p "$libraries"
  while read -r package files; do
    place=system
    for file in ${files//,/ }; do
      if ! found=$(gs_find_below "$file" "${roots[@]}"); then
        missing+=("$package") place="MISSING ($file)"
        break
      fi
      [[ -z $deps || $found != "$deps"/* ]] || place=$deps
      # Only what the table names: a folder of unpacked packages may hold a libstdc++ that is older than the compiler's.
      if [[ -n $deps && $found == "$deps"/* && $file == *.so.* ]]; then ln -sf "$found" "$libraries/"; fi
      # A link to a library by its absolute path leads nowhere here.
      if [[ $file == *.so && ! -e $found ]] && found=$(gs_find_below "$file.*" "${roots[@]}"); then
        ln -sf "$found" "$libraries/${file##*/}"
      fi
    done
    printf '   %-26s %s\n' "$package" "$place"
  done < <(gs_deps_needed)
  if [[ ${#missing[@]} -gt 0 ]]; then
    gs_warn "missing: ${missing[*]}"
    gs_warn "where there is a network: apt-get download PACKAGE.., then dpkg -x FILE.deb DIR for each of the files;"
    gs_warn 'then profiling/gpu_check.sh OUT_DIR --deps DIR (cmake and ninja are also Python packages)'
    return 1
  fi
  [[ -n $deps ]] || return 0
  # CPLUS_INCLUDE_PATH, not CPATH: these are system headers, whose warnings are not ours.
  export CMAKE_LIBRARY_PATH=$libraries CMAKE_PREFIX_PATH=$deps/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  export CPLUS_INCLUDE_PATH=$deps/usr/include:$deps/usr/include/$multiarch${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  export LIBRARY_PATH=$libraries:$deps/usr/lib/$multiarch${LIBRARY_PATH:+:$LIBRARY_PATH}
  # As RPATH, not RUNPATH, it also holds for what the libraries load themselves.
  GS_CMAKE_ARGS+=("-DCMAKE_BUILD_RPATH=$libraries" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags")
}

# Where the toolkit has no cuBLAS, that of the Python package nvidia-cublas.
gs_use_cublas() {
  local nvcc toolkit folder shim=$GS_ROOT/build/gpu_check_deps/cublas header library name
  nvcc=$(gs_nvcc) || return 0 # gs_build says that it is missing
  toolkit=$(dirname "$(dirname "$nvcc")")
  if [[ -r $toolkit/include/cublasLt.h && -e $toolkit/lib64/libcublasLt.so && -e $toolkit/lib64/libcublas.so ]]; then
    return 0
  fi
  while IFS= read -r folder; do
    header=$(find "$folder" -name cublasLt.h -print -quit)
    library=$(find "$folder" -name libcublasLt.so.13 -print -quit)
    [[ -n $header && -n $library ]] || continue
    rm -rf "$shim"
    mkdir -p "$shim/include" "$shim/lib"
    ln -s "$(dirname "$header")"/cublas*.h "$shim/include/" # not the headers of the runtime, which may be of another release
    for name in cublasLt cublas; do
      ln -s "$(dirname "$library")/lib$name.so.13" "$shim/lib/"
      ln -s "lib$name.so.13" "$shim/lib/lib$name.so"
      GS_CMAKE_ARGS+=("-DCUDA_${name}_LIBRARY=$shim/lib/lib$name.so")
    done
    export CPLUS_INCLUDE_PATH=${CPLUS_INCLUDE_PATH:+$CPLUS_INCLUDE_PATH:}$shim/include
    gs_say "cuBLAS: that of a Python package, $library"
    return 0
  done < <(python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2>/dev/null)
  gs_warn "$toolkit has no cuBLAS (include/cublasLt.h, lib64/libcublasLt.so) and python3 has no package nvidia-cublas of CUDA 13"
  gs_warn 'install libcublas-dev-13-0 of the toolkit, or the Python package nvidia-cublas'
  return 1
}
