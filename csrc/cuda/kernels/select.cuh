// The element of a rank, and the best k of a row, found digit by digit from the top of the keys; nothing is sorted but the k.
#include "cuda/kernels/keys.cuh"
#include "cuda/kernels/tiles.cuh"

namespace wisp {

// top: the first k in order. Else one element: that of rank k, or a median, of all or of those that are numbers.
enum Selecting : int { select_kth, select_median, select_nanmedian, select_top };
WISP_INLINE int64_t rank_wanted(int what, int64_t k, int64_t n, int64_t nans) {
    const int64_t numbers = n - nans;
    if (what == select_top) return k - 1;
    if (what == select_kth) return k;
    return nans > 0 && what == select_median ? numbers : numbers == 0 ? 0 : (numbers - 1) / 2;
}

// Rows that a block of 256 threads holds in registers. The elements of a warp are in the order (k, lane).
template <class T, int Items> __global__ void __launch_bounds__(256)
    select_in_rows(const T* in, T* values, int64_t* indices, int n, int64_t k_given, int what, int descending) {
    using K = Key<T>;
    __shared__ int bins[256], sums[8];
    __shared__ int digit_found, rank_found;
    __shared__ int2 warp_counts[8];
    __shared__ K top_keys[256];
    __shared__ uint16_t top_places[256];
    in += int64_t(blockIdx.x) * n;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, first = warp * (Items * 32) + lane;
    K key[Items];
    int nans = 0;
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const int i = first + k * 32;
        if (i < n) {
            key[k] = order_key(in[i], descending);
            if constexpr (has_nan<T>) nans += key[k] == key_mask<T>;
        }
    }
    if (has_nan<T> && (what == select_median || what == select_nanmedian)) {
        int all;
        block_prefix(nans, 0, all, sums, Plus());
        nans = all;
    } else nans = 0;
    int rank = int(rank_wanted(what, k_given, n, nans));
    const int wanted = rank;
    K prefix = 0;
    for (int shift = key_bits<T> - 8; shift >= 0; shift -= 8) {
        bins[threadIdx.x] = 0;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < Items; k++)
            if (first + k * 32 < n && key[k] >> shift >> 8 == prefix) atomicAdd(&bins[key[k] >> shift & 255], 1);
        __syncthreads();
        int total;
        const int count = bins[threadIdx.x], before = block_prefix(count, 0, total, sums, Plus());
        if (rank >= before && rank < before + count) {
            digit_found = threadIdx.x;
            rank_found = rank - before;
        }
        __syncthreads();
        prefix = prefix << 8 | K(digit_found);
        rank = rank_found;
    }
    // `rank` is now among those that equal the key; those before them are taken whole.
    int better = 0, equal = 0;
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const bool valid = first + k * 32 < n;
        better += __popc(__ballot_sync(0xffffffffu, valid && key[k] < prefix));
        equal += __popc(__ballot_sync(0xffffffffu, valid && key[k] == prefix));
    }
    if (lane == 0) warp_counts[warp] = {better, equal};
    __syncthreads();
    better = equal = 0;
    for (int w = 0; w < warp; w++) better += warp_counts[w].x, equal += warp_counts[w].y;
    const unsigned below = (1u << lane) - 1;
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const int i = first + k * 32;
        const bool valid = i < n, is_better = valid && key[k] < prefix, is_equal = valid && key[k] == prefix;
        const unsigned b = __ballot_sync(0xffffffffu, is_better), e = __ballot_sync(0xffffffffu, is_equal);
        const int at_better = better + __popc(b & below), at_equal = equal + __popc(e & below);
        better += __popc(b);
        equal += __popc(e);
        if (what != select_top) {
            if (is_equal && at_equal == rank) {
                values[blockIdx.x] = in[i];
                indices[blockIdx.x] = i;
            }
        } else if (is_better || (is_equal && at_equal <= rank)) {
            const int at = at_better + (at_equal <= rank ? at_equal : rank + 1);
            top_keys[at] = key[k];
            top_places[at] = uint16_t(i);
        }
    }
    if (what != select_top) return;
    __syncthreads();
    if (threadIdx.x > wanted) return;
    const K own = top_keys[threadIdx.x];
    int to = 0;
    for (int j = 0; j <= wanted; j++) to += top_keys[j] < own || (top_keys[j] == own && j < int(threadIdx.x));
    const int64_t out = int64_t(blockIdx.x) * k_given + to;
    values[out] = in[top_places[threadIdx.x]];
    indices[out] = top_places[threadIdx.x];
}

