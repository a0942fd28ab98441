// From notes to fused programs.
//
// Notes of one shape that have operands in common go into one program, as long as whatever a note needs in another form (another
// shape, a view) was made by a program before. A reduction over the last dimension, and what is computed from its results row by
// row, belongs to the program of its operand; on a GPU so does a sum of all rows. Values that nobody will see are neither kept nor,
// unless another note uses them, made.
#include <algorithm>
#include <cstring>
#include <optional>

#include "plan.h"

namespace wisp::compile {

using kernels::Program;
using kernels::ProgramInput;
using kernels::ProgramStep;
using kernels::StepKind;

namespace {

constexpr size_t longest_program = 48;  // steps

// A kernel of the GPU takes so many arguments (kernels/program_arguments.h).
constexpr size_t cuda_steps = 32, cuda_inputs = 24, cuda_parameters = 8;
constexpr int64_t most_column = 4096;                          // elements of a row whose columns a block adds up
constexpr size_t inlined_inputs = 20, inlined_parameters = 6;  // of a note with what it brings along

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

// How a note is seen from the space of a program: its index along a dimension is where it begins there, and that of the space's
// dimension which goes along it, if there is one. Parts of joined tensors are seen in a window of one dimension.
struct View {
    Dims along;  // for each dimension of the space one of the note, or -1
    Dims begin;  // for each dimension of the note
    int axis = -1;
    int64_t from = 0, to = 0;  // of the space's dimension `axis`

