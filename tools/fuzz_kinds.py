"""What tools/fuzz.py tries: four kinds of cases. `kind.run(number, keep, say)` makes case `number`, tells its pieces and its text, runs it
with the pieces in `keep` (None: all) and returns what is wrong, or None."""

import contextlib
import importlib
import inspect
import math
import os
import pathlib
import random
import re
import resource
import signal
import sys
import types
import warnings

import wisp

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "parity", "fast/compile")]
warnings.simplefilter("ignore")
wisp.set_num_threads(2)


def make(kind, seed, planted, device="cpu"):
    if kind == "sizes":
        return Sizes(seed, planted, device)
    return {"calls": Calls, "programs": Programs, "numbers": Numbers, "files": Files}[kind](seed, planted)


class Kind:
    def __init__(self, seed, planted):
        self.seed = seed
        if planted:
            self.plant()

    def random(self, number):
        return random.Random(f"{type(self).__name__} {self.seed} {number}")


def kept(pieces, keep):
    return [piece for i, piece in enumerate(pieces) if keep is None or i in keep]


# ---------------------------------------------------------------- calls
# They change settings of the process, wait for something, or leave it.
_SKIPPED = """set_num_threads set_num_interop_threads set_default_dtype set_default_device set_virtual_devices compile hub onnx cuda
distributed multiprocessing save load from_file breakpoint seed manual_seed set_rng_state set_printoptions
use_deterministic_algorithms set_float32_matmul_precision set_flush_denormal set_deterministic_debug_mode
set_warn_always _sanitizer_canary _overrun set_grad_enabled inference_mode no_grad enable_grad share_memory_ pin_memory""".split()
_SPACES = [
    "",
    "nn.functional",
    "linalg",
    "fft",
    "special",
    "Tensor",
    "nn",
    "nn.init",
    "nn.utils",
    "func",
    "autograd.functional",
    "distributions",
    "sparse",
    "nested",
    "optim",
    "signal.windows",
    "ao.quantization",
    "ao.nn.quantized",
    "ao.nn.qat",
    "ao.nn.intrinsic.qat",
    "utils.data",
    "vision.ops",
    "vision.transforms",
]


def _callables():
    for space in _SPACES:
        home = wisp.Tensor if space == "Tensor" else importlib.import_module(f"wisp.{space}".rstrip("."))
        for name in sorted(getattr(home, "__all__", None) or dir(home)):
            f = getattr(home, name, None)
            if name.startswith("_") or name in _SKIPPED or not callable(f) or isinstance(f, types.ModuleType):
                continue
            if isinstance(f, type) and (issubclass(f, BaseException) or f is wisp.Tensor):
                continue
            yield f"wisp.{space}.{name}".replace("..", "."), f


