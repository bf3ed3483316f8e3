#!/usr/bin/env python3
"""Ranks that leave the others: what each of three ranks sees when rank 1 makes a mistake.

usage: mistakes.py TEST_RANKS MPIRUN [MPIRUN_ARGUMENT...]
       mistakes.py TEST_RANKS PYTHON START.PY      the ranks do not hear that another one has ended, and end in order

A mistake is made in each way in which its ranks can exchange values: on the CPU, on a GPU with values that cross the
host, and on a GPU by NCCL. Those that mpirun has tried are left out by variables, unless the environment has GS_FULL=1.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import unittest

RANKS = 3
SECONDS = 60  # in which every mistake has to end, of which it takes about five

GAVE_UP = r"device_lost: .*rank {rank} of 3 has waited 4000 ms in {op}"


def failed_step(problem, told=None):
    """What the ranks see of a step that fails on rank 1: twice, because nothing of it was committed. `told`: what rank 1
    tells the others, if that is something else."""
    seen = {}
    for rank in range(RANKS):
        text = problem if rank == 1 else "the step failed on rank 1: .*" + (told or problem)
        failed = [f"{when} step: step_failed: .*{text}" for when in ("second", "third")]
        seen[rank] = ["first step: no error", *failed, "committed 1"]
    return seen


def waited_for(op, whom=".* for rank 1, not heard of"):
    """What ranks 0 and 2 see where rank 1 does not come."""
    return {
        rank: ["first step: no error"]
        + [f"{when} step: " + GAVE_UP.format(rank=rank, op=op) + whom for when in ("second", "third")]
        + ["committed 1"]
        for rank in (0, 2)
    }


def unbound(problem):
    """What the ranks see where rank 1 cannot bind its plan at first."""
    told = "bind: out_of_memory: .*"
    seen = {rank: [told + "rank 1 cannot bind its plan: .*" + problem, "bind again: no error", "sum 3"] for rank in (0, 2)}
    return {**seen, 1: [told + problem, "bind again: no error", "sum 3"]}


# Of each mistake: what ranks say, in this order and nothing else, and what mpirun has to say.
MISTAKES = {
    "Throws": (failed_step("no more of that"), None),
    "RunsOutOfMemory": (failed_step("bad_alloc"), None),
    "IsKilled": ({1: ["first step: no error"]}, r"rank 1 .*(signal 9|Killed)"),
    "Exits": ({1: ["first step: no error"]}, r"process rank 1 "),
    "Stalls": (waited_for("all_reduce"), None),
    "CallsAnotherCollective": (
        {rank: ["eager: (step_failed|misuse): .*rank 0 has called all_reduce .*, and rank 1 broadcast"] for rank in range(RANKS)},
        None,
    ),
    "LeavesOneOut": (
        {
            0: ["eager: device_lost: .*rank 0 is in a collective of an Eager .*, and rank 1 in barrier"],
            1: ["eager: device_lost: .*rank 1 is in barrier .*, and rank 0 in a collective of an Eager"],
        },
        None,
    ),
    "ComesLate": (
        {
            **{rank: ["barrier: " + GAVE_UP.format(rank=rank, op="barrier") + " .*for rank 1, not heard of"] for rank in (0, 2)},
            1: ["barrier: " + GAVE_UP.format(rank=1, op="barrier") + " .*for rank 0, rank 2, which have given up, too"],
        },
        None,
    ),
    "CannotBind": (unbound("there is no memory for it"), None),
    "LacksDeviceMemory": (unbound("no room for .*: out of memory: cu"), None),
    "CannotCapture": ({rank: ["uncaptured: no error", "sum 3"] for rank in range(RANKS)}, None),
}


# Of a GPU the others hear only that an op has failed, and they wait for the whole step. On a rank that stalls, the thread
# that watches the step gives up, too.
OF_STEP = "the collectives of a step, all_reduce"
BY_NCCL = {
    "Throws": failed_step("no more of that", "an op failed"),
    "RunsOutOfMemory": failed_step("bad_alloc", "an op failed"),
    "Stalls": waited_for(OF_STEP, ""),
}
# start.py ends nobody where one rank has ended. Its last messages may be lost. `None`: the rank never ends.
ENDED = {**waited_for(f"({OF_STEP}|all_reduce|barrier)"), 1: ["first step: no error"]}
BY_VARIABLES = {
    "IsKilled": ENDED,
    "Exits": ENDED,
    "ComesLate": {
        **MISTAKES["ComesLate"][0],
        1: ["barrier: device_lost: .*rank [02] does not come any more: it has given up in barrier"],
    },
}
ENDS_WITH = {("IsKilled", 1): -9, ("Stalls", 1): None}


def is_by_variables():
    return MPIRUN[-1].endswith("start.py")


def expected_of(mistake, way):
    """Lines of each rank, and a line of mpirun, or the ends of the processes."""
    wanted, of_mpirun = MISTAKES[mistake]
    if way == "nccl":
        wanted = BY_NCCL.get(mistake, wanted)
    if not is_by_variables():
        return wanted, of_mpirun
    wanted = BY_VARIABLES.get(mistake, wanted)
    ends = {rank: ENDS_WITH.get((mistake, rank), 0) for rank in range(RANKS)}
    return wanted, "(?s)" + "".join(f"(?=.*<rank {rank} ended: {code}>)" for rank, code in ends.items() if code is not None)


def run(mistake, way):
    """Runs mpirun until the ranks have said all that is expected of them, or it ends. Returns its output."""
    name = f"Devices/Mistake*.DISABLED_{mistake}/{way}"
    arguments = ["--gtest_also_run_disabled_tests", f"--gtest_filter={name}"]
    command = [*MPIRUN, str(RANKS), PROGRAM, *arguments]
    wanted, of_mpirun = expected_of(mistake, way)
    missing = {rank: len(lines) for rank, lines in wanted.items()}
    output = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as mpirun:
        # Told to end, it ends its ranks, too; where it is killed they would go on.
        timers = [threading.Timer(SECONDS, mpirun.terminate), threading.Timer(SECONDS + 10, mpirun.kill)]
        for timer in timers:
            timer.start()
        for line in mpirun.stdout:
            output += line
            said = re.match(r"<rank (\d+): ", line)
            if said and int(said[1]) in missing:
                missing[int(said[1])] -= 1
            if not any(missing.values()) and (not of_mpirun or (is_by_variables() and re.search(of_mpirun, output))):
                mpirun.terminate()
        for timer in timers:
            timer.cancel()
    return output


def is_left_out(mistake, way):
    """Whether mpirun has tried it so: that a rank has ended, which is mpirun's to see there, is new on each way."""
    if not is_by_variables() or way == "cpu" or os.environ.get("GS_FULL"):
        return False
    return way == "cuda" or mistake not in ("IsKilled", "Exits", "Stalls", "Throws")


def mistakes():
    """Those that the program has, and in which ways."""
    listed = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    ways = {mistake: re.findall(rf"DISABLED_{mistake}/(\w+)", listed) for mistake in MISTAKES}
    return [(mistake, way) for mistake in MISTAKES for way in ways[mistake] if not is_left_out(mistake, way)]


class Mistakes(unittest.TestCase):
    def test_every_rank_sees_what_happened(self):
        with concurrent.futures.ThreadPoolExecutor(9 if is_by_variables() else 6) as pool:
            runs = {(mistake, way): pool.submit(run, mistake, way) for mistake, way in mistakes()}
        for (mistake, way), future in runs.items():
            with self.subTest(mistake=mistake, way=way):
                self.check(*expected_of(mistake, way), future.result())

    def check(self, wanted, of_mpirun, output):
        for rank, lines in wanted.items():
            said = re.findall(rf"<rank {rank}: (.*)>", output)
            self.assertEqual(len(said), len(lines), output)
            for line, pattern in zip(said, lines):
                self.assertRegex(line, pattern)
        if of_mpirun:
            self.assertRegex(output, of_mpirun)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAM, *MPIRUN = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
