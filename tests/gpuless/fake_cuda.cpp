// A stand-in for NVIDIA's driver and libraries on a machine without a GPU: memory is the processor's, kernels do nothing,
// and NVRTC notes what it was asked to compile. The host's side of every operator runs as it does on a GPU.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

long launches = 0, early_launches = 0, graph_launches = 0, changed_nodes = 0, live_bytes = 0;
constexpr size_t memory = size_t(8) << 30;
void* captured = nullptr;  // the stream, of which there is one at a time

struct Program {
    std::string file, expression, written;
};

// Handles are addresses that are never read.
int handle(void** out) {
    static char cells[1 << 16];
    static unsigned next = 0;
    *out = &cells[next++ % sizeof cells];
    return 0;
}

}  // namespace

#define FINE(name) \
    int name() { return 0; }
#define MAKES(name) \
    int name(void** out) { return handle(out); }

extern "C" {

// --- driver -----------------------------------------------------------------------------------------------------------
// clang-format off: a list of names
FINE(cuInit) FINE(cuCtxSetCurrent) FINE(cuCtxSynchronize) FINE(cuStreamDestroy_v2) FINE(cuStreamSynchronize) FINE(cuStreamQuery)
FINE(cuStreamWaitEvent) FINE(cuGraphDestroy) FINE(cuGraphExecDestroy) FINE(cuEventDestroy_v2)
FINE(cuEventRecord) FINE(cuEventSynchronize) FINE(cuEventQuery) FINE(cuFuncSetAttribute) MAKES(cuDevicePrimaryCtxRetain)
MAKES(cuStreamCreateWithPriority) MAKES(cuGraphInstantiateWithFlags) MAKES(cuEventCreate) MAKES(cuModuleGetFunction)
// clang-format on
int cuDriverGetVersion(int* v) { return *v = 13000, 0; }
int cuDeviceGetCount(int* n) {
    const char* asked = std::getenv("FAKE_CUDA_DEVICES");
    return *n = asked ? std::atoi(asked) : 2, 0;
}
int cuDeviceGet(int* device, int index) { return *device = index, 0; }
int cuDeviceGetName(char* name, int size, int) { return std::snprintf(name, size, "Stand-in GPU"), 0; }
int cuDeviceGetAttribute(int* v, int attribute, int) {
    switch (attribute) {
    case 75: *v = 9; break;  // compute capability
    case 76: *v = 0; break;
    case 16: *v = 132; break;         // multiprocessors
    case 97: *v = 227 * 1024; break;  // shared memory per block
    case 38: *v = 50 << 20; break;    // L2
    case 13: *v = 1980000; break;     // clock
    default: *v = 1;
    }
    return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = memory, 0; }
int cuDeviceGetUuid_v2(void* uuid, int) { return std::memset(uuid, 7, 16), 0; }
int cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = memory - live_bytes, *total = memory, 0; }
int cuMemAlloc_v2(unsigned long long* p, size_t bytes) {
    if (live_bytes + bytes > memory) return 2;
    auto* block = static_cast<size_t*>(std::calloc(1, bytes + 512));
    if (!block) return 2;
    *block = bytes;
    live_bytes += bytes;
    return *p = reinterpret_cast<unsigned long long>(block) + 256, 0;
}
int cuMemFree_v2(unsigned long long p) {
    auto* block = reinterpret_cast<size_t*>(p - 256);
    live_bytes -= *block;
    return std::free(block), 0;
}
int cuMemHostAlloc(void** p, size_t bytes, unsigned) { return *p = std::calloc(1, bytes), 0; }
int cuMemFreeHost(void* p) { return std::free(p), 0; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, size_t n, void*) {
    return std::memcpy(reinterpret_cast<void*>(to), from, n), 0;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, size_t n, void*) {
    // What kernels should have written is old memory: where a program reads counts, zeros are the better nonsense.
    static const bool zeros = std::getenv("FAKE_CUDA_ZEROS");
    return zeros ? std::memset(to, 0, n) : std::memcpy(to, reinterpret_cast<void*>(from), n), 0;
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t n, void*) {
    return std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n), 0;
}
int cuMemcpyPeerAsync(unsigned long long to, void*, unsigned long long from, void*, size_t n, void*) {
    return std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n), 0;
}
int cuMemsetD8Async(unsigned long long to, unsigned char v, size_t n, void*) { return std::memset(reinterpret_cast<void*>(to), v, n), 0; }
int cuStreamBeginCapture_v2(void* stream, int) { return captured ? 900 : (captured = stream, 0); }
int cuStreamEndCapture(void* stream, void** graph) { return stream != captured ? 900 : (captured = nullptr, handle(graph)); }
int cuStreamGetCaptureInfo_v3(void* stream, int* state, unsigned long long*, void**, void* const** last, const void**, size_t* count) {
    static void* node;
    return *state = stream == captured, handle(&node), *last = &node, *count = 1, 0;
}
int cuGraphLaunch() { return graph_launches++, 0; }
int cuGraphExecKernelNodeSetParams_v2() { return changed_nodes++, 0; }
int cuStreamIsCapturing(void* stream, int* state) { return *state = stream == captured, 0; }
int cuEventElapsedTime(float* t, void*, void*) {  // less and less, so that what is tried out later wins
    static float time = 1;
    return *t = time = time < 0.1f ? 1 : time * 0.98f, 0;
}
int cuModuleLoadData(void** module, const void*) { return handle(module); }
int cuLaunchKernel(void*, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared) {
    launches++;
    // What a real device refuses.
    if (!x || !y || !z || y > 65535 || z > 65535 || x > 0x7fffffffu || !(bx * by * bz) || bx * by * bz > 1024 || shared > 227 * 1024)
        return 1;
    return 0;
}
struct LaunchConfig {
    unsigned x, y, z, bx, by, bz, shared;
};
int cuLaunchKernelEx(const LaunchConfig* c) {
    early_launches++;
    return cuLaunchKernel(nullptr, c->x, c->y, c->z, c->bx, c->by, c->bz, c->shared);
}
int cuGetErrorString(int, const char** text) { return *text = "the stand-in refused", 0; }
int cuGetErrorName(int, const char** text) { return *text = "STAND_IN", 0; }
long fake_launches() { return launches; }
long fake_early_launches() { return early_launches; }
long fake_graph_launches() { return graph_launches; }
long fake_changed_nodes() { return changed_nodes; }

