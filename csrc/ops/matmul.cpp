// Front doors of matrix products: mm, bmm, matmul, mv, dot, linear and the add… family.
#include <cstring>

#include "matmul.h"

#include "../autograd/told.h"
#include "../autograd/whole.h"
#include "../kernels/gemm.h"
#include "../python/registry.h"

namespace wisp {
namespace {

// What C++ calls the element type: PyTorch uses it in some messages.
const char* element_name(DType d) {
    switch (d) {
    case DType::u8: return "unsigned char";
    case DType::i8: return "signed char";
    case DType::i16: return "short int";
    case DType::i32: return "int";
    case DType::i64: return "long int";
    case DType::f16: return "c10::Half";
    case DType::bf16: return "c10::BFloat16";
    case DType::f32: return "float";
    case DType::f64: return "double";
    case DType::c64: return "c10::complex<float>";
    case DType::c128: return "c10::complex<double>";
    case DType::boolean: return "bool";
    default: return name_of(d);
    }
}

void check_supported(const char* kernel, DType d) {
    if (d == DType::boolean || d == DType::u16 || d == DType::u32 || d == DType::u64)
        throw NotImplemented('"', kernel, "\" not implemented for '", type_name(d), "'");
}

int64_t rows_of(const Tensor& t, MatrixForm f) { return t.size(f.transposed ? -1 : -2); }
int64_t columns_of(const Tensor& t, MatrixForm f) { return t.size(f.transposed ? -2 : -1); }

void set_factors(kernels::GemmArgs& g, DType dtype, const Scalar& alpha, const Scalar& beta) {
    if (is_integral(dtype)) {
        g.alpha_integer = alpha.to_int();
        g.beta_integer = beta.to_int();
        return;
    }
    const std::complex<double> a = alpha.to_complex(), b = beta.to_complex();
    if (!is_complex(dtype) && (a.imag() != 0 || b.imag() != 0))
        throw RuntimeError("value cannot be converted to type ", element_name(dtype), " without overflow");
    g.alpha = a.real(), g.alpha_imag = a.imag();
    g.beta = b.real(), g.beta_imag = b.imag();
}

// out = alpha * form(a)·form(b) + beta * d, where all but out may be broadcast over the batch and d over everything.
// The rows of out must be contiguous. No checks, no history.
void multiply(const Tensor& out, const Tensor& a, MatrixForm form_a, const Tensor& b, MatrixForm form_b, const Tensor& d = {},
              const Scalar* alpha = nullptr, const Scalar* beta = nullptr) {
    if (out.numel() == 0 || out.device().type == DeviceType::meta) return;
    OnDevice on(out.device());
    kernels::GemmArgs g;
    const int64_t *sa = a.strides().end(), *sb = b.strides().end();
    g.m = rows_of(a, form_a), g.n = columns_of(b, form_b), g.k = columns_of(a, form_a);
    g.a = a.device_data(), g.b = b.device_data(), g.c = out.device_data();
    g.a_row = sa[-2], g.a_col = sa[-1], g.b_row = sb[-2], g.b_col = sb[-1];
    if (form_a.transposed) std::swap(g.a_row, g.a_col);
    if (form_b.transposed) std::swap(g.b_row, g.b_col);
    g.c_row = out.stride(-2);
    g.conj_a = form_a.conjugated, g.conj_b = form_b.conjugated;
    if (d.defined()) {
        g.d = d.device_data();
        if (d.dim() > 0 && d.size(-1) != 1) g.d_col = d.stride(-1);
        if (d.dim() > 1 && d.size(-2) != 1) g.d_row = d.stride(-2);
    }
    if (alpha) set_factors(g, out.dtype(), *alpha, *beta);
    auto batch_stride = [&](const Tensor& t, int64_t from_end) {  // from_end counts from the last batch dimension
        const int64_t at = t.dim() - 3 - from_end;
        return at < 0 || t.size(at) == 1 ? int64_t(0) : t.stride(at);
    };
    const int64_t batch = out.dim() - 2;
    bool room = true;
    for (int64_t t = 0; t < batch && room; t++) {
        const int64_t from_end = batch - 1 - t;
        room = g.add_batch(out.size(t), batch_stride(a, from_end), batch_stride(b, from_end), out.stride(t),
                           d.defined() ? batch_stride(d, from_end) : 0);
    }
    if (!room) {  // dense copies of a whole batch merge into one dimension
        auto dense = [&](const Tensor& t, int64_t rows, int64_t columns) {
            Dims sizes = out.sizes();
            sizes[batch] = rows, sizes[batch + 1] = columns;
            return contiguous(expanded(t, sizes));
        };
        return multiply(out, dense(a, a.size(-2), a.size(-1)), form_a, dense(b, b.size(-2), b.size(-1)), form_b,
                        d.defined() ? dense(d, out.size(-2), out.size(-1)) : d, alpha, beta);
    }
    g.fold_batch_into_rows();
    const kernels::GemmKernels& gemm = kernels::gemm();
    const int64_t work = out.numel() * std::max<int64_t>(1, g.k);
    if (work < 4096 && g.batch_dims == 0 && out.dtype() == DType::f32) return gemm.f32(g);
    Unlocked unlocked(work / 8);
    gemm.matmul(out.dtype(), g);
}

// Whether multiply can write to it as to a new one. Columns with gaps between their elements would be summed in another way.
bool takes_products(const Tensor& out) {
    return lies_as_new(out) || (out.device() == Device{} && out.size(-1) > 1 && out.stride(-1) == 1 && out.stride(-2) >= out.size(-1));
}

// For a product of the dtype and on the device of `a`; `input` may be added to it.
[[gnu::noinline]] Tensor given_place(Out out, const Dims& sizes, const Tensor& a, const Tensor* input) {
    OnDevice on(a.device());
    Tensor given = noting ? Tensor() : out.take_apart(sizes, a.dtype(), takes_products, input ? *input : Tensor());
    return given ? given : empty(sizes, a.dtype(), a.device());
}
inline Tensor place_for(Out out, const Dims& sizes, const Tensor& a, const Tensor* input = nullptr) {
    return out.destination ? given_place(out, sizes, a, input) : empty(sizes, a.dtype(), a.device());
}

Dims batch_of(const Tensor& a, const Tensor& b) {
    auto front = [](const Tensor& t) { return Dims(t.sizes().data(), t.dim() - 2); };
    return a.dim() == b.dim() && front(a) == front(b) ? front(a) : broadcast(front(a), front(b));
}

Dims leading(int64_t count) {
    Dims dims;
    for (int64_t i = 0; i < count; i++) dims.push_back(i);
    return dims;
}

Tensor flat_rows(const Tensor& t) { return t.dim() == 2 ? t : reshape(t, {product(Dims(t.sizes().data(), t.dim() - 1)), t.size(-1)}); }

// The gradients of linear's weight and bias in one launch, where there is a kernel for it. No history.
bool linear_gradients(Backward& bw, const Tensor& g, const Tensor& x) {
    const auto both = kernels::gemm().f32_with_row_sums;
    if (!both || g.dtype() != DType::f32 || g.dim() < 2 || bw.create_graph || needs_grad(g, x)) return false;
    const Tensor rows_g = flat_rows(g), rows_x = flat_rows(x);
    kernels::GemmArgs a;
    a.m = rows_g.size(1), a.n = rows_x.size(1), a.k = rows_g.size(0);
    a.a_row = rows_g.stride(1), a.a_col = rows_g.stride(0), a.b_row = rows_x.stride(0), a.b_col = rows_x.stride(1);
    if (a.m == 0 || a.n == 0 || a.k == 0) return false;
    const Tensor weight = empty({a.m, a.n}, DType::f32, g.device()), bias = empty({a.m}, DType::f32, g.device());
    a.a = rows_g.device_data(), a.b = rows_x.device_data(), a.c = weight.device_data();
    a.c_row = a.n;
    if (!both(a, bias.device_data())) return false;
    bw.set(0, bias);
    bw.set(2, weight);
    return true;
}

// Gradients of form(a)·form(b). With A' = form(a), the gradient of A' is g·B'ᴴ; undoing the form of a gives a's own.
Tensor gradient_of_left(const Tensor& g, MatrixForm form_a, const Tensor& b, MatrixForm form_b) {
    const bool conjugate_b = is_complex(g.dtype()) && form_a.conjugated == form_b.conjugated;
    if (form_a.transposed) return product(b, {form_b.transposed, conjugate_b}, g, {true, form_a.conjugated});
    return product(g, {false, form_a.conjugated}, b, {!form_b.transposed, conjugate_b});
}
Tensor gradient_of_right(const Tensor& grad, const Tensor& left, MatrixForm form_a, MatrixForm form_b, bool one_right) {
    const bool conjugate_a = is_complex(grad.dtype()) && form_a.conjugated == form_b.conjugated;
    // One b for a whole batch of a: a single product over all rows.
    const bool fold = one_right && left.dim() > 2 && !form_a.transposed;
    const Tensor a = fold ? flat_rows(left) : left, g = fold ? flat_rows(grad) : grad;
    if (form_b.transposed) return product(g, {true, form_b.conjugated}, a, {form_a.transposed, conjugate_a});
    return product(a, {!form_a.transposed, conjugate_a}, g, {false, form_b.conjugated});
}

Tensor scaled(const Tensor& t, const Scalar& factor) { return factor == 1. ? t : t * factor; }
Scalar conjugate(const Scalar& s) { return s.is_complex() ? Scalar(std::conj(s.to_complex())) : s; }

void check_matrices(const Tensor& a, const Tensor& b) {
    if (a.size(1) != b.size(0))
        throw RuntimeError("mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ", b.size(0), "x", b.size(1),
                           ")");
    if (a.dtype() != b.dtype())
        throw RuntimeError("expected m1 and m2 to have the same dtype, but got: ", element_name(a.dtype()),
                           " != ", element_name(b.dtype()));
    check_supported("addmm_impl_cpu_", a.dtype());
}

void check_batches(const Tensor& a, const Tensor& b) {
    if (a.dim() != 3) throw RuntimeError("batch1 must be a 3D tensor");
    if (b.dim() != 3) throw RuntimeError("batch2 must be a 3D tensor");
    if (a.size(0) != b.size(0) || a.size(2) != b.size(1))
        throw RuntimeError("Expected size for first two dimensions of batch2 tensor to be: [", a.size(0), ", ", a.size(2), "] but got: [",
                           b.size(0), ", ", b.size(1), "].");
    if (a.dtype() != b.dtype()) throw RuntimeError("expected scalar type ", type_name(a.dtype()), " but found ", type_name(b.dtype()));
    check_supported("bmm", a.dtype());
}

void check_expandable(const Tensor& t, const Dims& to) {
    if (t.dim() > to.size())
        throw RuntimeError("expand(", type_name(t.dtype()), "Tensor", t.sizes(), ", size=", to, "): the number of sizes provided (",
                           to.size(), ") must be greater or equal to the number of dimensions in the tensor (", t.dim(), ")");
    for (int64_t i = t.dim() - 1, j = to.size() - 1; i >= 0; i--, j--)
        if (t.size(i) != to[j] && t.size(i) != 1)
            throw RuntimeError("The expanded size of the tensor (", to[j], ") must match the existing size (", t.size(i),
                               ") at non-singleton dimension ", j, ".  Target sizes: ", to, ".  Tensor sizes: ", t.sizes());
}

void check_vectors(const char* name, const Tensor& a, const Tensor& b) {
    if (a.dim() != 1 || b.dim() != 1) throw RuntimeError("1D tensors expected, but got ", a.dim(), "D and ", b.dim(), "D tensors");
    if (a.dtype() != b.dtype())
        throw RuntimeError(name, " : expected both vectors to have same dtype, but found ", type_name(a.dtype()), " and ",
                           type_name(b.dtype()));
    if (a.numel() != b.numel())
        throw RuntimeError("inconsistent tensor size, expected tensor ", a.sizes(), " and src ", b.sizes(),
                           " to have the same number of elements, but got ", a.numel(), " and ", b.numel(), " elements respectively");
    check_same_device(name, a, b);
    check_supported(name, a.dtype());
}

// A vector as a matrix of one row or one column: the same memory, no history.
Tensor as_row(const Tensor& v) { return alias(v, Layout{{1, v.size(0)}, {0, v.stride(0)}, v.offset()}); }
Tensor as_column(const Tensor& v) { return alias(v, Layout{{v.size(0), 1}, {v.stride(0), 0}, v.offset()}); }

}  // namespace

Tensor product(const Tensor& a, MatrixForm form_a, const Tensor& b, MatrixForm form_b, const char* name, Out place) {
    const int64_t m = rows_of(a, form_a), n = columns_of(b, form_b);
    Tensor out;
    if (a.dim() == 2 && b.dim() == 2) {
        out = place_for(place, {m, n}, a);
    } else {
        Dims sizes = batch_of(a, b);
        sizes.push_back(m);
        sizes.push_back(n);
        out = place_for(place, sizes, a);
    }
    multiply(out, a, form_a, b, form_b);
    if (needs_grad(a, b))
        record(out, name, {a, b}, {wants_grad(b) ? a : Tensor(), wants_grad(a) ? b : Tensor()},
               told<"| self mat2">(batched<1>([form_a, form_b, one_right = b.dim() == 2](Backward& bw) {
                   if (bw.needs(0)) bw.set(0, gradient_of_left(bw.grad(), form_a, bw.saved(1), form_b));
                   if (bw.needs(1)) bw.set(1, gradient_of_right(bw.grad(), bw.saved(0), form_a, form_b, one_right));
               })));
    return out;
}

Tensor mm(const Tensor& a, const Tensor& b, Out out) {
    if (a.dim() != 2) throw RuntimeError("self must be a matrix");
    if (b.dim() != 2) throw RuntimeError("mat2 must be a matrix");
    check_same_device("mm", a, b);
    check_matrices(a, b);
    return product(a, {}, b, {}, "MmBackward0", out);
}

Tensor bmm(const Tensor& a, const Tensor& b, Out out) {
    check_batches(a, b);
    check_same_device("bmm", a, b);
    return product(a, {}, b, {}, "BmmBackward0", out);
}

// form(matrix) · vector.
static Tensor times_vector(const Tensor& matrix, MatrixForm form, const Tensor& vector) {
    Tensor out = empty({rows_of(matrix, form)}, vector.dtype(), vector.device());
    multiply(as_column(out), matrix, form, as_column(vector), {});
    if (needs_grad(matrix, vector))
        record(out, "MvBackward0", {matrix, vector}, {wants_grad(vector) ? matrix : Tensor(), wants_grad(matrix) ? vector : Tensor()},
               told<"| self vec">(batched<2>([form](Backward& bw) {
                   const Tensor& g = bw.grad();
                   const bool complex = is_complex(g.dtype());
                   if (bw.needs(0)) {
                       const Tensor v = bw.saved(1);
                       const Tensor left = form.conjugated ? conj(g) : g;
                       const Tensor right = complex && !form.conjugated ? conj(v) : v;
                       bw.set(0, form.transposed ? unsqueeze(right, 1) * left : unsqueeze(left, 1) * right);
                   }
                   if (!bw.needs(1)) return;
                   if (bw.batch) bw.set(1, product(g, {}, bw.saved(0), {form.transposed, complex && !form.conjugated}));
                   else bw.set(1, times_vector(bw.saved(0), {!form.transposed, complex && !form.conjugated}, g));
               })));
    return out;
}

Tensor mv(const Tensor& matrix, const Tensor& vector) {
    if (matrix.dim() != 2 || vector.dim() != 1)
        throw RuntimeError("vector + matrix @ vector expected, got 1, ", matrix.dim(), ", ", vector.dim());
    if (matrix.size(1) != vector.size(0))
        throw RuntimeError("size mismatch, got input (", matrix.size(0), "), mat (", matrix.size(0), "x", matrix.size(1), "), vec (",
                           vector.size(0), ")");
    if (matrix.dtype() != vector.dtype())
        throw RuntimeError("addmv input tensors must have the same dtype, but got ", type_name(vector.dtype()), ", ",
                           type_name(matrix.dtype()), ", and ", type_name(vector.dtype()));
    check_same_device("mv", matrix, vector);
    check_supported("addmv_impl_cpu", matrix.dtype());
    return times_vector(matrix, {}, vector);
}

// A short product, summed in the order that the usual BLAS libraries have: four accumulators of four lanes, what is left
// over into the first lane. Iterations that amplify rounding (L-BFGS) then take the same path as theirs.
static float short_dot(const float* a, const float* b, int64_t n) {
    using Lanes = float __attribute__((vector_size(16)));
    Lanes sums[4] = {};
    int64_t i = 0;
    for (int k = 0; i + 4 <= n; i += 4, k = (k + 1) % 4) {
        Lanes x, y;
        std::memcpy(&x, a + i, 16);
        std::memcpy(&y, b + i, 16);
        sums[k] += x * y;
    }
    for (; i < n; i++) sums[0][0] += a[i] * b[i];
    const Lanes total = sums[0] + sums[1] + sums[2] + sums[3];
    return (total[0] + total[2]) + (total[1] + total[3]);
}

static Tensor dot_product(const Tensor& a, bool conjugate_a, const Tensor& b) {
    Tensor out = empty({}, a.dtype(), a.device());
    if (a.numel() <= 64 && a.dtype() == DType::f32 && a.device().type == DeviceType::cpu && a.is_contiguous() && b.is_contiguous()) {
        *out.data<float>() = short_dot(a.data<float>(), b.data<float>(), a.numel());
        return out;
    }
    multiply(alias(out, Layout{{1, 1}, {1, 1}, out.offset()}), as_row(a), {false, conjugate_a}, as_column(b), {});
    return out;
}

Tensor dot(const Tensor& a, const Tensor& b) {
    check_vectors("dot", a, b);
    Tensor out = dot_product(a, false, b);
    if (needs_grad(a, b))
        record(out, "DotBackward0", {a, b}, {wants_grad(b) ? a : Tensor(), wants_grad(a) ? b : Tensor()},
               told<"| self tensor">([](Backward& bw) {
                   if (bw.needs(0)) bw.set(0, bw.grad() * conj(bw.saved(1)));
                   if (bw.needs(1)) bw.set(1, bw.grad() * conj(bw.saved(0)));
               }));
    return out;
}

Tensor vdot(const Tensor& a, const Tensor& b) {
    check_vectors("vdot", a, b);
    Tensor out = dot_product(a, is_complex(a.dtype()), b);
    if (needs_grad(a, b))
        record(out, "VdotBackward0", {a, b}, {wants_grad(b) ? a : Tensor(), wants_grad(a) ? b : Tensor()},
               told<"| self other">([](Backward& bw) {
                   if (bw.needs(0)) bw.set(0, conj(bw.grad()) * bw.saved(1));
                   if (bw.needs(1)) bw.set(1, bw.grad() * bw.saved(0));
               }));
    return out;
}

Tensor outer(const Tensor& a, const Tensor& b) {
    if (a.dim() != 1) throw RuntimeError("outer: Expected 1-D argument self, but got ", a.dim(), "-D");
    if (b.dim() != 1) throw RuntimeError("outer: Expected 1-D argument vec2, but got ", b.dim(), "-D");
    return reshape(a, {a.size(0), 1}) * b;
}

Tensor matmul(const Tensor& a, const Tensor& b, Out out) {
    const int64_t dims_a = a.dim(), dims_b = b.dim();
    if (dims_a == 2 && dims_b == 2) return mm(a, b, out);
    if (dims_a == 0 || dims_b == 0)
        throw RuntimeError("both arguments to matmul need to be at least 1D, but they are ", dims_a, "D and ", dims_b, "D");
    if (dims_a == 1 && dims_b == 1) return dot(a, b);
    if (dims_a == 2 && dims_b == 1) return mv(a, b);
    check_same_device("matmul", a, b);
    const int64_t k = a.size(-1), k_b = b.size(dims_b == 1 ? -1 : -2);
    if (dims_a == 1 || dims_b <= 2) {  // PyTorch folds these into one matrix, and its messages show that one
        if (k != k_b)
            throw RuntimeError("mat1 and mat2 shapes cannot be multiplied (", dims_a == 1 ? 1 : a.numel() / std::max<int64_t>(k, 1), "x", k,
                               " and ", k_b, "x", dims_b == 1 ? 1 : b.size(-1), ")");
        if (a.dtype() != b.dtype())
            throw RuntimeError("expected m1 and m2 to have the same dtype, but got: ", element_name(a.dtype()),
                               " != ", element_name(b.dtype()));
    }
    check_supported("bmm", a.dtype());
    if (dims_a == 1 && dims_b == 2) return times_vector(b, {true, false}, a);
    if (dims_b == 1) return squeeze(product(a, {}, unsqueeze(b, 1), {}), {-1});
    if (dims_a == 1) return squeeze(product(unsqueeze(a, 0), {}, b, {}), {-2});
    if (k != k_b) {
        const Dims batch = batch_of(a, b);
        throw RuntimeError("Expected size for first two dimensions of batch2 tensor to be: [", product(batch), ", ", k, "] but got: [",
                           product(batch), ", ", k_b, "].");
    }
    if (a.dtype() != b.dtype()) throw RuntimeError("expected scalar type ", type_name(a.dtype()), " but found ", type_name(b.dtype()));
    return product(a, {}, b, {}, "UnsafeViewBackward0", out);
}

// ---- beta * input + alpha * product ----

// After the checks: `input` is expandable to the shape of the product.
static Tensor add_product(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, const char* name,
                          Out place) {
    Tensor out = place_for(place, a.dim() == 2 ? Dims{a.size(0), b.size(1)} : Dims{a.size(0), a.size(1), b.size(2)}, a, &input);
    multiply(out, a, {}, b, {}, beta == 0. ? Tensor() : input, &alpha, &beta);
    if (needs_grad(input, a, b))
        record(out, name, {input, a, b}, {wants_grad(b) ? a : Tensor(), wants_grad(a) ? b : Tensor()},
               told<"alpha beta | mat1 mat2">(batched<3>([alpha = conjugate(alpha), beta = conjugate(beta)](Backward& bw) {
                                                  const Tensor& g = bw.grad();
                                                  if (bw.needs(0)) bw.set(0, scaled(g, beta));
                                                  if (bw.needs(1)) bw.set(1, scaled(gradient_of_left(g, {}, bw.saved(1), {}), alpha));
                                                  if (bw.needs(2))
                                                      bw.set(2, scaled(gradient_of_right(g, bw.saved(0), {}, {}, false), alpha));
                                              }),
                                              alpha, beta));
    return out;
}

Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Out out) {
    if (a.dim() != 2) throw RuntimeError("mat1 must be a matrix, got ", a.dim(), "-D tensor");
    if (b.dim() != 2) throw RuntimeError("mat2 must be a matrix, got ", b.dim(), "-D tensor");
    if (input.dtype() != b.dtype())
        throw RuntimeError("self and mat2 must have the same dtype, but got ", type_name(input.dtype()), " and ", type_name(b.dtype()));
    if (a.dtype() != b.dtype())
        throw RuntimeError("mat1 and mat2 must have the same dtype, but got ", type_name(a.dtype()), " and ", type_name(b.dtype()));
    check_same_device("addmm", a, b);
    check_same_device("addmm", input, a);
    check_matrices(a, b);
    check_expandable(input, {a.size(0), b.size(1)});
    return add_product(input, a, b, beta, alpha, "AddmmBackward0", out);
}

Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Out out) {
    if (a.dim() != 3) throw RuntimeError("batch1 must be a 3D tensor");
    if (b.dim() != 3) throw RuntimeError("batch2 must be a 3D tensor");
    check_expandable(input, {a.size(0), a.size(1), b.size(2)});
    check_batches(a, b);
    if (input.dtype() != a.dtype())
        throw RuntimeError("Input dtypes must be the same, got: input ", name_of(input.dtype()), ", batch1: ", name_of(a.dtype()),
                           ", batch2: ", name_of(b.dtype()));
    check_same_device("baddbmm", a, b);
    check_same_device("baddbmm", input, a);
    return add_product(input, a, b, beta, alpha, "BaddbmmBackward0", out);
}

Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
    if (a.dim() != 3) throw RuntimeError("batch1 must be a 3D tensor");
    if (b.dim() != 3) throw RuntimeError("batch2 must be a 3D tensor");
    if (a.size(0) != b.size(0))
        throw RuntimeError("batch1 and batch2 must have same number of batches, got ", a.size(0), " and ", b.size(0));
    if (a.size(2) != b.size(1))
        throw RuntimeError("Incompatible matrix sizes for bmm (", a.size(1), "x", a.size(2), " and ", b.size(1), "x", b.size(2), ")");
    check_expandable(input, {a.size(1), b.size(2)});
    if (input.dtype() != a.dtype())
        throw RuntimeError("self and batch2 must have the same dtype, but got ", type_name(input.dtype()), " and ", type_name(b.dtype()));
    if (b.dtype() != a.dtype())
        throw RuntimeError("batch1 and batch2 must have the same dtype, but got ", type_name(a.dtype()), " and ", type_name(b.dtype()));
    check_same_device("addbmm", a, b);
    check_same_device("addbmm", input, a);
    check_supported("addbmm", a.dtype());
    Tensor out = empty({a.size(1), b.size(2)}, a.dtype(), a.device());
    auto matrix = [](const Tensor& t, int64_t i) { return alias(t, t.layout().select(0, i)); };
    const Scalar one(1);
    for (int64_t i = 0; i < a.size(0); i++)
        multiply(out, matrix(a, i), {}, matrix(b, i), {}, i > 0 ? out : beta == 0. ? Tensor() : input, &alpha, i > 0 ? &one : &beta);
    if (a.size(0) == 0) copy_values(out, beta == 0. ? zeros(out.sizes(), out.dtype()) : expanded(scaled(detach(input), beta), out.sizes()));
    if (needs_grad(input, a, b))
        record(out, "AddbmmBackward0", {input, a, b}, {wants_grad(b) ? a : Tensor(), wants_grad(a) ? b : Tensor()},
               told<"alpha beta batch1_sym_argsize_0 batch1_sym_argsize_1 batch2_sym_argsize_2 | batch1 batch2">(
                   [alpha = conjugate(alpha), beta = conjugate(beta)](Backward& bw) {
                       const Tensor g = unsqueeze(bw.grad(), 0);
                       if (bw.needs(0)) bw.set(0, scaled(bw.grad(), beta));
                       if (bw.needs(1)) bw.set(1, scaled(gradient_of_left(g, {}, bw.saved(1), {}), alpha));
                       if (bw.needs(2)) bw.set(2, scaled(gradient_of_right(g, bw.saved(0), {}, {}, false), alpha));
                   },
                   alpha, beta, a.size(0), a.size(1), b.size(2)));
    return out;
}

