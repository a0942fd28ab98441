// Front doors that put tensors together and rearrange them: cat, stack and relatives, flip, roll, repeat, triangles,
// diagonals, and writing into a part (select_scatter and relatives).
#include <algorithm>
#include <cstring>
#include <vector>

#include "../autograd/told.h"
#include "../autograd/whole.h"
#include "../compile/tape.h"
#include "../core/threads.h"
#include "../kernels/copy.h"
#include "../kernels/index.h"
#include "../python/registry.h"
#include "format.h"
#include "gather.h"
#include "reduce.h"
#include "views.h"

namespace wisp {

// --- joining -------------------------------------------------------------------------------------------------------

// PyTorch lets 1-dim tensors of size 0 join anything.
static bool is_nothing(const Tensor& t) { return t.dim() == 1 && t.size(0) == 0; }

// Contiguous parts of one dtype: their rows one behind the other.
static void join_rows(const Tensor& y, const TensorList& parts, int64_t dim, const Dims& lengths) {
    if (y.numel() == 0) return;  // before products of its sizes, which then mean nothing
    int64_t outer = 1, inner = y.item_size();
    for (int64_t d = 0; d < dim; d++) outer *= y.size(d);
    for (int64_t d = dim + 1; d < y.dim(); d++) inner *= y.size(d);
    const int64_t row = y.size(dim) * inner;
    // Addresses are asked for here: in a compiled region that may run notes, which threads of a loop must not wait for.
    char* const joined = static_cast<char*>(y.device_data());
    Small<const void*, 8> sources;  // few parts take no memory of the heap
    for (const Tensor& part : parts) sources.push_back(part.device_data());
    if (const auto join = kernels::copy().join) {
        std::vector<int64_t> bytes;
        for (int64_t k = 0; k < parts.size(); k++) bytes.push_back(lengths[k] * inner);
        return join(joined, sources.data(), bytes.data(), parts.size(), outer);
    }
    Unlocked unlocked(y.numel());
    // One long row is cut into pieces of its own; where parts are large each of them is, as threads do that made them or use the result.
    const int64_t pieces = outer == 1 ? std::max<int64_t>(1, row >> 17) : 1;
    const bool cuts_parts = pieces > 1 && row / parts.size() >= 1 << 16;
    Small<int64_t, 8> begins;  // of the parts in a row, so that a piece need not pass by all parts in front of it
    for (int64_t k = 0, at = 0; k < parts.size(); at += lengths[k++] * inner) begins.push_back(at);
    parallel_for(outer * pieces, std::max<int64_t>(1, (int64_t(1) << 17) / (row / pieces + 1)), [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t r = unit / pieces, from = row * (unit % pieces) / pieces, to = row * (unit % pieces + 1) / pieces;
            const int64_t start = cuts_parts ? 0 : std::upper_bound(begins.begin(), begins.end(), from) - begins.begin() - 1;
            for (int64_t k = start; k < parts.size() && (cuts_parts || begins[k] < to); k++) {
                const int64_t n = lengths[k] * inner, at = begins[k];
                const int64_t first = cuts_parts ? at + n * unit / pieces : std::max(at, from);
                const int64_t last = cuts_parts ? at + n * (unit + 1) / pieces : std::min(at + n, to);
                const char* source = static_cast<const char*>(sources[k]) + r * n;
                if (first < last) std::memcpy(joined + r * row + first, source + (first - at), size_t(last - first));
            }
        }
    });
}

// In a compiled region on a GPU few parts are joined by the program that uses them.
static bool note_join(const Tensor& y, const TensorList& parts, int64_t dim) {
    constexpr int most = kernels::ProgramStep::most;
    if (!y.is_cuda() || parts.size() < 2 || parts.size() > most) return false;
    Arg operands[most];
    for (int64_t k = 0; k < parts.size(); k++) {
        if (parts[k].dtype() != y.dtype() || parts[k].numel() == 0) return false;
        operands[k] = parts[k];
    }
    kernels::ProgramStep step;
    step.kind = kernels::StepKind::join;
    step.compute = step.block = step.result = y.dtype();
    step.axis = int8_t(dim);
    return compile::note(y, step, operands, int(parts.size()));
}

