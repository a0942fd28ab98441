// Launches the kernels of pooling.
#include "../kernels/index.h"
#include "../kernels/pool.h"

#include "divider.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

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

#include "../kernels/pool_planes_arguments.h"

PoolPlanes planes_of(const PoolShape& s) {
    const auto by = [](int64_t n) { return divider(uint32_t(n)); };
    return {int(s.in[1]),      int(s.in[2]),      int(s.out[1]),         int(s.out[2]), int(s.kernel[1]),        int(s.kernel[2]),
            int(s.padding[1]), int(s.padding[2]), by(s.in[1] * s.in[2]), by(s.in[2]),   by(s.out[1] * s.out[2]), by(s.out[2]),
            by(s.stride[1]),   by(s.stride[2])};
}
bool as_planes(const PoolShape& s) {
    constexpr int64_t most = int64_t(1) << 30;
    return s.inner == 1 && s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.padding[0] == 0 && s.dilation[1] == 1 &&
           s.dilation[2] == 1 && s.stride[1] < most && s.stride[2] < most && s.kernel[1] < most && s.kernel[2] < most &&
           s.planes * volume(s.in) < most && s.planes * volume(s.out) < most;
}
template <int Which> Kernel* of_planes(const char* name, DType d) {
    static Instances<16> instances("cuda/kernels/pool_planes.cuh");
    return instances(int(d), [&] { return str(name, "<", type_text(d), ">"); });
}

void max(DType d, const PoolShape& s, const void* x, void* y, int64_t* indices, uint8_t* taps) {
    const int64_t n = s.planes * volume(s.out);
    const int v = vector_of(d, s, {x, y});
    if (n && as_planes(s))
        launch_with(of_planes<0>("max_pool_planes", d), threads(n), {256}, 0, planes_of(s), x, y, indices, taps, uint32_t(n));
    else if (n) launch_with(vectored<0>("max_pool", d, v), threads(n / v), {256}, 0, s, x, y, indices, taps, n);
}

void max_grad(DType d, const PoolShape& s, const void* g, const int64_t* indices, const uint8_t* taps, void* dx) {
    const int64_t n = s.planes * volume(s.in);
    if (n == 0) return;
    if (taps) {
        const int v = vector_of(d, s, {g, taps, dx});
        if (as_planes(s))
            launch_with(of_planes<1>("max_pool_planes_grad", d), threads(n), {256}, 0, planes_of(s), g, taps, dx, uint32_t(n));
        else launch_with(vectored<1>("max_pool_grad", d, v), threads(n / v), {256}, 0, s, g, taps, dx, n);
        return;
    }
    // Indices may come from windows that the shape does not tell (adaptive, fractional): they are summed by place.
    fill_zero(dx, size_t(n * item_size(d)));
    const int64_t in = volume(s.in), out = volume(s.out), sizes[] = {s.planes / s.inner, out, s.inner};
    const int64_t to[] = {in * s.inner, s.inner, 1}, from[] = {out * s.inner, s.inner, 1};
    index.scatter(Scatter::add, dx, d, to, indices, from, g, from, sizes, 3, 1, in, "max_pool (backward)");
}

void fractional_max(DType d, const PoolShape& s, const int64_t* const* starts, const void* x, void* y, int64_t* indices) {
    const int64_t n = s.planes * volume(s.out);
    struct {
        const int64_t* at[3];
    } begin = {{starts[0], starts[1], starts[2]}};
    if (n) launch_with(typed<2>("fractional_max_pool", d), threads(n), {256}, 0, s, begin, x, y, indices, n);
}

int64_t unpool(DType d, int64_t planes, int64_t count, int64_t size, const void* values, const int64_t* indices, void* output) {
    fill_zero(output, size_t(planes * size * item_size(d)));
    const int64_t sizes[] = {planes, count}, to[] = {size, 1}, from[] = {count, 1};
    index.scatter(Scatter::set, output, d, to, indices, from, values, from, sizes, 2, 1, size, "max_unpool (indices)");
    return -1;
}

