//! The grammar of `--pin`: a configuration's, and sets and ranges of values: `tp<=8,zero=1|3,schedule=1f1b|interleaved-1f1b`.

use super::{ParallelError, item, key_text, known, parse_any, print_items};
use ir::config_key::ConfigKey;
use ir::options::{ParallelConfig, Recompute};

/// Values of a key that a search may choose among.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Searched {
    /// Numbers: sets and ranges.
    Numbers,
    /// Others: sets.
    Words,
    /// Nothing.
    No,
}

impl Searched {
    fn of(key: ConfigKey) -> Searched {
        match key {
            ConfigKey::Dp | ConfigKey::Tp | ConfigKey::Pp | ConfigKey::Cp | ConfigKey::Ep | ConfigKey::Etp => {
                Searched::Numbers
            }
            ConfigKey::Zero | ConfigKey::Mbs | ConfigKey::Vp => Searched::Numbers,
            ConfigKey::Sp | ConfigKey::Schedule | ConfigKey::CpKind | ConfigKey::Recompute => Searched::Words,
            ConfigKey::Offload | ConfigKey::TpOverlap | ConfigKey::DpOverlap => Searched::Words,
            ConfigKey::RankOrder | ConfigKey::Group | ConfigKey::Slices | ConfigKey::Shard => Searched::No,
            ConfigKey::Gather | ConfigKey::OffloadOptimizer | ConfigKey::Stages => Searched::No,
        }
    }
}

/// The values that keys of a configuration may have.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pins {
    /// The keys that have one value.
    pub fixed: ParallelConfig,
    /// Their items, as text.
    items: Vec<(ConfigKey, String)>,
    /// The keys that have a set or a range.
    limits: Vec<Limit>,
}

/// The values that one key may have.
#[derive(Clone, PartialEq, Debug)]
struct Limit {
    key: ConfigKey,
    allowed: Allowed,
}

#[derive(Clone, PartialEq, Debug)]
enum Allowed {
    /// Values as printed.
    Set(Vec<String>),
    /// A number from the first to the second, both included.
    Range(u64, u64),
}

impl Pins {
    /// Reads pins; the empty text pins nothing.
    ///
    /// # Errors
    /// As [`parse_any`]; a set of a key that the search does not choose, a range of no number, or nothing in a set.
    pub fn parse(text: &str) -> Result<Pins, ParallelError> {
        let mut fixed = Vec::new();
        let mut limits: Vec<Limit> = Vec::new();
        for (name, values) in super::items(text)? {
            let value = values.join(",");
            let ends = [('<', 0), ('>', u64::MAX)]
                .into_iter()
                .find_map(|(sign, other)| Some((name.strip_suffix(sign)?, other)));
            if let Some((name, other)) = ends {
                let range = range(known(name.trim())?, &value, other)?;
                match limits.iter_mut().find(|limit| limit.key == range.key) {
                    Some(limit) => limit.narrow(range.allowed, text)?,
                    None => limits.push(range),
                }
            } else if value.contains('|') {
                let key = known(name)?;
                limits.push(Limit { key, allowed: set(key, &value)? });
            } else {
                fixed.push((known(name)?, value));
            }
        }
        let given = limits.iter().map(|limit| limit.key).chain(fixed.iter().map(|(key, _)| *key));
        for limit in &limits {
            if given.clone().filter(|key| *key == limit.key).count() > 1 {
                return Err(ParallelError::GivenTwice { key: limit.key.to_string(), text: text.to_string() });
            }
        }
        Ok(Pins { fixed: parse_any(&print_items(&fixed))?, items: fixed, limits })
    }

    /// True if the key has one value.
    pub fn has(&self, key: ConfigKey) -> bool {
        self.items.iter().any(|(name, _)| *name == key)
    }

    /// The keys that have one value.
    pub fn keys(&self) -> impl Iterator<Item = ConfigKey> {
        self.items.iter().map(|(key, _)| *key)
    }

    /// The text of the keys that have one value: a configuration.
    pub fn fixed_text(&self) -> String {
        print_items(&self.items)
    }

    /// True if the key has a set or a range.
    pub fn is_limited(&self, key: ConfigKey) -> bool {
        self.limits.iter().any(|limit| limit.key == key)
    }

    /// True if a configuration's value of the key is in the key's set or range, if it has one.
    pub fn allows(&self, key: ConfigKey, parallel: &ParallelConfig) -> bool {
        self.limits.iter().filter(|limit| limit.key == key).all(|limit| limit.holds(parallel))
    }

    fn allows_all(&self, parallel: &ParallelConfig) -> bool {
        self.limits.iter().all(|limit| limit.holds(parallel))
    }

    /// True if a configuration has all pins. Recomputation chosen for the memory budget may be any.
    pub fn holds(&self, parallel: &ParallelConfig) -> bool {
        let is_open = self.fixed.recompute == Recompute::Auto;
        let mut keys = self.keys().filter(|&key| !is_open || key != ConfigKey::Recompute);
        keys.all(|key| item(key, parallel) == item(key, &self.fixed)) && self.allows_all(parallel)
    }

