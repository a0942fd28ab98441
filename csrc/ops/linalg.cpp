// Front doors of linear systems: LU, solve, inverse, determinants, Cholesky, triangular systems, LDL.
// A gradient that must itself be differentiable is written with front doors of the input, else with saved factors.
#include "linalg.h"

#include <cmath>

#include "../autograd/whole.h"
#include "../kernels/lapack.h"
#include "../python/registry.h"
#include "reduce.h"

namespace wisp {

// --- what all share -------------------------------------------------------------------------------------------------

// Python knows where the library is.
static const bool finds_lapack = [] {
    cpu::find_lapack = [] {
        Ref module(PyImport_ImportModule("wisp.linalg._library"));
        Ref opened(PyObject_CallMethod(module.get(), "open", nullptr));
    };
    return true;
}();

void check_matrix(const Tensor& a, const char* name) {
    if (a.dim() < 2) throw RuntimeError(name, ": The input tensor A must have at least 2 dimensions.");
}
void check_square(const Tensor& a, const char* name) {
    check_matrix(a, name);
    if (a.size(-1) != a.size(-2))
        throw RuntimeError(name, ": A must be batches of square matrices, but they are ", a.size(-2), " by ", a.size(-1), " matrices");
}
void check_inexact(const Tensor& a, const char* name) {
    if (is_integral(a.dtype()))
        throw RuntimeError(name, ": Expected a floating point or complex tensor as input. Got ", type_name(a.dtype()));
    if (is_reduced(a.dtype())) throw RuntimeError(name, ": Low precision dtypes not supported. Got ", type_name(a.dtype()));
}
void check_same_dtype(const Tensor& a, const Tensor& b, const char* name) {
    if (a.dtype() != b.dtype())
        throw RuntimeError(name, ": Expected A and B to have the same dtype, but found A of type ", type_name(a.dtype()), " and B of type ",
                           type_name(b.dtype()), " instead");
    check_same_device(name, a, b);
}

std::optional<Failure> first_failure(const Tensor& info_) {
    const Tensor info = to(info_, Device{});
    const int32_t* values = info.data<int32_t>();
    for (int64_t i = 0; i < info.numel(); i++)
        if (values[i]) return Failure{info.dim() ? str("(Batch element ", i, "): ") : "", values[i]};
    return {};
}

Tensor column_major(const Dims& sizes, DType dtype) {
    Dims strides = contiguous_strides(sizes);
    const int64_t d = sizes.size();
    strides[d - 2] = 1;
    strides[d - 1] = std::max<int64_t>(1, sizes[d - 2]);
    return empty_strided(sizes, strides, dtype);
}
Tensor column_major_copy(const Tensor& a) {
    Tensor r = column_major(a.sizes(), a.dtype());
    if (a.numel()) copy_values(r, alias(a));
    return r;
}
static bool is_column_major(const Tensor& a) { return a.layout().transpose(a.dim() - 2, a.dim() - 1).is_contiguous(); }
Tensor column_major_packed(const Tensor& a) { return is_column_major(a) ? alias(a) : column_major_copy(a); }

// The same memory with rows and columns exchanged; not a view.
static Tensor flipped(const Tensor& a) { return alias(a, a.layout().transpose(a.dim() - 2, a.dim() - 1)); }

Tensor identity(int64_t n, DType dtype, int64_t columns) {
    Tensor t = zeros({n, columns < 0 ? n : columns}, dtype);
    fill_(alias(t, t.layout().diagonal(0, 0, 1)), Scalar(1));
    return t;
}

// Both operands with one batch shape, without history.
static Dims common_batch(const Tensor& a, const Tensor& b) { return broadcast(batch_sizes(a), batch_sizes(b)); }
static Tensor batched(const Tensor& a, const Dims& batch) { return expanded(alias(a), with(batch, {a.size(-2), a.size(-1)})); }

static int64_t cube(const Tensor& a) { return a.numel() * std::min(a.size(-1), a.size(-2)); }

static void check_systems(const Tensor& a, const Tensor& b, bool left, const char* name) {
    check_square(a, name);
    check_matrix(b, name);
    if (a.size(-2) != b.size(left ? -2 : -1))
        throw RuntimeError(name, ": Incompatible shapes of A and B for the equation ", left ? "AX = B" : "XA = B", " (", a.size(-2), "x",
                           a.size(-1), " and ", b.size(-2), "x", b.size(-1), ")");
}

// --- LU -------------------------------------------------------------------------------------------------------------

struct Factors {
    Tensor lu, pivots, info;
};
static Factors factorise(const Tensor& a) {
    const Dims batch = batch_sizes(a);
    Factors f{column_major_copy(a), empty(with(batch, {std::min(a.size(-1), a.size(-2))}), DType::i32), no_info(batch)};
    if (a.numel()) {
        const auto& lapack = kernels::lapack(a.dtype());
        Unlocked unlocked(cube(a));
        lapack.lu(batch_of_matrices(a), a.size(-2), a.size(-1), f.lu.device_data(), f.pivots.device_data<int32_t>(),
                  f.info.device_data<int32_t>());
    }
    return f;
}

// From gradients of L (strictly below the diagonal) and U to that of A = P L U.
static Tensor lu_gradient(const Tensor& gradient, const Tensor& lu, const Tensor& pivots) {
    const auto [P, L, U] = lu_unpack(lu, pivots, true, true);
    const int64_t m = L.size(-2), n = U.size(-1), k = std::min(m, n);
    const Tensor gL = tril(narrow(gradient, -1, 0, k), -1), gU = triu(narrow(gradient, -2, 0, k));
    const Tensor L1 = narrow(L, -2, 0, k), U1 = narrow(U, -1, 0, k), gL1 = narrow(gL, -2, 0, k), gU1 = narrow(gU, -1, 0, k);
    Tensor below = adjoint_times(L1, gL1), above = times_adjoint(gU1, U1);
    if (n > m) below = below - times_adjoint(narrow(gU, -1, k, n - k), narrow(U, -1, k, n - k));
    if (m > n) above = above - adjoint_times(narrow(L, -2, k, m - k), narrow(gL, -2, k, m - k));
    const Tensor right = mH(U1), left = mH(L1);
    Tensor g = solve_triangular(right, tril(below, -1) + triu(above), false, false);
    g = solve_triangular(left, g, true, true, true);
    if (n > m) g = cat({g, solve_triangular(left, narrow(gU, -1, k, n - k), true, true, true)}, -1);
    if (m > n) g = cat({g, solve_triangular(right, narrow(gL, -2, k, m - k), false, false)}, -2);
    return times(P, g);
}

std::tuple<Tensor, Tensor, Tensor> lu_factor_ex(const Tensor& a, bool pivot, bool check_errors, const char* name) {
    check_matrix(a, name);
    check_inexact(a, name);
    if (!pivot) throw RuntimeError(name, ": LU without pivoting is not implemented on the CPU");
    Factors f = factorise(a);
    if (check_errors)
        if (auto failure = first_failure(f.info))
            throw LinAlgError(name, ": ", failure->where, "U[", failure->info, ",", failure->info,
                              "] is zero and using it on lu_solve would result in a division by zero. If you still "
                              "want to perform the "
                              "factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)");
    if (needs_grad(a))
        record(f.lu, "LinalgLuFactorExBackward0", {a}, {f.lu, f.pivots},
               [](Backward& bw) { bw.set(0, lu_gradient(bw.grad(), bw.saved(0), bw.saved(1))); });
    return {f.lu, f.pivots, f.info};
}

// The permutation that the row exchanges of LAPACK stand for, as a matrix.
static Tensor permutation_matrix(const Tensor& pivots, int64_t m, DType dtype) {
    const Tensor p = to(contiguous(to(alias(pivots), DType::i32)), Device{});
    const int64_t k = p.size(-1), batch = k ? p.numel() / k : product(Dims(p.sizes().data(), p.dim() - 1));
    Tensor order = empty(with(Dims(p.sizes().data(), p.dim() - 1), {m}), DType::i64, p.device());
    int64_t* at = order.data<int64_t>();
    for (int64_t b = 0; b < batch; b++, at += m) {
        for (int64_t i = 0; i < m; i++) at[i] = i;
        for (int64_t i = 0; i < k; i++) {
            const int64_t other = p.data<int32_t>()[b * k + i] - 1;
            if (other < 0 || other >= m) throw RuntimeError("lu_unpack: LU_pivots must be between 1 and LU.size(-2), got ", other + 1);
            std::swap(at[i], at[other]);
        }
    }
    // P[order[i], i] = 1
    return to(eq(unsqueeze(arange(m), -1), unsqueeze(to(order, pivots.device()), -2)), dtype);
}

std::tuple<Tensor, Tensor, Tensor> lu_unpack(const Tensor& lu, const Tensor& pivots, bool data, bool permutation) {
    if (lu.dim() < 2) throw RuntimeError("torch.lu_unpack: The input tensor LU_data must have at least 2 dimensions.");
    if (permutation && pivots.dtype() != DType::i32)
        throw RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
            "Note: this function is intended to be used with the output produced by "
            "torch.linalg.lu_factor");
    const int64_t m = lu.size(-2), n = lu.size(-1), k = std::min(m, n);
    Tensor P = empty({0}, lu.dtype()), L = P, U = P;
    if (data) {
        L = tril(narrow(lu, -1, 0, k), -1) + identity(m, lu.dtype(), k);
        U = triu(narrow(lu, -2, 0, k));
    }
    if (permutation) P = permutation_matrix(pivots, m, lu.dtype());
    return {P, L, U};
}

