// Sorting (see sort.h). Elements become unsigned keys that sort as the elements do; a key of up to 32 bits and its
// index share one 64-bit word, so ties break by position and every method is stable. Long rows take a radix sort.
#include "kernels/sort.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "../core/scratch.h"
#include "../core/threads.h"
#include "kernels/copy.h"
#include "kernels/pointwise_call.h"

namespace wisp::cpu {
namespace {

constexpr int64_t radix_from = 64;  // elements; shorter rows, or twice that with 64-bit keys, are sorted by comparison

// ---- keys ------------------------------------------------------------------------------------------------------

inline uint32_t key_of_float(uint32_t u) {
    const bool nan = (u & 0x7fffffff) > 0x7f800000;
    u = u == 0x80000000 ? 0 : u;  // -0 equals 0
    u ^= uint32_t(int32_t(u) >> 31) | 0x80000000;
    return nan ? UINT32_MAX : u;
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

// How many of a row are NaN, and the first of them.
int64_t count_nans(const char* row, DType dtype, int64_t n, int64_t& first) {
    int64_t count = 0;
    const auto look = [&](auto nan, auto* tag) {
        using T = std::remove_pointer_t<decltype(tag)>;
        const T* x = reinterpret_cast<const T*>(row);
        for (int64_t i = 0; i < n; i++) count += nan(x[i]);
        for (first = 0; count && !nan(x[first]);) first++;
    };
    const uint16_t infinity = dtype == DType::f16 ? 0x7c00 : 0x7f80;
    const auto differs = [](auto x) { return x != x; };
    if (is_reduced(dtype)) look([=](uint16_t u) { return (u & 0x7fff) > infinity; }, static_cast<uint16_t*>(nullptr));
    else if (dtype == DType::f32) look(differs, static_cast<float*>(nullptr));
    else if (dtype == DType::f64) look(differs, static_cast<double*>(nullptr));
    return count;
}

// ---- entries: a key with its index, ordered by both ------------------------------------------------------------

struct Packed {  // keys of up to 32 bits in rows of less than 2^32 elements
    uint64_t word;
    static constexpr int key_bytes = 4;
    static Packed make(uint64_t key, int64_t index) { return {key << 32 | uint64_t(index)}; }
    static Packed beyond() { return {UINT64_MAX}; }  // no entry is larger, or equal
    uint64_t key_bits() const { return word >> 32; }
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
    uint64_t key_bits() const { return key; }
    int64_t index() const { return at; }
    unsigned digit(int k) const { return unsigned(key >> (8 * k)) & 255; }
    bool same_key(Wide other) const { return key == other.key; }
    bool operator<(Wide other) const { return (key < other.key) | ((key == other.key) & (at < other.at)); }
};

template <class Entry> void insertion_sort(Entry* e, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const Entry x = e[i];
        int64_t j = i;
        for (; j > 0 && x < e[j - 1]; j--) e[j] = e[j - 1];
        e[j] = x;
    }
}

// Whether the keys of a row, made smallest by subtracting `least`, fit into 32 bits.
template <class KeyOf, class Key> bool fits_packed(const char* row, int64_t item, int64_t n, KeyOf key, Key flip, Key& least) {
    Key low = key(row) ^ flip, high = low;
    for (int64_t i = 1; i < n; i++) {
        const Key x = key(row + i * item) ^ flip;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    least = low;
    return uint64_t(high - low) < UINT32_MAX;
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
            auto* found = indices ? nullptr : static_cast<int64_t*>(scratch(1, size_t(wanted) * 8));
            const Key flip = descending ? ~Key(0) : Key(0);
            auto run = [&](auto* tag, int64_t r, Key least) {
                using Entry = std::remove_pointer_t<decltype(tag)>;
                auto* e = static_cast<Entry*>(scratch(0, size_t(2 * n) * sizeof(Entry)));
                const char* row = static_cast<const char*>(in) + r * n * item;
                for (int64_t i = 0; i < n; i++) e[i] = Entry::make(Key((key(row + i * item) ^ flip) - least), i);
                const Entry* sorted = order(e, e + n, row);
                int64_t* at = indices ? indices + r * wanted : found;
                for (int64_t i = 0; i < wanted; i++) at[i] = sorted[i].index();
                if (!values) return;
                const char* source = row;
                if (values == in) {  // in place: from a copy
                    char* copied = static_cast<char*>(scratch(2, size_t(n * item)));
                    std::memcpy(copied, row, size_t(n * item));
                    source = copied;
                }
                take_items(static_cast<char*>(values) + r * wanted * item, source, at, wanted, item);
            };
            for (int64_t r = begin; r < end; r++) {
                Key least = 0;
                const bool packed = n < int64_t(UINT32_MAX) && (sizeof(Key) == 4 || fits_packed(static_cast<const char*>(in) + r * n * item,
                                                                                                item, n, key, flip, least));
                if (packed) run(static_cast<Packed*>(nullptr), r, least);
                else run(static_cast<Wide*>(nullptr), r, Key(0));
            }
        });
    });
}

