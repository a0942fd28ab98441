// One direction of one recurrent layer. Without a gradient of its own: wisp/nn/modules/rnn.py pairs the two operators,
// and differentiates the plain formula where second derivatives are asked for.
#include "../cpu/rnn.h"

#include <vector>

#include "../cpu/gemm.h"
#include "../cuda/gemm.h"
#include "../cuda/tables.h"
#include "../python/registry.h"
#include "fused.h"

namespace wisp {
namespace {

struct Layer {
    cpu::RnnArgs args{};
    std::vector<int64_t> starts;
    int64_t rows = 0, sequences = 0;
};

// x is (steps, sequences, features), or (rows, features) with the number of sequences at each step.
Layer describe(int64_t mode, bool reverse, const Tensor& x, const std::optional<Dims>& batch_sizes, const Tensor& weight_input,
               const Tensor& weight, const Tensor& project, const Tensor& h, const Tensor& c) {
    if (mode < 0 || mode > 3) throw ValueError("_rnn: no mode ", mode);
    if (x.dim() != (batch_sizes ? 2 : 3) || h.dim() != 2 || weight.dim() != 2 || weight_input.dim() != 2)
        throw RuntimeError("_rnn: bad shapes ", x.sizes(), ", ", h.sizes(), ", ", weight_input.sizes(), ", ", weight.sizes());
    Layer l;
    cpu::RnnArgs& a = l.args;
    a.mode = cpu::RnnMode(mode);
    a.reverse = reverse;
    a.steps = batch_sizes ? batch_sizes->size() : x.size(0);
    l.starts.push_back(0);
    for (int64_t s = 0; s < a.steps; s++) {
        const int64_t count = batch_sizes ? (*batch_sizes)[s] : x.size(1);
        if (count < 0 || (s > 0 && count > l.starts[s] - l.starts[s - 1]))
            throw RuntimeError("_rnn: batch_sizes must not grow, got ", *batch_sizes);
        l.starts.push_back(l.starts.back() + count);
    }
    l.rows = l.starts.back();
    l.sequences = a.steps ? l.starts[1] : 0;
    a.features = x.size(-1);
    a.width = h.size(1);
    a.size = project ? project.size(-1) : a.width;
    a.gates = weight.size(0);
    const bool lstm = a.mode == cpu::RnnMode::lstm;
    const int64_t parts = lstm ? 4 : a.mode == cpu::RnnMode::gru ? 3 : 1;
    const bool fits = a.steps > 0 && a.gates == parts * a.size && h.size(0) == l.sequences && weight.size(1) == a.width &&
                      weight_input.size(0) == a.gates && weight_input.size(1) == a.features &&
                      (!batch_sizes || x.size(0) == l.rows) && (!project || (lstm && project.sizes() == Dims{a.width, a.size})) &&
                      (!lstm || (c && c.sizes() == Dims{l.sequences, a.size}));
    if (!fits)
        throw RuntimeError("_rnn: sizes do not fit: ", x.sizes(), ", ", h.sizes(), ", ", weight_input.sizes(), ", ", weight.sizes());
    const DType d = x.dtype();
    for (const Tensor* t : {&h, &c, &weight, &weight_input, &project})
        if (*t && t->dtype() != d) throw RuntimeError("_rnn: expected ", d, " throughout, got ", t->dtype());
    if (d != DType::f32 && d != DType::f64) throw RuntimeError("_rnn: expected float or double, got ", d);
    return l;
}

// (rows, gates) = x W' + bias into a given place.
void project_input(const Layer& l, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out) {
    const cpu::RnnArgs& a = l.args;
    cpu::GemmArgs g{l.rows, a.gates, a.features, x.device_data(), a.features, 1, weight.device_data(), 1, a.features, out.device_data(), a.gates};
    if (bias) g.d = bias.device_data(), g.d_row = 0, g.d_col = 1, g.beta = 1;
    if (x.is_cuda()) cuda::matmul(x.dtype(), g);
    else cpu::gemm.matmul(x.dtype(), g);
}

Tensor turned(const Tensor& t) { return t ? contiguous(transpose(t, 0, 1)) : t; }

// Results: the outputs, the last states, and what the backward pass needs: gates, the cells of an LSTM, and the outputs
// before they were projected.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_forward(
    int64_t mode, bool reverse, const Tensor& x_, std::optional<Dims> batch_sizes, const Tensor& weight_input_,
    const Tensor& weight_, const Tensor& bias_input_, const Tensor& bias_, const Tensor& project_, const Tensor& h_, const Tensor& c_) {
    GradMode off(false);
    Layer l = describe(mode, reverse, x_, batch_sizes, weight_input_, weight_, project_, h_, c_);
    cpu::RnnArgs& a = l.args;
    const DType d = x_.dtype();
    const bool lstm = a.mode == cpu::RnnMode::lstm, gru = a.mode == cpu::RnnMode::gru;
    const Tensor x = kernel_input(x_), weight = turned(weight_), project = turned(project_);
    // Only a GRU needs the second bias apart.
    const Tensor bias = kernel_input(bias_, d);
    const Tensor bias_input = gru || !bias_ || !bias_input_ ? kernel_input(bias_input_ || gru ? bias_input_ : bias_, d)
                                                            : kernel_input(bias_input_ + bias_, d);
    const Tensor h = clone(kernel_input(h_)), c = c_ ? clone(kernel_input(c_)) : c_;
    const Tensor out = empty({l.rows, a.width}, d);
    Tensor kept, cells, wide, contributions, weight_input;
    if (lstm || gru) kept = empty({l.rows, 4 * a.size}, d);
    if (lstm) cells = empty({l.rows, a.size}, d);
    if (project) wide = empty({l.rows, a.size}, d);
    // Where both weights of an LSTM stay in the cache, the input's part is made when it is needed. Else it is one
    // product, in the place where the gates will be.
    const bool step_by_step = lstm && !x.is_cuda() && (a.width + a.features) * a.gates * item_size(d) <= (768 << 10);
    if (step_by_step) weight_input = turned(weight_input_);
    else contributions = lstm ? kept : empty({l.rows, a.gates}, d);
    const Tensor weight_rows = step_by_step ? Tensor() : kernel_input(weight_input_);
    a.input = x.device_data(), a.weight_input = pointer(weight_input), a.bias_input = pointer(bias_input);
    a.x = pointer(contributions);
    a.h = h.device_data(), a.c = const_cast<void*>(pointer(c));
    a.weight = weight.device_data(), a.bias = pointer(bias), a.project = pointer(project);
    a.out = out.device_data();
    a.kept = const_cast<void*>(pointer(kept)), a.cells = const_cast<void*>(pointer(cells)), a.wide = const_cast<void*>(pointer(wide));
    a.starts = l.starts.data();
    Unlocked unlocked(l.rows * a.gates * (a.width + a.features));
    if (!step_by_step) project_input(l, x, weight_rows, bias_input, contributions);
    on_device(cpu::rnn, cuda::rnn).forward(d, a);
    return {out, h, c, kept, cells, wide};
}

// Gradients of the gates, of their hidden part (a GRU's; else undefined), of h, of c, of the projected outputs, and the
// states before each step (with batch_sizes; else they are h and the outputs themselves).
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_backward(
    int64_t mode, bool reverse, const Tensor& x, std::optional<Dims> batch_sizes, const Tensor& weight_input, const Tensor& weight_,
    const Tensor& project_, const Tensor& h_, const Tensor& c_, const Tensor& out, const Tensor& kept, const Tensor& cells,
    const Tensor& grad_out_, const Tensor& grad_h, const Tensor& grad_c) {
    GradMode off(false);
    Layer l = describe(mode, reverse, x, batch_sizes, weight_input, weight_, project_, h_, c_);
    cpu::RnnArgs& a = l.args;
    const DType d = x.dtype();
    const Tensor h = kernel_input(h_), c = kernel_input(c_), weight = kernel_input(weight_), project = kernel_input(project_),
                 grad_out = kernel_input(grad_out_, d);
    auto start = [&](const Tensor& g, int64_t width) { return g ? clone(kernel_input(g, d)) : zeros({l.sequences, width}, d); };
    Tensor dx = empty({l.rows, a.gates}, d), dhidden, dh = start(grad_h, a.width), dc, dprojected, before;
    if (a.mode == cpu::RnnMode::gru) dhidden = empty({l.rows, a.gates}, d);
    if (a.mode == cpu::RnnMode::lstm) dc = start(grad_c, a.size);
    if (project) dprojected = empty({l.rows, a.width}, d);
    if (batch_sizes) before = empty({l.rows, a.width}, d);
    auto writable = [](const Tensor& t) { return const_cast<void*>(pointer(t)); };
    a.h = writable(h), a.c = writable(c);
    a.weight = weight.device_data(), a.project = pointer(project);
    a.out = writable(out), a.kept = writable(kept), a.cells = writable(cells);
    a.grad_out = pointer(grad_out);
    a.dh = dh.device_data(), a.dc = writable(dc), a.dx = dx.device_data(), a.dhidden = writable(dhidden);
    a.dprojected = writable(dprojected), a.before = writable(before);
    a.starts = l.starts.data();
    Unlocked unlocked(l.rows * a.gates * a.width);
    on_device(cpu::rnn, cuda::rnn).backward(d, a);
    return {dx, dhidden, dh, dc, dprojected, before};
}

}  // namespace

static const Operators operators = {
    {"_rnn_forward(int mode, bool reverse, Tensor x, int[]? batch_sizes, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, "
     "Tensor? w_hr, Tensor h, Tensor? c)", rnn_forward, function},
    {"_rnn_backward(int mode, bool reverse, Tensor x, int[]? batch_sizes, Tensor w_ih, Tensor w_hh, Tensor? w_hr, Tensor h, Tensor? c, "
     "Tensor output, Tensor? kept, Tensor? cells, Tensor? grad_out, Tensor? grad_h, Tensor? grad_c)", rnn_backward, function},
};

}  // namespace wisp
