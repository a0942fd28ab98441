"""Multi-head attention: the function and the module."""

import math

import wisp
from wisp.nn import functional as F
from wisp.nn import init
from wisp.nn.modules.linear import NonDynamicallyQuantizableLinear
from wisp.nn.modules.module import Module
from wisp.nn.parameter import Parameter

__all__ = ["MultiheadAttention", "multi_head_attention_forward"]


def _additive_mask(mask, name, dtype):
    """A mask as numbers to add to the scores: boolean True means "do not attend"."""
    if mask is None:
        return None
    if mask.dtype == wisp.bool:
        return wisp.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -math.inf)
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask.to(dtype)


def _in_projection_packed(query, key, value, weight, bias=None):
    """The three input projections with packed weights; equal inputs share one product."""
    size = query.shape[-1]
    if key is value:
        if query is key:
            return F.linear(query, weight, bias).chunk(3, -1)
        w_q, w_kv = weight.split([size, 2 * size])
        b_q, b_kv = (None, None) if bias is None else bias.split([size, 2 * size])
        return (F.linear(query, w_q, b_q), *F.linear(key, w_kv, b_kv).chunk(2, -1))
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weight.chunk(3), biases)]


# The steps of PyTorch's function that programs call for layers of their own; `nn.functional` has them too.
def _in_projection(q, k, v, w_q, w_k, w_v, b_q=None, b_k=None, b_v=None):
    return F.linear(q, w_q, b_q), F.linear(k, w_k, b_k), F.linear(v, w_v, b_v)


def _canonical_mask(mask, mask_name, other_type, other_name, target_type, check_other=True):
    if mask is not None and mask.is_floating_point():
        return mask
    return _additive_mask(mask, mask_name, target_type)


def _none_or_dtype(input):
    return None if input is None else input.dtype


def _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads):
    if query.dim() not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor")
    kind = "batched 3-D" if query.dim() == 3 else "unbatched 2-D"
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.dim()}-D but found "
            f"{key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != query.dim() - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {query.dim() - 1}-D "
            f"but found {key_padding_mask.dim()}-D tensor instead"
        )
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor instead"
            )
        if query.dim() == 2 and attn_mask.dim() == 3:
            expected = (num_heads, query.shape[0], key.shape[0])
            if tuple(attn_mask.shape) != expected:
                raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {tuple(attn_mask.shape)}")


def _check_sizes(key, value, embed_dim, embed_dim_to_check, num_heads, use_separate_proj_weight):
    if embed_dim != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}")
    if embed_dim // num_heads * num_heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    if key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not use_separate_proj_weight and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")


def _mask_of_heads(mask, batch, num_heads, target, source):
    """A mask (L, S) or (N * heads, L, S) as (N or 1, heads or 1, L, S)."""
    if mask is None:
        return None
    expected = (target, source) if mask.dim() == 2 else (batch * num_heads, target, source)
    if tuple(mask.shape) != expected:
        raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {tuple(mask.shape)}, but should be {expected}.")
    return mask.reshape(-1, num_heads if mask.dim() == 3 else 1, target, source)


def _attend_with_weights(q, k, v, mask, dropout_p):
    """Attention by its formula, which has the weights that the operator never holds."""
    weights = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    if mask is not None:
        weights = weights + mask
    weights = F.softmax(weights, dim=-1)
    if dropout_p > 0.0:
        weights = F.dropout(weights, p=dropout_p)
    return weights @ v, weights


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """Project query (L, N, E), key and value (S, N, E), attend in `num_heads` heads, and project the result.

    Without a batch the inputs are (L, E) and (S, E). Returns the output and, if `need_weights`, the attention
    weights (N, L, S), else None.
    """
    return _project_and_attend(**locals())


