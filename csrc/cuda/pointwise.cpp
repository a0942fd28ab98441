// Chooses, names and launches the pointwise kernel for a call.
#include "pointwise.h"
#include "../kernels/copy.h"

#include <cstring>
#include <unordered_map>

#include "../core/errors.h"
#include "../core/layout.h"
#include "../core/merged.h"
#include "divider.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

#include "../kernels/pointwise_arguments.h"

constexpr int row_identity = int(Pointwise::count), row_conjugate = row_identity + 1, row_where = row_identity + 2;

std::string row_text(int row) {
    if (row == row_identity) return "identity_row";
    if (row == row_conjugate) return "conjugate_row";
    if (row == row_where) return "where_row";
    return str("rows::", row_name(Pointwise(row)), "_row");
}

// Everything that a kernel is specialised for, in 64 bits.
struct Key {
    uint64_t bits = 0;
    int used = 0;
    void add(uint64_t value, int width) {
        bits |= value << used;
        used += width;
    }
};

enum { operand_absent = 31, operand_number = 30 };  // in the place of a dtype, of which there are fewer

// A row of the table, or of the three below it, and what it is called with.
struct RowCall {
    int row, which;
    DType compute;
    const Operand* operands;
    int count;
    const Param* params;
};

enum class Form { strided, flat, list };

// `units`: how many vectors a thread takes.
uint64_t key_of(const RowCall& c, Form form, int vector, int units) {
    Key key;
    key.add(uint64_t(c.row), 9);
    key.add(uint64_t(c.which), 2);
    key.add(uint64_t(c.compute), 4);
    key.add(uint64_t(form), 2);
    key.add(uint64_t(vector), 5);
    key.add(uint64_t(units), 3);
    for (int k = 0; k < max_operands; k++) {
        const bool there = k < c.count && (c.operands[k].data || c.operands[k].number);
        key.add(!there ? operand_absent : c.operands[k].number ? operand_number : uint64_t(c.operands[k].dtype), 5);
    }
    return key.bits;
}

Kernel* kernel_for(const RowCall& c, Form form, int vector, int units) {
    static std::unordered_map<uint64_t, Kernel*> known;
    Kernel*& kernel = known[key_of(c, form, vector, units)];
    if (kernel) return kernel;
    static constexpr const char* forms[] = {"pointwise_strided<", "pointwise_flat<", "pointwise_list<"};
    std::string name = str(forms[int(form)], row_text(c.row), ", ", c.which, ", ", type_text(c.compute), ", ", vector);
    if (form != Form::list) name += str(", ", units);
    for (int k = 0; k < c.count; k++)
        name += std::string(", ") + (c.operands[k].number ? "Number" : c.operands[k].data ? type_text(c.operands[k].dtype) : "Absent");
    return kernel = find_kernel("cuda/kernels/pointwise.cuh", name + ">");
}

// The loops of a call.
struct Loops : MergedDims<max_operands> {
    Loops(const RowCall& c, const Dims& shape) {
        auto stride = [&](int k, int d) { return c.operands[k].strides ? c.operands[k].strides[d] : 0; };
        add_sorted(shape.data(), int(std::min<int64_t>(shape.size(), most)), stride, c.count);
        at_least_one(c.count);
    }
};

void launch_row(const RowCall& c, const Dims& sizes);

// More dimensions than a kernel takes: a launch for each index of the outermost.
void launch_by_index(const RowCall& c, const Loops& m) {
    Operand part[max_operands];
    std::copy_n(c.operands, c.count, part);
    for (int k = 0; k < c.count; k++)
        if (part[k].strides) part[k].strides = m.strides[k] + 1;
    RowCall inner = c;
    inner.operands = part;
    for (int64_t i = 0; i < m.sizes[0]; i++) {
        for (int k = 0; k < c.count; k++)
            if (part[k].strides && part[k].data) part[k].data = c.operands[k].data + i * m.strides[k][0] * item_size(part[k].dtype);
        launch_row(inner, Dims(m.sizes + 1, m.ndim - 1));
    }
}

