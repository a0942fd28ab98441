// Kernels of the table's part binary.h.
#include "pointwise_rows.h"

namespace wisp::cpu::WISP_ISA {
namespace {
#include "../ops/table/binary.h"

// Choosing needs no arithmetic: elements are moved by size.
template <class T> void where_loop(char* const* pointers, int64_t n, const Param*, unsigned) {
    T* out = reinterpret_cast<T*>(pointers[0]);
    const uint8_t* condition = reinterpret_cast<const uint8_t*>(pointers[1]);
    const T* a = reinterpret_cast<const T*>(pointers[2]);
    const T* b = reinterpret_cast<const T*>(pointers[3]);
    for (int64_t i = 0; i < n; i++) out[i] = condition[i] ? a[i] : b[i];
}
}  // namespace

#include "pointwise_make_rows.h"
extern const BinaryKernels pointwise_binary_table;
const BinaryKernels pointwise_binary_table = {
    {
#include "../ops/table/binary.h"
    },
    {&where_loop<uint8_t>, &where_loop<uint16_t>, &where_loop<uint32_t>, &where_loop<uint64_t>, &where_loop<Item16>}};

}  // namespace wisp::cpu::WISP_ISA
