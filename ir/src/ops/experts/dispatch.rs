//! `dispatch(%x, %index)` to the experts and `combine(%y, %index, %weights)` back, within routing groups.
//!
//! A group is a fixed number t of consecutive tokens of a sequence, so the result does not depend on the sharding. Each expert
//! takes at most c tokens of a group. Choices are assigned to experts in the order of tokens, then of choices; a choice of a
//! full expert is dropped (Lepikhin et al. 2020, GShard, algorithm 1). Both ops use the same assignment.

use crate::ids::Value;
use crate::ops::{Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Routed, RoutedRows, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// `(x [*g, t, h], index i32[*g, t, k], weights [*g, t, k]) -> [*g, e, c, h], count i32[*g, e]`: the tokens of each expert,
/// times their weights if given, padded with zeros to c; and the number of choices of each expert, including dropped ones.
/// The stated result type gives e and c.
#[derive(Clone, PartialEq, Debug)]
pub struct Dispatch {
    /// The dim e, logical.
    pub experts: Dim,
    /// The dim c.
    pub capacity: Dim,
}

impl Dispatch {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["dispatch"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, shapes: &Shapes<'_>) -> Result<Dispatch, String> {
        let result = shapes.results.first().ok_or("has no result")?.logical();
        Dispatch::to(&result).ok_or_else(|| "the result must be [.., e, c, h]".to_string())
    }

    /// To a tensor of this type.
    fn to(experts: &Type) -> Option<Dispatch> {
        let [.., e, c, _] = experts.dims.as_slice() else { return None };
        Some(Dispatch { experts: e.clone(), capacity: c.clone() })
    }
}

/// Checks the choices of tokens `[*g, t, k]` and their weights; the dims before k.
fn choices(index: &Type, weights: Option<&Type>, dtype: DType) -> Result<Vec<Dim>, String> {
    let index = index.logical();
    operands::expect("index", &index, DType::I32, &index.dims)?;
    let (tokens, _) = operands::rows_and_last("index", &index)?;
    if tokens.is_empty() {
        return Err("`index` must be [.., t, k], its rank is 1".to_string());
    }
    weights.map_or(Ok(()), |weights| operands::expect("weights", weights, dtype, &index.dims))?;
    Ok(tokens.to_vec())
}

/// Two operands and an optional third.
fn with_weights<'a>(operands: &[&'a Type], names: &str) -> Result<(&'a Type, &'a Type, Option<&'a Type>), String> {
    match *operands {
        [first, index] => Ok((first, index, None)),
        [first, index, weights] => Ok((first, index, Some(weights))),
        _ => Err(format!("takes {names} and optionally weights, not {} operands", operands.len())),
    }
}

impl OpDef for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { routed: Some(Routed { choices: 1, rows: RoutedRows::Filled }), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let (x, index, weights) = with_weights(operands, "x, index")?;
        let x = x.logical();
        let dtype = operands::float("x", &x)?;
        let tokens = choices(index, weights, dtype)?;
        let (rows, h) = operands::rows_and_last("x", &x)?;
        operands::expect("x", &x, dtype, &[tokens.as_slice(), std::slice::from_ref(h)].concat())?;
        let groups = &rows[..rows.len() - 1];
        let (e, c) = (self.experts.clone(), self.capacity.clone());
        let count = [groups, std::slice::from_ref(&e)].concat();
        Ok(vec![Type::new(dtype, [groups, &[e, c, h.clone()]].concat()), Type::new(DType::I32, count)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let weights = if operands.len() == 3 { ", *g t! k!" } else { "" };
        format!("*g t! h, *g t! k!{weights} -> *g e c! h, *g e")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let mut cotangents = vec![None; call.operands.len()];
        let Some(dy) = call.given[0] else { return Ok(cotangents) };
        let (x, choices) = (call.operands[0], &call.operands[1..]);
        if call.needed[0] {
            cotangents[0] = Some(b.one(Combine, &[&[dy], choices].concat())?);
        }
        if call.needed.get(2) == Some(&true) {
            cotangents[2] = Some(b.one(CombineDw, &[x, dy, choices[0]])?);
        }
        Ok(cotangents)
    }

    /// The product with the weights, if any. The choices, a row of x for each of the result, and the results.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let choices: u64 = operands[1..].iter().map(|ty| ty.bytes()).sum();
        Work {
            flops: if operands.len() == 3 { results[0].elements() } else { 0 },
            bytes: choices + 2 * results[0].bytes() + results[1].bytes(),
        }
    }
}

