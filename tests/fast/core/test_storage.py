"""Storages, lists of tensors, and other things that programs ask of tensors as objects."""

import copy
import pickle

import pytest

import wisp


def test_storage_is_the_memory_of_a_tensor():
    x = wisp.arange(6.0).reshape(2, 3)
    assert x.untyped_storage().nbytes() == 24 and x.untyped_storage().__sizeof__() == 24 + 24
    assert x[1].untyped_storage().data_ptr() == x.data_ptr()
    assert x.t().storage().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    x.storage()[0] = 7.0
    assert x[0, 0].item() == 7.0
    assert wisp.is_storage(x.storage()) and wisp.is_storage(x.untyped_storage()) and not wisp.is_storage(x)


def test_set():
    x, y = wisp.arange(6.0), wisp.empty(0)
    assert y.set_(x.untyped_storage(), 2, (2, 2), (2, 1)).tolist() == [[2.0, 3.0], [4.0, 5.0]]
    y.zero_()
    assert x.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    with pytest.raises(RuntimeError):
        y.set_(x.untyped_storage(), 4, (4,), (1,))


def test_a_part_of_a_storage_has_its_own_size_and_the_same_memory():
    x, y = wisp.arange(6.0), wisp.empty(0)
    part = x.untyped_storage()[:16]
    y.set_(part)
    assert part.data_ptr() == x.data_ptr() and y.untyped_storage().nbytes() == 16
    part.fill_(0)
    assert x.tolist() == [0.0, 0.0, 0.0, 0.0, 4.0, 5.0]


def test_foreach():
    a = [wisp.ones(2), wisp.ones(3)]
    wisp._foreach_add_(a, [1, 2])
    wisp._foreach_mul_(a, scalar=1.0)
    with pytest.raises(TypeError, match="expects other, scalar, scalars or exponent"):
        wisp._foreach_add(a, tensors=1)
    wisp._foreach_mul_(a, a)
    assert [t[0].item() for t in a] == [4.0, 9.0]
    assert [t[0].item() for t in wisp._foreach_addcdiv(a, a, a, value=2)] == [6.0, 11.0]
    with pytest.raises(RuntimeError):
        wisp._foreach_add(a, [1])


def test_python_functions_on_elements():
    assert wisp.ones(3).apply_(lambda v: v + 1).tolist() == [2.0, 2.0, 2.0]
    assert wisp.ones(2).map_(wisp.tensor([3.0, 4.0]), lambda a, b: a - b).tolist() == [-2.0, -3.0]
    assert complex(wisp.tensor(1 + 2j)) == 1 + 2j
    with pytest.raises(IndexError):
        wisp._check_index(False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_of_views_share_memory(copied):
    base = wisp.arange(6.0)
    whole, part, turned = copied((base, base[2:4], base.view(2, 3).t()))
    whole[2] = 100
    assert part[0] == 100 and turned[2, 0] == 100 and base[2] == 2
    leaf = copied(wisp.ones(2, requires_grad=True))
    assert leaf.is_leaf and leaf.requires_grad
    for odd in (wisp.empty(0, 3), wisp.tensor(3), wisp.rand(4)[::2], wisp.ones(1).expand(5), wisp.ones(2, dtype=wisp.bfloat16)):
        assert wisp.equal(copied(odd), odd) and copied(odd).shape == odd.shape


def test_a_storage_is_resized_for_all_that_view_it():
    x = wisp.arange(6.0)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().size() == 0
    x.untyped_storage().resize_(24)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    x.storage().resize_(100)
    assert x.as_strided((100,), (1,))[:6].tolist() == x.tolist() and x.untyped_storage().nbytes() == 400


def test_copy_makes_another_tensor_over_the_same_memory():
    x = wisp.arange(3.0)
    x.tag = "kept"
    other = copy.copy(x)
    other[0] = 7.0
    assert x[0] == 7.0 and other is not x and other.tag == "kept"
    parameter = wisp.nn.Parameter(x)
    other = copy.copy(parameter)
    assert type(other) is wisp.nn.Parameter and other.requires_grad and other.data_ptr() == x.data_ptr()


def test_typed_storages():
    storage = wisp.DoubleStorage([1, 2, 3])
    assert storage.type() == "torch.DoubleStorage" and storage.int().tolist() == [1, 2, 3] and storage.dtype is wisp.float64
    assert wisp.Storage is wisp.FloatStorage and len(wisp.LongStorage(4)) == 4
    with pytest.raises(RuntimeError, match="slices"):
        storage[1:]


@pytest.mark.parametrize("name", ["mps", "xpu", "hpu:1", "mtia"])
def test_devices_that_are_not_there_have_names_and_no_tensors(name):
    device = wisp.device(name)
    assert str(device) == name and device != wisp.device("cpu") and pickle.loads(pickle.dumps(device)) == device
    with pytest.raises(RuntimeError, match=f"no device '{name}'"):
        wisp.zeros(2, device=device)
    with pytest.raises(RuntimeError, match=f"no device '{name}'"):
        wisp.zeros(2).to(name)


def test_storages_are_the_same_object_while_somebody_holds_them():
    x = wisp.arange(4.0)
    held = x.untyped_storage()
    held.note = "mine"
    assert x[1:].untyped_storage() is held and x.clone().untyped_storage() is not held
    assert wisp.tensor(x.storage()).data_ptr() == x.data_ptr() == wisp.FloatTensor(x.storage()).data_ptr()
    assert wisp.tensor(held, dtype=wisp.int32).shape == (4,)
    with pytest.raises(RuntimeError, match="Expected a Storage of type torch.float64"):
        wisp.tensor(x.storage(), dtype=wisp.float64)
    with pytest.raises(RuntimeError, match="Expected a Storage of type torch.int64"):
        wisp.empty(0, dtype=wisp.int64).set_(x.storage())


def test_elements_of_three_tensors_through_a_function():
    assert wisp.ones(2).map2_(wisp.tensor([1.0, 2.0]), wisp.tensor(3.0), lambda a, b, c: a + b * c).tolist() == [4.0, 7.0]
    with pytest.raises(TypeError, match="does not inherit from Tensor"):
        wisp.ones(2).as_subclass(int)
    with pytest.raises(RuntimeError, match="unique dim order"):
        wisp.ones(2, 1, 2).dim_order(ambiguity_check=True)


def test_a_tensor_of_a_tensor_is_the_same_memory():
    class Own(wisp.Tensor):
        pass

    t = wisp.ones(2, dtype=wisp.int32)
    for made in (wisp.Tensor(t), Own(t), wisp.Tensor.__new__(Own, t), wisp.IntTensor(t)):
        assert made.dtype == wisp.int32 and made.data_ptr() == t.data_ptr()
    x = wisp.ones(2, requires_grad=True)
    for made in (wisp.Tensor(x), Own(x), Own(x * 2)):
        assert made.grad_fn.name() == "AliasBackward0"
    Own(x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
    for call in (lambda: wisp.FloatTensor(t), lambda: wisp.ones(1).new(t)):
        with pytest.raises(TypeError, match="expected a tensor of torch.float32, got one of torch.int32"):
            call()


def test_new_memory_that_is_shared():
    storage = wisp.ones(2).untyped_storage()._new_shared(8)
    assert storage.nbytes() == 8 and storage.is_shared()
    assert wisp.empty(0).set_(storage, 0, (2,), (1,)).fill_(3).is_shared()


def test_a_storage_that_somebody_else_sees_is_not_resizable():
    x = wisp.ones(5)
    assert x.storage().resizable() and x.untyped_storage().resizable()
    x.numpy()
    assert not x.storage().resizable() and not x.untyped_storage().resizable()
