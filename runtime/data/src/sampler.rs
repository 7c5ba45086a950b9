//! Tokens to batches. Sample `i` of a run is a pure function of (data, sequence length, seed, `i`). The number of consumed
//! samples is therefore the complete state, and a resumed run continues exactly.

use super::images::ImageBatch;
use super::packing::Packing;
use super::tokens::{NO_LABEL, TokenPart};
use super::{DataError, Part, Role, mix};
use std::ops::Range;
use std::path::Path;

/// Sequences of one length, packed one after the other; every field holds `sequences * seq` numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Input tokens, each below [`VOCAB`](super::VOCAB).
    pub tokens: Vec<i32>,
    /// The token that follows each input, or -1 where none does: at the last place of a segment.
    pub labels: Vec<i32>,
    /// Distance from the start of the segment, or of the sequence where the segment began before it.
    pub positions: Vec<i32>,
    /// Number of the segment within its sequence, from 0. Attention stays within equal numbers.
    pub segments: Vec<i32>,
    /// Tokens at the ends of windows of examples that stand there once more, without labels.
    pub repeated: usize,
    /// True if a window has examples with labels of their own.
    pub has_examples: bool,
    /// The images of a batch for a model that reads them.
    pub images: ImageBatch,
}

impl Batch {
    /// Labels that are not -1: what the summed loss is divided by.
    pub fn valid_labels(&self) -> usize {
        self.labels.iter().filter(|&&label| label >= 0).count()
    }

    /// Numbers of each token, those of the token `places` places further on; `none` where that one is of another segment, or of
    /// another sequence of `seq` tokens.
    pub fn ahead(&self, numbers: &[i32], seq: usize, places: usize, none: i32) -> Vec<i32> {
        let mut ahead = vec![none; numbers.len()];
        for (at, number) in ahead.iter_mut().enumerate() {
            let next = at + places;
            if at % seq + places < seq && self.segments[next] == self.segments[at] {
                *number = numbers[next];
            }
        }
        ahead
    }

    /// The length of each token's sequence of `seq` tokens: one more than its largest position. Documents in it that start again
    /// at position 0 make it shorter.
    pub fn lengths(&self, seq: usize) -> Vec<i32> {
        let lengths = self.positions.chunks(seq).flat_map(|positions| {
            let length = positions.iter().copied().max().unwrap_or(-1) + 1;
            std::iter::repeat_n(length, positions.len())
        });
        lengths.collect()
    }

    /// Adds the first `inputs` tokens of a segment. The label of each is the token behind it, if there is one.
    pub(super) fn push(&mut self, segment: i32, ids: &[u32], inputs: usize) {
        for position in 0..inputs {
            self.tokens.push(ids[position] as i32);
            self.labels.push(ids.get(position + 1).map_or(-1, |&id| id as i32));
            self.positions.push(position as i32);
            self.segments.push(segment);
        }
    }

    /// Adds tokens of a segment with a label for each.
    pub(super) fn push_labelled(&mut self, segment: i32, ids: &[u32], labels: impl IntoIterator<Item = i32>) {
        self.push(segment, ids, ids.len());
        let begin = self.labels.len() - ids.len();
        self.labels[begin..].iter_mut().zip(labels).for_each(|(label, own)| *label = own);
    }

    /// Adds tokens of a segment with a label for each; a negative token is none of the vocabulary.
    pub(super) fn push_segment(&mut self, segment: i32, ids: &[i32], labels: impl IntoIterator<Item = i32>) {
        self.tokens.extend(ids);
        self.labels.extend(labels);
        self.positions.extend(0..ids.len() as i32);
        self.segments.resize(self.tokens.len(), segment);
    }

    /// Completes the window of `seq` tokens that begins at `begin`: what it has stands there once more, without labels.
    pub(super) fn repeat(&mut self, begin: usize, seq: usize) {
        let own = self.tokens.len() - begin;
        let segments = self.segments.last().map_or(0, |last| last + 1);
        for at in own..seq {
            let (from, round) = (begin + at % own, (at / own) as i32);
            self.tokens.push(self.tokens[from]);
            self.labels.push(NO_LABEL);
            self.positions.push(self.positions[from]);
            self.segments.push(self.segments[from] + round * segments);
        }
        self.repeated += seq - own;
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.labels.clear();
        self.positions.clear();
        self.segments.clear();
        self.images.clear();
        (self.repeated, self.has_examples) = (0, false);
    }
}

