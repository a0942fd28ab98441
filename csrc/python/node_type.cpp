// Nodes of the graph as Python sees them (grad_fn), and autograd's entry points for Python.
#include <map>

#include "../autograd/engine.h"
#include "../autograd/told.h"
#include "../autograd/source.h"
#include "../autograd/whole.h"
#include "../ops/ops.h"
#include "conjugate.h"
#include "nesting.h"
#include "registry.h"
#include "signature.h"
#include "tensor_type.h"

namespace wisp {
namespace {

PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};

Node& as_node(PyObject* o) { return *reinterpret_cast<Node*>(o); }

PyObject* node_name(PyObject* self, PyObject*) {
    return PyUnicode_FromString(as_node(self).variable ? "torch::autograd::AccumulateGrad" : as_node(self).name);  // as PyTorch has it
}
PyObject* node_repr(PyObject* self) { return PyUnicode_FromFormat("<%s object at %p>", as_node(self).name, self); }

PyObject* next_functions(PyObject* self, void*) {
    return guarded([&]() -> PyObject* {
        Node& n = as_node(self);
        Ref t(PyTuple_New(n.next.size()));
        for (int64_t i = 0; i < n.next.size(); i++) {
            PyObject* next = n.next[i].node ? node_object(n.next[i].node.get()) : Py_None;
            if (next == Py_None) Py_INCREF(next);
            PyTuple_SET_ITEM(t.get(), i, Py_BuildValue("(NI)", next, n.next[i].number));
        }
        return t.release();
    });
}
PyObject* node_variable(PyObject* self, void*) {
    if (!as_node(self).variable) {
        PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute 'variable'", as_node(self).name);
        return nullptr;
    }
    PyObject* v = reinterpret_cast<PyObject*>(as_node(self).variable);
    Py_INCREF(v);
    return v;
}
PyObject* node_metadata(PyObject* self, void*) {
    Node& n = as_node(self);
    if (!n.metadata) n.metadata = PyDict_New();
    Py_XINCREF(n.metadata);
    return n.metadata;
}
PyObject* saved_tuple(Node& n) {
    if (n.released) unpack_saved(n, 0, true);  // raises
    TensorList list;
    for (int64_t i = 0; i < n.saved.size(); i++) list.push_back(unpack_saved(n, i, true));
    return make_tuple(list.data(), list.size(), nullptr);
}
// Of a Python Function alone: what other nodes save has names (`_saved_self`).
PyObject* node_saved_tensors(PyObject* self, void*) {
    if (!as_node(self).context) {
        PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute 'saved_tensors'", as_node(self).name);
        return nullptr;
    }
    return guarded([&]() -> PyObject* {
        Node& n = as_node(self);
        if (n.released && n.saved.empty())
            throw RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
                "freed).");
        return saved_tuple(n);
    });
}
PyObject* node_source(PyObject* self, void*) { return PyUnicode_FromString(source_of(as_node(self)).c_str()); }
PyObject* node_sequence(PyObject* self, PyObject*) { return PyLong_FromUnsignedLongLong(as_node(self).sequence); }
PyObject* node_outputs(PyObject* self, void*) {
    return guarded([&]() -> PyObject* {
        Node& n = as_node(self);
        Ref t(PyTuple_New(n.outputs.size()));
        for (int64_t i = 0; i < n.outputs.size(); i++)
            PyTuple_SET_ITEM(t.get(), i, Py_BuildValue("(NN)", size_object(n.outputs[i].sizes), dtype_object(n.outputs[i].dtype)));
        return t.release();
    });
}
PyObject* saved_bytes(PyObject* self, void*) {
    int64_t bytes = 0;
    for (Saved& s : as_node(self).saved)
        if (s.tensor) bytes += s.tensor.numel() * s.tensor.item_size();
    return PyLong_FromLongLong(bytes);
}
PyObject* node_hooks(PyObject* self, PyObject* which) {
    NodeHooks& hooks = hooks_of(as_node(self));
    PyObject*& dict = which == Py_True ? hooks.pre_hooks : hooks.post_hooks;
    if (!dict) dict = new_hooks_dict();
    Py_XINCREF(dict);
    return dict;
}
PyObject* register_node_hook(PyObject* self, PyObject* hook, const char* which) {
    return guarded([&]() -> PyObject* {
        Ref module(PyImport_ImportModule("wisp.utils.hooks"));
        Ref dict(node_hooks(self, std::strcmp(which, "pre") == 0 ? Py_True : Py_False));
        return PyObject_CallMethod(module.get(), "add_hook", "OO", dict.get(), hook);
    });
}
PyObject* register_hook(PyObject* self, PyObject* hook) { return register_node_hook(self, hook, "post"); }
PyObject* register_prehook(PyObject* self, PyObject* hook) { return register_node_hook(self, hook, "pre"); }

