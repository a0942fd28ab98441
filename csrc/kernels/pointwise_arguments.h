// The arguments of a pointwise kernel: the text that the host and kernels/pointwise.cuh share.
constexpr int max_operands = 6, max_dims = 10;

struct PointwiseArguments {
    char* data[max_operands];  // 0: the result
    int64_t n;
    kernels::Param params[4];
    alignas(16) char numbers[max_operands][16];
};

// Many tensors of one call each: contiguous operands, the same numbers.
constexpr int list_length = 80, list_operands = 4;
struct PointwiseList {
    kernels::Param params[4];
    alignas(16) char numbers[list_operands][16];
    int count;
    int first_block[list_length + 1];
    int64_t n[list_length];
    char* data[list_length][list_operands];
};

struct PointwiseShape {
    int dims;  // innermost first
    Divider sizes[max_dims];
    int strides[max_operands][max_dims];  // in bytes
    unsigned spread;                      // bit k: operand k has one value along the innermost dimension
};
