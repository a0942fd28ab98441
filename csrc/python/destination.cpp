#include "destination.h"

#include "../ops/format.h"
#include "../ops/sharing.h"
#include "../ops/sparse.h"

namespace wisp {
namespace {

// Calls f(tensor, whether it is in a list) for every tensor among the arguments.
template <class F> void each_tensor(PyObject* const* arguments, size_t count, const F& f) {
    for (size_t i = 0; i < count; i++) {
        PyObject* given = arguments[i];
        if (is_tensor(given)) {
            f(Tensor::borrow(as_tensor_object(given)), false);
        } else if (PyList_Check(given) || PyTuple_Check(given)) {
            for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(given); k++)
                if (PyObject* item = PySequence_Fast_GET_ITEM(given, k); is_tensor(item)) f(Tensor::borrow(as_tensor_object(item)), true);
        }
    }
}

// Refuses an out= that shares memory with an argument, unless it is that argument as a whole and keeps its shape. -> whether that can
// be told: parts with gaps between them may meet, and then elements must not be written while others are still to be read.
bool check_overlap(const Tensor& out, const Dims& sizes, PyObject* const* arguments, size_t count, const std::string& name) {
    bool clear = true;
    each_tensor(arguments, count, [&](const Tensor& t, bool listed) {
        if (!listed && (out.numel() == 0 || t.numel() == 0)) return;
        const Sharing s = sharing(out, t);
        if (s == Sharing::some_elements || (s == Sharing::same_elements && (listed || !(out.sizes() == sizes))))
            refuse_sharing(name + ", out=");
        clear &= s != Sharing::unclear;
    });
    return clear;
}

void resize_out(const Tensor& out, const Dims& sizes, const std::string& name) {
    if (out.sizes() == sizes) return;
    if (out.numel() != 0)
        warn(str("An output with one or more elements was resized since it had shape ", out.sizes(),
                 ", which does not match the required output shape ", sizes,
                 ". This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they have zero "
                 "elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0). (",
                 name, ")"));
    resize(out, sizes);
}

void make_writable(const Tensor& out, const Dims& sizes, const std::string& name) {
    check_inplace(out, name.c_str(), false);
    resize_out(out, sizes, name);
    check_inplace(out, name.c_str(), false);
}

void copy_out(const Tensor& out, const Tensor& result, const std::string& name, OutRule rule) {
    const DType r = result.dtype(), o = out.dtype();
    const char* got = o == DType::i32 ? "int" : name_of(o);  // as PyTorch has it
    if (rule == OutRule::truth && o != DType::boolean && o != DType::u8)
        throw RuntimeError(name, " only supports bool tensor for result, got: ", type_name(o));
    if ((rule == OutRule::exact || rule == OutRule::decides) && r != o)
        throw RuntimeError("Expected out tensor to have dtype ", r, ", but got ", got, " instead (", name,
                           r == DType::boolean ? std::string(" does not support non-boolean outputs)")
                           : is_complex(r) ? str(": Expected object of scalar type ", type_name(r), " but got scalar type ", type_name(o),
                                                 " for argument 'out')")
                                           : str(": expected scalar_type ", type_name(r), " but found ", type_name(o),
                                                 "; its result is of scalar type ", type_name(r), ")"));
    if (rule == OutRule::castable &&
        ((is_complex(r) && !is_complex(o)) || (is_floating(r) && is_integral(o)) || (r != DType::boolean && o == DType::boolean)))
        throw RuntimeError("result type ", type_name(r), " can't be cast to the desired output type ", type_name(o), " (", name,
                           ", out=): Expected out tensor to have dtype ", r, ", but got ", got,
                           " instead: Expected result to be safely castable from ", type_name(r), " dtype, but got result with dtype ",
                           type_name(o));
    check_same_device(name.c_str(), out, result);
    make_writable(out, result.sizes(), name);
    copy_values(out, result);
    bump_version(out);
}

// Whether its rows are short and have gaps between them: a result beside it and a copy are quicker then than kernels row by row.
bool lies_in_short_rows(const Tensor& t) {
    const int64_t n = t.dim();
    return n >= 2 && t.stride(-1) == 1 && t.size(-1) > 1 && t.size(-1) < 32 && t.stride(-2) != t.size(-1) && t.size(-2) > 1 &&
           t.device() == Device{};
}

// out= of a call, as long as nothing speaks against writing to it at once; else what is made is looked at and copied.
struct OutDestination : Destination {
    const Tensor& out;
    const std::string& name;
    PyObject* const* arguments;
    size_t count;
    OutDestination(const Tensor& out, const std::string& name, PyObject* const* arguments, size_t count)
        : out(out), name(name), arguments(arguments), count(count) {}
    Tensor take(const Dims& sizes, DType dtype) override {
        if (dtype != out.dtype() || !(out.device() == current_device()) || (out.sizes() == sizes && lies_in_short_rows(out)) ||
            !check_overlap(out, sizes, arguments, count, name))
            return {};
        make_writable(out, sizes, name);
        taken = true;
        return out;
    }
    Tensor take_apart(const Dims& sizes, DType dtype, bool (*suits)(const Tensor&), const Tensor& own) override {
        const bool as_it_is = out.sizes() == sizes;  // else it will lie as a new tensor does
        if (dtype != out.dtype() || !(out.device() == current_device()) || (as_it_is && !suits(out))) return {};
        bool apart = true;
        each_tensor(arguments, count, [&](const Tensor& t, bool) {
            const Sharing s = sharing(out, t);
            apart &= s == Sharing::none || (s == Sharing::same_elements && as_it_is && t.same(own));
        });
        if (!apart) return {};
        make_writable(out, sizes, name);
        taken = true;
        return out;
    }
};

// The tensor that an in-place form changes. Others on its memory are read to the end first.
struct OwnDestination : Destination {
    const Tensor& self;
    PyObject* const* others;
    size_t count;
    OwnDestination(const Tensor& self, PyObject* const* others, size_t count) : self(self), others(others), count(count) {}
    Tensor take(const Dims& sizes, DType dtype) override { return take_unless(sizes, dtype, Sharing::same_elements); }
    Tensor take_apart(const Dims& sizes, DType dtype, bool (*suits)(const Tensor&), const Tensor& own) override {
        return self.same(own) && suits(self) ? take_unless(sizes, dtype, Sharing::none) : Tensor();
    }

private:
    Tensor take_unless(const Dims& sizes, DType dtype, Sharing most) {
        if (dtype != self.dtype() || !(sizes == self.sizes()) || !(self.device() == current_device())) return {};
        taken = true;
        each_tensor(others, count, [&](const Tensor& t, bool) {
            const Sharing s = sharing(self, t);
            taken &= s == Sharing::none || s == most;
        });
        return taken ? self : Tensor();
    }
};

}  // namespace