// --- long rows: blocks count digits of a row together, and the last of them chooses ---

constexpr int select_bits = 11, select_bins = 1 << select_bits;
struct Chosen {
    unsigned long long key;  // the digits that are known
    long long rank;          // among those that have them
    unsigned long long nans;
    unsigned long long done;  // blocks
};

// `blocks`: that share a row.
template <class T> __global__ void __launch_bounds__(256) select_nans(const T* in, Chosen* chosen, int64_t n, unsigned blocks) {
    const unsigned row = blockIdx.x / blocks, block = blockIdx.x - row * blocks;
    in += row * n;
    int nans = 0;
    for (int64_t i = int64_t(block) * 256 + threadIdx.x; i < n; i += int64_t(blocks) * 256) {
        const auto v = convert<compute<T>>(in[i]);
        nans += v != v;
    }
    for (int by = 16; by > 0; by /= 2) nans += __shfl_xor_sync(0xffffffffu, nans, by);
    if ((threadIdx.x & 31) == 0 && nans) atomicAdd(&chosen[row].nans, (unsigned long long)nans);
}

// pass 0 is the top of the key. counts: [row][bin], zero before and after.
template <class T> __global__ void __launch_bounds__(256) select_digit(const T* in, Chosen* chosen, unsigned long long* counts, int64_t n,
                                                                       unsigned blocks, int64_t k, int what, int descending, int pass) {
    using K = Key<T>;
    __shared__ unsigned bins[select_bins];
    __shared__ int64_t sums[8];
    __shared__ bool last;
    const unsigned row = blockIdx.x / blocks, block = blockIdx.x - row * blocks;
    Chosen& c = chosen[row];
    in += row * n;
    counts += row * int64_t(select_bins);
    const int top = key_bits<T> - pass * select_bits, shift = top > select_bits ? top - select_bits : 0, bits = top - shift;
    const K mask = (K(1) << bits) - 1, known = K(c.key);
    for (int b = threadIdx.x; b < select_bins; b += 256) bins[b] = 0;
    __syncthreads();
    constexpr int ahead = 8;
    const int64_t step = int64_t(blocks) * 256;
    for (int64_t i = int64_t(block) * 256 + threadIdx.x; i < n; i += step * ahead) {
        T x[ahead];
#pragma unroll
        for (int a = 0; a < ahead; a++)
            if (i + a * step < n) x[a] = in[i + a * step];
#pragma unroll
        for (int a = 0; a < ahead; a++)
            if (i + a * step < n) {
                const K key = order_key(x[a], descending);
                if (pass == 0 || key >> shift >> bits == known) atomicAdd(&bins[key >> shift & mask], 1u);
            }
    }
    __syncthreads();
    for (int b = threadIdx.x; b < select_bins; b += 256)
        if (bins[b]) atomicAdd(&counts[b], (unsigned long long)bins[b]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&c.done, 1ULL) + 1 == blocks;
    __syncthreads();
    if (!last) return;
    __threadfence();
    constexpr int own = select_bins / 256;
    int64_t count[own], sum = 0, total;
#pragma unroll
    for (int b = 0; b < own; b++) {
        count[b] = int64_t(__ldcg(counts + threadIdx.x * own + b));
        counts[threadIdx.x * own + b] = 0;
        sum += count[b];
    }
    int64_t before = block_prefix(sum, int64_t(0), total, sums, Plus());
    const int64_t rank = pass == 0 ? rank_wanted(what, k, n, int64_t(c.nans)) : c.rank;
    __syncthreads();
#pragma unroll
    for (int b = 0; b < own; b++) {
        if (rank >= before && rank < before + count[b]) {
            c.key = (unsigned long long)(known) << bits | (unsigned)(threadIdx.x * own + b);
            c.rank = rank - before;
        }
        before += count[b];
    }
    if (threadIdx.x == 0) c.done = 0;
}

