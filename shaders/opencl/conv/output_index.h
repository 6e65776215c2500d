// Where result (row, column) of a convolution's matrix product is stored. Columns are (image, line, position in the line),
// rows (phase, channel). A phase is a remainder of a pixel's coordinates by `phases`: pixel = line * phases + phase.

#ifndef POLYHAL_CONV_OUTPUT_INDEX
#define POLYHAL_CONV_OUTPUT_INDEX

// Strides count elements; `channels` are the rows of a phase.
typedef struct {
    long out_group, out_image, out_channel, out_down, out_across;
    uint lines, line_length, channels, phases_down, phases_across, out_height, out_width;
} OutputGeometry;

// Declare `row_offset`, the offset of `row`'s channel and phase, and the phase.
#define INDEX_ROW(row)                                                                         \
    const uint phase = (row) / output.channels;                                                \
    const uint phase_y = phase / output.phases_across, phase_x = phase % output.phases_across; \
    const long row_offset =                                                                    \
        (row) % output.channels * output.out_channel + phase_y * output.out_down + phase_x * output.out_across;

// Declare `column_offset`, the offset of `column`'s pixel of phase 0.
#define INDEX_COLUMN(column)                                                                       \
    const uint out_y = (column) / output.line_length % output.lines * output.phases_down;          \
    const uint out_x = (column) % output.line_length * output.phases_across;                       \
    const long column_offset = (column) / (output.line_length * output.lines) * output.out_image + \
                               out_y * output.out_down + out_x * output.out_across;

// Pixels past the last whole stride have fewer phases.
#define OUTPUT_EXISTS (out_y + phase_y < output.out_height && out_x + phase_x < output.out_width)

#endif
