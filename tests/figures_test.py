#!/usr/bin/env python3
"""profiling/figures.py writes what the marks of a page ask for, refuses other numbers that look measured, and keeps reports."""
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "profiling"))
import figures  # noqa: E402
from page import measured  # noqa: E402


def row(workload, mode, us):
    return {"workload": workload, "mode": mode, "step_us": {"median": us}}


class Pages(unittest.TestCase):
    def setUp(self):
        self.measured = measured.load()

    def test_a_block_and_a_value_are_written_and_stay_as_they_are(self):
        page = "# Title\n\n<!-- figures: planning -->\nold\n<!-- end -->\n\nAt most <!-- figure: trial-share -->old<!-- end --> of it.\n"
        new, mistakes = figures.rewritten(page, self.measured)
        self.assertEqual(mistakes, [])
        self.assertIn("| nodes | planning |", new)
        self.assertNotIn("old", new)
        self.assertEqual(figures.rewritten(new, self.measured), (new, []))
        self.assertEqual(figures.loose_numbers(new), [])

    def test_a_changed_figure_is_another_page(self):
        page, _ = figures.rewritten("<!-- figures: front -->\n<!-- end -->\n", self.measured)
        for item in self.measured["demo"].rows("bench"):
            item["step_us"]["median"] *= 2
        self.assertNotEqual(figures.rewritten(page, self.measured)[0], page)

    def test_what_is_wrong_with_a_mark_is_said(self):
        for page, words in [("<!-- figures: nothing -->\n<!-- end -->\n", "there is no table nothing"),
                            ("<!-- figures: front -->\n", "has no <!-- end -->"),
                            ("It is <!-- figure: nothing -->1<!-- end -->.\n", "there is no figure nothing")]:
            mistakes = figures.rewritten(page, self.measured)[1]
            self.assertEqual(len(mistakes), 1, mistakes)
            self.assertIn(words, mistakes[0])

    def test_numbers_that_look_measured_are_refused(self):
        for text in ("It takes 340 us.", "340us", "| a | 2.5 ms |", "5 s at most", "17.4 GB/s", "1,459 steps/s", "1.44 x", "x 1.83", "95.2 %", "9.7%",
                     "1.19 times as long", "2 times as fast", "```text\nstep 12.5 us\n```", "```\n12.5 us\n```", "* a\n  ```text\n  1 ms\n  ```"):
            self.assertEqual(len(figures.loose_numbers(f"# Title\n\n{text}\n")), 1, text)
        self.assertTrue(figures.loose_numbers("# Title\n\nIt takes\n340 us.\n")[0].startswith("4: '340 us'"))

    def test_other_numbers_are_not(self):
        for text in ("32 x 784 values", "`rank 0 has waited 600 ms`", "`has waited\n600 ms for it`", "```cpp\nwait(5 ms);  // 10 %\n```", "CUDA 13.0 and 16 times", "version 1.2",
                     "of 750 ms <!-- not measured: others said so -->", "<!-- not measured: others said so -->\nIt takes\n750 ms.",
                     "<!-- not measured: an example -->\n\n```text\n750 ms\n```", "<!-- snippet: a.out all -->\n\n```text\n750 ms\n```\n\n<!-- end -->"):
            self.assertEqual(figures.loose_numbers(f"# Title\n\n{text}\n"), [], text)

    def test_a_reason_holds_for_one_paragraph(self):
        text = "<!-- not measured: others said so -->\nIt takes 750 ms.\n\nIt takes 5 ms.\n"
        self.assertEqual(len(figures.loose_numbers(text)), 1)
        self.assertEqual(len(figures.loose_numbers("It takes 5 ms. <!-- not measured: -->\n")), 1)


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.report = self.folder / "torch.json"
        rows = [row("mlp", "sink", 100.0), row("mlp", "torch-eager", 150.0), row("mlp", "torch-compile", 130.0)]
        self.report.write_text(json.dumps({"machine": {"cpu": "A CPU", "cores": 2, "device": "cpu", "torch": "2.0"}, "rows": rows}))
        self.kept = self.folder / "kept"
        self.kept.mkdir()

    def take(self, command=None, machine=None, files=None):
        return figures.taken("t", files or [self.report], command, machine, self.kept)

    def test_a_report_is_kept_with_its_command_and_machine(self):
        with self.assertRaisesRegex(ValueError, "name the command by --command"):
            self.take()
        made = self.take(command="bench")
        self.assertEqual((made["command"], made["machine"]), ("bench", "A CPU, 2 cores, PyTorch 2.0"))
        self.assertRegex(made["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertNotIn("transcribed", made)
        text = measured.text_of(made)
        self.assertEqual(json.loads(text), made)
        (self.kept / "t.json").write_text(text)
        self.assertEqual(self.take()["command"], "bench")
        kept = measured.load(self.kept)["t"]
        self.assertAlmostEqual(measured.over_sink(kept, "mlp", ("torch-eager", "torch-compile")), 1.3)
        self.assertIsNone(measured.over_sink(kept, "gpt", ("torch-eager", "torch-compile")))

    def test_other_reports_than_there_were_are_refused(self):
        (self.kept / "t.json").write_text(measured.text_of(self.take(command="bench")))
        other = self.folder / "other.json"
        other.write_text(self.report.read_text())
        with self.assertRaisesRegex(ValueError, "t has the reports torch, not other"):
            self.take(files=[other])

    def test_what_a_command_printed_needs_a_machine(self):
        printed = self.folder / "output.txt"
        printed.write_text("a table\nof 5 us\n")
        with self.assertRaisesRegex(ValueError, "give it by --machine"):
            self.take(command="bench", files=[printed])
        made = self.take(command="bench", machine="A CPU", files=[printed])
        self.assertEqual(made["reports"], {"output": {"lines": ["a table", "of 5 us"]}})

    def test_a_constant_that_the_sources_lack_is_an_error(self):
        with self.assertRaises(KeyError):
            measured.constant("profiling/figures.py", "kNowhere" + r" = (\d+)", str)({})


if __name__ == "__main__":
    unittest.main()