// grad_fn(*gradients of its outputs): backward of this one node, recorded where gradients are.
PyObject* call_node(PyObject* self, PyObject* args, PyObject* kwargs) {
    return guarded([&]() -> PyObject* {
        Node& n = as_node(self);
        const Py_ssize_t expected = std::max<Py_ssize_t>(n.outputs.size(), 1), given = PyTuple_GET_SIZE(args);
        if (kwargs && PyDict_GET_SIZE(kwargs)) throw TypeError(n.name, ": keyword arguments are not supported");
        if (given != expected) throw TypeError(n.name, ": expected ", expected, " arguments, got ", given, " instead");
        Small<Tensor, 1> grads;
        grads.resize(expected);
        for (Py_ssize_t i = 0; i < expected; i++) {
            PyObject* const g = PyTuple_GET_ITEM(args, i);
            if (g == Py_None) continue;
            if (!is_tensor(g)) throw TypeError(n.name, ": expected Variable argument ", i, ", got ", Py_TYPE(g)->tp_name);
            grads[i] = Tensor::borrow(as_tensor_object(g));
        }
        TensorList results;
        results.resize(n.next.size());
        Backward bw{n, grads.data(), results.data(), grad_enabled(), nullptr};
        const auto first = std::find_if(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
        OnDevice on(first == grads.end() ? current_device() : first->device());
        n.apply(bw);
        Ref made(PyTuple_New(results.size()));
        for (int64_t i = 0; i < results.size(); i++)
            PyTuple_SET_ITEM(made.get(), i, results[i] ? Py_NewRef(results[i].object()) : Py_NewRef(Py_None));
        return results.size() == 1 ? Py_NewRef(PyTuple_GET_ITEM(made.get(), 0)) : made.release();
    });
}

// Which saved tensor is the operator's result, or the input of an edge; -1 if none is.
int64_t saved_result(const Node& n) {
    for (int64_t i = 0; i < n.saved.size(); i++)
        if (n.saved[i].output >= 0) return i;
    return -1;
}
int64_t saved_input(const Node& n, int64_t edge) {
    if (edge >= n.next.size()) return -1;
    const Edge& e = n.next[edge];
    for (int64_t i = 0; e.node && i < n.saved.size(); i++) {
        const Tensor& t = n.saved[i].tensor;
        if (n.saved[i].output < 0 && t &&
            (t->grad_fn ? t->grad_fn == e.node.get() && t->output_number == e.number : t.get() == e.node->variable))
            return i;
    }
    const bool constant = !e.node && edge < n.saved.size() && n.saved[edge].output < 0 && n.saved[edge].tensor;
    return constant && !n.saved[edge].tensor.in_graph() ? edge : -1;
}

// What is saved at a place of a node, as an object that hooks can be registered on: wisp.autograd._inner.SavedTensor.
PyObject* raw_saved(PyObject* node, int64_t i) {
    Ref module(PyImport_ImportModule("wisp.autograd._inner"));
    return PyObject_CallMethod(module.get(), "_saved_tensor", "OL", node, static_cast<long long>(i));
}

PyObject* told_object(const ToldValue& value) {
    struct {
        PyObject* operator()(std::monostate) const { return Py_NewRef(Py_None); }
        PyObject* operator()(bool v) const { return PyBool_FromLong(v); }
        PyObject* operator()(int64_t v) const { return PyLong_FromLongLong(v); }
        PyObject* operator()(double v) const { return PyFloat_FromDouble(v); }
        PyObject* operator()(const Scalar& v) const { return scalar_object(v); }
        PyObject* operator()(const char* v) const { return PyUnicode_FromString(v); }
        PyObject* operator()(const Dims& v) const {
            Ref t(PyTuple_New(v.size()));
            for (int64_t i = 0; i < v.size(); i++) PyTuple_SET_ITEM(t.get(), i, PyLong_FromLongLong(v[i]));
            return t.release();
        }
        PyObject* operator()(const ToldDims& v) const {
            Dims dims;
            for (int64_t i = 0; i < 64; i++)
                if (v.mask >> i & 1) dims.push_back(i);
            return (*this)(dims);
        }
    } made;
    return std::visit(made, value);
}

// What a custom Function stored on its ctx; saved tensors by the names that they have in most of PyTorch's nodes.
PyObject* get_attribute(PyObject* self, PyObject* name) {
    PyObject* r = PyObject_GenericGetAttr(self, name);
    if (r || !PyErr_ExceptionMatches(PyExc_AttributeError)) return r;
    Node& n = as_node(self);
    if (n.context) {
        PyErr_Clear();
        if (PyUnicode_CompareWithASCIIString(name, "apply") == 0) return PyObject_CallMethod(n.context, "_apply_of", "O", self);
        return PyObject_GetAttr(n.context, name);
    }
    const char* text = PyUnicode_AsUTF8(name);
    if (!text) return nullptr;
    const bool raw = std::strncmp(text, "_raw_saved_", 11) == 0;
    if (!raw && std::strncmp(text, "_saved_", 7) != 0) return nullptr;
    const std::string_view which = text + (raw ? 11 : 7);
    Telling told{n};
    ask(n, told);
    for (const auto& [known, value] : told.numbers)
        if (!raw && known == which) return PyErr_Clear(), told_object(value);
    const auto place = std::find_if(told.tensors.begin(), told.tensors.end(), [&](const Telling::Place& p) { return p.name == which; });
    const bool named = place != told.tensors.end();
    if (!named && which != "self" && which != "other" && which != "result") return nullptr;
    PyErr_Clear();
    return guarded([&]() -> PyObject* {
        if (n.released && raw)
            throw RuntimeError("Calling register_hooks on a saved tensor after it has been freed: see retain_graph=True");
        if (n.released) unpack_saved(n, 0, true);  // raises
        auto saved = [&](int64_t i) { return raw ? raw_saved(self, i) : ToPython()(unpack_saved(n, i, true)); };
        if (named && place->count >= 0) {
            Ref list(PyTuple_New(place->count));
            for (int k = 0; k < place->count; k++) {
                PyObject* one = saved(place->at + k);
                if (!one) throw PythonError();
                PyTuple_SET_ITEM(list.get(), k, one);
            }
            return list.release();
        }
        if (named && place->at < 0) return Py_NewRef(Py_None);
        if (named) return saved(place->at);
        const int64_t i = which == "result" ? saved_result(n) : saved_input(n, which == "self" ? 0 : 1);
        if (i >= 0) return saved(i);
        PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%s'", n.name, text);
        throw PythonError();
    });
}

// With the names of what is saved, by which programs that draw graphs look.
PyObject* list_attributes(PyObject* self, PyObject*) {
    return guarded([&]() -> PyObject* {
        Ref names(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__dir__", "O", self));
        const Node& n = as_node(self);
        if (n.context) return names.release();
        Telling told{n};
        ask(n, told);
        auto add = [&](const std::string& name) { Ref done(PyObject_CallMethod(names.get(), "append", "s", ("_saved_" + name).c_str())); };
        for (const auto& number : told.numbers) add(number.first);
        for (const auto& place : told.tensors) add(place.name);
        if (!told.tensors.empty()) return names.release();
        const std::pair<const char*, int64_t> places[] = {
            {"_saved_self", saved_input(n, 0)}, {"_saved_other", saved_input(n, 1)}, {"_saved_result", saved_result(n)}};
        for (const auto& [name, place] : places)
            if (place >= 0) Ref done(PyObject_CallMethod(names.get(), "append", "s", name));
        return names.release();
    });
}

PyObject* raw_saved_tensors(PyObject* self, void*) {
    return guarded([&]() -> PyObject* {
        Node& n = as_node(self);
        if (n.released) unpack_saved(n, 0, true);  // raises
        Ref all(PyTuple_New(n.saved.size()));
        for (int64_t i = 0; i < n.saved.size(); i++) {
            PyObject* one = raw_saved(self, i);
            if (!one) throw PythonError();
            PyTuple_SET_ITEM(all.get(), i, one);
        }
        return all.release();
    });
}

Saved& saved_at(PyObject* node, int64_t i) {
    if (!PyObject_TypeCheck(node, node_type) || i < 0 || i >= as_node(node).saved.size())
        throw RuntimeError("Calling register_hooks on a saved tensor after it has been freed: see retain_graph=True");
    return as_node(node).saved[i];
}

PyGetSetDef getset[] = {{"next_functions", next_functions, nullptr, nullptr, nullptr},
                        {"variable", node_variable, nullptr, nullptr, nullptr},
                        {"metadata", node_metadata, nullptr, nullptr, nullptr},
                        {"saved_tensors", node_saved_tensors, nullptr, nullptr, nullptr},
                        {"_raw_saved_tensors", raw_saved_tensors, nullptr, nullptr, nullptr},
                        {"_source", node_source, nullptr, "file and line of the forward call", nullptr},
                        {"_outputs", node_outputs, nullptr, "shape and dtype of the forward results", nullptr},
                        {"_bytes_saved", saved_bytes, nullptr, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {
    {"name", node_name, METH_NOARGS, "name() -> str"},
    {"__dir__", list_attributes, METH_NOARGS, nullptr},
    {"_sequence_nr", node_sequence, METH_NOARGS, nullptr},
    {"_hooks", node_hooks, METH_O, nullptr},
    {"register_hook", register_hook, METH_O, "register_hook(fn): fn(grad_inputs, grad_outputs) after the node has run"},
    {"register_prehook", register_prehook, METH_O, "register_prehook(fn): fn(grad_outputs) before the node runs"},
    {nullptr, nullptr, 0, nullptr}};

// A class named as the node, so that type(fn).__name__ is what PyTorch's users expect.
PyTypeObject* class_named(const char* name) {
    static std::map<std::string, PyTypeObject*> classes;
    PyTypeObject*& c = classes[name];
    if (!c) {
        static std::map<std::string, std::string> names;  // type names must outlive the types
        std::string& full = names[name];
        full = std::string("wisp.autograd.") + name;
        PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_node)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_node)},
                               {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_node)},
                               {0, nullptr}};
        PyType_Spec spec = {full.c_str(), int(sizeof(Node)), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
        Ref bases(PyTuple_Pack(1, reinterpret_cast<PyObject*>(&type)));
        c = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, bases.get()));
        if (!c) throw PythonError();
    }
    return c;
}