Tensor cat(const TensorList& given, int64_t dim, Out out) {
    if (given.empty()) throw ValueError("torch.cat(): expected a non-empty list of Tensors");
    const Tensor* model = nullptr;
    for (const Tensor& t : given) {
        if (t.dim() == 0) throw RuntimeError("zero-dimensional tensor (at position ", &t - given.data(), ") cannot be concatenated");
        check_same_device("cat", given[0], t);
        if (!model && !is_nothing(t)) model = &t;
    }
    if (!model) {
        model = &given[0];
        if (model->dim() == 1) dim = 0;  // nothing but empty vectors, which fit in anywhere
    }
    dim = wrap_dim(dim, model->dim());
    DType dtype = given[0].dtype();
    for (const Tensor& t : given) dtype = t.dtype() == dtype ? dtype : promote(dtype, t.dtype());
    Dims sizes = model->sizes();
    sizes[dim] = 0;
    for (int64_t k = 0; k < given.size(); k++) {
        const Tensor& t = given[k];
        if (is_nothing(t) && model->dim() != 1) continue;
        if (t.dim() != model->dim())
            throw RuntimeError("Tensors must have same number of dimensions: got ", model->dim(), " and ", t.dim(), " (cat, shapes ",
                               model->sizes(), " and ", t.sizes(), " at position ", k, ")");
        for (int64_t i = 0; i < t.dim(); i++)
            if (i != dim && t.size(i) != sizes[i])
                throw RuntimeError("Sizes of tensors must match except in dimension ", dim, ". Expected size ", sizes[i], " but got size ",
                                   t.size(i), " for tensor number ", k, " in the list. (cat, shapes ", model->sizes(), " and ", t.sizes(),
                                   ")");
        sizes[dim] = plus(sizes[dim], t.size(dim));
    }
    int64_t at = 0;
    Dims lengths;
    bool plain = true;
    for (const Tensor& t : given) {
        lengths.push_back(is_nothing(t) && model->dim() != 1 ? 0 : t.size(dim));
        plain &= t.dtype() == dtype && t.is_contiguous();
    }
    MemoryFormat format = plain ? MemoryFormat::contiguous : format_of(given[0]);  // of all of them, or contiguous
    for (int64_t k = 1; k < given.size() && format != MemoryFormat::contiguous; k++)
        if (format_of(given[k]) != format) format = MemoryFormat::contiguous;
    // Parts are copied to wherever they belong; a GPU's kernel and that for rows write to what is contiguous.
    const auto suits = [](const Tensor& t) { return t.device() == Device{} || lies_as_new(t); };
    Tensor y = noting ? Tensor() : out.take_apart(sizes, dtype, suits);
    if (!y) y = empty_in(sizes, dtype, format);
    if (noting && note_join(y, given, dim)) {
        // later
    } else if (plain && y.is_contiguous() && y.device().type != DeviceType::meta) {
        join_rows(y, given, dim, lengths);
    } else {
        for (int64_t k = 0; k < given.size(); k++) {
            const int64_t n = lengths[k];
            if (n && given[k].numel()) copy_values(alias(y, y.layout().slice(dim, at, at + n, 1)), given[k]);
            at += n;
        }
    }
    if (is_differentiable(dtype) && any_needs_grad(given)) {
        const Tensor results[] = {y};
        record_many(results, "CatBackward0", spanned(given), {},
                    told<"dim">(
                        [lengths](Backward& bw, int64_t dim) {
                            int64_t at = 0;
                            for (int64_t k = 0; k < lengths.size(); k++) {
                                const int64_t n = lengths[k];
                                if (bw.needs(int(k)))
                                    bw.set(int(k), n == 0 && bw.node.next[k].node &&
                                                           bw.node.next[k].node->outputs[bw.node.next[k].number].sizes.size() == 1
                                                       ? zeros({0}, bw.grad().dtype())
                                                       : narrow(bw.grad(), dim, at, n));
                                at += n;
                            }
                        },
                        dim));
    }
    return y;
}

Tensor stack(const TensorList& given, int64_t dim, Out out) {
    if (given.empty()) throw RuntimeError("stack expects a non-empty TensorList");
    dim = wrap_dim(dim, given[0].dim() + 1);
    TensorList parts;
    for (int64_t k = 0; k < given.size(); k++) {
        if (!(given[k].sizes() == given[0].sizes()))
            throw RuntimeError("stack expects each tensor to be equal size, but got ", given[0].sizes(), " at entry 0 and ",
                               given[k].sizes(), " at entry ", k);
        parts.push_back(alias(given[k], given[k].layout().unsqueeze(dim)));
    }
    Tensor y = cat(parts, dim, out);
    if (is_differentiable(y.dtype()) && any_needs_grad(given))
        record_many({&y, 1}, "StackBackward0", spanned(given), {},
                    told<"dim">(
                        [n = given.size()](Backward& bw, int64_t dim) {
                            for (int64_t k = 0; k < n; k++)
                                if (bw.needs(int(k))) bw.set(int(k), select(bw.grad(), dim, k));
                        },
                        dim));
    return y;
}

