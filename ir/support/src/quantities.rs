//! Quantities as people write them. Each kind has one parser, and a letter behind a number has one meaning within a kind.
//!
//! | kind | parser | behind the number |
//! |---|---|---|
//! | whole numbers: sequences, tokens of a sequence, devices, sizes of a model | [`count_of`] | `k` = 1,024 and `M` = 1,048,576 |
//! | amounts: tokens of a training | [`amount_of`] | `k`, `M`, `B`, `T`: powers of 1,000 |
//! | bytes | [`bytes_of`] | `kB`, `MB`, `GB`, `TB`: powers of 1,000; `KiB`, `MiB`, `GiB`, `TiB`: of 1,024 |
//! | prices | [`Price`] | a unit, or one before the number: `$2.5`, `2.5 EUR` |
//! | shares, seconds and other figures | [`finite`] | nothing |

use std::fmt;
use std::str::FromStr;

/// A letter behind a number, and the factor that it stands for.
type Letter = (&'static str, f64);

/// Letters of whole numbers: sizes are powers of two in most jobs.
const OF_COUNTS: [Letter; 2] = [("k", 1024.0), ("M", 1_048_576.0)];

/// Letters of amounts.
const OF_AMOUNTS: [Letter; 4] = [("k", 1e3), ("M", 1e6), ("B", 1e9), ("T", 1e12)];

/// Units of bytes, apart from their case.
const OF_BYTES: [Letter; 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// Bytes that no device exceeds.
const MOST_BYTES: f64 = 1e15;

/// Above this, an f64 skips whole numbers.
const MOST_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Reads a number. Infinite numbers and `nan` are refused, as no request can have them.
///
/// # Errors
/// The text is not one.
pub fn finite(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        Ok(_) => Err("it must be a finite number".to_string()),
        Err(_) => {
            let (number, rest) = split(text);
            Err(match (number.parse::<f64>(), rest) {
                (Ok(_), rest) => format!("it must be a number alone, without `{rest}`"),
                (Err(_), _) => "it must be a number, such as 8 or 0.5".to_string(),
            })
        }
    }
}

/// Reads a whole number of sequences, of tokens in a sequence, of devices, or a size of a model: `4096`, `8k` for 8,192.
///
/// # Errors
/// The text is not one.
pub fn count_of(text: &str) -> Result<u64, String> {
    if let Ok(exact) = text.parse() {
        return Ok(exact);
    }
    let form = "write a whole number, such as 8192, or one with k (1,024) or M (1,048,576) behind it, such as 8k";
    let number = scaled(text, &OF_COUNTS, form)?;
    if number.fract() != 0.0 {
        return Err(format!("{} is not whole; {form}", plain(number)));
    }
    if !(0.0..=MOST_WHOLE).contains(&number) {
        let limit = if number < 0.0 { "cannot be below zero" } else { "is too large" };
        return Err(format!("{} {limit}; {form}", plain(number)));
    }
    Ok(number as u64)
}

/// Reads an amount of tokens: `950`, `1.5k`, `2.4M`, `8B`, `14.8T`.
///
/// # Errors
/// The text is not one.
pub fn amount_of(text: &str) -> Result<f64, String> {
    scaled(text, &OF_AMOUNTS, "write a number, or one with k, M, B or T (powers of 1,000) behind it, such as 15T")
}

/// Reads a number of bytes: `8GiB`, `80GB`, `512MiB`, `4096`.
///
/// # Errors
/// The text is not one.
pub fn bytes_of(text: &str) -> Result<u64, String> {
    let form = "write a number of bytes, such as 80GB (powers of 1,000), 8GiB (of 1,024) or 4096";
    let (number, unit) = split(text);
    let number = finite(number).map_err(|_| form.to_string())?;
    let known = OF_BYTES.iter().find(|(name, _)| {
        name.eq_ignore_ascii_case(unit) || name.strip_suffix('B').is_some_and(|name| name.eq_ignore_ascii_case(unit))
    });
    match known {
        None => Err(format!("`{unit}` is no unit of bytes; {form}")),
        Some((_, factor)) if number > 0.0 && number * factor <= MOST_BYTES => Ok((number * factor) as u64),
        Some(_) => Err(format!("bytes are above zero and at most 1e15; {form}")),
    }
}

/// A price, in the unit in which it is given.
#[derive(Clone, PartialEq, Debug)]
pub struct Price {
    /// Its number.
    pub amount: f64,
    /// Its unit; empty if none is given.
    pub unit: String,
}

impl Price {
    /// The same unit with another number.
    #[must_use]
    pub fn with(&self, amount: f64) -> Price {
        Price { amount, unit: self.unit.clone() }
    }

    /// Text of the price with its number in a form.
    pub fn text(&self, form: fn(f64) -> String) -> String {
        let number = form(self.amount);
        match self.unit.chars().next() {
            None => number,
            Some(first) if first.is_alphabetic() => format!("{number} {}", self.unit),
            Some(_) => format!("{}{number}", self.unit),
        }
    }
}

impl From<f64> for Price {
    fn from(amount: f64) -> Price {
        Price { amount, unit: String::new() }
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|number| number.to_string()))
    }
}

