// Scattering whose result does not depend on the order in which elements come. Sums of floats are made in fixed point.
#include "cuda/kernels/fixed_point.cuh"
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
    for (int a = 0; a < ahead; a++)
        if (at[a] >= 0) add_fixed(sums + at[a], x[a], there[a], bits);
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

// The same of whole rows of values: each place has a list of the rows that go to it, in any order, which a warp reads twice.
// Where each row goes, and how many there are for each place.
__global__ void __launch_bounds__(256)
    row_places(const int64_t* index, int64_t n, int64_t step, int64_t along, int64_t size, int64_t unit, unsigned* place, unsigned* counts,
               int64_t* origins, unsigned long long name, Report* report) {
    const int64_t k = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (k >= n) return;
    const int64_t at = index[k * step];
    if (at < 0 || at >= size) {
        if (report) report_index(report, at, size, name);
        place[k] = ~0u;
        return;
    }
    const unsigned p = unsigned(at * along / unit);
    place[k] = p;
    origins[p] = at * along;
    atomicAdd(counts + p, 1u);
}
// Lists get their memory as their warps come: nothing depends on where they lie. ends: where each begins, at first.
__global__ void __launch_bounds__(256) row_lists(const unsigned* counts, unsigned* ends, unsigned* taken, int64_t places) {
    const int64_t p = int64_t(blockIdx.x) * 256 + threadIdx.x;
    const unsigned own = p < places ? counts[p] : 0, lane = threadIdx.x % 32;
    unsigned upto = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const unsigned before = __shfl_up_sync(~0u, upto, d);
        if (lane >= d) upto += before;
    }
    unsigned begin = 0;
    if (lane == 31) begin = atomicAdd(taken, upto);
    begin = __shfl_sync(~0u, begin, 31);
    if (p < places) ends[p] = begin + upto - own;
}
__global__ void __launch_bounds__(256) row_entries(const unsigned* place, unsigned* ends, unsigned* list, int64_t n) {
    const int64_t k = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (k < n && place[k] != ~0u) list[atomicAdd(ends + place[k], 1u)] = unsigned(k);
}

