// A running sum, product or extremum in two parts: `carry` of all earlier blocks, and `near` of the current block. A
// prefix is COMBINE(carry, near). At the end of a block FOLD adds `near` to `carry`.
//
// With COMPENSATED, a sum of floating-point numbers, FOLD leaves the rounding error of `carry` in `near` (Dekker,
// 1971), so that the error of a prefix grows with the length of a block instead of the number of terms. For an infinite
// sum `near` becomes zero.

#ifndef POLYHAL_REDUCTION_RUNNING
#define POLYHAL_REDUCTION_RUNNING

#ifndef COMPENSATED
#define COMPENSATED 0
#endif
// Terms of a block that a work-item adds one after another.
#define BLOCK 64

#if COMPENSATED
#define REST(type, carry, near, total) ((total) - (total) == (type)(0) ? (near) - ((total) - (carry)) : (type)(0))
#else
#define REST(type, carry, near, total) ((type)(IDENTITY))
#endif
#define FOLD(type, COMBINE, carry, near)          \
    {                                             \
        const type total_ = COMBINE(carry, near); \
        near = REST(type, carry, near, total_);   \
        carry = total_;                           \
    }
#define FOLD_VECTORS(carry, near) FOLD(VEC(ACCUMULATOR), COMBINE_VECTORS, carry, near)
#define FOLD_SCALARS(carry, near) FOLD(ACCUMULATOR, COMBINE_SCALARS, carry, near)

#endif
