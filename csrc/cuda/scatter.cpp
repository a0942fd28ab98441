// Launches scatters and counts, each in a way whose result does not depend on the order of its elements.
#include <algorithm>

#include "index_shape.h"
#include "pointwise.h"
#include "sorting.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/scatter.cuh";
constexpr const char* index_file = "cuda/kernels/index.cuh";

struct Items {  // as in the kernels
    const int64_t* index;
    const void* values;
    int64_t along, size;
    const char* name;
    void* report;
    Shape s;
};

// A thread takes four elements.
Grid taken(int64_t n) { return {unsigned((n + 1023) / 1024)}; }

template <class Tag, int Variants = 1, class Name> Kernel* instance(DType d, int variant, Name name) {
    static Instances<int(DType::count) * Variants> instances(file);
    return instances(int(d) * Variants + variant, name);
}

}  // namespace

int bits_of_largest(int64_t n) {
    int bits = 62;
    while (bits > 24 && (n >> (62 - bits)) > 0) bits--;
    return bits;
}
void add_fixed_sums(float* out, const unsigned* exponents, const unsigned long long* sums, int64_t n, int bits) {
    launch_with(only_kernel<struct Results>(file, "sum_results"), threads(n), {256}, 0, out, exponents, sums, n, bits);
}

namespace {

struct Lines {  // as in the kernels
    const int64_t* index;
    const float* values;
    float* out;
    int64_t along, size, count, index_step, value_step;
    const char* name;
    void* report;
    unsigned* exponents;
    unsigned long long* sums;
    unsigned parts;
    int bits;
    Shape s;
};
constexpr int64_t longest_line = 16384;  // 12 bytes a place in shared memory

// Whether there are enough lines to give each a block, or one only that many blocks can share.
bool add_lines(Lines& l, int64_t lines) {
    const int processors = device_info(current_index()).multiprocessors;
    if (l.size > longest_line || l.index_step > 1 || l.value_step > 1 || (lines > 1 && lines < processors)) return false;
    const unsigned shared = unsigned(l.size * 12);
    l.bits = bits_of_largest(l.count);
    if (lines > 1 || l.count <= 16384) {
        l.parts = 1;
        launch_with(only_kernel<struct LineAll>(file, "sum_lines<line_all>"), {unsigned(lines)}, {512}, shared, l);
        return true;
    }
    if (l.along != 1) return false;
    l.parts = unsigned(std::min<int64_t>((l.count + 16383) / 16384, processors * (l.size <= 4096 ? 4 : 1)));
    Scratch memory(size_t(l.size * 12));
    fill_zero(memory.data(), size_t(l.size * 12));
    l.sums = memory.as<unsigned long long>();
    l.exponents = reinterpret_cast<unsigned*>(l.sums + l.size);
    launch_with(only_kernel<struct LineExponents>(file, "sum_lines<line_exponents>"), {l.parts}, {512}, shared, l);
    launch_with(only_kernel<struct LineSums>(file, "sum_lines<line_sums>"), {l.parts}, {512}, shared, l);
    add_fixed_sums(l.out, l.exponents, l.sums, l.size, l.bits);
    return true;
}

struct RowSums {  // as in the kernels
    float* out;
    const float* values;
    const unsigned *counts, *ends, *list;
    const int64_t* origins;
    int64_t places, width, value_step;
    int bits;
};

void add_floats(float* out, const Items& items, int64_t n, int64_t span) {
    const int bits = bits_of_largest(n);
    Scratch memory(size_t(span * 12));
    fill_zero(memory.data(), size_t(span * 12));
    auto* sums = memory.as<unsigned long long>();
    auto* exponents = reinterpret_cast<unsigned*>(sums + span);
    launch_with(only_kernel<struct Exponents>(file, "sum_exponents"), taken(n), {256}, 0, items, exponents, n);
    launch_with(only_kernel<struct SumItems>(file, "sum_items"), taken(n), {256}, 0, items, exponents, sums, n, bits);
    if (n >= span / 2) add_fixed_sums(out, exponents, sums, span, bits);
    else launch_with(only_kernel<struct ResultsOf>(file, "sum_results_of"), taken(n), {256}, 0, items, out, exponents, sums, n, bits);
}

}  // namespace

