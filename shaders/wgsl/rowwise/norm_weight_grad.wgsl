{#- Partial gradients of rowwise/norm.wgsl with respect to weight and, if CENTRED, bias: sums over splits of `split_length` rows of
    g * (x - mean) * scale and of g. An invocation owns STRIPS times WIDTH columns and adds every GROUP_ROWS-th row; a workgroup is
    GROUP_ROWS x GROUP / GROUP_ROWS such invocations. Split n of the weight's gradient goes to partial[n * length ..]; the splits of the
    bias follow those of the weight. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set CENTRED = CENTRED | default(true) %}
{% set WIDTH = WIDTH | default(4) %}
{% set STRIPS = STRIPS | default(2) %}
{% set GROUP = GROUP | default(64) %}
{% set GROUP_ROWS = GROUP_ROWS | default(4) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% set GROUP_COLUMNS = GROUP // GROUP_ROWS %}
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
{{ storage.parameters("o_g: u32, o_x: u32, " ~ ("o_means: u32, " if CENTRED else "") ~ "o_scales: u32, rows: u32, length: u32, "
   ~ "split_length: u32, splits: u32, column_blocks: u32, g_row: u32, x_row: u32") }}
{{ groups.column_reduction("column_sum", V, "a + b", GROUP_COLUMNS, GROUP_ROWS) }}
{% for s in range(STRIPS) %}
var<private> weight{{ s }}: {{ V }};
var<private> bias{{ s }}: {{ V }};
{% endfor %}
fn add(row: u32{% for s in range(STRIPS) %}, column{{ s }}: u32{% endfor %}) {
    let scale = scales_at(p.o_scales + row);
    let mean = {{ "means_at(p.o_means + row)" if CENTRED else "0.0f" }};
{% for s in range(STRIPS) %}
    let grad{{ s }} = g_{{ at }}(p.o_g + row * p.g_row + column{{ s }});
    weight{{ s }} += grad{{ s }} * ((x_{{ at }}(p.o_x + row * p.x_row + column{{ s }}) - mean) * scale);
    bias{{ s }} += grad{{ s }};
{% endfor %}
}
{{ storage.main(GROUP) }}
    let across = local_id % {{ GROUP_COLUMNS }}u;
    let down = local_id / {{ GROUP_COLUMNS }}u;
    let split = group_id / p.column_blocks;
    if (split >= p.splits) { return; }
{% for s in range(STRIPS) %}
    let index{{ s }} = (group_id % p.column_blocks * {{ STRIPS * GROUP_COLUMNS }}u + {{ s * GROUP_COLUMNS }}u + across) * {{ WIDTH }}u;
    let column{{ s }} = min(index{{ s }}, p.length - {{ WIDTH }}u);
{% endfor %}
{% set columns %}{% for s in range(STRIPS) %}, column{{ s }}{% endfor %}{% endset %}
    var row = split * p.split_length + down;
    let end = min(split * p.split_length + p.split_length, p.rows);
    for (; row + {{ 3 * GROUP_ROWS }}u < end; row += {{ 4 * GROUP_ROWS }}u) {
{% for u in range(4) %}
        add(row + {{ u * GROUP_ROWS }}u{{ columns }});
{% endfor %}
    }
    for (; row < end; row += {{ GROUP_ROWS }}u) { add(row{{ columns }}); }
{% for s in range(STRIPS) %}
{% for name in sums %}
    {{ name }}{{ s }} = column_sum({{ name }}{{ s }}, across, down);
    if (down == 0u && index{{ s }} < p.length) {
        partial[(({{ "p.splits + " if name == "bias" }}split) * p.length + column{{ s }}) / {{ WIDTH }}u] = {{ name }}{{ s }};
    }
{% endfor %}
{% endfor %}
}