static Tensor lu_solve_values(const Tensor& lu_, const Tensor& pivots_, const Tensor& b_, bool left, bool adjoint) {
    const Dims batch = common_batch(lu_, b_);
    const int64_t n = lu_.size(-1), columns = b_.size(left ? -1 : -2);
    const Tensor lu = column_major_packed(batched(lu_, batch)), pivots = contiguous(expanded(alias(pivots_), with(batch, {n})));
    Tensor b = batched(b_, batch);
    // X A = B is A^T X^T = B^T, and a row-major X is a column-major X^T; X A^H = B is A conj(X)^T = conj(B)^T.
    const bool conjugated = !left && adjoint && is_complex(b.dtype());
    Tensor x;
    if (left) x = column_major_copy(b);
    else {
        x = empty(b.sizes(), b.dtype());
        if (b.numel()) copy_values(x, conjugated ? conj(b) : b);
    }
    if (x.numel()) {
        const auto& lapack = kernels::lapack(x.dtype());
        Unlocked unlocked(x.numel() * n);
        lapack.lu_solve(product(batch),
                        left      ? adjoint ? 'C' : 'N'
                        : adjoint ? 'N'
                                  : 'T',
                        n, columns, lu.device_data(), pivots.device_data<int32_t>(), x.device_data());
    }
    return conjugated ? conj(x) : x;
}

Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left, bool adjoint_) {
    check_inexact(lu, "torch.linalg.lu_solve");
    check_same_dtype(lu, b, "linalg.lu_solve");
    if (pivots.dtype() != DType::i32) throw RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
    check_systems(lu, b, left, "linalg.lu_solve");
    if (pivots.dim() < 1 || lu.size(-1) != pivots.size(-1))
        throw RuntimeError("linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix");
    if (!(Dims(pivots.sizes().data(), pivots.dim() - 1) == batch_sizes(lu)))
        throw RuntimeError(
            "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots "
            "with shape ",
            pivots.sizes(), " instead");
    const Tensor order = to(contiguous(pivots), Device{});
    for (int64_t i = 0; i < order.numel(); i++)
        if (order.data<int32_t>()[i] < 1 || order.data<int32_t>()[i] > lu.size(-1))
            throw RuntimeError(
                "Pivots given to lu_solve must all be greater or equal to 1 and smaller or equal to LU.size(-2). Did you properly pass the "
                "result of lu_factor?");
    Tensor x = lu_solve_values(lu, pivots, b, left, adjoint_);
    if (needs_grad(lu, b))
        record(x, "LinalgLuSolveBackward0", {lu, b}, {lu, pivots, x}, [left, adjoint_](Backward& bw) {
            const Tensor lu = bw.saved(0), pivots = bw.saved(1), x = bw.saved(2);
            const Tensor gB = lu_solve(lu, pivots, bw.grad(), left, !adjoint_);
            bw.set(1, gB);
            if (!bw.needs(0)) return;
            Tensor gA = neg(left ? times_adjoint(gB, x) : adjoint_times(x, gB));
            if (adjoint_) gA = mH(gA);
            const auto [P, L, U] = lu_unpack(lu, pivots, true, true);
            const Tensor g = product(P, {true, false}, gA, {});
            bw.set(0, tril(times_adjoint(g, U), -1) + triu(adjoint_times(L, g)));
        });
    return x;
}

