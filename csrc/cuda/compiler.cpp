// Compiles kernels, and keeps them in memory by instance and on disk by a hash of all that they were made from.
#include "compiler.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>

#include "../core/device.h"
#include "../core/errors.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

uint64_t hash(uint64_t h, const std::string& s) {  // FNV-1a
    for (unsigned char c : s) h = (h ^ c) * 1099511628211u;
    return (h ^ 0xff) * 1099511628211u;
}

// Of every source: a change in any of them makes all kernels anew.
uint64_t hash_of_sources() {
    static const uint64_t value = [] {
        uint64_t h = 1469598103934665603u;
        for (const Source& s : sources()) h = hash(hash(h, s.name), s.text);
        return h;
    }();
    return value;
}

void make_folders(const std::string& path) {
    for (size_t at = 1; at != std::string::npos; at = path.find('/', at + 1)) mkdir(path.substr(0, at).c_str(), 0777);
    mkdir(path.c_str(), 0777);
}

// A cached kernel: its symbol, a newline, its image, and a hash of both, so that a torn file is seen.
bool read_cached(const std::string& path, Compiled& c) {
    FILE* f = std::fopen(path.c_str(), "rb");
    if (!f) return false;
    std::string all;
    char buffer[65536];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, f)) > 0;) all.append(buffer, n);
    std::fclose(f);
    const size_t line = all.find('\n');
    if (line == std::string::npos || all.size() < line + 9) return false;
    c.symbol = all.substr(0, line);
    c.image = all.substr(line + 1, all.size() - line - 9);
    uint64_t kept;
    std::memcpy(&kept, all.data() + all.size() - 8, 8);
    return kept == hash(hash(1, c.symbol), c.image);
}

void write_cached(const std::string& path, const Compiled& c) {
    const std::string temporary = path + "." + std::to_string(getpid());
    FILE* f = std::fopen(temporary.c_str(), "wb");
    if (!f) return;  // a cache that can't be written costs time, nothing else
    const uint64_t h = hash(hash(1, c.symbol), c.image);
    const bool written = std::fprintf(f, "%s\n", c.symbol.c_str()) > 0 &&
                         std::fwrite(c.image.data(), 1, c.image.size(), f) == c.image.size() && std::fwrite(&h, 1, 8, f) == 8;
    if (std::fclose(f) == 0 && written) std::rename(temporary.c_str(), path.c_str());
    else std::remove(temporary.c_str());
}

// Several threads compile: one that wants what another is making waits for it.
class Claim {
public:
    explicit Claim(uint64_t key) : key_(key) {
        std::unique_lock<std::mutex> lock(mutex);
        while (!claimed.insert(key).second) {
            waited = true;
            freed.wait(lock);
        }
    }
    ~Claim() {
        std::lock_guard<std::mutex> lock(mutex);
        claimed.erase(key_);
        freed.notify_all();
    }
    bool waited = false;

private:
    static inline std::mutex mutex;
    static inline std::condition_variable freed;
    static inline std::set<uint64_t> claimed;
    uint64_t key_;
};

// An instance whose text was written for it (program.cpp): it follows that of its file and has the kernel `program`.
bool is_written(const std::string& instance) { return instance.starts_with("/*"); }

Compiled build(const std::string& file, const std::string& instance, int arch) {
    const Nvrtc& n = nvrtc();
    const Source* source = nullptr;
    std::vector<const char*> names, texts;
    for (const Source& s : sources()) {
        if (file == s.name) source = &s;
        names.push_back(s.name);
        texts.push_back(s.text.c_str());
    }
    if (!source) throw RuntimeError("there is no kernel file ", file);
    Handle program = nullptr;
    auto must = [&](Result r, const char* what) {
        if (r != 0) throw RuntimeError("NVRTC error ", r, " in ", what, " of ", file, ": ", instance);
    };
    const std::string text = is_written(instance) ? source->text + "\n" + instance : source->text;
    must(n.create(&program, text.c_str(), file.c_str(), int(names.size()), texts.data(), names.data()), "making the program");
    const std::string expression = is_written(instance) ? "wisp::program" : instance;
    // The instructions for warpgroups are of sm_90 alone, and asked for by the letter.
    const std::string target = "--gpu-architecture=sm_" + std::to_string(arch) + (arch == 90 ? "a" : "");
    must(n.add_name(program, expression.c_str()), "naming the kernel");
    // Random numbers are the CPU's to the last bit: no product is fused with a sum.
    const bool exact = file == "cuda/kernels/random.cuh";
    const char* options[] = {target.c_str(),
                             "--std=c++20",
                             "--extra-device-vectorization",
                             "-default-device",
                             "--diag-suppress=177,550",
                             exact ? "--fmad=false" : "--fmad=true"};
    const Result result = n.compile(program, int(sizeof options / sizeof *options), options);
    if (result != 0) {
        size_t size = 0;
        n.log_size(program, &size);
        std::string log(size, ' ');
        n.log(program, log.data());
        n.destroy(&program);
        throw RuntimeError("a CUDA kernel did not compile: ", file, ": ", instance, " for sm_", arch, "\n", log);
    }
    Compiled c;
    const char* symbol = nullptr;
    must(n.lowered_name(program, expression.c_str(), &symbol), "naming the kernel");
    c.symbol = symbol;
    size_t size = 0;
    must(n.cubin_size(program, &size), "reading the kernel");
    c.image.resize(size);
    must(n.cubin(program, c.image.data()), "reading the kernel");
    n.destroy(&program);
    return c;
}

}  // namespace

