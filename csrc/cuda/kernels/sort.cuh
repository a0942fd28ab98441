// A stable radix sort of keys with their positions, eight bits a pass; what sorting, scatters and embeddings build on.
#include "cuda/kernels/base.cuh"

namespace wisp {

constexpr int tile = 2048;  // elements of a block of 256 threads

// An unsigned number whose order is that of x; NaN is the largest.
template <class T> WISP_INLINE uint64_t sort_key(T x, bool descending) {
    uint64_t k;
    if constexpr (is_half<T>) return sort_key(float(x), descending);
    else if constexpr (std::is_same_v<T, float>) {
        const uint32_t b = x != x ? 0x7fffffffu : __float_as_uint(x == 0 ? 0.0f : x);
        k = b & 0x80000000u ? uint32_t(~b) : b | 0x80000000u;
        if (descending) k = uint32_t(~uint32_t(k));
        return k;
    } else if constexpr (std::is_same_v<T, double>) {
        const uint64_t b = x != x ? 0x7fffffffffffffffULL : uint64_t(__double_as_longlong(x == 0 ? 0.0 : x));
        k = b >> 63 ? ~b : b | 0x8000000000000000ULL;
    } else if constexpr (sizeof(T) == 8) k = std::is_signed_v<T> ? uint64_t(x) ^ 0x8000000000000000ULL : uint64_t(x);
    else {  // as few bits as the type has
        constexpr uint64_t all = (uint64_t(1) << (8 * sizeof(T))) - 1;
        k = uint64_t(int64_t(x)) & all;
        if constexpr (std::is_signed_v<T>) k ^= (all >> 1) + 1;
        return descending ? ~k & all : k;
    }
    return descending ? ~k : k;
}

template <class T> __global__ void __launch_bounds__(256)
    make_keys(const T* x, uint64_t* keys, int64_t* positions, int64_t n, int64_t row, int descending) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    keys[i] = sort_key(x[i], descending);
    positions[i] = i;
}
// Keys for the second sort: the row that each element came from.
__global__ void __launch_bounds__(256) row_keys(const int64_t* positions, uint64_t* keys, int64_t n, int64_t row) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) keys[i] = uint64_t(positions[i] / row);
}

// counts[digit][block]
__global__ void __launch_bounds__(256) radix_count(const uint64_t* keys, int64_t n, int shift, int64_t* counts) {
    __shared__ int bins[256];
    bins[threadIdx.x] = 0;
    __syncthreads();
    const int64_t base = int64_t(blockIdx.x) * tile;
    for (int k = threadIdx.x; k < tile; k += 256)
        if (base + k < n) atomicAdd(&bins[keys[base + k] >> shift & 255], 1);
    __syncthreads();
    counts[int64_t(threadIdx.x) * gridDim.x + blockIdx.x] = bins[threadIdx.x];
}

// Exclusive sums of one long array, by one block.
__global__ void __launch_bounds__(1024) exclusive_sums(int64_t* values, int64_t n) {
    __shared__ int64_t sums[1024];
    __shared__ int64_t carried;
    if (threadIdx.x == 0) carried = 0;
    __syncthreads();
    for (int64_t base = 0; base < n; base += 4096) {
        int64_t own[4], total = 0;
        for (int k = 0; k < 4; k++) {
            const int64_t i = base + threadIdx.x * 4 + k;
            own[k] = i < n ? values[i] : 0;
            total += own[k];
        }
        sums[threadIdx.x] = total;
        __syncthreads();
        for (int by = 1; by < 1024; by *= 2) {
            const int64_t before = threadIdx.x >= by ? sums[threadIdx.x - by] : 0;
            __syncthreads();
            sums[threadIdx.x] += before;
            __syncthreads();
        }
        int64_t running = carried + sums[threadIdx.x] - total;
        for (int k = 0; k < 4; k++) {
            const int64_t i = base + threadIdx.x * 4 + k;
            if (i < n) values[i] = running;
            running += own[k];
        }
        __syncthreads();
        if (threadIdx.x == 1023) carried = running;
        __syncthreads();
    }
}

