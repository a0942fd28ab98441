// Max, average and adaptive pooling. Compiled once per instruction set.
//
// A row of the output is computed tap by tap: for every element of the window one pass over the row, whose loop the
// compiler vectorises for the usual strides. The order of the taps decides between equal elements, as in PyTorch.
#include "kernels/pool.h"

#include <cstring>
#include <type_traits>

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/isa.h"

namespace wisp::cpu::WISP_ISA {
namespace {

WISP_INLINE int64_t product(const int64_t* v) { return v[0] * v[1] * v[2]; }

template <class T> WISP_INLINE T lowest() {
    if constexpr (T(0.5) != 0) return -T(__builtin_inf());
    else if constexpr (T(-1) > T(0)) return T(0);
    else return T(T(1) << (sizeof(T) * 8 - 1));
}
template <class T> WISP_INLINE bool beats(T x, T best) { return (x > best) | (x != x); }

// Outputs [begin, end) of one axis whose tap `k` lies inside of the input.
struct Range {
    int64_t begin, end;
};
WISP_INLINE Range outputs_of_tap(const PoolShape& s, int d, int64_t k) {
    const int64_t shift = k * s.dilation[d] - s.padding[d];  // input = output * stride + shift
    const int64_t begin = shift >= 0 ? 0 : divide_up(-shift, s.stride[d]);
    const int64_t last = s.in[d] - 1 - shift;
    const int64_t end = last < 0 ? 0 : least(s.out[d], last / s.stride[d] + 1);
    return {least(begin, end), end};
}

// best[j] = x[j * stride] and tap[j] = number where x beats best.
template <class T, int fixed_stride, bool tracked> WISP_INLINE void max_pass(const T* __restrict x, int64_t stride, T* __restrict best,
                                                                             int32_t* __restrict tap, int32_t number, int64_t count) {
    const int64_t step = fixed_stride ? fixed_stride : stride;
    for (int64_t j = 0; j < count; ++j) {
        const T value = x[j * step], old = best[j];
        const bool better = beats(value, old);
        best[j] = better ? value : old;
        if constexpr (tracked) tap[j] = better ? number : tap[j];
    }
}

// Vectors of `lanes` elements, and what a 2x2 window with stride 2 needs of them: neighbours apart and together.
template <class T, int lanes> struct Pairs {
    typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> Index;
    typedef T Vector __attribute__((vector_size(lanes * sizeof(T))));
    typedef Index Indices __attribute__((vector_size(lanes * sizeof(T))));
    typedef uint8_t Bytes __attribute__((vector_size(lanes)));

    static WISP_INLINE Vector load(const T* p) {
        Vector v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
    static WISP_INLINE void split(const T* p, Vector& even, Vector& odd) {
        const Vector low = load(p), high = load(p + lanes);
        Indices pick;
        for (int i = 0; i < lanes; ++i) pick[i] = 2 * i;
        even = __builtin_shuffle(low, high, pick);
        odd = __builtin_shuffle(low, high, pick + 1);
    }
    static WISP_INLINE void join(T* p, Vector even, Vector odd) {
        Indices pick;
        for (int i = 0; i < lanes; ++i) pick[i] = i / 2 + (i % 2) * lanes;
        const Vector low = __builtin_shuffle(even, odd, pick), high = __builtin_shuffle(even, odd, pick + lanes / 2);
        std::memcpy(p, &low, sizeof low);
        std::memcpy(p + lanes, &high, sizeof high);
    }
    static WISP_INLINE void choose(Vector x, Index number, Vector& best, Indices& tap) {
        const Indices better = (x > best) | (x != x);
        best = better ? x : best;
        tap = better ? number - Indices{} : tap;
    }
    template <bool tracked> static WISP_INLINE void max(const T* a, const T* b, T* to, uint8_t* taps) {
        Vector best, second, third, fourth;
        Indices tap{};
        split(a, best, second);
        split(b, third, fourth);
        choose(second, 1, best, tap);
        choose(third, 2, best, tap);
        choose(fourth, 3, best, tap);
        std::memcpy(to, &best, sizeof best);
        if constexpr (tracked) {
            const Bytes narrow = __builtin_convertvector(tap, Bytes);
            std::memcpy(taps, &narrow, sizeof narrow);
        }
    }
    static WISP_INLINE void grad(const T* from, const uint8_t* taps, T* a, T* b) {
        Bytes narrow;
        std::memcpy(&narrow, taps, sizeof narrow);
        const Indices tap = __builtin_convertvector(narrow, Indices);
        const Vector g = load(from), zero{};
        join(a, tap == 0 ? g : zero, tap == 1 ? g : zero);
        join(b, tap == 2 ? g : zero, tap == 3 ? g : zero);
    }
};

// Calls piece(k) for k = 0, lanes, ... such that [0, count) is covered; the last piece may overlap the one before.
template <int lanes, class Piece> WISP_INLINE bool in_pieces(int64_t count, Piece&& piece) {
    if (count < lanes) return false;
    for (int64_t k = 0; k + lanes <= count; k += lanes) piece(k);
    if (count % lanes) piece(count - lanes);
    return true;
}

// Both rows of a 2x2 window with stride 2.
template <class T, bool tracked> WISP_INLINE void max_2x2(const T* a, const T* b, T* best, uint8_t* tap, int64_t count) {
    if constexpr (T(0.5) != 0) {
        constexpr int lanes = WISP_VECTOR_BYTES / int(sizeof(T));
        auto with = [&]<int n>() {
            return in_pieces<n>(count, [&](int64_t k) { Pairs<T, n>::template max<tracked>(a + 2 * k, b + 2 * k, best + k, tap + k); });
        };
        if (with.template operator()<lanes>()) return;
        if constexpr (lanes / 2 >= 4)
            if (with.template operator()<lanes / 2>()) return;
        if constexpr (lanes / 4 >= 4)
            if (with.template operator()<lanes / 4>()) return;
    }
    for (int64_t j = 0; j < count; ++j) {
        const T window[4] = {a[2 * j], a[2 * j + 1], b[2 * j], b[2 * j + 1]};
        int number = 0;
        for (int t = 1; t < 4; ++t) number = beats(window[t], window[number]) ? t : number;
        best[j] = window[number];
        if constexpr (tracked) tap[j] = uint8_t(number);
    }
}

template <class T> WISP_INLINE void max_grad_2x2(const T* from, const uint8_t* tap, T* a, T* b, int64_t count) {
    constexpr int lanes = WISP_VECTOR_BYTES / int(sizeof(T));
    auto with = [&]<int n>() {
        return in_pieces<n>(count, [&](int64_t k) { Pairs<T, n>::grad(from + k, tap + k, a + 2 * k, b + 2 * k); });
    };
    if (with.template operator()<lanes>()) return;
    if constexpr (lanes / 2 >= 4)
        if (with.template operator()<lanes / 2>()) return;
    if constexpr (lanes / 4 >= 4)
        if (with.template operator()<lanes / 4>()) return;
    for (int64_t k = 0; k < count; ++k) {
        a[2 * k] = tap[k] == 0 ? from[k] : T(0);
        a[2 * k + 1] = tap[k] == 1 ? from[k] : T(0);
        b[2 * k] = tap[k] == 2 ? from[k] : T(0);
        b[2 * k + 1] = tap[k] == 3 ? from[k] : T(0);
    }
}

WISP_INLINE bool is_2x2(const PoolShape& s) {
    for (int d = 1; d < 3; ++d)
        if (s.kernel[d] != 2 || s.stride[d] != 2 || s.padding[d] != 0 || s.dilation[d] != 1 || s.in[d] < 2 * s.out[d]) return false;
    return s.kernel[0] == 1 && s.stride[0] == 1 && s.padding[0] == 0;
}

// What tap number t adds to the flat index of the window's corner.
WISP_INLINE int64_t tap_offset(const PoolShape& s, int64_t t) {
    const int64_t k = t % s.kernel[2], j = t / s.kernel[2] % s.kernel[1], i = t / (s.kernel[2] * s.kernel[1]);
    return (i * s.dilation[0] * s.in[1] + j * s.dilation[1]) * s.in[2] + k * s.dilation[2];
}
WISP_INLINE int64_t corner(const PoolShape& s, int64_t i, int64_t j) {
    return ((i * s.stride[0] - s.padding[0]) * s.in[1] + j * s.stride[1] - s.padding[1]) * s.in[2] - s.padding[2];
}

template <class T, bool tracked> void max_row(const PoolShape& s, const T* plane, int64_t i, int64_t j, T* best, int32_t* tap) {
    const int64_t width = s.out[2], stride = s.stride[2];
    for (int64_t k = 0; k < width; ++k) best[k] = lowest<T>();
    if constexpr (tracked) {  // where nothing beats the lowest value, the first element inside of the input counts
        int64_t first[3];
        const int64_t at[2] = {i, j};
        for (int d = 0; d < 2; ++d) {
            const int64_t start = at[d] * s.stride[d] - s.padding[d];
            first[d] = start >= 0 ? 0 : divide_up(-start, s.dilation[d]);
        }
        for (int64_t k = 0; k < width; ++k) {
            const int64_t start = k * stride - s.padding[2];
            first[2] = start >= 0 ? 0 : divide_up(-start, s.dilation[2]);
            tap[k] = int32_t((first[0] * s.kernel[1] + first[1]) * s.kernel[2] + first[2]);
        }
    }
    for (int64_t a = 0; a < s.kernel[0]; ++a) {
        const int64_t z = i * s.stride[0] - s.padding[0] + a * s.dilation[0];
        if (z < 0 || z >= s.in[0]) continue;
        for (int64_t b = 0; b < s.kernel[1]; ++b) {
            const int64_t y = j * s.stride[1] - s.padding[1] + b * s.dilation[1];
            if (y < 0 || y >= s.in[1]) continue;
            const T* row = plane + (z * s.in[1] + y) * s.in[2];
            for (int64_t c = 0; c < s.kernel[2]; ++c) {
                const Range r = outputs_of_tap(s, 2, c);
                const T* x = row + r.begin * stride + c * s.dilation[2] - s.padding[2];
                const int32_t number = int32_t((a * s.kernel[1] + b) * s.kernel[2] + c);
                const int64_t count = r.end - r.begin;
                if (stride == 1) max_pass<T, 1, tracked>(x, 1, best + r.begin, tap + r.begin, number, count);
                else if (stride == 2) max_pass<T, 2, tracked>(x, 2, best + r.begin, tap + r.begin, number, count);
                else max_pass<T, 0, tracked>(x, stride, best + r.begin, tap + r.begin, number, count);
            }
        }
    }
}

// The rows of one plane with stride 1 or 2, each as `stride` phases with the padding written out: tap c of neighbouring
// outputs is then a vector of phase c % stride. Rows are prepared once, when the first window that meets them comes.
template <class T> struct PhasedPlane {
    static constexpr int lanes = WISP_VECTOR_BYTES / int(sizeof(T));
    using P = Pairs<T, lanes>;
    const PoolShape& s;
    const T* plane = nullptr;
    int64_t prepared = 0, phase, pitch;
    T* rows;
    typename P::Index* first;  // the first tap inside of the input, by column
    Range inside[2];           // what of each phase lies inside of the input

    static bool suits(const PoolShape& s) {
        return s.in[0] == 1 && s.kernel[0] == 1 && s.padding[0] == 0 && s.dilation[2] == 1 && s.stride[2] <= 2 && product(s.kernel) > 1;
    }
    explicit PhasedPlane(const PoolShape& shape) : s(shape) {
        phase = s.out[2] + (s.kernel[2] - 1) / s.stride[2] + lanes;
        pitch = s.stride[2] * phase;
        const int64_t columns = divide_up(s.out[2], lanes) * lanes;
        rows = static_cast<T*>(scratch(1, size_t(s.in[1] * pitch + columns) * sizeof(T)));  // Index is as wide as T
        first = reinterpret_cast<typename P::Index*>(rows + s.in[1] * pitch);
        for (int64_t k = 0; k < columns; ++k) first[k] = typename P::Index(most(0, s.padding[2] - k * s.stride[2]));
        for (int64_t p = 0; p < s.stride[2]; ++p) {
            const int64_t shift = p - s.padding[2], last = s.in[2] - 1 - shift;
            inside[p].begin = least(phase, shift >= 0 ? 0 : divide_up(-shift, s.stride[2]));
            inside[p].end = most(inside[p].begin, last < 0 ? 0 : least(phase, last / s.stride[2] + 1));
        }
    }
    void prepare(int64_t y) {
        const T* row = plane + y * s.in[2];
        for (int64_t p = 0; p < s.stride[2]; ++p) {
            T* to = rows + y * pitch + p * phase;
            const auto [begin, end] = inside[p];
            const T* from = row + p - s.padding[2];
            for (int64_t m = 0; m < begin; ++m) to[m] = lowest<T>();
            if (s.stride[2] == 1) {
                std::memcpy(to + begin, from + begin, size_t(end - begin) * sizeof(T));
            } else if (y + 1 == s.in[1] || !in_pieces<lanes>(end - begin, [&](int64_t m) {
                           typename P::Vector even, odd;  // reads one element past the row
                           P::split(from + 2 * (begin + m), even, odd);
                           std::memcpy(to + begin + m, &even, sizeof even);
                       })) {
                for (int64_t m = begin; m < end; ++m) to[m] = from[2 * m];
            }
            for (int64_t m = end; m < phase; ++m) to[m] = lowest<T>();
        }
    }
    template <bool tracked> void row(const T* from, int64_t j, T* best, int32_t* tap) {
        const int64_t top = j * s.stride[1] - s.padding[1], step = s.dilation[1];
        const int64_t first_row = top >= 0 ? 0 : divide_up(-top, step);
        const int64_t last_row = least(s.kernel[1], s.in[1] > top ? (s.in[1] - 1 - top) / step + 1 : 0);
        if (from != plane) plane = from, prepared = most(0, top);
        for (const int64_t end = top + (last_row - 1) * step + 1; prepared < end; ++prepared) prepare(prepared);
        for (int64_t k = 0; k < s.out[2]; k += lanes) {
            typename P::Vector value = lowest<T>() - typename P::Vector{};
            typename P::Indices number;
            std::memcpy(&number, first + k, sizeof number);
            number += typename P::Index(first_row * s.kernel[2]);
            for (int64_t b = first_row; b < last_row; ++b) {
                const T* x = rows + (top + b * step) * pitch + k;
                for (int64_t c = 0; c < s.kernel[2]; ++c)
                    P::choose(P::load(x + (s.stride[2] == 1 ? c : c % 2 * phase + c / 2)), typename P::Index(b * s.kernel[2] + c), value,
                              number);
            }
            const int64_t count = least(lanes, s.out[2] - k);
            if (count == lanes) std::memcpy(best + k, &value, sizeof value);
            else
                for (int64_t i = 0; i < count; ++i) best[k + i] = value[i];
            if constexpr (tracked)
                for (int64_t i = 0; i < count; ++i) tap[k + i] = int32_t(number[i]);
        }
    }
};

template <class T> void max_of(const PoolShape& s, const T* input, T* output, int64_t* indices, uint8_t* taps) {
    const int64_t rows = s.planes * s.out[0] * s.out[1], width = s.out[2], in_size = product(s.in);
    const bool small = is_2x2(s);
    const int64_t window = product(s.kernel);
    parallel_for(rows, divide_up(8192, width * window + 16), [&](int64_t begin, int64_t end) {
        int32_t* tap = nullptr;
        int64_t* offsets = nullptr;
        if (indices || taps) {
            offsets = static_cast<int64_t*>(scratch(0, size_t(window) * 8 + size_t(width) * 4));
            tap = reinterpret_cast<int32_t*>(offsets + window);
            if (indices)
                for (int64_t t = 0; t < window; ++t) offsets[t] = tap_offset(s, t);
        }
        auto run = [&](auto&& max_of_row) {
            int64_t j = begin % s.out[1], i = begin / s.out[1] % s.out[0];
            const T* x = input + begin / (s.out[1] * s.out[0]) * in_size;
            auto next = [&] {  // divisions would cost more than a short row
                if (++j < s.out[1]) return;
                j = 0;
                if (++i < s.out[0]) return;
                i = 0;
                x += in_size;
            };
            for (int64_t row = begin; row < end; ++row, next()) {
                T* best = output + row * width;
                if (small) {
                    const T* a = x + (i * s.in[1] + 2 * j) * s.in[2];
                    uint8_t* to = taps ? taps + row * width : reinterpret_cast<uint8_t*>(tap);
                    if (!to) {
                        max_2x2<T, false>(a, a + s.in[2], best, nullptr, width);
                        continue;
                    }
                    max_2x2<T, true>(a, a + s.in[2], best, to, width);
                    if (indices)
                        for (int64_t k = 0; k < width; ++k) indices[row * width + k] = corner(s, i, j) + 2 * k + offsets[to[k]];
                    continue;
                }
                max_of_row(x, i, j, best);
                if (taps)
                    for (int64_t k = 0; k < width; ++k) taps[row * width + k] = uint8_t(tap[k]);
                if (indices)
                    for (int64_t k = 0; k < width; ++k) indices[row * width + k] = corner(s, i, j) + k * s.stride[2] + offsets[tap[k]];
            }
        };
        if constexpr (T(0.5) != 0)
            if (!small && PhasedPlane<T>::suits(s)) {
                PhasedPlane<T> phased(s);
                return run([&](const T* x, int64_t, int64_t j, T* best) {
                    tap ? phased.template row<true>(x, j, best, tap) : phased.template row<false>(x, j, best, nullptr);
                });
            }
        run([&](const T* x, int64_t i, int64_t j, T* best) {
            tap ? max_row<T, true>(s, x, i, j, best, tap) : max_row<T, false>(s, x, i, j, best, nullptr);
        });
    });
}

void max(DType dtype, const PoolShape& s, const void* input, void* output, int64_t* indices, uint8_t* taps) {
    auto run = [&](auto zero) {
        using T = decltype(zero);
        max_of<T>(s, static_cast<const T*>(input), static_cast<T*>(output), indices, taps);
    };
    switch (dtype) {
    case DType::f32: return run(float());
    case DType::f64: return run(double());
    case DType::u8: return run(uint8_t());
    case DType::i8: return run(int8_t());
    case DType::i16: return run(int16_t());
    case DType::i32: return run(int32_t());
    case DType::i64: return run(int64_t());
    default: return;
    }
}

template <class T> void max_grad_of(const PoolShape& s, const T* grad, const int64_t* indices, const uint8_t* taps, T* input_grad) {
    const int64_t in_size = product(s.in), out_size = product(s.out), window = product(s.kernel);
    const bool small = taps && is_2x2(s);
    parallel_for(s.planes, divide_up(8192, most(1, in_size)), [&](int64_t begin, int64_t end) {
        int64_t* offsets = nullptr;
        if (taps && !small) {
            offsets = static_cast<int64_t*>(scratch(0, size_t(window) * 8));
            for (int64_t t = 0; t < window; ++t) offsets[t] = tap_offset(s, t);
        }
        for (int64_t plane = begin; plane < end; ++plane) {
            T* to = input_grad + plane * in_size;
            const T* from = grad + plane * out_size;
            if (small) {
                const uint8_t* tap = taps + plane * out_size;
                for (int64_t i = 0; i < s.out[0]; ++i, to += s.in[1] * s.in[2]) {
                    for (int64_t j = 0; j < s.out[1]; ++j, from += s.out[2], tap += s.out[2]) {
                        T *a = to + 2 * j * s.in[2], *b = a + s.in[2];
                        max_grad_2x2(from, tap, a, b, s.out[2]);
                        for (int64_t k = 2 * s.out[2]; k < s.in[2]; ++k) a[k] = b[k] = 0;
                    }
                    const int64_t used = 2 * s.out[1] * s.in[2];
                    std::memset(to + used, 0, size_t(s.in[1] * s.in[2] - used) * sizeof(T));
                }
                continue;
            }
            std::memset(to, 0, size_t(in_size) * sizeof(T));
            if (indices) {
                const int64_t* at = indices + plane * out_size;
                for (int64_t k = 0; k < out_size; ++k)
                    if (at[k] >= 0 && at[k] < in_size) to[at[k]] += from[k];
                continue;
            }
            const uint8_t* tap = taps + plane * out_size;
            for (int64_t i = 0; i < s.out[0]; ++i)
                for (int64_t j = 0; j < s.out[1]; ++j, from += s.out[2], tap += s.out[2]) {
                    T* start = to + corner(s, i, j);
                    for (int64_t k = 0; k < s.out[2]; ++k) start[k * s.stride[2] + offsets[tap[k]]] += from[k];
                }
        }
    });
}

void indices_of_taps(const PoolShape& s, const uint8_t* taps, int64_t* indices) {
    for (int64_t plane = 0; plane < s.planes; ++plane)
        for (int64_t i = 0; i < s.out[0]; ++i)
            for (int64_t j = 0; j < s.out[1]; ++j)
                for (int64_t k = 0; k < s.out[2]; ++k) *indices++ = corner(s, i, j) + k * s.stride[2] + tap_offset(s, *taps++);
}

// The part of a window that counts along one axis: [begin, end) of the input, and how many count with the padding.
struct Window {
    int64_t begin, end, padded;
};
WISP_INLINE Window window_of(const PoolShape& s, int d, int64_t i) {
    const int64_t start = i * s.stride[d] - s.padding[d];
    const int64_t end = least(start + s.kernel[d], s.in[d] + s.padding[d]);
    return {most(start, 0), least(end, s.in[d]), end - start};
}

// 1 / divisor per element of an output row, where the window's other axes count `rows` and `rows_padded` elements.
template <class T> void divisors(const PoolShape& s, const AveragePool& a, int64_t rows, int64_t rows_padded, T* divisor) {
    for (int64_t k = 0; k < s.out[2]; ++k) {
        const Window w = window_of(s, 2, k);
        const int64_t count = a.divisor_override    ? a.divisor_override
                              : a.count_include_pad ? rows_padded * w.padded
                                                    : rows * (w.end - w.begin);
        divisor[k] = rows > 0 && w.end > w.begin ? T(count) : T(1);
    }
}

// Every window lies inside of the input, so all divisors are equal.
WISP_INLINE bool all_windows_full(const PoolShape& s) {
    for (int d = 0; d < 3; ++d)
        if (s.padding[d] != 0 || (s.out[d] - 1) * s.stride[d] + s.kernel[d] > s.in[d]) return false;
    return true;
}

template <class T, int fixed_stride> WISP_INLINE void add_pass(const T* __restrict x, int64_t stride, T* __restrict sum, int64_t count) {
    const int64_t step = fixed_stride ? fixed_stride : stride;
    for (int64_t j = 0; j < count; ++j) sum[j] += x[j * step];
}
template <class T, int fixed_stride> WISP_INLINE void spread_pass(const T* __restrict g, int64_t stride, T* __restrict to, int64_t count) {
    const int64_t step = fixed_stride ? fixed_stride : stride;
    for (int64_t j = 0; j < count; ++j) to[j * step] += g[j];
}

// Windows so long that going from tap to tap would mostly meet padding, of which there may be billions.
WISP_INLINE bool mostly_outside(const PoolShape& s) { return s.kernel[2] > 2 * s.in[2]; }

template <class T> void average_of(const PoolShape& s, const AveragePool& a, const T* input, T* output) {
    const int64_t rows = s.planes * s.out[0] * s.out[1], width = s.out[2], in_size = product(s.in);
    parallel_for(rows, divide_up(32768, most(1, width * product(s.kernel))), [&](int64_t begin, int64_t end) {
        T* divisor = static_cast<T*>(scratch(0, size_t(width) * sizeof(T)));
        const bool full = all_windows_full(s);
        if (full) divisors(s, a, s.kernel[0] * s.kernel[1], s.kernel[0] * s.kernel[1], divisor);
        for (int64_t row = begin; row < end; ++row) {
            const int64_t j = row % s.out[1], i = row / s.out[1] % s.out[0], plane = row / (s.out[1] * s.out[0]);
            const Window z = window_of(s, 0, i), y = window_of(s, 1, j);
            T* sum = output + row * width;
            for (int64_t k = 0; k < width; ++k) sum[k] = 0;
            for (int64_t b = z.begin; b < z.end; ++b)
                for (int64_t c = y.begin; c < y.end; ++c) {
                    const T* x = input + plane * in_size + (b * s.in[1] + c) * s.in[2];
                    if (mostly_outside(s)) {
                        for (int64_t k = 0; k < width; ++k) {
                            const Window w = window_of(s, 2, k);
                            for (int64_t e = w.begin; e < w.end; ++e) sum[k] += x[e];
                        }
                        continue;
                    }
                    for (int64_t k = 0; k < s.kernel[2]; ++k) {
                        const Range r = outputs_of_tap(s, 2, k);
                        const T* from = x + r.begin * s.stride[2] + k - s.padding[2];
                        if (s.stride[2] == 1) add_pass<T, 1>(from, 1, sum + r.begin, r.end - r.begin);
                        else if (s.stride[2] == 2) add_pass<T, 2>(from, 2, sum + r.begin, r.end - r.begin);
                        else add_pass<T, 0>(from, s.stride[2], sum + r.begin, r.end - r.begin);
                    }
                }
            const int64_t inside = most(0, z.end - z.begin) * most(0, y.end - y.begin);
            if (!full) divisors(s, a, inside, z.padded * y.padded, divisor);
            for (int64_t k = 0; k < width; ++k) sum[k] /= divisor[k];
        }
    });
}

template <class T> void average_grad_of(const PoolShape& s, const AveragePool& a, const T* grad, T* input_grad) {
    const int64_t width = s.out[2], in_size = product(s.in), out_size = product(s.out);
    parallel_for(s.planes, divide_up(32768, most(1, out_size * product(s.kernel))), [&](int64_t begin, int64_t end) {
        T* share = static_cast<T*>(scratch(0, 2 * size_t(width) * sizeof(T)));
        T* divisor = share + width;
        const bool full = all_windows_full(s);
        if (full) divisors(s, a, s.kernel[0] * s.kernel[1], s.kernel[0] * s.kernel[1], divisor);
        for (int64_t plane = begin; plane < end; ++plane) {
            T* to = input_grad + plane * in_size;
            const T* from = grad + plane * out_size;
            std::memset(to, 0, size_t(in_size) * sizeof(T));
            for (int64_t i = 0; i < s.out[0]; ++i)
                for (int64_t j = 0; j < s.out[1]; ++j, from += width) {
                    const Window z = window_of(s, 0, i), y = window_of(s, 1, j);
                    const int64_t inside = most(0, z.end - z.begin) * most(0, y.end - y.begin);
                    if (!full) divisors(s, a, inside, z.padded * y.padded, divisor);
                    for (int64_t k = 0; k < width; ++k) share[k] = from[k] / divisor[k];
                    for (int64_t b = z.begin; b < z.end; ++b)
                        for (int64_t c = y.begin; c < y.end; ++c) {
                            T* row = to + (b * s.in[1] + c) * s.in[2];
                            if (mostly_outside(s)) {
                                for (int64_t k = 0; k < width; ++k) {
                                    const Window w = window_of(s, 2, k);
                                    for (int64_t e = w.begin; e < w.end; ++e) row[e] += share[k];
                                }
                                continue;
                            }
                            for (int64_t k = 0; k < s.kernel[2]; ++k) {
                                const Range r = outputs_of_tap(s, 2, k);
                                T* start = row + r.begin * s.stride[2] + k - s.padding[2];
                                if (s.stride[2] == 1) spread_pass<T, 1>(share + r.begin, 1, start, r.end - r.begin);
                                else if (s.stride[2] == 2) spread_pass<T, 2>(share + r.begin, 2, start, r.end - r.begin);
                                else spread_pass<T, 0>(share + r.begin, s.stride[2], start, r.end - r.begin);
                            }
                        }
                }
        }
    });
}

// Adaptive windows: output i covers [floor(i * in / out), ceil((i + 1) * in / out)).
WISP_INLINE Range adaptive_window(const PoolShape& s, int d, int64_t i) {
    return {i * s.in[d] / s.out[d], ((i + 1) * s.in[d] + s.out[d] - 1) / s.out[d]};
}

// Calls visit(output, first row's start, depth, height, width) for each window of a plane.
template <class Visit> WISP_INLINE void each_adaptive_window(const PoolShape& s, Visit&& visit) {
    int64_t index = 0;
    for (int64_t i = 0; i < s.out[0]; ++i) {
        const Range z = adaptive_window(s, 0, i);
        for (int64_t j = 0; j < s.out[1]; ++j) {
            const Range y = adaptive_window(s, 1, j);
            for (int64_t k = 0; k < s.out[2]; ++k, ++index) {
                const Range x = adaptive_window(s, 2, k);
                visit(index, (z.begin * s.in[1] + y.begin) * s.in[2] + x.begin, z.end - z.begin, y.end - y.begin, x.end - x.begin);
            }
        }
    }
}

template <class T> WISP_INLINE T sum_row(const T* x, int64_t count) {
    constexpr int lanes = WISP_VECTOR_BYTES / int(sizeof(T));
    T sum = 0;
    int64_t i = 0;
    if (count >= lanes) {
        typedef T V __attribute__((vector_size(WISP_VECTOR_BYTES)));
        typedef T U __attribute__((vector_size(WISP_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
        V total{};
        for (; i + lanes <= count; i += lanes) total += *reinterpret_cast<const U*>(x + i);
        for (int l = 0; l < lanes; ++l) sum += total[l];
    }
    for (; i < count; ++i) sum += x[i];
    return sum;
}

template <class T> void adaptive_average_of(const PoolShape& s, const T* input, T* output) {
    const int64_t in_size = product(s.in), out_size = product(s.out);
    parallel_for(s.planes, divide_up(32768, most(1, in_size)), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
            const T* x = input + plane * in_size;
            T* to = output + plane * out_size;
            if (out_size == 1) {
                to[0] = sum_row(x, in_size) / T(in_size);
                continue;
            }
            each_adaptive_window(s, [&](int64_t index, int64_t start, int64_t depth, int64_t height, int64_t width) {
                T sum = 0;
                for (int64_t i = 0; i < depth; ++i)
                    for (int64_t j = 0; j < height; ++j) sum += sum_row(x + start + (i * s.in[1] + j) * s.in[2], width);
                to[index] = sum / T(depth * height * width);
            });
        }
    });
}

template <class T> void adaptive_average_grad_of(const PoolShape& s, const T* grad, T* input_grad) {
    const int64_t in_size = product(s.in), out_size = product(s.out);
    parallel_for(s.planes, divide_up(32768, most(1, in_size)), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
            T* to = input_grad + plane * in_size;
            const T* from = grad + plane * out_size;
            if (out_size == 1) {
                const T share = from[0] / T(in_size);
                for (int64_t k = 0; k < in_size; ++k) to[k] = share;
                continue;
            }
            std::memset(to, 0, size_t(in_size) * sizeof(T));
            each_adaptive_window(s, [&](int64_t index, int64_t start, int64_t depth, int64_t height, int64_t width) {
                const T share = from[index] / T(depth * height * width);
                for (int64_t i = 0; i < depth; ++i)
                    for (int64_t j = 0; j < height; ++j) {
                        T* row = to + start + (i * s.in[1] + j) * s.in[2];
                        for (int64_t k = 0; k < width; ++k) row[k] += share;
                    }
            });
        }
    });
}

template <class T> void adaptive_max_of(const PoolShape& s, const T* input, T* output, int64_t* indices) {
    const int64_t in_size = product(s.in), out_size = product(s.out);
    parallel_for(s.planes, divide_up(32768, most(1, in_size)), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
            const T* x = input + plane * in_size;
            each_adaptive_window(s, [&](int64_t index, int64_t start, int64_t depth, int64_t height, int64_t width) {
                T best = lowest<T>();
                int64_t at = start;
                for (int64_t i = 0; i < depth; ++i)
                    for (int64_t j = 0; j < height; ++j) {
                        const int64_t row = start + (i * s.in[1] + j) * s.in[2];
                        for (int64_t k = 0; k < width; ++k)
                            if (beats(x[row + k], best)) best = x[row + k], at = row + k;
                    }
                output[plane * out_size + index] = best;
                if (indices) indices[plane * out_size + index] = at;
            });
        }
    });
}