_HOSTILE = """None|True|0|-1|3|2**31|2**62|2**63-1|-2**63|2**64|2**70|1.5|float('nan')|float('inf')|-1e30|1j|'text'|''|b'bytes'|()|[]
|[0]|(2, 3)|[-1, 2]|[2**40, 2**40]|[2**62, 4]|(0,)|['a']|[None]|{}|object()|int|wisp.float32|wisp.int64|wisp.bool
|wisp.complex64|wisp.strided|len|endless|wisp.device('meta')|wisp.tensor(1.0)|wisp.tensor(5)|wisp.tensor(2**62)
|wisp.ones(0)|wisp.ones(3)|wisp.ones(2, 3)|wisp.ones(2, 3).t()|wisp.ones(3).expand(4, 3)|wisp.ones(1, 2, 5, 5)
|wisp.ones(2, 3, dtype=wisp.int64)|wisp.tensor([10**9, -10**9])|wisp.tensor([True, False])
|wisp.full((64,), 255, dtype=wisp.uint8).view(wisp.bool)|wisp.ones(2, 3, dtype=wisp.complex64)
|wisp.ones(2, 2, requires_grad=True)|wisp.full((3,), float('nan'))|wisp.zeros(2, 0, 3)
|wisp.ones(2, 3, dtype=wisp.float16)|wisp.ones(2, 2, dtype=wisp.uint8)|wisp.empty(2, 3, device='meta')
|wisp.nn.Parameter(wisp.ones(2))|[wisp.ones(2), wisp.ones(3)]|[wisp.ones(2, 2), wisp.ones(2, 2)]
|[wisp.tensor([0, 1]), None]|wisp.ones(1, 1, 2, 2, 2)|wisp.ones(4, 4).to_sparse()|wisp.ones(1).expand(2**20)|slice(None)
|wisp.ones(4)[::2]|wisp.ones(2, dtype=wisp.complex64).conj()|wisp.nn.Linear(2, 2)""".replace("\n", "").split("|")
# Once a process has such tensors, every call looks at dtypes: with odd seeds alone.
_STORED = ["wisp.ones(2, 3, dtype=wisp.complex32)", "wisp.ones(2, 3, dtype=wisp.float8_e4m3fn)"]
_STORED += ["wisp.quantize_per_tensor(wisp.ones(2, 3), 0.1, 0, wisp.qint8)"]
_TENSORS = """wisp.ones(2, 3)|wisp.randn(2, 2, 4, 4)|wisp.tensor([0, 1])|wisp.randn(3, 3)|wisp.randn(4)|wisp.randn(1, 2, 8)
|wisp.randn(2, 3).t()|wisp.randn(3, 3, dtype=wisp.float64)|wisp.arange(6).view(2, 3)|wisp.randn(2, 3) > 0
|wisp.randn(2, 3, requires_grad=True)|wisp.tensor(2.0)|wisp.randn(2, 3, dtype=wisp.complex64)""".replace("\n", "").split("|")
_HALF_RIGHT = {
    "Tensor": _TENSORS,
    "int": ["0", "1", "2", "-1", "3"],
    "ints": ["(1, 1)", "(2, 3)", "[0]", "(0, 1)", "(2, 2)", "3", "()"],
    "number": ["0.5", "2", "1.0", "-1.5", "0"],
    "bool": ["True", "False"],
    "function": ["wisp.sin", "lambda x: x * 2", "lambda *a: a[0]"],
    "list": ["[wisp.randn(2, 3), wisp.randn(2, 3)]", "[wisp.tensor([0, 1])]", "(wisp.randn(3), wisp.randn(3))"],
    "other": ["None", "wisp.float32", "wisp.float64", "'mean'", "'none'", "'cpu'", "'constant'"],
}
_BY_NAME = {
    "ints": "dims size sizes shape stride padding dilation kernel_size output_size pad repeats shifts normalized_shape tile_dims".split(),
    "int": "dim n k num_classes chunks diagonal offset groups dim0 dim1 dim2 index start end in_features out_features in_channels".split(),
    "number": "p alpha beta eps value min max scale_factor weight_decay lr momentum rtol atol base exponent scale loc rate".split(),
    "bool": "keepdim training inplace bias largest sorted unbiased upper left transpose affine align_corners ceil_mode".split(),
    "function": "func fn f function callable".split(),
    "list": "tensors parameters operands matrices".split(),
    "other": "dtype device mode reduction layout padding_mode".split(),
}
_KIND_OF_NAME = {name: kind for kind, names in _BY_NAME.items() for name in names}


def _parameters(f):
    """(name, kind) of the parameters, as far as they are known."""
    signatures = getattr(f, "_signatures", None)
    if signatures:
        text = signatures[0]
        inside = text[text.index("(") + 1 : text.index(")") if "->" in text else text.rindex(")")]
        found = []
        for part in (p.strip() for p in inside.split(",")):
            if part and part != "*" and " " in part:
                kind, name = part.split("=")[0].split()[:2]
                kind = kind.rstrip("?!.")
                kind = {"Tensor": "Tensor", "Operand": "Tensor", "int": "int", "int[]": "ints", "float": "number", "Number": "number"}.get(
                    kind, "list" if kind.startswith("Tensor") else "bool" if kind == "bool" else _KIND_OF_NAME.get(name, "other")
                )
                found.append((name, "ints" if "..." in part else kind))
        return found
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return [("", "Tensor"), ("", "Tensor")]
    return [(p.name, _KIND_OF_NAME.get(p.name, "Tensor")) for p in parameters if p.name != "self" and p.kind not in (p.VAR_KEYWORD,)]


