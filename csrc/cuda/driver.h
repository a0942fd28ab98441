// The CUDA driver and NVRTC, opened at run time: the few functions that Wisp calls, through a table of pointers.
// Nothing of CUDA is needed to build or to import; types and numbers below are those of the public interface.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace wisp::cuda {

using Result = int;    // 0: success
using Handle = void*;  // a context, stream, event, module, function, graph
using Pointer = unsigned long long;

// A launch in a graph: CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelNode {
    Handle function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    void** arguments;
    void** extra = nullptr;
    Handle kernel = nullptr, context = nullptr;  // the current context
};

// CUlaunchConfig with one attribute, which lets a kernel begin before the one in front of it has ended.
struct LaunchAttribute {
    int id = 6;  // programmatic stream serialization
    int padding = 0;
    int allowed = 1;
    char rest[60] = {};
};
struct LaunchConfig {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    Handle stream;
    LaunchAttribute* attributes;
    unsigned count;
};

// X(return type, name in the table, symbol, parameters)
#define WISP_DRIVER(X)                                                                                                      \
    X(init, cuInit, (unsigned flags))                                                                                       \
    X(driver_version, cuDriverGetVersion, (int*))                                                                           \
    X(device_count, cuDeviceGetCount, (int*))                                                                               \
    X(device_get, cuDeviceGet, (int*, int))                                                                                 \
    X(device_name, cuDeviceGetName, (char*, int, int))                                                                      \
    X(device_attribute, cuDeviceGetAttribute, (int*, int attribute, int device))                                            \
    X(device_memory, cuDeviceTotalMem_v2, (size_t*, int))                                                                   \
    X(device_uuid, cuDeviceGetUuid_v2, (void*, int))                                                                        \
    X(context_retain, cuDevicePrimaryCtxRetain, (Handle*, int))                                                             \
    X(context_set, cuCtxSetCurrent, (Handle))                                                                               \
    X(context_synchronize, cuCtxSynchronize, ())                                                                            \
    X(memory_info, cuMemGetInfo_v2, (size_t* free, size_t* total))                                                          \
    X(memory_allocate, cuMemAlloc_v2, (Pointer*, size_t))                                                                   \
    X(memory_free, cuMemFree_v2, (Pointer))                                                                                 \
    X(host_allocate, cuMemHostAlloc, (void**, size_t, unsigned flags))                                                      \
    X(host_free, cuMemFreeHost, (void*))                                                                                    \
    X(copy_to_device, cuMemcpyHtoDAsync_v2, (Pointer, const void*, size_t, Handle stream))                                  \
    X(copy_to_host, cuMemcpyDtoHAsync_v2, (void*, Pointer, size_t, Handle stream))                                          \
    X(copy_within, cuMemcpyDtoDAsync_v2, (Pointer, Pointer, size_t, Handle stream))                                         \
    X(copy_between, cuMemcpyPeerAsync, (Pointer, Handle, Pointer, Handle, size_t, Handle stream))                           \
    X(fill_bytes, cuMemsetD8Async, (Pointer, unsigned char, size_t, Handle stream))                                         \
    X(stream_create, cuStreamCreateWithPriority, (Handle*, unsigned flags, int priority))                                   \
    X(stream_destroy, cuStreamDestroy_v2, (Handle))                                                                         \
    X(stream_synchronize, cuStreamSynchronize, (Handle))                                                                    \
    X(stream_query, cuStreamQuery, (Handle))                                                                                \
    X(stream_wait, cuStreamWaitEvent, (Handle, Handle event, unsigned))                                                     \
    X(stream_capture_begin, cuStreamBeginCapture_v2, (Handle, int mode))                                                    \
    X(stream_capture_end, cuStreamEndCapture, (Handle, Handle * graph))                                                     \
    X(stream_capturing, cuStreamIsCapturing, (Handle, int*))                                                                \
    X(stream_capture_info, cuStreamGetCaptureInfo_v3,                                                                       \
      (Handle, int* status, unsigned long long* id, Handle* graph, const Handle** last, const void** edges, size_t* count)) \
    X(graph_instantiate, cuGraphInstantiateWithFlags, (Handle * executable, Handle graph, unsigned long long))              \
    X(graph_launch, cuGraphLaunch, (Handle executable, Handle stream))                                                      \
    X(graph_set_kernel, cuGraphExecKernelNodeSetParams_v2, (Handle executable, Handle node, const KernelNode*))             \
    X(graph_destroy, cuGraphDestroy, (Handle))                                                                              \
    X(graph_executable_destroy, cuGraphExecDestroy, (Handle))                                                               \
    X(event_create, cuEventCreate, (Handle*, unsigned flags))                                                               \
    X(event_destroy, cuEventDestroy_v2, (Handle))                                                                           \
    X(event_record, cuEventRecord, (Handle, Handle stream))                                                                 \
    X(event_synchronize, cuEventSynchronize, (Handle))                                                                      \
    X(event_query, cuEventQuery, (Handle))                                                                                  \
    X(event_elapsed, cuEventElapsedTime, (float*, Handle, Handle))                                                          \
    X(module_load, cuModuleLoadData, (Handle*, const void* image))                                                          \
    X(module_function, cuModuleGetFunction, (Handle*, Handle module, const char* name))                                     \
    X(function_attribute, cuFuncSetAttribute, (Handle, int attribute, int value))                                           \
    X(launch, cuLaunchKernel,                                                                                               \
      (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared, Handle stream, void**, void**)) \
    X(launch_early, cuLaunchKernelEx, (const LaunchConfig*, Handle, void**, void**))                                        \
    X(error_text, cuGetErrorString, (Result, const char**))                                                                 \
    X(error_name, cuGetErrorName, (Result, const char**))

