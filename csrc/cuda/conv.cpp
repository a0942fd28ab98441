// Convolution by cuDNN's graphs. The plan of a shape is made once and kept.
#include "conv.h"

#include <unordered_map>
#include <vector>

#include "../core/device.h"
#include "../core/errors.h"
#include "cudnn.h"
#include "plan_key.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {

ConvSettings conv_settings;

namespace {

struct Key {
    ConvShape shape;
    int32_t product, dtype, device, channels_last, alignment, benchmark, deterministic, tf32;
};
Handle tensor(int64_t name, const Key& key, int64_t outer, int64_t channels, const int64_t* spatial, int dims) {
    int64_t sizes[5] = {outer, channels}, strides[5];
    for (int i = 0; i < dims; i++) sizes[2 + i] = spatial[3 - dims + i];
    int64_t step = key.channels_last ? channels : 1;
    for (int i = dims + 1; i > 1; i--) {
        strides[i] = step;
        step *= sizes[i];
    }
    strides[1] = key.channels_last ? 1 : step;
    strides[0] = key.channels_last ? step : step * channels;
    const int64_t alignment = key.alignment;
    const int type = data_type(DType(key.dtype));
    return describe_surely("a tensor", tensor_kind,
                           {{901, type_dtype, 1, &type},
                            {902, type_integer, dims + 2, sizes},
                            {903, type_integer, dims + 2, strides},
                            {906, type_integer, 1, &name},
                            {900, type_integer, 1, &alignment}});
}

Handle graph_of(const Key& key, Handle cudnn_handle) {
    const ConvShape& s = key.shape;
    const int dims = s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 ? 2 : 3, at = 3 - dims;
    const Handle x = tensor(0, key, s.batch, s.in_channels, s.in, dims),
                 w = tensor(1, key, s.out_channels, s.in_channels / s.groups, s.kernel, dims),
                 y = tensor(2, key, s.batch, s.out_channels, s.out, dims);
    const bool wide = DType(key.dtype) == DType::f64;
    const int compute = wide ? 1 : 0, cross_correlation = 1;
    const int64_t n = dims;
    const Handle convolution = describe_surely("the description", convolution_kind,
                                               {{100, type_dtype, 1, &compute},
                                                {101, type_mode, 1, &cross_correlation},
                                                {102, type_integer, dims, s.dilation + at},
                                                {103, type_integer, dims, s.stride + at},
                                                {104, type_integer, dims, s.padding + at},
                                                {105, type_integer, dims, s.padding + at},
                                                {106, type_integer, 1, &n}});
    const float one_f = 1, zero_f = 0;
    const double one_d = 1, zero_d = 0;
    const void *one = wide ? static_cast<const void*>(&one_d) : &one_f, *zero = wide ? static_cast<const void*>(&zero_d) : &zero_f;
    const int number = wide ? type_double : type_float;
    Handle operation;
    if (key.product == int(ConvProduct::output))
        operation = describe_surely("the forward product", forward_kind,
                                    {{700, number, 1, one},
                                     {701, number, 1, zero},
                                     {702, type_descriptor, 1, &convolution},
                                     {703, type_descriptor, 1, &w},
                                     {704, type_descriptor, 1, &x},
                                     {705, type_descriptor, 1, &y}});
    else if (key.product == int(ConvProduct::input))
        operation = describe_surely("the input's gradient", input_kind,
                                    {{706, number, 1, one},
                                     {707, number, 1, zero},
                                     {708, type_descriptor, 1, &convolution},
                                     {709, type_descriptor, 1, &w},
                                     {710, type_descriptor, 1, &x},
                                     {711, type_descriptor, 1, &y}});
    else
        operation = describe_surely("the weight's gradient", weight_kind,
                                    {{712, number, 1, one},
                                     {713, number, 1, zero},
                                     {714, type_descriptor, 1, &convolution},
                                     {715, type_descriptor, 1, &w},
                                     {716, type_descriptor, 1, &x},
                                     {717, type_descriptor, 1, &y}});
    return describe_surely("the graph", graph_kind, {{800, type_handle, 1, &cudnn_handle}, {801, type_descriptor, 1, &operation}});
}

// Whether the settings rule out what an engine does.
bool ruled_out(const Key& key, Handle configuration) {
    const bool single = DType(key.dtype) == DType::f32;
    for (int note : notes_of(configuration))
        if ((note == nondeterministic && key.deterministic) || (single && note == down_convert) ||
            (single && !key.tf32 && note == tensor_cores))
            return true;
    return false;
}

void run_engine(const EnginePlan& p, Handle cudnn_handle, const void* const* pointers) {
    const int64_t names[3] = {0, 1, 2};
    execute(p, cudnn_handle, names, pointers, 3);
}

float time_of(const EnginePlan& p, Handle cudnn_handle, const void* const* pointers) {
    const Driver& d = driver();
    Handle from, to;
    float best = 1e30f;
    check(d.event_create(&from, 0), "making an event");
    check(d.event_create(&to, 0), "making an event");
    for (int round = 0; round < 4; round++) {
        float time = 0;
        d.event_record(from, current_stream());
        run_engine(p, cudnn_handle, pointers);
        d.event_record(to, current_stream());
        d.event_synchronize(to);
        if (d.event_elapsed(&time, from, to) == 0 && round > 0) best = std::min(best, time);
    }
    d.event_destroy(from);
    d.event_destroy(to);
    return best;
}

EnginePlan make_plan(const Key& key, Handle cudnn_handle, const void* const* pointers) {
    const Cudnn& c = cudnn();
    const Handle graph = graph_of(key, cudnn_handle);
    EnginePlan best;
    float best_time = 1e30f;
    int tried = 0;
    for (int mode : {int(best_mode), int(fallback_mode)}) {
        for (Handle configuration : configurations_of(graph, mode)) {
            if (ruled_out(key, configuration)) continue;
            EnginePlan p = plan_of(configuration, cudnn_handle);
            if (!p.plan) continue;
            if (!key.benchmark) return p;
            const float time = time_of(p, cudnn_handle, pointers);
            if (time < best_time) {
                std::swap(best, p);
                best_time = time;
            }
            if (p.plan) c.destroy(p.plan);
            if (++tried == 10) return best;
        }
        if (best.plan) return best;
    }
    if (!key.deterministic) throw RuntimeError("cuDNN has no algorithm for this convolution in ", name_of(DType(key.dtype)));
    Key any = key;
    any.deterministic = false;
    return make_plan(any, cudnn_handle, pointers);
}

// By cuDNN. The padding is the same on both sides.
void convolve(ConvProduct product, DType dtype, const ConvShape& shape, bool channels_last, const void* a, const void* b, void* out) {
    const void* pointers[3] = {};  // x, w, y
    if (product == ConvProduct::output) pointers[0] = a, pointers[1] = b, pointers[2] = out;
    else if (product == ConvProduct::input) pointers[0] = out, pointers[1] = b, pointers[2] = a;
    else pointers[0] = a, pointers[1] = out, pointers[2] = b;
    Key key{};
    key.shape = shape;
    key.product = int32_t(product);
    key.dtype = int32_t(dtype);
    key.device = current_device().index;
    key.channels_last = channels_last;
    const uintptr_t all = uintptr_t(a) | uintptr_t(b) | uintptr_t(out) | 16;
    key.alignment = int32_t(all & -all);
    key.benchmark = conv_settings.benchmark;
    key.deterministic = conv_settings.deterministic;
    key.tf32 = conv_settings.tf32;
    static std::unordered_map<Key, EnginePlan, HashBytes<Key>, SameBytes<Key>> plans;
    const Handle h = cudnn_handle_of(key.device);
    auto it = plans.find(key);
    if (it == plans.end()) it = plans.emplace(key, make_plan(key, h, pointers)).first;
    Timed timed(product == ConvProduct::output  ? "cuDNN convolution"
                : product == ConvProduct::input ? "cuDNN gradient of input"
                                                : "cuDNN gradient of weight");
    run_engine(it->second, h, pointers);
}

#include "../kernels/conv_phases_arguments.h"

// The gradient of a float input of few channels whose convolution has a stride, by phases (kernels/conv_phases.cuh): cuDNN's engines that
// add in a fixed order take two to three times as long. False: nothing was done.
bool phase_convolve(DType dtype, const ConvShape& s, bool channels_last, const void* grad, const void* weight, void* out) {
    const int64_t stride = s.stride[1], phases = s.in_channels * stride * stride;
    if (dtype != DType::f32 || s.groups != 1 || s.in[0] != 1 || s.out[0] != 1 || s.kernel[0] != 1 || s.padding[0] != 0 || stride < 2 ||
        s.stride[2] != stride || s.dilation[1] != 1 || s.dilation[2] != 1 || phases > 32 || s.out_channels < 16 || s.out_channels > 4096 ||
        s.kernel[1] <= stride || s.kernel[2] <= stride || s.kernel[1] > 16 || s.kernel[2] > 16)
        return false;
    ConvShape without = s;
    ConvPhases p{int(s.in_channels), int(s.out_channels), int(stride)};
    without.in_channels = s.out_channels, without.out_channels = phases;
    for (int d = 0; d < 2; d++) {
        const int64_t taps = (s.kernel[1 + d] + stride - 1) / stride, rows = s.out[1 + d] + taps - 1;
        without.in[1 + d] = s.out[1 + d], without.out[1 + d] = rows, without.kernel[1 + d] = taps;
        without.stride[1 + d] = 1, without.padding[1 + d] = taps - 1;
        p.kernel[d] = int(s.kernel[1 + d]), p.taps[d] = int(taps), p.in[d] = int(s.in[1 + d]), p.rows[d] = int(rows);
        p.padding[d] = int(s.padding[1 + d]);
    }
    const int64_t weights = phases * s.out_channels * p.taps[0] * p.taps[1], n = s.batch * s.in_channels * s.in[1] * s.in[2];
    const Scratch turned(size_t(weights) * 4), joined(size_t(s.batch * phases) * size_t(p.rows[0]) * size_t(p.rows[1]) * 4);
    static Instances<4> kernels("cuda/kernels/conv_phases.cuh");
    auto kernel = [&](int which, const char* name) {
        return kernels(which * 2 + channels_last, [&] { return str(name, channels_last ? "<true>" : "<false>"); });
    };
    launch_with(kernel(0, "phase_weights"), {unsigned((weights + 255) / 256)}, {256}, 0, p, weight, turned.data(), int(weights));
    convolve(ConvProduct::output, dtype, without, channels_last, grad, turned.data(), joined.data());
    launch_with(kernel(1, "phase_join"), {unsigned((n + 255) / 256)}, {256}, 0, p, static_cast<const void*>(joined.data()), out, n);
    return true;
}

// Planes [n, channels, spatial...], contiguous or with the channels last.
struct Planes {
    int64_t sizes[5], strides[5];
    Planes(int64_t n, int64_t channels, const int64_t* spatial, bool last) : sizes{n, channels, spatial[0], spatial[1], spatial[2]} {
        int64_t step = last ? channels : 1;
        for (int d = 4; d >= 2; d--) strides[d] = step, step *= sizes[d];
        strides[1] = last ? 1 : step;
        strides[0] = last ? step : step * channels;
    }
    int64_t count() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]; }
};

