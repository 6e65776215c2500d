// The cells of recurrent layers, and their gradients, on vectors or single numbers of type V. CELL is LSTM or GRU; the
// gates of a unit lie `size` elements apart, in PyTorch's order: i, f, g, o or r, z, n.
//
// A cell has the parts that the input and the last hidden state add to its gates, x[] and h[], and a state of its own,
// which for a GRU is the hidden state.

#ifndef POLYHAL_RECURRENT_CELLS
#define POLYHAL_RECURRENT_CELLS

#define LSTM 1
#define GRU 2
#ifndef CELL
#define CELL LSTM
#endif
#define GATES (CELL == LSTM ? 4 : 3)
#if CELL == LSTM
#define GATE_COUNT 4
#else
#define GATE_COUNT 3
#endif

#define LOGISTIC(x) (1.0f / (1.0f + exp(-(x))))

#if CELL == LSTM
// The new hidden state; `state` becomes the new state of the cell.
FORCE_INLINE V cell_step(__private const V *x, __private const V *h, __private V *state) {
    const V i = LOGISTIC(x[0] + h[0]), f = LOGISTIC(x[1] + h[1]), g = tanh(x[2] + h[2]), o = LOGISTIC(x[3] + h[3]);
    *state = f * *state + i * g;
    return o * tanh(*state);
}
#else
FORCE_INLINE V cell_step(__private const V *x, __private const V *h, __private V *state) {
    const V r = LOGISTIC(x[0] + h[0]), z = LOGISTIC(x[1] + h[1]), n = tanh(x[2] + r * h[2]);
    *state = n + z * (*state - n);
    return *state;
}
#endif

#if CELL == LSTM
// From the gates before their functions, the states of the cell before and after, the gradient of the hidden state `d_out`
// and that of the cell's state: the gradients of the gates, and in `d_state` that of the state before.
FORCE_INLINE void cell_grad(__private const V *gates, const V before, const V after, const V d_out, __private V *d_state,
                            __private V *d_gates) {
    const V i = LOGISTIC(gates[0]), f = LOGISTIC(gates[1]), g = tanh(gates[2]), o = LOGISTIC(gates[3]);
    const V bounded = tanh(after);
    const V d_cell = *d_state + d_out * o * (1.0f - bounded * bounded);
    d_gates[0] = d_cell * g * i * (1.0f - i);
    d_gates[1] = d_cell * before * f * (1.0f - f);
    d_gates[2] = d_cell * i * (1.0f - g * g);
    d_gates[3] = d_out * bounded * o * (1.0f - o);
    *d_state = d_cell * f;
}
#else
// The gradients of what the input and what the hidden state `before` add to the gates, from that of the hidden state; in
// `direct` the gradient of the hidden state before that does not pass the gates.
FORCE_INLINE void cell_grad(__private const V *x, __private const V *h, const V before, const V d_out, __private V *direct,
                            __private V *d_x, __private V *d_h) {
    const V r = LOGISTIC(x[0] + h[0]), z = LOGISTIC(x[1] + h[1]), n = tanh(x[2] + r * h[2]);
    const V d_n = d_out * (1.0f - z) * (1.0f - n * n);
    d_x[0] = d_h[0] = d_n * h[2] * r * (1.0f - r);
    d_x[1] = d_h[1] = d_out * (before - n) * z * (1.0f - z);
    d_x[2] = d_n;
    d_h[2] = d_n * r;
    *direct = d_out * z;
}
#endif

#endif
