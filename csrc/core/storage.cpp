// Counted memory blocks.
#include "storage.h"

#include <new>

#include "above.h"
#include "allocator.h"
#include "errors.h"

namespace wisp {

namespace {
// The header sits in front of the data: one allocation for both.
constexpr size_t header = (sizeof(Storage) + 63) / 64 * 64;
}  // namespace

Accelerator accelerator;

Storage* Storage::make(size_t bytes) {
    if (bytes > SIZE_MAX / 4) throw OutOfMemory("cannot allocate ", bytes, " bytes");
    char* block = static_cast<char*>(allocate(header + bytes));
    return new (block) Storage{1, block + header, bytes, 0, Device{}, false, nullptr, nullptr};
}

Storage* Storage::make(size_t bytes, Device device) {
    if (device.type == DeviceType::cpu) {
        Storage* s = make(bytes);
        s->device = device;
        return s;
    }
    Storage* s = wrap(nullptr, bytes, nullptr, nullptr);
    s->device = device;
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
    return new (allocate(header)) Storage{1, data, bytes, 0, Device{}, false, release, owner};
}

void Storage::destroy() {
    if (!release && device.type != DeviceType::cpu) {
        if (device.is_cuda()) accelerator.release(this);
        deallocate(this, header);
        return;
    }
    const bool foreign = release != nullptr;
    if (foreign) release(this);
    // A storage whose data was moved elsewhere still has its first block behind the header; its release says so by
    // clearing `release`.
    deallocate(this, foreign && release ? header : header + bytes);
}

}  // namespace wisp
