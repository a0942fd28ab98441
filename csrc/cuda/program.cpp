// Fused programs on the GPU: one kernel each, whose text is written here from rows of the table and compiled when a program of its
// structure first comes. Intermediate values are in registers, rounded to their dtype, and have the bits that eager's have. A program
// with reductions takes a block per row, which holds it in registers, or, if it is too long for that, goes over it once for each reduction
// that depends on another, making again what is cheap to make. The order of a sum depends on the length of the row alone, but is not that
// of the kernel for a single reduction.
#include "kernels/program.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "../core/errors.h"
#include "divider.h"
#include "pointwise.h"
#include "random.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

#include "../kernels/program_arguments.h"

constexpr int threads = 256;        // of a block
constexpr int longest_once = 4096;  // a row that is held in registers

// An input seen along the merged dimensions.
struct Place {
    int64_t strides[most_program_dims + 1] = {};  // of the outer dimensions, then of the inner one
    bool is_number = false, by_row = false, is_one = false, is_flat = false;
    int slot = 0;    // among the numbers, or among the others
    int axis = -1;   // of its window, among the merged dimensions
    int bounds = 0;  // where those of the window are
};

class Form {
public:
    explicit Form(const Program& p) : p_(p), places_(p.inputs.size()) {
        for (const ProgramStep& s : p.steps) {
            rows_ |= s.by_row || s.kind == StepKind::columns;
            draws_ |= s.kind == StepKind::dropout;
        }
        merge();
        if (rows_ && inner_ >= 512 && inner_ % 8 == 0) together_ = 8;
        find_vector();
        for (Place& place : places_) place.slot = place.is_number ? numbers_++ : memories_++;
        for (const ProgramStep& s : p.steps) {
            outputs_ += s.out != nullptr;
            parameters_ += s.has_params || s.kind == StepKind::reduce;
        }
        once_ = rows_ && vector_ == together_ && inner_ <= longest_once;
        if (once_) threads_ = int(std::max<int64_t>(64, (inner_ / together_ + 31) / 32 * 32));
        // Threads of a warp that have neighbours make random numbers together.
        if (rows_) by_warps_ = vector_ == together_ && inner_ % (once_ ? 64 : 32 * together_) == 0;
        else by_warps_ = vector_ == 4 || vector_ == 8;
        if (rows_) blocks_ = outer_;
        else blocks_ = (outer_ * inner_ / vector_ + threads - 1) / threads;
        for (const ProgramStep& s : p.steps) columns_ += s.kind == StepKind::columns;
        if (is_persistent())  // as many blocks as there is room for, each with its sums of many rows
            blocks_ = std::min<int64_t>(outer_, device_info(current_index()).multiprocessors * at_once());
        blocks_ = std::min<int64_t>(blocks_, int64_t(1) << 30);
        for (Place& place : places_)
            if (place.axis >= 0) place.bounds = bounds_, bounds_ += 2;
        for (const ProgramStep& s : p.steps) {
            join_bounds_.push_back(bounds_);
            if (s.kind == StepKind::join) bounds_ += s.count;
        }
    }

    void launch() {
        const int64_t parts = once_ ? blocks_ : outer_;
        size_t room = 0;  // for parts of sums of rows
        for (const ProgramStep& s : p_.steps) room += part_bytes(s, parts);
        const Scratch scratch(room);
        Sums sums;
        Arguments mine;
        write(mine, scratch.as<char>(), sums);
        void* arguments = mine.bytes;
        cuda::launch(kernel(false), {unsigned(blocks_)}, {unsigned(threads_)}, 0, &arguments, &mine.size, 1);
        add_parts(sums, parts);
    }

    // Two of one text, where the time of a launch counts: the first blocks are those of one, the others work for the other.
    bool is_twin(const Form& other) const {
        const int64_t few = int64_t(device_info(current_index()).multiprocessors) * 32;
        return !rows_ && !other.rows_ && std::min(blocks_, other.blocks_) <= few && key() == other.key();
    }
    void launch_with_twin(const Form& other) const {
        Sums none;
        Arguments mine, others;
        write(mine, nullptr, none);
        other.write(others, nullptr, none);
        unsigned first = unsigned(blocks_);
        void* arguments[] = {mine.bytes, others.bytes, &first};
        const uint32_t sizes[] = {mine.size, others.size, sizeof first};
        cuda::launch(kernel(true), {unsigned(blocks_ + other.blocks_)}, {unsigned(threads_)}, 0, arguments, sizes, 3);
    }

private:
    using Sums = std::vector<std::pair<const ProgramStep*, const char*>>;

