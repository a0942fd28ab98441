// Attention in blocks of queries times keys: products through the matrix kernels, softmax on the block while it is in
// cache, with the running maximum and sum of each row.
#include "kernels/attention.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "kernels/gemm.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t query_block = 64, key_block = 256;

template <class C> struct Matrix {  // element (i, j) at data[i * row + j * column]
    const C* data;
    int64_t row, column;
};
template <class C> WISP_INLINE Matrix<C> transposed(Matrix<C> m) { return {m.data, m.column, m.row}; }

// c (adjacent columns, rows c_row apart) = a b + (add ? c : 0)
template <class C> void multiply(int64_t m, int64_t n, int64_t k, Matrix<C> a, Matrix<C> b, C* c, int64_t c_row, bool add) {
    GemmArgs args{};
    args.m = m, args.n = n, args.k = k;
    args.a = a.data, args.a_row = a.row, args.a_col = a.column;
    args.b = b.data, args.b_row = b.row, args.b_col = b.column;
    args.c = c, args.c_row = c_row;
    args.d = c, args.d_row = c_row, args.d_col = 1;
    args.beta = add ? 1 : 0;
    if constexpr (sizeof(C) == 4) gemm.f32(args);
    else gemm.matmul(dtype_of<C>, args);
}

// One query head: where its matrices are.
template <class C> struct Head {
    Matrix<C> query, key, value;
    const char* mask;
    WISP_INLINE Head(const AttentionArgs& a, int64_t b, int64_t h) {
        const int64_t kh = h / (a.heads / a.key_heads);
        query = at(a.query, b, h);
        key = at(a.key, b, kh);
        value = at(a.value, b, kh);
        const int64_t item = a.mask_is_bool ? 1 : int64_t(sizeof(C));
        mask = a.mask ? (const char*)a.mask + (b * a.mask_batch + h * a.mask_head) * item : nullptr;
    }
    static WISP_INLINE Matrix<C> at(const AttentionTensor& t, int64_t b, int64_t h) {
        return {(const C*)t.data + b * t.batch_stride + h * t.head_stride, t.row_stride, 1};
    }
};
template <class C> WISP_INLINE C* row_of(const AttentionTensor& t, int64_t b, int64_t h, int64_t i) {
    return (C*)t.data + b * t.batch_stride + h * t.head_stride + i * t.row_stride;
}
template <class C> WISP_INLINE Matrix<C> rows_from(Matrix<C> m, int64_t i) { return {m.data + i * m.row, m.row, m.column}; }

// Keys [0, limit) are all that a block of queries ending at `query_end` can see.
WISP_INLINE int64_t visible_keys(const AttentionArgs& a, int64_t query_end) { return a.causal ? least(a.keys, query_end) : a.keys; }

// A block of queries times the scale, next to each other.
template <class C> Matrix<C> scaled_queries(const AttentionArgs& a, const Head<C>& head, int64_t q0, int64_t nq) {
    C* scaled = static_cast<C*>(scratch(3, size_t(query_block * a.width + 1) * sizeof(C)));
    const C scale = C(a.scale);
    for (int64_t i = 0; i < nq; i++) {
        const C* from = head.query.data + (q0 + i) * head.query.row;
        for (int64_t j = 0; j < a.width; j++) scaled[i * a.width + j] = from[j] * scale;
    }
    return {scaled, a.width, 1};
}

// scores (nq x nk, rows nk apart) of one block, masked with -inf.
template <class C> void block_scores(const AttentionArgs& a, const Head<C>& head, Matrix<C> queries, int64_t q0, int64_t nq, int64_t k0,
                                     int64_t nk, C* scores) {
    multiply<C>(nq, nk, a.width, queries, transposed(rows_from(head.key, k0)), scores, nk, false);
    if (head.mask)
        for (int64_t i = 0; i < nq; i++) {
            C* row = scores + i * nk;
            const int64_t start = (q0 + i) * a.mask_row + k0 * a.mask_column;
            if (a.mask_is_bool) {
                const uint8_t* m = (const uint8_t*)head.mask + start;
                if (a.mask_column == 1)
                    for (int64_t j = 0; j < nk; j++) row[j] = m[j] ? row[j] : C(-infinity_f);
                else
                    for (int64_t j = 0; j < nk; j++) row[j] = m[j * a.mask_column] ? row[j] : C(-infinity_f);
            } else {
                const C* m = (const C*)head.mask + start;
                if (a.mask_column == 1)
                    for (int64_t j = 0; j < nk; j++) row[j] += m[j];
                else
                    for (int64_t j = 0; j < nk; j++) row[j] += m[j * a.mask_column];
            }
        }
    if (a.causal)
        for (int64_t i = 0; i < nq; i++) {
            const int64_t seen = q0 + i + 1 - k0;
            for (int64_t j = seen < 0 ? 0 : seen; j < nk; j++) scores[i * nk + j] = C(-infinity_f);
        }
}

