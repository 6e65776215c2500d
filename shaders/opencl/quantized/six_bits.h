// Eight scales and eight factors of least values, 6 bits each, in 12 bytes from byte 4 of a block (q4_k, q5_k). The first four
// have a byte each; the others have their low bits in the last word and their high bits in the free bits of the first two.

#define SIX_BITS(part, own, shift)                                             \
    ((part) < 4 ? WORDS(4, own) >> (8 * ((part) & 3)) & 63                     \
                : (WORDS(4, 2) >> (8 * ((part) & 3) + (shift)) & 15) |         \
                      (WORDS(4, own) >> (8 * ((part) & 3) + 6) & 3) << 4)
#define SCALES(part) (HALFS(0) * FLOATS(SIX_BITS(part, 0, 0)))
#define LEASTS(part) (-HALFS(2) * FLOATS(SIX_BITS(part, 1, 4)))
