// The arguments of products with few rows: the text that the host and cuda/kernels/few_rows.cuh share. Strides count elements.
struct FewRowsPart {
    const void *b, *bias;
    void* c;
    int64_t b_column, c_row;
    int32_t n, first;  // columns of C; the first block of this product
};
struct FewRows {
    static constexpr int most = 3;
    const void* a;
    int64_t a_row;
    int32_t m, k, count, rest;
    FewRowsPart parts[most];
};
