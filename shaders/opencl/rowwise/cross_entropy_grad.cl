// Gradient of rowwise/cross_entropy.cl with respect to the logits, from the saved logsumexp: g * (softmax - target distribution).
// A row of the result has PADDING more elements after the classes, which are 0.

#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#include "lib/rows.h"
#include "lib/dependent_launch.h"
#include "rowwise/cross_entropy_rows.h"

typedef struct {
    long g_step, target_step, lse_step, lse_part, ignored;
    STRIDE_MEMBERS(x);
    STRIDE_MEMBERS(dx);
    ROW_MEMBERS;
} CrossEntropyGradGeometry;

__kernel REQUIRED_GROUP_SIZE void rowwise_cross_entropy_grad(
    __global const STORAGE(GRADIENT_DTYPE) *g, const ulong g_offset, OPERAND(x),
    __global const STORAGE(INDEX_DTYPE) *target, const ulong target_offset, __global const REAL *lse,
    const ulong lse_offset, RESULT(dx), const REAL smoothing, const CrossEntropyGradGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    DECLARE_ROWS;
    DECLARE_STRIDES(x);
    DECLARE_STRIDES(dx);
    const long g_step = geometry.g_step, target_step = geometry.target_step, lse_step = geometry.lse_step;
    const long ignored = geometry.ignored;
    FOR_ROWS {
        const long x_at = ROW_OF(x, row), dx_at = ROW_OF(dx, row);
        const long picked = (long)target[(long)target_offset + (long)row * target_step];
        WRITE_PADDING(dx, dx_at)
        if (HAS_CLASS(picked)) {
            const REAL slope = LOAD(GRADIENT_DTYPE, g, (long)g_offset + (long)row * g_step);
            const long lse_at = (long)lse_offset + (long)row * lse_step;
            const REAL top = lse[lse_at], total = lse[lse_at + geometry.lse_part];
            WRITE_GRADIENT(x, x_at, dx, dx_at, picked)
        } else WRITE_WITHOUT_CLASS(dx, dx_at, picked)
    }
}
