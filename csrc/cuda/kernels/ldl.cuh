// Symmetric and Hermitian indefinite matrices: P A P' = L D L' by Bunch and Kaufman's pivoting, in LAPACK's format for the
// lower triangle, by columns. A block of threads works on one matrix, or on one column of right-hand sides: batches run beside
// each other, and a column's steps follow each other anyway.
#include "cuda/kernels/base.cuh"

namespace wisp {

constexpr int ldl_threads = 256;

template <class T> struct ldl_real {
    using type = T;
};
template <class R> struct ldl_real<std::complex<R>> {
    using type = R;
};

template <class T> WISP_INLINE auto ldl_size(T x) {  // the sum of the parts' sizes, as pivots are compared
    if constexpr (is_complex<T>) return (x.re < 0 ? -x.re : x.re) + (x.im < 0 ? -x.im : x.im);
    else return x < 0 ? -x : x;
}
template <bool Hermitian, class T> WISP_INLINE T turned(T x) {
    if constexpr (Hermitian && is_complex<T>) return T(x.re, -x.im);
    else return x;
}
// A diagonal element of a Hermitian matrix has no imaginary part, whatever is stored there.
template <bool Hermitian, class T> WISP_INLINE T diagonal(T x) {
    if constexpr (Hermitian && is_complex<T>) return T(x.re);
    else return x;
}
template <class T> WISP_INLINE void exchange(T& a, T& b) {
    const T kept = a;
    a = b;
    b = kept;
}

// The largest value of the block's threads and its place, the first of equal ones, for all of them.
template <class R> WISP_INLINE void block_largest(R& value, int64_t& place, R* values, int64_t* places) {
    const int t = threadIdx.x;
    __syncthreads();
    values[t] = value;
    places[t] = place;
    for (int half = ldl_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half && (values[t + half] > values[t] || (values[t + half] == values[t] && places[t + half] < places[t]))) {
            values[t] = values[t + half];
            places[t] = places[t + half];
        }
    }
    __syncthreads();
    value = values[0];
    place = places[0];
}

// A matrix on its way to its factors; the block's threads do each step together.
template <class T, bool Hermitian> struct LdlMatrix {
    using R = typename ldl_real<T>::type;
    T* a;
    T* w;  // 2 n numbers
    int64_t n;
    R* values;  // of shared memory, one for each thread, as are places
    int64_t* places;
    int t = threadIdx.x;

    WISP_INLINE T& at(int64_t i, int64_t j) const { return a[i + j * n]; }

    // What eliminates columns from k on: one diagonal element or a block of two (`step`), whose last comes from row `other`.
    // False if there is nothing to eliminate with.
    WISP_INLINE bool choose(int64_t k, int64_t& other, int& step) const {
        const R alpha = R(0.6403882032022076);  // (1 + sqrt(17)) / 8 bounds how much elements grow
        const R here = ldl_size(diagonal<Hermitian>(at(k, k)));
        R below = R(-1);
        int64_t row = n;
        for (int64_t i = k + 1 + t; i < n; i += ldl_threads)
            if (const R size = ldl_size(at(i, k)); size > below) {
                below = size;
                row = i;
            }
        block_largest(below, row, values, places);
        if (row == n) below = R(0);  // the last column, or nothing but NaN
        other = k;
        step = 1;
        if (here != here || (here == R(0) && below == R(0))) return false;
        if (here >= alpha * below) return true;
        R along = R(-1);
        int64_t unused = n;
        for (int64_t j = k + t; j < n; j += ldl_threads)
            if (j != row)
                if (const R size = ldl_size(j < row ? at(row, j) : at(j, row)); size > along) along = size;
        block_largest(along, unused, values, places);
        if (here >= alpha * below * (below / along)) return true;
        other = row;
        step = ldl_size(diagonal<Hermitian>(at(row, row))) >= alpha * along ? 1 : 2;
        return true;
    }

    // Exchanges rows and columns `first` and `other` of the triangle.
    WISP_INLINE void swap(int64_t k, int64_t first, int64_t other) const {
        for (int64_t i = other + 1 + t; i < n; i += ldl_threads) exchange(at(i, first), at(i, other));
        for (int64_t i = first + 1 + t; i < other; i += ldl_threads) {
            const T kept = turned<Hermitian>(at(i, first));
            at(i, first) = turned<Hermitian>(at(other, i));
            at(other, i) = kept;
        }
        if (t == 0) {
            at(other, first) = turned<Hermitian>(at(other, first));
            exchange(at(first, first), at(other, other));
            if (first != k) exchange(at(k + 1, k), at(other, k));
        }
        __syncthreads();
    }

    // w holds the new columns of L; the rest of the matrix loses their products with the old ones.
    WISP_INLINE void eliminate(int64_t k, int step) const {
        const int64_t begin = k + step, left = n - begin;
        if (step == 1) {
            const T d = at(k, k);
            for (int64_t i = begin + t; i < n; i += ldl_threads) w[i] = at(i, k) / d;
        } else {
            const T d21 = at(k + 1, k), p = at(k, k), q = at(k + 1, k + 1);
            const T scaled_q = q / d21, scaled_p = p / turned<Hermitian>(d21);  // the 2 x 2 block's inverse, without overflow
            const T over = T(R(1)) / (scaled_p * scaled_q - T(R(1)));
            for (int64_t i = begin + t; i < n; i += ldl_threads) {
                const T x = at(i, k), y = at(i, k + 1);
                w[i] = over * ((scaled_q * x - y) / turned<Hermitian>(d21));
                w[n + i] = over * ((scaled_p * y - x) / d21);
            }
        }
        __syncthreads();
        for (int64_t e = t; e < left * left; e += ldl_threads) {
            const int64_t j = begin + e / left, i = begin + e % left;
            if (i < j) continue;
            T v = at(i, j) - at(i, k) * turned<Hermitian>(w[j]);
            if (step == 2) v = v - at(i, k + 1) * turned<Hermitian>(w[n + j]);
            at(i, j) = i == j ? diagonal<Hermitian>(v) : v;
        }
        __syncthreads();
        for (int64_t i = begin + t; i < n; i += ldl_threads) {
            at(i, k) = w[i];
            if (step == 2) at(i, k + 1) = w[n + i];
        }
    }
};

