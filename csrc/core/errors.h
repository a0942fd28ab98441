// Typed errors: a C++ exception that becomes a Python exception of the named class at the border.
//
//     if (a.dim() != 2) throw RuntimeError("mm: expected a matrix, got shape ", a.sizes());
//
// A message says what was called, what it got, what it expected and, where it helps, how to fix it.
#pragma once
#include <exception>
#include <string>
#include <string_view>

#include "dims.h"
#include "dtype.h"

namespace wisp {

inline std::string text_of(std::string_view s) { return std::string(s); }
inline std::string text_of(const char* s) { return s; }
inline std::string text_of(char c) { return std::string(1, c); }
inline std::string text_of(int64_t v) { return std::to_string(v); }
inline std::string text_of(int v) { return std::to_string(v); }
inline std::string text_of(size_t v) { return std::to_string(v); }
inline std::string text_of(unsigned v) { return std::to_string(v); }
std::string text_of(double v);
inline std::string text_of(bool v) { return v ? "True" : "False"; }
std::string text_of(const Dims& dims);  // "[2, 3]"
inline std::string text_of(DType d) { return name_of(d); }

template <class... Parts> std::string str(const Parts&... parts) {
    std::string s;
    (s.append(text_of(parts)), ...);
    return s;
}

class Error : public std::exception {
public:
    explicit Error(std::string message) : message_(std::move(message)) {}
    const char* what() const noexcept override { return message_.c_str(); }
    // Sets the Python exception that this error stands for.
    virtual void restore() const;

protected:
    std::string message_;
};

#define WISP_ERROR(Name)                                                                         \
    class Name : public Error {                                                                  \
    public:                                                                                      \
        template <class... Parts> explicit Name(const Parts&... parts) : Error(str(parts...)) {} \
        void restore() const override;                                                           \
    };
WISP_ERROR(RuntimeError)
WISP_ERROR(TypeError)
WISP_ERROR(ValueError)
WISP_ERROR(IndexError)
WISP_ERROR(NotImplemented)
WISP_ERROR(OutOfMemory)
WISP_ERROR(DeviceOutOfMemory)  // for which PyTorch has a class of its own
WISP_ERROR(MissingKernel)      // NotImplementedError: an operator that a device lacks
WISP_ERROR(LinAlgError)
#undef WISP_ERROR

void* linalg_error_class();  // wisp.linalg.LinAlgError, a RuntimeError; borrowed

// A Python exception is already set; unwind to the border and let it through.
class PythonError : public Error {
public:
    PythonError() : Error("a Python exception is set") {}
    void restore() const override {}
};

void warn(const std::string& message);  // UserWarning

}  // namespace wisp
