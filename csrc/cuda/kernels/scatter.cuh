// Scattering whose result does not depend on the order in which elements come. Sums of floats are made in fixed point: the largest
// exponent that goes to a place sets its unit, in which all that goes there is added as integers of 64 bits.
#include "cuda/kernels/keys.cuh"
#include "cuda/kernels/index_shape.cuh"

namespace wisp {

enum How : int { how_set, how_add, how_multiply, how_minimum, how_maximum };

// Where element i goes (-1: nowhere), and what it is. a: strides of out, without the indexed dimension; b: of index; c: of values.
template <class T> struct Items {
    const int64_t* index;
    const T* values;
    int64_t along, size;
    unsigned long long name;
    Report* report;
    IndexShape s;
    WISP_INLINE int64_t place(int64_t i, bool report_it, T& value) const {
        const Offsets o = offsets_of(s, i);
        const int64_t at = index[o.b];
        value = values[o.c];
        if (at >= 0 && at < size) return o.a + at * along;
        if (report_it) report_index(report, at, size, name);
        return -1;
    }
};
// Elements that a thread takes at once, 256 apart.
constexpr int ahead = 4;
template <class T> WISP_INLINE void take_items(const Items<T>& items, int64_t n, bool report_it, int64_t (&at)[ahead], T (&x)[ahead]) {
    const int64_t first = int64_t(blockIdx.x) * (256 * ahead) + threadIdx.x;
#pragma unroll
    for (int a = 0; a < ahead; a++) at[a] = first + a * 256 < n ? items.place(first + a * 256, report_it, x[a]) : -1;
}

// The exponent of x and one more, so that 0 is nothing; 256: infinite or NaN.
WISP_INLINE unsigned exponent_of(float x) { return (__float_as_uint(x) >> 23 & 255) + 1; }

__global__ void __launch_bounds__(256) sum_exponents(const Items<float> items, unsigned* exponents, int64_t n) {
    int64_t at[ahead];
    float x[ahead];
    take_items(items, n, true, at, x);
    unsigned there[ahead];
#pragma unroll
    for (int a = 0; a < ahead; a++) there[a] = at[a] < 0 ? 256u : __ldcg(exponents + at[a]);
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (const unsigned e = exponent_of(x[a]); at[a] >= 0 && there[a] < e) atomicMax(exponents + at[a], e);
}

// x in units of a place whose largest element has exponent e. x is below 2^(e - 127); 1 and 2 have the same unit.
WISP_INLINE long long in_units(float x, unsigned e, int bits) {
    const int shift = bits - (int(e < 2 ? 2 : e) - 127);
    return __double2ll_rn(double(x) * __longlong_as_double((long long)(shift + 1023) << 52));
}

constexpr unsigned long long sum_nan = 1, sum_plus = 2, sum_minus = 4;  // what a sum of exponent 256 has
// `bits`: of a sum that its largest element may fill.
__global__ void __launch_bounds__(256)
    sum_items(const Items<float> items, const unsigned* exponents, unsigned long long* sums, int64_t n, int bits) {
    int64_t at[ahead];
    float x[ahead];
    take_items(items, n, false, at, x);
    unsigned there[ahead];
#pragma unroll
    for (int a = 0; a < ahead; a++) there[a] = at[a] < 0 ? 0 : exponents[at[a]];
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        const unsigned e = there[a];
        if (at[a] < 0) continue;
        if (e == 256) {
            if (exponent_of(x[a]) == 256) atomicOr(sums + at[a], x[a] != x[a] ? sum_nan : x[a] > 0 ? sum_plus : sum_minus);
            continue;
        }
        const long long fixed = in_units(x[a], e, bits);
        if (fixed) atomicAdd(sums + at[a], (unsigned long long)fixed);
    }
}
WISP_INLINE float sum_joined(float old, unsigned e, unsigned long long sum, int bits) {
    if (e == 256) {
        const float special = sum & sum_nan || (sum & sum_plus && sum & sum_minus) ? NAN : sum & sum_plus ? INFINITY : -INFINITY;
        return old + special;
    }
    const int shift = bits - (int(e < 2 ? 2 : e) - 127);
    return float(double(old) + double((long long)sum) * __longlong_as_double((long long)(1023 - shift) << 52));
}
// Every place, or the places of few elements: the first to come takes it.
__global__ void __launch_bounds__(256)
    sum_results(float* out, const unsigned* exponents, const unsigned long long* sums, int64_t n, int bits) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const unsigned e = exponents[i];
    if (e) out[i] = sum_joined(out[i], e, sums[i], bits);
}
__global__ void __launch_bounds__(256)
    sum_results_of(const Items<float> items, float* out, unsigned* exponents, const unsigned long long* sums, int64_t n, int bits) {
    int64_t at[ahead];
    float x[ahead];
    take_items(items, n, false, at, x);
    unsigned there[ahead];
#pragma unroll
    for (int a = 0; a < ahead; a++) there[a] = at[a] < 0 ? 0 : __ldcg(exponents + at[a]);
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (there[a])
            if (const unsigned e = atomicExch(exponents + at[a], 0u)) out[at[a]] = sum_joined(out[at[a]], e, sums[at[a]], bits);
}

