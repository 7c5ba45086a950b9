//! Clusters and stacks by name, and the check of a cluster's file. This module reads text, not files.

use crate::base_file::{BaseFile, linked, merged};
use crate::cluster::{Cluster, Device, Link};
use crate::interpolation::Table;
use crate::preset_error::{PresetError, none_or, out_of_range, toml_error};
use ir::catalogue::Code;
use serde::Deserialize;

/// File that is part of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preset {
    /// Name.
    pub name: &'static str,
    /// Text of the file.
    pub text: &'static str,
}

macro_rules! presets {
    ($folder:literal: $($name:literal)*) => {
        &[$(Preset { name: $name, text: include_str!(concat!("../", $folder, "/", $name, ".toml")) }),*]
    };
}

/// Clusters known by name.
pub const CLUSTERS: &[Preset] = presets!("clusters":
    "cpu" "v100-dgx2" "a100-40gb" "a100-80gb" "a100-roce400" "h100-dgx-ndr" "h100-p5-efa" "h100-roce1600" "h100-96gb" "h800" "h200" "b200"
    "gb200-nvl72" "b300" "gb300-nvl72" "mi300x" "mi350x" "mi355x" "gh200" "h20" "l40s" "rtx-4090" "rtx-a6000" "tpu-v5p" "trn2");

/// Stacks known by name; the first is the default of `--stack`.
pub const STACKS: &[Preset] = presets!("stacks":
    "megatron-core-2025" "megatron-core-2025-alltoall" "megatron-core-2025-drop" "megatron-core-2026" "megatron-2022" "megatron-deepspeed-2021" "megatron-deepspeed-2022" "megatron-2019" "zero-bubble-2023" "internevo-2023" "nanotron-2024" "nanotron-0.4"
    "fsdp-eager" "fsdp-eager-2026" "fsdp-compile" "fsdp-compile-2024" "fsdp-compile-2025" "fsdp-compile-2026" "automodel-2026" "foundry-2023"
    "nemo" "nemo-2024-01" "jax-2023" "jax-xla-2023" "jax-2024" "deepseek-2024" "deepspeed-2021" "llama-2024" "meshwright" "meshwright-threads" "meshwright-cuda");

impl Preset {
    fn file(&self) -> BaseFile {
        BaseFile { place: self.name.into(), text: self.text.into() }
    }

    /// Further names of a cluster.
    fn aliases(&self) -> Vec<String> {
        toml::from_str::<Named>(self.text).map_or(Vec::new(), |named| named.aliases)
    }
}

impl BaseFile {
    /// File of a preset cluster, by its name or an alias, in capitals or not.
    ///
    /// # Errors
    /// No preset has the name.
    pub fn cluster(name: &str) -> Result<BaseFile, PresetError> {
        if let Some(preset) = CLUSTERS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name)) {
            return Ok(preset.file());
        }
        let mut presets = CLUSTERS.iter();
        let alias_of = presets.find(|preset| preset.aliases().iter().any(|alias| alias.eq_ignore_ascii_case(name)));
        alias_of.map(Preset::file).ok_or_else(|| {
            let aliases: Vec<String> = CLUSTERS.iter().flat_map(Preset::aliases).collect();
            let known = CLUSTERS.iter().map(|preset| preset.name).chain(aliases.iter().map(String::as_str));
            PresetError::unknown(Code::UnknownCluster, "cluster", name, &known.collect::<Vec<_>>())
        })
    }
}

/// The names in a cluster's file.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    aliases: Vec<String>,
}

impl Cluster {
    /// Preset of a name or an alias, in capitals or not.
    ///
    /// # Errors
    /// No preset has the name.
    pub fn find(name: &str) -> Result<Cluster, PresetError> {
        Cluster::parse(&BaseFile::cluster(name)?.text)
    }

    /// Reads a cluster from the text of a file, which may begin from a preset.
    ///
    /// # Errors
    /// As [`Cluster::read`].
    pub fn parse(text: &str) -> Result<Cluster, PresetError> {
        Cluster::read(text, &mut |name| BaseFile::cluster(name))
    }

