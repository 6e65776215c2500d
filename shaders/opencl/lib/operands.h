// Building blocks of generated elementwise code: functions for each compute type, and loads and stores of WIDTH
// elements of an operand from element `at` of its row.

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

// Contiguous elements, one element broadcast to all lanes, elements strided by `step`. The _PART forms touch only the
// first `left` lanes; the contiguous ones prefetch the vector PREFETCH_DISTANCE bytes ahead.
#define EACH for (uint j = 0; j < WIDTH; j++)
// GPUs need constant lane numbers: a register that is indexed by a variable is spilled to memory.
#if ALIGNED
#define EACH_LEFT _Pragma("unroll") EACH if (j < left)
#else
// Rarely executed; a vectorized loop would be longer than the rest of the kernel.
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
// The vector is copied first, so that only the copy is indexed by a variable and spilled, not the register that whole
// vectors use.
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
