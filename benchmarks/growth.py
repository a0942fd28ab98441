"""How cost grows with size, on Wisp and on PyTorch, turn by turn in two processes.

    python benchmarks/growth.py             every row
    python benchmarks/growth.py state       those whose names contain a word

Each row runs at four sizes, every one twice the one before. The exponent is the slope of time against size between the second and the
last (the first is warm-up); 1.0 is linear. The last column is Wisp's time at the largest size as a fraction of PyTorch's.

What keeps many objects alive (graphs, parameters) outgrows the caches on its way, and then each object costs more, whoever made it: such a
row begins where it has left them, with twice the bytes of the last cache at its second size. Python's collector begins to walk through all
objects at sizes of its own, so that exponents are measured without it, as `timeit` does; the times in milliseconds, and with them the
fractions, are measured with it. A side that took more than two seconds, or that died, is not asked for larger sizes, and the fraction is
that of the largest size that both did. A row is marked if its exponent is above 1.1 times the power of its work, or if it is slower than
PyTorch.
Needs torch in the same environment and a quiet machine.
"""

import gc
import importlib
import io
import json
import math
import pathlib
import subprocess
import sys
import time

ROUNDS = 3
LINEAR = 1.1
N_LOG_N = 1.08  # the exponent of n log n between a quarter of a million and a million
SECONDS = 2.0  # a row that took longer is not made larger


def last_cache():
    """The bytes of the largest cache of the first processor, as Linux tells them; 32 MiB where it does not."""
    sizes = [32 << 10]
    for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KM")) * (1024 if text.endswith("M") else 1))
    return 1024 * max(sizes)