    /// Reads a cluster from the text of a file; `open` returns the file named by `from`. Tables are merged key by key; for other
    /// values, `links` as a whole among them, the later file wins. Name, aliases and description are not inherited.
    ///
    /// # Errors
    /// The text is not TOML, lacks a key, has an unknown key, or a figure is out of range. Files begin from each other. `open` fails.
    pub fn read<E: From<PresetError>>(
        text: &str,
        open: &mut dyn FnMut(&str) -> Result<BaseFile, E>,
    ) -> Result<Cluster, E> {
        let files = linked(text, Code::BadCluster, &["name", "aliases", "about"], open)?;
        let cluster = if files.len() == 1 {
            // Parses the text itself, so that an error has a line number.
            toml::from_str(text)
        } else {
            merged(files, |table, _| Ok(table))?.try_into()
        };
        Ok(Cluster::checked(cluster.map_err(|why| toml_error(Code::BadCluster, &why))?)?)
    }

    /// A cluster whose figures are within their ranges, with attention kernels of a similar device if its own are not measured.
    fn checked(mut cluster: Cluster) -> Result<Cluster, PresetError> {
        // Devices that are cores have no kernels of accelerators.
        if cluster.device.attention.is_empty() && cluster.cores.is_none() {
            similar::take_attention(&mut cluster.device)?;
        }
        let mut complaints = Vec::new();
        check_device(&cluster.device, &mut complaints);
        if let Some(cores) = cluster.cores {
            complaints.extend(out_of_range("cores", cores as f64, 1.0, 1e5, "a number of cores"));
        }
        if let Some(shared) = cluster.shared_memory {
            complaints.extend(out_of_range("shared_memory", shared as f64, 1e7, 1e15, "bytes"));
        }
        if let Some(host) = &cluster.host {
            complaints.extend(out_of_range("host.memory", host.memory, 1e7, 1e15, "bytes"));
            complaints.extend(out_of_range("host.devices", host.devices as f64, 1.0, 1e5, "a number of devices"));
            let bandwidth = host.bandwidth.into_iter();
            complaints.extend(
                bandwidth.filter_map(|it| out_of_range("host.bandwidth", it, 1e8, 1e14, "bytes per second of a node")),
            );
        }
        if cluster.links.is_empty() {
            complaints.push("`links` is empty: state at least one level".to_string());
        }
        cluster.links.iter().enumerate().for_each(|(level, link)| check_link(level, link, &mut complaints));
        if !cluster.links.windows(2).all(|pair| pair[0].joins < pair[1].joins) {
            complaints
                .push("`links` must go from the innermost level outwards, each with a greater `joins`".to_string());
        }
        complaints.extend(cluster.links.windows(2).enumerate().filter_map(|(at, pair)| uneven(at, &pair[0], &pair[1])));
        none_or(complaints, cluster, Code::BadCluster)
    }
}

/// Checks of the figures of a table.
struct RangeChecks<'c> {
    table: String,
    complaints: &'c mut Vec<String>,
}

impl RangeChecks<'_> {
    /// Checks a figure of the table.
    fn check(&mut self, key: &str, value: f64, low: f64, high: f64, unit: &str) {
        self.complaints.extend(out_of_range(&format!("{}.{key}", self.table), value, low, high, unit));
    }
}

