// The axes of a reduction. Results are numbered over two kept axes, terms over two reduced axes, the inner axis varying
// fastest. Terms are cut into chunks of `chunk` terms, which `splits` splits of a result take in turn: groups that run at the
// same time then read neighbouring memory. Strides count elements.

#ifndef POLYHAL_REDUCTION_GEOMETRY
#define POLYHAL_REDUCTION_GEOMETRY

typedef struct {
    ulong kept_outer, kept_inner, reduced_inner, length, splits, chunk;
    long kept_outer_stride, kept_inner_stride, reduced_outer_stride, reduced_inner_stride;
} ReductionGeometry;

#define DECLARE_AXES                                                                                                    \
    const ulong kept_outer = geometry.kept_outer, kept_inner = geometry.kept_inner, reduced_inner = geometry.reduced_inner; \
    const ulong length = geometry.length, splits = geometry.splits, chunk = geometry.chunk;                             \
    const long kept_outer_stride = geometry.kept_outer_stride, kept_inner_stride = geometry.kept_inner_stride;          \
    const long reduced_outer_stride = geometry.reduced_outer_stride;                                                    \
    const long reduced_inner_stride = geometry.reduced_inner_stride

#endif
