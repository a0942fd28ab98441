// Front doors of views: they share memory, and their gradients are views or scatters of the incoming gradient.
#include "views.h"

#include "../autograd/told.h"
#include "../autograd/engine.h"
#include "../python/registry.h"

namespace wisp {

Tensor embed(const Tensor& g, const Dims& sizes, const Layout& layout) {
    Tensor out = zeros(sizes, g.dtype());
    copy_values(alias(out, layout), g);
    if (needs_grad(g))
        record(out, "ConstantPadNdBackward0", {g}, {}, [layout](Backward& bw) {
            const Tensor whole = contiguous(bw.grad());
            bw.set(0, as_strided(whole, layout.sizes, layout.strides, whole.offset() + layout.offset));
        });
    return out;
}

static void record_reshape(const Tensor& y, const char* name, const Tensor& x) {
    record(y, name, {x}, {}, told<"self_sym_sizes">(batched<1>([sizes = x.sizes()](Backward& bw) {
               bw.set(0, reshape(bw.grad(), bw.batch ? bw.with_batch(sizes) : sizes));
           })));
}

Tensor view(const Tensor& t, const Dims& requested) {
    const Dims sizes = infer_size(requested, t.numel());
    std::optional<Layout> layout = t.layout().view(sizes);
    if (!layout)
        throw RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead. Got shape ",
            t.sizes(), " with strides ", t.strides(), ", asked for ", requested);
    Tensor v = make_view(t, std::move(*layout));
    if (needs_grad(t)) record_reshape(v, "ViewBackward0", t);
    return v;
}

Tensor reshape(const Tensor& t, const Dims& requested) {
    const Dims sizes = infer_size(requested, t.numel());
    if (std::optional<Layout> layout = t.layout().view(sizes)) {
        Tensor v = make_view(t, std::move(*layout));
        if (needs_grad(t)) record_reshape(v, t.is_contiguous() ? "ViewBackward0" : "ReshapeAliasBackward0", t);
        return v;
    }
    Tensor r = empty(t.sizes(), t.dtype());
    copy_to_new(r, t);
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

static Tensor exchanged(const Tensor& t, int64_t a, int64_t b, const char* name) {
    a = wrap_dim(a, t.dim());
    b = wrap_dim(b, t.dim());
    Tensor v = make_view(t, t.layout().transpose(a, b));
    if (needs_grad(t))
        record(v, name, {t}, {},
               told<"dim0 dim1">(batched<1>([](Backward& bw, int64_t a, int64_t b) {
                                     bw.set(0, transpose(bw.grad(), a + bw.first_dim(), b + bw.first_dim()));
                                 }),
                                 a, b));
    return v;
}
Tensor transpose(const Tensor& t, int64_t a, int64_t b) { return exchanged(t, a, b, "TransposeBackward0"); }

Tensor permute(const Tensor& t, const Dims& dims) {
    if (dims.size() != t.dim())
        throw RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
            "dimensions i.e. input.dim() = ",
            t.dim(), " is not equal to len(dims) = ", dims.size());
    const Dims order = wrap_dims(dims, t.dim());
    Tensor v = make_view(t, t.layout().permute(order));
    if (needs_grad(t)) {
        Dims inverse(order.size());
        for (int64_t i = 0; i < order.size(); i++) inverse[order[i]] = i;
        record(v, "PermuteBackward0", {t}, {},
               told<"dims">(batched<1>([inverse](Backward& bw) {
                                if (!bw.batch) return bw.set(0, permute(bw.grad(), inverse));
                                Dims order{0};
                                for (int64_t d : inverse) order.push_back(d + 1);
                                bw.set(0, permute(bw.grad(), order));
                            }),
                            order));
    }
    return v;
}

Tensor movedim(const Tensor& t, const Dims& source, const Dims& destination) {
    if (source.size() != destination.size())
        throw RuntimeError("movedim: Invalid source or destination dims: source (", source,
                           " dims) should contain the same number of dims as "
                           "destination (",
                           destination, " dims)");
    auto wrapped_once = [&](const Dims& given, const char* name) {
        Dims dims;
        for (int64_t d : given) {
            const int64_t at = wrap_dim(d, t.dim());
            if (dims.contains(at)) throw RuntimeError("movedim: repeated dim in `", name, "` (", given, ")");
            dims.push_back(at);
        }
        return dims;
    };
    const Dims from = wrapped_once(source, "source"), to = wrapped_once(destination, "destination");
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
    if (needs_grad(t))
        record(v, "ExpandBackward0", {t}, {}, told<"self_sym_sizes">(batched<1>([own = t.sizes()](Backward& bw) {
                   bw.set(0, bw.batch ? bw.grad() : sum_to_size(bw.grad(), own));  // the engine sums a batch
               })));
    return v;
}

