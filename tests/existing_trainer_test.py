#!/usr/bin/env python3
"""existing_trainer: it learns, the same bits come of the same seed in whatever order the software device runs, and what
is refused says what to do; existing_check_gradients: its gradients are those of its loss.

usage: existing_trainer_test.py BIN_DIR SUNK_STEPS
"""

import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SAMPLE = pathlib.Path(__file__).resolve().parent.parent / "samples" / "existing_trainer"
STEPS = 30
SMALL = "--batch 4 --context 16 --layers 2 --width 32 --heads 4".split()


def run(program, *arguments, seed="0"):
    command = [BIN_DIR / program, *map(str, arguments)]
    environment = dict(os.environ, GS_EMU_SEED=seed)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def float_of(bits):
    return struct.unpack(">f", bytes.fromhex(bits))[0]


class ExistingTrainer(unittest.TestCase):
    def setUp(self):
        # pylint: disable-next=consider-using-with
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def losses(self, *arguments, seed="0"):
        """The bits of all losses."""
        file = self.folder / "losses"
        ran = run("existing_trainer", "--steps", STEPS, *SMALL, "--losses", file, *arguments, seed=seed)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertRegex(ran.stdout, r"step ([0-9]+)/\1  loss ")
        self.assertRegex(ran.stdout, r"[0-9.]+ steps per second\n$")
        return file.read_text(encoding="ascii").split()

    @unittest.skipUnless(shutil.which("git") and shutil.which("patch"), "git and patch apply the patch")
    def test_sink_patch_is_one_for_git_and_for_patch(self):
        results = []
        for command in (["git", "apply", "sink.patch"], ["patch", "-p1", "-i", "sink.patch"]):
            folder = self.folder / command[0]
            folder.mkdir()
            for name in ("trainer.cu", "sink.patch"):
                shutil.copy(SAMPLE / name, folder)
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            results.append((folder / "trainer.cu").read_text(encoding="utf-8"))
        self.assertEqual(results[0], results[1])
        self.assertIn("sinks.run(stream", results[0])

    def test_learns_and_repeats(self):
        first = self.losses()
        values = [float_of(bits) for bits in first]
        self.assertEqual(len(values), STEPS)
        self.assertTrue(all(map(math.isfinite, values)), values)
        self.assertLess(sum(values[-5:]) / 5, values[0] - 0.7)
        for seed in "012":
            with self.subTest(f"seed {seed} of the software device"):
                self.assertEqual(self.losses(seed=seed), first)
        self.assertNotEqual(self.losses("--seed", 2), first)

    def test_sunk_has_the_same_bits(self):
        file = self.folder / "sunk"
        plain = self.losses("--steps", SUNK_STEPS)
        for seed in "01":
            arguments = ["--steps", SUNK_STEPS, *SMALL, "--losses", file]
            ran = run("existing_trainer_sunk", *arguments, seed=seed)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            self.assertEqual(file.read_text(encoding="ascii").split(), plain)
            self.assertIn(f"{SUNK_STEPS} calls: {SUNK_STEPS - 1} launches, 1 warm, 0 as they are", ran.stdout)
        patch = pathlib.Path(__file__).parent.parent / "samples/existing_trainer/sink.patch"
        lines = patch.read_text(encoding="ascii").splitlines()[2:]
        self.assertLess(sum(line[0] in "+-" for line in lines), 15)

    def test_gradients(self):
        ran = run("existing_check_gradients")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""), ran.stdout)
        self.assertIn(" 0 wrong", ran.stdout)

    def test_takes_any_text(self):
        text = self.folder / "text"
        text.write_bytes(bytes(range(256)) * 2)
        losses = self.losses("--text", text, "--layers", 1)
        self.assertAlmostEqual(float_of(losses[0]), math.log(256), delta=0.2)

    def test_help(self):
        ran = run("existing_trainer", "--help")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        for option in "text steps batch context layers width heads lr seed losses".split():
            self.assertIn(f"  --{option} ", ran.stdout)

    def test_refuses(self):
        short = self.folder / "short"
        short.write_text("short", encoding="ascii")
        for arguments, code, message in [
            (["--step", 3], 2, "no option --step: --help lists them"),
            (["--steps"], 2, "--steps has no value: give one after it"),
            (["--steps", "1x"], 2, '--steps is "1x": give a number from 1 to 1e+08'),
            (["--batch", 0], 2, '--batch is "0": give a number from 1 to 1024'),
            (["--lr", "nan"], 2, '--lr is "nan": give a number from 1e-09 to 10'),
            (["--width", 30], 2, "--width 30 is no multiple of --heads 4: change one of them"),
            (["--batch", 1024, "--context", 1024, "--width", 4096], 2, "give a smaller --batch, --context or --width"),
            (["--text", self.folder / "none"], 1, "name a file that is not empty with --text FILE"),
            (["--text", short], 1, "has 5 bytes, too few for a context of 64: name a longer file with --text"),
            (["--steps", 1, *SMALL, "--losses", self.folder / "no" / "file"], 1, "name another file with --losses"),
        ]:
            with self.subTest(arguments):
                ran = run("existing_trainer", *arguments)
                self.assertEqual(ran.returncode, code, ran.stderr)
                self.assertRegex(ran.stderr, r"^error: [^\n]*\n$")
                self.assertIn(message, ran.stderr)


if __name__ == "__main__":
    BIN_DIR, SUNK_STEPS = pathlib.Path(sys.argv.pop(1)), int(sys.argv.pop(1))
    unittest.main()