static Tensor atleast(const Tensor& t, int64_t dims) {
    if (dims == 1 || t.dim() >= dims) return t.dim() == 0 ? reshape(t, {1}) : t;
    if (dims == 2) return t.dim() == 0 ? reshape(t, {1, 1}) : unsqueeze(t, 0);
    if (t.dim() == 0) return reshape(t, {1, 1, 1});
    return t.dim() == 1 ? unsqueeze(unsqueeze(t, 0), -1) : unsqueeze(t, -1);
}
template <int dims> static TensorList all_atleast(const TensorList& given) {
    TensorList list;
    for (const Tensor& t : given) list.push_back(atleast(t, dims));
    return list;
}
static Tensor hstack(const TensorList& given) {
    if (given.empty()) throw RuntimeError("hstack expects a non-empty TensorList");
    const TensorList list = all_atleast<1>(given);
    return cat(list, list[0].dim() == 1 ? 0 : 1);
}
static Tensor vstack(const TensorList& given) {
    if (given.empty()) throw RuntimeError("vstack expects a non-empty TensorList");
    return cat(all_atleast<2>(given), 0);
}
static Tensor dstack(const TensorList& given) {
    if (given.empty()) throw RuntimeError("dstack expects a non-empty TensorList");
    return cat(all_atleast<3>(given), 2);
}
static Tensor column_stack(const TensorList& given) {
    if (given.empty()) throw RuntimeError("column_stack expects a non-empty TensorList");
    TensorList list;
    for (const Tensor& t : given) list.push_back(t.dim() <= 1 ? reshape(t, {t.numel(), 1}) : t);
    return cat(list, 1);
}
static Tensor block_diag(const TensorList& given) {
    int64_t rows = 0, columns = 0;
    TensorList list;
    DType dtype = given.empty() ? default_dtype() : given[0].dtype();
    for (const Tensor& t : given) {
        if (t.dim() > 2)
            throw RuntimeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                "has ",
                t.dim(), " dimensions");
        list.push_back(atleast(t, 2));
        rows = plus(rows, list.back().size(0));
        columns = plus(columns, list.back().size(1));
        dtype = promote(dtype, t.dtype());
    }
    if (list.empty()) return empty({1, 0}, dtype);
    Tensor y = zeros({rows, columns}, dtype);
    int64_t top = 0, left = 0;
    for (const Tensor& t : list) {
        const Layout block = y.layout().slice(0, top, top + t.size(0), 1).slice(1, left, left + t.size(1), 1);
        copy_values(alias(y, block), t);
        top += t.size(0);
        left += t.size(1);
    }
    if (is_differentiable(dtype) && any_needs_grad(given)) {
        std::vector<Dims> shapes;
        for (const Tensor& t : given) shapes.push_back(t.sizes());
        record_many({&y, 1}, "BlockDiagBackward0", spanned(given), {}, [shapes](Backward& bw) {
            int64_t top = 0, left = 0;
            for (size_t k = 0; k < shapes.size(); k++) {
                const Dims& s = shapes[k];
                const int64_t h = s.size() == 2 ? s[0] : 1, w = s.empty() ? 1 : s.back();
                if (bw.needs(int(k))) bw.set(int(k), reshape(narrow(narrow(bw.grad(), 0, top, h), 1, left, w), s));
                top += h;
                left += w;
            }
        });
    }
    return y;
}

// --- rearranging ---------------------------------------------------------------------------------------------------

Tensor flip(const Tensor& x, const Dims& given) {
    const Dims dims = wrap_dims(given, x.dim());
    Tensor y = empty_like(x);
    Layout reversed = x.layout();
    for (int64_t d : dims) {
        if (x.dim() == 0 || x.size(d) == 0) continue;
        reversed.offset += (x.size(d) - 1) * reversed.strides[d];
        reversed.strides[d] = -reversed.strides[d];
    }
    if (x.numel()) copy_values(y, alias(x, reversed));
    if (needs_grad(x)) record(y, "FlipBackward0", {x}, {}, told<"dims">([dims](Backward& bw) { bw.set(0, flip(bw.grad(), dims)); }, dims));
    return y;
}

