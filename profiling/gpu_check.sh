#!/usr/bin/env bash
# Everything that needs a GPU, in minutes: built on a machine without one, run on a machine that has nothing but one.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<TEXT
usage: profiling/gpu_check.sh --pack FILE [--ranks] [--architectures LIST] [--build DIR]
       profiling/gpu_check.sh --from FILE --out DIR [--plan first|again|speed|ranks] [--items ITEM,..] [--minutes N]
                              [--resume RESULTS]
       profiling/gpu_check.sh --out DIR [--plan ..] [--minutes N] [--resume RESULTS] [--architectures LIST] [--build DIR]
       profiling/gpu_check.sh --dry-run [--full] [--build DIR]
  --pack FILE      builds programs and tests (preset cuda-pack; 40 minutes on 2 cores without a compiler cache) and packs
                   them with the libraries and files that other machines lack: one .tar.xz of at most 40 MB. Needs nvcc
                   of CUDA 13, and no GPU
  --architectures  of the GPUs, as CMake writes them, separated by commas (default: 90, which is H100 and H200)
  --build DIR      packs this finished build of the flavour cuda or emulated, and builds nothing
  --from FILE      runs such an archive. Needs a GPU, its driver, Python 3.10, and cuBLASLt of CUDA 13 as a part of the
                   toolkit or of PyTorch; no compiler, no package, no network. Without --from it builds and packs first
  --out DIR        the results, a folder that can be committed to profiling/results/ as it is; logs go to DIR.logs.tar.gz
  --plan           what is run, the most telling first (default: first)
     first         samples, open questions to CUDA, times of launches and workloads, PyTorch, every test on the device
                   without the run-time compiler, the conformance suite, some random graphs
     again         what failed in RESULTS once more, each test alone and under compute-sanitizer; then all tests and
                   random graphs with the run-time compiler, names of nodes, sanitizers, device memory of nodes
     speed         three rounds of the bench beside hand-written baselines, programmatic launch, many steps in a launch,
                   single ops, Nsight Compute, a GPT-2 small against PyTorch, endurance
     ranks         several processes, on a machine of two to eight GPUs with NCCL and mpirun (one GPU and no MPI: what can
                   run): collectives of one rank, samples, all tests of ranks, planted mistakes and random programs, the bench
                   at 1, 2, 4 and 8 ranks beside the same steps without collectives, and what runs beside them
  --ranks          with --pack: programs with ranks, which need the MPI of the machine that built them (Debian:
                   libopenmpi-dev), and start nowhere without it. Else: --plan ranks. NCCL is found as libnccl.so.2, or named
                   by GRAPHSINK_NCCL
  --items ITEM,..  only these items of the plan, in this order; a wrong name lists them all
  --minutes N      of this call (default: 9). What was not reached is listed; nothing is lost when the call is cut off
  --resume RESULTS the --out folder of an earlier call. Of the same plan: goes on where it stopped. Of another plan:
                   tries again what failed there, and begins with the tests that took longest
  --dry-run        rehearses all of it on the software CUDA device, with tests that crash, hang and lose the device in the
                   middle; --full: all plans, and the pack of a cuda build in a root that has only glibc, Python and CUDA
Exit: 0 all passed, 1 something failed or was not reached, 2 wrong usage or something is missing.
TEXT
}

die() {
  printf 'gpu_check.sh: %s\n' "$*" >&2
  exit 2
}

pack='' from='' out='' plan='' items='' ranks=false minutes=9 resume='' architectures=90 build='' dry_run=false full=false
while [[ $# -gt 0 ]]; do
  case $1 in
    --help | -h) usage && exit 0 ;;
    --dry-run) dry_run=true ;;
    --ranks) ranks=true ;;
    --full) full=true ;;
    --pack | --from | --out | --plan | --items | --minutes | --resume | --architectures | --build)
      [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value; see --help"
      declare "${1#--}=$2"
      shift
      ;;
    *) die "unknown argument $1; see --help" ;;
  esac
  shift
done
if [[ -z $plan ]]; then
  plan=first
  [[ $ranks == false ]] || plan=ranks
fi
[[ $plan == first || $plan == again || $plan == speed || $plan == ranks ]] ||
  die "there is no plan $plan; the plans are first, again, speed, ranks"
[[ $minutes =~ ^[0-9]+([.][0-9]+)?$ ]] || die "--minutes $minutes: give a number of minutes, such as 9"
[[ $architectures =~ ^[0-9a-z,\;-]+$ ]] || die "--architectures $architectures: give numbers as CMake writes them, such as 90 or 80,90"
[[ -z $from || -r $from ]] || die "there is no $from; make it with profiling/gpu_check.sh --pack $from"
[[ -z $build || -d $build/bin ]] || die "$build has no folder bin; name a finished build folder"
[[ -z $from || -z $pack ]] || die '--pack and --from exclude each other: pack on the machine that builds, run on the one with the GPU'

if [[ $dry_run == true ]]; then
  exec "$here/../tests/gpu_check/dry_run.sh" "$full" "$build"
fi
if [[ -z $from ]]; then
  [[ -n $pack || -n $out ]] || { usage >&2 && exit 2; }
  if [[ -z $pack ]]; then # build, pack and run here
    timeout 30 nvidia-smi -L >/dev/null 2>&1 ||
      die 'no GPU answers here (nvidia-smi -L); use --pack FILE here, then --from FILE on a machine with a GPU'
    mkdir -p "$here/../build"
    from=$here/../build/gpu_check.tar.xz
  fi
  GS_PACK_RANKS=$ranks "$here/gpu_pack.sh" "${pack:-$from}" "$architectures" "$build"
  [[ -z $pack ]] || exit 0
fi

[[ -n $out ]] || die 'where do the results go? Name a folder with --out DIR'
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || die 'python3 is missing, or older than 3.10'
# A second call finds the folder of the first one, and the kernels that were compiled there.
folder=${TMPDIR:-/tmp}/graphsink-pack-$(id -u)-$(cksum <"$from" | tr ' ' -)
python3 - "$from" "$folder" <<'PYTHON' || die "$from cannot be unpacked to $folder; is it whole, and is there room?"
import os, shutil, sys, tarfile

archive, folder = sys.argv[1:]
if not os.path.isfile(f"{folder}/pack.json"):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(f"{folder}.unfinished", mode=0o700, exist_ok=True)
    with tarfile.open(archive) as tar:
        for entry in tar:
            entry.uid, entry.gid, entry.uname, entry.gname = os.getuid(), os.getgid(), "", ""
            entry.mode &= 0o755
            tar.extract(entry, f"{folder}.unfinished")
    os.rename(f"{folder}.unfinished", folder)
PYTHON
arguments=(--pack "$folder" --out "$out" --plan "$plan" --minutes "$minutes")
[[ -z $resume ]] || arguments+=(--resume "$resume")
[[ -z $items ]] || arguments+=(--items "$items")
exec python3 "$folder/src/profiling/gpu_run.py" "${arguments[@]}"
