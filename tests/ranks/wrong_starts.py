#!/usr/bin/env python3
"""Ranks that start with variables that do not fit together, or do not start at all, and others that speak to them: what
each process says. Right ones add up a number.

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

SECONDS = 120  # in which every process has to end, of which it takes about five


def rank(number, **changed):
    return {"RANK": str(number), **changed}


def in_vain(number, **changed):
    """A rank that waits for others which do not come."""
    return rank(number, GS_PATIENCE="4", **changed)


MISSING = r"device_lost: .*has waited 4000 ms for rank 2, not heard of.*remedy: "
NO_RANK_0 = r"device_lost: .*rank 1 of 2 has waited 4000 ms for rank 0, not heard of at port \d+ of localhost.*remedy: "

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
    "one is missing": ([in_vain(0), in_vain(1)], [MISSING] * 2),
    "rank 0 is missing": ([in_vain(1, WORLD_SIZE="2")], [NO_RANK_0]),
    "two have one rank": (
        [rank(0), rank(1), rank(1)],
        [r"misuse: .*several processes have RANK 1; remedy: .*a RANK of its own"] * 3,
    ),
    "another world": (
        [rank(0), rank(1, WORLD_SIZE="2")],
        [r"misuse: .*a process with RANK 1 has a world of 2 ranks, and rank 0 one of 3; remedy: .*equal MASTER_ADDR"] * 2,
    ),
    "MPI knows of no others": (
        [{"RANK": "", "WORLD_SIZE": "", "PMI_SIZE": "2"}],
        [r"unavailable: .*(name 2 ranks, and MPI knows of this one alone|was built without MPI); remedy: .*MASTER_ADDR"],
    ),
    "no such machine": (
        [in_vain(1, MASTER_ADDR="no such/machine")],
        [r".*MASTER_ADDR is \"no such/machine\".*remedy: "],
    ),
    "a name that nobody knows": (
        [in_vain(number, MASTER_ADDR="nosuch.invalid", WORLD_SIZE="2") for number in range(2)],
        [r"device_lost: .*not heard of.*; MASTER_ADDR is \"nosuch\.invalid\", which this machine does not know: "] * 2,
    ),
    "one of another job": (
        [
            in_vain(0, WORLD_SIZE="2", TORCHELASTIC_RUN_ID="a"),
            rank(1, WORLD_SIZE="2", TORCHELASTIC_RUN_ID="b"),
        ],
        [
            r"device_lost: .*for rank 1, not heard of; a process of another job, with TORCHELASTIC_RUN_ID b, has spoken",
            r"misuse: .*rank 0 of another job, with TORCHELASTIC_RUN_ID a, and this process has TORCHELASTIC_RUN_ID b; "
            r"remedy: .*a MASTER_PORT of its own",
        ],
    ),
    "a rank whose job has no name": (
        [rank(0, WORLD_SIZE="2", SLURM_JOB_ID="7"), rank(1, WORLD_SIZE="2", SLURM_JOB_ID="")],
        ["sum 2"] * 2,
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
    """A server that speaks another protocol."""

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


def run_before_stranger():
    port = str(Stranger().port)
    return run([in_vain(number, WORLD_SIZE="2", GRAPHSINK_PORT=port) for number in range(2)])


def run_beside(said, ranks):
    """Three ranks, or one of two, with another program that speaks to rank 0."""
    port = start.free_port()
    talker = threading.Thread(target=talk, args=(port, said))
    talker.start()
    make = rank if ranks == 3 else in_vain
    outputs = run([make(n, WORLD_SIZE=str(max(ranks, 2)), GRAPHSINK_PORT=str(port)) for n in range(ranks)])
    talker.join()
    return outputs


def zmtp(message):
    """What ZeroMQ sends over TCP to say this, in version 3.0 of its protocol (rfc.zeromq.org/spec/23). The message comes
    when the other side has answered."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type" + len("DEALER").to_bytes(4, "big") + b"DEALER"
    return [greeting + bytes([4, len(ready)]) + ready, bytes([0, len(message)]) + message]


def talk(port, said):
    """Says it to whoever listens at the port, as soon as somebody does, and listens a while."""
    for _ in range(1000):
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.settimeout(5)
                for part in said:
                    connection.sendall(part)
                    heard = b""
                    while len(heard) <= 64:  # a greeting, which ZeroMQ sends in pieces, and the begin of an answer
                        heard += connection.recv(1000) or bytes(100)
                return
        except TimeoutError:
            return
        except OSError:
            threading.Event().wait(0.01)


HELLO = "graphsink-ranks 9.9.9\nhello\n1\n2\n5"
STRANGE = r"device_lost: .*for rank 1, not heard of; another program has spoken to port \d+; remedy: "
# The same for starts beside which another program listens or speaks.
BESIDE = {
    "a port at which another program listens": (
        run_before_stranger,
        [
            r"unavailable: .*rank 0 cannot listen at port \d+: .*remedy: .*GRAPHSINK_PORT",
            r"device_lost: .*rank 1 of 2 has waited 4000 ms for rank 0, not heard of at port \d+.*remedy: ",
        ],
    ),
    "HTTP": (lambda: run_beside([b"GET / HTTP/1.1\r\n\r\n" * 100], 3), ["sum 3"] * 3),
    "another version": (
        lambda: run_beside(zmtp(HELLO.encode()), 1),
        [r"misuse: .*a process with RANK 1 has graphsink-ranks 9\.9\.9, and rank 0 has graphsink-ranks \d.*remedy: "],
    ),
    "messages of another program": (lambda: run_beside(zmtp(b"hello, world"), 1), [STRANGE]),
    "a hello without numbers": (lambda: run_beside(zmtp(HELLO.replace("1", "one").encode()), 1), [STRANGE]),
}


class Starts(unittest.TestCase):
    def test_every_process_says_what_is_wrong(self):
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            if os.path.exists(os.path.join(os.path.dirname(PROGRAM), "libnccl_standin.so")):
                STARTS["devices by LOCAL_RANK"] = (
                    [
                        rank(number, WORLD_SIZE="2", LOCAL_RANK=str(3 - number), GS_NCCL="1", GS_EMU_DEVICES="2")
                        for number in range(2)
                    ],
                    ["device 1", "device 0"],
                )
            runs = [(name, patterns, pool.submit(run, ranks)) for name, (ranks, patterns) in STARTS.items()]
            runs += [(name, patterns, pool.submit(call)) for name, (call, patterns) in BESIDE.items()]
        for name, patterns, future in runs:
            with self.subTest(start=name):
                self.check(future.result(), patterns)

    def check(self, outputs, patterns):
        for output, pattern in zip(outputs, patterns, strict=True):
            said = re.findall(r"<rank \d*: (.*)>", output)
            self.assertEqual(len(said), 1, output)
            self.assertRegex(said[0], pattern)
            self.assertNotIn("<ended: ", output)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
