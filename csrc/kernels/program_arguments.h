// The arguments of a fused program: the text that the host and kernels/program.cuh share. How many there are of each is part of a
// program's text, so that a launch copies no more than it needs; the host writes them one array after the other.
constexpr int most_inputs = 24, most_outputs = 32, most_parameters = 8, most_program_dims = 6, most_bounds = 2 * most_inputs + 5 * 32;
constexpr int at_least_one(int n) { return n > 0 ? n : 1; }

// Sums of rows that are still to be added, parts of which blocks have made one after the other.
constexpr int most_columns = 8;
struct Columns {
    const char* parts[most_columns];
    char* out[most_columns];
};

template <int I, int O, int N, int P, int D, int B> struct ProgramArguments {
    int64_t n;       // vectors of elements, or rows
    int64_t length;  // vectors of a row
    alignas(16) char* inputs[at_least_one(I)];
    alignas(16) char* outputs[at_least_one(O)];
    alignas(16) char numbers[at_least_one(N)][16];
    alignas(16) kernels::Param params[at_least_one(P)][4];
    // Where an element, or a row, of an input lies: strides in bytes, innermost first; behind those of rows the stride in a row.
    alignas(16) Divider sizes[D];
    alignas(16) int64_t strides[at_least_one(I)][D];
    alignas(16) uint32_t bounds[at_least_one(B)];  // of windows and joins: indices of a dimension, in vectors if it is the inner one
};
