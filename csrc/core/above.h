// What the core asks of the layers above it, which put their functions here when the library is loaded.
#pragma once
#include "storage.h"

namespace wisp {

struct TensorObject;

extern void (*drop_extra)(TensorObject* o);  // csrc/autograd: gradient, hooks and tangents of a tensor that ends

struct Accelerator {  // csrc/cuda
    int (*check_device)(int index);
    void (*provide)(Storage* storage);
    void (*release)(Storage* storage);
    void (*between)(void* to, int to_device, const void* from, int from_device, size_t bytes);  // copies
};
extern Accelerator accelerator;

struct Tape {                          // csrc/compile
    void (*settle)(Storage* storage);  // runs what is noted, so that the memory may be read and written
    void (*forget)(Storage* storage);  // nobody will read the values that were noted for it
    void (*stir)();  // large memory is about to be made, or another device is used: null, or for compiled functions that rest
};
extern Tape tape;

// Whether tensors are made for inference; read whenever one is made.
extern constinit thread_local bool inference_mode __attribute__((tls_model("initial-exec")));

}  // namespace wisp
