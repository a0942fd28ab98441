// The tensor object: allocation with a free list, destruction, aliases.
#include "tensor.h"

#include "above.h"

namespace wisp {

PyTypeObject* tensor_type = nullptr;
void (*drop_extra)(TensorObject*) = nullptr;
constinit thread_local bool inference_mode = false;

void init_tensor_fields(TensorObject* o);

namespace {

constexpr int free_limit = 256;
TensorObject* free_list[free_limit];
int free_count = 0;
int64_t live = 0;

TensorObject* new_object() {
    TensorObject* o;
    if (free_count) {
        o = free_list[--free_count];
        PyObject_Init(reinterpret_cast<PyObject*>(o), tensor_type);
    } else {
        o = PyObject_GC_New(TensorObject, tensor_type);
        if (!o) throw PythonError();
        new (&o->layout) Layout();
    }
    init_tensor_fields(o);
    return o;
}

}  // namespace

// Fields other than the layout, which is constructed once and reused with the memory.
void init_tensor_fields(TensorObject* o) {
    live++;
    o->dict = o->weak_references = nullptr;
    o->storage = nullptr;
    o->layout.offset = 0;
    o->contiguous = true;
    o->requires_grad = o->wrapped_number = o->untracked_writes = o->inference = o->dual = false;
    o->view_kind = view_plain;
    o->output_number = o->view_version = 0;
    o->grad_fn = nullptr;
    o->base = nullptr;
    o->extra = nullptr;
}

void clear_tensor_fields(TensorObject* o) {
    Node* grad_fn = o->grad_fn;
    if (o->extra) drop_extra(o);
    o->grad_fn = nullptr;
    if (grad_fn) Py_DECREF(reinterpret_cast<PyObject*>(grad_fn));
    if (TensorObject* base = o->base) {
        o->base = nullptr;
        Py_DECREF(reinterpret_cast<PyObject*>(base));
    }
    Py_CLEAR(o->dict);
}

void dealloc_tensor(PyObject* self) {
    auto* o = reinterpret_cast<TensorObject*>(self);
    const bool exact = Py_TYPE(self) == tensor_type;
    if (PyObject_GC_IsTracked(self)) PyObject_GC_UnTrack(self);
    if (o->weak_references) PyObject_ClearWeakRefs(self);
    clear_tensor_fields(o);
    if (o->storage) o->storage->drop();
    o->storage = nullptr;
    live--;
    if (exact && free_count < free_limit) {
        free_list[free_count++] = o;
        return;
    }
    o->layout.~Layout();
    Py_TYPE(self)->tp_free(self);
}

int64_t live_tensors() { return live; }

static Tensor make(Storage* storage, DType dtype) {
    TensorObject* o = new_object();
    o->storage = storage;
    o->dtype = dtype;
    o->inference = inference_mode;
    return Tensor::steal(o);
}

void Tensor::settle_on_cpu() const {
    const Device d = device();
    storage()->data();
    if (d.type == DeviceType::cpu) return;
    throw MissingKernel(
        d.type == DeviceType::meta ? "a meta tensor has no data" : str("there is no kernel for tensors on ", text_of(d)),
        " (got one of shape ", sizes(), " and dtype ", dtype(), "); ",
        d.type == DeviceType::meta ? "make it with device='cpu', or fill an empty_like of it" : "move it with .cpu() for this operator");
}

void Tensor::settle_here() const {
    storage()->data();
    if (device() == current_device()) return;
    throw RuntimeError("Expected all tensors to be on the same device, but found at least two devices, ", text_of(current_device()),
                       " and ", text_of(device()), "! (a tensor of shape ", sizes(), " is on the latter; move it with .to(device))");
}

Tensor empty(const Dims& sizes, DType dtype, Device device) {
    if (!(device == Device{})) device = resolve(device);
    int64_t n = 1;
    for (int64_t s : sizes) {
        if (s < 0) throw RuntimeError("Trying to create tensor with negative dimension ", s, ": ", sizes);
        if (__builtin_mul_overflow(n, s, &n)) n = product(sizes);
    }
    if (n > INT64_MAX / 16)
        throw RuntimeError("Storage size calculation overflowed: a tensor of shape ", sizes, " is too large to be addressed");
    const size_t bytes = size_t(n * item_size(dtype));
    Tensor t = make(device == Device{} ? Storage::make(bytes) : Storage::make(bytes, device), dtype);
    TensorObject* o = t.get();
    const int64_t d = sizes.size();
    o->layout.sizes = sizes;
    o->layout.strides.resize(d);
    int64_t step = 1;
    for (int64_t i = d - 1; i >= 0; i--) {
        o->layout.strides[i] = step;
        step = wrapped(step, std::max<int64_t>(sizes[i], 1));
    }
    o->numel = n;
    return t;
}

Tensor empty_strided(const Dims& sizes, const Dims& strides, DType dtype, Device device) {
    if (sizes.size() != strides.size())
        throw RuntimeError("dimensionality of sizes (", sizes.size(), ") must match dimensionality of strides (", strides.size(), ")");
    for (int64_t s : strides)
        if (s < 0) throw RuntimeError("empty_strided: strides must be non-negative, got ", strides);
    for (int64_t s : sizes)
        if (s < 0) throw RuntimeError("Trying to create tensor with negative dimension ", s, ": ", sizes);
    if (!(device == Device{})) device = resolve(device);
    const int64_t n = product(sizes);
    Layout layout{sizes, strides, 0};
    Tensor t = make(Storage::make(size_t(times(layout.extent(), item_size(dtype))), device), dtype);
    t->layout = std::move(layout);
    t->numel = n;
    t->contiguous = t->layout.is_contiguous();
    return t;
}

Tensor empty_like(const Tensor& t, DType dtype) {
    if (t.is_contiguous()) return empty(t.sizes(), dtype, t.device());
    return empty_strided(t.sizes(), strides_like(t.layout()), dtype, t.device());
}
Tensor empty_like(const Tensor& t) { return empty_like(t, t.dtype()); }

Tensor from_storage(Storage* storage, Layout layout, DType dtype) {
    storage->retain();
    Tensor t = make(storage, dtype);
    t->numel = product(layout.sizes);
    t->layout = std::move(layout);
    t->contiguous = t->layout.is_contiguous();
    return t;
}

Tensor alias(const Tensor& t) {
    t.storage()->retain();
    Tensor r = make(t.storage(), t.dtype());
    r->layout = t.layout();
    r->numel = t.numel();
    r->contiguous = t->contiguous;
    r->untracked_writes = t->untracked_writes;
    return r;
}

Tensor alias(const Tensor& t, Layout layout) {
    t.storage()->retain();
    Tensor r = make(t.storage(), t.dtype());
    r->layout = std::move(layout);
    r->numel = product(r->layout.sizes);
    r->contiguous = r->layout.is_contiguous();
    r->untracked_writes = t->untracked_writes;
    return r;
}

Tensor wrapped_number(const Scalar& value) {
    const DType dtype = value.is_floating() ? DType::f64 : value.is_complex() ? DType::c128 : value.dtype();
    Tensor t = empty({}, dtype, Device{});  // a number lives on the CPU and joins tensors of any device
    value.store(t.data(), dtype);
    t->wrapped_number = true;
    return t;
}

void set_data(const Tensor& t, const Tensor& from) {
    from.storage()->retain();
    t.storage()->drop();
    t->storage = from.storage();
    t->layout = from.layout();
    t->numel = from.numel();
    t->dtype = from.dtype();
    t->contiguous = from->contiguous;
}

const char* type_name(DType d) {
    static const char* const names[] = {"Byte",
                                        "Char",
                                        "Short",
                                        "Int",
                                        "Long",
                                        "Half",
                                        "Float",
                                        "Double",
                                        "ComplexFloat",
                                        "ComplexDouble",
                                        "Bool",
                                        "BFloat16",
                                        "UInt16",
                                        "UInt32",
                                        "UInt64",
                                        "ComplexHalf",
                                        "Float8_e4m3fn",
                                        "Float8_e5m2",
                                        "Float8_e4m3fnuz",
                                        "Float8_e5m2fnuz",
                                        "Float8_e8m0fnu"};
    return names[int(d)];
}

}  // namespace wisp
