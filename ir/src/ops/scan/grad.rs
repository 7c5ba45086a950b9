//! The gradient of a scan.

use super::settings::{ScanPass, signature};
use super::{ScanKind, ScanSettings};
use crate::ops::{Attr, Attrs, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::Type;

/// `scan_grad(%q, %k, %v, %decay, [%rates or %beta,] %pos, %dout) -> dq, dk, dv, ddecay[, drates or dbeta]`. It computes the states again.
#[derive(Clone, PartialEq, Debug)]
pub struct ScanGrad(pub ScanSettings);

impl ScanGrad {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["scan_grad"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<ScanGrad, String> {
        ScanSettings::parse(attrs).map(ScanGrad)
    }
}

impl OpDef for ScanGrad {
    fn name(&self) -> &'static str {
        "scan_grad"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.0.attrs()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { carries_state: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        self.0.check()?;
        let Some((dout, forward)) = operands.split_last() else { return Err("has no operands".to_string()) };
        let of_values = signature(self.0.kind, forward)?;
        operands::expect("dout", dout, of_values.dtype, &of_values.values)?;
        Ok(forward[..forward.len() - 1].iter().map(|ty| ty.logical()).collect())
    }

    /// Queries and keys have a gradient of each head and each column of its values, decay and beta one of each column.
    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let kind = self.0.kind;
        let of_operands = kind.rule(operands, "+");
        let of_results = kind.rule(operands, "");
        let results = of_results.rsplit_once(',').map_or("", |(results, _)| results);
        let b = if kind == ScanKind::Selective { "b+" } else { "b" };
        format!("{of_operands}, {b} s! g r+ c+ -> {results}")
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(self.0.flops(operands, ScanPass::Backward), operands, results)
    }
}