struct RowSums {
    float* out;
    const float* values;
    const unsigned *counts, *ends, *list;
    const int64_t* origins;
    int64_t places, width, value_step;
    int bits;
};
// A warp a place, and all warps of the block for places of many rows. V neighbours a lane; several rows at a time if they are short.
template <int V> __global__ void __launch_bounds__(256) sum_rows(const RowSums p) {
    constexpr unsigned many = 256;
    __shared__ unsigned block_exponents[8][32][V];
    __shared__ unsigned long long block_sums[8][32][V];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t units = p.width / V;
    unsigned across = 32;  // lanes of a row
    while (across / 2 >= units) across /= 2;
    const unsigned group = lane / across, groups = 32 / across;
    const int64_t column = (int64_t(blockIdx.y) * 32 + lane % across) * V;
    const bool inside = column < p.width;

    // Rows first, first + step, ... of a list: the largest exponents, or the sums in their units.
    auto exponents_of = [&](const unsigned* list, unsigned first, unsigned step, unsigned count, unsigned (&e)[V]) {
        for (unsigned r = first; r < count; r += step * ahead) {
            Vector<float, V> x[ahead];
#pragma unroll
            for (int a = 0; a < ahead; a++)
                if (r + a * step < count)
                    x[a] = *reinterpret_cast<const Vector<float, V>*>(p.values + list[r + a * step] * p.value_step + column);
#pragma unroll
            for (int a = 0; a < ahead; a++)
#pragma unroll
                for (int i = 0; i < V; i++)
                    if (const unsigned own = r + a * step < count ? exponent_of(x[a].at[i]) : 0; own > e[i]) e[i] = own;
        }
    };
    auto sums_of = [&](const unsigned* list, unsigned first, unsigned step, unsigned count, const unsigned (&e)[V],
                       unsigned long long (&sum)[V]) {
        for (unsigned r = first; r < count; r += step * ahead) {
            Vector<float, V> x[ahead];
#pragma unroll
            for (int a = 0; a < ahead; a++)
                if (r + a * step < count)
                    x[a] = *reinterpret_cast<const Vector<float, V>*>(p.values + list[r + a * step] * p.value_step + column);
#pragma unroll
            for (int a = 0; a < ahead; a++)
#pragma unroll
                for (int i = 0; i < V; i++) {
                    if (r + a * step >= count) continue;
                    const float v = x[a].at[i];
                    if (e[i] == 256) sum[i] |= exponent_of(v) == 256 ? (v != v ? sum_nan : v > 0 ? sum_plus : sum_minus) : 0;
                    else sum[i] += (unsigned long long)in_units(v, e[i], p.bits);
                }
        }
    };
    auto joined = [](unsigned e, unsigned long long a, unsigned long long b) { return e == 256 ? a | b : a + b; };
    auto over_groups = [&](unsigned (&e)[V]) {
        for (unsigned d = across; d < 32; d *= 2)
#pragma unroll
            for (int i = 0; i < V; i++) {
                const unsigned other = __shfl_xor_sync(~0u, e[i], d);
                e[i] = other > e[i] ? other : e[i];
            }
    };
    auto write = [&](int64_t place, const unsigned (&e)[V], const unsigned long long (&sum)[V]) {
        float* to = p.out + p.origins[place] + column;
        for (int i = 0; i < V; i++) to[i] = sum_joined(to[i], e[i], sum[i], p.bits);
    };

    const int64_t first_place = int64_t(blockIdx.x) * 8, own = first_place + warp;
    if (const unsigned count = own < p.places ? p.counts[own] : 0; count > 0 && count <= many) {
        const unsigned* list = p.list + p.ends[own] - count;
        unsigned e[V] = {};
        unsigned long long sum[V] = {};
        if (inside) exponents_of(list, group, groups, count, e);
        over_groups(e);
        if (inside) sums_of(list, group, groups, count, e, sum);
        for (unsigned d = across; d < 32; d *= 2)
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] = joined(e[i], sum[i], __shfl_xor_sync(~0u, sum[i], d));
        if (inside && group == 0) write(own, e, sum);
    }
    for (int64_t place = first_place; place < first_place + 8 && place < p.places; place++) {
        const unsigned count = p.counts[place];
        if (count <= many) continue;
        const unsigned* list = p.list + p.ends[place] - count;
        unsigned e[V] = {};
        unsigned long long sum[V] = {};
        if (inside) exponents_of(list, warp * groups + group, 8 * groups, count, e);
        over_groups(e);
        __syncthreads();
        for (int i = 0; i < V; i++) block_exponents[warp][lane][i] = e[i];
        __syncthreads();
        for (int w = 0; w < 8; w++)
            for (int i = 0; i < V; i++) e[i] = block_exponents[w][lane][i] > e[i] ? block_exponents[w][lane][i] : e[i];
        if (inside) sums_of(list, warp * groups + group, 8 * groups, count, e, sum);
        for (unsigned d = across; d < 32; d *= 2)
            for (int i = 0; i < V; i++) sum[i] = joined(e[i], sum[i], __shfl_xor_sync(~0u, sum[i], d));
        for (int i = 0; i < V; i++) block_sums[warp][lane][i] = sum[i];
        __syncthreads();
        if (warp > 0 || group > 0 || !inside) continue;
        for (int w = 1; w < 8; w++)
            for (int i = 0; i < V; i++) sum[i] = joined(e[i], sum[i], block_sums[w][lane][i]);
        write(place, e, sum);
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

// Setting one value everywhere: no order matters.
template <class T> __global__ void __launch_bounds__(256) set_all(const Items<T> items, T* out, int64_t n) {
    int64_t at[ahead];
    T x[ahead];
    take_items(items, n, true, at, x);
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (at[a] >= 0) out[at[a]] = x[a];
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
