// Attention for half types and float, forward and backward, in tiles of the tensor cores: scores exist in registers only. Each block of
// threads keeps `Rows` rows of one side and lets tiles of `Columns` rows of the other side pass through shared memory; the
// weights, made in registers, are the left operand of the next product as they lie. Backward goes over the scores by keys (grad_key,
// grad_value) and by queries (grad_query): every sum has one owner, so results are deterministic. The second pass makes the gradients
// of the scores again, unless there is memory to keep them in (attention_slopes.cuh).
//
// General: 0, or 1 with dropout whose bits are there, or 2 with mask, other dropout or a scale that is not positive. Overlap: the product
// with the weights of one tile runs while the weights of the next are made. Wide: see mma.cuh. Halves: 2 if a warpgroup has 128 rows, for
// which tiles come half as often. Ahead: how many tiles are on their way.
//
// Float comes in parts (attention_parts.cuh) and has six products for one. The tensor cores cut off what sums can't hold instead of
// rounding it, so the products of a tile are summed apart and then added.
#include "cuda/kernels/attention_common.cuh"
#include "cuda/kernels/mma.cuh"

namespace wisp {

WISP_INLINE uint32_t tiles_begin() {
    extern __shared__ __align__(1024) char memory[];
    return shared_address(memory);
}

// Element e of n of a thread's scores, as (row, column) of the tile.
WISP_INLINE int row_of(int e) { return int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4 + e / 2 * 8; }
WISP_INLINE int column_of(int n, int e) { return n * 8 + int(threadIdx.x) % 4 * 2 + e % 2; }

// Scores of pairs outside of the matrix, or above the diagonal, become -inf: the columns that a row sees are a range.
// Transposed: rows are keys.
template <bool Transposed, int N> WISP_INLINE void hide(float (&s)[N][4], const AttentionArguments& a, int row, int column) {
    const int here = column + column_of(0, 0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = row + row_of(2 * i);
        const int first = Transposed && a.causal ? r - here : -here, end = (Transposed ? a.queries
                                                                            : a.causal ? min(a.keys, r + 1)
                                                                                       : a.keys) -
                                                                           here;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (n * 8 + e >= end || (Transposed && n * 8 + e < first)) s[n][2 * i + e] = -INFINITY;
    }
}

// A thread's part of a tile of the mask, read while its scores are made. Places outside of the matrix read its last row and column.
template <bool Transposed, class T, int N> struct MaskTile {
    static_assert(N <= 8);
    uint32_t seen;  // bit n * 4 + e of a boolean mask
    T added[N][4];  // another mask
    WISP_INLINE void load(const Visibility<T>& visible, int row, int column) {
        const AttentionArguments& a = visible.a;
        if (!a.mask) return;
        if (a.mask_is_bool) {
            seen = 0;
            each<uint8_t>(visible, row, column, [&](int n, int e, uint8_t x) { seen |= uint32_t(x != 0) << (n * 4 + e); });
        } else {
            each<T>(visible, row, column, [&](int n, int e, T x) { added[n][e] = x; });
        }
    }
    template <class V, class Use> static WISP_INLINE void each(const Visibility<T>& visible, int row, int column, Use use) {
        const AttentionArguments& a = visible.a;
        const int rows = Transposed ? a.keys : a.queries, columns = Transposed ? a.queries : a.keys;
        const int64_t down = Transposed ? a.mask_column : a.mask_row;
        const int across = int(Transposed ? a.mask_row : a.mask_column);  // the launch has checked that it fits
        const V* mask = reinterpret_cast<const V*>(visible.mask);
        const bool pairs = !Transposed && across == 1 && column + N * 8 <= columns &&
                           (reinterpret_cast<uint64_t>(mask) | uint64_t(down) * sizeof(V)) % (2 * sizeof(V)) == 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const V* from = mask + min(row + row_of(2 * i), rows - 1) * down;
            if (pairs) {
#pragma unroll
                for (int n = 0; n < N; n++) {
                    const Vector<V, 2> x = *reinterpret_cast<const Vector<V, 2>*>(from + column + column_of(n, 0));
                    use(n, 2 * i, x.at[0]);
                    use(n, 2 * i + 1, x.at[1]);
                }
            } else {
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 2 * i; e < 2 * i + 2; e++) use(n, e, from[int64_t(min(column + column_of(n, e), columns - 1)) * across]);
            }
        }
    }
    // Scores times `scale` with the mask, to base 2.
    WISP_INLINE void apply(float (&s)[N][4], const AttentionArguments& a, float scale) const {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] *= scale;
        if (!a.mask) return;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (a.mask_is_bool) s[n][e] = seen >> (n * 4 + e) & 1 ? s[n][e] : -INFINITY;
                else s[n][e] += float(added[n][e]) * log2_e<float>;
            }
    }
};