// --- solve and inverse ----------------------------------------------------------------------------------------------

struct Solved {
    Tensor x, lu, pivots, info;
};
static Solved solve_system(const Tensor& a, const Tensor& b, bool left, bool check_errors) {
    const char* name = "linalg.solve";
    check_inexact(a, name);
    check_same_dtype(a, b, name);
    check_square(a, name);
    const bool vector = b.dim() == 1 || (a.dim() - 1 == b.dim() && b.sizes() == Dims(a.sizes().data(), a.dim() - 1));
    if (vector && !left)
        throw RuntimeError(
            "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. "
            "In this case linalg.solve is equivalent to B / A.squeeze(-1)");
    const Tensor right = vector ? unsqueeze(b, -1) : b;
    check_systems(a, right, left, name);
    Factors f = factorise(a);
    if (check_errors)
        if (auto failure = first_failure(f.info))
            throw LinAlgError(name, ": ", failure->where, "The solver failed because the input matrix is singular.");
    Tensor x = lu_solve_values(f.lu, f.pivots, right, left, false);
    if (vector) {
        Layout layout = x.layout();
        layout.sizes.pop_back();
        layout.strides.pop_back();
        x = alias(x, layout);
    }
    if (needs_grad(a, b))
        record(x, "LinalgSolveExBackward0", {a, b}, {a, f.lu, f.pivots, x}, [left, vector](Backward& bw) {
            const Tensor g = vector ? unsqueeze(bw.grad(), -1) : bw.grad();
            const Tensor x = vector ? unsqueeze(bw.saved(3), -1) : bw.saved(3);
            const Tensor gB = bw.create_graph ? solve(mH(bw.saved(0)), g, left) : lu_solve(bw.saved(1), bw.saved(2), g, left, true);
            if (bw.needs(0)) bw.set(0, neg(left ? times_adjoint(gB, x) : adjoint_times(x, gB)));
            if (bw.needs(1)) bw.set(1, vector ? squeeze(gB, {-1}) : gB);
        });
    return {x, f.lu, f.pivots, f.info};
}

Tensor solve(const Tensor& a, const Tensor& b, bool left) { return solve_system(a, b, left, true).x; }
static std::tuple<Tensor, Tensor> solve_ex(const Tensor& a, const Tensor& b, bool left, bool check_errors) {
    Solved s = solve_system(a, b, left, check_errors);
    return {s.x, s.info};
}

