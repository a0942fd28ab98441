// Thread-local working memory for kernels: 64-byte aligned, grows when asked, never shrinks.
#pragma once
#include <cstddef>

namespace wisp {

// The block of `slot` (0..7) of the calling thread, at least `bytes` long. A later call for the same slot may move it.
void* scratch(int slot, size_t bytes);

}  // namespace wisp
