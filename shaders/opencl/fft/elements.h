// Operands and results of Fourier transforms: places of elements in memory, factors, and halves of spectra.
//
// A kernel transforms `lanes` neighbouring rows for each index of four outer axes; strides are along these, lanes and elements.
// Positions count elements of the whole transform; a row may be a part of it.

#ifndef POLYHAL_FFT_ELEMENTS
#define POLYHAL_FFT_ELEMENTS

#ifndef REAL
#define REAL float
#endif
// Operand: 0 complex, 1 half a spectrum of an even number of real numbers, 2 of an odd number.
#ifndef HALF_SOURCE
#define HALF_SOURCE 0
#endif
// Result: 1 half the spectrum of twice as many real numbers.
#ifndef HALF_TARGET
#define HALF_TARGET 0
#endif
// Parts in memory; absent ones of operands are 0.
#ifndef SOURCE_IM
#define SOURCE_IM 1
#endif
#ifndef TARGET_RE
#define TARGET_RE 1
#endif
#ifndef TARGET_IM
#define TARGET_IM 1
#endif
// 1 if elements past a position are 0, or not stored.
#ifndef SOURCE_CUT
#define SOURCE_CUT 0
#endif
#ifndef TARGET_CUT
#define TARGET_CUT 0
#endif
// 1 if elements have factors.
#ifndef SOURCE_FACTORS
#define SOURCE_FACTORS 0
#endif
#ifndef TARGET_FACTORS
#define TARGET_FACTORS 0
#endif
// 1 if result k of lane j is multiplied by a root of unity to the power j k.
#ifndef TWIDDLED
#define TWIDDLED 0
#endif
#include "lib/dtypes.h"

typedef struct {
    long source_re_strides[6], source_im_strides[6], target_re_strides[6], target_im_strides[6];
    long mirror_re, mirror_im;  // strides along the transformed axis
    uint outer[4];
    uint source_position[3], target_position[3];  // strides along the last outer axis, lanes and elements
    uint lanes, blocks;                           // rows, and groups of them
    uint source_count, target_count;              // elements in memory
    uint whole;                                   // length of the whole transform
    uint source_factors, target_factors;          // indices of tables
    uint fine, coarse, fine_bits;                 // roots of unity of the powers j k, and of 2^fine_bits times these
    uint half_fine, half_coarse, half_bits;       // roots of order 2 `whole`
    uint lane_roots;                              // for CPUs: roots of the powers j k, of the lanes j of one vector
} FourierGeometry;

#define REAL_2 CONCAT(REAL, 2)
#if SOURCE_IM
#define SOURCE                                                                                          \
    __global const REAL *source_re, const ulong source_re_offset, __global const REAL *source_im, \
        const ulong source_im_offset
#else
#define SOURCE __global const REAL *source_re, const ulong source_re_offset
#endif
#define TARGET_PART(part) __global REAL *target_##part, const ulong target_##part##_offset
#if TARGET_RE && TARGET_IM
#define TARGET TARGET_PART(re), TARGET_PART(im)
#elif TARGET_RE
#define TARGET TARGET_PART(re)
#else
#define TARGET TARGET_PART(im)
#endif

// (a + i b) *= (x + i y)
#define ROTATE(T, a, b, x, y)    \
    {                            \
        const T old = a;         \
        a = old * (x) - b * (y); \
        b = old * (y) + b * (x); \
    }

// Root of unity to a power, from tables of low and of high powers.
FORCE_INLINE REAL_2 root(__global const REAL_2 *table, const uint fine, const uint coarse, const uint bits, const uint power) {
    const REAL_2 low = table[fine + (power & ((1u << bits) - 1))], high = table[coarse + (power >> bits)];
    return (REAL_2)(low.x * high.x - low.y * high.y, low.x * high.y + low.y * high.x);
}

