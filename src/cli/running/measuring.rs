//! `meshwright calibrate` without runs: this machine as a cluster.

use crate::calibrate::{cluster, cluster_file};
use crate::error::Error;
use crate::train::free_memory;
use compiler::text_files::{check_writable, write_text};
use cost::Cluster;
use ir::catalogue::Code;
use std::io::Write;
use std::path::Path;
use support::shell::quoted;
use support::table::table;
use support::units::{short, with_unit};
use trainer::measure::{AttentionTime, MeasureError, Measured, Sum, measure};

/// Memory of a device in bytes if the system does not report free memory: that of the preset `cpu`.
const MEMORY: u64 = 4 << 30;

/// Measures this machine, writes the cluster file if requested, and prints the figures.
pub(in crate::cli) fn run(output: Option<&Path>) -> Result<String, Error> {
    output.map_or(Ok(()), check_writable)?;
    let measured = measure(&mut tell).map_err(|why| unmeasured(&why))?;
    let cluster = cluster(&measured, free_memory().map_or(MEMORY, |bytes| bytes / measured.cores));
    let head = "# Measured by `meshwright calibrate`: figures of one core while all of them work.";
    write(&cluster, head, "--stack meshwright-threads --precision f32", told(&measured, &cluster), output)
}

fn unmeasured(why: &MeasureError) -> Error {
    match why {
        MeasureError::TooLittle { .. } => {
            Error::input(Code::TooLittleMemory, format!("this machine cannot be measured: {why}"))
                .help("stop the processes that use its memory, and try again")
        }
        MeasureError::Failed { .. } => Error::fault("calibrate", why),
    }
}

/// Reports what is measured.
pub(in crate::cli) fn tell(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "measuring {what}");
}

/// Writes the cluster file with its first line if requested, and returns the tables with what to do next.
pub(in crate::cli) fn write(
    cluster: &Cluster,
    head: &str,
    options: &str,
    told: String,
    output: Option<&Path>,
) -> Result<String, Error> {
    let text = cluster_file(cluster)?;
    let Some(path) = output else {
        return Ok(told + "\n-o FILE.toml writes it as a cluster for `meshwright estimate --cluster FILE.toml`\n");
    };
    write_text(path, &format!("{head}\n{text}"))?;
    let (shown, word) = (path.display(), quoted(path));
    Ok(format!("{told}\ncluster   {shown}: meshwright estimate MODEL --cluster {word} {options}\n"))
}

/// A row of a table: an operation, its seconds, and the amount per second in a unit.
pub(in crate::cli) fn row(what: String, seconds: f64, amount: f64, unit: &str) -> [String; 3] {
    [what, short(seconds), with_unit(amount / seconds, unit)]
}

/// Rows of attention on operands of a type.
pub(in crate::cli) fn of_attention(times: &[AttentionTime], dtype: &str) -> Vec<[String; 3]> {
    let of = |one: &AttentionTime| {
        let pairs = (one.heads * one.length) as f64 * (one.length as f64 + 1.0) / 2.0;
        let ways = [("forward", one.forward_s, 4.0), ("backward", one.backward_s, 10.0)];
        ways.map(|(way, seconds, each)| {
            let what = format!("attention {way} {dtype}, {} tokens, heads of {}", one.length, one.head);
            row(what, seconds, pairs * each * one.head as f64, "FLOP/s")
        })
    };
    times.iter().flat_map(of).collect()
}

/// Rows of sums over ranks and of messages.
pub(in crate::cli) fn of_communication(sums: &[Sum], messages: &[(u64, f64)]) -> Vec<[String; 3]> {
    let sum = |one: &Sum| {
        let what = format!("sum over {} ranks, {}", one.ranks, with_unit(one.bytes as f64, "B"));
        row(what, one.seconds, one.bytes as f64, "B/s")
    };
    let message = |&(bytes, seconds): &(u64, f64)| {
        row(format!("message, {}", with_unit(bytes as f64, "B")), seconds, bytes as f64, "B/s")
    };
    sums.iter().map(sum).chain(messages.iter().map(message)).collect()
}

/// Tables of the timings and of the cluster's figures.
fn told(measured: &Measured, cluster: &Cluster) -> String {
    let mut rows = Vec::new();
    for (dtype, computing) in [("f32", &measured.f32), ("bf16", &measured.bf16)] {
        for one in &computing.products {
            let flops = 2.0 * (one.m * one.n * one.k) as f64;
            let what = format!("matmul {dtype} {}x{}, depth {}", one.m, one.n, one.k);
            rows.push(row(what, one.seconds, flops, "FLOP/s"));
        }
        rows.extend(of_attention(&computing.attention, dtype));
    }
    rows.extend(of_communication(&measured.sums, &measured.messages));
    let device = &cluster.device;
    format!(
        "{}\ncores     {}\nmatmul    {} at best, {} sustained, launch {}\nbf16      {} at best, {} sustained\n\
         memory    {}, kernels reach {:.0} % of it in f32, {:.0} % in bf16\n\
         sums      {} between each two ranks, latency {}\n",
        table(["OPERATION", "TIME", "RATE"], &rows),
        measured.cores,
        with_unit(device.flops_f32, "FLOP/s"),
        with_unit(device.flops_f32 * device.matmul.f32, "FLOP/s"),
        short(device.start),
        with_unit(device.flops_bf16, "FLOP/s"),
        with_unit(device.flops_bf16 * device.matmul.half, "FLOP/s"),
        with_unit(device.memory_bandwidth, "B/s"),
        100.0 * device.memory_share,
        100.0 * device.memory_share_half.unwrap_or(device.memory_share),
        with_unit(cluster.links[0].bandwidth, "B/s"),
        short(cluster.links[0].start),
    )
}
