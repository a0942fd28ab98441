// LAPACK through dlopen: the symbols, and batched loops around them. Compiled once; the library has its own dispatch. Real systems
// of equations are our own (systems.cpp).
#include "kernels/lapack.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstdlib>
#include <vector>

#include "../core/threads.h"
#include "kernels/gemm.h"

namespace wisp::cpu {
namespace {

// Routines by the name of their real form and of their complex form, without the letter of the type.
#define WISP_ROUTINES(X)       \
    X(getrf, "getrf", "getrf") \
    X(getrs, "getrs", "getrs") \
    X(getri, "getri", "getri") \
    X(potrf, "potrf", "potrf") \
    X(trsm, "trsm", "trsm")    \
    X(geqrf, "geqrf", "geqrf") \
    X(orgqr, "orgqr", "ungqr") \
    X(ormqr, "ormqr", "unmqr") \
    X(gesdd, "gesdd", "gesdd") \
    X(gelqf, "gelqf", "gelqf") \
    X(ormlq, "ormlq", "unmlq") \
    X(gebrd, "gebrd", "gebrd") \
    X(ormbr, "ormbr", "unmbr") \
    X(bdsdc, "bdsdc", "gesdd") \
    X(syevd, "syevd", "heevd") \
    X(stedc, "stedc", "stedc") \
    X(sterf, "sterf", "stedc") \
    X(geev, "geev", "geev")    \
    X(gels, "gels", "gels")    \
    X(gelsy, "gelsy", "gelsy") \
    X(gelsd, "gelsd", "gelsd") \
    X(gelss, "gelss", "gelss") \
    X(sytrf, "sytrf", "sytrf") \
    X(hetrf, "sytrf", "hetrf") \
    X(sytrs, "sytrs", "sytrs") \
    X(hetrs, "sytrs", "hetrs") \
    X(laswp, "laswp", "laswp")

enum Routine {
#define WISP_X(name, real, complex) name,
    WISP_ROUTINES(WISP_X)
#undef WISP_X
        routines
};
void* symbols[4][routines];
void (*set_library_threads)(int) = nullptr;
std::atomic<bool> is_open{false};

template <class T> constexpr int type_index = std::is_same_v<T, float> ? 0 : std::is_same_v<T, double> ? 1 : std::is_same_v<T, c64> ? 2 : 3;
template <class T> struct RealOf {
    using type = T;
};
template <class T> struct RealOf<std::complex<T>> {
    using type = T;
};
template <class T> using Real = typename RealOf<T>::type;
template <class T> constexpr bool complex_type = !std::is_same_v<T, Real<T>>;

// Fortran takes pointers, and the lengths of strings (all 1 here) after everything else; surplus ones do no harm.
template <class T, class... A> void call(Routine routine, A*... arguments) {
    using F = void (*)(A*..., size_t, size_t, size_t, size_t);
    reinterpret_cast<F>(symbols[type_index<T>][routine])(arguments..., 1, 1, 1, 1);
}

// A workspace query answers in a float, which may round a large size down.
template <class T> int query_size(T answer) {
    const double size = double(std::real(answer));
    return std::max(1, int(size * (1 + 1e-6)) + 1);
}

// Over the matrices of a batch: body(begin, end) may run in several threads; each call costs about `flops` a matrix.
template <class Body> void over(int64_t batch, double flops, Body&& body) {
    const int64_t grain = std::max<int64_t>(1, int64_t(5e4 / std::max(1.0, flops)));
    parallel_for(batch, grain, body);
}

// The same for routines that only the library can cut into pieces: it gets the threads for one large matrix. The
// number is the library's global; threads that change it at the same time get each other's, and right results.
template <class Body> void over_or_within(int64_t batch, double flops, Body&& body) {
    const int threads = batch == 1 && flops > 1e8 ? num_threads() : 1;
    if (threads > 1) set_library_threads(threads);
    over(batch, flops, body);
    if (threads > 1) set_library_threads(1);
}

int leading(int64_t rows) { return int(std::max<int64_t>(1, rows)); }

// One matrix by halves of its columns. What the left half does to the right one is independent for every column, so
// blocks of columns are spread over the pool: they do not depend on its size, and so neither does the result.
template <class T> void lu_halves(int64_t m_, int64_t n_, T* a, int64_t stride, int32_t* pivots, int32_t* info) {
    const int m = int(m_), n = int(n_), ld = leading(stride);
    constexpr int64_t width = 64;
    const int64_t k = std::min(m_, n_), left_ = k / 2 / width * width;
    if (left_ == 0) return call<T>(getrf, &m, &n, a, &ld, pivots, info);
    const int left = int(left_), low = int(k), one = 1, below = left + 1;
    T* const right = a + left_ * stride;
    auto by_columns = [&](int64_t columns, auto&& work) {
        parallel_for((columns + width - 1) / width, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) work(i * width, int(std::min(width, columns - i * width)));
        });
    };
    lu_halves(m_, left_, a, stride, pivots, info);
    by_columns(n_ - left_, [&](int64_t first, int count) {
        T* const block = right + first * stride;
        const char side = 'L', part = 'L', trans = 'N', diagonal = 'U';
        const T unit(1);
        call<T>(laswp, &count, block, &ld, &one, &left, pivots, &one);
        call<T>(trsm, &side, &part, &trans, &diagonal, &left, &count, &unit, a, &ld, block, &ld);
        // Row-major, the matrices are their transposes: C^T -= B^T A^T.
        GemmArgs product{};
        product.m = count, product.n = m_ - left_, product.k = left_;
        product.a = block, product.a_row = stride, product.a_col = 1;
        product.b = a + left_, product.b_row = stride, product.b_col = 1;
        product.c = block + left_, product.c_row = stride;
        product.d = product.c, product.d_row = stride, product.d_col = 1;
        product.alpha = -1, product.beta = 1;
        if (product.n > 0) gemm.matmul(dtype_of<T>, product);
    });
    int32_t later = 0;
    lu_halves(m_ - left_, n_ - left_, right + left_, stride, pivots + left_, &later);
    for (int64_t i = left_; i < k; i++) pivots[i] += left;
    by_columns(left_, [&](int64_t first, int count) { call<T>(laswp, &count, a + first * stride, &ld, &below, &low, pivots, &one); });
    if (*info == 0 && later > 0) *info = later + left;
}

