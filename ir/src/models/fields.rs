//! The fields of a `config.json` as a family reads them: stated ones, and the defaults of its class.

use super::error::{ConfigError, depth, invalid};
use super::keys::{Key, Keys, check};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::RefCell;

/// The keys of a file that are read, with the defaults of its family.
pub(super) struct Fields {
    keys: Keys,
    /// The keys of all families.
    all: Vec<Keys>,
    stated: Map<String, Value>,
    /// The keys of the file that no family has.
    unknown: RefCell<Vec<String>>,
}

impl Fields {
    /// The keys of a file, where `all` are those of all families.
    pub(super) fn new(keys: Keys, all: &[Keys], file: &Map<String, Value>) -> Result<Fields, ConfigError> {
        let (stated, unknown) = check(keys, all, file)?;
        Ok(Fields { keys, all: all.to_vec(), stated, unknown: RefCell::new(unknown) })
    }

    /// The keys of an object within the file, under the key `name`.
    pub(super) fn within(&self, name: &str, keys: Keys, object: &Map<String, Value>) -> Result<Fields, ConfigError> {
        let fields = Fields::new(keys, &self.all, object)?;
        let unknown = fields.unknown.borrow();
        self.unknown.borrow_mut().extend(unknown.iter().map(|key| format!("{name}.{key}")));
        drop(unknown);
        Ok(fields)
    }

    /// The keys that no family has, of the file and of its objects that were read.
    pub(super) fn into_unknown(self) -> Vec<String> {
        self.unknown.into_inner()
    }

    /// True if a key is present, even as `null`.
    pub(super) fn states(&self, key: &str) -> bool {
        self.stated.contains_key(key)
    }

    /// True if a key is present or has a default.
    pub(super) fn has(&self, key: &str) -> bool {
        self.states(key) || self.default(key).is_some()
    }

    /// An error that says so if its value is not the file's, but a default of the class.
    pub(super) fn of_default(&self, error: ConfigError) -> ConfigError {
        match error {
            ConfigError::Invalid { field, why } if !self.states(&field) && self.default(&field).is_some() => {
                let why = format!(
                    "{why}; `{}` has this default, which counts where the file does not state the key",
                    self.keys.class
                );
                ConfigError::Invalid { field, why }
            }
            error => error,
        }
    }

    /// The value of a key, or that of its absence.
    pub(super) fn get<T: DeserializeOwned>(&self, key: &'static str) -> Result<T, ConfigError> {
        let value = self.value(key).ok_or(ConfigError::Missing { field: key })?;
        if value.is_null() {
            return Err(invalid(key, "is null, and must be stated".to_string()));
        }
        T::deserialize(value).map_err(|why| invalid(key, why.to_string()))
    }

    /// The number of layers.
    pub(super) fn layers(&self, key: &'static str) -> Result<u32, ConfigError> {
        depth(key, self.get(key)?)
    }

    /// The value of a key that may be `null` or absent.
    pub(super) fn optional<T: DeserializeOwned>(&self, key: &'static str) -> Result<Option<T>, ConfigError> {
        match self.value(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::deserialize(value).map(Some).map_err(|why| invalid(key, why.to_string())),
        }
    }

    /// The object under a key, if it is there and holds anything.
    pub(super) fn object(&self, key: &'static str) -> Result<Option<&Map<String, Value>>, ConfigError> {
        match self.stated.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(object)) => Ok((!object.is_empty()).then_some(object)),
            Some(_) => Err(invalid(key, "must be an object".to_string())),
        }
    }

    fn value(&self, key: &str) -> Option<Value> {
        self.stated.get(key).cloned().or_else(|| self.default(key))
    }

    fn default(&self, key: &str) -> Option<Value> {
        self.keys.row(key).and_then(Key::absent)
    }
}
