// Nodes: making them, saving tensors in them, freeing them without recursion; the history of views and in-place writes.
#include "node.h"

#include <cstring>

#include "../compile/tape.h"
#include "../core/above.h"
#include "../ops/ops.h"
#include "../ops/sparse.h"
#include "engine.h"
#include "source.h"

namespace wisp {

PyTypeObject* node_type = nullptr;

// --- modes -------------------------------------------------------------------------------------------------------

namespace {
// Read by every operator: at a fixed place in the thread's block, without a call to find it.
#define WISP_HOT __attribute__((tls_model("initial-exec")))
thread_local GradState grad_mode WISP_HOT = grad_on;
thread_local int forward_depth WISP_HOT = 0;
bool anomaly = false, anomaly_nan = true;
uint64_t next_sequence = 0;

constexpr int free_limit = 256;
Node* free_list[free_limit];
int free_count = 0;
}  // namespace

// The operator that a node is of, as messages name it: "Add" for "AddBackward0", "Sum1" for "SumBackward1".
static std::string forward_name(const char* node) {
    const std::string name = node;
    const size_t end = name.rfind("Backward");
    if (end == std::string::npos || end == 0) return name;
    const std::string number = name.substr(end + 8);
    return name.substr(0, end) + (number == "0" || number == "s" ? "" : number);
}

GradState grad_state() { return grad_mode; }
void set_grad_state(GradState state) { grad_mode = state; }
bool grad_enabled() { return grad_mode != grad_off; }
void set_grad_enabled(bool on) { grad_mode = !on ? grad_off : grad_mode == grad_forward ? grad_forward : grad_on; }
int forward_depth_of_thread() { return forward_depth; }
void enter_forward(bool in) {
    forward_depth += in ? 1 : -1;
    if (in && grad_mode == grad_off) grad_mode = grad_forward;
    if (!forward_depth && grad_mode == grad_forward) grad_mode = grad_off;
}
uint64_t upcoming_sequence() { return next_sequence; }
bool inference_mode_enabled() { return inference_mode; }
void set_inference_mode(bool on) { inference_mode = on; }
bool anomaly_enabled() { return anomaly; }
bool anomaly_checks_nan() { return anomaly && anomaly_nan; }
void set_anomaly(bool on, bool check_nan) {
    anomaly = on;
    anomaly_nan = check_nan;
}

// --- making and freeing ------------------------------------------------------------------------------------------

static Node* bare_node(const char* name) {
    Node* n;
    if (free_count) {
        n = free_list[--free_count];
        PyObject_Init(reinterpret_cast<PyObject*>(n), node_type);
    } else {
        n = PyObject_GC_New(Node, node_type);
        if (!n) throw PythonError();
        new (&n->next) Small<Edge, 3>();
        new (&n->saved) Small<Saved, 3>();
        new (&n->outputs) Small<OutputInfo, 1>();
        new (&n->state) NodeState();
    }
    n->name = name;
    n->sequence = next_sequence++;
    n->apply = nullptr;
    n->destroy_closure = nullptr;
    n->context = n->metadata = nullptr;
    n->hooks = nullptr;
    n->variable = nullptr;
    n->inner = nullptr;
    n->released = false;
    n->forward = forward_depth > 0;
    n->in_region = noting;
    n->pointwise = false;
    n->batched_edges = 0;
    n->adds_part = false;
    n->task = nullptr;
    n->source_code = nullptr;
    n->source_offset = 0;
    PyObject_GC_Track(reinterpret_cast<PyObject*>(n));
    return n;
}

Node* new_node(const char* name) {
    Node* n = bare_node(name);
    const SourceLine line = current_source();
    n->source_code = line.code;
    n->source_offset = line.offset;
    if (anomaly) remember_traceback(*n);
    return n;
}

namespace {

// Everything a dying node held. Destroying it may free the next node, and so on: chains nest to a fixed depth, and what
// lies deeper waits in a queue, so that a long chain stays off the stack.
struct Remains {
    Small<Edge, 3> next;
    Small<Saved, 3> saved;
    Small<Tensor, 1> buffer;
    PyObject* objects[6];
};
constexpr int deepest = 32;
thread_local int depth WISP_HOT = 0;
thread_local std::vector<Remains>* queue WISP_HOT = nullptr;

void free_hooks(NodeHooks* hooks) {
    for (auto& h : hooks->tensor_hooks) Py_DECREF(h.hooks);
    Py_XDECREF(hooks->pre_hooks);
    Py_XDECREF(hooks->post_hooks);
    delete hooks;
}

void forget_accumulator(Node& n) {
    if (n.variable && n.variable->extra && n.variable->extra->accumulator == &n) n.variable->extra->accumulator = nullptr;
}

Remains strip(Node& n) {
    Remains r{
        std::move(n.next),
        std::move(n.saved),
        std::move(n.state.buffer),
        {n.context, n.metadata, reinterpret_cast<PyObject*>(n.variable), reinterpret_cast<PyObject*>(n.inner), n.source_code, nullptr}};
    n.context = n.metadata = n.source_code = nullptr;
    n.variable = nullptr;
    n.inner = nullptr;
    return r;
}

// Lets go of everything that n holds.
void empty_node(Node& n) {
    forget_accumulator(n);
    if (depth >= deepest) {
        if (!queue) queue = new std::vector<Remains>;
        queue->push_back(strip(n));
        return;
    }
    depth++;
    n.next.clear();
    n.saved.clear();
    n.state.buffer.clear();
    Py_CLEAR(n.context);
    Py_CLEAR(n.metadata);
    Py_CLEAR(n.source_code);
    Py_CLEAR(n.variable);
    Py_CLEAR(n.inner);
    while (depth == 1 && queue && !queue->empty()) {
        Remains r = std::move(queue->back());
        queue->pop_back();
        for (PyObject* o : r.objects) Py_XDECREF(o);
    }
    depth--;
}

}  // namespace

void dealloc_node(PyObject* self) {
    auto& n = *reinterpret_cast<Node*>(self);
    PyObject_GC_UnTrack(self);
    if (n.hooks) {
        free_hooks(n.hooks);
        n.hooks = nullptr;
    }
    if (n.destroy_closure) n.destroy_closure(n);
    n.outputs.clear();
    empty_node(n);
    PyTypeObject* type = Py_TYPE(self);
    if (free_count < free_limit) {
        free_list[free_count++] = &n;
    } else {
        n.next.~Small();
        n.saved.~Small();
        n.outputs.~Small();
        n.state.~NodeState();
        PyObject_GC_Del(self);
    }
    if (type != node_type) Py_DECREF(reinterpret_cast<PyObject*>(type));
}

int traverse_node(PyObject* self, visitproc visit, void* arg) {
    auto& n = *reinterpret_cast<Node*>(self);
    Py_VISIT(n.context);
    Py_VISIT(n.metadata);
    Py_VISIT(reinterpret_cast<PyObject*>(n.variable));
    Py_VISIT(reinterpret_cast<PyObject*>(n.inner));
    for (Edge& e : n.next) Py_VISIT(reinterpret_cast<PyObject*>(e.node.get()));
    for (Saved& s : n.saved) {
        Py_VISIT(s.tensor.object());
        Py_VISIT(s.packed);
        Py_VISIT(s.unpack);
    }
    for (Tensor& t : n.state.buffer) Py_VISIT(t.object());
    if (n.hooks) {
        for (auto& h : n.hooks->tensor_hooks) Py_VISIT(h.hooks);
        Py_VISIT(n.hooks->pre_hooks);
        Py_VISIT(n.hooks->post_hooks);
    }
    return 0;
}

int clear_node(PyObject* self) {
    auto& n = *reinterpret_cast<Node*>(self);
    if (n.hooks) {
        NodeHooks* hooks = n.hooks;
        n.hooks = nullptr;
        free_hooks(hooks);
    }
    empty_node(n);
    return 0;
}

std::string source_of(const Node& node) { return source_text(node.source_code, node.source_offset); }

// --- edges and history -------------------------------------------------------------------------------------------

void track(TensorObject* o) {
    auto* self = reinterpret_cast<PyObject*>(o);
    if (!PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
}

void set_history(const Tensor& t, Node* node, uint32_t output) {
    Py_XINCREF(reinterpret_cast<PyObject*>(node));
    Node* old = t->grad_fn;
    if (t->extra && t->extra->retains_grad && old && old->hooks) {  // retain_grad follows the tensor
        auto& list = old->hooks->retain_grad;
        for (int64_t i = 0; i < list.size(); i++)
            if (list[i] == t.get()) {
                std::swap(list[i], list.back());
                list.pop_back();
                break;
            }
        if (node) hooks_of(*node).retain_grad.push_back(t.get());
    }
    t->grad_fn = node;
    t->output_number = output;
    t->requires_grad = false;
    if (t->base) t->view_version = t.version();
    if (node) track(t.get());
    Py_XDECREF(reinterpret_cast<PyObject*>(old));
}

bool any_needs_grad(const TensorList& tensors) {
    if (grad_mode == grad_off) return false;
    for (const Tensor& t : tensors)
        if (wants_grad(t)) return true;
    return false;
}

static Node* accumulator_of(const Tensor& t) {
    TensorExtra& e = extra(t);
    if (e.accumulator) {
        // The tensor may have been moved since (Module.to); gradients go where it is now. Looked at when it is used, not when
        // its data is set: between forward and backward a sharded parameter lies empty.
        OutputInfo& known = e.accumulator->outputs[0];
        const DType dtype = e.grad_dtype.value_or(t.dtype());
        if (known.dtype != dtype || known.any_dtype != e.any_grad_dtype || !(known.device == t.device()) || !(known.sizes == t.sizes()))
            known = {t.sizes(), dtype, t.device(), e.any_grad_dtype};
        Py_INCREF(reinterpret_cast<PyObject*>(e.accumulator));
        return e.accumulator;
    }
    Node* n = bare_node("AccumulateGrad");
    n->sequence = UINT64_MAX;  // gradients of leaves are added up as soon as they are complete
    n->variable = t.get();
    Py_INCREF(t.object());
    n->outputs.push_back({t.sizes(), e.grad_dtype.value_or(t.dtype()), t.device(), e.any_grad_dtype});
    n->apply = accumulate_grad;
    e.accumulator = n;
    return n;
}

// A view that has no place in the graph of its base cannot be written to, nor used after the base was written to (`since`).
static void refuse_view(const Tensor& view, const char* name, bool since) {
    if (view->view_kind == view_plain || view->view_kind == view_other_dtype) return;
    const char* const what = since ? "its base or another view of its base has been modified inplace" : "is being modified inplace";
    const bool inference = view->view_kind == view_inference;
    const char* const mode = inference ? "inference" : "no_grad";
    const std::string which =
        view->grad_fn && (inference || view->view_kind == view_no_grad)
            ? str("Output ", view->output_number, " of ", forward_name(view->grad_fn->name), " is a view of a view which was created in ",
                  mode, " mode and ", what, ".")
        : view->grad_fn ? str("Output ", view->output_number, " of ", forward_name(view->grad_fn->name), " is a view and ", what, ".")
                        : str("A view was created in ", mode, " mode and ", what, " with grad mode enabled.");
    if (view->view_kind == view_multi_output)
        throw RuntimeError(
            which,
            " This view is the output of a function that returns multiple views. Such functions do not allow the output views "
            "to be modified inplace. You should replace the inplace operation by an out-of-place one. (",
            name, " on shape ", view.sizes(), ")");
    if (view->view_kind == view_custom)
        throw RuntimeError(
            which,
            " This view was created inside a custom Function (or because an input was returned as-is), and the history of the write would "
            "take the place of the Function's own backward, with wrong gradients. Return a clone() from the Function instead. (",
            name, " on shape ", view.sizes(), ")");
    throw RuntimeError(which,
                       " Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both "
                       "the view and the inplace either both inside the ",
                       inference ? "inference_mode" : "no_grad",
                       " block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked). (",
                       name, " on shape ", view.sizes(), ")");
}

// The history n of what lies in the memory of t as that of t, which may be a conjugate or negative view of it.
static void set_history_of_view(const Tensor& t, NodePtr n) {
    if (is_lazy(t.object())) {
        const bool negative = Py_TYPE(t.object()) == negative_type;
        NodePtr view = NodePtr::steal(new_node(negative ? "NegViewBackward0" : "ConjBackward0"));
        view->next.push_back({n, 0});
        if (negative) set_closure(*view, [](Backward& bw) { bw.set(0, neg(bw.grad())); });
        else set_closure(*view, [](Backward& bw) { bw.set(0, conj(bw.grad())); });
        view->outputs.push_back({t.sizes(), t.dtype(), t.device()});
        n = view;
    }
    set_history(t, n.get(), 0);
}

Node* grad_fn_of(const Tensor& t) {
    if (t->base && t->view_version != t.version() && t->base->dtype != t->dtype) [[unlikely]] {
        const Tensor base = Tensor::borrow(t->base);
        if (base.in_graph() && sees_parts(base.dtype(), t.dtype())) {
            GradMode on(grad_on);
            const Tensor seen = as_strided(in_parts(base, t.dtype()), t.sizes(), t.strides(), t.offset());
            set_history_of_view(t, NodePtr::borrow(seen->grad_fn));
        }
        return t->grad_fn;
    }
    if (t->base && t->view_version != t.version()) {
        Tensor base = Tensor::borrow(t->base);
        if (base.in_graph()) {
            if (grad_mode == grad_on && (t->view_kind == view_no_grad || t->view_kind == view_inference)) refuse_view(t, "a view", true);
            // The base was written to since: this view's history is the base's, seen through its layout.
            NodePtr n = NodePtr::steal(new_node("AsStridedBackward0"));
            add_input(*n, base);
            set_as_strided_backward(*n, base.layout(), t.layout());
            n->outputs.push_back({t.sizes(), t.dtype(), t.device()});
            set_history_of_view(t, std::move(n));
        }
    }
    return t->grad_fn;
}

Edge gradient_edge(const Tensor& t) {
    if (!t.defined()) return {};
    if (t->base && t->view_version != t.version()) grad_fn_of(t);
    if (t->grad_fn) return {NodePtr::borrow(t->grad_fn), t->output_number};
    if (t->requires_grad) return {NodePtr::steal(accumulator_of(t)), 0};
    return {};
}

void add_input(Node& node, const Tensor& input) {
    if (!input.defined() || !(input->grad_fn || input->requires_grad || input->base || input->dual)) {
        node.next.emplace_back();
        return;
    }
    node.next.push_back(gradient_edge(input));
    if (node.forward && !node.next.back().node && has_tangent(input)) node.next.back().node = NodePtr::borrow(tangent_marker());
}

bool is_recorded(const Node& node) {
    if (!node.forward) return true;
    if (grad_mode != grad_on) return false;
    for (const Edge& e : node.next)
        if (e.node && e.node.get() != tangent_marker()) return true;
    return false;
}

void add_output(Node& node, const Tensor& output) {
    const uint32_t number = uint32_t(node.outputs.size());
    if (!output.defined()) {
        node.outputs.emplace_back();
        return;
    }
    node.outputs.push_back({output.sizes(), output.dtype(), output.device()});
    if (output->view_kind == view_inference && !output->base) return;  // see make_view
    if (is_differentiable(output.dtype()) && is_recorded(node)) set_history(output, &node, number);
}

// --- saved tensors -----------------------------------------------------------------------------------------------

void save(Node& node, const Tensor& t, bool written) {
    Saved& s = node.saved.emplace_back();
    if (!t.defined()) return;
    if (t->inference)
        throw RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode "
            "in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor "
            "and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`.");
    s.version = t.version();
    if (t->grad_fn == &node || written) {
        s.output = written ? 0 : int16_t(t->output_number);
        s.tensor = alias(t);
    } else {
        s.tensor = t;
        s.was_leaf = !t->grad_fn;
    }
    if (noting) compile::saved_for_backward(t.storage());
    if (saved_hooks_active() && !node.forward && !t->wrapped_number) pack_saved(s);
}

Tensor Backward::saved(int i) const {
    if (node.released || !node.saved[i].packed) [[likely]]
        return unpack_saved(node, i, create_graph);
    // A closure may ask more than once, the hook is asked once: its answer may cost a computation or a copy.
    if (int(unpacked.size()) <= i) unpacked.resize(i + 1);
    if (!unpacked[i]) unpacked[i] = unpack_saved(node, i, create_graph);
    return unpacked[i];
}

Tensor unpack_saved(Node& node, int64_t i, bool with_history) {
    if (node.released)
        throw RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have "
            "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
            "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
            "if you need to access saved tensors after calling backward. (",
            node.name, node.source_code ? ", made at " + source_of(node) : std::string(), ")");
    Saved& s = node.saved[i];
    if (s.packed) return call_unpack_hook(s, node, with_history);
    if (!s.tensor) return {};
    if (s.tensor.version() != s.version) {
        const Node* const maker = s.output >= 0 ? &node : s.tensor->grad_fn;
        const uint32_t number = s.output >= 0 ? uint32_t(s.output) : s.tensor->output_number;
        std::string origin = maker ? str("output ", number, " of ", forward_name(maker->name)) : std::string();
        if (s.output < 0) origin += str(maker ? ", " : "", "an input of ", forward_name(node.name));
        throw RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: [",
                           type_name(s.tensor.dtype()), "Tensor ", s.tensor.sizes(), "], which is ", origin, ", is at version ",
                           s.tensor.version(), "; expected version ", s.version, " instead. It was saved at ", source_of(node),
                           last_inplace_source(s.tensor),
                           ". Hint: use the out-of-place form of that operation, or clone() the tensor before changing it; "
                           "enable anomaly detection with set_detect_anomaly(True) for the full traceback.");
    }
    if (s.output >= 0 && with_history) {
        Tensor t = alias(s.tensor);
        set_history(t, &node, uint32_t(s.output));
        if (s.tensor->dual) copy_tangents(t, s.tensor);
        return t;
    }
    if (!s.was_leaf && s.output < 0 && !s.tensor->grad_fn) [[unlikely]]
        throw RuntimeError(
            "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not supported, please use "
            "out-of-place `.detach()` instead. (",
            node.name, ", made at ", source_of(node), ")");
    return s.tensor;
}

