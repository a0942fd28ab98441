// What the host tells the kernels of conv_phases.cuh; both include this text. Spatial arrays are (height, width).
struct ConvPhases {
    int channels, features, stride;
    int kernel[2], taps[2], in[2], rows[2], padding[2];  // rows: of the convolution without a stride
};
