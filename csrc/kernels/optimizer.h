// Optimizer steps over whole lists of parameters at once, and the two list kernels behind clip_grad_norm_.
#pragma once
#ifndef __CUDACC_RTC__  // the GPU's compiler gets this text too
#include "core/dtype.h"
#include "kernels/families.h"
#endif

namespace wisp::kernels {

enum class OptimizerRule { sgd, adam, adamax, nadam, radam, adagrad, adadelta, rmsprop, rprop, asgd };

// One parameter with its gradient and state: n contiguous numbers each, of one floating dtype (a complex parameter
// counts as twice as many real numbers). Half types are computed in float.
struct OptimizerTensor {
    DType dtype;
    int64_t n;
    void* param;
    const void* grad;
    void* state[3];
    // Numbers of the rule that differ between parameters, such as bias corrections; the meaning is the rule's:
    //   sgd       state {momentum buffer}                  k {1 if the buffer is new}
    //   adam      state {exp_avg, exp_avg_sq, max or null} k {lr / bias_correction1, 1 / sqrt(bias_correction2)}
    //   adamax    state {exp_avg, exp_inf}                 k {lr / bias_correction1}
    //   nadam     state {exp_avg, exp_avg_sq}              k {factor of grad, factor of exp_avg, 1 / bias_correction2}
    //   radam     state {exp_avg, exp_avg_sq}              k {lr / bias_correction1, rectification or 0 for none}
    //   adagrad   state {sum}                              k {learning rate of this step}
    //   adadelta  state {square_avg, acc_delta}
    //   rmsprop   state {square_avg, grad_avg or null, momentum buffer or null}
    //   rprop     state {previous grad, step size}
    //   asgd      state {average}                          k {eta, mu}
    double k[3];
    // On the GPU they may lie in its memory instead, with the learning rate behind them, where a captured graph finds those of its step.
    const double* numbers = nullptr;
};

// Numbers that all parameters of a call share; a rule reads those it knows.
struct OptimizerSettings {
    double lr = 0, weight_decay = 0, momentum = 0, dampening = 0;
    double beta1 = 0, beta2 = 0;  // also alpha of rmsprop, rho of adadelta (beta2), lambd of asgd (beta1)
    double eps = 0;
    double eta_minus = 0, eta_plus = 0, step_min = 0, step_max = 0;  // rprop
    bool nesterov = false, maximize = false, decoupled = false;
};

#ifndef __CUDACC_RTC__
struct OptimizerKernels {
    void (*step)(OptimizerRule, const OptimizerSettings&, const OptimizerTensor* tensors, int64_t count);
    // The sum of the squares of all `param`s of the list, in memory of the device; the same for any number of threads.
    void (*sum_squares)(const OptimizerTensor* tensors, int64_t count, double* total);
    void (*scale)(const OptimizerTensor* tensors, int64_t count, double factor);  // param *= factor
    // param *= *factor; *found becomes 1 where a param was not finite.
    void (*unscale)(const OptimizerTensor* tensors, int64_t count, const float* factor, float* found);
    // Of Adam, on the GPU alone: every step's count (of `dtype`) goes up by one, and numbers[4 i] to [4 i + 3] become what the rule
    // reads of it. `lr`: the learning rate in device memory (of `lr_dtype`), or null for that of the settings.
    void (*adam_numbers)(const OptimizerSettings&, void* const* steps, int64_t count, DType dtype, const void* lr, DType lr_dtype,
                         double* numbers);
};
#endif

}  // namespace wisp::kernels
