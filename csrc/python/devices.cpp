// Devices from Python: the default one, virtual ones, and what wisp.cuda is made of (namespace _cuda).
#include "../compile/tape.h"
#include "../cuda/compiler.h"
#include "../cuda/conv.h"
#include "../core/generator.h"
#include "../cuda/gemm.h"
#include "../cuda/random.h"
#include "../cuda/runtime.h"
#include "registry.h"
#include "../ops/ops.h"

namespace wisp {
namespace {

using cuda::Handle;

int index_of(int64_t index) { return cuda::check_device(int(index)); }
PyObject* text(const std::string& s) { return PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "replace"); }
// A stream or an event: work that is noted or kept is begun before anything is asked of one.
Handle handle(int64_t value) {
    compile::run_notes(false);
    cuda::before_work();
    return reinterpret_cast<Handle>(value);
}

// 600 is "not ready": an answer, not an error.
bool done(cuda::Result r, const char* what) {
    if (r == 600) return false;
    cuda::check(r, what);
    return true;
}

PyObject* names_of(const std::vector<cuda::Instance>& instances) {
    PyObject* list = PyList_New(0);
    for (const cuda::Instance& i : instances) {
        Ref pair(Py_BuildValue("(ss)", i.file.c_str(), i.name.c_str()));
        PyList_Append(list, pair.get());
    }
    return list;
}

// Where one of NVIDIA's libraries was found and its version, or None: for `wisp doctor`.
PyObject* library_facts(std::string name) {
    struct Known {
        const char *name, *folder;
        std::initializer_list<const char*> files;
        const char* version;  // a function that gives it, as a number or through pointers
    };
    static const Known all[] = {{"nvrtc", "cuda_nvrtc", {"libnvrtc.so.13", "libnvrtc.so.12"}, nullptr},
                                {"cublasLt", "cublas", {"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtGetVersion"},
                                {"cudnn", "cudnn", {"libcudnn.so.9"}, "cudnnGetVersion"},
                                {"cufft", "cufft", {"libcufft.so.12", "libcufft.so.11"}, nullptr},
                                {"cusolver", "cusolver", {"libcusolver.so.12", "libcusolver.so.11"}, nullptr}};
    for (const Known& k : all) {
        if (name != k.name) continue;
        std::string tried;
        void* library = cuda::open_library(k.folder, k.files, tried);
        if (!library) break;
        int64_t version = 0;
        if (k.version) {
            if (auto* f = reinterpret_cast<size_t (*)()>(cuda::library_symbol(library, k.version))) version = int64_t(f());
        } else if (name == "nvrtc") {
            int major = 0, minor = 0;
            cuda::nvrtc().version(&major, &minor);
            version = major * 1000 + minor * 10;
        } else if (name == "cufft") {
            int v = 0;
            if (auto* f = reinterpret_cast<int (*)(int*)>(cuda::library_symbol(library, "cufftGetVersion"))) f(&v);
            version = v;
        } else {
            int v = 0;
            if (auto* f = reinterpret_cast<int (*)(int*)>(cuda::library_symbol(library, "cusolverGetVersion"))) f(&v);
            version = v;
        }
        return Py_BuildValue("(sL)", cuda::library_path(library).c_str(), static_cast<long long>(version));
    }
    Py_RETURN_NONE;
}

void append(PyObject* list, int64_t n) {
    Ref number(PyLong_FromLongLong(n));
    PyList_Append(list, number.get());
}

PyObject* counters(std::initializer_list<cuda::Counter> all) {
    PyObject* list = PyList_New(0);
    for (const cuda::Counter& c : all)
        for (int64_t n : {c.now, c.peak, c.taken, c.freed}) append(list, n);
    return list;
}

const Operators operators = {
    {"_default_device()", []() { return text(text_of(current_device())); }, function},
    {"_set_default_device(device? device)", [](std::optional<Device> d) { set_default_device(d.value_or(Device{})); }, function},
    {"set_virtual_devices(int count)", [](int64_t n) { set_virtual_devices(int(std::clamp<int64_t>(n, -1, 100))); }, function,
     R"(Makes `cpu:0`, `cpu:1` ... devices of their own that refuse to mix, to test code for several devices without having them; 0 ends that.
        >>> wisp.set_virtual_devices(0))"},

    {"_cuda.device_count()", []() -> int64_t { return cuda::device_count(); }, function},
    {"_cuda.current_device()", []() -> int64_t { return index_of(-1); }, function},
    {"_cuda.set_device(int device)", [](int64_t i) { cuda::set_device(int(i)); }, function},
    {"_cuda.synchronize(int device=-1)",
     [](int64_t i) {
         const int index = index_of(i);
         compile::run_notes(false);
         OnDevice on({DeviceType::cuda, int8_t(index)});
         cuda::synchronize(index);
     },
     function},
    {"_cuda.properties(int device)",
     [](int64_t i) {
         const cuda::DeviceInfo& d = cuda::device_info(index_of(i));
         return Py_BuildValue("(siiiiiiL)", d.name.c_str(), d.major, d.minor, d.multiprocessors, d.shared_per_block, d.l2_bytes,
                              d.clock_khz, static_cast<long long>(d.memory));
     },
     function},
    {"_cuda.driver_version()",
     []() -> int64_t {
         int v = 0;
         cuda::check(cuda::driver().driver_version(&v), "asking the driver for its version");
         return v;
     },
     function},
    {"_cuda.memory_stats(int device)",
     [](int64_t i) {
         const cuda::MemoryStats s = cuda::memory_stats(index_of(i));
         PyObject* list = counters({s.allocated, s.reserved, s.blocks, s.segments});
         for (int64_t n : {s.retries, s.failures}) append(list, n);
         return list;
     },
     function},
    {"_cuda.pinned_stats()",
     []() {
         const cuda::PinnedStats s = cuda::pinned_stats();
         return counters({s.owned, s.owned_bytes, s.used, s.used_bytes});
     },
     function},
    {"_cuda.reset_pinned_stats(bool peaks)", [](bool peaks) { cuda::reset_pinned_stats(peaks); }, function},
    {"_cuda.memory_pieces(int device)",
     [](int64_t i) {
         PyObject* list = PyList_New(0);
         for (const cuda::PieceOfMemory& p : cuda::memory_pieces(index_of(i))) {
             Ref piece(Py_BuildValue("(LLLLNC)", static_cast<long long>(reinterpret_cast<intptr_t>(p.data)),
                                     static_cast<long long>(p.bytes), static_cast<long long>(reinterpret_cast<intptr_t>(p.stream)),
                                     static_cast<long long>(p.pool), PyBool_FromLong(p.first), int(p.state)));
             PyList_Append(list, piece.get());
         }
         return list;
     },
     function},
    {"_cuda.use_caching(bool keep)", [](bool keep) { return cuda::use_caching(keep); }, function},
    {"_cuda.sync_debug_mode()", []() -> int64_t { return cuda::sync_debug_mode; }, function},
    {"_cuda.set_sync_debug_mode(int mode)", [](int64_t mode) { cuda::sync_debug_mode = int(mode); }, function},
    {"_cuda.library_handles(int device)",
     [](int64_t i) {
         OnDevice on({DeviceType::cuda, int8_t(index_of(i))});
         const auto [blas, solver] = cuda::library_handles();
         return Py_BuildValue("(LL)", static_cast<long long>(reinterpret_cast<intptr_t>(blas)),
                              static_cast<long long>(reinterpret_cast<intptr_t>(solver)));
     },
     function},
    {"_cuda.mem_get_info(int device)",
     [](int64_t i) {
         cuda::ensure_context(index_of(i));
         size_t free = 0, total = 0;
         cuda::check(cuda::driver().memory_info(&free, &total), "asking for free memory");
         return Py_BuildValue("(LL)", static_cast<long long>(free), static_cast<long long>(total));
     },
     function},
    {"_cuda.reset_stats(int device, bool peaks)", [](int64_t i, bool peaks) { cuda::reset_stats(index_of(i), peaks); }, function},
    {"_cuda.limit_memory(int device, int bytes)", [](int64_t i, int64_t bytes) { cuda::limit_memory(index_of(i), bytes); }, function},
    {"_cuda.new_pool()", []() { return cuda::new_pool(); }, function},
    {"_cuda.hold_pool(int pool)", [](int64_t pool) { cuda::hold_pool(pool); }, function},
    {"_cuda.let_go_of_pool(int pool)", [](int64_t pool) { cuda::let_go_of_pool(pool); }, function},
    {"_cuda.use_pool(int pool)",
     [](int64_t pool) {
         const int64_t before = cuda::pool_in_use();
         cuda::use_pool(pool, false);
         return before;
     },
     function},
    {"_cuda.empty_cache(int device)", [](int64_t i) { cuda::empty_cache(index_of(i)); }, function},
    {"_cuda.allow_tf32(bool allowed)", [](bool b) { cuda::allow_tf32(b); }, function},
    {"_cuda.tf32_allowed()", []() { return cuda::tf32_allowed(); }, function},

    {"_cuda.begin_list()", []() { cuda::begin_list(); }, function},
    {"_cuda.end_list()", []() { cuda::end_list(); }, function},

    {"_cuda.conv_settings()",
     []() {
         const cuda::ConvSettings& s = cuda::conv_settings;
         return Py_BuildValue("(NNN)", PyBool_FromLong(s.benchmark), PyBool_FromLong(s.deterministic), PyBool_FromLong(s.tf32));
     },
     function},
    {"_cuda.set_conv_settings(bool benchmark, bool deterministic, bool tf32)",
     [](bool benchmark, bool deterministic, bool tf32) { cuda::conv_settings = {benchmark, deterministic, tf32}; }, function},
    {"_cuda.cudnn_version()", []() { return cuda::cudnn_version(); }, function},

    {"_cuda.default_stream(int device)", [](int64_t i) { return int64_t(cuda::default_stream(index_of(i))); }, function},
    {"_cuda.current_stream(int device)",
     [](int64_t i) {
         OnDevice on({DeviceType::cuda, int8_t(index_of(i))});
         return int64_t(handle(int64_t(cuda::current_stream())));  // others will put work on it
     },
     function},
    {"_cuda.set_stream(int device, int stream)", [](int64_t i, int64_t s) { cuda::set_stream(index_of(i), handle(s)); }, function},
    {"_cuda.new_stream(int device, int priority=0)",
     [](int64_t i, int64_t priority) { return int64_t(cuda::pooled_stream(index_of(i), int(priority))); }, function},
    {"_cuda.own_stream(int device)",
     [](int64_t i) {
         cuda::ensure_context(index_of(i));
         Handle s = nullptr;
         cuda::check(cuda::driver().stream_create(&s, 1, 0), "making a stream");
         return int64_t(s);
     },
     function},
    {"_cuda.stream_synchronize(int stream)",
     [](int64_t s) {
         cuda::wait_stream(handle(s));
         cuda::raise_reports();
     },
     function},
    {"_cuda.stream_query(int stream)", [](int64_t s) { return done(cuda::driver().stream_query(handle(s)), "asking a stream"); }, function},
    {"_cuda.stream_wait(int stream, int event)",
     [](int64_t s, int64_t e) { cuda::check(cuda::driver().stream_wait(handle(s), handle(e), 0), "making a stream wait"); }, function},
    {"_cuda.record_stream(Tensor input, int stream)",
     [](const Tensor& t, int64_t s) {
         if (t.is_cuda()) cuda::record_use(t.storage(), handle(s));
     },
     function},
    {"_cuda.new_event(int device, bool timing)",
     [](int64_t i, bool timing) {
         Handle e = nullptr;
         cuda::ensure_context(index_of(i));
         cuda::check(cuda::driver().event_create(&e, timing ? 0 : 2), "making an event");
         return int64_t(e);
     },
     function},
    {"_cuda.event_record(int event, int stream)",
     [](int64_t e, int64_t s) { cuda::check(cuda::driver().event_record(handle(e), handle(s)), "recording an event"); }, function},
    {"_cuda.event_synchronize(int event)",
     [](int64_t e) {
         cuda::wait_event(handle(e));
         cuda::raise_reports();
     },
     function},
    {"_cuda.event_query(int event)", [](int64_t e) { return done(cuda::driver().event_query(handle(e)), "asking an event"); }, function},
    {"_cuda.event_elapsed(int start, int end)",
     [](int64_t a, int64_t b) {
         float ms = 0;
         cuda::check(cuda::driver().event_elapsed(&ms, handle(a), handle(b)), "taking the time between two events");
         return double(ms);
     },
     function},
    {"_cuda.event_destroy(int event)", [](int64_t e) { cuda::driver().event_destroy(handle(e)); }, function},

    {"_cuda.graph_begin(int stream, int pool)",
     [](int64_t s, int64_t pool) {
         if (cuda::pool_in_use()) throw RuntimeError("CUDAGraph: this thread captures a graph or uses a memory pool already");
         // 2: relaxed, so that memory may be taken from the driver and kernels loaded meanwhile.
         compile::run_notes();
         cuda::check(cuda::driver().stream_capture_begin(handle(s), 2), "beginning to capture a graph");
         cuda::use_pool(pool, true);
         cuda::capture_begins();
     },
     function},
    {"_cuda.graph_end(int stream)",
     [](int64_t s) {
         Handle graph = nullptr, executable = nullptr;
         compile::run_notes();  // in the graph
         const cuda::Result ended = cuda::driver().stream_capture_end(handle(s), &graph);
         cuda::use_pool(0, false);
         cuda::capture_ends();
         cuda::check(ended, "ending the capture of a graph");
         const cuda::Result r = cuda::driver().graph_instantiate(&executable, graph, 0);
         cuda::driver().graph_destroy(graph);
         cuda::check(r, "making a graph ready");
         return int64_t(executable);
     },
     function},
    // Random numbers of a captured graph: the numbers of the capture, moved on at each replay by what the cell holds.
    {"_cuda.random_begin(Tensor cell)", [](const Tensor& cell) { cuda::set_capture_cell(cell.device_data()); }, function},
    {"_cuda.random_end(int seed, int offset)",
     [](int64_t seed, int64_t offset) {
         cuda::set_capture_cell(nullptr);
         Generator& g = default_generator();
         const uint64_t drawn = g.offset - uint64_t(offset);
         if (g.seed == uint64_t(seed)) g.offset = uint64_t(offset);  // nothing was drawn yet
         return int64_t(drawn);
     },
     function},
    {"_cuda.random_state()",
     []() {
         const Generator& g = default_generator();
         return Py_BuildValue("(LL)", static_cast<long long>(g.seed), static_cast<long long>(g.offset));
     },
     function},
    {"_cuda.random_replay(Tensor cell, int seed, int offset, int drawn)",
     [](const Tensor& cell, int64_t seed, int64_t offset, int64_t drawn) {
         Generator& g = default_generator();
         const uint64_t words[2] = {g.seed ^ uint64_t(seed), g.offset - uint64_t(offset)};
         cuda::upload(cell.device_data(), words, sizeof words);
         g.offset += uint64_t(drawn);
     },
     function},
    {"_cuda.graph_launch(int graph, int stream)",
     [](int64_t g, int64_t s) { cuda::check(cuda::driver().graph_launch(handle(g), handle(s)), "replaying a graph"); }, function},
    {"_cuda.graph_destroy(int graph)", [](int64_t g) { cuda::driver().graph_executable_destroy(handle(g)); }, function},
    {"_cuda.is_capturing(int stream)",
     [](int64_t s) {
         int capturing = 0;
         cuda::check(cuda::driver().stream_capturing(handle(s), &capturing), "asking a stream whether it is captured");
         return capturing != 0;
     },
     function},

    // Compiles one kernel and gives its image: for `wisp doctor --warm` and for tests, which have no GPU.
    {"_cuda.compile(str file, str instance, int arch, bool use_cache=True)",
     [](std::string file, std::string instance, int64_t arch, bool use_cache) {
         const std::string image = cuda::compile(file, instance, int(arch), use_cache).image;
         return PyBytes_FromStringAndSize(image.data(), Py_ssize_t(image.size()));
     },
     function},
    // With the interpreter let go, so that several Python threads compile at a time.
    {"_cuda.compile_common(int number, int arch)",
     [](int64_t number, int64_t arch) {
         const cuda::Instance& i = cuda::common_instances().at(size_t(number));
         const bool there = cuda::is_cached(i.file, i.name, int(arch));
         cuda::nvrtc();
         PyThreadState* state = PyEval_SaveThread();
         try {
             if (!there) cuda::compile(i.file, i.name, int(arch));
         } catch (...) {
             PyEval_RestoreThread(state);
             throw;
         }
         PyEval_RestoreThread(state);
         return !there;
     },
     function},
    {"_cuda.common_kernels()", []() { return names_of(cuda::common_instances()); }, function},
    {"_cuda.loaded_kernels()", []() { return names_of(cuda::loaded_instances()); }, function},
    {"_cuda.progress_ahead()",
     []() {
         const auto [done, all] = cuda::progress_ahead();
         return Py_BuildValue("(ii)", done, all);
     },
     function},
    {"_cuda.library(str name)", library_facts, function},
    {"_cuda.cache_folder()", []() { return text(cuda::cache_folder()); }, function},
};

}  // namespace
}  // namespace wisp
