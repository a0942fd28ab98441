"""GradScaler: losses are multiplied so that half-precision gradients don't vanish, and steps with infinities are
left out.
"""

import enum
import inspect
import warnings

import wisp
from wisp import _core

__all__ = ["GradScaler", "OptState"]


class OptState(enum.Enum):
    """How far an optimizer has come since the last `update()`."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Scales losses and unscales gradients by a factor that adapts itself.

    >>> import wisp
    >>> weight = wisp.nn.Parameter(wisp.ones(2))
    >>> optimizer = wisp.optim.SGD([weight], lr=1.)
    >>> scaler = wisp.amp.GradScaler("cpu", init_scale=8.)
    >>> scaler.scale(weight.sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """

    def __init__(self, device="cuda", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        self._device = device
        if enabled and device == "cuda" and not wisp.cuda.is_available():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            enabled = False
        self._enabled = enabled
        if not enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        # The scale and the number of good steps live on the device, so that nothing but step() waits for it.
        self._init_scale, self._init_growth_tracker = float(init_scale), 0
        self._scale = self._growth_tracker = None
        self._growth_factor, self._backoff_factor, self._growth_interval = (growth_factor, backoff_factor, growth_interval)
        self._states = {}  # by id of the optimizer: its OptState, and by device whether an infinity was found

    def _state(self, optimizer):
        return self._states.setdefault(id(optimizer), {"stage": OptState.READY, "found_inf": {}})

    def _start(self, device):
        if self._scale is None:
            self._scale = wisp.full((), self._init_scale, device=device)
            self._growth_tracker = wisp.full((), self._init_growth_tracker, dtype=_core.int32, device=device)

    def _check_scaled(self, call):
        if self._scale is None:
            raise AssertionError(
                f"Attempted {call} but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )

    def _get_growth_tracker(self):
        """How many good steps there were since the scale last changed."""
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item()

    def scale(self, outputs):
        """The tensor, or each tensor of a nest of sequences, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, _core.Tensor):
            self._start(outputs.device)
            return outputs * self._scale.to(outputs.device, non_blocking=True)
        if isinstance(outputs, (list, tuple)):
            scaled = [self.scale(o) for o in outputs]
            return scaled if isinstance(outputs, list) else tuple(scaled)
        if hasattr(outputs, "__iter__"):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer):
        """Divide the gradients of the optimizer's parameters by the scale; once per step."""
        if not self._enabled:
            return
        state = self._state(optimizer)
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        state["found_inf"] = self._unscale(optimizer)
        state["stage"] = OptState.UNSCALED

    def _unscale(self, optimizer):
        gradients = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                if gradient.dtype == _core.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                gradients.setdefault(gradient.device, []).append(gradient)
        found = {}
        with wisp.no_grad():
            for device, tensors in gradients.items():
                self._start(device)
                found[device] = wisp.zeros((), device=device)
                inverse = self._scale.double().reciprocal().float().to(device, non_blocking=True)
                _core._unscale_tensors(tensors, inverse, found[device])
                for tensor in tensors:
                    if type(tensor) is not _core.Tensor and hasattr(tensor, "device_mesh"):
                        tensor._fold(found[device], "MAX")  # cut over ranks, which must agree whether to step
                        break
        return found

    def step(self, optimizer, *args, **kwargs):
        """`optimizer.step()`, after unscaling, unless a gradient is infinite or not a number."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scaled("step")
        state = self._state(optimizer)
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False) and type(optimizer).__module__.partition(".")[0] != "wisp":
            return self._step_of_its_own(optimizer, state, args, kwargs)
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None
        if not any(found.item() for found in state["found_inf"].values()):
            result = optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def _check_inf_per_device(self, optimizer):
        """Look for infinities among the gradients as they are, scaled."""
        found = {}
        with wisp.no_grad():
            for gradient in (p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
                bad = (~gradient.isfinite()).any().float()
                found[gradient.device] = wisp.maximum(found[gradient.device], bad) if gradient.device in found else bad
        self._state(optimizer)["found_inf"] = found
        return found

    def _step_of_its_own(self, optimizer, state, args, kwargs):
        """Of an optimizer that unscales itself: it gets the scale and whether infinities were found."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near future it sets "
                "`grad_scale` and `found_inf` attributes on it instead.",
                FutureWarning,
                stacklevel=3,
            )
            result = optimizer.step(*args, grad_scaler=self, **kwargs)
        else:
            if state["stage"] is OptState.READY:
                self._check_inf_per_device(optimizer)
            scale = self._scale
            optimizer.grad_scale = None if state["stage"] is OptState.UNSCALED else scale
            optimizer.found_inf = sum(f.to(scale.device) for f in state["found_inf"].values())
            result = optimizer.step(*args, **kwargs)
            del optimizer.grad_scale, optimizer.found_inf
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale=None):
        """Shrink the scale after an infinity, let it grow after `growth_interval` good steps, or set it."""
        if not self._enabled:
            return
        self._check_scaled("update")
        with wisp.no_grad():
            if new_scale is not None:
                self._scale.fill_(new_scale) if isinstance(new_scale, (int, float)) else self._scale.copy_(new_scale)
            else:
                found = [f.to(self._scale.device) for s in self._states.values() for f in s["found_inf"].values()]
                if not found:
                    raise AssertionError("No inf checks were recorded prior to update.")
                bad = (found[0] if len(found) == 1 else _core.stack(found).sum()) > 0
                steps = self._growth_tracker + 1
                enough = steps == self._growth_interval
                grown = self._scale * self._growth_factor
                grown = _core.where(_core.isfinite(grown), grown, self._scale)
                kept = _core.where(enough, grown, self._scale)
                self._scale.copy_(_core.where(bad, self._scale * self._backoff_factor, kept))
                self._growth_tracker.copy_(_core.where(bad | enough, _core.zeros_like(steps), steps))
        self._states = {}

    def get_scale(self):
        """The scale as a Python number."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self):
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        self._growth_interval = new_interval

    def is_enabled(self):
        """Whether the scaler does anything."""
        return self._enabled

    def state_dict(self):
        """What a checkpoint keeps of the scaler; the same keys as PyTorch's."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict):
        """Take over what `state_dict` returned."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")
        self._init_scale, self._init_growth_tracker = state_dict["scale"], state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
