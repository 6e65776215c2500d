// What the kernels of attention share: t queries and s keys of d features, s values of e, repeated over heads that are numbered by
// three merged axes; and which pairs of query and key count. Query i sees keys up to i + s - t where CAUSAL.
//
// A kernel lists OPERAND(D, name) or MASK_OPERAND among its memory, LENGTHS and STRIDES(name) or MASK_STRIDES among its numbers, and says
// HEAD_NUMBERS(head) and then FIND(name) or FIND_MASK, after which name[i * name_row + j * name_column] is an element. Results, whose
// features lie side by side, have PLACES(name) among the numbers.

#ifndef POLYHAL_HEADS
#define POLYHAL_HEADS

#ifndef CAUSAL
#define CAUSAL 0
#endif
// 0: none; 1: bool, True keeps; 2: added.
#ifndef MASK
#define MASK 0
#endif
#ifndef MASK_DTYPE
#define MASK_DTYPE bool_
#endif
#include "lib/dtypes.h"

#define OPERAND(D, name) __global const STORAGE(D) *name, const ulong name##_offset
#define RESULT(D, name) __global STORAGE(D) *name, const ulong name##_offset
#define LENGTHS \
    const uint t, const uint s, const uint d, const uint e, const REAL scale, const uint batch1, const uint batch2
#define STRIDES(name) \
    const long name##_batch0, const long name##_batch1, const long name##_batch2, const long name##_row, const long name##_column
#define PLACES(name) const long name##_batch0, const long name##_batch1, const long name##_batch2, const long name##_row
#define HEAD_NUMBERS(head) const uint i2 = (head) % batch2, i1 = (head) / batch2 % batch1, i0 = (head) / batch2 / batch1
#define FIND(name) \
    name += (long)name##_offset + (long)i0 * name##_batch0 + (long)i1 * name##_batch1 + (long)i2 * name##_batch2

#if MASK
#define MASK_OPERAND OPERAND(MASK_DTYPE, mask),
#define MASK_STRIDES , STRIDES(mask)
#define FIND_MASK FIND(mask)
#else
#define MASK_OPERAND
#define MASK_STRIDES
#define FIND_MASK
#endif

#define SHIFT ((int)s - (int)t)
#if CAUSAL
// Keys that any of the queries before `query` sees, and the first query that sees `key`.
#define KEYS_SEEN(query) ((uint)clamp((int)(query) + SHIFT, 0, (int)s))
#define FIRST_QUERY(key) ((uint)clamp((int)(key) - SHIFT, 0, (int)t))
#define IN_TIME(query, key) ((int)(key) <= (int)(query) + SHIFT)
#else
#define KEYS_SEEN(query) s
#define FIRST_QUERY(key) 0u
#define IN_TIME(query, key) true
#endif
#if MASK == 1
#define KEPT(query, key) mask[(query) * mask_row + (key) * mask_column]
#else
#define KEPT(query, key) true
#endif
#if MASK == 2
#define ADDED(query, key) LOAD(MASK_DTYPE, mask, (query) * mask_row + (key) * mask_column)
#endif
#define SEEN(query, key) ((query) < t && (key) < s && IN_TIME(query, key) && KEPT(query, key))
// Whether none of the pairs of `rows` queries and `columns` keys from here on has to be examined.
#if MASK
#define ALL_SEEN(query, rows, key, columns) false
#else
#define ALL_SEEN(query, rows, key, columns) \
    ((query) + (rows) <= t && (key) + (columns) <= s && IN_TIME(query, (key) + (columns) - 1))
#endif

// GPUs have an instruction for powers of two: scores are multiplied by this first.
#define LOG2E_float M_LOG2E_F
#define LOG2E_double M_LOG2E
#define LOG2E CONCAT(LOG2E_, REAL)
#define LN2_float M_LN2_F
#define LN2_double M_LN2
#define LN2 CONCAT(LN2_, REAL)

#endif