// Index of the first element of a lane, for the outer index o0, o1, o2, o3.
#define LANE_BEGIN(part, lane)                                                                                         \
    ((long)part##_offset + (long)o0 * geometry.part##_strides[0] + (long)o1 * geometry.part##_strides[1] + (long)o2 * geometry.part##_strides[2] + \
     (long)o3 * geometry.part##_strides[3] + (long)(lane) * geometry.part##_strides[4])
#define UNPACK_OUTER(index)                                             \
    const uint o3 = (index) % geometry.outer[3];                        \
    const uint o2 = (index) / geometry.outer[3] % geometry.outer[2];    \
    const uint o1 = (index) / geometry.outer[3] / geometry.outer[2] % geometry.outer[1]; \
    const uint o0 = (index) / geometry.outer[3] / geometry.outer[2] / geometry.outer[1];

// Half a spectrum, x(k) at `position` k < `whole`, becomes element k of an inverse transform; its parts are exchanged.
// Even: of half as many complex numbers, x(k) + x'(whole - k) + i w (x(k) - x'(whole - k)), where ' is the conjugate and w the root
// of order 2 `whole` to the power -k. Odd: of all numbers, the last ones mirror images.
#if HALF_SOURCE == 1
#define FROM_HALF(re, im, at_re, at_im, position)                                                                   \
    {                                                                                                               \
        const long away = (long)geometry.whole - 2 * (long)(position);                                              \
        REAL near_re = source_re[at_re], near_im = source_im[at_im];                                                      \
        REAL far_re = source_re[(at_re) + away * geometry.mirror_re], far_im = -source_im[(at_im) + away * geometry.mirror_im]; \
        if ((position) == 0) near_im = far_im = 0;                                                                       \
        const REAL_2 w = root(table, geometry.half_fine, geometry.half_coarse, geometry.half_bits, position);       \
        const REAL difference_re = near_re - far_re, difference_im = near_im - far_im;                                                          \
        im = near_re + far_re - (difference_im * w.x - difference_re * w.y);                                                               \
        re = near_im + far_im + (difference_re * w.x + difference_im * w.y);                                                               \
    }
#else
#define FROM_HALF(re, im, at_re, at_im, position)                                  \
    {                                                                              \
        const bool mirrored = (position) > geometry.whole / 2;                     \
        const long away = mirrored ? (long)geometry.whole - 2 * (long)(position) : 0; \
        im = source_re[(at_re) + away * geometry.mirror_re];                       \
        re = source_im[(at_im) + away * geometry.mirror_im];                       \
        if (mirrored) re = -re;                                                    \
        if ((position) == 0) re = 0;                                               \
    }
#endif

// Loads an element, by its indices in memory and its position, to the variables re and im.
#if HALF_SOURCE
#define LOAD_PARTS(re, im, at_re, at_im, position) FROM_HALF(re, im, at_re, at_im, position)
#elif SOURCE_IM
#define LOAD_PARTS(re, im, at_re, at_im, position) \
    {                                              \
        re = source_re[at_re];                     \
        im = source_im[at_im];                     \
    }
#else
#define LOAD_PARTS(re, im, at_re, at_im, position) \
    {                                              \
        re = source_re[at_re];                     \
        im = 0;                                    \
    }
#endif
#define LOAD_ELEMENT(re, im, at_re, at_im, position)                              \
    if (SOURCE_CUT && (position) >= geometry.source_count) {                      \
        re = im = 0;                                                              \
    } else {                                                                      \
        LOAD_PARTS(re, im, at_re, at_im, position)                                \
        if (SOURCE_FACTORS) {                                                     \
            const REAL_2 factor = table[geometry.source_factors + (position)];    \
            ROTATE(REAL, re, im, factor.x, factor.y)                                    \
        }                                                                         \
    }

#if TARGET_RE
#define STORE_RE(value, at) target_re[at] = (value);
#else
#define STORE_RE(value, at)
#endif
#if TARGET_IM
#define STORE_IM(value, at) target_im[at] = (value);
#else
#define STORE_IM(value, at)
#endif
// Stores an element of a lane, by its indices in memory and its position.
#define STORE_ELEMENT(re, im, at_re, at_im, position)                                                         \
    if (!TARGET_CUT || (position) < geometry.target_count) {                                                  \
        if (TARGET_FACTORS) {                                                                                 \
            const REAL_2 factor = table[geometry.target_factors + (position)];                                \
            ROTATE(REAL, re, im, factor.x, factor.y)                                                                \
        }                                                                                                     \
        STORE_RE((re)*scale, at_re)                                                                           \
        STORE_IM((im)*scale, at_im)                                                                           \
    }

// Stores element k of the half spectrum of twice as many real numbers, from elements k, z, and whole - k, y, of the transform of
// pairs of them: ((z + y') - i w (z - y')) / 2. Element 0 has its own mirror image, at index `whole` of the spectrum.
#define STORE_HALF(z_re, z_im, y_re, y_im, at_re, at_im, k)                                                  \
    {                                                                                                        \
        const REAL_2 w = root(table, geometry.half_fine, geometry.half_coarse, geometry.half_bits, k);       \
        const REAL s_re = z_re + y_re, s_im = z_im - y_im, d_re = z_re - y_re, d_im = z_im + y_im;           \
        const REAL half_scale = scale * LITERAL(0.5);                                                        \
        target_re[at_re] = (s_re + (w.x * d_im + w.y * d_re)) * half_scale;                                  \
        target_im[at_im] = (s_im - (w.x * d_re - w.y * d_im)) * half_scale;                                  \
        if ((k) == 0) {                                                                                      \
            target_re[(at_re) + geometry.whole * geometry.mirror_re] = (z_re - z_im) * scale;                \
            target_im[(at_im) + geometry.whole * geometry.mirror_im] = 0;                                    \
        }                                                                                                    \
    }
#endif