// Which of a thread's weights dropout keeps: bit n * 4 + e. One call of the generator makes the numbers of four columns 16 apart; where
// rows are keys these belong to four warps, which then make a fourth each for all, by way of `exchange`: 512 bytes of shared memory.
template <bool Transposed, bool Bits, class T, int N>
WISP_INLINE uint32_t kept_weights(const Visibility<T>& visible, int row, int column, uint32_t exchange = 0) {
    static_assert(N <= 8);
    const AttentionArguments& a = visible.a;
    uint32_t bits = 0;
    if (Bits || a.kept) {
        auto from = [&](int q, int k) { return uint64_t(visible.first + q * int64_t(a.keys) + k); };
        if constexpr (!Transposed) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int q = row + row_of(2 * half);
                if (q >= a.queries) continue;
                const uint64_t e = from(q, column);
                const uint32_t *at = a.kept + e / 32, low = at[0], middle = at[1], shift = uint32_t(e % 32);
                const uint32_t words[2] = {__funnelshift_r(low, middle, shift), N > 4 ? __funnelshift_r(middle, at[2], shift) : 0};
#pragma unroll
                for (int n = 0; n < N; n++) bits |= (words[n / 4] >> (n % 4 * 8 + threadIdx.x % 4 * 2) & 3) << (n * 4 + 2 * half);
            }
        } else {
            // A thread reads the bits of a query or two, of the 16 keys of its warp; the others get theirs from it.
            const int lane = threadIdx.x % 32, k = row + int(threadIdx.x) / 32 * 16;
            uint32_t of_query[(N + 3) / 4] = {};
#pragma unroll
            for (int j = 0; j < (N + 3) / 4; j++) {
                const int q = column + j * 32 + lane;
                if (q >= a.queries || k >= a.keys) continue;
                const uint64_t e = from(q, k);
                const uint32_t* at = a.kept + e / 32;
                of_query[j] = __funnelshift_r(at[0], at[1], uint32_t(e % 32));
            }
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const uint32_t here = __shfl_sync(~0u, of_query[n / 4], n % 4 * 8 + lane % 4 * 2 + i) >> lane / 4;
                    bits |= (here & 1) << (n * 4 + i) | (here >> 8 & 1) << (n * 4 + 2 + i);
                }
        }
        return bits;
    }
    if constexpr (Bits) return bits;
    if constexpr (N == 8)
        if (a.keys % 64 == 0 && (!Transposed || blockDim.x == 128)) {
            const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
            uint32_t found[4] = {};
#pragma unroll 1
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int q = Transposed ? column + column_of(warp * 2 + n, e) : row + row_of(e);
                    const int k = Transposed ? row + lane / 4 + e / 2 * 8 : column + column_of(n, e);
                    const Words w = visible.draw(uint64_t(visible.first + q * int64_t(a.keys) + k));
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (uint64_t(w.at[i]) < a.keep_below) found[i] |= 1u << (n * 4 + e);
                }
            if constexpr (!Transposed) return found[0] | found[1] << 8 | found[2] << 16 | found[3] << 24;
#pragma unroll
            for (int i = 0; i < 4; i++)
                asm volatile("st.shared.b8 [%0], %1;" ::"r"(exchange + (i * 32 + lane) * 4 + warp), "r"(found[i]) : "memory");
            __syncthreads();
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(bits) : "r"(exchange + threadIdx.x * 4) : "memory");
            return bits;
        }
#pragma unroll 1
    for (int i = 0; i < N * 4; i++) {
        const int r = row + row_of(i % 4), c = column + column_of(i / 4, i % 4);
        if (visible.template kept<float>(Transposed ? c : r, Transposed ? r : c) != 0) bits |= 1u << i;
    }
    return bits;
}

// How a kernel's tiles lie in shared memory: `Own` of Rows rows, then stages of two of Columns rows each.
template <class T, int D, int Rows, int Columns, int Own, int Stages> struct Places {
    static constexpr int stages = Stages, tile = tile_bytes<Columns, D> * parts_of<T>, own_tile = tile_bytes<Rows, D> * parts_of<T>;
    uint32_t own, first, second, end;
    WISP_INLINE Places() : own(tiles_begin()), first(own + Own * own_tile), second(first + stages * tile), end(second + stages * tile) {}
    static WISP_INLINE int next(int stage) { return stage == stages - 1 ? 0 : stage + 1; }
    static WISP_INLINE int last(int stage) { return stage == 0 ? stages - 1 : stage - 1; }
};
template <class T> WISP_INLINE int tile_width(int width) { return parts_of<T> == 1 ? width : (width + 7) / 8 * 8; }

