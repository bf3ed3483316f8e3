#!/usr/bin/env bash
# gpu_check.sh --dry-run: every part of it on a machine without a GPU. The part build runs in a root without the packages
# that --deps brings, on these packages unpacked; the other parts run on the software CUDA device, with stand-ins for
# nvidia-smi, compute-sanitizer, ncu, the driver's library and PyTorch, which refuse what the real ones would refuse.
# shellcheck disable=SC2317 # functions that run_part calls
set -euo pipefail

# shellcheck source=samples/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../samples/setup.sh"
# shellcheck source=profiling/gpu_deps.sh
source "$GS_ROOT/profiling/gpu_deps.sh"

[[ $# -eq 1 && $1 != -* ]] || { echo "usage: profiling/gpu_check.sh --dry-run [OUT_DIR]" >&2 && exit 2; }
out=$1
mkdir -p "$out"
out=$(realpath "$out")
rm -f "$out"/{gpu_check.json,gpu_check.md,golden.txt,logs.tar.gz}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stand_ins=$work/stand_ins
mkdir -p "$stand_ins/bin" "$stand_ins/lib" "$stand_ins/python/torch"

# The arguments that a stand-in takes are those that gpu_check.sh may give; a wrong one ends it with code 64.
cat >"$stand_ins/arguments.py" <<'PYTHON'
"""The arguments of a stand-in: options by name, then the program to run, if it takes one."""
import sys


def refuse(message):
    print(f"{sys.argv[0]}: {message}", file=sys.stderr)
    sys.exit(64)


def split(options):
    """options: name -> values it may have; None: any; False: it has none. Returns those given, and the program."""
    given, rest = {}, sys.argv[1:]
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in options:
            refuse(f"unknown option {name}")
        if options[name] is False:
            given[name] = True
            continue
        if not rest:
            refuse(f"{name} needs a value")
        given[name] = rest.pop(0)
        if options[name] is not None and given[name] not in options[name]:
            refuse(f"{name} cannot be {given[name]}")
    return given, rest
PYTHON

cat >"$stand_ins/bin/nvidia-smi" <<'BASH'
#!/usr/bin/env bash
case "$*" in
  -L) echo 'GPU 0: the software CUDA device (UUID: none)' ;;
  '--query-gpu=name,driver_version,memory.total --format=csv,noheader') echo 'the software CUDA device, 0, 0 MiB' ;;
  *) echo "nvidia-smi: unknown arguments: $*" >&2 && exit 64 ;;
esac
BASH

cat >"$stand_ins/bin/compute-sanitizer" <<'PYTHON'
#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from arguments import refuse, split
given, program = split({"--tool": ["memcheck", "racecheck", "initcheck", "synccheck"], "--error-exitcode": ["9"],
                        "--report-api-errors": ["no", "explicit", "all"]})
if "--tool" not in given or not program:
    refuse("needs --tool and a program")
print("========= COMPUTE-SANITIZER", flush=True)
os.execvp(program[0], program)
PYTHON

cat >"$stand_ins/bin/ncu" <<'PYTHON'
#!/usr/bin/env python3
import csv, os, subprocess, sys
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from arguments import refuse, split
given, program = split({"--clock-control": ["none", "base"], "--set": ["basic", "full"], "--launch-count": None, "--nvtx": False,
                        "--force-overwrite": False, "--export": None, "--import": None, "--csv": False, "--log-file": None,
                        "--page": ["raw", "details"], "--print-units": ["base", "auto"], "--print-nvtx-rename": ["none", "kernel"]})
