// out[b, r, c] = x[b, c, r] for GPUs, where rows and columns are aligned multiples of four. Each group of 256 work-items moves a
// tile of 64 x 64, each work-item a block of 4 x 4, with vector loads and stores. Blocks are transposed in registers. In local
// memory the vectors of a row are XOR-swizzled with the number of the row's block, so that neither loads nor stores have bank
// conflicts. Elements are moved as bits; strides are in elements.

#ifndef UNIT
#define UNIT uint
#endif
#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#define QUAD CONCAT(UNIT, 4)
#define SIDE 64
#define BLOCKS 16

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void pointwise_transpose_vectors(__global const UNIT *x, const ulong x_offset, __global UNIT *out,
                                 const ulong out_offset, const ulong rows, const ulong columns, const long x_column,
                                 const long out_row, const ulong b1, const long x_b0, const long x_b1,
                                 const long out_b0, const long out_b1) {
    __local QUAD tile[SIDE * BLOCKS];
    const ulong across = (columns + SIDE - 1) / SIDE;
    const ulong down = (rows + SIDE - 1) / SIDE;
    const ulong group = get_group_id(0);
    const ulong batch = group / (across * down);
    const ulong block = group - batch * across * down;
    const ulong first_row = block / across * SIDE;
    const ulong first_column = block % across * SIDE;
    x += x_offset + (long)(batch / b1) * x_b0 + (long)(batch % b1) * x_b1;
    out += out_offset + (long)(batch / b1) * out_b0 + (long)(batch % b1) * out_b1;
    const uint fast = get_local_id(0) % BLOCKS, slow = get_local_id(0) / BLOCKS;
    {
        const ulong row = first_row + fast * 4, column = first_column + slow * 4;
        if (row < rows && column < columns) {
            __global const UNIT *from = x + (long)column * x_column + (long)row;
            const QUAD a = *(__global const QUAD *)from, b = *(__global const QUAD *)(from + x_column);
            const QUAD c = *(__global const QUAD *)(from + 2 * x_column), d = *(__global const QUAD *)(from + 3 * x_column);
            __local QUAD *to = tile + fast * 4 * BLOCKS + (slow ^ fast);
            to[0] = (QUAD)(a.s0, b.s0, c.s0, d.s0);
            to[BLOCKS] = (QUAD)(a.s1, b.s1, c.s1, d.s1);
            to[2 * BLOCKS] = (QUAD)(a.s2, b.s2, c.s2, d.s2);
            to[3 * BLOCKS] = (QUAD)(a.s3, b.s3, c.s3, d.s3);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong column = first_column + fast * 4;
#pragma unroll
    for (uint part = 0; part < 4; part++) {
        const uint line = part * BLOCKS + slow;
        const ulong row = first_row + line;
        if (row < rows && column < columns)
            *(__global QUAD *)(out + (long)row * out_row + (long)column) = tile[line * BLOCKS + (fast ^ (line / 4))];
    }
}
