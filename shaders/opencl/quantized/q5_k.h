// Fields: d (2 bytes), dmin (2), scales (12), fifth bits (32), codes of 4 bits (128).
#define BLOCK 256
#define BLOCK_BYTES 176
#define PART 32
#define ZERO 0
#define HAS_LEAST 1
#define QUADS(part, i) \
    (NIBBLES(WORDS(48, (part) / 2 * 8 + (i)), (part) & 1) | (WORDS(16, i) >> (part) & 0x01010101u) << 4)
#include "quantized/six_bits.h"
