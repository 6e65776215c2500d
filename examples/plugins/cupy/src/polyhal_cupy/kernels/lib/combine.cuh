// How two partial results are joined. The names are those of the framework's tables. Largest and Smallest keep a NaN
// from either side: a NaN differs from itself.

#ifndef POLYHAL_OPERATIONS
#define POLYHAL_OPERATIONS

struct Sum {
    template <typename A> static inline A join(A a, A b) { return a + b; }
};
struct Prod {
    template <typename A> static inline A join(A a, A b) { return a * b; }
};
struct Largest {
    template <typename A> static inline A join(A a, A b) { return a > b || a != a ? a : b; }
};
struct Smallest {
    template <typename A> static inline A join(A a, A b) { return a < b || a != a ? a : b; }
};
struct Either {
    template <typename A> static inline A join(A a, A b) { return a | b; }
};
struct Both {
    template <typename A> static inline A join(A a, A b) { return a & b; }
};

#endif
