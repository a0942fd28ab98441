// Optimizer steps: one call over all parameters of a group. What wisp.optim calls; the formulas are in
// wisp/optim/_formulas.py. Nothing here is recorded; every tensor that is written gets a new version.
#include "../kernels/optimizer.h"

#include <cmath>
#include <vector>

#include "../cuda/runtime.h"
#include "../python/registry.h"
#include "fused.h"

namespace wisp {
namespace {

using kernels::OptimizerRule;
using kernels::OptimizerSettings;
using kernels::OptimizerTensor;

// The tensors of one step as flat runs of numbers. Those that lie otherwise in memory are copied and written back.
class Batch {
public:
    OptimizerTensor& add(const Tensor& param, const Tensor& grad, std::initializer_list<Tensor> states) {
        if (!(param.sizes() == grad.sizes()) || param.dtype() != grad.dtype())
            throw RuntimeError("optimizer: a parameter of shape ", param.sizes(), " and dtype ", param.dtype(), " has a gradient of shape ",
                               grad.sizes(), " and dtype ", grad.dtype());
        if (!is_differentiable(param.dtype())) throw RuntimeError("optimizer: cannot update a parameter of dtype ", param.dtype());
        // One dense order of elements that all of them share needs no copy: usually all are contiguous.
        bool shared = param.layout().is_non_overlapping_and_dense() && same_places(grad, param);
        for (const Tensor& s : states) {
            if (s && (!(s.sizes() == param.sizes()) || s.dtype() != param.dtype()))
                throw RuntimeError("optimizer: a parameter of shape ", param.sizes(), " and dtype ", param.dtype(),
                                   " has a state of shape ", s.sizes(), " and dtype ", s.dtype());
            shared = shared && (!s || same_places(s, param));
        }
        const bool complex = is_complex(param.dtype());
        OptimizerTensor t{real_of(param.dtype()), param.numel() * (complex ? 2 : 1), written(param, shared), read(grad, shared), {}, {}};
        int i = 0;
        for (const Tensor& s : states) t.state[i++] = s ? written(s, shared) : nullptr;
        check_same_device("optimizer", param, grad);
        for (const Tensor& s : states)
            if (s) check_same_device("optimizer", param, s);
        items_.push_back(t);
        devices_.push_back(param.device());
        return items_.back();
    }
    const Tensor& keep(const Tensor& t) { return kept_.emplace_back(t); }
    void run(OptimizerRule rule, const OptimizerSettings& settings) {
        int64_t work = 0;
        for (const OptimizerTensor& t : items_) work += t.n;
        // Parameters may be spread over devices: one call each.
        std::vector<bool> done(items_.size());
        for (size_t i = 0; i < items_.size(); i++) {
            if (done[i]) continue;
            std::vector<OptimizerTensor> here;
            for (size_t j = i; j < items_.size() && devices_in_use; j++)
                if (devices_[j] == devices_[i]) {
                    here.push_back(items_[j]);
                    done[j] = true;
                }
            const std::vector<OptimizerTensor>& list = devices_in_use ? here : items_;
            OnDevice on(devices_[i]);
            Unlocked unlocked(work);
            kernels::optimizer().step(rule, settings, list.data(), int64_t(list.size()));
            if (!devices_in_use) break;
        }
        for (auto& [original, copy] : copies_) copy_values(original, copy);
        for (const Tensor& t : written_) bump_version(t);
    }

private:
    void* written(const Tensor& t, bool in_place) {
        written_.push_back(t);
        if (in_place) return place(t);
        GradMode off(false);
        const Tensor copy = contiguous(t);
        if (!copy.same(t)) copies_.emplace_back(t, copy);
        kept_.push_back(copy);
        return place(copy);
    }
    const void* read(const Tensor& t, bool in_place) {
        if (in_place) return place(t);
        kept_.push_back(kernel_input(t));
        return place(kept_.back());
    }
    // Strides of dimensions of size 1 say nothing.
    static bool same_places(const Tensor& a, const Tensor& b) {
        for (int64_t d = 0; d < a.dim(); d++)
            if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
        return true;
    }
    static char* place(const Tensor& t) { return static_cast<char*>(t.storage()->data()) + t.offset() * t.item_size(); }
    std::vector<OptimizerTensor> items_;
    std::vector<Device> devices_;
    std::vector<std::pair<Tensor, Tensor>> copies_;
    std::vector<Tensor> kept_, written_;
};

void check_lengths(const TensorList& params, std::initializer_list<const TensorList*> lists) {
    for (const TensorList* l : lists)
        if (l->size() != params.size())
            throw RuntimeError("optimizer: ", params.size(),
                               " parameters, "
                               "but a list of ",
                               l->size(), " tensors with them");
}

double value_of(const Tensor& t) { return item(t).to_double(); }
void set_value(const Tensor& t, double v) {
    Scalar(v).store(t.data(), t.dtype());
    bump_version(t);
}
double next_step(const Tensor& step) {
    if (cuda::is_captured())
        throw RuntimeError(
            "optimizer: a step with its count on the CPU would be the same at every replay of the graph that is being captured; "
            "make the optimizer with capturable=True");
    const double t = value_of(step) + 1;
    set_value(step, t);
    return t;
}

OptimizerSettings settings_of(double lr, double weight_decay, double eps, bool maximize) {
    OptimizerSettings s;
    s.lr = lr, s.weight_decay = weight_decay, s.eps = eps, s.maximize = maximize;
    return s;
}

void sgd_step(const TensorList& params, const TensorList& grads, PyObject* buffers, double lr, double momentum, double dampening,
              double weight_decay, bool nesterov, bool maximize) {
    check_lengths(params, {&grads});
    OptimizerSettings s = settings_of(lr, weight_decay, 0, maximize);
    s.momentum = momentum, s.dampening = dampening, s.nesterov = nesterov;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++) {
        if (momentum == 0) {
            batch.add(params[i], grads[i], {});
            continue;
        }
        if (!PyList_Check(buffers) || PyList_GET_SIZE(buffers) != params.size())
            throw RuntimeError("optimizer: momentum needs a list of ", params.size(), " buffers");
        PyObject* entry = PyList_GET_ITEM(buffers, i);
        const bool fresh = entry == Py_None;
        if (!fresh && !is_tensor(entry)) throw TypeError("optimizer: a momentum buffer must be a Tensor or None");
        const Tensor buffer = fresh ? empty_like(params[i]) : Tensor::borrow(as_tensor_object(entry));
        batch.add(params[i], grads[i], {buffer}).k[0] = fresh;
        if (fresh) {
            Tensor given = buffer;
            PyList_SetItem(buffers, i, given.release());
        }
    }
    batch.run(OptimizerRule::sgd, s);
}

// Counts of steps that lie on the GPU are not waited for: kernels make of them what Adam reads. Null for those on the CPU.
std::vector<double*> numbers_on_devices(const OptimizerSettings& s, const TensorList& steps, const TensorList& params, const Tensor& lr,
                                        Batch& batch) {
    std::vector<double*> numbers(size_t(steps.size()));
    for (int64_t i = 0; i < steps.size(); i++) {
        if (!steps[i].is_cuda() || numbers[size_t(i)]) continue;
        const DType dtype = steps[i].dtype();
        const Device device = steps[i].device();
        std::vector<void*> here;
        std::vector<int64_t> places;
        OnDevice on(device);
        for (int64_t j = i; j < steps.size(); j++)
            if (steps[j].device() == device && steps[j].dtype() == dtype) {
                if (steps[j].numel() != 1 || !is_floating(dtype))
                    throw RuntimeError("optimizer: a count of steps must be one floating number");
                check_same_device("optimizer", params[j], steps[j]);
                here.push_back(steps[j].device_data());
                places.push_back(j);
                bump_version(steps[j]);
            }
        if (dtype != DType::f32 && dtype != DType::f64)
            throw RuntimeError("optimizer: a count of steps must be float32 or float64, got ", dtype);
        const Tensor rate = lr && lr.is_cuda() ? to(to(lr, device), lr.dtype() == DType::f64 ? DType::f64 : DType::f32) : Tensor();
        const Tensor made = batch.keep(empty({int64_t(here.size()), 4}, DType::f64));
        if (rate) batch.keep(rate);
        double* first = made.device_data<double>();
        cuda::optimizer.adam_numbers(s, here.data(), int64_t(here.size()), dtype, rate ? rate.device_data() : nullptr,
                                     rate ? rate.dtype() : DType::f32, first);
        for (size_t k = 0; k < places.size(); k++) numbers[size_t(places[k])] = first + 4 * k;
    }
    return numbers;
}

void adam_step(const TensorList& params, const TensorList& grads, const TensorList& averages, const TensorList& squares,
               const TensorList& maxima, const TensorList& steps, double lr, double beta1, double beta2, double eps, double weight_decay,
               bool amsgrad, bool maximize, bool decoupled, const Tensor& lr_tensor) {
    check_lengths(params, {&grads, &averages, &squares, &steps});
    if (amsgrad) check_lengths(params, {&maxima});
    OptimizerSettings s = settings_of(lr, weight_decay, eps, maximize);
    s.beta1 = beta1, s.beta2 = beta2, s.decoupled = decoupled;
    Batch batch;
    const std::vector<double*> numbers = numbers_on_devices(s, steps, params, lr_tensor, batch);
    for (int64_t i = 0; i < params.size(); i++) {
        const double t = numbers[size_t(i)] ? 1 : next_step(steps[i]);
        OptimizerTensor& x = batch.add(params[i], grads[i], {averages[i], squares[i], amsgrad ? maxima[i] : Tensor()});
        x.numbers = numbers[size_t(i)];
        x.k[0] = lr / (1 - std::pow(beta1, t));
        x.k[1] = 1 / std::sqrt(1 - std::pow(beta2, t));
    }
    batch.run(OptimizerRule::adam, s);
}

void adamax_step(const TensorList& params, const TensorList& grads, const TensorList& averages, const TensorList& norms,
                 const TensorList& steps, double lr, double beta1, double beta2, double eps, double weight_decay, bool maximize) {
    check_lengths(params, {&grads, &averages, &norms, &steps});
    OptimizerSettings s = settings_of(lr, weight_decay, eps, maximize);
    s.beta1 = beta1, s.beta2 = beta2;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++)
        batch.add(params[i], grads[i], {averages[i], norms[i]}).k[0] = lr / (1 - std::pow(beta1, next_step(steps[i])));
    batch.run(OptimizerRule::adamax, s);
}

