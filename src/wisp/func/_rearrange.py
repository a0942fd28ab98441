"""rearrange: transposing, splitting and joining dimensions by a pattern such as "b (h w) c -> b c h w"."""

import re

import wisp


def _groups(side, pattern):
    """ "b (h w) c" -> [["b"], ["h", "w"], ["c"]]; "1" is an empty group, "..." stands for itself."""
    if not re.fullmatch(r"\s*((\(\s*((\w+|\.\.\.)\s*)*\)|\w+|\.\.\.)\s*)*", side):
        raise ValueError(f"rearrange: cannot read {side!r} in the pattern {pattern!r}")
    groups = []
    for part in re.findall(r"\([^)]*\)|\.\.\.|\w+", side):
        groups.append("..." if part == "..." else [name for name in part.strip("()").split() if name != "1"])
    return groups


def rearrange(tensor, pattern, **axes_lengths):
    """Transpose, split and join dimensions as `pattern` says; lengths that the shape does not tell are given by name.

    >>> import wisp
    >>> wisp.func.rearrange(wisp.arange(6), "(h w) -> w h", h=2)
    tensor([[0, 3],
            [1, 4],
            [2, 5]])
    """
    if isinstance(tensor, (list, tuple)):
        tensor = wisp.stack(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: the pattern {pattern!r} must have one '->'")
    left, right = (_groups(side, pattern) for side in sides)
    names = [[name for group in side for name in ([group] if group == "..." else group)] for side in (left, right)]
    nested = any("..." in group for group in left if group != "...")
    if nested or len(set(names[0])) != len(names[0]) or sorted(names[0]) != sorted(names[1]):
        raise ValueError(f"rearrange: both sides of {pattern!r} must have the same names, each once")
    if unknown := set(axes_lengths) - set(names[0]):
        raise ValueError(f"rearrange: {sorted(unknown)} do not occur in {pattern!r}")
    rest = tensor.dim() - sum(group != "..." for group in left)
    if rest < 0 or rest > 0 and "..." not in left:
        raise ValueError(f"rearrange: {pattern!r} does not fit a tensor of {tensor.dim()} dimensions")
    if "..." in left:
        at = left.index("...")
        hidden = [f"...{i}" for i in range(rest)]
        left = [*left[:at], *([name] for name in hidden), *left[at + 1 :]]
        joined = [
            ["...", *hidden] if group == "..." else [n for name in group for n in (hidden if name == "..." else [name])] for group in right
        ]
        right = [part for group in joined for part in ([[name] for name in group[1:]] if group[:1] == ["..."] else [group])]
    lengths = dict(axes_lengths)
    for group, size in zip(left, tensor.shape):
        known = 1
        for name in group:
            known *= lengths.get(name, 1)
        open_names = [name for name in group if name not in lengths]
        if len(open_names) > 1 or known == 0 or size % known or not open_names and size != known:
            raise ValueError(f"rearrange: a dimension of size {size} cannot be split as ({' '.join(group)}) with {axes_lengths}")
        if open_names:
            lengths[open_names[0]] = size // known
    flat = [name for group in left for name in group]
    split = tensor.reshape([lengths[name] for name in flat])
    moved = split.permute([flat.index(name) for group in right for name in group])
    sizes = []
    for group in right:
        size = 1
        for name in group:
            size *= lengths[name]
        sizes.append(size)
    return moved.reshape(sizes)
