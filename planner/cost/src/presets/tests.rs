//! Presets, and files of users.

use super::*;
use crate::stack::Stack;
use ir::diag::Coded;

fn preset(name: &str) -> &'static str {
    CLUSTERS.iter().chain(STACKS).find(|preset| preset.name == name).unwrap().text
}

/// Error of a preset after a part of its text is replaced.
fn error_of(name: &str, part: &str, by: &str) -> String {
    let text = preset(name);
    assert!(text.contains(part), "{part}");
    let text = text.replacen(part, by, 1);
    if CLUSTERS.iter().any(|preset| preset.name == name) {
        Cluster::parse(&text).unwrap_err().to_string()
    } else {
        Stack::parse(&text).unwrap_err().to_string()
    }
}

#[test]
fn every_preset_is_read_under_its_name_and_aliases_are_unique() {
    let mut names: Vec<String> = Vec::new();
    for preset in CLUSTERS {
        let cluster = Cluster::parse(preset.text).unwrap();
        assert_eq!(cluster.name, preset.name);
        names.push(cluster.name.clone());
        names.extend(cluster.aliases);
    }
    for name in &names {
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        assert!(Cluster::find(name).is_ok());
    }
    for preset in STACKS {
        let stack = Stack::parse(preset.text).unwrap();
        assert_eq!(stack.name, preset.name);
    }
}

#[test]
fn unknown_names_have_their_nearest_beside_them() {
    let error = Cluster::find("h100-dgx-nrd").unwrap_err();
    assert_eq!(error.code(), Some(Code::UnknownCluster));
    assert!(error.help().unwrap().contains("`h100-dgx-ndr`"));
    let error = Stack::find("nanotron-2023").unwrap_err();
    assert_eq!(error.code(), Some(Code::UnknownStack));
    assert!(error.help().unwrap().contains("`nanotron-2024`"));
}

#[test]
fn a_file_with_wrong_units_or_missing_figures_is_told() {
    let bandwidth = error_of("h100-dgx-ndr", "memory_bandwidth = 3.35e12", "memory_bandwidth = 3350");
    assert!(bandwidth.contains("`device.memory_bandwidth` is 3350, expected bytes per second"), "{bandwidth}");
    assert!(error_of("h100-dgx-ndr", "memory = 84900000000", "memory = 80").contains("expected bytes"));
    assert!(error_of("h100-dgx-ndr", "latency = 12e-6", "latency = 12").contains("`links[1].latency` is 12"));
    // Microseconds, a unit beside the number, less than nothing, no number.
    assert!(error_of("h100-dgx-ndr", "latency = 12e-6", "latency = 0.7").contains("expected seconds: from 0 to 0.1"));
    assert!(
        error_of("h100-dgx-ndr", "latency = 12e-6", "latency = -12e-6").contains("`links[1].latency` is -0.000012")
    );
    assert!(error_of("h100-dgx-ndr", "latency = 12e-6", "latency = nan").contains("`links[1].latency` is NaN"));
    let unit = error_of("h100-dgx-ndr", "memory_bandwidth = 3.35e12", "memory_bandwidth = \"3.35 TB\"");
    assert!(unit.contains("invalid type: string \"3.35 TB\", expected f64"), "{unit}");
    assert!(error_of("h100-dgx-ndr", "flops_bf16 = 989.5e12\n", "").contains("missing field `flops_bf16`"));
    assert!(error_of("h100-dgx-ndr", "flops_bf16 =", "flops_bf61 = 1.0\nflops_bf16 =").contains("flops_bf61"));
    let attention = error_of("h100-dgx-ndr", "half = [160, 275]", "half = [160, 275]\nf32 = 2.0");
    assert!(attention.contains("`device.attention.flash2.f32` is 2"), "{attention}");
    let apart = "half = [160, 275]\n[device.attention_f32.flash2]\nforward = [[64, 1.5]]\nbackward = [[64, 0.5]]\nhalf = [1, 1]";
    let attention = error_of("h100-dgx-ndr", "half = [160, 275]", apart);
    assert!(attention.contains("`device.attention_f32.flash2.forward` is 1.5"), "{attention}");
    let depth = error_of("h100-dgx-ndr", "[device.matmul]", "[device.matmul]\ndepth_f32 = -1.0");
    assert!(depth.contains("`device.matmul.depth_f32` is -1"), "{depth}");
    assert!(error_of("h100-dgx-ndr", "joins = 8\n", "").contains("greater `joins`"));
    assert!(error_of("nemo", "\nspread = {", "\nspraed = {").contains("spraed"));
    assert!(error_of("nemo", "\"swiglu\"", "\"swigul\"").contains("`swigul`"));
    assert!(error_of("megatron-2022", "\ndropout = 1.0", "\ndropuot = 1.0").contains("`dropuot`"));
    let high = error_of("nemo", "\nattention = { value = ", "\nattention = { value = 7");
    assert!(high.contains("`fitted.attention` is 7"), "{high}");
}

