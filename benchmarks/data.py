"""Times an epoch of a DataLoader on Wisp and on PyTorch, turn by turn in two processes: 60,000 images of 28x28.

    python benchmarks/data.py             every case
    python benchmarks/data.py workers     those whose names contain a word

Needs torch in the same environment and a quiet machine.
"""

import importlib
import json
import os
import statistics
import subprocess
import sys
import time

ROUNDS = 3
COUNT = 60000


def cases(torch):
    data = torch.utils.data
    pixels = torch.randint(0, 256, (COUNT, 28, 28)).to(torch.uint8)
    labels = torch.randint(0, 10, (COUNT,))

    class Tensors(data.Dataset):
        def __len__(self):
            return COUNT

        def __getitem__(self, i):
            return pixels[i].float() / 255, labels[i]

    class Arrays(data.Dataset):
        def __init__(self):
            self.pixels, self.labels = pixels.numpy(), labels.tolist()

        def __len__(self):
            return COUNT

        def __getitem__(self, i):
            return torch.from_numpy(self.pixels[i]), self.labels[i]

    rows = data.TensorDataset(pixels, labels)
    return {
        "tensors, 0 workers": (Tensors(), 0),
        "tensors, 2 workers": (Tensors(), 2),
        "arrays, 0 workers": (Arrays(), 0),
        "arrays, 2 workers": (Arrays(), 2),
        "TensorDataset, 0 workers": (rows, 0),
        "TensorDataset, 2 workers": (rows, 2),
    }


def serve(package):
    """Answers each name of a case with the seconds that its epoch took."""
    torch = importlib.import_module(package)
    made = cases(torch)
    print(json.dumps(list(made)), flush=True)
    for line in sys.stdin:
        dataset, workers = made[json.loads(line)]
        loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=workers)
        start, count = time.perf_counter(), 0
        for _, labels in loader:
            count += len(labels)
        assert count == COUNT
        print(time.perf_counter() - start, flush=True)


def main(words):
    sides = {}
    for package in ("wisp", "torch"):
        sides[package] = subprocess.Popen(
            [sys.executable, __file__, "--serve", package], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
    names = {package: json.loads(side.stdout.readline()) for package, side in sides.items()}["wisp"]

    def epoch(package, name):
        sides[package].stdin.write(json.dumps(name) + "\n")
        sides[package].stdin.flush()
        return float(sides[package].stdout.readline())

    for name in names:
        if words and not any(word in name for word in words):
            continue
        times = {package: [] for package in sides}
        for _ in range(ROUNDS):
            for package in sides:
                times[package].append(epoch(package, name))
        ours, theirs = (statistics.median(times[package]) for package in ("wisp", "torch"))
        print(f"{name:28} wisp {ours:7.3f} s   torch {theirs:7.3f} s   {ours / theirs:5.2f}", flush=True)
    for side in sides.values():
        side.stdin.close()
        side.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main(sys.argv[1:])