static Tensor rolled(const Tensor& x, const Dims& shifts, const Dims& dims) {
    if (dims.empty()) {
        if (shifts.size() != 1) throw RuntimeError("shifts and dimensions must align. shifts: ", shifts.size(), ", dims: 0");
        return alias(reshape(rolled(reshape(x, {x.numel()}), shifts, {0}), x.sizes()));
    }
    if (shifts.size() != dims.size())
        throw RuntimeError("shifts and dimensions must align. shifts: ", shifts.size(), ", dims: ", dims.size());
    Tensor y = contiguous(x);  // as PyTorch's, whatever x is
    for (int64_t k = 0; k < dims.size(); k++) {
        const int64_t d = wrap_dim(dims[k], x.dim()), n = x.dim() ? x.size(d) : 1;
        if (x.dim() == 0) throw IndexError("Dimension specified as ", dims[k], " but tensor has no dimensions");
        if (n == 0) continue;
        const int64_t shift = ((shifts[k] % n) + n) % n;
        if (shift) y = cat({narrow(y, d, n - shift, shift), narrow(y, d, 0, n - shift)}, d);
    }
    return y.same(x) ? clone(x) : y;
}
static Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
    Tensor y;
    {
        GradMode off(false);
        y = rolled(x, shifts, dims);
    }
    if (needs_grad(x))
        record(y, "RollBackward0", {x}, {},
               told<"shifts dims">(
                   [shifts, dims](Backward& bw) {
                       Dims back = shifts;
                       for (int64_t& n : back) n = -n;
                       bw.set(0, roll(bw.grad(), back, dims));
                   },
                   shifts, dims));
    return y;
}

static Tensor rot90(const Tensor& x, int64_t k, const Dims& given) {
    if (given.size() != 2) throw RuntimeError("expected total rotation dims == 2, but got dims = ", given.size());
    if (x.dim() < 2) throw RuntimeError("expected total dims >= 2, but got total dims = ", x.dim());
    const Dims dims = wrap_dims(given, x.dim());
    k = ((k % 4) + 4) % 4;
    Tensor y;
    {
        GradMode off(false);
        y = k == 0 ? clone(x) : k == 2 ? flip(x, dims) : flip(x, {dims[k == 1 ? 1 : 0]});
        if (k % 2) y = alias(y, y.layout().transpose(dims[0], dims[1]));
    }
    if (needs_grad(x)) record(y, "Rot90Backward0", {x}, {}, [k, dims](Backward& bw) { bw.set(0, rot90(bw.grad(), -k, dims)); });
    return y;
}

static Tensor repeat(const Tensor& x, const Dims& times) {
    if (times.size() < x.dim())
        throw RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            "tensor: got ",
            times, " for shape ", x.sizes());
    const int64_t extra = times.size() - x.dim();
    Dims apart, spread, sizes;  // [1, n] -> [times, n] -> times * n, for each dimension
    for (int64_t i = 0; i < times.size(); i++) {
        const int64_t n = i < extra ? 1 : x.size(i - extra);
        if (times[i] < 0)
            throw RuntimeError("Trying to create tensor with negative dimension ", wisp::times(times[i], n), ": repeat ", times);
        apart.push_back(1);
        apart.push_back(n);
        spread.push_back(times[i]);
        spread.push_back(n);
        sizes.push_back(wisp::times(times[i], n));
    }
    Tensor y;
    {
        GradMode off(false);
        y = alias(reshape(expand(reshape(x, apart), spread), sizes));
        if (y.storage() == x.storage()) y = clone(y);
    }
    if (needs_grad(x))
        record(y, "RepeatBackward0", {x}, {},
               told<"repeats self_sym_sizes">(
                   [spread, own = x.sizes()](Backward& bw) {
                       Dims copies;
                       for (int64_t i = 0; i < spread.size(); i += 2) copies.push_back(i);
                       bw.set(0, reshape(sum(reshape(bw.grad(), spread), copies), own));
                   },
                   times));
    return y;
}

static Tensor tile(const Tensor& x, const Dims& given) {
    Dims times = given;
    while (times.size() < x.dim()) times.insert(0, 1);
    return repeat(x, times);
}

static Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
    if (repeats < 0) throw RuntimeError("Repeats must be non-negative, got ", repeats);
    const Tensor in = dim ? x : reshape(x, {x.numel()});
    const int64_t d = wrap_dim(dim.value_or(0), in.dim());
    const Tensor one = in.dim() ? in : reshape(in, {1});
    Dims spread = one.sizes(), sizes = one.sizes();
    spread.insert(d + 1, repeats);
    sizes[d] = times(sizes[d], repeats);
    const Tensor all = expand(unsqueeze(one, d + 1), spread);
    return view(all.is_contiguous() ? clone(all) : contiguous(all), sizes);
}

