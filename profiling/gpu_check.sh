#!/usr/bin/env bash
# Everything that needs a GPU, on any machine that has one: builds the cuda preset, runs the tests on the device, asks
# the CUDA runtime the conformance cases, measures, looks for bad memory accesses and races, profiles.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../samples/setup.sh"
# shellcheck source=profiling/gpu_deps.sh
source "$GS_ROOT/profiling/gpu_deps.sh"

all_parts=(build tests conformance bench variants sink names sanitize profile peer-torch peer-torch-compile) # the most valuable first
part_seconds=470

usage() {
  cat <<TEXT
usage: profiling/gpu_check.sh OUT_DIR [--part PART[,PART..]] [--deps DIR]
       profiling/gpu_check.sh --dry-run [OUT_DIR]
       profiling/gpu_check.sh --help
  --part      of the parts below; default: all of them, in this order
  --deps DIR  Debian packages unpacked with dpkg -x, for a machine where they cannot be installed. What is needed and where
              it was found is printed first; what is missing ends the run before anything is built, with the remedy.
  --dry-run   needs no GPU: every part with stand-ins for what the machine lacks, the part build in a root without the
              packages of --deps. Prints how many minutes each part took and would take on 16 cores; 30 minutes on 2 cores.
Parts:
  build        configures, compiles and links everything with nvcc
  tests        every test program, one process each; fails where no test case ran on the CUDA device. What could take the
               process down runs first and alone, what could hang last and with a time-out of its own; then samples, bench
  conformance  the answers of the CUDA runtime and where they disagree with tests/conformance/golden.txt; the golden file
               with these answers is OUT_DIR/golden.txt
  bench        graphsink-bench, launch_baseline, crossing_cost, training on MNIST
  variants     graphsink-bench without fused kernels, with programmatic launch and, for comparison, without, and op by op
               (--profile)
  sink         the trainer of samples/existing_trainer at batch 1, with and without SinkCache, in turns; equal losses
  names        profiling/nsys.sh on training: the times of kernels inside of graphs by op and line; every node has a name
  sanitize     compute-sanitizer; skipped where the machine refuses it
  profile      Nsight Compute (ncu) on one step of mlp and gpt: time, share of peak compute and of peak bandwidth for each
               op and kernel; skipped where the machine refuses it
  peer-torch   PyTorch op by op and as one CUDA graph on the same workloads; skipped where there is none
  peer-torch-compile   the same with torch.compile, whose caches are cold: a call of its own
Needs nvcc of CUDA 13 and, but for the part build, a GPU; uses no network. A part builds what it needs and then takes less
than 8 minutes. cuBLAS may be part of the toolkit or a Python package (nvidia-cublas).
Written to OUT_DIR, added to what is there: gpu_check.json, gpu_check.md, golden.txt and logs.tar.gz. Reports of several
calls: profiling/gpu_report.py --merge OUT_DIR DIR..
Exit: 0 all parts passed or were skipped, 1 a part failed, 2 wrong usage or something is missing.
TEXT
}

out='' deps='' dry_run=false parts=("${all_parts[@]}")
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --dry-run) dry_run=true ;;
    --part | --deps)
      [[ $# -ge 2 ]] || { usage >&2 && exit 2; }
      if [[ $1 == --part ]]; then IFS=, read -ra parts <<<"$2"; else deps=$2; fi
      shift
      ;;
    -*) usage >&2 && exit 2 ;;
    *)
      [[ -z $out ]] || { usage >&2 && exit 2; }
      out=$1
      ;;
  esac
  shift
done
[[ $dry_run == false ]] || exec "$GS_ROOT/profiling/gpu_dry_run.sh" "${out:-$GS_ROOT/build/gpu_dry_run}"
[[ -n $out ]] || { usage >&2 && exit 2; }
for part in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $part "* ]] || { gs_warn "no part $part; one of ${all_parts[*]}" && exit 2; }
done
mkdir -p "$out"
out=$(realpath "$out")
cd "$GS_ROOT"

# The dry run sets GS_GPU_PRESET=emulated and makes the workloads small.
preset=${GS_GPU_PRESET:-cuda}
bin=build/$preset/bin
if [[ $preset == cuda ]]; then
  steps=300 sixteen=304 links=1000 size=() some=() torch=(--steps 100) trained=() tested=() changes=() shards=1 trainer=(--steps 2000) names_steps=100
