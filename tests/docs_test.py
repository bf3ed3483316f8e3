#!/usr/bin/env python3
"""docs/snippets.py finds what is wrong with a page, and with what a program prints; docs/links.py finds links that lead nowhere;
program.h names the keys of explain_json()."""
import json
import os
import pathlib
import re
import stat
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import links  # noqa: E402
import snippets  # noqa: E402

PROGRAM = """#include <a.h>
int main() {
  // [one]
  first();
  // [two]
    second();
  // [two]
  // [one]
  // [lonely]
}
"""


def page(file, part, block="", end=snippets.END):
    return "\n".join(["# Title", "", f"<!-- snippet: {file} {part} -->", block, end, "", "Text."]) + "\n"


class Marks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "a.cpp").write_text(PROGRAM, encoding="utf-8")

    def rewritten(self, text):
        return snippets.rewritten(text, self.folder)

    def test_a_part_is_written_without_its_indentation_and_without_other_marks(self):
        new, mistakes = self.rewritten(page("a.cpp", "one", "old"))
        self.assertEqual(mistakes, [])
        self.assertEqual(new, page("a.cpp", "one", "\n```cpp\nfirst();\n  second();\n```\n"))
        self.assertEqual(self.rewritten(new), (new, []))

    def test_all_is_the_whole_file(self):
        new, mistakes = self.rewritten(page("a.cpp", "all"))
        self.assertEqual(mistakes, [])
        self.assertIn("```cpp\n#include <a.h>\nint main() {\n  first();\n    second();\n}\n```", new)

    def test_what_is_missing_is_said_with_its_line(self):
        for text, words in [(page("b.cpp", "one"), "has no b.cpp"), (page("a.cpp", "three"), "0 lines with [three]"),
                            (page("a.cpp", "lonely"), "1 lines with [lonely]"), (page("a.bin", "all"), "its ending"),
                            (page("a.cpp", "one", end=""), "has no <!-- end -->"),
                            (page("a.cpp", "one", end="") + page("a.cpp", "two"), "has no <!-- end -->")]:
            mistakes = self.rewritten(text)[1]
            self.assertEqual(len(mistakes), 1, mistakes)
            self.assertTrue(mistakes[0].startswith("3: ") and words in mistakes[0], mistakes)

    def test_a_block_without_a_mark_is_a_mistake(self):
        for language in ("cpp", "python"):
            block = f"# Title\n\n```{language}\nx\n```\n"
            self.assertEqual(len(self.rewritten(block)[1]), 1)
            excused = block.replace("```" + language, "<!-- not run: a fragment -->\n\n```" + language)
            self.assertEqual(self.rewritten(excused), (excused, []))
            self.assertEqual(len(self.rewritten(excused + block)[1]), 1)  # an excuse is for one block
            between = page("a.cpp", "all", "\n" + "\n".join(["```cpp", *snippets.text_of("a.cpp", "all", self.folder), "```"]) + "\n")
            self.assertEqual(len(self.rewritten("<!-- not run: a fragment -->\n" + between + block)[1]), 1)
            for other_way in ("~~~" + language, "```{." + language + "}"):
                self.assertEqual(len(self.rewritten(f"{other_way}\nx\n{other_way[:3]}\n")[1]), 1)
            self.assertEqual(len(self.rewritten(block.replace("```", "  ```"))[1]), 1)
        other = "# Title\n\n```sh\nx\n```\n"
        self.assertEqual(self.rewritten(other), (other, []))

    def test_a_block_without_an_end_is_a_mistake(self):
        self.assertEqual(self.rewritten("```sh\nx\n")[1], ["the last block has no end"])


