// Devices: their names, and the one that the running operator works on.
//
// An operator works where its tensors live: whoever starts one (the argument parser, a pointwise front door, the engine)
// says so with OnDevice, and memory that a front door asks for comes from there. Between operators the current device is
// the default one. None of this costs anything until a tensor lives elsewhere than on the plain CPU (devices_in_use).
#pragma once
#include <cstdint>
#include <string>

namespace wisp {

enum class DeviceType : int8_t { cpu, cuda, meta, nowhere };

struct Device {
    DeviceType type = DeviceType::cpu;
    int8_t index = -1;  // cpu: -1 unless virtual devices are on; cuda: -1 is the current one
    bool operator==(const Device&) const = default;
    bool is_cuda() const { return type == DeviceType::cuda; }
};
constexpr Device unsettled{DeviceType::nowhere, 0};  // see storage.h
std::string text_of(Device device);                  // "cpu", "cuda:0"
Device parse_device(const char* text);               // RuntimeError for an unknown one
Device resolve(Device device);                       // with its index filled in; RuntimeError for one that is not there

extern bool devices_in_use;
// Whether front doors have to look further: devices are in use, or a thread is in a compiled region (`noting`), where operators are
// noted and not run.
extern bool off_plain_path;
extern constinit thread_local bool noting __attribute__((tls_model("initial-exec")));
void use_devices();
void count_regions(int change);  // of all threads
extern thread_local Device current_device_ __attribute__((tls_model("initial-exec")));
inline Device current_device() { return current_device_; }
[[noreturn, gnu::cold]] void refuse_meta();  // MissingKernel: an operator needs values
void set_default_device(Device device);
void set_virtual_devices(int count);  // cpu:0 … cpu:count-1 become devices of their own; 0: off
int virtual_devices();

class OnDevice {
public:
    explicit OnDevice(Device device) : before_(current_device_) { current_device_ = device; }
    ~OnDevice() { current_device_ = before_; }
    OnDevice(const OnDevice&) = delete;

private:
    Device before_;
};

}  // namespace wisp