else
  steps=2 sixteen=32 links=10 size=(--size test) some=(--workload "chain,mlp") torch=(--steps 2 --size test --nodes 20 --rounds 1) trained=(--steps 20) tested=(chain mlp hetero) changes=(--steps 20 --windows 1) trainer=(--steps 3) names_steps=12
  shards=40
fi

gs_use_deps "$deps" || exit 2
if [[ $preset == cuda ]]; then gs_use_cublas || exit 2; fi
if ! gs_has_gpu && [[ ${parts[*]} != build ]]; then
  gs_warn 'no GPU answers (nvidia-smi -L); only --part build works without one'
  exit 2
fi
export CUDA_LOG_FILE=stderr # why the driver refuses something, into the logs

work=$(mktemp -d)
trap 'rm -rf "$work"; [[ -z ${context_holder:-} ]] || kill "$context_holder" 2>/dev/null || true' EXIT
mkdir -p "$work/logs"
[[ ! -f $out/logs.tar.gz ]] || tar -xzf "$out/logs.tar.gz" -C "$work"

# Notes and verdict of a part are files, so that what runs in the background can add to them.
note() {
  gs_say "$1"
  printf '%s\n' "$1" >>"$work/notes"
}
fail() {
  note "$1"
  echo failed >"$work/verdict"
}
skip() {
  note "skipped: $1"
  echo skipped >"$work/verdict"
}
has_failed() { [[ $(<"$work/verdict") == failed ]]; }

# try NAME SECONDS COMMAND...: logs the output and its end; notes PASSED, FAILED or TIMED OUT. Returns 1 unless it passed.
# A try named probe may fail: its caller says what that means.
try() {
  local name=$1 limit=$2 start=$SECONDS code=0 outcome=PASSED left=$((part_end - SECONDS))
  shift 2
  planned=$((planned + limit))
  [[ $limit -le $left ]] || limit=$left
  if [[ $limit -le 0 ]]; then
    fail "$name: not run, the time of the part was used up"
    return 1
  fi
  timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  [[ $code -eq 0 ]] || outcome="FAILED (exit code $code)"
  [[ $code -ne 124 && $code -ne 137 ]] || outcome="TIMED OUT after $limit s"
  note "$name: $outcome, $((SECONDS - start)) s"
  [[ $code -eq 0 ]] && return 0
  tail -n 15 "$logs/$name.log" >&2
  [[ $name == probe ]] || echo failed >"$work/verdict"
  return 1
}

# build [TARGET...]: the clock of a part begins when its build has ended.
build() {
  local start=$SECONDS
  GS_LOGS=$logs gs_build "$preset" "$@" || fail 'the build failed'
  build_seconds=$((SECONDS - start))
  part_end=$((SECONDS + part_seconds))
  ! has_failed
}

part_build() {
  build || true
  note "$preset: $(find "$bin" -maxdepth 1 -type f 2>/dev/null | wc -l) programs"
}

# A process that has the device open keeps the driver from starting it anew for each test program.
hold_context() {
  python3 - $((part_seconds + 60)) >"$logs/context.log" 2>&1 <<'PYTHON' &
import ctypes, sys, time
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
codes = cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
print("yes" if codes == (0, 0) else f"no, cuInit and cuDevicePrimaryCtxRetain returned {codes}", flush=True)
time.sleep(float(sys.argv[1]))
PYTHON
  context_holder=$!
  disown "$context_holder" # no job that wait waits for
  for _ in {1..100}; do
    [[ ! -s $logs/context.log ]] || break
    sleep 0.1
  done
  note "a process holds the device open: $(tail -n 1 "$logs/context.log")"
}

# Tests that may end their process on a driver with a fault: each runs alone, before all others.
alone=('*.ABodyThatBreaksTheCaptureIsNamed') # some drivers free a body twice after its capture was broken
# Tests that may wait for ever: a host node of a launch waits for the thread that launches.
may_hang=(
  '*Polls.NeverWaitForAStepThatIsHeldUp/cuda*'
  'HostWatch.*'
  'CudaBeside.AnOpOnTheHostRunsInTheCallersThreadBesideTheLaunchBefore'
)
# What compute-sanitizer runs of the tests.
sanitized='*AllModesGiveTheSameBits/cuda*:*LoopIsAConditionalNode/cuda*:*BranchInsideALoop/cuda*:*ABodyMayUseSeveralStreams*'

test_programs() { find "$bin" -maxdepth 1 -type f -executable \( -name 'test_*' -o -name '*_test' \) | sort; }
has_tests() { [[ $(timeout 60 "$1" --gtest_filter="$2" --gtest_list_tests) == *$'\n'* ]]; }

