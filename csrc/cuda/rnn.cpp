// Recurrent layers on the GPU: all steps in one launch where the weight is small enough, by a block or a cluster of blocks for each
// sequence, else a product and one pointwise kernel per step, for the whole batch at a time.
#include "../kernels/rnn.h"

#include <algorithm>

#include "../core/device.h"
#include "gemm.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

struct Layer {
    DType d;
    const RnnArgs& a;

    char* at(const void* p, int64_t i) const { return p ? static_cast<char*>(const_cast<void*>(p)) + i * item_size(d) : nullptr; }
    Kernel* kernel(const char* name) const { return find_kernel("cuda/kernels/rnn.cuh", str(name, "<", type_text(d), ">")); }
    Grid blocks(int64_t count) const { return {unsigned((count + 255) / 256)}; }
    size_t bytes(int64_t count) const { return size_t(count * item_size(d)); }

    // c = a b + d for a (m, k), b (k, n), c (m, n); rows of d are d_row apart, 0 repeats one.
    void multiply(const void* x, const void* y, void* c, int64_t m, int64_t n, int64_t k, const void* add, int64_t d_row) const {
        GemmArgs g{m, n, k, x, k, 1, y, n, 1, c, n};
        if (add) g.d = add, g.d_row = d_row, g.d_col = 1, g.beta = 1;
        library_matmul(d, g);
    }
    int64_t live(int64_t s) const { return a.starts[s + 1] - a.starts[s]; }
};

#include "../kernels/rnn_rows_arguments.h"

// By kernels that take each sequence through all steps; false: nothing was done.
bool by_rows(DType d, const RnnArgs& a, bool backward) {
    const int64_t batch = a.starts[1], n = a.size, weight = a.gates * n * 4;
    if (d != DType::f32 || a.project || !(backward || a.x) || n % 4 || n > 512 || weight > (1 << 20) || a.steps > INT32_MAX ||
        uintptr_t(a.weight) % 16)
        return false;
    for (int64_t s = 0; s < a.steps; s++)
        if (a.starts[s + 1] - a.starts[s] != batch) return false;
    // The rest of the weight is read by every block at every step; beyond so much the library's products are better.
    const DeviceInfo& info = device_info(current_device().index);
    int64_t each = 1;  // sequences of a block
    while (each < 4 && batch > each * info.multiprocessors) each *= 2;
    const int64_t blocks = (batch + each - 1) / each, depth = backward ? a.gates : n, columns = backward ? n : a.gates;
    const int64_t groups = std::clamp<int64_t>(512 / (columns / 4), 1, depth), others = (depth + groups * columns) * each * 4;
    const int64_t held = std::min(depth, (info.shared_per_block - others) / (columns * 4));
    if (held < 0 || blocks > 8 * info.multiprocessors || (depth - held - 8 * groups) * columns * 4 * blocks > (48 << 20)) return false;
    auto of = [](const void* p) { return static_cast<float*>(const_cast<void*>(p)); };
    const RnnRows rows{int(a.steps), int(batch),  int(n),        int(a.gates), int(a.reverse), int(a.mode == RnnMode::relu),
                       int(held),    int(groups), of(a.x),       of(a.weight), of(a.bias),     of(a.h),
                       of(a.c),      of(a.out),   of(a.kept),    of(a.cells),  of(a.grad_out), of(a.dh),
                       of(a.dc),     of(a.dx),    of(a.dhidden), of(a.before)};
    const int mode = a.mode == RnnMode::lstm ? 1 : a.mode == RnnMode::gru ? 2 : 0;
    if (!backward && (n == 64 || n == 128) && a.gates * n <= 512 * 96) {  // the weight fits into registers
        static Instances<6> whole("cuda/kernels/rnn_rows.cuh");
        Kernel* kernel = whole(mode * 2 + (n == 128), [&] { return str("rnn_units_forward<", mode, ", ", n, ">"); });
        launch_with(kernel, {unsigned(batch)}, {512}, 0, rows);
        return true;
    }
    // Few sequences leave most of the device idle: blocks share one, as many as hold the weight.
    for (int share : {4, 8}) {
        const int64_t part = a.gates / share, groups = std::clamp<int64_t>(512 / std::max<int64_t>(part / 4, 1), 1, n);
        const int64_t bytes = (n * part + 2 * n + groups * part) * 4;
        if (backward || info.major < 9 || n < 128 || n % (4 * share) || part > 2048 || bytes > info.shared_per_block ||
            batch * share > info.multiprocessors)
            continue;
        static Instances<6> shared_out("cuda/kernels/rnn_rows.cuh");
        Kernel* kernel = shared_out(mode * 2 + (share == 8), [&] { return str("rnn_cluster_forward<", mode, ", ", share, ">"); });
        RnnRows each_part = rows;
        each_part.groups = int(groups);
        launch_with(kernel, {unsigned(batch * share)}, {512}, unsigned(bytes), each_part);
        return true;
    }
    static Instances<32> kernels("cuda/kernels/rnn_rows.cuh");
    Kernel* kernel = kernels((mode * 2 + backward) * 5 + int(each),
                             [&] { return str(backward ? "rnn_rows_backward<" : "rnn_rows_forward<", mode, ", ", each, ">"); });
    launch_with(kernel, {unsigned(blocks)}, {512}, unsigned(held * columns * 4 + others), rows);
    return true;
}

