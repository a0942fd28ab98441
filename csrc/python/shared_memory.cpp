// Memory that processes share: a storage over a mapped file descriptor, and moving a storage into one in place.
// The kernel counts the owners (mappings and descriptors), so the last process to let go frees the memory, however it ends.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <utility>

#include "registry.h"

namespace wisp {
namespace {

using FileKey = std::pair<uint64_t, uint64_t>;  // device and inode

struct Mapping {
    void* data;
    size_t bytes;
    int descriptor;  // -1: closed after mapping; such memory can't be passed on
    FileKey key;
    // How the memory that the storage had before is freed; null: it is gone, or lies with the storage.
    void (*before)(Storage*) = nullptr;
    void* before_owner = nullptr;
};

// A file that arrives twice is mapped once, so that tensors that shared a storage share one again.
std::map<FileKey, Storage*>& mapped() {
    static auto* storages = new std::map<FileKey, Storage*>;
    return *storages;
}

constexpr size_t large = size_t(1) << 20;

void unmap(Storage* s) {
    Mapping* m = static_cast<Mapping*>(s->owner);
    munmap(m->data, m->bytes);
    if (m->descriptor >= 0) {
        close(m->descriptor);
        mapped().erase(m->key);
    }
    s->owner = m->before_owner;
    if (m->before) m->before(s);
    delete m;
}

const Mapping* mapping_of(const Storage* s) { return s->release == unmap ? static_cast<const Mapping*>(s->owner) : nullptr; }

FileKey key_of(int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status))
        throw RuntimeError("shared memory: fstat of descriptor ", descriptor, " failed: ", std::strerror(errno));
    return {uint64_t(status.st_dev), uint64_t(status.st_ino)};
}

Mapping* map_file(int descriptor, size_t bytes, bool keep) {
    struct stat status;
    if (fstat(descriptor, &status) || size_t(status.st_size) < bytes)
        throw RuntimeError("shared memory: descriptor ", descriptor, " has no file of ", bytes, " bytes behind it");
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) throw OutOfMemory("cannot map ", bytes, " bytes of shared memory: ", std::strerror(errno));
    int own = -1;
    if (keep && (own = dup(descriptor)) < 0) {
        munmap(data, bytes);
        throw RuntimeError("shared memory: too many open files (", std::strerror(errno), "); raise the limit with `ulimit -n`");
    }
    return new Mapping{data, bytes, own, key_of(descriptor)};
}

Tensor bytes_of(Storage* s) { return from_storage(s, Layout{{int64_t(s->bytes)}, {1}, 0}, DType::u8); }

const Operators operators = {
    // The bytes of a file as a tensor. With `keep` the descriptor is duplicated, so that the memory can be passed on.
    {"_map_shared(int descriptor, int bytes, bool keep)",
     [](int64_t descriptor, int64_t bytes, bool keep) {
         if (bytes <= 0) throw ValueError("_map_shared: expected a positive number of bytes, got ", bytes);
         if (keep) {
             const auto known = mapped().find(key_of(int(descriptor)));
             if (known != mapped().end() && known->second->bytes == size_t(bytes)) return bytes_of(known->second);
         }
         Mapping* m = map_file(int(descriptor), size_t(bytes), keep);
         Storage* s = Storage::wrap(m->data, m->bytes, unmap, m);
         if (keep) mapped()[m->key] = s;
         Tensor t = bytes_of(s);
         s->drop();
         return t;
     },
     stored | function},
    // Moves the memory of a tensor, and of all that share it, into a file.
    {"_move_to_shared(Tensor input, int descriptor)",
     [](const Tensor& t, int64_t descriptor) {
         Storage* s = t.storage();
         if (mapping_of(s) || s->bytes == 0) return;
         if (s->device.type != DeviceType::cpu)
             throw RuntimeError("only memory of the CPU can be moved to shared memory, not ", text_of(s->device));
         Mapping* m = map_file(int(descriptor), s->bytes, true);
         std::memcpy(m->data, s->data(), s->bytes);
         if (s->release && s->exported) {  // NumPy may see it through a tensor: it lives as long as the storage
             m->before = s->release;
             m->before_owner = s->owner;
         } else if (s->release) {
             s->release(s);
         } else {
             // The first block can't be freed before the storage: give its whole pages back to the system.
             const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), begin = uintptr_t(s->data());
             const uintptr_t first = (begin + page - 1) / page * page, last = (begin + s->bytes) / page * page;
             if (s->bytes >= large && first < last && !s->exported) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
         }
         s->address = m->data;
         s->release = unmap;
         s->owner = m;
         s->read_only = false;
         mapped()[m->key] = s;
     },
     stored | function | keeps_memory},
    {"_note_export(Tensor input)", [](const Tensor& t) { t.storage()->exported = true; }, stored | function},
    {"_is_shared(Tensor input)", [](const Tensor& t) { return mapping_of(t.storage()) != nullptr; }, stored | function},
    // The descriptor behind shared memory; -1 if there is none.
    {"_shared_descriptor(Tensor input)",
     [](const Tensor& t) {
         const Mapping* m = mapping_of(t.storage());
         return int64_t(m ? m->descriptor : -1);
     },
     stored | function},
};

}  // namespace
}  // namespace wisp
