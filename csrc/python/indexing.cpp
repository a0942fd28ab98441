// x[key] and x[key] = value: ints, slices, None, ..., masks, index tensors, lists, and mixtures of them.
// Ints, slices, None and ... make one view with one layout; tensors then pick elements from it.
#include "../ops/index.h"

#include "../profiler/profiler.h"
#include "../ops/gather.h"
#include "../ops/sparse.h"
#include "../ops/views.h"
#include "conjugate.h"
#include "registry.h"
#include "overrides.h"
#include "tensor_type.h"

namespace wisp {
namespace {

struct Step {  // one dimension of the layout changed
    enum { select, slice, insert } kind;
    int64_t dim, a, b, c;
};

struct Key {
    Small<Step, 6> steps;
    const char* name = "AliasBackward0";  // of the last step, as PyTorch names the node
    TensorList indices;                   // by dimension of the view; undefined where none
    bool advanced = false;
};

Layout apply(const Layout& layout, const Small<Step, 6>& steps) {
    Layout l = layout;
    for (const Step& s : steps) {
        if (s.kind == Step::select) {
            l.offset += s.a * l.strides[s.dim];
            l.sizes.erase(s.dim);
            l.strides.erase(s.dim);
        } else if (s.kind == Step::slice) {
            l = l.slice(s.dim, s.a, s.b, s.c);
        } else {
            l = l.unsqueeze(s.dim);
        }
    }
    return l;
}

bool is_sequence_index(PyObject* o) {
    return PyList_Check(o) || (PyTuple_Check(o)) || (!is_tensor(o) && PyObject_CheckBuffer(o) && !PyBytes_Check(o));
}

void consume(PyObject* item, const Tensor& t, Key& key, int64_t& in, int64_t& out) {
    auto set_index = [&](int64_t d, Tensor index) {
        while (key.indices.size() <= d) key.indices.emplace_back();
        key.indices[d] = std::move(index);
        key.advanced = true;
    };
    auto room = [&](int64_t n) {
        if (in + n > t.dim() && t.dim() == 0)
            throw IndexError(
                "invalid index of a 0-dim tensor (too many indices for tensor of dimension 0). Use `tensor.item()` for its number");
        if (in + n > t.dim()) throw IndexError("too many indices for tensor of dimension ", t.dim());
    };
    if (PyLong_Check(item) && !PyBool_Check(item)) {
        room(1);
        int64_t i = to_int(item);
        const int64_t n = t.size(in);
        if (i < -n || i >= n) throw IndexError("index ", i, " is out of bounds for dimension ", in, " with size ", n);
        key.steps.push_back({Step::select, out, i < 0 ? i + n : i, 0, 0});
        key.name = "SelectBackward0";
        in++;
    } else if (PySlice_Check(item)) {
        room(1);
        Py_ssize_t start, stop, step;
        auto* s = reinterpret_cast<PySliceObject*>(item);
        // Tensors of one element may stand in a slice.
        auto number = [](PyObject* o, Py_ssize_t missing) {
            if (o != Py_None && !is_tensor(o) && !PyIndex_Check(o))
                throw TypeError("slice indices must be integers or None or have an __index__ method");
            return o == Py_None ? missing : Py_ssize_t(to_int(o));
        };
        step = number(s->step, 1);
        if (step <= 0) throw ValueError("step must be greater than zero, got ", int64_t(step), " (use flip() to reverse)");
        start = number(s->start, 0);
        stop = number(s->stop, PY_SSIZE_T_MAX);
        if (start != 0 || stop != PY_SSIZE_T_MAX || step != 1) {
            key.steps.push_back({Step::slice, out, start, stop, step});
            key.name = "SliceBackward0";
        }
        in++;
        out++;
    } else if (item == Py_None) {
        key.steps.push_back({Step::insert, out, 0, 0, 0});
        key.name = "UnsqueezeBackward0";
        out++;
    } else if (PyBool_Check(item)) {
        key.steps.push_back({Step::insert, out, 0, 0, 0});
        Tensor mask = full({1}, Scalar(item == Py_True), DType::boolean);
        set_index(out, mask);
        out++;
    } else if (is_tensor(item)) {
        if (is_sparse(item)) refuse_sparse("an index");
        const Tensor& index = as_tensor(item);
        if (index.dtype() == DType::boolean || index.dtype() == DType::u8) {
            if (index.dtype() == DType::u8)
                warn("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
            Tensor mask = index.dtype() == DType::u8 ? to(index, DType::boolean) : index;
            if (mask.dim() == 0) {
                key.steps.push_back({Step::insert, out, 0, 0, 0});
                set_index(out++, reshape(mask, {1}));
                return;
            }
            room(mask.dim());
            for (int64_t d = 0; d < mask.dim(); d++)
                if (mask.size(d) != t.size(in + d))
                    throw IndexError("The shape of the mask ", mask.sizes(), " at index ", d,
                                     " does not match the shape of the indexed tensor ", t.sizes(), " at index ", in + d);
            for (Tensor& c : nonzero_tuple(mask)) {
                set_index(out++, c);
                in++;
            }
        } else {
            if (!is_integral(index.dtype()))
                throw IndexError("tensors used as indices must be long, int, byte or bool tensors, got ", index.dtype());
            room(1);
            if (index.dim() == 0) {  // an int in disguise
                int64_t i = item_value(index);
                const int64_t n = t.size(in);
                if (i < -n || i >= n) throw IndexError("index ", i, " is out of bounds for dimension ", in, " with size ", n);
                key.steps.push_back({Step::select, out, i < 0 ? i + n : i, 0, 0});
                key.name = "SelectBackward0";
                in++;
                return;
            }
            set_index(out++, to(index, DType::i64));
            in++;
        }
    } else if (is_sequence_index(item)) {
        Tensor index = tensor_from_data(item, std::nullopt);
        if (index.numel() == 0 && is_floating(index.dtype())) index = to(index, DType::i64);
        Ref object(Tensor(index).release());
        consume(object.get(), t, key, in, out);
    } else if (PyIndex_Check(item)) {
        Ref index(PyNumber_Index(item));
        consume(index.get(), t, key, in, out);
    } else if (PySequence_Check(item) && !PyUnicode_Check(item) && !PyBytes_Check(item) && !PyDict_Check(item)) {  // range(3), deque
        Ref list(PySequence_List(item));
        consume(list.get(), t, key, in, out);
    } else {
        if (PyUnicode_Check(item) || PyBytes_Check(item))
            throw TypeError("indices must be integers, slices, None, ..., tensors or lists of them, got ", Py_TYPE(item)->tp_name);
        throw IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got ",
                         Py_TYPE(item)->tp_name, ")");
    }
}

int64_t dims_taken(PyObject* item) {
    if (item == Py_None || item == Py_Ellipsis || PyBool_Check(item)) return 0;
    if (is_tensor(item)) {
        const Tensor& t = as_tensor(item);
        return t.dtype() == DType::boolean || t.dtype() == DType::u8 ? t.dim() : 1;
    }
    if (PyObject_HasAttrString(item, "__array_interface__")) {
        Ref owned(tensor_from_data(item, std::nullopt).release());
        return dims_taken(owned.get());
    }
    if (PyList_Check(item) || PyTuple_Check(item)) {
        Ref owned(tensor_from_data(item, std::nullopt).release());
        return dims_taken(owned.get());
    }
    return 1;
}

// A short list with slices, tensors or lists in it is a tuple, as in PyTorch; any other is an index tensor.
bool list_is_tuple(PyObject* key) {
    if (!PyList_Check(key) || PyList_GET_SIZE(key) >= 32) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(key); i++) {
        PyObject* item = PyList_GET_ITEM(key, i);
        if (!PySlice_Check(item) && item != Py_Ellipsis && item != Py_None && !is_tensor(item) && !PySequence_Check(item)) continue;
        warn(
            "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed; use x[tuple(seq)] instead of "
            "x[seq], or x[torch.tensor(seq)].");
        return true;
    }
    return false;
}

Key parse(PyObject* key_object, const Tensor& t) {
    Key key;
    int64_t in = 0, out = 0;
    if (!PyTuple_Check(key_object) && !list_is_tuple(key_object)) {
        if (key_object != Py_Ellipsis) consume(key_object, t, key, in, out);
        return key;
    }
    Ref items(PySequence_Tuple(key_object));  // an item's __index__ may change a list
    key_object = items.get();
    const Py_ssize_t n = PyTuple_GET_SIZE(key_object);
    bool dots = false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject* item = PyTuple_GET_ITEM(key_object, i);
        if (item == Py_Ellipsis) {
            if (dots) throw IndexError("an index can only have a single ellipsis ('...')");
            dots = true;
            int64_t rest = 0;
            for (Py_ssize_t j = i + 1; j < n; j++) rest += dims_taken(PyTuple_GET_ITEM(key_object, j));
            const int64_t skip = t.dim() - in - rest;
            if (skip < 0) throw IndexError("too many indices for tensor of dimension ", t.dim());
            in += skip;
            out += skip;
            continue;
        }
        consume(item, t, key, in, out);
    }
    return key;
}