void indices_of_taps(const PoolShape& s, const uint8_t* taps, int64_t* indices) {
    const int64_t n = s.planes * volume(s.out);
    if (n) launch_with(find_kernel(file, "indices_of_taps"), threads(n), {256}, 0, s, taps, indices, n);
}

void pool_average(DType d, const PoolShape& s, const AveragePool& a, const void* x, void* y, bool adaptive) {
    const int64_t n = s.planes * volume(s.out);
    if (n)
        launch_with(typed<10>("average_pool", d, adaptive ? ", true" : ", false", adaptive), threads(n), {256}, 0, s,
                    int(a.count_include_pad), a.divisor_override, x, y, n);
}
void pool_average_grad(DType d, const PoolShape& s, const AveragePool& a, const void* g, void* dx, bool adaptive) {
    const int64_t n = s.planes * volume(s.in);
    if (n)
        launch_with(typed<11>("average_pool_grad", d, adaptive ? ", true" : ", false", adaptive), threads(n), {256}, 0, s,
                    int(a.count_include_pad), a.divisor_override, g, dx, n);
}
void average(DType d, const PoolShape& s, const AveragePool& a, const void* x, void* y) {
    const int64_t n = s.planes * volume(s.out);
    if (!n || !as_planes(s) || a.divisor_override > INT32_MAX) return pool_average(d, s, a, x, y, false);
    launch_with(of_planes<2>("average_pool_planes", d), threads(n), {256}, 0, planes_of(s), x, y, int(a.count_include_pad),
                int(a.divisor_override), uint32_t(n));
}
void average_grad(DType d, const PoolShape& s, const AveragePool& a, const void* g, void* dx) {
    const int64_t n = s.planes * volume(s.in);
    if (!n || !as_planes(s) || a.divisor_override > INT32_MAX) return pool_average_grad(d, s, a, g, dx, false);
    launch_with(of_planes<3>("average_pool_planes_grad", d), threads(n), {256}, 0, planes_of(s), g, dx, int(a.count_include_pad),
                int(a.divisor_override), uint32_t(n));
}
// Adaptive windows of one size, side by side, are those of an ordinary pool.
bool is_even(PoolShape& s) {
    for (int i = 0; i < 3; i++) {
        if (s.out[i] == 0 || s.in[i] % s.out[i]) return false;
        s.kernel[i] = s.stride[i] = s.in[i] / s.out[i];
        s.padding[i] = 0, s.dilation[i] = 1;
    }
    return as_planes(s);
}
void adaptive_average(DType d, const PoolShape& s, const void* x, void* y) {
    const int64_t n = s.planes * volume(s.out);
    PoolShape even = s;
    if (n && s.inner == 1 && volume(s.out) == 1 && volume(s.in) >= 512)
        launch_with(of_planes<4>("average_planes", d), {unsigned(s.planes)}, {256}, 0, x, y, volume(s.in));
    else if (n && is_even(even) && volume(even.kernel) <= 128) average(d, even, {}, x, y);
    else if (n && s.inner == 1 && volume(s.in) >= 32 * volume(s.out))
        launch_with(typed<12>("average_pool_wide", d), {unsigned((n + 7) / 8)}, {256}, 0, s, x, y, n);
    else pool_average(d, s, {}, x, y, true);
}
void adaptive_average_grad(DType d, const PoolShape& s, const void* g, void* dx) {
    PoolShape even = s;
    if (is_even(even)) average_grad(d, even, {}, g, dx);
    else pool_average_grad(d, s, {}, g, dx, true);
}

void adaptive_max(DType d, const PoolShape& s, const void* x, void* y, int64_t* indices) {
    const int64_t n = s.planes * volume(s.out);
    if (n) launch_with(typed<3>("adaptive_max_pool", d), threads(n), {256}, 0, s, x, y, indices, n);
}

}  // namespace

const PoolKernels pool = {
    max,          max_grad,       indices_of_taps, average, average_grad, adaptive_average, adaptive_average_grad,
    adaptive_max, fractional_max, unpool,          true,
};

}  // namespace wisp::cuda
