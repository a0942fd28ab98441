// THE TABLE, part 2: operators of two and three tensors, with PyTorch's promotion between them. See unary.h.
//
//     BINARY(name, types, result, forward, gradient of a, gradient of b, facts, text)
//     TERNARY(name, types, result, forward, gradient of a, gradient of b, gradient of c, facts)
//
// p(i) is the i-th number given with the call (alpha, value, weight). either_number, second_number: which operands may be Python numbers.

// clang-format off: the formula is a line
BINARY(add, F | C | I | B | H, same, a + b, g, g)
BINARY(add_scaled, F | C | I | B | H, same, a + p(0) * b, g, g * conj(p(0)), node_named("AddBackward0"))
BINARY(sub, F | C | I | H, same, a - b, g, -g, node_named("SubBackward0", "RsubBackward1"))
BINARY(mul, F | C | I | B | H, same, a * b, g * conj(b), g * conj(a),
      everywhere | either_number | also("multiply") | second_named("other|value"),
      R"(`input * other`, element by element, with broadcasting.
         >>> wisp.mul(wisp.tensor([1, 2]), wisp.tensor([[10], [100]]))
         tensor([[ 10,  20],
                 [100, 200]]))")
BINARY(div, F | C | I | B, promote, a / b, g / conj(b), -g * conj(a / b / b))
BINARY(div_floor, F | I, same, floor_divide(a, b), nought(g), nought(g), node_named("DivBackward2"))
BINARY(div_trunc, F | I, same, trunc_divide(a, b), nought(g), nought(g), node_named("DivBackward2"))
BINARY(remainder, F | I, same, remainder(a, b), g, -g * floor(a / b),
      everywhere | either_number | second_named("other|divisor") | node_named("RemainderBackward1", "", "RemainderBackward0"),
      R"(What is left after division, with the sign of the divisor, as Python's `%`.
         >>> wisp.remainder(wisp.tensor([-3.0, 5.0]), 2)
         tensor([1., 1.]))")
BINARY(fmod, F | I, same, fmod(a, b), g, -g * trunc(a / b),
      everywhere | second_number | second_named("other|divisor") | node_named("FmodBackward1", "", "FmodBackward0"),
      R"(What is left after division, with the sign of the dividend.
         >>> wisp.fmod(wisp.tensor([-3.0, 5.0]), 2)
         tensor([-1.,  1.]))")
BINARY(pow, F | C | I, same, power(a, b), where(b == k(0), nought(g), g * conj(b * power(a, b - k(1)))), g * where((a == k(0)) & at_least_zero(b), nought(g), conj(y * log(a))), node_named("PowBackward1", "PowBackward2"))
BINARY(maximum, F | I | B, same, larger(a, b), where(a == b, g * k(0.5), where(a > b, g, nought(g))), where(a == b, g * k(0.5), where(b > a, g, nought(g))),
      function | method,
      R"(The larger of both operands; NaN where there is one.
         >>> wisp.maximum(wisp.tensor([1, 5]), wisp.tensor([3, 2]))
         tensor([3, 5]))")
BINARY(minimum, F | I | B, same, smaller(a, b), where(a == b, g * k(0.5), where(a < b, g, nought(g))), where(a == b, g * k(0.5), where(b < a, g, nought(g))),
      function | method,
      R"(The smaller of both operands; NaN where there is one.
         >>> wisp.minimum(wisp.tensor([1, 5]), wisp.tensor([3, 2]))
         tensor([1, 2]))")
BINARY(fmax, F | I | B, same, where(a != a, b, where(b != b, a, larger(a, b))), where((a >= b) | (b != b), g, nought(g)), where((a >= b) | (b != b), nought(g), g),
      function | method,
      R"(The larger of both operands; a NaN loses against a number.
         >>> wisp.fmax(wisp.tensor([1.0, wisp.nan]), wisp.tensor([0.5, 2.0]))
         tensor([1., 2.]))")
