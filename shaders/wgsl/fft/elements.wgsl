{#- Operands and results of Fourier transforms: places of elements in memory, factors, and halves of spectra; as shaders/opencl/fft/elements.h.
    Import it `with context`:

  - `declare(storage)` declares the buffers `source_re`, .., as far as these parts are in memory, and the table of roots of unity.
  - `members()` are the parameters, `functions()` the loads and stores. A place is the index of an element of real and of imaginary parts.
  - `begin(name, lane)` is the place of the first element of a lane, for the outer index `outer`. -#}
{% set HALF_SOURCE = HALF_SOURCE | default(0) %}
{% set HALF_TARGET = HALF_TARGET | default(0) %}
{% set SOURCE_IM = SOURCE_IM | default(1) %}
{% set TARGET_RE = TARGET_RE | default(1) %}
{% set TARGET_IM = TARGET_IM | default(1) %}
{% set SOURCE_CUT = SOURCE_CUT | default(0) %}
{% set TARGET_CUT = TARGET_CUT | default(0) %}
{% set SOURCE_FACTORS = SOURCE_FACTORS | default(0) %}
{% set TARGET_FACTORS = TARGET_FACTORS | default(0) %}
{% set TWIDDLED = TWIDDLED | default(0) %}
{% set PLANES = ["source_re"] + (["source_im"] if SOURCE_IM else []) + (["target_re"] if TARGET_RE else []) + (["target_im"] if TARGET_IM else []) %}

{% macro declare(storage) %}
{% for plane in PLANES %}
{{ storage.scratch(loop.index0, plane, "f32", "read" if plane.startswith("source") else "read_write") }}
{% endfor %}
{{ storage.scratch(PLANES | length, "table", "vec2<f32>", "read") }}
{{ storage.scratch(PLANES | length + 1, "geometry", "u32", "read") }}
{% endmacro %}

{#- The numbers of the buffer `geometry`: of each plane the index of its first element and six strides, then these. -#}
{% set NAMES = ["mirror_re", "mirror_im", "outer1", "outer2", "outer3", "source_outer", "source_lane", "source_element", "target_outer",
  "target_lane", "target_element", "lanes", "blocks", "groups", "source_count", "target_count", "whole", "source_factors",
  "target_factors", "fine", "coarse", "fine_bits", "half_fine", "half_coarse", "half_bits"] %}
{% macro number(name) %}geometry[{{ 28 + NAMES.index(name) }}]{% endmacro %}
{% macro of_plane(plane, i) %}geometry[{{ 7 * ["source_re", "source_im", "target_re", "target_im"].index(plane) + i }}]{% endmacro %}
{% macro members() %}
{% for plane in PLANES %}o_{{ plane }}: u32, {% endfor %}scale: f32,
{% endmacro %}

{% macro outer(index) %}
    let outer = vec4<u32>({{ index }} / {{ number("outer3") }} / {{ number("outer2") }} / {{ number("outer1") }}, {{ index }} / {{ number("outer3") }} / {{ number("outer2") }} % {{ number("outer1") }}, {{ index }} / {{ number("outer3") }} % {{ number("outer2") }}, {{ index }} % {{ number("outer3") }});
{% endmacro %}

{% macro begin(name, lane) %}
vec2<u32>({% for part in ["re", "im"] %}{% set plane = name ~ "_" ~ part %}
{% if plane in PLANES %}p.o_{{ plane }} + {{ of_plane(plane, 0) }} + dot(outer, vec4<u32>({% for axis in range(4) %}{{ of_plane(plane, 1 + axis) }}{{ ", " if axis < 3 }}{% endfor %})) + {{ lane }} * {{ of_plane(plane, 5) }}{% else %}0u{% endif %}{{ ", " if part == "re" }}{% endfor %})
{% endmacro %}

{% macro step(name) %}vec2<u32>({{ of_plane(name ~ "_re", 6) }}, {{ of_plane(name ~ "_im", 6) }}){% endmacro %}

{% macro functions() %}
fn root(fine: u32, coarse: u32, bits: u32, power: u32) -> vec2<f32> {
    return product(table[fine + (power & ((1u << bits) - 1u))], table[coarse + (power >> bits)]);
}
fn half_root(power: u32) -> vec2<f32> { return root({{ number("half_fine") }}, {{ number("half_coarse") }}, {{ number("half_bits") }}, power); }
fn conjugate(a: vec2<f32>) -> vec2<f32> { return vec2<f32>(a.x, -a.y); }

fn load_parts(at: vec2<u32>, position: u32) -> vec2<f32> {
{% if HALF_SOURCE == 1 %}
    let away = {{ number("whole") }} - 2u * position;
    var near = vec2<f32>(source_re[at.x], source_im[at.y]);
    var far = vec2<f32>(source_re[at.x + away * {{ number("mirror_re") }}], -source_im[at.y + away * {{ number("mirror_im") }}]);
    if (position == 0u) { near.y = 0.0f; far.y = 0.0f; }
    let odd = product(near - far, conjugate(half_root(position)));
    let x = near + far + vec2<f32>(-odd.y, odd.x);
    return x.yx;
{% elif HALF_SOURCE == 2 %}
    let mirrored = position > {{ number("whole") }} / 2u;
    let away = select(0u, {{ number("whole") }} - 2u * position, mirrored);
    let x = vec2<f32>(source_re[at.x + away * {{ number("mirror_re") }}], source_im[at.y + away * {{ number("mirror_im") }}]);
    return vec2<f32>(select(select(x.y, -x.y, mirrored), 0.0f, position == 0u), x.x);
{% elif SOURCE_IM %}
    return vec2<f32>(source_re[at.x], source_im[at.y]);
{% else %}
    return vec2<f32>(source_re[at.x], 0.0f);
{% endif %}
}
fn load(at: vec2<u32>, position: u32) -> vec2<f32> {
{% if SOURCE_CUT %}
    if (position >= {{ number("source_count") }}) { return vec2<f32>(); }
{% endif %}
    let x = load_parts(at, position);
    return {% if SOURCE_FACTORS %}product(x, table[{{ number("source_factors") }} + position]){% else %}x{% endif %};
}
fn store_parts(x: vec2<f32>, at: vec2<u32>) {
{% if TARGET_RE %}
    target_re[at.x] = x.x;
{% endif %}
{% if TARGET_IM %}
    target_im[at.y] = x.y;
{% endif %}
}
fn store(value: vec2<f32>, at: vec2<u32>, position: u32, power: u32) {
{% if TARGET_CUT %}
    if (position >= {{ number("target_count") }}) { return; }
{% endif %}
    var x = value;
{% if TARGET_FACTORS %}
    x = product(x, table[{{ number("target_factors") }} + position]);
{% endif %}
{% if TWIDDLED %}
    x = product(x, root({{ number("fine") }}, {{ number("coarse") }}, {{ number("fine_bits") }}, power));
{% endif %}
    store_parts(x * p.scale, at);
}
{% if HALF_TARGET %}
fn store_half(z: vec2<f32>, mirror: vec2<f32>, at: vec2<u32>, k: u32) {
    let y = conjugate(mirror);
    store_parts((z + y + minus_i(product(half_root(k), z - y))) * (0.5f * p.scale), at);
    if (k == 0u) {
        store_parts(vec2<f32>((z.x - z.y) * p.scale, 0.0f), at + {{ number("whole") }} * vec2<u32>({{ number("mirror_re") }}, {{ number("mirror_im") }}));
    }
}
{% endif %}
{% endmacro %}
