// Sorting (see sort.h). Elements become unsigned keys that sort as the elements do; a key of up to 32 bits and its
// index share one 64-bit word, so ties break by position and every method is stable. Long rows take a radix sort.
#include "kernels/sort.h"

#include <algorithm>
#include <cstring>

#include "../core/scratch.h"
#include "../core/threads.h"

namespace wisp::cpu {
namespace {

constexpr int64_t radix_from = 64;  // elements; shorter rows, or twice that with 64-bit keys, are sorted by comparison

// ---- keys ------------------------------------------------------------------------------------------------------

inline uint32_t key_of_float(uint32_t u) {
    if ((u & 0x7fffffff) > 0x7f800000) return UINT32_MAX;  // NaN
    if (u == 0x80000000) u = 0;                            // -0 equals 0
    return u & 0x80000000 ? ~u : u | 0x80000000;
}
inline uint64_t key_of_double(uint64_t u) {
    constexpr uint64_t sign = uint64_t(1) << 63;
    if ((u & ~sign) > uint64_t(0x7ff) << 52) return UINT64_MAX;
    if (u == sign) u = 0;
    return u & sign ? ~u : u | sign;
}
inline uint32_t key_of_half(uint32_t u, uint32_t infinity) {
    if ((u & 0x7fff) > infinity) return 0xffff;
    if (u == 0x8000) u = 0;
    return (u & 0x8000 ? ~u : u | 0x8000) & 0xffff;
}

// Calls f(key function, item size); a key function takes the address of an element.
template <class F> void with_key(DType dtype, F&& f) {
    auto load = [](auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        return [](const char* p) {
            T x;
            std::memcpy(&x, p, sizeof x);
            return x;
        };
    };
    const auto u8 = load(static_cast<uint8_t*>(nullptr));
    const auto u16 = load(static_cast<uint16_t*>(nullptr));
    const auto u32 = load(static_cast<uint32_t*>(nullptr));
    const auto u64 = load(static_cast<uint64_t*>(nullptr));
    switch (dtype) {
    case DType::boolean: return f([=](const char* p) { return uint32_t(u8(p) != 0); });
    case DType::u8: return f([=](const char* p) { return uint32_t(u8(p)); });
    case DType::i8: return f([=](const char* p) { return uint32_t(u8(p) ^ 0x80); });
    case DType::u16: return f([=](const char* p) { return uint32_t(u16(p)); });
    case DType::i16: return f([=](const char* p) { return uint32_t(u16(p) ^ 0x8000); });
    case DType::f16: return f([=](const char* p) { return key_of_half(u16(p), 0x7c00); });
    case DType::bf16: return f([=](const char* p) { return key_of_half(u16(p), 0x7f80); });
    case DType::u32: return f([=](const char* p) { return u32(p); });
    case DType::i32: return f([=](const char* p) { return u32(p) ^ 0x80000000; });
    case DType::f32: return f([=](const char* p) { return key_of_float(u32(p)); });
    case DType::i64: return f([=](const char* p) { return u64(p) ^ uint64_t(1) << 63; });
    case DType::f64: return f([=](const char* p) { return key_of_double(u64(p)); });
    default: return f([=](const char* p) { return u64(p); });
    }
}

bool is_nan(const char* p, DType dtype) {
    switch (dtype) {
    case DType::f16:
    case DType::bf16: {
        uint16_t u;
        std::memcpy(&u, p, 2);
        return (u & 0x7fff) > (dtype == DType::f16 ? 0x7c00 : 0x7f80);
    }
    case DType::f32: {
        float x;
        std::memcpy(&x, p, 4);
        return x != x;
    }
    case DType::f64: {
        double x;
        std::memcpy(&x, p, 8);
        return x != x;
    }
    default: return false;
    }
}

// ---- entries: a key with its index, ordered by both ------------------------------------------------------------

struct Packed {  // keys of up to 32 bits in rows of less than 2^32 elements
    uint64_t word;
    static constexpr int key_bytes = 4;
    static Packed make(uint64_t key, int64_t index) { return {key << 32 | uint64_t(index)}; }
    static Packed beyond() { return {UINT64_MAX}; }  // no entry is larger, or equal
    int64_t index() const { return int64_t(word & 0xffffffff); }
    unsigned digit(int k) const { return unsigned(word >> (32 + 8 * k)) & 255; }
    bool same_key(Packed other) const { return word >> 32 == other.word >> 32; }
    bool operator<(Packed other) const { return word < other.word; }
};
struct Wide {
    uint64_t key;
    int64_t at;
    static constexpr int key_bytes = 8;
    static Wide make(uint64_t key, int64_t index) { return {key, index}; }
    static Wide beyond() { return {UINT64_MAX, INT64_MAX}; }
    int64_t index() const { return at; }
    unsigned digit(int k) const { return unsigned(key >> (8 * k)) & 255; }
    bool same_key(Wide other) const { return key == other.key; }
    bool operator<(Wide other) const { return key < other.key || (key == other.key && at < other.at); }
};

template <class Entry> void insertion_sort(Entry* e, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const Entry x = e[i];
        int64_t j = i;
        for (; j > 0 && x < e[j - 1]; j--) e[j] = e[j - 1];
        e[j] = x;
    }
}

// Sorts n entries whose indices ascend, by bytes from the lowest; bytes in which all keys agree are skipped.
// Returns where the result is: e or spare.
template <class Entry> Entry* radix_sort(Entry* e, Entry* spare, int64_t n) {
    uint32_t small[Entry::key_bytes][256];
    std::memset(small, 0, sizeof small);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < Entry::key_bytes; k++) small[k][e[i].digit(k)]++;
    for (int k = 0; k < Entry::key_bytes; k++) {
        if (small[k][e[0].digit(k)] == uint32_t(n)) continue;
        Entry* next[256];
        Entry* at = spare;
        for (int d = 0; d < 256; d++) {
            next[d] = at;
            at += small[k][d];
        }
        for (int64_t i = 0; i < n; i++) *next[e[i].digit(k)]++ = e[i];
        std::swap(e, spare);
    }
    return e;
}