// The same of lines along the indexed dimension that shared memory holds.
struct Lines {
    const int64_t* index;
    const float* values;
    float* out;
    int64_t along, size, count, index_step, value_step;  // a line of out, and of what comes
    unsigned long long name;
    Report* report;
    unsigned* exponents;  // of all places, where several blocks work on the only line
    unsigned long long* sums;
    unsigned parts;  // such blocks
    int bits;
    IndexShape s;  // of lines. a: of out, b: of index, c: of values
};
enum LinePhase : int { line_all, line_exponents, line_sums };
template <int Phase> __global__ void __launch_bounds__(512) sum_lines(const Lines l) {
    extern __shared__ unsigned cells[];
    const int size = int(l.size);
    unsigned *e = cells, *low = cells + size, *high = low + size;
    const unsigned line = blockIdx.x / l.parts, part = blockIdx.x - line * l.parts;
    const Offsets o = offsets_of(l.s, line);
    const int64_t* index = l.index + o.b;
    const float* values = l.values + o.c;
    float* out = l.out + o.a;
    const int64_t share = (l.count + l.parts - 1) / l.parts, begin = part * share, end = begin + share < l.count ? begin + share : l.count;
    for (int i = threadIdx.x; i < size; i += 512) {
        e[i] = Phase == line_sums ? l.exponents[i] : 0;
        if (Phase != line_exponents) low[i] = high[i] = 0;
    }
    __syncthreads();
    // f(place, value) of this block's elements
    auto each = [&](bool report_it, auto f) {
        for (int64_t first = begin + threadIdx.x; first < end; first += 512 * ahead) {
            int64_t at[ahead];
            float x[ahead];
#pragma unroll
            for (int a = 0; a < ahead; a++)
                if (const int64_t j = first + a * 512; j < end) {
                    at[a] = index[j * l.index_step];
                    x[a] = values[j * l.value_step];
                }
#pragma unroll
            for (int a = 0; a < ahead; a++) {
                if (first + a * 512 >= end) break;
                if (at[a] >= 0 && at[a] < l.size) f(int(at[a]), x[a]);
                else if (report_it) report_index(l.report, at[a], l.size, l.name);
            }
        }
    };
    if constexpr (Phase != line_sums) {
        each(true, [&](int at, float x) {
            const unsigned mine = exponent_of(x);
            if (*static_cast<volatile unsigned*>(e + at) < mine) atomicMax(e + at, mine);
        });
        __syncthreads();
    }
    if constexpr (Phase == line_exponents) {
        for (int i = threadIdx.x; i < size; i += 512)
            if (e[i]) atomicMax(l.exponents + i, e[i]);
        return;
    }
    each(false, [&](int at, float x) {
        if (e[at] == 256) {
            if (exponent_of(x) == 256) atomicOr(low + at, unsigned(x != x ? sum_nan : x > 0 ? sum_plus : sum_minus));
            return;
        }
        const unsigned long long fixed = (unsigned long long)in_units(x, e[at], l.bits);
        const unsigned less = unsigned(fixed), old = atomicAdd(low + at, less), more = unsigned(fixed >> 32) + (old + less < old);
        if (more) atomicAdd(high + at, more);
    });
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += 512) {
        const unsigned long long sum = (unsigned long long)high[i] << 32 | low[i];
        if constexpr (Phase == line_all) {
            if (e[i]) out[i * l.along] = sum_joined(out[i * l.along], e[i], sum, l.bits);
        } else if (sum) {
            if (e[i] == 256) atomicOr(l.sums + i, sum);
            else atomicAdd(l.sums + i, sum);
        }
    }
}

// Sums of integers of 4 or 8 bytes need no preparation.
template <class T> __global__ void __launch_bounds__(256) add_integers(const Items<T> items, T* out, int64_t n) {
    int64_t at[ahead];
    T x[ahead];
    take_items(items, n, true, at, x);
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        if (at[a] < 0) continue;
        if constexpr (sizeof(T) == 8) atomicAdd(reinterpret_cast<unsigned long long*>(out + at[a]), (unsigned long long)x[a]);
        else atomicAdd(reinterpret_cast<unsigned*>(out + at[a]), unsigned(x[a]));
    }
}