// Each index as often as repeats says.
static Tensor repeated_indices(const Tensor& given, std::optional<int64_t> size) {
    if (given.dim() > 1) throw RuntimeError("repeat_interleave only accept 1D vector as repeat");
    if (!is_integral(given.dtype())) throw RuntimeError("repeats has to be Long or Int tensor");
    const Tensor repeats = contiguous(to(given, DType::i64));
    if (repeats.numel() == 0) return empty({0}, DType::i64);
    GradMode off(false);
    const Tensor valid = ge(repeats, Scalar(0)), ends = cumsum(repeats, 0);
    const char* negative = "repeats can not be negative";
    if (!kernels::index().holds(valid.device_data<bool>(), valid.numel(), negative)) throw RuntimeError(negative);
    const auto repeat = kernels::index().repeat;
    const int64_t total = size && !repeat ? *size : item(select(ends, 0, -1)).to_int();
    if (total < 0) throw RuntimeError(negative);
    if (!repeat) return searchsorted(ends, arange(total), true);
    const Tensor out = empty({total}, DType::i64);
    repeat(out.device_data<int64_t>(), repeats.device_data<int64_t>(), repeats.numel());
    return out;
}
static Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim, std::optional<int64_t> size) {
    const Tensor in = dim ? x : reshape(x, {x.numel()});
    const int64_t d = wrap_dim(dim.value_or(0), in.dim()), n = in.dim() ? in.size(d) : 1;
    if (repeats.dim() == 0 || (repeats.dim() == 1 && repeats.size(0) == 1 && n != 1))
        return repeat_interleave(x, item(reshape(repeats, {})).to_int(), dim);
    if (repeats.size(0) != n)
        throw RuntimeError(
            "repeats must have the same size as input along dim, but got "
            "repeats.size(0) = ",
            repeats.size(0), " and input.size(", d, ") = ", n);
    const Tensor at = repeated_indices(repeats, size);
    if (size && *size != at.numel())
        throw RuntimeError("Allocated size does not match required size: output_size is ", *size, ", needed ", at.numel());
    return index_select(in, d, at);
}

// --- triangles and diagonals ---------------------------------------------------------------------------------------

Tensor triangle(const Tensor& x, int64_t diagonal, bool upper) {
    if (x.dim() < 2) throw RuntimeError(upper ? "triu" : "tril", ": input tensor must have at least 2 dimensions, got shape ", x.sizes());
    const Tensor in = contiguous(detach(x));
    Tensor y = empty(x.sizes(), x.dtype());
    if (y.numel()) {
        Unlocked unlocked(y.numel());
        const int64_t rows = x.size(-2), columns = x.size(-1), cut = std::clamp(diagonal, -rows - 1, columns + 1);
        kernels::index().triangle(y.device_data(), in.device_data(), y.numel() / (rows * columns), rows, columns, cut, upper,
                                  x.item_size());
    }
    if (needs_grad(x))
        record(y, upper ? "TriuBackward0" : "TrilBackward0", {x}, {},
               told<"diagonal">([diagonal, upper](Backward& bw) { bw.set(0, triangle(bw.grad(), diagonal, upper)); }, diagonal));
    return y;
}

Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
    const int64_t n = x.dim() + 1;
    dim1 = wrap_dim(dim1, n);
    dim2 = wrap_dim(dim2, n);
    if (dim1 == dim2) throw RuntimeError("diagonal dimensions cannot be identical ", dim1, ", ", dim2);
    if (x.dim() == 0) throw RuntimeError("diag_embed: expected a tensor of at least one dimension");
    const int64_t side = plus(x.size(-1), offset < 0 ? times(offset, -1) : offset);
    Dims sizes = x.sizes();
    sizes.pop_back();
    sizes.insert(std::min(dim1, dim2), side);
    sizes.insert(std::max(dim1, dim2), side);
    product(sizes);  // refuses what does not fit, before places in it are computed
    Tensor y;
    {
        GradMode off(false);
        y = embed(x, sizes, Layout{sizes, contiguous_strides(sizes), 0}.diagonal(offset, dim1, dim2));
    }
    if (needs_grad(x)) record(y, "DiagEmbedBackward0", {x}, {}, [=](Backward& bw) { bw.set(0, diagonal(bw.grad(), offset, dim1, dim2)); });
    return y;
}

static Tensor diagonal_copy(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
    return whole("DiagonalBackward0_copy", {x}, [&] { return clone(diagonal(x, offset, dim1, dim2)); });
}

static Tensor diag(const Tensor& x, int64_t diagonal_) {
    if (x.dim() == 1) return diag_embed(x, diagonal_, 0, 1);
    if (x.dim() == 2) return diagonal_copy(x, diagonal_, 0, 1);
    throw RuntimeError("diag(): Supports 1D or 2D tensors. Got ", x.dim(), "D");
}