// What dropout makes of the weights of row i from key k0 on: factors of keep_scale or 0.
template <class C> void keep_factors(const AttentionArgs& a, int64_t b, int64_t h, int64_t i, int64_t k0, int64_t nk, C* factors) {
    alignas(64) uint32_t words[key_block];
    random.bits32(words, nk, a.stream, ((b * a.heads + h) * a.queries + i) * a.keys + k0);
    const bool all = a.keep_below > 0xffffffffu;
    const uint32_t limit = uint32_t(a.keep_below);
    const C scale = C(a.keep_scale);
    for (int64_t j = 0; j < nk; j++) factors[j] = all || words[j] < limit ? scale : C(0);
}

template <class C>
void forward_block(const AttentionArgs& a, const AttentionTensor& out, C* logsumexp, int64_t b, int64_t h, int64_t q0, int64_t high) {
    const Head<C> head(a, b, h);
    const int64_t nq = least(high, a.queries - q0), limit = visible_keys(a, q0 + nq), wide = a.value_width;
    C* scores = static_cast<C*>(scratch(0, size_t(query_block * (least(key_block, limit) + 1)) * sizeof(C)));
    C* sums = static_cast<C*>(scratch(1, size_t(query_block * (wide + 1)) * sizeof(C)));
    C top[query_block], total[query_block];
    for (int64_t i = 0; i < nq; i++) {
        top[i] = C(-infinity_f);
        total[i] = 0;
    }
    for (int64_t i = 0; i < nq * wide; i++) sums[i] = 0;
    const Matrix<C> queries = scaled_queries(a, head, q0, nq);
    for (int64_t k0 = 0; k0 < limit; k0 += key_block) {
        const int64_t nk = least(key_block, limit - k0);
        block_scores(a, head, queries, q0, nq, k0, nk, scores);
        for (int64_t i = 0; i < nq; i++) {
            C* row = scores + i * nk;
            Vector<C> most = splat(C(-infinity_f));
            each_vector<C>(nk, [&](int64_t j, auto vector) { most = maximum(vector.load((const C*)row + j, C(-infinity_f)), most); });
            const C block_top = max_lanes(most), new_top = block_top > top[i] ? block_top : top[i];
            const C base = new_top == C(-infinity_f) ? C(0) : new_top;  // nothing seen yet: all exponentials are zero
            double added[1];
            sum_along<C>(nk, added, [&](int64_t j, auto vector, Vector<C>* v) {
                v[0] = exp_nonpositive(vector.load((const C*)row + j) - base);
                vector.store(row + j, v[0]);
            });
            if (k0 > 0 && new_top != top[i]) {
                const C shrink = exp(top[i] - base);
                total[i] *= shrink;
                each_vector<C>(wide, [&](int64_t j, auto vector) {
                    vector.store(sums + i * wide + j, vector.load((const C*)sums + i * wide + j) * shrink);
                });
            }
            total[i] += C(added[0]);
            top[i] = new_top;
            if (a.dropout) {
                alignas(64) C factors[key_block];
                keep_factors(a, b, h, q0 + i, k0, nk, factors);
                for (int64_t j = 0; j < nk; j++) row[j] *= factors[j];
            }
        }
        multiply<C>(nq, wide, nk, Matrix<C>{scores, nk, 1}, rows_from(head.value, k0), sums, wide, k0 > 0);
    }
    for (int64_t i = 0; i < nq; i++) {
        const C factor = total[i] == 0 ? C(0) : C(1) / total[i];
        C* to = row_of<C>(out, b, h, q0 + i);
        each_vector<C>(wide, [&](int64_t j, auto vector) { vector.store(to + j, vector.load((const C*)sums + i * wide + j) * factor); });
        // A row that sees nothing: +inf, which makes its weights zero when they are recomputed.
        logsumexp[(b * a.heads + h) * a.queries + q0 + i] = total[i] == 0 ? C(infinity_f) : top[i] + log(total[i]);
    }
}

