// Products by cuBLASLt. Plans (descriptions, layouts and the chosen algorithm) are made once per shape and kept.
//
// cuBLASLt thinks in columns: our row-major C = A B is its C' = B' A', the same memory read the other way.
#include "gemm.h"

#include <optional>
#include <unordered_map>

#include "../core/device.h"
#include "../core/errors.h"
#include "../core/scalar.h"
#include "plan_key.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

// X(name in the table, symbol, parameters)
#define WISP_CUBLASLT(X)                                                                                                       \
    X(create, cublasLtCreate, (Handle*))                                                                                       \
    X(description, cublasLtMatmulDescCreate, (Handle*, int compute, int scale))                                                \
    X(set_description, cublasLtMatmulDescSetAttribute, (Handle, int, const void*, size_t))                                     \
    X(layout, cublasLtMatrixLayoutCreate, (Handle*, int type, uint64_t rows, uint64_t columns, int64_t leading))               \
    X(set_layout, cublasLtMatrixLayoutSetAttribute, (Handle, int, const void*, size_t))                                        \
    X(preference, cublasLtMatmulPreferenceCreate, (Handle*))                                                                   \
    X(set_preference, cublasLtMatmulPreferenceSetAttribute, (Handle, int, const void*, size_t))                                \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic, (Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, void*, int*))   \
    X(matmul, cublasLtMatmul,                                                                                                  \
      (Handle, Handle, const void*, const void*, Handle, const void*, Handle, const void*, const void*, Handle, void*, Handle, \
       const void*, void*, size_t, Handle))

struct Lt {
    WISP_CUBLASLT(WISP_FIELD)
};

const Lt& lt() {
    static const Lt table = open_table<Lt>({"cuBLASLt", "products on the GPU need", "cublas", {"libcublasLt.so.13", "libcublasLt.so.12"}},
                                           {WISP_CUBLASLT(WISP_SYMBOL)});
    return table;
}

void must(Result r, const char* what) {
    if (r != 0) throw RuntimeError("cuBLASLt error ", r, " (", what, ")");
}

// The library's numbers, by its names.
enum DataType : int { real_32 = 0, real_64 = 1, real_16 = 2, complex_32 = 4, complex_64 = 5, bfloat_16 = 14 };  // cudaDataType_t
enum ComputeType : int { compute_32f = 68, compute_64f = 70, compute_32f_fast_tf32 = 77 };                      // cublasComputeType_t
enum Description : int { desc_transa = 3, desc_transb = 4, desc_epilogue = 7, desc_bias_pointer = 8 };          // cublasLtMatmulDesc…
enum LayoutPart : int { layout_batch_count = 5, layout_strided_batch_offset = 6 };                              // cublasLtMatrixLayout…
enum Preference : int { pref_max_workspace = 1, pref_min_alignment_a = 5, pref_min_alignment_d = 8 };           // cublasLtMatmulPreference…
constexpr int32_t op_n = 0, op_t = 1, epilogue_bias = 4;

bool tf32 = false;
constexpr size_t workspace_bytes = size_t(32) << 20;

