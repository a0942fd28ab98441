// Convolution by cuDNN. Descriptions and the chosen algorithm are made once per shape and kept.
#include "conv.h"

#include <cstring>
#include <unordered_map>

#include "../core/device.h"
#include "../core/errors.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

// X(name in the table, symbol, parameters)
#define WISP_CUDNN(X)                                                                                                        \
    X(create, cudnnCreate, (Handle*))                                                                                        \
    X(set_stream, cudnnSetStream, (Handle, Handle))                                                                          \
    X(tensor, cudnnCreateTensorDescriptor, (Handle*))                                                                        \
    X(set_tensor, cudnnSetTensorNdDescriptor, (Handle, int type, int dims, const int* sizes, const int* strides))            \
    X(filter, cudnnCreateFilterDescriptor, (Handle*))                                                                        \
    X(set_filter, cudnnSetFilterNdDescriptor, (Handle, int type, int format, int dims, const int* sizes))                    \
    X(convolution, cudnnCreateConvolutionDescriptor, (Handle*))                                                              \
    X(set_convolution, cudnnSetConvolutionNdDescriptor, (Handle, int dims, const int*, const int*, const int*, int mode, int compute)) \
    X(set_groups, cudnnSetConvolutionGroupCount, (Handle, int))                                                              \
    X(set_math, cudnnSetConvolutionMathType, (Handle, int))                                                                  \
    X(choose_forward, cudnnGetConvolutionForwardAlgorithm_v7, (Handle, Handle, Handle, Handle, Handle, int, int*, void*))    \
    X(choose_input, cudnnGetConvolutionBackwardDataAlgorithm_v7, (Handle, Handle, Handle, Handle, Handle, int, int*, void*)) \
    X(choose_weight, cudnnGetConvolutionBackwardFilterAlgorithm_v7, (Handle, Handle, Handle, Handle, Handle, int, int*, void*)) \
    X(forward, cudnnConvolutionForward,                                                                                      \
      (Handle, const void*, Handle, const void*, Handle, const void*, Handle, int, void*, size_t, const void*, Handle, void*)) \
    X(input_grad, cudnnConvolutionBackwardData,                                                                              \
      (Handle, const void*, Handle, const void*, Handle, const void*, Handle, int, void*, size_t, const void*, Handle, void*)) \
    X(weight_grad, cudnnConvolutionBackwardFilter,                                                                           \
      (Handle, const void*, Handle, const void*, Handle, const void*, Handle, int, void*, size_t, const void*, Handle, void*)) \
    X(add, cudnnAddTensor, (Handle, const void*, Handle, const void*, const void*, Handle, void*))                           \
    X(error_text, cudnnGetErrorString, (int))

struct Cudnn {
#define WISP_X(name, symbol, parameters) Result(*name) parameters;
    WISP_CUDNN(WISP_X)
#undef WISP_X
};