template <class T> void lu(int64_t batch, int64_t m_, int64_t n_, void* a, int32_t* pivots, int32_t* info) {
    if constexpr (!complex_type<T>) {
        systems.lu[type_index<T>](batch, m_, n_, a, pivots, info);
    } else {
        const int64_t k = std::min(m_, n_);
        over(batch, double(m_) * n_ * k, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) lu_halves(m_, n_, static_cast<T*>(a) + i * m_ * n_, m_, pivots + i * k, info + i);
        });
    }
}

// Columns are independent, so they are spread over the pool too, in blocks that do not depend on its size.
template <class T> void lu_solve(int64_t batch, char trans, int64_t n_, int64_t columns, const void* lu, const int32_t* pivots, void* b) {
    if constexpr (!complex_type<T>) {
        systems.lu_solve[type_index<T>](batch, trans, n_, columns, lu, pivots, b);
    } else {
        constexpr int64_t width = 128;
        const int64_t blocks = (columns + width - 1) / width;
        const int n = int(n_), ld = leading(n);
        over(batch * blocks, 2.0 * n * n * std::min(columns, width), [&](int64_t begin, int64_t end) {
            for (int64_t block = begin; block < end; block++) {
                const int64_t i = block / blocks, first = block % blocks * width;
                const int nrhs = int(std::min(width, columns - first));
                int info = 0;
                call<T>(getrs, &trans, &n, &nrhs, static_cast<const T*>(lu) + i * n_ * n_, &ld, pivots + i * n_,
                        static_cast<T*>(b) + (i * columns + first) * n_, &ld, &info);
            }
        });
    }
}

