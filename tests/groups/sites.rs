//! Groups and single ops of compiled programs.

use cost::CPU;
use ir::entity::PrimaryMap;
use ir::fused::Fused;
use ir::graph::{Stmt, ValueData};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::models::{Batch, Experts, Gpt2Config, LlamaConfig, ModelConfig, preset};
use ir::ops::Op;
use ir::optimizer::Optimizer;
use ir::options::PlanOptions;
use ir::program::{Body, BodyInstr, BodyKind};
use ir::types::{DType, Type};
use meshwright::compiler::parallel;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use runtime::backend::{GroupPlace, GroupSite, GroupStmt};
use runtime::backends::cuda::check::groups::Run;
use runtime::backends::cuda::plan;
use std::collections::HashSet;

/// A group, or an op, on the last rank.
pub(crate) struct RankGroup {
    pub(crate) name: String,
    pub(crate) run: Run,
    fused: Fused,
    values: PrimaryMap<Value, ValueData>,
    mesh: Mesh,
    coordinates: Vec<u64>,
}

impl RankGroup {
    fn new(name: &str, mesh: &Mesh, body: &Body, instr: &BodyInstr) -> RankGroup {
        let (stmts, outs) = (instr.stmts().to_vec(), instr.defines().to_vec());
        let ops: Vec<&str> = stmts.iter().map(|stmt| stmt.op.name()).collect();
        RankGroup {
            name: format!("{name}, body @{}: {}", body.name, ops.join(" ")),
            run: if let [stmt] = &stmts[..] { Run::Op(stmt.accumulate) } else { Run::Group },
            fused: Fused { stmts, outs },
            values: body.values.clone(),
            mesh: mesh.clone(),
            coordinates: mesh.coordinates(mesh.devices() - 1),
        }
    }

    /// Calls with the group as backends see it.
    pub(crate) fn with_site<R>(&self, call: impl FnOnce(&GroupSite<'_>) -> Result<R, String>) -> Result<R, String> {
        let (values, mesh, coordinates) = (&self.values, &self.mesh, &self.coordinates);
        GroupSite::with(&self.fused, GroupPlace { values, mesh, coordinates, forward: true }, call)
    }

    /// Text that tells it from other cases.
    fn key(&self) -> String {
        let types = |side: &[&Type]| {
            let ty = |ty: &&Type| format!("{:?}{:?}", ty.dtype, ty.local_sizes(&self.mesh, &self.coordinates));
            side.iter().map(ty).collect::<Vec<_>>()
        };
        let stmt = |stmt: &GroupStmt<'_>| {
            let sides = [types(stmt.site.operands), types(stmt.site.results)];
            format!("{:?} {:?} {:?} {sides:?}", stmt.op, stmt.operands, stmt.results)
        };
        self.with_site(|site| Ok(site.stmts.iter().map(stmt).collect())).expect("kernels")
    }
}

/// The groups of some models, and ops of them that are in none.
pub(crate) fn cases() -> Vec<RankGroup> {
    let (mut cases, mut known): (Vec<RankGroup>, HashSet<String>) = (Vec::new(), HashSet::new());
    for (name, config, precision, configuration) in models() {
        let batch = Batch { batch: 2, seq: 6, dtype: if precision == "bf16" { DType::BF16 } else { DType::F32 } };
        let request = PipelineOptions {
            options: PlanOptions::of(parallel::parse(configuration).expect("a configuration")),
            quantisation: None,
            fusion: true,
            optimizer: Optimizer::default(),
            microbatches: 1,
            stop_after: None,
        };
        let model = config.build(&batch).expect("a model");
        let file = compile(model.into(), &request, &CPU, &mut |_, _| {}).unwrap_or_else(|why| panic!("{why}"));
        let program = file.program.expect("a program");
        let name = format!("{name} {precision} {configuration}");
        for body in program.bodies.values().filter(|body| body.kind != BodyKind::R) {
            for instr in &body.instrs {
                let stmts = instr.stmts();
                let is_planned = |stmt: &Stmt| matches!(&stmt.op, Op::Kernel(op) if plan::has(op));
                // An update's results are its operands.
                let is_update = |stmt: &Stmt| stmt.results.iter().any(|result| stmt.operands.contains(result));
                let is_left_out = |stmt: &Stmt| !is_planned(stmt) || is_update(stmt);
                if stmts.is_empty() || matches!(instr, BodyInstr::Compute(stmt) if is_left_out(stmt)) {
                    continue;
                }
                let case = RankGroup::new(&name, &file.model.mesh, body, instr);
                if known.insert(case.key()) {
                    cases.push(case);
                }
            }
        }
    }
    cases
}

/// Models of one layer, with the formats and the configuration of each.
fn models() -> Vec<(&'static str, ModelConfig, &'static str, &'static str)> {
    let config = |name| preset(name).expect("a preset").config.clone();
    let ModelConfig::Llama(llama) = config("tiny-llama") else { panic!("a Llama") };
    let ModelConfig::Gpt2(gpt2) = config("tiny-gpt2") else { panic!("a GPT-2") };
    let llama = LlamaConfig {
        vocabulary: 37,
        hidden: 24,
        feed_forward: 20,
        layers: 1,
        heads: 4,
        kv_heads: 2,
        head: 6,
        ..llama
    };
    let experts = Some(Experts { capacity: Some(2.0), group: Some(6), ..Experts::softmax(4, 2, 12) });
    let moe = LlamaConfig { experts, ..llama.clone() };
    let gpt2 = Gpt2Config {
        vocabulary: 37,
        positions: Some(6),
        hidden: 24,
        feed_forward: 20,
        layers: 1,
        heads: 4,
        attention_dropout: 0.1,
        residual_dropout: 0.1,
        embedding_dropout: 0.1,
        ..gpt2
    };
    let (llama, moe, gpt2) = (ModelConfig::Llama(llama), ModelConfig::Llama(moe), ModelConfig::Gpt2(gpt2));
    vec![
        ("llama", llama.clone(), "f32", "dp=1"),
        ("llama", llama, "bf16", "tp=2"),
        ("gpt2", gpt2.clone(), "f32", "dp=1"),
        ("gpt2", gpt2, "bf16", "dp=1"),
        ("moe", moe, "f32", "dp=1"),
    ]
}
