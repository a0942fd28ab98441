"""The update rules of the elementwise optimizers, as formulas over tensors.

Each function has the arguments of the core's fused step of the same name (`_core._adam_step` for `adam_step`) and
computes the same, one parameter after the other. They serve `differentiable=True`, where autograd must see every
operation, `capturable=True`, where a captured graph must count its own steps, and as the reference that the fused steps
are tested against. New state is computed first and then copied, so that nothing that backward needs is overwritten.
"""

import math

import wisp


def _tick(step):
    """The next step's number; of a count on the GPU a tensor, so that nothing waits for it."""
    step += 1
    return step.double() if step.is_cuda else step.item()


def _value(state):
    return state.double() if state.is_cuda else state.item()


def _root(x):
    return x.sqrt() if isinstance(x, wisp.Tensor) else math.sqrt(x)


def _real(*tensors):
    return [wisp.view_as_real(t) if t.is_complex() else t for t in tensors]


def _direction(parameter, gradient, weight_decay, maximize):
    gradient = -gradient if maximize else gradient
    return gradient if _is_zero(weight_decay) else gradient + weight_decay * _kept(parameter, weight_decay)


def _decayed(parameter, gradient, lr, weight_decay, decoupled, maximize):
    if decoupled:
        parameter.mul_(1 - lr * weight_decay)
    return _direction(parameter, gradient, 0 if decoupled else weight_decay, maximize)


def _kept(tensor, factor):
    """A tensor that is written to later, for a product with a factor whose gradient needs it as it is now."""
    return tensor.clone() if isinstance(factor, wisp.Tensor) and factor.requires_grad else tensor


def _is_zero(value):
    return not isinstance(value, wisp.Tensor) and value == 0


def _moments(m, v, g, beta1, beta2):
    new_m = m + (g - m) * (1 - beta1)
    new_v = beta2 * _kept(v, beta2) + (1 - beta2) * g * g
    m.copy_(new_m)
    v.copy_(new_v)
    return new_m, new_v


def sgd_step(params, grads, momentum_buffers, lr, momentum, dampening, weight_decay, nesterov, maximize):
    for i, p in enumerate(params):
        g = _direction(p, grads[i], weight_decay, maximize)
        if momentum != 0:
            if momentum_buffers[i] is None:
                momentum_buffers[i] = g.clone()
                buffer = momentum_buffers[i].clone()
            else:
                buffer = momentum * momentum_buffers[i] + (1 - dampening) * g
                momentum_buffers[i].copy_(buffer)
            g = g + momentum * buffer if nesterov else buffer
        p.sub_(lr * g)


def adam_step(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2, eps, weight_decay, amsgrad, maximize, decoupled
):
    for i, p in enumerate(params):
        t = _tick(steps[i])
        p, g, m, v = _real(p, grads[i], exp_avgs[i], exp_avg_sqs[i])
        g = _decayed(p, g, lr, weight_decay, decoupled, maximize)
        m, v = _moments(m, v, g, beta1, beta2)
        if amsgrad:
            (largest,) = _real(max_exp_avg_sqs[i])
            v = wisp.maximum(largest.clone(), v)
            largest.copy_(v)
        denominator = v.sqrt() / _root(1 - beta2**t) + eps
        p.sub_(lr / (1 - beta1**t) * m / denominator)


def adamax_step(params, grads, exp_avgs, exp_infs, steps, lr, beta1, beta2, eps, weight_decay, maximize):
    for i, p in enumerate(params):
        t = _tick(steps[i])
        p, g, m, u = _real(p, grads[i], exp_avgs[i], exp_infs[i])
        g = _direction(p, g, weight_decay, maximize)
        new_m = m + (g - m) * (1 - beta1)
        new_u = wisp.maximum(beta2 * u, g.abs() + eps)
        m.copy_(new_m)
        u.copy_(new_u)
        p.sub_(lr / (1 - beta1**t) * new_m / new_u)


def nadam_step(
    params, grads, exp_avgs, exp_avg_sqs, mu_products, steps, lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled, maximize
):
    for i, p in enumerate(params):
        t = _tick(steps[i])
        p, g, m, v = _real(p, grads[i], exp_avgs[i], exp_avg_sqs[i])
        g = _decayed(p, g, lr, weight_decay, decoupled, maximize)
        mu = beta1 * (1 - 0.5 * 0.96 ** (t * momentum_decay))
        mu_next = beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * momentum_decay))
        mu_products[i].mul_(mu)
        mu_product = mu_products[i] if mu_products[i].requires_grad else _value(mu_products[i])
        m, v = _moments(m, v, g, beta1, beta2)
        denominator = (v / (1 - beta2**t)).sqrt() + eps
        p.sub_(lr * (1 - mu) / (1 - mu_product) * g / denominator)
        p.sub_(lr * mu_next / (1 - mu_product * mu_next) * m / denominator)


