// Fields: d (2 bytes), dmin (2), scales (12), codes of 4 bits (128).
#define BLOCK 256
#define BLOCK_BYTES 144
#define PART 32
#define ZERO 0
#define HAS_LEAST 1
#define QUADS(part, i) NIBBLES(WORDS(16, (part) / 2 * 8 + (i)), (part) & 1)
#include "quantized/six_bits.h"
