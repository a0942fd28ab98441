// Direct convolution, forward and with respect to the input: tiles of 6 channels by 4 vectors of neighbouring positions
// over a copy of the image in which every tap is a fixed offset (conv_layout.h). Compiled once per instruction set.
#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/conv_depthwise.h"
#include "cpu/conv_unfold.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int tile_rows = 6, tile_vectors = registers == 32 ? 4 : 2;  // 24 sums of 32 registers, 12 of 16
constexpr int64_t depth_block = 288;  // terms summed before the tile is written: weights and rows stay in L1

// Where a tile goes: the lanes of vector v whose bit is set in mask[v] go to out + at[v], side by side.
template <class T> struct Target {
    T* out;
    int64_t row_pitch;
    const uint32_t* mask;
    const int64_t* at;
    const T* bias;
    bool accumulate;
};

template <class T> WISP_INLINE void store_wanted(T* out, uint32_t mask, Vector<T> value, bool accumulate) {
    constexpr uint32_t all = uint32_t((uint64_t(1) << lanes_of<T>)-1);
    if (mask == all) {
        store(out, accumulate ? value + load(out) : value);
        return;
    }
    if constexpr (has_masks) {
        const uint32_t wanted = (1u << __builtin_popcount(mask)) - 1;
        Vector<T> packed = compress(mask, value);
        if (accumulate) packed += load_masked(out, wanted);
        store_masked(out, wanted, packed);
    } else {
        for (int lane = 0; mask != 0; ++lane, mask >>= 1)
            if (mask & 1) {
                *out = accumulate ? *out + value[lane] : value[lane];
                ++out;
            }
    }
}

// out[i][v] = bias[i] + sum over k of weight[i * row + k * step] * source[offsets[k] + v]
template <class T, int rows, int vectors> __attribute__((noinline)) void tile(int64_t depth, const T* weight, int64_t row, int64_t step,
                                                                              const T* source, const int64_t* offsets,
                                                                              const Target<T>& target) {
    constexpr int lanes = lanes_of<T>;
    Vector<T> sum[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[i][v] = splat(target.bias ? target.bias[i] : T(0));
    const T* weight_high = weight + 3 * row;
#pragma GCC unroll 2
    for (int64_t k = 0; k < depth; ++k) {
        const T* s = source + offsets[k];
        Vector<T> x[vectors];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) x[v] = load(s + v * lanes);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const Vector<T> w = splat(i < 3 ? weight[i * row] : weight_high[(i - 3) * row]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) sum[i][v] += w * x[v];
        }
        weight += step;
        weight_high += step;
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
        const uint32_t mask = target.mask[v];
        T* out = target.out + target.at[v];
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) store_wanted<T>(out + i * target.row_pitch, mask, sum[i][v], target.accumulate);
    }
}

template <class T> using TileFunction = void (*)(int64_t, const T*, int64_t, int64_t, const T*, const int64_t*, const Target<T>&);
template <class T> struct TileTable {
    TileFunction<T> at[tile_vectors][tile_rows];
};
template <class T, int vectors = 1, int rows = 1> constexpr void fill_tiles(TileTable<T>& table) {
    table.at[vectors - 1][rows - 1] = tile<T, rows, vectors>;
    if constexpr (rows < tile_rows) fill_tiles<T, vectors, rows + 1>(table);
    else if constexpr (vectors < tile_vectors) fill_tiles<T, vectors + 1, 1>(table);
}
template <class T> constexpr TileTable<T> tile_table() {
    TileTable<T> table{};
    fill_tiles(table);
    return table;
}
template <class T> constexpr TileTable<T> tiles = tile_table<T>();

// result[b][g][r][start + i * stride] = bias + sum over channels c and taps t of
//     weight(g, r, c, t) * source[b][g][c][i * axis.stride + axis.tap(t)]
template <class T> struct Problem {
    int64_t batch, groups, rows, channels;
    Axis axis[3];
    const T* source;
    const T* weight;
    int64_t weight_group, weight_row, weight_channel, weight_tap[3];  // strides of weight
    const T* bias;                                                    // [groups][rows] or null
    T* result;
    int64_t result_size[3], result_start[3], result_stride[3];
};

