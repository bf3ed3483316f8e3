#!/usr/bin/env python3
"""A training of several ranks that is killed goes on from its files: with as many ranks to the same bits, with fewer
ranks nearly so. Once with one file for all, and once with the state of the optimizer divided among the ranks.

usage: resume.py TRAIN_TEXT WAY STARTER [STARTER_ARGUMENT...]
WAY: cpu, or nccl, for GPUs between which NCCL moves the gradients. STARTER: mpirun or start.py.
"""

import array
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

STEPS, EVERY, RANKS = 48, 4, 4
BOUND = 1e-3  # of a parameter, between 4 and 2 ranks, which add up in another order


WAYS = {"cpu": ["--device", "cpu"], "nccl": ["--nccl"]}


def start(ranks, folder, flags):
    options = f"--ranks --steps {STEPS} --save-every {EVERY} --evaluate-on 200 --steps-per-launch 2".split()
    command = [*STARTER, str(ranks), TRAIN_TEXT, *options, *WAYS[WAY], *flags, "--save", folder]
    environment = {**os.environ, "GRAPHSINK_NCCL": str(pathlib.Path(TRAIN_TEXT).with_name("libnccl_standin.so"))}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def train(ranks, folder, flags):
    with start(ranks, folder, flags) as starter:
        output, _ = starter.communicate()
    if starter.returncode:
        raise AssertionError(output)
    return output


def home(folder, flags, ranks):
    """Where rank 0 saves."""
    return pathlib.Path(folder) / (f"rank0-of-{ranks}" if flags else "")


def steps_of(folder, flags):
    return sorted(int(path.stem.split("-")[1]) for path in home(folder, flags, RANKS).glob("step-*.safetensors"))


def goes_on(folder, flags):
    """How often a training that is started again says so: once if there is a step that all have saved, as rank 0 alone prints."""
    homes = pathlib.Path(folder).glob(f"rank*-of-{RANKS}") if flags else [home(folder, flags, RANKS)]
    return int(bool(set.intersection(*({file.name for file in path.glob("step-*.safetensors")} for path in homes))))


def children_of(parent):
    """The ranks that a starter has started, and that have not ended."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text(encoding="utf-8").split("(", 1)[1].rsplit(")", 1)
        except OSError:  # it has ended
            continue
        state, its_parent, *_ = rest.split()
        if name == "train_text" and state != "Z" and int(its_parent) == parent:
            found.append(int(path.parent.name))
    return found


def train_and_kill(folder, flags, after):
    """Kills one of the ranks as soon as there is a file of so many steps, while the training goes on."""
    with start(RANKS, folder, flags) as starter:
        while starter.poll() is None and not any(steps >= after for steps in steps_of(folder, flags)):
            os.sched_yield()
        ranks = children_of(starter.pid)
        if ranks:
            try:
                os.kill(random.choice(ranks), signal.SIGKILL)
                if STARTER[-1].endswith("start.py"):
                    starter.terminate()  # which ends the others, as mpirun and torchrun do without being told
            except ProcessLookupError:
                pass  # it has ended
        try:
            starter.communicate(timeout=60)
        except subprocess.TimeoutExpired:  # mpirun may hang in its own end when a rank was killed
            starter.kill()
    return starter.returncode != 0


def parameters(file):
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    values = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32" and "." not in name:
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            values[name] = array.array("f", data[begin:end])
    return values


class Resume(unittest.TestCase):
    def test_a_killed_training_goes_on(self):
        self.kill_and_resume([])

    def test_with_divided_states(self):
        self.kill_and_resume(["--sharded"])

    def kill_and_resume(self, flags):
        with tempfile.TemporaryDirectory() as directory:
            whole, killed, fewer = (os.path.join(directory, name) for name in ("whole", "killed", "fewer"))
            train(RANKS, whole, flags)
            kills = 0
            for after in sorted(random.sample(range(EVERY, STEPS - EVERY), 3)):
                kills += train_and_kill(killed, flags, after)
                if not os.path.exists(fewer) and goes_on(killed, flags):
                    shutil.copytree(killed, fewer)
            while not kills:  # each came too late, as on a fast machine
                shutil.rmtree(killed)
                kills += train_and_kill(killed, flags, EVERY)
            told = goes_on(killed, flags)
            output = train(RANKS, killed, flags)
            self.assertEqual(output.count("goes on at step"), told, output)
            name = f"step-{STEPS:012}.safetensors"
            ends = [home(folder, flags, RANKS) / name for folder in (killed, whole)]
            self.assertEqual(ends[0].read_bytes(), ends[1].read_bytes())
            output = train(2, fewer, flags)
            self.assertEqual(output.count("goes on at step"), 1, output)
            expected, seen = parameters(ends[1]), parameters(home(fewer, flags, 2) / name)
            self.assertEqual(list(expected), list(seen))
            self.assertTrue(expected)
            for name, values in expected.items():
                self.assertLess(max(abs(a - b) for a, b in zip(values, seen[name])), BOUND, name)


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] not in WAYS:
        sys.exit(__doc__)
    TRAIN_TEXT, WAY, *STARTER = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
