"""Recurrent layers: RNN, LSTM, GRU over whole sequences (padded or packed), and their single steps."""

import math
import warnings

import wisp
from wisp import _core
from wisp.nn import functional as F
from wisp.nn import init
from wisp.nn.modules.module import Module
from wisp.nn.modules.utils import _unusual
from wisp.nn.parameter import Parameter
from wisp.nn.utils.rnn import PackedSequence

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]

# Rows of the weights per hidden unit.
_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
_MODES = list(_GATES)  # in the order of the core's numbers


def _lstm_step(gates, c):
    size = c.shape[-1]
    i, f, _, o = wisp.sigmoid(gates).chunk(4, -1)  # one call for all; the third part is for nothing
    c = wisp.addcmul(f * c, i, wisp.tanh(gates.narrow(-1, 2 * size, size)))
    return o * wisp.tanh(c), c


def _gru_step(from_input, from_hidden, h):
    size = h.shape[-1]
    rz_x, n_x = from_input.split([2 * size, size], -1)
    rz_h, n_h = from_hidden.split([2 * size, size], -1)
    r, z = wisp.sigmoid(rz_x + rz_h).chunk(2, -1)
    new = wisp.tanh(wisp.addcmul(n_x, r, n_h))
    return wisp.lerp(new, h, z) if new.dtype == h.dtype else new + z * (h - new)  # autocast leaves the state as it is


def run_layer(mode, x, state, weights, batch_sizes, reverse):
    """One direction of one layer over all time steps; the only place where the recurrence is computed.

    `x` is (T, N, features), or (sum of batch_sizes, features) if packed; `state` is a tuple of (N, hidden), or of None
    for zeros.
    Returns the outputs, shaped as `x`, and the state after the last step of every sequence.
    """
    if batch_sizes is None and x.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    if wisp.is_autocast_enabled(x.device.type) and x.dtype != wisp.float64:
        return _run_autocast(mode, x, state, weights, batch_sizes, reverse)
    tensors = [t for t in (x, *weights, *state) if t is not None]
    if x.dtype in (wisp.float32, wisp.float64) and all(
        t.dtype == x.dtype and t.device == x.device and t.device.type in ("cpu", "cuda") for t in tensors
    ):
        layer = _core._rnn_layer
    else:
        layer = _core._rnn_steps
    output, *last = layer(_MODES.index(mode), reverse, x, batch_sizes, *weights, *state, *[None] * (2 - len(state)))
    return output, tuple(last[: len(state)])


def _run_autocast(mode, x, state, weights, batch_sizes, reverse):
    """The same under autocast: computed in float32 by one operator, which is quicker than steps in lower precision.

    The results have autocast's dtype; those of a GRU on the CPU that of its state, as in PyTorch.
    """
    where = x.device.type
    kept = x.dtype if state[0] is None else state[0].dtype
    dtype = kept if mode == "GRU" and where == "cpu" else wisp.get_autocast_dtype(where)
    with wisp.autocast(where, enabled=False):
        x, *tensors = (t if t is None else t.float() for t in (x, *weights, *state))
        output, last = run_layer(mode, x, tuple(tensors[len(weights) :]), tensors[: len(weights)], batch_sizes, reverse)
    return output.to(dtype), tuple(part.to(dtype) for part in last)


def run_layers(mode, x, state, weights_of, batch_sizes, num_layers, directions, dropout):
    """All layers and directions; `weights_of(number)` gives the five weights of one, of which some may be None.

    `x` is as for `run_layer`; `state` is a tuple of (layers x directions, N, hidden), or of None for zeros.
    """
    number = num_layers * directions
    parts = list(zip(*((None,) * number if part is None else part.unbind(0) for part in state)))
    last = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            output, final = run_layer(mode, x, parts[number], weights_of(number), batch_sizes, reverse=direction == 1)
            outputs.append(output)
            last.append(final)
        x = outputs[0] if directions == 1 else wisp.cat(outputs, -1)
        if dropout > 0 and layer < num_layers - 1:
            x = F.dropout(x, dropout, True)
    return x, tuple(wisp.stack(part) for part in zip(*last))


