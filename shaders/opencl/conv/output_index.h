// Where result (row, column) of a convolution's product lies. Columns are numbered (image, line, place in the line), rows (phase,
// channel), where a phase is the remainder of a pixel's coordinates by `phases`: pixel = line * phases + phase.

#ifndef POLYHAL_CONV_PLACES
#define POLYHAL_CONV_PLACES

#define PLACES                                                                                                     \
    const uint column_lines, const uint column_across, const uint channels, const uint phases_down,                \
        const uint phases_across, const uint out_height, const uint out_width, const long out_group,               \
        const long out_image, const long out_channel, const long out_down, const long out_across

// Declares where `row` is: the channel's place, and the phase.
#define PLACE_ROW(row)                                                       \
    const uint phase = (row) / channels;                                     \
    const uint phase_down = phase / phases_across, phase_along = phase % phases_across; \
    const long row_place = (row) % channels * out_channel + phase_down * out_down + phase_along * out_across;

// Declares where `column` is: the place of its first phase.
#define PLACE_COLUMN(column)                                                  \
    const uint out_y = (column) / column_across % column_lines * phases_down; \
    const uint out_x = (column) % column_across * phases_across;              \
    const long column_place =                                                 \
        (column) / (column_across * column_lines) * out_image + out_y * out_down + out_x * out_across;

// A pixel's place in an image, or a displacement from one to another, which is never negative, as one word: down, across. A sum
// of both is inside if neither half is negative or greater than that of the last pixel; where the lower half is, the upper one
// may be one off, which changes nothing. NOWHERE is outside by any displacement. Places and displacements are below 2^14.
#define PIXEL_AT(y, x) (((y) << 16) + (x))
#define LAST_PIXEL(height, width) PIXEL_AT((height)-1, (width)-1)
#define IS_INSIDE(place, last) (((((last) - (place)) | (place)) & 0x80008000) == 0)
#define NOWHERE 0x40000000

// Pixels past the last whole stride have fewer phases.
#define PLACE_EXISTS (out_y + phase_down < out_height && out_x + phase_along < out_width)

#endif