template <class Entry> Entry* sort_entries(Entry* e, Entry* spare, int64_t n) {
    if (n <= 24) {
        insertion_sort(e, n);
        return e;
    }
    if (n < radix_from * Entry::key_bytes / 4 || n > int64_t(UINT32_MAX)) {
        std::sort(e, e + n);
        return e;
    }
    return radix_sort(e, spare, n);
}

// ---- rows ------------------------------------------------------------------------------------------------------

template <class T> void take(void* values, const void* row, const int64_t* indices, int64_t n) {
    for (int64_t i = 0; i < n; i++) static_cast<T*>(values)[i] = static_cast<const T*>(row)[indices[i]];
}
void take_items(void* values, const void* row, const int64_t* indices, int64_t n, int64_t item) {
    switch (item) {
    case 1: return take<uint8_t>(values, row, indices, n);
    case 2: return take<uint16_t>(values, row, indices, n);
    case 4: return take<uint32_t>(values, row, indices, n);
    default: return take<uint64_t>(values, row, indices, n);
    }
}

// For each row: its entries are made, order(entries, spare, row) puts the wanted ones in front and returns them, and
// `wanted` of these are written out. Descending order complements the keys.
template <class Order> void each_row(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t wanted,
                                     bool descending, Order&& order) {
    if (rows <= 0 || n <= 0) return;
    const int64_t item = item_size(dtype);
    with_key(dtype, [&](auto key) {
        using Key = decltype(key(static_cast<const char*>(nullptr)));
        parallel_for(rows, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
            auto run = [&](auto* tag) {
                using Entry = std::remove_pointer_t<decltype(tag)>;
                auto* e = static_cast<Entry*>(scratch(0, size_t(2 * n) * sizeof(Entry)));
                auto* found = indices ? nullptr : static_cast<int64_t*>(scratch(1, size_t(wanted) * 8));
                const Key flip = descending ? ~Key(0) : Key(0);
                for (int64_t r = begin; r < end; r++) {
                    const char* row = static_cast<const char*>(in) + r * n * item;
                    for (int64_t i = 0; i < n; i++) e[i] = Entry::make(key(row + i * item) ^ flip, i);
                    const Entry* sorted = order(e, e + n, row);
                    int64_t* at = indices ? indices + r * wanted : found;
                    for (int64_t i = 0; i < wanted; i++) at[i] = sorted[i].index();
                    if (!values) continue;
                    const char* source = row;
                    if (values == in) {  // in place: from a copy
                        char* copied = static_cast<char*>(scratch(2, size_t(n * item)));
                        std::memcpy(copied, row, size_t(n * item));
                        source = copied;
                    }
                    take_items(static_cast<char*>(values) + r * wanted * item, source, at, wanted, item);
                }
            };
            if (sizeof(Key) == 4 && n < int64_t(UINT32_MAX)) run(static_cast<Packed*>(nullptr));
            else run(static_cast<Wide*>(nullptr));
        });
    });
}

