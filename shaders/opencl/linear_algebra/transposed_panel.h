// Transfers of panels between a matrix by rows and work-items that each have rows of their own: CHUNK rows at a time pass through
// local memory, so that neighbouring work-items have neighbouring addresses on both sides.

#ifndef POLYHAL_TRANSPOSED_PANEL
#define POLYHAL_TRANSPOSED_PANEL

#ifndef CHUNK
#define CHUNK 64
#endif
#define CHUNK_PITCH (SIZE + 1)

// Copies rows of the panel at `corner`, of `rows` x `columns` elements, to `chunk`; elements outside are 0.
#define LOAD_CHUNK(corner, begin)                                                                             \
    _Pragma("unroll 16") for (uint index = ITEM; index < CHUNK * SIZE; index += GROUP) {                      \
        const uint i = index / SIZE, c = index % SIZE;                                                        \
        chunk[i * CHUNK_PITCH + c] =                                                                          \
            (begin) + i < rows && c < columns ? corner[(ulong)((begin) + i) * pitch + c] : (REAL)0;           \
    }

// An element of a panel in a workspace, by columns.
#define PANEL_AT(i, j) panel[(ulong)(j) * rows + (i)]

#endif
