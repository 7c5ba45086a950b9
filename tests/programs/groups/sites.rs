//! Groups and single ops of compiled programs.

use cost::PROGRAM;
use ir::entity::PrimaryMap;
use ir::fused::Fused;
use ir::graph::{Stmt, ValueData};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::models::{Batch, Experts, Gpt2Config, LlamaConfig, ModelConfig, preset};
use ir::ops::{Einsum, KernelOp, Op};
use ir::optimizer::Optimizer;
use ir::options::PlanOptions;
use ir::program::{Body, BodyInstr, BodyKind};
use ir::types::Type;
use meshwright::compiler::parallel;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use meshwright::compiler::precision;
use meshwright::runtime::backend::{GroupPlace, GroupSite, GroupStmt};
use meshwright::runtime::backends::cuda::check::groups::Run;
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

    /// The numbers of its tensors that are not random.
    pub(crate) fn draw(&self, at: [usize; 2], i: u64) -> Option<f32> {
        let [stmt] = &self.fused.stmts[..] else { return None };
        self.filled(stmt, at, i).or_else(|| scales(&stmt.op, at, i))
    }

    /// Numbers of filled rows, from none to all of a chunk, and zeros in the rows that are not filled.
    fn filled(&self, stmt: &Stmt, at: [usize; 2], i: u64) -> Option<f32> {
        let Op::Kernel(KernelOp::Einsum(Einsum { ragged: Some(ragged), .. })) = &stmt.op else { return None };
        let sizes = self.values[stmt.operands[0]].ty.local_sizes(&self.mesh, &self.coordinates);
        let (rows, width) = (sizes[ragged.rows], sizes[ragged.rows + 1..].iter().product::<u64>());
        let filled = |chunk: u64| 2 * chunk % (rows + 1);
        let is_empty = |i: u64| i / width % rows >= filled(i / width / rows);
        match at {
            [0, 0] => is_empty(i).then_some(0.0),
            [0, 2] => Some(filled(i) as f32),
            _ => None,
        }
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

/// Numbers of scales and of what they are made of: powers of two. Others are random.
fn scales(op: &Op, [side, at]: [usize; 2], i: u64) -> Option<f32> {
    let is_scale = match op {
        Op::Kernel(KernelOp::ScaleFor(_)) => side == 0,
        Op::Kernel(KernelOp::Quantise(_)) => [side, at] == [0, 1],
        Op::Kernel(KernelOp::Einsum(op)) => op.scaled.is_some() && side == 0 && at > 1,
        _ => false,
    };
    is_scale.then(|| 2f32.powi((i % 5) as i32 - 2))
}

/// The groups of some models, and ops of them that are in none.
pub(crate) fn cases() -> Vec<RankGroup> {
    let (mut cases, mut known): (Vec<RankGroup>, HashSet<String>) = (Vec::new(), HashSet::new());
    for (name, config, format, configuration) in models() {
        let precision = precision::precision(format).expect("a precision");
        // Tensor cores take multiples of 16 tokens in 8 bits.
        let seq = if precision.quantisation.is_some() { 8 } else { 6 };
        let batch = Batch { batch: 2, seq, dtype: precision.dtype };
        let request = PipelineOptions {
            options: PlanOptions::of(parallel::parse(configuration).expect("a configuration")),
            quantisation: precision.quantisation,
            fusion: true,
            optimizer: Optimizer::default(),
            microbatches: 1,
            stop_after: None,
        };
        let model = config.build(&batch).expect("a model");
        let file = compile(model.into(), &request, &PROGRAM, &mut |_, _| {}).unwrap_or_else(|why| panic!("{why}"));
        let program = file.program.expect("a program");
        let name = format!("{name} {format} {configuration}");
        for body in program.bodies.values().filter(|body| body.kind != BodyKind::R) {
            for instr in &body.instrs {
                let stmts = instr.stmts();
                // An update's results are its operands.
                let is_update = |stmt: &Stmt| stmt.results.iter().any(|result| stmt.operands.contains(result));
                let is_left_out = |stmt: &Stmt| !matches!(stmt.op, Op::Kernel(_)) || is_update(stmt);
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
    let wide = LlamaConfig { hidden: 32, feed_forward: 48, head: 8, ..llama.clone() };
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
    let [llama, wide, moe] = [llama, wide, moe].map(ModelConfig::Llama);
    let gpt2 = ModelConfig::Gpt2(gpt2);
    vec![
        ("llama", llama.clone(), "f32", "dp=1"),
        ("llama", llama, "bf16", "tp=2"),
        ("gpt2", gpt2.clone(), "f32", "dp=1"),
        ("gpt2", gpt2, "bf16", "dp=1"),
        ("moe", moe, "f32", "dp=1"),
        ("llama", wide.clone(), "fp8-block", "tp=2"),
        ("llama", wide, "fp8-delayed", "dp=1"),
    ]
}
