"""Checking derivatives against differences of the function's values.

A complex number counts as two real ones. For each real output and real input the numerical Jacobian has one entry,
(f(x + eps) - f(x - eps)) / (2 eps); the analytical one is made of backward passes, one per real output.
"""

import warnings

import wisp
from wisp.autograd import forward_ad
from wisp.autograd.function import _active

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """The gradients that backward computes are not those of the function."""


_SHAPES = "Expected `func` to return outputs with the same shape when inputs are perturbed"
_REENTRANT = "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values"


def _tuple(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _differentiable(values):
    return [v for v in values if isinstance(v, wisp.Tensor) and v.requires_grad]


def _outputs(func, inputs):
    outputs = [y for y in _tuple(func(*inputs)) if isinstance(y, wisp.Tensor)]
    outputs = [y if y.layout is wisp.strided else y.to_dense() for y in outputs]
    return [y for y in outputs if y.is_floating_point() or y.is_complex()]


def _of_values(func, inputs):
    """A function of the values that sparse inputs store, which are what is tested, and these."""
    sparse = {i: x for i, x in enumerate(inputs) if isinstance(x, wisp.Tensor) and x.layout not in (wisp.strided, wisp.jagged)}
    if not sparse:
        return func, inputs
    sparse = {i: x.coalesce() if x.layout is wisp.sparse_coo else x for i, x in sparse.items()}

    def on_values(*given):
        return func(*(sparse[i]._with(v) if i in sparse else v for i, v in enumerate(given)))

    values = [sparse[i]._sparse_values.detach().clone().requires_grad_(x.requires_grad) if i in sparse else x for i, x in enumerate(inputs)]
    return on_values, tuple(values)


def _flat(tensor):
    """All real numbers in a tensor, as a vector of float64."""
    tensor = tensor.detach()
    tensor = wisp.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.to(wisp.float64).reshape(-1)


def _reals(x):
    """-> the real numbers that a tensor lies in, and their signs: a conjugate view sees those of imaginary parts turned round."""
    if not x.is_complex():
        return x.data, wisp.ones_like(x.data)
    place = wisp.view_as_real(x.data.conj() if x.is_conj() else x.data)
    sign = wisp.ones_like(place)
    if x.is_conj():
        sign[..., 1] = -1
    return place, sign


def _numerical(func, inputs, x, eps):
    """-> per output the matrix (reals of x) x (reals of the output) of difference quotients."""
    place, sign = _reals(x)
    columns = None
    for index in _indices(tuple(place.shape)):
        before = place[index].item()
        values, kinds = [], []
        for shift in (-eps, eps):
            place[index] = before + shift * sign[index].item()
            outputs = _outputs(func, inputs)
            values.append([_flat(y).clone() for y in outputs])
            kinds.append([y.dtype for y in outputs])
        place[index] = before
        if kinds[0] != kinds[1]:
            raise AssertionError(_SHAPES.replace("shape", "dtype"))
        if [y.shape for y in values[0]] != [y.shape for y in values[1]]:
            raise AssertionError(_SHAPES)
        rows = [(high - low) / (2 * eps) for low, high in zip(*values)]
        columns = [[] for _ in rows] if columns is None else columns
        for column, row in zip(columns, rows):
            column.append(row)
    return None if columns is None else [wisp.stack(column) for column in columns]


def _indices(shape):
    if not shape:
        yield ()
        return
    for first in range(shape[0]):
        for rest in _indices(shape[1:]):
            yield (first, *rest)


def _analytical(y, inputs, allow_unused=True):
    """-> per input the matrix (reals of the input) x (reals of y), by backward passes."""
    columns = [[] for _ in inputs]
    for index in _indices(tuple(y.shape)):
        for unit in (1, 1j) if y.is_complex() else (1,):
            weight = wisp.zeros_like(y, requires_grad=False)
            weight[index] = unit
            gradients = wisp.autograd.grad(y, inputs, weight, retain_graph=True, allow_unused=True)
            for column, gradient, x in zip(columns, gradients, inputs):
                if gradient is not None and tuple(gradient.shape) != tuple(x.shape):
                    raise GradcheckError(f"Analytical gradient has incorrect size: {tuple(gradient.shape)}, the input has {tuple(x.shape)}")
                column.append(wisp.zeros_like(_flat(x)) if gradient is None else _flat(gradient))
    return [wisp.stack(column, 1) if column else None for column in columns]


def _old_name(name, grad_out):
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and it will be removed in a future "
        "version of PyTorch.",
        FutureWarning,
        stacklevel=3,
    )
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0, but got {grad_out}: {name} knows no other")