void sort_rows(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, bool descending) {
    each_row(values, indices, in, dtype, rows, n, n, descending,
             [&](auto* e, auto* spare, const char*) { return sort_entries(e, spare, n); });
}

// The k first of n > 16 k elements. One pass keeps those before a limit, the kth of what it has seen, and brings the
// limit down whenever there are k + 256 more; most elements cost a comparison. Long rows are cut for the threads.
template <class Entry, class KeyOf, class Key>
void first_few(void* values, int64_t* indices, const char* in, int64_t item, int64_t rows, int64_t n, int64_t k, KeyOf key, Key flip) {
    constexpr int64_t piece = 65536;
    const bool cut = n >= 2 * piece && k * 16 <= piece && rows < 2 * num_threads();
    const int64_t pieces = cut ? (n + piece - 1) / piece : 1, length = cut ? piece : n, room = 2 * k + 256;
    auto* best = static_cast<Entry*>(cut ? scratch(3, size_t(rows * pieces * k) * sizeof(Entry)) : nullptr);
    auto write = [&](int64_t r, Entry* e, int64_t count) {
        if (count > k) std::nth_element(e, e + k - 1, e + count);
        std::sort(e, e + k);
        for (int64_t i = 0; i < k; i++) indices[r * k + i] = e[i].index();
        take_items(static_cast<char*>(values) + r * k * item, in + r * n * item, indices + r * k, k, item);
    };
    // Everything that the pass reads is a local value here: a reference would be read again for every element.
    auto pass = [room, k, item, key, flip](const char* row, int64_t first, int64_t last, Entry* kept) {
        Entry limit = Entry::beyond();
        int64_t count = 0;
        const char* p = row + first * item;
        for (int64_t i = first; i < last; i++, p += item) {
            const Entry e = Entry::make(key(p) ^ flip, i);
            if (!(e < limit)) continue;
            kept[count++] = e;
            if (count < room) continue;
            std::nth_element(kept, kept + k - 1, kept + count);
            limit = kept[k - 1];
            count = k;
        }
        return count;
    };
    parallel_for(rows * pieces, std::max<int64_t>(1, 16384 / length), [&](int64_t begin, int64_t end) {
        auto* kept = static_cast<Entry*>(scratch(0, size_t(room) * sizeof(Entry)));
        for (int64_t job = begin; job < end; job++) {
            const int64_t r = job / pieces, first = job % pieces * length;
            const int64_t count = pass(in + r * n * item, first, std::min(n, first + length), kept);
            if (!cut) {
                write(r, kept, count);
                continue;
            }
            if (count > k) std::nth_element(kept, kept + k - 1, kept + count);
            std::copy(kept, kept + std::min(k, count), best + job * k);
        }
    });
    // Only the last piece of a row can have less than k.
    const int64_t rest = std::min(k, n - (pieces - 1) * length);
    for (int64_t r = 0; cut && r < rows; r++) write(r, best + r * pieces * k, (pieces - 1) * k + rest);
}