template <class T> struct ConvPlan {
    ImageLayout layout;
    int64_t depth, positions, vectors, tiles, panels;
    int64_t depth_blocks, depth_step;
    const int64_t* offsets;
    const int64_t* tile_offsets;  // of a tile that was copied: k * lanes * tile_vectors
    int64_t last_offset;          // the largest of offsets
    const uint32_t* mask;         // per vector
    const int64_t* at;
    struct Piece {
        int32_t first, vectors;
    };
    const Piece* pieces;  // the vectors of each tile; null: all of them, shared nearly equally
    bool direct;          // tiles go straight to the result; else to [row][position], copied in the end
    const T* weight;
    int64_t weight_group, weight_row, weight_step;  // weight_step 0: packed by panels
    int64_t target_row, result_group, result_image;
    const T* bias;
    bool copy_tiles, blocks_outside;
};

// Panels of nearly equal height, at most tile_rows.
WISP_INLINE int64_t panel_begin(int64_t rows, int64_t panels, int64_t p) { return rows * p / panels; }

template <class T, int height> void pack_run(const T* from, int64_t row, const int64_t* places, int64_t count, T* to) {
    for (int64_t k = 0; k < count; ++k, to += height)
#pragma GCC unroll 8
        for (int r = 0; r < height; ++r) to[r] = from[r * row + places[k]];
}

// Weights of each panel as [term][row of the panel].
template <class T> void pack_weight(const Problem<T>& p, const ConvPlan<T>& plan, bool ordered, T* packed) {
    using Run = void (*)(const T*, int64_t, const int64_t*, int64_t, T*);
    static constexpr Run runs[tile_rows] = {pack_run<T, 1>, pack_run<T, 2>, pack_run<T, 3>, pack_run<T, 4>, pack_run<T, 5>, pack_run<T, 6>};
    // One run is all terms of a panel if they lie in order, else the taps of one channel.
    const Axis &a = p.axis[0], &b = p.axis[1], &c = p.axis[2];
    const int64_t taps = ordered ? plan.depth : plan.layout.taps, channels = ordered ? 1 : p.channels;
    int64_t* places = static_cast<int64_t*>(scratch(2, size_t(taps) * 8));
    int64_t* place = places;
    if (ordered)
        for (int64_t k = 0; k < taps; ++k) *place++ = k;
    else
        for (int64_t i = 0; i < a.taps; ++i)
            for (int64_t j = 0; j < b.taps; ++j)
                for (int64_t k = 0; k < c.taps; ++k)
                    *place++ = (a.kernel_first + i * a.kernel_step) * p.weight_tap[0] +
                               (b.kernel_first + j * b.kernel_step) * p.weight_tap[1] + c.kernel_first + k * c.kernel_step;
    // Several panels at a time, so that long pieces of the weight are read in order.
    const int64_t stack = ordered ? 1 : 8, stacks = divide_up(plan.panels, stack);
    const int64_t cost = most(1, p.rows / plan.panels * plan.depth * stack);
    parallel_for(p.groups * stacks, divide_up(32768, cost), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            const int64_t group = item / stacks, first = item % stacks * stack;
            const int64_t last = least(plan.panels, first + stack);
            for (int64_t channel = 0; channel < channels; ++channel)
                for (int64_t panel = first; panel < last; ++panel) {
                    const int64_t r0 = panel_begin(p.rows, plan.panels, panel);
                    const int64_t height = panel_begin(p.rows, plan.panels, panel + 1) - r0;
                    runs[height - 1](p.weight + group * p.weight_group + r0 * p.weight_row + channel * p.weight_channel, p.weight_row,
                                     places, taps, packed + (group * p.rows + r0) * plan.depth + channel * taps * height);
                }
        }
    });
}

// For each vector of positions: which lanes are wanted, and where the first of them goes.
template <class T> void fill_masks(const ImageLayout& l, int64_t vectors, uint32_t* mask, int64_t* at) {
    constexpr int64_t lanes = lanes_of<T>;
    for (int64_t v = 0; v < vectors; ++v) mask[v] = 0, at[v] = 0;
    int64_t to = 0;
    for (int64_t i = 0; i < l.axis[0].out; ++i)
        for (int64_t j = 0; j < l.axis[1].out; ++j) {
            int64_t q = (i * l.length[1] + j) * l.length[2];
            for (const int64_t end = q + l.axis[2].out; q < end;) {
                const int64_t v = q / lanes, lane = q % lanes, count = least(lanes - lane, end - q);
                if (mask[v] == 0) at[v] = to;
                mask[v] |= uint32_t(((uint64_t(1) << count) - 1) << lane);
                q += count;
                to += count;
            }
        }
}

