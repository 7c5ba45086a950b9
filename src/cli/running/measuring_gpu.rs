//! `meshwright calibrate --backend cuda`: a GPU as a cluster.

use super::measuring::{of_attention, of_communication, row, tell, write};
use crate::calibrate::gpu_cluster;
use crate::error::Error;
use crate::train::no_gpu;
use compiler::text_files::check_writable;
use cost::Cluster;
use cuda::device::Device;
use cuda::measure::{GpuMeasured, measure_gpu};
use ir::catalogue::Code;
use std::path::Path;
use support::table::table;
use support::units::{short, with_unit};

/// Measures a GPU, writes the cluster file if requested, and prints the figures.
pub(in crate::cli) fn run(device: usize, quick: bool, output: Option<&Path>) -> Result<String, Error> {
    output.map_or(Ok(()), check_writable)?;
    let device = Device::open(device).map_err(|why| no_gpu(&why))?;
    let measured = measure_gpu(&device, quick, &mut tell).map_err(|why| {
        Error::input(Code::TooLittleMemory, format!("this GPU cannot be measured: {why}"))
            .help("stop the processes that use its memory, and try again")
    })?;
    let cluster = gpu_cluster(&measured)?;
    let head = if quick {
        "# Measured by `meshwright calibrate --backend cuda --quick`: on small sizes, so no figure is meaningful."
    } else {
        "# Measured by `meshwright calibrate --backend cuda`: figures of the whole GPU, whose memory all ranks share evenly."
    };
    write(&cluster, head, "--stack meshwright-cuda --precision bf16", told(&measured, &cluster), output)
}

/// Tables of the timings and of the cluster's figures.
fn told(measured: &GpuMeasured, cluster: &Cluster) -> String {
    let mut rows = Vec::new();
    for one in &measured.products {
        let product = one.product;
        let times = if one.batch > 1 { format!("{} x ", one.batch) } else { String::new() };
        let adds = if one.adds { ", added" } else { "" };
        let sizes = format!("{times}{}x{}, depth {}{adds}", product.m, product.n, product.k);
        let flops = 2.0 * (one.batch * product.m * product.n * product.k) as f64;
        rows.push(row(format!("matmul {} {sizes}", one.dtype.name()), product.seconds, flops, "FLOP/s"));
    }
    rows.extend(of_attention(&measured.attention, "bf16"));
    rows.extend(of_attention(&measured.attention_f32, "f32"));
    for &(name, bytes, seconds) in &measured.groups {
        rows.push(row(format!("{name}, {}", with_unit(bytes as f64, "B")), seconds, bytes as f64, "B/s"));
    }
    rows.extend(of_communication(&measured.sums, &measured.messages));
    let device = &cluster.device;
    let peak = |flops: f64, share: f64| {
        format!("{} at most, {} sustained", with_unit(flops, "FLOP/s"), with_unit(flops * share, "FLOP/s"))
    };
    let eight_bits = device.flops_f8.map(|flops| format!("fp8       {}\n", peak(flops, device.matmul.f8)));
    format!(
        "{}\ndevice    {}, {} multiprocessors, {} free\nf32       {}\nbf16      {}\n{}memory    {} at most, a copy {}, kernels {}\n\
         launches  {} each on the device, {} on the host\nhost      {} from it, {} to it\nranks     {} between ranks on the device\n",
        table(["OPERATION", "TIME", "RATE"], &rows),
        device.name,
        device.sms,
        with_unit(device.memory as f64, "B"),
        peak(device.flops_f32, device.matmul.f32),
        peak(device.flops_bf16, device.matmul.half),
        eight_bits.unwrap_or_default(),
        with_unit(device.memory_bandwidth, "B/s"),
        with_unit(measured.copy_bandwidth, "B/s"),
        with_unit(device.memory_bandwidth * device.memory_share, "B/s"),
        short(measured.start),
        short(measured.launch),
        with_unit(measured.host_bandwidth[0], "B/s"),
        with_unit(measured.host_bandwidth[1], "B/s"),
        with_unit(cluster.links[0].bandwidth, "B/s"),
    )
}
