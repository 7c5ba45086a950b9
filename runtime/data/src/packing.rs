//! Examples in windows: each is whole in one, so that what is learned of it has all of the example before it.
//!
//! Examples are documents with labels of their own. Each window takes those that fill it best, the longest first. What is left of it has the
//! window's own examples once more, without labels: there is no padding, which routers of experts would be trained on.

use super::DataError;
use super::sampler::Batch;
use super::tokens::{NO_LABEL, TokenPart};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// The tokens that count in the loss of examples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LossOn {
    /// Tokens whose label the data has: completions, and what an assistant says.
    #[default]
    Completion,
    /// All.
    All,
}

impl LossOn {
    /// The choices by name.
    pub const ALL: [(&'static str, LossOn); 2] = [("completion", LossOn::Completion), ("all", LossOn::All)];

    /// The choice of a name.
    pub fn named(name: &str) -> Option<LossOn> {
        LossOn::ALL.iter().find(|(known, _)| *known == name).map(|(_, choice)| *choice)
    }
}

/// Counts of examples in windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ExampleCounts {
    /// Examples in windows.
    pub examples: u64,
    /// Windows.
    pub windows: u64,
    /// Tokens of the examples, as far as they are in windows.
    pub tokens: u64,
    /// Tokens whose label counts.
    pub counted: u64,
    /// Examples that are longer than a window, whose ends are cut off.
    pub cut: u64,
    /// Examples left out, since no label of theirs counts within a window.
    pub without_label: u64,
}

impl AddAssign for ExampleCounts {
    fn add_assign(&mut self, other: ExampleCounts) {
        let ExampleCounts { examples, windows, tokens, counted, cut, without_label } = other;
        self.examples += examples;
        self.windows += windows;
        self.tokens += tokens;
        self.counted += counted;
        self.cut += cut;
        self.without_label += without_label;
    }
}

/// Tokens of the examples of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ExampleTokens {
    /// Tokens without those that fill windows, which stand there once more.
    #[serde(rename = "real_tokens")]
    pub real: u64,
    /// Tokens whose label counts in the loss.
    #[serde(rename = "counted_tokens")]
    pub counted: u64,
}

/// The examples of each window of a part.
pub struct Packing {
    seq: usize,
    loss_on: LossOn,
    /// The numbers of examples in the part, window after window.
    examples: Vec<u32>,
    /// The end of each window among these.
    ends: Vec<u32>,
    counts: ExampleCounts,
}

/// An example that has a label within a window.
struct Fitting {
    number: u32,
    /// Its tokens in a window.
    inputs: usize,
}

impl Packing {
    /// Fills windows of `seq` tokens with the examples of a part.
    ///
    /// # Errors
    /// [`DataError::EmptySequence`], [`DataError::NoExample`], and those of a file that cannot be read.
    pub fn of(part: &TokenPart, seq: usize, loss_on: LossOn) -> Result<Packing, DataError> {
        if seq == 0 {
            return Err(DataError::EmptySequence);
        }
        let mut packing =
            Packing { seq, loss_on, examples: Vec::new(), ends: Vec::new(), counts: ExampleCounts::default() };
        let fitting = packing.fitting(part)?;
        if fitting.is_empty() {
            let without_label = packing.counts.without_label;
            return Err(DataError::NoExample {
                path: part.path().to_path_buf(),
                role: part.role(),
                without_label,
                seq,
            });
        }
        packing.fill(&fitting);
        Ok(packing)
    }

    /// The examples with labels in a window, and their counts.
    fn fitting(&mut self, part: &TokenPart) -> Result<Vec<Fitting>, DataError> {
        let (mut fitting, mut labels) = (Vec::new(), Vec::new());
        for number in 0..part.documents() {
            let (_, tokens) = part.segment(number);
            self.labels(part, number, tokens, &mut labels)?;
            let counted = labels.iter().filter(|&&label| label >= 0).count() as u64;
            self.counts.cut += u64::from(tokens > self.seq + 1);
            if counted == 0 {
                self.counts.without_label += 1;
                continue;
            }
            let inputs = tokens.min(self.seq);
            self.counts.examples += 1;
            self.counts.tokens += inputs as u64;
            self.counts.counted += counted;
            fitting.push(Fitting { number: number as u32, inputs });
        }
        Ok(fitting)
    }

