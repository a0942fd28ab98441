"""Tensors: creation, indexing, NumPy, linear algebra, Fourier transforms, distributions."""

import numpy as np

import wisp as torch
from wisp.distributions import Categorical, Normal, kl_divergence


def main() -> None:
    data = [[1, 2], [3, 4]]
    x_data = torch.tensor(data)
    np_array = np.array(data, dtype=np.float64)
    x_np = torch.from_numpy(np_array)
    x_ones = torch.ones_like(x_data)
    x_rand = torch.rand_like(x_data, dtype=torch.float)
    shape = (2, 3)
    rand_tensor = torch.rand(shape)
    zeros_tensor = torch.zeros(*shape, dtype=torch.int32)
    print(x_np.dtype, x_ones.tolist(), x_rand.shape, rand_tensor.device, zeros_tensor.layout, torch.Size([2, 3]).numel())

    tensor = torch.ones(4, 4)
    tensor[:, 1] = 0
    tensor[tensor > 0.5] += 1
    t1 = torch.cat([tensor, tensor, tensor], dim=1)
    y1 = tensor @ tensor.T
    y3 = torch.rand_like(y1)
    torch.matmul(tensor, tensor.T, out=y3)
    z1 = tensor * tensor + 2 - tensor / 3 ** (1 + tensor)
    agg_item = float(tensor.sum().item())
    tensor.add_(5).clamp_(min=0)
    n = tensor.numpy()
    np.add(n, 1, out=n)
    means: list[float] = n.mean(axis=0).tolist()
    print(t1.shape, y1.size(), z1.stride(0), agg_item, means, len(tensor), -tensor[0, 0] < 0, bool((tensor == tensor).all()))
    total: int = sum(s for s in t1.shape)
    first, *rest = tensor
    print(total, first.shape, len(rest), tensor[..., None].squeeze(-1).unsqueeze(0).shape, tensor[torch.tensor([0, 2])].shape)
    mask = torch.where(tensor > 1, tensor, torch.zeros_like(tensor))
    values, indices = torch.sort(mask, dim=1, descending=True)
    stats = torch.max(mask, dim=1)
    print(stats.values, stats.indices, values[0], indices[0], torch.einsum("ij,jk->ik", tensor, tensor).trace())
    print(
        torch.arange(0, 10, 2), torch.linspace(0, 1, steps=5), torch.stack((first, first)).chunk(2), torch.nonzero(mask, as_tuple=True)[0]
    )

    A = torch.randn(3, 3, dtype=torch.float64)
    A = A @ A.mT + torch.eye(3, dtype=A.dtype)
    L = torch.linalg.cholesky(A)
    eigenvalues, eigenvectors = torch.linalg.eigh(A)
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    solution = torch.linalg.solve(A, torch.ones(3, dtype=torch.float64))
    Q, R = torch.linalg.qr(A)
    print(torch.dist(U @ torch.diag(S) @ Vh, A) < 1e-6, torch.linalg.norm(L), torch.linalg.det(A), torch.linalg.inv(A).shape)
    print(torch.allclose(eigenvectors @ torch.diag(eigenvalues) @ eigenvectors.T, A), (Q @ R).shape, solution.sum(), torch.linalg.cond(A))
    spectrum = torch.fft.rfft(torch.sin(torch.arange(16.0)))
    print(spectrum.abs().argmax(), spectrum.real.dtype, torch.fft.irfft(spectrum).shape, torch.special.expit(torch.zeros(1)))

    normal, other = Normal(torch.zeros(2), torch.ones(2)), Normal(1.0, 2.0)
    action = Categorical(logits=torch.zeros(3)).sample()
    print(normal.rsample((3,)).shape, normal.log_prob(torch.zeros(2)).sum(), kl_divergence(normal, other), action.item())
    torch.set_printoptions(precision=2)
    print(torch.finfo(torch.float32).eps, torch.iinfo(torch.int8).max, torch.is_tensor(A), A.to(torch.float32).half().element_size())
    a, b = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
    unique, counts = torch.unique(torch.tensor([1, 2, 2]), return_counts=True)
    print(a.shape, b.numel(), unique, counts, torch.randperm(3).shape, np.asarray(torch.ones(2)).sum(), torch.bincount(unique).tolist())


if __name__ == "__main__":
    main()
