//! Tests of attention and its gradients against the definition in f64.

use super::super::dropout::uniform;
use super::super::testing::sample::sampled;
use super::super::testing::{Stored, assert_close, doubles, integers, normals};
use super::*;
use crate::cpu::narrow::{FloatsMut, Narrow, round};

/// Everything in double precision: the result, the log-sum-exp, and the gradients. The result and the gradients have bounds of how far
/// one unit of error of each weight, of each gradient by a score and of each element of the result that is saved moves them.
struct Exact {
    out: Vec<f64>,
    lse: Vec<f64>,
    gradients: [Vec<f64>; 3],
    out_bound: Vec<f64>,
    bounds: [Vec<f64>; 3],
}

fn naive(a: &Attention, x: &Inputs<'_>, dout: &[f32]) -> Exact {
    let Attention { s, t, g, r, d, c, .. } = *a;
    let rows = a.b * s * g * r;
    let mut e = Exact {
        out: vec![0.0; rows * c],
        lse: vec![f64::NEG_INFINITY; rows],
        gradients: [vec![0.0; x.q.len()], vec![0.0; x.k.len()], vec![0.0; x.v.len()]],
        out_bound: vec![0.0; rows * c],
        bounds: [vec![0.0; x.q.len()], vec![0.0; x.k.len()], vec![0.0; x.v.len()]],
    };
    let [q, k, v, dout] = [x.q.wide(), x.k.wide(), x.v.wide(), dout].map(doubles);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for row in 0..rows {
        let (bi, i) = (row / (s * g * r), row / (g * r));
        let key_row = |j: usize| (bi * t + j) * g + row / r % g;
        let sees = |j: usize| {
            let j = bi * t + j;
            let back = i64::from(x.qpos[i]) - i64::from(x.kpos[j]);
            let is_near = a.window.is_none_or(|window| back < 0 || (back as u64) < window);
            let chunk_of = |pos: i32, chunk: u64| i64::from(pos).div_euclid(chunk as i64);
            let is_near = is_near && a.chunk.is_none_or(|n| chunk_of(x.qpos[i], n) == chunk_of(x.kpos[j], n));
            x.qseg[i] == x.kseg[j] && (!a.causal || back >= 0) && is_near
        };
        let scale = f64::from(a.scale);
        let seen: Vec<usize> = (0..t).filter(|&j| sees(j)).collect();
        let unbounded = |j: usize| scale * dot(&q[row * d..][..d], &k[key_row(j) * d..][..d]);
        let bound = |x: f64| a.softcap.map_or(x, |softcap| f64::from(softcap) * (x / f64::from(softcap)).tanh());
        let slope = |x: f64| a.softcap.map_or(1.0, |softcap| 1.0 - (x / f64::from(softcap)).tanh().powi(2));
        let score = |j: usize| bound(unbounded(j));
        let max = seen.iter().map(|&j| score(j)).fold(f64::NEG_INFINITY, f64::max);
        let sink = x.sink.map(|sink| f64::from(sink.wide()[row % (g * r)]));
        let max = sink.map_or(max, |sink| max.max(sink));
        let scores = seen.iter().map(|&j| score(j)).chain(sink);
        e.lse[row] = max + scores.map(|score| (score - max).exp()).sum::<f64>().ln();
        let probability: Vec<f64> = seen.iter().map(|&j| (score(j) - e.lse[row]).exp()).collect();
        let dout = &dout[row * c..][..c];
        let factor = |j: usize| a.dropout.map_or(1.0, |dropout| factor(&dropout, [bi, i % s, row / r % g, row % r, j]));
        for (&j, p) in seen.iter().zip(&probability) {
            let sums = e.out[row * c..].iter_mut().zip(&mut e.out_bound[row * c..]);
            for ((out, bound), v) in sums.zip(&v[key_row(j) * c..][..c]) {
                let term = factor(j) * p * v;
                *out += term;
                *bound += term.abs();
            }
        }
        let delta = dot(&e.out[row * c..][..c], dout);
        // The result was computed with weights that err, and then rounded.
        let delta_bound: f64 =
            2.0 * dot(&e.out_bound[row * c..][..c], &dout.iter().map(|x| x.abs()).collect::<Vec<_>>());
        for (&j, p) in seen.iter().zip(&probability) {
            let (k_at, v_at) = (key_row(j) * d, key_row(j) * c);
            let ds = scale * slope(unbounded(j)) * p * (factor(j) * dot(dout, &v[v_at..][..c]) - delta);
            let ds_bound = ds.abs() + scale * slope(unbounded(j)) * p * delta_bound;
            for (n, dout) in dout.iter().enumerate() {
                e.gradients[2][v_at + n] += factor(j) * p * dout;
                e.bounds[2][v_at + n] += (factor(j) * p * dout).abs();
            }
            for n in 0..d {
                let (by_key, by_query) = (k[k_at + n], q[row * d + n]);
                e.gradients[1][k_at + n] += ds * by_query;
                e.gradients[0][row * d + n] += ds * by_key;
                e.bounds[1][k_at + n] += ds_bound * by_query.abs();
                e.bounds[0][row * d + n] += ds_bound * by_key.abs();
            }
        }
    }
    e
}

