"""Runs files of PyTorch's own tests on Wisp, to the end, whatever their tests do, and prints the table.

    python tools/pytorch_tests/run.py                          every file of files.txt, the big ones sampled
    python tools/pytorch_tests/run.py test_torch.py nn/test_init.py --sample 0
    python tools/pytorch_tests/run.py test_torch.py --only 'index_add|squeeze'      tests by name, merged into the results
    python tools/pytorch_tests/run.py test_torch.py --again 'does not match'        those that did not pass and say so, merged
    python tools/pytorch_tests/run.py --baseline VENV/bin/python                    on PyTorch itself, what did not pass on Wisp

The tests are in ~/.cache/wisp/pytorch_tests, or the folder that WISP_PYTORCH_TESTS names, as setup.sh has made it. Wisp is the one of this
checkout. A worker that dies is recorded as "crashed" at the test under way, one that stands still is killed ("hung"), and another goes on
behind it. Results: RESULTS/<file>.json, {test: {status, kind, text, line, frames, s}}.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

import summary

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
HOME = pathlib.Path(os.environ.get("WISP_PYTORCH_TESTS", CACHE / "wisp" / "pytorch_tests"))
LOADING = 1500  # seconds until a file must be imported: the operator tables take a while on a busy machine
BAD = summary.BAD


def environment(shim):
    paths = [str(HERE / "shim"), str(HERE.parents[1] / "src")] if shim else []
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "WISP_PYTORCH_TESTS": str(HOME.resolve()),
        "PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": "1",
    }


def stop(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)  # the session that start() made
    except ProcessLookupError:
        pass
    process.wait()


class Run:
    """One file: `results` fills while workers write their lines."""

    def __init__(self, file, options, shim=True):
        self.file, self.options, self.shim = file, options, shim
        self.name = file.replace("/", "__").removesuffix(".py")
        self.folder = pathlib.Path(options.results).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.raw, self.final = self.folder / f"{self.name}.jsonl", self.folder / f"{self.name}.json"
        self.log = open(self.folder / f"{self.name}.log", "w")
        self.results, self.offset, self.under_way, self.done = {}, 0, None, False

    def start(self, *extra):
        def limits():
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (self.options.memory << 30,) * 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        tests = HOME.resolve() / "src" / "test"
        command = [self.options.python, HERE / "worker.py", tests / self.file, *extra]
        return subprocess.Popen(
            command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=environment(self.shim), cwd=tests, preexec_fn=limits
        )

    def list(self):
        """The names of the tests, or None where the file cannot be imported."""
        listed = pathlib.Path(f"{self.raw}.ids")
        listed.unlink(missing_ok=True)
        process = self.start(listed, "--list")
        try:
            code = process.wait(LOADING)
        except subprocess.TimeoutExpired:
            stop(process)
            code = "timeout"
        if code == 0:
            return listed.read_text().split()
        lines = listed.read_text().splitlines() if listed.exists() else []
        error = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        self.final.write_text(json.dumps({"__file__": {"status": "import_error", **error, "code": str(code)}}, indent=1))
        print(f"{self.file}: cannot be imported ({code}): {error.get('import_error', '')[:300]}")
        return None

    def read(self):
        """Takes in the worker's new lines."""
        with open(self.raw, "rb") as lines:
            lines.seek(self.offset)
            text = lines.read()
        end = text.rfind(b"\n") + 1
        self.offset += end
        news = 0
        for line in text[:end].splitlines():
            record = json.loads(line)
            if "start" in record:
                self.under_way = record["start"]
            elif "id" in record:
                self.results[record["id"]], self.under_way = record, None
            self.done = self.done or record.get("done", False)
            news += 1
        return news

    def watch(self, process, deadline):
        """Until the worker has ended, stands still, or the file's time is over."""
        since = time.time()
        while True:
            code = process.poll()
            if self.read():
                since = time.time()
            if code is not None:
                break
            patience = 4 * self.options.timeout + 60 if self.under_way else LOADING
            if time.time() - since > patience or time.time() > deadline:
                code = "hung" if time.time() < deadline else "budget"
                break
            time.sleep(0.05)
        stop(process)
        self.read()
        return code

    def run(self, names):
        self.raw.write_text("")
        left, loads, begun = list(names), 0, time.time()
        while left and time.time() - begun < self.options.budget:
            todo, before = pathlib.Path(f"{self.raw}.todo"), len(self.results)
            todo.write_text("\n".join(left))
            self.under_way, self.done, loads = None, False, loads + 1
            process = self.start(self.raw, "--ids", todo, "--timeout", str(self.options.timeout))
            code = self.watch(process, begun + self.options.budget)
            if self.under_way and code != "budget":
                fault = pathlib.Path(f"{self.raw}.fault")
                text = fault.read_text()[:3000] if fault.exists() else ""
                status = "hung" if code == "hung" else "crashed"
                self.results[self.under_way] = {"id": self.under_way, "status": status, "kind": f"exit {code}", "text": text}
            elif not self.done and code != "budget" and len(self.results) == before:
                print(f"{self.file}: the worker ended with {code} without running a test")
                break
            left = [name for name in left if name not in self.results]
        for name in left:
            self.results[name] = {"id": name, "status": "not run"}
        count = {}
        for record in self.results.values():
            count[record["status"]] = count.get(record["status"], 0) + 1
        told = ", ".join(f"{status} {number}" for status, number in sorted(count.items()))
        print(f"{self.file}: {len(self.results)}: {told} ({time.time() - begun:.0f} s, {loads} loads)", flush=True)

    def save(self, collected, earlier=None):
        results = {"__file__": {"status": "info", "collected": collected}, **(earlier or {})}
        results.update({name: record for name, record in self.results.items() if name not in results or record["status"] != "not run"})
        self.final.write_text(json.dumps(results, indent=0))


