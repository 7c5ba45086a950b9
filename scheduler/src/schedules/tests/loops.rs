//! Schedule kinds with chunks in a loop.

use super::*;

fn chunked() -> impl Iterator<Item = (u32, u32, u32)> {
    grid().flat_map(|(p, m)| (2..=4).map(move |v| (p, m, v)))
}

#[test]
fn fused_loops_have_the_bubble_of_the_table() {
    for (p, m, v) in chunked() {
        for (f, i, w) in COSTS {
            // A group of fewer than p micro-batches starts its next chunk before its first micro-batch has returned.
            let short = (v - 1) * (p - p.min(m));
            let expected = f64::from(m * v + p - 1 + short) * (f + i + w);
            for name in ["interleaved-1f1b", "looped-bfs"] {
                let makespan = Case::new(name, p, Some(v), m).time((f, i, w), 0.0).makespan;
                assert_eq!(makespan, expected, "{name} p={p} m={m} v={v}");
            }
        }
    }
}

/// If the first micro-batch returns before the last has left, only the fill and the drain of the pipeline show hops. With p
/// micro-batches every hop shows.
#[test]
fn looped_bfs_hides_hops() {
    for (p, m, v) in chunked().filter(|&(p, m, _)| m >= p) {
        for (f, i, w) in COSTS {
            let comm = f / 4.0;
            let hidden = f64::from(m) * f >= f64::from(p) * (f + comm);
            if hidden || m == p {
                let hops = if hidden || p == 1 { p - 1 } else { p * v - 1 };
                let expected = f64::from(m * v + p - 1) * (f + i + w) + 2.0 * f64::from(hops) * comm;
                let makespan = Case::new("looped-bfs", p, Some(v), m).time((f, i, w), comm).makespan;
                assert_eq!(makespan, expected, "p={p} m={m} v={v} c={comm}");
            }
        }
    }
}

#[test]
fn interleaved_zb_has_the_bubble_of_the_table() {
    for (p, m, v) in chunked().filter(|&(p, m, _)| m >= p) {
        for (f, i, w) in COSTS {
            let makespan = Case::new("interleaved-zb", p, Some(v), m).time((f, i, w), 0.0).makespan;
            assert_eq!(makespan - f64::from(m * v) * (f + i + w), f64::from(p - 1) * (f + i - w), "p={p} m={m} v={v}");
        }
    }
}

#[test]
fn peaks_of_loops_are_those_of_the_table() {
    for (p, m, v) in chunked() {
        let peaks = |name| Case::new(name, p, Some(v), m).peaks();
        assert_eq!(peaks("looped-bfs"), vec![m * v; p as usize]);
        if m.is_multiple_of(p) {
            let interleaved: Vec<u32> = (0..p).map(|r| ((v - 1) * p + 2 * (p - 1 - r) + 1).min(m * v)).collect();
            assert_eq!(peaks("interleaved-1f1b"), interleaved, "p={p} m={m} v={v}");
            assert_eq!(peaks("interleaved-zb"), vec![p * v; p as usize], "p={p} m={m} v={v}");
        }
    }
}

/// A larger group hides hops and needs more memory: figures of Megatron's table of groups.
#[test]
fn groups_trade_memory_for_hops() {
    let case = Case::new("interleaved-1f1b", 4, Some(2), 8);
    let figures = |group: u32| {
        let case = case.group(group);
        let makespan = |comm| case.time((1.0, 1.0, 1.0), comm).makespan;
        (makespan(0.0), makespan(1.0), case.peaks()[0])
    };
    assert_eq!(figures(4), (57.0, 71.0, 11));
    assert_eq!(figures(8), (57.0, 63.0, 15));
}

#[test]
fn micro_batches_that_p_does_not_divide_make_even_groups() {
    let turns = |m| {
        let row = &Case::new("interleaved-1f1b", 4, Some(2), m).make().unwrap().rows[3];
        let forwards: Vec<Item> = row.iter().flat_map(Action::items).filter(|item| item.kind == Kind::F).collect();
        forwards.chunk_by(|a, b| a.stage == b.stage).map(<[_]>::len).collect::<Vec<_>>()
    };
    assert_eq!(turns(8), [4, 4, 4, 4]);
    assert_eq!(turns(10), [5, 5, 5, 5]);
    assert_eq!(turns(9), [5, 5, 4, 4]);
    assert_eq!(turns(7), [7, 7]);
    assert_eq!(turns(3), [3, 3]);
}

#[test]
fn grouped_interleaved_has_the_bubble_and_the_peaks_of_the_table() {
    for (p, v) in (1..=8_u32).flat_map(|p| [(p, 2), (p, 3)]) {
        for g in p.div_ceil(2)..=p {
            for rounds in 2..=4 {
                let (m, case) = (g * rounds, Case::new("grouped-interleaved", p, Some(v), g * rounds).group(g));
                let bubble = case.time((1.0, 1.0, 1.0), 0.0).makespan - f64::from(3 * m * v);
                assert_eq!(bubble, f64::from(2 * (p - 1) + (v - 1) * (p - g)), "p={p} m={m} v={v} g={g}");
                assert_eq!(case.peaks(), (0..p).map(|r| (v - 1) * g + p - r).collect::<Vec<_>>());
            }
        }
    }
}

/// The interleaved column of table 5 of arXiv 2401.10241, with every hop counted. The authors' script counts the hop
/// from a chunk to the next for the first micro-batch of each group alone, and comes out lower: 0.1055 in row one.
#[test]
fn interleaved_bubbles_of_table_5_with_every_hop() {
    let cases = [
        (8, 24, 3, (18522.0, 18086.0, 9337.0), 601.0, 0.1090),
        (8, 32, 3, (18513.0, 18086.0, 9331.0), 626.0, 0.0847),
        (8, 64, 3, (18546.0, 18097.0, 9321.0), 762.0, 0.0461),
        (8, 24, 4, (29718.0, 29444.0, 19927.0), 527.0, 0.0827),
        (8, 32, 4, (29802.0, 29428.0, 19530.0), 577.0, 0.0644),
        (8, 64, 4, (29935.0, 29621.0, 19388.0), 535.0, 0.0328),
        (16, 48, 3, (11347.0, 11248.0, 8132.0), 377.0, 0.1136),
        (16, 64, 3, (11307.0, 11254.0, 8101.0), 379.0, 0.0878),
        (16, 128, 3, (11325.0, 11308.0, 8109.0), 378.0, 0.0459),
        (32, 96, 2, (10419.0, 10207.0, 7715.0), 408.0, 0.1528),
        (32, 128, 2, (10408.0, 10204.0, 7703.0), 408.0, 0.1192),
        (32, 256, 2, (10402.0, 10248.0, 7698.0), 460.0, 0.0641),
    ];
    for (p, m, v, (f, i, w), comm, bubble) in cases {
        let chunks = f64::from(v);
        let time = Case::new("interleaved-1f1b", p, Some(v), m).time((f / chunks, i / chunks, w / chunks), comm);
        assert!((time.bubble() - bubble).abs() < 5e-5, "p={p} m={m}: {}", time.bubble());
    }
}