static Tensor triangle_indices(int64_t rows, int64_t columns, int64_t offset, bool upper) {
    if (rows < 0 || columns < 0) throw RuntimeError("row and col must be non-negative, got ", rows, " and ", columns);
    offset = std::clamp(offset, -rows, columns);  // further out nothing changes, and sums may overflow
    const Tensor reach = arange(rows) + Scalar(upper ? offset : offset + 1);
    const Tensor edge = minimum(maximum(reach, Scalar(0)), Scalar(columns));  // the column at which the diagonal cuts each row
    const Tensor count = upper ? Scalar(columns) - edge : edge;
    const Tensor row = repeated_indices(count, std::nullopt);
    const Tensor before = cumsum(count, 0) - count;  // elements of the rows above
    const Tensor start = upper ? before - edge : before;
    return stack({row, arange(row.numel()) - index_select(start, 0, row)}, 0);
}

// A clone of x with src written to a part of it. part_of: a tensor -> the view of it.
template <class View> static Tensor scattered(const char* name, const char* node, const Tensor& x, const Tensor& src, View part_of) {
    Tensor y;
    {
        GradMode off(false);
        y = clone(x);
        const Tensor part = part_of(y);
        if (!(part.sizes() == src.sizes()))
            throw RuntimeError(name, ": expected src to have a size equal to the part of self, ", part.sizes(), ", got ", src.sizes());
        copy_values(part, src);
    }
    if (needs_grad(x, src))
        record(y, node, {x, src}, {}, [part_of, sizes = y.sizes(), strides = y.strides()](Backward& bw) {
            const Tensor all = empty_strided(sizes, strides, bw.grad().dtype());  // as the result lies in memory
            copy_(all, bw.grad());
            if (bw.needs(1)) bw.set(1, clone(part_of(all)));
            if (!bw.needs(0)) return;
            zero_(part_of(all));
            bw.set(0, all);
        });
    return y;
}

