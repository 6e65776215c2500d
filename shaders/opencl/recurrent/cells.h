// The cells of recurrent layers, and their gradients, on vectors or single numbers of type V. CELL is LSTM or GRU; the
// gates of a unit are at distance `size`, in PyTorch's order: i, f, g, o or r, z, n.
//
// A cell takes the contributions of the input, x[], and of the last hidden state, h[], to its gates, and its own state,
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

// 1: the functions of gates are computed here, for CPUs, where calls take as long as the products. WIDTH is the number
// of lanes of V.
#ifndef POLYNOMIAL_GATES
#define POLYNOMIAL_GATES 0
#endif

#if POLYNOMIAL_GATES
#define POLYNOMIAL_EXP_FAST 1
#include "lib/exponential.h"
// 1 + exp(-x), finite for all x. The comparison propagates NaN.
FORCE_INLINE V logistic_denominator(const V x) {
    const V y = x < (V)(-87.0f) ? (V)(87.0f) : -x;
    return 1.0f + EXP_FAST(y);
}
#define LOGISTIC(x) (1.0f / logistic_denominator(x))
// tanh(x) as a quotient; within three units in the last place. Source: Eigen, MathFunctionsImpl.h, ptanh_float.
FORCE_INLINE V tanh_numerator(const V x, __private V *denominator) {
    V bounded = x < (V)(-7.905311f) ? (V)(-7.905311f) : x;
    bounded = bounded > (V)(7.905311f) ? (V)(7.905311f) : bounded;
    const V square = bounded * bounded;
    V p = square * -2.76076847742355e-16f + 2.00018790482477e-13f;
    p = p * square - 8.60467152213735e-11f;
    p = p * square + 5.12229709037114e-08f;
    p = p * square + 1.48572235717979e-05f;
    p = p * square + 6.37261928875436e-04f;
    p = p * square + 4.89352455891786e-03f;
    V q = square * 1.19825839466702e-06f + 1.18534705686654e-04f;
    q = q * square + 2.26843463243900e-03f;
    *denominator = q * square + 4.89352518554385e-03f;
    return p * bounded;
}
FORCE_INLINE V tanh_quotient(const V x) {
    V denominator;
    const V numerator = tanh_numerator(x, &denominator);
    return numerator / denominator;
}
#define TANH(x) tanh_quotient(x)
// logistic(x) * tanh(y), with one division.
FORCE_INLINE V logistic_times_tanh(const V x, const V y) {
    V denominator;
    const V numerator = tanh_numerator(y, &denominator);
    return numerator / (denominator * logistic_denominator(x));
}
#else
#define LOGISTIC(x) (1.0f / (1.0f + exp(-(x))))
#define TANH(x) tanh(x)
#define logistic_times_tanh(x, y) (LOGISTIC(x) * tanh(y))
#endif

#if CELL == LSTM
// The new hidden state; `state` becomes the new state of the cell.
FORCE_INLINE V cell_step(__private const V *x, __private const V *h, __private V *state) {
    *state = LOGISTIC(x[1] + h[1]) * *state + logistic_times_tanh(x[0] + h[0], x[2] + h[2]);
    return logistic_times_tanh(x[3] + h[3], *state);
}
#else
FORCE_INLINE V cell_step(__private const V *x, __private const V *h, __private V *state) {
    const V r = LOGISTIC(x[0] + h[0]), z = LOGISTIC(x[1] + h[1]), n = TANH(x[2] + r * h[2]);
    *state = n + z * (*state - n);
    return *state;
}
#endif

#if CELL == LSTM
// Computes the gradients of the gates, from the gates before their activations, the cell's states before and after the
// step, the gradient `d_out` of the hidden state, and the gradient `d_state` of the cell's state. `d_state` becomes the
// gradient of the state before the step.
FORCE_INLINE void cell_grad(__private const V *gates, const V before, const V after, const V d_out, __private V *d_state,
                            __private V *d_gates) {
    const V i = LOGISTIC(gates[0]), f = LOGISTIC(gates[1]), g = TANH(gates[2]), o = LOGISTIC(gates[3]);
    const V bounded = TANH(after);
    const V d_cell = *d_state + d_out * o * (1.0f - bounded * bounded);
    d_gates[0] = d_cell * g * i * (1.0f - i);
    d_gates[1] = d_cell * before * f * (1.0f - f);
    d_gates[2] = d_cell * i * (1.0f - g * g);
    d_gates[3] = d_out * bounded * o * (1.0f - o);
    *d_state = d_cell * f;
}
#else
// Computes the gradients of both contributions to the gates, of the input and of the hidden state `before`, from the
// gradient of the new hidden state. `direct` becomes the part of the gradient of `before` that bypasses the gates.
FORCE_INLINE void cell_grad(__private const V *x, __private const V *h, const V before, const V d_out, __private V *direct,
                            __private V *d_x, __private V *d_h) {
    const V r = LOGISTIC(x[0] + h[0]), z = LOGISTIC(x[1] + h[1]), n = TANH(x[2] + r * h[2]);
    const V d_n = d_out * (1.0f - z) * (1.0f - n * n);
    d_x[0] = d_h[0] = d_n * h[2] * r * (1.0f - r);
    d_x[1] = d_h[1] = d_out * (before - n) * z * (1.0f - z);
    d_x[2] = d_n;
    d_h[2] = d_n * r;
    *direct = d_out * z;
}
#endif

#endif
