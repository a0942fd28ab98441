// Anomaly mode: the forward traceback of every node, and the first node whose gradient is not a number.
// Also the lines of recent in-place writes, for the error about a tensor that was changed after it was saved.
#include <cmath>

#include "../ops/ops.h"
#include "../python/tensor_type.h"
#include "engine.h"
#include "source.h"

namespace wisp {
namespace {

struct Write {
    const Storage* storage = nullptr;
    uint32_t version = 0;
    PyObject* code = nullptr;
    int offset = 0;
};
constexpr int remembered = 64;
Write recent[remembered];
unsigned next_write = 0;

}  // namespace

void note_inplace_write(const Storage* storage) {
    Write& w = recent[next_write++ % remembered];
    SourceLine line = current_source();
    Py_XDECREF(w.code);
    w = {storage, storage->version, line.code, line.offset};
}

std::string last_inplace_source(const Tensor& t) {
    for (unsigned i = 1; i <= remembered; i++) {  // latest first: memory is used again, and older entries may be about another tensor
        const Write& w = recent[(next_write - i) % remembered];
        if (w.storage == t.storage() && w.version == t.version()) return " and changed at " + source_text(w.code, w.offset);
    }
    return "";
}

void remember_traceback(Node& node) {
    PyObject* module = PyImport_ImportModule("traceback");
    PyObject* lines = module ? PyObject_CallMethod(module, "format_stack", nullptr) : nullptr;
    if (lines) {
        if (!node.metadata) node.metadata = PyDict_New();
        PyDict_SetItemString(node.metadata, "traceback_", lines);
        if (Node* parent = current_node()) {  // recorded by a backward pass: whose
            PyObject* o = node_object(parent);
            PyDict_SetItemString(node.metadata, "parent_", o);
            Py_DECREF(o);
        }
        Py_DECREF(lines);
    }
    Py_XDECREF(module);
    PyErr_Clear();
}

static void warn_of_origin(const Node& node, std::string text, const char* what) {
    PyObject* lines = node.metadata ? PyDict_GetItemString(node.metadata, "traceback_") : nullptr;
    if (lines && PyList_Check(lines)) {
        text += str("Traceback of forward call that ", what, ":\n");
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lines); i++)
            if (const char* line = PyUnicode_AsUTF8(PyList_GET_ITEM(lines, i))) text += line;
    } else {
        text += "No forward pass information available. Enable detect anomaly during forward pass for more information. (made at " +
                source_of(node) + ")";
    }
    if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) < 0) {  // warnings are errors, and there is one on its way already
        PyErr_Clear();
        PySys_FormatStderr("Warning: %s\n", text.c_str());
    }
}

void explain_failure(const Node& node) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    warn_of_origin(node, str("Error detected in ", node.name, ". "), "caused the error");
    for (const Node* n = &node; n->metadata;) {
        PyObject* parent = PyDict_GetItemString(n->metadata, "parent_");
        if (!parent || !PyObject_TypeCheck(parent, node_type)) break;
        n = reinterpret_cast<Node*>(parent);
        warn_of_origin(*n, str("Previous calculation was induced by ", n->name, ". "), "induced the previous calculation");
    }
    PyErr_Restore(type, value, trace);
}

void check_for_nan(const Node& node, const Tensor* results, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!results[i] || !is_differentiable(results[i].dtype())) continue;
        GradMode off(false);
        Tensor wide = contiguous(to(is_complex(results[i].dtype()) ? view_as_real(results[i]) : results[i], DType::f64));
        wide = to(wide, Device{});
        const double* p = wide.data<double>();
        for (int64_t k = 0; k < wide.numel(); k++)
            if (std::isnan(p[k])) {
                explain_failure(node);
                throw RuntimeError("Function '", node.name, "' returned nan values in its ", i,
                                   "th output. The forward operation was called at ", source_of(node));
            }
    }
}

}  // namespace wisp