class Programs(unittest.TestCase):
    def run_text(self, script, expected=None):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "a.sh"
            program.write_text("#!/bin/sh\n" + script, encoding="utf-8")
            os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
            before, snippets.SNIPPETS = snippets.SNIPPETS, pathlib.Path(folder)
            try:
                if expected is not None:
                    (snippets.SNIPPETS / "a.sh.out").write_text(expected, encoding="utf-8")
                return snippets.run([program], "a.sh")
            finally:
                snippets.SNIPPETS = before

    def test_a_program_that_fails_is_said(self):
        self.assertIsNone(self.run_text("exit 0"))
        self.assertIn("ended with 3", self.run_text("exit 3"))

    def test_what_it_prints_is_compared(self):
        self.assertIsNone(self.run_text("echo 'loss 1.01,  2 steps'", "loss 1.00, 2 steps\n"))
        self.assertIn("line 1", self.run_text("echo 'loss 1.05, 2 steps'", "loss 1.00, 2 steps\n"))
        self.assertIn("line 1", self.run_text("echo 'loss 1.00, 3 steps'", "loss 1.00, 2 steps\n"))
        self.assertIn("line 2", self.run_text("echo 1", "1\n2\n"))
        self.assertIn("line 2", self.run_text("printf '1\\n2\\n'", "1\n"))

    def test_it_runs_in_an_empty_folder(self):
        self.assertIsNone(self.run_text("touch file; ls", "file\n"))


class ExplainJson(unittest.TestCase):
    """What program.h says of the keys of Program::explain_json() holds for the plans in tests/golden."""

    def setUp(self):
        header = (ROOT / "include/graphsink/program.h").read_text(encoding="utf-8")
        begin = header.index("one JSON object with these keys, in this order")
        self.comment = header[begin:header.index("std::string explain_json(", begin)]
        self.plans = [json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "tests/golden").glob("*.json")]
        self.assertTrue(self.plans)

    def test_they_are_in_this_order(self):
        named = [key for keys in re.findall(r"^  //   ([a-z][a-z_, ]*?)(?:  .*)?$", self.comment, re.M) for key in keys.split(", ")]
        for plan in self.plans:
            self.assertEqual(list(plan), [key for key in named if key in plan])
        sometimes = {"unrolled_steps", "variables_elsewhere", "collectives"}  # not in these plans
        self.assertEqual(set(named) - sometimes, {key for plan in self.plans for key in plan})

    def test_the_keys_of_what_they_hold_are_named(self):
        words = set(re.findall(r"[a-z_]+", self.comment))

        def check(value):
            for key, inner in value.items() if isinstance(value, dict) else ((None, item) for item in value):
                if key is not None:
                    self.assertIn(key, words)
                if isinstance(inner, (dict, list)) and key != "attributes":
                    check(inner)

        for plan in self.plans:
            check(plan)


class Links(unittest.TestCase):
    def mistakes(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "b.md").write_text("# A `b`: c, d\n\n## Same\n\n```sh\n# no heading\n```\n\n## Same\n", encoding="utf-8")
            page = pathlib.Path(folder) / "a.md"
            page.write_text("# Own\n\n" + text + "\n", encoding="utf-8")
            return [mistake.split(": ", 1)[1] for mistake in links.mistakes_of(page)]

    def test_a_link_leads_to_a_file_and_a_heading(self):
        good = "[x](b.md) [x](b.md#a-b-c-d) [x](#own) [x](b.md#same-1) [x](https://example.org/y) [two\nlines](b.md#same) `[x](c.md)`"
        self.assertEqual(self.mistakes(good), [])
        self.assertEqual(self.mistakes("```cpp\nf[x](y)\n```"), [])
        self.assertEqual(self.mistakes("* a\n\n  ```cpp\n  f[x](y)\n  ```"), [])

    def test_a_link_that_leads_nowhere_is_said(self):
        for text in ("[x](c.md)", '[x](c.md "title")', "[x](<c.md>)", "[x][r]\n\n[r]: c.md"):
            self.assertEqual(self.mistakes(text), ["c.md: there is no such file"])
        self.assertEqual(self.mistakes("[x](/bin/sh)"), ["/bin/sh: there is no such file"])
        for link in ("b.md#other", "#a-b-c-d", "b.md#same-2", "b.md#no-heading"):
            self.assertEqual(self.mistakes(f"[x]({link})"), [f"{link}: there is no such heading"])


if __name__ == "__main__":
    unittest.main()
