// Attention of few rows over many keys, as of one token, whose heads that share keys are rows of one block. Reading keys and values is all
// that should take time, so nothing stands between memory and the tensor cores: a warp takes some keys at a time, each thread the elements
// that its place in the products asks for (which index of a product goes to which place does not matter, as long as it is the same for both
// sides), and the next ones are on their way while it works. What the warps of a block found meets in shared memory; what blocks found, in
// that of a cluster of them, where there are clusters, or as pieces that attention_join (attention_parts.cuh) makes one.
#include "cuda/kernels/attention_common.cuh"
#include "cuda/kernels/cluster.cuh"
#include "cuda/kernels/mma.cuh"

namespace wisp {

// A row's share of the keys: the largest score and the sum of the weights, to base 2 from there; and of one column, the weighted sum.
struct Seen {
    float top, total, sum;
    // What `count` of them are together, in their order.
    template <int Count, class Read> static WISP_INLINE Seen together(Read read) {
        Seen each[Count], all{-INFINITY, 0, 0};
#pragma unroll
        for (int i = 0; i < Count; i++) each[i] = read(i), all.top = fmaxf(all.top, each[i].top);
        const float base = all.top == -INFINITY ? 0.f : all.top;
#pragma unroll
        for (int i = 0; i < Count; i++) {
            const float weight = power_of_2(each[i].top - base);
            all.total += weight * each[i].total;
            all.sum += weight * each[i].sum;
        }
        return all;
    }
};

enum MaskKind : int { mask_none, mask_bool, mask_added };

// D: 64 or 128, not less than the widths. Tall: more than 8 rows. Cluster: how many blocks share a head's keys and join their results.
template <class T, int D, bool Tall, int Mask, int Cluster> __global__ void WISP_CLUSTER(1, 1, Cluster)
    __launch_bounds__(128, D == 64 && !Tall ? 3 : 2) attention_few(const __grid_constant__ AttentionArguments a) {
    begin_early();
    // Keys are taken 8 N at a time.
    constexpr int warps = 4, rows = Tall ? 16 : 8, halves = rows / 8, chunks = D / 32, spans = D / 64, N = 256 / D;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quarter = lane % 4, group = lane / 4;
    const int h = blockIdx.x % a.heads, b = blockIdx.x / a.heads;
    const int step = int(gridDim.z) * warps * 8 * N;
    int first = (int(blockIdx.z) * warps + warp) * 8 * N;
    const uint4 zero = {0, 0, 0, 0};

    // Places are counted on from each other: to multiply for each would take longer than the products.
    const T *next_key = a.key.at<T>(b, h / a.share) + (first + group) * a.key.row + quarter * 8,
            *next_value = a.value.at<T>(b, h / a.share) + (first + quarter * 2) * a.value.row + group * 8;
    const int64_t after_keys = (step - 8 * N) * a.key.row, after_values = (step - 8 * N) * a.value.row;
    uint4 k[N][chunks], v[N / 2][4][spans];
    auto load_keys = [&](int first) {
        const int left = a.keys - first - group;
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int c = 0; c < chunks; c++) k[n][c] = n * 8 < left && c * 32 + quarter * 8 < a.width ? load_once(next_key + c * 32) : zero;
            next_key += 8 * a.key.row;
        }
        next_key += after_keys;
    };
    auto load_values = [&](int first) {
        const int left = a.keys - first - quarter * 2;
#pragma unroll
        for (int p = 0; p < N; p++) {
#pragma unroll
            for (int j = 0; j < 2; j++)
#pragma unroll
                for (int s = 0; s < spans; s++)
                    v[p / 2][p % 2 * 2 + j][s] = p * 8 + j < left && s * 64 + group * 8 < a.value_width
                                                     ? load_once((j ? next_value + a.value.row : next_value) + s * 64)
                                                     : zero;
            next_value += 8 * a.value.row;
        }
        next_value += after_values;
    };
    load_keys(first);
    load_values(first);
    uint4 q[2][chunks];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int c = 0; c < chunks; c++) {
            const int r = group + i * 8, column = c * 32 + quarter * 8;
            q[i][c] = i < halves && r < a.queries && column < a.width
                          ? *reinterpret_cast<const uint4*>(a.query.at<T>(b, h) + r * a.query.row + column)
                          : zero;
        }

    using M = std::conditional_t<Mask == mask_bool, Bool, T>;
    const M* next_mask =
        static_cast<const M*>(a.mask) + b * a.mask_batch + h * a.mask_head + group * a.mask_row + (first + quarter * 2) * a.mask_column;
    const float to_base_2 = float(a.scale) * log2_e<float>;
    float top[halves], total[halves] = {}, sums[spans * 8][4] = {};
