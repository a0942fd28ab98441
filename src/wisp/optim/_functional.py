"""The optimizers as functions, by their inner module."""


def __getattr__(name):
    import wisp.optim as optim

    for module in (getattr(optim, name, None), optim):
        found = getattr(module, name, None)
        if callable(found):
            return found
    raise AttributeError(f"module 'torch.optim._functional' has no attribute {name!r}")