void topk(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t k, bool largest) {
    if (k <= 0 || rows <= 0) return;
    if (k * 16 <= n && n >= radix_from) {
        with_key(dtype, [&](auto key) {
            using Key = decltype(key(static_cast<const char*>(nullptr)));
            const Key flip = largest ? ~Key(0) : Key(0);
            const auto* data = static_cast<const char*>(in);
            if (sizeof(Key) == 4 && n < int64_t(UINT32_MAX))
                first_few<Packed>(values, indices, data, item_size(dtype), rows, n, k, key, flip);
            else first_few<Wide>(values, indices, data, item_size(dtype), rows, n, k, key, flip);
        });
        return;
    }
    each_row(values, indices, in, dtype, rows, n, k, largest, [&](auto* e, auto* spare, const char*) {
        if (k * 4 > n) return sort_entries(e, spare, n);
        std::nth_element(e, e + k - 1, e + n);
        std::sort(e, e + k);
        return e;
    });
}

void select(Selection what, void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t k) {
    const int64_t item = item_size(dtype);
    each_row(values, indices, in, dtype, rows, n, 1, false, [&](auto* e, auto*, const char* row) {
        int64_t rank = k;
        if (what != Selection::kth) {
            int64_t nans = 0, first = -1;
            if (is_floating(dtype)) {
                for (int64_t i = 0; i < n; i++) {
                    if (!is_nan(row + i * item, dtype)) continue;
                    if (nans++ == 0) first = i;
                }
            }
            if (what == Selection::median && nans) {
                std::swap(e[0], e[first]);
                return e;
            }
            rank = nans == n ? 0 : (n - nans - 1) / 2;
        }
        std::nth_element(e, e + rank, e + n);
        return e + rank;
    });
}

void mode(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n) {
    each_row(values, indices, in, dtype, rows, n, 1, false, [&](auto* e, auto* spare, const char*) {
        auto* sorted = sort_entries(e, spare, n);
        int64_t best = 0, longest = 0;
        for (int64_t i = 0; i < n;) {
            int64_t end = i + 1;
            while (end < n && sorted[end].same_key(sorted[i])) end++;
            if (end - i > longest) {
                longest = end - i;
                best = end - 1;
            }
            i = end;
        }
        return sorted + best;
    });
}

// ---- search ----------------------------------------------------------------------------------------------------

void searchsorted(int64_t* out, const void* boundaries, const int64_t* sorter, const void* values, DType dtype, int64_t rows, int64_t m,
                  int64_t n, bool shared, bool right) {
    const int64_t item = item_size(dtype);
    const bool floats = is_floating(dtype);
    with_key(dtype, [&](auto key) {
        using Key = decltype(key(nullptr));
        const Key nan = is_reduced(dtype) ? Key(0xffff) : Key(-1);  // neither larger nor smaller than anything: passed over
        parallel_for(rows * n, 2048, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                const int64_t row = shared ? 0 : i / n;
                const char* base = static_cast<const char*>(boundaries) + row * m * item;
                const int64_t* order = sorter ? sorter + row * m : nullptr;
                const auto wanted = key(static_cast<const char*>(values) + i * item);
                int64_t low = 0, count = m;
                while (count > 0) {
                    const int64_t half = count / 2, at = order ? order[low + half] : low + half;
                    const auto x = key(base + at * item);
                    const bool after = (right ? x <= wanted : x < wanted) | (floats & ((x == nan) | (wanted == nan)));
                    low = after ? low + half + 1 : low;
                    count = after ? count - half - 1 : half;
                }
                out[i] = low;
            }
        });
    });
}

constexpr SortKernels table = {&sort_rows, &topk, &select, &mode, &searchsorted, nullptr, nullptr, nullptr};

}  // namespace

const SortKernels& sort = table;

}  // namespace wisp::cpu
