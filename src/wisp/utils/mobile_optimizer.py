"""What PyTorch does to models for phones; here models stay as they are."""

__all__ = ["LintCode", "MobileOptimizerType", "generate_mobile_module_lints", "optimize_for_mobile"]


def optimize_for_mobile(script_module, optimization_blocklist=None, preserved_methods=None, backend="CPU"):
    """The module in evaluation mode."""
    return script_module.eval()


def generate_mobile_module_lints(script_module):
    """Nothing to say."""
    return []


class MobileOptimizerType:
    """Names of optimizations."""

    CONV_BN_FUSION = INSERT_FOLD_PREPACK_OPS = REMOVE_DROPOUT = FUSE_ADD_RELU = None
    HOIST_CONV_PACKED_PARAMS = VULKAN_AUTOMATIC_GPU_TRANSFER = None


class LintCode:
    """Names of warnings."""

    BUNDLED_INPUT = REQUIRES_GRAD = DROPOUT = BATCHNORM = None
