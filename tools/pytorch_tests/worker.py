"""Runs the tests of one file, one JSON line per test; restarted by run.py after a crash or hang.

worker.py FILE OUT.jsonl --list            writes the ids
worker.py FILE OUT.jsonl --ids IDS.txt --timeout 60
"""

import argparse
import faulthandler
import functools
import importlib.util
import itertools
import json
import os
import signal
import sys
import time
import traceback
import unittest
import warnings

if __name__ == "__main__":  # processes that a test spawns import this file too
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--ids")
    parser.add_argument("--timeout", type=int, default=60)
    args = parser.parse_args()
    sys.argv = [args.file]
    folder = os.path.dirname(os.path.abspath(args.file))
    sys.path.insert(0, folder)
    root = os.path.join(os.environ["WISP_PYTORCH_TESTS"], "src", "test")
    if root not in sys.path:
        sys.path.insert(1, root)
    name = os.path.splitext(os.path.basename(args.file))[0]


class TestTimeout(BaseException):
    pass


def load():
    # as `python test_x.py` would, except that main's tests are not started
    spec = importlib.util.spec_from_file_location(name, args.file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def cases(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


class Function(unittest.TestCase):
    """A function of a file that is written for pytest, with one choice of its parameters."""

    def __init__(self, label, call, skip):
        super().__init__("call")
        self.label, self.function, self.skip = label, call, skip

    def id(self):
        return self.label

    def call(self):
        if self.skip:
            self.skipTest(self.skip)
        try:
            self.function()
        except BaseException as outcome:
            if type(outcome).__name__ != "Skipped":  # pytest.skip's, which unittest would let through
                raise
            self.skipTest(str(outcome))


def functions(module):
    """The tests of `module` that are functions: one for each choice of parameters, numbered by their places in the lists."""
    for title, function in vars(module).items():
        if not title.startswith("test_") or not callable(function) or getattr(function, "__module__", "") != module.__name__:
            continue
        marks = getattr(function, "pytestmark", [])
        axes = [(mark.args[0], list(mark.args[1])) for mark in marks if mark.name == "parametrize"]
        for places in itertools.product(*(range(len(values)) for _, values in axes)):
            given, conditions = {}, [mark for mark in marks if mark.name in ("skip", "skipif")]
            for (names, values), place in zip(axes, places):
                names = [part.strip() for part in names.split(",")] if isinstance(names, str) else names
                value = values[place]
                if hasattr(value, "marks"):  # pytest.param
                    conditions += [mark for mark in value.marks if mark.name in ("skip", "skipif")]
                    value = value.values if len(names) > 1 else value.values[0]
                given.update(zip(names, value) if len(names) > 1 else {names[0]: value})
            reasons = [mark.kwargs.get("reason", "skip") for mark in conditions if mark.name == "skip" or any(mark.args)]
            label = f"{module.__name__}.{title}" + (f"[{'-'.join(map(str, places))}]" if axes else "")
            yield Function(label, functools.partial(function, **given), reasons[0] if reasons else "")


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.status, self.text, self.kind, self.sub = None, "", "", []

    def _set(self, status, err=None, text=""):
        if self.status in (None, "passed") or (self.status == "skipped" and status in ("failed", "error")):
            self.status = status
            if err is not None:
                self.kind = err[0].__name__
                try:
                    message = str(err[1])
                    if err[1].__cause__ is not None:
                        message = f"{message[:600]} [from {type(err[1].__cause__).__name__}: {str(err[1].__cause__)[:600]}]"
                except BaseException as problem:
                    message = f"<str of the error failed: {problem}>"
                frames = [(f.filename, f.lineno, f.name, f.line) for f in traceback.extract_tb(err[2])]
                self.text = message[:1500]
                self.frames = [f"{os.path.basename(f)}:{l} {n}: {s}" for f, l, n, s in frames][-6:]
                own = [f"{l}: {s}" for f, l, n, s in frames if os.path.basename(f) == os.path.basename(args.file)]
                self.line = own[-1] if own else ""
            else:
                self.text = text[:500]

    def addSuccess(self, test):
        self._set("passed")

    def addError(self, test, err):
        self._set("failed" if err[0] is AssertionError else "error", err)

    def addFailure(self, test, err):
        self._set("failed", err)

    def addSkip(self, test, reason):
        if self.status is None:
            self.status, self.text = "skipped", str(reason)[:300]

    def addExpectedFailure(self, test, err):
        self._set("passed", None, "expected failure")

    def addUnexpectedSuccess(self, test):
        self._set("failed", None, "unexpected success")
        self.kind = "UnexpectedSuccess"

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._set("failed" if issubclass(err[0], AssertionError) else "error", err)

    frames, line = [], ""


def main():
    try:
        module = load()
    except BaseException as error:
        with open(args.out, "a") as out:
            out.write(json.dumps({"import_error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-4000:]}) + "\n")
        traceback.print_exc()
        os._exit(3)
    loader = unittest.TestLoader()
    tests = {}
    for case in itertools.chain(cases(loader.loadTestsFromModule(module)), functions(module)):
        tests[case.id()] = case
    if args.list:
        with open(args.out, "w") as out:
            out.write("".join(f"{key}\n" for key in tests))
        os._exit(0)
    wanted = [line.strip() for line in open(args.ids) if line.strip()]
    out = open(args.out, "a", buffering=1)
    try:
        import ptshim

        state = ptshim._state
    except ImportError:
        state = {}
    faulthandler.enable(open(args.out + ".fault", "w"))

    def alarm(number, _):
        raise TestTimeout(f"over {args.timeout} s of CPU" if number == signal.SIGPROF else f"over {4 * args.timeout} s")

    signal.signal(signal.SIGALRM, alarm)  # wall clock: a deadlock
    signal.signal(signal.SIGPROF, alarm)  # CPU: endless work; fair on a loaded machine

    def quiet():
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)

    current = None
    for key in wanted:
        if key not in tests:
            out.write(json.dumps({"id": key, "status": "missing"}) + "\n")
            continue
        case = tests[key]
        cls = type(case)
        out.write(json.dumps({"start": key}) + "\n")
        result = Result()
        start = time.process_time()
        state["in_test"] = True
        try:
            if cls is not current:
                if current is not None:
                    try:
                        current.tearDownClass()
                        current.doClassCleanups()
                    except BaseException:
                        pass
                current = cls
                if not getattr(cls, "__unittest_skip__", False):
                    try:
                        cls.setUpClass()
                    except unittest.SkipTest as reason:
                        cls._pt_setup = ("skipped", reason)
                    except Exception as problem:
                        cls._pt_setup = ("error", problem)
            setup = cls.__dict__.get("_pt_setup")
            if setup is not None:
                result.status, result.text, result.kind = setup[0], f"setUpClass: {setup[1]}", type(setup[1]).__name__
            else:
                signal.alarm(4 * args.timeout)
                signal.setitimer(signal.ITIMER_PROF, args.timeout)
                with warnings.catch_warnings():
                    warnings.simplefilter("default")
                    case.run(result)
                quiet()
        except TestTimeout as error:
            result.status, result.text, result.kind = "hung", str(error), "TestTimeout"
            result.frames = [
                f"{os.path.basename(f.filename)}:{f.lineno} {f.name}: {f.line}" for f in traceback.extract_tb(error.__traceback__)
            ][-8:]
        except BaseException:
            quiet()
            result._set("error", sys.exc_info())
        quiet()
        if result.kind == "TestTimeout":
            result.status = "hung"
        state["in_test"] = False
        if "ptpatches" in sys.modules:
            sys.modules["ptpatches"].after_test()
        record = {"id": key, "status": result.status or "passed", "s": round(time.process_time() - start, 3)}
        if result.status != "passed":
            record.update(kind=result.kind, text=result.text, line=result.line, frames=result.frames)
        out.write(json.dumps(record) + "\n")
        tests[key] = None
        case = None
    out.write(json.dumps({"done": True}) + "\n")
    out.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
