// A stable radix sort of elements with their positions, eight bits a pass; what sorting, scatters and embeddings build on. Each pass reads
// and writes once: a tile ranks its elements by digit, and learns from the tiles before it where its share of each digit begins.
#include "cuda/kernels/keys.cuh"
#include "cuda/kernels/tiles.cuh"

namespace wisp {

constexpr int radix_items = 16, radix_tile = 256 * radix_items, radix_passes = 8;

// Threads whose digit is that of this one.
WISP_INLINE unsigned same_digit(unsigned digit) {
    unsigned same = 0xffffffffu;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const unsigned set = unsigned(int(digit << (31 - bit)) >> 31);  // all ones or none
        same &= ~(__ballot_sync(0xffffffffu, set) ^ set);
    }
    return same;
}

// K: the key, or a key with the number of its row above it. P: a position, W: what a pass counts in.
template <class T, class K, class P, class W> struct RadixSort {
    const T* in;
    K *keys, *other_keys;
    P *positions, *other_positions;
    W* starts;        // [pass][digit]: counts, then where each digit begins
    W* told;          // [pass][tile][digit]: zero, then what tiles say about a digit
    unsigned* begun;  // [pass]
    unsigned* from;   // [pass]: 0: read `in`, 1 or 2: `keys` or `other_keys`; 3: all digits are the same, nothing to do
    T* values;        // the results, or null
    int64_t* indices;
    int64_t n, row;  // in all, and of a row
    int passes, descending, rows;
    Divider by_row;
};

template <class T, class K> WISP_INLINE unsigned digit_of(K key, int pass, bool descending) {
    if constexpr (has_nan<T>) {
        const K above = sizeof(K) * 8 > key_bits<T> ? key & ~K(key_mask<T>) : K(0);
        key = above | same_zero<T>(Key<T>(key & K(key_mask<T>)), descending);
    }
    return unsigned(key >> (pass * 8)) & 255;
}
template <class T, class K, class P, class W> WISP_INLINE K first_key(const RadixSort<T, K, P, W>& s, int64_t i) {
    K key = to_key(s.in[i], s.descending);
    if constexpr (sizeof(K) > sizeof(Key<T>))
        if (s.rows > 1) key |= K(s.n < (int64_t(1) << 31) ? s.by_row.divide(uint32_t(i)) : i / s.row) << key_bits<T>;
    return key;
}

template <class T, class K, class P, class W> __global__ void __launch_bounds__(256) radix_count(const RadixSort<T, K, P, W> s) {
    __shared__ unsigned bins[sizeof(K)][256];
    for (int p = 0; p < int(sizeof(K)); p++) bins[p][threadIdx.x] = 0;
    __syncthreads();
    constexpr int ahead = 4;  // elements that are read before they are counted
    for (int64_t base = int64_t(blockIdx.x) * (256 * ahead); base < s.n; base += int64_t(gridDim.x) * (256 * ahead)) {
        K keys[ahead];
#pragma unroll
        for (int k = 0; k < ahead; k++)
            if (const int64_t i = base + k * 256 + threadIdx.x; i < s.n) keys[k] = first_key(s, i);
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            const bool valid = base + k * 256 + threadIdx.x < s.n;
#pragma unroll
            for (int p = 0; p < int(sizeof(K)); p++) {
                if (p >= s.passes) break;
                const unsigned digit = valid ? digit_of<T>(keys[k], p, s.descending) : 256;
                // Keys of few bits have the same digit everywhere: one addition for the warp.
                if (__all_sync(0xffffffffu, digit == __shfl_sync(0xffffffffu, digit, 0))) {
                    if (threadIdx.x % 32 == 0 && valid) atomicAdd(&bins[p][digit], 32u);
                } else if (valid) atomicAdd(&bins[p][digit], 1u);
            }
        }
    }
    __syncthreads();
    for (int p = 0; p < s.passes; p++)
        if (bins[p][threadIdx.x]) atomicAdd(&s.starts[p * 256 + threadIdx.x], W(bins[p][threadIdx.x]));
}

// Counts become starts, and it is known which passes have nothing to do; the last one always writes the results.
template <class T, class K, class P, class W> __global__ void __launch_bounds__(256) radix_plan(const RadixSort<T, K, P, W> s) {
    __shared__ W sums[8];
    unsigned from = 0;
    for (int p = 0; p < s.passes; p++) {
        const W count = s.starts[p * 256 + threadIdx.x];
        W total;
        const W before = block_prefix(count, W(0), total, sums, Plus());
        s.starts[p * 256 + threadIdx.x] = before;
        const bool same = __syncthreads_or(int64_t(count) == s.n) && p + 1 < s.passes;
        if (threadIdx.x == 0) s.from[p] = same ? 3 : from;
        if (!same) from = from == 1 ? 2 : 1;
    }
}