// Vectors that nobody wants, as between the planes of a volume, are left out of the tiles where that is less work; returns how many
// tiles that makes, or 0.
template <class T> int64_t fill_pieces(int64_t vectors, int64_t tiles, const uint32_t* mask, typename ConvPlan<T>::Piece* pieces) {
    int64_t made = 0, kept = 0;
    for (int64_t v = 0; v < vectors;) {
        const int64_t first = v;
        while (v < vectors && mask[v] != 0) v++;
        const int64_t run = v - first, parts = divide_up(run, tile_vectors);
        for (int64_t i = 0; i < parts; ++i)
            pieces[made++] = {int32_t(first + run * i / parts), int32_t(run * (i + 1) / parts - run * i / parts)};
        kept += run;
        while (v < vectors && mask[v] == 0) v++;
    }
    return 4 * kept + made < 4 * vectors + tiles ? made : 0;  // a tile costs about as much as a quarter of a vector more
}

// Rows [begin, end) of `images` images from [row][position] to the result of the first of them.
template <class T>
void copy_out(const Problem<T>& p, const ConvPlan<T>& plan, const T* from, int64_t images, T* result, int64_t begin, int64_t end) {
    const ImageLayout& l = plan.layout;
    const int64_t *size = p.result_size, *start = p.result_start, *stride = p.result_stride;
    const int64_t plane = size[0] * size[1] * size[2], width = l.axis[2].out;
    for (int64_t r = begin; r < end; ++r)
        for (int64_t n = 0; n < images; ++n)
            for (int64_t i = 0; i < l.axis[0].out; ++i)
                for (int64_t j = 0; j < l.axis[1].out; ++j) {
                    const T* s = from + r * plan.target_row + n * l.plane + (i * l.length[1] + j) * l.length[2];
                    T* to = result + n * plan.result_image + r * plane + start[2] +
                            ((start[0] + i * stride[0]) * size[1] + start[1] + j * stride[1]) * size[2];
                    if (stride[2] == 1) copy_row(to, s, width, 0, 1, width);
                    else if (stride[2] == 2)
                        for (int64_t k = 0; k < width; ++k) to[2 * k] = s[k];
                    else
                        for (int64_t k = 0; k < width; ++k) to[k * stride[2]] = s[k];
                }
}

// One block of terms of one tile, `vectors` from position q on: panels [begin, end).
template <class T> void run_tile(const ConvPlan<T>& plan, const T* source, int64_t limit, int64_t rows, int64_t group, T* out, int64_t q,
                                 int64_t vectors, int64_t block, int64_t begin, int64_t end) {
    constexpr int64_t lanes = lanes_of<T>, width = lanes * tile_vectors;
    const int64_t k0 = block * plan.depth_step, depth = least(plan.depth_step, plan.depth - k0);
    const T* from = source + q;
    const int64_t* offsets = plan.offsets + k0;
    if (plan.copy_tiles || plan.last_offset + q + vectors * lanes > limit) {
        T* copy = static_cast<T*>(scratch(2, size_t(plan.depth_step * width) * sizeof(T)));
        for (int64_t k = 0; k < depth; ++k) {
            const int64_t there = least(vectors * lanes, limit - offsets[k] - q);
            if (there == width) {
#pragma GCC unroll 4
                for (int v = 0; v < tile_vectors; ++v) store(copy + k * width + v * lanes, load(from + offsets[k] + v * lanes));
            } else {
                copy_row(copy + k * width, from + offsets[k], there, 0, 1, vectors * lanes);
            }
        }
        from = copy;
        offsets = plan.tile_offsets;
    }
    const bool packed = plan.weight_step == 0;
    for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t r0 = panel_begin(rows, plan.panels, panel), height = panel_begin(rows, plan.panels, panel + 1) - r0;
        const T* weight = plan.weight + group * plan.weight_group + (packed ? r0 * plan.depth + k0 * height : r0 * plan.weight_row + k0);
        const T* bias = plan.bias && block == 0 ? plan.bias + group * rows + r0 : nullptr;
        const Target<T> target = {out + r0 * plan.target_row, plan.target_row, plan.mask + q / lanes, plan.at + q / lanes, bias, block > 0};
        tiles<T>.at[vectors - 1][height - 1](depth, weight, packed ? 1 : plan.weight_row, packed ? height : 1, from, offsets, target);
    }
}