    // As ProgramArguments lies in memory.
    struct Arguments {
        alignas(16) char bytes[sizeof(
            ProgramArguments<most_inputs, most_outputs, most_inputs, most_parameters, most_program_dims + 1, most_bounds>)];
        uint32_t size = 0;
    };
    // What is not set must be the same each time: see replay.cpp. `next_part`: memory for parts of sums of rows.
    void write(Arguments& to, char* next_part, Sums& sums) const {
        char* bytes = to.bytes;
        const int64_t length = inner_ / vector_, n = rows_ ? outer_ : outer_ * length;
        std::memcpy(bytes, &n, 8);
        std::memcpy(bytes + 8, &length, 8);
        size_t at = 16;
        auto array = [&]<class T>(T*& first, int count) {
            first = reinterpret_cast<T*>(bytes + at);
            const size_t size = (size_t(at_least_one(count)) * sizeof(T) + 15) / 16 * 16;
            std::memset(bytes + at, 0, size);
            at += size;
        };
        char **inputs, **outputs;
        char (*numbers)[16];
        Param(*params)[4];
        Divider* sizes;
        int64_t* strides;
        uint32_t* bounds;
        array(inputs, memories_);
        array(outputs, outputs_);
        array(numbers, numbers_);
        array(params, parameters_);
        array(sizes, dims_ + 1);
        array(strides, at_least_one(memories_) * (dims_ + 1));
        array(bounds, bounds_);
        for (size_t i = 0; i < places_.size(); i++) {
            const Place& place = places_[i];
            if (place.is_number) {
                std::memcpy(numbers[place.slot], p_.inputs[i].number, 16);
                continue;
            }
            inputs[place.slot] = p_.inputs[i].data;
            const int64_t item = item_size(p_.inputs[i].dtype);
            if (place.axis >= 0)
                for (int64_t bound : {p_.inputs[i].from, p_.inputs[i].to}) *bounds++ = in_units(bound, place.axis);
            int64_t* own = strides + place.slot * (dims_ + 1);
            if (!rows_) *own++ = place.strides[dims_] * vector_ * item;
            for (int d = dims_ - 1; d >= 0; d--) *own++ = place.strides[d] * item;
            if (rows_) *own = place.strides[dims_] * item;
        }
        if (!rows_) *sizes++ = divider(uint32_t(length));
        for (int d = dims_ - 1; d >= 0; d--) *sizes++ = divider(uint32_t(shape_[d]));
        const int64_t parts = once_ ? blocks_ : outer_;
        for (const ProgramStep& s : p_.steps) {
            if (s.kind == StepKind::columns) {
                sums.emplace_back(&s, next_part);
                *outputs++ = next_part;
                next_part += part_bytes(s, parts);
            } else if (s.out) *outputs++ = s.out;
            if (s.kind == StepKind::dropout) {
                Param* own = *params;
                std::memcpy(own, s.params.data(), sizeof *params);
                own[3].integer = int64_t(uintptr_t(capture_cell()));
                params++;
            } else if (s.kind == StepKind::reduce) (*params++)[0].real = s.divisor;
            else if (s.has_params) std::memcpy(*params++, s.params.data(), sizeof *params);
            if (s.kind == StepKind::join)
                for (int k = 0; k < s.count; k++) *bounds++ = in_units(s.ends[size_t(k)], axis_of(s.axis));
        }
        to.size = uint32_t(at);
    }

    bool is_persistent() const { return once_ && columns_; }
    // Blocks of a processor: the kernel is held to the registers that they leave each other.
    int at_once() const { return std::clamp(1024 / threads_, 1, 8); }

    // ---- sums of rows

    size_t part_bytes(const ProgramStep& s, int64_t parts) const {
        return s.kind == StepKind::columns ? size_t(parts * inner_ * item_size(compute_dtype(s.result)) + 255) / 256 * 256 : 0;
    }
    // Adds up what the blocks have made, or what they have written of each row; those of one dtype in one launch.
    void add_parts(const Sums& sums, int64_t parts) const {
        for (size_t first = 0; first < sums.size(); first++) {
            const DType dtype = sums[first].first->result;
            auto is_first = [&](size_t i) { return sums[i].first->result == dtype; };
            bool done = false;
            for (size_t i = 0; i < first; i++) done |= is_first(i);
            Columns columns{};
            int count = 0;
            for (size_t i = first; !done && i < sums.size(); i++) {
                if (is_first(i)) columns.parts[count] = sums[i].second, columns.out[count++] = sums[i].first->out;
                if (count == 0 || (count < most_columns && i + 1 < sums.size())) continue;
                launch_with(find_kernel("cuda/kernels/program.cuh", str("program_columns<", type_text(dtype), ">")),
                            {unsigned((inner_ + 31) / 32), unsigned(count)}, {1024}, 0, columns, int(parts), int(inner_));
                count = 0;
            }
        }
    }

    // ---- the shape

