"""Tensors that hold another tensor in place of a memory of their own: sparse, nested and masked ones.

What is held (`_held`) carries the gradient: operators on such a tensor are operators on what it holds, so autograd needs nothing new.
A class says how another one of its kind is made around other values (`_with`), and which values a gradient has (`_gradient_of_values`).
"""

import functools

import wisp


@functools.cache
def elementwise():
    """Name of each operator of elements -> how many tensors it takes. Those of the core say so where they are registered."""
    found = dict.fromkeys(("angle", "cuda", "type", "alpha_dropout", "embedding"), 1)
    found |= dict.fromkeys((f"__{name}__" for name in "and or xor radd rmul rsub rtruediv rpow rmod rfloordiv".split()), 2)
    for path in wisp._core._operators_with("elementwise"):
        space, _, name = path.rpartition(".")
        operator = wisp._core._operators[space].get(name) or getattr(wisp.Tensor, name)
        found[name.rstrip("_")] = max(operator._operands, found.get(name.rstrip("_"), 1))
    return found | {"to": 1, "type_as": 1}  # the other tensor is there for its dtype


class Holder:
    """The side of gradients, which is that of the tensor held."""

    requires_grad = property(lambda self: self._held.requires_grad, lambda self, on: self.requires_grad_(on))
    is_leaf = property(lambda self: self._held.is_leaf)
    grad_fn = property(lambda self: self._held.grad_fn)
    retains_grad = property(lambda self: self._held.retains_grad)
    _version = property(lambda self: self._held._version)

    @property
    def grad(self):
        grad = self._held._grad
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
