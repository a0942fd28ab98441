"""gradcheck of conjugate views."""

import pytest

import wisp


@pytest.mark.parametrize("fast", [False, True])
def test_conjugate_views_are_changed_where_they_lie(fast):
    x = wisp.randn(2, 2, dtype=wisp.complex128).conj().requires_grad_()
    assert x.is_conj()
    before = x.tolist()
    assert wisp.autograd.gradcheck(lambda a: (a @ a).abs() * a.imag.cos(), x, fast_mode=fast)
    assert x.tolist() == before
    wrong = lambda a: a.detach() * a.real  # noqa: E731
    assert not wisp.autograd.gradcheck(wrong, x, fast_mode=fast, raise_exception=False)