    void merge() {
        const Dims& sizes = p_.sizes;
        const int64_t all = sizes.size();
        int64_t shape[64], last[most_inputs];
        std::vector<std::array<int64_t, 64>> strides(places_.size());
        int n = 0;
        uint64_t alone = 0;  // dimensions whose index is asked for
        for (const ProgramInput& x : p_.inputs)
            if (x.axis >= 0) alone |= uint64_t(1) << x.axis;
        for (const ProgramStep& s : p_.steps)
            if (s.kind == StepKind::join) alone |= uint64_t(1) << s.axis;
        auto stride = [&](size_t i, int64_t d) { return p_.inputs[i].data ? p_.inputs[i].strides[d] : 0; };
        for (int64_t d = 0; d < all; d++) {
            const bool inner = rows_ && d == all - 1;
            bool together = n > 0 && !inner && !(alone >> d & 1) && !(alone >> (d - 1) & 1);
            for (size_t i = 0; together && i < places_.size(); i++) together = last[i] == stride(i, d) * sizes[d];
            if (!together) shape[n++] = 1;
            shape[n - 1] *= sizes[d];
            merged_[d] = n - 1;
            for (size_t i = 0; i < places_.size(); i++) strides[i][size_t(n - 1)] = last[i] = stride(i, d);
        }
        if (n == 0) {
            shape[n++] = 1;
            for (auto& s : strides) s[0] = 0;
        }
        if (n > most_program_dims) throw RuntimeError("internal error: a program of ", n, " dimensions");
        dims_ = n - 1;
        inner_ = shape[dims_];
        for (int d = 0; d < dims_; d++) outer_ *= shape_[d] = shape[d];
        for (size_t i = 0; i < places_.size(); i++) {
            Place& at = places_[i];
            at.is_number = !p_.inputs[i].data;
            if (p_.inputs[i].axis >= 0) at.axis = axis_of(p_.inputs[i].axis);
            bool zeros = true, dense = true;
            int64_t step = inner_;
            for (int d = dims_; d >= 0; d--) at.strides[d] = strides[i][size_t(d)];
            for (int d = dims_ - 1; d >= 0; d--) {
                zeros &= at.strides[d] == 0;
                dense &= at.strides[d] == step;
                step *= shape[d];
            }
            int64_t last = 0;
            for (int d = 0; d <= dims_; d++) {
                far_ |= at.strides[d] < 0;
                last += (shape[d] - 1) * at.strides[d] * item_size(p_.inputs[i].dtype);
            }
            far_ |= last >= int64_t(1) << 32;
            at.is_one = !at.is_number && zeros && (at.strides[dims_] == 0 || inner_ == 1);
            at.by_row = !at.is_number && !at.is_one && at.strides[dims_] == 0;
            at.is_flat = !at.is_number && !at.is_one && !at.by_row && dense && at.strides[dims_] == 1 && at.axis < 0;
        }
    }

    // As many neighbours at a time as fill 16 bytes of the widest element, where all that is read and written allows it.
    void find_vector() {
        int64_t widest = 1;
        for (size_t i = 0; i < places_.size(); i++)
            if (!places_[i].is_number) widest = std::max(widest, item_size(p_.inputs[i].dtype));
        for (const ProgramStep& s : p_.steps)
            if (is_full(s)) widest = std::max(widest, item_size(s.result));
        const int64_t wanted = !rows_ ? 16 / widest : widest > 4 ? std::min(together_, 16 / widest) : together_;
        if (inner_ % wanted) return;
        auto whole = [&](int64_t bound, int axis) { return axis_of(axis) != dims_ || bound % wanted == 0; };
        for (const ProgramInput& x : p_.inputs)
            if (x.axis >= 0 && !(whole(x.from, x.axis) && whole(x.to, x.axis))) return;
        for (const ProgramStep& s : p_.steps)
            for (int k = 0; s.kind == StepKind::join && k < s.count; k++)
                if (!whole(s.ends[size_t(k)], s.axis)) return;
        for (size_t i = 0; i < places_.size(); i++) {
            const Place& at = places_[i];
            if (at.is_number || at.is_one || at.by_row) continue;
            if (at.strides[dims_] != 1 || uintptr_t(p_.inputs[i].data) % uintptr_t(item_size(p_.inputs[i].dtype) * wanted)) return;
            for (int d = 0; d < dims_; d++)
                if (at.strides[d] % wanted) return;
        }
        for (const ProgramStep& s : p_.steps)
            if (is_full(s) && uintptr_t(s.out) % uintptr_t(item_size(s.result) * wanted)) return;
        vector_ = wanted;
    }

    // Whether it is written element by element.
    static bool is_full(const ProgramStep& s) { return s.out && !s.by_row && s.kind != StepKind::columns; }

