#!/usr/bin/env bash
# Everything that needs a GPU, on any machine that has one: builds the cuda preset, runs the tests on the device, looks
# for bad memory accesses and races, measures.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../samples/setup.sh"

all_parts=(build tests sanitize conformance bench peers)
part_seconds=470

usage() {
  cat <<TEXT
usage: profiling/gpu_check.sh OUT_DIR [--part PART[,PART..]] [--deps DIR] [--help]
  --part      of ${all_parts[*]}; default: all
  --deps DIR  Debian packages unpacked with dpkg -x (usr/include, usr/lib/...), where they cannot be installed
Needs nvcc of CUDA 13 and, but for the part build, a GPU; uses no network. Each part takes less than 8 minutes, builds
what it needs and adds to OUT_DIR/gpu_check.json and gpu_check.md; its logs are OUT_DIR/logs-PART.tar.gz.
Exit: 0 all parts passed, 1 a part failed, 2 wrong usage or something is missing.
TEXT
}

out='' deps='' parts=("${all_parts[@]}")
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
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
[[ -n $out ]] || { usage >&2 && exit 2; }
for part in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $part "* ]] || { gs_warn "no part $part; one of ${all_parts[*]}" && exit 2; }
done
mkdir -p "$out"
out=$(realpath "$out")

