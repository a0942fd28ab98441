// Before and after the kernels of attention.cuh: floats in the parts that the tensor cores multiply, what dropout keeps as bits, and
// results for pieces of the keys as one.
#include "cuda/kernels/attention_common.cuh"
#include "cuda/kernels/mma.cuh"

namespace wisp {

// Bits of 64 elements are a group, whose numbers come from 16 calls of the generator; a warp makes two groups.
__global__ void __launch_bounds__(256) attention_kept(const __grid_constant__ AttentionArguments a, uint32_t* bits, int64_t groups) {
    uint64_t seed = a.seed, offset = a.offset;
    if (a.moved) seed ^= a.moved[0], offset += a.moved[1];
    const int lane = threadIdx.x % 32;
    for (int64_t call = int64_t(blockIdx.x) * 256 + threadIdx.x; call - lane < groups * 16; call += int64_t(gridDim.x) * 256) {
        const Words w = philox(seed, offset, uint64_t(call));
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = __ballot_sync(~0u, uint64_t(w.at[i]) < a.keep_below) >> (lane & 16) & 0xffff;
        const int64_t group = call / 16;
        if (lane % 16 == 0 && group < groups) {
            bits[group * 2] = words[0] | words[1] << 16;
            bits[group * 2 + 1] = words[2] | words[3] << 16;
        }
    }
}

// As csrc/cuda/attention.cpp fills it in.
struct PartsArguments {
    AttentionTensor from[4];
    void* to[4];  // (batch, heads, rows, 3, width), where the width is the next multiple of 8
    int heads[4], rows[4], width[4];
    uint32_t chunks[4];  // of 8 columns, in all
};

__global__ void __launch_bounds__(256) attention_split(const __grid_constant__ PartsArguments a) {
    const int which = blockIdx.y;
    const uint32_t at = blockIdx.x * 256 + threadIdx.x;
    if (at >= a.chunks[which]) return;
    const int width = a.width[which], across = (width + 7) / 8;
    const uint32_t row = at / across, c = at % across * 8, head = row / a.rows[which];
    const float* from = a.from[which].at<float>(head / a.heads[which], head % a.heads[which]) + row % a.rows[which] * a.from[which].row + c;
    float x[8];
    if (reinterpret_cast<uint64_t>(from) % 16 == 0 && c + 8 <= width) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float4 v = reinterpret_cast<const float4*>(from)[i];
            x[4 * i] = v.x, x[4 * i + 1] = v.y, x[4 * i + 2] = v.z, x[4 * i + 3] = v.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = c + i < width ? from[i] : 0.f;
    }
    bf16* to = static_cast<bf16*>(a.to[which]) + row * int64_t(across * 24) + c;
#pragma unroll
    for (int part = 0; part < 3; part++) {
        const uint32_t v[4] = {cut(x[0], x[1]), cut(x[2], x[3]), cut(x[4], x[5]), cut(x[6], x[7])};
        *reinterpret_cast<uint4*>(to + part * across * 8) = make_uint4(v[0], v[1], v[2], v[3]);
    }
}

// A warp for each row: the pieces, 32 at most, weighted by how much of the sum of the weights is theirs.
template <class T, class C> __global__ void __launch_bounds__(128)
    attention_join(const __grid_constant__ AttentionArguments a, int pieces, int64_t rows) {
    begin_early();
    const int64_t row = int64_t(blockIdx.x) * 4 + threadIdx.x / 32;
    if (row >= rows) return;
    const int lane = threadIdx.x % 32, q = int(row % a.queries), h = int(row / a.queries % a.heads), b = int(row / a.queries / a.heads);
    const C* piece = static_cast<const C*>(a.pieces) + row * a.value_width;
    T* to = a.out.at<T>(b, h) + q * a.out.row;
    C x[16], y[16];  // of two columns, so that more is under way
    auto load = [&](int c, int first) {
#pragma unroll
        for (int p = 0; p < 16; p++) {
            const C* from = piece + (first + p) * rows * a.value_width + c;
            x[p] = c < a.value_width && first + p < pieces ? from[0] : C(0);
            y[p] = c + 32 < a.value_width && first + p < pieces ? from[32] : C(0);
        }
    };
    const C lse = lane < pieces ? static_cast<const C*>(a.piece_logsumexp)[lane * rows + row] : C(INFINITY);
    load(lane, 0);  // while the weights are made
    const bool sees = lse < C(INFINITY);
    C top = sees ? lse : C(-INFINITY);
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        const C other = __shfl_xor_sync(0xffffffffu, top, by);
        top = other > top ? other : top;
    }
    C weight = sees ? C(::exp2(lse - top)) : C(0), total = weight;
#pragma unroll
    for (int by = 16; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffffu, total, by);
    if (total != 0) weight /= total;
    for (int c = lane; c - lane < a.value_width; c += 64) {
        C sum = 0, next = 0;
        for (int first = 0; first < pieces; first += 16) {
            if (c != lane || first > 0) load(c, first);
#pragma unroll
            for (int p = 0; p < 16; p++) {
                const C w = __shfl_sync(0xffffffffu, weight, first + p);
                sum += w * x[p];
                next += w * y[p];
            }
        }
        if (c < a.value_width) to[c] = convert<T>(sum);
        if (c + 32 < a.value_width) to[c + 32] = convert<T>(next);
    }
    if (lane == 0) static_cast<C*>(a.logsumexp)[row] = total == 0 ? C(INFINITY) : (top + C(::log2(total))) * base_2_in<T>;
}

}  // namespace wisp
