//! Short text forms of configurations.

use compiler::layout::{keys, parse_any};
use ir::goal::{Layout, Recompute};

/// What a layout says that is not as always: `dp=8,tp=4,sp=true,zero=1`.
pub fn brief(layout: &Layout) -> String {
    let plain = values(&Layout::default());
    let kept = |(at, (key, value)): (usize, &(&str, String))| {
        let always = matches!(*key, "dp" | "tp" | "pp" | "zero" | "mbs");
        (always || *value != plain[at].1).then(|| format!("{key}={value}"))
    };
    values(layout).iter().enumerate().filter_map(kept).collect::<Vec<_>>().join(",")
}

/// What the second layout has otherwise than the first: `tp=2,dp=16`.
pub fn differences(from: &Layout, to: &Layout) -> String {
    let pairs = values(from).into_iter().zip(values(to));
    let differ = pairs.filter(|((_, from), (_, to))| from != to).map(|(_, (key, value))| format!("{key}={value}"));
    differ.collect::<Vec<_>>().join(",")
}

/// What a layout says of a key: `tp=8`.
pub(super) fn said(layout: &Layout, key: &str) -> String {
    let value = values(layout).into_iter().find(|(name, _)| *name == key).map(|(_, value)| value);
    format!("{key}={}", value.unwrap_or_default())
}

/// Whether a layout has what the pins say; pins that are no layout hold nowhere.
pub(super) fn holds(layout: &Layout, pins: &str) -> bool {
    let (Ok(asked), Ok(keys)) = (parse_any(pins), keys(pins)) else { return false };
    let auto = |key: &str| key == "recompute" && asked.recompute == Recompute::Auto;
    keys.into_iter().all(|key| auto(key) || said(layout, key) == said(&asked, key))
}

/// All that a layout says, by key, in the order in which it is read.
fn values(layout: &Layout) -> Vec<(&'static str, String)> {
    let Layout { dp, tp, pp, cp, ep, etp, cp_kind, sp, zero, shard, ref recompute, offload, mbs, .. } = *layout;
    let or = |value: Option<u32>| value.map_or_else(|| "1".to_string(), |value| value.to_string());
    let overlap = |value: Option<bool>| value.map_or_else(|| "default".to_string(), |value| value.to_string());
    let stages: Vec<String> = layout.stages.iter().map(u32::to_string).collect();
    vec![
        ("dp", dp.to_string()),
        ("tp", tp.to_string()),
        ("pp", pp.to_string()),
        ("cp", cp.to_string()),
        ("ep", ep.to_string()),
        ("etp", etp.to_string()),
        ("sp", sp.to_string()),
        ("zero", zero.to_string()),
        ("shard", shard.map_or_else(|| "all".to_string(), |shard| shard.to_string())),
        ("mbs", mbs.to_string()),
        ("schedule", layout.schedule.clone()),
        ("vp", or(layout.vp)),
        ("group", or(layout.group)),
        ("slices", or(layout.slices)),
        ("cp_kind", cp_kind.name().to_string()),
        ("recompute", recompute.to_string()),
        ("offload", offload.to_string()),
        ("tp_overlap", overlap(layout.tp_overlap)),
        ("dp_overlap", overlap(layout.dp_overlap)),
        ("stages", stages.join(",")),
        ("order", layout.order.join(",")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::layout::print;

    #[test]
    fn a_brief_layout_is_the_layout() {
        for text in ["tp=2,pp=2,vp=2,schedule=interleaved-1f1b,sp=true,zero=1", "dp=4,cp=2,cp_kind=ring,pp=2,stages=2"]
        {
            let layout = parse_any(text).unwrap();
            assert_eq!(parse_any(&brief(&layout)).unwrap(), layout, "{text}: {}", print(&layout));
        }
    }

    #[test]
    fn pins_hold_or_do_not() {
        let layout = parse_any("dp=4,tp=2,zero=1").unwrap();
        assert!(["", "tp=2", "vp=1,zero=1", "recompute=auto"].iter().all(|pins| holds(&layout, pins)));
        assert!(["tp=4", "tp=2,zero=0", "no layout"].iter().all(|pins| !holds(&layout, pins)));
    }

    #[test]
    fn only_what_differs_is_said() {
        let [a, b] = ["dp=4,tp=2,zero=1", "dp=8,zero=1"].map(|text| parse_any(text).unwrap());
        assert_eq!(differences(&a, &b), "dp=8,tp=1");
        assert_eq!(differences(&a, &a), "");
    }
}
