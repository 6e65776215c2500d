// Results of Winograd's kernels that are not finite.

#ifndef POLYHAL_WINOGRAD_TAPS
#define POLYHAL_WINOGRAD_TAPS

// A result by its taps, for tiles that are not finite.
static inline float sum_of_taps(__global const STORAGE(DTYPE) *x, __global const STORAGE(DTYPE) *w, int top, int left,
                                WINOGRAD_GEOMETRY geometry) {
    float sum = 0;
    for (uint c = 0; c < geometry.channels; c++)
        for (int tap = 0; tap < 9; tap++) {
            const int y = top + tap / 3, z = left + tap % 3;
            if (y < 0 || y >= geometry.height || z < 0 || z >= geometry.width) continue;
            sum += LOAD(DTYPE, x, c * geometry.x_channel + y * geometry.x_down + z * geometry.x_across) *
                   LOAD(DTYPE, w, c * geometry.w_channel + tap / 3 * geometry.w_row + tap % 3 * geometry.w_column);
        }
    return sum;
}

#endif
