// Fields: d (2 bytes), signed bytes (32).
#define BLOCK 32
#define BLOCK_BYTES 34
#define PART 32
#define ZERO 128
#define HAS_LEAST 0
#define QUADS(part, i) (WORDS(2, i) ^ 0x80808080u)
#define SCALES(part) HALFS(0)