BINARY(fmin, F | I | B, same, where(a != a, b, where(b != b, a, smaller(a, b))), where((a <= b) | (b != b), g, nought(g)), where((a <= b) | (b != b), nought(g), g),
      function | method,
      R"(The smaller of both operands; a NaN loses against a number.
         >>> wisp.fmin(wisp.tensor([1.0, wisp.nan]), wisp.tensor([0.5, 2.0]))
         tensor([0.5000, 2.0000]))")
BINARY(atan2, F | I | B, promote, atan2(a, b), where((a == k(0)) & (b == k(0)), nought(g), g * b / (a * a + b * b)), where((a == k(0)) & (b == k(0)), nought(g), -g * a / (a * a + b * b)),
      everywhere | cuda_widest | also("arctan2"),
      R"(The angle of the point (other, input) in its own quadrant, in radians.
         >>> wisp.atan2(wisp.tensor([1.0, -1.0]), wisp.tensor([-1.0, -1.0]))
         tensor([ 2.3562, -2.3562]))")
BINARY(hypot, F, same, hypot(a, b), g * (a / y), g * (b / y),
      everywhere,
      R"(The length of the hypotenuse, without overflow on the way.
         >>> wisp.hypot(wisp.tensor([3.0]), wisp.tensor([4.0]))
         tensor([5.]))")
BINARY(copysign, F | I | B, promote, copysign(a, b), where(a == k(0), nought(g), g * (y / a)), nought(g),
      everywhere | second_number | node_named("CopysignBackward0", "", "CopysignBackward1"),
      R"(The size of each element with the sign of the other.
         >>> wisp.copysign(wisp.tensor([1.0, 2.0]), wisp.tensor([-3.0, 0.5]))
         tensor([-1.,  2.]))")
BINARY(nextafter, F, same, next_number(a, b, p(0), p(1), p(2)), g, nought(g),
      everywhere,
      R"(The next number of the dtype from `input` towards `other`.
         >>> wisp.nextafter(wisp.tensor([1.0]), wisp.tensor([2.0])) > 1
         tensor([True]))")
BINARY(logaddexp, F | C, same, log_add_exp(a, b), g / conj(k(1) + exp(b - a)), g / conj(k(1) + exp(a - b)),
      function | method,
      R"(`log(exp(input) + exp(other))`, without overflow.
         >>> wisp.logaddexp(wisp.tensor([1000.0]), wisp.tensor([1000.0]))
         tensor([1000.6932]))")
BINARY(logaddexp2, F, same, log_add_exp2(a, b), g / (k(1) + exp2(b - a)), g / (k(1) + exp2(a - b)),
      function | method,
      R"(`log2(2 ** input + 2 ** other)`, without overflow.
         >>> wisp.logaddexp2(wisp.tensor([3.0]), wisp.tensor([3.0]))
         tensor([4.]))")
BINARY(xlogy, F | I | B, promote, xlogy(a, b), where((a == k(0)) & (b <= k(0)), nought(g), g * log(b)), g * a / b,
      everywhere | either_number | node_named("XlogyBackward0", "XlogyBackward1", "XlogyBackward2"),
      R"(`input * log(other)`, and 0 where `input` is 0.
         >>> wisp.xlogy(wisp.tensor([0.0, 2.0]), wisp.tensor([0.0, 3.0]))
         tensor([0.0000, 2.1972]))")
BINARY(heaviside, F | I | B, same, where(a == k(0), b, where(a > k(0), k(1), k(0))), none, none,
      everywhere | exact_out | second_named("values"),
      R"(0 for negative elements, 1 for positive ones, `values` for zeros.
         >>> wisp.heaviside(wisp.tensor([-1.0, 0.0, 2.0]), wisp.tensor([0.5]))
         tensor([0.0000, 0.5000, 1.0000]))")
BINARY(igamma, F, same, igamma(a, b), none, g * exp((a - k(1)) * log(b) - b - lgamma(a)),
      everywhere,
      R"(The regularised lower incomplete gamma function.
         >>> wisp.igamma(wisp.tensor([2.0]), wisp.tensor([1.0]))
         tensor([0.2642]))")
