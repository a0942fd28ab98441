// Front doors that move values: copy_, clone, contiguous, casts, fills, item.
#include "../cpu/copy.h"

#include <cstring>

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

}  // namespace wisp
