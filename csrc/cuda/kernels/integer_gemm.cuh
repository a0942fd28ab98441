// Products of integer matrices, which wrap around: rare, so a thread a result and any strides.
#include "cuda/kernels/base.cuh"

namespace wisp {

struct IntegerProduct {
    int64_t m, n, k, a_row, a_col, b_row, b_col, c_row, d_row, d_col, alpha, beta;
    int batch_dims;
    int64_t batch_size[8], batch_a[8], batch_b[8], batch_c[8], batch_d[8];
};

template <class T> __global__ void __launch_bounds__(256)
    integer_product(const IntegerProduct p, const T* a, const T* b, T* c, const T* d, int64_t count) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const int64_t j = at % p.n, i = at / p.n % p.m;
    int64_t rest = at / (p.n * p.m);
    for (int t = p.batch_dims - 1; t >= 0; t--) {
        const int64_t k = rest % p.batch_size[t];
        rest /= p.batch_size[t];
        a += k * p.batch_a[t];
        b += k * p.batch_b[t];
        c += k * p.batch_c[t];
        if (d) d += k * p.batch_d[t];
    }
    uint64_t sum = 0;
    for (int64_t k = 0; k < p.k; k++) sum += uint64_t(a[i * p.a_row + k * p.a_col]) * uint64_t(b[k * p.b_row + j * p.b_col]);
    sum *= uint64_t(p.alpha);
    if (d) sum += uint64_t(p.beta) * uint64_t(d[i * p.d_row + j * p.d_col]);
    c[i * p.c_row + j] = T(sum);
}

}  // namespace wisp
