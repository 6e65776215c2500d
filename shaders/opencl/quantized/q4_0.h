// Fields: d (2 bytes), codes of 4 bits (16).
#define BLOCK 32
#define BLOCK_BYTES 18
#define PART 32
#define ZERO 8
#define HAS_LEAST 0
#define QUADS(part, i) NIBBLES(WORDS(2, (i) & 3), (i) >> 2)
#define SCALES(part) HALFS(0)
