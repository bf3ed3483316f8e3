#!/usr/bin/env bash
# Profiles a program: what the GPU spent its time on, by op and line of code, also inside of sunk graphs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<TEXT
usage: profiling/nsys.sh [--out DIR] [--top N] [--cupti] PROGRAM [ARGUMENT..]
  --out DIR  where reports and logs go; default: build/profile. What is there is overwritten
  --top N    rows to print; default: 30
  --cupti    do not use Nsight Systems, even if it is there
PROGRAM is linked with graphsink and need not be changed. It runs twice, so that its times are not distorted: first with
one time for each launch of a graph, then with one for each kernel, which slows graphs down. Both runs must do the same.
Nsight Systems (nsys) is taken from PATH or the folders of CUDA; if there is none, a library of this project is injected
into PROGRAM (libgraphsink_kernel_times.so, beside PROGRAM or in GRAPHSINK_KERNEL_TIMES_LIBRARY), which needs CUPTI.
Written to DIR: the reports (launches.nsys-rep, nodes.nsys-rep and their .sqlite; without Nsight Systems .jsonl), names.jsonl
with the op of each node, kernels.json with the whole table, and what PROGRAM printed (launches.log, nodes.log).
Exit: 0 the table was printed, 1 PROGRAM failed or used no GPU, 2 wrong usage or something is missing.
TEXT
}

warn() { printf 'nsys.sh: %s\n' "$*" >&2; }

out=$here/../build/profile top=30 wants_nsys=true
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --cupti) wants_nsys=false ;;
    --out | --top)
      [[ $# -ge 2 ]] || { usage >&2 && exit 2; }
      if [[ $1 == --out ]]; then out=$2; else top=$2; fi
      shift
      ;;
    -*) usage >&2 && exit 2 ;;
    *) break ;;
  esac
  shift
done
[[ $# -gt 0 ]] || { usage >&2 && exit 2; }
[[ $top =~ ^[1-9][0-9]*$ ]] || { warn "--top $top: give a number of rows, at least 1" && exit 2; }
program=$(command -v -- "$1") || { warn "there is no program $1" && exit 2; }
shift

# Prints the path of nsys; fails if there is none.
find_nsys() {
  local nsys
  for nsys in "$(command -v nsys || true)" /usr/local/cuda/bin/nsys /opt/nvidia/nsight-systems/*/bin/nsys; do
    [[ -x $nsys ]] && printf '%s\n' "$nsys" && return 0
  done
  return 1
}

# Prints the path of the library that is injected; fails if there is none.
find_library() {
  local library
  for library in "${GRAPHSINK_KERNEL_TIMES_LIBRARY:-}" "$(dirname "$program")/libgraphsink_kernel_times.so"; do
    [[ -r $library ]] && realpath "$library" && return 0
  done
  return 1
}

nsys='' library=''
if ! { $wants_nsys && nsys=$(find_nsys); } && ! library=$(find_library); then
  warn "neither Nsight Systems nor libgraphsink_kernel_times.so is there; remedy: install nsight-systems, or build graphsink" \
    "where CUPTI is installed and set GRAPHSINK_KERNEL_TIMES_LIBRARY to the library in its folder bin"
  exit 2
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/{launches,nodes}.{nsys-rep,sqlite,jsonl,log} "$out"/{names.jsonl,kernels.json}

# record NAME LEVEL COMMAND...: runs the program, and leaves NAME.sqlite or NAME.jsonl in $out. LEVEL: graph or node.
record() {
  local name=$1 level=$2 status=0 command=("${@:3}")
  if [[ -n $nsys ]]; then
    "$nsys" profile --trace=cuda,nvtx --cuda-graph-trace="$level" --force-overwrite=true --output="$out/$name" \
      "${command[@]}" >"$out/$name.log" 2>&1 || status=$?
  else
    CUDA_INJECTION64_PATH=$library GRAPHSINK_KERNEL_TIMES="$out/$name.jsonl" GRAPHSINK_KERNEL_TIMES_LEVEL=$level \
      "${command[@]}" >"$out/$name.log" 2>&1 || status=$?
  fi
  if [[ $status -eq 0 && -n $nsys ]]; then
    "$nsys" export --type=sqlite --force-overwrite=true --output="$out/$name.sqlite" "$out/$name.nsys-rep" \
      >>"$out/$name.log" 2>&1 || status=$?
  fi
  if [[ $status -ne 0 ]]; then
    tail -n 20 "$out/$name.log" >&2
    warn "$(basename "$program") failed with exit status $status: see $out/$name.log"
    exit 1
  fi
}

kind=jsonl
[[ -z $nsys ]] || kind=sqlite
printf 'run 1 of 2, %s: launches of graphs\n' "$(basename "${nsys:-$library}")" >&2
record launches graph "$program" "$@"
printf 'run 2 of 2: kernels, copies and fills\n' >&2
export GRAPHSINK_NODE_NAMES=$out/names.jsonl
record nodes node "$program" "$@"
names=()
if [[ -r $GRAPHSINK_NODE_NAMES ]]; then
  names=(--names "$GRAPHSINK_NODE_NAMES")
else
  warn "the program captured nothing, or could not say what: see $out/nodes.log"
fi
for name in launches nodes; do
  [[ -r $out/$name.$kind ]] || { warn "no times were recorded, does the program use the GPU? See $out/$name.log" && exit 1; }
done
exec python3 "$here/kernel_table.py" "$out/nodes.$kind" "${names[@]}" --launches "$out/launches.$kind" --top "$top" \
  --json "$out/kernels.json"
