// From notes to fused programs.
//
// Notes of one shape that have operands in common go into one program, as long as whatever a note needs in another form (another
// shape, a view) was made by a program before. A reduction over the last dimension, and what is computed from its results row by
// row, belongs to the program of its operand. Values that nobody will see are neither kept nor, unless another note uses them, made.
#include <algorithm>
#include <cstring>

#include "tape.h"

namespace wisp::compile {

using kernels::Program;
using kernels::ProgramInput;
using kernels::ProgramStep;
using kernels::StepKind;

namespace {

constexpr size_t longest_program = 48;  // steps

// A kernel of the GPU takes so many arguments (kernels/program_arguments.h).
constexpr size_t cuda_steps = 24, cuda_inputs = 24, cuda_parameters = 8;

// The shape that a note is computed in: its dimensions from the largest stride to the smallest, without those of size 1.
struct Space {
    Dims sizes;
    Dims order;  // the dimensions of the note that these are

    Space(const Layout& layout, bool keep_last) {
        for (int64_t d = 0; d < layout.sizes.size(); d++)
            if (layout.sizes[d] != 1) order.push_back(d);
        if (!keep_last)
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return layout.strides[a] > layout.strides[b]; });
        for (int64_t d : order) sizes.push_back(layout.sizes[d]);
    }
    Dims strides_of(const Operand& o, const Dims& note_sizes) const {
        Dims r;
        if (o.kind == Operand::number) {
            r.resize(order.size());
            return r;
        }
        if (o.layout.sizes == note_sizes) {
            for (int64_t d : order) r.push_back(o.layout.strides[d]);
            return r;
        }
        const Dims all = broadcast_strides(o.layout.sizes, o.layout.strides, note_sizes);
        for (int64_t d : order) r.push_back(all[d]);
        return r;
    }
};

bool is_dense(const Dims& sizes, const Dims& strides, int64_t count) {
    int64_t step = 1;
    for (int64_t d = count - 1; d >= 0; d--) {
        if (strides[d] != step) return false;
        step *= sizes[d];
    }
    return true;
}

int64_t product_of(const Dims& sizes, int64_t count) {
    int64_t n = 1;
    for (int64_t d = 0; d < count; d++) n *= sizes[d];
    return n;
}

struct Group {
    Dims sizes;
    Device device;
    bool is_call = false;  // a reduction that is run as always
    kernels::ReduceArguments arguments{};
    std::vector<uint32_t> notes;
    Program program;
    std::vector<const Storage*> reads;
    struct Copy {
        uint32_t note;
        bool by_row;
        int value;
    };
    std::vector<Copy> copies;  // casts that were made again in it
};

struct Placed {
    int group = -1;
    int value = -1;  // in the program of its group
    bool by_row = false;
    char* kept = nullptr;  // where its value is
};

class Planner {
public:
    explicit Planner(std::vector<Note>& notes) : notes_(notes), placed_(notes.size()) {}
    ~Planner() {
        for (Storage* s : temporaries_) s->drop();
    }

    void run() {
        find_needed();
        find_repeated();
        for (uint32_t i = 0; i < notes_.size(); i++) {
            if (!needed_[i]) counts.dead++;
            else if (!repeated_[i]) place(i);
        }
        int64_t work = 0;
        for (Group& g : groups_) {
            // Steps hold the numbers of steps until the inputs are known.
            for (ProgramStep& s : g.program.steps)
                for (int k = 0; k < s.count; k++)
                    if (s.in[size_t(k)] >= first_step) s.in[size_t(k)] += int(g.program.inputs.size()) - first_step;
            if (g.is_call) {
                work += product(notes_[g.notes[0]].operands[0].layout.sizes);
                continue;
            }
            work += int64_t(g.program.steps.size()) * product_of(g.sizes, g.sizes.size());
            account(g);
        }
        OnDevice on(notes_.empty() ? Device{} : notes_[0].device);
        Unlocked unlocked(work);
        for (Group& g : groups_) {
            current_device_ = g.device;
            if (g.is_call) kernels::reduce().reduce(notes_[g.notes[0]].step.reduction, g.arguments);
            else kernels::program().run(g.program);
        }
    }

private:
    static constexpr int first_step = 1 << 20;

    void find_needed() {
        needed_.resize(notes_.size());
        for (size_t i = notes_.size(); i-- > 0;) {
            if (notes_[i].out) needed_[i] = true;
            if (!needed_[i]) continue;
            for (const Operand& o : notes_[i].operands)
                if (o.kind == Operand::noted) needed_[o.note] = true;
        }
    }

    // Casts of memory that nobody keeps, and that are used as they are: every program that needs one makes it.
    void find_repeated() {
        repeated_.resize(notes_.size());
        for (size_t i = 0; i < notes_.size(); i++) {
            const Note& n = notes_[i];
            repeated_[i] = n.step.kind == StepKind::cast && !n.out && n.operands[0].kind == Operand::memory;
            for (const Operand& o : n.operands)
                if (o.kind == Operand::noted && repeated_[o.note]) {
                    const Layout& made = notes_[o.note].layout;
                    repeated_[o.note] =
                        !n.reduced && o.layout.offset == 0 && o.layout.sizes == made.sizes && o.layout.strides == made.strides;
                }
        }
    }
    bool is_repeated(const Operand& o) const { return o.kind == Operand::noted && repeated_[o.note]; }

