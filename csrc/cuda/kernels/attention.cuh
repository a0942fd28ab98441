// Attention for half types and float, forward and backward, in tiles of the tensor cores: scores exist in registers only. Each block of
// threads keeps `Rows` rows of one side and lets tiles of `Columns` rows of the other side pass through shared memory; the
// weights, made in registers, are the left operand of the next product as they lie. Backward goes over the scores twice, once
// by queries (grad_query) and once by keys (grad_key, grad_value): every sum has one owner, so results are deterministic.
//
// General: with mask, dropout, a scale that is not positive or rows that are not aligned. Overlap: the product with the weights of one tile runs while
// the weights of the next are made. Wide: see mma.cuh.
//
// Float comes in parts (attention_parts.cuh) and has six products for one. The tensor cores cut off what sums can't hold instead of rounding it, so the
// products of a tile are summed apart and then added.
#include "cuda/kernels/attention_common.cuh"
#include "cuda/kernels/mma.cuh"

namespace wisp {

WISP_INLINE float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
template <class How> WISP_INLINE float over_quad(float x, How how) {  // the four threads that share a row
    x = how(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return how(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
WISP_INLINE float sum_of_quad(float x) {
    return over_quad(x, [](float a, float b) { return a + b; });
}
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
        const int first = Transposed && a.causal ? r - here : -here, end = (Transposed ? a.queries : a.causal ? min(a.keys, r + 1) : a.keys) - here;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (n * 8 + e >= end || (Transposed && n * 8 + e < first)) s[n][2 * i + e] = -INFINITY;
    }
}

// Scores times `scale` with the mask, to base 2. Places outside of the matrix read its last row and column.
template <bool Transposed, class T, int N> WISP_INLINE void add_mask(float (&s)[N][4], const Visibility<T>& visible, int row, int column, float scale) {
    const AttentionArguments& a = visible.a;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] *= scale;
    if (!a.mask) return;
    const int rows = Transposed ? a.keys : a.queries, columns = Transposed ? a.queries : a.keys;
    const int item = a.mask_is_bool ? 1 : sizeof(T), across = int(Transposed ? a.mask_row : a.mask_column) * item;  // the launch has checked that it fits
    const int64_t down = (Transposed ? a.mask_column : a.mask_row) * item;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const char* from = visible.mask + min(row + row_of(2 * i), rows - 1) * down;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) {
                const char* p = from + int64_t(min(column + column_of(n, e), columns - 1)) * across;
                if (a.mask_is_bool) s[n][e] = *p ? s[n][e] : -INFINITY;
                else s[n][e] += float(*reinterpret_cast<const T*>(p)) * log2_e<float>;
            }
    }
}

// Which of a thread's weights dropout keeps: bit n * 4 + e.
template <bool Transposed, class T, int N> WISP_INLINE uint32_t kept_weights(const Visibility<T>& visible, int row, int column) {
    static_assert(N <= 8);
    uint32_t bits = 0;
    if (!Transposed && N == 8 && visible.a.keys % 64 == 0) {  // four elements of a thread come from one call of the generator
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const uint64_t at = uint64_t(visible.first + (row + row_of(e)) * int64_t(visible.a.keys) + column + column_of(n, e));
                const Words w = philox(Draw{visible.a.seed, visible.a.offset, visible.a.moved}, at / 64 * 16 + at % 16);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (uint64_t(w.at[k]) < visible.a.keep_below) bits |= 1u << ((n + 2 * k) * 4 + e);
            }
        return bits;
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = row + row_of(e), c = column + column_of(n, e);
            if (visible.template kept<float>(Transposed ? c : r, Transposed ? r : c) != 0) bits |= 1u << (n * 4 + e);
        }
    return bits;
}

// How a kernel's tiles lie in shared memory: `Own` of Rows rows, then stages of two of Columns rows each.
template <class T, int D, int Rows, int Columns, int Own, bool Overlap> struct Places {
    static constexpr int stages = Overlap ? 3 : 2, tile = tile_bytes<Columns, D> * parts_of<T>, own_tile = tile_bytes<Rows, D> * parts_of<T>;
    uint32_t own, first, second, end;
    WISP_INLINE Places() : own(tiles_begin()), first(own + Own * own_tile), second(first + stages * tile), end(second + stages * tile) {}
    static WISP_INLINE int next(int stage) { return stage == stages - 1 ? 0 : stage + 1; }
    static WISP_INLINE int last(int stage) { return stage == 0 ? stages - 1 : stage - 1; }
};
template <class T> WISP_INLINE int tile_width(int width) { return parts_of<T> == 1 ? width : (width + 7) / 8 * 8; }

