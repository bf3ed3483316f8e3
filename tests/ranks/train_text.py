#!/usr/bin/env python3
"""train_text on two ranks has the losses of one process, whatever moves the gradients, and each rank takes a GPU of its own.

usage: train_text.py TRAIN_TEXT STARTER [STARTER_ARGUMENT...]
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

STEPS = 36  # by default NCCL has launches of 16 steps: the first ones are divided, because one step comes before them
BOUND = 1e-3  # of a loss, between two ranks and one process, which add up in another order


class TrainText(unittest.TestCase):
    def run_program(self, command, code=0, **variables):
        environment = {**os.environ, "GRAPHSINK_NCCL": str(pathlib.Path(TRAIN_TEXT).with_name("libnccl_standin.so")), **variables}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def train(self, starter, *flags, steps=STEPS, **variables):
        """What rank 0 prints, and the losses of all steps."""
        with tempfile.TemporaryDirectory() as folder:
            metrics = pathlib.Path(folder) / "metrics"
            options = ["--steps", str(steps), "--evaluate-on", "64", "--metrics", str(metrics), *flags]
            output = self.run_program([*starter, TRAIN_TEXT, *options], **variables)
            lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        self.assertEqual(len(losses), steps)
        return output, losses

    def test_losses_are_those_of_one_process(self):
        _, alone = self.train([], "--device", "cuda:0")
        output, by_nccl = self.train(TWO, "--ranks", "--nccl")
        self.assertRegex(output, r"up to \d+ steps a launch, unrolled, because collectives of NCCL")
        _, over_the_host = self.train(TWO, "--ranks")
        self.assertEqual(by_nccl, over_the_host)  # a sum of two numbers has one order
        self.assertLess(by_nccl[-1], by_nccl[0])
        for step, (expected, seen) in enumerate(zip(alone, by_nccl)):
            self.assertLess(abs(expected - seen), BOUND, f"step {step}")

    def test_each_rank_takes_a_gpu(self):
        for flags in (["--nccl"], []):
            for gpus, devices in (("2", "cuda:0, cuda:1"), ("1", "cuda:0, cuda:0")):
                output, _ = self.train(TWO, "--ranks", *flags, steps=2, GS_EMU_DEVICES=gpus)
                self.assertEqual(re.findall(r"2 ranks on (.*)", output), [devices], output)

    def test_refuses(self):
        for flags, problem in ((["--nccl"], "--nccl requires --ranks"), (["--ranks", "--nccl", "--device", "cpu"], "--device excludes --nccl")):
            self.assertIn(problem, self.run_program([TRAIN_TEXT, *flags], code=2))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    TRAIN_TEXT, TWO = sys.argv[1], [*sys.argv[2:], "2"]
    unittest.main(argv=sys.argv[:1])
