//! The arguments of a node, with the values that they name.

use super::tensor::{ElementKind, Item, Tensor};
use crate::graph::{Arg, RecordedNode, Size, ValueId};
use crate::refusal::{Refusal, contradiction};
use std::rc::Rc;

/// A node and the values that are known.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) node: &'a RecordedNode,
    pub(crate) values: &'a [Option<Item>],
    /// A number among the arguments and the one to take in its place.
    pub(crate) replaced: Option<(i64, i64)>,
}

impl<'a> Call<'a> {
    pub(crate) fn value(&self, id: ValueId) -> Result<&'a Item, Refusal> {
        self.values[id.index()].as_ref().ok_or_else(|| Refusal::NoConstant { op: self.node.op.clone() })
    }

    /// A tensor argument.
    pub(crate) fn tensor(&self, name: &str) -> Result<Rc<Tensor>, Refusal> {
        self.optional_tensor(name)?.ok_or_else(|| Refusal::argument(name, "is missing"))
    }

    /// A tensor argument that may be missing.
    pub(crate) fn optional_tensor(&self, name: &str) -> Result<Option<Rc<Tensor>>, Refusal> {
        match self.node.arg(name) {
            None => Ok(None),
            Some(Arg::Value(id)) => match self.value(*id)? {
                Item::Tensor(tensor) => Ok(Some(tensor.clone())),
                _ => Err(Refusal::argument(name, "is no tensor")),
            },
            Some(_) => Err(Refusal::argument(name, "is no tensor")),
        }
    }

    /// The tensors of a list.
    pub(crate) fn tensors(&self, name: &str) -> Result<Vec<Option<Rc<Tensor>>>, Refusal> {
        let Some(Arg::Values(ids)) = self.node.arg(name) else {
            return Err(Refusal::argument(name, "is no list of tensors"));
        };
        ids.iter()
            .map(|id| {
                id.map(|id: ValueId| match self.value(id)? {
                    Item::Tensor(tensor) => Ok(tensor.clone()),
                    _ => Err(Refusal::argument(name, "has a member that is no tensor")),
                })
                .transpose()
            })
            .collect()
    }

    /// A tensor, or a number as one without dims.
    pub(crate) fn operand(&self, name: &str) -> Result<Rc<Tensor>, Refusal> {
        if let Some(Arg::Value(id)) = self.node.arg(name)
            && let Item::Tensor(tensor) = self.value(*id)?
        {
            return Ok(tensor.clone());
        }
        let kind = match self.node.arg(name) {
            Some(Arg::Float(_)) => ElementKind::Float,
            Some(Arg::Bool(_)) => ElementKind::Bool,
            _ => ElementKind::Int,
        };
        Ok(Tensor::new(kind, Vec::new(), vec![self.number(name)?]).into())
    }

    /// A number.
    pub(crate) fn number(&self, name: &str) -> Result<f64, Refusal> {
        let replace = |int: i64| match self.replaced {
            Some((from, to)) if from == int => to as f64,
            _ => int as f64,
        };
        match self.node.arg(name).ok_or_else(|| Refusal::argument(name, "is missing"))? {
            Arg::Int(int) => Ok(replace(*int)),
            Arg::Float(x) => Ok(*x),
            Arg::Bool(is) => Ok(f64::from(*is)),
            Arg::Value(id) => match self.value(*id)? {
                Item::Int(int) => Ok(*int as f64),
                Item::Tensor(_) | Item::Complex(_) => Err(Refusal::argument(name, "depends on data")),
            },
            _ => Err(Refusal::argument(name, "is no number")),
        }
    }

    /// A number that may be missing.
    pub(crate) fn number_or(&self, name: &str, default: f64) -> Result<f64, Refusal> {
        if self.node.arg(name).is_some() { self.number(name) } else { Ok(default) }
    }

    /// An integer.
    pub(crate) fn int(&self, name: &str) -> Result<i64, Refusal> {
        match self.node.arg(name) {
            Some(Arg::Int(int)) => Ok(*int),
            Some(Arg::Value(id)) => self.size(Size::Of(*id)),
            _ => Err(Refusal::argument(name, "is no integer")),
        }
    }

    /// An integer that may be missing.
    pub(crate) fn int_or(&self, name: &str, default: i64) -> Result<i64, Refusal> {
        if self.node.arg(name).is_some() { self.int(name) } else { Ok(default) }
    }

    /// Integers.
    pub(crate) fn ints(&self, name: &str) -> Result<Vec<i64>, Refusal> {
        match self.node.arg(name) {
            Some(Arg::Ints(sizes)) => sizes.iter().map(|size| self.size(*size)).collect(),
            Some(Arg::Values(ids)) if ids.is_empty() => Ok(Vec::new()),
            Some(Arg::Int(int)) => Ok(vec![*int]),
            _ => Err(Refusal::argument(name, "is no list of integers")),
        }
    }

    /// Sizes of a new tensor.
    pub(crate) fn sizes(&self, name: &str) -> Result<Vec<usize>, Refusal> {
        self.ints(name)?
            .into_iter()
            .map(|size| usize::try_from(size).map_err(|_| contradiction(format!("{size} is no size"))))
            .collect()
    }

    fn size(&self, size: Size) -> Result<i64, Refusal> {
        match size {
            Size::Known(int) => Ok(int),
            Size::Of(id) => match self.value(id)? {
                Item::Int(int) => Ok(*int),
                _ => Err("a size depends on data".into()),
            },
        }
    }

    /// A truth value that may be missing.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.node.arg(name), Some(Arg::Bool(true) | Arg::Int(1)))
    }

    /// A text that may be missing.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        if let Some(Arg::Text(text)) = self.node.arg(name) { Some(text) } else { None }
    }

    /// The kind of elements that an argument names.
    pub(crate) fn kind(&self, name: &str) -> Result<Option<ElementKind>, Refusal> {
        match self.node.arg(name) {
            Some(Arg::Dtype(dtype)) => ElementKind::of(*dtype)
                .map(Some)
                .ok_or_else(|| format!("elements of type {dtype} are not supported").into()),
            _ => Ok(None),
        }
    }

    /// A dim of a tensor of `rank` dims; negative ones count from the end.
    pub(crate) fn dim(&self, name: &str, default: i64, rank: usize) -> Result<usize, Refusal> {
        wrap(self.int_or(name, default)?, rank)
    }

    /// A positional argument, as the operators of Python have them.
    pub(crate) fn position(&self, at: usize) -> Result<i64, Refusal> {
        match self.node.args.get(at) {
            Some((_, Arg::Int(int))) => Ok(*int),
            Some((_, Arg::Value(id))) => self.size(Size::Of(*id)),
            _ => Err(contradiction(format!("argument {at} is no integer"))),
        }
    }
}

/// A dim, of which negative ones count from the end.
pub(crate) fn wrap(dim: i64, rank: usize) -> Result<usize, Refusal> {
    let at = if dim < 0 { dim + rank.max(1) as i64 } else { dim };
    usize::try_from(at)
        .ok()
        .filter(|at| *at < rank.max(1))
        .ok_or_else(|| contradiction(format!("there is no dim {dim} of {rank}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_of_an_argument_that_is_computed_names_the_op() {
        let node = RecordedNode {
            op: "aten.clamp.Tensor".to_string(),
            args: vec![("min".to_string(), Arg::Value(ValueId(0)))],
            outputs: vec![ValueId(1)],
            place: crate::error::NodePlace::default(),
        };
        let why = Call { node: &node, values: &[None, None], replaced: None }.number("min").unwrap_err();
        assert_eq!(why.to_string(), "`aten.clamp.Tensor` with an argument that is no constant is not supported");
    }
}
