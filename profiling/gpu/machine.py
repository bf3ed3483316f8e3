"""What the machine has: the GPU, the libraries of CUDA that a pack does not carry, tools, PyTorch."""

import glob
import os
import re
import shutil
import subprocess
import sys

from gpu.session import Session

# Libraries that programs load, and that are part of the toolkit or of PyTorch. cuBLASLt alone has 540 MB.
CUDA_LIBRARIES = ["libcublasLt.so.13", "libcublas.so.13", "libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libcupti.so.13", "libcudart.so.13"]
# Where they are looked for, in this order.
LIBRARY_FOLDERS = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/*-linux/lib", "/usr/local/cuda/lib", "/usr/local/cuda*/lib64",
                   "/usr/local/cuda*/extras/CUPTI/lib64", "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
                   "/usr/lib/python3*/*-packages/nvidia/*/lib", "/usr/local/lib/python3*/*-packages/nvidia/*/lib", "/usr/lib/*-linux-gnu"]
TOOLS = ["compute-sanitizer", "ncu", "nsys", "nvidia-smi"]
FACTS = """nproc; free -g | head -2; lscpu | grep -E 'Model name|Flags'; ldconfig -p | grep -E 'cublasLt|nvrtc|cupti|cudart'
ls -d /usr/local/cuda*; ls /usr/local/cuda/lib64 | head -60; python3 -V; cat /proc/version; nvidia-smi
nvidia-smi -q | grep -iE 'persist|compute mode|mig'; nvidia-smi -q -d CLOCK"""
# Keeps the driver loaded between the programs, which would start it anew.
HOLD_DEVICE = """import ctypes, os, time
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
codes = cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
print("held" if codes == (0, 0) else f"not held, cuInit and cuDevicePrimaryCtxRetain returned {codes}", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    time.sleep(1)
"""
ASK_TORCH = "import torch; print(torch.__version__ if torch.cuda.is_available() else '')"


def output_of(*command: str, limit: float = 30) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def find_libraries(session: Session) -> None:
    """Links the CUDA libraries of this machine into one folder, which the programs of the pack search, and nothing else."""
    folder = session.pack / "cuda"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    places = [place for pattern in LIBRARY_FOLDERS for place in sorted(glob.glob(pattern))]
    for name in CUDA_LIBRARIES:
        found = next((file for place in places if os.path.exists(file := os.path.join(place, name))), None)
        carried = (session.pack / "lib" / name).exists()
        if found:
            (folder / name).symlink_to(found)
        if name == "libcudart.so.13" and found and (version := re.search(r"\.so\.([0-9.]+)$", os.path.realpath(found))):
            session.meta["toolkit"] = version[1]
        if not session.is_emulated:
            session.say(f"{name}: {os.path.realpath(found) if found else 'carried' if carried else 'MISSING'}")
    session.env["LD_LIBRARY_PATH"] = f"{session.pack / 'lib'}:{folder}"


def missing_libraries(session: Session) -> list[str]:
    """What ldd would say, which is not everywhere: the loader lists the libraries of a program, and does not run it."""
    missing: dict[str, list[str]] = {}
    tracing = dict(session.env, LD_TRACE_LOADED_OBJECTS="1")
    for program in sorted(session.bin.iterdir()):
        if program.suffix == ".so":
            continue
        text = subprocess.run([program], env=tracing, capture_output=True, text=True, check=False).stdout
        if not text:
            missing.setdefault("the loader", []).append(program.name)
        for line in text.splitlines():
            if "not found" in line:
                missing.setdefault(line.split()[0], []).append(program.name)
    return [f"{library} ({', '.join(programs[:3])}{f' and {len(programs) - 3} more' if len(programs) > 3 else ''})" for library, programs in missing.items()]


def describe(session: Session) -> None:
    """Finds out and writes down on what everything else runs."""
    find_libraries(session)
    asked = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    gpu, driver, memory = (asked.splitlines()[0].split(", ") + ["", ""])[:3] if asked else ("none answers", "", "")
    if session.is_emulated:
        gpu, driver = "software CUDA device", ""
    torch = output_of(sys.executable, "-c", ASK_TORCH, limit=60).splitlines()[-1:]
    tools = [tool for tool in TOOLS if session.has_tool(tool)]
    session.meta |= {"device": gpu, "driver": driver, "device_memory": memory, "cores": os.cpu_count(), "tools": tools,
                     "torch": torch[0] if torch else ""}
    session.say(f"GPU {gpu}, driver {driver or '-'}; {os.cpu_count()} cores; tools: {', '.join(tools) or 'none'}; "
                f"PyTorch: {session.meta['torch'] or 'none that sees a GPU'}; pack of {session.meta['commit'][:12]}")
    session.run("facts", 30, ["bash", "-c", FACTS + "; true"], quiet=True, env=dict(os.environ))
    session.start_beside("holder", [sys.executable, "-c", HOLD_DEVICE])
    missing = missing_libraries(session)
    session.say(f"libraries that programs miss: {', '.join(missing) or 'none'}")
    if missing:
        session.problems.append(f"missing libraries: {', '.join(missing)}")
    session.save()