static const Operators operators = {
    {"cat(Tensor[] tensors, int dim=0, *, Tensor? out=None)", cat, stored | function | in_widest | also("concat concatenate"),
     R"(Tensors joined along a dimension that exists.
        >>> wisp.cat([wisp.tensor([[1, 2]]), wisp.tensor([[3, 4]])], dim=0)
        tensor([[1, 2],
                [3, 4]]))"},
    {"stack(Tensor[] tensors, int dim=0, *, Tensor? out=None)", stack, stored | function | in_widest,
     R"(Tensors of one shape joined along a new dimension.
        >>> wisp.stack([wisp.tensor([1, 2]), wisp.tensor([3, 4])], dim=1)
        tensor([[1, 3],
                [2, 4]]))"},
    {"hstack(Tensor[] tensors, *, Tensor? out=None)", hstack, stored | function,
     R"(Tensors joined side by side.
        >>> wisp.hstack([wisp.tensor([1, 2]), wisp.tensor([3])])
        tensor([1, 2, 3]))"},
    {"vstack(Tensor[] tensors, *, Tensor? out=None)", vstack, stored | function,
     R"(Tensors joined one below the other.
        >>> wisp.vstack([wisp.tensor([1, 2]), wisp.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]]))"},
    {"row_stack(Tensor[] tensors, *, Tensor? out=None)", vstack, stored | function,
     R"(The same as `vstack`.
        >>> wisp.row_stack([wisp.tensor([1, 2]), wisp.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]]))"},
    {"dstack(Tensor[] tensors, *, Tensor? out=None)", dstack, stored | function,
     R"(Tensors joined along a third dimension.
        >>> wisp.dstack([wisp.tensor([1, 2]), wisp.tensor([3, 4])]).shape
        torch.Size([1, 2, 2]))"},
    {"column_stack(Tensor[] tensors, *, Tensor? out=None)", column_stack, stored | function,
     R"(Tensors as the columns of a matrix.
        >>> wisp.column_stack([wisp.tensor([1, 2]), wisp.tensor([3, 4])])
        tensor([[1, 3],
                [2, 4]]))"},
    {"_block_diag(Tensor[] tensors)", block_diag, stored | function | for_python},
    {"flip(Tensor input, int... dims)", [](const Tensor& x, Dims dims) { return flip(x, dims); }, function | method | along_dim,
     R"(The order of the elements turned around along dimensions.
        >>> wisp.flip(wisp.tensor([[1, 2], [3, 4]]), (0,))
        tensor([[3, 4],
                [1, 2]]))"},
    {"fliplr(Tensor input)",
     [](const Tensor& x) {
         if (x.dim() < 2) throw RuntimeError("Input must be >= 2-d.");
         return flip(x, {1});
     },
     complex_half | function | method,
     R"(Columns in the other order.
        >>> wisp.fliplr(wisp.tensor([[1, 2], [3, 4]]))
        tensor([[2, 1],
                [4, 3]]))"},
    {"flipud(Tensor input)",
     [](const Tensor& x) {
         if (x.dim() < 1) throw RuntimeError("Input must be >= 1-d.");
         return flip(x, {0});
     },
     complex_half | function | method,
     R"(Rows in the other order.
        >>> wisp.flipud(wisp.tensor([[1, 2], [3, 4]]))
        tensor([[3, 4],
                [1, 2]]))"},
    {"roll(Tensor input, int[] shifts, int[]? dims=None)",
     [](const Tensor& x, Dims shifts, std::optional<Dims> dims) { return roll(x, shifts, dims.value_or(Dims{})); },
     stored | function | method | along_dim,
     R"(The elements moved along dimensions; what leaves at one end comes in at the other.
        >>> wisp.roll(wisp.arange(5), 2)
        tensor([3, 4, 0, 1, 2]))"},
    {"rot90(Tensor input, int k=1, int[] dims=[0,1])", [](const Tensor& x, int64_t k, Dims dims) { return rot90(x, k, dims); },
     complex_half | function | method,
     R"(The tensor turned by 90 degrees, k times, in the plane of two dimensions.
        >>> wisp.rot90(wisp.tensor([[1, 2], [3, 4]]))
        tensor([[2, 4],
                [1, 3]]))"},
    {"repeat(Tensor input, int... repeats)", [](const Tensor& x, Dims times) { return repeat(x, times); }, stored | method,
     R"(The tensor repeated along dimensions, as a copy.
        >>> wisp.tensor([1, 2]).repeat(2, 2)
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]]))"},
    {"tile(Tensor input, int... dims)", [](const Tensor& x, Dims times) { return tile(x, times); }, stored | function | method,
     R"(The whole tensor repeated along dimensions.
        >>> wisp.tile(wisp.tensor([1, 2]), (2, 2))
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]]))"},
    {"repeat_interleave(Tensor input, int repeats, int? dim=None, *, int? output_size=None)",
     [](const Tensor& x, int64_t times, std::optional<int64_t> dim, std::optional<int64_t>) { return repeat_interleave(x, times, dim); },
     stored | function | method,
     R"(Each element repeated, one after the other.
        >>> wisp.repeat_interleave(wisp.tensor([1, 2]), wisp.tensor([2, 3]))
        tensor([1, 1, 2, 2, 2]))"},
    {"repeat_interleave(Tensor input, Tensor repeats, int? dim=None, *, int? output_size=None)",
     [](const Tensor& x, const Tensor& times, std::optional<int64_t> dim, std::optional<int64_t> size) {
         return repeat_interleave(x, times, dim, size);
     },
     function | method},
    {"repeat_interleave(Tensor repeats, *, int? output_size=None)",
     [](const Tensor& times, std::optional<int64_t> size) { return repeated_indices(times, size); }, function},
    {"tril(Tensor input, int diagonal=0, *, Tensor!? out=None)", [](const Tensor& x, int64_t d) { return triangle(x, d, false); },
     complex_half | function | method | inplace | takes_batches,
     R"(The lower triangle of matrices; the rest is 0.
        >>> wisp.tril(wisp.ones(2, 2))
        tensor([[1., 0.],
                [1., 1.]]))"},
    {"triu(Tensor input, int diagonal=0, *, Tensor!? out=None)", [](const Tensor& x, int64_t d) { return triangle(x, d, true); },
     complex_half | function | method | inplace | takes_batches,
     R"(The upper triangle of matrices; the rest is 0.
        >>> wisp.triu(wisp.ones(2, 2))
        tensor([[1., 1.],
                [0., 1.]]))"},
    {"tril_indices(int row, int col, int offset=0, *, dtype? dtype=None, any layout=None, device? device=None)",
     [](int64_t r, int64_t c, int64_t o, std::optional<DType> d, PyObject*, std::optional<Device>) {
         return to(triangle_indices(r, c, o, false), d.value_or(DType::i64));
     },
     function,
     R"(The row and column numbers of a lower triangle.
        >>> wisp.tril_indices(2, 2)
        tensor([[0, 1, 1],
                [0, 0, 1]]))"},
    {"triu_indices(int row, int col, int offset=0, *, dtype? dtype=None, any layout=None, device? device=None)",
     [](int64_t r, int64_t c, int64_t o, std::optional<DType> d, PyObject*, std::optional<Device>) {
         return to(triangle_indices(r, c, o, true), d.value_or(DType::i64));
     },
     function,
     R"(The row and column numbers of an upper triangle.
        >>> wisp.triu_indices(2, 2)
        tensor([[0, 0, 1],
                [0, 1, 1]]))"},
    {"diag(Tensor input, int diagonal=0, *, Tensor!? out=None)", [](const Tensor& x, int64_t d) { return diag(x, d); },
     stored | function | method,
     R"(The matrix with a vector on its diagonal, or the diagonal of a matrix.
        >>> wisp.diag(wisp.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]]))"},
    {"diagflat(Tensor input, int offset=0)", [](const Tensor& x, int64_t o) { return diag_embed(reshape(x, {x.numel()}), o, 0, 1); },
     stored | function | method,
     R"(The matrix with all elements on its diagonal.
        >>> wisp.diagflat(wisp.tensor([[1], [2]]))
        tensor([[1, 0],
                [0, 2]]))"},
    {"diag_embed(Tensor input, int offset=0, int dim1=-2, int dim2=-1)",
     [](const Tensor& x, int64_t o, int64_t a, int64_t b) { return diag_embed(x, o, a, b); }, stored | function | method,
     R"(Matrices whose diagonals are the last dimension.
        >>> wisp.diag_embed(wisp.tensor([[1, 2]])).shape
        torch.Size([1, 2, 2]))"},
    {"select_scatter(Tensor input, Tensor src, int dim, int index, *, Tensor? out=None)",
     [](const Tensor& x, const Tensor& src, int64_t dim, int64_t at) {
         return scattered("select_scatter", "SelectScatterBackward0", x, src, [=](const Tensor& y) { return select(y, dim, at); });
     },
     stored | function | method,
     R"(A copy of the tensor in which such a slice is replaced.
        >>> wisp.select_scatter(wisp.zeros(2, 2), wisp.ones(2), 0, 1)
        tensor([[0., 0.],
                [1., 1.]]))"},
    {"slice_scatter(Tensor input, Tensor src, int dim=0, int? start=None, int? end=None, int step=1, *, Tensor!? "
     "out=None)",
     [](const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
         return scattered("slice_scatter", "SliceScatterBackward0", x, src,
                          [=](const Tensor& y) { return slice(y, dim, start.value_or(0), end.value_or(INT64_MAX), step); });
     },
     stored | function | method,
     R"(A copy of the tensor in which the elements from `start` to `end` along a dimension are replaced.
        >>> wisp.slice_scatter(wisp.zeros(4), wisp.ones(2), 0, 1, 3)
        tensor([0., 1., 1., 0.]))"},
    {"as_strided_scatter(Tensor input, Tensor src, int[] size, int[] stride, int? storage_offset=None, *, Tensor? "
     "out=None)",
     [](const Tensor& x, const Tensor& src, Dims size, Dims stride, std::optional<int64_t> offset) {
         return scattered("as_strided_scatter", "AsStridedScatterBackward0", x, src,
                          [=](const Tensor& y) { return as_strided(y, size, stride, offset); });
     },
     stored | function | method,
     R"(A copy of the tensor in which the elements of such a view are replaced.
        >>> wisp.as_strided_scatter(wisp.zeros(4), wisp.ones(2), (2,), (2,))
        tensor([1., 0., 1., 0.]))"},
    {"diagonal_copy(Tensor input, int offset=0, int dim1=0, int dim2=1, *, Tensor!? out=None)", diagonal_copy, stored | function,
     R"(A diagonal between two dimensions, as a copy.
        >>> wisp.diagonal_copy(wisp.tensor([[1, 2], [3, 4]]))
        tensor([1, 4]))"},
    {"diagonal_scatter(Tensor input, Tensor src, int offset=0, int dim1=0, int dim2=1, *, Tensor? out=None)",
     [](const Tensor& x, const Tensor& src, int64_t o, int64_t a, int64_t b) {
         return scattered("diagonal_scatter", "DiagonalScatterBackward0", x, src, [=](const Tensor& y) { return diagonal(y, o, a, b); });
     },
     stored | function | method,
     R"(A copy of the tensor with another diagonal.
        >>> wisp.diagonal_scatter(wisp.zeros(2, 2), wisp.ones(2))
        tensor([[1., 0.],
                [0., 1.]]))"},
};

}  // namespace wisp