// `to` is `from` with before[d] zeros in front of each spatial dimension and what is missing behind; negative amounts cut.
void frame(DType dtype, const Planes& to, void* out, const Planes& from, const void* in, const int64_t* before) {
    fill_zero(out, size_t(to.count() * item_size(dtype)));
    Dims sizes(from.sizes, 5);
    char *target = static_cast<char*>(out), *source = static_cast<char*>(const_cast<void*>(in));
    for (int d = 0; d < 3; d++) {
        const int64_t skipped = std::max<int64_t>(-before[d], 0), first = std::max<int64_t>(before[d], 0);
        sizes[2 + d] = std::min(from.sizes[2 + d] - skipped, to.sizes[2 + d] - first);
        if (sizes[2 + d] <= 0) return;
        source += skipped * from.strides[2 + d] * item_size(dtype);
        target += first * to.strides[2 + d] * item_size(dtype);
    }
    copy_elements({target, dtype, to.strides, nullptr}, {source, dtype, from.strides, nullptr}, sizes, false);
}

void add_bias(DType dtype, const Planes& planes, const void* bias, void* out) {
    const int64_t along[5] = {0, 1, 0, 0, 0};
    const Operand result{static_cast<char*>(out), dtype, planes.strides, nullptr};
    const Operand operands[3] = {result, result, {static_cast<char*>(const_cast<void*>(bias)), dtype, along, nullptr}};
    elementwise(Pointwise::add, which_forward, compute_dtype(dtype), operands, 3, Dims(planes.sizes, 5), nullptr);
}

