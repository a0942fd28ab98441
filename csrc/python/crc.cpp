// The CRC-32C of bytes, which TensorBoard's event files are framed with.
#include <array>

#include "registry.h"

namespace wisp {
namespace {

constexpr std::array<uint32_t, 256> crc_table = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
        table[i] = c;
    }
    return table;
}();

int64_t crc32c(PyObject* data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) throw PythonError();
    const auto* bytes = static_cast<const uint8_t*>(view.buf);
    uint32_t c = ~0u;
    for (Py_ssize_t i = 0; i < view.len; i++) c = crc_table[(c ^ bytes[i]) & 255] ^ c >> 8;
    PyBuffer_Release(&view);
    return int64_t(~c);
}

const Operators operators = {{"_crc32c(any data)", crc32c, function}};

}  // namespace
}  // namespace wisp
