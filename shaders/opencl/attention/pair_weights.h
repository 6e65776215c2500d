// The weights of attention and their gradients, from the products in `p` and `ds`, for the work-item's rows and
// columns. This text is included inside a function body and uses the variable names of attention/tiles_grad.cl.

const bool all_visible = BLOCK_VISIBLE(first, ROWS, column, COLUMNS);
#pragma unroll
for (uint i = 0; i < ITEM_ROWS; i++)
#pragma unroll
    for (uint j = 0; j < ITEM_COLUMNS; j++) {
        const uint my_row = first + y + i * LANES_Y, my_column = column + x + j * LANES_X;
        __global const REAL *my_statistics = statistics + STATISTICS * min(ROWS_ARE_KEYS ? my_column : my_row, t - 1);
        REAL score = p[i][j] * score_scale;
        if (!all_visible) {
            if (!PAIR_VISIBLE(my_row, my_column)) score = -INFINITY;
#if MASK == 2
            else score += PAIR_BIAS(my_row, my_column);
#endif
        }
        p[i][j] = NORMALIZED_WEIGHT(score, my_statistics);
        ds[i][j] = p[i][j] * (ds[i][j] - DELTA(my_statistics));
    }
