// Launches the products of integer matrices, which cuBLASLt has not.
#include "../core/errors.h"
#include "gemm.h"
#include "sorting.h"
#include "pointwise.h"

namespace wisp::cuda {

void integer_matmul(DType dtype, const GemmArgs& g) {
    struct {
        int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, d_row, d_col, alpha, beta;
        int batch_dims;
        int64_t batch_size[8], batch_a[8], batch_b[8], batch_c[8], batch_d[8];
    } p = {g.m,          g.n, g.k, g.a_row, g.a_col, g.b_row, g.b_col, g.c_row, g.d_row, g.d_col, g.alpha_integer, g.beta_integer,
           g.batch_dims, {},  {},  {},      {},      {}};
    static_assert(GemmArgs::max_batch_dims == 8);
    int64_t count = g.m * g.n;
    for (int t = 0; t < g.batch_dims; t++) {
        p.batch_size[t] = g.batch_size[t], p.batch_a[t] = g.batch_a[t], p.batch_b[t] = g.batch_b[t], p.batch_c[t] = g.batch_c[t],
        p.batch_d[t] = g.batch_d[t];
        count *= g.batch_size[t];
    }
    if (count)
        launch_with(find_kernel("cuda/kernels/integer_gemm.cuh", str("integer_product<", type_text(dtype), ">")), threads(count), {256}, 0,
                    p, g.a, g.b, g.c, g.d, count);
}

}  // namespace wisp::cuda