    /// The labels of an example's tokens in a window: each is that of the token behind.
    fn labels(&self, part: &TokenPart, number: usize, tokens: usize, into: &mut Vec<i32>) -> Result<(), DataError> {
        let inputs = tokens.min(self.seq);
        let behind = 1..tokens.min(inputs + 1);
        into.clear();
        match self.loss_on {
            LossOn::Completion => part.read_labels(number, behind, into)?,
            // All that is known is that there are labels.
            LossOn::All => into.resize(behind.len(), 0),
        }
        into.resize(inputs, NO_LABEL);
        Ok(())
    }

    /// Gives each example to the window in which it leaves the least room, the longest first.
    fn fill(&mut self, fitting: &[Fitting]) {
        let mut order: Vec<usize> = (0..fitting.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(fitting[at].inputs));
        let (mut windows, mut windows_by_room) = (vec![0u32; fitting.len()], BTreeMap::<usize, Vec<u32>>::new());
        let mut count = 0;
        for at in order {
            let inputs = fitting[at].inputs;
            let room = windows_by_room.range(inputs..).next().map(|(&room, _)| room);
            let window = room.and_then(|room| {
                let of_room = windows_by_room.get_mut(&room)?;
                let window = of_room.pop();
                if of_room.is_empty() {
                    windows_by_room.remove(&room);
                }
                window
            });
            let window = window.unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            windows[at] = window;
            let left = room.unwrap_or(self.seq) - inputs;
            if left > 0 {
                windows_by_room.entry(left).or_default().push(window);
            }
        }
        self.counts.windows = u64::from(count);
        // Examples stay in their order within a window.
        let mut by_window: Vec<usize> = (0..fitting.len()).collect();
        by_window.sort_by_key(|&at| windows[at]);
        self.examples = by_window.iter().map(|&at| fitting[at].number).collect();
        self.ends = vec![0; count as usize];
        windows.iter().for_each(|&window| self.ends[window as usize] += 1);
        let mut end = 0;
        for of_window in &mut self.ends {
            end += *of_window;
            *of_window = end;
        }
    }

    /// The number of windows.
    pub fn windows(&self) -> u64 {
        self.counts.windows
    }

    /// Counts of the examples in the windows, and of those that are not.
    pub fn counts(&self) -> ExampleCounts {
        self.counts
    }

    /// Bytes of memory: a number for each example and each window.
    pub fn bytes(&self) -> u64 {
        (size_of_val(&self.examples[..]) + size_of_val(&self.ends[..])) as u64
    }

