// Typed errors: a C++ exception that becomes a Python exception of the named class at the border.
//
//     if (a.dim() != 2) throw RuntimeError("mm: expected a matrix, got shape ", a.sizes());
//
// A message says what was called, what it got, what it expected and, where it helps, how to fix it.
#pragma once
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "dims.h"
#include "dtype.h"

namespace wisp {

std::string text_of(double v);
std::string text_of(const Dims& dims);  // "[2, 3]"

// A part of a message. Messages are joined in one place from such parts: a function for every combination of types would be a
// fifth of what the compiler makes.
class MessagePart {
public:
    MessagePart(std::string_view s) : kind_(Kind::text), text_{s.data(), s.size()} {}
    MessagePart(const std::string& s) : MessagePart(std::string_view(s)) {}
    MessagePart(const char* s) : kind_(Kind::terminated), text_{s, 0} {}
    MessagePart(char c) : kind_(Kind::character), number_(c) {}
    MessagePart(bool v) : MessagePart(v ? "True" : "False") {}
    MessagePart(int v) : kind_(Kind::number), number_(v) {}
    MessagePart(int64_t v) : kind_(Kind::number), number_(v) {}
    MessagePart(unsigned v) : kind_(Kind::number), number_(v) {}
    MessagePart(size_t v) : kind_(Kind::natural), number_(int64_t(v)) {}
    MessagePart(double v) : kind_(Kind::real), real_(v) {}
    MessagePart(const Dims& dims) : kind_(Kind::dims), dims_(&dims) {}
    MessagePart(DType d) : MessagePart(name_of(d)) {}
    void append_to(std::string& message) const;

private:
    enum class Kind : uint8_t { text, terminated, character, number, natural, real, dims } kind_;
    struct Text {
        const char* begin;
        size_t length;
    };
    union {
        Text text_;
        int64_t number_;
        double real_;
        const Dims* dims_;
    };
};
using MessageParts = std::initializer_list<MessagePart>;
std::string join(MessageParts parts);

// A part as it is, or the text of one that has its own text_of; which lives as long as the expression that it is part of.
template <class T> [[gnu::always_inline]] inline decltype(auto) part_of(const T& x) {
    if constexpr (std::is_arithmetic_v<T> || std::is_convertible_v<const T&, std::string_view> || std::is_same_v<T, DType>)
        return MessagePart(x);
    else if constexpr (std::is_same_v<T, Dims>) return (x);
    else return text_of(x);
}
template <class... Parts> [[gnu::always_inline]] inline std::string str(const Parts&... parts) { return join({part_of(parts)...}); }

class Error : public std::exception {
public:
    explicit Error(std::string message) : message_(std::move(message)) {}
    Error(const Error&) = default;
    ~Error() override;
    const char* what() const noexcept override { return message_.c_str(); }
    // Sets the Python exception that this error stands for.
    virtual void restore() const;

protected:
    std::string message_;
};

#define WISP_ERROR(Name)                                                                                                        \
    class Name : public Error {                                                                                                 \
    public:                                                                                                                     \
        template <class... Parts> [[gnu::always_inline]] explicit Name(const Parts&... parts) : Name({part_of(parts)...}, 0) {} \
        Name(MessageParts parts, int);                                                                                          \
        void restore() const override;                                                                                          \
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
