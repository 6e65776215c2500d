// Which keys a query attends to: the mask, and with CAUSAL the keys up to i + s - t for query i. Expects `t`, `s` and,
// with MASK, the selected operand `mask` of attention/geometry.h in scope.

#ifndef POLYHAL_ATTENTION_VISIBILITY
#define POLYHAL_ATTENTION_VISIBILITY

#ifndef CAUSAL
#define CAUSAL 0
#endif
#include "attention/geometry.h"

#if CAUSAL
// The key on the causal diagonal of query 0.
#define DIAGONAL ((int)s - (int)t)
// The end of the keys visible to queries before `query`, and the first query that attends to `key`.
#define VISIBLE_KEYS(query) ((uint)clamp((int)(query) + DIAGONAL, 0, (int)s))
#define FIRST_QUERY(key) ((uint)clamp((int)(key) - DIAGONAL, 0, (int)t))
#define CAUSAL_VISIBLE(query, key) ((int)(key) <= (int)(query) + DIAGONAL)
#else
#define VISIBLE_KEYS(query) s
#define FIRST_QUERY(key) 0u
#define CAUSAL_VISIBLE(query, key) true
#endif
#if MASK == 1
#define MASK_KEEPS(query, key) mask[(query) * mask_row + (key) * mask_column]
#else
#define MASK_KEEPS(query, key) true
#endif
#if MASK == 2
#define MASK_BIAS(query, key) LOAD(MASK_DTYPE, mask, (query) * mask_row + (key) * mask_column)
#endif
#define VISIBLE(query, key) ((query) < t && (key) < s && CAUSAL_VISIBLE(query, key) && MASK_KEEPS(query, key))
// True if all pairs of a block of `rows` queries by `columns` keys are visible, so that no pair has to be tested.
#if MASK
#define ALL_VISIBLE(query, rows, key, columns) false
#else
#define ALL_VISIBLE(query, rows, key, columns) \
    ((query) + (rows) <= t && (key) + (columns) <= s && CAUSAL_VISIBLE(query, (key) + (columns) - 1))
#endif

#endif
