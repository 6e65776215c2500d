{#- Layer norm (CENTRED) or RMS norm of rows, with the statistics that the gradient needs. The variance is computed around the mean in a second
    pass, because sums of squares would cancel. WEIGHT and BIAS are the dtypes of these, or empty. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set CENTRED = CENTRED | default(true) %}
{% set WEIGHT = WEIGHT | default("float32") %}
{% set BIAS = BIAS | default("float32") %}
{% set WIDTH = WIDTH | default(4) %}
{% set PARAMETER_WIDTH = PARAMETER_WIDTH | default(WIDTH) %}
{% set ROW_VECTORS = ROW_VECTORS | default(2) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/rows.wgsl" as rows with context %}
{% set affine = (["weight"] if WEIGHT else []) + (["bias"] if BIAS else []) %}
{% set statistics = (["mean"] if CENTRED else []) + ["scale"] %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, WIDTH) }}
{% for name in affine %}
{{ storage.input(loop.index, name, WEIGHT if name == "weight" else BIAS, PARAMETER_WIDTH) }}
{% endfor %}
{{ storage.output(1 + affine | length, "out", DTYPE, WIDTH) }}
{% for name in statistics %}
{{ storage.output(2 + affine | length + loop.index0, name ~ "s", "float32") }}
{% endfor %}
{% set members %}
o_x: u32, {% for name in affine %}o_{{ name }}: u32, {% endfor %}o_out: u32, {% for name in statistics %}o_{{ name }}s: u32, {% endfor %}eps: f32,
{% endset %}
{{ storage.parameters(members ~ rows.members(["x", "out"])) }}
{{ rows.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ rows.main(["x", "out"]) }}
{{ rows.load_row("x") }}
    let count = f32(p.length);
{% if CENTRED %}
    var sums = V();
{% call(k) rows.for_vectors() %}
        sums += {{ rows.value("x", k) }};
{% endcall %}
    let mean = group_sum(lanes_sum(sums)) / count;
{% else %}
    let mean = 0.0f;
{% endif %}
    var squares = V();
{% call(k) rows.for_vectors() %}
        let centred = {{ rows.value("x", k) }} - mean;
        squares += centred * centred;
{% endcall %}
    let scale = 1.0f / sqrt_f32(group_sum(lanes_sum(squares)) / count + p.eps);
{% call(k) rows.for_vectors() %}
        var value = ({{ rows.value("x", k) }} - mean) * scale;
{% if WEIGHT %}
        value *= weight_{{ "at4" if WIDTH == 4 else "at" }}(p.o_weight + {{ rows.index(k) }});
{% endif %}
{% if BIAS %}
        value += bias_{{ "at4" if WIDTH == 4 else "at" }}(p.o_bias + {{ rows.index(k) }});
{% endif %}
{{ rows.write("out", k, "value") }}
{% endcall %}
    if (lane_id == 0u && {{ rows.in_range() }}) {
{% for name in statistics %}
        {{ name }}s_set(p.o_{{ name }}s + row, {{ name }});
{% endfor %}
    }
}