// The dimension along which an operand reaches farthest, and how many bytes that is.
int farthest(const RowCall& c, const Dims& sizes, int64_t& bytes) {
    int dim = 0;
    int64_t most = -1;
    bytes = 0;
    for (int k = 0; k < c.count; k++) {
        if (!c.operands[k].strides) continue;
        int64_t reach = 0;
        for (int64_t d = 0; d < sizes.size(); d++) {
            const int64_t along = (sizes[d] - 1) * std::abs(c.operands[k].strides[d]) * item_size(c.operands[k].dtype);
            reach += along;
            if (along > most) most = along, dim = int(d);
        }
        bytes = std::max(bytes, reach);
    }
    return dim;
}

// More than the 31 bits of a kernel's offsets: the two halves of a dimension, one after the other.
void launch_halves(const RowCall& c, const Dims& sizes, int dim) {
    Operand parts[max_operands];
    RowCall half = c;
    half.operands = parts;
    for (int64_t at : {int64_t(0), sizes[dim] / 2}) {
        Dims half_sizes = sizes;
        half_sizes[dim] = at ? sizes[dim] - at : sizes[dim] / 2;
        for (int k = 0; k < c.count; k++) {
            parts[k] = c.operands[k];
            if (parts[k].strides) parts[k].data += at * parts[k].strides[dim] * item_size(parts[k].dtype);
        }
        launch_row(half, half_sizes);
    }
}

// Whether all operands lie in one line without gaps.
bool is_flat(const RowCall& c, const Loops& m) {
    bool flat = m.ndim == 1;
    for (int k = 0; flat && k < c.count; k++)
        if (c.operands[k].strides) flat = m.strides[k][0] == 1;
    return flat;
}

// As many neighbours at a time as fill 16 bytes of the widest operand, where addresses and strides allow it. Bits of `spread`:
// operands that have one value for all of them.
int vector_of(const RowCall& c, const Loops& m, bool flat, unsigned& spread) {
    int widest = 1;
    for (int k = 0; k < c.count; k++)
        if (c.operands[k].strides) widest = std::max(widest, int(item_size(c.operands[k].dtype)));
    const int vector = 16 / widest, last = m.ndim - 1;
    spread = 0;
    if (vector == 1 || (!flat && m.sizes[last] % vector != 0)) return 1;
    unsigned repeated = 0;
    for (int k = 0; k < c.count; k++) {
        const Operand& o = c.operands[k];
        if (!o.strides) continue;
        if (m.strides[k][last] == 0 && k > 0) {
            repeated |= 1u << k;
            continue;
        }
        if (m.strides[k][last] != 1 || uintptr_t(o.data) % uintptr_t(item_size(o.dtype) * vector) != 0) return 1;
        for (int d = 0; d < last; d++)
            if (m.strides[k][d] % vector != 0) return 1;
    }
    spread = repeated;
    return vector;
}

PointwiseShape shape_of(const RowCall& c, const Loops& m, int vector, unsigned spread) {
    PointwiseShape s;
    s.dims = m.ndim;
    s.spread = spread;
    for (int d = 0; d < m.ndim; d++) {
        const int from = m.ndim - 1 - d;
        s.sizes[d] = divider(uint32_t(d == 0 ? m.sizes[from] / vector : m.sizes[from]));
        for (int k = 0; k < c.count; k++)
            s.strides[k][d] = c.operands[k].strides ? int(m.strides[k][from] * item_size(c.operands[k].dtype) * (d == 0 ? vector : 1)) : 0;
    }
    return s;
}

// Calls of a thread that wait to be one launch (see runtime.h).
struct Waiting {
    int depth = 0;  // of begin_list
    uint64_t key = 0;
    Kernel* kernel = nullptr;
    int64_t item[list_operands] = {};  // bytes of an element; 0: takes no memory
    Device device;
    // Addresses, in order and apart from each other: a call is compared with all that wait by a search.
    template <int N> struct Ranges {
        struct Range {
            const char *low, *high;
        } at[N];
        int count = 0;
        Range* behind(const char* data) {  // the first that ends behind it
            return std::upper_bound(at, at + count, data, [](const char* data, const Range& r) { return data < r.high; });
        }
        bool meet(const char* data, int64_t bytes) {
            const Range* r = behind(data);
            return r < at + count && r->low < data + bytes;
        }
        void add(const char* data, int64_t bytes) {
            Range *r = behind(data), *end = r, whole{data, data + bytes};
            for (; end < at + count && end->low < whole.high; end++)
                whole = {std::min(whole.low, end->low), std::max(whole.high, end->high)};
            std::memmove(static_cast<void*>(r + 1), end, size_t(at + count - end) * sizeof(Range));
            *r = whole;
            count += 1 - int(end - r);
        }
    };
    Ranges<list_length> written;
    Ranges<list_length*(list_operands - 1)> read;
    PointwiseList list;
};
// A pointer: what lies in a thread's own memory must be small in a library that is opened late.
constinit thread_local Waiting* waiting = nullptr;

