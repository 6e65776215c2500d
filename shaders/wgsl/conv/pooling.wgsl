{#- Max and average pooling of images (planes, height, width) and their gradients: OPERATION is max_pool, max_pool_grad,
    max_pool_indices (the maxima's positions in their planes), avg_pool or avg_pool_grad. Each invocation computes LANES elements of the result. The gradients gather over all windows that contain their
    element, so no atomic additions are needed. INCLUDE_PADDING: average pooling counts padding. -#}
{% import "lib/storage.wgsl" as storage with context %}
{% set OPERATION = OPERATION | default("max_pool_grad") %}
{% set DTYPE = DTYPE | default("float32") %}
{% set OUT_DTYPE = OUT_DTYPE | default(DTYPE) %}
{% set LANES = LANES | default(1) %}
{% set GROUP = GROUP | default(64) %}
{% set INCLUDE_PADDING = INCLUDE_PADDING | default(true) %}
{% set inputs = {"max_pool": ["x"], "max_pool_indices": ["x"], "max_pool_grad": ["g", "x"], "avg_pool": ["x"], "avg_pool_grad": ["g"]}[OPERATION] %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{% include "lib/special_values.wgsl" %}
{% for name in inputs %}
{{ storage.input(loop.index0, name, DTYPE) }}
{% endfor %}
{{ storage.output(inputs | length, "out", OUT_DTYPE, LANES) }}
{% set members %}
{% for name in inputs %}o_{{ name }}: u32, {% endfor %}o_out: u32, size: u32, channels: u32,
height: i32, width: i32, down: i32, across: i32, kernel_h: i32, kernel_w: i32, stride_h: i32, stride_w: i32, padding_h: i32,
padding_w: i32, dilation_h: i32, dilation_w: i32,
{% for name in inputs %}{{ name }}_image: u32, {{ name }}_channel: u32, {{ name }}_row: u32, {{ name }}_column: u32, {% endfor %}
{% endset %}
{{ storage.parameters(members) }}
{% for name in inputs %}
fn {{ name }}_plane(plane: u32) -> u32 {
    return p.o_{{ name }} + plane / p.channels * p.{{ name }}_image + plane % p.channels * p.{{ name }}_channel;
}
fn {{ name }}_pixel(plane: u32, y: i32, x: i32) -> f32 {
    return {{ name }}_at(plane + u32(y) * p.{{ name }}_row + u32(x) * p.{{ name }}_column);
}
{% endfor %}
{% if OPERATION.startswith("max") %}
fn inside(y: i32, x: i32) -> bool { return y >= 0 && y < p.height && x >= 0 && x < p.width; }
// Of NaN, the last is the maximum.
fn beats(value: f32, best: f32) -> bool { return isnan_f32(value) || value > best; }
{% endif %}
{% if OPERATION == "max_pool" %}
fn pool(plane: u32, row: i32, column: i32) -> f32 {
    let plane_offset = x_plane(plane);
    let top = row * p.stride_h - p.padding_h;
    let left = column * p.stride_w - p.padding_w;
    var best = -infinity();
    for (var r = 0; r < p.kernel_h; r++) {
        for (var s = 0; s < p.kernel_w; s++) {
            let y = top + r * p.dilation_h;
            let x = left + s * p.dilation_w;
            if (inside(y, x)) {
                let value = x_pixel(plane_offset, y, x);
                best = select(best, value, beats(value, best));
            }
        }
    }
    return best;
}
{% elif OPERATION.startswith("max") %}
// Row and column, in the kernel, of the maximum of a window, which receives the window's gradient.
fn largest(plane_offset: u32, top: i32, left: i32) -> vec2<i32> {
    var position = vec2<i32>();
    var best = 0.0f;
    var found = false;
    for (var r = 0; r < p.kernel_h; r++) {
        for (var s = 0; s < p.kernel_w; s++) {
            let y = top + r * p.dilation_h;
            let x = left + s * p.dilation_w;
            if (!inside(y, x)) { continue; }
            let value = x_pixel(plane_offset, y, x);
            if (!found || beats(value, best)) {
                found = true;
                best = value;
                position = vec2<i32>(r, s);
            }
        }
    }
    return position;
}
{% if OPERATION == "max_pool_indices" %}
fn pool(plane: u32, row: i32, column: i32) -> i32 {
    let top = row * p.stride_h - p.padding_h;
    let left = column * p.stride_w - p.padding_w;
    let position = largest(x_plane(plane), top, left);
    return (top + position.x * p.dilation_h) * p.width + left + position.y * p.dilation_w;
}
{% else %}
fn pool(plane: u32, row: i32, column: i32) -> f32 {
    let plane_offset = x_plane(plane);
    let g_plane_offset = g_plane(plane);
    let below = row + p.padding_h;
    let right = column + p.padding_w;
    let first_y = (below - (p.kernel_h - 1) * p.dilation_h + p.stride_h - 1) / p.stride_h;
    let first_x = (right - (p.kernel_w - 1) * p.dilation_w + p.stride_w - 1) / p.stride_w;
    var sum = 0.0f;
    for (var y = max(first_y, 0); y < p.down && y * p.stride_h <= below; y++) {
        for (var x = max(first_x, 0); x < p.across && x * p.stride_w <= right; x++) {
            let position = largest(plane_offset, y * p.stride_h - p.padding_h, x * p.stride_w - p.padding_w);
            if (y * p.stride_h + position.x * p.dilation_h == below && x * p.stride_w + position.y * p.dilation_w == right) {
                sum += g_pixel(g_plane_offset, y, x);
            }
        }
    }
    return sum;
}
{% endif %}
{% else %}
fn overlap(start: i32, length: i32, limit: i32) -> i32 { return min(start + length, limit) - max(start, 0); }
fn divisor(top: i32, left: i32) -> f32 {
{% if INCLUDE_PADDING %}
    // In ceil mode the last windows reach beyond the padding, where nothing counts.
    return f32((min(top + p.kernel_h, p.height + p.padding_h) - top) * (min(left + p.kernel_w, p.width + p.padding_w) - left));
{% else %}
    return f32(overlap(top, p.kernel_h, p.height) * overlap(left, p.kernel_w, p.width));
{% endif %}
}
fn pool(plane: u32, row: i32, column: i32) -> f32 {
    let plane_offset = {{ inputs[0] }}_plane(plane);
    var sum = 0.0f;
{% if OPERATION == "avg_pool" %}
    let top = row * p.stride_h - p.padding_h;
    let left = column * p.stride_w - p.padding_w;
    for (var y = max(top, 0); y < min(top + p.kernel_h, p.height); y++) {
        for (var x = max(left, 0); x < min(left + p.kernel_w, p.width); x++) { sum += x_pixel(plane_offset, y, x); }
    }
    return sum / divisor(top, left);
{% else %}
    let below = row + p.padding_h;
    let right = column + p.padding_w;
    for (var y = max(0, (below - p.kernel_h + p.stride_h) / p.stride_h); y < p.down && y * p.stride_h <= below; y++) {
        for (var x = max(0, (right - p.kernel_w + p.stride_w) / p.stride_w); x < p.across && x * p.stride_w <= right; x++) {
            sum += g_pixel(plane_offset, y, x) / divisor(y * p.stride_h - p.padding_h, x * p.stride_w - p.padding_w);
        }
    }
    return sum;
{% endif %}
}
{% endif %}
fn element(i: u32) -> {{ storage.register(OUT_DTYPE) }} {
    let pixels = u32({{ "p.height * p.width" if OPERATION.endswith("grad") else "p.down * p.across" }});
    let across = u32({{ "p.width" if OPERATION.endswith("grad") else "p.across" }});
    let plane = i / pixels;
    let pixel = i - plane * pixels;
    return {{ storage.register(OUT_DTYPE) }}(pool(plane, i32(pixel / across), i32(pixel % across)));
}
{{ storage.main(GROUP) }}
    let i = (group_id * {{ GROUP }}u + local_id) * {{ LANES }}u;
    if (i >= p.size) { return; }
{% if LANES == 1 %}
    out_set(p.o_out + i, element(i));
{% else %}
    if (i + 4u <= p.size) {
        out_set4(p.o_out + i, vec4<f32>(element(i), element(i + 1u), element(i + 2u), element(i + 3u)));
    } else {
        for (var k = i; k < p.size; k++) { out_set(p.o_out + k, element(k)); }
    }
{% endif %}
}