def get_numerical_jacobian(fn, inputs, target=None, eps=1e-3, grad_out=1.0):
    """The difference quotients of the first result of `fn(inputs)`, one matrix for each tensor (of `target`, if that is given)."""
    _old_name("get_numerical_jacobian", grad_out)
    wanted = _differentiable(_tuple(inputs if target is None else target))
    return tuple(_numerical(lambda *_: fn(inputs), inputs, x, eps)[0] for x in wanted)


def get_analytical_jacobian(inputs, output, nondet_tol=0.0, grad_out=1.0):
    """The derivatives of a result by backward passes, one matrix for each input; whether a second run gives the same; and twice True."""
    _old_name("get_analytical_jacobian", grad_out)
    first, second = (_analytical(output, _differentiable(_tuple(inputs))) for _ in range(2))
    same = all((a - b).abs().max() <= nondet_tol for a, b in zip(first, second) if a is not None and a.numel())
    return tuple(first), same, True, True


def _moved(func, inputs, x, eps, generator):
    """A random direction, in reals, and the outputs a step back and a step forth along it."""
    place, sign = _reals(x)
    u = wisp.rand(place.shape, dtype=place.dtype, generator=generator, device="cpu").to(x.device)
    u = u / u.norm()
    before, values = place.clone(), []
    for shift in (-eps, eps):
        place.copy_(before + shift * sign * u)
        values.append([_flat(y).clone() for y in _outputs(func, inputs)])
    place.copy_(before)
    return u, values


def _fast(func, inputs, outputs, tested, eps, atol, rtol, nondet_tol):
    """Whether numbers u·J·v agree for one random pair of vectors per output and input: two calls and one pass each."""
    generator = wisp.Generator()  # not the one that the function may draw from
    for x in tested:
        if not x.numel():
            continue
        u, values = _moved(func, inputs, x, eps, generator)
        for y, low, high in zip(outputs, *values):
            if low.numel() != high.numel() or low.numel() != _flat(y).numel():
                raise AssertionError(_SHAPES)
            v = wisp.rand(low.shape, dtype=low.dtype, generator=generator, device="cpu").to(low.device)
            numerical = ((high - low) / (2 * eps) * v).sum()
            gradient = None
            if y.requires_grad:
                weight = wisp.view_as_complex(v.view(*y.shape, 2)) if y.is_complex() else v.view(y.shape)
                (gradient,) = wisp.autograd.grad(y, [x], weight.to(y.dtype), retain_graph=True, allow_unused=True)
                (again,) = wisp.autograd.grad(y, [x], weight.to(y.dtype), retain_graph=True, allow_unused=True)
                if gradient is not None and (_flat(gradient) - _flat(again)).abs().max() > nondet_tol:
                    raise GradcheckError(_REENTRANT)
            analytical = wisp.zeros_like(numerical) if gradient is None else (_flat(gradient) * u.reshape(-1)).sum()
            if not wisp.allclose(analytical, numerical.to(analytical.dtype), rtol, atol * max(1.0, (u.sum() * v.sum()).item())):
                return False
    return True


