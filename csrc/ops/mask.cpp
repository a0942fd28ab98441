// Front doors of masks and nonzero, and those made of advanced indexing: take, put, index_put, one_hot.
#include "../autograd/told.h"
#include "../autograd/whole.h"
#include "../kernels/index.h"
#include "../python/registry.h"
#include "format.h"
#include "gather.h"
#include "index.h"
#include "reduce.h"

namespace wisp {

// --- nonzero -------------------------------------------------------------------------------------------------------

static Tensor as_mask(const Tensor& x) {
    GradMode off(false);
    return contiguous(to(x, DType::boolean));
}
static int64_t count_true(const Tensor& mask) {
    if (mask.device().type == DeviceType::meta) mask.data();  // refuses: how many there are depends on the data
    const auto count_true = kernels::index().count_true;
    if (!count_true || mask.numel() > 4096) return item(count_nonzero(mask, {})).to_int();
    return count_true(mask.data<bool>(), mask.numel());
}

Tensor nonzero(const Tensor& x) {
    OnDevice on(x.device());
    const Tensor mask = as_mask(x);
    const int64_t n = count_true(mask), dims = x.dim();
    Tensor out = empty({n, dims}, DType::i64);
    if (n && dims) {
        Unlocked unlocked(mask.numel());
        kernels::index().nonzero(out.device_data<int64_t>(), dims, 1, mask.device_data<bool>(), mask.sizes().data(), int(dims), n);
    }
    return out;
}

TensorList nonzero_tuple(const Tensor& x) {
    OnDevice on(x.device());
    const Tensor mask = as_mask(x.dim() ? x : reshape(x, {1}));
    const int64_t n = count_true(mask), dims = mask.dim();
    const Tensor all = empty({dims, n}, DType::i64);
    if (n) {
        Unlocked unlocked(mask.numel());
        kernels::index().nonzero(all.device_data<int64_t>(), 1, n, mask.device_data<bool>(), mask.sizes().data(), int(dims), n);
    }
    TensorList columns;
    for (int64_t k = 0; k < dims; k++) columns.push_back(alias(all, Layout{Dims{n}, Dims{1}, k * n}));
    return columns;
}

// --- by flat index -------------------------------------------------------------------------------------------------

// Masks among the indices stand for the dimensions that they cover.
static TensorList without_masks(const TensorList& given) {
    TensorList indices;
    for (const Tensor& i : given) {
        if (i && i.dtype() == DType::u8) warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
        if (i && (i.dtype() == DType::boolean || i.dtype() == DType::u8))
            for (Tensor& column : nonzero_tuple(i)) indices.push_back(column);
        else indices.push_back(i);
    }
    return indices;
}
Tensor index_put(const Tensor& x, const TensorList& indices, const Tensor& values, bool accumulate) {
    return whole("IndexPutBackward0", {x, values}, [&] { return index_put_(clone(x), without_masks(indices), values, accumulate); });
}

Tensor take(const Tensor& x, const Tensor& given) {
    const Tensor at = as_index(given, "take");
    if (x.numel() == 0 && at.numel() > 0) throw IndexError("take(): tried to take from an empty tensor");
    return whole("TakeBackward0", {x}, [&] { return index(reshape(x, {x.numel()}), TensorList{at}); });
}
static Tensor put(const Tensor& x, const Tensor& given, const Tensor& source, bool accumulate) {
    if (!accumulate) alert_undetermined("put_");
    if (given.dtype() != DType::i64) throw RuntimeError("put_(): Expected a long tensor for index, but got ", type_name(given.dtype()));
    const Tensor at = as_index(given, "put_");
    if (at.numel() != source.numel())
        throw IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            "source.numel() = ",
            source.numel(), ", index.numel() = ", at.numel());
    return whole("PutBackward0", {x, source}, [&] {
        const DType dtype = accumulate ? compute_dtype(x.dtype()) : x.dtype();  // index_add sums so, too
        const Tensor flat = to(reshape(x, {x.numel()}), dtype), values = reshape(source, {source.numel()});
        const Tensor y = index_put(flat, {reshape(at, {at.numel()})}, source.dtype() == x.dtype() ? to(values, dtype) : values, accumulate);
        return to(reshape(y, x.sizes()), x.dtype());
    });
}

