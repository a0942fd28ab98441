// Fused programs on the CPU: the kernels of the pointwise table, called one after another on pieces of a thousand elements whose
// intermediate values stay in the first cache. Every value is rounded to its dtype as if it had gone through memory, so that a program
// gives the bits that its operators give one by one.
//
// What a structure becomes (`Plan`) is kept with the program: the next run with it only asks where inputs and outputs lie now.
#include "kernels/program.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/threads.h"
#include "kernels/copy.h"
#include "kernels/pointwise_call.h"

namespace wisp::cpu {
namespace {

// Bytes of the registers of a unit. Where memory streams through the first cache, a part of it is left to that; values that lie in the
// second cache anyway are brought in quickly, and longer pieces make fewer calls.
const int64_t near_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE) >= 48 * 1024 ? 24 * 1024 : 12 * 1024;
constexpr int64_t near_bytes_of_few = 32 * 1024, few_bytes = 512 * 1024;
constexpr int64_t least_piece = 256, most_piece = 2048;  // elements of a unit
constexpr int64_t grain = 32768;                         // elements times steps below which threads don't pay
constexpr int64_t wide_row = 64;                         // elements for which a call of a kernel pays
constexpr int max_dims = 64;

// How many elements a register has: one for all, one for each row of a unit, or all of a unit.
enum class Extent : uint8_t { one, rows, full };

// Where the elements of a register are.
enum class Home : uint8_t {
    fixed,    // always at the same address
    walking,  // in the memory of an input or an output, further on for each unit
    buffer,
};

struct Register {
    DType dtype;
    Extent extent;
    Home home;
    int input = -1, step = -1;  // fixed, walking: whose memory it is
    bool tile = false;          // walking: the same row again and again
    bool pinned = false;        // written in the first unit only, and read in all
    int last_use = -1;
    int64_t offset = 0;  // of a buffer, in the thread's memory
};

struct Operation {
    enum Kind : uint8_t { load, convert, round, spread, kernel, reduce } kind;
    bool once = false;  // its result is the same in every unit
    Extent extent = Extent::full;
    int count = 0;          // registers
    int registers[6] = {};  // the result, then the operands
    PointwiseKernel function = nullptr;
    const Param* params = nullptr;
    unsigned constants = 0;
    bool each_row = false;                // a constant is one of each row
    const ProgramInput* input = nullptr;  // load
    const ProgramStep* step = nullptr;    // reduce
    int form = 0;                         // load: which of the collapsed inputs
    DType rounded = DType::f32;           // round: to what
};

// An input after neighbouring dimensions were merged.
struct Collapsed {
    int64_t inner;            // stride of the inner dimension, in elements
    int64_t outer[max_dims];  // strides of the others
    bool is_one, is_direct, is_tile, is_by_row;
};

class Plan : public Prepared {
public:
    explicit Plan(const Program& program) : program_(program) {
        collapse();
        for (size_t i = 0; i < program.inputs.size(); i++) values_.push_back(input_register(int(i)));
        for (size_t i = 0; i < program.steps.size(); i++) values_.push_back(emit(int(i)));
        round_in_place();
        place_buffers();
        std::stable_partition(operations_.begin(), operations_.end(), [](const Operation& o) { return o.once; });
    }

    void run() const {
        const int64_t units = pieces_ > 1 ? rows_ * pieces_ : (rows_ + group_ - 1) / group_;
        const int64_t work = int64_t(program_.steps.size()) * most_elements();
        parallel_for(units, std::max<int64_t>(1, grain / work), [&](int64_t b, int64_t e) { run_units(b, e); });
    }

private:
    // ---- the shape

    // Whether it is one row for all.
    static bool is_repeated(const ProgramInput& x) {
        return x.strides.size() > 1 && std::all_of(x.strides.begin(), x.strides.end() - 1, [](int64_t stride) { return stride == 0; });
    }

    // As many elements as let the inputs, the outputs and two values in between stay near.
    static int64_t piece_of(const Program& program) {
        int64_t bytes = 0, widest = 4;
        for (const ProgramInput& x : program.inputs)
            if (x.data && !x.strides.empty() && x.strides.back() != 0 && !is_repeated(x)) bytes += item_size(x.dtype);
        for (const ProgramStep& s : program.steps) {
            if (s.out && !s.by_row) bytes += item_size(s.result);
            widest = std::max(widest, item_size(s.compute));
        }
        int64_t elements = 1;
        for (int64_t size : program.sizes) elements *= size;
        const int64_t near = bytes * elements <= few_bytes ? near_bytes_of_few : near_bytes;
        return std::clamp(near / (bytes + 2 * widest) / 64 * 64, least_piece, most_piece);
    }

