// cuDNN's graphs, for convolution and attention.
//
// A graph of one operation is described by "descriptors", objects with numbered attributes; cuDNN then lists engines for
// it, the most promising first. The numbers are those of cudnn_graph.h, which have not changed since version 8.
#pragma once
#include <initializer_list>
#include <vector>

#include "../core/dtype.h"
#include "runtime.h"

namespace wisp::cuda {

// X(name in the table, symbol, parameters)
#define WISP_CUDNN(X)                                                                                           \
    X(create, cudnnCreate, (Handle*))                                                                           \
    X(set_stream, cudnnSetStream, (Handle, Handle))                                                             \
    X(make, cudnnBackendCreateDescriptor, (int kind, Handle*))                                                  \
    X(destroy, cudnnBackendDestroyDescriptor, (Handle))                                                         \
    X(set, cudnnBackendSetAttribute, (Handle, int name, int type, int64_t count, const void* values))           \
    X(get, cudnnBackendGetAttribute, (Handle, int name, int type, int64_t asked, int64_t* count, void* values)) \
    X(finalize, cudnnBackendFinalize, (Handle))                                                                 \
    X(execute, cudnnBackendExecute, (Handle, Handle plan, Handle pack))                                         \
    X(version, cudnnGetVersion, ())

struct Cudnn {
    WISP_CUDNN(WISP_FIELD)
};
const Cudnn& cudnn();
void must(Result result, const char* what);
Handle cudnn_handle_of(int device);  // with the current stream
int data_type(DType dtype);

enum Kind {
    pointwise_kind,
    convolution_kind,
    engine_kind,
    configuration_kind,
    heuristic_kind,
    plan_kind,
    forward_kind = 10,
    weight_kind,
    input_kind,
    pointwise_operation_kind,
    graph_kind = 15,
    pack_kind,
    tensor_kind,
    product_kind,
    product_operation_kind,
    reduction_kind = 21,
    reduction_operation_kind,
    attention_kind = 41
};
enum Type {
    type_handle,
    type_dtype,
    type_boolean,
    type_integer,
    type_float,
    type_double,
    type_pointer,
    type_mode,
    type_heuristic,
    type_note = 11,
    type_pointwise = 14,
    type_descriptor,
    type_reduction = 18
};
enum Mode { fallback_mode = 2, best_mode = 3 };
enum Note { tensor_cores, down_convert, reduced_reduction, fourier, nondeterministic };

struct Attribute {
    int name, type;
    int64_t count;
    const void* values;
};

// A descriptor with these attributes; null if cuDNN will not have it.
Handle describe(int kind, std::initializer_list<Attribute> attributes);
Handle describe_surely(const char* what, int kind, std::initializer_list<Attribute> attributes);

struct EnginePlan {
    Handle plan = nullptr;
    int64_t workspace = 0;
};
std::vector<Handle> configurations_of(Handle graph, int mode);  // of engines that can run it, the most promising first
std::vector<int> notes_of(Handle configuration);
EnginePlan plan_of(Handle configuration, Handle cudnn_handle);  // null: it will not, or wants too much memory
void execute(const EnginePlan& plan, Handle cudnn_handle, const int64_t* names, const void* const* pointers, int count);

}  // namespace wisp::cuda