# run_tests NAME SECONDS PROGRAM FILTER
run_tests() {
  try "$1" "$2" "$3" --gtest_filter="$4" --gtest_output="xml:$logs/$1.xml" --gtest_brief=1
}

# run_each PATTERN...: in a process of its own, with a short time-out.
run_each() {
  local pattern program found
  for pattern in "$@"; do
    found=false
    for program in $(test_programs); do
      has_tests "$program" "$pattern" || continue
      found=true
      run_tests "${program##*/}.${pattern//[^A-Za-z0-9]/_}" 60 "$program" "$pattern" || true
    done
    [[ $found == true ]] || fail "no test program has the test $pattern: correct the list in profiling/gpu_check.sh"
  done
}

part_tests() {
  build || return 0
  local program name filter running=0 pieces piece
  hold_context
  filter=$(IFS=: && echo "*:-${alone[*]}:${may_hang[*]}")
  run_each "${alone[@]}"
  # Those with the most cases of the device come first: they would be missed most if the time were up.
  for program in $(test_programs); do
    printf '%s %s\n' "$(timeout 60 "$program" --gtest_list_tests | grep -ci cuda)" "${program##*/}"
  done | sort -rn >"$work/programs"
  while read -r _ name; do
    pieces=1 # those with the most cases would not end in time as one process; a dry run tries a small part as it is
    if [[ $shards -eq 1 && $name =~ ^test_(api|kernels|random_graph)$ ]]; then pieces=4; fi
    for ((piece = 0; piece < pieces; ++piece)); do
      GTEST_TOTAL_SHARDS=$((shards * pieces)) GTEST_SHARD_INDEX=$piece \
        run_tests "$name.$piece" 120 "$bin/$name" "$filter" &
      running=$((running + 1))
      [[ $running -lt 4 ]] || { wait -n || true; }
    done
  done <"$work/programs"
  wait
  try samples 120 tests/samples_test.sh "$GS_ROOT/$bin" || true
  try bench_test 120 python3 tests/bench_test.py "$GS_ROOT/$bin" "${tested[@]}" || true
  run_each "${may_hang[@]}"
  kill "$context_holder" 2>/dev/null || true
  note "$(python3 profiling/gpu_report.py --count-cases "$logs"/*.xml)"
  python3 profiling/gpu_report.py --require-device-cases "$logs"/*.xml || fail 'no test case ran on the CUDA device'
}

# The golden file with this device's answers is written as cases finish; disagreements go with the logs.
part_conformance() {
  build conformance_record || return 0
  local line
  if [[ $preset == cuda ]]; then
    try conformance_record 450 bash -c "$bin/conformance_record --jobs 8 --record tests/conformance/golden.txt \
      --out '$out/golden.txt' >'$logs/disagreements.txt'" || true
  else # only a GPU can confirm
    try conformance_record 450 bash -c "$bin/conformance_record --jobs 8 --check tests/conformance/golden.txt >'$logs/disagreements.txt'" || true
  fi
  while IFS= read -r line; do note "$line"; done < <(tail -n 3 "$logs/disagreements.txt")
  while IFS= read -r line; do note "disagrees: $line"; done < <(head -n -3 "$logs/disagreements.txt" | head -n 40)
}

part_bench() {
  build graphsink-bench launch_baseline crossing_cost shape_changes train_mnist || return 0
  local bench=("$bin/graphsink-bench" "${size[@]}")
  try bench 160 "${bench[@]}" --device cuda:0 --steps "$steps" "${some[@]}" --json "$logs/bench.json" || true
  try launch_baseline 40 bash -o pipefail -c "$bin/launch_baseline $links | tee '$logs/launch_baseline.json'" || true
  try train_mnist 50 "$bin"/train_mnist --device cuda:0 "${trained[@]}" || true
  note "$(grep -h 'test accuracy' "$logs/train_mnist.log" || echo 'no accuracy')"
  try crossing_cost 40 "$bin"/crossing_cost --device cuda:0 --json "$logs/crossing_cost.json" || true
  try shape_changes 40 "$bin"/shape_changes --device cuda:0 "${changes[@]}" --json "$logs/shape_changes.json" || true
  try bench-16-steps 60 "${bench[@]}" --device cuda:0 --steps "$sixteen" --steps-per-launch 16 "${some[@]}" --json "$logs/bench-16-steps.json" || true
  try hetero 40 "${bench[@]}" --device cuda:0 --workload hetero --crossings 4 --steps "$steps" --json "$logs/hetero-4-crossings.json" || true
  try bench-cpu 40 "${bench[@]}" --device cpu --workload chain,mlp,gpt --steps "$((steps / 3 + 1))" --json "$logs/bench-cpu.json" || true
}

# What else a step could be made of.
part_variants() {
  build graphsink-bench || return 0
  local bench=("$bin/graphsink-bench" "${size[@]}" --device cuda:0) launches=(--mode sink --workload 'chain,wide,mlp,lstm' --steps "$steps")
  try bench-no-fuse 60 "${bench[@]}" --no-fuse --mode sink --workload wide,mlp,lstm --steps "$steps" --json "$logs/bench-no-fuse.json" || true
  try bench-launches 100 "${bench[@]}" "${launches[@]}" --json "$logs/bench-launches.json" || true
  try bench-programmatic 100 "${bench[@]}" "${launches[@]}" --programmatic-launch --json "$logs/bench-programmatic.json" || true
  try op-times 60 "${bench[@]}" --profile --workload mlp,lstm,gpt --steps "$((steps / 3 + 1))" --json "$logs/op-times.json" || true
}

# Code that knows nothing of graphsink, as it is and sunk: steps per second of both, in turns.
part_sink() {
  if ! command -v patch >/dev/null; then
    skip 'the program patch is missing (package patch; dpkg -x it into the folder of --deps)'
    return
  fi
  build existing_trainer existing_trainer_sunk || return 0
  local round program
  for round in 1 2 3 4 5; do
    for program in existing_trainer existing_trainer_sunk; do
      try "$program-$round" 40 "$bin/$program" --batch 1 "${trainer[@]}" --losses "$work/$program.losses" || return 0
    done
    cmp -s "$work/existing_trainer.losses" "$work/existing_trainer_sunk.losses" || fail "round $round: the losses differ"
  done
  note "$(python3 - "$logs" <<'PYTHON'
import pathlib, re, statistics, sys
def speeds(program):
    texts = (pathlib.Path(sys.argv[1], f"{program}-{n}.log").read_text() for n in range(1, 6))
    return [float(re.search(r"([0-9.]+) steps per second", text).group(1)) for text in texts]
plain, sunk = speeds("existing_trainer"), speeds("existing_trainer_sunk")
ratio = statistics.median(b / a for a, b in zip(plain, sunk))
print(f"existing_trainer at batch 1, medians of 5 pairs: {statistics.median(plain):.0f} steps per second as it is, "
      f"{statistics.median(sunk):.0f} sunk, {ratio:.2f} times as many")
PYTHON
)"
}

# sanitizer NAME SECONDS TOOL ARGUMENT...
sanitizer() {
  local name=$1 limit=$2 tool=$3
  shift 3
  try "$tool-$name" "$limit" compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" || true
}

# With Nsight Systems where it is installed, and through CUPTI, which must give the same names.
part_names() {
  build train_mnist train_text || return 0
  local ways=() options=() way program
  if command -v nsys >/dev/null; then ways+=(nsys); fi
  if GS_LOGS=$logs gs_build "$preset" graphsink_kernel_times; then ways+=(cupti); fi
  if [[ ${#ways[@]} -eq 0 ]]; then
    skip 'neither Nsight Systems nor CUPTI is installed'
    return
  fi
  for way in "${ways[@]}"; do
    [[ $way == nsys ]] || options=(--cupti)
    for program in train_mnist train_text; do
      try "names-$way-$program" 60 profiling/nsys.sh "${options[@]}" --out "$work/$way-$program" "$bin/$program" --device cuda:0 \
        --steps "$names_steps" || continue
      ! grep -q 'unknown graph' "$work/$way-$program/kernels.json" || fail "$way, $program: nodes of graphs have no name"
      note "$way, $program: $(grep -m1 'ms of kernels' "$logs/names-$way-$program.log")"
    done
  done
}
part_sanitize() {
  local program text=(--steps 20 --steps-per-launch 4 --evaluate-on 64 --device cuda:0)
  build || return 0
  if ! command -v compute-sanitizer >/dev/null; then
    skip 'compute-sanitizer is not installed'
    return
  fi
  if ! try probe 40 compute-sanitizer --tool memcheck --error-exitcode 9 "$bin/01_hello"; then
    if ! "$bin/01_hello" >/dev/null 2>&1; then
      fail 'samples/01_hello fails without compute-sanitizer, too'
    elif grep -qE 'ERROR SUMMARY: [1-9]|Invalid __' "$logs/probe.log"; then
      fail 'compute-sanitizer found errors in samples/01_hello'
    else
      skip "compute-sanitizer does not work on this machine: $(grep -m1 -iE 'error|not supported|denied|fail' "$logs/probe.log" || tail -n 1 "$logs/probe.log")"
    fi
    return
  fi
  sanitizer train_text 60 memcheck "$bin/train_text" "${text[@]}"
  sanitizer train_text 70 racecheck "$bin/train_text" "${text[@]}"
  # These tests make calls that fail.
  for program in $(test_programs); do
    has_tests "$program" "$sanitized" || continue
    sanitizer "${program##*/}" 35 memcheck --report-api-errors no "$program" --gtest_filter="$sanitized"
  done
  sanitizer 05_control_flow 40 memcheck "$bin/05_control_flow"
  sanitizer 05_control_flow 40 racecheck "$bin/05_control_flow"
  sanitizer 01_hello 40 synccheck "$bin/01_hello"
  sanitizer 03_custom_cpu_op 40 initcheck "$bin/03_custom_cpu_op"
}
# Clocks are left as they are: a shared machine does not let them be locked.
part_profile() {
  build graphsink-bench 01_hello || return 0
  local workload ncu=(ncu --clock-control none)
  if ! command -v ncu >/dev/null; then
    skip 'Nsight Compute (ncu) is not installed'
    return
  fi
  if ! try probe 60 "${ncu[@]}" --set basic --launch-count 1 "$bin/01_hello"; then
    skip "ncu does not work on this machine: $(grep -m1 -E '==ERROR==|ERR_' "$logs/probe.log" || tail -n 1 "$logs/probe.log")"
    return
  fi
  for workload in mlp gpt; do
    try "profile-$workload" 150 "${ncu[@]}" --set basic --nvtx --force-overwrite --export "$work/$workload" \
      "$bin/graphsink-bench" --device cuda:0 --workload "$workload" --mode interactive-serial --steps 1 --untimed "${size[@]}" || continue
    # Once with the names of the kernels, once with those of the ops that launched them.
    local import=(ncu --import "$work/$workload.ncu-rep" --csv --page raw --print-units base)
    local csv=$logs/$workload
    try "kernels-$workload" 20 "${import[@]}" --print-nvtx-rename none --log-file "$csv.kernels.csv" || continue
    try "ops-$workload" 20 "${import[@]}" --print-nvtx-rename kernel --log-file "$csv.ops.csv" || continue
    try "table-$workload" 10 python3 profiling/gpu_report.py --profile "$csv.kernels.csv" "$csv.ops.csv" \
      "$logs/profile-$workload.json" || true
  done
}

