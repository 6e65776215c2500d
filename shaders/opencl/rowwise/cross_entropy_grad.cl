// Gradient of rowwise/cross_entropy.cl with respect to the logits: g * (softmax - target distribution), from the saved logsumexp.
// The BESIDE elements of a row of the result that come after the classes are 0.

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef GRADIENT_DTYPE
#define GRADIENT_DTYPE float32
#endif
#ifndef BESIDE
#define BESIDE 0
#endif
#include "lib/rows.h"
#include "lib/exponential.h"

#define OF_BLOCK _Pragma("unroll") for (uint k = 0, i = begin; k < ACCUMULATORS; k++, i += LANES) if (i < WHOLE)

__kernel REQUIRED_GROUP_SIZE void rowwise_cross_entropy_grad(__global const STORAGE(GRADIENT_DTYPE) *g, const ulong g_offset, OPERAND(x),
                                 __global const STORAGE(INDEX_DTYPE) *target, const ulong target_offset,
                                 __global const REAL *lse, const ulong lse_offset, RESULT(dx), const long g_step,
                                 const long target_step, const long lse_step, const long ignored, const REAL smoothing,
                                 ROW_PARAMETERS, STRIDES(x), STRIDES(dx)) {
    FOR_ROWS {
        const long x_at = ROW_OF(x, row), dx_at = ROW_OF(dx, row);
        const long picked = (long)target[(long)target_offset + (long)row * target_step];
        for (uint i = LANE_ID; i < BESIDE; i += LANES) STORE(DTYPE, (REAL)0, dx, dx_at + (long)length + i);
        if (picked == ignored || picked < 0 || picked >= (long)length) {
            FOR_VECTORS WRITE(dx, (V)(0), dx_at, i);
            FOR_TAIL STORE(DTYPE, (REAL)0, dx, dx_at + i);
            continue;
        }
        const REAL slope = LOAD(GRADIENT_DTYPE, g, (long)g_offset + (long)row * g_step);
        const REAL total = lse[(long)lse_offset + (long)row * lse_step];
        const REAL shared = smoothing / length;
        // Some vectors at once: what is written may lie anywhere, so that no later read passes it.
        for (uint begin = LANE_ID; begin < WHOLE; begin += ACCUMULATORS * LANES) {
            V block[ACCUMULATORS];
            OF_BLOCK {
                PREFETCH_NEXT_ROW(x, x_at)
                block[k] = READ(x, x_at, i);
            }
            OF_BLOCK {
                PREFETCH_NEXT_RESULT(dx, dx_at)
                WRITE(dx, (EXP_FAST(block[k] - total) - shared) * slope, dx_at, i);
            }
        }
        FOR_TAIL STORE(DTYPE, (EXP_FAST_SCALAR(LOAD(DTYPE, x, x_at + i) - total) - shared) * slope, dx, dx_at + i);
        // The work-item that wrote the element of the class writes it again, so that no barrier is needed.
        const uint hot = (uint)picked;
        const uint owner = hot < TAIL_BEGIN ? hot / WIDTH % LANES : (hot - TAIL_BEGIN) % LANES;
        if (LANE_ID == owner) {
            const REAL p = EXP_FAST_SCALAR(LOAD(DTYPE, x, x_at + picked * x_step) - total);
            STORE(DTYPE, (p - shared - (1 - smoothing)) * slope, dx, dx_at + picked * dx_step);
        }
    }
}
