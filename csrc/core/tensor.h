// Tensor: a counted handle to the one object that C++ and Python share.
//
// The object is a Python object (so identity, attributes, subclasses and the garbage collector need no second
// mechanism) and is touched with the interpreter lock held; kernels see only its pointers and may run without it.
#pragma once
#include <Python.h>

#include <vector>

#include "dtype.h"
#include "errors.h"
#include "layout.h"
#include "scalar.h"
#include "small.h"
#include "storage.h"

namespace wisp {

struct Node;
struct TensorExtra;

struct TensorObject {
    PyObject_HEAD
    PyObject* dict;
    PyObject* weak_references;
    Storage* storage;
    Layout layout;
    int64_t numel;
    DType dtype;
    bool contiguous;
    bool requires_grad;     // asked for on a leaf; a tensor with a grad_fn requires grad too
    bool wrapped_number;    // made from a Python number: weak in promotion
    bool untracked_writes;  // `.data`: in-place writes are not seen by autograd
    bool inference;         // made in inference mode
    bool dual;              // carries a tangent of forward mode: operators on it are recorded
    uint8_t view_kind;      // ViewKind, for in-place rules
    uint32_t output_number;
    uint32_t view_version;  // of the storage, when grad_fn of this view was made
    Node* grad_fn;
    TensorObject* base;  // the tensor that this is a view of
    TensorExtra* extra;  // grad, hooks: allocated when needed
};

// How a view came about decides what an in-place write to it may do.
enum ViewKind : uint8_t {
    view_plain,
    view_no_grad,
    view_multi_output,
    view_other_dtype,
    view_custom,
    view_inference
};  // custom: by a Function

extern PyTypeObject* tensor_type;  // wisp.Tensor

class Tensor {
public:
    Tensor() = default;
    Tensor(const Tensor& other) : p_(other.p_) { Py_XINCREF(object()); }
    Tensor(Tensor&& other) noexcept : p_(other.p_) { other.p_ = nullptr; }
    Tensor& operator=(Tensor other) noexcept {
        std::swap(p_, other.p_);
        return *this;
    }
    ~Tensor() { Py_XDECREF(object()); }
    static Tensor steal(TensorObject* p) {
        Tensor t;
        t.p_ = p;
        return t;
    }
    static Tensor borrow(TensorObject* p) {
        Py_XINCREF(reinterpret_cast<PyObject*>(p));
        return steal(p);
    }

    explicit operator bool() const { return p_ != nullptr; }
    bool defined() const { return p_ != nullptr; }
    TensorObject* get() const { return p_; }
    TensorObject* operator->() const { return p_; }
    PyObject* object() const { return reinterpret_cast<PyObject*>(p_); }
    PyObject* release() {  // gives the reference away
        PyObject* o = object();
        p_ = nullptr;
        return o;
    }
    bool same(const Tensor& other) const { return p_ == other.p_; }