def _project_and_attend(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training,
    key_padding_mask,
    need_weights,
    attn_mask,
    use_separate_proj_weight,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
    batch_first=False,
):
    """`multi_head_attention_forward`; with `batch_first` of query (N, L, E), which no product has to reorder then, and others alike."""
    _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    batched = query.dim() == 3
    if not batched:
        batch_first = False
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)

    along, across = (1, 0) if batch_first else (0, 1)  # the dimensions of positions and of the batch
    target, batch, embed_dim = query.shape[along], query.shape[across], query.shape[2]
    source = key.shape[along]
    in_turn = (key.transpose(0, 1), value.transpose(0, 1)) if batch_first and key is not value else (key, value)
    _check_sizes(*in_turn, embed_dim, embed_dim_to_check, num_heads, use_separate_proj_weight)
    head_dim = embed_dim // num_heads
    if batch_first and in_proj_bias is not None and in_proj_bias.dtype != query.dtype:
        in_proj_bias = in_proj_bias.to(query.dtype)  # PyTorch adds it to a product of transposed inputs, whatever its dtype
    if use_separate_proj_weight:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), (q_proj_weight, k_proj_weight, v_proj_weight), biases))
    else:
        q, k, v = _in_projection_packed(query, key, value, in_proj_weight, in_proj_bias)

    # A causal mask and nothing else is left to the attention operator, which needs no mask tensor for it.
    only_causal = is_causal and key_padding_mask is None and not need_weights and bias_k is None and not add_zero_attn
    if only_causal:
        attn_mask = None
    attn_mask = _mask_of_heads(_additive_mask(attn_mask, "attn_mask", q.dtype), batch, num_heads, target, source)
    key_padding_mask = _additive_mask(key_padding_mask, "key_padding_mask", q.dtype)

    extra = 0  # positions of the source beyond those given
    if bias_k is not None and bias_v is not None:
        for given, what in ((static_k, "key"), (static_v, "value")):
            if given is not None:
                raise AssertionError(f"bias cannot be added to static {what}.")
        size = (batch, 1, embed_dim) if batch_first else (1, batch, embed_dim)
        k = wisp.cat([k, bias_k.expand(size)], along)
        v = wisp.cat([v, bias_v.expand(size)], along)
        extra += 1

    q, k, v = (x.reshape(x.shape[0], x.shape[1], num_heads, head_dim).permute(across, 2, along, 3) for x in (q, k, v))
    if static_k is not None:
        k = static_k.reshape(batch, num_heads, -1, head_dim)
    if static_v is not None:
        v = static_v.reshape(batch, num_heads, -1, head_dim)
    if add_zero_attn:
        zeros = wisp.zeros(batch, num_heads, 1, head_dim, dtype=k.dtype, device=k.device)
        k, v = wisp.cat([k, zeros], 2), wisp.cat([v, zeros], 2)
        extra += 1
    if extra:
        attn_mask = None if attn_mask is None else F.pad(attn_mask, (0, extra))
        key_padding_mask = None if key_padding_mask is None else F.pad(key_padding_mask, (0, extra))
    if key_padding_mask is not None:
        if tuple(key_padding_mask.shape) != (batch, k.shape[2]):
            raise AssertionError(f"expecting key_padding_mask shape of {(batch, source)}, but got {tuple(key_padding_mask.shape)}")
        key_padding_mask = key_padding_mask.reshape(batch, 1, 1, k.shape[2])
        attn_mask = key_padding_mask if attn_mask is None else attn_mask + key_padding_mask

    dropout_p = dropout_p if training else 0.0
    if need_weights:
        output, weights = _attend_with_weights(q, k, v, attn_mask, dropout_p)
    else:
        output, weights = F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, only_causal), None

    if batch_first:
        output = output.transpose(1, 2).reshape(batch, target, embed_dim)
    else:
        output = output.permute(2, 0, 1, 3).reshape(target, batch, embed_dim)
    output = F.linear(output, out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(dim=1)
    if not batched:
        output = output.squeeze(1)
        weights = None if weights is None else weights.squeeze(0)
    return output, weights


class MultiheadAttention(Module):
    """Attention in several heads (Vaswani et al., 2017); returns the output and the attention weights.

    >>> import wisp
    >>> attention = wisp.nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> x = wisp.randn(3, 5, 8)
    >>> output, weights = attention(x, x, x)
    >>> tuple(output.shape), tuple(weights.shape)
    ((3, 5, 8), (3, 5, 5))
    """

    __constants__ = ["batch_first"]

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead")
        factory = {"device": device, "dtype": dtype}
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads, self.dropout, self.batch_first = num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(wisp.empty((3 * embed_dim, embed_dim), **factory))
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = Parameter(wisp.empty((embed_dim, embed_dim), **factory))
            self.k_proj_weight = Parameter(wisp.empty((embed_dim, self.kdim), **factory))
            self.v_proj_weight = Parameter(wisp.empty((embed_dim, self.vdim), **factory))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", Parameter(wisp.empty(3 * embed_dim, **factory)) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **factory)
        if add_bias_kv:
            self.bias_k = Parameter(wisp.empty((1, 1, embed_dim), **factory))
            self.bias_v = Parameter(wisp.empty((1, 1, embed_dim), **factory))
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def forward(
        self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True, is_causal=False
    ):
        if query.is_nested or key.is_nested or value.is_nested:
            return self._attend_nested(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights)
        return _project_and_attend(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first,
        )

    def _attend_nested(self, query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights):
        """Sequences of several lengths attend to themselves: padded, with the padding masked, and cut again."""
        why_not = ""
        if query is not key or key is not value:
            why_not = "non-self attention was used (query, key, and value are not the same Tensor)"
        elif not self.batch_first:
            why_not = "batch_first was not True"
        elif self.training:
            why_not = "training is enabled"
        elif key_padding_mask is not None or attn_mask is not None:
            why_not = "key_padding_mask and attn_mask are not supported with NestedTensor input"
        elif wisp.is_grad_enabled() and (query.requires_grad or any(p.requires_grad for p in self.parameters())):
            why_not = "grad is enabled and query or weights or biases requires_grad, or some Tensor argument has_torch_function"
        if why_not:
            raise AssertionError(
                f"MultiheadAttention does not support NestedTensor outside of its fast path. The fast path was not hit because {why_not}"
            )
        lengths = [len(part) for part in query.unbind()]
        padded = query.to_padded_tensor(0.0)
        beyond = wisp.arange(padded.shape[1], device=padded.device) >= wisp.tensor(lengths, device=padded.device)[:, None]
        output, weights = self(padded, padded, padded, beyond, need_weights, None, average_attn_weights)
        if weights is not None:  # padding asks for nothing
            weights = weights.masked_fill(beyond[:, :, None] if average_attn_weights else beyond[:, None, :, None], 0.0)
        parts = [rows[:length] for rows, length in zip(output, lengths)]
        return wisp.nested.as_nested_tensor(parts, layout=query.layout), weights

    def merge_masks(self, attn_mask, key_padding_mask, query):
        """Both masks as one of shape (N, heads, L, S), and PyTorch's number of its kind: 0, 1, 2 or None."""
        if key_padding_mask is None:
            return attn_mask, None if attn_mask is None else 0
        if attn_mask is None:
            return key_padding_mask, 1
        batch, length = query.shape[0], query.shape[1]
        if attn_mask.dim() == 3:
            attn_mask = attn_mask.view(batch, -1, length, length)
        else:
            attn_mask = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        return attn_mask + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1), 2