static Tensor squeezed(const Tensor& t, Layout layout, const char* name) {
    Tensor v = make_view(t, std::move(layout));
    if (needs_grad(t)) record_reshape(v, name, t);
    return v;
}

Tensor squeeze(const Tensor& t) { return squeezed(t, t.layout().squeeze(), "SqueezeBackward0"); }

Tensor squeeze(const Tensor& t, const Dims& dims, const char* name) {
    const Dims wrapped = wrap_dims(dims, t.dim());
    Layout layout;
    layout.offset = t.offset();
    for (int64_t i = 0; i < t.dim(); i++)
        if (!(wrapped.contains(i) && t.size(i) == 1)) {
            layout.sizes.push_back(t.size(i));
            layout.strides.push_back(t.stride(i));
        }
    return squeezed(t, std::move(layout), name);
}
Tensor squeeze(const Tensor& t, const Dims& dims) { return squeeze(t, dims, dims.size() == 1 ? "SqueezeBackward1" : "SqueezeBackward2"); }

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
    if (start < -n || start > n)
        throw IndexError("start out of range (expected to be in range of [", -n, ", ", n, "], but got ", start, ")");
    if (start < 0) start += n;
    if (start > n - length) throw RuntimeError("start (", start, ") + length (", length, ") exceeds dimension size (", n, ").");
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
        end_record(*node, {&t, 1}, {&v, 1});
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
    if (product(sizes) > 0 && last >= INT64_MAX / t.item_size())
        throw RuntimeError("Storage size calculation overflowed with sizes=", sizes, ", strides=", strides, " and storage offset ",
                           layout.offset);
    if (product(sizes) > 0 && last >= room)
        throw RuntimeError("setStorage: sizes ", sizes, ", strides ", strides, ", storage offset ", layout.offset, ", and itemsize ",
                           t.item_size(), " requiring a storage size of ", last, " elements are out of bounds for storage of size ", room,
                           " elements");
    Tensor v = make_view(t, layout);
    if (needs_grad(t)) {
        NodePtr node = NodePtr::steal(new_node("AsStridedBackward0"));
        add_input(*node, t);
        set_as_strided_backward(*node, t.layout(), layout);
        add_output(*node, v);
        end_record(*node, {&t, 1}, {&v, 1});
    }
    return v;
}

TensorList unbind(const Tensor& t, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("Dimension specified as ", dim, " but tensor has no dimensions");
    dim = wrap_dim(dim, t.dim());
    TensorList parts;
    for (int64_t i = 0; i < t.size(dim); i++) parts.push_back(make_view(t, t.layout().select(dim, i), view_multi_output));
    if (needs_grad(t) && !parts.empty())
        record_many(spanned(parts), "UnbindBackward0", spanned({t}), {},
                    told<"dim">(
                        [dim](Backward& bw) {
                            TensorList grads;
                            for (int i = 0; i < bw.node.outputs.size(); i++) grads.push_back(bw.grad(i));
                            bw.set(0, stack(grads, dim));
                        },
                        dim));
    return parts;
}

// -> dim, counted from the front
static int64_t check_lengths(const Tensor& t, const Dims& lengths, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("split expects at least a 1-dimensional tensor");
    dim = wrap_dim(dim, t.dim());
    int64_t at = 0;
    for (int64_t n : lengths) {
        if (n < 0) throw RuntimeError("split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes=", lengths);
        at = plus(at, n);
    }
    if (at != t.size(dim))
        throw RuntimeError("split_with_sizes expects split_sizes to sum exactly to ", t.size(dim), " (input tensor's size at dimension ",
                           dim, "), but got split_sizes=", lengths);
    return dim;
}