    /// The CRC-32 of which examples each window has.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        self.ends.iter().chain(&self.examples).for_each(|number| hasher.update(&number.to_le_bytes()));
        hasher.finalize()
    }

    /// The examples of a window.
    fn window(&self, window: u64) -> &[u32] {
        let window = window as usize;
        let begin = if window == 0 { 0 } else { self.ends[window - 1] };
        &self.examples[begin as usize..self.ends[window] as usize]
    }

    /// Adds a window to a batch. `check` refuses ids that the model does not know, by the number of the example.
    pub(super) fn push(
        &self,
        part: &TokenPart,
        window: u64,
        batch: &mut Batch,
        check: impl Fn(usize, u32) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let (begin, mut ids, mut labels) = (batch.tokens.len(), Vec::new(), Vec::new());
        for (segment, &number) in (0..).zip(self.window(window)) {
            let number = number as usize;
            let (_, tokens) = part.segment(number);
            let inputs = tokens.min(self.seq);
            ids.clear();
            part.read(number, 0..tokens.min(inputs + 1), &mut ids)?;
            ids.iter().try_for_each(|&id| check(number, id))?;
            match self.loss_on {
                LossOn::Completion => {
                    self.labels(part, number, tokens, &mut labels)?;
                    labels.iter().filter(|&&label| label >= 0).try_for_each(|&id| check(number, id.cast_unsigned()))?;
                    batch.push_labelled(segment, &ids[..inputs], labels.iter().copied());
                }
                LossOn::All => batch.push(segment, &ids, inputs),
            }
        }
        batch.has_examples = true;
        batch.repeat(begin, self.seq);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::Sampler;
    use super::super::tokens::TokenData;
    use super::super::tokens::write::TokenWriter;
    use super::*;
    use std::fs;
    use tempfile::TempDir;

    /// Files of examples of these lengths. The label of each token is the token, but for every third.
    fn data(lengths: &[usize]) -> (TempDir, TokenData) {
        let folder = tempfile::tempdir().unwrap();
        let at = |end: &str| folder.path().join(format!("a.{end}"));
        let mut writer = TokenWriter::new(fs::File::create(at("bin")).unwrap(), 1 << 20);
        let (mut labels, mut id) = (Vec::new(), 0);
        for &length in lengths {
            let ids: Vec<u32> = (id..id + length as u32).collect();
            id += length as u32;
            labels.extend(ids.iter().map(|&id| if id % 3 == 0 { NO_LABEL } else { id as i32 }));
            writer.document(&ids).unwrap();
        }
        writer.finish(&mut fs::File::create(at("idx")).unwrap()).unwrap();
        fs::write(at("labels"), labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<_>>()).unwrap();
        let record = format!(
            r#"{{"schema": "meshwright.tokens/1", "tokenizer": {{"path": "t", "crc32": "0", "vocabulary": 9}}, "tokens": {id},
            "bytes": 0, "largest": 0, "counted": 0}}"#
        );
        fs::write(at("json"), record).unwrap();
        let data = TokenData::open(&at("bin"), Some(&at("bin")), None, None, 0.0).unwrap().unwrap();
        (folder, data)
    }

    #[test]
    fn a_window_by_hand() {
        let (_folder, data) = data(&[2, 4]);
        let packing = Packing::of(&data.train, 8, LossOn::Completion).unwrap();
        let mut batch = Batch::default();
        Sampler::of_examples(&data.train, &packing, None).fill(0, 1, &mut batch).unwrap();
        assert_eq!(batch.tokens, [0, 1, 2, 3, 4, 5, 0, 1]);
        assert_eq!(batch.labels, [1, -1, -1, 4, 5, -1, -1, -1]);
        assert_eq!(batch.positions, [0, 1, 0, 1, 2, 3, 0, 1]);
        assert_eq!(batch.segments, [0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!((batch.repeated, batch.valid_labels()), (2, 3));
    }

    #[test]
    fn an_epoch_has_each_label_once_and_no_example_is_lost() {
        for lengths in [&[5, 9, 1, 3, 8, 8, 2, 20, 7, 10, 11][..], &[8; 30], &[2; 9], &(2..70).collect::<Vec<_>>()] {
            let (_folder, data) = data(lengths);
            for (seq, loss_on) in [(8, LossOn::Completion), (13, LossOn::All), (10, LossOn::Completion)] {
                let packing = Packing::of(&data.train, seq, loss_on).unwrap();
                let sampler = Sampler::of_examples(&data.train, &packing, Some(7));
                let (counts, mut batch) = (packing.counts(), Batch::default());
                sampler.fill(3 * counts.windows, counts.windows as usize, &mut batch).unwrap();
                assert_eq!(batch.tokens.len() as u64, counts.windows * seq as u64);
                assert_eq!(batch.repeated as u64, counts.windows * seq as u64 - counts.tokens);
                let mut labels: Vec<i32> = batch.labels.iter().copied().filter(|&label| label >= 0).collect();
                labels.sort_unstable();
                let (mut wanted, mut begin) = (Vec::new(), 0);
                for &length in lengths {
                    let all = begin + 1..begin + length.min(seq + 1) as i32;
                    wanted.extend(all.filter(|label| loss_on == LossOn::All || label % 3 != 0));
                    begin += length as i32;
                }
                assert_eq!(labels, wanted, "{lengths:?} in {seq}");
                assert_eq!(counts.examples + counts.without_label, lengths.len() as u64);
                assert_eq!(counts.cut, lengths.iter().filter(|&&length| length > seq + 1).count() as u64);
                // A label is of the token behind, in the same document.
                for (at, &label) in batch.labels.iter().enumerate().filter(|(_, label)| **label >= 0) {
                    assert_eq!(label, batch.tokens[at] + 1);
                }
            }
        }
    }

    #[test]
    fn windows_are_filled_well() {
        // Lengths from 1 to 64 in turn, 32.5 in the mean.
        let lengths: Vec<usize> = (0..6400).map(|number| 1 + number * 37 % 64).collect();
        let (_folder, data) = data(&lengths);
        let counts = Packing::of(&data.train, 128, LossOn::All).unwrap().counts();
        assert!(counts.tokens as f64 / (128 * counts.windows) as f64 > 0.99, "{counts:?}");
    }

    #[test]
    fn examples_without_labels_are_no_data() {
        let (_folder, data) = data(&[1, 1]);
        let why = Packing::of(&data.train, 8, LossOn::Completion).err().unwrap().to_string();
        assert!(why.contains("no example with a label that counts in a window of 8 tokens (2 without)"), "{why}");
        assert!(matches!(Packing::of(&data.train, 0, LossOn::All), Err(DataError::EmptySequence)));
    }
}
