// Parses signatures and binds the arguments of a call to their parameters.
#include "signature.h"

#include <deque>
#include <map>

#include "../ops/format.h"
#include "../ops/sparse.h"
#include "conjugate.h"
#include "tensor_type.h"

namespace wisp {
namespace {

std::string_view trim(std::string_view s) {
    while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
    while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
    return s;
}

Kind kind_of(std::string_view type) {
    static const std::pair<std::string_view, Kind> kinds[] = {
        {"Tensor", Kind::tensor}, {"Operand", Kind::operand}, {"Tensor[]", Kind::tensors},    {"Tensor?[]", Kind::tensors},
        {"Number", Kind::number}, {"int", Kind::integer},     {"int[]", Kind::integers},      {"int...", Kind::rest},
        {"float", Kind::real},    {"bool", Kind::boolean},    {"str", Kind::string},          {"dtype", Kind::dtype},
        {"device", Kind::device}, {"format", Kind::format},   {"Generator", Kind::generator}, {"any", Kind::any}};
    for (auto& [name, kind] : kinds)
        if (name == type) return kind;
    throw RuntimeError("unknown type in a signature: ", type);
}

PyObject* preset_of(std::string_view text) {
    if (text == "None") { Py_RETURN_NONE; }
    if (text == "True") { Py_RETURN_TRUE; }
    if (text == "False") { Py_RETURN_FALSE; }
    if (text == "[]" || text == "()") return PyTuple_New(0);
    if (text.front() == '\'') return PyUnicode_InternFromString(std::string(text.substr(1, text.size() - 2)).c_str());
    if (text == "inf") return PyFloat_FromDouble(Py_HUGE_VAL);
    if (text == "-inf") return PyFloat_FromDouble(-Py_HUGE_VAL);
    if (text.front() == '[') {
        Dims d;
        std::string inside(text.substr(1, text.size() - 2));
        for (size_t at = 0; at < inside.size();) {
            d.push_back(std::stoll(inside.substr(at)));
            at = inside.find(',', at);
            if (at == std::string::npos) break;
            at++;
        }
        return tuple_of_ints(d);
    }
    const std::string s(text);
    if (s.find_first_of(".e") != std::string::npos) return PyFloat_FromDouble(std::stod(s));
    return PyLong_FromString(s.c_str(), nullptr, 10);
}

// A tuple type whose items have names, of the kind of time.struct_time, by whose members libraries know PyTorch's results.
PyTypeObject* struct_sequence(const std::string& name, const std::vector<std::string>& fields) {
    static std::deque<std::string> texts;  // the type refers to them for as long as it lives
    const auto keep = [](const std::string& text) { return texts.emplace_back(text).c_str(); };
    std::vector<PyStructSequence_Field> members;
    for (auto& f : fields) members.push_back({keep(f), nullptr});
    members.push_back({nullptr, nullptr});
    PyStructSequence_Desc about{keep("wisp.return_types." + name), "The named results of an operator.", members.data(), int(fields.size())};
    PyTypeObject* type = PyStructSequence_NewType(&about);
    if (!type) throw PythonError();
    return type;
}

// torch.return_types.max(values=..., indices=...)
PyTypeObject* named_tuple(const std::string& op, const std::vector<std::string>& fields) {
    static std::map<std::string, PyTypeObject*> made;
    std::string key = op;
    for (auto& f : fields) key += "," + f;
    if (auto it = made.find(key); it != made.end()) return it->second;
    PyTypeObject* type = struct_sequence(op, fields);
    Ref module(PyImport_ImportModule("wisp.return_types"));
    Ref done(PyObject_CallMethod(module.get(), "_enter", "sO", op.c_str(), type));
    return made[key] = type;
}

const Operators operators = {
    {"_struct_sequence(str name, any fields)",
     [](std::string name, PyObject* fields) {
         std::vector<std::string> names;
         Ref sequence(PySequence_Fast(fields, "fields"));
         for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.get()); i++)
             names.push_back(to_string(PySequence_Fast_GET_ITEM(sequence.get(), i)));
         return reinterpret_cast<PyObject*>(struct_sequence(name, names));
     },
     function},
};

}  // namespace