static std::tuple<Tensor, Tensor> inv_ex(const Tensor& a, bool check_errors, const char* name = "linalg.inv_ex") {
    check_square(a, name);
    check_inexact(a, name);
    Factors f = factorise(a);
    if (check_errors)
        if (auto failure = first_failure(f.info))
            throw LinAlgError(name, ": ", failure->where, "The diagonal element ", failure->info,
                              " is zero, the inversion could not be completed because the input matrix is singular.");
    if (a.numel()) {
        const auto& lapack = kernels::lapack(a.dtype());
        const Tensor ignored = no_info(batch_sizes(a));
        Unlocked unlocked(cube(a));
        lapack.lu_inverse(batch_of_matrices(a), a.size(-1), f.lu.device_data(), f.pivots.device_data<int32_t>(),
                          ignored.device_data<int32_t>());
    }
    if (needs_grad(a))
        record(f.lu, "LinalgInvExBackward0", {a}, {f.lu}, [](Backward& bw) {
            const Tensor y = bw.saved(0);
            bw.set(0, neg(adjoint_times(y, times_adjoint(bw.grad(), y))));
        });
    return {f.lu, f.info};
}
static Tensor inv(const Tensor& a) { return std::get<0>(inv_ex(a, true, "linalg.inv")); }

// --- determinants ---------------------------------------------------------------------------------------------------

// The sign of the permutation: one exchange for every pivot that is not in its own place.
static Tensor parity(const Tensor& pivots, DType dtype) {
    const Tensor exchanges = sum(ne(pivots, arange(pivots.size(-1)) + Scalar(1)), {-1});
    return to(Scalar(1) - Scalar(2) * remainder(exchanges, Scalar(2)), dtype);
}

// d I, a matrix for each d.
static Tensor scaled_identity(const Tensor& d, int64_t n) { return unsqueeze(unsqueeze(d, -1), -1) * identity(n, d.dtype()); }

static Tensor det_gradient(Backward& bw) {
    const Tensor g = bw.grad(), a = bw.saved(0), y = bw.saved(1);
    const int64_t n = a.size(-1);
    const double eps = real_of(a.dtype()) == DType::f32 ? 1.1920929e-07 : 2.220446049250313e-16;
    if (!bw.create_graph) {
        // The determinant is smooth: a singular matrix is replaced by a neighbour that isn't.
        const Tensor lu = bw.saved(2), d = diagonal_of(lu);
        const Tensor moved = lu + diag_embed(to(eq(d, Scalar(0)), lu.dtype()) * Scalar(eps));
        const Tensor value = prod(diagonal_of(moved), -1, false, {}) * parity(bw.saved(3), lu.dtype());
        return lu_solve(moved, bw.saved(3), scaled_identity(g * conj(value), n), true, true);
    }
    if (!is_nonzero(any(lt(abs(detach(y)), Scalar(100 * eps))))) return solve(mH(a), scaled_identity(g * conj(y), n));
    const auto [U, S, Vh] = svd(a, false);
    const Tensor others = prod(where(to(identity(n, DType::f32), DType::boolean), Arg(Scalar(1.0)), unsqueeze(S, -2)), -1, false, {});
    return times(U * unsqueeze(others * unsqueeze(g * conj(det(U) * det(Vh)), -1), -2), Vh);
}

static std::tuple<Tensor, Tensor, Tensor> det_with_factors(const Tensor& a) {
    check_square(a, "linalg.det");
    check_inexact(a, "linalg.det");
    const Factors f = factorise(a);
    Tensor y = prod(diagonal_of(f.lu), -1, false, {}) * parity(f.pivots, a.dtype());
    if (needs_grad(a)) record(y, "LinalgDetBackward0", {a}, {a, y, f.lu, f.pivots}, [](Backward& bw) { bw.set(0, det_gradient(bw)); });
    return {y, f.lu, f.pivots};
}
Tensor det(const Tensor& a) { return std::get<0>(det_with_factors(a)); }

static std::tuple<Tensor, Tensor> slogdet(const Tensor& a) {
    check_square(a, "linalg.slogdet");
    check_inexact(a, "linalg.slogdet");
    const Factors f = factorise(a);
    const Tensor d = diagonal_of(f.lu);
    Tensor sign = prod(sgn(d), -1, false, {}) * parity(f.pivots, a.dtype()), size = sum(log(abs(d)), {-1});
    if (needs_grad(a)) {
        const bool with_phase = is_complex(a.dtype());
        const Tensor results[] = {sign, size};
        record_many(results, "LinalgSlogdetBackward0", spanned({a}), spanned({a, f.lu, f.pivots, with_phase ? sign : Tensor()}),
                    [with_phase](Backward& bw) {
                        const Tensor a = bw.saved(0);
                        Tensor scale = bw.grad(1);
                        if (with_phase) scale = scale - Scalar(std::complex<double>(0, 1)) * imag(conj(bw.grad(0)) * bw.saved(3));
                        const Tensor target = scaled_identity(to(scale, a.dtype()), a.size(-1));
                        bw.set(0, bw.create_graph ? solve(mH(a), target) : lu_solve(bw.saved(1), bw.saved(2), target, true, true));
                    });
    }
    return {sign, size};
}

// --- Cholesky -------------------------------------------------------------------------------------------------------