void release_saved(Node& node) {
    bool any = false;  // a node that kept nothing may run again
    for (const Saved& s : node.saved) any |= s.tensor.defined() || s.packed;
    if (!any) return;
    node.saved.clear();
    node.released = true;
}

// Of the node that CopySlices holds, or the steps of a whole operator.
void release_inner(Node& node) {
    if (node.inner->apply) return release_saved(*node.inner);
    Py_CLEAR(node.inner);
    node.released = true;
}

void bump_version(const Tensor& t) {
    if (t->untracked_writes) return;
    t.storage()->version++;
    if (grad_enabled()) note_inplace_write(t.storage());
}

// --- views and in-place writes -------------------------------------------------------------------------------------

Tensor make_view(const Tensor& t, Layout layout, ViewKind kind) {
    Tensor v = alias(t, std::move(layout));
    if (t->inference) {  // has no views to autograd: they are inference tensors on the same memory
        v->inference = true, v->view_kind = view_inference;
        track(v.get());
        return v;
    }
    TensorObject* base = t->base ? t->base : t.get();
    Py_INCREF(reinterpret_cast<PyObject*>(base));
    v->base = base;
    const ViewKind outside = inference_mode ? view_inference : view_no_grad;
    v->view_kind = kind != view_plain ? kind : grad_mode != grad_on ? outside : t->base ? t->view_kind : view_plain;
    v->view_version = t.version();
    v->inference = false;
    if (inference_mode && t.in_graph()) v->requires_grad = true;  // as PyTorch has it: a leaf, which may not be written to later
    track(v.get());
    return v;
}

