//! Exported files with one thing wrong: reading one is refused or warns, and never gives another layout in silence.

use super::*;
use crate::maxtext::Devices;

/// An exported file, and the reader of its framework.
struct Sample {
    target: Target,
    text: String,
}

/// Devices of the jobs.
const DEVICES: u64 = 64;

impl Sample {
    fn of(target: Target, change: impl FnOnce(&mut ParallelConfig)) -> Sample {
        Sample { target, text: exported(&job(change), target).text }
    }

    fn all() -> Vec<Sample> {
        let rich = |parallel: &mut ParallelConfig| {
            (parallel.dp, parallel.tp, parallel.pp, parallel.cp, parallel.sp, parallel.zero) = (4, 4, 2, 2, true, 1);
            parallel.recompute = "selective:core_attn+mlp".parse().unwrap();
        };
        let plain = |zero| {
            move |parallel: &mut ParallelConfig| {
                (parallel.dp, parallel.tp, parallel.pp, parallel.sp, parallel.zero) = (8, 4, 2, true, zero)
            }
        };
        vec![
            Sample::of(Target::Megatron, rich),
            Sample::of(Target::Torchtitan, plain(3)),
            Sample::of(Target::Nanotron, plain(1)),
            Sample::of(Target::Deepspeed, |parallel| (parallel.dp, parallel.zero) = (64, 2)),
            Sample::of(Target::Maxtext, plain(3)),
        ]
    }

    fn read(&self, text: &str) -> Result<Present, FlagError> {
        match self.target {
            Target::Megatron => megatron::read(text, Some(DEVICES)),
            Target::Torchtitan => torchtitan_file::read(text, Form::Python(None), Some(DEVICES)),
            Target::Nanotron => nanotron_file::read(text),
            Target::Deepspeed => deepspeed_file::read(text, Some(DEVICES)),
            Target::Maxtext => maxtext::read(text, Some(Devices { count: DEVICES, per_node: 8 })),
            Target::MegatronBridge | Target::TorchPipelining => panic!("no file of it is read here"),
        }
    }

    /// Places of keys and of values in lines that state one, without comments.
    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let mut from = 0;
        for line in self.text.split_inclusive('\n') {
            let body = line.trim_start();
            let start = from + line.len() - body.len();
            from += line.len();
            let (key, value) = match self.target {
                Target::Megatron => body.strip_prefix("--").map_or((0..0, 0..0), |flag| parts(flag, start + 2, ' ')),
                Target::Torchtitan => {
                    body.strip_prefix("config.").map_or((0..0, 0..0), |field| parts(field, start + 7, '='))
                }
                Target::Deepspeed => body.strip_prefix('"').map_or((0..0, 0..0), |key| parts(key, start + 1, '"')),
                _ if body.starts_with('#') => continue,
                _ => parts(body, start, ':'),
            };
            if !key.is_empty() {
                places.push(Place { key, value });
            }
        }
        places
    }
}

/// A key of a file with its value, as ranges of bytes.
struct Place {
    key: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

/// The ranges of what is before and behind a separator of a line that begins at a byte.
fn parts(line: &str, start: usize, separator: char) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
    let line = line.trim_end().trim_end_matches([',', '\\']).trim_end();
    let Some((key, rest)) = line.split_once(separator) else { return (start..start + line.len(), 0..0) };
    let key = key.trim_end();
    let value = rest.trim_start_matches([':', ' ', '=']);
    let at = start + line.len() - value.len();
    (start..start + key.len(), at..at + value.len())
}

fn replaced(text: &str, place: &std::ops::Range<usize>, by: &str) -> String {
    format!("{}{by}{}", &text[..place.start], &text[place.end..])
}

/// The layout that is read from a spoiled file, if it is another one and nothing says so.
fn fault(sample: &Sample, own: &Present, text: &str) -> Option<String> {
    let read = sample.read(text).ok()?;
    let is_told = read.warnings != own.warnings;
    (!is_told && read != *own).then_some(read.parallel)
}

/// Checks that no spoiled file is read as another layout in silence.
#[track_caller]
fn check(what: &str, spoil: impl Fn(&Sample) -> Vec<String>) {
    for sample in Sample::all() {
        let own = sample.read(&sample.text).unwrap();
        for text in spoil(&sample) {
            if let Some(parallel) = fault(&sample, &own, &text) {
                let [first, second] =
                    [&sample.text, &text].map(|text| text.lines().map(str::to_string).collect::<Vec<_>>());
                let line =
                    first.iter().zip(&second).position(|(a, b)| a != b).unwrap_or(second.len().saturating_sub(1));
                panic!("{}: {what} `{}` reads {parallel}, not {}", sample.target.name(), second[line], own.parallel);
            }
        }
    }
}

#[test]
fn a_key_with_another_letter_is_told() {
    check("a letter of a key", |sample| {
        let places = sample.places().into_iter().flat_map(|place| place.key);
        let letters = places.step_by(5).filter(|at| sample.text.as_bytes()[*at].is_ascii_alphanumeric());
        letters.flat_map(|at| ["", "q"].map(|by| replaced(&sample.text, &(at..at + 1), by))).collect()
    });
}

#[test]
fn a_value_of_no_meaning_is_told() {
    check("a value", |sample| {
        let values = sample.places().into_iter().map(|place| place.value).filter(|value| !value.is_empty());
        values.flat_map(|value| NONSENSE.map(|by| replaced(&sample.text, &value, by))).collect()
    });
}

/// Values that no key of a layout takes.
const NONSENSE: [&str; 6] = ["banana", "-3", "1e99", "[7]", "\"\"", "99999999999999999999999"];

/// Ends within a list, a text or a statement are told. Files of lines that each stand alone may end behind any.
#[test]
fn a_file_that_ends_early_is_told() {
    check("an end", |sample| {
        let lines = matches!(sample.target, Target::Nanotron | Target::Maxtext);
        let ends = (0..sample.text.len()).step_by(5).filter(|end| sample.text.is_char_boundary(*end));
        ends.filter(|_| !lines).map(|end| sample.text[..end].to_string()).collect()
    });
    for sample in Sample::all() {
        (0..sample.text.len()).step_by(5).for_each(|end| drop(sample.text.get(..end).map(|text| sample.read(text))));
    }
}

/// A framework that takes the last of two values is read like that.
#[test]
fn a_key_that_is_there_twice_is_refused_or_the_last_one_holds() {
    for sample in Sample::all() {
        for Place { key, value } in sample.places().into_iter().filter(|place| !place.value.is_empty()) {
            let line = sample.text[..key.start].rfind('\n').map_or(0, |at| at + 1)
                ..sample.text[value.end..].find('\n').map_or(sample.text.len(), |at| value.end + at + 1);
            let stated = &sample.text[line.clone()];
            let other = stated.replacen(&sample.text[value.clone()], "2", 1);
            let [alone, twice] =
                [other.clone(), format!("{stated}{other}")].map(|by| sample.read(&replaced(&sample.text, &line, &by)));
            let is_last = twice.is_ok() && twice == alone;
            assert!(twice.is_err() || is_last, "{} {stated}", sample.target.name());
        }
    }
}
