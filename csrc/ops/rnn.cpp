// One direction of one recurrent layer: one operator and one node, with kernels for forward and backward. The plain formula,
// of other operators, is for second derivatives and for dtypes that the kernels do not take.
#include "../kernels/rnn.h"

#include <algorithm>
#include <vector>

#include "../kernels/gemm.h"
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
        l.starts.push_back(plus(l.starts.back(), count));
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

// What a layer is called with; biases, the projection and the first state may be missing.
struct Given {
    int64_t mode;
    bool reverse;
    std::optional<Dims> batch_sizes;
    Tensor x, weight_input, weight, bias_input, bias, project, h, c;
    bool lstm() const { return kernels::RnnMode(mode) == kernels::RnnMode::lstm; }
    Layer layer() const { return describe(mode, reverse, x, batch_sizes, weight_input, weight, project, h, c); }
};
// What the backward pass needs besides: gates, the cells of an LSTM, the outputs before they were projected, and the copy of
// an x that was not contiguous.
struct Kept {
    Tensor out, gates, cells, wide, x;
};
struct Results {
    Tensor out, h, c;
};

// --- the plain formula ------------------------------------------------------------------------------------------------------

struct State {
    Tensor h, c;
    template <class F> State each(F&& f) const { return {f(h), c ? f(c) : Tensor()}; }
};

Tensor part(const Tensor& t, int64_t number, int64_t size, int64_t count = 1) { return narrow(t, -1, number * size, count * size); }

Tensor plus_product(const Tensor& a, const Tensor& b, const Tensor& c) {
    const Params params = params_of(Scalar(1));
    return pointwise(Pointwise::addcmul, a, b, c, &params);
}

// One step from what the input contributes.
State step(const Given& in, const Tensor& x, const State& s) {
    if (in.lstm()) {
        const int64_t size = s.c.size(-1);
        const Tensor gates = addmm(x, s.h, transpose(in.weight, 0, 1), 1, 1), open = sigmoid(gates);
        const Tensor c = plus_product(part(open, 1, size) * s.c, part(open, 0, size), tanh(part(gates, 2, size)));
        const Tensor h = part(open, 3, size) * tanh(c);
        return {in.project ? linear(h, in.project, {}) : h, c};
    }
    if (kernels::RnnMode(in.mode) == kernels::RnnMode::gru) {
        const int64_t size = s.h.size(-1);
        const Tensor hidden = linear(s.h, in.weight, in.bias), gates = sigmoid(part(x, 0, size, 2) + part(hidden, 0, size, 2));
        const Tensor fresh = tanh(plus_product(part(x, 2, size), part(gates, 0, size), part(hidden, 2, size)));
        return {fresh + part(gates, 1, size) * (s.h - fresh), {}};
    }
    const Tensor sum = addmm(x, s.h, transpose(in.weight, 0, 1), 1, 1);
    return {kernels::RnnMode(in.mode) == kernels::RnnMode::relu ? relu(sum) : tanh(sum), {}};
}

// Steps over (steps, sequences, features).
Results run_steps(const Given& in, const Tensor& x, State s) {
    TensorList inputs = unbind(x, 0), outputs;
    outputs.resize(inputs.size());
    for (int64_t k = 0; k < inputs.size(); k++) {
        const int64_t t = in.reverse ? inputs.size() - 1 - k : k;
        s = step(in, inputs[t], s);
        outputs[t] = s.h;
    }
    return {stack(outputs, 0), s.h, s.c};
}