// Whether the call writes what a waiting one reads or writes, or reads what it writes.
bool touches_waiting(const RowCall& c, int64_t n) {
    if (waiting->read.meet(c.operands[0].data, n * waiting->item[0])) return true;
    for (int k = 0; k < c.count; k++)
        if (waiting->item[k] && waiting->written.meet(c.operands[k].data, n * waiting->item[k])) return true;
    return false;
}

bool same_numbers(const RowCall& c) {
    static constexpr Param none[4] = {};
    if (std::memcmp(c.params ? c.params : none, waiting->list.params, sizeof none) != 0) return false;
    for (int k = 0; k < c.count; k++)
        if (c.operands[k].number && std::memcmp(c.operands[k].number, waiting->list.numbers[k], 16) != 0) return false;
    return true;
}

void let_wait(const RowCall& c, int vector, int64_t n) {
    const uint64_t key = key_of(c, Form::list, vector, 4);
    PointwiseList& list = waiting->list;
    if (launches_wait && (key != waiting->key || !(waiting->device == current_device()) || list.count == list_length || !same_numbers(c) ||
                          touches_waiting(c, n)))
        launch_waiting();
    if (!launches_wait) {
        waiting->kernel = kernel_for(c, Form::list, vector, 4);
        waiting->key = key, waiting->device = current_device();
        list.count = list.first_block[0] = 0;
        waiting->written.count = waiting->read.count = 0;
        std::memset(static_cast<void*>(list.params), 0, sizeof list.params);
        if (c.params) std::memcpy(list.params, c.params, sizeof list.params);
        for (int k = 0; k < list_operands; k++) {
            waiting->item[k] = k < c.count && c.operands[k].strides ? item_size(c.operands[k].dtype) : 0;
            if (k < c.count && c.operands[k].number) std::memcpy(list.numbers[k], c.operands[k].number, 16);
        }
        launches_wait = true;
    }
    const int i = list.count++;
    for (int k = 0; k < list_operands; k++) list.data[i][k] = k < c.count ? c.operands[k].data : nullptr;
    waiting->written.add(c.operands[0].data, n * waiting->item[0]);
    for (int k = 1; k < c.count; k++)
        if (waiting->item[k] && c.operands[k].data != c.operands[0].data) waiting->read.add(c.operands[k].data, n * waiting->item[k]);
    list.n[i] = n;
    list.first_block[i + 1] = list.first_block[i] + int(std::max<int64_t>((n / vector + 1023) / 1024, 1));
}

void launch_row(const RowCall& c, const Dims& sizes) {
    const int64_t n = product(sizes);
    if (n == 0) return;
    const Loops m(c, sizes);
    if (m.ndim > max_dims) return launch_by_index(c, m);
    const bool flat = is_flat(c, m);
    unsigned spread;
    const int vector = vector_of(c, m, flat, spread);
    if (waiting && waiting->depth > 0 && flat && c.count <= list_operands && n < (int64_t(1) << 31)) return let_wait(c, vector, n);
    PointwiseArguments a{};  // what is not set must be the same each time: see replay.cpp
    a.n = flat ? n : n / vector;
    if (!flat)
        if (int64_t bytes, dim = farthest(c, sizes, bytes); bytes >= (int64_t(1) << 31)) return launch_halves(c, sizes, int(dim));
    if (c.params) std::memcpy(a.params, c.params, sizeof a.params);
    for (int k = 0; k < c.count; k++) {
        a.data[k] = c.operands[k].data;
        if (c.operands[k].number) std::memcpy(a.numbers[k], c.operands[k].number, 16);
    }
    if (flat) {
        const int64_t units = std::max<int64_t>(n / vector, 1), each = vector > 1 ? 2 : 1;
        launch_with(kernel_for(c, Form::flat, vector, int(each)), {unsigned((units + 256 * each - 1) / (256 * each))}, {256}, 0, a);
    } else {
        const int64_t each = a.n < (1 << 18) ? 1 : vector > 1 ? 2 : 4;  // little work is spread over more threads
        launch_with(kernel_for(c, Form::strided, vector, int(each)), {unsigned((a.n + 256 * each - 1) / (256 * each))}, {256}, 0, a,
                    shape_of(c, m, vector, spread));
    }
}

