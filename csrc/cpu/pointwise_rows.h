// From rows of the table to kernels: the loops. Included per instruction set.
#pragma once
#include <type_traits>

#include "kernels/expressions.h"

namespace wisp::cpu::WISP_ISA {
namespace {

#include "../kernels/row.h"

// Rows of one angle. Blocks with floats whose turns angle_reduce can't count exactly are computed in double.
struct sin_row;
struct cos_row;
struct tan_row;
struct sinc_row;
template <class Row> constexpr bool turns =
    std::is_same_v<Row, sin_row> || std::is_same_v<Row, cos_row> || std::is_same_v<Row, tan_row> || std::is_same_v<Row, sinc_row>;
WISP_INLINE bool any_beyond(const float* x, int64_t n) {
    int found = 0;
    for (int64_t i = 0; i < n; i++) found |= (abs(x[i]) > most_exact_angle) & (abs(x[i]) < infinity_f);
    return found != 0;
}

// ---- the loops. A result may be one of the operands (in-place), never a shifted part of one: hence ivdep.

template <class Row, class T>
void forward_loop(char* const* pointers, int64_t n, const Param* params_, [[maybe_unused]] unsigned constants) {
    // bool | bool is an int
    using Out = std::conditional_t<Row::result == boolean, bool, decltype(Row::template forward<T>(T(), T(), T(), nullptr))>;
    Param params[4] = {};
    if (params_)
        for (int i = 0; i < 4; i++) params[i] = params_[i];
    auto* out = reinterpret_cast<Out*>(pointers[0]);
    const T* a = reinterpret_cast<const T*>(pointers[1]);
    if constexpr (turns<Row> && std::is_same_v<T, float>)
        if (any_beyond(a, n)) {
            for (int64_t i = 0; i < n; i++) out[i] = float(Row::template forward<double>(a[i], a[i], a[i], params));
            return;
        }
    if constexpr (Row::arity == 1) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], a[i], a[i], params);
    } else {
        const T* b = reinterpret_cast<const T*>(pointers[2]);
        if constexpr (Row::arity == 2) {
            if constexpr (std::is_floating_point_v<T>) {
                if (constants == 4) {
                    const T v = b[0];
#pragma GCC ivdep
                    for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], v, v, params);
                    return;
                }
                if (constants == 2) {
                    const T v = a[0];
#pragma GCC ivdep
                    for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(v, b[i], b[i], params);
                    return;
                }
            }
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], b[i], b[i], params);
        } else {
            const T* c = reinterpret_cast<const T*>(pointers[3]);
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], b[i], c[i], params);
        }
    }
}

template <class Row, class T, int N>
void gradient_loop(char* const* pointers, int64_t n, const Param* params_, [[maybe_unused]] unsigned constants) {
    Param params[4] = {};
    if (params_)
        for (int i = 0; i < 4; i++) params[i] = params_[i];
    auto* out = reinterpret_cast<T*>(pointers[0]);
    const T* g = reinterpret_cast<const T*>(pointers[1]);
    const T* a = reinterpret_cast<const T*>(pointers[2]);
    const T* b = reinterpret_cast<const T*>(pointers[3]);
    const T* c = reinterpret_cast<const T*>(pointers[4]);
    const T* y = reinterpret_cast<const T*>(pointers[5]);
    if constexpr (turns<Row> && std::is_same_v<T, float>)
        if (any_beyond(a, n)) {
            for (int64_t i = 0; i < n; i++) out[i] = float(Row::template gradient0<double>(g[i], a[i], a[i], a[i], y[i], params));
            return;
        }
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        if constexpr (N == 0) out[i] = T(Row::template gradient0<T>(g[i], a[i], b[i], c[i], y[i], params));
        else if constexpr (N == 1) out[i] = T(Row::template gradient1<T>(g[i], a[i], b[i], c[i], y[i], params));
        else out[i] = T(Row::template gradient2<T>(g[i], a[i], b[i], c[i], y[i], params));
    }
}

template <class Row, class T, int N> constexpr PointwiseKernel gradient_kernel() {
    if constexpr (N >= Row::arity) return nullptr;
    else {
        using Out = typename decltype([] {
            if constexpr (N == 0) return std::type_identity<decltype(Row::template gradient0<T>(T(), T(), T(), T(), T(), nullptr))>();
            else if constexpr (N == 1) return std::type_identity<decltype(Row::template gradient1<T>(T(), T(), T(), T(), T(), nullptr))>();
            else return std::type_identity<decltype(Row::template gradient2<T>(T(), T(), T(), T(), T(), nullptr))>();
        }())::type;
        if constexpr (std::is_same_v<Out, NoGradient>) return nullptr;
        else return &gradient_loop<Row, T, N>;
    }
}

template <class Row> constexpr PointwiseKernelRow make_row() {
    PointwiseKernelRow r{};
    if constexpr (Row::types & F) {
        r.forward[compute_f32] = &forward_loop<Row, float>;
        r.forward[compute_f64] = &forward_loop<Row, double>;
        r.gradient[0][0] = gradient_kernel<Row, float, 0>();
        r.gradient[0][1] = gradient_kernel<Row, double, 0>();
        r.gradient[1][0] = gradient_kernel<Row, float, 1>();
        r.gradient[1][1] = gradient_kernel<Row, double, 1>();
        r.gradient[2][0] = gradient_kernel<Row, float, 2>();
        r.gradient[2][1] = gradient_kernel<Row, double, 2>();
    }
    if constexpr (Row::types & C) {
        using z64 = std::complex<float>;
        using z128 = std::complex<double>;
        r.forward[compute_c64] = &forward_loop<Row, z64>;
        r.forward[compute_c128] = &forward_loop<Row, z128>;
        r.gradient[0][2] = gradient_kernel<Row, z64, 0>();
        r.gradient[0][3] = gradient_kernel<Row, z128, 0>();
        r.gradient[1][2] = gradient_kernel<Row, z64, 1>();
        r.gradient[1][3] = gradient_kernel<Row, z128, 1>();
        r.gradient[2][2] = gradient_kernel<Row, z64, 2>();
        r.gradient[2][3] = gradient_kernel<Row, z128, 2>();
    }
    if constexpr ((Row::types & (I | B)) && Row::result != promote) {
        r.forward[compute_i64] = &forward_loop<Row, int64_t>;
        r.forward[compute_u64] = &forward_loop<Row, uint64_t>;
    }
    return r;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
