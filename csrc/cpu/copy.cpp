// Copies, conversions, transposes and fills (see copy.h). A strided copy first drops, sorts and merges dimensions;
// what remains is a run of rows, or of 2-D transposes done tile by tile in registers.
#include "core/merged.h"
#include "kernels/copy.h"

#include <cstring>
#include <type_traits>

#include "../core/float8.h"
#include "../core/threads.h"
#include "bits.h"
#include "processor.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int max_dims = 64;
constexpr int64_t grain = 32768;  // elements a thread should have at least
constexpr int64_t block = 1024;   // elements converted at a time

// ---- conversion of contiguous blocks ---------------------------------------------------------------------------

// Half precision by integer arithmetic, for instruction sets that can't convert it and for the ends of blocks.
WISP_INLINE float float_of_half(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16;
    const uint32_t rest = uint32_t(h & 0x7fff) << 13;
    const float scaled = bits_as<float>(rest) * 0x1p112f;                // rebias; subnormals come out right
    const uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;  // infinity and NaN
    return bits_as<float>(sign | bits_as<uint32_t>(scaled) | special);
}
WISP_INLINE uint16_t half_of_float(float x) {
    const uint32_t u = bits_as<uint32_t>(x), sign = (u >> 16) & 0x8000, rest = u & 0x7fffffff;
    const uint32_t subnormal = bits_as<uint32_t>(bits_as<float>(rest) + 0.5f) - 0x3f000000u;  // rounds at 2^-24
    const uint32_t normal = (rest - 0x38000000u + 0xfff + ((rest >> 13) & 1)) >> 13;
    uint32_t h = rest < 0x38800000u ? subnormal : normal;
    h = rest >= 0x477ff000u ? 0x7c00u : h;
    h = rest > 0x7f800000u ? 0x7e00u : h;
    return uint16_t(sign | h);
}

void half_to_float(float* dst, const uint16_t* src, int64_t n) {
    int64_t i = 0;
    if constexpr (halves_at_once > 0)
        for (; i + halves_at_once <= n; i += halves_at_once) floats_of_halves(dst + i, src + i);
    for (; i < n; i++) dst[i] = float_of_half(src[i]);
}
void float_to_half(uint16_t* dst, const float* src, int64_t n) {
    int64_t i = 0;
    if constexpr (halves_at_once > 0)
        for (; i + halves_at_once <= n; i += halves_at_once) halves_of_floats(dst + i, src + i);
    for (; i < n; i++) dst[i] = half_of_float(src[i]);
}
void brain_to_float(float* dst, const uint16_t* src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = bits_as<float>(uint32_t(src[i]) << 16);
}
// The bits of x rounded to bf16, in the upper half; the lower one is to be dropped.
WISP_INLINE uint32_t brain_bits(float x) {
    const uint32_t u = bits_as<uint32_t>(x);
    return x == x ? u + 0x7fff + ((u >> 16) & 1) : 0x7fc00000u;
}
void float_to_brain(uint16_t* dst, const float* src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = uint16_t(brain_bits(src[i]) >> 16);
}

void decode(float* dst, const uint8_t* src, DType dtype, int64_t n) {
    with_float8(dtype, [&](auto format) __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; i++) dst[i] = decltype(format)::decode(src[i]);
    });
}
void encode(uint8_t* dst, const float* src, DType dtype, int64_t n) {
    with_float8(dtype, [&](auto format) __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; i++) dst[i] = decltype(format)::encode(src[i]);
    });
}

// How the C++ types of this file stand for dtypes: complex numbers are pairs, bool is Bool.
template <class R> struct Pair {
    R real, imag;
};
template <class T> constexpr bool is_pair = false;
template <class R> constexpr bool is_pair<Pair<R>> = true;
template <class T> constexpr bool is_float = false;
template <> constexpr bool is_float<float> = true;
template <> constexpr bool is_float<double> = true;
template <class A, class B> constexpr bool same_type = false;
template <class A> constexpr bool same_type<A, A> = true;

