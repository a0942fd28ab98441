"""Function transforms: grad, vmap, Jacobians, ensembles of models."""

import copy
from functools import partial

import wisp as torch
import wisp.nn as nn
import wisp.nn.functional as F
from wisp import vmap
from wisp.func import functional_call, grad, grad_and_value, jacfwd, jacrev, jvp, stack_module_state, vjp


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.relu(self.fc1(x)))


def predict(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight, bias).tanh()


def energy(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sum()


def main() -> None:
    torch.manual_seed(0)
    D = 4
    weight, bias, x = torch.randn(D, D), torch.randn(D), torch.randn(D)
    jacobian = jacrev(predict, argnums=0)(weight, bias, x)
    assert torch.allclose(jacobian, jacfwd(predict, argnums=0)(weight, bias, x), atol=1e-5)
    hessian = torch.func.hessian(energy)(x)
    _, vjp_fn = vjp(partial(predict, weight, bias), x)
    (ft_jacobian,) = vmap(vjp_fn)(torch.eye(D))
    _, tangent = jvp(torch.sin, (x,), (torch.ones(D),))
    print(jacobian.shape, hessian.shape, ft_jacobian.shape, tangent.shape)

    models = [MLP() for _ in range(3)]
    params, buffers = stack_module_state(models)
    base_model = copy.deepcopy(models[0]).to("meta")

    def fmodel(params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = functional_call(base_model, (params, buffers), (x,))
        return result

    batch = torch.randn(5, 6)
    print(vmap(fmodel, in_dims=(0, 0, None))(params, buffers, batch).shape)

    model = models[0]
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def compute_loss(weights: dict[str, torch.Tensor], sample: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        prediction: torch.Tensor = functional_call(model, weights, (sample.unsqueeze(0),))
        return F.cross_entropy(prediction, target.unsqueeze(0))

    targets = torch.randint(3, (5,))
    per_sample = vmap(grad(compute_loss), in_dims=(None, 0, 0))(weights, batch, targets)
    grads, value = grad_and_value(compute_loss)(weights, batch[0], targets[0])
    print({name: g.shape for name, g in per_sample.items()}, value.item(), len(grads))


if __name__ == "__main__":
    main()
