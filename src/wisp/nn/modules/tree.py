"""Going through the tree of modules: who is in it, with which names, and what stands at a name."""


class Tree:
    """The part of `Module` that finds parameters, buffers and modules in the tree below it."""

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        seen = {}  # by id; the members are kept, as one made for the caller alone may leave its id to the next
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, member in get_members_fn(module):
                if member is None or id(member) in seen:
                    continue
                if remove_duplicate:
                    seen[id(member)] = member
                yield f"{path}.{name}" if path else name, member

    def parameters(self, recurse=True):
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """All parameters with their names.

        >>> import wisp
        >>> [name for name, _ in wisp.nn.Sequential(wisp.nn.Linear(2, 3)).named_parameters()]
        ['0.weight', '0.bias']
        """
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """All buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """All buffers with their names."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def children(self):
        """The modules directly below this one."""
        for _, module in self.named_children():
            yield module

    def named_children(self):
        """The modules directly below this one, with their names."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self, remove_duplicate=True):
        """This module and all below it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """This module and all below it, with their names; the outermost one's is `prefix`."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        # The walk keeps its own stack: a generator for each level would hand every module through all levels above it.
        levels = [(f"{prefix}." if prefix else "", iter(self._modules.items()))]
        while levels:
            path, members = levels[-1]
            for name, module in members:
                if module is None or module in memo:
                    continue
                if type(module).named_modules is not Tree.named_modules:  # a class with a walk of its own
                    yield from module.named_modules(memo, path + name, remove_duplicate)
                    continue
                if remove_duplicate:
                    memo.add(module)
                yield path + name, module
                if module._modules:
                    levels.append((f"{path}{name}.", iter(module._modules.items())))
                    break
            else:
                levels.pop()

    def get_submodule(self, target):
        """The module of the given name, such as `blocks.3.fc1`."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Tree):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target, module, strict=False):
        """Put `module` at the given name; with `strict`, one must be there already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Tree):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Tree):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target, registry, kind):
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if name not in registry(module):
            raise AttributeError(f"`{name}` is not {kind}")
        return getattr(module, name)

    def get_parameter(self, target):
        """The parameter of the given name, such as `blocks.3.fc1.weight`."""
        return self._get_member(target, lambda module: module._parameters, "an nn.Parameter")

    def get_buffer(self, target):
        """The buffer of the given name."""
        return self._get_member(target, lambda module: module._buffers, "a buffer")

    def apply(self, fn):
        """Call `fn` with every module of the tree, children first.

        >>> import wisp
        >>> _ = wisp.nn.Sequential(wisp.nn.ReLU()).apply(lambda module: print(type(module).__name__))
        ReLU
        Sequential
        """
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self
