// Launches the kernels of sparse products.
#include "../kernels/sparse.h"

#include "sorting.h"
#include "pointwise.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/sparse.cuh";

template <class Tag> Kernel* typed(const char* name, DType d) {
    static Instances<16> instances(file);
    return instances(int(d), [&] { return str(name, "<", type_text(d), ">"); });
}

void product(DType d, const CsrPattern& p, const void* values, const void* dense, void* out, int64_t width) {
    const int64_t n = p.rows * width;
    if (n) launch_with(typed<struct Product>("csr_product", d), threads(n), {256}, 0, p, values, dense, out, width);
}

void sampled(DType d, const CsrPattern& p, const void* left, const void* right, void* out, int64_t width) {
    if (p.entries)
        launch_with(typed<struct Sampled>("csr_sampled", d), {unsigned((p.entries + 7) / 8)}, {256}, 0, p, left, right, out, width);
}

void transpose(const CsrPattern& p, int64_t* start, int64_t* column, int64_t* order) {
    Pairs pairs(std::max<int64_t>(p.entries, 1));
    if (p.entries) {
        launch_with(only_kernel<struct CsrKeys>(file, "csr_keys"), threads(p.entries), {256}, 0, p, pairs.k);
        pairs.sort(Pairs::bits_for(p.columns + 1));
    }
    launch_with(only_kernel<struct CsrTransposed>(file, "csr_transposed"), threads(std::max(p.entries, p.columns + 1)), {256}, 0, p,
                pairs.k, pairs.p, start, column, order);
}

// Looks later: what is wrong is raised at the next synchronisation.
bool rises(const int64_t* start, int64_t rows, int64_t entries) {
    const char* message = "sparse product: the compressed indices must rise from 0 to the number of entries";
    launch_with(only_kernel<struct CsrRises>(file, "csr_rises"), threads(rows + 1), {256}, 0, start, rows, entries, message, report_cell());
    return true;
}

}  // namespace

const SparseKernels sparse = {product, sampled, transpose, rises};

}  // namespace wisp::cuda
