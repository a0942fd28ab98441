// Linear algebra by cuSOLVER and cuBLAS, which are opened on first use. Batches are loops over matrices, except where the
// libraries have routines for many small ones. Signatures differ by dtype only in what pointers point to.
#include "../kernels/lapack.h"

#include <algorithm>
#include <vector>

#include "../core/device.h"
#include "../core/errors.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

enum { lower_part, upper_part };

// X(name in the table, end of the symbol for real and for complex dtypes, parameters)
#define WISP_SOLVER(X)                                                                                                                    \
    X(lu_size, "getrf_bufferSize", "getrf_bufferSize", (Handle, int m, int n, void* a, int lda, int* work))                               \
    X(lu, "getrf", "getrf", (Handle, int m, int n, void* a, int lda, void* work, int* pivots, int* info))                                 \
    X(lu_solve, "getrs", "getrs",                                                                                                         \
      (Handle, int trans, int n, int columns, const void* a, int lda, const int* pivots, void* b, int ldb, int* info))                    \
    X(cholesky_size, "potrf_bufferSize", "potrf_bufferSize", (Handle, int part, int n, void* a, int lda, int* work))                      \
    X(cholesky, "potrf", "potrf", (Handle, int part, int n, void* a, int lda, void* work, int size, int* info))                           \
    X(cholesky_batched, "potrfBatched", "potrfBatched", (Handle, int part, int n, void** a, int lda, int* info, int batch))               \
    X(qr_size, "geqrf_bufferSize", "geqrf_bufferSize", (Handle, int m, int n, void* a, int lda, int* work))                               \
    X(qr, "geqrf", "geqrf", (Handle, int m, int n, void* a, int lda, void* tau, void* work, int size, int* info))                         \
    X(form_size, "orgqr_bufferSize", "ungqr_bufferSize",                                                                                  \
      (Handle, int m, int n, int k, const void* a, int lda, const void* tau, int* work))                                                  \
    X(form, "orgqr", "ungqr", (Handle, int m, int n, int k, void* a, int lda, const void* tau, void* work, int size, int* info))          \
    X(apply_size, "ormqr_bufferSize", "unmqr_bufferSize",                                                                                 \
      (Handle, int side, int trans, int m, int n, int k, const void* a, int lda, const void* tau, const void* c, int ldc, int* work))     \
    X(apply, "ormqr", "unmqr",                                                                                                            \
      (Handle, int side, int trans, int m, int n, int k, const void* a, int lda, const void* tau, void* c, int ldc, void* work, int size, \
       int* info))                                                                                                                        \
    X(svd_size, "gesvdj_bufferSize", "gesvdj_bufferSize",                                                                                 \
      (Handle, int vectors, int reduced, int m, int n, void* a, int lda, void* s, void* u, int ldu, void* v, int ldv, int* work, Handle)) \
    X(svd, "gesvdj", "gesvdj",                                                                                                            \
      (Handle, int vectors, int reduced, int m, int n, void* a, int lda, void* s, void* u, int ldu, void* v, int ldv, void* work,         \
       int size, int* info, Handle))                                                                                                      \
    X(eigh_size, "syevd_bufferSize", "heevd_bufferSize",                                                                                  \
      (Handle, int vectors, int part, int n, const void* a, int lda, const void* w, int* work))                                           \
    X(eigh, "syevd", "heevd", (Handle, int vectors, int part, int n, void* a, int lda, void* w, void* work, int size, int* info))

#define WISP_BLAS(X)                                                                                                                    \
    X(triangular, "trsm_v2",                                                                                                            \
      (Handle, int side, int part, int trans, int unit, int m, int n, const void* alpha, const void* a, int lda, void* b, int ldb))     \
    X(triangular_batched, "trsmBatched",                                                                                                \
      (Handle, int side, int part, int trans, int unit, int m, int n, const void* alpha, const void* const* a, int lda, void* const* b, \
       int ldb, int batch))                                                                                                             \
    X(lu_batched, "getrfBatched", (Handle, int n, void* const* a, int lda, int* pivots, int* info, int batch))                          \
    X(lu_solve_batched, "getrsBatched",                                                                                                 \
      (Handle, int trans, int n, int columns, const void* const* a, int lda, const int* pivots, void* const* b, int ldb, int* info,     \
       int batch))

