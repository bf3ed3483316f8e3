#!/usr/bin/env python3
"""Turns CUDA C++ as nvcc takes it into C++ for the software device.

usage: plain_cuda.py INPUT OUTPUT

Two things are not C++, and a kernel's address alone does not tell its parameters. All three are replaced in place, so that
every line of the output is the line of the input:

  kernel<<<grid, block, shared, stream>>>(a, b)   EMU_KERNEL(kernel)(grid, block, shared, stream)(a, b)
  extern __shared__ float tile[];                 float* const tile = static_cast<float*>(::emu::dynamic_shared());
  (void*)kernel                                   (void*)::emu::known(kernel)
  reinterpret_cast<void*>(kernel)                 reinterpret_cast<void*>(::emu::known(kernel))

The output begins with a #line directive that names INPUT, so compilers and debuggers show the file that was written by
hand. Comments, strings, character constants and preprocessor directives stay as they are, except that launches in the
body of a macro are replaced too. What simt.h defines is not touched.

exit status: 0; 1 after a message "INPUT:LINE: error: ..."; 2 for wrong arguments
"""

import pathlib
import re
import sys

PAIRS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = {close: open_ for open_, close in PAIRS.items()}
# What stands before a parenthesis of a statement, and all words that end the search for the name of a kernel.
STATEMENTS = {"if", "while", "for", "switch", "constexpr"}
KEYWORDS = STATEMENTS | {"return", "else", "do", "case", "throw", "co_return"}

# What may hold <<< or quotes without meaning: comments, raw strings, strings, numbers with separators, characters.
OPAQUE = re.compile(
    r"""//(?:\\\r?\n|[^\n])*
      | /\*.*?(?:\*/|\Z)
      | \b(?:u8|[uUL])?R"(?P<raw>[^()\\\s]{0,16})\(.*?(?:\)(?P=raw)"|\Z)
      | "(?:\\.|[^"\\\n])*"
      | \b[0-9](?:'?[0-9A-Za-z_.])*
      | '(?:\\.|[^'\\\n])+'""",
    re.DOTALL | re.VERBOSE,
)
DYNAMIC_SHARED = re.compile(
    r"\b(?:extern\s+__shared__|__shared__\s+extern)\s+(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?"
    r"(?P<type>[A-Za-z_:][\w:<>,\s]*?)\s*\b(?P<name>[A-Za-z_]\w*)\s*\[\s*\]\s*;"
)
# A name, with template arguments that hold no parentheses, whose address becomes a void*. The cast is not the list of
# parameters of a function: what follows the name ends an expression.
NAME = r"(?P<name>&?\s*(?:::)?\s*[A-Za-z_][\w:]*(?:\s*<[^<>;(){}]*>)?)"
C_CAST = re.compile(r"\(\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*\)\s*" + NAME + r"(?=\s*[,;)}])")
NAMED_CAST = re.compile(r"\breinterpret_cast\s*<\s*(?:const\s+)?void\s*(?:const\s*)?\*\s*>\s*\(\s*" + NAME + r"\s*\)")


class SourceError(Exception):
    def __init__(self, position, message):
        super().__init__(message)
        self.position = position


def blank(match):
    """The same number of characters without their meaning; lines stay. Names in numbers must not become identifiers."""
    text = match.group()
    filler = "0" if text[0].isdigit() else ("\x01" if text[0] in "\"'" or "R\"" in text[:4] else " ")
    return re.sub(r"[^\n]", filler, text)


def skip_spaces_back(code, at):
    while at > 0 and code[at - 1].isspace():
        at -= 1
    return at


def word_before(code, end):
    start = end
    while start > 0 and (code[start - 1].isalnum() or code[start - 1] == "_"):
        start -= 1
    return start, code[start:end]


def opening_of(code, at):
    """Position of the bracket that the one at `at` closes. Between < and >, other brackets are stepped over."""
    end, close = at, code[at]
    depth = 0
    while at >= 0:
        char = code[at]
        if close == ">":
            if char in CLOSERS:
                at = opening_of(code, at)
            elif char in ";{":
                break
            elif char == ">" and code[at - 1 : at] != "-":
                depth += 1
            elif char == "<":
                depth -= 1
        else:
            depth += (char in CLOSERS) - (char in PAIRS)
        if depth == 0:
            if PAIRS.get(char, ">") == close:
                return at
            break
        at -= 1
    raise SourceError(end, f"the {close} in the name of this kernel has no opening bracket")


