// Attention in double, and in float where attention.cuh has no tiles, with plain multiplications: the same plan as attention.cuh, in
// tiles of B x B scores that 16 x 16 threads share. Thread (y, x) has rows y + 16 i and columns x + 16 j.
#include "cuda/kernels/attention_common.cuh"

namespace wisp {

WISP_INLINE float power_of_2(float x) { return ::exp2f(x); }
WISP_INLINE double power_of_2(double x) { return ::exp2(x); }

template <class C> struct Sum {
    WISP_INLINE C operator()(C a, C b) const { return a + b; }
};
template <class C> struct Larger {
    WISP_INLINE C operator()(C a, C b) const { return a > b ? a : b; }
};
template <class How, class C> WISP_INLINE C over_row(C x, How how) {  // the 16 threads that share a row
#pragma unroll
    for (int by = 8; by > 0; by /= 2) x = how(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

// Tiles of B rows of D columns and of B x B weights, in shared memory.
template <class C, int D, int B> struct Plain {
    static constexpr int M = B / 16, W = D / 16, vector = 16 / sizeof(C), stride = D + vector, weights_stride = B + vector;
    using Scores = C[M][M];
    using Sums = C[M][W];
    static WISP_INLINE int x() { return threadIdx.x % 16; }
    static WISP_INLINE int y() { return threadIdx.x / 16; }

    static WISP_INLINE void load(C* tile, const C* from, int64_t row, int rows, int width) {
        for (int i = threadIdx.x; i < B * D; i += 256) {
            const int r = i / D, c = i % D;
            tile[r * stride + c] = r < rows && c < width ? from[r * row + c] : C(0);
        }
    }
    // scores = a b'
    static WISP_INLINE void rows_by_rows(Scores& s, const C* a, const C* b) {
        using V = Vector<C, vector>;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < M; j++) s[i][j] = 0;
#pragma unroll 4
        for (int c = 0; c < D; c += vector) {
            V p[M], q[M];
#pragma unroll
            for (int i = 0; i < M; i++) {
                p[i] = *reinterpret_cast<const V*>(a + (y() + 16 * i) * stride + c);
                q[i] = *reinterpret_cast<const V*>(b + (x() + 16 * i) * stride + c);
            }
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < M; j++)
#pragma unroll
                    for (int e = 0; e < vector; e++) s[i][j] += p[i].at[e] * q[j].at[e];
        }
    }
    // sums += scores b; the rows of `weights` are written and read by the same half warp.
    static WISP_INLINE void add_columns(Sums& sums, const Scores& s, C* weights, const C* b) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < M; j++) weights[(y() + 16 * i) * weights_stride + x() + 16 * j] = s[i][j];
        __syncwarp();
#pragma unroll 4
        for (int k = 0; k < B; k++) {
            C p[M], q[W];
#pragma unroll
            for (int i = 0; i < M; i++) p[i] = weights[(y() + 16 * i) * weights_stride + k];
#pragma unroll
            for (int j = 0; j < W; j++) q[j] = b[k * stride + x() + 16 * j];
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < W; j++) sums[i][j] += p[i] * q[j];
        }
    }
    template <class Factor> static WISP_INLINE void store(const Sums& sums, C* to, int64_t row, int rows, int width, Factor factor) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < W; j++) {
                const int r = y() + 16 * i, c = x() + 16 * j;
                if (r < rows && c < width) to[r * row + c] = sums[i][j] * factor(i);
            }
    }
};

template <class C> WISP_INLINE C* plain_memory() {
    extern __shared__ __align__(16) char memory[];
    return reinterpret_cast<C*>(memory);
}

