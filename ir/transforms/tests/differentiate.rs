//! Sections that differentiation makes of blocks, statement by statement. Other tests compare the numbers with
//! central differences.

use ir::graph::{Arg, ArgKind, Block, Model, ResultKind, SectionKind, Stmt};
use ir::ids::Value;
use ir::models::{Batch, preset, presets};
use ir::ops::{Binary, BinaryKind, Builder, Einsum, Op, Unary, UnaryKind};
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::text::{File, parse, print};
use ir::types::{DType, Type};
use meshwright_transforms::differentiate::differentiate;
use std::collections::BTreeSet;

fn trained(name: &str, dtype: DType) -> Model {
    let model = preset(name).unwrap().config.build(&Batch { batch: 2, seq: 16, dtype }).unwrap();
    differentiate(model, &Optimizer::default()).unwrap()
}

fn block<'a>(model: &'a Model, name: &str) -> &'a Block {
    model.blocks.values().find(|block| block.name == name).unwrap()
}

fn names(block: &Block, values: &[Value]) -> Vec<String> {
    values.iter().map(|&value| block.value_name(value).to_string()).collect()
}

fn gradients(block: &Block) -> Vec<String> {
    let stmts = block[SectionKind::W].stmts.iter().filter(|stmt| stmt.accumulate);
    stmts.map(|stmt| block.value_name(stmt.results[0]).to_string()).collect()
}

/// Values of `F`, arguments included, that `I` or `W` reads.
fn kept(block: &Block) -> BTreeSet<String> {
    let given = |v: &Value| matches!(block.arg_kind(*v), Some(ArgKind::Value | ArgKind::Input));
    let results = block[SectionKind::F].stmts.iter().flat_map(|stmt| stmt.results.clone());
    let forward: BTreeSet<Value> = block.args.iter().map(|arg| arg.value).filter(given).chain(results).collect();
    let later = [SectionKind::I, SectionKind::W];
    let read = later.iter().flat_map(|&kind| &block[kind].stmts).flat_map(|stmt| &stmt.operands);
    read.filter(|value| forward.contains(value)).map(|&value| block.value_name(value).to_string()).collect()
}

/// Every operand is defined before it is read, and every value but an argument once.
fn check_order(block: &Block) {
    let mut defined: BTreeSet<Value> = block.args.iter().map(|arg| arg.value).collect();
    for section in &block.sections {
        defined.extend(&section.args);
        for stmt in &section.stmts {
            assert!(stmt.operands.iter().all(|value| defined.contains(value)), "{}: {stmt:?}", block.name);
            for &result in &stmt.results {
                assert!(defined.insert(result) || block.arg_kind(result).is_some(), "{}: {stmt:?}", block.name);
            }
        }
        assert!(section.ret.iter().all(|value| defined.contains(value)));
    }
    assert_eq!(defined.len(), block.values.len(), "values that nothing defines");
}

#[test]
fn the_sections_of_a_llama_layer() {
    let model = trained("tiny-llama", DType::F32);
    let layer = block(&model, "layer");
    let mut found = gradients(layer);
    found.sort();
    let params = ["down", "gate", "norm1", "norm2", "up", "wk", "wo", "wq", "wv"];
    assert_eq!(found, params.map(|param| format!("{param}.grad")));
    assert_eq!(layer[SectionKind::W].stmts.len(), 9);
    assert_eq!(names(layer, &layer[SectionKind::I].args), ["y.d"]);
    assert_eq!(names(layer, &layer[SectionKind::I].ret), ["x.d"]);
    let expected =
        ["a", "a_rstd", "fg", "fp", "fs", "fu", "k", "n", "n_rstd", "o", "o_lse", "pos", "q", "seg", "v", "x", "x1"];
    assert_eq!(kept(layer), expected.map(str::to_string).into());
}

#[test]
fn every_preset_is_in_order() {
    for name in ["tiny-llama", "tiny-gpt2"] {
        for dtype in [DType::F32, DType::BF16] {
            let model = trained(name, dtype);
            model.blocks.values().for_each(check_order);
            check_order(&model.step.unwrap().graph);
        }
    }
}

#[test]
fn the_first_block_updates_a_tied_table() {
    let model = trained("tiny-llama", DType::F32);
    let (embed, head) = (block(&model, "embed"), block(&model, "head"));
    assert_eq!(gradients(embed), ["emb.grad"]);
    assert_eq!(gradients(head), ["emb.grad", "final_norm.grad"]);
    let states = |block: &Block| names(block, &block.args_of(ArgKind::State).collect::<Vec<_>>());
    assert_eq!(states(embed), ["emb.m", "emb.v"]);
    assert_eq!(states(head), ["final_norm.m", "final_norm.v"]);
    assert_eq!(names(embed, &embed[SectionKind::I].args), ["x.d"]);
    assert!(embed[SectionKind::I].ret.is_empty() && embed[SectionKind::I].stmts.is_empty());
    assert_eq!(names(head, &head[SectionKind::I].args), ["loss.d"]);
    assert_eq!(head.ty(head[SectionKind::I].args[0]), &Type::scalar(DType::F32));
}

