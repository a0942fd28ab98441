// Optimizer steps over many tensors in one launch; the rules are the CPU's text.
#include "cuda/kernels/numbers.cuh"
#include "cpu/optimizer.h"

namespace wisp::cpu::gpu {
namespace {

template <class T> using Compute = compute<T>;

template <int S, class T, class F> WISP_INLINE void update(const OptimizerTensor& t, int64_t begin, int64_t end, F f) {
    using C = compute<T>;
    T* p = static_cast<T*>(t.param);
    const T* g = static_cast<const T*>(t.grad);
    T *s0 = static_cast<T*>(t.state[0]), *s1 = static_cast<T*>(t.state[1]), *s2 = static_cast<T*>(t.state[2]);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        C value = convert<C>(p[i]), a = 0, b = 0, c = 0;
        if constexpr (S > 0) a = convert<C>(s0[i]);
        if constexpr (S > 1) b = convert<C>(s1[i]);
        if constexpr (S > 2) c = convert<C>(s2[i]);
        f(value, convert<C>(g[i]), a, b, c);
        p[i] = convert<T>(value);
        if constexpr (S > 0) s0[i] = convert<T>(a);
        if constexpr (S > 1) s1[i] = convert<T>(b);
        if constexpr (S > 2) s2[i] = convert<T>(c);
    }
}

#include "cpu/optimizer_rules.h"

}  // namespace
}  // namespace wisp::cpu::gpu

namespace wisp {

constexpr int list_length = 96, piece = 8192;

struct OptimizerList {
    int count;
    int first_block[list_length + 1];  // of each tensor
    cpu::OptimizerTensor tensors[list_length];
};

WISP_INLINE int tensor_of_block(const OptimizerList& list) {
    int low = 0, high = list.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (int(blockIdx.x) >= list.first_block[middle]) low = middle;
        else high = middle;
    }
    return low;
}

template <class T, int Rule> __global__ void __launch_bounds__(256) optimizer_step(const OptimizerList list, const cpu::OptimizerSettings settings) {
    const int i = tensor_of_block(list);
    const cpu::OptimizerTensor& t = list.tensors[i];
    const int64_t begin = int64_t(blockIdx.x - list.first_block[i]) * piece, end = begin + piece < t.n ? begin + piece : t.n;
    cpu::gpu::apply_rule<T>(cpu::OptimizerRule(Rule), settings, t, begin, end);
}

template <class T> __global__ void __launch_bounds__(256) scale_list(const OptimizerList list, double factor) {
    using C = compute<T>;
    const int i = tensor_of_block(list);
    const cpu::OptimizerTensor& t = list.tensors[i];
    T* x = static_cast<T*>(t.param);
    const int64_t begin = int64_t(blockIdx.x - list.first_block[i]) * piece, end = begin + piece < t.n ? begin + piece : t.n;
    for (int64_t k = begin + threadIdx.x; k < end; k += 256) x[k] = convert<T>(convert<C>(x[k]) * C(factor));
}

// Every thread that finds infinity or NaN writes the same 1.
template <class T> __global__ void __launch_bounds__(256) unscale_list(const OptimizerList list, const float* factor, float* found) {
    using C = compute<T>;
    const int i = tensor_of_block(list);
    const cpu::OptimizerTensor& t = list.tensors[i];
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

// sums[block]: of the squares of its piece.
template <class T> __global__ void __launch_bounds__(256) squares_of_list(const OptimizerList list, double* sums) {
    __shared__ double shared[256];
    const int i = tensor_of_block(list);
    const cpu::OptimizerTensor& t = list.tensors[i];
    const T* x = static_cast<const T*>(t.param);
    const int64_t begin = int64_t(blockIdx.x - list.first_block[i]) * piece, end = begin + piece < t.n ? begin + piece : t.n;
    double sum = 0;
    for (int64_t k = begin + threadIdx.x; k < end; k += 256) {
        const double v = double(convert<compute<T>>(x[k]));
        sum += v * v;
    }
    shared[threadIdx.x] = sum;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

}  // namespace wisp