BINARY(igammac, F, same, igammac(a, b), none, -g * exp((a - k(1)) * log(b) - b - lgamma(a)),
      everywhere,
      R"(The regularised upper incomplete gamma function.
         >>> wisp.igammac(wisp.tensor([2.0]), wisp.tensor([1.0]))
         tensor([0.7358]))")
BINARY(ldexp, F | C | I | B, promote, a * exp2(b), g * conj(exp2(b)), g * conj(y * k(0.693147180559945309417)),
      everywhere,
      R"(`input * 2 ** other`.
         >>> wisp.ldexp(wisp.tensor([1.0, 3.0]), wisp.tensor([2, 1]))
         tensor([4., 6.]))")
BINARY(gcd, I, same, greatest_divisor(a, b), none, none,
      everywhere,
      R"(The greatest common divisor.
         >>> wisp.gcd(wisp.tensor([12, 9]), wisp.tensor([8, 6]))
         tensor([4, 3]))")
BINARY(lcm, I, same, least_multiple(a, b), none, none,
      everywhere,
      R"(The least common multiple.
         >>> wisp.lcm(wisp.tensor([4, 6]), wisp.tensor([6, 8]))
         tensor([12, 24]))")
BINARY(eq, F | C | I | B | H | Q, boolean, a == b, none, none,
      everywhere | second_number,
      R"(Where both operands are equal.
         >>> wisp.eq(wisp.tensor([1, 2]), wisp.tensor([1, 3]))
         tensor([ True, False]))")
BINARY(ne, F | C | I | B | H | Q, boolean, a != b, none, none,
      everywhere | second_number | also("not_equal"),
      R"(Where operands differ.
         >>> wisp.ne(wisp.tensor([1, 2]), wisp.tensor([1, 3]))
         tensor([False,  True]))")
BINARY(lt, F | I | B, boolean, a < b, none, none,
      everywhere | second_number | also("less"),
      R"(Where the first operand is smaller.
         >>> wisp.lt(wisp.tensor([1, 2, 3]), 2)
         tensor([ True, False, False]))")
BINARY(le, F | I | B, boolean, a <= b, none, none,
      everywhere | second_number | also("less_equal"),
      R"(Where the first operand is at most the second.
         >>> wisp.le(wisp.tensor([1, 2, 3]), 2)
         tensor([ True,  True, False]))")
BINARY(gt, F | I | B, boolean, a > b, none, none,
      everywhere | second_number | also("greater"),
      R"(Where the first operand is greater.
         >>> wisp.gt(wisp.tensor([1, 2, 3]), 2)
         tensor([False, False,  True]))")
BINARY(ge, F | I | B, boolean, a >= b, none, none,
      everywhere | second_number | also("greater_equal"),
      R"(Where the first operand is at least the second.
         >>> wisp.ge(wisp.tensor([1, 2, 3]), 2)
         tensor([False,  True,  True]))")
BINARY(logical_and, F | C | I | B, boolean, (a != k(0)) & (b != k(0)), none, none,
      everywhere,
      R"(Where both operands are true (not zero).
         >>> wisp.logical_and(wisp.tensor([1, 0]), wisp.tensor([1, 1]))
         tensor([ True, False]))")
BINARY(logical_or, F | C | I | B, boolean, (a != k(0)) | (b != k(0)), none, none,
      everywhere,
      R"(Where at least one operand is true.
         >>> wisp.logical_or(wisp.tensor([1, 0]), wisp.tensor([0, 0]))
         tensor([ True, False]))")
BINARY(logical_xor, F | C | I | B, boolean, (a != k(0)) != (b != k(0)), none, none,
      everywhere,
      R"(Where exactly one operand is true.
         >>> wisp.logical_xor(wisp.tensor([1, 1]), wisp.tensor([0, 1]))
         tensor([ True, False]))")
