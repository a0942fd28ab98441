#include "cudnn.h"

#include <algorithm>

#include "../core/errors.h"

namespace wisp::cuda {

const Cudnn& cudnn() {
    static const Cudnn table =
        open_table<Cudnn>({"cuDNN 9", "convolution on the GPU needs", "cudnn", {"libcudnn.so.9"}}, {WISP_CUDNN(WISP_SYMBOL)});
    return table;
}

void must(Result r, const char* what) {
    if (r != 0) throw RuntimeError("cuDNN error ", r, " (", what, ")");
}

Handle cudnn_handle_of(int device) {
    static Handle handles[64] = {}, streams[64] = {};
    if (!handles[device]) must(cudnn().create(&handles[device]), "starting");
    before_work();
    const Handle stream = current_stream();
    if (stream != streams[device]) {
        must(cudnn().set_stream(handles[device], stream), "choosing the stream");
        streams[device] = stream;
    }
    return handles[device];
}

int data_type(DType d) {
    switch (d) {
    case DType::f32: return 0;
    case DType::f64: return 1;
    case DType::f16: return 2;
    case DType::bf16: return 9;
    default: throw RuntimeError("convolution on cuda is not implemented for '", name_of(d), "'");
    }
}

Handle describe(int kind, std::initializer_list<Attribute> attributes) {
    const Cudnn& c = cudnn();
    Handle d = nullptr;
    if (c.make(kind, &d) != 0) return nullptr;
    Result r = 0;
    for (const Attribute& a : attributes)
        if (r == 0 && a.count) r = c.set(d, a.name, a.type, a.count, a.values);
    if (r == 0) r = c.finalize(d);
    if (r == 0) return d;
    c.destroy(d);
    return nullptr;
}
Handle describe_surely(const char* what, int kind, std::initializer_list<Attribute> attributes) {
    const Handle d = describe(kind, attributes);
    if (!d) throw RuntimeError("cuDNN does not accept ", what, " of this convolution");
    return d;
}

std::vector<Handle> configurations_of(Handle graph, int mode) {
    const Cudnn& c = cudnn();
    const Handle heuristic = describe(heuristic_kind, {{200, type_heuristic, 1, &mode}, {201, type_descriptor, 1, &graph}});
    int64_t count = 0, given = 0;
    if (!heuristic || c.get(heuristic, 202, type_descriptor, 0, &count, nullptr) != 0) return {};
    std::vector<Handle> configurations(static_cast<size_t>(count));
    for (Handle& h : configurations) must(c.make(configuration_kind, &h), "making a descriptor");
    if (count) c.get(heuristic, 202, type_descriptor, count, &given, configurations.data());
    configurations.resize(static_cast<size_t>(given));
    return configurations;
}

std::vector<int> notes_of(Handle configuration) {
    const Cudnn& c = cudnn();
    Handle engine = nullptr;
    must(c.make(engine_kind, &engine), "making a descriptor");
    int64_t count = 0, notes_count = 0;
    int notes[32];
    if (c.get(configuration, 300, type_descriptor, 1, &count, &engine) == 0) c.get(engine, 1303, type_note, 32, &notes_count, notes);
    c.destroy(engine);
    return std::vector<int>(notes, notes + std::min<int64_t>(notes_count, 32));
}

EnginePlan plan_of(Handle configuration, Handle cudnn_handle) {
    constexpr int64_t most_workspace = int64_t(4) << 30;
    const Cudnn& c = cudnn();
    EnginePlan p;
    p.plan = describe(plan_kind, {{400, type_handle, 1, &cudnn_handle}, {401, type_descriptor, 1, &configuration}});
    int64_t one = 0;
    if (!p.plan || (c.get(p.plan, 402, type_integer, 1, &one, &p.workspace) == 0 && p.workspace <= most_workspace)) return p;
    c.destroy(p.plan);
    return {};
}

void execute(const EnginePlan& p, Handle cudnn_handle, const int64_t* names, const void* const* pointers, int count) {
    const Cudnn& c = cudnn();
    Scratch workspace(size_t(std::max<int64_t>(p.workspace, 1)));
    const void* memory = workspace.data();
    const Handle pack =
        describe_surely("the pointers", pack_kind,
                        {{1000, type_integer, count, names}, {1001, type_pointer, count, pointers}, {1003, type_pointer, 1, &memory}});
    const Result r = c.execute(cudnn_handle, p.plan, pack);
    c.destroy(pack);
    must(r, "running a plan");
}

}  // namespace wisp::cuda
