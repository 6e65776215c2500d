{#- Gradients of rowwise/norm.wgsl with respect to weight and, when it centres, bias, in parts: sums over `chunk` rows of g * (x - mean) * scale
    and of g. An invocation owns STRIPS times WIDTH columns and takes every TALL-th row; GROUP / TALL such owners stand side by side. Part n
    of the weight's gradient goes to partial[n * length ..], those of the bias come after all of these. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set CENTRED = CENTRED | default(true) %}
{% set WIDTH = WIDTH | default(4) %}
{% set STRIPS = STRIPS | default(2) %}
{% set GROUP = GROUP | default(64) %}
{% set TALL = TALL | default(4) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set WIDE = GROUP // TALL %}
{% set V = "vec4<f32>" if WIDTH == 4 else "f32" %}
{% set at = "at4" if WIDTH == 4 else "at" %}
{% set sums = ["weight"] + (["bias"] if CENTRED else []) %}
{{ storage.enable() }}
{{ storage.half_functions() }}
{{ storage.input(0, "g", DTYPE, WIDTH) }}
{{ storage.input(1, "x", DTYPE, WIDTH) }}
{% if CENTRED %}
{{ storage.input(2, "means", "float32") }}
{% endif %}
{{ storage.input(3 if CENTRED else 2, "scales", "float32") }}
{{ storage.scratch(4 if CENTRED else 3, "partial", V) }}
{{ storage.parameters("o_g: u32, o_x: u32, " ~ ("o_mean: u32, " if CENTRED else "") ~ "o_scale: u32, rows: u32, length: u32, "
   ~ "chunk: u32, parts: u32, blocks: u32, g_row: u32, x_row: u32") }}
{{ groups.stack("stack_sum", V, "a + b", WIDE, TALL) }}
{% for s in range(STRIPS) %}
var<private> weight{{ s }}: {{ V }};
var<private> bias{{ s }}: {{ V }};
{% endfor %}
fn add(row: u32{% for s in range(STRIPS) %}, column{{ s }}: u32{% endfor %}) {
    let scale = scales_at(p.o_scale + row);
    let mean = {{ "means_at(p.o_mean + row)" if CENTRED else "0.0f" }};
{% for s in range(STRIPS) %}
    let slope{{ s }} = g_{{ at }}(p.o_g + row * p.g_row + column{{ s }});
    weight{{ s }} += slope{{ s }} * ((x_{{ at }}(p.o_x + row * p.x_row + column{{ s }}) - mean) * scale);
    bias{{ s }} += slope{{ s }};
{% endfor %}
}
{{ storage.main(GROUP) }}
    let across = lane % {{ WIDE }}u;
    let down = lane / {{ WIDE }}u;
    let part = group / p.blocks;
    if (part >= p.parts) { return; }
{% for s in range(STRIPS) %}
    let wanted{{ s }} = (group % p.blocks * {{ STRIPS * WIDE }}u + {{ s * WIDE }}u + across) * {{ WIDTH }}u;
    let column{{ s }} = min(wanted{{ s }}, p.length - {{ WIDTH }}u);
{% endfor %}
{% set columns %}{% for s in range(STRIPS) %}, column{{ s }}{% endfor %}{% endset %}
    var row = part * p.chunk + down;
    let end = min(part * p.chunk + p.chunk, p.rows);
    for (; row + {{ 3 * TALL }}u < end; row += {{ 4 * TALL }}u) {
{% for u in range(4) %}
        add(row + {{ u * TALL }}u{{ columns }});
{% endfor %}
    }
    for (; row < end; row += {{ TALL }}u) { add(row{{ columns }}); }
{% for s in range(STRIPS) %}
{% for name in sums %}
    {{ name }}{{ s }} = stack_sum({{ name }}{{ s }}, across, down);
    if (down == 0u && wanted{{ s }} < p.length) {
        partial[(({{ "p.parts + " if name == "bias" }}part) * p.length + column{{ s }}) / {{ WIDTH }}u] = {{ name }}{{ s }};
    }
{% endfor %}
{% endfor %}
}
