// How two partial results are joined, for vectors (in the types of vectors.h) and for scalars. max and min keep a NaN from
// either side.

#ifndef POLYHAL_REDUCE_OPERATIONS
#define POLYHAL_REDUCE_OPERATIONS

#define VECTOR_sum(a, b) ((a) + (b))
#define SCALAR_sum(a, b) ((a) + (b))
#define VECTOR_prod(a, b) ((a) * (b))
#define SCALAR_prod(a, b) ((a) * (b))
#define VECTOR_any(a, b) ((a) | (b))
#define SCALAR_any(a, b) ((a) | (b))
#define VECTOR_all(a, b) ((a) & (b))
#define SCALAR_all(a, b) ((a) & (b))
// A NaN differs from itself; for integers the comparison folds away.
#define VECTOR_max(a, b) SELECT(b, a, ((a) > (b)) | ((a) != (a)))
#define SCALAR_max(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define VECTOR_min(a, b) SELECT(b, a, ((a) < (b)) | ((a) != (a)))
#define SCALAR_min(a, b) (((a) < (b) || (a) != (a)) ? (a) : (b))

#endif
