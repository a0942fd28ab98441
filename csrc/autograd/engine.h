// Between the files of csrc/autograd: the engine's parts that nodes refer to.
#pragma once
#include "node.h"

namespace wisp {

void accumulate_grad(Backward& bw);  // apply of an AccumulateGrad node
void set_as_strided_backward(Node& node, const Layout& base, const Layout& view);
void set_copy_slices_backward(Node& node, const Tensor& base, const Tensor& view);
// Views of complex numbers as pairs of reals, and the other way: whether these dtypes are so related, and the memory of t seen so.
bool sees_parts(DType base, DType view);
Tensor in_parts(const Tensor& t, DType dtype);
void run_steps(Backward& bw);
void release_saved(Node& node);
void release_inner(Node& node);
void queue_callback(PyObject* callback);  // called without arguments when the outermost run of this thread has ended
uint64_t upcoming_sequence();             // of the next node that is made
Tensor unpack_saved(Node& node, int64_t i, bool with_history);

// forward.cpp
void enter_forward(bool in);  // node.cpp: counts the levels of this thread
int forward_depth_of_thread();
bool forward_visible();             // whether tangents are being propagated
bool has_tangent(const Tensor& t);  // of a level that is visible
Node* tangent_marker();             // where the edges of inputs lead that have only a tangent
void copy_tangents(const Tensor& to, const Tensor& from);
void forget_tangents(TensorObject* o);  // before its extras are deleted
bool is_recorded(const Node& node);     // whether the node stays in a graph
int64_t enter_dual_level();
void exit_dual_level(int64_t level);   // its tangents are gone
int64_t hide_tangents(int64_t level);  // of this level and inner ones; -> what was hidden before
Tensor make_dual(const Tensor& primal, const Tensor& tangent, int64_t level);
Tensor primal_of(const Tensor& t, int64_t level);
Tensor tangent_of(const Tensor& t, int64_t level);
Tensor without_graph(const Tensor& t);  // detached, with its tangents
// node_type.cpp: the tangents of the results by the jvp of a Python autograd.Function; false if it has none.
bool function_jvp(Node& node, const TensorList& tangents, std::span<const Tensor> results, TensorList& products);

// hooks.cpp
bool saved_hooks_active();
void push_saved_hooks(PyObject* pack, PyObject* unpack);
void pop_saved_hooks();
bool run_is_selective();  // this thread's innermost run is for some inputs: autograd.grad, or backward(inputs=)
void register_saved_hooks(Saved& saved, PyObject* pack, PyObject* unpack);
void set_saved_hooks_disabled(std::string message);  // empty: allowed again
void pack_saved(Saved& s);
Tensor call_unpack_hook(Saved& s, Node& node, bool with_history);
void run_tensor_hooks(PyObject* hooks, Tensor& grad, const Node& node);
void run_pre_hooks(Node& node, Small<Tensor, 1>& grads);
void run_post_hooks(Node& node, Tensor* results, int64_t n, const Small<Tensor, 1>& grads);
void run_post_accumulate_hooks(const Tensor& variable);

// anomaly.cpp
bool anomaly_checks_nan();
void remember_traceback(Node& node);
void explain_failure(const Node& node);  // prints the forward traceback of the node whose backward failed
void check_for_nan(const Node& node, const Tensor* results, int64_t n);
std::string last_inplace_source(const Tensor& t);  // " and changed at file:line" if known
void note_inplace_write(const Storage* storage);

}  // namespace wisp
