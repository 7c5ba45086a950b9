//! The layout grammar of `--mesh` and `--layout`: `dp=2,tp=2,pp=2,sp=true,zero=1,mbs=4,schedule=1f1b,vp=1,order=pp,dp,tp,stages=3,5`.
//!
//! Items are parted by commas; one without `=` goes on with the list before it. Degrees left out are 1. [`parse`] takes what
//! can be compiled and run, [`parse_any`] all that can be predicted.

use crate::error::Error;
use ir::catalogue::Code;
use ir::diag::nearest;
use ir::goal::{CpKind, Layout, Recompute};
use ir::limits;
use scheduler::schedules;

/// The keys that may stand in a layout.
pub const KEYS: [&str; 21] = [
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "vp",
    "sp",
    "zero",
    "shard",
    "mbs",
    "recompute",
    "cp_kind",
    "schedule",
    "group",
    "slices",
    "order",
    "stages",
    "offload",
    "tp_overlap",
    "dp_overlap",
];

/// Reads a layout that can be compiled; the empty text is one device.
///
/// # Errors
/// An unknown key, a value that cannot be, a key given twice, or what this version cannot do.
pub fn parse(text: &str) -> Result<Layout, Error> {
    let layout = parse_any(text)?;
    check(&layout)?;
    Ok(layout)
}

/// Reads a layout of the whole grammar, whether or not this version can run it; the empty text is one device.
///
/// # Errors
/// An unknown key, a value that cannot be, or a key given twice.
pub fn parse_any(text: &str) -> Result<Layout, Error> {
    let mut layout = Layout::default();
    let mut seen: Vec<&str> = Vec::new();
    for (key, values) in items(text)? {
        if seen.contains(&key) {
            return Err(wrong(format!("`{key}` is given twice in `{text}`")));
        }
        seen.push(key);
        set(&mut layout, key, &values)?;
    }
    check_degrees(&layout)?;
    Ok(layout)
}

/// Whether the text itself says something of the key.
pub fn says(text: &str, key: &str) -> bool {
    items(text).is_ok_and(|items| items.iter().any(|(name, _)| *name == key))
}

/// The items of a text, each as `key=value`; none of a text that is no layout.
pub fn pins(text: &str) -> Vec<String> {
    let items = items(text).unwrap_or_default();
    items.into_iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect()
}

/// Two texts as one; where both name a key, the second one's value holds.
pub fn pinned(base: &str, over: &str) -> String {
    let key = |item: &str| item.split('=').next().unwrap_or_default().to_string();
    let base = pins(base).into_iter().filter(|item| !says(over, &key(item)));
    base.chain(pins(over)).collect::<Vec<_>>().join(",")
}

/// The keys that the text itself says, in its order.
///
/// # Errors
/// The text is no layout.
pub fn keys(text: &str) -> Result<Vec<&str>, Error> {
    Ok(items(text)?.into_iter().map(|(key, _)| key).collect())
}

/// The layout in full, as `parse` reads it back.
pub fn print(layout: &Layout) -> String {
    let Layout { dp, tp, pp, cp, ep, etp, sp, zero, mbs, schedule, vp, group, slices, order, stages, .. } = layout;
    let mut text = format!("dp={dp},tp={tp},pp={pp}");
    for (key, degree) in [("cp", cp), ("ep", ep), ("etp", etp)].into_iter().filter(|(_, degree)| **degree > 1) {
        text += &format!(",{key}={degree}");
    }
    text += &format!(",sp={sp},zero={zero},mbs={mbs},schedule={schedule},order={}", order.join(","));
    for (key, value) in [("vp", vp), ("group", group), ("slices", slices)] {
        text += &value.map_or_else(String::new, |value| format!(",{key}={value}"));
    }
    text += &unusual(layout);
    if !stages.is_empty() {
        let stages: Vec<String> = stages.iter().map(u32::to_string).collect();
        text += &format!(",stages={}", stages.join(","));
    }
    text
}