template <class C> void forward_as(const AttentionArgs& a, const AttentionTensor& out, C* logsumexp) {
    // Half of a causal block's last square is not seen: blocks are lower where that is much of the work.
    const int64_t high = a.causal && a.queries <= 4 * query_block ? query_block / 2 : query_block;
    const int64_t blocks = (a.queries + high - 1) / high;
    parallel_for(a.batch * a.heads * blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t head = i / blocks;
            forward_block(a, out, logsumexp, head / a.heads, head % a.heads, i % blocks * high, high);
        }
    });
}

// ---- backward

template <class C> struct Gradients {
    const AttentionArgs& a;
    const AttentionTensor &grad, &out, &grad_query, &grad_key, &grad_value;
    const C* logsumexp;
    const C* products;  // (batch, heads, queries): the dot product of grad and out of each row
};

// The weights of one block after dropout, and the gradient of its scores times `scale`, both nq x nk.
template <class C> void block_gradients(const Gradients<C>& g, const Head<C>& head, int64_t b, int64_t h, int64_t q0, int64_t nq,
                                        int64_t k0, int64_t nk, C scale, C* weights, C* slopes) {
    const AttentionArgs& a = g.a;
    const int64_t first = (b * a.heads + h) * a.queries + q0;
    block_scores(a, head, scaled_queries(a, head, q0, nq), q0, nq, k0, nk, weights);
    const Matrix<C> grad = rows_from(Head<C>::at(g.grad, b, h), q0);
    multiply<C>(nq, nk, a.value_width, grad, transposed(rows_from(head.value, k0)), slopes, nk, false);
    for (int64_t i = 0; i < nq; i++) {
        const C lse = g.logsumexp[first + i], product = g.products[first + i];
        C *w = weights + i * nk, *s = slopes + i * nk;
        if (a.dropout) {
            alignas(64) C factors[key_block];
            keep_factors(a, b, h, q0 + i, k0, nk, factors);
            each_vector<C>(nk, [&](int64_t j, auto vector) {
                const Vector<C> p = exp_nonpositive(vector.load((const C*)w + j) - lse);
                const Vector<C> f = vector.load((const C*)factors + j);
                vector.store(w + j, p * f);
                vector.store(s + j, p * (vector.load((const C*)s + j) * f - product) * scale);
            });
            continue;
        }
        each_vector<C>(nk, [&](int64_t j, auto vector) {
            const Vector<C> p = exp_nonpositive(vector.load((const C*)w + j) - lse);
            vector.store(w + j, p);
            vector.store(s + j, p * (vector.load((const C*)s + j) - product) * scale);
        });
    }
}

struct Buffers {
    void *weights, *slopes;
};
template <class C> Buffers block_buffers(const AttentionArgs& a) {
    const size_t bytes = size_t(query_block * (least(key_block, a.keys) + 1)) * sizeof(C);
    return {scratch(0, bytes), scratch(1, bytes)};
}

template <class C> void clear_rows(const AttentionTensor& t, int64_t b, int64_t h, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; i++) std::memset(row_of<C>(t, b, h, i), 0, size_t(width) * sizeof(C));
}