// --- entry points ----------------------------------------------------------------------------------------------------------

// A tensor that stands for a place of the graph, and has no values.
Tensor tensor_at(PyObject* place, int64_t output) {
    if (!PyObject_TypeCheck(place, node_type)) throw TypeError("expected a node of the graph, not ", Py_TYPE(place)->tp_name);
    Node& node = as_node(place);
    if (node.variable && node.variable->extra && node.variable->extra->accumulator == &node) return Tensor::borrow(node.variable);
    if (output < 0 || output >= node.outputs.size())
        throw RuntimeError("a node of ", node.outputs.size(), " outputs has none of number ", output);
    const OutputInfo& info = node.outputs[output];
    const Tensor t = empty_strided(info.sizes, Dims(info.sizes.size(), 0), info.dtype, info.device);
    set_history(t, &node, uint32_t(output));
    return t;
}

void fill_request(BackwardRequest& r, PyObject* tensors, PyObject* grads, PyObject* inputs) {
    r.roots = to_tensors(tensors);
    r.grads = to_tensors(grads);
    for (Tensor& g : r.grads) g = resolve_lazy(g);
    if (r.grads.size() != r.roots.size()) throw RuntimeError("got ", r.roots.size(), " tensors and ", r.grads.size(), " gradients");
    if (inputs != Py_None) r.inputs = to_tensors(inputs);
}
// Gradients that are returned, not added to `.grad`.
BackwardRequest grad_request(PyObject* outputs, PyObject* grads, PyObject* inputs, bool retain, bool create, bool unused) {
    BackwardRequest r;
    fill_request(r, outputs, grads, inputs);
    r.retain_graph = retain;
    r.create_graph = create;
    r.allow_unused = unused;
    r.accumulate = false;
    return r;
}

