//! Bigram baseline: the loss of a table of byte pairs, which a model that learns must undercut.

use super::{END_OF_DOCUMENT, Part};

const BYTES: usize = END_OF_DOCUMENT as usize;

/// Cross-entropy, in nats per byte, of a held-out byte given the byte before it, under the pair counts `c` of the
/// training part with one added to each:
///
/// ```text
/// H = -1/N * sum over held-out pairs (a, b) of ln( (c(a, b) + 1) / (c(a) + 256) ),   c(a) = sum over b of c(a, b)
/// ```
///
/// A pair is two neighbouring bytes of one segment; the end of a document is no byte. `None` where `valid` has no
/// pair.
pub fn bigram_entropy(train: &Part, valid: &Part) -> Option<f64> {
    let (seen, asked) = (pair_counts(train), pair_counts(valid));
    let pairs: u64 = asked.iter().sum();
    let mut nats = 0.0;
    for (seen, asked) in seen.chunks(BYTES).zip(asked.chunks(BYTES)) {
        let row = (seen.iter().sum::<u64>() + BYTES as u64) as f64;
        nats += seen.iter().zip(asked).map(|(&c, &n)| n as f64 * (row / (c + 1) as f64).ln()).sum::<f64>();
    }
    (pairs > 0).then(|| nats / pairs as f64)
}

/// How often byte `b` follows byte `a` within a segment, at `a * 256 + b`.
fn pair_counts(part: &Part) -> Vec<u64> {
    let mut counts = vec![0; BYTES * BYTES];
    for segment in part.segments() {
        for pair in segment.bytes.windows(2) {
            counts[usize::from(pair[0]) * BYTES + usize::from(pair[1])] += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(documents: &[&[u8]]) -> Part {
        Part::whole(documents)
    }

    fn assert_near(entropy: Option<f64>, expected: f64) {
        let entropy = entropy.expect("has pairs");
        assert!((entropy - expected).abs() < 1e-12, "{entropy} is not {expected}");
    }

    #[test]
    fn by_hand() {
        // Training pairs: ab twice, ba once, bb once. Held-out pairs: ab, bb, bc.
        let entropy = bigram_entropy(&part(&[b"abab", b"bb"]), &part(&[b"abbc"]));
        let (ab, bb, bc) = (3.0 / 258.0_f64, 2.0 / 258.0_f64, 1.0 / 258.0_f64);
        assert_near(entropy, -(ab.ln() + bb.ln() + bc.ln()) / 3.0);
    }

    #[test]
    fn without_training_text_all_bytes_are_equal() {
        assert_near(bigram_entropy(&part(&[]), &part(&[b"any text"])), 256f64.ln());
    }

    #[test]
    fn pairs_stay_within_segments() {
        assert_eq!(bigram_entropy(&part(&[b"ab"]), &part(&[b"a", b"b"])), None);
        assert_eq!(pair_counts(&part(&[b"ab", b"cd"])).iter().sum::<u64>(), 2);
    }
}
