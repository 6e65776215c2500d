// Cross entropy of rows of logits with integer classes, and its gradient with respect to the logits, as rowwise/cross_entropy.cl
// and rowwise/cross_entropy_grad.cl: each row is read from memory once, into registers or local memory, or twice in short
// succession.

#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#include "lib/rows.h"
#include "lib/dependent_launch.h"
#include "rowwise/row_exponentials.h"
#include "rowwise/cross_entropy_rows.h"

typedef struct {
    long g_step, target_step, ignored;
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(dx);
    ROW_MEMBERS;
} CrossEntropyAndGradGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_cross_entropy_and_grad(
    OPERAND(x), __global const STORAGE(INDEX_DTYPE) *target, const ulong target_offset,
    __global const STORAGE(GRADIENT_DTYPE) *g, const ulong g_offset, __global REAL *loss, const ulong loss_offset,
    RESULT(dx), const REAL smoothing, const CrossEntropyAndGradGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(dx);
    const long g_step = geometry.g_step, target_step = geometry.target_step, ignored = geometry.ignored;
    GROUP_SCRATCH(REAL)
    DECLARE_ROW(x)
    FOR_ROWS {
        const long x_at = ROW_OF(x, row), dx_at = ROW_OF(dx, row);
        const long picked = (long)target[(long)target_offset + (long)row * target_step];
        LOAD_ROW(x, x_at)
        WRITE_PADDING(dx, dx_at)
        REAL top, sum, logits = 0;
        ROW_EXPONENTIALS(x, x_at, top, sum)
        SUM_OF_LOGITS(x, x_at, top, logits)
        const REAL total = log(sum);
        if (LANE_ID == 0) {
            ROW_LOSS(value, x, x_at, picked, top, total, logits)
            loss[loss_offset + row] = value;
        }
        if (HAS_CLASS(picked)) {
            const REAL slope = LOAD(GRADIENT_DTYPE, g, (long)g_offset + (long)row * g_step);
            WRITE_GRADIENT(x, x_at, dx, dx_at, picked)
        } else WRITE_WITHOUT_CLASS(dx, dx_at, picked)
    }
}
