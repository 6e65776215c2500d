// Prefetching of strided lines of DTYPE on CPUs, a few cache lines at a time during a computation. No-op without
// PREFETCH_DISTANCE (see lib/vectors.h).

#ifndef POLYHAL_PREFETCH
#define POLYHAL_PREFETCH

// PREFETCH_L2 is for lines that are packed later: it bypasses the first-level cache, which holds the working set.
// PREFETCH_L1 is for lines that are read soon, PREFETCH_L1_WRITE for lines that are written.
#if PREFETCH_DISTANCE && QUIRK_BUILTIN_PREFETCH
#define PREFETCH_L2(p) __builtin_prefetch((const void *)(size_t)(p), 0, 1)
#define PREFETCH_L1(p) __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#define PREFETCH_L1_WRITE(p) __builtin_prefetch((const void *)(size_t)(p), 1, 3)
#endif
#ifndef PREFETCH_L2
#define PREFETCH_L2(p)
#define PREFETCH_L1(p)
#define PREFETCH_L1_WRITE(p)
#endif
// Elements of a cache line of the usual size.
#define LINE (64 / sizeof(STORAGE(DTYPE)))

// A cursor over `lines` lines of `length` contiguous elements at distance `step`, `at_once` cache lines per call.
// `line` and `place` are the line and the element in it that come next.
typedef struct {
    __global const STORAGE(DTYPE) *from;
    long step;
    uint lines, length, at_once, line, place;
} Lines;

// A cursor that is done after `times` calls of prefetch_lines.
FORCE_INLINE Lines lines_of(__global const STORAGE(DTYPE) *from, const long step, const uint lines, const uint length,
                       const uint times) {
    const uint cache_lines = lines * ((length + LINE - 1) / LINE);
    const Lines cursor = {from, step, lines, length, (cache_lines + times - 1) / times, 0, 0};
    return cursor;
}

// Only a few at a time: a core can wait for few cache lines at once, including those that the computation needs now.
FORCE_INLINE void prefetch_lines(__private Lines *cursor) {
    for (uint i = 0; i < cursor->at_once && cursor->line < cursor->lines; i++) {
        PREFETCH_L2(cursor->from + cursor->line * cursor->step + cursor->place);
        cursor->place += LINE;
        if (cursor->place >= cursor->length) {
            cursor->place = 0;
            cursor->line++;
        }
    }
}

#endif
