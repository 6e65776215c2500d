// The operands of attention: t queries and s keys of d features, and s values of e features, per head. Heads are indexed
// by three merged batch axes. The features of results are contiguous.
//
// All numbers that a kernel needs are members of its struct argument `geometry`. In a kernel, HEAD_INDICES(head) comes
// first; SELECT_HEAD(name) then moves an operand to that head, so that name[i * name_row + j * name_column] is an
// element, and SELECT_RESULT(name) does so for a result.

#ifndef POLYHAL_ATTENTION_GEOMETRY
#define POLYHAL_ATTENTION_GEOMETRY

// 0: no mask; 1: bool, true keeps a pair; 2: added to the scores; 3: bits of attention/pack_mask.cl, for matrix units only.
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_DTYPE
#define MASK_DTYPE bool_
#endif
// 1: the kernel computes gradients.
#ifndef GRADIENT
#define GRADIENT 0
#endif
#include "lib/dtypes.h"

#define OPERAND(D, name) __global const STORAGE(D) *name, const ulong name##_offset
#define RESULT(D, name) __global STORAGE(D) *name, const ulong name##_offset
#if MASK
#define MASK_OPERAND OPERAND(MASK_DTYPE, mask),
#else
#define MASK_OPERAND
#endif

// Strides in elements, as members of the struct.
#define ROW_STRIDES(name) long name##_batch0, name##_batch1, name##_batch2, name##_row
#define STRIDES(name)  \
    ROW_STRIDES(name); \
    long name##_column

typedef struct {
    STRIDES(q);
    STRIDES(k);
    STRIDES(v);
#if MASK
    STRIDES(mask);
#endif
    ROW_STRIDES(out);
#if GRADIENT
    STRIDES(g);
    ROW_STRIDES(dq);
    ROW_STRIDES(dk);
    ROW_STRIDES(dv);
#endif
    uint t, s, d, e, batch1, batch2;
} AttentionGeometry;

#define DECLARE_LENGTHS const uint t = geometry.t, s = geometry.s, d = geometry.d, e = geometry.e
#define HEAD_INDICES(head)                                      \
    const uint i2 = (head) % geometry.batch2;                   \
    const uint i1 = (head) / geometry.batch2 % geometry.batch1; \
    const uint i0 = (head) / geometry.batch2 / geometry.batch1
#define SELECT_RESULT(name)                                           \
    const long name##_row = geometry.name##_row;                      \
    name += (long)name##_offset + (long)i0 * geometry.name##_batch0 + \
            (long)i1 * geometry.name##_batch1 + (long)i2 * geometry.name##_batch2
#define SELECT_HEAD(name)                              \
    const long name##_column = geometry.name##_column; \
    SELECT_RESULT(name)
#if MASK
#define SELECT_MASK SELECT_HEAD(mask)
#else
#define SELECT_MASK
#endif

// GPUs have an instruction for powers of two, so scores are scaled by log2(e) first, unless a mask is added: the mask is not
// scaled, and all kernels, forward and backward, must round a large score equally.
#if MASK == 2
#define SCORE_UNIT 1
#define WEIGHT(score) fast_exp2(LOG2E * (score))
// Numbers per query that attention/delta.cl computes, the weight of a score by them, and delta.
#define STATISTICS 4
#define NORMALIZED_WEIGHT(score, statistics) fast_exp2(LOG2E * ((score) - (statistics)[0]) - (statistics)[1])
#else
#define SCORE_UNIT LOG2E
#define WEIGHT(score) fast_exp2(score)
#define STATISTICS 2
#define NORMALIZED_WEIGHT(score, statistics) fast_exp2((score) - (statistics)[0])
#endif
#define DELTA(statistics) (statistics)[STATISTICS - 1]
// The logsumexp of a query in two parts, the largest score and the logarithm of the sum relative to it: adding them would round the
// logarithm away where a mask makes the score large. Both are 0 for a query without visible keys, with scores of -inf.
#define STORE_LOGSUMEXP(lse, maximum, sum)              \
    {                                                   \
        const REAL maximum_ = maximum, sum_ = sum;      \
        (lse)[0] = maximum_ == -INFINITY ? 0 : maximum_; \
        (lse)[1] = sum_ == 0 ? 0 : log(sum_);           \
    }
#define LOG2E_float M_LOG2E_F
#define LOG2E_double M_LOG2E
#define LOG2E CONCAT(LOG2E_, REAL)
#define LN2_float M_LN2_F
#define LN2_double M_LN2
#define LN2 CONCAT(LN2_, REAL)

#endif
