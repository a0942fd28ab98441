// Products of a sparse matrix, given as compressed rows, with dense ones; and the way to wisp.sparse.
#include "sparse.h"

#include "../kernels/embedding.h"
#include "../kernels/sparse.h"
#include "../python/registry.h"
#include "fused.h"

namespace wisp {

PyTypeObject* sparse_type = nullptr;
PyTypeObject *conjugate_type = nullptr, *negative_type = nullptr;

PyObject* call_sparse(const char* name, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
    static PyObject* call = nullptr;
    if (!call) {
        Ref module(PyImport_ImportModule("wisp.sparse._operators"));
        call = PyObject_GetAttrString(module.get(), "call");
        if (!call) throw PythonError();
    }
    Ref text(PyUnicode_FromString(name));
    std::vector<PyObject*> all{text.get()};
    all.insert(all.end(), args, args + n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
    PyObject* result = PyObject_Vectorcall(call, all.data(), size_t(n + 1), kwnames);
    if (!result) throw PythonError();
    return result;
}

Tensor call_sparse(const char* name, std::initializer_list<Tensor> args) {
    std::vector<PyObject*> objects;
    for (const Tensor& t : args) objects.push_back(t.object());
    return Tensor::steal(as_tensor_object(call_sparse(name, objects.data(), Py_ssize_t(objects.size()), nullptr)));
}

void refuse_sparse(const char* where) { throw NotImplemented(where, ": sparse tensors are not supported here; call .to_dense()"); }

namespace {

// The pattern of a matrix, and of its transpose once a gradient asks for it.
struct Pattern {
    Tensor start, column;  // int64, contiguous
    Tensor transposed_start, transposed_column, order;
    int64_t rows, columns;

    kernels::CsrPattern kernel() const {
        return {rows, columns, column.numel(), start.device_data<int64_t>(), column.device_data<int64_t>()};
    }
    void transpose() {
        if (order) return;
        transposed_start = empty({columns + 1}, DType::i64);
        transposed_column = empty(column.sizes(), DType::i64);
        order = empty(column.sizes(), DType::i64);
        Unlocked unlocked(column.numel());
        kernels::sparse().transpose(kernel(), transposed_start.device_data<int64_t>(), transposed_column.device_data<int64_t>(),
                                    order.device_data<int64_t>());
    }
    Pattern transposed() {
        transpose();
        return {transposed_start, transposed_column, {}, {}, {}, columns, rows};
    }
};

Pattern checked(const Tensor& start, const Tensor& column, int64_t columns) {
    if (start.dim() != 1 || start.numel() < 1 || column.dim() != 1)
        throw RuntimeError("sparse product: expected 1-D compressed and plain indices, got shapes ", start.sizes(), " and ",
                           column.sizes());
    Pattern p{kernel_input(start, DType::i64), kernel_input(column, DType::i64), {}, {}, {}, start.numel() - 1, columns};
    if (!kernels::sparse().rises(p.start.device_data<int64_t>(), p.rows, p.column.numel()))
        throw RuntimeError("sparse product: the compressed indices must rise from 0 to the number of entries, ", p.column.numel());
    const int64_t bad = kernels::embedding().first_bad(p.column.device_data<int64_t>(), p.column.numel(), columns);
    if (bad >= 0)
        throw IndexError("sparse product: index ", p.column.data<int64_t>()[bad], " is out of bounds for a dimension of size ", columns);
    return p;
}

// Kernels know three types; the others are cast to one of them and back.
DType kernel_dtype(DType d) { return is_integral(d) ? DType::i64 : d == DType::f64 ? DType::f64 : DType::f32; }

Tensor sampled(Pattern p, const Tensor& left, const Tensor& right);

// matrix @ dense, with the values of the matrix in the order of the pattern.
Tensor product(Pattern p, const Tensor& values, const Tensor& dense) {
    if (is_complex(values.dtype())) {
        const Tensor imaginary = product(p, imag(values), dense);
        return add(product(p, real(values), dense), mul(imaginary, Scalar(std::complex<double>(0, 1))));
    }
    if (is_complex(dense.dtype())) {
        const Tensor parts = product(p, values, reshape(view_as_real(dense), {dense.size(0), 2 * dense.size(1)}));
        return view_as_complex(reshape(parts, {p.rows, dense.size(1), 2}));
    }
    const DType d = kernel_dtype(dense.dtype());
    const int64_t width = dense.size(1);
    const Tensor v = kernel_input(values, d), x = kernel_input(dense, d);
    Tensor y = empty({p.rows, width}, d);
    {
        Unlocked unlocked(p.column.numel() * width + y.numel());
        kernels::sparse().product(d, p.kernel(), v.device_data(), x.device_data(), y.device_data(), width);
    }
    if (d != dense.dtype()) y = to(y, dense.dtype());
    if (needs_grad(values, dense)) {
        if (needs_grad(dense)) p.transpose();
        record(y, "SparseProductBackward0", {values, dense},
               {p.start, p.column, p.transposed_start, p.transposed_column, p.order, values, dense},
               [rows = p.rows, columns = p.columns](Backward& bw) {
                   Pattern p{bw.saved(0), bw.saved(1), bw.saved(2), bw.saved(3), bw.saved(4), rows, columns};
                   if (bw.needs(0)) bw.set(0, sampled(p, bw.grad(), bw.saved(6)));
                   if (!bw.needs(1)) return;
                   p.transpose();
                   bw.set(1, product(p.transposed(), index_select(bw.saved(5), 0, p.order), bw.grad()));
               });
    }
    return y;
}

// The entries of left @ right^T that the pattern has. With `product` it is closed under differentiation.
Tensor sampled(Pattern p, const Tensor& left, const Tensor& right) {
    const DType d = kernel_dtype(left.dtype());
    const Tensor a = kernel_input(left, d), b = kernel_input(right, d);
    Tensor y = empty(p.column.sizes(), d);
    {
        Unlocked unlocked(p.column.numel() * a.size(1));
        kernels::sparse().sampled(d, p.kernel(), a.device_data(), b.device_data(), y.device_data(), a.size(1));
    }
    if (d != left.dtype()) y = to(y, left.dtype());
    if (needs_grad(left, right)) {
        p.transpose();
        record(y, "SparseSampledBackward0", {left, right},
               {p.start, p.column, p.transposed_start, p.transposed_column, p.order, left, right},
               [rows = p.rows, columns = p.columns](Backward& bw) {
                   Pattern p{bw.saved(0), bw.saved(1), bw.saved(2), bw.saved(3), bw.saved(4), rows, columns};
                   if (bw.needs(0)) bw.set(0, product(p, bw.grad(), bw.saved(6)));
                   if (!bw.needs(1)) return;
                   p.transpose();
                   bw.set(1, product(p.transposed(), index_select(bw.grad(), 0, p.order), bw.saved(5)));
               });
    }
    return y;
}

}  // namespace

static const Operators operators = {
    {"_set_sparse_type(any cls)", [](PyObject* cls) { sparse_type = reinterpret_cast<PyTypeObject*>(cls); }, function},
    // crow and col of a matrix with size(0) of dense columns. `transposed`: what _csr_transpose made of them, if known.
    {"_csr_product(Tensor crow, Tensor col, Tensor values, Tensor dense, Tensor[] transposed)",
     [](const Tensor& start, const Tensor& column, const Tensor& values, const Tensor& dense, const TensorList& transposed) {
         if (dense.dim() != 2) throw RuntimeError("sparse product: expected a 2-D dense matrix, got shape ", dense.sizes());
         if (values.dim() != 1 || values.numel() != column.numel())
             throw RuntimeError("sparse product: expected a value for each of the ", column.numel(), " entries, got shape ",
                                values.sizes());
         if (values.dtype() != dense.dtype())
             throw RuntimeError("expected m1 and m2 to have the same dtype, but got: ", values.dtype(), " != ", dense.dtype());
         Pattern p = checked(start, column, dense.size(0));
         if (transposed.size() == 3) {
             const Pattern t = checked(transposed[0], transposed[1], p.rows);
             const Tensor& order = transposed[2];
             if (t.rows == p.columns && t.column.numel() == p.column.numel() && order.sizes() == p.column.sizes() &&
                 order.dtype() == DType::i64) {
                 p.transposed_start = t.start;
                 p.transposed_column = t.column;
                 p.order = order;
             }
         }
         return product(p, values, dense);
     },
     function},
    {"_csr_sampled(Tensor crow, Tensor col, Tensor left, Tensor right)",
     [](const Tensor& start, const Tensor& column, const Tensor& left, const Tensor& right) {
         const bool fit = left.dim() == 2 && right.dim() == 2 && left.size(1) == right.size(1) && left.size(0) == start.numel() - 1 &&
                          left.dtype() == right.dtype() && !is_complex(left.dtype());
         if (!fit)
             throw RuntimeError("sampled product: expected two real matrices of one width, the first with ", start.numel() - 1,
                                " rows, got ", left.sizes(), " and ", right.sizes());
         return sampled(checked(start, column, right.size(0)), left, right);
     },
     function},
    {"_csr_transpose(Tensor crow, Tensor col, int columns)",
     [](const Tensor& start, const Tensor& column, int64_t columns) {
         if (columns < 0) throw RuntimeError("_csr_transpose: a negative number of columns, ", columns);
         Pattern p = checked(start, column, columns);
         p.transpose();
         return std::tuple<Tensor, Tensor, Tensor>(p.transposed_start, p.transposed_column, p.order);
     },
     function},
};

}  // namespace wisp
