// The arguments of a reduction's kernel: the text that the host and kernels/reduce.cuh share.
constexpr int reduce_dims = 8;

struct ReduceLaunch {
    const char* in;
    char* out;
    int64_t* indices;
    char* mean;
    char* partial;  // accumulators [splits][outputs], or null: the results are written at once
    int64_t outputs, count, splits;
    int kept, folded;  // dimensions, innermost first
    Divider kept_sizes[reduce_dims], folded_sizes[reduce_dims];
    int64_t kept_strides[reduce_dims], folded_strides[reduce_dims];  // in elements
    double divisor, parameter;
    int root;
};
