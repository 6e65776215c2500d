// A group of elementwise ops on each of several contiguous tensors. The parts that depend on the ops are generated
// (lowering/pointwise/foreach.py), as for pointwise/elementwise.cl: SHARED declares tensors and numbers that all slots use and
// LOCATE their addresses, LOAD_FULL and LOAD_PART fill the input registers, COMPUTE_ALL evaluates, STORE_FULL and STORE_PART write.
// The defaults copy floats.

#ifndef DTYPE
#define DTYPE float32
#endif
#include "lib/multi_tensor.h"
#include "lib/operands.h"
#include "lib/dependent_launch.h"

#ifndef SLOT_PARAMETERS
#define SLOT_PARAMETERS __global const float *q00, const ulong q00_offset, __global float *q10, const ulong q10_offset
#define FIND_SLOT \
    __global const float *q0 = q00 + q00_offset; \
    __global float *q1 = q10 + q10_offset; \
    const uint size = slots.size[0], start = slots.start[0];
#define LOCATE
#define REGISTERS VEC(float) r0;
#define LOAD_FULL LOAD_CONTIGUOUS(float32, r0, q0)
#define LOAD_PART LOAD_CONTIGUOUS_PART(float32, r0, q0)
#define COMPUTE_ALL
#define STORE_FULL STORE_CONTIGUOUS(float32, r0, q1)
#define STORE_PART STORE_CONTIGUOUS_PART(float32, r0, q1)
#endif
// One element for each row, each column or each matrix of a tensor of matrices. Vectors within one row need no division for
// each element.
#define ROW(i) ((i) / columns)
#define COLUMN(i) ((i) / (rows * columns) * columns + (i) % columns)
#define MATRIX(i) ((i) / (rows * columns))
#define WITHIN_ROW (at % columns + WIDTH <= columns)
#define LOAD_EACH(D, r, p, index) EACH LANE(COMPUTE(D), r, j) = LOAD(D, p, index(at + j));
#define LOAD_ONE(D, r, p, index) \
    if (WITHIN_ROW) r = (VEC(COMPUTE(D)))(LOAD(D, p, index(at))); \
    else LOAD_EACH(D, r, p, index)
#define LOAD_ROWS(D, r, p) LOAD_ONE(D, r, p, ROW)
#define LOAD_MATRICES(D, r, p) LOAD_ONE(D, r, p, MATRIX)
#if ALIGNED || WIDTH == 1
#define LOAD_COLUMNS(D, r, p) LOAD_EACH(D, r, p, COLUMN)
#else
#define LOAD_COLUMNS(D, r, p) \
    if (WITHIN_ROW) r = LOADV(D, (p) + COLUMN(at)); \
    else LOAD_EACH(D, r, p, COLUMN)
#endif
#define LOAD_ROWS_PART(D, r, p) GATHER_PART(D, r, LOAD(D, p, ROW(at + j)))
#define LOAD_COLUMNS_PART(D, r, p) GATHER_PART(D, r, LOAD(D, p, COLUMN(at + j)))
#define LOAD_MATRICES_PART(D, r, p) GATHER_PART(D, r, LOAD(D, p, MATRIX(at + j)))
#ifndef SHARED
#define SHARED
#endif

// SUM_PARAMETERS declares the destinations of sums of the registers t0, t1 ... over the elements of each chunk: the sum of
// chunk n is element first_chunk + n.
#ifndef SUM_PARAMETERS
#define SUM_PARAMETERS
#define SUM_SCRATCH
#define SUM_BEGIN
#define SUM_FULL
#define SUM_PART
#define SUM_END
#else
#define SUM_SCRATCH GROUP_SCRATCH(REAL)
#define SUM_BEGIN_OF(n) V s##n = (V)(0);
#define SUM_FULL_OF(n) s##n += t##n;
#define SUM_PART_OF(n) SCATTER_SUM(s##n, t##n)
#define SCATTER_SUM(sum, value) \
    { \
        V part = value; \
        V summed = sum; \
        EACH_LEFT LANE(REAL, summed, j) += LANE(REAL, part, j); \
        sum = summed; \
    }
#define SUM_END_OF(n) \
    { \
        REAL total = 0; \
        EACH total += LANE(REAL, s##n, j); \
        GROUP_SUM(total) \
        if (LANE_ID == 0) sums##n[sums##n##_offset + first_chunk + chunk] = total; \
    }
#endif

#ifdef NUMBERS
typedef struct {
    NUMBERS
} ForeachNumbers;
#define NUMBERS_PARAMETER , const ForeachNumbers numbers
#else
#define NUMBERS_PARAMETER
#define UNPACK_NUMBERS
#endif

__kernel void pointwise_foreach(SLOT_PARAMETERS, const SlotTable slots SHARED NUMBERS_PARAMETER SUM_PARAMETERS) {
    SUM_SCRATCH
    START_NEXT
    AWAIT_INPUTS
    const uint chunk = get_group_id(0);
    UNPACK_NUMBERS
    FIND_SLOT
    CHUNK_BOUNDS
    LOCATE
    SUM_BEGIN
    for (uint at = begin + LANE_ID * WIDTH; at < whole; at += GROUP * WIDTH) {
        REGISTERS
        LOAD_FULL
        COMPUTE_ALL
        STORE_FULL
        SUM_FULL
    }
#if WIDTH > 1
    if (LANE_ID == 0 && whole < end) {
        const uint at = whole, left = end - whole;
        REGISTERS
        LOAD_PART
        COMPUTE_ALL
        STORE_PART
        SUM_PART
    }
#endif
    SUM_END
}
