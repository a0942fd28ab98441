// One direction of one recurrent layer over all time steps, forward and backward. float and double.
#pragma once
#include "core/dtype.h"

#include <cstdint>

namespace wisp::cpu {

enum class RnnMode { tanh, relu, lstm, gru };

// All arrays are contiguous. A step's rows are its batch; `gates` is the number of rows of the hidden weight: `size`,
// times 4 in an LSTM (input, forget, cell, output) and 3 in a GRU (reset, update, new). Null where a mode has none.
struct RnnArgs {
    RnnMode mode;
    bool reverse;  // the last time step first
    int64_t steps, batch, size, gates;
    const void* x;      // (steps, batch, gates): the input's part of the gates, with the biases that may be added to it
    const void* h;      // (batch, size): the first state
    const void* c;      // (batch, size): LSTM
    const void* weight; // forward: (size, gates), transposed; backward: (gates, size)
    const void* bias;   // (gates): GRU, whose hidden part must stay apart
    void* out;          // (steps, batch, size)
    void* kept;         // (steps, batch, 4 * size): LSTM: the gates; GRU: the gates, and the hidden part of `new`
    void* cells;        // (steps, batch, size): LSTM

    // Backward. dh and dc hold the gradients of the last state and become those of the first one.
    const void* grad_out = nullptr;  // (steps, batch, size); null: zeros
    void* dh = nullptr;
    void* dc = nullptr;
    void* dx = nullptr;       // (steps, batch, gates)
    void* dhidden = nullptr;  // the same for the hidden part: GRU; the others' is dx
};

struct RnnKernels {
    void (*forward)(DType, const RnnArgs&);
    void (*backward)(DType, const RnnArgs&);
};
extern const RnnKernels& rnn;

}  // namespace wisp::cpu
