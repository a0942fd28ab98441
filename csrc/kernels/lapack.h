// LAPACK, found at run time: one table of batched routines per dtype (f32, f64, c64, c128).
//
// Matrices are column-major and packed, one after the other; `info` has one entry per matrix, 0 where all went well.
// A batch is spread over the thread pool, each matrix on one thread; one large matrix gets the threads for itself.
#pragma once
#include <cstdint>
#include <string>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

struct LapackKernels {
    void (*lu)(int64_t batch, int64_t m, int64_t n, void* a, int32_t* pivots, int32_t* info);
    // Solves op(A) X = B for trans 'N', 'T' or 'C'.
    void (*lu_solve)(int64_t batch, char trans, int64_t n, int64_t columns, const void* lu, const int32_t* pivots, void* b);
    void (*lu_inverse)(int64_t batch, int64_t n, void* lu, const int32_t* pivots, int32_t* info);
    void (*cholesky)(int64_t batch, char part, int64_t n, void* a, int32_t* info);
    // op(A) X = B or, for side 'R', X op(A) = B, where B is m x n.
    void (*triangular_solve)(int64_t batch, char side, char part, char trans, char diagonal, int64_t m, int64_t n, const void* a, void* b);
    void (*qr)(int64_t batch, int64_t m, int64_t n, void* a, void* tau);
    // The first n columns of the product of k reflections; A is m x n.
    void (*householder)(int64_t batch, int64_t m, int64_t n, int64_t k, void* a, const void* tau);
    void (*householder_apply)(int64_t batch, char side, char trans, int64_t m, int64_t n, int64_t k, int64_t rows, int64_t columns,
                              const void* a, const void* tau, void* c);
    // job 'N' (values only), 'S' (reduced) or 'A' (full). A is destroyed.
    void (*svd)(int64_t batch, char job, int64_t m, int64_t n, void* a, void* s, void* u, void* vh, int32_t* info);
    void (*eigh)(int64_t batch, bool vectors, char part, int64_t n, void* a, void* values, int32_t* info);
    // Values and vectors are complex. A is destroyed; vectors may be null.
    void (*eig)(int64_t batch, int64_t n, void* a, void* values, void* vectors, int32_t* info);
    // driver 'g' (gels), 'y' (gelsy), 'd' (gelsd), 's' (gelss); B has max(m, n) rows. Ranks and s may be null.
    void (*least_squares)(int64_t batch, char driver, int64_t m, int64_t n, int64_t columns, void* a, void* b, double rcond, int64_t* ranks,
                          void* s, int32_t* info);
    void (*ldl)(int64_t batch, bool hermitian, int64_t n, void* a, int32_t* pivots, int32_t* info);
    void (*ldl_solve)(int64_t batch, bool hermitian, int64_t n, int64_t columns, const void* a, const int32_t* pivots, void* b);
};

// What the CPU does itself of it, in float and double (in this order): the arguments are those above.
struct SystemKernels {
    void (*lu[2])(int64_t batch, int64_t m, int64_t n, void* a, int32_t* pivots, int32_t* info);
    void (*lu_solve[2])(int64_t batch, char trans, int64_t n, int64_t columns, const void* lu, const int32_t* pivots, void* b);
    void (*lu_inverse[2])(int64_t batch, int64_t n, void* lu, const int32_t* pivots);
    void (*triangular_solve[2])(int64_t batch, char part, char trans, char diagonal, int64_t m, int64_t n, const void* a, void* b);
    // One matrix A (m x n, m > n) becomes R over zeros, and B (m rows) what the same rotations make of it.
    void (*reduce_tall[2])(int64_t m, int64_t n, void* a, int64_t columns, void* b);
    void (*qr[2])(int64_t batch, int64_t m, int64_t n, void* a, void* tau);
    void (*householder[2])(int64_t batch, int64_t m, int64_t n, int64_t k, void* a, const void* tau);
    // One matrix A (n x n), of which `solve` has the problem of three diagonals: d becomes the values, z (or null) the vectors.
    void (*eigh[2])(int64_t n, bool lower, bool wants_vectors, void* a, void* values, void* context,
                    void (*solve)(void* context, int64_t n, void* d, void* e, void* z));
};

}  // namespace wisp::kernels

namespace wisp::cpu {
extern const kernels::SystemKernels& systems;  // here, as lapack.cpp alone calls them
// Opens the library; an empty string, or what went wrong.
std::string open_lapack(const char* path);
extern void (*find_lapack)();  // calls open_lapack, when the first routine is asked for
const kernels::LapackKernels& lapack(DType dtype);
}  // namespace wisp::cpu

namespace wisp::cuda {
const kernels::LapackKernels& lapack(DType dtype);  // by cuSOLVER and cuBLAS
}

namespace wisp::meta { const kernels::LapackKernels& lapack(DType dtype); }

namespace wisp::kernels {
inline const LapackKernels& lapack(DType dtype) {
    const DeviceType type = current_device().type;
    return type == DeviceType::cpu ? cpu::lapack(dtype) : type == DeviceType::cuda ? cuda::lapack(dtype) : meta::lapack(dtype);
}
}  // namespace wisp::kernels
