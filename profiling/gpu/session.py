"""One call of a plan: its time, its commands, and what it writes down as it goes."""

import dataclasses
import datetime
import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

TIMED_OUT = -1000  # no exit status and no signal
NOT_RUN = None
TOOL_FOLDERS = ["/usr/local/cuda/bin", "/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*", "/opt/nvidia/nsight-systems/*/bin"]


@dataclasses.dataclass
class Ended:
    """How a command ended: `code` is its exit status, minus a signal, TIMED_OUT or, if it was never started, NOT_RUN."""

    code: int | None
    text: str = ""
    seconds: float = 0.0
    stalled: bool = False  # it was killed because it printed nothing for too long

    @property
    def passed(self) -> bool:
        return self.code == 0


class Skipped(Exception):
    """An item that cannot run on this machine, with the reason."""


class CutOff(BaseException):
    """The call was told to end (SIGTERM, SIGINT). It is no Exception, so that no item catches it."""


class Session:
    """Runs commands until the time of the call is over, and keeps the folder of results complete at every moment.

    Written to `out`: summary.txt (a line for each event), results.json (what was measured), tests*.json (the outcome of
    each test), meta.json (which machine, which plan). Logs of all commands go to a folder beside it, `out`.logs, which
    becomes `out`.logs.tar.gz at the end. Paths of this machine are taken out of everything in `out`.
    """

    def __init__(self, pack: pathlib.Path, out: pathlib.Path, plan: str, minutes: float, jobs: int):
        self.start = time.monotonic()
        self.pack, self.out, self.plan, self.jobs = pack, out, plan, jobs
        self.bin, self.sources = pack / "bin", pack / "src"
        self.deadline = self.start + 60 * minutes
        self.about_pack = json.loads((pack / "pack.json").read_text())
        self.is_emulated = self.about_pack["flavour"] != "cuda"
        self.logs = out.parent / f"{out.name}.logs"
        out.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.lock = threading.RLock()
        self.lines: list[str] = []
        self.results: dict = {}
        self.items: dict[str, dict] = {}
        self.tests: dict[str, dict[str, dict]] = {}  # by suite, then by PROGRAM:TEST: {"outcome": .., "ms": ..}
        self.earlier: dict[str, str] = {}  # outcomes of tests in the RESULTS of --resume
        self.earlier_ms: dict[str, float] = {}
        self.meta = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "plan": plan,
            "minutes": minutes,
            "commit": self.about_pack["commit"],
            "flavour": self.about_pack["flavour"],
            "architectures": self.about_pack["architectures"],
        }
        # Tools of CUDA are often installed and in no PATH.
        folders = [folder for pattern in TOOL_FOLDERS for folder in sorted(glob.glob(pattern), reverse=True)]
        os.environ["PATH"] = ":".join([os.environ.get("PATH", "/usr/bin:/bin"), *folders])
        # What the programs of the pack see: the driver's log, the carried sources and data, a cache of kernels.
        self.env = dict(os.environ, CUDA_LOG_FILE="stderr", CUDA_CACHE_DISABLE="0", GRAPHSINK_SOURCE_DIR=str(self.sources),
                        GRAPHSINK_KERNEL_CACHE=str(pack / "kernels"))
        self.env.pop("GRAPHSINK_DATA", None)
        if (pack / "data").is_dir():
            self.env["GRAPHSINK_DATA"] = str(pack / "data")
        self.env["LD_LIBRARY_PATH"] = str(pack / "lib")
        self.problems: list[str] = []  # commands that failed, other than tests
        self.running: set[int] = set()  # process groups that have to end with this call
        self._hidden = self._paths_to_hide()

    # --- time and text

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def _paths_to_hide(self) -> list[tuple[str, str]]:
        """Folders of this machine and what is written in their place, the longest first."""
        folders = {str(self.pack): "PACK", str(self.logs): "LOGS", str(self.out): "OUT", str(self.out.parent): "OUTSIDE",
                   os.getcwd(): "FOLDER", sys.prefix: "PYTHON", tempfile.gettempdir(): "TMP", os.path.expanduser("~"): "HOME"}
        folders |= {os.path.realpath(folder): word for folder, word in folders.items()}
        built_in = self.about_pack.get("built_in")  # where the pack was built; compiled into its programs
        if built_in:
            folders[built_in.rstrip("/") + "/"] = ""
        useful = {folder: word for folder, word in folders.items() if len(folder) > 1 and folder not in ("/usr", "/usr/local")}
        return sorted(useful.items(), key=lambda pair: -len(pair[0]))

    def hide(self, text: str) -> str:
        for folder, word in self._hidden:
            text = text.replace(folder, word)
        return text

    def say(self, text: str) -> None:
        line = f"[{self.elapsed():6.1f}] {self.hide(text)}"
        with self.lock:
            self.lines.append(line)
            try:
                print(line, flush=True)
            except OSError:  # nobody reads any more; the file still gets it
                pass
            self._write("summary.txt", "\n".join(self.lines) + "\n")

    def say_all(self, lines: list[str], width: int = 220) -> None:
        for line in lines:
            self.say("    " + line.rstrip()[:width])

    def say_end_of(self, text: str, lines: int = 8) -> None:
        self.say_all(text.strip().splitlines()[-lines:])

    # --- what is kept

    def _write(self, name: str, text: str) -> None:
        """Replaces a file of the results as a whole, so that it can be read whenever this process is killed."""
        unfinished = self.out / f".{name}.unfinished"
        unfinished.write_text(text)
        unfinished.replace(self.out / name)

    def save(self) -> None:
        with self.lock:
            self._write("meta.json", json.dumps(self.meta, indent=1) + "\n")
            results = {"items": self.items, "problems": self.problems, **self.results}
            self._write("results.json", self.hide(json.dumps(results, separators=(",", ":"))).replace('},{"', '},\n{"') + "\n")
            for suite, tests in self.tests.items():
                rows = [f"{json.dumps(name)}: {json.dumps(test)}" for name, test in sorted(tests.items())]
                self._write(f"{suite}.json", "{\n" + ",\n".join(rows) + "\n}\n")

    def keep(self, name: str, value) -> None:
        with self.lock:
            self.results[name] = value
        self.save()

    def keep_text(self, name: str, text: str) -> None:
        """A file of the results with this text."""
        with self.lock:
            self._write(name, self.hide(text))

    # --- commands

    def run(self, name: str, limit: float, command: list, env: dict | None = None, quiet: bool = False,
            stall: float | None = None, may_fail: bool = False) -> Ended:
        """Runs a command for at most `limit` seconds, or until it has printed nothing for `stall` seconds; its output goes
        to the log of this name. Says how it ended; if `quiet`, only when it did not pass. Unless it `may_fail`, a failure is
        a problem of the whole call."""
        limit = min(limit, self.left() - 3)
        if limit < 2:
            self.say(f"{name}: NOT RUN, the time is over")
            return Ended(NOT_RUN)
        begun, log_file, stalled = time.monotonic(), self.logs / f"{name}.log", False
        with open(log_file, "w") as log:
            try:
                process = subprocess.Popen([str(c) for c in command], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                           env=self.env if env is None else env, start_new_session=True)
            except OSError as e:
                self.say(f"{name}: CANNOT BE STARTED: {e.strerror}")
                self.problems.append(f"{name}: cannot be started")
                return Ended(127)
            with self.lock:
                self.running.add(process.pid)
            try:
                code = self._wait(process, begun + limit, stall, log_file)
                if code is None:
                    stalled, code = stall is not None and time.monotonic() < begun + limit, TIMED_OUT
            finally:
                self._kill(process.pid)  # also what it started and left behind
                process.wait()
        ended = Ended(code, log_file.read_text(errors="replace"), time.monotonic() - begun, stalled)
        silent = f", silent for {stall:.0f} s" if stalled else ""
        word = "ok" if code == 0 else f"TIMED OUT{silent}" if code == TIMED_OUT else f"FAILED, code {code}"
        if not quiet or code != 0:
            self.say(f"{name}: {word}, {ended.seconds:.1f} s")
        if code != 0 and not may_fail and not self.was_cut_off(ended):
            self.problems.append(f"{name}: {word}")
        return ended

    def _wait(self, process: subprocess.Popen, deadline: float, stall: float | None, log_file: pathlib.Path) -> int | None:
        """The exit status, or None if the process has to be killed."""
        size, grew = 0, time.monotonic()
        while True:
            now = time.monotonic()
            if stall is not None and (bigger := log_file.stat().st_size) != size:
                size, grew = bigger, now
            end = deadline if stall is None else min(deadline, grew + stall)
            if now >= end:
                return None
            try:
                return process.wait(min(end - now, 1.0 if stall is not None else end - now))
            except subprocess.TimeoutExpired:
                continue

    def _kill(self, group: int) -> None:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        with self.lock:
            self.running.discard(group)

    def stop(self) -> None:
        """Ends all commands now; no other one begins."""
        self.deadline = time.monotonic()
        for group in list(self.running):
            self._kill(group)

    def start_beside(self, name: str, command: list) -> None:
        """Starts a process that runs until this call ends."""
        with open(self.logs / f"{name}.log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        with self.lock:
            self.running.add(process.pid)

    def was_cut_off(self, ended: Ended) -> bool:
        """Whether the end of the call ended the command, so that what it was doing is not to blame."""
        return ended.code is NOT_RUN or (not ended.stalled and self.left() < 5)

    def has_tool(self, tool: str) -> bool:
        return shutil.which(tool) is not None

    def finish(self) -> None:
        """Ends what still runs, and packs the logs."""
        self.stop()
        self.save()
        with tarfile.open(self.out.parent / f"{self.out.name}.logs.tar.gz", "w:gz", compresslevel=4) as tar:
            tar.add(self.logs, f"{self.out.name}.logs")
        shutil.rmtree(self.logs, ignore_errors=True)
