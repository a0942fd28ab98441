"""Short-time Fourier transforms and the window functions of the top level."""

import math
import warnings

from wisp import _core
from wisp._tensor import TYPE_NAMES


def _shown(value):
    if isinstance(value, _core.Tensor):
        return f"{value.type()}{{{list(value.shape)}}}"
    return int(value) if isinstance(value, bool) else value


def _call(name, input, arguments, names):
    """How a call is named in its errors."""
    return f"{name}({input}, " + ", ".join(f"{k}={_shown(arguments[k])}" for k in names.split()) + ")"


def _centred(window, n_fft):
    """The window with zeros on both sides, up to n_fft points."""
    left = (n_fft - window.shape[0]) // 2
    if window.shape[0] == n_fft:
        return window
    return _core.cat([window.new_zeros(left), window, window.new_zeros(n_fft - left - window.shape[0])])


_told = set()


def _check_window(name, window):
    """PyTorch's warning, once, about a transform without a window."""
    import wisp

    if window is None and (name not in _told or wisp.is_warn_always_enabled()):
        _told.add(name)
        warnings.warn(
            "A window was not provided. A rectangular window will be applied, which is known to cause spectral leakage. Other windows, as "
            "torch.hann_window, are recommended to reduce it; a window of ones says that this one is meant.",
            stacklevel=3,
        )


def stft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    normalized=False,
    onesided=None,
    return_complex=None,
    align_to_window=None,
):
    """The Fourier transforms of overlapping windows of a signal: (..., frequencies, frames)."""
    _check_window("stft", window)
    from wisp import fft
    from wisp.nn.functional import pad

    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if center:
        if align_to_window is not None:
            raise RuntimeError("stft align_to_window should only be set when center = false")
        shape, half = input.shape, n_fft // 2
        padded = pad(input.reshape([1] * (3 - len(shape)) + list(shape)), (half, half), mode=pad_mode)
        input = padded.reshape(list(shape[:-1]) + [padded.shape[-1]])
    names = "n_fft hop_length win_length window normalized onesided return_complex align_to_window"
    call = _call("stft", f"{input.type()}{list(input.shape)}", locals(), names)
    is_complex = input.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not is_complex:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that "
                "return_complex=True in a future PyTorch release."
            )
        return_complex = True
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(f"{call} : expected a tensor of floating point or complex values")
    if input.dim() not in (1, 2):
        raise RuntimeError(f"{call} : expected a 1D or 2D tensor")
    if not 0 < n_fft <= input.shape[-1]:
        raise RuntimeError(f"{call} : expected 0 < n_fft < {input.shape[-1]}, but got n_fft={n_fft}")
    if hop_length <= 0:
        raise RuntimeError(f"{call} : expected hop_length > 0, but got hop_length={hop_length}")
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{call} : expected 0 < win_length <= n_fft, but got win_length={win_length}")
    if window is not None and (window.dim() != 1 or window.shape[0] != win_length):
        raise RuntimeError(
            f"{call} : expected a 1D window tensor of size equal to win_length={win_length}, but got window with size {list(window.shape)}"
        )
    if onesided is None:
        onesided = not is_complex
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if window is None and win_length < n_fft:
        window = _core.ones(win_length, dtype=input.dtype, device=input.device)
    if align_to_window:
        left = (n_fft - win_length) // 2
        input = pad(input, (left, left))
    single = input.dim() == 1
    frames = (input.unsqueeze(0) if single else input).unfold(-1, n_fft, hop_length)
    if window is not None:
        frames = frames * _centred(window, n_fft)
    norm = "ortho" if normalized else None
    result = (fft.rfft(frames, norm=norm) if onesided else fft.fft(frames, norm=norm)).transpose(1, 2)
    if single:
        result = result.squeeze(0)
    return result if return_complex else _core.view_as_real(result)


