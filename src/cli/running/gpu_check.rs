//! `meshwright gpu-check`: runs the GPU kernels and compares them with those of this processor.

mod rows;

use crate::cli::Answer;
use crate::error::Error;
use crate::launch::program;
use crate::train::{check_training, no_gpu};
use clap::{Args, ValueEnum};
use cuda::check::{CheckRow, Checks, Choice, Report, RowName, Rows};
use cuda::device::Device;
use ir::catalogue::Code;
use ir::diag::nearest;
use rows::{Columns, head, summary};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

/// Run all kernels on a GPU, and train small models on it, and compare the results with the CPU's
///
/// Errors are relative; each bound follows from the arithmetic. Rates are the best of several timings, shares are of the peak
/// at the device's highest clock. Each row is printed when it is found, and the next one runs if it fails: in a new process, if the driver reports
/// the error to every later call. The exit status is 1 if there is no GPU, 3 if a check fails.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright gpu-check --only attention
  # goes on where another run ended
  meshwright gpu-check --from 120
  # the rates of all tiles of attention
  meshwright gpu-check --variants --only 'warps, steps'")]
pub(in crate::cli) struct GpuCheck {
    /// Index of the GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// Check small sizes only; their rates are not meaningful
    #[arg(long)]
    quick: bool,
    /// Begin with this row, by its number or by how its check begins
    #[arg(long, value_name = "ROW")]
    from: Option<String>,
    /// Run only rows whose check or sizes contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Time all tiles of attention, too
    #[arg(long)]
    variants: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How rows are printed.
#[derive(Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Format {
    /// Aligned columns, each row as it is found
    #[default]
    Table,
    /// One JSON object at the end
    Json,
    /// Each row as it is found, as a JSON object on a line
    Lines,
}

impl GpuCheck {
    pub(in crate::cli) fn run(self) -> Result<Answer, Error> {
        let (clock, unusable) = (Instant::now(), |why| no_gpu(&why));
        let device = Device::open(self.device).map_err(unusable)?;
        let mut checks = Checks::new(&device, self.quick, self.variants).map_err(unusable)?;
        let mut all = |rows: &mut Rows<'_>| {
            checks.run(rows);
            check_training(self.device, self.quick, rows);
        };
        let names = Rows::names(&mut all);
        let choice = self.choice(&names)?;
        let columns = Columns::of(&names);
        if self.format == Format::Table {
            print(&(head(device.properties()) + &columns.head()));
        }
        let mut found = Vec::new();
        let mut tell = |row: CheckRow| {
            match self.format {
                Format::Table => print(&columns.row(&row)),
                Format::Lines => print(&(serde_json::to_string(&row).unwrap_or_default() + "\n")),
                Format::Json => {}
            }
            found.push(row);
        };
        let mut rows = Rows::new(&device, choice.clone(), &mut tell);
        all(&mut rows);
        let next = rows.lost().map(|lost| lost + 1);
        let rest = next.filter(|&next| (next..=names.len()).any(|number| choice.has(number, &names[number - 1])));
        if let Some(next) = rest {
            self.go_on(next, &mut tell)?;
        }
        let report = Report::new(&device, found, clock.elapsed().as_secs_f64());
        let text = match self.format {
            Format::Table => summary(&report),
            Format::Json => crate::cli::json(&report)?,
            Format::Lines => String::new(),
        };
        Ok(Answer::ended(text, if report.is_right() { 0 } else { 3 }, None))
    }

    /// The rows that run.
    fn choice(&self, names: &[RowName]) -> Result<Choice, Error> {
        let refused = |message: String, help: String| Err(Error::input(Code::BadOption, message).help(help));
        let from = match &self.from {
            None => 1,
            Some(from) => match (from.parse(), names.iter().position(|name| name.what.starts_with(from))) {
                (Ok(number), _) if (1..=names.len()).contains(&number) => number,
                (Ok(number), None) => {
                    return refused(format!("there is no row {number}"), format!("the rows are 1 to {}", names.len()));
                }
                (_, Some(at)) => at + 1,
                (Err(_), None) => {
                    let known = names.iter().map(|name| name.what.as_str());
                    let near = nearest(from, known).map_or_else(String::new, |near| format!("did you mean `{near}`? "));
                    return refused(
                        format!("no row begins with `{from}`"),
                        format!("{near}--from takes a number from 1 to {}, too", names.len()),
                    );
                }
            },
        };
        let choice = Choice { from, only: self.only.clone() };
        match names.iter().zip(1..).any(|(name, number)| choice.has(number, name)) {
            true => Ok(choice),
            false => {
                refused("no row is chosen".to_string(), "shorten --only, or begin with an earlier --from".to_string())
            }
        }
    }

    /// Runs the rows from a number on in a new process, whose device is not lost.
    fn go_on(&self, from: usize, tell: &mut dyn FnMut(CheckRow)) -> Result<(), Error> {
        let lost = |why: String| Error::Failed {
            code: Code::RankFailed,
            message: format!("the GPU no longer answers this process, and no other one could go on: {why}"),
            help: format!("go on with --from {from}"),
        };
        let mut rest = program().map_err(|why| lost(why.to_string()))?;
        rest.args(["gpu-check", "--format", "lines"]);
        rest.args(["--device", &self.device.to_string(), "--from", &from.to_string()]);
        rest.args(self.only.iter().flat_map(|only| ["--only", only]));
        rest.args(self.quick.then_some("--quick")).args(self.variants.then_some("--variants"));
        let mut rest = rest.stdout(Stdio::piped()).spawn().map_err(|why| lost(why.to_string()))?;
        for line in rest.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
            let row = line.map_err(|why| why.to_string());
            let row = row.and_then(|line| serde_json::from_str(&line).map_err(|why| why.to_string()));
            tell(row.map_err(&lost)?);
        }
        let status = rest.wait().map_err(|why| lost(why.to_string()))?;
        // A row that failed is told, and the status says so once more.
        if matches!(status.code(), Some(0 | 3)) { Ok(()) } else { Err(lost(status.to_string())) }
    }
}

/// Prints at once. Who reads may have gone; the run goes on, since its status counts, too.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
