// THE TABLE, part 3: operators of one tensor with numbers as arguments, given by p(0), p(1)… in the order of the
// signature; most are activations of nn.functional. See unary.h.
//
//     ACTIVATION(name, types, result, forward, gradient, facts, text)
//
// called("nn.functional.leaky_relu(Tensor input, float negative_slope=0.01, bool inplace=False)") says how it is called; a row whose
// arguments must be checked first has a registration in csrc/ops/arithmetic.cpp instead.

// clang-format off: the formula is a line
ACTIVATION(clamp, F | I | B, same, where(x < p(0), p(0), where(x > p(1), p(1), x)), where((x >= p(0)) & (x <= p(1)), g, nought(g)), node_named("ClampBackward1"))
ACTIVATION(pow_number, F | C | I, same, power(x, p(0)), g * conj(power_slope(x, p(0))), node_named("PowBackward0"))
ACTIVATION(leaky_relu, F, same, where(x > k(0), x, x * p(0)), piecewise(x, where(x > k(0), g, g * p(0))),
      function | called("nn.functional.leaky_relu(Tensor input, float negative_slope=0.01, bool inplace=False)") | keeps_zero,
      R"(Each element, or `negative_slope` times it where it is negative.
         >>> wisp.nn.functional.leaky_relu(wisp.tensor([-1.0, 1.0]))
         tensor([-0.0100,  1.0000]))")
ACTIVATION(elu, F, same, where(x > k(0), x * p(1), expm1(x * p(2)) * p(0) * p(1)), where(x > k(0), g * p(1), g * p(0) * p(1) * p(2) * exp(x * p(2))))
ACTIVATION(celu, F, same, where(x > k(0), x, expm1(x / p(0)) * p(0)), where(x > k(0), g, g * exp(x / p(0))))
ACTIVATION(selu, F, same, where(x > k(0), x * k(1.0507009873554804934193349852946), expm1(x) * k(1.0507009873554804934193349852946 * 1.6732632423543772848170429916717)), where(x > k(0), g * k(1.0507009873554804934193349852946), g * exp(x) * k(1.0507009873554804934193349852946 * 1.6732632423543772848170429916717)),
      function | called("nn.functional.selu(Tensor input, bool inplace=False)") | onnx("Selu") | node_named("EluBackward0"),
      R"(The scaled exponential linear unit, which keeps mean 0 and variance 1.
         >>> wisp.selu(wisp.tensor([-1.0, 1.0]))
         tensor([-1.1113,  1.0507]))")
ACTIVATION(gelu, F, same, x * normal_cdf(x), g * (normal_cdf(x) + x * exp(x * x * k(-0.5)) * k(0.39894228040143267794)))
ACTIVATION(gelu_tanh, F, same, k(0.5) * x * (k(1) + tanh(k(0.79788456080286535588) * (x + k(0.044715) * x * x * x))), g * gelu_tanh_slope(x), node_named("GeluBackward0"))
ACTIVATION(silu, F | C, same, x * sigmoid(x), g * conj(sigmoid(x) * (k(1) + x * (k(1) - sigmoid(x)))),
      function | called("nn.functional.silu(Tensor input, bool inplace=False)"),
      R"(`x * sigmoid(x)`.
         >>> wisp.nn.functional.silu(wisp.tensor([-1.0, 1.0]))
         tensor([-0.2689,  0.7311]))")
ACTIVATION(mish, F, same, x * tanh(log1p(exp(x))), g * mish_slope(x),
      function | called("nn.functional.mish(Tensor input, bool inplace=False)") | onnx("Mish"),
      R"(`x * tanh(softplus(x))`.
         >>> wisp.nn.functional.mish(wisp.tensor([-1.0, 1.0]))
         tensor([-0.3034,  0.8651]))")
ACTIVATION(softplus, F, same, where(x * p(0) > p(1), x, log1p(exp(x * p(0))) / p(0)), where(x * p(0) > p(1), g, g * sigmoid(x * p(0))),
      function | called("nn.functional.softplus(Tensor input, float beta=1.0, float threshold=20.0, *, Tensor!? out=None)") | cuda_float32,
      R"(`log(1 + exp(beta * x)) / beta`, a smooth `relu`.
         >>> wisp.nn.functional.softplus(wisp.tensor([0.0, 100.0]))
         tensor([  0.6931, 100.0000]))")
ACTIVATION(logsigmoid, F, same, where(x < k(0), x, k(0)) - log1p(exp(-abs(x))), g * sigmoid(-x),
      function | called("nn.functional.logsigmoid(Tensor input, *, Tensor!? out=None)") | node_named("LogSigmoidBackward0"),
      R"(The logarithm of `sigmoid`, exact for large negative elements.
         >>> wisp.nn.functional.logsigmoid(wisp.tensor([0.0, -100.0]))
         tensor([  -0.6931, -100.0000]))")
ACTIVATION(hardtanh, F | I, same, where(x < p(0), p(0), where(x > p(1), p(1), x)), piecewise(x, where((x <= p(0)) | (x >= p(1)), nought(g), g)))
ACTIVATION(relu6, F | I, same, where(x < k(0), k(0), where(x > k(6), k(6), x)), piecewise(x, where((x <= k(0)) | (x >= k(6)), nought(g), g)),
      function | called("nn.functional.relu6(Tensor input, bool inplace=False)") | keeps_zero | node_named("HardtanhBackward0"),
      R"(Each element, kept between 0 and 6.
         >>> wisp.nn.functional.relu6(wisp.tensor([-1.0, 7.0]))
         tensor([0., 6.]))")
ACTIVATION(hardsigmoid, F, same, where(x + k(3) < k(0), k(0), where(x + k(3) > k(6), k(6), x + k(3))) / k(6), piecewise(x, where((x > k(-3)) & (x < k(3)), g / k(6), nought(g))),
      function | called("nn.functional.hardsigmoid(Tensor input, bool inplace=False)"),
      R"(A `sigmoid` of three straight lines.
         >>> wisp.nn.functional.hardsigmoid(wisp.tensor([-4.0, 0.0, 4.0]))
         tensor([0.0000, 0.5000, 1.0000]))")
ACTIVATION(hardswish, F, same, x * where(x + k(3) < k(0), k(0), where(x + k(3) > k(6), k(6), x + k(3))) / k(6), where(x <= k(-3), nought(g), where(x < k(3), g * (x / k(3) + k(0.5)), g)),
      function | called("nn.functional.hardswish(Tensor input, bool inplace=False)") | onnx("HardSwish"),
      R"(`x * hardsigmoid(x)`.
         >>> wisp.nn.functional.hardswish(wisp.tensor([-4.0, 1.0, 4.0]))
         tensor([-0.0000, 0.6667, 4.0000]))")
ACTIVATION(hardshrink, F, same, where((x >= -p(0)) & (x <= p(0)), k(0), x), piecewise(x, where((x >= -p(0)) & (x <= p(0)), nought(g), g)),
      function | called("nn.functional.hardshrink(Tensor input, float lambd=0.5, *, Tensor!? out=None)") | keeps_zero,
      R"(Each element, or 0 where its size is at most `lambd`.
         >>> wisp.hardshrink(wisp.tensor([-1.0, 0.3, 2.0]))
         tensor([-1.,  0.,  2.]))")
ACTIVATION(softshrink, F, same, where(x > p(0), x - p(0), where(x < -p(0), x + p(0), x * k(0))), piecewise(x, where((x >= -p(0)) & (x <= p(0)), nought(g), g)))
ACTIVATION(tanhshrink, F | I | B, promote, x - tanh(x), g * tanh(x) * tanh(x), node_named("SubBackward0"))
ACTIVATION(softsign, F | I, promote, x / (k(1) + abs(x)), g / ((k(1) + abs(x)) * (k(1) + abs(x))), node_named("DivBackward0"))
ACTIVATION(threshold, F | I, same, where(x <= p(0), p(1), x), piecewise(x, where(x <= p(0), nought(g), g)),
      function | called("nn.functional.threshold(Tensor input, float threshold, float value, bool inplace=False)"),
      R"(Each element where it is above `threshold`, else `value`.
         >>> wisp.threshold(wisp.tensor([0.5, 2.0]), 1, 0)
         tensor([0., 2.]))")
ACTIVATION(nan_to_num, F | I | B, same, where(x != x, p(0), where(is_infinite(x), where(x > k(0), p(1), p(2)), x)), where(is_finite(x), g, nought(g)))
ACTIVATION(logit, F | I | B, promote, log_odds(x), where((x < k(0)) | (x > k(1)), k(NAN) + nought(x), g / (x * (k(1) - x))))
ACTIVATION(logit_clamped, F | I | B, promote, log_odds(where(x < p(0), p(0), where(x > k(1) - p(0), k(1) - p(0), x))), where((x < p(0)) | (x > k(1) - p(0)), nought(g), g / (x * (k(1) - x))), node_named("LogitBackward0"))
ACTIVATION(polygamma, F | I | B, promote, polygamma(p(0), x), g * polygamma(p(0) + k(1), x))
ACTIVATION(round_decimals, F, same, nearbyint(x * p(0)) / p(0), nought(g), node_named("RoundBackward1"))
