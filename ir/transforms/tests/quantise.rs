//! Products that are quantised, their blocks, and what the backward reads of them.

use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt, is_record};
use ir::ids::Value;
use ir::models::{Batch, preset, presets};
use ir::ops::{AbsMax, KernelOp, Op, Quantise};
use ir::optimizer::Optimizer;
use ir::options::{Quantisation, Scales};
use ir::text::parse;
use ir::types::DType;
use meshwright_transforms::differentiate::differentiate;
use meshwright_transforms::quantise::quantise;
use std::collections::BTreeSet;

const BLOCKS: Quantisation = Quantisation { scales: Scales::Blocks(128), cotangents: DType::F8E4M3 };
const TENSORS: Quantisation = Quantisation { scales: Scales::Tensor, cotangents: DType::F8E5M2 };
const DELAYED: Quantisation = Quantisation { scales: Scales::Delayed(16), cotangents: DType::F8E5M2 };

fn quantised(model: Model, recipe: &Quantisation) -> (Model, usize) {
    let mut model = differentiate(model, &Optimizer::default()).unwrap();
    let count = quantise(&mut model, recipe).unwrap();
    (model, count)
}

fn of_preset(name: &str, recipe: &Quantisation) -> (Model, usize) {
    let batch = Batch { batch: 2, seq: 256, dtype: DType::BF16 };
    quantised(preset(name).unwrap().config.build(&batch).unwrap(), recipe)
}

fn block<'a>(model: &'a Model, name: &str) -> &'a Block {
    model.blocks.values().find(|block| block.name == name).unwrap()
}

fn is_scaled(stmt: &Stmt) -> Option<bool> {
    match &stmt.op {
        Op::Kernel(KernelOp::Einsum(einsum)) => Some(einsum.scaled.is_some()),
        _ => None,
    }
}

fn is_param(block: &Block, value: Value) -> bool {
    block.arg_kind(value) == Some(ArgKind::Param)
}

/// Every product with a matrix of parameters is quantised, but for those of routers and with the vocabulary, in all families and sections.
#[test]
fn all_products_with_parameters_but_heads_and_routers() {
    for preset in presets() {
        let batch = Batch { batch: 2, seq: 256, dtype: DType::BF16 };
        let model = preset.config.build(&batch).unwrap();
        for recipe in [BLOCKS, TENSORS, DELAYED] {
            let (model, count) = quantised(model.clone(), &recipe);
            let mut products = 0;
            for block in model.blocks.values() {
                let plain = block
                    .sections
                    .iter()
                    .flat_map(|section| &section.stmts)
                    .filter(|stmt| is_scaled(stmt) == Some(false));
                for stmt in plain {
                    let tensors = stmt.operands.iter().chain(&stmt.results);
                    let mut dims = tensors.flat_map(|&value| &block.ty(value).dims);
                    let is_exempt = |role| matches!(role, DimRole::Vocabulary | DimRole::RouterLogits);
                    let exempt = dims.any(|dim| dim.role(&model.dims).is_some_and(is_exempt));
                    // A product with a vector, such as the gate of a shared expert, has no blocks.
                    let is_matrix = |value: Value| is_param(block, value) && block.ty(value).dims.len() > 1;
                    let reads = stmt.operands.iter().any(|&value| is_matrix(value));
                    assert!(exempt || !reads, "{}: `{}` stays", preset.name, block.value_name(stmt.results[0]));
                }
                products += block[SectionKind::F].stmts.iter().filter(|stmt| is_scaled(stmt) == Some(true)).count();
            }
            assert!(count > 0 && products == count, "{}: {products} of {count}", preset.name);
        }
    }
}

#[test]
fn forward_and_gradients_are_quantised_along_what_they_sum() {
    let (model, _) = of_preset("tiny-llama", &BLOCKS);
    let layer = block(&model, "layer");
    let sizes = |kind: SectionKind, of: &str| -> BTreeSet<Vec<u64>> {
        let measures = layer[kind].stmts.iter().filter(|stmt| layer.find(of) == Some(stmt.operands[0]));
        let size = |stmt: &Stmt| match &stmt.op {
            Op::Kernel(KernelOp::AbsMax(AbsMax { block })) => {
                Some(block.iter().map(|size| size.unwrap_or(0)).collect())
            }
            _ => None,
        };
        measures.filter_map(size).collect()
    };
    use SectionKind::{F, I, W};
    // `%n` is what gate and up read, 256 wide; their cotangents are 768 wide.
    assert_eq!(sizes(F, "n"), BTreeSet::from([vec![1, 1, 128], vec![1, 128, 1]]));
    assert_eq!(sizes(F, "gate"), BTreeSet::from([vec![128, 128]]));
    assert_eq!(sizes(F, "wq"), BTreeSet::from([vec![128, 1, 1, 32]]));
    assert_eq!((sizes(I, "gate"), sizes(W, "n")), (BTreeSet::new(), BTreeSet::new()), "I and W reuse the scales of F");
    assert_eq!(sizes(I, "fg.d"), BTreeSet::from([vec![1, 1, 128]]));
    assert_eq!(sizes(W, "fg.d"), BTreeSet::from([vec![1, 128, 1]]));
    let copies = |kind: SectionKind| -> Vec<DType> {
        let quantise = layer[kind].stmts.iter().filter_map(|stmt| match &stmt.op {
            Op::Kernel(KernelOp::Quantise(Quantise { to })) => Some(*to),
            _ => None,
        });
        quantise.collect()
    };
    assert!([F, I, W].iter().all(|&kind| copies(kind).iter().all(|&to| to == DType::F8E4M3)));
    let (model, _) = of_preset("tiny-llama", &TENSORS);
    let layer = block(&model, "layer");
    let formats: Vec<DType> =
        layer[I].stmts.iter().flat_map(|stmt| stmt.results.iter().map(|&value| layer.ty(value).dtype)).collect();
    assert!(formats.contains(&DType::F8E5M2), "cotangents have a larger range");
}