void nadam_step(const TensorList& params, const TensorList& grads, const TensorList& averages, const TensorList& squares,
                const TensorList& products, const TensorList& steps, double lr, double beta1, double beta2, double eps, double weight_decay,
                double momentum_decay, bool decoupled, bool maximize) {
    check_lengths(params, {&grads, &averages, &squares, &products, &steps});
    OptimizerSettings s = settings_of(lr, weight_decay, eps, maximize);
    s.beta1 = beta1, s.beta2 = beta2, s.decoupled = decoupled;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++) {
        const double t = next_step(steps[i]);
        const double mu = beta1 * (1 - 0.5 * std::pow(0.96, t * momentum_decay)),
                     next = beta1 * (1 - 0.5 * std::pow(0.96, (t + 1) * momentum_decay));
        set_value(products[i], value_of(products[i]) * mu);
        const double product = value_of(products[i]);
        OptimizerTensor& x = batch.add(params[i], grads[i], {averages[i], squares[i]});
        x.k[0] = lr * (1 - mu) / (1 - product);
        x.k[1] = lr * next / (1 - product * next);
        x.k[2] = 1 / (1 - std::pow(beta2, t));
    }
    batch.run(OptimizerRule::nadam, s);
}

void radam_step(const TensorList& params, const TensorList& grads, const TensorList& averages, const TensorList& squares,
                const TensorList& steps, double lr, double beta1, double beta2, double eps, double weight_decay, bool decoupled,
                bool maximize) {
    check_lengths(params, {&grads, &averages, &squares, &steps});
    OptimizerSettings s = settings_of(lr, weight_decay, eps, maximize);
    s.beta1 = beta1, s.beta2 = beta2, s.decoupled = decoupled;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++) {
        const double t = next_step(steps[i]), bias = 1 - std::pow(beta2, t);
        const double limit = 2 / (1 - beta2) - 1, length = limit - 2 * t * std::pow(beta2, t) / bias;
        OptimizerTensor& x = batch.add(params[i], grads[i], {averages[i], squares[i]});
        x.k[0] = lr / (1 - std::pow(beta1, t));
        const double rectification = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length);
        x.k[1] = length > 5 ? std::sqrt(rectification) * std::sqrt(bias) : 0;
    }
    batch.run(OptimizerRule::radam, s);
}

