//! Tokens of a program's own, in place of files: documents of ids, cut into samples as [`Sampler`](super::sampler::Sampler) cuts files.

use super::sampler::Batch;
use super::{DataError, Role};
use std::error::Error;
use std::sync::{Mutex, PoisonError};

/// The cause why a source has no sample.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Samples that a program makes.
pub trait TokenSource: Send + Sync {
    /// The pieces of documents that a sample of `tokens` tokens is, in order. The last piece has one id more, the label of the last
    /// token, if its document goes on.
    ///
    /// A run asks for its samples in order, each once. A resumed run begins behind those that were consumed, and every process of a run
    /// asks for all samples: there the source gives the same sample for the same number.
    ///
    /// # Errors
    /// There is no such sample, and the run ends.
    fn sample(&self, number: u64, tokens: usize) -> Result<Vec<Vec<u32>>, SourceError>;
}

/// Documents of an iterator, one after the other: each token but the last of a document is an input, and each but the first a label.
pub struct TokenStream {
    state: Mutex<StreamState>,
}

/// The state of a stream between two samples.
struct StreamState {
    pieces: Box<dyn Iterator<Item = Piece> + Send>,
    /// The rest of a document, as far as it was read.
    document: Vec<u32>,
    /// True if the document has no further tokens.
    is_whole: bool,
    /// The number of the sample that comes next.
    next: u64,
}

/// A part of a document.
struct Piece {
    tokens: Vec<u32>,
    ends_document: bool,
}

/// Tokens of a stream that are read at once.
const CHUNK: usize = 1 << 12;

impl TokenStream {
    /// A stream of documents.
    pub fn documents<I>(documents: I) -> TokenStream
    where
        I: IntoIterator<Item = Vec<u32>, IntoIter: Send + 'static>,
    {
        let pieces = documents.into_iter().map(|tokens| Piece { tokens, ends_document: true });
        TokenStream::of(Box::new(pieces))
    }

    /// A stream of tokens that are one document.
    pub fn tokens<I>(tokens: I) -> TokenStream
    where
        I: IntoIterator<Item = u32, IntoIter: Send + 'static>,
    {
        let mut tokens = tokens.into_iter();
        let pieces = std::iter::from_fn(move || {
            let tokens: Vec<u32> = tokens.by_ref().take(CHUNK).collect();
            (!tokens.is_empty()).then_some(Piece { tokens, ends_document: false })
        });
        TokenStream::of(Box::new(pieces))
    }

    fn of(pieces: Box<dyn Iterator<Item = Piece> + Send>) -> TokenStream {
        TokenStream { state: Mutex::new(StreamState { pieces, document: Vec::new(), is_whole: false, next: 0 }) }
    }
}

impl TokenSource for TokenStream {
    fn sample(&self, number: u64, tokens: usize) -> Result<Vec<Vec<u32>>, SourceError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if number < state.next {
            return Err(
                format!("an iterator does not go back to sample {number}: the next one is {}", state.next).into()
            );
        }
        // A resumed run goes on where the one before ended.
        while state.next < number {
            state.sample(tokens)?;
        }
        state.sample(tokens)
    }
}

impl StreamState {
    /// Takes the next sample.
    fn sample(&mut self, tokens: usize) -> Result<Vec<Vec<u32>>, SourceError> {
        let (mut left, mut sample) = (tokens, Vec::new());
        while left > 0 {
            self.read(left + 1)?;
            let inputs = left.min(self.document.len());
            // The label of the last input begins the next sample.
            sample.push(self.document[..self.document.len().min(inputs + usize::from(inputs == left))].to_vec());
            self.document.drain(..inputs);
            left -= inputs;
        }
        self.next += 1;
        Ok(sample)
    }

    /// Reads until the document has as many tokens or ends. One without tokens is left behind.
    fn read(&mut self, tokens: usize) -> Result<(), SourceError> {
        while self.document.len() < tokens && (!self.is_whole || self.document.is_empty()) {
            match self.pieces.next() {
                Some(piece) => {
                    self.document.extend(piece.tokens);
                    self.is_whole = piece.ends_document;
                }
                None if self.document.is_empty() => {
                    return Err(format!("the tokens end after {} samples", self.next).into());
                }
                None => self.is_whole = true,
            }
        }
        Ok(())
    }
}