/// A file states what differs from a preset, found by an alias in capitals too; links are restated as a whole.
#[test]
fn a_cluster_begins_from_another() {
    let text = "name = \"mine\"\nfrom = \"H100\"\n[device]\nmemory = 90000000000\n[[links]]\nbandwidth = 1e10\nlatency = 1e-5\n";
    let (mine, base) = (Cluster::parse(text).unwrap(), Cluster::find("h100").unwrap());
    assert_eq!((mine.name.as_str(), mine.aliases.len(), mine.device.memory), ("mine", 0, 90_000_000_000));
    assert_eq!((mine.device.flops_bf16, &mine.device.attention), (base.device.flops_bf16, &base.device.attention));
    assert_eq!((mine.links.len(), mine.host), (1, base.host));
    let circle = Cluster::read("from = \"a\"", &mut |name| {
        Ok::<_, PresetError>(BaseFile { place: name.into(), text: "from = \"a\"".into() })
    });
    assert!(circle.unwrap_err().to_string().contains("circle"));
    let unknown = Cluster::parse("from = \"h101\"").unwrap_err();
    assert_eq!(unknown.code(), Some(Code::UnknownCluster));
}

/// A device without measured kernels has those of the most similar one, or of the one that it names.
#[test]
fn attention_is_that_of_a_similar_device() {
    let text = |more: &str| {
        format!(
            "name = \"mine\"\n[device]\nflops_f32 = 8e13\nflops_bf16 = 9e14\nmemory_bandwidth = 3e12\n{more}\n\
             memory = 16000000000\n[[links]]\nbandwidth = 1e10\nlatency = 1e-5\n"
        )
    };
    let like = |more: &str| Cluster::parse(&text(more)).map(|cluster| cluster.device);
    let device = like("").unwrap();
    assert!(device.attention_like.as_deref().is_some_and(|name| name.starts_with("h")), "{device:?}");
    let named = like("attention_like = \"a100\"").unwrap();
    assert_eq!(named.attention_like.as_deref(), Some("a100-80gb"));
    assert_eq!(named.attention, Cluster::find("a100").unwrap().device.attention);
    assert!(like("attention_like = \"none\"").unwrap().attention.is_empty());
    assert!(like("attention_like = \"v100\"").unwrap_err().to_string().contains("no measured attention kernels"));
    assert!(Cluster::find("h100").unwrap().device.attention_like.is_none());
}

#[test]
fn precisions_are_those_of_the_generation() {
    let computes = |cluster: &str, recipe: &str| Cluster::find(cluster).unwrap().device.computes_in(recipe);
    for (cluster, recipe, does) in [
        ("v100", "fp16", true),
        ("v100", "bf16", false),
        ("a100", "bf16", true),
        ("a100", "fp8-tensor", false),
        ("h100", "fp8-block", true),
        ("h100", "mxfp8", false),
        ("b200", "nvfp4", true),
        ("cpu", "fp8-tensor", true),
    ] {
        assert_eq!(computes(cluster, recipe), does, "{cluster} {recipe}");
    }
}