void adagrad_step(const TensorList& params, const TensorList& grads, const TensorList& sums, const TensorList& steps, double lr,
                  double lr_decay, double weight_decay, double eps, bool maximize) {
    check_lengths(params, {&grads, &sums, &steps});
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++)
        batch.add(params[i], grads[i], {sums[i]}).k[0] = lr / (1 + (next_step(steps[i]) - 1) * lr_decay);
    batch.run(OptimizerRule::adagrad, settings_of(lr, weight_decay, eps, maximize));
}

void adadelta_step(const TensorList& params, const TensorList& grads, const TensorList& squares, const TensorList& deltas,
                   const TensorList& steps, double lr, double rho, double eps, double weight_decay, bool maximize) {
    check_lengths(params, {&grads, &squares, &deltas, &steps});
    OptimizerSettings s = settings_of(lr, weight_decay, eps, maximize);
    s.beta2 = rho;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++) {
        next_step(steps[i]);
        batch.add(params[i], grads[i], {squares[i], deltas[i]});
    }
    batch.run(OptimizerRule::adadelta, s);
}

void rmsprop_step(const TensorList& params, const TensorList& grads, const TensorList& squares, const TensorList& averages,
                  const TensorList& buffers, const TensorList& steps, double lr, double alpha, double eps, double weight_decay,
                  double momentum, bool centered, bool maximize) {
    check_lengths(params, {&grads, &squares, &steps});
    if (centered) check_lengths(params, {&averages});
    if (momentum > 0) check_lengths(params, {&buffers});
    OptimizerSettings s = settings_of(lr, weight_decay, eps, maximize);
    s.beta2 = alpha, s.momentum = momentum;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++) {
        next_step(steps[i]);
        batch.add(params[i], grads[i], {squares[i], centered ? averages[i] : Tensor(), momentum > 0 ? buffers[i] : Tensor()});
    }
    batch.run(OptimizerRule::rmsprop, s);
}