def gradcheck(
    func,
    inputs,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_batched_forward_grad=False,
    check_forward_ad=False,
    check_backward_ad=True,
    fast_mode=False,
    masked=None,
):
    """True if the gradients of `func` at `inputs` (double precision, requiring grad) agree with difference quotients.

    Otherwise a GradcheckError, or False without `raise_exception`. `nondet_tol` bounds the difference of two backward
    passes; `check_undefined_grad` checks that backward copes with outputs that get no gradient; `check_forward_ad` checks
    forward mode, too (`check_batched_forward_grad`: under vmap), and `check_backward_ad=False` leaves backward alone. `fast_mode`
    compares products with random vectors first, and whole Jacobians only where these disagree.
    """
    try:
        if not check_backward_ad and not check_forward_ad:
            raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
        func, inputs = _of_values(func, _tuple(inputs))
        if check_backward_ad:
            _check(func, inputs, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, fast_mode)
        if check_forward_ad:
            if not (fast_mode and _fast_forward(func, inputs, eps, atol, rtol)):
                _check_forward(func, inputs, eps, atol, rtol)
            if check_undefined_grad:
                _check_undefined_forward(func, inputs)
            if check_batched_forward_grad:
                _check_batched_forward(func, inputs)
        return True
    except GradcheckError:
        if raise_exception:
            raise
        return False


def _check(func, inputs, eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, fast_mode):
    tested = _differentiable(inputs)
    if not tested:
        raise ValueError("gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True.")
    for x in tested:
        number = next(i for i, value in enumerate(inputs) if value is x)
        if x.dtype not in (wisp.float64, wisp.complex128):
            warnings.warn(
                f"Input #{number} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision.",
                stacklevel=3,
            )
        if x.layout is wisp.strided and any(stride == 0 and size > 1 for stride, size in zip(x.stride(), x.shape)):
            raise RuntimeError(
                f"The {number}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able "
                "to compute the numerical gradients correctly. You should call .contiguous on the input before passing it to gradcheck."
            )
    outputs = _outputs(func, inputs)
    if not any(y.requires_grad for y in outputs):
        _check_constant(func, inputs, tested, eps)
        return
    if fast_mode and _fast(func, inputs, outputs, tested, eps, atol, rtol, nondet_tol):
        if check_undefined_grad:
            _check_undefined(func, inputs, tested)
        return
    analytical = [_analytical(y, tested) if y.requires_grad else None for y in outputs]
    for j, x in enumerate(tested):
        numerical = _numerical(func, inputs, x, eps)
        for i in range(len(outputs)):
            if numerical is None or numerical[i].numel() == 0:
                continue
            expected = numerical[i]
            actual = wisp.zeros_like(expected) if analytical[i] is None else analytical[i][j]
            if not wisp.allclose(actual, expected, rtol, atol):
                difference = (actual - expected).abs().max().item()
                raise GradcheckError(
                    f"{_part(outputs[i], actual, expected, rtol, atol)}Jacobian mismatch for output {i} with respect to input {j},\n"
                    f"numerical:{expected}\nanalytical:{actual}\nlargest difference: {difference}"
                )
    for i, y in enumerate(outputs):
        if analytical[i] is None:
            continue
        again = _analytical(y, tested)
        for j, (first, second) in enumerate(zip(analytical[i], again)):
            if first is not None and first.numel() and (first - second).abs().max() > nondet_tol:
                raise GradcheckError(f"{_REENTRANT} (output {i}, input {j})")
    if check_grad_dtypes:
        for y in outputs:
            if y.requires_grad:
                for x, g in zip(tested, wisp.autograd.grad(y, tested, wisp.ones_like(y), retain_graph=True, allow_unused=True)):
                    if g is not None and g.dtype != x.dtype:
                        raise GradcheckError(f"Analytical gradient has incorrect dtype: {g.dtype}, expected {x.dtype}")
    if check_undefined_grad:
        _check_undefined(func, inputs, tested)


def _part(output, actual, expected, rtol, atol):
    """Where a mismatch is, if the output is complex: its real and imaginary parts stand in turns."""
    if not output.is_complex():
        return ""
    part = "real" if wisp.allclose(actual[:, 1::2], expected[:, 1::2], rtol, atol) else "imaginary"
    return f"While considering the {part} part of complex outputs only, "