const Operators operators = {
    {"_backward(any tensors, any grad_tensors, bool retain_graph, bool create_graph, any inputs)",
     [](PyObject* tensors, PyObject* grads, bool retain, bool create, PyObject* inputs) {
         BackwardRequest r;
         fill_request(r, tensors, grads, inputs);
         r.retain_graph = retain;
         r.create_graph = create;
         run_backward(r);
     },
     stored | function},
    {"_grad(any outputs, any grad_outputs, any inputs, bool retain_graph, bool create_graph, bool allow_unused)",
     [](PyObject* outputs, PyObject* grads, PyObject* inputs, bool retain, bool create, bool unused) {
         return run_backward(grad_request(outputs, grads, inputs, retain, create, unused));
     },
     stored | function},
    {"_grad_of_batch(any outputs, any grad_outputs, any inputs, bool retain_graph, bool create_graph, bool allow_unused)",
     [](PyObject* outputs, PyObject* grads, PyObject* inputs, bool retain, bool create, bool unused) {
         BackwardRequest r = grad_request(outputs, grads, inputs, retain, create, unused);
         r.batch = r.grads[0].size(0);
         return run_backward(r);
     },
     stored | function},
    {"_tensor_at(any node, int output)", tensor_at, stored | function},
    {"_push_saved_tensors_hooks(any pack, any unpack)", [](PyObject* p, PyObject* u) { push_saved_hooks(p, u); }, function},
    {"_pop_saved_tensors_hooks()", []() { pop_saved_hooks(); }, function},
    {"_set_saved_tensors_hooks_disabled(any message)", [](PyObject* m) { set_saved_hooks_disabled(m == Py_None ? "" : to_string(m)); },
     function},
    {"_saved_hooks(any node, int place, any pack, any unpack)",
     [](PyObject* node, int64_t i, PyObject* pack, PyObject* unpack) { register_saved_hooks(saved_at(node, i), pack, unpack); }, function},
    {"_saved_parts(any node, int place)",
     [](PyObject* node, int64_t i) {
         const Saved& s = saved_at(node, i);
         PyObject* value = s.packed ? s.packed : s.tensor ? s.tensor.object() : Py_None;
         return PyTuple_Pack(2, value, s.unpack ? s.unpack : Py_None);
     },
     function},
    {"_current_autograd_node()",
     []() {
         Node* const node = current_node();
         return node ? node_object(node) : Ref::borrow(Py_None).release();
     },
     function},
    {"_current_graph_task_execution_order()",
     []() {
         const std::vector<Node*> order = execution_order();
         Ref list(PyList_New(Py_ssize_t(order.size())));
         for (size_t i = 0; i < order.size(); i++) PyList_SET_ITEM(list.get(), Py_ssize_t(i), node_object(order[i]));
         return list.release();
     },
     function},
    {"_node_saved_tensors(any node)",
     [](PyObject* node) {
         if (!PyObject_TypeCheck(node, node_type)) throw TypeError("_node_saved_tensors(): expected a node, not ", Py_TYPE(node)->tp_name);
         Node& n = as_node(node);
         if (n.released)
             throw RuntimeError(
                 "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
                 "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
                 "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
                 "saved tensors after calling backward.");
         return saved_tuple(n);
     },
     stored | function},
    {"_set_detect_anomaly(bool enabled, bool check_nan=True)", [](bool on, bool nan) { set_anomaly(on, nan); }, function},
    {"is_anomaly_enabled()", []() { return anomaly_enabled(); }, function,
     R"(Whether anomalies in backward passes are looked for.
        >>> wisp.is_anomaly_enabled()
        False)"},
    {"is_anomaly_check_nan_enabled()", []() { return anomaly_checks_nan(); }, function,
     R"(Whether a NaN counts as an anomaly.
        >>> wisp.is_anomaly_check_nan_enabled()
        False)"},
    {"_set_package_directory(str directory)", [](std::string d) { set_package_directory(d.c_str()); }, function},
    {"_queue_callback(any callback)", queue_callback, function},
    {"_current_graph_task_id()", []() { return current_run(); }, function},
    {"_will_engine_execute_node(any node)",
     [](PyObject* node) {
         if (!PyObject_TypeCheck(node, node_type))
             throw RuntimeError("_will_engine_execute_node: expects an grad_fn, but got ", Py_TYPE(node)->tp_name);
         return will_execute(as_node(node));
     },
     function},
    {"_run_is_selective()", []() { return run_is_selective(); }, function},
    {"_run_captures_leaf(any node)", [](PyObject* node) { return captures_leaf(as_node(node)); }, function},
    {"_enter_dual_level()", enter_dual_level, function | shape_only},
    {"_exit_dual_level(int level)", exit_dual_level, function | shape_only},
    {"_hide_tangents(int level)", hide_tangents, function | shape_only},
    {"_make_dual(Tensor primal, Tensor tangent, int level)", make_dual, stored | function},
    {"_primal(Tensor dual, int level)", primal_of, stored | function | takes_batches},
    {"_tangent(Tensor dual, int level)", tangent_of, stored | function | takes_batches},
    {"_has_tangent(Tensor input)", [](const Tensor& t) { return forward_visible() && has_tangent(t); }, stored | function | takes_batches},
    {"_set_grad_layout_enforced(bool on)", [](bool on) { set_layout_enforced(on); }, function},
    {"_grad_layout_enforced()", []() { return layout_enforced(); }, function},
    {"_set_version(Tensor input, int version)", [](const Tensor& t, int64_t v) { t.storage()->version = uint32_t(v); }, stored | function},
    {"_mark_custom_view(Tensor view)",
     [](const Tensor& t) {
         if (t->base) t->view_kind = view_custom;
     },
     stored | function},
    {"_without_graph(Tensor input)", without_graph, function | makes_view | takes_batches},
    {"_live_tensors()", []() { return live_tensors(); }, function},
};

