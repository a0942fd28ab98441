// Indexing (see index.h). Slices that are contiguous are moved and combined row by row; writes are split among threads
// by where they go, so that repeated indices meet in order.
// Complex numbers are multiplied as by mul, each product rounded; pairs of doubles that become vectors are fused all the same.
#pragma GCC optimize("fp-contract=off", "no-tree-slp-vectorize")
#include "core/merged.h"
#include "kernels/index.h"

#include <cstring>
#include <type_traits>

#include "../core/threads.h"
#include "bits.h"
#include "kernels/copy.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int max_dims = 64;
constexpr int64_t grain = 32768;

// ---- combining -------------------------------------------------------------------------------------------------

template <class R> struct Pair {
    R real, imag;
    friend WISP_INLINE Pair operator+(Pair a, Pair b) { return {a.real + b.real, a.imag + b.imag}; }
    friend WISP_INLINE Pair operator*(Pair a, Pair b) { return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real}; }
};
template <class T> constexpr bool is_pair = false;
template <class R> constexpr bool is_pair<Pair<R>> = true;

template <Scatter how, class T> WISP_INLINE T combined(T a, T x) {
    if constexpr (how == Scatter::set) {
        return x;
    } else if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>) {
        return T(combined<how>(float(a), float(x)));
    } else if constexpr (std::is_same_v<T, Bool>) {
        const bool either = how == Scatter::add || how == Scatter::maximum;
        return {uint8_t(either ? int(a) | int(x) : int(a) & int(x))};
    } else if constexpr (how == Scatter::add) {
        if constexpr (std::is_integral_v<T>) return T(uint64_t(a) + uint64_t(x));
        else return a + x;
    } else if constexpr (how == Scatter::multiply) {
        if constexpr (std::is_integral_v<T>) return T(uint64_t(a) * uint64_t(x));
        else return a * x;
    } else if constexpr (how == Scatter::minimum) {
        const T low = x < a ? x : a;
        return x != x ? x : low;
    } else {
        const T high = x > a ? x : a;
        return x != x ? x : high;
    }
}

// Calls f(type tag, how as a constant) for a dtype and a way to combine. Integers are added and multiplied without
// regard to their sign.
template <class T, class F> void by_sum(Scatter how, F&& f) {
    auto* tag = static_cast<T*>(nullptr);
    if (how == Scatter::add) f(tag, std::integral_constant<Scatter, Scatter::add>{});
    else f(tag, std::integral_constant<Scatter, Scatter::multiply>{});
}
template <class T, class F> void by_order(Scatter how, F&& f) {
    auto* tag = static_cast<T*>(nullptr);
    if (how == Scatter::minimum) f(tag, std::integral_constant<Scatter, Scatter::minimum>{});
    else f(tag, std::integral_constant<Scatter, Scatter::maximum>{});
}
template <class F> void by_type(Scatter how, DType dtype, F&& f) {
    if (how == Scatter::set) return by_item(item_size(dtype), [&](auto* tag) { f(tag, std::integral_constant<Scatter, Scatter::set>{}); });
    if (how == Scatter::add || how == Scatter::multiply) {
        switch (dtype) {
        case DType::u8:
        case DType::i8: return by_sum<uint8_t>(how, f);
        case DType::u16:
        case DType::i16: return by_sum<uint16_t>(how, f);
        case DType::u32:
        case DType::i32: return by_sum<uint32_t>(how, f);
        case DType::u64:
        case DType::i64: return by_sum<uint64_t>(how, f);
        case DType::f16: return by_sum<f16>(how, f);
        case DType::bf16: return by_sum<bf16>(how, f);
        case DType::f32: return by_sum<float>(how, f);
        case DType::f64: return by_sum<double>(how, f);
        case DType::c64: return by_sum<Pair<float>>(how, f);
        case DType::c128: return by_sum<Pair<double>>(how, f);
        default: return by_sum<Bool>(how, f);
        }
    }
    switch (dtype) {
    case DType::u8: return by_order<uint8_t>(how, f);
    case DType::boolean: return by_order<Bool>(how, f);
    case DType::i8: return by_order<int8_t>(how, f);
    case DType::i16: return by_order<int16_t>(how, f);
    case DType::i32: return by_order<int32_t>(how, f);
    case DType::i64: return by_order<int64_t>(how, f);
    case DType::f16: return by_order<f16>(how, f);
    case DType::f32: return by_order<float>(how, f);
    case DType::f64: return by_order<double>(how, f);
    case DType::bf16: return by_order<bf16>(how, f);
    case DType::u16: return by_order<uint16_t>(how, f);
    case DType::u32: return by_order<uint32_t>(how, f);
    default: return by_order<uint64_t>(how, f);
    }
}