def _pushed(func, inputs, x, direction):
    """The tangents of the outputs along a direction of x, in reals."""
    with forward_ad.dual_level():
        duals = {
            id(value): forward_ad.make_dual(value.detach(), direction if value is x else wisp.zeros_like(value, requires_grad=False))
            for value in inputs
            if isinstance(value, wisp.Tensor) and value.requires_grad
        }
        outputs = _outputs(func, tuple(duals.get(id(value), value) for value in inputs))
        tangents = [forward_ad.unpack_dual(y).tangent for y in outputs]
        return [wisp.zeros_like(_flat(y)) if tangent is None else _flat(tangent) for y, tangent in zip(outputs, tangents)]


def _fast_forward(func, inputs, eps, atol, rtol):
    """Whether tangents along one random direction of each input agree with the steps along it."""
    generator = wisp.Generator()
    for x in _differentiable(inputs):
        if not x.numel():
            continue
        u, values = _moved(func, inputs, x, eps, generator)
        direction = wisp.view_as_complex(u) if x.is_complex() else u.reshape(x.shape)
        for actual, low, high in zip(_pushed(func, inputs, x, direction.to(x.dtype)), *values):
            if low.numel() != high.numel() or not wisp.allclose(actual, ((high - low) / (2 * eps)).to(actual.dtype), rtol, atol):
                return False
    return True


def _forward(func, inputs, x, count):
    """-> per output the matrix (reals of x) x (reals of the output), by passes forward."""
    columns = [[] for _ in range(count)]
    for index in _indices(tuple(x.shape)):
        for unit in (1, 1j) if x.is_complex() else (1,):
            direction = wisp.zeros_like(x, requires_grad=False)
            direction[index] = unit
            for column, tangent in zip(columns, _pushed(func, inputs, x, direction)):
                column.append(tangent)
    return [wisp.stack(column) if column else None for column in columns]


def _check_forward(func, inputs, eps, atol, rtol):
    count = len(_outputs(func, inputs))
    for j, x in enumerate(_differentiable(inputs)):
        numerical = _numerical(func, inputs, x, eps)
        for i, actual in enumerate(_forward(func, inputs, x, count)):
            if numerical is None or numerical[i].numel() == 0:
                continue
            if not wisp.allclose(actual, numerical[i], rtol, atol):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {i} with respect to input "
                    f"{j},\nnumerical:{numerical[i]}\nanalytical:{actual}\n"
                )


def _check_undefined_forward(func, inputs):
    """A tangent that is not there counts as one of zeros."""
    for x in _differentiable(inputs):

        def tangents(missing, x=x):
            with forward_ad.dual_level():
                duals = []
                for value in inputs:
                    if not isinstance(value, wisp.Tensor) or not value.requires_grad:
                        duals.append(value)
                    elif value is x:
                        plain = value.detach()
                        duals.append(plain if missing else forward_ad.make_dual(plain, wisp.zeros_like(plain)))
                    else:
                        duals.append(forward_ad.make_dual(value.detach(), wisp.ones_like(value, requires_grad=False)))
                return [forward_ad.unpack_dual(y).tangent for y in _outputs(func, tuple(duals))]

        for i, (zeros, none) in enumerate(zip(tangents(False), tangents(True))):
            if zeros is not None and none is not None and not wisp.allclose(zeros, none):
                raise GradcheckError(f"Mismatch in tangent values for output with index: {i} when an input has no tangent, or zeros")


def _check_batched_forward(func, inputs):
    """Tangents of a batch by vmap must be those of one after another."""
    for j, x in enumerate(_differentiable(inputs)):
        place = next(i for i, value in enumerate(inputs) if value is x)

        def product(direction, x=x, place=place):
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x.detach(), direction)
                others = [value.detach() if isinstance(value, wisp.Tensor) else value for value in inputs]
                outputs = _outputs(func, (*others[:place], dual, *others[place + 1 :]))
                tangents = (forward_ad.unpack_dual(y).tangent for y in outputs)
                return [wisp.zeros_like(y) if tangent is None else tangent for y, tangent in zip(outputs, tangents)]

        directions = wisp.stack([wisp.rand_like(x, requires_grad=False), wisp.rand_like(x, requires_grad=False)])
        _active.lenient = True  # a Function without a rule for batches is asked for one sample after another
        try:
            batched = wisp.func.vmap(product)(directions)
        except RuntimeError as error:
            raise GradcheckError(
                f"While computing batched gradients, got: {error}\n\ngradcheck failed while testing batched forward gradients"
            ) from error
        finally:
            _active.lenient = False
        for i, (together, *apart) in enumerate(zip(batched, *map(product, directions))):
            if not wisp.allclose(together, wisp.stack(apart)):
                raise GradcheckError(
                    f"gradcheck failed while testing batched forward gradients of output {i} with respect to input {j}:\n"
                    f"vmap: {together}\none by one: {wisp.stack(apart)}"
                )