Tensor viewed(const Tensor& t, const Key& key) {
    return view_through(t, key.name, [&](const Layout& l) { return apply(l, key.steps); });
}

// x[mask] with a mask of x's own shape, which needs no coordinates.
bool is_whole_mask(PyObject* key, const Tensor& t) {
    return is_strided(key) && as_tensor_object(key)->dtype == DType::boolean && t.dim() > 0 && as_tensor(key).sizes() == t.sizes();
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* key_object) {
    return guarded([&]() -> PyObject* {
        const Tensor& t = as_tensor(self);
        const bool sample = batching && has_batched(self);  // by the method of Tensor: its own class has another one
        if (sample || (batching && has_batched(key_object))) {
            Ref module(PyImport_ImportModule("wisp.func._batching"));
            return PyObject_CallMethod(module.get(), sample ? "_get" : "get_with_batched_index", "(OO)", self, key_object);
        }
        if (overriding) [[unlikely]]
            if (PyObject* answer = call_overridden("__getitem__", self, key_object)) return answer;
        OnDevice on(t.device());
        Profiled profiled;
        if (profiling) [[unlikely]]
            profiled.begin(EventKind::operation, "getitem", "", &self, 1);
        if (is_whole_mask(key_object, t)) return masked_select(t, as_tensor(key_object), "IndexBackward0").release();
        const Key key = parse(key_object, t);
        if (!key.advanced) return viewed(t, key).release();
        Tensor base = key.steps.empty() ? t : viewed(t, key);
        return index(base, key.indices).release();
    });
}