    int axis_of(int dim) const { return merged_[dim]; }
    // An index of a merged dimension as the kernel counts it. Windows may begin before the first one or end behind the last.
    uint32_t in_units(int64_t index, int axis) const {
        const int64_t size = axis == dims_ ? inner_ : shape_[axis];
        index = std::clamp<int64_t>(index, 0, size);
        return uint32_t(axis == dims_ && !rows_ ? index / vector_ : index);
    }

    // ---- the kernel

    // All that the text depends on.
    std::string key() const {
        std::string k;
        auto add = [&](auto... values) { (k.push_back(char(values)), ...); };
        add(rows_, vector_, dims_, places_.size(), p_.steps.size(), once_, threads_ / 32, by_warps_, together_, far_);
        for (size_t i = 0; i < places_.size(); i++) {
            const Place& at = places_[i];
            add(p_.inputs[i].dtype, at.is_number, at.is_one, at.by_row, at.is_flat, at.strides[dims_] == 1, at.axis);
        }
        for (const ProgramStep& s : p_.steps) {
            add(s.kind, s.by_row, s.which, int(s.op) & 0xff, int(s.op) >> 8, s.compute, s.result, s.count, s.has_params, s.reduction,
                s.out != nullptr, is_square(s));
            for (int i = 0; i < s.count; i++) add(s.in[size_t(i)]);
            if (s.kind == StepKind::join) add(axis_of(s.axis));
        }
        return k;
    }

    Kernel* kernel(bool twins) const {
        static std::unordered_map<std::string, Kernel*> known[2];
        Kernel*& k = known[twins][key()];
        if (!k) k = find_kernel("cuda/kernels/program.cuh", text(twins));
        return k;
    }

    // ---- its text

    bool is_row_value(int v) const {  // the same along a row: kept outside of the loops
        const int inputs = int(places_.size());
        if (v >= inputs) return p_.steps[size_t(v - inputs)].by_row;
        const Place& at = places_[size_t(v)];
        return at.is_number || at.is_one || (rows_ && at.by_row);
    }
    std::string value(int v) const {
        if (v < 0) return "0";
        if (is_row_value(v)) return str("v", v);
        if (v >= int(places_.size())) return str("v", v, once_ ? "[k]" : "");
        return str("v", v, places_[size_t(v)].by_row ? "" : ".at[k]");
    }
    static std::string as(DType to, const std::string& x) { return str("convert<", type_text(to), ">(", x, ")"); }

    // The power that norms are written with: known to the compiler, it is a product.
    static bool is_square(const ProgramStep& s) {
        return s.op == Pointwise::pow_number && s.kind == StepKind::row && s.params[0].real == 2;
    }

    std::string expression(const ProgramStep& s, int parameter) const {
        auto in = [&](int i, DType to) { return s.in[size_t(i)] < 0 ? str(type_text(to), "()") : as(to, value(s.in[size_t(i)])); };
        switch (s.kind) {
        case StepKind::cast: return in(0, s.result);
        case StepKind::where: return str("(convert<bool>(", value(s.in[0]), ") ? ", in(1, s.result), " : ", in(2, s.result), ")");
        case StepKind::join: {
            const size_t number = size_t(&s - p_.steps.data());
            std::string t = in(s.count - 1, s.result);
            for (int k = s.count - 2; k >= 0; k--)
                t = str("(x", axis_of(s.axis), " < p.bounds[", join_bounds_[number] + k, "] ? ", in(k, s.result), " : ", t, ")");
            return t;
        }
        case StepKind::dropout:
            return as(s.result, str("settled(bits", places_.size() + size_t(&s - p_.steps.data()), " >> k & 1 ? ", in(0, s.compute), " * ",
                                    type_text(s.compute), "(p.params[", parameter, "][3].real) : ", type_text(s.compute), "(0), zero)"));
        case StepKind::columns: return as(compute_dtype(s.result), value(s.in[0]));
        case StepKind::reduce:
        case StepKind::loss: return "";
        case StepKind::row: break;
        }
        static const char* const functions[] = {"forward", "gradient0", "gradient1", "gradient2"};
        std::string call = str("rows::", row_name(s.op), "_row::template ", functions[s.which], "<", type_text(s.compute), ">(");
        const int operands = s.which ? 5 : 3;
        // What an expression lacks is given as its first operand.
        for (int i = 0; i < operands; i++) call += in(i < s.count && s.in[size_t(i)] >= 0 ? i : 0, s.compute) + ", ";
        call += !s.has_params ? std::string("no_params)") : is_square(s) ? std::string("squared)") : str("p.params[", parameter, "])");
        // Rounding to halves keeps it apart from what comes next, too.
        return as(s.result, item_size(s.result) == 2 ? call : str("settled(", call, ", zero)"));
    }

