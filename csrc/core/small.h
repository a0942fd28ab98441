// Small<T, N>: a vector that keeps its first N elements inside.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <utility>

namespace wisp {

template <class T, int N> class Small {
public:
    Small() = default;
    Small(std::initializer_list<T> values) {
        for (const T& v : values) push_back(v);
    }
    Small(const Small& other) {
        for (const T& v : other) push_back(v);
    }
    Small(Small&& other) noexcept { take(other); }
    Small& operator=(Small other) noexcept {
        clear();
        release();
        take(other);
        return *this;
    }
    ~Small() {
        clear();
        release();
    }

    int64_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T* data() { return heap_ ? heap_ : reinterpret_cast<T*>(inline_); }
    const T* data() const { return heap_ ? heap_ : reinterpret_cast<const T*>(inline_); }
    T& operator[](int64_t i) { return data()[i]; }
    const T& operator[](int64_t i) const { return data()[i]; }
    T* begin() { return data(); }
    T* end() { return data() + size_; }
    const T* begin() const { return data(); }
    const T* end() const { return data() + size_; }
    T& back() { return data()[size_ - 1]; }
    const T& back() const { return data()[size_ - 1]; }

    template <class... Args> T& emplace_back(Args&&... args) {
        if (size_ == capacity_) grow();
        return *new (data() + size_++) T(std::forward<Args>(args)...);
    }
    void push_back(T value) { emplace_back(std::move(value)); }
    void pop_back() { data()[--size_].~T(); }
    void resize(int64_t n) {
        while (size_ > n) pop_back();
        while (size_ < n) emplace_back();
    }
    void clear() {
        T* p = data();
        for (int32_t i = size_; i-- > 0;) p[i].~T();
        size_ = 0;
    }

private:
    void grow() {
        const int32_t capacity = 2 * capacity_;
        T* p = static_cast<T*>(std::malloc(sizeof(T) * capacity));
        if (!p) throw std::bad_alloc();
        T* old = data();
        for (int32_t i = 0; i < size_; i++) {
            new (p + i) T(std::move(old[i]));
            old[i].~T();
        }
        release();
        heap_ = p;
        capacity_ = capacity;
    }
    void release() {
        if (heap_) std::free(heap_);
        heap_ = nullptr;
        capacity_ = N;
    }
    void take(Small& other) {
        if (other.heap_) {
            heap_ = other.heap_;
            capacity_ = other.capacity_;
            size_ = other.size_;
            other.heap_ = nullptr;
            other.capacity_ = N;
            other.size_ = 0;
        } else {
            for (T& v : other) push_back(std::move(v));
            other.clear();
        }
    }

    T* heap_ = nullptr;
    int32_t size_ = 0, capacity_ = N;
    alignas(T) char inline_[N * sizeof(T)];
};

}  // namespace wisp