// ---- slices at offsets -----------------------------------------------------------------------------------------

constexpr int64_t checked_block = 512;  // indices that are looked at together
WISP_INLINE bool all_in_range(const int64_t* index, int64_t n, int64_t step, int64_t size, bool wrap) {
    const uint64_t low = wrap ? -uint64_t(size) : 0;
    uint64_t signs = 0;  // of what an index is from both ends
    if (step == 1)
        for (int64_t j = 0; j < n; j++) signs |= (uint64_t(index[j]) - low) | (uint64_t(size) - 1 - uint64_t(index[j]));
    else
        for (int64_t j = 0; j < n; j++) signs |= (uint64_t(index[j * step]) - low) | (uint64_t(size) - 1 - uint64_t(index[j * step]));
    return !(signs >> 63);
}
int64_t first_out_of_range(const int64_t* index, int64_t n, int64_t size, bool wrap) {
    const int64_t low = wrap ? -size : 0;
    int64_t first = n;
    parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += checked_block) {
            if (all_in_range(index + i, least(checked_block, end - i), 1, size, wrap)) continue;
            while (index[i] >= low && index[i] < size) i++;
            int64_t known = __atomic_load_n(&first, __ATOMIC_RELAXED);
            while (i < known && !__atomic_compare_exchange_n(&first, &known, i, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
            return;
        }
    });
    return first < n ? first : -1;
}

void offsets(int64_t* out, const int64_t* const* indices, const int64_t* sizes, const int64_t* strides, int count, int64_t n, bool,
             const char*) {
    // Cut as the slices are: a thread finds its offsets where it put them.
    parallel_for(n, 2048, [&](int64_t begin, int64_t end) {
        for (int k = 0; k < count; k++) {
            const int64_t* __restrict index = indices[k];
            int64_t* __restrict o = out;
            const int64_t size = sizes[k], stride = strides[k];
            if (k == 0)
                for (int64_t i = begin; i < end; i++) o[i] = (index[i] < 0 ? index[i] + size : index[i]) * stride;
            else
                for (int64_t i = begin; i < end; i++) o[i] += (index[i] < 0 ? index[i] + size : index[i]) * stride;
        }
        if (count == 0)
            for (int64_t i = begin; i < end; i++) out[i] = 0;
    });
}

// The loops over a slice, seen on two sides; the last dimension is the row.
struct Rows : MergedDims<2> {
    const int64_t *a = strides[0], *b = strides[1];
    int64_t count = 1;
    Rows(const Slice& s, const int64_t* other) {
        for (int k = 0; k < s.ndim; k++) {
            count *= s.sizes[k];
            add(s.sizes[k], [&](int side) { return side ? other[k] : s.strides[k]; });
        }
        at_least_one();
    }
    Rows(const Rows&) = delete;
    // Calls f(offset on side a, offset on side b) for each row.
    template <class F> WISP_INLINE void each(F&& f) const {
        if (ndim == 1) return f(int64_t(0), int64_t(0));
        int64_t at[max_dims] = {}, x = 0, y = 0;
        for (;;) {
            f(x, y);
            int k = ndim - 2;
            for (; k >= 0; k--) {
                x += a[k];
                y += b[k];
                if (++at[k] < sizes[k]) break;
                x -= a[k] * sizes[k];
                y -= b[k] * sizes[k];
                at[k] = 0;
            }
            if (k < 0) return;
        }
    }
};

void contiguous_strides(const Slice& s, int64_t* strides) {
    int64_t n = 1;
    for (int k = s.ndim - 1; k >= 0; k--) {
        strides[k] = n;
        n *= s.sizes[k];
    }
}

// Calls f(offset on side a, offset on side b, rest of the slice) for the first `before` dimensions of a slice, of `outer` elements in all,
// where n slices are moved: dimensions outside of the indexed one, one after the other, so that what is read and written stays in order.
template <class F> void each_outside(const Slice& slice, const int64_t* other, int before, int64_t outer, int64_t n, F&& f) {
    const Slice rest{slice.ndim - before, slice.sizes + before, slice.strides + before};
    int64_t inner = n;
    for (int d = 0; d < rest.ndim; d++) inner *= rest.sizes[d];
    parallel_for(outer, most(1, grain / most(1, inner)), [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; o++) {
            int64_t x = 0, y = 0;
            for (int64_t d = before - 1, left = o; d >= 0; left /= slice.sizes[d], d--) {
                x += left % slice.sizes[d] * slice.strides[d];
                y += left % slice.sizes[d] * other[d];
            }
            f(x, y, rest);
        }
    });
}

