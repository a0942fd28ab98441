// Checksums of the formats that Python's library does not cover or is slow at: CRC-32C, which TensorBoard's files use,
// and the CRC-32 of zip archives, by carry-less multiplication several times as fast as zlib's.
#include <array>

#include "registry.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wisp {
namespace {

// Both with all bits reflected.
using CrcTable = std::array<uint32_t, 256>;
constexpr CrcTable crc_table(uint32_t polynomial) {
    CrcTable table{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? polynomial ^ c >> 1 : c >> 1;
        table[i] = c;
    }
    return table;
}
constexpr CrcTable castagnoli = crc_table(0x82f63b78), zip = crc_table(0xedb88320);

uint32_t crc_bytes(const CrcTable& table, uint32_t c, const uint8_t* p, size_t n) {
    for (; n; --n) c = table[(c ^ *p++) & 255] ^ c >> 8;
    return c;
}

#if defined(__x86_64__)
__attribute__((target("pclmul,sse4.1"))) inline __m128i fold(__m128i x, __m128i by, __m128i next) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), next);
}
inline __m128i block(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// A remainder modulo the polynomial P stays right when a block is multiplied by x^n mod P and added n bits later: four
// blocks of 16 bytes are folded forward at a time, then into one, which Barrett's method reduces to 32 bits. At least
// 64 bytes; the constants are x^n mod P for the distances of the folds, then P and its inverse.
__attribute__((target("pclmul,sse4.1"))) uint32_t crc32_folded(const uint8_t* p, size_t n) {
    __m128i x[4];
    for (int i = 0; i < 4; ++i) x[i] = block(p + 16 * i);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128(-1));
    const __m128i by_four = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_one = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
        for (int i = 0; i < 4; ++i) x[i] = fold(x[i], by_four, block(p + 16 * i));
    __m128i sum = x[0];
    for (int i = 1; i < 4; ++i) sum = fold(sum, by_one, x[i]);
    for (; n >= 16; p += 16, n -= 16) sum = fold(sum, by_one, block(p));
    const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by_one, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low), _mm_set_epi64x(0, 0x163cd6124), 0x00));
    const __m128i polynomial = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(sum, low), polynomial, 0x10);
    sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(_mm_and_si128(quotient, low), polynomial, 0x00));
    return crc_bytes(zip, uint32_t(_mm_extract_epi32(sum, 1)), p, n);
}
#endif

uint32_t crc32_of(const uint8_t* p, size_t n) {
#if defined(__x86_64__)
    if (n >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) return crc32_folded(p, n);
#endif
    return crc_bytes(zip, ~0u, p, n);
}

template <class Sum> int64_t checksum(PyObject* data, Sum sum) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) throw PythonError();
    uint32_t c;
    Py_BEGIN_ALLOW_THREADS c = sum(static_cast<const uint8_t*>(view.buf), size_t(view.len));
    Py_END_ALLOW_THREADS PyBuffer_Release(&view);
    return int64_t(~c);
}
int64_t crc32c(PyObject* data) {
    return checksum(data, [](const uint8_t* p, size_t n) { return crc_bytes(castagnoli, ~0u, p, n); });
}
int64_t crc32(PyObject* data) { return checksum(data, crc32_of); }

const Operators operators = {{"_crc32c(any data)", crc32c, function}, {"_crc32(any data)", crc32, function}};

}  // namespace
}  // namespace wisp