struct Routines {  // of one dtype
#define WISP_X(name, real, complex, parameters) Result(*name) parameters;
    WISP_SOLVER(WISP_X)
#undef WISP_X
#define WISP_X(name, end, parameters) Result(*name) parameters;
    WISP_BLAS(WISP_X)
#undef WISP_X
};

// What does not depend on the dtype; X as in conv.cpp.
#define WISP_SOLVER_COMMON(X)                            \
    X(create, cusolverDnCreate, (Handle*))               \
    X(set_stream, cusolverDnSetStream, (Handle, Handle)) \
    X(jacobi, cusolverDnCreateGesvdjInfo, (Handle*))
#define WISP_BLAS_COMMON(X)               \
    X(create, cublasCreate_v2, (Handle*)) \
    X(set_stream, cublasSetStream_v2, (Handle, Handle))
struct Solver {
    WISP_SOLVER_COMMON(WISP_FIELD)
};
struct Blas {
    WISP_BLAS_COMMON(WISP_FIELD)
};

struct Libraries {
    Solver solver;
    Blas blas;
    void *solver_library, *blas_library;
    Routines routines[4];  // float, double, complex float, complex double
};

const Libraries& libraries() {
    static const Libraries all = [] {
        Libraries l;
        l.blas_library = open_table({"cuBLAS", "linear algebra on the GPU needs", "cublas", {"libcublas.so.13", "libcublas.so.12"}},
                                    reinterpret_cast<void**>(&l.blas), {WISP_BLAS_COMMON(WISP_SYMBOL)});
        l.solver_library =
            open_table({"cuSOLVER", "linear algebra on the GPU needs", "cusolver", {"libcusolver.so.12", "libcusolver.so.11"}},
                       reinterpret_cast<void**>(&l.solver), {WISP_SOLVER_COMMON(WISP_SYMBOL)});
        for (int t = 0; t < 4; t++) {
            auto** slot = reinterpret_cast<void**>(&l.routines[t]);
            auto take = [&](void* library, const std::string& symbol) {
                if (!(*slot++ = library_symbol(library, symbol.c_str())))
                    throw RuntimeError("NVIDIA's library lacks the function ", symbol, ": it is too old");
            };
#define WISP_X(name, real, complex, parameters) take(l.solver_library, std::string("cusolverDn") + "SDCZ"[t] + (t < 2 ? real : complex));
            WISP_SOLVER(WISP_X)
#undef WISP_X
#define WISP_X(name, end, parameters) take(l.blas_library, std::string("cublas") + "SDCZ"[t] + end);
            WISP_BLAS(WISP_X)
#undef WISP_X
        }
        return l;
    }();
    return all;
}

void must(Result r, const char* what) {
    if (r != 0) throw RuntimeError("cuSOLVER or cuBLAS error ", r, " (", what, ")");
}

struct Handles {
    Handle solver = nullptr, blas = nullptr, jacobi = nullptr;
};
const Handles& handles() {
    static Handles all[64];
    const Libraries& l = libraries();
    before_work();
    const Handle stream = current_stream();
    Handles& h = all[current_device().index];
    if (!h.solver) {
        must(l.solver.create(&h.solver), "starting");
        must(l.blas.create(&h.blas), "starting");
        must(l.solver.jacobi(&h.jacobi), "starting");
    }
    must(l.solver.set_stream(h.solver, stream), "choosing the stream");
    must(l.blas.set_stream(h.blas, stream), "choosing the stream");
    return h;
}

int operation(char c) { return c == 'N' ? 0 : c == 'T' ? 1 : 2; }
int part_of(char c) { return c == 'U' || c == 'u' ? upper_part : lower_part; }
int side_of(char c) { return c == 'R' ? 1 : 0; }
int small(int64_t n) {
    if (n > INT32_MAX) throw RuntimeError("linear algebra on cuda: a size of ", n, " is too large");
    return int(std::max<int64_t>(n, 1));
}

constexpr int which_of(DType d) { return d == DType::f32 ? 0 : d == DType::f64 ? 1 : d == DType::c64 ? 2 : 3; }