impl FromStr for Price {
    type Err = String;

    /// Reads `2.5`, `$2.5`, `2.5EUR` or `2.5 EUR`.
    fn from_str(text: &str) -> Result<Price, String> {
        let text = text.trim();
        let start = text.find(|c: char| c.is_ascii_digit() || "+-.".contains(c)).unwrap_or(text.len());
        let (before, (number, after)) = (text[..start].trim(), split(&text[start..]));
        let unit = format!("{before}{after}");
        let is_unit = (before.is_empty() || after.is_empty())
            && unit.chars().all(|c| !c.is_ascii_digit() && !c.is_control() && !c.is_whitespace());
        match number.parse::<f64>() {
            Ok(amount) if amount.is_finite() && is_unit => Ok(Price { amount, unit }),
            _ => {
                Err("write a price as a number, with a unit before or behind it or without one: 2.5, $2.5, 2.5EUR"
                    .into())
            }
        }
    }
}

/// `8,192`: a whole number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with one of some letters, or none.
fn scaled(text: &str, letters: &[Letter], form: &str) -> Result<f64, String> {
    let (number, letter) = split(text);
    let factor = match letters.iter().find(|(name, _)| *name == letter) {
        _ if letter.is_empty() => 1.0,
        Some((_, factor)) => *factor,
        None if number.is_empty() => return Err(form.to_string()),
        None => return Err(format!("`{letter}` has no meaning behind it; {form}")),
    };
    Ok(finite(number).map_err(|_| form.to_string())? * factor)
}

/// The number at the beginning of a text, and what is behind it. An `e` belongs to a number if digits follow.
fn split(text: &str) -> (&str, &str) {
    let mut parts = (0..=text.len()).rev().filter_map(|at| text.split_at_checked(at));
    let is_number = parts.find(|(number, _)| {
        number.ends_with(|c: char| c.is_ascii_digit() || c == '.') && number.parse::<f64>().is_ok()
    });
    let (number, rest) = is_number.unwrap_or(("", text));
    (number.trim(), rest.trim())
}

/// A number without a needless fraction.
fn plain(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() <= MOST_WHOLE { format!("{number:.0}") } else { number.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_has_one_meaning_within_a_kind() {
        assert_eq!(
            [count_of("64"), count_of("1k"), count_of("1.5k"), count_of("1M")],
            [Ok(64), Ok(1024), Ok(1536), Ok(1 << 20)]
        );
        assert_eq!(
            [amount_of("14.8T"), amount_of("1e3"), amount_of("2M"), amount_of("1k")],
            [Ok(14.8e12), Ok(1e3), Ok(2e6), Ok(1e3)]
        );
        assert!(
            ["", "k", "1.5", "1.0001k", "-1k", "9kk", "1e30M", "2B", "nan", "inf"]
                .iter()
                .all(|text| count_of(text).is_err())
        );
        assert_eq!([8192, 999, 1_048_576, 0].map(grouped), ["8,192", "999", "1,048,576", "0"]);
    }

    #[test]
    fn what_is_wrong_with_a_number_is_said() {
        for (text, part) in [
            ("8kb", "`kb` has no meaning behind it"),
            ("8.5", "8.5 is not whole"),
            ("-8", "-8 cannot be below zero"),
            ("1e30", "is too large"),
            ("many", "write a whole number"),
        ] {
            let message = count_of(text).unwrap_err();
            assert!(message.contains(part) && message.contains("8k"), "{text}: {message}");
        }
        let message = amount_of("2TB").unwrap_err();
        assert!(message.contains("`TB` has no meaning behind it") && message.contains("15T"), "{message}");
        assert!(finite("8s").unwrap_err().contains("without `s`"));
    }

    #[test]
    fn a_number_of_the_command_line_is_finite() {
        assert_eq!(finite("-1e-3"), Ok(-0.001));
        assert!(["nan", "inf", "1e400", "much", ""].iter().all(|text| finite(text).is_err()));
    }

    #[test]
    fn bytes_have_units() {
        let read = ["8GiB", "80GB", "1.5MiB", "4096", "2kb", "8Gi", "1e9"].map(|text| bytes_of(text).unwrap());
        assert_eq!(read, [8 << 30, 80_000_000_000, 3 << 19, 4096, 2000, 8 << 30, 1_000_000_000]);
        assert!(["", "GiB", "8XB", "-1GB", "8G8", "1e300TB", "0"].iter().all(|text| bytes_of(text).is_err()));
    }

    #[test]
    fn prices_have_the_unit_that_is_given() {
        let text = |text: &str| text.parse::<Price>().map(|price| price.with(2.0 * price.amount).to_string());
        assert_eq!(text("2.5"), Ok("5".into()));
        assert_eq!(text("$2.5"), Ok("$5".into()));
        assert_eq!(text("2.5EUR"), Ok("5 EUR".into()));
        assert_eq!(text("2.5 EUR"), Ok("5 EUR".into()));
        assert_eq!(text("-1"), Ok("-2".into()));
        assert!(["", "$", "$2.5EUR", "nan", "2.5 a b", "2,5"].iter().all(|text| text.parse::<Price>().is_err()));
    }
}
