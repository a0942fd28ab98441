"""All parameters as one vector, and back."""

import wisp

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters):
    """The elements of all parameters in one vector.

    >>> import wisp
    >>> tuple(wisp.nn.utils.parameters_to_vector(wisp.nn.Linear(3, 2).parameters()).shape)
    (8,)
    """
    parameters = list(parameters)
    for param in parameters:
        _check_device(param, parameters[0])
    return wisp.cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec, parameters):
    """Give the parameters the elements of a vector, in order."""
    if not isinstance(vec, wisp.Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    parameters = list(parameters)
    start = 0
    for param in parameters:
        _check_device(param, parameters[0])
        end = start + param.numel()
        param.data = vec[start:end].view_as(param).data
        start = end


def _check_device(param, first):
    if param.device != first.device:
        raise TypeError("Found two parameters on different devices, this is currently not supported.")
