//! The keys that a `config.json` can have: the value of an absent key, and the handling of a stated one.

mod check;
mod rope;

pub use rope::ROPE;

use serde_json::Value;

pub(super) use check::check;

/// The handling of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Done {
    /// It is read.
    Read,
    /// Only its default is accepted, since another value would change numbers.
    Only,
    /// It changes no number of a training run.
    Nothing,
    /// It is another name of this key.
    Alias(&'static str),
}

/// Keys that a class treats alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Key {
    /// Their names.
    pub names: &'static [&'static str],
    /// The JSON value that an absent key stands for; empty where the class has none: it must be stated, or follows from
    /// other keys.
    pub default: &'static str,
    /// Their handling.
    pub done: Done,
    /// Their meaning, or the reason why no or only one value is supported.
    pub about: &'static str,
}

impl Key {
    /// Keys that are read.
    pub(super) const fn read(names: &'static [&'static str], default: &'static str, about: &'static str) -> Key {
        Key { names, default, done: Done::Read, about }
    }

    /// Keys of which only the default is accepted.
    pub(super) const fn only(names: &'static [&'static str], default: &'static str, about: &'static str) -> Key {
        Key { names, default, done: Done::Only, about }
    }

    /// Keys that change no number.
    pub(super) const fn nothing(names: &'static [&'static str], about: &'static str) -> Key {
        Key { names, default: "", done: Done::Nothing, about }
    }

    /// Other names of the key `of`.
    pub(super) const fn alias(names: &'static [&'static str], of: &'static str) -> Key {
        Key { names, default: "", done: Done::Alias(of), about: "another name" }
    }

    /// The value of an absent key.
    pub fn absent(&self) -> Option<Value> {
        serde_json::from_str(self.default).ok()
    }

    /// True if another row says the same of its keys.
    pub fn is_like(&self, other: &Key) -> bool {
        (self.default, self.done, self.about) == (other.default, other.done, other.about)
    }
}

/// All keys of a class.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The class of `transformers` that reads them.
    pub class: &'static str,
    /// Lists of keys. Where several have a key, the first one counts.
    pub lists: &'static [&'static [Key]],
}

impl Keys {
    /// The row of a key.
    pub fn row(self, name: &str) -> Option<&'static Key> {
        self.lists.iter().copied().flatten().find(|row| row.names.contains(&name))
    }

    /// Each key once, and its row.
    pub fn rows(self) -> impl Iterator<Item = (&'static str, &'static Key)> {
        let all = self.lists.iter().copied().flatten();
        let named = all.flat_map(|row| row.names.iter().map(move |name| (*name, row)));
        named.filter(move |(name, row)| self.row(name).is_some_and(|first| std::ptr::eq(first, *row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::families::{ENCODERS, FAMILIES};

    fn tables() -> impl Iterator<Item = Keys> {
        let wholes = ENCODERS.iter().flat_map(|encoder| encoder.wholes).map(|whole| whole.keys);
        let encoders = ENCODERS.iter().map(|encoder| encoder.keys).chain(wholes);
        FAMILIES.iter().map(|family| family.keys).chain([ROPE]).chain(encoders)
    }

    #[test]
    fn each_list_has_a_key_once() {
        for list in tables().flat_map(|keys| keys.lists) {
            let names: Vec<&str> = list.iter().flat_map(|row| row.names).copied().collect();
            for name in &names {
                assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
            }
        }
    }

    #[test]
    fn rows_say_what_they_must() {
        for keys in tables() {
            for (name, row) in keys.rows() {
                assert!(row.default.is_empty() || row.absent().is_some(), "{} of {}: no JSON", name, keys.class);
                match row.done {
                    Done::Only => assert!(!row.default.is_empty(), "{} of {}: which value?", name, keys.class),
                    Done::Alias(of) => {
                        let is_read = keys.row(of).is_some_and(|row| row.done == Done::Read);
                        assert!(is_read, "{} of {}: {of} is not read", name, keys.class);
                    }
                    Done::Read | Done::Nothing => {}
                }
            }
        }
    }
}
