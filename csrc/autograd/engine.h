// Between the files of csrc/autograd: the engine's parts that nodes refer to.
#pragma once
#include "node.h"

namespace wisp {

void accumulate_grad(Backward& bw);  // apply of an AccumulateGrad node
void set_as_strided_backward(Node& node, const Layout& base, const Layout& view);
void set_copy_slices_backward(Node& node, const Tensor& base, const Layout& view);
void release_saved(Node& node);
uint64_t upcoming_sequence();  // of the next node that is made
Tensor unpack_saved(Node& node, int64_t i, bool with_history);

// hooks.cpp
bool saved_hooks_active();
void push_saved_hooks(PyObject* pack, PyObject* unpack);
void pop_saved_hooks();
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
