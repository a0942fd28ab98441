"""Compiled functions that gain nothing rest: they are called as any function is, until large memory is made.

They only do so in a process that uses no GPU, so the checks run in one of their own.
"""

import gc
import pathlib
import subprocess
import sys
import threading
import weakref

import wisp


def test_resting_in_a_process_of_its_own():
    result = subprocess.run([sys.executable, __file__], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    names = [line.split("(")[0][4:] for line in pathlib.Path(__file__).read_text().splitlines() if line.startswith("def check_")]
    assert result.stdout.split() == names


def rests(f):
    return id(f.__code__) in wisp._core._resting_codes()


def settled(f, *args):
    """f, after so many calls that it rests."""
    for _ in range(20):
        f(*args)
    assert rests(f)
    return f


def noted():
    return wisp.compiler.statistics()["noted"]


def check_arguments_closures_and_errors():
    factor = 3

    @wisp.compile
    def work(x, by=2, *rest, plus=1, **more):
        if by == 0:
            raise ValueError("by")
        return x * by * factor + plus + len(rest) + len(more)

    x = wisp.ones(2)
    for _ in range(40):
        assert work(x)[0] == 7 and work(x, 1, 5, plus=0, other=None)[0] == 5 and work(x=x, by=1)[0] == 4
        for wrong, error in (((x, 0), ValueError), ((), TypeError)):
            try:
                work(*wrong)
            except error:
                continue
            raise AssertionError
    settled(work, x)
    factor = 4
    assert work(x)[0] == 9
    work.__defaults__ = (1,)
    work.__kwdefaults__ = {"plus": 0}
    assert work(x)[0] == 4 and rests(work)
    settled(work, x)
    assert work(x)[0] == 4


def check_methods_recursion_generators_and_coroutines():
    class Base:
        def times(self, x, n=0):
            return x * self.factor

    class Holder(Base):
        factor = 3

        @wisp.compile
        def times(self, x, n=0):
            return super().times(x) if n == 0 else self.times(x, n - 1)

        @wisp.compile
        def __getitem__(self, i):
            return i * wisp.ones(2)

        @property
        @wisp.compile
        def two(self):
            return wisp.ones(2) + 1

    holder, x = Holder(), wisp.ones(2)
    for _ in range(40):
        assert holder.times(x, 3)[0] == 3 and Holder.times(holder, x)[0] == 3 and holder[2][0] == 2 and holder.two[0] == 2
    assert rests(Holder.times) and rests(Holder.__getitem__) and rests(Holder.two.fget)

    @wisp.compile
    def numbers(n):
        for i in range(n):
            yield i, wisp.compiler.is_compiling()

    @wisp.compile
    async def later(x):
        return x * 2

    for _ in range(40):
        assert list(numbers(2)) == [(0, False), (1, False)]
        try:
            later(x).send(None)
        except StopIteration as end:
            assert end.value[0] == 2


def check_is_compiling():
    seen = []
    asks = wisp.compile(lambda: seen.append((wisp.compiler.is_compiling(), wisp.compiler.disable(wisp.compiler.is_compiling)())))
    settled(asks)
    assert set(seen) == {(True, False)}
    with wisp.compiler.set_stance("force_eager"):
        asks()
    assert seen[-1] == (False, False) and not wisp.compiler.is_compiling()
    assert settled(wisp.compile(wisp.compiler.is_compiling))() is True

    def plain():
        return wisp.compiler.is_compiling()

    compiled = settled(wisp.compile(plain))
    assert compiled() and not plain()


def check_large_tensors_wake():
    @wisp.compile
    def work(x):
        return (x * 2 + 1).exp()

    small, large = wisp.ones(4), wisp.ones(200, 200)
    for _ in range(3):  # what was gained is not forgotten
        settled(work, small)
        expected, before = work(large), noted()
        assert not rests(work) and wisp.equal(work(large), expected) and noted() == before + 3
    # a large tensor elsewhere wakes too, but ever less often where nothing comes of it
    settled(work, small)
    woken = 0
    for _ in range(3000):
        large * 2
        if not rests(work):
            woken += 1
            settled(work, small)
    assert 5 < woken < 20
    for _ in range(1100 // 3):
        work(large)
    before = noted()
    work(large)
    assert noted() == before + 3
    # one within a region of another notes there, and a region within it, too
    settled(work, small)
    outer = wisp.compile(lambda x: work(x) - 1)
    before = noted()
    outer(large)
    assert noted() == before + 4
    settled(work, small)
    wisp.compiler.explain(work)(large)
    assert noted() == before + 7


def check_threads():
    @wisp.compile
    def work(x):
        return (x * 2 + 1).tanh()

    small, large, wrong = wisp.ones(4), wisp.ones(200, 200), []
    expected = float(work(small)[0])

    def run(which):
        for i in range(2000):
            x = large if which == 0 and i % 100 < 3 else small
            if float(work(x).flatten()[0]) != expected:
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def check_functions_end():
    class Held:
        pass

    def made(calls):
        held = Held()

        @wisp.compile
        def work(n):
            return held if n == 0 else work(n - 1)

        for _ in range(calls):
            assert work(2) is held
        return weakref.ref(held)

    for calls in (0, 1, 40):
        seen = made(calls)
        gc.collect()
        assert seen() is None
    many = [settled(wisp.compile(lambda i=i: wisp.ones(2) * i)) for i in range(100)]
    assert len(wisp._core._resting_codes()) >= 100
    del many
    gc.collect()
    assert len(wisp._core._resting_codes()) < 100


def check_the_meta_device_keeps_nobody_awake():
    @wisp.compile
    def work(x):
        return x * 2

    wisp.ones(2, device="meta")
    settled(work, wisp.ones(2))


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            print(name, flush=True)
            check()