// Unlike its relatives, PyTorch's addbmm_ lets self grow to the shape of the result.
static Tensor addbmm_(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
    const Tensor result = addbmm(self, a, b, beta, alpha);
    if (result.sizes() == self.sizes()) {
        assign_inplace(self, result, "addbmm_");
        return self;
    }
    check_inplace(self, "addbmm_", needs_grad(result));
    set_data(self, alias(result));
    if (result->grad_fn) set_history(self, result->grad_fn, result->output_number);
    if (result->dual) carry_tangents(self, result);
    return self;
}

Tensor addmv(const Tensor& input, const Tensor& matrix, const Tensor& vector, const Scalar& beta, const Scalar& alpha) {
    if (matrix.dim() != 2 || vector.dim() != 1 || input.dim() > 1)
        throw RuntimeError("vector + matrix @ vector expected, got ", input.dim(), ", ", matrix.dim(), ", ", vector.dim());
    if (matrix.size(1) != vector.size(0) || (input.dim() == 1 && input.size(0) != 1 && input.size(0) != matrix.size(0)))
        throw RuntimeError("size mismatch, got input (", input.dim() ? input.size(0) : 1, "), mat (", matrix.size(0), "x", matrix.size(1),
                           "), vec (", vector.size(0), ")");
    if (matrix.dtype() != vector.dtype() || matrix.dtype() != input.dtype())
        throw RuntimeError("addmv input tensors must have the same dtype, but got ", type_name(input.dtype()), ", ",
                           type_name(matrix.dtype()), ", and ", type_name(vector.dtype()));
    Tensor y;
    {
        GradMode off(false);
        const Tensor column = input.dim() == 1 ? unsqueeze(input, 1) : input;
        y = alias(squeeze(addmm(column, matrix, unsqueeze(vector, 1), beta, alpha), {1}));
    }
    if (needs_grad(input, matrix, vector))
        record(y, "AddmvBackward0", {input, matrix, vector},
               {wants_grad(vector) ? matrix : Tensor(), wants_grad(matrix) ? vector : Tensor()},
               told<"alpha beta | mat vec">(
                   [alpha = conjugate(alpha), beta = conjugate(beta)](Backward& bw) {
                       const Tensor g = bw.grad();
                       if (bw.needs(0)) bw.set(0, scaled(g, beta));
                       if (bw.needs(1)) bw.set(1, scaled(outer(g, conj(bw.saved(1))), alpha));
                       if (bw.needs(2)) bw.set(2, scaled(mv(transpose(conj(bw.saved(0)), 0, 1), g), alpha));
                   },
                   alpha, beta));
    return y;
}

