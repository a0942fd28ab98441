// The text of the kernels, embedded in the library: what csrc/cuda/kernels holds, and what CPU and GPU share. CMakeLists.txt
// lists the files in cuda_texts.inc.
#include "compiler.h"

#define X(symbol, path)                                                                         \
    asm(".pushsection .rodata\n"                                                                \
        ".global wisp_text_" #symbol "\nwisp_text_" #symbol ":\n.incbin \"" path                \
        "\"\n"                                                                                  \
        ".global wisp_text_" #symbol "_end\nwisp_text_" #symbol "_end:\n.byte 0\n.popsection"); \
    extern "C" __attribute__((visibility("hidden"))) const char wisp_text_##symbol[], wisp_text_##symbol##_end[];
#include "cuda_texts.inc"
#undef X

namespace wisp::cuda {

const std::vector<Source>& sources() {
    static const std::vector<Source> all = {
#define X(symbol, path) {path, std::string(wisp_text_##symbol, wisp_text_##symbol##_end)},
#include "cuda_texts.inc"
    };
    return all;
}

}  // namespace wisp::cuda
