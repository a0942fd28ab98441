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
    for recipe in (scale_recipe_a, scale_recipe_b):
        _only("scaled_mm", recipe, (ScalingType.TensorWise, ScalingType.RowWise), "one scale for a matrix or for each row")
    for swizzle in (swizzle_a, swizzle_b):
        _only("scaled_mm", swizzle, (None, SwizzleType.NO_SWIZZLE), "scales in their order")
    scales = [_only("scaled_mm", scale, None, "one tensor of scales") for scale in (scale_a, scale_b)]
    return wisp._scaled_mm(mat_a, mat_b, *scales, bias=bias, out_dtype=output_dtype, use_fast_accum=use_fast_accum)


def scaled_grouped_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b, *args, **kwargs):
    """Products of groups of rows in float8: not available, raises NotImplementedError."""
    raise NotImplementedError("scaled_grouped_mm: Wisp multiplies groups in float alone; use grouped_mm")