template <class T, int Rows, bool Aligned, int N>
WISP_INLINE void store_sums(const float (&sums)[N][4], const float (&factor)[2], uint32_t tile, T* to, int64_t stride, int rows, int width) {
    if constexpr (std::is_same_v<T, float>) store_floats(sums, factor, to, stride, rows, width);
    else store_rows<T, Rows, Aligned>(sums, factor, tile, to, stride, rows, width);
}

template <class T, int D, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, bool General>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_forward(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    using S = typename Parts<T>::Element;
    constexpr int threads = Rows * 2, N = Columns / 8, parts = parts_of<T>;
    constexpr bool aligned = !General || parts > 1, apart = parts > 1;
    static_assert(!(apart && Overlap));
    const QueryBlock<Rows> block(a);
    const int b = block.b, h = block.h, q0 = block.q0;
    const Places<T, D, Rows, Columns, 1, Overlap> place;
    const int tiles = (block.limit + Columns - 1) / Columns, begin = blockIdx.z * tiles / gridDim.z, end = (blockIdx.z + 1) * tiles / gridDim.z;
    TileLoader<Columns, D, threads, aligned, S, parts> key_loader(block.template other<S>(a.key, a.share) + begin * Columns * a.key.row, a.key.row, tile_width<T>(a.width));
    TileLoader<Columns, D, threads, aligned, S, parts> value_loader(block.template other<S>(a.value, a.share) + begin * Columns * a.value.row, a.value.row, tile_width<T>(a.value_width));
    auto load = [&](int i, int stage) {
        key_loader.next(place.first + stage * place.tile, a.keys - i * Columns);
        value_loader.next(place.second + stage * place.tile, a.keys - i * Columns);
    };
    TileLoader<Rows, D, threads, aligned, S, parts>(block.template own<S>(a.query), a.query.row, tile_width<T>(a.width)).next(place.own, a.queries - q0);
    load(begin, 0);
    copies_end();

    const Visibility<T> visible(a, b, h);
    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General ? 1.f : scale;
    float sums[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, s[N][4], shrink[2];
    Left<T, N> weights;
    int stage = 0;
    auto arrive = [&](int i) {
        copies_wait<Wide>();
        __syncthreads();
        if (i + 1 < end) load(i + 1, place.next(stage));
        copies_end();
    };
    auto scores = [&] {
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, place.own, place.first + stage * place.tile);
        E::end();
    };
    auto add_values = [&](int stage) {
        E::template left_by_columns<T, D, true>(sums, weights, place.second + stage * place.tile);
        E::end();
    };
    // From scores to weights, with the running maximum and sum of each row.
    auto soften = [&](int i) {
        E::hold(s);
        const int k0 = i * Columns;
        if constexpr (General) add_mask<false>(s, visible, q0, k0, scale);
        if (k0 + Columns > a.keys || (a.causal && k0 + Columns - 1 > q0)) hide<false>(s, a, q0, k0);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float parts[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  // short chains of dependent instructions
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) parts[n % 2 * 2 + e] = fmaxf(parts[n % 2 * 2 + e], s[n][2 * r + e]);
            float most = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
            most = fmaxf(top[r], over_quad(most, [](float x, float y) { return fmaxf(x, y); }));
            const float base = most == -INFINITY ? 0.f : most * to_base_2;  // nothing seen yet: all weights are zero
            shrink[r] = power_of_2(top[r] * to_base_2 - base);
            top[r] = most;
#pragma unroll
            for (int e = 0; e < 4; e++) parts[e] = 0;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    s[n][2 * r + e] = power_of_2(s[n][2 * r + e] * to_base_2 - base);
                    parts[n % 2 * 2 + e] += s[n][2 * r + e];
                }
            total[r] = total[r] * shrink[r] + ((parts[0] + parts[1]) + (parts[2] + parts[3]));
        }
        if constexpr (General)
            if (a.dropout) {
                const uint32_t kept = kept_weights<false, T, N>(visible, q0, k0);
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) s[n][e] = kept >> (n * 4 + e) & 1 ? s[n][e] * float(a.keep_scale) : 0.f;
            }
    };
    auto rescale = [&] {
        E::hold(sums);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[n][e] *= shrink[e / 2];
    };
    if constexpr (Overlap) {
        arrive(begin);
        scores();
        E::template wait<0>();
        soften(begin);
        pack_left<T>(s, weights);
        for (int i = begin + 1; i < end; i++) {
            const int last = stage;
            stage = place.next(stage);
            arrive(i);
            scores();
            add_values(last);
            E::template wait<1>();
            soften(i);
            E::settle(s);
            E::template wait<0>();
            rescale();
            pack_left<T>(s, weights);
        }
        E::begin();
        add_values(stage);
        E::template wait<0>();
    } else {
        for (int i = begin; i < end; i++) {
            arrive(i);
            scores();
            E::template wait<0>();
            soften(i);
            rescale();
            pack_left<T>(s, weights);
            if constexpr (apart) {
                E::template add_apart<T, D>(sums, weights, place.second + stage * place.tile);
            } else {
                E::begin();
                add_values(stage);
                E::template wait<0>();
            }
            stage = place.next(stage);
        }
    }
    E::hold(sums);
    float factor[2], *lse = static_cast<float*>(a.logsumexp) + block.row;
    const int64_t piece = int64_t(blockIdx.z) * gridDim.x * a.queries + block.row;
    if (gridDim.z > 1) lse = a.piece_logsumexp + piece;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float all = sum_of_quad(total[r]);
        factor[r] = all == 0 ? 0.f : 1 / all;
        // A row that sees nothing: +inf, which makes its weights zero when they are recomputed.
        if (threadIdx.x % 4 == 0 && q0 + row_of(2 * r) < a.queries) lse[row_of(2 * r)] = all == 0 ? INFINITY : top[r] * to_base_2 + log2f(all);
    }
    if (gridDim.z > 1) {
        store_floats(sums, factor, a.pieces + piece * a.value_width, a.value_width, a.queries - q0, a.value_width);
        return;
    }
    __syncthreads();
    store_sums<T, Rows, !General>(sums, factor, place.own, block.template own<T>(a.out), a.out.row, a.queries - q0, a.value_width);
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

