#!/usr/bin/env bash
# Runs every sample at a small size and checks what it prints; then what the programs say about bad input.
set -euo pipefail

[[ $# -eq 1 ]] || { echo "usage: $0 BIN_DIR" >&2 && exit 2; }
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset GRAPHSINK_DATA
checks=0

fail() {
  echo "FAILED: $1" >&2
  cat "$work/out" "$work/err" >&2
  exit 1
}

# prints NAME 'REGEX'... -- COMMAND...: exits 0 and prints a match of each.
prints() {
  local name=$1 patterns=() pattern
  shift
  for (( ; $# > 0; )); do
    pattern=$1
    shift
    [[ $pattern != -- ]] || break
    patterns+=("$pattern")
  done
  "$@" >"$work/out" 2>"$work/err" </dev/null || fail "$name: exit code $?"
  for pattern in "${patterns[@]}"; do
    grep -qE -e "$pattern" "$work/out" || fail "$name does not print $pattern"
    checks=$((checks + 1))
  done
}

# refuses NAME 'REGEX' COMMAND...: exits 2, with a message on stderr that matches.
refuses() {
  local name=$1 pattern=$2 code=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
  [[ $code -eq 2 ]] || fail "$name: exit code $code, expected 2"
  grep -qE -e "$pattern" "$work/err" || fail "$name: no message that matches $pattern"
  checks=$((checks + 1))
}

# loses NAME COMMAND...: exits 2 where its output goes to a full device.
loses() {
  local name=$1 code=0
  shift
  "$@" 2>"$work/err" </dev/null >/dev/full || code=$?
  : >"$work/out"
  [[ $code -eq 2 ]] || fail "$name: exit code $code with its output on a full device, expected 2"
  checks=$((checks + 1))
}

# What a training program computed, without what depends on time.
result() { grep -vE '^step ' "$work/out" | sed -n '/^training on/,$p' | tail -n +2; }

plan='^plan for (cpu|cuda:0).*sinks whole: 1 launch per step'
flavour=$("$bin/graphsink-bench" --workload chain --nodes 10 --mode sink --steps 1 --json - |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["machine"]["flavour"])')

prints 01_hello "$plan" ' matmul .* f32\[32, 256\] .* 01_hello\.cpp:[0-9]+' 'adamw .*commits 6 variables' \
  '^102 steps, loss 2\.[0-9]+ -> 0\.[0-9]+$' -- "$bin/01_hello"
prints 02_eager '^m = f32\[2\] \[3, 8\]$' '^z = f32\[2\] \[1, 6\]$' "$plan" '^z of the graph = f32\[2\] \[1, 6\]$' -- \
  "$bin/02_eager"
prints 03_custom_cpu_op "$plan" ' cube .* 03_custom_cpu_op\.cpp:[0-9]+' '^gradient = f32\[3\] \[3, 12, 27\]$' \
  '^loss 36 -> 6\.69[0-9]+$' -- "$bin/03_custom_cpu_op"
prints 04_custom_cuda_op "$plan" ' axpy .* 04_custom_cuda_op\.cu:[0-9]+' 'total: f32\[3\] \[10, 20, 30\]$' -- \
  "$bin/04_custom_cuda_op"
prints 05_control_flow "$plan" ' while ' ' if ' \
  '^interactive-serial from 1: root 1\.41421 after 4 iterations, branch gives 14\.1421$' \
  '^sink from 1: root 1\.41421 after 4 iterations, branch gives 14\.1421$' \
  '^sink from 100: root 1\.41421 after 10 iterations, branch gives 1414\.21$' \
  '^the launch holds 2 conditional nodes$' -- "$bin/05_control_flow"

if [[ $flavour != cpu ]]; then
  prints 10_own_stream '^10 steps, loss 8464 -> 21\.6[0-9]*, w f32\[4\] \[2\.39308, 2\.39308, .*, sum of y 123\.989$' -- \
    "$bin/10_own_stream"
fi

# What runs on the host is a node of the launch where the host is another device.
two_devices=('^the launch holds 3 kernels, 0 copies, 0 host nodes$' '^fused: 9 ops in 1 node;') tokenizer=()
if [[ $flavour != cpu ]]; then
  two_devices=('^the launch holds 9 kernels, 2 copies, 4 host nodes$' '^copies: 32 B to cuda:0$'
    '^invariant copies, made only when the source was written: 32 B to the host$')
  tokenizer=('^the launch holds 1 host node$')
fi
for mode in interactive-serial interactive-parallel split-serial split-parallel sink split-sink automatic; do
  two_devices+=("^$mode: x \\+ y - z = f32\\[4\\] \\[10\\.5, 21\\.5, 32\\.5, 43\\.5\\], branches agree to 1e-06$")
done
# Without a run-time compiler, so that a GPU has as many kernels as the software device.
prints 06_two_devices "$plan" "${two_devices[@]}" -- env GRAPHSINK_NVRTC= "$bin/06_two_devices"
prints 07_side_effects "$plan" ' say .* 07_side_effects\.cpp:[0-9]+' -- "$bin/07_side_effects"
[[ $(grep -A3 ':$' "$work/out" | grep -cE '^  r = (90|100)$|^  x, y, z = 111, 12, 123$') -eq 21 ]] ||
  fail '07_side_effects: the modes do not agree'
file=$work/program
prints '11_program_file --write' -- "$bin/11_program_file" --write "$file"
prints 11_program_file '^Variable w1 f32\[8, 16\]$' '^feed x f32\[32, 8\]$' '^loss after 10 steps: [0-9.]+$' -- \
  "$bin/11_program_file" "$file" --save "$file.saved"
prints '11_program_file goes on' '^loss after 20 steps: [0-9.]+$' -- "$bin/11_program_file" "$file.saved" --mode split-sink
prints 08_tokenizer "$plan" '^200 steps on LICENSE, loss 4\.[0-9]+ -> 2\.[0-9]+$' "${tokenizer[@]}" -- "$bin/08_tokenizer"
prints 09_two_gpus "$plan" '^[0-9]+ GPUs at hand: 100 steps, loss [0-9.]+ -> 0\.[0-9]+$' -- "$bin/09_two_gpus"
if [[ $flavour == emulated ]]; then
  learned=$(sed -n 's/^1 GPUs at hand//p' "$work/out")
  prints '09_two_gpus on two' '^plan for cuda:0 .* and cuda:1 .*sinks whole: 1 launch per step' ' between devices$' \
    "^2 GPUs at hand$learned$" -- env GS_EMU_DEVICES=2 "$bin/09_two_gpus"
fi

# Collectives between processes, where MPI or ZeroMQ is.
if [[ -x $bin/12_ranks ]]; then
  prints 12_ranks "$plan" '^1 rank: 192 steps, loss 2\.[0-9]+ -> 0\.[0-9]+$' -- "$bin/12_ranks"
  ldd "$bin/12_ranks" >"$work/libraries"
fi
if [[ -x $bin/12_ranks ]] && grep -q libzmq "$work/libraries"; then
  start=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/ranks/start.py
  prints '12_ranks by variables' ' all_reduce .* 12_ranks\.cpp:[0-9]+' '^2 ranks: 192 steps, loss 2\.[0-9]+ -> 0\.[0-9]+$' -- \
    "$start" 2 "$bin/12_ranks"
fi
if [[ -x $bin/12_ranks ]] && grep -q libmpi "$work/libraries"; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
  prints '12_ranks on four' ' all_reduce .* 12_ranks\.cpp:[0-9]+' '^4 ranks: 192 steps, loss 2\.[0-9]+ -> 0\.[0-9]+$' -- \
    mpirun -n 4 "$bin/12_ranks"
fi

# train_text: every mode and grouping of steps writes the same text.
evaluation=() # small on the software device, where threads are slow
[[ $flavour != emulated ]] || evaluation=(--evaluate-on 64)
text_arguments=(--steps 45 --seed 3 "${evaluation[@]}")
prints train_text "$plan" ' embedding .* f32\[64, 8, 16\]' '^training on LICENSE \(11358 characters' \
  '^step 45/45  loss [0-9.]+  [0-9.]+ steps/s$' '^continuation:$' -- "$bin/train_text" "${text_arguments[@]}"
result >"$work/text"
[[ $(wc -c <"$work/text") -gt 200 ]] || fail 'train_text: the continuation is too short'
for options in '--mode interactive-serial' '--mode interactive-parallel' '--steps-per-launch 1' '--steps-per-launch 16'; do
  # shellcheck disable=SC2086
  prints "train_text $options" '^continuation:$' -- "$bin/train_text" "${text_arguments[@]}" $options
  result | cmp -s - "$work/text" || fail "train_text $options: another result"
done

printf 'abcdefgh%.0s' {1..100} >"$work/letters.txt"
# A run that is saved, ended and resumed writes the same checkpoint as one that is not, bit for bit.
checkpoints=(--evaluate-every 20 --decay-steps 40 "${evaluation[@]}")
last=step-000000000040.safetensors
prints 'train_text --save' '^evaluation at step 20: nats a character [0-9.]+$' "^ended at step 40: .*saved .*/whole/$last$" -- \
  "$bin/train_text" "${checkpoints[@]}" --steps 40 --save "$work/whole" --save-every 15
prints 'train_text --save half' '^ended at step 20: ' -- \
  "$bin/train_text" "${checkpoints[@]}" --steps 20 --save "$work/half"
prints 'train_text goes on' '^goes on at step 20 from .*/half/step-000000000020.safetensors$' '^step 40/40 ' -- \
  "$bin/train_text" "${checkpoints[@]}" --steps 40 --save "$work/half" --mode interactive-serial --loader sync
cmp -s "$work/whole/$last" "$work/half/$last" || fail 'train_text: a resumed run writes another checkpoint'
refuses 'another model' "error: .*whole.*metadata \"model\": expected gpt, seen charmlp.*remedy: ." \
  "$bin/train_text" --model gpt --save "$work/whole"
refuses 'another text' 'error: .*whole/step.*: an epoch had .*batches.*remedy: .' \
  "$bin/train_text" --save "$work/whole" "$work/letters.txt"
mkdir "$work/cut"
head -c 100 "$work/whole/$last" >"$work/cut/$last"
refuses 'a truncated checkpoint' 'error: .*cut/step.*: header size.*remedy: .' "$bin/train_text" --save "$work/cut"
if [[ $flavour == cpu ]]; then # at full size these take too long on the software device
  for model in lstm gpt; do
    prints "train_text --model $model" "$plan" '^step 4/4 ' '^evaluation at step 4: ' '^continuation:$' -- \
      "$bin/train_text" --model "$model" --steps 4 --dropout 0.1
  done
fi

# On a terminal the progress line is rewritten in place.
script -qec "$bin/train_text --steps 45 ${evaluation[*]}" "$work/typescript" >"$work/out" 2>"$work/err" </dev/null ||
  fail 'train_text on a terminal'
grep -qP '\rstep \d+/45  \[=* *\]  loss [\d.]+  [\d.]+ steps/s' "$work/out" || fail 'train_text: no progress line on a terminal'

# Real digits where they are, else made-up ones, and the sample says so.
steps=1000
[[ $flavour != emulated ]] || steps=20
prints train_mnist "$plan" '^training on 8000 of (t10k-images|seeded digits)' "^step $steps/$steps" \
  '^test accuracy: [0-9.]+ %$' -- "$bin/train_mnist" --steps "$steps"
if [[ $flavour != emulated ]]; then
  accuracy=$(sed -n 's/^test accuracy: \([0-9]*\).*/\1/p' "$work/out")
  [[ $accuracy -ge 92 ]] || fail "train_mnist: $accuracy % is less than 92 %"
fi

# The order of the batches depends neither on who reads them nor on the steps of a launch.
prints 'train_mnist, one step a launch' '^test accuracy' -- "$bin/train_mnist" --steps 20 --steps-per-launch 1 --loader sync
result >"$work/one"
prints 'train_mnist, many workers' '^test accuracy' -- "$bin/train_mnist" --steps 20 --steps-per-launch 7 --workers 4
result >"$work/many"
cmp -s "$work/one" "$work/many" || fail 'train_mnist: the result depends on workers or steps per launch'
prints 'train_mnist, digits on the device' '^test accuracy' ' gather ' -- "$bin/train_mnist" --steps 20 --resident
result >"$work/resident"
cmp -s "$work/one" "$work/resident" || fail 'train_mnist: the result depends on where the digits are'

# Digits as PNG files: they are written where there are none. On the CPU, because the software device is slow.
programs=(train_text train_mnist)
if [[ -x $bin/train_images ]]; then # a build without the libraries of images has none
  programs+=(train_images)
  images=("$bin/train_images" --digits 400 --width 4 --folder "$work/images")
  # A run that is ended at its first image, here by the limit of the size of files, leaves no data set. The next one writes
  # it, also where the folder test has its name already.
  ! (ulimit -f 0; "${images[@]}" || exit 1) >/dev/null 2>&1 || fail 'train_images: is not ended by the limit'
  [[ -d $work/images/.train_images_partial/test && ! -e $work/images/train ]] ||
    fail 'train_images: a run that was ended leaves a data set'
  mkdir "$work/images/test"
  prints train_images "$plan" '^wrote 400 of (t10k-images|seeded digits)' '^training on 320 images of 10 classes' \
    '^step 2/2 ' '^test accuracy: [0-9.]+ %$' -- "${images[@]}" --steps 2
  loses train_images "${images[@]}" --device cpu --steps 1
  images+=(--device cpu --steps 150)
  prints 'train_images, one step a launch' 'images is not empty: nothing is written' '^loss of the last step: [0-9.]+$' -- \
    "${images[@]}" --steps-per-launch 1 --loader sync
  result >"$work/one"
  prints 'train_images, two workers' '^test accuracy: [3-9][0-9]' -- "${images[@]}" --steps-per-launch 7 --workers 2
  result >"$work/many"
  cmp -s "$work/one" "$work/many" || fail 'train_images: the result depends on workers or steps per launch'
  first=$(find "$work/images/train/0" -name '*.png' -print -quit)
  truncate -s 80 "$first"
  refuses 'a truncated image' "error: .*/train/0/[0-9]*\.png: is truncated.*remedy: ." "${images[@]}"
  rm -r "$work/images/test/7"
  refuses 'no test of a class' 'error: .*/test: expected the same classes.*remedy: .' "${images[@]}"
  refuses 'a file as a folder' "error: .*remedy: ." "$bin/train_images" --folder "$work/letters.txt"
fi

# Bad input: each row names the file or op and a remedy, with exit code 2.
remedy='remedy: .'
refuses 'missing text' "error: .*nowhere\.txt.*$remedy" "$bin/train_text" "$work/nowhere.txt"
printf 'short' >"$work/short.txt"
refuses 'short text' "error: .*short\.txt.*$remedy" "$bin/train_text" "$work/short.txt"
refuses 'a directory as text' "error: .*$remedy" "$bin/train_text" "$work"
refuses 'missing directory' "error: .*nowhere.*$remedy" "$bin/train_mnist" --data "$work/nowhere"
mkdir "$work/empty" "$work/digits"
refuses 'no digits' "error: .*t10k-images-idx3-ubyte.*$remedy" "$bin/train_mnist" --data "$work/empty"
refuses 'no digits, from the environment' "error: .*t10k-images-idx3-ubyte.*$remedy" \
  env GRAPHSINK_DATA="$work/empty" "$bin/train_mnist"
printf '\0\0\010\003\0\0\0\002\0\0\0\034\0\0\0\034pixels' >"$work/digits/t10k-images-idx3-ubyte"
printf '\0\0\010\001\0\0\0\002\001\002' >"$work/digits/t10k-labels-idx1-ubyte"
refuses 'truncated IDX' "error: .*t10k-images-idx3-ubyte.*truncated.*$remedy" "$bin/train_mnist" --data "$work/digits"
gzip "$work/digits/t10k-images-idx3-ubyte"
refuses 'truncated IDX, gzipped' "error: .*t10k-images-idx3-ubyte.*truncated.*$remedy" \
  "$bin/train_mnist" --data "$work/digits"
truncate -s 20 "$work/digits/t10k-images-idx3-ubyte.gz"
refuses 'damaged gzip' "error: .*t10k-images-idx3-ubyte\.gz.*$remedy" "$bin/train_mnist" --data "$work/digits"
refuses 'the same for the benchmark' "error: .*t10k-images-idx3-ubyte\.gz.*$remedy" \
  "$bin/graphsink-bench" --workload mlp --data "$work/digits"

for program in "${programs[@]}" graphsink-bench; do
  refuses "$program: no such device" "error: .*cuda:77.*$remedy" "$bin/$program" --device cuda:77
  refuses "$program: bad device" "error: .*device \"gpu\".*$remedy" "$bin/$program" --device gpu
  refuses "$program: bad mode" "error: mode \"fast\".*interactive-serial.*$remedy" "$bin/$program" --mode fast
  refuses "$program: no steps" 'steps' "$bin/$program" --steps 0
  refuses "$program: octal steps" 'steps.*1 to 100000000.*010' "$bin/$program" --steps 010
  refuses "$program: bad option" 'nonsense' "$bin/$program" --nonsense
  prints "$program --help" '--device' '--mode' -- "$bin/$program" --help
done
for program in "${programs[@]}"; do
  for seed in -1 4294967296 99999999999999999999 1.5 nan; do
    refuses "$program: seed $seed" "seed.*0 to 4294967295.*$seed" "$bin/$program" --seed "$seed"
  done
done
for share in nan -0.1 0.91 inf; do
  refuses "train_text: dropout $share" "dropout.*0 to 0\.9.*$share" "$bin/train_text" --dropout "$share"
done
if [[ $flavour == cpu ]]; then
  refuses 'no CUDA in this build' "error: .*cuda:0.*$remedy" "$bin/graphsink-bench" --workload chain --device cuda:0
fi
refuses 'unknown workload' "error: workload \"resnet\".*chain, wide, mlp, charmlp, lstm, lstm-scan, gpt.*$remedy" \
  "$bin/graphsink-bench" --workload chain,resnet
refuses 'later mode' "error: mode \"eager\".*$remedy" "$bin/graphsink-bench" --mode sink,eager
refuses 'bad size' 'size' "$bin/graphsink-bench" --size huge
refuses 'too few nodes' "error: chain: .*$remedy" "$bin/graphsink-bench" --workload chain --nodes 3
refuses 'unwritable report' "error: .*report\.json.*$remedy" \
  "$bin/graphsink-bench" --workload chain --json "$work/nowhere/report.json"

refuses 'a directory as report' "error: .*it is a directory.*$remedy" \
  "$bin/graphsink-bench" --workload chain --json "$work/empty"
refuses 'a device as folder, before training' "error: .*/dev/null.*the folder cannot be made.*$remedy" \
  timeout 60 "$bin/train_text" --steps 100000000 --save /dev/null

# What is printed to a full device is lost, and that is an error.
for sample in 01_hello 02_eager 03_custom_cpu_op 04_custom_cuda_op 05_control_flow 06_two_devices 07_side_effects \
  08_tokenizer 09_two_gpus; do
  loses "$sample" "$bin/$sample"
done
loses train_text "$bin/train_text" --steps 1 "${evaluation[@]}"
loses train_mnist "$bin/train_mnist" --steps 1
loses 'train_text --help' "$bin/train_text" --help
loses 'graphsink-bench --list' "$bin/graphsink-bench" --list
small=("$bin/graphsink-bench" --workload chain --nodes 10 --mode sink --steps 1 --untimed)
loses 'graphsink-bench' "${small[@]}"
loses 'graphsink-bench --json -' "${small[@]}" --json -
grep -q 'error: stdout: what was printed is lost' "$work/err" || fail 'graphsink-bench --json -: no message'
# A report replaces the one before as a whole, or not at all.
printf 'before' >"$work/report.json"
if (
  trap '' XFSZ
  ulimit -f 0 # blocks that a file may have
  "${small[@]}" --json "$work/report.json" &>/dev/null
); then
  fail 'a report that there is no room for was written'
fi
[[ $(cat "$work"/report.json*) == before ]] || fail 'a report that there is no room for has changed the one before'
loses 'graphsink-bench, its table' "${small[@]}" --json "$work/report.json"
python3 -m json.tool "$work/report.json" >/dev/null || fail 'a report is not whole'

echo "samples: $checks checks passed ($flavour)"