// Units [begin, end) of (tile, panel) of one group; `source` is the layout's position 0, `limit` how many elements may
// be read from there, `images` how many of the layout's images are real.
template <class T> void run_units(const ConvPlan<T>& plan, const T* source, int64_t limit, int64_t images, int64_t rows, int64_t group,
                                  T* out, int64_t begin, int64_t end) {
    constexpr int64_t lanes = lanes_of<T>;
    const int64_t positions = plan.positions - (plan.layout.images - images) * plan.layout.plane;
    const int64_t vectors = divide_up(positions, lanes), tiles = plan.pieces ? plan.tiles : divide_up(vectors, tile_vectors);
    // Weights that do not fit into the cache are read once per block instead of once per tile.
    const int64_t outer = plan.blocks_outside ? plan.depth_blocks : 1, inner = plan.depth_blocks / outer;
    for (int64_t o = 0; o < outer; ++o)
        for (int64_t t = begin / plan.panels; t * plan.panels < end && t < tiles; ++t) {
            const int64_t v = plan.pieces ? plan.pieces[t].first : vectors * t / tiles;  // nearly equal tiles
            const int64_t wide = plan.pieces ? plan.pieces[t].vectors : vectors * (t + 1) / tiles - v;
            for (int64_t i = 0; i < inner; ++i)
                run_tile(plan, source, limit, rows, group, out, v * lanes, wide, o + i, most(0, begin - t * plan.panels),
                         least(plan.panels, end - t * plan.panels));
        }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA

#include "cpu/conv_winograd_solve.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// How the work is cut: images that are treated together, tiles, panels, blocks of terms, and where tiles are written.
template <class T> void cut_work(const Problem<T>& p, ConvPlan<T>& plan) {
    constexpr int64_t lanes = lanes_of<T>, width = lanes * tile_vectors;
    ImageLayout& l = plan.layout;
    plan.depth = l.depth();
    plan.blocks_outside = p.rows * plan.depth * int64_t(sizeof(T)) > (int64_t(1) << 19);
    // Images too small to fill tiles of their own are treated together, and those that would each make a thread read
    // all of a large weight, as far as the threads still share them well.
    if (p.batch > 1 && (l.positions() < width || (l.positions() < 4 * width && (l.im2col || plan.blocks_outside)))) {
        if (l.in_place) l = make_layout(p.axis, p.channels, p.rows, false);
        const int64_t memory = most(1, (int64_t(1) << 22) / (int64_t(sizeof(T)) * most(1, l.size())));
        l.images = least(least(divide_up(p.batch, num_threads()), memory), divide_up(8 * width, l.plane));
    }
    plan.positions = l.positions();
    plan.vectors = divide_up(plan.positions, lanes);
    plan.tiles = divide_up(plan.positions, width);
    plan.panels = divide_up(p.rows, tile_rows);
    plan.depth_blocks = most(1, divide_up(plan.depth, depth_block));
    plan.depth_step = divide_up(plan.depth, plan.depth_blocks);
    plan.bias = p.bias;
    plan.copy_tiles = l.in_place && plan.panels >= 4 && plan.depth >= 32;
    plan.direct = l.images == 1;
    for (int d = 0; d < 3; ++d)
        if (p.result_stride[d] != 1 || p.result_start[d] != 0 || p.result_size[d] != p.axis[d].out) plan.direct = false;
    const int64_t result_plane = p.result_size[0] * p.result_size[1] * p.result_size[2];
    plan.result_group = p.rows * result_plane;
    plan.result_image = p.groups * plan.result_group;
    plan.target_row = plan.direct ? result_plane : plan.vectors * lanes;
}

// One block of memory holds the packed weight and all tables: offsets, tile offsets, destinations, masks, pieces.
template <class T> void fill_tables(const Problem<T>& p, ConvPlan<T>& plan) {
    constexpr int64_t lanes = lanes_of<T>, width = lanes * tile_vectors;
    const ImageLayout& l = plan.layout;
    const int64_t vectors = plan.vectors;
    // The weight can be read as it lies if its terms are in order; packing pays only if it is used more than twice.
    bool ordered = p.weight_channel == l.taps;
    for (int d = 0; d < 3; ++d)
        if (p.axis[d].taps > 1 && (p.axis[d].kernel_step != 1 || p.axis[d].kernel_first != 0)) ordered = false;
    const bool pack = plan.depth > 0 && !(ordered && (p.rows == 1 || p.batch * plan.tiles <= 2 * l.images));

    const size_t weight_bytes = (size_t(pack ? p.groups * p.rows * plan.depth : 0) * sizeof(T) + 63) / 64 * 64;
    char* block = static_cast<char*>(scratch(0, weight_bytes + size_t(plan.depth + plan.depth_step + vectors) * 8 + size_t(vectors) * 12));
    T* packed = reinterpret_cast<T*>(block);
    int64_t* offsets = reinterpret_cast<int64_t*>(block + weight_bytes);
    int64_t* tile_offsets = offsets + plan.depth;
    int64_t* at = tile_offsets + plan.depth_step;
    uint32_t* mask = reinterpret_cast<uint32_t*>(at + vectors);
    fill_offsets(l, offsets);
    for (int64_t k = 0; k < plan.depth; ++k) plan.last_offset = most(plan.last_offset, offsets[k]);
    for (int64_t k = 0; k < plan.depth_step; ++k) tile_offsets[k] = k * width;
    if (l.images == 1) {
        fill_masks<T>(l, vectors, mask, at);
        auto* pieces = reinterpret_cast<typename ConvPlan<T>::Piece*>(mask + vectors);
        if (const int64_t made = fill_pieces<T>(vectors, plan.tiles, mask, pieces)) plan.tiles = made, plan.pieces = pieces;
    }
    if (!plan.direct)
        for (int64_t v = 0; v < vectors; ++v) mask[v] = uint32_t((uint64_t(1) << lanes) - 1), at[v] = v * lanes;
    plan.offsets = offsets;
    plan.tile_offsets = tile_offsets;
    plan.at = at;
    plan.mask = mask;
    if (pack) {
        pack_weight(p, plan, ordered, packed);
        plan.weight = packed;
        plan.weight_group = p.rows * plan.depth;
    } else {
        plan.weight = p.weight;
        plan.weight_group = p.weight_group;
        plan.weight_row = p.weight_row;
        plan.weight_step = 1;
    }
}

// The items of work: each group of each set of images, with the memory that its images are copied to and its tiles come from.
template <class T> struct ConvItems {
    struct Item {
        const T* source;
        T* result;
        int64_t group, images, limit;
    };
    const Problem<T>& p;
    const ConvPlan<T>& plan;
    const ImageLayout& l = plan.layout;
    int64_t in_size = p.axis[0].in * p.axis[1].in * p.axis[2].in;
    int64_t source_group = p.channels * in_size, source_image = p.groups * source_group;
    int64_t copy_size = l.size() + lanes_of<T> * tile_vectors;

    int64_t count() const { return divide_up(p.batch, l.images) * p.groups; }
    int64_t units() const { return plan.tiles * plan.panels; }
    int64_t channels(const Item& item) const { return l.in_place ? 0 : item.images * p.channels; }  // to be copied
    Item at(int64_t index) const {
        const int64_t n0 = index / p.groups * l.images, group = index % p.groups;
        const T* source = p.source + n0 * source_image + group * source_group;
        return {source, p.result + n0 * plan.result_image + group * plan.result_group, group, least(l.images, p.batch - n0),
                l.in_place ? p.source + p.batch * source_image - source : copy_size};
    }
    static T* memory(int slot, int64_t size) { return static_cast<T*>(scratch(slot, size_t(size) * sizeof(T))); }
    T* memory_for_copy() const { return l.in_place ? nullptr : memory(1, copy_size); }
    T* memory_for_tiles() const { return plan.direct ? nullptr : memory(3, p.rows * plan.target_row); }

    void copy_in(const Item& item, T* copy, int64_t begin, int64_t end) const {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t n = i / p.channels, channel = i % p.channels;
            copy_channel(l, item.source + n * source_image + channel * in_size, copy, channel, n);
        }
    }
    void multiply(const Item& item, const T* copy, T* target, int64_t begin, int64_t end) const {
        run_units(plan, l.in_place ? item.source : copy, item.limit, item.images, p.rows, item.group, plan.direct ? item.result : target,
                  begin, end);
    }
};