#[test]
fn a_short_file_is_enough() {
    let text = "name = \"mine\"\n[device]\nflops_f32 = 1e13\nflops_bf16 = 1e14\nmemory_bandwidth = 1e12\n\
                memory = 16000000000\n[[links]]\nbandwidth = 1e10\nlatency = 1e-5\n";
    let cluster = Cluster::parse(text).unwrap();
    assert_eq!((cluster.links[0].joins, cluster.device.sms), (u64::MAX, 1));
    assert!(cluster.device.sustained(crate::platform::Format::Half) < 1e14);
}

#[test]
fn whole_numbers_may_have_a_power_of_ten() {
    let text = |memory: &str| preset("h100-dgx-ndr").replace("\nmemory = ", &format!("\nmemory = {memory} #"));
    assert_eq!(Cluster::parse(&text("48e9")).unwrap().device.memory, 48_000_000_000);
    for wrong in ["48.5", "-1e9", "\"48\"", "nan"] {
        let why = Cluster::parse(&text(wrong)).unwrap_err().to_string();
        assert!(why.contains("a whole number, such as 48e9") && why.contains("memory"), "{wrong}: {why}");
    }
}

#[test]
fn levels_join_whole_groups() {
    let level = |joins: u64| format!("[[links]]\njoins = {joins}\nbandwidth = 1e10\nlatency = 1e-5\n");
    let device =
        "name = \"mine\"\n[device]\nflops_f32 = 1e13\nflops_bf16 = 1e14\nmemory_bandwidth = 1e12\nmemory = 16e9\n";
    let parse =
        |joins: &[u64]| Cluster::parse(&(device.to_string() + &joins.iter().map(|&n| level(n)).collect::<String>()));
    assert!(parse(&[4, 8]).is_ok() && parse(&[2, 8, 72]).is_ok());
    let why = parse(&[3, 8]).unwrap_err().to_string();
    assert!(why.contains("`links[1].joins` is 8, but `links[0]` joins 3"), "{why}");
}

/// Paths to all numbers of a file, from its tables inwards.
fn numbers(value: &toml::Value, path: &[String], found: &mut Vec<Vec<String>>) {
    let mut within = |key: String, value: &toml::Value| numbers(value, &[path, &[key]].concat(), found);
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(key, value)| within(key.clone(), value)),
        toml::Value::Array(list) => list.iter().enumerate().for_each(|(at, value)| within(at.to_string(), value)),
        toml::Value::Float(_) | toml::Value::Integer(_) => found.push(path.to_vec()),
        _ => {}
    }
}

/// The number at a path.
fn at<'a>(value: &'a mut toml::Value, path: &[String]) -> &'a mut toml::Value {
    path.iter().fold(value, |value, key| match value {
        toml::Value::Array(list) => &mut list[key.parse::<usize>().unwrap()],
        value => &mut value[key.as_str()],
    })
}

/// Every number of a file is replaced in turn by NaN, by an infinity, or by a value far below its range. Each is refused with an
/// error that names the key.
#[test]
fn no_figure_is_taken_that_cannot_be() {
    let more = "joins = 1048576\npair = 1e9\nstep = 1e-5\n";
    let mut cluster: toml::Value = toml::from_str(&format!("{}\n{more}", preset("b200"))).unwrap();
    cluster.as_table_mut().unwrap().insert("cores".into(), 8.into());
    Cluster::parse(&toml::to_string(&cluster).unwrap()).unwrap();
    let stack = toml::Value::try_from(Stack::parse(preset("automodel-2026")).unwrap()).unwrap();
    for (value, is_cluster) in [(cluster, true), (stack, false)] {
        let mut paths = Vec::new();
        numbers(&value, &[], &mut paths);
        assert!(paths.len() > 40, "{paths:?}");
        for path in &paths {
            for figure in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e9] {
                let mut wrong = value.clone();
                *at(&mut wrong, path) = toml::Value::Float(figure);
                let text = toml::to_string(&wrong).unwrap();
                let error = if is_cluster { Cluster::parse(&text).err() } else { Stack::parse(&text).err() };
                let error = error.unwrap_or_else(|| panic!("{path:?} = {figure} is taken")).to_string();
                let key = path.iter().rev().find(|key| key.parse::<usize>().is_err()).unwrap();
                assert!(error.contains(key.as_str()), "{path:?} = {figure}: {error}");
            }
        }
    }
}