/// Held-out documents in memory, cut into samples.
pub struct ValidationTokens {
    samples: Vec<Vec<Vec<u32>>>,
    tokens: usize,
}

impl ValidationTokens {
    /// Cuts documents into samples of `seq` tokens. A rest that is no whole sample is left out.
    ///
    /// # Errors
    /// There is no whole sample.
    pub fn cut(documents: Vec<Vec<u32>>, seq: usize) -> Result<ValidationTokens, DataError> {
        if seq == 0 {
            return Err(DataError::EmptySequence);
        }
        let tokens = documents.iter().map(Vec::len).sum();
        let stream = TokenStream::documents(documents);
        let samples: Vec<_> = (0..).map_while(|number| stream.sample(number, seq).ok()).collect();
        if samples.is_empty() {
            return Err(DataError::TooLittle { path: "the program's tokens".into(), role: Role::HeldOut, tokens, seq });
        }
        Ok(ValidationTokens { tokens: samples.len() * seq, samples })
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        self.samples.len() as u64
    }

    /// The number of tokens in samples.
    pub fn tokens(&self) -> u64 {
        self.tokens as u64
    }
}

impl TokenSource for ValidationTokens {
    fn sample(&self, number: u64, _: usize) -> Result<Vec<Vec<u32>>, SourceError> {
        let place = number % self.samples().max(1);
        Ok(self.samples.get(place as usize).ok_or("there are no held-out samples")?.clone())
    }
}

/// The samples of a source for a model.
pub struct SourceSamples<'a> {
    /// The source.
    pub source: &'a dyn TokenSource,
    /// Tokens of a sample.
    pub seq: usize,
    /// Ids must be below.
    pub vocabulary: u64,
    /// Samples of an epoch, if the source has epochs.
    pub windows: Option<u64>,
}

impl SourceSamples<'_> {
    /// Adds a sample to a batch.
    pub(crate) fn add(&self, number: u64, batch: &mut Batch) -> Result<(), DataError> {
        let pieces = self.checked(number).map_err(|why| DataError::Source { sample: number, why })?;
        let mut left = self.seq;
        for (segment, piece) in (0..).zip(&pieces) {
            let inputs = piece.len().min(left);
            batch.push(segment, piece, inputs);
            left -= inputs;
        }
        Ok(())
    }

    /// A sample with the right number of tokens, all of which the model has.
    fn checked(&self, number: u64) -> Result<Vec<Vec<u32>>, SourceError> {
        let pieces = self.source.sample(number, self.seq)?;
        check_lengths(&pieces, self.seq)?;
        match pieces.iter().flatten().find(|&&id| u64::from(id) >= self.vocabulary) {
            Some(id) => Err(format!("it has the id {id}, but the model has {} tokens", self.vocabulary).into()),
            None => Ok(pieces),
        }
    }
}