// --- masks ---------------------------------------------------------------------------------------------------------

static void check_mask(const char* name, const Tensor& mask) {
    if (mask.dtype() != DType::boolean) throw RuntimeError(name, ": expected BoolTensor for mask, got dtype ", mask.dtype());
}

// The value as a 0-dim tensor of x's dtype; it may want a gradient.
static Tensor filler(const Tensor& x, const Tensor& mask, const Arg& value) {
    if (mask.dtype() != DType::boolean)
        throw RuntimeError("masked_fill only supports boolean masks, but got mask with dtype ", mask.dtype());
    if (value.tensor && value.tensor->dim() != 0)
        throw RuntimeError("masked_fill only supports a 0-dimensional value tensor, but got tensor with ", value.tensor->dim(),
                           " dimension(s).");
    const bool complex = value.tensor ? is_complex(value.tensor->dtype()) : value.number.is_complex();
    if (complex && !is_complex(x.dtype()) && x.dtype() != DType::boolean &&
        (value.tensor ? item(*value.tensor) : value.number).to_complex().imag() != 0)
        throw RuntimeError("value cannot be converted to type ", x.dtype(), " without overflow");
    if (value.tensor) return to(*value.tensor, x.dtype());
    check_fits(value.number, x.dtype());
    return scalar_tensor(value.number, x.dtype());
}
static void masked_fill_gradient(Backward& bw) {
    const Tensor mask = bw.saved(0), g = bw.grad();
    if (bw.needs(0)) bw.set(0, masked_fill(g, mask, Scalar(0)));
    if (bw.node.next.size() > 1 && bw.needs(1)) bw.set(1, sum(where(mask, g, Scalar(0))));
}
static Tensor filled(const Tensor& x, const Tensor& mask, const Tensor& value) {
    GradMode off(false);
    return contiguous(where(mask, value, x));  // as PyTorch's, whatever x is
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Arg& given) {
    const Tensor value = filler(x, mask, given);
    Tensor y = filled(x, mask, value);
    if (!is_differentiable(y.dtype()) || !needs_grad(x, value)) return y;
    if (given.tensor) record(y, "MaskedFillBackward1", {x, value}, {mask}, told<"| mask">([](Backward& bw) { masked_fill_gradient(bw); }));
    else record(y, "MaskedFillBackward0", {x}, {mask}, told<"| mask">([](Backward& bw) { masked_fill_gradient(bw); }));
    return y;
}
Tensor masked_fill_(const Tensor& self, const Tensor& mask, const Arg& given) {
    const Tensor value = filler(self, mask, given);
    if (!is_expandable(mask.sizes(), self.sizes()))
        throw RuntimeError("masked_fill_: a mask of shape ", mask.sizes(), " can't be broadcast to self of shape ", self.sizes());
    if (!(mask.offset() == self.offset() && mask.sizes() == self.sizes() && mask.strides() == self.strides()))
        check_apart(self, mask, "masked_fill_");
    const Tensor saved[] = {mask};
    return written(
        self, true, "masked_fill_", given.tensor ? "MaskedFillBackward1" : "MaskedFillBackward0", given.tensor ? value : Tensor(), saved,
        [&](const Tensor& y) {
            if (mask.storage() == y.storage()) copy_values(y, filled(y, mask, value));
            else where_onto(y, mask, given.tensor ? Arg(value) : y.dtype() == DType::boolean ? Arg(Scalar(given.number.to_bool())) : given);
        },
        [](Backward& bw) { masked_fill_gradient(bw); }, true);
}

Tensor masked_select(const Tensor& x, const Tensor& given, const char* node) {
    check_mask("masked_select", given);
    const Dims sizes = broadcast(x.sizes(), given.sizes());
    const Tensor mask = contiguous(expanded(detach(given), sizes)), in = contiguous(expanded(detach(x), sizes));
    const int64_t n = count_true(mask);
    Tensor y = empty({n}, x.dtype());
    if (n) {
        Unlocked unlocked(mask.numel());
        kernels::index().masked_select(y.device_data(), in.device_data(), mask.device_data<bool>(), mask.numel(), n, x.item_size());
    }
    if (needs_grad(x))
        record(y, node, {x}, {mask}, [](Backward& bw) {
            const Tensor mask = bw.saved(0);
            bw.set(0, masked_scatter(zeros(mask.sizes(), bw.grad().dtype()), mask, bw.grad()));
        });
    return y;
}