/// Factor by which dropout multiplies a weight.
fn factor(dropout: &Dropout, indices: [usize; 5]) -> f64 {
    let Dropout { p, key, origin, global_dims: sizes } = *dropout;
    let [b, s, g, r, t] = std::array::from_fn(|dim| origin[dim] + indices[dim] as u64);
    let counter = (((b * sizes[1] + s) * sizes[2] + g) * sizes[3] + r) * sizes[4] + t;
    if uniform(key, counter) >= p { 1.0 / (1.0 - f64::from(p)) } else { 0.0 }
}

/// Positions and segments: `[qpos, kpos, qseg, kseg]`.
type Places = [Vec<i32>; 4];

fn check(a: &Attention, places: &Places, par: Par) {
    check_stored(a, places, None, par);
}

/// Half of the last place of numbers of a format that products read, by which weights may err.
fn rounding(format: Option<Narrow>) -> f64 {
    match format {
        Some(Narrow::Bf16) => 2f64.powi(-8),
        Some(Narrow::F16) => 2f64.powi(-11),
        _ => 0.0,
    }
}

/// Asserts that each element is as close as to a result in f32, or as rounding by parts `unit` allows.
fn assert_within(got: &[f32], exact: &[f64], tolerance: f64, bound: &[f64], unit: f64) {
    assert_eq!([got.len(), bound.len()], [exact.len(); 2]);
    for (i, ((&got, &exact), &bound)) in got.iter().zip(exact).zip(bound).enumerate() {
        // Errors of errors are below a tenth.
        let most = tolerance * exact.abs().max(1.0) + 1.1 * unit * bound;
        assert!((f64::from(got) - exact).abs() <= most, "element {i}: got {got}, expected {exact} within {most}");
    }
}

/// Compares results of tensors in a format with the definition on their numbers.
fn check_stored(a: &Attention, places: &Places, format: Option<Narrow>, par: Par) {
    check_sink(a, places, None, format, par);
}

/// Compares results as [`check_stored`] does, with a further score for each query head.
fn check_sink(
    a: &Attention,
    [qpos, kpos, qseg, kseg]: &Places,
    sink: Option<&Vec<f32>>,
    format: Option<Narrow>,
    par: Par,
) {
    let Attention { b, s, t, g, r, d, c, .. } = *a;
    let rows = b * s * g * r;
    let counts = [(1, rows * d), (2, b * t * g * d), (3, b * t * g * c), (4, rows * c)];
    let stored = counts.map(|(seed, n)| Stored::new(format, &normals(n, seed)));
    let [q, k, v, dout] = stored.each_ref().map(|x| &x.numbers);
    let x = Inputs { q: q.into(), k: k.into(), v: v.into(), qpos, kpos, qseg, kseg, sink: sink.map(Into::into) };
    let exact = naive(a, &x, dout);
    let [q, k, v, dout] = stored.each_ref().map(Stored::floats);
    let x = Inputs { q, k, v, ..x };
    let mut scratch = vec![f32::NAN; 3];
    let (mut out, mut lse) = (vec![f32::NAN; rows * c], vec![f32::NAN; rows]);
    a.forward(&x, &mut out, &mut lse, par, &mut scratch);
    let unit = rounding(format);
    assert_within(&out, &exact.out, 1e-5, &exact.out_bound, unit);
    assert_close(&lse, &exact.lse, 1e-5);
    scratch.fill(f32::NAN);
    let wide_out = out;
    let out = Stored::new(format, &wide_out);
    let saved = Saved { out: out.floats(), lse: &lse, dout };
    let [mut dq, mut dk, mut dv] = [q, k, v].map(|x| vec![f32::NAN; x.len()]);
    a.backward(
        &x,
        &saved,
        Gradients { dq: (&mut dq).into(), dk: (&mut dk).into(), dv: (&mut dv).into() },
        par,
        &mut scratch,
    );
    for ((got, exact), bound) in [&dq, &dk, &dv].into_iter().zip(&exact.gradients).zip(&exact.bounds) {
        assert_within(got, exact, 3e-5, bound, unit);
    }
    if let Some(format) = format.filter(|format| a.writes(*format)) {
        let wide = [&wide_out, &dq, &dk, &dv];
        check_rounded(a, (&x, &saved), wide, (format, par));
    }
}

