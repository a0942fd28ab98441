// The loops over tensors of one shape: dimensions of one element dropped, neighbours merged where every tensor allows it.
#pragma once
#include <cstdint>

namespace wisp {

template <int Tensors> struct MergedDims {
    static constexpr int most = 64;
    int ndim = 0;
    int64_t sizes[most], strides[Tensors][most];  // from the outermost inwards

    // The next dimension inwards. stride(k): that of tensor k, of which there may be fewer than are room for.
    template <class F> [[gnu::always_inline]] void add(int64_t size, F&& stride, int tensors = Tensors) {
        if (size == 1) return;
        bool merge = ndim > 0;
        for (int k = 0; merge && k < tensors; k++) merge = strides[k][ndim - 1] == stride(k) * size;
        if (merge) sizes[ndim - 1] *= size;
        else sizes[ndim++] = size;
        for (int k = 0; k < tensors; k++) strides[k][ndim - 1] = stride(k);
    }

    // All dimensions, those first that are far apart in the first tensor. Returns which one comes first (0 if none does).
    template <class F> [[gnu::always_inline]] int add_sorted(const int64_t* shape, int dims, F&& stride, int tensors = Tensors) {
        int order[most], n = 0;
        for (int d = 0; d < dims; d++) {
            if (shape[d] == 1) continue;
            int at = n++;
            for (; at > 0 && stride(0, order[at - 1]) < stride(0, d); at--) order[at] = order[at - 1];
            order[at] = d;
        }
        for (int i = 0; i < n; i++) add(shape[order[i]], [&](int k) { return stride(k, order[i]); }, tensors);
        return n ? order[0] : 0;
    }

    // A loop of one element, if there is none.
    [[gnu::always_inline]] void at_least_one(int tensors = Tensors) {
        if (ndim) return;
        sizes[ndim++] = 1;
        for (int k = 0; k < tensors; k++) strides[k][0] = 1;
    }
};

}  // namespace wisp