def run_file(file, options):
    run = Run(file, options)
    earlier = json.loads(run.final.read_text()) if (options.only or options.again) and run.final.exists() else {}
    earlier = {name: record for name, record in earlier.items() if name != "__file__" or "collected" in record}
    if options.again:
        names = [n for n, r in earlier.items() if n != "__file__" and r["status"] not in ("passed", "skipped")]
        names = [n for n in names if re.search(options.again, json.dumps(earlier[n]))]
        collected = len(earlier) - 1
    else:
        names = run.list()
        if names is None:
            return
        collected = len(names)
        if options.only:
            names = [name for name in names if re.search(options.only, name)]
        elif options.sample and collected > options.sample:
            random.Random(0).shuffle(names)
            names = sorted(names[: options.sample])
    run.run(names)
    run.save(collected, earlier)


def run_baseline(file, options):
    """What did not pass on Wisp, on PyTorch: what fails there too says nothing."""
    records = json.loads((pathlib.Path(options.results) / (file.replace("/", "__").removesuffix(".py") + ".json")).read_text())
    names = [n.replace("_wisp_nn_", "_nn_") for n, r in records.items() if n != "__file__" and r["status"] in BAD]
    if names:
        there = argparse.Namespace(**{**vars(options), "results": options.baseline_results, "python": options.baseline})
        run = Run(file, there, shim=False)
        run.run(names)
        run.save(len(names))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--results", default=str(HOME / "results"))
    parser.add_argument("--baseline-results", default=str(HOME / "baseline"))
    parser.add_argument("--python", default=str(HOME / "venv" / "bin" / "python"), help="has what the tests import, and no torch")
    parser.add_argument("--jobs", type=int, default=2, help="files at once")
    parser.add_argument("--sample", type=int, default=1000, help="tests of a file at most, chosen evenly (0: all)")
    parser.add_argument("--timeout", type=int, default=90, help="seconds of CPU for a test, and 4 times as many of the clock")
    parser.add_argument("--budget", type=int, default=1500, help="seconds for a file")
    parser.add_argument("--memory", type=int, default=12, help="GB of address space")
    parser.add_argument("--only", metavar="REGEX", help="tests with such a name")
    parser.add_argument("--again", metavar="REGEX", help="tests that did not pass, with such a record")
    parser.add_argument("--baseline", metavar="PYTHON", help="a Python that has PyTorch")
    parser.add_argument("--at-least", type=float, metavar="PERCENT", help="fail when fewer of the tests in scope pass")
    options = parser.parse_args()
    options.python = os.path.abspath(options.python)  # a virtual environment's link: not resolved
    files = options.files or (HERE / "files.txt").read_text().split()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda file: (run_baseline if options.baseline else run_file)(file, options), files))
    wanted = {file.replace("/", "__").removesuffix(".py") for file in options.files}
    rate = summary.table(options.results, options.baseline_results, wanted)
    if options.at_least is not None and rate < options.at_least:
        sys.exit(f"{rate:.1f} % pass, fewer than {options.at_least} %")


if __name__ == "__main__":
    main()
