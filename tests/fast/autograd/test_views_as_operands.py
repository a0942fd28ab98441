"""A view that is an operand of an in-place write to its base: afterwards its history is the base's, the write included."""

import pytest

import wisp

WRITES = {
    "sub_": lambda t, v: t.sub_(v),
    "add_": lambda t, v: t.add_(v),
    "-=": lambda t, v: t.__isub__(v),
    "addcmul_": lambda t, v: t.addcmul_(v, wisp.full_like(v, 2.0)),
    "copy_": lambda t, v: t.copy_(v),
    "lerp_": lambda t, v: t.lerp_(v, 0.5),
    "_foreach_sub_": lambda t, v: wisp._foreach_sub_([t], [v]),
    "index_put_": lambda t, v: t.index_put_((wisp.arange(3),), v, accumulate=True),
}
SLOPES = {"sub_": 0, "add_": 2, "-=": 0, "addcmul_": 3, "copy_": 1, "lerp_": 1, "_foreach_sub_": 0, "index_put_": 2}


@pytest.mark.parametrize("name", WRITES)
def test_history_of_the_operand(name):
    for read in (lambda t, v: v, lambda t, v: t, lambda t, v: v[:3] + 0):
        x = wisp.tensor([1.0, 2.0, 3.0], requires_grad=True)
        t = x * 1
        v = t.view(-1)
        WRITES[name](t, v)
        read(t, v).sum().backward()
        assert x.grad.tolist() == [SLOPES[name]] * 3


def test_the_write_goes_to_the_view():
    x = wisp.tensor([1.0, 2.0], requires_grad=True)
    t = x * 1
    v, w = t.view(-1), t.view(2)
    v.sub_(t)
    (t.sum() + v.sum() + w.sum()).backward()
    assert x.grad.tolist() == [0, 0]