template <class T> void lu_inverse(int64_t batch, int64_t n_, void* lu, const int32_t* pivots, int32_t* info) {
    if constexpr (!complex_type<T>) {
        systems.lu_inverse[type_index<T>](batch, n_, lu, pivots);
    } else {
        const int n = int(n_), ld = leading(n);
        over_or_within(batch, 2.0 * n * n * n, [&](int64_t begin, int64_t end) {
            T answer{};
            int size = -1, ignored = 0;
            call<T>(getri, &n, static_cast<T*>(lu), &ld, pivots, &answer, &size, &ignored);
            size = query_size(answer);
            std::vector<T> work(size);
            for (int64_t i = begin; i < end; i++)
                call<T>(getri, &n, static_cast<T*>(lu) + i * n_ * n_, &ld, pivots + i * n_, work.data(), &size, info + i);
        });
    }
}

template <class T> void cholesky(int64_t batch, char part, int64_t n_, void* a, int32_t* info) {
    const int n = int(n_), ld = leading(n);
    over_or_within(batch, double(n) * n * n / 3, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) call<T>(potrf, &part, &n, static_cast<T*>(a) + i * n_ * n_, &ld, info + i);
    });
}

template <class T>
void triangular_solve(int64_t batch, char side, char part, char trans, char diagonal, int64_t m_, int64_t n_, const void* a, void* b) {
    if constexpr (!complex_type<T>)
        if (side == 'L') return systems.triangular_solve[type_index<T>](batch, part, trans, diagonal, m_, n_, a, b);
    const int m = int(m_), n = int(n_);
    const int64_t order = side == 'L' ? m_ : n_;
    const int ld_a = leading(order), ld_b = leading(m_);
    const T one(1);
    over(batch, double(m) * n * order, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++)
            call<T>(trsm, &side, &part, &trans, &diagonal, &m, &n, &one, static_cast<const T*>(a) + i * order * order, &ld_a,
                    static_cast<T*>(b) + i * m_ * n_, &ld_b);
    });
}

// Whether our own factorisation of a real matrix is the quicker one.
template <class T> bool is_ours(int64_t smaller) { return !complex_type<T> && smaller >= 16; }

template <class T> void qr(int64_t batch, int64_t m_, int64_t n_, void* a, void* tau) {
    if constexpr (!complex_type<T>)
        if (is_ours<T>(std::min(m_, n_))) return systems.qr[type_index<T>](batch, m_, n_, a, tau);
    const int m = int(m_), n = int(n_), ld = leading(m);
    const int64_t k = std::min(m_, n_);
    over_or_within(batch, 2.0 * m * n * k, [&](int64_t begin, int64_t end) {
        T answer{};
        int size = -1, info = 0;
        call<T>(geqrf, &m, &n, static_cast<T*>(a), &ld, static_cast<T*>(tau), &answer, &size, &info);
        size = query_size(answer);
        std::vector<T> work(size);
        for (int64_t i = begin; i < end; i++)
            call<T>(geqrf, &m, &n, static_cast<T*>(a) + i * m_ * n_, &ld, static_cast<T*>(tau) + i * k, work.data(), &size, &info);
    });
}

template <class T> void householder(int64_t batch, int64_t m_, int64_t n_, int64_t k_, void* a, const void* tau) {
    if constexpr (!complex_type<T>)
        if (is_ours<T>(k_)) return systems.householder[type_index<T>](batch, m_, n_, k_, a, tau);
    const int m = int(m_), n = int(n_), k = int(k_), ld = leading(m);
    over_or_within(batch, 2.0 * m * n * k, [&](int64_t begin, int64_t end) {
        T answer{};
        int size = -1, info = 0;
        call<T>(orgqr, &m, &n, &k, static_cast<T*>(a), &ld, static_cast<const T*>(tau), &answer, &size, &info);
        size = query_size(answer);
        std::vector<T> work(size);
        for (int64_t i = begin; i < end; i++)
            call<T>(orgqr, &m, &n, &k, static_cast<T*>(a) + i * m_ * n_, &ld, static_cast<const T*>(tau) + i * k_, work.data(), &size,
                    &info);
    });
}

