// Attention for half types, forward and backward, in tiles of the tensor cores: scores exist in registers only. Each block of
// threads keeps `Rows` rows of one side and lets tiles of `Columns` rows of the other side pass through shared memory; the
// weights, made in registers, are the left operand of the next product as they lie. Backward goes over the scores twice, once
// by queries (grad_query) and once by keys (grad_key, grad_value): every sum has one owner, so results are deterministic.
//
// General: with mask, dropout, a scale that is not positive or rows that are not aligned. Overlap: the product with the weights of one tile runs while
// the weights of the next are made. Wide: see mma.cuh.
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
    const int item = a.mask_is_bool ? 1 : 2, across = int(Transposed ? a.mask_row : a.mask_column) * item;  // the launch has checked that it fits
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

template <class T, int D, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, bool General>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_forward(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    constexpr int threads = Rows * 2, N = Columns / 8, tile = tile_bytes<Columns, D>;
    const int h = blockIdx.x % a.heads, b = blockIdx.x / a.heads, q0 = (gridDim.y - 1 - blockIdx.y) * Rows;  // the longest first
    const uint32_t query = tiles_begin(), keys = query + tile_bytes<Rows, D>, values = keys + 3 * tile;
    const int limit = a.causal ? min(a.keys, q0 + Rows) : a.keys, tiles = (limit + Columns - 1) / Columns;
    TileLoader<Columns, D, threads, !General, T> key_loader(a.key.at<T>(b, h / a.share), a.key.row, a.width);
    TileLoader<Columns, D, threads, !General, T> value_loader(a.value.at<T>(b, h / a.share), a.value.row, a.value_width);
    auto load = [&](int i, int stage) {
        key_loader.next(keys + stage * tile, a.keys - i * Columns);
        value_loader.next(values + stage * tile, a.keys - i * Columns);
    };
    TileLoader<Rows, D, threads, !General, T>(a.query.at<T>(b, h) + q0 * a.query.row, a.query.row, a.width).next(query, a.queries - q0);
    load(0, 0);
    copies_end();

    const Visibility<T> visible(a, b, h);
    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General ? 1.f : scale;
    float sums[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, s[N][4], shrink[2];
    uint32_t weights[N / 2][4];
    int stage = 0;
    auto arrive = [&](int i) {
        copies_wait<Wide>();
        __syncthreads();
        if (i + 1 < tiles) load(i + 1, stage == 2 ? 0 : stage + 1);
        copies_end();
    };
    auto scores = [&] {
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, query, keys + stage * tile);
        E::end();
    };
    auto add_values = [&](int stage) {
        E::template left_by_columns<T>(sums, weights, values + stage * tile);
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
        arrive(0);
        scores();
        E::template wait<0>();
        soften(0);
        pack_left<T>(s, weights);
        for (int i = 1; i < tiles; i++) {
            const int last = stage;
            stage = stage == 2 ? 0 : stage + 1;
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
        for (int i = 0; i < tiles; i++) {
            arrive(i);
            scores();
            E::template wait<0>();
            soften(i);
            rescale();
            pack_left<T>(s, weights);
            E::begin();
            add_values(stage);
            E::template wait<0>();
            stage = stage == 2 ? 0 : stage + 1;
        }
    }
    E::hold(sums);
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float all = sum_of_quad(total[r]);
        factor[r] = all == 0 ? 0.f : 1 / all;
        const int q = q0 + row_of(2 * r);
        // A row that sees nothing: +inf, which makes its weights zero when they are recomputed.
        if (threadIdx.x % 4 == 0 && q < a.queries)
            static_cast<float*>(a.logsumexp)[(int64_t(b) * a.heads + h) * a.queries + q] = all == 0 ? INFINITY : top[r] * to_base_2 + log2f(all);
    }
    __syncthreads();
    store_rows<T, Rows, !General>(sums, factor, query, a.out.at<T>(b, h) + q0 * a.out.row, a.out.row, a.queries - q0, a.value_width);
}