# peer NAME ARGUMENT...
peer() {
  local name=$1
  shift
  build graphsink-bench || return 0
  if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    skip 'there is no PyTorch that sees this GPU'
    return
  fi
  try "$name" 460 python3 profiling/peers/torch_bench.py --device cuda --bench "$GS_ROOT/$bin/graphsink-bench" "${torch[@]}" \
    --json "$logs/$name.json" "$@" || true
}

failed=0
for part in "${parts[@]}"; do
  gs_say "part $part"
  logs=$work/logs/$part
  rm -rf "$logs" "$work/notes"
  mkdir -p "$logs"
  echo passed >"$work/verdict"
  : >"$work/notes"
  build_seconds=0 planned=0 start=$SECONDS part_end=$((SECONDS + part_seconds))
  case $part in
    build) part_build ;;
    tests) part_tests ;;
    conformance) part_conformance ;;
    bench) part_bench ;;
    variants) part_variants ;;
    sink) part_sink ;;
    names) part_names ;;
    sanitize) part_sanitize ;;
    profile) part_profile ;;
    peer-torch) peer torch --mode eager,graph ;;
    # Without an unrolled LSTM and a chain of 1,000 operations, which it takes minutes to compile.
    peer-torch-compile) peer torch-compile --mode compile --workload mlp,charmlp,gpt --rounds 1 ;;
  esac
  # Tests run side by side and are cut off at the end of the part; everything else has time for all it may take.
  [[ $part == tests || $planned -le $part_seconds ]] || fail "the time limits of the part add up to $planned s"
  verdict=$(<"$work/verdict")
  [[ $verdict != failed ]] || failed=1
  mapfile -t notes <"$work/notes"
  python3 profiling/gpu_report.py --add "$out" "$part" "$verdict" "$build_seconds" $((SECONDS - start - build_seconds)) \
    "$logs" "${notes[@]}"
  tar -czf "$out/logs.tar.gz" -C "$work" logs
done
gs_say "written to $out/gpu_check.md"
exit "$failed"