/// Ids are below: they are numbers of 32 bits with a sign, and a label of -1 is none.
const MOST_IDS: u64 = 1 << 31;

/// A side of the data: bytes of text, or ids of files.
#[derive(Clone, Copy)]
pub enum Stream<'a> {
    /// Text.
    Bytes(&'a Part),
    /// Tokenised data.
    Tokens(&'a TokenPart),
}

impl<'a> From<&'a Part> for Stream<'a> {
    fn from(part: &'a Part) -> Self {
        Stream::Bytes(part)
    }
}

impl<'a> From<&'a TokenPart> for Stream<'a> {
    fn from(part: &'a TokenPart) -> Self {
        Stream::Tokens(part)
    }
}

impl Stream<'_> {
    /// The number of its tokens.
    pub fn tokens(self) -> usize {
        match self {
            Stream::Bytes(part) => part.tokens,
            Stream::Tokens(part) => part.tokens(),
        }
    }

    fn role(self) -> Role {
        match self {
            Stream::Bytes(part) => part.role,
            Stream::Tokens(part) => part.role(),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Stream::Bytes(part) => &part.path,
            Stream::Tokens(part) => part.path(),
        }
    }

    /// Number of the segment that holds the token at `at`.
    fn segment_of(self, at: usize) -> usize {
        match self {
            Stream::Bytes(part) => part.segment_of(at),
            Stream::Tokens(part) => part.segment_of(at),
        }
    }

    /// The first token of a segment, and how many it has.
    fn segment(self, number: usize) -> (usize, usize) {
        match self {
            Stream::Bytes(part) => {
                let segment = part.segment(number);
                (segment.start, segment.tokens())
            }
            Stream::Tokens(part) => part.segment(number),
        }
    }

    /// Appends the tokens at these places of a segment.
    fn read(self, number: usize, places: Range<usize>, into: &mut Vec<u32>) -> Result<(), DataError> {
        match self {
            Stream::Bytes(part) => {
                let segment = part.segment(number);
                into.extend(places.filter_map(|place| segment.token(place)).map(u32::from));
                Ok(())
            }
            Stream::Tokens(part) => part.read(number, places, into),
        }
    }
}

/// Cuts a part in windows of `seq + 1` tokens, each beginning on the last token of the one before so that every label
/// is used once, and serves them in some order, epoch after epoch. Up to `seq - 1` tokens at the end are left out. Windows of examples
/// have whole ones instead.
#[derive(Clone, Copy)]
pub struct Sampler<'a> {
    part: Stream<'a>,
    seq: usize,
    windows: u64,
    shuffle: Option<u64>,
    /// Ids must be below.
    vocabulary: u64,
    /// The examples of each window, if the part has labels of its own.
    packing: Option<(&'a TokenPart, &'a Packing)>,
}

impl<'a> Sampler<'a> {
    /// Windows in an order that `seed` fixes, another one each epoch.
    ///
    /// # Errors
    /// [`DataError::EmptySequence`] and [`DataError::TooLittle`].
    pub fn new(part: impl Into<Stream<'a>>, seq: usize, seed: u64) -> Result<Self, DataError> {
        Ok(Self { shuffle: Some(seed), ..Self::in_order(part, seq)? })
    }

    /// Windows in the order of the text, for validation.
    ///
    /// # Errors
    /// [`DataError::EmptySequence`] and [`DataError::TooLittle`].
    pub fn in_order(part: impl Into<Stream<'a>>, seq: usize) -> Result<Self, DataError> {
        let part = part.into();
        if seq == 0 {
            return Err(DataError::EmptySequence);
        }
        let tokens = part.tokens();
        if tokens <= seq {
            return Err(DataError::TooLittle { path: part.path().to_path_buf(), role: part.role(), tokens, seq });
        }
        Ok(Self { part, seq, windows: ((tokens - 1) / seq) as u64, shuffle: None, vocabulary: MOST_IDS, packing: None })
    }

    /// Windows of the examples of a part, in an order that `seed` fixes, or in one that stays.
    pub fn of_examples(part: &'a TokenPart, packing: &'a Packing, seed: Option<u64>) -> Self {
        let (windows, packing) = (packing.windows(), Some((part, packing)));
        Self { part: part.into(), seq: 0, windows, shuffle: seed, vocabulary: MOST_IDS, packing }
    }