void take(void* out, int64_t out_step, const int64_t* out_strides, const void* in, const int64_t* offsets, int64_t n, const Slice& slice,
          int64_t item) {
    int64_t outer = 1;
    int before = 0;
    while (before < slice.ndim && out_strides[before] >= n * out_step) outer *= slice.sizes[before++];
    if (outer > 1 && n >= 16)
        return each_outside(slice, out_strides, before, outer, n, [&](int64_t from, int64_t to, const Slice& rest) {
            take(static_cast<char*>(out) + to * item, out_step, out_strides + before, static_cast<const char*>(in) + from * item, offsets,
                 n, rest, item);
        });
    const Rows rows(slice, out_strides);
    if (rows.count == 0 || n == 0) return;
    const int last = rows.ndim - 1;
    const int64_t width = rows.sizes[last], ss = rows.a[last], ds = rows.b[last];
    const int64_t per_thread = rows.count >= grain ? 1 : grain / rows.count;
    by_item(item, [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        const T* from = static_cast<const T*>(in);
        T* to = static_cast<T*>(out);
        parallel_for(n, per_thread, [&](int64_t begin, int64_t end) {
            if (rows.count == 1) {
                for (int64_t i = begin; i < end; i++) to[i * out_step] = from[one_by_one(offsets[i])];
            } else if (rows.ndim == 1 && ss == 1 && ds == 1) {
                const size_t bytes = size_t(width) * sizeof(T);
                if (bytes >= 32)
                    for (int64_t i = begin; i < end; i++) copy_bytes_of_row(to + i * out_step, from + offsets[i], bytes);
                else
                    for (int64_t i = begin; i < end; i++)
                        for (int64_t j = 0; j < width; j++) to[i * out_step + j] = from[offsets[i] + j];
            } else {
                for (int64_t i = begin; i < end; i++)
                    rows.each([&](int64_t x, int64_t y) {
                        const T* s = from + offsets[i] + x;
                        T* d = to + i * out_step + y;
                        if (ss == 1 && ds == 1) copy_bytes_of_row(d, s, size_t(width) * sizeof(T));
                        else
                            for (int64_t j = 0; j < width; j++) d[j * ds] = s[j * ss];
                    });
            }
        });
    });
}

template <Scatter how, class T> WISP_INLINE void combine_row(T* __restrict d, int64_t ds, const T* __restrict s, int64_t ss, int64_t n) {
    // Contiguous rows are worth loops of their own in the usual cases only.
    constexpr bool usual = how == Scatter::set || (how == Scatter::add && sizeof(T) >= 4);
    if (usual && ds == 1 && ss == 1) {
        if (how == Scatter::set && n * int64_t(sizeof(T)) >= 64) copy_bytes_of_row(d, s, size_t(n) * sizeof(T));
        else
            for (int64_t j = 0; j < n; j++) d[j] = combined<how>(d[j], s[j]);
    } else if (usual && ds == 1 && ss == 0) {
        const T x = *s;
        for (int64_t j = 0; j < n; j++) d[j] = combined<how>(d[j], x);
    } else {
        for (int64_t j = 0; j < n; j++) d[j * ds] = combined<how>(d[j * ds], s[j * ss]);
    }
}

