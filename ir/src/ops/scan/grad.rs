//! The gradient of a scan.

use super::ScanSettings;
use super::settings::ScanPass;
use crate::ops::{Attr, Attrs, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{DType, Type};

/// `scan_grad(%q, %k, %v, %decay, [%rates or %beta,] %pos, [%start,] %dout[, %dend]) -> dq, dk, dv, ddecay[, drates or dbeta]`. It
/// computes the states again. In blocks it reads the state before each, and the gradient by the state behind each, which is 0 without `dend`.
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
        let count = self.0.operands();
        let Some((forward, [dout, dend @ ..])) = operands.split_at_checked(count) else {
            return Err(format!("takes {} operands or more, not {}", count + 1, operands.len()));
        };
        let of_scan = self.0.signature(forward)?;
        operands::expect("dout", dout, of_scan.dtype, &of_scan.values)?;
        match (dend, of_scan.states) {
            ([], _) => {}
            ([dend], Some(states)) => operands::expect("dend", dend, DType::F32, &states.dims)?,
            _ => return Err(format!("takes no {} operands", operands.len())),
        }
        Ok(forward[..self.0.results()].iter().map(|ty| ty.logical()).collect())
    }

    /// Queries and keys have a gradient of each head and each column of its values, decay and beta one of each column.
    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let mut of_operands = self.0.rules(operands, "+");
        let of_results = self.0.rules(operands, "");
        let (states, dout) = (self.0.of_states("+"), of_operands[2].clone());
        of_operands.extend(self.0.block.map(|_| states.clone()));
        of_operands.push(dout);
        of_operands.resize(operands.len(), states);
        format!("{} -> {}", of_operands.join(", "), of_results[..self.0.results()].join(", "))
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(self.0.flops(operands, ScanPass::Backward), operands, results)
    }
}