template <class T> void fractional_max_of(const PoolShape& s, const int64_t* const* starts, const T* input, T* output, int64_t* indices) {
    const int64_t in_size = product(s.in), out_size = product(s.out);
    parallel_for(s.planes, divide_up(32768, most(1, out_size * product(s.kernel))), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
            const T* x = input + plane * in_size;
            int64_t to = plane * out_size;
            for (int64_t i = 0; i < s.out[0]; ++i)
                for (int64_t j = 0; j < s.out[1]; ++j)
                    for (int64_t k = 0; k < s.out[2]; ++k, ++to) {
                        const int64_t z = starts[0][plane * s.out[0] + i], y = starts[1][plane * s.out[1] + j],
                                      start = (z * s.in[1] + y) * s.in[2] + starts[2][plane * s.out[2] + k];
                        T best = lowest<T>();
                        int64_t at = start;
                        for (int64_t t = 0; t < product(s.kernel); ++t) {
                            const int64_t place = start + tap_offset(s, t);
                            if (beats(x[place], best)) best = x[place], at = place;
                        }
                        output[to] = best;
                        indices[to] = at;
                    }
        }
    });
}
void fractional_max(DType dtype, const PoolShape& s, const int64_t* const* starts, const void* input, void* output, int64_t* indices) {
    if (dtype == DType::f32) fractional_max_of(s, starts, static_cast<const float*>(input), static_cast<float*>(output), indices);
    else fractional_max_of(s, starts, static_cast<const double*>(input), static_cast<double*>(output), indices);
}

