// The products of Winograd's kernels: a group of ITEMS multiplies all 16 elements of ROWS x COLUMNS, for one term at a time, from
// operands (term, element, row or column) in local memory. A work-item has ROW_QUADS x COLUMN_QUADS blocks of 4 x 4 of one element.

#ifndef POLYHAL_WINOGRAD_PRODUCT
#define POLYHAL_WINOGRAD_PRODUCT

#ifndef ROW_QUADS
#define ROW_QUADS 2
#endif
#ifndef COLUMN_QUADS
#define COLUMN_QUADS 2
#endif
// Terms that are multiplied between two barriers.
#ifndef TERMS
#define TERMS 4
#endif
#include "conv/winograd_transforms.h"
#include "lib/unrolled_terms.h"

#define ITEMS 256
#define ROWS (16 * ROW_QUADS)
#define COLUMNS (16 * COLUMN_QUADS)
// The two elements that 32 neighbouring work-items have are in different halves of the banks.
#define PLACE_OF(element, line) ((line) ^ ((element) % 2 * 16))

// The block of a work-item, and its first places in both operands for even and odd quads.
#define DECLARE_BLOCK                                                                                                 \
    const uint element = me / 16, row4 = me / 4 % 4 * 4, column4 = me % 4 * 4;                                         \
    const uint row_at[2] = {element * ROWS + PLACE_OF(element, 0) + row4, element * ROWS + PLACE_OF(element, 16) + row4}; \
    const uint column_at[2] = {element * COLUMNS + PLACE_OF(element, 0) + column4,                                    \
                               element * COLUMNS + PLACE_OF(element, 16) + column4};                                  \
    float sums[4 * ROW_QUADS][4 * COLUMN_QUADS];                                                                      \
    _Pragma("unroll") for (uint i = 0; i < 4 * ROW_QUADS; i++)                                                        \
        _Pragma("unroll") for (uint j = 0; j < 4 * COLUMN_QUADS; j++) sums[i][j] = 0;

#define LOAD_QUADS(count, to, from, at)                                                           \
    _Pragma("unroll") for (uint q = 0; q < (count); q++) {                                        \
        const float4 quad = *(__local const float4 *)((from) + q / 2 * 32 + (at)[q % 2]);         \
        to[4 * q] = quad.x, to[4 * q + 1] = quad.y, to[4 * q + 2] = quad.z, to[4 * q + 3] = quad.w; \
    }

// Adds the products of TERMS terms, at distances of `row_pitch` and `column_pitch`, to the sums.
#define MULTIPLY(rows, row_pitch, columns, column_pitch)                                                              \
    UNROLLED_TERMS for (uint p = 0; p < TERMS; p++) {                                                                 \
        float a[4 * ROW_QUADS], b[4 * COLUMN_QUADS];                                                                  \
        LOAD_QUADS(ROW_QUADS, a, (rows) + p * (row_pitch), row_at)                                                    \
        LOAD_QUADS(COLUMN_QUADS, b, (columns) + p * (column_pitch), column_at)                                        \
        _Pragma("unroll") for (uint i = 0; i < 4 * ROW_QUADS; i++)                                                    \
            _Pragma("unroll") for (uint j = 0; j < 4 * COLUMN_QUADS; j++) sums[i][j] += a[i] * b[j];                  \
    }

// Four sums of row `i`, from column 4 * q.
#define SUMS_OF(i, q) (float4)(sums[i][4 * (q)], sums[i][4 * (q) + 1], sums[i][4 * (q) + 2], sums[i][4 * (q) + 3])

// Transforms a tile of pixels d to 16 elements, and stores them at `to` for line `line` of `lines`.
#define STORE_PIXELS(d, to, lines, line)                                                                     \
    {                                                                                                        \
        const uint at[2] = {PLACE_OF(0, line), PLACE_OF(1, line)};                                           \
        float t[4][4];                                                                                       \
        _Pragma("unroll") for (uint c = 0; c < 4; c++) {                                                     \
            TRANSFORM_PIXELS((d)[0][c], (d)[1][c], (d)[2][c], (d)[3][c], t[0][c], t[1][c], t[2][c], t[3][c]) \
        }                                                                                                    \
        _Pragma("unroll") for (uint r = 0; r < 4; r++) {                                                     \
            float e[4];                                                                                      \
            TRANSFORM_PIXELS(t[r][0], t[r][1], t[r][2], t[r][3], e[0], e[1], e[2], e[3])                     \
            _Pragma("unroll") for (uint c = 0; c < 4; c++)(to)[(4 * r + c) * (lines) + at[c % 2]] = e[c];    \
        }                                                                                                    \
    }

#endif
