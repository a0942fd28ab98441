// The engine: runs recorded nodes backward in the calling thread, iteratively, latest first.
#include "engine.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../compile/tape.h"
#include "../ops/ops.h"
#include "../ops/sparse.h"
#include "../ops/wrapper.h"
#include "../python/objects.h"
#include "../profiler/profiler.h"

namespace wisp {

// One run. A node's state lives in the node; if another run (an outer one, or another thread's) holds the node, in a map.
struct Task {
    bool create_graph, retain_graph, accumulate, selective;
    Small<Node*, 16> heap;     // ready nodes
    Small<Node*, 2> first;     // those of them that run before all others
    Small<NodePtr, 16> nodes;  // every node of the run, kept alive
    std::unordered_map<Node*, NodeState> borrowed;
    struct Capture {
        Node* node;
        uint32_t output;
        int64_t input;
    };
    Small<Capture, 2> captures;
    TensorList captured;
    std::vector<Ref> callbacks;  // called when the run has ended; in the outermost run of a thread alone
    Task* outer = nullptr;       // the run whose hook or node started this one
    int64_t number = 0;
    Node* working = nullptr;  // the node under way
    int64_t batch = 0;        // > 0: every gradient of the run is this many, along its first dimension

    ~Task() {
        for (NodePtr& n : nodes)
            if (n->task == this) {
                n->task = nullptr;
                n->state.reset();
            }
    }
    NodeState* find(Node* n) {
        if (n->task == this) return &n->state;
        if (borrowed.empty()) return nullptr;
        auto it = borrowed.find(n);
        return it == borrowed.end() ? nullptr : &it->second;
    }
    // The state of a node that the run has not met yet.
    NodeState& claim(Node* n) {
        nodes.push_back(NodePtr::borrow(n));
        if (n->task) return borrowed[n];
        n->task = this;
        return n->state;
    }
    void push(Node* n) {
        heap.push_back(n);
        std::push_heap(heap.begin(), heap.end(), later);
    }
    bool is_done() const { return heap.empty() && first.empty(); }
    Node* pop() {
        if (!first.empty()) {
            Node* n = first.back();
            first.pop_back();
            return n;
        }
        std::pop_heap(heap.begin(), heap.end(), later);
        Node* n = heap.back();
        heap.pop_back();
        return n;
    }
    static bool later(const Node* a, const Node* b) { return a->sequence < b->sequence; }
};

namespace {

thread_local Task* current = nullptr;
int64_t runs = 0;  // counted with the interpreter lock held

// Makes a run the innermost one of its thread, for as long as it lasts.
struct Running {
    explicit Running(Task& task) {
        task.number = runs++;
        task.outer = current;
        current = &task;
    }
    ~Running() { current = current->outer; }
};

void find_dependencies(Task& task, const Small<Edge, 2>& roots) {
    Small<Node*, 16> stack;
    for (const Edge& e : roots)
        if (!task.find(e.node.get())) {
            task.claim(e.node.get());
            stack.push_back(e.node.get());
        }
    while (!stack.empty()) {
        Node* n = stack.back();
        stack.pop_back();
        for (Edge& e : n->next) {
            Node* m = e.node.get();
            if (!m) continue;
            NodeState* s = task.find(m);
            if (!s) {
                s = &task.claim(m);
                stack.push_back(m);
            }
            s->dependencies++;
        }
    }
}

// A node that a run hands gradients to, but neither runs nor looks behind.
constexpr int32_t never = 1 << 30;
bool is_end(const NodeState& s) { return s.dependencies >= never; }

// Marks the nodes from which a captured node can be reached, children before parents.
void mark_needed(Task& task, const Small<Edge, 2>& roots) {
    std::unordered_map<Node*, bool> done;
    std::vector<std::pair<Node*, int64_t>> stack;
    for (auto& c : task.captures)
        if (NodeState* s = task.find(c.node)) s->needed = true;
    for (const Edge& root : roots) {
        if (done.count(root.node.get())) continue;
        stack.emplace_back(root.node.get(), 0);
        done[root.node.get()] = true;
        while (!stack.empty()) {
            auto& [n, i] = stack.back();
            NodeState* s = task.find(n);
            if (i < n->next.size()) {
                Node* m = n->next[i++].node.get();
                if (m && !done.count(m) && !is_end(*task.find(m))) {
                    done[m] = true;
                    stack.emplace_back(m, 0);
                }
                continue;
            }
            for (Edge& e : n->next)
                if (e.node && task.find(e.node.get())->needed) s->needed = true;
            stack.pop_back();
        }
    }
}

// Whether the sum of two gradients is to be noted: one of them is, or they are on a GPU.
bool may_wait(const Tensor& a, const Tensor& b) {
    const auto has_values = [](const Tensor& t) { return t.storage()->memory == Device{}; };
    return noting && !(has_values(a) && has_values(b));
}

void deliver(Task& task, NodeState& state, Node& node, uint32_t number, Tensor g) {
    if (state.buffer.size() < node.outputs.size()) state.buffer.resize(node.outputs.size());
    Tensor& slot = state.buffer[number];
    // Sparse gradients are for leaves; operators in between get them dense.
    if (is_sparse(g) && !node.variable) g = call_sparse("to_dense", {g});
    if (!slot) slot = std::move(g);
    else if (is_wrapper(slot) || is_wrapper(g)) slot = call_wrapper("add", {slot, g});
    else if (is_sparse(slot) || is_sparse(g)) slot = is_sparse(slot) ? call_sparse("add", {g, slot}) : call_sparse("add", {slot, g});
    else if (!task.create_graph && !may_wait(slot, g) && slot.exclusively_owned() && slot.dtype() == g.dtype() && slot.sizes() == g.sizes())
        add_(slot, g);
    else slot = add(slot, g);
}

void retain_grads(Node& node, Small<Tensor, 1>& grads) {
    for (TensorObject* o : node.hooks->retain_grad) {
        Tensor t = Tensor::borrow(o);
        const Tensor& g = grads[o->output_number];
        if (!g) continue;
        Tensor old = grad_of(t);
        if (is_wrapper(g)) set_grad(t, old ? call_wrapper("add", {old, g}) : g);
        else set_grad(t, !old ? clone(g) : add(old, g));
    }
}

// Hooks of the tensors whose gradients arrived, and those that keep their gradient.
[[gnu::always_inline]] inline void run_hooks_of_tensors(Node& node, Small<Tensor, 1>& grads) {
    if (node.variable) {
        if (TensorExtra* e = node.variable->extra; e && e->hooks && grads[0]) run_tensor_hooks(e->hooks, grads[0], node);
    } else if (node.hooks) {
        for (auto& h : node.hooks->tensor_hooks) run_tensor_hooks(h.hooks, grads[h.output], node);  // with None where none arrived
    }
    if (node.hooks && !node.hooks->retain_grad.empty()) retain_grads(node, grads);
}

// Calls f with the gradients of each run of a batch, which f may change; -> those of all runs again.
template <class F> [[gnu::noinline, gnu::cold]] void each_of_batch(int64_t batch, Small<Tensor, 1>& grads, F&& f) {
    std::vector<TensorList> columns;
    for (int64_t i = 0; i < batch; i++) {
        Small<Tensor, 1> row;
        for (const Tensor& g : grads) row.push_back(g ? select(g, 0, i) : Tensor());
        f(row);
        columns.resize(size_t(row.size()));
        for (int64_t k = 0; k < row.size(); k++)
            columns[size_t(k)].push_back(is_sparse(row[k]) ? call_sparse("to_dense", {row[k]}) : row[k]);
    }
    grads.resize(int64_t(columns.size()));
    for (int64_t k = 0; k < grads.size(); k++) {
        const TensorList& column = columns[size_t(k)];
        const auto some = std::find_if(column.begin(), column.end(), [](const Tensor& t) { return t.defined(); });
        TensorList full;
        if (some != column.end())
            for (const Tensor& t : column) full.push_back(t ? t : zeros_like(*some));
        grads[k] = full.empty() ? Tensor() : stack(full, 0);
    }
}

// The gradients of the inputs, each for itself: the node does not work on batches.
[[gnu::noinline, gnu::cold]] void apply_one_by_one(Task& task, Node& node, Small<Tensor, 1>& grads, TensorList& results,
                                                   const bool* wanted) {
    const int64_t n = results.size();
    each_of_batch(task.batch, grads, [&](Small<Tensor, 1>& row) {
        TensorList made;
        made.resize(n);
        Small<Tensor, 1> incoming = row;
        Backward bw{node, row.data(), made.data(), task.create_graph, wanted};
        node.apply(bw);
        if (node.hooks && node.hooks->post_hooks) run_post_hooks(node, made.data(), n, incoming);
        row.resize(n);
        for (int64_t i = 0; i < n; i++) {
            const Edge& e = node.next[i];
            row[i] = made[i] && e.node ? fit_gradient(made[i], e.node->outputs[e.number], node, i) : Tensor();
        }
    });
    for (int64_t i = 0; i < n; i++) results[i] = grads[i];
}

bool takes_batch(const Backward& bw) {
    if (bw.node.hooks && bw.node.hooks->post_hooks) return false;
    for (int64_t i = 0; i < bw.node.next.size(); i++)
        if (bw.needs(int(i)) && (i > 7 || !(bw.node.batched_edges >> i & 1))) return false;
    return true;
}

// The gradient of the node's one input as far as it has arrived, if nobody else sees it and it may be added to.
[[gnu::noinline]] Tensor* arrived_before(Task& task, Node& node, const Tensor& g) {
    const Edge& e = node.next[0];
    NodeState& s = *task.find(e.node.get());
    if (task.create_graph || task.batch || noting || node.hooks || anomaly_enabled() || e.number >= uint32_t(s.buffer.size()))
        return nullptr;
    Tensor& slot = s.buffer[e.number];
    if (!slot || is_wrapper(slot) || is_sparse(slot) || is_wrapper(g) || is_sparse(g) || slot.dtype() != g.dtype()) return nullptr;
    return slot.exclusively_owned() && slot.is_contiguous() && slot.device() == g.device() ? &slot : nullptr;
}

// In a region the pointwise gradients of one operator are noted together, so that what they share is read once: of silu(a) * b, that of a
// before the product behind b asks for its own. Only where nobody sees the order: there are no hooks, and what the node hands on is the
// last that its receivers, which are no leaves, wait for.
bool may_run_first(Task& task, const Node& from, const Node& node) {
    if (!noting || !from.pointwise || !node.pointwise || node.hooks || task.create_graph) return false;
    return std::all_of(node.next.begin(), node.next.end(),
                       [&](const Edge& e) { return !e.node || (!e.node->variable && task.find(e.node.get())->dependencies == 1); });
}

void run_node(Task& task, Node& node) {
    NodeState& state = *task.find(&node);
    Small<Tensor, 1> grads = std::move(state.buffer);
    state.buffer = {};
    grads.resize(std::max<int64_t>(node.outputs.size(), 1));

    if (task.selective && !state.needed) [[unlikely]] {
        // nothing comes here: whoever waits for this node only counts
    } else if (!task.batch) [[likely]]
        run_hooks_of_tensors(node, grads);
    else if (node.hooks || (node.variable && node.variable->extra && node.variable->extra->hooks))
        each_of_batch(task.batch, grads, [&](Small<Tensor, 1>& row) { run_hooks_of_tensors(node, row); });

    bool execute = true, captured = false;
    bool wanted_few[16];
    std::vector<char> wanted_many;
    const bool* wanted = nullptr;
    const int64_t n = node.next.size();
    if (task.selective) {
        for (auto& c : task.captures)
            if (c.node == &node) {
                captured = true;
                if (grads[c.output]) task.captured[c.input] = grads[c.output];
            }
        bool* flags = wanted_few;
        if (n > 16) {
            wanted_many.resize(size_t(n));
            flags = reinterpret_cast<bool*>(wanted_many.data());
        }
        execute = node.variable && captured && task.accumulate;
        for (int64_t i = 0; i < n; i++) {
            flags[i] = node.next[i].node && task.find(node.next[i].node.get())->needed;
            execute |= flags[i];
        }
        wanted = flags;
    }
    // Hooks of tensors run wherever a gradient arrives, those of a node only before it works.
    if (node.hooks && node.hooks->pre_hooks && (execute || (captured && task.accumulate))) {
        if (task.batch) each_of_batch(task.batch, grads, [&](Small<Tensor, 1>& row) { run_pre_hooks(node, row); });
        else run_pre_hooks(node, grads);
    }
    TensorList results;
    bool any = false;
    Device device = current_device();
    for (Tensor& g : grads)
        if (g.defined()) {
            if (!any) device = g.device();
            any = true;
        }
    OnDevice on(device);
    if (execute && (any || node.context)) {
        results.resize(n);
        Backward bw{node, grads.data(), results.data(), task.create_graph, wanted, task.batch};
        if (node.adds_part && node.next[0].node) bw.arrived = arrived_before(task, node, grads[0]);
        const bool hooked = node.hooks && node.hooks->post_hooks;
        Profiled profiled;
        if (profiling) [[unlikely]] {
            std::vector<PyObject*> arguments;
            for (Tensor& g : grads) arguments.push_back(g.object());
            profiled.begin(EventKind::backward, node.name, "", arguments.data(), int64_t(arguments.size()),
                           int64_t(node.sequence & INT64_MAX));
        }
        try {
            if (task.batch && !takes_batch(bw)) [[unlikely]]
                apply_one_by_one(task, node, grads, results, wanted);
            else if (wrapper_classes && !node.context && !node.variable && std::any_of(grads.begin(), grads.end(), is_wrapper)) [[unlikely]]
                call_wrapped_backward(bw);
            else node.apply(bw);
        } catch (...) {
            if (anomaly_enabled()) explain_failure(node);
            throw;
        }
        if (node.hooks && node.hooks->post_hooks && !task.batch) {
            if (node.variable && any && !grads[0]) grads[0] = grad_of(Tensor::borrow(node.variable));  // the leaf took it
            if (!hooked)  // of a hook that came while the node ran they were not kept
                for (Tensor& g : grads) g = Tensor();
            run_post_hooks(node, results.data(), n, grads);
        }
        if (anomaly_checks_nan()) check_for_nan(node, results.data(), n);
        if (!task.retain_graph) {
            release_saved(node);
            if (node.inner) release_inner(node);
        }
    } else {
        results.resize(n);
    }
    grads.clear();

    for (int64_t i = 0; i < n; i++) {
        Node* next = node.next[i].node.get();
        if (!next) continue;
        NodeState& s = *task.find(next);
        if (results[i] && (!task.selective || s.needed)) {
            const uint32_t number = node.next[i].number;
            Tensor g = fit_gradient(results[i], next->outputs[number], node, i, task.batch);
            results[i] = Tensor();
            deliver(task, s, *next, number, std::move(g));
        }
        if (--s.dependencies != 0) continue;
        if (may_run_first(task, node, *next)) task.first.push_back(next);
        else task.push(next);
    }
}

// The region that a run is in from the first node on that was recorded in one.
class BackwardRegion {
public:
    void enter() { inside_ = inside_ || compile::enter_backward(); }
    void leave() {
        if (std::exchange(inside_, false)) compile::leave_region();
    }
    ~BackwardRegion() {
        try {
            leave();
        } catch (...) {}  // another error is on its way
    }

private:
    bool inside_ = false;
};

// Gives the roots their gradients, makes those ready that wait for nothing, and runs what becomes ready.
void run(Task& task, const Small<Edge, 2>& roots, TensorList& grads) {
    for (int64_t i = 0; i < roots.size(); i++)
        deliver(task, *task.find(roots[i].node.get()), *roots[i].node, roots[i].number, std::move(grads[i]));
    grads.clear();
    Small<Node*, 2> started;
    for (const Edge& e : roots)
        if (task.find(e.node.get())->dependencies == 0 && std::find(started.begin(), started.end(), e.node.get()) == started.end()) {
            started.push_back(e.node.get());
            task.push(e.node.get());
        }
    BackwardRegion region;
    while (!task.is_done()) {
        task.working = task.pop();
        if (task.working->in_region) [[unlikely]]
            region.enter();
        run_node(task, *task.working);
    }
    task.working = nullptr;
    region.leave();
}

Tensor starting_gradient(const Tensor& root, const Tensor& given, bool batched) {
    if (batched) return given.dtype() == root.dtype() ? given : to(given, root.dtype());  // Python has looked at the shapes
    if (is_sparse(given) && !root->grad_fn) return given;                                 // of a leaf
    if (is_sparse(given)) return starting_gradient(root, call_sparse("to_dense", {given}), false);
    if (given) {
        if (!(given.sizes() == root.sizes()))
            throw RuntimeError("Mismatch in shape: grad_output has a shape of ", given.sizes(), " and output has a shape of ", root.sizes(),
                               ".");
        if (is_complex(given.dtype()) != is_complex(root.dtype()))
            throw RuntimeError(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                "grad_output has dtype ",
                given.dtype(), " and output has dtype ", root.dtype(), ".");
        if (devices_in_use && !(given.device() == root.device()) && given.dim() > 0 && !is_wrapper(root))
            throw RuntimeError("Mismatch in device: grad_output is on ", text_of(given.device()), " and output is on ",
                               text_of(root.device()), ". Move the gradient with .to(", text_of(root.device()), ")");
        return given.dtype() == root.dtype() ? given : to(given, root.dtype());
    }
    if (is_wrapper(root) && root.numel() == 1) return call_wrapper("_ones_like", {root});
    if (root.numel() != 1)
        throw RuntimeError("grad can be implicitly created only for scalar outputs; got an output of shape ", root.sizes(),
                           ". Reduce it first (e.g. .sum() or .mean()), or pass a gradient of its shape: backward(gradient)");
    if (is_complex(root.dtype())) throw RuntimeError("grad can be implicitly created only for real scalar outputs but got ", root.dtype());
    if (root.dim() == 0) {
        OnDevice on(root.device());
        return scalar_tensor(Scalar(1), root.dtype());
    }
    return ones_like(root);
}

}  // namespace

Dims Backward::with_batch(const Dims& sizes) const {
    Dims all{batch};
    for (int64_t n : sizes) all.push_back(n);
    return all;
}

bool Backward::add_part(const Layout& part) {
    if (!arrived) return false;
    Layout place = part;
    place.offset += arrived->offset();
    add_(alias(*arrived, std::move(place)), grad());
    return true;
}

// Sums what the operands of an operator were broadcast to, in each gradient of a batch.
[[gnu::noinline, gnu::cold]] static Tensor fit_batch(const Tensor& g, const OutputInfo& info, int64_t batch) {
    Dims own{batch}, beside{batch};
    for (int64_t i = info.sizes.size() + 1; i < g.dim(); i++) beside.push_back(1);
    for (int64_t n : info.sizes) own.push_back(n), beside.push_back(n);
    return g.sizes() == own ? g : reshape(sum_to_size(g, beside), own);
}

Tensor fit_gradient(const Tensor& g, const OutputInfo& info, const Node& from, int64_t index, int64_t batch) {
    if (is_wrapper(g)) return g;
    if (is_sparse(g))
        return g.sizes() == info.sizes && g.dtype() == info.dtype ? g : fit_gradient(call_sparse("to_dense", {g}), info, from, index);
    Tensor r = batch ? fit_batch(g, info, batch) : g;
    if (!batch && !(r.sizes() == info.sizes)) {
        if (!is_expandable(info.sizes, r.sizes()))
            throw RuntimeError("Function ", from.name, " returned an invalid gradient at index ", index, " - got ", r.sizes(),
                               " but expected shape compatible with ", info.sizes);
        r = sum_to_size(r, info.sizes);
    }
    if (r.dtype() != info.dtype && !info.any_dtype) {
        if (is_complex(r.dtype()) && !is_complex(info.dtype)) r = real(r);
        r = to(r, info.dtype);
    }
    if (devices_in_use && !(wrapper_classes && info.device.type == DeviceType::meta)) [[unlikely]]
        r = to(r, info.device);  // a 0-dim operand on the CPU that met a GPU
    return r;
}

const Tensor& Backward::grad(int i) {
    if (!grads[i]) grads[i] = zeros(batch ? with_batch(node.outputs[i].sizes) : node.outputs[i].sizes, node.outputs[i].dtype);
    return grads[i];
}

namespace {

// Adding to a large gradient lets other Python threads run: one that adds to the same gradient has to wait.
class Turn {
public:
    explicit Turn(int64_t work) : taken_(work > 200000) {
        if (!taken_ || mutex.try_lock()) return;
        PyThreadState* state = PyEval_SaveThread();
        mutex.lock();
        PyEval_RestoreThread(state);
    }
    ~Turn() {
        if (taken_) mutex.unlock();
    }
    Turn(const Turn&) = delete;

private:
    static std::mutex mutex;
    bool taken_;
};
std::mutex Turn::mutex;

bool enforced = true;  // see set_layout_enforced

Tensor accumulated(const Tensor& variable, const Tensor& grad, Tensor& g, bool create_graph) {
    if (is_wrapper(variable) || is_wrapper(grad) || is_wrapper(g)) {
        GradMode mode(create_graph);
        return grad ? call_wrapper("add", {grad, g}) : create_graph ? g : call_wrapper("detach", {g});
    }
    if (is_sparse(grad) || is_sparse(g)) {
        if (!grad) return create_graph ? g : call_sparse("detach", {g});  // hooks may have kept g, and .grad changes in place
        GradMode mode(create_graph);
        // A sparse gradient cannot become dense in place.
        return call_sparse(create_graph || !is_sparse(g) ? "add" : "add_", {grad, g});
    }
    if (grad) {
        if (create_graph) return add(grad, g);
        GradMode off(false);
        add_(grad, g);
        return grad;
    }
    const bool dense = variable.is_contiguous() || variable.layout().is_non_overlapping_and_dense();
    const bool fits = !enforced || (dense ? g.strides() == variable.strides() : g.is_contiguous());
    if (fits && !create_graph && g.exclusively_owned()) return std::move(g);
    if (!enforced) return clone(g);
    Tensor fresh = dense ? empty_strided(variable.sizes(), variable.strides(), g.dtype()) : empty(variable.sizes(), g.dtype());
    copy_values(fresh, g);
    if (create_graph && needs_grad(g))  // a copy of the gradient, in the graph that PyTorch has of it
        record(fresh, "CopyBackwards", {Tensor(), g}, {}, [](Backward& bw) { bw.set(1, bw.grad()); });
    return fresh;
}

}  // namespace

void set_layout_enforced(bool on) { enforced = on; }
bool layout_enforced() { return enforced; }

void accumulate_grad(Backward& bw) {
    Tensor variable = Tensor::borrow(bw.node.variable);
    Tensor& g = bw.grads[0];
    if (!g) return;
    {
        Turn turn(g.numel());
        Tensor sum = accumulated(variable, grad_of(variable), g, bw.create_graph);
        set_grad(variable, std::move(sum));
    }
    if (variable->extra->post_accumulate_hooks) run_post_accumulate_hooks(variable);
}

void set_as_strided_backward(Node& node, const Layout& base, const Layout& view) {
    struct Geometry {
        Layout base, view;
    };
    set_closure(node, [g = Geometry{base, view}](Backward& bw) {
        // Scatter into the memory that base and view span, adding where the view overlaps itself.
        const int64_t start = std::min(g.base.offset, g.view.offset),
                      end = std::max(g.base.offset + g.base.extent(), g.view.offset + g.view.extent());
        auto positions = [&](const Layout& l) {
            return reshape(as_strided(arange(end - start), l.sizes, l.strides, l.offset - start), {-1});
        };
        Tensor flat = zeros({end - start}, bw.grad().dtype());
        if (!g.view.may_overlap_itself()) {
            Tensor target = as_strided(flat, g.view.sizes, g.view.strides, g.view.offset - start);
            copy_(target, bw.grad());
        } else {
            flat = scatter_add(flat, 0, positions(g.view), reshape(bw.grad(), {-1}));
        }
        if (g.base.may_overlap_itself()) {  // elements of the base share a place: each gets its part
            const Tensor at = positions(g.base);
            flat = div(flat, maximum(scatter_add(zeros_like(flat), 0, at, ones(at.sizes(), flat.dtype())), ones_like(flat)));
        }
        bw.set(0, as_strided(flat, g.base.sizes, g.base.strides, g.base.offset - start));
    });
}

bool sees_parts(DType base, DType view) {
    return (is_complex(base) && real_of(base) == view) || (is_complex(view) && real_of(view) == base);
}

Tensor in_parts(const Tensor& t, DType dtype) {
    if (t.dtype() == dtype) return t;
    if (!is_complex(dtype)) return view_as_real(t);
    if (t.layout().extent() % 2 || !t.layout().is_non_overlapping_and_dense())
        throw RuntimeError("a complex view of a tensor of shape ", t.sizes(), " and strides ", t.strides(),
                           " was written to; write to the tensor itself, or to a clone()");
    return view_as_complex(as_strided(t, {t.numel() / 2, 2}, {2, 1}, t.offset()));
}

void set_copy_slices_backward(Node& node, const Tensor& base, const Tensor& view) {
    struct Geometry {
        Layout base, view;
        DType dtype;
    };
    set_closure(node, [g = Geometry{base.layout(), view.layout(), view.dtype()}](Backward& bw) {
        Node& inner = *bw.node.inner;
        const Tensor& given = bw.grad();
        // The gradient goes on with the written part changed. If nobody else sees it, it needs no copy: many writes to parts of a large
        // tensor do not cost its size each.
        const bool ours = !bw.create_graph && !noting && !bw.node.hooks && !is_wrapper(given) && given.exclusively_owned() &&
                          given.strides() == g.base.strides;
        Tensor result = ours ? given : empty_strided(g.base.sizes, g.base.strides, given.dtype());
        if (!ours) copy_(result, given);
        const Tensor seen = in_parts(result, g.dtype);
        const int64_t start = is_complex(result.dtype()) == is_complex(g.dtype) ? g.base.offset
                              : is_complex(g.dtype)                             ? g.base.offset / 2
                                                                                : g.base.offset * 2;
        Tensor slice = as_strided(seen, g.view.sizes, g.view.strides, g.view.offset - start + seen.offset());
        Small<Tensor, 1> grads{clone(slice)};
        TensorList results;
        results.resize(inner.next.size());
        Backward sub{inner, grads.data(), results.data(), bw.create_graph, nullptr};
        inner.apply(sub);
        if (bw.needs(0)) {
            if (results[0]) copy_(slice, fit_gradient(results[0], inner.outputs[0], inner, 0));
            else zero_(slice);
            bw.set(0, result);
        }
        for (int64_t i = 1; i < inner.next.size(); i++) bw.set(int(i), results[i]);
    });
}

// What can have kept a tensor out of every graph.
static const char* why_no_history(const Tensor& t) {
    if (!is_differentiable(t.dtype())) return "its values are no floats, and have no gradient (those of argmax, comparisons, long() ...)";
    if (!grad_enabled()) return "gradients are switched off here, by no_grad() or inference_mode()";
    return "nothing that it was computed from requires grad, or it was computed under no_grad() or from detach(), .data, numpy() or item()";
}

TensorList run_backward(const BackwardRequest& request) {
    Profiled profiled;
    if (profiling) [[unlikely]]
        profiled.begin(EventKind::backward, "backward", "", nullptr, 0);
    for (const Tensor& input : request.inputs)
        if (!input) throw RuntimeError("all inputs have to be Tensors or GradientEdges, but got NoneType");
    for (const Tensor& root : request.roots)
        if (!root) throw RuntimeError("the outputs have to be Tensors or GradientEdges, but got NoneType");
    // Tangents of the gradients need formulas that can be differentiated.
    const bool forward = forward_visible();
    Task task{request.create_graph || forward, request.retain_graph, request.accumulate, !request.inputs.empty(), {}, {}, {}, {}, {}};
    task.batch = request.batch;
    Running running(task);
    Small<Edge, 2> roots;
    TensorList grads;
    for (int64_t i = 0; i < request.roots.size(); i++) {
        const Tensor& root = request.roots[i];
        Edge e = gradient_edge(root);
        if (!e.node)
            throw RuntimeError("element ", i, " of tensors does not require grad and does not have a grad_fn: ", why_no_history(root));
        roots.push_back(std::move(e));
        grads.push_back(starting_gradient(root, request.grads.empty() ? Tensor() : request.grads[i], request.batch));
    }
    GradMode mode(request.create_graph ? grad_on : forward ? grad_forward : grad_off);
    find_dependencies(task, roots);
    if (task.selective) {
        task.captured.resize(request.inputs.size());
        for (int64_t i = 0; i < request.inputs.size(); i++) {
            const Tensor& t = request.inputs[i];
            if (!t.in_graph())
                throw RuntimeError("One of the differentiated Tensors does not require grad: input ", i, ", of shape ", t.sizes(),
                                   " and dtype ", t.dtype(), "; call requires_grad_() on it before it is used");
            Edge e = gradient_edge(t);
            if (task.find(e.node.get())) task.captures.push_back({e.node.get(), e.number, i});
        }
        mark_needed(task, roots);
    }
    run(task, roots, grads);
    for (size_t i = 0; i < task.callbacks.size(); i++) {  // one may queue more
        const Ref callback = std::move(task.callbacks[i]);
        Ref done(PyObject_CallNoArgs(callback.get()));
    }

    if (!task.selective) return {};
    for (int64_t i = 0; i < request.inputs.size(); i++) {
        if (!task.captured[i] && !request.allow_unused && !request.accumulate)
            throw RuntimeError(
                "The differentiated Tensor at index ", i,
                " appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior. (shape ",
                request.inputs[i].sizes(), ")");
        if (request.accumulate && task.captured[i] && request.inputs[i]->grad_fn && !extra(request.inputs[i]).retains_grad) {
            Tensor old = grad_of(request.inputs[i]);
            const Tensor& made = task.captured[i];
            if (is_wrapper(made)) set_grad(request.inputs[i], old ? call_wrapper("add", {old, made}) : made);
            else set_grad(request.inputs[i], old ? add(old, made) : clone(made));
        }
    }
    return std::move(task.captured);
}

// Backward of a node with steps inside (whole.h): a run from their results to the inputs of the node.
void run_steps(Backward& bw) {
    if (!bw.node.inner) unpack_saved(bw.node, 0, false);  // raises: a backward pass has freed them
    Task task{bw.create_graph, true, false, true, {}, {}, {}, {}, {}};
    Running running(task);
    const NodePtr steps = NodePtr::borrow(bw.node.inner);
    for (int64_t i = 0; i < bw.node.next.size(); i++) {
        const Edge& e = bw.node.next[i];
        if (!e.node) continue;
        if (!task.find(e.node.get())) task.claim(e.node.get()).dependencies = never;
        bool first = true;  // an input that is given twice gets its gradient once
        for (int64_t j = 0; j < i; j++) first &= bw.node.next[j].node.get() != e.node.get() || bw.node.next[j].number != e.number;
        if (first && bw.needs(int(i))) task.captures.push_back({e.node.get(), e.number, i});
    }
    Small<Edge, 2> roots;
    TensorList grads;
    for (int64_t i = 0; i < steps->next.size(); i++)
        if (steps->next[i].node && bw.has_grad(int(i))) {
            roots.push_back(steps->next[i]);
            grads.push_back(bw.grad(int(i)));
        }
    find_dependencies(task, roots);
    mark_needed(task, roots);
    run(task, roots, grads);
    for (auto& c : task.captures) {
        NodeState& s = *task.find(c.node);
        if (c.output < s.buffer.size()) bw.set(int(c.input), s.buffer[c.output]);
    }
}

void queue_callback(PyObject* callback) {
    if (!current) throw RuntimeError("queue_callback: no backward pass is running in this thread");
    Task* task = current;
    while (task->outer) task = task->outer;
    task->callbacks.push_back(Ref::borrow(callback));
}

int64_t current_run() { return current ? current->number : -1; }

Node* current_node() {
    for (const Task* task = current; task; task = task->outer)
        if (task->working) return task->working;
    return nullptr;
}

std::vector<Node*> execution_order() {
    if (!current) throw RuntimeError("_current_graph_task_execution_order: should only be called during the backward pass");
    std::unordered_map<Node*, int32_t> waiting;
    std::vector<Node*> order;
    Task copy{};
    if (current->working) copy.push(current->working);
    for (Node* n : current->heap) copy.push(n);
    for (Node* n : current->first) copy.push(n);
    while (!copy.heap.empty()) {
        Node* const n = copy.pop();
        if (!current->selective || current->find(n)->needed) order.push_back(n);
        for (Edge& e : n->next) {
            Node* const m = e.node.get();
            if (m && --waiting.try_emplace(m, current->find(m)->dependencies).first->second == 0) copy.push(m);
        }
    }
    return order;
}

bool will_execute(Node& node) {
    if (!current) throw RuntimeError("_will_engine_execute_node: should be called during the backward pass, and none is under way");
    NodeState* state = current->find(&node);
    return state && (!current->selective || state->needed);
}

bool run_is_selective() { return current && current->selective; }
bool captures_leaf(const Node& node) { return current && current->selective && !current->accumulate && node.variable; }

}  // namespace wisp
