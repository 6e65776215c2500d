// Rows of queries and keys rotated by angles that depend on the position; queries are written to `out` (batch, heads, rows, width),
// keys and values to a cache (batch, cached, capacity, width): in sequence i at row `lengths[i]` and after. One pair of
// features per work-item, `size` of them. The first 2 half_ features are rotated. Rows outside of the cache are dropped.

#ifndef DTYPE
#define DTYPE float32
#endif
#ifndef CACHE_DTYPE
#define CACHE_DTYPE float32
#endif
#ifndef TABLE_DTYPE
#define TABLE_DTYPE float32
#endif
#ifndef REAL
#define REAL float
#endif
// 1: neighbouring features are pairs.
#ifndef INTERLEAVED
#define INTERLEAVED 0
#endif
#include "lib/dtypes.h"
#include "lib/dependent_launch.h"

// Strides are in elements.
typedef struct {
    long q_b0, q_b1, q_row, q_column, k_b0, k_b1, k_row, k_column, v_b0, v_b1, v_row, v_column;
    long cosines_b0, cosines_row, cosines_column, sines_b0, sines_row, sines_column, lengths_step;
    uint size, heads, cached, rows, width, half_, capacity;
} RotaryGeometry;

__kernel void attention_rotary_store(__global const STORAGE(DTYPE) *q, const ulong q_offset,
                                     __global const STORAGE(DTYPE) *k, const ulong k_offset,
                                     __global const STORAGE(DTYPE) *v, const ulong v_offset,
                                     __global const int *lengths, const ulong lengths_offset,
                                     __global const STORAGE(TABLE_DTYPE) *cosines, const ulong cosines_offset,
                                     __global const STORAGE(TABLE_DTYPE) *sines, const ulong sines_offset,
                                     __global STORAGE(CACHE_DTYPE) *keys, const ulong keys_offset,
                                     __global STORAGE(CACHE_DTYPE) *values, const ulong values_offset,
                                     __global STORAGE(DTYPE) *out, const ulong out_offset, const RotaryGeometry geometry) {
    START_NEXT
    AWAIT_INPUTS
    const uint item = get_global_id(0);
    if (item >= geometry.size) return;
    const uint pairs = geometry.width / 2, pair = item % pairs, row = item / pairs % geometry.rows;
    const uint all = geometry.heads + 2 * geometry.cached, line = item / pairs / geometry.rows, batch = line / all;
    const uint head = line % all;
    const bool is_query = head < geometry.heads, is_key = !is_query && head < geometry.heads + geometry.cached;
    const bool turned = pair < geometry.half_ && (is_query || is_key);
#if INTERLEAVED
    const uint first = 2 * pair, second = first + 1;
#else
    // Pairs of features that are not rotated are neighbours.
    const bool in_halves = pair < geometry.half_;
    const uint first = in_halves ? pair : 2 * pair, second = in_halves ? pair + geometry.half_ : first + 1;
#endif
    const uint kept = head - geometry.heads - (is_key ? 0 : geometry.cached);
    __global const STORAGE(DTYPE) *x = q + q_offset + (batch * geometry.q_b0 + head * geometry.q_b1 + row * geometry.q_row);
    long column = geometry.q_column;
    if (is_key) {
        x = k + k_offset + (batch * geometry.k_b0 + kept * geometry.k_b1 + row * geometry.k_row);
        column = geometry.k_column;
    } else if (!is_query) {
        x = v + v_offset + (batch * geometry.v_b0 + kept * geometry.v_b1 + row * geometry.v_row);
        column = geometry.v_column;
    }
    REAL a = LOAD(DTYPE, x, first * column), b = LOAD(DTYPE, x, second * column);
    if (turned) {
        const REAL c = LOAD(TABLE_DTYPE, cosines, (long)cosines_offset + batch * geometry.cosines_b0 +
                                                      row * geometry.cosines_row + pair * geometry.cosines_column);
        const REAL s = LOAD(TABLE_DTYPE, sines, (long)sines_offset + batch * geometry.sines_b0 +
                                                    row * geometry.sines_row + pair * geometry.sines_column);
        const REAL along = a * c - b * s;
        b = b * c + a * s;
        a = along;
    }
    if (is_query) {
        const ulong to = out_offset + (((ulong)batch * geometry.heads + head) * geometry.rows + row) * geometry.width;
        STORE(DTYPE, a, out, to + first);
        STORE(DTYPE, b, out, to + second);
        return;
    }
    const long place = (long)lengths[(long)lengths_offset + batch * geometry.lengths_step] + row;
    if (place < 0 || place >= geometry.capacity) return;
    const ulong to = (((ulong)batch * geometry.cached + kept) * geometry.capacity + place) * geometry.width;
    __global STORAGE(CACHE_DTYPE) *cache = is_key ? keys + keys_offset : values + values_offset;
    STORE(CACHE_DTYPE, a, cache, to + first);
    STORE(CACHE_DTYPE, b, cache, to + second);
}