    void collapse() {
        const Dims& sizes = program_.sizes;
        piece_ = piece_of(program_);
        bool by_row = false;
        for (const ProgramStep& s : program_.steps) by_row |= s.by_row;
        int n = 0;
        const int64_t dims = sizes.size();
        collapsed_.resize(program_.inputs.size());
        std::vector<int64_t> last(program_.inputs.size());
        auto stride = [&](size_t k, int64_t d) { return program_.inputs[k].strides.empty() ? 0 : program_.inputs[k].strides[d]; };
        for (int64_t d = 0; d < dims; d++) {
            if (sizes[d] == 1 && !(by_row && d == dims - 1)) continue;
            bool merge = n > 0 && !(by_row && d == dims - 1);
            for (size_t k = 0; merge && k < last.size(); k++) merge = last[k] == stride(k, d) * sizes[d];
            if (!merge) shape_[n++] = 1;
            shape_[n - 1] *= sizes[d];
            for (size_t k = 0; k < last.size(); k++) collapsed_[k].outer[n - 1] = last[k] = stride(k, d);
        }
        if (n == 0) {
            shape_[n++] = 1;
            for (auto& c : collapsed_) c.outer[0] = 0;
        }
        inner_ = shape_[n - 1];
        outer_dims_ = n - 1;
        rows_ = 1;
        for (int d = 0; d < outer_dims_; d++) rows_ *= shape_[d];
        pieces_ = by_row || inner_ <= piece_ ? 1 : (inner_ + piece_ - 1) / piece_;
        if (pieces_ > 1) piece_ = (inner_ + pieces_ * 64 - 1) / (pieces_ * 64) * 64, pieces_ = (inner_ + piece_ - 1) / piece_;
        group_ = pieces_ > 1 ? 1 : std::clamp<int64_t>((piece_ + inner_ / 2) / std::max<int64_t>(inner_, 1), 1, rows_);
        for (auto& c : collapsed_) {
            c.inner = c.outer[n - 1];
            bool zeros = true, dense = true;
            int64_t step = inner_, row_step = 1;
            bool dense_rows = true;
            for (int d = outer_dims_ - 1; d >= 0; d--) {
                zeros &= c.outer[d] == 0;
                dense &= c.outer[d] == step;
                dense_rows &= c.outer[d] == row_step;
                step *= shape_[d];
                row_step *= shape_[d];
            }
            const bool flat = c.inner == 1 || inner_ == 1;
            c.is_one = zeros && (c.inner == 0 || inner_ == 1);
            c.is_by_row = !c.is_one && c.inner == 0;
            c.is_direct = c.is_by_row ? dense_rows : flat && dense;
            c.is_tile = !c.is_one && flat && zeros;
        }
    }

    // ---- registers and operations

    int add_register(Register r) {
        registers_.push_back(r);
        return int(registers_.size()) - 1;
    }
    int add_buffer(DType dtype, Extent extent) { return add_register({dtype, extent, Home::buffer}); }

    // The register of an input as it lies in memory, or the operation that brings it in.
    int input_register(int i) {
        const ProgramInput& input = program_.inputs[size_t(i)];
        const Collapsed& c = collapsed_[size_t(i)];
        if (c.is_one) return add_register({input.dtype, Extent::one, Home::fixed, i});
        const Extent extent = c.is_by_row ? Extent::rows : Extent::full;
        if (c.is_direct || (c.is_tile && pieces_ > 1)) return add_register({input.dtype, extent, Home::walking, i, -1, c.is_tile});
        if (c.is_tile && group_ == 1) return add_register({input.dtype, extent, Home::fixed, i});
        const int r = add_buffer(input.dtype, extent);
        Operation o{Operation::load};
        o.once = registers_[size_t(r)].pinned = c.is_tile;
        o.extent = extent;
        o.count = 1;
        o.registers[0] = r;
        o.input = &input;
        o.form = i;
        operations_.push_back(o);
        return r;
    }

    bool is_constant(int r) const {
        const Register& x = registers_[size_t(r)];
        return x.pinned || x.home == Home::fixed;
    }

