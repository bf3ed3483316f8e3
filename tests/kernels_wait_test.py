#!/usr/bin/env python3
"""Each kernel of the library begins with wait_for_inputs(): one that does not must not be launched programmatically."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNEL = re.compile(r'__global__\s+void\b')
WAIT = re.compile(r'\s*wait_for_inputs\(\);')


def plain(text):
    """Without comments. The kernels in fused_source.cu are text that is put together, and get a name."""
    return re.sub(r'//[^\n]*', '', text).replace('" + kernel_name() + R"(', 'fused')


def end_of_parentheses(text, begin):
    depth = 0
    for at in range(begin, len(text)):
        depth += {'(': 1, ')': -1}.get(text[at], 0)
        if depth == 0 and text[at] == ')':
            return at + 1
    raise ValueError('no closing parenthesis')


def kernels(text):
    """(position, body) of each kernel that has a body here."""
    for found in KERNEL.finditer(text):
        after = text[found.end():]
        begin = after.find('(')
        if after[:begin].strip() == '__launch_bounds__':
            begin = after.find('(', end_of_parentheses(after, begin))
        rest = after[end_of_parentheses(after, begin):].lstrip()
        if rest.startswith('{'):
            yield found.start(), rest[1:]


def main():
    files = [path for folder in ('kernels', 'src') for path in sorted((ROOT / folder).rglob('*'))
             if path.suffix in ('.cu', '.h', '.cpp')]
    count = failed = 0
    for path in files:
        text = plain(path.read_text())
        for position, body in kernels(text):
            count += 1
            if WAIT.match(body):
                continue
            failed += 1
            print(f'{path.relative_to(ROOT)}:{text.count(chr(10), 0, position) + 1}: this kernel does not begin with '
                  'wait_for_inputs()')
    print(f'{count} kernels, {failed} that do not wait')
    return 1 if failed or count == 0 else 0


sys.exit(main())
