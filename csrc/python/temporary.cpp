// Finding out that an operand of a number slot is a temporary.
//
// One reference is not enough: a C function may hold the only one (an array of objects, an iterator, compiled Python) and
// call PyNumber_Add with it. It is enough where the interpreter's own instruction `+` made the call, because its operands
// are references on the value stack that it drops afterwards. So the return addresses between the slot and the
// interpreter's loop must be exactly those that were seen when an expression of ours was evaluated, and the current
// instruction must be the same. Where that can't be seen (another interpreter, a loop that is cut into functions), nothing
// is reused. From Python 3.14 on the stack may borrow references from variables; there Python itself is asked as well.
#include "temporary.h"

#include <dlfcn.h>
#include <frameobject.h>  // Python 3.10: what is in a frame
#include <unwind.h>

#include <cstring>

#include "../autograd/engine.h"
#include "../compile/tape.h"
#include "../ops/onto.h"
#include "../ops/ops.h"
#include "objects.h"

namespace wisp {
namespace {

// Return addresses from here to the interpreter's loop, and the instruction that it executes.
struct CallSite {
    static constexpr int limit = 10;
    uintptr_t addresses[limit];
    int count = 0;
    int instruction = -1;
    bool complete = false;
    bool operator==(const CallSite& other) const {
        return count == other.count && instruction == other.instruction &&
               !std::memcmp(addresses, other.addresses, size_t(count) * sizeof *addresses);
    }
};

int current_instruction() {
    PyFrameObject* frame = PyEval_GetFrame();
    if (!frame) return -1;
    PyCodeObject* code = PyFrame_GetCode(frame);
    Ref owner(reinterpret_cast<PyObject*>(code));
#if PY_VERSION_HEX >= 0x030B0000
    Ref bytes(PyCode_GetCode(code));
    const int at = PyFrame_GetLasti(frame);
#else
    Py_INCREF(code->co_code);
    Ref bytes(code->co_code);
    const int at = frame->f_lasti * 2;
#endif
    if (!bytes.get()) PyErr_Clear();
    if (!bytes.get() || !PyBytes_Check(bytes.get()) || at < 0 || at >= PyBytes_GET_SIZE(bytes.get())) return -1;
    return uint8_t(PyBytes_AS_STRING(bytes.get())[at]);
}

_Unwind_Reason_Code step(_Unwind_Context* context, void* pointer) {
    static const uintptr_t loop = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault"));
    auto& site = *static_cast<CallSite*>(pointer);
    if (!loop || site.count == CallSite::limit) return _URC_END_OF_STACK;
    site.addresses[site.count++] = uintptr_t(_Unwind_GetIP(context));
    site.complete = uintptr_t(_Unwind_GetRegionStart(context)) == loop;
    return site.complete ? _URC_END_OF_STACK : _URC_NO_REASON;
}

// What is known of the slot of one operator: how it looks when the interpreter calls it. There may be several ways, as
// the interpreter rewrites its instructions.
struct Known {
    enum { unknown, learning, learnt } state = unknown;
    static constexpr int limit = 8;
    CallSite sites[limit];
    int count = 0;
};

const char* example_of(Pointwise op) {
    switch (op) {
    case Pointwise::add: return "lambda x: -x + 1.0";
    case Pointwise::sub: return "lambda x: -x - 1.0";
    case Pointwise::mul: return "lambda x: -x * 2.0";
    case Pointwise::div: return "lambda x: -x / 2.0";
    default: return nullptr;
    }
}

void learn(Pointwise op, Known& known) {
    known.state = Known::learning;
    Ref globals(PyDict_New());
    Ref function(globals.get() ? PyRun_String(example_of(op), Py_eval_input, globals.get(), globals.get()) : nullptr);
    const Tensor x = zeros({reuse_bytes / 4}, DType::f32);
    for (int i = 0; function.get() && i < 48; i++) Ref result(PyObject_CallOneArg(function.get(), x.object()));
    if (PyErr_Occurred()) PyErr_Clear();
    known.state = Known::learnt;
}

// Whether Python's own instruction called the slot that called this. Slots reach it by one way, so that addresses compare.
[[gnu::noinline]] bool called_by_instruction(Pointwise op) {
    static Known all[4];
    Known& known = all[op == Pointwise::add ? 0 : op == Pointwise::sub ? 1 : op == Pointwise::mul ? 2 : 3];
    if (known.state == Known::unknown) {
        learn(op, known);
        return false;  // the first time; the stack was not looked at yet
    }
    CallSite site;
    _Unwind_Backtrace(step, &site);
    if (!site.complete) return false;
    site.instruction = current_instruction();
    if (site.instruction < 0) return false;
    for (int i = 0; i < known.count; i++)
        if (known.sites[i] == site) return true;
    if (known.state == Known::learning && known.count < Known::limit) known.sites[known.count++] = site;
    return false;
}

// Nothing but its one reference leads to the tensor, and its memory is all its own.
bool is_alone(const Tensor& t) {
    const TensorObject* o = t.get();
    return Py_TYPE(t.object()) == tensor_type && t.exclusively_owned() && o->contiguous && !o->dict && !o->weak_references && !o->extra &&
           !o->grad_fn && !o->requires_grad && !o->dual && !o->wrapped_number && !o->untracked_writes && !o->storage->read_only &&
           o->layout.offset == 0 && o->storage->device == Device{} && o->inference == inference_mode_enabled() &&
           !PyObject_GC_IsTracked(t.object());
}

bool is_temporary([[maybe_unused]] PyObject* o) {
#if PY_VERSION_HEX >= 0x030E0000
    return PyUnstable_Object_IsUniqueReferencedTemporary(o);
#else
    return true;
#endif
}

}  // namespace

Tensor pointwise_in_temporary([[maybe_unused]] Pointwise op, [[maybe_unused]] const Arg& a, [[maybe_unused]] const Arg& b) {
#if !defined(Py_GIL_DISABLED)
    if (off_plain_path) [[unlikely]] {
        const Arg both[2] = {a, b};
        if (devices_in_use || (noting && compile::may_note(both, 2))) return {};
    }
    const Tensor* candidates[2];
    int count = 0;
    for (const Arg& arg : {a, b}) {
        if (arg.tensor && arg.tensor->requires_grad()) return {};
        if (may_be_temporary(arg) && is_alone(*arg.tensor) && is_temporary(arg.tensor->object())) candidates[count++] = arg.tensor;
    }
    if (count == 0 || !called_by_instruction(op)) return {};
    for (int i = 0; i < count; i++)
        if (Tensor result = pointwise_onto(op, *candidates[i], a, b)) return result;
#endif
    return {};
}

}  // namespace wisp
