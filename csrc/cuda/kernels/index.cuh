// Reading and writing by index. Scatters work on destinations that were sorted with their positions: every destination is
// the work of one thread, which takes what goes there in order, so repeated indices give the same result every time.
#include "cuda/kernels/index_shape.cuh"

namespace wisp {

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
__global__ void __launch_bounds__(256) mark_classes(int64_t* out, const int64_t* x, int64_t n, int64_t classes, unsigned long long negative,
                                                    unsigned long long too_large, Report* report) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    if (x[i] < 0) report_error(report, negative);
    else if (x[i] >= classes) report_error(report, too_large);
    else out[i * classes + x[i]] = 1;
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
WISP_INLINE int64_t offset_at(const IndexList& list, int64_t i) {
    int64_t offset = 0;
    for (int k = 0; k < list.count; k++) {
        const int64_t at = list.indices[k][i], size = list.sizes[k];
        if (at >= size || at < (list.wrap ? -size : 0)) {
            report_index(list.report, at, size, list.name);
            return -1;
        }
        offset += (at < 0 ? at + size : at) * list.strides[k];
    }
    return offset;
}
__global__ void __launch_bounds__(256) index_offsets(int64_t* out, const IndexList list, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) out[i] = offset_at(list, i);
}

constexpr int ahead = 4;  // elements of a thread that are read before they are needed

// a: strides of a slice of out, b: of in. turned: the slices lie beside each other in out, and neighbours are of neighbouring slices. `by`
// divides by the inner count; 0 if there are too many elements.
template <int Bytes> __global__ void __launch_bounds__(256)
    take(void* out, int64_t out_step, const void* in, const int64_t* offsets, int64_t n, int64_t slice, const Divider by, int turned,
         const IndexShape s) {
    begin_early();
    using T = Cell<Bytes>;
    const int64_t first = int64_t(blockIdx.x) * (256 * ahead) + threadIdx.x, inner = turned ? n : slice;
    T taken[ahead];
    int64_t to[ahead];
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        const int64_t i = first + a * 256;
        if (i >= n * slice) break;
        const int64_t high = by.divisor ? int64_t(by.divide(uint32_t(i))) : i / inner, low = i - high * inner;
        const int64_t k = turned ? low : high, at = offsets[k];
        const Offsets o = offsets_of(s, turned ? high : low);
        to[a] = k * out_step + o.a;
        taken[a] = at < 0 ? T{} : static_cast<const T*>(in)[at + o.b];
    }
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (first + a * 256 < n * slice) static_cast<T*>(out)[to[a]] = taken[a];
}

template <int Bytes> __global__ void __launch_bounds__(256) take_elements(void* out, const void* in, const IndexList list, int64_t n) {
    begin_early();
    using T = Cell<Bytes>;
    const int64_t first = int64_t(blockIdx.x) * (256 * ahead) + threadIdx.x;
    T taken[ahead];
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        const int64_t at = first + a * 256 < n ? offset_at(list, first + a * 256) : -1;
        taken[a] = at < 0 ? T{} : static_cast<const T*>(in)[at];
    }
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (first + a * 256 < n) static_cast<T*>(out)[first + a * 256] = taken[a];
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
        const uint64_t place = places[k];
        for (bool more = true; more; k += ahead) {
            bool here[ahead];
            C x[ahead];
#pragma unroll
            for (int a = 0; a < ahead; a++) here[a] = k + a < n && places[k + a] == place;
#pragma unroll
            for (int a = 0; a < ahead; a++)
                if (here[a]) x[a] = convert<C>(value(k + a));
#pragma unroll
            for (int a = 0; a < ahead; a++)
                if (here[a]) sum = combine<H>(sum, x[a]);
            more = here[ahead - 1];
        }
        *target = convert<T>(sum);
    }
}

// places: destinations in order, with the positions that they had. a: strides of a slice of out, b: of values.
template <int H, class T> __global__ void __launch_bounds__(256)
    put_sorted(T* out, const uint64_t* places, const int64_t* positions, int64_t n, int64_t limit, int64_t slice, const T* values,
               int64_t value_step, const Divider by_slice, const IndexShape s) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n * slice) return;
    const int64_t k = by_slice.divisor ? int64_t(by_slice.divide(uint32_t(i))) : i / slice;
    if (places[k] == uint64_t(limit) || (k > 0 && places[k - 1] == places[k])) return;  // not the first of its destination
    const Offsets o = offsets_of(s, i - k * slice);
    T* target = out + int64_t(places[k]) + o.a;
    combine_run<H>(target, places, k, n, [&](int64_t j) { return values[positions[j] * value_step + o.b]; });
}

// Setting: the last index of a place has it; offsets are told apart in units. A thread moves a cell, of one element or several.
__global__ void __launch_bounds__(256) last_slices(const int64_t* offsets, unsigned* last, int64_t n, int64_t unit) {
    const int64_t k = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (k < n && offsets[k] >= 0) atomicMax(last + offsets[k] / unit, unsigned(k + 1));
}
template <int Bytes, int Item> __global__ void __launch_bounds__(256)
    put_last(void* out, const int64_t* offsets, const unsigned* last, int64_t n, int64_t slice, const void* values, int64_t value_step,
             const Divider by_slice, const IndexShape s, int64_t unit) {
    using T = Cell<Bytes>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n * slice) return;
    const int64_t k = by_slice.divisor ? int64_t(by_slice.divide(uint32_t(i))) : i / slice, at = offsets[k];
    if (at < 0 || (last && last[at / unit] != unsigned(k + 1))) return;
    const Offsets o = offsets_of(s, i - k * slice);
    char* to = static_cast<char*>(out) + at * Item + o.a * Bytes;
    const T value = static_cast<const T*>(values)[k * value_step + o.b];
    if (Bytes == Item || uint64_t(to) % Bytes == 0) *reinterpret_cast<T*>(to) = value;
    else
        for (int b = 0; b < Bytes; b += Item)  // slices that do not begin where a cell could
            *reinterpret_cast<Cell<Item>*>(to + b) = *reinterpret_cast<const Cell<Item>*>(reinterpret_cast<const char*>(&value) + b);
}

