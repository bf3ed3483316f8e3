#!/usr/bin/env bash
# Every check of this repository, in stages; ctest's summary of the cpu preset comes last.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../samples/setup.sh"
cd "$GS_ROOT"
GS_CMAKE_ARGS=(-DGRAPHSINK_WERROR=ON)

presets=(cpu cuda emulated cpu-asan cpu-tsan emulated-asan emulated-tsan emulated-coverage)
seeds=(0 1 2)
tests_run=0
stage_lines=()
not_checked=()

usage() {
  cat <<TEXT
usage: tests/run.sh [--full] [--build PRESET] [--help]
  (nothing)        the CI tier: formatting, then every preset this machine can build, and its tests
  --full           the same with the long counts (GS_FULL=1 for the tests, seeds 0 to 9 on the emulated device), 2 hours of
                   fuzzing, and 40 mutants of what orders work (tests/mutate.py)
  --build PRESET   installs what is missing and builds PRESET with tests, samples and bench; runs nothing
Presets: ${presets[*]}
Exit: 0 all passed, 1 a stage failed, 2 wrong usage or something is missing.
TEXT
}

# skip WHAT REASON: a stage that cannot run here is said now, and again at the end.
skip() {
  not_checked+=("$1: $2")
  gs_warn "NOT CHECKED: $1: $2"
}

# stage NAME FUNCTION [ARGUMENT...]: runs it and stops everything if it fails.
stage() {
  local name=$1 start=$SECONDS
  shift
  gs_say "stage $name"
  if ! "$@"; then
    gs_warn "stage $name FAILED after $((SECONDS - start)) s"
    exit 1
  fi
  stage_lines+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
  gs_say "stage $name: $((SECONDS - start)) s"
}

# The sanitizers of g++ 12 map their shadow at fixed addresses, which a kernel that randomises 32 bits may have taken.
without_randomisation() {
  if setarch -R true 2>/dev/null; then
    setarch -R "$@"
  else
    "$@"
  fi
}

export UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=second_deadlock_stack=1

# run_ctest PRESET LOG [CTEST ARGUMENT...]: the tests of a built preset; prints the summary.
run_ctest() {
  local preset=$1 log=$2
  shift 2
  gs_logged "$log.ctest" without_randomisation ctest --test-dir "build/$preset" --output-on-failure --no-tests=error \
    --timeout 900 --parallel "$(nproc)" "$@" || return 1
  sed -n '/tests passed/,$p' "$GS_LOGS/$log.ctest.log"
  tests_run=$((tests_run + $(sed -n 's/.*tests failed out of //p' "$GS_LOGS/$log.ctest.log")))
}

check_format() {
  local formatter files
  mapfile -t files < <(find include src kernels samples profiling tests -name '*.cpp' -o -name '*.h' -o -name '*.cu')
  for formatter in clang-format-14 clang-format; do
    if "$formatter" --version 2>/dev/null | grep -q 'version 14\.'; then
      gs_logged format "$formatter" --dry-run -Werror "${files[@]}"
      return
    fi
  done
  skip formatting 'no clang-format 14 (package clang-format-14)'
}

check_scripts() {
  local files
  mapfile -t files < <(find .ci samples profiling tests -name '*.sh' -o -path .ci/run)
  if command -v shellcheck >/dev/null; then
    gs_logged scripts shellcheck -x "${files[@]}"
  else
    skip scripts 'no shellcheck (package shellcheck)'
  fi
}

# Under a sanitizer a test takes 3 to 15 times as long; those labelled slow are left out.
check_sanitized() {
  local preset=$1
  shift
  gs_build "$preset" && run_ctest "$preset" "$preset" -LE slow "$@"
}

# Tests that know no seed: of the CPU device, of plans, of readers of files, and of the tests' own tools.
seedless='[/_]cpu( |$)|^fuzz_|^(Place|Plan|ModeChooser)[.]|FailuresAreShrunk'