PyObject* set_grad_enabled_c(PyObject*, PyObject* on) {
    return guarded([&]() -> PyObject* {
        set_grad_state(truth_of(on) ? grad_on : forward_depth_of_thread() ? grad_forward : grad_off);
        Py_RETURN_NONE;
    });
}
PyObject* is_grad_enabled_c(PyObject*, PyObject*) { return PyBool_FromLong(grad_state() == grad_on); }
PyObject* set_inference_mode_c(PyObject*, PyObject* on) {
    return guarded([&]() -> PyObject* {
        set_inference_mode(truth_of(on));
        Py_RETURN_NONE;
    });
}
PyObject* is_inference_mode_enabled_c(PyObject*, PyObject*) { return PyBool_FromLong(inference_mode_enabled()); }

bool contains(const TensorList& l, const Tensor& t) {
    for (const Tensor& x : l)
        if (x.same(t)) return true;
    return false;
}

// Records a Python autograd.Function: see wisp/autograd/function.py.
PyObject* function_record(PyObject*, PyObject* args) {
    PyObject *ctx, *inputs_o, *outputs_o, *dirty_o, *plain_o, *saved_o;
    const char* name;
    if (!PyArg_ParseTuple(args, "OsOOOOO", &ctx, &name, &inputs_o, &outputs_o, &dirty_o, &plain_o, &saved_o)) return nullptr;
    return guarded([&]() -> PyObject* {
        const TensorList inputs = to_tensors(inputs_o), outputs = to_tensors(outputs_o), dirty = to_tensors(dirty_o),
                         plain = to_tensors(plain_o), saved = to_tensors(saved_o);
        PyObject* interned = PyUnicode_InternFromString(name);  // the node keeps a pointer to the characters
        NodePtr node = NodePtr::steal(new_node(utf8(interned)));
        for (const Tensor& t : inputs) add_input(*node, t);
        node->context = ctx;
        Py_INCREF(ctx);
        node->apply = [](Backward& bw) {
            Ref grads(PyList_New(bw.node.outputs.size()));  // a list, which is emptied: whoever computes with a gradient may free it
            const bool seen_later = bw.node.hooks && bw.node.hooks->post_hooks;
            for (int64_t i = 0; i < bw.node.outputs.size(); i++) {
                PyList_SET_ITEM(grads.get(), i, Py_NewRef(bw.grads[i] ? bw.grads[i].object() : Py_None));
                if (!seen_later) bw.grads[i] = Tensor();
            }
            Ref node(node_object(&bw.node));  // passed in, not kept by ctx: that would be a cycle
            Ref results(PyObject_CallMethod(bw.node.context, "_run_backward", "(OO)", grads.get(), node.get()));
            TensorList list = to_tensors(results.get());
            for (int64_t i = 0; i < list.size() && i < bw.node.next.size(); i++)
                if (bw.needs(int(i))) bw.set(int(i), resolve_lazy(list[i]));
        };
        for (const Tensor& t : dirty) {
            check_inplace(t, name, true);
            t.storage()->data();  // as a writer would
            bump_version(t);
        }
        const Ref pure(PyObject_GetAttrString(ctx, "_is_pure_view"));
        for (const Tensor& t : outputs) {
            if (t && t->base && !contains(dirty, t))
                t->view_kind = pure.get() == Py_True ? view_plain : outputs.size() > 1 ? view_multi_output : view_custom;
            if (!t) {
                node->outputs.emplace_back();  // no tensor
            } else if (contains(plain, t)) {
                node->outputs.push_back({t.sizes(), t.dtype(), t.device()});
            } else if (contains(dirty, t) && t->base) {
                if (outputs.size() > 1)
                    throw RuntimeError(
                        name,
                        ": If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more "
                        "than one Tensor. Give it a clone(), or split it into one that writes and one that does the rest.");
                rebase_history(t, *node);
            } else {
                add_output(*node, t);
            }
        }
        for (const Tensor& t : saved) save(*node, t, t && t->base && contains(dirty, t));
        end_record(*node, spanned(inputs), spanned(outputs), !dirty.empty());
        return make_tuple(outputs.data(), outputs.size(), nullptr);
    });
}

