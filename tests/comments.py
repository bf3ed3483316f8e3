#!/usr/bin/env python3
"""Comments that are hard to unfold: sentences that begin with Of, What, Whose or So many, and comments behind a line of
code that begin with such a word. A comment names its subject first: "// bytes of the value", not "// of the value: bytes".

usage: comments.py [FILE...]     lists them, by default those of all code but the tests'; exit 1 if there are any
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEHIND = re.compile(r"[^\s/].*\s//\s+(of|what|whose|so many)\b", re.IGNORECASE)
SENTENCE = re.compile(r"(^|[.!?] )(Of|What|Whose|So many)\b")


def riddles(path):
    """(line, text) of each: for a sentence, the line on which its block of comments begins."""
    block, first = [], 0
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        text = line.strip()
        if text.startswith("//"):
            first = first if block else number
            block.append(text[2:].strip())
            continue
        if BEHIND.match(text):
            yield number, text
        if SENTENCE.search(" ".join(block)):
            yield first, " ".join(block)
        block = []


def main():
    names = sys.argv[1:]
    if names[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    files = [pathlib.Path(name) for name in names] or [
        path for folder in ("include", "src", "kernels", "python", "samples", "profiling") for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".h", ".cpp", ".cu")]
    found = [(path, line, text) for path in files for line, text in riddles(path)]
    for path, line, text in found:
        print(f"{path}:{line}: {text if len(text) < 160 else text[:157] + '...'}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