def radam_step(params, grads, exp_avgs, exp_avg_sqs, steps, lr, beta1, beta2, eps, weight_decay, decoupled, maximize):
    for i, p in enumerate(params):
        t = _tick(steps[i])
        p, g, m, v = _real(p, grads[i], exp_avgs[i], exp_avg_sqs[i])
        g = _decayed(p, g, lr, weight_decay, decoupled, maximize)
        m, v = _moments(m, v, g, beta1, beta2)
        correction = 1 - beta2**t
        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 * t * beta2**t / correction
        update = lr * (m / (1 - beta1**t))
        if isinstance(rho, wisp.Tensor):
            large = rho.clamp(min=5)
            rectification = _root((large - 4) * (large - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * large))
            update = wisp.where(rho > 5, update * (_root(correction) / (v.sqrt() + eps)) * rectification, update)
        elif rho > 5:
            rectification = math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            update = update * (math.sqrt(correction) / (v.sqrt() + eps)) * rectification
        p.sub_(update)


def adagrad_step(params, grads, state_sums, steps, lr, lr_decay, weight_decay, eps, maximize):
    for i, p in enumerate(params):
        t = _tick(steps[i])
        p, g, total = _real(p, grads[i], state_sums[i])
        g = _direction(p, g, weight_decay, maximize)
        new_total = total + g * g
        total.copy_(new_total)
        p.sub_(lr / (1 + (t - 1) * lr_decay) * g / (new_total.sqrt() + eps))


def adadelta_step(params, grads, square_avgs, acc_deltas, steps, lr, rho, eps, weight_decay, maximize):
    for i, p in enumerate(params):
        _tick(steps[i])
        p, g, square, accumulated = _real(p, grads[i], square_avgs[i], acc_deltas[i])
        g = _direction(p, g, weight_decay, maximize)
        new_square = rho * square + (1 - rho) * g * g
        delta = (accumulated + eps).sqrt() / (new_square + eps).sqrt() * g
        new_accumulated = rho * accumulated + (1 - rho) * delta * delta
        square.copy_(new_square)
        accumulated.copy_(new_accumulated)
        p.sub_(lr * delta)


def rmsprop_step(
    params, grads, square_avgs, grad_avgs, momentum_buffers, steps, lr, alpha, eps, weight_decay, momentum, centered, maximize
):
    for i, p in enumerate(params):
        _tick(steps[i])
        p, g, square = _real(p, grads[i], square_avgs[i])
        g = _direction(p, g, weight_decay, maximize)
        average = alpha * square + (1 - alpha) * g * g
        square.copy_(average)
        if centered:
            (mean,) = _real(grad_avgs[i])
            new_mean = mean + (g - mean) * (1 - alpha)
            mean.copy_(new_mean)
            average = average - new_mean * new_mean
        update = g / (average.sqrt() + eps)
        if momentum > 0:
            (buffer,) = _real(momentum_buffers[i])
            update = momentum * buffer + update
            buffer.copy_(update)
        p.sub_(lr * update)


def rprop_step(params, grads, prevs, step_sizes, steps, step_size_min, step_size_max, etaminus, etaplus, maximize):
    for i, p in enumerate(params):
        _tick(steps[i])
        p, g, previous, size = _real(p, grads[i], prevs[i], step_sizes[i])
        g = -g if maximize else g
        agreement = (g * previous).detach()
        one = wisp.ones_like(size)
        factor = wisp.where(agreement > 0, one * etaplus, wisp.where(agreement < 0, one * etaminus, one))
        new_size = (size * factor).clamp(step_size_min, step_size_max)
        size.copy_(new_size)
        g = wisp.where(agreement < 0, wisp.zeros_like(g), g)
        p.sub_(g.sign() * new_size)
        previous.copy_(g)


def asgd_step(params, grads, axs, mus, etas, steps, lr, lambd, alpha, t0, weight_decay, maximize):
    for i, p in enumerate(params):
        t = _tick(steps[i])
        p, g, average = _real(p, grads[i], axs[i])
        g = _direction(p, g, weight_decay, maximize)
        eta, mu = _value(etas[i]), _value(mus[i])
        p.mul_(1 - lambd * eta).sub_(eta * g)
        average.copy_(
            wisp.where(mu == 1, p, average + (p - average) * mu)
            if isinstance(mu, wisp.Tensor)
            else p
            if mu == 1
            else average + (p - average) * mu
        )
        etas[i].fill_(lr / (1 + lambd * lr * t) ** alpha)
        mus[i].fill_(1 / ((t - t0).clamp(min=1) if isinstance(t, wisp.Tensor) else max(1, t - t0)))
