// Nodes of the backward graph, and how an operator records one.
//
// A front door computes its result, then, only if a gradient may be asked for, records how to go back:
//
//     Tensor y = ...;
//     if (needs_grad(a, b))
//         record(y, "MulBackward0", {a, b}, {a, b}, [](Backward& bw) {
//             if (bw.needs(0)) bw.set(0, mul(bw.grad(), bw.saved(1)));
//             if (bw.needs(1)) bw.set(1, mul(bw.grad(), bw.saved(0)));
//         });
//
// The closure may capture plain values (sizes, numbers), never tensors: tensors go into the saved list, where their
// versions are checked, hooks can pack them and they are freed after the backward pass. A result may be saved too.
// Gradients may come back broadcast or in another dtype: the engine reduces and casts them to what the input was.
// Backward closures call front doors, so recording them (create_graph) needs no further code.
#pragma once
#include <initializer_list>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "../core/tensor.h"

namespace wisp {

struct Node;
struct Backward;
struct Task;  // one run of the engine

class NodePtr {
public:
    NodePtr() = default;
    NodePtr(const NodePtr& o) : p_(o.p_) { Py_XINCREF(reinterpret_cast<PyObject*>(p_)); }
    NodePtr(NodePtr&& o) noexcept : p_(o.p_) { o.p_ = nullptr; }
    NodePtr& operator=(NodePtr o) noexcept {
        std::swap(p_, o.p_);
        return *this;
    }
    ~NodePtr() { Py_XDECREF(reinterpret_cast<PyObject*>(p_)); }
    static NodePtr steal(Node* p) {
        NodePtr n;
        n.p_ = p;
        return n;
    }
    static NodePtr borrow(Node* p) {
        Py_XINCREF(reinterpret_cast<PyObject*>(p));
        return steal(p);
    }
    Node* get() const { return p_; }
    Node* operator->() const { return p_; }
    Node& operator*() const { return *p_; }
    explicit operator bool() const { return p_ != nullptr; }
    Node* release() {
        Node* p = p_;
        p_ = nullptr;
        return p;
    }

private:
    Node* p_ = nullptr;
};

struct Edge {
    NodePtr node;
    uint32_t number = 0;  // which output of the forward operator
};

// A tensor kept for the backward pass.
struct Saved {
    Tensor tensor;  // an alias without history if it is an output
    uint32_t version = 0;
    int16_t output = -1;  // >= 0: it is this output of the node itself
    bool was_leaf = false;
    PyObject* packed = nullptr;  // what a pack hook returned, with `unpack`
    PyObject* unpack = nullptr;

    Saved() = default;
    Saved(Saved&& o) noexcept
        : tensor(std::move(o.tensor)), version(o.version), output(o.output), was_leaf(o.was_leaf), packed(o.packed), unpack(o.unpack) {
        o.packed = o.unpack = nullptr;
    }
    Saved(const Saved&) = delete;
    ~Saved() {
        Py_XDECREF(packed);
        Py_XDECREF(unpack);
    }
};

// Shape and dtype of an output of the forward operator: what its incoming gradient must look like.
struct OutputInfo {
    Dims sizes;
    DType dtype = DType::f32;
    Device device;
    bool any_dtype = false;  // of a leaf whose grad_dtype is None
};

struct NodeHooks {
    struct TensorHooks {
        uint32_t output;
        PyObject* hooks;  // dict id -> callable
    };
    Small<TensorHooks, 2> tensor_hooks;   // on the gradient of an output, before the node runs
    Small<TensorObject*, 2> retain_grad;  // outputs that want their .grad (weak; a dying tensor removes itself)
    PyObject* pre_hooks = nullptr;        // dict: (grad_outputs) -> grad_outputs or None
    PyObject* post_hooks = nullptr;       // dict: (grad_inputs, grad_outputs) -> grad_inputs or None
};

// What a run of the engine keeps per node.
struct NodeState {
    int32_t dependencies = 0;
    bool needed = false;      // leads to an input whose gradient was asked for
    Small<Tensor, 1> buffer;  // gradients that have arrived, one per output
    void reset() {
        dependencies = 0;
        needed = false;
        buffer.clear();
    }
};

struct Node {
    PyObject_HEAD
    const char* name;   // "MulBackward0"
    uint64_t sequence;  // later nodes run first
    void (*apply)(Backward&);
    void (*destroy_closure)(Node&);  // null: trivial
    PyObject* context;               // ctx of a Python autograd.Function; else null
    PyObject* metadata;              // dict for users and anomaly mode; else null
    NodeHooks* hooks;
    TensorObject* variable;  // strong, of an AccumulateGrad node
    Node* inner;             // strong, of a CopySlices node: the node of the in-place operator
    PyObject* source_code;   // code object of the forward line, with the instruction's offset
    int source_offset;
    bool released;          // saved tensors were freed by a backward pass
    bool forward : 1;       // recorded in forward mode: tangents of its results are wanted
    bool in_region : 1;     // recorded in a compiled region: backward runs in one, too
    bool pointwise : 1;     // its gradients are rows of the table, which a region only notes
    uint8_t batched_edges;  // bits of the inputs whose gradients `apply` also makes for a batch of incoming ones; see BatchedClosure
    bool adds_part;         // its closure may add to the gradient of its one input: see Backward::add_part
    Small<Edge, 3> next;
    Small<Saved, 3> saved;
    Small<OutputInfo, 1> outputs;
    Task* task;  // the engine's run that uses `state` at the moment
    NodeState state;
    alignas(16) char closure[80];
};

extern PyTypeObject* node_type;

// What a backward function works with.
struct Backward {
    Node& node;
    Tensor* grads;    // incoming, one per output of the forward operator; may be undefined
    Tensor* results;  // outgoing, one per recorded input
    bool create_graph;
    const bool* wanted;  // null: every input with an edge
    int64_t batch = 0;   // > 0: the incoming gradients are this many, along a further first dimension

