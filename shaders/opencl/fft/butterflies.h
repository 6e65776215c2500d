// Discrete Fourier transforms of R numbers in registers, in place: BUTTERFLY(R)(re, im). N is a real type or a vector of reals.
//
// Small powers of two use fewer multiplications; an odd prime pairs elements k and R - k, whose sums meet cosines and whose
// differences meet sines.

#ifndef POLYHAL_FFT_BUTTERFLIES
#define POLYHAL_FFT_BUTTERFLIES

#define BUTTERFLY(radix) CONCAT(butterfly_, radix)
// A constant of type REAL: without fp64, a double must not appear.
#define LITERAL_float(x) x##f
#define LITERAL_double(x) x
#define LITERAL(x) CONCAT(LITERAL_, REAL)(x)

#define TIMES_MINUS_I(a, b) \
    {                       \
        const N old = a;    \
        a = b;              \
        b = -old;           \
    }

FORCE_INLINE void butterfly_1(N *re, N *im) {}

FORCE_INLINE void butterfly_2(N *re, N *im) {
    const N a = re[1], b = im[1];
    re[1] = re[0] - a;
    im[1] = im[0] - b;
    re[0] += a;
    im[0] += b;
}

// The transform of elements at, at + step, .. of four, in natural order.
FORCE_INLINE void strided_4(N *re, N *im, const uint at, const uint step) {
    const uint i0 = at, i1 = at + step, i2 = at + 2 * step, i3 = at + 3 * step;
    const N a_re = re[i0] + re[i2], a_im = im[i0] + im[i2], b_re = re[i0] - re[i2], b_im = im[i0] - im[i2];
    const N c_re = re[i1] + re[i3], c_im = im[i1] + im[i3], d_re = re[i1] - re[i3], d_im = im[i1] - im[i3];
    re[i0] = a_re + c_re;
    im[i0] = a_im + c_im;
    re[i1] = b_re + d_im;
    im[i1] = b_im - d_re;
    re[i2] = a_re - c_re;
    im[i2] = a_im - c_im;
    re[i3] = b_re - d_im;
    im[i3] = b_im + d_re;
}

FORCE_INLINE void butterfly_4(N *re, N *im) { strided_4(re, im, 0, 1); }

#define SWAP(i, j)                         \
    {                                      \
        const N a = re[i], b = im[i];      \
        re[i] = re[j];                     \
        im[i] = im[j];                     \
        re[j] = a;                         \
        im[j] = b;                         \
    }

#define COS_1_8 LITERAL(0.70710678118654752440)
#define COS_1_16 LITERAL(0.92387953251128675613)
#define SIN_1_16 LITERAL(0.38268343236508977173)

FORCE_INLINE void butterfly_8(N *re, N *im) {
    strided_4(re, im, 0, 2);
    strided_4(re, im, 1, 2);
    ROTATE(N, re[3], im[3], COS_1_8, -COS_1_8)
    TIMES_MINUS_I(re[5], im[5])
    ROTATE(N, re[7], im[7], -COS_1_8, -COS_1_8)
    N r[8], i[8];
#pragma unroll
    for (uint k = 0; k < 4; k++) {
        r[k] = re[2 * k] + re[2 * k + 1];
        i[k] = im[2 * k] + im[2 * k + 1];
        r[k + 4] = re[2 * k] - re[2 * k + 1];
        i[k + 4] = im[2 * k] - im[2 * k + 1];
    }
#pragma unroll
    for (uint k = 0; k < 8; k++) {
        re[k] = r[k];
        im[k] = i[k];
    }
}

FORCE_INLINE void butterfly_16(N *re, N *im) {
#pragma unroll
    for (uint k = 0; k < 4; k++) strided_4(re, im, k, 4);
    // Element 4 a + b is multiplied by the 16th root to the power a b.
    ROTATE(N, re[5], im[5], COS_1_16, -SIN_1_16)
    ROTATE(N, re[6], im[6], COS_1_8, -COS_1_8)
    ROTATE(N, re[7], im[7], SIN_1_16, -COS_1_16)
    ROTATE(N, re[9], im[9], COS_1_8, -COS_1_8)
    TIMES_MINUS_I(re[10], im[10])
    ROTATE(N, re[11], im[11], -COS_1_8, -COS_1_8)
    ROTATE(N, re[13], im[13], SIN_1_16, -COS_1_16)
    ROTATE(N, re[14], im[14], -COS_1_8, -COS_1_8)
    ROTATE(N, re[15], im[15], -COS_1_16, SIN_1_16)
#pragma unroll
    for (uint k = 0; k < 4; k++) strided_4(re, im, 4 * k, 1);
    SWAP(1, 4) SWAP(2, 8) SWAP(3, 12) SWAP(6, 9) SWAP(7, 13) SWAP(11, 14)
}