/// Checks a device against the ranges of any hardware in these units: a wrong unit is reported.
fn check_device(device: &Device, complaints: &mut Vec<String>) {
    let mut checks = RangeChecks { table: "device".to_string(), complaints };
    let flops = "operations per second";
    let peaks = [
        ("flops_f32", Some(device.flops_f32)),
        ("flops_bf16", Some(device.flops_bf16)),
        ("flops_f8", device.flops_f8),
        ("flops_f4", device.flops_f4),
    ];
    for (key, value) in peaks.iter().filter_map(|&(key, value)| Some((key, value?))) {
        checks.check(key, value, 1e8, 1e17, flops);
    }
    checks.check("memory_bandwidth", device.memory_bandwidth, 1e8, 1e14, "bytes per second");
    checks.check("memory_share", device.memory_share, 0.01, 1.0, "a share");
    device
        .memory_share_half
        .into_iter()
        .for_each(|share| checks.check("memory_share_half", share, 0.01, 1.0, "a share"));
    checks.check("memory", device.memory as f64, 1e7, 1e14, "bytes");
    checks.check("host_bandwidth", device.host_bandwidth, 0.0, 1e13, "bytes per second");
    checks.check("start", device.start, 0.0, 1e-3, "seconds");
    checks.check("sms", device.sms as f64, 1.0, 1e5, "a number of parts");
    let matmul = &device.matmul;
    for (key, share) in
        [("f32", matmul.f32), ("half", matmul.half), ("f8", matmul.f8), ("f4", matmul.f4), ("power", matmul.power)]
    {
        checks.check(&format!("matmul.{key}"), share, 0.01, 1.0, "a share of the peak");
    }
    checks.check("matmul.depth", matmul.depth, 0.0, 1e5, "steps of k");
    matmul.depth_f32.into_iter().for_each(|depth| checks.check("matmul.depth_f32", depth, 0.0, 1e5, "steps of k"));
    checks.check("matmul.tiles", matmul.tiles.len() as f64, 1.0, 64.0, "a number of tiles");
    for tile in &matmul.tiles {
        let sides = [tile.rows, tile.columns];
        sides
            .into_iter()
            .for_each(|side| checks.check("matmul.tiles", side, 1.0, 4096.0, "rows and columns of a tile"));
        checks.check("matmul.tiles", tile.share, 0.01, 1.0, "a share of the full rate");
    }
    let kernels = device.attention.iter().map(|kernel| ("attention", kernel));
    for (table, (kernel, rates)) in kernels.chain(device.attention_f32.iter().map(|kernel| ("attention_f32", kernel))) {
        let key = format!("{table}.{kernel:?}").to_lowercase();
        for (part, Table(points)) in [("forward", &rates.forward), ("backward", &rates.backward)] {
            for point in points {
                checks.check(&format!("{key}.{part}"), point.size, 1.0, 1e6, "the size of a head");
                checks.check(&format!("{key}.{part}"), point.value, 1e-4, 1.0, "a share of the peak");
            }
        }
        for half in [rates.half.forward, rates.half.backward] {
            checks.check(&format!("{key}.half"), half, 0.0, 1e5, "a number of keys");
        }
        rates
            .f32
            .into_iter()
            .for_each(|share| checks.check(&format!("{key}.f32"), share, 1e-4, 1.0, "a share of the rate"));
    }
}

fn check_link(level: usize, link: &Link, complaints: &mut Vec<String>) {
    let mut checks = RangeChecks { table: format!("links[{level}]"), complaints };
    checks.check("joins", link.joins as f64, 1.0, f64::MAX, "a number of devices");
    checks.check("bandwidth", link.bandwidth, 1e6, 1e14, "bytes per second of a device, one way");
    checks.check("latency", link.latency, 0.0, 0.1, "seconds");
    checks.check("start", link.start, 0.0, 0.1, "seconds");
    checks.check("message", link.message, 0.0, 0.1, "seconds");
    for (key, value) in [("pair", link.pair), ("switch", link.switch)] {
        value.into_iter().for_each(|value| checks.check(key, value, 1e6, 1e14, "bytes per second"));
    }
    link.tree.into_iter().for_each(|share| checks.check("tree", share, 0.01, 1.0, "a share of the bandwidth"));
    link.step.into_iter().for_each(|seconds| checks.check("step", seconds, 0.0, 0.1, "seconds"));
    let Table(points) = &link.share;
    for point in points {
        checks.check("share", point.size, 1.0, 1e15, "bytes of a message");
        checks.check("share", point.value, 1e-4, 1.0, "a share of the bandwidth");
    }
    if !points.windows(2).all(|pair| pair[0].size < pair[1].size) {
        complaints.push(format!("`links[{level}].share` must go by increasing bytes"));
    }
}

/// Message on a level that cuts groups of the level inside it.
fn uneven(at: usize, inner: &Link, outer: &Link) -> Option<String> {
    let is_whole = outer.joins == Link::ALL || outer.joins.is_multiple_of(inner.joins.max(1));
    let (next, joins, within) = (at + 1, outer.joins, inner.joins);
    (!is_whole).then(|| {
        format!(
            "`links[{next}].joins` is {joins}, but `links[{at}]` joins {within}: a level joins whole groups of the one before, so \
             that its number is a multiple"
        )
    })
}

mod similar;
#[cfg(test)]
mod tests;