// The tensors of an argument or a result, which may be a list; false if one is of another class (`plain`), since such
// a tensor may hold its graph in another one.
bool find_tensors(PyObject* o, TensorList& found, bool plain) {
    return !any_nested(o, [&](PyObject* item) {
        if (item == Py_None) found.emplace_back();  // a missing tensor has an edge, too
        if (!is_tensor(item)) return false;
        if (plain && Py_TYPE(item) != tensor_type) return true;
        found.push_back(Tensor::borrow(as_tensor_object(item)));
        return false;
    });
}

// _whole(name, function, *arguments): what the function makes of them, as one node of the graph (autograd/whole.h).
PyObject* whole_operator(PyObject*, PyObject* const* args, Py_ssize_t n) {
    return guarded([&]() -> PyObject* {
        const uint64_t since = upcoming_sequence();
        Ref result(PyObject_Vectorcall(args[1], args + 2, size_t(n - 2), nullptr));
        if (!grad_enabled() || upcoming_sequence() == since) return result.release();
        TensorList inputs, results;
        for (Py_ssize_t i = 2; i < n; i++) find_tensors(args[i], inputs, false);
        if (find_tensors(result.get(), results, true)) {
            PyObject* name = args[0];
            Py_INCREF(name);
            PyUnicode_InternInPlace(&name);  // kept for ever: nodes point to its characters
            fold(spanned(results), PyUnicode_AsUTF8(name), spanned(inputs), since);
        }
        return result.release();
    });
}

