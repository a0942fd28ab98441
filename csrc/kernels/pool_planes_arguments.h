// Pooling of contiguous planes of two dimensions: the text that the host and kernels/pool_planes.cuh share.
struct PoolPlanes {
    int in_y, in_x, out_y, out_x, kernel_y, kernel_x, padding_y, padding_x;
    Divider in_plane, in_row, out_plane, out_row, stride_y, stride_x;
};
