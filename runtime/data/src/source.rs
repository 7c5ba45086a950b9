//! Tokens of a program's own, in place of files: documents of ids, cut into samples as [`Sampler`](super::sampler::Sampler) cuts files, or
//! examples with labels of their own, which fill samples in order ([`TokenStream::examples`]).

mod documents;
mod examples;

use super::sampler::Batch;
use super::tokens::NO_LABEL;
use super::{DataError, Role};
use documents::{Chunk, Documents};
use examples::Examples;
use std::error::Error;
use std::sync::{Mutex, PoisonError};

/// The cause why a source has no sample.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// A document or a part of one. Labels of its own make it an example of fine-tuning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenPiece {
    /// Its tokens.
    pub ids: Vec<u32>,
    /// A label for each id: the id where the loss counts its prediction from the ids before it, a negative number such as -100 where it
    /// does not. Without labels all count.
    pub labels: Option<Vec<i32>>,
}

impl From<Vec<u32>> for TokenPiece {
    fn from(ids: Vec<u32>) -> TokenPiece {
        TokenPiece { ids, labels: None }
    }
}

impl TokenPiece {
    /// An example, whose loss counts the labels that are not negative.
    pub fn example(ids: Vec<u32>, labels: Vec<i32>) -> TokenPiece {
        TokenPiece { ids, labels: Some(labels) }
    }

    /// Checks that each id has a label.
    fn check(&self) -> Result<(), SourceError> {
        match &self.labels {
            Some(labels) if labels.len() != self.ids.len() => {
                Err(format!("an example has {} tokens, but {} labels", self.ids.len(), labels.len()).into())
            }
            _ => Ok(()),
        }
    }

    /// The label of the id at a place, if there is one that counts.
    fn label(&self, at: usize) -> Option<i32> {
        match &self.labels {
            Some(labels) => labels.get(at).copied().filter(|&label| label >= 0),
            None => self.ids.get(at).map(|&id| id.cast_signed()),
        }
    }

    /// Labels of the ids behind the first `inputs` ids, which these are trained to predict; [`NO_LABEL`] where none counts.
    fn targets(&self, inputs: usize) -> impl Iterator<Item = i32> {
        (1..=inputs).map(|at| self.label(at).unwrap_or(NO_LABEL))
    }
}

/// Samples that a program makes.
pub trait TokenSource: Send + Sync {
    /// The pieces of documents that a sample of `tokens` tokens is, in order. The last piece has one id more, the label of the last
    /// token, if its document goes on. A sample with labels of its own may have fewer tokens: what it has fills it once more, without labels.
    ///
    /// A run asks for its samples in order, each once. A resumed run begins behind those that were consumed, and every process of a run
    /// asks for all samples: there the source gives the same sample for the same number.
    ///
    /// # Errors
    /// There is no such sample, and the run ends.
    fn sample(&self, number: u64, tokens: usize) -> Result<Vec<TokenPiece>, SourceError>;
}

/// Samples of an iterator, one after the other.
pub struct TokenStream {
    state: Mutex<StreamState>,
}

/// The state of a stream between two samples.
struct StreamState {
    samples: Box<dyn NextSample + Send>,
    /// The number of the sample that comes next.
    next: u64,
}

/// An iterator that is cut into samples.
trait NextSample {
    /// The pieces of the next sample of `tokens` tokens; none at the end.
    ///
    /// # Errors
    /// What the iterator gives is no document.
    fn sample(&mut self, tokens: usize) -> Result<Option<Vec<TokenPiece>>, SourceError>;
}

/// Tokens of a stream that are read at once.
const CHUNK: usize = 1 << 12;

impl TokenStream {
    /// A stream of documents: each token but the last of a document is an input, and each but the first a label.
    pub fn documents<I>(documents: I) -> TokenStream
    where
        I: IntoIterator<Item = Vec<u32>, IntoIter: Send + 'static>,
    {
        let chunks = documents.into_iter().map(|tokens| Chunk { tokens, ends_document: true });
        TokenStream::of(Documents::new(chunks))
    }

