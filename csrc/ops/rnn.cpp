// One direction of one recurrent layer. Without a gradient of its own: wisp/nn/modules/rnn.py pairs the two operators,
// and differentiates the plain formula where second derivatives are asked for.
#include "../cpu/rnn.h"

#include "../python/registry.h"
#include "fused.h"

namespace wisp {
namespace {

cpu::RnnArgs describe(int64_t mode, bool reverse, const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight) {
    if (mode < 0 || mode > 3) throw ValueError("_rnn: no mode ", mode);
    if (x.dim() != 3 || h.dim() != 2 || weight.dim() != 2) throw RuntimeError("_rnn: bad shapes ", x.sizes(), ", ", h.sizes(), ", ", weight.sizes());
    cpu::RnnArgs a{};
    a.mode = cpu::RnnMode(mode);
    a.reverse = reverse;
    a.steps = x.size(0);
    a.batch = x.size(1);
    a.size = h.size(1);
    a.gates = x.size(2);
    const int64_t parts = a.mode == cpu::RnnMode::lstm ? 4 : a.mode == cpu::RnnMode::gru ? 3 : 1;
    const bool fits = a.steps > 0 && a.gates == parts * a.size && h.size(0) == a.batch && weight.size(0) == a.gates && weight.size(1) == a.size &&
                      (a.mode != cpu::RnnMode::lstm || (c && c.sizes() == h.sizes()));
    if (!fits) throw RuntimeError("_rnn: sizes do not fit: ", x.sizes(), ", ", h.sizes(), ", ", weight.sizes());
    const DType d = x.dtype();
    if ((d != DType::f32 && d != DType::f64) || h.dtype() != d || weight.dtype() != d || (c && c.dtype() != d))
        throw RuntimeError("_rnn: expected float or double throughout, got ", d, ", ", h.dtype(), ", ", weight.dtype());
    return a;
}

// Results: the outputs, what the backward pass needs of the gates, and the cells of an LSTM.
std::tuple<Tensor, Tensor, Tensor> rnn_forward(int64_t mode, bool reverse, const Tensor& x_, const Tensor& h_, const Tensor& c_, const Tensor& weight_,
                                               const Tensor& bias_) {
    GradMode off(false);
    cpu::RnnArgs a = describe(mode, reverse, x_, h_, c_, weight_);
    const DType d = x_.dtype();
    const Tensor x = kernel_input(x_), h = kernel_input(h_), c = kernel_input(c_), bias = kernel_input(bias_, d), weight = contiguous(transpose(weight_, 0, 1));
    const bool gated = a.mode == cpu::RnnMode::lstm || a.mode == cpu::RnnMode::gru;
    Tensor out = empty({a.steps, a.batch, a.size}, d), kept, cells;
    if (gated) kept = empty({a.steps, a.batch, 4 * a.size}, d);
    if (a.mode == cpu::RnnMode::lstm) cells = empty({a.steps, a.batch, a.size}, d);
    a.x = x.data();
    a.h = h.data();
    a.c = pointer(c);
    a.weight = weight.data();
    a.bias = pointer(bias);
    a.out = out.data();
    a.kept = kept ? kept.data() : nullptr;
    a.cells = cells ? cells.data() : nullptr;
    Unlocked unlocked(a.steps * a.batch * a.gates * a.size);
    cpu::rnn.forward(d, a);
    return {out, kept, cells};
}

// Gradients of the input's part of the gates, of the hidden part (a GRU's; else undefined), of h and of c.
std::tuple<Tensor, Tensor, Tensor, Tensor> rnn_backward(int64_t mode, bool reverse, const Tensor& x, const Tensor& h_, const Tensor& c_,
                                                        const Tensor& weight_, const Tensor& out, const Tensor& kept, const Tensor& cells,
                                                        const Tensor& grad_out_, const Tensor& grad_h, const Tensor& grad_c) {
    GradMode off(false);
    cpu::RnnArgs a = describe(mode, reverse, x, h_, c_, weight_);
    const DType d = x.dtype();
    const Tensor h = kernel_input(h_), c = kernel_input(c_), weight = kernel_input(weight_), grad_out = kernel_input(grad_out_, d);
    auto start = [&](const Tensor& g) { return g ? clone(kernel_input(g, d)) : zeros({a.batch, a.size}, d); };
    Tensor dx = empty({a.steps, a.batch, a.gates}, d), dhidden, dh = start(grad_h), dc;
    if (a.mode == cpu::RnnMode::gru) dhidden = empty({a.steps, a.batch, a.gates}, d);
    if (a.mode == cpu::RnnMode::lstm) dc = start(grad_c);
    a.h = h.data();
    a.c = pointer(c);
    a.weight = weight.data();
    a.out = const_cast<void*>(pointer(out));
    a.kept = const_cast<void*>(pointer(kept));
    a.cells = const_cast<void*>(pointer(cells));
    a.grad_out = pointer(grad_out);
    a.dh = dh.data();
    a.dc = dc ? dc.data() : nullptr;
    a.dx = dx.data();
    a.dhidden = dhidden ? dhidden.data() : nullptr;
    Unlocked unlocked(a.steps * a.batch * a.gates * a.size);
    cpu::rnn.backward(d, a);
    return {dx, dhidden, dh, dc};
}

}  // namespace

static const Operators operators = {
    {"_rnn_forward(int mode, bool reverse, Tensor x, Tensor h, Tensor? c, Tensor weight, Tensor? bias)", rnn_forward, function},
    {"_rnn_backward(int mode, bool reverse, Tensor x, Tensor h, Tensor? c, Tensor weight, Tensor output, Tensor? kept, Tensor? cells, Tensor? grad_out, "
     "Tensor? grad_h, Tensor? grad_c)", rnn_backward, function},
};

}  // namespace wisp