// The same over packed sequences, of which ever fewer are as long as the time goes on.
Results run_packed(const Given& in, const Tensor& x, State s) {
    const Dims& sizes = *in.batch_sizes;
    TensorList inputs = split(x, sizes, 0), outputs;
    const int64_t steps = inputs.size();
    outputs.resize(steps);
    if (in.reverse) {  // sequences join as time runs back to where they end
        const State first = s;
        s = first.each([&](const Tensor& t) { return narrow(t, 0, 0, sizes[steps - 1]); });
        for (int64_t t = steps - 1; t >= 0; t--) {
            const int64_t active = s.h.size(0), more = sizes[t] - active;
            if (more > 0)
                s = {cat({s.h, narrow(first.h, 0, active, more)}, 0), s.c ? cat({s.c, narrow(first.c, 0, active, more)}, 0) : s.c};
            s = step(in, inputs[t], s);
            outputs[t] = s.h;
        }
        return {cat(outputs, 0), s.h, s.c};
    }
    TensorList finished_h, finished_c;  // sequences leave as they end
    auto leave = [&](const State& ended) {
        finished_h.push_back(ended.h);
        if (ended.c) finished_c.push_back(ended.c);
    };
    for (int64_t t = 0; t < steps; t++) {
        const int64_t active = s.h.size(0), n = sizes[t];
        if (n < active) {
            leave(s.each([&](const Tensor& state) { return narrow(state, 0, n, active - n); }));
            s = s.each([&](const Tensor& state) { return narrow(state, 0, 0, n); });
        }
        s = step(in, inputs[t], s);
        outputs[t] = s.h;
    }
    leave(s);
    std::reverse(finished_h.begin(), finished_h.end());  // those that ended last are the first of the batch
    std::reverse(finished_c.begin(), finished_c.end());
    return {cat(outputs, 0), cat(finished_h, 0), finished_c.empty() ? Tensor() : cat(finished_c, 0)};
}

Results plain_layer(const Given& in) {
    const int64_t sequences = in.batch_sizes ? (*in.batch_sizes)[0] : in.x.size(1);
    const int64_t size = in.lstm() ? in.weight.size(0) / 4 : in.weight.size(1);
    const State first{in.h ? in.h : zeros({sequences, in.weight.size(1)}, in.x.dtype()),
                      in.c || !in.lstm() ? in.c : zeros({sequences, size}, in.x.dtype())};
    // The input's part of all steps in one product. Only a GRU needs the second bias apart.
    const bool apart = !in.bias_input || kernels::RnnMode(in.mode) == kernels::RnnMode::gru;
    const Tensor contributions = linear(in.x, in.weight_input, apart ? in.bias_input : in.bias_input + in.bias);
    return in.batch_sizes ? run_packed(in, contributions, first) : run_steps(in, contributions, first);
}

// --- the kernels ------------------------------------------------------------------------------------------------------------

// A first state, which the kernels overwrite; none is zeros.
Tensor start(const Tensor& t, int64_t sequences, int64_t width, DType d) {
    return t ? clone(kernel_input(t, d)) : zeros({sequences, width}, d);
}

std::pair<Results, Kept> run_forward(const Given& in) {
    GradMode off(false);
    Layer l = in.layer();
    kernels::RnnArgs& a = l.args;
    const DType d = in.x.dtype();
    const bool lstm = a.mode == kernels::RnnMode::lstm, gru = a.mode == kernels::RnnMode::gru;
    const Tensor x = kernel_input(in.x), weight = forward_weight(in.weight), project = forward_weight(in.project);
    // Only a GRU needs the second bias apart.
    const Tensor bias = kernel_input(in.bias, d);
    const Tensor bias_input = gru || !in.bias || !in.bias_input ? kernel_input(in.bias_input || gru ? in.bias_input : in.bias, d)
                                                                : kernel_input(in.bias_input + in.bias, d);
    const Tensor h = start(in.h, l.sequences, a.width, d), c = lstm ? start(in.c, l.sequences, a.size, d) : Tensor();
    a.from_zeros = !in.h;
    const Tensor out = empty({l.rows, a.width}, d);
    Tensor kept, cells, wide, contributions;
    if (lstm || gru) kept = empty({l.rows, 4 * a.size}, d);
    if (lstm) cells = empty({l.rows, a.size}, d);
    if (project) wide = empty({l.rows, a.size}, d);
    // Where both weights of an LSTM stay in the cache, the input's part is made when it is needed. Else it is one
    // product, in the place where the gates will be.
    const bool later = lstm && step_by_step(a, x);
    if (!later) contributions = lstm ? kept : empty({l.rows, a.gates}, d);
    const Tensor weight_input = kernel_input(in.weight_input);
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
    return {{out, h, c}, {out, kept, cells, wide, in.x.is_contiguous() ? Tensor() : x}};
}

enum Input { of_x, of_weight_input, of_weight, of_bias_input, of_bias, of_h, of_c, of_project, inputs };