    /// A stream of tokens that are one document.
    pub fn tokens<I>(tokens: I) -> TokenStream
    where
        I: IntoIterator<Item = u32, IntoIter: Send + 'static>,
    {
        let mut tokens = tokens.into_iter();
        let chunks = std::iter::from_fn(move || {
            let tokens: Vec<u32> = tokens.by_ref().take(CHUNK).collect();
            (!tokens.is_empty()).then_some(Chunk { tokens, ends_document: false })
        });
        TokenStream::of(Documents::new(chunks))
    }

    /// A stream of examples. A sample has whole examples, as many as follow each other within it. What exceeds a sample is cut off, and an
    /// example without a label that counts is left out.
    pub fn examples<I>(examples: I) -> TokenStream
    where
        I: IntoIterator<Item = TokenPiece, IntoIter: Send + 'static>,
    {
        TokenStream::of(Examples::new(examples.into_iter()))
    }

    fn of(samples: impl NextSample + Send + 'static) -> TokenStream {
        TokenStream { state: Mutex::new(StreamState { samples: Box::new(samples), next: 0 }) }
    }
}

impl TokenSource for TokenStream {
    fn sample(&self, number: u64, tokens: usize) -> Result<Vec<TokenPiece>, SourceError> {
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
    fn sample(&mut self, tokens: usize) -> Result<Vec<TokenPiece>, SourceError> {
        let sample =
            self.samples.sample(tokens)?.ok_or_else(|| format!("the tokens end after {} samples", self.next))?;
        self.next += 1;
        Ok(sample)
    }
}

/// Held-out documents in memory, cut into samples.
pub struct ValidationTokens {
    samples: Vec<Vec<TokenPiece>>,
    tokens: usize,
}

impl ValidationTokens {
    /// Cuts documents into samples of `seq` tokens, or fills samples with them if some have labels of their own. A rest of documents that is
    /// no whole sample is left out.
    ///
    /// # Errors
    /// There is no whole sample.
    pub fn cut(documents: Vec<TokenPiece>, seq: usize) -> Result<ValidationTokens, DataError> {
        if seq == 0 {
            return Err(DataError::EmptySequence);
        }
        let tokens = documents.iter().map(|document| document.ids.len()).sum();
        let stream = match documents.iter().any(|document| document.labels.is_some()) {
            true => TokenStream::examples(documents),
            false => TokenStream::documents(documents.into_iter().map(|document| document.ids)),
        };
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
    fn sample(&self, number: u64, _: usize) -> Result<Vec<TokenPiece>, SourceError> {
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
        let (begin, mut left) = (batch.tokens.len(), self.seq);
        for (segment, piece) in (0..).zip(&pieces) {
            let inputs = piece.ids.len().min(left);
            batch.push_labelled(segment, &piece.ids[..inputs], piece.targets(inputs));
            left -= inputs;
        }
        batch.has_examples |= pieces.iter().any(|piece| piece.labels.is_some());
        batch.repeat(begin, self.seq);
        Ok(())
    }

    /// A sample with the right number of tokens, all of which the model has.
    fn checked(&self, number: u64) -> Result<Vec<TokenPiece>, SourceError> {
        let pieces = self.source.sample(number, self.seq)?;
        pieces.iter().try_for_each(TokenPiece::check)?;
        check_lengths(&pieces, self.seq)?;
        let ids = pieces.iter().flat_map(|piece| &piece.ids).copied();
        let labels = pieces.iter().filter_map(|piece| piece.labels.as_ref()).flatten();
        let labels = labels.filter_map(|&label| u32::try_from(label).ok());
        match ids.chain(labels).find(|&id| u64::from(id) >= self.vocabulary) {
            Some(id) => Err(format!("it has the id {id}, but the model has {} tokens", self.vocabulary).into()),
            None => Ok(pieces),
        }
    }
}

/// Checks that pieces have the tokens of a sample, and no more than the label of the last one. With labels of their own they may have fewer.
fn check_lengths(pieces: &[TokenPiece], seq: usize) -> Result<(), SourceError> {
    let ids: usize = pieces.iter().map(|piece| piece.ids.len()).sum();
    let last = pieces.last().map_or(0, |piece| piece.ids.len());
    let may_be_short = pieces.iter().any(|piece| piece.labels.is_some());
    match ids.checked_sub(seq) {
        Some(0) => Ok(()),
        Some(1) if last > 1 => Ok(()),
        Some(1) => Err("its last piece is a label alone".into()),
        None if may_be_short && ids > 0 => Ok(()),
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
        struct Fixed(Vec<TokenPiece>);
        impl TokenSource for Fixed {
            fn sample(&self, _: u64, _: usize) -> Result<Vec<TokenPiece>, SourceError> {
                Ok(self.0.clone())
            }
        }
        for (pieces, why) in [
            (vec![vec![1, 2].into()], "it has 2 tokens, where 4 or 5 are wanted"),
            (vec![vec![1; 6].into()], "it has 6 tokens"),
            (vec![vec![1; 4].into(), vec![2].into()], "its last piece is a label alone"),
            (Vec::new(), "it has 0 tokens"),
            (vec![vec![1, 2, 3, 257, 5].into()], "the id 257, but the model has 257 tokens"),
            (vec![TokenPiece::example(vec![1, 2], vec![1])], "an example has 2 tokens, but 1 labels"),
            (vec![TokenPiece::example(vec![1, 2], vec![-100, 300])], "the id 300, but the model has 257 tokens"),
            (vec![TokenPiece::example(Vec::new(), Vec::new())], "it has 0 tokens"),
        ] {
            let refused = batch(&Fixed(pieces), 4, 0..1).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        let right = batch(&Fixed(vec![vec![7].into(), vec![8, 9, 10, 11].into()]), 4, 0..1).unwrap();
        assert_eq!((right.labels, right.positions), (vec![-1, 9, 10, 11], vec![0, 0, 1, 2]));
    }

    /// An example whose first `prompt` labels do not count.
    fn example(ids: std::ops::Range<u32>, prompt: usize) -> TokenPiece {
        let labels = ids.clone().enumerate().map(|(at, id)| if at < prompt { -100 } else { id as i32 });
        TokenPiece::example(ids.clone().collect(), labels.collect())
    }

    #[test]
    fn examples_fill_samples_in_order() {
        let examples =
            [example(0..3, 2), example(10..12, 2), example(20..24, 1), example(30..40, 4), vec![50, 51].into()];
        let stream = TokenStream::examples(examples.clone());
        let batch = self::batch(&stream, 7, 0..3).unwrap();
        // The second example has no label. The last but one is cut off, and the label behind its last token counts.
        assert_eq!(batch.tokens, [0, 1, 2, 20, 21, 22, 23, 30, 31, 32, 33, 34, 35, 36, 50, 51, 50, 51, 50, 51, 50]);
        assert_eq!(batch.labels, [-1, 2, -1, 21, 22, 23, -1, -1, -1, -1, 34, 35, 36, 37, 51, -1, -1, -1, -1, -1, -1]);
        assert_eq!(batch.segments[..7], [0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(batch.positions[14..], [0, 1, 0, 1, 0, 1, 0]);
        assert_eq!((batch.repeated, batch.has_examples), (5, true));
        let why = self::batch(&stream, 7, 3..4).unwrap_err().to_string();
        assert!(why.contains("the tokens end after 3 samples"), "{why}");
        let held = ValidationTokens::cut(examples.into(), 7).unwrap();
        assert_eq!(held.samples(), 3);
    }

    #[test]
    fn held_out_documents_have_whole_samples_again_and_again() {
        let ids: Vec<TokenPiece> = documents(&[9, 30]).iter().map(|document| ids(document).into()).collect();
        let held = ValidationTokens::cut(ids.clone(), 4).unwrap();
        assert_eq!((held.samples(), held.tokens()), (10, 40));
        assert_eq!(batch(&held, 4, 10..20).unwrap(), batch(&held, 4, 0..10).unwrap());
        assert!(matches!(ValidationTokens::cut(ids.clone(), 100), Err(DataError::TooLittle { .. })));
        assert!(matches!(ValidationTokens::cut(ids, 0), Err(DataError::EmptySequence)));
    }
}
