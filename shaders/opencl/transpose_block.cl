// out[b, r, c] = x[b, c, r] for CPUs: a work-item moves a TILE x TILE square through a private copy that stays in the first
// level of cache, so that whole cache lines are read and written. Elements are moved as bits; strides are in elements.

#ifndef UNIT
#define UNIT uint
#endif
#ifndef TILE
#define TILE 16
#endif

__kernel void transpose_block(__global const UNIT *x, const ulong x_offset, __global UNIT *out, const ulong out_offset,
                              const ulong rows, const ulong columns, const long x_column, const long out_row, const ulong b1,
                              const long x_b0, const long x_b1, const long out_b0, const long out_b1, const ulong squares) {
    const ulong across = (columns + TILE - 1) / TILE;
    const ulong down = (rows + TILE - 1) / TILE;
    const ulong item = get_global_id(0);
    if (item >= squares) return;
    const ulong batch = item / (across * down);
    const ulong square = item - batch * across * down;
    const ulong row = square / across * TILE;
    const ulong column = square % across * TILE;
    x += x_offset;
    x += (long)(batch / b1) * x_b0 + (long)(batch % b1) * x_b1 + (long)column * x_column + (long)row;
    out += out_offset;
    out += (long)(batch / b1) * out_b0 + (long)(batch % b1) * out_b1 + (long)row * out_row + (long)column;
    const uint height = min((ulong)TILE, rows - row);
    const uint width = min((ulong)TILE, columns - column);
    UNIT tile[TILE][TILE];
    if (height == TILE && width == TILE) {
        for (uint c = 0; c < TILE; c++) {
            for (uint r = 0; r < TILE; r++) tile[c][r] = x[(long)c * x_column + r];
        }
        for (uint r = 0; r < TILE; r++) {
            for (uint c = 0; c < TILE; c++) out[(long)r * out_row + c] = tile[c][r];
        }
    } else {
        for (uint c = 0; c < width; c++) {
            for (uint r = 0; r < height; r++) out[(long)r * out_row + c] = x[(long)c * x_column + r];
        }
    }
}
