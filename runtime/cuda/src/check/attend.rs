//! Checks of attention and its gradient: on tensor cores in 16 bits, and on others in f32. Each is compared with the processor on some
//! sizes, and timed on a long causal sequence.

use super::groups::{Run, compare_twice};
use super::numbers::encoded;
use super::{Bench, Found, Rows};
use crate::backend::Cuda;
use crate::error::Error;
use crate::memory::Arena;
use crate::plan::{Place, Plan, Work, plan, plan_tiles};
use crate::text::Text;
use crate::written::{Tiles, tiles_of};
use comm::local_len;
use device::backend::{GroupPlace, GroupSite};
use ir::fused::Fused;
use ir::graph::SectionKind;
use ir::types::{DType, Type};

/// b, s, t, g, r, d and c: tiles of few rows, and with many heads the largest tiles.
const SIZES: [[usize; 7]; 3] =
    [[2, 41, 37, 2, 3, 64, 64], [1, 129, 160, 54, 2, 64, 64], [1, 129, 160, 54, 2, 128, 128]];

/// Sizes of the head of the long sequences.
const HEAD: usize = 128;

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    let mut cuda = match Cuda::new(&bench.device) {
        Ok(cuda) => cuda,
        Err(why) => return rows.check("attention", "", "FLOP/s", || Err(why)),
    };
    let compared = if bench.extent.launches > 1 { &SIZES[..] } else { &SIZES[..1] };
    for format in ["bf16", "f16", "f32"] {
        for gradient in [false, true] {
            let matrix = bench.extent.matrix;
            // Without tensor cores a sequence of this length would take seconds.
            let long = if format == "f32" { matrix / 4 } else { matrix };
            let timed = [1, long, long, matrix / HEAD, 1, HEAD, HEAD];
            let what = format!("attention{} {format}", if gradient { "'s gradient" } else { "" });
            rows.check(what, format!("timed on {long} x {} x {HEAD}", timed[3]), "FLOP/s", || {
                one(bench, &mut cuda, format, gradient, compared, timed)
            });
        }
    }
}

/// Formats and heads whose tiles are timed.
const VARIANTS: [(&str, usize); 2] = [("bf16", 128), ("bf16", 64)];

/// Times all tiles of attention and of its gradient on long causal sequences. Nothing is compared.
pub(super) fn check_variants(bench: &mut Bench, rows: &mut Rows<'_>) {
    let long = bench.extent.matrix;
    for (format, head) in VARIANTS {
        for gradient in [false, true] {
            let timed = [1, long, long, (long / head).max(1), 1, head, head];
            let chosen = on_site(format, gradient, timed, |site| tiles_of(site.stmts[0].op, &site.stmts[0].site));
            for tiles in Tiles::others() {
                let what = format!("attention{} {format}, {tiles}", if gradient { "'s gradient" } else { "" });
                rows.check(what, format!("timed on {long} x {} x {head}", timed[3]), "FLOP/s", || {
                    let found = Found::results(0.0, 0.0);
                    let found = timed_on(bench, found, (format, gradient, timed), |site| plan_tiles(site, tiles))?;
                    let is_chosen = chosen == Ok(Some(tiles));
                    Ok::<_, Error>(if is_chosen { found.noted("these tiles are chosen".to_string()) } else { found })
                });
            }
        }
    }
}

fn one(
    bench: &mut Bench,
    cuda: &mut Cuda,
    format: &str,
    gradient: bool,
    compared: &[[usize; 7]],
    timed: [usize; 7],
) -> Result<Found, Error> {
    let mut worst = 0f64;
    for &sizes in compared {
        let numbers = |at, i| integers(sizes, gradient, at, i);
        let error = on_site(format, gradient, sizes, |site| compare_twice(cuda, site, Run::Op(false), &numbers));
        worst = worst.max(error.map_err(Error::Program)?.error);
    }
    let capability = bench.device.properties().capability;
    timed_on(bench, Found::results(worst, 1.0), (format, gradient, timed), |site| {
        plan(site.stmts[0].op, &site.stmts[0].site, capability)
    })
}

/// The result of a comparison, with the rate on sizes that are timed.
fn timed_on(
    bench: &mut Bench,
    found: Found,
    (format, gradient, timed): (&str, bool, [usize; 7]),
    plan: impl Fn(&GroupSite<'_>) -> Result<Plan, String>,
) -> Result<Found, Error> {
    let planned = |site: &GroupSite<'_>| {
        let stmt = &site.stmts[0];
        let lens = |types: &[&Type]| -> Vec<(DType, usize)> {
            types.iter().map(|ty| (ty.dtype, local_len(ty, stmt.site.mesh, stmt.site.coordinates))).collect()
        };
        Ok((plan(site)?, [lens(stmt.site.operands), lens(stmt.site.results)]))
    };
    let (plan, lens) = on_site(format, gradient, timed, planned).map_err(Error::Program)?;
    let seconds = seconds(bench, &plan, lens, &|at, i| integers(timed, gradient, at, i))?;
    let [_, s, _, g, _, d, c] = timed.map(|n| n as f64);
    // The products of the pairs of which one sees the other.
    let work = s * (s + 1.0) * g * if gradient { 3.0 * d + 2.0 * c } else { d + c };
    let peaks = bench.device.properties().peaks;
    Ok(found.at(work / seconds, if format == "f32" { peaks.f32 } else { peaks.bf16 }))
}