class RNNBase(Module):
    """What RNN, LSTM and GRU share: parameters, layers, directions, and the forms of input."""

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size"]

    def __init__(
        self,
        mode,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than "
                f"1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        for name, value, kind in (
            ("input_size", input_size, int),
            ("hidden_size", hidden_size, int),
            ("bias", bias, bool),
            ("batch_first", batch_first, bool),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
            if kind is int and value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout = float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size

        rows = _GATES[mode] * hidden_size
        directions = 2 if bidirectional else 1
        out_size = proj_size or hidden_size
        self._all_weights = []
        for layer in range(num_layers):
            layer_input = input_size if layer == 0 else out_size * directions
            for suffix in ("", "_reverse")[:directions]:
                shapes = {"weight_ih": (rows, layer_input), "weight_hh": (rows, out_size)}
                if bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = []
                for kind, shape in shapes.items():
                    names.append(f"{kind}_l{layer}{suffix}")
                    setattr(self, names[-1], Parameter(wisp.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append(names)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw new parameters, uniformly from ±1/√hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self):
        """Nothing to do; here for programs written for cuDNN."""

    @property
    def all_weights(self):
        """The parameters, as one list per layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self):
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self):
        return [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights):
        for name, weight in zip(self._flat_weights_names, weights):
            if weight is not getattr(self, name):
                setattr(self, name, weight)

    def _weights_of(self, number):
        weights = dict(
            zip(
                (name.rpartition("_l")[0] for name in self._all_weights[number]),
                (getattr(self, name) for name in self._all_weights[number]),
            )
        )
        return [weights.get(kind) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")]

    def check_input(self, input, batch_sizes):
        """Raise if the input does not fit."""
        if input.dtype != self._flat_weights[0].dtype and not wisp.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({self._flat_weights[0].dtype}). Convert input: "
                f"input.to({self._flat_weights[0].dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.shape[-1]:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}")

    def _state_sizes(self, batch):
        """The shapes of the parts of the state."""
        rows = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [(rows, batch, self.proj_size or self.hidden_size)]
        return sizes + [(rows, batch, self.hidden_size)] if self.mode == "LSTM" else sizes

    def get_expected_hidden_size(self, input, batch_sizes):
        """The shape of h for an input with a batch."""
        return self._state_sizes(self._batch_of(input, batch_sizes))[0]

    def _batch_of(self, input, batch_sizes):
        if batch_sizes is not None:
            return int(batch_sizes[0])
        return input.shape[0 if self.batch_first else 1]

    def check_forward_args(self, input, hidden, batch_sizes):
        """Raise if the input or the state does not fit."""
        self.check_input(input, batch_sizes)
        parts = hidden if self.mode == "LSTM" else (hidden,)
        names = ("hidden[0] ", "hidden[1] ") if self.mode == "LSTM" else ("hidden ",)
        for part, size, name in zip(parts, self._state_sizes(self._batch_of(input, batch_sizes)), names):
            self.check_hidden_size(part, size, f"Expected {name}size {{}}, got {{}}")

    def permute_hidden(self, hx, permutation):
        """A state with its batch in another order."""
        if permutation is None:
            return hx
        return tuple(part.index_select(1, permutation) for part in hx) if self.mode == "LSTM" else hx.index_select(1, permutation)

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        """Raise if a state has not the expected shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def forward(self, input, hx=None):
        packed = isinstance(input, PackedSequence)
        batch_sizes = None
        if packed:
            x, sizes, sorted_indices, unsorted_indices = input
            batch_sizes = sizes.tolist()
            batch = batch_sizes[0]
        else:
            x, sorted_indices, unsorted_indices = input, None, None
            if x.dim() not in (2, 3):
                raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {x.dim()}D tensor instead")
            batched = x.dim() == 3
            if not batched:
                x = x.unsqueeze(1)
            elif self.batch_first:
                x = x.transpose(0, 1)
            batch = x.shape[1]
        self.check_input(x, batch_sizes)

        state = self._initial_state(hx, x, batch, packed or batched, sorted_indices)
        output, state = self._run(x, state, batch_sizes)

        if packed:
            output = PackedSequence(output, sizes, sorted_indices, unsorted_indices)
            if unsorted_indices is not None:
                state = tuple(s.index_select(1, unsorted_indices) for s in state)
        elif not batched:
            output, state = output.squeeze(1), tuple(s.squeeze(1) for s in state)
        elif self.batch_first:
            output = output.transpose(0, 1)
        return output, state if self.mode == "LSTM" else state[0]

    def _initial_state(self, hx, x, batch, batched, sorted_indices):
        sizes = self._state_sizes(batch)
        if hx is None:
            return (None,) * len(sizes)
        state = tuple(hx) if self.mode == "LSTM" else (hx,)
        if len(state) != len(sizes):
            got = f"a tensor of shape {list(hx.shape)}" if isinstance(hx, wisp.Tensor) else f"{len(state)} tensors"
            raise RuntimeError(f"LSTM: the state is a pair (h, c), each of size {list(sizes[0])}, got {got}")
        dims = 3 if batched else 2
        for part in state:
            if part.dim() != dims:
                kind = "batched 3-D" if batched else "unbatched 2-D"
                if self.mode == "LSTM":
                    raise RuntimeError(
                        f"For {kind} input, hx and cx should also be {dims}-D but got ({state[0].dim()}-D, {state[1].dim()}-D) tensors"
                    )
                raise RuntimeError(f"For {kind} input, hx should also be {dims}-D but got {part.dim()}-D tensor")
        if not batched:
            state = tuple(part.unsqueeze(1) for part in state)
        names = ("hidden[0] ", "hidden[1] ") if self.mode == "LSTM" else ("hidden ",)
        for part, size, name in zip(state, sizes, names):
            self.check_hidden_size(part, size, f"Expected {name}size {{}}, got {{}}")
        if sorted_indices is not None:
            state = tuple(part.index_select(1, sorted_indices) for part in state)
        return state

    def _run(self, x, state, batch_sizes):
        """All layers and directions."""
        dropout = self.dropout if self.training else 0.0
        return run_layers(self.mode, x, state, self._weights_of, batch_sizes, self.num_layers, 2 if self.bidirectional else 1, dropout)

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + _unusual(
            self, proj_size=0, num_layers=1, bias=True, batch_first=False, dropout=0, bidirectional=False
        )


class RNN(RNNBase):
    """`h = tanh(W_ih x + b_ih + W_hh h + b_hh)` over a sequence (T, N, features); `nonlinearity` may be "relu".

    >>> import wisp
    >>> rnn = wisp.nn.RNN(10, 20, num_layers=2)
    >>> output, h = rnn(wisp.randn(5, 3, 10))
    >>> tuple(output.shape), tuple(h.shape)
    ((5, 3, 20), (2, 3, 20))
    """

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        nonlinearity="tanh",
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        *,
        device=None,
        dtype=None,
        **kwargs,
    ):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.nonlinearity = nonlinearity
        modes = {"tanh": "RNN_TANH", "relu": "RNN_RELU"}
        if nonlinearity not in modes:
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        usual = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(modes[nonlinearity], *usual, device=device, dtype=dtype, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory over a sequence; returns the outputs and the last (h, c).

    >>> import wisp
    >>> lstm = wisp.nn.LSTM(10, 20, batch_first=True, bidirectional=True)
    >>> output, (h, c) = lstm(wisp.randn(3, 5, 10))
    >>> tuple(output.shape), tuple(h.shape)
    ((3, 5, 40), (2, 3, 20))
    """

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        device=None,
        dtype=None,
    ):
        usual = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__("LSTM", *usual, proj_size, device, dtype)

    def get_expected_cell_size(self, input, batch_sizes):
        """The shape of c for an input with a batch."""
        return self._state_sizes(self._batch_of(input, batch_sizes))[1]


class GRU(RNNBase):
    """Gated recurrent units over a sequence.

    >>> import wisp
    >>> gru = wisp.nn.GRU(10, 20)
    >>> output, h = gru(wisp.randn(5, 3, 10))
    >>> tuple(output.shape), tuple(h.shape)
    ((5, 3, 20), (1, 3, 20))
    """

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        *,
        device=None,
        dtype=None,
        **kwargs,
    ):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        usual = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__("GRU", *usual, device=device, dtype=dtype, **kwargs)


class RNNCellBase(Module):
    """What the cells share: parameters, and input with or without a batch."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        factory = {"device": device, "dtype": dtype}
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(wisp.empty((rows, input_size), **factory))
        self.weight_hh = Parameter(wisp.empty((rows, hidden_size), **factory))
        self.register_parameter("bias_ih", Parameter(wisp.empty(rows, **factory)) if bias else None)
        self.register_parameter("bias_hh", Parameter(wisp.empty(rows, **factory)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw new parameters, uniformly from ±1/√hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _prepare(self, input, states):
        """Input and states with a batch, and whether they had one."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for i, state in enumerate(states):
            if state is not None and state.dim() not in (1, 2):
                which = f"hx[{i}]" if len(states) > 1 else "hidden"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead")
        batched = input.dim() == 2
        input = input if batched else input.unsqueeze(0)
        if input.shape[1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[1]} expected {self.input_size}")
        ready = []
        for state in states:
            if state is None:
                state = wisp.zeros(input.shape[0], self.hidden_size, dtype=input.dtype, device=input.device)
            elif state.dim() == 1:
                state = state.unsqueeze(0)
            if state.shape[0] != input.shape[0]:
                raise RuntimeError(f"Input batch size {input.shape[0]} doesn't match hidden0 batch size {state.shape[0]}")
            if state.shape[1] != self.hidden_size:
                raise RuntimeError(f"hidden0 has inconsistent hidden_size: got {state.shape[1]}, expected {self.hidden_size}")
            ready.append(state)
        return input, ready, batched

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.__dict__.get("bias", True) is not True:
            text += f", bias={self.bias}"
        if self.__dict__.get("nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class RNNCell(RNNCellBase):
    """One step of an RNN.

    >>> import wisp
    >>> cell = wisp.nn.RNNCell(10, 20)
    >>> h = wisp.zeros(3, 20)
    >>> for x in wisp.randn(6, 3, 10):
    ...     h = cell(x, h)
    """

    __constants__ = [*RNNCellBase.__constants__, "nonlinearity"]

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, (h,), batched = self._prepare(input, [hx])
        activation = wisp.tanh if self.nonlinearity == "tanh" else wisp.relu
        h = activation(F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh))
        return h if batched else h.squeeze(0)


class LSTMCell(RNNCellBase):
    """One step of an LSTM; takes and returns (h, c).

    >>> import wisp
    >>> h, c = wisp.nn.LSTMCell(10, 20)(wisp.randn(3, 10))
    >>> tuple(h.shape), tuple(c.shape)
    ((3, 20), (3, 20))
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        x, (h, c), batched = self._prepare(input, [None, None] if hx is None else list(hx))
        gates = F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh)
        h, c = _lstm_step(gates, c)
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of a GRU.

    >>> import wisp
    >>> tuple(wisp.nn.GRUCell(10, 20)(wisp.randn(3, 10)).shape)
    (3, 20)
    """

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        x, (h,), batched = self._prepare(input, [hx])
        h = _gru_step(F.linear(x, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh), h)
        return h if batched else h.squeeze(0)