void put(Scatter how, void* out, DType dtype, const int64_t* offsets, int64_t n, const Slice& slice, const void* values, int64_t value_step,
         const int64_t* value_strides, int64_t) {
    int64_t outer = 1, farthest = 0;
    int before = 0;
    for (int64_t i = 0; slice.ndim && i < n; i++) farthest = most(farthest, offsets[i]);
    while (before < slice.ndim && slice.strides[before] > farthest) outer *= slice.sizes[before++];
    if (n >= 16 && outer >= 2 * num_threads())  // elements outside are never the same, so that threads may share them
        return each_outside(slice, value_strides, before, outer, n, [&](int64_t to, int64_t from, const Slice& rest) {
            const int64_t item = item_size(dtype);
            put(how, static_cast<char*>(out) + to * item, dtype, offsets, n, rest, static_cast<const char*>(values) + from * item,
                value_step, value_strides + before, 0);
        });
    const Rows rows(slice, value_strides);
    if (rows.count == 0 || n == 0) return;
    const int last = rows.ndim - 1;
    const int64_t width = rows.sizes[last], ds = rows.a[last], ss = rows.b[last];
    by_type(how, dtype, [&](auto* tag, auto way) {
        using T = std::remove_pointer_t<decltype(tag)>;
        constexpr Scatter combine = decltype(way)::value;
        T* to = static_cast<T*>(out);
        const T* from = static_cast<const T*>(values);
        if (rows.count == 1) {
            for (int64_t i = 0; i < n; i++) {
                T& d = to[offsets[i]];
                d = combined<combine>(d, from[i * value_step]);
            }
            return;
        }
        // Threads share the offsets by ranges of their values: equal ones stay together and in order, and each thread
        // writes to a part of memory of its own.
        const int64_t shares = n * rows.count >= 2 * grain && rows.count >= 16 ? num_threads() : 1;
        int64_t span = 0;
        for (int64_t i = 0; shares > 1 && i < n; i++) span = offsets[i] >= span ? offsets[i] + 1 : span;
        parallel_for(shares, 1, [&](int64_t begin, int64_t end) {
            const int64_t low = shares > 1 ? span * begin / shares : INT64_MIN;
            const int64_t high = end < shares ? span * end / shares : INT64_MAX;
            for (int64_t i = 0; i < n; i++) {
                if (offsets[i] < low || offsets[i] >= high) continue;
                T* d = to + offsets[i];
                const T* s = from + i * value_step;
                rows.each([&](int64_t x, int64_t y) { combine_row<combine>(d + x, ds, s + y, ss, width); });
            }
        });
    });
}

// ---- elements along a dimension --------------------------------------------------------------------------------

// Calls row(offsets of three operands) for each row of `sizes` (a row runs along the last dimension). Rows with the
// same coordinates but `dim` come in order in the same thread; dim < 0: in any order.
template <class F> void each_row(const int64_t* sizes, int ndim, int dim, const int64_t* a, const int64_t* b, const int64_t* c, F&& row) {
    const int last = ndim - 1;
    int64_t outer = 1, along = 1, inner = ndim ? sizes[last] : 1;
    for (int k = 0; k < last; k++) (k == dim ? along : outer) *= sizes[k];
    const int64_t work = along * inner;
    if (outer == 0 || work == 0) return;
    parallel_for(outer, work >= grain ? 1 : grain / work + 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
            int64_t rest = r, x = 0, y = 0, z = 0;
            for (int k = last - 1; k >= 0; k--) {
                if (k == dim) continue;
                const int64_t at = rest % sizes[k];
                rest /= sizes[k];
                x += at * a[k];
                y += at * b[k];
                z += at * c[k];
            }
            row(x, y, z);
            for (int64_t i = 1; i < along; i++) row(x + i * a[dim], y + i * b[dim], z + i * c[dim]);
        }
    });
}

bool gather(void* out, const void* in, const int64_t* in_strides, const int64_t* index, const int64_t* index_strides, const int64_t* sizes,
            int ndim, int dim, int64_t item, int64_t size, bool wrap, const char*) {
    int64_t packed[max_dims], placed[max_dims];
    contiguous_strides(Slice{ndim, sizes, nullptr}, packed);
    for (int k = 0; k < ndim; k++) placed[k] = k == dim ? 0 : in_strides[k];
    const int64_t along = ndim ? in_strides[dim] : 0;
    const int64_t is = ndim ? index_strides[ndim - 1] : 0, ss = ndim ? placed[ndim - 1] : 0;
    const int64_t inner = ndim ? sizes[ndim - 1] : 1;
    bool good = true;
    by_item(item, [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        const auto from_end = [&](int64_t i) __attribute__((always_inline)) { return wrap && i < 0 ? i + size : i; };
        // A part of a row: its indices are looked at, and are still in the first cache when they are used.
        const auto part = [&](T* __restrict d, const T* __restrict s, const int64_t* __restrict at, int64_t n) {
            if (!all_in_range(at, is ? n : 1, is, size, wrap)) return __atomic_store_n(&good, false, __ATOMIC_RELAXED);
            if (is == 0 && ss == 1) {  // one index for the whole row
                copy_bytes_of_row(d, s + from_end(at[0]) * along, size_t(n) * sizeof(T));
            } else if (ss == 0 && along == 1 && is == 1) {
                if (wrap)
                    for (int64_t j = 0; j < n; j++) d[j] = s[one_by_one(at[j] + (at[j] >> 63 & size))];
                else
                    for (int64_t j = 0; j < n; j++) d[j] = s[one_by_one(at[j])];
            } else {
                for (int64_t j = 0; j < n; j++) d[j] = s[one_by_one(from_end(at[j * is]) * along + j * ss)];
            }
        };
        each_row(sizes, ndim, -1, packed, placed, index_strides, [&](int64_t o, int64_t i, int64_t x) {
            const int64_t length = is ? checked_block : inner;
            for (int64_t j = 0; j < inner; j += length)
                part(static_cast<T*>(out) + o + j, static_cast<const T*>(in) + i + j * ss, index + x + j * is, least(length, inner - j));
        });
    });
    return good;
}