    // Which full steps lead to a value.
    void mark(int v, std::vector<bool>& wanted) const {
        const int inputs = int(places_.size());
        if (v < 0 || is_row_value(v)) return;
        if (wanted[size_t(v)]) return;
        wanted[size_t(v)] = true;
        if (v < inputs) return;
        const ProgramStep& s = p_.steps[size_t(v - inputs)];
        for (int i = 0; i < s.count; i++) mark(s.in[size_t(i)], wanted);
    }

    // How many reductions, one after the other, a value needs.
    std::vector<int> levels() const {
        std::vector<int> level(places_.size() + p_.steps.size(), 0);
        for (size_t i = 0; i < p_.steps.size(); i++) {
            const ProgramStep& s = p_.steps[i];
            int most = 0;
            for (int k = 0; k < s.count; k++)
                if (s.in[size_t(k)] >= 0) most = std::max(most, level[size_t(s.in[size_t(k)])]);
            level[places_.size() + i] = most + (s.kind == StepKind::reduce);
        }
        return level;
    }

    std::string text(bool twins) const {
        std::string names;
        for (const ProgramStep& s : p_.steps)
            names += s.kind == StepKind::row       ? str(" ", row_name(s.op), s.which ? "'" : "")
                     : s.kind == StepKind::where   ? " where"
                     : s.kind == StepKind::cast    ? " to"
                     : s.kind == StepKind::join    ? " cat"
                     : s.kind == StepKind::dropout ? " dropout"
                     : s.kind == StepKind::columns ? " columns"
                                                   : " reduce";
        const std::string type = str("const ProgramArguments<", memories_, ", ", outputs_, ", ", numbers_, ", ", parameters_, ", ",
                                     dims_ + 1, ", ", bounds_, ">");
        std::string t = str("/*", names, " */ namespace wisp {__global__ void __launch_bounds__(", threads_,
                            is_persistent() ? str(", ", at_once()) : std::string(), ") program(");
        if (!twins) return t + type + " p) {begin_early(); const unsigned block = blockIdx.x, blocks = gridDim.x;" + block_text() + "}}";
        t += type + " p0, " + type + " p1, const unsigned first) {begin_early();";
        t += "if (blockIdx.x < first) {const auto& p = p0; const unsigned block = blockIdx.x, blocks = first;" + block_text();
        t += "} else {const auto& p = p1; const unsigned block = blockIdx.x - first, blocks = gridDim.x - first;" + block_text();
        return t + "}}}";
    }

    // The work of a block, for the arguments p.
    std::string block_text() const {
        const int inputs = int(places_.size());
        std::string t;
        for (int i = 0; i < inputs; i++) {
            const char* type = type_text(p_.inputs[size_t(i)].dtype);
            if (places_[size_t(i)].is_number)
                t += str("const ", type, " v", i, " = element<", type, ">(p.numbers[", places_[size_t(i)].slot, "]);");
            else if (places_[size_t(i)].is_one)
                t += str("const ", type, " v", i, " = element<", type, ">(p.inputs[", places_[size_t(i)].slot, "]);");
        }
        t += "const unsigned zero = unsigned(p.n >> 62);";
        return t + (rows_ ? rows_text() : flat_text());
    }

    // Offsets of the inputs that don't lie in one line, for the unit `at`.
    std::string offsets(int dims) const {
        std::string t, last;
        bool any = false;
        for (size_t i = 0; i < places_.size(); i++) {
            const Place& at = places_[i];
            if (at.is_number || at.is_one || (at.is_flat && !rows_)) continue;
            t += str(far_ ? "int64_t o" : "uint32_t o", i, " = 0;");
            any = true;
        }
        if (!any && !bounds_) return t;
        for (int d = 0; bounds_ && d <= dims_; d++) t += str("uint32_t x", d, " = 0;");
        t += "uint32_t rest = uint32_t(at);";
        for (int d = 0; d < dims; d++) {
            if (d == dims - 1) t += "{ const uint32_t index = rest;";
            else
                t += str("{ const uint32_t next = p.sizes[", d, "].divide(rest), index = rest - next * p.sizes[", d,
                         "].divisor; rest = next;");
            if (bounds_) t += str("x", rows_ ? dims_ - 1 - d : dims_ - d, " = index;");
            for (size_t i = 0; i < places_.size(); i++) {
                const Place& at = places_[i];
                if (at.is_number || at.is_one || (at.is_flat && !rows_)) continue;
                t +=
                    str("o", i, " += ", far_ ? "p.strides[" : "uint32_t(p.strides[", at.slot, "][", d, far_ ? "] * index;" : "]) * index;");
            }
            t += "}";
        }
        return t;
    }

    // Whether an index is in the window of an input.
    static std::string is_inside(const Place& place) {
        if (place.axis < 0) return "true";
        return str("x", place.axis, " >= p.bounds[", place.bounds, "] && x", place.axis, " < p.bounds[", place.bounds + 1, "]");
    }
    // The index along a row, which windows ask for.
    std::string along_row() const { return bounds_ ? str("x", dims_, " = uint32_t(e) * ", vector_, ";") : ""; }