bool add_rows(float* out, const int64_t* index, int64_t n, int64_t step, int64_t along, int64_t size, const float* values,
              int64_t value_step, int64_t width, const char* name, void* report) {
    const int64_t places = (size - 1) * along / width + 1;
    if (width < 16 || n >= (int64_t(1) << 32) - 1 || places > n / 2 || places >= (int64_t(1) << 31)) return false;
    const int64_t cells = 2 * places + 1, places_at = (cells * 4 + 7) / 8 * 8;  // counts, ends, how much of the list is taken
    Scratch memory(size_t(places_at + places * 8)), lists(size_t(n * 8));
    fill_zero(memory.data(), size_t(cells * 4));
    unsigned *counts = memory.as<unsigned>(), *ends = counts + places, *taken = ends + places;
    auto* origins = reinterpret_cast<int64_t*>(memory.as<char>() + places_at);
    unsigned *place = lists.as<unsigned>(), *list = place + n;
    launch_with(only_kernel<struct RowPlaces>(file, "row_places"), threads(n), {256}, 0, index, n, step, along, size, width, place, counts,
                origins, name, report);
    launch_with(only_kernel<struct RowLists>(file, "row_lists"), threads(places), {256}, 0, static_cast<const unsigned*>(counts), ends,
                taken, places);
    launch_with(only_kernel<struct RowEntries>(file, "row_entries"), threads(n), {256}, 0, static_cast<const unsigned*>(place), ends, list,
                n);
    const RowSums sums = {out, values, counts, ends, list, origins, places, width, value_step, bits_of_largest(n)};
    const bool four = width % 4 == 0 && value_step % 4 == 0 && uintptr_t(values) % 16 == 0;
    static Kernel* const kernels[2] = {find_kernel(file, "sum_rows<1>"), find_kernel(file, "sum_rows<4>")};
    const int64_t units = width / (four ? 4 : 1);
    launch_with(kernels[four], {unsigned((places + 7) / 8), unsigned((units + 31) / 32)}, {256}, 0, sums);
    return true;
}

namespace {

// Places are sorted with their positions, and each is the work of one thread.
void scatter_sorted(Scatter how, void* out, DType d, const Items& items, int64_t n, int64_t span) {
    Pairs pairs(n);
    const uint64_t limit = uint64_t(span);
    launch_with(only_kernel<struct Places>(index_file, "scatter_places"), threads(n), {256}, 0, pairs.k, items.index, n, items.along,
                items.size, limit, items.name, items.report, items.s);
    pairs.sort(Pairs::bits_for(span + 1));
    launch_with(find_kernel(index_file, str("scatter_sorted<", int(how), ", ", type_text(d), ">")), threads(n), {256}, 0, out, pairs.k,
                pairs.p, n, limit, items.values, items.s);
}

}  // namespace