// The gradient of the queries; leaves the products of rows of grad and out for attention_backward_keys.
template <class T, int D, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, bool General>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_backward_queries(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    using S = typename Parts<T>::Element;
    constexpr int threads = Rows * 2, N = Columns / 8, parts = parts_of<T>;
    constexpr bool aligned = !General || parts > 1, apart = parts > 1;
    static_assert(!(apart && Overlap));
    const QueryBlock<Rows> block(a);
    const int b = block.b, h = block.h, q0 = block.q0;
    const Places<T, D, Rows, Columns, 2, Overlap> place;
    const uint32_t query = place.own, grad = query + place.own_tile;
    const int tiles = (block.limit + Columns - 1) / Columns;
    TileLoader<Columns, D, threads, aligned, S, parts> key_loader(block.template other<S>(a.key, a.share), a.key.row, tile_width<T>(a.width));
    TileLoader<Columns, D, threads, aligned, S, parts> value_loader(block.template other<S>(a.value, a.share), a.value.row, tile_width<T>(a.value_width));
    auto load = [&](int i, int stage) {
        key_loader.next(place.first + stage * place.tile, a.keys - i * Columns);
        value_loader.next(place.second + stage * place.tile, a.keys - i * Columns);
    };
    TileLoader<Rows, D, threads, aligned, S, parts>(block.template own<S>(a.query), a.query.row, tile_width<T>(a.width)).next(query, a.queries - q0);
    TileLoader<Rows, D, threads, aligned, S, parts>(block.template own<S>(a.grad), a.grad.row, tile_width<T>(a.value_width)).next(grad, a.queries - q0);
    load(0, 0);
    copies_end();

    const Visibility<T> visible(a, b, h);
    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General ? 1.f : scale;
    float lse[2], product[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int q = q0 + row_of(2 * r);
        const int64_t at = block.row + row_of(2 * r);
        product[r] = sum_of_quad(product_of_rows<T, !General>(a, b, h, q));
        lse[r] = q < a.queries ? static_cast<const float*>(a.logsumexp)[at] : INFINITY;
        if (threadIdx.x % 4 == 0 && q < a.queries) static_cast<float*>(a.product)[at] = product[r];
    }
    float sums[D / 8][4] = {};
    Left<T, N> slopes;
    int stage = 0;
    for (int i = 0; i < tiles; i++) {
        copies_wait<Wide>();
        __syncthreads();
        if (i + 1 < tiles) load(i + 1, place.next(stage));
        copies_end();
        float s[N][4], d[N][4];
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, query, place.first + stage * place.tile);
        E::end();
        E::template rows_by_rows<T, D, Rows>(d, grad, place.second + stage * place.tile);
        E::end();
        if constexpr (Overlap) {
            if (i > 0) E::template left_by_columns<T, D, true>(sums, slopes, place.first + place.last(stage) * place.tile);
            E::end();
        }
        E::template wait<Overlap ? 2 : 1>();
        E::hold(s);
        const int k0 = i * Columns;
        if constexpr (General) add_mask<false>(s, visible, q0, k0, scale);
        if (k0 + Columns > a.keys || (a.causal && k0 + Columns - 1 > q0)) hide<false>(s, a, q0, k0);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = power_of_2(s[n][e] * to_base_2 - lse[e / 2]);
        E::template wait<Overlap ? 1 : 0>();
        E::hold(d);
        if constexpr (General)
            if (a.dropout) {
                const uint32_t kept = kept_weights<false, T, N>(visible, q0, k0);
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) d[n][e] = kept >> (n * 4 + e) & 1 ? d[n][e] * float(a.keep_scale) : 0.f;
            }
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
            E::template add_apart<T, D>(sums, slopes, place.first + stage * place.tile);
        } else if constexpr (!Overlap) {
            E::begin();
            E::template left_by_columns<T, D, true>(sums, slopes, place.first + stage * place.tile);
            E::end();
            E::template wait<0>();
        }
        stage = place.next(stage);
    }
    if constexpr (Overlap) {
        E::begin();
        E::template left_by_columns<T, D, true>(sums, slopes, place.first + place.last(stage) * place.tile);
        E::end();
    }
    E::template wait<0>();
    E::hold(sums);
    const float factor[2] = {float(a.scale), float(a.scale)};
    __syncthreads();
    store_sums<T, Rows, !General>(sums, factor, query, block.template own<T>(a.grad_query), a.grad_query.row, a.queries - q0, a.width);
}