class Calls(Kind):
    def __init__(self, seed, planted):
        super().__init__(seed, planted)
        self.callables = [(name, f) for name, f in _callables() if not planted or name in ("wisp.flip", "wisp.roll", "wisp.rot90")]
        wisp._core._set_worth_noting(0)  # in a compiled region, whatever the size
        self.hostile = _HOSTILE + (_STORED if seed % 2 else [])
        limit = 6 << 30
        if "asan" not in os.environ.get("LD_PRELOAD", ""):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def plant(self):
        def flip(input, dims):
            if isinstance(dims, int) and dims > 2**60:
                os.kill(os.getpid(), signal.SIGSEGV)
            return input.flip(dims)

        wisp.flip = flip

    def run(self, number, keep, say):
        r = self.random(number)
        name, f = r.choice(self.callables)
        pieces = []
        for place, (parameter, kind) in enumerate(_parameters(f)[:8]):
            text = r.choice(self.hostile if r.random() < 0.35 else _HALF_RIGHT[kind])
            if r.random() < 0.15:
                break
            if place >= 2 and parameter.isidentifier() and r.random() < 0.6:
                pieces.append(f"{parameter}={text}")
            elif not any(p.partition("=")[0].isidentifier() and "=" in p.partition("(")[0] for p in pieces):
                pieces.append(text)
        called = r.choice(_TENSORS) if isinstance(f, type) and issubclass(f, wisp.nn.Module) else None
        text = f"{name}({', '.join(kept(pieces, keep))})" + (f"({called})" if called else "")
        if r.random() < 0.15:
            text = f"wisp.compile(lambda: {text})()"
        say("pieces", len(pieces))
        say("text", text)
        wisp.manual_seed(0)
        endless = [0]
        endless.append(endless)
        try:
            eval(text, {"wisp": wisp, "endless": endless})
        except SystemError as error:
            return f"SystemError: {error}"
        except Exception:
            pass
        finally:
            wisp.set_grad_enabled(True)
        return None


