//! `metrics.jsonl`: a header, then one line for each record: one per step and one per evaluation. A number that is not
//! finite is written as null.

use data::packing::ExampleTokens;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::files;

/// Name and version of the record format.
pub const SCHEMA: &str = "meshwright.metrics/1";

/// Header of the records: the first line of the file, after the schema.
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
    /// Loss of layers that predict further tokens, as training adds it to the other: times its factor, over the same number of labels;
    /// none of a model without such layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub further_loss: Option<f64>,
    /// Loss of uneven routing, as training adds it to the other: the mean over micro-batches, of all layers together; none of a model
    /// without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance_loss: Option<f64>,
    /// The same of large logits of routers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub z_loss: Option<f64>,
    /// How evenly experts got tokens; none of a model that does not note it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Routing>,
    /// Norm of the whole gradient before clipping.
    pub grad_norm: f64,
    /// The share of choices of experts that were dropped because the expert was full; none of a model without experts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<f64>,
    /// Learning rate of the step.
    pub lr: f64,
    /// Tokens consumed since the start of the run.
    pub tokens_seen: u64,
    /// Tokens of the step's examples; none of data without labels of its own.
    #[serde(flatten)]
    pub examples: Option<ExampleTokens>,
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
    /// Largest memory of any device, in bytes, if known.
    pub mem_peak_bytes: Option<u64>,
    /// True if the update was skipped because the gradient's norm was not finite.
    pub skipped: bool,
    /// The factor of the loss before differentiation, in f16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// The slowest rank; none if no rank has the same work as another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest: Option<SlowestRank>,
}

/// How evenly the experts of all layers got tokens in a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Routing {
    /// The most tokens of an expert over the mean of its layer, where it is largest.
    pub max_over_mean: f64,
    /// The layer of that expert, by its name in parameters.
    pub layer: String,
    /// The experts of all layers that got no token.
    pub dead: u64,
    /// Tokens of each expert by layer, in the steps that `--routing-every` asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<BTreeMap<String, Vec<u64>>>,
}

/// The rank that took longest for its own work, without waiting for others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowestRank {
    /// Its number.
    pub rank: usize,
    /// Its process, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// The machine of that process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its time over the median of other ranks of its pipeline stage.
    pub ratio: f64,
}

/// One evaluation on the held-out part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalRecord {
    /// The training step it follows.
    pub step: u64,
    /// Mean loss over the valid held-out labels, in nats per token.
    pub valid_loss: f64,
    /// Perplexity by token: the exponential of the loss.
    pub perplexity: f64,
    /// Perplexity by byte of the held-out text, if its bytes are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_perplexity: Option<f64>,
}

impl EvalRecord {
    /// The record of a loss, on text with `bytes_per_token`, if that is known.
    pub fn new(step: u64, valid_loss: f64, bytes_per_token: Option<f64>) -> EvalRecord {
        let byte_perplexity = bytes_per_token.map(|bytes| (valid_loss / bytes).exp());
        EvalRecord { step, valid_loss, perplexity: valid_loss.exp(), byte_perplexity }
    }
}

#[derive(Serialize)]
struct HeaderRecord<'a> {
    schema: &'static str,
    #[serde(flatten)]
    header: &'a Header,
}

/// The part of a header or record with the position to resume from.
#[derive(Deserialize)]
struct ResumePlace {
    schema: Option<String>,
    step: Option<u64>,
    loss: Option<f64>,
    valid_loss: Option<f64>,
}

impl ResumePlace {
    /// True if it is a header of this schema.
    fn is_header(&self) -> bool {
        self.step.is_none() && self.schema.as_deref() == Some(SCHEMA)
    }
}

/// An open `metrics.jsonl`. Every record is in the file when its call returns, and never by halves unless the system
/// stops.
#[derive(Debug)]
pub struct MetricsWriter {
    file: Arc<File>,
    path: PathBuf,
    /// Notes for the user on the existing file.
    notes: Vec<String>,
}

