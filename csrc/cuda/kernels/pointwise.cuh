// Pointwise operators: one generic loop over rows of the table. Operands are read in their own dtype, computed in T, and
// the result is written in its own; a number, or an operand that the expression does not have, takes no memory.
#include "cuda/kernels/numbers.cuh"

namespace wisp {

// Beside the table: moving, conjugating and choosing.
struct identity_row {
    static constexpr int arity = 1;
    template <class T> static WISP_INLINE T forward(T x, T, T, const Param*) { return x; }
};
struct conjugate_row {
    static constexpr int arity = 1;
    template <class T> static WISP_INLINE T forward(T x, T, T, const Param*) { return rows::conj(x); }
};
struct where_row {
    static constexpr int arity = 3;
    template <class T> static WISP_INLINE T forward(T c, T a, T b, const Param*) { return c != T(0) ? a : b; }
};

struct Number {};  // one value for all elements, given with the call
struct Absent {};

#include "kernels/pointwise_arguments.h"

template <class Row, int Which, class T> WISP_INLINE auto evaluate(const T* v, const Param* params) {
    if constexpr (Which == 0) return Row::template forward<T>(v[0], v[1], v[2], params);
    else if constexpr (Which == 1) return Row::template gradient0<T>(v[0], v[1], v[2], v[3], v[4], params);
    else if constexpr (Which == 2) return Row::template gradient1<T>(v[0], v[1], v[2], v[3], v[4], params);
    else return Row::template gradient2<T>(v[0], v[1], v[2], v[3], v[4], params);
}

template <class In, class T, int V> WISP_INLINE void load(T (*values)[5], int k, const char* data, const char* number, bool spread) {
    if constexpr (std::is_same_v<In, Absent>) {
#pragma unroll
        for (int i = 0; i < V; i++) values[i][k] = T();
    } else if constexpr (std::is_same_v<In, Number>) {
        const T x = *reinterpret_cast<const T*>(number);
#pragma unroll
        for (int i = 0; i < V; i++) values[i][k] = x;
    } else if (V > 1 && spread) {
        const T x = convert<T>(*reinterpret_cast<const In*>(data));
#pragma unroll
        for (int i = 0; i < V; i++) values[i][k] = x;
    } else {
        const auto x = *reinterpret_cast<const Vector<In, V>*>(data);
#pragma unroll
        for (int i = 0; i < V; i++) values[i][k] = convert<T>(x.at[i]);
    }
}

template <class Row, int Which, class T, class Out, int V> WISP_INLINE void finish(char* out, T (*values)[5], const Param* params) {
    Vector<Out, V> result;
#pragma unroll
    for (int i = 0; i < V; i++) result.at[i] = convert<Out>(evaluate<Row, Which, T>(values[i], params));
    *reinterpret_cast<Vector<Out, V>*>(out) = result;
}

template <class In> inline constexpr int size_of = sizeof(In);
template <> inline constexpr int size_of<Number> = 0;
template <> inline constexpr int size_of<Absent> = 0;

// All operands contiguous and of one shape. Each thread takes V neighbours at a time, U times.
template <class Row, int Which, class T, int V, int U, class Out, class A, class B = Absent, class C = Absent, class D = Absent,
          class E = Absent>
__global__ void __launch_bounds__(256) pointwise_flat(const PointwiseArguments p) {
    begin_early();
    const int64_t first = int64_t(blockIdx.x) * (256 * U) + threadIdx.x;
    const int64_t units = p.n / V;
#pragma unroll
    for (int u = 0; u < U; u++) {
        const int64_t at = first + u * 256;
        if (at < units) {
            T values[V][5];
            load<A, T, V>(values, 0, p.data[1] + at * V * size_of<A>, p.numbers[1], false);
            load<B, T, V>(values, 1, p.data[2] + at * V * size_of<B>, p.numbers[2], false);
            load<C, T, V>(values, 2, p.data[3] + at * V * size_of<C>, p.numbers[3], false);
            load<D, T, V>(values, 3, p.data[4] + at * V * size_of<D>, p.numbers[4], false);
            load<E, T, V>(values, 4, p.data[5] + at * V * size_of<E>, p.numbers[5], false);
            finish<Row, Which, T, Out, V>(p.data[0] + at * V * sizeof(Out), values, p.params);
        }
    }
    // What does not fill a vector.
    if (V > 1 && blockIdx.x == 0 && threadIdx.x < p.n - units * V) {
        const int64_t at = units * V + threadIdx.x;
        T values[1][5];
        load<A, T, 1>(values, 0, p.data[1] + at * size_of<A>, p.numbers[1], false);
        load<B, T, 1>(values, 1, p.data[2] + at * size_of<B>, p.numbers[2], false);
        load<C, T, 1>(values, 2, p.data[3] + at * size_of<C>, p.numbers[3], false);
        load<D, T, 1>(values, 3, p.data[4] + at * size_of<D>, p.numbers[4], false);
        load<E, T, 1>(values, 4, p.data[5] + at * size_of<E>, p.numbers[5], false);
        finish<Row, Which, T, Out, 1>(p.data[0] + at * sizeof(Out), values, p.params);
    }
}

// The same of many tensors; a block takes 1024 vectors of one.
template <class Row, int Which, class T, int V, class Out, class A, class B = Absent, class C = Absent>
__global__ void __launch_bounds__(256) pointwise_list(const __grid_constant__ PointwiseList p) {
    int i = 0, end = p.count;
    while (end - i > 1) {
        const int middle = (i + end) / 2;
        if (int(blockIdx.x) >= p.first_block[middle]) i = middle;
        else end = middle;
    }
    const int64_t first = int64_t(blockIdx.x - p.first_block[i]) * 1024 + threadIdx.x, units = p.n[i] / V;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const int64_t at = first + u * 256;
        if (at < units) {
            T values[V][5];
            load<A, T, V>(values, 0, p.data[i][1] + at * V * size_of<A>, p.numbers[1], false);
            load<B, T, V>(values, 1, p.data[i][2] + at * V * size_of<B>, p.numbers[2], false);
            load<C, T, V>(values, 2, p.data[i][3] + at * V * size_of<C>, p.numbers[3], false);
            finish<Row, Which, T, Out, V>(p.data[i][0] + at * V * sizeof(Out), values, p.params);
        }
    }
    if (V > 1 && blockIdx.x == p.first_block[i] && threadIdx.x < p.n[i] - units * V) {
        const int64_t at = units * V + threadIdx.x;
        T values[1][5];
        load<A, T, 1>(values, 0, p.data[i][1] + at * size_of<A>, p.numbers[1], false);
        load<B, T, 1>(values, 1, p.data[i][2] + at * size_of<B>, p.numbers[2], false);
        load<C, T, 1>(values, 2, p.data[i][3] + at * size_of<C>, p.numbers[3], false);
        finish<Row, Which, T, Out, 1>(p.data[i][0] + at * sizeof(Out), values, p.params);
    }
}

