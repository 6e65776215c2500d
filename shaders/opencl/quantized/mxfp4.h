// Fields: exponent (1 byte), codes of 4 bits (16): a sign, 2 bits of exponent and 1 of mantissa. The scale is 2^(e - 128).
#define BLOCK 32
#define BLOCK_BYTES 17
#define PART 32
#define ZERO 12
#define HAS_LEAST 0
// Twice the values, 0 1 2 3 4 6 8 12, plus or minus, plus 12, from the bits s a b c of the codes.
FORCE_INLINE U looked_up(const U codes) {
    const U c = codes & 0x01010101u, b = codes >> 1 & 0x01010101u, a = codes >> 2 & 0x01010101u;
    const U negative = (codes >> 3 & 0x01010101u) * 255u, none = 0x01010101u;
    const U value = (c & (a ^ none)) | ((a & (b ^ none) & c) | (b & (a ^ none))) << 1 | (a & ((b ^ none) | c)) << 2 | (a & b) << 3;
    return 0x0c0c0c0cu + value - ((value & negative) << 1);
}
#define QUADS(part, i) looked_up(NIBBLES(WORDS(1, (i) & 3), (i) >> 2))
#define SCALES(part) POWERS(0)