void rprop_step(const TensorList& params, const TensorList& grads, const TensorList& previous, const TensorList& sizes,
                const TensorList& steps, double least, double most, double minus, double plus, bool maximize) {
    check_lengths(params, {&grads, &previous, &sizes, &steps});
    OptimizerSettings s = settings_of(0, 0, 0, maximize);
    s.step_min = least, s.step_max = most, s.eta_minus = minus, s.eta_plus = plus;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++) {
        next_step(steps[i]);
        batch.add(params[i], grads[i], {previous[i], sizes[i]});
    }
    batch.run(OptimizerRule::rprop, s);
}

void asgd_step(const TensorList& params, const TensorList& grads, const TensorList& averages, const TensorList& mus, const TensorList& etas,
               const TensorList& steps, double lr, double lambd, double alpha, double t0, double weight_decay, bool maximize) {
    check_lengths(params, {&grads, &averages, &mus, &etas, &steps});
    OptimizerSettings s = settings_of(lr, weight_decay, 0, maximize);
    s.beta1 = lambd;
    Batch batch;
    for (int64_t i = 0; i < params.size(); i++) {
        const double t = next_step(steps[i]);
        OptimizerTensor& x = batch.add(params[i], grads[i], {averages[i]});
        x.k[0] = value_of(etas[i]);
        x.k[1] = value_of(mus[i]);
        set_value(etas[i], lr / std::pow(1 + lambd * lr * t, alpha));
        set_value(mus[i], 1 / std::fmax(1, t - t0));
    }
    batch.run(OptimizerRule::asgd, s);
}

// ---- lists of gradients

std::vector<OptimizerTensor> plain_list(const TensorList& tensors) {
    std::vector<OptimizerTensor> list;
    for (const Tensor& t : tensors)
        list.push_back({real_of(t.dtype()), t.numel() * (is_complex(t.dtype()) ? 2 : 1), t.device_data(), nullptr, {}, {}});
    return list;
}

// The sum of the squares of all elements of all tensors, and of what was summed before, in double.
Tensor sum_of_squares(const TensorList& tensors, const Tensor& before) {
    if (tensors.empty()) throw RuntimeError("_sum_of_squares: expected a tensor");
    TensorList dense;
    int64_t work = 0;
    for (const Tensor& t : tensors) {
        if (!is_differentiable(t.dtype())) throw RuntimeError("_sum_of_squares: expected floating tensors, got ", t.dtype());
        dense.push_back(t.layout().is_non_overlapping_and_dense() ? t : kernel_input(t));
        work += t.numel();
    }
    const std::vector<OptimizerTensor> list = plain_list(dense);
    GradMode off(false);
    const Tensor total = empty({}, DType::f64);
    {
        Unlocked unlocked(work);
        kernels::optimizer().sum_squares(list.data(), int64_t(list.size()), total.device_data<double>());
    }
    return before ? total + before : total;
}

// Multiplies every tensor by a number, in place.
void scale_tensors(const TensorList& tensors, double factor) {
    TensorList dense;
    for (const Tensor& t : tensors) {
        if (is_differentiable(t.dtype()) && t.layout().is_non_overlapping_and_dense()) {
            dense.push_back(t);
        } else {
            GradMode off(false);
            mul_(t, factor);
        }
    }
    const std::vector<OptimizerTensor> list = plain_list(dense);
    kernels::optimizer().scale(list.data(), int64_t(list.size()), factor);
    for (const Tensor& t : dense) bump_version(t);
}

