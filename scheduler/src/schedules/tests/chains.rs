//! Schedule kinds with one stage per rank.

use super::*;

#[test]
fn fused_kinds_have_the_bubble_of_the_table() {
    for name in ["gpipe", "1f1b", "eager-1f1b"] {
        for (p, m) in grid() {
            for (f, i, w) in COSTS {
                let time = Case::new(name, p, None, m).time((f, i, w), 0.0);
                assert_eq!(time.makespan, f64::from(m + p - 1) * (f + i + w), "{name} p={p} m={m}");
                assert_eq!(time.span, time.makespan, "rank 0 is first and last");
                assert_eq!(time.bubble(), f64::from(p - 1) / f64::from(m + p - 1));
            }
        }
    }
}

#[test]
fn gpipe_and_eager_1f1b_pay_each_hop_once_per_direction() {
    for name in ["gpipe", "eager-1f1b"] {
        for (p, m) in grid() {
            for comm in [1.0, 3.0, 10.0] {
                let time = Case::new(name, p, None, m).time((10.0, 11.0, 7.0), comm);
                let hops = 2.0 * f64::from(p - 1) * comm;
                assert_eq!(time.makespan, f64::from(m + p - 1) * 28.0 + hops, "{name} p={p} m={m} c={comm}");
            }
        }
    }
}

/// PipeDream-Flush with hops is slower than GPipe: figures of the authors' orders.
#[test]
fn one_f_one_b_pays_hops_in_its_steady_state() {
    let makespan = |name| Case::new(name, 8, None, 24).time((10.0, 11.0, 7.0), 1.0).makespan;
    assert_eq!((makespan("1f1b"), makespan("gpipe"), makespan("eager-1f1b")), (922.0, 882.0, 882.0));
}

#[test]
fn peaks_of_chains_are_those_of_the_table() {
    for (p, m) in grid() {
        let peaks = |name| Case::new(name, p, None, m).peaks();
        let ranks = |peak: fn(u32, u32) -> u32| (0..p).map(|r| peak(p, r).min(m)).collect::<Vec<_>>();
        assert_eq!(peaks("gpipe"), vec![m; p as usize]);
        assert_eq!(peaks("1f1b"), ranks(|p, r| p - r));
        assert_eq!(peaks("eager-1f1b"), ranks(|p, r| 2 * (p - r) - 1));
        assert_eq!(peaks("zb-h1"), ranks(|p, _| p));
        if m >= 2 * p - 1 {
            assert_eq!(peaks("zb-h2"), ranks(|p, _| 2 * p - 1));
        }
    }
}

/// Each forward keeps M_B until its W, of which I frees M_B - M_W: (p-r) M_B + r M_W on rank r (arXiv 2401.10241, 2.1).
#[test]
fn weighted_peaks_of_zb_h1() {
    let case = Case::new("zb-h1", 4, None, 8);
    let mut costs = case.costs((1.0, 1.0, 1.0), 0.0);
    (costs.mem_f, costs.mem_i, costs.mem_w) = (vec![10.0; 4], vec![7.0; 4], vec![3.0; 4]);
    let peaks = simulate(&case.make().unwrap(), &costs).unwrap().peak_memory;
    assert_eq!(peaks, [40.0, 33.0, 26.0, 19.0]);
}

#[test]
fn zb_h1_has_the_bubble_of_the_table() {
    for (p, m) in grid().filter(|&(p, m)| m >= p) {
        for (f, i, w) in COSTS {
            let time = Case::new("zb-h1", p, None, m).time((f, i, w), 0.0);
            assert_eq!(time.makespan - f64::from(m) * (f + i + w), f64::from(p - 1) * (f + i - w), "p={p} m={m}");
        }
    }
}

#[test]
fn zb_h2_has_the_bubble_of_the_table_with_hops() {
    for (p, m) in grid().filter(|&(p, m)| m >= 2 * p - 1) {
        for (f, i, w) in COSTS {
            for comm in [0.0, 1.0] {
                let time = Case::new("zb-h2", p, None, m).time((f, i, w), comm);
                let bubble = f64::from(p - 1) * (f + i + 2.0 * comm - 2.0 * w);
                assert_eq!(time.span - f64::from(m) * (f + i + w), bubble, "p={p} m={m} {f} {i} {w} c={comm}");
            }
        }
    }
}

#[test]
fn seq1f1b_has_the_bubble_and_the_peaks_of_the_table() {
    for (p, m) in grid() {
        for q in 1..=4 {
            let case = Case::new("seq1f1b", p, None, m).slices(q);
            for (f, i, w) in COSTS {
                let makespan = case.time((f, i, w), 0.0).makespan;
                assert_eq!(makespan, f64::from(m * q + p - 1) * (f + i + w), "p={p} m={m} q={q}");
            }
            assert_eq!(case.peaks(), (0..p).map(|r| (p - r - 1 + q).min(m * q)).collect::<Vec<_>>());
        }
    }
}

/// Figures of the authors' own script (arXiv 2401.10241, table 5): times in microseconds, 1.5B and 14.6B models.
#[test]
fn bubbles_of_zb_h1_and_h2_in_table_5() {
    let cases = [
        (8, 24, (18522.0, 18086.0, 9337.0), 601.0, 0.1585, 0.1083),
        (8, 64, (18546.0, 18097.0, 9321.0), 762.0, 0.0674, 0.0444),
        (16, 48, (11347.0, 11248.0, 8132.0), 377.0, 0.1397, 0.0672),
    ];
    for (p, m, fiw, comm, h1, h2) in cases {
        let time = |name| Case::new(name, p, None, m).time(fiw, comm);
        assert!((time("zb-h1").bubble() - h1).abs() < 5e-5, "p={p} m={m}");
        assert!((time("zb-h2").bubble_span() - h2).abs() < 5e-5, "p={p} m={m}");
    }
}