// Any strides. V > 1: the innermost dimension is a multiple of V, contiguous in the result and contiguous or spread in
// each operand. n counts vectors, of which a thread reads U before it writes the first; no offset has more than 31 bits.
template <class Row, int Which, class T, int V, int U, class Out, class A, class B = Absent, class C = Absent, class D = Absent,
          class E = Absent>
__global__ void __launch_bounds__(256) pointwise_strided(const PointwiseArguments p, const PointwiseShape shape) {
    begin_early();
    const uint32_t first = blockIdx.x * (256 * U) + threadIdx.x;
    T values[U][V][5];
    int to[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        uint32_t rest = first + u * 256;
        if (rest >= p.n) break;
        int offset[max_operands] = {};
#pragma unroll
        for (int d = 0; d < max_dims; d++) {
            if (d == shape.dims) break;
            const uint32_t next = shape.sizes[d].divide(rest);
            const int index = int(rest - next * shape.sizes[d].divisor);
            rest = next;
            offset[0] += shape.strides[0][d] * index;
            if constexpr (size_of<A> > 0) offset[1] += shape.strides[1][d] * index;
            if constexpr (size_of<B> > 0) offset[2] += shape.strides[2][d] * index;
            if constexpr (size_of<C> > 0) offset[3] += shape.strides[3][d] * index;
            if constexpr (size_of<D> > 0) offset[4] += shape.strides[4][d] * index;
            if constexpr (size_of<E> > 0) offset[5] += shape.strides[5][d] * index;
        }
        to[u] = offset[0];
        load<A, T, V>(values[u], 0, p.data[1] + offset[1], p.numbers[1], shape.spread & 2);
        load<B, T, V>(values[u], 1, p.data[2] + offset[2], p.numbers[2], shape.spread & 4);
        load<C, T, V>(values[u], 2, p.data[3] + offset[3], p.numbers[3], shape.spread & 8);
        load<D, T, V>(values[u], 3, p.data[4] + offset[4], p.numbers[4], shape.spread & 16);
        load<E, T, V>(values[u], 4, p.data[5] + offset[5], p.numbers[5], shape.spread & 32);
    }
#pragma unroll
    for (int u = 0; u < U; u++)
        if (first + u * 256 < p.n) finish<Row, Which, T, Out, V>(p.data[0] + to[u], values[u], p.params);
}

}  // namespace wisp