/// Positions in order, and one segment.
fn integers([_, s, t, ..]: [usize; 7], gradient: bool, [side, at]: [usize; 2], i: u64) -> Option<f32> {
    let number = match at.checked_sub(if gradient { 6 } else { 3 }) {
        Some(0) => i % s as u64,
        Some(1) => i % t as u64,
        Some(_) => 0,
        None => return None,
    };
    (side == 0).then_some(number as f32)
}

/// Calls with a causal attention, or its gradient, as backends see it.
fn on_site<R>(
    format: &str,
    gradient: bool,
    [b, s, t, g, r, d, c]: [usize; 7],
    call: impl FnOnce(&GroupSite<'_>) -> Result<R, String>,
) -> Result<R, String> {
    let (heads, places) = ("%q, %k, %v", "%qp, %kp, %qs, %ks");
    let (op, saved, parameters, types, results) = if gradient {
        (
            "attention_grad",
            ", %o, %l, %w",
            ", %o: T[b, s, g, r, c], %l: f32[b, s, g, r], %w: T[b, s, g, r, c]",
            GRADIENTS,
            "%x, %y, %z",
        )
    } else {
        ("attention", "", "", RESULTS, "%x, %y")
    };
    let made = results.split(", ").zip(types.split("; ")).map(|(name, ty)| format!("{name}: {ty}"));
    let text = format!(
        "mesh @m = [dp=1]
         dims [b={b}, s={s}, t={t}, g={g}, r={r}, d={d}, c={c}]
         block @b(%q: T[b, s, g, r, d], %k: T[b, t, g, d], %v: T[b, t, g, c]{parameters}, %qp: i32[b, s], %kp: i32[b, t],
                  %qs: i32[b, s], %ks: i32[b, t]) -> {} {{
           {} = {op}({heads}{saved}, {places}, scale=0.1, causal=true)
           return {results}
         }}",
        types.replace("; ", ", "),
        made.collect::<Vec<_>>().join(", "),
    );
    let model = ir::text::parse(&text.replace("T[", &format!("{format}["))).map_err(|why| format!("{why:?}"))?.model;
    let block = model.blocks.values().next().ok_or("there is no block")?;
    let section = &block[SectionKind::F];
    let fused = Fused { stmts: section.stmts.clone(), outs: section.ret.clone() };
    let at = GroupPlace { values: &block.values, mesh: &model.mesh, coordinates: &[0], forward: true };
    GroupSite::with(&fused, at, call)
}

const RESULTS: &str = "T[b, s, g, r, c]; f32[b, s, g, r]";
const GRADIENTS: &str = "T[b, s, g, r, d]; T[b, t, g, d]; T[b, t, g, c]";

/// Seconds of the launches of a plan whose kernels are all written by hand, on random numbers.
fn seconds(
    bench: &mut Bench,
    plan: &Plan,
    [operands, results]: [Vec<(DType, usize)>; 2],
    integers: &dyn Fn([usize; 2], u64) -> Option<f32>,
) -> Result<f64, Error> {
    let sizes =
        operands.iter().chain(&results).map(|(dtype, len)| (dtype.bytes() as usize * len).next_multiple_of(256));
    let mut starts = vec![0];
    starts.extend(sizes.scan(0, |end, size| {
        *end += size;
        Some(*end)
    }));
    let arena = Arena::new(&bench.device, starts[operands.len() + results.len()] + plan.scratch)?;
    for (at, (dtype, len)) in operands.iter().enumerate() {
        let number = |(i, x): (usize, &f32)| integers([0, at], i as u64).unwrap_or(*x);
        let bytes = encoded(*dtype, &bench.normals(*len, at).iter().enumerate().map(number).collect::<Vec<_>>());
        // SAFETY: the arena was just taken.
        unsafe { bench.staging.write(&bench.stream, arena.address(starts[at], bytes.len()), &bytes)? };
    }
    let address = |place: &Place| match *place {
        Place::Operand(at) => arena.address(starts[at], 0),
        Place::Result(at) => arena.address(starts[operands.len() + at], 0),
        Place::Scratch(at) => arena.address(starts[operands.len() + results.len()] + at, 0),
        Place::Tally => 0,
    };
    let mut kernels = Vec::new();
    for stage in &plan.stages {
        let Work::Written(work) = &stage.work else { return Err(Error::Program("not written by hand".to_string())) };
        let places = [&stage.operands, &stage.results].map(|side| side.iter().map(address).collect::<Vec<_>>());
        kernels.push((Text::new(&bench.device, work)?, places));
    }
    bench.seconds(|stream| {
        // SAFETY: all places are in the arena and as long as the kernels read and write; this is the only stream.
        kernels.iter().try_for_each(|(kernel, places)| unsafe { kernel.launch(stream, places, 0, [0; 3]) })
    })
}