// The gradients of keys [k0, k0 + nk) of one key head and, if asked, what they add to those of the queries.
template <class C> void backward_keys(const Gradients<C>& g, int64_t b, int64_t key_head, int64_t k0, bool with_queries) {
    const AttentionArgs& a = g.a;
    const int64_t share = a.heads / a.key_heads;
    const Buffers buffers = block_buffers<C>(a);
    C *weights = (C*)buffers.weights, *slopes = (C*)buffers.slopes;
    const int64_t nk = least(key_block, a.keys - k0);
    C* grad_key = row_of<C>(g.grad_key, b, key_head, k0);
    C* grad_value = row_of<C>(g.grad_value, b, key_head, k0);
    // From the last queries on, which see the most keys: the first block writes what later ones add to.
    int64_t written = 0;
    for (int64_t h = key_head * share; h < (key_head + 1) * share; h++) {
        const Head<C> head(a, b, h);
        const int64_t first = a.causal ? k0 / query_block * query_block : 0;
        for (int64_t q0 = (a.queries - 1) / query_block * query_block; q0 >= first; q0 -= query_block) {
            const int64_t nq = least(query_block, a.queries - q0);
            const int64_t seen = least(nk, visible_keys(a, q0 + nq) - k0);
            if (seen <= 0) continue;
            block_gradients(g, head, b, h, q0, nq, k0, seen, C(a.scale), weights, slopes);
            const Matrix<C> w{weights, seen, 1}, s{slopes, seen, 1};
            multiply<C>(seen, a.value_width, nq, transposed(w), rows_from(Head<C>::at(g.grad, b, h), q0), grad_value,
                        g.grad_value.row_stride, written > 0);
            multiply<C>(seen, a.width, nq, transposed(s), rows_from(head.query, q0), grad_key, g.grad_key.row_stride, written > 0);
            if (with_queries)
                multiply<C>(nq, a.width, seen, s, rows_from(head.key, k0), row_of<C>(g.grad_query, b, h, q0), g.grad_query.row_stride,
                            k0 > 0);
            if (written == 0) written = seen;
        }
    }
    for (int64_t i = written; i < nk; i++) {
        std::memset(grad_key + i * g.grad_key.row_stride, 0, size_t(a.width) * sizeof(C));
        std::memset(grad_value + i * g.grad_value.row_stride, 0, size_t(a.value_width) * sizeof(C));
    }
}

template <class C> void backward_queries(const Gradients<C>& g, int64_t b, int64_t h, int64_t q0) {
    const AttentionArgs& a = g.a;
    const Head<C> head(a, b, h);
    const Buffers buffers = block_buffers<C>(a);
    C *weights = (C*)buffers.weights, *slopes = (C*)buffers.slopes;
    const int64_t nq = least(query_block, a.queries - q0), limit = visible_keys(a, q0 + nq);
    for (int64_t k0 = 0; k0 < limit; k0 += key_block) {
        const int64_t nk = least(key_block, limit - k0);
        block_gradients(g, head, b, h, q0, nq, k0, nk, C(a.scale), weights, slopes);
        multiply<C>(nq, a.width, nk, Matrix<C>{slopes, nk, 1}, rows_from(head.key, k0), row_of<C>(g.grad_query, b, h, q0),
                    g.grad_query.row_stride, k0 > 0);
    }
}

// The gradient of the mask: each task owns a part of it, and adds up all heads and blocks that the part is repeated for.
template <class C> void backward_mask(const Gradients<C>& g, const AttentionMaskGradient& m) {
    const AttentionArgs& a = g.a;
    const int64_t batches = m.batch ? a.batch : 1, heads = m.head ? a.heads : 1;
    const int64_t row_tasks = m.row ? (a.queries + query_block - 1) / query_block : 1;
    const int64_t column_tasks = m.column ? (a.keys + key_block - 1) / key_block : 1;
    parallel_for(batches * heads * row_tasks * column_tasks, 1, [&](int64_t begin, int64_t end) {
        const Buffers buffers = block_buffers<C>(a);
        C *weights = (C*)buffers.weights, *slopes = (C*)buffers.slopes;
        for (int64_t task = begin; task < end; task++) {
            const int64_t column = task % column_tasks, row = task / column_tasks % row_tasks;
            const int64_t first_head = task / (column_tasks * row_tasks) % heads;
            const int64_t first_batch = task / (column_tasks * row_tasks * heads);
            const int64_t q_end = m.row ? least(a.queries, (row + 1) * query_block) : a.queries;
            const int64_t k_end = m.column ? least(a.keys, (column + 1) * key_block) : a.keys;
            for (int64_t b = first_batch; b < (m.batch ? first_batch + 1 : a.batch); b++)
                for (int64_t h = first_head; h < (m.head ? first_head + 1 : a.heads); h++) {
                    const Head<C> head(a, b, h);
                    for (int64_t q0 = row * query_block; q0 < q_end; q0 += query_block)
                        for (int64_t k0 = column * key_block; k0 < k_end; k0 += key_block) {
                            const int64_t nq = least(query_block, q_end - q0), nk = least(key_block, k_end - k0);
                            block_gradients(g, head, b, h, q0, nq, k0, nk, C(1), weights, slopes);
                            for (int64_t i = 0; i < nq; i++) {
                                C* to = (C*)m.data + b * m.batch + h * m.head + (q0 + i) * m.row + k0 * m.column;
                                for (int64_t j = 0; j < nk; j++) to[j * m.column] += slopes[i * nk + j];
                            }
                        }
                }
        }
    });
}

