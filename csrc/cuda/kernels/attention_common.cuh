// What the kernels of attention share: their arguments, the mask, and dropout by the CPU's numbers.
#pragma once
#include "cuda/kernels/philox.cuh"

namespace wisp {

// Four dimensions, (batch, heads, rows, columns); the columns are adjacent. Strides count elements.
struct AttentionTensor {
    void* data;
    int64_t batch, head, row, repeat;  // repeat: so many heads, one after the other, are one in memory
    template <class T> WISP_INLINE T* at(int b, int h) const {
        return static_cast<T*>(data) + b * batch + (repeat == 1 ? h : h / int(repeat)) * head;
    }
};

// As csrc/cuda/attention.cpp fills it in.
struct AttentionArguments {
    AttentionTensor query, key, value, out, grad, grad_query, grad_key, grad_value;
    // (batch, heads, queries): of the scores, natural for half types (as a library leaves them) and to base 2 for others; for backward over
    // keys, to base 2 for all, and the dot products of grad and out.
    void *logsumexp, *base_2, *product;
    const void* mask;  // may be null; zero strides repeat
    int64_t mask_batch, mask_head, mask_row, mask_column;
    uint64_t seed, offset, keep_below;
    const uint64_t* moved;  // of a captured graph, or null
    double scale, keep_scale;
    int heads, share;  // query head h reads key head h / share
    int queries, keys, width, value_width;
    int causal, mask_is_bool, dropout;
    void *pieces, *piece_logsumexp;  // of a forward pass whose keys are cut into gridDim.z pieces: results and logarithms of each
    const uint32_t* kept;            // bit e: whether dropout keeps element e of its stream; null: the kernels draw numbers themselves
    uint4* slopes;                   // gradients of the scores, which the pass over keys leaves; null: they are made twice
    int slope_rows, slope_columns;   // in blocks of 16 queries and 16 keys: (heads, rows, columns, 32 threads)
    int first_head;                  // of a launch for some of the heads of all batches: those with memory for `slopes`

    // A warp's block as the left operand of a product over keys; `head` counts from first_head.
    WISP_INLINE uint4* slopes_of(int64_t head, int row, int column) const {
        return slopes + ((head * slope_rows + row) * slope_columns + column) * 32 + threadIdx.x % 32;
    }
};

// A block's share of a pass over queries: `Rows` of them, of one head, those that see most first.
template <int Rows> struct QueryBlock {
    int h, b, q0, limit;  // limit: where the keys that they see end
    int64_t row, piece;   // of the first among all rows of all heads, and of all pieces
    WISP_INLINE QueryBlock(const AttentionArguments& a)
        : h((a.first_head + blockIdx.x) % a.heads), b((a.first_head + blockIdx.x) / a.heads), q0((gridDim.y - 1 - blockIdx.y) * Rows) {
        limit = a.causal ? min(a.keys, q0 + Rows) : a.keys;
        row = int64_t(a.first_head + blockIdx.x) * a.queries + q0;
        piece = int64_t(blockIdx.z) * gridDim.x * a.queries + row;
    }
    template <class T> WISP_INLINE T* own(const AttentionTensor& t) const { return t.at<T>(b, h) + q0 * t.row; }
    // The part of the tiles of keys that belongs to the block's piece.
    WISP_INLINE int2 part_of(int tiles) const {
        return make_int2(int(blockIdx.z) * tiles / int(gridDim.z), (int(blockIdx.z) + 1) * tiles / int(gridDim.z));
    }
    template <class T> WISP_INLINE T* other(const AttentionTensor& t, int share) const { return t.at<T>(b, h / share); }
};
// And of a pass over keys: `Rows` of them, of one of their heads.
template <int Rows> struct KeyBlock {
    int h, b, k0;
    WISP_INLINE KeyBlock(const AttentionArguments& a) : k0(blockIdx.y * Rows) {
        const int head = a.first_head / a.share + int(blockIdx.x), heads = a.heads / a.share;
        h = head % heads, b = head / heads;
    }
    template <class T> WISP_INLINE T* own(const AttentionTensor& t) const { return t.at<T>(b, h) + k0 * t.row; }
};

template <class C> inline constexpr C log2_e = C(1.4426950408889634074);
// A logarithm to base 2 in the units of `logsumexp`.
template <class T> inline constexpr float base_2_in = sizeof(T) == 2 ? 0.693147180559945309f : 1.f;

// One head's view of mask and dropout.
template <class T> struct Visibility {
    const AttentionArguments& a;
    const char* mask;
    int64_t first;  // number of its element (0, 0) in the stream of dropout
    uint64_t seed, offset;
    WISP_INLINE Visibility(const AttentionArguments& a, int b, int h) : a(a), seed(a.seed), offset(a.offset) {
        if (a.moved) seed ^= a.moved[0], offset += a.moved[1];
        mask = static_cast<const char*>(a.mask) + (b * a.mask_batch + h * a.mask_head) * int64_t(a.mask_is_bool ? 1 : sizeof(T));
        first = (int64_t(b) * a.heads + h) * a.queries * int64_t(a.keys);
    }
    WISP_INLINE bool inside(int q, int k) const { return k < a.keys && q < a.queries && !(a.causal && k > q); }
    // A score, given to base 2, with its mask.
    template <class C> WISP_INLINE C masked(C score, int q, int k) const {
        if (!inside(q, k)) return C(-INFINITY);
        if (!a.mask) return score;
        const int64_t at = q * a.mask_row + k * a.mask_column;
        if (a.mask_is_bool) return reinterpret_cast<const Bool*>(mask)[at] ? score : C(-INFINITY);
        return score + convert<C>(reinterpret_cast<const T*>(mask)[at]) * log2_e<C>;
    }
    // Numbers for element e and those 16, 32 and 48 on or back: those that share e / 64 and e % 16.
    WISP_INLINE Words draw(uint64_t e) const { return philox(seed, offset, e / 64 * 16 + e % 16); }
    // What dropout makes of a weight: keep_scale or 0.
    template <class C> WISP_INLINE C kept(int q, int k) const {
        const uint64_t e = uint64_t(first + q * int64_t(a.keys) + k);
        const Words w = draw(e);
        const int word = int(e % 64 / 16);
        return uint64_t(word < 2 ? (word == 0 ? w.at[0] : w.at[1]) : (word == 2 ? w.at[2] : w.at[3])) < a.keep_below ? C(a.keep_scale)
                                                                                                                     : C(0);
    }
};

}  // namespace wisp
