// Cross entropy of rows of logits with integer classes, the logsumexp of each row, and the gradient with respect to the logits.
// Rows with an ignored class result in 0, rows with a class out of range in NaN.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#ifndef SMOOTHED
#define SMOOTHED 0
#endif
#include "lib/rows.cuh"

KERNEL cross_entropy(const DTYPE *x, const INDEX_DTYPE *target, real *loss, real *lse, const int64 target_step,
                     const int64 ignored, const real smoothing, ROW_PARAMETERS, STRIDES(x)) {
    const uint64 row_index = row_id();
    if (row_index >= rows) return;
    const DTYPE *logits_row = ROW_OF(x, row_index);
    const Row<DTYPE> row(logits_row, x_step, length);
    real maximum = -INFINITY, sum = 0, logits = 0;
    for_row(length, [&](int slot, uint32 i) { maximum = fmax(maximum, row(slot, i)); });
    maximum = group_max(maximum);
    if (isinf(maximum)) maximum = 0;
    for_row(length, [&](int slot, uint32 i) {
        sum += exp(row(slot, i) - maximum);
        if (SMOOTHED) logits += row(slot, i) - maximum;
    });
    sum = group_sum(sum);
    if (SMOOTHED) logits = group_sum(logits);
    if (lane_id() != 0) return;
    // Relative to the largest logit, to which the logarithm would be lost when added.
    const real logarithm = log(sum);
    const int64 label = (int64)widen(target[(int64)row_index * target_step]);
    real value = label == ignored ? 0 : NAN;
    if (label != ignored && label >= 0 && label < (int64)length) {
        value = (1 - smoothing) * (logarithm - ((real)widen(logits_row[label * x_step]) - maximum));
        if (SMOOTHED) value += smoothing * (logarithm - logits / length);
    }
    loss[row_index] = value;
    lse[2 * row_index] = maximum;
    lse[2 * row_index + 1] = logarithm;
}

// g * (softmax - target distribution), logits_row the saved logsumexp.
KERNEL cross_entropy_grad(const GRADIENT_DTYPE *g, const DTYPE *x, const INDEX_DTYPE *target, const real *lse,
                          DTYPE *dx, const int64 g_step, const int64 target_step, const int64 lse_step, const int64 lse_part,
                          const int64 ignored, const real smoothing, ROW_PARAMETERS, STRIDES(x), STRIDES(dx)) {
    const uint64 row_index = row_id();
    if (row_index >= rows) return;
    const int64 label = (int64)widen(target[(int64)row_index * target_step]);
    const bool valid = label != ignored && label >= 0 && label < (int64)length;
    const real grad = valid ? (real)widen(g[(int64)row_index * g_step]) : 0, maximum = lse[(int64)row_index * lse_step],
               logarithm = lse[(int64)row_index * lse_step + lse_part];
    const real smoothed = smoothing / length, confidence = 1 - smoothing;
    const Row<DTYPE> row(ROW_OF(x, row_index), x_step, length);
    write_row(ROW_OF(dx, row_index), dx_step, length, [&](int slot, uint32 i) {
        const real value = exp(row(slot, i) - maximum - logarithm) - smoothed - ((int64)i == label ? confidence : 0);
        return valid ? value * grad : label == ignored ? 0 : NAN;
    });
}