void scatter(Scatter how, void* out, DType dtype, const int64_t* out_strides, const int64_t* index, const int64_t* index_strides,
             const void* values, const int64_t* value_strides, const int64_t* sizes, int ndim, int dim, int64_t size, const char*) {
    int64_t placed[max_dims];
    for (int k = 0; k < ndim; k++) placed[k] = k == dim ? 0 : out_strides[k];
    const int64_t along = ndim ? out_strides[dim] : 0;
    const int64_t is = ndim ? index_strides[ndim - 1] : 0, ds = ndim ? placed[ndim - 1] : 0;
    const int64_t vs = ndim ? value_strides[ndim - 1] : 0, inner = ndim ? sizes[ndim - 1] : 1;
    by_type(how, dtype, [&](auto* tag, auto way) {
        using T = std::remove_pointer_t<decltype(tag)>;
        constexpr Scatter combine = decltype(way)::value;
        const auto one_row = [&](int64_t o, int64_t v, int64_t x, int64_t inner) {
            T* d = static_cast<T*>(out) + o;
            const T* s = static_cast<const T*>(values) + v;
            const int64_t* at = index + x;
            if (is == 0 && dim < ndim - 1) return combine_row<combine>(d + at[0] * along, ds, s, vs, inner);
            if (ds == 0 && along == 1 && is == 1 && vs == 1) {
                for (int64_t j = 0; j < inner; j++) d[at[j]] = combined<combine>(d[at[j]], s[j]);
                return;
            }
            for (int64_t j = 0; j < inner; j++) {
                T& to = d[at[j * is] * along + j * ds];
                to = combined<combine>(to, s[j * vs]);
            }
        };
        if (ndim == 2 && dim == 0 && sizes[0] * inner >= 2 * grain) {
            if (is == 0 && inner >= 16) {  // whole rows: each thread has a part of those that are written to
                parallel_for(size, most(1, size / num_threads()), [&](int64_t begin, int64_t end) {
                    for (int64_t i = 0; i < sizes[0]; i++) {
                        const int64_t x = i * index_strides[0];
                        if (index[x] >= begin && index[x] < end) one_row(i * placed[0], i * value_strides[0], x, inner);
                    }
                });
                return;
            }
            const int64_t columns = 64;  // the rows meet, their columns do not
            parallel_for(divide_up(inner, columns), 1, [&](int64_t begin, int64_t end) {
                const int64_t first = begin * columns, length = least(inner, end * columns) - first;
                for (int64_t i = 0; i < sizes[0]; i++)
                    one_row(i * placed[0] + first * ds, i * value_strides[0] + first * vs, i * index_strides[0] + first * is, length);
            });
            return;
        }
        each_row(sizes, ndim, dim, placed, value_strides, index_strides, [&](int64_t o, int64_t v, int64_t x) { one_row(o, v, x, inner); });
    });
}

// ---- masks -----------------------------------------------------------------------------------------------------

void masked_select(void* out, const void* in, const bool* mask, int64_t n, int64_t count, int64_t item) {
    const auto* m = reinterpret_cast<const Bool*>(mask);
    by_item(item, [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        T* to = static_cast<T*>(out);
        const T* from = static_cast<const T*>(in);
        int64_t found = 0;
        for (int64_t i = 0; i < n && found < count; i++) {  // stored always, kept where mask
            to[found] = from[i];
            found += m[i];
        }
    });
}