BINARY(bitwise_and, I | B, same, bit_and(a, b), none, none,
      everywhere | either_number,
      R"(The bits that are set in both operands; of booleans, logical and.
         >>> wisp.bitwise_and(wisp.tensor([6, 3]), 2)
         tensor([2, 2]))")
BINARY(bitwise_or, I | B, same, bit_or(a, b), none, none,
      everywhere | either_number,
      R"(The bits that are set in at least one operand; of booleans, logical or.
         >>> wisp.bitwise_or(wisp.tensor([4, 3]), 1)
         tensor([5, 3]))")
BINARY(bitwise_xor, I | B, same, bit_xor(a, b), none, none,
      everywhere | either_number,
      R"(The bits that are set in exactly one operand.
         >>> wisp.bitwise_xor(wisp.tensor([6, 3]), 2)
         tensor([4, 1]))")
BINARY(bitwise_left_shift, I, same, shift_left(a, b), none, none,
      everywhere | either_number,
      R"(The bits of each integer moved to the left: `input * 2 ** other`.
         >>> wisp.bitwise_left_shift(wisp.tensor([1, 3]), 2)
         tensor([ 4, 12]))")
BINARY(bitwise_right_shift, I, same, shift_right(a, b), none, none,
      everywhere | either_number,
      R"(The bits of each integer moved to the right.
         >>> wisp.bitwise_right_shift(wisp.tensor([8, 5]), 1)
         tensor([4, 2]))")
BINARY(lerp_number, F | C, same, between(a, b, p(0)), g * conj(k(1) - p(0)), g * conj(p(0)), node_named("LerpBackward0"))
BINARY(squared_error, F | C, same, (a - b) * (a - b), g * k(2) * conj(a - b), g * k(-2) * conj(a - b), node_named("MseLossBackward0"))
BINARY(absolute_error, F, same, abs(a - b), g * sgn(a - b), -g * sgn(a - b), node_named("AbsBackward0"))
BINARY(smooth_error, F, same, where(abs(a - b) < p(0), k(0.5) * (a - b) * (a - b) / p(0), abs(a - b) - k(0.5) * p(0)), g * where(abs(a - b) < p(0), (a - b) / p(0), sgn(a - b)), -g * where(abs(a - b) < p(0), (a - b) / p(0), sgn(a - b)), node_named("SmoothL1LossBackward0"))
BINARY(huber_error, F, same, where(abs(a - b) <= p(0), k(0.5) * (a - b) * (a - b), p(0) * (abs(a - b) - k(0.5) * p(0))), g * where(abs(a - b) <= p(0), a - b, p(0) * sgn(a - b)), -g * where(abs(a - b) <= p(0), a - b, p(0) * sgn(a - b)), node_named("HuberLossBackward0"))
BINARY(logits_error, F, same, log1p(exp(-abs(a))) - where(a < k(0), a, k(0)) + (k(1) - b) * a, g * (sigmoid(a) - b), -g * a, node_named("BinaryCrossEntropyWithLogitsBackward0"))
BINARY(xlog1py, F | I | B, promote, xlog1py(a, b), where((a == k(0)) & (b <= k(-1)), nought(g), g * log1p(b)), g * a / (b + k(1)),
      special | node_named("SpecialXlog1PyBackward0", "SpecialXlog1PyBackward1", "SpecialXlog1PyBackward2"),
      R"(`input * log(1 + other)`, and 0 where `input` is 0.
         >>> wisp.special.xlog1py(wisp.tensor([0.0, 2.0]), wisp.tensor([-1.0, 1.0]))
         tensor([0.0000, 1.3863]))")
BINARY(zeta, F | I | B, promote, zeta(a, b), none, -g * a * zeta(a + k(1), b),
      special | node_named("SpecialZetaBackward0", "SpecialZetaBackward1", "SpecialZetaBackward2"),
      R"(Hurwitz' zeta function.
         >>> wisp.special.zeta(wisp.tensor([2.0]), wisp.tensor([1.0]))
         tensor([1.6449]))")
