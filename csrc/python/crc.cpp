// Checksums of the formats that Python's library does not cover or is slow at: CRC-32C, which TensorBoard's files use,
// and the CRC-32 of zip archives, by carry-less multiplication several times as fast as zlib's.
#include <array>
#include <cstring>

#include "../cpu/processor.h"
#include "registry.h"

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

using cpu::Bits128;
using cpu::carryless;

WISP_CARRYLESS WISP_INLINE Bits128 fold(Bits128 x, Bits128 by, Bits128 next) {
    return carryless<0, 0>(x, by) ^ carryless<1, 1>(x, by) ^ next;
}
WISP_INLINE Bits128 block(const uint8_t* p) {
    Bits128 x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

// A remainder modulo the polynomial P stays right when a block is multiplied by x^n mod P and added n bits later: four
// blocks of 16 bytes are folded forward at a time, then into one, which Barrett's method reduces to 32 bits. At least
// 64 bytes; the constants are x^n mod P for the distances of the folds, then P and its inverse.
WISP_CARRYLESS uint32_t crc32_folded(const uint8_t* p, size_t n) {
    Bits128 x[4];
    for (int i = 0; i < 4; ++i) x[i] = block(p + 16 * i);
    x[0] ^= Bits128{0xffffffff, 0};
    const Bits128 by_four = {0x154442bd4, 0x1c6e41596}, by_one = {0x1751997d0, 0x0ccaa009e};
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
        for (int i = 0; i < 4; ++i) x[i] = fold(x[i], by_four, block(p + 16 * i));
    Bits128 sum = x[0];
    for (int i = 1; i < 4; ++i) sum = fold(sum, by_one, x[i]);
    for (; n >= 16; p += 16, n -= 16) sum = fold(sum, by_one, block(p));
    sum = Bits128{sum[1], 0} ^ carryless<0, 1>(sum, by_one);
    const Bits128 shifted = {sum[0] >> 32 | sum[1] << 32, sum[1] >> 32};
    sum = shifted ^ carryless<0, 0>(sum & 0xffffffff, Bits128{0x163cd6124, 0});
    const Bits128 polynomial = {0x1db710641, 0x1f7011641};
    const Bits128 quotient = carryless<0, 1>(sum & 0xffffffff, polynomial);
    sum ^= carryless<0, 0>(quotient & 0xffffffff, polynomial);
    return crc_bytes(zip, uint32_t(sum[0] >> 32), p, n);
}

uint32_t crc32_of(const uint8_t* p, size_t n) {
    if (n >= 64 && cpu::has_carryless()) return crc32_folded(p, n);
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