template <class T, int Rows, bool Aligned, int N> WISP_INLINE void store_sums(const float (&sums)[N][4], const float (&factor)[2],
                                                                              uint32_t tile, T* to, int64_t stride, int rows, int width) {
    if constexpr (std::is_same_v<T, float>) store_floats(sums, factor, to, stride, rows, width);
    else store_rows<T, Rows, Aligned>(sums, factor, tile, to, stride, rows, width);
}

// What mask and dropout make of a tile; nothing unless General.
template <bool Transposed, int General, class T, int N> struct SeenTile {
    MaskTile<Transposed, T, General == 2 ? N : 1> mask;
    uint32_t kept = 0xffffffffu;

    WISP_INLINE void load(const Visibility<T>& visible, int row, int column, uint32_t exchange = 0) {
        if constexpr (General == 2) mask.load(visible, row, column);
        if constexpr (General != 0)
            if (General == 1 || visible.a.dropout) kept = kept_weights<Transposed, General == 1, T, N>(visible, row, column, exchange);
    }
    WISP_INLINE void apply(float (&s)[N][4], const AttentionArguments& a, float scale) const {
        if constexpr (General == 2) mask.apply(s, a, scale);
    }
    WISP_INLINE void drop(float (&s)[N][4], const AttentionArguments& a) const {
        if constexpr (General != 0)
            if (General == 1 || a.dropout) {
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) s[n][e] = kept >> (n * 4 + e) & 1 ? s[n][e] * float(a.keep_scale) : 0.f;
            }
    }
};

// Rows of softmax that come tile by tile: the scores of one tile, and for each row the largest so far, the sum of weights and of
// weighted values below it.
template <class E, class T, int D, int N> struct SoftRows {
    float sums[D / 8][4], top[2], total[2], s[N][4], shrink[2];
    Left<T, N> weights;

    WISP_INLINE void clear() {
        E::clear(sums);
        top[0] = top[1] = -INFINITY;
        total[0] = total[1] = 0;
    }
    // From scores to weights.
    WISP_INLINE void soften(float to_base_2) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float some[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  // short chains of dependent instructions
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) some[n % 2 * 2 + e] = fmaxf(some[n % 2 * 2 + e], s[n][2 * r + e]);
            float most = fmaxf(fmaxf(some[0], some[1]), fmaxf(some[2], some[3]));
            most = fmaxf(top[r], over_quad(most, [](float a, float b) { return fmaxf(a, b); }));
            const float base = most == -INFINITY ? 0.f : most * to_base_2;  // nothing seen yet: all weights are zero
            shrink[r] = power_of_2(top[r] * to_base_2 - base);
            top[r] = most;
#pragma unroll
            for (int e = 0; e < 4; e++) some[e] = 0;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    s[n][2 * r + e] = power_of_2(s[n][2 * r + e] * to_base_2 - base);
                    some[n % 2 * 2 + e] += s[n][2 * r + e];
                }
            total[r] = total[r] * shrink[r] + ((some[0] + some[1]) + (some[2] + some[3]));
        }
    }
    // The sums so far for the new maximum, before the weights of this tile are used.
    WISP_INLINE void rescale() {
        E::hold(sums);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[n][e] *= shrink[e / 2];
        pack_left<T>(s, weights);
    }
    // What the sums are to be multiplied with, and the logarithms of the rows' sums, in units of `unit`.
    WISP_INLINE void finish(float to_base_2, float unit, float* logsumexp, int rows, float (&factor)[2]) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float all = sum_of_quad(total[r]);
            factor[r] = all == 0 ? 0.f : 1 / all;
            // A row that sees nothing: +inf, which makes its weights zero when they are recomputed.
            if (threadIdx.x % 4 == 0 && row_of(2 * r) < rows)
                logsumexp[row_of(2 * r)] = all == 0 ? INFINITY : (top[r] * to_base_2 + log2f(all)) * unit;
        }
    }
};

