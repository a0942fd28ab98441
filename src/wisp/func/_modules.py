"""Modules as functions of their parameters."""

import wisp
from wisp.nn.utils import stateless

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Call `module` with the tensors of a dict (or several) in place of its own."""
    if isinstance(parameter_and_buffer_dicts, dict):
        tensors = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, (list, tuple)):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        names = [name for d in parameter_and_buffer_dicts for name in d]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        tensors = {name: value for d in parameter_and_buffer_dicts for name, value in d.items()}
    else:
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(parameter_and_buffer_dicts)}"
        )
    return stateless._functional_call(module, tensors, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models):
    """-> (parameters, buffers) of models of the same class, stacked along a first dimension, for `vmap`."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(tensors):
        if len({t.requires_grad for t in tensors}) > 1:
            raise RuntimeError("Expected Parameters from each model to have the same .requires_grad")
        together = wisp.stack([t.detach() for t in tensors])
        return together.requires_grad_() if tensors[0].requires_grad else together

    parameters = [dict(model.named_parameters()) for model in models]
    buffers = [dict(model.named_buffers()) for model in models]
    return (
        {name: stacked([p[name] for p in parameters]) for name in parameters[0]},
        {name: stacked([b[name] for b in buffers]) for name in buffers[0]},
    )


def replace_all_batch_norm_modules_(root):
    """Make every batch norm of a module forget its running statistics, in place, so that it is a pure function."""
    from wisp.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
