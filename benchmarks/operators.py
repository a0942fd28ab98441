"""Times single operators on Wisp and on PyTorch, turn by turn in two processes with as many threads, as compare.py does.

    python benchmarks/operators.py             every operator
    python benchmarks/operators.py linalg fft  those whose names contain a word

Needs torch in the same environment and a quiet machine. A ratio below 1 says that Wisp is the faster one.
"""

import compare


def linalg(torch):
    a = torch.randn(500, 500)
    b, definite = torch.randn(500, 500), a @ a.t() + 500 * torch.eye(500)
    symmetric, vector = a + a.t(), torch.randn(500)
    return {
        "linalg.svd 500²": lambda: torch.linalg.svd(a),
        "linalg.solve 500², 500 columns": lambda: torch.linalg.solve(a, b),
        "linalg.solve 500², a vector": lambda: torch.linalg.solve(a, vector),
        "linalg.cholesky 500²": lambda: torch.linalg.cholesky(definite),
        "linalg.eigh 500²": lambda: torch.linalg.eigh(symmetric),
    }


def fft(torch):
    line, plane, rows = torch.randn(2**20) + 0j, torch.randn(1000, 1000) + 0j, torch.randn(64, 1024)
    return {
        "fft.fft 2²⁰": lambda: torch.fft.fft(line),
        "fft.fft2 1000²": lambda: torch.fft.fft2(plane),
        "fft.rfft 64x1024": lambda: torch.fft.rfft(rows),
    }


def sort(torch):
    line, plane = torch.randn(1000000), torch.randn(1000, 1000)
    return {
        "sort 1M": lambda: line.sort(),
        "sort 1000 rows of 1000": lambda: plane.sort(-1),
        "topk(100) 1M": lambda: line.topk(100),
        "topk(100) 1000 rows of 1000": lambda: plane.topk(100),
    }


def both_ways(run, *inputs):
    """A call that runs forward, and backward from a gradient of ones into every input."""
    inputs = [x.requires_grad_() for x in inputs]
    ones = run(*inputs).detach().clone().fill_(1)

    def call():
        for x in inputs:
            x.grad = None
        run(*inputs).backward(ones)

    return call


def functional(torch):
    F, make = torch.nn.functional, torch.randn
    work = {
        "conv1d 16x64x1024, kernel 5": both_ways(
            lambda x, w, b: F.conv1d(x, w, b, padding=2), make(16, 64, 1024), make(64, 64, 5), make(64)
        ),
        "interpolate bilinear to 448²": both_ways(
            lambda x: F.interpolate(x, (448, 448), mode="bilinear", align_corners=False), make(8, 3, 224, 224)
        ),
    }
    for causal in (False, True):
        work["sdpa 8x4x512x64" + ", causal" * causal] = both_ways(
            lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
            make(8, 4, 512, 64),
            make(8, 4, 512, 64),
            make(8, 4, 512, 64),
        )
    return work


if __name__ == "__main__":
    compare.main(__file__, {"linalg": linalg, "fft": fft, "sort": sort, "functional": functional})
