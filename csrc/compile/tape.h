// Compiled regions: operators are noted on a tape instead of being run.
//
// A front door that is called in a region (`noting`) makes its result as always, but says `note(...)` instead of calling a kernel.
// The result's storage is then unsettled, and so are those of the operands: whoever asks for the address of an unsettled storage,
// to read it or to write to it, first has everything on the tape run (`settle`, called by Storage::data and Tensor::data). A
// storage that dies unsettled was never needed, and its note is only run if others use its value.
//
// One tape serves all threads. It is touched with the interpreter lock held, which is let go while long programs run.
#pragma once
#include "../kernels/loss.h"
#include "../kernels/program.h"
#include "../ops/pointwise.h"

namespace wisp::compile {

// Operators on fewer elements are run at once, unless they use a value that is noted: they cost less than their note.
constexpr int64_t usually_worth_noting = 16384;
extern int64_t worth_noting;

// y = step(operands), later. False: it can't be noted, or does not pay, and is to be run now. `y` was just made and is dense.
// reduced: the dimensions of a reduction over others than the last one, which is run as always, between programs.
bool note(const Tensor& y, const kernels::ProgramStep& step, const Arg* operands, int count, uint64_t reduced = 0);

// Whether a pointwise operator on these may be worth a note: quickly, for the many that are not.
inline bool may_note(const Arg* operands, int count) {
    for (int i = 0; i < count; i++) {
        if (!operands[i].tensor) continue;
        const Tensor& t = *operands[i].tensor;
        if (t.numel() >= worth_noting || !(t.storage()->memory == Device{})) return true;
    }
    return false;
}

// What the values of a tensor are a wider copy of, if that copy is still to be made and lies as its source does: whoever reads it instead,
// by `peek`, sees the same numbers. On a GPU; else undefined.
Tensor source_of(const Tensor& t);

// The same of a tensor [n, heads, rows, columns] whose heads are copies, each `times` in a row, of those of `source`.
struct Repeated {
    Tensor source;
    int64_t times = 1;
};
Repeated repeated_source(const Tensor& t);

// --- images whose channels lie last, though nobody sees it
//
// Convolutions in half precision want [n, h, w, c]. In a region what they give stays so: the tensor that Python has is contiguous as
// always, but its values are noted as a copy of those ("turned"), which is made only when its own memory is asked for. Programs that use
// it read the source in its place, and a program whose result is wanted by channels writes it so in the first place.

// Whether that is done: in a region that holds a backward pass, or needs none, on a GPU.
bool turns(Device device);
// Whether the values of an image are turned, or are to be made from such.
bool is_turned(const Tensor& x);
// The values of x [n, c, h, w] with the channels last, to be read by `peek` and not to be written to. No history.
Tensor by_channels(const Tensor& x);
// A contiguous tensor with the values of `source`, which is dense with the channels last and written to by nobody any more.
Tensor turned(const Tensor& source);
// The memory of values that are only read: notes that read them too can wait.
const void* peek(const Tensor& t);

void enter_region();
// Of the outermost one: runs what is noted, but for recipes (see tape.cpp), of which there are none without the storages of what the region
// gave.
void leave_region(const std::vector<const Storage*>* results = nullptr);
// Whether what the region gave is of interest for that.
bool may_leave_recipes();
void run_notes(bool recipes = true);
// Backward will need these values.
void saved_for_backward(const Storage* s);
// A region for the backward pass of what was recorded in one that has ended. False: this thread is in a region anyway.
bool enter_backward();

// A thread that runs operators at once though it is in a region.
class Pause {
public:
    Pause() : before_(noting) { noting = false; }
    ~Pause() { noting = before_; }

private:
    bool before_;
};

// --- what a run of the tape consists of, for plan.h ---

constexpr uint32_t no_note = UINT32_MAX;

struct Operand {
    enum Kind : uint8_t { absent, number, memory, noted } kind = absent;
    DType dtype = DType::f32;
    Storage* storage = nullptr;  // memory: one that holds values already
    uint32_t note = no_note;     // noted
    Layout layout;               // memory, noted
    char value[16] = {};         // number
};

struct Note {
    kernels::ProgramStep step;
    Operand operands[kernels::ProgramStep::most];
    Layout layout;  // of the result
    Device device;
    uint64_t reduced = 0;
    bool again = false;      // its value was made before, and not kept
    Storage* out = nullptr;  // null: nobody sees the result
};

// What was made of the notes of one run, for `explain` and for tests.
struct Fusion {
    std::vector<std::string> operators;
    std::string shape;
    int64_t read = 0, written = 0;  // bytes
    int64_t eager = 0;              // bytes that the operators would move one by one
    std::vector<std::string> steps;
    std::string asked;   // the line whose need for a value ran it; empty: the region ended, or the tape was full
    double seconds = 0;  // on the CPU
};
struct Counts {
    int64_t notes = 0, dead = 0, programs = 0, plans = 0, runs = 0, bytes = 0, eager_bytes = 0;
};
extern Counts counts;
extern std::vector<Fusion>* watcher;  // gets what is fused, if there is one
extern std::string asked;             // see Fusion, while there is a watcher

void run(std::vector<Note>& notes);  // plan.cpp

// Notes that are no part of a program, but run by a kernel as they would be eagerly, between programs (calls.cpp): sums over other
// dimensions than the last, and gradients of losses.
inline bool is_call(const Note& n) { return n.reduced || n.step.kind == kernels::StepKind::loss; }
// operands: where they lie. result: the dtype that is wanted, the note's own or, of a loss, that of its halves.
void run_call(const Note& n, char* const* operands, DType result, char* out);
// The step of such a loss, of operands: halves, targets, what forward kept, and the gradient of the result.
kernels::ProgramStep loss_step(const kernels::LossArgs& a, bool one_gradient, bool has_total);

}  // namespace wisp::compile