    // The value of a note as an operand that has these strides in the group's shape (of its rows, for a step by row); -1: not there.
    int value_in(int group, const Operand& o, const Dims& strides, bool by_row) const {
        const Placed& p = placed_[o.note];
        if (p.group != group || o.layout.offset != 0) return -1;
        const Dims& sizes = groups_[size_t(group)].sizes;
        const int64_t rows = sizes.size() - 1;
        if (by_row) return p.by_row && is_dense(sizes, strides, rows) ? p.value : -1;
        if (!p.by_row) return is_dense(sizes, strides, sizes.size()) ? p.value : -1;
        return strides[rows] == 0 && is_dense(sizes, strides, rows) ? p.value : -1;
    }

    static bool reads(const Group& g, const Storage* s) { return std::find(g.reads.begin(), g.reads.end(), s) != g.reads.end(); }
    static bool takes_parameters(const ProgramStep& s) { return s.has_params || s.kind == StepKind::reduce; }
    static bool has_room(const Group& g, const Note& n) {
        const Program& p = g.program;
        if (!g.device.is_cuda()) return p.steps.size() < longest_program;
        const size_t parameters = size_t(std::count_if(p.steps.begin(), p.steps.end(), takes_parameters));
        return p.steps.size() < cuda_steps && p.inputs.size() + size_t(n.step.count) <= cuda_inputs &&
               (parameters < cuda_parameters || !takes_parameters(n.step));
    }

    bool fits(int g, const Note& n, const Space& space, const Dims& operand_sizes, bool by_row) const {
        const Group& group = groups_[size_t(g)];
        if (group.is_call || !(group.device == n.device) || !has_room(group, n)) return false;
        if (by_row) {
            if (group.sizes.size() != space.sizes.size() + 1) return false;
            for (int64_t d = 0; d < space.sizes.size(); d++)
                if (group.sizes[d] != space.sizes[d]) return false;
        } else if (!(group.sizes == space.sizes)) {
            return false;
        }
        bool shares = false;
        for (int k = 0; k < n.step.count; k++) {
            const Operand& o = n.operands[k];
            if (is_repeated(o)) {
                shares |= !by_row && reads(group, notes_[o.note].operands[0].storage);
            } else if (o.kind == Operand::noted) {
                const bool here = value_in(g, o, space.strides_of(o, operand_sizes), by_row) >= 0;
                if (!here && placed_[o.note].group >= g) return false;
                shares |= here;
            } else if (o.kind == Operand::memory && !by_row) {
                shares |= reads(group, o.storage);
            }
        }
        return shares;
    }

    // A reduction over other dimensions than the last, after the programs that make its operand.
    void place_call(uint32_t i) {
        const Note& n = notes_[i];
        const Operand& o = n.operands[0];
        char* in = o.kind == Operand::noted ? kept(o.note) : static_cast<char*>(o.storage->address);
        Group& g = groups_.emplace_back();
        g.is_call = true;
        g.device = n.device;
        kernels::ReduceArguments& a = g.arguments;
        a.in = in + o.layout.offset * item_size(o.dtype);
        a.in_dtype = o.dtype;
        a.sizes = o.layout.sizes.data();
        a.strides = o.layout.strides.data();
        a.ndim = int(o.layout.sizes.size());
        a.reduced = n.reduced;
        a.out_dtype = n.step.result;
        a.divisor = n.step.divisor;
        g.notes.push_back(i);
        placed_[i].group = int(groups_.size()) - 1;
        a.out = placed_[i].kept = n.out ? static_cast<char*>(n.out->address) : temporary(n);
    }

    void place(uint32_t i) {
        if (notes_[i].reduced) return place_call(i);
        Note& n = notes_[i];
        const bool reduces = n.step.kind == StepKind::reduce;
        const Layout& shape = reduces ? n.operands[0].layout : n.layout;
        const Space space(shape, reduces);
        // A reduction takes a full operand. Anything else that uses the results of one is computed row by row, if it has their shape.
        int chosen = -1;
        bool by_row = false;
        for (int g = int(groups_.size()) - 1; g >= 0 && chosen < 0; g--) {
            if (fits(g, n, space, shape.sizes, false)) chosen = g;
            else if (!reduces && fits(g, n, space, shape.sizes, true)) chosen = g, by_row = true;
        }
        if (chosen < 0) {
            chosen = int(groups_.size());
            Group& g = groups_.emplace_back();
            g.sizes = g.program.sizes = space.sizes;
            g.device = n.device;
        }
        ProgramStep step = n.step;
        for (int k = 0; k < n.step.count; k++) step.in[size_t(k)] = operand(chosen, n.operands[k], space, shape.sizes, by_row);
        step.by_row = by_row || reduces;
        Placed& p = placed_[i];
        p.group = chosen;
        p.by_row = step.by_row;
        if (n.out) step.out = p.kept = static_cast<char*>(n.out->address);
        Group& g = groups_[size_t(chosen)];
        p.value = first_step + int(g.program.steps.size());
        g.program.steps.push_back(step);
        g.notes.push_back(i);
    }

