//! Numbers formatted for people.

/// `950`, `12.3k`, `2.4M`, `8.03B`: three digits and a power of a thousand.
pub fn count(n: f64) -> String {
    let powers = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    match powers.iter().find(|(power, _)| n >= *power) {
        Some((power, letter)) => format!("{}{letter}", three_digits(n / power)),
        None => format!("{n:.0}"),
    }
}

/// `0.00123`, `12.3`, `123`, `12.3k`: three digits.
pub fn significant(n: f64) -> String {
    let size = n.abs();
    if size >= 999.5 || size == 0.0 {
        return count(n);
    }
    let decimals = 2.0 - size.log10().floor();
    if decimals > 12.0 { format!("{n:.2e}") } else { format!("{n:.*}", decimals.max(0.0) as usize) }
}

/// `950 B`, `1.50 TB/s`, `989 TFLOP/s`: three digits and a unit with a prefix of the SI.
pub fn with_unit(n: f64, unit: &str) -> String {
    let prefixes = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match prefixes.iter().find(|(power, _)| n >= *power) {
        Some((power, prefix)) => format!("{} {prefix}{unit}", three_digits(n / power)),
        None => format!("{} {unit}", three_digits(n)),
    }
}

/// `950 B`, `12.3 kB`, `2.41 MB`: three digits and a power of a thousand.
pub fn bytes(n: u64) -> String {
    let powers = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match powers.iter().find(|(power, _)| n as f64 >= *power) {
        Some((power, unit)) => format!("{} {unit}", three_digits(n as f64 / power)),
        None => format!("{n} B"),
    }
}

fn three_digits(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{n:.2e}"),
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// `0`, `83.0 ns`, `11.0 us`, `2.41 ms`, `12.3 s`: three digits of what computers take.
pub fn time(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")];
    match units.iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) => format!("{} {name}", three_digits(seconds / unit)),
        None if seconds > 0.0 => format!("{} ns", three_digits(seconds / 1e-9)),
        None => "0".to_string(),
    }
}

/// Seconds from which hours are printed as a power of ten.
const LONG: u64 = 3_600_000_000_000;

/// `7.2 s`, `2m 31s`, `1h 02m`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        LONG.. => format!("{:.2e} h", seconds / 3600.0),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// ` 12.3 %`
pub fn percent(share: f64) -> String {
    format!("{:5.1} %", 100.0 * share)
}

/// `12.3 ms`, `4.5 s`.
pub fn short(time: f64) -> String {
    match time {
        time if time >= 1.0 => seconds(time),
        time if time >= 1e-3 => format!("{:.2} ms", time * 1e3),
        time => format!("{:.1} us", time * 1e6),
    }
}

/// `1 device`, `8 devices`.
pub fn plural(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// A positive share, of which none is nothing: `6.1 %`, `less than 0.1 %`.
pub fn small_share(share: f64) -> String {
    if share > 0.0 && share < 5e-4 { "less than 0.1 %".to_string() } else { self::share(share) }
}

/// `6.1 %`, `17 %`.
pub fn share(share: f64) -> String {
    // A number that rounds to zero has no sign.
    let percent = if share.abs() < 5e-4 { 0.0 } else { 100.0 * share };
    match percent.abs() {
        size if size < 9.95 => format!("{percent:.1} %"),
        size if size < 1e9 => format!("{percent:.0} %"),
        _ => format!("{percent:.2e} %"),
    }
}

/// `76.3 GiB`; `7.4 MiB` of what would be 0.0.
pub fn gib(gib: f64) -> String {
    match gib.abs() {
        size if size < 0.05 => format!("{:.1} MiB", 1024.0 * gib),
        size if size < 1e9 => format!("{gib:.1} GiB"),
        _ => format!("{gib:.2e} GiB"),
    }
}

/// `12.3`; a power of ten where that is long.
pub fn tenths(number: f64) -> String {
    if number.abs() < 1e9 { format!("{number:.1}") } else { format!("{number:.2e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 950.0, 12_345.0, 2_412_096.0, 8_030_261_248.0].map(count),
            ["0", "950", "12.3k", "2.41M", "8.03B"]
        );
        assert_eq!(
            [0.0, 0.001234, 1.25, 99.96, 512.0, 999.7, 133_210.0].map(significant),
            ["0", "0.00123", "1.25", "100.0", "512", "1000", "133k"]
        );
        assert_eq!([0.0, 2e-10, 8.3e-8, 1.1e-5, 2.412e-3].map(time), ["0", "0.20 ns", "83.0 ns", "11.0 us", "2.41 ms"]);
        assert_eq!(
            [0.5, 1.5e12, 9.89e14, 8e10].map(|n| with_unit(n, "B/s")),
            ["0.50 B/s", "1.50 TB/s", "989 TB/s", "80.0 GB/s"]
        );
        assert_eq!([0, 950, 12_345, 2_412_096].map(bytes), ["0 B", "950 B", "12.3 kB", "2.41 MB"]);
        assert_eq!([0.061, -0.0061, -1e-4, 0.174].map(share), ["6.1 %", "-0.6 %", "0.0 %", "17 %"]);
        assert_eq!([7.21, 151.0, 3725.0].map(seconds), ["7.2 s", "2m 31s", "1h 02m"]);
    }

    #[test]
    fn no_number_is_long() {
        for n in [1e9, 1e30, 1e308, f64::MAX] {
            let texts = [count(n), with_unit(n, "B/s"), time(n), seconds(n), share(n), gib(n), tenths(n), short(n)];
            texts.iter().for_each(|text| assert!(text.len() < 32, "{text}"));
        }
    }
}
