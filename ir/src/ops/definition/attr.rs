//! Attributes of statements as the text form has them.

use crate::expr::Expr;
use crate::mesh::Axes;

/// The value of an attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Attr {
    /// `{tp}`
    Axes(Axes),
    /// `[{dp,tp}, {}]`
    List(Vec<Axes>),
    /// `"b s h -> b s"`
    Str(String),
    /// `0.5`
    Float(f64),
    /// `3`, `$tp*4`
    Expr(Expr),
    /// `true`, `f32`
    Word(String),
}

impl Attr {
    /// An integer.
    pub fn int(value: u64) -> Attr {
        Attr::Expr(Expr::Int(value as i64))
    }

    /// A truth value.
    pub fn flag(value: bool) -> Attr {
        Attr::Word(value.to_string())
    }
}

/// The attributes of one statement; an op removes those that it knows, and any other is an error.
#[derive(Clone, Debug, Default)]
pub struct Attrs(pub Vec<(String, Attr)>);

impl Attrs {
    /// Removes and returns the attribute of this name.
    pub fn take(&mut self, name: &str) -> Option<Attr> {
        let place = self.0.iter().position(|(n, _)| n == name)?;
        Some(self.0.remove(place).1)
    }

    /// A string that must be there.
    ///
    /// # Errors
    /// It is missing or no string.
    pub fn string(&mut self, name: &str) -> Result<String, String> {
        match self.take(name) {
            Some(Attr::Str(text)) => Ok(text),
            Some(_) => Err(format!("`{name}` must be a string")),
            None => Err(format!("`{name}=\"..\"` is missing")),
        }
    }

    /// A string, if it is there.
    ///
    /// # Errors
    /// It is no string.
    pub fn optional_string(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.take(name) {
            Some(Attr::Str(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` must be a string")),
            None => Ok(None),
        }
    }

    /// A number that must be there; an integer counts.
    ///
    /// # Errors
    /// It is missing or no number.
    pub fn float(&mut self, name: &str) -> Result<f64, String> {
        self.optional_float(name)?.ok_or_else(|| format!("`{name}=..` is missing"))
    }

    /// A number, if it is there; an integer counts.
    ///
    /// # Errors
    /// It is no number.
    pub fn optional_float(&mut self, name: &str) -> Result<Option<f64>, String> {
        match self.take(name) {
            Some(Attr::Float(value)) => Ok(Some(value)),
            Some(Attr::Expr(Expr::Int(value))) => Ok(Some(value as f64)),
            Some(_) => Err(format!("`{name}` must be a number")),
            None => Ok(None),
        }
    }

    /// A count that must be there.
    ///
    /// # Errors
    /// It is missing, negative or no integer.
    pub fn int(&mut self, name: &str) -> Result<u64, String> {
        self.optional_int(name)?.ok_or_else(|| format!("`{name}=..` is missing"))
    }

    /// A count, if it is there.
    ///
    /// # Errors
    /// It is negative or no integer.
    pub fn optional_int(&mut self, name: &str) -> Result<Option<u64>, String> {
        match self.take(name) {
            Some(Attr::Expr(Expr::Int(value))) if value >= 0 => Ok(Some(value as u64)),
            Some(_) => Err(format!("`{name}` must be an integer")),
            None => Ok(None),
        }
    }

    /// A truth value; `false` if absent.
    ///
    /// # Errors
    /// It is neither `true` nor `false`.
    pub fn flag(&mut self, name: &str) -> Result<bool, String> {
        match self.take(name) {
            None => Ok(false),
            Some(Attr::Word(word)) if word == "true" => Ok(true),
            Some(Attr::Word(word)) if word == "false" => Ok(false),
            Some(_) => Err(format!("`{name}` must be true or false")),
        }
    }

    /// A word that must be there.
    ///
    /// # Errors
    /// It is missing or no word.
    pub fn word(&mut self, name: &str) -> Result<String, String> {
        match self.take(name) {
            Some(Attr::Word(word)) => Ok(word),
            Some(_) => Err(format!("`{name}` must be a word")),
            None => Err(format!("`{name}=..` is missing")),
        }
    }

    /// Axes that must be there.
    ///
    /// # Errors
    /// They are missing or no axes.
    pub fn axes(&mut self, name: &str) -> Result<Axes, String> {
        match self.take(name) {
            Some(Attr::Axes(axes)) => Ok(axes),
            Some(_) => Err(format!("`{name}` must be axes: {name}={{tp}}")),
            None => Err(format!("`{name}={{..}}` is missing")),
        }
    }

    /// A list of axes that must be there.
    ///
    /// # Errors
    /// It is missing or no such list.
    pub fn axes_list(&mut self, name: &str) -> Result<Vec<Axes>, String> {
        self.optional_axes_list(name)?.ok_or_else(|| format!("`{name}=[..]` is missing"))
    }

    /// A list of axes, if it is there.
    ///
    /// # Errors
    /// It is no such list.
    pub fn optional_axes_list(&mut self, name: &str) -> Result<Option<Vec<Axes>>, String> {
        match self.take(name) {
            Some(Attr::List(list)) => Ok(Some(list)),
            Some(_) => Err(format!("`{name}` must be axes per dim: {name}=[{{tp}}, {{}}]")),
            None => Ok(None),
        }
    }
}
