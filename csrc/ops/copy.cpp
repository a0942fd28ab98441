// Front doors that move values: copy_, clone, contiguous, casts, fills, item.
#include "../cpu/copy.h"

#include <cstring>

#include "../python/registry.h"
#include "ops.h"

namespace wisp {

void copy_values(const Tensor& to, const Tensor& from) {
    const int64_t n = to.numel();
    if (n == 0) return;
    if (to.dtype() == from.dtype() && to.is_contiguous() && from.is_contiguous() && n < 65536) {
        std::memmove(to.data(), from.data(), size_t(n * to.item_size()));
        return;
    }
    Tensor source = from;
    if (to.storage() == from.storage()) {
        if (to.data() == from.data() && to.strides() == from.strides() && to.dtype() == from.dtype()) return;
        source = empty(from.sizes(), from.dtype());  // overlapping memory: through a copy
        cpu::copy.copy(source.data(), source.dtype(), source.strides().data(), from.data(), from.dtype(), from.strides().data(),
                       from.sizes().data(), int(from.dim()), false);
    }
    Unlocked unlocked(n);
    cpu::copy.copy(to.data(), to.dtype(), to.strides().data(), source.data(), source.dtype(), source.strides().data(), to.sizes().data(),
                   int(to.dim()), false);
}

Tensor expanded(const Tensor& t, const Dims& sizes) {
    if (t.sizes() == sizes) return t;
    return alias(t, Layout{sizes, broadcast_strides(t.sizes(), t.strides(), sizes), t.offset()});
}

Tensor copy_(const Tensor& self, const Tensor& src) {
    if (!is_expandable(src.sizes(), self.sizes()))
        throw RuntimeError("copy_: the size of the source ", src.sizes(), " can't be broadcast to the size of the destination ", self.sizes());
    const bool recording = grad_enabled() && is_differentiable(self.dtype()) && (self.requires_grad() || src.requires_grad());
    check_inplace(self, "copy_", recording);
    copy_values(self, expanded(src, self.sizes()));
    bump_version(self);
    if (recording)
        record_inplace(self, "CopyBackwards", {self, src}, {}, [](Backward& bw) {
            if (bw.needs(1)) bw.set(1, bw.grad());
        });
    return self;
}

static void record_identity(const Tensor& y, const char* name, const Tensor& x) {
    record(y, name, {x}, {}, [](Backward& bw) { bw.set(0, bw.grad()); });
}

Tensor clone(const Tensor& t) {
    Tensor r = empty_like(t);
    copy_values(r, t);
    if (needs_grad(t)) record_identity(r, "CloneBackward0", t);
    return r;
}

Tensor contiguous(const Tensor& t) {
    if (t.is_contiguous()) return t;
    Tensor r = empty(t.sizes(), t.dtype());
    copy_values(r, t);
    if (needs_grad(t)) record_identity(r, "CloneBackward0", t);
    return r;
}

Tensor contiguous(const Tensor& t, MemoryFormat format) {
    if (format == MemoryFormat::preserve) throw RuntimeError("preserve memory format is unsupported by the contiguous operator");
    if (t.layout().is_contiguous(format)) return t;
    Tensor r = empty_strided(t.sizes(), strides_for(t.sizes(), format), t.dtype());
    copy_values(r, t);
    if (needs_grad(t)) record_identity(r, "CloneBackward0", t);
    return r;
}

Tensor to(const Tensor& t, DType dtype) {
    if (t.dtype() == dtype) return t;
    Tensor r = empty_like(t, dtype);
    copy_values(r, t);
    if (needs_grad(t) && is_differentiable(dtype)) record_identity(r, "ToCopyBackward0", t);
    return r;
}

static void fill_values(const Tensor& t, const Scalar& value) {
    if (t.numel() == 0) return;
    alignas(16) char cell[16];
    value.store(cell, t.dtype());
    cpu::copy.fill(t.data(), t.strides().data(), t.sizes().data(), int(t.dim()), cell, t.item_size());
}

Tensor fill_(const Tensor& self, const Scalar& value) {
    if (value.is_complex() && !is_complex(self.dtype()) && value.to_complex().imag() != 0)
        throw RuntimeError("fill_: value ", value, " cannot be converted to type ", self.dtype(), " without overflow");
    const bool recording = grad_enabled() && self.requires_grad();
    check_inplace(self, "fill_", recording);
    fill_values(self, value);
    bump_version(self);
    if (recording) record_inplace(self, "FillBackward0", {self}, {}, [](Backward& bw) { bw.set(0, zeros_like(bw.grad())); });
    return self;
}

Tensor zero_(const Tensor& self) {
    const bool recording = grad_enabled() && self.requires_grad();
    check_inplace(self, "zero_", recording);
    if (self.is_contiguous()) std::memset(self.data(), 0, size_t(self.numel() * self.item_size()));
    else fill_values(self, Scalar(0));
    bump_version(self);
    if (recording) record_inplace(self, "ZeroBackward0", {self}, {}, [](Backward& bw) { bw.set(0, zeros_like(bw.grad())); });
    return self;
}

Tensor detach(const Tensor& t) { return alias(t); }

Tensor conj(const Tensor& t) {
    if (!is_complex(t.dtype())) return t;
    Tensor r = empty_like(t);
    if (t.numel())
        cpu::copy.copy(r.data(), r.dtype(), r.strides().data(), t.data(), t.dtype(), t.strides().data(), t.sizes().data(), int(t.dim()), true);
    if (needs_grad(t)) record(r, "ConjBackward0", {t}, {}, [](Backward& bw) { bw.set(0, conj(bw.grad())); });
    return r;
}

Tensor zeros(const Dims& sizes, DType dtype) {
    Tensor t = empty(sizes, dtype);
    std::memset(t.data(), 0, size_t(t.numel() * t.item_size()));
    return t;
}
Tensor full(const Dims& sizes, const Scalar& value, DType dtype) {
    Tensor t = empty(sizes, dtype);
    fill_values(t, value);
    return t;
}
Tensor ones(const Dims& sizes, DType dtype) { return full(sizes, Scalar(1), dtype); }
Tensor full_like(const Tensor& t, const Scalar& value) {
    Tensor r = empty_like(t);
    fill_values(r, value);
    return r;
}
Tensor zeros_like(const Tensor& t) {
    Tensor r = empty_like(t);
    std::memset(r.data(), 0, size_t(r.numel() * r.item_size()));
    return r;
}
Tensor ones_like(const Tensor& t) { return full_like(t, Scalar(1)); }
Tensor arange(int64_t n) {
    Tensor t = empty({n}, DType::i64);
    int64_t* p = t.data<int64_t>();
    for (int64_t i = 0; i < n; i++) p[i] = i;
    return t;
}

Scalar item(const Tensor& t) {
    if (t.numel() != 1)
        throw RuntimeError("a Tensor with ", t.numel(), " elements cannot be converted to Scalar; it has shape ", t.sizes(),
                           " (use tolist(), or reduce it first)");
    return Scalar::load(t.data(), t.dtype());
}

bool is_nonzero(const Tensor& t) {
    if (t.numel() == 0) throw RuntimeError("Boolean value of Tensor with no values is ambiguous");
    if (t.numel() > 1)
        throw RuntimeError("Boolean value of Tensor with more than one value is ambiguous; got shape ", t.sizes(), " (use any() or all())");
    return Scalar::load(t.data(), t.dtype()).to_bool();
}

// --- names -----------------------------------------------------------------------------------------------------------------

static Tensor clone_as(const Tensor& t, std::optional<MemoryFormat> format) {
    const MemoryFormat f = format.value_or(MemoryFormat::preserve);
    if (f == MemoryFormat::preserve) return clone(t);
    Tensor r = empty_strided(t.sizes(), strides_for(t.sizes(), f), t.dtype());
    copy_values(r, t);
    if (needs_grad(t)) record_identity(r, "CloneBackward0", t);
    return r;
}

static void check_device(const std::optional<Device>& device, DType dtype) {
    if (device && device->type != DeviceType::cpu) empty({0}, dtype, *device);
}

static Tensor to_all(const Tensor& t, std::optional<Device> device, std::optional<DType> dtype, bool copy, std::optional<MemoryFormat> format) {
    check_device(device, t.dtype());
    Tensor r = dtype ? to(t, *dtype) : t;
    if (format && *format != MemoryFormat::preserve && !r.layout().is_contiguous(*format)) r = clone_as(r, format);
    if (copy && r.same(t)) r = clone(t);
    return r;
}

template <DType dtype> static Tensor cast(const Tensor& t, std::optional<MemoryFormat> format) { return to_all(t, {}, dtype, false, format); }

static const Operators operators = {
    {"clone(Tensor input, *, format? memory_format=None)", clone_as, function | method},
    {"contiguous(Tensor input, format? memory_format=None)",
     [](const Tensor& t, std::optional<MemoryFormat> f) { return f ? contiguous(t, *f) : contiguous(t); }, method},
    {"is_contiguous(Tensor input, format? memory_format=None)",
     [](const Tensor& t, std::optional<MemoryFormat> f) { return f ? t.layout().is_contiguous(*f) : t.is_contiguous(); }, method},
    {"detach(Tensor input)", [](const Tensor& t) { return detach(t); }, function | method},
    {"alias(Tensor input)", [](const Tensor& t) { return view(t, t.sizes()); }, method},
    {"copy_(Tensor input, Operand src, bool non_blocking=False)", [](const Tensor& t, const Arg& src, bool) {
         return copy_(t, src.tensor ? *src.tensor : scalar_tensor(src.number, t.dtype()));
     }, method},
    {"fill_(Tensor input, Operand value)", [](const Tensor& t, const Arg& v) {
         if (!v.tensor) return fill_(t, v.number);
         if (v.tensor->dim() != 0) throw RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with ", v.tensor->dim(), " dimensions.");
         return copy_(t, *v.tensor);
     }, function | method},
    {"fill(Tensor input, Operand value)", [](const Tensor& t, const Arg& v) {
         Tensor r = clone(t);
         if (!v.tensor) return fill_(r, v.number);
         if (v.tensor->dim() != 0) throw RuntimeError("fill only supports 0-dimension value tensor but got tensor with ", v.tensor->dim(), " dimensions.");
         return copy_(r, *v.tensor);
     }, function},
    {"zero_(Tensor input)", [](const Tensor& t) { return zero_(t); }, function | method},
    {"to(Tensor input, dtype dtype, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
     [](const Tensor& t, DType d, bool, bool copy, std::optional<MemoryFormat> f) { return to_all(t, {}, d, copy, f); }, method},
    {"to(Tensor input, device? device=None, dtype? dtype=None, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
     [](const Tensor& t, std::optional<Device> dev, std::optional<DType> d, bool, bool copy, std::optional<MemoryFormat> f) { return to_all(t, dev, d, copy, f); }, method},
    {"to(Tensor input, Tensor other, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
     [](const Tensor& t, const Tensor& o, bool, bool copy, std::optional<MemoryFormat> f) { return to_all(t, {}, o.dtype(), copy, f); }, method},
    {"type_as(Tensor input, Tensor other)", [](const Tensor& t, const Tensor& o) { return to(t, o.dtype()); }, method},
    {"cpu(Tensor input, format? memory_format=None)", [](const Tensor& t, std::optional<MemoryFormat>) { return t; }, method},
    {"float(Tensor input, format? memory_format=None)", cast<DType::f32>, method},
    {"double(Tensor input, format? memory_format=None)", cast<DType::f64>, method},
    {"half(Tensor input, format? memory_format=None)", cast<DType::f16>, method},
    {"bfloat16(Tensor input, format? memory_format=None)", cast<DType::bf16>, method},
    {"long(Tensor input, format? memory_format=None)", cast<DType::i64>, method},
    {"int(Tensor input, format? memory_format=None)", cast<DType::i32>, method},
    {"short(Tensor input, format? memory_format=None)", cast<DType::i16>, method},
    {"char(Tensor input, format? memory_format=None)", cast<DType::i8>, method},
    {"byte(Tensor input, format? memory_format=None)", cast<DType::u8>, method},
    {"bool(Tensor input, format? memory_format=None)", cast<DType::boolean>, method},
    {"cfloat(Tensor input, format? memory_format=None)", cast<DType::c64>, method},
    {"cdouble(Tensor input, format? memory_format=None)", cast<DType::c128>, method},
    {"is_nonzero(Tensor input)", [](const Tensor& t) { return is_nonzero(t); }, function | method},
    {"is_floating_point(Tensor input)", [](const Tensor& t) { return is_floating(t.dtype()); }, function | method},
    {"is_complex(Tensor input)", [](const Tensor& t) { return is_complex(t.dtype()); }, function | method},
    {"is_signed(Tensor input)", [](const Tensor& t) { return is_signed(t.dtype()); }, method},
    {"is_same_size(Tensor input, Tensor other)", [](const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes(); }, function | method},
    {"result_type(Operand tensor1, Operand tensor2)", [](const Arg& a, const Arg& b) {
         if (a.tensor) return b.tensor ? result_type(*a.tensor, *b.tensor) : result_type(*a.tensor, b.number);
         if (b.tensor) return result_type(*b.tensor, a.number);
         return promote(a.number.dtype(), b.number.dtype());
     }, function},
    {"promote_types(dtype type1, dtype type2)", [](DType a, DType b) { return promote(a, b); }, function},
    {"can_cast(dtype from_, dtype to)", [](DType from, DType to) {
         if (is_complex(from) && !is_complex(to)) return false;
         if (is_floating(from) && is_integral(to)) return false;
         return !(is_integral(from) && from != DType::boolean && to == DType::boolean);
     }, function},
    {"get_default_dtype()", []() { return default_dtype(); }, function},
    {"set_default_dtype(dtype d)", [](DType d) {
         if (!is_floating(d)) throw TypeError("only floating-point types are supported as the default type, got ", d);
         set_default_dtype(d);
     }, function},
    {"numel(Tensor input)", [](const Tensor& t) { return t.numel(); }, function},
    // All bytes of the memory that a tensor views, and a tensor over such bytes.
    {"_storage(Tensor input)", [](const Tensor& t) {
         return from_storage(t.storage(), Layout{{int64_t(t.storage()->bytes)}, {1}, 0}, DType::u8);
     }, function},
    {"_from_storage(Tensor storage, dtype dtype, int[] size, int[] stride, int storage_offset=0)",
     [](const Tensor& bytes, DType d, Dims size, Dims stride, int64_t offset) {
         const Tensor whole = from_storage(bytes.storage(), Layout{{int64_t(bytes.storage()->bytes) / item_size(d)}, {1}, 0}, d);
         return alias(as_strided(whole, size, stride, offset));
     }, function},
    {"_set(Tensor input, Tensor source)", [](const Tensor& t, const Tensor& source) {
         set_data(t, source);
         bump_version(t);
         return t;
     }, function},
    {"resize_(Tensor input, int... size, *, format? memory_format=None)", [](const Tensor& t, Dims sizes, std::optional<MemoryFormat>) {
         if (t.requires_grad()) throw RuntimeError("cannot resize variables that require grad");
         const int64_t n = product(sizes), room = int64_t(t.storage()->bytes) / t.item_size() - t.offset();
         if (n <= room) {
             t->layout = Layout{sizes, contiguous_strides(sizes), t.offset()};
             t->numel = n;
             t->contiguous = true;
         } else {
             Tensor bigger = empty(sizes, t.dtype());
             const int64_t keep = std::min(n, room);
             std::memcpy(bigger.data(), t.data(), size_t(std::max<int64_t>(keep, 0) * t.item_size()));
             set_data(t, bigger);
         }
         bump_version(t);
         return t;
     }, method},
};

}  // namespace wisp