// Ranks a warp's elements, which are in the order (k, lane), among those of the warp with the same digit. `place` has the digits, and gets
// the ranks above bit 8. `counts` begins with zeros; afterwards counts[warp][digit] is what the warps before have, and `total` what all
// have of digit threadIdx.x.
template <int Warps, int Items> WISP_INLINE void rank_digits(uint16_t (&counts)[Warps][256], unsigned (&place)[Items], int& total) {
    const int warp = threadIdx.x >> 5;
    const unsigned before = (1u << (threadIdx.x & 31)) - 1;
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const unsigned same = same_digit(place[k]);
        uint16_t* count = &counts[warp][place[k]];
        const unsigned old = *count;
        __syncwarp();
        if ((same & before) == 0) *count = uint16_t(old + __popc(same));
        __syncwarp();
        place[k] |= (old + __popc(same & before)) << 8;
    }
    __syncthreads();
    total = 0;
    if (threadIdx.x < 256)
#pragma unroll
        for (int w = 0; w < Warps; w++) {
            const int count = counts[w][threadIdx.x];
            counts[w][threadIdx.x] = uint16_t(total);
            total += count;
        }
}

template <class T, class K, class P, class W> __global__ void __launch_bounds__(256, sizeof(K) == 4 ? 3 : 2)
    radix_pass(const RadixSort<T, K, P, W> s, int pass) {
    constexpr W has_own = W(1) << (sizeof(W) * 8 - 2), has_all = has_own << 1, value = has_own - 1;
    __shared__ uint16_t counts[8][256];
    __shared__ K exchange[radix_tile];
    __shared__ W shift[256];
    __shared__ int sums[8], local[256];
    __shared__ unsigned number;
    const unsigned from = s.from[pass];
    if (from == 3) return;
    const bool last = pass + 1 == s.passes;
    if (threadIdx.x == 0) number = atomicAdd(s.begun + pass, 1u);
    for (int w = 0; w < 8; w++) counts[w][threadIdx.x] = 0;
    __syncthreads();
    const unsigned tile = number;
    const int64_t base = int64_t(tile) * radix_tile;
    const int warp = threadIdx.x >> 5, first = warp * (radix_items * 32) + (threadIdx.x & 31);
    const int size = s.n - base < radix_tile ? int(s.n - base) : radix_tile;
    K key[radix_items];
    if (from == 0) {
#pragma unroll
        for (int k = 0; k < radix_items; k++)
            if (first + k * 32 < size) key[k] = first_key(s, base + first + k * 32);
    } else {
        const K* keys = (from == 1 ? s.keys : s.other_keys) + base + first;
#pragma unroll
        for (int k = 0; k < radix_items; k++)
            if (first + k * 32 < size) key[k] = keys[k * 32];
    }
    // What is beyond the end counts as the last digit: it comes behind all others, and is not written.
    unsigned place[radix_items];
#pragma unroll
    for (int k = 0; k < radix_items; k++) place[k] = first + k * 32 < size ? digit_of<T>(key[k], pass, s.descending) : 255u;
    int total;
    rank_digits(counts, place, total);
    const int beyond = threadIdx.x == 255 ? radix_tile - size : 0;
    volatile W* told = s.told + (int64_t(pass) * gridDim.x + tile) * 256 + threadIdx.x;
    *told = W(total - beyond) | (tile == 0 ? has_all : has_own);
    int all;
    local[threadIdx.x] = block_prefix(total, 0, all, sums, Plus());
    __syncthreads();
#pragma unroll
    for (int k = 0; k < radix_items; k++) {
        const unsigned d = place[k] & 255;
        place[k] = (place[k] >> 8) + local[d] + counts[warp][d];
        exchange[place[k]] = key[k];
    }
    W before = 0;
    if (tile > 0) {
        constexpr int window = 8;  // tiles that are looked at at once
        bool done = false;
        for (int64_t at = int64_t(tile) - 1; !done; at -= window) {
            W words[window];
#pragma unroll
            for (int k = 0; k < window; k++) words[k] = at - k >= 0 ? told[(at - k - int64_t(tile)) * 256] : has_all;
#pragma unroll
            for (int k = 0; k < window; k++) {
                if (done) break;
                while (words[k] == 0) words[k] = told[(at - k - int64_t(tile)) * 256];
                before += words[k] & value;
                done = words[k] & has_all;
            }
        }
        *told = (before + W(total - beyond)) | has_all;
    }
    shift[threadIdx.x] = s.starts[pass * 256 + threadIdx.x] + before - W(local[threadIdx.x]);
    __syncthreads();
    W to[radix_items];
    K* keys_out = from == 1 ? s.other_keys : s.keys;
#pragma unroll
    for (int k = 0; k < radix_items; k++) {
        const int j = k * 256 + threadIdx.x;
        if (j >= size) break;
        const K moved = exchange[j];
        to[k] = shift[digit_of<T>(moved, pass, s.descending)] + W(j);
        if (!last) keys_out[to[k]] = moved;
        else if (s.values) s.values[to[k]] = from_key<T>(Key<T>(moved & K(key_mask<T>)), s.descending);
    }
    if (!s.positions) return;
    __syncthreads();
    P* moving = reinterpret_cast<P*>(exchange);
    const P* positions = (from == 1 ? s.positions : s.other_positions) + base + first;
#pragma unroll
    for (int k = 0; k < radix_items; k++)
        if (first + k * 32 < size) moving[place[k]] = from ? positions[k * 32] : P(base + first + k * 32);
    __syncthreads();
    P* positions_out = from == 1 ? s.other_positions : s.positions;
#pragma unroll
    for (int k = 0; k < radix_items; k++) {
        const int j = k * 256 + threadIdx.x;
        if (j >= size) break;
        if (!last) positions_out[to[k]] = moving[j];
        else {
            int64_t at = int64_t(moving[j]);
            if (s.rows > 1) at -= (s.n < (int64_t(1) << 31) ? int64_t(s.by_row.divide(uint32_t(at))) : at / s.row) * s.row;
            s.indices[to[k]] = at;
        }
    }
}

