// Launches the kernels of pooling.
#include "../cpu/pool.h"

#include "pointwise.h"
#include "runtime.h"
#include "tables.h"

namespace wisp::cuda {
namespace {

using cpu::AveragePool;
using cpu::PoolShape;

constexpr const char* file = "cuda/kernels/pool.cuh";

int64_t volume(const int64_t* sizes) { return sizes[0] * sizes[1] * sizes[2]; }
Grid threads(int64_t n) { return {unsigned((n + 255) / 256)}; }
template <int Which> Kernel* typed(const char* name, DType d, const char* more = "", bool flag = false) {
    static Instances<32> instances(file);
    return instances(int(d) * 2 + flag, [&] { return str(name, "<", type_text(d), more, ">"); });
}

// Neighbouring channels that a thread takes at a time.
int vector_of(DType d, const PoolShape& s, std::initializer_list<const void*> pointers) {
    const int n = int(16 / item_size(d));
    if (s.inner % n) return 1;
    for (const void* p : pointers)
        if (uintptr_t(p) % 16) return 1;
    return n;
}
template <int Which> Kernel* vectored(const char* name, DType d, int vector) {
    static Instances<32> instances(file);
    return instances(int(d) * 2 + (vector > 1), [&] { return str(name, "<", type_text(d), ", ", vector, ">"); });
}

void max(DType d, const PoolShape& s, const void* x, void* y, int64_t* indices, uint8_t* taps) {
    const int64_t n = s.planes * volume(s.out);
    const int v = vector_of(d, s, {x, y});
    if (n) launch_with(vectored<0>("max_pool", d, v), threads(n / v), {256}, 0, s, x, y, indices, taps, n);
}

void max_grad(DType d, const PoolShape& s, const void* g, const int64_t* indices, const uint8_t* taps, void* dx) {
    const int64_t n = s.planes * volume(s.in);
    if (n == 0) return;
    const int v = vector_of(d, s, {g, taps, dx});
    // Indices may come from windows that the shape does not tell (adaptive, fractional).
    if (taps) launch_with(vectored<1>("max_pool_grad", d, v), threads(n / v), {256}, 0, s, g, taps, dx, n);
    else launch_with(typed<2>("max_pool_grad_any", d), threads(n), {256}, 0, s, g, indices, dx, n);
}

void indices_of_taps(const PoolShape& s, const uint8_t* taps, int64_t* indices) {
    const int64_t n = s.planes * volume(s.out);
    if (n) launch_with(find_kernel(file, "indices_of_taps"), threads(n), {256}, 0, s, taps, indices, n);
}

void pool_average(DType d, const PoolShape& s, const AveragePool& a, const void* x, void* y, bool adaptive) {
    const int64_t n = s.planes * volume(s.out);
    if (n) launch_with(typed<10>("average_pool", d, adaptive ? ", true" : ", false", adaptive), threads(n), {256}, 0, s, int(a.count_include_pad), a.divisor_override, x, y, n);
}
void pool_average_grad(DType d, const PoolShape& s, const AveragePool& a, const void* g, void* dx, bool adaptive) {
    const int64_t n = s.planes * volume(s.in);
    if (n) launch_with(typed<11>("average_pool_grad", d, adaptive ? ", true" : ", false", adaptive), threads(n), {256}, 0, s, int(a.count_include_pad), a.divisor_override, g, dx, n);
}
void average(DType d, const PoolShape& s, const AveragePool& a, const void* x, void* y) { pool_average(d, s, a, x, y, false); }
void average_grad(DType d, const PoolShape& s, const AveragePool& a, const void* g, void* dx) { pool_average_grad(d, s, a, g, dx, false); }
void adaptive_average(DType d, const PoolShape& s, const void* x, void* y) { pool_average(d, s, {}, x, y, true); }
void adaptive_average_grad(DType d, const PoolShape& s, const void* g, void* dx) { pool_average_grad(d, s, {}, g, dx, true); }

void adaptive_max(DType d, const PoolShape& s, const void* x, void* y, int64_t* indices) {
    const int64_t n = s.planes * volume(s.out);
    if (n) launch_with(typed<3>("adaptive_max_pool", d), threads(n), {256}, 0, s, x, y, indices, n);
}

}  // namespace

const cpu::PoolKernels pool = {max, max_grad, indices_of_taps, average, average_grad, adaptive_average, adaptive_average_grad, adaptive_max, Absent(), Absent()};

}  // namespace wisp::cuda
