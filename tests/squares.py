"""The dataset of the loader's tests: sample i is ((i, i²), i)."""

import wisp
from wisp.utils import data


class Squares(data.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return wisp.tensor([float(i), float(i * i)]), i
