// Scans (see scan.h): one loop with a state per column, over blocks of columns so that the states stay in cache.
// Floats run in double, as in PyTorch.
#include "kernels/scan.h"

#include <type_traits>

#include "../core/threads.h"
#include "bits.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t grain = 16384;
constexpr int64_t column_block = 1024;  // states at a time

template <class R> struct Pair {
    R real, imag;
};
template <class T> constexpr bool is_pair = false;
template <class R> constexpr bool is_pair<Pair<R>> = true;
template <class T> struct Wide {
    using type = T;
};
template <> struct Wide<float> {
    using type = double;
};
template <> struct Wide<Pair<float>> {
    using type = Pair<double>;
};

template <class A, class T> WISP_INLINE A as(T x) {
    if constexpr (is_pair<T>) return A{decltype(A::real)(x.real), decltype(A::imag)(x.imag)};
    else return A(x);
}

struct Sum {
    template <class A> static WISP_INLINE A start() { return A{}; }
    template <class A> static WISP_INLINE A step(A a, A x) {
        if constexpr (is_pair<A>) return {a.real + x.real, a.imag + x.imag};
        else if constexpr (std::is_integral_v<A>) return A(uint64_t(a) + uint64_t(x));  // wraps
        else return a + x;
    }
};
struct Product {
    template <class A> static WISP_INLINE A start() {
        if constexpr (is_pair<A>) return {1, 0};
        else return 1;
    }
    template <class A> static WISP_INLINE A step(A a, A x) {
        if constexpr (is_pair<A>) return {a.real * x.real - a.imag * x.imag, a.real * x.imag + a.imag * x.real};
        else if constexpr (std::is_integral_v<A>) return A(uint64_t(a) * uint64_t(x));
        else return a * x;
    }
};
struct LogSumExp {
    template <class A> static WISP_INLINE A start() {
        if constexpr (is_pair<A>) return {-__builtin_inf(), 0};
        else return -__builtin_inf();
    }
    // log(exp(a) + exp(x)), from the larger of the two so that nothing overflows.
    template <class A> static WISP_INLINE A step(A a, A x) {
        if constexpr (is_pair<A>) {
            if (a.real != a.real || a.imag != a.imag) return a;
            if (x.real != x.real || x.imag != x.imag) return x;
            const A low = a.real < x.real ? a : x, high = a.real < x.real ? x : a;
            if (low.real == -__builtin_inf()) return high;
            if (high.real == __builtin_inf() && low.real != high.real) return high;
            const double size = __builtin_exp(low.real - high.real), angle = low.imag - high.imag;
            const double re = 1 + size * __builtin_cos(angle), im = size * __builtin_sin(angle);
            return {high.real + __builtin_log(__builtin_hypot(re, im)), high.imag + __builtin_atan2(im, re)};
        } else {
            const A low = x < a ? x : a, high = x < a ? a : x;
            if (low != low || high != high) return low + high;
            if (low == high && low - low != 0) return low;  // both the same infinity
            return high + __builtin_log1p(__builtin_exp(low - high));
        }
    }
};

// Calls f(offset, width) for blocks of columns. Cheap scans of one matrix stay in one thread: stripes of the same rows
// in two caches cost more than they save.
template <class F> void over_blocks(int64_t outer, int64_t n, int64_t inner, bool costly, F&& f) {
    const int64_t share = inner / num_threads(), width = !costly || share > column_block ? column_block : share < 64 ? 64 : share;
    const int64_t blocks = (inner + width - 1) / width, work = n * inner;
    const int64_t units = costly ? outer * blocks : outer, per_unit = outer * work / units;
    parallel_for(units, per_unit >= grain ? 1 : grain / (per_unit + 1) + 1, [&](int64_t begin, int64_t end) {
        if (!costly) {
            begin *= blocks;
            end *= blocks;
        }
        for (int64_t job = begin; job < end; job++) {
            const int64_t column = job % blocks * width, left = inner - column;
            f(job / blocks * work + column, left < width ? left : width);
        }
    });
}

template <class Step, class T> void running(void* out, const void* in, int64_t outer, int64_t n, int64_t inner) {
    using A = typename Wide<T>::type;
    over_blocks(outer, n, inner, std::is_same_v<Step, LogSumExp>, [&](int64_t offset, int64_t width) {
        const T* __restrict x = static_cast<const T*>(in) + offset;
        T* __restrict y = static_cast<T*>(out) + offset;
        if (inner == 1) {
            A a = Step::template start<A>();
            for (int64_t i = 0; i < n; i++) y[i] = as<T>(a = Step::step(a, as<A>(x[i])));
            return;
        }
        A a[column_block];
        for (int64_t j = 0; j < width; j++) a[j] = Step::template start<A>();
        for (int64_t i = 0; i < n; i++, x += inner, y += inner)
            for (int64_t j = 0; j < width; j++) y[j] = as<T>(a[j] = Step::step(a[j], as<A>(x[j])));
    });
}

