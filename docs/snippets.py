#!/usr/bin/env python3
"""Puts programs of docs/snippets into the pages, and runs them.

A page has a part of a file between two marks:

    <!-- snippet: FILE PART -->
    (a fenced block, which --write writes)
    <!-- end -->

A part lies between two lines that hold its name alone, in C++ // [PART], in other files # [PART]. The part "all" is the whole
file without such lines. FILE.out is what FILE prints. Any other block of C++ or Python has the line
<!-- not run: REASON --> in front of it.

usage: snippets.py --write [PAGE...]   writes the blocks of these pages, or of all
       snippets.py --check [PAGE...]   exit 1, and a line for each mistake, where a page is not what --write makes of it
       snippets.py --run PROGRAM [FILE]  runs a program in an empty folder; exit 1 if it fails, or prints something else than
                                         docs/snippets/FILE.out, where that is (decimals: within 2 %)
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SNIPPETS = ROOT / "docs" / "snippets"
LANGUAGES = {".cpp": "cpp", ".cu": "cpp", ".h": "cpp", ".py": "python", ".out": "text", ".txt": "cmake", ".sh": "sh"}
MARK = re.compile(r"<!-- snippet: (\S+) (\S+) -->")
END = "<!-- end -->"
NOT_RUN = re.compile(r"<!-- not run: .+ -->")
FENCE = re.compile(r"\s*((?:```|~~~)+)\s*\{?\.?([\w+]*)")
RUN_LANGUAGES = ("cpp", "c++", "cuda", "python", "py")
PART = re.compile(r"\s*(?://|#) \[([\w-]+)\]")
# A decimal may differ a little: the products of another library round in another way.
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]\d+)?")
CLOSE = 0.02


class Mistake(Exception):
    pass


def text_of(file, part, folder=SNIPPETS):
    """The lines of a part of a file, without the indentation that all have."""
    path = folder / file
    if not path.is_file():
        raise Mistake(f"docs/snippets has no {file}")
    lines = path.read_text(encoding="utf-8").splitlines()
    if part == "all":
        return trimmed([line for line in lines if not PART.fullmatch(line)])
    at = [number for number, line in enumerate(lines) if (mark := PART.fullmatch(line)) and mark[1] == part]
    if len(at) != 2:
        raise Mistake(f"docs/snippets/{file} has {len(at)} lines with [{part}], and needs two")
    return trimmed([line for line in lines[at[0] + 1 : at[1]] if not PART.fullmatch(line)])


def trimmed(lines):
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    indentation = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[indentation:] for line in lines]


def rewritten(text, folder=SNIPPETS):
    """The text of a page with the blocks that its marks ask for, and the mistakes in it."""
    lines, made, mistakes = text.splitlines(), [], []
    number, marked = 0, False
    while number < len(lines):
        line = lines[number]
        mark = MARK.fullmatch(line)
        fence = FENCE.match(line)
        if mark:
            try:
                end = lines.index(END, number)
                if any(MARK.fullmatch(between) for between in lines[number + 1 : end]):
                    raise ValueError
                block = ["", "```" + LANGUAGES[pathlib.Path(mark[1]).suffix], *text_of(mark[1], mark[2], folder), "```", "", END]
                made += [line, *block]
                number, marked = end + 1, False
                continue
            except ValueError:
                mistakes.append(f"{number + 1}: {line} has no {END}")
            except KeyError:
                mistakes.append(f"{number + 1}: {mark[1]}: its ending is none of {' '.join(LANGUAGES)}")
            except Mistake as mistake:
                mistakes.append(f"{number + 1}: {mistake}")
        elif fence:
            if fence[2].lower() in RUN_LANGUAGES and not marked:
                mistakes.append(f"{number + 1}: a block of {fence[2]} without a mark: <!-- snippet: FILE PART -->, or "
                                "<!-- not run: REASON -->")
            made.append(line)
            number += 1
            while number < len(lines) and lines[number].strip() != fence[1]:
                made.append(lines[number])
                number += 1
            if number == len(lines):
                mistakes.append("the last block has no end")
                break
            line = lines[number]
        if line.strip():
            marked = bool(NOT_RUN.fullmatch(line.strip()))
        made.append(line)
        number += 1
    return "\n".join(made) + "\n", mistakes


def pages():
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if SNIPPETS not in page.parents)]


def unused(texts):
    """Files that no page shows anything of, and what no file prints."""
    shown = {mark[1] for text in texts for mark in MARK.finditer(text)}
    for path in sorted(SNIPPETS.iterdir()):
        if path.suffix == ".out":
            if not path.with_suffix("").is_file():
                yield f"docs/snippets/{path.name}: there is no {path.stem}"
        elif path.suffix in (".cpp", ".cu", ".py") and path.name not in shown:
            yield f"docs/snippets/{path.name}: no page shows a part of it"


def look_at(chosen, is_written):
    mistakes = []
    for page in chosen or pages():
        old = page.read_text(encoding="utf-8")
        name = os.path.relpath(page, ROOT)
        new, found = rewritten(old)
        mistakes += [f"{name}:{mistake}" for mistake in found]
        if new == old:
            continue
        if is_written:
            page.write_text(new, encoding="utf-8")
        else:
            mistakes.append(f"{name}: a block is not what its file holds; remedy: docs/snippets.py --write")
    if not chosen:
        mistakes += unused([page.read_text(encoding="utf-8") for page in pages()])
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return 1 if mistakes else 0


def is_alike(seen, expected):
    """Whether two texts have the same words, decimals nearly."""
    rows = [(NUMBER.sub("#", text).split(), NUMBER.findall(text)) for text in (seen, expected)]
    return rows[0][0] == rows[1][0] and len(rows[0][1]) == len(rows[1][1]) and all(
        abs(float(a) - float(b)) <= CLOSE * abs(float(b)) for a, b in zip(rows[0][1], rows[1][1]))


def run(command, file):
    """A program in an empty folder. Returns what is wrong, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return f"{file} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    expected = SNIPPETS / (file + ".out")
    if not expected.is_file():
        return None
    lines = [done.stdout.splitlines(), expected.read_text(encoding="utf-8").splitlines()]
    for number in range(max(map(len, lines))):
        seen, wanted = (text[number] if number < len(text) else "(nothing)" for text in lines)
        if not is_alike(seen, wanted):
            return f"{file}: line {number + 1} of what it prints: expected\n  {wanted}\nof {file}.out, seen\n  {seen}"
    return None


def main(arguments):
    if len(arguments) in (2, 3) and arguments[0] == "--run":
        wrong = run([os.path.abspath(arguments[1])], arguments[2] if len(arguments) == 3 else pathlib.Path(arguments[1]).name)
        if wrong:
            print(wrong, file=sys.stderr)
        return 1 if wrong else 0
    if arguments[:1] not in (["--write"], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    return look_at([pathlib.Path(argument).resolve() for argument in arguments[1:]], arguments[0] == "--write")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
