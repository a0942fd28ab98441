// Devices by name, the default one, virtual ones.
#include "device.h"

#include <algorithm>
#include <iterator>

#include "above.h"
#include "errors.h"

namespace wisp {

bool devices_in_use = false;
bool off_plain_path = false;
constinit thread_local bool noting = false;
thread_local Device current_device_;

namespace {

int virtual_count = 0;
int regions = 0;
// The kinds that DeviceType has, then those that programs name, compare with and ask for, and that nothing lives on.
const char* const names[] = {"cpu", "cuda", "meta", "nowhere", "ipu",  "xpu",    "mkldnn", "opengl", "opencl", "ideep",        "hip",
                             "ve",  "fpga", "maia", "xla",     "lazy", "vulkan", "mps",    "hpu",    "mtia",   "privateuseone"};

}  // namespace

void use_devices() {
    devices_in_use = off_plain_path = true;
    if (tape.stir) tape.stir();
}
void count_regions(int change) {
    regions += change;
    off_plain_path = devices_in_use || regions > 0;
}

std::string text_of(Device device) {
    std::string s = names[int(device.type)];
    return device.index < 0 ? s : s + ":" + std::to_string(device.index);
}

Device parse_device(const char* text) {
    const std::string s = text;
    const size_t colon = s.find(':');
    const std::string kind = s.substr(0, colon);
    Device device;
    const auto found = std::find(std::begin(names), std::end(names), kind);
    if (found == std::end(names) || kind == "nowhere")
        throw RuntimeError(
            "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, vulkan, mps, meta, hpu, "
            "mtia, privateuseone device type at start of device string: ",
            s);
    device.type = DeviceType(found - std::begin(names));
    if (colon != std::string::npos) {
        const std::string digits = s.substr(colon + 1);
        if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string::npos || std::stoi(digits) > 127)
            throw RuntimeError("Invalid device string: '", s, "'");
        device.index = int8_t(std::stoi(digits));
    }
    return device;
}

void refuse_meta() { throw MissingKernel("a meta tensor has no data; make it with device='cpu'"); }

Device resolve(Device device) {
    switch (device.type) {
    case DeviceType::cuda: return {DeviceType::cuda, int8_t(accelerator.check_device(device.index))};
    case DeviceType::meta: use_devices(); return {DeviceType::meta, -1};
    case DeviceType::cpu:
    case DeviceType::nowhere: break;
    default: throw RuntimeError("Wisp runs on the CPU and on CUDA: there is no device '", text_of(device), "'");
    }
    if (virtual_count == 0) return {DeviceType::cpu, -1};
    if (device.index < 0) return {DeviceType::cpu, 0};
    if (device.index >= virtual_count)
        throw RuntimeError("device '", text_of(device), "' does not exist: set_virtual_devices made ", virtual_count,
                           " of them, cpu:0 to cpu:", virtual_count - 1);
    return device;
}

// Each thread starts on the default device: its own copy is the plain CPU until it is told.
void set_default_device(Device device) {
    current_device_ = resolve(device);
    if (!(current_device_ == Device{})) use_devices();
}

void set_virtual_devices(int count) {
    if (count < 0 || count > 64) throw ValueError("set_virtual_devices: expected a count from 0 to 64, got ", count);
    virtual_count = count;
    if (count) use_devices();
    if (current_device_.type == DeviceType::cpu) current_device_.index = count ? 0 : -1;
}
int virtual_devices() { return virtual_count; }

}  // namespace wisp
