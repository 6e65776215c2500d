{#- A convolution, or one of its gradients, with few results and many terms, such as the weight gradient of a depthwise convolution: a
    workgroup computes ROWS results of a column, and its invocations divide the terms among them. See conv/windows.wgsl. -#}
{% set ROWS = ROWS | default(1) %}
{% import "lib/storage.wgsl" as storage with context %}
{% import "lib/group_reduce.wgsl" as groups with context %}
{% import "lib/store_sums.wgsl" as sums with context %}
{% import "conv/windows.wgsl" as windows with context %}
{{ windows.declare(storage, sums) }}
{{ groups.declarations() }}
{{ groups.reduction("total", sums.REAL, "a + b") }}
{{ storage.main(groups.GROUP, groups.builtins()) }}
{{ groups.begin() }}
    let column = group_id % p.n;
    let batch = group_id / p.n;
    if (batch >= p.count) { return; }
    let step = multi_index({{ groups.LANES }}u, p.term_lengths);
    let window = window_of_column(batch, column);
    var term_index = multi_index(lane_id, p.term_lengths);
{% for r in range(ROWS) %}
    let a_row{{ r }} = left_row_offset(batch, {{ r }}u);
    var sum{{ r }} = {{ sums.REAL }}();
{% endfor %}
    for (var term = lane_id; term < p.k; term += {{ groups.LANES }}u) {
        let at = left_term_offset(term_index);
        let y = load_pixel(window, window_of_term(term_index), true);
{% for r in range(ROWS) %}
        sum{{ r }} += a_at(a_row{{ r }} + at) * y;
{% endfor %}
        term_index = advance(term_index, step);
    }
{% for r in range(ROWS) %}
    let total{{ r }} = total(sum{{ r }});
    if (lane_id == {{ r }}u && {{ r }}u < p.m) {
        out_set(out_column_offset(batch, column) + {{ r }}u * p.out_row, total{{ r }}{{ " + bias_at(p.o_bias + batch * p.m + " ~ r ~ "u)" if sums.BIAS }});
    }
{% endfor %}
}
