"""Adaptive softmax for large vocabularies."""

from collections import namedtuple

import wisp
from wisp.nn import functional as F
from wisp.nn.modules.container import ModuleList, Sequential
from wisp.nn.modules.linear import Linear
from wisp.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of classes sorted by frequency: frequent ones in a head, rare ones in clusters with smaller
    projections (Grave et al., 2017). Returns the targets' log-probabilities and their mean as loss.

    >>> import wisp
    >>> head = wisp.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])
    >>> result = head(wisp.randn(4, 8), wisp.tensor([0, 6, 12, 19]))
    >>> tuple(result.output.shape), result.loss.dim()
    ((4,), 0)
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(cutoffs)
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or len(set(cutoffs)) != len(cutoffs)
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = cutoffs + [n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        factory = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **factory)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, hidden, bias=False, **factory), Linear(hidden, size, bias=False, **factory)))

    def reset_parameters(self):
        """Draw new parameters."""
        self.head.reset_parameters()
        for hidden, out in self.tail:
            hidden.reset_parameters()
            out.reset_parameters()

    def forward(self, input_, target_):
        if target_.dim() == 1:
            if input_.shape[0] != target_.shape[0]:
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input_.dim() != 2:
                raise RuntimeError(f"1D target tensor expects 2D input tensors, but found inputs with size {input_.size()}")
        elif target_.dim() == 0:
            if input_.dim() != 1:
                raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size {input_.size()}")
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        if target.numel() and not (0 <= target.min().item() and target.max().item() < self.n_classes):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )

        # The head's class of a rare target is its cluster; the cluster's own log-probability is added.
        head_target = target
        rows, parts = [], []
        for i in range(self.n_clusters):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            inside = (target >= low) & (target < high)
            row = inside.nonzero().squeeze(1)
            if row.numel() == 0:
                continue
            head_target = head_target.masked_fill(inside, self.shortlist_size + i)
            logprob = F.log_softmax(self.tail[i](input.index_select(0, row)), dim=1)
            rows.append(row)
            parts.append(logprob.gather(1, (target[row] - low).unsqueeze(1)).squeeze(1))
        output = F.log_softmax(self.head(input), dim=1).gather(1, head_target.unsqueeze(1)).squeeze(1)
        if rows:
            output = output.index_add(0, wisp.cat(rows), wisp.cat(parts))
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input, head_output):
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            cluster = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(cluster + head[:, self.shortlist_size + i].unsqueeze(1))
        return wisp.cat(parts, 1)

    def log_prob(self, input):
        """Log-probabilities (N, n_classes) of all classes."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input):
        """The most probable class of each row, looking into clusters only where the head points to one."""
        head_output = self.head(input)
        output = head_output.argmax(dim=1)
        not_in_shortlist = output >= self.shortlist_size
        if not bool(not_in_shortlist.any()):
            return output
        best = self._get_full_log_prob(input[not_in_shortlist], head_output[not_in_shortlist]).argmax(dim=1)
        output = output.clone()
        output[not_in_shortlist] = best
        return output
