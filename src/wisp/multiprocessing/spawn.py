"""Running one function in several processes, and reporting the first that fails."""

import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import secrets
import signal
import sys
import tempfile
import time
import traceback
import warnings

log = logging.getLogger(__name__)
ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"  # set to 1, PyTorch starts processes at once; here they always are


class ProcessException(Exception):
    """A process that `spawn` started failed; has its index and process id."""

    def __init__(self, msg, error_index, pid):
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process that `spawn` started raised an exception; the message holds its traceback."""

    def __init__(self, msg, error_index, error_pid):
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process that `spawn` started was ended by a signal or left with a status other than 0."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _run(function, index, args, report):
    """The main function of a process: what goes wrong is written to the file `report`."""
    try:
        function(index, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too
    except Exception:
        world = sys.modules.get("wisp.distributed._world")
        if world is not None:
            world.fail()  # the other ranks must not be waited for
        with open(report, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """The processes of one `spawn`."""

    _made_secret = False

    def __init__(self, processes, error_files):
        self.processes, self.error_files = processes, error_files
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self):
        """The process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout=None, grace_period=None):
        """Wait for the processes; True when all ended well. The first failure ends the others and is raised."""
        if not self.sentinels:
            return True
        failed = None
        for sentinel in multiprocessing.connection.wait(list(self.sentinels), timeout=timeout):
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            if not self.sentinels:
                self._clean()
                return True
            return False
        self._end_all(grace_period)
        try:
            self._raise(failed)
        finally:
            self._clean()

    def _end_all(self, grace_period):
        """Ends the others: at once, or those that have not ended by themselves within the grace period."""
        deadline = time.monotonic() + (grace_period or 0)
        for process in self.processes:
            process.join(max(0, deadline - time.monotonic()))
            if process.is_alive():
                log.warning("Terminating process %s via signal %s", process.pid, signal.SIGTERM.name)
                process.terminate()
        for process in self.processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()

    def _raise(self, index):
        process = self.processes[index]
        if os.path.getsize(self.error_files[index]):
            with open(self.error_files[index], "rb") as file:
                text = pickle.load(file)
            raise ProcessRaisedException(f"\n\n-- Process {index} terminated with the following error:\n{text}", index, process.pid)
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            raise ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)

    def _clean(self):
        for file in self.error_files:
            if os.path.exists(file):
                os.unlink(file)
        if self._made_secret:  # nobody is left who would need it
            os.environ.pop("WISP_SECRET", None)
            self._made_secret = False


SpawnContext = ProcessContext


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run `fn(i, *args)` in processes i = 0 … nprocs - 1, begun by `start_method`. With `join` wait for them and raise
    the first failure; else return a `ProcessContext`.

    >>> from wisp import multiprocessing as mp
    >>> mp.start_processes(print, nprocs=1, start_method="fork") is None
    True
    """
    from wisp import multiprocessing as mp

    context = mp.get_context(start_method)
    made_secret = "WISP_SECRET" not in os.environ
    if made_secret:
        os.environ["WISP_SECRET"] = secrets.token_hex(32)  # by which ranks among them, and this process, know each other
    processes, reports = [], []
    for i in range(nprocs):
        handle, report = tempfile.mkstemp(prefix="wisp-spawn-", suffix=".pickle")
        os.close(handle)
        process = context.Process(target=_run, args=(fn, i, args, report), daemon=daemon)
        process.start()
        processes.append(process)
        reports.append(report)
    result = ProcessContext(processes, reports)
    result._made_secret = made_secret
    if not join:
        return result
    try:
        while not result.join():
            pass
    except KeyboardInterrupt:
        result._end_all(1)
        result._clean()
        raise
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Run `fn(i, *args)` in `nprocs` fresh processes. If one fails, the others are ended and its traceback is raised
    as `ProcessRaisedException` (or `ProcessExitedException`, if it had no chance to say what happened).

    >>> from wisp import multiprocessing as mp
    >>> mp.spawn(print, args=("hello",), nprocs=2)
    """
    if start_method != "spawn":
        warnings.warn(
            f"spawn() starts processes by 'spawn' (got start_method={start_method!r}); use start_processes() for other ways",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