template <class D, class S> WISP_INLINE D converted(S x) {
    if constexpr (same_type<S, Bool> && same_type<D, Bool>) {
        return D{uint8_t(int(x))};
    } else if constexpr (same_type<S, Bool>) {
        return converted<D>(int(x));
    } else if constexpr (same_type<D, Bool>) {
        if constexpr (is_pair<S>) return Bool{uint8_t((x.real != 0) | (x.imag != 0))};
        else return Bool{uint8_t(x != 0)};
    } else if constexpr (is_pair<S> && is_pair<D>) {
        using R = decltype(D::real);
        return D{R(x.real), R(x.imag)};
    } else if constexpr (is_pair<S>) {
        return converted<D>(x.real);
    } else if constexpr (is_pair<D>) {
        using R = decltype(D::real);
        return D{R(x), R(0)};
    } else if constexpr (is_float<S> && !is_float<D> && sizeof(D) < 8) {
        // By way of a wider signed integer, so that -1.0 becomes 255 in uint8 as in PyTorch.
        if constexpr (same_type<D, int8_t> || same_type<D, int16_t> || same_type<D, int32_t>) return D(int32_t(x));
        else return D(int64_t(x));
    } else if constexpr (is_float<S> && same_type<D, uint64_t>) {
        return x < S(0x1p63) ? D(int64_t(x)) : D(int64_t(x - S(0x1p63))) ^ (D(1) << 63);  // negative numbers wrap
    } else {
        return D(x);
    }
}

template <class D, class S> void convert_loop(void* dst, const void* src, int64_t n) {
    auto* __restrict d = static_cast<D*>(dst);
    auto* __restrict s = static_cast<const S*>(src);
    for (int64_t i = 0; i < n; i++) d[i] = converted<D>(s[i]);
}

using Converter = void (*)(void*, const void*, int64_t);

// The dtypes of WISP_DTYPES without the two half-precision ones, which go by way of float as those of 8 bits do.
#define WISP_WIDE(X)      \
    X(u8, uint8_t)        \
    X(i8, int8_t)         \
    X(i16, int16_t)       \
    X(i32, int32_t)       \
    X(i64, int64_t)       \
    X(f32, float)         \
    X(f64, double)        \
    X(c64, Pair<float>)   \
    X(c128, Pair<double>) \
    X(boolean, Bool)      \
    X(u16, uint16_t)      \
    X(u32, uint32_t)      \
    X(u64, uint64_t)

template <class S> struct Row {
    Converter to[int(DType::count)] = {};
    constexpr Row() {
#define WISP_X(e, D) to[int(DType::e)] = &convert_loop<D, S>;
        WISP_WIDE(WISP_X)
#undef WISP_X
    }
};
#define WISP_X(e, S) constexpr Row<S> row_##e;
WISP_WIDE(WISP_X)
#undef WISP_X
struct Table {
    const Converter* from[int(DType::count)] = {};
    constexpr Table() {
#define WISP_X(e, S) from[int(DType::e)] = row_##e.to;
        WISP_WIDE(WISP_X)
#undef WISP_X
    }
};
constexpr Table table;

void convert(void* dst, DType dst_dtype, const void* src, DType src_dtype, int64_t n);

// To or from pairs of halves, by way of pairs of floats.
void convert_pairs(void* dst, DType dst_dtype, const void* src, DType src_dtype, int64_t n) {
    alignas(64) float buffer[2 * block];
    for (int64_t done = 0; done < n; done += block) {
        const int64_t m = n - done < block ? n - done : block;
        char* d = static_cast<char*>(dst) + done * item_size(dst_dtype);
        const char* s = static_cast<const char*>(src) + done * item_size(src_dtype);
        if (src_dtype == DType::c32) {
            half_to_float(buffer, reinterpret_cast<const uint16_t*>(s), 2 * m);
            convert(d, dst_dtype, buffer, DType::c64, m);
        } else {
            convert(buffer, DType::c64, s, src_dtype, m);
            float_to_half(reinterpret_cast<uint16_t*>(d), buffer, 2 * m);
        }
    }
}

