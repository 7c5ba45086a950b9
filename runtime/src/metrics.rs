//! `metrics.jsonl`: a header, then a record per step and per evaluation, one line each. A number that is not finite is
//! written as null.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

/// Name and version of the record format.
pub const SCHEMA: &str = "meshwright.metrics/1";

/// What the records are about; the first line says it, after the schema.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Header {
    /// Hash of the resolved configuration of the run.
    pub config_hash: String,
    /// Version of the tool.
    pub version: String,
    /// Number of parameters of the model.
    pub params: u64,
}

/// One training step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepRecord {
    /// Number of the step.
    pub step: u64,
    /// Mean loss over the valid labels of the batch, in nats per token.
    pub loss: f64,
    /// Norm of the whole gradient before clipping.
    pub grad_norm: f64,
    /// The share of choices of experts that were dropped because the expert was full; none of a model without experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// Learning rate of the step.
    pub lr: f64,
    /// Tokens consumed since the start of the run.
    pub tokens_seen: u64,
    /// Tokens per second of the step, all devices together.
    pub tokens_per_s: f64,
    /// Tokens per second and device.
    pub tokens_per_s_per_device: f64,
    /// Wall time of the step, in seconds.
    pub step_time_s: f64,
    /// Part of the step spent waiting for data, in seconds.
    pub data_wait_s: f64,
    /// Model FLOPs utilisation: FLOPs of matrix products and attention, three times those of the forward and causal
    /// attention by half, per second of the step, over the peak that all devices together reach; none where that has not
    /// been measured.
    pub mfu: Option<f64>,
    /// Largest memory of any device, in bytes, where it is known.
    pub mem_peak_bytes: Option<u64>,
    /// Whether the update was left out because a gradient was not finite.
    pub skipped: bool,
}

/// One evaluation on the held-out part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalRecord {
    /// The training step it follows.
    pub step: u64,
    /// Mean loss over the valid held-out labels, in nats per token.
    pub valid_loss: f64,
}

#[derive(Serialize)]
struct HeaderRecord<'a> {
    schema: &'static str,
    #[serde(flatten)]
    header: &'a Header,
}

/// The part of a header or record that tells where to resume.
#[derive(Deserialize)]
struct Place {
    schema: Option<String>,
    step: Option<u64>,
    loss: Option<f64>,
    valid_loss: Option<f64>,
}

/// An open `metrics.jsonl`. Every record is in the file when its call returns, and never by halves unless the system
/// stops.
#[derive(Debug)]
pub struct MetricsWriter {
    file: File,
}

impl MetricsWriter {
    /// Starts the file anew, replacing what is there.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let mut writer = Self { file: File::create(path)? };
        writer.write(&HeaderRecord { schema: SCHEMA, header })?;
        Ok(writer)
    }

    /// Goes on after `last_step`: keeps the records of steps up to it and of evaluations before it, and drops what follows,
    /// such as steps done after the checkpoint or a line torn by a crash. Starts anew where there is no file of this schema.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn resume(path: &Path, header: &Header, last_step: u64) -> io::Result<Self> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::create(path, header),
            opened => opened?,
        };
        let kept = bytes_up_to(&mut BufReader::new(&mut file), last_step)?;
        if kept == 0 {
            return Self::create(path, header);
        }
        file.set_len(kept)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file })
    }

    /// Sees that all records are on the disk.
    ///
    /// # Errors
    /// The system refuses.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Appends the record of a step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn step(&mut self, record: &StepRecord) -> io::Result<()> {
        self.write(record)
    }

    /// Appends the record of an evaluation.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn eval(&mut self, record: &EvalRecord) -> io::Result<()> {
        self.write(record)
    }

    fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

/// The losses of the steps `after + 1 ..= last_step` that a file has; none where there is no file.
///
/// # Errors
/// The file cannot be read.
pub fn losses(path: &Path, after: u64, last_step: u64) -> io::Result<Vec<f64>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut losses = Vec::new();
    for line in BufReader::new(file).lines() {
        if let Ok(Place { step: Some(step), loss: Some(loss), .. }) = serde_json::from_str(&line?)
            && step > after
            && step <= last_step
        {
            losses.push(loss);
        }
    }
    Ok(losses)
}

