// Kernels from text: NVRTC compiles them for the GPU that is there, and a cache on disk keeps the result.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "driver.h"

namespace wisp::cuda {

struct Source {
    const char* name;
    std::string text;
};
const std::vector<Source>& sources();  // the kernels and what they include, embedded in the library

struct Compiled {
    std::string symbol;  // the kernel's name in the image
    std::string image;   // a cubin
};
// Compiles one instance of a kernel for architecture `arch` (90: sm_90), or takes it from the cache. Needs no GPU.
// RuntimeError with the compiler's log if it can't.
Compiled compile(const std::string& file, const std::string& instance, int arch, bool use_cache = true);
bool is_cached(const std::string& file, const std::string& instance, int arch);
std::string cache_folder();  // WISP_CACHE, or wisp/kernels in the user's cache folder

// --- ahead of need (ahead.cpp)

struct Instance {
    std::string file, name;
};
const std::vector<Instance>& common_instances();  // what the usual training programs launch: kernels/common.txt
// Begins to compile what is common in a few threads, while the program goes on; the first call of a process does.
void compile_ahead(int arch);
// How far they are: instances done, and in all.
std::pair<int, int> progress_ahead();
std::vector<Instance> loaded_instances();  // that this process launched

}  // namespace wisp::cuda