    // The elements that `wanted` names, loaded at `at` (of a row, or of all).
    std::string loads(const std::vector<bool>& wanted, const char* at) const {
        std::string t;
        for (size_t i = 0; i < places_.size(); i++) {
            const Place& place = places_[i];
            if (!wanted[i] || is_row_value(int(i))) continue;
            const char* type = type_text(p_.inputs[i].dtype);
            const int64_t bytes = item_size(p_.inputs[i].dtype) * vector_;
            if (rows_) {  // of any stride, if they are no vectors
                const std::string held = str("Vector<", type, ", ", vector_, ">");
                const std::string step = place.strides[dims_] == 1 ? str(bytes) : str("p.strides[", place.slot, "][", dims_, "]");
                const std::string asked = once_ ? (place.axis < 0 ? "there" : "there && " + is_inside(place)) : is_inside(place);
                t += str("const ", held, " v", i, " = ", asked, " ? element<", held, ">(p.inputs[", place.slot, "] + o", i, " + ", at,
                         " * ", step, ") : ", held, "();");
                continue;
            }
            if (place.axis >= 0) {
                const std::string held = place.by_row ? type : str("Vector<", type, ", ", vector_, ">");
                t += str("const ", held, " v", i, " = ", is_inside(place), " ? element<", held, ">(p.inputs[", place.slot, "] + o", i,
                         ") : ", held, "();");
                continue;
            }
            if (place.by_row) t += str("const ", type, " v", i, " = element<", type, ">(p.inputs[", place.slot, "] + o", i, ");");
            else if (place.is_flat)
                t += str("const auto v", i, " = elements<", type, ", ", vector_, ">(p.inputs[", place.slot, "] + ", at, " * ", bytes, ");");
            else t += str("const auto v", i, " = elements<", type, ", ", vector_, ">(p.inputs[", place.slot, "] + o", i, ");");
        }
        return t;
    }

    // The random bits of the steps that `wanted` names, for the vector that begins at an element.
    std::string draws(const std::vector<bool>& wanted, const std::string& first) const {
        std::string t;
        int parameter = 0;
        for (size_t i = 0; draws_ && i < p_.steps.size(); i++) {
            const ProgramStep& s = p_.steps[i];
            const int own = s.has_params || s.kind == StepKind::reduce ? parameter++ : 0;
            if (s.kind == StepKind::dropout && wanted[places_.size() + i])
                t += str("const unsigned bits", places_.size() + i, " = ", by_warps_ ? "kept_of_warp<" : "kept_of<", vector_, ">(uint64_t(",
                         first, "), p.params[", own, "]);");
        }
        return t;
    }

    // The full steps that `wanted` names, for the k-th element of a vector; `store`: into what is written.
    std::string steps(const std::vector<bool>& wanted, bool store) const {
        std::string t;
        int parameter = 0, output = 0;
        for (size_t i = 0; i < p_.steps.size(); i++) {
            const ProgramStep& s = p_.steps[i];
            const size_t v = places_.size() + i;
            const int own = s.has_params || s.kind == StepKind::reduce ? parameter++ : 0, place = s.out ? output++ : 0;
            if (s.by_row || !wanted[v] || (s.kind == StepKind::columns && !store)) continue;
            if (s.kind == StepKind::columns) {
                t += str("r", place, ".at[k] = ", expression(s, own), ";");
                continue;
            }
            t += once_ ? str("v", v, "[k] = ", expression(s, own), ";")
                       : str("const ", type_text(s.result), " v", v, " = ", expression(s, own), ";");
            if (store && s.out) t += str("r", place, ".at[k] = v", v, ";");
        }
        return t;
    }

    std::string results(const char* at, bool declare) const {
        std::string t;
        int output = 0;
        for (const ProgramStep& s : p_.steps) {
            if (!s.out) continue;
            const int place = output++;
            if (s.by_row || (once_ && s.kind == StepKind::columns)) continue;
            const DType dtype = s.kind == StepKind::columns ? compute_dtype(s.result) : s.result;
            const char* type = type_text(dtype);
            if (declare) t += str("Vector<", type, ", ", vector_, "> r", place, ";");
            else
                t += str("*reinterpret_cast<Vector<", type, ", ", vector_, ">*>(p.outputs[", place, "] + ", at, " * ",
                         item_size(dtype) * vector_, ") = r", place, ";");
        }
        return t;
    }

    std::vector<bool> kept() const {
        std::vector<bool> wanted(places_.size() + p_.steps.size(), false);
        for (size_t i = 0; i < p_.steps.size(); i++)
            if (p_.steps[i].out) mark(int(places_.size() + i), wanted);
        return wanted;
    }

