// Fields: d (2 bytes), fifth bits (4), codes of 4 bits (16).
#define BLOCK 32
#define BLOCK_BYTES 22
#define PART 32
#define ZERO 16
#define HAS_LEAST 0
#define QUADS(part, i) (NIBBLES(WORDS(6, (i) & 3), (i) >> 2) | BITS_TO_BYTES(WORDS(2, 0) >> (4 * (i)) & 15) << 4)
#define SCALES(part) HALFS(0)
