// Where in the user's program a node was made: the code object and instruction of the first frame outside the package.
// A pointer and an offset per node; the line is worked out only when somebody asks.
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000
#include <internal/pycore_frame.h>
#define WISP_INTERPRETER_FRAMES 1
#endif
#undef Py_BUILD_CORE

#include <cstring>
#include <string>

#include "source.h"

namespace wisp {
namespace {

// Directory of the package, with a slash; frames whose file lies there are not the user's.
std::string package_directory;

bool is_inside_package(PyCodeObject* code) {
    if (package_directory.empty()) return false;
    PyObject* name = code->co_filename;
    if (!PyUnicode_IS_COMPACT_ASCII(name)) return false;
    return size_t(PyUnicode_GET_LENGTH(name)) > package_directory.size() &&
           std::memcmp(PyUnicode_1BYTE_DATA(name), package_directory.data(), package_directory.size()) == 0;
}

}  // namespace

void set_package_directory(const char* directory) { package_directory = directory; }

SourceLine current_source() {
#if WISP_INTERPRETER_FRAMES
    PyThreadState* state = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030D0000
    _PyInterpreterFrame* frame = state->current_frame;
#else
    _PyInterpreterFrame* frame = state->cframe->current_frame;
#endif
    PyCodeObject* last = nullptr;
    int offset = 0;
    while (frame) {
#if PY_VERSION_HEX >= 0x030C0000
        if (frame->owner == FRAME_OWNED_BY_CSTACK) {
            frame = frame->previous;
            continue;
        }
#endif
#if PY_VERSION_HEX >= 0x030D0000
        PyCodeObject* code = reinterpret_cast<PyCodeObject*>(frame->f_executable);
        const int at = int(reinterpret_cast<char*>(frame->instr_ptr) - reinterpret_cast<char*>(_PyCode_CODE(code)));
#else
        PyCodeObject* code = frame->f_code;
        const int at = int(reinterpret_cast<char*>(frame->prev_instr) - reinterpret_cast<char*>(_PyCode_CODE(code)));
#endif
        last = code;
        offset = at;
        if (!is_inside_package(code)) break;
        frame = frame->previous;
    }
    Py_XINCREF(reinterpret_cast<PyObject*>(last));
    return {reinterpret_cast<PyObject*>(last), offset};
#else
    PyFrameObject* frame = PyEval_GetFrame();
    if (!frame) return {};
    PyCodeObject* code = PyFrame_GetCode(frame);
#if PY_VERSION_HEX >= 0x030B0000
    return {reinterpret_cast<PyObject*>(code), PyFrame_GetLasti(frame)};
#else
    return {reinterpret_cast<PyObject*>(code), frame->f_lasti * 2};
#endif
#endif
}

bool called_by_the_package() {
    PyFrameObject* frame = PyEval_GetFrame();
    if (!frame) return false;
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool inside = is_inside_package(code);
    Py_DECREF(code);
    return inside;
}

std::string source_text(PyObject* code_object, int offset) {
    if (!code_object) return "";
    auto* code = reinterpret_cast<PyCodeObject*>(code_object);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    if (!file) {
        PyErr_Clear();
        return "";
    }
    return std::string(file) + ":" + std::to_string(PyCode_Addr2Line(code, offset));
}

}  // namespace wisp
