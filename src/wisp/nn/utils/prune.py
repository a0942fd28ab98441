"""Pruning: masks that set part of a parameter to zero before every forward.

`weight` becomes `weight_orig * weight_mask`; `remove` makes the result an ordinary parameter again.
"""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable

import wisp
from wisp import _reference

__all__ = """
    BasePruningMethod PruningContainer Identity RandomUnstructured L1Unstructured RandomStructured LnStructured CustomFromMask
    identity random_unstructured l1_unstructured random_structured ln_structured global_unstructured custom_from_mask remove
    is_pruned""".split()


class BasePruningMethod(ABC):
    """A way to choose what to prune: subclasses implement `compute_mask` and say their `PRUNING_TYPE`."""

    PRUNING_TYPE = "unstructured"

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """The mask for the scores `t`, given the mask that is in force."""

    def apply_mask(self, module):
        """The pruned tensor."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prune the parameter `name` of a module; a second pruning is added to the first."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        old = _find(module, name)
        if old is not None:
            key, hook = old
            container = PruningContainer(hook)
            container.add_pruning_method(method)
            del module._forward_pre_hooks[key]
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(f"importance_scores should have the same shape as parameter {name} of {module}")
        if old is None:
            default_mask = wisp.ones_like(original)
        else:
            default_mask = getattr(module, name + "_mask").detach().clone()
        with wisp.no_grad():
            mask = method.compute_mask(scores, default_mask)
        if old is None:
            parameter = module._parameters[name]
            del module._parameters[name]
            module.register_parameter(name + "_orig", parameter)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """The pruned version of a tensor by itself."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        default_mask = wisp.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default_mask)

    def remove(self, module):
        """Make the pruned tensor an ordinary parameter; the mask is applied for good."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module)
        if name in module.__dict__:
            delattr(module, name)
        original = module._parameters.pop(name + "_orig")
        original.data = weight.data
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several prunings of one parameter, one after the other."""

    def __init__(self, *args):
        self._pruning_methods = ()
        if not isinstance(args, Iterable):
            args = (args,)
        for method in args:
            if self._pruning_methods == ():
                self._tensor_name = getattr(method, "_tensor_name", None)
            self.add_pruning_method(method)

    def add_pruning_method(self, method):
        """Add one more method."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        if isinstance(method, PruningContainer):
            self._pruning_methods += method._pruning_methods
        else:
            self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, idx):
        return self._pruning_methods[idx]

    def compute_mask(self, t, default_mask):
        """The last method's mask of what the others left."""
        method, mask = self._pruning_methods[-1], default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim if method.dim >= 0 else method.dim + t.dim()
            other = [d for d in range(t.dim()) if d != dim]
            channels = mask.sum(dim=other) != 0
            left = (slice(None),) * dim + (channels,)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        new = mask.clone()
        new[left] = method.compute_mask(t[left], default_mask=mask[left]).to(dtype=mask.dtype)
        return new


class Identity(BasePruningMethod):
    """Prunes nothing, but sets up the mask."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return default_mask


def _validate_pruning_amount_init(amount):
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if (isinstance(amount, numbers.Integral) and amount < 0) or (
        not isinstance(amount, numbers.Integral) and not 0.0 <= float(amount) <= 1.0
    ):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount, tensor_size):
    if isinstance(amount, numbers.Integral) and amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _compute_nparams_toprune(amount, tensor_size):
    """How many of `tensor_size` things to prune."""
    _validate_pruning_amount(amount, tensor_size)
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


class _Amount(BasePruningMethod):
    def __init__(self, amount):
        _validate_pruning_amount_init(amount)
        self.amount = amount


class _Unstructured(_Amount):
    def _choose(self, t, count):
        """The elements to prune."""
        raise NotImplementedError

    def compute_mask(self, t, default_mask):
        count = _compute_nparams_toprune(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[self._choose(t, count)] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Prunes elements at random."""

    def _choose(self, t, count):
        return wisp.randperm(t.numel(), device=t.device)[:count]


class L1Unstructured(_Unstructured):
    """Prunes the elements of the smallest absolute value."""

    def _choose(self, t, count):
        return wisp.topk(t.abs().reshape(-1), k=count, largest=False).indices

    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        return super().apply(module, name, amount, importance_scores=importance_scores)


class _Structured(_Amount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        super().__init__(amount)
        self.dim = dim

    def _choose(self, t, count):
        """The channels to prune."""
        raise NotImplementedError

    def compute_mask(self, t, default_mask):
        if t.dim() <= 1:
            raise ValueError(
                f"Structured pruning can only be applied to multidimensional tensors. Found tensor of shape {t.shape} with {t.dim()} dims"
            )
        if self.dim >= t.dim() or self.dim < -t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.shape[self.dim]
        count = _compute_nparams_toprune(self.amount, size)
        mask = default_mask.clone()
        if count:
            dim = self.dim % t.dim()
            mask[(slice(None),) * dim + (self._choose(t, count),)] = 0
        return mask


class RandomStructured(_Structured):
    """Prunes whole channels at random."""

    def _choose(self, t, count):
        return wisp.randperm(t.shape[self.dim], device=t.device)[:count]


class LnStructured(_Structured):
    """Prunes the channels of the smallest n-norm."""

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount, dim)
        self.n = n

    def _choose(self, t, count):
        dim = self.dim % t.dim()
        norms = wisp.norm(t, p=self.n, dim=[d for d in range(t.dim()) if d != dim])
        return wisp.topk(norms, k=count, largest=False).indices

    @classmethod
    def apply(cls, module, name, amount, n, dim, importance_scores=None):
        return super().apply(module, name, amount, n, dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module, name):
    """Set up a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Prune elements at random: a part (float) or a number (int) of them."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Prune the elements of the smallest absolute value.

    >>> import wisp
    >>> from wisp.nn.utils import prune
    >>> layer = prune.l1_unstructured(wisp.nn.Linear(10, 10), "weight", amount=0.3)
    >>> int((layer.weight == 0).sum())
    30
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Prune whole channels along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Prune the channels along `dim` of the smallest n-norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Prune by a given mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prune many parameters, given as (module, name) pairs, as if they were one tensor."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    importance_scores = {} if importance_scores is None else importance_scores
    if not isinstance(importance_scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    scores = [importance_scores.get((module, name), getattr(module, name)).detach() for module, name in parameters]
    masks = [getattr(module, name + "_mask", wisp.ones_like(getattr(module, name))) for module, name in parameters]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise ValueError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    final = container.compute_mask(wisp.cat([s.reshape(-1) for s in scores]), wisp.cat([m.reshape(-1) for m in masks]))
    start = 0
    for (module, name), mask in zip(parameters, masks):
        custom_from_mask(module, name, mask=final[start : start + mask.numel()].view_as(mask))
        start += mask.numel()


def _find(module, name):
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


def remove(module, name):
    """Make a pruned parameter an ordinary one, with its zeros."""
    found = _find(module, name)
    if found is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    key, hook = found
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module):
    """Whether some parameter of a module, or of one below it, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for _, child in module.named_modules() for hook in child._forward_pre_hooks.values())


_reference.attach(__name__, globals())
