"""Hooks of mkdocs: what the site has beside the pages of docs/.

A few files of other folders become pages, the reference that doxygen made is copied (where GRAPHSINK_REFERENCE names its
folder), and links to public headers lead there. Links to other files of the checkout, which the site does not have, become
text."""

import os
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Files outside of docs/ that are pages, and the names of these.
PAGES = {"CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md", "packaging/README.md": "packages.md", "packaging/licenses/README.md": "licences.md",
         "profiling/results/README.md": "results.md",
         "tests/cuda_emulator/README.md": "software-device.md", "README.md": "index.md"}
REFERENCE = "reference"  # folder of the site
BLOCK = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]\n]*(?:\n[^\]\n]+)?)\]\(([^)\s]+)\)")
SUBJECT = re.compile(r"^// (\w[^\n]*(?:\n// ?[^\n]+)*)", re.MULTILINE)
NO_REFERENCE = "\nThis site was made without the reference, because doxygen was missing.\n"


def reference():
    folder = os.environ.get("GRAPHSINK_REFERENCE")
    return pathlib.Path(folder) if folder else None


def page_of_header(name):
    """The name that doxygen gives to the page of a header."""
    return f"{REFERENCE}/{name.replace('_', '__').replace('.', '_8')}.html"


def subject_of(header):
    """The first sentence of the comment that a header begins with."""
    text = re.sub(r"\n// ?", " ", SUBJECT.search(header.read_text(encoding="utf-8"))[1])
    first = re.split(r"(?<=[.:;]) ", re.sub(r"^\w+(?:, \w+)*: ", "", text))[0].rstrip(".:;")
    return first[0].upper() + first[1:] if re.match(r"[a-z]+ ", first) else first


def list_of_headers():
    rows = [f"| [`{header.name}`](../include/graphsink/{header.name}) | {subject_of(header)} |"
            for header in sorted((ROOT / "include" / "graphsink").glob("*.h"))]
    begin = ["# Public headers", "", "`#include <graphsink/graphsink.h>` includes all of them but those of components. "
             "Comments there are the documentation of what they declare: what it does, shapes, lifetime, threads, errors.", ""]
    more = [] if reference() else [NO_REFERENCE]
    return "\n".join([*begin, *more, "| header | what |", "|---|---|", *rows]) + "\n"


def on_files(files, config):
    for source, name in PAGES.items():
        if name != "index.md":
            files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference.md", content=list_of_headers()))
    if reference():
        for path in sorted(reference().rglob("*")):
            if path.is_file():
                files.append(File.generated(config, f"{REFERENCE}/{path.relative_to(reference()).as_posix()}", abs_src_path=str(path)))
    return files


def place_of(page):
    """The path in the checkout of a page of the site."""
    return next((source for source, name in PAGES.items() if name == page and name != "index.md"), f"docs/{page}")


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri

    def target_of(link):
        path, _, anchor = link.partition("#")
        if not path or ":" in path:
            return link
        target = posixpath.normpath(posixpath.join(posixpath.dirname(place_of(here)), path))
        if target.startswith("include/graphsink/") and target.endswith(".h"):
            name = page_of_header(posixpath.basename(target)) if reference() else None
        elif target in PAGES:
            name = PAGES[target]
        else:
            name = target.removeprefix("docs/") if target.startswith("docs/") else None
        if not name:
            return None
        return posixpath.relpath(name, posixpath.dirname(here) or ".") + ("#" + anchor if anchor else "")

    def replaced(match):
        target = target_of(match[2])
        return f"[{match[1]}]({target})" if target else match[1]

    parts = BLOCK.split(markdown)
    return "".join(part if number % 2 else LINK.sub(replaced, part) for number, part in enumerate(parts))
