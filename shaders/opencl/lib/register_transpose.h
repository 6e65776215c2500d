// Transposes WIDTH x WIDTH reals in registers, as WIDTH vectors of type V; WIDTH is 2, 4, 8 or 16.

#ifndef POLYHAL_REGISTER_TRANSPOSE
#define POLYHAL_REGISTER_TRANSPOSE

// Separates the even and odd columns of neighbouring rows: this rotates the address of an element, (row, column), by one
// bit.
#define TRANSPOSE_STEP(square)                                                   \
    {                                                                            \
        V next[WIDTH];                                                           \
        _Pragma("unroll") for (uint i = 0; i < WIDTH / 2; i++) {                 \
            next[i] = (V)(square[2 * i].even, square[2 * i + 1].even);           \
            next[i + WIDTH / 2] = (V)(square[2 * i].odd, square[2 * i + 1].odd); \
        }                                                                        \
        _Pragma("unroll") for (uint i = 0; i < WIDTH; i++) square[i] = next[i];  \
    }
#if WIDTH == 16
#define TRANSPOSE(square) TRANSPOSE_STEP(square) TRANSPOSE_STEP(square) TRANSPOSE_STEP(square) TRANSPOSE_STEP(square)
#elif WIDTH == 8
#define TRANSPOSE(square) TRANSPOSE_STEP(square) TRANSPOSE_STEP(square) TRANSPOSE_STEP(square)
#elif WIDTH == 4
#define TRANSPOSE(square) TRANSPOSE_STEP(square) TRANSPOSE_STEP(square)
#else
#define TRANSPOSE(square) TRANSPOSE_STEP(square)
#endif

#endif