Parsed parse_signature(std::string_view s) {
    Parsed p;
    Overload& o = p.overload;
    const size_t open = s.find('('),
                 close = s.find(')', s.find("->") == std::string_view::npos ? s.rfind(')') : s.rfind(')', s.find("->")));
    std::string_view path = s.substr(0, open);
    const size_t dot = path.rfind('.');
    p.space = dot == std::string_view::npos ? "" : std::string(path.substr(0, dot));
    p.name = std::string(dot == std::string_view::npos ? path : path.substr(dot + 1));
    o.text = p.name;
    for (size_t at = open; at < s.size(); at++) {  // without second names
        if (s[at] == '|') at = s.find_first_of(",=)", at);
        o.text += s[at];
    }
    std::string_view body = s.substr(open + 1, close - open - 1);
    bool keyword_only = false;
    size_t at = 0;
    while (at < body.size()) {
        size_t end = at;
        for (int depth = 0; end < body.size(); end++) {
            if (body[end] == '[' || body[end] == '(') depth++;
            if (body[end] == ']' || body[end] == ')') depth--;
            if (body[end] == ',' && depth == 0) break;
        }
        std::string_view item = trim(body.substr(at, end - at));
        at = end + 1;
        if (item == "*") {
            keyword_only = true;
            continue;
        }
        const size_t space = item.find(' ');
        std::string_view type = item.substr(0, space), rest = trim(item.substr(space + 1));
        const size_t equals = rest.find('=');
        Parameter parameter{};
        parameter.optional = type.back() == '?';
        if (parameter.optional) type.remove_suffix(1);
        if (std::string_view("!~^&").find(type.back()) != std::string_view::npos) {
            o.out_rule = OutRule(type.back());
            type.remove_suffix(1);
        }
        parameter.kind = kind_of(type);
        parameter.elements_optional = type == "Tensor?[]";
        parameter.keyword_only = keyword_only;
        const std::string name(trim(rest.substr(0, equals)));
        size_t bar = name.find('|');
        parameter.name = PyUnicode_InternFromString(name.substr(0, bar).c_str());
        while (bar != std::string::npos) {
            const size_t from = bar + 1;
            bar = name.find('|', from);
            parameter.others.push_back(PyUnicode_InternFromString(name.substr(from, bar - from).c_str()));
        }
        parameter.preset = equals == std::string_view::npos ? nullptr : preset_of(trim(rest.substr(equals + 1)));
        if (PyUnicode_CompareWithASCIIString(parameter.name, "out") == 0) {
            o.out = int(o.parameters.size());
            parameter.kind = Kind::any;
        }
        if (PyUnicode_CompareWithASCIIString(parameter.name, "pin_memory") == 0) o.pin = int(o.parameters.size());
        if (parameter.kind == Kind::rest) o.has_rest = true;
        if (parameter.kind == Kind::generator) o.draws = true;
        if (!keyword_only) o.positional++;
        o.parameters.push_back(parameter);
    }
    if (const size_t arrow = s.find("->"); arrow != std::string_view::npos) {
        std::string_view names = trim(s.substr(arrow + 2));
        if (names.front() == '(') {
            std::vector<std::string> fields;
            names = names.substr(1, names.size() - 2);
            while (!names.empty()) {
                const size_t comma = names.find(',');
                fields.emplace_back(trim(names.substr(0, comma)));
                names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
            }
            o.named = named_tuple(p.name, fields);
        } else {
            o.result = names;
        }
    }
    return p;
}

// layout=torch.sparse_coo asks for another kind of tensor, as a sparse argument does.
bool is_sparse_layout(PyObject* o) { return Py_TYPE(o) == &layout_type && o != layout_strided(); }

