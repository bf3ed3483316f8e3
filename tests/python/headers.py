"""What the public headers declare: functions, types and constants of the namespace, and public members of classes."""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from expected import header


@dataclass
class Type:
    methods: set[str] = field(default_factory=set)
    members: dict[str, str] = field(default_factory=dict)  # names and defaults of data
    values: list[str] = field(default_factory=list)  # of an enumeration


@dataclass
class Declared:
    functions: set[str] = field(default_factory=set)
    types: dict[str, Type] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)


BODY = re.compile(r"(template\s*<.*?>\s)?(namespace|class|struct|enum|friend struct)\b", re.S)


def without_brackets(text: str) -> str:
    """Without what stands between < and >, and without attributes."""
    text = re.sub(r"\[\[.*?\]\]", "", text, flags=re.S)
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


def statements(text: str) -> Iterator[tuple[str, str]]:
    """The declarations of a body: each with the block that follows it, or ""."""
    start = depth = block = 0
    for i, c in enumerate(text):
        if c == "{":
            if depth == 0:
                block = i
            depth += 1
        elif c == "}":
            depth -= 1
            before = text[start:block].rstrip()
            is_body = before.endswith((")", "}", " const", "noexcept", "override")) or BODY.match(before.lstrip())
            if depth == 0 and is_body:
                yield text[start:block].strip(), text[block + 1:i]
                start = i + 1
        elif c == ";" and depth == 0:
            if text[start:i].strip():
                yield text[start:i].strip(), ""
            start = i + 1
        elif c == ":" and depth == 0 and text[start:i].strip() in ("public", "private", "protected"):
            yield text[start:i].strip(), ""
            start = i + 1


def function_name(statement: str) -> str:
    """"" for what is no function, and for operators."""
    if "operator" in statement or statement.startswith(("using", "friend", "static_assert")):
        return ""
    text = without_brackets(statement)
    match = re.search(r"([~\w]+)\s*\(", text)
    before = text[:match.start()] if match else "="
    return match[1] if match and "=" not in before and "{" not in before else ""


def members_of(statement: str) -> dict[str, str]:
    """The names of a statement that declares data, and their defaults as they are written."""
    is_other = statement.startswith(("using", "friend", "static", "struct", "class", "enum")) or "operator" in statement
    if is_other or function_name(statement):
        return {}
    match = re.match(r"(?:mutable |const )*(?:std::\w+<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>|[\w:]+)[&*]?\s+(\w.*)", statement, re.S)
    found = {}
    for part in re.split(r",(?![^{(<]*[})>])", match[1]) if match else []:
        name, default = re.match(r"(\w+)\s*(.*)", part.strip(), re.S).groups()  # type: ignore[union-attr]
        found[name] = default.lstrip("= ").strip()
    return found


def type_of(statement: str, body: str) -> Type:
    made = Type()
    if statement.startswith("enum"):
        made.values = re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip())
        return made
    is_public = statement.startswith("struct")
    own = re.search(r"(\w+)(?:\s*:.*)?$", statement.split("final")[0].strip(), re.S)
    for each, _ in statements(body):
        if each in ("public", "private", "protected"):
            is_public = each == "public"
        elif is_public:
            name = function_name(each)
            if name and name.strip("~") != (own[1] if own else "") and name != "fields":
                made.methods.add(name)
            made.members.update(members_of(each))
    return made


def declared(name: str) -> Declared:
    text = "\n".join(line for line in header(name).split("\n") if not line.lstrip().startswith("#") and not line.endswith("\\"))
    made = Declared()
    for space, body in statements(text):
        if not re.fullmatch(r"namespace GRAPHSINK_PUBLIC graphsink", space):
            continue
        for statement, inside in statements(body):
            match = re.match(r"(?:template\s*<.*?>\s)?(?:class|struct|enum class)\s+(\w+)", statement, re.S)
            constant = re.match(r"(?:inline )?constexpr [\w:<> ]+?(\w+)(?:\[\])?\s*(?:=.*)?$", statement, re.S)
            if match and (inside or statement.startswith("enum")):
                made.types[match[1]] = type_of(re.sub(r"^template\s*<.*?>\s", "", statement, flags=re.S), inside)
            elif constant and not function_name(statement):
                made.constants.add(constant[1])
            elif function := function_name(statement):
                made.functions.add(function)
    return made