template <class T> void householder_apply(int64_t batch, char side, char trans, int64_t m_, int64_t n_, int64_t k_, int64_t rows,
                                          int64_t columns, const void* a, const void* tau, void* c) {
    if (trans == 'C' && !complex_type<T>) trans = 'T';
    const int m = int(m_), n = int(n_), k = int(k_), ld_a = leading(rows), ld_c = leading(m);
    over_or_within(batch, 2.0 * m * n * k, [&](int64_t begin, int64_t end) {
        T answer{};
        int size = -1, info = 0;
        call<T>(ormqr, &side, &trans, &m, &n, &k, static_cast<const T*>(a), &ld_a, static_cast<const T*>(tau), static_cast<T*>(c), &ld_c,
                &answer, &size, &info);
        size = query_size(answer);
        std::vector<T> work(size);
        for (int64_t i = begin; i < end; i++)
            call<T>(ormqr, &side, &trans, &m, &n, &k, static_cast<const T*>(a) + i * rows * columns, &ld_a,
                    static_cast<const T*>(tau) + i * k_, static_cast<T*>(c) + i * m_ * n_, &ld_c, work.data(), &size, &info);
    });
}

// Of a wide real matrix with vectors, as gesdd does it but for one step: the triangle of its rows becomes a lower bidiagonal matrix, not an
// upper one, by which singular vectors have the signs that PyTorch's have.
template <class T> struct WideSvd {
    int m, n, rows_vh;  // of vh: m or n
    int padded = m + 1, ld_vh = leading(rows_vh);
    std::vector<T> triangle, right, row_factors, d_factors, e_factors, off_diagonal, work;
    std::vector<int> iwork;

    WideSvd(int m, int n, int rows_vh)
        : m(m),
          n(n),
          rows_vh(rows_vh),
          triangle(size_t(m) * padded),
          right(size_t(m) * padded),
          row_factors(m),
          d_factors(m),
          e_factors(m),
          off_diagonal(m),
          work(3 * size_t(m) * m + 128 * size_t(std::max(padded, rows_vh)) + 65 * 64),
          iwork(8 * size_t(m)) {}

    // gesdd scales what is beyond this.
    bool is_within_range(const T* a) const {
        T largest = 0;
        for (int64_t i = 0; i < int64_t(m) * n; i++) largest = std::max(largest, std::abs(a[i]));
        constexpr T far = std::is_same_v<T, float> ? T(1e12) : T(1e100);
        return largest < far && largest > 1 / far;
    }

    void operator()(T* a, T* s, T* u, T* vh, int* info) {
        const int size = int(std::min<size_t>(work.size(), INT32_MAX));
        const char lower = 'L', identity = 'I', q = 'Q', p = 'P', left = 'L', behind = 'R', plain = 'N', transposed = 'T';
        call<T>(gelqf, &m, &n, a, &m, row_factors.data(), work.data(), &size, info);
        std::fill(triangle.begin(), triangle.end(), T(0));
        for (int64_t c = 0; c < m; c++) std::copy(a + c * m + c, a + (c + 1) * m, triangle.data() + c * m + c);
        call<T>(gebrd, &m, &padded, triangle.data(), &m, s, off_diagonal.data(), d_factors.data(), e_factors.data(), work.data(), &size,
                info);
        std::fill(right.begin(), right.end(), T(0));
        T* const unused = nullptr;
        int* const none = nullptr;
        call<T>(bdsdc, &lower, &identity, &m, s, off_diagonal.data(), u, &m, right.data(), &m, unused, none, work.data(), iwork.data(),
                info);
        if (*info) return;
        call<T>(ormbr, &q, &left, &plain, &m, &m, &padded, triangle.data(), &m, d_factors.data(), u, &m, work.data(), &size, info);
        call<T>(ormbr, &p, &behind, &transposed, &m, &padded, &m, triangle.data(), &m, e_factors.data(), right.data(), &m, work.data(),
                &size, info);
        std::fill(vh, vh + int64_t(rows_vh) * n, T(0));
        for (int64_t c = 0; c < m; c++) std::copy(right.data() + c * m, right.data() + (c + 1) * m, vh + c * rows_vh);
        for (int64_t c = m; c < rows_vh; c++) vh[c * rows_vh + c] = 1;
        call<T>(ormlq, &behind, &plain, &rows_vh, &n, &m, a, &m, row_factors.data(), vh, &ld_vh, work.data(), &size, info);
    }
};

