// Discrete Fourier transforms on the GPU, by cuFFT, without scaling.
#pragma once
#include "../kernels/fft.h"

namespace wisp::cuda {

// `batch` transforms, one after the other in memory, over `rank` (1 to 3) dimensions of the given sizes. Of a half spectrum
// the last dimension has sizes[rank - 1] / 2 + 1 points. half_to_real destroys its input.
void transform(FftKind kind, bool f64, int rank, const int64_t* sizes, int64_t batch, void* in, void* out, bool inverse);

}  // namespace wisp::cuda
