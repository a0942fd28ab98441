// Counted memory blocks, and devices by name.
#include "storage.h"

#include <cstring>
#include <new>

#include "allocator.h"
#include "errors.h"

namespace wisp {

namespace {
// The header sits in front of the data: one allocation for both.
constexpr size_t header = (sizeof(Storage) + 63) / 64 * 64;
}  // namespace

Storage* Storage::make(size_t bytes) {
    if (bytes > SIZE_MAX / 4) throw OutOfMemory("cannot allocate ", bytes, " bytes");
    char* block = static_cast<char*>(allocate(header + bytes));
    return new (block) Storage{1, block + header, bytes, 0, Device{}, false, nullptr, nullptr};
}

Storage* Storage::wrap(void* data, size_t bytes, void (*release)(Storage*), void* owner) {
    return new (allocate(header)) Storage{1, data, bytes, 0, Device{}, false, release, owner};
}

void Storage::destroy() {
    const bool foreign = release != nullptr;
    if (foreign) release(this);
    // A storage whose data was moved elsewhere still has its first block behind the header; its release says so by
    // clearing `release`.
    deallocate(this, foreign && release ? header : header + bytes);
}

std::string text_of(Device device) {
    const char* names[] = {"cpu", "cuda", "meta"};
    std::string s = names[int(device.type)];
    return device.index < 0 ? s : s + ":" + std::to_string(device.index);
}

Device parse_device(const char* text) {
    const std::string s = text;
    const size_t colon = s.find(':');
    const std::string kind = s.substr(0, colon);
    Device device;
    if (kind == "cpu") device.type = DeviceType::cpu;
    else if (kind == "cuda") device.type = DeviceType::cuda;
    else if (kind == "meta") device.type = DeviceType::meta;
    else
        throw RuntimeError("Expected one of cpu, cuda, meta device type at start of device string: ", s);
    if (colon != std::string::npos) {
        const std::string digits = s.substr(colon + 1);
        if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos || std::stoi(digits) > 127)
            throw RuntimeError("Invalid device string: '", s, "'");
        device.index = int8_t(std::stoi(digits));
    }
    return device;
}

}  // namespace wisp