static Tensor cholesky_gradient(Tensor g, Tensor L, bool upper) {
    if (upper) {
        g = mH(g);
        L = mH(L);
    }
    const Tensor m = adjoint_times(L, g), below = tril(m, -1), d = diag_embed(real(diagonal_of(m)));
    const Tensor symmetric = (below + mH(below) + d) * Scalar(0.5);
    return solve_triangular(L, solve_triangular(mH(L), symmetric, true), false, false);
}

static std::tuple<Tensor, Tensor> cholesky_ex(const Tensor& a, bool upper, bool check_errors, const char* name = "linalg.cholesky_ex") {
    check_square(a, name);
    check_inexact(a, name);
    Tensor L = column_major_copy(a), info = no_info(batch_sizes(a));
    if (a.numel()) {
        const auto& lapack = kernels::lapack(a.dtype());
        Unlocked unlocked(cube(a));
        lapack.cholesky(batch_of_matrices(a), upper ? 'U' : 'L', a.size(-1), L.device_data(), info.device_data<int32_t>());
    }
    if (check_errors)
        if (auto failure = first_failure(info))
            throw LinAlgError(name, ": ", failure->where,
                              "The factorization could not be completed because the input is not positive-definite "
                              "(the leading minor of order ",
                              failure->info, " is not positive-definite).");
    L = flipped(triangle(flipped(L), 0, !upper));
    if (needs_grad(a))
        record(L, "LinalgCholeskyExBackward0", {a}, {L},
               [upper](Backward& bw) { bw.set(0, cholesky_gradient(bw.grad(), bw.saved(0), upper)); });
    return {L, info};
}
static Tensor cholesky(const Tensor& a, bool upper) { return std::get<0>(cholesky_ex(a, upper, true, "linalg.cholesky")); }

static Tensor cholesky_solve(const Tensor& b, const Tensor& l, bool upper) {
    if (b.dim() < 2) throw RuntimeError("b should have at least 2 dimensions, but has ", b.dim(), " dimensions instead");
    if (l.dim() < 2) throw RuntimeError("u should have at least 2 dimensions, but has ", l.dim(), " dimensions instead");
    check_inexact(l, "cholesky_solve");
    check_same_dtype(l, b, "cholesky_solve");
    check_systems(l, b, true, "cholesky_solve");
    const Tensor factor = alias(l), adjoint = mH(factor);
    const Tensor x = upper ? solve_triangular(factor, solve_triangular(adjoint, alias(b), false), true)
                           : solve_triangular(adjoint, solve_triangular(factor, alias(b), false), true);
    if (needs_grad(b, l))
        record(x, "CholeskySolveBackward0", {b, l}, {l, x}, [upper](Backward& bw) {
            const Tensor l = bw.saved(0), x = bw.saved(1), gB = cholesky_solve(bw.grad(), l, upper);
            bw.set(0, gB);
            if (!bw.needs(1)) return;
            // That of a factor which need not be triangular, as in PyTorch: a matrix, of which this is a factor, has no zeros.
            const Tensor half = times_adjoint(gB, x), g = neg(half + mH(half));
            bw.set(1, upper ? times(l, g) : times(g, l));
        });
    return x;
}
static Tensor cholesky_inverse(const Tensor& l, bool upper) {
    check_square(l, "cholesky_inverse");
    if (l.device().type == DeviceType::cpu && l.size(-1) > 0) {
        const Tensor zero = contiguous(eq(diagonal(detach(l), 0, -2, -1), Scalar(0)));
        for (int64_t i = 0; i < zero.numel(); i++)
            if (zero.data<bool>()[i])
                throw LinAlgError("cholesky_inverse: The diagonal element ", i % l.size(-1) + 1,
                                  " is zero, the inverse could not be completed because the input matrix is singular.");
    }
    return cholesky_solve(identity(l.size(-1), l.dtype()), l, upper);
}

// --- triangular systems ---------------------------------------------------------------------------------------------

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left, bool unitriangular) {
    const char* name = "linalg.solve_triangular";
    check_inexact(a, name);
    check_same_dtype(a, b, name);
    check_systems(a, b, left, name);
    const Dims batch = common_batch(a, b);
    Tensor matrix = batched(a, batch);
    // A row-major matrix is read as its transpose: no copy either way.
    const bool as_transpose = !is_column_major(matrix);
    if (as_transpose) matrix = contiguous(matrix);
    Tensor x = column_major_copy(batched(b, batch));
    if (x.numel()) {
        const auto& lapack = kernels::lapack(x.dtype());
        Unlocked unlocked(x.numel() * a.size(-1));
        lapack.triangular_solve(product(batch), left ? 'L' : 'R', upper != as_transpose ? 'U' : 'L', as_transpose ? 'T' : 'N',
                                unitriangular ? 'U' : 'N', x.size(-2), x.size(-1), matrix.device_data(), x.device_data());
    }
    if (needs_grad(a, b))
        record(x, "LinalgSolveTriangularBackward0", {a, b}, {a, x}, [upper, left, unitriangular](Backward& bw) {
            const Tensor x = bw.saved(1), gB = solve_triangular(mH(bw.saved(0)), bw.grad(), !upper, left, unitriangular);
            if (bw.needs(0)) {
                const int64_t from = unitriangular;
                bw.set(0, triangle(neg(left ? times_adjoint(gB, x) : adjoint_times(x, gB)), upper ? from : -from, upper));
            }
            bw.set(1, gB);
        });
    return x;
}

