// Advanced indexing: picking and writing slices at the positions that index tensors give.
#include "index.h"

#include "../autograd/told.h"
#include "../core/dense_order.h"
#include "../kernels/index.h"
#include "gather.h"

namespace wisp {

int64_t item_value(const Tensor& t) { return item(t).to_int(); }

namespace {

// How an index expression addresses a tensor: indices of the picked slices, and the slice's own dimensions.
struct Picked {
    Dims index_sizes;      // broadcast shape of the indices
    int64_t position = 0;  // where they stand in the result
    TensorList indices;    // int64, contiguous, of that shape
    TensorList given;      // the same as they came
    Dims slices, slice_sizes, slice_strides;
    Dims indexed, sizes, strides;  // dimensions with an index
    int64_t count() const { return product(index_sizes); }
    Small<const int64_t*, 4> pointers() const {
        Small<const int64_t*, 4> p;
        for (const Tensor& i : indices) p.push_back(i.device_data<int64_t>());
        return p;
    }
    // In elements from the tensor's data, for each picked slice.
    Tensor offsets() const {
        const Tensor r = empty({count()}, DType::i64);
        if (r.numel())
            kernels::index().offsets(r.device_data<int64_t>(), pointers().data(), sizes.data(), strides.data(), int(indices.size()),
                                     r.numel(), true, "index");
        return r;
    }
    Dims result_sizes() const {
        Dims sizes;
        for (int64_t i = 0; i < position; i++) sizes.push_back(slice_sizes[i]);
        for (int64_t s : index_sizes) sizes.push_back(s);
        for (int64_t i = position; i < slice_sizes.size(); i++) sizes.push_back(slice_sizes[i]);
        return sizes;
    }
    bool is_index(int64_t d) const { return d >= position && d < position + index_sizes.size(); }
    int64_t slice_of(int64_t d) const { return d < position ? d : d - index_sizes.size(); }
    // Of an index as it lies in the result: a slice of size 1 before or behind it has a stride too, as in a view of that shape.
    int64_t index_stride(const Tensor& i, int64_t d) const {
        if (is_index(d)) return i.stride(d - position);
        if (slice_sizes[slice_of(d)] != 1 || !i.dim()) return 0;
        return d < position ? i.stride(0) * i.size(0) : i.stride(-1);
    }
    // Whether all lies in the order of the dimensions, as mostly.
    bool lies_plainly() const {
        for (int64_t i = 1; i < slice_sizes.size(); i++)
            if (!slice_strides[i] || further_out(slice_strides[i], slice_strides[i - 1], slice_sizes[i], slice_sizes[i - 1]) > 0)
                return false;
        return index_sizes.size() < 2;
    }
    // The result's dimensions from the innermost out: as in PyTorch, slices keep the order in which they lie, and so do indices.
    Dims order() const {
        const Dims all = result_sizes();
        TensorList spread;
        for (const Tensor& i : given) spread.push_back(expanded(i, index_sizes));
        return dense_order(all.size(), [&](int64_t a, int64_t b) {
            if (!is_index(a) && !is_index(b))
                if (const int told = further_out(slice_strides[slice_of(a)], slice_strides[slice_of(b)], all[a], all[b])) return told;
            for (const Tensor& i : spread)
                if (const int told = further_out(index_stride(i, a), index_stride(i, b), all[a], all[b]))
                    return is_index(a) == is_index(b) ? told : std::min(told, 0);  // what is indexed stays together
            return 0;
        });
    }
};

Picked pick(const Tensor& t, const TensorList& indices) {
    OnDevice on(t.device());
    Picked p;
    if (indices.size() > t.dim()) throw IndexError("too many indices for tensor of dimension ", t.dim(), " (got ", indices.size(), ")");
    TensorList& given = p.given;
    bool started = false, ended = false, apart = false;
    for (int64_t d = 0; d < indices.size(); d++) {
        if (!indices[d]) {
            if (started) ended = true;
            continue;
        }
        if (ended) apart = true;
        if (!started) p.position = d;
        started = true;
        Tensor i = indices[d];
        if (i.dtype() == DType::boolean) i = nonzero_tuple(i)[0];
        given.push_back(i);
        p.indexed.push_back(d);
    }
    if (apart) p.position = 0;
    p.index_sizes = given.empty() ? Dims() : given[0].sizes();
    for (int64_t k = 1; k < given.size(); k++) {
        try {
            p.index_sizes = broadcast(p.index_sizes, given[k].sizes());
        } catch (const Error&) {
            throw IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes ", given[0].sizes(), ", ",
                             given[k].sizes());
        }
    }
    for (int64_t d = 0; d < t.dim(); d++)
        if (!p.indexed.contains(d)) {
            p.slices.push_back(d);
            p.slice_sizes.push_back(t.size(d));
            p.slice_strides.push_back(t.stride(d));
        }
    const int64_t n = product(p.index_sizes);
    if (n == 0) return p;
    for (int64_t k = 0; k < given.size(); k++) {
        const int64_t d = p.indexed[k];
        if (t.size(d) == 0) throw IndexError("index is out of bounds for dimension with size 0 (dimension ", d, ")");
        Tensor i = given[k];
        i = to(to(i, DType::i64), t.device());
        GradMode off(false);
        Tensor c = contiguous(expanded(i, p.index_sizes));
        const auto first_out_of_range = kernels::index().first_out_of_range;
        const int64_t bad = first_out_of_range ? first_out_of_range(c.device_data<int64_t>(), n, t.size(d), true) : -1;
        if (bad >= 0)
            throw IndexError("index ", item(select(reshape(c, {-1}), 0, bad)).to_int(), " is out of bounds for dimension ", d,
                             " with size ", t.size(d));
        p.indices.push_back(c);
        p.sizes.push_back(t.size(d));
        p.strides.push_back(t.stride(d));
    }
    return p;
}

void put(const Tensor& t, const Picked& p, const Tensor& values, bool accumulate) {
    OnDevice on(t.device());
    if (p.count() == 0 || product(p.slice_sizes) == 0) return;
    // Values with the index dimensions first: contiguous rows for the kernel.
    Tensor v = expanded(values, p.result_sizes());
    const int64_t k = p.index_sizes.size();
    if (p.position) {
        Dims order;
        for (int64_t i = 0; i < k; i++) order.push_back(p.position + i);
        for (int64_t i = 0; i < p.position; i++) order.push_back(i);
        for (int64_t i = p.position + k; i < v.dim(); i++) order.push_back(i);
        v = alias(v, v.layout().permute(order));
    }
    GradMode off(false);
    v = contiguous(to(to(v, t.dtype()), t.device()));
    const Dims strides = contiguous_strides(p.slice_sizes);
    const kernels::Slice slice{int(p.slice_sizes.size()), p.slice_sizes.data(), p.slice_strides.data()};
    const Tensor offsets = p.offsets();
    int64_t span = 1;
    for (int64_t d : p.indexed) span += (t.size(d) - 1) * t.stride(d);
    kernels::index().put(accumulate ? kernels::Scatter::add : kernels::Scatter::set, t.device_data(), t.dtype(),
                         offsets.device_data<int64_t>(), p.count(), slice, v.device_data(), product(p.slice_sizes), strides.data(), span);
}

}  // namespace

