// The epilogue of a matrix product: generated code (backends/opencl_c/lowering/support/epilogue.py) that is applied to sums
// before they are stored, over a vector of WIDTH neighbours in a row of the result.
//
// EPILOGUE_PARAMETERS declares kernel parameters, each followed by a comma: the EPILOGUE_TENSORS tensors that are read,
// and, with EPILOGUE_NUMBERS, the struct `epilogue` of EPILOGUE_MEMBERS, which UNPACK_EPILOGUE unpacks into variables.
// EPILOGUE_STEPS transforms the variable `sum`, a VEC(REAL): `row` and `column` are the position of its first lane, i0, i1,
// i2 the matrix of the batch, and `left` the number of lanes that are inside the matrix.
//
// EPILOGUE_DECLARE, EPILOGUE_FETCH, EPILOGUE_TRANSPOSE and EPILOGUE_FINISH do the same with loads hoisted far ahead of
// their use, for kernels that include lib/fragment_store.h. EPILOGUE_PREFETCH brings `columns` columns of a row to the cache.

#ifndef POLYHAL_EPILOGUE
#define POLYHAL_EPILOGUE

#ifndef EPILOGUE
#define EPILOGUE 0
#define EPILOGUE_PARAMETERS
#define EPILOGUE_NUMBERS 0
#define UNPACK_EPILOGUE
#define EPILOGUE_STEPS(sum, row, column, i0, i1, i2, left)
#define EPILOGUE_TENSORS 0
#define EPILOGUE_DECLARE
#define EPILOGUE_PREFETCH(row, column, columns, i0, i1, i2)
#define EPILOGUE_FETCH(slot, row, column, i0, i1, i2)
#define EPILOGUE_TRANSPOSE(slot)
#define EPILOGUE_FINISH(sum, slot, g)
#endif

#if EPILOGUE
#include "lib/operands.h"
#endif
#if EPILOGUE_NUMBERS
typedef struct {
    EPILOGUE_MEMBERS
} EpilogueNumbers;
#endif
// Neighbours of an operand along the row: broadcast, contiguous, or strided by `step`.
#define EPILOGUE_LOAD_BROADCAST(D, r, p, step, left) const VEC(COMPUTE(D)) r = (VEC(COMPUTE(D)))(LOAD(D, p, 0));
#define EPILOGUE_LOAD_CONTIGUOUS(D, r, p, step, left) \
    VEC(COMPUTE(D)) r = (VEC(COMPUTE(D)))(0);         \
    if ((left) == WIDTH) r = LOADV(D, p);             \
    else                                              \
        for (uint j = 0; j < (left); j++) LANE(COMPUTE(D), r, j) = LOAD(D, p, j);
#define EPILOGUE_LOAD_STRIDED(D, r, p, step, left) \
    VEC(COMPUTE(D)) r = (VEC(COMPUTE(D)))(0);      \
    for (uint j = 0; j < (left); j++) LANE(COMPUTE(D), r, j) = LOAD(D, p, (long)j * (step));

#endif
