// The strides of a fresh tensor whose dimensions lie in an order that others set: the one sort for all that follow their operands.
#pragma once
#include <algorithm>
#include <utility>

#include "layout.h"

namespace wisp {

// Whether of two dimensions of an operand the first should lie further out in a result: > 0 yes, < 0 no, 0 if the strides tell nothing. Of
// equal strides the longer dimension lies further out.
inline int further_out(int64_t stride_a, int64_t stride_b, int64_t size_a, int64_t size_b) {
    if (stride_a == 0 || stride_b == 0) return 0;
    return stride_a != stride_b ? (stride_a > stride_b ? 1 : -1) : size_a > size_b ? 1 : 0;
}

// Dimensions 0 to n - 1 from the innermost out, where rule(a, b) tells of two as further_out does. An insertion, as PyTorch does it:
// what is told need be no order of all dimensions.
template <class Rule> Dims dense_order(int64_t n, Rule&& rule) {
    Dims order(n);
    for (int64_t i = 0; i < n; i++) order[i] = n - 1 - i;
    for (int64_t i = 1; i < n; i++)
        for (int64_t at = i, before = i - 1; before >= 0; before--) {
            const int told = rule(order[before], order[at]);
            if (told < 0) break;
            if (told == 0) continue;
            std::swap(order[before], order[at]);
            at = before;
        }
    return order;
}

// Strides of a dense tensor whose dimensions lie in that order.
inline Dims strides_in_order(const Dims& sizes, const Dims& order) {
    Dims strides(sizes.size());
    int64_t step = 1;
    for (int64_t d : order) {
        strides[d] = step;
        step = wrapped(step, std::max<int64_t>(sizes[d], 1));  // sizes of 0 may stand beside huge ones
    }
    return strides;
}

template <class Rule> Dims dense_strides(const Dims& sizes, Rule&& rule) {
    return strides_in_order(sizes, dense_order(sizes.size(), rule));
}

}  // namespace wisp