/// Results that are written in a format are those in f32, rounded.
fn check_rounded(
    a: &Attention,
    (x, saved): (&Inputs<'_>, &Saved<'_>),
    wide: [&Vec<f32>; 4],
    (format, par): (Narrow, Par),
) {
    let [mut out, mut dq, mut dk, mut dv] = wide.map(|wide| vec![0xa5; wide.len() * format.bytes()]);
    let mut lse = vec![f32::NAN; saved.lse.len()];
    a.forward(x, FloatsMut::Narrow(format, &mut out), &mut lse, par, &mut vec![]);
    assert!(lse.iter().zip(saved.lse).all(|(x, y)| x.to_bits() == y.to_bits()));
    let [to_q, to_k, to_v] = [&mut dq, &mut dk, &mut dv].map(|to| FloatsMut::Narrow(format, to));
    a.backward(x, saved, Gradients { dq: to_q, dk: to_k, dv: to_v }, par, &mut vec![]);
    for (got, wide) in [out, dq, dk, dv].iter().zip(wide) {
        let mut rounded = vec![0; got.len()];
        round(format, wide, &mut rounded, Par(1));
        assert!(*got == rounded);
    }
}

/// `b, s, t, g, r, d, c`
fn attention([b, s, t, g, r, d, c]: [usize; 7], causal: bool) -> Attention {
    Attention {
        b,
        s,
        t,
        g,
        r,
        d,
        c,
        scale: 1.0 / (d.max(1) as f32).sqrt(),
        causal,
        window: None,
        chunk: None,
        softcap: None,
        dropout: None,
    }
}

/// The attention as a part, somewhere, of a larger one whose weights are dropped.
fn dropping(a: Attention) -> Attention {
    let origin = [3, 70, 2, 1, 129];
    let mut global_dims = [a.b, a.s, a.g, a.r, a.t].map(|n| n as u64);
    global_dims.iter_mut().zip(origin).for_each(|(size, origin)| *size += origin + 1);
    Attention { dropout: Some(Dropout { p: 0.3, key: [7, 9], origin, global_dims }), ..a }
}

/// Positions that grow from `start` on, all in one segment.
fn in_order(b: usize, n: usize, start: i32) -> [Vec<i32>; 2] {
    [(0..b * n).map(|i| start + (i % n) as i32).collect(), vec![0; b * n]]
}

/// Places of queries and keys in any order, in a number of segments.
fn random_places([queries, keys]: [usize; 2], seed: u32, segments: i32) -> Places {
    [
        integers(queries, seed, 0, 200),
        integers(keys, seed + 1, 0, 200),
        integers(queries, seed + 2, 0, segments),
        integers(keys, seed + 3, 0, segments),
    ]
}

const SIZES: [[usize; 7]; 9] = [
    [1, 1, 1, 1, 1, 1, 1],
    [2, 5, 7, 2, 3, 4, 3],
    [1, 128, 128, 1, 1, 64, 64],
    [2, 130, 300, 1, 2, 16, 24],
    [1, 300, 129, 2, 1, 5, 9],
    [0, 4, 4, 1, 1, 2, 2],
    [1, 0, 4, 1, 1, 2, 2],
    [2, 4, 0, 1, 1, 2, 2],
    [1, 4, 4, 1, 1, 0, 3],
];

#[test]
fn positions_in_order() {
    for size in SIZES {
        for causal in [false, true] {
            let [b, s, t, ..] = size;
            // Keys are the end of what the queries see, then the start.
            for start in [0, 50] {
                let ([qpos, qseg], [kpos, kseg]) = (in_order(b, s, start), in_order(b, t, 0));
                let (a, places) = (attention(size, causal), [qpos, kpos, qseg, kseg]);
                check(&a, &places, Par(1 + start as usize % 3));
                check(&dropping(a), &places, Par(2));
            }
        }
    }
}