void convert(void* dst, DType dst_dtype, const void* src, DType src_dtype, int64_t n) {
    if (dst_dtype == src_dtype && src_dtype != DType::boolean) {
        if (n) std::memcpy(dst, src, size_t(n * item_size(dst_dtype)));
        return;
    }
    const bool from_half = is_reduced(src_dtype), to_half = is_reduced(dst_dtype);
    if (src_dtype == DType::c32 || dst_dtype == DType::c32) return convert_pairs(dst, dst_dtype, src, src_dtype, n);
    if (!from_half && !to_half) return table.from[int(src_dtype)][int(dst_dtype)](dst, src, n);
    alignas(64) float buffer[block];
    const int64_t dst_item = item_size(dst_dtype), src_item = item_size(src_dtype);
    for (int64_t done = 0; done < n; done += block) {
        const int64_t m = n - done < block ? n - done : block;
        char* d = static_cast<char*>(dst) + done * dst_item;
        const char* s = static_cast<const char*>(src) + done * src_item;
        const float* middle = buffer;
        float* wide = dst_dtype == DType::f32 ? reinterpret_cast<float*>(d) : buffer;
        if (src_dtype == DType::f16) half_to_float(wide, reinterpret_cast<const uint16_t*>(s), m);
        else if (src_dtype == DType::bf16) brain_to_float(wide, reinterpret_cast<const uint16_t*>(s), m);
        else if (is_float8(src_dtype)) decode(wide, reinterpret_cast<const uint8_t*>(s), src_dtype, m);
        else if (src_dtype == DType::f32) middle = reinterpret_cast<const float*>(s);
        else table.from[int(src_dtype)][int(DType::f32)](buffer, s, m);
        if (dst_dtype == DType::f32) continue;
        if (dst_dtype == DType::f16) float_to_half(reinterpret_cast<uint16_t*>(d), middle, m);
        else if (dst_dtype == DType::bf16) float_to_brain(reinterpret_cast<uint16_t*>(d), middle, m);
        else if (is_float8(dst_dtype)) encode(reinterpret_cast<uint8_t*>(d), middle, dst_dtype, m);
        else table.from[int(DType::f32)][int(dst_dtype)](d, middle, m);
    }
}

void round(float* dst, const float* src, DType dtype, int64_t n) {
    if (dtype == DType::bf16) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) dst[i] = bits_as<float>(brain_bits(src[i]) & 0xffff0000u);
        return;
    }
    alignas(64) char narrow[block * 2];
    for (int64_t done = 0; done < n; done += block) {
        const int64_t m = n - done < block ? n - done : block;
        convert(narrow, dtype, src + done, DType::f32, m);
        convert(dst + done, DType::f32, narrow, dtype, m);
    }
}

// ---- rows ------------------------------------------------------------------------------------------------------

template <class T> WISP_INLINE void copy_row(T* __restrict d, int64_t ds, const T* __restrict s, int64_t ss, int64_t n) {
    if (ds == 1) {
        if (ss == 1) {
            if (n >= 64) copy_bytes_of_row(d, s, size_t(n) * sizeof(T));
            else
                for (int64_t i = 0; i < n; i++) d[i] = s[i];
        } else if (ss == 0) {
            const T x = *s;
            for (int64_t i = 0; i < n; i++) d[i] = x;
        } else if (ss == 2) {
            for (int64_t i = 0; i < n; i++) d[i] = s[2 * i];
        } else if (ss == -1) {
            for (int64_t i = 0; i < n; i++) d[i] = s[-i];
        } else {
            for (int64_t i = 0; i < n; i++) d[i] = s[i * ss];
        }
    } else if (ss == 1) {
        for (int64_t i = 0; i < n; i++) d[i * ds] = s[i];
    } else {
        for (int64_t i = 0; i < n; i++) d[i * ds] = s[i * ss];
    }
}