template <class C, int D, int B> __global__ void __launch_bounds__(256)
    plain_attention_forward(const __grid_constant__ AttentionArguments a) {
    using P = Plain<C, D, B>;
    constexpr int M = P::M, tile = B * P::stride;
    const QueryBlock<B> block(a);
    const int b = block.b, h = block.h, q0 = block.q0;
    C *query = plain_memory<C>(), *key = query + tile, *value = key + tile, *weights = value + tile;
    const C *k_from = block.template other<C>(a.key, a.share), *v_from = block.template other<C>(a.value, a.share);
    const int2 part = block.part_of((block.limit + B - 1) / B);
    P::load(query, block.template own<C>(a.query), a.query.row, a.queries - q0, a.width);
    const Visibility<C> visible(a, b, h);
    const C scale = C(a.scale) * log2_e<C>;
    C sums[M][P::W] = {}, top[M], total[M];
#pragma unroll
    for (int i = 0; i < M; i++) top[i] = -INFINITY, total[i] = 0;
    for (int k0 = part.x * B; k0 < part.y * B; k0 += B) {
        __syncthreads();
        P::load(key, k_from + k0 * a.key.row, a.key.row, a.keys - k0, a.width);
        P::load(value, v_from + k0 * a.value.row, a.value.row, a.keys - k0, a.value_width);
        __syncthreads();
        C s[M][M];
        P::rows_by_rows(s, query, key);
#pragma unroll
        for (int i = 0; i < M; i++) {
            const int q = q0 + P::y() + 16 * i;
            C most = top[i];
#pragma unroll
            for (int j = 0; j < M; j++) {
                s[i][j] = visible.masked(s[i][j] * scale, q, k0 + P::x() + 16 * j);
                most = Larger<C>()(s[i][j], most);
            }
            most = over_row(most, Larger<C>());
            const C base = most == C(-INFINITY) ? C(0) : most, shrink = power_of_2(top[i] - base);
            top[i] = most;
            total[i] *= shrink;
#pragma unroll
            for (int j = 0; j < P::W; j++) sums[i][j] *= shrink;
#pragma unroll
            for (int j = 0; j < M; j++) {
                s[i][j] = power_of_2(s[i][j] - base);
                total[i] += s[i][j];
                if (a.dropout) s[i][j] *= visible.template kept<C>(q, k0 + P::x() + 16 * j);
            }
        }
        P::add_columns(sums, s, weights, value);
    }
    C* lse = gridDim.z > 1 ? static_cast<C*>(a.piece_logsumexp) + block.piece : static_cast<C*>(a.logsumexp) + block.row;
#pragma unroll
    for (int i = 0; i < M; i++) {
        total[i] = over_row(total[i], Sum<C>());
        const int q = q0 + P::y() + 16 * i;
        if (P::x() == 0 && q < a.queries) lse[q - q0] = total[i] == 0 ? C(INFINITY) : top[i] + ::log2(total[i]);
    }
    C* out = gridDim.z > 1 ? static_cast<C*>(a.pieces) + block.piece * a.value_width : block.template own<C>(a.out);
    P::store(sums, out, gridDim.z > 1 ? a.value_width : a.out.row, a.queries - q0, a.value_width,
             [&](int i) { return total[i] == 0 ? C(0) : C(1) / total[i]; });
}