template <class T> void solve(const Problem<T>& p) {
    if constexpr (sizeof(T) == 4)
        if (solve_with_winograd(p)) return;
    ConvPlan<T> plan{};
    const ImageLayout& l = plan.layout = make_layout(p.axis, p.channels, p.rows, true);
    if (p.batch * p.groups * p.rows * l.wanted() == 0) return;
    cut_work(p, plan);
    fill_tables(p, plan);

    const ConvItems<T> items{p, plan};
    const int64_t count = items.count(), units = items.units(), threads = num_threads();
    const int64_t work = most(1, l.images * p.rows * l.wanted() * most(1, plan.depth));  // per item
    const int64_t grain_work = 60000;                                                    // multiply-adds that are worth waking a thread for
    if (count >= 3 * threads || count % threads == 0 || work < 2 * grain_work) {
        parallel_for(count, divide_up(grain_work, work), [&](int64_t begin, int64_t end) {
            T *copy = items.memory_for_copy(), *target = items.memory_for_tiles();
            for (int64_t index = begin; index < end; ++index) {
                const auto item = items.at(index);
                items.copy_in(item, copy, 0, items.channels(item));
                items.multiply(item, copy, target, 0, units);
                if (!plan.direct) copy_out(p, plan, target, item.images, item.result, 0, p.rows);
            }
        });
        return;
    }
    // Few images: the threads share each of them.
    T *copy = items.memory_for_copy(), *target = items.memory_for_tiles();
    for (int64_t index = 0; index < count; ++index) {
        const auto item = items.at(index);
        if (!l.in_place)
            parallel_for(items.channels(item), divide_up(30000, most(1, l.phases * l.plane)),
                         [&](int64_t begin, int64_t end) { items.copy_in(item, copy, begin, end); });
        parallel_for(units, most(1, grain_work * units / work),
                     [&](int64_t begin, int64_t end) { items.multiply(item, copy, target, begin, end); });
        if (!plan.direct)
            parallel_for(p.rows, divide_up(30000, most(1, plan.target_row)),
                         [&](int64_t begin, int64_t end) { copy_out(p, plan, target, item.images, item.result, begin, end); });
    }
}

