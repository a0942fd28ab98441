// Storage: a counted block of memory that tensors view, tagged with its device and owner.
// Its address points into the memory of the device; on meta there is none.
// Counts are not atomic: storages are touched with the interpreter lock held.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "device.h"

namespace wisp {

struct Storage {
    int64_t references;
    void* address;  // asked for with data()
    size_t bytes;
    uint32_t version;  // bumped by every in-place write through any tensor of this storage
    Device device;
    // Whose memory a kernel finds at the address: the device's, or nobody's (`unsettled`) while a compiled region has notes about it.
    Device memory;
    bool read_only;
    bool exported;  // NumPy or another library sees the memory: it stays where it is
    uint32_t note;  // of an unsettled storage: which note makes its values (see compile/tape.h)
    size_t block;   // bytes behind the header; the data may have been moved away from there
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
    bool can_grow() const;  // nobody else owns or sees the memory
    // The address, once everything that was noted about the memory has been run.
    void* data() {
        if (!(memory == device)) [[unlikely]]
            settle();
        return address;
    }
    void settle();
    void place_on(Device d) { device = memory = d; }
    // Makes room for more, for all tensors that view it; refuses memory that others own or see.
    void grow(size_t bytes);

private:
    void destroy();
};

}  // namespace wisp
