// Running sums, products and extremes; elements where a mask is true, in order.
#include "cuda/kernels/tiles.cuh"
#include "cuda/kernels/index_shape.cuh"

namespace wisp {

enum ScanKind : int { scan_sum, scan_prod, scan_max, scan_min, scan_logsumexp };

template <class C> struct Extreme {
    C value;
    int64_t where;
};
template <int K, class T> struct Scanned {
    using type = compute<T>;
};
template <class T> struct Scanned<scan_max, T> {
    using type = Extreme<compute<T>>;
};
template <class T> struct Scanned<scan_min, T> {
    using type = Extreme<compute<T>>;
};

template <class C> WISP_INLINE C lowest() {
    if constexpr (std::is_same_v<C, uint64_t>) return 0;
    else if constexpr (std::is_integral_v<C>) return INT64_MIN;
    else return C(-INFINITY);
}
template <class C> WISP_INLINE C highest() {
    if constexpr (std::is_same_v<C, uint64_t>) return ~uint64_t(0);
    else if constexpr (std::is_integral_v<C>) return INT64_MAX;
    else return C(INFINITY);
}

// How two neighbouring stretches join; a comes before b.
template <int K> struct Join {
    template <class C> WISP_INLINE C operator()(C a, C b) const {
        if constexpr (K == scan_sum) return a + b;
        else if constexpr (K == scan_prod) return a * b;
        else if constexpr (is_complex<C>) {  // logsumexp: the one with the larger real part is taken out
            if (a.re == -INFINITY && b.re == b.re) return b;
            const C m = a.re > b.re ? a : b, rest = a.re > b.re ? b - a : a - b;
            const auto grown = ::exp(rest.re);
            const auto re = 1 + grown * ::cos(rest.im), im = grown * ::sin(rest.im);
            return a.re != a.re || b.re != b.re ? a + b : C(m.re + ::log(::hypot(re, im)), m.im + ::atan2(im, re));
        } else if constexpr (std::is_integral_v<C>) return a;
        else {
            const C m = a > b ? a : b, low = a > b ? b : a;
            return a != a || b != b ? a + b : m == C(-INFINITY) || m == C(INFINITY) ? m : m + ::log1p(::exp(low - m));
        }
    }
    template <class C> WISP_INLINE Extreme<C> operator()(Extreme<C> a, Extreme<C> b) const {
        const bool later = b.value != b.value || (a.value == a.value && (K == scan_max ? b.value >= a.value : b.value <= a.value));
        return later ? b : a;
    }
};
template <int K, class S> WISP_INLINE S nothing() {
    if constexpr (K == scan_sum) return S(0);
    else if constexpr (K == scan_prod) return S(1);
    else if constexpr (K == scan_max) return S{lowest<decltype(S::value)>(), 0};
    else if constexpr (K == scan_min) return S{highest<decltype(S::value)>(), 0};
    else if constexpr (is_complex<S>) return S(-INFINITY, 0);
    else if constexpr (std::is_integral_v<S>) return S(0);
    else return S(-INFINITY);
}

constexpr WISP_INLINE int padded(int i) { return i + i / 32; }

// Along rows of n elements, `count` tiles each.
template <int K, class T, int Items> __global__ void __launch_bounds__(256)
    scan_tiles(const T* in, T* out, int64_t* indices, int64_t n, unsigned count, const Tiles<typename Scanned<K, T>::type> tiles) {
    using C = compute<T>;
    using S = typename Scanned<K, T>::type;
    constexpr bool extreme = K == scan_max || K == scan_min;
    constexpr int tile_size = 256 * Items;
    __shared__ T cells[tile_size + tile_size / 32];
    __shared__ S sums[8], carried;
    __shared__ unsigned number;
    const unsigned tile = next_tile(tiles, &number), row = tile / count, at = tile - row * count;
    const int64_t start = int64_t(at) * tile_size;
    const int size = n - start < tile_size ? int(n - start) : tile_size;
    in += row * n + start;
    out += row * n + start;
#pragma unroll
    for (int k = 0; k < Items; k++)
        if (const int i = k * 256 + threadIdx.x; i < size) cells[padded(i)] = in[i];
    __syncthreads();
    const Join<K> join;
    S own[Items], all = nothing<K, S>();
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const int i = threadIdx.x * Items + k;
        own[k] = nothing<K, S>();
        if (i < size) {
            const C x = convert<C>(cells[padded(i)]);
            if constexpr (extreme) own[k] = {x, start + i};
            else own[k] = x;
            all = k == 0 ? own[0] : join(all, own[k]);
        }
    }
    S total;
    S running = block_prefix(all, nothing<K, S>(), total, sums, join);
    __syncthreads();
    const S before = tile_prefix(tiles, tile, at, count, total, nothing<K, S>(), sums, &carried, join);
    running = at == 0 ? running : threadIdx.x == 0 ? before : join(before, running);
#pragma unroll
    for (int k = 0; k < Items; k++) {
        running = at == 0 && threadIdx.x == 0 && k == 0 ? own[0] : join(running, own[k]);
        own[k] = running;
    }
#pragma unroll
    for (int k = 0; k < Items; k++) {
        const int i = threadIdx.x * Items + k;
        if constexpr (extreme) cells[padded(i)] = convert<T>(own[k].value);
        else cells[padded(i)] = convert<T>(own[k]);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < Items; k++)
        if (const int i = k * 256 + threadIdx.x; i < size) out[i] = cells[padded(i)];
    if constexpr (extreme) {
        if (!indices) return;
        indices += row * n + start;
#pragma unroll
        for (int k = 0; k < Items; k++)
            if (const int i = threadIdx.x * Items + k; i < size) indices[i] = own[k].where;
    }
}

