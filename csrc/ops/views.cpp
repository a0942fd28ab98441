// Front doors of views: they share memory, and their gradients are views or scatters of the incoming gradient.
#include "views.h"

#include <numeric>

#include "../autograd/engine.h"

namespace wisp {

Tensor embed(const Tensor& g, const Dims& sizes, const Layout& layout) {
    Tensor out = zeros(sizes, g.dtype());
    copy_values(alias(out, layout), g);
    if (needs_grad(g))
        record(out, "EmbedBackward", {g}, {}, [layout](Backward& bw) {
            bw.set(0, as_strided(contiguous(bw.grad()), layout.sizes, layout.strides, layout.offset));
        });
    return out;
}

static void record_reshape(const Tensor& y, const char* name, const Tensor& x) {
    record(y, name, {x}, {}, [sizes = x.sizes()](Backward& bw) { bw.set(0, reshape(bw.grad(), sizes)); });
}

Tensor view(const Tensor& t, const Dims& requested) {
    const Dims sizes = infer_size(requested, t.numel());
    std::optional<Layout> layout = t.layout().view(sizes);
    if (!layout)
        throw RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
                           "contiguous subspaces). Use .reshape(...) instead. Got shape ", t.sizes(), " with strides ", t.strides(),
                           ", asked for ", requested);
    Tensor v = make_view(t, std::move(*layout));
    if (needs_grad(t)) record_reshape(v, "ViewBackward0", t);
    return v;
}

Tensor reshape(const Tensor& t, const Dims& requested) {
    const Dims sizes = infer_size(requested, t.numel());
    if (std::optional<Layout> layout = t.layout().view(sizes)) {
        Tensor v = make_view(t, std::move(*layout));
        if (needs_grad(t)) record_reshape(v, "ViewBackward0", t);
        return v;
    }
    Tensor r = empty(t.sizes(), t.dtype());
    copy_values(r, t);
    r = alias(r, Layout{sizes, contiguous_strides(sizes), 0});
    if (needs_grad(t)) record_reshape(r, "UnsafeViewBackward0", t);
    return r;
}

Tensor flatten(const Tensor& t, int64_t start, int64_t end) {
    if (t.dim() == 0) return reshape(t, {1});
    start = wrap_dim(start, t.dim());
    end = wrap_dim(end, t.dim());
    if (start > end) throw RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim (got ", start, " and ", end, ")");
    if (start == end) return t;
    Dims sizes;
    for (int64_t i = 0; i < start; i++) sizes.push_back(t.size(i));
    int64_t n = 1;
    for (int64_t i = start; i <= end; i++) n *= t.size(i);
    sizes.push_back(n);
    for (int64_t i = end + 1; i < t.dim(); i++) sizes.push_back(t.size(i));
    return reshape(t, sizes);
}

Tensor transpose(const Tensor& t, int64_t a, int64_t b) {
    a = wrap_dim(a, t.dim());
    b = wrap_dim(b, t.dim());
    Tensor v = make_view(t, t.layout().transpose(a, b));
    if (needs_grad(t)) record(v, "TransposeBackward0", {t}, {}, [a, b](Backward& bw) { bw.set(0, transpose(bw.grad(), a, b)); });
    return v;
}

Tensor permute(const Tensor& t, const Dims& dims) {
    if (dims.size() != t.dim())
        throw RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
                           "dimensions i.e. input.dim() = ", t.dim(), " is not equal to len(dims) = ", dims.size());
    const Dims order = wrap_dims(dims, t.dim());
    Tensor v = make_view(t, t.layout().permute(order));
    if (needs_grad(t)) {
        Dims inverse(order.size());
        for (int64_t i = 0; i < order.size(); i++) inverse[order[i]] = i;
        record(v, "PermuteBackward0", {t}, {}, [inverse](Backward& bw) { bw.set(0, permute(bw.grad(), inverse)); });
    }
    return v;
}

Tensor movedim(const Tensor& t, const Dims& source, const Dims& destination) {
    if (source.size() != destination.size())
        throw RuntimeError("movedim: Invalid source or destination dims: source (", source, " dims) should contain the same number of dims as "
                           "destination (", destination, " dims)");
    const Dims from = wrap_dims(source, t.dim()), to = wrap_dims(destination, t.dim());
    if (t.dim() == 0) return view(t, {});
    Dims order(t.dim(), -1);
    for (int64_t i = 0; i < from.size(); i++) order[to[i]] = from[i];
    int64_t next = 0;
    for (int64_t& o : order) {
        if (o >= 0) continue;
        while (from.contains(next)) next++;
        o = next++;
    }
    return permute(t, order);
}

Tensor expand(const Tensor& t, const Dims& sizes) {
    Tensor v = make_view(t, t.layout().expand(sizes));
    if (needs_grad(t)) record(v, "ExpandBackward0", {t}, {}, [own = t.sizes()](Backward& bw) { bw.set(0, sum_to_size(bw.grad(), own)); });
    return v;
}

static Tensor squeezed(const Tensor& t, Layout layout, const char* name) {
    Tensor v = make_view(t, std::move(layout));
    if (needs_grad(t)) record_reshape(v, name, t);
    return v;
}

