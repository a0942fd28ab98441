// What a kernel of your own sees of a tensor (wisp.utils.cpp_extension): memory, sizes, strides in elements, and the name of its dtype.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace wisp {

template <class T> constexpr std::string_view dtype_of() {
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, float>) return "float32";
    else if constexpr (std::is_same_v<U, double>) return "float64";
    else if constexpr (std::is_same_v<U, int8_t>) return "int8";
    else if constexpr (std::is_same_v<U, uint8_t>) return "uint8";
    else if constexpr (std::is_same_v<U, int16_t>) return "int16";
    else if constexpr (std::is_same_v<U, int32_t>) return "int32";
    else if constexpr (std::is_same_v<U, int64_t>) return "int64";
    else if constexpr (std::is_same_v<U, bool>) return "bool";
    else static_assert(!sizeof(T), "a type that no dtype has");
}

struct Tensor {
    void* memory;
    const int64_t *sizes, *strides;
    int64_t dimensions;
    const char* dtype;

    template <class T> T* data() const {
        if (dtype_of<T>() != dtype)
            throw std::invalid_argument(std::string("a tensor of ") + std::string(dtype_of<T>()) + " was expected, this one is " + dtype);
        return static_cast<T*>(memory);
    }
    int64_t dim() const { return dimensions; }
    int64_t size(int64_t d) const { return sizes[place(d)]; }
    int64_t stride(int64_t d) const { return strides[place(d)]; }
    int64_t numel() const {
        int64_t n = 1;
        for (int64_t d = 0; d < dimensions; d++) n *= sizes[d];
        return n;
    }
    bool is_contiguous() const {
        int64_t expected = 1;
        for (int64_t d = dimensions - 1; d >= 0; d--) {
            if (sizes[d] != 1 && strides[d] != expected) return false;
            expected *= sizes[d];
        }
        return true;
    }

private:
    int64_t place(int64_t d) const {
        const int64_t wrapped = d < 0 ? d + dimensions : d;
        if (wrapped < 0 || wrapped >= dimensions)
            throw std::out_of_range("dimension " + std::to_string(d) + " of a tensor with " + std::to_string(dimensions));
        return wrapped;
    }
};

}  // namespace wisp

using wisp::Tensor;