    // The same elements as another dtype, and as many as are wanted.
    int wanted(int r, DType dtype, Extent extent) {
        if (registers_[size_t(r)].dtype != dtype) r = derived(r, Operation::convert, dtype, registers_[size_t(r)].extent);
        if (registers_[size_t(r)].extent != extent) r = derived(r, Operation::spread, dtype, extent);
        return r;
    }
    int derived(int from, Operation::Kind kind, DType dtype, Extent extent) {
        for (const auto& [f, d, e, r] : derived_)
            if (f == from && d == dtype && e == extent) return r;
        const int r = add_buffer(dtype, extent);
        Operation o{kind};
        o.once = registers_[size_t(r)].pinned = is_constant(from);
        o.extent = extent;
        o.count = 2;
        o.registers[0] = r;
        o.registers[1] = from;
        operations_.push_back(o);
        derived_.push_back({from, dtype, extent, r});
        return r;
    }

    int emit(int number) {
        const ProgramStep& s = program_.steps[size_t(number)];
        const Extent extent = s.by_row ? Extent::rows : Extent::full;
        auto result = [&](DType dtype) {  // in the output's memory, if it has some and this is what is kept there
            return s.out && dtype == s.result ? add_register({dtype, extent, Home::walking, -1, number}) : add_buffer(dtype, extent);
        };
        auto finish = [&](int r) {
            const DType from = registers_[size_t(r)].dtype;
            if (from == s.result) return r;
            Operation o{Operation::convert};
            o.extent = extent;
            o.count = 2;
            o.registers[0] = result(s.result);
            o.registers[1] = r;
            operations_.push_back(o);
            return o.registers[0];
        };
        Operation o{Operation::kernel};
        o.extent = extent;
        o.step = &s;
        if (s.kind == StepKind::reduce) {
            o.kind = Operation::reduce;
            o.count = 2;
            const int x = values_[size_t(s.in[0])];
            o.registers[1] = wanted(x, registers_[size_t(x)].dtype, Extent::full);
            o.registers[0] = result(s.result);
            operations_.push_back(o);
            return o.registers[0];
        }
        if (s.kind == StepKind::cast) {
            const int x = values_[size_t(s.in[0])];
            if (!s.out) return wanted(x, s.result, extent);
            o.kind = Operation::convert;
            o.count = 2;
            o.registers[1] = wanted(x, registers_[size_t(x)].dtype, extent);
            o.registers[0] = result(s.result);
            operations_.push_back(o);
            if (o.registers[1] == x) derived_.push_back({x, s.result, extent, o.registers[0]});
            return o.registers[0];
        }
        o.count = s.count + 1;
        if (s.kind == StepKind::where) {
            o.function = pointwise_binary.where[__builtin_ctz(unsigned(item_size(s.result)))];
            for (int i = 0; i < 3; i++)
                o.registers[i + 1] = wanted(values_[size_t(s.in[size_t(i)])], i ? s.result : DType::boolean, extent);
            o.registers[0] = result(s.result);
            operations_.push_back(o);
            return o.registers[0];
        }
        const PointwiseKernelRow& row = pointwise_row(s.op);
        int which = s.which;
        auto in = s.in;
        // Gradients of products and quotients are such themselves, and those take a number for a whole row.
        if (is_floating(s.compute) && ((s.op == Pointwise::mul && which) || (s.op == Pointwise::div && which == 1))) {
            in[1] = in[which == 1 ? 2 : 1];
            o.count = 3;
            which = 0;
        }
        o.function = which ? row.gradient[which - 1][compute_index(s.compute)] : row.forward[compute_index(s.compute)];
        o.params = s.has_params ? s.params.data() : nullptr;
        const bool in_place = !which && takes_constants(o.count - 1, s.compute);
        for (int i = 0; i < o.count - 1; i++) {
            const int v = in[size_t(i)];
            if (v < 0) {
                o.registers[i + 1] = -1;
                continue;
            }
            const int r = values_[size_t(v)];
            if (in_place && !o.constants && registers_[size_t(r)].extent == Extent::one) {
                o.registers[i + 1] = wanted(r, s.compute, Extent::one);
                o.constants = 2u << i;
            } else if (in_place && !o.constants && extent == Extent::full && registers_[size_t(r)].extent == Extent::rows &&
                       inner_ >= wide_row && pieces_ == 1) {
                o.registers[i + 1] = wanted(r, s.compute, Extent::rows);
                o.constants = 2u << i;
                o.each_row = true;
            } else {
                o.registers[i + 1] = wanted(r, s.compute, extent);
            }
        }
        o.registers[0] = result(s.block);
        operations_.push_back(o);
        return finish(o.registers[0]);
    }

