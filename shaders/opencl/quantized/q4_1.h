// Fields: d (2 bytes), m (2), codes of 4 bits (16).
#define BLOCK 32
#define BLOCK_BYTES 20
#define PART 32
#define ZERO 0
#define HAS_LEAST 1
#define QUADS(part, i) NIBBLES(WORDS(4, (i) & 3), (i) >> 2)
#define SCALES(part) HALFS(0)
#define LEASTS(part) HALFS(2)