static std::tuple<Tensor, Tensor> triangular_solve(const Tensor& b, const Tensor& a, bool upper, bool transposed, bool unitriangular) {
    if (b.dim() < 2)
        throw RuntimeError("torch.triangular_solve: Expected b to have at least 2 dimensions, but it has ", b.dim(), " dimensions instead");
    if (a.dim() < 2)
        throw RuntimeError("torch.triangular_solve: Expected A to have at least 2 dimensions, but it has ", a.dim(), " dimensions instead");
    return {solve_triangular(transposed ? mT(a) : a, b, upper != transposed, true, unitriangular),
            clone(expand(a, with(common_batch(a, b), {a.size(-2), a.size(-1)})))};
}

// --- LDL ------------------------------------------------------------------------------------------------------------

static void no_gradient(const Tensor& result, const char* name, std::initializer_list<Tensor> inputs) {
    record(result, name, inputs, {}, [](Backward& bw) { throw RuntimeError("derivative for ", bw.node.name, " is not implemented"); });
}

static std::tuple<Tensor, Tensor, Tensor> ldl_factor_ex(const Tensor& a, bool hermitian, bool check_errors,
                                                        const char* name = "torch.linalg.ldl_factor_ex") {
    check_square(a, name);
    check_inexact(a, name);
    const Dims batch = batch_sizes(a);
    Tensor ld = column_major_copy(a), pivots = empty(with(batch, {a.size(-1)}), DType::i32), info = no_info(batch);
    if (a.numel()) {
        const auto& lapack = kernels::lapack(a.dtype());
        Unlocked unlocked(cube(a));
        lapack.ldl(batch_of_matrices(a), hermitian, a.size(-1), ld.device_data(), pivots.device_data<int32_t>(),
                   info.device_data<int32_t>());
    }
    if (check_errors)
        if (auto failure = first_failure(info))
            throw LinAlgError(name, ": ", failure->where, "D[", failure->info, ",", failure->info,
                              "] is zero and using it on ldl_solve would result in a division by zero.");
    ld = flipped(triangle(flipped(ld), 0, true));
    if (needs_grad(a)) no_gradient(ld, "LinalgLdlFactorExBackward0", {a});
    return {ld, pivots, info};
}

static Tensor ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool hermitian) {
    const char* name = "torch.linalg.ldl_solve";
    check_inexact(ld, name);
    check_square(ld, name);
    if (b.dim() < 2) throw RuntimeError(name, ": Expected B to have at least 2 dimensions, but it has ", b.dim(), " dimensions instead");
    if (!(Dims(ld.sizes().data(), ld.dim() - 1) == pivots.sizes()))
        throw RuntimeError(name, ": Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape ", pivots.sizes(),
                           " instead");
    if (pivots.dtype() != DType::i32) throw RuntimeError(name, ": Expected pivots to be integers. Got ", type_name(pivots.dtype()));
    check_same_dtype(ld, b, name);
    check_systems(ld, b, true, name);
    const Dims batch = common_batch(ld, b);
    const Tensor factors = column_major_packed(batched(ld, batch)), order = contiguous(expanded(alias(pivots), with(batch, {ld.size(-1)})));
    for (int64_t i = 0; i < order.numel() && !order.is_cuda(); i++)  // the GPU's kernel looks itself
        if (const int32_t p = std::abs(order.data<int32_t>()[i]); p < 1 || p > ld.size(-1))
            throw RuntimeError(name, ": pivots must come from ldl_factor, |pivot| >= 1 and |pivot| <= LD.size(-2), got ",
                               int64_t(order.data<int32_t>()[i]));
    Tensor x = column_major_copy(batched(b, batch));
    if (x.numel()) {
        const auto& lapack = kernels::lapack(x.dtype());
        Unlocked unlocked(x.numel() * ld.size(-1));
        lapack.ldl_solve(product(batch), hermitian, ld.size(-1), x.size(-1), factors.device_data(), order.device_data<int32_t>(),
                         x.device_data());
    }
    if (needs_grad(ld, b)) no_gradient(x, "LinalgLdlSolveBackward0", {ld, b});
    return x;
}

// --- names ----------------------------------------------------------------------------------------------------------

static std::tuple<Tensor, Tensor> first_two(const std::tuple<Tensor, Tensor, Tensor>& t) { return {std::get<0>(t), std::get<1>(t)}; }

