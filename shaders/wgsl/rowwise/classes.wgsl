{#- The target class of a row of cross entropy, from the input `labels` of INDEX_DTYPE. Import it `with context`.

  - `declarations()` declares class_of(row): the class; p.length if it is ignored, and p.length + 1 if it is
    out of range, for which `unused(label)` is 0 and NaN. They use the parameters o_labels,
    labels_step, ignored_low, ignored_high and length. -#}
{% set INDEX_DTYPE = INDEX_DTYPE | default("int32") %}
{% macro declarations() %}
fn class_of(row: u32) -> u32 {
    let label = labels_at(p.o_labels + row * p.labels_step);
{% if INDEX_DTYPE in ("int64", "uint64") %}
    let ignored = (u64(p.ignored_high) << 32u) | u64(p.ignored_low);
    let bits = u64(label);
{% else %}
    let ignored = p.ignored_low;
    let bits = u32(label);
{% endif %}
    let class_number = select(u32(bits), p.length + 1u, bits >= {{ "u64" if INDEX_DTYPE in ("int64", "uint64") else "u32" }}(p.length));
    return select(class_number, p.length, bits == ignored);
}
fn unused(label: u32) -> f32 {
    return select(0.0f, not_a_number(), label > p.length);
}
{% endmacro %}