#define WISP_NVRTC(X)                                                                                                         \
    X(version, nvrtcVersion, (int*, int*))                                                                                    \
    X(create, nvrtcCreateProgram, (Handle*, const char* text, const char* name, int, const char* const*, const char* const*)) \
    X(destroy, nvrtcDestroyProgram, (Handle*))                                                                                \
    X(compile, nvrtcCompileProgram, (Handle, int, const char* const*))                                                        \
    X(add_name, nvrtcAddNameExpression, (Handle, const char*))                                                                \
    X(lowered_name, nvrtcGetLoweredName, (Handle, const char*, const char**))                                                 \
    X(cubin_size, nvrtcGetCUBINSize, (Handle, size_t*))                                                                       \
    X(cubin, nvrtcGetCUBIN, (Handle, char*))                                                                                  \
    X(log_size, nvrtcGetProgramLogSize, (Handle, size_t*))                                                                    \
    X(log, nvrtcGetProgramLog, (Handle, char*))

// For lists such as those above: the fields of a table of functions, and the names of their symbols.
#define WISP_FIELD(name, symbol, parameters) Result(*name) parameters;
#define WISP_SYMBOL(name, symbol, parameters) #symbol,

struct Driver {
    WISP_DRIVER(WISP_FIELD)
};
struct Nvrtc {
    WISP_NVRTC(WISP_FIELD)
};

// Each opens its library on first use and throws a RuntimeError that says what is missing and how to get it.
const Driver& driver();
const Nvrtc& nvrtc();

// Opens the first of the names that can be found: among NVIDIA's wheels in site-packages, in a toolkit, by the system's
// search path. Null, with the reasons in `tried`, if there is none. `pattern`: folders of wheels, such as "cublas".
void* open_library(const char* wheel_folder, std::initializer_list<const char*> names, std::string& tried);
std::string library_path(void* library);                // where an opened one came from
void* library_symbol(void* library, const char* name);  // null if it is not there

// A library and what it is for, as errors say it.
struct Library {
    const char* name;     // "cuDNN 9"
    const char* purpose;  // "convolution on the GPU needs"
    const char* folder;   // of its wheel
    std::initializer_list<const char*> files;
};
// Opens a library and fills a table of functions in the order of `symbols`; RuntimeError if it, or one of them, is not
// there: static const Cudnn table = open_table<Cudnn>({...}, {WISP_CUDNN(WISP_SYMBOL)}).
void* open_table(const Library& library, void** slots, std::initializer_list<const char*> symbols);
template <class Table> Table open_table(const Library& library, std::initializer_list<const char*> symbols) {
    Table table;
    open_table(library, reinterpret_cast<void**>(&table), symbols);
    return table;
}

}  // namespace wisp::cuda