if [[ -n $deps ]]; then
  [[ -d $deps/usr ]] || { gs_warn "$deps has no usr; unpack the packages there with dpkg -x" && exit 2; }
  usr=$(realpath "$deps")/usr
  libraries=$usr/lib/x86_64-linux-gnu:$usr/lib/x86_64-linux-gnu/openblas-pthread
  export CMAKE_PREFIX_PATH=$usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}
  # Not CPATH: these are system headers, whose warnings are not ours.
  export CPLUS_INCLUDE_PATH=$usr/include:$usr/include/x86_64-linux-gnu${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  export LIBRARY_PATH=$libraries${LIBRARY_PATH:+:$LIBRARY_PATH}
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PATH=$usr/bin:$PATH
fi
if ! gs_has_gpu && [[ ${parts[*]} != build ]]; then
  gs_warn 'no GPU answers (nvidia-smi -L); only --part build works without one'
  exit 2
fi
cd "$GS_ROOT"
bin=build/cuda/bin

# try NAME SECONDS COMMAND...: logs the output and its end; notes PASSED, FAILED or TIMED OUT.
try() {
  local name=$1 limit=$2 start=$SECONDS code=0 outcome=PASSED
  shift 2
  [[ $limit -le $((part_end - SECONDS)) ]] || limit=$((part_end - SECONDS))
  if [[ $limit -le 0 ]]; then
    note "$name: not run, the part's time was used up"
    verdict=failed
    return
  fi
  timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  [[ $code -eq 0 ]] || outcome="FAILED (exit code $code)"
  [[ $code -ne 124 && $code -ne 137 ]] || outcome="TIMED OUT after $limit s"
  [[ $code -eq 0 ]] || verdict=failed
  note "$name: $outcome, $((SECONDS - start)) s"
  [[ $code -eq 0 ]] || tail -n 15 "$logs/$name.log" >&2
}
note() {
  gs_say "$1"
  notes+=("$1")
}

skip() {
  verdict=skipped
  note "nothing to run: $1"
}

build() { GS_LOGS=$logs gs_build cuda "$@" || verdict=failed; }

part_build() {
  build
  note "build/cuda: $(find "$bin" -maxdepth 1 -type f 2>/dev/null | wc -l) programs"
}

part_tests() {
  build
  [[ $verdict == passed ]] || return 0
  try ctest 450 ctest --test-dir build/cuda --output-on-failure --no-tests=error --timeout 200 --parallel 4
  note "$(sed -n '/tests passed/p' "$logs/ctest.log")"
}

part_sanitize() {
  build
  [[ $verdict == passed ]] || return 0
  if ! command -v compute-sanitizer >/dev/null; then
    skip 'compute-sanitizer is not installed'
    return
  fi
  local memcheck=(compute-sanitizer --tool memcheck --error-exitcode 9)
  try memcheck-program_test 90 "${memcheck[@]}" "$bin"/program_test '--gtest_filter=*cuda*'
  try memcheck-control_flow_test 60 "${memcheck[@]}" "$bin"/control_flow_test '--gtest_filter=*cuda*'
  try memcheck-train_text 60 "${memcheck[@]}" "$bin"/train_text --steps 40 --device cuda:0
  try memcheck-05_control_flow 40 "${memcheck[@]}" "$bin"/05_control_flow
  try racecheck-train_text 60 compute-sanitizer --tool racecheck --error-exitcode 9 "$bin"/train_text --steps 20 --device cuda:0
  try racecheck-05_control_flow 40 compute-sanitizer --tool racecheck --error-exitcode 9 "$bin"/05_control_flow
  try synccheck-01_hello 40 compute-sanitizer --tool synccheck --error-exitcode 9 "$bin"/01_hello
  try initcheck-03_custom_cpu_op 40 compute-sanitizer --tool initcheck --error-exitcode 9 "$bin"/03_custom_cpu_op
}

# The golden file this device gives and where it disagrees with the one in the repository go with the logs.
part_conformance() {
  build conformance_record
  [[ $verdict == passed ]] || return 0
  local line
  try conformance_record 450 bash -c "$bin/conformance_record --jobs 4 --record tests/conformance/golden.txt \
    --out '$logs/golden.txt' >'$logs/disagreements.txt'"
  while IFS= read -r line; do note "$line"; done < <(tail -n 3 "$logs/disagreements.txt")
  while IFS= read -r line; do note "disagrees: $line"; done < <(head -n -3 "$logs/disagreements.txt" | head -n 40)
}

part_bench() {
  build graphsink-bench launch_baseline crossing_cost train_mnist
  [[ $verdict == passed ]] || return 0
  rm -f "$logs"/*.json
  try bench 170 "$bin"/graphsink-bench --device cuda:0 --steps 300 --json "$logs/bench.json"
  try bench-16-steps 110 "$bin"/graphsink-bench --device cuda:0 --steps 304 --steps-per-launch 16 --json "$logs/bench-16-steps.json"
  try bench-cpu 100 "$bin"/graphsink-bench --device cpu --steps 300 --json "$logs/bench-cpu.json"
  try launch_baseline 60 bash -o pipefail -c "$bin/launch_baseline 1000 | tee '$logs/launch_baseline.json'"
  try crossing_cost 60 "$bin"/crossing_cost --device cuda:0 --json "$logs/crossing_cost.json"
  try hetero 60 "$bin"/graphsink-bench --device cuda:0 --workload hetero --crossings 4 --steps 300 --json "$logs/hetero-4-crossings.json"
  try train_mnist 60 "$bin"/train_mnist --device cuda:0
  note "$(grep -h 'test accuracy' "$logs/train_mnist.log" || echo 'no accuracy')"
}

part_peers() {
  build graphsink-bench
  [[ $verdict == passed ]] || return 0
  if ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    skip 'there is no PyTorch that sees this GPU'
    return
  fi
  rm -f "$logs"/*.json
  # Without compile: an unrolled LSTM and a chain of 1,000 operations take it minutes.
  try torch-chain-lstm 220 python3 profiling/peers/torch_bench.py --workload chain,wide,lstm --mode eager,graph --json "$logs/torch-chain-lstm.json"
  try torch 240 python3 profiling/peers/torch_bench.py --workload mlp,charmlp,gpt --json "$logs/torch.json"
}

failed=0
for part in "${parts[@]}"; do
  gs_say "part $part"
  start=$SECONDS part_end=$((SECONDS + part_seconds)) verdict=passed notes=()
  logs=$out/logs-$part
  mkdir -p "$logs"
  case $part in
    build) part_build ;;
    tests) part_tests ;;
    sanitize) part_sanitize ;;
    conformance) part_conformance ;;
    bench) part_bench ;;
    peers) part_peers ;;
  esac
  [[ $verdict != failed ]] || failed=1
  python3 profiling/gpu_report.py "$out" "$part" "$verdict" $((SECONDS - start)) "${notes[@]}"
  if [[ -n $(ls -A "$logs") ]]; then tar -czf "$out/logs-$part.tar.gz" -C "$out" "logs-$part"; fi
  rm -rf "$logs"
done
gs_say "written to $out/gpu_check.md"
exit "$failed"