    // A value of half precision that the next operations alone use, all of them as floats, is never made: floats are rounded instead.
    void round_in_place() {
        auto is_float_buffer = [&](int r) {
            return registers_[size_t(r)].dtype == DType::f32 && registers_[size_t(r)].home == Home::buffer;
        };
        for (size_t i = 0; i < operations_.size(); i++) {
            const Operation narrowed = operations_[i];
            const int narrow = narrowed.registers[0];
            const Register& r = registers_[size_t(narrow)];
            if (narrowed.kind != Operation::convert || r.home != Home::buffer || r.pinned ||
                !(r.dtype == DType::bf16 || r.dtype == DType::f16) || registers_[size_t(narrowed.registers[1])].dtype != DType::f32)
                continue;
            size_t users = 0, widened = 0;
            for (size_t k = i + 1; k < operations_.size(); k++)
                for (int o = 1; o < operations_[k].count; o++)
                    if (operations_[k].registers[o] == narrow) users++, widened = k;
            const Operation& user = operations_[widened];
            if (users != 1 || user.kind != Operation::convert || user.extent != narrowed.extent || !is_float_buffer(user.registers[0]))
                continue;
            operations_[i].kind = Operation::round;
            operations_[i].rounded = r.dtype;
            operations_[i].registers[0] = user.registers[0];
            operations_.erase(operations_.begin() + ptrdiff_t(widened));
        }
    }

    // ---- memory of the buffers: one that is no longer read is used again

    void place_buffers() {
        for (size_t i = 0; i < operations_.size(); i++)
            for (int k = 0; k < operations_[i].count; k++)
                if (operations_[i].registers[k] >= 0) registers_[size_t(operations_[i].registers[k])].last_use = int(i);
        const int64_t elements = most_elements();
        std::vector<int64_t> free[5];  // by the size of an element
        std::vector<bool> placed(registers_.size());
        for (size_t i = 0; i < operations_.size(); i++) {
            const Operation& o = operations_[i];
            auto place = [&](Register& r) {
                if (r.extent != Extent::full || r.pinned) {
                    r.offset = room(r.extent == Extent::one ? 1 : r.extent == Extent::rows ? group_ : elements, item_size(r.dtype));
                    return;
                }
                auto& list = free[__builtin_ctz(unsigned(item_size(r.dtype)))];
                if (list.empty()) list.push_back(room(elements, item_size(r.dtype)));
                r.offset = list.back();
                list.pop_back();
            };
            Register& result = registers_[size_t(o.registers[0])];
            if (result.home == Home::buffer && !placed[size_t(o.registers[0])]) {
                place(result);
                placed[size_t(o.registers[0])] = true;
            }
            for (int k = 0; k < o.count; k++) {
                if (o.registers[k] < 0) continue;
                Register& r = registers_[size_t(o.registers[k])];
                if (r.home != Home::buffer || r.pinned || r.extent != Extent::full || r.last_use != int(i)) continue;
                r.last_use = -1;  // an operand may come twice
                free[__builtin_ctz(unsigned(item_size(r.dtype)))].push_back(r.offset);
            }
        }
    }
    int64_t room(int64_t elements, int64_t item) {
        const int64_t at = bytes_;
        bytes_ += (elements * item + 127) / 64 * 64;
        return at;
    }

    // ---- running

    int64_t most_elements() const { return pieces_ > 1 ? piece_ : group_ * inner_; }

    int64_t offset_of_row(const Collapsed& c, int64_t row) const {
        if (outer_dims_ == 1) return row * c.outer[0];
        int64_t offset = 0;
        for (int d = outer_dims_ - 1; d >= 0; d--) {
            offset += row % shape_[d] * c.outer[d];
            row /= shape_[d];
        }
        return offset;
    }