const Cudnn& cudnn() {
    static const Cudnn table = [] {
        std::string tried;
        void* library = open_library("cudnn", {"libcudnn.so.9"}, tried);
        if (!library) throw RuntimeError("convolution on the GPU needs cuDNN 9, and it was not found (tried ", tried, "): pip install 'wisp[cuda]'");
        Cudnn t;
        auto** slot = reinterpret_cast<void**>(&t);
#define WISP_X(name, symbol, parameters) \
    if (!(*slot++ = library_symbol(library, #symbol))) throw RuntimeError("cuDNN lacks the function ", #symbol);
        WISP_CUDNN(WISP_X)
#undef WISP_X
        return t;
    }();
    return table;
}

void must(Result r, const char* what) {
    if (r != 0) throw RuntimeError("cuDNN error ", r, " (", what, ")");
}

Handle handle(int device) {
    static Handle handles[64] = {};
    if (!handles[device]) must(cudnn().create(&handles[device]), "starting");
    must(cudnn().set_stream(handles[device], current_stream()), "choosing the stream");
    return handles[device];
}

struct Key {
    cpu::ConvShape shape;
    int64_t product, dtype, device;
    bool operator==(const Key& o) const { return std::memcmp(this, &o, sizeof *this) == 0; }
};
struct HashKey {
    size_t operator()(const Key& k) const {
        uint64_t h = 1469598103934665603u;
        const auto* p = reinterpret_cast<const uint64_t*>(&k);
        for (size_t i = 0; i < sizeof k / 8; i++) h = (h ^ p[i]) * 1099511628211u;
        return h ^ h >> 29;
    }
};
struct Found {  // cudnnConvolution...AlgoPerf_t
    int algorithm, status;
    float time;
    size_t memory;
    int deterministic, math, reserved[3];
};
struct Plan {
    Handle x, y, w, convolution, bias;
    int algorithm;
    size_t workspace;
};

int data_type(DType d) {
    switch (d) {
        case DType::f32: return 0;
        case DType::f64: return 1;
        case DType::f16: return 2;
        case DType::bf16: return 9;
        default: throw RuntimeError("convolution on cuda is not implemented for '", name_of(d), "'");
    }
}

Handle tensor(int type, int64_t batch, int64_t channels, const int64_t* spatial, int dims) {
    int sizes[5], strides[5], n = 0;
    sizes[n++] = int(batch);
    sizes[n++] = int(channels);
    for (int d = 3 - dims; d < 3; d++) sizes[n++] = int(spatial[d]);
    int step = 1;
    for (int i = n - 1; i >= 0; i--) {
        strides[i] = step;
        step *= sizes[i];
    }
    Handle h;
    must(cudnn().tensor(&h), "describing a tensor");
    must(cudnn().set_tensor(h, type, n, sizes, strides), "describing a tensor");
    return h;
}

const Plan& plan_for(const Key& key) {
    static std::unordered_map<Key, Plan, HashKey> plans;
    auto it = plans.find(key);
    if (it != plans.end()) return it->second;
    const cpu::ConvShape& s = key.shape;
    const Cudnn& c = cudnn();
    const DType dtype = DType(key.dtype);
    const int type = data_type(dtype), dims = s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 ? 2 : 3;
    Plan p{};
    p.x = tensor(type, s.batch, s.in_channels, s.in, dims);
    p.y = tensor(type, s.batch, s.out_channels, s.out, dims);
    int sizes[5], pad[3], stride[3], dilation[3], n = 2;
    sizes[0] = int(s.out_channels);
    sizes[1] = int(s.in_channels / s.groups);
    for (int d = 3 - dims, i = 0; d < 3; d++, i++) {
        sizes[n++] = int(s.kernel[d]);
        pad[i] = int(s.padding[d]);
        stride[i] = int(s.stride[d]);
        dilation[i] = int(s.dilation[d]);
        const int64_t expected = (s.in[d] + 2 * s.padding[d] - s.dilation[d] * (s.kernel[d] - 1) - 1) / s.stride[d] + 1;
        if (s.padding[d] < 0 || expected != s.out[d])
            throw RuntimeError("convolution with different padding on both sides is not supported on cuda; pad the input first");
    }
    must(c.filter(&p.w), "describing a weight");
    must(c.set_filter(p.w, type, 0, n, sizes), "describing a weight");
    must(c.convolution(&p.convolution), "describing a convolution");
    must(c.set_convolution(p.convolution, dims, pad, stride, dilation, 1, dtype == DType::f64 ? 1 : 0), "describing a convolution");
    must(c.set_groups(p.convolution, int(s.groups)), "describing a convolution");
    must(c.set_math(p.convolution, dtype == DType::f64 ? 0 : 1), "describing a convolution");  // tensor cores, TF32 for float32, as PyTorch
    const int64_t ones[3] = {1, 1, 1};
    p.bias = tensor(type, 1, key.product == int64_t(ConvProduct::input) ? s.in_channels : s.out_channels, ones, dims);
    Found found[8];
    int count = 0;
    const Handle h = handle(int(key.device));
    if (key.product == int64_t(ConvProduct::output)) must(c.choose_forward(h, p.x, p.w, p.convolution, p.y, 8, &count, found), "choosing an algorithm");
    else if (key.product == int64_t(ConvProduct::input)) must(c.choose_input(h, p.w, p.y, p.convolution, p.x, 8, &count, found), "choosing an algorithm");
    else must(c.choose_weight(h, p.x, p.y, p.convolution, p.w, 8, &count, found), "choosing an algorithm");
    bool chosen = false;
    for (int i = 0; i < count && !chosen; i++) {
        // Only what gives the same result every time.
        if (found[i].status != 0 || !found[i].deterministic || found[i].memory > (size_t(1) << 30)) continue;
        p.algorithm = found[i].algorithm;
        p.workspace = found[i].memory;
        must(c.set_math(p.convolution, found[i].math), "describing a convolution");
        chosen = true;
    }
    if (!chosen) throw RuntimeError("cuDNN has no algorithm for this convolution in ", name_of(dtype));
    return plans.emplace(key, p).first->second;
}

}  // namespace

void convolve(ConvProduct product, DType dtype, const cpu::ConvShape& shape, const void* a, const void* b, const void* bias, void* out) {
    Key key{};
    key.shape = shape;
    key.product = int64_t(product);
    key.dtype = int64_t(dtype);
    key.device = current_device().index;
    const Plan& p = plan_for(key);
    const Cudnn& c = cudnn();
    const Handle h = handle(int(key.device));
    Scratch workspace(std::max<size_t>(p.workspace, 1));
    const double one_d = 1, zero_d = 0;
    const float one_f = 1, zero_f = 0;
    const void *one = dtype == DType::f64 ? static_cast<const void*>(&one_d) : &one_f, *zero = dtype == DType::f64 ? static_cast<const void*>(&zero_d) : &zero_f;
    if (product == ConvProduct::output)
        must(c.forward(h, one, p.x, a, p.w, b, p.convolution, p.algorithm, workspace.data(), p.workspace, zero, p.y, out), "a convolution");
    else if (product == ConvProduct::input)
        must(c.input_grad(h, one, p.w, b, p.y, a, p.convolution, p.algorithm, workspace.data(), p.workspace, zero, p.x, out), "the gradient of a convolution's input");
    else
        must(c.weight_grad(h, one, p.x, a, p.y, b, p.convolution, p.algorithm, workspace.data(), p.workspace, zero, p.w, out), "the gradient of a convolution's weight");
    if (bias) must(c.add(h, one, p.bias, bias, one, product == ConvProduct::input ? p.x : p.y, out), "adding a bias");
}

}  // namespace wisp::cuda