Tensor addr(const Tensor& input, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
    if (a.dim() != 1) throw RuntimeError("addr: Expected 1-D argument vec1, but got ", a.dim(), "-D");
    if (b.dim() != 1) throw RuntimeError("addr: Expected 1-D argument vec2, but got ", b.dim(), "-D");
    check_expandable(input, {a.size(0), b.size(0)});
    const DType dtype = result_type(outer(a, b), input);
    for (const Scalar* factor : {&beta, &alpha}) {
        if (factor->is_bool() && dtype != DType::boolean)
            throw RuntimeError("Boolean ", factor == &beta ? "beta" : "alpha", " only supported for Boolean results.");
        if (factor->is_floating() && is_integral(dtype))
            throw RuntimeError("For integral input tensors, argument ", factor == &beta ? "beta" : "alpha",
                               " must not be a floating point number.");
        if (factor->is_complex() && !is_complex(dtype))
            throw RuntimeError("For non-complex input tensors, argument ", factor == &beta ? "beta" : "alpha",
                               " must not be a complex number.");
    }
    if (dtype == DType::boolean) {
        const Tensor scaled_outer = alpha.to_bool() ? outer(a, b) : zeros({a.size(0), b.size(0)}, dtype);
        return beta.to_bool() ? logical_or(scaled_outer, input) : scaled_outer;
    }
    return whole("AddrBackward0", {input, a, b}, [&] {
        const Tensor cross = outer(scaled(a, alpha), b);
        return beta == 0. ? to(cross, dtype) : scaled(input, beta) + cross;
    });
}