void forward(DType d, const RnnArgs& a) {
    if (by_rows(d, a, false)) return;
    const Layer l{d, a};
    const int64_t n = a.size, gates = a.gates, width = a.width;
    Kernel *lstm = l.kernel("lstm_forward"), *gru = l.kernel("gru_forward"), *plain = l.kernel("plain_forward");
    Scratch hidden(a.mode == RnnMode::gru ? l.bytes(a.starts[1] * gates) : 1);
    void* from_h = hidden.data();
    for (int64_t t = 0; t < a.steps; t++) {
        const int64_t s = a.reverse ? a.steps - 1 - t : t, live = l.live(s), row = a.starts[s], count = live * n;
        if (live == 0) continue;
        char *x = l.at(a.x, row * gates), *out = l.at(a.out, row * width);
        if (a.mode == RnnMode::lstm) {
            char *kept = l.at(a.kept, row * 4 * n), *cells = l.at(a.cells, row * n), *wide = a.wide ? l.at(a.wide, row * n) : out;
            l.multiply(a.h, a.weight, kept, live, gates, width, x, gates);
            launch_with(lstm, l.blocks(count), {256}, 0, kept, a.c, cells, wide, a.project ? nullptr : a.h, n, count);
            if (a.project) {
                l.multiply(wide, a.project, out, live, width, n, nullptr, 0);
                within(a.h, out, l.bytes(live * width));
            }
        } else if (a.mode == RnnMode::gru) {
            l.multiply(a.h, a.weight, from_h, live, gates, n, a.bias, 0);
            launch_with(gru, l.blocks(count), {256}, 0, x, from_h, a.h, l.at(a.kept, row * 4 * n), out, n, count);
        } else {
            l.multiply(a.h, a.weight, out, live, gates, n, x, gates);
            launch_with(plain, l.blocks(count), {256}, 0, out, a.h, int(a.mode == RnnMode::relu), count);
        }
    }
}

void backward(DType d, const RnnArgs& a) {
    if (by_rows(d, a, true)) return;
    const Layer l{d, a};
    const int64_t n = a.size, gates = a.gates, width = a.width;
    Kernel *lstm = l.kernel("lstm_backward"), *gru = l.kernel("gru_backward"), *plain = l.kernel("plain_backward"),
           *sum = l.kernel("sum_of_two");
    Scratch unprojected(a.project ? l.bytes(a.starts[1] * n) : 1);
    for (int64_t t = a.steps - 1; t >= 0; t--) {
        const int64_t s = a.reverse ? a.steps - 1 - t : t, live = l.live(s), row = a.starts[s];
        if (live == 0) continue;
        // The state before this step: of the first `known` rows that after another one, of the rest the first state.
        const int64_t other = a.reverse ? s + 1 : s - 1, known = t > 0 ? std::min(live, l.live(other)) : 0,
                      earlier = t > 0 ? a.starts[other] : 0;
        auto in_two = [&](const void* after, const void* initial, int64_t columns, auto&& body) {
            if (known > 0) body(int64_t(0), known, l.at(after, earlier * columns));
            if (known < live) body(known, live - known, l.at(initial, known * columns));
        };
        char *extra = l.at(a.grad_out, row * width), *dx = l.at(a.dx, row * gates);
        if (a.before)
            in_two(a.out, a.h, width, [&](int64_t i, int64_t count, char* before) {
                within(l.at(a.before, (row + i) * width), before, l.bytes(count * width));
            });
        if (a.mode == RnnMode::lstm) {
            char* grad = static_cast<char*>(a.dh);
            if (a.project) {
                char* total = l.at(a.dprojected, row * width);
                launch_with(sum, l.blocks(live * width), {256}, 0, a.dh, extra, total, live * width);
                grad = static_cast<char*>(unprojected.data());
                l.multiply(total, a.project, grad, live, n, width, nullptr, 0);
                extra = nullptr;
            }
            in_two(a.cells, a.c, n, [&](int64_t i, int64_t rows, char* before) {
                launch_with(lstm, l.blocks(rows * n), {256}, 0, l.at(a.kept, (row + i) * 4 * n), before, l.at(a.cells, (row + i) * n),
                            l.at(grad, i * n), l.at(extra, i * n), l.at(a.dc, i * n), l.at(dx, i * gates), n, rows * n);
            });
            l.multiply(dx, a.weight, a.dh, live, width, gates, nullptr, 0);
        } else if (a.mode == RnnMode::gru) {
            char* dhidden = l.at(a.dhidden, row * gates);
            in_two(a.out, a.h, n, [&](int64_t i, int64_t rows, char* before) {
                launch_with(gru, l.blocks(rows * n), {256}, 0, l.at(a.kept, (row + i) * 4 * n), before, l.at(a.dh, i * n),
                            l.at(extra, i * n), l.at(dx, i * gates), l.at(dhidden, i * gates), n, rows * n);
            });
            l.multiply(dhidden, a.weight, a.dh, live, n, gates, a.dh, n);
        } else {
            launch_with(plain, l.blocks(live * n), {256}, 0, l.at(a.out, row * n), a.dh, extra, dx, int(a.mode == RnnMode::relu), live * n);
            l.multiply(dx, a.weight, a.dh, live, n, gates, nullptr, 0);
        }
    }
}

}  // namespace

const RnnKernels rnn = {forward, backward, false};

}  // namespace wisp::cuda
