"""wisp.utils.ThroughputBenchmark."""

import json
import threading

import pytest

import wisp


def test_calls_of_several_threads_are_counted(tmp_path):
    calls, threads = [], set()

    def module(x, scale=1.0):
        calls.append(scale)
        threads.add(threading.get_ident())
        assert not wisp.is_grad_enabled()
        return x * scale

    benchmark = wisp.utils.ThroughputBenchmark(module)
    benchmark.add_input(wisp.ones(2))
    benchmark.add_input(wisp.ones(2), scale=2.0)
    with wisp.no_grad():
        assert benchmark.run_once(wisp.ones(2), scale=3.0).tolist() == [3.0, 3.0]
        calls.clear()
        stats = benchmark.benchmark(
            num_calling_threads=2, num_warmup_iters=3, num_iters=40, profiler_output_path=str(tmp_path / "trace.json")
        )
    assert stats.num_iters == 40 and len(calls) == 2 * 3 + 40 and set(calls) == {1.0, 2.0}
    assert stats.iters_per_second > 0 and stats.latency_avg_ms > 0 and "Calls per second" in str(stats)
    assert json.loads((tmp_path / "trace.json").read_text())


def test_what_a_call_raises_is_raised():
    benchmark = wisp.utils.ThroughputBenchmark(wisp.nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match="call add_input first"):
        benchmark.benchmark()
    benchmark.add_input(wisp.ones(2))
    with pytest.raises(RuntimeError, match="shapes"):
        benchmark.benchmark(num_calling_threads=2)
