// The roles of operands in attention's gradient kernels for GPUs.
//
// A group owns ROWS rows, loops over blocks of COLUMNS columns, and accumulates the gradients of its rows.
// ROWS_ARE_KEYS 0: rows are queries, columns are keys; dq = sum over keys of ds * k.
// ROWS_ARE_KEYS 1: rows are keys, columns are queries; dk = sum over queries of ds * q if WRITE_QK, and
// dv = sum over queries of p * g if WRITE_V.
// Here p = exp(scale * q k^T + mask - logsumexp) and ds = scale * p * (g v^T - delta).
//
// No sum crosses groups, so results are reproducible, unless FUSE_DQ is set with ROWS_ARE_KEYS: then every group adds
// its partial dq atomically, in no fixed order, to a dq that starts at zero.

#ifndef POLYHAL_ATTENTION_GRAD_ROLES
#define POLYHAL_ATTENTION_GRAD_ROLES

#ifndef ROWS_ARE_KEYS
#define ROWS_ARE_KEYS 0
#endif
// Flags: the kernel writes dq or dk; the kernel writes dv.
#ifndef WRITE_QK
#define WRITE_QK 1
#endif
#ifndef WRITE_V
#define WRITE_V ROWS_ARE_KEYS
#endif
#ifndef FUSE_DQ
#define FUSE_DQ 0
#endif
#define GRADIENT 1
#include "attention/visibility.h"

// QK: what scores are computed from; VG: the values and the output's gradient, whose products are the gradients of p.
#if ROWS_ARE_KEYS
#define ROW_QK k
#define ROW_VG v
#define COLUMN_QK q
#define COLUMN_VG g
#define ROW_COUNT s
#define COLUMN_COUNT t
#define GRAD_QK dk
#else
#define ROW_QK q
#define ROW_VG g
#define COLUMN_QK k
#define COLUMN_VG v
#define ROW_COUNT t
#define COLUMN_COUNT s
#define GRAD_QK dq
#endif
#if FUSE_DQ
#define GRADIENTS(D) RESULT(D, dq), RESULT(D, dk), RESULT(D, dv)
#elif WRITE_QK && WRITE_V
#define GRADIENTS(D) RESULT_EXPANDED(D, GRAD_QK), RESULT(D, dv)
#elif WRITE_QK
#define GRADIENTS(D) RESULT_EXPANDED(D, GRAD_QK)
#else
#define GRADIENTS(D) RESULT(D, dv)
#endif
// These macros paste their arguments, so an argument that is itself a macro needs one more expansion.
#define RESULT_EXPANDED(D, name) RESULT(D, name)
#define SELECT_RESULT_EXPANDED(name) SELECT_RESULT(name)
#define OPERANDS OPERAND(DTYPE, g), OPERAND(DTYPE, q), OPERAND(DTYPE, k), OPERAND(DTYPE, v)
#define SELECT_OPERANDS \
    SELECT_HEAD(g);     \
    SELECT_HEAD(q);     \
    SELECT_HEAD(k);     \
    SELECT_HEAD(v);     \
    SELECT_MASK

// The group's first row, and the range of columns visible to any of its rows. Under a causal mask the last queries
// attend to the most keys, and the first keys are attended by the most queries. These groups have the most work, so
// they start first.
#if ROWS_ARE_KEYS
#define FIRST_ROW (get_group_id(0) * ROWS)
#define FIRST_COLUMN(row) (FIRST_QUERY(row) / COLUMNS * COLUMNS)
#define END_COLUMN(row) t
#define BLOCK_VISIBLE(row, rows, column, columns) ALL_VISIBLE(column, columns, row, rows)
#define PAIR_VISIBLE(row, column) VISIBLE(column, row)
#define PAIR_BIAS(row, column) MASK_BIAS(column, row)
#else
#define FIRST_ROW ((get_num_groups(0) - 1 - get_group_id(0)) * ROWS)
#define FIRST_COLUMN(row) 0
#define END_COLUMN(row) VISIBLE_KEYS(min((row) + ROWS, t))
#define BLOCK_VISIBLE ALL_VISIBLE
#define PAIR_VISIBLE VISIBLE
#define PAIR_BIAS MASK_BIAS
#endif

#endif