void gather_block(void* dst, const void* src, int64_t stride, int64_t item, int64_t n) {
    if (n <= 0) return;
    by_item(item, [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        copy_row(static_cast<T*>(dst), 1, static_cast<const T*>(src), stride, n);
    });
}
void scatter_block(void* dst, int64_t stride, const void* src, int64_t item, int64_t n) {
    if (n <= 0) return;
    by_item(item, [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        copy_row(static_cast<T*>(dst), stride, static_cast<const T*>(src), 1, n);
    });
}

// ---- transposes ------------------------------------------------------------------------------------------------

// A tile of N x N elements held in N vectors. Each step swaps the off-diagonal blocks of B x B.
template <class T, int N> struct Tile {
    typedef T Vector __attribute__((vector_size(N * sizeof(T))));
    typedef T Loose __attribute__((vector_size(N * sizeof(T)), aligned(sizeof(T)), may_alias));
    using Index = Vector;

    template <int B> static WISP_INLINE void swap_blocks(Vector* r) {
        Index low, high;
        for (int l = 0; l < N; l++) {
            low[l] = T(l & B ? N + l - B : l);
            high[l] = T(l & B ? N + l : l + B);
        }
        for (int i = 0; i < N; i++) {
            if (i & B) continue;
            const Vector a = r[i], b = r[i + B];
            r[i] = __builtin_shuffle(a, b, low);
            r[i + B] = __builtin_shuffle(a, b, high);
        }
    }
    static WISP_INLINE void transpose(T* dst, int64_t dst_stride, const T* src, int64_t src_stride) {
        Vector r[N];
        for (int i = 0; i < N; i++) r[i] = *reinterpret_cast<const Loose*>(src + i * src_stride);
        if constexpr (N > 8) swap_blocks<8>(r);
        if constexpr (N > 4) swap_blocks<4>(r);
        if constexpr (N > 2) swap_blocks<2>(r);
        swap_blocks<1>(r);
        for (int i = 0; i < N; i++) *reinterpret_cast<Loose*>(dst + i * dst_stride) = r[i];
    }
};

// dst[i * dst_stride + j] = src[j * src_stride + i] for i < rows, j < columns.
template <class T> void transpose(T* dst, int64_t dst_stride, const T* src, int64_t src_stride, int64_t rows, int64_t columns) {
    constexpr int fit = WISP_VECTOR_BYTES / int(sizeof(T));
    constexpr int n = fit > 16 ? 16 : fit < 2 ? 2 : fit;
    int64_t i = 0;
    for (; i + n <= rows; i += n) {
        int64_t j = 0;
        for (; j + n <= columns; j += n) {
            const T* s = src + j * src_stride + i;
            T* d = dst + i * dst_stride + j;
            if constexpr (sizeof(T) == 16) {
                for (int a = 0; a < n; a++)
                    for (int b = 0; b < n; b++) d[a * dst_stride + b] = s[b * src_stride + a];
            } else {
                Tile<T, n>::transpose(d, dst_stride, s, src_stride);
            }
        }
        for (; j < columns; j++)
            for (int a = 0; a < n; a++) dst[(i + a) * dst_stride + j] = src[j * src_stride + i + a];
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) dst[i * dst_stride + j] = src[j * src_stride + i];
}

// ---- any layout ------------------------------------------------------------------------------------------------

// The loops of a copy, ordered by the strides of dst (largest first).
struct CopyPlan : MergedDims<2> {
    const int64_t *dst = strides[0], *src = strides[1];
    int64_t dst_offset = 0, src_offset = 0, count = 1;

