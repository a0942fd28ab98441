// Names of dtypes, PyTorch's promotion lattice and the default dtype.
#include "dtype.h"

#include "errors.h"
#include "tensor.h"

namespace wisp {

const char* name_of(DType d) {
    static const char* const names[] = {
#define WISP_X(e, T, n) n,
        WISP_DTYPES(WISP_X)
#undef WISP_X
#define WISP_X(e, n) n,
            WISP_STORED_DTYPES(WISP_X)
#undef WISP_X
    };
    return names[int(d)];
}

void (*stored_in_use)(DType) = nullptr;
DType use_stored(DType d) {
    if (is_stored(d) && stored_in_use) stored_in_use(d);
    return d;
}

DType complex_of(DType d) {
    if (is_float8(d)) throw RuntimeError("Unknown Complex ScalarType for ", type_name(d));
    if (d == DType::f16 || d == DType::c32) return use_stored(DType::c32);
    return d == DType::f64 || d == DType::c128 ? DType::c128 : DType::c64;
}

namespace {
DType default_ = DType::f32;

DType signed_of_at_least(int64_t bytes) { return bytes <= 1 ? DType::i8 : bytes == 2 ? DType::i16 : bytes == 4 ? DType::i32 : DType::i64; }
}  // namespace

DType promote(DType a, DType b) {
    if (a == b) return a;
    if (is_float8(a) || is_float8(b))
        throw RuntimeError("Promotion for Float8 Types is not supported, attempted to promote ", type_name(a), " and ", type_name(b));
    if (is_complex(a) || is_complex(b)) {
        const DType ra = real_of(a), rb = real_of(b);
        return complex_of(!is_floating(ra) ? rb : !is_floating(rb) ? ra : promote(ra, rb));
    }
    if (is_floating(a) || is_floating(b)) {
        if (!is_floating(a)) return b;
        if (!is_floating(b)) return a;
        if (is_reduced(a) && is_reduced(b)) return DType::f32;  // float16 with bfloat16
        return item_size(a) > item_size(b) ? a : b;
    }
    if (a == DType::boolean) return b;
    if (b == DType::boolean) return a;
    if (is_signed(a) == is_signed(b)) return item_size(a) > item_size(b) ? a : b;
    const DType s = is_signed(a) ? a : b, u = is_signed(a) ? b : a;
    if (u == DType::u64 || u == DType::u32 || u == DType::u16) {
        return item_size(u) < item_size(s) ? s : signed_of_at_least(2 * item_size(u));
    }
    return s == DType::i8 ? DType::i16 : s;  // uint8 with a signed type
}

DType default_dtype() { return default_; }
void set_default_dtype(DType d) { default_ = d; }

}  // namespace wisp