PyObject* call_with_out(const std::string& name, const Overload& o, PyObject** slots, PyObject* out) {
    const auto differentiated = [&](PyObject* given) {
        if (!is_tensor(given) || !FromPython<const Tensor&>::get(given).requires_grad()) return false;
        if (FromPython<const Tensor&>::get(given)->dual)
            throw RuntimeError("Trying to use forward AD with ", name, " (because it is an out= function) that does not support it.");
        return true;
    };
    const size_t count = o.parameters.size() - 1;
    for (size_t i = 0; grad_enabled() && i < count; i++)
        if (differentiated(slots[i]))
            throw RuntimeError(
                name,
                "(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.");
    if (grad_enabled() && differentiated(out))
        throw RuntimeError(name, "(): functions with out=... arguments don't support automatic differentiation, but out requires grad.");
    GradMode off(false);
    // Sums and what is made from nothing are made in the dtype of out=, and numbers in a row (arange, linspace) in its shape, if there are
    // as many.
    Ref dtype;
    bool row = false;
    if (is_tensor(out))
        for (size_t i = 0, factory = 0; i < count; i++) {
            const std::string_view parameter = utf8(o.parameters[i + (int(i) >= o.out)].name);
            row |= parameter == "end";
            if (parameter == "dtype") {
                dtype = Ref(dtype_object(FromPython<const Tensor&>::get(out).dtype()));
                factory = i + 1;
                if (o.out_rule == OutRule::decides && slots[i] == Py_None) slots[i] = dtype.get();
            }
            if (parameter == "layout" && factory) {
                PyObject*& given = slots[factory - 1];
                if (given != Py_None && to_dtype(given) != FromPython<const Tensor&>::get(out).dtype())
                    throw RuntimeError("dtype ", to_dtype(given), " does not match dtype of out parameter (",
                                       FromPython<const Tensor&>::get(out).dtype(), ")");
                given = dtype.get();
            }
        }
    std::optional<OutDestination> destination;
    if (o.takes_out && !is_tensor(out)) throw TypeError(name, "(): argument 'out' must be Tensor, not ", Py_TYPE(out)->tp_name);
    if (o.takes_out) {
        destination.emplace(FromPython<const Tensor&>::get(out), name, slots, count);
        slots[count] = reinterpret_cast<PyObject*>(static_cast<Destination*>(&*destination));
    }
    Ref result(o.call(o.f, slots, o.named));
    if (destination && destination->taken) {
        bump_version(destination->out);
        Py_INCREF(out);
        return out;
    }
    if (row && is_tensor(result.get())) {
        const Tensor made = Tensor::borrow(as_tensor_object(result.get())), to = Tensor::borrow(as_tensor_object(out));
        if (made.numel() == to.numel() && made.dim() != to.dim()) result = Ref(view(made, to.sizes()).release());
    }
    auto check = [&](PyObject* to, PyObject* from) {
        check_overlap(Tensor::borrow(as_tensor_object(to)), Tensor::borrow(as_tensor_object(from)).sizes(), slots, count, name);
    };
    if (is_tensor(result.get()) && is_tensor(out)) check(out, result.get());
    if (is_tensor(result.get())) {
        if (!is_tensor(out)) throw TypeError(name, "(): argument 'out' must be Tensor, not ", Py_TYPE(out)->tp_name);
        copy_out(Tensor::borrow(as_tensor_object(out)), Tensor::borrow(as_tensor_object(result.get())), name, o.out_rule);
        // A factory's requires_grad is out's: what is made from nothing is a leaf.
        if (Tensor made = Tensor::borrow(as_tensor_object(result.get())); made->requires_grad && !made->grad_fn)
            as_tensor_object(out)->requires_grad = true;
        Py_INCREF(out);
        return out;
    }
    if (!PyTuple_Check(result.get()) || (!PyTuple_Check(out) && !PyList_Check(out)) ||
        PySequence_Fast_GET_SIZE(out) != PyTuple_GET_SIZE(result.get()))
        throw TypeError(name, "(): argument 'out' must be a tuple of as many Tensors as there are results");
    const Py_ssize_t n = PyTuple_GET_SIZE(result.get());
    TensorList outs;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject* item = PySequence_Fast_GET_ITEM(out, i);
        if (!is_tensor(item)) throw TypeError(name, "(): argument 'out' must be a tuple of Tensors");
        if (is_sparse(item)) refuse_sparse((name + "(out=)").c_str());
        check(item, PyTuple_GET_ITEM(result.get(), i));
        outs.push_back(Tensor::borrow(as_tensor_object(item)));
        copy_out(outs.back(), Tensor::borrow(as_tensor_object(PyTuple_GET_ITEM(result.get(), i))), name, o.out_rule);
    }
    return make_tuple(outs.data(), n, o.named);
}