    bool has_grad(int i = 0) const { return grads[i].defined(); }
    const Tensor& grad(int i = 0);  // zeros where no gradient arrived
    bool needs(int i) const { return node.next[i].node && (!wanted || wanted[i]); }
    Tensor saved(int i) const;  // checks that it was not changed in place
    void set(int i, Tensor t) { results[i] = std::move(t); }
    // For closures that are Batched: where the dimensions of the operator begin, and sizes with the batch in front.
    int64_t first_dim() const { return batch ? 1 : 0; }
    Dims with_batch(const Dims& sizes) const;
    // For closures with `adds_part`, whose gradient is `part` of one that is zero elsewhere: adds it to what has arrived of the input's
    // gradient already, if that can be written to, so that many parts of a large tensor do not cost its size each. False: not done.
    bool add_part(const Layout& part);
    Tensor* arrived = nullptr;
    mutable std::vector<Tensor> unpacked;  // what hooks answered, by the saved tensor's number
};

// A closure that takes a batch of gradients at once, for the inputs whose bits are in `edges`. Any other gets them one by one.
template <uint8_t edges, class F> struct BatchedClosure : F {
    static constexpr uint8_t batched_edges = edges;
};
template <uint8_t edges, class F> BatchedClosure<edges, F> batched(F&& f) { return {std::forward<F>(f)}; }

// --- modes, per thread ---
// grad_forward: somebody said no_grad() in forward mode; operators are recorded for their tangents, and then forgotten.
enum GradState : uint8_t { grad_off, grad_on, grad_forward };
GradState grad_state();
void set_grad_state(GradState state);
bool grad_enabled();  // on or forward
void set_grad_enabled(bool on);
bool inference_mode_enabled();
void set_inference_mode(bool on);
bool anomaly_enabled();
void set_anomaly(bool on, bool check_nan);
class GradMode {
public:
    explicit GradMode(bool on) : before_(grad_state()) { set_grad_enabled(on); }
    explicit GradMode(GradState state) : before_(grad_state()) { set_grad_state(state); }
    ~GradMode() { set_grad_state(before_); }

private:
    GradState before_;
};

inline bool wants_grad(const Tensor& t) { return t.defined() && t.requires_grad(); }
template <class... T> inline bool needs_grad(const T&... tensors) { return (wants_grad(tensors) || ...) && grad_enabled(); }
bool any_needs_grad(const TensorList& tensors);

// --- recording ---
Node* new_node(const char* name);
void add_input(Node& node, const Tensor& input);
void add_output(Node& node, const Tensor& output);  // sets its grad_fn
// An output must be added before it is saved; `written`: the view that an in-place operator has changed, whose history goes by its base.
void save(Node& node, const Tensor& t, bool written = false);
Edge gradient_edge(const Tensor& t);
void set_history(const Tensor& t, Node* node, uint32_t output);  // takes a new reference

template <class Closure> void apply_closure(Backward& bw) {
    if constexpr (sizeof(Closure) <= sizeof(Node::closure)) (*reinterpret_cast<Closure*>(bw.node.closure))(bw);
    else (**reinterpret_cast<Closure**>(bw.node.closure))(bw);
}
// Closures that tell what they hold (told.h), by the function that calls them.
struct Telling;
bool enter_telling(void (*apply)(Backward&), void (*tell)(const Node&, Telling&));
template <class Closure> struct TellingClosure {
    static void tell(const Node& node, Telling& t) {
        if constexpr (sizeof(Closure) <= sizeof(Node::closure)) reinterpret_cast<const Closure*>(node.closure)->tell(t);
        else (*reinterpret_cast<Closure* const*>(node.closure))->tell(t);
    }
    static inline const bool entered = enter_telling(&apply_closure<Closure>, &tell);  // before main
};

// What is given is the closure, or makes it.
template <class F> struct ClosureOf {
    using type = F;
};
template <class F>
    requires requires { typename F::Closure; }
struct ClosureOf<F> {
    using type = typename F::Closure;
};

template <class F> void set_closure(Node& node, F&& f) {
    using Closure = typename ClosureOf<std::decay_t<F>>::type;
    if constexpr (requires { &Closure::tell; }) (void)&TellingClosure<Closure>::entered;
    if constexpr (requires { Closure::batched_edges; }) node.batched_edges = Closure::batched_edges;
    if constexpr (requires { Closure::adds_part; }) node.adds_part = Closure::adds_part;
    if constexpr (requires { Closure::pointwise; }) node.pointwise = Closure::pointwise;
    if constexpr (sizeof(Closure) <= sizeof(Node::closure)) {
        new (node.closure) Closure(std::forward<F>(f));
        node.apply = &apply_closure<Closure>;
        if constexpr (!std::is_trivially_destructible_v<Closure>)
            node.destroy_closure = [](Node& n) { reinterpret_cast<Closure*>(n.closure)->~Closure(); };
    } else {
        auto* heap = new Closure(std::forward<F>(f));
        *reinterpret_cast<Closure**>(node.closure) = heap;
        node.apply = &apply_closure<Closure>;
        node.destroy_closure = [](Node& n) { delete *reinterpret_cast<Closure**>(n.closure); };
    }
}

// --- forward mode (forward.cpp) ---
// The last step of recording: in forward mode, gives the results their tangents. `elementwise`: each element of the
// result depends on the elements of the inputs at its own place alone.
void propagate_tangents(Node& node, std::span<const Tensor> inputs, std::span<const Tensor> results, bool in_place, bool elementwise);
inline std::span<const Tensor> spanned(std::initializer_list<Tensor> l) { return {l.begin(), l.size()}; }
inline std::span<const Tensor> spanned(const TensorList& l) { return {l.data(), size_t(l.size())}; }
inline void end_record(Node& node, std::span<const Tensor> inputs, std::span<const Tensor> results, bool in_place = false,
                       bool elementwise = false) {
    if (node.forward) propagate_tangents(node, inputs, results, in_place, elementwise);
}
void carry_tangents(const Tensor& to, const Tensor& from);  // in-place: `to` has taken the value of `from`

// One result. `inputs` are the operator's differentiable arguments in order (undefined ones allowed).
template <class F>
void record(const Tensor& result, const char* name, std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> saved, F&& f) {
    NodePtr node = NodePtr::steal(new_node(name));
    for (const Tensor& t : inputs) add_input(*node, t);
    set_closure(*node, std::forward<F>(f));
    add_output(*node, result);
    for (const Tensor& t : saved) save(*node, t);
    end_record(*node, spanned(inputs), {&result, 1});
}

// Several results and lists of inputs. Results that are undefined or not differentiable get no history.
template <class F>
void record_many(std::span<const Tensor> results, const char* name, std::span<const Tensor> inputs, std::span<const Tensor> saved, F&& f) {
    NodePtr node = NodePtr::steal(new_node(name));
    for (const Tensor& t : inputs) add_input(*node, t);
    set_closure(*node, std::forward<F>(f));
    for (const Tensor& t : results) add_output(*node, t);
    for (const Tensor& t : saved) save(*node, t);
    end_record(*node, inputs, results);
}

// --- views ---
// A view of t with this layout: shares memory, remembers its base. Records nothing: callers record the gradient.
Tensor make_view(const Tensor& t, Layout layout, ViewKind kind = view_plain);

// --- in-place operators ---
// Before writing: refuses leaves that require grad, overlapping memory, read-only memory, views it can't rewrite.
// one_value: the same is written everywhere, so that elements may share memory.
void check_inplace(const Tensor& self, const char* name, bool recording, bool one_value = false);
void rebase_history(const Tensor& self, Node& node);
// While it lives, versions are those before the write to self that was just made. Operands that are views of self give their
// edges here: they keep the history from before the write for this node, and look stale afterwards.
class BeforeWrite {
public:
    explicit BeforeWrite(const Tensor& self) : storage_(self->untracked_writes ? nullptr : self.storage()) {
        if (storage_) storage_->version--;
    }
    ~BeforeWrite() {
        if (storage_) storage_->version++;
    }
    BeforeWrite(const BeforeWrite&) = delete;

private:
    Storage* storage_;
};
inline void add_inputs_before_write(Node& node, const Tensor& self, std::span<const Tensor> inputs) {
    BeforeWrite before(self);
    for (const Tensor& t : inputs) add_input(node, t);
}
// After writing: bumps the version; if `recording`, makes the node the new history of self and of its base.
template <class F> void record_inplace(const Tensor& self, const char* name, std::initializer_list<Tensor> inputs,
                                       std::initializer_list<Tensor> saved, F&& f) {
    NodePtr node = NodePtr::steal(new_node(name));
    add_inputs_before_write(*node, self, spanned(inputs));
    set_closure(*node, std::forward<F>(f));
    rebase_history(self, *node);
    for (const Tensor& t : saved) save(*node, t, t.same(self) && self->base);
    end_record(*node, spanned(inputs), {&self, 1}, true);
}
// self = result in place, whatever operator made the result: copies the values and takes over the history.
void assign_inplace(const Tensor& self, const Tensor& result, const char* name);
// What an operator reads of `self` that is about to write to it: where a gradient will be recorded, a copy, which stays as it is.
Tensor before_write(const Tensor& self, const Tensor& other);

// --- the engine ---
struct BackwardRequest {
    TensorList roots, grads;  // grads may be undefined for scalars
    bool retain_graph = false, create_graph = false, accumulate = true, allow_unused = false;
    TensorList inputs;  // empty: all leaves
    int64_t batch = 0;  // > 0: every one of `grads` is a batch of as many, along its first dimension, and so are the results
};
TensorList run_backward(const BackwardRequest& request);  // gradients of the inputs unless accumulate
// For hooks: the number of this thread's innermost run (-1 outside of one), and whether that run executes a node.
int64_t current_run();
Node* current_node();                  // that this thread's innermost run works on, or null
std::vector<Node*> execution_order();  // of the run: what is to come
bool will_execute(Node& node);
bool captures_leaf(const Node& node);  // it is a leaf's, and the run returns gradients of leaves instead of adding them

// --- grad and hooks of a tensor ---
struct Tangent {
    int64_t level;
    Tensor value;
};
struct TensorExtra {
    Small<Tangent, 1> tangents;    // by ascending level
    uint32_t tangent_version = 0;  // of the storage, when they were set
    Tensor grad;
    PyObject* hooks = nullptr;                  // dict, of a leaf (others keep theirs on the node)
    PyObject* post_accumulate_hooks = nullptr;  // dict
    Node* accumulator = nullptr;                // weak
    bool retains_grad = false;
    bool any_grad_dtype = false;      // Tensor.grad_dtype = None
    std::optional<DType> grad_dtype;  // what else than its own dtype the gradient of a leaf has
};
TensorExtra& extra(const Tensor& t);
void track(TensorObject* o);  // makes the garbage collector see it
Tensor grad_of(const Tensor& t);
void set_grad(const Tensor& t, Tensor grad);
Node* grad_fn_of(const Tensor& t);  // borrowed; remakes the history of a view whose base was changed
void retain_grad(const Tensor& t);
PyObject* hooks_dict(const Tensor& t);  // borrowed; made on first use
PyObject* new_hooks_dict();             // an OrderedDict: handles refer to it weakly
NodeHooks& hooks_of(Node& node);
std::string source_of(const Node& node);  // "file.py:12", or ""
void set_layout_enforced(bool on);        // whether the gradient of a leaf takes its strides (the default)
bool layout_enforced();

// Sums and casts g to what `info` asks for; RuntimeError if it doesn't fit.
Tensor fit_gradient(const Tensor& g, const OutputInfo& info, const Node& from, int64_t index, int64_t batch = 0);

// For core/tensor.cpp and the Python types.
void init_tensor_fields(TensorObject* o);
void clear_tensor_fields(TensorObject* o);
void delete_extra(TensorObject* o);
void dealloc_tensor(PyObject* self);
void dealloc_node(PyObject* self);
int traverse_node(PyObject* self, visitproc visit, void* arg);
int clear_node(PyObject* self);

}  // namespace wisp
