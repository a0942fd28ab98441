// Launches the kernels of images.
#include "../kernels/image.h"

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sorting.h"
#include "pointwise.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/image.cuh";

int64_t volume(const int64_t* v) { return v[0] * v[1] * v[2]; }

template <class Tag> Kernel* typed(const char* name, DType d) {
    static Instances<16> instances(file);
    return instances(int(d), [&] { return str(name, "<", type_text(d), ">"); });
}
// Elements that a thread writes at once, if rows have `n` of them.
int together(DType d, int64_t n, const void* out) {
    const int64_t item = item_size(d);
    int count = item <= 4 ? 4 : item == 8 ? 2 : 1;
    while (count > 1 && (n % count != 0 || uintptr_t(out) % uintptr_t(count * item) != 0)) count /= 2;
    return count;
}
template <class Tag> Kernel* sized(const char* name, DType d, int count) {
    static Instances<17 * 5> instances(file);
    return instances(int(item_size(d)) * 5 + count, [&] { return str(name, "<", item_size(d), ", ", count, ">"); });
}

// A table made on the host, in the memory of the device. Tables are kept: the same shapes come again, and a graph that
// is replayed finds them where they were. One that is made during a capture belongs to the graph.
class Table {
public:
    template <class T> int64_t add(const std::vector<T>& values) {  // where they begin
        static_assert(sizeof(T) == 8);
        const size_t at = bytes_.size();
        bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * 8);
        return int64_t(at);
    }
    void upload() {
        int capturing = 0;
        driver().stream_capturing(current_stream(), &capturing);
        if (capturing) {
            static auto& kept = *new std::vector<std::unique_ptr<std::string>>;  // replays read them
            kept.push_back(std::make_unique<std::string>(std::move(bytes_)));
            own_ = std::make_unique<Scratch>(kept.back()->size());
            cuda::upload(own_->data(), kept.back()->data(), kept.back()->size());
            data_ = own_->as<char>();
            return;
        }
        struct Kept {
            std::unordered_map<std::string, std::unique_ptr<Scratch>> tables;
            size_t bytes = 0;
        };
        static Kept* const all = new Kept[64];
        Kept& here = all[current_device().index < 0 ? current_index() : current_device().index];
        auto it = here.tables.find(bytes_);
        if (it == here.tables.end()) {
            if (here.bytes > size_t(64) << 20) here.tables.clear(), here.bytes = 0;
            auto memory = std::make_unique<Scratch>(bytes_.size());
            cuda::upload(memory->data(), bytes_.data(), bytes_.size());
            check(driver().stream_synchronize(current_stream()), "uploading a table");  // once: other streams may read it next
            here.bytes += bytes_.size();
            it = here.tables.emplace(bytes_, std::move(memory)).first;
        }
        data_ = it->second->as<char>();
    }
    template <class T> const T* at(int64_t offset) const { return reinterpret_cast<const T*>(data_ + offset); }

private:
    std::string bytes_;
    const char* data_ = nullptr;
    std::unique_ptr<Scratch> own_;
};

// For each of `n` values that map takes: which entries have it, in order.
struct Lists {
    std::vector<int64_t> start, entries;
    Lists(const int64_t* map, int64_t count, int64_t n) : start(size_t(n + 1)), entries(size_t(count)) {
        for (int64_t i = 0; i < count; i++) start[size_t(map[i] + 1)]++;
        for (int64_t i = 0; i < n; i++) start[size_t(i + 1)] += start[size_t(i)];
        std::vector<int64_t> next(start.begin(), start.end() - 1);
        for (int64_t i = 0; i < count; i++) entries[size_t(next[size_t(map[i])]++)] = i;
    }
};

void gather(DType d, const ImageMap& m, const void* input, void* output) {
    const int64_t n = m.planes * volume(m.out);
    const int count = together(d, m.out[2], output);
    static Instances<17 * 5 * 8> instances(file);
    Kernel* kernel = instances((int(item_size(d)) * 5 + count) * 8 + int(m.kind),
                               [&] { return str("image_gather<", item_size(d), ", ", count, ", ", int(m.kind), ">"); });
    if (n) launch_with(kernel, threads(n / count), {256}, 0, m, input, output, n);
}

void gather_grad(DType d, const ImageMap& m, const void* grad, void* input_grad) {
    struct {
        const int64_t *start[3], *to[3];
    } inverse;
    Table table;
    int64_t starts[3], entries[3];
    for (int i = 0; i < 3; i++) {
        const Lists lists(m.map[i], m.out[i], m.in[i]);
        starts[i] = table.add(lists.start);
        entries[i] = table.add(lists.entries);
    }
    table.upload();
    for (int i = 0; i < 3; i++) inverse.start[i] = table.at<int64_t>(starts[i]), inverse.to[i] = table.at<int64_t>(entries[i]);
    const int64_t n = m.planes * volume(m.in);
    if (n) launch_with(typed<struct GatherGrad>("image_gather_grad", d), threads(n), {256}, 0, m, inverse, grad, input_grad, n);
}

void resample(DType d, const ImageResample& given, const void* input, void* output) {
    ImageResample r = given;
    Table table;
    const int64_t index = table.add(std::vector<int64_t>(r.index, r.index + r.out * r.taps)),
                  weight = table.add(std::vector<double>(r.weight, r.weight + r.out * r.taps));
    table.upload();
    r.index = table.at<int64_t>(index);
    r.weight = table.at<double>(weight);
    const int64_t n = r.outer * r.out * r.inner;
    if (n) launch_with(typed<struct Resample>("image_resample", d), threads(n), {256}, 0, r, input, output, n);
}

