// Fields: d (2 bytes), codes of 4 bits (16), which number a table of signed bytes.
#define BLOCK 32
#define BLOCK_BYTES 18
#define PART 32
#define ZERO 127
#define HAS_LEAST 0
// Bytes of all ones where bit `b` of a code is set.
#define CODE_BIT(codes, b) (((codes) >> (b) & 0x01010101u) * 255u)
#define PICK(mask, one, zero) ((mask) & (one) | ~(mask) & (zero))
#define BYTE4(value) ((value) * 0x01010101u)
FORCE_INLINE U looked_up(const U codes) {
    const U b0 = CODE_BIT(codes, 0), b1 = CODE_BIT(codes, 1), b2 = CODE_BIT(codes, 2), b3 = CODE_BIT(codes, 3);
    // The table plus 127.
    const U e0 = PICK(b1, PICK(b0, BYTE4(62u), BYTE4(44u)), PICK(b0, BYTE4(23u), BYTE4(0u)));
    const U e1 = PICK(b1, PICK(b0, BYTE4(117u), BYTE4(105u)), PICK(b0, BYTE4(92u), BYTE4(78u)));
    const U e2 = PICK(b1, PICK(b0, BYTE4(165u), BYTE4(152u)), PICK(b0, BYTE4(140u), BYTE4(128u)));
    const U e3 = PICK(b1, PICK(b0, BYTE4(240u), BYTE4(216u)), PICK(b0, BYTE4(196u), BYTE4(180u)));
    return PICK(b3, PICK(b2, e3, e2), PICK(b2, e1, e0));
}
#define QUADS(part, i) looked_up(NIBBLES(WORDS(2, (i) & 3), (i) >> 2))
#define SCALES(part) HALFS(0)
