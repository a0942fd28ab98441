// Reading and writing by index. Scatters work on destinations that were sorted with their positions: every destination is
// the work of one thread, which takes what goes there in order, so repeated indices give the same result every time.
#include "cuda/kernels/base.cuh"

namespace wisp {

constexpr int index_dims = 25;

struct IndexShape {
    int dims;                                                                // innermost first
    int64_t sizes[index_dims], a[index_dims], b[index_dims], c[index_dims];  // strides of up to three tensors, in elements
};

template <int Bytes> struct Cell;
template <> struct Cell<1> {
    using type = uint8_t;
};
template <> struct Cell<2> {
    using type = uint16_t;
};
template <> struct Cell<4> {
    using type = uint32_t;
};
template <> struct Cell<8> {
    using type = uint64_t;
};
template <> struct Cell<16> {
    using type = Vector<uint64_t, 2>;
};

struct Offsets {
    int64_t a, b, c;
};
WISP_INLINE Offsets offsets_of(const IndexShape& s, int64_t i) {
    Offsets o = {0, 0, 0};
    for (int d = 0; d < s.dims; d++) {
        const int64_t next = i / s.sizes[d], k = i - next * s.sizes[d];
        i = next;
        o.a += k * s.a[d];
        o.b += k * s.b[d];
        o.c += k * s.c[d];
    }
    return o;
}

constexpr uint64_t nowhere = (uint64_t(1) << 40) - 1;  // the destination of what is dropped, as in pairs.h

__global__ void __launch_bounds__(256)
    report_bad_indices(const int64_t* index, int64_t n, int64_t size, unsigned long long name, Report* report) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n && (index[i] < 0 || index[i] >= size)) report_index(report, index[i], size, name);
}
// Every element must be true.
__global__ void __launch_bounds__(256) report_false(const Bool* good, int64_t n, unsigned long long message, Report* report) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n && !good[i]) report_error(report, message);
}
__global__ void __launch_bounds__(256) count_up(int64_t* out, int64_t n, int64_t first, int64_t step) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) out[i] = first + i * step;
}

struct IndexList {
    int count;
    const int64_t* indices[index_dims];
    int64_t sizes[index_dims], strides[index_dims];
    int wrap;
    unsigned long long name;
    Report* report;
};
// -1 where an index is out of range.
__global__ void __launch_bounds__(256) index_offsets(int64_t* out, const IndexList list, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    int64_t offset = 0;
    for (int k = 0; k < list.count; k++) {
        const int64_t at = list.indices[k][i], size = list.sizes[k];
        if (at >= size || at < (list.wrap ? -size : 0)) {
            report_index(list.report, at, size, list.name);
            out[i] = -1;
            return;
        }
        offset += (at < 0 ? at + size : at) * list.strides[k];
    }
    out[i] = offset;
}

// a: strides of a slice of out, b: of in.
template <int Bytes> __global__ void __launch_bounds__(256)
    take(void* out, int64_t out_step, const void* in, const int64_t* offsets, int64_t n, int64_t slice, const IndexShape s) {
    using T = typename Cell<Bytes>::type;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n * slice) return;
    const int64_t k = i / slice;
    const Offsets o = offsets_of(s, i - k * slice);
    static_cast<T*>(out)[k * out_step + o.a] = offsets[k] < 0 ? T{} : static_cast<const T*>(in)[offsets[k] + o.b];
}

enum How : int { how_set, how_add, how_multiply, how_minimum, how_maximum };
template <int H, class C> WISP_INLINE C combine(C a, C b) {
    if constexpr (H == how_add) return a + b;
    else if constexpr (H == how_multiply) return a * b;
    else if constexpr (is_complex<C>) return a;
    else if constexpr (H == how_minimum) return a != a ? a : b != b ? b : b < a ? b : a;
    else return a != a ? a : b != b ? b : b > a ? b : a;
}
// All that goes to the place of entry k, one after the other; half precision is rounded once, at the end.
template <int H, class T, class Value> WISP_INLINE void combine_run(T* target, const uint64_t* places, int64_t k, int64_t n, Value value) {
    if constexpr (H == how_set) {
        int64_t last = k;
        while (last + 1 < n && places[last + 1] == places[k]) last++;
        *target = value(last);
    } else {
        using C = compute<T>;
        C sum = convert<C>(*target);
        for (int64_t j = k; j < n && places[j] == places[k]; j++) sum = combine<H>(sum, convert<C>(value(j)));
        *target = convert<T>(sum);
    }
}

