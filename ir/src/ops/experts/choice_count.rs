//! `choice_count(%index, %record, %bias, rate=0.001)`: how many tokens each expert got.

use crate::ids::Value;
use crate::ops::{
    Attr, Attrs, Builder, Equation, MovedBias, Noted, OpDef, OpFacts, Reduce, Shapes, TopKGrad, Unary, UnaryKind,
    operands,
};
use crate::types::{DType, Type};

/// `(index i32[*m, k], record f32[e], bias [e]) -> f32[e]`: the number of choices of each expert.
///
/// The record is a parameter that notes the counts of a step. They are its gradient, whatever becomes of the result ([`OpFacts::noted`]): sums over
/// micro-batches and ranks are those of gradients. Its update replaces it by them, and with a bias moves the bias of each expert
/// by `rate` towards even counts (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2).
#[derive(Clone, PartialEq, Debug)]
pub struct ChoiceCount {
    /// How far a step moves a bias; none without a bias.
    pub rate: Option<f64>,
}

impl ChoiceCount {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["choice_count"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<ChoiceCount, String> {
        Ok(ChoiceCount { rate: attrs.optional_float("rate")? })
    }

    /// The sum over all dims but the last of `rank`.
    fn by_expert(rank: usize) -> Reduce {
        let mut factors: Vec<String> = (1..rank).map(|dim| format!("m{dim}")).collect();
        factors.push("e".to_string());
        Reduce::sum(Equation { operands: vec![factors], result: vec!["e".to_string()] })
    }
}

impl OpDef for ChoiceCount {
    fn name(&self) -> &'static str {
        "choice_count"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.rate.map(|rate| ("rate", Attr::Float(rate))).into_iter().collect()
    }

    fn facts(&self) -> OpFacts {
        let bias = self.rate.map(|rate| MovedBias { operand: 2, rate });
        OpFacts { noted: Some(Noted { record: 1, bias }), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let (index, record, bias) = match (operands, self.rate) {
            ([index, record], None) => (index, record, None),
            ([index, record, bias], Some(_)) => (index, record, Some(bias)),
            _ => return Err("takes an index, a record, and with a `rate` a bias".to_string()),
        };
        operands::rows_and_last("index", index)?;
        operands::expect("index", index, DType::I32, &index.dims)?;
        let [experts] = record.dims.as_slice() else { return Err("`record` must have one dim".to_string()) };
        operands::expect("record", record, DType::F32, &record.dims)?;
        if let Some(bias) = bias {
            operands::expect("bias", bias, operands::float("bias", bias)?, std::slice::from_ref(experts))?;
        }
        Ok(vec![record.logical()])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        if operands.len() == 2 { "*m+ k!, e! -> e!" } else { "*m+ k!, e!, e! -> e!" }.to_string()
    }

    /// A one for each choice, and their sum by expert.
    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        let (index, experts) = (operands[0], b.ty(operands[1]).logical().dims.remove(0));
        let sum = ChoiceCount::by_expert(b.ty(index).rank());
        let kinds = [UnaryKind::Cast(DType::F32), UnaryKind::Scale(0.0), UnaryKind::Shift(1.0)];
        let ones = kinds.into_iter().try_fold(index, |ones, kind| b.one(Unary(kind), &[ones]));
        let chosen = ones.and_then(|ones| b.one(TopKGrad { experts }, &[index, ones]));
        Some(chosen.and_then(|chosen| b.op(sum, &[chosen])))
    }
}
