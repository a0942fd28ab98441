// Front doors of decompositions: QR and its reflections, SVD, eigenvalues, least squares, the pseudo-inverse.
#include <cmath>

#include "../autograd/whole.h"
#include "../python/registry.h"
#include "linalg.h"
#include "reduce.h"

namespace wisp {
namespace {

int64_t cube(const Tensor& a) { return 4 * a.numel() * std::min(a.size(-1), a.size(-2)); }
Tensor row(const Tensor& t) { return unsqueeze(t, -2); }
Tensor column(const Tensor& t) { return unsqueeze(t, -1); }
Tensor skew(const Tensor& a) { return a - mH(a); }
Tensor on_diagonal(int64_t n) { return to(identity(n, DType::f32), DType::boolean); }

// values_j - values_i off the diagonal, 1 on it.
Tensor differences(const Tensor& values) {
    const Tensor d = row(values) - column(values);
    return where(on_diagonal(values.size(-1)), Arg(Scalar(1.0)), d);
}

Tensor ones_on_diagonal(const Dims& sizes, DType dtype) {
    Tensor t = zeros(sizes, dtype);
    if (t.numel()) fill_(alias(t, t.layout().diagonal(0, t.dim() - 2, t.dim() - 1)), Scalar(1));
    return t;
}

// --- QR -------------------------------------------------------------------------------------------------------------

struct Reflections {
    Tensor a, tau;
};
Reflections reflections(const Tensor& a) {
    Reflections r{column_major_copy(a), zeros(with(batch_sizes(a), {std::min(a.size(-1), a.size(-2))}), a.dtype())};
    if (a.numel()) {
        const auto& lapack = kernels::lapack(a.dtype());
        Unlocked unlocked(cube(a));
        lapack.qr(batch_of_matrices(a), a.size(-2), a.size(-1), r.a.device_data(), r.tau.device_data());
    }
    return r;
}

Tensor orthonormal(const Tensor& reflected, const Tensor& tau, int64_t columns) {
    const int64_t m = reflected.size(-2), n = reflected.size(-1), k = tau.size(-1);
    Tensor q = column_major(with(batch_sizes(reflected), {m, columns}), reflected.dtype());
    if (!q.numel()) return q;
    if (columns > n) zero_(q);
    const int64_t shared = std::min(n, columns);
    if (shared)
        copy_values(alias(q, q.layout().slice(q.dim() - 1, 0, shared, 1)),
                    alias(reflected, reflected.layout().slice(reflected.dim() - 1, 0, shared, 1)));
    const Tensor t = contiguous(alias(tau));
    const auto& lapack = kernels::lapack(q.dtype());
    Unlocked unlocked(q.numel() * std::max<int64_t>(1, k));
    lapack.householder(batch_of_matrices(q), m, columns, k, q.device_data(), t.device_data());
    return q;
}

// [gQ + Q sym(triu(gR R^H - Q^H gQ))] R^-H for a matrix with at least as many rows as columns.
Tensor qr_gradient(const Tensor& gQ, const Tensor& gR, const Tensor& Q, const Tensor& R) {
    Tensor inner = gR ? times_adjoint(gR, R) : Tensor();
    if (gQ) inner = plus(inner, neg(adjoint_times(Q, gQ)));
    inner = triu(inner);
    const Tensor both = inner + mH(inner);
    const Tensor symmetric = where(on_diagonal(both.size(-1)), both * Scalar(0.5), both);
    return solve_triangular(mH(R), plus(gQ, times(Q, symmetric)), false, false);
}

std::tuple<Tensor, Tensor> qr(const Tensor& a, const std::string& mode) {
    if (mode != "reduced" && mode != "complete" && mode != "r")
        throw RuntimeError("qr received unrecognized mode '", mode, "' but expected one of 'reduced' (default), 'r', or 'complete'");
    check_matrix(a, "linalg.qr");
    check_inexact(a, "linalg.qr");
    const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n), columns = mode == "complete" ? m : k;
    const Reflections r = reflections(a);
    Tensor R = triu(alias(r.a, r.a.layout().slice(r.a.dim() - 2, 0, columns, 1)));
    Tensor Q = mode == "r" ? empty({0}, a.dtype()) : orthonormal(r.a, r.tau, columns);
    if (needs_grad(a)) {
        const bool possible = mode == "reduced" || (mode == "complete" && m <= n);
        const Tensor results[] = {Q, R};
        record_many(results, "LinalgQrBackward0", spanned({a}), spanned({a, Q, R}), [possible, values_only = mode == "r"](Backward& bw) {
            if (!possible)
                throw RuntimeError(values_only
                                       ? "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
                                         "linalg.qr(A, mode='reduced') if you are going to require gradients "
                                         "from Q"
                                       : "The QR decomposition is not differentiable when mode='complete' "
                                         "and nrows > ncols");
            const Tensor a = bw.saved(0), Q = bw.saved(1), R = bw.saved(2);
            const int64_t m = a.size(-2), n = a.size(-1);
            const Tensor gQ = bw.has_grad(0) ? bw.grad(0) : Tensor(), gR = bw.has_grad(1) ? bw.grad(1) : Tensor();
            if (!gQ && !gR) return;
            if (m >= n) return bw.set(0, qr_gradient(gQ, gR, Q, R));
            // [A1 A2] = Q [R1 R2] with A1 = Q R1 square and R2 = Q^H A2.
            const Tensor R1 = narrow(R, -1, 0, m), A2 = narrow(a, -1, m, n - m);
            if (!gR) return bw.set(0, cat({qr_gradient(gQ, gR, Q, R1), zeros_like(A2)}, -1));
            const Tensor gR2 = narrow(gR, -1, m, n - m);
            bw.set(0, cat({qr_gradient(plus(gQ, times_adjoint(A2, gR2)), narrow(gR, -1, 0, m), Q, R1), times(Q, gR2)}, -1));
        });
    }
    return {Q, R};
}

std::tuple<Tensor, Tensor> geqrf(const Tensor& a) {
    if (a.dim() < 2) throw RuntimeError("torch.geqrf: input must have at least 2 dimensions.");
    check_inexact(a, "torch.geqrf");
    const Reflections r = reflections(a);
    if (needs_grad(a)) {
        const Tensor results[] = {r.a, r.tau};
        record_many(results, "GeqrfBackward0", spanned({a}), {},
                    [](Backward&) { throw RuntimeError("derivative for geqrf is not implemented"); });
    }
    return {r.a, r.tau};
}

void check_reflections(const Tensor& a, const Tensor& tau, const char* name) {
    if (a.dim() < 2) throw RuntimeError(name, ": input must have at least 2 dimensions.");
    check_inexact(a, name);
    if (a.size(-2) < a.size(-1)) throw RuntimeError(name, ": input.shape[-2] must be greater than or equal to input.shape[-1]");
    if (tau.dim() != a.dim() - 1)
        throw RuntimeError(name, ": Expected tau to have one dimension less than input, but got tau.ndim equal to ", tau.dim(),
                           " and input.ndim is equal to ", a.dim());
    if (a.size(-1) < tau.size(-1)) throw RuntimeError(name, ": input.shape[-1] must be greater than or equal to tau.shape[-1]");
    if (!(Dims(tau.sizes().data(), tau.dim() - 1) == batch_sizes(a)))
        throw RuntimeError(name, ": Expected batch dimensions of tau to be equal to input.shape[:-2], but got ", tau.sizes());
    if (tau.dtype() != a.dtype())
        throw RuntimeError(name, ": tau dtype ", type_name(tau.dtype()), " does not match input dtype ", type_name(a.dtype()));
    check_same_device(name, a, tau);
}

// Goes through the reflections H = I - t v v^H in order: with Y = H Z, Z and its gradient follow from Y and its own.
void householder_gradient(Backward& bw) {
    const Tensor a = bw.saved(0), tau = bw.saved(1);
    Tensor y = bw.saved(2), g = bw.grad();
    const int64_t m = a.size(-2), n = a.size(-1), k = tau.size(-1);
    const Tensor below = tril(a, -1) + ones_on_diagonal(a.sizes(), a.dtype());
    TensorList g_columns, g_tau;
    for (int64_t i = 0; i < k; i++) {
        const Tensor v = narrow(below, -1, i, 1), t = column(narrow(tau, -1, i, 1));
        const Tensor inverse = t / (t * adjoint_times(v, v) - Scalar(1));
        const Tensor vh_y = adjoint_times(v, y), z = y - times(v, vh_y) * inverse;
        const Tensor vh_z = adjoint_times(v, z), vh_g = adjoint_times(v, g);
        g_tau.push_back(squeeze(neg(times_adjoint(vh_g, vh_z)), {-1}));  // d/dt of -t v v^H z
        const Tensor g_v = neg(conj(t) * times_adjoint(g, vh_z) + t * times_adjoint(z, vh_g));
        g_columns.push_back(g_v);
        g = g - times(v, vh_g) * conj(t);
        y = z;
    }
    if (bw.needs(0)) {
        if (n > k) g_columns.push_back(zeros(with(batch_sizes(a), {m, n - k}), a.dtype()));
        bw.set(0, g_columns.empty() ? zeros_like(a) : tril(cat(g_columns, -1), -1));
    }
    if (bw.needs(1)) bw.set(1, g_tau.empty() ? zeros_like(tau) : cat(g_tau, -1));
}

Tensor ormqr(const Tensor& a, const Tensor& tau, const Tensor& other, bool left, bool transposed) {
    if (a.dim() < 2) throw RuntimeError("torch.ormqr: input must have at least 2 dimensions.");
    if (other.dim() < 2) throw RuntimeError("torch.ormqr: other must have at least 2 dimensions.");
    check_inexact(a, "torch.ormqr");
    const int64_t side = other.size(left ? -2 : -1), n = a.size(-1), k = tau.dim() ? tau.size(-1) : 0;
    const char* dim = left ? "-2" : "-1";
    if (side < k) throw RuntimeError("torch.ormqr: other.shape[", dim, "] must be greater than or equal to tau.shape[-1]");
    if (side != a.size(-2)) throw RuntimeError("torch.ormqr: other.shape[", dim, "] must be equal to input.shape[-2]");
    if (k > n) throw RuntimeError("torch.ormqr: tau.shape[-1] must be less than or equal to input.shape[-1]");
    if (a.dim() - tau.dim() != 1)
        throw RuntimeError(
            "torch.ormqr: Expected tau to have one dimension less than input, but got tau.ndim equal "
            "to ",
            tau.dim(), " and input.ndim is equal to ", a.dim());
    if (a.dim() != other.dim())
        throw RuntimeError(
            "torch.ormqr: Expected other to have the same number of dimensions as input, but got "
            "other.ndim equal to ",
            other.dim(), " and input.ndim is equal to ", a.dim());
    const Dims batch = batch_sizes(a);
    if (!(Dims(tau.sizes().data(), tau.dim() - 1) == batch))
        throw RuntimeError("torch.ormqr: Expected batch dimensions of tau to be equal to input.shape[:-2], but got ", tau.sizes());
    if (!(batch_sizes(other) == batch))
        throw RuntimeError("torch.ormqr: Expected batch dimensions of other to be equal to input.shape[:-2], but got ", other.sizes());
    if (tau.dtype() != a.dtype() || other.dtype() != a.dtype())
        throw RuntimeError("torch.ormqr: Expected input, tau and other to have the same dtype, but found ", type_name(a.dtype()), ", ",
                           type_name(tau.dtype()), " and ", type_name(other.dtype()));
    const int64_t m = a.size(-2);
    if (needs_grad(a, tau, other)) {  // through the whole of Q
        const Tensor used = narrow(a, -1, 0, k);
        const Tensor q = householder_product(m > k ? cat({used, zeros(with(batch, {m, m - k}), a.dtype())}, -1) : used, tau);
        const MatrixForm form{transposed, transposed};
        return left ? product(q, form, other, {}) : product(other, {}, q, form);
    }
    Tensor c = column_major_copy(other);
    if (c.numel()) {
        const Tensor reflected = column_major_packed(a), t = contiguous(alias(tau));
        const auto& lapack = kernels::lapack(a.dtype());
        Unlocked unlocked(c.numel() * std::max<int64_t>(1, k));
        lapack.householder_apply(product(batch), left ? 'L' : 'R', transposed ? 'C' : 'N', c.size(-2), c.size(-1), k, m, n,
                                 reflected.device_data(), t.device_data(), c.device_data());
    }
    return c;
}

// What LAPACK's iterations need, and whether they came to an end.
void check_finite(const Tensor& a, const char* name) {
    if (!is_nonzero(all(isfinite(a))))
        throw LinAlgError(name, ": The algorithm failed to converge because the input matrix contained non-finite values.");
}
void check_converged(const Tensor& info, const char* name, const char* values) {
    if (auto failure = first_failure(info))
        throw LinAlgError(name, ": ", failure->where,
                          "The algorithm failed to converge because the input matrix is ill-conditioned or "
                          "has too many repeated ",
                          values, " (error code: ", failure->info, ").");
}

// --- SVD ------------------------------------------------------------------------------------------------------------

struct Singular {
    Tensor u, s, vh;
};
Singular singular(const Tensor& a, char job, const char* name) {
    check_matrix(a, name);
    check_inexact(a, name);
    const Dims batch = batch_sizes(a);
    const int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
    Singular r;
    r.s = empty(with(batch, {k}), real_of(a.dtype()));
    if (job != 'N') {
        r.u = column_major(with(batch, {m, job == 'S' ? k : m}), a.dtype());
        r.vh = column_major(with(batch, {job == 'S' ? k : n, n}), a.dtype());
    }
    if (!a.numel()) {
        if (job != 'N') return {ones_on_diagonal(r.u.sizes(), a.dtype()), r.s, ones_on_diagonal(r.vh.sizes(), a.dtype())};
        return r;
    }
    const Tensor copy = column_major_copy(a), info = no_info(batch);
    check_finite(copy, name);
    {
        const auto& lapack = kernels::lapack(a.dtype());
        Unlocked unlocked(cube(a));
        lapack.svd(product(batch), job, m, n, copy.device_data(), r.s.device_data(), job == 'N' ? nullptr : r.u.device_data(),
                   job == 'N' ? nullptr : r.vh.device_data(), info.device_data<int32_t>());
    }
    check_converged(info, name, "singular values");
    return r;
}

Tensor svd_gradient(const Tensor& gU, const Tensor& gS, const Tensor& gVh, const Tensor& U, const Tensor& S, const Tensor& Vh) {
    if (!gU && !gVh) return times(U * row(gS), Vh);
    const int64_t m = U.size(-2), n = Vh.size(-1), k = S.size(-1);
    Tensor inner, u_part;
    const Tensor squares = S * S, E = differences(squares);
    if (gU) {
        u_part = skew(adjoint_times(U, gU));
        inner = u_part / E * row(S);
    }
    if (gVh) inner = plus(inner, column(S) * (skew(times_adjoint(Vh, gVh)) / E));
    if (gU && is_complex(U.dtype())) {
        // The phases of a pair of vectors are free together; their difference is not.
        inner = where(on_diagonal(k), Arg(Scalar(0.0)), inner) + diag_embed(diagonal_of(u_part) / (S * Scalar(2)));
    }
    if (gS) inner = inner + diag_embed(gS);
    Tensor g;
    if (m > k && gU) {
        const Tensor scaled = gU / row(S);
        g = times(times(U, inner) + scaled - times(U, adjoint_times(U, scaled)), Vh);
    } else {
        g = times(times(U, inner), Vh);
    }
    if (n > k && gVh) {
        const Tensor scaled = gVh / column(S);
        g = g + times(U, scaled - times(times_adjoint(scaled, Vh), Vh));
    }
    return g;
}

void record_svd(const Tensor& a, const Singular& r) {
    const Tensor results[] = {r.u, r.s, r.vh};
    record_many(results, "LinalgSvdBackward0", spanned({a}), results, [](Backward& bw) {
        const Tensor S = bw.saved(1);
        const int64_t k = S.size(-1);
        const bool some[] = {bw.has_grad(0), bw.has_grad(1), bw.has_grad(2)};
        if (!some[0] && !some[1] && !some[2]) return;
        bw.set(0, svd_gradient(some[0] ? narrow(bw.grad(0), -1, 0, k) : Tensor(), some[1] ? bw.grad(1) : Tensor(),
                               some[2] ? narrow(bw.grad(2), -2, 0, k) : Tensor(), narrow(bw.saved(0), -1, 0, k), S,
                               narrow(bw.saved(2), -2, 0, k)));
    });
}

Tensor svdvals(const Tensor& a) {
    if (!needs_grad(a)) return singular(a, 'N', "linalg.svdvals").s;
    const Singular r = singular(a, 'S', "linalg.svdvals");
    record_svd(a, r);
    return r.s;
}

// --- eigenvalues ----------------------------------------------------------------------------------------------------

std::tuple<Tensor, Tensor> eigh(const Tensor& a, const std::string& uplo, bool vectors, const char* name) {
    check_square(a, name);
    check_inexact(a, name);
    const char part = uplo.size() == 1 ? char(std::toupper(uplo[0])) : ' ';
    if (part != 'L' && part != 'U') throw RuntimeError("Expected UPLO argument to be 'L' or 'U', but got ", uplo);
    vectors = vectors || needs_grad(a);
    const Dims batch = batch_sizes(a);
    Tensor values = empty(with(batch, {a.size(-1)}), real_of(a.dtype())), v = column_major_copy(a);
    if (a.numel()) {
        // Of one or two rows the library makes NaN, as PyTorch does, where larger ones may keep it busy for ever.
        if (a.size(-1) > 2 || a.device().is_cuda()) check_finite(v, name);
        const Tensor info = no_info(batch);
        {
            const auto& lapack = kernels::lapack(a.dtype());
            Unlocked unlocked(cube(a));
            lapack.eigh(product(batch), vectors, part, a.size(-1), v.device_data(), values.device_data(), info.device_data<int32_t>());
        }
        check_converged(info, name, "eigenvalues");
    }
    if (needs_grad(a)) {
        const Tensor results[] = {values, v};
        record_many(results, "LinalgEighBackward0", spanned({a}), results, [](Backward& bw) {
            const Tensor values = bw.saved(0), V = bw.saved(1);
            if (!bw.has_grad(1)) {
                if (bw.has_grad(0)) bw.set(0, times_adjoint(V * row(bw.grad(0)), V));
                return;
            }
            Tensor inner = adjoint_times(V, bw.grad(1)) / differences(values);
            inner = where(on_diagonal(values.size(-1)), Arg(Scalar(0.0)), inner);
            if (bw.has_grad(0)) inner = inner + diag_embed(bw.grad(0));
            bw.set(0, times_adjoint(times(V, inner), V));
        });
    }
    return {values, v};
}

std::tuple<Tensor, Tensor> eig(const Tensor& a, bool vectors, const char* name) {
    check_square(a, name);
    check_inexact(a, name);
    vectors = vectors || needs_grad(a);
    const Dims batch = batch_sizes(a);
    const DType type = complex_of(a.dtype());
    Tensor values = empty(with(batch, {a.size(-1)}), type), v = vectors ? column_major(a.sizes(), type) : Tensor();
    if (a.numel()) {
        const Tensor copy = column_major_copy(a), info = no_info(batch);
        if (!is_nonzero(all(isfinite(copy)))) throw RuntimeError("torch.", name, ": input tensor should not contain infs or NaNs.");
        {
            const auto& lapack = kernels::lapack(a.dtype());
            Unlocked unlocked(6 * cube(a));
            lapack.eig(product(batch), a.size(-1), copy.device_data(), values.device_data(), vectors ? v.device_data() : nullptr,
                       info.device_data<int32_t>());
        }
        check_converged(info, name, "eigenvalues");
    }
    if (needs_grad(a)) {
        const Tensor results[] = {values, v};
        record_many(results, "LinalgEigBackward0", spanned({a}), results, [](Backward& bw) {
            const Tensor values = bw.saved(0), V = bw.saved(1), Vh = mH(V);
            if (!bw.has_grad(1)) {
                if (bw.has_grad(0)) bw.set(0, solve(Vh, column(bw.grad(0)) * Vh));
                return;
            }
            // A vector has length one and a free phase: what points along it does not count.
            const Tensor inner = adjoint_times(V, bw.grad(1));
            Tensor g = (inner - adjoint_times(V, V * row(real(diagonal_of(inner))))) / conj(differences(values));
            g = where(on_diagonal(values.size(-1)), Arg(Scalar(0.0)), g);
            if (bw.has_grad(0)) g = g + diag_embed(bw.grad(0));
            bw.set(0, solve(Vh, times(g, Vh)));
        });
    }
    return {values, v};
}

// --- the pseudo-inverse and least squares ---------------------------------------------------------------------------

Tensor pinv_gradient(const Tensor& g, const Tensor& P, const Tensor& A) {
    const Tensor gh = mH(g), Ph = mH(P);
    if (A.size(-2) <= A.size(-1)) {
        const Tensor K = times(gh, P), KPh = times(K, Ph);
        return KPh - mH(times(P, K)) - times(times(A, P), KPh) + times(times(Ph, P), gh - times(K, A));
    }
    const Tensor K = times(P, gh), PhK = times(Ph, K);
    return times(times(gh - times(A, K), P), Ph) - mH(times(K, P)) + PhK - times(times(PhK, P), A);
}

double epsilon(DType d) { return real_of(d) == DType::f32 ? 1.1920929e-07 : 2.220446049250313e-16; }

// Singular values up to max(atol, rtol * the largest) count as zero. The tolerances broadcast against the batch.
Tensor pinv(const Tensor& a, const Tensor& atol_, const Tensor& rtol_, bool hermitian) {
    if (a.dim() < 2) throw RuntimeError("linalg.pinv: expected a tensor with 2 or more dimensions, got shape ", a.sizes());
    check_inexact(a, "linalg.pinv");
    if (hermitian) check_square(a, "linalg.pinv");
    const int64_t m = a.size(-2), n = a.size(-1);
    for (const Tensor* tolerance : {&atol_, &rtol_})
        if (*tolerance && is_complex(tolerance->dtype()))
            throw RuntimeError("torch.linalg.pinv: ", tolerance == &atol_ ? "atol" : "rtol",
                               " tensor of complex type is not supported. Got ", type_name(tolerance->dtype()));
    Tensor y;
    if (a.numel() == 0) {
        y = zeros(with(batch_sizes(a), {n, m}), a.dtype());
    } else {
        const Tensor plain = alias(a);
        const DType real_type = real_of(a.dtype());
        auto tolerance = [&](const Tensor& t) { return t ? to(alias(t), real_type) : scalar_tensor(Scalar(0.0), real_type); };
        const Tensor atol = tolerance(atol_);
        Tensor rtol = tolerance(rtol_);
        if (!rtol_) {  // the machine's precision where no absolute tolerance is given
            rtol = full({}, Scalar(double(std::max(m, n)) * epsilon(a.dtype())), real_type);
            if (atol_) rtol = where(gt(atol, Scalar(0.0)), Arg(Scalar(0.0)), rtol);
        }
        auto reciprocals = [&](const Tensor& s) {
            const Tensor sizes = abs(s), largest = amax(sizes, {-1}, true);
            const Tensor limit = maximum(column(atol), column(rtol) * largest);
            return where(gt(sizes, limit), Arg(reciprocal(s)), Arg(Scalar(0.0)));
        };
        if (hermitian) {
            const auto [values, v] = eigh(plain, "L", true, "linalg.pinv");
            y = times_adjoint(v * row(reciprocals(values)), v);
        } else {
            const Singular r = singular(plain, 'S', "linalg.pinv");
            y = product(r.vh, adjoint, row(reciprocals(r.s)) * r.u, adjoint);
        }
    }
    if (needs_grad(a))
        record(y, "LinalgPinvBackward0", {a}, {y, a}, [](Backward& bw) { bw.set(0, pinv_gradient(bw.grad(), bw.saved(0), bw.saved(1))); });
    return y;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b_, std::optional<double> rcond,
                                                 std::optional<std::string> driver_) {
    const char* name = "torch.linalg.lstsq";
    if (a.dim() < 2) throw RuntimeError(name, ": input must have at least 2 dimensions.");
    if (b_.dim() < 1) throw RuntimeError(name, ": other must have at least 1 dimension.");
    check_inexact(a, name);
    check_same_dtype(a, b_, name);
    if (const int64_t apart = a.dim() - b_.dim(); apart < 0 || apart > 1)
        throw RuntimeError(name, ": input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1");
    const bool vector = b_.dim() == 1 || (a.dim() - 1 == b_.dim() && b_.sizes() == Dims(a.sizes().data(), a.dim() - 1));
    const Tensor b = vector ? unsqueeze(b_, -1) : b_;
    if (b.dim() < 2 || a.size(-2) != b.size(-2))
        throw RuntimeError(name, vector ? ": input.size(-2) should match other.size(-1)" : ": input.size(-2) should match other.size(-2)");
    const std::string driver = driver_.value_or(a.is_cuda() ? "gels" : "gelsy");
    if (driver != "gels" && driver != "gelsy" && driver != "gelsd" && driver != "gelss")
        throw RuntimeError(name, ": parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
    if (a.is_cuda() && driver != "gels")
        throw RuntimeError(name, ": parameter `driver` other than `gels` is not supported on CUDA; got ", driver,
                           ". Leave it out, or move the matrices with .cpu()");
    const Dims batch = broadcast(batch_sizes(a), batch_sizes(b));
    const int64_t m = a.size(-2), n = a.size(-1), columns = b.size(-1), k = std::min(m, n), rows = std::max(m, n);
    const Tensor copy = column_major_copy(expanded(alias(a), with(batch, {m, n})));
    Tensor full = column_major(with(batch, {rows, columns}), a.dtype());
    zero_(full);
    auto rows_of = [&](int64_t from, int64_t to) { return alias(full, full.layout().slice(full.dim() - 2, from, to, 1)); };
    if (b.numel()) copy_values(rows_of(0, m), expanded(alias(b), with(batch, {m, columns})));
    const bool has_rank = driver != "gels", has_values = driver == "gelsd" || driver == "gelss";
    Tensor rank = has_rank ? zeros(batch, DType::i64) : empty({0}, DType::i64);
    Tensor values = has_values ? zeros(with(batch, {k}), real_of(a.dtype())) : empty({0}, real_of(a.dtype()));
    const Tensor info = no_info(batch);
    if (full.numel() && copy.numel()) {
        const auto& lapack = kernels::lapack(a.dtype());
        Unlocked unlocked(cube(a) + full.numel() * k);
        lapack.least_squares(product(batch), driver == "gels" ? 'g' : driver.back(), m, n, columns, copy.device_data(), full.device_data(),
                             rcond.value_or(epsilon(a.dtype()) * double(rows)), has_rank ? rank.device_data<int64_t>() : nullptr,
                             has_values ? values.device_data() : nullptr, info.device_data<int32_t>());
    }
    if (auto failure = first_failure(info))
        throw LinAlgError(name, ": ", failure->where,
                          driver == "gels"
                              ? "The least squares solution could not be computed because the input matrix does not have full rank"
                              : "The algorithm failed to converge",
                          " (error code: ", failure->info, ").");
    Tensor residuals = empty({0}, real_of(a.dtype()));
    if (m > n && driver != "gelsy" && (!has_rank || is_nonzero(all(eq(rank, Scalar(n)))))) {
        const Tensor rest = abs(rows_of(n, m));
        residuals = sum(rest * rest, {-2});
    }
    Tensor x = rows_of(0, n);
    if (needs_grad(a, b)) {
        const Tensor results[] = {x, residuals};
        record_many(results, "LinalgLstsqBackward0", spanned({a, b}), spanned({a, b, x}), [](Backward& bw) {
            const Tensor a = bw.saved(0), b = bw.saved(1), x = bw.saved(2);
            Tensor gA, gB;
            if (bw.has_grad(0)) {
                const Tensor p = pinv(a, {}, {}, false), g = bw.grad(0);
                gA = pinv_gradient(times_adjoint(g, b), p, a);
                gB = adjoint_times(p, g);
            }
            if (bw.has_grad(1) && bw.grad(1).numel()) {
                const Tensor r = (times(a, x) - b) * (row(bw.grad(1)) * Scalar(2.0));
                gA = plus(gA, times_adjoint(r, x));
                gB = plus(gB, neg(r));
            }
            if (gA) bw.set(0, gA);
            if (gB) bw.set(1, gB);
        });
    }
    return {vector ? squeeze(x, {-1}) : x, residuals, rank, values};
}

}  // namespace

Tensor householder_product(const Tensor& a, const Tensor& tau) {
    check_reflections(a, tau, "torch.linalg.householder_product");
    Tensor q = orthonormal(alias(a), tau, a.size(-1));
    if (needs_grad(a, tau)) record(q, "LinalgHouseholderProductBackward0", {a, tau}, {a, tau, q}, householder_gradient);
    return q;
}

std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices) {
    const Singular r = singular(a, full_matrices ? 'A' : 'S', "linalg.svd");
    if (needs_grad(a)) record_svd(a, r);
    return {r.u, r.s, r.vh};
}