Tensor masked_scatter(const Tensor& self, const Tensor& given, const Tensor& source) {
    check_mask("masked_scatter", given);
    if (self.dtype() != source.dtype())
        throw RuntimeError("masked_scatter: expected self and source to have same dtypes but got ", type_name(self.dtype()), " and ",
                           type_name(source.dtype()));
    const Dims sizes = broadcast(self.sizes(), given.sizes());
    const Tensor mask = contiguous(expanded(detach(given), sizes)), from = contiguous(detach(source)), x = expanded(detach(self), sizes);
    const int64_t n = count_true(mask);
    if (n > source.numel())
        throw RuntimeError(
            "masked_scatter: expected self and source to have the same number of elements, but the "
            "mask selects ",
            n, " and source has ", source.numel());
    Tensor y = empty(sizes, self.dtype());
    copy_values(y, x);
    kernels::index().masked_scatter(y.device_data(), mask.device_data<bool>(), from.device_data(), mask.numel(), y.item_size());
    if (is_differentiable(y.dtype()) && needs_grad(self, source))
        record(y, "MaskedScatterBackward0", {self, source}, {mask}, [sizes = source.sizes()](Backward& bw) {
            const Tensor mask = bw.saved(0), g = bw.grad();
            if (bw.needs(0)) bw.set(0, masked_fill(g, mask, Scalar(0)));
            if (!bw.needs(1)) return;
            Tensor used = masked_select(g, mask);
            const int64_t rest = product(sizes) - used.numel();
            if (rest) used = cat({used, zeros({rest}, g.dtype())}, 0);
            bw.set(1, reshape(used, sizes));
        });
    return y;
}

static Tensor one_hot(const Tensor& given, int64_t classes) {
    if (given.dtype() != DType::i64)
        throw RuntimeError(
            "one_hot is only applicable to index tensor of type "
            "LongTensor, got ",
            type_name(given.dtype()));
    const Tensor x = contiguous(given);
    if (x.numel() == 0 && classes <= 0) throw RuntimeError("Can not infer total number of classes from empty tensor.");
    static constexpr const char *negative = "Class values must be non-negative.",
                                *too_large = "Class values must be smaller than num_classes.";
    const kernels::IndexKernels& kernel = kernels::index();
    if (kernel.extremes) {
        int64_t least = 0, largest = -1;
        if (x.numel()) kernel.extremes(x.device_data<int64_t>(), x.numel(), &least, &largest);
        if (least < 0) throw RuntimeError(negative);
        if (classes == -1) classes = plus(largest, 1);
        if (largest >= classes) throw RuntimeError(too_large);
    } else if (classes == -1) {
        const Tensor good = ge(x, Scalar(0));
        if (!kernel.holds(good.device_data<bool>(), good.numel(), negative)) throw RuntimeError(negative);
        classes = plus(item(amax(reshape(x, {-1}), {0})).to_int(), 1);
    }
    if (classes <= 0) throw RuntimeError(too_large);
    Dims sizes = x.sizes();
    sizes.push_back(classes);
    const Tensor y = zeros(sizes, DType::i64);
    kernel.mark_classes(y.device_data<int64_t>(), x.device_data<int64_t>(), x.numel(), classes, negative, too_large);
    return y;
}