template <class T> void svd(int64_t batch, char job, int64_t m_, int64_t n_, void* a, void* s, void* u, void* vh, int32_t* info) {
    const int m = int(m_), n = int(n_), k = std::min(m, n), ld_a = leading(m);
    const int rows_vh = job == 'S' ? k : n, ld_u = leading(m), ld_vh = leading(rows_vh);
    const int64_t columns_u = job == 'S' ? k : m,
                  real_work =
                      std::max<int64_t>(1, job == 'N' ? 7 * int64_t(k) : int64_t(k) * std::max(5 * k + 7, 2 * std::max(m, n) + 2 * k + 1));
    over_or_within(batch, 8.0 * m * n * k, [&](int64_t begin, int64_t end) {
        std::vector<Real<T>> rwork(complex_type<T> ? real_work : 1);
        std::vector<int> iwork(8 * std::max(1, k));
        auto run = [&](int64_t i, T* work, int size) {
            T* const matrix = static_cast<T*>(a) + i * m_ * n_;
            T* const left = u ? static_cast<T*>(u) + i * m_ * columns_u : nullptr;
            T* const right = vh ? static_cast<T*>(vh) + i * rows_vh * n_ : nullptr;
            Real<T>* const values = static_cast<Real<T>*>(s) + i * k;
            if constexpr (complex_type<T>)
                call<T>(gesdd, &job, &m, &n, matrix, &ld_a, values, left, &ld_u, right, &ld_vh, work, &size, rwork.data(), iwork.data(),
                        info + i);
            else call<T>(gesdd, &job, &m, &n, matrix, &ld_a, values, left, &ld_u, right, &ld_vh, work, &size, iwork.data(), info + i);
        };
        auto by_library = [&](int64_t first, int64_t last) {
            T answer{};
            run(first, &answer, -1);
            const int size = query_size(answer);
            std::vector<T> work(size);
            for (int64_t i = first; i < last; i++) run(i, work.data(), size);
        };
        if constexpr (!complex_type<T>)
            if (job != 'N' && m > 1 && n >= 11 * m_ / 6) {
                WideSvd<T> wide(m, n, rows_vh);
                for (int64_t i = begin; i < end; i++) {
                    T* const matrix = static_cast<T*>(a) + i * m_ * n_;
                    if (!wide.is_within_range(matrix)) by_library(i, i + 1);
                    else
                        wide(matrix, static_cast<T*>(s) + i * k, static_cast<T*>(u) + i * m_ * columns_u,
                             static_cast<T*>(vh) + i * rows_vh * n_, info + i);
                }
                return;
            }
        by_library(begin, end);
    });
}

// Of a symmetric matrix with three diagonals.
template <class T> void solve_diagonals(void* info, int64_t n_, void* d, void* e, void* z) {
    const int n = int(n_);
    if (!z) return call<T>(sterf, &n, static_cast<T*>(d), static_cast<T*>(e), static_cast<int*>(info));
    const char job = 'I';
    T size{};
    int int_size = 0, query = -1;
    call<T>(stedc, &job, &n, static_cast<T*>(d), static_cast<T*>(e), static_cast<T*>(z), &n, &size, &query, &int_size, &query,
            static_cast<int*>(info));
    std::vector<T> work(query_size(size));
    std::vector<int> iwork(int_size);
    const int work_size = int(work.size());
    call<T>(stedc, &job, &n, static_cast<T*>(d), static_cast<T*>(e), static_cast<T*>(z), &n, work.data(), &work_size, iwork.data(),
            &int_size, static_cast<int*>(info));
}

// Scales a triangle whose numbers have squares beyond the range of the type; the factor, 1 if there is no need.
template <class T> T bring_into_range(char part, int64_t n, T* a) {
    T largest = 0;
    auto each = [&](auto&& f) {
        for (int64_t c = 0; c < n; c++)
            for (int64_t r = part == 'L' ? c : 0; r < (part == 'L' ? n : c + 1); r++) f(a[c * n + r]);
    };
    each([&](T x) { largest = std::max(largest, std::abs(x)); });
    constexpr T small = sizeof(T) == 4 ? T(1e-12) : T(1e-130), large = 1 / small;
    if (largest == 0 || !std::isfinite(largest) || (largest >= small && largest <= large)) return 1;
    each([factor = 1 / largest](T& x) { x *= factor; });
    return 1 / largest;
}

