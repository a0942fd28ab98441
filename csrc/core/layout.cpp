// All stride logic: views, broadcasting, contiguity, memory formats.
#include "layout.h"

#include <numeric>

#include "dense_order.h"
#include "errors.h"

namespace wisp {

void refuse_size(int64_t a, char sign, int64_t b) {
    throw RuntimeError("Storage size calculation overflowed: a size of ", a, " ", sign, " ", b, " does not fit into 64 bits");
}

int64_t product(const Dims& sizes) {
    int64_t n = 1;
    for (int64_t s : sizes)
        if (__builtin_mul_overflow(n, s, &n)) {
            for (int64_t z : sizes)
                if (z == 0) return 0;
            throw RuntimeError("Storage size calculation overflowed: a tensor of shape ", sizes, " has too many elements to be addressed");
        }
    return n;
}

Dims contiguous_strides(const Dims& sizes) {
    Dims strides(sizes.size());
    int64_t step = 1;
    for (int64_t i = sizes.size() - 1; i >= 0; i--) {
        strides[i] = step;
        step = wrapped(step, std::max<int64_t>(sizes[i], 1));
    }
    return strides;
}

static bool contiguous_in_order(const Layout& l, const int* order, int n) {
    int64_t step = 1;
    for (int i = 0; i < n; i++) {
        const int d = order[i];
        if (l.sizes[d] != 1) {
            if (l.strides[d] != step) return false;
            step = wrapped(step, l.sizes[d]);
        }
    }
    return true;
}

static constexpr int order_2d[] = {1, 3, 2, 0}, order_3d[] = {1, 4, 3, 2, 0};

Dims strides_for(const Dims& sizes, MemoryFormat format) {
    const bool two = format == MemoryFormat::channels_last;
    if (format == MemoryFormat::contiguous || format == MemoryFormat::preserve) return contiguous_strides(sizes);
    if (sizes.size() != (two ? 4 : 5))
        throw RuntimeError("required rank ", two ? 4 : 5, " tensor to use ", two ? "channels_last" : "channels_last_3d",
                           " format, got shape ", sizes);
    const int* order = two ? order_2d : order_3d;
    Dims strides(sizes.size());
    int64_t step = 1;
    for (int64_t i = 0; i < sizes.size(); i++) {
        strides[order[i]] = step;
        step = wrapped(step, std::max<int64_t>(sizes[order[i]], 1));
    }
    return strides;
}

Dims strides_like(const Layout& l) {
    if (l.is_contiguous()) return contiguous_strides(l.sizes);
    if (l.is_non_overlapping_and_dense()) return l.strides;
    // Keep the order of the strides, as PyTorch's empty_like does for inputs that are not dense.
    return dense_strides(l.sizes, [&](int64_t a, int64_t b) { return further_out(l.strides[a], l.strides[b], l.sizes[a], l.sizes[b]); });
}

bool Layout::is_contiguous() const {
    int64_t step = 1;
    for (int64_t i = dim() - 1; i >= 0; i--) {
        if (sizes[i] == 0) return true;
        if (sizes[i] != 1) {
            if (strides[i] != step) {
                for (int64_t s : sizes)
                    if (s == 0) return true;
                return false;
            }
            step = wrapped(step, sizes[i]);
        }
    }
    return true;
}

bool Layout::is_contiguous(MemoryFormat format) const {
    if (format == MemoryFormat::channels_last) return dim() == 4 && contiguous_in_order(*this, order_2d, 4);
    if (format == MemoryFormat::channels_last_3d) return dim() == 5 && contiguous_in_order(*this, order_3d, 5);
    return is_contiguous();
}

bool Layout::is_non_overlapping_and_dense() const {
    if (dim() == 1) return sizes[0] < 2 || strides[0] == 1;
    Dims order(dim());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        if (sizes[a] < 2) return false;
        if (sizes[b] < 2) return true;
        return strides[a] < strides[b];
    });
    int64_t step = 1;
    for (int64_t d : order) {
        if (sizes[d] < 2) return true;
        if (strides[d] != step) return false;
        step = wrapped(step, sizes[d]);
    }
    return true;
}

bool Layout::may_overlap_itself() const {
    Dims order;
    for (int64_t i = 0; i < dim(); i++) {
        if (sizes[i] == 0) return false;
        if (sizes[i] > 1) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return std::abs(strides[a]) < std::abs(strides[b]); });
    int64_t reach = 0;
    for (int64_t d : order) {
        int64_t length;
        if (std::abs(strides[d]) <= reach) return true;
        if (__builtin_mul_overflow(std::abs(strides[d]), sizes[d] - 1, &length) || __builtin_add_overflow(reach, length, &reach))
            reach = INT64_MAX;
    }
    return false;
}

