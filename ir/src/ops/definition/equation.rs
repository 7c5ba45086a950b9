//! Equations over dims: `"b s h, h g -> b s g"`. Einsum, reduce, broadcast, permute and broadcasting elementwise ops name the
//! factor of each dim in this form.

use crate::types::{Dim, Type};

/// A parsed equation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Equation {
    /// The factors of each operand.
    pub operands: Vec<Vec<String>>,
    /// The factors of the result.
    pub result: Vec<String>,
}

impl Equation {
    /// Parses an equation.
    ///
    /// # Errors
    /// There is no `->`, a factor is not a name, or a tensor has a factor twice.
    pub fn parse(text: &str) -> Result<Equation, String> {
        let (operands, result) = text.split_once("->").ok_or_else(|| format!("`{text}` has no `->`"))?;
        let labels = |side: &str| -> Vec<String> {
            side.split_whitespace().filter(|word| *word != "()").map(str::to_string).collect()
        };
        let equation = Equation { operands: operands.split(',').map(labels).collect(), result: labels(result) };
        for tensor in equation.operands.iter().chain([&equation.result]) {
            if let Some(wrong) = tensor.iter().find(|label| !is_name(label)) {
                return Err(format!(
                    "`{wrong}` in `{text}` is not a valid dim name; dim names are separated by spaces"
                ));
            }
            if let Some(twice) = tensor.iter().enumerate().find(|(i, label)| tensor[..*i].contains(label)) {
                return Err(format!("`{}` appears twice in one tensor of `{text}`", twice.1));
            }
        }
        Ok(equation)
    }

    /// The equation as text, canonical.
    pub fn print(&self) -> String {
        let operands: Vec<String> = self.operands.iter().map(|labels| print_labels(labels)).collect();
        format!("{} -> {}", operands.join(", "), print_labels(&self.result))
    }

    /// The sharding rule: factors that the result lacks get the mark `mark` (`+`, `+max`).
    pub fn rule(&self, mark: &str) -> String {
        let print = |labels: &Vec<String>| {
            let marked = |label: &String| {
                if self.result.contains(label) { label.clone() } else { format!("{label}{mark}") }
            };
            print_labels(&labels.iter().map(marked).collect::<Vec<_>>())
        };
        let operands: Vec<String> = self.operands.iter().map(print).collect();
        format!("{} -> {}", operands.join(", "), print_labels(&self.result))
    }

    /// The logical dim of a factor in the operands.
    pub fn dim(&self, label: &str, operands: &[&Type]) -> Option<Dim> {
        let found = self
            .operands
            .iter()
            .zip(operands)
            .find_map(|(labels, ty)| labels.iter().position(|l| l == label).and_then(|place| ty.dims.get(place)));
        found.map(|dim| Dim { axes: crate::mesh::Axes::none(), open: false, ..dim.clone() })
    }

    /// Checks ranks and sizes, and returns the dims of the result. Factors of the result alone get their dims from `free`.
    ///
    /// # Errors
    /// The rank of an operand or the size of a factor does not match.
    pub fn result_dims(&self, operands: &[&Type], free: &[Dim]) -> Result<Vec<Dim>, String> {
        if operands.len() != self.operands.len() {
            return Err(format!("`{}` has {} operands, not {}", self.print(), self.operands.len(), operands.len()));
        }
        for (labels, ty) in self.operands.iter().zip(operands) {
            if labels.len() != ty.rank() {
                let printed = print_labels(labels);
                return Err(format!("an operand has rank {} but the equation states `{printed}`", ty.rank()));
            }
            for (label, dim) in labels.iter().zip(&ty.dims) {
                let first = self.dim(label, operands).map_or(dim.size, |d| d.size);
                if first != dim.size {
                    return Err(format!("`{label}` is {first} in one operand and {} in another", dim.size));
                }
            }
        }
        let mut free = free.iter();
        let dim = |label: &String| {
            let given = self.dim(label, operands).or_else(|| free.next().cloned());
            given.ok_or_else(|| format!("the size of `{label}` is not stated"))
        };
        self.result.iter().map(dim).collect()
    }

    /// The factors of the result that no operand has.
    pub fn free_labels(&self) -> impl Iterator<Item = &String> + '_ {
        self.result.iter().filter(|label| !self.operands.iter().any(|labels| labels.contains(label)))
    }

    /// The dims of the stated result that no operand has, in order.
    pub fn free_dims(&self, result: &Type) -> Vec<Dim> {
        let free: Vec<&String> = self.free_labels().collect();
        let logical = result.logical().dims;
        self.result.iter().zip(logical).filter(|(label, _)| free.contains(label)).map(|(_, dim)| dim).collect()
    }
}

/// Marks such as `(` and `+` have a meaning in sharding rules, and a number there is a size.
fn is_name(label: &str) -> bool {
    label.starts_with(|c: char| c.is_alphabetic()) && label.chars().all(|c| c.is_alphanumeric() || "_.".contains(c))
}

/// The dims of a tensor as text.
pub(in crate::ops) fn print_labels(labels: &[String]) -> String {
    if labels.is_empty() { "()".to_string() } else { labels.join(" ") }
}
