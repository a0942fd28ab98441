// From notes to fused programs.
//
// Notes of one shape that have operands in common go into one program, as long as whatever a note needs in another form (another
// shape, a view) was made by a program before. A reduction over the last dimension, and what is computed from its results row by
// row, belongs to the program of its operand. Values that nobody will see are neither kept nor, unless another note uses them, made.
//
// What notes become depends on their structure alone: operators, dtypes, layouts, who uses what, and who is still seen. That is the key
// under which a plan is kept; addresses, numbers and parameters come from the notes of each run.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "tape.h"

namespace wisp::compile {

using kernels::Program;
using kernels::ProgramInput;
using kernels::ProgramStep;
using kernels::StepKind;

namespace {

constexpr size_t longest_program = 48;  // steps
constexpr size_t most_plans = 1024;     // more than that are begun anew: shapes that change with every step

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
    struct Source {
        uint32_t note;
        int operand;
    };
    Dims sizes;
    Device device;
    bool is_call = false;  // a reduction that is run as always
    uint32_t call = 0;     // the note of that
    Program program;
    std::vector<Source> sources;   // of the inputs
    std::vector<uint32_t> makers;  // the notes of the steps
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
    bool kept = false;  // its value is in memory when its group has run
};

// Some notes' programs, without the addresses.
struct Plan {
    std::vector<uint64_t> key;
    std::vector<Group> groups;
    std::vector<uint32_t> temporaries;  // notes whose values later programs need, though nobody sees them
    Counts counts;                      // of one run
    int64_t work = 0;
};

class Planner {
public:
    Planner(const std::vector<Note>& notes, Plan& plan)
        : notes_(notes), placed_(notes.size()), groups_(plan.groups), temporaries_(plan.temporaries) {
        find_needed();
        find_repeated();
        for (uint32_t i = 0; i < notes_.size(); i++) {
            if (!needed_[i]) plan.counts.dead++;
            else if (!repeated_[i]) place(i);
        }
        for (Group& g : groups_) {
            // Steps hold the numbers of steps until the inputs are known.
            for (ProgramStep& s : g.program.steps)
                for (int k = 0; k < s.count; k++)
                    if (s.in[size_t(k)] >= first_step) s.in[size_t(k)] += int(g.program.inputs.size()) - first_step;
            if (g.is_call) plan.work += product(notes_[g.call].operands[0].layout.sizes);
            else plan.work += int64_t(g.program.steps.size()) * product_of(g.sizes, g.sizes.size());
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
        if (n.operands[0].kind == Operand::noted) keep(n.operands[0].note);
        Group& g = groups_.emplace_back();
        g.is_call = true;
        g.call = i;
        g.device = n.device;
        placed_[i].group = int(groups_.size()) - 1;
        placed_[i].kept = true;
        if (!n.out) temporaries_.push_back(i);
    }

    void place(uint32_t i) {
        if (notes_[i].reduced) return place_call(i);
        const Note& n = notes_[i];
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
        for (int k = 0; k < n.step.count; k++) step.in[size_t(k)] = operand(chosen, i, k, space, shape.sizes, by_row);
        step.by_row = by_row || reduces;
        Placed& p = placed_[i];
        p.group = chosen;
        p.by_row = step.by_row;
        p.kept = n.out != nullptr;
        Group& g = groups_[size_t(chosen)];
        p.value = first_step + int(g.program.steps.size());
        g.program.steps.push_back(step);
        g.makers.push_back(i);
    }

    int operand(int group, uint32_t note, int number, const Space& space, const Dims& sizes, bool by_row) {
        const Operand& o = notes_[note].operands[number];
        if (o.kind == Operand::absent) return -1;
        if (is_repeated(o)) return cast_again(group, o.note, space, sizes, by_row);
        ProgramInput input;
        input.dtype = o.dtype;
        input.strides = space.strides_of(o, sizes);
        if (o.kind == Operand::noted) {
            if (const int v = value_in(group, o, input.strides, by_row); v >= 0) return v;
            keep(o.note);
        }
        Group& g = groups_[size_t(group)];
        if (o.kind == Operand::memory) g.reads.push_back(o.storage);
        if (by_row) input.strides.push_back(0);
        auto& inputs = g.program.inputs;
        for (size_t k = 0; k < inputs.size(); k++)
            if (inputs[k].strides == input.strides && is_same(o, notes_[g.sources[k].note].operands[g.sources[k].operand])) return int(k);
        inputs.push_back(input);
        g.sources.push_back({note, number});
        return int(inputs.size()) - 1;
    }
    static bool is_same(const Operand& a, const Operand& b) {
        if (a.kind != b.kind || a.dtype != b.dtype) return false;
        if (a.kind == Operand::number) return !std::memcmp(a.value, b.value, sizeof a.value);
        return a.storage == b.storage && a.note == b.note && a.layout.offset == b.layout.offset;
    }

    int cast_again(int group, uint32_t note, const Space& space, const Dims& sizes, bool by_row) {
        for (const Group::Copy& c : groups_[size_t(group)].copies)
            if (c.note == note && c.by_row == by_row) return c.value;
        ProgramStep step = notes_[note].step;
        step.in[0] = operand(group, note, 0, space, sizes, by_row);
        step.by_row = by_row;
        Group& g = groups_[size_t(group)];
        const int value = first_step + int(g.program.steps.size());
        g.program.steps.push_back(step);
        g.makers.push_back(note);
        g.copies.push_back({note, by_row, value});
        return value;
    }

    // The value of a note of an earlier program is needed, in memory of our own if its tensor is gone.
    void keep(uint32_t note) {
        if (placed_[note].kept) return;
        placed_[note].kept = true;
        temporaries_.push_back(note);
    }

    const std::vector<Note>& notes_;
    std::vector<Placed> placed_;
    std::vector<bool> needed_, repeated_;
    std::vector<Group>& groups_;
    std::vector<uint32_t>& temporaries_;
};

std::string name_of(const ProgramStep& s) {
    switch (s.kind) {
    case StepKind::where: return "where";
    case StepKind::cast: return std::string("to ") + wisp::name_of(s.result);
    case StepKind::reduce: return s.reduction == kernels::Reduction::max ? "amax" : s.divisor != 1 ? "mean" : "sum";
    default: return std::string(pointwise_info(s.op).name) + (s.which ? "'" : "");
    }
}

// "v2 = mul(x0, v1)", for people.
std::string step_text(const Program& p, size_t number) {
    const ProgramStep& s = p.steps[number];
    const auto name = [&](size_t value) { return value < p.inputs.size() ? str("x", value) : str("v", value - p.inputs.size()); };
    std::string text = str("v", number, " = ", name_of(s), "(");
    const char* before = "";
    for (int k = 0; k < s.count; k++) {
        if (s.in[size_t(k)] < 0) continue;
        text += before + name(size_t(s.in[size_t(k)]));
        before = ", ";
    }
    return str(text, "): ", wisp::name_of(s.result), s.by_row ? ", one for each row" : "", s.out ? ", kept" : "");
}

// What a program moves, once it knows where its steps are kept.
Fusion fusion_of(const Group& g) {
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
    f.shape = text_of(g.sizes);
    for (const ProgramStep& s : g.program.steps) f.operators.push_back(name_of(s));
    if (!watcher) return f;
    for (size_t i = 0; i < g.program.inputs.size(); i++) {
        const ProgramInput& x = g.program.inputs[i];
        f.steps.push_back(str("x", i, x.data ? ": " : ": a number, ", wisp::name_of(x.dtype), x.data ? str(", ", bytes[i], " bytes") : ""));
    }
    for (size_t i = 0; i < g.program.steps.size(); i++) f.steps.push_back(step_text(g.program, i));
    f.asked = asked;
    return f;
}

// Everything about the notes that a plan depends on, in words.
void write_key(const std::vector<Note>& notes, std::vector<uint64_t>& key) {
    static std::vector<const Storage*> storages;  // a storage is known by its place in here, as are numbers, of which equal ones are one
    static std::vector<const Operand*> numbers;
    storages.clear();
    numbers.clear();
    key.clear();
    auto layout = [&](const Layout& l) {
        key.push_back(uint64_t(l.offset));
        key.push_back(uint64_t(l.sizes.size()));
        key.insert(key.end(), l.sizes.begin(), l.sizes.end());
        key.insert(key.end(), l.strides.begin(), l.strides.end());
    };
    auto place = [](auto& seen, const auto& same, auto item) {
        size_t i = seen.size();
        while (i > 0 && !same(seen[i - 1])) i--;
        if (i == 0) seen.push_back(item), i = seen.size();
        return uint64_t(i);
    };
    for (const Note& n : notes) {
        const ProgramStep& s = n.step;
        const uint64_t facts = uint64_t(s.kind) | uint64_t(uint8_t(s.which)) << 4 | uint64_t(s.compute) << 12 | uint64_t(s.block) << 20 |
                               uint64_t(s.result) << 28 | uint64_t(s.count) << 36 | uint64_t(s.has_params) << 40 |
                               uint64_t(s.reduction) << 41 | uint64_t(n.out != nullptr) << 49;
        uint64_t divisor;
        std::memcpy(&divisor, &s.divisor, sizeof divisor);
        key.insert(key.end(), {facts, uint64_t(s.op), divisor, n.reduced, uint64_t(n.device.type) << 32 | uint32_t(n.device.index)});
        layout(n.layout);
        for (int k = 0; k < s.count; k++) {
            const Operand& o = n.operands[k];
            uint64_t which = 0;
            if (o.kind == Operand::noted) which = o.note;
            if (o.kind == Operand::memory) which = place(storages, [&](const Storage* x) { return x == o.storage; }, o.storage);
            if (o.kind == Operand::number)
                which = place(
                    numbers, [&](const Operand* x) { return x->dtype == o.dtype && !std::memcmp(x->value, o.value, sizeof o.value); }, &o);
            key.push_back(uint64_t(o.kind) | uint64_t(o.dtype) << 8 | which << 16);
            if (o.kind == Operand::noted || o.kind == Operand::memory) layout(o.layout);
        }
    }
}

uint64_t hash_of(const std::vector<uint64_t>& key) {
    uint64_t h = key.size();
    for (uint64_t word : key) {
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

// The plan of a run is used by nobody else: runs come one after another (`running` in tape.cpp).
Plan& plan_for(const std::vector<Note>& notes) {
    static std::unordered_map<uint64_t, std::unique_ptr<Plan>> plans;
    static std::vector<uint64_t> key;
    write_key(notes, key);
    const uint64_t hash = hash_of(key);
    if (const auto found = plans.find(hash); found != plans.end() && found->second->key == key) return *found->second;
    if (plans.size() >= most_plans) plans.clear();
    auto made = std::make_unique<Plan>();
    made->key = key;
    Planner(notes, *made);
    compile::counts.plans++;
    return *(plans[hash] = std::move(made));
}

// Memory for values that only programs of this run see.
class Temporaries {
public:
    Temporaries(const std::vector<Note>& notes, const Plan& plan) : notes_(notes), plan_(plan) {
        for (uint32_t i : plan.temporaries) {
            const Note& n = notes[i];
            made_.push_back(Storage::make(size_t(product(n.layout.sizes) * item_size(n.step.result)), n.device));
        }
    }
    Temporaries(const Temporaries&) = delete;
    ~Temporaries() {
        for (Storage* s : made_) s->drop();
    }
    // Where the value of a note is kept, if it is.
    char* operator()(uint32_t note) const {
        if (notes_[note].out) return static_cast<char*>(notes_[note].out->address);
        for (size_t i = 0; i < made_.size(); i++)
            if (plan_.temporaries[i] == note) return static_cast<char*>(made_[i]->address);
        return nullptr;
    }

private:
    const std::vector<Note>& notes_;
    const Plan& plan_;
    std::vector<Storage*> made_;
};

char* address_of(const Operand& o, const Temporaries& kept) {
    char* base = o.kind == Operand::noted ? kept(o.note) : static_cast<char*>(o.storage->address);
    return base + o.layout.offset * item_size(o.dtype);
}

// Gives a plan the memory, the numbers and the parameters of a run.
void bind(Group& g, const std::vector<Note>& notes, const Temporaries& kept) {
    for (size_t k = 0; k < g.sources.size(); k++) {
        const Operand& o = notes[g.sources[k].note].operands[g.sources[k].operand];
        ProgramInput& input = g.program.inputs[k];
        if (o.kind == Operand::number) std::memcpy(input.number, o.value, sizeof o.value);
        else input.data = address_of(o, kept);
    }
    for (size_t k = 0; k < g.makers.size(); k++) {
        ProgramStep& s = g.program.steps[k];
        s.out = kept(g.makers[k]);
        if (s.has_params) s.params = notes[g.makers[k]].step.params;
    }
}

void reduce(const Note& n, char* out, const Temporaries& kept) {
    const Operand& o = n.operands[0];
    kernels::ReduceArguments a{};
    a.in = address_of(o, kept);
    a.in_dtype = o.dtype;
    a.sizes = o.layout.sizes.data();
    a.strides = o.layout.strides.data();
    a.ndim = int(o.layout.sizes.size());
    a.reduced = n.reduced;
    a.out = out;
    a.out_dtype = n.step.result;
    a.divisor = n.step.divisor;
    kernels::reduce().reduce(n.step.reduction, a);
}

}  // namespace

void run(std::vector<Note>& notes) {
    Plan& plan = plan_for(notes);
    const Temporaries kept(notes, plan);
    size_t watched = watcher ? watcher->size() : 0;
    for (Group& g : plan.groups) bind(g, notes, kept);
    if (watcher || plan.counts.runs == 0) {
        Counts& once = plan.counts;
        once.runs = 1;
        once.programs = once.bytes = once.eager_bytes = 0;
        for (const Group& g : plan.groups) {
            if (g.is_call) continue;
            Fusion f = fusion_of(g);
            once.programs++;
            once.bytes += f.read + f.written;
            once.eager_bytes += f.eager;
            if (watcher) watcher->push_back(std::move(f));
        }
    }
    counts.runs++;
    counts.dead += plan.counts.dead;
    counts.programs += plan.counts.programs;
    counts.bytes += plan.counts.bytes;
    counts.eager_bytes += plan.counts.eager_bytes;
    OnDevice on(notes.empty() ? Device{} : notes[0].device);
    Unlocked unlocked(plan.work);
    for (Group& g : plan.groups) {
        current_device_ = g.device;
        if (g.is_call) {
            reduce(notes[g.call], kept(g.call), kept);
            continue;
        }
        const auto start = watcher ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
        kernels::program().run(g.program);
        if (!watcher) continue;
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        (*watcher)[watched++].seconds = g.device.is_cuda() ? 0 : taken.count();
    }
}

}  // namespace wisp::compile
