// What a matrix product does with a sum before it stores it: generated text (lowering/epilogue.py), over a vector of WIDTH
// neighbours in a row of the result.
//
// EPILOGUE_PARAMETERS declares kernel parameters, each followed by a comma: the tensors that are read, and with EPILOGUE_NUMBERS
// the struct `epilogue` with EPILOGUE_MEMBERS, which UNPACK_EPILOGUE makes variables. EPILOGUE_STEPS takes the sums from the variable
// `sum`, a VEC(REAL), and leaves the results there. `row` and `column` say where the first of them belongs, i0, i1, i2 in
// which matrix of the batch, and `left` how many of them are wanted.
//
// EPILOGUE_DECLARE, EPILOGUE_FETCH, EPILOGUE_TRANSPOSE and EPILOGUE_FINISH do the same with loads long before the steps, for the
// kernels that include lib/fragment_store.h. EPILOGUE_TENSORS is the number of tensors that are read.

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
// An operand's neighbours along the row: the same for all, side by side, or `step` apart.
#define EPILOGUE_LOAD_BROADCAST(D, r, p, step, left) const VEC(COMPUTE(D)) r = (VEC(COMPUTE(D)))(LOAD(D, p, 0));
#define EPILOGUE_LOAD_CONTIGUOUS(D, r, p, step, left)      \
    VEC(COMPUTE(D)) r = (VEC(COMPUTE(D)))(0); \
    if ((left) == WIDTH) r = LOADV(D, p);     \
    else                                      \
        for (uint j = 0; j < (left); j++) LANE(COMPUTE(D), r, j) = LOAD(D, p, j);
#define EPILOGUE_LOAD_STRIDED(D, r, p, step, left)      \
    VEC(COMPUTE(D)) r = (VEC(COMPUTE(D)))(0); \
    for (uint j = 0; j < (left); j++) LANE(COMPUTE(D), r, j) = LOAD(D, p, (long)j * (step));

#endif