void check_inplace(const Tensor& self, const char* name, bool recording, bool one_value) {
    if (self.storage()->read_only)
        throw RuntimeError(name, ": the memory of this tensor is read-only (it came from a read-only array); clone() it first");
    if (!self.is_contiguous() && self.numel() > 1 && !one_value && self.layout().may_overlap_itself()) {
        for (int64_t i = 0; i < self.dim(); i++)
            if (self.strides()[i] == 0 && self.sizes()[i] > 1)
                throw RuntimeError(
                    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                    "Please clone() the tensor before performing the operation. (",
                    name, " on a tensor of shape ", self.sizes(), " with strides ", self.strides(), ")");
    }
    if (self->inference && !inference_mode) [[unlikely]]
        throw RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal "
            "tensor before doing inplace update. (",
            name, ")");
    if (grad_mode != grad_on) return;
    if (self->requires_grad && !self->grad_fn && self->base) refuse_view(self, name, false);
    if (self->requires_grad && !self->grad_fn)
        throw RuntimeError("a leaf Variable that requires grad is being used in an in-place operation. (", name,
                           ") "
                           "Use the out-of-place form, or wrap the write in `with no_grad():`.");
    if (!self->base) return;
    Tensor base = Tensor::borrow(self->base);
    if (!recording && !base.in_graph()) return;
    refuse_view(self, name, false);
    switch (self->view_kind) {
    case view_other_dtype:
        if (base.dtype() == self.dtype() || sees_parts(base.dtype(), self.dtype())) break;
        throw RuntimeError(name, ": a view of shape ", self.sizes(), " has another dtype than its base; write to the base instead.");
    default: break;
    }
    if (base->requires_grad && !base->grad_fn)
        throw RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation. (", name, ")");
}