// C[n][g][j] = bias[g][j] + sum over k of A[n][g][k] * weight_g(k, j)
template <class T> void product(const ConvShape& s, const T* a, int64_t k, const T* weight, int64_t weight_k, int64_t weight_j, int64_t n,
                                const T* bias, T* c) {
    GemmArgs args{};
    args.m = s.batch;
    args.n = n;
    args.k = k;
    args.a = a;
    args.a_row = s.groups * k;
    args.a_col = 1;
    args.b = weight;
    args.b_row = weight_k;
    args.b_col = weight_j;
    args.c = c;
    args.c_row = s.groups * n;
    args.d = bias;
    args.d_col = 1;
    args.beta = bias ? 1 : 0;
    args.batch_dims = 1;
    args.batch_size[0] = s.groups;
    args.batch_a[0] = k;
    args.batch_b[0] = n * k;
    args.batch_c[0] = args.batch_d[0] = n;
    gemm.matmul(dtype_of<T>, args);
}

template <class T> void forward(const ConvShape& s, const T* input, const T* weight, const T* bias, T* output) {
    if (is_product(s)) {
        const int64_t k = s.in_channels / s.groups * s.in[0] * s.in[1] * s.in[2];
        return product(s, input, k, weight, 1, k, s.out_channels / s.groups, bias, output);
    }
    if (depthwise_forward(s, input, weight, bias, output)) return;
    if (forward_by_unfolding(s, input, weight, bias, output)) return;
    Problem<T> p{};
    p.batch = s.batch;
    p.groups = s.groups;
    p.rows = s.out_channels / s.groups;
    p.channels = s.in_channels / s.groups;
    const int64_t kernel = s.kernel[0] * s.kernel[1] * s.kernel[2];
    for (int d = 0; d < 3; ++d) {
        p.axis[d] = forward_axis(s, d);
        p.result_size[d] = s.out[d];
        p.result_start[d] = 0;
        p.result_stride[d] = 1;
    }
    p.source = input;
    p.weight = weight;
    p.weight_group = p.rows * p.channels * kernel;
    p.weight_row = p.channels * kernel;
    p.weight_channel = kernel;
    p.weight_tap[0] = s.kernel[1] * s.kernel[2];
    p.weight_tap[1] = s.kernel[2];
    p.weight_tap[2] = 1;
    p.bias = bias;
    p.result = output;
    solve(p);
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA

#include "cpu/conv_scatter.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// Along an axis the element r + s * i of the input meets the weights k with (r + padding - k * dilation) divisible by
// the stride s, each with the output i + (r + padding - k * dilation) / s: for every r a convolution of stride 1.
WISP_INLINE Axis input_grad_axis(const ConvShape& s, int d, int64_t r) {
    const int64_t stride = s.stride[d], common = greatest_common_divisor(stride, s.dilation[d]);
    Axis a{};
    a.in = s.out[d];
    a.out = r < s.in[d] ? divide_up(s.in[d] - r, stride) : 0;
    a.stride = 1;
    a.step = -s.dilation[d] / common;
    a.kernel_step = stride / common;
    a.kernel_first = 0;
    const int64_t last = least(a.kernel_step, s.kernel[d]);
    while (a.kernel_first < last && (r + s.padding[d] - a.kernel_first * s.dilation[d]) % stride != 0) ++a.kernel_first;
    const bool meets = a.kernel_first < last;
    a.taps = meets ? (s.kernel[d] - 1 - a.kernel_first) / a.kernel_step + 1 : 0;
    a.first = meets ? (r + s.padding[d] - a.kernel_first * s.dilation[d]) / stride : 0;
    return a;
}

template <class T> void input_grad(const ConvShape& s, const T* grad, const T* weight, const T* bias, T* input_grad) {
    if (is_product(s) && !(bias && s.in[0] * s.in[1] * s.in[2] > 1)) {
        const int64_t k = s.in_channels / s.groups * s.in[0] * s.in[1] * s.in[2];
        return product(s, grad, s.out_channels / s.groups, weight, k, 1, k, bias, input_grad);
    }
    if (depthwise_input_grad(s, grad, weight, bias, input_grad)) return;
    Axis axis[3];
    bool strided = false;
    for (int d = 0; d < 3; ++d) axis[d] = input_grad_axis(s, d, 0), strided |= s.stride[d] != 1;
    const bool winograd = sizeof(T) == 4 && !strided && suits_winograd(axis, s.batch, s.in_channels / s.groups, s.out_channels / s.groups);
    if (!winograd && input_grad_by_folding(s, grad, weight, bias, input_grad)) return;
    if (input_grad_by_scatter(s, grad, weight, bias, input_grad)) return;
    Problem<T> p{};
    p.batch = s.batch;
    p.groups = s.groups;
    p.rows = s.in_channels / s.groups;
    p.channels = s.out_channels / s.groups;
    const int64_t kernel = s.kernel[0] * s.kernel[1] * s.kernel[2];
    p.source = grad;
    p.weight = weight;
    p.weight_group = p.rows * p.channels * kernel;
    p.weight_row = kernel;
    p.weight_channel = p.rows * kernel;
    p.weight_tap[0] = s.kernel[1] * s.kernel[2];
    p.weight_tap[1] = s.kernel[2];
    p.weight_tap[2] = 1;
    p.bias = bias;
    p.result = input_grad;
    for (int d = 0; d < 3; ++d) {
        p.result_size[d] = s.in[d];
        p.result_stride[d] = s.stride[d];
    }
    for (p.result_start[0] = 0; p.result_start[0] < least(s.stride[0], s.in[0]); ++p.result_start[0])
        for (p.result_start[1] = 0; p.result_start[1] < least(s.stride[1], s.in[1]); ++p.result_start[1])
            for (p.result_start[2] = 0; p.result_start[2] < least(s.stride[2], s.in[2]); ++p.result_start[2]) {
                for (int d = 0; d < 3; ++d) p.axis[d] = input_grad_axis(s, d, p.result_start[d]);
                solve(p);
            }
}

// Calls term(input place, weight place) for every tap of output (i, j, k) that meets the input, in one plane.
template <class Term> WISP_INLINE void each_tap(const ConvShape& s, int64_t i, int64_t j, int64_t k, Term&& term) {
    int64_t place = 0;
    for (int64_t a = 0; a < s.kernel[0]; ++a)
        for (int64_t b = 0; b < s.kernel[1]; ++b)
            for (int64_t c = 0; c < s.kernel[2]; ++c, ++place) {
                const int64_t z = i * s.stride[0] - s.padding[0] + a * s.dilation[0];
                const int64_t y = j * s.stride[1] - s.padding[1] + b * s.dilation[1];
                const int64_t x = k * s.stride[2] - s.padding[2] + c * s.dilation[2];
                if (z >= 0 && z < s.in[0] && y >= 0 && y < s.in[1] && x >= 0 && x < s.in[2]) term((z * s.in[1] + y) * s.in[2] + x, place);
            }
}

// Calls pair(input channel plane, output channel plane, weight) for each image and pair of connected channels.
template <class Pair> WISP_INLINE void each_pair(const ConvShape& s, const int64_t* weight, Pair&& pair) {
    const int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
    const int64_t kernel = s.kernel[0] * s.kernel[1] * s.kernel[2];
    for (int64_t n = 0; n < s.batch; ++n)
        for (int64_t o = 0; o < s.out_channels; ++o)
            for (int64_t c = 0; c < in; ++c)
                pair(n * s.in_channels + o / out * in + c, n * s.out_channels + o, weight + (o * in + c) * kernel);
}

void fill_bias(int64_t batch, int64_t channels, int64_t size, const int64_t* bias, int64_t* to) {
    for (int64_t n = 0; n < batch; ++n)
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t k = 0; k < size; ++k) *to++ = bias ? bias[c] : 0;
}

