// DLPack: sharing memory with other libraries, both ways. The structs are DLPack's own ABI (version 0.8, unversioned).
#include <cstdint>

#include "../ops/ops.h"
#include "registry.h"

namespace wisp {
namespace {

struct DLDevice {
    int32_t type, id;
};
struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
};
struct DLTensor {
    void* data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct DLManagedTensor {
    DLTensor tensor;
    void* context;
    void (*deleter)(DLManagedTensor*);
};
enum { code_int = 0, code_uint = 1, code_float = 2, code_bfloat = 4, code_complex = 5, code_bool = 6 };
constexpr uint8_t float8_codes[] = {10, 12, 11, 13, 14};  // e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e8m0fnu
enum { device_cpu = 1, device_cuda = 2, device_pinned = 3 };

struct Exported {
    DLManagedTensor managed;
    Tensor tensor;
    Dims shape, strides;
};

DLDataType to_dl(DType d) {
    const uint8_t bits = uint8_t(8 * item_size(d));
    const uint8_t code = d == DType::boolean ? code_bool
                         : d == DType::bf16  ? code_bfloat
                         : is_float8(d)      ? float8_codes[int(d) - int(DType::f8_e4m3fn)]
                         : is_complex(d)     ? code_complex
                         : is_floating(d)    ? code_float
                         : is_signed(d)      ? code_int
                                             : code_uint;
    return {code, bits, 1};
}

DType from_dl(DLDataType t) {
    if (t.lanes == 1)
        for (int i = 0; i < int(DType::count); i++) {
            const DLDataType d = to_dl(DType(i));
            if (d.code == t.code && d.bits == t.bits) return use_stored(DType(i));
        }
    throw RuntimeError("from_dlpack: unsupported element type (code ", int(t.code), ", ", int(t.bits), " bits, ", int(t.lanes), " lanes)");
}

void destroy_capsule(PyObject* capsule) {
    if (PyCapsule_IsValid(capsule, "dltensor")) {  // nobody took it
        auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
        if (m->deleter) m->deleter(m);
    }
}

PyObject* to_dlpack(const Tensor& t) {
    if (t.requires_grad()) throw RuntimeError("Can't export tensors that require gradient, use tensor.detach()");
    auto* e = new Exported{{}, alias(t), t.sizes(), t.strides()};
    const bool on_gpu = t.device().is_cuda();
    const DLDevice device = on_gpu ? DLDevice{device_cuda, t.device().index} : DLDevice{device_cpu, 0};
    e->managed.tensor = {
        on_gpu ? t.device_data() : t.data(), device, int32_t(t.dim()), to_dl(t.dtype()), e->shape.data(), e->strides.data(), 0};
    e->managed.context = e;
    e->managed.deleter = [](DLManagedTensor* m) {
        const PyGILState_STATE state = PyGILState_Ensure();
        delete static_cast<Exported*>(m->context);
        PyGILState_Release(state);
    };
    return PyCapsule_New(&e->managed, "dltensor", destroy_capsule);
}

Tensor from_capsule(PyObject* capsule) {
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    if (!m) throw PythonError();
    const DLTensor& d = m->tensor;
    const bool on_gpu = d.device.type == device_cuda;
    if (!on_gpu && d.device.type != device_cpu && d.device.type != device_pinned)
        throw RuntimeError("from_dlpack: the data lies on a device of type ", int(d.device.type),
                           ", expected the CPU (1 or 3) or CUDA (2)");
    const Device device = on_gpu ? resolve({DeviceType::cuda, int8_t(d.device.id)}) : Device{};
    const DType dtype = from_dl(d.dtype);
    Layout layout;
    layout.sizes = Dims(d.shape, d.ndim);
    layout.strides = d.strides ? Dims(d.strides, d.ndim) : contiguous_strides(layout.sizes);
    for (int64_t s : layout.strides)
        if (s < 0) throw RuntimeError("from_dlpack: negative strides are not supported, got ", layout.strides);
    const int64_t bytes = product(layout.sizes) ? layout.extent() * item_size(dtype) : 0;
    PyCapsule_SetName(capsule, "used_dltensor");
    Storage* s = Storage::wrap(
        static_cast<char*>(d.data) + d.byte_offset, size_t(bytes),
        [](Storage* s) {
            auto* m = static_cast<DLManagedTensor*>(s->owner);
            if (m->deleter) m->deleter(m);
        },
        m);
    s->place_on(device);
    Tensor t = from_storage(s, std::move(layout), dtype);
    s->drop();
    return t;
}

const Operators operators = {
    {"_to_dlpack(Tensor input)", to_dlpack, stored | function},
    {"_from_dlpack(any capsule)", from_capsule, stored | function},
};

}  // namespace
}  // namespace wisp
