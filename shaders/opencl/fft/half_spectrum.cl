// Half the spectra of twice as many real numbers, from the spectra of the complex numbers that their pairs are: the last step of
// transforms of several passes. A work-item stores one element, and one stores two.

#define HALF_TARGET 1
#include "fft/elements.h"
#define N REAL
#include "fft/butterflies.h"

__kernel void fft_half_spectrum(SOURCE, TARGET, __global const REAL_2 *table, const REAL scale,
                                const FourierGeometry geometry) {
    const ulong item = get_global_id(0);
    const uint whole = geometry.whole, k = item % whole;
    const ulong row = item / whole;
    if (row >= (ulong)geometry.outer[0] * geometry.outer[1] * geometry.outer[2]) return;
    UNPACK_OUTER(row)
    const uint mirror = k == 0 ? 0 : whole - k;
    const long from_re = LANE_BEGIN(source_re, 0), from_im = LANE_BEGIN(source_im, 0);
    const long at_re = LANE_BEGIN(target_re, 0) + (long)k * geometry.target_re_strides[5];
    const long at_im = LANE_BEGIN(target_im, 0) + (long)k * geometry.target_im_strides[5];
    const REAL z_re = source_re[from_re + k], z_im = source_im[from_im + k];
    const REAL y_re = source_re[from_re + mirror], y_im = source_im[from_im + mirror];
    STORE_HALF(z_re, z_im, y_re, y_im, at_re, at_im, k)
}