// Gradients of the inputs, undefined where they are not needed.
void run_backward_kernels(Backward& bw, const Given& in, const Kept& forward) {
    auto needs = [&](Input i) { return i < bw.node.next.size() && bw.needs(i); };
    auto grad = [&](int i) { return i < bw.node.outputs.size() && bw.has_grad(i) ? bw.grad(i) : Tensor(); };
    const Tensor grad_out_ = grad(0), grad_h = grad(1), grad_c = grad(2);
    GradMode off(false);
    Layer l = in.layer();
    kernels::RnnArgs& a = l.args;
    const DType d = in.x.dtype();
    const bool lstm = a.mode == kernels::RnnMode::lstm, gru = a.mode == kernels::RnnMode::gru;
    const Tensor x = kernel_input(in.x), h = in.h ? kernel_input(in.h) : zeros({l.sequences, a.width}, d),
                 c = in.c || !lstm ? kernel_input(in.c) : zeros({l.sequences, a.size}, d), weight = kernel_input(in.weight),
                 weight_input = kernel_input(in.weight_input), project = kernel_input(in.project), grad_out = kernel_input(grad_out_, d);
    Tensor dx = empty({l.rows, a.gates}, d), dhidden, dh = start(grad_h, l.sequences, a.width, d), dc, dprojected, before, dinput, dbias;
    if (gru) dhidden = empty({l.rows, a.gates}, d);
    if (lstm) dc = start(grad_c, l.sequences, a.size, d);
    if (project) dprojected = empty({l.rows, a.width}, d);
    if (in.batch_sizes) before = empty({l.rows, a.width}, d);
    if (kernels::rnn().own_products) dbias = empty({gru ? 2 : 1, a.gates}, d);
    if (needs(of_x) && step_by_step(a, x)) dinput = empty({l.rows, a.features}, d);
    a.h = pointer(h), a.c = pointer(c);
    a.weight = weight.device_data(), a.weight_input = weight_input.device_data(), a.project = pointer(project);
    a.out = pointer(forward.out), a.kept = pointer(forward.gates), a.cells = pointer(forward.cells);
    a.grad_out = pointer(grad_out);
    a.dh = dh.device_data(), a.dc = pointer(dc), a.dx = dx.device_data(), a.dhidden = pointer(dhidden);
    a.dprojected = pointer(dprojected), a.dinput = pointer(dinput), a.dbias = pointer(dbias), a.before = pointer(before);
    a.from_zeros = !needs(of_h);
    a.starts = l.starts.data();
    {
        Unlocked unlocked(l.rows * a.gates * a.width);
        kernels::rnn().backward(d, a);
    }
    const Tensor& from_hidden = gru ? dhidden : dx;
    auto turned = [](const Tensor& t, int64_t first, int64_t count) { return transpose(narrow(t, 0, first, count), 0, 1); };
    if (needs(of_x)) bw.set(of_x, view(dinput ? dinput : mm(dx, weight_input), x.sizes()));
    if (needs(of_weight_input)) bw.set(of_weight_input, mm(turned(dx, 0, l.rows), view(x, {l.rows, a.features})));
    if (needs(of_weight) && before) bw.set(of_weight, mm(turned(from_hidden, 0, l.rows), before));
    else if (needs(of_weight)) {  // the state before a step is the output of another one, or the first
        const int64_t batch = l.sequences, later = l.rows - batch;
        Tensor sum;
        if (in.h || later == 0) sum = mm(turned(from_hidden, in.reverse ? later : 0, batch), h);
        if (later > 0) {
            const Tensor of_later = turned(from_hidden, in.reverse ? 0 : batch, later),
                         states = narrow(forward.out, 0, in.reverse ? batch : 0, later);
            sum = sum ? addmm(sum, of_later, states, 1, 1) : mm(of_later, states);
        }
        bw.set(of_weight, sum);
    }
    if (needs(of_bias_input)) bw.set(of_bias_input, dbias ? clone(select(dbias, 0, 0)) : sum(dx, {0}));
    if (needs(of_bias)) bw.set(of_bias, dbias ? clone(select(dbias, 0, gru ? 1 : 0)) : sum(from_hidden, {0}));
    if (needs(of_project)) bw.set(of_project, mm(turned(dprojected, 0, l.rows), forward.wide));
    if (needs(of_h)) bw.set(of_h, dh);
    if (needs(of_c)) bw.set(of_c, dc);
}

