// Between the files of csrc/python: the Tensor and Node types and indexing.
#pragma once
#include <optional>

#include "objects.h"

namespace wisp {

struct Node;

void add_tensor_type(PyObject* module);
extern PyGetSetDef tensor_attributes[];
void require_grad(const Tensor& t, bool on);  // what `t.requires_grad = on` does
inline const Tensor& as_tensor(PyObject* const& o) { return reinterpret_cast<const Tensor&>(o); }
// vmap (registry.cpp): how many are running, and whether an object is or contains a batched tensor.
extern int batching;
void warn_once(bool& told, const char* text);  // settings.cpp
bool has_batched(PyObject* o);
extern thread_local int transforms;  // how many of wisp.func's this thread is in
[[noreturn]] void refuse_batched_write(const char* name);
PyObject* new_tensor_of_type(PyTypeObject* cls, const Tensor& t);  // shares t's memory, no history
PyObject* get_item(PyObject* self, PyObject* key);
int set_item(PyObject* self, PyObject* key, PyObject* value);

void add_node_type(PyObject* module);
PyObject* node_object(Node* node);  // new reference, with the class that carries its name

void add_autograd_functions(PyObject* module);
Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype);  // lists, numbers, arrays, tensors: copies

}  // namespace wisp
