"""Sparse tensors against PyTorch: results, layouts, printing, gradients, files."""

import io
import warnings

import numpy
import pytest
import torch

import wisp

warnings.filterwarnings("ignore", message=".*[Ss]parse.*")
DENSE = [[0.0, 1.0, 0.0, -2.5], [2.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 4.0]]
EXPRESSIONS = """
s.sum(0); s.sum(1); s.sum(); s.sum(0, keepdim=True); t.sparse.sum(s, 0); t.sparse.sum(s, [0, 1]); s * 2; s / 2; 2 * s; d + s; d - s; s * d; d * s;
s @ d.t(); d.t() @ s; s.mv(d[0]); s @ d[0]; d[0] @ s.t(); s.t(); s.transpose(0, 1); s.permute(1, 0); s[0]; s[:, 0]; s[0, 1]; s[-1]; s.T;
s.index_select(0, t.tensor([1, 0, 1])); s.unsqueeze(0); s.norm(); s.pow(2); s ** 2; s.relu(); s.double(); s.int(); s.bool(); s.to(t.float64);
s.any(); s.isnan(); t.cat([s, s]); t.cat([s, s], 1); t.stack([s, s]); t.zeros_like(s); s.clone().add_(s); d.clone().add_(s); d.clone().mul_(s);
d.clone().sub_(s, alpha=2); s.type(); s.sparse_dim(); s.dense_dim(); s.to_sparse_csr(); s.to_sparse_csc(); s.to_dense().to_sparse(1); s.sign();
s.narrow_copy(0, 1, 2); s * s; s - s; t.sub(s, s, alpha=2); t.add(d, s, alpha=2); -s; abs(s); s.sin(); t.addmm(d[:, :3], s, d.t(), beta=0.5, alpha=2);
s @ s.t(); t.sparse.mm(s, s.t()); t.sparse.softmax(s, 1); t.sparse.softmax(s, 0); t.sparse.log_softmax(s, 1); d.sparse_mask(s); s.coalesce();
t.sparse_coo_tensor([[0, 0, 1], [2, 2, 0]], [1.0, 2.0, 3.0]); t.sparse_coo_tensor([[0, 0, 1], [2, 2, 0]], [1.0, 2.0, 3.0], (4, 5)).coalesce();
t.sparse_coo_tensor([[0, 0, 1]], t.arange(6.0).view(3, 2), (2, 2)).coalesce(); t.sparse_coo_tensor((2, 3)); t.tensor(3.0).to_sparse();
t.sparse_csr_tensor([0, 1, 2], [1, 0], [1.0, 2.0]); t.sparse_csc_tensor([0, 1, 2], [1, 0], [1.0, 2.0], (3, 2));
t.sparse_compressed_tensor([0, 1, 2], [1, 0], [1.0, 2.0], (2, 2), layout=t.sparse_csr); t.sparse_coo_tensor([[0], [1]], [1.0], dtype=t.float64);
t.sparse.spdiags(t.arange(6.0).view(2, 3), t.tensor([0, -1]), (4, 4)); t.sparse_coo_tensor([[0, 1]], t.ones(2, 3)).sum(1); s.requires_grad_();
t.zeros(2, 3, layout=t.sparse_coo); t.zeros(2, 3, layout=t.sparse_csr); t.zeros_like(d, layout=t.sparse_coo);
t.zeros_like(s, layout=t.strided); c; c.sum(); c.sum(0, keepdim=True); c * 2; c + c; d + c; c * d; c @ d.t(); d.t() @ c; c.t(); c[0]; c.relu(); c.to_sparse(); c.to_sparse_csc(); c.double();
c.values(); c.crow_indices(); c.col_indices(); c @ d[0]; t.addmm(d[:, :3], c, d.t()); c * c; t.zeros_like(c); c.clone().mul_(2); c.sin();
c.clone().zero_(); c.is_sparse_csr; c.is_sparse; c.t().ccol_indices(); t.sparse.sampled_addmm(c, d, d.t()[:, :1].expand(4, 4));
t.sparse.mm(c, d.t(), "sum"); t.sparse.mm(c, d.t(), "mean"); t.sparse.mm(c, d.t(), "amax"); t.sparse.mm(c, d.t(), "amin")
"""


