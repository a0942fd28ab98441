"""Learns to balance a pole on a cart by trial and error (policy gradient with a baseline).

    python examples/policy_gradient.py

Nothing is known about the physics but what can be seen: where the cart and the pole are and how they move. Pushing the cart left or
right, a random player keeps the pole up for about 20 steps; the trained one for more than 450 of at most 500, on average over 100 games.
All games of a batch are played at the same time: the state of the world is a tensor with a row per game.
"""

import argparse
import math

import wisp
from wisp import Tensor, nn, progress
from wisp.distributions import Categorical


class CartPole:
    """A pole on a cart on a rail, `count` times. The laws of motion are those of a rigid pole without friction."""

    GRAVITY, CART, POLE, LENGTH, FORCE, STEP = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # m/s², kg, kg, m (half the pole), N, s
    LONGEST = 500

    def __init__(self, count: int) -> None:
        self.state = wisp.rand(count, 4) * 0.1 - 0.05  # position, velocity, angle, angular velocity
        self.steps = 0

    def push(self, action: Tensor) -> Tensor:
        """Push each cart left (0) or right (1) -> whether each pole is still up and each cart still on its rail."""
        x, velocity, angle, spin = self.state.unbind(dim=1)
        force = self.FORCE * (2.0 * action - 1)
        total = self.CART + self.POLE
        sine, cosine = angle.sin(), angle.cos()
        thrust = (force + self.POLE * self.LENGTH * spin**2 * sine) / total
        turning = (self.GRAVITY * sine - cosine * thrust) / (self.LENGTH * (4 / 3 - self.POLE * cosine**2 / total))
        acceleration = thrust - self.POLE * self.LENGTH * turning * cosine / total
        self.state = wisp.stack(
            [x + self.STEP * velocity, velocity + self.STEP * acceleration, angle + self.STEP * spin, spin + self.STEP * turning], dim=1
        )
        self.steps += 1
        return (self.state[:, 0].abs() < 2.4) & (self.state[:, 2].abs() < 12 * math.pi / 180)


class Player(nn.Module):
    """Decides what to do (policy), and guesses how long the game will go on (value)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
        self.value = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, state: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(logits=self.policy(state), validate_args=False), self.value(state).squeeze(-1)


@wisp.no_grad()
def play(player: Player, count: int, best: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Play `count` games at once -> states (time, game, 4), actions and whether each game was going on (time, game)."""
    world, going = CartPole(count), wisp.ones(count, dtype=wisp.bool)
    states: list[Tensor] = []
    actions: list[Tensor] = []
    alive: list[Tensor] = []
    while world.steps < CartPole.LONGEST and going.any():
        policy, _ = player(world.state)
        action = policy.probs.argmax(dim=1) if best else policy.sample()
        states.append(world.state)
        actions.append(action)
        alive.append(going)
        going = world.push(action) & going
    return wisp.stack(states), wisp.stack(actions), wisp.stack(alive).float()


def returns(alive: Tensor, discount: float = 0.99) -> Tensor:
    """What follows each step: a point for every step that the game goes on, later ones counting less."""
    total = wisp.zeros(alive.shape[1])
    result: list[Tensor] = []
    for going in reversed(alive.unbind()):
        total = (total * discount + 1) * going
        result.append(total)
    return wisp.stack(result[::-1])


def train(player: Player, rounds: int, games: int = 16) -> None:
    optimizer = wisp.optim.Adam(player.parameters(), lr=1e-2)
    bar = progress.bar(range(rounds), "playing", unit="rounds")
    for _ in bar:
        states, actions, alive = play(player, games)
        target = returns(alive) / 100  # at most about 1
        policy, value = player(states)
        # How much better a step turned out than was expected: such steps become likelier.
        advantage = (target - value).detach()
        chosen = alive.bool()
        scale = advantage[chosen].std() + 1e-6
        gain = policy.log_prob(actions) * advantage / scale + 0.01 * policy.entropy()
        loss = -(gain * alive).sum() / alive.sum() + ((value - target) ** 2 * alive).sum() / alive.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(player.parameters(), 1.0)
        optimizer.step()
        bar.set(steps=alive.sum(dim=0).mean())


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Learn to balance a pole.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    wisp.manual_seed(options.seed)
    player = Player()
    before = play(player, 100)[2].sum(dim=0).mean().item()
    print(f"before training, the pole stays up for {before:.0f} steps")
    train(player, options.rounds)
    after = play(player, 100, best=True)[2].sum(dim=0).mean().item()
    print(f"after training, for {after:.0f} of at most {CartPole.LONGEST}")
    return after


if __name__ == "__main__":
    main()
