#!/usr/bin/env python3
"""Starts a program several times on this machine, with the environment variables that torchrun sets, and says how each
process ended. Exit code: the first one that is not 0, or 124 if they have not ended in time.

usage: start.py N PROGRAM [ARGUMENT...]
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time

SECONDS = 300  # in which all have to end


def free_port():
    """A port at which nobody listens, outside of those that the system gives to sockets that ask for any."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def variables(rank, size, port):
    """rank 0 listens behind MASTER_PORT, where torchrun listens itself."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port - 1),
    }


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    size, port, end = int(sys.argv[1]), free_port(), time.monotonic() + SECONDS
    running, codes = {}, []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for rank in range(size):
            environment = {**os.environ, **variables(rank, size, port)}
            running[rank] = subprocess.Popen(sys.argv[2:], env=environment)
        while running and time.monotonic() < end:
            for rank in [rank for rank, process in running.items() if process.poll() is not None]:
                codes.append(running.pop(rank).returncode)
                print(f"<rank {rank} ended: {codes[-1]}>", flush=True)
            time.sleep(0.01)
    finally:
        if running and time.monotonic() >= end:
            print(f"<ended after {SECONDS} s: rank {', '.join(map(str, running))}>", file=sys.stderr, flush=True)
        for process in running.values():
            process.kill()
    sys.exit(124 if running else next((abs(code) for code in codes if code), 0))


if __name__ == "__main__":
    main()
