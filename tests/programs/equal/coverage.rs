//! Coverage of the cases, and its required counts.

use ir::graph::{Block, Model, Stmt};
use ir::ops::{Collective, Op};
use ir::rule::{DimFactors, Instance, Rule, TensorFactors, holds};
use ir::types::Type;
use scheduler::placement::{Pipeline, Placement};
use std::collections::{BTreeMap, BTreeSet};

/// Cases of a whole run, less the ill-conditioned ones.
const ALL_CASES: usize = 550;

/// Counts over all cases.
#[derive(Default)]
pub(crate) struct Coverage {
    cases: usize,
    uneven: usize,
    staged: usize,
    pending: usize,
    /// On several ranks.
    placements: BTreeMap<String, usize>,
    /// (op, letter) that some axis may cut.
    legal: BTreeSet<(String, String)>,
    /// How often one did.
    cut: BTreeMap<(String, String), usize>,
    collectives: BTreeMap<&'static str, usize>,
}

impl Coverage {
    /// Counts a planned model.
    pub(crate) fn count(&mut self, model: &Model, pipeline: &Pipeline) {
        self.cases += 1;
        self.staged += usize::from(pipeline.stages() >= 2);
        *self.placements.entry(pipeline.placement.to_string()).or_insert(0) += usize::from(pipeline.ranks >= 2);
        let blocks: Vec<&Block> = model.blocks.values().collect();
        let uneven = |ty: &Type| ty.dims.iter().any(|dim| !model.mesh.is_even(dim.size, &dim.axes));
        self.uneven += usize::from(blocks.iter().any(|block| block.values.values().any(|data| uneven(&data.ty))));
        let mut pending = false;
        for block in blocks {
            for stmt in block.sections.iter().flat_map(|section| &section.stmts) {
                self.statement(block, stmt);
                let computes = matches!(stmt.op, Op::Kernel(_));
                pending |=
                    computes && stmt.operands.iter().any(|&v| block.ty(v).partial.is_some() && block.ty(v).rank() > 0);
            }
        }
        self.pending += usize::from(pending);
    }

    fn statement(&mut self, block: &Block, stmt: &Stmt) {
        if let Op::Collective(collective) = &stmt.op {
            *self.collectives.entry(collective.name()).or_insert(0) += 1;
        }
        let Some(def) = stmt.op.def() else { return };
        let operands: Vec<&Type> = stmt.operands.iter().map(|&v| block.ty(v)).collect();
        let results: Vec<&Type> = stmt.results.iter().map(|&v| block.ty(v)).collect();
        let rule = Rule::parse(&def.rule(&operands, &results)).expect("a rule");
        let instance = rule.instantiate(&operands, &results).expect("a rule that fits");
        let by_equation = stmt.op.attrs().iter().any(|(name, _)| *name == "eq");
        // Products get the numbers of filled rows after sharding, where rows are whole: see tests/training/dropless.rs.
        if by_equation && operands.len() > 2 {
            return;
        }
        for (index, factor) in
            instance.factors.iter().enumerate().filter(|(_, factor)| !factor.replicated && factor.size > 1)
        {
            let role = if by_equation { role(&instance, index) } else { run_name(&factor.name) };
            let key = (def.name().to_string(), role);
            let tensors = instance.operands.iter().zip(&operands).chain(instance.results.iter().zip(&results));
            let is_cut = tensors.clone().any(|(tensor, ty)| cuts(tensor, ty, index));
            self.legal.insert(key.clone());
            *self.cut.entry(key).or_insert(0) += usize::from(is_cut);
        }
    }

    /// How often something must occur that occurs so often in all cases.
    fn needed(&self, often: usize) -> usize {
        (often * self.cases / ALL_CASES).clamp(1, often)
    }

    /// Entries that are not covered enough.
    pub(crate) fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        let (cut, placed) = (self.needed(5), self.needed(20));
        for key in &self.legal {
            let count = self.cut.get(key).copied().unwrap_or(0);
            if count < cut {
                gaps.push(format!("`{}` was cut along `{}` {count} times, not {cut}", key.0, key.1));
            }
        }
        // Only rings have shifts: see tests/programs/configurations.rs.
        for name in Collective::NAMES.into_iter().filter(|name| *name != "collective_shift") {
            let count = self.collectives.get(name).copied().unwrap_or(0);
            if count < placed {
                gaps.push(format!("`{name}` stood in {count} places, not {placed}"));
            }
        }
        let shares =
            [("uneven dims", self.uneven, 30), ("stages", self.staged, 30), ("pending inputs", self.pending, 20)];
        for (what, count, percent) in shares {
            if count * 100 < self.cases * percent {
                gaps.push(format!("{count} of {} cases have {what}, not {percent} %", self.cases));
            }
        }
        for placement in Placement::ALL {
            let count = self.placements.get(&placement.to_string()).copied().unwrap_or(0);
            if count * 100 < self.cases * 10 {
                gaps.push(format!("{count} of {} cases lie as a {placement}, not 10 %", self.cases));
            }
        }
        let missing = REQUIRED.iter().filter(|name| !self.legal.iter().any(|(op, _)| op == *name));
        gaps.extend(missing.map(|name| format!("`{name}` never occurred")));
        gaps
    }
}

/// Ops that every run must meet: all that a random model can hold.
const REQUIRED: [&str; 36] = [
    "adamw",
    "add",
    "attention",
    "attention_grad",
    "broadcast",
    "combine",
    "combine_dw",
    "concat",
    "cross_entropy",
    "cross_entropy_grad",
    "dispatch",
    "div",
    "dropout",
    "einsum",
    "embedding",
    "embedding_grad",
    "exp",
    "gelu",
    "layer_norm",
    "layer_norm_dx",
    "mul",
    "pad",
    "permute",
    "pick",
    "reduce_sum",
    "relu_squared",
    "reshape",
    "rms_norm",
    "rope",
    "sgd",
    "silu",
    "silu_grad",
    "slice",
    "softmax",
    "top_k",
    "top_k_grad",
];

/// The dim that is this letter alone (or begins with it) is cut.
fn cuts(tensor: &TensorFactors, ty: &Type, factor: usize) -> bool {
    let mine = |factors: &DimFactors| factors.first() == Some(&factor);
    tensor.iter().zip(&ty.dims).any(|(factors, dim)| mine(factors) && !dim.axes.is_empty())
}

/// Role of a label in an equation; its name has no meaning.
fn role(instance: &Instance, factor: usize) -> String {
    let held = |tensors: &[TensorFactors]| tensors.iter().map(|t| holds(t, factor)).collect::<Vec<_>>();
    format!("operands {:?} result {:?}", held(&instance.operands), held(&instance.results))
}

/// `m.0` and `m.1` are the run `*m`, as are the `m0` and `m1` of rules that are built for a rank; of a merged dim the
/// first letter and the others count apart.
fn run_name(name: &str) -> String {
    if name.starts_with('i') && name != "i0" {
        return "i1".to_string();
    }
    name.trim_end_matches(|c: char| c == '.' || (c.is_ascii_digit() && !name.starts_with('i'))).to_string()
}