    int operand(int group, const Operand& o, const Space& space, const Dims& sizes, bool by_row) {
        if (o.kind == Operand::absent) return -1;
        if (is_repeated(o)) return cast_again(group, o.note, space, sizes, by_row);
        Group& g = groups_[size_t(group)];
        ProgramInput input;
        input.dtype = o.dtype;
        input.strides = space.strides_of(o, sizes);
        if (o.kind == Operand::noted) {
            if (const int v = value_in(group, o, input.strides, by_row); v >= 0) return v;
            input.data = kept(o.note) + o.layout.offset * item_size(o.dtype);
        } else if (o.kind == Operand::memory) {
            input.data = static_cast<char*>(o.storage->address) + o.layout.offset * item_size(o.dtype);
            g.reads.push_back(o.storage);
        } else {
            std::memcpy(input.number, o.value, sizeof o.value);
        }
        if (by_row) input.strides.push_back(0);
        auto& inputs = g.program.inputs;
        for (size_t k = 0; k < inputs.size(); k++)
            if (inputs[k].data == input.data && inputs[k].dtype == input.dtype && inputs[k].strides == input.strides &&
                (input.data || !std::memcmp(inputs[k].number, input.number, sizeof input.number)))
                return int(k);
        inputs.push_back(input);
        return int(inputs.size()) - 1;
    }

    int cast_again(int group, uint32_t note, const Space& space, const Dims& sizes, bool by_row) {
        for (const Group::Copy& c : groups_[size_t(group)].copies)
            if (c.note == note && c.by_row == by_row) return c.value;
        ProgramStep step = notes_[note].step;
        step.in[0] = operand(group, notes_[note].operands[0], space, sizes, by_row);
        step.by_row = by_row;
        Group& g = groups_[size_t(group)];
        const int value = first_step + int(g.program.steps.size());
        g.program.steps.push_back(step);
        g.copies.push_back({note, by_row, value});
        return value;
    }

    // Where the value of a note of an earlier program is, in memory of our own if its tensor is gone.
    char* kept(uint32_t note) {
        Placed& p = placed_[note];
        if (!p.kept) {
            p.kept = temporary(notes_[note]);
            groups_[size_t(p.group)].program.steps[size_t(p.value - first_step)].out = p.kept;
        }
        return p.kept;
    }

    char* temporary(const Note& n) {
        temporaries_.push_back(Storage::make(size_t(product(n.layout.sizes) * item_size(n.step.result)), n.device));
        return static_cast<char*>(temporaries_.back()->address);
    }

    void account(const Group& g) {
        Fusion f;
        const int64_t all = product_of(g.sizes, g.sizes.size()), rows = g.sizes.empty() ? 1 : all / g.sizes.back();
        std::vector<int64_t> bytes;  // of each value
        for (const ProgramInput& x : g.program.inputs) {
            int64_t n = x.data ? item_size(x.dtype) : 0;
            for (int64_t d = 0; d < g.sizes.size() && n; d++)
                if (x.strides[d] != 0) n *= g.sizes[d];
            bytes.push_back(n);
            f.read += n;
        }
        for (const ProgramStep& s : g.program.steps) {
            bytes.push_back((s.by_row ? rows : all) * item_size(s.result));
            if (s.out) f.written += bytes.back();
            f.eager += bytes.back();
            for (int k = 0; k < s.count; k++)
                if (s.in[size_t(k)] >= 0) f.eager += bytes[size_t(s.in[size_t(k)])];
        }
        counts.programs++;
        counts.bytes += f.read + f.written;
        counts.eager_bytes += f.eager;
        if (!watcher) return;
        f.shape = text_of(g.sizes);
        for (const ProgramStep& s : g.program.steps) f.operators.push_back(name_of(s));
        watcher->push_back(std::move(f));
    }
    static std::string name_of(const ProgramStep& s) {
        switch (s.kind) {
        case StepKind::where: return "where";
        case StepKind::cast: return std::string("to ") + wisp::name_of(s.result);
        case StepKind::reduce: return s.reduction == kernels::Reduction::max ? "amax" : s.divisor != 1 ? "mean" : "sum";
        default: return std::string(pointwise_info(s.op).name) + (s.which ? "'" : "");
        }
    }

    std::vector<Note>& notes_;
    std::vector<Placed> placed_;
    std::vector<bool> needed_, repeated_;
    std::vector<Group> groups_;
    std::vector<Storage*> temporaries_;
};

}  // namespace

void run(std::vector<Note>& notes) {
    counts.runs++;
    Planner(notes).run();
}

}  // namespace wisp::compile