def kernel_start(code, launch):
    """Where the kernel that stands before the <<< begins. It is a name, qualified or not, or an expression that ends in a
    call, an element or a parenthesis."""
    end = launch
    start = None
    while True:
        end = skip_spaces_back(code, end)
        while end > 0 and code[end - 1] in ")]>":
            opening = opening_of(code, end - 1)
            before = skip_spaces_back(code, opening)
            if word_before(code, before)[1] in STATEMENTS and start is not None:
                return start  # if (condition) (kernel)<<<...>>>()
            start, end = opening, before
        first, word = word_before(code, end)
        if not word or word in KEYWORDS:
            if start is None:
                raise SourceError(launch, "<<< has no kernel before it")
            return start
        start = first
        end = skip_spaces_back(code, start)
        if word_before(code, end)[1] == "template":
            end = skip_spaces_back(code, end - len("template"))
        if code.endswith("::", 0, end):
            start = end - 2
            end = skip_spaces_back(code, start)
            word = word_before(code, end)[1]
            if code[end - 1 : end] != ">" and (not word or word in KEYWORDS):
                return start  # ::kernel
        elif code.endswith("->", 0, end):
            end -= 2
        elif code.endswith(".", 0, end):
            end -= 1
        else:
            return start


def launch_end(code, launch):
    """Position of the >>> that ends the launch configuration that begins at `launch`."""
    stack = []
    i = launch + 3
    while i < len(code):
        char = code[i]
        if char in PAIRS:
            stack.append(PAIRS[char])
        elif char in CLOSERS:
            if not stack or stack.pop() != char:
                break
        elif char == ";" and not stack:
            break
        elif char == ">" and not stack:
            run = len(code[i:]) - len(code[i:].lstrip(">"))
            if run >= 3:
                # Of a longer run the first ones close templates: k<<<size<pair<1>>>>>(x).
                if not re.match(r"[\s\\]*\(", code[i + run :]):
                    raise SourceError(i, ">>> must be followed by the kernel's arguments in parentheses")
                return i + run - 3
            i += run - 1
        i += 1
    raise SourceError(launch, "<<< has no matching >>>")


def is_operand(code, at):
    """Whether what begins at `at` stands where an expression may begin, rather than behind a name or an operand."""
    before = skip_spaces_back(code, at)
    word = word_before(code, before)[1]
    return word in KEYWORDS or not (word or code[before - 1 : before] in {")", "]", ">"})


def addresses(code):
    """Where a name becomes a void*: the beginning and the end of the name."""
    for match in C_CAST.finditer(code):
        if is_operand(code, match.start()):
            yield match.span("name")
    for match in NAMED_CAST.finditer(code):
        yield match.span("name")


def translate(text):
    """The text as C++. Raises SourceError."""
    code = OPAQUE.sub(blank, text)
    edits = []  # (position, length, replacement)
    for launch in (match.start() for match in re.finditer("<<<", code)):
        if word_before(code, skip_spaces_back(code, launch))[1] == "operator":
            continue
        start = kernel_start(code, launch)
        end = launch_end(code, launch)
        edits += [(start, 0, "EMU_KERNEL("), (launch, 3, ")("), (end, 3, ")")]
    for start, end in addresses(code):
        edits += [(start, 0, "::emu::known("), (end, 0, ")")]
    for match in DYNAMIC_SHARED.finditer(code):
        kind, name = " ".join(match.group("type").split()), match.group("name")
        made = f"{kind}* const {name} = static_cast<{kind}*>(::emu::dynamic_shared());"
        edits.append((match.start(), len(match.group()), made + "\n" * match.group().count("\n")))
    for position, length, replacement in sorted(edits, reverse=True):
        text = text[:position] + replacement + text[position + length :]
    return text


def main(arguments):
    if len(arguments) != 2 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    source, target = map(pathlib.Path, arguments)
    try:
        text = source.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        print(f"{source}: error: {error.strerror}", file=sys.stderr)
        return 1
    try:
        made = translate(text)
    except SourceError as error:
        line = text.count("\n", 0, error.position) + 1
        print(f"{source}:{line}: error: {error}", file=sys.stderr)
        return 1
    name = str(source).replace("\\", "\\\\").replace('"', '\\"')
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(f'#line 1 "{name}"\n{made}'.encode("utf-8", "surrogateescape"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
