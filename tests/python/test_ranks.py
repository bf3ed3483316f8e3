"""Programs of several ranks, started by mpirun: they do what one process does, and no rank waits for one that has ended."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import graphsink as gs

PROGRAM = pathlib.Path(__file__).with_name("ranks_program.py")
SECONDS = 200  # within which every start has to end, of which it takes about three; the patience of the ranks is longer
# These let Open MPI start more ranks than there are cores, and as root, and work where processes may not read each other's memory.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OPENBLAS_NUM_THREADS": "1"}

is_built = importlib.util.find_spec("graphsink._ranks") is not None
needs_ranks = pytest.mark.skipif(not is_built or shutil.which("mpirun") is None,
                                 reason="NOT CHECKED: graphsink.ranks was not built, or there is no mpirun")


def start(count: int, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["mpirun", "-n", str(count), sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **OPEN_MPI, **environment})


@needs_ranks
@pytest.mark.parametrize("count", [1, 2, 3])
def test_ranks_do_what_one_process_does(count, tmp_path):
    done = start(count, PROGRAM, "checks", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(count):
        assert f"<rank {rank} of {count}: all is well>" in done.stdout
    assert "leaked" not in done.stderr


@needs_ranks
def test_nccl_moves_the_values(tmp_path):
    standin = pathlib.Path(gs.__file__).parents[2] / "bin" / "libnccl_standin.so"
    if not standin.exists():
        pytest.skip("NOT CHECKED: the stand-in for NCCL was not built: only where CMake builds tests beside the package, for emulated")
    done = start(2, PROGRAM, "over_nccl", tmp_path, GRAPHSINK_NCCL=str(standin))
    assert done.returncode == 0 and done.stdout.count("all is well") == 2, done.stdout + done.stderr


@pytest.mark.parametrize("what", ["forks", "beside_mpi"])
def test_ranks_that_variables_start(what, tmp_path):
    if not is_built:
        pytest.skip("NOT CHECKED: graphsink.ranks was not built")
    starter = pathlib.Path(__file__).resolve().parents[1] / "ranks" / "start.py"
    done = subprocess.run([sys.executable, starter, "2", sys.executable, PROGRAM, what, tmp_path], capture_output=True, text=True,
                          timeout=SECONDS, env={**os.environ, **OPEN_MPI})
    if "built without ZeroMQ" in done.stderr:
        pytest.skip("NOT CHECKED: graphsink.ranks was built without ZeroMQ")
    assert done.returncode == 0 and done.stdout.count("all is well") == 2, done.stdout + done.stderr


@needs_ranks
def test_a_child_of_fork_has_no_ranks(tmp_path):
    done = start(2, PROGRAM, "forks", tmp_path)
    assert done.returncode == 0 and done.stdout.count("all is well") == 2, done.stdout + done.stderr


@pytest.mark.skipif(not is_built, reason="NOT CHECKED: graphsink.ranks was not built")
def test_docstrings_are_those_of_their_functions():
    from graphsink import ranks
    assert ranks.enter_parallel.__doc__.splitlines()[2].startswith("Returns x, which has equal elements")
    assert "`same_loss`" in ranks.all_reduce.__doc__ and "same_loss" not in ranks.reduce_scatter.__doc__


@needs_ranks
@pytest.mark.parametrize("ending, text", [
    ("raises_with_steps", "ValueError: no data"), ("is_interrupted", "KeyboardInterrupt"), ("ends_with_3", "Exit code:    3")])
def test_a_rank_that_ends_ends_all(ending, text, tmp_path):
    done = start(2, PROGRAM, ending, tmp_path)
    assert done.returncode == {"is_interrupted": 130, "ends_with_3": 3}.get(ending, 1) and text in done.stderr + done.stdout
    assert "came out of" not in done.stdout and "leaked" not in done.stderr


@needs_ranks
def test_the_sample_trains_on_two_ranks():
    sample = pathlib.Path(__file__).resolve().parents[2] / "samples" / "python" / "ranks.py"
    done = start(2, sample, "--steps", 20, GS_EMU_DEVICES="0")
    assert done.returncode == 0 and done.stdout.startswith("2 ranks, 20 steps: loss"), done.stdout + done.stderr


@needs_ranks
def test_a_program_without_mpirun_has_one_rank(tmp_path):
    done = subprocess.run([sys.executable, PROGRAM, "ends_with_3", tmp_path], capture_output=True, text=True, timeout=SECONDS,
                          env={**os.environ, **OPEN_MPI})
    assert done.returncode == 3 and done.stdout == "came out of barrier()\n", done.stderr


def test_the_package_loads_no_mpi():
    text = "import graphsink; print([line for line in open('/proc/self/maps') if 'libmpi' in line or '_ranks' in line])"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=SECONDS).stdout == "[]\n"


def test_a_build_without_ranks_says_how_to_get_them():
    text = "import sys; sys.modules['graphsink._ranks'] = None; import graphsink.ranks"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=SECONDS)
    assert "ImportError: this package was built without graphsink.ranks; install MPI" in done.stderr
    assert "libopenmpi-dev" in done.stderr and "GRAPHSINK_RANKS=ON" in done.stderr