// Unsigned arithmetic wraps around without undefined behaviour.
void forward_i64(const ConvShape& s, const int64_t* input, const int64_t* weight, const int64_t* bias, int64_t* output) {
    const int64_t in_size = s.in[0] * s.in[1] * s.in[2], out_size = s.out[0] * s.out[1] * s.out[2];
    fill_bias(s.batch, s.out_channels, out_size, bias, output);
    each_pair(s, weight, [&](int64_t in_plane, int64_t out_plane, const int64_t* w) {
        const int64_t* x = input + in_plane * in_size;
        int64_t* to = output + out_plane * out_size;
        for (int64_t i = 0; i < s.out[0]; ++i)
            for (int64_t j = 0; j < s.out[1]; ++j)
                for (int64_t k = 0; k < s.out[2]; ++k, ++to)
                    each_tap(s, i, j, k,
                             [&](int64_t at, int64_t tap) { *to = int64_t(uint64_t(*to) + uint64_t(x[at]) * uint64_t(w[tap])); });
    });
}
void input_grad_i64(const ConvShape& s, const int64_t* grad, const int64_t* weight, const int64_t* bias, int64_t* input_grad) {
    const int64_t in_size = s.in[0] * s.in[1] * s.in[2], out_size = s.out[0] * s.out[1] * s.out[2];
    fill_bias(s.batch, s.in_channels, in_size, bias, input_grad);
    each_pair(s, weight, [&](int64_t in_plane, int64_t out_plane, const int64_t* w) {
        int64_t* to = input_grad + in_plane * in_size;
        const int64_t* g = grad + out_plane * out_size;
        for (int64_t i = 0; i < s.out[0]; ++i)
            for (int64_t j = 0; j < s.out[1]; ++j)
                for (int64_t k = 0; k < s.out[2]; ++k, ++g)
                    each_tap(s, i, j, k,
                             [&](int64_t at, int64_t tap) { to[at] = int64_t(uint64_t(to[at]) + uint64_t(*g) * uint64_t(w[tap])); });
    });
}

}  // namespace

