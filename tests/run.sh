#!/usr/bin/env bash
# Every check of this repository, in stages; ctest's summary of the last one comes last.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../samples/setup.sh"
cd "$GS_ROOT"
# shellcheck disable=SC2034  # read by gs_build
GS_CMAKE_ARGS=(-DGRAPHSINK_WERROR=ON)

presets=(cpu cuda cuda-pack emulated cpu-asan cpu-tsan emulated-asan emulated-tsan cpu-clang emulated-clang)
tests_run=0
stage_lines=()
not_checked=()
needed_mebibytes=10000 # for the build folders of the CI tier

usage() {
  cat <<TEXT
usage: tests/run.sh [--full] [--build PRESET] [--help]
  (nothing)        the CI tier, below; it takes about 65 minutes on 2 cores with an empty compiler cache,
                   longer on slow machines, and says what each stage took
  --full           all of it with the long counts, in hours
  --build PRESET   installs what is missing and builds PRESET with tests, samples and bench; runs nothing
Presets: ${presets[*]}

stage            CI tier                                                 in addition with --full
formatting       clang-format 14
scripts          shellcheck; profiling/results/README.md, the tables
                 of docs/gpu.md and the programs of all pages are
                 up to date; links between files lead somewhere;
                 rules of structure and of comments
                 (tests/structure.py, tests/comments.py)
tidy             clang-tidy 16: the eight sources of the library that    all of them
                 changed last
emulated-asan    every test program on the software CUDA device under    samples and bench; faults at every call;
                 the address sanitizer, and the library and the device   six CPU-hours of fuzzing readers of files;
                 under that for undefined behaviour, seed 1; lines of   two ranks, by MPI and by variables
                 the CUDA backend are counted; device memory closed by
                 pages; C locale; 50 of the random graphs, faults at
                 every 11th call, no determinism, no sources for NVRTC
emulated         optimized, seed 0, where that is more than the above:   every test, seeds 0 to 9; 20,000 random graphs
                 500 random graphs, faults at every 3rd call, samples,   in place of 500; faults at every call;
                 bench, models; a German locale, another time zone, no   determinism 20 times in place of 4; 60 mutants
                 home directory, in which planner, files and misuse are  and the faults that work by chance
                 tested, too; profiling/gpu_check.sh --dry-run           (tests/mutate.py)
compiled         tests of whole programs on the software device, and 50  every test
                 of the random graphs, with kernels that are compiled
                 at run time
emulated-tsan    folders of tests that have threads under the thread     two ranks, by MPI and by variables
                 sanitizer, seed 2; no samples, bench or models; 50 of
                 the random graphs, faults at every 31st call of five of
                 eight workloads, no choice of a mode over thousands of
                 steps, no formulas and special values of element-wise
                 ops, no sources for NVRTC
cuda             each file alone, as users compile it: nvcc compiles     the whole preset, optimized
                 every kernel as fast as it can, and two kernel files
                 for every architecture; links the
                 library, test_device and a project that uses the
                 installed library; the Python package, which is
                 imported without a driver; NVRTC compiles sources of
                 fused kernels; where a GPU answers the whole preset,
                 and runs all tests
clang                                                                    cpu and emulated built with clang 16 where
                                                                         that is installed: every test, the short
                                                                         counts
gpu_check                                                                profiling/gpu_check.sh --dry-run --full: the
                                                                         plan speed, too; a pack for a GPU, optimized,
                                                                         in a root without packages (as root)
arm64                                                                    cross-builds for 64-bit ARM with Debian's
                                                                         packages; api, exec, device and 50 random
                                                                         graphs under qemu-user; every workload has
                                                                         this machine's bits; api and exec with
                                                                         pages of 64 KiB
cpu              builds library, samples and bench with g++ alone; runs  every test
                 samples, the programs of the pages of docs/, the six
                 ways to consume the library, recipes, source archive,
                 doxygen, each public header alone with each compiler
                 at hand, and the CPU bodies with baseline, AVX2 and
                 AVX-512 instructions; on one core: test_api
python           the Python package: pytest on the software device and
                 the CPU, again as pip installs it for the CPU, samples;
                 mypy --strict of the package and the samples
docs             the site of docs/, by mkdocs: no link or anchor leads
                 nowhere; doxygen's reference is part of it

Environment: GS_FAULT_OFFSET=N begins the faults of the sanitizers' stages at call N + 1; GS_JOBS=N builds with N jobs;
             GS_UNITY=OFF compiles each file alone.
Exit: 0 all passed, 1 a stage failed, 2 wrong usage or something is missing.
TEXT
}