template <class T> void eigh(int64_t batch, bool vectors, char part, int64_t n_, void* a, void* values, int32_t* info) {
    const int n = int(n_), ld = leading(n);
    if constexpr (!complex_type<T>)
        if (is_ours<T>(n_))  // the library's own threads would change the last bits of what it does for the three diagonals
            return over(batch, 6.0 * n * n * n, [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; i++) {
                    T *const matrix = static_cast<T*>(a) + i * n_ * n_, *const w = static_cast<T*>(values) + i * n_;
                    const T factor = bring_into_range(part, n_, matrix);
                    systems.eigh[type_index<T>](n_, part == 'L', vectors, matrix, w, info + i, &solve_diagonals<T>);
                    for (int64_t k = 0; factor != 1 && k < n_; k++) w[k] /= factor;
                }
            });
    const char job = vectors ? 'V' : 'N';
    over_or_within(batch, 6.0 * n * n * n, [&](int64_t begin, int64_t end) {
        std::vector<T> work(1);
        std::vector<Real<T>> rwork(1);
        std::vector<int> iwork(1);
        auto run = [&](int64_t i, int size, int real_size, int int_size) {
            T* const matrix = static_cast<T*>(a) + i * n_ * n_;
            Real<T>* const w = static_cast<Real<T>*>(values) + i * n_;
            if constexpr (complex_type<T>)
                call<T>(syevd, &job, &part, &n, matrix, &ld, w, work.data(), &size, rwork.data(), &real_size, iwork.data(), &int_size,
                        info + i);
            else call<T>(syevd, &job, &part, &n, matrix, &ld, w, work.data(), &size, iwork.data(), &int_size, info + i);
        };
        run(begin, -1, -1, -1);
        const int size = query_size(work[0]), real_size = query_size(rwork[0]), int_size = std::max(1, iwork[0]);
        work.resize(size);
        rwork.resize(real_size);
        iwork.resize(int_size);
        for (int64_t i = begin; i < end; i++) run(i, size, real_size, int_size);
    });
}

template <class T> void eig(int64_t batch, int64_t n_, void* a, void* values, void* vectors, int32_t* info) {
    using C = std::complex<Real<T>>;
    if constexpr (std::is_same_v<Real<T>, float>)
        if (n_ <= 32) {  // digits cost little here, and such problems lose many
            using Wide = std::conditional_t<complex_type<T>, c128, double>;
            const T* const from = static_cast<const T*>(a);
            std::vector<Wide> wide(from, from + batch * n_ * n_);
            std::vector<c128> w(batch * n_), v(vectors ? batch * n_ * n_ : 0);
            eig<Wide>(batch, n_, wide.data(), w.data(), vectors ? v.data() : nullptr, info);
            std::copy(w.begin(), w.end(), static_cast<C*>(values));
            if (vectors) std::copy(v.begin(), v.end(), static_cast<C*>(vectors));
            return;
        }
    const int n = int(n_), ld = leading(n), one = 1;
    const char left = 'N', right = vectors ? 'V' : 'N';
    over_or_within(batch, 25.0 * n * n * n, [&](int64_t begin, int64_t end) {
        std::vector<T> work(1), real_vectors(!complex_type<T> && vectors ? n_ * n_ : 1);
        std::vector<Real<T>> rwork(2 * std::max<int64_t>(1, n_));
        T nothing{};
        auto run = [&](int64_t i, int size) {
            T* const matrix = static_cast<T*>(a) + i * n_ * n_;
            C* const w = static_cast<C*>(values) + i * n_;
            C* const v = vectors ? static_cast<C*>(vectors) + i * n_ * n_ : nullptr;
            if constexpr (complex_type<T>) {
                call<T>(geev, &left, &right, &n, matrix, &ld, w, &nothing, &one, v ? v : &nothing, &ld, work.data(), &size, rwork.data(),
                        info + i);
            } else {
                T *const re = rwork.data(), *const im = re + n_;
                call<T>(geev, &left, &right, &n, matrix, &ld, re, im, &nothing, &one, real_vectors.data(), &ld, work.data(), &size,
                        info + i);
                if (size < 0) return;
                for (int64_t j = 0; j < n_; j++) w[j] = C(re[j], im[j]);
                // A pair of conjugate values keeps the real and imaginary parts of its vector in two columns.
                for (int64_t j = 0; v && j < n_; j++) {
                    const T* const x = real_vectors.data() + j * n_;
                    const bool pair = im[j] != 0 && j + 1 < n_;
                    for (int64_t r = 0; r < n_; r++) {
                        v[j * n_ + r] = C(x[r], pair ? x[n_ + r] : T(0));
                        if (pair) v[(j + 1) * n_ + r] = C(x[r], -x[n_ + r]);
                    }
                    j += pair;
                }
            }
        };
        run(begin, -1);
        const int size = query_size(work[0]);
        work.resize(size);
        for (int64_t i = begin; i < end; i++) run(i, size);
    });
}