static const Operators operators = {
    {"linalg.qr(Tensor A, str mode='reduced', *, Tensor[]!? out=None) -> (Q, R)", qr, function | takes_batches | cpu_float32,
     R"(The factors Q (orthonormal columns) and R (upper triangle).
        >>> wisp.linalg.qr(wisp.eye(2)).R.abs()
        tensor([[1., 0.],
                [0., 1.]]))"},
    {"qr(Tensor input, bool some=True, *, Tensor[]!? out=None) -> (Q, R)",
     [](const Tensor& a, bool some) { return qr(a, some ? "reduced" : "complete"); }, function | method | cpu_float32,
     R"(The factors Q (orthonormal columns) and R (upper triangle) of a matrix.
        >>> wisp.qr(wisp.eye(2)).R.abs()
        tensor([[1., 0.],
                [0., 1.]]))"},
    {"geqrf(Tensor input, *, Tensor[]? out=None) -> (a, tau)", geqrf, function | method | cpu_float32,
     R"(The QR decomposition in LAPACK's packed form.
        >>> [t.shape for t in wisp.geqrf(wisp.eye(2))]
        [torch.Size([2, 2]), torch.Size([2])])"},
    {"linalg.householder_product(Tensor A, Tensor tau, *, Tensor? out=None)", householder_product, function | cpu_float32,
     R"(The product of Householder reflections, as `geqrf` returns them.
        >>> wisp.linalg.householder_product(*wisp.geqrf(wisp.eye(2))).abs()
        tensor([[1., 0.],
                [0., 1.]]))"},
    {"orgqr(Tensor input, Tensor tau|input2, *, Tensor? out=None)", householder_product, function | method | cpu_float32,
     R"(The matrix Q of a packed QR decomposition.
        >>> wisp.orgqr(*wisp.geqrf(wisp.eye(2))).abs()
        tensor([[1., 0.],
                [0., 1.]]))"},
    {"ormqr(Tensor input, Tensor tau|input2, Tensor other|input3, bool left=True, bool transpose=False, *, Tensor!? out=None)",
     [](const Tensor& a, const Tensor& tau, const Tensor& other, bool left, bool transposed) {
         return whole("OrmqrBackward0", {a, tau, other}, [&] { return ormqr(a, tau, other, left, transposed); });
     },
     function | method | cpu_float32,
     R"(The product of the matrix Q of a packed QR decomposition and another matrix.
        >>> wisp.ormqr(*wisp.geqrf(wisp.eye(2)), wisp.eye(2)).abs()
        tensor([[1., 0.],
                [0., 1.]]))"},
    {"linalg.svd(Tensor A, bool full_matrices=True, *, str? driver=None, Tensor[]!? out=None) -> (U, S, Vh)",
     [](const Tensor& a, bool full, std::optional<std::string>) { return svd(a, full); },
     by_complex64 | function | takes_batches | cpu_float32,
     R"(The singular value decomposition U, S and the conjugate transpose of V.
        >>> wisp.linalg.svd(wisp.tensor([[3.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 3.]))"},
    {"linalg.svdvals(Tensor A, *, str? driver=None, Tensor!? out=None)",
     [](const Tensor& a, std::optional<std::string>) { return svdvals(a); }, function | takes_batches | cpu_float32,
     R"(The singular values, in descending order.
        >>> wisp.linalg.svdvals(wisp.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor([4., 3.]))"},
    {"svd(Tensor input, bool some=True, bool compute_uv=True, *, Tensor[]!? out=None) -> (U, S, V)",
     [](const Tensor& a, bool some, bool vectors) -> std::tuple<Tensor, Tensor, Tensor> {
         check_matrix(a, "linalg.svd");
         if (!vectors)
             return {zeros(with(batch_sizes(a), {a.size(-2), a.size(-2)}), a.dtype()), svdvals(a),
                     zeros(with(batch_sizes(a), {a.size(-1), a.size(-1)}), a.dtype())};
         const auto [u, s, vh] = svd(a, !some);
         return {u, s, mH(vh)};
     },
     by_complex64 | function | method | cpu_float32,
     R"(The singular value decomposition U, S, V.
        >>> wisp.svd(wisp.tensor([[3.0, 0.0], [0.0, 4.0]])).S
        tensor([4., 3.]))"},
    {"linalg.eigh(Tensor A, str UPLO='L', *, Tensor[]!? out=None) -> (eigenvalues, eigenvectors)",
     [](const Tensor& a, std::string uplo) { return eigh(a, uplo, true, "linalg.eigh"); }, function | takes_batches | cpu_float32,
     R"(Eigenvalues, in ascending order, and eigenvectors of symmetric or Hermitian matrices.
        >>> wisp.linalg.eigh(wisp.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.]))"},
    {"linalg.eigvalsh(Tensor A, str UPLO='L', *, Tensor!? out=None)",
     [](const Tensor& a, std::string uplo) { return std::get<0>(eigh(a, uplo, false, "linalg.eigvalsh")); },
     function | takes_batches | cpu_float32,
     R"(Eigenvalues of symmetric or Hermitian matrices.
        >>> wisp.linalg.eigvalsh(wisp.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 2.]))"},
    {"linalg.eig(Tensor A, *, Tensor[]? out=None) -> (eigenvalues, eigenvectors)",
     [](const Tensor& a) { return eig(a, true, "linalg.eig"); }, function | cpu_float32,
     R"(Eigenvalues and eigenvectors, complex.
        >>> wisp.linalg.eig(wisp.tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues.imag.abs()
        tensor([1., 1.]))"},
    {"linalg.eigvals(Tensor A, *, Tensor? out=None)", [](const Tensor& a) { return std::get<0>(eig(a, false, "linalg.eigvals")); },
     function | cpu_float32,
     R"(Eigenvalues, complex.
        >>> wisp.linalg.eigvals(wisp.tensor([[2.0]]))
        tensor([2.+0.j]))"},
    {"linalg.lstsq(Tensor A, Tensor B, float? rcond=None, *, str? driver=None, Tensor[]? out=None) -> (solution, "
     "residuals, rank, singular_values)",
     lstsq, function | cpu_float32,
     R"(The solution of systems in the sense of least squares.
        >>> wisp.linalg.lstsq(wisp.tensor([[1.0], [1.0]]), wisp.tensor([[1.0], [3.0]])).solution
        tensor([[2.0000]]))"},
    {"linalg._pinv(Tensor A, Tensor? atol, Tensor? rtol, bool hermitian)", pinv, function},
};

}  // namespace wisp