/// `(y [*g, e, c, h], index i32[*g, t, k], weights [*g, t, k]) -> [*g, t, h]`: for each token, the sum over
/// its choices of the expert's result, times the weight if given; a dropped choice counts 0. On a rank with a shard of e, the
/// choices of other experts count 0, so the result is a partial sum.
#[derive(Clone, PartialEq, Debug)]
pub struct Combine;

impl Combine {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["combine"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<Combine, String> {
        Ok(Combine)
    }
}

/// Checks that the groups of `y [*g, e, c, h]` are those of the tokens `[*g, t]`; h.
fn expert_rows<'a>(y: &'a Type, tokens: &[Dim]) -> Result<&'a Dim, String> {
    match y.dims.as_slice() {
        [groups @ .., _, _, h] if *groups == tokens[..tokens.len() - 1] => Ok(h),
        _ => Err(format!("`y` {:?} must be [.., e, c, h] with the groups of `index`", y.sizes())),
    }
}

impl OpDef for Combine {
    fn name(&self) -> &'static str {
        "combine"
    }

    fn facts(&self) -> OpFacts {
        OpFacts {
            linear: Linear::Each(&[0, 2]),
            routed: Some(Routed { choices: 1, rows: RoutedRows::Read(0) }),
            ..OpFacts::default()
        }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let (y, index, weights) = with_weights(operands, "y, index")?;
        let y = y.logical();
        let dtype = operands::float("y", &y)?;
        let mut dims = choices(index, weights, dtype)?;
        dims.push(expert_rows(&y, &dims)?.clone());
        Ok(vec![Type::new(dtype, dims)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let weights = if operands.len() == 3 { ", *g t! k!" } else { "" };
        format!("*g e+ c! h, *g t! k!{weights} -> *g t! h")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let mut cotangents = vec![None; call.operands.len()];
        let Some(dx) = call.given[0] else { return Ok(cotangents) };
        let (y, choices) = (call.operands[0], &call.operands[1..]);
        if call.needed[0] {
            let back = Dispatch::to(&b.ty(y).logical()).ok_or("`y` must be [.., e, c, h]")?;
            cotangents[0] = Some(b.op(back, &[&[dx], choices].concat())?[0]);
        }
        if call.needed.get(2) == Some(&true) {
            cotangents[2] = Some(b.one(CombineDw, &[dx, y, choices[0]])?);
        }
        Ok(cotangents)
    }

    /// A sum of each element of y, and its product with a weight if there are any.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of((operands.len() as u64 - 1) * operands[0].elements(), operands, results)
    }
}

/// `combine_dw(%x, %y, %index)`: `(x [*g, t, h], y [*g, e, c, h], index i32[*g, t, k]) -> [*g, t, k]`, the product over h of
/// each token and its row of y; 0 where the choice was dropped. The cotangent of the weights of both ops.
#[derive(Clone, PartialEq, Debug)]
pub struct CombineDw;

impl CombineDw {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["combine_dw"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<CombineDw, String> {
        Ok(CombineDw)
    }
}

impl OpDef for CombineDw {
    fn name(&self) -> &'static str {
        "combine_dw"
    }

    fn facts(&self) -> OpFacts {
        OpFacts {
            linear: Linear::Each(&[0, 1]),
            routed: Some(Routed { choices: 2, rows: RoutedRows::Read(1) }),
            ..OpFacts::default()
        }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x, y, index] = operands::take(operands, "x, y, index")?;
        let y = y.logical();
        let dtype = operands::float("y", &y)?;
        let mut dims = choices(index, None, dtype)?;
        dims.push(expert_rows(&y, &dims)?.clone());
        operands::expect("x", x, dtype, &dims)?;
        Ok(vec![Type { dtype, ..index.logical() }])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*g t! h+, *g e+ c! h+, *g t! k! -> *g t! k!".to_string()
    }

    /// A product and a sum of each element of y.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(2 * operands[1].elements(), operands, results)
    }
}
