// What every kernel file includes: integer types, half types, complex numbers, dtypes by name, and vectors of elements.
// The compiler has no standard library; the few names of it that shared text uses are made here.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long long;
using uint64_t = unsigned long long;
#define INT64_MAX 9223372036854775807LL
#define INT64_MIN (-9223372036854775807LL - 1)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define WISP_INLINE __forceinline__

namespace std {
template <class T> inline constexpr bool is_integral_v = false;
template <> inline constexpr bool is_integral_v<int64_t> = true;
template <> inline constexpr bool is_integral_v<uint64_t> = true;
template <> inline constexpr bool is_integral_v<int32_t> = true;
template <> inline constexpr bool is_integral_v<uint32_t> = true;
template <> inline constexpr bool is_integral_v<int16_t> = true;
template <> inline constexpr bool is_integral_v<uint16_t> = true;
template <> inline constexpr bool is_integral_v<int8_t> = true;
template <> inline constexpr bool is_integral_v<uint8_t> = true;
template <> inline constexpr bool is_integral_v<bool> = true;
template <class T> inline constexpr bool is_signed_v = false;
template <> inline constexpr bool is_signed_v<int64_t> = true;
template <> inline constexpr bool is_signed_v<int32_t> = true;
template <> inline constexpr bool is_signed_v<int16_t> = true;
template <> inline constexpr bool is_signed_v<int8_t> = true;
template <class A, class B> inline constexpr bool is_same_v = false;
template <class A> inline constexpr bool is_same_v<A, A> = true;
template <bool, class A, class B> struct conditional {
    using type = A;
};
template <class A, class B> struct conditional<false, A, B> {
    using type = B;
};
template <bool condition, class A, class B> using conditional_t = typename conditional<condition, A, B>::type;

template <class T> struct alignas(2 * sizeof(T)) complex {
    using value_type = T;
    T re, im;
    complex() = default;
    complex(T r, T i = T(0)) : re(r), im(i) {}
    template <class U> explicit complex(const complex<U>& z) : re(T(z.re)), im(T(z.im)) {}
    T real() const { return re; }
    T imag() const { return im; }
    complex operator-() const { return {-re, -im}; }
    friend complex operator+(complex a, complex b) { return {a.re + b.re, a.im + b.im}; }
    friend complex operator-(complex a, complex b) { return {a.re - b.re, a.im - b.im}; }
    friend complex operator*(complex a, complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
    friend complex operator/(complex a, complex b) {  // scaled by the larger part of b
        const T x = b.re < 0 ? -b.re : b.re, y = b.im < 0 ? -b.im : b.im;
        if (x == T(0) && y == T(0)) return {a.re / x, a.im / x};
        if (x >= y) {
            const T r = b.im / b.re, d = b.re + b.im * r;
            return {(a.re + a.im * r) / d, (a.im - a.re * r) / d};
        }
        const T r = b.re / b.im, d = b.re * r + b.im;
        return {(a.re * r + a.im) / d, (a.im * r - a.re) / d};
    }
    complex& operator+=(complex b) { return *this = *this + b; }
    complex& operator*=(complex b) { return *this = *this * b; }
    friend bool operator==(complex a, complex b) { return a.re == b.re && a.im == b.im; }
    friend bool operator!=(complex a, complex b) { return !(a == b); }
};
}  // namespace std

namespace wisp {

enum class DType : uint8_t;  // of csrc/core/dtype.h: headers that both compile name it, kernels have types instead

// What a kernel begins with that may be launched before the one in front of it has ended (send_launch in ../runtime.h): the next may
// be, too, and nothing is read or written before all earlier work is done. The next waits for the end of this one, which has waited
// itself, so it may as well be let in before the wait; but the places that it then takes pay only in front of long work (few_rows.cuh).
WISP_INLINE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
WISP_INLINE void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
WISP_INLINE void begin_early() {
    wait_for_earlier();
    let_next_begin();
}

using c64 = std::complex<float>;
using c128 = std::complex<double>;

// Half types as their bits: all arithmetic is in float.
struct f16 {
    uint16_t bits;
    f16() = default;
    f16(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    operator float() const {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
};
struct bf16 {
    uint16_t bits;
    bf16() = default;
    bf16(float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    operator float() const { return __uint_as_float(uint32_t(bits) << 16); }
};

WISP_INLINE float float_of_bits(uint32_t u) { return __uint_as_float(u); }
WISP_INLINE uint32_t float_bits(float x) { return __float_as_uint(x); }
#include "core/float8_rules.h"

// Dtypes that are only stored: their elements are read and written in float or c64.
template <class Format> struct Coded {
    uint8_t code;
    Coded() = default;
    Coded(float x) : code(Format::encode(x)) {}
    operator float() const { return Format::decode(code); }
};
using f8_e4m3fn = Coded<Float8<3, 7, Float8Kind::fn>>;
using f8_e5m2 = Coded<Float8<2, 15, Float8Kind::ieee>>;
using f8_e4m3fnuz = Coded<Float8<3, 8, Float8Kind::fnuz>>;
using f8_e5m2fnuz = Coded<Float8<2, 16, Float8Kind::fnuz>>;
using f8_e8m0fnu = Coded<Float8Exponent>;
using c32 = std::complex<f16>;

// An element of a bool tensor: any byte but 0 is true.
struct Bool {
    uint8_t byte;
    Bool() = default;
    Bool(bool x) : byte(x) {}
    operator bool() const { return byte != 0; }
};

template <class T> inline constexpr bool is_complex = false;
template <class T> inline constexpr bool is_complex<std::complex<T>> = true;
template <class T> inline constexpr bool is_half = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class Format> inline constexpr bool is_half<Coded<Format>> = true;

// The type that elements of T are computed in.
template <class T> using compute =
    std::conditional_t<is_half<T>, float,
                       std::conditional_t<(std::is_integral_v<T> && !std::is_same_v<T, uint64_t>) || std::is_same_v<T, Bool>, int64_t, T>>;

// PyTorch's conversions: floats are cut to integers, anything but 0 is true, a complex number gives its real part.
template <class To, class From> WISP_INLINE To convert(From x) {
    if constexpr (std::is_same_v<To, From>) return x;
    else if constexpr (is_complex<From>) {
        if constexpr (is_complex<To>) return To(typename To::value_type(x.re), typename To::value_type(x.im));
        else if constexpr (std::is_same_v<To, bool> || std::is_same_v<To, Bool>) return x.re != 0 || x.im != 0;
        else return convert<To>(x.re);
    } else if constexpr (is_half<From>) return convert<To>(float(x));
    else if constexpr (is_complex<To>) return To(typename To::value_type(x));
    else if constexpr (std::is_same_v<From, Bool>) return convert<To>(bool(x));
    else if constexpr (std::is_same_v<To, bool> || std::is_same_v<To, Bool>) return x != From(0);
    else if constexpr (is_half<To>) return To(float(x));
    else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) return To(int64_t(x));
    else return To(x);
}

// Division by a number known before the launch: q = (mulhi(n, multiplier) + n) >> shift, for n below 2^31.
struct Divider {
    uint32_t divisor, multiplier, shift;
    WISP_INLINE uint32_t divide(uint32_t n) const { return (__umulhi(n, multiplier) + n) >> shift; }
};

// Quotient and remainder of numbers that are not negative; a division of 64 bits takes five times one of 32.
struct Split {
    int64_t whole, rest;
};
WISP_INLINE Split split(int64_t a, int64_t b) {
    const int64_t whole = (uint64_t(a) | uint64_t(b)) >> 32 ? a / b : int64_t(uint32_t(a) / uint32_t(b));
    return {whole, a - whole * b};
}

template <class T, int N> struct alignas(sizeof(T) * N) Vector {
    T at[N];
};

// An element of so many bytes that is moved without being understood.
template <int Bytes> using Cell = std::conditional_t<
    Bytes == 1, uint8_t,
    std::conditional_t<Bytes == 2, uint16_t,
                       std::conditional_t<Bytes == 4, uint32_t, std::conditional_t<Bytes == 8, uint64_t, Vector<uint64_t, 2>>>>>;

// What was wrong with an input, for the host to raise at the next synchronisation (see runtime.h). The first one stays.
struct Report {
    unsigned long long flag;
    long long value, size;
    unsigned long long name;
};
WISP_INLINE void report_index(Report* report, int64_t value, int64_t size, unsigned long long name) {
    if (atomicCAS(&report->flag, 0ULL, 1ULL) != 0) return;
    report->value = value;
    report->size = size;
    __threadfence_system();
    report->name = name;  // last: the host takes a report that has it for whole
}
WISP_INLINE void report_error(Report* report, unsigned long long message) {
    if (atomicCAS(&report->flag, 0ULL, 2ULL) != 0) return;
    report->name = message;
}

}  // namespace wisp

namespace wisp::kernels {}
namespace wisp { using namespace kernels; }  // namespace wisp
using namespace wisp;                        // instances are named from outside
