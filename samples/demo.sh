#!/usr/bin/env bash
# From a fresh clone to one table: sets up, builds, trains on real input op by op and as one launch per step.
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
  cat <<TEXT
usage: samples/demo.sh [TEXT_FILE] [--mnist DIR] [--help]
  TEXT_FILE    what the character model learns; default: tinyshakespeare.txt in \$GRAPHSINK_DATA or ../shared/data,
               else this repository's LICENSE
  --mnist DIR  directory of the MNIST files; default: \$GRAPHSINK_DATA, ../shared/data, else made-up digits
Trains, prints a table of op by op against one launch a step, and writes build/demo/demo.json: the rows of graphsink-bench,
the machine, mnist_accuracy in percent (null without MNIST), the text that the character model wrote, whether a resumed run
equals an undisturbed one.
Exit: 0 if all modes agree bit for bit and the losses fall, 1 if not, 2 if something is missing or wrong.
TEXT
}

text='' mnist=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --mnist)
      [[ $# -ge 2 ]] || { usage >&2 && exit 2; }
      mnist=$2
      shift
      ;;
    -*) usage >&2 && exit 2 ;;
    *)
      [[ -z $text ]] || { usage >&2 && exit 2; }
      text=$1
      ;;
  esac
  shift
done
if [[ -z $text ]]; then
  text=${GRAPHSINK_DATA:-$GS_ROOT/../shared/data}/tinyshakespeare.txt
  [[ -r $text ]] || text=$GS_ROOT/LICENSE
fi
if [[ ! -f $text || ! -r $text ]]; then
  gs_warn "cannot read the text file $text; name another one"
  exit 2
fi
if [[ -n $mnist && ! -d $mnist ]]; then
  gs_warn "there is no directory $mnist; name the one that holds t10k-images-idx3-ubyte.gz"
  exit 2
fi
text=$(realpath "$text")
data_args=()
[[ -z $mnist ]] || data_args=(--data "$(realpath "$mnist")")
cd "$GS_ROOT"

gs_require_packages "${GS_BUILD_PACKAGES[@]}"
preset=cpu
if gs_has_gpu && gs_has_nvcc; then preset=cuda; fi
gs_say "building graphsink for $preset, once; a tenth of the build tells how long it takes here"
gs_build "$preset" graphsink-bench train_mnist train_text || exit 2
bin=build/$preset/bin out=build/demo
mkdir -p "$out"

# run NAME COMMAND...: the output goes to build/demo/NAME.log; what follows the plan is shown.
run() {
  local log=$out/$1.log
  shift
  "$@" | tee "$log" | sed -n '/^training on/,$p'
}

# measure NAME ARGUMENT...: the report goes to build/demo/NAME.json, what it says of its progress to stderr.
measure() {
  local name=$1
  shift
  "$bin/graphsink-bench" --steps 100 --text "$text" "${data_args[@]}" --json "$out/$name.json" "$@" >"$out/$name.log" || exit 2
}

for mode in interactive-serial sink; do
  gs_say "training on digits, $mode"
  run "mnist-$mode" "$bin/train_mnist" --mode "$mode" "${data_args[@]}" || exit 2
  gs_say "training on text, $mode"
  run "text-$mode" "$bin/train_text" "$text" --mode "$mode" --steps 5000 || exit 2
done
gs_say 'gpt: 40 steps, and 20 that are saved and go on to 40'
gpt=("$bin/train_text" "$text" --model gpt --decay-steps 40 --dropout 0.1)
rm -rf "$out/undisturbed" "$out/resumed"
run undisturbed "${gpt[@]}" --steps 40 --save "$out/undisturbed" || exit 2
run interrupted "${gpt[@]}" --steps 20 --save "$out/resumed" >/dev/null || exit 2
run resumed "${gpt[@]}" --steps 40 --save "$out/resumed" || exit 2
gs_say 'measuring all workloads op by op and as one launch a step, 100 steps each'
measure bench --mode interactive-serial,interactive-parallel,sink
gs_say 'measuring them once more, op by op with each op alone, and as launches of one thread'
measure no-fuse --mode interactive-serial --no-fuse
measure one-thread --mode sink --threads 1
python3 profiling/demo_table.py "$out"
