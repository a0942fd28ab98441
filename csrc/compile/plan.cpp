// Plans of notes, kept by structure, and their runs.
//
// What notes become depends on their structure alone: operators, dtypes, layouts, who uses what, and who is still seen. That is the key
// under which a plan is kept; addresses, numbers and parameters come from the notes of each run.
#include "plan.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <unordered_map>

namespace wisp::compile {

using kernels::Program;
using kernels::ProgramInput;
using kernels::ProgramStep;
using kernels::StepKind;

namespace {

constexpr size_t most_plans = 1024;  // more than that are begun anew: shapes that change with every step

std::string name_of(const ProgramStep& s) {
    switch (s.kind) {
    case StepKind::where: return "where";
    case StepKind::cast: return std::string("to ") + wisp::name_of(s.result);
    case StepKind::join: return "cat";
    case StepKind::dropout: return "dropout";
    case StepKind::columns: return "sum of rows";
    case StepKind::loss: return "cross_entropy'";
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
    const int64_t all = product(g.sizes), rows = g.sizes.empty() ? 1 : all / g.sizes.back();
    std::vector<int64_t> bytes;  // of each value
    for (const ProgramInput& x : g.program.inputs) {
        int64_t n = x.data ? item_size(x.dtype) : 0;
        for (int64_t d = 0; d < g.sizes.size() && n; d++)
            if (x.strides[d] != 0) n *= g.sizes[d];
        bytes.push_back(n);
        f.read += n;
    }
    for (const ProgramStep& s : g.program.steps) {
        bytes.push_back((s.kind == StepKind::columns ? g.sizes.back() : s.by_row ? rows : all) * item_size(s.result));
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
                               uint64_t(s.reduction) << 41 | uint64_t(n.out != nullptr) << 49 | uint64_t(s.axis) << 50 |
                               uint64_t(n.again) << 58;
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
    fuse(notes, *made);
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

char* address_of(const Operand& o, const Temporaries& kept, int64_t begin = 0) {
    char* base = o.kind == Operand::noted ? kept(o.note) : static_cast<char*>(o.storage->address);
    return base + (o.layout.offset + begin) * item_size(o.dtype);
}

// Gives a plan the memory, the numbers and the parameters of a run.
void bind(Group& g, const std::vector<Note>& notes, const Temporaries& kept) {
    for (size_t k = 0; k < g.sources.size(); k++) {
        const Operand& o = notes[g.sources[k].note].operands[g.sources[k].operand];
        ProgramInput& input = g.program.inputs[k];
        if (o.kind == Operand::number) std::memcpy(input.number, o.value, sizeof o.value);
        else input.data = address_of(o, kept, g.sources[k].begin);
    }
    for (size_t k = 0; k < g.makers.size(); k++) {
        ProgramStep& s = g.program.steps[k];
        s.out = g.inlined[k] ? nullptr : kept(g.makers[k]);
        if (s.has_params) s.params = notes[g.makers[k]].step.params;
    }
}

void call(const Group& g, const std::vector<Note>& notes, const Temporaries& kept) {
    const Note& n = notes[g.call];
    char* operands[ProgramStep::most] = {};
    for (int k = 0; k < n.step.count; k++) operands[k] = address_of(n.operands[k], kept);
    run_call(n, operands, notes[g.made].step.result, kept(g.made));
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
    for (size_t i = 0; i < plan.groups.size(); i++) {
        Group& g = plan.groups[i];
        current_device_ = g.device;
        if (g.is_call) {
            call(g, notes, kept);
            continue;
        }
        if (!watcher && i + 1 < plan.groups.size() && plan.groups[i + 1].beside_last) {
            kernels::program().run_both(g.program, plan.groups[++i].program);
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
