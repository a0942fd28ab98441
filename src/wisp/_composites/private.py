"""Functions that have no page in PyTorch's reference, and that libraries and its own tests call."""

import functools

import wisp


def _convert_indices_from_coo_to_csr(input, size, *, out_int32=False, out=None):
    """Where the elements of each row begin, of rows that are sorted."""
    counts = wisp.bincount(input, minlength=size)
    result = wisp.cat([counts.new_zeros(1), counts.cumsum(0)]).to(wisp.int32 if out_int32 else wisp.int64)
    return result if out is None else out.copy_(result)


def _convert_indices_from_csr_to_coo(crow_indices, col_indices, *, out_int32=False, transpose=False, out=None):
    """The rows and columns of the elements of a compressed matrix."""
    rows = wisp.arange(len(crow_indices) - 1, device=crow_indices.device).repeat_interleave(crow_indices.diff())
    pair = [col_indices, rows] if transpose else [rows, col_indices]
    result = wisp.stack([index.to(wisp.int32 if out_int32 else wisp.int64) for index in pair])
    return result if out is None else out.copy_(result)


def _segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """`segment_reduce` under its private name."""
    return wisp.segment_reduce(data, reduce, lengths=lengths, indices=indices, offsets=offsets, axis=axis, unsafe=unsafe, initial=initial)


def _addmm_activation(input, mat1, mat2, *, beta=1, alpha=1, use_gelu=False, out=None):
    """relu or gelu of addmm; gelu on a GPU by its approximation."""
    result = wisp.addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    result = wisp.nn.functional.gelu(result, approximate="tanh" if result.is_cuda else "none") if use_gelu else wisp.relu(result)
    return result if out is None else out.copy_(result)


def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """The gradient of softmax, from that of its result."""
    weighted = grad_output * output
    return (weighted - output * weighted.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward_data(grad_output, output, dim, input_dtype):
    """The gradient of log_softmax, from that of its result."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


def _is_all_true(input):
    """Whether all elements are true, as a tensor; inside of vmap, those of all samples."""
    return wisp.func._batching.innermost(input).all()


def _is_any_true(input):
    """Whether an element is true, as a tensor; inside of vmap, one of any sample."""
    return wisp.func._batching.innermost(input).any()


def _shape_as_tensor(input):
    """The sizes, as a tensor."""
    return wisp.tensor(input.shape, dtype=wisp.int64)


def _dim_arange(like, dim):
    """The numbers of the places along a dimension."""
    return wisp.arange(like.size(dim), device=like.device)


def _from_blob(data, sizes, strides=None, *, dtype=None, device=None):
    """A tensor on memory at an address, which must stay as long as the tensor does."""
    import ctypes

    if device is not None and wisp.device(device).type != "cpu":
        raise RuntimeError(f"_from_blob: memory of {device} is not reached by its address here")
    dtype, sizes = dtype or wisp.get_default_dtype(), list(sizes)
    strides = list(wisp.empty(sizes, device="meta").stride() if strides is None else strides)
    count = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
    if count == 0:
        return wisp.empty(sizes, dtype=dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(data)
    return wisp.frombuffer(memory, dtype=dtype).as_strided(sizes, strides)


def _efficientzerotensor(size, *more, dtype=None, device=None, requires_grad=False):
    """Zeros that take the memory of one, which NumPy and files refuse, as PyTorch's without memory do."""
    sizes = (size, *more) if more or isinstance(size, int) else size
    return _zero_tensor()(wisp.zeros((), dtype=dtype, device=device).expand(sizes)).requires_grad_(requires_grad)


@functools.cache
def _zero_tensor():
    class ZeroTensor(wisp.Tensor):
        """Zeros of one memory; whatever is computed with them is a tensor as any other."""

        def __new__(cls, data):
            return wisp.Tensor._make_subclass(cls, data)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with wisp.DisableTorchFunctionSubclass():
                result = func(*args, **(kwargs or {}))
                return result.as_subclass(wisp.Tensor) if type(result) is cls and result is not args[0] else result

        def numpy(self, *, force=False):
            if not force:
                raise RuntimeError("Can't call numpy() on a ZeroTensor, whose elements share one memory. Use numpy(force=True)")
            return self.as_subclass(wisp.Tensor).clone(memory_format=wisp.contiguous_format).detach().numpy()

        def __reduce_ex__(self, protocol):
            raise RuntimeError("ZeroTensor is not serializable: clone() it first")

        def _is_zerotensor(self):
            return True

    return ZeroTensor


def _neg_view(input):
    """A view with the negated values."""
    return wisp._core._neg_view(input)


def _unique2(input, sorted=True, return_inverse=False, return_counts=False):
    """`unique`, always with three results; those that were not asked for are empty."""
    empty = input.new_empty(0, dtype=wisp.int64)
    asked = wisp.unique(input, sorted=sorted, return_inverse=return_inverse, return_counts=return_counts)
    found = list(asked) if isinstance(asked, tuple) else [asked]
    values = found.pop(0)
    return values, found.pop(0) if return_inverse else empty, found.pop(0) if return_counts else empty


def _euclidean_dist(x1, x2):
    """The distances between the rows of two matrices."""
    return wisp.cdist(x1, x2)


def _weight_norm(v, g, dim=0):
    """g times v by its norm along all dimensions but one."""
    return v * (g / wisp.norm_except_dim(v, 2, dim))


def norm_except_dim(v, pow=2, dim=0):
    """The norm over all dimensions but one; with -1, over all."""
    if dim == -1:
        return v.norm(pow)
    rest = [d for d in range(v.dim()) if d != dim % v.dim()]
    return v.norm(pow, rest, keepdim=True)


def _standard_gamma(input, generator=None):
    """Samples of gamma distributions of scale 1."""
    return wisp.distributions.utils.standard_gamma(input, generator)


def _sample_dirichlet(input, generator=None):
    """Samples of Dirichlet distributions."""
    return wisp.distributions.utils.drawn(lambda x: wisp.distributions.continuous._Dirichlet.apply(x, generator), input)


def _softmax(input, dim, half_to_float):
    """softmax along a dimension."""
    return wisp.softmax(input, dim, wisp.float32 if half_to_float else None)


def _masked_softmax(input, mask, dim=None, mask_type=None):
    """softmax of what a mask does not hide; a mask of type 1 hides keys of each sample of a batch."""
    if mask.dtype != wisp.bool:
        raise RuntimeError("Mask should be a boolean tensor")
    if mask_type == 1 and mask.dim() == 2 and input.dim() == 4:
        mask = mask.view(mask.shape[0], 1, 1, mask.shape[1])
    return wisp.softmax(input.masked_fill(mask, -wisp.inf), -1 if dim is None else dim)


def _assert_async(input, message="Expected Tensor with single nonzero value, but got zero"):
    """Refuse a tensor that is zero."""
    if not bool(input):
        raise RuntimeError(message)


def _amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale):
    """Multiply gradients by a number, and say whether one was infinite or no number."""
    for gradient in self:
        if not bool(gradient.isfinite().all()):
            found_inf.fill_(1.0)
        gradient.mul_(inv_scale.to(gradient.dtype))


