#!/usr/bin/env python3
"""Draws the CUDA calls of one training step, op by op and sunk, from a trace of the software CUDA device.

usage: step_picture.py build/emulated/bin/docs_cuda_step docs/step.svg           draws it
       step_picture.py build/emulated/bin/docs_cuda_step docs/step.svg --check   exit 1 if the file is another picture

The program (docs/snippets/cuda_step.cpp) is run with GS_EMU_TRACE=1. The picture has the calls that give the device work, in
their order, and below them the kernels that they start. Widths say nothing about times: the software device has none.
"""

import collections
import os
import pathlib
import re
import subprocess
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, LANE, GAP = 960, 80, 34, 14
CALL = re.compile(r"cuda emulator: (\w+) = 0")
COUNTS = re.compile(r"(\d+) kernels op by op, (\d+) sunk")
# Calls that give the device work, and what they start. Others ask something, or wait.
WORK = {"cudaLaunchKernelExC": "kernel", "cublasLtMatmul": "matmul", "cudaMemcpyAsync": "copy", "cudaGraphLaunch": "graph"}
# Readable on a light page and on a dark one.
STYLE = """text{font:13px sans-serif;fill:#6e7781}.title{font-weight:bold}.call{fill:#b4632a}.op{fill:#3b6ea5}
.in{fill:#fff;text-anchor:middle;font-size:11px}.lane{text-anchor:end}.free{fill:none;stroke:#8b949e;stroke-dasharray:3 3}
.to{stroke:#8b949e;fill:none}.middle{text-anchor:middle}"""


def trace_of(program):
    """The calls of the step op by op, those of the sunk step, and how many kernels each starts."""
    environment = {**os.environ, "GS_EMU_TRACE": "1", "GS_EMU_SEED": "0", "GS_EMU_DEVICES": "1", "GS_EMU_COMPILER": "", "GRAPHSINK_NVRTC": ""}
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=120, env=environment)
    parts, name = collections.defaultdict(list), None
    for line in done.stderr.splitlines():
        if line.startswith("-- "):
            name = line[3:]
        elif call := CALL.fullmatch(line):
            parts[name].append(call[1])
    steps = [[call for call in parts[name] if call in WORK] for name in ("op by op", "sunk")]
    return steps, [int(count) for count in COUNTS.search(done.stdout).groups()]


def box(kind, x, y, width, text="", title=""):
    label = f'<text class="in" x="{x + width / 2:.1f}" y="{y + 21}">{escape(text)}</text>' if text else ""
    return (f'<g><title>{escape(title or text)}</title><rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LANE}" rx="3"/>'
            f"{label}</g>")


def heading(y, title, calls, kernels):
    host, device = y + 24, y + 24 + LANE + GAP
    text = f"{title}: {len(calls)} call{'s' if len(calls) > 1 else ''} for {kernels} kernels"
    return [f'<text class="title" x="{LEFT}" y="{y + 14}">{escape(text)}</text>', f'<text class="lane" x="{LEFT - 8}" y="{host + 21}">host</text>',
            f'<text class="lane" x="{LEFT - 8}" y="{device + 21}">device</text>'], host, device


def op_by_op(y, calls, kernels, pitch):
    parts, host, device = heading(y, "Op by op", calls, kernels)
    for number, call in enumerate(calls):
        x = LEFT + number * pitch
        parts.append(box("call", x, host, pitch - 4, "launch", call))
        parts.append(f'<path class="to" d="M{x + pitch - 4:.1f} {host + LANE / 2} h2 V{device + LANE / 2} h6"/>')
        parts.append(box("op", x + pitch + 4, device, pitch * 0.72, WORK[call], call))
    return parts, device + LANE


def sunk(y, calls, kinds, kernels, pitch):
    parts, host, device = heading(y, "Sunk", calls, kernels)
    width = pitch * 2
    parts.append(box("call", LEFT, host, width - 4, calls[0]))
    parts.append(f'<path class="to" d="M{LEFT + width - 4:.1f} {host + LANE / 2} h2 V{device + LANE / 2} h6"/>')
    x, each = LEFT + width + 4, pitch * 0.72
    for number in range(kernels):
        parts.append(box("op", x + number * (each + 2), device, each, kinds[number] if len(kinds) == kernels else ""))
    end = x + kernels * (each + 2)
    parts.append(f'<rect class="free" x="{x}" y="{host}" width="{end - x - 2:.1f}" height="{LANE}" rx="3"/>')
    parts.append(f'<text class="middle" x="{(x + end) / 2:.1f}" y="{host + 21}">the host is free</text>')
    return parts, device + LANE


def svg(steps, kernels):
    pitch = (WIDTH - LEFT - 10) / (len(steps[0]) + 1)
    first, y = op_by_op(4, steps[0], kernels[0], pitch)
    second, y = sunk(y + 22, steps[1], [WORK[call] for call in steps[0]], kernels[1], pitch)
    y += 26
    note = "One training step of a network of two layers. From a trace of CUDA calls: widths are no times."
    text = "\n".join([*first, *second, f'<text x="{LEFT}" y="{y}">{escape(note)}</text>'])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 10}" viewBox="0 0 {WIDTH} {y + 10}" role="img" '
            f'aria-label="{escape(note)}">\n<style>{STYLE}</style>\n{text}\n</svg>\n')


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--check"]):
        is_help = len(sys.argv) == 2 and sys.argv[1] in ("-h", "--help")
        print(__doc__, file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    steps, kernels = trace_of(sys.argv[1])
    picture, text = pathlib.Path(sys.argv[2]), svg(steps, kernels)
    for calls, count in zip(steps, kernels):
        print(f"{count} kernels by {dict(collections.Counter(calls))}")
    if not sys.argv[3:]:
        picture.write_text(text, encoding="utf-8")
    elif picture.read_text(encoding="utf-8") != text:
        print(f"{picture} is another picture; remedy: profiling/step_picture.py {sys.argv[1]} {picture}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
