#!/usr/bin/env python3
"""graphsink-bench: the fields of its report, equal results in all modes, counts of launches and kernels.

usage: bench_test.py BIN_DIR [WORKLOAD...]    all of them, unless some are named
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM = "graphsink-bench"
WORKLOADS = ["chain", "wide", "mlp", "charmlp", "lstm", "lstm-scan", "gpt", "hetero", "jacobi", "branch", "dynamic", "nonzero", "generate"]
CONDITIONAL_NODES = {"lstm-scan": 4, "jacobi": 1, "branch": 2, "generate": 1}  # of a step; the others have no loop and no branch
# Each of their steps has one of several shapes, which are captured when that pays: some steps are launches.
SHAPES = {"dynamic": 4, "nonzero": 4}
MODES = ["interactive-serial", "interactive-parallel", "sink", "automatic"]
HETERO_MODES = MODES[:2] + ["split-serial", "split-parallel", "sink", "split-sink", "automatic"]  # of two devices
NUMBERS = """steps steps_per_launch compile_us api_calls_per_step graph_launches_per_step kernels_per_step copies_per_step
    host_nodes_per_step islands streams_used recordings fallbacks sunk_share arena_bytes live_bytes loss_first
    loss_last""".split()
TIMES = ["step_us", "latency_us", "enqueue_us"]
OTHERS = ["workload", "mode", "device", "flavour", "data", "conditional_nodes", "iterations", "updates", "automatic", "loss_hash"]
FIELDS = set(NUMBERS + TIMES + OTHERS + ["state_hash"])


def bench(*arguments, size="test"):
    command = [PROGRAM, "--size", size, *map(str, arguments)]
    if "--workload" not in arguments and "--list" not in arguments:
        command += ["--workload", ",".join(WORKLOADS)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def report(*arguments, size="test", timed=False):
    return json.loads(bench(*arguments, *([] if timed else ["--untimed"]), "--json", "-", size=size))


def hashes(rows):
    return {row["workload"]: (row["loss_hash"], row["state_hash"]) for row in rows}


# These let Open MPI start as root, and more ranks than there are cores.
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


class RanksTest(unittest.TestCase):
    """graphsink-bench --ranks."""

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([PROGRAM, "--ranks", "--workload", "chain"], capture_output=True, text=True, check=False)
        if "this build has no ranks" in done.stderr:
            raise unittest.SkipTest("NOT CHECKED: the build has no ranks")
        if shutil.which("mpirun") is None:
            raise unittest.SkipTest("NOT CHECKED: there is no mpirun")
        if b"MPI_Init_thread" not in pathlib.Path(PROGRAM).read_bytes():
            raise unittest.SkipTest("NOT CHECKED: the build has ranks without MPI")
        cls.stand_in = pathlib.Path(PROGRAM).parent / "libnccl_standin.so"

    def ranks(self, number, *arguments, code=0):
        command = ["mpirun", "-n", str(number), PROGRAM, "--ranks", "--size", "test", *map(str, arguments)]
        environment = {**os.environ, **OPEN_MPI, "GRAPHSINK_NCCL": str(self.stand_in)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_times_of_each_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            table = self.ranks(2, "--device", "cpu", "--steps", 4, "--json", path).stdout
            found = json.loads(path.read_text())
        self.assertEqual((found["ranks"], found["exchange"]), (2, "host"))
        self.assertEqual([row["workload"] for row in found["rows"]], ["mlp", "gpt"])
        for row in found["rows"]:
            self.assertEqual(len(row["of_ranks"]), 2)
            self.assertGreater(row["bytes_per_step"], 0)
            self.assertRegex(row["state_hash"], "^[0-9a-f]{8}$")
            for each in row["of_ranks"]:
                self.assertGreater(each["step_us"]["median"], 0)
                self.assertGreater(each["without_us"]["median"], 0)
                self.assertTrue(0 < each["efficiency"]["min"] <= each["efficiency"]["median"] <= each["efficiency"]["max"])
            self.assertEqual(row["efficiency"], min(each["efficiency"]["median"] for each in row["of_ranks"]))
            for rank in range(2):  # one table, from one rank
                self.assertEqual(len(re.findall(rf"(?m)^{row['workload']} +{rank} ", table)), 1, table)

    def test_one_rank_has_no_collectives(self):
        report = json.loads(self.ranks(1, "--device", "cpu", "--workload", "mlp", "--steps", 2, "--json", "-").stdout)
        self.assertEqual((report["ranks"], report["rows"][0]["bytes_per_step"]), (1, 0))
        self.assertEqual(len(report["rows"][0]["of_ranks"]), 1)

    def test_nccl_keeps_a_step_in_its_launch(self):
        if not self.stand_in.exists():
            self.skipTest("NOT CHECKED: there is no stand-in for NCCL")
        hashes_of = {}
        for name, arguments in (("nccl", ["--nccl", "--bucket", 2048]), ("mpi", ["--device", "cuda:0"])):
            report = json.loads(self.ranks(2, "--workload", "mlp", "--steps", 4, "--untimed", *arguments, "--json", "-").stdout)
            (row,) = report["rows"]
            hashes_of[name] = row["state_hash"]
            self.assertEqual(row["host_nodes"] == 0, name == "nccl")
            self.assertEqual(row["streams"] > 1, name == "nccl", "collectives have a stream of their own")
            self.assertIsNone(row["step_us"])
        self.assertEqual(hashes_of["nccl"], hashes_of["mpi"])

    def test_timelines_of_loading(self):
        with tempfile.TemporaryDirectory() as folder:
            path, drawing = (pathlib.Path(folder) / name for name in ("report.json", "drawing.svg"))
            command = ["mpirun", "-n", "2", pathlib.Path(PROGRAM).with_name("loading"), "--ranks", "--steps-per-launch", "2", "--workers", "1", "--json", path]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **OPEN_MPI})
            self.assertEqual(done.returncode, 0, done.stderr)
            timelines = json.loads(path.read_text())["timelines"]
            self.assertEqual([timeline["loading"] for timeline in timelines], ["2 ranks, sync", "2 ranks, async, 1 worker"])
            for timeline in timelines:
                lanes = {lane["name"]: lane["spans"] for lane in timeline["lanes"]}
                for rank in range(2):
                    device, exchanges = lanes[f"rank {rank}: device"], lanes[f"rank {rank}: collective"]
                    self.assertEqual([span["launch"] for span in device], list(range(8)))
                    self.assertEqual([span["launch"] for span in exchanges], [step // 2 for step in range(16)])
                    for span in exchanges:  # a collective is a part of its launch
                        launch = device[span["launch"]]
                        self.assertTrue(launch["begin_us"] <= span["begin_us"] <= span["end_us"] <= launch["end_us"])
            draw = pathlib.Path(__file__).parent.parent / "profiling" / "loading_timeline.py"
            subprocess.run([sys.executable, draw, path, drawing], check=True)
            text = drawing.read_text()
            for rank in range(2):
                self.assertEqual(text.count(f">rank {rank}: collective<"), 2)

    def test_refuses(self):
        for arguments, problem in (
            (["--workload", "chain"], "ranks do not share it"),
            (["--mode", "sink,automatic"], "in one mode"),
            (["--no-fuse"], "--no-fuse excludes --ranks"),
            (["--explain", "text"], "--explain excludes --ranks"),
        ):
            done = subprocess.run([PROGRAM, "--ranks", *arguments], capture_output=True, text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(problem, done.stderr)


class BenchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.single = report("--steps", 20)
        cls.grouped = report("--steps", 20, "--steps-per-launch", 16, "--mode", "sink,interactive-serial,automatic")
        cls.is_cpu = cls.single["rows"][0]["device"] == "cpu"

    def rows(self, mode, of=None):
        return [row for row in (of or self.single)["rows"] if row["mode"] == mode]

    def test_machine(self):
        machine = self.single["machine"]
        for field in ("cpu", "cores", "memory_gib", "compiler", "blas", "flavour", "device", "fusion"):
            self.assertTrue(machine[field], field)
        self.assertIn("driver", machine)

    def test_every_workload_in_every_mode(self):
        def modes(workload):
            return MODES if self.is_cpu or workload != "hetero" else HETERO_MODES

        seen = [(row["workload"], row["mode"]) for row in self.single["rows"]]
        self.assertEqual(seen, [(workload, mode) for workload in WORKLOADS for mode in modes(workload)])

    def test_fields(self):
        for row in self.single["rows"] + self.grouped["rows"]:
            self.assertEqual(FIELDS - set(row), set())
            for field in NUMBERS:
                self.assertIsInstance(row[field], (int, float), field)
            for field in TIMES:
                self.assertIsNone(row[field])
            for field in ("loss_hash", "state_hash"):
                self.assertRegex(row[field], "^[0-9a-f]{8}$")

    def test_times(self):
        rows = report("--workload", "chain,mlp", "--steps", 20, timed=True)["rows"]
        self.assertEqual(len(rows), 2 * len(MODES))
        for row in rows:
            for field in TIMES:
                self.assertLessEqual(0, row[field]["min"])
                self.assertLessEqual(row[field]["min"], row[field]["median"])
                self.assertLessEqual(row[field]["median"], row[field]["max"])
            self.assertLess(0, row["step_us"]["min"])
        for name, values in hashes(rows).items():  # timing changes nothing
            self.assertEqual(values, hashes(self.rows("sink"))[name])

    def test_modes_agree(self):
        for mode in MODES[1:]:
            self.assertEqual(hashes(self.rows(mode)), hashes(self.rows(MODES[0])), mode)

    def test_work_of_the_host_is_part_of_the_launch(self):
        if "hetero" not in WORKLOADS:
            self.skipTest("hetero is not measured here")
        names = HETERO_MODES[:2] + ["merged-serial"] + HETERO_MODES[2:]
        rows = report("--workload", "hetero", "--steps", 20, "--crossings", 4, "--mode", ",".join(names))["rows"]
        self.assertEqual([row["mode"] for row in rows], MODES if self.is_cpu else names)
        self.assertEqual(len({(row["loss_hash"], row["state_hash"]) for row in rows}), 1)
        for row in rows:
            self.assertEqual(row["fallbacks"], 0)
            if not self.is_cpu:
                self.assertGreaterEqual(row["host_nodes_per_step"], 5, row["mode"])
                self.assertGreaterEqual(row["copies_per_step"], 3 + 4, row["mode"])
        # Four ops on the host, between five launches, of which one is divided so that an op runs beside its rest.
        launches = {"sink": 1, "automatic": 1, "split-sink": 5 + 1}
        for row in rows:
            self.assertEqual(row["graph_launches_per_step"], launches.get(row["mode"], 0), row["mode"])

    def test_crossing_cost(self):
        if self.is_cpu:
            self.skipTest("nothing crosses, and the program is not built")
        command = [PROGRAM.with_name("crossing_cost"), "--bytes", "64", "--round-trips", "2", "--json", "-"]
        rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)["rows"]
        launches = {"merged-serial": 0, "split-serial": 0, "sink": 1, "split-sink": 3}
        self.assertEqual({row["mode"]: row["graph_launches_per_step"] for row in rows}, launches)
        for row in rows:
            self.assertEqual((row["host_nodes_per_step"], row["copies_per_step"]), (2, 4), row["mode"])
            cost = (row["step_us"] - row["step_without_us"]) / 4
            self.assertAlmostEqual(row["us_per_crossing"], cost, msg=row["mode"])

    def test_shape_changes(self):
        command = [PROGRAM.with_name("shape_changes"), "--sizes", "20", "--kept", "4", "--repeats", "1,20", "--steps", "200",
                   "--windows", "1", "--json", "-"]
        rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)["rows"]
        self.assertEqual([row["mode"] for row in rows], ["interactive-serial", "sink", "automatic"] * 2)
        for row in rows:
            self.assertGreater(row["step_us"], 0)
            if row["mode"] == "interactive-serial":
                self.assertEqual((row["ratio"], row["launches"], row["captures"]), (1, 0, 0))
            if row["mode"] == "sink" and row["repeats"] == 20:
                self.assertGreaterEqual(row["launches"], 200 - 10 * 8, "each size is captured after 8 steps at the latest")

    def test_loading(self):
        with tempfile.TemporaryDirectory() as folder:
            path, drawing = pathlib.Path(folder, "report.json"), pathlib.Path(folder, "drawing.svg")
            command = [PROGRAM.with_name("loading"), "--steps-per-launch", "2,5", "--workers", "1,3", "--steps", "10",
                       "--windows", "1", "--json", path]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            found = json.loads(path.read_text())
            ways = ["resident", "sync", "async, 1 worker", "async, 3 workers"]
            self.assertEqual([(row["steps_per_launch"], row["loading"]) for row in found["rows"]],
                             [(steps, way) for steps in (2, 5) for way in ways])
            for row in found["rows"]:
                self.assertGreater(row["step_us"], 0)
                self.assertEqual("idle_share" in row, row["loading"] != "resident")
            self.assertEqual([timeline["loading"] for timeline in found["timelines"]], ways[1:])
            for timeline in found["timelines"]:
                device = timeline["lanes"][-1]
                self.assertEqual([span["launch"] for span in device["spans"]], list(range(8)))
                for launch in range(8):  # a launch runs when all of it was prepared
                    prepared = [span["end_us"] for lane in timeline["lanes"][:-1] for span in lane["spans"]
                                if span["launch"] == launch]
                    self.assertLessEqual(max(prepared), device["spans"][launch]["begin_us"])
            draw = pathlib.Path(__file__).parent.parent / "profiling" / "loading_timeline.py"
            subprocess.run([sys.executable, draw, path, drawing], check=True)
            rows = xml.etree.ElementTree.parse(drawing).getroot().findall("{http://www.w3.org/2000/svg}rect")
            self.assertGreaterEqual(len(rows), 3 * 2 * 8)

    def test_grouping_of_steps_changes_nothing(self):
        for mode in ("sink", "interactive-serial", "automatic"):
            self.assertEqual(hashes(self.rows(mode, self.grouped)), hashes(self.rows(mode)), mode)

    def test_a_second_process_agrees(self):
        again = report("--steps", 20, "--workload", "mlp,chain", "--mode", "sink")
        for name, values in hashes(again["rows"]).items():
            self.assertEqual(values, hashes(self.rows("sink"))[name])

    def test_hashes_tell_runs_apart(self):
        longer = hashes(report("--steps", 21, "--mode", "sink")["rows"])
        for name, (loss, state) in hashes(self.rows("sink")).items():
            self.assertNotEqual(loss, longer[name][0], name)
            self.assertNotEqual(state, longer[name][1], name)

    def conditional_nodes(self, workload):
        if workload == "lstm-scan" and not self.is_cpu:
            return 0  # of so few iterations that nothing is left of its loops
        return CONDITIONAL_NODES.get(workload, 0)

    def test_launches(self):
        for row in self.rows("sink"):
            if row["workload"] in SHAPES:
                self.assertTrue(0 <= row["graph_launches_per_step"] <= 1, row)
                self.assertLessEqual(row["recordings"], SHAPES[row["workload"]], "padded shapes, not lengths")
                continue
            self.assertEqual(row["graph_launches_per_step"], 1, row["workload"])
            self.assertEqual(row["api_calls_per_step"], 1, row["workload"])
            self.assertEqual(row["recordings"], 1)
            self.assertGreater(row["sunk_share"], 0.9)
            self.assertEqual(row["conditional_nodes"], self.conditional_nodes(row["workload"]), row["workload"])
        for row in self.rows("sink", self.grouped):  # 20 steps: 16 and a shorter one of 4
            if row["workload"] == "hetero" and not self.is_cpu:
                self.assertEqual(row["graph_launches_per_step"], 1, "a loop in a launch may not hold host nodes")
                continue
            if row["workload"] in SHAPES:
                own_input = row["workload"] == "dynamic"  # for each step
                self.assertEqual(row["steps_per_launch"], 1 if own_input else 16, row["workload"])
                continue
            self.assertEqual(row["graph_launches_per_step"], 2 / 20, row["workload"])
            self.assertEqual(row["conditional_nodes"], 1 + self.conditional_nodes(row["workload"]))
        for row in report("--steps", 16, "--steps-per-launch", 16, "--mode", "sink")["rows"]:
            if row["workload"] in SHAPES:
                continue
            in_one = self.is_cpu or row["workload"] != "hetero"
            self.assertEqual(row["graph_launches_per_step"], 1 / 16 if in_one else 1, row["workload"])
        for mode in MODES[:2]:
            for row in self.rows(mode):
                self.assertEqual((row["graph_launches_per_step"], row["sunk_share"]), (0, 0))
        for row in self.single["rows"] + self.grouped["rows"]:
            self.assertEqual(row["fallbacks"], 0, row["workload"])

    def test_automatic_says_what_it_measured(self):
        for row in self.single["rows"]:
            if row["mode"] != "automatic":
                self.assertIsNone(row["automatic"])
                continue
            said = row["automatic"]
            steps = {candidate["mode"]: candidate["steps"] for candidate in said["candidates"]}
            self.assertGreaterEqual(steps["interactive-serial"], 1, "the first step")
            if row["workload"] not in SHAPES:  # else the steps are those of the last shape
                self.assertGreaterEqual(sum(steps.values()), 23)
            self.assertGreater(said["seconds"], said["trial_seconds"])
            self.assertIn(said["chosen"], steps)

    def test_one_by_one_every_node_is_a_call(self):
        for row in self.rows("interactive-serial"):
            self.assertGreaterEqual(row["api_calls_per_step"], row["kernels_per_step"])

    def test_kernels_of_a_chain_are_its_nodes(self):
        # A CUDA device needs one more for each launch: it hands over the launch's parameters.
        own = 0 if self.is_cpu else 1
        for nodes in (50, 1000):
            for row in report("--workload", "chain", "--nodes", nodes, "--steps", 4)["rows"]:
                self.assertEqual(row["kernels_per_step"], nodes + own, row["mode"])

    def test_arena(self):
        for row in self.single["rows"]:
            self.assertGreater(row["live_bytes"], 0)
            self.assertLessEqual(row["arena_bytes"], 1.05 * row["live_bytes"], row["workload"])

    def test_arena_at_full_size(self):
        if self.single["machine"]["flavour"] == "emulated":
            self.skipTest("full size takes too long on the software device")
        for row in report("--steps", 1, "--mode", "sink", size="full")["rows"]:
            self.assertLessEqual(row["arena_bytes"], 1.05 * row["live_bytes"], row["workload"])

    def test_training_trains(self):
        for row in report("--workload", "mlp,charmlp,hetero,branch,dynamic,nonzero", "--steps", 300, "--mode", "sink")["rows"]:
            self.assertLess(row["loss_last"], 0.8 * row["loss_first"], row["workload"])
            self.assertRegex(row["data"]["checksum"], "^[0-9a-f]{8}$")
            self.assertTrue(row["data"]["name"])

    def test_export(self):
        with tempfile.TemporaryDirectory() as folder:
            bench("--workload", "charmlp,chain", "--steps", 2, "--mode", "sink", "--export", folder)
            shapes = {}
            for path in pathlib.Path(folder).iterdir():
                data = path.read_bytes()
                length = int.from_bytes(data[:8], "little")
                shapes[path.name] = {n: t["shape"] for n, t in json.loads(data[8 : 8 + length]).items() if n != "__metadata__"}
            self.assertEqual(shapes["chain.safetensors"], {"state": []})
            charmlp = shapes["charmlp.safetensors"]
            self.assertEqual(charmlp["feed.0"], [5, 8, 8])  # with the 3 steps of warm-up
            self.assertEqual(charmlp["feed.1"], [5, 8, 1])
            self.assertEqual(charmlp["w1"], [32, 16])

    def test_explain(self):
        for row in self.rows("sink"):
            if row["workload"] in SHAPES:  # what is explained is the shape of the example, not that of the last step
                continue
            plan = json.loads(bench("--workload", row["workload"], "--explain", "json"))
            self.assertEqual(plan["device"], row["device"])
            self.assertEqual(plan["launches_per_step"], row["graph_launches_per_step"])
            self.assertEqual(len(plan["islands"]), row["islands"])
            self.assertEqual(plan["streams"], row["streams_used"])
            self.assertEqual(plan["memory"]["arena_bytes"], row["arena_bytes"])
            self.assertEqual(plan["memory"]["live_bytes"], row["live_bytes"])
        names = ["chain", "mlp"]
        text = bench("--workload", ",".join(names), "--explain", "text")
        self.assertEqual(re.findall(r"(?m)^(\w+): plan for ", text), names)
        dot = bench("--workload", ",".join(names), "--explain", "dot")
        self.assertEqual(len(re.findall(r"(?m)^digraph plan \{$", dot)), 2)

    def test_profile(self):
        profiled = json.loads(bench("--workload", "mlp,nonzero", "--profile", "--steps", 2, "--json", "-"))
        self.assertGreater(profiled["machine"]["gflops"], 0)
        self.assertGreater(profiled["machine"]["gbytes"], 0)
        (mlp,) = profiled["profiles"]  # nonzero cannot be measured
        self.assertEqual((mlp["workload"], mlp["steps"]), ("mlp", 2))
        self.assertEqual(sum(row["runs_per_step"] for row in mlp["ops"] if row["op"] == "adamw"), 1)
        self.assertEqual({row["op"] for row in mlp["ops"] if row["gflops"]} - {"matmul", "matmul_bias", "matmul_relu"}, set())
        self.assertAlmostEqual(sum(row["us_per_step"] for row in mlp["ops"]), mlp["us_per_step"], delta=1e-6 * mlp["us_per_step"])
        self.assertEqual(mlp["scopes"], [])
        self.assertRegex(bench("--workload", "gpt", "--profile", "--steps", 2), r"(?m)^ +[0-9.]+ +[0-9.]+%  block\.0$")
        self.assertRegex(bench("--workload", "mlp", "--profile", "--steps", 2), r"(?m)^ +[0-9.]+ +[0-9.]+% .* adamw +mlp.cpp:")

    def compare(self, *arguments):
        script = pathlib.Path(__file__).resolve().parent.parent / "profiling" / "compare.py"
        done = subprocess.run([sys.executable, script, *map(str, arguments)], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_compare(self):
        def row(mode, us, loss_hash):
            return {"workload": "mlp", "mode": mode, "steps_per_launch": 1, "loss_first": 2.0, "loss_last": 1.0,
                    "loss_hash": loss_hash, "state_hash": "s", "step_us": {"min": us - 1, "median": us, "max": us + 1}}

        def written(name, rows):
            path = pathlib.Path(folder) / name
            path.write_text(json.dumps({"machine": {"cpu": "c", "cores": 2}, "rows": rows}))
            return path

        with tempfile.TemporaryDirectory() as folder:
            a = written("a.json", [row("sink", 100, "x"), row("interactive-serial", 50, "x")])
            b = written("b.json", [row("sink", 150, "x"), row("interactive-serial", 51, "x"), row("torch-eager", 1, "x")])
            code, table, _ = self.compare(a, b)
            self.assertEqual(code, 0)
            self.assertRegex(table, r"mlp +sink +100.00 +150.00 +1.50x")
            self.assertRegex(table, r"interactive-serial .*ranges overlap")
            self.assertNotIn("torch-eager", table)
            self.assertEqual(self.compare(a, written("other.json", [row("sink", 100, "y")]))[0], 1)
            untimed = written("untimed.json", [row("sink", 100, "x") | {"step_us": None}])
            code, table, _ = self.compare(untimed, untimed)
            self.assertEqual(code, 0)
            self.assertRegex(table, r"mlp +sink +- +- +- +- +2.0000 -> 1.0000")
            for bad in (written("none.json", [row("torch-eager", 1, "x")]), pathlib.Path(folder) / "missing.json", __file__):
                code, _, message = self.compare(a, bad)
                self.assertEqual((code, message[:7]), (2, "error: "))
            self.assertEqual(self.compare(a)[0], 2)

    def test_only_gpt_has_the_size_large(self):
        done = subprocess.run([PROGRAM, "--size", "large", "--workload", "gpt,mlp"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn('workload "mlp": it has no size large; remedy: ', done.stderr)

    def test_table_file_and_list(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "report.json"
            table = bench("--workload", "chain", "--steps", 2, "--json", path)
            self.assertEqual(len(json.loads(path.read_text())["rows"]), len(MODES))
        for mode in MODES:
            self.assertRegex(table, rf"(?m)^chain +{mode} ")
        listed = bench("--list")
        for name in WORKLOADS + MODES:
            self.assertIn(name, listed)


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)) / PROGRAM
    WORKLOADS = sys.argv[1:] or WORKLOADS
    del sys.argv[1:]
    unittest.main()
