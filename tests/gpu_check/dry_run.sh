#!/usr/bin/env bash
# usage: dry_run.sh FULL BUILD: what profiling/gpu_check.sh --dry-run does. FULL: true or false. BUILD: a finished build folder
# of the flavour emulated; empty: the preset emulated is built. In the environment GS_PACK_BUILD may name a finished build
# folder of the flavour cuda; else FULL builds the preset cuda-pack.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../samples/setup.sh"

full=$1 build=$2
# The programs that the plans run; of the tests only some, which are quick on the software device.
programs=(01_hello 02_eager 04_custom_cuda_op 05_control_flow 06_two_devices train_mnist train_text graphsink-bench launch_baseline
  crossing_cost shape_changes endurance conformance_record existing_trainer existing_trainer_sunk libgraphsink_kernel_times.so
  test_device test_exec test_capture planted_faults)
ranks=(12_ranks test_ranks libnccl_standin.so)

if [[ -z $build ]]; then
  gs_build emulated
  build=$GS_ROOT/build/emulated
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Wrong use has to fail with 2 and say what to do.
expect_refusal() {
  local wanted=$1 code=0
  shift
  "$GS_ROOT/profiling/gpu_check.sh" "$@" >"$work/refusal" 2>&1 || code=$?
  if [[ $code -ne 2 ]] || ! grep -q -e "$wanted" "$work/refusal"; then
    cat "$work/refusal" >&2
    gs_warn "gpu_check.sh $*: expected exit code 2 and the text: $wanted"
    return 1
  fi
}
expect_refusal 'usage:'
expect_refusal '--help' --nonsense
expect_refusal 'needs a value' --pack
expect_refusal 'make it with' --from "$work/none" --out "$work/out"
expect_refusal 'Name a folder with --out' --from "$0"
expect_refusal 'the plans are' --from "$0" --out "$work/out" --plan nothing
expect_refusal 'such as 9' --from "$0" --out "$work/out" --minutes soon
expect_refusal 'is it whole' --from "$0" --out "$work/out"
expect_refusal 'exclude each other' --from "$0" --pack "$work/pack"
expect_refusal 'finished build' --pack "$work/pack" --build "$work"

if [[ -x $build/bin/test_ranks ]]; then programs+=("${ranks[@]}"); fi
GS_PACK_LEVEL=0 "$GS_ROOT/profiling/gpu_pack.sh" "$work/pack/emulated.tar.xz" none "$build" "${programs[@]}"
TMPDIR=$work expect_refusal 'the items of the plan first are hello' --from "$work/pack/emulated.tar.xz" --out "$work/out" --items nothing
rehearsal=("$work/pack/emulated.tar.xz" "$work/rehearsal")
[[ $full == false ]] || rehearsal+=(--full)
"$GS_ROOT/tests/gpu_check/rehearse.py" "${rehearsal[@]}"
[[ $full == true ]] || exit 0

if ! gs_has_nvcc; then
  gs_warn 'NOT CHECKED: the pack of a cuda build; there is no nvcc of CUDA 13'
  exit 0
fi
"$GS_ROOT/profiling/gpu_check.sh" --pack "$work/pack/cuda.tar.xz" ${GS_PACK_BUILD:+--build "$GS_PACK_BUILD"}
"$GS_ROOT/tests/gpu_check/pack_root.sh" "$work/pack/cuda.tar.xz" "$work/pack/emulated.tar.xz"
