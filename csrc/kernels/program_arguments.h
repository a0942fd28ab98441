// The arguments of a fused program: the text that the host and kernels/program.cuh share.
constexpr int most_inputs = 24, most_outputs = 24, most_parameters = 8, most_program_dims = 6;

struct ProgramArguments {
    int64_t n;       // vectors of elements, or rows
    int64_t length;  // vectors of a row
    char* inputs[most_inputs];
    char* outputs[most_outputs];
    alignas(16) char numbers[most_inputs][16];
    kernels::Param params[most_parameters][4];
    // Where an element, or a row, of an input lies: strides in bytes, innermost first.
    Divider sizes[most_program_dims];
    int64_t strides[most_inputs][most_program_dims];
};
