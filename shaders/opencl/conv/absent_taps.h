// Results whose sum has absent taps: in the input gradient of a strided convolution, rows of one product get contributions
// from different taps (see conv/implicit_gemm_pack.cl). The weight of an absent tap is packed as -0, and no other weight is.
// Its products with finite numbers add nothing, but those with infinities and NaN are NaN. REPAIR therefore computes each stored
// result that is NaN again, without the absent taps.

#ifndef POLYHAL_CONV_ABSENT_TAPS
#define POLYHAL_CONV_ABSENT_TAPS

// The packed weight at `k_`, and whether its tap is present. Lines of `packed` are at distance `pitch`, in elements.
#if LEFT_PACKED
static inline bool is_present(REAL *weight, __global const uint *packed, const uint pitch, const uint k_) {
    const uint line = k_ / DEPTH * LEFT_LINES + k_ % DEPTH / 2;
    *weight = 0;
    for (uint term = 0; term < BF16_TERMS; term++) {
        const uint word = packed[(ulong)(line + term * (DEPTH / 2)) * pitch];
        if (term == 0 && (k_ % 2 ? word >> 16 : word & 0xffff) == 0x8000) return false;
        *weight += CONCAT(unpacked_, HALF_TYPE)(word, k_ % 2);
    }
    return true;
}
#else
static inline bool is_present(REAL *weight, __global const REAL *packed, const uint pitch, const uint k_) {
    *weight = packed[(ulong)k_ * pitch];
    return *weight != 0 || !signbit(*weight);
}
#endif

#if SPLIT
#define STORED(at) partial[at]
#else
#define STORED(at) LOAD(OUT_DTYPE, out, at)
#endif

// One loop over all results of a work-item: unrolled, it would need registers of the loop over slices.
#define REPAIR                                                                                                     \
    int nan = 0;                                                                                                   \
    UNROLLED(i, 2 * ROW_BLOCKS) UNROLLED(j, 2 * COLUMN_BLOCKS) UNROLLED(e, 8) nan |= acc[i][j][e] != acc[i][j][e]; \
    for (uint i = 0; nan && i < ITEM_ROWS * ITEM_COLUMNS; i++) {                                                   \
        const uint row = first_row + ROW_OF(i / ITEM_COLUMNS);                                                     \
        const uint column = first_column + COLUMN_OF(i % ITEM_COLUMNS);                                            \
        if (row >= m || column >= n) continue;                                                                     \
        STORE_INDEX_COLUMN(column)                                                                                 \
        STORE_INDEX_ROW(row)                                                                                       \
        if (!(STORE_EXISTS)) continue;                                                                             \
        const REAL stored = STORED(row_offset + column_offset);                                                    \
        if (stored == stored) continue;                                                                            \
        const int y = (int)(column / column_width % column_height) * geometry.column_step_y + geometry.origin_y;   \
        const int z = (int)(column % column_width) * geometry.column_step_x + geometry.origin_x;                   \
        const int image = (int)(column / (column_width * column_height)) * x_image + y * x_down + z * x_across;    \
        REAL sum = 0;                                                                                              \
        for (uint k_ = start; k_ < end && sum == sum; k_++) {                                                      \
            REAL weight;                                                                                           \
            const int2 offset = k_offsets[k_];                                                                     \
            if (!IS_INSIDE(PIXEL_AT(y, z) + offset.y, last)) continue;                                             \
            if (is_present(&weight, packed + (row - first_row), down * ROWS, k_))                                  \
                sum += weight * LOAD(DTYPE, x, image + offset.x);                                                  \
        }                                                                                                          \
        STORE_ONE(sum + BIAS_OF(row), row_offset + column_offset);                                                 \
    }

#endif