extern const ConvWeightKernels conv_weight_table;

namespace {

template <class T> void product_as(ConvProduct product, const ConvShape& s, const void* a_, const void* b_, const void* bias_, void* out_) {
    const T *a = static_cast<const T*>(a_), *b = static_cast<const T*>(b_), *bias = static_cast<const T*>(bias_);
    T* out = static_cast<T*>(out_);
    if (product == ConvProduct::output) forward<T>(s, a, b, bias, out);
    else if (product == ConvProduct::input) input_grad<T>(s, a, b, bias, out);
    else if constexpr (sizeof(T) == 4) conv_weight_table.weight_grad_f32(s, a, b, out);
    else conv_weight_table.weight_grad_f64(s, a, b, out);
}

void product(ConvProduct product, DType d, const ConvShape& s, bool, const void* a, const void* b, const void* bias, void* out) {
    if (d == DType::f32) return product_as<float>(product, s, a, b, bias, out);
    if (d == DType::f64) return product_as<double>(product, s, a, b, bias, out);
    if (product == ConvProduct::weight) return;  // integers have no gradients
    const auto run = product == ConvProduct::output ? forward_i64 : input_grad_i64;
    run(s, static_cast<const int64_t*>(a), static_cast<const int64_t*>(b), static_cast<const int64_t*>(bias), static_cast<int64_t*>(out));
}

void bias_grad(DType d, const ConvShape& s, const void* grad, void* out) {
    if (d == DType::f32) conv_weight_table.bias_grad_f32(s, static_cast<const float*>(grad), static_cast<float*>(out));
    else conv_weight_table.bias_grad_f64(s, static_cast<const double*>(grad), static_cast<double*>(out));
}

}  // namespace

extern const ConvKernels conv_table;
const ConvKernels conv_table = {&product, &bias_grad, nullptr, false};

}  // namespace wisp::cpu::WISP_ISA