template <class T> void least_squares(int64_t batch, char driver, int64_t m_, int64_t n_, int64_t columns, void* a, void* b, double rcond_,
                                      int64_t* ranks, void* s, int32_t* info) {
    const int n = int(n_), nrhs = int(columns), ld_a = leading(m_), ld_b = leading(std::max(m_, n_));
    // Of a tall matrix that fits the cache, our own reflections leave a triangle to the library; what they leave of B below it has the
    // residuals' length, as the library's own would.
    const bool reduced = !complex_type<T> && m_ >= 2 * n_ && n_ >= 8 && m_ * n_ <= 1 << 16;
    const int m = reduced ? n : int(m_);
    const int64_t k = std::min(m_, n_);
    const Real<T> rcond = Real<T>(rcond_);
    over_or_within(batch, 2.0 * double(m_) * n * double(k + nrhs), [&](int64_t begin, int64_t end) {
        std::vector<T> work(1);
        std::vector<Real<T>> rwork(1), spare(std::max<int64_t>(1, k));
        std::vector<int> iwork(1), columns_order(std::max(1, n));
        auto run = [&](int64_t i, int size) {
            T *const matrix = static_cast<T*>(a) + i * m_ * n_, *const right = static_cast<T*>(b) + i * ld_b * columns;
            Real<T>* const values = s ? static_cast<Real<T>*>(s) + i * k : spare.data();
            int rank = 0;
            const char trans = 'N';
            if constexpr (!complex_type<T>)
                if (reduced && size >= 0) systems.reduce_tall[type_index<T>](m_, n_, matrix, columns, right);
            if (driver == 'g') call<T>(gels, &trans, &m, &n, &nrhs, matrix, &ld_a, right, &ld_b, work.data(), &size, info + i);
            else if (driver == 'y') {
                std::fill(columns_order.begin(), columns_order.end(), 0);
                if constexpr (complex_type<T>)
                    call<T>(gelsy, &m, &n, &nrhs, matrix, &ld_a, right, &ld_b, columns_order.data(), &rcond, &rank, work.data(), &size,
                            rwork.data(), info + i);
                else
                    call<T>(gelsy, &m, &n, &nrhs, matrix, &ld_a, right, &ld_b, columns_order.data(), &rcond, &rank, work.data(), &size,
                            info + i);
            } else if (driver == 'd') {
                if constexpr (complex_type<T>)
                    call<T>(gelsd, &m, &n, &nrhs, matrix, &ld_a, right, &ld_b, values, &rcond, &rank, work.data(), &size, rwork.data(),
                            iwork.data(), info + i);
                else
                    call<T>(gelsd, &m, &n, &nrhs, matrix, &ld_a, right, &ld_b, values, &rcond, &rank, work.data(), &size, iwork.data(),
                            info + i);
            } else {
                if constexpr (complex_type<T>)
                    call<T>(gelss, &m, &n, &nrhs, matrix, &ld_a, right, &ld_b, values, &rcond, &rank, work.data(), &size, rwork.data(),
                            info + i);
                else call<T>(gelss, &m, &n, &nrhs, matrix, &ld_a, right, &ld_b, values, &rcond, &rank, work.data(), &size, info + i);
            }
            if (ranks && size >= 0) ranks[i] = rank;
        };
        run(begin, -1);
        const int size = query_size(work[0]);
        // gelsd answers the query with the sizes of its other workspaces too; the others need a few per row or column.
        iwork.resize(std::max<int64_t>(iwork[0], 1));
        rwork.resize(std::max<int64_t>({int64_t(driver == 'd' ? query_size(rwork[0]) : 1), 5 * k, 2 * n_, 1}));
        work.resize(size);
        for (int64_t i = begin; i < end; i++) run(i, size);
    });
}

