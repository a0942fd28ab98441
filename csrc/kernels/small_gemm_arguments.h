// The arguments of a small product: the text that the host and kernels/small_gemm.cuh share.
struct SmallGemm {
    const float *a, *b, *bias;
    float *c, *sums;
    int m, n, k, a_row, a_col, b_row, b_col, c_row;
    int64_t batch_a, batch_b, batch_c;
    float alpha;
};
