// Bags of indices. They have `length` indices each (STARTS 0), or begin at `starts` and end where the next one begins; the last
// of `marks` begins no bag, or with `bags` = `marks` ends with the index. The elements of a bag may have `scales`.

#ifndef POLYHAL_GATHER_BAGS
#define POLYHAL_GATHER_BAGS

#ifndef INDEX_DTYPE
#define INDEX_DTYPE int64
#endif
#ifndef STARTS_DTYPE
#define STARTS_DTYPE int64
#endif
#ifndef STARTS
#define STARTS 0
#endif
#ifndef SCALES
#define SCALES 0
#endif

typedef struct {
    ulong rows;
    long index_step, scales_step;
    uint count, bags, marks, length, width;
} BagGeometry;

// BAG_PARAMETERS declares kernel parameters, each followed by a comma. FIRST_OF and END_OF are the elements of a bag, in
// kernels with these parameters and a BagGeometry `geometry`.
#if STARTS
#define STARTS_PARAMETER __global const STORAGE(STARTS_DTYPE) *starts, const ulong starts_offset,
#define FIRST_OF(bag) max((long)starts[starts_offset + (bag)], 0L)
#define END_OF(bag)                                                                                        \
    ((bag) + 1 < geometry.marks ? min((long)starts[starts_offset + (bag) + 1], (long)geometry.count) \
                                : (long)geometry.count)
#else
#define STARTS_PARAMETER
#define FIRST_OF(bag) ((long)(bag) * geometry.length)
#define END_OF(bag) (((long)(bag) + 1) * geometry.length)
#endif
#if SCALES
#define SCALES_PARAMETER __global const STORAGE(DTYPE) *scales, const ulong scales_offset,
#else
#define SCALES_PARAMETER
#endif
#define BAG_PARAMETERS \
    __global const STORAGE(INDEX_DTYPE) *index, const ulong index_offset, STARTS_PARAMETER SCALES_PARAMETER

#endif
