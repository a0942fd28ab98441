"""How many calls a module answers in a second when several threads call it."""

import contextlib
import itertools
import random
import threading
import time

import wisp


class ExecutionStats:
    """What `ThroughputBenchmark.benchmark` measured."""

    def __init__(self, seconds, num_iters, threads):
        self.total_time_seconds, self.num_iters, self._threads = seconds, num_iters, threads
        self.iters_per_second = num_iters / seconds
        self.latency_avg_ms = 1000 * seconds * threads / num_iters  # of one call: threads wait for theirs at the same time

    def __str__(self):
        return (
            f"Average latency per call: {self.latency_avg_ms:.3f} ms\n"
            f"Calls: {self.num_iters} by {self._threads} threads in {self.total_time_seconds:.3f} s\n"
            f"Calls per second: {self.iters_per_second:.1f}"
        )

    __repr__ = __str__


class ThroughputBenchmark:
    """Calls a module from several threads at once and counts, as a server would use it.

    >>> import wisp
    >>> benchmark = wisp.utils.ThroughputBenchmark(wisp.nn.Linear(3, 2))
    >>> benchmark.add_input(wisp.ones(4, 3))
    >>> benchmark.benchmark(num_calling_threads=2, num_iters=10).num_iters
    10
    """

    def __init__(self, module):
        self._module, self._inputs = module, []

    def add_input(self, *args, **kwargs):
        """Arguments that the module is called with; each call takes those of one `add_input`, chosen at random."""
        self._inputs.append((args, kwargs))

    def run_once(self, *args, **kwargs):
        """The module's result for these arguments."""
        return self._module(*args, **kwargs)

    def benchmark(self, num_calling_threads=1, num_warmup_iters=10, num_iters=100, profiler_output_path=""):
        """Call the module `num_iters` times in all, after each thread has called it `num_warmup_iters` times.

        With a path, what the calls did is written there for chrome://tracing.
        """
        if not self._inputs:
            raise RuntimeError("ThroughputBenchmark.benchmark: there is nothing to call the module with; call add_input first")
        if num_calling_threads < 1 or num_iters < 1:
            raise ValueError(
                f"ThroughputBenchmark.benchmark: expected at least one thread and one call, got num_calling_threads={num_calling_threads}, "
                f"num_iters={num_iters}"
            )
        mode, left, problems = wisp.is_grad_enabled(), itertools.count(), []
        ready = threading.Barrier(num_calling_threads + 1)

        def call():
            args, kwargs = random.choice(self._inputs)
            self._module(*args, **kwargs)

        def work():
            with wisp.set_grad_enabled(mode):
                try:
                    for _ in range(num_warmup_iters):
                        call()
                except BaseException as error:
                    problems.append(error)
                ready.wait()
                while not problems and next(left) < num_iters:
                    try:
                        call()
                    except BaseException as error:
                        problems.append(error)

        threads = [threading.Thread(target=work) for _ in range(num_calling_threads)]
        with wisp.profiler.profile() if profiler_output_path else contextlib.nullcontext() as profile:
            for thread in threads:
                thread.start()
            ready.wait()
            begin = time.perf_counter()
            for thread in threads:
                thread.join()
            seconds = time.perf_counter() - begin
        if problems:
            raise problems[0]
        if profile is not None:
            profile.export_chrome_trace(profiler_output_path)
        return ExecutionStats(seconds, num_iters, num_calling_threads)
