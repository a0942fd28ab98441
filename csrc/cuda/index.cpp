// Launches the kernels of indexing and embeddings.
#include "../kernels/embedding.h"
#include "../kernels/index.h"
#include "index_shape.h"
#include "pointwise.h"
#include "sorting.h"

namespace wisp::cuda {
namespace {

#include "../kernels/put_one_arguments.h"

constexpr const char* file = "cuda/kernels/index.cuh";
// Division of numbers below n, 0 if they are too large for it.
Divider divider_below(int64_t n, int64_t d) { return n < int64_t(1) << 31 ? divider(uint32_t(d)) : Divider{}; }

template <int Which> Kernel* sized(const char* name, int64_t bytes) {
    static Instances<17> instances(file);
    return instances(int(bytes), [&] { return str(name, "<", bytes, ">"); });
}
// A kernel that has one instance.
template <int Which> Kernel* plain(const char* file, const char* name) {
    static Kernel* const kernel = find_kernel(file, name);
    return kernel;
}

struct IndexList {  // as in the kernel
    int count;
    const int64_t* indices[max_dims];
    int64_t sizes[max_dims], strides[max_dims];
    int wrap;
    const char* name;
    void* report;
};
IndexList index_list(const int64_t* const* indices, const int64_t* sizes, const int64_t* strides, int count, bool wrap, const char* name) {
    IndexList list{};
    if (count > max_dims) throw RuntimeError("indexing with more than ", max_dims, " tensors is not supported on cuda");
    list.count = count;
    list.wrap = wrap;
    list.name = name;
    list.report = report_cell();
    for (int i = 0; i < count; i++) list.indices[i] = indices[i], list.sizes[i] = sizes[i], list.strides[i] = strides[i];
    return list;
}

void offsets(int64_t* out, const int64_t* const* indices, const int64_t* sizes, const int64_t* strides, int count, int64_t n, bool wrap,
             const char* name) {
    const IndexList list = index_list(indices, sizes, strides, count, wrap, name);
    if (n) launch_with(plain<5>(file, "index_offsets"), threads(n), {256}, 0, out, list, n);
}

void take_elements(void* out, const void* in, const int64_t* const* indices, const int64_t* sizes, const int64_t* strides, int count,
                   int64_t n, int64_t item, const char* name) {
    const IndexList list = index_list(indices, sizes, strides, count, true, name);
    if (n) launch_with(sized<9>("take_elements", item), {unsigned((n + 1023) / 1024)}, {256}, 0, out, in, list, n);
}

int64_t slice_shape(Shape& s, const Slice& slice, const int64_t* a, const int64_t* b) {
    int64_t n = 1;
    for (int d = slice.ndim - 1; d >= 0; d--) {
        n *= slice.sizes[d];
        s.add(slice.sizes[d], a[d], b[d], 0);
    }
    return n;
}

void take(void* out, int64_t out_step, const int64_t* out_strides, const void* in, const int64_t* at, int64_t n, const Slice& slice,
          int64_t item) {
    Shape s;
    const int64_t count = slice_shape(s, slice, out_strides, slice.strides);
    const int turned = out_step == 1 && count > 1;
    if (n > 0 && count > 0)
        launch_with(sized<2>("take", item), {unsigned((n * count + 1023) / 1024)}, {256}, 0, out, out_step, in, at, n, count,
                    divider_below(n * count, turned ? n : count), turned, s);
}

void put(Scatter how, void* out, DType dtype, const int64_t* at, int64_t n, const Slice& slice, const void* values, int64_t value_step,
         const int64_t* value_strides, int64_t span) {
    Shape s;
    const int64_t count = slice_shape(s, slice, slice.strides, value_strides);
    if (n * count == 0) return;
    const bool dense = s.dims == 1 && s.a[0] == 1;  // slices of neighbours, which are told apart by their offsets over their length
    if (const int64_t item = item_size(dtype); how == Scatter::set && n < (int64_t(1) << 32) - 1) {  // the last of each place stays
        const int64_t unit = dense ? count : 1;
        const size_t bytes = n > 1 ? size_t((span / unit + 1) * 4) : 0;  // one is the last
        Scratch last(bytes);
        if (bytes) {
            fill_zero(last.data(), bytes);
            launch_with(plain<7>(file, "last_slices"), threads(n), {256}, 0, at, last.data(), n, unit);
        }
        int64_t cell = item;  // neighbours that are moved at once
        while (dense && s.b[0] == 1 && cell < 16 && count * item % (2 * cell) == 0 && value_step * item % (2 * cell) == 0 &&
               uintptr_t(values) % uintptr_t(2 * cell) == 0)
            cell *= 2;
        const int64_t each = cell / item, cells = count / each;
        Shape cell_shape;
        if (each > 1) cell_shape.add(cells, 1, 1, 0);
        static Instances<17 * 17> instances(file);
        launch_with(instances(int(cell * 17 + item), [&] { return str("put_last<", cell, ", ", item, ">"); }), threads(n * cells), {256}, 0,
                    out, at, last.data(), n, cells, values, value_step / each, divider_below(n * cells, cells), each > 1 ? cell_shape : s,
                    unit);
        return;
    }
    if (how == Scatter::add && dtype == DType::f32 && dense && s.b[0] == 1 &&
        add_rows(static_cast<float*>(out), at, n, 1, 1, span, static_cast<const float*>(values), value_step, count, "", nullptr))
        return;
    Pairs pairs(n);
    launch_with(plain<6>(file, "as_places"), threads(n), {256}, 0, at, pairs.k, n, span);
    pairs.sort(Pairs::bits_for(span + 1));
    launch_with(find_kernel(file, str("put_sorted<", int(how), ", ", type_text(dtype), ">")), threads(n * count), {256}, 0, out, pairs.k,
                pairs.p, n, span, count, values, value_step, divider_below(n * count, count), s);
}

struct Bytes {
    uintptr_t begin, end;
    bool meets(const Bytes& o) const { return begin < o.end && o.begin < end; }
};
Bytes written_by(const PutOnePart<Shape>& p, int64_t item) {
    int64_t last = (p.size - 1) * p.stride;
    for (int d = 0; d < p.shape.dims; d++) last += (p.shape.sizes[d] - 1) * p.shape.a[d];
    return {uintptr_t(p.out), uintptr_t(p.out) + uintptr_t((last + 1) * item)};
}
Bytes read_by(const PutOnePart<Shape>& p, int64_t item) {
    int64_t last = 0;
    for (int d = 0; d < p.shape.dims; d++) last += (p.shape.sizes[d] - 1) * p.shape.b[d];
    return {uintptr_t(p.values), uintptr_t(p.values) + uintptr_t((last + 1) * item)};
}
// Whether a slice can be put along with one that is put before it: neither touches what the other writes.
bool may_join(const PutOnePart<Shape>& before, const PutOnePart<Shape>& p, int64_t item) {
    const Bytes first = written_by(before, item), second = written_by(p, item);
    auto index = [](const PutOnePart<Shape>& x) { return Bytes{uintptr_t(x.index), uintptr_t(x.index + 1)}; };
    return !first.meets(second) && !first.meets(read_by(p, item)) && !first.meets(index(p)) && !second.meets(read_by(before, item)) &&
           !second.meets(index(before));
}

// In a region that keeps its launches two of them, as of the keys and values of a token, are one.
void put_one(void* out, const int64_t* index, int64_t size, int64_t stride, bool wrap, const char* name, const Slice& slice,
             const void* values, const int64_t* value_strides, int64_t item) {
    using Put = PutOne<Shape, void>;
    Put p{};
    PutOnePart<Shape>& part = p.parts[0];
    const int64_t count = slice_shape(part.shape, slice, slice.strides, value_strides);
    if (count == 0) return;
    p.report = report_cell(), p.count = 1;
    part.out = out, part.index = index, part.values = values, part.name = name;
    part.size = size, part.stride = stride, part.n = count, part.wrap = wrap;
    Kernel* kernel = sized<8>("put_one", item);
    if (const KeptLaunch last = keeps_now() ? last_kept(kernel) : KeptLaunch(); last.arguments) {
        Put& before = *static_cast<Put*>(last.arguments);
        if (before.count < Put::most && may_join(before.parts[0], part, item)) {
            part.first = int32_t(last.grid.x);
            before.parts[before.count++] = part;
            return widen_kept({last.grid.x + threads(count).x});
        }
    }
    launch_with(kernel, threads(count), {256}, 0, p);
}

bool gather(void* out, const void* in, const int64_t* in_strides, const int64_t* index, const int64_t* index_strides, const int64_t* sizes,
            int ndim, int dim, int64_t item, int64_t size, bool wrap, const char* name) {
    Shape s;
    int64_t n = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        n *= sizes[d];
        s.add(sizes[d], d == dim ? 0 : in_strides[d], index_strides[d], 0);
    }
    if (n)
        launch_with(sized<3>("gather", item), {unsigned((n + 1023) / 1024)}, {256}, 0, out, in, index, n, in_strides[dim], size, int(wrap),
                    name, report_cell(), s);
    return true;
}

void triangle(void* out, const void* in, int64_t batch, int64_t rows, int64_t columns, int64_t diagonal, bool upper, int64_t item) {
    const int64_t n = batch * rows * columns;
    if (n == 0) return;
    int64_t each = item < 16 ? 16 / item : 1;  // neighbours of a row that a thread moves
    if (columns % each != 0 || (uintptr_t(out) | uintptr_t(in)) % 16 != 0) each = 1;
    static Instances<2 * 17> instances(file);
    launch_with(instances(int(item * 2 + (each > 1)), [&] { return str("triangle<", item, ", ", each, ">"); }), threads(n / each), {256}, 0,
                out, in, n / each, rows, columns / each, diagonal, int(upper));
}

// --- embedding

// Indices are looked at by the kernel that uses them: a bad one is raised at the next synchronisation.
int64_t first_bad(const int64_t* index, int64_t n, int64_t rows) {
    const char* name = "embedding";
    if (n) launch_with(plain<100>(file, "report_bad_indices"), threads(n), {256}, 0, index, n, rows, name, report_cell());
    return -1;
}

void embedding_gather(const void* table, int64_t rows, const int64_t* index, void* out, int64_t n, int64_t row_bytes) {
    int64_t cell = 16;
    while (row_bytes % cell || uintptr_t(table) % uintptr_t(cell) || uintptr_t(out) % uintptr_t(cell)) cell /= 2;
    const int64_t cells = row_bytes / cell;
    if (n > 0 && cells > 0) launch_with(sized<7>("embedding_rows", cell), threads(n * cells), {256}, 0, table, rows, index, out, n, cells);
}

void embedding_backward(DType d, const void* grad, const int64_t* index, void* table, int64_t n, int64_t rows, int64_t width,
                        int64_t padding, bool by_count) {
    fill_zero(table, size_t(rows * width * item_size(d)));
    if (n * width == 0) return;
    if (n <= 4096) {
        static Instances<16> few(file);
        launch_with(few(int(d), [&] { return str("embedding_sums_of_few<", type_text(d), ">"); }), {unsigned(n)}, {256}, unsigned(n * 8),
                    grad, index, table, n, rows, width, padding, int(by_count));
        return;
    }
    Pairs pairs(n);
    launch_with(plain<11>(file, "as_places"), threads(n), {256}, 0, index, pairs.k, n, rows);
    pairs.sort(Pairs::bits_for(rows + 1));
    launch_with(find_kernel(file, str("embedding_sums<", type_text(d), ">")),
                {unsigned(n), unsigned(std::min<int64_t>((width + 255) / 256, 64))}, {256}, 0, grad, pairs.k, pairs.p, table, n, rows,
                width, padding, int(by_count));
}

void bag(const BagArgs& a, void* out, int64_t* picked) {
    struct {
        int64_t rows, width, bags, padding;
        int mode;
        const int64_t *index, *offset;
    } b = {a.rows, a.width, a.bags, a.padding_index, int(a.mode), a.index, a.offset};
    const int64_t n = a.bags * a.width;
    if (n)
        launch_with(find_kernel(file, str("embedding_bags<", type_text(a.dtype), ">")), threads(n), {256}, 0, b, a.table, a.sample_weight,
                    out, picked);
}

bool rise(int64_t* copies, const int64_t* ends, int64_t n, int64_t indices, const char* message) {
    if (n) launch_with(plain<23>(file, "bound_offsets"), threads(n), {256}, 0, copies, ends, n, indices, message, report_cell());
    return n > 0;
}

bool holds(const bool* good, int64_t n, const char* message) {
    if (n) launch_with(plain<20>(file, "report_false"), threads(n), {256}, 0, good, n, message, report_cell());
    return true;
}

void mark_classes(int64_t* out, const int64_t* x, int64_t n, int64_t classes, const char* negative, const char* too_large) {
    if (n) launch_with(plain<22>(file, "mark_classes"), threads(n), {256}, 0, out, x, n, classes, negative, too_large, report_cell());
}

void count_up(int64_t* out, int64_t n, int64_t first, int64_t step) {
    if (n) launch_with(plain<21>(file, "count_up"), threads(n), {256}, 0, out, n, first, step);
}

}  // namespace

// Kernels that use indices look at them: a bad one is raised at the next synchronisation.
const IndexKernels index = {nullptr,        offsets,      take,     put,     gather,       scatter,  masked_select,
                            masked_scatter, nonzero,      triangle, nullptr, nullptr,      count_up, holds,
                            nullptr,        mark_classes, 16,       put_one, take_elements};
const EmbeddingKernels embedding = {first_bad, rise, embedding_gather, embedding_backward, bag, nullptr};

}  // namespace wisp::cuda
