// Front doors of pointwise operators: promotion, result, kernel, gradient. One path for every row of the table.
#include "pointwise.h"

#include <cstring>

#include "../autograd/told.h"
#include "../compile/tape.h"
#include "../core/dense_order.h"
#include "../core/threads.h"
#include "../kernels/pointwise_call.h"
#include "onto.h"
#include "ops.h"

namespace wisp {

void cannot_convert(DType dtype) { throw RuntimeError("value cannot be converted to type ", dtype, " without overflow"); }

Param param(const Scalar& s) {
    Param p;
    p.real = s.is_complex() ? s.to_complex().real() : s.to_double();
    p.imag = s.is_complex() ? s.to_complex().imag() : 0;
    p.integer = s.is_complex() ? int64_t(p.real) : s.to_int();
    return p;
}

// --- promotion -----------------------------------------------------------------------------------------------------

namespace {

constexpr int F = 1, C = 2, I = 4, B = 8, H = 16, Q = 32;
enum { result_same, result_promote, result_boolean, result_real };

int category(DType d) {
    static constexpr uint8_t categories[] = {I, I, I, I, I, F, F, F, C, C, B, F, I, I, I, H, Q, Q, Q, Q, Q};
    return categories[int(d)];
}
int rank(DType d) { return is_complex(d) ? 3 : is_floating(d) ? 2 : d == DType::boolean ? 0 : 1; }

// Dimensioned tensors decide; 0-dim tensors and then numbers only raise the category.
struct Promotion {
    bool any[3] = {};
    DType found[3] = {};
    void see(DType d, int priority) {
        found[priority] = any[priority] ? promote(found[priority], d) : d;
        any[priority] = true;
    }
    void see(const Arg& a) {
        if (!a.given) return;
        if (a.tensor) see((*a.tensor)->dtype, (*a.tensor)->wrapped_number ? 2 : a.tensor->dim() == 0 ? 1 : 0);
        else see(a.number.dtype(), 2);
    }
    DType result() const {
        bool started = false;
        DType r = DType::boolean;
        for (int i = 0; i < 3; i++) {
            if (!any[i]) continue;
            DType d = found[i];
            if (i == 2 && is_floating(d)) d = default_dtype();
            if (i == 2 && is_complex(d)) d = complex_of(default_dtype());
            if (!started) r = d;
            else if (rank(d) > rank(r))
                r = is_complex(d) && is_floating(r) ? complex_of(r) : i == 2 && is_floating(d) ? default_dtype() : d;
            started = true;
        }
        return r;
    }
};

[[noreturn]] void not_implemented(const PointwiseInfo& info, DType d) {
    if (d == DType::boolean && &info == &pointwise_info(Pointwise::neg))
        throw RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead.");
    if (d == DType::boolean && &info == &pointwise_info(Pointwise::sub))
        throw RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.");
    throw NotImplemented("\"", info.name, "\" not implemented for '", type_name(d), "'");
}

// The dtypes of one call.
struct Types {
    DType common;   // of the operands after promotion
    DType compute;  // of the kernel
    DType block;    // of the kernel's result
    DType result;
};

Types types_of(Pointwise op, const PointwiseInfo& info, DType common) {
    if (!(info.types & category(common))) not_implemented(info, common);
    Types t;
    if (info.result == result_promote && is_integral(common)) common = default_dtype();
    t.common = common;
    t.compute = t.block = compute_dtype(common);
    t.result = common;
    if (info.result == result_boolean) t.block = t.result = DType::boolean;
    if (info.result == result_real) {
        t.block = real_of(t.compute);
        t.result = real_of(common);
    }
    return t;
}

bool is_integer_division(Pointwise op) {
    return op == Pointwise::div_floor || op == Pointwise::div_trunc || op == Pointwise::remainder || op == Pointwise::fmod;
}

void refuse_zero(const PointwiseInfo& info, const Arg& b) {
    const bool zero = b.tensor ? b.tensor->numel() && item(amin(to(abs(to(*b.tensor, DType::i64)), DType::i64), {})).to_int() == 0
                               : b.number.to_int() == 0;
    if (zero) throw RuntimeError("ZeroDivisionError: ", info.name, ": integer division by zero");
}

// Kernels of 16-bit types compute in float, but a comparison is one of values of the common type: what has another is rounded first.
void round_compared(const PointwiseInfo& info, const Types& t, Arg* args, Tensor* room) {
    if (info.result != result_boolean || t.common == t.compute || is_integral(t.common)) return;
    for (int i = 0; i < info.arity; i++) {
        if (!args[i].tensor) {
            alignas(16) char cell[16];
            args[i].number.store(cell, t.common);
            args[i].number = Scalar::load(cell, t.common);
        } else if (args[i].tensor->dtype() != t.common) {
            room[i] = to(detach(*args[i].tensor), t.common);
            args[i] = Arg(room[i]);
        }
    }
}

// A large number beside integers is one of their type, of the same low bits.
[[gnu::cold, gnu::noinline]] void wrap_large(DType common, Arg* args) {
    if (!is_integral(common)) return;
    for (int i = 0; i < 3; i++) {
        if (!args[i].given || args[i].tensor || !args[i].number.is_large()) continue;
        alignas(16) char cell[16];
        args[i].number.store(cell, common);
        args[i].number = Scalar::load(cell, common);
    }
}

// Memory of an operand that is a number.
struct NumberCell {
    alignas(16) char bytes[16];
};

// The device that a call works on: that of its tensors, of which 0-dim ones on the CPU join any other. One that meets
// a second device is refused where its memory is asked for.
Device device_of(const Arg* args, int n) {
    Device d = current_device();
    bool found = false;
    for (int i = 0; i < n; i++) {
        if (!args[i].tensor) continue;
        const Tensor& t = *args[i].tensor;
        if (!found || (d.type == DeviceType::cpu && t.dim() > 0)) d = t.device();
        found = true;
    }
    for (int i = 0; i < n; i++)
        if (args[i].tensor && !(args[i].tensor->device() == d) &&
            !(args[i].tensor->dim() == 0 && args[i].tensor->device().type == DeviceType::cpu)) {
            for (int j = 0; j < n; j++)
                if (args[j].tensor && args[j].tensor->device() == d)
                    check_same_device("a pointwise operator", *args[j].tensor, *args[i].tensor);
        }
    return d;
}

// A call of a row with at most N operands and the result, on the current device.
template <int N> struct Call {
    kernels::PointwiseOperand operands[N + 1];
    Dims strides[N + 1];
    NumberCell cells[N + 1];
    int count = 1;
    explicit Call(const Tensor& out) { operands[0] = {out.device_data(), out.dtype(), out.strides().data(), nullptr}; }
    void add(const Tensor& t, DType compute, const Dims& sizes) {
        // A number of the CPU joins tensors of any device.
        if (t.dim() == 0 && t.device().type == DeviceType::cpu && !(t.device() == current_device())) return add(item(t), compute);
        const bool same = t.sizes() == sizes;
        if (!same) strides[count] = broadcast_strides(t.sizes(), t.strides(), sizes);
        operands[count] = {t.device_data(), t.dtype(), same ? t.strides().data() : strides[count].data(), nullptr};
        count++;
    }
    void add(const Scalar& number, DType compute) {
        number.store(cells[count].bytes, compute);
        operands[count] = {cells[count].bytes, compute, nullptr, cells[count].bytes};
        count++;
    }
    void add(const Arg& a, DType compute, const Dims& sizes) { a.tensor ? add(*a.tensor, compute, sizes) : add(a.number, compute); }
    void skip() { count++; }
};

Tensor as_saved(const Arg& a) { return !a.given ? Tensor() : a.tensor ? *a.tensor : wrapped_number(a.number); }

// ~True is False: the bits of a bool are not flipped.
Pointwise actual_row(Pointwise op, const Types& t) {
    return op == Pointwise::bitwise_not && t.common == DType::boolean ? Pointwise::logical_not : op;
}

kernels::PointwiseKernel forward_kernel(Pointwise op, const Types& t) {
    return cpu::pointwise_row(actual_row(op, t)).forward[kernels::compute_index(t.compute)];
}

// out = op(args), on the device of out.
void compute_values(const Tensor& out, Pointwise op, const Arg* args, int arity, const Types& t, const Params* params) {
    if (out.numel() == 0 || out.device().type == DeviceType::meta) return;
    const Pointwise row = actual_row(op, t);
    Call<3> call(out);
    for (int i = 0; i < arity; i++) call.add(args[i], t.compute, out.sizes());
    Unlocked unlocked(out.numel());
    kernels::pointwise().row(row, kernels::which_forward, t.compute, row == op ? t.block : DType::boolean, call.operands, call.count,
                             out.sizes(), out.numel(), params ? params->data() : nullptr);
}

// out = op(args), or its gradient, when a compiled region gets to it; false: not noted.
bool note_values(const Tensor& out, Pointwise op, int which, const Arg* args, int count, DType compute, DType block, const Params* params) {
    kernels::ProgramStep step;
    step.op = op;
    step.which = int8_t(which);
    step.compute = compute;
    step.block = block;
    step.result = out.dtype();
    for (int i = 0; params && i < 4; i++) step.has_params |= (*params)[i].real != 0 || (*params)[i].imag != 0 || (*params)[i].integer != 0;
    if (step.has_params) step.params = *params;
    return compile::note(out, step, args, count);
}

bool note_choice(const Tensor& y, const Arg* args) {
    kernels::ProgramStep step;
    step.kind = kernels::StepKind::where;
    step.compute = compute_dtype(y.dtype());
    step.result = y.dtype();
    return compile::note(y, step, args, 3);
}

// The gradient of one operand by the fused kernel.
Tensor fused_gradient(Pointwise op, const PointwiseInfo& info, int operand, const Tensor& g, const Tensor* abcy, const Params& params) {
    Promotion promotion;
    promotion.see(g.dtype(), 0);
    for (int i = 0; i < 4; i++)
        if (abcy[i]) {
            const Tensor& t = abcy[i];
            promotion.see(t.dtype(), t->wrapped_number ? 2 : t.dim() == 0 ? 1 : 0);
        }
    DType common = promotion.result();
    const DType compute = compute_dtype(common);
    if (is_integral(compute) || !cpu::pointwise_row(op).gradient[operand][kernels::compute_index(compute)]) return {};
    if (g.device().type == DeviceType::meta) return empty_like(g, common);
    OnDevice on(g.device());
    // An expanded gradient has no layout of its own worth keeping.
    bool keep = !g.is_contiguous();
    for (int i = 0; keep && i < 4; i++) keep = !(abcy[i] && abcy[i].is_contiguous() && abcy[i].sizes() == g.sizes());
    Tensor out = keep ? empty_like(g, common) : empty(g.sizes(), common);
    if (g.numel() == 0) return out;
    if (noting) [[unlikely]] {
        Arg args[5] = {g};
        for (int i = 0; i < 4; i++)
            if (abcy[i] && (info.uses[operand] & (uses_a << i))) args[i + 1] = abcy[i];
        if (note_values(out, op, 1 + operand, args, 5, compute, compute, &params)) return out;
    }
    // Of a product, and of what is divided, it is the operator itself, whose kernel takes a number for each row as it is.
    if (!is_complex(compute) && (op == Pointwise::mul || (op == Pointwise::div && operand == 0))) {
        Call<2> call(out);
        call.add(g, compute, g.sizes());
        call.add(abcy[1 - operand], compute, g.sizes());
        Unlocked unlocked(g.numel());
        kernels::pointwise().row(op, kernels::which_forward, compute, compute, call.operands, call.count, g.sizes(), g.numel(),
                                 params.data());
        return out;
    }
    Call<5> call(out);
    call.add(g, compute, g.sizes());
    for (int i = 0; i < 4; i++) abcy[i] && (info.uses[operand] & (uses_a << i)) ? call.add(abcy[i], compute, g.sizes()) : call.skip();
    Unlocked unlocked(g.numel());
    kernels::pointwise().row(op, 1 + operand, compute, compute, call.operands, call.count, g.sizes(), g.numel(), params.data());
    return out;
}

// The operands that a node has edges to, and its name.
struct Recorded {
    const char* name;
    int first = 0, end;
    Recorded(const PointwiseInfo& info, const Arg* args, const char* given = nullptr)
        : name(given ? given : info.grad_name.c_str()), end(info.arity) {
        if (info.arity != 2) return;
        for (int i = 0; i < 2; i++)
            if (!args[i].tensor && !info.number_name[i].empty()) {
                name = info.number_name[i].c_str();
                first = 1 - i;
                end = first + 1;
            }
    }
};

struct PointwiseBackward {
    static constexpr uint8_t batched_edges = 7;  // operands broadcast to the gradient
    static constexpr bool pointwise = true;
    Pointwise op;
    int first;  // operand that the first edge belongs to
    Params params;
    void operator()(Backward& bw) const {
        const PointwiseInfo& info = pointwise_info(op);
        Tensor abcy[4];
        for (int i = 0; i < 4; i++) {
            const Saved& kept = bw.node.saved[i];  // most rows keep one or two of the four
            if (kept.tensor || kept.packed || bw.node.released) abcy[i] = bw.saved(i);
        }
        for (int edge = 0; edge < bw.node.next.size(); edge++) {
            if (!bw.needs(edge)) continue;
            const int i = first + edge;
            if (info.uses[i] == uses_g && op == Pointwise::add) {
                bw.set(edge, bw.grad());
                continue;
            }
            bw.set(edge, pointwise_gradient(op, i, bw.grad(), abcy, params, bw.create_graph));
        }
    }
    void tell(Telling& t) const {
        const bool sub = std::strcmp(t.node.name, "SubBackward0") == 0;
        if (!sub && std::strcmp(t.node.name, "AddBackward0") != 0) return;
        const double alpha = op == Pointwise::add_scaled ? (sub ? -params[0].real : params[0].real) : 1;
        const ToldValue value = alpha == double(int64_t(alpha)) ? ToldValue(int64_t(alpha)) : ToldValue(alpha);
        t.say("alpha", &value);
    }
};

void save_operands(Node& node, const Recorded& as, const PointwiseInfo& info, const Arg* args, const Tensor& y, const Tensor* original) {
    int used = 0;
    for (int i = as.first; i < as.end; i++)
        if (node.next[i - as.first].node) used |= info.uses[i];
    for (int i = 0; i < 3; i++)
        save(node, (used & (uses_a << i)) && args[i].given ? (i == 0 && original ? *original : as_saved(args[i])) : Tensor());
    save(node, used & uses_y ? y : Tensor(), original && y->base);
}

void end_pointwise(Node& node, const Recorded& as, const Arg* args, const Tensor& y, bool in_place) {
    if (!node.forward) return;
    TensorList inputs;
    for (int i = as.first; i < as.end; i++) inputs.push_back(args[i].tensor ? *args[i].tensor : Tensor());
    end_record(node, spanned(inputs), {&y, 1}, in_place, true);
}

void record_pointwise(const Tensor& y, Pointwise op, const PointwiseInfo& info, const Arg* args, const Params* params, const char* name) {
    const Recorded as(info, args, name);
    NodePtr node = NodePtr::steal(new_node(as.name));
    for (int i = as.first; i < as.end; i++) add_input(*node, args[i].tensor ? *args[i].tensor : Tensor());
    set_closure(*node, PointwiseBackward{op, as.first, params ? *params : Params{}});
    add_output(*node, y);
    save_operands(*node, as, info, args, y, nullptr);
    end_pointwise(*node, as, args, y, false);
}

bool any_wants_grad(const Arg* args, int n) {
    for (int i = 0; i < n; i++)
        if (args[i].tensor && args[i].tensor->requires_grad()) return true;
    return false;
}

bool is_differentiable_row(const PointwiseInfo& info) { return info.gradient[0] != nullptr || info.gradient[1] != nullptr; }

// Whether dimension `a` of the result should lie further out than `b`: > 0 yes, < 0 no, by the first operand whose strides tell.
int lies_further_out(const Arg* args, int arity, const Dims& sizes, int64_t a, int64_t b) {
    for (int i = 0; i < arity; i++) {
        if (!args[i].tensor) continue;
        const Tensor& t = *args[i].tensor;
        const int64_t missing = sizes.size() - t.dim(), at = a - missing, bt = b - missing;
        if (at < 0 || bt < 0 || t.size(at) != sizes[a] || t.size(bt) != sizes[b]) continue;  // broadcast along one of them
        if (const int told = further_out(t.stride(at), t.stride(bt), sizes[a], sizes[b])) return told;
    }
    return 0;
}

// The result is dense, with dimensions in the order in which the operands have them; the first operand counts most, as in PyTorch.
Tensor make_result(const Arg* args, int arity, const Dims& sizes, DType dtype) {
    const Tensor* first = args[0].tensor;
    const int64_t n = sizes.size();
    if (n < 2 || (first && first->is_contiguous() && (n < 4 || first->stride(1) != 1) && first->sizes() == sizes))
        return empty(sizes, dtype);
    bool contiguous = true, alike = first && first->sizes() == sizes && first->layout().is_non_overlapping_and_dense();
    for (int i = 0; i < arity && (contiguous || alike); i++) {
        const Tensor* t = args[i].tensor;
        const bool whole = t && t->sizes() == sizes;
        contiguous = contiguous && whole && t->is_contiguous();
        alike = alike && whole && t->strides() == first->strides();
    }
    if (contiguous) return empty(sizes, dtype);
    if (alike) return empty_strided(sizes, first->strides(), dtype);
    return empty_strided(sizes, dense_strides(sizes, [&](int64_t a, int64_t b) { return lies_further_out(args, arity, sizes, a, b); }),
                         dtype);
}

}  // namespace

Tensor pointwise_gradient(Pointwise op, int operand, const Tensor& g, const Tensor* abcy, const Params& params, bool create_graph) {
    const PointwiseInfo& info = pointwise_info(op);
    if (!info.gradient[operand])
        throw NotImplemented("the derivative for '", info.name, ": ", operand ? "other" : "input", "' is not implemented.");
    if (!create_graph)
        if (Tensor r = fused_gradient(op, info, operand, g, abcy, params)) return r;
    return info.gradient[operand](g, abcy[0], abcy[1], abcy[2], abcy[3], params.data());
}

DType result_type(const Tensor& a, const Tensor& b) {
    Promotion p;
    p.see(Arg(a));
    p.see(Arg(b));
    return p.result();
}
DType result_type(const Tensor& a, const Scalar& b) {
    Promotion p;
    p.see(Arg(a));
    p.see(Arg(b));
    return p.result();
}

void check_same_device(const char* op, const Tensor& a, const Tensor& b) {
    if (a.device() == b.device()) return;
    throw RuntimeError("Expected all tensors to be on the same device, but found at least two devices, ", text_of(a.device()), " and ",
                       text_of(b.device()), "! (", op, " of shapes ", a.sizes(), " and ", b.sizes(), "; move one with .to(device))");
}

Tensor pointwise(Pointwise op, const Arg& a, const Arg& b, const Arg& c, const Params* params, const char* node, Out out) {
    const PointwiseInfo& info = pointwise_info(op);
    Arg args[3] = {a, b, c};
    const int arity = info.arity;
    bool at_once = true;
    if (off_plain_path) [[unlikely]] {
        const Device d = device_of(args, arity);
        if (!(d == current_device())) {
            OnDevice on(d);
            return pointwise(op, a, b, c, params, node, out);
        }
        at_once = !noting || !compile::may_note(args, arity);
    }

    // Contiguous operands of one floating type and shape: straight to the kernel.
    const TensorObject* first = a.tensor ? a.tensor->get() : nullptr;
    if (at_once && first && first->contiguous && current_device().type == DeviceType::cpu &&
        (first->dtype == DType::f32 || first->dtype == DType::f64) && (info.types & F) && info.result <= result_promote) {
        bool simple = true;
        for (int i = 1; simple && i < arity; i++) {
            const TensorObject* o = args[i].tensor ? args[i].tensor->get() : nullptr;
            simple = o && o->contiguous && o->dtype == first->dtype && o->layout.sizes == first->layout.sizes;
        }
        Tensor y = simple ? out.take(first->layout.sizes, first->dtype) : Tensor();
        if (simple && (!y || y.is_contiguous())) {
            if (!y) y = empty(first->layout.sizes, first->dtype);
            const int64_t n = first->numel;
            const kernels::PointwiseKernel kernel =
                cpu::pointwise_row(op).forward[first->dtype == DType::f32 ? kernels::compute_f32 : kernels::compute_f64];
            char* pointers[4] = {y.data(), a.tensor->data(), arity > 1 ? b.tensor->data() : nullptr,
                                 arity > 2 ? c.tensor->data() : nullptr};
            const Param* p = params ? params->data() : nullptr;
            if (n <= 32768) {
                kernel(pointers, n, p, 0);
            } else {
                Unlocked unlocked(n);
                const int64_t item = item_size(first->dtype);
                constexpr int64_t unit = 1024;  // every piece begins on a cache line
                parallel_for((n + unit - 1) / unit, 32, [&](int64_t begin, int64_t end) {
                    char* at[4];
                    for (int i = 0; i <= arity; i++) at[i] = pointers[i] + begin * unit * item;
                    kernel(at, std::min(end * unit, n) - begin * unit, p, 0);
                });
            }
            if (any_wants_grad(args, arity) && grad_enabled() && is_differentiable_row(info))
                record_pointwise(y, op, info, args, params, node);
            return y;
        }
    }

    Promotion promotion;
    Dims sizes;
    const Tensor* device_of = nullptr;
    for (int i = 0; i < arity; i++) {
        promotion.see(args[i]);
        if (!args[i].tensor) continue;
        sizes = device_of ? broadcast(sizes, args[i].tensor->sizes()) : args[i].tensor->sizes();
        if (!device_of) device_of = args[i].tensor;
    }
    const Types t = types_of(op, info, promotion.result());
    if (Scalar::any_large) [[unlikely]]
        wrap_large(t.common, args);
    if (is_integral(t.common) && is_integer_division(op)) refuse_zero(info, args[1]);
    if (!forward_kernel(op, t)) not_implemented(info, t.common);
    Tensor y = at_once ? out.take(sizes, t.result) : Tensor(), room[3];
    if (!y) y = make_result(args, arity, sizes, t.result);
    round_compared(info, t, args, room);
    const Pointwise row = actual_row(op, t);
    if (at_once || !note_values(y, row, kernels::which_forward, args, arity, t.compute, row == op ? t.block : DType::boolean, params))
        compute_values(y, op, args, arity, t, params);
    if (any_wants_grad(args, arity) && grad_enabled() && is_differentiable(t.result) && is_differentiable_row(info))
        record_pointwise(y, op, info, args, params, node);
    return y;
}

Tensor pointwise_(Pointwise op, const Tensor& self, const Arg& b, const Arg& c, const Params* params) {
    const PointwiseInfo& info = pointwise_info(op);
    Arg args[3] = {self, b, c};
    const int arity = info.arity;
    if (devices_in_use) [[unlikely]] {
        const Device d = self.device();
        for (int i = 1; i < arity; i++)
            if (args[i].tensor && args[i].tensor->dim() > 0) check_same_device(info.name, self, *args[i].tensor);
        if (!(d == current_device())) {
            OnDevice on(d);
            return pointwise_(op, self, b, c, params);
        }
    }
    if (arity == 2 && current_device().type == DeviceType::cpu && b.tensor && self.dtype() == DType::f32 && self.is_contiguous() &&
        b.tensor->dtype() == DType::f32 && b.tensor->is_contiguous() && self.numel() <= 32768 && self.sizes() == b.tensor->sizes() &&
        info.result <= result_promote && (info.types & F) && self.storage() != b.tensor->storage() && !self.storage()->read_only &&
        !(grad_enabled() && any_wants_grad(args, 2)) && !self->base) {
        char* pointers[3] = {self.data(), self.data(), b.tensor->data()};
        cpu::pointwise_row(op).forward[kernels::compute_f32](pointers, self.numel(), params ? params->data() : nullptr, 0);
        bump_version(self);
        return self;
    }
    Promotion promotion;
    Dims sizes = self.sizes();
    for (int i = 0; i < arity; i++) {
        promotion.see(args[i]);
        if (i && args[i].tensor) sizes = broadcast(sizes, args[i].tensor->sizes());
    }
    if (!(sizes == self.sizes()))
        throw RuntimeError("output with shape ", self.sizes(), " doesn't match the broadcast shape ", sizes, " (", info.name, "_)");
    const Types t = types_of(op, info, promotion.result());
    const DType own = self.dtype();
    if (info.result == result_real && is_complex(own)) throw RuntimeError("In-place ", info.name, " is not supported for complex tensors.");
    if ((is_complex(t.result) && !is_complex(own)) || (is_floating(t.result) && is_integral(own)) ||
        (t.result != DType::boolean && own == DType::boolean))
        throw RuntimeError("result type ", type_name(t.result), " can't be cast to the desired output type ", type_name(own), " (",
                           info.name, "_)");
    if (Scalar::any_large) [[unlikely]]
        wrap_large(t.common, args);
    if (is_integral(t.common) && is_integer_division(op)) refuse_zero(info, args[1]);
    const bool wants = any_wants_grad(args, arity), recording = wants && grad_enabled() && is_differentiable(own);
    check_inplace(self, info.name, recording);
    if (!forward_kernel(op, t)) not_implemented(info, t.common);

    Tensor original;  // of self, if a gradient needs it
    int used = 0;
    if (recording && is_differentiable_row(info)) {
        for (int i = 0; i < arity; i++)
            if (args[i].tensor && args[i].tensor->requires_grad()) used |= info.uses[i];
        if (used & uses_a) original = clone(self);
    }
    // Operands on the same memory would be overwritten while they are read, or before their gradient needs them.
    Tensor copies[3];
    Arg safe[3] = {args[0], args[1], args[2]};
    for (int i = 1; i < arity; i++) {
        if (!args[i].tensor || args[i].tensor->storage() != self.storage()) continue;
        const Tensor& other = *args[i].tensor;
        const bool same_place = other.offset() == self.offset() && other.strides() == self.strides() && other.sizes() == self.sizes();
        if (same_place && !(used & (uses_a << i))) continue;
        GradMode mode(grad_enabled() && used & (uses_a << i));
        copies[i] = clone(other);
        safe[i] = Arg(copies[i]);
    }
    round_compared(info, t, safe, copies);
    compute_values(self, op, safe, arity, t, params);
    bump_version(self);
    if (recording) {
        const Recorded as(info, args);
        NodePtr node = NodePtr::steal(new_node(as.name));
        {
            BeforeWrite before(self);
            for (int i = as.first; i < as.end; i++) add_input(*node, args[i].tensor ? *args[i].tensor : Tensor());
        }
        if (is_differentiable_row(info)) {
            set_closure(*node, PointwiseBackward{op, as.first, params ? *params : Params{}});
        } else {
            set_closure(*node, [](Backward&) {});
        }
        rebase_history(self, *node);
        if (is_differentiable_row(info)) save_operands(*node, as, info, safe, self, &original);
        end_pointwise(*node, as, args, self, true);
    }
    return self;
}

Tensor pointwise_onto(Pointwise op, const Tensor& own, const Arg& a, const Arg& b) {
    const PointwiseInfo& info = pointwise_info(op);
    Arg args[3] = {a, b, {}};
    Promotion promotion;
    Dims sizes = own.sizes();
    for (const Arg& arg : args) {
        promotion.see(arg);
        if (arg.tensor) sizes = broadcast(sizes, arg.tensor->sizes());
    }
    const Types t = types_of(op, info, promotion.result());
    if (!forward_kernel(op, t) || t.result != own.dtype() || !(sizes == own.sizes()) || (is_integral(t.common) && is_integer_division(op)))
        return {};
    if (Scalar::any_large) [[unlikely]]
        wrap_large(t.common, args);
    Tensor room[3];
    round_compared(info, t, args, room);
    compute_values(own, op, args, info.arity, t, nullptr);
    own.storage()->version = 0;
    return own;
}

Tensor where(const Tensor& condition, const Arg& a, const Arg& b, Out out) {
    if (condition.dtype() != DType::boolean && condition.dtype() != DType::u8)
        throw RuntimeError("where expected condition to be a boolean tensor, but got a tensor with dtype ", type_name(condition.dtype()));
    Promotion promotion;
    Dims sizes = condition.sizes();
    const Arg* values[2] = {&a, &b};
    for (const Arg* v : values) {
        promotion.see(*v);
        if (v->tensor) sizes = broadcast(sizes, v->tensor->sizes());
    }
    const DType d = promotion.result();
    for (const Arg* v : values)
        if (v->given && !v->tensor && is_integral(d)) refuse_large(d, v->number);
    const Arg args[3] = {condition, a, b};
    OnDevice on(devices_in_use ? device_of(args, 3) : current_device());
    Tensor y = noting ? Tensor() : out.take(sizes, d);
    if (!y) y = make_result(args, 3, sizes, d);
    if (y.numel() && y.device().type != DeviceType::meta && !(noting && note_choice(y, args))) {
        Call<3> call(y);
        for (const Arg& arg : args) call.add(arg, compute_dtype(d), sizes);
        Unlocked unlocked(y.numel());
        kernels::pointwise().where(compute_dtype(d), call.operands, sizes, y.numel());
    }
    const Tensor ta = a.tensor ? *a.tensor : Tensor(), tb = b.tensor ? *b.tensor : Tensor();
    if (needs_grad(ta, tb))
        record(y, "WhereBackward0", {ta, tb}, {condition}, [](Backward& bw) {
            Tensor c = bw.saved(0);
            if (bw.needs(0)) bw.set(0, where(c, bw.grad(), Scalar(0)));
            if (bw.needs(1)) bw.set(1, where(c, Scalar(0), bw.grad()));
        });
    return y;
}

void where_onto(const Tensor& y, const Tensor& condition, const Arg& value) {
    if (y.numel() == 0 || y.device().type == DeviceType::meta) return;
    const Arg args[3] = {condition, value, y};
    OnDevice on(devices_in_use ? device_of(args, 3) : current_device());
    Call<3> call(y);
    for (const Arg& arg : args) call.add(arg, compute_dtype(y.dtype()), y.sizes());
    Unlocked unlocked(y.numel());
    kernels::pointwise().where(compute_dtype(y.dtype()), call.operands, y.sizes(), y.numel());
}

Tensor polygamma(const Scalar& n, const Tensor& x, Out out) {
    const Params params = params_of(n);
    return pointwise_into(out, Pointwise::polygamma, x, {}, {}, &params);
}

}  // namespace wisp
