// Pack a boolean mask of attention to bits, together with the causal mask: bit c % 32 of word c / 32 of row r is set if row r and
// column c see each other. Rows are queries and columns are keys, or with ROWS_ARE_KEYS the reverse. A row has `words` words.

#ifndef ROWS_ARE_KEYS
#define ROWS_ARE_KEYS 0
#endif
#ifndef CAUSAL
#define CAUSAL 0
#endif
#define MASK 1
#include "attention/geometry.h"

typedef struct {
    STRIDES(mask);
    uint t, s, words, batch1, batch2;
} MaskGeometry;

#include "attention/visibility.h"

__kernel void attention_pack_mask(OPERAND(bool_, mask), __global uint *bits, const MaskGeometry geometry) {
    const uint t = geometry.t, s = geometry.s, words = geometry.words, rows = ROWS_ARE_KEYS ? s : t;
    // Neighbouring work-items read neighbouring keys.
    const uint row = ROWS_ARE_KEYS ? get_global_id(0) : get_global_id(1);
    const uint word = ROWS_ARE_KEYS ? get_global_id(1) : get_global_id(0);
    if (row >= rows || word >= words) return;
    HEAD_INDICES(get_global_id(2));
    SELECT_HEAD(mask);
    uint packed = 0;
    for (uint bit = 0; bit < 32; bit++) {
        const uint column = 32 * word + bit;
        const bool visible = ROWS_ARE_KEYS ? VISIBLE(column, row) : VISIBLE(row, column);
        packed |= (uint)visible << bit;
    }
    bits[((ulong)get_global_id(2) * rows + row) * words + word] = packed;
}