def istft(
    input,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    normalized=False,
    onesided=None,
    length=None,
    return_complex=False,
):
    """The signal whose short-time Fourier transform is nearest to `input`."""
    _check_window("istft", window)
    from wisp import fft

    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    kind = f"{input.device.type.upper()}{TYPE_NAMES.get(input.dtype, '')}Type{list(input.shape)}"
    names = "n_fft hop_length win_length window center normalized onesided length return_complex"
    call = _call("istft", kind, locals(), names)
    if not input.is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if input.numel() == 0:
        raise RuntimeError(f"{call} : input tensor cannot be empty.")
    if input.dim() not in (2, 3):
        if input.dim() < 2:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-input.dim() - 1}, {input.dim()}], but got -3)")
        raise RuntimeError(f"{call} : expected a tensor with 3 or 4 dimensions, but got {input.dim() + 1}")
    if onesided is None:
        onesided = input.shape[-2] != n_fft
    if onesided and n_fft // 2 + 1 != input.shape[-2]:
        raise RuntimeError(
            f"{call} : expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 when "
            f"onesided=True, but got {input.shape[-2]}"
        )
    if not onesided and n_fft != input.shape[-2]:
        raise RuntimeError(
            f"{call} : expected the frequency dimension (3rd to the last) of the input tensor to match n_fft when "
            f"onesided=False, but got {input.shape[-2]}"
        )
    if not 0 < hop_length <= win_length:
        raise RuntimeError(f"{call} : expected 0 < hop_length <= win_length")
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{call} : expected 0 < win_length <= n_fft")
    if window is not None and (window.dim() != 1 or window.shape[0] != win_length):
        raise RuntimeError(f"{call} : Invalid window shape. window has to be 1D and length of `win_length`")
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window.is_complex():
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    if window is None:
        window = _core.ones(win_length, dtype=input.real.dtype, device=input.real.device)
    window = _centred(window, n_fft)
    norm = "ortho" if normalized else None
    spectra = input.transpose(-1, -2)
    if return_complex:
        frames = fft.ifft(spectra, norm=norm)
    elif onesided:
        frames = fft.irfft(spectra, n_fft, norm=norm)
    else:
        frames = fft.irfft(spectra[..., : n_fft // 2 + 1], n_fft, norm=norm)
    count = frames.shape[-2]
    signal = _overlap_add(frames * window, hop_length)
    envelope = _overlap_add((window * window).expand(count, n_fft), hop_length)
    full = n_fft + hop_length * (count - 1)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else full - n_fft // 2 if center else full
    signal, envelope = signal[..., start:end], envelope[start:end]
    smallest = envelope.abs().min()
    if not smallest.item() > 1e-11:
        raise RuntimeError(f"{call} window overlap add min: 1\n[ CPUBoolType{{}} ]")
    signal = signal / envelope
    if end > full:
        if length is not None:
            warnings.warn(
                "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please "
                "check your center and hop_length settings.",
                stacklevel=2,
            )
        signal = _core.cat([signal, signal.new_zeros(list(signal.shape[:-1]) + [end - full])], -1)
    return signal


def _overlap_add(frames, hop):
    """The frames, each `hop` after the one before it, added up."""
    count, size = frames.shape[-2:]
    place = (_core.arange(count, device=frames.device).unsqueeze(1) * hop + _core.arange(size, device=frames.device)).reshape(-1)
    total = frames.new_zeros(list(frames.shape[:-2]) + [size + hop * (count - 1)])
    return total.index_add(-1, place, frames.reshape(list(frames.shape[:-2]) + [count * size]))


# --- windows ---------------------------------------------------------------------------------------------------------


def _window(name, length, periodic, formula, dtype, device, pin_memory, requires_grad, layout=None):
    """The first `length` of the points `formula(n, last)`, n = 0 ... last; a periodic window leaves the last one out."""
    dtype = dtype or _core.get_default_dtype()
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if str(layout).startswith("torch.sparse"):
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if length < 2:
        window = _core.ones(length, dtype=dtype, device=device)
    else:
        last = length if periodic else length - 1
        wide = _core.float32 if dtype in (_core.float16, _core.bfloat16) else dtype
        window = formula(_core.arange(last + 1, dtype=wide, device=device), last)[:length].to(dtype).clone()
    return (window.pin_memory() if pin_memory else window).requires_grad_(requires_grad)


def hann_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """0.5 - 0.5 cos(2 pi n / N)."""

    def formula(n, last):
        return (n * (2 * math.pi / last)).cos() * -0.5 + 0.5

    return _window("hann_window", window_length, periodic, formula, dtype, device, pin_memory, requires_grad, layout)


def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """alpha - beta cos(2 pi n / N)."""

    def formula(n, last):
        return (n * (2 * math.pi / last)).cos() * -beta + alpha

    return _window("hamming_window", window_length, periodic, formula, dtype, device, pin_memory, requires_grad, layout)


def bartlett_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """A triangle from 0 up to 1 and back."""

    def formula(n, last):
        return 1 - (n * (2 / last) - 1).abs()

    return _window("bartlett_window", window_length, periodic, formula, dtype, device, pin_memory, requires_grad, layout)


def blackman_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""

    def formula(n, last):
        angle = n * (math.pi / last)
        return (angle * 4).cos() * 0.08 - (angle * 2).cos() * 0.5 + 0.42

    return _window("blackman_window", window_length, periodic, formula, dtype, device, pin_memory, requires_grad, layout)


def kaiser_window(window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1."""

    def formula(n, last):
        x = n * (2 / last) - 1
        return _core.i0((1 - x * x).clamp_min(0).sqrt() * beta) / _core.i0(_core.tensor(float(beta), dtype=n.dtype, device=n.device))

    return _window("kaiser_window", window_length, periodic, formula, dtype, device, pin_memory, requires_grad, layout)


FUNCTIONS = [stft, istft, hann_window, hamming_window, bartlett_window, blackman_window, kaiser_window]
METHODS = [stft, istft]
INPLACE = []