    void load(const Operation& o, char* to, int64_t first, int64_t rows, int64_t at, int64_t length) const {
        const Collapsed& c = collapsed_[size_t(o.form)];
        const int64_t item = item_size(o.input->dtype);
        if (c.is_by_row) {
            if (outer_dims_ == 1) return cpu::copy.gather_block(to, o.input->data + first * c.outer[0] * item, c.outer[0], item, rows);
            for (int64_t r = 0; r < rows; r++) std::memcpy(to + r * item, o.input->data + offset_of_row(c, first + r) * item, size_t(item));
            return;
        }
        for (int64_t r = 0; r < rows; r++) {
            const char* from = o.input->data + (offset_of_row(c, first + r) + at * c.inner) * item;
            if (c.inner == 1) std::memcpy(to + r * length * item, from, size_t(length * item));
            else cpu::copy.gather_block(to + r * length * item, from, c.inner, item, length);
        }
    }

    static void fill(char* to, const char* value, int64_t item, int64_t n) {
        auto each = [&]<class T>(T v) {
            std::memcpy(&v, value, sizeof(T));
            std::fill_n(reinterpret_cast<T*>(to), n, v);
        };
        switch (item) {
        case 1: each(uint8_t()); break;
        case 2: each(uint16_t()); break;
        case 4: each(uint32_t()); break;
        case 8: each(uint64_t()); break;
        default:
            for (int64_t i = 0; i < n; i++) std::memcpy(to + 16 * i, value, 16);
        }
    }

    // An operation of one thread: where its registers are in this unit, and how far on in the next.
    struct Bound {
        const Operation* operation;
        char* at[6];
        int64_t step[6];
    };

    struct Unit {
        int64_t first, rows, at, length;
    };
    Unit unit_of(int64_t unit) const {
        if (pieces_ == 1) return {unit * group_, std::min(group_, rows_ - unit * group_), 0, inner_};
        const int64_t at = unit % pieces_ * piece_;
        return {unit / pieces_, 1, at, std::min(piece_, inner_ - at)};
    }

    void place(Bound& b, const Unit& u, char* memory) const {
        for (int k = 0; k < 6; k++) {
            const int r = b.operation->registers[k];
            // Operands that the expression lacks are read all the same.
            if (k >= b.operation->count || r < 0) {
                b.at[k] = b.at[k ? 1 : 0];
                b.step[k] = b.step[k ? 1 : 0];
                continue;
            }
            const Register& x = registers_[size_t(r)];
            b.step[k] = 0;
            if (x.home == Home::buffer) {
                b.at[k] = memory + x.offset;
                continue;
            }
            const ProgramInput* input = x.input >= 0 ? &program_.inputs[size_t(x.input)] : nullptr;
            b.at[k] = !input ? program_.steps[size_t(x.step)].out : input->data ? input->data : const_cast<char*>(input->number);
            if (x.home == Home::fixed) continue;
            const int64_t item = item_size(x.dtype);
            b.at[k] += (x.extent == Extent::rows ? u.first : x.tile ? u.at : u.first * inner_ + u.at) * item;
            if (x.extent == Extent::full) b.step[k] = most_elements() * item;
            else if (pieces_ == 1) b.step[k] = group_ * item;
        }
    }

    // Unit by unit; a unit is a group of rows, or a piece of a long one.
    void run_units(int64_t begin, int64_t end) const {
        char* memory = buffers(size_t(bytes_));
        static thread_local std::vector<Bound> bound;
        bound.clear();
        Unit u = unit_of(begin);
        for (const Operation& o : operations_) {
            Bound b{&o, {}, {}};
            place(b, u, memory);
            // What is made once must do for units that are longer than the first.
            if (o.once) execute(b, u, most_elements());
            else bound.push_back(b);
        }
        for (int64_t unit = begin; unit < end; unit++) {
            if (unit != begin) {
                u = unit_of(unit);
                if (u.at == 0 && pieces_ > 1)
                    for (Bound& b : bound) place(b, u, memory);
                else
                    for (Bound& b : bound)
                        for (int k = 0; k < 6; k++) b.at[k] += b.step[k];
            }
            const int64_t whole = u.rows * u.length;
            for (const Bound& b : bound) {
                const Operation& o = *b.operation;
                if (o.kind == Operation::kernel && o.extent == Extent::full && !o.each_row) o.function(b.at, whole, o.params, o.constants);
                else execute(b, u, whole);
            }
        }
    }