// cosines[k] and sines[k] are those of 2 pi k / R, for k < R.
#define ODD_BUTTERFLY(R)                                                                        \
    FORCE_INLINE void butterfly_##R(N *re, N *im) {                                             \
        N sum_re[R / 2], sum_im[R / 2], difference_re[R / 2], difference_im[R / 2];             \
        const N first_re = re[0], first_im = im[0];                                             \
        _Pragma("unroll") for (uint k = 0; k < R / 2; k++) {                                    \
            sum_re[k] = re[k + 1] + re[R - 1 - k];                                              \
            sum_im[k] = im[k + 1] + im[R - 1 - k];                                              \
            difference_re[k] = re[k + 1] - re[R - 1 - k];                                       \
            difference_im[k] = im[k + 1] - im[R - 1 - k];                                       \
            re[0] += sum_re[k];                                                                 \
            im[0] += sum_im[k];                                                                 \
        }                                                                                       \
        _Pragma("unroll") for (uint m = 1; m <= R / 2; m++) {                                   \
            N even_re = first_re, even_im = first_im, odd_re = 0, odd_im = 0;                   \
            _Pragma("unroll") for (uint k = 0; k < R / 2; k++) {                                \
                const REAL cosine = cosines_##R[m * (k + 1) % R], sine = sines_##R[m * (k + 1) % R]; \
                even_re += sum_re[k] * cosine;                                                  \
                even_im += sum_im[k] * cosine;                                                  \
                odd_re += difference_re[k] * sine;                                              \
                odd_im += difference_im[k] * sine;                                              \
            }                                                                                   \
            re[m] = even_re + odd_im;                                                           \
            im[m] = even_im - odd_re;                                                           \
            re[R - m] = even_re - odd_im;                                                       \
            im[R - m] = even_im + odd_re;                                                       \
        }                                                                                       \
    }

__constant REAL cosines_3[3] = {
    LITERAL(1.0), LITERAL(-0.5), LITERAL(-0.5),
};
__constant REAL sines_3[3] = {
    LITERAL(0.0), LITERAL(0.86602540378443864676), LITERAL(-0.86602540378443864676),
};
ODD_BUTTERFLY(3)
__constant REAL cosines_5[5] = {
    LITERAL(1.0), LITERAL(0.3090169943749474241), LITERAL(-0.8090169943749474241), LITERAL(-0.8090169943749474241),
    LITERAL(0.3090169943749474241),
};
__constant REAL sines_5[5] = {
    LITERAL(0.0), LITERAL(0.95105651629515357212), LITERAL(0.58778525229247312917), LITERAL(-0.58778525229247312917),
    LITERAL(-0.95105651629515357212),
};
ODD_BUTTERFLY(5)
__constant REAL cosines_7[7] = {
    LITERAL(1.0), LITERAL(0.62348980185873353053), LITERAL(-0.22252093395631440429), LITERAL(-0.90096886790241912624),
    LITERAL(-0.90096886790241912624), LITERAL(-0.22252093395631440429), LITERAL(0.62348980185873353053),
};
__constant REAL sines_7[7] = {
    LITERAL(0.0), LITERAL(0.78183148246802980871), LITERAL(0.97492791218182360702), LITERAL(0.43388373911755812048),
    LITERAL(-0.43388373911755812048), LITERAL(-0.97492791218182360702), LITERAL(-0.78183148246802980871),
};
ODD_BUTTERFLY(7)
__constant REAL cosines_11[11] = {
    LITERAL(1.0), LITERAL(0.84125353283118116886), LITERAL(0.41541501300188642553), LITERAL(-0.14231483827328514044),
    LITERAL(-0.65486073394528506406), LITERAL(-0.95949297361449738989), LITERAL(-0.95949297361449738989), LITERAL(-0.65486073394528506406),
    LITERAL(-0.14231483827328514044), LITERAL(0.41541501300188642553), LITERAL(0.84125353283118116886),
};
__constant REAL sines_11[11] = {
    LITERAL(0.0), LITERAL(0.54064081745559758211), LITERAL(0.90963199535451837141), LITERAL(0.98982144188093273238),
    LITERAL(0.75574957435425828377), LITERAL(0.28173255684142969771), LITERAL(-0.28173255684142969771), LITERAL(-0.75574957435425828377),
    LITERAL(-0.98982144188093273238), LITERAL(-0.90963199535451837141), LITERAL(-0.54064081745559758211),
};
ODD_BUTTERFLY(11)
__constant REAL cosines_13[13] = {
    LITERAL(1.0), LITERAL(0.8854560256532098959), LITERAL(0.56806474673115580251), LITERAL(0.12053668025532305335),
    LITERAL(-0.35460488704253562597), LITERAL(-0.74851074817110109863), LITERAL(-0.97094181742605202716), LITERAL(-0.97094181742605202716),
    LITERAL(-0.74851074817110109863), LITERAL(-0.35460488704253562597), LITERAL(0.12053668025532305335), LITERAL(0.56806474673115580251),
    LITERAL(0.8854560256532098959),
};
__constant REAL sines_13[13] = {
    LITERAL(0.0), LITERAL(0.46472317204376854566), LITERAL(0.82298386589365639458), LITERAL(0.9927088740980539928),
    LITERAL(0.93501624268541482344), LITERAL(0.66312265824079520238), LITERAL(0.23931566428755776715), LITERAL(-0.23931566428755776715),
    LITERAL(-0.66312265824079520238), LITERAL(-0.93501624268541482344), LITERAL(-0.9927088740980539928), LITERAL(-0.82298386589365639458),
    LITERAL(-0.46472317204376854566),
};
ODD_BUTTERFLY(13)
#endif