void masked_scatter(void* out, const bool* mask, const void* values, int64_t n, int64_t item) {
    const auto* m = reinterpret_cast<const Bool*>(mask);
    by_item(item, [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        int64_t used = 0;
        for (int64_t i = 0; i < n; i++)
            if (m[i]) static_cast<T*>(out)[i] = static_cast<const T*>(values)[used++];
    });
}

void nonzero(int64_t* out, int64_t row_step, int64_t column_step, const bool* mask, const int64_t* sizes, int ndim, int64_t count) {
    if (count == 0 || ndim == 0) return;
    const auto* m = reinterpret_cast<const Bool*>(mask);
    const int last = ndim - 1;
    const int64_t inner = sizes[last];
    int64_t at[max_dims] = {}, found = 0;
    for (; found < count; m += inner) {
        const int64_t before = found;
        int64_t* column = out + last * column_step;
        for (int64_t j = 0; j < inner && found < count;) {
            for (uint64_t eight; j + 8 <= inner; j += 8) {
                std::memcpy(&eight, m + j, 8);
                if (eight) break;
            }
            for (const int64_t stop = least(inner, j + 8); j < stop && found < count; j++) {
                column[found * row_step] = j;
                found += m[j];
            }
        }
        for (int k = 0; k < last; k++)
            for (int64_t i = before; i < found; i++) out[i * row_step + k * column_step] = at[k];
        for (int k = last - 1; k >= 0; k--) {
            if (++at[k] < sizes[k]) break;
            at[k] = 0;
        }
    }
}

void triangle(void* out, const void* in, int64_t batch, int64_t rows, int64_t columns, int64_t diagonal, bool upper, int64_t item) {
    if (columns == 0) return;
    parallel_for(batch * rows, grain / columns + 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r++) {
            // tril keeps columns <= row + diagonal, triu those >= row + diagonal.
            int64_t cut = r % rows + diagonal + (upper ? 0 : 1);
            cut = cut < 0 ? 0 : cut > columns ? columns : cut;
            char* d = static_cast<char*>(out) + r * columns * item;
            const char* s = static_cast<const char*>(in) + r * columns * item;
            const size_t head = size_t(cut * item), tail = size_t((columns - cut) * item);
            if (upper) {
                std::memset(d, 0, head);
                if (d != s) std::memcpy(d + head, s + head, tail);
            } else {
                if (d != s) std::memcpy(d, s, head);
                std::memset(d + head, 0, tail);
            }
        }
    });
}

int64_t count_true(const bool* mask, int64_t n) {
    const auto* m = reinterpret_cast<const Bool*>(mask);
    int64_t count = 0;
    for (int64_t i = 0; i < n;) {
        uint8_t some = 0;  // bytes, as long as they hold the sum
        for (const int64_t stop = least(n, i + 192); i < stop; i++) some = uint8_t(some + m[i]);
        count += some;
    }
    return count;
}
void repeat(int64_t* out, const int64_t* repeats, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < repeats[i]; k++) *out++ = i;
}
void count_up(int64_t* out, int64_t n, int64_t first, int64_t step) {
    parallel_for(n, 1 << 16, [=](int64_t begin, int64_t end) {
        const uint64_t by = uint64_t(step), from = uint64_t(first);  // wraps by definition; copies, for `out` might be this very closure
        int64_t* __restrict to = out;
        for (int64_t i = begin; i < end; i++) to[i] = int64_t(from + uint64_t(i) * by);
    });
}

bool holds(const bool* good, int64_t n, const char*) {
    const auto* g = reinterpret_cast<const Bool*>(good);
    for (int64_t i = 0; i < n; i++)
        if (!g[i]) return false;
    return true;
}

void extremes(const int64_t* x, int64_t n, int64_t* least, int64_t* largest) {
    *least = *largest = x[0];
    for (int64_t i = 1; i < n; i++) {
        *least = std::min(*least, x[i]);
        *largest = std::max(*largest, x[i]);
    }
}

void mark_classes(int64_t* out, const int64_t* x, int64_t n, int64_t classes, const char*, const char*) {
    for (int64_t i = 0; i < n; i++) out[i * classes + x[i]] = 1;
}

}  // namespace

extern const IndexKernels index_table = {&first_out_of_range, &offsets,      &take,     &put,        &gather, &scatter,  &masked_select,
                                         &masked_scatter,     &nonzero,      &triangle, &count_true, &repeat, &count_up, &holds,
                                         &extremes,           &mark_classes, 0,         nullptr,     nullptr};

}  // namespace wisp::cpu::WISP_ISA