static const Operators operators = {
    {"nonzero(Tensor input, *, bool as_tuple=False, Tensor!? out=None)",
     [](const Tensor& x, bool as_tuple, Out out) -> PyObject* {
         if (as_tuple && out.destination) throw RuntimeError("nonzero does not support the out kwarg when as_tuple is True");
         if (as_tuple) return ToPython{}(nonzero_tuple(x));
         return ToPython{}(nonzero(x));
     },
     complex_half | function | method,
     R"(The indices of the elements that are not zero, a row each.
        >>> wisp.nonzero(wisp.tensor([0, 5, 0, 7]))
        tensor([[1],
                [3]]))"},
    {"argwhere(Tensor input)", [](const Tensor& x) { return nonzero(x); }, complex_half | function | method,
     R"(The indices of the elements that are not zero, a row each.
        >>> wisp.argwhere(wisp.tensor([[0, 1], [2, 0]]))
        tensor([[0, 1],
                [1, 0]]))"},
    {"index_put(Tensor input, Tensor?[] indices, Tensor values, bool accumulate=False)",
     [](const Tensor& x, const TensorList& indices, const Tensor& values, bool accumulate) {
         return index_put(x, indices, values, accumulate);
     },
     function | method | any_device | cuda_widest,
     R"(A copy in which the elements at given indices are replaced, or added to.
        >>> wisp.index_put(wisp.zeros(3), (wisp.tensor([1, 1]),), wisp.tensor(2.0), accumulate=True)
        tensor([0., 4., 0.]))"},
    {"index_put_(Tensor input, Tensor?[] indices, Tensor values, bool accumulate=False)",
     [](const Tensor& x, const TensorList& indices, const Tensor& values, bool accumulate) {
         return index_put_(x, without_masks(indices), values, accumulate);
     },
     function | method | any_device},
    {"take(Tensor input, Tensor index|indices, *, Tensor!? out=None)", [](const Tensor& x, const Tensor& at) { return take(x, at); },
     function | method,
     R"(Elements of the flattened tensor by their numbers.
        >>> wisp.take(wisp.tensor([[1, 2], [3, 4]]), wisp.tensor([0, 3]))
        tensor([1, 4]))"},
    {"put_(Tensor input, Tensor index, Tensor source, bool accumulate=False)",
     [](const Tensor& x, const Tensor& at, const Tensor& source, bool accumulate) {
         check_apart(x, at, "put_"), check_apart(x, source, "put_");
         check_inplace(x, "put_", needs_grad(x, source));
         assign_inplace(x, put(before_write(x, source), at, source, accumulate), "put_");
         return x;
     },
     method},
    {"put(Tensor input, Tensor index, Tensor source, bool accumulate=False)",
     [](const Tensor& x, const Tensor& at, const Tensor& source, bool accumulate) { return put(x, at, source, accumulate); },
     function | method,
     R"(A copy in which elements of the flattened tensor are replaced, or added to.
        >>> wisp.put(wisp.zeros(2, 2), wisp.tensor([3]), wisp.tensor([9.0]))
        tensor([[0., 0.],
                [0., 9.]]))"},
    {"masked_fill(Tensor input, Tensor mask, Operand value)",
     [](const Tensor& x, const Tensor& mask, const Arg& value) { return masked_fill(x, mask, value); },
     complex_half | function | method | elementwise,
     R"(A copy with a number where the mask is true.
        >>> wisp.masked_fill(wisp.tensor([1, 2]), wisp.tensor([True, False]), 0)
        tensor([0, 2]))"},
    {"masked_fill_(Tensor input, Tensor mask, Operand value)",
     [](const Tensor& x, const Tensor& mask, const Arg& value) { return masked_fill_(x, mask, value); },
     complex_half | method | elementwise},
    {"masked_select(Tensor input, Tensor mask, *, Tensor!? out=None)",
     [](const Tensor& x, const Tensor& mask) { return masked_select(x, mask); }, stored | function | method,
     R"(The elements where the mask is true, in one dimension.
        >>> wisp.masked_select(wisp.tensor([1, 2, 3]), wisp.tensor([True, False, True]))
        tensor([1, 3]))"},
    {"masked_scatter(Tensor input, Tensor mask, Tensor source|tensor)",
     [](const Tensor& x, const Tensor& mask, const Tensor& source) { return masked_scatter(x, mask, source); }, function | method | inplace,
     R"(A copy with the elements of `source`, in order, where the mask is true.
        >>> wisp.masked_scatter(wisp.zeros(3), wisp.tensor([True, False, True]), wisp.tensor([1.0, 2.0]))
        tensor([1., 0., 2.]))"},
    {"nn.functional.one_hot(Tensor tensor|input, int num_classes=-1)", [](const Tensor& x, int64_t classes) { return one_hot(x, classes); },
     function | takes_batches,
     R"(Numbers as vectors with a 1 at their place.
        >>> wisp.nn.functional.one_hot(wisp.tensor([0, 2]), 3)
        tensor([[1, 0, 0],
                [0, 0, 1]]))"},
};

}  // namespace wisp