// `work`: 2 n numbers for each matrix.
template <class T, bool Hermitian> __global__ void __launch_bounds__(ldl_threads)
    ldl_factor(T* all, int64_t n, int32_t* all_pivots, int32_t* info, T* all_work) {
    using R = typename ldl_real<T>::type;
    __shared__ R values[ldl_threads];
    __shared__ int64_t places[ldl_threads];
    const LdlMatrix<T, Hermitian> m{all + int64_t(blockIdx.x) * n * n, all_work + int64_t(blockIdx.x) * 2 * n, n, values, places};
    int32_t* pivots = all_pivots + int64_t(blockIdx.x) * n;
    int32_t failed = 0;
    for (int64_t k = 0; k < n;) {
        __syncthreads();
        int64_t other;
        int step;
        const bool found = m.choose(k, other, step);
        if (!found && !failed) failed = int32_t(k + 1);
        const int64_t first = k + step - 1;
        __syncthreads();
        if (other != first) m.swap(k, first, other);
        if (threadIdx.x == 0)
            for (int64_t i = k; i < k + step; i++) {
                m.at(i, i) = diagonal<Hermitian>(m.at(i, i));
                pivots[i] = int32_t(step == 1 ? other + 1 : -(other + 1));
            }
        __syncthreads();
        if (found) m.eliminate(k, step);
        k += step;
    }
    if (threadIdx.x == 0) info[blockIdx.x] = failed;
}

// The sum over the block's threads, in a fixed order, for all of them.
template <class T> WISP_INLINE T block_sum(T value, T* values) {
    const int t = threadIdx.x;
    __syncthreads();
    values[t] = value;
    for (int half = ldl_threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) values[t] += values[t + half];
    }
    __syncthreads();
    return values[0];
}

// Solves in place for one column. Pivots that no factorisation made are reported, and the column is left alone.
template <class T, bool Hermitian> __global__ void __launch_bounds__(ldl_threads)
    ldl_solve(const T* factors, const int32_t* all_pivots, T* right, int64_t n, int64_t columns, unsigned long long message,
              Report* report) {
    using R = typename ldl_real<T>::type;
    __shared__ T values[ldl_threads];
    const int64_t matrix = blockIdx.x / columns;
    const T* a = factors + matrix * n * n;
    const int32_t* pivots = all_pivots + matrix * n;
    T* b = right + int64_t(blockIdx.x) * n;
    const int t = threadIdx.x;
    auto at = [&](int64_t i, int64_t j) { return a[i + j * n]; };
    __shared__ int bad;
    if (t == 0) {
        bad = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t p = pivots[k];
            const bool paired = p < 0 && k + 1 < n && pivots[k + 1] == p;
            if (p == 0 || p > n || p < -n || (p < 0 && !paired)) bad = 1;
            if (paired) k++;
        }
        if (bad) report_error(report, message);
    }
    __syncthreads();
    if (bad) return;
    for (int64_t k = 0; k < n;) {
        const bool single = pivots[k] > 0;
        const int64_t first = single ? k : k + 1, other = (single ? pivots[k] : -pivots[k]) - 1;
        if (t == 0 && other != first) {
            const T kept = b[first];
            b[first] = b[other];
            b[other] = kept;
        }
        __syncthreads();
        const T x = b[k], y = single ? T(R(0)) : b[k + 1];
        for (int64_t i = first + 1 + t; i < n; i += ldl_threads) b[i] = b[i] - (single ? at(i, k) * x : at(i, k) * x + at(i, k + 1) * y);
        __syncthreads();
        if (t == 0) {
            if (single) b[k] = x / diagonal<Hermitian>(at(k, k));
            else {
                const T d21 = at(k + 1, k), d12 = turned<Hermitian>(d21);
                const T p = diagonal<Hermitian>(at(k, k)) / d12, q = diagonal<Hermitian>(at(k + 1, k + 1)) / d21;
                const T over = T(R(1)) / (p * q - T(R(1))), u = x / d12, v = y / d21;
                b[k] = over * (q * u - v);
                b[k + 1] = over * (p * v - u);
            }
        }
        __syncthreads();
        k = first + 1;
    }
    for (int64_t k = n - 1; k >= 0;) {
        const bool single = pivots[k] > 0;
        T x = T(R(0)), y = T(R(0));
        for (int64_t i = k + 1 + t; i < n; i += ldl_threads) {
            x += turned<Hermitian>(at(i, k)) * b[i];
            if (!single) y += turned<Hermitian>(at(i, k - 1)) * b[i];
        }
        x = block_sum(x, values);
        if (!single) y = block_sum(y, values);
        if (t == 0) {
            b[k] = b[k] - x;
            if (!single) b[k - 1] = b[k - 1] - y;
            const int64_t other = (single ? pivots[k] : -pivots[k]) - 1;
            const T kept = b[k];
            b[k] = b[other];
            b[other] = kept;
        }
        __syncthreads();
        k -= single ? 1 : 2;
    }
}

}  // namespace wisp