// Extremes: the largest key of each place, from zero; keys of a minimum are turned round, with NaN still on top.
template <int H, class T> WISP_INLINE Key<T> extreme_key(T x) {
    if constexpr (H == how_minimum && has_nan<T>) {
        const auto v = convert<compute<T>>(x);
        if (v != v) return key_mask<T>;
    }
    return order_key(x, H == how_minimum);
}
template <int H, class T> __global__ void __launch_bounds__(256) extreme_keys(const Items<T> items, Key<T>* keys, int64_t n) {
    int64_t at[ahead];
    T x[ahead];
    take_items(items, n, true, at, x);
    Key<T> there[ahead];
#pragma unroll
    for (int a = 0; a < ahead; a++) there[a] = at[a] < 0 ? Key<T>(0) : __ldcg(keys + at[a]);
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (at[a] >= 0)
            if (const Key<T> key = extreme_key<H>(x[a]); there[a] < key) atomicMax(keys + at[a], key);
}
template <int H, class T> __global__ void __launch_bounds__(256)
    extreme_results(const Items<T> items, T* out, const Key<T>* keys, int64_t n) {
    int64_t at[ahead];
    T x[ahead];
    take_items(items, n, false, at, x);
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        // The one whose key won writes; equal ones write the same.
        if (at[a] < 0 || extreme_key<H>(x[a]) != keys[at[a]]) continue;
        const T old = out[at[a]];
        if (extreme_key<H>(old) >= keys[at[a]]) continue;
        if constexpr (has_nan<T>) {  // one zero, one NaN
            const auto v = convert<compute<T>>(x[a]);
            x[a] = v != v ? convert<T>(NAN) : v == 0 ? T(0) : x[a];
        }
        out[at[a]] = x[a];
    }
}

// Setting: the last element that goes to a place has it.
template <class T> __global__ void __launch_bounds__(256) last_ones(const Items<T> items, unsigned* last, int64_t n) {
    int64_t at[ahead];
    T x[ahead];
    take_items(items, n, true, at, x);
    const int64_t first = int64_t(blockIdx.x) * (256 * ahead) + threadIdx.x;
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (at[a] >= 0) atomicMax(last + at[a], unsigned(first + a * 256 + 1));
}
template <class T> __global__ void __launch_bounds__(256) set_last_ones(const Items<T> items, T* out, const unsigned* last, int64_t n) {
    int64_t at[ahead];
    T x[ahead];
    take_items(items, n, false, at, x);
    const int64_t first = int64_t(blockIdx.x) * (256 * ahead) + threadIdx.x;
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (at[a] >= 0 && last[at[a]] == unsigned(first + a * 256 + 1)) out[at[a]] = x[a];
}

// --- counting ---

// out[index[i]]++, few places in shared memory first.
template <bool Few> __global__ void __launch_bounds__(512)
    count_places(unsigned long long* out, const int64_t* index, int64_t n, int64_t bins) {
    extern __shared__ unsigned counted[];
    if constexpr (Few) {
        for (int b = threadIdx.x; b < bins; b += 512) counted[b] = 0;
        __syncthreads();
    }
    const int64_t step = int64_t(gridDim.x) * 512;
    for (int64_t i = int64_t(blockIdx.x) * 512 + threadIdx.x; i < n; i += step * ahead) {
        int64_t at[ahead];
#pragma unroll
        for (int a = 0; a < ahead; a++) at[a] = i + a * step < n ? index[i + a * step] : -1;
#pragma unroll
        for (int a = 0; a < ahead; a++)
            if (at[a] >= 0 && at[a] < bins) {
                if constexpr (Few) atomicAdd(counted + at[a], 1u);
                else atomicAdd(out + at[a], 1ULL);
            }
    }
    if constexpr (Few) {
        __syncthreads();
        for (int b = threadIdx.x; b < bins; b += 512)
            if (counted[b]) atomicAdd(out + b, (unsigned long long)counted[b]);
    }
}
template <class C> struct Binned {
    using type = double;
};
template <> struct Binned<float> {
    using type = float;
};
// The same of values between low and high, cut into bins of one width.
template <class T, bool Few> __global__ void __launch_bounds__(512)
    count_values(unsigned long long* out, const T* values, int64_t n, int64_t bins, double low_, double high_) {
    using C = typename Binned<compute<T>>::type;
    extern __shared__ unsigned counted[];
    if constexpr (Few) {
        for (int b = threadIdx.x; b < bins; b += 512) counted[b] = 0;
        __syncthreads();
    }
    const C low = C(low_), high = C(high_), width = C(high_ - low_);
    const int64_t step = int64_t(gridDim.x) * 512;
    for (int64_t i = int64_t(blockIdx.x) * 512 + threadIdx.x; i < n; i += step * ahead) {
        T x[ahead];
#pragma unroll
        for (int a = 0; a < ahead; a++)
            if (i + a * step < n) x[a] = values[i + a * step];
#pragma unroll
        for (int a = 0; a < ahead; a++)
            if (i + a * step < n) {
                const C v = convert<C>(x[a]);
                if (!(v >= low && v <= high)) continue;
                int64_t b = int64_t((v - low) * C(bins) / width);
                b = b >= bins ? bins - 1 : b;
                if constexpr (Few) atomicAdd(counted + b, 1u);
                else atomicAdd(out + b, 1ULL);
            }
    }
    if constexpr (Few) {
        __syncthreads();
        for (int b = threadIdx.x; b < bins; b += 512)
            if (counted[b]) atomicAdd(out + b, (unsigned long long)counted[b]);
    }
}

}  // namespace wisp
