// Which keys a query attends to: the mask, with CAUSAL the keys up to i + s - t for query i, and with LENGTHS the keys of a cache up
// to the position of the query, with WINDOW the last `window` ones only. Expects `t`, `s` and, with MASK, the selected operand
// `mask` of attention/geometry.h in scope, and with LENGTHS the int `length`, number of positions before the first query.

#ifndef POLYHAL_ATTENTION_VISIBILITY
#define POLYHAL_ATTENTION_VISIBILITY

#ifndef CAUSAL
#define CAUSAL 0
#endif
// 1: keys are a cache, whose filled positions are counted in device memory.
#ifndef LENGTHS
#define LENGTHS 0
#endif
// 1: queries attend to the last `window` filled positions only.
#ifndef WINDOW
#define WINDOW 0
#endif
#include "attention/geometry.h"

#if LENGTHS
typedef struct {
    long lengths_step;
    // Heads per sequence, positions per query (0 if queries are heads that share keys), and positions that a query attends to.
    uint heads, position_step, window;
} CacheGeometry;
// The position of a query, and the positions filled once the last query's is.
#define POSITION(query) (length + (int)((query) * cache.position_step))
#define SELECT_LENGTH(head)                                                                           \
    const int length = lengths[(long)lengths_offset + (long)((head) / cache.heads) * cache.lengths_step]; \
    const uint s = (uint)clamp(POSITION(t - 1) + 1, 0, (int)geometry.s)
#define VISIBLE_KEYS(query) ((uint)clamp(POSITION((query) - 1) + 1, 0, (int)s))
// The first query that attends to `key`, if queries have positions of their own.
#define FIRST_QUERY(key) ((uint)clamp((int)(key) - length, 0, (int)t))
#if WINDOW
#define FIRST_KEY(query) ((uint)clamp(POSITION(query) - (int)cache.window + 1, 0, (int)s))
#else
#define FIRST_KEY(query) 0u
#endif
#define CAUSAL_VISIBLE(query, key) ((int)(key) <= POSITION(query) && (key) >= FIRST_KEY(query))
#elif CAUSAL
// The key on the causal diagonal of query 0.
#define DIAGONAL ((int)s - (int)t)
// The end of the keys visible to queries before `query`, and the first query that attends to `key`.
#define VISIBLE_KEYS(query) ((uint)clamp((int)(query) + DIAGONAL, 0, (int)s))
#define FIRST_KEY(query) 0u
#define FIRST_QUERY(key) ((uint)clamp((int)(key) - DIAGONAL, 0, (int)t))
#define CAUSAL_VISIBLE(query, key) ((int)(key) <= (int)(query) + DIAGONAL)
#else
#define VISIBLE_KEYS(query) s
#define FIRST_KEY(query) 0u
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
    ((query) + (rows) <= t && (key) + (columns) <= s && CAUSAL_VISIBLE(query, (key) + (columns) - 1) && \
     (key) >= FIRST_KEY((query) + (rows) - 1))
#endif

#endif
