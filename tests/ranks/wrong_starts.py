#!/usr/bin/env python3
"""Ranks that start with variables that do not fit together, or do not start at all: what each process says, within the
patience of two seconds. Right ones add up a number.

usage: wrong_starts.py TEST_RANKS
"""

import concurrent.futures
import os
import re
import socket
import subprocess
import sys
import threading
import unittest

import start

SECONDS = 60  # in which every process has to end, of which it takes about three
TWO, THREE = ({"WORLD_SIZE": str(size)} for size in (2, 3))


def rank(number, **changed):
    return {"RANK": str(number), **changed}


MISSING = r"device_lost: .*has waited 2000 ms for rank 2, not heard of.*remedy: "
NO_RANK_0 = r"device_lost: .*rank 1 of 2 has waited 2000 ms for rank 0, not heard of at port \d+ of localhost.*remedy: "

# Of each start: the variables of each process, which rows of a world of three leave out, and what each says.
STARTS = {
    "right": ([rank(0), rank(1), rank(2)], ["sum 3"] * 3),
    "by srun": (
        [
            {"RANK": "", "WORLD_SIZE": "", "SLURM_NTASKS": "3", "SLURM_PROCID": str(number), "SLURM_LOCALID": "0"}
            for number in range(3)
        ],
        ["sum 3"] * 3,
    ),
    "one is missing": ([rank(0), rank(1)], [MISSING] * 2),
    "rank 0 is missing": ([rank(1, WORLD_SIZE="2")], [NO_RANK_0]),
    "two have one rank": (
        [rank(0), rank(1), rank(1)],
        [r"misuse: .*several processes have RANK 1; remedy: .*a RANK of its own"] * 3,
    ),
    "another world": (
        [rank(0), rank(1, WORLD_SIZE="2")],
        [r"misuse: .*a process with RANK 1 has a world of 2 ranks, and rank 0 one of 3; remedy: .*equal MASTER_ADDR"] * 2,
    ),
    "no such machine": (
        [rank(1, MASTER_ADDR="no such/machine")],
        [r".*(MASTER_ADDR is \"no such/machine\"|rank 0, not heard of at port \d+ of no such/machine).*remedy: "],
    ),
}


def host_name():
    """The name of this machine, at which ranks of other machines reach it; None where nobody knows it."""
    try:
        socket.gethostbyname(socket.gethostname())
        return socket.gethostname()
    except OSError:
        return None


if host_name():
    STARTS["right, by the name of the machine"] = (
        [rank(number, MASTER_ADDR=host_name()) for number in range(3)],
        ["sum 3"] * 3,
    )


def run(variables):
    """The outputs of processes that are started together, none of which may run for long."""
    port = start.free_port()
    command = [PROGRAM, "--gtest_also_run_disabled_tests", "--gtest_filter=Start.*"]
    processes = []
    for number, changed in enumerate(variables):
        environment = {**os.environ, **start.variables(number, 3, port), **changed}
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    outputs = []
    for process in processes:
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        outputs.append(process.communicate()[0])
        timer.cancel()
        if process.returncode:
            outputs[-1] += f"<ended: {process.returncode}>"
    return outputs


class Stranger(threading.Thread):
    """A server that answers in another protocol, or a client that speaks it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()


class Starts(unittest.TestCase):
    def check(self, outputs, patterns):
        for output, pattern in zip(outputs, patterns, strict=True):
            said = re.findall(r"<rank \d*: (.*)>", output)
            self.assertEqual(len(said), 1, output)
            self.assertRegex(said[0], pattern)
            self.assertNotIn("<ended: ", output)

    def test_every_process_says_what_is_wrong(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            runs = {name: pool.submit(run, variables) for name, (variables, _) in STARTS.items()}
        for name, future in runs.items():
            with self.subTest(start=name):
                self.check(future.result(), STARTS[name][1])

    def test_a_port_at_which_another_program_listens(self):
        port = str(Stranger().port)
        outputs = run([rank(number, WORLD_SIZE="2", GRAPHSINK_PORT=port) for number in range(2)])
        self.check(
            outputs,
            [
                rf"unavailable: .*rank 0 cannot listen at port {port}: .*remedy: .*GRAPHSINK_PORT",
                rf"device_lost: .*rank 1 of 2 has waited 2000 ms for rank 0, not heard of at port {port}.*remedy: ",
            ],
        )

    def test_a_program_that_speaks_to_rank_0(self):
        port = start.free_port()
        talker = threading.Thread(target=talk, args=(port,), daemon=True)
        talker.start()
        outputs = run([rank(number, GRAPHSINK_PORT=str(port)) for number in range(3)])
        self.check(outputs, ["sum 3"] * 3)


def talk(port):
    for _ in range(50):
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
                connection.recv(100)
        except OSError:
            threading.Event().wait(0.05)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
