// wisp._core: the extension module.
#include "registry.h"
#include "tensor_type.h"

namespace wisp {
void name_pointwise_rows();
void add_module_base(PyObject* module);
void add_sample_seeds(PyObject* module);
void add_compile(PyObject* module);
namespace cpu { const char* missing_isa(); }
}  // namespace wisp

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "wisp._core", "The core of Wisp.", -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__core() {
    using namespace wisp;
    if (const char* missing = cpu::missing_isa())
        return PyErr_Format(PyExc_ImportError,
                            "Wisp was built for processors with %s, which this one lacks. Install it anew on this machine, or build it for "
                            "every processor: pip install . -C cmake.define.WISP_NATIVE=OFF",
                            missing);
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
