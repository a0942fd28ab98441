// The tape: what is noted, whose memory that concerns, and when it is run.
#include <algorithm>
#include <bitset>
#include <cstring>
#include <mutex>
#include <utility>

#include "../autograd/source.h"
#include "../core/above.h"
#include "../ops/ops.h"
#include "notes.h"

namespace wisp::compile {

Counts counts;
std::vector<Fusion>* watcher = nullptr;
std::string asked;
int64_t worth_noting = usually_worth_noting;
std::vector<Note> notes;
std::vector<Reader> readers;
std::vector<Uses> uses;

namespace {

constexpr size_t longest = 160;  // notes that come without a run
constexpr size_t most_notes = 1024;
constexpr int64_t small_twin = 1 << 20;  // bytes of a note that takes less time than its launch
constexpr size_t patience = 32;          // notes that are made before one that nobody asks for is run with others

size_t fresh = 0;  // notes since the last run
thread_local int depth = 0;
thread_local bool backward_alone = false;  // what its forward pass saved is all in memory
// Whether the last region held a backward pass: then what it needs is better made again than kept. A region that ends before has to make
// all of it in the end.
bool remakes = false, gradients_seen = false;
// Whether such a region was followed by one for its backward pass.
bool backward_follows = false;
bool recipes_wait = false;  // though no region is open
bool run_is_open = false;
std::mutex running;  // held while a tape is run, which other threads may have to wait for

void lock_running() {
    if (running.try_lock()) return;
    PyThreadState* state = PyEval_SaveThread();
    running.lock();
    PyEval_RestoreThread(state);
}

template <class F> void each_noted(const Uses& u, F f) {
    for (int k = 0; k < u.count; k++)
        if (u.kind[k] == Operand::noted) f(u.note[k]);
}
template <class F> void each_memory(const Uses& u, F f) {
    for (int k = 0; k < u.count; k++)
        if (u.kind[k] == Operand::memory) f(u.storage[k]);
}

// Others may write to such memory at any time.
bool is_shared(const Storage* s) { return s->exported || (s->release && !s->read_only); }

constexpr const char* not_computed = "the values of this tensor were not computed, because of an earlier error";

bool is_read(const Storage* storage) {
    return std::any_of(readers.begin(), readers.end(), [&](const Reader& r) { return r.storage == storage; });
}

void run_for(Storage* asked, bool everything = false, bool to_read = false, const std::vector<bool>* recipes = nullptr);

}  // namespace

void settle(Storage* storage) {
    const bool locked = PyGILState_Check();
    const PyGILState_STATE state = locked ? PyGILState_LOCKED : PyGILState_Ensure();
    try {
        while (storage->memory == unsettled) {
            if (turned_of(storage)) note_turned(storage);
            run_for(storage);
            if (storage->memory == unsettled) {
                if (storage->note == no_note && !is_read(storage)) throw RuntimeError(not_computed);
                lock_running();  // it is on a tape that another thread runs
                running.unlock();
            }
        }
    } catch (...) {
        if (!locked) PyGILState_Release(state);
        throw;
    }
    if (!locked) PyGILState_Release(state);
}

namespace {

// No region is open, and what was left for backward may be gone.
void note_waiting() {
    if (!run_is_open && std::none_of(notes.begin(), notes.end(), [](const Note& n) { return n.out; })) {
        counts.dead += int64_t(notes.size());
        notes.clear();
        uses.clear();
        for (const Reader& r : std::exchange(readers, {})) {
            r.storage->memory = r.storage->device;
            r.storage->drop();
        }
    }
    if (const bool wait = !notes.empty(); wait != recipes_wait) count_regions((recipes_wait = wait) ? 1 : -1);
}

void forget(Storage* storage) {
    if (is_pending(storage)) {
        notes[storage->note].out = nullptr;
        if (recipes_wait && depth == 0) note_waiting();
    } else if (Turned* t = turned_of(storage)) let_go(*t);
}

// A number of the CPU joins tensors of a GPU.
bool is_number_for(const Tensor& t, Device device) { return device.is_cuda() && t.dim() == 0 && t.device().type == DeviceType::cpu; }

// An operand on a tape that is being run, or a view of the bytes of other elements.
bool must_settle(const Tensor& t) {
    const Storage* s = t.storage();
    if (const Turned* from = turned_of(s)) return from->dtype != t.dtype();
    return s->memory == unsettled && (s->note == in_run || (s->note != no_note && notes[s->note].step.result != t.dtype()));
}

const bool known_to_the_core = (tape = {settle, forget, nullptr}, true);

// A note that is not wanted, with those that nobody sees and that it alone needs, if wanted ones read so much of what it reads that making
// it along with them moves no more bytes than waiting for whoever uses it: what is written and read again then is its result at most. As of
// the gradients of silu(a) * b, when that of b is asked for. Else nothing.
std::vector<uint32_t> along_with(uint32_t i, const std::vector<bool>& wanted) {
    const auto has = [](const auto& list, const auto& item) { return std::find(list.begin(), list.end(), item) != list.end(); };
    std::vector<uint32_t> mine = {i};
    std::vector<const Operand*> read;
    int64_t shared = 0;
    for (size_t at = 0; at < mine.size(); at++)
        for (const Operand& o : operands_of(std::as_const(notes[mine[at]]))) {
            if (o.kind == Operand::noted && !wanted[o.note] && !has(mine, o.note)) {
                if (notes[o.note].out) return {};
                mine.push_back(o.note);
            }
            if (o.kind == Operand::memory) read.push_back(&o);
        }
    const auto is_same = [](const Operand& a, const Operand& b) {
        return a.kind == b.kind && a.storage == b.storage && a.layout.offset == b.layout.offset && a.layout.sizes == b.layout.sizes &&
               a.layout.strides == b.layout.strides;
    };
    for (size_t k = 0; k < read.size(); k++) {
        const Operand& o = *read[k];
        if (std::any_of(read.begin(), read.begin() + k, [&](const Operand* x) { return is_same(*x, o); })) continue;
        for (size_t j = 0; j < notes.size(); j++) {
            if (!wanted[j]) continue;
            const auto all = operands_of(std::as_const(notes[j]));
            if (std::none_of(all.begin(), all.end(), [&](const Operand& x) { return is_same(x, o); })) continue;
            shared += bytes_of(o.layout, o.dtype);
            break;
        }
    }
    if (shared < 2 * bytes_of(notes[i].layout, notes[i].step.result)) return {};
    for (uint32_t j = 0; j < notes.size(); j++) {  // one that stays behind would have nothing to read
        if (wanted[j] || has(mine, j)) continue;
        bool uses_mine = false;
        each_noted(uses[j], [&](uint32_t used) { uses_mine |= used != i && has(mine, used); });
        if (uses_mine) return {};
    }
    return mine;
}

// Whether two notes are made in the same way, elementwise, by few others, from some of the same memory: as the rotated queries and keys of
// a token. A GPU makes them in one launch.
bool are_twins(uint32_t i, uint32_t j, bool& share, int depth = 0) {
    using kernels::StepKind;
    const kernels::ProgramStep &a = notes[i].step, &b = notes[j].step;
    const bool is_elementwise =
        a.kind == StepKind::row || a.kind == StepKind::cast || a.kind == StepKind::where || a.kind == StepKind::join;
    if (depth > 4 || !is_elementwise || notes[i].reduced || notes[j].reduced || !(notes[i].device == notes[j].device)) return false;
    if (a.kind != b.kind || a.op != b.op || a.which != b.which || a.result != b.result || a.count != b.count) return false;
    for (int k = 0; k < a.count; k++) {
        if (uses[i].kind[k] != uses[j].kind[k]) return false;
        if (uses[i].kind[k] == Operand::memory) share |= uses[i].storage[k] == uses[j].storage[k];
        if (uses[i].kind[k] == Operand::noted && !are_twins(uses[i].note[k], uses[j].note[k], share, depth + 1)) return false;
    }
    return true;
}
bool comes_along(uint32_t i, uint32_t made) {
    bool share = false;
    return notes[i].device.is_cuda() && notes[i].out && !uses[i].asleep && bytes_of(notes[i].layout, notes[i].step.result) <= small_twin &&
           are_twins(i, made, share) && share;
}

// What has to run before somebody may read or write the memory of `asked`: the notes that make or read its values, and what those need.
// Others wait, since what comes next may be fused with them; but not for long, as they hold on to their operands' memory.
std::vector<bool> wanted_for(const Storage* asked, bool to_read) {
    const size_t n = notes.size();
    std::vector<bool> wanted(n);
    std::vector<const Storage*> read;
    const uint32_t made = is_pending(asked) ? asked->note : no_note;
    for (size_t i = 0; i < n; i++) {
        const Uses& u = uses[i];
        bool sleeps = u.asleep == Uses::inner || (u.asleep == Uses::seen && notes[i].out);
        if (sleeps) each_memory(u, [&](const Storage* s) { sleeps &= s->references > 1; });  // else nobody but the note needs that memory
        bool is = i == made || (i + patience < n && !sleeps);
        if (!to_read) {
            each_memory(u, [&](const Storage* s) { is |= s == asked; });
            each_noted(u, [&](uint32_t j) { is |= j == made; });
        }
        wanted[i] = is;
    }
    for (uint32_t i = 0; made != no_note && i < n; i++)
        if (!wanted[i] && comes_along(i, made)) wanted[i] = true;
    for (bool changed = true; changed;) {
        for (size_t i = n; i-- > 0;)
            if (wanted[i]) each_noted(uses[i], [&](uint32_t j) { wanted[j] = true; });
        // One that stays behind would read the memory of what it uses, if there is somebody who keeps it.
        changed = false;
        for (size_t i = 0; i < n; i++)
            if (!wanted[i])
                each_noted(uses[i], [&](uint32_t j) {
                    if (wanted[j] && !notes[j].out) wanted[i] = changed = true;
                });
    }
    // What reads nothing else is made along with them, and what saves more by not being read again than it may cost.
    for (size_t i = 0; i < n; i++)
        if (wanted[i]) each_memory(uses[i], [&](const Storage* s) { read.push_back(s); });
    for (uint32_t i = 0; i < n; i++) {
        if (wanted[i] || uses[i].asleep || !notes[i].out) continue;
        bool free = true;
        each_memory(uses[i], [&](const Storage* s) { free = free && std::find(read.begin(), read.end(), s) != read.end(); });
        each_noted(uses[i], [&](uint32_t j) { free &= wanted[j]; });
        if (free) wanted[i] = true;
        else
            for (uint32_t j : along_with(i, wanted)) wanted[j] = true;
    }
    return wanted;
}

struct Output {
    Storage* storage;
    bool read_later = false;  // by a note that is not run yet
};

enum class Fate : uint8_t {
    stays,
    runs,
    runs_and_stays,  // those that run now get its value, and memory for it can wait
};

// Whether a note can be run later as well as now: it is made elementwise from memory that others hold, or that is made now and kept, by
// few notes that nobody sees. Not if that is the memory somebody asks for.
bool can_be_made_again(const Note& n, const Storage* asked, uint32_t made, int depth = 0) {
    using kernels::StepKind;
    const StepKind kind = n.step.kind;
    if (n.reduced || n.step.which || !(kind == StepKind::row || kind == StepKind::cast || kind == StepKind::where)) return false;
    for (const Operand& o : operands_of(n)) {
        if (o.kind == Operand::memory && (o.storage == asked || o.storage->references < 2)) return false;
        if (o.kind != Operand::noted) continue;
        if (o.note == made) return false;
        if (!notes[o.note].out && (depth == 3 || !can_be_made_again(notes[o.note], asked, made, depth + 1))) return false;
    }
    return true;
}

// What is not kept, but made again when it is needed. A wider copy of values that are kept anyway: what backward saves of a norm that is
// computed in float is half as much then. And, on a GPU, where backward is part of the region or follows, whatever can be made again.
bool makes_again(Device device) { return device.is_cuda() || worth_noting == 0; }  // tests note everything
bool is_cheap(uint32_t i, bool again, const Storage* asked, uint32_t made) {
    const Note& n = notes[i];
    if (!n.out) return false;
    const Operand& o = n.operands[0];
    if (n.step.kind == kernels::StepKind::cast && item_size(n.step.result) > item_size(o.dtype))
        return o.kind == Operand::memory ? o.storage != asked : notes[o.note].out && o.note != made;
    return again && makes_again(n.device) && can_be_made_again(n, asked, made);
}

bool backward_is_to_come() { return backward_follows && !backward_alone && !gradients_seen && grad_enabled(); }

// What a region leaves on the tape when it ends: values that backward needs and that can be made again, by few operators, from memory that
// is kept anyway. They are made when somebody asks for them, or for memory that they are made from, which comes first, as always.
constexpr int most_again = 12;  // operators
constexpr size_t most_waiting = 256;
std::vector<bool> find_recipes(const std::vector<const Storage*>* results) {
    std::vector<bool> found(notes.size());
    std::vector<int> again(notes.size());
    for (uint32_t i = 0; i < notes.size(); i++) {
        const Note& n = notes[i];
        again[i] = 1;
        each_noted(uses[i], [&](uint32_t j) { again[i] += found[j] || !notes[j].out ? again[j] : 0; });
        again[i] = std::min(again[i], most_again + 1);
        if (!(uses[i].recipe || (results && uses[i].saved)) || !n.out || !makes_again(n.device) || again[i] > most_again) continue;
        if (results && std::find(results->begin(), results->end(), n.out) != results->end()) continue;
        found[i] = is_cheap(i, true, nullptr, no_note);
    }
    return found;
}

std::vector<Fate> fates(const Storage* asked, bool everything, bool to_read, const std::vector<bool>* recipes) {
    if (everything || (notes.size() < 2 && !recipes)) return std::vector<Fate>(notes.size(), Fate::runs);
    const std::vector<bool> wanted = asked ? wanted_for(asked, to_read) : std::vector<bool>(notes.size(), true);
    const uint32_t made = asked && is_pending(asked) ? asked->note : no_note;
    const Storage* written = to_read ? nullptr : asked;
    const uint32_t written_note = to_read ? no_note : made;
    std::vector<bool> used(notes.size());   // by those that run
    std::vector<bool> stays(notes.size());  // nobody sees it, and one that stays needs it
    std::vector<Fate> fate(notes.size(), Fate::stays);
    const bool to_come = backward_is_to_come();
    for (size_t i = notes.size(); i-- > 0;) {
        if (!wanted[i]) continue;
        const Note& n = notes[i];
        const bool can_wait =
            stays[i] ||
            (recipes ? (*recipes)[i]
                     : i != made && is_cheap(uint32_t(i), remakes || uses[i].recipe || (to_come && uses[i].saved), written, written_note));
        fate[i] = !can_wait ? Fate::runs : used[i] ? Fate::runs_and_stays : Fate::stays;
        if (can_wait) uses[i].asleep = n.out ? Uses::seen : Uses::inner;
        uses[i].recipe |= recipes && can_wait && n.out;
        each_noted(uses[i], [&](uint32_t j) {
            if (can_wait && !notes[j].out) stays[j] = true;
            if (fate[i] != Fate::stays) used[j] = true;
        });
    }
    return fate;
}

// Takes from the tape what has to run, in order. `mine` comes empty.
void take(const Storage* asked, bool everything, bool to_read, const std::vector<bool>* recipes, std::vector<Note>& mine,
          std::vector<Reader>& read, std::vector<Output>& outputs) {
    const std::vector<Fate> fate = fates(asked, everything, to_read, recipes);
    std::vector<std::pair<Storage*, bool>> touched;  // what those that run read or make, and whether the rest reads it
    std::bitset<256> may_be;                         // in there, for a quick no
    auto place_of = [](const Storage* s) { return uintptr_t(s) / 64 % 256; };
    auto find = [&](Storage* s) -> std::pair<Storage*, bool>* {
        if (!may_be[place_of(s)]) return nullptr;
        const auto at = std::lower_bound(touched.begin(), touched.end(), std::pair(s, false));
        return at != touched.end() && at->first == s ? &*at : nullptr;
    };
    std::vector<Reader> stay;
    if (std::all_of(fate.begin(), fate.end(), [](Fate f) { return f == Fate::runs; })) {
        mine.swap(notes);
        read.swap(readers);
        uses.clear();
    } else {
        std::vector<uint32_t> place(notes.size()), place_in_rest(notes.size());
        uint32_t rest = 0;
        for (uint32_t i = 0; i < notes.size(); i++) {
            Note& n = notes[i];
            Uses& u = uses[i];
            if (fate[i] != Fate::stays) {
                place[i] = uint32_t(mine.size());
                Note& now = mine.emplace_back(n);
                if (fate[i] == Fate::runs_and_stays) now.out = nullptr, n.again = true;
                for (Operand& o : operands_of(now))
                    if (o.kind == Operand::noted) o.note = place[o.note];
                if (now.out) touched.emplace_back(now.out, false);
                each_memory(u, [&](Storage* s) { touched.emplace_back(s, false); });
            }
            if (fate[i] == Fate::runs) continue;
            place_in_rest[i] = rest;
            for (int k = 0; k < u.count; k++) {
                if (u.kind[k] != Operand::noted) continue;
                Operand& o = n.operands[k];
                if (const uint32_t j = u.note[k]; fate[j] == Fate::runs) {
                    o.kind = u.kind[k] = Operand::memory;
                    o.storage = u.storage[k] = mine[place[j]].out;
                    o.note = u.note[k] = no_note;
                } else if (place_in_rest[j] != j) {
                    o.note = u.note[k] = place_in_rest[j];
                }
            }
            if (rest != i) {
                if (n.out) n.out->note = rest;
                notes[rest] = std::move(n);
                uses[rest] = u;
            }
            rest++;
        }
        notes.resize(rest);
        uses.resize(rest);
        std::sort(touched.begin(), touched.end());
        touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
        for (const auto& t : touched) may_be[place_of(t.first)] = true;
        for (const Uses& u : uses)
            each_memory(u, [&](Storage* s) {
                if (auto* t = find(s)) t->second = true;
            });
    }
    auto is_used = [&](Storage* s) {
        const auto* t = find(s);
        return !t || t->second;  // of others nothing has changed
    };
    if (!uses.empty())
        for (const Reader& r : readers) (is_used(r.storage) ? stay : read).push_back(r);
    else read.insert(read.end(), readers.begin(), readers.end());
    // From here on another thread may drop a tensor whose values are being made.
    for (const Note& n : mine) {
        if (!n.out) continue;
        n.out->retain();
        n.out->note = in_run;
        outputs.push_back({n.out, !uses.empty() && is_used(n.out)});
        if (!outputs.back().read_later) continue;
        n.out->retain();
        stay.push_back({n.out, n.out->version});
    }
    readers.swap(stay);
}

std::string current_line() {
    const SourceLine line = current_source();
    if (!line.code) return {};
    std::string text = source_text(line.code, line.offset);
    Py_DECREF(line.code);
    return text;
}

// asked: null if nobody asks for values, and everything runs, or all that can't be made again later, or all but recipes.
void run_for(Storage* asked, bool everything, bool to_read, const std::vector<bool>* recipes) {
    fresh = 0;
    if (notes.empty() && readers.empty()) return;
    lock_running();
    run_is_open = true;
    if (watcher) compile::asked = asked ? current_line() : "";
    static std::vector<Note> spare;  // memory for notes
    std::vector<Note> mine = std::move(spare);
    std::vector<Reader> read;
    std::vector<Output> outputs;
    take(asked, everything, to_read, recipes, mine, read, outputs);
    bool written = false;
    for (const Reader& r : read) {
        r.storage->note = in_run;
        written |= r.storage->version != r.version;
    }
    auto end = [&] {
        for (const Output& o : outputs) {
            Storage* s = o.storage;
            if (o.read_later || (s->bytes && !s->address)) s->note = no_note;
            else s->memory = s->device;
            s->drop();
        }
        for (const Reader& r : read) {
            r.storage->memory = r.storage->device;
            r.storage->drop();
        }
        run_is_open = false;
        running.unlock();
        if (recipes_wait && depth == 0) note_waiting();
    };
    try {
        if (written) throw RuntimeError("internal error: memory that noted operators read was written to before they ran");
        for (const Note& n : mine)
            for (const Operand& o : operands_of(n))
                if (o.kind == Operand::memory && !o.storage->address) throw RuntimeError(not_computed);
        for (const Output& o : outputs)
            if (!o.storage->address) accelerator.provide(o.storage);
        if (!mine.empty()) run(mine);
    } catch (...) {
        // No number is better than a wrong one.
        for (Note& n : mine)
            if (n.out && !n.device.is_cuda()) std::memset(n.out->address, 0xff, n.out->bytes);
        end();
        throw;
    }
    end();
    mine.clear();
    spare = std::move(mine);
}

}  // namespace

bool turns(Device device) {
    return noting && !backward_alone && (remakes || !grad_enabled()) && (device.is_cuda() || (worth_noting == 0 && device == Device{}));
}

bool note(const Tensor& y, const kernels::ProgramStep& step, const Arg* operands, int count, uint64_t reduced) {
    const Device device = y.device();
    const bool on_gpu = device.is_cuda();
    if (!(device == Device{} || on_gpu) || y.numel() == 0 || is_stored(y.dtype())) return false;
    // Kernels of the GPU count elements in 32 bits, and have room for so many dimensions. Parts that are joined in more than four, as by
    // `unbind`'s gradient, often lie otherwise than the result: they are brought into its order first.
    const int64_t most_dims = step.kind == kernels::StepKind::join ? 4 : 6;
    if (on_gpu && (y.dim() > most_dims || y.numel() >= INT32_MAX)) return false;
    // A launch costs more than a note. A reduction that is run between programs joins none, but need not end the one of its operand.
    bool pays = (y.numel() >= worth_noting && !reduced) || on_gpu;
    for (int i = 0; i < count; i++) {
        if (!operands[i].given || !operands[i].tensor) continue;
        const Tensor& t = *operands[i].tensor;
        if (is_number_for(t, device)) continue;
        if (!(t.device() == device) || is_stored(t.dtype()) || is_shared(t.storage()) || (on_gpu && t.numel() >= INT32_MAX)) return false;
        pays |= is_pending(t.storage()) || turned_of(t.storage()) ||
                (step.kind == kernels::StepKind::reduce && !reduced && t.numel() >= worth_noting);
    }
    if (!pays) return false;
    alignas(16) char numbers[kernels::ProgramStep::most][16] = {};
    for (int i = 0; i < count; i++)
        if (operands[i].given && !operands[i].tensor) operands[i].number.store(numbers[i], step.compute);
        else if (operands[i].tensor && is_number_for(*operands[i].tensor, device))
            item(*operands[i].tensor).store(numbers[i], step.compute);
    // Waiting for another thread's run lets others note and run more.
    for (bool settled = true; settled;) {
        settled = false;
        for (int i = 0; i < count; i++)
            if (operands[i].tensor && !is_number_for(*operands[i].tensor, device) && must_settle(*operands[i].tensor)) {
                settle(operands[i].tensor->storage());
                settled = true;
            }
    }

    // A sum over places goes along the memory that its image will have.
    if (const Tensor* t = operands[0].tensor; reduced && t && turns(device) && is_pending(t->storage()) && is_turned(*t)) turn(*t);
    for (int i = 0; i < count; i++)
        if (const Tensor* t = operands[i].tensor; t && turned_of(t->storage()) && !behind(*t)) note_turned(t->storage());

    if (notes.capacity() == notes.size()) notes.reserve(longest);
    Note& n = notes.emplace_back();
    n.step = step;
    n.step.count = count;
    n.device = device;
    n.reduced = reduced;
    n.layout = y.layout();
    for (int i = 0; i < count; i++) {
        if (!operands[i].given) continue;
        Operand& o = n.operands[i];
        if (!operands[i].tensor || is_number_for(*operands[i].tensor, device)) {
            o.kind = Operand::number;
            o.dtype = step.compute;
            std::memcpy(o.value, numbers[i], sizeof o.value);
            continue;
        }
        const Tensor& t = *operands[i].tensor;
        Storage* s = t.storage();
        o.dtype = t.dtype();
        o.layout = t.layout();
        if (std::optional<Operand> source = behind(t)) {
            o = *source;
            if (o.kind == Operand::memory) read_later(o.storage);
        } else if (is_pending(s)) {
            o.kind = Operand::noted;
            o.note = s->note;
        } else {
            o.kind = Operand::memory;
            o.storage = s;
            read_later(s);
        }
    }
    uses.push_back(uses_of(n));
    n.out = y.storage();
    make_pending(n.out, uint32_t(notes.size() - 1));
    counts.notes++;
    gradients_seen |= step.which != 0;
    if (notes.size() >= most_notes) run_notes();
    else if (++fresh >= longest) run_for(nullptr);
    return true;
}

const void* peek(const Tensor& t) {
    Storage* s = t.storage();
    if (s->memory == s->device || !(t.device() == current_device()) || turned_of(s)) return t.device_data();
    if (is_pending(s)) run_for(s, false, true);
    if (is_running(s)) {  // in another thread
        lock_running();
        running.unlock();
    }
    if (!s->address || is_pending(s)) throw RuntimeError(not_computed);
    return static_cast<const char*>(s->address) + t.offset() * t.item_size();
}

void saved_for_backward(const Storage* s) {
    if (is_pending(s)) uses[s->note].saved = true;
}

void run_notes(bool recipes) {
    if (!recipes && recipes_wait && depth == 0) {
        const std::vector<bool> found = find_recipes(nullptr);
        return run_for(nullptr, false, false, &found);
    }
    for (size_t i = 0; i < turned_values.size(); i++)
        if (Storage* seen = turned_values[i].seen) note_turned(seen);
    run_for(nullptr, true);
}

void enter_region() {
    if (depth++ == 0) count_regions(1);
    noting = true;
}

bool may_leave_recipes() { return depth == 1 && backward_is_to_come(); }

void leave_region(const std::vector<const Storage*>* results) {
    if (--depth > 0) return;
    noting = false;
    count_regions(-1);
    const bool gradients = std::exchange(gradients_seen, false);
    if (std::exchange(backward_alone, false)) backward_follows |= gradients;
    else remakes = gradients;
    // Every run looks through all notes, so those of many forward passes do not wait together.
    if (recipes_wait ? notes.size() > most_waiting : !results) return run_notes();
    for (size_t i = 0; i < turned_values.size(); i++)
        if (Storage* seen = turned_values[i].seen) note_turned(seen);
    const std::vector<bool> found = find_recipes(results);
    run_for(nullptr, false, false, &found);
    note_waiting();
}

bool enter_backward() {
    if (depth > 0) return false;
    enter_region();
    backward_alone = true;
    return true;
}

}  // namespace wisp::compile
