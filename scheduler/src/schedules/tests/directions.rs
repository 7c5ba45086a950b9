//! Schedule kinds whose micro-batches cross: two chains, Vs and waves.

use super::*;

impl Case {
    /// Simulates with uniform costs and overlapped pairs of `fb`.
    fn overlapped(&self, fiw: (f64, f64, f64), fb: f64) -> Timeline {
        let costs = StageCosts { fb: Some(fb), ..self.costs(fiw, 0.0) };
        simulate(&self.make().unwrap(), &costs).unwrap()
    }
}

fn idle(time: &Timeline) -> Vec<f64> {
    time.busy.iter().map(|busy| time.makespan - busy).collect()
}

/// Cases: p = 2 to 8, whole units of micro-batches, backwards no shorter than forwards.
#[test]
fn chimera_has_the_bubble_and_the_peaks_of_the_table() {
    for half in 1..=4 {
        let p = 2 * half;
        for units in 1..=3 {
            let case = Case::new("chimera", p, None, p * units);
            for (f, i, w) in COSTS {
                let makespan = case.time((f, i, w), 0.0).makespan;
                let unit = f64::from(p) * (f + i + w) + f64::from(p - 2) * (i + w);
                assert_eq!(makespan, f64::from(units) * unit, "p={p} units={units}");
            }
            let peaks: Vec<u32> = (0..p).map(|r| half + 1 + r.min(p - 1 - r)).collect();
            assert_eq!(case.peaks(), peaks);
        }
    }
}

/// The ratios of arXiv 2107.06925 at m = p: a backward as long as a forward, and twice as long.
#[test]
fn bubble_ratios_of_the_chimera_paper() {
    for p in [2, 4, 8, 16] {
        let case = Case::new("chimera", p, None, p);
        let (p, m) = (f64::from(p), f64::from(p));
        assert_eq!(case.time((2.0, 1.0, 1.0), 0.0).bubble(), (p - 2.0) / (2.0 * m + p - 2.0));
        assert_eq!(case.time((1.0, 1.0, 1.0), 0.0).bubble(), (p - 2.0) / (1.5 * m + p - 2.0));
    }
}

/// The formula of the README of deepseek-ai/DualPipe, whose B is the full backward: (p/2-1)(FB + B - 3w). Exact at f = i. With
/// pairs shorter than F plus B, only the innermost ranks have this idle time.
#[test]
fn dualpipes_have_the_bubble_of_their_readme() {
    for half in 1..=4_u32 {
        for (fi, w) in [(1.0, 1.0), (3.0, 2.0), (5.0, 1.0)] {
            for less in [0.0, 0.5] {
                let fb = 2.0 * fi + w - less;
                let formula = f64::from(half - 1) * (fb + fi - 2.0 * w);
                for more in [0, 2, 8] {
                    let two = Case::new("dualpipe", 2 * half, None, 4 * half + 2 * more);
                    let folded = Case::new("dualpipe-v", half, None, 2 * half + more);
                    for (case, innermost) in [(two, half), (folded, half - 1)] {
                        let (name, ranks) = (case.kind.name, case.pipeline.ranks as usize);
                        let idle = idle(&case.overlapped((fi, fi, w), fb));
                        assert_eq!(idle[innermost as usize], formula, "{name} half={half} f=i={fi} w={w} fb={fb}");
                        assert!(less > 0.0 || idle == vec![formula; ranks], "{name} half={half}: {idle:?}");
                        assert_eq!(case.peaks(), vec![2 * half + 1; ranks]);
                    }
                }
            }
        }
    }
}

/// The figure of the README: 8 ranks and 20 micro-batches, or half of both on a V.
#[test]
fn the_dualpipe_figure() {
    for case in [Case::new("dualpipe", 8, None, 20), Case::new("dualpipe-v", 4, None, 10)] {
        let (unit, ranks) = ((1.0, 1.0, 1.0), case.pipeline.ranks as usize);
        let time = case.overlapped(unit, 3.0);
        assert_eq!((time.makespan, idle(&time)), (66.0, vec![6.0; ranks]));
        assert_eq!((case.peaks(), time.busy), (vec![9; ranks], vec![60.0; ranks]));
        assert_eq!(case.overlapped(unit, 2.5).makespan, 59.0);
        assert!((case.overlapped(unit, 2.2).makespan - 54.8).abs() < 1e-9);
    }
    let idle = idle(&Case::new("dualpipe", 8, None, 20).overlapped((1.0, 1.0, 1.0), 2.5));
    assert_eq!(idle, [3.5, 4.0, 4.5, 4.5, 4.5, 4.5, 4.0, 3.5]);
    let makespan = |name| Case::new(name, 8, None, 20).time((1.0, 1.0, 1.0), 0.0).makespan;
    assert_eq!((makespan("1f1b"), makespan("zb-h1")), (81.0, 67.0));
}

/// The innermost ranks send the first gradient to themselves; the second half of step 6 is split.
#[test]
fn the_rows_of_dualpipe() {
    let rows = Case::new("dualpipe", 4, None, 8).make().unwrap().to_string();
    assert_eq!(
        rows.lines().nth(2).unwrap().trim(),
        "rank 1: 1F0 2F4 1F1 2F5 1F2 2B4 (2F6|1B0) (1F3|2B5) (2F7|1B1) 2B6 1B2 2I7 1I3 2W7 1W3 R N U"
    );
}

/// Cases: one wave of p micro-batches, backwards at least twice as long as forwards.
#[test]
fn one_wave_of_hanayo_has_its_bubble() {
    for p in 1..=8 {
        for (f, i, w) in [(1.0, 1.0, 1.0), (3.0, 5.0, 2.0), (1.0, 2.0, 2.0)] {
            let time = Case::new("hanayo", p, None, p).time((f, i, w), 0.0);
            assert_eq!(idle(&time), vec![f64::from(2 * (p - 1)) * (i + w); p as usize], "p={p}");
        }
    }
}

/// Two waves halve the idle time of one, their stages being half as long.
#[test]
fn more_waves_of_hanayo_idle_less() {
    for p in [2, 4, 8] {
        let idle = |waves: u32| {
            let stage = 1.0 / f64::from(waves);
            idle(&Case::new("hanayo", p, Some(2 * waves), p).time((stage, stage, stage), 0.0))[0]
        };
        assert!(idle(2) < 0.6 * idle(1) && idle(4) < 0.6 * idle(2), "p={p}");
    }
}

#[test]
fn hanayo_holds_at_most_twice_what_p_micro_batches_take() {
    for (p, m) in grid() {
        for v in [2, 4] {
            let most = Case::new("hanayo", p, Some(v), m).peaks().into_iter().max().unwrap();
            assert!(most <= (2 * p).min(m) * v, "p={p} m={m} v={v}: {most}");
        }
    }
}