// places: destinations in order, with the positions that they had. a: strides of a slice of out, b: of values.
template <int H, class T> __global__ void __launch_bounds__(256)
    put_sorted(T* out, const uint64_t* places, const int64_t* positions, int64_t n, int64_t slice, const T* values, int64_t value_step,
               const IndexShape s) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n * slice) return;
    const int64_t k = i / slice;
    if (places[k] == nowhere || (k > 0 && places[k - 1] == places[k])) return;  // not the first of its destination
    const Offsets o = offsets_of(s, i - k * slice);
    T* target = out + int64_t(places[k]) + o.a;
    combine_run<H>(target, places, k, n, [&](int64_t j) { return values[positions[j] * value_step + o.b]; });
}

// a: strides of in, b: of index; `along`: the stride of in along the indexed dimension, which a leaves out.
template <int Bytes> __global__ void __launch_bounds__(256)
    gather(void* out, const void* in, const int64_t* index, int64_t n, int64_t along, int64_t size, unsigned long long name, Report* report,
           const IndexShape s) {
    using T = typename Cell<Bytes>::type;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Offsets o = offsets_of(s, i);
    const int64_t at = index[o.b];
    const bool good = at >= 0 && at < size;
    if (!good) report_index(report, at, size, name);
    static_cast<T*>(out)[i] = good ? static_cast<const T*>(in)[o.a + at * along] : T{};
}
// Where each element of a scatter goes.
__global__ void __launch_bounds__(256) scatter_places(uint64_t* places, int64_t* positions, const int64_t* index, int64_t n, int64_t along,
                                                      int64_t size, unsigned long long name, Report* report, const IndexShape s) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Offsets o = offsets_of(s, i);
    const int64_t at = index[o.b];
    const bool good = at >= 0 && at < size;
    if (!good) report_index(report, at, size, name);
    places[i] = good ? uint64_t(o.a + at * along) : nowhere;
    positions[i] = i;
}
// c: strides of values.
template <int H, class T> __global__ void __launch_bounds__(256)
    scatter_sorted(T* out, const uint64_t* places, const int64_t* positions, int64_t n, const T* values, const IndexShape s) {
    const int64_t k = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (k >= n || places[k] == nowhere || (k > 0 && places[k - 1] == places[k])) return;
    combine_run<H>(out + places[k], places, k, n, [&](int64_t j) { return values[offsets_of(s, positions[j]).c]; });
}

__global__ void __launch_bounds__(256) as_places(const int64_t* offsets, uint64_t* places, int64_t* positions, int64_t n, int64_t limit) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    places[i] = uint64_t(offsets[i] < 0 || offsets[i] > limit ? limit : offsets[i]);
    positions[i] = i;
}

// Masks: ranks[i] is the number of true elements before i.
__global__ void __launch_bounds__(256) mask_as_counts(const Bool* mask, int64_t* ranks, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) ranks[i] = bool(mask[i]);
}
template <int Bytes> __global__ void __launch_bounds__(256)
    masked_select(void* out, const void* in, const Bool* mask, const int64_t* ranks, int64_t n) {
    using T = typename Cell<Bytes>::type;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n && mask[i]) static_cast<T*>(out)[ranks[i]] = static_cast<const T*>(in)[i];
}
template <int Bytes> __global__ void __launch_bounds__(256)
    masked_scatter(void* out, const Bool* mask, const void* values, const int64_t* ranks, int64_t n) {
    using T = typename Cell<Bytes>::type;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n && mask[i]) static_cast<T*>(out)[i] = static_cast<const T*>(values)[ranks[i]];
}
__global__ void __launch_bounds__(256)
    nonzero(int64_t* out, int64_t row_step, int64_t column_step, const Bool* mask, const int64_t* ranks, int64_t n, const IndexShape s) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n || !mask[i]) return;
    int64_t rest = i;
    for (int d = 0; d < s.dims; d++) {
        const int64_t next = rest / s.sizes[d];
        out[ranks[i] * row_step + (s.dims - 1 - d) * column_step] = rest - next * s.sizes[d];
        rest = next;
    }
}