int64_t unpool(DType dtype, int64_t planes, int64_t count, int64_t size, const void* values, const int64_t* indices, void* output) {
    for (int64_t k = 0; k < planes * count; ++k)
        if (indices[k] < 0 || indices[k] >= size) return k;
    const int64_t item = item_size(dtype);
    std::memset(output, 0, size_t(planes * size * item));
    for (int64_t k = 0; k < planes * count; ++k)
        std::memcpy(static_cast<char*>(output) + (k / count * size + indices[k]) * item, static_cast<const char*>(values) + k * item,
                    size_t(item));
    return -1;
}

void max_grad(DType dtype, const PoolShape& s, const void* grad, const int64_t* indices, const uint8_t* taps, void* input_grad) {
    if (dtype == DType::f32) max_grad_of(s, static_cast<const float*>(grad), indices, taps, static_cast<float*>(input_grad));
    else max_grad_of(s, static_cast<const double*>(grad), indices, taps, static_cast<double*>(input_grad));
}
void average(DType dtype, const PoolShape& s, const AveragePool& a, const void* input, void* output) {
    if (dtype == DType::f32) average_of(s, a, static_cast<const float*>(input), static_cast<float*>(output));
    else average_of(s, a, static_cast<const double*>(input), static_cast<double*>(output));
}
void average_grad(DType dtype, const PoolShape& s, const AveragePool& a, const void* grad, void* input_grad) {
    if (dtype == DType::f32) average_grad_of(s, a, static_cast<const float*>(grad), static_cast<float*>(input_grad));
    else average_grad_of(s, a, static_cast<const double*>(grad), static_cast<double*>(input_grad));
}
void adaptive_average(DType dtype, const PoolShape& s, const void* input, void* output) {
    if (dtype == DType::f32) adaptive_average_of(s, static_cast<const float*>(input), static_cast<float*>(output));
    else adaptive_average_of(s, static_cast<const double*>(input), static_cast<double*>(output));
}
void adaptive_average_grad(DType dtype, const PoolShape& s, const void* grad, void* input_grad) {
    if (dtype == DType::f32) adaptive_average_grad_of(s, static_cast<const float*>(grad), static_cast<float*>(input_grad));
    else adaptive_average_grad_of(s, static_cast<const double*>(grad), static_cast<double*>(input_grad));
}
void adaptive_max(DType dtype, const PoolShape& s, const void* input, void* output, int64_t* indices) {
    if (dtype == DType::f32) adaptive_max_of(s, static_cast<const float*>(input), static_cast<float*>(output), indices);
    else adaptive_max_of(s, static_cast<const double*>(input), static_cast<double*>(output), indices);
}

}  // namespace

extern const PoolKernels pool_table;
const PoolKernels pool_table = {
    &max,          &max_grad,       &indices_of_taps, &average, &average_grad, &adaptive_average, &adaptive_average_grad,
    &adaptive_max, &fractional_max, &unpool,          false,
};

}  // namespace wisp::cpu::WISP_ISA