/// What few layouts say, where it differs from the default.
fn unusual(layout: &Layout) -> String {
    let default = Layout::default();
    let said = |key: &str, value: String, is: bool| if is { format!(",{key}={value}") } else { String::new() };
    let overlap = |value: Option<bool>| value.map_or_else(String::new, |value| value.to_string());
    [
        said("cp_kind", layout.cp_kind.name().to_string(), layout.cp_kind != default.cp_kind),
        said("shard", layout.shard.unwrap_or(0).to_string(), layout.shard.is_some()),
        said("recompute", layout.recompute.to_string(), layout.recompute != default.recompute),
        said("offload", layout.offload.to_string(), layout.offload),
        said("tp_overlap", overlap(layout.tp_overlap), layout.tp_overlap.is_some()),
        said("dp_overlap", overlap(layout.dp_overlap), layout.dp_overlap.is_some()),
    ]
    .concat()
}

/// Whether the layout can be compiled: nothing that is [`missing`], degrees that can be.
///
/// # Errors
/// It cannot.
pub fn check(layout: &Layout) -> Result<(), Error> {
    if let Some(Missing { said, what, instead }) = missing(layout).first() {
        let message = format!("`{said}` ({what}) is not in this version");
        return Err(Error::input(Code::NotInThisVersion, message).help(*instead));
    }
    if let Some(shard) = layout.shard.filter(|&shard| layout.zero > 0 && !(layout.dp * layout.cp).is_multiple_of(shard))
    {
        return Err(wrong(format!("`shard={shard}` does not divide dp x cp = {}", layout.dp * layout.cp)));
    }
    check_degrees(layout)
}

/// A part of a layout that can be predicted, but not compiled and run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// The item: `cp_kind=ring`.
    pub said: String,
    /// What it means.
    pub what: &'static str,
    /// What to do.
    pub instead: &'static str,
}

/// What of a layout this version cannot compile and run. `tp_overlap` and `dp_overlap` are not among it: they say how the
/// software that is predicted works; a program here does beside its communication all that does not wait for it.
pub fn missing(layout: &Layout) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut lacks =
        |said: String, what: &'static str, instead: &'static str| missing.push(Missing { said, what, instead });
    if layout.cp > 1 && layout.cp_kind == CpKind::Ring {
        let instead = "cp_kind=allgather or cp_kind=ulysses: the numbers are the same";
        lacks("cp_kind=ring".to_string(), "ring context parallelism", instead);
    }
    if layout.recompute == Recompute::Auto {
        let instead = "name what to recompute: recompute=none, selective:NAME+NAME, full or full:N";
        lacks("recompute=auto".to_string(), "recomputation chosen by device memory", instead);
    }
    if layout.offload {
        let instead = "leave it out; recompute=full needs the least activation memory";
        lacks("offload=true".to_string(), "activation offload to the host", instead);
    }
    let in_groups = layout.shard.filter(|&shard| layout.zero > 0 && shard != layout.dp * layout.cp);
    if let Some(shard) = in_groups.filter(|_| layout.cp > 1 || layout.ep > 1) {
        let instead = "leave it out: ZeRO then shards among all dp x cp ranks";
        lacks(format!("shard={shard}"), "ZeRO within groups, together with context or expert parallelism", instead);
    }
    missing
}