int64_t Layout::extent() const {
    int64_t last = 0;
    for (int64_t i = 0; i < dim(); i++) {
        if (sizes[i] == 0) return 0;
        last = plus(last, times(sizes[i] - 1, strides[i]));
    }
    return plus(last, 1);
}

Layout Layout::transpose(int64_t a, int64_t b) const {
    Layout r = *this;
    if (dim()) {
        std::swap(r.sizes[a], r.sizes[b]);
        std::swap(r.strides[a], r.strides[b]);
    }
    return r;
}

Layout Layout::permute(const Dims& dims) const {
    Layout r;
    r.offset = offset;
    for (int64_t d : dims) {
        r.sizes.push_back(sizes[d]);
        r.strides.push_back(strides[d]);
    }
    return r;
}

Layout Layout::expand(const Dims& target) const {
    const int64_t extra = target.size() - dim();
    if (extra < 0)
        throw RuntimeError("expand: the number of sizes provided (", target.size(),
                           ") must be greater or equal to the "
                           "number of dimensions in the tensor (",
                           dim(), "); got sizes ", target, " for shape ", sizes);
    Layout r;
    r.offset = offset;
    for (int64_t i = 0; i < target.size(); i++) {
        const int64_t own = i < extra ? 1 : sizes[i - extra];
        int64_t want = target[i];
        if (want == -1 && i >= extra) want = own;
        if (want < 0)
            throw RuntimeError("expand: the size ", target[i], " is not allowed in a leading, non-existing dimension ", i, "; got sizes ",
                               target, " for shape ", sizes);
        if (own != want && own != 1)
            throw RuntimeError("The expanded size of the tensor (", want, ") must match the existing size (", own,
                               ") at non-singleton dimension ", i, ". Target sizes: ", target, ". Tensor sizes: ", sizes);
        r.sizes.push_back(want);
        if (i < extra) r.strides.push_back(0);
        else r.strides.push_back(own == want ? strides[i - extra] : 0);
    }
    // As PyTorch: a fresh leading dimension of size 1 gets the stride of a contiguous one.
    for (int64_t i = extra - 1; i >= 0; i--)
        if (r.sizes[i] == 1 && i + 1 < r.dim()) r.strides[i] = wrapped(r.sizes[i + 1], r.strides[i + 1]);
        else if (r.sizes[i] == 1) r.strides[i] = 1;
    return r;
}

Layout Layout::squeeze() const {
    Layout r;
    r.offset = offset;
    for (int64_t i = 0; i < dim(); i++)
        if (sizes[i] != 1) {
            r.sizes.push_back(sizes[i]);
            r.strides.push_back(strides[i]);
        }
    return r;
}

Layout Layout::unsqueeze(int64_t at) const {
    Layout r = *this;
    r.strides.insert(at, at < dim() ? wrapped(sizes[at], strides[at]) : 1);
    r.sizes.insert(at, 1);
    return r;
}

Layout Layout::select(int64_t d, int64_t index) const {
    Layout r = *this;
    r.offset += index * strides[d];
    r.sizes.erase(d);
    r.strides.erase(d);
    return r;
}

Layout Layout::slice(int64_t d, int64_t start, int64_t stop, int64_t step) const {
    const int64_t n = sizes[d];
    if (start < 0) start += n;
    if (stop < 0) stop += n;
    start = std::clamp<int64_t>(start, 0, n);
    stop = std::clamp<int64_t>(stop, start, n);
    Layout r = *this;
    r.sizes[d] = stop > start ? (stop - start - 1) / step + 1 : 0;
    r.offset += start * strides[d];
    r.strides[d] = wrapped(strides[d], step);
    return r;
}

Layout Layout::unfold(int64_t d, int64_t size, int64_t step) const {
    Layout r = *this;
    if (dim() == 0) {
        r.sizes.push_back(size);
        r.strides.push_back(1);
        return r;
    }
    r.sizes[d] = (sizes[d] - size) / step + 1;
    r.strides[d] = wrapped(strides[d], step);
    r.sizes.push_back(size);
    r.strides.push_back(strides[d]);
    return r;
}

Layout Layout::diagonal(int64_t diagonal, int64_t dim1, int64_t dim2) const {
    Layout r = *this;
    const int64_t length =
        std::max<int64_t>(0, diagonal >= 0 ? std::min(sizes[dim1], sizes[dim2] - diagonal) : std::min(sizes[dim1] + diagonal, sizes[dim2]));
    // Strides of what has no elements may be any: they wrap.
    if (length > 0) r.offset += diagonal >= 0 ? wrapped(diagonal, strides[dim2]) : wrapped(-diagonal, strides[dim1]);
    const int64_t step = int64_t(uint64_t(strides[dim1]) + uint64_t(strides[dim2]));
    r.sizes.erase(std::max(dim1, dim2));
    r.sizes.erase(std::min(dim1, dim2));
    r.strides.erase(std::max(dim1, dim2));
    r.strides.erase(std::min(dim1, dim2));
    r.sizes.push_back(length);
    r.strides.push_back(step);
    return r;
}