// The gradients of keys and values, `Slice` columns of them: scores are transposed, rows are keys.
template <class T, int D, int Slice, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, bool General>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_backward_keys(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    using S = typename Parts<T>::Element;
    constexpr int threads = Rows * 2, N = Columns / 8, parts = parts_of<T>;
    constexpr bool aligned = !General || parts > 1, apart = parts > 1;
    static_assert(!(apart && Overlap));
    const KeyBlock<Rows> block(a);
    const int kh = block.h, b = block.b, k0 = block.k0, slice = blockIdx.z * Slice;
    const Places<T, D, Rows, Columns, 2, false> place;
    const uint32_t key = place.own, value = key + place.own_tile, numbers = place.end;
    const int first = a.causal ? k0 / Columns : 0, tiles = (a.queries + Columns - 1) / Columns, of_head = max(tiles - first, 0), all = of_head * a.share;
    TileLoader<Columns, D, threads, aligned, S, parts> query_loader(nullptr, a.query.row, tile_width<T>(a.width)), grad_loader(nullptr, a.grad.row, tile_width<T>(a.value_width));
    int64_t row = 0;  // of the next tile's first query among those of all heads
    int next_head = kh * a.share, next_query = a.queries;
    auto load = [&](int stage) {
        if (next_query >= a.queries) {  // a head begins
            next_query = first * Columns;
            row = (int64_t(b) * a.heads + next_head) * a.queries + next_query;
            query_loader.begin(a.query.at<S>(b, next_head) + next_query * a.query.row);
            grad_loader.begin(a.grad.at<S>(b, next_head) + next_query * a.grad.row);
            next_head++;
        }
        const int rows = a.queries - next_query;
        query_loader.next(place.first + stage * place.tile, rows);
        grad_loader.next(place.second + stage * place.tile, rows);
        if (threadIdx.x < 2 * Columns) {
            const int q = threadIdx.x % Columns;
            const float* from = static_cast<const float*>(threadIdx.x >= Columns ? a.product : a.logsumexp);
            copy_async_4(numbers + stage * (8 * Columns) + threadIdx.x * 4, from + row + q, q < rows);
        }
        next_query += Columns;
        row += Columns;
    };
    TileLoader<Rows, D, threads, aligned, S, parts>(block.template own<S>(a.key), a.key.row, tile_width<T>(a.width)).next(key, a.keys - k0);
    TileLoader<Rows, D, threads, aligned, S, parts>(block.template own<S>(a.value), a.value.row, tile_width<T>(a.value_width)).next(value, a.keys - k0);
    if (all > 0) load(0);
    copies_end();

    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General ? 1.f : scale;
    float to_key[Slice / 8][4] = {}, to_value[Slice / 8][4] = {};
    Left<T, N> weights, slopes;
    int stage = 0, head = kh * a.share, q0 = first * Columns;
    for (int i = 0; i < all; i++) {
        copies_wait<Wide>();
        __syncthreads();
        if (i + 1 < all) load(place.next(stage));
        copies_end();
        float s[N][4], d[N][4];
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, key, place.first + stage * place.tile);
        E::end();
        E::template rows_by_rows<T, D, Rows>(d, value, place.second + stage * place.tile);
        E::end();
        E::template wait<1>();
        E::hold(s);
        const Visibility<T> visible(a, b, head);
        if constexpr (General) add_mask<true>(s, visible, k0, q0, scale);
        if (q0 + Columns > a.queries || (a.causal && k0 + Rows - 1 > q0)) hide<true>(s, a, k0, q0);
        uint32_t kept = 0xffffffffu;
        if constexpr (General)
            if (a.dropout) kept = kept_weights<true, T, N>(visible, k0, q0);
        const float keep_scale = General && a.dropout ? float(a.keep_scale) : 1.f;
        auto factor = [&](int n, int e) { return kept >> (n * 4 + e) & 1 ? keep_scale : 0.f; };
        const uint32_t number = numbers + stage * (8 * Columns) + threadIdx.x % 4 * 8;
#pragma unroll
        for (int n = 0; n < N; n++) {
            float lse[2];
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(lse[0]), "=f"(lse[1]) : "r"(number + n * 32) : "memory");
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = power_of_2(s[n][e] * to_base_2 - lse[e % 2]);
        }
        if constexpr (Overlap) {
            pack_left<T>(s, weights);
            E::begin();
            E::template left_by_columns<T, D, true>(to_value, weights, place.second + stage * place.tile, slice);
            E::end();
            E::template wait<1>();
        } else {
            E::template wait<0>();
        }
        E::hold(d);
