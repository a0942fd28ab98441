"""Own autograd functions, transforms of functions, distributions and a compiled training step."""

from collections.abc import Callable
from typing import Any

import wisp as torch
import wisp.nn.functional as F
from wisp import Tensor, nn
from wisp.autograd import Function
from wisp.autograd.function import once_differentiable
from wisp.distributions import Categorical, Independent, MultivariateNormal, Normal, kl_divergence
from wisp.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap


class ScaledExp(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        result = torch.exp(x * scale)
        ctx.save_for_backward(result)
        ctx.scale = scale
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (result,) = ctx.saved_tensors
        return grad_output * result * ctx.scale, None


class Cube(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, grad_slope: Tensor) -> Tensor:
        slope: Tensor = ctx.saved_tensors[0]
        return grad_output * slope


def polynomial(coefficients: Tensor, x: Tensor) -> Tensor:
    powers = torch.stack([x**k for k in range(coefficients.numel())])
    return (coefficients[:, None] * powers).sum(0)


def per_sample_gradients(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    params = {name: p.detach() for name, p in model.named_parameters()}
    buffers = {name: b.detach() for name, b in model.named_buffers()}

    def loss_of(params: dict[str, Tensor], sample: Tensor, target: Tensor) -> Tensor:
        prediction = functional_call(model, (params, buffers), (sample.unsqueeze(0),))
        return F.mse_loss(prediction, target.unsqueeze(0))

    gradients: dict[str, Tensor] = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, inputs, targets)
    return gradients


class Policy(nn.Module):
    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, 16), nn.Tanh())
        self.head = nn.Linear(16, actions)
        self.value = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Categorical, Tensor]:
        hidden = self.body(x)
        return Categorical(logits=self.head(hidden)), self.value(hidden).squeeze(-1)


def main() -> None:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)
    y: Tensor = ScaledExp.apply(x, 0.5)
    y.sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, 0.5 * torch.exp(0.5 * x.detach()))
    cubes, _ = Cube.apply(x)

    def cube(v: Tensor) -> Any:
        return Cube.apply(v)[0]

    assert torch.autograd.gradcheck(cube, (x,))
    assert cubes.shape == x.shape

    coefficients = torch.tensor([1.0, -2.0, 0.5])
    points = torch.linspace(0, 1, 4)

    def at_points(c: Tensor) -> Tensor:
        return polynomial(c, points)

    def energy(c: Tensor) -> Tensor:
        return at_points(c).pow(2).sum()

    forward, reverse = jacfwd(polynomial)(coefficients, points), jacrev(polynomial)(coefficients, points)
    assert torch.allclose(forward, reverse)
    curvature = hessian(energy)(coefficients)
    assert curvature.shape == (3, 3)
    value, tangent = jvp(at_points, (coefficients,), (torch.ones(3),))
    primal, pull_back = vjp(at_points, coefficients)
    (cotangent,) = pull_back(torch.ones_like(primal))
    assert value.shape == tangent.shape == primal.shape and cotangent.shape == coefficients.shape

    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    gradients = per_sample_gradients(model, torch.randn(6, 3), torch.randn(6, 1))
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    assert norms.shape == (6,)
    ensemble = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = stack_module_state(ensemble)
    base = ensemble[0]

    def call_one(p: dict[str, Any], b: dict[str, Any], data: Tensor) -> Any:
        return functional_call(base, (p, b), (data,))

    assert vmap(call_one, in_dims=(0, 0, None))(params, buffers, torch.randn(5, 3)).shape == (4, 5, 2)

    policy = Policy(4, 2)
    choice, baseline = policy(torch.randn(8, 4))
    actions = choice.sample()
    advantage = torch.randn(8) - baseline.detach()
    loss = -(choice.log_prob(actions) * advantage).mean() - 0.01 * choice.entropy().mean() + F.mse_loss(baseline, torch.zeros(8))
    loss.backward()
    posterior = Independent(Normal(torch.zeros(3), torch.ones(3)), 1)
    prior = MultivariateNormal(torch.zeros(3), torch.eye(3))
    sample = posterior.rsample(torch.Size([10]))
    assert prior.log_prob(sample).shape == (10,) and prior.batch_shape == () and prior.event_shape.numel() == 3
    divergence = kl_divergence(Normal(0.0, 1.0), Normal(1.0, 2.0)).item()
    print(f"KL {divergence:.3f}, mean {posterior.mean.tolist()}")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    @torch.compile
    def train_step(inputs: Tensor, targets: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [train_step(torch.ones(4, 3), torch.ones(4, 1)).item() for _ in range(3)]
    compiled = torch.compile(model, mode="reduce-overhead")
    assert compiled(torch.ones(2, 3)).shape == (2, 1)
    activations: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh, "silu": F.silu}
    print({name: round(f(torch.tensor(0.5)).item(), 4) for name, f in activations.items()}, losses[-1] <= losses[0])


if __name__ == "__main__":
    main()