/// Whether the numbers of a layout can be, by themselves.
fn check_degrees(layout: &Layout) -> Result<(), Error> {
    let optional = [
        ("vp", layout.vp.map(u64::from)),
        ("group", layout.group.map(u64::from)),
        ("slices", layout.slices.map(u64::from)),
        ("shard", layout.shard),
    ];
    let optional = optional.map(|(key, value)| (key, value.unwrap_or(1)));
    let Layout { dp, tp, pp, cp, ep, etp, mbs, .. } = *layout;
    let degrees = [("dp", dp), ("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep), ("etp", etp), ("mbs", mbs)];
    for (key, value) in degrees.into_iter().chain(optional) {
        if value == 0 {
            return Err(wrong(format!("`{key}` is 0, but must be 1 or more")));
        }
    }
    for (product, degrees) in [("dp x tp x pp x cp", vec![dp, tp, pp, cp]), ("ep x etp", vec![ep, etp])] {
        let devices = degrees.into_iter().try_fold(1u64, u64::checked_mul);
        if devices.is_none_or(|devices| devices > limits::DEVICES) {
            return Err(wrong(format!("{product} is more than {} devices", limits::DEVICES)));
        }
    }
    if layout.zero > 3 {
        return Err(wrong(format!("`zero={}`: there are ZeRO stages 0 to 3", layout.zero)));
    }
    let mut order: Vec<&str> = layout.order.iter().map(String::as_str).collect();
    order.sort_unstable();
    if !order.contains(&"cp") && layout.cp == 1 {
        order.insert(0, "cp");
    }
    if order != ["cp", "dp", "pp", "tp"] {
        return Err(wrong(format!("`order={}` does not name each of pp, dp, cp and tp once", layout.order.join(","))));
    }
    check_starts(layout)
}

/// As many starts as stages but the first. A schedule that there is not, or not so, is refused where it is made.
fn check_starts(layout: &Layout) -> Result<(), Error> {
    let kind = schedules::find(&layout.schedule).ok().filter(|_| !layout.stages.is_empty());
    let pipeline = kind.and_then(|kind| kind.pipeline(layout.pp as u32, layout.vp, 1).ok());
    let Some(starts) = pipeline.map(|pipeline| pipeline.stages() as usize - 1) else { return Ok(()) };
    if layout.stages.len() == starts {
        return Ok(());
    }
    let vp = layout.vp.map_or_else(String::new, |vp| format!(",vp={vp}"));
    Err(wrong(format!(
        "`stages` lists the first block of each stage but the first: {starts} of them for pp={}{vp},schedule={}, not {}",
        layout.pp,
        layout.schedule,
        layout.stages.len()
    )))
}

/// The items as key and values, in the order of the text.
fn items(text: &str) -> Result<Vec<(&str, Vec<&str>)>, Error> {
    let mut items: Vec<(&str, Vec<&str>)> = Vec::new();
    let text = text.trim();
    for item in text.strip_suffix(',').unwrap_or(text).split(',').map(str::trim).filter(|_| !text.is_empty()) {
        if item.is_empty() {
            return Err(wrong(format!("an item of `{text}` is empty")));
        }
        match (item.split_once('='), items.last_mut()) {
            (Some((key, value)), _) => items.push((key.trim(), vec![value.trim()])),
            (None, Some((_, values))) => values.push(item),
            (None, None) => return Err(wrong(format!("`{item}` in `{text}` is not of the form key=value"))),
        }
    }
    Ok(items)
}

fn set(layout: &mut Layout, key: &str, values: &[&str]) -> Result<(), Error> {
    if !matches!(key, "order" | "stages") && values.len() > 1 {
        return Err(wrong(format!("`{}` after `{key}={}` is not of the form key=value", values[1], values[0])));
    }
    let value = values[0];
    match key {
        "dp" => layout.dp = number(key, value)?,
        "tp" => layout.tp = number(key, value)?,
        "pp" => layout.pp = number(key, value)?,
        "sp" => layout.sp = truth(key, value)?,
        "zero" => layout.zero = number(key, value)?,
        "mbs" => layout.mbs = number(key, value)?,
        "cp" => layout.cp = number(key, value)?,
        "ep" => layout.ep = number(key, value)?,
        "etp" => layout.etp = number(key, value)?,
        "cp_kind" => layout.cp_kind = one_of(key, value, &CpKind::ALL)?,
        "shard" => layout.shard = Some(number(key, value)?),
        "recompute" => layout.recompute = value.parse().map_err(|why| wrong(format!("`recompute`: {why}")))?,
        "offload" => layout.offload = truth(key, value)?,
        "tp_overlap" => layout.tp_overlap = Some(truth(key, value)?),
        "dp_overlap" => layout.dp_overlap = Some(truth(key, value)?),
        "schedule" => layout.schedule = value.to_string(),
        "vp" => layout.vp = Some(number(key, value)?),
        "group" => layout.group = Some(number(key, value)?),
        "slices" => layout.slices = Some(number(key, value)?),
        "order" => layout.order = values.iter().map(|axis| axis.to_string()).collect(),
        "stages" => layout.stages = values.iter().map(|first| number(key, first)).collect::<Result<_, _>>()?,
        _ => return Err(unknown(key)),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, Error> {
    value.parse().map_err(|_| wrong(format!("`{key}={value}` is not a whole number in its range")))
}

fn truth(key: &str, value: &str) -> Result<bool, Error> {
    value.parse().map_err(|_| wrong(format!("`{key}={value}`: it must be true or false")))
}

fn one_of<T: Copy>(key: &str, value: &str, all: &[(&str, T)]) -> Result<T, Error> {
    all.iter().find(|(name, _)| *name == value).map(|(_, it)| *it).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        wrong(format!("`{key}={value}`: it must be one of {}", names.join(", ")))
    })
}

fn unknown(key: &str) -> Error {
    let help = match nearest(key, KEYS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the keys of a layout are {}", KEYS.join(", ")),
    };
    wrong(format!("there is no `{key}` in a layout")).help(help)
}

fn wrong(message: String) -> Error {
    Error::input(Code::BadOption, message).help("for example dp=2,tp=2,pp=2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_comes_back() {
        let layout = parse("tp=2, pp=3, vp=1, group=4, slices=3, order=pp,tp,dp, sp=true, stages=2,5, zero=1").unwrap();
        assert_eq!((layout.dp, layout.tp, layout.pp, layout.sp, layout.zero), (1, 2, 3, true, 1));
        assert_eq!((layout.vp, layout.group, layout.slices), (Some(1), Some(4), Some(3)));
        assert_eq!((layout.order.join(" "), layout.stages.clone()), ("pp tp dp".to_string(), vec![2, 5]));
        assert_eq!(parse(&print(&layout)).unwrap(), layout);
        assert_eq!(parse("").unwrap(), Layout::default());
    }

    #[test]
    fn what_can_only_be_predicted_comes_back_too() {
        let text = "dp=8,tp=2,cp=2,ep=8,etp=2,cp_kind=ring,shard=8,zero=3,recompute=selective:mlp+norm,offload=true,\
                    tp_overlap=true,dp_overlap=false";
        let layout = parse_any(text).unwrap();
        assert_eq!((layout.ep, layout.cp_kind, layout.shard), (8, CpKind::Ring, Some(8)));
        assert_eq!((layout.tp_overlap, layout.dp_overlap), (Some(true), Some(false)));
        assert_eq!(parse_any(&print(&layout)).unwrap(), layout);
        for (text, part) in [
            ("cp_kind=rings", "one of ring, allgather, ulysses"),
            ("recompute=some", "one of none, full"),
            ("zero=4", "stages 0 to 3"),
            ("offload=1", "true or false"),
            ("shard=0", "1 or more"),
            ("recompte=full", "did you mean `recompute`"),
        ] {
            let message = parse_any(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn pins_over_pins() {
        assert_eq!(pins("tp=2,order=pp,tp,dp"), ["tp=2", "order=pp,tp,dp"]);
        assert_eq!(pinned("tp=2,pp=4", "tp=8,zero=1"), "pp=4,tp=8,zero=1");
        assert_eq!(pinned("", ""), "");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let message = |text| parse(text).unwrap_err().to_string();
        for (text, part) in [
            ("dp=2,dp=2", "given twice"),
            ("tp", "key=value"),
            ("tp=2,3", "`3` after `tp=2`"),
            ("tp=-1", "whole number"),
            (",,", "is empty"),
            ("dp=2,,tp=2", "is empty"),
            ("tp=0", "1 or more"),
            ("vp=0", "1 or more"),
            ("order=pp,dp", "each of pp, dp, cp and tp once"),
            ("pp=2,stages=1,2", "1 of them for pp=2"),
            ("cp=2,cp_kind=ring", "ring context parallelism"),
            ("cp=2,order=pp,dp,tp", "each of pp, dp, cp and tp once"),
            ("ep=0", "1 or more"),
            ("offload=true", "activation offload to the host"),
            ("recompute=auto", "chosen by device memory"),
            ("dp=4,cp=2,zero=1,shard=2", "ZeRO within groups"),
            ("dp=4,zero=1,shard=3", "does not divide"),
            ("schedul=gpipe", "did you mean `schedule`"),
            ("dp=1000000,tp=1000000,pp=100000000", "devices"),
        ] {
            assert!(message(text).contains(part), "{text}: {}", message(text));
        }
    }
}