if "--import" in given:
    if program or not os.path.exists(given["--import"]):
        refuse("--import needs a report, and no program")
    metrics = ["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
               "gpu__time_duration.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"]
    ops = ["begin_launch", "begin_step", "matmul", "end_step"] * 2
    kernels = ["take_params", "void copy_feeds(int)", "gemm<float, 128>", "void end_of_step()"] * 2
    with open(given["--log-file"], "w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL)
        rows.writerow(["ID", "Kernel Name", *metrics])
        rows.writerow(["", "", "%", "%", "ns", "%"])
        for i, name in enumerate(ops if given.get("--print-nvtx-rename") == "kernel" else kernels):
            rows.writerow([i, name, "12.5", "25", f"{1000 * (i + 1):,}", "50"])
    sys.exit(0)
if not program or "--set" not in given:
    refuse("needs --set and a program")
code = subprocess.run(program).returncode
if "--export" in given:
    open(given["--export"] + ".ncu-rep", "w").write("a report\n")
sys.exit(code)
PYTHON
chmod +x "$stand_ins"/bin/*

# PyTorch, as far as torch_bench.py uses it outside of its models. Losses are those that graphsink-bench has just printed.
cat >"$stand_ins/python/torch/__init__.py" <<'PYTHON'
import json, subprocess, sys, types

__version__ = "stand-in"
losses = {}
run = subprocess.run


def run_and_remember(command, **options):
    done = run(command, **options)
    if "--export" in command:
        row = json.loads(done.stdout)["rows"][-1]
        losses[row["workload"]] = row["loss_first"], row["loss_last"]
    return done


class Step:
    def __init__(self, name):
        self.name, self.fed, self.loss = name.removesuffix("-module"), 0, self

    def __call__(self): pass
    def feed(self, step): self.fed = step
    def clone(self): return losses[self.name][self.fed > 0]


class Graph:
    replay = __call__ = __enter__ = lambda self, *_: self
    __exit__ = lambda self, *_: False


def make_step(name, tensors, mode, nodes):
    assert mode in ("eager", "compile", "graph"), mode
    return Step(name)


subprocess.run = run_and_remember
cuda = types.SimpleNamespace(is_available=lambda: True, synchronize=lambda: None, CUDAGraph=Graph, graph=lambda graph: graph)
compiler = types.SimpleNamespace(reset=lambda: None)
backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=types.SimpleNamespace()))
manual_seed = set_num_threads = lambda number: None
sys.modules["torch_models"] = types.SimpleNamespace(make_step=make_step, read_safetensors=lambda path, device: open(path).close())
PYTHON

# The driver's library, for the process that holds the device open.
g++ -shared -fPIC -o "$stand_ins/lib/libcuda.so.1" -x c++ - <<'CPP'
extern "C" int cuInit(unsigned flags) { return flags == 0 ? 0 : 1; }
extern "C" int cuDevicePrimaryCtxRetain(void** context, int device) { return context && device == 0 ? 0 : 1; }
CPP

minutes() { awk -v seconds="$1" 'BEGIN { printf "%.1f", seconds / 60 }'; }

# Seconds of processor time that the children of this shell have taken.
used_cpu() { awk '{ print int(($16 + $17) / 100) }' "/proc/$$/stat"; }

lines=()
failed=0

# run_part NAME COMMAND...: prints and keeps its minutes.
run_part() {
  local name=$1 start=$SECONDS cpu code=0
  shift
  cpu=$(used_cpu)
  "$@" >"$work/$name.log" 2>&1 || code=$?
  sed 's/^/   /' "$work/$name.log"
  cpu=$(($(used_cpu) - cpu))
  [[ $code -eq 0 ]] || failed=1
  on_16_cores "$name" "$cpu" >"$work/extrapolated" # in this shell: it keeps the minutes of the build
  lines+=("$(printf '%-20s %-7s %5s minutes here%s' "$name" "$([[ $code -eq 0 ]] && echo passed || echo FAILED)" \
    "$(minutes $((SECONDS - start)))" "$(<"$work/extrapolated")")")
  gs_say "${lines[-1]}"
}

# on_16_cores PART CPU_SECONDS: what is compiled spreads over the cores; what runs on the GPU ends at the limit of a part.
build_minutes='' # of everything, without a compiler cache
on_16_cores() {
  case $1 in
    refusals) ;;
    build)
      build_minutes=$(minutes $(($2 / 16)))
      echo "; on 16 cores $build_minutes"
      ;;
    *) echo "; on 16 cores at most 8 after its build${build_minutes:+, which takes at most $build_minutes}" ;;
  esac
}

# The packages of --deps as dpkg -x would unpack them, from what is installed here. Hidden later are all but zlib1g,
# which compilers and cmake load, too.
unpack_deps() {
  local package file
  while read -r package _; do
    dpkg -L "$package" >"$work/files" || { gs_warn "$package is not installed here" && return 1; }
    while IFS= read -r file; do
      [[ -d $file && ! -L $file ]] || echo "${file#/}" >>"$work/unpacked"
      [[ -d $file && ! -L $file || $package == zlib1g ]] || echo "./${file#/}" >>"$work/hidden"
    done <"$work/files"
  done < <(gs_deps_needed)
  mkdir -p "$1"
  tar -C / --ignore-failed-read -cf - -T "$work/unpacked" 2>/dev/null | tar -C "$1" -xf -
}

# The part build in a root of its own: this system without the packages, and with cuBLAS as a Python package alone. Where
# such a root cannot be made, it builds here, and says so. Without a compiler cache, which the machine with the GPU may not have.
build_in_bare_root() {
  local code=0 toolkit root=$work/root layer=$work/layer
  toolkit=$(dirname "$(dirname "$(gs_nvcc)")")
  mkdir -p "$layer" "$root"
  cat >"$work/bare.sh" <<BASH
set -euo pipefail
mount -t tmpfs none "$layer" || exit 77
mkdir "$layer/upper" "$layer/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" "$root" || exit 77
cd "$root"
xargs -d '\\n' rm -f <"$work/hidden"
mkdir -p deps graphsink python/nvidia/cu13/include python/nvidia/cu13/lib results cublas
cp -a "$work/deps/." deps/
cp -L "$toolkit"/include/cublas*.h python/nvidia/cu13/include/
mount --bind "$(realpath "$toolkit/lib64")" cublas
ln -s /cublas/libcublasLt.so.13 /cublas/libcublas.so.13 python/nvidia/cu13/lib/
toolkit=".\$(realpath "$toolkit")"
find "\$toolkit/" -name 'cublas*.h' -delete
find "\$toolkit/" -name 'libcublas*' -delete
(cd "$GS_ROOT" && git ls-files -co --exclude-standard -z | tar --null -T - -cf - 2>/dev/null) | tar -xf - -C graphsink
mount --bind "$out" results
mount -t proc none proc
mount --rbind /dev dev
exec chroot . env -i HOME=/tmp PATH="$PATH" CCACHE_DISABLE=1 PYTHONPATH=/python GS_JOBS="${GS_JOBS:-$(nproc)}" \
  /graphsink/profiling/gpu_check.sh /results --part build --deps /deps
BASH
  local as_root=()
  [[ $(id -u) -eq 0 ]] || as_root=(--map-root-user)
  if unshare "${as_root[@]}" --mount true; then
    unshare "${as_root[@]}" --mount --propagation private bash "$work/bare.sh" || code=$?
  else
    code=77
  fi
  [[ $code -eq 77 ]] || return "$code"
  gs_warn 'NOT CHECKED: a root without the packages of --deps; this machine lets nobody mount one'
  CCACHE_DISABLE=1 profiling/gpu_check.sh "$out" --part build
}

# Wrong use has to fail: a package that is missing, an unknown part.
check_refusals() {
  local code=0
  mkdir -p "$work/empty/usr"
  (
    gs_find_below() { return 1; }
    gs_use_deps "$work/empty"
  ) >"$work/refusal" 2>&1 || code=$?
  if [[ $code -eq 0 ]] || ! grep -q 'missing: .*libspdlog-dev' "$work/refusal"; then
    cat "$work/refusal"
    return 1
  fi
  ! profiling/gpu_check.sh "$work/empty" --part nothing 2>/dev/null
}

cd "$GS_ROOT"
run_part refusals check_refusals
if gs_has_nvcc; then
  if unpack_deps "$work/deps"; then
    run_part build build_in_bare_root
  else
    gs_warn 'NOT CHECKED: the build in a bare root; its packages cannot be unpacked here' && failed=1
  fi
else
  gs_warn 'NOT CHECKED: the cuda preset; there is no nvcc of CUDA 13'
fi
export GS_GPU_PRESET=emulated PATH=$stand_ins/bin:$PATH PYTHONPATH=$stand_ins/python LD_LIBRARY_PATH=$stand_ins/lib
for part in tests conformance bench sink sanitize profile peer-torch peer-torch-compile; do
  run_part "$part" profiling/gpu_check.sh "$out" --part "$part"
done
skipped=$(python3 -c 'import json, sys
print(*(name for name, part in json.load(open(sys.argv[1]))["parts"].items() if part["verdict"] == "skipped"))' "$out/gpu_check.json")
[[ -z $skipped ]] || { gs_warn "skipped, although there are stand-ins: $skipped" && failed=1; }
gs_say "dry run: $(minutes "$SECONDS") minutes on $(nproc) cores"
printf '%s\n' "${lines[@]}"
exit "$failed"