    View(const Space& space, const Layout& layout) : along(space.order) { begin.resize(layout.sizes.size()); }
    bool operator==(const View& o) const { return along == o.along && begin == o.begin && axis == o.axis && from == o.from && to == o.to; }
};

bool is_dense(const Dims& sizes, const Dims& strides, int64_t count) {
    int64_t step = 1;
    for (int64_t d = count - 1; d >= 0; d--) {
        if (strides[d] != step) return false;
        step *= sizes[d];
    }
    return true;
}

// Dimensions of size 1 aside, which let it be broadcast.
bool is_same_but_for_ones(const Layout& a, const Layout& b) {
    int64_t i = 0, j = 0;
    for (;; i++, j++) {
        while (i < a.sizes.size() && a.sizes[i] == 1) i++;
        while (j < b.sizes.size() && b.sizes[j] == 1) j++;
        if (i == a.sizes.size() || j == b.sizes.size()) return i == a.sizes.size() && j == b.sizes.size();
        if (a.sizes[i] != b.sizes[j] || a.strides[i] != b.strides[j]) return false;
    }
}

// A group that may still get more.
struct Draft : Group {
    struct Copy {
        uint32_t note;
        bool by_row;
        View view;
        int value;
    };
    std::vector<const Storage*> reads;
    std::vector<Copy> copies;  // values that were made in it, though they are no steps of its own
    bool has_rows = false, has_windows = false;
    bool is_merged = false;  // into another, and empty
};

struct Placed {
    int group = -1;
    int value = -1;  // in the program of its group
    bool by_row = false;
    bool kept = false;  // its value is in memory when its group has run
};

class Planner {
public:
    Planner(const std::vector<Note>& notes, Plan& plan) : notes_(notes), placed_(notes.size()), temporaries_(plan.temporaries) {
        find_needed();
        find_inlined();
        for (uint32_t i = 0; i < notes_.size(); i++) {
            if (!needed_[i]) plan.counts.dead++;
            else if (!inlined_[i] && placed_[i].group < 0) place(i);
        }
        int last = -1;  // the group before
        for (size_t i = 0; i < groups_.size(); i++) {
            Draft& g = groups_[i];
            if (g.is_merged) continue;
            g.beside_last = last >= 0 && is_beside(groups_[size_t(last)], g, last);
            last = int(i);
            // Steps hold the numbers of steps until the inputs are known.
            for (ProgramStep& s : g.program.steps)
                for (int k = 0; k < s.count; k++)
                    if (s.in[size_t(k)] >= first_step) s.in[size_t(k)] += int(g.program.inputs.size()) - first_step;
            if (g.is_call) plan.work += product(notes_[g.call].operands[0].layout.sizes);
            else plan.work += int64_t(g.program.steps.size()) * product(g.sizes);
            plan.groups.push_back(std::move(g));
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

    // Whether two programs of a GPU may run at once; `number` is that of the first.
    bool is_beside(const Draft& first, const Draft& second, int number) const {
        if (first.is_call || second.is_call || !second.device.is_cuda() || !(first.device == second.device)) return false;
        return std::none_of(second.sources.begin(), second.sources.end(), [&](const Group::Source& s) {
            const Operand& o = notes_[s.note].operands[s.operand];
            return o.kind == Operand::noted && placed_[o.note].group == number;
        });
    }

    // Values that nobody keeps, and that every program which needs one makes for itself: casts of memory and what is made again,
    // and, on a GPU, what is used in another form only, joined with others, sliced, or with its dimensions in another order.
    void find_inlined() {
        inlined_.resize(notes_.size());
        std::vector<int> uses(notes_.size());
        std::vector<bool> used_as_made(notes_.size(), true), used_elsewhere(notes_.size(), true);
        std::vector<int> reads(notes_.size());  // tensors that its maker reads, at most
        for (size_t i = 0; i < notes_.size(); i++)
            for (const Operand& o : notes_[i].operands)
                reads[i] += o.kind == Operand::memory ? 1 : o.kind == Operand::noted ? reads[o.note] : 0;
        for (size_t i = notes_.size(); i-- > 0;) {
            const Note& n = notes_[i];
            if (!needed_[i]) continue;
            if (!n.out && !is_call(n) && n.step.kind != StepKind::reduce && n.step.kind != StepKind::dropout) {
                const bool again = (n.step.kind == StepKind::cast && n.operands[0].kind == Operand::memory) || (n.again && reads[i] <= 2);
                inlined_[i] = (again && used_as_made[i]) ||
                              (n.device.is_cuda() && used_elsewhere[i] && (uses[i] == 1 || (uses[i] == 2 && reads[i] <= 2)));
            }
            for (const Operand& o : n.operands) {
                if (o.kind != Operand::noted) continue;
                const Layout& made = notes_[o.note].layout;
                uses[o.note]++;
                if (is_call(n) || o.layout.offset || !is_same_but_for_ones(o.layout, made)) used_as_made[o.note] = false;
                if (!is_elsewhere(n, o, inlined_[i])) used_elsewhere[o.note] = false;
            }
        }
    }
    // Whether a note uses another's value in a form that its program would not have.
    bool is_elsewhere(const Note& n, const Operand& o, bool inlined) const {
        if (is_call(n) || n.step.kind == StepKind::reduce || product(o.layout.sizes) > product(notes_[o.note].layout.sizes)) return false;
        if (n.step.kind == StepKind::join) return true;
        if (!(o.layout.sizes == n.layout.sizes)) return false;  // made once rather than for every row
        const Space space(n.layout, false);
        const Dims strides = space.strides_of(o, n.layout.sizes);
        if (!strides.empty() && strides[strides.size() - 1] != 1) return false;  // neighbours are to stay neighbours
        return inlined || o.layout.offset || !is_dense(space.sizes, strides, space.sizes.size());
    }
    bool is_inlined(const Operand& o) const { return o.kind == Operand::noted && inlined_[o.note]; }

    // How the maker of operand `o` is seen where the note that uses it, of these sizes, is seen as `v`.
    std::optional<View> view_through(const Operand& o, const Dims& sizes, const View& v) const {
        const Layout& made = notes_[o.note].layout;
        View r = v;
        r.begin = Dims();
        r.begin.resize(made.sizes.size());
        int64_t rest = o.layout.offset;
        for (int64_t k : Space(made, false).order) {
            r.begin[k] = rest / made.strides[k];
            rest %= made.strides[k];
        }
        if (rest) return {};
        Dims of;  // the dimension of the maker for each of the operand
        const int64_t missing = sizes.size() - o.layout.sizes.size();
        for (int64_t j = 0; j < o.layout.sizes.size(); j++) {
            of.push_back(-1);
            const int64_t size = o.layout.sizes[j], stride = o.layout.strides[j];
            if (size == 1 || stride == 0) continue;
            for (int64_t k = 0; k < made.sizes.size(); k++)
                if (made.sizes[k] > 1 && made.strides[k] == stride) of[j] = k;
            if (of[j] < 0 || r.begin[of[j]] + size > made.sizes[of[j]]) return {};
            for (int64_t i = 0; i < j; i++)
                if (of[i] == of[j]) return {};
            r.begin[of[j]] += v.begin[j + missing];
        }
        for (int64_t s = 0; s < v.along.size(); s++) {
            const int64_t j = v.along[s] - missing;
            r.along[s] = v.along[s] < 0 || j < 0 ? -1 : of[j];
        }
        if (r.axis >= 0 && r.along[r.axis] < 0) r.axis = -1, r.from = r.to = 0;
        return r;
    }
    // The same for a part of a joined tensor that is seen as `v`.
    static std::optional<View> view_of_part(const Note& n, int part, const View& v) {
        const int64_t dim = n.step.axis;
        View r = v;
        int axis = -1;
        for (int64_t s = 0; s < v.along.size(); s++)
            if (v.along[s] == dim) axis = int(s);
        if (axis < 0 || (v.axis >= 0 && v.axis != axis)) return {};
        int64_t start = 0;
        for (int k = 0; k < part; k++) start += n.operands[k].layout.sizes[dim];
        r.begin[dim] -= start;
        r.from = start - v.begin[dim];
        r.to = r.from + n.operands[part].layout.sizes[dim];
        if (v.axis == axis) r.from = std::max(r.from, v.from), r.to = std::min(r.to, v.to);
        r.axis = axis;
        return r;
    }
    // What operand `number` of a note is seen as, and the sizes that it is spread to; nothing: not in this program.
    std::optional<View> view_of(uint32_t note, int number, const View& v, Dims& sizes) const {
        const Note& n = notes_[note];
        std::optional<View> r = v;
        if (n.step.kind == StepKind::join) {
            r = view_of_part(n, number, v);
            sizes = n.operands[number].layout.sizes;
        }
        return r;
    }

    // What a note brings into a group.
    struct Load {
        size_t steps = 0, inputs = 0, parameters = 0;
        bool shares = false, has_windows = false;

        void add(const ProgramStep& s) { steps++, parameters += takes_parameters(s); }
    };
    static bool takes_parameters(const ProgramStep& s) { return s.has_params || s.kind == StepKind::reduce; }

    // Places inlined operands that can't be seen from the note after all, or that would make its program too large.
    void prepare(uint32_t note, const View& v, const Dims& note_sizes, Load& load) {
        const Note& n = notes_[note];
        load.add(n.step);
        load.inputs += size_t(n.step.count);
        for (int k = 0; k < n.step.count; k++) {
            const Operand& o = n.operands[k];
            if (!is_inlined(o)) continue;
            Dims sizes = note_sizes;
            const std::optional<View> mine = view_of(note, k, v, sizes);
            const std::optional<View> through = mine ? view_through(o, sizes, *mine) : std::nullopt;
            const Note& maker = notes_[o.note];
            const bool joins = maker.step.kind == StepKind::join;
            if (through && (!joins || view_of_part(maker, 0, *through)) && load.inputs + size_t(maker.step.count) <= inlined_inputs &&
                load.parameters + takes_parameters(maker.step) <= inlined_parameters) {
                prepare(o.note, *through, maker.layout.sizes, load);
            } else {
                inlined_[o.note] = false;
                place(o.note);
            }
        }
    }

    // The value of a note as an operand that has these strides in the group's shape (of its rows, for a step by row) and begins so many
    // elements behind the note's first; -1: not there.
    int value_in(int group, const Operand& o, int64_t begin, const Dims& strides, bool by_row) const {
        const Placed& p = placed_[o.note];
        if (p.group != group || begin != 0) return -1;
        const Dims& sizes = groups_[size_t(group)].sizes;
        const int64_t rows = sizes.size() - 1;
        if (by_row) return p.by_row && is_dense(sizes, strides, rows) ? p.value : -1;
        if (!p.by_row) return is_dense(sizes, strides, sizes.size()) ? p.value : -1;
        return strides[rows] == 0 && is_dense(sizes, strides, rows) ? p.value : -1;
    }

    // An operand in memory, seen from the space: where it begins behind its own offset, and its strides.
    struct Seen {
        int64_t begin = 0;
        Dims strides;
    };
    static Seen seen(const Operand& o, const View& v, const Dims& sizes) {
        Seen r;
        if (o.kind == Operand::number) {
            r.strides.resize(v.along.size());
            return r;
        }
        const Dims all = broadcast_strides(o.layout.sizes, o.layout.strides, sizes);
        for (int64_t k = 0; k < all.size(); k++) r.begin += v.begin[k] * all[k];
        for (int64_t dim : v.along) r.strides.push_back(dim < 0 ? 0 : all[dim]);
        return r;
    }

    static bool reads(const Draft& g, const Storage* s) { return std::find(g.reads.begin(), g.reads.end(), s) != g.reads.end(); }

    // False: it needs a value that the group has not, and comes before.
    bool weigh(int g, uint32_t note, const View& v, const Dims& note_sizes, bool by_row, Load& load) const {
        const Note& n = notes_[note];
        const Draft& group = groups_[size_t(g)];
        load.add(n.step);
        for (int k = 0; k < n.step.count; k++) {
            const Operand& o = n.operands[k];
            if (o.kind == Operand::absent) continue;
            Dims sizes = note_sizes;
            const View mine = *view_of(note, k, v, sizes);
            if (is_inlined(o)) {
                if (!weigh(g, o.note, *view_through(o, sizes, mine), notes_[o.note].layout.sizes, by_row, load)) return false;
                continue;
            }
            const Seen at = seen(o, mine, sizes);
            load.has_windows |= mine.axis >= 0;
            if (o.kind == Operand::noted) {
                const bool here = value_in(g, o, o.layout.offset + at.begin, at.strides, by_row) >= 0;
                if (!here && placed_[o.note].group >= g) return false;
                load.shares |= here;
                load.inputs += !here;
                continue;
            }
            load.inputs++;
            if (o.kind == Operand::memory && !by_row) load.shares |= reads(group, o.storage);
        }
        return true;
    }

    bool fits(int g, uint32_t note, const Space& space, const View& view, const Dims& operand_sizes, bool by_row) const {
        const Draft& group = groups_[size_t(g)];
        const Note& n = notes_[note];
        if (group.is_call || group.is_merged || !(group.device == n.device)) return false;
        if (by_row) {
            if (n.step.kind == StepKind::dropout) return false;  // its numbers are those of elements
            if (group.sizes.size() != space.sizes.size() + 1) return false;
            for (int64_t d = 0; d < space.sizes.size(); d++)
                if (group.sizes[d] != space.sizes[d]) return false;
        } else if (!(group.sizes == space.sizes)) {
            return false;
        }
        Load load;
        if (!weigh(g, note, view, operand_sizes, by_row, load) || !load.shares) return false;
        const bool rows = by_row || (n.step.kind == StepKind::reduce && !n.reduced);
        if ((rows && group.has_windows) || (load.has_windows && (rows || group.has_rows))) return false;
        const Program& p = group.program;
        if (!group.device.is_cuda()) return p.steps.size() + load.steps <= longest_program;
        const size_t parameters = size_t(std::count_if(p.steps.begin(), p.steps.end(), takes_parameters));
        return p.steps.size() + load.steps <= cuda_steps && p.inputs.size() + load.inputs <= cuda_inputs &&
               parameters + load.parameters <= cuda_parameters;
    }

    // On a GPU: groups of which a note needs values in the form that it has itself become one, the first of them, where nothing that
    // the later ones need comes in between.
    void merge_for(uint32_t note, const Space& space, const View& view, const Dims& operand_sizes) {
        const Note& n = notes_[note];
        if (!n.device.is_cuda() || n.step.kind == StepKind::join) return;
        std::vector<int> groups;
        for (int k = 0; k < n.step.count; k++) {
            const Operand& o = n.operands[k];
            if (o.kind != Operand::noted || is_inlined(o)) continue;
            const int g = placed_[o.note].group;
            if (!(groups_[size_t(g)].sizes == space.sizes)) continue;
            const Seen at = seen(o, view, operand_sizes);
            if (value_in(g, o, o.layout.offset + at.begin, at.strides, false) >= 0) groups.push_back(g);
        }
        std::sort(groups.begin(), groups.end());
        for (size_t k = 1; k < groups.size(); k++)
            if (groups[k] != groups[0]) merge(groups[0], groups[k]);
    }
    void merge(int to, int from) {
        Draft &a = groups_[size_t(to)], &b = groups_[size_t(from)];
        if (a.is_call || b.is_call || !(a.device == b.device) || !(a.sizes == b.sizes)) return;
        if ((a.has_windows || b.has_windows) && (a.has_rows || b.has_rows)) return;
        Program &p = a.program, &q = b.program;
        const auto parameters = [](const Program& x) { return size_t(std::count_if(x.steps.begin(), x.steps.end(), takes_parameters)); };
        if (p.steps.size() + q.steps.size() > cuda_steps || p.inputs.size() + q.inputs.size() > cuda_inputs ||
            parameters(p) + parameters(q) > cuda_parameters)
            return;
        for (const Group::Source& s : b.sources) {
            const Operand& o = notes_[s.note].operands[s.operand];
            if (o.kind == Operand::noted && placed_[o.note].group >= to) return;
        }
        const int steps = int(p.steps.size());
        std::vector<int> inputs;  // where those of `from` are
        for (size_t k = 0; k < q.inputs.size(); k++) inputs.push_back(input_of(a, q.inputs[k], b.sources[k]));
        for (ProgramStep& s : q.steps) {
            for (int k = 0; k < s.count; k++)
                if (int& in = s.in[size_t(k)]; in >= first_step) in += steps;
                else if (in >= 0) in = inputs[size_t(in)];
            p.steps.push_back(s);
        }
        a.makers.insert(a.makers.end(), b.makers.begin(), b.makers.end());
        a.inlined.insert(a.inlined.end(), b.inlined.begin(), b.inlined.end());
        a.reads.insert(a.reads.end(), b.reads.begin(), b.reads.end());
        for (Draft::Copy& c : b.copies) {
            c.value += steps;
            a.copies.push_back(std::move(c));
        }
        a.has_rows |= b.has_rows;
        a.has_windows |= b.has_windows;
        for (Placed& x : placed_)
            if (x.group == from) x.group = to, x.value += x.value >= 0 ? steps : 0;
        b = Draft();
        b.is_merged = true;
    }
    // The number of an input of a group, which gets it if it has none like it.
    int input_of(Draft& g, const ProgramInput& input, const Group::Source& source) {
        const Operand& o = notes_[source.note].operands[source.operand];
        auto& inputs = g.program.inputs;
        for (size_t k = 0; k < inputs.size(); k++) {
            const ProgramInput& x = inputs[k];
            const Group::Source& from = g.sources[k];
            if (x.strides == input.strides && x.axis == input.axis && x.from == input.from && x.to == input.to &&
                from.begin == source.begin && is_same(o, notes_[from.note].operands[from.operand]))
                return int(k);
        }
        inputs.push_back(input);
        g.sources.push_back(source);
        return int(inputs.size()) - 1;
    }

    // What is run as always, after the programs that make its operands.
    void place_call(uint32_t i) {
        const Note& n = notes_[i];
        for (const Operand& o : n.operands)
            if (o.kind == Operand::noted) keep(o.note);
        Draft& g = groups_.emplace_back();
        g.is_call = true;
        g.call = i;
        g.made = narrow_copy(i).value_or(i);
        g.device = n.device;
        for (uint32_t note : {g.call, g.made}) placed_[note].group = int(groups_.size()) - 1;
        placed_[g.made].kept = true;
        if (!notes_[g.made].out) temporaries_.push_back(g.made);
    }
    // The cast of a loss's gradient back to the halves that it is a gradient of, if nobody wants anything else: the kernel rounds it.
    std::optional<uint32_t> narrow_copy(uint32_t i) const {
        const Note& n = notes_[i];
        if (n.step.kind != StepKind::loss || n.out) return {};
        std::optional<uint32_t> found;
        for (uint32_t j = i + 1; j < notes_.size(); j++)
            for (const Operand& o : notes_[j].operands) {
                if (o.kind != Operand::noted || o.note != i || !needed_[j]) continue;
                const Note& m = notes_[j];
                if (found || inlined_[j] || m.step.kind != StepKind::cast || m.step.result != n.operands[0].dtype) return {};
                if (!m.layout.is_contiguous() || !o.layout.is_contiguous() || o.layout.offset ||
                    product(o.layout.sizes) != product(n.layout.sizes))
                    return {};
                found = j;
            }
        return found;
    }

    // The sum of all rows, on a GPU, by the program that makes or reads them. False: there is none that could.
    bool place_columns(uint32_t i) {
        const Note& n = notes_[i];
        const Operand& o = n.operands[0];
        const Layout& rows = o.layout;
        const int64_t dims = rows.sizes.size();
        if (!n.device.is_cuda() || !n.reduced || n.step.reduction != kernels::Reduction::sum || n.step.divisor != 1 || dims < 2)
            return false;
        if (n.reduced != (uint64_t(1) << (dims - 1)) - 1 || !rows.is_contiguous()) return false;
        if (!is_floating(o.dtype) || !is_floating(n.step.result) || compute_dtype(n.step.result) != compute_dtype(o.dtype)) return false;
        if (const int64_t width = rows.sizes[dims - 1]; width < 64 || width > most_column || width % 4) return false;
        const Space space(rows, true);
        if (space.sizes.size() < 2) return false;
        const View view(space, rows);
        int chosen = int(groups_.size()) - 1;
        while (chosen >= 0 && !fits(chosen, i, space, view, rows.sizes, false)) chosen--;
        if (chosen < 0) return false;
        add_step(chosen, i, view, rows.sizes, false, false);
        groups_[size_t(chosen)].has_rows = true;
        placed_[i].group = chosen;
        placed_[i].kept = true;
        if (!n.out) temporaries_.push_back(i);
        return true;
    }

    void place(uint32_t i) {
        if (is_call(notes_[i])) {
            if (!place_columns(i)) place_call(i);
            return;
        }
        const Note& n = notes_[i];
        const bool reduces = n.step.kind == StepKind::reduce;
        const Layout& shape = reduces ? n.operands[0].layout : n.layout;
        const Space space(shape, reduces);
        const View view(space, shape);
        Load load;
        prepare(i, view, shape.sizes, load);
        merge_for(i, space, view, shape.sizes);
        // A reduction takes a full operand. Anything else that uses the results of one is computed row by row, if it has their shape.
        int chosen = -1;
        bool by_row = false;
        for (int g = int(groups_.size()) - 1; g >= 0 && chosen < 0; g--) {
            if (fits(g, i, space, view, shape.sizes, false)) chosen = g;
            else if (!reduces && fits(g, i, space, view, shape.sizes, true)) chosen = g, by_row = true;
        }
        if (chosen < 0) {
            chosen = int(groups_.size());
            Draft& g = groups_.emplace_back();
            g.sizes = g.program.sizes = space.sizes;
            g.device = n.device;
        }
        Placed& p = placed_[i];
        p.value = add_step(chosen, i, view, shape.sizes, by_row, false);
        p.group = chosen;
        p.by_row = by_row || reduces;
        p.kept = n.out != nullptr;
        groups_[size_t(chosen)].has_rows |= p.by_row;
    }

    // Makes a note's value in a group.
    int add_step(int group, uint32_t note, const View& v, const Dims& note_sizes, bool by_row, bool inlined) {
        const Note& n = notes_[note];
        ProgramStep step = n.step;
        if (n.reduced) step.kind = StepKind::columns;
        for (int k = 0; k < step.count; k++) {
            Dims sizes = note_sizes;
            const View mine = *view_of(note, k, v, sizes);
            step.in[size_t(k)] = operand(group, note, k, mine, sizes, by_row);
            if (step.kind == StepKind::join) step.axis = int8_t(mine.axis), step.ends[size_t(k)] = end_of_part(n, k, v);
        }
        step.by_row = by_row || step.kind == StepKind::reduce;
        Draft& g = groups_[size_t(group)];
        g.has_windows |= step.kind == StepKind::join;
        g.program.steps.push_back(step);
        g.makers.push_back(note);
        g.inlined.push_back(inlined);
        return first_step + int(g.program.steps.size()) - 1;
    }
    static int64_t end_of_part(const Note& n, int part, const View& v) {
        int64_t end = -v.begin[n.step.axis];
        for (int k = 0; k <= part; k++) end += n.operands[k].layout.sizes[n.step.axis];
        return end;
    }

    int operand(int group, uint32_t note, int number, const View& v, const Dims& sizes, bool by_row) {
        const Operand& o = notes_[note].operands[number];
        if (o.kind == Operand::absent) return -1;
        if (is_inlined(o)) return make_again(group, o.note, *view_through(o, sizes, v), by_row);
        Seen at = seen(o, v, sizes);
        if (o.kind == Operand::noted) {
            if (const int value = value_in(group, o, o.layout.offset + at.begin, at.strides, by_row); value >= 0) return value;
            keep(o.note);
        }
        ProgramInput input;
        input.dtype = o.dtype;
        if (v.axis >= 0 && at.strides[v.axis] != 0) input.axis = v.axis, input.from = v.from, input.to = v.to;
        input.strides = std::move(at.strides);
        Draft& g = groups_[size_t(group)];
        if (o.kind == Operand::memory) g.reads.push_back(o.storage);
        if (by_row) input.strides.push_back(0);
        return input_of(g, input, {note, number, at.begin});
    }
    static bool is_same(const Operand& a, const Operand& b) {
        if (a.kind != b.kind || a.dtype != b.dtype) return false;
        if (a.kind == Operand::number) return !std::memcmp(a.value, b.value, sizeof a.value);
        return a.storage == b.storage && a.note == b.note && a.layout.offset == b.layout.offset;
    }

    int make_again(int group, uint32_t note, const View& v, bool by_row) {
        for (const Draft::Copy& c : groups_[size_t(group)].copies)
            if (c.note == note && c.by_row == by_row && c.view == v) return c.value;
        const int value = add_step(group, note, v, notes_[note].layout.sizes, by_row, true);
        groups_[size_t(group)].copies.push_back({note, by_row, v, value});
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
    std::vector<bool> needed_, inlined_;
    std::vector<Draft> groups_;
    std::vector<uint32_t>& temporaries_;
};

}  // namespace

void fuse(const std::vector<Note>& notes, Plan& plan) { Planner(notes, plan); }

}  // namespace wisp::compile