// Everything that decides about an algorithm; no padding, for it is hashed as bytes.
struct Shape {
    int64_t m, n, k, lda, ldb, ldc, ldd, batch, stride_a, stride_b, stride_c, stride_d;
    int32_t dtype, transpose_a, transpose_b, bias, alignment, device, fast, beta;
};
struct Algorithm {  // cublasLtMatmulHeuristicResult_t
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
struct ProductPlan {
    Shape shape;
    Handle description, a, b, c, d;
    Algorithm found;
    bool chosen = false;  // among those that the library proposes: see choose_quickest
};

DataType data_type(DType d) {
    switch (d) {
    case DType::f32: return real_32;
    case DType::f64: return real_64;
    case DType::f16: return real_16;
    case DType::c64: return complex_32;
    case DType::c128: return complex_64;
    case DType::bf16: return bfloat_16;
    default: throw RuntimeError("\"addmm_cuda\" not implemented for '", name_of(d), "'");
    }
}

Handle handle(int device) {
    static Handle handles[64] = {};
    if (!handles[device]) must(lt().create(&handles[device]), "starting");
    return handles[device];
}

// The algorithms that the library proposes, the most promising first.
int propose(const ProductPlan& p, Algorithm* to, int count) {
    const Lt& l = lt();
    static Handle preference = nullptr;
    if (!preference) must(l.preference(&preference), "choosing an algorithm");
    const size_t workspace = workspace_bytes;
    l.set_preference(preference, pref_max_workspace, &workspace, 8);
    const uint32_t alignment = uint32_t(p.shape.alignment);
    for (int which = pref_min_alignment_a; which <= pref_min_alignment_d; which++) l.set_preference(preference, which, &alignment, 4);
    int found = 0;
    must(l.heuristic(handle(p.shape.device), p.description, p.b, p.a, p.d, p.c, preference, count, to, &found), "choosing an algorithm");
    return found;
}

ProductPlan& plan_for(const Shape& s) {
    static std::unordered_map<Shape, ProductPlan, HashBytes<Shape>, SameBytes<Shape>> plans;
    auto it = plans.find(s);
    if (it != plans.end()) return it->second;
    const DType dtype = DType(s.dtype);
    const int type = data_type(dtype);
    const bool wide = dtype == DType::f64 || dtype == DType::c128;
    const ComputeType compute = wide ? compute_64f : s.fast ? compute_32f_fast_tf32 : compute_32f;
    const DataType scale = data_type(compute_dtype(dtype));
    ProductPlan p{};
    p.shape = s;
    const Lt& l = lt();
    must(l.description(&p.description, compute, scale), "describing a product");
    // Its first operand is our B.
    must(l.set_description(p.description, desc_transa, s.transpose_b ? &op_t : &op_n, 4), "describing a product");
    must(l.set_description(p.description, desc_transb, s.transpose_a ? &op_t : &op_n, 4), "describing a product");
    if (s.bias) must(l.set_description(p.description, desc_epilogue, &epilogue_bias, 4), "asking for a bias");
    auto layout = [&](Handle* h, int64_t rows, int64_t columns, int64_t leading, int64_t stride) {
        must(l.layout(h, type, uint64_t(rows), uint64_t(columns), leading), "describing a matrix");
        if (s.batch > 1) {
            const int32_t count = int32_t(s.batch);
            must(l.set_layout(*h, layout_batch_count, &count, 4), "describing a batch");
            must(l.set_layout(*h, layout_strided_batch_offset, &stride, 8), "describing a batch");
        }
    };
    layout(&p.b, s.transpose_b ? s.k : s.n, s.transpose_b ? s.n : s.k, s.ldb, s.stride_b);
    layout(&p.a, s.transpose_a ? s.m : s.k, s.transpose_a ? s.k : s.m, s.lda, s.stride_a);
    layout(&p.c, s.n, s.m, s.ldc, s.stride_c);
    layout(&p.d, s.n, s.m, s.ldd, s.stride_d);
    if (propose(p, &p.found, 1) == 0)
        throw RuntimeError("cuBLASLt has no algorithm for a product of ", s.m, " x ", s.k, " and ", s.k, " x ", s.n, " in ",
                           name_of(dtype));
    return plans.emplace(s, p).first->second;
}

uint32_t alignment_of(std::initializer_list<const void*> pointers) {
    uintptr_t bits = 256;
    for (const void* p : pointers) bits |= uintptr_t(p);
    return uint32_t(bits & (~bits + 1));
}

// All that a call of the library takes; no padding (see keep_call).
struct ProductCall {
    const ProductPlan* plan;
    const void *a, *b, *addend, *bias;
    void *c, *workspace;
    double alpha[2], beta[2];
    int32_t device, wide;
};

void call_library(const void* data, Handle stream) {
    const ProductCall& t = *static_cast<const ProductCall*>(data);
    const ProductPlan& p = *t.plan;
    if (t.bias) must(lt().set_description(p.description, desc_bias_pointer, &t.bias, 8), "giving a bias");
    alignas(16) const double wide[4] = {t.alpha[0], t.alpha[1], t.beta[0], t.beta[1]};  // the library loads a complex number as one
    alignas(16) float narrow[4];
    std::copy(wide, wide + 4, narrow);
    const void* alpha = t.wide ? static_cast<const void*>(wide) : narrow;
    const void* beta = t.wide ? static_cast<const void*>(wide + 2) : narrow + 2;
    Timed timed("cuBLASLt product");
    must(lt().matmul(handle(t.device), p.description, alpha, t.b, p.b, t.a, p.a, beta, t.addend, p.d, t.c, p.c, p.found.algorithm,
                     t.workspace, p.found.workspace, stream),
         "a product");
}

// --- the quickest of several algorithms

constexpr int most_proposals = 8;
constexpr double worth_choosing = 4e9;  // operations

// Milliseconds of a product, the least of some.
float time_of(const ProductCall& t, const Algorithm& algorithm, void* c, const void* workspace, int times) {
    const Driver& d = driver();
    const Handle stream = current_stream();
    static Handle from = nullptr, to = nullptr;
    if (!from) d.event_create(&from, 0), d.event_create(&to, 0);
    ProductPlan plan = *t.plan;
    plan.found = algorithm;
    ProductCall call = t;
    call.plan = &plan, call.c = c, call.addend = c, call.workspace = const_cast<void*>(workspace);
    float best = 1e30f, time = 0;
    for (int round = 0; round < 3; round++) {
        d.event_record(from, stream);
        for (int i = 0; i < times; i++) call_library(&call, stream);
        d.event_record(to, stream);
        d.event_synchronize(to);
        if (d.event_elapsed(&time, from, to) == 0) best = std::min(best, time / float(times));
    }
    return best;
}

// In compiled regions a large product is made by the quickest of those algorithms that give the same bits as the one which the library
// proposes first. That is tried out on random numbers, so what is computed depends on no time.
void choose_quickest(ProductPlan& p, const ProductCall& t) {
    p.chosen = true;
    const Shape& s = p.shape;
    const DType dtype = DType(s.dtype);
    Algorithm proposed[most_proposals];
    const int count = propose(p, proposed, most_proposals);
    if (count < 2) return;
    try {
        const int64_t a_count = (s.transpose_a ? s.k : s.m) * s.lda, b_count = (s.transpose_b ? s.n : s.k) * s.ldb, c_count = s.m * s.n;
        const Scratch a(size_t(a_count) * 2), b(size_t(b_count) * 2), c(size_t(c_count) * 2), other(size_t(c_count) * 2),
            workspace(workspace_bytes), differ(16);
        static Instances<4> kernels("cuda/kernels/trial.cuh");
        const unsigned blocks = 1024;
        auto random = [&](const Scratch& to, int64_t n) {
            const bool half = dtype == DType::f16;
            launch_with(kernels(half, [&] { return str("trial_numbers<", type_text(dtype), ">"); }), {blocks}, {256}, 0, to.data(), n);
        };
        random(a, a_count), random(b, b_count);
        ProductCall call = t;
        call.a = a.data(), call.b = b.data(), call.bias = s.bias ? b.data() : nullptr;
        const float first = time_of(call, proposed[0], c.data(), workspace.data(), 1);
        const int times = std::clamp(int(0.2f / first), 1, 4);
        float best = time_of(call, proposed[0], c.data(), workspace.data(), times) * 0.97f;
        for (int i = 1; i < count; i++) {
            const float time = time_of(call, proposed[i], other.data(), workspace.data(), times);
            if (time >= best) continue;
            int32_t found = 0;
            fill_zero(differ.data(), 16);
            launch_with(kernels(2, [&] { return std::string("trial_differs"); }), {blocks}, {256}, 0, c.data(), other.data(), c_count / 8,
                        differ.data());
            check(driver().copy_to_host(&found, Pointer(differ.data()), 4, current_stream()), "reading a result");
            check(driver().stream_synchronize(current_stream()), "waiting for the GPU");
            if (found) continue;
            best = time;
            p.found = proposed[i];
        }
    } catch (const DeviceOutOfMemory&) {}  // the first one, then
}

bool may_choose(const Shape& s) {
    return noting && !s.beta && s.batch == 1 && item_size(DType(s.dtype)) == 2 && !is_complex(DType(s.dtype)) && s.ldc == s.n &&
           s.m * s.n % 8 == 0 && 2.0 * double(s.m) * double(s.n) * double(s.k) >= worth_choosing && s.m * s.n <= (int64_t(1) << 29) &&
           !keeps_work && !timing && !is_captured();
}

// One strided batch: the last batch dimension, if there is one.
void one(DType dtype, const GemmArgs& g, const char* a, const char* b, char* c, const char* d, int last) {
    const int device = current_device().index;
    Shape s{};
    s.m = g.m, s.n = g.n, s.k = g.k;
    s.dtype = int32_t(dtype);
    s.device = device;
    s.fast = dtype == DType::f32 && tf32;
    // Row-major A (columns adjacent) is read as it is; otherwise transposed.
    s.transpose_a = !(g.a_col == 1 || g.k == 1);
    s.lda = s.transpose_a ? g.a_col : g.a_row;
    s.transpose_b = !(g.b_col == 1 || g.n == 1);
    s.ldb = s.transpose_b ? g.b_col : g.b_row;
    // Of a single row or column the stride means nothing, but it must be large enough.
    s.lda = std::max(s.lda, s.transpose_a ? g.m : g.k);
    s.ldb = std::max(s.ldb, s.transpose_b ? g.k : g.n);
    s.ldc = std::max(g.c_row, g.n);
    s.batch = last >= 0 ? g.batch_size[last] : 1;
    if (s.batch > 1) { s.stride_a = g.batch_a[last], s.stride_b = g.batch_b[last], s.stride_c = g.batch_c[last]; }
    const bool with_d = d && (g.beta != 0 || g.beta_imag != 0);
    const bool row_bias =
        with_d && g.d_row == 0 && (g.d_col == 1 || g.n == 1) && g.beta == 1 && g.beta_imag == 0 && s.batch == 1 && !is_complex(dtype);
    s.bias = row_bias;
    const void* addend = c;
    s.ldd = s.ldc;
    s.stride_d = s.stride_c;
    if (with_d && !row_bias) {
        addend = d;
        if ((g.d_col == 1 || g.n == 1) && g.d_row >= g.n) {
            s.ldd = g.d_row;
            s.stride_d = s.batch > 1 ? g.batch_d[last] : 0;
        } else {  // any other layout is first spread over the result
            const Dims sizes = {s.batch, g.m, g.n};
            const int64_t to[3] = {s.stride_c, g.c_row, 1}, from[3] = {s.batch > 1 ? g.batch_d[last] : 0, g.d_row, g.d_col};
            copy_elements({c, dtype, to, nullptr}, {const_cast<char*>(d), dtype, from, nullptr}, sizes, false);
            addend = c;
        }
    }
    s.beta = with_d && !row_bias;
    s.alignment = int32_t(alignment_of({a, b, c, addend}));
    ProductPlan& p = plan_for(s);
    ProductCall call{&p,
                     a,
                     b,
                     addend,
                     row_bias ? d : nullptr,
                     c,
                     nullptr,
                     {g.alpha, g.alpha_imag},
                     {s.beta ? g.beta : 0, s.beta ? g.beta_imag : 0},
                     device,
                     dtype == DType::f64 || dtype == DType::c128};
    if (!p.chosen && may_choose(s)) choose_quickest(p, call);
    const Scratch workspace(p.found.workspace);
    call.workspace = workspace.data();
    call_or_keep(call, call_library);
}

void batches(DType dtype, const GemmArgs& g, int dim, const char* a, const char* b, char* c, const char* d) {
    if (dim >= g.batch_dims - 1) return one(dtype, g, a, b, c, d, dim < g.batch_dims ? dim : -1);
    const int64_t item = item_size(dtype);
    for (int64_t i = 0; i < g.batch_size[dim]; i++)
        batches(dtype, g, dim + 1, a + i * g.batch_a[dim] * item, b + i * g.batch_b[dim] * item, c + i * g.batch_c[dim] * item,
                d ? d + i * g.batch_d[dim] * item : nullptr);
}

// Whether A (or B) can be read as it lies.
bool takes(const GemmArgs& g, bool a) {
    const int64_t rows = a ? g.m : g.k, columns = a ? g.k : g.n, row = a ? g.a_row : g.b_row, column = a ? g.a_col : g.b_col;
    if (column == 1 || columns == 1) return row >= columns || rows == 1;
    return (row == 1 || rows == 1) && (column >= rows || columns == 1);
}

// All of C, or what lies like it: the batch, rows, columns.
Dims all_sizes(const GemmArgs& g) {
    Dims sizes(g.batch_size, g.batch_dims);
    sizes.push_back(g.m);
    sizes.push_back(g.n);
    return sizes;
}
Dims all_strides(const GemmArgs& g, const int64_t* batch, int64_t row, int64_t column) {
    Dims strides(batch, g.batch_dims);
    strides.push_back(row);
    strides.push_back(column);
    return strides;
}

// Puts a dense copy in the place of A (or B), conjugated where that was asked for. What the batch repeats stays one matrix.
void make_dense(std::optional<Scratch>& memory, GemmArgs& g, DType dtype, bool of_a) {
    const void*& data = of_a ? g.a : g.b;
    int64_t &row = of_a ? g.a_row : g.b_row, &column = of_a ? g.a_col : g.b_col, *batch = of_a ? g.batch_a : g.batch_b;
    bool& conjugate = of_a ? g.conj_a : g.conj_b;
    Dims sizes = all_sizes(g), to(sizes.size()), from = all_strides(g, batch, row, column);
    sizes[g.batch_dims] = of_a ? g.m : g.k, sizes[g.batch_dims + 1] = of_a ? g.k : g.n;
    int64_t n = 1;
    for (int64_t t = sizes.size() - 1; t >= 0; t--) {
        if (t < g.batch_dims && from[t] == 0) sizes[t] = 1;
        else to[t] = n, n *= sizes[t];
    }
    memory.emplace(size_t(n * item_size(dtype)));
    copy_elements({memory->as<char>(), dtype, to.data(), nullptr},
                  {const_cast<char*>(static_cast<const char*>(data)), dtype, from.data(), nullptr}, sizes, conjugate);
    data = memory->data(), row = to[g.batch_dims], column = 1, conjugate = false;
    std::copy(to.begin(), to.begin() + g.batch_dims, batch);
}

// Whether the library would be called for many small batches that copies of A and B would make one of.
bool is_scattered(const GemmArgs& g) {
    int64_t outer = 1, a = g.m * g.k, b = g.k * g.n, c = g.m * g.n;
    bool dense = (g.a_col == 1 && g.a_row == g.k) && (g.b_col == 1 && g.b_row == g.n), merges = g.c_row == g.n;
    for (int t = g.batch_dims - 1; t >= 0; t--) {
        merges = merges && g.batch_c[t] == c && g.batch_a[t] != 0 && g.batch_b[t] != 0;
        dense = dense && g.batch_a[t] == a && g.batch_b[t] == b;
        a *= g.batch_size[t], b *= g.batch_size[t], c *= g.batch_size[t];
        if (t + 1 < g.batch_dims) outer *= g.batch_size[t];
    }
    return outer > 2 && merges && !dense;
}

void matmul(DType dtype, const GemmArgs& given) {
    if (is_integral(dtype)) return integer_matmul(dtype, given);
    GemmArgs g = given;
    const bool with_d = g.d && (g.beta != 0 || g.beta_imag != 0);
    if (!with_d) g.d = nullptr;
    const Dims sizes = all_sizes(g), c_strides = all_strides(g, g.batch_c, g.c_row, 1);
    const Operand c{static_cast<char*>(g.c), dtype, c_strides.data(), nullptr};
    const Dims d_strides = with_d ? all_strides(g, g.batch_d, g.d_row, g.d_col) : Dims();
    const Operand d{const_cast<char*>(static_cast<const char*>(g.d)), dtype, d_strides.data(), nullptr};
    if (g.k == 0) {  // nothing is added up, which the library refuses
        alignas(16) char number[16] = {};
        if (!with_d) return copy_elements(c, {nullptr, dtype, nullptr, number}, sizes, false);
        const DType compute = compute_dtype(dtype);
        (is_complex(dtype) ? Scalar(std::complex<double>(g.beta, g.beta_imag)) : Scalar(g.beta)).store(number, compute);
        const Operand operands[3] = {c, d, {nullptr, compute, nullptr, number}};
        return elementwise(Pointwise::mul, which_forward, compute, operands, 3, sizes, nullptr);
    }
    std::optional<Scratch> dense_a, dense_b;
    if (g.batch_dims > 1 && is_scattered(g)) {
        make_dense(dense_a, g, dtype, true);
        make_dense(dense_b, g, dtype, false);
        if (with_d && g.d != g.c) {
            copy_elements(c, d, sizes, false);
            g.d = g.c, g.d_row = g.c_row, g.d_col = 1;
            std::copy(g.batch_c, g.batch_c + g.batch_dims, g.batch_d);
        }
        const GemmArgs apart = g;
        g.batch_dims = 0;
        for (int t = 0; t < apart.batch_dims; t++)
            g.add_batch(apart.batch_size[t], apart.batch_a[t], apart.batch_b[t], apart.batch_c[t], apart.batch_d[t]);
    }
    if (g.conj_a) make_dense(dense_a, g, dtype, true);
    if (g.conj_b) make_dense(dense_b, g, dtype, false);
    if (small_matmul(dtype, g, nullptr) || few_rows_matmul(dtype, g)) return;
    if (!takes(g, true)) make_dense(dense_a, g, dtype, true);
    if (!takes(g, false)) make_dense(dense_b, g, dtype, false);
    if (dense_a) g.fold_batch_into_rows();
    library_matmul(dtype, g);
}

}  // namespace

void library_matmul(DType dtype, const GemmArgs& g) {
    batches(dtype, g, 0, static_cast<const char*>(g.a), static_cast<const char*>(g.b), static_cast<char*>(g.c),
            static_cast<const char*>(g.d));
}

const GemmKernels gemm = {matmul, [](const GemmArgs& g) { matmul(DType::f32, g); },
                          [](const GemmArgs& g, void* row_sums) { return small_matmul(DType::f32, g, row_sums); }};

void allow_tf32(bool allowed) { tf32 = allowed; }
bool tf32_allowed() { return tf32; }

}  // namespace wisp::cuda
