// Random numbers (csrc/kernels/random.h) in graphs that are captured.
#pragma once

namespace wisp::cuda {

// While a graph is captured: two words of device memory that replays write, what the seed changes by (xor) and what is
// added to the offsets of draws. Null: no capture.
void set_capture_cell(const void* cell);
const void* capture_cell();

}  // namespace wisp::cuda
