"""The profiler: events, sums, schedules, files."""

import doctest
import glob
import gzip
import json
import threading
import time

import pytest

import wisp
from wisp import nn
from wisp.profiler import ProfilerAction, ProfilerActivity, _events, _ranges, profile, record_function, schedule, tensorboard_trace_handler


def work():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    loss = (model(wisp.ones(5, 4)) ** 2).mean()
    loss.backward()


def test_events_and_sums():
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as prof:
        with record_function("outside"):
            work()
            x = wisp.zeros(1000)
            x += 1
            y = -x > x[3]
    counts = {row.key: row.count for row in prof.key_averages()}
    assert counts["linear"] == 2 and counts["relu"] == counts["pow"] == counts["mean"] == counts["neg"] == counts["gt"] == 1
    assert counts["AddmmBackward0"] == 2 and counts["AccumulateGrad"] == 4 and counts["add_"] == counts["getitem"] == 1
    outside = next(event for event in prof.events() if event.name == "outside")
    assert outside.is_user_annotation and all(event.cpu_parent is not None for event in prof.events() if event is not outside)
    assert outside.cpu_time_total >= sum(child.cpu_time_total for child in outside.cpu_children)
    linear = next(event for event in prof.events() if event.name == "linear")
    assert linear.input_shapes == [[5, 4], [8, 4], [8]] and linear.cpu_memory_usage >= 5 * 8 * 4
    assert next(event for event in prof.events() if event.name == "zeros").cpu_memory_usage >= 4000
    total = prof.key_averages().self_cpu_time_total
    assert abs(total - outside.cpu_time_total) < 1e-3 * max(total, 1)
    by_shape = [row for row in prof.key_averages(group_by_input_shape=True) if row.key == "linear"]
    assert len(by_shape) == 2
    del y


def test_table():
    with profile(profile_memory=True, with_flops=True) as prof:
        wisp.ones(8, 16) @ wisp.ones(16, 4)
    table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=1)
    assert table.count("\n") == 6 and "Self CPU time total" in table and "CPU Mem" in table
    row = next(row for row in prof.key_averages() if row.key == "matmul")
    assert row.flops == 2 * 8 * 16 * 4 and "MFLOPs" in prof.key_averages().table()
    with pytest.raises(ValueError, match="sort_by must be one of"):
        prof.key_averages().table(sort_by="speed")


def test_optimizers():
    p = wisp.ones(2, requires_grad=True)
    optimizer = wisp.optim.SGD([p], lr=0.1)
    p.sum().backward()
    with profile() as prof:
        optimizer.step()
    optimizer.step()
    step, *inside = prof.events()
    assert step.name == "Optimizer.step#SGD.step" and inside and all(event.cpu_parent is step for event in inside)
    assert not wisp.optim.optimizer._global_pre_hooks and not wisp.optim.optimizer._global_post_hooks


def test_off_and_nested():
    assert not wisp._core._profiler_enabled()
    with record_function("nothing"):
        pass
    prof = profile()
    with pytest.raises(RuntimeError, match="nothing yet"):
        prof.events()
    with prof:
        with pytest.raises(RuntimeError, match="already enabled"):
            with profile():
                pass
    assert not wisp._core._profiler_enabled()
    with pytest.raises(ZeroDivisionError):
        with profile() as failed:
            with record_function("part"):
                wisp.ones(2) + 1
                1 / 0
    assert [event.name for event in failed.events()] == ["part", "ones", "add"]


def test_scope_outlives_its_profile():
    prof = profile()
    prof.start()
    part = record_function("part").__enter__()
    prof.stop()
    with profile() as other:
        wisp.ones(2)
        part.__exit__()
    assert [event.name for event in other.events()] == ["ones"] and other.events()[0].cpu_parent is None


def test_schedule():
    ready = []
    with profile(
        schedule=schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda p: ready.append((p.step_num, sorted({e.name for e in p.events()}))),
    ) as prof:
        for _ in range(12):
            wisp.ones(1)
            prof.step()
    assert ready == [(5, ["ProfilerStep#3", "ProfilerStep#4", "ones"]), (9, ["ProfilerStep#7", "ProfilerStep#8", "ones"])]
    actions = [schedule(wait=0, warmup=1, active=1)(i) for i in range(4)]
    assert actions == [ProfilerAction.WARMUP, ProfilerAction.RECORD_AND_SAVE] * 2
    with pytest.raises(ValueError, match="active > 0"):
        schedule(wait=1, warmup=1, active=0)


