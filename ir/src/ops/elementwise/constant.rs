//! The constant of an elementwise function.

use crate::ops::{Attr, Attrs};
use crate::types::DType;

/// A constant, which is an attribute in the text form.
pub(super) trait Constant: Sized {
    /// The constant as an attribute.
    fn attr(self) -> Attr;

    /// The constant of this name.
    fn read(name: &str, attrs: &mut Attrs) -> Result<Self, String>;
}

impl Constant for f64 {
    fn attr(self) -> Attr {
        Attr::Float(self)
    }

    fn read(name: &str, attrs: &mut Attrs) -> Result<f64, String> {
        attrs.float(name)
    }
}

impl Constant for DType {
    fn attr(self) -> Attr {
        Attr::Word(self.name().to_string())
    }

    fn read(name: &str, attrs: &mut Attrs) -> Result<DType, String> {
        let word = attrs.word(name)?;
        DType::from_name(&word).ok_or_else(|| format!("there is no element type `{word}`"))
    }
}