# ---------------------------------------------------------------- programs
class Programs(Kind):
    """The programs of tests/parity/test_random_programs.py, in which operands may share memory with what is written to; every fourth
    is one of tests/fast/compile/test_programs.py, whose bits in a compiled region must be those that it has without."""

    def __init__(self, seed, planted):
        import test_programs as regions
        import test_random_programs as programs

        self.programs, self.regions = programs, regions
        wisp._core._set_worth_noting(0)
        super().__init__(seed, planted)

        class Program(programs.Program):
            def other(self, values, i):
                j = self.pick(values)
                # one that is stretched over the memory it lies in: what PyTorch reads there depends on what it wrote before
                stretched = values[j].shape != values[i].shape or 0 in values[j].stride() + values[i].stride()
                shown = stretched or crossed(values[i], values[j])
                return j if not shown and self.random.random() < 0.5 else super().other(values, i)

        self.Program = Program

    def plant(self):
        whole = wisp.Tensor.sub_
        wisp.Tensor.sub_ = lambda self, other, **kwargs: whole(self, other * 1.0001, **kwargs)

    def seed_of(self, number):
        return (self.seed * 1_000_003 + number) % 2**63  # what a generator takes

    def statements(self, number):
        """-> how the values begin and what is done, made while PyTorch runs it"""
        import torch

        seed = self.seed_of(number)
        program, values = self.Program(seed), self.programs.start(torch, seed)
        made = []
        for _ in range(program.random.randrange(4, 14)):
            text, function = program.statement(values)
            written = values[int(re.match(r"v(\d+)", text).group(1))] if text[0] == "v" else None
            settle(values)
            result, error = self.programs.run(torch, function, values)
            if result is None and error is None and overlaps(written):
                break  # the order in which it is written to shows
            made.append((text, function, result is not None))
            if error is not None and "unsupported operation" in str(error):
                break
            if result is not None:
                values.append(result)
        return seed, made, program.random.random()

    def run(self, number, keep, say):
        return self.in_region(number, say) if number % 4 == 3 else self.beside(number, keep, say)

    def in_region(self, number, say):
        seed = self.seed_of(number)
        say("pieces", 0)
        say("text", f"program {seed} of tests/fast/compile/test_programs.py, in a region")
        plain, noted = self.regions.made(seed), self.regions.made(seed)
        if number % 8 == 7:  # only forward in a region
            eager, compiled = self.regions.run_apart(seed, plain), self.regions.run_apart(seed, noted, wisp.compile)
        else:
            eager, compiled = self.regions.run(seed, plain), wisp.compile(self.regions.run)(seed, noted)
        wrong = self.regions.compared((plain, eager), (noted, compiled))
        return wrong and f"other bits in a region: {wrong}"

    def beside(self, number, keep, say):
        import torch

        seed, made, chance = self.statements(number)
        say("pieces", len(made))
        theirs, ours, lines = self.programs.start(torch, seed), self.programs.start(wisp, seed), []
        for k in range(2):
            lines.append(f"v{k} = tensor({theirs[k].detach().tolist()}, requires_grad={theirs[k].requires_grad})")
        lines.append("v2 = v0 * 1")
        for i, (text, function, adds) in enumerate(made):
            if keep is not None and i not in keep:
                theirs += [None] * adds
                ours += [None] * adds
                continue
            lines.append(f"v{len(theirs)} = {text}" if adds else text)
            say("text", "\n".join(lines))
            wrong = self.step(text, function, adds, theirs, ours)
            if wrong is not None:
                return wrong or None
        return self.backward(chance, theirs, ours, lines, say)

    def step(self, text, function, adds, theirs, ours):
        import torch

        def attempt(lib, values):
            try:
                return self.programs.run(lib, function, values)
            except (AttributeError, AssertionError) as error:  # a statement that it needs was left out
                return None, error

        settle(theirs)
        seen = re.match(r"v(\d+)\.as_strided", text)
        if seen and (a := ours[int(seen[1])]) is not None and a.stride() != theirs[int(seen[1])].stride():
            # it shows how memory lies: PyTorch's result of an index along a dimension of one is not always contiguous, Wisp's is
            return ""
        (right, error), (mine, my_error) = attempt(torch, theirs), attempt(wisp, ours)
        if (error is None) != (my_error is None):
            return "" if self.programs.forgiven(text, error, my_error) else f"PyTorch: {error!r}; Wisp: {my_error!r}"
        if error is not None and any(a is not None and not self.programs.near(a, b) for a, b in zip(ours, theirs)):
            return ""  # a refused write may have been done in part by PyTorch
        if adds:
            theirs.append(right)
            ours.append(mine)
        for k, (a, b) in enumerate(zip(ours, theirs)):
            if a is None or b is None:
                continue
            if not self.programs.near(a, b):
                return f"v{k} is {a.tolist()} for {b.tolist()}"
            if a.requires_grad != b.requires_grad:
                return f"v{k}.requires_grad is {a.requires_grad} for {b.requires_grad}"
        return None

    def backward(self, chance, theirs, ours, lines, say):
        import torch

        wanted = [k for k, v in enumerate(theirs) if v is not None and v.requires_grad and v.numel()]
        for k in wanted[-3:]:
            lines.append(f"grad((v{k} * v{k}).sum(), leaves)")
            say("text", "\n".join(lines))

            def gradients(lib, values, k=k):
                inputs = [t for t in values[:2] if t.requires_grad]
                return lib.autograd.grad((values[k] * values[k]).sum(), inputs, retain_graph=True, allow_unused=True) if inputs else []

            (right, error), (mine, my_error) = self.programs.run(torch, gradients, theirs), self.programs.run(wisp, gradients, ours)
            if error is not None or (my_error is not None and "modified by an inplace operation" in str(my_error)):
                continue
            if my_error is not None:
                return f"PyTorch: fine; Wisp: {my_error!r}"
            for a, b in zip(mine, right):
                zero = a is None or b is None
                if zero and any(g is not None and g.detach().numpy().any() for g in (a, b)):
                    return f"a gradient is {a} for {b}"
                if not zero and not self.programs.near(a, b):
                    return f"a gradient is {a.tolist()} for {b.tolist()}"
        return None