int set_item(PyObject* self, PyObject* key_object, PyObject* value) {
    return guarded(-1, [&]() -> int {
        if (!value) throw TypeError("Tensor does not support deleting items");
        if (batching && has_batched(self)) {
            Ref module(PyImport_ImportModule("wisp.func._batching"));
            Ref done(PyObject_CallMethod(module.get(), "_set", "(OOO)", self, key_object, value));
            return 0;
        }
        if (batching && (has_batched(key_object) || has_batched(value))) refuse_batched_write("x[...] = value");
        const Tensor& t = as_tensor(self);
        OnDevice on(t.device());
        Profiled profiled;
        if (profiling) [[unlikely]]
            profiled.begin(EventKind::operation, "setitem", "", &self, 1);
        const bool number = !is_tensor(value) && is_number(value);
        if (number && is_whole_mask(key_object, t)) {
            Scalar s = to_scalar(value);
            if (is_integral(t.dtype()) && s.is_floating()) s = Scalar(s.to_int());
            masked_fill_(t, as_tensor(key_object), s);
            return 0;
        }
        const Key key = parse(key_object, t);
        Tensor source;
        if (is_tensor(value) && is_sparse(value)) refuse_sparse("assigning to an index");
        Tensor plain;
        if (has_lazy(value)) {
            if (!is_lazy(value)) throw TypeError("x[...] = a list of conjugate or negative views is not supported; use torch.stack of it");
            plain = resolve_lazy(as_tensor(value));
            value = plain.object();
        }
        if (is_tensor(value)) source = as_tensor(value);
        else if (number) {
            const Scalar s = to_scalar(value);
            refuse_large(t.dtype(), s);
            source = scalar_tensor(s, !is_complex(t.dtype()) && s.is_complex() ? complex_of(t.dtype()) : t.dtype());
        } else source = tensor_from_data(value, t.dtype());
        Tensor target = key.steps.empty() ? (key.advanced ? t : Tensor()) : viewed(t, key);
        if (key.advanced) {
            // self[mask] = number touches the elements where they lie.
            index_put_(target, key.indices, to(source, target.dtype()), false);
            return 0;
        }
        if (!target) target = t;
        // Leading dimensions of size 1 of the value don't matter.
        Dims sizes = source.sizes();
        while (sizes.size() > target.dim() && sizes[0] == 1) sizes.erase(0);
        if (!(sizes == source.sizes())) source = view(contiguous(source), sizes);
        copy_(target, source);
        return 0;
    });
}

}  // namespace wisp
