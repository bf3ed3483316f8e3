#!/usr/bin/env python3
"""Links from one file of the checkout to another lead somewhere: the file is there, and its heading is, too.

usage: links.py [FILE...]   exit 1, and a line for each mistake; without a FILE all pages, and the Markdown files beside the code
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("docs", "packaging", "profiling", "python", "samples", "tests")
CODE = re.compile(r"^ *(?P<fence>```+).*?^ *(?P=fence)\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)|<(?:img|a)[^>]+(?:src|href)=\"([^\"]+)\"|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)
ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
FENCE = re.compile(r"^(```+).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors_of(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found = set(ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        anchor, number = slug(heading), 0
        while (anchor if number == 0 else f"{anchor}-{number}") in found:
            number += 1
        found.add(anchor if number == 0 else f"{anchor}-{number}")
    return found


def mistakes_of(page):
    text = CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        link = match[1] or match[2] or match[3]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        where = f"{os.path.relpath(page, ROOT)}:{text[: match.start()].count(chr(10)) + 1}: {link}"
        if path.startswith("/") or not target.exists():
            yield f"{where}: there is no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target):
            yield f"{where}: there is no such heading"


def main(arguments):
    if any(argument.startswith("-") for argument in arguments):
        print(__doc__, file=sys.stdout if arguments in (["--help"], ["-h"]) else sys.stderr)
        return 0 if arguments in (["--help"], ["-h"]) else 2
    if arguments:
        pages = [pathlib.Path(argument).resolve() for argument in arguments]
    else:
        pages = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
    mistakes = [mistake for page in pages for mistake in mistakes_of(page)]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