void rebase_history(const Tensor& self, Node& node) {
    if (!is_recorded(node) && !(grad_mode == grad_on && self->base && Tensor::borrow(self->base).in_graph())) {
        node.outputs.push_back({self.sizes(), self.dtype(), self.device()});
        if (grad_mode == grad_on && !self->base && self->grad_fn) set_history(self, nullptr, 0);
        return;
    }
    if (!self->base) {
        node.outputs.push_back({self.sizes(), self.dtype(), self.device()});
        set_history(self, &node, 0);
        return;
    }
    Tensor base = Tensor::borrow(self->base);
    node.outputs.push_back({self.sizes(), self.dtype(), self.device()});
    NodePtr copy = NodePtr::steal(new_node("CopySlices"));
    copy->next.push_back(gradient_edge(base));
    for (int64_t i = 1; i < node.next.size(); i++)
        copy->next.push_back(node.forward && node.next[i].node.get() == tangent_marker() ? Edge() : node.next[i]);
    copy->inner = &node;
    Py_INCREF(reinterpret_cast<PyObject*>(&node));
    set_copy_slices_backward(*copy, base, self);
    copy->outputs.push_back({base.sizes(), base.dtype(), base.device()});
    set_history(base, copy.get(), 0);
    self->view_version = self.version() - 1;  // remake the view's own history from the base
    grad_fn_of(self);
}