// A copy whose fast dimension differs on both sides goes through shared memory. True if it was done.
bool transposed_copy(const Operand& to, const Operand& from, const Dims& sizes) {
    if (to.dtype != from.dtype || !from.strides) return false;
    int64_t shape[3] = {1, 1, 1}, t[3] = {0, 0, 0}, f[3] = {0, 0, 0};
    int n = 0;
    for (int64_t d = 0; d < sizes.size(); d++) {
        if (sizes[d] == 1) continue;
        if (n > 0 && t[n - 1] == to.strides[d] * sizes[d] && f[n - 1] == from.strides[d] * sizes[d]) {
            shape[n - 1] *= sizes[d];
            t[n - 1] = to.strides[d];
            f[n - 1] = from.strides[d];
            continue;
        }
        if (n == 3) return false;
        shape[n] = sizes[d];
        t[n] = to.strides[d];
        f[n++] = from.strides[d];
    }
    if (n < 2) return false;
    const int batch = n == 3 ? 0 : -1;
    int i = n - 2, j = n - 1;  // the fast dimensions of the source and of the target
    if (t[i] == 1 && f[j] == 1) std::swap(i, j);
    if (t[j] != 1 || f[i] != 1 || f[j] < shape[i] || shape[i] < 16 || shape[j] < 16) return false;
    const int64_t batches = batch < 0 ? 1 : shape[0];
    const int64_t down = (shape[j] + 63) / 64;
    if (batches > 65535 || down > 65535 || shape[i] > INT32_MAX || shape[j] > INT32_MAX) return false;
    static Kernel* const kernels[] = {
        find_kernel("cuda/kernels/copy.cuh", "transpose<1>"), find_kernel("cuda/kernels/copy.cuh", "transpose<2>"),
        find_kernel("cuda/kernels/copy.cuh", "transpose<4>"), find_kernel("cuda/kernels/copy.cuh", "transpose<8>"),
        find_kernel("cuda/kernels/copy.cuh", "transpose<16>")};
    const int size = __builtin_ctz(unsigned(item_size(to.dtype)));
    if (size == 4) return false;  // the tile would not fit into static shared memory
    launch_with(kernels[size], {unsigned((shape[i] + 63) / 64), unsigned(down), unsigned(batches)}, {256}, 0,
                static_cast<const void*>(from.data), static_cast<void*>(to.data), int(shape[i]), int(shape[j]), f[j], t[i],
                batch < 0 ? int64_t(0) : f[0], batch < 0 ? int64_t(0) : t[0]);
    return true;
}

}  // namespace

constinit thread_local bool launches_wait = false;
void launch_waiting() {
    launches_wait = false;
    OnDevice on(waiting->device);
    launch_with(waiting->kernel, {unsigned(waiting->list.first_block[waiting->list.count])}, {256}, 0, waiting->list);
}
void begin_list() {
    if (!waiting) waiting = new Waiting;
    waiting->depth++;
}
void end_list() {
    if (--waiting->depth == 0) before_work();
}

const char* row_name(Pointwise op) {
    static const char* const names[] = {
#define UNARY(name, ...) #name,
#define ACTIVATION(name, ...) #name,
#define BINARY(name, ...) #name,
#define TERNARY(name, ...) #name,
#include "../ops/table/unary.h"
#include "../ops/table/activation.h"
#include "../ops/table/binary.h"
#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef TERNARY
    };
    return names[int(op)];
}

const char* type_text(DType dtype) {
    static const char* const names[] = {"uint8_t",  "int8_t", "int16_t",   "int32_t", "int64_t",     "f16",         "float",
                                        "double",   "c64",    "c128",      "Bool",    "bf16",        "uint16_t",    "uint32_t",
                                        "uint64_t", "c32",    "f8_e4m3fn", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "f8_e8m0fnu"};
    return names[int(dtype)];
}

void elementwise(Pointwise op, int which, DType compute, const Operand* operands, int count, const Dims& sizes, const Param* params) {
    launch_row({int(op), which, compute, operands, count, params}, sizes);
}

