//! Rows of `gpu-check` as text, each on its own: the widths of columns follow from the names of all rows.

use cuda::check::{CheckRow, Report, RowName};
use cuda::device::Properties;
use support::units::{seconds, with_unit};

/// The titles of the columns, and the widths of those behind the names.
const TITLES: [&str; 8] = ["#", "CHECK", "SHAPE", "ERROR", "BOUND", "RATE", "OF PEAK", "RESULT"];
const WIDTHS: [usize; 5] = [7, 7, 12, 7, 0];

/// The widths of the columns.
pub(super) struct Columns([usize; 8]);

impl Columns {
    /// Those of rows.
    pub(super) fn of(names: &[RowName]) -> Columns {
        let widest = |least: &str, text: fn(&RowName) -> &str| {
            names.iter().map(|name| text(name).chars().count()).chain([least.len()]).max().unwrap_or(0)
        };
        let [error, bound, rate, peak, result] = WIDTHS;
        let number = names.len().to_string().len();
        let (what, shape) = (widest(TITLES[1], |name| &name.what), widest(TITLES[2], |name| &name.shape));
        Columns([number, what, shape, error, bound, rate, peak, result])
    }

    /// The line of titles.
    pub(super) fn head(&self) -> String {
        self.line(&TITLES.map(str::to_string))
    }

    /// The line of a row, and one of its note.
    pub(super) fn row(&self, row: &CheckRow) -> String {
        let note = row.note.as_ref().map_or_else(String::new, |note| format!("{:1$}{note}\n", "", self.0[0] + 2));
        self.line(&cells(row)) + &note
    }

    fn line(&self, cells: &[String; 8]) -> String {
        let padded: Vec<String> = cells.iter().zip(self.0).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    }
}

fn cells(row: &CheckRow) -> [String; 8] {
    let small = |x: f64| if x == 0.0 { "0".to_string() } else { format!("{x:.1e}") };
    [
        row.number.to_string(),
        row.what.clone(),
        row.shape.clone(),
        row.error.map_or("-".into(), small),
        row.error.map_or("-".into(), |_| small(row.bound)),
        row.rate.map_or("-".into(), |rate| with_unit(rate, &row.unit)),
        row.share.map_or("-".into(), |share| format!("{:.0} %", 100.0 * share)),
        if row.right { "ok" } else { "FAIL" }.to_string(),
    ]
}

/// The line behind all rows.
pub(super) fn summary(report: &Report) -> String {
    let (count, time) = (report.rows.len(), seconds(report.seconds));
    match report.rows.iter().filter(|row| !row.right).count() {
        0 => format!("\nall {count} checks pass, in {time}\n"),
        wrong => format!("\n{wrong} of {count} checks FAIL, in {time}\n"),
    }
}

/// The device and its libraries.
pub(super) fn head(device: &Properties) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use cuda::peaks::Peaks;

    #[test]
    fn rows_line_up_and_failures_are_counted() {
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
            number: 7,
            what: "add f32".into(),
            shape: "4096".into(),
            error,
            bound: 0.0,
            rate: Some(1.5e12),
            unit: "B/s".into(),
            share: Some(0.448),
            right,
            note: note.map(str::to_string),
        };
        let names = vec![RowName { what: "add f32".into(), shape: "4096".into() }; 10];
        let columns = Columns::of(&names);
        let rows = vec![row(true, Some(0.0), None), row(false, None, Some("no such kernel"))];
        let mut text = head(&device) + &columns.head();
        rows.iter().for_each(|row| text += &columns.row(row));
        for part in [
            "device     A GPU, compute capability 9.0, 132 multiprocessors, 80.0 GB",
            "peaks      memory 3.35 TB/s, f32 unknown, tf32 unknown, bf16 989 TFLOP/s, 8 bits 1.98 PFLOP/s",
            "#   CHECK    SHAPE  ERROR    BOUND    RATE          OF PEAK  RESULT\n",
            "7   add f32  4096   0        0        1.50 TB/s     45 %     ok\n",
            "7   add f32  4096   -        -        1.50 TB/s     45 %     FAIL\n    no such kernel\n",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
        let report = Report { schema: "s", device, rows, seconds: 61.0 };
        assert!(summary(&report).starts_with("\n1 of 2 checks FAIL, in "), "{}", summary(&report));
    }
}