def settle(values):
    """PyTorch gives a view whose base was written to its new history when it is asked for it, and refuses writes to it before that."""
    for value in values:
        with contextlib.suppress(RuntimeError):  # one of several views that a function gave back has none any more
            _ = value is not None and value.is_leaf


def overlaps(t):
    """Whether two elements of a tensor surely share memory: there are more of them than places."""
    return t.numel() > sum((n - 1) * step for n, step in zip(t.shape, t.stride())) + 1


def places(t):
    """Where in its storage each element of a tensor lies, in their order."""
    where = [t.storage_offset()]
    for n, step in zip(t.shape, t.stride()):
        where = [at + k * step for at in where for k in range(n)]
    return where


def crossed(a, b):
    """Whether a write to a, element by element, changes what is read of b later: some element of b lies where another one of a does.
    Of tensors without gaps PyTorch sees that and refuses; of others its result depends on the order, while Wisp reads first."""
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    to, of = places(a), places(b)
    gaps = any(max(where) - min(where) >= len(where) for where in (to, of))
    written = set(to)
    return gaps and any(at in written for at, own in zip(of, to) if at != own)


# ---------------------------------------------------------------- numbers
_EXTREMES = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -3.0, 6.0, 1e-45, -1e-38, 1e-20, 1e-8, 1e-4, 88.0, -104.0, 1e9, -1e16, 1e20, 3e38, -3e38]
_EXTREMES += [math.inf, -math.inf, math.nan]
# Results that are not defined to this degree: random, uninitialised, or up to sign and order.
_UNDEFINED = """empty dropout rand bernoulli multinomial normal svd eig qr lstsq pca sort topk argsort kthvalue median mode unique pinv
matrix_rank uniform geometric cauchy exponential log_normal rrelu fractional hash ormqr householder geqrf lu_ ldl
cholesky inv solve det det_ logdet matrix_exp matrix_power cond norm_nuc nuc lobpcg tensorsolve tensorinv stft istft
allclose isclose""".split()


# Functions of one element whose value at a large argument is that of a rounded phase: judged like those that mix elements.
_PHASES = "bessel airy".split()
_SPECIAL = "special. igamma i0 polygamma lgamma".split()
_BOUNDED = "polynomial_ grid_sample igamma".split()  # whose later arguments are of moderate size