    const Dims& sizes() const { return p_->layout.sizes; }
    const Dims& strides() const { return p_->layout.strides; }
    const Layout& layout() const { return p_->layout; }
    int64_t offset() const { return p_->layout.offset; }
    int64_t dim() const { return p_->layout.sizes.size(); }
    int64_t size(int64_t d) const { return sizes()[d < 0 ? d + dim() : d]; }
    int64_t stride(int64_t d) const { return strides()[d < 0 ? d + dim() : d]; }
    int64_t numel() const { return p_->numel; }
    DType dtype() const { return p_->dtype; }
    Device device() const { return p_->storage->device; }
    bool is_contiguous() const { return p_->contiguous; }
    int64_t item_size() const { return wisp::item_size(p_->dtype); }
    Storage* storage() const { return p_->storage; }
    uint32_t version() const { return p_->storage->version; }
    // Memory that the processor may touch; an operator that has no kernel for the tensor's device ends here with an error.
    char* data() const {
        if (p_->storage->memory.type != DeviceType::cpu) [[unlikely]]
            settle_on_cpu();
        return static_cast<char*>(p_->storage->address) + p_->layout.offset * item_size();
    }
    template <class T> T* data() const { return reinterpret_cast<T*>(data()); }
    // Memory of the device that the running operator works on, for a kernel of that device.
    char* device_data() const {
        if (!(p_->storage->memory == current_device())) [[unlikely]]
            settle_here();
        return static_cast<char*>(p_->storage->address) + p_->layout.offset * item_size();
    }
    template <class T> T* device_data() const { return reinterpret_cast<T*>(device_data()); }
    bool is_cuda() const { return p_->storage->device.is_cuda(); }
    // Whether operators on it must be recorded: it is part of a graph, or has a tangent.
    bool requires_grad() const {
        return p_->grad_fn != nullptr || p_->requires_grad || p_->dual || (p_->base && base_requires_grad(p_->base->dual));
    }
    bool in_graph() const { return p_->grad_fn != nullptr || p_->requires_grad || (p_->base && base_requires_grad(false)); }
    // Nobody else can see this tensor or its memory: it may be overwritten.
    bool exclusively_owned() const {
        return Py_REFCNT(object()) == 1 && p_->storage->references == 1 && p_->storage->is_ours() && !p_->base;
    }

private:
    // Run what is noted of the memory; refuse the tensor if the memory is another device's.
    void settle_on_cpu() const;
    void settle_here() const;
    // A view whose base was written to since takes part in the base's history.
    bool base_requires_grad(bool dual) const {
        return (p_->base->grad_fn || p_->base->requires_grad || dual) && p_->view_version != p_->storage->version &&
               p_->base->dtype == p_->dtype;
    }
    TensorObject* p_ = nullptr;
};

using TensorList = Small<Tensor, 4>;

// --- making tensors (no gradient is recorded by any of these) ---
// On the current device (see device.h) unless one is given.
Tensor empty(const Dims& sizes, DType dtype, Device device);
Tensor empty_strided(const Dims& sizes, const Dims& strides, DType dtype, Device device);
inline Tensor empty(const Dims& sizes, DType dtype) { return empty(sizes, dtype, current_device()); }
inline Tensor empty_strided(const Dims& sizes, const Dims& strides, DType dtype) {
    return empty_strided(sizes, strides, dtype, current_device());
}
Tensor empty_like(const Tensor& t);  // keeps a dense layout, PyTorch's preserve_format
Tensor empty_like(const Tensor& t, DType dtype);
Tensor from_storage(Storage* storage, Layout layout, DType dtype);  // takes its own reference
// Another tensor on the same memory, without history (what detach gives).
Tensor alias(const Tensor& t);
Tensor alias(const Tensor& t, Layout layout);
Tensor scalar_tensor(const Scalar& value, DType dtype);  // 0-dim
Tensor wrapped_number(const Scalar& value);              // 0-dim, weak in promotion

void bump_version(const Tensor& t);
// Points `t` at the memory and layout of `from` (Tensor.data = ..., set_).
void set_data(const Tensor& t, const Tensor& from);
int64_t live_tensors();  // for leak checks

inline bool is_tensor(PyObject* o) { return PyObject_TypeCheck(o, tensor_type); }
inline TensorObject* as_tensor_object(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

// "Float", "Long": PyTorch's names of tensor types in error messages.
const char* type_name(DType d);

// Lets other Python threads run while a long kernel works. `work`: elements touched or multiply-adds. A GPU's kernel is
// only started, which takes no time.
class Unlocked {
public:
    explicit Unlocked(int64_t work) : state_(work > 200000 && !current_device().is_cuda() ? PyEval_SaveThread() : nullptr) {}
    ~Unlocked() {
        if (state_) PyEval_RestoreThread(state_);
    }
    Unlocked(const Unlocked&) = delete;

private:
    PyThreadState* state_;
};

}  // namespace wisp
