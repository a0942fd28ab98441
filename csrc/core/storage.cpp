// Counted memory blocks.
#include "storage.h"

#include <cstring>
#include <new>
#include <utility>

#include "above.h"
#include "allocator.h"
#include "errors.h"

namespace wisp {

namespace {
// The header sits in front of the data: one allocation for both.
constexpr size_t header = (sizeof(Storage) + 63) / 64 * 64;
constexpr size_t large = size_t(32) << 10;  // what may be worth a note in a compiled region
}  // namespace

Accelerator accelerator;
Tape tape;

void Storage::settle() { tape.settle(this); }

Storage* Storage::make(size_t bytes) {
    if (bytes >= large) [[unlikely]] {
        if (bytes > SIZE_MAX / 4) throw OutOfMemory("cannot allocate ", bytes, " bytes");
        if (tape.stir) tape.stir();
    }
    char* block = static_cast<char*>(allocate(header + bytes));
    return new (block) Storage{1, block + header, bytes, 0, Device{}, Device{}, false, false, 0, bytes, nullptr, nullptr};
}

Storage* Storage::make(size_t bytes, Device device) {
    if (device.type == DeviceType::cpu) {
        Storage* s = make(bytes);
        s->place_on(device);
        return s;
    }
    Storage* s = wrap(nullptr, bytes, nullptr, nullptr);
    s->place_on(device);
    if (!device.is_cuda()) return s;
    try {
        accelerator.provide(s);
    } catch (...) {
        deallocate(s, header);
        throw;
    }
    return s;
}

Storage* Storage::wrap(void* data, size_t bytes, void (*release)(Storage*), void* owner) {
    return new (allocate(header)) Storage{1, data, bytes, 0, Device{}, Device{}, false, false, 0, 0, release, owner};
}

static void drop_grown(Storage* s) { static_cast<Storage*>(s->owner)->drop(); }

bool Storage::can_grow() const { return !exported && !read_only && (!release || release == drop_grown); }

void Storage::grow(size_t wanted) {
    if (wanted <= bytes) return;
    if (!can_grow())
        throw RuntimeError("Trying to resize storage that is not resizable: its memory belongs to, or is seen by, somebody else (", bytes,
                           " bytes, asked for ", wanted, ")");
    data();  // what is noted about it runs before it moves
    Storage* larger = make(wanted, device);
    if (device.is_cuda()) {
        if (bytes) accelerator.between(larger->address, device.index, address, device.index, bytes);
        std::swap(address, larger->address);
        std::swap(owner, larger->owner);
        std::swap(bytes, larger->bytes);
        return larger->drop();
    }
    if (device.type == DeviceType::cpu) {
        std::memcpy(larger->address, address, bytes);
        if (release) drop_grown(this);
        address = larger->address;
        owner = larger;
        release = drop_grown;
    } else {
        larger->drop();
    }
    bytes = wanted;
}

void Storage::destroy() {
    if (memory.type != DeviceType::cpu) [[unlikely]] {
        if (!(memory == device)) tape.forget(this);
        if (!release && device.is_cuda()) accelerator.release(this);
    }
    if (release) release(this);
    deallocate(this, header + block);
}

}  // namespace wisp
