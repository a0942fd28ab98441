// A signature as text ("add(Tensor input, Operand other, *, Number alpha=1)"), parsed once, and what a call's arguments must fit.
#pragma once
#include "registry.h"

namespace wisp {

const char* utf8(PyObject* text);  // "?" for text that has no UTF-8 (lone surrogates)

enum class Kind : uint8_t {
    tensor,
    operand,
    tensors,
    number,
    integer,
    integers,
    rest,
    real,
    boolean,
    string,
    dtype,
    device,
    format,
    generator,
    any
};

struct Parameter {
    PyObject* name;                 // interned
    std::vector<PyObject*> others;  // second names
    Kind kind;
    bool optional;  // None allowed
    bool elements_optional;
    bool keyword_only;
    PyObject* preset;  // default value, or null if required
};

// The dtypes that out= may have; the mark behind its type in the signature (registry.h).
enum class OutRule : char { castable, exact = '!', any = '~', decides = '^', truth = '&' };

struct Overload {
    std::vector<Parameter> parameters;
    int positional = 0;  // how many may be given by position
    int out = -1;        // index of `out`
    int pin = -1;        // index of `pin_memory`
    bool has_rest = false;
    OutRule out_rule = OutRule::castable;
    bool takes_out = false;  // the callable writes to out= itself
    bool draws = false;      // random numbers
    uint64_t places = 0;     // where it may be called: bits of Facts
    void* f;
    Thunk call;
    PyTypeObject* named = nullptr;
    std::string result;  // its type
    std::string text;    // "add(input, other, *, alpha=1)" with types
};

struct Parsed {
    std::string space, name;
    Overload overload;
};
Parsed parse_signature(std::string_view text);

constexpr int max_parameters = 24;

// Puts the arguments into slots; false (and a reason, if asked) when they don't fit this overload.
bool bind(const Overload& o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames, PyObject** slots, Ref& rest, std::string* reason);

bool is_sparse_layout(PyObject* o);
bool is_numpy_bool(PyObject* o);

}  // namespace wisp