#pragma unroll
    for (int i = 0; i < halves; i++) top[i] = -INFINITY;
    for (; first < a.keys; first += step) {
        float mask[N][halves * 2];  // what is added to a score
        const int left = a.keys - first - quarter * 2;
#pragma unroll
        for (int n = 0; n < N; n++) {
#pragma unroll
            for (int e = 0; e < halves * 2; e++) {
                mask[n][e] = n * 8 + e % 2 < left ? 0 : -INFINITY;
                if (Mask == mask_none || n * 8 + e % 2 >= left || group + e / 2 * 8 >= a.queries) continue;
                const M m = next_mask[e / 2 * 8 * a.mask_row + e % 2 * a.mask_column];
                if constexpr (Mask == mask_bool) mask[n][e] = m ? 0 : -INFINITY;
                else mask[n][e] = convert<float>(m) * log2_e<float>;
            }
            next_mask += 8 * a.mask_column;
        }
        next_mask += (step - 8 * N) * a.mask_column;
        float s[N][4] = {};
#pragma unroll
        for (int c = 0; c < chunks; c++) {
            const uint32_t one[4] = {q[0][c].x, q[1][c].x, q[0][c].y, q[1][c].y}, two[4] = {q[0][c].z, q[1][c].z, q[0][c].w, q[1][c].w};
#pragma unroll
            for (int n = 0; n < N; n++) {
                multiply<T>(s[n], one, k[n][c].x, k[n][c].y);
                multiply<T>(s[n], two, k[n][c].z, k[n][c].w);
            }
        }
        load_keys(first + step);
#pragma unroll
        for (int i = 0; i < halves; i++) {
            float most = -INFINITY, sum = 0;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) {
                    s[n][e] = mask[n][e] == -INFINITY ? -INFINITY : s[n][e] * to_base_2 + mask[n][e];
                    most = fmaxf(most, s[n][e]);
                }
            most = fmaxf(top[i], over_quad(most, [](float x, float y) { return fmaxf(x, y); }));
            const float base = most == -INFINITY ? 0.f : most,
                        shrink = power_of_2(top[i] - base);  // nothing seen yet: all weights are zero
            top[i] = most;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 2 * i; e < 2 * i + 2; e++) sum += s[n][e] = power_of_2(s[n][e] - base);
            total[i] = total[i] * shrink + sum;
#pragma unroll
            for (int n = 0; n < spans * 8; n++) sums[n][2 * i] *= shrink, sums[n][2 * i + 1] *= shrink;
        }
#pragma unroll
        for (int p = 0; p < N / 2; p++) {
            uint32_t weights[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                weights[e] = e % 2 < halves ? pack<T>(s[2 * p + e / 2][e % 2 * 2], s[2 * p + e / 2][e % 2 * 2 + 1]) : 0;
#pragma unroll
            for (int c = 0; c < spans; c++)
#pragma unroll
                for (int i = 0; i < 8; i++) {  // element i of the rows of four keys, in pairs
                    auto pair = [&](int j) {
                        const uint4 x = v[p][j][c], y = v[p][j + 1][c];
                        const uint32_t low = i < 2   ? x.x
                                             : i < 4 ? x.y
                                             : i < 6 ? x.z
                                                     : x.w,
                                       high = i < 2   ? y.x
                                              : i < 4 ? y.y
                                              : i < 6 ? y.z
                                                      : y.w;
                        return __byte_perm(low, high, i % 2 ? 0x7632 : 0x5410);
                    };
                    multiply<T>(sums[c * 8 + i], weights, pair(0), pair(2));
                }
        }
        load_values(first + step);
    }

    // What a block shows the others lies at [0].
    __shared__ __align__(16) float sum_of[warps][rows][D + 4];
    __shared__ float top_of[warps + 1][rows], total_of[warps + 1][rows];
#pragma unroll
    for (int i = 0; i < halves; i++) {
        const int r = group + i * 8;
        const float all = sum_of_quad(total[i]);
        if (quarter == 0) top_of[warp + 1][r] = top[i], total_of[warp + 1][r] = all;
#pragma unroll
        for (int c = 0; c < spans; c++)
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int n = 0; n < 8; n += 4)
                    *reinterpret_cast<float4*>(&sum_of[warp][r][c * 64 + (quarter * 2 + e) * 8 + n]) =
                        make_float4(sums[c * 8 + n][2 * i + e], sums[c * 8 + n + 1][2 * i + e], sums[c * 8 + n + 2][2 * i + e],
                                    sums[c * 8 + n + 3][2 * i + e]);
    }
    __syncthreads();
    auto finish = [&](int r, int column, const Seen& seen) {
        const float y = seen.total == 0 ? 0.f : __fdividef(seen.sum, seen.total),
                    lse = seen.total == 0 ? INFINITY : seen.top + log2f(seen.total);
        const int64_t row = int64_t(blockIdx.x) * a.queries + r;
        if (Cluster == 1 && gridDim.z > 1) {
            const int64_t piece = int64_t(blockIdx.z) * gridDim.x * a.queries + row;
            if (column < a.value_width) static_cast<float*>(a.pieces)[piece * a.value_width + column] = y;
            if (column == 0) static_cast<float*>(a.piece_logsumexp)[piece] = lse;
        } else {
            if (column < a.value_width) a.out.at<T>(b, h)[r * a.out.row + column] = convert<T>(y);
            if (column == 0) static_cast<float*>(a.logsumexp)[row] = lse * base_2_in<T>;
        }
    };
    const int all = a.queries * D;
    for (int i = threadIdx.x; i < all; i += warps * 32) {
        const int r = i / D, column = i % D;
        const Seen seen = Seen::together<warps>([&](int w) { return Seen{top_of[w + 1][r], total_of[w + 1][r], sum_of[w][r][column]}; });
        if constexpr (Cluster == 1) {
            finish(r, column, seen);
        } else {
            sum_of[0][r][column] = seen.sum;
            if (column == 0) top_of[0][r] = seen.top, total_of[0][r] = seen.total;
        }
    }
    if constexpr (Cluster > 1) {
        cluster_meets();
        for (int i = int(blockIdx.z) * warps * 32 + threadIdx.x; i < all; i += Cluster * warps * 32) {
            const int r = i / D, column = i % D;
            finish(r, column, Seen::together<Cluster>([&](int rank) {
                       return Seen{load_from(place_in(&top_of[0][r], rank)), load_from(place_in(&total_of[0][r], rank)),
                                   load_from(place_in(&sum_of[0][r][column], rank))};
                   }));
        }
        cluster_ends();
    }
}

}  // namespace wisp
