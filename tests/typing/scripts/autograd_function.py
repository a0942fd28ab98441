"""Defining new autograd functions, and looking at gradients."""

import math
from typing import Any

import wisp as torch
from wisp.autograd import Function, gradcheck
from wisp.autograd.function import once_differentiable


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx: Any, grad_output: torch.Tensor) -> torch.Tensor:
        (input,) = ctx.saved_tensors
        grad: torch.Tensor = grad_output * 1.5 * (5 * input**2 - 1)
        return grad


class MulConstant(Function):
    @staticmethod
    def forward(tensor: torch.Tensor, constant: float) -> torch.Tensor:
        return tensor * constant

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, float], output: torch.Tensor) -> None:
        tensor, constant = inputs
        ctx.constant = constant

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad_output * ctx.constant, None


def main() -> None:
    dtype = torch.float
    device = torch.device("cpu")
    x = torch.linspace(-math.pi, math.pi, 200, device=device, dtype=dtype)
    y = torch.sin(x)
    a = torch.full((), 0.0, device=device, dtype=dtype, requires_grad=True)
    b = torch.full((), -1.0, device=device, dtype=dtype, requires_grad=True)
    for t in range(5):
        P3 = LegendrePolynomial3.apply
        y_pred: torch.Tensor = a + b * P3(x)
        loss = (y_pred - y).pow(2).sum()
        if t % 4 == 3:
            print(t, loss.item())
        loss.backward()
        with torch.no_grad():
            assert a.grad is not None and b.grad is not None
            a -= 1e-6 * a.grad
            b -= 1e-6 * b.grad
            a.grad = None
            b.grad = None
    print(f"Result: y = {a.item()} + {b.item()} * P3(x)")
    inputs = (torch.randn(3, dtype=torch.double, requires_grad=True), 2.0)
    assert gradcheck(MulConstant.apply, inputs, eps=1e-6, atol=1e-4)

    w = torch.ones(2, 2, requires_grad=True)
    out = (w * w * 3).mean()
    (grad,) = torch.autograd.grad(out, w, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), [w])
    print(out.grad_fn is not None and out.grad_fn.name(), w.is_leaf, second.tolist())
    with torch.set_grad_enabled(False):
        assert not (w * 2).requires_grad
    jacobian = torch.autograd.functional.jacobian(torch.exp, w.detach())
    print(jacobian.shape, torch.is_grad_enabled())
    with torch.autograd.profiler.profile() as prof:
        w.detach().exp().sum()
    assert len(prof.key_averages()) > 0


if __name__ == "__main__":
    main()
