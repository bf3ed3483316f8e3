#!/usr/bin/env python3
"""Figures about the structure of the sources, and four rules: layers include only what is below them, nothing but the
writers of kernels reads the source text of ops, no interface of the device boundary has more than eight virtual functions, and no
two files define a type of one name, which the linker would take for one.

usage: structure.py            prints the figures
       structure.py --check    exit 1 if a file breaks a rule
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Each layer, and the layers whose headers it may include beside its own and the public ones (CMakeLists.txt).
LAYERS = {
    "base": [],
    "ir": ["base"],
    "passes": ["base", "ir"],
    "device": ["base", "ir", "passes"],
    "kernels": ["base", "ir", "passes", "device"],
    "build": ["base", "ir", "passes", "device", "kernels"],
    "exec": ["base", "ir", "passes", "device", "kernels"],
    "api": ["base", "ir", "passes", "device", "kernels", "build", "exec"],
    "capture": ["base", "ir", "passes", "device", "kernels", "exec"],
    "loader": ["base"],
    "images": ["base", "loader"],
    "ranks": ["base", "ir", "passes", "device"],
    "train": ["base", "ir", "passes", "device", "kernels", "build", "exec", "api", "loader", "checkpoint"],
    "checkpoint": ["base", "ir", "passes", "device", "kernels", "build", "exec", "api"],
    "program_file": ["base", "ir", "passes", "device", "kernels", "build", "exec", "api", "checkpoint"],
}
INCLUDE = re.compile(r'^#include "(\w+)/', re.MULTILINE)
# What asks for the kind of a device, in the place of what it can do.
KIND = re.compile(r"DeviceKind::|\.kind\(\)|\bis_cuda\(|\bis_cpu\(")
VIRTUAL = re.compile(r"\bvirtual\b(?! ~)")
# A namespace is "" where it has no name, and its types belong to one file. Types of a namespace are not indented.
NAMESPACE = re.compile(r"namespace\s+(?:GRAPHSINK_PUBLIC\s+)?([\w:]*)\s*\{")
TYPE = re.compile(r"(?:struct|class|enum class)\s+(?:GRAPHSINK_PUBLIC\s+)?(\w+)\b(?!::)[^;()]*\{")
MOST_VIRTUALS = 8  # of an interface of the device boundary
# Source text of an op, which only the writers of kernels may read: whatever else depended on it would change when it is
# written in another way.
TEXT = re.compile(r'elements\.text\b|\bkText\b|\.text\s*[!=]=|[!=]=\s*[\w.>-]*\.text\b')
WRITERS = {"kernels/support/elementwise.h", "kernels/runtime/fused_source.cu"}


def sources(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".h", ".cpp", ".cu")]


def layer_of(path):
    parts = path.relative_to(ROOT).parts
    return "kernels" if parts[0] == "kernels" else parts[1]


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def code_lines(path):
    return sum(1 for line in without_comments(path.read_text()).splitlines() if line.strip())


def upward_includes():
    found = []
    for path in sources("src", "kernels"):
        layer = layer_of(path)
        allowed = {layer, "graphsink", *LAYERS[layer]}
        found += [(path, below) for below in INCLUDE.findall(path.read_text()) if below in LAYERS and below not in allowed]
    return found


def readers_of_text():
    return [path for path in sources("src", "kernels") if str(path.relative_to(ROOT)) not in WRITERS and
            TEXT.search(without_comments(path.read_text()))]


def struct_body(text, name):
    """What stands between the braces of a struct or class, or nothing."""
    found = re.search(rf"\b(?:struct|class) {name}\b[^;{{]*\{{", text)
    if not found:
        return None
    depth, at = 1, found.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[found.end():at - 1]


def data_members(text, name):
    """The data members of a struct: statements of its own level that are no functions, types or access labels."""
    body = struct_body(text, name)
    flat, depth = "", 0
    for c in body:
        depth -= c == "}"
        if depth == 0:
            flat += c
        depth += c == "{"
    members = []
    for statement in flat.split(";"):
        statement = " ".join(statement.split())
        if not statement or re.match(r"(using|friend|struct|class|enum|static|template|constexpr|public|private)\b", statement):
            continue
        function = re.search(r"\)\s*(const)?\s*(\{.*)?$", statement.split("=")[0].strip())
        if function and not re.search(r"\(\*\w+\)\(", statement):
            continue
        members.append(statement)
    return members


def members_with_nested(text, name):
    """Members of a struct; one whose type is a struct of the same text counts as many as that has."""
    total = 0
    for member in data_members(text, name):
        nested = re.match(r"(\w+) \w+", member)
        nested = nested and nested[1] not in ("Alias",) and nested[1] != name and re.search(rf"\nstruct {nested[1]} \{{", text)
        total += members_with_nested(text, re.match(r"\w+", member)[0]) if nested else 1
    return total


def longest_function():
    """(lines, path, first line) of the longest function. As clang-format writes them, it ends with a brace alone in the column
    of its first line: column 0, or 2 in a class."""
    best = (0, None, 0)
    for path in sources("src", "kernels"):
        first = {}  # by column, the last line that begins there
        text = re.sub(r'R"\(.*?\)"', lambda raw: "R" + "\n" * raw[0].count("\n"), path.read_text(), flags=re.DOTALL)
        for number, line in enumerate(text.splitlines(), 1):
            column = len(line) - len(line.lstrip())
            if line.strip() == "}" and column in first:
                best = max(best, (number - first[column] + 1, path, first[column]), key=lambda entry: entry[0])
            elif line.strip() and column in (0, 2) and not line.lstrip().startswith("//"):
                first[column] = number
    return best


def interfaces():
    """The virtual functions of each class of the device boundary, by its name."""
    text = without_comments((ROOT / "src/device/device.h").read_text())
    return {name: VIRTUAL.findall(struct_body(text, name)) for name in re.findall(r"^class (\w+)[^;{]*\{", text, re.MULTILINE)}


def types_of_one_name():
    """Names of types that several files define in one namespace, and these files."""
    files = {}
    for path in sources("include", "src", "kernels"):
        namespace = ""
        for line in without_comments(path.read_text()).splitlines():
            if opened := NAMESPACE.match(line):
                namespace = opened[1]
            elif namespace and (found := TYPE.match(line)):
                files.setdefault((namespace, found[1]), set()).add(path)
    return [(name, sorted(paths)) for (_, name), paths in files.items() if len(paths) > 1]


def figures():
    op = (ROOT / "include/graphsink/op.h").read_text()
    plain = without_comments("".join(path.read_text() for path in sources("include")))
    device = [path for path in sources("src/device") if path.parent == ROOT / "src/device"]
    public = sources("include")
    comments = sum(line.lstrip().startswith("//") for path in public for line in path.read_text().splitlines())
    every = sum(len(path.read_text().splitlines()) for path in public)
    asking = [path for path in sources("src", "kernels") if "device" not in path.relative_to(ROOT).parts and
              KIND.search(without_comments(path.read_text()))]
    longest = max(sources("src", "kernels"), key=lambda path: len(path.read_text().splitlines()))
    length, where, line = longest_function()
    yield "members of OpDef", len(data_members(plain, "OpDef"))
    yield "members of OpDef, those of nested structs counted", members_with_nested(plain, "OpDef")
    yield "lines of op.h", len(op.splitlines())
    yield "virtual functions of the device boundary", sum(
        len(VIRTUAL.findall(without_comments(path.read_text()))) for path in device)
    yield "most of them in one interface", max(map(len, interfaces().values()))
    yield "files outside device/ that ask for a kind of device", len(asking)
    yield "files that read the source text of ops, beside its writers", len(readers_of_text())
    yield "includes of a layer above", len(upward_includes())
    yield "longest function", f"{length} lines, {where.relative_to(ROOT)}:{line}"
    yield "longest file", f"{len(longest.read_text().splitlines())} lines, {longest.relative_to(ROOT)}"
    yield "comments in public headers", f"{comments / every:.0%} of {every} lines"
    yield "code lines of src and kernels", sum(map(code_lines, sources("src", "kernels")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        upward = upward_includes()
        for path, layer in upward:
            print(f"{path.relative_to(ROOT)}: the layer {layer_of(path)} is not above {layer}, whose header this includes",
                  file=sys.stderr)
        readers = readers_of_text()
        for path in readers:
            print(f"{path.relative_to(ROOT)}: reads the source text of an op; compare Elements::scalar", file=sys.stderr)
        wide = [name for name, functions in interfaces().items() if len(functions) > MOST_VIRTUALS]
        for name in wide:
            print(f"src/device/device.h: {name} has more than {MOST_VIRTUALS} virtual functions; divide it by what callers use",
                  file=sys.stderr)
        doubled = types_of_one_name()
        for name, paths in doubled:
            print(f"{name}: a type of this name is defined in {' and in '.join(str(path.relative_to(ROOT)) for path in paths)}; "
                  "rename one of them", file=sys.stderr)
        return 1 if upward or readers or wide or doubled else 0
    for name, value in figures():
        print(f"{name:55} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