// What is only stored moves as the integer of its size: a conversion there and back would change the bits of a NaN.
static void as_bits(Operand* operands, int count) {
    for (int k = 0; k < count; k++) operands[k].dtype = item_size(operands[k].dtype) == 4 ? DType::u32 : DType::u8;
}

void copy_elements(const Operand& to, const Operand& from, const Dims& sizes, bool conjugate) {
    if (!conjugate && transposed_copy(to, from, sizes)) return;
    Operand operands[2] = {to, from};
    if (!conjugate && is_stored(to.dtype) && to.dtype == from.dtype) as_bits(operands, 2);
    const DType compute = from.number ? operands[0].dtype : compute_dtype(operands[1].dtype);
    launch_row({conjugate ? row_conjugate : row_identity, which_forward, compute, operands, 2, nullptr}, sizes);
}

namespace {

void copy_strided(void* dst, DType dst_dtype, const int64_t* dst_strides, const void* src, DType src_dtype, const int64_t* src_strides,
                  const int64_t* sizes, int ndim, bool conjugate) {
    copy_elements({static_cast<char*>(dst), dst_dtype, dst_strides, nullptr},
                  {static_cast<char*>(const_cast<void*>(src)), src_dtype, src_strides, nullptr}, Dims(sizes, ndim), conjugate);
}

void copy_bytes(void* dst, const void* src, size_t bytes) {
    const char *to = static_cast<char*>(dst), *from = static_cast<const char*>(src);
    if (to < from + bytes && from < to + bytes) {
        Scratch between(bytes);
        within(between.data(), src, bytes);
        within(dst, between.data(), bytes);
    } else {
        within(dst, src, bytes);
    }
}

struct JoinList {  // as in the kernel
    static constexpr int length = 64;
    int count;
    int64_t first[length + 1];
    const void* parts[length];
};

void join(void* dst, const void* const* parts, const int64_t* bytes, int64_t count, int64_t rows) {
    uintptr_t bits = uintptr_t(dst) | 16;
    int64_t row = 0, at = 0;
    for (int64_t k = 0; k < count; k++) {
        if (bytes[k] == 0) continue;
        bits |= uintptr_t(parts[k]) | uintptr_t(bytes[k]);
        row += bytes[k];
    }
    const int64_t cell = int64_t(bits & (~bits + 1));
    static Instances<17> kernels("cuda/kernels/copy.cuh");
    Kernel* kernel = kernels(int(cell), [&] { return str("join<", cell, ">"); });
    JoinList list;
    list.count = 0, list.first[0] = 0;
    for (int64_t k = 0; k <= count; k++) {
        if (list.count == JoinList::length || (k == count && list.count > 0)) {
            const int64_t width = list.first[list.count], n = width * rows;
            launch_with(kernel, {unsigned((n + 1023) / 1024)}, {256}, 0, list, static_cast<char*>(dst) + at, row / cell, n);
            at += width * cell;
            list.count = 0;
        }
        if (k == count || bytes[k] == 0) continue;
        list.parts[list.count] = parts[k];
        list.first[list.count + 1] = list.first[list.count] + bytes[k] / cell;
        list.count++;
    }
}

void fill(void* dst, DType dtype, const int64_t* strides, const int64_t* sizes, int ndim, const void* value) {
    copy_elements({static_cast<char*>(dst), dtype, strides, nullptr}, {nullptr, dtype, nullptr, value}, Dims(sizes, ndim), false);
}

void where(DType compute, const Operand* given, const Dims& sizes, int64_t) {
    Operand operands[4] = {given[0], given[1], given[2], given[3]};  // result, condition, values
    const DType d = operands[0].dtype;
    if (is_stored(d) && operands[2].data && operands[2].dtype == d && operands[3].data && operands[3].dtype == d) {
        as_bits(operands, 1), as_bits(operands + 2, 2);
        compute = compute_dtype(operands[0].dtype);
    }
    launch_row({row_where, which_forward, compute, operands, 4, nullptr}, sizes);
}

}  // namespace

const PointwiseKernels pointwise = {[](Pointwise op, int which, DType compute, DType, const Operand* operands, int count, const Dims& sizes,
                                       int64_t, const Param* params) { elementwise(op, which, compute, operands, count, sizes, params); },
                                    where};
const CopyKernels copy = {Absent(), Absent(), Absent(), Absent(), copy_strided, copy_bytes, fill, fill_zero, join};

}  // namespace wisp::cuda