// Multiplies gradients by a number on their device; `found` becomes 1 if one of their elements is not finite.
void unscale_tensors(const TensorList& tensors, const Tensor& factor, const Tensor& found) {
    for (const Tensor* t : {&factor, &found})
        if (t->dtype() != DType::f32 || t->numel() != 1)
            throw RuntimeError("_unscale_tensors: expected one float32 number, got ", t->dtype(), " of shape ", t->sizes());
    TensorList dense;
    for (const Tensor& t : tensors) {
        if (!is_differentiable(t.dtype())) throw RuntimeError("_unscale_tensors: expected floating tensors, got ", t.dtype());
        check_same_device("_unscale_tensors", t, found);
        dense.push_back(t.layout().is_non_overlapping_and_dense() ? t : kernel_input(t));
    }
    if (tensors.empty()) return;
    const std::vector<OptimizerTensor> list = plain_list(dense);
    kernels::optimizer().unscale(list.data(), int64_t(list.size()), factor.device_data<float>(), found.device_data<float>());
    for (int64_t i = 0; i < tensors.size(); i++) {
        if (!dense[i].same(tensors[i])) copy_values(tensors[i], dense[i]);
        bump_version(tensors[i]);
    }
    bump_version(found);
}

}  // namespace

static const Operators operators = {
    {"_sgd_step(Tensor[] params, Tensor[] grads, any momentum_buffers, float lr, float momentum, float dampening, "
     "float weight_decay, bool nesterov, bool maximize)",
     sgd_step, function | writes},
    {"_adam_step(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] max_exp_avg_sqs, "
     "Tensor[] steps, float lr, float beta1, float beta2, float eps, "
     "float weight_decay, bool amsgrad, bool maximize, bool decoupled, Tensor? lr_tensor=None)",
     adam_step, function | writes},
    {"_adamax_step(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_infs, Tensor[] steps, float lr, "
     "float beta1, float beta2, float eps, float weight_decay, bool maximize)",
     adamax_step, function | writes},
    {"_nadam_step(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] mu_products, "
     "Tensor[] steps, float lr, float beta1, float beta2, float eps, "
     "float weight_decay, float momentum_decay, bool decoupled, bool maximize)",
     nadam_step, function | writes},
    {"_radam_step(Tensor[] params, Tensor[] grads, Tensor[] exp_avgs, Tensor[] exp_avg_sqs, Tensor[] steps, float lr, "
     "float beta1, float beta2, float eps, float weight_decay, "
     "bool decoupled, bool maximize)",
     radam_step, function | writes},
    {"_adagrad_step(Tensor[] params, Tensor[] grads, Tensor[] state_sums, Tensor[] steps, float lr, float lr_decay, "
     "float weight_decay, float eps, bool maximize)",
     adagrad_step, function | writes},
    {"_adadelta_step(Tensor[] params, Tensor[] grads, Tensor[] square_avgs, Tensor[] acc_deltas, Tensor[] steps, "
     "float lr, float rho, float eps, float weight_decay, bool maximize)",
     adadelta_step, function | writes},
    {"_rmsprop_step(Tensor[] params, Tensor[] grads, Tensor[] square_avgs, Tensor[] grad_avgs, "
     "Tensor[] momentum_buffers, Tensor[] steps, float lr, float alpha, float eps, "
     "float weight_decay, float momentum, bool centered, bool maximize)",
     rmsprop_step, function | writes},
    {"_rprop_step(Tensor[] params, Tensor[] grads, Tensor[] prevs, Tensor[] step_sizes, Tensor[] steps, "
     "float step_size_min, float step_size_max, float etaminus, float etaplus, bool maximize)",
     rprop_step, function | writes},
    {"_asgd_step(Tensor[] params, Tensor[] grads, Tensor[] axs, Tensor[] mus, Tensor[] etas, Tensor[] steps, "
     "float lr, float lambd, float alpha, float t0, float weight_decay, bool maximize)",
     asgd_step, function | writes},
    {"_clear_grads(Tensor[] params)",
     [](const TensorList& params) {
         for (const Tensor& p : params) set_grad(p, Tensor());
     },
     stored | function},
    {"_sum_of_squares(Tensor[] tensors, Tensor? before)", sum_of_squares, function},
    {"_scale_tensors(Tensor[] tensors, float factor)", scale_tensors, function | writes},
    {"_unscale_tensors(Tensor[] tensors, Tensor factor, Tensor found)", unscale_tensors, function},
};

}  // namespace wisp
