"""Looks for inputs that kill, corrupt or lie: calls, programs, numbers, sizes, files.

    python tools/fuzz.py calls programs numbers sizes files [--seconds 60] [--seed N] [--planted]

calls     every public callable with hostile and half-right arguments: no death, no hang, no SystemError
programs  random programs of views, in-place writes and backward beside PyTorch: the same values, gradients and refusals
numbers   PyTorch's database of operators at extreme values, beside PyTorch and its float64
sizes     families of operators from one element to a million, where kernels go other ways, beside PyTorch's float64
files     damaged checkpoints: an error or a value, in bounded time and memory

A case is a function of (kind, seed, number) and runs in a child process. What fails is run again alone, with fewer and fewer of its
pieces (arguments, statements, values, bytes), and the least that still fails is printed. With --planted each kind gets a bug of its own,
and the run succeeds only if it is found. Needs PyTorch for programs, numbers and sizes.
"""

import argparse
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
KINDS = ("calls", "programs", "numbers", "sizes", "files")
START = 120.0  # seconds until a child has imported what it needs
CASE = 30.0  # seconds for one case, of its own processor time: far more than any needs
ASLEEP = 10  # times as many by the clock: the machine may be busy with others, or the case may wait for what never comes
REPEATS = 60  # runs for making a finding smaller
ENOUGH = 20  # findings after which a kind is ended


class Child:
    """A process that runs cases from a number on, or one case with some of its pieces, and tells where it is."""

    told_to_end = False  # by SIGTERM: as if the time were up

    def __init__(self, options, kind, number, keep=None):
        command = [sys.executable, __file__, kind, "--seed", str(options.seed), "--child", str(number)]
        command += ["--device", options.device] + ["--planted"] * options.planted + (["--keep", keep] if keep is not None else [])
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **pipes, start_new_session=True)  # what is sent to the fuzzer's group is not a case's end
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest, self.number = b"", None
        self.wait_for(START)

    def worked(self):
        """Seconds of processor time."""
        try:
            stat = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0  # it has just ended
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def wait_for(self, seconds):
        self.patience, self.since, self.before = seconds, time.monotonic(), None

    def hangs(self):
        """Asked while it is silent."""
        silent = time.monotonic() - self.since
        if self.before is None:
            self.before = self.worked()
        return silent > self.patience and (silent > ASLEEP * self.patience or self.worked() - self.before > self.patience)

    def lines(self, end):
        """What the child says until `end`; afterwards `verdict` tells how it ended, if it did."""
        self.verdict = None
        while time.monotonic() < end and not Child.told_to_end:
            ready = select.select([self.process.stdout], [], [], 0.2)[0]
            data = self.process.stdout.read() if ready else None
            if data == b"":
                code = self.process.wait()
                if code < 0:
                    self.verdict = f"dies of {signal.Signals(-code).name}"
                elif code:
                    said = self.process.stderr.read().decode(errors="replace")
                    at = max(said.find("runtime error:"), said.find("ERROR: AddressSanitizer"))  # a sanitizer's stack is long
                    self.verdict = "ends: " + (said[max(0, at - 200) : at + 1500] if at >= 0 else said[-2000:])
                return
            if data:
                *lines, self.rest = (self.rest + data).split(b"\n")
                self.wait_for(CASE)
                for line in lines:
                    yield line.decode(errors="replace")
            elif self.hangs():
                self.verdict = f"hangs ({self.patience:g} s)"
                return

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def alone(options, kind, number, keep=None):
    """-> (what is wrong with one case or None, its pieces, its text)"""
    kept = "all" if keep is None else ",".join(map(str, keep)) or "none"
    child, wrong, pieces, text = Child(options, kind, number, kept), None, 0, ""
    try:
        for line in child.lines(time.monotonic() + ASLEEP * (START + CASE)):
            word, _, rest = line.partition(" ")
            if word == "pieces":
                pieces = int(rest)
            elif word == "text":
                text = rest.replace("\\n", "\n")
            elif word == "wrong":
                wrong = rest.replace("\\n", "\n")
        return child.verdict or wrong, pieces, text
    finally:
        child.end()


def smallest(options, kind, number):
    """The least of a case that still fails: pieces go one after the other while it does."""
    wrong, pieces, text = alone(options, kind, number)
    if wrong is None:
        return None  # only after what came before: the number of the first case and this one tell
    keep, tries, width = list(range(pieces)), 0, max(1, pieces // 2)
    most = 8 if options.planted else REPEATS
    while width and tries < most and not Child.told_to_end:
        at = 0
        while at < len(keep) and tries < most and not Child.told_to_end:
            fewer = keep[:at] + keep[at + width :]
            tries += 1
            again, _, shorter = alone(options, kind, number, fewer)
            if again is not None:
                keep, wrong, text = fewer, again, shorter
            else:
                at += width
        width //= 2
    return wrong, text


def run(options, kind):
    """The findings of one kind, each a text, and how many cases there were."""
    findings, number, end = [], 0, time.monotonic() + options.seconds
    while time.monotonic() < end and not Child.told_to_end and len(findings) < ENOUGH:
        child, failed = Child(options, kind, number), []
        try:
            for line in child.lines(end):
                word, _, rest = line.partition(" ")
                if word == "case":
                    child.number = int(rest)
                elif word == "wrong":
                    failed.append((child.number, rest))
                    if options.planted:
                        break
            reached = number if child.number is None else child.number + 1
            if child.verdict and not (options.planted and failed):
                failed.append((number if child.number is None else child.number, child.verdict))
        finally:
            child.end()
        for case, first in failed[: ENOUGH - len(findings)]:
            print(f"{kind}, seed {options.seed}, number {case}: made smaller", file=sys.stderr, flush=True)
            least = smallest(options, kind, case)
            wrong, text = least or (first + f" (only after cases {number} to {case - 1})", "")
            findings.append(f"{kind}, seed {options.seed}, number {case}: {wrong}\n{text}")
            print(findings[-1], flush=True)
            if options.planted:
                return findings, reached
        number = reached
    return findings, number


def be_child(options):
    """Run cases, telling the number of each before it runs."""
    import fuzz_kinds

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    kind = fuzz_kinds.make(options.kinds[0], options.seed, options.planted, options.device)

    def say(word, text):
        sys.stdout.write(word + " " + str(text).replace("\n", "\\n") + "\n")
        sys.stdout.flush()

    number, keep = options.child, None
    if options.keep not in (None, "all"):
        keep = [int(i) for i in options.keep.split(",")] if options.keep != "none" else []
    while True:
        say("case", number)
        wrong = kind.run(number, keep, say)
        if wrong is not None:
            say("wrong", wrong)
        if options.keep is not None:
            return
        number += 1


def processor_time():
    """Seconds that children which have ended took of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kinds", nargs="+", choices=KINDS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="where the tensors of `sizes` live")
    parser.add_argument("--planted", action="store_true", help="plant a bug, which must be found")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--keep", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        return be_child(options)

    def end(*_):
        Child.told_to_end = True

    signal.signal(signal.SIGTERM, end)
    failed = 0
    for kind in options.kinds:
        before, begin = processor_time(), time.monotonic()
        findings, cases = run(options, kind)
        worked, took = processor_time() - before, time.monotonic() - begin
        print(f"{kind}: {cases} cases in {took:.0f} s, {worked:.0f} s of processors, {len(findings)} findings", flush=True)
        failed += (not findings) if options.planted else len(findings)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
