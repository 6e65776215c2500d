// What the kernels of attention's gradient share: their parameters, and which operands are theirs.
//
// A group takes ROWS rows and passes over the columns COLUMNS at a time, adding to the rows' gradients. KEYS 0: rows are queries and
// columns keys; a row gathers dq = sum over keys of ds * k. KEYS 1: rows are keys and columns queries; a row gathers dk = sum over queries
// of ds * q where FIRST is set, and dv = sum over queries of p * g where SECOND is. Here p = exp(scale * q k^T + mask - lse) and
// ds = scale * p * (g v^T - delta). No sum crosses groups, so that the result is the same every time, unless ALL is set with KEYS: then
// the columns' dq, which begin at zero, are added to in memory by every group, in no fixed order.

#ifndef POLYHAL_HEAD_GRADIENTS
#define POLYHAL_HEAD_GRADIENTS

#ifndef KEYS
#define KEYS 0
#endif
#ifndef FIRST
#define FIRST 1
#endif
#ifndef SECOND
#define SECOND KEYS
#endif
#ifndef ALL
#define ALL 0
#endif
#include "attention/arguments.h"

// `first` is what keys are compared by, `second` what values are; of the rows (own) and of the columns (other).
#if KEYS
#define OWN_FIRST k
#define OWN_SECOND v
#define OTHER_FIRST q
#define OTHER_SECOND g
#define OWN_LENGTH s
#define OTHER_LENGTH t
#define FIRST_GRADIENT dk
#else
#define OWN_FIRST q
#define OWN_SECOND g
#define OTHER_FIRST k
#define OTHER_SECOND v
#define OWN_LENGTH t
#define OTHER_LENGTH s
#define FIRST_GRADIENT dq
#endif
#if ALL
#define GRADIENTS(D) RESULT(D, dq), RESULT(D, dk), RESULT(D, dv)
#define GRADIENT_PLACES PLACES(dq), PLACES(dk), PLACES(dv)
#elif FIRST && SECOND
#define GRADIENTS(D) RESULT_NAMED(D, FIRST_GRADIENT), RESULT(D, dv)
#define GRADIENT_PLACES PLACES_NAMED(FIRST_GRADIENT), PLACES(dv)
#elif FIRST
#define GRADIENTS(D) RESULT_NAMED(D, FIRST_GRADIENT)
#define GRADIENT_PLACES PLACES_NAMED(FIRST_GRADIENT)
#else
#define GRADIENTS(D) RESULT(D, dv)
#define GRADIENT_PLACES PLACES(dv)
#endif
// They make names of their arguments, which here is a macro.
#define RESULT_NAMED(D, name) RESULT(D, name)
#define PLACES_NAMED(name) PLACES(name)
#define FIND_NAMED(name) FIND(name)
#define OPERANDS OPERAND(DTYPE, g), OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v)
#define ALL_STRIDES STRIDES(g), STRIDES(q), STRIDES(k), STRIDES(v)
#define FIND_OPERANDS \
    FIND(g);          \
    FIND(q);          \
    FIND(k);          \
    FIND(v);          \
    FIND_MASK

// The group's first row, and the columns that concern any of its rows. Under a causal mask the last queries see the most keys, and the first
// keys are seen by the most queries: those start first.
#if KEYS
#define FIRST_ROW (get_group_id(0) * ROWS)
#define FIRST_COLUMN(row) (FIRST_QUERY(row) / COLUMNS * COLUMNS)
#define END_OF_COLUMNS(row) t
#define TILE_SEEN(row, rows, column, columns) ALL_SEEN(column, columns, row, rows)
#define PAIR_SEEN(row, column) SEEN(column, row)
#define PAIR_ADDED(row, column) ADDED(column, row)
#else
#define FIRST_ROW ((get_num_groups(0) - 1 - get_group_id(0)) * ROWS)
#define FIRST_COLUMN(row) 0
#define END_OF_COLUMNS(row) KEYS_SEEN(min((row) + ROWS, t))
#define TILE_SEEN ALL_SEEN
#define PAIR_SEEN SEEN
#define PAIR_ADDED ADDED
#endif

#endif
