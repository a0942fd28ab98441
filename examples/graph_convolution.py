"""A graph convolution network finds the two sides of a quarrel, from who knows whom and two names.

    python examples/graph_convolution.py

The graph is Zachary's karate club (1977): 34 members, an edge where two of them met outside the club. The instructor (member 1) and
the president (member 34) fell out, and everybody had to take a side. The network is told on which side these two are; for at
least 31 of the 32 others it finds the side that they really took.
"""

import argparse

import wisp
from wisp import Tensor, nn, progress
from wisp.nn import functional as F

# For every member (counted from 1) the friends with a higher number.
FRIENDS = {
    1: [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 18, 20, 22, 32],
    2: [3, 4, 8, 14, 18, 20, 22, 31],
    3: [4, 8, 9, 10, 14, 28, 29, 33],
    4: [8, 13, 14],
    5: [7, 11],
    6: [7, 11, 17],
    7: [17],
    9: [31, 33, 34],
    10: [34],
    14: [34],
    15: [33, 34],
    16: [33, 34],
    19: [33, 34],
    20: [34],
    21: [33, 34],
    23: [33, 34],
    24: [26, 28, 30, 33, 34],
    25: [26, 28, 32],
    26: [32],
    27: [30, 34],
    28: [34],
    29: [32, 34],
    30: [33, 34],
    31: [33, 34],
    32: [33, 34],
    33: [34],
}
WITH_THE_INSTRUCTOR = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22}
MEMBERS = 34


def adjacency() -> Tensor:
    """The normalised adjacency D^-1/2 (A + I) D^-1/2 as a sparse tensor: a member hears itself and its friends, each counted
    less the more friends they have."""
    edges = [(a - 1, b - 1) for a, friends in FRIENDS.items() for b in friends]
    edges += [(b, a) for a, b in edges] + [(i, i) for i in range(MEMBERS)]
    index = wisp.tensor(edges).T
    degree = wisp.bincount(index[0], minlength=MEMBERS).float()
    values = (degree[index[0]] * degree[index[1]]) ** -0.5
    return wisp.sparse_coo_tensor(index, values, (MEMBERS, MEMBERS))


class GraphConvolution(nn.Module):
    """Everybody's features become a linear function of their friends' features."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(wisp.zeros(outputs))

    def forward(self, graph: Tensor, x: Tensor) -> Tensor:
        return graph @ self.linear(x) + self.bias


class Model(nn.Module):
    def __init__(self, members: int, hidden: int = 16) -> None:
        super().__init__()
        self.first = GraphConvolution(members, hidden)
        self.second = GraphConvolution(hidden, hidden)
        self.third = GraphConvolution(hidden, 2)

    def forward(self, graph: Tensor, x: Tensor) -> Tensor:
        x = F.tanh(self.first(graph, x))
        x = F.tanh(self.second(graph, x))
        return self.third(graph, x)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find the sides in Zachary's karate club.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    wisp.manual_seed(options.seed)
    graph, names = adjacency(), wisp.eye(MEMBERS)  # of each member the network knows only who it is
    sides = wisp.tensor([0 if member in WITH_THE_INSTRUCTOR else 1 for member in range(1, MEMBERS + 1)])
    known = wisp.tensor([0, 33])
    model = Model(MEMBERS)
    optimizer = wisp.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    bar = progress.bar(range(options.steps), "training", unit="steps")
    for _ in bar:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(graph, names)[known], sides[known])
        loss.backward()
        optimizer.step()
        bar.set(loss=loss)

    with wisp.no_grad():
        found = model(graph, names).argmax(dim=1)
    unknown = wisp.ones(MEMBERS, dtype=wisp.bool)
    unknown[known] = False
    right = (found == sides)[unknown]
    for side, leader in enumerate(("instructor", "president")):
        print(
            f"with the {leader}: "
            + " ".join(f"{member + 1}{'' if sides[member] == side else '!'}" for member in (found == side).nonzero().flatten().tolist())
        )
    print(f"{right.sum().item()} of {len(right)} sides found (a ! marks a mistake)")
    return right.sum().item()


if __name__ == "__main__":
    main()
