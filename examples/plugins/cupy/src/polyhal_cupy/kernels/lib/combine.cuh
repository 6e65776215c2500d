// Combination of two partial results; the names match `COMBINE` in polyhal.backends.common. Largest and Smallest
// propagate NaN from either side: a NaN differs from itself.

#ifndef POLYHAL_OPERATIONS
#define POLYHAL_OPERATIONS

struct Sum {
    template <typename A> static inline A combine(A a, A b) { return a + b; }
};
struct Prod {
    template <typename A> static inline A combine(A a, A b) { return a * b; }
};
struct Largest {
    template <typename A> static inline A combine(A a, A b) { return a > b || a != a ? a : b; }
};
struct Smallest {
    template <typename A> static inline A combine(A a, A b) { return a < b || a != a ? a : b; }
};
struct Either {
    template <typename A> static inline A combine(A a, A b) { return a | b; }
};
struct Both {
    template <typename A> static inline A combine(A a, A b) { return a & b; }
};

#endif
