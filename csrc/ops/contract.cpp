// Front doors of products over chosen dimensions: tensordot, einsum, inner, kron, vecdot and chains of matrices.
#include <limits>
#include <vector>

#include "../python/registry.h"
#include "matmul.h"

namespace wisp {
namespace {

// t with the dimensions `rows` made one and `columns` made another. If memory holds the columns outside the rows, the
// transposed matrix is a view where this one would be a copy: the form says so.
Tensor as_matrix(const Tensor& t, const Dims& rows, const Dims& columns, int64_t batch, MatrixForm& form) {
    auto arranged = [&](const Dims& first, const Dims& second, Dims& sizes) {
        Dims order;
        sizes.clear();
        for (int64_t i = 0; i < batch; i++) order.push_back(i), sizes.push_back(t.size(i));
        for (const Dims* part : {&first, &second}) {
            int64_t n = 1;
            for (int64_t d : *part) order.push_back(d), n *= t.size(d);
            sizes.push_back(n);
        }
        return order;
    };
    Dims sizes, flipped_sizes;
    const Dims order = arranged(rows, columns, sizes), flipped = arranged(columns, rows, flipped_sizes);
    form.transposed = !t.layout().permute(order).view(sizes) && t.layout().permute(flipped).view(flipped_sizes);
    return form.transposed ? reshape(permute(t, flipped), flipped_sizes) : reshape(permute(t, order), sizes);
}

// The sum over `summed` of left * right, dimensions aligned; the summed ones stay with size 1.
Tensor contract_pair(Tensor left, Tensor right, const Dims& summed) {
    const int64_t dims = left.dim();
    Dims batch, left_only, right_only, both;
    for (int64_t d = 0; d < dims; d++) {
        const bool in_left = left.size(d) != 1, in_right = right.size(d) != 1;
        if (summed.contains(d)) {
            if (in_left && in_right) both.push_back(d);
            else if (in_left) left = sum(left, {d}, true);
            else if (in_right) right = sum(right, {d}, true);
        } else if (in_left && in_right) {
            batch.push_back(d);
        } else {
            (in_right ? right_only : left_only).push_back(d);
        }
    }
    if (both.empty()) return left * right;
    // The size-1 dimensions of one operand that belong to the other go to the end, where they are dropped.
    Dims order_left = batch, order_right = batch;
    for (const Dims* part : {&left_only, &both})
        for (int64_t d : *part) order_left.push_back(d);
    for (const Dims* part : {&both, &right_only})
        for (int64_t d : *part) order_right.push_back(d);
    auto picked = [&](const Tensor& t, const Dims& order) {  // a view with the other dimensions (all of size 1) gone
        Dims whole = order;
        for (int64_t d = 0; d < dims; d++)
            if (!order.contains(d)) whole.push_back(d);
        Dims sizes;
        for (int64_t d : order) sizes.push_back(t.size(d));
        return reshape(permute(t, whole), sizes);
    };
    auto range = [](int64_t from, int64_t count) {
        Dims r;
        for (int64_t i = 0; i < count; i++) r.push_back(from + i);
        return r;
    };
    const int64_t b = batch.size(), l = left_only.size(), s = both.size(), r = right_only.size();
    MatrixForm form_left, form_right;
    const Tensor a = as_matrix(picked(left, order_left), range(b, l), range(b + l, s), b, form_left);
    const Tensor c = as_matrix(picked(right, order_right), range(b, s), range(b + s, r), b, form_right);
    if (a.dtype() != c.dtype()) throw RuntimeError("expected scalar type ", type_name(a.dtype()), " but found ", type_name(c.dtype()));
    if (a.dtype() == DType::boolean) throw NotImplemented("\"bmm\" not implemented for 'Bool'");
    const Tensor out = product(a, form_left, c, form_right);
    Dims sizes, order, back(dims);
    for (const Dims* part : std::initializer_list<const Dims*>{&batch, &left_only, &right_only, &summed})
        for (int64_t d : *part) {
            order.push_back(d);
            sizes.push_back(part == &summed ? 1 : part == &right_only ? right.size(d) : left.size(d));
        }
    for (int64_t i = 0; i < dims; i++) back[order[i]] = i;
    return permute(reshape(out, sizes), back);
}

// ---- einsum ----

constexpr int letters = 52, ellipsis = -1;
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
int label_of(char c) { return c >= 'a' ? 26 + c - 'a' : c - 'A'; }  // capitals first, as PyTorch orders an implicit output
char letter_of(int label) { return char(label < 26 ? 'A' + label : 'a' + label - 26); }
std::string name_of_label(int label) { return label < letters ? std::string(1, letter_of(label)) : "..."; }

struct Equation {
    std::vector<std::vector<int>> inputs;
    std::vector<int> output;
    bool explicit_output = false;
};

Equation parse(const std::string& text) {
    Equation e;
    e.inputs.emplace_back();
    const size_t arrow = text.find("->");
    bool has_ellipsis = false;
    for (size_t i = 0; i < std::min(arrow, text.size()); i++) {
        const char c = text[i];
        if (c == ' ') continue;
        if (c == ',') {
            e.inputs.emplace_back();
            has_ellipsis = false;
        } else if (c == '.') {
            const int operand = int(e.inputs.size()) - 1;
            if (has_ellipsis) throw RuntimeError("einsum(): found '.' for operand ", operand, " for which an ellipsis was already found");
            if (text.compare(i, 3, "...") != 0)
                throw RuntimeError("einsum(): found '.' for operand ", operand, " that is not part of any ellipsis");
            i += 2;
            has_ellipsis = true;
            e.inputs.back().push_back(ellipsis);
        } else if (is_letter(c)) {
            e.inputs.back().push_back(label_of(c));
        } else {
            throw RuntimeError("einsum(): invalid subscript given at index ", i, " in the equation string, subscripts must be in [a-zA-Z]");
        }
    }
    if (arrow == std::string::npos) return e;
    e.explicit_output = true;
    has_ellipsis = false;
    for (size_t i = arrow + 2; i < text.size(); i++) {
        const char c = text[i];
        if (c == ' ') continue;
        if (c == '.') {
            if (has_ellipsis) throw RuntimeError("einsum(): found '.' for output but an ellipsis (...) was already found");
            if (text.compare(i, 3, "...") != 0) throw RuntimeError("einsum(): found '.' for output that is not part of any ellipsis (...)");
            i += 2;
            has_ellipsis = true;
            e.output.push_back(ellipsis);
        } else if (is_letter(c)) {
            e.output.push_back(label_of(c));
        } else {
            throw RuntimeError("einsum(): invalid subscript given at index ", i, " in the equation string, subscripts must be in [a-zA-Z]");
        }
    }
    return e;
}

// How many dimensions an ellipsis stands for at most. Every operand must have the dimensions that the equation gives it.
int64_t dims_of_ellipsis(const Equation& e, const TensorList& given) {
    int64_t most = 0;
    for (int64_t i = 0; i < int64_t(given.size()); i++) {
        const auto& labels = e.inputs[i];
        const bool dots = std::find(labels.begin(), labels.end(), ellipsis) != labels.end();
        const int64_t named = int64_t(labels.size()) - dots, dims = given[i].dim();
        if (dots) {
            if (named > dims)
                throw RuntimeError("einsum(): the number of subscripts in the equation (", named,
                                   ") is more than the number of dimensions (", dims, ") for operand ", i);
            most = std::max(most, dims - named);
        } else if (named != dims) {
            throw RuntimeError("einsum(): the number of subscripts in the equation (", named, ") does not match the number of dimensions (",
                               dims, ") for operand ", i, " and no ellipsis was given");
        }
    }
    return most;
}

// The labels of an equation as the operands have them. Dimensions of the ellipsis have labels of their own, aligned at the right.
struct Labels {
    int64_t ellipsis_dims, count;
    std::vector<int64_t> seen, last;     // of each label: in how many dimensions it is, and the last operand that has it (-1: none)
    std::vector<std::vector<int>> axes;  // of each operand: one label per dimension
};

Labels labels_of(const Equation& e, const TensorList& given) {
    Labels l;
    l.ellipsis_dims = dims_of_ellipsis(e, given);
    l.count = letters + l.ellipsis_dims;
    l.seen.assign(l.count, 0);
    l.last.assign(l.count, -1);
    l.axes.resize(given.size());
    std::vector<int64_t> size(l.count, 1);
    for (int64_t i = 0; i < int64_t(given.size()); i++) {
        std::vector<int>& axes = l.axes[i];
        const int64_t covered = given[i].dim() - int64_t(e.inputs[i].size()) + 1;
        for (int label : e.inputs[i]) {
            if (label == ellipsis)
                for (int64_t d = 0; d < covered; d++) axes.push_back(int(l.count - covered + d));
            else axes.push_back(label);
        }
        for (int64_t d = 0; d < given[i].dim(); d++) {
            const int label = axes[d];
            const int64_t n = given[i].size(d);
            l.seen[label]++;
            l.last[label] = i;
            if (n == 1) continue;
            if (size[label] != 1 && size[label] != n)
                throw RuntimeError("einsum(): subscript ", name_of_label(label), " has size ", n, " for operand ", i,
                                   " which does not broadcast with previously seen size ", size[label]);
            size[label] = n;
        }
    }
    return l;
}

// The labels in the order of the dimensions of the products: first the output's (`out_dims` of them), then those that are summed.
std::vector<int> order_of(const Equation& e, const Labels& l, int64_t& out_dims) {
    std::vector<int> order;
    std::vector<bool> placed(l.count, false);
    auto place = [&](int64_t label) {
        placed[label] = true;
        order.push_back(int(label));
    };
    auto place_ellipsis = [&] {
        for (int64_t label = letters; label < l.count; label++) place(label);
    };
    if (e.explicit_output) {
        for (int label : e.output) {
            if (label == ellipsis) {
                place_ellipsis();
                continue;
            }
            if (placed[label])
                throw RuntimeError("einsum(): output subscript ", name_of_label(label), " appears more than once in the output");
            if (l.last[label] < 0)
                throw RuntimeError("einsum(): output subscript ", name_of_label(label),
                                   " does not appear in the equation for any input operand");
            place(label);
        }
    } else {  // ellipsis first, then the letters that appear exactly once, in alphabetical order
        place_ellipsis();
        for (int label = 0; label < letters; label++)
            if (l.seen[label] == 1) place(label);
    }
    out_dims = int64_t(order.size());
    for (int64_t label = 0; label < l.count; label++)
        if (!placed[label] && l.last[label] >= 0) place(label);
    return order;
}

// Repeated labels of operand `operand` become one, the diagonal of their dimensions.
Tensor with_diagonals(Tensor t, std::vector<int>& axes, int64_t operand) {
    for (size_t d = 0; d < axes.size(); d++)
        for (size_t other = axes.size() - 1; other > d; other--)
            if (axes[other] == axes[d]) {
                if (t.size(int64_t(d)) != t.size(int64_t(other)))
                    throw RuntimeError("einsum(): subscript ", name_of_label(axes[d]), " is repeated for operand ", operand,
                                       " but the sizes don't match, ", t.size(int64_t(other)), " != ", t.size(int64_t(d)));
                const int label = axes[d];
                t = diagonal(t, 0, int64_t(d), int64_t(other));  // the joint dimension comes last
                axes.erase(axes.begin() + int64_t(other));
                axes.erase(axes.begin() + int64_t(d));
                axes.push_back(label);
                d = size_t(-1);
                break;
            }
    return t;
}

// Without dimensions of one element.
Tensor view_without(const Tensor& t, const Dims& dims) {
    Dims sizes;
    for (int64_t d = 0; d < t.dim(); d++)
        if (!dims.contains(d)) sizes.push_back(t.size(d));
    return reshape(t, sizes);
}

// A tensor with dimensions `axes`, no label twice, with all the dimensions of `order`: size 1 where it lacks one.
Tensor aligned(Tensor t, const std::vector<int>& axes, const std::vector<int>& order) {
    Dims permutation;
    for (int label : order)
        for (size_t d = 0; d < axes.size(); d++)
            if (axes[d] == label) permutation.push_back(int64_t(d));
    t = permute(t, permutation);
    for (size_t d = 0; d < order.size(); d++)
        if (std::find(axes.begin(), axes.end(), order[d]) == axes.end()) t = unsqueeze(t, int64_t(d));
    return t;
}

}  // namespace

Tensor einsum(const std::string& text, const TensorList& given) {
    if (given.empty()) throw RuntimeError("einsum(): must provide at least one operand");
    const Equation e = parse(text);
    const int64_t count = given.size();
    if (int64_t(e.inputs.size()) < count) throw RuntimeError("einsum(): more operands were provided than specified in the equation");
    if (int64_t(e.inputs.size()) > count) throw RuntimeError("einsum(): fewer operands were provided than specified in the equation");
    Labels labels = labels_of(e, given);
    int64_t out_dims;
    const std::vector<int> order = order_of(e, labels, out_dims);
    TensorList operands;
    for (int64_t i = 0; i < count; i++) {
        const Tensor t = with_diagonals(given[i], labels.axes[i], i);
        operands.push_back(aligned(t, labels.axes[i], order));
    }

    Dims summed;
    for (int64_t d = out_dims; d < int64_t(order.size()); d++) summed.push_back(d);
    Tensor result = operands[0];
    if (count == 1) return summed.empty() ? result : sum(result, summed);
    for (int64_t i = 1; i < count; i++) {
        Dims finished;  // summed dimensions that no later operand has
        for (int64_t d : summed)
            if (std::max<int64_t>(labels.last[order[d]], 1) == i) finished.push_back(d);
        result = contract_pair(result, operands[i], finished);
    }
    return summed.empty() ? result : view_without(result, summed);
}

// ---- named products ----

Tensor tensordot(const Tensor& first, const Tensor& second, const Dims& given_a, const Dims& given_b) {
    if (given_a.size() != given_b.size()) throw RuntimeError("both dimension lists should have same length");
    if (first.dtype() != second.dtype()) throw RuntimeError("both inputs should have same dtype");
    Tensor a = first, b = second;
    const Dims dims_a = wrap_dims(given_a, a.dim()), dims_b = wrap_dims(given_b, b.dim());
    for (int64_t i = 0; i < dims_a.size(); i++) {
        const int64_t n = a.size(dims_a[i]), m = b.size(dims_b[i]);
        if (m == 1 && n != 1) a = sum(a, {dims_a[i]}, true);
        else if (n == 1 && m != 1) b = sum(b, {dims_b[i]}, true);
        else if (n != m)
            throw RuntimeError("contracted dimensions need to match, but first has size ", n, " in dim ", given_a[i],
                               " and second has size ", m, " in dim ", given_b[i]);
    }
    Dims free_a, free_b, sizes;
    for (int64_t d = 0; d < a.dim(); d++)
        if (!dims_a.contains(d)) free_a.push_back(d), sizes.push_back(a.size(d));
    for (int64_t d = 0; d < b.dim(); d++)
        if (!dims_b.contains(d)) free_b.push_back(d), sizes.push_back(b.size(d));
    MatrixForm form_a, form_b;
    const Tensor left = as_matrix(a, free_a, dims_a, 0, form_a), right = as_matrix(b, dims_b, free_b, 0, form_b);
    if (left.dtype() == DType::boolean) throw NotImplemented("\"addmm_impl_cpu_\" not implemented for 'Bool'");
    return reshape(product(left, form_a, right, form_b, "MmBackward0"), sizes);
}

Tensor inner(const Tensor& a, const Tensor& b) {
    if (a.dim() == 0 || b.dim() == 0) return a * b;
    if (a.size(-1) != b.size(-1))
        throw RuntimeError("inner() the last dimension must match on both input tensors but got shapes ", a.sizes(), " and ", b.sizes());
    return tensordot(a, b, {-1}, {-1});
}

Tensor kron(const Tensor& a, const Tensor& b) {
    const int64_t dims = std::max(a.dim(), b.dim());
    Dims left, right, sizes;
    for (int64_t d = 0; d < dims; d++) {
        const int64_t from_a = d - (dims - a.dim()), from_b = d - (dims - b.dim());
        const int64_t n = from_a < 0 ? 1 : a.size(from_a), m = from_b < 0 ? 1 : b.size(from_b);
        left.push_back(n), left.push_back(1);
        right.push_back(1), right.push_back(m);
        sizes.push_back(times(n, m));
    }
    const Tensor product = contiguous(reshape(a, left) * reshape(b, right)),
                 y = alias(product, Layout{sizes, contiguous_strides(sizes), 0});
    if (needs_grad(product))
        record(y, "UnsafeViewBackward0", {product}, {}, [own = product.sizes()](Backward& bw) { bw.set(0, reshape(bw.grad(), own)); });
    return y;
}

Tensor vecdot(const Tensor& a, const Tensor& b, int64_t dim) {
    if (!is_differentiable(a.dtype()) && !is_differentiable(b.dtype()))
        throw RuntimeError("linalg.vecdot: Expected a floating point or complex tensor as input. Got ", type_name(a.dtype()));
    if (a.dim() == 1 && a.sizes() == b.sizes() && a.dtype() == b.dtype() && wrap_dim(dim, 1) == 0) return vdot(a, b);
    return sum(conj(a) * b, {dim});
}

// ---- chains of matrices ----

// The order of multiplication with the fewest multiplications: best[i][j] is where to split the chain i..j.
static Tensor multiply_chain(const TensorList& t, const std::vector<std::vector<int64_t>>& best, int64_t i, int64_t j) {
    if (i == j) return t[i];
    return mm(multiply_chain(t, best, i, best[i][j]), multiply_chain(t, best, best[i][j] + 1, j));
}

Tensor multi_dot(const TensorList& given) {
    const int64_t n = given.size();
    if (n < 2) throw RuntimeError("multi_dot(): expected at least 2 tensors but got ", n);
    TensorList t = given;
    const bool row = t[0].dim() == 1, column = t[n - 1].dim() == 1;
    for (int64_t end : {int64_t(0), n - 1}) {
        if (t[end].dim() != 1 && t[end].dim() != 2)
            throw RuntimeError("multi_dot(): the ", end == 0 ? "first" : "last", " tensor must be 1D or 2D but got ", t[end].dim(), "D");
    }
    for (int64_t i = 1; i + 1 < n; i++)
        if (t[i].dim() != 2) throw RuntimeError("multi_dot(): tensor ", i, " must be 2D but got ", t[i].dim(), "D");
    for (int64_t i = 1; i < n; i++)
        if (t[i].dtype() != t[0].dtype())
            throw RuntimeError("multi_dot(): all tensors must have be the same dtype but tensor 0 is ", type_name(t[0].dtype()),
                               " and tensor ", i, " ", type_name(t[i].dtype()));
    if (row) t[0] = unsqueeze(t[0], 0);
    if (column) t[n - 1] = unsqueeze(t[n - 1], 1);
    for (int64_t i = 0; i + 1 < n; i++)
        if (t[i].size(1) != t[i + 1].size(0))
            throw RuntimeError("multi_dot(): tensors ", i, " and ", i + 1, " with shapes ", given[i].sizes(), " and ", given[i + 1].sizes(),
                               " cannot be multiplied");
    std::vector<std::vector<int64_t>> best(n, std::vector<int64_t>(n));
    std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
    for (int64_t length = 1; length < n; length++)
        for (int64_t i = 0; i + length < n; i++) {
            const int64_t j = i + length;
            cost[i][j] = std::numeric_limits<double>::infinity();
            for (int64_t s = i; s < j; s++) {
                const double c = cost[i][s] + cost[s + 1][j] + double(t[i].size(0)) * double(t[s].size(1)) * double(t[j].size(1));
                if (c < cost[i][j]) cost[i][j] = c, best[i][j] = s;
            }
        }
    Dims sizes;
    if (!row) sizes.push_back(t[0].size(0));
    if (!column) sizes.push_back(t[n - 1].size(1));
    return reshape(multiply_chain(t, best, 0, n - 1), sizes);
}

Tensor chain_matmul(const TensorList& matrices) {
    if (matrices.empty()) throw RuntimeError("chain_matmul(): Expected one or more matrices");
    for (int64_t i = 0; i < matrices.size(); i++)
        if (matrices[i].dim() != 2) throw RuntimeError("Tensor dimension is ", matrices[i].dim(), ", expected 2 instead.");
    return matrices.size() == 1 ? matrices[0] : multi_dot(matrices);
}

static const Operators operators = {
    {"_einsum(str equation, Tensor[] operands)", einsum, function | for_python | in_lower},
    {"_chain_matmul(Tensor[] matrices)", chain_matmul, function | for_python | in_lower},
    {"_tensordot(Tensor a, Tensor b, int[] dims_a, int[] dims_b)", tensordot, function | for_python | cpu_lower | cuda_widest},
    {"inner(Tensor input, Tensor other, *, Tensor? out=None)", inner, function | method | in_lower,
     R"(The products of the last dimensions, summed.
        >>> wisp.inner(wisp.tensor([[1, 2], [3, 4]]), wisp.tensor([1, 1]))
        tensor([3, 7]))"},
    {"kron(Tensor input, Tensor other, *, Tensor? out=None)", kron, complex_half | function | method,
     R"(The Kronecker product.
        >>> wisp.kron(wisp.eye(2), wisp.tensor([[1.0, 2.0]]))
        tensor([[1., 2., 0., 0.],
                [0., 0., 1., 2.]]))"},
    {"linalg.vecdot(Tensor x, Tensor y, *, int dim=-1, Tensor!? out=None)", vecdot, function | in_lower,
     R"(The sums of products along a dimension, the first operand conjugated.
        >>> wisp.linalg.vecdot(wisp.ones(2, 3), wisp.ones(2, 3))
        tensor([3., 3.]))"},
    {"linalg.multi_dot(Tensor[] tensors, *, Tensor!? out=None)", multi_dot, function | in_lower,
     R"(The product of several matrices, in the cheapest order.
        >>> wisp.linalg.multi_dot([wisp.ones(1, 2), wisp.ones(2, 3), wisp.ones(3, 1)])
        tensor([[6.]]))"},
};

}  // namespace wisp