    CopyPlan(const int64_t* dst_strides, const int64_t* src_strides, const int64_t* n, int dims) {
        int64_t shape[most], steps[2][most];
        int used = 0;
        for (int k = 0; k < dims; k++) {
            count *= n[k];
            if (n[k] == 1) continue;
            int64_t d = dst_strides[k], s = src_strides ? src_strides[k] : 0;
            if (d < 0) {
                dst_offset += d * (n[k] - 1);
                src_offset += s * (n[k] - 1);
                d = -d;
                s = -s;
            }
            int at = used++;
            for (; at > 0 && less(steps[0][at - 1], steps[1][at - 1], d, s); at--) {
                shape[at] = shape[at - 1];
                steps[0][at] = steps[0][at - 1];
                steps[1][at] = steps[1][at - 1];
            }
            shape[at] = n[k];
            steps[0][at] = d;
            steps[1][at] = s;
        }
        for (int k = 0; k < used; k++) add(shape[k], [&](int side) { return steps[side][k]; });
        at_least_one();
    }
    CopyPlan(const CopyPlan&) = delete;
    static bool less(int64_t d0, int64_t s0, int64_t d1, int64_t s1) {
        return d0 != d1 ? d0 < d1 : (s0 < 0 ? -s0 : s0) < (s1 < 0 ? -s1 : s1);
    }

    // Calls row(dst offset, src offset, n) for the pieces of rows that make up the elements [begin, end), not counting the last `skip`
    // dimensions.
    template <class F> WISP_INLINE void rows(int64_t begin, int64_t end, F&& row, int skip = 0) const {
        const int last = ndim - 1 - skip;
        const int64_t inner = sizes[last];
        int64_t at[max_dims], d = dst_offset, s = src_offset, rest = begin / inner, first = begin % inner;
        for (int k = last - 1; k >= 0; k--) {
            at[k] = rest % sizes[k];
            rest /= sizes[k];
            d += at[k] * dst[k];
            s += at[k] * src[k];
        }
        for (int64_t left = end - begin; left > 0;) {
            const int64_t n = inner - first < left ? inner - first : left;
            row(d + first * dst[last], s + first * src[last], n);
            first = 0;
            left -= n;
            for (int k = last - 1; k >= 0; k--) {
                d += dst[k];
                s += src[k];
                if (++at[k] < sizes[k]) break;
                d -= dst[k] * sizes[k];
                s -= src[k] * sizes[k];
                at[k] = 0;
            }
        }
    }
};

// The dimension along which src is contiguous while dst isn't, if swapping it with the last one gives transposes
// that are worth it; otherwise -1.
int transposed_dimension(const CopyPlan& p) {
    const int last = p.ndim - 1;
    if (p.dst[last] != 1 || p.src[last] == 1 || p.src[last] == 0 || p.sizes[last] < 4) return -1;
    for (int k = 0; k < last; k++)
        if (p.src[k] == 1 && p.sizes[k] >= 4) return k;
    return -1;
}

template <class T> void copy_transposed(T* dst, const T* src, const CopyPlan& p, int k) {
    const int last = p.ndim - 1;
    constexpr int64_t tile = 64;
    // The other dimensions make the batch; each job is a band of `tile` rows of one 2-D transpose.
    const int64_t bands = (p.sizes[k] + tile - 1) / tile, jobs = p.count / (p.sizes[k] * p.sizes[last]) * bands;
    const int64_t job_size = p.count / jobs;
    parallel_for(jobs, job_size >= grain ? 1 : (grain + job_size - 1) / job_size, [&](int64_t begin, int64_t end) {
        for (int64_t job = begin; job < end; job++) {
            const int64_t i = job % bands * tile, rows = p.sizes[k] - i < tile ? p.sizes[k] - i : tile;
            int64_t rest = job / bands, d = p.dst_offset + i * p.dst[k], s = p.src_offset + i;
            for (int q = last - 1; q >= 0; q--) {
                if (q == k) continue;
                const int64_t at = rest % p.sizes[q];
                rest /= p.sizes[q];
                d += at * p.dst[q];
                s += at * p.src[q];
            }
            transpose(dst + d, p.dst[k], src + s, p.src[last], rows, p.sizes[last]);
        }
    });
}