Tensor squeeze(const Tensor& t) { return squeezed(t, t.layout().squeeze(), "SqueezeBackward0"); }

Tensor squeeze(const Tensor& t, const Dims& dims) {
    const Dims wrapped = wrap_dims(dims, t.dim());
    Layout layout;
    layout.offset = t.offset();
    for (int64_t i = 0; i < t.dim(); i++)
        if (!(wrapped.contains(i) && t.size(i) == 1)) {
            layout.sizes.push_back(t.size(i));
            layout.strides.push_back(t.stride(i));
        }
    return squeezed(t, std::move(layout), dims.size() == 1 ? "SqueezeBackward1" : "SqueezeBackward2");
}

Tensor unsqueeze(const Tensor& t, int64_t dim) {
    dim = wrap_dim(dim, t.dim() + 1);
    return squeezed(t, t.layout().unsqueeze(dim), "UnsqueezeBackward0");
}

Tensor select(const Tensor& t, int64_t dim, int64_t index) {
    if (t.dim() == 0) throw IndexError("select() cannot be applied to a 0-dim tensor.");
    dim = wrap_dim(dim, t.dim());
    const int64_t n = t.size(dim);
    if (index < -n || index >= n)
        throw IndexError("select(): index ", index, " out of range for tensor of size ", t.sizes(), " at dimension ", dim);
    if (index < 0) index += n;
    return view_through(t, "SelectBackward0", [&](const Layout& l) { return l.select(dim, index); });
}

Tensor slice(const Tensor& t, int64_t dim, int64_t start, int64_t stop, int64_t step) {
    if (t.dim() == 0) throw RuntimeError("slice() cannot be applied to a 0-dim tensor.");
    dim = wrap_dim(dim, t.dim());
    if (step <= 0) throw RuntimeError("slice step must be positive, got ", step);
    return view_through(t, "SliceBackward0", [&](const Layout& l) { return l.slice(dim, start, stop, step); });
}

Tensor narrow(const Tensor& t, int64_t dim, int64_t start, int64_t length) {
    if (t.dim() == 0) throw RuntimeError("narrow() cannot be applied to a 0-dim tensor.");
    if (length < 0) throw RuntimeError("narrow(): length must be non-negative, got ", length);
    dim = wrap_dim(dim, t.dim());
    const int64_t n = t.size(dim);
    if (start < -n || start > n) throw IndexError("start out of range (expected to be in range of [", -n, ", ", n, "], but got ", start, ")");
    if (start < 0) start += n;
    if (start > n - length)
        throw RuntimeError("start (", start, ") + length (", length, ") exceeds dimension size (", n, ").");
    return view_through(t, "SliceBackward0", [&](const Layout& l) { return l.slice(dim, start, start + length, 1); });
}

Tensor diagonal(const Tensor& t, int64_t offset, int64_t dim1, int64_t dim2) {
    dim1 = wrap_dim(dim1, t.dim());
    dim2 = wrap_dim(dim2, t.dim());
    if (dim1 == dim2 || t.dim() < 2) throw RuntimeError("diagonal dimensions cannot be identical ", dim1, ", ", dim2);
    return view_through(t, "DiagonalBackward0", [&](const Layout& l) { return l.diagonal(offset, dim1, dim2); });
}

Tensor unfold(const Tensor& t, int64_t dim, int64_t size, int64_t step) {
    dim = wrap_dim(dim, t.dim());
    const int64_t n = t.dim() ? t.size(dim) : 1;
    if (size < 0) throw RuntimeError("size is ", size, " but must be >= 0");
    if (size > n) throw RuntimeError("maximum size for tensor at dimension ", dim, " is ", n, " but size is ", size);
    if (step <= 0) throw RuntimeError("step is ", step, " but must be > 0");
    Tensor v = make_view(t, t.layout().unfold(dim, size, step));
    if (needs_grad(t)) {
        NodePtr node = NodePtr::steal(new_node("UnfoldBackward0"));
        add_input(*node, t);
        Layout base{t.sizes(), contiguous_strides(t.sizes()), 0};
        set_as_strided_backward(*node, base, base.unfold(dim, size, step));
        add_output(*node, v);
    }
    return v;
}

Tensor as_strided(const Tensor& t, const Dims& sizes, const Dims& strides, std::optional<int64_t> offset) {
    if (sizes.size() != strides.size())
        throw RuntimeError("mismatch in length of strides and shape: got sizes ", sizes, " and strides ", strides);
    Layout layout{sizes, strides, offset.value_or(t.offset())};
    for (int64_t i = 0; i < sizes.size(); i++) {
        if (sizes[i] < 0) throw RuntimeError("as_strided: Trying to create tensor with negative dimension ", sizes[i], ": ", sizes);
        if (strides[i] < 0) throw RuntimeError("as_strided: Negative strides are not supported at the moment, got strides: ", strides);
    }
    if (layout.offset < 0) throw RuntimeError("as_strided: storage offset must be non-negative, got ", layout.offset);
    const int64_t room = int64_t(t.storage()->bytes) / t.item_size();
    int64_t last = layout.offset;
    for (int64_t i = 0; i < sizes.size(); i++) {
        int64_t reach;
        if (sizes[i] > 0 && (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) || __builtin_add_overflow(last, reach, &last)))
            last = INT64_MAX;
    }
    if (product(sizes) > 0 && last >= room)
        throw RuntimeError("setStorage: sizes ", sizes, ", strides ", strides, ", storage offset ", layout.offset,
                           ", and itemsize ", t.item_size(), " requiring a storage size of ", last, " elements are out of bounds for storage of ", room, " elements");
    Tensor v = make_view(t, layout);
    if (needs_grad(t)) {
        NodePtr node = NodePtr::steal(new_node("AsStridedBackward0"));
        add_input(*node, t);
        set_as_strided_backward(*node, t.layout(), layout);
        add_output(*node, v);
    }
    return v;
}

