//! Number formats of gradients, of master copies, and of experts.

use super::figure::{Figure, Range};
use serde::{Deserialize, Serialize};

/// Number formats of gradients, of master copies, and of experts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Formats {
    /// Bytes per element of an accumulated gradient.
    pub gradient_bytes: f64,
    /// Bytes per element of a communicated gradient.
    pub comm_bytes: f64,
    /// Master copy of a 16-bit parameter.
    pub master: Master,
    /// Bytes per updated parameter in addition to its master copy and states: its gradient in f32.
    pub update_bytes: f64,
    /// Number of stored copies of an expert's parameter in its 8-bit or 4-bit format: row and column order, with
    /// scales.
    pub quantised_experts: f64,
}

/// Master copy of a 16-bit parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Master {
    /// A copy in the type of the precision recipe.
    #[default]
    Full,
    /// Neither a master copy nor wider optimizer states.
    None,
    /// The 16 missing bits alone, of a bf16 parameter with 16-bit optimizer states. Its states then exist also in f32 while a
    /// group of parameters is updated.
    Remainder,
}

impl Default for Formats {
    fn default() -> Formats {
        Formats {
            gradient_bytes: 4.0,
            comm_bytes: 4.0,
            master: Master::Full,
            update_bytes: 0.0,
            quantised_experts: 0.0,
        }
    }
}

impl Formats {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Formats { gradient_bytes, comm_bytes, master: _, update_bytes, quantised_experts } = *self;
        let element = Range::new(1.0, 8.0, "bytes of an element");
        vec![
            element.of("formats.gradient_bytes", gradient_bytes),
            element.of("formats.comm_bytes", comm_bytes),
            Range::new(0.0, 8.0, "bytes of an element").of("formats.update_bytes", update_bytes),
            Range::new(0.0, 4.0, "copies").of("formats.quantised_experts", quantised_experts),
        ]
    }
}