// The tiles of keys and values that a block of queries sees, tiles [begin, end) one after the other, `Ahead` of them on their way
// while one is worked on.
template <class T, int D, int Columns, int Threads, bool Aligned, int Ahead, bool Wide, class Place> struct KeyTiles {
    using S = typename Parts<T>::Element;
    using Loader = TileLoader<Columns, D, Threads, Aligned, S, parts_of<T>>;
    const AttentionArguments& a;
    const Place& place;
    Loader keys, values;
    int end, stage = 0;  // stage: where the tile that is worked on lies

    template <class Block> WISP_INLINE KeyTiles(const AttentionArguments& a, const Block& block, const Place& place, int begin, int end)
        : a(a),
          place(place),
          keys(block.template other<S>(a.key, a.share) + begin * Columns * a.key.row, a.key.row, tile_width<T>(a.width)),
          values(block.template other<S>(a.value, a.share) + begin * Columns * a.value.row, a.value.row, tile_width<T>(a.value_width)),
          end(end) {}
    WISP_INLINE void load(int i, int stage) {
        keys.next(place.first + stage * place.tile, a.keys - i * Columns);
        values.next(place.second + stage * place.tile, a.keys - i * Columns);
    }
    WISP_INLINE void start(int begin) {
#pragma unroll
        for (int i = 0; i < Ahead; i++) {
            if (begin + i < end) load(begin + i, i);
            copies_end();
        }
    }
    // Waits for tile i and sends for a later one.
    WISP_INLINE void arrive(int i) {
        copies_wait<Wide, Ahead - 1>();
        __syncthreads();
        if (i + Ahead < end) load(i + Ahead, Ahead == 1 ? place.next(stage) : (stage + Ahead) % place.stages);
        copies_end();
    }
    WISP_INLINE uint32_t key() const { return place.first + stage * place.tile; }
    WISP_INLINE uint32_t value(int stage) const { return place.second + stage * place.tile; }
};

// Results of a block's rows from `first` on, or of its piece of the keys, by way of the shared memory at `tile`.
template <class T, int Rows, bool Aligned, class Soft, class Block>
WISP_INLINE void store_soft_rows(const Soft& x, const AttentionArguments& a, const Block& block, int first, uint32_t tile,
                                 float to_base_2) {
    const int rows = a.queries - block.q0 - first;
    float* lse = gridDim.z > 1 ? static_cast<float*>(a.piece_logsumexp) + block.piece : static_cast<float*>(a.logsumexp) + block.row;
    float factor[2];
    x.finish(to_base_2, gridDim.z > 1 ? 1.f : base_2_in<T>, lse + first, rows, factor);
    if (gridDim.z > 1) {
        float* to = static_cast<float*>(a.pieces) + (block.piece + first) * a.value_width;
        store_floats(x.sums, factor, to, a.value_width, rows, a.value_width);
    } else {
        T* to = block.template own<T>(a.out) + first * a.out.row;
        store_sums<T, Rows, Aligned>(x.sums, factor, tile, to, a.out.row, rows, a.value_width);
    }
}

template <class T, int D, int Rows, int Columns, int Halves, int Blocks, int Ahead, bool Overlap, bool Wide, int General, bool Aligned>
__global__ void __launch_bounds__(Rows * 2 / Halves, Blocks) attention_forward(const __grid_constant__ AttentionArguments a) {
    begin_early();
    using E = Engine<Wide>;
    using S = typename Parts<T>::Element;
    constexpr int threads = Rows * 2 / Halves, N = Columns / 8, parts = parts_of<T>;
    constexpr bool apart = parts > 1;
    static_assert(!(apart && Overlap) && (Halves == 1 || (Rows == 128 && !Overlap && !General && !apart)));
    const QueryBlock<Rows> block(a);
    const int b = block.b, h = block.h, q0 = block.q0;
    const Places<T, D, Rows, Columns, 1, Ahead + (Overlap ? 2 : 1)> place;
    const int2 part = block.part_of((block.limit + Columns - 1) / Columns);
    const int begin = part.x, end = part.y;
    KeyTiles<T, D, Columns, threads, Aligned, Ahead, Wide, decltype(place)> tiles(a, block, place, begin, end);
    TileLoader<Rows, D, threads, Aligned, S, parts>(block.template own<S>(a.query), a.query.row, tile_width<T>(a.width))
        .next(place.own, a.queries - q0);
    tiles.start(begin);

    const Visibility<T> visible(a, b, h);
    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General == 2 ? 1.f : scale;
    SoftRows<E, T, D, N> half[Halves];
#pragma unroll
    for (auto& x : half) x.clear();
    auto scores = [&](int which) {
        E::template rows_by_rows<T, D, Rows>(half[which].s, place.own + which * (64 * 128), tiles.key());
        E::end();
    };
    auto add_values = [&](int which, int stage) {
        auto& x = half[which];
        if constexpr (apart) {
            E::template add_apart<T, D>(x.sums, x.weights, tiles.value(stage));
        } else {
            E::template left_by_columns<T, D, true>(x.sums, x.weights, tiles.value(stage));
            E::end();
        }
    };
    SeenTile<false, General, T, N> seen;
    auto prepare = [&](int i) { seen.load(visible, q0, i * Columns); };  // while scores are made
    auto soften = [&](int which, int i) {
        auto& x = half[which];
        E::hold(x.s);
        const int k0 = i * Columns, first = q0 + which * 64;
        seen.apply(x.s, a, scale);
        if (k0 + Columns > a.keys || (a.causal && k0 + Columns - 1 > first)) hide<false>(x.s, a, first, k0);
        x.soften(to_base_2);
        seen.drop(x.s, a);
    };
    if constexpr (Overlap) {
        tiles.arrive(begin);
        E::begin();
        scores(0);
        prepare(begin);
        E::template wait<0>();
        soften(0, begin);
        pack_left<T>(half[0].s, half[0].weights);
        for (int i = begin + 1; i < end; i++) {
            const int last = tiles.stage;
            tiles.stage = place.next(last);
            tiles.arrive(i);
            E::begin();
            scores(0);
            add_values(0, last);
            prepare(i);
            E::template wait<1>();
            soften(0, i);
            E::settle(half[0].s);
            E::template wait<0>();
            half[0].rescale();
        }
        E::begin();
        add_values(0, tiles.stage);
        E::template wait<0>();
    } else {
        for (int i = begin; i < end; i++) {
            tiles.arrive(i);
            E::begin();
#pragma unroll
            for (int which = 0; which < Halves; which++) scores(which);
            prepare(i);
#pragma unroll
            for (int which = 0; which < Halves; which++) {  // one half's scores become weights while the other's products are made
                E::template wait<Halves == 1 ? 0 : 1>();
                soften(which, i);
                half[which].rescale();
                if constexpr (!apart) E::begin();
                add_values(which, tiles.stage);
            }
            if constexpr (!apart) E::template wait<0>();
            tiles.stage = place.next(tiles.stage);
        }
    }
    copies_wait<false>();
    __syncthreads();
#pragma unroll
    for (int which = 0; which < Halves; which++) {
        E::hold(half[which].sums);
        store_soft_rows<T, Rows, Aligned>(half[which], a, block, which * 64, place.own + which * (64 * 128), to_base_2);
    }
}