/// Length of the header, the records of steps up to `last_step` and those of evaluations before it; 0 without a header.
fn bytes_up_to(file: &mut impl BufRead, last_step: u64) -> io::Result<u64> {
    let mut kept = 0;
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        let whole = line.ends_with(b"\n");
        let keep = serde_json::from_slice::<Place>(&line).is_ok_and(|place| match place.step {
            Some(step) => kept > 0 && (step < last_step || step == last_step && place.valid_loss.is_none()),
            None => kept == 0 && place.schema.as_deref() == Some(SCHEMA),
        });
        if !(whole && keep) {
            break;
        }
        kept += line.len() as u64;
        line.clear();
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::fs;
    use std::path::PathBuf;

    fn file(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("meshwright-metrics-{name}-{}.jsonl", std::process::id()))
    }

    fn header() -> Header {
        Header { config_hash: "c0ffee".into(), version: "0.1.0".into(), params: 12 }
    }

    fn record(step: u64) -> StepRecord {
        StepRecord {
            step,
            loss: 2.5,
            grad_norm: f64::NAN,
            dropped: None,
            lr: 0.001,
            tokens_seen: 64,
            tokens_per_s: f64::INFINITY,
            tokens_per_s_per_device: 8.0,
            step_time_s: 0.25,
            data_wait_s: 0.0,
            mfu: None,
            mem_peak_bytes: Some(1024),
            skipped: true,
        }
    }

    fn lines(path: &Path) -> Vec<Value> {
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn records_are_there_at_once_and_finite() {
        let path = file("records");
        let mut writer = MetricsWriter::create(&path, &header()).unwrap();
        writer.step(&record(1)).unwrap();
        writer.eval(&EvalRecord { step: 1, valid_loss: 3.0 }).unwrap();
        let expected = [
            json!({"schema": "meshwright.metrics/1", "config_hash": "c0ffee", "version": "0.1.0", "params": 12}),
            json!({"step": 1, "loss": 2.5, "grad_norm": null, "lr": 0.001, "tokens_seen": 64, "tokens_per_s": null,
                   "tokens_per_s_per_device": 8.0, "step_time_s": 0.25, "data_wait_s": 0.0, "mfu": null,
                   "mem_peak_bytes": 1024, "skipped": true}),
            json!({"step": 1, "valid_loss": 3.0}),
        ];
        assert_eq!(lines(&path), expected);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn resuming_drops_later_steps_and_a_torn_line() {
        let path = file("resume");
        let mut writer = MetricsWriter::create(&path, &header()).unwrap();
        (1..=2).for_each(|step| writer.step(&record(step)).unwrap());
        writer.eval(&EvalRecord { step: 2, valid_loss: 4.0 }).unwrap();
        writer.step(&record(3)).unwrap();
        assert_eq!(losses(&path, 1, 3).unwrap(), [2.5, 2.5]);
        writer.file.write_all(b"{\"step\":1").unwrap();

        let other = Header { params: 99, ..header() };
        let mut writer = MetricsWriter::resume(&path, &other, 2).unwrap();
        writer.eval(&EvalRecord { step: 2, valid_loss: 3.0 }).unwrap();
        let got = lines(&path);
        assert_eq!(got.iter().map(|line| line["step"].as_u64()).collect::<Vec<_>>(), [None, Some(1), Some(2), Some(2)]);
        assert_eq!((&got[0]["params"], &got[3]["valid_loss"]), (&12.into(), &3.0.into()));
        assert_eq!(losses(&path, 0, 9).unwrap(), [2.5, 2.5]);

        let torn = lines(&path).len();
        writer.file.write_all(b"{\"step\":2}").unwrap();
        MetricsWriter::resume(&path, &other, 9).unwrap();
        assert_eq!(lines(&path).len(), torn, "a line without its end is torn");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn resuming_without_a_header_starts_anew() {
        let path = file("anew");
        fs::write(&path, "{\"step\":1}\n").unwrap();
        MetricsWriter::resume(&path, &header(), 5).unwrap();
        assert_eq!(lines(&path).len(), 1);
        fs::remove_file(&path).unwrap();
        MetricsWriter::resume(&path, &header(), 5).unwrap();
        assert_eq!(lines(&path)[0]["schema"], SCHEMA);
        fs::remove_file(path).unwrap();
    }
}