Tensor index(const Tensor& t, const TensorList& indices) {
    OnDevice on(t.device());
    if (indices.size() == 1 && indices[0] && indices[0].dtype() == DType::boolean && t.dim() == indices[0].dim())
        return masked_select(t, indices[0]);
    Picked p = pick(t, indices);
    const bool plain = p.lies_plainly();
    const Dims sizes = p.result_sizes(), order = plain ? Dims() : p.order();
    Tensor r = plain ? empty(sizes, t.dtype()) : empty_strided(sizes, strides_in_order(sizes, order), t.dtype());
    if (r.numel()) {
        Dims from = p.slices;  // dimensions of t as they lie in the result, outermost first
        if (!plain) {
            Dims turned;  // those of the indices
            from = {};
            for (int64_t i = order.size() - 1; i >= 0; i--) {
                if (p.is_index(order[i])) turned.push_back(order[i] - p.position);
                else from.push_back(p.slices[p.slice_of(order[i])]);
            }
            if (!std::is_sorted(turned.begin(), turned.end()))
                for (Tensor& i : p.indices) i = contiguous(alias(i, i.layout().permute(turned)));
        }
        for (int64_t k = 0; k < p.indexed.size(); k++) from.insert(p.position + k, p.indexed[k]);
        const Tensor source = alias(t, t.layout().permute(from));  // outlives the time without the interpreter's lock
        const auto elements = p.slice_sizes.empty() ? kernels::index().take_elements : nullptr;
        const Tensor offsets = elements ? Tensor() : p.offsets();
        Unlocked unlocked(r.numel());
        if (elements)
            elements(r.device_data(), t.device_data(), p.pointers().data(), p.sizes.data(), p.strides.data(), int(p.indices.size()),
                     p.count(), item_size(t.dtype()), "index");
        else take_slices(r, p.position, source, p.indexed.size(), offsets, p.count());
    }
    if (needs_grad(t)) {
        TensorList saved = indices;
        record_many(spanned({r}), "IndexBackward0", spanned({t}), spanned(saved),
                    told<"self_sym_sizes | indices*">([own = t.sizes(), count = int(saved.size())](Backward& bw) {
                        TensorList list;
                        for (int i = 0; i < count; i++) list.push_back(bw.saved(i));
                        Tensor z = zeros(own, bw.grad().dtype());
                        bw.set(0, index_put_(z, list, bw.grad(), true));
                    }));
    }
    return r;
}