template <bool Largest, class T>
void running_extreme(void* out, int64_t* indices, const void* in, int64_t outer, int64_t n, int64_t inner) {
    over_blocks(outer, n, inner, false, [&](int64_t offset, int64_t width) {
        const T* __restrict x = static_cast<const T*>(in) + offset;
        T* __restrict y = static_cast<T*>(out) + offset;
        int64_t* __restrict at = indices ? indices + offset : nullptr;
        if (inner == 1) {
            T best = x[0];
            int64_t last = 0;
            for (int64_t i = 0; i < n; i++) {
                const T b = x[i];
                if (b != b || (best == best && (Largest ? b >= best : b <= best))) {
                    best = b;
                    last = i;
                }
                y[i] = best;
                if (at) at[i] = last;
            }
            return;
        }
        for (int64_t j = 0; j < width; j++) {
            y[j] = x[j];
            if (at) at[j] = 0;
        }
        for (int64_t i = 1; i < n; i++) {
            const int64_t row = i * inner, before = row - inner;
            for (int64_t j = 0; j < width; j++) {
                const T a = y[before + j], b = x[row + j];
                const bool take = (b != b) | ((a == a) & (Largest ? b >= a : b <= a));
                y[row + j] = take ? b : a;
                if (at) at[row + j] = take ? i : at[before + j];
            }
        }
    });
}

template <bool Largest> void extremes(void* out, int64_t* indices, const void* in, DType dtype, int64_t outer, int64_t n, int64_t inner) {
    switch (dtype) {
    case DType::boolean: return running_extreme<Largest, Bool>(out, indices, in, outer, n, inner);
    case DType::u8: return running_extreme<Largest, uint8_t>(out, indices, in, outer, n, inner);
    case DType::i8: return running_extreme<Largest, int8_t>(out, indices, in, outer, n, inner);
    case DType::i16: return running_extreme<Largest, int16_t>(out, indices, in, outer, n, inner);
    case DType::i32: return running_extreme<Largest, int32_t>(out, indices, in, outer, n, inner);
    case DType::i64: return running_extreme<Largest, int64_t>(out, indices, in, outer, n, inner);
    case DType::u16: return running_extreme<Largest, uint16_t>(out, indices, in, outer, n, inner);
    case DType::u32: return running_extreme<Largest, uint32_t>(out, indices, in, outer, n, inner);
    case DType::u64: return running_extreme<Largest, uint64_t>(out, indices, in, outer, n, inner);
    case DType::f64: return running_extreme<Largest, double>(out, indices, in, outer, n, inner);
    default: return running_extreme<Largest, float>(out, indices, in, outer, n, inner);
    }
}

template <class Step> void sums(void* out, const void* in, DType dtype, int64_t outer, int64_t n, int64_t inner) {
    switch (dtype) {
    case DType::f32: return running<Step, float>(out, in, outer, n, inner);
    case DType::f64: return running<Step, double>(out, in, outer, n, inner);
    case DType::c64: return running<Step, Pair<float>>(out, in, outer, n, inner);
    case DType::c128: return running<Step, Pair<double>>(out, in, outer, n, inner);
    default:
        if constexpr (!std::is_same_v<Step, LogSumExp>) running<Step, int64_t>(out, in, outer, n, inner);
    }
}

void scan_any(Scan operation, void* out, int64_t* indices, const void* in, DType dtype, int64_t outer, int64_t n, int64_t inner) {
    if (outer <= 0 || n <= 0 || inner <= 0) return;
    switch (operation) {
    case Scan::sum: return sums<Sum>(out, in, dtype, outer, n, inner);
    case Scan::prod: return sums<Product>(out, in, dtype, outer, n, inner);
    case Scan::logsumexp: return sums<LogSumExp>(out, in, dtype, outer, n, inner);
    case Scan::max: return extremes<true>(out, indices, in, dtype, outer, n, inner);
    case Scan::min: return extremes<false>(out, indices, in, dtype, outer, n, inner);
    }
}

}  // namespace

extern const ScanKernels scan_table = {&scan_any};

}  // namespace wisp::cpu::WISP_ISA
