// Fields: d (2 bytes), m (2), fifth bits (4), codes of 4 bits (16).
#define BLOCK 32
#define BLOCK_BYTES 24
#define PART 32
#define ZERO 0
#define HAS_LEAST 1
#define QUADS(part, i) (NIBBLES(WORDS(8, (i) & 3), (i) >> 2) | BITS_TO_BYTES(WORDS(4, 0) >> (4 * (i)) & 15) << 4)
#define SCALES(part) HALFS(0)
#define LEASTS(part) HALFS(2)