// --- NVRTC ------------------------------------------------------------------------------------------------------------
int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
int nvrtcCreateProgram(void** program, const char* text, const char* name) {
    auto* p = new Program;
    p->file = name;
    if (const char* last = std::strrchr(text, '\n'); last && !std::strncmp(last + 1, "/*", 2)) p->written = last + 1;
    return *program = p, 0;
}
int nvrtcDestroyProgram(void** program) { return delete static_cast<Program*>(*program), 0; }
int nvrtcAddNameExpression(void* program, const char* expression) {
    auto* p = static_cast<Program*>(program);
    p->expression = expression;
    if (const char* path = std::getenv("FAKE_CUDA_KERNELS"))
        if (FILE* f = std::fopen(path, "a")) {
            std::fprintf(f, "%s\t%s\n", p->file.c_str(), p->written.empty() ? expression : p->written.c_str());
            std::fclose(f);
        }
    return 0;
}
FINE(nvrtcCompileProgram)
int nvrtcGetLoweredName(void*, const char* expression, const char** name) { return *name = expression, 0; }
int nvrtcGetCUBINSize(void*, size_t* n) { return *n = 4, 0; }
int nvrtcGetCUBIN(void*, char* image) { return std::memcpy(image, "fake", 4), 0; }
int nvrtcGetProgramLogSize(void*, size_t* n) { return *n = 1, 0; }
int nvrtcGetProgramLog(void*, char* log) { return *log = 0, 0; }