// The dot product of rows of grad and out, in all four threads of a row.
template <class T, bool Aligned> WISP_INLINE float product_of_rows(const AttentionArguments& a, int b, int h, int q) {
    if (q >= a.queries) return 0;
    using S = typename Parts<T>::Element;
    const S* g = a.grad.at<S>(b, h) + q * a.grad.row;
    const T* y = a.out.at<T>(b, h) + q * a.out.row;
    float sum = 0;
    for (int c = threadIdx.x % 4 * 8; c < a.value_width; c += 32) {
        if constexpr (Aligned && parts_of<T> == 1) {
            const Vector<T, 8> x = *reinterpret_cast<const Vector<T, 8>*>(g + c), z = *reinterpret_cast<const Vector<T, 8>*>(y + c);
#pragma unroll
            for (int e = 0; e < 8; e++) sum += float(x.at[e]) * float(z.at[e]);
        } else {
            for (int e = 0; e < 8 && c + e < a.value_width; e++) {
                float x = 0;
#pragma unroll
                for (int part = parts_of<T> - 1; part >= 0; part--) x += float(g[part * tile_width<T>(a.value_width) + c + e]);
                sum += x * float(y[c + e]);
            }
        }
    }
    return sum;
}

// What backward needs of a thread's two rows: the logarithm of the sum of weights, and the product of grad and out, which are left
// for attention_backward_keys.
template <class T, bool Aligned, int Rows>
WISP_INLINE void numbers_of_rows(const AttentionArguments& a, const QueryBlock<Rows>& block, float (&lse)[2], float (&product)[2]) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int q = block.q0 + row_of(2 * r);
        const int64_t at = block.row + row_of(2 * r);
        product[r] = sum_of_quad(product_of_rows<T, Aligned>(a, block.b, block.h, q));
        lse[r] = q < a.queries ? static_cast<const float*>(a.logsumexp)[at] * (1 / base_2_in<T>) : INFINITY;
        if (threadIdx.x % 4 == 0 && q < a.queries) {
            static_cast<float*>(a.product)[at] = product[r];
            static_cast<float*>(a.base_2)[at] = lse[r];
        }
    }
}