// Gradients that can be differentiated again: those of the plain formula.
void differentiate_plain(Backward& bw, const Given& in) {
    const Tensor given[inputs] = {in.x, in.weight_input, in.weight, in.bias_input, in.bias, in.h, in.c, in.project};
    const Results r = plain_layer(in);
    const Tensor results[] = {r.out, r.h, r.c};
    BackwardRequest request;
    request.create_graph = request.retain_graph = request.allow_unused = true;
    request.accumulate = false;
    for (int i = 0; i < bw.node.outputs.size(); i++)
        if (bw.has_grad(i)) {
            request.roots.push_back(results[i]);
            request.grads.push_back(bw.grad(i));
        }
    for (int i = 0; i < bw.node.next.size(); i++)
        if (bw.needs(i)) request.inputs.push_back(given[i]);
    const TensorList found = run_backward(request);
    for (int i = 0, k = 0; i < bw.node.next.size(); i++)
        if (bw.needs(i)) bw.set(i, found[k++]);
}

const char* node_name(const Given& in) {
    if (in.x.is_cuda()) return "CudnnRnnBackward0";
    constexpr const char* names[] = {"RnnTanhBackward0", "RnnReluBackward0", "MkldnnRnnLayerBackward0", "GruBackward0"};
    return names[in.mode];
}

// A node's own part of what a layer was called with: tensors are in its list of saved ones.
struct Call {
    int64_t mode;
    bool reverse;
    std::optional<Dims> batch_sizes;
};

std::tuple<Tensor, Tensor, Tensor> layer(const Given& in) {
    auto [results, kept] = run_forward(in);
    if (!in.batch_sizes)
        results.out = alias(results.out, Layout{{in.x.size(0), in.x.size(1), results.out.size(1)},
                                                contiguous_strides({in.x.size(0), in.x.size(1), results.out.size(1)}),
                                                0});
    if (needs_grad(in.x, in.weight_input, in.weight, in.bias_input, in.bias, in.project, in.h, in.c)) {
        TensorList outputs{results.out, results.h}, edges{in.x, in.weight_input, in.weight, in.bias_input, in.bias, in.h, in.c};
        if (in.lstm()) outputs.push_back(results.c);
        if (in.project) edges.push_back(in.project);
        const Tensor saved[] = {in.x,       in.weight_input, in.weight,  in.bias_input, in.bias,   in.h,  in.c,
                                in.project, kept.out,        kept.gates, kept.cells,    kept.wide, kept.x};
        record_many(spanned(outputs), node_name(in), spanned(edges), saved,
                    [call = Call{in.mode, in.reverse, in.batch_sizes}](Backward& bw) {
                        auto t = [&](int i) { return bw.saved(i); };
                        Given in{call.mode, call.reverse, call.batch_sizes, t(0), t(1), t(2), t(3), t(4), t(7), t(5), t(6)};
                        if (bw.create_graph) return differentiate_plain(bw, in);
                        if (const Tensor x = t(12)) in.x = x;
                        run_backward_kernels(bw, in, {t(8), t(9), t(10), t(11)});
                    });
    }
    return {results.out, results.h, results.c};
}

#define LAYER                                                                                                                     \
    "(int mode, bool reverse, Tensor x, int[]? batch_sizes, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor? w_hr, " \
    "Tensor? h, Tensor? c)"
template <auto run> std::tuple<Tensor, Tensor, Tensor> called(int64_t mode, bool reverse, const Tensor& x, std::optional<Dims> batch_sizes,
                                                              const Tensor& weight_input, const Tensor& weight, const Tensor& bias_input,
                                                              const Tensor& bias, const Tensor& project, const Tensor& h, const Tensor& c) {
    if (mode < 0 || mode > 3) throw ValueError("_rnn: no mode ", mode);
    return run(Given{mode, reverse, std::move(batch_sizes), x, weight_input, weight, bias_input, bias, project, h, c});
}
std::tuple<Tensor, Tensor, Tensor> plain(const Given& in) {
    const Results r = plain_layer(in);
    return {r.out, r.h, r.c};
}

}  // namespace

static const Operators operators = {
    {"_rnn_layer" LAYER, called<layer>, function},
    {"_rnn_steps" LAYER, called<plain>, function},
};

}  // namespace wisp