template <DType D> struct Gpu {
    static constexpr bool complex = D == DType::c64 || D == DType::c128;
    static constexpr DType real = D == DType::f32 || D == DType::c64 ? DType::f32 : DType::f64;
    static const Routines& use() { return libraries().routines[which_of(D)]; }
    static int64_t item() { return item_size(D); }
    template <class P> static P* at(P* p, int64_t elements, DType d = D) {
        using Byte = std::conditional_t<std::is_const_v<P>, const char, char>;
        return p ? static_cast<P*>(static_cast<Byte*>(static_cast<std::conditional_t<std::is_const_v<P>, const void*, void*>>(p)) +
                                   elements * item_size(d))
                 : nullptr;
    }
    // 1 in this dtype.
    static const void* one() {
        alignas(16) static const float f[2] = {1, 0};
        alignas(16) static const double d[2] = {1, 0};
        return real == DType::f32 ? static_cast<const void*>(f) : d;
    }
    struct Pointers {  // of a batch's matrices, on the device
        Scratch memory;
        Pointers(const void* first, int64_t step, int64_t batch) : memory(size_t(batch * 8)) {
            std::vector<const char*> host(static_cast<size_t>(batch));
            for (int64_t i = 0; i < batch; i++) host[size_t(i)] = static_cast<const char*>(first) + i * step * item();
            upload(memory.data(), host.data(), size_t(batch * 8));
        }
        template <class P> P as() const { return static_cast<P>(memory.data()); }
    };
    static bool many(int64_t batch, int64_t n) { return batch > 1 && n <= 512; }

    static void lu(int64_t batch, int64_t m, int64_t n, void* a, int32_t* pivots, int32_t* info) {
        const Routines& r = use();
        const Handles& h = handles();
        if (m == n && many(batch, n)) {
            const Pointers p(a, n * n, batch);
            must(r.lu_batched(h.blas, small(n), p.template as<void* const*>(), small(n), pivots, info, small(batch)), "LU");
            return;
        }
        int size = 0;
        must(r.lu_size(h.solver, small(m), small(n), a, small(m), &size), "LU");
        Scratch work(size_t(std::max(size, 1)) * size_t(item()));
        for (int64_t i = 0; i < batch; i++)
            must(r.lu(h.solver, small(m), small(n), at(a, i * m * n), small(m), work.data(), pivots + i * std::min(m, n), info + i), "LU");
    }

    static void lu_solve(int64_t batch, char trans, int64_t n, int64_t columns, const void* lu, const int32_t* pivots, void* b) {
        const Routines& r = use();
        const Handles& h = handles();
        if (many(batch, n)) {
            const Pointers p(lu, n * n, batch), q(b, n * columns, batch);
            int host_info = 0;
            must(r.lu_solve_batched(h.blas, operation(trans), small(n), small(columns), p.template as<const void* const*>(), small(n),
                                    pivots, q.template as<void* const*>(), small(n), &host_info, small(batch)),
                 "solving with LU");
            return;
        }
        Scratch info(4);
        for (int64_t i = 0; i < batch; i++)
            must(r.lu_solve(h.solver, operation(trans), small(n), small(columns), at(lu, i * n * n), small(n), pivots + i * n,
                            at(b, i * n * columns), small(n), info.template as<int>()),
                 "solving with LU");
    }

    static void fill_identity(void* a, int64_t batch, int64_t n) {
        fill_zero(a, size_t(batch * n * n * item()));
        alignas(16) char cell[16];
        std::copy_n(static_cast<const char*>(one()), item(), cell);
        const Dims sizes{batch, n}, strides{n * n, n + 1};
        copy_elements({static_cast<char*>(a), D, strides.data(), nullptr}, {nullptr, D, nullptr, cell}, sizes, false);
    }

    static void lu_inverse(int64_t batch, int64_t n, void* lu, const int32_t* pivots, int32_t*) {
        const size_t bytes = size_t(batch * n * n * item());
        Scratch result(bytes);
        fill_identity(result.data(), batch, n);
        lu_solve(batch, 'N', n, n, lu, pivots, result.data());
        within(lu, result.data(), bytes);
    }

    static void cholesky(int64_t batch, char part, int64_t n, void* a, int32_t* info) {
        const Routines& r = use();
        const Handles& h = handles();
        if (many(batch, n)) {
            const Pointers p(a, n * n, batch);
            must(r.cholesky_batched(h.solver, part_of(part), small(n), p.template as<void**>(), small(n), info, small(batch)), "Cholesky");
            return;
        }
        int size = 0;
        must(r.cholesky_size(h.solver, part_of(part), small(n), a, small(n), &size), "Cholesky");
        Scratch work(size_t(std::max(size, 1)) * size_t(item()));
        for (int64_t i = 0; i < batch; i++)
            must(r.cholesky(h.solver, part_of(part), small(n), at(a, i * n * n), small(n), work.data(), size, info + i), "Cholesky");
    }

    static void triangular_solve(int64_t batch, char side, char part, char trans, char diagonal, int64_t m, int64_t n, const void* a,
                                 void* b) {
        const Routines& r = use();
        const Handles& h = handles();
        const int64_t k = side == 'R' ? n : m;
        const int unit = diagonal == 'U';
        if (many(batch, k)) {
            const Pointers p(a, k * k, batch), q(b, m * n, batch);
            must(r.triangular_batched(h.blas, side_of(side), part_of(part), operation(trans), unit, small(m), small(n), one(),
                                      p.template as<const void* const*>(), small(k), q.template as<void* const*>(), small(m), small(batch)),
                 "solving a triangular system");
            return;
        }
        for (int64_t i = 0; i < batch; i++)
            must(r.triangular(h.blas, side_of(side), part_of(part), operation(trans), unit, small(m), small(n), one(), at(a, i * k * k),
                              small(k), at(b, i * m * n), small(m)),
                 "solving a triangular system");
    }

    static void qr(int64_t batch, int64_t m, int64_t n, void* a, void* tau) {
        const Routines& r = use();
        const Handles& h = handles();
        int size = 0;
        must(r.qr_size(h.solver, small(m), small(n), a, small(m), &size), "QR");
        Scratch work(size_t(std::max(size, 1)) * size_t(item())), info(4);
        for (int64_t i = 0; i < batch; i++)
            must(r.qr(h.solver, small(m), small(n), at(a, i * m * n), small(m), at(tau, i * std::min(m, n)), work.data(), size,
                      info.template as<int>()),
                 "QR");
    }

    static void householder(int64_t batch, int64_t m, int64_t n, int64_t k, void* a, const void* tau) {
        const Routines& r = use();
        const Handles& h = handles();
        int size = 0;
        must(r.form_size(h.solver, small(m), small(n), int(k), a, small(m), tau, &size), "forming Q");
        Scratch work(size_t(std::max(size, 1)) * size_t(item())), info(4);
        for (int64_t i = 0; i < batch; i++)
            must(r.form(h.solver, small(m), small(n), int(k), at(a, i * m * n), small(m), at(tau, i * k), work.data(), size,
                        info.template as<int>()),
                 "forming Q");
    }

    // `rows` x `columns` is the shape of what holds the reflections.
    static void householder_apply(int64_t batch, char side, char trans, int64_t m, int64_t n, int64_t k, int64_t rows, int64_t columns,
                                  const void* a, const void* tau, void* c) {
        const Routines& r = use();
        const Handles& h = handles();
        const int turned = trans == 'N' ? 0 : complex ? 2 : 1;
        int size = 0;
        must(r.apply_size(h.solver, side_of(side), turned, small(m), small(n), int(k), a, small(rows), tau, c, small(m), &size),
             "applying Q");
        Scratch work(size_t(std::max(size, 1)) * size_t(item())), info(4);
        for (int64_t i = 0; i < batch; i++)
            must(r.apply(h.solver, side_of(side), turned, small(m), small(n), int(k), at(a, i * rows * columns), small(rows),
                         at(tau, i * k), at(c, i * m * n), small(m), work.data(), size, info.template as<int>()),
                 "applying Q");
    }

    // to (n x m) = from (m x n) conjugate transposed, both by columns.
    static void adjoint_copy(void* to, const void* from, int64_t m, int64_t n) {
        const Dims sizes{n, m}, to_strides{1, n}, from_strides{m, 1};
        copy_elements({static_cast<char*>(to), D, to_strides.data(), nullptr},
                      {static_cast<char*>(const_cast<void*>(from)), D, from_strides.data(), nullptr}, sizes, complex);
    }

    static void svd(int64_t batch, char job, int64_t m, int64_t n, void* a, void* s, void* u, void* vh, int32_t* info) {
        const Routines& r = use();
        const Handles& h = handles();
        const int64_t k = std::min(m, n), wide_u = job == 'A' ? m : k, wide_v = job == 'A' ? n : k;
        const int vectors = job != 'N', reduced = job != 'A';
        // Without vectors the library still wants places for them.
        Scratch v(size_t(n * wide_v * item())), spare(size_t(vectors ? 1 : m * k * item()));
        int size = 0;
        void* first_u = vectors ? u : spare.data();
        must(r.svd_size(h.solver, vectors, reduced, small(m), small(n), a, small(m), s, first_u, small(m), v.data(), small(n), &size,
                        h.jacobi),
             "SVD");
        Scratch work(size_t(std::max(size, 1)) * size_t(item()));
        for (int64_t i = 0; i < batch; i++) {
            must(r.svd(h.solver, vectors, reduced, small(m), small(n), at(a, i * m * n), small(m), at(s, i * k, real),
                       vectors ? at(u, i * m * wide_u) : first_u, small(m), v.data(), small(n), work.data(), size, info + i, h.jacobi),
                 "SVD");
            if (vectors) adjoint_copy(at(vh, i * wide_v * n), v.data(), n, wide_v);
        }
    }

    static void eigh(int64_t batch, bool vectors, char part, int64_t n, void* a, void* values, int32_t* info) {
        const Routines& r = use();
        const Handles& h = handles();
        int size = 0;
        must(r.eigh_size(h.solver, vectors, part_of(part), small(n), a, small(n), values, &size), "eigenvalues");
        Scratch work(size_t(std::max(size, 1)) * size_t(item()));
        for (int64_t i = 0; i < batch; i++)
            must(r.eigh(h.solver, vectors, part_of(part), small(n), at(a, i * n * n), small(n), at(values, i * n, real), work.data(), size,
                        info + i),
                 "eigenvalues");
    }

    // In complex numbers throughout: cusolverDnXgeev, which CUDA 12.8 brought.
    static void eig(int64_t batch, int64_t n, void* a, void* values, void* vectors, int32_t* info) {
        using Size = Result (*)(Handle, Handle, int, int, int64_t, int, const void*, int64_t, int, const void*, int, const void*, int64_t,
                                int, const void*, int64_t, int, size_t*, size_t*);
        using Solve = Result (*)(Handle, Handle, int, int, int64_t, int, void*, int64_t, int, void*, int, void*, int64_t, int, void*,
                                 int64_t, int, void*, size_t, void*, size_t, int*);
        const Libraries& l = libraries();
        static const auto size_of = reinterpret_cast<Size>(library_symbol(l.solver_library, "cusolverDnXgeev_bufferSize"));
        static const auto solve = reinterpret_cast<Solve>(library_symbol(l.solver_library, "cusolverDnXgeev"));
        static const auto new_parameters =
            reinterpret_cast<Result (*)(Handle*)>(library_symbol(l.solver_library, "cusolverDnCreateParams"));
        if (!size_of || !solve || !new_parameters)
            throw MissingKernel("this version of cuSOLVER has no eigenvalues of general matrices; move them with .cpu() for this operator");
        static Handle parameters = nullptr;
        if (!parameters) must(new_parameters(&parameters), "starting");
        const Handles& h = handles();
        constexpr DType C = real == DType::f32 ? DType::c64 : DType::c128;
        const int type = real == DType::f32 ? 4 : 5, want = vectors != nullptr;
        Scratch matrix(size_t(n * n * item_size(C)));
        const Dims sizes{n * n}, strides{1};
        size_t device = 0, host = 0;
        must(size_of(h.solver, parameters, 0, want, n, type, matrix.data(), small(n), type, values, type, nullptr, small(n), type, vectors,
                     small(n), type, &device, &host),
             "eigenvalues");
        Scratch work(std::max<size_t>(device, 1));
        std::vector<char> host_work(std::max<size_t>(host, 1));
        for (int64_t i = 0; i < batch; i++) {
            copy_elements({static_cast<char*>(matrix.data()), C, strides.data(), nullptr},
                          {static_cast<char*>(at(a, i * n * n)), D, strides.data(), nullptr}, sizes, false);
            must(solve(h.solver, parameters, 0, want, n, type, matrix.data(), small(n), type, at(values, i * n, C), type, nullptr, small(n),
                       type, at(vectors, i * n * n, C), small(n), type, work.data(), device, host_work.data(), host, info + i),
                 "eigenvalues");
        }
    }

    // By QR of A, or for a wide A of its adjoint: A is taken to have full rank.
    static void least_squares(int64_t batch, char, int64_t m, int64_t n, int64_t columns, void* a, void* b, double, int64_t*, void*,
                              int32_t*) {
        const int64_t rows = std::max(m, n), k = std::min(m, n);
        Scratch tau(size_t(k * item())), turned(size_t(m < n ? n * m * item() : 1));
        for (int64_t i = 0; i < batch; i++) {
            void *matrix = at(a, i * m * n), *right = at(b, i * rows * columns);
            if (m >= n) {
                qr(1, m, n, matrix, tau.data());
                householder_apply(1, 'L', 'C', m, columns, n, m, n, matrix, tau.data(), right);
                triangular_in(matrix, m, 'N', n, columns, right, rows);
            } else {
                adjoint_copy(turned.data(), matrix, m, n);
                qr(1, n, m, turned.data(), tau.data());
                triangular_in(turned.data(), n, 'C', m, columns, right, rows);
                // Rows behind the first m are zeros already: the front door put them there.
                householder_apply(1, 'L', 'N', n, columns, m, n, m, turned.data(), tau.data(), right);
            }
        }
    }
    // Solves with the upper triangle of the first n rows of a.
    static void triangular_in(const void* a, int64_t lda, char trans, int64_t n, int64_t columns, void* b, int64_t ldb) {
        must(use().triangular(handles().blas, 0, upper_part, operation(trans), 0, small(n), small(columns), one(), a, small(lda), b,
                              small(ldb)),
             "solving a triangular system");
    }

    // By kernels of ours: cuSOLVER has no routine for Hermitian matrices.
    static Kernel* ldl_kernel(int which, bool hermitian) {
        static Instances<4> instances("cuda/kernels/ldl.cuh");
        return instances(2 * which + hermitian,
                         [&] { return str(which ? "ldl_solve<" : "ldl_factor<", type_text(D), hermitian ? ", true>" : ", false>"); });
    }
    static void ldl(int64_t batch, bool hermitian, int64_t n, void* a, int32_t* pivots, int32_t* info) {
        Scratch work(size_t(batch * 2 * n * item()));
        launch_with(ldl_kernel(0, hermitian), {unsigned(batch)}, {256}, 0, a, n, pivots, info, work.data());
    }
    static void ldl_solve(int64_t batch, bool hermitian, int64_t n, int64_t columns, const void* a, const int32_t* pivots, void* b) {
        const char* message = "torch.linalg.ldl_solve: pivots must come from ldl_factor";
        launch_with(ldl_kernel(1, hermitian), {unsigned(batch * columns)}, {256}, 0, a, pivots, b, n, columns, message, report_cell());
    }

    static constexpr LapackKernels table = {
        lu,   lu_solve, lu_inverse,    cholesky, triangular_solve, qr, householder, householder_apply, svd,
        eigh, eig,      least_squares, ldl,      ldl_solve};
};

}  // namespace

std::pair<Handle, Handle> library_handles() {
    const Handles& h = handles();
    return {h.blas, h.solver};
}

const LapackKernels& lapack(DType dtype) {
    switch (dtype) {
    case DType::f32: return Gpu<DType::f32>::table;
    case DType::f64: return Gpu<DType::f64>::table;
    case DType::c64: return Gpu<DType::c64>::table;
    default: return Gpu<DType::c128>::table;
    }
}

}  // namespace wisp::cuda