// The pieces as part(layout) makes them.
template <class F> static TensorList split_as(const Tensor& t, const Dims& lengths, int64_t dim, const char* name, F&& part) {
    dim = check_lengths(t, lengths, dim);
    TensorList parts;
    int64_t at = 0;
    for (int64_t n : lengths) {
        parts.push_back(part(t.layout().slice(dim, at, at + n, 1)));
        at += n;
    }
    if (needs_grad(t) && !parts.empty())
        record_many(spanned(parts), name, spanned({t}), {},
                    told<"dim self_sym_sizes">(
                        [dim](Backward& bw) {
                            TensorList grads;
                            for (int i = 0; i < bw.node.outputs.size(); i++) grads.push_back(bw.grad(i));
                            bw.set(0, cat(grads, dim));
                        },
                        dim));
    return parts;
}
static TensorList split(const Tensor& t, const Dims& lengths, int64_t dim, const char* name) {
    return split_as(t, lengths, dim, name, [&](Layout l) { return make_view(t, std::move(l), view_multi_output); });
}
TensorList split(const Tensor& t, const Dims& lengths, int64_t dim) { return split(t, lengths, dim, "SplitWithSizesBackward0"); }

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
    for (int64_t& s : layout.strides) s = wrapped(s, 2);
    layout.sizes.push_back(2);
    layout.strides.push_back(1);
    Tensor v = retyped(t, std::move(layout), real_of(t.dtype()));
    if (needs_grad(t)) record(v, "ViewAsRealBackward0", {t}, {}, [](Backward& bw) { bw.set(0, view_as_complex(contiguous(bw.grad()))); });
    return v;
}