@pytest.mark.parametrize("expression", [e.strip() for e in EXPRESSIONS.split(";") if e.strip()])
def test_expression(expression):
    results = []
    for t in (torch, wisp):
        d = t.arange(12.0).view(3, 4) - 4
        scope = {"t": t, "d": d, "s": t.tensor(DENSE).to_sparse(), "c": t.tensor(DENSE).to_sparse_csr()}
        results.append(eval(expression, scope))
    theirs, ours = results
    if isinstance(theirs, torch.Tensor):
        assert str(ours.layout) == str(theirs.layout) and str(ours.dtype) == str(theirs.dtype) and tuple(ours.shape) == tuple(theirs.shape)
        if theirs.is_sparse and "cat" not in expression:
            theirs, ours = (x.coalesce() if x.is_sparse else x for x in (theirs, ours))
        if theirs.layout != torch.strided:
            assert repr(ours) == repr(theirs)
        a, b = ours.to_dense().detach().numpy(), theirs.to_dense().detach().numpy()
        numpy.testing.assert_allclose(a, b, rtol=1e-6)
    else:
        assert ours == theirs


GRADIENTS = [
    "t.sparse.mm(s, d).pow(2).sum()",
    "s.to_dense().pow(2).sum()",
    "t.sparse.sum(s * s)",
    "t.sparse.sum(s * 2)",
    "(t.sparse.softmax(s, 1).to_dense() ** 2).sum()",
    "(t.sparse.log_softmax(s, 0).to_dense() ** 2).sum()",
    "t.sparse.sum(s @ s.t())",
    "(t.sparse.addmm(d[:3] @ d.t(), s, d @ d.t(), alpha=2) ** 2).sum()",
    "t.sparse.sum(s, 0).to_dense().pow(2).sum()",
    "s.t().to_dense().pow(2).sum()",
    "(t.sparse_coo_tensor(s.indices(), s.values() * 2, s.shape) @ d).sum()",
]


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradient(expression):
    grads = []
    for t in (torch, wisp):
        s = t.tensor(DENSE, dtype=t.float64).to_sparse().requires_grad_()
        d = (t.arange(8.0, dtype=t.float64).view(4, 2) - 3).requires_grad_()
        eval(expression, {"t": t, "s": s, "d": d}).backward()
        grad = s.grad.coalesce() if s.grad.is_sparse else s.grad
        mask = t.tensor(DENSE) != 0
        grads.append([(grad.to_dense() * mask).numpy(), None if d.grad is None else d.grad.numpy()])
    for theirs, ours in zip(*grads):
        if theirs is not None:
            numpy.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_files(layout):
    theirs, ours = (t.tensor(DENSE).to_sparse(layout=getattr(t, layout)) for t in (torch, wisp))
    for save, load, tensor in ((torch.save, wisp.load, theirs), (wisp.save, torch.load, ours)):
        file = io.BytesIO()
        save({"graph": tensor, "again": tensor}, file)
        file.seek(0)
        loaded = load(file)["graph"]
        assert repr(loaded) == repr(tensor)
        if layout == "sparse_coo":
            assert loaded.is_coalesced()


@pytest.mark.parametrize(
    "optimizer",
    [
        "SGD(p, 0.1)",
        "SGD(p, 0.1, momentum=0.9)",
        "SGD(p, 0.1, momentum=0.9, nesterov=True)",
        "Adagrad(p, 0.1, lr_decay=0.1)",
        "SparseAdam(p, 0.1)",
        "SparseAdam(p, 0.1, maximize=True)",
    ],
)
@pytest.mark.parametrize("bag", [False, True])
def test_training(optimizer, bag):
    weights = []
    for t in (torch, wisp):
        table = (t.nn.EmbeddingBag if bag else t.nn.Embedding)(6, 3, sparse=True, padding_idx=1)
        with t.no_grad():
            table.weight.copy_(t.arange(18.0).view(6, 3) / 10)
        step = eval("t.optim." + optimizer, {"t": t, "p": table.parameters()})
        for _ in range(4):
            step.zero_grad()
            (table(t.tensor([[0, 1], [2, 2], [5, 0]])) ** 2).sum().backward()
            (table(t.tensor([[0, 4]])) ** 2).sum().backward()
            step.step()
        weights.append(table.weight.detach().numpy())
    numpy.testing.assert_allclose(weights[1], weights[0], rtol=1e-5, atol=1e-6)