    /// The values of a key's set, as text; `None` if it has no set.
    pub fn set(&self, key: ConfigKey) -> Option<&[String]> {
        self.limits.iter().find(|limit| limit.key == key).and_then(|limit| match &limit.allowed {
            Allowed::Set(values) => Some(values.as_slice()),
            Allowed::Range(..) => None,
        })
    }

    /// One text of one-valued pins for each value of each set, beside those that have one value.
    pub fn each_value(&self) -> Vec<String> {
        let values = self.limits.iter().flat_map(|limit| match &limit.allowed {
            Allowed::Set(values) => values.iter().map(|value| format!("{}={value}", limit.key)).collect(),
            Allowed::Range(least, _) => vec![format!("{}={}", limit.key, (*least).max(1))],
        });
        values.map(|item| super::pinned(&self.fixed_text(), &item)).collect()
    }
}

impl Limit {
    fn holds(&self, parallel: &ParallelConfig) -> bool {
        let value = (key_text(self.key).text)(parallel);
        match &self.allowed {
            Allowed::Set(values) => values.contains(&value),
            Allowed::Range(least, most) => value.parse().is_ok_and(|value| (*least..=*most).contains(&value)),
        }
    }

    /// The values in this range and in another one.
    fn narrow(&mut self, other: Allowed, text: &str) -> Result<(), ParallelError> {
        let key = self.key.to_string();
        let (Allowed::Range(least, most), Allowed::Range(from, to)) = (&mut self.allowed, other) else {
            return Err(ParallelError::GivenTwice { key, text: text.to_string() });
        };
        (*least, *most) = ((*least).max(from), (*most).min(to));
        if *least > *most { Err(ParallelError::EmptyRange { key, least: *least, most: *most }) } else { Ok(()) }
    }
}

/// `key<=value` if the other end is 0, else `key>=value`.
fn range(key: ConfigKey, value: &str, other: u64) -> Result<Limit, ParallelError> {
    if Searched::of(key) != Searched::Numbers {
        let numbers = ConfigKey::ALL.into_iter().filter(|&key| Searched::of(key) == Searched::Numbers);
        let keys = numbers.map(ConfigKey::name).collect::<Vec<_>>().join(", ");
        return Err(ParallelError::NoRange { key: key.to_string(), keys });
    }
    let end: u64 = value.parse().map_err(|_| ParallelError::Value {
        key: key.to_string(),
        value: value.to_string(),
        must: "is not a whole number in its range",
    })?;
    Ok(Limit { key, allowed: Allowed::Range(end.min(other), end.max(other)) })
}

/// The values of `key=one|two`, as printed.
fn set(key: ConfigKey, text: &str) -> Result<Allowed, ParallelError> {
    if Searched::of(key) == Searched::No {
        return Err(ParallelError::NoSet { key: key.to_string() });
    }
    let printed = text.split('|').map(|value| {
        let parallel = parse_any(&format!("{key}={}", value.trim()))?;
        Ok((key_text(key).text)(&parallel))
    });
    Ok(Allowed::Set(printed.collect::<Result<_, ParallelError>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(pins: &str, parallel: &str) -> bool {
        Pins::parse(pins).unwrap().allows_all(&parse_any(parallel).unwrap())
    }

    #[test]
    fn sets_and_ranges_hold_some_values() {
        assert!(allows("tp<=8,tp>=2,zero=1|3", "tp=4,zero=3"));
        assert!(!allows("tp<=8", "tp=16") && !allows("tp>=2", "tp=1") && !allows("zero=1|3", "zero=2"));
        assert!(allows("schedule=1f1b|zb-v,vp<=2", "schedule=zb-v,vp=2"));
        assert!(allows("recompute=none|full,sp=true|false", "recompute=full") && !allows("vp<=2", "vp=3"));
        let pins = Pins::parse("pp=2,tp<=8,zero=1|3").unwrap();
        assert_eq!(
            (pins.fixed_text(), pins.has(ConfigKey::Pp), pins.has(ConfigKey::Tp)),
            ("pp=2".to_string(), true, false)
        );
        assert_eq!(
            (pins.fixed.pp, pins.fixed.tp, pins.set(ConfigKey::Zero).unwrap()),
            (2, 1, &["1".to_string(), "3".to_string()][..])
        );
        assert_eq!(Pins::parse("").unwrap(), Pins::default());
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let error = |text: &str| Pins::parse(text).unwrap_err().to_string();
        for (text, has) in [
            ("schedule<=2", "`schedule` has no range"),
            ("stages=1|2", "`stages` has no set"),
            ("tp<=8,tp=4", "`tp` is given twice"),
            ("tp=4|8,tp<=8", "`tp` is given twice"),
            ("tp>=8,tp<=4", "from 8 to 4"),
            ("tq<=4", "there is no `tq`"),
            ("zero=1|", "`zero=`"),
            ("tp<=x", "`tp=x` is not a whole number"),
        ] {
            assert!(error(text).contains(has), "{text}: {}", error(text));
        }
    }
}
