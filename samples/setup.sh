#!/usr/bin/env bash
# Set-up shared by the scripts. Sourced, it only defines the gs_ functions; run, it installs what a build needs, see
# --help.
set -euo pipefail

GS_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
GS_LOGS=$GS_ROOT/build/logs
GS_BUILD_PACKAGES=(
  g++ cmake ninja-build pkg-config python3 patch
  zlib1g-dev libopenblas-pthread-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libgtest-dev
  libpng-dev libjpeg62-turbo-dev libarchive-dev libzmq3-dev cppzmq-dev
)

GS_CMAKE_ARGS=() # for every configuration; tests/run.sh makes warnings errors

# Seconds of processor time, user and system, of everything that the script started and waited for.
gs_processor_seconds() {
  awk -v ticks="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%d", ($14 + $15) / ticks }' "/proc/$$/stat"
}

gs_say() { printf '== %s\n' "$*"; }
gs_warn() { printf '!! %s\n' "$*" >&2; }

# Installs the Debian packages that are missing; exits 2, naming them, where it may not or cannot.
gs_require_packages() {
  if ! command -v dpkg-query >/dev/null; then
    gs_warn "not a Debian system, cannot check for packages; needed: $*"
    return 0
  fi
  local installed missing=() package
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qxF "installed $package" <<<"$installed" || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  local remedy="apt-get install --no-install-recommends ${missing[*]}"
  if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
    gs_warn "missing packages: ${missing[*]}; as root: $remedy"
    exit 2
  fi
  gs_say "installing ${missing[*]}"
  mkdir -p "$GS_LOGS"
  if ! (
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update && apt-get -qq -y install --no-install-recommends "${missing[@]}"
  ) >"$GS_LOGS/packages.log" 2>&1 </dev/null; then
    tail -n 20 "$GS_LOGS/packages.log" >&2
    gs_warn "missing packages: ${missing[*]}; this failed: $remedy"
    exit 2
  fi
}

# Prints the path of an nvcc of CUDA 13 or later; fails if there is none.
gs_nvcc() {
  local nvcc release
  for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [[ -x $nvcc ]] || continue
    release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    if [[ ${release:-0} -ge 13 ]]; then
      printf '%s\n' "$nvcc"
      return 0
    fi
  done
  return 1
}

gs_has_nvcc() { gs_nvcc >/dev/null; }

gs_has_cuda_headers() {
  local nvcc
  [[ -r /usr/local/cuda/include/cuda_runtime.h ]] && return 0
  nvcc=$(gs_nvcc) && [[ -r $(dirname "$(dirname "$nvcc")")/include/cuda_runtime.h ]]
}

# A driver that hangs must not hang the caller.
gs_has_gpu() {
  local gpus
  command -v nvidia-smi >/dev/null && gpus=$(timeout 30 nvidia-smi -L 2>/dev/null) && [[ $gpus == *"GPU "* ]]
}

# gs_logged LOG COMMAND...: the output goes to build/logs/LOG.log, of which a failure shows the end.
gs_logged() {
  local log=$GS_LOGS/$1.log
  shift
  mkdir -p "$GS_LOGS"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    gs_warn "failed; all of its output: $log"
    return 1
  fi
}

# Copies its input to a log, and says at every tenth how far ninja is, and how long the rest takes at this speed.
gs_progress() {
  awk -F '[][/]' -v what="$1" -v log_file="$2" -v start="$(date +%s)" '
    { print >log_file }
    /^\[[0-9]+\/[0-9]+\]/ {
      tenth = int(10 * $2 / $3)
      if (tenth > last && $2 < $3) {
        "date +%s" | getline now
        close("date +%s")
        printf "== %s: %d of %d, about %d s more\n", what, $2, $3, (now - start) * ($3 - $2) / $2
        fflush()
      }
      last = tenth
    }'
}

# gs_build PRESET [TARGET...]: configures and builds build/PRESET; all targets if none is named. Several files are compiled
# as one, which takes less time; GS_UNITY=OFF compiles each alone.
gs_build() {
  local preset=$1 nvcc
  shift
  local processor_start
  processor_start=$(gs_processor_seconds)
  local start=$SECONDS jobs=${GS_JOBS:-$(nproc)} targets=() for_gpu=()
  [[ $# -eq 0 ]] || targets=(--target "$@")
  if [[ $preset == cuda* ]]; then
    if ! nvcc=$(gs_nvcc); then
      gs_warn "preset $preset needs nvcc of CUDA 13, in PATH or in /usr/local/cuda/bin"
      return 2
    fi
    export CUDACXX=${CUDACXX:-$nvcc}
    # Code for other GPUs than the one at hand would take three times as long.
    if [[ $preset == cuda ]] && gs_has_gpu; then for_gpu=(-DCMAKE_CUDA_ARCHITECTURES=native); fi
  fi
  if [[ $preset == emulated* ]] && ! gs_has_cuda_headers; then
    gs_warn "preset $preset needs the headers of CUDA 13 in /usr/local/cuda/include"
    return 2
  fi
  gs_say "build $preset: configuring"
  gs_logged "$preset.configure" cmake -S "$GS_ROOT" --preset "$preset" "-DCMAKE_UNITY_BUILD=${GS_UNITY:-ON}" "${for_gpu[@]}" "${GS_CMAKE_ARGS[@]}" || return 1
  gs_say "build $preset: compiling ($jobs jobs)"
  local log=$GS_LOGS/$preset.build.log
  if ! cmake --build "$GS_ROOT/build/$preset" --parallel "$jobs" "${targets[@]}" 2>&1 </dev/null |
    gs_progress "build $preset" "$log"; then
    tail -n 60 "$log" >&2
    gs_warn "failed; all of its output: $log"
    return 1
  fi
  gs_say "build $preset: done in $((SECONDS - start)) s, $(($(gs_processor_seconds) - processor_start)) s of processor time"
}

# gs_python_environment FOLDER [PIP ARGUMENT...]: makes a virtual environment of Python, or keeps one that is there, and
# installs into it what the arguments name.
gs_python_environment() {
  local folder=$1 python=/usr/bin/python3
  shift
  (gs_require_packages python3-dev python3-venv) || return
  [[ -x $python ]] || python=python3
  [[ -x $folder/bin/python ]] || gs_logged python.environment "$python" -m venv "$folder" || return 1
  [[ $# -eq 0 ]] || gs_logged python.packages "$folder/bin/python" -m pip install --disable-pip-version-check "$@"
}

# Installs the Python package of this checkout into an environment.
install_python() {
  local folder=${1:-$GS_ROOT/build/python-env}
  gs_require_packages "${GS_BUILD_PACKAGES[@]}"
  gs_say "installing the Python package into $folder (a few minutes)"
  gs_python_environment "$folder" "$GS_ROOT" || exit 2
  gs_say "done; try: $folder/bin/python samples/python/first.py"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  case ${1:-} in
    --python) install_python "${2:-}" ;;
    --help | -h)
      printf 'usage: samples/setup.sh                     installs the packages that a build needs\n'
      printf '       samples/setup.sh --python [FOLDER]   and the Python package into a virtual environment, build/python-env\n'
      ;;
    *)
      gs_require_packages "${GS_BUILD_PACKAGES[@]}"
      gs_say "every package is there: ${GS_BUILD_PACKAGES[*]}"
      ;;
  esac
fi
