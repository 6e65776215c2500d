{#- Angles of any size, less a whole number of quarter turns. WGSL does not bound the error of sin and cos outside [-pi, pi], so
    every periodic function reduces its angle first. -#}
{% include "lib/mul64.wgsl" %}
{% include "lib/sincos.wgsl" %}
// A zero word, then 2/pi in fixed point: the largest float needs the first 198 bits.
var<private> two_over_pi: array<u32, 8> = array<u32, 8>(
    0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);

// 32 bits of the table, beginning with bit `first`.
fn two_over_pi_bits(first: u32) -> u32 {
    let word = first >> 5u;
    let shift = first & 31u;
    let high = two_over_pi[word];
    return select((high << shift) | (two_over_pi[word + 1u] >> (32u - max(shift, 1u))), high, shift == 0u);
}
// x modulo pi/2 for x >= 2 (Payne and Hanek, SIGNUM Newsletter 18, 1983). x is m 2^(e - 23). Let f be
// the fraction that consists of the bits of 2/pi from bit e - 25: the fraction of m f is x in turns of four quarters. 64 bits of it
// are kept. No float is closer to a multiple of pi/2 than 2^-30 quarters, which leaves 32 bits.
fn reduced_large(x: f32) -> ReducedAngle {
    let bits = bitcast<u32>(x);
    let m = (bits & 0x7fffffu) | 0x800000u;
    let first = ((bits >> 23u) & 0xffu) + 32u - 127u - 25u;
    let p1 = product(m, two_over_pi_bits(first + 32u));
    let low = p1.y + product(m, two_over_pi_bits(first + 64u)).x;
    let turn = m * two_over_pi_bits(first) + p1.x + select(0u, 1u, low < p1.y);
    // The nearest quarter, and the distance from it in 2^-64 quarters: its sign, and its size as two words.
    let quarters = i32((turn + 0x20000000u) >> 30u);
    var high = (turn << 2u) | (low >> 30u);
    var rest = low << 2u;
    let below = high >= 0x80000000u;
    if (below) {
        rest = 0u - rest;
        high = ~high + select(0u, 1u, rest == 0u);
    }
    // The 32 leading bits, in two exact parts whose sum rounds once.
    let moved = high == 0u;
    let word = select(high, rest, moved);
    let next = select(rest, 0u, moved);
    let up = countLeadingZeros(word);
    let leading_bits = select((word << up) | (next >> (32u - max(up, 1u))), word, up == 0u);
    let size = f32(leading_bits >> 8u) * 256.0f + f32(leading_bits & 255u);
    let exponent = -32 - i32(up) - select(0, 32, moved);
    let angle = size * 1.57079633f * bitcast<f32>(u32(exponent + 127) << 23u);
    let negative = bits >= 0x80000000u;
    return ReducedAngle(select(angle, -angle, below != negative), select(quarters, -quarters, negative) & 3);
}
// Smaller angles: pi/2 in three parts of 13 bits, whose products with n < 2^11 are exact, and a rest (Cody and Waite).
fn reduced(x: f32) -> ReducedAngle {
    if (abs(x) < 3200.0f) {
        let n = round(x * 0.636619772f);
        let near = ((x - n * 1.570556640625f) - n * 2.396702766418457e-4f) - n * 1.5890691429376602e-8f;
        return ReducedAngle(near - n * 2.5633440682570896e-12f, i32(n) & 3);
    }
    return reduced_large(x);
}
