#!/usr/bin/env python3
"""Ranks that wait for one that never comes, until their patience ends: what they say then. Six rows of the table run at
the same time, because their processors are idle.

usage: waits.py TEST_RANKS MPIRUN [MPIRUN_ARGUMENT...]
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import unittest

SECONDS = 60  # in which every row has to end, of which it takes about five

OF_STEP = "has waited {} ms in the collectives of a step, all_reduce"
STALLED = f"rank [01]: all_reduce: rank [01] of 2 {OF_STEP.format(3000)}"
LATER = "eager of rank [01]: .*has waited 3000 ms"
STALLED_TWICE = f"{STALLED}.*and 1 further one.*{STALLED}.*{LATER}"
MISSING = OF_STEP.format(2000)
OTHER_STEP = f"rank 0 of 2 {MISSING}.*, in mode sink"
KEEPS = r"rank [0-2] keeps 2.0* 5.0*: "

# Of each row, the longest first: the test, how many ranks, what they say, and variables of the environment. With the
# seed 1 the software device computes when the host asks whether it is done.
ROWS = {
    "part given up": ("PartGivenUpByNccl", 3, f"{KEEPS}.*{KEEPS}.*{KEEPS}", {}),
    "in a group": ("MissingInAGroup", 4, "seen by rank 0: .*has waited 2000 ms in (all_reduce|agree)", {}),
    "in mpi_world()": ("MissingInWorld", 2, "seen: mpi_world: rank 0 of 2 has waited 1000 ms for rank 1, which has not", {}),
    "by NCCL": ("MissingByNccl", 2, f"seen 0: .*{MISSING}.*seen 1: .*{MISSING}.*committed 2", {}),
    "stalled": ("StalledByNccl", 2, STALLED_TWICE, {}),
    "stalled when asked": ("StalledByNccl", 2, STALLED_TWICE, {"GS_EMU_SEED": "1"}),
    "polled": ("PolledByNccl", 2, "polled: all_reduce: rank 1 of 2 has waited 2000 ms in the collectives", {}),
    "read": ("ReadByNccl", 2, "read: all_reduce: rank 1 of 2 has waited 2000 ms in the collectives.*saved 2", {}),
    "other mode": (
        "OtherModeByNccl",
        2,
        f"{OTHER_STEP}.* rank 1 waits in run .*, about to run in mode interactive-serial for the first time",
        {},
    ),
    "other shape": (
        "OtherShapeByNccl",
        2,
        f"{OTHER_STEP} with x f32.4..* rank 1 waits in the collectives.*, in mode sink with x f32.3.",
        {},
    ),
}


def end(process):
    """mpirun ends its ranks when it is told to end; what does not end so is killed."""
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()


def run(test, ranks, regex, variables):
    """What the ranks print until it matches: mpirun may hang in its own end when ranks have ended without
    MPI_Finalize()."""
    command = [*MPIRUN, str(ranks), PROGRAM, "--gtest_also_run_disabled_tests", f"--gtest_filter={test}.*"]
    environment = {**os.environ, **variables}
    expected = re.compile(regex, re.DOTALL)
    output = ""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        for line in process.stdout:
            output += line
            if expected.search(output):
                end(process)
                break
        timer.cancel()
    return output


class Waits(unittest.TestCase):
    def test_patience_ends_them(self):
        listed = subprocess.run([PROGRAM, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
        has_nccl = "Nccl." in listed
        rows = {name: row for name, row in ROWS.items() if has_nccl or not row[0].endswith("ByNccl")}
        for test, *_ in rows.values():
            self.assertIn(f"\n{test}.", listed)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            outputs = {name: pool.submit(run, *row) for name, row in rows.items()}
        for name, output in outputs.items():
            with self.subTest(row=name):
                self.assertRegex(output.result(), re.compile(rows[name][2], re.DOTALL))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAM, *MPIRUN = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
