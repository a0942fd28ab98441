// One direction of one recurrent layer. Without a gradient of its own: wisp/nn/modules/rnn.py pairs the two operators,
// and differentiates the plain formula where second derivatives are asked for.
#include "../kernels/rnn.h"

#include <vector>

#include "../kernels/gemm.h"
#include "../python/registry.h"
#include "fused.h"
#include "matmul.h"

namespace wisp {
namespace {

struct Layer {
    kernels::RnnArgs args{};
    std::vector<int64_t> starts;
    int64_t rows = 0, sequences = 0;
};

// x is (steps, sequences, features), or (rows, features) with the number of sequences at each step.
Layer describe(int64_t mode, bool reverse, const Tensor& x, const std::optional<Dims>& batch_sizes, const Tensor& weight_input,
               const Tensor& weight, const Tensor& project, const Tensor& h, const Tensor& c) {
    if (mode < 0 || mode > 3) throw ValueError("_rnn: no mode ", mode);
    if (x.dim() != (batch_sizes ? 2 : 3) || (h && h.dim() != 2) || weight.dim() != 2 || weight_input.dim() != 2)
        throw RuntimeError("_rnn: bad shapes ", x.sizes(), ", ", weight_input.sizes(), ", ", weight.sizes());
    Layer l;
    kernels::RnnArgs& a = l.args;
    a.mode = kernels::RnnMode(mode);
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
    a.width = weight.size(1);
    a.size = project ? project.size(-1) : a.width;
    a.gates = weight.size(0);
    const bool lstm = a.mode == kernels::RnnMode::lstm;
    const int64_t parts = lstm ? 4 : a.mode == kernels::RnnMode::gru ? 3 : 1;
    const bool fits = a.steps > 0 && a.gates == parts * a.size && (!h || h.sizes() == Dims{l.sequences, a.width}) &&
                      weight_input.size(0) == a.gates && weight_input.size(1) == a.features && (!batch_sizes || x.size(0) == l.rows) &&
                      (!project || (lstm && project.sizes() == Dims{a.width, a.size})) && (!lstm || bool(c) == bool(h)) &&
                      (!c || c.sizes() == Dims{l.sequences, a.size});
    if (!fits) throw RuntimeError("_rnn: sizes do not fit: ", x.sizes(), ", ", weight_input.sizes(), ", ", weight.sizes());
    const DType d = x.dtype();
    for (const Tensor* t : {&h, &c, &weight, &weight_input, &project})
        if (*t && t->dtype() != d) throw RuntimeError("_rnn: expected ", d, " throughout, got ", t->dtype());
    if (d != DType::f32 && d != DType::f64) throw RuntimeError("_rnn: expected float or double, got ", d);
    return l;
}

// (rows, gates) = x W' + bias into a given place.
void project_input(const Layer& l, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out) {
    const kernels::RnnArgs& a = l.args;
    kernels::GemmArgs g{l.rows, a.gates,    a.features,        x.device_data(), a.features, 1, weight.device_data(),
                        1,      a.features, out.device_data(), a.gates};
    if (bias) g.d = bias.device_data(), g.d_row = 0, g.d_col = 1, g.beta = 1;
    kernels::gemm().matmul(x.dtype(), g);
}

// A weight as the forward kernel takes it.
Tensor forward_weight(const Tensor& t) { return t && !kernels::rnn().own_products ? contiguous(transpose(t, 0, 1)) : kernel_input(t); }

// Whether both weights of a layer stay in a core's cache, so that products with them are best made step by step.
bool step_by_step(const kernels::RnnArgs& a, const Tensor& x) {
    return kernels::rnn().own_products && (a.width + a.features) * a.gates * item_size(x.dtype()) <= (768 << 10);
}

// A first state, which the kernels overwrite; none is zeros.
Tensor start(const Tensor& t, int64_t sequences, int64_t width, DType d) {
    return t ? clone(kernel_input(t, d)) : zeros({sequences, width}, d);
}

// Results: the outputs, the last states, and what the backward pass needs: gates, the cells of an LSTM, and the outputs
// before they were projected.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_forward(int64_t mode, bool reverse, const Tensor& x_,
                                                                       std::optional<Dims> batch_sizes, const Tensor& weight_input_,
                                                                       const Tensor& weight_, const Tensor& bias_input_,
                                                                       const Tensor& bias_, const Tensor& project_, const Tensor& h_,
                                                                       const Tensor& c_) {
    GradMode off(false);
    Layer l = describe(mode, reverse, x_, batch_sizes, weight_input_, weight_, project_, h_, c_);
    kernels::RnnArgs& a = l.args;
    const DType d = x_.dtype();
    const bool lstm = a.mode == kernels::RnnMode::lstm, gru = a.mode == kernels::RnnMode::gru;
    const Tensor x = kernel_input(x_), weight = forward_weight(weight_), project = forward_weight(project_);
    // Only a GRU needs the second bias apart.
    const Tensor bias = kernel_input(bias_, d);
    const Tensor bias_input =
        gru || !bias_ || !bias_input_ ? kernel_input(bias_input_ || gru ? bias_input_ : bias_, d) : kernel_input(bias_input_ + bias_, d);
    const Tensor h = start(h_, l.sequences, a.width, d), c = lstm ? start(c_, l.sequences, a.size, d) : Tensor();
    a.from_zeros = !h_;
    const Tensor out = empty({l.rows, a.width}, d);
    Tensor kept, cells, wide, contributions;
    if (lstm || gru) kept = empty({l.rows, 4 * a.size}, d);
    if (lstm) cells = empty({l.rows, a.size}, d);
    if (project) wide = empty({l.rows, a.size}, d);
    // Where both weights of an LSTM stay in the cache, the input's part is made when it is needed. Else it is one
    // product, in the place where the gates will be.
    const bool later = lstm && step_by_step(a, x);
    if (!later) contributions = lstm ? kept : empty({l.rows, a.gates}, d);
    const Tensor weight_input = kernel_input(weight_input_);
    a.input = x.device_data(), a.weight_input = pointer(weight_input), a.bias_input = pointer(bias_input);
    a.x = pointer(contributions);
    a.h = h.device_data(), a.c = pointer(c);
    a.weight = weight.device_data(), a.bias = pointer(bias), a.project = pointer(project);
    a.out = out.device_data();
    a.kept = pointer(kept), a.cells = pointer(cells), a.wide = pointer(wide);
    a.starts = l.starts.data();
    Unlocked unlocked(l.rows * a.gates * (a.width + a.features));
    if (!later) project_input(l, x, weight_input, bias_input, contributions);
    kernels::rnn().forward(d, a);
    return {out, h, c, kept, cells, wide};
}

// Gradients of x, the five weights, h and c; undefined where `needs` says so.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_backward(
    int64_t mode, bool reverse, const Tensor& x_, std::optional<Dims> batch_sizes, const Tensor& weight_input_, const Tensor& weight_,
    const Tensor& project_, const Tensor& h_, const Tensor& c_, const Tensor& out, const Tensor& kept, const Tensor& cells,
    const Tensor& wide, const Tensor& grad_out_, const Tensor& grad_h, const Tensor& grad_c, const Dims& needs) {
    GradMode off(false);
    Layer l = describe(mode, reverse, x_, batch_sizes, weight_input_, weight_, project_, h_, c_);
    if (needs.size() != 8) throw RuntimeError("_rnn: expected eight needs, got ", needs.size());
    kernels::RnnArgs& a = l.args;
    const DType d = x_.dtype();
    const bool lstm = a.mode == kernels::RnnMode::lstm, gru = a.mode == kernels::RnnMode::gru;
    const Tensor x = kernel_input(x_), h = h_ ? kernel_input(h_) : zeros({l.sequences, a.width}, d),
                 c = c_ || !lstm ? kernel_input(c_) : zeros({l.sequences, a.size}, d), weight = kernel_input(weight_),
                 weight_input = kernel_input(weight_input_), project = kernel_input(project_), grad_out = kernel_input(grad_out_, d);
    Tensor dx = empty({l.rows, a.gates}, d), dhidden, dh = start(grad_h, l.sequences, a.width, d), dc, dprojected, before, dinput, dbias;
    if (gru) dhidden = empty({l.rows, a.gates}, d);
    if (lstm) dc = start(grad_c, l.sequences, a.size, d);
    if (project) dprojected = empty({l.rows, a.width}, d);
    if (batch_sizes) before = empty({l.rows, a.width}, d);
    if (kernels::rnn().own_products) dbias = empty({gru ? 2 : 1, a.gates}, d);
    if (needs[0] && step_by_step(a, x)) dinput = empty({l.rows, a.features}, d);
    a.h = pointer(h), a.c = pointer(c);
    a.weight = weight.device_data(), a.weight_input = weight_input.device_data(), a.project = pointer(project);
    a.out = pointer(out), a.kept = pointer(kept), a.cells = pointer(cells);
    a.grad_out = pointer(grad_out);
    a.dh = dh.device_data(), a.dc = pointer(dc), a.dx = dx.device_data(), a.dhidden = pointer(dhidden);
    a.dprojected = pointer(dprojected), a.dinput = pointer(dinput), a.dbias = pointer(dbias), a.before = pointer(before);
    a.from_zeros = !needs[6];
    a.starts = l.starts.data();
    {
        Unlocked unlocked(l.rows * a.gates * a.width);
        kernels::rnn().backward(d, a);
    }
    const Tensor& from_hidden = gru ? dhidden : dx;
    auto turned = [](const Tensor& t, int64_t first, int64_t count) { return transpose(narrow(t, 0, first, count), 0, 1); };
    Tensor d_ih, d_hh, d_b_ih, d_b_hh, d_hr;
    if (needs[0] && !dinput) dinput = mm(dx, weight_input);
    if (needs[1]) d_ih = mm(turned(dx, 0, l.rows), view(x, {l.rows, a.features}));
    if (needs[2] && before) d_hh = mm(turned(from_hidden, 0, l.rows), before);
    else if (needs[2]) {  // the state before a step is the output of another one, or the first
        const int64_t batch = l.sequences, later = l.rows - batch;
        if (h_ || later == 0) d_hh = mm(turned(from_hidden, reverse ? later : 0, batch), h);
        if (later > 0) {
            const Tensor of_later = turned(from_hidden, reverse ? 0 : batch, later), states = narrow(out, 0, reverse ? batch : 0, later);
            d_hh = d_hh ? addmm(d_hh, of_later, states, 1, 1) : mm(of_later, states);
        }
    }
    if (needs[3]) d_b_ih = dbias ? clone(select(dbias, 0, 0)) : sum(dx, {0});
    if (needs[4]) d_b_hh = dbias ? clone(select(dbias, 0, gru ? 1 : 0)) : sum(from_hidden, {0});
    if (needs[5]) d_hr = mm(turned(dprojected, 0, l.rows), wide);
    if (dinput) dinput = view(dinput, x.sizes());
    return {dinput, d_ih, d_hh, d_b_ih, d_b_hh, d_hr, needs[6] ? dh : Tensor(), needs[7] ? dc : Tensor()};
}

}  // namespace

static const Operators operators = {
    {"_rnn_forward(int mode, bool reverse, Tensor x, int[]? batch_sizes, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, "
     "Tensor? w_hr, Tensor? h, Tensor? c)",
     rnn_forward, function},
    {"_rnn_backward(int mode, bool reverse, Tensor x, int[]? batch_sizes, Tensor w_ih, Tensor w_hh, Tensor? w_hr, Tensor? h, Tensor? c, "
     "Tensor output, Tensor? kept, Tensor? cells, Tensor? wide, Tensor? grad_out, Tensor? grad_h, Tensor? grad_c, int[] needs)",
     rnn_backward, function},
};

}  // namespace wisp
