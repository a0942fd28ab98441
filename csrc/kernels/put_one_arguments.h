// The arguments of slices that are put in one place each: the text that the host and cuda/kernels/index.cuh share.
template <class Shape> struct PutOnePart {
    void* out;
    const int64_t* index;
    const void* values;
    const char* name;
    int64_t size, stride, n;  // of the dimension that is indexed, in elements; of the slice
    int32_t wrap, first;      // the first block of this slice
    Shape shape;
};
template <class Shape, class Report> struct PutOne {
    static constexpr int most = 2;
    Report* report;
    int64_t count;
    PutOnePart<Shape> parts[most];
};