def rows(torch):
    """name -> (largest size, function of a size that makes the work, its power of the size, bytes that an item keeps alive or 0)"""
    nn, leaf = torch.nn, lambda *sizes: torch.ones(*sizes, requires_grad=True)

    def depth(n):
        def work():
            x = y = leaf(1)
            for _ in range(n):
                y = y + 1
            y.backward()
            assert x.grad.item() == 1

        return work

    def fan_out(n):
        def work():
            x = leaf(1)
            total = torch.stack([x * 2 for _ in range(n)]).sum()
            total.backward()

        return work

    def one_leaf(n):
        def work():
            x, y = leaf(1), torch.zeros(1)
            for _ in range(n):
                y = y + x
            y.backward()

        return work

    def indexing(n):
        def work():
            x = leaf(n)
            sum(x[i] for i in range(n)).backward()

        return work

    def writes(n):
        def work():
            x, y = leaf(n), torch.zeros(n)
            for i in range(n):
                y[i] = x[i]
            y.sum().backward()

        return work

    def views(n):
        def work():
            x = leaf(4, 4)
            y = x * 1
            for _ in range(n):
                y = y.t()
            y.sum().backward()

        return work

    def module(n):
        model = nn.ModuleList(nn.Linear(2, 2) for _ in range(n))
        return model

    def tree(n):
        """n modules as a tree whose nodes have two children."""
        root = nn.Module()
        nodes = [root]
        for i in range(1, n):
            child = nn.Module()
            child.weight = nn.Parameter(torch.zeros(1))
            nodes[(i - 1) // 2].add_module(f"m{i}", child)
            nodes.append(child)
        return root

    def states(n):
        model = tree(n)
        return lambda: model.state_dict()

    def loads(n):
        model = tree(n)
        state = model.state_dict()
        return lambda: model.load_state_dict(state)

    def loads_list(n):
        model = module(n)
        state = model.state_dict()
        return lambda: model.load_state_dict(state)

    def names(n):
        model = tree(n)
        return lambda: dict(model.named_parameters())

    def made(n):
        return lambda: module(n)

    def saved(n):
        tensors = {f"t{i}": torch.zeros(8) for i in range(n)}

        def work():
            buffer = io.BytesIO()
            torch.save(tensors, buffer)

        return work

    def loaded(n):
        buffer = io.BytesIO()
        torch.save({f"t{i}": torch.zeros(8) for i in range(n)}, buffer)

        def work():
            buffer.seek(0)
            torch.load(buffer)

        return work

    def gradients(n):
        parameters = [leaf(8) for _ in range(n)]
        for p in parameters:
            p.grad = torch.ones(8)
        return parameters

    def clip(n):
        parameters = gradients(n)
        return lambda: nn.utils.clip_grad_norm_(parameters, 1e9)

    def optimizer(kind, **options):
        def make(n):
            o = getattr(torch.optim, kind)(gradients(n), lr=1e-9, **options)
            o.step()
            return o.step

        return make

    def zero_grad(n):
        o = torch.optim.SGD(gradients(n), lr=1e-9)
        return lambda: o.zero_grad(set_to_none=False)

    def optimizer_state(n):
        o = torch.optim.Adam(gradients(n))
        o.step()
        return lambda: o.load_state_dict(o.state_dict())

    def loader(n):
        data = torch.utils.data.TensorDataset(torch.zeros(n, 4), torch.zeros(n))
        return lambda: sum(1 for _ in torch.utils.data.DataLoader(data, batch_size=32, shuffle=True))

    def of_numbers(f):
        def make(n):
            x = (torch.arange(n) * 7919 % 100003).float()
            return lambda: f(x)

        return make

    def jacobian(f):
        def make(n):
            x = torch.linspace(0, 1, n)
            return lambda: f(lambda v: v.sin() * v, x)

        return make

    def cat(n):
        parts = [torch.zeros(4) for _ in range(n)]
        return lambda: torch.cat(parts)

    def lists(n):
        nested = [[float(i), 1.0] for i in range(n)]
        return lambda: torch.tensor(nested)

    def hooks(n):
        def work():
            y = leaf(1)
            for _ in range(n):
                y = y * 1
                y.register_hook(lambda g: g)
            y.backward()

        return work

    return {
        "graph: a chain of additions": (32000, depth, 1.0, 850),
        "graph: one leaf, its products stacked": (16000, fan_out, 1.0, 2250),
        "graph: one leaf used in a chain": (32000, one_leaf, 1.0, 850),
        "graph: a chain of views": (16000, views, 1.0, 540),
        "graph: a hook at every value": (8000, hooks, 1.0, 2200),
        "indexing: x[i] of all i, with backward": (4000, indexing, 1.0, 1700),
        "in-place: y[i] = x[i] for all i, with backward": (2000, writes, 1.0, 2900),
        "modules: construction": (4000, made, 1.0, 3100),
        # names in a tree are as long as it is deep
        "modules: state_dict of a tree": (8000, states, N_LOG_N, 1800),
        "modules: load_state_dict of a tree": (4000, loads, N_LOG_N, 1800),
        "modules: load_state_dict of a list": (2000, loads_list, 1.0, 3100),
        "modules: named_parameters of a tree": (8000, names, N_LOG_N, 1800),
        "files: save small tensors": (3200, saved, 1.0, 0),
        "files: load small tensors": (3200, loaded, 1.0, 0),
        "parameters: clip_grad_norm_": (8000, clip, 1.0, 1500),
        "parameters: zero_grad": (8000, zero_grad, 1.0, 1500),
        "parameters: SGD with momentum": (8000, optimizer("SGD", momentum=0.9), 1.0, 2600),
        "parameters: Adam": (8000, optimizer("Adam"), 1.0, 4300),
        "parameters: AdamW, one by one": (4000, optimizer("AdamW", foreach=False), 1.0, 4300),
        "parameters: RMSprop": (8000, optimizer("RMSprop"), 1.0, 3500),
        "parameters: Adam's state there and back": (4000, optimizer_state, 1.0, 4300),
        "data: loader of a TensorDataset": (64000, loader, 1.0, 0),
        "data: a tensor of nested lists": (64000, lists, 1.0, 0),
        "join: cat of small tensors": (16000, cat, 1.0, 750),
        "sort": (1 << 20, of_numbers(lambda x: x.sort()), N_LOG_N, 0),
        "argsort, stable": (1 << 20, of_numbers(lambda x: torch.argsort(x, stable=True)), N_LOG_N, 0),
        "unique": (1 << 20, of_numbers(lambda x: torch.unique(x, return_inverse=True)), N_LOG_N, 0),
        "topk": (1 << 20, of_numbers(lambda x: x.topk(100)), 1.0, 0),
        "median": (1 << 20, of_numbers(lambda x: x.median()), 1.0, 0),
        "cumsum": (1 << 21, of_numbers(lambda x: x.cumsum(0)), 1.0, 0),
        "jacobian: func.jacrev": (1600, jacobian(lambda f, x: torch.func.jacrev(f)(x)), 2.0, 0),
        "jacobian: func.jacfwd": (1600, jacobian(lambda f, x: torch.func.jacfwd(f)(x)), 2.0, 0),
        "jacobian: autograd.functional": (800, jacobian(lambda f, x: torch.autograd.functional.jacobian(f, x)), 2.0, 0),
    }


def serve(package):
    """Answers each [name, size, whether Python's collector runs] with the seconds that the work took."""
    sys.setrecursionlimit(10000)
    torch = importlib.import_module(package)
    table = rows(torch)
    print(json.dumps({name: [row[0], *row[2:]] for name, row in table.items()}), flush=True)
    made = {}
    for line in sys.stdin:
        name, size, collects = json.loads(line)
        if (name, size) not in made:
            if not any(key[0] == name for key in made):
                made.clear()
            made[name, size] = table[name][1](size)
        work = made[name, size]
        gc.collect()
        if not collects:
            gc.disable()
        start = time.perf_counter()
        work()
        print(json.dumps(time.perf_counter() - start), flush=True)
        gc.enable()


def exponent(times):
    return math.log(times[3] / times[1]) / math.log(4) if times[3] < math.inf else math.nan


class Side:
    """A process with one of the packages. One that dies at a size (deep graphs overflow its stack) is started anew, and took for ever."""

    def __init__(self, package):
        self.package = package
        self.start()

    def start(self):
        command = [sys.executable, __file__, "--serve", self.package]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.found = json.loads(self.process.stdout.readline())

    def ask(self, *question):
        print(json.dumps(question), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            self.process.wait()
            self.start()
        return json.loads(answer or "Infinity")


def main(words):
    sides = [Side("wisp"), Side("torch")]
    outside = 2 * last_cache()
    print(f"{'':48}{'size':>9}{'exponent':>10}{'torch':>8}{'at size':>9}{'wisp ms':>10}{'torch ms':>10}{'fraction':>10}")
    for name, (least, power, held) in sides[0].found.items():
        if not all(word in name for word in words):
            continue
        largest = max(least, 4 * outside // held) if held else least
        sizes = [largest // 8, largest // 4, largest // 2, largest]
        times = [[math.inf] * 4 for _ in sides]
        for turn in range(ROUNDS):  # sizes and sides take turns: what disturbs the machine disturbs all of them
            for i, size in enumerate(sizes):
                for t, side in zip(times, sides):
                    if max([0.0, *t[:i]]) < SECONDS and (turn == 0 or t[i] < SECONDS):
                        t[i] = min(t[i], side.ask(name, size, False))
        slopes = [exponent(t) for t in times]
        both = max(i for i in range(4) if max(t[i] for t in times) < math.inf)
        wisp, torch = (min(side.ask(name, sizes[both], True) for _ in range(2)) for side in sides)
        mark = " <-" if slopes[0] > LINEAR * power or wisp > torch else ""
        print(
            f"{name:48}{largest:9}{slopes[0]:10.2f}{slopes[1]:8.2f}{sizes[both]:9}{wisp * 1e3:10.2f}{torch * 1e3:10.2f}"
            f"{wisp / torch:10.2f}{mark}",
            flush=True,
        )
    for side in sides:
        side.process.stdin.close()


if __name__ == "__main__":
    serve(sys.argv[2]) if sys.argv[1:2] == ["--serve"] else main(sys.argv[1:])