/// Saved values that only gradients of parameters read: the backward does not read `%n`, but its 8-bit copy.
#[test]
fn eight_bits_are_saved_where_nothing_else_is_read() {
    for recipe in [BLOCKS, TENSORS, DELAYED] {
        let (model, _) = of_preset("tiny-llama", &recipe);
        let layer = block(&model, "layer");
        let backward = || [SectionKind::I, SectionKind::W].into_iter().flat_map(|kind| &layer[kind].stmts);
        let is_read = |name: &str| {
            let value = layer.find(name).unwrap();
            backward().any(|stmt| stmt.operands.contains(&value))
        };
        // The gradient of attention reads its output, that of the product reads a copy of it.
        assert!(!is_read("n") && !is_read("fp") && is_read("o"), "{recipe:?}");
        let made: BTreeSet<Value> = layer[SectionKind::F].stmts.iter().flat_map(|stmt| stmt.results.clone()).collect();
        let narrow = |value: &Value| made.contains(value) && layer.ty(*value).dtype.bytes() == 1;
        let saved: BTreeSet<Value> = backward().flat_map(|stmt| &stmt.operands).copied().filter(narrow).collect();
        assert_eq!(saved.len(), 3, "{recipe:?}: copies of %a, %n and %fp");
    }
}

#[test]
fn dims_without_blocks_stay() {
    let text = |width: u64| {
        format!(
            "dims [b=4, s=64, h=256, f={width}, v=32]
            param %up: bf16[h, f]
            param %emb: bf16[v, f]
            model @m(%x: input bf16[b, s, h], %labels: input i32[b, s]) {{
              call @net(%x, %labels; %up, %emb)
            }}
            block @net(%x: input bf16[b, s, h], %labels: input i32[b, s]; %up: param bf16[h, f], %emb: param bf16[v, f]) -> loss f32[] {{
              %y: bf16[b, s, f] = einsum(%x, %up, eq=\"b s h, h f -> b s f\")
              %z: bf16[b, s, v] = einsum(%y, %emb, eq=\"b s f, v f -> b s v\")
              %l: f32[], %lse: f32[b, s] = cross_entropy(%z, %labels)
              return %l
            }}"
        )
    };
    // 131 is prime, and of 34 = 2 x 17 all are one block; blocks of 141 = 3 x 47 have 47.
    for (width, count) in [(131, 0), (34, 1), (141, 1), (256, 1)] {
        let model = parse(&text(width)).unwrap().model;
        assert_eq!(quantised(model.clone(), &BLOCKS).1, count, "{width}");
        assert_eq!(quantised(model, &TENSORS).1, 1, "{width}");
    }
}

#[test]
fn gains_are_no_products_and_names_are_free() {
    let text = "
        dims [b=4, s=64, h=256, f=128, v=32]
        param %gain: bf16[h]
        param %up: bf16[h, f]
        param %emb: bf16[v, f]
        model @m(%x: input bf16[b, s, h], %labels: input i32[b, s]) {
          call @net(%x, %labels; %gain, %up, %emb)
        }
        block @net(%x: input bf16[b, s, h], %labels: input i32[b, s]; %gain: param bf16[h], %up: param bf16[h, f], %emb: param bf16[v, f]) -> loss f32[] {
          %x.g: bf16[b, s, h] = einsum(%x, %gain, eq=\"b s h, h -> b s h\")
          %x_g_ages: bf16[b, s, f] = einsum(%x.g, %up, eq=\"b s h, h f -> b s f\")
          %z: bf16[b, s, v] = einsum(%x_g_ages, %emb, eq=\"b s f, v f -> b s v\")
          %l: f32[], %lse: f32[b, s] = cross_entropy(%z, %labels)
          return %l
        }";
    for recipe in [BLOCKS, TENSORS, DELAYED] {
        let (model, count) = quantised(parse(text).unwrap().model, &recipe);
        assert_eq!(count, 1, "{recipe:?}: the gain and the head stay");
        let fields: Vec<_> =
            model.params.values().filter(|param| is_record(&param.name)).map(|param| param.field.as_deref()).collect();
        assert_eq!(fields.len(), if recipe == DELAYED { 2 } else { 0 });
        assert!(fields.iter().all(|field| ["x_g_", "x_g_ages_d"].contains(&field.unwrap())), "{fields:?}");
    }
}

#[test]
fn records_belong_to_runs_of_a_block() {
    let (model, _) = of_preset("tiny-llama", &DELAYED);
    let records: Vec<_> = model.params.values().filter(|param| is_record(&param.name)).collect();
    // Four values and seven cotangents of a layer.
    assert_eq!(records.len(), 11);
    assert!(records.iter().all(|record| record.count == Some(4) && !record.decay));
    let layer = block(&model, "layer");
    let updates = layer[SectionKind::U].stmts.iter().filter(|stmt| stmt.op.name() == "ages").count();
    let counts = layer[SectionKind::W].stmts.iter().filter(|stmt| stmt.accumulate && stmt.op.name() == "scale").count();
    assert_eq!((updates, counts), (11, 11));
    let trained = differentiate(
        preset("tiny-llama").unwrap().config.build(&Batch { batch: 2, seq: 256, dtype: DType::BF16 }).unwrap(),
        &Optimizer::default(),
    )
    .unwrap();
    assert_eq!(model.parameter_count(), trained.parameter_count());
}
