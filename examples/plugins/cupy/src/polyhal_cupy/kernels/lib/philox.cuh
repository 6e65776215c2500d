// Philox4x32-10: four random words from a counter and a key. Source: Salmon et al., Parallel random numbers: as easy as
// 1, 2, 3 (SC 2011).

#ifndef POLYHAL_PHILOX
#define POLYHAL_PHILOX

inline void philox(const uint64 counter, const uint64 seed, uint32 (&words)[4]) {
    uint32 c0 = (uint32)counter, c1 = (uint32)(counter >> 32), c2 = 0, c3 = 0;
    uint32 k0 = (uint32)seed, k1 = (uint32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64 p0 = (uint64)c0 * 0xD2511F53u, p1 = (uint64)c2 * 0xCD9E8D57u;
        c0 = (uint32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32)p1;
        c2 = (uint32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

#endif