#include "kernels/put_one_arguments.h"

// Single slices, one or two of them, whose indices are checked here. a: strides of out, b: of values.
template <int Bytes> __global__ void __launch_bounds__(256) put_one(const __grid_constant__ PutOne<IndexShape, Report> p) {
    begin_early();
    using T = Cell<Bytes>;
    const auto& part = p.parts[p.count > 1 && int(blockIdx.x) >= p.parts[1].first];
    const int64_t i = int64_t(int(blockIdx.x) - part.first) * 256 + threadIdx.x, at = *part.index;
    if (i >= part.n) return;
    if (at >= part.size || at < (part.wrap ? -part.size : 0)) {
        if (i == 0) report_index(p.report, at, part.size, reinterpret_cast<unsigned long long>(part.name));
        return;
    }
    const Offsets o = offsets_of(part.shape, i);
    static_cast<T*>(part.out)[(at < 0 ? at + part.size : at) * part.stride + o.a] = static_cast<const T*>(part.values)[o.b];
}

// a: strides of in, b: of index; `along`: the stride of in along the indexed dimension, which a leaves out.
template <int Bytes> __global__ void __launch_bounds__(256)
    gather(void* out, const void* in, const int64_t* index, int64_t n, int64_t along, int64_t size, int wrap, unsigned long long name,
           Report* report, const IndexShape s) {
    using T = Cell<Bytes>;
    const int64_t first = int64_t(blockIdx.x) * (256 * ahead) + threadIdx.x;
    int64_t from[ahead], at[ahead];
    T taken[ahead];
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        if (first + a * 256 >= n) break;
        const Offsets o = offsets_of(s, first + a * 256);
        from[a] = o.a;
        at[a] = index[o.b];
    }
#pragma unroll
    for (int a = 0; a < ahead; a++) {
        if (first + a * 256 >= n) break;
        const bool good = at[a] >= (wrap ? -size : 0) && at[a] < size;
        if (!good) report_index(report, at[a], size, name);
        if (at[a] < 0) at[a] += size;
        taken[a] = good ? static_cast<const T*>(in)[from[a] + at[a] * along] : T{};
    }
#pragma unroll
    for (int a = 0; a < ahead; a++)
        if (first + a * 256 < n) static_cast<T*>(out)[first + a * 256] = taken[a];
}
// Where each element of a scatter goes; `limit`: nowhere.
__global__ void __launch_bounds__(256) scatter_places(uint64_t* places, const int64_t* index, int64_t n, int64_t along, int64_t size,
                                                      uint64_t limit, unsigned long long name, Report* report, const IndexShape s) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Offsets o = offsets_of(s, i);
    const int64_t at = index[o.b];
    const bool good = at >= 0 && at < size;
    if (!good) report_index(report, at, size, name);
    places[i] = good ? uint64_t(o.a + at * along) : limit;
}
// c: strides of values.
template <int H, class T> __global__ void __launch_bounds__(256)
    scatter_sorted(T* out, const uint64_t* places, const int64_t* positions, int64_t n, uint64_t limit, const T* values,
                   const IndexShape s) {
    const int64_t k = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (k >= n || places[k] == limit || (k > 0 && places[k - 1] == places[k])) return;
    combine_run<H>(out + places[k], places, k, n, [&](int64_t j) { return values[offsets_of(s, positions[j]).c]; });
}

__global__ void __launch_bounds__(256) as_places(const int64_t* offsets, uint64_t* places, int64_t n, int64_t limit) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    places[i] = uint64_t(offsets[i] < 0 || offsets[i] > limit ? limit : offsets[i]);
}

// n and columns count groups of N neighbours.
template <int Bytes, int N> __global__ void __launch_bounds__(256)
    triangle(void* out, const void* in, int64_t n, int64_t rows, int64_t columns, int64_t diagonal, int upper) {
    using T = Vector<Cell<Bytes>, N>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const Split by_column = split(i, columns);
    const int64_t c = by_column.rest * N, r = split(by_column.whole, rows).rest;
    auto kept = [&](int64_t c) { return upper ? c - r >= diagonal : c - r <= diagonal; };
    T x = {};
    if (kept(c) || kept(c + N - 1)) x = static_cast<const T*>(in)[i];
#pragma unroll
    for (int k = 0; k < N; k++)
        if (!kept(c + k)) x.at[k] = {};
    static_cast<T*>(out)[i] = x;
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
    begin_early();
    using T = Cell<Bytes>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n * cells) return;
    const int64_t k = split(i, cells).whole, r = index[k];
    static_cast<T*>(out)[i] = r >= 0 && r < rows ? static_cast<const T*>(table)[r * cells + (i - k * cells)] : T{};
}

// Offsets of bags, which must rise from 0 to at most `most`: in range, whatever they are.
__global__ void __launch_bounds__(256)
    bound_offsets(int64_t* out, const int64_t* in, int64_t n, int64_t most, unsigned long long message, Report* report) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const int64_t bounded = in[i] < 0 ? 0 : in[i] > most ? most : in[i];
    out[i] = bounded;
    if (bounded != in[i] || (i > 0 && in[i - 1] > in[i])) report_error(report, message);
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
    const Split by_bag = split(i, b.width);
    const int64_t bag = by_bag.whole, column = by_bag.rest;
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

}  // namespace wisp