PyObject* call_inplace(const std::string& plain, const Overload& o, PyObject** slots) {
    if (!is_tensor(slots[0])) throw TypeError(plain, "_(): expected a Tensor to change, got ", Py_TYPE(slots[0])->tp_name);
    const Tensor self = Tensor::borrow(as_tensor_object(slots[0]));
    bool wants = false;
    const size_t count = o.parameters.size() - (o.out >= 0);
    if (grad_enabled())
        for (size_t i = 0; i < count; i++)
            if (is_tensor(slots[i])) wants |= FromPython<const Tensor&>::get(slots[i]).requires_grad();
    const std::string name = plain + "_";
    check_inplace(self, name.c_str(), wants);
    // The gradient may need the values that are about to be overwritten.
    Tensor before = wants ? clone(self) : self;
    PyObject* given[max_parameters + 1];
    for (size_t i = 0; i < count; i++) given[i] = slots[i];
    given[0] = before.object();
    OwnDestination destination(self, slots + 1, count - 1);
    given[count] = wants || !o.takes_out ? nullptr : reinterpret_cast<PyObject*>(static_cast<Destination*>(&destination));
    Ref result(o.call(o.f, given, o.named));
    if (destination.taken) bump_version(self);
    if (!is_tensor(result.get())) throw TypeError(name, "(): no in-place form for these arguments");
    Tensor r = Tensor::borrow(as_tensor_object(result.get()));
    if (!r.same(self)) assign_inplace(self, r, name.c_str());
    Py_INCREF(self.object());
    return self.object();
}

}  // namespace wisp
