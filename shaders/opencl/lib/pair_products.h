// Products of pairs of integers of 16 bits, with the sum of each pair: an instruction of processors.

#ifndef POLYHAL_PAIR_PRODUCTS
#define POLYHAL_PAIR_PRODUCTS

#ifdef __AVX2__
typedef short pairs_of_shorts __attribute__((vector_size(32)));
typedef int sums_of_pairs __attribute__((vector_size(32)));
#endif

// For every word the sum of the products of its halves with those of the word x.
FORCE_INLINE int8 pair_products(const uint8 words, const uint x) {
#ifdef __AVX2__
    const uint8 repeated = (uint8)(x);
    const sums_of_pairs sums =
        (sums_of_pairs)__builtin_ia32_pmaddwd256(*(const pairs_of_shorts *)&words, *(const pairs_of_shorts *)&repeated);
    return *(const int8 *)&sums;
#else
    // In this form compilers find the instruction.
    const int16 products = convert_int16(as_short16(words)) * convert_int16(as_short16((uint8)(x)));
    return products.even + products.odd;
#endif
}

#endif