void multiply(ConvProduct product, DType dtype, const ConvShape& s, bool channels_last, const void* a, const void* b, const void* bias,
              void* out) {
    const Planes input(s.batch, s.in_channels, s.in, channels_last), output(s.batch, s.out_channels, s.out, channels_last);
    const Planes& result = product == ConvProduct::output ? output : input;
    const int64_t weights = s.out_channels * (s.in_channels / s.groups) * s.kernel[0] * s.kernel[1] * s.kernel[2];
    if ((product != ConvProduct::input && input.count() == 0) || (product != ConvProduct::output && output.count() == 0) ||
        (product != ConvProduct::weight && weights == 0)) {
        fill_zero(out, size_t((product == ConvProduct::weight ? weights : result.count()) * item_size(dtype)));
        if (bias) add_bias(dtype, result, bias, out);
        return;
    }
    if (dtype == DType::i64) return integer_convolve(product, s, a, b, bias, out);
    // cuDNN takes the same padding on both sides: what is left over is added to the input, or cut from it.
    ConvShape even = s;
    int64_t before[3] = {}, back[3] = {};
    for (int d = 0; d < 3; d++) {
        const int64_t window = s.dilation[d] * (s.kernel[d] - 1) + 1, room = s.in[d] + 2 * s.padding[d] - window;
        if (s.padding[d] >= 0 && room >= 0 && room / s.stride[d] + 1 == s.out[d]) continue;
        const int64_t behind = (s.out[d] - 1) * s.stride[d] + window - s.in[d] - s.padding[d],
                      common = std::max<int64_t>(0, std::min(s.padding[d], behind));
        before[d] = s.padding[d] - common, back[d] = -before[d];
        even.in[d] += before[d] + behind - common;
        even.padding[d] = common;
    }
    if (std::memcmp(&even, &s, sizeof s) != 0) {
        const Planes whole(s.batch, s.in_channels, even.in, channels_last);
        Scratch framed(size_t(whole.count() * item_size(dtype)));
        if (product == ConvProduct::input) {
            multiply(product, dtype, even, channels_last, a, b, nullptr, framed.data());
            frame(dtype, input, out, whole, framed.data(), back);
            if (bias) add_bias(dtype, result, bias, out);
        } else {
            frame(dtype, whole, framed.data(), input, a, before);
            multiply(product, dtype, even, channels_last, framed.data(), b, bias, out);
        }
        return;
    }
    if (!channels_last && (small_convolve(product, dtype, s, a, b, bias, out) || depthwise_convolve(product, dtype, s, a, b, bias, out) ||
                           patch_convolve(product, dtype, s, a, b, bias, out)))
        return;
    if (product != ConvProduct::input || !phase_convolve(dtype, s, channels_last, a, b, out))
        convolve(product, dtype, s, channels_last, a, b, out);
    if (bias) add_bias(dtype, result, bias, out);
}

bool gradients(const ConvShape& s, const void* input, const void* grad, void* weight, void* bias) {
    return small_conv_gradients(DType::f32, s, input, grad, weight, bias);
}

}  // namespace

const ConvKernels conv = {multiply, nullptr, gradients, true};

int64_t cudnn_version() {
    try {
        return int64_t(cudnn().version());
    } catch (const Error&) { return 0; }
}

}  // namespace wisp::cuda
