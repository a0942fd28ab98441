// Scalar: a Python number (bool, int, float or complex) on its way into an operator.
#pragma once
#include <complex>
#include <cstdint>

#include "dtype.h"
#include "errors.h"

namespace wisp {

class Scalar {
public:
    // `large` is an integer from 2**63 to 2**64 - 1, which only uint64 holds; as int64 it has the same bits.
    enum class Kind : uint8_t { boolean, integer, large, floating, complex };

    static inline bool any_large = false;  // whether there has been one, which most programs never have

    Scalar() : Scalar(int64_t(0)) {}
    Scalar(bool v) : kind_(Kind::boolean), integer_(v) {}
    Scalar(int v) : Scalar(int64_t(v)) {}
    Scalar(int64_t v) : kind_(Kind::integer), integer_(v) {}
    Scalar(uint64_t v) : kind_(v >> 63 ? Kind::large : Kind::integer), integer_(int64_t(v)) { any_large |= is_large(); }
    Scalar(double v) : kind_(Kind::floating), real_(v) {}
    Scalar(std::complex<double> v) : kind_(Kind::complex), imag_(v.imag()), real_(v.real()) {}

    Kind kind() const { return kind_; }
    bool is_integral() const { return kind_ <= Kind::large; }
    bool is_large() const { return kind_ == Kind::large; }
    bool is_complex() const { return kind_ == Kind::complex; }
    bool is_floating() const { return kind_ == Kind::floating; }
    bool is_bool() const { return kind_ == Kind::boolean; }

    double to_double() const {
        if (is_complex() && imag_ != 0) throw RuntimeError("value cannot be converted to type double without overflow");
        return is_large() ? double(uint64_t(integer_)) : is_integral() ? double(integer_) : real_;
    }
    int64_t to_int() const { return is_integral() ? integer_ : double_to_int(to_double()); }
    bool to_bool() const { return is_integral() ? integer_ != 0 : real_ != 0 || (is_complex() && imag_ != 0); }
    std::complex<double> to_complex() const { return is_complex() ? std::complex<double>(real_, imag_) : to_double(); }
    // The dtype that a tensor made of this number has: bool, int64, uint64 if it is large, the default float or its complex.
    DType dtype() const {
        switch (kind_) {
        case Kind::boolean: return DType::boolean;
        case Kind::integer: return DType::i64;
        case Kind::large: return DType::u64;
        case Kind::floating: return default_dtype();
        default: return complex_of(default_dtype());
        }
    }
    bool operator==(double v) const { return !is_complex() && to_double() == v; }
    Scalar operator-() const {
        if (is_large()) return Scalar(-to_double());
        if (is_integral()) return Scalar(-integer_);
        return is_complex() ? Scalar(-to_complex()) : Scalar(-real_);
    }

    // Writes the number as one element of `dtype`.
    void store(void* to, DType dtype) const;
    static Scalar load(const void* from, DType dtype);

private:
    static int64_t double_to_int(double v) {
        if (v >= 9223372036854775808.0) return INT64_MAX;
        if (!(v >= -9223372036854775808.0)) return INT64_MIN;
        return int64_t(v);
    }
    Kind kind_;
    double imag_ = 0;
    union {
        int64_t integer_;
        double real_;
    };
};

inline std::string text_of(const Scalar& s) {
    if (s.is_complex()) return text_of(s.to_complex().real()) + "+" + text_of(s.to_complex().imag()) + "j";
    if (s.is_large()) return std::to_string(uint64_t(s.to_int()));
    return s.is_bool() ? text_of(s.to_bool()) : s.is_integral() ? text_of(s.to_int()) : text_of(s.to_double());
}

}  // namespace wisp
