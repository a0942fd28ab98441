"""Feeds damaged checkpoint files to `load` for a while: no crash, no hang, no code run, memory bounded.

    python tools/fuzz_files.py [--seconds 60] [--seed 0]

Every file is made from (seed, number); one that fails is written to the current folder, and its number is printed.
"""

import argparse
import faulthandler
import pathlib
import random
import resource
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))
import mangled_files  # noqa: E402

EXTRA_MEMORY = 512 << 20  # what all loads together may add to the memory of the process
SECONDS_PER_FILE = 60  # far more than any takes, even where the machine is busy


def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    faulthandler.enable()
    originals = mangled_files.samples()
    for content in originals:
        mangled_files.load_mangled(content)
    limit = memory() + EXTRA_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("the file takes too long")))
    number, end, refused = 0, time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        content = mangled_files.mangle(random.Random(f"{options.seed} {number}"), originals)
        pathlib.Path("fuzz_current.pt").write_bytes(content)  # still there after a crash
        signal.alarm(SECONDS_PER_FILE)
        try:
            mangled_files.load_mangled(content)
        except mangled_files.Escaped as error:
            pathlib.Path(f"fuzz_{options.seed}_{number}.pt").write_bytes(content)
            print(f"file {number}: {error}")
            refused += 1
        signal.alarm(0)
        number += 1
    pathlib.Path("fuzz_current.pt").unlink(missing_ok=True)
    print(f"{number} files in {options.seconds:g} s, {refused} of them did what they must not")
    return refused


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