impl MetricsWriter {
    /// Starts a new file, replacing the existing one.
    ///
    /// # Errors
    /// The file cannot be created or written, or is a link.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let file = files::edit(path)?;
        let steps = Lines::new(&file).filter(|line| {
            matches!(line, Ok(MetricsLine { place: Some(ResumePlace { step: Some(_), valid_loss: None, .. }), .. }))
        });
        let notes = match steps.count() {
            0 => Vec::new(),
            steps => vec![format!("the records of {steps} steps of an earlier run in {} are replaced", path.display())],
        };
        file.set_len(0)?;
        (&file).rewind()?;
        let mut writer = Self { file: Arc::new(file), path: path.to_path_buf(), notes };
        writer.write(&HeaderRecord { schema: SCHEMA, header })?;
        Ok(writer)
    }

    /// Goes on after `last_step`: keeps the records of steps up to it and of evaluations before it, and drops what follows,
    /// such as steps done after the checkpoint or a line torn by a crash. If another line is no record, or the header is
    /// missing, the old file stays under another name.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn resume(path: &Path, header: &Header, last_step: u64) -> io::Result<Self> {
        let mut file = files::edit(path)?;
        let found = Resumable::of(&file, last_step)?;
        if found.lines == 0 {
            return Self::create(path, header);
        }
        let mut notes = Vec::new();
        if let Some(why) = found.fault() {
            let aside = set_aside(path)?;
            notes.push(format!("{}: {why}; the file as it was is {}", path.display(), aside.display()));
        }
        match found.prefix {
            Some(kept) => file.set_len(kept)?,
            None => file = rewrite(path, &file, header, last_step, found.has_header)?,
        }
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file: Arc::new(file), path: path.to_path_buf(), notes })
    }

    /// Notes for the user on the existing file, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The file, to see that all records are on the disk ([`File::sync_all`]) while others are appended.
    pub fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Appends the record of a step.
    ///
    /// # Errors
    /// The file cannot be written, or is no longer there.
    pub fn step(&mut self, record: &StepRecord) -> io::Result<()> {
        self.write(record)
    }

    /// Appends the record of an evaluation.
    ///
    /// # Errors
    /// The file cannot be written, or is no longer there.
    pub fn eval(&mut self, record: &EvalRecord) -> io::Result<()> {
        self.write(record)
    }

    fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        (&*self.file).write_all(&line)?;
        if is_at(&self.file, &self.path)? {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "it was removed or replaced while the run wrote to it"))
    }
}

/// True if an open file is the one of this name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let own = file.metadata()?;
    Ok(fs::symlink_metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino())))
}

/// True if there is a file of this name: only Unix numbers files.
#[cfg(not(unix))]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    file.metadata().map(|_| path.exists())
}

/// The losses of the steps `after + 1 ..= last_step` that a file has; none where there is no file.
///
/// # Errors
/// The file cannot be read.
pub fn losses(path: &Path, after: u64, last_step: u64) -> io::Result<Vec<f64>> {
    let file = match files::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut losses = Vec::new();
    for line in Lines::new(&file) {
        if let Some(ResumePlace { step: Some(step), loss: Some(loss), .. }) = line?.place
            && step > after
            && step <= last_step
        {
            losses.push(loss);
        }
    }
    Ok(losses)
}

/// Written lines are shorter; of a longer line only this number of bytes is read.
const LONGEST: u64 = 1 << 20;

/// A line of a file.
struct MetricsLine {
    text: Vec<u8>,
    /// How many bytes it has, with its end.
    bytes: u64,
    /// True if it has an end.
    whole: bool,
    /// The parsed header or record; `None` for other lines.
    place: Option<ResumePlace>,
}

impl MetricsLine {
    /// True if a run that resumes after `last_step` retains the line; `None` if the line is not a known record.
    fn is_kept(&self, last_step: u64) -> Option<bool> {
        let place = self.place.as_ref()?;
        match place.step {
            Some(step) => Some(step < last_step || step == last_step && place.valid_loss.is_none()),
            None => place.is_header().then_some(true),
        }
    }
}

/// The lines of a file from its start.
struct Lines<'a>(BufReader<&'a File>, bool);

impl<'a> Lines<'a> {
    fn new(file: &'a File) -> Lines<'a> {
        Lines(BufReader::new(file), false)
    }

    fn read(&mut self) -> io::Result<Option<MetricsLine>> {
        if !std::mem::replace(&mut self.1, true) {
            self.0.rewind()?;
        }
        let mut text = Vec::new();
        let mut bytes = (&mut self.0).take(LONGEST).read_until(b'\n', &mut text)? as u64;
        let mut whole = text.ends_with(b"\n");
        if bytes == LONGEST && !whole {
            let rest = self.0.skip_until(b'\n')? as u64;
            bytes += rest;
            // A line that long is no record, wherever it ends.
            whole = true;
        }
        let place = serde_json::from_slice(&text).ok();
        Ok((bytes > 0).then_some(MetricsLine { text, bytes, whole, place }))
    }
}

impl Iterator for Lines<'_> {
    type Item = io::Result<MetricsLine>;

