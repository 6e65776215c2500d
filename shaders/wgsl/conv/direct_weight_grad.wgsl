{#- A convolution or a gradient of it with few results and many terms, such as the weight gradient of a depthwise one: a group makes ROWS
    results of a column, its invocations share out the terms. See conv/windows.wgsl. -#}
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
    let column = group % p.n;
    let batch = group / p.n;
    if (batch >= p.count) { return; }
    let step = digits({{ groups.LANES }}u, p.term_lengths);
    let window = window_of_column(batch, column);
    var number = digits(me, p.term_lengths);
{% for r in range(ROWS) %}
    let a_row{{ r }} = row_of_left(batch, {{ r }}u);
    var sum{{ r }} = {{ sums.REAL }}();
{% endfor %}
    for (var term = me; term < p.k; term += {{ groups.LANES }}u) {
        let at = term_of_left(number);
        let y = pixel(window, window_of_term(number), true);
{% for r in range(ROWS) %}
        sum{{ r }} += a_at(a_row{{ r }} + at) * y;
{% endfor %}
        number = advanced(number, step);
    }
{% for r in range(ROWS) %}
    let total{{ r }} = total(sum{{ r }});
    if (me == {{ r }}u && {{ r }}u < p.m) {
        out_set(column_of_out(batch, column) + {{ r }}u * p.out_row, total{{ r }}{{ " + bias_at(p.o_bias + batch * p.m + " ~ r ~ "u)" if sums.BIAS }});
    }
{% endfor %}
}
