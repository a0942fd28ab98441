"""Parts of a graph that can be captured as one graph of CUDA's: those with tensors on a GPU alone."""

import operator

import wisp
from wisp.fx.interpreter import Interpreter
from wisp.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from wisp.fx.passes.operator_support import OperatorSupport
from wisp.fx.passes.tools_common import CALLABLE_NODE_OPS
from wisp.utils._pytree import tree_leaves

__all__ = ["CudaGraphsSupport", "partition_cudagraphs"]


class _Devices(Interpreter):
    """Notes on which devices the results of each step are."""

    def run_node(self, n):
        result = super().run_node(n)
        n.meta["devices"] = {leaf.device.type for leaf in tree_leaves(result) if isinstance(leaf, wisp.Tensor)}
        return result


class CudaGraphsSupport(OperatorSupport):
    """Supports calls whose tensors, taken and returned, are all on a GPU."""

    def is_node_supported(self, submodules, node):
        """Whether a step touches the GPU alone; `partition_cudagraphs` has noted the devices."""
        if node.op not in CALLABLE_NODE_OPS:
            return False
        return node.target is operator.getitem or all(n.meta["devices"] <= {"cuda"} for n in (node, *node.all_input_nodes))


def partition_cudagraphs(gm, inputs):
    """The module with each part that runs on the GPU alone in a submodule; it is run once on `inputs`.

    >>> traced = wisp.fx.symbolic_trace(lambda x: x + 1)
    >>> list(partition_cudagraphs(traced, [wisp.ones(1)]).children())  # on the CPU there is nothing to capture
    []
    """
    with wisp.no_grad():
        _Devices(gm).run(*inputs)
    return CapabilityBasedPartitioner(gm, CudaGraphsSupport(), allows_single_node_partition=True).partition_and_fuse()
