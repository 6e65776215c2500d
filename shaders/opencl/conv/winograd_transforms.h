// Transforms of a Winograd convolution F(2x2, 3x3) along one axis: of 3 weights and of 4 pixels to 4 elements.
// Source: Lavin and Gray, arXiv:1509.09308.

// Elements of a tile, 4 by 4.
#define TILE 16

// t = G (a, b, c)^T.
#define TRANSFORM_WEIGHTS(a, b, c, t0, t1, t2, t3) \
    t0 = a;                                        \
    t1 = (a + b + c) / 2;                          \
    t2 = (a - b + c) / 2;                          \
    t3 = c;

// t = B^T (d0, d1, d2, d3)^T.
#define TRANSFORM_PIXELS(d0, d1, d2, d3, t0, t1, t2, t3) \
    t0 = d0 - d2;                                        \
    t1 = d1 + d2;                                        \
    t2 = d2 - d1;                                        \
    t3 = d1 - d3;

// The transposes, for gradients. (m0, m1, m2, m3) = A (g0, g1)^T.
#define TRANSFORM_GRADIENTS(g0, g1, m0, m1, m2, m3) \
    m0 = g0;                                        \
    m1 = g0 + g1;                                   \
    m2 = g0 - g1;                                   \
    m3 = -g1;

// Row `tap` of G^T (u0, u1, u2, u3)^T.
#define GRADIENT_OF_WEIGHT(tap, u0, u1, u2, u3) \
    ((tap) == 1 ? (u1 - u2) / 2 : (u1 + u2) / 2 + ((tap) == 0 ? u0 : u3))
