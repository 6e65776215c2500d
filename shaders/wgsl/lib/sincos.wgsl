{#- Sine and cosine of an angle of at most pi/4, plus a whole number of quarter turns. The polynomials are from Cephes (Moshier). -#}
struct ReducedAngle { angle: f32, quarters: i32 }
fn sine_near(r: f32) -> f32 {
    let z = r * r;
    return ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
}
fn cosine_near(r: f32) -> f32 {
    let z = r * r;
    return ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
}
fn quarter_sine(reduced: ReducedAngle) -> f32 {
    let value = select(sine_near(reduced.angle), cosine_near(reduced.angle), (reduced.quarters & 1) == 1);
    return select(value, -value, (reduced.quarters & 2) == 2);
}
