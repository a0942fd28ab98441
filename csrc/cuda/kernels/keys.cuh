// Numbers as unsigned keys of the same order, and back.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

template <bool Wide> struct KeyOf {
    using type = uint32_t;
};
template <> struct KeyOf<true> {
    using type = uint64_t;
};
template <class T> using Key = typename KeyOf<(sizeof(T) > 4)>::type;
template <class T> inline constexpr int key_bits = int(sizeof(T)) * 8;
template <class T> inline constexpr bool has_nan = is_half<T> || std::is_same_v<T, float> || std::is_same_v<T, double>;
template <class T> inline constexpr Key<T> key_mask = Key<T>(~Key<T>(0)) >> (sizeof(Key<T>) * 8 - key_bits<T>);
template <class T> inline constexpr Key<T> key_sign = Key<T>(1) << (key_bits<T> - 1);

template <class T> WISP_INLINE Key<T> bits_of(T x) {
    if constexpr (is_half<T>) return x.bits;
    else if constexpr (std::is_same_v<T, float>) return __float_as_uint(x);
    else if constexpr (std::is_same_v<T, double>) return uint64_t(__double_as_longlong(x));
    else if constexpr (std::is_same_v<T, Bool>) return x ? 1 : 0;
    else return Key<T>(x) & key_mask<T>;
}
template <class T> WISP_INLINE T of_bits(Key<T> b) {
    if constexpr (is_half<T>) {
        T x;
        x.bits = uint16_t(b);
        return x;
    } else if constexpr (std::is_same_v<T, float>) return __uint_as_float(b);
    else if constexpr (std::is_same_v<T, double>) return __longlong_as_double(int64_t(b));
    else if constexpr (std::is_same_v<T, Bool>) return b != 0;
    else return T(b);
}

// NaN is the largest. -0 keeps a key of its own, so that it can be had back; order is that of `same_zero`.
template <class T> WISP_INLINE Key<T> to_key(T x, bool descending) {
    Key<T> k = bits_of(x);
    if constexpr (has_nan<T>) {
        const auto v = convert<compute<T>>(x);
        if (v != v) k = key_mask<T> >> 1;
        k = k & key_sign<T> ? ~k & key_mask<T> : k | key_sign<T>;
    } else if constexpr (std::is_signed_v<T>) k ^= key_sign<T>;
    return descending ? ~k & key_mask<T> : k;
}
template <class T> WISP_INLINE T from_key(Key<T> k, bool descending) {
    if (descending) k = ~k & key_mask<T>;
    if constexpr (has_nan<T>) k = k & key_sign<T> ? k & ~key_sign<T> : ~k & key_mask<T>;
    else if constexpr (std::is_signed_v<T>) k ^= key_sign<T>;
    return of_bits<T>(k);
}
template <class T> WISP_INLINE Key<T> same_zero(Key<T> k, bool descending) {
    if constexpr (has_nan<T>) {
        const Key<T> minus = descending ? key_sign<T> : key_sign<T> - 1, plus = descending ? key_sign<T> - 1 : key_sign<T>;
        if (k == minus) return plus;
    }
    return k;
}
// A key to compare with others of the same direction.
template <class T> WISP_INLINE Key<T> order_key(T x, bool descending) { return same_zero<T>(to_key(x, descending), descending); }

}  // namespace wisp