void sort_rows(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, bool descending) {
    each_row(values, indices, in, dtype, rows, n, n, descending,
             [&](auto* e, auto* spare, const char*) { return sort_entries(e, spare, n); });
}

// The k first of n > 16 k elements. One pass keeps those before a limit, the kth of what it has seen, and brings the
// limit down whenever there are k + 32 more; most elements cost a comparison. Long rows are cut for the threads.
template <class Entry, class KeyOf, class Key>
void first_few(void* values, int64_t* indices, const char* in, int64_t item, int64_t rows, int64_t n, int64_t k, KeyOf key, Key flip) {
    constexpr int64_t piece = 65536;
    const bool cut = n >= 2 * piece && k * 16 <= piece && rows < 2 * num_threads();
    const int64_t pieces = cut ? (n + piece - 1) / piece : 1, length = cut ? piece : n, room = 2 * k + 32;
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
        for (int64_t i = first; i < last;) {
            if (i - first > 64 * k) {  // few count by now: skip eight at a time
                const Key least = Key(limit.key_bits());
                for (; i + 8 <= last; i += 8) {
                    const char* p = row + i * item;
                    int any = 0;
                    for (int j = 0; j < 8; j++) any |= (key(p + j * item) ^ flip) < least;
                    if (any) break;
                }
            }
            const int64_t stop = std::min(last, i + 8);
            for (; i < stop; i++) {  // stored always, kept if before the limit
                kept[count] = Entry::make(key(row + i * item) ^ flip, i);
                count += kept[count] < limit;
            }
            if (count < room) continue;
            std::nth_element(kept, kept + k - 1, kept + count);
            limit = kept[k - 1];
            count = k;
        }
        return count;
    };
    parallel_for(rows * pieces, std::max<int64_t>(1, 16384 / length), [&](int64_t begin, int64_t end) {
        auto* kept = static_cast<Entry*>(scratch(0, size_t(room + 8) * sizeof(Entry)));
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

constexpr int64_t few = 64;
// The first k of few elements, each found by looking at all of them: nothing is allocated.
void topk_of_few(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t k, bool largest) {
    with_key(dtype, [&](auto key) {
        using Key = decltype(key(static_cast<const char*>(nullptr)));
        const int64_t item = item_size(dtype);
        const auto* data = static_cast<const char*>(in);
        auto* out = static_cast<char*>(values);
        for (int64_t r = 0; r < rows; r++, data += n * item) {
            Key keys[few];
            for (int64_t i = 0; i < n; i++) keys[i] = largest ? ~key(data + i * item) : key(data + i * item);
            uint64_t taken = 0;
            for (int64_t j = 0; j < k; j++, out += item) {
                int64_t first = -1;
                for (int64_t i = 0; i < n; i++)
                    if (!(taken >> i & 1) && (first < 0 || keys[i] < keys[first])) first = i;
                taken |= uint64_t(1) << first;
                *indices++ = first;
                std::memcpy(out, data + first * item, size_t(item));
            }
        }
    });
}

void topk(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t k, bool largest) {
    if (k <= 0 || rows <= 0) return;
    if (n <= few && n * k <= 4 * few && rows * n <= 16 * few) return topk_of_few(values, indices, in, dtype, rows, n, k, largest);
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

// The entry of a rank: of many entries, by those alone that share the upper bits of its key.
template <class Entry> Entry* of_rank(Entry* e, Entry* spare, int64_t n, int64_t rank) {
    constexpr int bits = 12;
    if (n >= 4096) {
        uint64_t all = 0;  // bits in which keys differ from the first
        for (int64_t i = 0; i < n; i++) all |= e[i].key_bits() ^ e[0].key_bits();
        const int width = 64 - (all ? __builtin_clzll(all) : 63), shift = std::max(0, width - bits);
        const auto part = [shift](Entry x) { return (x.key_bits() >> shift) & ((1u << bits) - 1); };
        int64_t counts[1 << bits] = {};
        for (int64_t i = 0; i < n; i++) counts[part(e[i])]++;
        uint64_t wanted = 0;
        for (; rank >= counts[wanted]; wanted++) rank -= counts[wanted];
        int64_t found = 0;
        for (int64_t i = 0; i < n; i++) {  // stored always, kept if wanted
            spare[found] = e[i];
            found += part(e[i]) == wanted;
        }
        e = spare, n = found;
    }
    std::nth_element(e, e + rank, e + n);
    return e + rank;
}

void select(Selection what, void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t k) {
    each_row(values, indices, in, dtype, rows, n, 1, false, [&](auto* e, auto* spare, const char* row) {
        int64_t rank = k;
        if (what != Selection::kth) {
            int64_t first = 0;
            const int64_t nans = count_nans(row, dtype, n, first);
            if (what == Selection::median && nans) {
                std::swap(e[0], e[first]);
                return e;
            }
            rank = nans == n ? 0 : (n - nans - 1) / 2;
        }
        return of_rank(e, spare, n, rank);
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
        const int64_t many = 8;                                     // searches at a time: the steps of one wait for each other
        const auto boundary = [&](int64_t row, int64_t i) {
            const int64_t at = sorter ? sorter[row * m + i] : i;
            const Key x = key(static_cast<const char*>(boundaries) + (row * m + at) * item);
            return floats && x == nan ? Key(0) : x;  // below the keys of all numbers
        };
        int steps = 0;
        while (m >> steps) steps++;
        // The values [begin, end) of a row among its boundaries, x(i) being the ith; x(m) may be anything.
        const auto search = [&, steps, equal = uint64_t(right)](int64_t begin, int64_t end, auto x) {
            for (int64_t first = begin; first < end; first += many) {
                const int64_t count = std::min(many, end - first);
                Key wanted[many] = {};
                uint64_t low[many] = {}, left[many];
                for (int64_t j = 0; j < count; j++) wanted[j] = key(static_cast<const char*>(values) + (first + j) * item);
                for (int64_t j = 0; j < many; j++) left[j] = uint64_t(m);
                for (int step = 0; step < steps; step++)
                    for (int64_t j = 0; j < many; j++) {  // arithmetic alone: nobody could foresee the branches
                        const uint64_t half = left[j] >> 1;
                        const Key at = x(int64_t(low[j] + half)), w = wanted[j];
                        const uint64_t after = (uint64_t(at < w) | (uint64_t(at == w) & equal)) & uint64_t(left[j] != 0);
                        low[j] += (half + 1) & (0 - after);
                        left[j] = half - (after & ~left[j]);
                    }
                for (int64_t j = 0; j < count; j++) out[first + j] = floats && wanted[j] == nan ? m : int64_t(low[j]);
            }
        };
        const bool whole = shared || rows == 1;
        Key* keys = nullptr;  // of the boundaries, where there are enough values to make them once
        if (whole && n * rows >= m && m > 0) {
            keys = static_cast<Key*>(scratch(4, size_t(m + 1) * sizeof(Key)));
            for (int64_t i = 0; i < m; i++) keys[i] = boundary(0, i);
            keys[m] = 0;
        }
        parallel_for(rows * n, 2048, [&](int64_t begin, int64_t end) {
            if (keys) return search(begin, end, [keys](int64_t i) { return keys[i]; });
            while (begin < end) {
                const int64_t row = shared ? 0 : begin / n, stop = shared ? end : std::min(end, (row + 1) * n);
                search(begin, stop, [&](int64_t i) { return boundary(row, std::min(i, m - 1)); });
                begin = stop;
            }
        });
    });
}

// ---- counting --------------------------------------------------------------------------------------------------

// Adds up what threads have counted of their parts: f(begin, end, counts) counts. Few bins are counted by every thread for itself.
template <class F> void counted(int64_t* out, int64_t n, int64_t bins, F&& f) {
    std::memset(out, 0, size_t(bins) * 8);
    if (bins > 65536 || n < 65536) return f(int64_t(0), n, out);
    std::mutex joining;
    parallel_for(n, std::max<int64_t>(32768, bins), [&](int64_t begin, int64_t end) {
        auto* counts = static_cast<int64_t*>(scratch(4, size_t(bins) * 8));
        std::memset(counts, 0, size_t(bins) * 8);
        f(begin, end, counts);
        const std::lock_guard lock(joining);
        for (int64_t k = 0; k < bins; k++) out[k] += counts[k];
    });
}

void count(int64_t* out, const int64_t* numbers, int64_t n, int64_t bins) {
    counted(out, n, bins, [&](int64_t begin, int64_t end, int64_t* counts) {
        for (int64_t i = begin; i < end; i++)
            if (uint64_t(numbers[i]) < uint64_t(bins)) counts[numbers[i]]++;
    });
}

// As PyTorch computes the place of a value: floats in float, all else in double.
template <class T> void histogram_in(int64_t* out, const void* values, DType dtype, int64_t n, int64_t bins, double low_, double high_) {
    const DType compute = sizeof(T) == 4 ? DType::f32 : DType::f64;
    const T low = T(low_), high = T(high_), width = T(high_ - low_), number = T(bins);
    auto place = [&](T x) {
        if (low == high) return bins / 2;  // rounding has closed the range
        const T at = (x - low) * number / width;
        if (at < number) return int64_t(at);
        const double share = (x / 2.0 - low_ / 2) / (high_ / 2 - low_ / 2);  // what overflows above does not here
        return std::min(int64_t(share * double(bins)), bins - 1);
    };
    counted(out, n, bins, [&](int64_t begin, int64_t end, int64_t* counts) {
        constexpr int64_t block = 256;
        alignas(64) T converted[block];
        for (int64_t first = begin; first < end; first += block) {
            const int64_t length = std::min(block, end - first);
            const char* from = static_cast<const char*>(values) + first * item_size(dtype);
            const T* x = reinterpret_cast<const T*>(from);
            if (dtype != compute) {
                copy.convert(converted, compute, from, dtype, length);
                x = converted;
            }
            for (int64_t i = 0; i < length; i++)
                if ((x[i] >= low) & (x[i] <= high)) counts[place(x[i])]++;
        }
    });
}
void histogram(int64_t* out, const void* values, DType dtype, int64_t n, int64_t bins, double low, double high) {
    if (is_floating(dtype) && dtype != DType::f64) histogram_in<float>(out, values, dtype, n, bins, low, high);
    else histogram_in<double>(out, values, dtype, n, bins, low, high);
}

void run_starts(bool* out, const void* in, DType dtype, int64_t n) {
    if (n > 0) out[0] = true;
    if (n < 2) return;
    const Dims sizes{n - 1}, step{1};
    char* first = const_cast<char*>(static_cast<const char*>(in));
    const PointwiseOperand operands[] = {{reinterpret_cast<char*>(out + 1), DType::boolean, step.data()},
                                         {first + item_size(dtype), dtype, step.data()},
                                         {first, dtype, step.data()}};
    pointwise.row(Pointwise::ne, which_forward, compute_dtype(dtype), DType::boolean, operands, 3, sizes, n - 1, nullptr);
}

constexpr SortKernels table = {&sort_rows, &topk, &select, &mode, &searchsorted, &count, &histogram, &run_starts, nullptr};

}  // namespace

const SortKernels& sort = table;

}  // namespace wisp::cpu