Tensor before_write(const Tensor& self, const Tensor& other) { return needs_grad(self, other) ? clone(self) : self; }

void assign_inplace(const Tensor& self, const Tensor& result, const char* name) {
    if (!(result.sizes() == self.sizes()))
        throw RuntimeError("output with shape ", self.sizes(), " doesn't match the broadcast shape ", result.sizes(), " (", name, ")");
    if ((is_complex(result.dtype()) && !is_complex(self.dtype())) || (is_floating(result.dtype()) && is_integral(self.dtype())) ||
        (result.dtype() != DType::boolean && self.dtype() == DType::boolean))
        throw RuntimeError("result type ", type_name(result.dtype()), " can't be cast to the desired output type ", type_name(self.dtype()),
                           " (", name, ")");
    const bool recording = grad_enabled() && is_differentiable(self.dtype()) && (result.requires_grad() || self.requires_grad());
    check_inplace(self, name, recording);
    copy_values(self, result);
    bump_version(self);
    if (!recording) return;
    NodePtr node = NodePtr::steal(new_node("CopyBackwards"));
    node->next.emplace_back();  // the old value of self no longer matters
    add_inputs_before_write(*node, self, {&result, 1});
    set_closure(*node, [](Backward& bw) {
        if (bw.needs(1)) bw.set(1, bw.grad());
    });
    if (!self->base && result->grad_fn && result.dtype() == self.dtype()) {
        set_history(self, result->grad_fn, result->output_number);
    } else {
        rebase_history(self, *node);
    }
    if (node->forward) carry_tangents(self, result);
}

}  // namespace wisp