#pragma unroll
        for (int n = 0; n < N; n++) {
            float product[2];
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(product[0]), "=f"(product[1]) : "r"(number + n * 32 + 4 * Columns) : "memory");
#pragma unroll
            for (int e = 0; e < 4; e++) {
                d[n][e] = s[n][e] * ((General ? d[n][e] * factor(n, e) : d[n][e]) - product[e % 2]);
                if constexpr (General) s[n][e] *= factor(n, e);
            }
        }
        if constexpr (Overlap) {
            pack_left<T>(d, slopes);
            E::begin();
            E::template left_by_columns<T, D, true>(to_key, slopes, place.first + stage * place.tile, slice);
            E::end();
            E::template wait<0>();
        } else if constexpr (apart) {
            pack_left<T>(s, weights);
            E::template add_apart<T, D>(to_value, weights, place.second + stage * place.tile, slice);
            pack_left<T>(d, slopes);
            E::template add_apart<T, D>(to_key, slopes, place.first + stage * place.tile, slice);
        } else {
            pack_left<T>(s, weights);
            pack_left<T>(d, slopes);
            E::begin();
            E::template left_by_columns<T, D, true>(to_value, weights, place.second + stage * place.tile, slice);
            E::template left_by_columns<T, D, true>(to_key, slopes, place.first + stage * place.tile, slice);
            E::end();
            E::template wait<0>();
        }
        stage = place.next(stage);
        q0 += Columns;
        if (q0 >= a.queries) q0 = first * Columns, head++;
    }
    E::template wait<0>();
    E::hold(to_value);
    E::hold(to_key);
    copies_wait<false>();
    __syncthreads();
    const float one[2] = {1, 1}, factor[2] = {float(a.scale), float(a.scale)};
    store_sums<T, Rows, !General>(to_key, factor, key, block.template own<T>(a.grad_key) + slice, a.grad_key.row, a.keys - k0, a.width - slice);
    store_sums<T, Rows, !General>(to_value, one, value, block.template own<T>(a.grad_value) + slice, a.grad_value.row, a.keys - k0, a.value_width - slice);
}

}  // namespace wisp
