// One direction of one recurrent layer over all time steps, forward and backward. float and double.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

#include <cstdint>

namespace wisp::kernels {

enum class RnnMode { tanh, relu, lstm, gru };

// All arrays are contiguous; a row is one sequence at one time step. `gates` is the number of rows of the hidden weight:
// `size`, times 4 in an LSTM (input, forget, cell, output) and 3 in a GRU (reset, update, new). `width` is that of the
// outputs: `size`, or what an LSTM projects to. Null where a mode has none.
struct RnnArgs {
    RnnMode mode;
    bool reverse;     // the last time step first
    bool from_zeros;  // forward: h is zeros; backward: the gradients of the first state are not wanted. A hint
    int64_t steps, size, gates, width, features;
    // Step s has rows [starts[s], starts[s + 1]), never more than the step before: sequences sorted by length.
    const int64_t* starts;
    // The input's part of the gates, (rows, gates), with the biases that may be added to it; may be `kept` of an LSTM.
    // Null in an LSTM: made step by step of the input (rows, features), its weight (gates, features) and those biases.
    const void* x;
    const void* input;
    const void* weight_input;
    const void* bias_input;
    const void* weight;   // (gates, width); forward: (width, gates) unless own_products
    const void* bias;     // (gates): GRU, whose hidden part must stay apart
    const void* project;  // LSTM: (width, size); likewise
    void* h;              // (sequences, width): forward: the first state, becomes the last; backward: the first
    void* c;              // (sequences, size): likewise: LSTM
    void* out;            // (rows, width)
    void* kept;           // (rows, 4 * size): LSTM: the gates; GRU: the gates, and the hidden part of `new`
    void* cells;          // (rows, size): LSTM
    void* wide;           // (rows, size): outputs before they are projected

    // Backward. dh and dc hold the gradients of the last state and become those of the first one.
    const void* grad_out = nullptr;  // (rows, width); null: zeros
    void* dh = nullptr;
    void* dc = nullptr;
    void* dx = nullptr;          // (rows, gates)
    void* dhidden = nullptr;     // the same for the hidden part: GRU; the others' is dx
    void* dprojected = nullptr;  // (rows, width): gradients of all outputs, where they are projected
    void* dinput = nullptr;      // (rows, features): what `weight_input` makes of dx; null: not wanted here
    void* dbias = nullptr;       // (gates): the sum of the rows of dx; behind it that of dhidden, where there is one; may be null
    void* before = nullptr;      // (rows, width): the state before each step; null: not wanted
};

struct RnnKernels {
    void (*forward)(DType, const RnnArgs&);
    void (*backward)(DType, const RnnArgs&);
    // Whether they make products with the weights as these lie, the input's too where `x` or `dinput` asks for it, and sum the
    // biases' gradients (`dbias`). Else the forward weights come transposed.
    bool own_products;
};

}  // namespace wisp::kernels
