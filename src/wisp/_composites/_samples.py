"""vmap for functions written in Python that look at values: those are marked with `by_samples`."""

import functools
import sys


def by_samples(function):
    """Decorate a function of tensors: inside of vmap, where it asks for values that differ, it is called for one sample after another."""

    @functools.wraps(function)
    def decorated(*args, **kwargs):
        batching = sys.modules.get("wisp.func._batching")  # which is built on the functions marked here
        if batching is None or not batching.levels():
            return function(*args, **kwargs)
        return batching.by_samples(function, args, kwargs)

    return decorated
