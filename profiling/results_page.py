#!/usr/bin/env python3
"""Makes profiling/results/README.md from the folders beside it, each of which profiling/gpu_check.sh --from --out wrote, and
the block of docs/gpu.md that says which claims a GPU has confirmed."""

import argparse
import collections
import os
import pathlib
import sys

from page import claims
from page.run import Run, table

PROJECT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = PROJECT / "profiling" / "results"
MOST_BYTES = 200_000  # of a file of results
# The block of docs/gpu.md is what stands between these lines.
BEGIN = "<!-- From here on profiling/results_page.py writes, from the folders of profiling/results. -->"
END = "<!-- Here ends what profiling/results_page.py writes. -->"

INTRODUCTION = """# What a GPU answered

One folder per run on a GPU machine, named by date, device and plan. `profiling/gpu_check.sh --from PACK --out FOLDER` writes
them, and `profiling/results_page.py` makes this page from them. Nothing here is written by hand but the
notes of `meta.json`, which say what else was changed.

`figures/` has the reports of commands on CPUs, each with its command, machine, commit and date, from which `profiling/figures.py`
writes the figures of the pages. "transcribed" says that the report itself is gone, and how its figures came here.

| file | what it holds |
|---|---|
| `meta.json` | device, driver, toolkit, commit, date and plan, and perhaps a note |
| `summary.txt` | a line for each event, with the seconds since the start of the run; every test that did not pass, and why |
| `results.json` | what was measured: rows of `graphsink-bench`, `torch_bench.py`, `launch_baseline`, `endurance` and others |
| `tests*.json` | the outcome of each test and its milliseconds, for each suite; "FAILED, alone ok" failed behind other tests only |
| `golden.txt` | the answers of the CUDA runtime to the conformance suite (`tests/conformance`) |
| `products.txt` | what cuBLASLt suggests for each product of the workloads, and what each suggestion takes |
| `kernels.txt` | the kernels of a step, by Nsight Compute |
| `again.txt` | of the first run: what failed, run again one test per process, with the driver's error log |
"""


def page(runs: list[Run]) -> str:
    rows = []
    for run in runs:
        counts = sum((run.counts(suite) for suite in run.suites), collections.Counter())
        disagreements = next((line for line in run.conformance() if "disagreements" in line), "")
        rows.append([f"[{run.name}](#{run.name})", run.meta["device"], f"{run.meta['driver']}, CUDA {run.meta.get('toolkit', '')}", run.meta["commit"][:7],
                     run.meta["date"], run.meta["plan"], f"{counts['ok']} passed, {counts['failed'] + counts['failed, alone ok']} failed",
                     disagreements.split(" with")[0]])
    lines = [INTRODUCTION, *table(["run", "device", "driver, toolkit", "commit", "date", "plan", "tests", "conformance"], rows, left=8)]
    for run in runs:
        lines += ["", *run.section()]
    return "\n".join(lines) + "\n"


def with_block(text: str, block: str) -> str | None:
    """A text whose block between the two markers is this one, or nothing if the text has no markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{block}\n{END}{after}" if begin and end else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="exit: 0, 1 if --check finds a difference or a file is too large, 2 wrong usage")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="folder with the folders of results (default: profiling/results)")
    parser.add_argument("--page", type=pathlib.Path, help="file with the block to write (default: docs/gpu.md, and none if --results is given)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail unless the page and the block are what they should be")
    options = parser.parse_args()
    with_claims = options.page or (PROJECT / "docs" / "gpu.md" if options.results == RESULTS else None)
    folders = sorted(folder for folder in options.results.iterdir() if (folder / "meta.json").is_file())
    for file in sorted(file for folder in folders for file in folder.iterdir()):
        if file.stat().st_size > MOST_BYTES:
            print(f"{file} has more than {MOST_BYTES} bytes: shorten it, or leave it out", file=sys.stderr)
            return 1
    runs = sorted((Run(folder) for folder in folders), key=lambda run: run.meta["date"], reverse=True)
    made = {options.results / "README.md": page(runs)}
    if with_claims:
        path = os.path.relpath(options.results / "README.md", with_claims.parent)
        made[with_claims] = with_block(with_claims.read_text(), claims.block(runs, path))
        if made[with_claims] is None:
            print(f"{with_claims} lacks the lines between which the block stands: {BEGIN} and {END}", file=sys.stderr)
            return 2
    for file, text in made.items():
        if not options.check:
            file.write_text(text)
        elif not file.is_file() or file.read_text() != text:
            print(f"{file} is not up to date; remedy: profiling/results_page.py", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
