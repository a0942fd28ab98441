// Finds and opens NVIDIA's libraries.
#include <Python.h>

#include "driver.h"

#include <dirent.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "../core/errors.h"

namespace wisp::cuda {
namespace {

// Folders that may hold a wheel's libraries: nvidia/cu13/lib (CUDA 13) or nvidia/<wheel>/lib (CUDA 12) in Python's path.
std::vector<std::string> wheel_folders(const char* wheel) {
    std::vector<std::string> roots, folders;
    if (PyObject* path = PySys_GetObject("path"); path && PyList_Check(path))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(path); i++)
            if (const char* entry = PyUnicode_Check(PyList_GET_ITEM(path, i)) ? PyUnicode_AsUTF8(PyList_GET_ITEM(path, i)) : nullptr)
                roots.push_back(entry);
    if (const char* extra = std::getenv("WISP_CUDA_PATH")) {
        std::string list = extra;
        for (size_t at = 0; at <= list.size();) {
            const size_t end = std::min(list.find(':', at), list.size());
            if (end > at) folders.push_back(list.substr(at, end - at));
            at = end + 1;
        }
    }
    for (const std::string& root : roots) {
        folders.push_back(root + "/nvidia/cu13/lib");
        folders.push_back(root + "/nvidia/" + wheel + "/lib");
    }
    for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
        if (const char* home = std::getenv(variable)) folders.push_back(std::string(home) + "/lib64");
    folders.push_back("/usr/local/cuda/lib64");
    return folders;
}

}  // namespace

void* open_library(const char* wheel_folder, std::initializer_list<const char*> names, std::string& tried) {
    for (const char* name : names) {
        for (const std::string& folder : wheel_folders(wheel_folder))
            if (void* library = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
        if (void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
        tried += std::string(tried.empty() ? "" : ", ") + name;
    }
    return nullptr;
}

std::string library_path(void* library) {
    char path[4096] = "";
    return dlinfo(library, RTLD_DI_ORIGIN, path) == 0 ? path : "";
}

void* library_symbol(void* library, const char* name) { return dlsym(library, name); }

static void fill(void** slot, void* library, const char* what, std::initializer_list<const char*> symbols) {
    for (const char* symbol : symbols)
        if (!(*slot++ = dlsym(library, symbol)))
            throw RuntimeError(what, " lacks the function ", symbol, ": it is too old; Wisp needs CUDA 12.8 or newer");
}

void* open_table(const Library& wanted, void** slots, std::initializer_list<const char*> symbols) {
    std::string tried;
    void* library = open_library(wanted.folder, wanted.files, tried);
    if (!library)
        throw RuntimeError(wanted.purpose, " ", wanted.name, ", and it was not found (tried ", tried, "): pip install 'wisp[cuda]'");
    fill(slots, library, wanted.name, symbols);
    return library;
}

const Driver& driver() {
    static const Driver table = [] {
        std::string tried;
        void* library = open_library("driver", {"libcuda.so.1"}, tried);
        if (!library)
            throw RuntimeError(
                "CUDA is not available: found no NVIDIA driver on this machine (libcuda.so.1 could not be opened): use device='cpu', or "
                "install the "
                "driver; `wisp doctor` tells more");
        Driver d;
        fill(reinterpret_cast<void**>(&d), library, "the NVIDIA driver (libcuda.so.1)", {WISP_DRIVER(WISP_SYMBOL)});
        return d;
    }();
    return table;
}

const Nvrtc& nvrtc() {
    static const Nvrtc table = [] {
        Nvrtc n;
        void* library =
            open_table({"NVRTC, NVIDIA's run-time compiler", "CUDA kernels need", "cuda_nvrtc", {"libnvrtc.so.13", "libnvrtc.so.12"}},
                       reinterpret_cast<void**>(&n), {WISP_NVRTC(WISP_SYMBOL)});
        // Its own search for this second library does not look where a wheel put it.
        const std::string folder = library_path(library);
        if (DIR* d = opendir(folder.c_str())) {
            while (dirent* entry = readdir(d))
                if (std::strncmp(entry->d_name, "libnvrtc-builtins.so", 20) == 0)
                    dlopen((folder + "/" + entry->d_name).c_str(), RTLD_NOW | RTLD_GLOBAL);
            closedir(d);
        }
        return n;
    }();
    return table;
}

}  // namespace wisp::cuda
