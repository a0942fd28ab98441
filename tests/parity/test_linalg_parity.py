"""Linear algebra beside PyTorch: values and gradients that have one right answer."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import wisp  # noqa: E402

CASES = {
    "solve": lambda m, a: m.linalg.solve(a, a.mH + 1),
    "inv": lambda m, a: m.linalg.inv(a),
    "det": lambda m, a: m.linalg.det(a),
    "slogdet": lambda m, a: m.linalg.slogdet(a).logabsdet,
    "lu": lambda m, a: m.linalg.lu(a)[2],
    "cholesky": lambda m, a: m.linalg.cholesky(a @ a.mH),
    "svdvals": lambda m, a: m.linalg.svdvals(a),
    "eigvalsh": lambda m, a: m.linalg.eigvalsh(a + a.mH),
    "pinv": lambda m, a: m.linalg.pinv(a[..., :2]),
    "matrix_exp": lambda m, a: m.matrix_exp(a),
    "nuc": lambda m, a: m.linalg.matrix_norm(a, "nuc"),
    "cond": lambda m, a: m.linalg.cond(a),
}


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    torch.manual_seed(0)
    a = torch.randn(2, 3, 3, dtype=getattr(torch, dtype))
    results = []
    for m, x in ((torch, a.clone()), (wisp, wisp.tensor(a.numpy()))):
        x.requires_grad_()
        y = CASES[name](m, x)
        (abs(y) ** 2).sum().backward()
        results.append((y.detach().numpy(), x.grad.numpy()))
    for expected, got in zip(*results):
        np.testing.assert_allclose(got, expected, 1e-8, 1e-8)