# skip WHAT REASON: a stage that cannot run here is said now, and again at the end.
skip() {
  not_checked+=("$1: $2")
  gs_warn "NOT CHECKED: $1: $2"
}

# stage NAME BUDGET FUNCTION [ARGUMENT...]: runs it and stops everything if it fails. The budget is what it should take on
# 2 quiet cores with an empty compiler cache, in seconds. A stage that takes more than twice its budget is reported.
stage() {
  local name=$1 budget=$2 start=$SECONDS took processor_start
  processor_start=$(gs_processor_seconds)
  shift 2
  gs_say "stage $name"
  if ! "$@"; then
    gs_warn "stage $name FAILED after $((SECONDS - start)) s"
    if [[ $(free_mebibytes) -lt 500 ]]; then
      gs_warn "the disk is full: $(free_mebibytes) MiB are free; make room for $needed_mebibytes MiB, and run this again"
    fi
    exit 1
  fi
  took=$((SECONDS - start))
  stage_lines+=("$(printf '%5d s of %4d s, %5d s of processor time  %s' "$took" "$budget" \
    $(($(gs_processor_seconds) - processor_start)) "$name")")
  gs_say "stage $name: $took s of $budget s"
  if [[ -z ${GS_FULL:-} && $took -gt $((2 * budget)) ]]; then
    gs_warn "SLOW: stage $name took $took s, more than twice its budget of $budget s"
    stage_lines[-1]+='  SLOW: more than twice its budget'
  fi
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

# For the tests of the stage at hand: NAME=VALUE...
test_environment=()

# say_failures LOG: where a log of ctest says what failed, so that it can be read off the last lines of a long run.
say_failures() {
  gs_warn 'the first failures:'
  grep -m 5 -A 4 -E ': Failure$|ERROR: [A-Za-z]*Sanitizer|^SUMMARY: |Segmentation fault|Timeout' "$1" |
    cut -c 1-300 >&2 || true
}

# run_ctest PRESET LOG [CTEST ARGUMENT...]: the tests of a built preset; prints the summary.
run_ctest() {
  local preset=$1 log=$2 start=$SECONDS processor_start
  processor_start=$(gs_processor_seconds)
  shift 2
  if ! gs_logged "$log.ctest" without_randomisation env "${test_environment[@]}" ctest --test-dir "build/$preset" \
    --output-on-failure --no-tests=error --timeout 900 --parallel "$(nproc)" "$@"; then
    say_failures "$GS_LOGS/$log.ctest.log"
    return 1
  fi
  sed -n '/tests passed/,$p' "$GS_LOGS/$log.ctest.log"
  gs_say "tests of $log: $((SECONDS - start)) s, $(($(gs_processor_seconds) - processor_start)) s of processor time"
  tests_run=$((tests_run + $(sed -n 's/.*tests failed out of //p' "$GS_LOGS/$log.ctest.log")))
}

check_format() {
  local formatter files
  mapfile -t files < <(find include src kernels samples profiling tests packaging python docs -name '*.cpp' -o -name '*.h' -o -name '*.cu')
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
  mapfile -t files < <(find .ci docs packaging samples profiling tests -name '*.sh' -o -path .ci/run)
  if command -v shellcheck >/dev/null; then
    gs_logged scripts shellcheck -x "${files[@]}" || return 1
  else
    skip scripts 'no shellcheck (package shellcheck)'
  fi
  gs_logged results_page profiling/results_page.py --check || return 1
  gs_logged figures profiling/figures.py --check || return 1
  gs_logged docs.pages docs/snippets.py --check || return 1
  gs_logged docs.links docs/links.py || return 1
  gs_logged structure tests/structure.py --check || return 1
  gs_logged comments tests/comments.py
}

# The sources that changed last, or all of them with --full; the checks are those of .clang-tidy.
tidied=8
check_tidy() {
  local files folder flags=(-std=c++20 -DGRAPHSINK_CUDA -Iinclude -Isrc -I. -isystem /usr/local/cuda/include)
  if ! command -v clang-tidy-16 >/dev/null || ! gs_has_cuda_headers; then
    skip clang-tidy 'no clang-tidy 16 (package clang-tidy-16), or no CUDA headers'
    return
  fi
  for folder in $(mpicxx --showme:incdirs 2>/dev/null); do flags+=(-isystem "$folder"); done
  if [[ -n ${GS_FULL:-} ]]; then
    mapfile -t files < <(find src -name '*.cpp')
  else
    mapfile -t files < <(newest_sources)
  fi
  [[ ${#files[@]} -gt 0 ]] || { skip clang-tidy 'this is no clone of git' && return; }
  printf '%s\n' "${files[@]}" >"$GS_LOGS/tidy.files"
  gs_logged tidy xargs -a "$GS_LOGS/tidy.files" -P "$(nproc)" -I FILE clang-tidy-16 --quiet FILE -- "${flags[@]}" || return 1
  gs_say "clang-tidy: ${#files[@]} sources"
}

newest_sources() {
  local file count=0
  while read -r file && [[ $count -lt $tidied ]]; do
    [[ -f $file ]] || continue
    echo "$file"
    count=$((count + 1))
  done < <(git log -n 200 --pretty=format: --name-only -- 'src/*.cpp' 2>/dev/null | awk 'NF && !seen[$0]++')
}

# Says how the software device of a built preset keeps the host out of device memory, which its own test proves first.
say_protection() {
  local log=$GS_LOGS/$1.protection.log
  gs_logged "$1.protection" env "${test_environment[@]}" "build/$1/bin/cuda_emulator_test" \
    --gtest_filter='*TheHostCannotTouchDeviceMemory' || return 1
  grep -m1 '^device memory is closed to the host by ' "$log"
}

# Lines of the CUDA backend that no test runs; gcovr merges all translation units and instances of a template. Threads
# lose counts of each other, from which gcov may derive a negative number for a branch: only lines are looked at.
least_coverage=85
check_coverage() {
  local folder report=$1/coverage verdict=0
  gs_logged coverage.gcovr gcovr --root . --no-markers --gcov-ignore-parse-errors --json "$report.json" "$1" || return 1
  for folder in src/device/cuda src/exec src/capture kernels; do
    gcovr --root . --add-tracefile "$report.json" --filter "$folder/" --fail-under-line "$least_coverage" \
      --output "$report.txt" || verdict=1
    sed -n '/^File/p; /^src\|^kernels\|^TOTAL/p' "$report.txt"
  done
  return "$verdict"
}

# A German locale, another time zone and no home directory, for tests that must not notice. Not under the address
# sanitizer: glibc never frees what it makes of LOCPATH.
add_foreign_environment() {
  local locales=$GS_ROOT/build/locales
  test_environment+=("TZ=CET-1CEST,M3.5.0,M10.5.0/3" HOME=/nonexistent)
  mkdir -p "$locales"
  gs_logged locale localedef -i de_DE -f UTF-8 "$locales/de_DE.UTF-8" || true
  if [[ $(LOCPATH=$locales LC_ALL=de_DE.UTF-8 locale decimal_point 2>/dev/null) == , ]]; then
    test_environment+=("LOCPATH=$locales" LC_ALL=de_DE.UTF-8)
  else
    rm -rf "$locales"
    skip 'tests in a German locale' 'localedef cannot make de_DE.UTF-8 (package locales)'
  fi
}

# The optimized build, in a foreign environment: what is left out or cut short under a sanitizer, and what is quick.
check_emulated() {
  local seed tests=(-LE full -E '^(api|capture|conformance|cuda_emulator|device|exec|fusion|kernels|train)')
  [[ -z ${GS_FULL:-} ]] || tests=()
  gs_build emulated || return 1
  for seed in "${seeds[@]}"; do
    test_environment=("GS_EMU_SEED=$seed")
    add_foreign_environment
    gs_say "seed $seed of the software device"
    say_protection emulated || return 1
    run_ctest emulated "emulated.seed$seed" "${tests[@]}" || return 1
  done
  if grep -q '^NCCL_INCLUDE_DIR:PATH=NCCL_INCLUDE_DIR-NOTFOUND' build/emulated/CMakeCache.txt; then
    skip 'what is declared of NCCL' 'there is no nccl.h (package libnccl-dev, or the wheel nvidia-nccl-cu13)'
  fi
  grep -q ' ranks_2 .*Passed' "$GS_LOGS/emulated.seed${seeds[0]}.ctest.log" ||
    skip 'ranks by MPI' 'MPI is missing (packages libopenmpi-dev, openmpi-bin)'
  grep -q ' ranks_by_variables .*Passed' "$GS_LOGS/emulated.seed${seeds[0]}.ctest.log" ||
    skip 'ranks by variables, as of torchrun' 'ZeroMQ is missing (packages libzmq3-dev, cppzmq-dev)'
  gs_say 'rehearsal of profiling/gpu_check.sh'
  gs_logged gpu_check env -u GS_FULL profiling/gpu_check.sh --dry-run --build build/emulated
}

# With kernels that are compiled at run time, as on a GPU: a host compiler stands for NVRTC.
check_compiled() {
  local tests=(-R '^(api_.*|exec|passes_.*|models_.*|capture|random_graph_.*)$') cache
  [[ -z ${GS_FULL:-} ]] || tests=(-E '^(samples|bench|package|profile|existing_trainer)$')
  cache=$(mktemp -d)
  test_environment=(GS_EMU_SEED=3 "GS_EMU_COMPILER=$(command -v g++)" "GRAPHSINK_KERNEL_CACHE=$cache" GS_GRAPHS=50
    "GTEST_FILTER=*cuda*:*Cuda*:Sink*:Enqueue.*:CallerStream.*:NodeNames.*:ProgrammaticLaunchOption.*:Parts/*:RandomGraph.ThoseThat*")
  run_ctest emulated emulated.compiled "${tests[@]}" || return 1
  gs_say "$(find "$cache" -type f | wc -l) kernels were compiled"
  rm -rf "$cache"
}

# Under a sanitizer a test takes 3 to 15 times as long; those labelled slow are left out, and `full` without --full.
# On the software device lines of the CUDA backend are counted, too.
check_asan() {
  local exclude=(-LE 'slow|full' -E '^(samples|bench)$') targets=(test_programs)
  if [[ -n ${GS_FULL:-} ]]; then exclude=(-LE slow) targets=(); fi
  gs_build "$1" "${targets[@]}" || return 1
  find "build/$1" -name '*.gcda' -delete
  test_environment=(GS_EMU_SEED=1 GS_EMU_PROTECT=1 LC_ALL=C TZ=UTC)
  if [[ $1 == emulated* ]]; then say_protection "$1" || return 1; fi
  run_ctest "$1" "$1" "${exclude[@]}" || return 1
  [[ $1 == emulated* ]] || return 0
  # Again for its summary: how much of what the software device answers a GPU has confirmed.
  "build/$1/bin/conformance_record" --check tests/conformance/golden.txt || return 1
  if command -v gcovr >/dev/null; then
    check_coverage "build/$1"
  else
    skip coverage 'no gcovr (package gcovr)'
  fi
}

check_tsan() {
  local left_out='slow|full' target=test_programs
  if [[ -n ${GS_FULL:-} ]]; then left_out=slow target=full_test_programs; fi
  gs_build "$1" "$target" || return 1
  test_environment=(GS_EMU_SEED=2)
  if [[ $1 == emulated* ]]; then say_protection "$1" || return 1; fi
  run_ctest "$1" "$1" -LE "$left_out"
}

# check_fuzzed PRESET: 40 CPU-minutes for each reader of files, and ten million files for that of graphs. On two cores
# these are six hours.
check_fuzzed() {
  local reader readers=() failed=0 seed
  for seed in 1 2; do
    gs_say "fuzzing the graph reader with 5 million files: $GS_LOGS/fuzz.graph$seed.log"
    without_randomisation "build/$1/bin/fuzz_readers" --reader graph --iterations 5000000 --seed "$seed" \
      >"$GS_LOGS/fuzz.graph$seed.log" 2>&1 &
    readers+=($!)
  done
  for reader in checkpoint idx images index jpeg npy npz png tar tokens; do
    gs_say "fuzzing the $reader reader for 40 CPU-minutes: $GS_LOGS/fuzz.$reader.log"
    without_randomisation "build/$1/bin/fuzz_readers" --reader "$reader" --seconds 2400 \
      >"$GS_LOGS/fuzz.$reader.log" 2>&1 &
    readers+=($!)
  done
  for reader in "${readers[@]}"; do wait "$reader" || failed=1; done
  tail -qn 1 "$GS_LOGS"/fuzz.*.log
  return $failed
}

check_mutants() {
  nice -n 10 python3 tests/mutate.py --seed 1 2 --count 30 --jobs "$(nproc)" --keep &&
    nice -n 10 python3 tests/mutate.py --chance --jobs "$(nproc)"
}

check_cuda() {
  local preset=cuda-compile GS_UNITY=OFF
  local targets=(graphsink graphsink_whole_library graphsink_all_architectures test_device existing_trainer_sunk test_fusion)
  local after_build=true
  if make_python_environment 'the Python package for CUDA'; then
    local GS_CMAKE_ARGS=("${GS_CMAKE_ARGS[@]}" "${python_options[@]}")
    targets+=(graphsink_python)
    after_build=check_import
  fi
  if [[ -n ${GS_FULL:-} ]] || gs_has_gpu; then preset=cuda targets=(all graphsink_whole_library graphsink_all_architectures); fi
  gs_build "$preset" "${targets[@]}" || return 1
  "$after_build" "$preset" || return 1
  gs_logged "$preset.package" tests/package/test.sh "build/$preset" || return 1
  # NVRTC needs no GPU.
  gs_logged "$preset.nvrtc" "build/$preset/bin/test_fusion" --gtest_filter='FusedSources.*' || return 1
  test_environment=()
  if gs_has_gpu; then
    run_ctest cuda cuda
  else
    skip 'tests on a GPU' "nvidia-smi names none; the preset $preset was compiled and linked"
  fi
}

# check_import PRESET: the Python package is imported where no CUDA driver answers, too, and says so.
check_import() {
  local has_gpu=False
  if gs_has_gpu; then has_gpu=True; fi
  gs_logged "$1.import" env "PYTHONPATH=$GS_ROOT/build/$1/python" "$python" -c \
    "import graphsink as gs; assert gs.cuda.is_available() == $has_gpu; print(gs.__version__)"
}

# The second compiler, with the short counts.
check_clang() {
  local preset compiled=(cpu-clang) GS_UNITY=OFF
  [[ $sanitized != emulated ]] || compiled+=(emulated-clang)
  test_environment=(-u GS_FULL)
  for preset in "${compiled[@]}"; do
    gs_build "$preset" && run_ctest "$preset" "$preset" || return 1
  done
}

# Every plan of gpu_check.sh, with stand-ins for the tools of a GPU and the short counts, and a pack for a GPU.
check_gpu_check() {
  gs_build cuda-pack || return 1
  gs_logged gpu_check.full env -u GS_FULL GS_PACK_BUILD=build/cuda-pack profiling/gpu_check.sh --dry-run --full \
    --build build/emulated
}

# The emulated stages run the CPU device, too: here is what only this flavour has.
check_cpu() {
  test_environment=()
  if [[ -n ${GS_FULL:-} || $sanitized == cpu ]]; then
    gs_build cpu || return 1
    run_ctest cpu cpu.all -E '^(samples|package|recipes|source_archive|documentation|headers|mutants|vector_levels|api_.*|docs\..*)$' || return 1
  else
    gs_build cpu smoke docs_snippets || return 1
  fi
  gs_say 'on one core'
  gs_logged cpu.one_core taskset -c "$(first_core)" build/cpu/bin/test_api || return 1
  run_ctest cpu cpu -R '^(samples|package|recipes|source_archive|documentation|headers|mutants|vector_levels|api_.*|docs\..*)$' || return 1
  grep -q 'source_archive .*Passed' "$GS_LOGS/cpu.ctest.log" || skip 'the source archive' 'this is no clone of git'
  grep -q 'documentation .*Passed' "$GS_LOGS/cpu.ctest.log" || skip 'pages of the public headers' 'doxygen is missing'
  if ! grep -q 'vector_levels .*Passed' "$GS_LOGS/cpu.ctest.log"; then
    skip 'CPU bodies with several sets of vector instructions' 'this processor has one'
  elif ! grep -q ' avx512f ' /proc/cpuinfo; then
    skip 'CPU bodies with AVX-512' 'this processor does not have it; baseline and AVX2 were compared'
  fi
}

# The environment in which the Python package is built and tested, and what CMake is told of it.
python=$GS_ROOT/build/python-env/bin/python
python_options=(-DGRAPHSINK_PYTHON=ON "-DPython_EXECUTABLE=$python")
make_python_environment() { # WHAT: is not checked where it cannot be made
  gs_python_environment "$GS_ROOT/build/python-env" -r python/requirements.txt && return
  skip "$1" 'its environment could not be made: see above, and build/logs/python.packages.log'
  return 1
}

# The Python package: its tests on the software device, with the CPU beside it; then installed as users install it, for the
# CPU. build/cpu is where the library was compiled.
check_python() {
  make_python_environment 'the Python package' || return 0
  if [[ $sanitized == emulated ]]; then
    local GS_CMAKE_ARGS=("${GS_CMAKE_ARGS[@]}" "${python_options[@]}")
    gs_build emulated graphsink_python graphsink_python_stub python_expected python_user_ops || return 1
    run_pytest emulated "PYTHONPATH=$GS_ROOT/build/emulated/python" || return 1
  fi
  gs_logged python.install "$python" -m pip install --no-build-isolation --no-deps --force-reinstall . \
    --config-settings=build-dir=build/cpu --config-settings=cmake.define.GRAPHSINK_WERROR=ON || return 1
  # python_expected lies beside the package only where CMake has built both.
  run_pytest cpu --ignore=tests/python/test_op_table.py --ignore=tests/python/test_models.py || return 1
  gs_logged python.types "$python" -m mypy --strict -p graphsink || return 1
  gs_logged python.types_of_samples "$python" -m mypy --strict samples/python/*.py || return 1
  if ! "$python" -c 'import graphsink.ranks' 2>/dev/null || ! command -v mpirun >/dev/null; then
    skip 'the Python package with ranks' 'graphsink.ranks was not built, or there is no mpirun'
  fi
  "$python" -c 'import torch' 2>/dev/null || skip 'the Python package with PyTorch' 'torch is not installed'
}

# The site of docs/, in which every link and anchor leads somewhere, with the reference of the public headers.
check_docs() {
  local verdict=0
  docs/build.sh || verdict=$?
  if [[ $verdict -eq 2 ]]; then
    skip 'the site of docs/' 'the packages of docs/requirements.txt could not be installed: see above'
    return 0
  fi
  command -v doxygen >/dev/null || skip 'the reference in the site of docs/' 'doxygen is missing'
  return "$verdict"
}

# run_pytest NAME [VARIABLE=VALUE...] [ARGUMENT...]: fails, too, if objects of the package live when the interpreter ends.
run_pytest() {
  local name=$1 variables=()
  shift
  while [[ ${1:-} =~ ^[A-Z_]+= ]]; do
    variables+=("$1")
    shift
  done
  gs_logged "python.$name" timeout 900 env "${variables[@]}" "$python" -m pytest -q -p no:cacheprovider -p no:faulthandler tests/python "$@" ||
    return 1
  if grep -A 20 'nanobind: leaked' "$GS_LOGS/python.$name.log"; then return 1; fi
  tail -n 1 "$GS_LOGS/python.$name.log"
}

# What 64-bit ARM alone has: its orders of memory accesses and of arguments, its floats, longer pages.
check_arm64() {
  gs_logged arm64.root tests/arm64/root.sh || return 1
  use_linker '' # the compiler of another machine has its own
  gs_build cpu-arm64 test_api test_exec test_device test_random_graph graphsink-bench || return 1
  # On one core: with several, qemu-user lets a load-acquire overtake a store-release before it, which ARM does not, and
  # a thread that goes to sleep misses what it is given meanwhile. Nor are there addresses for hundreds of programs, and
  # limits of memory are ignored.
  test_environment=(-u GS_FULL GS_GRAPHS=50 'GTEST_FILTER=-ManyPrograms.*:BlasMemory.ThatALimitDoesNotLeave*' taskset -c "$(first_core)")
  run_ctest cpu-arm64 cpu-arm64 -R '^(api_.*|exec|device_.*|random_graph_.*)$' --parallel 1 || return 1
  gs_say 'the bits of this machine'
  gs_logged arm64.same_bits tests/arm64/same_bits.sh build/cpu build/cpu-arm64 || return 1
  gs_say 'pages of 64 KiB'
  local program library=$GS_ROOT/build/pages_of_64k.so
  gs_logged arm64.pages gcc -O1 -shared -fPIC tests/arm64/pages_of_64k.c -o "$library" || return 1
  for program in api exec; do
    gs_logged "arm64.pages.$program" env -u GS_FULL "LD_PRELOAD=$library" "build/cpu/bin/test_$program" || return 1
  done
}

# The number of a processor that this process may use.
first_core() { taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/'; }

summary() {
  gs_say "all stages: $SECONDS s, $tests_run processes of tests; compiler cache: $(cache_summary)"
  printf '%s\n' "${stage_lines[@]}"
  [[ ${#not_checked[@]} -eq 0 ]] || printf '!! NOT CHECKED: %s\n' "${not_checked[@]}"
  sed -n '/tests passed/,$p' "$GS_LOGS/cpu.ctest.log"
}

cache_summary() {
  if command -v ccache >/dev/null; then
    ccache --print-stats | awk '/^(direct|preprocessed)_cache_hit/ {hits += $2} /^cache_miss/ {misses = $2}
      END {printf "%d hits, %d misses", hits, misses}'
  else
    echo none
  fi
}

# Mebibytes that are free where the builds lie.
free_mebibytes() { df --output=avail -m "$GS_ROOT" | tail -n 1 | tr -d ' '; }

check_all() {
  if [[ $(free_mebibytes) -lt $needed_mebibytes ]]; then
    gs_warn "$(free_mebibytes) MiB are free in $GS_ROOT, and all stages take about $needed_mebibytes MiB of build/"
  fi
  command -v ccache >/dev/null && ccache --zero-stats >/dev/null
  stage formatting 20 check_format
  stage scripts 20 check_scripts
  stage tidy 40 check_tidy
  sanitized=cpu
  if gs_has_cuda_headers; then sanitized=emulated; fi # which has the CPU device too
  stage "$sanitized-asan" 850 check_asan "$sanitized-asan"
  [[ -z ${GS_FULL:-} ]] || stage fuzz 22000 check_fuzzed "$sanitized-asan"
  if [[ $sanitized == emulated ]]; then
    stage emulated 550 check_emulated
    stage compiled 120 check_compiled
    [[ -z ${GS_FULL:-} ]] || stage mutants 7200 check_mutants
  else
    skip emulated 'no CUDA headers in /usr/local/cuda/include'
  fi
  stage "$sanitized-tsan" 650 check_tsan "$sanitized-tsan"
  if gs_has_nvcc; then
    stage cuda 230 check_cuda
  else
    skip cuda 'no nvcc of CUDA 13'
  fi
  if [[ -n ${GS_FULL:-} ]]; then
    if command -v clang++-16 >/dev/null; then
      stage clang 1800 check_clang
    else
      skip clang 'no clang++-16 (package clang-16)'
    fi
    if [[ $sanitized == emulated ]] && gs_has_nvcc; then
      stage gpu_check 2700 check_gpu_check
    else
      skip gpu_check 'it needs the emulated stage, and nvcc of CUDA 13'
    fi
  fi
  stage cpu 300 check_cpu
  stage python 150 check_python
  stage docs 60 check_docs
  if [[ -n ${GS_FULL:-} ]]; then
    if [[ $(uname -m) == aarch64 ]]; then
      skip arm64 'this machine is one: the stage cpu has its tests'
    elif (gs_require_packages g++-aarch64-linux-gnu qemu-user-static mmdebstrap); then
      stage arm64 3600 check_arm64
    else
      skip arm64 'a package is missing, see above'
    fi
  fi
  summary
}

# use_linker NAME: for all configurations from here on; "" is that of the compiler, also where a build folder had another.
use_linker() {
  local kind
  for kind in EXE SHARED MODULE; do
    if [[ -n $1 ]]; then
      GS_CMAKE_ARGS+=("-DCMAKE_${kind}_LINKER_FLAGS=${LDFLAGS:+$LDFLAGS }-fuse-ld=$1")
    else
      GS_CMAKE_ARGS+=("-UCMAKE_${kind}_LINKER_FLAGS")
    fi
  done
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
    seeds=(0)
    timeout=600
    if [[ ${1:-} == --full ]]; then
      seeds=(0 1 2 3 4 5 6 7 8 9)
      timeout=3600 # 100,000 runs of threads under the thread sanitizer take half an hour
      export GS_FULL=1
    fi
    GS_CMAKE_ARGS+=("-DGRAPHSINK_TEST_TIMEOUT=$timeout")
    gs_require_packages "${GS_BUILD_PACKAGES[@]}" dpkg-dev file libopenmpi-dev openmpi-bin # for what cpack makes, and for ranks
    for package in ccache clang-format-14 clang-tidy-16 mold shellcheck gcovr locales doxygen; do
      (gs_require_packages "$package") || true # where it stays missing, its stage says so, or all takes longer
    done
    # A test with sanitizers has 300 MB, for which this linker takes a third of the time.
    if command -v ld.mold >/dev/null; then use_linker mold; else use_linker ''; fi
    check_all
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac
