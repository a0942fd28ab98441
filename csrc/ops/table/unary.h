// THE TABLE, part 1: operators of one tensor. One row is the whole operator: function, method, in-place form, out=, kernels for CPU and
// GPU, fused backward kernel, higher derivatives, docstring, stub and generated tests.
//
//     UNARY(name, types, result, forward, gradient, facts, text)
//
// types: what it takes, of F (floating) C (complex) I (integers) B (bool), and of what is only stored, H (complex32) Q (float8).
// result: same dtype; promote (integers become the default float); boolean; real (complex gives its real dtype).
// forward: of x. gradient: of g (incoming gradient), x (input), y (result), or `none`. k(v) is a constant of x's type.
// piecewise(x, gradient): the gradient, which depends on x with derivative zero (as PyTorch has it for some operators).
// conj() makes the gradient right for complex numbers and is nothing for real ones.
// facts: where it is called (everywhere, special) and what else is known of it, see ../facts.h. text: a sentence and an example.
// A row that is not called by its name and a tensor alone has neither: a registration in csrc/ops/arithmetic.cpp calls it.
//
// A row is instantiated on numbers for kernels and on tensors when a gradient must itself be differentiable.

// clang-format off: the formula is a line
UNARY(abs, F | C | I | H | Q, real, abs(x), g * sgn(x),
      everywhere | keeps_zero | in_foreach | onnx("Abs") | also("absolute"),
      R"(The absolute value of each element; of complex numbers, their modulus.
         >>> wisp.abs(wisp.tensor([-1.0, 2.0]))
         tensor([1., 2.]))")
UNARY(neg, F | C | I | H, same, -x, -g,
      everywhere | exact_out | is_linear | in_foreach | onnx("Neg") | also("negative"),
      R"(Each element with the other sign.
         >>> wisp.neg(wisp.tensor([1, -2]))
         tensor([-1,  2]))")
UNARY(sgn, F | C | I | B | H, same, sgn(x), where(x == k(0), nought(g), (g - y * re(g * conj(y))) / magnitude(x)),
      everywhere | exact_out | keeps_zero,
      R"(The sign of each element; of complex numbers, the number of length 1 in the same direction.
         >>> wisp.sgn(wisp.tensor([3 + 4j]))
         tensor([0.6000+0.8000j]))")
UNARY(sign, F | I | B, same, sgn(x), nought(g),
      everywhere | exact_out | keeps_zero | in_foreach | onnx("Sign"),
      R"(-1, 0 or 1 by the sign of each element.
         >>> wisp.sign(wisp.tensor([-3.0, 0.0, 2.0]))
         tensor([-1.,  0.,  1.]))")
UNARY(square, F | C | I, same, x * x, g * conj(k(2) * x), node_named("PowBackward0"))
UNARY(reciprocal, F | C | I | B, promote, k(1) / x, -g * conj(y * y),
      everywhere | in_foreach | cuda_float32 | onnx("Reciprocal"),
      R"(One divided by each element.
         >>> wisp.reciprocal(wisp.tensor([2.0, 4.0]))
         tensor([0.5000, 0.2500]))")
UNARY(sqrt, F | C | I | B, promote, sqrt(x), g / conj(k(2) * y),
      everywhere | keeps_zero | in_foreach | onnx("Sqrt"),
      R"(The square root of each element.
         >>> wisp.sqrt(wisp.tensor([4.0, 9.0]))
         tensor([2., 3.]))")
UNARY(rsqrt, F | C | I | B, promote, rsqrt(x), k(-0.5) * g * conj(y * y * y),
      everywhere | in_foreach | cuda_float32,
      R"(One divided by the square root of each element.
         >>> wisp.rsqrt(wisp.tensor([4.0]))
         tensor([0.5000]))")
UNARY(exp, F | C | I | B, promote, exp(x), g * conj(y),
      everywhere | in_foreach | cuda_float32 | onnx("Exp"),
      R"(e to the power of each element.
         >>> wisp.exp(wisp.tensor([0.0, 1.0]))
         tensor([1.0000, 2.7183]))")
UNARY(exp2, F | C | I | B, promote, exp2(x), g * conj(y * k(0.693147180559945309417)),
      everywhere,
      R"(2 to the power of each element.
         >>> wisp.exp2(wisp.tensor([0.0, 3.0]))
         tensor([1., 8.]))")
UNARY(expm1, F | C | I | B, promote, expm1(x), g * conj(y + k(1)),
      everywhere | keeps_zero | in_foreach | cuda_float32,
      R"(`exp(x) - 1`, exact near zero.
         >>> wisp.expm1(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 1.7183]))")
UNARY(log, F | C | I | B, promote, log(x), g / conj(x),
      everywhere | in_foreach | cuda_float32 | onnx("Log"),
      R"(The natural logarithm of each element.
         >>> wisp.log(wisp.tensor([1.0, 10.0]))
         tensor([0.0000, 2.3026]))")
UNARY(log2, F | C | I | B, promote, log2(x), g / conj(x * k(0.693147180559945309417)),
      everywhere | in_foreach | cuda_float32,
      R"(The logarithm to base 2.
         >>> wisp.log2(wisp.tensor([1.0, 8.0]))
         tensor([0., 3.]))")
UNARY(log10, F | C | I | B, promote, log10(x), g / conj(x * k(2.302585092994045684018)),
      everywhere | in_foreach | cuda_float32,
      R"(The logarithm to base 10.
         >>> wisp.log10(wisp.tensor([1.0, 1000.0]))
         tensor([0., 3.]))")
UNARY(log1p, F | C | I | B, promote, log1p(x), g / conj(x + k(1)),
      everywhere | keeps_zero | in_foreach | cuda_float32,
      R"(`log(1 + x)`, exact near zero.
         >>> wisp.log1p(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 0.6931]))")
UNARY(sin, F | C | I | B, promote, sin(x), g * conj(cos(x)),
      everywhere | keeps_zero | in_foreach | onnx("Sin"),
      R"(The sine of each element, which is in radians.
         >>> wisp.sin(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 0.8415]))")
UNARY(cos, F | C | I | B, promote, cos(x), -g * conj(sin(x)),
      everywhere | in_foreach | onnx("Cos"),
      R"(The cosine of each element, which is in radians.
         >>> wisp.cos(wisp.tensor([0.0, 1.0]))
         tensor([1.0000, 0.5403]))")
UNARY(tan, F | C | I | B, promote, tan(x), g * conj(k(1) + y * y),
      everywhere | keeps_zero | in_foreach | cuda_float32 | onnx("Tan"),
      R"(The tangent of each element, which is in radians.
         >>> wisp.tan(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 1.5574]))")
UNARY(asin, F | C | I | B, promote, asin(x), g * conj(rsqrt(k(1) - x * x)),
      everywhere | keeps_zero | in_foreach | cuda_float32 | onnx("Asin") | also("arcsin"),
      R"(The arc sine of each element, in radians.
         >>> wisp.asin(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 1.5708]))")
UNARY(acos, F | C | I | B, promote, acos(x), -g * conj(rsqrt(k(1) - x * x)),
      everywhere | in_foreach | cuda_float32 | onnx("Acos") | also("arccos"),
      R"(The arc cosine of each element, in radians.
         >>> wisp.acos(wisp.tensor([1.0, 0.0]))
         tensor([0.0000, 1.5708]))")
UNARY(atan, F | C | I | B, promote, atan(x), g / conj(x * x + k(1)),
      everywhere | keeps_zero | in_foreach | onnx("Atan") | also("arctan"),
      R"(The arc tangent of each element, in radians.
         >>> wisp.atan(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 0.7854]))")
UNARY(sinh, F | C | I | B, promote, sinh(x), g * conj(cosh(x)),
      everywhere | keeps_zero | in_foreach | cuda_float32 | onnx("Sinh"),
      R"(The hyperbolic sine of each element.
         >>> wisp.sinh(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 1.1752]))")
UNARY(cosh, F | C | I | B, promote, cosh(x), g * conj(sinh(x)),
      everywhere | in_foreach | cuda_float32 | onnx("Cosh"),
      R"(The hyperbolic cosine of each element.
         >>> wisp.cosh(wisp.tensor([0.0, 1.0]))
         tensor([1.0000, 1.5431]))")
UNARY(tanh, F | C | I | B, promote, tanh(x), g * conj(k(1) - y * y),
      everywhere | keeps_zero | in_foreach | onnx("Tanh"),
      R"(The hyperbolic tangent of each element.
         >>> wisp.tanh(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 0.7616]))")
UNARY(asinh, F | C | I | B, promote, asinh(x), g * conj(rsqrt(x * x + k(1))),
      everywhere | keeps_zero | onnx("Asinh") | also("arcsinh"),
      R"(The inverse hyperbolic sine of each element.
         >>> wisp.asinh(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 0.8814]))")
UNARY(acosh, F | C | I | B, promote, acosh(x), g * conj(rsqrt(x * x - k(1))),
      everywhere | onnx("Acosh") | also("arccosh"),
      R"(The inverse hyperbolic cosine of each element.
         >>> wisp.acosh(wisp.tensor([1.0, 2.0]))
         tensor([0.0000, 1.3170]))")
UNARY(atanh, F | C | I | B, promote, atanh(x), g / conj(k(1) - x * x),
      everywhere | keeps_zero | onnx("Atanh") | also("arctanh"),
      R"(The inverse hyperbolic tangent of each element.
         >>> wisp.atanh(wisp.tensor([0.0, 0.5]))
         tensor([0.0000, 0.5493]))")
UNARY(sigmoid, F | C | I | B, promote, sigmoid(x), g * conj(y * (k(1) - y)),
      everywhere | in_foreach | onnx("Sigmoid"),
      R"(`1 / (1 + exp(-x))`.
         >>> wisp.sigmoid(wisp.tensor([0.0, 2.0]))
         tensor([0.5000, 0.8808]))")
UNARY(floor, F | I, same, floor(x), nought(g),
      everywhere | exact_out | keeps_zero | in_foreach | onnx("Floor"),
      R"(The largest integer not above each element.
         >>> wisp.floor(wisp.tensor([0.8, -0.2]))
         tensor([ 0., -1.]))")
UNARY(ceil, F | I, same, ceil(x), nought(g),
      everywhere | exact_out | keeps_zero | in_foreach | onnx("Ceil"),
      R"(The smallest integer not below each element.
         >>> wisp.ceil(wisp.tensor([0.2, -0.2]))
         tensor([1., -0.]))")
UNARY(trunc, F | I, same, trunc(x), nought(g),
      everywhere | exact_out | keeps_zero | in_foreach | also("fix"),
      R"(Each element without what lies behind the point.
         >>> wisp.trunc(wisp.tensor([1.7, -1.7]))
         tensor([ 1., -1.]))")
UNARY(round, F | I, same, nearbyint(x), nought(g))
UNARY(frac, F, same, x - trunc(x), g,
      everywhere | exact_out | keeps_zero | in_foreach,
      R"(What lies behind the point, with the sign of the element.
         >>> wisp.frac(wisp.tensor([1.25, -2.5]))
         tensor([ 0.2500, -0.5000]))")
UNARY(deg2rad, F | I | B, promote, x * k(0.017453292519943295769), g * k(0.017453292519943295769),
      everywhere | is_linear,
      R"(Degrees as radians.
         >>> wisp.deg2rad(wisp.tensor([180.0]))
         tensor([3.1416]))")
UNARY(rad2deg, F | I | B, promote, x * k(57.295779513082320877), g * k(57.295779513082320877),
      everywhere | is_linear,
      R"(Radians as degrees.
         >>> wisp.rad2deg(wisp.tensor([3.14159265]))
         tensor([180.]))")
UNARY(erf, F | I | B, promote, erf(x), g * k(1.128379167095512573896) * exp(-(x * x)),
      everywhere | keeps_zero | in_foreach | onnx("Erf"),
      R"(The error function of each element.
         >>> wisp.erf(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 0.8427]))")
UNARY(erfc, F | I | B, promote, erfc(x), g * k(-1.128379167095512573896) * exp(-(x * x)),
      everywhere | in_foreach,
      R"(One minus the error function, exact for large elements too.
         >>> wisp.erfc(wisp.tensor([0.0, 1.0]))
         tensor([1.0000, 0.1573]))")
UNARY(erfinv, F | I | B, promote, erfinv(x), g * k(0.886226925452758013649) * exp(y * y),
      everywhere | keeps_zero | cuda_float32,
      R"(The inverse of the error function.
         >>> wisp.erfinv(wisp.tensor([0.0, 0.5]))
         tensor([0.0000, 0.4769]))")
UNARY(lgamma, F | I | B, promote, lgamma(x), g * digamma(x),
      everywhere | in_foreach,
      R"(The logarithm of the absolute value of the gamma function.
         >>> wisp.lgamma(wisp.tensor([1.0, 5.0]))
         tensor([0.0000, 3.1781]))")
UNARY(digamma, F | I | B, promote, digamma(x), g * polygamma(k(1), x),
      everywhere,
      R"(The derivative of the logarithm of the gamma function.
         >>> wisp.digamma(wisp.tensor([1.0, 2.0]))
         tensor([-0.5772,  0.4228]))")
UNARY(sinc, F | C | I | B, promote, sinc(x), g * conj(sinc_slope(x)),
      everywhere,
      R"(`sin(pi x) / (pi x)`, and 1 at zero.
         >>> wisp.sinc(wisp.tensor([0.0, 0.5]))
         tensor([1.0000, 0.6366]))")
UNARY(i0, F | I | B, promote, i0(x), g * i1(x),
      everywhere,
      R"(The modified Bessel function of the first kind, of order 0.
         >>> wisp.i0(wisp.tensor([0.0, 1.0]))
         tensor([1.0000, 1.2661]))")
UNARY(isnan, F | C | I | B | H | Q, boolean, x != x, none,
      function | method | keeps_zero | onnx("IsNaN"),
      R"(Where elements are NaN.
         >>> wisp.isnan(wisp.tensor([1.0, wisp.nan]))
         tensor([False,  True]))")
UNARY(isinf, F | C | I | B | H, boolean, is_infinite(x), none,
      function | method | keeps_zero | onnx("IsInf"),
      R"(Where elements are infinite.
         >>> wisp.isinf(wisp.tensor([1.0, -wisp.inf]))
         tensor([False,  True]))")
UNARY(isfinite, F | C | I | B | H, boolean, is_finite(x), none,
      function | method,
      R"(Where elements are neither infinite nor NaN.
         >>> wisp.isfinite(wisp.tensor([1.0, wisp.inf, wisp.nan]))
         tensor([ True, False, False]))")
UNARY(isposinf, F | I | B, boolean, x == k(INFINITY) && is_infinite(x), none,
      function | method | exact_out | keeps_zero,
      R"(Where elements are plus infinity.
         >>> wisp.isposinf(wisp.tensor([wisp.inf, -wisp.inf]))
         tensor([ True, False]))")
UNARY(isneginf, F | I | B, boolean, x == k(-INFINITY) && is_infinite(x), none,
      function | method | exact_out | keeps_zero,
      R"(Where elements are minus infinity.
         >>> wisp.isneginf(wisp.tensor([1.0, -wisp.inf]))
         tensor([False,  True]))")
UNARY(signbit, F | I | B, boolean, sign_bit(x), none,
      function | method | exact_out | keeps_zero,
      R"(Where the sign bit is set, of -0.0 too.
         >>> wisp.signbit(wisp.tensor([-0.0, 1.0]))
         tensor([ True, False]))")
UNARY(logical_not, F | C | I | B, boolean, x == k(0), none,
      everywhere,
      R"(Where elements are false (zero).
         >>> wisp.logical_not(wisp.tensor([1, 0]))
         tensor([False,  True]))")
UNARY(bitwise_not, I | B, same, bit_not(x), none,
      everywhere | exact_out,
      R"(Each bit turned around; of booleans, logical not.
         >>> wisp.bitwise_not(wisp.tensor([0, 5]))
         tensor([-1, -6]))")
UNARY(relu, F | I, same, where(x < k(0), k(0), x), piecewise(y, where(y <= k(0), nought(g), g)),
      everywhere | keeps_zero | onnx("Relu"),
      R"(Each element, or 0 where it is negative.
         >>> wisp.relu(wisp.tensor([-1.0, 2.0]))
         tensor([0., 2.]))")

UNARY(i0e, F | I | B, promote, i0e(x), g * (i1e(x) - sgn(x) * y),
      special | node_named("SpecialI0EBackward0"),
      R"(`exp(-|x|)` times the modified Bessel function of order 0.
         >>> wisp.special.i0e(wisp.tensor([0.0]))
         tensor([1.]))")
UNARY(i1, F | I | B, promote, i1(x), g * where(x == k(0), k(0.5) + nought(x), i0(x) - y / where(x == k(0), k(1) + nought(x), x)),
      special | node_named("SpecialI1Backward0"),
      R"(The modified Bessel function of the first kind, of order 1.
         >>> wisp.special.i1(wisp.tensor([1.0]))
         tensor([0.5652]))")
UNARY(i1e, F | I | B, promote, i1e(x), g * where(x == k(0), k(0.5) + nought(x), i0e(x) - y * (sgn(x) + k(1) / where(x == k(0), k(1) + nought(x), x))),
      special | node_named("SpecialI1EBackward0"),
      R"(`exp(-|x|)` times the modified Bessel function of order 1.
         >>> wisp.special.i1e(wisp.tensor([1.0]))
         tensor([0.2079]))")
UNARY(entr, F | I | B, promote, entr(x), g * where(x > k(0), -log(x) - k(1), where(x == k(0), k(INFINITY) + nought(x), k(NAN) + nought(x))),
      special | node_named("SpecialEntrBackward0"),
      R"(`-x * log(x)`, 0 at zero and minus infinity below.
         >>> wisp.special.entr(wisp.tensor([0.0, 0.5]))
         tensor([0.0000, 0.3466]))")
UNARY(ndtr, F | I | B, promote, ndtr(x), g * k(0.39894228040143267794) * exp(x * x * k(-0.5)),
      special | node_named("MulBackward1"),
      R"(The distribution function of the standard normal distribution.
         >>> wisp.special.ndtr(wisp.tensor([0.0, 1.0]))
         tensor([0.5000, 0.8413]))")
UNARY(ndtri, F | I | B, promote, ndtri(x), g * k(2.506628274631000502416) * exp(y * y * k(0.5)),
      special | node_named("SpecialNdtriBackward0"),
      R"(The argument at which the normal distribution's area to the left is `x`.
         >>> wisp.special.ndtri(wisp.tensor([0.5]))
         tensor([0.]))")
UNARY(log_ndtr, F | I | B, promote, log_ndtr(x), g / erfcx(x * k(-0.70710678118654752440)) * k(0.79788456080286535588),
      special | node_named("SpecialLogNdtrBackward0"),
      R"(The logarithm of the normal distribution's area to the left.
         >>> wisp.special.log_ndtr(wisp.tensor([0.0]))
         tensor([-0.6931]))")
UNARY(erfcx, F | I | B, promote, erfcx(x), g * (k(2) * x * y - k(1.128379167095512573896)),
      special | node_named("SpecialErfcxBackward0"),
      R"(`exp(x²) * erfc(x)`, without overflow.
         >>> wisp.special.erfcx(wisp.tensor([0.0, 50.0]))
         tensor([1.0000, 0.0113]))")
UNARY(bessel_j0, F | I | B, promote, bessel_j0(x), -g * bessel_j1(x),
      special | node_named("SpecialBesselJ0Backward0"),
      R"(The Bessel function of the first kind, of order 0.
         >>> wisp.special.bessel_j0(wisp.tensor([0.0, 1.0]))
         tensor([1.0000, 0.7652]))")
UNARY(bessel_j1, F | I | B, promote, bessel_j1(x), g * where(x == k(0), k(0.5) + nought(x), bessel_j0(x) - y / x),
      special | node_named("SpecialBesselJ1Backward0"),
      R"(The Bessel function of the first kind, of order 1.
         >>> wisp.special.bessel_j1(wisp.tensor([0.0, 1.0]))
         tensor([0.0000, 0.4401]))")
UNARY(bessel_y0, F | I | B, promote, bessel_y0(x), none,
      special,
      R"(The Bessel function of the second kind, of order 0.
         >>> wisp.special.bessel_y0(wisp.tensor([1.0]))
         tensor([0.0883]))")
UNARY(bessel_y1, F | I | B, promote, bessel_y1(x), none,
      special,
      R"(The Bessel function of the second kind, of order 1.
         >>> wisp.special.bessel_y1(wisp.tensor([1.0]))
         tensor([-0.7812]))")
UNARY(modified_bessel_i0, F | I | B, promote, modified_bessel_i0(x), none,
      special,
      R"(The modified Bessel function of the first kind, of order 0.
         >>> wisp.special.modified_bessel_i0(wisp.tensor([1.0]))
         tensor([1.2661]))")
UNARY(modified_bessel_i1, F | I | B, promote, modified_bessel_i1(x), none,
      special,
      R"(The modified Bessel function of the first kind, of order 1.
         >>> wisp.special.modified_bessel_i1(wisp.tensor([1.0]))
         tensor([0.5652]))")
UNARY(modified_bessel_k0, F | I | B, promote, modified_bessel_k0(x), none,
      special,
      R"(The modified Bessel function of the second kind, of order 0.
         >>> wisp.special.modified_bessel_k0(wisp.tensor([1.0]))
         tensor([0.4210]))")
UNARY(modified_bessel_k1, F | I | B, promote, modified_bessel_k1(x), none,
      special,
      R"(The modified Bessel function of the second kind, of order 1.
         >>> wisp.special.modified_bessel_k1(wisp.tensor([1.0]))
         tensor([0.6019]))")
UNARY(scaled_modified_bessel_k0, F | I | B, promote, scaled_modified_bessel_k0(x), none,
      special,
      R"(`exp(x)` times the modified Bessel function of the second kind, of order 0.
         >>> wisp.special.scaled_modified_bessel_k0(wisp.tensor([1.0]))
         tensor([1.1445]))")
UNARY(scaled_modified_bessel_k1, F | I | B, promote, scaled_modified_bessel_k1(x), none,
      special,
      R"(`exp(x)` times the modified Bessel function of the second kind, of order 1.
         >>> wisp.special.scaled_modified_bessel_k1(wisp.tensor([1.0]))
         tensor([1.6362]))")
UNARY(spherical_bessel_j0, F | I | B, promote, spherical_bessel_j0(x), none,
      special,
      R"(`sin(x) / x`, and 1 at zero.
         >>> wisp.special.spherical_bessel_j0(wisp.tensor([0.0, 1.0]))
         tensor([1.0000, 0.8415]))")
UNARY(airy_ai, F | I | B, promote, airy_ai(x), none,
      special,
      R"(The Airy function Ai.
         >>> wisp.special.airy_ai(wisp.tensor([0.0]))
         tensor([0.3550]))")