// ---- linear ----

// Edges: input and weight from number `first` on, before them the bias, if there is one. `one_each`: it has a number for each feature.
static void linear_backward(Backward& bw, int64_t first, bool one_each) {
    const int64_t input = first, weight = first + 1;
    const bool with_bias = first == 1 && bw.needs(0);
    // In a compiled region of a GPU what makes g can add up its rows as well, before the products ask for it.
    const bool later = noting && bw.grad().is_cuda() && bw.grad().dim() > 1;
    const Tensor dense = later && bw.grad().dim() > 2 ? contiguous(bw.grad()) : Tensor();
    const Tensor& g = dense ? dense : bw.grad();
    const bool complex = is_complex(g.dtype());
    const bool added = later && one_each && with_bias && !bw.batch && g.is_contiguous();
    if (added) bw.set(0, sum(g, leading(g.dim() - 1)));
    if (bw.needs(input)) {
        const Tensor w = bw.saved(1);
        bw.set(input, g.dim() == 1 ? times_vector(w, {true, complex}, g) : product(g, {}, w, {false, complex}));
    }
    if (one_each && with_bias && bw.needs(weight) && linear_gradients(bw, g, bw.saved(0))) return;
    if (bw.needs(weight)) {
        const Tensor x = bw.saved(0);
        if (g.dim() == 1) bw.set(weight, unsqueeze(g, 1) * conj(x));
        else bw.set(weight, product(flat_rows(g), {true, false}, flat_rows(x), {false, complex}));
    }
    if (with_bias && !added) bw.set(0, g);  // the engine sums it over the rows
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    if (input.dim() == 0 || weight.dim() == 0)
        throw RuntimeError("both arguments to linear need to be at least 1D, but they are ", input.dim(), "D and ", weight.dim(), "D");
    if (weight.dim() == 1) {
        if (bias.defined()) throw RuntimeError("mat2 must be a matrix, got 1-D tensor");
        return matmul(input, weight);
    }
    if (weight.dim() != 2) throw RuntimeError("t() expects a tensor with <= 2 dimensions, but self is ", weight.dim(), "D");
    const int64_t features = weight.size(0), k = weight.size(1);
    if (input.size(-1) != k)
        throw RuntimeError("mat1 and mat2 shapes cannot be multiplied (",
                           input.dim() == 1 ? 1 : product(Dims(input.sizes().data(), input.dim() - 1)), "x", input.size(-1), " and ", k,
                           "x", features, ")");
    if (bias.defined() && (bias.dtype() != weight.dtype())) {
        // PyTorch adds the bias afterwards here, by the rules of promotion.
        if (input.dim() > 2 && !input.is_contiguous()) return to(linear(input, weight, Tensor()) + bias, weight.dtype());
        throw RuntimeError("self and mat2 must have the same dtype, but got ", type_name(bias.dtype()), " and ", type_name(weight.dtype()));
    }
    if (input.dtype() != weight.dtype()) {
        if (bias.defined())
            throw RuntimeError("mat1 and mat2 must have the same dtype, but got ", type_name(input.dtype()), " and ",
                               type_name(weight.dtype()));
        throw RuntimeError("expected m1 and m2 to have the same dtype, but got: ", element_name(input.dtype()),
                           " != ", element_name(weight.dtype()));
    }
    check_supported("addmm_impl_cpu_", input.dtype());
    check_same_device("linear", input, weight);
    Dims sizes = input.sizes();
    sizes.back() = features;
    if (bias.defined()) {
        check_same_device("linear", input, bias);
        if (bias.dim() != 1 || bias.size(0) != features) {
            Dims folded{product(Dims(sizes.data(), sizes.size() - 1)), features};
            check_expandable(bias, sizes.size() > 2 && bias.dim() > 2 ? sizes : folded);
            if (bias.dim() > 1) return linear(input, weight, {}) + bias;  // PyTorch lets a bias broadcast
        }
    }
    Tensor out = empty(sizes, input.dtype(), input.device());
    const Scalar one(1);
    const bool vector = input.dim() == 1;
    multiply(vector ? as_row(out) : out, vector ? as_row(input) : input, {}, weight, {true, false}, bias, &one, &one);
    if (needs_grad(input, weight, bias)) {
        auto note = [&](const char* name, std::initializer_list<Tensor> inputs, auto&& gradients) {
            record(out, name, inputs, {wants_grad(weight) ? input : Tensor(), wants_grad(input) ? weight : Tensor()}, gradients);
        };
        if (bias.defined())  // in the order of addmm's arguments, in which hooks of leaves are called
            note("AddmmBackward0", {bias, input, weight},
                 told<"alpha beta | mat1">(batched<2>([one_each = bias.dim() == 1 && bias.size(0) == features](Backward& bw) {
                                               linear_backward(bw, 1, one_each);
                                           }),
                                           int64_t(1), int64_t(1)));
        else note("MmBackward0", {input, weight}, batched<1>([](Backward& bw) { linear_backward(bw, 0, false); }));
    }
    return out;
}

Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias) {
    if (a.dim() != b.dim()) throw RuntimeError("bilinear(): input dimensions do not match: got ", a.dim(), " and ", b.dim());
    if (weight.dim() != 3) throw RuntimeError("bilinear(): weight must be a 3D tensor, got ", weight.dim(), "D");
    for (int64_t i = 0; i + 1 < a.dim(); i++)
        if (a.size(i) != b.size(i))
            throw RuntimeError("bilinear(): input batch dimensions do not match at dim ", i, ": got ", a.size(i), " and ", b.size(i));
    if (a.size(-1) != weight.size(1))
        throw RuntimeError("bilinear(): input1 size does not match weight size: got ", a.size(-1), " but expected ", weight.size(1));
    if (b.size(-1) != weight.size(2))
        throw RuntimeError("bilinear(): input2 size does not match weight size: got ", b.size(-1), " but expected ", weight.size(2));
    if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0)))
        throw RuntimeError("bilinear(): bias size does not match weight size: got ", bias.dim() ? bias.size(0) : 1, " but expected ",
                           weight.size(0));
    const int64_t features = weight.size(0), n1 = a.size(-1), n2 = b.size(-1);
    Dims sizes = a.sizes();
    sizes.back() = features;
    const int64_t rows = product(sizes) / std::max<int64_t>(features, 1);
    // (rows, n1) · (n1, features * n2), then a product with b over n2 for each row.
    const Tensor left = product(reshape(a, {features ? rows : product(Dims(a.sizes().data(), a.dim() - 1)), n1}), {},
                                reshape(transpose(weight, 0, 1), {n1, features * n2}), {});
    const Tensor joined = product(reshape(left, {left.size(0), features, n2}), {}, reshape(b, {left.size(0), n2, 1}), {});
    const Tensor out = reshape(joined, sizes);
    return bias.defined() ? out + bias : out;
}

