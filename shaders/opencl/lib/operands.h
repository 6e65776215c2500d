// What generated elementwise code is written in: the functions of our own for each register class, and loads and stores of
// WIDTH elements of an operand, from element `at` of its row on.

#ifndef POLYHAL_OPERANDS
#define POLYHAL_OPERANDS

#ifndef INDEX
#define INDEX uint
#define OFFSET int
#endif
#include "lib/dtypes.h"
#include "lib/vectors.h"

#ifndef FLOAT_FUNCTIONS
#define FLOAT_FUNCTIONS 0
#endif
#ifndef DOUBLE_FUNCTIONS
#define DOUBLE_FUNCTIONS 0
#endif
#if FLOAT_FUNCTIONS
#include "lib/float_functions.h"
#endif
#if DOUBLE_FUNCTIONS
#include "lib/double_functions.h"
#endif
#ifdef INT_FUNCTIONS
#define INTEGER int
#include "lib/integer_functions.h"
#endif
#ifdef UINT_FUNCTIONS
#define INTEGER uint
#include "lib/integer_functions.h"
#endif
#ifdef LONG_FUNCTIONS
#define INTEGER long
#include "lib/integer_functions.h"
#endif
#ifdef ULONG_FUNCTIONS
#define INTEGER ulong
#include "lib/integer_functions.h"
#endif

// Consecutive elements, one element for all lanes, elements `step` apart. The _PART forms touch only the first `left` lanes. Where
// whole vectors are read or written, those PREFETCH_DISTANCE bytes later are asked for.
#define EACH for (uint j = 0; j < WIDTH; j++)
// On GPUs, lanes must be numbered by constants: a register that is indexed by a variable lies in memory.
#if ALIGNED
#define EACH_LEFT _Pragma("unroll") EACH if (j < left)
#else
// Rare, and a loop that the compiler makes vectors of would be longer than all the rest.
#define EACH_LEFT _Pragma("clang loop vectorize(disable) unroll(disable)") for (uint j = 0; j < left; j++)
#endif
#define LANE(type, v, j) (((__private type *)&(v))[j])
#define LOAD_CONTIGUOUS(D, r, p) \
    PREFETCH_READ((p) + at + PREFETCH_DISTANCE / sizeof(*(p))) \
    r = LOADV(D, (p) + at);
#define LOAD_BROADCAST(D, r, p) r = (VEC(COMPUTE(D)))(LOAD(D, p, 0));
#define LOAD_STRIDED(D, r, p, step) EACH LANE(COMPUTE(D), r, j) = LOAD(D, p, (OFFSET)(at + j) * (step));
#define LOAD_CONTIGUOUS_PART(D, r, p) GATHER_PART(D, r, LOAD(D, p, at + j))
#define LOAD_STRIDED_PART(D, r, p, step) GATHER_PART(D, r, LOAD(D, p, (OFFSET)(at + j) * (step)))
#define STORE_CONTIGUOUS(D, r, p) \
    PREFETCH_WRITE((p) + at + PREFETCH_DISTANCE / sizeof(*(p))) \
    STOREV(D, r, (p) + at);
#define STORE_STRIDED(D, r, p, step) EACH STORE(D, LANE(COMPUTE(D), r, j), p, (OFFSET)(at + j) * (step));
#define STORE_CONTIGUOUS_PART(D, r, p) SCATTER_PART(D, r, STORE(D, LANE(COMPUTE(D), part, j), p, at + j);)
#define STORE_STRIDED_PART(D, r, p, step) SCATTER_PART(D, r, STORE(D, LANE(COMPUTE(D), part, j), p, (OFFSET)(at + j) * (step));)
// Through a copy, so that only it is indexed by a variable and lies in memory, not the register that whole vectors use.
#define GATHER_PART(D, r, lane) \
    { \
        VEC(COMPUTE(D)) part = (VEC(COMPUTE(D)))(0); \
        EACH_LEFT LANE(COMPUTE(D), part, j) = lane; \
        r = part; \
    }
#define SCATTER_PART(D, r, store) \
    { \
        VEC(COMPUTE(D)) part = r; \
        EACH_LEFT store \
    }

#endif
