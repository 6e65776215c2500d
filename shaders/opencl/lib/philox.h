// Philox4x32-10: four random words for a counter and a key.
// Source: Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3".

#ifndef POLYHAL_PHILOX
#define POLYHAL_PHILOX

static inline void philox(const ulong counter, const ulong seed, __private uint *words) {
    uint c0 = (uint)counter, c1 = (uint)(counter >> 32), c2 = 0, c3 = 0;
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
#pragma unroll
    for (uint round = 0; round < 10; round++) {
        const ulong p0 = (ulong)c0 * 0xD2511F53u, p1 = (ulong)c2 * 0xCD9E8D57u;
        c0 = (uint)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint)p1;
        c2 = (uint)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

#endif