    fn next(&mut self) -> Option<io::Result<MetricsLine>> {
        self.read().transpose()
    }
}

/// Part of a file that a resumed run continues.
#[derive(Default)]
struct Resumable {
    lines: u64,
    has_header: bool,
    /// How many lines are no records, and the number of the first.
    strange: u64,
    first_strange: u64,
    /// The length of the retained part, if that is a prefix of the file.
    prefix: Option<u64>,
}

impl Resumable {
    fn of(file: &File, last_step: u64) -> io::Result<Resumable> {
        let mut found = Resumable { prefix: Some(0), ..Resumable::default() };
        let mut dropped = false;
        for line in Lines::new(file) {
            let line = line?;
            // Only the last line can lack an end: a crash tore it.
            if !line.whole {
                break;
            }
            found.lines += 1;
            match line.is_kept(last_step) {
                Some(true) if dropped => found.prefix = None,
                Some(true) => found.prefix = found.prefix.map(|kept| kept + line.bytes),
                Some(false) => dropped = true,
                None => {
                    dropped = true;
                    found.strange += 1;
                    found.first_strange = found.first_strange.max(u64::from(found.strange == 1) * found.lines);
                }
            }
            found.has_header |= found.lines == 1 && line.place.as_ref().is_some_and(ResumePlace::is_header);
        }
        if found.strange == found.lines || !found.has_header {
            found.prefix = None;
        }
        Ok(found)
    }

    /// The defect of the line, if any.
    fn fault(&self) -> Option<String> {
        match (self.strange, self.has_header) {
            (0, true) => None,
            (0, false) => Some("it has no header".to_string()),
            (1, _) => Some(format!("line {} is no record and was left out", self.first_strange)),
            (strange, _) => Some(format!(
                "{strange} lines are no records and were left out, the first is line {}",
                self.first_strange
            )),
        }
    }
}

/// Copies a file to a free name in its folder.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let mut number = 1;
    loop {
        let aside = path.with_extension(format!("damaged-{number}.jsonl"));
        match File::create_new(&aside) {
            Ok(mut copy) => {
                io::copy(&mut files::open(path)?, &mut copy)?;
                copy.sync_all()?;
                return Ok(aside);
            }
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(why) => return Err(why),
        }
    }
}

