// wisp._core: the extension module.
#include "registry.h"
#include "tensor_type.h"

namespace wisp {
void name_pointwise_rows();
void add_module_base(PyObject* module);
void add_sample_seeds(PyObject* module);
void add_compile(PyObject* module);
}  // namespace wisp

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "wisp._core", "The core of Wisp.", -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__core() {
    using namespace wisp;
    PyObject* module = PyModule_Create(&definition);
    if (!module) return nullptr;
    PyObject* done = guarded([&]() -> PyObject* {
        add_types(module);
        add_tensor_type(module);
        add_node_type(module);
        add_autograd_functions(module);
        add_module_base(module);
        add_sample_seeds(module);
        add_compile(module);
        name_pointwise_rows();
        make_operators(module, tensor_type);
        Py_RETURN_NONE;
    });
    if (!done) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
