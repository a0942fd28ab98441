// Element types: their names, sizes, C++ types and PyTorch's promotion rules.
#pragma once
#include <complex>
#include <cstdint>
#include <cstring>

namespace wisp {

#if defined(__aarch64__)
using f16 = __fp16;  // GCC 12 knows no other name there; computes in float
#else
using f16 = _Float16;
#endif

// bfloat16: the upper half of a float, rounded to nearest even. Always inlined: kernel files of several instruction
// sets use it, and the linker would keep one out-of-line copy for all of them.
struct bf16 {
    uint16_t bits;
    bf16() = default;
    __attribute__((always_inline)) inline bf16(float x) {
        uint32_t u;
        std::memcpy(&u, &x, 4);
        const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
        bits = x != x ? uint16_t(0x7fc0) : uint16_t(rounded);
    }
    __attribute__((always_inline)) inline operator float() const {
        const uint32_t u = uint32_t(bits) << 16;
        float x;
        std::memcpy(&x, &u, 4);
        return x;
    }
};

using c64 = std::complex<float>;
using c128 = std::complex<double>;

// In PyTorch's order, which promotion and printing rely on; then those that values are stored in, but that no kernel computes in.
enum class DType : uint8_t {
    u8,
    i8,
    i16,
    i32,
    i64,
    f16,
    f32,
    f64,
    c64,
    c128,
    boolean,
    bf16,
    u16,
    u32,
    u64,
    c32,
    f8_e4m3fn,
    f8_e5m2,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    f8_e8m0fnu,
    count
};

// WISP_DTYPES(X) calls X(enumerator, C++ type, Python name) for each dtype that kernels compute in, in the order of the enum.
#define WISP_DTYPES(X)                \
    X(u8, uint8_t, "uint8")           \
    X(i8, int8_t, "int8")             \
    X(i16, int16_t, "int16")          \
    X(i32, int32_t, "int32")          \
    X(i64, int64_t, "int64")          \
    X(f16, wisp::f16, "float16")      \
    X(f32, float, "float32")          \
    X(f64, double, "float64")         \
    X(c64, wisp::c64, "complex64")    \
    X(c128, wisp::c128, "complex128") \
    X(boolean, bool, "bool")          \
    X(bf16, wisp::bf16, "bfloat16")   \
    X(u16, uint16_t, "uint16")        \
    X(u32, uint32_t, "uint32")        \
    X(u64, uint64_t, "uint64")

// The others, which are copied, moved as bytes and converted; what is computed with them goes by way of compute_dtype.
#define WISP_STORED_DTYPES(X)         \
    X(c32, "complex32")               \
    X(f8_e4m3fn, "float8_e4m3fn")     \
    X(f8_e5m2, "float8_e5m2")         \
    X(f8_e4m3fnuz, "float8_e4m3fnuz") \
    X(f8_e5m2fnuz, "float8_e5m2fnuz") \
    X(f8_e8m0fnu, "float8_e8m0fnu")

constexpr int64_t item_size(DType d) {
    constexpr uint8_t sizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 8, 16, 1, 2, 2, 4, 8, 4, 1, 1, 1, 1, 1};
    return sizes[int(d)];
}
constexpr bool is_stored(DType d) { return d >= DType::c32; }
constexpr bool is_float8(DType d) { return d > DType::c32; }
constexpr bool is_complex(DType d) { return d == DType::c64 || d == DType::c128 || d == DType::c32; }
constexpr bool is_floating(DType d) { return d == DType::f16 || d == DType::f32 || d == DType::f64 || d == DType::bf16 || is_float8(d); }
constexpr bool is_integral(DType d) { return !is_complex(d) && !is_floating(d); }  // bool counts as integral
constexpr bool is_reduced(DType d) { return d == DType::f16 || d == DType::bf16 || is_float8(d); }
constexpr bool is_narrow(DType d) { return is_reduced(d) || d == DType::c32; }  // computed in a wider one
constexpr bool is_signed(DType d) {
    return !(d == DType::u8 || d == DType::u16 || d == DType::u32 || d == DType::u64 || d == DType::boolean || d == DType::f8_e8m0fnu);
}
constexpr bool is_differentiable(DType d) { return is_floating(d) || is_complex(d); }
// What elements are computed in where nothing else is said.
constexpr DType compute_dtype(DType d) {
    return is_reduced(d) ? DType::f32 : d == DType::c32 ? DType::c64 : is_integral(d) && d != DType::u64 ? DType::i64 : d;
}
constexpr DType real_of(DType d) { return d == DType::c64 ? DType::f32 : d == DType::c128 ? DType::f64 : d == DType::c32 ? DType::f16 : d; }
DType complex_of(DType d);

template <class T> struct dtype_of_type;
#define WISP_X(e, T, n)                          \
    template <> struct dtype_of_type<T> {        \
        static constexpr DType value = DType::e; \
    };
WISP_DTYPES(WISP_X)
#undef WISP_X
template <class T> inline constexpr DType dtype_of = dtype_of_type<T>::value;

const char* name_of(DType d);     // "float32"
DType promote(DType a, DType b);  // PyTorch's lattice for two tensors of the same category rank
DType default_dtype();            // float32 unless set_default_dtype changed it
void set_default_dtype(DType d);

// Whoever makes a tensor of a stored dtype from none says so, once or often: from then on calls look at the dtypes of their arguments
// (python/stored.cpp), which programs without such tensors do not pay for.
DType use_stored(DType d);
extern void (*stored_in_use)(DType);  // called at each of these

}  // namespace wisp
