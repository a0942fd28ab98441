// Compiles kernels before they are asked for: the first one that is not in the cache starts a few threads, which make the
// common ones while the program goes on. A first training run waits seconds, and later ones for nothing.
#include <Python.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "../core/errors.h"
#include "compiler.h"

asm(".pushsection .rodata\n.global wisp_common_kernels\nwisp_common_kernels:\n.incbin \"cuda/kernels/common.txt\"\n.byte 0\n.popsection");
extern "C" __attribute__((visibility("hidden"))) const char wisp_common_kernels[];

namespace wisp::cuda {
namespace {

std::vector<std::thread> threads;
std::atomic<int> next{0}, finished{0};
std::atomic<bool> stop{false};
std::atomic<int> running{0};
bool shown = false;

void show(bool last) {
    if (!shown) return;
    if (last) std::fprintf(stderr, "\r\033[K");
    else std::fprintf(stderr, "\rwisp: compiling GPU kernels, once: %d of %d ", finished.load(), int(common_instances().size()));
    std::fflush(stderr);
}

void work(int arch) {
    const auto& all = common_instances();
    for (int i; !stop && (i = next++) < int(all.size());) {
        try {
            if (!is_cached(all[i].file, all[i].name, arch)) {
                compile(all[i].file, all[i].name, arch);
                show(false);
            }
        } catch (const std::exception&) {
            // whoever needs it meets the error himself
        }
        finished++;
    }
    if (--running == 0) show(true);
}

void finish() {
    stop = true;
    for (std::thread& t : threads) t.join();
}

}  // namespace

// Lines of a file, a blank and an instance.
const std::vector<Instance>& common_instances() {
    static const std::vector<Instance> all = [] {
        std::vector<Instance> list;
        const std::string text = wisp_common_kernels;
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find('\n', at), text.size()), blank = text.find(' ', at);
            if (blank < end) list.push_back({"cuda/kernels/" + text.substr(at, blank - at), text.substr(blank + 1, end - blank - 1)});
            at = end + 1;
        }
        return list;
    }();
    return all;
}

void compile_ahead(int arch) {
    static bool started = false;
    if (started) return;
    started = true;
    nvrtc();  // opened here: finding it needs the interpreter
    const std::string folder = cache_folder();
    const int count = std::clamp(int(std::thread::hardware_concurrency()) - 1, 1, 8);
    if (common_instances().empty() || access(folder.c_str(), W_OK) != 0 || Py_AtExit(finish) != 0) return;
    shown = isatty(2);
    running = count;
    for (int i = 0; i < count; i++) threads.emplace_back(work, arch);
}

std::pair<int, int> progress_ahead() { return {finished.load(), int(common_instances().size())}; }

}  // namespace wisp::cuda
