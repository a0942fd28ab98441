// Launches the kernels of sorting, selection and search.
#include "../kernels/sort.h"

#include "pairs.h"
#include "pointwise.h"

namespace wisp::cuda {
namespace {

// The elements of each row in order: pairs.p has their places in `in`.
void sort_rows(Pairs& pairs, const void* in, DType d, int64_t rows, int64_t n, bool descending) {
    const int64_t all = rows * n;
    launch_with(find_kernel(sort_file, str("make_keys<", type_text(d), ">")), threads(all), {256}, 0, in, pairs.k, pairs.p, all, n,
                int(descending));
    pairs.sort(is_reduced(d) ? 32 : d == DType::boolean ? 8 : int(item_size(d)) * 8);
    if (rows > 1) {
        launch_with(only_kernel<struct RowKeys>(sort_file, "row_keys"), threads(all), {256}, 0, pairs.p, pairs.k, all, n);
        pairs.sort(Pairs::bits_for(rows));
    }
}

void sort_some(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, bool descending, int64_t kept) {
    const int64_t all = rows * n;
    if (all == 0) return;
    Pairs pairs(all);
    sort_rows(pairs, in, d, rows, n, descending);
    Scratch copy(values == in ? size_t(all * item_size(d)) : 1);  // sorting in place reads what it overwrites
    if (values == in) within(copy.data(), in, size_t(all * item_size(d)));
    const void* from = values == in ? copy.data() : in;
    launch_with(find_kernel(sort_file, str("sorted_results<", type_text(d), ">")), threads(all), {256}, 0, from, pairs.p, values, indices,
                all, n, kept);
}
void sort_all(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, bool descending) {
    sort_some(values, indices, in, d, rows, n, descending, n);
}
void topk(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, int64_t k, bool largest) {
    sort_some(values, indices, in, d, rows, n, largest, k);
}

void select(Selection what, void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n, int64_t k) {
    if (rows * n == 0) return;
    Pairs pairs(rows * n);
    sort_rows(pairs, in, d, rows, n, false);
    launch_with(find_kernel(sort_file, str("select_sorted<", type_text(d), ">")), threads(rows), {256}, 0, in, pairs.p, values, indices,
                rows, n, int(what), k);
}

void mode(void* values, int64_t* indices, const void* in, DType d, int64_t rows, int64_t n) {
    if (rows * n == 0) return;
    Pairs pairs(rows * n);
    sort_rows(pairs, in, d, rows, n, false);
    launch_with(find_kernel(sort_file, str("mode_sorted<", type_text(d), ">")), threads(rows), {256}, 0, in, pairs.p, values, indices, rows,
                n);
}

void searchsorted(int64_t* out, const void* boundaries, const int64_t* sorter, const void* values, DType d, int64_t rows, int64_t m,
                  int64_t n, bool shared, bool right) {
    const char* name = "searchsorted (sorter)";
    if (rows * n)
        launch_with(find_kernel(sort_file, str("search_sorted<", type_text(d), ">")), threads(rows * n), {256}, 0, out, boundaries, sorter,
                    values, rows * n, m, n, int(shared), int(right), name, report_cell());
}

}  // namespace

const SortKernels sort = {sort_all, topk, select, mode, searchsorted};

}  // namespace wisp::cuda
