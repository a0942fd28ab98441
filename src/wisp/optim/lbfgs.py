"""L-BFGS: a quasi-Newton method with a limited history of gradients."""

import wisp
from wisp.optim.optimizer import Optimizer, _check_lr, _number, _settings


def _cubic_minimum(x1, f1, g1, x2, f2, g2, bounds=None):
    """Where the cubic through two points with given values and slopes is smallest, kept within bounds.

    Slopes are 0-dim tensors: the search computes in the precision of the parameters."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    if x1 == x2:  # the interval has closed
        return (low + high) / 2.0
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if not square >= 0:
        return (low + high) / 2.0
    d2 = square.sqrt()
    if x1 <= x2:
        position = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        position = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(position, low), high)


class _Point:
    """A step length, with the loss, the gradient and the slope along the search direction there."""

    def __init__(self, t, loss, gradient, slope):
        self.t, self.loss, self.gradient, self.slope = t, loss, gradient, slope


def _strong_wolfe(evaluate, t, largest, start, change, most, c1=1e-4, c2=0.9):
    """A step length that satisfies the strong Wolfe conditions -> its point, and the number of evaluations.

    `evaluate(t)` gives the point at t, `start` is the one at 0, `largest` the largest element of the direction.
    """
    point, evaluations = evaluate(t), 1
    previous, done, iteration = start, False, 0

    def too_high(p):
        return p.loss > start.loss + c1 * p.t * start.slope

    def flat(p):
        return abs(p.slope) <= -c2 * start.slope

    # walk until an interval is known to hold a good point
    while iteration < most:
        if too_high(point) or (iteration > 1 and point.loss >= previous.loss):
            bracket = [previous, point]
            break
        if flat(point):
            bracket, done = [point], True
            break
        if point.slope >= 0:
            bracket = [previous, point]
            break
        bounds = point.t + 0.01 * (point.t - previous.t), point.t * 10
        t = _cubic_minimum(previous.t, previous.loss, previous.slope, point.t, point.loss, point.slope, bounds)
        previous, point = point, evaluate(t)
        evaluations += 1
        iteration += 1
    if iteration == most:
        bracket = [start, point]

    # narrow the interval
    low, high = (0, 1) if bracket[0].loss <= bracket[-1].loss else (1, 0)
    stalled = False
    while not done and iteration < most:
        a, b = bracket
        if abs(b.t - a.t) * largest < change:
            break
        t = _cubic_minimum(a.t, a.loss, a.slope, b.t, b.loss, b.slope)
        left, right = min(a.t, b.t), max(a.t, b.t)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:  # too near to an end: the second time, move away from it
            if stalled or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        point = evaluate(t)
        evaluations += 1
        iteration += 1
        if too_high(point) or point.loss >= bracket[low].loss:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
        else:
            if flat(point):
                done = True
            elif point.slope * (bracket[high].t - bracket[low].t) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
    return bracket[low if len(bracket) > 1 else 0], evaluations


def _number_of(loss):
    return loss.item() if isinstance(loss, wisp.Tensor) else float(loss)


class LBFGS(Optimizer):
    """L-BFGS: a full-batch method that estimates curvature from the last `history_size` steps.

    It has a single group of real parameters, and `step(closure)` needs a closure that computes the loss anew, with
    gradients, as often as it is called. `line_search_fn` is None or "strong_wolfe".
    """

    _needs_whole = True

    def __init__(
        self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100, line_search_fn=None
    ):
        _check_lr(lr)
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(params, _settings(locals()))
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self):
        return self.param_groups[0]["params"]

    def _flat_gradient(self):
        flat = []
        for p in self._params:
            gradient = wisp.zeros_like(p) if p.grad is None else p.grad
            flat.append((wisp.view_as_real(gradient) if gradient.is_complex() else gradient).reshape(-1))
        return wisp.cat(flat)

    def _move(self, length, direction):
        offset = 0
        for p in self._params:
            target = wisp.view_as_real(p) if p.is_complex() else p
            target.add_(direction[offset : offset + target.numel()].view_as(target), alpha=length)
            offset += target.numel()

    def _direction(self, gradient, state, history_size):
        """-gradient times the estimated inverse Hessian; the history first gets the last step."""
        difference = gradient.sub(state["prev_flat_grad"])
        step = state["d"].mul(state["t"])
        product = difference.dot(step)
        differences, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        if product > 1e-10:
            pairs = zip((differences, steps, inverses), (difference, step, 1.0 / product))
            differences, steps, inverses = ([*old, new][-history_size:] for old, new in pairs)
            scale = product / difference.dot(difference)
            state.update(old_dirs=differences, old_stps=steps, ro=inverses, H_diag=scale)  # whole, should an interrupt come
        weights = state.setdefault("al", [None] * history_size)
        direction = gradient.neg()
        for i in range(len(differences) - 1, -1, -1):
            weights[i] = steps[i].dot(direction) * inverses[i]
            direction.add_(differences[i], alpha=-weights[i].item())
        direction = direction * state["H_diag"]
        for i in range(len(differences)):
            weight = weights[i] - differences[i].dot(direction) * inverses[i]
            direction.add_(steps[i], alpha=weight.item())
        return direction

    def step(self, closure):
        """Take up to `max_iter` steps; -> the loss before them."""
        with wisp.no_grad():
            return self._step(closure)

    def _step(self, closure):
        group = self.param_groups[0]
        lr, search = _number(group["lr"]), group["line_search_fn"]
        max_iter, max_eval = group["max_iter"], group["max_eval"]
        tolerance, change = group["tolerance_grad"], group["tolerance_change"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate():
            with wisp.enable_grad():
                return closure()

        first_loss = evaluate()
        loss, evaluations = _number_of(first_loss), 1
        state["func_evals"] += 1
        gradient = self._flat_gradient()
        if gradient.abs().max() <= tolerance:
            return first_loss

        for iteration in range(1, max_iter + 1):
            if state["n_iter"] == 0:
                direction, t = gradient.neg(), min(1.0, 1.0 / gradient.abs().sum()) * lr
                begun = {"old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1}
            else:
                direction, t, begun = self._direction(gradient, state, group["history_size"]), lr, {}
            state.update(begun, n_iter=state["n_iter"] + 1, d=direction, prev_flat_grad=gradient.clone(), prev_loss=loss, t=t)
            slope = gradient.dot(direction)
            if slope > -change:
                break

            used = 0
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                origin = [p.clone() for p in self._params]

                def probe(length, direction=direction, origin=origin):
                    self._move(length, direction)
                    value, slopes = _number_of(evaluate()), self._flat_gradient()
                    for p, before in zip(self._params, origin):
                        p.copy_(before)
                    return _Point(length, value, slopes, slopes.dot(direction))

                point, used = _strong_wolfe(
                    probe, t, direction.abs().max(), _Point(0, loss, gradient, slope), change, max_eval - evaluations
                )
                loss, gradient, t = point.loss, point.gradient, point.t
                state["t"] = t
                self._move(t, direction)
            else:
                self._move(t, direction)
                if iteration != max_iter:  # the loss after the last step is not needed
                    loss, gradient, used = _number_of(evaluate()), self._flat_gradient(), 1
            evaluations += used
            state["func_evals"] += used
            if (
                iteration == max_iter
                or evaluations >= max_eval
                or gradient.abs().max() <= tolerance
                or direction.mul(t).abs().max() <= change
                or abs(loss - state["prev_loss"]) < change
            ):
                break
        return first_loss
