// The lists of the tape, which tape.cpp fills and runs, and turned.cpp changes where values may lie otherwise.
#pragma once
#include <optional>
#include <span>

#include "../core/above.h"
#include "tape.h"

namespace wisp::compile {

inline int64_t bytes_of(const Layout& l, DType dtype) { return product(l.sizes) * item_size(dtype); }
template <class N> auto operands_of(N& note) { return std::span(note.operands, size_t(note.step.count)); }

// What a note uses, next to each other in memory for all notes: every run looks through all of them.
struct Uses {
    Storage* storage[kernels::ProgramStep::most];
    uint32_t note[kernels::ProgramStep::most];
    Operand::Kind kind[kernels::ProgramStep::most];
    uint8_t count;
    // Its memory can wait, and patience has nothing to do with it any more: it is seen, or one that is seen needs it.
    enum Sleep : uint8_t { awake, seen, inner } asleep;
    bool saved;   // backward needs its value
    bool recipe;  // see find_recipes
};
inline Uses uses_of(const Note& n) {
    Uses u{};
    for (const Operand& o : operands_of(n)) {
        u.storage[u.count] = o.storage;
        u.note[u.count] = o.note;
        u.kind[u.count++] = o.kind;
    }
    return u;
}

// A storage that notes read. Its version shows whether somebody wrote to it without asking for its address again.
struct Reader {
    Storage* storage;
    uint32_t version;
};

extern std::vector<Note> notes;
extern std::vector<Uses> uses;  // as many as notes
extern std::vector<Reader> readers;

inline void read_later(Storage* s) {
    if (s->memory == unsettled) return;
    s->retain();
    s->memory = unsettled;
    s->note = no_note;
    readers.push_back({s, s->version});
}

// A storage without values has the number of its note, or one of these: it is on a tape that runs, or a turned value.
constexpr uint32_t in_run = no_note - 1;
constexpr uint32_t first_turned = 1u << 24;
inline bool is_pending(const Storage* s) { return s->memory == unsettled && s->note < first_turned; }
inline bool is_running(const Storage* s) { return s->memory == unsettled && s->note == in_run; }

// Before somebody reads or writes the memory of a storage.
void settle(Storage* storage);
// Without memory, until its note runs.
inline void make_pending(Storage* s, uint32_t note) {
    s->memory = unsettled;
    if (s->device.is_cuda() && s->address) {  // who is never made takes no memory
        accelerator.release(s);
        s->address = s->owner = nullptr;
    }
    s->note = note;
}

// Turned values: contiguous [n, c, p] that is to be copied from [n, p, c], once its memory is asked for. Their number, for the storage, is
// a place in here. The source is nobody else's to write to.
struct Image {
    int64_t samples, channels, places;
    int64_t count() const { return samples * channels * places; }
    bool operator==(const Image&) const = default;
};
struct Turned {
    Storage *seen = nullptr, *source = nullptr;
    DType dtype = DType::f32;
    Image image{};
};
extern std::vector<Turned> turned_values;
inline Turned* turned_of(const Storage* s) {
    const bool is = s->memory == unsettled && s->note >= first_turned && s->note < in_run;
    return is ? &turned_values[s->note - first_turned] : nullptr;
}

// What notes read in the place of a turned value.
std::optional<Operand> behind(const Tensor& t);
// A turned value becomes a note: somebody needs its memory.
void note_turned(Storage* seen);
void let_go(Turned& t);
// Lets the note that makes x, and those that it is made from, write with the channels last; who sees the results sees turned ones.
void turn(const Tensor& x);

}  // namespace wisp::compile