template <class C> void backward_as(const AttentionArgs& a, const AttentionTensor& grad, const AttentionTensor& out, const C* logsumexp,
                                    const AttentionTensor& grad_query, const AttentionTensor& grad_key, const AttentionTensor& grad_value,
                                    const AttentionMaskGradient& grad_mask) {
    C* products = static_cast<C*>(scratch(2, size_t(a.batch * a.heads * a.queries + 1) * sizeof(C)));
    parallel_for(a.batch * a.heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t b = i / a.heads, h = i % a.heads;
            if (a.keys == 0) clear_rows<C>(grad_query, b, h, a.queries, a.width);
            for (int64_t q = 0; q < a.queries; q++) {
                const C *x = row_of<C>(grad, b, h, q), *y = row_of<C>(out, b, h, q);
                double total[1];
                sum_along<C>(a.value_width, total,
                             [&](int64_t j, auto vector, Vector<C>* v) { v[0] = vector.load(x + j) * vector.load(y + j); });
                products[i * a.queries + q] = C(total[0]);
            }
        }
    });
    const Gradients<C> g{a, grad, out, grad_query, grad_key, grad_value, logsumexp, products};
    if (grad_mask.data) backward_mask(g, grad_mask);
    const int64_t key_blocks = (a.keys + key_block - 1) / key_block;
    // Enough heads: each is one task and its scores are computed once. Few: blocks are the tasks, and the scores are
    // computed for the keys and again for the queries. The choice must not depend on the number of threads.
    if (a.batch * a.key_heads >= 8) {
        parallel_for(a.batch * a.key_heads, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++)
                for (int64_t k = 0; k < key_blocks; k++) backward_keys(g, i / a.key_heads, i % a.key_heads, k * key_block, true);
        });
        return;
    }
    parallel_for(a.batch * a.key_heads * key_blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t head = i / key_blocks;
            backward_keys(g, head / a.key_heads, head % a.key_heads, i % key_blocks * key_block, false);
        }
    });
    const int64_t query_blocks = (a.queries + query_block - 1) / query_block;
    parallel_for(a.batch * a.heads * query_blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t head = i / query_blocks;
            backward_queries(g, head / a.heads, head % a.heads, i % query_blocks * query_block);
        }
    });
}

void forward(const AttentionArgs& a, const AttentionTensor& out, void* logsumexp) {
    if (a.dtype == DType::f32) forward_as(a, out, (float*)logsumexp);
    else forward_as(a, out, (double*)logsumexp);
}
void backward(const AttentionArgs& a, const AttentionTensor& grad, const AttentionTensor& out, const void* logsumexp,
              const AttentionTensor& grad_query, const AttentionTensor& grad_key, const AttentionTensor& grad_value,
              const AttentionMaskGradient& grad_mask) {
    if (a.dtype == DType::f32) backward_as(a, grad, out, (const float*)logsumexp, grad_query, grad_key, grad_value, grad_mask);
    else backward_as(a, grad, out, (const double*)logsumexp, grad_query, grad_key, grad_value, grad_mask);
}

}  // namespace

extern const AttentionKernels attention_table = {
    &forward, &backward, false, true, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, "ScaledDotProductFlashAttentionForCpuBackward0"};

}  // namespace wisp::cpu::WISP_ISA