// The dot product of rows of grad and out, in all four threads of a row.
template <class T, bool Aligned> WISP_INLINE float product_of_rows(const AttentionArguments& a, int b, int h, int q) {
    if (q >= a.queries) return 0;
    const T *g = a.grad.at<T>(b, h) + q * a.grad.row, *y = a.out.at<T>(b, h) + q * a.out.row;
    float sum = 0;
    for (int c = threadIdx.x % 4 * 8; c < a.value_width; c += 32) {
        if constexpr (Aligned) {
            const Vector<T, 8> x = *reinterpret_cast<const Vector<T, 8>*>(g + c), z = *reinterpret_cast<const Vector<T, 8>*>(y + c);
#pragma unroll
            for (int e = 0; e < 8; e++) sum += float(x.at[e]) * float(z.at[e]);
        } else {
            for (int e = 0; e < 8 && c + e < a.value_width; e++) sum += float(g[c + e]) * float(y[c + e]);
        }
    }
    return sum;
}

// The gradient of the queries; leaves the products of rows of grad and out for attention_backward_keys.
template <class T, int D, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, bool General>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_backward_queries(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    constexpr int threads = Rows * 2, N = Columns / 8, tile = tile_bytes<Columns, D>, own = tile_bytes<Rows, D>;
    const int h = blockIdx.x % a.heads, b = blockIdx.x / a.heads, q0 = (gridDim.y - 1 - blockIdx.y) * Rows;
    const uint32_t query = tiles_begin(), grad = query + own, keys = grad + own, values = keys + 3 * tile;
    const int limit = a.causal ? min(a.keys, q0 + Rows) : a.keys, tiles = (limit + Columns - 1) / Columns;
    TileLoader<Columns, D, threads, !General, T> key_loader(a.key.at<T>(b, h / a.share), a.key.row, a.width);
    TileLoader<Columns, D, threads, !General, T> value_loader(a.value.at<T>(b, h / a.share), a.value.row, a.value_width);
    auto load = [&](int i, int stage) {
        key_loader.next(keys + stage * tile, a.keys - i * Columns);
        value_loader.next(values + stage * tile, a.keys - i * Columns);
    };
    TileLoader<Rows, D, threads, !General, T>(a.query.at<T>(b, h) + q0 * a.query.row, a.query.row, a.width).next(query, a.queries - q0);
    TileLoader<Rows, D, threads, !General, T>(a.grad.at<T>(b, h) + q0 * a.grad.row, a.grad.row, a.value_width).next(grad, a.queries - q0);
    load(0, 0);
    copies_end();

    const Visibility<T> visible(a, b, h);
    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General ? 1.f : scale;
    float lse[2], product[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int q = q0 + row_of(2 * r);
        const int64_t at = (int64_t(b) * a.heads + h) * a.queries + q;
        product[r] = sum_of_quad(product_of_rows<T, !General>(a, b, h, q));
        lse[r] = q < a.queries ? static_cast<const float*>(a.logsumexp)[at] : INFINITY;
        if (threadIdx.x % 4 == 0 && q < a.queries) static_cast<float*>(a.product)[at] = product[r];
    }
    float sums[D / 8][4] = {};
    uint32_t slopes[N / 2][4];
    int stage = 0;
    for (int i = 0; i < tiles; i++) {
        copies_wait<Wide>();
        __syncthreads();
        const int next = stage == 2 ? 0 : stage + 1, last = stage == 0 ? 2 : stage - 1;
        if (i + 1 < tiles) load(i + 1, next);
        copies_end();
        float s[N][4], d[N][4];
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, query, keys + stage * tile);
        E::template rows_by_rows<T, D, Rows>(d, grad, values + stage * tile);
        E::end();
        if (Overlap && i > 0) {
            E::template left_by_columns<T>(sums, slopes, keys + last * tile);
            E::end();
            E::template wait<1>();
        } else {
            E::template wait<0>();
        }
        E::hold(s);
        E::hold(d);
        const int k0 = i * Columns;
        if constexpr (General) add_mask<false>(s, visible, q0, k0, scale);
        if (k0 + Columns > a.keys || (a.causal && k0 + Columns - 1 > q0)) hide<false>(s, a, q0, k0);
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
            for (int e = 0; e < 4; e++) s[n][e] = power_of_2(s[n][e] * to_base_2 - lse[e / 2]) * (d[n][e] - product[e / 2]);
        if (Overlap && i > 0) {
            E::settle(s);
            E::template wait<0>();
            E::hold(sums);
        }
        pack_left<T>(s, slopes);
        if constexpr (!Overlap) {
            E::begin();
            E::template left_by_columns<T>(sums, slopes, keys + stage * tile);
            E::end();
            E::template wait<0>();
        }
        stage = next;
    }
    if constexpr (Overlap) {
        E::begin();
        E::template left_by_columns<T>(sums, slopes, keys + (stage == 0 ? 2 : stage - 1) * tile);
        E::end();
    }
    E::template wait<0>();
    E::hold(sums);
    const float factor[2] = {float(a.scale), float(a.scale)};
    __syncthreads();
    store_rows<T, Rows, !General>(sums, factor, query, a.grad_query.at<T>(b, h) + q0 * a.grad_query.row, a.grad_query.row, a.queries - q0, a.width);
}