# Every seed, on a build that counts which lines of the CUDA backend run.
check_emulated() {
  local seed preset=emulated-coverage exclude=()
  if ! command -v gcovr >/dev/null; then
    skip coverage 'no gcovr (package gcovr)'
    preset=emulated
  fi
  gs_build "$preset" || return 1
  find "build/$preset" -name '*.gcda' -delete
  for seed in "${seeds[@]}"; do
    gs_say "emulated device, GS_EMU_SEED=$seed"
    GS_EMU_SEED=$seed run_ctest "$preset" "emulated.seed$seed" "${exclude[@]}" || return 1
    exclude=(-E "$seedless")
  done
  # Again for its summary: how much of what the software device answers a GPU has confirmed.
  "build/$preset/bin/conformance_record" --check tests/conformance/golden.txt || return 1
  [[ $preset == emulated ]] || check_coverage "build/$preset"
}

# Lines of the CUDA backend that no test runs; gcovr merges all translation units and instances of a template.
least_coverage=85
check_coverage() {
  local folder report=$1/coverage verdict=0
  gs_logged coverage.gcovr gcovr --root . --no-markers --json "$report.json" "$1" || return 1
  for folder in src/device/cuda src/exec kernels; do
    gcovr --root . --add-tracefile "$report.json" --filter "$folder/" --fail-under-line "$least_coverage" \
      --output "$report.txt" || verdict=1
    sed -n '/^File/p; /^src\|^kernels\|^TOTAL/p' "$report.txt"
  done
  return "$verdict"
}

# check_fuzzed PRESET: two CPU-hours for each reader of files.
check_fuzzed() {
  local reader readers=() failed=0
  for reader in checkpoint idx; do
    gs_say "fuzzing the $reader reader for 2 hours: $GS_LOGS/fuzz.$reader.log"
    without_randomisation "build/$1/bin/fuzz_readers" --reader "$reader" --seconds 7200 \
      >"$GS_LOGS/fuzz.$reader.log" 2>&1 &
    readers+=($!)
  done
  for reader in "${readers[@]}"; do wait "$reader" || failed=1; done
  tail -qn 1 "$GS_LOGS"/fuzz.*.log
  return $failed
}

check_mutants() { nice -n 10 python3 tests/mutate.py --count 40 --jobs "$(nproc)"; }

check_cuda() {
  gs_build cuda || return 1
  if gs_has_gpu; then
    run_ctest cuda cuda
  else
    skip 'tests on a GPU' 'nvidia-smi names none; the cuda preset was compiled and linked'
  fi
}

check_all() {
  stage formatting check_format
  stage scripts check_scripts
  stage 'build cpu' gs_build cpu
  local sanitized=cpu
  if gs_has_cuda_headers; then
    sanitized=emulated # which has the CPU device too
    stage emulated check_emulated
    [[ -z ${GS_FULL:-} ]] || stage mutants check_mutants
  else
    skip emulated 'no CUDA headers in /usr/local/cuda/include'
  fi
  stage "$sanitized-asan" check_sanitized "$sanitized-asan"
  # Plans are counted and graphs shrunk on one thread; large images only take longer.
  stage "$sanitized-tsan" check_sanitized "$sanitized-tsan" -E 'EveryKindOccurs|FailuresAreShrunk|OfLargeImages'
  [[ -z ${GS_FULL:-} ]] || stage fuzz check_fuzzed "$sanitized-asan"
  if gs_has_nvcc; then
    stage cuda check_cuda
  else
    skip cuda 'no nvcc of CUDA 13'
  fi

  gs_say "all stages but the last: $SECONDS s, $tests_run tests run, seeds of the emulated device: ${seeds[*]}"
  printf '%s\n' "${stage_lines[@]}"
  [[ ${#not_checked[@]} -eq 0 ]] || printf '!! NOT CHECKED: %s\n' "${not_checked[@]}"
  gs_say 'stage cpu'
  ctest --test-dir build/cpu --output-on-failure --no-tests=error --timeout 900 --parallel "$(nproc)" || exit 1
}

build_only() {
  if [[ " ${presets[*]} " != *" $1 "* ]]; then
    usage >&2
    exit 2
  fi
  gs_require_packages "${GS_BUILD_PACKAGES[@]}"
  gs_build "$1"
}

case ${1:-} in
  --help | -h) usage ;;
  --build) build_only "${2:-}" ;;
  '' | --full)
    if [[ ${1:-} == --full ]]; then
      seeds=(0 1 2 3 4 5 6 7 8 9)
      export GS_FULL=1
    fi
    gs_require_packages "${GS_BUILD_PACKAGES[@]}"
    (gs_require_packages ccache clang-format-14 shellcheck gcovr) || true # where they stay missing, their stages say so
    check_all
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