// --- cuBLASLt ---------------------------------------------------------------------------------------------------------
// clang-format off: a list of names
MAKES(cublasLtCreate) MAKES(cublasLtMatmulDescCreate) MAKES(cublasLtMatrixLayoutCreate) MAKES(cublasLtMatmulPreferenceCreate)
FINE(cublasLtMatmulDescSetAttribute) FINE(cublasLtMatrixLayoutSetAttribute) FINE(cublasLtMatmulPreferenceSetAttribute)
FINE(cublasLtMatmulDescDestroy) FINE(cublasLtMatrixLayoutDestroy) FINE(cublasLtMatmulPreferenceDestroy)
FINE(cublasLtDestroy)
// clang-format on
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int asked, void* to, int* found) {
    *found = asked < 2 ? asked : 2;
    return std::memset(to, 0, 96 * size_t(*found)), 0;
}
// The library loads a complex factor with one instruction that wants 16 bytes of alignment.
int cublasLtMatmul(void*, void*, const void* alpha) { return uintptr_t(alpha) % 16 ? 7 : 0; }
size_t cublasLtGetVersion() { return 130000; }

// --- cuDNN ------------------------------------------------------------------------------------------------------------
// clang-format off: a list of names
MAKES(cudnnCreate) FINE(cudnnSetStream) FINE(cudnnBackendDestroyDescriptor) FINE(cudnnBackendSetAttribute)
FINE(cudnnBackendFinalize) FINE(cudnnBackendExecute)
// clang-format on
int cudnnBackendCreateDescriptor(int, void** out) { return handle(out); }
int cudnnBackendGetAttribute(void*, int name, int, long long, long long* count, void* values) {
    *count = name == 1303 ? 0 : 1;                          // an engine without notes; else one of everything
    if (name == 402) *static_cast<long long*>(values) = 0;  // that needs no memory
    return 0;
}
size_t cudnnGetVersion() { return 91000; }

// --- cuFFT ------------------------------------------------------------------------------------------------------------
// clang-format off: a list of names
FINE(cufftCreate) FINE(cufftDestroy) FINE(cufftSetAutoAllocation) FINE(cufftMakePlanMany64) FINE(cufftSetWorkArea)
FINE(cufftSetStream) FINE(cufftXtExec)
// clang-format on

// --- cuSOLVER and cuBLAS ----------------------------------------------------------------------------------------------
// clang-format off: a list of names
MAKES(cusolverDnCreate) MAKES(cusolverDnCreateGesvdjInfo) MAKES(cusolverDnCreateParams) MAKES(cublasCreate_v2)
FINE(cusolverDnSetStream) FINE(cublasSetStream_v2) FINE(cusolverDnXgeev_bufferSize) FINE(cusolverDnXgeev)
#define SIZED(name) FINE(name) FINE(name##_bufferSize)
#define SOLVER(T) SIZED(cusolverDn##T##getrf) FINE(cusolverDn##T##getrs) SIZED(cusolverDn##T##potrf) FINE(cusolverDn##T##potrfBatched) \
    SIZED(cusolverDn##T##geqrf) SIZED(cusolverDn##T##gesvdj)
#define REAL(T) SOLVER(T) SIZED(cusolverDn##T##orgqr) SIZED(cusolverDn##T##ormqr) SIZED(cusolverDn##T##syevd)
#define COMPLEX(T) SOLVER(T) SIZED(cusolverDn##T##ungqr) SIZED(cusolverDn##T##unmqr) SIZED(cusolverDn##T##heevd)
#define BLAS(T) FINE(cublas##T##trsm_v2) FINE(cublas##T##trsmBatched) FINE(cublas##T##getrfBatched) FINE(cublas##T##getrsBatched)
REAL(S) REAL(D) COMPLEX(C) COMPLEX(Z) BLAS(S) BLAS(D) BLAS(C) BLAS(Z)
// clang-format on
}