namespace {

bool is_int(PyObject* o) {
    if (PyLong_Check(o)) return !PyBool_Check(o);
    if (is_tensor(o)) {
        TensorObject* t = as_tensor_object(o);
        return is_strided(o) && is_integral(t->dtype) && t->dtype != DType::boolean && t->numel == 1 && t->layout.dim() == 0;
    }
    if (PyFloat_Check(o) || PyUnicode_Check(o)) return false;
    PyNumberMethods* n = Py_TYPE(o)->tp_as_number;
    return n && n->nb_index && !is_numpy_bool(o);
}

// Of several sizes only the first may not be a bool: programs count with them (zeros(n, with_bias)), and PyTorch looks no further.
bool is_size(PyObject* o, Py_ssize_t at) { return is_int(o) || (at > 0 && PyBool_Check(o)); }

bool is_ints(PyObject* o) {
    if (PyTuple_Check(o) || PyList_Check(o)) {
        const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
        for (Py_ssize_t i = 0; i < n; i++)
            if (!is_size(PySequence_Fast_GET_ITEM(o, i), i)) return false;
        return true;
    }
    return is_int(o);
}

bool fits(const Parameter& p, PyObject* o) {
    if (o == Py_None) return p.optional || p.kind == Kind::any;
    switch (p.kind) {
    case Kind::tensor: return is_strided(o);
    case Kind::operand: return is_strided(o) || is_number(o);
    case Kind::tensors: {
        if (!PyTuple_Check(o) && !PyList_Check(o)) return false;
        const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
        for (Py_ssize_t i = 0; i < n; i++) {
            PyObject* item = PySequence_Fast_GET_ITEM(o, i);
            if (!is_strided(item) && !(p.elements_optional && item == Py_None)) return false;
        }
        return true;
    }
    case Kind::number: return is_number(o) || (is_strided(o) && as_tensor_object(o)->layout.dim() == 0);
    case Kind::integer: return is_int(o);
    case Kind::integers:
    case Kind::rest: return is_ints(o);
    case Kind::real:
        if (is_number(o)) return !PyComplex_Check(o);
        return is_strided(o) && as_tensor_object(o)->layout.dim() == 0 && !as_tensor_object(o)->requires_grad &&
               !as_tensor_object(o)->grad_fn;
    case Kind::boolean: return PyBool_Check(o) || is_numpy_bool(o);
    case Kind::string: return PyUnicode_Check(o);
    case Kind::dtype:
        return Py_TYPE(o) == &dtype_type || o == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
               o == reinterpret_cast<PyObject*>(&PyLong_Type) || o == reinterpret_cast<PyObject*>(&PyBool_Type) ||
               o == reinterpret_cast<PyObject*>(&PyComplex_Type);
    case Kind::device: return Py_TYPE(o) == &device_type || PyUnicode_Check(o) || PyLong_Check(o);
    case Kind::format: return Py_TYPE(o) == &format_type;
    case Kind::generator: return Py_TYPE(o) == &generator_type;
    case Kind::any:
        return !is_sparse_layout(o) && !(conjugate_type && PyUnicode_CompareWithASCIIString(p.name, "data") == 0 && has_lazy(o));
    }
    return false;
}

// Why a value does not fit: of sizes, which of them is no int.
std::string misfit(const Parameter& p, PyObject* o) {
    if ((p.kind == Kind::integers || p.kind == Kind::rest) && (PyTuple_Check(o) || PyList_Check(o)))
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) {
            PyObject* item = PySequence_Fast_GET_ITEM(o, i);
            if (is_size(item, i)) continue;
            const std::string found = str("must be tuple of ints, but found element of type ", Py_TYPE(item)->tp_name, " at pos ", i);
            if (!PyFloat_Check(item)) return found;
            const Ref shown(PyObject_Repr(item));
            return str(found, ": ", utf8(shown.get()), " (a size is an int: divide with //, or convert with int())");
        }
    if (p.kind == Kind::tensors && is_tensor(o)) return "must be tuple of Tensors, not Tensor (put it into a list)";
    const char* wanted = nullptr;
    switch (p.kind) {
    case Kind::tensor: wanted = "Tensor"; break;
    case Kind::operand: wanted = "Tensor or Number"; break;
    case Kind::tensors: wanted = "tuple of Tensors"; break;
    case Kind::number: wanted = "Number"; break;
    case Kind::integer: wanted = "int"; break;
    case Kind::integers:
    case Kind::rest: wanted = "tuple of ints"; break;
    case Kind::real: wanted = "float"; break;
    case Kind::boolean: wanted = "bool"; break;
    case Kind::string: wanted = "str"; break;
    case Kind::dtype: wanted = "torch.dtype"; break;
    case Kind::device: wanted = "torch.device"; break;
    case Kind::format: wanted = "torch.memory_format"; break;
    case Kind::generator: wanted = "Generator"; break;
    case Kind::any: return str("cannot be ", Py_TYPE(o)->tp_name);
    }
    return str("must be ", wanted, ", not ", is_tensor(o) && p.kind != Kind::tensor ? "Tensor" : Py_TYPE(o)->tp_name);
}