PyMethodDef functions[] = {
    {"_whole", reinterpret_cast<PyCFunction>(whole_operator), METH_FASTCALL, nullptr},
    {"_set_grad_enabled", set_grad_enabled_c, METH_O, nullptr},
    {"is_grad_enabled", is_grad_enabled_c, METH_NOARGS,
     "is_grad_enabled() -> bool\n\nWhether autograd records.\n\n>>> with wisp.no_grad():\n...     wisp.is_grad_enabled()\nFalse"},
    {"_set_inference_mode", set_inference_mode_c, METH_O, nullptr},
    {"is_inference_mode_enabled", is_inference_mode_enabled_c, METH_NOARGS,
     "is_inference_mode_enabled() -> bool\n\nWhether inference mode is on.\n\n>>> with wisp.inference_mode():\n...     "
     "wisp.is_inference_mode_enabled()\nTrue"},
    {"_function_record", function_record, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool function_jvp(Node& node, const TensorList& tangents, std::span<const Tensor> results, TensorList& products) {
    Ref found(PyObject_CallMethod(node.context, "_has_jvp", nullptr));
    if (found.get() != Py_True) return false;
    Ref given(make_tuple(tangents.data(), tangents.size(), nullptr)), outputs(make_tuple(results.data(), int64_t(results.size()), nullptr));
    Ref list(PyObject_CallMethod(node.context, "_run_jvp", "(OO)", given.get(), outputs.get()));
    products = to_tensors(list.get());
    return true;
}

PyObject* node_object(Node* node) {
    auto* o = reinterpret_cast<PyObject*>(node);
    if (Py_TYPE(o) == node_type) {  // shown to Python for the first time
        PyTypeObject* c = class_named(node->name);
        Py_INCREF(c);
        Py_SET_TYPE(o, c);
    }
    Py_INCREF(o);
    return o;
}

void add_node_type(PyObject* module) {
    type.tp_name = "wisp.autograd.graph.Node";
    type.tp_doc =
        "A node of the backward graph, `tensor.grad_fn`.\n\n>>> x = wisp.ones(1, requires_grad=True)\n"
        ">>> (x * x).grad_fn.name()\n'MulBackward0'";
    type.tp_basicsize = sizeof(Node);
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE;
    type.tp_dealloc = dealloc_node;
    type.tp_traverse = traverse_node;
    type.tp_clear = clear_node;
    type.tp_free = PyObject_GC_Del;
    type.tp_repr = node_repr;
    type.tp_call = call_node;
    type.tp_getset = getset;
    type.tp_methods = methods;
    type.tp_getattro = get_attribute;
    if (PyType_Ready(&type) < 0) throw PythonError();
    node_type = &type;
    PyModule_AddObjectRef(module, "Node", reinterpret_cast<PyObject*>(&type));
}

void add_autograd_functions(PyObject* module) {
    if (PyModule_AddFunctions(module, functions) < 0) throw PythonError();
}

}  // namespace wisp