void scatter(Scatter how, void* out, DType d, const int64_t* out_strides, const int64_t* index, const int64_t* index_strides,
             const void* values, const int64_t* value_strides, const int64_t* sizes, int ndim, int dim, int64_t size, const char* name) {
    Items items = {index, values, out_strides[dim], size, name, report_cell(), {}};
    int64_t n = 1, span = 1 + (size - 1) * out_strides[dim];  // from out's first element to its last
    for (int i = ndim - 1; i >= 0; i--) {
        n *= sizes[i];
        items.s.add(sizes[i], i == dim ? 0 : out_strides[i], index_strides[i], value_strides[i]);
        if (i != dim) span += (sizes[i] - 1) * out_strides[i];
    }
    if (n == 0 || size == 0) return;
    const int64_t item = item_size(d);
    int64_t width = 1;  // elements of a row, where one index is for all of it and its elements lie side by side on both sides
    for (int i = ndim - 1; i >= 0 && width > 0; i--)
        if (i != dim && sizes[i] > 1) {
            const bool dense = index_strides[i] == 0 && out_strides[i] == width && value_strides[i] == width;
            width = dense ? width * sizes[i] : 0;
        }
    if (how == Scatter::add && d == DType::f32 && width > 1 && out_strides[dim] >= width &&
        add_rows(static_cast<float*>(out), index, sizes[dim], index_strides[dim], out_strides[dim], size, static_cast<const float*>(values),
                 value_strides[dim], width, name, items.report))
        return;
    const bool extreme = how == Scatter::minimum || how == Scatter::maximum;
    if (how == Scatter::add && d == DType::f32) {
        Lines l = {index,
                   static_cast<const float*>(values),
                   static_cast<float*>(out),
                   out_strides[dim],
                   size,
                   sizes[dim],
                   index_strides[dim],
                   value_strides[dim],
                   name,
                   items.report,
                   nullptr,
                   nullptr,
                   1,
                   0,
                   {}};
        for (int i = ndim - 1; i >= 0; i--)
            if (i != dim) l.s.add(sizes[i], out_strides[i], index_strides[i], value_strides[i]);
        if (!add_lines(l, n / sizes[dim])) add_floats(static_cast<float*>(out), items, n, span);
        return;
    }
    if (how == Scatter::add && is_integral(d) && item >= 4) {
        launch_with(instance<struct Integers>(d, 0, [&] { return str("add_integers<", type_text(d), ">"); }), taken(n), {256}, 0, items,
                    out, n);
        return;
    }
    if (extreme && !is_complex(d)) {
        const size_t bytes = size_t(span * (item > 4 ? 8 : 4));
        Scratch keys(bytes);
        fill_zero(keys.data(), bytes);
        const bool high = how == Scatter::maximum;
        auto named = [&](const char* kernel) { return [=] { return str(kernel, "<", int(how), ", ", type_text(d), ">"); }; };
        launch_with(instance<struct Keys, 2>(d, high, named("extreme_keys")), taken(n), {256}, 0, items, keys.data(), n);
        launch_with(instance<struct Extremes, 2>(d, high, named("extreme_results")), taken(n), {256}, 0, items, out, keys.data(), n);
        return;
    }
    if (how == Scatter::set && n < (int64_t(1) << 32) - 1 && item <= 8) {
        const DType cell = item == 1 ? DType::u8 : item == 2 ? DType::u16 : item == 4 ? DType::u32 : DType::u64;
        bool one = true;  // value for all
        for (int i = 0; i < ndim; i++) one = one && (value_strides[i] == 0 || sizes[i] == 1);
        if (one) {
            launch_with(instance<struct SetAll>(cell, 0, [&] { return str("set_all<", type_text(cell), ">"); }), taken(n), {256}, 0, items,
                        out, n);
            return;
        }
        Scratch last(size_t(span * 4));
        fill_zero(last.data(), size_t(span * 4));
        auto named = [&](const char* kernel) { return [=] { return str(kernel, "<", type_text(cell), ">"); }; };
        launch_with(instance<struct Last>(cell, 0, named("last_ones")), taken(n), {256}, 0, items, last.data(), n);
        launch_with(instance<struct SetLast>(cell, 0, named("set_last_ones")), taken(n), {256}, 0, items, out, last.data(), n);
        return;
    }
    scatter_sorted(how, out, d, items, n, span);
}

namespace {
constexpr int64_t few_bins = 8192;  // that shared memory counts in
unsigned counting_blocks(int64_t n) {
    return unsigned(std::clamp<int64_t>((n + 2047) / 2048, 1, device_info(current_index()).multiprocessors * 4));
}
}  // namespace

void count_places(int64_t* out, const int64_t* index, int64_t n, int64_t bins) {
    fill_zero(out, size_t(bins * 8));
    if (n * bins == 0) return;
    const bool few = bins <= few_bins;
    static Kernel* const kernels[2] = {find_kernel(file, "count_places<false>"), find_kernel(file, "count_places<true>")};
    launch_with(kernels[few], {counting_blocks(n)}, {512}, few ? unsigned(bins * 4) : 0, out, index, n, bins);
}

void count_values(int64_t* out, const void* values, DType d, int64_t n, int64_t bins, double low, double high) {
    fill_zero(out, size_t(bins * 8));
    if (n == 0) return;
    const bool few = bins <= few_bins;
    launch_with(instance<struct Values, 2>(d, few, [&] { return str("count_values<", type_text(d), few ? ", true>" : ", false>"); }),
                {counting_blocks(n)}, {512}, few ? unsigned(bins * 4) : 0, out, values, n, bins, low, high);
}

}  // namespace wisp::cuda