BINARY(chebyshev_polynomial_t, F | I | B, promote, chebyshev_polynomial_t(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the first kind.
         >>> wisp.special.chebyshev_polynomial_t(wisp.tensor([0.5]), 2)
         tensor([-0.5000]))")
BINARY(chebyshev_polynomial_u, F | I | B, promote, chebyshev_polynomial_u(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the second kind.
         >>> wisp.special.chebyshev_polynomial_u(wisp.tensor([0.5]), 2)
         tensor([0.]))")
BINARY(chebyshev_polynomial_v, F | I | B, promote, chebyshev_polynomial_v(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the third kind.
         >>> wisp.special.chebyshev_polynomial_v(wisp.tensor([0.5]), 2)
         tensor([-1.]))")
BINARY(chebyshev_polynomial_w, F | I | B, promote, chebyshev_polynomial_w(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the fourth kind.
         >>> wisp.special.chebyshev_polynomial_w(wisp.tensor([0.5]), 2)
         tensor([1.]))")
BINARY(hermite_polynomial_h, F | I | B, promote, hermite_polynomial_h(a, b), none, none,
      special | second_named("n|other"),
      R"(The physicists' Hermite polynomials.
         >>> wisp.special.hermite_polynomial_h(wisp.tensor([0.5]), 2)
         tensor([-1.]))")
BINARY(hermite_polynomial_he, F | I | B, promote, hermite_polynomial_he(a, b), none, none,
      special | second_named("n|other"),
      R"(The probabilists' Hermite polynomials.
         >>> wisp.special.hermite_polynomial_he(wisp.tensor([0.5]), 2)
         tensor([-0.7500]))")
BINARY(laguerre_polynomial_l, F | I | B, promote, laguerre_polynomial_l(a, b), none, none,
      special | second_named("n|other"),
      R"(Laguerre's polynomials.
         >>> wisp.special.laguerre_polynomial_l(wisp.tensor([0.5]), 2)
         tensor([0.1250]))")
BINARY(legendre_polynomial_p, F | I | B, promote, legendre_polynomial_p(a, b), none, none,
      special | second_named("n|other"),
      R"(Legendre's polynomials.
         >>> wisp.special.legendre_polynomial_p(wisp.tensor([0.5]), 2)
         tensor([-0.1250]))")
BINARY(shifted_chebyshev_polynomial_t, F | I | B, promote, shifted_chebyshev_polynomial_t(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the first kind on the interval from 0 to 1.
         >>> wisp.special.shifted_chebyshev_polynomial_t(wisp.tensor([0.5]), 2)
         tensor([-1.]))")
BINARY(shifted_chebyshev_polynomial_u, F | I | B, promote, shifted_chebyshev_polynomial_u(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the second kind on the interval from 0 to 1.
         >>> wisp.special.shifted_chebyshev_polynomial_u(wisp.tensor([0.5]), 2)
         tensor([-1.]))")
BINARY(shifted_chebyshev_polynomial_v, F | I | B, promote, shifted_chebyshev_polynomial_v(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the third kind on the interval from 0 to 1.
         >>> wisp.special.shifted_chebyshev_polynomial_v(wisp.tensor([0.5]), 2)
         tensor([-1.]))")
BINARY(shifted_chebyshev_polynomial_w, F | I | B, promote, shifted_chebyshev_polynomial_w(a, b), none, none,
      special | second_named("n|other"),
      R"(Chebyshev's polynomials of the fourth kind on the interval from 0 to 1.
         >>> wisp.special.shifted_chebyshev_polynomial_w(wisp.tensor([0.5]), 2)
         tensor([-1.]))")
TERNARY(addcmul, F | C | I | H, same, a + p(0) * b * c, g, g * conj(p(0) * c), g * conj(p(0) * b))
TERNARY(addcdiv, F | C, same, a + p(0) * (b / c), g, g * conj(p(0) / c), -g * conj(p(0) * b / (c * c)))
TERNARY(lerp, F | C, same, between(a, b, c), g * conj(k(1) - c), g * conj(c), g * conj(b - a), node_named("LerpBackward1"))