TensorList unbind(const Tensor& t, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("Dimension specified as ", dim, " but tensor has no dimensions");
    dim = wrap_dim(dim, t.dim());
    TensorList parts;
    for (int64_t i = 0; i < t.size(dim); i++) parts.push_back(make_view(t, t.layout().select(dim, i), view_multi_output));
    if (needs_grad(t) && !parts.empty())
        record_many(spanned(parts), "UnbindBackward0", spanned({t}), {}, [dim](Backward& bw) {
            TensorList grads;
            for (int i = 0; i < bw.node.outputs.size(); i++) grads.push_back(bw.grad(i));
            bw.set(0, stack(grads, dim));
        });
    return parts;
}

TensorList split(const Tensor& t, const Dims& lengths, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("split expects at least a 1-dimensional tensor");
    dim = wrap_dim(dim, t.dim());
    TensorList parts;
    int64_t at = 0;
    for (int64_t n : lengths) {
        if (n < 0)
            throw RuntimeError("split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes=", lengths);
        at += n;
    }
    if (at != t.size(dim))
        throw RuntimeError("split_with_sizes expects split_sizes to sum exactly to ", t.size(dim), " (input tensor's size at dimension ", dim,
                           "), but got split_sizes=", lengths);
    at = 0;
    for (int64_t n : lengths) {
        parts.push_back(make_view(t, t.layout().slice(dim, at, at + n, 1), view_multi_output));
        at += n;
    }
    if (needs_grad(t) && !parts.empty())
        record_many(spanned(parts), "SplitBackward0", spanned({t}), {}, [dim](Backward& bw) {
            TensorList grads;
            for (int i = 0; i < bw.node.outputs.size(); i++) grads.push_back(bw.grad(i));
            bw.set(0, cat(grads, dim));
        });
    return parts;
}

// --- complex numbers seen as pairs ------------------------------------------------------------------------------------

static Tensor retyped(const Tensor& t, Layout layout, DType dtype) {
    Tensor v = make_view(t, std::move(layout), view_other_dtype);
    v->dtype = dtype;
    return v;
}

Tensor view_as_real(const Tensor& t) {
    if (!is_complex(t.dtype())) throw RuntimeError("view_as_real is only supported for complex tensors, got ", t.dtype());
    Layout layout = t.layout();
    layout.offset *= 2;
    for (int64_t& s : layout.strides) s *= 2;
    layout.sizes.push_back(2);
    layout.strides.push_back(1);
    Tensor v = retyped(t, std::move(layout), real_of(t.dtype()));
    if (needs_grad(t)) record(v, "ViewAsRealBackward0", {t}, {}, [](Backward& bw) { bw.set(0, view_as_complex(contiguous(bw.grad()))); });
    return v;
}

Tensor view_as_complex(const Tensor& t) {
    if (t.dtype() != DType::f32 && t.dtype() != DType::f64)
        throw RuntimeError("view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: ", type_name(t.dtype()));
    if (t.dim() == 0) throw RuntimeError("Input tensor must have one or more dimensions");
    if (t.size(-1) != 2) throw RuntimeError("Tensor must have a last dimension of size 2, got shape ", t.sizes());
    if (t.stride(-1) != 1) throw RuntimeError("Tensor must have a last dimension with stride 1");
    Layout layout = t.layout();
    layout.sizes.pop_back();
    layout.strides.pop_back();
    for (int64_t& s : layout.strides) {
        if (s % 2) throw RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension");
        s /= 2;
    }
    if (layout.offset % 2) throw RuntimeError("Tensor must have a storage_offset divisible by 2");
    layout.offset /= 2;
    Tensor v = retyped(t, std::move(layout), complex_of(t.dtype()));
    if (needs_grad(t)) record(v, "ViewAsComplexBackward0", {t}, {}, [](Backward& bw) { bw.set(0, view_as_real(contiguous(bw.grad()))); });
    return v;
}

Tensor real(const Tensor& t) { return is_complex(t.dtype()) ? select(view_as_real(t), -1, 0) : t; }
Tensor imag(const Tensor& t) {
    if (!is_complex(t.dtype())) throw RuntimeError("imag is not implemented for tensors with non-complex dtypes.");
    return select(view_as_real(t), -1, 1);
}

}  // namespace wisp
