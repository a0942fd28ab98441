// Optimizer steps over many tensors in one launch; the rules are the CPU's text.
#include "cuda/kernels/numbers.cuh"
#include "kernels/optimizer.h"

namespace wisp::rows {
namespace {

template <class T> using Compute = compute<T>;

// N neighbours at a time, which begin at i.
template <int S, int N, class T, class F> WISP_INLINE void update_some(const OptimizerTensor& t, int64_t i, F f) {
    using C = compute<T>;
    using Some = Vector<T, N>;
    auto at = [&](const void* p) -> Some& { return *reinterpret_cast<Some*>(static_cast<T*>(const_cast<void*>(p)) + i); };
    // 16 bytes are one store by its name: the compiler cuts those of several elements in pieces where it has computed them apart.
    auto put = [&](void* p, const Some& some) {
        if constexpr (sizeof(Some) == 16) {
            const uint4 w = __builtin_bit_cast(uint4, some);
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(&at(p)), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w) : "memory");
        } else {
            at(p) = some;
        }
    };
    Some value = at(t.param), states[3];
    const Some g = at(t.grad);
#pragma unroll
    for (int s = 0; s < S; s++) states[s] = at(t.state[s]);
#pragma unroll
    for (int k = 0; k < N; k++) {
        C v = convert<C>(value.at[k]), a = 0, b = 0, c = 0;
        if constexpr (S > 0) a = convert<C>(states[0].at[k]);
        if constexpr (S > 1) b = convert<C>(states[1].at[k]);
        if constexpr (S > 2) c = convert<C>(states[2].at[k]);
        f(v, convert<C>(g.at[k]), a, b, c);
        value.at[k] = convert<T>(v);
        if constexpr (S > 0) states[0].at[k] = convert<T>(a);
        if constexpr (S > 1) states[1].at[k] = convert<T>(b);
        if constexpr (S > 2) states[2].at[k] = convert<T>(c);
    }
    put(t.param, value);
#pragma unroll
    for (int s = 0; s < S; s++) put(t.state[s], states[s]);
}

template <int S, class T, class F> WISP_INLINE void update(const OptimizerTensor& t, int64_t begin, int64_t end, F f) {
    constexpr int N = 16 / int(sizeof(T));
    uint64_t bits = reinterpret_cast<uint64_t>(t.param) | reinterpret_cast<uint64_t>(t.grad);
    for (int s = 0; s < S; s++) bits |= reinterpret_cast<uint64_t>(t.state[s]);
    if (bits % 16 == 0)
        for (int64_t i = begin + threadIdx.x * N; i + N <= end; i += int64_t(blockDim.x) * N) update_some<S, N, T>(t, i, f);
    // What is left: the last few, or all of them.
    for (int64_t i = bits % 16 == 0 ? end - (end - begin) % N + threadIdx.x : begin + threadIdx.x; i < end; i += blockDim.x)
        update_some<S, 1, T>(t, i, f);
}

#include "kernels/optimizer_rules.h"

}  // namespace
}  // namespace wisp::rows

namespace wisp {

constexpr int piece = 8192;

template <int Length> struct ListOf {
    int count;
    int first_block[Length + 1];  // of each tensor
    OptimizerTensor tensors[Length];
};
using OptimizerList = ListOf<96>;

template <class List> WISP_INLINE int tensor_of_block(const List& list) {
    int low = 0, high = list.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (int(blockIdx.x) >= list.first_block[middle]) low = middle;
        else high = middle;
    }
    return low;
}

template <class T, int Rule, int Length> __global__ void __launch_bounds__(256)
    optimizer_step(const ListOf<Length> list, const OptimizerSettings settings) {
    const int i = tensor_of_block(list);
    const OptimizerTensor& t = list.tensors[i];
    const int64_t begin = int64_t(blockIdx.x - list.first_block[i]) * piece, end = begin + piece < t.n ? begin + piece : t.n;
    if (!t.numbers) return rows::apply_rule<T>(OptimizerRule(Rule), settings, t, begin, end);
    OptimizerTensor mine = t;
    OptimizerSettings given = settings;
    for (int k = 0; k < 3; k++) mine.k[k] = t.numbers[k];
    given.lr = t.numbers[3];
    rows::apply_rule<T>(OptimizerRule(Rule), given, mine, begin, end);
}

struct StepList {
    void* steps[96];
};
// Adam's numbers (see kernels/optimizer.h) from counts of steps in device memory, which go up.
template <class S, class L> __global__ void __launch_bounds__(96)
    adam_numbers(const StepList list, int count, double beta1, double beta2, double lr, const L* given, double* numbers) {
    const int i = threadIdx.x;
    if (i >= count) return;
    S* step = static_cast<S*>(list.steps[i]);
    const double t = double(*step) + 1, rate = given ? double(*given) : lr;
    *step = S(t);
    numbers[4 * i] = rate / (1 - ::pow(beta1, t));
    numbers[4 * i + 1] = 1 / ::sqrt(1 - ::pow(beta2, t));
    numbers[4 * i + 2] = 0;
    numbers[4 * i + 3] = rate;
}

template <class T> __global__ void __launch_bounds__(256) scale_list(const OptimizerList list, double factor) {
    using C = compute<T>;
    const int i = tensor_of_block(list);
    const OptimizerTensor& t = list.tensors[i];
    T* x = static_cast<T*>(t.param);
    const int64_t begin = int64_t(blockIdx.x - list.first_block[i]) * piece, end = begin + piece < t.n ? begin + piece : t.n;
    for (int64_t k = begin + threadIdx.x; k < end; k += 256) x[k] = convert<T>(convert<C>(x[k]) * C(factor));
}

// Every thread that finds infinity or NaN writes the same 1.
template <class T> __global__ void __launch_bounds__(256) unscale_list(const OptimizerList list, const float* factor, float* found) {
    using C = compute<T>;
    const int i = tensor_of_block(list);
    const OptimizerTensor& t = list.tensors[i];
    T* x = static_cast<T*>(t.param);
    const C by = C(*factor);
    const int64_t begin = int64_t(blockIdx.x - list.first_block[i]) * piece, end = begin + piece < t.n ? begin + piece : t.n;
    bool finite = true;
    for (int64_t k = begin + threadIdx.x; k < end; k += 256) {
        const C v = convert<C>(x[k]);
        finite = finite && v - v == C(0);
        x[k] = convert<T>(C(by == C(1) ? v : v * by));
    }
    if (!finite) *found = 1.0f;
}

// Of 256 threads, for the first of them.
WISP_INLINE double sum_of_block(double sum) {
    __shared__ double shared[256];
    shared[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    return shared[0];
}

// sums[block]: of the squares of its piece.
template <class T> __global__ void __launch_bounds__(256) squares_of_list(const OptimizerList list, double* sums) {
    const int i = tensor_of_block(list);
    const OptimizerTensor& t = list.tensors[i];
    const T* x = static_cast<const T*>(t.param);
    const int64_t begin = int64_t(blockIdx.x - list.first_block[i]) * piece, end = begin + piece < t.n ? begin + piece : t.n;
    double sum = 0;
    for (int64_t k = begin + threadIdx.x; k < end; k += 256) {
        const double v = double(convert<compute<T>>(x[k]));
        sum += v * v;
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
__global__ void __launch_bounds__(256) sum_of_parts(const double* parts, int64_t n, double* total) {
    double sum = 0;
    for (int64_t k = threadIdx.x; k < n; k += 256) sum += parts[k];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) *total = sum;
}

}  // namespace wisp