/// Checks that pieces have the tokens of a sample, and no more than the label of the last one.
fn check_lengths(pieces: &[Vec<u32>], seq: usize) -> Result<(), SourceError> {
    let ids: usize = pieces.iter().map(Vec::len).sum();
    let last = pieces.last().map_or(0, Vec::len);
    match ids.checked_sub(seq) {
        Some(0) => Ok(()),
        Some(1) if last > 1 => Ok(()),
        Some(1) => Err("its last piece is a label alone".into()),
        _ => Err(format!("it has {ids} tokens, where {seq} or {} are wanted", seq + 1).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::Sampler;
    use super::super::samples::Samples;
    use super::super::{END_OF_DOCUMENT, Part};
    use super::*;
    use ir::diag::Coded;

    /// Documents of some lengths, with other bytes each.
    fn documents(lengths: &[usize]) -> Vec<Vec<u8>> {
        let byte = |document: usize, at: usize| (document * 41 + at * 7) as u8;
        let document = |(number, &length): (usize, &usize)| (0..length).map(|at| byte(number, at)).collect();
        lengths.iter().enumerate().map(document).collect()
    }

    /// Ids of a document of bytes, as files have them.
    fn ids(document: &[u8]) -> Vec<u32> {
        document.iter().map(|&byte| u32::from(byte)).chain([u32::from(END_OF_DOCUMENT)]).collect()
    }

    fn batch(source: &dyn TokenSource, seq: usize, samples: std::ops::Range<u64>) -> Result<Batch, DataError> {
        let samples_of = Samples::Source(SourceSamples { source, seq, vocabulary: 257, windows: None });
        let mut batch = Batch::default();
        let count = samples.end - samples.start;
        samples_of.fill(samples.start, count as usize, &mut batch).map(|()| batch)
    }

    #[test]
    fn documents_are_cut_as_files_are() {
        for lengths in [&[20, 1, 0, 33, 5, 64][..], &[7; 12], &[100]] {
            let bytes = documents(lengths);
            let parts: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let part = Part::whole(&parts);
            for seq in [1, 3, 8, 31] {
                let sampler = Sampler::in_order(&part, seq).unwrap();
                let mut want = Batch::default();
                sampler.fill(0, sampler.windows() as usize, &mut want).unwrap();
                let stream = TokenStream::documents(bytes.iter().map(|document| ids(document)).collect::<Vec<_>>());
                assert_eq!(batch(&stream, seq, 0..sampler.windows()).unwrap(), want, "{lengths:?} in {seq}");
            }
        }
    }

    #[test]
    fn tokens_are_one_document() {
        let numbers = |count: u32| (0..count).map(|x| x % 251);
        for seq in [1, 10, 5000] {
            let [one, other] =
                [TokenStream::tokens(numbers(20_001)), TokenStream::documents([numbers(20_001).collect::<Vec<_>>()])];
            let samples = 20_000 / seq as u64;
            assert_eq!(batch(&one, seq, 0..samples).unwrap(), batch(&other, seq, 0..samples).unwrap());
        }
    }

    #[test]
    fn a_later_sample_is_the_same_and_an_earlier_one_is_refused() {
        let stream = || TokenStream::documents(documents(&[9, 30, 2, 50]).into_iter().map(|document| ids(&document)));
        let (all, late) = (batch(&stream(), 4, 0..20).unwrap(), stream());
        assert_eq!(batch(&late, 4, 11..20).unwrap().tokens, all.tokens[44..]);
        let why = batch(&late, 4, 3..4).unwrap_err();
        assert_eq!(
            why.to_string(),
            "sample 3 of the program's tokens: an iterator does not go back to sample 3: the next one is 20"
        );
        let why = batch(&late, 4, 20..40).unwrap_err();
        assert!(why.to_string().contains("the tokens end after 23 samples") && why.help().is_some(), "{why}");
    }

    #[test]
    fn samples_that_cannot_be_are_refused() {
        struct Fixed(Vec<Vec<u32>>);
        impl TokenSource for Fixed {
            fn sample(&self, _: u64, _: usize) -> Result<Vec<Vec<u32>>, SourceError> {
                Ok(self.0.clone())
            }
        }
        for (pieces, why) in [
            (vec![vec![1, 2]], "it has 2 tokens, where 4 or 5 are wanted"),
            (vec![vec![1; 6]], "it has 6 tokens"),
            (vec![vec![1; 4], vec![2]], "its last piece is a label alone"),
            (Vec::new(), "it has 0 tokens"),
            (vec![vec![1, 2, 3, 257, 5]], "the id 257, but the model has 257 tokens"),
        ] {
            let refused = batch(&Fixed(pieces), 4, 0..1).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        let right = batch(&Fixed(vec![vec![7], vec![8, 9, 10, 11]]), 4, 0..1).unwrap();
        assert_eq!((right.labels, right.positions), (vec![-1, 9, 10, 11], vec![0, 0, 1, 2]));
    }

    #[test]
    fn held_out_documents_have_whole_samples_again_and_again() {
        let ids: Vec<Vec<u32>> = documents(&[9, 30]).iter().map(|document| ids(document)).collect();
        let held = ValidationTokens::cut(ids.clone(), 4).unwrap();
        assert_eq!((held.samples(), held.tokens()), (10, 40));
        assert_eq!(batch(&held, 4, 10..20).unwrap(), batch(&held, 4, 0..10).unwrap());
        assert!(matches!(ValidationTokens::cut(ids.clone(), 100), Err(DataError::TooLittle { .. })));
        assert!(matches!(ValidationTokens::cut(ids, 0), Err(DataError::EmptySequence)));
    }
}