static const Operators operators = {
    {"_open_lapack(str path)", [](std::string path) { return PyUnicode_FromString(cpu::open_lapack(path.c_str()).c_str()); }, function},
    {"_linalg_error_class()", []() { return Py_NewRef(static_cast<PyObject*>(linalg_error_class())); }, function},
    {"linalg.lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False, Tensor[]!? out=None) -> (LU, pivots, "
     "info)",
     [](const Tensor& a, bool pivot, bool check) { return lu_factor_ex(a, pivot, check); }, function | cpu_float32,
     R"(The LU decomposition, and a number that is 0 where the matrix can be inverted.
        >>> wisp.linalg.lu_factor_ex(wisp.zeros(1, 1)).info
        tensor(1, dtype=torch.int32))"},
    {"linalg.lu_factor(Tensor A, *, bool pivot=True, Tensor[]!? out=None) -> (LU, pivots)",
     [](const Tensor& a, bool pivot) { return first_two(lu_factor_ex(a, pivot, true, "torch.linalg.lu_factor")); }, function | cpu_float32,
     R"(The LU decomposition, packed, with the exchanges of rows.
        >>> wisp.linalg.lu_factor(wisp.tensor([[2.0]])).pivots
        tensor([1], dtype=torch.int32))"},
    {"linalg.lu(Tensor A, *, bool pivot=True, Tensor[]!? out=None) -> (P, L, U)",
     [](const Tensor& a, bool pivot) {
         return whole_of_many("LinalgLuBackward0", {a}, [&] {
             const auto [lu, pivots, info] = lu_factor_ex(a, pivot, false, "linalg.lu");
             return lu_unpack(lu, pivots, true, true);
         });
     },
     function,
     R"(The factors P, L and U.
        >>> wisp.linalg.lu(wisp.tensor([[2.0]])).U
        tensor([[2.]]))"},
    {"linalg.lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False, Tensor!? out=None)", lu_solve, function,
     R"(The solution of systems from their LU decomposition.
        >>> wisp.linalg.lu_solve(*wisp.linalg.lu_factor(wisp.tensor([[2.0]])), wisp.tensor([[4.0]]))
        tensor([[2.]]))"},
    {"lu_solve(Tensor b|input, Tensor LU_data, Tensor LU_pivots, *, Tensor!? out=None)",
     [](const Tensor& b, const Tensor& lu, const Tensor& pivots) { return lu_solve(lu, pivots, b, true, false); },
     function | method | cpu_float32,
     R"(The solution of systems from their LU decomposition.
        >>> wisp.lu_solve(wisp.tensor([[4.0]]), *wisp.linalg.lu_factor(wisp.tensor([[2.0]])))
        tensor([[2.]]))"},
    {"lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True, *, Tensor[]!? "
     "out=None) -> (P, L, U)",
     [](const Tensor& lu, const Tensor& pivots, bool data, bool permutation) {
         return whole_of_many("LuUnpackBackward0", {lu}, [&] { return lu_unpack(lu, pivots, data, permutation); });
     },
     function,
     R"(The factors P, L and U of a packed LU decomposition.
        >>> wisp.lu_unpack(*wisp.linalg.lu_factor(wisp.eye(2)))[2]
        tensor([[1., 0.],
                [0., 1.]]))"},
    {"linalg.solve(Tensor A, Tensor B, *, bool left=True, Tensor!? out=None)", solve, function | cpu_float32,
     R"(The solution X of `A @ X = B`.
        >>> wisp.linalg.solve(wisp.tensor([[2.0, 0.0], [0.0, 4.0]]), wisp.tensor([2.0, 8.0]))
        tensor([1., 2.]))"},
    {"linalg.solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False, Tensor[]!? out=None) -> "
     "(result, info)",
     solve_ex, function,
     R"(The solution of a system, and a number that is 0 where there is one.
        >>> wisp.linalg.solve_ex(wisp.eye(1), wisp.ones(1, 1)).info
        tensor(0, dtype=torch.int32))"},
    {"linalg.inv(Tensor A, *, Tensor!? out=None)", inv, function | takes_batches | cpu_float32,
     R"(The inverse of matrices.
        >>> wisp.linalg.inv(wisp.tensor([[2.0, 2.0], [0.0, 4.0]]))
        tensor([[ 0.5000, -0.2500],
                [ 0.0000,  0.2500]]))"},
    {"inverse(Tensor input, *, Tensor!? out=None)", inv, function | method | takes_batches | cpu_float32,
     R"(The inverse of matrices.
        >>> wisp.inverse(wisp.tensor([[2.0, 2.0], [0.0, 4.0]]))
        tensor([[ 0.5000, -0.2500],
                [ 0.0000,  0.2500]]))"},
    {"linalg.inv_ex(Tensor A, *, bool check_errors=False, Tensor[]!? out=None) -> (inverse, info)",
     [](const Tensor& a, bool check) { return inv_ex(a, check); }, function | cpu_float32,
     R"(The inverse, and a number that is 0 where it exists.
        >>> wisp.linalg.inv_ex(wisp.zeros(1, 1)).info
        tensor(1, dtype=torch.int32))"},
    {"linalg.det(Tensor A, *, Tensor!? out=None)", det, function | takes_batches | cpu_float32,
     R"(The determinant of matrices.
        >>> wisp.linalg.det(wisp.tensor([[2.0, 0.0], [0.0, 3.0]]))
        tensor(6.))"},
    {"det(Tensor input)", det, function | method | takes_batches | cpu_float32,
     R"(The determinant of matrices.
        >>> wisp.det(wisp.tensor([[2.0, 0.0], [0.0, 3.0]]))
        tensor(6.))"},
    {"linalg.slogdet(Tensor A, *, Tensor[]!? out=None) -> (sign, logabsdet)", slogdet, function | takes_batches | cpu_float32,
     R"(The sign and the logarithm of the absolute value of the determinant.
        >>> wisp.linalg.slogdet(wisp.eye(2)).sign
        tensor(1.))"},
    {"slogdet(Tensor input, *, Tensor[]!? out=None) -> (sign, logabsdet)", slogdet, function | method | cpu_float32,
     R"(The sign and the logarithm of the absolute value of the determinant.
        >>> wisp.slogdet(wisp.tensor([[2.0, 0.0], [0.0, 3.0]]))
        torch.return_types.slogdet(
        sign=tensor(1.),
        logabsdet=tensor(1.7918)))"},
    {"linalg.cholesky(Tensor A, *, bool upper=False, Tensor!? out=None)", cholesky, function | takes_batches | cpu_float32,
     R"(The triangular factor L with `L @ L.mH` equal to a positive-definite matrix.
        >>> wisp.linalg.cholesky(wisp.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]]))"},
    {"cholesky(Tensor input, bool upper=False, *, Tensor? out=None)",
     [](const Tensor& a, bool upper) { return whole("CholeskyBackward0", {a}, [&] { return cholesky(a, upper); }); },
     function | method | cpu_float32,
     R"(The triangular factor L with `L @ L.T` equal to a positive-definite matrix.
        >>> wisp.cholesky(wisp.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]]))"},
    {"linalg.cholesky_ex(Tensor A, *, bool upper=False, bool check_errors=False, Tensor[]!? out=None) -> (L, info)",
     [](const Tensor& a, bool upper, bool check) { return cholesky_ex(a, upper, check); }, function | cpu_float32,
     R"(The Cholesky factor, and a number that is 0 where it exists.
        >>> wisp.linalg.cholesky_ex(wisp.tensor([[-1.0]])).info
        tensor(1, dtype=torch.int32))"},
    {"cholesky_solve(Tensor input|B, Tensor L|input2, bool upper=False, *, Tensor? out=None)", cholesky_solve,
     function | method | cpu_float32,
     R"(The solution of a system from its Cholesky factor.
        >>> wisp.cholesky_solve(wisp.tensor([[8.0]]), wisp.tensor([[2.0]]))
        tensor([[2.]]))"},
    {"cholesky_inverse(Tensor L, bool upper=False, *, Tensor? out=None)",
     [](const Tensor& l, bool upper) { return whole("CholeskyInverseBackward0", {l}, [&] { return cholesky_inverse(l, upper); }); },
     function | method | cpu_float32,
     R"(The inverse of a matrix from its Cholesky factor.
        >>> wisp.cholesky_inverse(wisp.tensor([[2.0]]))
        tensor([[0.2500]]))"},
    {"linalg.solve_triangular(Tensor A, Tensor B, *, bool upper, bool left=True, bool unitriangular=False, Tensor!? "
     "out=None)",
     solve_triangular, function,
     R"(The solution of a triangular system.
        >>> wisp.linalg.solve_triangular(wisp.tensor([[2.0, 1.0], [0.0, 4.0]]), wisp.tensor([[3.0], [4.0]]), upper=True)
        tensor([[1.],
                [1.]]))"},
    {"triangular_solve(Tensor b, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False, *, "
     "Tensor[]!? out=None) -> (solution, cloned_coefficient)",
     [](const Tensor& b, const Tensor& a, bool upper, bool transposed, bool unitriangular) {
         return whole_of_many("TriangularSolveBackward0", {b, a}, [&] { return triangular_solve(b, a, upper, transposed, unitriangular); });
     },
     function | method | cpu_float32,
     R"(The solution of a triangular system.
        >>> wisp.triangular_solve(wisp.tensor([[4.0]]), wisp.tensor([[2.0]])).solution
        tensor([[2.]]))"},
    {"linalg.ldl_factor_ex(Tensor A, *, bool hermitian=False, bool check_errors=False, Tensor[]!? out=None) -> (LD, "
     "pivots, info)",
     [](const Tensor& a, bool hermitian, bool check) { return ldl_factor_ex(a, hermitian, check); }, function,
     R"(The LDL decomposition, and a number that is 0 where it exists.
        >>> wisp.linalg.ldl_factor_ex(wisp.tensor([[4.0]])).info
        tensor(0, dtype=torch.int32))"},
    {"linalg.ldl_factor(Tensor A, *, bool hermitian=False, Tensor[]!? out=None) -> (LD, pivots)",
     [](const Tensor& a, bool hermitian) { return first_two(ldl_factor_ex(a, hermitian, true, "torch.linalg.ldl_factor")); }, function,
     R"(The LDL decomposition of symmetric matrices, packed.
        >>> wisp.linalg.ldl_factor(wisp.tensor([[4.0]])).LD
        tensor([[4.]]))"},
    {"linalg.ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False, Tensor!? out=None)", ldl_solve, function,
     R"(The solution of systems from their LDL decomposition.
        >>> wisp.linalg.ldl_solve(*wisp.linalg.ldl_factor(wisp.tensor([[4.0]])), wisp.tensor([[8.0]]))
        tensor([[2.]]))"},
};

}  // namespace wisp