fn updates(block: &Block) -> Vec<String> {
    let print = |stmt: &Stmt| {
        let list = |values: &[Value]| names(block, values).join(" ");
        format!("{} = {}({})", list(&stmt.results), stmt.op.name(), list(&stmt.operands))
    };
    block[SectionKind::U].stmts.iter().map(print).collect()
}

#[test]
fn an_update_of_half_precision_goes_through_a_master() {
    let model = trained("tiny-llama", DType::BF16);
    let embed = block(&model, "embed");
    let expected = [
        "emb.sq = sum_squares(emb.grad)",
        "emb.master emb.m emb.v = adamw(emb.master emb.grad emb.m emb.v clip lr step)",
        "emb = cast(emb.master)",
    ];
    assert_eq!(updates(embed), expected);
    let dtype = |name: &str| embed.ty(embed.find(name).unwrap()).dtype;
    assert_eq!((dtype("emb"), dtype("emb.grad"), dtype("emb.master")), (DType::BF16, DType::F32, DType::F32));
    let kinds: Vec<ArgKind> = embed.args.iter().map(|arg| arg.kind).collect();
    let (constant, state) = (ArgKind::Const, ArgKind::State);
    assert_eq!(kinds, [ArgKind::Input, constant, constant, constant, ArgKind::Param, state, state, state]);
}

#[test]
fn the_step_graph_makes_norm_and_clip() {
    let clipped = trained("tiny-gpt2", DType::F32).step.unwrap().graph;
    assert_eq!(names(&clipped, &clipped[SectionKind::F].ret), ["norm", "clip"]);
    let ops = |graph: &Block| -> Vec<&str> { graph[SectionKind::F].stmts.iter().map(|s| s.op.name()).collect() };
    assert_eq!(ops(&clipped), ["sqrt", "clip_factor"]);
    let kind = OptimizerKind::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let model = differentiate(one_block(|_| Ok(())), &Optimizer { kind, clip: None }).unwrap();
    assert_eq!(ops(&model.step.as_ref().unwrap().graph), ["sqrt", "scale", "shift"]);
    assert_eq!(updates(block(&model, "f")), ["w.sq = sum_squares(w.grad)", "w = sgd(w w.grad clip lr)"]);
}