// Two or three rows of src that alternate in dst: along these rows, not across them.
template <class T> void copy_alternating(T* dst, const T* src, const CopyPlan& p) {
    const int last = p.ndim - 1;
    const int64_t rows = p.sizes[last], apart = p.src[last], step = p.dst[last - 1];
    parallel_for(p.count / rows, grain / rows, [&](int64_t begin, int64_t end) {
        p.rows(
            begin, end,
            [&](int64_t d, int64_t s, int64_t n) {
                T* __restrict to = dst + d;
                const T* __restrict a = src + s, * __restrict b = a + apart;
                if (rows == 2 && step == 2)
                    for (int64_t i = 0; i < n; i++) to[2 * i] = a[i], to[2 * i + 1] = b[i];
                else
                    for (int64_t r = 0; r < rows; r++) copy_row(to + r, step, a + r * apart, 1, n);
            },
            1);
    });
}

// Many short rows of whole lines, as heads of attention are: two loops without a call.
template <class T> void copy_lines(T* dst, const T* src, const CopyPlan& p) {
    typedef char Line __attribute__((vector_size(64), aligned(1), may_alias));
    const int last = p.ndim - 1;
    const int64_t width = p.sizes[last], bytes = width * int64_t(sizeof(T)), d_step = p.dst[last - 1], s_step = p.src[last - 1];
    parallel_for(p.count / width, (grain + width - 1) / width, [&](int64_t begin, int64_t end) {
        p.rows(
            begin, end,
            [&](int64_t d, int64_t s, int64_t n) {
                for (int64_t r = 0; r < n; r++) {
                    char* to = reinterpret_cast<char*>(dst + d + r * d_step);
                    const char* from = reinterpret_cast<const char*>(src + s + r * s_step);
                    for (int64_t i = 0; i < bytes; i += 64) *reinterpret_cast<Line*>(to + i) = *reinterpret_cast<const Line*>(from + i);
                }
            },
            1);
    });
}

template <class T> void copy_same(T* dst, const T* src, const CopyPlan& p) {
    const int last = p.ndim - 1;
    if (const int64_t bytes = p.sizes[last] * int64_t(sizeof(T));
        last > 0 && p.dst[last] == 1 && p.src[last] == 1 && bytes % 64 == 0 && bytes <= 1024)
        return copy_lines(dst, src, p);
    if (last > 0 && p.dst[last] == 1 && p.sizes[last] < 4 && p.src[last] > 1 && p.src[last - 1] == 1 && p.sizes[last - 1] >= 8)
        return copy_alternating(dst, src, p);
    if (const int k = transposed_dimension(p); k >= 0) return copy_transposed(dst, src, p, k);
    const int64_t ds = p.dst[last], ss = p.src[last];
    if (p.ndim == 1 && p.count <= grain) return copy_row(dst + p.dst_offset, ds, src + p.src_offset, ss, p.count);
    parallel_for(p.count, grain, [&](int64_t begin, int64_t end) {
        p.rows(begin, end, [&](int64_t d, int64_t s, int64_t n) { copy_row(dst + d, ds, src + s, ss, n); });
    });
}

WISP_INLINE void conjugate_block(void* x, DType dtype, int64_t n) {
    if (dtype == DType::c64) {
        auto* p = static_cast<float*>(x);
        for (int64_t i = 0; i < n; i++) p[2 * i + 1] = -p[2 * i + 1];
    } else if (dtype == DType::c128) {
        auto* p = static_cast<double*>(x);
        for (int64_t i = 0; i < n; i++) p[2 * i + 1] = -p[2 * i + 1];
    } else if (dtype == DType::c32) {
        auto* p = static_cast<uint16_t*>(x);
        for (int64_t i = 0; i < n; i++) p[2 * i + 1] ^= 0x8000;
    }
}

