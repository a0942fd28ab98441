// Scalars to and from elements of any dtype.
#include "scalar.h"

#include "float8.h"

namespace wisp {

void Scalar::store(void* to, DType dtype) const {
    if (dtype == DType::f32 && is_floating()) {  // what most calls store
        *static_cast<float*>(to) = float(real_);
        return;
    }
    switch (dtype) {
    case DType::boolean: *static_cast<bool*>(to) = to_bool(); break;
    case DType::f16: *static_cast<f16*>(to) = f16(float(to_double())); break;
    case DType::bf16: *static_cast<bf16*>(to) = bf16(float(to_double())); break;
    case DType::f32: *static_cast<float*>(to) = float(to_double()); break;
    case DType::f64: *static_cast<double*>(to) = to_double(); break;
    case DType::c64: *static_cast<c64*>(to) = c64(to_complex()); break;
    case DType::c128: *static_cast<c128*>(to) = to_complex(); break;
    case DType::c32: {
        const c64 z = c64(to_complex());
        static_cast<f16*>(to)[0] = f16(z.real());
        static_cast<f16*>(to)[1] = f16(z.imag());
        break;
    }
    case DType::f8_e4m3fn:
    case DType::f8_e5m2:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
    case DType::f8_e8m0fnu:
        with_float8(dtype, [&](auto format) { *static_cast<uint8_t*>(to) = decltype(format)::encode(float(to_double())); });
        break;
    case DType::u64: *static_cast<uint64_t*>(to) = is_integral() ? uint64_t(to_int()) : uint64_t(to_double()); break;
    default: {
        const int64_t v = to_int();
        switch (item_size(dtype)) {
        case 1: *static_cast<int8_t*>(to) = int8_t(v); break;
        case 2: *static_cast<int16_t*>(to) = int16_t(v); break;
        case 4: *static_cast<int32_t*>(to) = int32_t(v); break;
        default: *static_cast<int64_t*>(to) = v;
        }
    }
    }
}

Scalar Scalar::load(const void* from, DType dtype) {
    switch (dtype) {
    case DType::boolean: return Scalar(*static_cast<const uint8_t*>(from) != 0);
    case DType::f16: return Scalar(double(*static_cast<const f16*>(from)));
    case DType::bf16: return Scalar(double(float(*static_cast<const bf16*>(from))));
    case DType::f32: return Scalar(double(*static_cast<const float*>(from)));
    case DType::f64: return Scalar(*static_cast<const double*>(from));
    case DType::c64: return Scalar(c128(*static_cast<const c64*>(from)));
    case DType::c128: return Scalar(*static_cast<const c128*>(from));
    case DType::c32: return Scalar(c128(double(static_cast<const f16*>(from)[0]), double(static_cast<const f16*>(from)[1])));
    case DType::f8_e4m3fn:
    case DType::f8_e5m2:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
    case DType::f8_e8m0fnu: {
        float x = 0;
        with_float8(dtype, [&](auto format) { x = decltype(format)::decode(*static_cast<const uint8_t*>(from)); });
        return Scalar(double(x));
    }
    case DType::u8: return Scalar(int64_t(*static_cast<const uint8_t*>(from)));
    case DType::i8: return Scalar(int64_t(*static_cast<const int8_t*>(from)));
    case DType::i16: return Scalar(int64_t(*static_cast<const int16_t*>(from)));
    case DType::u16: return Scalar(int64_t(*static_cast<const uint16_t*>(from)));
    case DType::i32: return Scalar(int64_t(*static_cast<const int32_t*>(from)));
    case DType::u32: return Scalar(int64_t(*static_cast<const uint32_t*>(from)));
    case DType::u64: return Scalar(*static_cast<const uint64_t*>(from));
    default: return Scalar(*static_cast<const int64_t*>(from));
    }
}

}  // namespace wisp
