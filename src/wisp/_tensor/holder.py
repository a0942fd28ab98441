"""Tensors that hold another tensor in place of a memory of their own: sparse, nested and masked ones.

What is held (`_held`) carries the gradient: operators on such a tensor are operators on what it holds, so autograd needs nothing new.
A class says how another one of its kind is made around other values (`_with`), and which values a gradient has (`_gradient_of_values`).
"""

import wisp

# operators of one tensor whose elements alone matter, and of several
ELEMENTWISE = set(
    """
    abs absolute acos acosh angle asin asinh atan atanh bernoulli bitwise_not ceil celu clamp clamp_max clamp_min clip clone conj
    conj_physical contiguous cos cosh deg2rad detach digamma dropout elu erf erfc erfinv exp exp2 expm1 fill fix floor frac
    full_like gelu hardshrink hardsigmoid hardswish hardtanh isfinite isinf isnan isneginf isposinf leaky_relu lgamma log log10
    log1p log2 logical_not logit logsigmoid mish nan_to_num neg negative ones_like positive rad2deg rand_like randn_like
    randint_like empty_like zeros_like reciprocal relu relu6 round rsqrt selu sgn sigmoid sign signbit silu sin sinc sinh
    softplus softshrink softsign sqrt square tan tanh tanhshrink threshold trunc zero float double half bfloat16 int long short
    char byte bool to type_as cpu cuda type alpha_dropout pin_memory uniform normal embedding""".split()
)
BINARY = set(
    """
    add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2 eq ne lt
    le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__ __radd__ __rmul__
    __rsub__ __rtruediv__ __rpow__ __rmod__ __rfloordiv__ rsub masked_fill where copysign hypot lerp addcmul addcdiv copy isclose
    xlogy nextafter ldexp""".split()
)


class Holder:
    """The side of gradients, which is that of the tensor held."""

    requires_grad = property(lambda self: self._held.requires_grad, lambda self, on: self.requires_grad_(on))
    is_leaf = property(lambda self: self._held.is_leaf)
    grad_fn = property(lambda self: self._held.grad_fn)
    retains_grad = property(lambda self: self._held.retains_grad)
    _version = property(lambda self: self._held._version)

    @property
    def grad(self):
        grad = self._held.grad
        return None if grad is None else self._with(grad)

    @grad.setter
    def grad(self, grad):
        self._held.grad = None if grad is None else self._gradient_of_values(grad)

    def _expect_shape(self, grad):
        if tuple(grad.shape) != tuple(self.shape):
            raise RuntimeError(
                f"Mismatch in shape: a gradient of shape {tuple(grad.shape)} for a {type(self).__name__} of shape {tuple(self.shape)}"
            )

    def requires_grad_(self, requires_grad=True):
        self._held.requires_grad_(requires_grad)
        return self

    def retain_grad(self):
        self._held.retain_grad()

    def register_hook(self, hook):
        def on_values(grad):
            result = hook(self._with(grad))
            return None if result is None else self._gradient_of_values(result)

        return self._held.register_hook(on_values)

    def register_post_accumulate_grad_hook(self, hook):
        return self._held.register_post_accumulate_grad_hook(lambda values: hook(self))

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        wisp.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def detach(self):
        return self._with(self._held.detach())