/// Rewrites the file: a header, then the retained lines.
fn rewrite(path: &Path, old: &File, header: &Header, last_step: u64, has_header: bool) -> io::Result<File> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    files::replace_in(folder, name, |out| {
        if !has_header {
            serde_json::to_writer(&mut *out, &HeaderRecord { schema: SCHEMA, header })?;
            out.write_all(b"\n")?;
        }
        for line in Lines::new(old) {
            let line = line?;
            if line.whole && line.is_kept(last_step) == Some(true) {
                out.write_all(&line.text)?;
            }
        }
        Ok(())
    })?;
    files::edit(path)
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
            further_loss: None,
            balance_loss: None,
            z_loss: None,
            routing: None,
            grad_norm: f64::NAN,
            dropped: None,
            lr: 0.001,
            examples: None,
            tokens_seen: 64,
            tokens_per_s: f64::INFINITY,
            tokens_per_s_per_device: 8.0,
            step_time_s: 0.25,
            data_wait_s: 0.0,
            mfu: None,
            mem_peak_bytes: Some(1024),
            skipped: true,
            loss_scale: None,
            slowest: None,
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
        writer.eval(&EvalRecord::new(1, 0.0, Some(0.5))).unwrap();
        let expected = [
            json!({"schema": "meshwright.metrics/1", "config_hash": "c0ffee", "version": "0.1.0", "params": 12}),
            json!({"step": 1, "loss": 2.5, "grad_norm": null, "lr": 0.001, "tokens_seen": 64, "tokens_per_s": null,
                   "tokens_per_s_per_device": 8.0, "step_time_s": 0.25, "data_wait_s": 0.0, "mfu": null,
                   "mem_peak_bytes": 1024, "skipped": true}),
            json!({"step": 1, "valid_loss": 0.0, "perplexity": 1.0, "byte_perplexity": 1.0}),
        ];
        assert_eq!(lines(&path), expected);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn resuming_drops_later_steps_and_a_torn_line() {
        let path = file("resume");
        let mut writer = MetricsWriter::create(&path, &header()).unwrap();
        (1..=2).for_each(|step| writer.step(&record(step)).unwrap());
        writer.eval(&EvalRecord::new(2, 4.0, None)).unwrap();
        writer.step(&record(3)).unwrap();
        assert_eq!(losses(&path, 1, 3).unwrap(), [2.5, 2.5]);
        writer.file.write_all(b"{\"step\":1").unwrap();

        let other = Header { params: 99, ..header() };
        let mut writer = MetricsWriter::resume(&path, &other, 2).unwrap();
        writer.eval(&EvalRecord::new(2, 3.0, None)).unwrap();
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

    /// The records of a text that stay on resuming after step 5, the notes, and the records set aside.
    fn resumed(name: &str, text: &str) -> (Vec<Value>, Vec<String>, Option<String>) {
        let path = file(name);
        let aside = path.with_extension("damaged-1.jsonl");
        fs::write(&path, text).unwrap();
        let mut writer = MetricsWriter::resume(&path, &header(), 5).unwrap();
        writer.step(&record(6)).unwrap();
        let found = (lines(&path), writer.notes().to_vec(), fs::read_to_string(&aside).ok());
        fs::remove_file(path).unwrap();
        let _ = fs::remove_file(aside);
        found
    }

    #[test]
    fn resuming_without_a_file_starts_anew() {
        let (lines, notes, aside) = resumed("anew", "");
        assert_eq!((&lines[0]["schema"], lines.len(), notes.len(), aside), (&SCHEMA.into(), 2, 0, None));
    }

    #[test]
    fn a_line_that_is_no_record_costs_no_other_and_is_kept_aside() {
        let head = format!("{{\"schema\":\"{SCHEMA}\",\"params\":7}}\n");
        let body = "{\"step\":1}\n{\"step\":2}\ngarbled\n{\"step\":4}\n{\"step\":6}\n{\"step\":5}\n{\"step\":";
        let steps = |lines: &[Value]| lines[1..].iter().map(|line| line["step"].as_u64().unwrap()).collect::<Vec<_>>();
        let long = format!("{head}{}{}\n{{\"step\":3}}\n", "{\"step\":1}\n", " ".repeat(3 * LONGEST as usize));
        for (text, why, kept) in [
            (format!("{head}{body}"), "line 4 is no record", vec![1, 2, 4, 5, 6]),
            (
                format!("\u{feff}{head}{body}"),
                "2 lines are no records and were left out, the first is line 1",
                vec![1, 2, 4, 5, 6],
            ),
            (body[..22].to_string(), "it has no header", vec![1, 2, 6]),
            (format!("{head}{{\"step\":1}}\n\0\0\0\n"), "line 3 is no record", vec![1, 6]),
            (long, "line 3 is no record", vec![1, 3, 6]),
        ] {
            let (lines, notes, aside) = resumed("strange", &text);
            assert_eq!((steps(&lines), &lines[0]["schema"]), (kept, &SCHEMA.into()), "{text}");
            assert!(notes.len() == 1 && notes[0].contains(why), "{notes:?}");
            assert_eq!(aside.as_deref(), Some(&text[..]));
        }
        let (lines, notes, aside) = resumed("torn", &format!("{head}{{\"step\":1}}\n{{\"step\":2"));
        assert_eq!((steps(&lines), notes.len(), aside), (vec![1, 6], 0, None));
    }

    #[test]
    fn a_new_run_says_what_it_replaces() {
        let path = file("replaced");
        let mut writer = MetricsWriter::create(&path, &header()).unwrap();
        assert!(writer.notes().is_empty());
        (1..=3).for_each(|step| writer.step(&record(step)).unwrap());
        let writer = MetricsWriter::create(&path, &header()).unwrap();
        assert!(writer.notes()[0].contains("the records of 3 steps"), "{:?}", writer.notes());
        assert_eq!(lines(&path).len(), 1);
        fs::remove_file(path).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_taken_away_is_missed() {
        let path = file("away");
        for moved in [false, true] {
            let mut writer = MetricsWriter::create(&path, &header()).unwrap();
            writer.step(&record(1)).unwrap();
            if moved {
                fs::rename(&path, path.with_extension("moved")).unwrap();
                fs::write(&path, "another").unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            let why = writer.step(&record(2)).unwrap_err();
            assert!(why.to_string().contains("removed or replaced"), "{why}");
        }
        fs::remove_file(path.with_extension("moved")).unwrap();
        fs::remove_file(path).unwrap();
    }
}