// The gradients of keys and values, `Slice` columns of them: scores are transposed, rows are keys.
template <class T, int D, int Slice, int Rows, int Columns, int Blocks, bool Overlap, bool Wide, bool General>
__global__ void __launch_bounds__(Rows * 2, Blocks) attention_backward_keys(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    constexpr int threads = Rows * 2, N = Columns / 8, tile = tile_bytes<Columns, D>, own = tile_bytes<Rows, D>;
    const int key_heads = a.heads / a.share, kh = blockIdx.x % key_heads, b = blockIdx.x / key_heads, k0 = blockIdx.y * Rows;  // the longest first
    const int slice = blockIdx.z * Slice;
    const uint32_t key = tiles_begin(), value = key + own, queries = value + own, grads = queries + 3 * tile, numbers = grads + 3 * tile;
    const int first = a.causal ? k0 / Columns : 0, tiles = (a.queries + Columns - 1) / Columns, of_head = max(tiles - first, 0), all = of_head * a.share;
    TileLoader<Columns, D, threads, !General, T> query_loader(nullptr, a.query.row, a.width), grad_loader(nullptr, a.grad.row, a.value_width);
    int64_t row = 0;  // of the next tile's first query among those of all heads
    int next_head = kh * a.share, next_query = a.queries;
    auto load = [&](int stage) {
        if (next_query >= a.queries) {  // a head begins
            next_query = first * Columns;
            row = (int64_t(b) * a.heads + next_head) * a.queries + next_query;
            query_loader.begin(a.query.at<T>(b, next_head) + next_query * a.query.row);
            grad_loader.begin(a.grad.at<T>(b, next_head) + next_query * a.grad.row);
            next_head++;
        }
        const int rows = a.queries - next_query;
        query_loader.next(queries + stage * tile, rows);
        grad_loader.next(grads + stage * tile, rows);
        if (threadIdx.x < 2 * Columns) {
            const int q = threadIdx.x % Columns;
            const float* from = static_cast<const float*>(threadIdx.x >= Columns ? a.product : a.logsumexp);
            copy_async_4(numbers + stage * (8 * Columns) + threadIdx.x * 4, from + row + q, q < rows);
        }
        next_query += Columns;
        row += Columns;
    };
    TileLoader<Rows, D, threads, !General, T>(a.key.at<T>(b, kh) + k0 * a.key.row, a.key.row, a.width).next(key, a.keys - k0);
    TileLoader<Rows, D, threads, !General, T>(a.value.at<T>(b, kh) + k0 * a.value.row, a.value.row, a.value_width).next(value, a.keys - k0);
    if (all > 0) load(0);
    copies_end();

    const float scale = float(a.scale) * log2_e<float>, to_base_2 = General ? 1.f : scale;
    float to_key[Slice / 8][4] = {}, to_value[Slice / 8][4] = {};
    uint32_t weights[N / 2][4], slopes[N / 2][4];
    int stage = 0, head = kh * a.share, q0 = first * Columns;
    for (int i = 0; i < all; i++) {
        copies_wait<Wide>();
        __syncthreads();
        const int next = stage == 2 ? 0 : stage + 1, last = stage == 0 ? 2 : stage - 1;
        if (i + 1 < all) load(next);
        copies_end();
        float s[N][4], d[N][4];
        E::begin();
        E::template rows_by_rows<T, D, Rows>(s, key, queries + stage * tile);
        E::template rows_by_rows<T, D, Rows>(d, value, grads + stage * tile);
        E::end();
        if (Overlap && i > 0) {
            E::template left_by_columns<T>(to_value, weights, grads + last * tile, slice);
            E::template left_by_columns<T>(to_key, slopes, queries + last * tile, slice);
            E::end();
            E::template wait<1>();
        } else {
            E::template wait<0>();
        }
        E::hold(s);
        E::hold(d);
        const Visibility<T> visible(a, b, head);
        if constexpr (General) add_mask<true>(s, visible, k0, q0, scale);
        if (q0 + Columns > a.queries || (a.causal && k0 + Rows - 1 > q0)) hide<true>(s, a, k0, q0);
        uint32_t kept = 0xffffffffu;
        if constexpr (General)
            if (a.dropout) kept = kept_weights<true, T, N>(visible, k0, q0);
        const float keep_scale = General && a.dropout ? float(a.keep_scale) : 1.f;
        const uint32_t number = numbers + stage * (8 * Columns) + threadIdx.x % 4 * 8;
#pragma unroll
        for (int n = 0; n < N; n++) {
            float lse[2], product[2];
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(lse[0]), "=f"(lse[1]) : "r"(number + n * 32) : "memory");
            asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(product[0]), "=f"(product[1]) : "r"(number + n * 32 + 4 * Columns) : "memory");
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float w = power_of_2(s[n][e] * to_base_2 - lse[e % 2]);
                if constexpr (General) {
                    const float factor = kept >> (n * 4 + e) & 1 ? keep_scale : 0.f;
                    s[n][e] = w * factor;
                    d[n][e] = w * (d[n][e] * factor - product[e % 2]);
                } else {
                    s[n][e] = w;
                    d[n][e] = w * (d[n][e] - product[e % 2]);
                }
            }
        }
        if (Overlap && i > 0) {
            E::hold(s);
            E::settle(d);
            E::template wait<0>();
            E::hold(to_value);
            E::hold(to_key);
        }
        pack_left<T>(s, weights);
        pack_left<T>(d, slopes);
        if constexpr (!Overlap) {
            E::begin();
            E::template left_by_columns<T>(to_value, weights, grads + stage * tile, slice);
            E::template left_by_columns<T>(to_key, slopes, queries + stage * tile, slice);
            E::end();
            E::template wait<0>();
        }
        stage = next;
        q0 += Columns;
        if (q0 >= a.queries) q0 = first * Columns, head++;
    }
    if constexpr (Overlap)
        if (all > 0) {
            const int last = stage == 0 ? 2 : stage - 1;
            E::begin();
            E::template left_by_columns<T>(to_value, weights, grads + last * tile, slice);
            E::template left_by_columns<T>(to_key, slopes, queries + last * tile, slice);
            E::end();
        }
    E::template wait<0>();
    E::hold(to_value);
    E::hold(to_key);
    copies_wait<false>();
    __syncthreads();
    const float one[2] = {1, 1}, factor[2] = {float(a.scale), float(a.scale)};
    store_rows<T, Rows, !General>(to_key, factor, key, a.grad_key.at<T>(b, kh) + k0 * a.grad_key.row + slice, a.grad_key.row, a.keys - k0, a.width - slice);
    store_rows<T, Rows, !General>(to_value, one, value, a.grad_value.at<T>(b, kh) + k0 * a.grad_value.row + slice, a.grad_value.row, a.keys - k0, a.value_width - slice);
}

}  // namespace wisp