    std::string flat_text() const {
        const std::vector<bool> wanted = kept();
        // Random numbers are made by whole warps: those behind the last element read it again.
        std::string t = str("for (int64_t unit = int64_t(block) * ", threads, " + threadIdx.x; ",
                            draws_ ? "unit - threadIdx.x % 32 < p.n; " : "unit < p.n; ", "unit += int64_t(blocks) * ", threads, ") {");
        t += draws_ ? "const int64_t at = unit < p.n ? unit : p.n - 1;" : "const int64_t at = unit;";
        t += offsets(dims_ + 1) + loads(wanted, "at") + draws(wanted, str("unit * ", vector_)) + results("at", true);
        t += str("_Pragma(\"unroll\") for (int k = 0; k < ", vector_, "; k++) {") + steps(wanted, true) + "}";
        return t + (draws_ ? "if (unit < p.n) {" + results("at", false) + "}" : results("at", false)) + "}";
    }

    std::string rows_text() const {
        const std::vector<int> level = levels();
        const int inputs = int(places_.size());
        int last = 0;
        for (int l : level) last = std::max(last, l);
        std::string shared, t = column_starts() + "for (int64_t at = block; at < p.n; at += blocks) {" + offsets(dims_);
        for (int i = 0; i < inputs; i++)
            if (places_[size_t(i)].by_row) {
                const char* type = type_text(p_.inputs[size_t(i)].dtype);
                t += str("const ", type, " v", i, " = ", is_inside(places_[size_t(i)]), " ? element<", type, ">(p.inputs[",
                         places_[size_t(i)].slot, "] + o", i, ") : ", type, "();");
            }
        const int64_t vectors = together_ / vector_;
        const std::vector<bool> made = kept();
        if (once_) t += row_begin(made, level);
        std::string loop = vectors == 1 ? str("for (int64_t e = threadIdx.x; e < p.length; e += ", threads, ") {")
                                        : str("for (int64_t q = threadIdx.x * ", vectors, "; q < p.length; q += ", threads * vectors,
                                              ") for (int64_t e = q; e < q + ", vectors, " && e < p.length; e++) {");
        loop += along_row();
        const std::string each = str("_Pragma(\"unroll\") for (int k = 0; k < ", vector_, "; k++) {");
        for (int l = 0; l <= last; l++) {
            // What is computed from the results of reductions, row by row; then the reductions that can be made from that.
            int parameter = 0, output = 0;
            std::vector<bool> wanted(level.size(), false);
            std::string folds, warps, ends, starts;
            for (size_t i = 0; i < p_.steps.size(); i++) {
                const ProgramStep& s = p_.steps[i];
                const size_t v = size_t(inputs) + i;
                const int own = s.has_params || s.kind == StepKind::reduce ? parameter++ : 0, place = s.out ? output++ : 0;
                if (!s.by_row) continue;
                std::string store;
                if (s.out)
                    store =
                        str("if (threadIdx.x == 0) reinterpret_cast<", type_text(s.result), "*>(p.outputs[", place, "])[at] = v", v, ";");
                if (s.kind != StepKind::reduce) {
                    if (level[v] == l) t += str("const ", type_text(s.result), " v", v, " = ", expression(s, own), ";") + store;
                    continue;
                }
                if (level[v] != l + 1) continue;
                mark(s.in[0], wanted);
                const std::string type = type_text(compute_dtype(s.result)), fold = s.reduction == Reduction::max ? "Largest" : "Adding";
                shared += str("__shared__ ", type, " s", v, "[", threads_ / 32, "];");
                starts += str(type, " a", v, " = ", fold, "::start<", type, ">();");
                folds += str("a", v, " = ", fold, "::join(a", v, ", convert<", type, ">(", value(s.in[0]), "));");
                warps += str("over_warp<", fold, ">(a", v, ", s", v, ");");
                ends += str("const ", type_text(s.result), " v", v, " = convert<", type_text(s.result), ">(over_warps<", fold, ", ",
                            threads_ / 32, ">(s", v, ")",
                            s.reduction != Reduction::max && is_floating(s.result) ? str(" / ", type, "(p.params[", own, "][0].real)") : "",
                            ");") +
                        store;
            }
            if (once_) {  // what can be made from the reductions so far, and then the next ones
                t += each + steps(of_level(made, level, l), false) + "}" + starts;
                if (!starts.empty()) t += "if (there) " + each + folds + "}" + warps + "__syncthreads();" + ends;
                continue;
            }
            if (starts.empty()) continue;
            t += starts + loop + loads(wanted, "e") + draws(wanted, element_text()) + each + steps(wanted, false) + folds + "}}" + warps +
                 "__syncthreads();" + ends;
        }
        bool full = false;
        for (const ProgramStep& s : p_.steps) full |= is_full(s) || (s.kind == StepKind::columns && !once_);
        if (full && once_) t += "if (there) {" + results("", true) + each + copied() + "}" + results("(at * p.length + e)", false) + "}";
        else if (full)
            t += loop + loads(made, "e") + draws(made, element_text()) + results("", true) + each + steps(made, true) + "}" +
                 results("(at * p.length + e)", false) + "}";
        if (once_ && columns_) t += "if (there) " + each + column_adds() + "}";
        // Memory of a level is written again after all threads have come to another level, if there is one.
        if (last == 1) t += "__syncthreads();";
        return shared + t + "}" + column_ends();
    }