def _amp_update_scale_(self, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, growth_interval):
    """Lower the scale of a loss after a step that was infinite, raise it after so many that were not."""
    if bool(found_inf):
        self.mul_(scale_backoff_factor)
        growth_tracker.fill_(0)
    else:
        growth_tracker.add_(1)
        if int(growth_tracker) == growth_interval:
            grown = self * scale_growth_factor
            if bool(grown.isfinite()):
                self.copy_(grown)
            growth_tracker.fill_(0)
    return self


def _grouped_mm(self, mat2, offs=None, bias=None, out_dtype=None):
    """Products of groups of rows (see `nn.functional.grouped_mm`)."""
    return wisp.nn.functional.grouped_mm(self, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


def _cast_Long(input, non_blocking=False):
    """The tensor as int64."""
    return input.long()


def _has_compatible_shallow_copy_type(input, from_):
    """Whether one tensor may take the place of another: True, where both have memory."""
    return input.layout == from_.layout


def _gates(input, hx, w_ih, w_hh, b_ih, b_hh):
    linear = wisp.nn.functional.linear
    return linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh)


def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of an LSTM: the new hidden state and the new cell."""
    hidden, cell = hx
    first, second = _gates(input, hidden, w_ih, w_hh, b_ih, b_hh)
    into, forget, new, out = (first + second).chunk(4, -1)
    cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of a GRU: the new hidden state."""
    first, second = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    (reset, update, new), (reset_h, update_h, new_h) = first.chunk(3, -1), second.chunk(3, -1)
    new = (new + (reset + reset_h).sigmoid() * new_h).tanh()
    return new + (update + update_h).sigmoid() * (hx - new)


def rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of a plain recurrent layer."""
    first, second = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    return (first + second).tanh()


def rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of a plain recurrent layer with relu."""
    first, second = _gates(input, hx, w_ih, w_hh, b_ih, b_hh)
    return (first + second).relu()