Tensor index_put_(const Tensor& t, const TensorList& indices, const Tensor& values, bool accumulate) {
    OnDevice on(t.device());
    if (values.dtype() != t.dtype())
        throw RuntimeError("Index put requires the source and destination dtypes match, got ", type_name(t.dtype()),
                           " for the destination and ", type_name(values.dtype()), " for the source.");
    const bool recording = grad_enabled() && is_differentiable(t.dtype()) && (t.requires_grad() || values.requires_grad());
    if (indices.empty()) throw RuntimeError("index_put_: at least one index must be provided");
    if (!accumulate) check_apart(t, values, "index_put_");
    for (const Tensor& i : indices) check_apart(t, i, "index_put_");
    check_inplace(t, "index_put_", recording, warn_repeated(t, "index_put_"));
    Picked p = pick(t, indices);
    if (!is_expandable(values.sizes(), p.result_sizes())) {
        Dims sizes = values.sizes();
        while (!sizes.empty() && sizes.size() > p.result_sizes().size() && sizes[0] == 1) sizes.erase(0);
        if (!is_expandable(sizes, p.result_sizes()))
            throw RuntimeError("shape mismatch: value tensor of shape ", values.sizes(),
                               " cannot be broadcast to indexing result of shape ", p.result_sizes());
        return index_put_(t, indices, reshape(values, sizes), accumulate);
    }
    if (accumulate && is_stored(t.dtype())) {
        GradMode off(false);
        const Tensor wide = to(alias(t), compute_dtype(t.dtype()));
        put(wide, pick(wide, indices), values, true);
        copy_values(t, wide);
    } else {
        put(t, p, values, accumulate);
    }
    bump_version(t);
    if (recording) {
        NodePtr node = NodePtr::steal(new_node("IndexPutBackward0"));
        add_inputs_before_write(*node, t, spanned({t, values}));
        set_closure(*node, [accumulate, count = int(indices.size())](Backward& bw) {
            TensorList list;
            for (int i = 0; i < count; i++) list.push_back(bw.saved(i));
            if (bw.needs(0)) {
                if (accumulate) bw.set(0, bw.grad());
                else bw.set(0, index_put_(clone(bw.grad()), list, zeros({}, bw.grad().dtype()), false));
            }
            if (bw.needs(1)) bw.set(1, index(bw.grad(), list));
        });
        rebase_history(t, *node);
        for (const Tensor& i : indices) save(*node, i);
        end_record(*node, spanned({t, values}), {&t, 1}, true);
    }
    return t;
}

}  // namespace wisp
