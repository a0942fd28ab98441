// The tape: what is noted, whose memory that concerns, and when it is run.
#include "tape.h"

#include <cstring>
#include <mutex>

#include "../core/above.h"
#include "../ops/ops.h"

namespace wisp::compile {

Counts counts;
std::vector<Fusion>* watcher = nullptr;
int64_t worth_noting = 16384;

namespace {

constexpr size_t longest = 160;  // notes
constexpr uint32_t in_run = no_note - 1;

// A storage that notes read. Its version shows whether somebody wrote to it without asking for its address again.
struct Reader {
    Storage* storage;
    uint32_t version;
};

std::vector<Note> notes;
std::vector<Reader> readers;
thread_local int depth = 0;
std::mutex running;  // held while a tape is run, which other threads may have to wait for

void lock_running() {
    if (running.try_lock()) return;
    PyThreadState* state = PyEval_SaveThread();
    running.lock();
    PyEval_RestoreThread(state);
}

bool is_pending(const Storage* s) { return s->memory == unsettled && s->note < in_run; }

// Others may write to such memory at any time.
bool is_shared(const Storage* s) { return s->exported || (s->release && !s->read_only); }

void read_later(Storage* s) {
    if (s->memory == unsettled) return;
    s->retain();
    s->memory = unsettled;
    s->note = no_note;
    readers.push_back({s, s->version});
}

void settle(Storage* storage) {
    const bool locked = PyGILState_Check();
    const PyGILState_STATE state = locked ? PyGILState_LOCKED : PyGILState_Ensure();
    try {
        while (storage->memory == unsettled) {
            run_notes();
            if (storage->memory == unsettled) {  // on a tape that another thread runs
                lock_running();
                running.unlock();
            }
        }
    } catch (...) {
        if (!locked) PyGILState_Release(state);
        throw;
    }
    if (!locked) PyGILState_Release(state);
}

void forget(Storage* storage) {
    if (is_pending(storage)) notes[storage->note].out = nullptr;
}

// A number of the CPU joins tensors of a GPU.
bool is_number_for(const Tensor& t, Device device) { return device.is_cuda() && t.dim() == 0 && t.device().type == DeviceType::cpu; }

// An operand on a tape that is being run, or a view of the bytes of other elements.
bool must_settle(const Tensor& t) {
    const Storage* s = t.storage();
    return s->memory == unsettled && (s->note == in_run || (s->note != no_note && notes[s->note].step.result != t.dtype()));
}

const bool known_to_the_core = (tape = {settle, forget}, true);

}  // namespace

bool note(const Tensor& y, const kernels::ProgramStep& step, const Arg* operands, int count, uint64_t reduced) {
    const Device device = y.device();
    const bool on_gpu = device.is_cuda();
    if (!(device == Device{} || on_gpu) || y.numel() == 0) return false;
    // Kernels of the GPU count elements in 32 bits, and have room for so many dimensions.
    if (on_gpu && (y.dim() > 4 || y.numel() >= INT32_MAX)) return false;
    bool pays = y.numel() >= worth_noting || on_gpu;  // a launch costs more than a note
    for (int i = 0; i < count; i++) {
        if (!operands[i].given || !operands[i].tensor) continue;
        const Tensor& t = *operands[i].tensor;
        if (is_number_for(t, device)) continue;
        if (!(t.device() == device) || is_shared(t.storage()) || (on_gpu && t.numel() >= INT32_MAX)) return false;
        pays |= is_pending(t.storage()) || (step.kind == kernels::StepKind::reduce && t.numel() >= worth_noting);
    }
    if (!pays) return false;
    Scalar numbers[kernels::ProgramStep::most];
    for (int i = 0; i < count; i++)
        if (operands[i].given && !operands[i].tensor) numbers[i] = operands[i].number;
        else if (operands[i].tensor && is_number_for(*operands[i].tensor, device)) numbers[i] = item(*operands[i].tensor);
    // Waiting for another thread's run lets others note and run more.
    for (bool settled = true; settled;) {
        settled = false;
        for (int i = 0; i < count; i++)
            if (operands[i].tensor && !is_number_for(*operands[i].tensor, device) && must_settle(*operands[i].tensor)) {
                settle(operands[i].tensor->storage());
                settled = true;
            }
    }

    Note n;
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
            numbers[i].store(o.value, o.dtype);
            continue;
        }
        const Tensor& t = *operands[i].tensor;
        Storage* s = t.storage();
        o.dtype = t.dtype();
        o.layout = t.layout();
        if (is_pending(s)) {
            o.kind = Operand::noted;
            o.note = s->note;
        } else {
            o.kind = Operand::memory;
            o.storage = s;
            read_later(s);
        }
    }
    n.out = y.storage();
    n.out->memory = unsettled;
    n.out->note = uint32_t(notes.size());
    notes.push_back(std::move(n));
    counts.notes++;
    if (notes.size() >= longest) run_notes();
    return true;
}

void run_notes() {
    if (notes.empty() && readers.empty()) return;
    lock_running();
    std::vector<Note> mine = std::move(notes);
    std::vector<Reader> read = std::move(readers);
    notes.clear();
    readers.clear();
    // From here on another thread may drop a tensor whose values are being made.
    std::vector<Storage*> outputs;
    for (Note& n : mine) {
        if (!n.out) continue;
        n.out->retain();
        n.out->note = in_run;
        outputs.push_back(n.out);
    }
    bool written = false;
    for (const Reader& r : read) {
        r.storage->note = in_run;
        written |= r.storage->version != r.version;
    }
    auto end = [&] {
        for (Storage* s : outputs) {
            s->memory = s->device;
            s->drop();
        }
        for (const Reader& r : read) {
            r.storage->memory = r.storage->device;
            r.storage->drop();
        }
        running.unlock();
    };
    try {
        if (written) throw RuntimeError("internal error: memory that noted operators read was written to before they ran");
        run(mine);
    } catch (...) {
        // No number is better than a wrong one.
        for (Note& n : mine)
            if (n.out && !n.device.is_cuda()) std::memset(n.out->address, 0xff, n.out->bytes);
        end();
        throw;
    }
    end();
}

void enter_region() {
    if (depth++ == 0) count_regions(1);
    noting = true;
}

void leave_region() {
    if (--depth > 0) return;
    noting = false;
    count_regions(-1);
    run_notes();
}

}  // namespace wisp::compile
