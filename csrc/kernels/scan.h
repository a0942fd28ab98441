// Running sums, products, extremes and logsumexp along one dimension.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

enum class Scan : uint8_t { sum, prod, max, min, logsumexp };

struct ScanKernels {
    // in and out are contiguous, [outer, n, inner], both of `dtype`; the scan runs along n. Half precision is for the
    // caller to widen. sum and prod: int64, floating or complex; max and min: any real dtype, and indices (or null)
    // receives where each running extreme was last seen; logsumexp: floating or complex.
    void (*scan)(Scan operation, void* out, int64_t* indices, const void* in, DType dtype, int64_t outer, int64_t n, int64_t inner);
};

}  // namespace wisp::kernels