template <class T> void ldl(int64_t batch, bool hermitian, int64_t n_, void* a, int32_t* pivots, int32_t* info) {
    const int n = int(n_), ld = leading(n);
    const char part = 'L';
    over(batch, double(n) * n * n / 3, [&](int64_t begin, int64_t end) {
        T answer{};
        int size = -1;
        call<T>(hermitian ? hetrf : sytrf, &part, &n, static_cast<T*>(a), &ld, pivots, &answer, &size, info + begin);
        size = query_size(answer);
        std::vector<T> work(size);
        for (int64_t i = begin; i < end; i++)
            call<T>(hermitian ? hetrf : sytrf, &part, &n, static_cast<T*>(a) + i * n_ * n_, &ld, pivots + i * n_, work.data(), &size,
                    info + i);
    });
}

template <class T>
void ldl_solve(int64_t batch, bool hermitian, int64_t n_, int64_t columns, const void* a, const int32_t* pivots, void* b) {
    const int n = int(n_), nrhs = int(columns), ld = leading(n);
    const char part = 'L';
    over(batch, 2.0 * n * n * nrhs, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            int info = 0;
            call<T>(hermitian ? hetrs : sytrs, &part, &n, &nrhs, static_cast<const T*>(a) + i * n_ * n_, &ld, pivots + i * n_,
                    static_cast<T*>(b) + i * n_ * columns, &ld, &info);
        }
    });
}

template <class T> constexpr LapackKernels kernels = {
    lu<T>,   lu_solve<T>, lu_inverse<T>,    cholesky<T>, triangular_solve<T>, qr<T>, householder<T>, householder_apply<T>, svd<T>,
    eigh<T>, eig<T>,      least_squares<T>, ldl<T>,      ldl_solve<T>};

}  // namespace

void (*find_lapack)() = nullptr;

std::string open_lapack(const char* path) {
    if (is_open) return {};
    // OpenBLAS's threads spin for 2^26 cycles after their work unless told otherwise, and our own pool needs the cores.
    const char* const timeout = "OPENBLAS_THREAD_TIMEOUT";
    const bool told = std::getenv(timeout) != nullptr;
    if (!told) setenv(timeout, "18", 0);
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!told) unsetenv(timeout);
    if (!library) return dlerror();
    static const char* const names[routines][2] = {
#define WISP_X(name, real, complex) {real, complex},
        WISP_ROUTINES(WISP_X)
#undef WISP_X
    };
    // The wheel's symbols have a prefix; a system's library has none.
    auto find = [&](const std::string& name) {
        void* const found = dlsym(library, ("scipy_" + name).c_str());
        return found ? found : dlsym(library, name.c_str());
    };
    const char letters[] = "sdcz";
    for (int type = 0; type < 4; type++)
        for (int routine = 0; routine < routines; routine++) {
            const std::string name = std::string(1, letters[type]) + names[routine][type >= 2] + "_";
            if (!(symbols[type][routine] = find(name))) return "it has no " + name;
        }
    set_library_threads = reinterpret_cast<void (*)(int)>(find("openblas_set_num_threads"));
    if (!set_library_threads) set_library_threads = [](int) {};
    set_library_threads(1);
    is_open = true;
    return {};
}

const LapackKernels& lapack(DType dtype) {
    if (!is_open) find_lapack();
    switch (dtype) {
    case DType::f32: return kernels<float>;
    case DType::f64: return kernels<double>;
    case DType::c64: return kernels<c64>;
    default: return kernels<c128>;
    }
}

}  // namespace wisp::cpu
