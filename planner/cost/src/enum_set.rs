//! Sets of an enum's values: lists of names in files, bits in memory.

use ir::diag::nearest;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Enum whose values have names in files. It has at most 32 values.
pub trait Named: Copy + 'static {
    /// All values, in their order.
    const ALL: &'static [Self];

    /// Name of the value.
    fn name(self) -> &'static str;

    /// Number of values before this one.
    fn index(self) -> u32;

    /// Value of a name; `None` if no value has it.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.name() == name)
    }
}

/// Defines an enum with the names of its values.
macro_rules! named_enum {
    ($(#[$about:meta])* pub enum $kind:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $kind {
            $($(#[$doc])* $value,)*
        }

        impl $crate::enum_set::Named for $kind {
            const ALL: &'static [$kind] = &[$($kind::$value),*];

            fn name(self) -> &'static str {
                match self {
                    $($kind::$value => $name,)*
                }
            }

            fn index(self) -> u32 {
                self as u32
            }
        }
    };
}
pub(crate) use named_enum;

/// Set of an enum's values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EnumSet<E> {
    /// Bit of each value, by its index.
    bits: u32,
    of: PhantomData<E>,
}

impl<E: Named> EnumSet<E> {
    /// Returns whether a value is in the set.
    pub fn contains(self, value: E) -> bool {
        self.bits & (1 << value.index()) != 0
    }

    /// Adds a value.
    pub fn insert(&mut self, value: E) {
        self.bits |= 1 << value.index();
    }

    /// Removes a value.
    pub fn remove(&mut self, value: E) {
        self.bits &= !(1 << value.index());
    }

    /// Returns whether all values of another set are in this one.
    pub fn contains_all(self, other: EnumSet<E>) -> bool {
        other.bits & !self.bits == 0
    }

    /// Returns whether some value is in both sets.
    pub fn intersects(self, other: EnumSet<E>) -> bool {
        other.bits & self.bits != 0
    }

    /// The values of either set.
    #[must_use]
    pub fn union(self, other: EnumSet<E>) -> EnumSet<E> {
        EnumSet { bits: self.bits | other.bits, of: PhantomData }
    }

    /// Values in their order.
    pub fn iter(self) -> impl Iterator<Item = E> {
        E::ALL.iter().copied().filter(move |value| self.contains(*value))
    }

    /// Names of the values, in their order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.iter().map(Named::name)
    }
}

impl<E> Default for EnumSet<E> {
    fn default() -> EnumSet<E> {
        EnumSet { bits: 0, of: PhantomData }
    }
}

impl<E: Named> fmt::Debug for EnumSet<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl<E: Named> FromIterator<E> for EnumSet<E> {
    fn from_iter<I: IntoIterator<Item = E>>(values: I) -> EnumSet<E> {
        let mut set = EnumSet::default();
        values.into_iter().for_each(|value| set.insert(value));
        set
    }
}

impl<E: Named> Serialize for EnumSet<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

impl<'de, E: Named> Deserialize<'de> for EnumSet<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EnumSet<E>, D::Error> {
        let values = Vec::<ByName<E>>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|ByName(value)| value).collect())
    }
}

/// Value that a file states by its name.
struct ByName<E>(E);

impl<'de, E: Named> Deserialize<'de> for ByName<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ByName<E>, D::Error> {
        let name = String::deserialize(deserializer)?;
        E::named(&name).map(ByName).ok_or_else(|| D::Error::custom(unknown::<E>(&name)))
    }
}

/// Message about a name that no value has.
fn unknown<E: Named>(name: &str) -> String {
    let known: Vec<&str> = E::ALL.iter().map(|value| value.name()).collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("`{name}` is none of {}; did you mean `{near}`?", known.join(", ")),
        None => format!("`{name}` is none of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule_name::ScheduleName;
    use crate::traits::{FusedKernel, Hidden};

    /// Indices of all values, which must be the numbers from 0 on, below the number of bits.
    fn check<E: Named>() {
        let indices: Vec<u32> = E::ALL.iter().map(|value| value.index()).collect();
        assert_eq!(indices, (0..E::ALL.len() as u32).collect::<Vec<_>>());
        assert!(E::ALL.len() <= 32);
        assert!(E::ALL.iter().all(|value| E::named(value.name()).is_some_and(|it| it.index() == value.index())));
    }

    #[test]
    fn each_value_has_a_bit_and_a_name() {
        check::<FusedKernel>();
        check::<Hidden>();
        check::<ScheduleName>();
        check::<ir::options::CpKind>();
        check::<ir::config_key::ConfigKey>();
    }

    #[test]
    fn a_set_is_written_in_the_order_of_its_enum() {
        let mut set: EnumSet<Hidden> = [Hidden::PointToPoint, Hidden::Tp].into_iter().collect();
        assert_eq!(toml::Value::try_from(set).unwrap().to_string(), r#"["tp", "p2p"]"#);
        set.remove(Hidden::Tp);
        assert!(set.contains(Hidden::PointToPoint) && !set.contains(Hidden::Tp));
        assert_eq!(format!("{set:?}"), r#"{"p2p"}"#);
    }
}
