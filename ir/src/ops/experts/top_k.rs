//! `top_k(%scores, %bias, k=8, groups=8, from=4, by=2)`: the experts that a token goes to, and its gradient.

use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{DType, Dim, Type};

/// Group-limited routing: only some groups of consecutive experts are open to a token (DeepSeek-V2, section 2.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct GroupLimit {
    /// The number of groups; it divides the number of experts.
    pub groups: u64,
    /// The number of groups open to a token: those with the highest scores.
    pub from: u64,
    /// `n`: the score of a group is the sum of its `n` highest scores. 1 in DeepSeek-V2, 2 in DeepSeek-V3.
    pub by: u64,
}

/// `(scores [*m, e], bias [e]) -> values [*m, k], index i32[*m, k]`: the k highest of `scores + bias` of each row, highest
/// first, ties by lower index. The values are scores without the bias, which only chooses (DeepSeek-V3, equation
/// 16): it has no gradient. It may be left out.
#[derive(Clone, PartialEq, Debug)]
pub struct TopK {
    /// The number of chosen experts.
    pub k: u64,
    /// From which groups, if not from all.
    pub limit: Option<GroupLimit>,
}

impl TopK {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["top_k"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<TopK, String> {
        let k = attrs.int("k")?;
        let Some(groups) = attrs.optional_int("groups")? else { return Ok(TopK { k, limit: None }) };
        Ok(TopK { k, limit: Some(GroupLimit { groups, from: attrs.int("from")?, by: attrs.int("by")? }) })
    }

    fn check(&self, experts: u64) -> Result<(), String> {
        let TopK { k, limit } = *self;
        let open = match limit {
            None => experts,
            Some(GroupLimit { groups, from, by }) => {
                if groups == 0 || !experts.is_multiple_of(groups) {
                    return Err(format!("{groups} groups do not divide {experts} experts"));
                }
                let size = experts / groups;
                if !(1..=groups).contains(&from) || !(1..=size).contains(&by) {
                    return Err(format!("`from` must be 1 to {groups} and `by` 1 to {size}, not {from} and {by}"));
                }
                from * size
            }
        };
        if (1..=open).contains(&k) { Ok(()) } else { Err(format!("{k} of {open} experts cannot be chosen")) }
    }
}

impl OpDef for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let limit = self.limit.map(|l| [("groups", l.groups), ("from", l.from), ("by", l.by)]);
        [("k", self.k)].into_iter().chain(limit.into_iter().flatten()).map(|(name, n)| (name, Attr::int(n))).collect()
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let (scores, bias) = match operands {
            [scores] => (scores.logical(), None),
            [scores, bias] => (scores.logical(), Some(bias)),
            _ => return Err(format!("takes scores and optionally a bias, not {} operands", operands.len())),
        };
        let dtype = operands::float("scores", &scores)?;
        let (rows, experts) = operands::rows_and_last("scores", &scores)?;
        bias.map_or(Ok(()), |bias| operands::expect("bias", bias, dtype, std::slice::from_ref(experts)))?;
        self.check(experts.size)?;
        let dims = [rows, &[Dim::sized(self.k)]].concat();
        Ok(vec![Type::new(dtype, dims.clone()), Type::new(DType::I32, dims)])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        if operands.len() == 1 { "*m e! -> *m k!, *m k!" } else { "*m e!, e! -> *m k!, *m k!" }.to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let mut cotangents = vec![None; call.operands.len()];
        let (Some(dvalues), true) = (call.given[0], call.needed[0]) else { return Ok(cotangents) };
        let scores = b.ty(call.operands[0]).logical();
        let (_, experts) = operands::rows_and_last("scores", &scores)?;
        let op = TopKGrad { experts: experts.clone() };
        cotangents[0] = Some(b.one(op, &[call.results[1], dvalues])?);
        Ok(cotangents)
    }

    /// A comparison of each score for each choice.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(self.k * operands[0].elements(), operands, results)
    }
}

/// `top_k_grad(%index, %dvalues)`: `(index i32[*m, k], dvalues [*m, k]) -> [*m, e]`, each where it was chosen, else 0. The
/// stated result type gives e.
#[derive(Clone, PartialEq, Debug)]
pub struct TopKGrad {
    /// The last dim of the scores, logical.
    pub experts: Dim,
}

impl TopKGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["top_k_grad"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, shapes: &Shapes<'_>) -> Result<TopKGrad, String> {
        let scores = shapes.results.first().ok_or("has no result")?.logical();
        let (_, experts) = operands::rows_and_last("the result", &scores)?;
        Ok(TopKGrad { experts: experts.clone() })
    }
}

impl OpDef for TopKGrad {
    fn name(&self) -> &'static str {
        "top_k_grad"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[1]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [index, dvalues] = operands::take(operands, "index, dvalues")?;
        let dvalues = dvalues.logical();
        let dtype = operands::float("dvalues", &dvalues)?;
        operands::expect("index", index, DType::I32, &dvalues.dims)?;
        let (rows, _) = operands::rows_and_last("dvalues", &dvalues)?;
        Ok(vec![Type::new(dtype, [rows, std::slice::from_ref(&self.experts)].concat())])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*m k!, *m k! -> *m e!".to_string()
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