    /// The same, where ids that are not below `vocabulary` are an error.
    #[must_use]
    pub fn within(self, vocabulary: u64) -> Self {
        Self { vocabulary: vocabulary.min(MOST_IDS), ..self }
    }

    /// Samples per epoch.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Replaces `batch` by the samples `first_sample .. first_sample + count` of the run. After
    /// [`windows`](Self::windows) samples the next epoch begins.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`], and those of a file that cannot be read.
    pub fn fill(&self, first_sample: u64, count: usize, batch: &mut Batch) -> Result<(), DataError> {
        batch.clear();
        (first_sample..first_sample + count as u64).try_for_each(|sample| self.add(sample, batch))
    }

    /// Adds a sample of the run to a batch.
    pub(super) fn add(&self, sample: u64, batch: &mut Batch) -> Result<(), DataError> {
        self.push(self.window(sample), batch)
    }

    /// The window that a sample of the run is.
    fn window(&self, sample: u64) -> u64 {
        shuffled(sample, self.windows, self.shuffle)
    }

    fn push(&self, window: u64, batch: &mut Batch) -> Result<(), DataError> {
        if let Some((part, packing)) = self.packing {
            return packing.push(part, window, batch, |example, id| self.check(example, id));
        }
        let mut at = window as usize * self.seq;
        let (end, mut ids) = (at + self.seq, Vec::new());
        for (number, segment) in (0..).zip(self.part.segment_of(at)..) {
            let (start, tokens) = self.part.segment(segment);
            let inputs = (start + tokens).min(end) - at;
            ids.clear();
            // One more is the label of the last input, where the segment has it.
            let places = at - start..(at - start + inputs + 1).min(tokens);
            self.part.read(segment, places, &mut ids)?;
            ids.iter().try_for_each(|&id| self.check(segment, id))?;
            batch.push(number, &ids, inputs);
            at += inputs;
            if at == end {
                break;
            }
        }
        Ok(())
    }

    /// Checks that the model knows a token.
    fn check(&self, segment: usize, id: u32) -> Result<(), DataError> {
        if u64::from(id) < self.vocabulary {
            return Ok(());
        }
        let document = if let Stream::Tokens(part) = self.part { part.document(segment) } else { segment as u64 };
        Err(DataError::OutOfRange { path: self.part.path().to_path_buf(), document, id, vocabulary: self.vocabulary })
    }
}

/// The window that a sample of a run is, of `windows` of an epoch: in an order that `seed` fixes, another one each epoch, or in place.
pub(super) fn shuffled(sample: u64, windows: u64, seed: Option<u64>) -> u64 {
    let (epoch, place) = (sample / windows, sample % windows);
    match seed {
        Some(seed) => permute(place, windows, mix(mix(seed).wrapping_add(epoch))),
        None => place,
    }
}

/// Feistel rounds: six withstand what four do not (Patarin: Security of Random Feistel Schemes with 5 or More Rounds,
/// 2004).
const ROUNDS: u64 = 6;