// Each warp takes 256 neighbouring elements of the tile in order, so that equal digits keep theirs.
__global__ void __launch_bounds__(256) radix_scatter(const uint64_t* keys, const int64_t* positions, int64_t n, int shift,
                                                     const int64_t* starts, uint64_t* keys_out, int64_t* positions_out) {
    __shared__ int before[8][256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int k = threadIdx.x; k < 8 * 256; k += 256) before[k / 256][k % 256] = 0;
    __syncthreads();
    const int64_t base = int64_t(blockIdx.x) * tile + warp * 256;
    for (int k = 0; k < 256; k += 32)
        if (base + k + lane < n) atomicAdd(&before[warp][keys[base + k + lane] >> shift & 255], 1);
    __syncthreads();
    int running = 0;
    for (int w = 0; w < 8; w++) {  // a thread a digit: counts become starts within the tile
        const int count = before[w][threadIdx.x];
        before[w][threadIdx.x] = running;
        running += count;
    }
    __syncthreads();
    for (int k = 0; k < 256; k += 32) {
        const int64_t i = base + k + lane;
        const bool valid = i < n;
        const uint64_t key = valid ? keys[i] : 0;
        const int digit = valid ? int(key >> shift & 255) : 256;
        const unsigned same = __match_any_sync(0xffffffffu, digit), below = same & ((1u << lane) - 1);
        int rank = 0;
        if (valid) rank = before[warp][digit] + __popc(below);
        __syncwarp();
        if (valid && below == 0) before[warp][digit] += __popc(same);
        __syncwarp();
        if (valid) {
            const int64_t to = starts[int64_t(digit) * gridDim.x + blockIdx.x] + rank;
            keys_out[to] = key;
            positions_out[to] = positions[i];
        }
    }
}

template <class T> __global__ void __launch_bounds__(256)
    sorted_results(const T* x, const int64_t* positions, T* values, int64_t* indices, int64_t n, int64_t row, int64_t kept) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const int64_t r = i / row, k = i - r * row;
    if (k >= kept) return;
    const int64_t p = positions[i];
    if (values) values[r * kept + k] = x[p];
    if (indices) indices[r * kept + k] = p - r * row;
}

template <class T> WISP_INLINE bool is_nan(T x) {
    if constexpr (std::is_integral_v<T>) return false;
    else {
        const compute<T> v = convert<compute<T>>(x);
        return v != v;
    }
}

// One element of each sorted row: that of a rank, or a median; NaNs are at the end.
enum Selecting : int { select_kth, select_median, select_nanmedian };
template <class T> __global__ void __launch_bounds__(256)
    select_sorted(const T* x, const int64_t* positions, T* values, int64_t* indices, int64_t rows, int64_t n, int what, int64_t k) {
    const int64_t r = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (r >= rows) return;
    const int64_t* order = positions + r * n;
    int64_t rank = k;
    if (what != select_kth) {
        int64_t numbers = 0;  // elements that are not NaN
        for (int64_t count = n; count > 0;) {
            const int64_t half = count / 2;
            const bool number = !is_nan(x[order[numbers + half]]);
            numbers = number ? numbers + half + 1 : numbers;
            count = number ? count - half - 1 : half;
        }
        rank = numbers < n && what == select_median ? numbers : numbers == 0 ? 0 : (numbers - 1) / 2;
    }
    values[r] = x[order[rank]];
    indices[r] = order[rank] - r * n;
}
// The longest run of equal elements of each sorted row, the first of several; its last element.
template <class T> __global__ void __launch_bounds__(256)
    mode_sorted(const T* x, const int64_t* positions, T* values, int64_t* indices, int64_t rows, int64_t n) {
    const int64_t r = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (r >= rows) return;
    const int64_t* order = positions + r * n;
    int64_t best = 0, longest = 0;
    for (int64_t i = 0; i < n;) {
        const uint64_t key = sort_key(x[order[i]], false);
        int64_t end = i + 1;
        while (end < n && sort_key(x[order[end]], false) == key) end++;
        if (end - i > longest) longest = end - i, best = end - 1;
        i = end;
    }
    values[r] = x[order[best]];
    indices[r] = order[best] - r * n;
}

// sorter: null, or for each row of boundaries the permutation that sorts it.
template <class T> __global__ void __launch_bounds__(256)
    search_sorted(int64_t* out, const T* boundaries, const int64_t* sorter, const T* values, int64_t all, int64_t m, int64_t n, int shared,
                  int right, unsigned long long name, Report* report) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= all) return;
    const int64_t row = shared ? 0 : i / n;
    const T* base = boundaries + row * m;
    const uint64_t wanted = sort_key(values[i], false);
    int64_t low = 0;
    for (int64_t count = m; count > 0;) {
        const int64_t half = count / 2;
        int64_t at = sorter ? sorter[row * m + low + half] : low + half;
        if (at < 0 || at >= m) {
            report_index(report, at, m, name);
            at = 0;
        }
        const uint64_t x = sort_key(base[at], false);
        const bool after = right ? x <= wanted : x < wanted;
        low = after ? low + half + 1 : low;
        count = after ? count - half - 1 : half;
    }
    out[i] = low;
}

}  // namespace wisp