// The same for sums and products of longer rows. Nothing but one number of each warp goes through shared memory: a warp reads
// `Rounds` times 32 vectors of 16 bytes, one behind the other, and scans each of them in registers.
template <int K, class T, int Rounds> __global__ void __launch_bounds__(256)
    scan_vectors(const T* in, T* out, int64_t n, unsigned count, const Tiles<compute<T>> tiles) {
    using C = compute<T>;
    constexpr int V = 16 / sizeof(T), round_size = 32 * V, warp_size = Rounds * round_size, tile_size = 8 * warp_size;
    __shared__ C sums[8], warps[8], carried;
    __shared__ unsigned number;
    const unsigned tile = next_tile(tiles, &number), row = tile / count, at = tile - row * count;
    const int64_t start = int64_t(at) * tile_size;
    const int size = n - start < tile_size ? int(n - start) : tile_size, warp = threadIdx.x >> 5, lane = threadIdx.x & 31,
              mine = warp * warp_size + lane * V;
    in += row * n + start;
    out += row * n + start;
    const bool whole = size == tile_size && (reinterpret_cast<uint64_t>(in) | reinterpret_cast<uint64_t>(out)) % 16 == 0;
    const Join<K> join;
    C own[Rounds][V];
    if (whole) {
        Vector<T, V> x[Rounds];
#pragma unroll
        for (int r = 0; r < Rounds; r++) x[r] = *reinterpret_cast<const Vector<T, V>*>(in + mine + r * round_size);
#pragma unroll
        for (int r = 0; r < Rounds; r++)
#pragma unroll
            for (int v = 0; v < V; v++) own[r][v] = convert<C>(x[r].at[v]);
    } else {
#pragma unroll
        for (int r = 0; r < Rounds; r++)
#pragma unroll
            for (int v = 0; v < V; v++) {
                const int i = mine + r * round_size + v;
                own[r][v] = i < size ? convert<C>(in[i]) : nothing<K, C>();
            }
    }
    C before[Rounds], all;  // what the lanes before this one hold of a round; of all rounds
#pragma unroll
    for (int r = 0; r < Rounds; r++) {
#pragma unroll
        for (int v = 1; v < V; v++) own[r][v] = join(own[r][v - 1], own[r][v]);
        before[r] = own[r][V - 1];
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const C x = shuffle_up(before[r], by);
            if (lane >= by) before[r] = join(x, before[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < Rounds; r++) {
        const C total = shuffle_from(before[r], 31), x = shuffle_up(before[r], 1);
        before[r] = lane == 0 ? nothing<K, C>() : x;
        if (r > 0) before[r] = lane == 0 ? all : join(all, x);
        all = r == 0 ? total : join(all, total);
    }
    if (lane == 0) warps[warp] = all;
    __syncthreads();
    C earlier = warps[0], total = warps[0];  // of the warps before this one; of all
#pragma unroll
    for (int w = 1; w < 8; w++) {
        if (w == warp) earlier = total;
        total = join(total, warps[w]);
    }
    const C tiles_before = tile_prefix(tiles, tile, at, count, total, nothing<K, C>(), sums, &carried, join);
    if (at > 0) earlier = warp > 0 ? join(tiles_before, earlier) : tiles_before;
    const bool some = at > 0 || warp > 0;  // come before this warp: nothing is joined to what nothing comes before, not even a zero
#pragma unroll
    for (int r = 0; r < Rounds; r++) {
        const bool inside = r > 0 || lane > 0;
        const C base = some ? (inside ? join(earlier, before[r]) : earlier) : before[r];
        Vector<T, V> y;
#pragma unroll
        for (int v = 0; v < V; v++) y.at[v] = convert<T>(some || inside ? join(base, own[r][v]) : own[r][v]);
        if (whole) *reinterpret_cast<Vector<T, V>*>(out + mine + r * round_size) = y;
        else
#pragma unroll
            for (int v = 0; v < V; v++)
                if (const int i = mine + r * round_size + v; i < size) out[i] = y.at[v];
    }
}

// Along the middle of (outer, n, inner): a thread a column.
template <int K, class T> __global__ void __launch_bounds__(128)
    scan_columns(const T* in, T* out, int64_t* indices, int64_t columns, int64_t n, int64_t inner) {
    using C = compute<T>;
    using S = typename Scanned<K, T>::type;
    const int64_t c = int64_t(blockIdx.x) * 128 + threadIdx.x;
    if (c >= columns) return;
    const int64_t base = c / inner * n * inner + c % inner;
    const Join<K> join;
    S running = nothing<K, S>();
    constexpr int ahead = 8;  // elements that are read before they are needed
    C next[ahead];
    for (int64_t i = 0; i < n; i += ahead) {
#pragma unroll
        for (int k = 0; k < ahead; k++)
            if (i + k < n) next[k] = convert<C>(in[base + (i + k) * inner]);
#pragma unroll
        for (int k = 0; k < ahead; k++) {
            if (i + k >= n) break;
            S own;
            if constexpr (K == scan_max || K == scan_min) own = {next[k], i + k};
            else own = next[k];
            running = i + k == 0 ? own : join(running, own);
            if constexpr (K == scan_max || K == scan_min) {
                out[base + (i + k) * inner] = convert<T>(running.value);
                if (indices) indices[base + (i + k) * inner] = running.where;
            } else out[base + (i + k) * inner] = convert<T>(running);
        }
    }
}

// Whether element i differs from the one before it; the first does.
template <class T> __global__ void __launch_bounds__(256) run_starts(const T* in, Bool* out, int64_t n) {
    const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * 4;
    if (i >= n) return;
    T before = in[i > 0 ? i - 1 : 0];
    Bool starts[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const T x = i + k < n ? in[i + k] : before;
        starts[k] = i + k == 0 || !(convert<compute<T>>(x) == convert<compute<T>>(before));
        before = x;
    }
    if (i + 4 <= n) *reinterpret_cast<Vector<Bool, 4>*>(out + i) = Vector<Bool, 4>{starts[0], starts[1], starts[2], starts[3]};
    else
        for (int k = 0; i + k < n; k++) out[i + k] = starts[k];
}

// The first element of each run of equal ones, one behind the other, and how many there are.
template <class T> __global__ void __launch_bounds__(256)
    run_values(const T* in, T* out, int64_t* count, int64_t n, const Tiles<int64_t> tiles) {
    using C = compute<T>;
    constexpr int items = 16, warp_size = items * 32;
    __shared__ int64_t sums[8], carried;
    __shared__ int warps[8];
    __shared__ unsigned number;
    const unsigned tile = next_tile(tiles, &number);
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int64_t first = int64_t(tile) * (8 * warp_size) + warp * warp_size + lane;
    T x[items];
#pragma unroll
    for (int k = 0; k < items; k++)
        if (first + k * 32 < n) x[k] = in[first + k * 32];
    T before_first = x[0];  // what lies before the warp's elements
    if (lane == 0 && first > 0 && first < n) before_first = in[first - 1];
    unsigned starts[items];  // bits: lanes
    int own = 0;
#pragma unroll
    for (int k = 0; k < items; k++) {
        const C here = convert<C>(x[k]), left = shuffle_up(here, 1);
        const C last = k > 0 ? shuffle_from(convert<C>(x[k > 0 ? k - 1 : 0]), 31) : convert<C>(before_first);
        const bool start = first + k * 32 < n && (first + k * 32 == 0 || !(here == (lane == 0 ? last : left)));
        starts[k] = __ballot_sync(0xffffffffu, start);
        own += __popc(starts[k]);
    }
    if (lane == 0) warps[warp] = own;
    __syncthreads();
    int64_t before = 0, total = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        if (w == warp) before = total;
        total += warps[w];
    }
    before += tile_prefix(tiles, tile, tile, gridDim.x, total, int64_t(0), sums, &carried, Plus());
    if (tile == gridDim.x - 1 && threadIdx.x == 255) *count = before + own;
    const unsigned below = (1u << lane) - 1;
#pragma unroll
    for (int k = 0; k < items; k++) {
        if (starts[k] >> lane & 1) out[before + __popc(starts[k] & below)] = x[k];
        before += __popc(starts[k]);
    }
}

// --- masks ---

constexpr int mask_tile = 4096;

// The places within the tile where the mask is true, in order, in `list`; `first`: how many there are before the tile.
WISP_INLINE int true_places(const Bool* mask, int64_t n, const Tiles<int64_t>& tiles, uint16_t* list, int64_t* shared, unsigned* number,
                            int64_t& start, int64_t& first) {
    const unsigned tile = next_tile(tiles, number);
    start = int64_t(tile) * mask_tile;
    const int64_t mine = start + threadIdx.x * 16;
    uint8_t own[16];
    if (mine + 16 <= n && reinterpret_cast<uint64_t>(mask) % 16 == 0) {
        const Vector<uint32_t, 4> words = reinterpret_cast<const Vector<uint32_t, 4>*>(mask)[mine / 16];
        memcpy(own, &words, 16);
    } else
        for (int k = 0; k < 16; k++) own[k] = mine + k < n ? mask[mine + k].byte : 0;
    int64_t count = 0, total;
#pragma unroll
    for (int k = 0; k < 16; k++) count += own[k] != 0;
    int64_t before = block_prefix(count, int64_t(0), total, shared, Plus());
#pragma unroll
    for (int k = 0; k < 16; k++)
        if (own[k]) list[before++] = uint16_t(threadIdx.x * 16 + k);
    __syncthreads();
    first = tile_prefix(tiles, tile, tile, gridDim.x, total, int64_t(0), shared, shared + 8, Plus());
    return int(total);
}

template <int Bytes> __global__ void __launch_bounds__(256)
    masked_select(void* out, const void* in, const Bool* mask, int64_t n, const Tiles<int64_t> tiles) {
    using T = Cell<Bytes>;
    __shared__ uint16_t list[mask_tile];
    __shared__ int64_t shared[9];
    __shared__ unsigned number;
    int64_t start, first;
    const int count = true_places(mask, n, tiles, list, shared, &number, start, first);
    for (int j = threadIdx.x; j < count; j += 256) static_cast<T*>(out)[first + j] = static_cast<const T*>(in)[start + list[j]];
}
template <int Bytes> __global__ void __launch_bounds__(256)
    masked_scatter(void* out, const Bool* mask, const void* values, int64_t n, const Tiles<int64_t> tiles) {
    using T = Cell<Bytes>;
    __shared__ uint16_t list[mask_tile];
    __shared__ int64_t shared[9];
    __shared__ unsigned number;
    int64_t start, first;
    const int count = true_places(mask, n, tiles, list, shared, &number, start, first);
    for (int j = threadIdx.x; j < count; j += 256) static_cast<T*>(out)[start + list[j]] = static_cast<const T*>(values)[first + j];
}
__global__ void __launch_bounds__(256) nonzero(int64_t* out, int64_t row_step, int64_t column_step, const Bool* mask, int64_t n,
                                               const IndexShape s, const Tiles<int64_t> tiles) {
    __shared__ uint16_t list[mask_tile];
    __shared__ int64_t shared[9];
    __shared__ unsigned number;
    int64_t start, first;
    const int count = true_places(mask, n, tiles, list, shared, &number, start, first);
    for (int j = threadIdx.x; j < count; j += 256) {
        int64_t rest = start + list[j];
        for (int d = 0; d < s.dims; d++) {
            const int64_t next = d + 1 < s.dims ? divided(s, d, rest) : 0;
            out[(first + j) * row_step + (s.dims - 1 - d) * column_step] = rest - next * s.sizes[d];
            rest = next;
        }
    }
}

}  // namespace wisp