template <int Bytes> __global__ void __launch_bounds__(256)
    triangle(void* out, const void* in, int64_t n, int64_t rows, int64_t columns, int64_t diagonal, int upper) {
    using T = typename Cell<Bytes>::type;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const int64_t c = i % columns, r = i / columns % rows;
    const bool keep = upper ? c - r >= diagonal : c - r <= diagonal;
    static_cast<T*>(out)[i] = keep ? static_cast<const T*>(in)[i] : T{};
}

// --- embedding: rows of a table ---

template <class T> __global__ void __launch_bounds__(256)
    embedding_sums(const T* grad, const uint64_t* places, const int64_t* positions, T* table, int64_t n, int64_t rows, int64_t width,
                   int64_t padding, int by_count) {
    using C = compute<T>;
    const int64_t k = blockIdx.x;
    const uint64_t row = places[k];
    if ((k > 0 && places[k - 1] == row) || int64_t(row) == padding || row >= uint64_t(rows)) return;
    int64_t last = k + 1;
    while (last < n && places[last] == row) last++;
    const C scale = by_count ? C(1) / C(last - k) : C(1);
    for (int64_t c = int64_t(blockIdx.y) * 256 + threadIdx.x; c < width; c += int64_t(gridDim.y) * 256) {
        C sum = 0;
        for (int64_t j = k; j < last; j++) sum += convert<C>(grad[positions[j] * width + c]) * scale;
        table[int64_t(row) * width + c] = convert<T>(sum);
    }
}
// The same for few indices, without sorting them: a block for each, which goes on if no earlier index is the same.
template <class T> __global__ void __launch_bounds__(256)
    embedding_sums_of_few(const T* grad, const int64_t* index, T* table, int64_t n, int64_t rows, int64_t width, int64_t padding,
                          int by_count) {
    using C = compute<T>;
    extern __shared__ int64_t same[];  // positions of this row, in order
    __shared__ int earlier, found[256];
    const int64_t k = blockIdx.x, row = index[k];
    if (row == padding || row < 0 || row >= rows) return;
    if (threadIdx.x == 0) earlier = 0;
    __syncthreads();
    for (int64_t j = threadIdx.x; j < k; j += 256)
        if (index[j] == row) earlier = 1;
    __syncthreads();
    if (earlier) return;
    // Each thread looks at a run of its own, so that the order is kept.
    const int64_t run = (n - k + 255) / 256, first = k + threadIdx.x * run, last = first + run < n ? first + run : n;
    int own = 0;
    for (int64_t j = first; j < last; j++) own += index[j] == row;
    found[threadIdx.x] = own;
    __syncthreads();
    int before = 0, total = 0;
    for (int t = 0; t < 256; t++) {
        if (t < threadIdx.x) before += found[t];
        total += found[t];
    }
    for (int64_t j = first; j < last; j++)
        if (index[j] == row) same[before++] = j;
    __syncthreads();
    const C scale = by_count ? C(1) / C(total) : C(1);
    for (int64_t c = threadIdx.x; c < width; c += 256) {
        C sum = 0;
        for (int i = 0; i < total; i++) sum += convert<C>(grad[same[i] * width + c]) * scale;
        table[row * width + c] = convert<T>(sum);
    }
}
template <int Bytes> __global__ void __launch_bounds__(256)
    embedding_rows(const void* table, int64_t rows, const int64_t* index, void* out, int64_t n, int64_t cells) {
    using T = typename Cell<Bytes>::type;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n * cells) return;
    const int64_t k = i / cells, r = index[k];
    static_cast<T*>(out)[i] = r >= 0 && r < rows ? static_cast<const T*>(table)[r * cells + (i - k * cells)] : T{};
}

struct Bags {
    int64_t rows, width, bags, padding;
    int mode;  // 0 sum, 1 mean, 2 max
    const int64_t *index, *offset;
};
template <class T> __global__ void __launch_bounds__(256)
    embedding_bags(const Bags b, const T* table, const T* sample_weight, T* out, int64_t* picked) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= b.bags * b.width) return;
    const int64_t bag = i / b.width, column = i - bag * b.width;
    C sum = 0;
    int64_t count = 0, best = -1;
    for (int64_t k = b.offset[bag]; k < b.offset[bag + 1]; k++) {
        const int64_t row = b.index[k];
        if (row == b.padding || row < 0 || row >= b.rows) continue;
        const C v = convert<C>(table[row * b.width + column]);
        count++;
        if (b.mode != 2) sum += sample_weight ? v * convert<C>(sample_weight[k]) : v;
        else if (count == 1 || v > sum || v != v) sum = v, best = row;
    }
    out[i] = convert<T>(b.mode == 1 && count > 0 ? C(sum / C(count)) : sum);
    if (picked) picked[i] = best;
}