def test_chrome_trace(tmp_path):
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        work()
    prof.add_metadata("note", "hello")
    prof.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    spans = [row for row in trace["traceEvents"] if row["ph"] == "X"]
    names = {row["name"] for row in spans}
    assert {"linear", "nn.Module: Sequential", "nn.Module: ReLU", "MeanBackward0", "backward"} <= names and trace["note"] == "hello"
    assert all(row["dur"] >= 0 for row in spans)
    assert any("test_profiler.py" in row["args"]["Call stack"] for row in spans)
    starts = [row["id"] for row in trace["traceEvents"] if row["ph"] == "s"]
    ends = [row["id"] for row in trace["traceEvents"] if row["ph"] == "f"]
    assert starts == ends and len(starts) >= 4
    assert any(row["ph"] == "C" for row in trace["traceEvents"])
    prof.export_stacks(tmp_path / "stacks.txt")
    assert "linear" in (tmp_path / "stacks.txt").read_text()
    prof.export_memory_timeline(tmp_path / "memory.json")
    times, sizes = json.loads((tmp_path / "memory.json").read_text())
    assert len(times) == len(sizes) and times == sorted(times)
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "log"), use_gzip=True)):
        wisp.ones(1)
    (path,) = glob.glob(str(tmp_path / "log" / "*.pt.trace.json.gz"))
    assert json.loads(gzip.open(path).read())["traceEvents"]


def test_threads_and_decorator():
    @record_function("decorated")
    def f():
        wisp.ones(1)

    with profile() as prof:
        threads = [threading.Thread(target=f) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sum(event.name == "decorated" for event in prof.events()) == 3
    assert all(event.cpu_parent.name == "decorated" for event in prof.events() if event.name == "ones")


def test_older_name():
    with wisp.autograd.profiler.profile(record_shapes=True) as prof:
        wisp.ones(2) + 1
    assert "add" in str(prof) and prof.total_average().count == 2 and len(prof.function_events) == 2
    with wisp.autograd.profiler.profile(enabled=False) as off:
        pass
    assert "unfinished" in str(off)
    if not wisp.cuda.is_available():
        with pytest.raises(RuntimeError, match="need CUDA"):
            with wisp.autograd.profiler.emit_nvtx():
                pass


@pytest.mark.parametrize("module", [wisp.profiler, _events, _ranges, wisp.autograd.profiler], ids=lambda module: module.__name__)
def test_examples(module):
    assert doctest.testmod(module, extraglobs={"wisp": wisp}).failed == 0


class _Sleepy(wisp.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        time.sleep(0.002)
        return wisp.zeros(4), i


@pytest.mark.parametrize("workers", [0, 1])
def test_the_wait_for_batches_is_seen(workers):
    loader = wisp.utils.data.DataLoader(_Sleepy(), batch_size=4, num_workers=workers)
    with profile() as prof:
        count = sum(1 for _ in enumerate(loader))
    kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
    (row,) = [row for row in prof.key_averages() if row.key == f"enumerate(DataLoader)#{kind}.__next__"]
    assert count == 2 and row.count == 3 and row.cpu_time_total > 8000
    before = len(prof.events())
    assert sum(1 for _ in loader) == 2 and len(prof.events()) == before  # nothing stays behind


def test_reading_values_is_seen():
    x = wisp.ones(1)
    with profile() as prof:
        x.item(), float(x), int(x), bool(x), x.tolist()
    assert {row.key: row.count for row in prof.key_averages()} == {"item": 4, "tolist": 1}


def test_no_share_is_above_100():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with profile(with_modules=True) as prof, record_function("all"):
        for _ in range(3):
            with record_function("again"), record_function("again"):
                model(wisp.ones(2, 4)).sum().backward()
    table = prof.key_averages().table()
    shares = [float(word[:-1]) for word in table.split() if word.endswith("%") and word != "%"]
    assert len(shares) > 10 and max(shares) <= 100.0
    again = {row.key: row for row in prof.key_averages()}["again"]
    assert again.count == 6 and again.cpu_time_total <= prof.events().self_cpu_time_total


def test_ranges_and_names_as_older_programs_have_them():
    from wisp.autograd.profiler import profile as older

    with older() as prof:
        handle = wisp.ops.profiler._record_function_enter("by hand", None)
        wisp.ones(2) * 2
        wisp.ops.profiler._record_function_exit(handle)
    names = [event.name for event in prof.function_events]
    assert names[0] == "by hand" and "aten::mul" in names
    graph = wisp.fx.Graph()
    handle = graph.call_function(wisp.ops.profiler._record_function_enter_new, ("range",))
    graph.call_function(wisp.ops.profiler._record_function_exit, (handle,))
    graph.output(None)
    graph.eliminate_dead_code()
    assert len(graph.nodes) == 3