// Rows that a block holds: all passes in one launch. `kept`: how many of each row are wanted.
template <class T, int Threads, int Items> __global__ void __launch_bounds__(Threads, Threads == 256 && sizeof(T) <= 4 ? 3 : 1)
    sort_rows(const T* in, T* values, int64_t* indices, int64_t n, int64_t kept, int descending, int passes) {
    using K = Key<T>;
    constexpr int warps = Threads / 32;
    __shared__ uint16_t counts[warps][256];
    __shared__ int sums[8], local[256];
    __shared__ K differ[2];
    extern __shared__ unsigned long long memory[];
    K* exchange = reinterpret_cast<K*>(memory);
    in += blockIdx.x * n;
    const int warp = threadIdx.x >> 5, first = warp * (Items * 32) + (threadIdx.x & 31);
    K key[Items];
    uint16_t position[Items];
    const int size = int(n);
    K ones = 0, zeros = 0;  // bits that some element has, and that some lacks
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const int i = first + k * 32;
        position[k] = uint16_t(i);
        key[k] = ~K(0);
        if (i < size) {
            key[k] = to_key(in[i], descending);
            ones |= same_zero<T>(key[k], descending);
            zeros |= ~same_zero<T>(key[k], descending);
        }
    }
    if (threadIdx.x < 2) differ[threadIdx.x] = 0;
    __syncthreads();
    for (int by = 16; by > 0; by /= 2) {
        ones |= __shfl_xor_sync(0xffffffffu, ones, by);
        zeros |= __shfl_xor_sync(0xffffffffu, zeros, by);
    }
    if ((threadIdx.x & 31) == 0) {
        atomicOr(&differ[0], ones);
        atomicOr(&differ[1], zeros);
    }
    for (int pass = 0; pass < passes; pass++) {
        for (int i = threadIdx.x; i < warps * 256; i += Threads) counts[i / 256][i % 256] = 0;
        __syncthreads();
        if (((differ[0] & differ[1]) >> (pass * 8) & 255) == 0) continue;
        int total, all;
        // What is beyond the end has the last digit every time, and so stays behind all others.
        unsigned place[Items];
#pragma unroll
        for (int k = 0; k < Items; k++) place[k] = position[k] < size ? digit_of<T>(key[k], pass, descending) : 255u;
        rank_digits(counts, place, total);
        if constexpr (Threads == 256) local[threadIdx.x] = block_prefix(total, 0, all, sums, Plus());
        else {
            // block_prefix is for 256 threads: the others wait
            const int lane = threadIdx.x & 31;
            int inclusive = total;
            for (int by = 1; by < 32; by *= 2) {
                const int before = __shfl_up_sync(0xffffffffu, inclusive, by);
                if (lane >= by) inclusive += before;
            }
            if (threadIdx.x < 256 && lane == 31) sums[warp] = inclusive;
            __syncthreads();
            if (threadIdx.x < 256) {
                int before = 0;
                for (int w = 0; w < warp; w++) before += sums[w];
                local[threadIdx.x] = before + inclusive - total;
            }
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < Items; k++) {
            const unsigned d = place[k] & 255;
            place[k] = (place[k] >> 8) + local[d] + counts[warp][d];
            exchange[place[k]] = key[k];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < Items; k++) key[k] = exchange[first + k * 32];
        __syncthreads();
        uint16_t* moving = reinterpret_cast<uint16_t*>(exchange);
#pragma unroll
        for (int k = 0; k < Items; k++) moving[place[k]] = position[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < Items; k++) position[k] = moving[first + k * 32];
    }
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const int i = first + k * 32;
        if (i >= size || i >= kept) continue;
        if (values) values[blockIdx.x * kept + i] = from_key<T>(key[k], descending);
        if (indices) indices[blockIdx.x * kept + i] = position[k];
    }
}