_RECURRENT = "hx params has_biases num_layers dropout train bidirectional".split()


def _recurrent(mode, name, text):
    """A recurrent network as a function: of (input, hx, params, ..., batch_first), or of what a PackedSequence holds, (data, batch_sizes,
    hx, params, ...)."""

    def call(*args, **kwargs):
        from wisp.nn.modules.rnn import run_layers

        packed = "batch_sizes" in kwargs or (len(args) > 3 and isinstance(args[3], (tuple, list)))
        names = ["data", "batch_sizes", *_RECURRENT] if packed else ["input", *_RECURRENT, "batch_first"]
        given = {**dict(zip(names, args)), **kwargs}
        if len(args) + len(kwargs) != 9 or set(given) != set(names):
            raise TypeError(f"{name}() takes ({', '.join(names)}), got {len(args)} arguments{''.join(f', {key}=' for key in kwargs)}")
        batch_first, directions = given.get("batch_first", False), 2 if given["bidirectional"] else 1
        params, each = given["params"], len(given["params"]) // (given["num_layers"] * directions)

        def weights_of(number):
            weights = list(params[number * each : (number + 1) * each])
            weights = weights if given["has_biases"] else [*weights[:2], None, None, *weights[2:]]
            return [*weights, *[None] * (5 - len(weights))]  # the last is a projection

        x = given["data"] if packed else given["input"]
        state, sizes = tuple(given["hx"]) if mode == "LSTM" else (given["hx"],), given["batch_sizes"].tolist() if packed else None
        rate = given["dropout"] if given["train"] else 0.0
        x = x.transpose(0, 1) if batch_first else x
        output, last = run_layers(mode, x, state, weights_of, sizes, given["num_layers"], directions, rate)
        return (output.transpose(0, 1) if batch_first else output, *last)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{text} over all steps, as a function of its weights: (output, last state)."
    return call


lstm, gru = _recurrent("LSTM", "lstm", "An LSTM"), _recurrent("GRU", "gru", "A GRU")
rnn_tanh = _recurrent("RNN_TANH", "rnn_tanh", "A plain recurrent network")
rnn_relu = _recurrent("RNN_RELU", "rnn_relu", "A plain recurrent network with relu")


def _weight_int8pack_mm(input, mat2, scales):
    """A product with the transpose of a matrix of int8, each of whose rows has its scale."""
    return (input @ mat2.to(input.dtype).t()) * scales


def _validate_sparse_compressed_tensor_args(compressed_indices, plain_indices, values, size, layout, check_pinning=None):
    """Refuse parts that make no compressed tensor of this layout."""
    wisp.sparse._validate_compressed(compressed_indices, plain_indices, values, size, layout)


def _validate_sparse_coo_tensor_args(indices, values, size, is_coalesced=None, check_pinning=None):
    """Refuse parts that make no sparse tensor."""
    wisp.sparse._validate_coordinates(indices, values, size, is_coalesced)


def nuclear_norm(input, dim=None, keepdim=False, *, out=None):
    """The sum of the singular values."""
    return wisp.linalg.matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


def set_vital(vital_name, attr_name, value):
    """False: nothing is noted."""
    return False


def read_vitals():
    """Nothing was noted."""
    return ""


FUNCTIONS = [
    _convert_indices_from_coo_to_csr,
    _convert_indices_from_csr_to_coo,
    _segment_reduce,
    _softmax_backward_data,
    _log_softmax_backward_data,
    _is_all_true,
    _is_any_true,
    _shape_as_tensor,
    _dim_arange,
    _from_blob,
    _efficientzerotensor,
    _neg_view,
    _unique2,
    _euclidean_dist,
    _weight_norm,
    norm_except_dim,
    _standard_gamma,
    _sample_dirichlet,
    _softmax,
    _masked_softmax,
    _addmm_activation,
    _assert_async,
    _amp_foreach_non_finite_check_and_unscale_,
    _amp_update_scale_,
    _cast_Long,
    _grouped_mm,
    _has_compatible_shallow_copy_type,
    lstm_cell,
    gru_cell,
    rnn_tanh_cell,
    rnn_relu_cell,
    lstm,
    gru,
    rnn_tanh,
    rnn_relu,
    _weight_int8pack_mm,
    _validate_sparse_compressed_tensor_args,
    _validate_sparse_coo_tensor_args,
    nuclear_norm,
    set_vital,
    read_vitals,
]