static void old_order(const char* name) {
    warn(str("This overload of ", name, " is deprecated: the factors in front; pass them by name, behind the tensors."));
}
// The older order of arguments, with the factors in front.
#define WISP_OLD_ORDER(NAME, A, B)                                                                                                        \
    {#NAME "(Number beta, Tensor input, Number alpha, Tensor " A ", Tensor " B ", *, Tensor? out=None)",                                  \
     [](Scalar beta, const Tensor& x, Scalar alpha, const Tensor& a, const Tensor& b) {                                                   \
         return old_order(#NAME), NAME(x, a, b, beta, alpha);                                                                             \
     },                                                                                                                                   \
     function},                                                                                                                           \
        {#NAME "(Number beta, Tensor input, Tensor " A ", Tensor " B ", *, Tensor? out=None)",                                            \
         [](Scalar beta, const Tensor& x, const Tensor& a, const Tensor& b) { return old_order(#NAME), NAME(x, a, b, beta, Scalar(1)); }, \
         function},                                                                                                                       \
        {#NAME "(Tensor input, Number beta, Number alpha, Tensor " A ", Tensor " B ")",                                                   \
         [](const Tensor& x, Scalar beta, Scalar alpha, const Tensor& a, const Tensor& b) {                                               \
             return old_order(#NAME), NAME(x, a, b, beta, alpha);                                                                         \
         },                                                                                                                               \
         method},                                                                                                                         \
        {#NAME "(Tensor input, Number beta, Tensor " A ", Tensor " B ")",                                                                 \
         [](const Tensor& x, Scalar beta, const Tensor& a, const Tensor& b) { return old_order(#NAME), NAME(x, a, b, beta, Scalar(1)); }, \
         method},                                                                                                                         \
        {#NAME "(Tensor input, Number beta, Number alpha, Tensor " A ", Tensor " B ")",                                                   \
         [](const Tensor& x, Scalar beta, Scalar alpha, const Tensor& a, const Tensor& b) {                                               \
             return old_order(#NAME "_"), NAME(x, a, b, beta, alpha);                                                                     \
         },                                                                                                                               \
         inplace},                                                                                                                        \
    {                                                                                                                                     \
        #NAME "(Tensor input, Number beta, Tensor " A ", Tensor " B ")",                                                                  \
            [](const Tensor& x, Scalar beta, const Tensor& a, const Tensor& b) {                                                          \
                return old_order(#NAME "_"), NAME(x, a, b, beta, Scalar(1));                                                              \
            },                                                                                                                            \
            inplace                                                                                                                       \
    }

static const Operators operators = {
    {"mm(Tensor input, Tensor mat2, *, Tensor!? out=None)", mm, function | method | in_lower | also("spmm dsmm"),
     R"(The product of two matrices.
        >>> wisp.mm(wisp.tensor([[1, 2]]), wisp.tensor([[3], [4]]))
        tensor([[11]]))"},
    {"bmm(Tensor input, Tensor mat2|batch2, *, Tensor!? out=None)", bmm, function | method | in_lower,
     R"(The products of the matrices of two batches.
        >>> wisp.bmm(wisp.ones(2, 1, 3), wisp.ones(2, 3, 1)).flatten()
        tensor([3., 3.]))"},
    {"matmul(Tensor input, Tensor other|tensor2, *, Tensor!? out=None)", matmul, function | method | in_lower,
     R"(The product of vectors, matrices or batches of matrices; the same as `@`.
        >>> wisp.matmul(wisp.tensor([[1, 2], [3, 4]]), wisp.tensor([1, 1]))
        tensor([3, 7]))"},
    {"linalg.matmul(Tensor input, Tensor other|tensor2, *, Tensor!? out=None)", matmul, function | in_lower,
     R"(The matrix product.
        >>> wisp.linalg.matmul(wisp.eye(2), wisp.ones(2, 1))
        tensor([[1.],
                [1.]]))"},
    {"mv(Tensor input, Tensor vec, *, Tensor!? out=None)", mv, function | method | cuda_lower,
     R"(The product of a matrix and a vector.
        >>> wisp.mv(wisp.tensor([[1, 2], [3, 4]]), wisp.tensor([1, 1]))
        tensor([3, 7]))"},
    {"dot(Tensor input, Tensor tensor|other, *, Tensor!? out=None)", dot, function | method | cuda_widest,
     R"(The sum of the products of two vectors.
        >>> wisp.dot(wisp.tensor([1, 2]), wisp.tensor([3, 4]))
        tensor(11))"},
    {"vdot(Tensor input, Tensor other, *, Tensor!? out=None)", vdot, function | method | cuda_widest,
     R"(The sum of the products of two vectors, the first one conjugated.
        >>> wisp.vdot(wisp.tensor([1j]), wisp.tensor([1j]))
        tensor(1.+0.j))"},
    {"outer(Tensor input, Tensor vec2, *, Tensor? out=None)", outer, complex_half | function | method,
     R"(All products of the elements of two vectors.
        >>> wisp.outer(wisp.tensor([1, 2]), wisp.tensor([3, 4]))
        tensor([[3, 4],
                [6, 8]]))"},
    {"ger(Tensor input, Tensor vec2, *, Tensor? out=None)", outer, function | method,
     R"(The outer product; the same as `outer`.
        >>> wisp.ger(wisp.tensor([1, 2]), wisp.tensor([3, 4]))
        tensor([[3, 4],
                [6, 8]]))"},
    {"addmm(Tensor input, Tensor mat1, Tensor mat2, *, Number beta=1, Number alpha=1, Tensor!? out=None)", addmm,
     function | method | inplace | in_lower,
     R"(`beta * input + alpha * mat1 @ mat2`.
        >>> wisp.addmm(wisp.ones(2), wisp.eye(2), wisp.eye(2))
        tensor([[2., 1.],
                [1., 2.]]))"},
    {"addmv(Tensor input, Tensor mat, Tensor vec, *, Number beta=1, Number alpha=1, Tensor!? out=None)", addmv,
     function | method | inplace | inplace_function | cuda_lower,
     R"(`beta * input + alpha * mat @ vec`.
        >>> wisp.addmv(wisp.ones(2), wisp.eye(2), wisp.tensor([1.0, 2.0]))
        tensor([2., 3.]))"},
    {"addr(Tensor input, Tensor vec1, Tensor vec2, *, Number beta=1, Number alpha=1, Tensor? out=None)", addr,
     function | method | inplace | cuda_lower,
     R"(`beta * input + alpha * outer(vec1, vec2)`.
        >>> wisp.addr(wisp.zeros(2, 2), wisp.tensor([1.0, 2.0]), wisp.ones(2))
        tensor([[1., 1.],
                [2., 2.]]))"},
    {"addbmm(Tensor input, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1, Tensor!? out=None)", addbmm,
     function | method | in_lower,
     R"(`beta * input + alpha * (sum of the products of the matrices of two batches)`.
        >>> wisp.addbmm(wisp.zeros(2, 2), wisp.ones(3, 2, 4), wisp.ones(3, 4, 2))
        tensor([[12., 12.],
                [12., 12.]]))"},
    {"addbmm_(Tensor self, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)", addbmm_, method},
    {"baddbmm(Tensor input, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1, Tensor!? out=None)", baddbmm,
     function | method | inplace | in_lower,
     R"(`beta * input + alpha * batch1 @ batch2`, matrix by matrix.
        >>> wisp.baddbmm(wisp.zeros(1, 2, 2), wisp.ones(1, 2, 3), wisp.ones(1, 3, 2))
        tensor([[[3., 3.],
                 [3., 3.]]]))"},
    {"nn.functional.linear(Tensor input, Tensor weight, Tensor? bias=None, *, Tensor!? out=None)", linear, function | in_lower,
     R"(`input @ weight.T + bias`.
        >>> wisp.nn.functional.linear(wisp.tensor([1.0, 2.0]), wisp.tensor([[1.0, 1.0]]), wisp.tensor([0.5]))
        tensor([3.5000]))"},
    {"nn.functional.bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None)", bilinear, function | cuda_widest,
     R"(`x1 @ weight @ x2 + bias` for each output.
        >>> wisp.nn.functional.bilinear(wisp.ones(1, 2), wisp.ones(1, 2), wisp.ones(3, 2, 2))
        tensor([[4., 4., 4.]]))"},
    {"bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None)", bilinear, function | cuda_widest,
     R"(`x1 @ weight @ x2 + bias` for each output.
        >>> wisp.bilinear(wisp.ones(1, 2), wisp.ones(1, 2), wisp.ones(3, 2, 2), None)
        tensor([[4., 4., 4.]]))"},
    WISP_OLD_ORDER(addmm, "mat1", "mat2"),
    WISP_OLD_ORDER(addmv, "mat", "vec"),
    WISP_OLD_ORDER(addr, "vec1", "vec2"),
    WISP_OLD_ORDER(addbmm, "batch1", "batch2"),
    WISP_OLD_ORDER(baddbmm, "batch1", "batch2"),
    {"addbmm_(Tensor self, Number beta, Number alpha, Tensor batch1, Tensor batch2)",
     [](const Tensor& x, Scalar beta, Scalar alpha, const Tensor& a, const Tensor& b) {
         return old_order("addbmm_"), addbmm_(x, a, b, beta, alpha);
     },
     method},
    {"addbmm_(Tensor self, Number beta, Tensor batch1, Tensor batch2)",
     [](const Tensor& x, Scalar beta, const Tensor& a, const Tensor& b) { return old_order("addbmm_"), addbmm_(x, a, b, beta, Scalar(1)); },
     method},
};

}  // namespace wisp
