{#- Mean cross entropy of few logits with integer classes, and its gradient, by one workgroup, whose invocations take whole rows. A row
    whose class is out of range makes the mean NaN; rows whose class is ignored do not count. -#}
{% set DTYPE = DTYPE | default("float32") %}
{% set INDEX_DTYPE = INDEX_DTYPE | default("int32") %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "rowwise/classes.wgsl" as classes with context %}
{{ storage.enable() }}
{% include "lib/logarithm.wgsl" %}
{{ storage.half_functions() }}
{{ storage.input(0, "x", DTYPE) }}
{{ storage.input(1, "labels", INDEX_DTYPE) }}
{{ storage.output(2, "out", "float32") }}
{{ storage.output(3, "dx", DTYPE) }}
{{ storage.parameters("o_x: u32, o_labels: u32, o_out: u32, o_dx: u32, x_row: u32, x_step: u32, labels_step: u32, "
   ~ "ignored_low: u32, ignored_high: u32, smoothing: f32, rows: u32, length: u32") }}
{{ groups.declarations() }}
{{ groups.reduction("group_sum", "f32", "a + b") }}
{{ classes.declarations() }}
{{ storage.main(groups.GROUP, groups.builtins()) }}
{{ groups.begin() }}
    var count = 0.0f;
    for (var row = local_id; row < p.rows; row += {{ groups.GROUP }}u) { count += select(1.0f, 0.0f, class_of(row) == p.length); }
    count = group_sum(count);
    let even = p.smoothing / f32(p.length);
    var total = 0.0f;
    for (var row = local_id; row < p.rows; row += {{ groups.GROUP }}u) {
        let at = p.o_x + row * p.x_row;
        let label = class_of(row);
        var top = -infinity();
        for (var c = 0u; c < p.length; c++) {
            let logit = x_at(at + c * p.x_step);
            top = select(top, logit, logit > top);
        }
        var sum = 0.0f;
        var logits = 0.0f;
        for (var c = 0u; c < p.length; c++) {
            let logit = x_at(at + c * p.x_step) - top;
            sum += exp_f32(logit);
            logits += logit;
        }
        let logarithm = log_f32(sum);
        if (label < p.length) {
            total += (1.0f - p.smoothing) * (logarithm - (x_at(at + label * p.x_step) - top));
            if (p.smoothing != 0.0f) { total += p.smoothing * (logarithm - logits / f32(p.length)); }
        } else {
            total += unused(label);
        }
        for (var c = 0u; c < p.length; c++) {
            let hot = select(0.0f, 1.0f - p.smoothing, c == label);
            let value = exp_f32(x_at(at + c * p.x_step) - top - logarithm) - hot - even;
            dx_set(p.o_dx + row * p.length + c, select(unused(label), value / count, label < p.length));
        }
    }
    total = group_sum(total);
    if (local_id == 0u) { out_set(p.o_out, select(total / count, not_a_number(), count == 0.0f)); }
}
