// Front doors between packed rows of different lengths and padded ones; each is the other's gradient.
#include "../kernels/each.h"
#include "../python/registry.h"
#include "ops.h"
#include "reduce.h"

namespace wisp {
namespace {

// The one list of offsets, checked: from 0 to `total`, never falling.
Tensor checked(const char* name, const TensorList& offsets, int64_t total) {
    if (offsets.size() != 1) throw RuntimeError(name, "(): only a single jagged dim is supported, got ", offsets.size());
    if (offsets[0].dim() != 1 || offsets[0].numel() < 2 || !is_integral(offsets[0].dtype()))
        throw RuntimeError(name, "(): expected 1D offsets, a vector of at least two integers, got shape ", offsets[0].sizes());
    const Tensor at = contiguous(to(offsets[0], DType::i64));
    const int64_t n = at.numel();
    const Tensor wrong = logical_or(any(lt(narrow(at, 0, 1, n - 1), narrow(at, 0, 0, n - 1))),
                                    logical_or(ne(select(at, 0, 0), Scalar(0)), ne(select(at, 0, n - 1), Scalar(total))));
    if (is_nonzero(wrong))
        throw RuntimeError(name, "(): expected offsets that rise from 0 to ", total, " (the final offset should match total_L value)");
    return at;
}

Dims beyond(const Tensor& t, Dims first, int64_t dim) {
    for (int64_t d = dim; d < t.dim(); d++) first.push_back(t.size(d));
    return first;
}

void check_dtype(const char* name, DType d) {
    if (!is_floating(d)) throw NotImplemented("\"", name, "\" not implemented for '", type_name(d), "'");
}

Tensor packed(const Tensor& given, const Tensor& offsets, int64_t total);

Tensor padded(const Tensor& given, const Tensor& offsets, int64_t length, double padding) {
    if (is_reduced(given.dtype())) return to(padded(to(given, DType::f32), offsets, length, padding), given.dtype());
    const int64_t batch = offsets.numel() - 1, total = given.size(0);
    const Tensor x = contiguous(given), y = empty(beyond(x, {batch, length}, 1), x.dtype());
    if (y.numel())
        kernels::each().jagged_to_padded(
            {{offsets.device_data<int64_t>(), batch, length, y.numel() / batch / length, x.device_data(), y.device_data()}, padding},
            x.dtype(), y.numel());
    if (needs_grad(given))
        record(y, "JaggedToPaddedDenseBackward0", {given}, {offsets},
               [total](Backward& bw) { bw.set(0, packed(bw.grad(), bw.saved(0), total)); });
    return y;
}

Tensor packed(const Tensor& given, const Tensor& offsets, int64_t total) {
    if (is_reduced(given.dtype())) return to(packed(to(given, DType::f32), offsets, total), given.dtype());
    const int64_t batch = offsets.numel() - 1, length = given.size(1);
    const Tensor x = contiguous(given), y = empty(beyond(x, {total}, 2), x.dtype());
    if (y.numel())
        kernels::each().padded_to_jagged(
            {{offsets.device_data<int64_t>(), batch, length, y.numel() / total, x.device_data(), y.device_data()}}, x.dtype(), y.numel());
    if (needs_grad(given))
        record(y, "PaddedDenseToJaggedBackward0", {given}, {offsets},
               [length](Backward& bw) { bw.set(0, padded(bw.grad(), bw.saved(0), length, 0)); });
    return y;
}

Tensor jagged_to_padded(const Tensor& values, const TensorList& offsets, const Dims& max_lengths, double padding) {
    constexpr const char* name = "_jagged_to_padded_dense_forward";
    check_dtype(name, values.dtype());
    if (values.dim() < 1) throw RuntimeError(name, "(): expected values of at least one dimension, got shape ", values.sizes());
    const Tensor at = checked(name, offsets, values.size(0));
    if (max_lengths.size() != 1 || max_lengths[0] < 0) throw RuntimeError(name, "(): expected one length, got ", max_lengths);
    return padded(values, at, max_lengths[0], padding);
}

Tensor padded_to_jagged(const Tensor& dense, const TensorList& offsets, std::optional<int64_t> total) {
    constexpr const char* name = "_padded_dense_to_jagged_forward";
    check_dtype(name, dense.dtype());
    if (offsets.size() == 1 && offsets[0].numel() && !total) total = item(select(offsets[0], 0, -1)).to_int();
    const Tensor at = checked(name, offsets, total.value_or(0));
    const int64_t batch = at.numel() - 1;
    if (dense.dim() < 2) throw RuntimeError(name, "(): expected padded dim >= 2, got shape ", dense.sizes());
    if (dense.size(0) != batch) throw RuntimeError(name, "(): expected ", batch, " padded rows, got shape ", dense.sizes());
    const int64_t longest = item(amax(sub(narrow(at, 0, 1, batch), narrow(at, 0, 0, batch)), {})).to_int();
    if (longest > dense.size(1))
        throw RuntimeError(name, "(): found batch item of length ", longest, " when max length specified by padded input is ",
                           dense.size(1));
    return packed(dense, at, *total);
}

}  // namespace

static const Operators operators = {
    {"_jagged_to_padded_dense_forward(Tensor values, Tensor[] offsets, int[] max_lengths, float padding_value=0.0)", jagged_to_padded,
     function,
     R"(Rows that lie one after the other, cut or padded to one length.
        >>> wisp._core._jagged_to_padded_dense_forward(wisp.tensor([1.0, 2.0, 3.0]), [wisp.tensor([0, 1, 3])], [2])
        tensor([[1., 0.],
                [2., 3.]]))"},
    {"_padded_dense_to_jagged_forward(Tensor dense, Tensor[] offsets, int? total_L=None)", padded_to_jagged, function,
     R"(Padded rows, one after the other without what was padded.
        >>> wisp._core._padded_dense_to_jagged_forward(wisp.tensor([[1.0, 0.0], [2.0, 3.0]]), [wisp.tensor([0, 1, 3])])
        tensor([1., 2., 3.]))"},
};

}  // namespace wisp
