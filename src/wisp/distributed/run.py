"""Starts the processes of a distributed program: `wisp launch -n 4 train.py`, or `python -m wisp.distributed.run` with torchrun's
arguments.

Each line of output begins with its rank. When a rank fails, all are ended, and what each did last and the first failing rank's
traceback come last.
"""

import argparse
import collections
import ctypes
import datetime
import importlib.util
import mmap
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from wisp.cli._options import Options
from wisp.distributed import _board
from wisp.distributed._work import DistError, DistNetworkError
from wisp.distributed.stores import TCPStore

__all__ = ["get_args_parser", "main", "parse_args", "run"]
JOIN = 600.0  # seconds that a machine waits for the others
GRACE = 5.0  # seconds between asking a process to end and ending it


def get_args_parser():
    """The arguments of `wisp launch`: its own, and torchrun's."""
    parser = Options(prog="wisp launch", description="Start a program as several processes (ranks) that work together.", allow_abbrev=False)
    parser.add_argument(
        "-n", "--nproc-per-node", "--nproc_per_node", default="1", help="processes on this machine: a number, or auto/cpu/gpu"
    )
    parser.add_argument("--nnodes", default="1", help="machines; each runs this command with its --node-rank")
    parser.add_argument(
        "--node-rank",
        "--node_rank",
        type=int,
        default=None,
        help="the number of this machine; without it, machines that come to --rdzv-endpoint are numbered there",
    )
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1", help="the machine of rank 0")
    parser.add_argument("--master-port", "--master_port", type=int, default=0, help="a free port of it (on one machine, one is found)")
    parser.add_argument("--standalone", action="store_true", help="one machine only (the default)")
    parser.add_argument("--rdzv-endpoint", "--rdzv_endpoint", default="", help="host:port, as --master-addr and --master-port")
    parser.add_argument("--threads", type=int, default=0, help="threads per process; by default the processors are divided")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module, as in python -m")
    parser.add_argument("--no-python", "--no_python", action="store_true", help="the program is not Python's")
    for name in """
        rdzv-backend rdzv-id rdzv-conf max-restarts monitor-interval start-method role log-dir redirects tee local-addr
        local-ranks-filter""".split():
        parser.add_argument("--" + name, "--" + name.replace("-", "_"), default=None, help=argparse.SUPPRESS)
    for name in ("run-path", "use-env"):
        parser.add_argument("--" + name, "--" + name.replace("-", "_"), action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("training_script", metavar="program", help="the script (or module, with -m); `import torch` means Wisp in it")
    parser.add_argument("training_script_args", metavar="arguments", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def parse_args(arguments):
    """Read the arguments of a launch."""
    return get_args_parser().parse_args(arguments)


def _processes(text):
    if text in ("auto", "cpu", "gpu"):
        import wisp

        gpus = wisp.cuda.device_count() if text != "cpu" and wisp.cuda.is_available() else 0
        if text == "gpu" and not gpus:
            raise SystemExit("wisp launch: --nproc-per-node gpu, but there is no GPU")
        return gpus or len(os.sched_getaffinity(0))
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise SystemExit(f"wisp launch: -n is a number of processes from 1 on, or auto, cpu or gpu; got {text!r}")
    return count


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _number_machine(host, port, count):
    """(number of this machine, port for rank 0), when nobody has numbered them: the launcher that can listen at the endpoint is number 0
    and numbers the others as they come, in a store, which asks for the secret of the run."""
    patience = datetime.timedelta(seconds=JOIN)
    try:
        store = TCPStore(host, port, is_master=True, timeout=patience)
    except DistNetworkError as error:
        raise SystemExit(f"wisp launch: {error}") from None
    except OSError:
        store = None  # another machine's address, or another launcher of this one was first
    if store is not None:
        free, end = _free_port(), time.monotonic() + JOIN
        store.set("port", str(free))
        while store.add("told", 0) < count - 1:
            if time.monotonic() > end:
                raise SystemExit(
                    f"wisp launch: only {1 + store.add('told', 0)} of {count} machines came to {host}:{port} within {JOIN:g} s"
                )
            time.sleep(0.02)
        store._server.close()
        return 0, free
    try:
        store = TCPStore(host, port, timeout=patience)
        number = store.add("machines", 1)
        if number >= count:
            raise SystemExit(f"wisp launch: {host}:{port} has its {count} machines already")
        free = int(store.get("port"))
        store.add("told", 1)
    except (DistError, OSError) as error:
        raise SystemExit(f"wisp launch: no launcher of this run answers at {host}:{port}: {error}") from None
    return number, free


def _die_with_parent():
    """In the new process: the kernel ends it when the launcher is gone, whatever ended that."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass


class _Launch:
    def __init__(self, options):
        self.count = _processes(options.nproc_per_node)
        nodes = str(options.nnodes).split(":")[-1]
        self.nodes = int(nodes) if nodes.isdigit() and int(nodes) > 0 else 0
        self.host, _, port = options.rdzv_endpoint.partition(":")
        if port and not port.isdigit():
            raise SystemExit(f"wisp launch: --rdzv-endpoint is host:port; got {options.rdzv_endpoint!r}")
        self.host, self.port = self.host or options.master_addr, int(port or options.master_port)
        # launchers of other machines can't know a new one: theirs is the user's, or else the name of the run
        self.secret = os.environ.get("WISP_SECRET") or (secrets.token_hex(32) if self.nodes == 1 else options.rdzv_id or "")
        self.node = options.node_rank
        if self.node is None and self.nodes > 1 and options.rdzv_endpoint:
            os.environ["WISP_SECRET"] = self.secret
            self.node, self.port = _number_machine(self.host, self.port or 29400, self.nodes)
        self.node = self.node or 0
        if self.node not in range(self.nodes):
            raise SystemExit(f"wisp launch: --nnodes {options.nnodes} --node-rank {options.node_rank}: nodes are numbered from 0")
        if self.count * self.nodes > 1 and not options.no_python and importlib.util.find_spec("mpi4py") is None:
            raise SystemExit("wisp launch: processes that work together need MPI, which is not installed: pip install 'wisp[mpi]'")
        self.first = self.node * self.count
        self.options, self.lock = options, threading.Lock()
        self.tails = [collections.deque(maxlen=200) for _ in range(self.count)]
        self.children, self.readers = [], []

    def environment(self, local, board):
        options = self.options
        threads = options.threads or max(1, len(os.sched_getaffinity(0)) // self.count)
        added = {
            "RANK": self.first + local,
            "LOCAL_RANK": local,
            "WORLD_SIZE": self.count * self.nodes,
            "LOCAL_WORLD_SIZE": self.count,
            "GROUP_RANK": self.node,
            "MASTER_ADDR": self.host,
            "MASTER_PORT": self.port,
            "WISP_SECRET": self.secret,
            "TORCHELASTIC_RUN_ID": options.rdzv_id or "wisp",
            "PYTHONUNBUFFERED": "1",
        }
        if options.threads or "OMP_NUM_THREADS" not in os.environ:
            added["OMP_NUM_THREADS"] = threads
        if board:
            added["WISP_BOARD"] = board
        return {**os.environ, **{name: str(value) for name, value in added.items()}}

    def command(self):
        options = self.options
        program = [options.training_script, *options.training_script_args]
        return program if options.no_python else [sys.executable, "-m", "wisp.run", *(["-m"] if options.module else []), *program]

    def pass_on(self, stream, target, local):
        """Each line of a process, with its rank before it."""
        prefix = f"[{self.first + local}] ".encode()
        for line in iter(stream.readline, b""):
            if target is sys.stderr:
                self.tails[local].append(line)
            with self.lock:
                target.buffer.write(prefix + line + (b"" if line.endswith(b"\n") else b"\n"))
                target.flush()

    def start(self, board):
        self.port = self.port or (_free_port() if self.nodes == 1 else 29500)
        for local in range(self.count):
            child = subprocess.Popen(
                self.command(),
                env=self.environment(local, board),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            self.children.append(child)
            for stream, target in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
                reader = threading.Thread(target=self.pass_on, args=(stream, target, local), daemon=True)
                reader.start()
                self.readers.append(reader)

    def wait(self):
        """The local number of the first process that failed, or None."""
        left = dict(enumerate(self.children))
        while left:
            for local, child in list(left.items()):
                code = child.poll()
                if code is not None:
                    del left[local]
                    if code != 0:
                        return local
            time.sleep(0.02)
        return None

    def end(self, grace=GRACE):
        """End every process, and what it started: asked first, made to after `grace` seconds."""
        for number, seconds in ((None, grace / 2), (signal.SIGTERM, grace / 2), (signal.SIGKILL, 60)):
            for child in self.children:
                if number is not None and child.poll() is None:
                    _signal(child, number)
            end = time.monotonic() + seconds
            while time.monotonic() < end and any(child.poll() is None for child in self.children):
                time.sleep(0.02)
        for child in self.children:
            _signal(child, signal.SIGKILL)  # what is left of its session: workers of a data loader
        for reader in self.readers:
            reader.join(5)


def _signal(child, number):
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _traceback(lines):
    """The last traceback among lines of output."""
    text = b"".join(lines).decode(errors="replace")
    at = text.rfind("Traceback (most recent call last):")
    return text[at:] if at >= 0 else "\n".join(text.splitlines()[-20:])


def _explain(launch, failed, memory):
    child = launch.children[failed]
    code, rank = child.returncode, launch.first + failed
    what = f"exited with status {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
    print(f"\nwisp launch: rank {rank} (process {child.pid}) {what}; every process was ended", file=sys.stderr)
    slots = [(rank, _board.read_slot(memory, rank)) for rank in range(launch.count)] if memory else []
    if any(slot for _, slot in slots):
        print("what each rank did last:", file=sys.stderr)
        for number, slot in slots:
            print(f"  rank {number}: {slot[2] if slot else 'did not come to init_process_group'}", file=sys.stderr)
    text = _traceback(launch.tails[failed]).rstrip()
    if text:
        print(f"rank {rank} said:\n{text}", file=sys.stderr)


def run(options):
    """Start the processes and wait for them; returns the exit status."""
    launch = _Launch(options)
    handle = board = memory = None
    if launch.nodes == 1 and launch.count > 1:
        handle, board = tempfile.mkstemp(prefix="wisp-board-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        os.ftruncate(handle, _board.SLOT * launch.count)
        memory = mmap.mmap(handle, _board.SLOT * launch.count)
        os.close(handle)

    def stop(number, frame):
        raise KeyboardInterrupt(number)

    previous = signal.signal(signal.SIGTERM, stop) if threading.current_thread() is threading.main_thread() else None
    try:
        launch.start(board)
        failed = launch.wait()
        launch.end(GRACE if failed is not None else 0)
    except KeyboardInterrupt as stopped:
        number = stopped.args[0] if stopped.args else signal.SIGINT
        for child in launch.children:
            _signal(child, number)
        launch.end()
        print(f"\nwisp launch: stopped by {signal.Signals(number).name}; every process was ended", file=sys.stderr)
        return 128 + number
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
        if board:
            os.unlink(board)
    if failed is None:
        return 0
    _explain(launch, failed, memory)
    code = launch.children[failed].returncode
    return code if code > 0 else 128 - code


def main(args=None):
    """`python -m wisp.distributed.run`; leaves with the status of the first process that failed."""
    raise SystemExit(run(parse_args(sys.argv[1:] if args is None else args)))


if __name__ == "__main__":
    main()
