#!/usr/bin/env python3
"""Draws who worked when while batches were loaded: synchronously, beside the launches, and by several workers.

usage: loading_timeline.py REPORT.json OUT.svg

REPORT.json is written by `loading --json`, or by `mpirun -n 2 loading --ranks --json`, which has the lanes of each rank. A
span is what a thread prepared of the batches of one launch, that launch on the device, or the exchange of gradients of one of
its steps; spans of one launch have one colour and its number.
"""

import json
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, LANE, GAP, HEAD = 960, 130, 26, 6, 30
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#edc948", "#9c755f")


def from_zero(timeline):
    """The same, beginning with the first span at 0."""
    first = min(span["begin_us"] for lane in timeline["lanes"] for span in lane["spans"])
    lanes = [{**lane, "spans": [{**span, "begin_us": span["begin_us"] - first, "end_us": span["end_us"] - first}
                                for span in lane["spans"]]} for lane in timeline["lanes"]]
    return {**timeline, "lanes": lanes}


def end_of(timeline):
    return max(span["end_us"] for lane in timeline["lanes"] for span in lane["spans"] if lane["name"].endswith("device"))


def lane_svg(lane, y, scale, end):
    parts = [f'<text x="{LEFT - 8}" y="{y + LANE * 0.68:.1f}" text-anchor="end">{escape(lane["name"])}</text>']
    for span in lane["spans"]:
        if span["begin_us"] >= end:
            continue
        x, width = LEFT + span["begin_us"] * scale, (min(span["end_us"], end) - span["begin_us"]) * scale
        number = span["launch"]
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{LANE}" rx="2" '
                     f'fill="{COLOURS[number % len(COLOURS)]}"><title>launch {number}: {span["begin_us"]:.0f} to '
                     f'{span["end_us"]:.0f} us</title></rect>')
        if width > 14:
            parts.append(f'<text class="in" x="{x + width / 2:.1f}" y="{y + LANE * 0.68:.1f}">{number}</text>')
    return parts


def svg(report):
    """All timelines below each other, in one scale, so that their lengths can be compared."""
    timelines = [from_zero(timeline) for timeline in report["timelines"]]
    scale = (WIDTH - LEFT - 10) / max(end_of(timeline) for timeline in timelines)
    parts, y = [], 6
    for timeline in timelines:
        end = end_of(timeline)
        launches = 1 + max(span["launch"] for span in timeline["lanes"][-1]["spans"])
        title = (f'{timeline["loading"]}: {launches} launches of {timeline["steps_per_launch"]} steps in {end / 1000:.2f} ms')
        parts.append(f'<text class="title" x="{LEFT}" y="{y + 18}">{escape(title)}</text>')
        y += HEAD
        for lane in timeline["lanes"]:
            parts += lane_svg(lane, y, scale, end)
            y += LANE + GAP
        y += 12
    style = ("text{font:13px sans-serif;fill:#222}.title{font-weight:bold}.in{fill:#fff;text-anchor:middle}"
             "svg{background:#fff}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
            f"<style>{style}</style>\n" + "\n".join(parts) + "\n</svg>\n")


def main():
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, file=sys.stderr if len(sys.argv) != 2 else sys.stdout)
        return 0 if len(sys.argv) == 2 and sys.argv[1] in ("-h", "--help") else 2
    report = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    pathlib.Path(sys.argv[2]).write_text(svg(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
