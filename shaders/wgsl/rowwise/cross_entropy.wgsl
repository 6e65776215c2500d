{#- Cross entropy of rows of logits with integer classes, and the logsumexp of each row. With SMOOTHED (label smoothing) the mean of the row
    counts too. Rows whose class is ignored give 0; those whose class is out of range give NaN. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set INDEX_DTYPE = INDEX_DTYPE | default("int32") %}
{% set SMOOTHED = SMOOTHED | default(false) %}
{% set WIDTH = WIDTH | default(4) %}
{% set ROW_VECTORS = ROW_VECTORS | default(2) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/rows.wgsl" as rows with context %}
{% import "rowwise/classes.wgsl" as classes with context %}
{% import "rowwise/row_exponentials.wgsl" as exponentials with context %}
{{ storage.enable() }}
{% include "lib/logarithm.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE, WIDTH) }}
{{ storage.input(1, "labels", INDEX_DTYPE) }}
{{ storage.output(2, "loss", "float32") }}
{{ storage.output(3, "lse", "float32") }}
{{ storage.parameters("o_x: u32, o_labels: u32, o_loss: u32, o_lse: u32, labels_step: u32, ignored_low: u32, ignored_high: u32, "
   ~ "smoothing: f32, " ~ rows.members(["x"])) }}
{{ rows.declarations() }}
{{ exponentials.declarations() }}
{{ classes.declarations() }}
{{ rows.main(["x"]) }}
{{ rows.load_row("x") }}
{{ exponentials.statistics("x") }}
{% if SMOOTHED %}
    var logits = V();
{% call(k) rows.for_vectors() %}
        logits += {{ rows.value("x", k) }} - shift;
{% endcall %}
    let mean = group_sum(lanes_sum(logits)) / f32(p.length);
{% endif %}
    if (lane_id == 0u && {{ rows.in_range() }}) {
        // Relative to the largest logit: adding that could round the logarithm away.
        let logarithm = log_f32(total);
        let label = class_of(row);
        var value = unused(label);
        if (label < p.length) {
            value = (1.0f - p.smoothing) * (logarithm - (x_at(at_x + label * p.x_step) - shift));
{% if SMOOTHED %}
            value += p.smoothing * (logarithm - mean);
{% endif %}
        }
        loss_set(p.o_loss + row, value);
        lse_set(p.o_lse + 2u * row, shift);
        lse_set(p.o_lse + 2u * row + 1u, logarithm);
    }
}
