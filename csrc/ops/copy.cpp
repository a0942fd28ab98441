// Front doors that move values: copy_, clone, contiguous, casts, fills, item.
#include "../autograd/whole.h"
#include "../compile/tape.h"
#include "../kernels/copy.h"

#include <cstring>

#include "../cuda/runtime.h"
#include "../kernels/index.h"
#include "../python/registry.h"
#include "format.h"
#include "gather.h"

namespace wisp {

// to = from of the same shape, on the current device.
static void copy_here(const Tensor& to, const Tensor& from, bool conjugate = false) {
    kernels::copy().copy(to.device_data(), to.dtype(), to.strides().data(), from.device_data(), from.dtype(), from.strides().data(),
                         from.sizes().data(), int(from.dim()), conjugate);
}

// Between devices: as dense bytes of the target's dtype where the target can take them, else through a copy there.
static void copy_across(const Tensor& to, const Tensor& from, bool wait) {
    auto alike = [](const Tensor& a, const Tensor& b) {  // the same bytes, in the same order
        return a.dtype() == b.dtype() &&
               ((a.is_contiguous() && b.is_contiguous()) || (a.strides() == b.strides() && a.layout().is_non_overlapping_and_dense()));
    };
    Tensor source = from;
    if (!alike(to, from) && (!from.is_contiguous() || (from.dtype() != to.dtype() && from.item_size() > to.item_size()))) {
        source = empty(from.sizes(), from.item_size() > to.item_size() ? to.dtype() : from.dtype(), from.device());
        copy_values(source, from);
    }
    const bool straight = alike(to, source);
    const Tensor target = straight ? to : empty(to.sizes(), source.dtype(), to.device());
    const size_t bytes = size_t(source.numel() * source.item_size());
    auto place = [](const Tensor& t) { return static_cast<char*>(t.storage()->data()) + t.offset() * t.item_size(); };
    if (to.is_cuda() && source.is_cuda()) {
        cuda::between(place(target), to.device().index, place(source), source.device().index, bytes);
    } else if (to.is_cuda()) {
        OnDevice on(to.device());
        const bool pinned = cuda::is_pinned(source.storage());
        cuda::to_device(place(target), place(source), bytes, pinned && wait);
        if (pinned && !wait) cuda::note_copy(source.storage(), cuda::current_stream());
    } else if (source.is_cuda()) {
        OnDevice on(source.device());
        const bool pinned = cuda::is_pinned(target.storage());
        cuda::to_host(place(target), place(source), bytes, wait || !straight);
        if (pinned && !wait) cuda::note_copy(target.storage(), cuda::current_stream());
    } else {
        std::memcpy(place(target), place(source), bytes);
    }
    if (!straight) copy_values(to, target);
}

void copy_values(const Tensor& to, const Tensor& from, bool wait) {
    const int64_t n = to.numel();
    if (n == 0) return;
    if (devices_in_use) [[unlikely]] {
        if (to.device().type == DeviceType::meta) return;
        if (from.device().type == DeviceType::meta)
            throw NotImplemented("Cannot copy out of meta tensor; no data! (shape ", from.sizes(),
                                 "; use Module.to_empty() to move a module off meta)");
        if (!(to.device() == from.device())) return copy_across(to, from, wait);
        if (!(to.device() == current_device())) {
            OnDevice on(to.device());
            return copy_values(to, from, wait);
        }
    }
    if (to.dtype() == from.dtype() && to.is_contiguous() && from.is_contiguous() && n < 65536) {
        return kernels::copy().copy_bytes(to.device_data(), from.device_data(), size_t(n * to.item_size()));
    }
    Tensor source = from;
    if (to.storage() == from.storage()) {
        if (to.device_data() == from.device_data() && to.strides() == from.strides() && to.dtype() == from.dtype()) return;
        source = empty(from.sizes(), from.dtype(), from.device());  // overlapping memory: through a copy
        copy_here(source, from);
    }
    Unlocked unlocked(n);
    copy_here(to, source);
}

void resize(const Tensor& t, const Dims& sizes) {
    for (int64_t s : sizes)
        if (s < 0) throw RuntimeError("Trying to resize a tensor to a negative dimension ", s, ": ", sizes);
    const int64_t n = product(sizes);
    if (n == 0) {
        int64_t step = 1;
        for (int64_t i = sizes.size() - 1; i > 0; i--)
            if (__builtin_mul_overflow(step, std::max<int64_t>(sizes[i], 1), &step))
                throw RuntimeError("Stride calculation overflowed: the strides of shape ", sizes, " do not fit into 64 bits");
    }
    if (n) t.storage()->grow(size_t(times(plus(t.offset(), n), t.item_size())));
    t->layout = Layout{sizes, contiguous_strides(sizes), t.offset()};
    t->numel = n;
    t->contiguous = true;
}

Tensor expanded(const Tensor& t, const Dims& sizes) {
    if (t.sizes() == sizes) return t;
    if (!is_expandable(t.sizes(), sizes)) throw RuntimeError("a tensor of shape ", t.sizes(), " can't be broadcast to the shape ", sizes);
    return alias(t, Layout{sizes, broadcast_strides(t.sizes(), t.strides(), sizes), t.offset()});
}

Tensor copy_(const Tensor& self, const Tensor& src, bool wait) {
    if (!is_expandable(src.sizes(), self.sizes()))
        throw RuntimeError("copy_: the size of the source ", src.sizes(), " can't be broadcast to the size of the destination ",
                           self.sizes());
    const bool recording = grad_enabled() && is_differentiable(self.dtype()) && (self.requires_grad() || src.requires_grad());
    check_inplace(self, "copy_", recording);
    const Tensor from = expanded(src, self.sizes());
    if (sharing(self, from) == Sharing::some_elements) refuse_sharing("copy_");
    copy_values(self, from, wait);
    bump_version(self);
    if (recording)
        record_inplace(self, "CopyBackwards", {self, src}, {}, [device = src.device()](Backward& bw) {
            if (bw.needs(1)) bw.set(1, to(bw.grad(), device));
        });
    return self;
}

static void record_identity(const Tensor& y, const char* name, const Tensor& x) {
    record(y, name, {x}, {}, [](Backward& bw) { bw.set(0, bw.grad()); });
}

// The values of a tensor for one that was just made; in a compiled region, later. On a GPU the program that makes values can write them
// in the order that is asked for, if neighbours stay neighbours.
void copy_to_new(const Tensor& to, const Tensor& from) {
    const bool reordered = noting && from.is_cuda() && from.dim() && to.stride(-1) == 1 && from.stride(-1) == 1;
    if (noting && (reordered || to.strides() == from.strides())) {
        kernels::ProgramStep step;
        step.kind = kernels::StepKind::cast;
        step.compute = step.block = step.result = to.dtype();
        const Arg operand(from);
        if (compile::note(to, step, &operand, 1)) return;
    }
    copy_values(to, from);
}

Tensor clone(const Tensor& t) {
    Tensor r = empty_like(t);
    copy_to_new(r, t);
    if (needs_grad(t)) record_identity(r, "CloneBackward0", t);
    return r;
}

Tensor contiguous(const Tensor& t) {
    if (t.is_contiguous()) return t;
    Tensor r = empty(t.sizes(), t.dtype(), t.device());
    copy_to_new(r, t);
    if (needs_grad(t)) record_identity(r, "CloneBackward0", t);
    return r;
}

bool channels_come_last(const Layout& l) {
    if (l.strides[1] == 0) return false;
    int64_t least = 0;
    constexpr int orders[2][5] = {{1, 3, 2, 0}, {1, 4, 3, 2, 0}};
    const int* order = orders[l.dim() - 4];
    for (int64_t i = 0; i < l.dim(); i++) {
        const int d = order[i];
        if (l.sizes[d] == 0 || l.strides[d] < least || (d == 0 && least == l.strides[1])) return false;  // of [N, 1, 1, 1] either is true
        least = wrapped(l.strides[d], std::max<int64_t>(l.sizes[d], 1));
    }
    return true;
}

Tensor contiguous(const Tensor& t, MemoryFormat format) {
    if (format == MemoryFormat::preserve) throw RuntimeError("preserve memory format is unsupported by the contiguous operator");
    if (t.layout().is_contiguous(format)) return t;
    Tensor r = empty_strided(t.sizes(), strides_for(t.sizes(), format), t.dtype(), t.device());
    copy_values(r, t);
    if (needs_grad(t)) record_identity(r, "CloneBackward0", t);
    return r;
}

Tensor to(const Tensor& t, DType dtype) {
    if (t.dtype() == dtype) return t;
    Tensor r = empty_like(t, dtype);
    copy_to_new(r, t);
    if (needs_grad(t) && is_differentiable(dtype)) record_identity(r, "ToCopyBackward0", t);
    return r;
}

Tensor to(const Tensor& t, Device device, bool wait) {
    if (t.device() == device) return t;
    Tensor r =
        t.is_contiguous() ? empty(t.sizes(), t.dtype(), device) : empty_strided(t.sizes(), strides_like(t.layout()), t.dtype(), device);
    if (t.device() == r.device()) return t;  // "cuda" was the current one
    copy_values(r, t, wait);
    if (needs_grad(t)) record(r, "ToCopyBackward0", {t}, {}, [from = t.device()](Backward& bw) { bw.set(0, to(bw.grad(), from)); });
    return r;
}

static void fill_values(const Tensor& t, const Scalar& value) {
    if (t.numel() == 0 || t.device().type == DeviceType::meta) return;
    alignas(16) char cell[16];
    value.store(cell, t.dtype());
    OnDevice on(t.device());
    kernels::copy().fill(t.device_data(), t.dtype(), t.strides().data(), t.sizes().data(), int(t.dim()), cell);
}

static void zero_values(const Tensor& t) {
    if (!t.is_contiguous()) return fill_values(t, Scalar(0));
    if (t.device().type == DeviceType::meta) return;
    OnDevice on(t.device());
    kernels::copy().zero(t.device_data(), size_t(t.numel() * t.item_size()));
}

static void check_fill(const Tensor& self, const Scalar& value) {
    refuse_large(self.dtype(), value);
    if (value.is_complex() && !is_complex(self.dtype()) && self.dtype() != DType::boolean && value.to_complex().imag() != 0)
        throw RuntimeError("fill_: value ", value, " cannot be converted to type ", self.dtype(), " without overflow");
}

Tensor fill_(const Tensor& self, const Scalar& value) {
    check_fill(self, value);
    const bool recording = grad_enabled() && self.requires_grad();
    check_inplace(self, "fill_", recording, true);
    fill_values(self, value);
    bump_version(self);
    if (recording) record_inplace(self, "FillBackward0", {self}, {}, [](Backward& bw) { bw.set(0, zeros_like(bw.grad())); });
    return self;
}

Tensor zero_(const Tensor& self) {
    const bool recording = grad_enabled() && self.requires_grad();
    check_inplace(self, "zero_", recording, true);
    zero_values(self);
    bump_version(self);
    if (recording) record_inplace(self, "ZeroBackward0", {self}, {}, [](Backward& bw) { bw.set(0, zeros_like(bw.grad())); });
    return self;
}

Tensor filled(const Tensor& fresh, const Scalar& value) {
    check_fill(fresh, value);
    fill_values(fresh, value);
    return fresh;
}
Tensor zeroed(const Tensor& fresh) {
    zero_values(fresh);
    return fresh;
}

Tensor detach(const Tensor& t) { return alias(t); }

Tensor conj(const Tensor& t) {
    if (!is_complex(t.dtype())) return t;
    Tensor r = empty_like(t);
    if (t.numel()) {
        OnDevice on(t.device());
        copy_here(r, t, true);
    }
    if (needs_grad(t)) record(r, "ConjBackward0", {t}, {}, [](Backward& bw) { bw.set(0, conj(bw.grad())); });
    return r;
}

Tensor zeros(const Dims& sizes, DType dtype) { return zeroed(empty(sizes, dtype)); }
Tensor full(const Dims& sizes, const Scalar& value, DType dtype) {
    Tensor t = empty(sizes, dtype);
    fill_values(t, value);
    return t;
}
Tensor ones(const Dims& sizes, DType dtype) { return full(sizes, Scalar(1), dtype); }
Tensor scalar_tensor(const Scalar& value, DType dtype) {
    if (!(current_device() == Device{})) return full({}, value, dtype);  // by a kernel: nothing is copied from the host
    Tensor t = empty({}, dtype, Device{});
    value.store(t.data(), dtype);
    return t;
}
Tensor full_like(const Tensor& t, const Scalar& value) {
    Tensor r = empty_like(t);
    fill_values(r, value);
    return r;
}
Tensor zeros_like(const Tensor& t) { return zeroed(empty_like(t)); }
Tensor ones_like(const Tensor& t) { return full_like(t, Scalar(1)); }
Tensor arange(int64_t n) {
    Tensor t = empty({n}, DType::i64);
    if (t.device().type != DeviceType::meta) kernels::index().count_up(t.device_data<int64_t>(), n, 0, 1);
    return t;
}

// The one element of a tensor on any device; waits for a GPU.
static Scalar load_one(const Tensor& t) {
    if (!t.is_cuda()) return Scalar::load(t.data(), t.dtype());
    alignas(16) char cell[16];
    OnDevice on(t.device());
    cuda::to_host(cell, t.device_data(), size_t(t.item_size()), true);
    return Scalar::load(cell, t.dtype());
}

Scalar item(const Tensor& t) {
    if (t.numel() != 1)
        throw RuntimeError("a Tensor with ", t.numel(), " elements cannot be converted to Scalar; it has shape ", t.sizes(),
                           " (use tolist(), or reduce it first)");
    return load_one(t);
}

bool is_nonzero(const Tensor& t) {
    if (t.numel() == 0) throw RuntimeError("Boolean value of Tensor with no values is ambiguous");
    if (t.numel() > 1)
        throw RuntimeError("Boolean value of Tensor with more than one value is ambiguous; got shape ", t.sizes(), " (use any() or all())");
    return load_one(t).to_bool();
}

// --- names -----------------------------------------------------------------------------------------------------------------

static Tensor copied(const Tensor& t, MemoryFormat f, const char* name) {
    Tensor r = f == MemoryFormat::preserve ? empty_like(t) : empty_strided(t.sizes(), strides_for(t.sizes(), f), t.dtype(), t.device());
    copy_values(r, t);
    if (needs_grad(t)) record_identity(r, name, t);
    return r;
}
static Tensor clone_as(const Tensor& t, std::optional<MemoryFormat> format) {
    return copied(t, format.value_or(MemoryFormat::preserve), "CloneBackward0");
}

static Tensor to_all(const Tensor& t, std::optional<Device> device, std::optional<DType> dtype, bool non_blocking, bool copy,
                     std::optional<MemoryFormat> format) {
    if (dtype && format && *dtype != t.dtype() && needs_grad(t))  // two steps, one node
        return whole("ToCopyBackward0", {t}, [&] { return to_all(to(t, *dtype), device, {}, non_blocking, copy, format); });
    const bool moves = device && !(resolve(*device) == t.device());
    // The narrower of the two dtypes travels.
    Tensor r = dtype && (!moves || item_size(*dtype) <= t.item_size()) ? to(t, *dtype) : t;
    if (moves) r = to(r, resolve(*device), !non_blocking);
    if (dtype) r = to(r, *dtype);
    if (format && *format != MemoryFormat::preserve &&
        (!r.layout().is_contiguous(*format) || (*format != MemoryFormat::contiguous && format_of(r) != *format)))
        r = copied(r, *format, "ToCopyBackward0");
    if (copy && r.same(t)) r = copied(t, MemoryFormat::preserve, "ToCopyBackward0");
    return r;
}

template <DType dtype> static Tensor cast(const Tensor& t, std::optional<MemoryFormat> format) {
    if constexpr (is_stored(dtype)) use_stored(dtype);
    return format ? to_all(t, {}, dtype, false, false, format) : to(t, dtype);
}

Tensor pinned(const Tensor& t) {
    if (t.device().type != DeviceType::cpu)
        throw RuntimeError("cannot pin '", t.device().is_cuda() ? "torch.cuda." : "", type_name(t.dtype()),
                           "Tensor' only dense CPU tensors can be pinned");
    if (cuda::is_pinned(t.storage())) return t;
    if (cuda::device_count() == 0) throw RuntimeError("Cannot access accelerator device when none is available.");
    const Dims strides = strides_like(t.layout());
    Storage* storage = cuda::pinned_storage(size_t(std::max<int64_t>(t.numel() * t.item_size(), 1)));
    Tensor r = from_storage(storage, Layout{t.sizes(), strides, 0}, t.dtype());
    storage->drop();
    copy_values(r, t);
    if (needs_grad(t)) record_identity(r, "PinMemoryBackward0", t);
    return r;
}

static const Operators operators = {
    {"pin_memory(Tensor input, device? device=None)", [](const Tensor& t, std::optional<Device>) { return pinned(t); },
     stored | method | elementwise,
     R"(The tensor in pinned memory of the host, from which copies to a GPU run while the host goes on (`non_blocking=True`); needs a GPU.
        >>> wisp.ones(2).pin_memory() if wisp.cuda.is_available() else wisp.ones(2)
        tensor([1., 1.]))"},
    {"is_pinned(Tensor input, device? device=None)", [](const Tensor& t, std::optional<Device>) { return cuda::is_pinned(t.storage()); },
     stored | method,
     R"(Whether the tensor lies in pinned memory.
        >>> wisp.ones(2).is_pinned()
        False)"},
    {"clone(Tensor input, *, format? memory_format=None)", clone_as, stored | function | method | elementwise,
     R"(A copy with memory of its own; gradients flow through.
        >>> wisp.clone(wisp.tensor([1, 2]))
        tensor([1, 2]))"},
    {"contiguous(Tensor input, format? memory_format=None)",
     [](const Tensor& t, std::optional<MemoryFormat> f) { return f ? contiguous(t, *f) : contiguous(t); }, stored | method | elementwise,
     R"(The tensor itself if its elements lie in order in memory, else a copy that does.
        >>> wisp.ones(2, 3).T.contiguous().stride()
        (2, 1))"},
    {"is_contiguous(Tensor input, format? memory_format=None)",
     [](const Tensor& t, std::optional<MemoryFormat> f) { return f ? t.layout().is_contiguous(*f) : t.is_contiguous(); },
     method | shape_only,
     R"(Whether the elements lie in order in memory.
        >>> wisp.ones(2, 3).T.is_contiguous()
        False)"},
    {"detach(Tensor input)", [](const Tensor& t) { return detach(t); }, function | method | makes_view | elementwise,
     R"(A tensor on the same memory without a history.
        >>> wisp.ones(1, requires_grad=True).detach().requires_grad
        False)"},
    {"alias(Tensor input)", [](const Tensor& t) { return view(t, t.sizes()); }, method | makes_view | takes_batches,
     R"(Another tensor on the same memory; gradients flow through.
        >>> wisp.ones(2).alias()
        tensor([1., 1.]))"},
    {"copy_(Tensor input, Operand src, bool non_blocking=False)",
     [](const Tensor& t, const Arg& src, bool non_blocking) {
         if (!src.tensor) return fill_(t, src.number);
         // A part that would be repeated is refused here, as in PyTorch, but not where it is assigned: x[:] = x[0].
         if (sharing(t, *src.tensor) == Sharing::some_elements) refuse_sharing("copy_");
         return copy_(t, *src.tensor, !non_blocking);
     },
     method | any_device | elementwise,
     R"(Writes the elements of `src`, with broadcasting and conversion, into the tensor.
        >>> wisp.zeros(2).copy_(wisp.tensor(3))
        tensor([3., 3.]))"},
    {"fill_(Tensor input, Operand value)",
     [](const Tensor& t, const Arg& v) {
         if (!v.tensor) return fill_(t, v.number);
         if (v.tensor->dim() != 0)
             throw RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with ", v.tensor->dim(), " dimensions.");
         return copy_(t, *v.tensor);
     },
     stored | function | method | elementwise},
    {"fill(Tensor input, Operand value)",
     [](const Tensor& t, const Arg& v) {
         if (!v.tensor) return whole("FillBackward0", {t}, [&] { return fill_(clone(t), v.number); });
         Tensor r = clone(t);
         if (v.tensor->dim() != 0)
             throw RuntimeError("fill only supports 0-dimension value tensor but got tensor with ", v.tensor->dim(), " dimensions.");
         return copy_(r, *v.tensor);
     },
     stored | function | elementwise,
     R"(A tensor of the same shape full of one number.
        >>> wisp.fill(wisp.zeros(2), 7)
        tensor([7., 7.]))"},
    {"zero_(Tensor input)", [](const Tensor& t) { return zero_(t); }, stored | function | method | elementwise,
     R"(Sets all elements to 0.
        >>> wisp.ones(2).zero_()
        tensor([0., 0.]))"},
    {"to(Tensor input, dtype dtype, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
     [](const Tensor& t, DType d, bool, bool copy, std::optional<MemoryFormat> f) { return to_all(t, {}, d, false, copy, f); },
     method | any_device | elementwise,
     R"(The tensor in another dtype or on another device; itself if there is nothing to do.
        >>> wisp.ones(2).to(wisp.int64)
        tensor([1, 1]))"},
    {"to(Tensor input, device? device=None, dtype? dtype=None, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
     [](const Tensor& t, std::optional<Device> dev, std::optional<DType> d, bool nb, bool copy, std::optional<MemoryFormat> f) {
         return to_all(t, dev, d, nb, copy, f);
     },
     method},
    {"to(Tensor input, Tensor other, bool non_blocking=False, bool copy=False, *, format? memory_format=None)",
     [](const Tensor& t, const Tensor& o, bool nb, bool copy, std::optional<MemoryFormat> f) {
         return to_all(t, o.device(), o.dtype(), nb, copy, f);
     },
     method},
    {"type_as(Tensor input, Tensor other|tensor)",
     [](const Tensor& t, const Tensor& o) { return to_all(t, o.device(), o.dtype(), false, false, {}); }, method | any_device | elementwise,
     R"(The tensor in the dtype of another.
        >>> wisp.ones(2).type_as(wisp.tensor([1]))
        tensor([1, 1]))"},
    {"cpu(Tensor input, format? memory_format=None)",
     [](const Tensor& t, std::optional<MemoryFormat> f) { return to_all(t, Device{}, {}, false, false, f); }, stored | method | elementwise,
     R"(The tensor in main memory.
        >>> wisp.ones(1).cpu().device
        device(type='cpu'))"},
    {"float(Tensor input, format? memory_format=None)", cast<DType::f32>, stored | method | elementwise,
     R"(The tensor as float32.
        >>> wisp.tensor([1]).float()
        tensor([1.]))"},
    {"double(Tensor input, format? memory_format=None)", cast<DType::f64>, stored | method | elementwise,
     R"(The tensor as float64.
        >>> wisp.tensor([1]).double()
        tensor([1.], dtype=torch.float64))"},
    {"half(Tensor input, format? memory_format=None)", cast<DType::f16>, stored | method | elementwise,
     R"(The tensor as float16.
        >>> wisp.tensor([1]).half()
        tensor([1.], dtype=torch.float16))"},
    {"bfloat16(Tensor input, format? memory_format=None)", cast<DType::bf16>, stored | method | elementwise,
     R"(The tensor as bfloat16.
        >>> wisp.tensor([1]).bfloat16()
        tensor([1.], dtype=torch.bfloat16))"},
    {"long(Tensor input, format? memory_format=None)", cast<DType::i64>, stored | method | elementwise,
     R"(The tensor as int64.
        >>> wisp.tensor([1.5]).long()
        tensor([1]))"},
    {"int(Tensor input, format? memory_format=None)", cast<DType::i32>, stored | method | elementwise,
     R"(The tensor as int32.
        >>> wisp.tensor([1.5]).int()
        tensor([1], dtype=torch.int32))"},
    {"short(Tensor input, format? memory_format=None)", cast<DType::i16>, stored | method | elementwise,
     R"(The tensor as int16.
        >>> wisp.tensor([1.5]).short()
        tensor([1], dtype=torch.int16))"},
    {"char(Tensor input, format? memory_format=None)", cast<DType::i8>, stored | method | elementwise,
     R"(The tensor as int8.
        >>> wisp.tensor([1.5]).char()
        tensor([1], dtype=torch.int8))"},
    {"byte(Tensor input, format? memory_format=None)", cast<DType::u8>, stored | method | elementwise,
     R"(The tensor as uint8.
        >>> wisp.tensor([1.5]).byte()
        tensor([1], dtype=torch.uint8))"},
    {"bool(Tensor input, format? memory_format=None)", cast<DType::boolean>, stored | method | elementwise,
     R"(The tensor as booleans: what is not zero is true.
        >>> wisp.tensor([0, 2]).bool()
        tensor([False,  True]))"},
    {"chalf(Tensor input, format? memory_format=None)", cast<DType::c32>, stored | method | elementwise,
     R"(The tensor as complex32.
        >>> wisp.tensor([1.0]).chalf()
        tensor([1.+0.j], dtype=torch.complex32))"},
    {"cfloat(Tensor input, format? memory_format=None)", cast<DType::c64>, stored | method | elementwise,
     R"(The tensor as complex64.
        >>> wisp.tensor([1.0]).cfloat()
        tensor([1.+0.j]))"},
    {"cdouble(Tensor input, format? memory_format=None)", cast<DType::c128>, stored | method | elementwise,
     R"(The tensor as complex128.
        >>> wisp.tensor([1.0]).cdouble()
        tensor([1.+0.j], dtype=torch.complex128))"},
    {"is_nonzero(Tensor input)", [](const Tensor& t) { return is_nonzero(t); }, stored | function | method,
     R"(Whether a tensor of one element is not zero.
        >>> wisp.is_nonzero(wisp.tensor([1]))
        True)"},
    {"is_floating_point(Tensor input)", [](const Tensor& t) { return is_floating(t.dtype()); }, function | method | shape_only,
     R"(Whether the dtype is a floating-point type.
        >>> wisp.is_floating_point(wisp.ones(1))
        True)"},
    {"is_complex(Tensor input)", [](const Tensor& t) { return is_complex(t.dtype()); }, function | method | shape_only,
     R"(Whether the dtype is complex.
        >>> wisp.is_complex(wisp.tensor([1j]))
        True)"},
    {"is_signed(Tensor input)", [](const Tensor& t) { return is_signed(t.dtype()); }, method | shape_only,
     R"(Whether the dtype has negative numbers.
        >>> wisp.ones(1).is_signed()
        True)"},
    {"is_same_size(Tensor input, Tensor other)", [](const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes(); },
     function | method | any_device | shape_only,
     R"(Whether two tensors have the same shape.
        >>> wisp.is_same_size(wisp.ones(2), wisp.zeros(2))
        True)"},
    {"result_type(Operand tensor1, Operand tensor2)",
     [](const Arg& a, const Arg& b) {
         if (a.tensor) return b.tensor ? result_type(*a.tensor, *b.tensor) : result_type(*a.tensor, b.number);
         if (b.tensor) return result_type(*b.tensor, a.number);
         return promote(a.number.dtype(), b.number.dtype());
     },
     function | any_device | shape_only,
     R"(The dtype that arithmetic with these operands gives.
        >>> wisp.result_type(wisp.tensor([1]), 1.5)
        torch.float32)"},
    {"promote_types(dtype type1, dtype type2)", [](DType a, DType b) { return promote(a, b); }, stored | function,
     R"(The smallest dtype that holds both.
        >>> wisp.promote_types(wisp.int32, wisp.float32)
        torch.float32)"},
    {"can_cast(dtype from_, dtype to)",
     [](DType from, DType to) {
         if (is_complex(from) && !is_complex(to)) return false;
         if (is_floating(from) && is_integral(to)) return false;
         return !(is_integral(from) && from != DType::boolean && to == DType::boolean);
     },
     function | shape_only,
     R"(Whether promotion may turn one dtype into another.
        >>> wisp.can_cast(wisp.float32, wisp.int32)
        False)"},
    {"get_default_dtype()", []() { return default_dtype(); }, stored | function,
     R"(The dtype of new floating-point tensors.
        >>> wisp.get_default_dtype()
        torch.float32)"},
    {"set_default_dtype(dtype d)",
     [](DType d) {
         if (!is_floating(d)) throw TypeError("only floating-point types are supported as the default type, got ", d);
         set_default_dtype(d);
     },
     stored | function,
     R"(Sets the dtype of new floating-point tensors.
        >>> wisp.set_default_dtype(wisp.float32))"},
    {"numel(Tensor input)", [](const Tensor& t) { return t.numel(); }, function | shape_only,
     R"(How many elements a tensor has.
        >>> wisp.numel(wisp.ones(2, 3))
        6)"},
    // All bytes of the memory that a tensor views, and a tensor over such bytes.
    {"_storage(Tensor input)",
     [](const Tensor& t) { return from_storage(t.storage(), Layout{{int64_t(t.storage()->bytes)}, {1}, 0}, DType::u8); },
     stored | function},
    {"_from_storage(Tensor storage, dtype dtype, int[] size, int[] stride, int storage_offset=0)",
     [](const Tensor& bytes, DType d, Dims size, Dims stride, int64_t offset) {
         const Tensor whole = from_storage(bytes.storage(), Layout{{int64_t(bytes.storage()->bytes) / item_size(d)}, {1}, 0}, d);
         return alias(as_strided(whole, size, stride, offset));
     },
     stored | function},
    {"_resize_storage(Tensor input, int bytes)",
     [](const Tensor& t, int64_t bytes) {
         if (bytes < 0) throw RuntimeError("resize_(): a storage cannot have ", bytes, " bytes");
         Storage* s = t.storage();
         const bool within = s->is_ours() && !s->device.is_cuda() && size_t(bytes) <= s->block;
         if (!within && size_t(bytes) < s->bytes)
             throw RuntimeError("Trying to resize storage that is not resizable (", s->bytes, " bytes, asked for ", bytes, ")");
         // What is no longer counted stays until the storage goes: tensors may still reach there.
         if (within) s->bytes = size_t(bytes);
         else s->grow(size_t(bytes));
     },
     function | keeps_memory | any_device},
    {"_set(Tensor input, Tensor source)",
     [](const Tensor& t, const Tensor& source) {
         source.storage()->data();  // nothing is written, so notes that read it are not in the way: they run before the version goes up
         set_data(t, source);
         bump_version(t);
         if (t->extra) t->extra->accumulator = nullptr;  // graphs before and after it have nodes of their own
         return t;
     },
     function | keeps_memory | any_device},
    {"resize_(Tensor input, int... size, *, format? memory_format=None)",
     [](const Tensor& t, Dims sizes, std::optional<MemoryFormat> format) {
         if (t.requires_grad() && !inference_mode_enabled()) throw RuntimeError("cannot resize variables that require grad");
         if (format == MemoryFormat::preserve) throw RuntimeError("Unsupported memory format", " preserve_format");
         const bool open = !format || *format == MemoryFormat::contiguous;
         if (t.sizes() == sizes && open) return t;
         const size_t before = t.storage()->bytes;
         resize(t, sizes);
         if (!open) {
             t->layout.strides = strides_for(sizes, *format);
             t->contiguous = t.layout().is_contiguous();
         }
         if (fill_new_memory && t.storage()->bytes > before) {
             const int64_t old = int64_t(before) / t.item_size(), all = int64_t(t.storage()->bytes) / t.item_size();
             fill_unset(from_storage(t.storage(), Layout{{all - old}, {1}, old}, t.dtype()));
         }
         bump_version(t);
         return t;
     },
     stored | method,
     R"(Gives the tensor another size; elements that are added are not initialised.
        >>> wisp.arange(4).resize_(2)
        tensor([0, 1]))"},
};

}  // namespace wisp