// Rows of at most 64: a warp each, which counts for every element those that come before it.
template <class T> __global__ void __launch_bounds__(256)
    sort_short_rows(const T* in, T* values, int64_t* indices, int64_t rows, int n, int kept, int descending) {
    using K = Key<T>;
    const int64_t row = int64_t(blockIdx.x) * 8 + (threadIdx.x >> 5);
    const int lane = threadIdx.x & 31;
    if (row >= rows) return;
    in += row * n;
    const T a = lane < n ? in[lane] : T(), b = lane + 32 < n ? in[lane + 32] : T();
    const K ka = order_key(a, descending), kb = order_key(b, descending);
    int rank_a = 0, rank_b = 0;
    for (int j = 0; j < n; j++) {
        const K other = __shfl_sync(0xffffffffu, j < 32 ? ka : kb, j & 31);
        rank_a += other < ka || (other == ka && j < lane);
        rank_b += other < kb || (other == kb && j < lane + 32);
    }
    if (lane < n && rank_a < kept) {
        if (values) values[row * kept + rank_a] = a;
        if (indices) indices[row * kept + rank_a] = lane;
    }
    if (lane + 32 < n && rank_b < kept) {
        if (values) values[row * kept + rank_b] = b;
        if (indices) indices[row * kept + rank_b] = lane + 32;
    }
}

// The longest run of equal elements of each sorted row, the first of several; where its last element was.
template <class T> __global__ void __launch_bounds__(256)
    mode_of_sorted(const T* sorted, const int64_t* order, T* values, int64_t* indices, int64_t n) {
    // A thread a run: it is counted from its first element, by halving steps.
    __shared__ unsigned long long best;
    sorted += blockIdx.x * n;
    order += blockIdx.x * n;
    if (threadIdx.x == 0) best = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += 256) {
        const Key<T> key = order_key(sorted[i], false);
        if (i > 0 && order_key(sorted[i - 1], false) == key) continue;
        int64_t low = i + 1, high = n;  // the first element that differs
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (order_key(sorted[middle], false) == key) low = middle + 1;
            else high = middle;
        }
        // The longest, then the first: 32 bits for each
        atomicMax(&best, (unsigned long long)(low - i) << 32 | (0xffffffffu - (unsigned)i));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const int64_t start = int64_t(0xffffffffu - unsigned(best)), end = start + int64_t(best >> 32) - 1;
        values[blockIdx.x] = sorted[end];
        indices[blockIdx.x] = order[end];
    }
}

// sorter: null, or for each row of boundaries the permutation that sorts it.
template <class T> __global__ void __launch_bounds__(256)
    search_sorted(int64_t* out, const T* boundaries, const int64_t* sorter, const T* values, int64_t all, int64_t m, int64_t n, int shared,
                  int right, unsigned long long name, Report* report) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= all) return;
    const int64_t row = shared ? 0 : i / n;
    const T* base = boundaries + row * m;
    const Key<T> wanted = order_key(values[i], false);
    auto is_after = [&](Key<T> x) {  // NaN is neither larger nor smaller than anything: it is passed over
        return (right ? x <= wanted : x < wanted) || (has_nan<T> && (x == key_mask<T> || wanted == key_mask<T>));
    };
    int64_t low = 0;
    if (!sorter && m < (int64_t(1) << 31)) {
        unsigned found = 0;
        for (unsigned count = unsigned(m); count > 0;) {
            const unsigned half = count / 2;
            const bool after = is_after(order_key(base[found + half], false));
            found = after ? found + half + 1 : found;
            count = after ? count - half - 1 : half;
        }
        out[i] = found;
        return;
    }
    for (int64_t count = m; count > 0;) {
        const int64_t half = count / 2;
        int64_t at = sorter ? sorter[row * m + low + half] : low + half;
        if (at < 0 || at >= m) {
            report_index(report, at, m, name);
            at = 0;
        }
        const bool after = is_after(order_key(base[at], false));
        low = after ? low + half + 1 : low;
        count = after ? count - half - 1 : half;
    }
    out[i] = low;
}

}  // namespace wisp