/// `y = x + w` with what `more` adds, whose last statement's result is the block's.
fn one_block(more: impl FnOnce(&mut Builder<'_>) -> Result<(), String>) -> Model {
    let mut block = Block { name: "f".to_string(), results: vec![ResultKind::Value], ..Block::default() };
    let ty = Type::of(DType::F32, &[4, 4]);
    let x = block.add_value("x", ty.clone());
    let w = block.add_value("w", ty);
    block.args = vec![Arg { value: x, kind: ArgKind::Value }, Arg { value: w, kind: ArgKind::Param }];
    let mut builder = Builder::new(&mut block);
    builder.named("y", Binary::of(BinaryKind::Add), &[x, w]).unwrap();
    more(&mut builder).unwrap();
    let stmts = builder.stmts;
    block[SectionKind::F].ret = stmts.last().unwrap().results.clone();
    block[SectionKind::F].stmts = stmts;
    let mut model = Model::default();
    model.blocks.push(block);
    model
}

#[test]
fn a_gradient_that_is_a_cotangent_is_copied() {
    let model = differentiate(one_block(|_| Ok(())), &Optimizer::default()).unwrap();
    let f = block(&model, "f");
    check_order(f);
    assert!(f[SectionKind::I].stmts.is_empty());
    assert_eq!(f[SectionKind::I].args, f[SectionKind::I].ret);
    let [copy] = f[SectionKind::W].stmts.as_slice() else { panic!("one statement") };
    assert_eq!((copy.op.clone(), copy.accumulate), (Op::from(Unary(UnaryKind::Scale(1.0))), true));
    assert_eq!(names(f, &copy.operands), ["y.d"]);
}

#[test]
fn a_sum_of_uses_is_the_accumulating_statement() {
    let model = one_block(|b| {
        let (y, w) = (b.block.find("y").unwrap(), b.block.find("w").unwrap());
        b.named("z", Einsum::new("i j, j k -> i k")?, &[y, w]).map(|_| ())
    });
    let model = differentiate(model, &Optimizer::default()).unwrap();
    let f = block(&model, "f");
    check_order(f);
    let ops = |kind| -> Vec<&str> { f[kind].stmts.iter().map(|stmt| stmt.op.name()).collect() };
    assert_eq!(ops(SectionKind::I), ["einsum"]);
    assert_eq!(ops(SectionKind::W), ["einsum", "add"]);
    assert!(f[SectionKind::W].stmts[1].accumulate && !f[SectionKind::W].stmts[0].accumulate);
    assert_eq!(gradients(f), ["w.grad"]);
}

#[test]
fn a_value_that_is_the_gradient_of_two_is_copied_for_both_uses() {
    let model = one_block(|b| {
        let (y, w) = (b.block.find("y").unwrap(), b.block.find("w").unwrap());
        let u = b.block.add_value("u", Type::of(DType::F32, &[4, 4]));
        b.block.args.push(Arg { value: u, kind: ArgKind::Param });
        let t = b.named("t", Binary::of(BinaryKind::Add), &[w, u])?;
        b.named("z", Binary::of(BinaryKind::Mul), &[y, t]).map(|_| ())
    });
    let model = differentiate(model, &Optimizer::default()).unwrap();
    let f = block(&model, "f");
    check_order(f);
    let ops: Vec<&str> = f[SectionKind::W].stmts.iter().map(|stmt| stmt.op.name()).collect();
    assert_eq!(ops, ["mul", "add", "scale"]);
    assert_eq!(gradients(f), ["w.grad", "u.grad"]);
}

#[test]
fn dead_values_have_no_backward() {
    let model = one_block(|b| {
        let y = b.block.find("y").unwrap();
        b.named("unused", Unary(UnaryKind::AtMost(1.0)), &[y])?;
        b.named("z", Unary(UnaryKind::Silu), &[y]).map(|_| ())
    });
    let model = differentiate(model, &Optimizer::default()).unwrap();
    assert_eq!(block(&model, "f")[SectionKind::I].stmts.len(), 1);
}

#[test]
fn what_cannot_be_differentiated_is_named() {
    let derived = one_block(|b| {
        let y = b.block.find("y").unwrap();
        b.named("z", Binary::of(BinaryKind::GeluGrad), &[y, y]).map(|_| ())
    });
    let error = differentiate(derived, &Optimizer::default()).unwrap_err().to_string();
    assert_eq!(error, "block @f: `%z = gelu_grad(%y, %y)`: `gelu_grad` has no gradient");
    let again = differentiate(trained("tiny-llama", DType::F32), &Optimizer::default()).unwrap_err();
    assert_eq!(again.to_string(), "the model is already differentiated");
    let taken = one_block(|b| {
        let y = b.block.find("y").unwrap();
        b.named("lr", Unary(UnaryKind::Neg), &[y]).map(|_| ())
    });
    let error = differentiate(taken, &Optimizer::default()).unwrap_err().to_string();
    assert_eq!(error, "block @f: `%lr` is a reserved name of training; rename the value");
}

#[test]
fn runs_that_share_a_parameter_are_refused() {
    let mut model = preset("tiny-llama").unwrap().config.build(&Batch { batch: 1, seq: 4, dtype: DType::F32 }).unwrap();
    model.calls[1].params[0].index = ir::graph::ParamIndex::At(0);
    let error = differentiate(model, &Optimizer::default()).unwrap_err();
    assert_eq!(error.block, "layer");
    assert!(error.message.contains("`%norm1`"), "{error}");
}

#[test]
fn decay_is_for_those_that_declare_it() {
    let model = trained("tiny-llama", DType::F32);
    let layer = block(&model, "layer");
    for stmt in layer[SectionKind::U].stmts.iter().filter(|stmt| stmt.op.name() == "adamw") {
        let name = layer.value_name(stmt.results[0]);
        let decays = stmt.op.attrs().contains(&("weight_decay", ir::ops::Attr::Float(0.1)));
        assert_eq!(decays, !name.starts_with("norm"), "{name}");
    }
}

/// Every preset, differentiated: it is valid, its text reads back, and a model that was read gives the same text.
#[test]
fn differentiated_presets_survive_print_and_parse() {
    for preset in presets() {
        let built = preset.config.build(&Batch { batch: 2, seq: 64, dtype: DType::F32 }).expect(preset.name);
        let read = parse(&print(&File::from(built.clone()))).expect(preset.name).model;
        let [built, read] = [built, read].map(|model| differentiate(model, &Optimizer::default()).expect(preset.name));
        ir::verify::verify_planned(&built).unwrap_or_else(|why| panic!("{}: {why}", preset.name));
        let text = print(&File::from(built));
        assert_eq!(print(&File::from(read)), text, "{}", preset.name);
        let file = parse(&text).unwrap_or_else(|why| panic!("{}", why.render(preset.name, &text)));
        assert_eq!(print(&file), text, "{}", preset.name);
        ir::verify::verify_planned(&file.model).unwrap_or_else(|why| panic!("{}", why.render(preset.name, &text)));
    }
}
