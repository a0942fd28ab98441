// The strides of a fresh tensor whose dimensions lie in an order that others set: the one sort for all that follow their operands.
#pragma once
#include <algorithm>
#include <utility>

#include "layout.h"

namespace wisp {

// further_out(a, b): > 0 if dimension a must lie further out than b, < 0 if not, 0 if nothing tells. An insertion, as PyTorch does it: what
// is told need be no order of all dimensions.
template <class Rule> Dims dense_strides(const Dims& sizes, Rule&& further_out) {
    const int64_t n = sizes.size();
    Dims order(n);  // from the innermost out
    for (int64_t i = 0; i < n; i++) order[i] = n - 1 - i;
    for (int64_t i = 1; i < n; i++)
        for (int64_t at = i, before = i - 1; before >= 0; before--) {
            const int told = further_out(order[before], order[at]);
            if (told < 0) break;
            if (told == 0) continue;
            std::swap(order[before], order[at]);
            at = before;
        }
    Dims strides(n);
    int64_t step = 1;
    for (int64_t d : order) {
        strides[d] = step;
        step = wrapped(step, std::max<int64_t>(sizes[d], 1));  // sizes of 0 may stand beside huge ones
    }
    return strides;
}

}  // namespace wisp
