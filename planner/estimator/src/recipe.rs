//! Number formats by name: the element types of the tensors of a training run.

use super::error::Error;
use cost::{Format, Master, Recipe, Stack};

/// Recipes: name, format of the operands of matrix products, bytes of a parameter, of a gradient unless the stack states
/// another, and of the master copy.
///
/// Mixed precision has f32 master weights and moments (Micikevicius et al. 2018). fp8 recipes change only the products, and
/// have parameters in bf16 (DeepSeek-V3, section 3.3; Transformer Engine).
const RECIPES: [(&str, Format, f64, f64, f64); 10] = [
    ("bf16", Format::Half, 2.0, 4.0, 4.0),
    ("fp16", Format::Half, 2.0, 4.0, 4.0),
    ("fp8-tensor", Format::F8, 2.0, 4.0, 4.0),
    (DELAYED, Format::F8, 2.0, 4.0, 4.0),
    ("fp8-row", Format::F8, 2.0, 4.0, 4.0),
    ("fp8-block", Format::F8, 2.0, 4.0, 4.0),
    ("mxfp8", Format::F8, 2.0, 4.0, 4.0),
    ("mxfp4", Format::F4, 2.0, 4.0, 4.0),
    ("nvfp4", Format::F4, 2.0, 4.0, 4.0),
    ("f32", Format::F32, 4.0, 4.0, 0.0),
];

/// Optimizers: name, and bytes of the states of a parameter. DeepSeek-V3 has moments in bf16 (section 3.3.2).
const OPTIMIZERS: [(&str, f64); 4] = [("adamw", 8.0), (NARROW, 4.0), ("momentum", 4.0), ("sgd", 0.0)];

/// Recipe whose scales are those of earlier steps.
pub(super) const DELAYED: &str = "fp8-delayed";

/// Optimizer with 16-bit states.
pub(super) const NARROW: &str = "adamw-bf16";

/// Recipe of a precision, with the types of gradients and master copy from the stack and the user.
///
/// # Errors
/// A name is not known.
pub fn recipe(
    precision: &str,
    grad_dtype: Option<&str>,
    master: Option<&str>,
    optimizer: &str,
    stack: &Stack,
) -> Result<Recipe, Error> {
    let row = RECIPES.iter().find(|row| row.0 == precision);
    let row = row.ok_or_else(|| unknown("--precision", precision, &RECIPES.map(|row| row.0)))?;
    let &(name, products, parameter, gradient, default_master) = row;
    let states = OPTIMIZERS.iter().find(|row| row.0 == optimizer).map(|row| row.1);
    let states = states.ok_or_else(|| unknown("--optimizer", optimizer, &OPTIMIZERS.map(|row| row.0)))?;
    let half = parameter < 4.0;
    let kept = match stack.traits.formats.master {
        Master::Full => Master::Full,
        Master::None if half => Master::None,
        Master::Remainder if half && name != "fp16" && optimizer == NARROW => Master::Remainder,
        Master::None | Master::Remainder => Master::Full,
    };
    let stated = |bytes: f64| if half && bytes > 0.0 { bytes } else { gradient };
    let given = grad_dtype.map(|name| bytes_of("--grad-dtype", name)).transpose()?;
    Ok(Recipe {
        name: name.to_string(),
        products,
        blocks: matches!(name, "fp8-row" | "fp8-block" | "mxfp8" | "mxfp4" | "nvfp4"),
        parameter,
        gradient: given.unwrap_or(stated(stack.traits.formats.gradient_bytes)),
        comm_gradient: given.unwrap_or(stated(stack.traits.formats.comm_bytes)),
        master: match (master, kept) {
            (Some("none"), _) | (None, Master::None) => 0.0,
            (Some(name), _) => bytes_of("--master", name)?,
            (None, Master::Full) => default_master,
            (None, Master::Remainder) => default_master - parameter,
        },
        states: match kept {
            Master::Full | Master::Remainder => states,
            Master::None => states * parameter / 4.0,
        },
        widened: match kept {
            Master::Full | Master::None => 0.0,
            Master::Remainder => 2.0 * states,
        },
        activation: parameter,
    })
}

fn bytes_of(option: &'static str, dtype: &str) -> Result<f64, Error> {
    match dtype {
        "f32" | "fp32" => Ok(4.0),
        "bf16" | "fp16" => Ok(2.0),
        _ => Err(unknown(option, dtype, &["f32", "bf16", "fp16"])),
    }
}

fn unknown(option: &'static str, name: &str, known: &[&'static str]) -> Error {
    Error::UnknownName { option, name: name.to_string(), known: known.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A master copy of which bf16 has half, and two moments that are f32 while they change.
    #[test]
    fn narrow_states_are_as_the_stack_has_them() {
        let of = |stack: &str, precision: &str| {
            let stack = Stack::find(stack).unwrap();
            let recipe = recipe(precision, None, None, NARROW, &stack).unwrap();
            (recipe.master, recipe.states, recipe.widened)
        };
        assert_eq!(of("megatron-core-2025", "bf16"), (2.0, 4.0, 8.0));
        assert_eq!(of("nemo", "bf16"), (4.0, 4.0, 0.0));
        assert_eq!(of("megatron-core-2025", "f32"), (0.0, 4.0, 0.0));
    }
}
