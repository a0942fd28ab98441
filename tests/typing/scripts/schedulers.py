"""Optimizers and schedules of their learning rates, closures, averaged weights."""

import math

import wisp as torch
from wisp import nn, optim
from wisp.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, OneCycleLR, ReduceLROnPlateau, SequentialLR, StepLR
from wisp.optim.swa_utils import SWALR, AveragedModel, update_bn


def warmup(step: int) -> float:
    return min(1.0, (step + 1) / 10) * 0.5 * (1 + math.cos(math.pi * step / 100))


def schedules(optimizer: optim.Optimizer) -> list[LRScheduler]:
    return [
        StepLR(optimizer, step_size=30, gamma=0.1),
        LambdaLR(optimizer, lr_lambda=warmup),
        CosineAnnealingLR(optimizer, T_max=100, eta_min=1e-5),
        optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9),
        optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 4]),
    ]


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    x, y = torch.randn(32, 4), torch.randn(32, 1)
    loss_fn = nn.SmoothL1Loss(beta=0.5)
    for optimizer in (
        optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4, amsgrad=True),
        optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, momentum=0.1),
        optim.SGD([{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 1e-4}], lr=1e-2, nesterov=True, momentum=0.9),
    ):
        for scheduler in schedules(optimizer):
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            print(scheduler.get_last_lr()[0], optimizer.param_groups[0]["lr"])
    lbfgs = optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        lbfgs.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        return loss

    print(lbfgs.step(closure).item())
    sgd = optim.SGD(model.parameters(), lr=0.1)
    plateau = ReduceLROnPlateau(sgd, mode="min", factor=0.5, patience=1)
    for validation in (1.0, 1.0, 1.0):
        sgd.step()
        plateau.step(validation)
    cycle = OneCycleLR(sgd, max_lr=0.1, total_steps=10)
    sequence = SequentialLR(sgd, schedulers=[StepLR(sgd, 1), CosineAnnealingLR(sgd, 10)], milestones=[3])
    sgd.step()
    cycle.step()
    sequence.step()
    swa_model = AveragedModel(model)
    swa_scheduler = SWALR(sgd, swa_lr=0.05)
    swa_model.update_parameters(model)
    swa_scheduler.step()
    update_bn([x], swa_model)
    print(swa_model(x).shape, sgd.state_dict()["param_groups"][0]["lr"], plateau.state_dict()["best"])


if __name__ == "__main__":
    main()