class Numbers(Kind):
    """Wrong is what is far from float64's result where PyTorch's is near to it, or infinite, NaN or a number where both of PyTorch's are
    not.

    A function of single elements and a reduction have to be right whatever they get. Where elements are mixed in an order that nobody
    promises (products, convolutions, transforms, norms, interpolation), an error may be as large as one of the last bits of the inputs
    would make it, and what an element does to others that is infinite, NaN or so large that a product of two overflows is left open."""

    def __init__(self, seed, planted):
        import torch
        from database import found, put
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo

        torch.set_num_threads(1)
        self.put = put
        self.elementwise, self.reductions = (UnaryUfuncInfo, BinaryUfuncInfo), ReductionOpInfo
        self.operators = [
            (op, found(wisp, op.name))
            for op in op_db
            if torch.float32 in op.supported_dtypes("cpu")
            and found(wisp, op.name)
            and op.op is found(torch, op.name)
            and not any(word in op.name for word in _UNDEFINED)
            and op.name not in ("lu", "linalg.lu")
        ]
        super().__init__(seed, planted)

    def plant(self):
        whole = wisp.sinh
        self.operators = [
            (op, (lambda x, **k: whole(x.clamp(-80, 80), **k)) if op.name == "sinh" else f)
            for op, f in self.operators
            if op.name in ("sinh", "cosh", "tanh")
        ]

    def run(self, number, keep, say):
        import torch

        r = self.random(number)
        op, ours = r.choice(self.operators)
        samples = []
        try:
            for _, sample in zip(range(6), op.sample_inputs("cpu", torch.float32, requires_grad=False)):
                samples.append(sample)
        except Exception:
            return None
        samples = [s for s in samples if not any(isinstance(v, torch.nn.Module) for v in (*s.args, *s.kwargs.values()))]  # of PyTorch's
        if not samples:
            return None
        sample = r.choice(samples)
        changes = []  # (tensor, place, value)

        def changed(value):
            if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.numel() and value.layout == torch.strided:
                value = value.detach().clone()
                for _ in range(r.randrange(1, 4)):
                    changes.append((value, r.randrange(value.numel()), r.choice(_EXTREMES)))
                return value
            return type(value)(changed(v) for v in value) if type(value) in (list, tuple) else value

        args, kwargs = changed((sample.input, *sample.args)), {k: changed(v) for k, v in sample.kwargs.items()}
        say("pieces", len(changes))
        for tensor, place, value in kept(changes, keep):
            tensor.view(-1)[place] = value if tensor.is_contiguous() else value
        say("text", f"{op.name}({', '.join(map(str, args))}, {kwargs})"[:1500])
        tensors = flat([args, list(kwargs.values())])

        def double(value, moved=None):
            """float64 of float32; with a generator, moved by as much as a few last bits of float32."""
            if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
                value = value.double()
                if moved is None or value.layout != torch.strided:
                    return value
                return value * (1 + (torch.rand(value.shape, dtype=torch.float64, generator=moved) - 0.5) * 2.0**-20)
            if value is torch.float32:
                return torch.float64
            return type(value)(double(v, moved) for v in value) if type(value) in (list, tuple) else value

        def exactly(moved=None):
            return flat(op.op(*double(args, moved), **{k: double(v, moved) for k, v in kwargs.items()}))

        if any(word in op.name for word in _BOUNDED) and any(t.numel() and not t.abs().max() < 1e6 for t in tensors[1:]):
            return None  # degrees that PyTorch cuts to 64 bits, or takes minutes for; places beyond what a float tells from its neighbours
        try:
            theirs, exact = flat(op.op(*args, **kwargs)), exactly()
        except Exception:
            return None
        try:
            mine = flat(ours(*self.put(args), **self.put(kwargs)))
        except Exception as error:
            if "non-finite values" in str(error):
                return None  # a decomposition of such a matrix, where PyTorch has NaN
            return f"{op.name}: refused by Wisp alone: {error!r}"[:500]
        wrong = compare(op.name, mine, theirs, exact, inputs=tensors)
        if wrong is None or (isinstance(op, self.elementwise) and not any(word in op.name for word in _PHASES)):
            return wrong
        generator = torch.Generator().manual_seed(number)
        spread = [torch.zeros_like(c) for c in exact]
        for _ in range(8):
            for s, c, near in zip(spread, exact, exactly(generator)):
                if c.is_floating_point() and near.shape == c.shape:
                    s.copy_(torch.maximum(s, (near - c).abs().nan_to_num(math.inf)))
        return compare(op.name, mine, theirs, exact, spread, not isinstance(op, self.reductions) and far(tensors), tensors)


def far(tensors):
    """Whether something in the inputs, or the sum of products of two, is no number that a float can say."""
    import torch

    dense = [t.detach() for t in tensors if t.is_floating_point() and t.layout == torch.strided and t.numel()]
    sums = [t.abs().max().item() * t.numel() for t in dense]
    return any(not a * a < 3e38 for a in sums)


