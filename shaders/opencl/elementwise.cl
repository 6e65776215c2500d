// One elementwise op, or a fused group of them, over operands of any layout.
//
// The iteration space is `rows` x `inner` elements; a work-item takes WIDTH neighbours of one row. What varies with the op is
// generated (see lowering/elementwise.py): PARAMETERS declares operands and numbers, LOCATE turns the row into the offset
// of each operand, LOAD_FULL and LOAD_PART fill the input registers, COMPUTE evaluates, STORE_FULL and STORE_PART write. The
// defaults add two contiguous arrays of floats.

#ifndef WIDTH
#define WIDTH 4
#endif
#ifndef INDEX
#define INDEX uint
#define OFFSET int
#endif
// A single row needs no division.
#ifndef FLAT
#define FLAT 0
#endif
#include "dtypes.h"
#include "vectors.h"

#ifndef FLOAT_FUNCTIONS
#define FLOAT_FUNCTIONS 0
#endif
#ifndef DOUBLE_FUNCTIONS
#define DOUBLE_FUNCTIONS 0
#endif
#if FLOAT_FUNCTIONS
#include "float_functions.h"
#endif
#if DOUBLE_FUNCTIONS
#include "double_functions.h"
#endif
#ifdef INT_FUNCTIONS
#define INTEGER int
#include "integer_functions.h"
#endif
#ifdef UINT_FUNCTIONS
#define INTEGER uint
#include "integer_functions.h"
#endif
#ifdef LONG_FUNCTIONS
#define INTEGER long
#include "integer_functions.h"
#endif
#ifdef ULONG_FUNCTIONS
#define INTEGER ulong
#include "integer_functions.h"
#endif

#ifndef PARAMETERS
#define PARAMETERS __global const float *p0, ulong o0, __global const float *p1, ulong o1, __global float *p2, ulong o2
#define LOCATE
#define REGISTERS VEC(float) r0, r1;
#define LOAD_FULL LOAD_UNIT(float32, r0, p0 + o0) LOAD_UNIT(float32, r1, p1 + o1)
#define LOAD_PART LOAD_UNIT_PART(float32, r0, p0 + o0) LOAD_UNIT_PART(float32, r1, p1 + o1)
#define COMPUTE_ALL VEC(float) r2 = r0 + r1;
#define STORE_FULL STORE_UNIT(float32, r2, p2 + o2)
#define STORE_PART STORE_UNIT_PART(float32, r2, p2 + o2)
#endif

// Consecutive elements, one element for all lanes, elements `step` apart. The _PART forms touch only the first `left` lanes.
#define EACH for (uint j = 0; j < WIDTH; j++)
// On GPUs, lanes must be numbered by constants: a register that is indexed by a variable lies in memory.
#if ALIGNED
#define EACH_LEFT _Pragma("unroll") EACH if (j < left)
#else
#define EACH_LEFT for (uint j = 0; j < left; j++)
#endif
#define LANE(type, v, j) (((__private type *)&(v))[j])
#define LOAD_UNIT(D, r, p) r = LOADV(D, (p) + at);
#define LOAD_SPLAT(D, r, p) r = (VEC(COMPUTE(D)))(LOAD(D, p, 0));
#define LOAD_STEP(D, r, p, step) EACH LANE(COMPUTE(D), r, j) = LOAD(D, p, (OFFSET)(at + j) * (step));
#define LOAD_UNIT_PART(D, r, p) \
    r = (VEC(COMPUTE(D)))(0); \
    EACH_LEFT LANE(COMPUTE(D), r, j) = LOAD(D, p, at + j);
#define LOAD_STEP_PART(D, r, p, step) \
    r = (VEC(COMPUTE(D)))(0); \
    EACH_LEFT LANE(COMPUTE(D), r, j) = LOAD(D, p, (OFFSET)(at + j) * (step));
#define STORE_UNIT(D, r, p) STOREV(D, r, (p) + at);
#define STORE_STEP(D, r, p, step) EACH STORE(D, LANE(COMPUTE(D), r, j), p, (OFFSET)(at + j) * (step));
#define STORE_UNIT_PART(D, r, p) EACH_LEFT STORE(D, LANE(COMPUTE(D), r, j), p, at + j);
#define STORE_STEP_PART(D, r, p, step) EACH_LEFT STORE(D, LANE(COMPUTE(D), r, j), p, (OFFSET)(at + j) * (step));

__kernel void elementwise(PARAMETERS, const INDEX inner, const INDEX chunks, const INDEX items) {
    const INDEX item = get_global_id(0);
    if (item >= items) return;
#if FLAT
    const INDEX at = item * WIDTH;
#else
    INDEX row = item / chunks;
    const INDEX at = (item - row * chunks) * WIDTH;
#endif
    LOCATE
    REGISTERS
#if WIDTH == 1
    LOAD_FULL
    COMPUTE_ALL
    STORE_FULL
#else
    const uint left = min((INDEX)WIDTH, inner - at);
    if (left == WIDTH) {
        LOAD_FULL
    } else {
        LOAD_PART
    }
    COMPUTE_ALL
    if (left == WIDTH) {
        STORE_FULL
    } else {
        STORE_PART
    }
#endif
}