void resample_grad(DType d, const ImageResample& given, const void* grad, void* input_grad) {
    ImageResample r = given;
    std::vector<int64_t> from, output;  // of the taps that count
    std::vector<double> weight;
    for (int64_t t = 0; t < r.out * r.taps; t++)
        if (r.weight[t] != 0) from.push_back(r.index[t]), output.push_back(t / r.taps), weight.push_back(r.weight[t]);
    const Lists lists(from.data(), int64_t(from.size()), r.in);
    std::vector<int64_t> outputs;
    std::vector<double> weights;
    for (int64_t e : lists.entries) outputs.push_back(output[size_t(e)]), weights.push_back(weight[size_t(e)]);
    Table table;
    const int64_t start = table.add(lists.start), to = table.add(outputs), w = table.add(weights);
    table.upload();
    r.index = table.at<int64_t>(to);
    r.weight = table.at<double>(w);
    const int64_t n = r.outer * r.in * r.inner;
    if (n)
        launch_with(typed<struct ResampleGrad>("image_resample_grad", d), threads(n), {256}, 0, r, table.at<int64_t>(start), grad,
                    input_grad, n);
}

void unfold(DType d, const ImageWindows& w, const void* input, void* columns) {
    const int64_t n = w.batch * w.channels * w.kernel[0] * w.kernel[1] * w.out[0] * w.out[1];
    const int count = together(d, w.out[1], columns);
    if (n) launch_with(sized<struct Unfold>("image_unfold", d, count), threads(n / count), {256}, 0, w, input, columns, n);
}
void fold(DType d, const ImageWindows& w, const void* columns, void* output) {
    const int64_t n = w.batch * w.channels * w.in[0] * w.in[1];
    if (n) launch_with(typed<struct Fold>("image_fold", d), threads(n), {256}, 0, w, columns, output, n);
}

// Whether points have four corners in a plane that has fewer than 2^31 places, and can be read as pairs.
bool is_plane(const GridSample& g, DType d, const void* grid) {
    return g.dims == 2 && uintptr_t(grid) % uintptr_t(2 * item_size(d)) == 0 && g.interpolation == GridInterpolation::bilinear &&
           volume(g.in) < (int64_t(1) << 31);
}

void grid_sample(DType d, const GridSample& g, const void* input, const void* grid, void* output) {
    const int64_t n = g.batch * volume(g.out);
    if (n * g.channels == 0) return;
    const int64_t share = std::max<int64_t>(8, (g.channels + 1023) / 1024);
    launch_with(is_plane(g, d, grid) ? typed<struct SamplePlane>("grid_sample_plane", d) : typed<struct Sample>("grid_sample", d),
                {threads(n).x, unsigned((g.channels + share - 1) / share)}, {256}, 0, g, input, grid, output, n, share);
}

void grid_sample_grad(DType d, const GridSample& g, const void* grad, const void* input, const void* grid, void* input_grad,
                      void* grid_grad) {
    const int64_t n = g.batch * volume(g.out), in_size = volume(g.in);
    const int taps = g.interpolation == GridInterpolation::nearest ? 1 : g.interpolation == GridInterpolation::bicubic ? 16 : 1 << g.dims;
    const int64_t words = g.batch * ((g.channels + 3) / 4);
    if (input_grad && n * g.channels > 0 && d == DType::f32 && is_plane(g, d, grid) && uintptr_t(grid_grad) % 8 == 0 && words < 65536) {
        const int64_t places = g.batch * g.channels * in_size;
        const int bits = bits_of_largest(4 * n);
        const size_t bytes = size_t(places * 8 + words * in_size * 4);
        Scratch memory(bytes);
        fill_zero(memory.data(), bytes);
        auto* sums = memory.as<unsigned long long>();
        auto* exponents = reinterpret_cast<unsigned*>(sums + places);
        static Kernel* const kernels[2] = {find_kernel(file, "grid_sample_plane_grad<false>"),
                                           find_kernel(file, "grid_sample_plane_grad<true>")};
        for (Kernel* kernel : kernels) launch_with(kernel, threads(n), {256}, 0, g, grad, input, grid, grid_grad, exponents, sums, n, bits);
        static Kernel* const result = find_kernel(file, "grid_sample_plane_result");
        launch_with(result, {threads(in_size).x, unsigned(words)}, {256}, 0, input_grad, exponents, sums, in_size, int(g.channels), bits);
        return;
    }
    if (input_grad) fill_zero(input_grad, size_t(g.batch * g.channels * in_size * item_size(d)));
    if (n * g.channels == 0) return;
    Kernel* points = typed<struct Points>("grid_sample_points", d);
    if (!input_grad) {
        launch_with(points, threads(n), {256}, 0, g, grad, input, grid, grid_grad, static_cast<uint64_t*>(nullptr),
                    static_cast<void*>(nullptr), n, taps);
        return;
    }
    Pairs pairs(n * taps);
    Scratch weights(size_t(n * taps * item_size(d)));
    launch_with(points, threads(n), {256}, 0, g, grad, input, grid, grid_grad, pairs.k, weights.data(), n, taps);
    pairs.sort(Pairs::bits_for(g.batch * in_size + 1));
    launch_with(typed<struct Sums>("grid_sample_sums", d), {threads(n * taps).x, unsigned(std::min<int64_t>((g.channels + 3) / 4, 1024))},
                {256}, 0, g, grad, pairs.k, pairs.p, weights.data(), input_grad, n * taps, taps);
}

}  // namespace

const ImageKernels image = {gather, gather_grad, resample, resample_grad, unfold, fold, grid_sample, grid_sample_grad, true};

}  // namespace wisp::cuda
