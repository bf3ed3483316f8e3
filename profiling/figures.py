#!/usr/bin/env python3
"""Writes the figures of README.md and docs/, from the reports in profiling/results/figures and from constants of the sources.

A page has a table between marks, and single values within a line:

    <!-- figures: NAME -->
    (what this writes)
    <!-- end -->

    takes <!-- figure: NAME -->(what this writes)<!-- end --> a step

profiling/page/measured.py has the names. A number with a unit of time, a rate, a ratio or a percentage that stands elsewhere in a
page is a mistake, unless its line, or the line before its paragraph or block, has <!-- not measured: REASON -->. Code, and what
docs/snippets.py or profiling/results_page.py write, is not looked at.

To measure again, run the command that profiling/results/figures/NAME.json names, with --json, give its reports to
--take, and call this without arguments.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

import results_page
from page import measured

PROJECT = measured.PROJECT
END = "<!-- end -->"
BLOCK = re.compile(r"^<!-- figures: (\S+) -->$")
VALUE = re.compile(r"<!-- figure: (\S+?) -->(.*?)<!-- end -->", re.DOTALL)
NOT_MEASURED = re.compile(r"<!-- not measured: \S.*? -->")
UNIT = r"(?:(?:us|µs|ms|ns|s|seconds?|[kMGT]i?B/s|[GT]FLOP/s|steps/s|x)\b(?! \d)|%)"
NUMBER = re.compile(rf"(?<![\w.,-])\d[\d,.]* ?{UNIT}|\bx \d+\.\d|\b\d+\.\d+ times\b|\b\d[\d.]* times as\b")
FENCE = re.compile(r"^ *(```+|~~~+)(.*)$")
CODE = re.compile(r"(?<!`)`(?!`)(?:[^`\n]|\n(?! *\n))*`(?!`)")


def pages() -> list[pathlib.Path]:
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def rewritten(text: str, all_measured: dict) -> tuple[str, list[str]]:
    """The text of a page with what its marks ask for, and the mistakes in them."""
    lines, made, mistakes, number = text.splitlines(), [], [], 0
    while number < len(lines):
        mark = BLOCK.match(lines[number])
        made.append(lines[number])
        number += 1
        if not mark:
            continue
        if END not in lines[number:] or mark[1] not in measured.TABLES:
            mistakes.append(f"{number}: <!-- figures: {mark[1]} --> has no {END}" if END not in lines[number:] else
                            f"{number}: there is no table {mark[1]}; the tables are {', '.join(measured.TABLES)}")
            continue
        made += ["", *measured.TABLES[mark[1]](all_measured), END]
        number = lines.index(END, number) + 1

    def value(match: re.Match) -> str:
        if match[1] in measured.VALUES:
            return f"<!-- figure: {match[1]} -->{measured.VALUES[match[1]](all_measured)}{END}"
        mistakes.append(f"there is no figure {match[1]}; the figures are {', '.join(measured.VALUES)}")
        return match[0]

    return VALUE.sub(value, "\n".join(made) + "\n"), mistakes


def blank(text: str) -> str:
    return "\n" * text.count("\n")


def checked_elsewhere(text: str) -> str:
    """The page without what a script writes or checks; each line keeps its number."""
    text = re.sub(r"^<!-- (?:snippet|figures): .*?^<!-- end -->$", lambda match: blank(match[0]), text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(re.escape(results_page.BEGIN) + ".*?" + re.escape(results_page.END), lambda match: blank(match[0]), text, flags=re.DOTALL)
    return VALUE.sub(lambda match: blank(match[0]), text)


def loose_numbers(text: str) -> list[str]:
    """Mistakes: numbers that look measured, and stand where nothing says how."""
    mistakes, paragraph, fence = [], [], ""
    exempt = False  # the mark stood alone on the line before this paragraph or block

    def look(first: int, lines: list[str]):
        bare = CODE.sub(lambda code: blank(code[0]), "\n".join(lines)) if not fence else "\n".join(lines)
        for offset, (line, original) in enumerate(zip(bare.split("\n"), lines)):
            found = NUMBER.search(line)
            if found and not exempt and not NOT_MEASURED.search(original):
                mistakes.append(f"{first + offset}: {found[0]!r} stands without the figure's mark, and without <!-- not measured: REASON -->")

    for number, line in enumerate([*checked_elsewhere(text).splitlines(), ""], 1):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                if is_text:
                    look(number - len(paragraph), paragraph)
                paragraph, fence, exempt = [], "", False
            else:
                paragraph.append(line)
        elif mark or not line.strip():
            look(number - len(paragraph), paragraph)
            if paragraph:
                exempt = bool(NOT_MEASURED.fullmatch(paragraph[-1].strip()))
            paragraph, fence = [], mark[1] if mark else ""
            is_text = bool(mark) and mark[2].strip() in ("", "text")  # code of a language says nothing about times
        else:
            paragraph.append(line)
            if len(paragraph) == 1 and NOT_MEASURED.fullmatch(line.strip()):
                exempt = True
    return mistakes


def report_of(file: pathlib.Path) -> dict:
    """A report of a command: JSON, or the lines that it printed."""
    text = file.read_text(encoding="utf-8")
    return json.loads(text) if file.suffix == ".json" else {"lines": text.rstrip("\n").split("\n")}


def machine_of(reports: dict) -> str:
    """In the words of a caption."""
    machine = next((report["machine"] for report in reports.values() if report.get("machine")), {})
    words = [machine.get("cpu") or machine.get("processor") or "", f"{machine['cores']} cores" if "cores" in machine else "",
             f"device {machine['device']}" if machine.get("device", "cpu") != "cpu" else "",
             f"PyTorch {machine['torch']}" if "torch" in machine else ""]
    return ", ".join(word for word in words if word)


def taken(name: str, files: list[pathlib.Path], command: str | None, machine: str | None, folder: pathlib.Path) -> dict:
    """What NAME.json is to hold, of these reports of its command, or of another one."""
    path = folder / f"{name}.json"
    if not command and not path.is_file():
        raise ValueError(f"{path} is not there; name the command by --command, or one of {', '.join(sorted(file.stem for file in folder.glob('*.json')))}")
    reports = {file.stem: report_of(file) for file in files}
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"reports": reports}
    if set(before["reports"]) != set(reports):
        raise ValueError(f"{name} has the reports {', '.join(before['reports'])}, not {', '.join(reports)}: name the files so")
    machine = machine or machine_of(reports)
    if not machine:
        raise ValueError("the reports do not name their machine; give it by --machine")
    described = subprocess.run(["git", "describe", "--always", "--exclude=*", "--abbrev=7", "--dirty=+changes"], cwd=PROJECT, capture_output=True, text=True, check=False)
    if described.returncode != 0:
        raise ValueError(f"the commit is not known: {described.stderr.strip()}")
    commit = described.stdout.strip()
    date = datetime.datetime.fromtimestamp(files[0].stat().st_mtime, datetime.timezone.utc).strftime("%Y-%m-%d")
    return {"command": command or before["command"], "machine": machine, "commit": commit, "date": date, "reports": reports}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="exit: 0, 1 if a page has a mistake, or --check finds a difference, 2 wrong usage")
    parser.add_argument("--check", action="store_true", help="write nothing; fail unless the pages are what they should be")
    parser.add_argument("--take", nargs="+", metavar=("NAME", "FILE"), help="keep these reports of the command as NAME.json, then write the pages")
    parser.add_argument("--command", help="with --take: the command, if it is another one than NAME.json has")
    parser.add_argument("--machine", help="with --take: in words, if the reports do not say it")
    options = parser.parse_args()
    if options.take and (len(options.take) < 2 or options.check):
        parser.error("--take needs a NAME and at least one FILE, and does not go with --check")
    return options


def main() -> int:
    options = parse()
    if options.take:
        try:
            made = taken(options.take[0], [pathlib.Path(file) for file in options.take[1:]], options.command, options.machine, measured.FOLDER)
        except (OSError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        (measured.FOLDER / f"{options.take[0]}.json").write_text(measured.text_of(made), encoding="utf-8")
    all_measured, is_good = measured.load(), True
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new, mistakes = rewritten(text, all_measured)
        if options.check and new != text:
            mistakes.append("not up to date; remedy: profiling/figures.py")
        elif not options.check and new != text:
            page.write_text(new, encoding="utf-8")
        for mistake in mistakes + loose_numbers(new):
            is_good = False
            print(f"{page.relative_to(PROJECT)}:{mistake}", file=sys.stderr)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