def flat(result):
    if isinstance(result, (list, tuple)):
        return [t for part in result for t in flat(part)]
    return [result] if hasattr(result, "detach") else []


def compare(name, mine, theirs, exact, spread=None, open_=False, inputs=()):
    """What is wrong, or None. `spread`: by how much the result of float64 moves with the last bits of the inputs; `open_`: elements that
    are not finite in one of the three are not compared. A reduction and a special function may have a limit where PyTorch has NaN, and NaN
    for NaN where it has none."""
    import torch

    special, unknown = any(word in name for word in _SPECIAL), any(t.layout == torch.strided and t.isnan().any() for t in inputs)
    for i, (a, b, c) in enumerate(zip(mine, theirs, exact)):
        if not b.is_floating_point() or b.shape != tuple(a.shape) or b.shape != c.shape or a.layout != wisp.strided:
            continue
        a, b, c = torch.from_numpy(a.detach().numpy().copy()).double(), b.detach().double(), c.detach()
        fits = torch.where(c.abs() > 3.4e38, c.sign() * math.inf, c)  # what a float can say
        agree = ((b - fits).abs() <= 1e-4 * fits.abs() + 1e-30) | (b == fits) | (b.isnan() & c.isnan())
        scale = fits[fits.isfinite()].abs().max().item() if fits.isfinite().any() else 0.0
        good = ((a - fits).abs() <= 1e-3 * fits.abs() + 1e-5 * min(scale, 1.0) + 1e-30) | (a == fits) | (a.isnan() & c.isnan())
        if name.startswith("fft."):  # a transform has the accuracy of its largest element
            good |= (a - fits).abs() <= 1e-6 * scale
        if spread is not None:
            good |= (a - fits).abs() <= 8 * spread[i]
        if spread is not None or special:
            good |= (b.isnan() & a.isinf()) | (a.isnan() & unknown)
        if open_:  # no element of a transform is known that has one that is out of range
            good |= ~(a.isfinite() & b.isfinite() & c.isfinite()) | torch.tensor(name.startswith("fft."))
        bad = agree & ~good & ~(fits.abs() < 1.2e-38) & ~(b.isnan() & special)
        if bad.any():
            at = bad.flatten().nonzero()[0].item()
            return f"{name}: element {at} is {a.flatten()[at].item()} for {b.flatten()[at].item()} (float64: {c.flatten()[at].item()})"
    return None


# ---------------------------------------------------------------- sizes
class Sizes(Kind):
    def __init__(self, seed, planted, device):
        import fuzz_sizes

        super().__init__(seed, False)
        self.run = fuzz_sizes.Sizes(planted, self.random, device).run


# ---------------------------------------------------------------- files
class Files(Kind):
    def __init__(self, seed, planted):
        import mangled_files

        self.files = mangled_files
        self.originals = mangled_files.samples()
        for content in self.originals:
            mangled_files.load_mangled(content)
        with open("/proc/self/statm") as file:
            memory = int(file.read().split()[0]) * resource.getpagesize()
        if "asan" not in os.environ.get("LD_PRELOAD", ""):
            resource.setrlimit(resource.RLIMIT_AS, (memory + (512 << 20),) * 2)
        super().__init__(seed, planted)

    def plant(self):
        whole = self.files.load_mangled

        def load(content):
            if b"PK" in content and b".pkl" not in content:
                raise self.files.Escaped("planted")
            return whole(content)

        self.files.load_mangled = load

    def run(self, number, keep, say):
        content = self.files.mangle(self.random(number), self.originals)
        size = max(1, len(content) // 64)
        blocks = [content[i : i + size] for i in range(0, len(content), size)]
        content = b"".join(kept(blocks, keep))
        say("pieces", len(blocks))
        say("text", f"load of the {len(content)} bytes {content.hex()[:4000]}")
        try:
            self.files.load_mangled(content)
        except self.files.Escaped as error:
            return str(error)[:1000]
        return None