/// The place of `i` in the permutation of `0..n` that `key` names: a Feistel network on the least even number of bits
/// that holds `n`, walked until it lands below `n` (Black, Rogaway: Ciphers with Arbitrary Finite Domains, 2002).
fn permute(i: u64, n: u64, key: u64) -> u64 {
    let half = (u64::BITS - (n - 1).leading_zeros()).div_ceil(2);
    let mask = (1 << half) - 1;
    let mut at = i;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..ROUNDS {
            let scattered = mix(mix(key.wrapping_add(round)) ^ right) & mask;
            (left, right) = (right, left ^ scattered);
        }
        at = left << half | right;
        if at < n {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{END_OF_DOCUMENT, Role};
    use super::*;

    fn part(documents: &[&[u8]]) -> Part {
        Part::whole(documents)
    }

    fn numbers(count: usize) -> Part {
        part(&[&(0..count).map(|i| i as u8).collect::<Vec<_>>()])
    }

    /// Documents that start again make a sequence as long as the longest of them.
    #[test]
    fn lengths_are_those_of_positions() {
        let batch = Batch { positions: vec![0, 1, 2, 3, 0, 1, 0, 0], ..Batch::default() };
        assert_eq!(batch.lengths(4), [4, 4, 4, 4, 2, 2, 2, 2]);
        assert_eq!(batch.lengths(8), [4; 8]);
    }

    #[test]
    fn windows_by_hand() {
        let part = part(&[b"ab", b"cdefg"]);
        let sampler = Sampler::in_order(&part, 4).unwrap();
        assert_eq!(sampler.windows(), 2);
        let mut batch = Batch::default();
        sampler.fill(0, 2, &mut batch).unwrap();
        let [a, c, end] = [i32::from(b'a'), i32::from(b'c'), i32::from(END_OF_DOCUMENT)];
        assert_eq!(batch.tokens, [a, a + 1, end, c, c + 1, c + 2, c + 3, c + 4]);
        assert_eq!(batch.labels, [a + 1, end, -1, c + 1, c + 2, c + 3, c + 4, end]);
        assert_eq!(batch.positions, [0, 1, 2, 0, 0, 1, 2, 3]);
        assert_eq!(batch.segments, [0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(batch.valid_labels(), 7);
    }

    #[test]
    fn a_run_cut_off_inside_a_document_has_no_label_either() {
        let mut part = Part::new(Role::Training, "test".into(), vec![b"abcd!".to_vec()].into());
        [0..2, 2..4].into_iter().for_each(|run| part.push(0, run));
        let mut batch = Batch::default();
        Sampler::in_order(&part, 3).unwrap().fill(0, 1, &mut batch).unwrap();
        assert_eq!(batch.labels, [98, -1, 100]);
        assert_eq!(batch.segments, [0, 0, 1]);
    }

    #[test]
    fn an_epoch_has_every_label_once() {
        let part = numbers(200);
        let sampler = Sampler::new(&part, 4, 7).unwrap();
        assert_eq!(sampler.windows(), 50);
        for epoch in 0..3 {
            let mut batch = Batch::default();
            sampler.fill(epoch * 50, 50, &mut batch).unwrap();
            batch.labels.sort_unstable();
            assert_eq!(batch.labels, (1..200).chain([256]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn resuming_gives_the_same_samples() {
        let part = numbers(100);
        let (mut whole, mut piece) = (Batch::default(), Batch::default());
        Sampler::new(&part, 3, 1).unwrap().fill(20, 30, &mut whole).unwrap();
        let mut tokens = Vec::new();
        for first in (20..50).step_by(5) {
            Sampler::new(&part, 3, 1).unwrap().fill(first, 5, &mut piece).unwrap();
            tokens.extend_from_slice(&piece.tokens);
        }
        assert_eq!(whole.tokens, tokens);
    }

    #[test]
    fn order_changes_with_seed_and_epoch() {
        let part = numbers(250);
        let order = |seed, epoch: u64| {
            let sampler = Sampler::new(&part, 2, seed).unwrap();
            (0..125).map(|i| sampler.window(epoch * 125 + i)).collect::<Vec<_>>()
        };
        assert_ne!(order(0, 0), (0..125).collect::<Vec<_>>());
        assert_ne!(order(0, 0), order(0, 1));
        assert_ne!(order(0, 0), order(1, 0));
        assert_ne!(order(0, 1), order(1, 0));
    }

    #[test]
    fn permute_is_a_permutation_of_any_size() {
        for n in (1..70).chain([255, 256, 257, 4097]) {
            let mut seen: Vec<u64> = (0..n).map(|i| permute(i, n, 3)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..n), "n = {n}");
        }
    }

    #[test]
    fn permute_sends_each_place_everywhere() {
        // 4000 keys over 10 places: 400 expected, standard deviation 19.
        for i in 0..10 {
            let mut hits = [0; 10];
            (0..4000).for_each(|key| hits[permute(i, 10, mix(key)) as usize] += 1);
            assert!(hits.iter().all(|hit| (300..500).contains(hit)), "{i} goes to {hits:?}");
        }
    }

    #[test]
    fn one_token_too_few_is_an_error() {
        let part = part(&[b"abc"]);
        assert_eq!(Sampler::new(&part, 3, 0).unwrap().windows(), 1);
        assert!(matches!(Sampler::new(&part, 4, 0), Err(DataError::TooLittle { tokens: 4, seq: 4, .. })));
        assert!(matches!(Sampler::new(&part, usize::MAX, 0), Err(DataError::TooLittle { .. })));
        assert!(matches!(Sampler::new(&part, 0, 0), Err(DataError::EmptySequence)));
    }
}