def _check_constant(func, inputs, tested, eps):
    """Outputs without a gradient must not depend on the inputs."""
    for x in tested:
        for numerical in _numerical(func, inputs, x, eps) or ():
            if numerical.numel() and numerical.abs().max() > 0:
                raise GradcheckError(
                    "Numerical gradient for function expected to be zero: no output requires grad, but one depends on an input that does"
                )


def _check_undefined(func, inputs, tested):
    """Backward must work where outputs get no gradient: all but one, or all of them."""
    from wisp.autograd._inner import UndefinedGrad

    outputs = [y for y in _outputs(func, inputs) if y.requires_grad and y.layout is wisp.strided]
    try:
        for i, y in enumerate(outputs if len(outputs) > 1 else ()):
            what = f"only output {i} had one"
            wisp.autograd.grad(y, tested, wisp.zeros_like(y), retain_graph=True, allow_unused=True)
        what = "no output had one"
        for y in outputs:
            for grad in wisp.autograd.grad(UndefinedGrad()(y), tested, wisp.ones_like(y), retain_graph=True, allow_unused=True):
                if grad is not None and (grad != 0).any():
                    raise GradcheckError("Expected all input grads to be undefined or zero when all output grads are undefined or zero.")
    except GradcheckError:
        raise
    except RuntimeError as error:
        warnings.warn(
            "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may break existing "
            "callers of this function. If this is true for you, call this function with check_undefined_grad=False",
            stacklevel=2,
        )
        raise GradcheckError(f"Expected backward function to handle undefined output grads: {what} ({error})") from error


def gradgradcheck(
    func,
    inputs,
    grad_outputs=None,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    gen_non_contig_grad_outputs=False,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_fwd_over_rev=False,
    check_rev_over_rev=True,
    fast_mode=False,
    masked=False,
):
    """As `gradcheck`, for the gradients of gradients with respect to `inputs` and `grad_outputs` (default: random)."""
    inputs = _tuple(inputs)
    if grad_outputs is None:
        grad_outputs = []
        for y in _outputs(func, inputs):
            weight = wisp.randn(tuple(y.shape), dtype=y.dtype if y.is_complex() else wisp.float64, device=y.device)
            if gen_non_contig_grad_outputs and weight.dim():
                weight = wisp.stack([weight, weight], -1)[..., 0]
            grad_outputs.append(weight.to(y.dtype).detach().requires_grad_())
    grad_outputs = _tuple(grad_outputs)
    count = len(grad_outputs)
    places = [i for i, x in enumerate(inputs) if isinstance(x, wisp.Tensor) and x.requires_grad]

    def first_derivative(*args):
        values, weights = args[:-count], args[-count:]
        values = tuple(x.detach().requires_grad_() if i in places and not x.requires_grad else x for i, x in enumerate(values))
        with wisp.enable_grad():
            outputs = _outputs(func, values)
            pairs = [(y, weight) for y, weight in zip(outputs, weights) if y.requires_grad]
            return tuple(
                g
                for g in wisp.autograd.grad(
                    [y for y, _ in pairs],
                    [values[i] for i in places],
                    [weight for _, weight in pairs],
                    create_graph=True,
                    allow_unused=True,
                )
                if g is not None
            )

    return gradcheck(
        first_derivative,
        inputs + grad_outputs,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        fast_mode=fast_mode,
    )