#[test]
fn random_positions_and_segments() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        for segments in [2, 5] {
            let ([b, s, t, ..], seed) = (size, 10 * seed as u32);
            let places = random_places([b * s, b * t], seed, segments);
            for causal in [false, true] {
                let a = attention(size, causal);
                check(&a, &places, Par(1));
                check(&dropping(a), &places, Par(4));
            }
        }
    }
}

#[test]
fn windows_and_bounded_scores() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        let ([b, s, t, ..], seed) = (size, 10 * seed as u32);
        let ([qpos, qseg], [kpos, kseg]) = (in_order(b, s, 40), in_order(b, t, 0));
        let ordered = [qpos, kpos, qseg, kseg];
        let random = random_places([b * s, b * t], seed, 2);
        for (window, softcap) in
            [(Some(1), None), (Some(50), None), (Some(u64::MAX), Some(0.5)), (None, Some(2.0)), (Some(130), Some(0.7))]
        {
            let a = Attention { window, softcap, ..attention(size, true) };
            for places in [&ordered, &random] {
                check(&a, places, Par(2));
                check(&dropping(a), places, Par(1));
            }
        }
        for chunk in [1, 7, 64, 1 << 40] {
            let a = Attention { chunk: Some(chunk), ..attention(size, true) };
            for places in [&ordered, &random] {
                check(&a, places, Par(2));
            }
        }
    }
}

/// Queries that see nothing have the sink alone.
#[test]
fn sinks_are_scores_without_values() {
    for (seed, size) in (0..).step_by(10).zip(SIZES) {
        let [b, s, t, g, r, ..] = size;
        let (places, sink) = (random_places([b * s, b * t], seed, 2), normals(g * r, 5));
        for format in [None, Some(Narrow::Bf16)] {
            check_sink(&attention(size, true), &places, Some(&sink), format, Par(2));
        }
    }
}

#[test]
fn packed_documents() {
    let size = [2, 400, 400, 1, 2, 8, 8];
    let pos: Vec<i32> = (0..800).map(|i| i % 400 % 150).collect();
    let seg: Vec<i32> = (0..800).map(|i| i % 400 / 150).collect();
    check(&attention(size, true), &[pos.clone(), pos, seg.clone(), seg], Par(2));
}

#[test]
fn narrow_tensors() {
    for size in SIZES {
        let [b, s, t, ..] = size;
        let ([qpos, qseg], [kpos, kseg]) = (in_order(b, s, 20), in_order(b, t, 0));
        for format in [Narrow::Bf16, Narrow::F16] {
            let places = [&qpos, &kpos, &qseg, &kseg].map(Clone::clone);
            let a = attention(size, true);
            let bounded = Attention { window: Some(70), softcap: Some(0.7), ..a };
            for a in [a, dropping(a), bounded, attention(size, false)] {
                check_stored(&a, &places, Some(format), Par(2));
            }
        }
    }
}

