// What the front doors of linear algebra share: checks, column-major copies, adjoints, the solvers that gradients use.
#pragma once
#include <tuple>

#include "../kernels/lapack.h"
#include "matmul.h"

namespace wisp {

// The table for a dtype; opens the library on first use.

// --- checks ---
void check_matrix(const Tensor& a, const char* name);  // at least two dimensions
void check_square(const Tensor& a, const char* name);
void check_inexact(const Tensor& a, const char* name);  // f32, f64 or complex
void check_same_dtype(const Tensor& a, const Tensor& b, const char* name);
// The first matrix of the batch that went wrong: "(Batch element 2): ", or "" for a single one.
struct Failure {
    std::string where;
    int32_t info;
};
std::optional<Failure> first_failure(const Tensor& info);

// --- memory ---
inline Dims batch_sizes(const Tensor& a) { return Dims(a.sizes().data(), a.dim() - 2); }
inline Dims with(Dims batch, std::initializer_list<int64_t> more) {
    for (int64_t n : more) batch.push_back(n);
    return batch;
}
inline int64_t batch_of_matrices(const Tensor& a) { return product(batch_sizes(a)); }
Tensor column_major(const Dims& sizes, DType dtype);  // new, not filled
Tensor column_major_copy(const Tensor& a);            // without history
Tensor column_major_packed(const Tensor& a);          // a itself where it is that already
Tensor identity(int64_t n, DType dtype, int64_t columns = -1);
// A tensor of int32 zeros.
inline Tensor no_info(const Dims& batch) { return zeros(batch, DType::i32); }

// --- formulas ---
inline Tensor mT(const Tensor& a) { return transpose(a, -2, -1); }
inline Tensor mH(const Tensor& a) { return conj(transpose(a, -2, -1)); }
inline constexpr MatrixForm adjoint{true, true};
inline Tensor times(const Tensor& a, const Tensor& b) { return product(a, {}, b, {}); }               // a b
inline Tensor adjoint_times(const Tensor& a, const Tensor& b) { return product(a, adjoint, b, {}); }  // a^H b
inline Tensor times_adjoint(const Tensor& a, const Tensor& b) { return product(a, {}, b, adjoint); }  // a b^H
inline Tensor tril(const Tensor& a, int64_t diagonal = 0) { return triangle(a, diagonal, false); }
inline Tensor triu(const Tensor& a, int64_t diagonal = 0) { return triangle(a, diagonal, true); }
// Where no gradient came, nothing; else their sum.
inline Tensor plus(const Tensor& a, const Tensor& b) { return !a ? b : !b ? a : add(a, b); }
inline Tensor diagonal_of(const Tensor& a) { return diagonal(a, 0, -2, -1); }

// --- front doors ---
std::tuple<Tensor, Tensor, Tensor> lu_factor_ex(const Tensor& a, bool pivot, bool check_errors, const char* name = "linalg.lu_factor_ex");
std::tuple<Tensor, Tensor, Tensor> lu_unpack(const Tensor& lu, const Tensor& pivots, bool data, bool permutation);
Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint);
Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left = true, bool unitriangular = false);
Tensor det(const Tensor& a);
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices);
Tensor householder_product(const Tensor& a, const Tensor& tau);

}  // namespace wisp
