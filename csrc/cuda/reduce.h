// Reductions on the GPU, with the interface of csrc/cpu/reduce.h.
#pragma once
#include "../cpu/reduce.h"

namespace wisp::cuda { void reduce(cpu::Reduction operation, const cpu::ReduceArguments& arguments); }  // namespace wisp::cuda