#[test]
fn narrow_tensors_of_many_keys() {
    // More blocks of keys than stay in order, and queries that see some of them, the last of several heads.
    for (seed, size) in [(1, [1, 140, 1300, 1, 2, 34, 64]), (2, [2, 33, 1153, 2, 1, 64, 6])] {
        let [b, s, t, ..] = size;
        let ([qpos, qseg], [kpos, kseg]) = (in_order(b, s, 1100), in_order(b, t, 0));
        let (ordered, random) = ([qpos, kpos, qseg, kseg], random_places([b * s, b * t], seed, 3));
        let a = attention(size, true);
        let windows = [Some(100), Some(700)].map(|window| Attention { window, ..a });
        let all = [a, dropping(a), attention(size, false)].into_iter().chain(windows);
        for (number, a) in all.enumerate() {
            // A sample has each of the forms in order for one of the sizes, and at random for the other one.
            let first = sampled((number + seed as usize) % 2, 0);
            for places in [&ordered, &random].into_iter().skip(first).take(sampled(1, 2)) {
                check_stored(&a, places, Some(Narrow::Bf16), Par(2));
            }
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gets_nothing() {
    let a = attention([1, 2, 3, 1, 1, 4, 4], true);
    let (q, k) = (normals(8, 1), normals(12, 2));
    let (qpos, kpos) = ([-1, 1], [0, 1, 2]);
    let x = Inputs {
        q: (&q).into(),
        k: (&k).into(),
        v: (&k).into(),
        qpos: &qpos,
        kpos: &kpos,
        qseg: &[0; 2],
        kseg: &[0; 3],
        sink: None,
    };
    let (mut out, mut lse) = ([f32::NAN; 8], [f32::NAN; 2]);
    a.forward(&x, &mut out, &mut lse, Par(1), &mut vec![]);
    assert_eq!(out[..4], [0.0; 4]);
    assert_eq!(lse[0], f32::NEG_INFINITY);
    assert!(lse[1].is_finite() && out[4..].iter().all(|v| v.is_finite()));
    let (mut dq, mut dk, mut dv) = ([f32::NAN; 8], [f32::NAN; 12], [f32::NAN; 12]);
    let saved = Saved { out: (&out).into(), lse: &lse, dout: (&[1.0; 8]).into() };
    a.backward(
        &x,
        &saved,
        Gradients { dq: (&mut dq).into(), dk: (&mut dk).into(), dv: (&mut dv).into() },
        Par(1),
        &mut vec![],
    );
    assert_eq!(dq[..4], [0.0; 4]);
    assert!(dk.iter().chain(&dv).all(|v| v.is_finite()));
}

#[test]
fn a_query_that_sees_one_key_alone_moves_nothing() {
    // Its weight is 1 whatever the score; differences of large numbers must cancel to the bit.
    for (width, format) in [2, 24, 64, 130].into_iter().flat_map(|width| [None, Some(Narrow::Bf16)].map(|f| (width, f)))
    {
        let (n, a) = (70, attention([1, 70, 70, 1, 1, width, width], false));
        let [q, k, v, dout] = [1, 2, 3, 4].map(|seed| Stored::new(format, &normals(n * width, seed)));
        let (pos, seg): (Vec<i32>, Vec<i32>) = (vec![0; n], (0..n as i32).collect());
        let x = Inputs {
            q: q.floats(),
            k: k.floats(),
            v: v.floats(),
            qpos: &pos,
            kpos: &pos,
            qseg: &seg,
            kseg: &seg,
            sink: None,
        };
        let (mut out, mut lse) = (vec![f32::NAN; n * width], vec![f32::NAN; n]);
        a.forward(&x, &mut out, &mut lse, Par(1), &mut vec![]);
        assert_eq!(out, v.numbers);
        let [mut dq, mut dk, mut dv] = [(); 3].map(|()| vec![f32::NAN; n * width]);
        let out = Stored::new(format, &out);
        let saved = Saved { out: out.floats(), lse: &lse, dout: dout.floats() };
        a.backward(
            &x,
            &saved,
            Gradients { dq: (&mut dq).into(), dk: (&mut dk).into(), dv: (&mut dv).into() },
            Par(1),
            &mut vec![],
        );
        assert_eq!(dv, dout.numbers);
        assert!(dq.iter().chain(&dk).all(|v| *v == 0.0), "width {width}");
    }
}

#[test]
fn parts_by_queries_and_sequences_are_the_whole() {
    let [b, s, t, g, r, d] = [2, 150, 140, 2, 1, 4];
    let whole = Attention {
        dropout: Some(Dropout { p: 0.5, key: [3, 4], origin: [0; 5], global_dims: [b, s, g, r, t].map(|n| n as u64) }),
        ..attention([b, s, t, g, r, d, d], false)
    };
    let forward = |a: &Attention, q: &[f32], kv: &[f32]| {
        let (rows, keys) = (vec![0; a.b * a.s], vec![0; a.b * a.t]);
        let x = Inputs {
            q: q.into(),
            k: kv.into(),
            v: kv.into(),
            qpos: &rows,
            kpos: &keys,
            qseg: &rows,
            kseg: &keys,
            sink: None,
        };
        let (mut out, mut lse) = (vec![f32::NAN; q.len()], vec![f32::NAN; q.len() / d]);
        a.forward(&x, &mut out, &mut lse, Par(1), &mut vec![]);
        out
    };
    let (q, kv) = (normals(b * s * g * r * d, 1), normals(b * t * g * d, 2));
    let want = forward(&whole, &q, &kv);
    let (row, sequence) = (g * r * d, t * g * d);
    for (bi, from, to) in [(0, 0, 61), (0, 61, 150), (1, 0, 130), (1, 130, 150)] {
        let dropout = whole.dropout.map(|dropout| Dropout { origin: [bi as u64, from as u64, 0, 0, 0], ..dropout });
        let part = Attention { b: 1, s: to - from, dropout, ..whole };
        let at = (bi * s + from) * row..(bi * s + to) * row;
        let got = forward(&part, &q[at.clone()], &kv[bi * sequence..][..sequence]);
        assert_close(&got, &doubles(&want[at]), 1e-6);
    }
}
