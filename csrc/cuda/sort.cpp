// Launches the kernels of sorting, selection and search.
#include "../kernels/sort.h"

#include <algorithm>

#include "divider.h"
#include "pointwise.h"
#include "sorting.h"

namespace wisp::cuda {
namespace {

constexpr const char* sort_file = "cuda/kernels/sort.cuh";
constexpr const char* select_file = "cuda/kernels/select.cuh";

// Instances by dtype, of `Variants` each. `Tag`: one type for each use.
template <class Tag, int Variants = 1, class Name> Kernel* instance(const char* file, DType d, int variant, Name name) {
    static Instances<int(DType::count) * Variants> instances(file);
    return instances(int(d) * Variants + variant, name);
}

constexpr int64_t held_rows = 8192;  // elements of the longest row that a block sorts

struct RadixSort {  // as in the kernels
    const void* in;
    void *keys, *other_keys, *positions, *other_positions;
    char *starts, *told;
    unsigned *begun, *from;
    void* values;
    int64_t* indices;
    int64_t n, row;
    int passes, descending, rows;
    Divider by_row;
};

void radix_sort(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t row, bool descending, int bits) {
    const int64_t n = rows * row, item = item_size(d), tiles = (n + 4095) / 4096;
    const bool large = n >= int64_t(1) << 30;
    const int64_t key = item > 4 || rows > 1 ? 8 : 4, position = large ? 8 : 4, word = large ? 8 : 4;
    int passes = (bits + 7) / 8;
    if (rows > 1) passes += (Pairs::bits_for(rows) + 7) / 8;
    Scratch keys(size_t(2 * n * key)), positions(indices ? size_t(2 * n * position) : 0);
    const int64_t zeroed = passes * (256 + tiles * 256) * word + 32;
    Scratch told(size_t(zeroed + 32));
    fill_zero(told.data(), size_t(zeroed));
    RadixSort s = {};
    s.in = in;
    s.keys = keys.data();
    s.other_keys = keys.as<char>() + n * key;
    s.positions = positions.data();
    if (indices) s.other_positions = positions.as<char>() + n * position;
    s.starts = told.as<char>();
    s.told = s.starts + passes * 256 * word;
    s.begun = reinterpret_cast<unsigned*>(s.starts + zeroed - 32);
    s.from = s.begun + 8;
    s.values = values;
    s.indices = indices;
    s.n = n;
    s.row = row;
    s.passes = passes;
    s.descending = descending;
    s.rows = int(std::min<int64_t>(rows, 2));
    s.by_row = divider(uint32_t(std::min<int64_t>(row, UINT32_MAX)));
    auto named = [&](const char* name) {
        return [=] {
            return str(name, "<", type_text(d), key == 8 ? ", uint64_t, " : ", uint32_t, ",
                       large ? "int64_t, uint64_t>" : "uint32_t, uint32_t>");
        };
    };
    const int variant = (key == 8) + 2 * large;
    const unsigned counting = unsigned(std::min<int64_t>((n + 1023) / 1024, device_info(current_index()).multiprocessors * 8));
    launch_with(instance<struct Count, 4>(sort_file, d, variant, named("radix_count")), {counting}, {256}, 0, s);
    launch_with(instance<struct RadixPlan, 4>(sort_file, d, variant, named("radix_plan")), {1}, {256}, 0, s);
    for (int pass = 0; pass < passes; pass++)
        launch_with(instance<struct Pass, 4>(sort_file, d, variant, named("radix_pass")), {unsigned(tiles)}, {256}, 0, s, pass);
}

// The first `kept` of rows that a block holds.
void sort_held_rows(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, int64_t kept, bool descending,
                    int bits) {
    const int falling = descending;
    if (n <= 64) {
        launch_with(instance<struct Short>(sort_file, d, 0, [&] { return str("sort_short_rows<", type_text(d), ">"); }),
                    {unsigned((rows + 7) / 8)}, {256}, 0, in, values, indices, rows, int(n), int(kept), falling);
        return;
    }
    const int shape = n <= 1024 ? 0 : n <= 4096 ? 1 : 2;
    const unsigned threads = shape == 2 ? 512 : 256, items = shape == 0 ? 4 : 16, key = item_size(d) > 4 ? 8 : 4;
    launch_with(
        instance<struct Held, 3>(sort_file, d, shape, [&] { return str("sort_rows<", type_text(d), ", ", threads, ", ", items, ">"); }),
        {unsigned(rows)}, {threads}, threads * items * key, in, values, indices, n, kept, falling, (bits + 7) / 8);
}

}  // namespace

void sort_rows(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, bool descending, int bits) {
    const int64_t all = rows * n, item = item_size(d);
    if (all == 0) return;
    if (bits == 0) bits = int(item) * 8;
    if (n <= held_rows) return sort_held_rows(values, indices, in, d, rows, n, n, descending, bits);
    Scratch copy(values == in ? size_t(all * item) : 0);  // sorting in place reads what it overwrites
    if (values == in) {
        within(copy.data(), in, size_t(all * item));
        in = copy.data();
    }
    if (item <= 4 || rows == 1) return radix_sort(values, indices, in, d, rows, n, descending, bits);
    for (int64_t r = 0; r < rows; r++)
        radix_sort(values ? static_cast<char*>(values) + r * n * item : nullptr, indices ? indices + r * n : nullptr,
                   static_cast<const char*>(in) + r * n * item, d, 1, n, descending, bits);
}

namespace {

void sort_all(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, bool descending) {
    sort_rows(values, indices, in, d, rows, n, descending);
}

constexpr int select_top = 3;  // as in the kernels, after those of Selection

// One element of each row, or the first k of it in no order but that of their places.
void select_in_long_rows(int what, void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, int64_t k,
                         bool descending) {
    const int64_t bins = 2048, tiles = (n + 4095) / 4096;
    const int64_t most = std::max<int64_t>(1, device_info(current_index()).multiprocessors * 8 / rows);
    const unsigned blocks = unsigned(std::clamp<int64_t>((n + 16383) / 16384, 1, most)), grid = unsigned(blocks * rows);
    const int falling = descending;
    Scratch chosen(size_t(rows * 32)), counts(size_t(rows * bins * 8));
    fill_zero(chosen.data(), size_t(rows * 32));
    fill_zero(counts.data(), size_t(rows * bins * 8));
    void *c = chosen.data(), *bins_of = counts.data();
    if ((what == int(Selection::median) || what == int(Selection::nanmedian)) && !is_integral(d))
        launch_with(instance<struct Nans>(select_file, d, 0, [&] { return str("select_nans<", type_text(d), ">"); }), {grid}, {256}, 0, in,
                    c, n, blocks);
    for (int pass = 0; pass * 11 < int(item_size(d)) * 8; pass++)
        launch_with(instance<struct Digit>(select_file, d, 0, [&] { return str("select_digit<", type_text(d), ">"); }), {grid}, {256}, 0,
                    in, c, bins_of, n, blocks, k, what, falling, pass);
    TileMemory memory(rows * tiles, 16);
    launch_with(instance<struct Collect>(select_file, d, 0, [&] { return str("select_collect<", type_text(d), ">"); }),
                {unsigned(rows * tiles)}, {256}, 0, in, c, values, indices, n, k, what, falling, unsigned(tiles), memory.tiles());
}

void select_in_held_rows(int what, void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, int64_t k,
                         bool descending) {
    const int shape = n <= 1024 ? 0 : n <= 4096 ? 1 : 2, items = shape == 0 ? 4 : shape == 1 ? 16 : 32;
    launch_with(instance<struct InRows, 3>(select_file, d, shape, [&] { return str("select_in_rows<", type_text(d), ", ", items, ">"); }),
                {unsigned(rows)}, {256}, 0, in, values, indices, int(n), k, what, int(descending));
}

void topk(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, int64_t k, bool largest) {
    if (rows * k == 0) return;
    if (k == n) return sort_rows(values, indices, in, d, rows, n, largest);
    if (k == 1 && n > 64) {  // the element of rank 0
        const int kth = int(Selection::kth);
        if (n <= held_rows) select_in_held_rows(kth, values, indices, in, d, rows, n, 0, largest);
        else select_in_long_rows(kth, values, indices, in, d, rows, n, 0, largest);
        return;
    }
    if (n <= held_rows) {
        if (n > 64 && k <= 256) select_in_held_rows(select_top, values, indices, in, d, rows, n, k, largest);
        else sort_held_rows(values, indices, in, d, rows, n, k, largest, int(item_size(d)) * 8);
        return;
    }
    const int64_t all = rows * k;
    Scratch found(size_t(all * item_size(d))), places(size_t(all * 8)), order(size_t(all * 8));
    select_in_long_rows(select_top, found.data(), places.as<int64_t>(), in, d, rows, n, k, largest);
    sort_rows(values, order.as<int64_t>(), found.data(), d, rows, k, largest);
    launch_with(only_kernel<struct Order>(select_file, "select_order"), threads(all), {256}, 0, places.data(), order.data(), indices, all,
                k);
}

void select(Selection what, void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, int64_t k) {
    if (rows * n == 0) return;
    if (n <= held_rows) select_in_held_rows(int(what), values, indices, in, d, rows, n, k, false);
    else select_in_long_rows(int(what), values, indices, in, d, rows, n, k, false);
}

void mode(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n) {
    if (rows * n == 0) return;
    Scratch sorted(size_t(rows * n * item_size(d))), order(size_t(rows * n * 8));
    sort_rows(sorted.data(), order.as<int64_t>(), in, d, rows, n, false);
    launch_with(instance<struct Mode>(sort_file, d, 0, [&] { return str("mode_of_sorted<", type_text(d), ">"); }), {unsigned(rows)}, {256},
                0, sorted.data(), order.data(), values, indices, n);
}

void searchsorted(int64_t* out, const void* boundaries, const int64_t* sorter, const void* values, DType d, int64_t rows, int64_t m,
                  int64_t n, bool shared, bool right) {
    const char* name = "searchsorted (sorter)";
    if (rows * n > 0)
        launch_with(instance<struct Search>(sort_file, d, 0, [&] { return str("search_sorted<", type_text(d), ">"); }), threads(rows * n),
                    {256}, 0, out, boundaries, sorter, values, rows * n, m, n, int(shared), int(right), name, report_cell());
}

}  // namespace

const SortKernels sort = {sort_all, topk, select, mode, searchsorted, count_places, count_values, run_starts, run_values};

}  // namespace wisp::cuda
