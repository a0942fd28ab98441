"""The Transformer of Vaswani et al. (2017): encoder, decoder, and both together."""

import copy
import operator

import wisp
from wisp.nn import functional as F
from wisp.nn.init import xavier_uniform_
from wisp.nn.modules.attention import MultiheadAttention
from wisp.nn.modules.container import ModuleList
from wisp.nn.modules.dropout import Dropout
from wisp.nn.modules.linear import Linear
from wisp.nn.modules.module import Module
from wisp.nn.modules.normalization import LayerNorm

__all__ = ["Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer"]


def _generate_square_subsequent_mask(sz, device=None, dtype=None):
    return wisp.triu(wisp.full((sz, sz), float("-inf"), dtype=dtype, device=device), diagonal=1)


def _detect_is_causal_mask(mask, is_causal=None, size=None):
    """Whether a mask is the causal one; the answer lets attention skip the mask."""
    if is_causal is not None:
        return is_causal
    size = mask.shape[-2] if size is None and mask is not None else size
    if mask is None or tuple(mask.shape) != (size, size):
        return False
    causal = _generate_square_subsequent_mask(size, mask.device, mask.dtype if mask.is_floating_point() else None)
    if mask.dtype == wisp.bool:
        causal = causal < 0
    return bool((mask == causal).all())


def _length(layers, x):
    """The length of the sequences in `x`, as the layers understand it."""
    attention = getattr(layers[0], "self_attn", None) if len(layers) else None
    return _get_seq_len(x, getattr(attention, "batch_first", False))


def _get_seq_len(src, batch_first):
    return src.shape[1 if batch_first and src.dim() == 3 else 0]


def _get_clones(module, n):
    if not isinstance(module, Module):
        raise TypeError(f"a stack of layers is made of copies of a Module, got {type(module).__name__}")
    layers = [None] * operator.index(n)  # more than memory has places for is refused before the first is copied
    return ModuleList(copy.deepcopy(module) for _ in layers)


_SHORTCUTS = {F.relu: 1, F.gelu: 2}


def _get_activation_fn(activation):
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


class _Layer(Module):
    # What the encoder's and the decoder's layer share: an attention of each name, then the feed-forward block; each of these
    # with a norm and a dropout, norm1 ... and dropout1 ...
    __constants__ = ["norm_first"]
    _attentions = ()

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        factory = {"bias": bias, "device": device, "dtype": dtype}
        for name in self._attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **factory))
        self.linear1 = Linear(d_model, dim_feedforward, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **factory)
        self.norm_first = norm_first
        blocks = range(1, len(self._attentions) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, **factory))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation
        self.activation_relu_or_gelu = _SHORTCUTS.get(self.activation, 0)  # PyTorch's shortcuts ask for it

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        x, _ = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal)
        return self.dropout1(x)

    def _feed_forward(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def __setstate__(self, state):
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu
        self.__dict__.setdefault("activation_relu_or_gelu", _SHORTCUTS.get(self.activation, 0))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and a LayerNorm.

    >>> import wisp
    >>> layer = wisp.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    >>> tuple(layer(wisp.randn(3, 5, 8)).shape)
    (3, 5, 8)
    """

    _attentions = ("self_attn",)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _ff_block(self, x):
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward network, each with a residual connection.

    >>> import wisp
    >>> layer = wisp.nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> tuple(layer(wisp.randn(4, 3, 8), wisp.randn(5, 3, 8)).shape)
    (4, 3, 8)
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        x, _ = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal
        )
        return self.dropout2(x)

    def _ff_block(self, x):
        return self.dropout3(self._feed_forward(x))


class TransformerEncoder(Module):
    """A stack of copies of one encoder layer.

    >>> import wisp
    >>> layer = wisp.nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16)
    >>> tuple(wisp.nn.TransformerEncoder(layer, num_layers=2)(wisp.randn(5, 3, 8)).shape)
    (5, 3, 8)
    """

    __constants__ = ["norm"]

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        self.use_nested_tensor = enable_nested_tensor and _can_leave_out_padding(encoder_layer)

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        is_causal = _detect_is_causal_mask(mask, is_causal, _length(self.layers, src))
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=is_causal, src_key_padding_mask=src_key_padding_mask)
        if self._leaves_out_padding(src, mask, src_key_padding_mask):
            output = output.masked_fill((src_key_padding_mask != 0).unsqueeze(-1), 0.0)
        return output if self.norm is None else self.norm(output)

    def _leaves_out_padding(self, src, mask, padding):
        """Whether PyTorch computes the sequences without their padding, which leaves zeros in its place: in evaluation,
        without gradients, if the padding is at the end."""
        if not self.use_nested_tensor or padding is None or mask is not None or src.dim() != 3 or self.layers[0].training:
            return False
        if wisp.is_autocast_enabled() or wisp.is_grad_enabled() and any(t.requires_grad for t in (src, *self.layers[0].parameters())):
            return False
        hidden = padding != 0
        return not self.mask_check or bool((hidden[:, 1:] | ~hidden[:, :-1]).all())


def _can_leave_out_padding(layer):
    return (
        isinstance(layer, TransformerEncoderLayer)
        and not layer.norm_first
        and layer.self_attn.batch_first
        and layer.self_attn._qkv_same_embed_dim
        and layer.self_attn.in_proj_bias is not None
        and layer.activation_relu_or_gelu
        and layer.norm1.eps == layer.norm2.eps
        and layer.self_attn.num_heads % 2 == 0
    )


class TransformerDecoder(Module):
    """A stack of copies of one decoder layer."""

    __constants__ = ["norm"]

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        tgt_is_causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, _length(self.layers, tgt))
        output = tgt
        for layer in self.layers:
            output = layer(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """Encoder and decoder.

    >>> import wisp
    >>> model = wisp.nn.Transformer(d_model=8, nhead=2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
    >>> tuple(model(wisp.randn(5, 3, 8), wisp.randn(4, 3, 8)).shape)
    (4, 3, 8)
    """

    def __init__(
        self,
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        custom_encoder=None,
        custom_decoder=None,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def stack(kind, layer, count):
            return kind(layer(*settings, **factory), count, LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory))

        if custom_encoder is None:
            custom_encoder = stack(TransformerEncoder, TransformerEncoderLayer, num_encoder_layers)
        if custom_decoder is None:
            custom_decoder = stack(TransformerDecoder, TransformerDecoderLayer, num_decoder_layers)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        batched = src.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if batched and src.shape[batch_dim] != tgt.shape[batch_dim]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """The causal mask to add to attention scores: -inf above the diagonal.

        >>> import wisp
        >>> wisp.nn.Transformer.generate_square_subsequent_mask(2)
        tensor([[0., -inf],
                [0., 0.]])
        """
        return _generate_square_subsequent_mask(sz, device, dtype)

    def _reset_parameters(self):
        for param in self.parameters():
            if param.dim() > 1:
                xavier_uniform_(param)