std::string cache_folder() {
    if (const char* given = std::getenv("WISP_CACHE")) return given;
    if (const char* cache = std::getenv("XDG_CACHE_HOME")) return std::string(cache) + "/wisp/kernels";
    const char* home = std::getenv("HOME");
    return std::string(home ? home : "/tmp") + "/.cache/wisp/kernels";
}

// Where an instance is kept, and the hash that names it. The compiler's version is no part of it: a filled cache needs none.
static std::string cached_path(const std::string& file, const std::string& instance, int arch, uint64_t& key) {
    key = hash(hash(hash(hash_of_sources(), file), instance), std::to_string(arch));
    char name[64];
    std::snprintf(name, sizeof name, "/%016llx.sm_%d", static_cast<unsigned long long>(key), arch);
    static const std::string folder = [] {
        std::string f = cache_folder();
        make_folders(f);
        return f;
    }();
    return folder + name;
}

bool is_cached(const std::string& file, const std::string& instance, int arch) {
    uint64_t key;
    return access(cached_path(file, instance, arch, key).c_str(), R_OK) == 0;
}

Compiled compile(const std::string& file, const std::string& instance, int arch, bool use_cache) {
    uint64_t key;
    const std::string path = cached_path(file, instance, arch, key);
    Compiled c;
    if (!use_cache) return build(file, instance, arch);
    if (read_cached(path, c)) return c;
    Claim claim(key);
    if (claim.waited && read_cached(path, c)) return c;
    c = build(file, instance, arch);
    write_cached(path, c);
    return c;
}

// --- kernels that are loaded -------------------------------------------------------------------------------------------

struct Kernel {
    std::string file, instance, title;
    bool early = false;        // see send_launch
    Handle function[64] = {};  // by device
    unsigned shared[64] = {};  // dynamic shared memory that was asked for
};

static std::unordered_map<std::string, Kernel> kernels;

// Whether a kernel's text says so.
static bool begins_early(const std::string& file, const std::string& instance) {
    constexpr const char* says = "begin_early();";
    if (is_written(instance)) return instance.find(says) != std::string::npos;
    const std::string name = " " + instance.substr(0, instance.find('<')) + "(";
    for (const Source& s : sources()) {
        if (file != s.name) continue;
        const size_t at = s.text.find(name);
        return at != std::string::npos && s.text.find(says, at) < s.text.find("__global__", at);
    }
    return false;
}

Kernel* find_kernel(const char* file, const std::string& instance) {
    Kernel& k = kernels[instance];
    if (k.instance.empty()) {
        k.file = file;
        k.instance = instance;
        k.early = begins_early(k.file, instance);
        k.title = is_written(instance) ? "program:" + instance.substr(2, instance.find(" */") - 2) : instance;
    }
    return &k;
}

std::vector<Instance> loaded_instances() {
    std::vector<Instance> all;
    for (const auto& [name, k] : kernels)
        for (Handle f : k.function)
            if (f) {
                all.push_back({k.file, name});
                break;
            }
    return all;
}

static Handle load(Kernel* kernel, int index) {
    const DeviceInfo& info = device_info(index);
    const int arch = info.major * 10 + info.minor;
    if (!is_cached(kernel->file, kernel->instance, arch)) compile_ahead(arch);
    const Compiled c = compile(kernel->file, kernel->instance, arch);
    Handle module = nullptr;
    check(driver().module_load(&module, c.image.data()), "loading a kernel");
    check(driver().module_function(&kernel->function[index], module, c.symbol.c_str()), "finding a kernel");
    return kernel->function[index];
}

KeptLaunch last_kept(const Kernel* kernel) {
    const Handle f = kernel->function[current_device().index];
    return f ? last_kept(f, current_stream()) : KeptLaunch{};
}

Result send_launch(Handle function, Grid grid, Grid block, unsigned shared, bool early, Handle stream, void** arguments) {
    const Driver& d = driver();
    if (!early) return d.launch(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, arguments, nullptr);
    LaunchAttribute attribute;
    const LaunchConfig config{grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream, &attribute, 1};
    return d.launch_early(&config, function, arguments, nullptr);
}

void launch(Kernel* kernel, Grid grid, Grid block, unsigned shared, void** arguments, const uint32_t* sizes, int count) {
    const bool keep = keeps_now();
    if (!keep) before_work();
    const Handle stream = current_stream();
    const Device d = current_device();
    const int index = d.is_cuda() && d.index >= 0 ? d.index : current_index();
    Handle f = kernel->function[index];
    if (!f) [[unlikely]]
        f = load(kernel, index);
    if (shared > 48 * 1024 && shared > kernel->shared[index]) {
        check(driver().function_attribute(f, 8, int(shared)), "asking for shared memory");
        kernel->shared[index] = shared;
    }
    const bool early = kernel->early && device_info(index).major >= 9;
    if (keep) return keep_launch(kernel->title.c_str(), f, grid, block, shared, early, stream, arguments, sizes, count);
    Timed timed(kernel->title.c_str());
    const Result r = send_launch(f, grid, block, shared, early, stream, arguments);
    if (r != 0) [[unlikely]]
        check(r, kernel->title.c_str());
}

}  // namespace wisp::cuda