// NumPy's names of parameters, which PyTorch takes everywhere.
bool is_alias(PyObject* given, const Parameter& p) {
    static constexpr std::pair<const char*, const char*> aliases[] = {{"axis", "dim"}, {"axes", "dims"},  {"keepdims", "keepdim"},
                                                                      {"x", "input"},  {"a", "input"},    {"x1", "input"},
                                                                      {"x2", "other"}, {"self", "input"}, {"axis", "dims"}};
    for (PyObject* other : p.others)
        if (PyUnicode_Compare(given, other) == 0) return true;
    for (auto& [alias, meant] : aliases)
        if (PyUnicode_CompareWithASCIIString(given, alias) == 0 && PyUnicode_CompareWithASCIIString(p.name, meant) == 0) return true;
    return false;
}

}  // namespace

bool bind(const Overload& o, PyObject* const* args, Py_ssize_t n, PyObject* kwnames, PyObject** slots, Ref& rest, std::string* reason) {
    const int count = int(o.parameters.size());
    for (int i = 0; i < count; i++) slots[i] = nullptr;
    Py_ssize_t given = n;
    if (o.has_rest) {
        int at = 0;
        while (o.parameters[at].kind != Kind::rest) at++;
        // view(2, 3) or view((2, 3)) or permute(*dims): integers up to the end become one argument.
        if (n > at && !(n == at + 1 && (PyTuple_Check(args[at]) || PyList_Check(args[at])))) {
            PyObject* tuple = PyTuple_New(n - at);
            for (Py_ssize_t i = at; i < n; i++) {
                Py_INCREF(args[i]);
                PyTuple_SET_ITEM(tuple, i - at, args[i]);
            }
            rest = Ref(tuple);
            for (int i = 0; i < at; i++) slots[i] = args[i];
            slots[at] = tuple;
            given = 0;
            n = at;
        }
    }
    if (given > o.positional) {
        if (reason) *reason = str("takes ", o.positional, " positional arguments but ", int64_t(given), " were given");
        return false;
    }
    for (Py_ssize_t i = 0; i < given; i++) slots[i] = args[i];
    if (kwnames) {
        const Py_ssize_t k = PyTuple_GET_SIZE(kwnames);
        PyObject* const* values = args + (o.has_rest && rest.get() ? n + PyTuple_GET_SIZE(rest.get()) : n);
        for (Py_ssize_t j = 0; j < k; j++) {
            PyObject* key = PyTuple_GET_ITEM(kwnames, j);
            int i = 0;
            while (i < count && o.parameters[i].name != key) i++;
            if (i == count)
                for (i = 0; i < count && PyUnicode_Compare(o.parameters[i].name, key) != 0; i++) {}
            if (i == count)
                for (i = 0; i < count && !is_alias(key, o.parameters[i]); i++) {}
            if (i == count) {
                if (reason) *reason = str("got an unexpected keyword argument '", utf8(key), "'");
                return false;
            }
            if (slots[i]) {
                if (reason) *reason = str("got multiple values for argument '", utf8(key), "'");
                return false;
            }
            slots[i] = values[j];
        }
    }
    for (int i = 0; i < count; i++) {
        const Parameter& p = o.parameters[i];
        if (!slots[i]) {
            if (!p.preset) {
                if (p.kind == Kind::rest && p.optional) {
                    slots[i] = Py_None;
                    continue;
                }
                if (reason) *reason = str("missing required argument '", utf8(p.name), "' (pos ", i + 1, ")");
                return false;
            }
            slots[i] = p.preset;
        } else if (!fits(p, slots[i])) {
            if (reason) *reason = str("argument '", utf8(p.name), "' (position ", i + 1, ") ", misfit(p, slots[i]));
            return false;
        }
    }
    return true;
}

}  // namespace wisp