Tensor view_as_complex(const Tensor& t) {
    if (t.dtype() != DType::f32 && t.dtype() != DType::f64 && t.dtype() != DType::f16)
        throw RuntimeError("view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: ",
                           type_name(t.dtype()));
    if (t.dim() == 0) throw RuntimeError("Input tensor must have one or more dimensions");
    if (t.size(-1) != 2) throw RuntimeError("Tensor must have a last dimension of size 2, got shape ", t.sizes());
    if (t.stride(-1) != 1) throw RuntimeError("Tensor must have a last dimension with stride 1");
    Layout layout = t.layout();
    layout.sizes.pop_back();
    layout.strides.pop_back();
    for (int64_t i = 0; i < layout.dim(); i++) {
        int64_t& s = layout.strides[i];
        if (s % 2 && t.numel() && layout.sizes[i] != 1)
            throw RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension");
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

// --- names -----------------------------------------------------------------------------------------------------------------

static Tensor view_as_dtype(const Tensor& t, DType dtype) {
    if (dtype == t.dtype()) return make_view(t, t.layout());  // sizes of 1 keep their strides
    const int64_t from = t.item_size(), to = item_size(dtype);
    Layout layout = t.layout();
    if (from > to) {
        const int64_t ratio = from / to;
        if (t.dim() == 0)
            throw RuntimeError("self.dim() cannot be 0 to view ", type_name(t.dtype()), " as ", type_name(dtype),
                               " (different element sizes)");
        if (t.stride(-1) != 1)
            throw RuntimeError("self.stride(-1) must be 1 to view ", t.dtype(), " as ", dtype, " (different element sizes), but got ",
                               t.stride(-1));
        layout.offset = times(layout.offset, ratio);
        for (int64_t i = 0; i + 1 < t.dim(); i++) layout.strides[i] = times(layout.strides[i], ratio);
        layout.sizes.back() = times(layout.sizes.back(), ratio);
    } else if (from < to) {
        const int64_t ratio = to / from;
        if (t.dim() == 0)
            throw RuntimeError("self.dim() cannot be 0 to view ", type_name(t.dtype()), " as ", type_name(dtype),
                               " (different element sizes)");
        if (t.stride(-1) != 1)
            throw RuntimeError("self.stride(-1) must be 1 to view ", t.dtype(), " as ", dtype, " (different element sizes), but got ",
                               t.stride(-1));
        if (t.size(-1) % ratio)
            throw RuntimeError("self.size(-1) must be divisible by ", ratio, " to view ", t.dtype(), " as ", dtype,
                               " (different element sizes), but got shape ", t.sizes());
        if (layout.offset % ratio)
            throw RuntimeError("self.storage_offset() must be divisible by ", ratio, " to view ", t.dtype(), " as ", dtype,
                               " (different element sizes), but got ", layout.offset);
        layout.offset /= ratio;
        for (int64_t i = 0; i + 1 < t.dim(); i++) {
            if (layout.strides[i] % ratio)
                throw RuntimeError("self.stride(", i, ") must be divisible by ", ratio, " to view ", t.dtype(), " as ", dtype);
            layout.strides[i] /= ratio;
        }
        layout.sizes.back() /= ratio;
    }
    return retyped(t, std::move(layout), dtype);
}

static Tensor transposed(const Tensor& t) {
    if (t.dim() > 2) throw RuntimeError("t() expects a tensor with <= 2 dimensions, but self is ", t.dim(), "D");
    Tensor v = make_view(t, t.dim() == 2 ? t.layout().transpose(0, 1) : t.layout());
    if (needs_grad(t)) record(v, "TBackward0", {t}, {}, [](Backward& bw) { bw.set(0, transposed(bw.grad())); });
    return v;
}

static TensorList split_evenly(const Tensor& t, int64_t size, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("split expects at least a 1-dimensional tensor");
    if (size < 0) throw RuntimeError("split expects split_size be non-negative, but got split_size=", size);
    dim = wrap_dim(dim, t.dim());
    const int64_t n = t.size(dim);
    if (size == 0 && n != 0) throw RuntimeError("split_size can only be 0 if dimension size is 0, but got dimension size of ", n);
    Dims lengths;
    for (int64_t left = n; left > 0; left -= size) lengths.push_back(std::min(size, left));
    if (lengths.empty()) lengths.push_back(0);
    return split(t, lengths, dim, "SplitBackward0");
}

static TensorList chunk(const Tensor& t, int64_t chunks, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("chunk expects at least a 1-dimensional tensor");
    if (chunks <= 0) throw RuntimeError("chunk expects `chunks` to be greater than 0, got: ", chunks);
    dim = wrap_dim(dim, t.dim());
    const int64_t n = t.size(dim), size = n ? (n - 1) / chunks + 1 : 0;
    if (size == 0 && chunks > 1 << 20) throw RuntimeError("chunk: ", chunks, " parts of a dimension of size 0 are too many");
    if (size == 0) return split(t, Dims(chunks, 0), dim);
    return split_evenly(t, size, dim);
}

static TensorList tensor_split_at(const Tensor& t, const Dims& indices, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
    dim = wrap_dim(dim, t.dim());
    TensorList parts;
    int64_t start = 0;
    for (int64_t i = 0; i <= indices.size(); i++) {
        const int64_t stop = i < indices.size() ? indices[i] : t.size(dim);
        parts.push_back(slice(t, dim, start, stop));
        start = stop;
    }
    return parts;
}

static TensorList tensor_split(const Tensor& t, int64_t sections, int64_t dim) {
    if (t.dim() == 0) throw RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
    if (sections <= 0) throw RuntimeError("number of sections must be larger than 0, got ", sections);
    if (sections > int64_t(1) << 30) throw RuntimeError("tensor_split: ", sections, " sections are too many to be made");
    dim = wrap_dim(dim, t.dim());
    const int64_t n = t.size(dim), base = n / sections, extra = n % sections;
    Dims lengths;
    for (int64_t i = 0; i < sections; i++) lengths.push_back(base + (i < extra));
    TensorList parts;
    int64_t at = 0;
    for (int64_t l : lengths) {
        parts.push_back(slice(t, dim, at, at + l));
        at += l;
    }
    return parts;
}

static Tensor unflatten(const Tensor& t, int64_t dim, const Dims& sizes) {
    if (t.dim() == 0) throw RuntimeError("unflatten: Dimension specified as ", dim, " but tensor has no dimensions");
    dim = wrap_dim(dim, t.dim());
    if (sizes.empty()) throw RuntimeError("unflatten: sizes must be non-empty");
    Dims result;
    Dims inferred;
    if (std::count(sizes.begin(), sizes.end(), -1) > 1) throw RuntimeError("unflatten: only one dimension can be inferred, got ", sizes);
    if (t.size(dim) == 0 && std::count(sizes.begin(), sizes.end(), -1) && std::count(sizes.begin(), sizes.end(), 0))
        throw RuntimeError("unflatten: cannot reshape tensor of 0 elements into shape ", sizes,
                           " because the unspecified dimension size -1 can be any value and is ambiguous");
    try {
        inferred = infer_size(sizes, t.size(dim));
    } catch (const Error&) {
        throw RuntimeError("unflatten: Provided sizes ", sizes, " don't multiply up to the size of dim ", dim, " (", t.size(dim),
                           ") in the input tensor");
    }
    for (int64_t i = 0; i < dim; i++) result.push_back(t.size(i));
    for (int64_t s : inferred) result.push_back(s);
    for (int64_t i = dim + 1; i < t.dim(); i++) result.push_back(t.size(i));
    return view(t, result);
}

// The in-place forms of shape changes turn the tensor itself into the view.
static Tensor become(const Tensor& t, const Tensor& v) {
    check_inplace(t, "an in-place change of shape", false, true);
    if (v->dual) copy_tangents(t, v);  // first: those of a view may follow from its base, which is about to change
    t->layout = v.layout();
    t->numel = v.numel();
    t->contiguous = v->contiguous;
    if (v->grad_fn) set_history(t, v->grad_fn, v->output_number);
    bump_version(t);
    if (t->dual) t->extra->tangent_version = t.version();
    return t;
}
static Tensor transpose_(const Tensor& t, int64_t a, int64_t b) { return become(t, exchanged(t, a, b, "TransposeBackward1")); }

static const Operators operators = {
    {"view(Tensor input, dtype dtype)", view_as_dtype, stored | method,
     R"(The same memory in another shape (one size may be -1), or read as another dtype.
        >>> wisp.arange(6).view(2, -1)
        tensor([[0, 1, 2],
                [3, 4, 5]]))"},
    {"view(Tensor input, int... size)", [](const Tensor& t, Dims sizes) { return view(t, sizes); }, method},
    {"view_as(Tensor input, Tensor other)", [](const Tensor& t, const Tensor& o) { return view(t, o.sizes()); }, method | makes_view,
     R"(The same memory in the shape of another tensor.
        >>> wisp.arange(4).view_as(wisp.zeros(2, 2))
        tensor([[0, 1],
                [2, 3]]))"},
    {"reshape(Tensor input, int... shape)", [](const Tensor& t, Dims sizes) { return reshape(t, sizes); }, method | makes_view,
     R"(The same elements in another shape; a view where possible. One size may be -1.
        >>> wisp.reshape(wisp.arange(6), (2, -1))
        tensor([[0, 1, 2],
                [3, 4, 5]]))"},
    {"reshape(Tensor input, int[] shape)", [](const Tensor& t, Dims sizes) { return reshape(t, sizes); }, function},
    {"reshape_as(Tensor input, Tensor other)", [](const Tensor& t, const Tensor& o) { return reshape(t, o.sizes()); }, method | makes_view,
     R"(The same elements in the shape of another tensor.
        >>> wisp.arange(4).reshape_as(wisp.zeros(2, 2))
        tensor([[0, 1],
                [2, 3]]))"},
    {"flatten(Tensor input, int start_dim=0, int end_dim=-1)", [](const Tensor& t, int64_t a, int64_t b) { return flatten(t, a, b); },
     function | method | makes_view,
     R"(The dimensions from `start_dim` to `end_dim` as one.
        >>> wisp.flatten(wisp.zeros(2, 3, 4), 1).shape
        torch.Size([2, 12]))"},
    {"ravel(Tensor input)", [](const Tensor& t) { return reshape(contiguous(t), {-1}); }, function | method | makes_view,
     R"(The elements in one dimension; a view where possible.
        >>> wisp.ravel(wisp.tensor([[1, 2], [3, 4]]))
        tensor([1, 2, 3, 4]))"},
    {"unflatten(Tensor input, int dim, int[] sizes)", unflatten, function | method | makes_view | along_dim,
     R"(One dimension as several.
        >>> wisp.unflatten(wisp.zeros(2, 6), 1, (2, 3)).shape
        torch.Size([2, 2, 3]))"},
    {"transpose(Tensor input, int dim0, int dim1)", [](const Tensor& t, int64_t a, int64_t b) { return transpose(t, a, b); },
     function | method | makes_view | along_dim,
     R"(Two dimensions exchanged, as a view.
        >>> wisp.transpose(wisp.tensor([[1, 2], [3, 4]]), 0, 1)
        tensor([[1, 3],
                [2, 4]]))"},
    {"swapaxes(Tensor input, int axis0, int axis1)", [](const Tensor& t, int64_t a, int64_t b) { return transpose(t, a, b); },
     function | method | makes_view | along_dim,
     R"(Two dimensions exchanged, as a view.
        >>> wisp.swapaxes(wisp.zeros(2, 3), 0, 1).shape
        torch.Size([3, 2]))"},
    {"swapdims(Tensor input, int dim0, int dim1)", [](const Tensor& t, int64_t a, int64_t b) { return transpose(t, a, b); },
     function | method | makes_view | along_dim,
     R"(Two dimensions exchanged, as a view.
        >>> wisp.swapdims(wisp.zeros(2, 3), 0, 1).shape
        torch.Size([3, 2]))"},
    {"transpose_(Tensor input, int dim0, int dim1)", transpose_, stored | method | along_dim},
    {"swapaxes_(Tensor input, int axis0, int axis1)", transpose_, stored | method | along_dim},
    {"swapdims_(Tensor input, int dim0, int dim1)", transpose_, stored | method | along_dim},
    {"t(Tensor input)", transposed, function | method | makes_view,
     R"(The transpose of a matrix, as a view.
        >>> wisp.t(wisp.tensor([[1, 2], [3, 4]]))
        tensor([[1, 3],
                [2, 4]]))"},
    {"t_(Tensor input)", [](const Tensor& t) { return become(t, transposed(t)); }, stored | method},
    {"permute(Tensor input, int... dims)", [](const Tensor& t, Dims d) { return permute(t, d); }, method | makes_view,
     R"(The dimensions in another order, as a view.
        >>> wisp.permute(wisp.zeros(2, 3, 4), (2, 0, 1)).shape
        torch.Size([4, 2, 3]))"},
    {"permute(Tensor input, int[] dims)", [](const Tensor& t, Dims d) { return permute(t, d); }, function},
    {"movedim(Tensor input, int[] source, int[] destination)", [](const Tensor& t, Dims a, Dims b) { return movedim(t, a, b); },
     function | method | makes_view | along_dim,
     R"(Dimensions moved to other places, as a view.
        >>> wisp.movedim(wisp.zeros(2, 3, 4), 0, -1).shape
        torch.Size([3, 4, 2]))"},
    {"moveaxis(Tensor input, int[] source, int[] destination)", [](const Tensor& t, Dims a, Dims b) { return movedim(t, a, b); },
     function | method | makes_view | along_dim,
     R"(Dimensions moved to other places, as a view.
        >>> wisp.moveaxis(wisp.zeros(2, 3, 4), 0, -1).shape
        torch.Size([3, 4, 2]))"},
    {"expand(Tensor input, int... size, *, bool implicit=False)", [](const Tensor& t, Dims s, bool) { return expand(t, s); },
     method | makes_view,
     R"(A view in which dimensions of size 1 are repeated; -1 keeps a size.
        >>> wisp.tensor([[1], [2]]).expand(-1, 3)
        tensor([[1, 1, 1],
                [2, 2, 2]]))"},
    {"expand_as(Tensor input, Tensor other)", [](const Tensor& t, const Tensor& o) { return expand(t, o.sizes()); }, method | makes_view,
     R"(A view repeated to the shape of another tensor.
        >>> wisp.tensor([1, 2]).expand_as(wisp.zeros(2, 2))
        tensor([[1, 2],
                [1, 2]]))"},
    {"broadcast_to(Tensor input, int[] size|shape)", [](const Tensor& t, Dims s) { return expand(t, s); },
     function | method | makes_view | documented("broadcast_to(input, shape)"),
     R"(A view in which dimensions of size 1 are repeated.
        >>> wisp.broadcast_to(wisp.tensor([1, 2]), (2, 2))
        tensor([[1, 2],
                [1, 2]]))"},
    {"squeeze(Tensor input)", [](const Tensor& t) { return squeeze(t); }, function | method | makes_view,
     R"(The tensor without dimensions of size 1 (all, or those named), as a view.
        >>> wisp.squeeze(wisp.zeros(1, 3, 1)).shape
        torch.Size([3]))"},
    {"squeeze(Tensor input, int dim)", [](const Tensor& t, int64_t d) { return squeeze(t, {d}); }, function | method},
    {"squeeze(Tensor input, int[] dim)", [](const Tensor& t, Dims d) { return squeeze(t, d, "SqueezeBackward2"); }, function | method},
    {"squeeze(Tensor input, int... dim)", [](const Tensor& t, Dims d) { return squeeze(t, d, "SqueezeBackward2"); }, method},
    {"squeeze_(Tensor input)", [](const Tensor& t) { return become(t, squeeze(t)); }, stored | method},
    {"squeeze_(Tensor input, int dim)", [](const Tensor& t, int64_t d) { return become(t, squeeze(t, {d}, "SqueezeBackward4")); }, method},
    {"squeeze_(Tensor input, int... dim)", [](const Tensor& t, Dims d) { return become(t, squeeze(t, d, "SqueezeBackward5")); }, method},
    {"squeeze_(Tensor input, int[] dim)", [](const Tensor& t, Dims d) { return become(t, squeeze(t, d, "SqueezeBackward5")); }, method},
    {"unsqueeze(Tensor input, int dim)", [](const Tensor& t, int64_t d) { return unsqueeze(t, d); }, function | method | makes_view,
     R"(A new dimension of size 1, as a view.
        >>> wisp.unsqueeze(wisp.tensor([1, 2]), 1).shape
        torch.Size([2, 1]))"},
    {"unsqueeze_(Tensor input, int dim)", [](const Tensor& t, int64_t d) { return become(t, unsqueeze(t, d)); }, stored | method},
    {"as_strided_(Tensor input, int[] size, int[] stride, int? storage_offset=None)",
     [](const Tensor& t, Dims size, Dims stride, std::optional<int64_t> offset) { return become(t, as_strided(t, size, stride, offset)); },
     stored | function | method},
    {"narrow(Tensor input, int dim|dimension, int start, int length)",
     [](const Tensor& t, int64_t d, int64_t s, int64_t l) { return narrow(t, d, s, l); }, function | method | makes_view | along_dim,
     R"(`length` elements from `start` on, along a dimension, as a view.
        >>> wisp.narrow(wisp.arange(5), 0, 1, 3)
        tensor([1, 2, 3]))"},
    {"narrow(Tensor input, int dim|dimension, Tensor start, int length)",
     [](const Tensor& t, int64_t d, const Tensor& s, int64_t l) {
         if (s.dim() != 0 || !is_integral(s.dtype()) || s.dtype() == DType::boolean)
             throw RuntimeError("start must be an 0-dim integral Tensor.");
         return narrow(t, d, item(s).to_int(), l);
     },
     function | method},
    {"select(Tensor input, int dim, int index)", [](const Tensor& t, int64_t d, int64_t i) { return select(t, d, i); },
     function | method | makes_view | along_dim,
     R"(The slice with one index along a dimension, as a view.
        >>> wisp.select(wisp.tensor([[1, 2], [3, 4]]), 0, 1)
        tensor([3, 4]))"},
    {"unfold(Tensor input, int dimension, int size, int step)",
     [](const Tensor& t, int64_t d, int64_t n, int64_t s) { return unfold(t, d, n, s); }, method | makes_view,
     R"(Windows of a size along a dimension, `step` apart, as a view with one more dimension.
        >>> wisp.arange(5).unfold(0, 3, 1)
        tensor([[0, 1, 2],
                [1, 2, 3],
                [2, 3, 4]]))"},
    {"diagonal(Tensor input, int offset=0, int dim1=0, int dim2=1)",
     [](const Tensor& t, int64_t o, int64_t a, int64_t b) { return diagonal(t, o, a, b); }, function | method | makes_view | along_dim,
     R"(A diagonal between two dimensions, as a view.
        >>> wisp.diagonal(wisp.tensor([[1, 2], [3, 4]]), offset=1)
        tensor([2]))"},
    {"linalg.diagonal(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1)",
     [](const Tensor& t, int64_t o, int64_t a, int64_t b) { return diagonal(t, o, a, b); }, stored | function,
     R"(The diagonals of matrices.
        >>> wisp.linalg.diagonal(wisp.eye(2))
        tensor([1., 1.]))"},
    {"as_strided(Tensor input, int[] size, int[] stride, int? storage_offset=None)",
     [](const Tensor& t, Dims n, Dims s, std::optional<int64_t> o) { return as_strided(t, n, s, o); }, function | method | makes_view,
     R"(A view of the tensor's memory with any sizes, strides and offset.
        >>> wisp.as_strided(wisp.arange(6), (2, 2), (3, 1))
        tensor([[0, 1],
                [3, 4]]))"},
    {"unbind(Tensor input, int dim=0)", [](const Tensor& t, int64_t d) { return unbind(t, d); }, function | method | makes_view | along_dim,
     R"(All slices along a dimension, as views.
        >>> wisp.unbind(wisp.tensor([[1, 2], [3, 4]]))
        (tensor([1, 2]), tensor([3, 4])))"},
    {"split(Tensor tensor, int split_size_or_sections, int dim=0)", split_evenly,
     function | makes_view | along_dim | documented_method("split(split_size, dim=0)"),
     R"(The tensor cut into pieces of a size, or of several sizes, as views.
        >>> wisp.split(wisp.arange(5), [2, 3])
        (tensor([0, 1]), tensor([2, 3, 4])))"},
    {"split(Tensor tensor, int[] split_size_or_sections, int dim=0)", [](const Tensor& t, Dims n, int64_t d) { return split(t, n, d); },
     function},
    {"split(Tensor input, int split_size, int dim=0)", split_evenly, method},
    {"split(Tensor input, int[] split_size, int dim=0)", [](const Tensor& t, Dims n, int64_t d) { return split(t, n, d); }, method},
    {"split_with_sizes(Tensor input, int[] split_sizes, int dim=0)", [](const Tensor& t, Dims n, int64_t d) { return split(t, n, d); },
     function | method | makes_view | along_dim,
     R"(The tensor cut into pieces of given sizes, as views.
        >>> wisp.split_with_sizes(wisp.arange(5), [1, 4])
        (tensor([0]), tensor([1, 2, 3, 4])))"},
    // Pieces that are no views, and may be changed in place without a check.
    {"_unsafe_split(Tensor input, int[] split_sizes, int dim, bool even)",
     [](const Tensor& t, Dims n, int64_t d, bool even) {
         return split_as(t, n, d, even ? "UnsafeSplitBackward0" : "UnsafeSplitWithSizesBackward0", [&](Layout l) { return alias(t, l); });
     },
     stored | function},
    {"chunk(Tensor input, int chunks, int dim=0)", chunk, function | method | makes_view | along_dim,
     R"(The tensor cut into about equal parts along a dimension, as views.
        >>> wisp.chunk(wisp.arange(5), 2)
        (tensor([0, 1, 2]), tensor([3, 4])))"},
    {"tensor_split(Tensor input, int indices_or_sections, int dim=0)", tensor_split, function | method | makes_view | along_dim,
     R"(The tensor cut into parts, whose number or borders are given, as views.
        >>> wisp.tensor_split(wisp.arange(5), 3)
        (tensor([0, 1]), tensor([2, 3]), tensor([4])))"},
    {"tensor_split(Tensor input, Tensor tensor_indices_or_sections, int dim=0)",
     [](const Tensor& t, const Tensor& i, int64_t d) {
         if (i.dtype() != DType::i64)
             throw RuntimeError("tensor_split expected tensor_indices_or_sections to have dtype of long, but got ", type_name(i.dtype()));
         if (i.dim() > 1)
             throw RuntimeError(
                 "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a tensor "
                 "with ",
                 i.dim(), " dims");
         if (i.dim() == 0) return tensor_split(t, item(i).to_int(), d);
         Dims cuts;
         for (int64_t k = 0; k < i.size(0); k++) cuts.push_back(item(select(i, 0, k)).to_int());
         return tensor_split_at(t, cuts, d);
     },
     function | method},
    {"tensor_split(Tensor input, int[] indices, int dim=0)", tensor_split_at, function | method},
    {"view_as_real(Tensor input)", [](const Tensor& t) { return view_as_real(t); }, stored | function | takes_batches,
     R"(Complex numbers as pairs in a new last dimension, as a view.
        >>> wisp.view_as_real(wisp.tensor([1 + 2j]))
        tensor([[1., 2.]]))"},
    {"view_as_complex(Tensor input)", [](const Tensor& t) { return view_as_complex(t); }, stored | function | takes_batches | cpu_float32,
     R"(Pairs in the last dimension as complex numbers, as a view.
        >>> wisp.view_as_complex(wisp.tensor([[1.0, 2.0]]))
        tensor([1.+2.j]))"},
};

}  // namespace wisp
