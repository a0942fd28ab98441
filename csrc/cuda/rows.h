// How rows are given to threads: those that fit stay in registers between the passes over them (kernels/rows.cuh).
#pragma once
#include <cstdint>
#include <initializer_list>

#include "runtime.h"

namespace wisp::cuda {

struct RowPlan {
    int per_thread = 0;  // vectors of 16 bytes; 0: the row is too long or not aligned
    Grid block;          // a warp a row and four rows, or a block a row
    unsigned blocks(int64_t rows) const { return unsigned((rows + block.y - 1) / block.y); }
};

// `most`: elements a thread may hold. Instances exist for 1, 2, 3, 4, 6 and 8 vectors.
inline RowPlan plan_rows(int64_t n, int64_t item, int64_t most, std::initializer_list<const void*> pointers) {
    RowPlan plan;
    uintptr_t bits = uintptr_t(n * item);
    for (const void* p : pointers) bits |= uintptr_t(p);
    const int64_t vector = 16 / item, vectors = n / vector;
    if (bits % 16 != 0 || n == 0) return plan;
    for (int k : {1, 2, 3, 4, 6, 8}) {
        if (k * vector > most) break;
        if (vectors <= 32 * k) {
            plan.per_thread = k;
            plan.block = {32, 4};
            return plan;
        }
    }
    for (int k : {2, 4, 8}) {
        if (k * vector > most) break;
        const int64_t threads = ((vectors + k - 1) / k + 31) / 32 * 32;
        if (threads > 512) continue;
        plan.per_thread = k;
        plan.block = {unsigned(threads)};
        if (threads <= 256) break;
    }
    return plan;
}

}  // namespace wisp::cuda