    void execute(const Bound& b, const Unit& u, int64_t whole) const {
        const Operation& o = *b.operation;
        const int64_t elements = o.extent == Extent::full ? whole : o.extent == Extent::rows ? u.rows : 1;
        const Register& result = registers_[size_t(o.registers[0])];
        const Register& operand = registers_[size_t(o.count > 1 ? o.registers[1] : o.registers[0])];
        char* to = b.at[0];
        const char* from = b.at[1];
        switch (o.kind) {
        case Operation::load: load(o, to, u.first, u.rows, u.at, u.length); break;
        case Operation::convert: cpu::copy.convert(to, result.dtype, from, operand.dtype, elements); break;
        case Operation::round:
            cpu::copy.round(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), o.rounded, elements);
            break;
        case Operation::spread: {
            const int64_t item = item_size(result.dtype);
            if (operand.extent == Extent::one) fill(to, from, item, elements);
            else
                for (int64_t r = 0; r < u.rows; r++) fill(to + r * u.length * item, from + r * item, item, u.length);
            break;
        }
        case Operation::reduce: {
            const int64_t sizes[2] = {u.rows, u.length}, strides[2] = {u.length, 1};
            ReduceArguments a{from, operand.dtype, sizes, strides, 2, 2, to, result.dtype};
            a.divisor = o.step->divisor;
            cpu::reduce.reduce(o.step->reduction, a);
            break;
        }
        case Operation::kernel: {
            if (!o.each_row) {
                o.function(b.at, elements, o.params, o.constants);
                break;
            }
            char* pointers[6];
            std::copy_n(b.at, 6, pointers);
            for (int64_t r = 0; r < u.rows; r++) {
                o.function(pointers, u.length, o.params, o.constants);
                for (int k = 0; k < o.count; k++) {
                    const Register& x = registers_[size_t(o.registers[k])];
                    pointers[k] += (x.extent == Extent::rows ? 1 : u.length) * item_size(x.dtype);
                }
            }
            break;
        }
        }
    }

    static char* buffers(size_t bytes) {
        struct Free {
            void operator()(char* p) const { std::free(p); }
        };
        static thread_local std::unique_ptr<char, Free> memory;
        static thread_local size_t room = 0;
        if (room < bytes) {
            room = (bytes + 4095) / 4096 * 4096;
            memory.reset(static_cast<char*>(std::aligned_alloc(64, room)));
            if (!memory) {
                room = 0;
                throw std::bad_alloc();
            }
        }
        return memory.get();
    }

    struct Derived {
        int from;
        DType dtype;
        Extent extent;
        int result;
    };
    const Program& program_;
    int outer_dims_ = 0;
    int64_t shape_[max_dims], inner_ = 1, rows_ = 1;
    int64_t piece_ = most_piece, pieces_ = 1, group_ = 1;  // elements of a piece, pieces of a row, or rows of a unit
    std::vector<Collapsed> collapsed_;
    std::vector<Register> registers_;  // those of the inputs first
    std::vector<int> values_;          // the register of each value
    std::vector<Operation> operations_;
    std::vector<Derived> derived_;
    int64_t bytes_ = 0;
};

// A single row is run as it would be eagerly.
bool run_alone(const Program& program) {
    const ProgramStep& s = program.steps[0];
    if (program.steps.size() > 1 || s.kind != StepKind::row) return false;
    PointwiseOperand operands[ProgramStep::most + 1];
    Dims dense(program.sizes.size());
    int64_t numel = 1;
    for (int64_t d = program.sizes.size() - 1; d >= 0; d--) {
        dense[d] = numel;
        numel *= program.sizes[d];
    }
    operands[0] = {s.out, s.result, dense.data(), nullptr};
    for (int i = 0; i < s.count; i++) {
        if (s.in[size_t(i)] < 0) continue;
        const ProgramInput& x = program.inputs[size_t(s.in[size_t(i)])];
        if (x.data) operands[i + 1] = {x.data, x.dtype, x.strides.data(), nullptr};
        else operands[i + 1] = {const_cast<char*>(x.number), x.dtype, nullptr, x.number};
    }
    pointwise.row(s.op, s.which, s.compute, s.block, operands, s.count + 1, program.sizes, numel, s.has_params ? s.params.data() : nullptr);
    return true;
}

void run(const Program& program) {
    if (run_alone(program)) return;
    if (!program.prepared) program.prepared = std::make_unique<Plan>(program);
    static_cast<Plan&>(*program.prepared).run();
}

const ProgramKernels table = {run};

}  // namespace

const ProgramKernels& program = table;

}  // namespace wisp::cpu