// Rows that change dtype or are conjugated, through blocks on the stack where a side is not contiguous.
void copy_converted(char* dst, DType dst_dtype, const char* src, DType src_dtype, const CopyPlan& p, bool conjugate) {
    const int last = p.ndim - 1;
    const int64_t ds = p.dst[last], ss = p.src[last], dst_item = item_size(dst_dtype), src_item = item_size(src_dtype);
    parallel_for(p.count, grain, [&](int64_t begin, int64_t end) {
        alignas(64) char in[block * 16];
        alignas(64) char out[block * 16];
        p.rows(begin, end, [&](int64_t d, int64_t s, int64_t n) {
            if (ss == 1 && ds == 1 && !conjugate) return convert(dst + d * dst_item, dst_dtype, src + s * src_item, src_dtype, n);
            for (int64_t done = 0; done < n; done += block) {
                const int64_t m = n - done < block ? n - done : block;
                char* to = dst + (d + done * ds) * dst_item;
                const char* from = src + (s + done * ss) * src_item;
                if (ss != 1 || conjugate) {
                    gather_block(in, from, ss, src_item, m);
                    if (conjugate) conjugate_block(in, src_dtype, m);
                    from = in;
                }
                if (ds == 1) {
                    convert(to, dst_dtype, from, src_dtype, m);
                } else {
                    convert(out, dst_dtype, from, src_dtype, m);
                    scatter_block(to, ds, out, dst_item, m);
                }
            }
        });
    });
}

void copy_any(void* dst, DType dst_dtype, const int64_t* dst_strides, const void* src, DType src_dtype, const int64_t* src_strides,
              const int64_t* sizes, int ndim, bool conjugate) {
    const CopyPlan p(dst_strides, src_strides, sizes, ndim);
    if (p.count == 0) return;
    if (dst_dtype != src_dtype || (conjugate && is_complex(src_dtype)))
        return copy_converted(static_cast<char*>(dst), dst_dtype, static_cast<const char*>(src), src_dtype, p, conjugate);
    by_item(item_size(dst_dtype), [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        copy_same(static_cast<T*>(dst), static_cast<const T*>(src), p);
    });
}

void copy_bytes(void* dst, const void* src, size_t bytes) { std::memmove(dst, src, bytes); }
void zero(void* dst, size_t bytes) {
    // Shared out from where other kernels are: a line that one processor wrote and another reads costs far more than zeroing it. And by
    // plain stores where memset would have the processor repeat one, which takes twice as long for lines that another one holds.
    parallel_for(int64_t(bytes), 1 << 17, [&](int64_t begin, int64_t end) {
        using Word [[gnu::aligned(1), gnu::may_alias]] = uint64_t;
        char* p = static_cast<char*>(dst) + begin;
        int64_t n = end - begin, words = n < 2048 ? 0 : n / int64_t(sizeof(Word));
        uint64_t nothing = 0;
        asm("" : "+r"(nothing));  // a loop that is seen to write zeros becomes memset
        for (int64_t i = 0; i < words; i++) reinterpret_cast<Word*>(p)[i] = nothing;
        std::memset(p + words * int64_t(sizeof(Word)), 0, size_t(n) - size_t(words) * sizeof(Word));
    });
}

void fill(void* dst, DType dtype, const int64_t* strides, const int64_t* sizes, int ndim, const void* value) {
    const CopyPlan p(strides, nullptr, sizes, ndim);
    if (p.count == 0) return;
    by_item(item_size(dtype), [&](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        T x;
        std::memcpy(&x, value, sizeof(T));
        const int64_t ds = p.dst[p.ndim - 1];
        auto row = [&](int64_t d, int64_t, int64_t n) { copy_row(static_cast<T*>(dst) + d, ds, &x, 0, n); };
        if (p.ndim == 1 && p.count <= grain) return row(p.dst_offset, 0, p.count);
        parallel_for(p.count, grain, [&](int64_t begin, int64_t end) { p.rows(begin, end, row); });
    });
}

}  // namespace

extern const CopyKernels copy_table = {&convert, &round, &gather_block, &scatter_block, &copy_any, &copy_bytes, &fill, &zero, nullptr};

}  // namespace wisp::cpu::WISP_ISA
