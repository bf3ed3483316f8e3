#!/usr/bin/env python3
"""Runs a command until what it prints matches a regular expression, and ends it then: mpirun may hang in its own end when
ranks have ended without MPI_Finalize().

usage: expect.py REGEX COMMAND [ARGUMENT...]
"""

import re
import subprocess
import sys
import threading

SECONDS = 60  # in which it has to match


def end(process):
    """mpirun ends its ranks when it is told to end; what does not end so is killed."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    expected = re.compile(sys.argv[1], re.DOTALL)
    output = ""
    with subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        for line in process.stdout:
            output += line
            if expected.search(output):
                end(process)
                break
        timer.cancel()
    print(output)
    if not expected.search(output):
        sys.exit(f"expected: {sys.argv[1]}")


if __name__ == "__main__":
    main()
