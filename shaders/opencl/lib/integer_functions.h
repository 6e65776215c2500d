// Integer division that rounds as Python's does, and integer powers, for one compute type: define INTEGER (int, uint, long
// or ulong) and include once per type. No divisor traps: x / 0 is 0, and the smallest integer / -1 wraps.

#ifndef INTEGER
#define INTEGER int
#endif

#define NAME(f) CONCAT(CONCAT(f, _), INTEGER)
#define Z VEC(INTEGER)

static inline Z NAME(floor_divide)(Z x, Z y) {
    const Z divisor = SELECT(y, (Z)(1), (y == (Z)(0)) | (y == (Z)(-1)));
    const Z quotient = x / divisor;
    const Z inexact = x - quotient * divisor;
    const Z lowered = SELECT(quotient, quotient - (Z)(1), (inexact != (Z)(0)) & ((inexact < (Z)(0)) != (divisor < (Z)(0))));
    return SELECT(SELECT(lowered, -x, y == (Z)(-1)), (Z)(0), y == (Z)(0));
}

static inline Z NAME(floor_remainder)(Z x, Z y) {
    const Z divisor = SELECT(y, (Z)(1), (y == (Z)(0)) | (y == (Z)(-1)));
    const Z r = x % divisor;
    return SELECT(r, r + divisor, (r != (Z)(0)) & ((r < (Z)(0)) != (divisor < (Z)(0))));
}

// Square and multiply. For a negative exponent the result is the truncated reciprocal, which is 0 except for the bases
// 1 and -1.
static inline Z NAME(integer_pow)(Z x, Z y) {
    Z result = (Z)(1);
    Z base = x;
    Z exponent = SELECT(y, (Z)(0), y < (Z)(0));
    for (int bit = 0; bit < (int)sizeof(INTEGER) * 8; bit++) {
        result = SELECT(result, result * base, (exponent & (Z)(1)) != (Z)(0));
        base *= base;
        exponent = exponent >> 1;
    }
    const Z unit = SELECT(x * x, x, (y & (Z)(1)) != (Z)(0));
    const Z reciprocal = SELECT((Z)(0), unit, (x == (Z)(1)) | (x == (Z)(-1)));
    return SELECT(result, reciprocal, y < (Z)(0));
}

#undef Z
#undef NAME
#undef INTEGER