    std::string element_text() const { return str("(at * p.length + e) * ", vector_); }

    // ---- a row in registers

    // Columns are added up over the rows of a block, which are joined when all blocks have ended (add_parts).
    template <class F> std::string each_column(const F& text) const {
        std::string t;
        int output = 0;
        for (size_t i = 0; once_ && i < p_.steps.size(); i++) {
            const ProgramStep& s = p_.steps[i];
            const int place = s.out ? output++ : 0;
            if (s.kind == StepKind::columns) t += text(s, places_.size() + i, place, type_text(compute_dtype(s.result)));
        }
        return t;
    }
    std::string column_starts() const {
        return each_column(
            [&](const ProgramStep&, size_t v, int, const char* type) { return str(type, " c", v, "[", vector_, "] = {};"); });
    }
    std::string column_adds() const {
        return each_column([&](const ProgramStep& s, size_t v, int, const char*) { return str("c", v, "[k] += ", expression(s, 0), ";"); });
    }
    std::string column_ends() const {
        return each_column([&](const ProgramStep&, size_t v, int place, const char* type) {
            return str("if (threadIdx.x < p.length) { Vector<", type, ", ", vector_, "> r; for (int k = 0; k < ", vector_,
                       "; k++) r.at[k] = c", v, "[k]; reinterpret_cast<Vector<", type, ", ", vector_, ">*>(p.outputs[", place,
                       "])[block * p.length + threadIdx.x] = r; }");
        });
    }

    // Everything that any level asks for is loaded or declared at the beginning.
    std::string row_begin(const std::vector<bool>& made, const std::vector<int>& level) const {
        std::vector<bool> all = of_level(made, level, -1);
        std::string t = "const int64_t e = threadIdx.x; const bool there = e < p.length;" + along_row() + loads(all, "e");
        t += draws(all, element_text());
        for (size_t i = 0; i < p_.steps.size(); i++)
            if (const size_t v = places_.size() + i; all[v] && !p_.steps[i].by_row && p_.steps[i].kind != StepKind::columns)
                t += str(type_text(p_.steps[i].result), " v", v, "[", vector_, "];");
        return t;
    }
    // The full values that are kept or reduced, with what they need, that are of a level (-1: of all).
    std::vector<bool> of_level(std::vector<bool> wanted, const std::vector<int>& level, int wanted_level) const {
        for (const ProgramStep& s : p_.steps)
            if (s.kind == StepKind::reduce) mark(s.in[0], wanted);
        for (size_t v = places_.size(); v < wanted.size(); v++)
            if (wanted_level >= 0 && level[v] != wanted_level) wanted[v] = false;
        return wanted;
    }
    std::string copied() const {
        std::string t;
        int output = 0;
        for (size_t i = 0; i < p_.steps.size(); i++) {
            const ProgramStep& s = p_.steps[i];
            const int place = s.out ? output++ : 0;
            if (is_full(s)) t += str("r", place, ".at[k] = v", places_.size() + i, "[k];");
        }
        return t;
    }

    const Program& p_;
    std::vector<Place> places_;
    bool rows_ = false, once_ = false;  // once: a row is held in registers
    bool far_ = false;                  // offsets in bytes need more than 32 bits
    bool draws_ = false, by_warps_ = false;
    int columns_ = 0;
    int64_t blocks_ = 0;
    int threads_ = threads;
    int dims_ = 0;  // outer ones
    int memories_ = 0, numbers_ = 0, outputs_ = 0, parameters_ = 0, bounds_ = 0;
    std::vector<int> join_bounds_;  // where those of each step are
    int merged_[64] = {};           // the merged dimension of each
    int64_t together_ = 4;          // elements of a row that are one thread's, whatever the vectors are
    int64_t shape_[most_program_dims] = {}, outer_ = 1, inner_ = 1, vector_ = 1;
};

void run(const Program& program) { Form(program).launch(); }

void run_both(const Program& first, const Program& second) {
    Form a(first), b(second);
    if (a.is_twin(b)) return a.launch_with_twin(b);
    a.launch();
    b.launch();
}

}  // namespace

const ProgramKernels program = {run, run_both};

}  // namespace wisp::cuda
