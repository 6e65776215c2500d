// What generated elementwise code is written in: the functions of our own for each register class, and loads and stores of
// WIDTH elements of an operand, from element `at` of its row on.

#ifndef POLYHAL_OPERANDS
#define POLYHAL_OPERANDS

#ifndef INDEX
#define INDEX uint
#define OFFSET int
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

#endif
