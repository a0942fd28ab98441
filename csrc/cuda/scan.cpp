// Launches running sums and the like, and the kernels of masks.
#include "../kernels/scan.h"

#include "index_shape.h"
#include "pointwise.h"
#include "sorting.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/scan.cuh";
constexpr int64_t mask_tile = 4096;

void scan_(Scan kind, void* out, int64_t* indices, const void* in, DType d, int64_t outer, int64_t n, int64_t inner) {
    if (outer * n * inner == 0) return;
    if (inner > 1 || n <= 64) {
        launch_with(find_kernel(file, str("scan_columns<", int(kind), ", ", type_text(d), ">")), {unsigned((outer * inner + 127) / 128)},
                    {128}, 0, in, out, indices, outer * inner, n, inner);
        return;
    }
    const bool extreme = kind == Scan::max || kind == Scan::min;
    const int items = n <= 256 ? 1 : n <= 1024 ? 4 : extreme || item_size(d) > 4 ? 8 : 16;
    const int64_t tile = 256 * items, tiles = (n + tile - 1) / tile;
    if ((kind == Scan::sum || kind == Scan::prod) && n > 1024) {
        const int64_t vectors = 256 * (16 / item_size(d)), rounds = n <= 4 * vectors ? 4 : 8;
        const int64_t tile = vectors * rounds, tiles = (n + tile - 1) / tile;
        TileMemory memory(tiles > 1 ? outer * tiles : 0, item_size(d));
        launch_with(find_kernel(file, str("scan_vectors<", int(kind), ", ", type_text(d), ", ", rounds, ">")), {unsigned(outer * tiles)},
                    {256}, 0, in, out, n, unsigned(tiles), memory.tiles());
        return;
    }
    TileMemory memory(tiles > 1 ? outer * tiles : 0, extreme ? 16 : item_size(d));
    launch_with(find_kernel(file, str("scan_tiles<", int(kind), ", ", type_text(d), ", ", items, ">")), {unsigned(outer * tiles)}, {256}, 0,
                in, out, indices, n, unsigned(tiles), memory.tiles());
}

template <int Which> Kernel* sized(const char* name, int64_t bytes) {
    static Instances<17> instances(file);
    return instances(int(bytes), [&] { return str(name, "<", bytes, ">"); });
}

}  // namespace

void masked_select(void* out, const void* in, const bool* mask, int64_t n, int64_t, int64_t item) {
    if (n == 0) return;
    const int64_t tiles = (n + mask_tile - 1) / mask_tile;
    TileMemory memory(tiles, 8);
    launch_with(sized<0>("masked_select", item), {unsigned(tiles)}, {256}, 0, out, in, mask, n, memory.tiles());
}

void masked_scatter(void* out, const bool* mask, const void* values, int64_t n, int64_t item) {
    if (n == 0) return;
    const int64_t tiles = (n + mask_tile - 1) / mask_tile;
    TileMemory memory(tiles, 8);
    launch_with(sized<1>("masked_scatter", item), {unsigned(tiles)}, {256}, 0, out, mask, values, n, memory.tiles());
}

void nonzero(int64_t* out, int64_t row_step, int64_t column_step, const bool* mask, const int64_t* sizes, int ndim, int64_t) {
    int64_t n = 1;
    Shape s;
    for (int d = ndim - 1; d >= 0; d--) {
        n *= sizes[d];
        s.sizes[s.dims++] = sizes[d];
        s.finish();
    }
    if (n == 0) return;
    const int64_t tiles = (n + mask_tile - 1) / mask_tile;
    TileMemory memory(tiles, 8);
    launch_with(only_kernel<struct Nonzero>(file, "nonzero"), {unsigned(tiles)}, {256}, 0, out, row_step, column_step, mask, n, s,
                memory.tiles());
}

void run_starts(bool* out, const void* in, DType d, int64_t n) {
    if (n) launch_with(find_kernel(file, str("run_starts<", type_text(d), ">")), {unsigned((n + 1023) / 1024)}, {256}, 0, in, out, n);
}

int64_t run_values(void* out, const void* in, DType d, int64_t n) {
    const int64_t tile = 4096, tiles = (n + tile - 1) / tile;
    TileMemory memory(tiles, 8);
    Scratch count(8);
    launch_with(find_kernel(file, str("run_values<", type_text(d), ">")), {unsigned(tiles)}, {256}, 0, in, out, count.as<int64_t>(), n,
                memory.tiles());
    int64_t found = 0;
    to_host(&found, count.data(), 8, true);
    return found;
}

const ScanKernels scan = {scan_};

}  // namespace wisp::cuda
