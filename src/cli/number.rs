//! Numbers for people.

/// `950`, `12.3k`, `2.4M`, `8.03B`: three digits and a power of a thousand.
pub(super) fn count(n: f64) -> String {
    let powers = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    match powers.iter().find(|(power, _)| n >= *power) {
        Some((power, letter)) => format!("{}{letter}", three_digits(n / power)),
        None => format!("{n:.0}"),
    }
}

/// `950 B`, `12.3 kB`, `2.41 MB`: three digits and a power of a thousand.
pub(super) fn bytes(n: u64) -> String {
    let powers = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match powers.iter().find(|(power, _)| n as f64 >= *power) {
        Some((power, unit)) => format!("{} {unit}", three_digits(n as f64 / power)),
        None => format!("{n} B"),
    }
}

fn three_digits(n: f64) -> String {
    match n {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        n => format!("{n:.2}"),
    }
}

/// `7.2 s`, `2m 31s`, `1h 02m`.
pub(super) fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
    }
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
        assert_eq!([0, 950, 12_345, 2_412_096].map(bytes), ["0 B", "950 B", "12.3 kB", "2.41 MB"]);
        assert_eq!([7.21, 151.0, 3725.0].map(seconds), ["7.2 s", "2m 31s", "1h 02m"]);
    }
}
