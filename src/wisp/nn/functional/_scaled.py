"""Products of matrices in 8 bits, with their scales."""

import enum

import wisp

ScalingType = enum.IntEnum("ScalingType", "TensorWise RowWise BlockWise1x16 BlockWise1x32 BlockWise1x128 BlockWise128x128", start=0)
SwizzleType = enum.IntEnum("SwizzleType", "NO_SWIZZLE SWIZZLE_32_4_4", start=0)


def _only(name, values, allowed, kind):
    """One value of a list of one, which must be among those that are computed."""
    values = values if isinstance(values, (list, tuple)) else [values]
    if len(values) != 1 or not (isinstance(values[0], wisp.Tensor) if allowed is None else values[0] in allowed):
        raise NotImplementedError(f"{name}: expected {kind}, got {values}; multiply the parts and their scales in float instead")
    return values[0]


def _checked(name, scales, recipes, swizzles):
    """-> the scales and the recipes of both matrices, each one value"""
    known = (ScalingType.TensorWise, ScalingType.RowWise)
    recipes = [_only(name, recipe, known, "one scale for a matrix or for each row") for recipe in recipes]
    for swizzle in swizzles:
        _only(name, swizzle, (None, SwizzleType.NO_SWIZZLE), "scales in their order")
    return [_only(name, scale, None, "one tensor of scales") for scale in scales], recipes


def scaled_mm(
    mat_a,
    mat_b,
    scale_a,
    scale_recipe_a,
    scale_b,
    scale_recipe_b,
    swizzle_a=None,
    swizzle_b=None,
    bias=None,
    output_dtype=wisp.bfloat16,
    contraction_dim=(),
    use_fast_accum=False,
):
    """The product of two matrices of float8, each with one scale, or with one for each row of the first and column of the second.

    >>> a = wisp.tensor([[1.0, 2.0]]).to(wisp.float8_e4m3fn)
    >>> one = wisp.nn.functional.ScalingType.TensorWise
    >>> wisp.nn.functional.scaled_mm(a, a.t(), wisp.tensor(0.5), one, wisp.tensor(2.0), one, output_dtype=wisp.float32)
    tensor([[5.]])
    """
    scales, _ = _checked("scaled_mm", (scale_a, scale_b), (scale_recipe_a, scale_recipe_b), (swizzle_a, swizzle_b))
    return wisp._scaled_mm(mat_a, mat_b, *scales, bias=bias, out_dtype=output_dtype, use_fast_accum=use_fast_accum)


def _scaled(matrix, scale, recipe, dim, offs):
    """A matrix or a stack times its scales: one for all, or for each place of `dim`, and for each group where they lie beside it."""
    if recipe == ScalingType.TensorWise:
        return matrix.float() * scale
    if offs is not None:  # groups lie along the other dimension: the scales of each stand one behind the other
        sizes = offs.diff(prepend=offs.new_zeros(1))
        scale = scale.view(len(offs), matrix.size(dim)).repeat_interleave(sizes, 0)
        return matrix.float() * (scale if dim == -1 else scale.t())
    shape = list(matrix.shape)
    shape[-3 - dim] = 1
    return matrix.float() * scale.view(shape)


def scaled_grouped_mm(
    mat_a,
    mat_b,
    scale_a,
    scale_recipe_a,
    scale_b,
    scale_recipe_b,
    swizzle_a=None,
    swizzle_b=None,
    bias=None,
    offs=None,
    output_dtype=wisp.bfloat16,
    contraction_dim=(),
    use_fast_accum=False,
):
    """Products of groups of rows in float8 (see `grouped_mm`), each matrix with one scale, or with one for each row of the first and
    column of the second. They are multiplied in float32.

    >>> a, b = wisp.tensor([[1.0], [2.0]]).to(wisp.float8_e4m3fn), wisp.tensor([[[1.0]], [[3.0]]]).to(wisp.float8_e4m3fn)
    >>> rows, ends = wisp.nn.functional.ScalingType.RowWise, wisp.tensor([1, 2], dtype=wisp.int32)
    >>> wisp.nn.functional.scaled_grouped_mm(a, b, wisp.tensor([2, 4]), rows, wisp.ones(2, 1), rows, offs=ends, output_dtype=wisp.float32)
    tensor([[ 2.],
            [24.]])
    """
    scales, recipes = _checked("scaled_grouped_mm", (scale_a, scale_b), (scale_recipe_a, scale_recipe_b), (swizzle_a, swizzle_b))
    shared = offs if mat_a.dim() == mat_b.dim() == 2 else None
    a, b = (_scaled(m, s, r, dim, shared) for m, s, r, dim in zip((mat_a, mat_b), scales, recipes, (-2, -1)))
    return wisp.nn.functional.grouped_mm(a, b, offs=offs, bias=bias).to(output_dtype or wisp.bfloat16)
