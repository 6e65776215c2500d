// Arguments of recurrent kernels other than the weight: the tensors of a layer's steps and of their gradient, and the
// members of the structs with their strides. Include recurrent/cells.h first, which defines the cell.
//
// STEPS_PARAMETERS and STEPS_GRAD_PARAMETERS declare kernel parameters, each followed by a comma.

#ifndef POLYHAL_RECURRENT_ARGUMENTS
#define POLYHAL_RECURRENT_ARGUMENTS

#ifndef BIAS
#define BIAS 0
#endif
// 1: an LSTM stores its gates before their functions in `kept_gates`, (steps, batch, gates * size), for the gradient.
#ifndef KEEP_GATES
#define KEEP_GATES 0
#endif

#if CELL == LSTM
#define STATE_PARAMETER __global const float *state, const ulong state_offset,
#define STATES_PARAMETER __global float *states, const ulong states_offset,
#define GRAD_STATES_PARAMETER __global const float *grad_states, const ulong grad_states_offset,
#define D_STATE_PARAMETER __global float *d_state, const ulong d_state_offset,
#define FED_BACK_PARAMETER
#define D_FED_BACK_PARAMETER
#else
#define STATE_PARAMETER
#define STATES_PARAMETER
#define GRAD_STATES_PARAMETER
#define D_STATE_PARAMETER
#define FED_BACK_PARAMETER __global const float *fed_back, const ulong fed_back_offset,
#define D_FED_BACK_PARAMETER __global float *d_fed_back, const ulong d_fed_back_offset,
#endif
#if KEEP_GATES
#define KEPT_PARAMETER __global float *kept_gates, const ulong kept_gates_offset,
#else
#define KEPT_PARAMETER
#endif
#if BIAS
#define BIAS_PARAMETER __global const float *bias, const ulong bias_offset,
#else
#define BIAS_PARAMETER
#endif

// x is (steps, batch, gates * size); the gates of a sequence are contiguous. `hidden` and `state` are the initial ones,
// `outs` and `states` the hidden states and cell states after each step.
#define STEPS_PARAMETERS                                                                                         \
    __global const float *x, const ulong x_offset, __global const float *hidden, const ulong hidden_offset,      \
    STATE_PARAMETER BIAS_PARAMETER __global float *outs, const ulong outs_offset, STATES_PARAMETER KEPT_PARAMETER
#define STEPS_STRIDES x_step, x_row, hidden_row, state_row
#define STEPS_LENGTHS steps, batch, size, reverse

// `gates` are the cell's gates before their activations; for a GRU only the contribution of the input, and `fed_back`
// is the contribution of the hidden state. `first` and `states` are the cell's states before the first step and after
// each.
#define STEPS_GRAD_PARAMETERS                                                                                     \
    __global const float *grad, const ulong grad_offset, GRAD_STATES_PARAMETER __global const float *gates,       \
    const ulong gates_offset, FED_BACK_PARAMETER __global const float *first, const ulong first_offset,           \
    __global const float *states, const ulong states_offset, __global float *d_gates, const ulong d_gates_offset, \
    D_FED_BACK_PARAMETER __global float *d_hidden, const ulong d_hidden_offset, D_STATE_PARAMETER
#define STEPS_GRAD_STRIDES                                                                                     \
    grad_step, grad_row, grad_states_step, grad_states_row, gates_step, gates_row, fed_back_step, fed_back_row, \
    first_row, states_step, states_row

// Moves the pointers of STEPS_GRAD_PARAMETERS to their first elements.
#if CELL == LSTM
#define ADD_CELL_OFFSETS              \
    grad_states += grad_states_offset; \
    d_state += d_state_offset;
#else
#define ADD_CELL_OFFSETS        \
    fed_back += fed_back_offset; \
    d_fed_back += d_fed_back_offset;
#endif
#define ADD_STEPS_GRAD_OFFSETS \
    grad += grad_offset;       \
    gates += gates_offset;     \
    first += first_offset;     \
    states += states_offset;   \
    d_gates += d_gates_offset; \
    d_hidden += d_hidden_offset; \
    ADD_CELL_OFFSETS

#endif
