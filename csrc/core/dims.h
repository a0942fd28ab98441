// Dims: a short list of integers (sizes, strides, dims) that needs no heap for the usual <= 6 entries.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

namespace wisp {

class Dims {
public:
    static constexpr int inline_capacity = 6;

    Dims() = default;
    explicit Dims(int64_t n, int64_t value = 0) { resize(n, value); }
    Dims(std::initializer_list<int64_t> values) { assign(values.begin(), int(values.size())); }
    Dims(const int64_t* values, int64_t n) { assign(values, n); }
    Dims(const Dims& other) { copy(other); }
    Dims(Dims&& other) noexcept { steal(other); }
    Dims& operator=(const Dims& other) {
        if (this != &other) copy(other);
        return *this;
    }
    Dims& operator=(Dims&& other) noexcept {
        if (this != &other) {
            if (heap_) std::free(heap_);
            heap_ = nullptr;
            steal(other);
        }
        return *this;
    }
    ~Dims() {
        if (heap_) std::free(heap_);
    }

    int64_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    int64_t* data() { return heap_ ? heap_ : inline_; }
    const int64_t* data() const { return heap_ ? heap_ : inline_; }
    int64_t& operator[](int64_t i) { return data()[i]; }
    int64_t operator[](int64_t i) const { return data()[i]; }
    int64_t& back() { return data()[size_ - 1]; }
    int64_t back() const { return data()[size_ - 1]; }
    int64_t* begin() { return data(); }
    int64_t* end() { return data() + size_; }
    const int64_t* begin() const { return data(); }
    const int64_t* end() const { return data() + size_; }

    void resize(int64_t n, int64_t value = 0) {
        reserve(n);
        int64_t* p = data();
        for (int64_t i = size_; i < n; i++) p[i] = value;
        size_ = int32_t(n);
    }
    void push_back(int64_t value) {
        reserve(size_ + 1);
        data()[size_++] = value;
    }
    void pop_back() { size_--; }
    void clear() { size_ = 0; }
    void insert(int64_t at, int64_t value) {
        push_back(value);
        std::rotate(begin() + at, end() - 1, end());
    }
    void erase(int64_t at) {
        int64_t* p = data();
        for (int64_t i = at; i + 1 < size_; i++) p[i] = p[i + 1];
        size_--;
    }
    bool contains(int64_t value) const {
        for (int64_t v : *this)
            if (v == value) return true;
        return false;
    }
    bool operator==(const Dims& other) const {
        if (size_ != other.size_) return false;
        const int64_t *a = data(), *b = other.data();
        for (int32_t i = 0; i < size_; i++)
            if (a[i] != b[i]) return false;
        return true;
    }

private:
    void reserve(int64_t n) {
        if (n <= capacity_) return;
        const int64_t capacity = std::max<int64_t>(n, 2 * int64_t(capacity_));
        if (capacity > INT32_MAX) throw std::bad_alloc();
        int64_t* p = static_cast<int64_t*>(std::malloc(capacity * sizeof(int64_t)));
        if (!p) throw std::bad_alloc();
        std::memcpy(p, data(), size_ * sizeof(int64_t));
        if (heap_) std::free(heap_);
        heap_ = p;
        capacity_ = int32_t(capacity);
    }
    void assign(const int64_t* values, int64_t n) {
        reserve(n);
        int64_t* p = data();
        for (int64_t i = 0; i < n; i++) p[i] = values[i];
        size_ = int32_t(n);
    }
    // Without a heap all entries go along, used or not: three moves are quicker than a loop.
    void copy(const Dims& other) {
        if (heap_ || other.heap_) return assign(other.data(), other.size_);
        size_ = other.size_;
        std::memcpy(inline_, other.inline_, sizeof inline_);
    }
    void steal(Dims& other) {
        size_ = other.size_;
        if (other.heap_) {
            heap_ = other.heap_;
            capacity_ = other.capacity_;
            other.heap_ = nullptr;
            other.capacity_ = inline_capacity;
            other.size_ = 0;
        } else {
            capacity_ = inline_capacity;
            std::memcpy(inline_, other.inline_, sizeof inline_);
        }
    }

    int64_t* heap_ = nullptr;
    int32_t size_ = 0, capacity_ = inline_capacity;
    int64_t inline_[inline_capacity];
};

}  // namespace wisp
