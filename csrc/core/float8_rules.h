// Numbers of 8 bits: what a code means, and the code of a float, rounded to nearest even. One text for the CPU and the GPU, included in
// namespace wisp where WISP_INLINE, float_bits and float_of_bits are known.

// How a format spends its largest codes: on infinities and NaN as IEEE's; on one NaN (fn), where what is too large becomes the largest
// number, as in PyTorch; or on none (fnuz), where the negative zero's code is NaN, and what is too large becomes that.
enum class Float8Kind { ieee, fn, fnuz };

template <int Mantissa, int Bias, Float8Kind Kind> struct Float8 {
    static constexpr uint32_t nan = Kind == Float8Kind::fnuz ? 0x80 : 0x7f;
    static constexpr uint32_t infinity = Kind == Float8Kind::ieee ? 0x7c : Kind == Float8Kind::fn ? 0x7e : nan;
    static constexpr uint32_t largest = Kind == Float8Kind::ieee ? 0x7b : Kind == Float8Kind::fn ? 0x7e : 0x7f;

    static WISP_INLINE float decode(uint8_t code) {
        const uint32_t rest = code & 0x7fu, sign = uint32_t(code & 0x80) << 24;
        constexpr float scale = as_power(127 - Bias);
        const float x = float_of_bits(rest << (23 - Mantissa)) * scale;  // rebias; subnormals come out right
        if (Kind == Float8Kind::fnuz) return code == 0x80 ? float_of_bits(0xffc00000u) : float_of_bits(float_bits(x) | sign);
        if (rest > largest) return float_of_bits(sign | (rest == infinity && Kind == Float8Kind::ieee ? 0x7f800000u : 0x7fc00000u));
        return float_of_bits(float_bits(x) | sign);
    }
    static WISP_INLINE uint8_t encode(float x) {
        const uint32_t u = float_bits(x), sign = u >> 24 & 0x80, rest = u & 0x7fffffffu;
        constexpr uint32_t lowest_normal = uint32_t(128 - Bias) << 23, tie = (1u << (22 - Mantissa)) - 1;
        constexpr float unit = as_power(24 - Bias - Mantissa);  // added, it leaves the multiples of the smallest subnormal
        uint32_t code = rest < lowest_normal
                            ? float_bits(float_of_bits(rest) + unit) - float_bits(unit)
                            : (rest - (uint32_t(127 - Bias) << 23) + tie + (rest >> (23 - Mantissa) & 1)) >> (23 - Mantissa);
        if (rest > 0x7f800000u) code = nan;
        else if (code > largest) code = infinity;
        if (Kind == Float8Kind::fnuz) return uint8_t(code == 0 || code == nan ? code : code | sign);
        return uint8_t(code | sign);
    }

private:
    static constexpr float as_power(int exponent) {
        float x = 1;
        for (; exponent > 0; exponent--) x *= 2;
        for (; exponent < 0; exponent++) x /= 2;
        return x;
    }
};

// A power of two without sign: the exponent of a float.
struct Float8Exponent {
    static WISP_INLINE float decode(uint8_t code) {
        return float_of_bits(code == 0xff ? 0x7fc00000u : code == 0 ? 0x00400000u : uint32_t(code) << 23);
    }
    static WISP_INLINE uint8_t encode(float x) {
        const uint32_t u = float_bits(x), exponent = u >> 23 & 0xff, rest = u & 0x7fffff;
        if (exponent == 0xff) return 0xff;
        return uint8_t(exponent + (rest > 0x400000 || (rest == 0x400000 && exponent > 0)));
    }
};
