{#- Mean of the losses of rows, and 1 / their number. Rows whose class is ignored have a loss of 0 and do not count. One workgroup. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set INDEX_DTYPE = INDEX_DTYPE | default("int32") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "rowwise/classes.wgsl" as classes with context %}
{{ storage.enable() }}
{% include "lib/special_values.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "losses", DTYPE) }}
{{ storage.input(1, "labels", INDEX_DTYPE) }}
{{ storage.output(2, "out", DTYPE) }}
{{ storage.output(3, "scale", DTYPE) }}
{{ storage.parameters("o_losses: u32, o_labels: u32, o_out: u32, o_scale: u32, losses_step: u32, labels_step: u32, "
   ~ "ignored_low: u32, ignored_high: u32, rows: u32, length: u32") }}
{{ groups.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ classes.declarations() }}
{{ storage.main(groups.GROUP, groups.builtins()) }}
{{ groups.begin() }}
    var sum = 0.0f;
    var count = 0.0f;
    for (var row = local_id; row < p.rows; row += {{ groups.GROUP }}u) {
        sum += losses_at(p.o_losses + row * p.losses_step);
        count += select(1.0f, 0.0f, class_of(row) == p.length);
    }
    sum = group_sum(sum);
    count = group_sum(count);
    if (local_id == 0u) {
        // WGSL does not define a division by zero: this is its result in IEEE 754.
        let of_none = select(not_a_number(), select(-infinity(), infinity(), sum > 0.0f), sum > 0.0f || sum < 0.0f);
        out_set(p.o_out, select(sum / count, of_none, count == 0.0f));
        scale_set(p.o_scale, select(1.0f / count, infinity(), count == 0.0f));
    }
}