struct TwoCounts {
    int64_t better, equal;
    friend WISP_INLINE TwoCounts operator+(TwoCounts a, TwoCounts b) { return {a.better + b.better, a.equal + b.equal}; }
};
// What was chosen, in the order of its places: the k of each row, or the one element.
constexpr int select_items = 16, select_tile = 256 * select_items;
template <class T> __global__ void __launch_bounds__(256)
    select_collect(const T* in, const Chosen* chosen, T* values, int64_t* indices, int64_t n, int64_t k, int what, int descending,
                   unsigned count, const Tiles<TwoCounts> tiles) {
    using K = Key<T>;
    __shared__ TwoCounts sums[8], carried, warp_counts[8];
    __shared__ unsigned number;
    const unsigned tile = next_tile(tiles, &number), row = tile / count, at = tile - row * count;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int64_t first = int64_t(at) * select_tile + warp * (select_items * 32) + lane;
    in += int64_t(row) * n;
    const K wanted = K(chosen[row].key);
    const int64_t rank = chosen[row].rank;
    T x[select_items];
#pragma unroll
    for (int i = 0; i < select_items; i++)
        if (first + i * 32 < n) x[i] = in[first + i * 32];
    TwoCounts own = {0, 0};
    unsigned better = 0, equal = 0;
#pragma unroll
    for (int i = 0; i < select_items; i++) {
        const bool valid = first + i * 32 < n;
        const K key = valid ? order_key(x[i], descending) : K(0);
        const bool b = valid && key < wanted, e = valid && key == wanted;
        better |= unsigned(b) << i;
        equal |= unsigned(e) << i;
        own.better += __popc(__ballot_sync(0xffffffffu, b));
        own.equal += __popc(__ballot_sync(0xffffffffu, e));
    }
    if (lane == 0) warp_counts[warp] = own;
    __syncthreads();
    TwoCounts before = {0, 0}, total = {0, 0};
    for (int w = 0; w < 8; w++) {
        if (w == warp) before = total;
        total = total + warp_counts[w];
    }
    before = before + tile_prefix(tiles, tile, at, count, total, TwoCounts{0, 0}, sums, &carried, Plus());
    const unsigned below = (1u << lane) - 1;
#pragma unroll
    for (int i = 0; i < select_items; i++) {
        const bool b = better >> i & 1, e = equal >> i & 1;
        const unsigned bs = __ballot_sync(0xffffffffu, b), es = __ballot_sync(0xffffffffu, e);
        const int64_t at_better = before.better + __popc(bs & below), at_equal = before.equal + __popc(es & below);
        before = before + TwoCounts{__popc(bs), __popc(es)};
        if (what != select_top) {
            if (e && at_equal == rank) {
                values[row] = x[i];
                indices[row] = first + i * 32;
            }
        } else if (b || (e && at_equal <= rank)) {
            const int64_t to = int64_t(row) * k + at_better + (at_equal <= rank ? at_equal : rank + 1);
            values[to] = x[i];
            indices[to] = first + i * 32;
        }
    }
}
// indices[i] = those of the place that a sort of the chosen ones took element i from.
__global__ void __launch_bounds__(256) select_order(const int64_t* places, const int64_t* order, int64_t* indices, int64_t n, int64_t k) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i < n) indices[i] = places[i / k * k + order[i]];
}

}  // namespace wisp
