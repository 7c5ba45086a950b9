//! `meshwright gpu-check`: runs the GPU kernels and compares them with those of this processor.

use super::{Answer, TableFormat};
use crate::error::Error;
use crate::train::{check_training, no_gpu};
use clap::Args;
use runtime::backends::cuda::check::{CheckRow, Report, check};
use runtime::backends::cuda::device::Properties;
use std::fmt::Write;
use support::table::table;
use support::units::with_unit;

/// Run all kernels on a GPU, and train small models on it, and compare the results with the CPU's
///
/// Errors are relative; each bound follows from the arithmetic. Rates are the best of several timings, shares are of the peak
/// at the device's highest clock. The exit status is 1 if there is no GPU, 3 if a check fails.
#[derive(Args)]
pub(super) struct GpuCheck {
    /// Index of the GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// Check small sizes only; their rates are not meaningful
    #[arg(long)]
    quick: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl GpuCheck {
    pub(super) fn run(self) -> Result<Answer, Error> {
        let mut report = check(self.device, self.quick).map_err(|why| no_gpu(&why))?;
        report.rows.extend(check_training(self.device, self.quick));
        let text = match self.format {
            TableFormat::Table => text(&report),
            TableFormat::Json => super::json(&report)?,
        };
        Ok(Answer { text, status: if report.is_right() { 0 } else { 3 }, complaint: None })
    }
}

fn text(report: &Report) -> String {
    let rows: Vec<[String; 7]> = report.rows.iter().map(cells).collect();
    let mut text =
        head(&report.device) + &table(["CHECK", "SHAPE", "ERROR", "BOUND", "RATE", "OF PEAK", "RESULT"], &rows);
    for row in &report.rows {
        if let Some(note) = &row.note {
            let _ = writeln!(text, "{}, {}: {note}", row.what, row.shape);
        }
    }
    let wrong = report.rows.iter().filter(|row| !row.right).count();
    let _ = match wrong {
        0 => writeln!(text, "\nall {} checks pass", rows.len()),
        _ => writeln!(text, "\n{wrong} of {} checks FAIL", rows.len()),
    };
    text
}

fn head(device: &Properties) -> String {
    let (major, minor) = device.capability;
    let peak = |rate: Option<f64>, unit| rate.map_or("unknown".to_string(), |rate| with_unit(rate, unit));
    let peaks = device.peaks;
    format!(
        "device     {}, compute capability {major}.{minor}, {} multiprocessors, {}\n\
         peaks      memory {}, f32 {}, tf32 {}, bf16 {}, 8 bits {}\n\
         libraries  CUDA driver {}, NVRTC {}, cuBLASLt {}\n\n",
        device.name,
        device.multiprocessors,
        with_unit(device.memory_bytes as f64, "B"),
        peak(peaks.memory, "B/s"),
        peak(peaks.f32, "FLOP/s"),
        peak(peaks.tf32, "FLOP/s"),
        peak(peaks.bf16, "FLOP/s"),
        peak(peaks.f8, "FLOP/s"),
        device.driver,
        device.nvrtc,
        device.cublaslt,
    )
}

fn cells(row: &CheckRow) -> [String; 7] {
    let small = |x: f64| if x == 0.0 { "0".to_string() } else { format!("{x:.1e}") };
    [
        row.what.clone(),
        row.shape.clone(),
        row.error.map_or("-".into(), small),
        row.error.map_or("-".into(), |_| small(row.bound)),
        row.rate.map_or("-".into(), |rate| with_unit(rate, row.unit)),
        row.share.map_or("-".into(), |share| format!("{:.0} %", 100.0 * share)),
        if row.right { "ok" } else { "FAIL" }.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::backends::cuda::peaks::Peaks;

    #[test]
    fn the_report_is_a_table_with_its_failures() {
        let device = Properties {
            name: "A GPU".into(),
            capability: (9, 0),
            memory_bytes: 80_000_000_000,
            multiprocessors: 132,
            peaks: Peaks { memory: Some(3.35e12), f32: None, tf32: None, bf16: Some(9.89e14), f8: Some(1.979e15) },
            driver: "13.2".into(),
            nvrtc: "13.2".into(),
            cublaslt: "13.4.0".into(),
        };
        let row = |right, error, note: Option<&str>| CheckRow {
            what: "add f32".into(),
            shape: "4096".into(),
            error,
            bound: 0.0,
            rate: Some(1.5e12),
            unit: "B/s",
            share: Some(0.448),
            right,
            note: note.map(str::to_string),
        };
        let rows = vec![row(true, Some(0.0), None), row(false, None, Some("no such kernel"))];
        let text = text(&Report { schema: "s", device, rows });
        for part in [
            "device     A GPU, compute capability 9.0, 132 multiprocessors, 80.0 GB",
            "peaks      memory 3.35 TB/s, f32 unknown, tf32 unknown, bf16 989 TFLOP/s, 8 bits 1.98 PFLOP/s",
            "add f32  4096   0      0      1.50 TB/s  45 %     ok\n",
            "add f32  4096   -      -      1.50 TB/s  45 %     FAIL\n",
            "add f32, 4096: no such kernel",
            "1 of 2 checks FAIL",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
    }
}