// --- running sums, products and extremes along the middle of (outer, n, inner): a thread a column ---

enum ScanKind : int { scan_sum, scan_prod, scan_max, scan_min, scan_logsumexp };
template <int K, class T> __global__ void __launch_bounds__(128)
    scan_columns(const T* in, T* out, int64_t* indices, int64_t columns, int64_t n, int64_t inner) {
    using C = compute<T>;
    const int64_t c = int64_t(blockIdx.x) * 128 + threadIdx.x;
    if (c >= columns) return;
    const int64_t base = c / inner * n * inner + c % inner;
    C acc = C();
    int64_t where = 0;
    for (int64_t i = 0; i < n; i++) {
        const C x = convert<C>(in[base + i * inner]);
        if (i == 0) acc = x;
        else if constexpr (K == scan_sum) acc = acc + x;
        else if constexpr (K == scan_prod) acc = acc * x;
        else if constexpr (K == scan_logsumexp && !is_complex<C> && !std::is_integral_v<C>) {
            const C m = acc > x ? acc : x;
            acc = acc != acc || x != x ? acc + x : m == C(-INFINITY) || m == C(INFINITY) ? m : m + ::log(::exp(acc - m) + ::exp(x - m));
        } else if constexpr (K == scan_logsumexp && is_complex<C>) {  // the one with the larger real part is taken out
            const C m = acc.re > x.re ? acc : x, rest = acc.re > x.re ? x - acc : acc - x;
            const auto grown = ::exp(rest.re);
            const auto re = 1 + grown * ::cos(rest.im), im = grown * ::sin(rest.im);
            acc = acc.re != acc.re || x.re != x.re ? acc + x : C(m.re + ::log(::hypot(re, im)), m.im + ::atan2(im, re));
        } else if constexpr (!is_complex<C>) {
            const bool better = acc == acc && (x != x || (K == scan_max ? x >= acc : x <= acc));
            if (better || (acc != acc && x != x)) {
                acc = x;
                where = i;
            }
        }
        out[base + i * inner] = convert<T>(acc);
        if (indices) indices[base + i * inner] = where;
    }
}
// A block a row: pieces of 1024 elements one after another.
template <int K, class T> __global__ void __launch_bounds__(256) scan_rows(const T* in, T* out, int64_t n) {
    using C = compute<T>;
    __shared__ C sums[256];
    __shared__ C carried;
    in += blockIdx.x * n;
    out += blockIdx.x * n;
    if (threadIdx.x == 0) carried = K == scan_prod ? C(1) : C(0);
    __syncthreads();
    for (int64_t base = 0; base < n; base += 1024) {
        C own[4], total = K == scan_prod ? C(1) : C(0);
        for (int k = 0; k < 4; k++) {
            const int64_t i = base + threadIdx.x * 4 + k;
            own[k] = i < n ? convert<C>(in[i]) : K == scan_prod ? C(1) : C(0);
            if constexpr (K == scan_prod) total = total * own[k];
            else total = total + own[k];
        }
        sums[threadIdx.x] = total;
        __syncthreads();
        for (int by = 1; by < 256; by *= 2) {
            const C before = threadIdx.x >= by ? sums[threadIdx.x - by] : K == scan_prod ? C(1) : C(0);
            __syncthreads();
            if constexpr (K == scan_prod) sums[threadIdx.x] = sums[threadIdx.x] * before;
            else sums[threadIdx.x] = sums[threadIdx.x] + before;
            __syncthreads();
        }
        C running = carried;
        if (threadIdx.x > 0) {
            if constexpr (K == scan_prod) running = running * sums[threadIdx.x - 1];
            else running = running + sums[threadIdx.x - 1];
        }
        __syncthreads();
        for (int k = 0; k < 4; k++) {
            const int64_t i = base + threadIdx.x * 4 + k;
            if constexpr (K == scan_prod) running = running * own[k];
            else running = running + own[k];
            if (i < n) out[i] = convert<T>(running);
        }
        if (threadIdx.x == 255) carried = running;
        __syncthreads();
    }
}

}  // namespace wisp
