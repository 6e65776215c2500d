// How two partial results are joined, for vectors (in the types of vectors.h) and for scalars. largest and smallest keep a NaN
// from either side; max and min would be expanded, because some drivers define them as macros. The operator, not the function
// select, which some drivers split into single lanes.

#ifndef POLYHAL_REDUCE_OPERATIONS
#define POLYHAL_REDUCE_OPERATIONS

#define VECTOR_sum(a, b) ((a) + (b))
#define SCALAR_sum(a, b) ((a) + (b))
#define VECTOR_prod(a, b) ((a) * (b))
#define SCALAR_prod(a, b) ((a) * (b))
#define VECTOR_either(a, b) ((a) | (b))
#define SCALAR_either(a, b) ((a) | (b))
#define VECTOR_both(a, b) ((a) & (b))
#define SCALAR_both(a, b) ((a) & (b))
// A NaN differs from itself; for integers the comparison folds away.
#define VECTOR_largest(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define SCALAR_largest(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define VECTOR_smallest(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#define SCALAR_smallest(a, b) (((a) < (b) || (a) != (a)) ? (a) : (b))

#define VECTOR_JOIN(a, b) CONCAT(VECTOR_, OPERATION)(a, b)
#define SCALAR_JOIN(a, b) CONCAT(SCALAR_, OPERATION)(a, b)

#endif
