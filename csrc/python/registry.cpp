// Operators as Python sees them: a call goes to the first signature (signature.h) that its arguments fit, with the detours for
// subclasses, devices, autocast, vmap, sparse and conjugate tensors.
#include "registry.h"

#include <structmember.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>

#include "../profiler/profiler.h"
#include "../cuda/runtime.h"
#include "../ops/format.h"
#include "../ops/sparse.h"
#include "../ops/wrapper.h"
#include "autocast.h"
#include "conjugate.h"
#include "destination.h"
#include "nesting.h"
#include "overrides.h"
#include "signature.h"
#include "stored.h"
#include "tensor_type.h"

namespace wisp {

// --- vmap ----------------------------------------------------------------------------------------------------------------

int batching = 0;
thread_local int transforms = 0;
static PyTypeObject* batched_type = nullptr;  // BatchedTensor

bool has_batched(PyObject* o) {
    return any_nested(o, [](PyObject* item) { return Py_TYPE(item) == batched_type; });
}

void refuse_batched_write(const char* name) {
    const std::string text = str("vmap: ", name,
                                 " is not possible because the value (or the index) is mapped over and the tensor that is written to is "
                                 "not. Please use out-of-place operators instead.");
    if (PyObject* error = PyObject_GetAttrString(reinterpret_cast<PyObject*>(batched_type), "refusal")) {
        PyErr_SetString(error, text.c_str());
        Py_DECREF(error);
    }
    throw PythonError();
}

// --- calls ---------------------------------------------------------------------------------------------------------------

namespace {

struct Operator {
    std::string name;  // without namespace
    std::vector<Overload> overloads;
    Facts facts;
    CastPolicy autocast[2] = {};  // on the CPU, on the GPU
    const char* text = nullptr;   // what it does, and an example
};

enum CallForm : uint8_t { form_function, form_method, form_inplace };

uint64_t places_of(CallForm form) {
    return (form == form_function ? function : form == form_method ? method : inplace | inplace_function).bits;
}

using OperatorTable = std::map<std::string, std::unique_ptr<Operator>>;  // by path
OperatorTable& table() {
    static OperatorTable t;
    return t;
}

struct OperatorObject {
    PyObject_HEAD
    vectorcallfunc call;
    Operator* op;
    CallForm form;
    PyObject* doc;
    PyObject* module;
    PyObject* dict;
};
PyTypeObject function_type = {PyVarObject_HEAD_INIT(nullptr, 0)}, method_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

[[noreturn]] void refuse(const Operator& op, PyObject* const* args, Py_ssize_t n, PyObject* kwnames, bool method) {
    std::string got;
    for (Py_ssize_t i = 0; i < n; i++) got += (i ? ", " : "") + std::string(Py_TYPE(args[i])->tp_name);
    for (Py_ssize_t j = 0; kwnames && j < PyTuple_GET_SIZE(kwnames); j++)
        got += (got.empty() ? "" : ", ") + std::string(utf8(PyTuple_GET_ITEM(kwnames, j))) + "=" + Py_TYPE(args[n + j])->tp_name;
    std::string message = op.name + "(): ";
    PyObject* slots[max_parameters];
    Ref rest;
    if (op.overloads.size() == 1) {
        std::string reason;
        bind(op.overloads[0], args, n, kwnames, slots, rest, &reason);
        if (const size_t at = reason.find("(position "); method && at != std::string::npos) {  // PyTorch does not count the tensor itself
            const int place = std::atoi(reason.c_str() + at + 10);
            const size_t end = reason.find(')', at);
            if (place > 1) reason = reason.substr(0, at + 10) + std::to_string(place - 1) + reason.substr(end);
        }
        message += reason + "; got (" + got + "), expected " + op.overloads[0].text;
    } else {
        message += "received an invalid combination of arguments - got (" + got + "), but expected one of:";
        for (const Overload& o : op.overloads) message += "\n * " + o.text;
    }
    throw TypeError(message);
}

// The callable doesn't see the object `out`: its slot is taken away.
PyObject* take_out(const Overload& o, PyObject** slots) {
    PyObject* out = slots[o.out];
    for (size_t i = size_t(o.out); i + 1 < o.parameters.size(); i++) slots[i] = slots[i + 1];
    return out;
}

// A constructor with pin_memory=True: what it makes on the host is moved into pinned memory.
PyObject* call_pinned(const Overload& o, PyObject** slots) {
    if (cuda::device_count() == 0)
        throw RuntimeError(
            "pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator is available on this system.");
    if (o.out >= 0) take_out(o, slots);
    Ref result(o.call(o.f, slots, o.named));
    if (!is_tensor(result.get())) return result.release();
    const Tensor made = Tensor::borrow(as_tensor_object(result.get()));
    GradMode off(false);
    Tensor moved = pinned(made);
    if (made->requires_grad) moved->requires_grad = true;
    return moved.release();
}

bool any_sparse(PyObject* const* args, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        if (any_nested(args[i], [](PyObject* o) { return is_sparse(o) || is_sparse_layout(o); })) return true;
    return false;
}

// The device that a call works on: that of its tensors, which must be one; 0-dim tensors on the CPU join any other.
struct DeviceOfCall {
    Device device = current_device();
    PyObject* witness = nullptr;
    bool weak = true;  // found from a 0-dim tensor on the CPU alone
    void see(PyObject* o) {
        if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
            for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
                if (PyObject* item = PySequence_Fast_GET_ITEM(o, i); is_tensor(item)) see(item);
            return;
        }
        if (!is_tensor(o)) return;
        const Tensor& t = reinterpret_cast<const Tensor&>(o);
        const bool joins = t.dim() == 0 && t.device().type == DeviceType::cpu;
        if (!witness || (weak && !joins)) {
            device = t.device();
            witness = o;
            weak = joins;
        }
    }
};

Device device_of_call(const Operator& op, PyObject** slots, int n) {
    DeviceOfCall found;
    for (int i = 0; i < n; i++)
        if (slots[i]) found.see(slots[i]);
    if (!found.witness || op.facts.has(any_device)) return found.device;
    for (int i = 0; i < n; i++) {
        PyObject* o = slots[i];
        if (!o || !is_tensor(o)) continue;
        const Tensor& t = reinterpret_cast<const Tensor&>(o);
        if (!(t.device() == found.device) && t.dim() > 0 && !is_wrapper(t) && !is_wrapper(reinterpret_cast<const Tensor&>(found.witness)))
            check_same_device(op.name.c_str(), reinterpret_cast<const Tensor&>(found.witness), t);
    }
    return found.device;
}

// --- vmap: calls with a batched tensor go to Python (wisp/func/_batching.py) -------------------------------------------

PyObject* batched_call = nullptr;  // (operator, name, form, arguments) -> result, or NotImplemented: call it as it is

PyObject* call_batched(const OperatorObject& self, const Overload& o, PyObject** slots) {
    bool wanted = o.draws;
    for (size_t i = 0; i < o.parameters.size() && !wanted; i++) wanted = has_batched(slots[i]);
    if (!wanted || !batched_call) return nullptr;
    Ref arguments(PyDict_New());
    for (size_t i = 0; i < o.parameters.size(); i++) PyDict_SetItem(arguments.get(), o.parameters[i].name, slots[i]);
    Ref form(PyLong_FromLong(self.form)), name(PyUnicode_FromFormat("%U.%s", self.module, self.op->name.c_str()));
    PyObject* op = reinterpret_cast<PyObject*>(const_cast<OperatorObject*>(&self));
    Ref result(PyObject_CallFunctionObjArgs(batched_call, op, name.get(), form.get(), arguments.get(), nullptr));
    return result.get() == Py_NotImplemented ? nullptr : result.release();
}

PyObject* call(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
    auto* self = reinterpret_cast<OperatorObject*>(callable);
    const Operator& op = *self->op;
    const Py_ssize_t n = PyVectorcall_NARGS(nargsf);
    try {
        if (overriding) [[unlikely]] {
            if (PyObject* result = call_overridden(callable, op.name.c_str(), args, n, kwnames)) return result;
            if (PyObject* result = call_stored(callable, op.name, op.facts, args, n, kwnames)) return result;
        }
        PyObject* slots[max_parameters + 1];  // and the callable's Out
        Ref rest;
        Profiled profiled;
        if (profiling) [[unlikely]]
            profiled.begin(EventKind::operation, op.name.c_str(), self->form == form_inplace ? "_" : "", args,
                           n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
        const uint64_t places = places_of(self->form);
        for (const Overload& o : op.overloads) {
            if (op.overloads.size() > 1 && !(o.places & places)) continue;
            if (!bind(o, args, n, kwnames, slots, rest, nullptr)) continue;
            if (batching) [[unlikely]] {
                if (PyObject* result = call_batched(*self, o, slots)) return result;
            }
            if (o.pin >= 0 && slots[o.pin] == Py_True) [[unlikely]]
                return call_pinned(o, slots);
            PyObject* out = o.out >= 0 ? take_out(o, slots) : Py_None;
            slots[int(o.parameters.size()) - (o.out >= 0)] = nullptr;
            std::optional<OnDevice> on;
            if (devices_in_use) [[unlikely]] {
                const Device d = device_of_call(op, slots, int(o.parameters.size()) - (o.out >= 0));
                if (!(d == current_device())) on.emplace(d);
            }
            if (self->form == form_inplace) return call_inplace(op.name, o, slots);
            if (out != Py_None) {
                if (is_sparse(out)) return call_sparse(op.name.c_str(), args, n, kwnames);
                if (has_lazy(out)) return call_lazy(callable, op.name, op.facts, false, args, n, kwnames);
                return call_with_out(op.name, o, slots, out);
            }
            if (const CastPolicy policy = autocast_users ? op.autocast[current_device().is_cuda()] : CastPolicy::none;
                policy != CastPolicy::none) {
                std::vector<Ref> kept;
                cast_arguments(policy, slots, int(o.parameters.size()) - (o.out >= 0), kept);
                return o.call(o.f, slots, o.named);
            }
            return o.call(o.f, slots, o.named);
        }
        if (any_sparse(args, n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0)))
            return call_sparse((op.name + (self->form == form_inplace ? "_" : "")).c_str(), args, n, kwnames);
        for (Py_ssize_t i = 0, all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0); i < all; i++)
            if (has_lazy(args[i])) return call_lazy(callable, op.name, op.facts, self->form == form_inplace, args, n, kwnames);
        if (PyObject* result = call_foreign(callable, args, n, kwnames)) return result;
        refuse(op, args, n, kwnames, self->form != form_function);
    } catch (const MissingKernel& e) { MissingKernel(op.name, ": ", e.what()).restore(); } catch (const Error& e) {
        e.restore();
    } catch (const std::bad_alloc&) { PyErr_NoMemory(); } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

// --- the objects ---------------------------------------------------------------------------------------------------------

// Methods are shown by the second names of their parameters, as PyTorch has them, and without `out`.
std::string signature_of(const OperatorObject& o, const Overload& v) {
    std::string s = o.op->name + (o.form == form_inplace ? "_(" : "(");
    bool star = false, first = true;
    for (size_t i = o.form == form_function ? 0 : 1; i < v.parameters.size(); i++) {
        const Parameter& p = v.parameters[i];
        if (o.form != form_function && int(i) == v.out) continue;
        if (p.keyword_only && !star) {
            s += first ? "*" : ", *";
            star = true;
            first = false;
        }
        s += std::string(first ? "" : ", ") + (p.kind == Kind::rest ? "*" : "") +
             utf8(o.form == form_method && !p.others.empty() ? p.others[0] : p.name);
        if (p.preset) {
            PyObject* r = PyObject_Repr(p.preset);
            s += std::string("=") + utf8(r);
            Py_DECREF(r);
        }
        first = false;
    }
    return s + ") -> " + v.result;
}

// The overloads of this form, a line each; the one with the most parameters, which says most, comes first.
std::string doc_of(const OperatorObject& o) {
    const Facts& facts = o.op->facts;
    if (const char* s = o.form == form_function ? facts.documented : facts.documented_method; s && o.form != form_inplace)
        return std::string(s) + " -> " + o.op->overloads[0].result;
    std::vector<const Overload*> shown;
    for (const Overload& v : o.op->overloads)
        if (o.op->overloads.size() == 1 || (v.places & places_of(o.form))) shown.push_back(&v);
    for (size_t i = 1; i < shown.size(); i++)
        if (shown[i]->parameters.size() > shown[0]->parameters.size()) std::swap(shown[0], shown[i]);
    std::string s;
    for (const Overload* v : shown) s += (s.empty() ? "" : "\n") + signature_of(o, *v);
    return s;
}

// A text as the source has it, aligned below its first line, which an empty line then follows.
std::string without_indent(std::string_view text) {
    size_t end = text.find('\n'), indent = 0;
    std::string s(text.substr(0, end));
    if (end != std::string_view::npos) {
        while (text[end + 1 + indent] == ' ') indent++;
        s += '\n';
    }
    while (end != std::string_view::npos) {
        const size_t next = text.find('\n', end + 1);
        const std::string_view line = text.substr(end + 1, next == std::string_view::npos ? next : next - end - 1);
        s += '\n';
        s += line.substr(std::min(indent, line.size()));
        end = next;
    }
    return s;
}

PyObject* object_repr(PyObject* self) {
    auto* o = reinterpret_cast<OperatorObject*>(self);
    if (o->form == form_function &&
        PyUnicode_CompareWithASCIIString(o->module, "wisp") == 0)  // libraries know targets of graphs by this text
        return PyUnicode_FromFormat("<built-in method %s of type object at %p>", o->op->name.c_str(), static_cast<void*>(Py_TYPE(self)));
    return PyUnicode_FromFormat("<built-in %s %s%s>", o->form == form_function ? "function" : "method", o->op->name.c_str(),
                                o->form == form_inplace ? "_" : "");
}
PyObject* object_name(PyObject* self, void*) {
    auto* o = reinterpret_cast<OperatorObject*>(self);
    return PyUnicode_FromFormat("%s%s", o->op->name.c_str(), o->form == form_inplace ? "_" : "");
}
// What it does: its own text, or that of the operator of its name in another namespace, or of the one that it is the in-place form of.
std::string text_of(const OperatorObject& o, std::string name, bool changes) {
    std::string space = PyUnicode_AsUTF8(o.module);
    space = space == "wisp" ? "" : space.substr(5) + ".";
    for (const std::string& path : {space + name, name, "nn.functional." + name})
        if (auto it = table().find(path); it != table().end() && it->second->text)
            return (changes ? "Like the following, but the tensor itself is changed.\n\n" : "") + without_indent(it->second->text);
    if (!name.ends_with('_')) return "";
    name.pop_back();
    return text_of(o, name, true);
}
PyObject* object_doc(PyObject* self, void*) {
    auto* o = reinterpret_cast<OperatorObject*>(self);
    if (o->doc && !PyUnicode_Check(o->doc)) return Py_NewRef(o->doc);
    const std::string signatures = o->doc ? PyUnicode_AsUTF8(o->doc) : doc_of(*o), text = text_of(*o, o->op->name, o->form == form_inplace);
    const Ref whole(PyUnicode_FromString((signatures + (text.empty() ? "" : "\n\n") + text).c_str())),
        module(PyImport_ImportModule("wisp._reference"));
    return module.get() ? PyObject_CallMethod(module.get(), "of_operator", "OOs", whole.get(), o->module, o->op->name.c_str()) : nullptr;
}
int set_object_doc(PyObject* self, PyObject* value, void*) {
    auto* o = reinterpret_cast<OperatorObject*>(self);
    Py_XINCREF(value);
    Py_XSETREF(o->doc, value);
    return 0;
}
PyObject* object_signatures(PyObject* self, void*) {
    auto* o = reinterpret_cast<OperatorObject*>(self);
    PyObject* list = PyList_New(0);
    for (const Overload& v : o->op->overloads) {
        PyObject* s = PyUnicode_FromString(v.text.c_str());
        PyList_Append(list, s);
        Py_DECREF(s);
    }
    return list;
}
PyObject* object_results(PyObject* self, void*) {
    Ref list(PyList_New(0));
    for (const Overload& v : reinterpret_cast<OperatorObject*>(self)->op->overloads)
        PyList_Append(list.get(), Ref(PyUnicode_FromString(v.result.c_str())).get());
    return list.release();
}
#define WISP_FACT(name) {#name, name}
constexpr std::pair<const char*, Facts> fact_names[] = {
    WISP_FACT(makes_view),    WISP_FACT(draws),        WISP_FACT(writes),      WISP_FACT(any_device),   WISP_FACT(elementwise),
    WISP_FACT(takes_batches), WISP_FACT(reduces),      WISP_FACT(along_dim),   WISP_FACT(shape_only),   WISP_FACT(keeps_zero),
    WISP_FACT(is_linear),     WISP_FACT(in_foreach),   WISP_FACT(cpu_lower),   WISP_FACT(cpu_float32),  WISP_FACT(cpu_widest),
    WISP_FACT(cuda_lower),    WISP_FACT(cuda_float32), WISP_FACT(cuda_widest), WISP_FACT(cuda_refused), WISP_FACT(for_python),
};
#undef WISP_FACT

PyObject* object_facts(PyObject* self, void*) {
    const Facts& facts = reinterpret_cast<OperatorObject*>(self)->op->facts;
    static std::map<uint64_t, PyObject*> made;
    uint64_t bits = 0;
    for (auto& [name, fact] : fact_names) bits |= facts.bits & fact.bits;
    PyObject*& set = made[bits];
    if (!set) {
        Ref names(PyList_New(0));
        for (auto& [name, fact] : fact_names)
            if (facts.has(fact)) PyList_Append(names.get(), Ref(PyUnicode_FromString(name)).get());
        set = PyFrozenSet_New(names.get());
    }
    return Py_XNewRef(set);
}
PyObject* object_onnx(PyObject* self, void*) {
    const char* name = reinterpret_cast<OperatorObject*>(self)->op->facts.onnx;
    return name ? PyUnicode_FromString(name) : Py_NewRef(Py_None);
}
// The tensors among its parameters, in the overload that has most.
PyObject* object_operands(PyObject* self, void*) {
    long most = 0;
    for (const Overload& o : reinterpret_cast<OperatorObject*>(self)->op->overloads) {
        long count = 0;
        for (const Parameter& p : o.parameters) count += p.kind == Kind::tensor || p.kind == Kind::operand;
        most = std::max(most, count);
    }
    return PyLong_FromLong(most);
}
// For inspect.signature: what the documentation begins with, parsed in Python.
PyObject* object_signature(PyObject* self, void*) {
    Ref module(PyImport_ImportModule("wisp._signatures"));
    return PyObject_CallMethod(module.get(), "signature_of", "O", self);
}
PyObject* object_module(PyObject* self, void*) {
    PyObject* m = reinterpret_cast<OperatorObject*>(self)->module;
    Py_INCREF(m);
    return m;
}
// Copies are the operator itself, and pickles its name.
PyObject* object_reduce(PyObject* self, PyObject*) { return object_name(self, nullptr); }
PyGetSetDef object_getset[] = {{"__name__", object_name, nullptr, nullptr, nullptr},
                               {"__qualname__", object_name, nullptr, nullptr, nullptr},
                               {"__doc__", object_doc, set_object_doc, nullptr, nullptr},
                               {"__module__", object_module, nullptr, nullptr, nullptr},
                               {"_signatures", object_signatures, nullptr, nullptr, nullptr},
                               {"_results", object_results, nullptr, nullptr, nullptr},
                               {"_facts", object_facts, nullptr, nullptr, nullptr},
                               {"_onnx", object_onnx, nullptr, nullptr, nullptr},
                               {"_operands", object_operands, nullptr, nullptr, nullptr},
                               {"__signature__", object_signature, nullptr, nullptr, nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef object_methods[] = {{"__reduce__", object_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

PyObject* bind_method(PyObject* self, PyObject* instance, PyObject*) {
    if (!instance || instance == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, instance);
}

std::vector<Registration>& pending() {
    static std::vector<Registration> list;
    return list;
}

std::vector<std::string> words(const char* text) {
    if (!text) return {};  // as most have none, and a stream is slow to make
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
}

CastPolicy cpu_policy(const Facts& f) {
    return f.has(cpu_lower)     ? CastPolicy::lower
           : f.has(cpu_float32) ? CastPolicy::full
           : f.has(cpu_widest)  ? CastPolicy::widest
                                : CastPolicy::none;
}
CastPolicy cuda_policy(const Facts& f) {
    return f.has(cuda_lower)     ? CastPolicy::lower
           : f.has(cuda_float32) ? CastPolicy::full
           : f.has(cuda_widest)  ? CastPolicy::widest
           : f.has(cuda_refused) ? CastPolicy::banned
                                 : CastPolicy::none;
}

void enter(const std::string& signature, const Registration& r) {
    Operator* op;
    if (r.call) {
        Parsed p = parse_signature(signature);
        if (p.overload.parameters.size() > max_parameters) throw RuntimeError("too many parameters in ", signature);
        auto& slot = table()[p.space.empty() ? p.name : p.space + "." + p.name];
        if (!slot) {
            slot = std::make_unique<Operator>();
            slot->name = p.name;
            if (p.name.size() > 1 && p.name.back() == '_' && p.name.front() != '_') slot->facts = writes;  // as everywhere in PyTorch
        }
        Overload& o = p.overload;
        o.f = r.f;
        o.call = r.call;
        o.takes_out = r.takes_out;
        if (o.result.empty()) o.result = r.result;
        o.places = r.facts.bits;
        o.draws |= r.facts.has(draws);
        if (o.draws) slot->facts = slot->facts | draws;
        slot->overloads.push_back(std::move(o));
        op = slot.get();
    } else {
        op = table().at(signature).get();
    }
    op->facts = op->facts | r.facts;
    op->autocast[0] = cpu_policy(op->facts);
    op->autocast[1] = cuda_policy(op->facts);
    if (r.text) op->text = r.text;
}

PyObject* new_object(Operator* op, CallForm form, PyObject* module) {
    PyTypeObject* type = form == form_function ? &function_type : &method_type;
    auto* o = PyObject_New(OperatorObject, type);
    if (!o) throw PythonError();
    o->call = call;
    o->op = op;
    o->form = form;
    o->doc = nullptr;
    o->module = module;
    o->dict = nullptr;
    Py_INCREF(module);
    return reinterpret_cast<PyObject*>(o);
}

}  // namespace

Operators::Operators(std::initializer_list<Registration> list) { pending().insert(pending().end(), list); }

// An object of the batched type that looks like one sample of the tensor, whose first dimension is the batch.
static PyObject* one_sample(const Tensor& t) {
    if (!batched_type || t.dim() == 0) throw RuntimeError("vmap: a batched tensor needs a dimension for the batch");
    Layout layout = t.layout();
    layout.sizes.erase(0);
    layout.strides.erase(0);
    return new_tensor_of_type(batched_type, alias(t, layout));
}

// After squeeze_ and its like: a sample looks like another one on the same memory.
static void look_like(const Tensor& sample, const Tensor& other) {
    sample->layout = other.layout();
    sample->numel = other.numel();
    sample->contiguous = other->contiguous;
}

static const Operators batching_operators = {
    {"_set_batching(any type, any call)",
     [](PyObject* type, PyObject* handler) {
         batched_type = reinterpret_cast<PyTypeObject*>(type);
         batched_call = handler;
         Py_INCREF(type);
         Py_INCREF(handler);
     },
     function | shape_only | shape_only},
    {"_batching(int change)", [](int64_t change) { batching += int(change); }, function | shape_only | shape_only},
    {"_transforms(int change)", [](int64_t change) { transforms += int(change); }, function | shape_only | shape_only},
    {"_look_like(Tensor sample, Tensor other)", look_like, function | shape_only},
    {"_one_sample(Tensor batch)", one_sample, function | shape_only | shape_only},
};

// Paths of the operators of which a fact is true, for those that look for operators rather than at one.
static PyObject* operators_with(const std::string& name) {
    const auto found = std::find_if(std::begin(fact_names), std::end(fact_names), [&](auto& f) { return name == f.first; });
    if (found == std::end(fact_names)) throw ValueError("no such fact of operators: ", name);
    Ref paths(PyList_New(0));
    for (auto& [path, op] : table())
        if (op->facts.has(found->second)) PyList_Append(paths.get(), Ref(PyUnicode_FromString(path.c_str())).get());
    return paths.release();
}

// Path of an operator -> its sentence and example.
static PyObject* operator_texts() {
    Ref texts(PyDict_New());
    for (auto& [path, op] : table())
        if (op->text) PyDict_SetItemString(texts.get(), path.c_str(), Ref(PyUnicode_FromString(without_indent(op->text).c_str())).get());
    return texts.release();
}

static const Operators fact_operators = {
    {"_operators_with(str fact) -> list[str]", operators_with, function},
    {"_operator_texts() -> dict[str, str]", operator_texts, function},
};

void register_operator(const std::string& signature, Registration registration) { enter(signature, registration); }

PyObject* call_operator(const char* name, PyObject* const* args, Py_ssize_t n) {
    static std::map<std::string, PyObject*> cache;
    PyObject*& o = cache[name];
    if (!o) o = new_object(table().at(name).get(), form_function, PyUnicode_InternFromString("wisp"));
    return call(o, args, size_t(n), nullptr);
}

void make_operators(PyObject* module, PyTypeObject* tensor) {
    for (PyTypeObject* type : {&function_type, &method_type}) {
        type->tp_basicsize = sizeof(OperatorObject);
        type->tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
        type->tp_vectorcall_offset = offsetof(OperatorObject, call);
        type->tp_dictoffset = offsetof(OperatorObject, dict);
        type->tp_call = PyVectorcall_Call;
        type->tp_repr = object_repr;
        type->tp_getset = object_getset;
        type->tp_methods = object_methods;
    }
    function_type.tp_name = "builtin_function";
    method_type.tp_name = "builtin_method";
    method_type.tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
    method_type.tp_descr_get = bind_method;
    if (PyType_Ready(&function_type) < 0 || PyType_Ready(&method_type) < 0) throw PythonError();

    for (const Registration& r : pending()) enter(r.signature, r);
    pending().clear();

    Ref spaces(PyDict_New());
    for (auto& [path, op] : table()) {
        const size_t dot = path.rfind('.');
        const std::string space = dot == std::string::npos ? "" : path.substr(0, dot);
        PyObject* dict = PyDict_GetItemString(spaces.get(), space.c_str());
        if (!dict) {
            Ref fresh(PyDict_New());
            PyDict_SetItemString(spaces.get(), space.c_str(), fresh.get());
            dict = PyDict_GetItemString(spaces.get(), space.c_str());
        }
        PyObject* home = PyUnicode_InternFromString(space.empty() ? "wisp" : ("wisp." + space).c_str());
        auto put = [&](PyObject* into, const std::string& name, const char* suffix, CallForm form) {
            Ref o(new_object(op.get(), form, home));
            PyDict_SetItemString(into, (name + suffix).c_str(), o.get());
            const char* own_suffix = name.ends_with('_') ? "_" : "";  // mul_ is also multiply_
            for (const std::string& further : words(op->facts.also))
                PyDict_SetItemString(into, (further + own_suffix + suffix).c_str(), o.get());
        };
        if (op->facts.has(function)) put(dict, op->name, "", form_function);
        if (op->facts.has(inplace_function)) put(dict, op->name, "_", form_inplace);
        if (op->facts.has(method)) put(tensor->tp_dict, op->name, "", form_method);
        if (op->facts.has(inplace)) put(tensor->tp_dict, op->name, "_", form_inplace);
        Py_DECREF(home);
    }
    PyType_Modified(tensor);
    if (PyDict_Merge(PyModule_GetDict(module), PyDict_GetItemString(spaces.get(), ""), 0) < 0) throw PythonError();
    PyModule_AddObjectRef(module, "_operators", spaces.get());
}

}  // namespace wisp