// The gradient of the queries; leaves the products of rows of grad and out for attention_backward_keys.
template <class T, int D, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, int General, bool Aligned>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_backward_queries(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    using S = typename Parts<T>::Element;
    constexpr int threads = Rows * 2, N = Columns / 8, parts = parts_of<T>;
    constexpr bool apart = parts > 1;
    static_assert(!(apart && Overlap));
    const QueryBlock<Rows> block(a);
    const int b = block.b, h = block.h, q0 = block.q0;
    const Places<T, D, Rows, Columns, 2, Overlap ? 3 : 2> place;
    const uint32_t query = place.own, grad = query + place.own_tile;
    const int count = (block.limit + Columns - 1) / Columns;
    KeyTiles<T, D, Columns, threads, Aligned, 1, Wide, decltype(place)> tiles(a, block, place, 0, count);
    TileLoader<Rows, D, threads, Aligned, S, parts>(block.template own<S>(a.query), a.query.row, tile_width<T>(a.width))
        .next(query, a.queries - q0);
    TileLoader<Rows, D, threads, Aligned, S, parts>(block.template own<S>(a.grad), a.grad.row, tile_width<T>(a.value_width))
        .next(grad, a.queries - q0);
    tiles.start(0);

    const Visibility<T> visible(a, b, h);
    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General == 2 ? 1.f : scale;
    float lse[2], product[2];
    numbers_of_rows<T, Aligned>(a, block, lse, product);
    float sums[D / 8][4] = {};
    Left<T, N> slopes;
    for (int i = 0; i < count; i++) {
        tiles.arrive(i);
        float s[N][4], d[N][4];
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, query, tiles.key());
        E::end();
        E::template rows_by_rows<T, D, Rows>(d, grad, tiles.value(tiles.stage));
        E::end();
        if constexpr (Overlap) {
            if (i > 0) E::template left_by_columns<T, D, true>(sums, slopes, place.first + place.last(tiles.stage) * place.tile);
            E::end();
        }
        const int k0 = i * Columns;
        SeenTile<false, General, T, N> seen;
        seen.load(visible, q0, k0);
        E::template wait<Overlap ? 2 : 1>();
        E::hold(s);
        seen.apply(s, a, scale);
        if (k0 + Columns > a.keys || (a.causal && k0 + Columns - 1 > q0)) hide<false>(s, a, q0, k0);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = power_of_2(s[n][e] * to_base_2 - lse[e / 2]);
        E::template wait<Overlap ? 1 : 0>();
        E::hold(d);
        seen.drop(d, a);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] *= d[n][e] - product[e / 2];
        if constexpr (Overlap) {
            E::settle(s);
            E::template wait<0>();
            E::hold(sums);
        }
        pack_left<T>(s, slopes);
        if constexpr (apart) {
            E::template add_apart<T, D>(sums, slopes, tiles.key());
        } else if constexpr (!Overlap) {
            E::begin();
            E::template left_by_columns<T, D, true>(sums, slopes, tiles.key());
            E::end();
            E::template wait<0>();
        }
        tiles.stage = place.next(tiles.stage);
    }
    if constexpr (Overlap) {
        E::begin();
        E::template left_by_columns<T, D, true>(sums, slopes, place.first + place.last(tiles.stage) * place.tile);
        E::end();
    }
    E::template wait<0>();
    E::hold(sums);
    const float factor[2] = {float(a.scale), float(a.scale)};
    __syncthreads();
    store_sums<T, Rows, Aligned>(sums, factor, query, block.template own<T>(a.grad_query), a.grad_query.row, a.queries - q0, a.width);
}

// The tiles of queries that see a block of keys, of all heads that share it, with grad and, as floats, logsumexp and product.
template <class T, int D, int Columns, int Threads, bool Aligned> struct QueryTiles {
    using S = typename Parts<T>::Element;
    using Loader = TileLoader<Columns, D, Threads, Aligned, S, parts_of<T>>;
    const AttentionArguments& a;
    int b, head, first, query;  // the next tile's, but for `first`: the tile that a head begins with
    int64_t row = 0;            // of the next tile's first query among those of all heads
    Loader queries, grads;

    WISP_INLINE QueryTiles(const AttentionArguments& a, int b, int key_head, int first)
        : a(a),
          b(b),
          head(key_head * a.share),
          first(first),
          query(a.queries),
          queries(nullptr, a.query.row, tile_width<T>(a.width)),
          grads(nullptr, a.grad.row, tile_width<T>(a.value_width)) {}
    // Sends for the next tile of queries and its numbers; then `load_grads` for that of grad.
    WISP_INLINE void load(uint32_t to_query, uint32_t to_numbers) {
        if (query >= a.queries) {  // a head begins
            query = first * Columns;
            row = (int64_t(b) * a.heads + head) * a.queries + query;
            queries.begin(a.query.at<S>(b, head) + query * a.query.row);
            grads.begin(a.grad.at<S>(b, head) + query * a.grad.row);
            head++;
        }
        const int rows = a.queries - query;
        queries.next(to_query, rows);
        if (threadIdx.x < 2 * Columns) {
            const int q = threadIdx.x % Columns;
            const float* from = static_cast<const float*>(threadIdx.x >= Columns ? a.product : a.base_2);
            copy_async_4(to_numbers + threadIdx.x * 4, from + row + q, q < rows);
        }
        query += Columns;
        row += Columns;
    }
    WISP_INLINE void load_grads(uint32_t to_grad) { grads.next(to_grad, a.queries - query + Columns); }
};

