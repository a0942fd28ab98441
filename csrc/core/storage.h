// Storage: a counted block of memory that tensors view, tagged with its device and owner.
// `data` points into the memory of the device; on meta there is none.
// Counts are not atomic: storages are touched with the interpreter lock held.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "device.h"

namespace wisp {

struct Storage {
    int64_t references;
    void* data;
    size_t bytes;
    uint32_t version;  // bumped by every in-place write through any tensor of this storage
    Device device;
    bool read_only;
    // Frees what `data` points to when it is not ours (a NumPy array, a mapped file, a DLPack capsule); null: ours.
    void (*release)(Storage*);
    void* owner;

    static Storage* make(size_t bytes);                 // uninitialised, ours, on the plain CPU
    static Storage* make(size_t bytes, Device device);  // the same on any device
    static Storage* wrap(void* data, size_t bytes, void (*release)(Storage*), void* owner);
    void retain() { references++; }
    void drop() {
        if (--references == 0) destroy();
    }
    bool is_ours() const { return release == nullptr; }

private:
    void destroy();
};

}  // namespace wisp