template <class C, int D, int B> __global__ void __launch_bounds__(256)
    plain_attention_backward_queries(const __grid_constant__ AttentionArguments a) {
    using P = Plain<C, D, B>;
    constexpr int M = P::M, tile = B * P::stride;
    const QueryBlock<B> block(a);
    const int b = block.b, h = block.h, q0 = block.q0;
    C *query = plain_memory<C>(), *grad = query + tile, *key = grad + tile, *value = key + tile, *weights = value + tile;
    const C *k_from = block.template other<C>(a.key, a.share), *v_from = block.template other<C>(a.value, a.share);
    P::load(query, block.template own<C>(a.query), a.query.row, a.queries - q0, a.width);
    P::load(grad, block.template own<C>(a.grad), a.grad.row, a.queries - q0, a.value_width);
    const Visibility<C> visible(a, b, h);
    const C scale = C(a.scale) * log2_e<C>;
    C sums[M][P::W] = {}, lse[M], product[M];
#pragma unroll
    for (int i = 0; i < M; i++) {
        const int q = q0 + P::y() + 16 * i;
        const bool there = q < a.queries;
        const int64_t at = block.row + q - q0;
        const C *g = a.grad.at<C>(b, h) + q * a.grad.row, *y = a.out.at<C>(b, h) + q * a.out.row;
        product[i] = 0;
        if (there)
            for (int c = P::x(); c < a.value_width; c += 16) product[i] += g[c] * y[c];
        product[i] = over_row(product[i], Sum<C>());
        lse[i] = there ? static_cast<const C*>(a.logsumexp)[at] : C(INFINITY);
        if (there && P::x() == 0) static_cast<C*>(a.product)[at] = product[i];
    }
    for (int k0 = 0; k0 < block.limit; k0 += B) {
        __syncthreads();
        P::load(key, k_from + k0 * a.key.row, a.key.row, a.keys - k0, a.width);
        P::load(value, v_from + k0 * a.value.row, a.value.row, a.keys - k0, a.value_width);
        __syncthreads();
        C s[M][M], d[M][M];
        P::rows_by_rows(s, query, key);
        P::rows_by_rows(d, grad, value);
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < M; j++) {
                const int q = q0 + P::y() + 16 * i, k = k0 + P::x() + 16 * j;
                if (a.dropout) d[i][j] *= visible.template kept<C>(q, k);
                s[i][j] = power_of_2(visible.masked(s[i][j] * scale, q, k) - lse[i]) * (d[i][j] - product[i]);
            }
        P::add_columns(sums, s, weights, key);
    }
    P::store(sums, block.template own<C>(a.grad_query), a.grad_query.row, a.queries - q0, a.width, [&](int) { return C(a.scale); });
}

template <class C, int D, int B> __global__ void __launch_bounds__(256)
    plain_attention_backward_keys(const __grid_constant__ AttentionArguments a) {
    using P = Plain<C, D, B>;
    constexpr int M = P::M, tile = B * P::stride;
    const KeyBlock<B> block(a);
    const int kh = block.h, b = block.b, k0 = block.k0;
    C *key = plain_memory<C>(), *value = key + tile, *query = value + tile, *grad = query + tile, *weights = grad + tile;
    P::load(key, block.template own<C>(a.key), a.key.row, a.keys - k0, a.width);
    P::load(value, block.template own<C>(a.value), a.value.row, a.keys - k0, a.value_width);
    const C scale = C(a.scale) * log2_e<C>;
    C to_key[M][P::W] = {}, to_value[M][P::W] = {};
    for (int h = kh * a.share; h < (kh + 1) * a.share; h++) {
        const Visibility<C> visible(a, b, h);
        const int64_t first = (int64_t(b) * a.heads + h) * a.queries;
        for (int q0 = a.causal ? k0 : 0; q0 < a.queries; q0 += B) {
            __syncthreads();
            P::load(query, a.query.at<C>(b, h) + q0 * a.query.row, a.query.row, a.queries - q0, a.width);
            P::load(grad, a.grad.at<C>(b, h) + q0 * a.grad.row, a.grad.row, a.queries - q0, a.value_width);
            __syncthreads();
            C s[M][M], d[M][M];
            P::rows_by_rows(s, key, query);
            P::rows_by_rows(d, value, grad);
#pragma unroll
            for (int j = 0; j < M; j++) {
                const int q = q0 + P::x() + 16 * j;
                const bool there = q < a.queries;
                const C lse = there ? static_cast<const C*>(a.logsumexp)[first + q] : C(INFINITY);
                const C product = there ? static_cast<const C*>(a.product)[first + q] : C(0);
#pragma unroll
                for (int i = 0; i < M; i++) {
                    const int k = k0 + P::y() + 16 * i;
                    const C w = power_of_2(visible.masked(s[i][j] * scale, q, k) - lse),
                            factor = a.dropout ? visible.template kept<C>(q, k) : C(1);
                    s[i][j] = w * factor;
                    d[i][j] = w * (d[i][j] * factor - product);
                }
            }
            P::add_columns(to_value, s, weights, grad);
            P::add_columns(to_key, d, weights, query);
        }
    }
    P::store(to_key, block.template own<C>(a.grad_key), a.grad_key.row, a.keys - k0, a.width, [&](int) { return C(a.scale); });
    P::store(to_value, block.template own<C>(a.grad_value), a.grad_value.row, a.keys - k0, a.value_width, [](int) { return C(1); });
}

}  // namespace wisp