std::optional<Layout> Layout::view(const Dims& target) const {
    Layout r;
    r.sizes = target;
    r.offset = offset;
    const int64_t n = product(sizes);
    if (n == 0) {
        r.strides = sizes == target ? strides : contiguous_strides(target);
        return r;
    }
    if (is_contiguous()) {
        r.strides = contiguous_strides(target);
        return r;
    }
    // Walk both shapes from the right; a run of old dimensions that are contiguous among themselves may be cut anew.
    r.strides.resize(target.size());
    int64_t t = target.size() - 1, base = dim() ? strides.back() : 1, old_n = 1, new_n = 1;
    for (int64_t d = dim() - 1; d >= 0; d--) {
        old_n *= sizes[d];
        if (d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != old_n * base)) {
            while (t >= 0 && (new_n < old_n || target[t] == 1)) {
                r.strides[t] = new_n * base;
                new_n *= target[t];
                t--;
            }
            if (new_n != old_n) return std::nullopt;
            if (d > 0) {
                base = strides[d - 1];
                old_n = new_n = 1;
            }
        }
    }
    if (t != -1) return std::nullopt;
    return r;
}

int64_t wrap_dim(int64_t d, int64_t ndim) {
    const int64_t n = std::max<int64_t>(ndim, 1);
    if (d < -n || d >= n) throw IndexError("Dimension out of range (expected to be in range of [", -n, ", ", n - 1, "], but got ", d, ")");
    return d < 0 ? d + n : d;
}

Dims wrap_dims(const Dims& dims, int64_t ndim) {
    Dims result;
    for (int64_t d : dims) {
        const int64_t w = wrap_dim(d, ndim);
        if (result.contains(w)) throw RuntimeError("dim ", w, " appears multiple times in the list of dims ", dims);
        result.push_back(w);
    }
    return result;
}

Dims broadcast(const Dims& a, const Dims& b) {
    if (a == b) return a;
    const int64_t n = std::max(a.size(), b.size());
    Dims result(n);
    for (int64_t i = n - 1; i >= 0; i--) {  // errors name the last dimension that does not fit
        const int64_t ia = i - (n - a.size()), ib = i - (n - b.size());
        const int64_t sa = ia < 0 ? 1 : a[ia], sb = ib < 0 ? 1 : b[ib];
        if (sa != sb && sa != 1 && sb != 1)
            throw RuntimeError("The size of tensor a (", sa, ") must match the size of tensor b (", sb, ") at non-singleton dimension ", i,
                               "; got shapes ", a, " and ", b);
        result[i] = sa == 1 ? sb : sa;
    }
    return result;
}

bool is_expandable(const Dims& from, const Dims& to) {
    if (from.size() > to.size()) return false;
    for (int64_t i = 1; i <= from.size(); i++) {
        const int64_t f = from[from.size() - i];
        if (f != 1 && f != to[to.size() - i]) return false;
    }
    return true;
}

Dims broadcast_strides(const Dims& sizes, const Dims& strides, const Dims& to) {
    const int64_t extra = to.size() - sizes.size();
    Dims result(to.size());
    for (int64_t i = 0; i < to.size(); i++) result[i] = i < extra || (sizes[i - extra] == 1 && to[i] != 1) ? 0 : strides[i - extra];
    return result;
}

Dims infer_size(const Dims& sizes, int64_t numel) {
    Dims result = sizes;
    int64_t known = 1, unknown = -1;
    for (int64_t i = 0; i < sizes.size(); i++) {
        if (sizes[i] == -1) {
            if (unknown >= 0) throw RuntimeError("only one dimension can be inferred, got ", sizes);
            unknown = i;
        } else if (sizes[i] < 0) {
            throw RuntimeError("invalid shape dimension ", sizes[i], " in ", sizes);
        } else if (__builtin_mul_overflow(known, sizes[i], &known)) {
            throw RuntimeError("shape '", sizes, "' is invalid for input of size ", numel);
        }
    }
    if (unknown >= 0) {
        if (known == 0)
            throw RuntimeError("cannot reshape tensor of ", numel, " elements into shape ", sizes,
                               " because the unspecified dimension size -1 can be any value and is ambiguous");
        if (numel % known) throw RuntimeError("shape '", sizes, "' is invalid for input of size ", numel);
        result[unknown] = numel / known;
    } else if (known != numel) {
        throw RuntimeError("shape '", sizes, "' is invalid for input of size ", numel);
    }
    return result;
}

}  // namespace wisp