// Scores become weights where columns are queries, whose logsumexp are in shared memory.
template <int N> WISP_INLINE void weights_of_columns(float (&s)[N][4], uint32_t logsumexp, float to_base_2) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float lse[2];
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(lse[0]), "=f"(lse[1]) : "r"(logsumexp + n * 32) : "memory");
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = power_of_2(s[n][e] * to_base_2 - lse[e % 2]);
    }
}

// Gradients of weights become those of scores, in d; the weights in s become what dropout makes of them.
template <int General, int N>
WISP_INLINE void slopes_of_columns(float (&s)[N][4], float (&d)[N][4], uint32_t products, uint32_t kept, float keep_scale) {
    auto factor = [&](int n, int e) { return kept >> (n * 4 + e) & 1 ? keep_scale : 0.f; };
#pragma unroll
    for (int n = 0; n < N; n++) {
        float product[2];
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(product[0]), "=f"(product[1]) : "r"(products + n * 32) : "memory");
#pragma unroll
        for (int e = 0; e < 4; e++) {
            d[n][e] = s[n][e] * ((General != 0 ? d[n][e] * factor(n, e) : d[n][e]) - product[e % 2]);
            if constexpr (General != 0) s[n][e] *= factor(n, e);
        }
    }
}

// The gradients of a warp's scores, 16 keys by K * 16 queries from q0 on, for attention_queries_of_slopes: 8 by 8 transposed at a time.
template <int K>
WISP_INLINE void keep_slopes(const uint32_t (&slopes)[1][K][4], const AttentionArguments& a, int64_t head, int q0, int k0) {
    const int column = k0 / 16 + int(threadIdx.x) / 32, keys = a.keys - column * 16;
#pragma unroll
    for (int k = 0; k < K; k++) {
        uint32_t x[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(x[e]) : "r"(slopes[0][k][e % 2 * 2 + e / 2]));
        if (keys < 16) {  // keys that there are not have no gradient, but might have made infinities
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (const int left = keys - int(threadIdx.x) % 4 * 2 - e / 2 * 8; left < 2) x[e] = left < 1 ? 0 : x[e] & 0xffff;
        }
        *a.slopes_of(head, q0 / 16 + k, column) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

// What a block over keys makes: the gradients of both, or, of heads so wide that the sums of both have no room, of one.
enum { of_keys = 1, of_values = 2 };

// The gradients of keys and values: scores are transposed, rows are keys.
template <int Kinds, class T, int D, int Rows, int Columns, bool Overlap, bool Wide, int General, bool Aligned>
WISP_INLINE void backward_of_keys(const AttentionArguments& a) {
    using E = Engine<Wide>;
    using S = typename Parts<T>::Element;
    constexpr int threads = Rows * 2, N = Columns / 8, parts = parts_of<T>;
    constexpr bool apart = parts > 1, both = Kinds == (of_keys | of_values);
    constexpr int stages = 2, grad_stages = Kinds == of_keys ? 1 : stages;  // grad is used once there: the next may come after that
    static_assert(!(apart && Overlap));
    constexpr int tile = tile_bytes<Columns, D> * parts, own_tile = tile_bytes<Rows, D> * parts;
    const KeyBlock<Rows> block(a);
    const int kh = block.h, b = block.b, k0 = block.k0;
    const uint32_t key = tiles_begin(), value = key + own_tile, query = key + own_tile * (Kinds & of_keys ? 2 : 1),
                   grad = query + stages * tile, numbers = grad + grad_stages * tile;
    const int first = a.causal ? k0 / Columns : 0, tiles = (a.queries + Columns - 1) / Columns, of_head = max(tiles - first, 0),
              all = of_head * a.share;
    QueryTiles<T, D, Columns, threads, Aligned> queries(a, b, kh, first);
    auto load = [&](int stage) {
        queries.load(query + stage * tile, numbers + stage * (8 * Columns));
        if constexpr (grad_stages > 1) queries.load_grads(grad + stage * tile);
    };
    TileLoader<Rows, D, threads, Aligned, S, parts>(block.template own<S>(a.key), a.key.row, tile_width<T>(a.width)).next(key, a.keys - k0);
    if constexpr ((Kinds & of_keys) != 0)
        TileLoader<Rows, D, threads, Aligned, S, parts>(block.template own<S>(a.value), a.value.row, tile_width<T>(a.value_width))
            .next(value, a.keys - k0);
    if (all > 0) {
        load(0);
        if constexpr (grad_stages == 1) queries.load_grads(grad);
    }
    copies_end();

    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General == 2 ? 1.f : scale;
    float to_key[Kinds & of_keys ? D / 8 : 1][4] = {}, to_value[Kinds & of_values ? D / 8 : 1][4] = {};
    Left<T, N> weights, slopes;
    int stage = 0, head = kh * a.share, q0 = first * Columns;
    auto keep = [&] {
        if constexpr (!apart)
            if (a.slopes) keep_slopes(slopes, a, int64_t(b) * a.heads + head - a.first_head, q0, k0);
    };
    for (int i = 0; i < all; i++) {
        const int next = 1 - stage;
        const uint32_t queries_here = query + stage * tile, grads_here = grad + (grad_stages > 1 ? stage * tile : 0);
        copies_wait<Wide>();
        __syncthreads();
        if (i + 1 < all) load(next);
        copies_end();
        float s[N][4], d[Kinds & of_keys ? N : 1][4];
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, key, queries_here);
        E::end();
        if constexpr ((Kinds & of_keys) != 0) {
            E::template rows_by_rows<T, D, Rows>(d, value, grads_here);
            E::end();
        }
        const Visibility<T> visible(a, b, head);
        SeenTile<true, General, T, N> seen;
        seen.load(visible, k0, q0, numbers + stages * (8 * Columns));
        E::template wait<Kinds & of_keys ? 1 : 0>();
        E::hold(s);
        seen.apply(s, a, scale);
        if (q0 + Columns > a.queries || (a.causal && k0 + Rows - 1 > q0)) hide<true>(s, a, k0, q0);
        const uint32_t number = numbers + stage * (8 * Columns) + threadIdx.x % 4 * 8;
        weights_of_columns(s, number, to_base_2);
        if constexpr (both && Overlap) {
            pack_left<T>(s, weights);
            E::begin();
            E::template left_by_columns<T, D, true>(to_value, weights, grads_here);
            E::end();
            E::template wait<1>();
        } else {
            E::template wait<0>();
        }
        if constexpr (Kinds == of_values) {
            seen.drop(s, a);
            pack_left<T>(s, weights);
            if constexpr (apart) {
                E::template add_apart<T, D>(to_value, weights, grads_here);
            } else {
                E::begin();
                E::template left_by_columns<T, D, true>(to_value, weights, grads_here);
                E::end();
                E::template wait<0>();
            }
        } else {
            E::hold(d);
            if constexpr (grad_stages == 1) {
                __syncthreads();
                if (i + 1 < all) queries.load_grads(grad);
                copies_end();
            }
            slopes_of_columns<General>(s, d, number + 4 * Columns, seen.kept, General != 0 && a.dropout ? float(a.keep_scale) : 1.f);
            if constexpr (apart) {
                if constexpr (both) {
                    pack_left<T>(s, weights);
                    E::template add_apart<T, D>(to_value, weights, grads_here);
                }
                pack_left<T>(d, slopes);
                E::template add_apart<T, D>(to_key, slopes, queries_here);
            } else {
                if constexpr (both && !Overlap) pack_left<T>(s, weights);
                pack_left<T>(d, slopes);
                keep();  // while the product with the weights runs, if it does
                E::begin();
                if constexpr (both && !Overlap) E::template left_by_columns<T, D, true>(to_value, weights, grads_here);
                E::template left_by_columns<T, D, true>(to_key, slopes, queries_here);
                E::end();
                E::template wait<0>();
            }
        }
        stage = next;
        q0 += Columns;
        if (q0 >= a.queries) q0 = first * Columns, head++;
    }
    E::template wait<0>();
    copies_wait<false>();
    __syncthreads();
    const float one[2] = {1, 1}, factor[2] = {float(a.scale), float(a.scale)};
    if constexpr ((Kinds & of_values) != 0) {
        E::hold(to_value);
        store_sums<T, Rows, Aligned>(to_value, one, key, block.template own<T>(a.grad_value), a.grad_value.row, a.keys - k0, a.value_width);
    }
    if constexpr (both) __syncwarp();
    if constexpr ((Kinds & of_keys) != 0) {
        E::hold(to_key);
        store_sums<T, Rows, Aligned>(to_key, factor, key, block.template own<T>(a.grad_key), a.grad_key.row, a.keys - k0, a.width);
    }
}

// Apart: blocks make the gradients of keys (z = 0) or of values.
template <class T, int D, bool Apart, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, int General, bool Aligned>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_backward_keys(const __grid_constant__ AttentionArguments a) {
    if constexpr (!Apart) backward_of_keys<of_keys | of_values, T, D, Rows, Columns, Overlap, Wide, General, Aligned>(a);
    else if (blockIdx.z == 0) backward_of_keys<of_keys, T, D, Rows, Columns, Overlap, Wide, General, Aligned>(a);
    else backward_of_keys<of_values, T, D, Rows, Columns, Overlap, Wide, General, Aligned>(a);
}

}  // namespace wisp
