#!/usr/bin/env python3
"""Writes the bindings of all functions that a header of ops declares, with the comments of the header as docstrings.

    make_ops.py HEADER... --output FILE.cpp [--function NAME] [--options-of HEADER...] [--without-gil]

Options structs become keyword arguments with the defaults of their members, `Placement placement` the keyword `on`. A
declaration that it cannot translate ends the program, so that no public op is without a binding.
"""
import argparse
import pathlib
import re
import sys
from dataclasses import dataclass, field

# Functions that are methods or operators in Python, or have no use there.
LEFT_OUT = {"keep": "bound by hand", "average": "takes trees: graphsink/ranks.py"}
VALUE_STRUCTS = ("TopK", "Sorted", "BatchNorm", "Padded", "Unique")


@dataclass
class Parameter:
    type: str
    name: str
    default: str | None


@dataclass
class Function:
    result: str
    name: str
    parameters: list[Parameter]
    comment: str
    line: int


@dataclass
class Header:
    functions: list[Function] = field(default_factory=list)
    structs: dict[str, list[Parameter]] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)  # what the lines of a struct say of its members


def split_commas(text: str) -> list[str]:
    """Splits at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "(<{[") - (c in ")>}]")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def parse_parameter(text: str) -> Parameter:
    declared, _, default = text.partition("=")
    match = re.fullmatch(r"(.+?)\s*(\w+)", declared.strip(), re.S)
    if not match:
        sys.exit(f"make_ops.py: no parameter: {text}")
    kind = re.sub(r"\s+", " ", match[1]).strip()
    return Parameter(kind, match[2], default.strip() or None)


def parse_members(body: str) -> list[Parameter]:
    """The data members of a struct, with their defaults."""
    body = re.sub(r"//[^\n]*", "", body)
    body = re.sub(r"static auto fields\(auto& s\)\s*\{.*?\}", "", body, flags=re.S)
    members = []
    for statement in body.split(";"):
        statement = statement.strip()
        if not statement or "(" in statement.partition("=")[0].partition("{")[0]:
            continue
        kind, names = re.match(r"((?:std::\w+<.*?>|[\w:]+)\s)(.*)", statement, re.S).groups()
        for declared in split_commas(names):
            name, default = re.match(r"(\w+)\s*(?:=\s*)?(.*)", declared, re.S).groups()
            members.append(Parameter(kind.strip(), name, default.strip() or None))
    return members


def parse(path: pathlib.Path) -> Header:
    header = Header()
    comment: list[str] = []
    comment_is_open = False
    lines = path.read_text(encoding="utf-8").split("\n")
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("//"):
            if not comment_is_open:
                comment = []
            comment_is_open = True
            comment.append(line[2:].removeprefix(" "))
        elif not line.strip():
            comment, comment_is_open = [], False
        elif match := re.match(r"struct (\w+) \{", line):
            body = []
            while not lines[i].startswith("};"):
                i += 1
                body.append(lines[i])
            header.structs[match[1]] = parse_members("\n".join(body[:-1]))
            said = [re.fullmatch(r"\s+[\w:]+ ([\w, ]+);\s+// (.*)", each) for each in body]
            header.remarks[match[1]] = "\n".join(f"{each[1]}: {each[2]}" for each in said if each)
            comment, comment_is_open = [], False
        elif re.match(r"(Value|Padded|TopK|Sorted|BatchNorm|Unique|NewDim|std::vector<Value>) \w+\(", line):
            first = i
            text, own = "", ""
            while True:
                code, _, remark = lines[i].partition("//")
                text += code.strip() + " "
                own += remark
                if code.rstrip().endswith(";"):
                    break
                i += 1
            result, name, inside = re.fullmatch(r"(\S+) (\w+)\((.*)\);\s*", text).groups()
            about = "\n".join(comment + ([own.strip()] if own.strip() else []))
            parameters = [parse_parameter(part) for part in split_commas(inside)]
            header.functions.append(Function(result, name, parameters, about, first + 1))
            comment_is_open = False
        elif re.match(r"(class|template|inline)\b", line):
            # What follows belongs to the language, such as operators.
            while not re.match(r"\}|.*[};](\s+//.*)?$", lines[i]) or lines[i].startswith("template"):
                i += 1
                if lines[i].startswith((" ", "}")):
                    while not lines[i].startswith("}"):
                        i += 1
                    break
            comment, comment_is_open = [], False
        else:
            comment, comment_is_open = [], False  # it is of a declaration that is bound elsewhere
        i += 1
    return header


class Writer:
    """Writes the binding of one function. Other Python threads run while it is computed by an Eager; if it `waits`, which
    it may do for other processes, also while it becomes part of a graph."""

    def __init__(self, function: Function, structs: dict[str, list[Parameter]], waits: bool):
        self.function, self.structs, self.waits = function, structs, waits
        self.signature: list[str] = []
        self.call: list[str] = []
        self.arguments: list[str] = []
        self.keywords: list[str] = []
        self.prelude: list[str] = []
        self.operands: list[str] = []  # those that may be of an Eager

    def add(self, taken: str, name: str, passed: str, default: str | None = None, is_keyword: bool = False) -> None:
        self.signature.append(f"{taken} {name}")
        self.call.append(passed)
        none = ".none()" if default == "nb::none()" else ""
        self.arguments_of(is_keyword).append(f'nb::arg("{name}"){none}' + (f" = {default}" if default else ""))

    def add_operand(self, taken: str, name: str, made: str) -> None:
        self.add(taken, name, f"std::move({name}_given)")
        self.prelude.append(f"    auto {name}_given = {made};")
        self.operands.append(f"{name}_given")

    def arguments_of(self, is_keyword: bool) -> list[str]:
        return self.keywords if is_keyword else self.arguments

    def add_member(self, options: str, member: Parameter) -> None:
        """A member of an options struct, as a keyword."""
        kind, default = member.type, f"{options}{{}}.{member.name}"
        passed = member.name
        if kind == "std::array<std::int64_t, 2>":
            kind, default, passed = "Pair", f"Pair{{{default}}}", f"{passed}.list"
        elif kind.startswith("std::optional"):
            default = "nb::none()"
        self.signature.append(f"{kind} {member.name}")
        none = ".none()" if default == "nb::none()" else ""
        self.keywords.append(f'nb::arg("{member.name}"){none} = {default}')
        self.prelude.append(f"    options.{member.name} = {passed};")

    def parameter(self, p: Parameter) -> None:
        kind = p.type.removeprefix("const ").removesuffix("&").strip()
        if kind == "Arg":
            self.add_operand("const Operand&", p.name, f"{p.name}.operand(where)")
        elif kind == "std::vector<Arg>":
            self.add_operand("const std::vector<Operand>&", p.name, f"operands({p.name}, where)")
        elif kind == "Graph":
            self.add("const GraphHandle&", p.name, f"{p.name}.graph")
        elif kind == "Shape":
            self.add("const Sizes&", p.name, f"{p.name}.shape(where)")
        elif kind == "NewShape":
            self.add("const NewSizes&", p.name, f"NewShape({p.name}.list)")
        elif kind == "std::array<std::int64_t, 2>":
            self.add("const Pair&", p.name, f"{p.name}.list")
        elif kind in ("Axes", "ResultSize"):
            self.add(f"const {kind}&", p.name, p.name, "nb::none()" if p.default else None)
        elif kind == "Placement":
            self.signature.append("const Placement& on")
            self.call.append("on")
            self.keywords.append('nb::arg("on") = Placement{}')
        elif kind == "Where":
            self.call.append("where")
        elif kind in self.structs and kind.endswith("Options"):
            self.prelude.append(f"    {kind} options;")
            for member in self.structs[kind]:
                self.add_member(kind, member)
            self.call.append("options")
        elif kind in VALUE_STRUCTS or kind in ("Value", "Comm"):
            self.add(f"const {kind}&", p.name, p.name)
            self.operands += [p.name] if kind != "Comm" else []
        elif kind in ("int", "bool", "double", "std::int64_t", "DType") or kind.startswith("std::vector<"):
            default = p.default
            if default == "{}":
                default = f"{kind}{{}}"
            self.add(kind, p.name, p.name, default)
        else:
            sys.exit(f"make_ops.py: {self.function.name}() in line {self.function.line} has a parameter of type {p.type}, "
                     "for which python/make_ops.py has no rule")

    def text(self) -> str:
        for p in self.function.parameters:
            self.parameter(p)
        uses_where = any("where" in passed for passed in self.call + self.prelude)
        extras = self.arguments + (["nb::kw_only()"] + self.keywords if self.keywords else [])
        comment = self.function.comment
        body = ["    const Where where = here();"] if uses_where else []
        if self.waits:
            body += ["    OpCall call;", *self.prelude, "    call.begin_without_gil();"]
        elif self.operands:
            body += ["    OpCall call;", *self.prelude, f"    call.begin({', '.join(self.operands)});"]
        else:
            body += self.prelude
        name = self.function.name
        body.append(f"    return graphsink::{name}({', '.join(self.call)});")
        extra = "".join(f", {e}" for e in extras)
        return (f'  m.def("{name}", []({", ".join(self.signature)}) {{\n' + "\n".join(body) + f"\n  }}{extra},\n"
                f'        R"doc({comment})doc");\n')


def bind_struct(name: str, members: list[Parameter], remarks: str) -> str:
    fields = "".join(f'\n      .def_ro("{m.name}", &{name}::{m.name})' for m in members)
    values = ", ".join(f"self.{m.name}" for m in members)
    kinds = ", ".join({"Value": "Value"}.get(m.type, m.type) for m in members)
    return (f'  nb::class_<{name}>(m, "{name}", R"doc({remarks})doc"){fields}\n'
            f'      .def("__iter__", [](const {name}& self) {{ return nb::iter(nb::make_tuple({values})); }},\n'
            f'           nb::sig("def __iter__(self) -> collections.abc.Iterator[{kinds.replace(", ", " | ") if len(set(kinds.split(", "))) > 1 else kinds.split(", ")[0]}]"));\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headers", nargs="+", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--function", default="bind_ops", help="name of the C++ function that binds them")
    parser.add_argument("--options-of", nargs="+", type=pathlib.Path, default=[],
                        help="headers of which only the structs of options are used")
    parser.add_argument("--without-gil", action="store_true", help="other Python threads run during the calls")
    options = parser.parse_args()
    text = ["// Made by make_ops.py from the headers that declare the ops. Do not change it here.", '#include "bindings.h"',
            *(f'#include "graphsink/{path.name}"' for path in options.headers), "", "namespace graphsink::python {", ""]
    headers = [parse(path) for path in options.headers]
    structs = {name: members for header in [*headers, *map(parse, options.options_of)] for name, members in header.structs.items()}
    remarks = {name: text for header in headers for name, text in header.remarks.items()}
    body = [bind_struct(name, members, remarks[name]) for name, members in structs.items()
            if name in VALUE_STRUCTS and name in remarks]
    for header in headers:
        if not header.functions:
            sys.exit("make_ops.py: a header declares no op")
        body += [Writer(f, structs, options.without_gil).text() for f in header.functions if f.name not in LEFT_OUT]
    # A compiler takes less time and memory for several functions of a moderate size.
    pieces = [body[i:i + 24] for i in range(0, len(body), 24)]
    for number, piece in enumerate(pieces):
        text += [f"static void bind_part_{number}(nb::module_& m) {{", *piece, "}", ""]
    calls = "".join(f"  bind_part_{n}(m);\n" for n in range(len(pieces)))
    text += [f"void {options.function}(nb::module_& m) {{\n{calls}}}", "", "}  // namespace graphsink::python", ""]
    options.output.write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
