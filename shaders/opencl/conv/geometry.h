// A convolution or one of its gradients as an implicit matrix product, per group: a matrix (m, k) times windows of images
// (k, n). `Correlation` in backends/common/problems/conv.py documents the members. A column c of the product is
// (c / (column_height * column_width), c / column_width % column_height, c % column_width), and a term likewise.

#ifndef POLYHAL_CONV_GEOMETRY
#define POLYHAL_CONV_GEOMETRY

// Strides count elements.
typedef struct {
    long a_group, a_row, a_term0, a_term1, a_term2, x_group, x_term, x_column, x_down, x_across;
    uint m, n, k, term_height, term_width, column_height, column_width;
    int height, width, origin_y, origin_x, term_step_y, term_step_x, column_step_y, column_step_x;
} ConvGeometry;

// A pixel's position in an image, or a non-negative displacement, as one word: (y << 16) + x. The sum of a position and
// a displacement is inside if neither half is negative or greater than the same half of the last pixel. If the lower
// half is, the upper one may be off by one, which changes nothing. OUTSIDE is outside after any displacement. Positions
// and displacements are below 2^14.
#define PIXEL_AT(y, x) (((y) << 16) + (x))
#define LAST_PIXEL(height, width) PIXEL_AT((height)-1, (width)-1)
#define IS_INSIDE(position, last) (((((last) - (position)) | (position)) & 0x80008000) == 0)
#define OUTSIDE 0x40000000

#endif
