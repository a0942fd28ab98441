// A recurrent layer whose sequences each go through all steps in one launch: the text that the host and kernels/rnn_rows.cuh share.
// The names are those of rnn.h.
struct RnnRows {
    int steps, batch, size, gates, reverse, relu;
    int held;    // rows of the weight that lie in shared memory
    int groups;  // of threads that share out a product's depth
    const float *x, *weight, *bias;
    float *h, *c, *out, *kept, *cells;
    const float* grad_out;
    float *dh, *dc, *dx, *dhidden, *before;
};
