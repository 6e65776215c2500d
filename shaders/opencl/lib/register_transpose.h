// Squares of WIDTH by WIDTH reals in registers, and their transposes. `V` is a vector of WIDTH reals, 4, 8 or 16.

#ifndef POLYHAL_TURNED
#define POLYHAL_TURNED

// Neighbouring rows give their even and their odd columns: the address of an element, row before column, turns by one bit.
#define TRANSPOSE_STEP(square)                                                   \
    {                                                                       \
        V next[WIDTH];                                                      \
        _Pragma("unroll") for (uint i = 0; i < WIDTH / 2; i++) {            \
            next[i] = (V)(square[2 * i].even, square[2 * i + 1].even);      \
            next[i + WIDTH / 2] = (V)(square[2 * i].odd, square[2 * i + 1].odd); \
        }                                                                   \
        _Pragma("unroll") for (uint i = 0; i < WIDTH; i++) square[i] = next[i]; \
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
