//! Rules: on each body all nodes of a class have equal elements, and each recogniser applies somewhere. Rules of moves are
//! tested on random shapes.

#[path = "../../tests/recognise/spell.rs"]
mod spell;

use super::rules;
use crate::egraph;
use crate::egraph::encode::encode;
use crate::egraph::evaluate::{Tensor, evaluate};
use crate::egraph::facts::Graph;
use crate::egraph::generated::{Draft, LeftSide, check};
use crate::egraph::language::{Made, Node, NodeKind, Number};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::saturate::{ROUNDS, saturate};
use egg::Id;
use ir::graph::{Block, SectionKind};
use ir::models::{Batch, preset};
use ir::types::DType;
use std::collections::{BTreeSet, HashMap};

/// Bodies in which each rule applies; `%p` are positions, `%l` labels, some of which are ignored.
const BODIES: [&str; 7] = [
    r#"
    %ii: i32[b, s, h] = iota(dim=2)
    %ci: f32[b, s, h] = cast(%ii, to=f32)
    %z0: f32[b, s, h] = scale(%ci, by=0.0)
    %c: f32[b, s, h] = shift(%z0, by=2.0)
    %same: f32[b, s, h] = scale(%x, by=1.0)
    %n: f32[b, s, h] = scale(%same, by=-1.0)
    %m: f32[b, s, h] = neg(%n)
    %e: f32[b, s, h] = exp(%n)
    %o: f32[b, s, h] = shift(%e, by=1.0)
    %q: f32[b, s, h] = div(%m, %o)
    %r: f32[b, s, h] = at_least(%q, min=0.0)
    %t: f32[b, s, h] = mul(%r, %r)
    %u: f32[b, s, h] = scale(%t, by=0.5)
    %v: f32[b, s, h] = scale(%u, by=3.0)
    %w: f32[b, s, h] = sub(%v, %c)
    %z: f32[b, s, h] = permute(%x, eq="b s h -> b s h")
    %zs: f32[b, s, h] = scale(%z, by=2.0)
    %zp: f32[h, b, s] = permute(%zs, eq="b s h -> h b s")
    %sum: f32[b, s] = reduce_sum(%v, eq="b s h -> b s")"#,
    r#"
    %q: f32[b, s, h] = square(%x)
    %c3: f32[b, s, h] = mul(%q, %x)
    %k: f32[b, s, h] = scale(%c3, by=0.044715)
    %i: f32[b, s, h] = add(%x, %k)
    %u: f32[b, s, h] = scale(%i, by=0.7978845608028654)
    %t: f32[b, s, h] = tanh(%u)
    %o: f32[b, s, h] = shift(%t, by=1.0)
    %hx: f32[b, s, h] = scale(%x, by=0.5)
    %g: f32[b, s, h] = mul(%hx, %o)
    %u2: f32[b, s, h] = scale(%x, by=0.7071067811865476)
    %t2: f32[b, s, h] = erf(%u2)
    %m2: f32[b, s, h] = mul(%t2, %x)
    %s2: f32[b, s, h] = add(%m2, %x)
    %g2: f32[b, s, h] = scale(%s2, by=0.5)"#,
    r#"
    %q: f32[b, s, h] = square(%x)
    %m: f32[b, s] = reduce_sum(%q, eq="b s h -> b s")
    %k: f32[b, s, 1] = reshape(%m)
    %a: f32[b, s, 1] = scale(%k, by=0.25)
    %e: f32[b, s, 1] = shift(%a, by=0.001)
    %r: f32[b, s, 1] = sqrt(%e)
    %l1: f32[b, s] = reshape(%r)
    %f: f32[b, s, h] = broadcast(%l1, eq="b s -> b s h")
    %n: f32[b, s, h] = div(%x, %f)
    %y: f32[b, s, h] = mul(%n, %gamma, eq="b s h, h -> b s h")
    %t: f32[b, s] = reduce_sum(%x, eq="b s h -> b s")
    %mean: f32[b, s] = scale(%t, by=0.25)
    %cx: f32[b, s, h] = sub(%x, %mean, eq="b s h, b s -> b s h")
    %cq: f32[b, s, h] = square(%cx)
    %cu: f32[b, s] = reduce_sum(%cq, eq="b s h -> b s")
    %var: f32[b, s] = scale(%cu, by=0.25)
    %ce: f32[b, s] = shift(%var, by=0.001)
    %cr: f32[b, s] = rsqrt(%ce)
    %cn: f32[b, s, h] = mul(%cx, %cr, eq="b s h, b s -> b s h")
    %cg: f32[b, s, h] = mul(%cn, %gamma, eq="b s h, h -> b s h")
    %cy: f32[b, s, h] = add(%cg, %gamma, eq="b s h, h -> b s h")
    %w: bf16[b, s, h] = cast(%x, to=bf16)
    %w2: f32[b, s, h] = cast(%w, to=f32)
    %w3: bf16[b, s, h] = cast(%w2, to=bf16)"#,
    r#"
    %m: f32[b, s] = reduce_max(%x, eq="b s h -> b s")
    %low: f32[b, s, h] = sub(%x, %m, eq="b s h, b s -> b s h")
    %e: f32[b, s, h] = exp(%low)
    %t: f32[b, s] = reduce_sum(%e, eq="b s h -> b s")
    %y: f32[b, s, h] = div(%e, %t, eq="b s h, b s -> b s h")
    %log: f32[b, s] = log(%t)
    %lp: f32[b, s, h] = sub(%low, %log, eq="b s h, b s -> b s h")
    %k: f32[b, s] = pick(%lp, %l)
    %n: f32[b, s] = neg(%k)
    %loss: f32[] = reduce_sum(%n, eq="b s -> ()")
    %lse: f32[b, s] = add(%log, %m)
    %k2: f32[b, s] = pick(%x, %l)
    %loss2: f32[] = token_loss(%lse, %k2, %l)
    %lv: i32[b, s, h] = broadcast(%p, eq="b s -> b s h")
    %iv: i32[b, s, h] = iota(dim=2)
    %eq: i32[b, s, h] = equal(%lv, %iv)
    %hot: f32[b, s, h] = cast(%eq, to=f32)
    %em: f32[b, s, d] = einsum(%hot, %table, eq="b s h, h d -> b s d")
    %tk: f32[b, s, d] = take(%table, %p, dim=0)
    %lp3: f32[b, s] = einsum(%hot, %lp, eq="b s h, b s h -> b s")
    %mean: f32[] = reduce_sum(%lp3, eq="b s -> ()")
    %loss3: f32[] = scale(%mean, by=-0.25)"#,
    r#"
    %qs: f32[b, s, h] = scale(%x, by=0.5)
    %qr: f32[b, s, g, d] = reshape(%qs)
    %qh: f32[b, g, s, d] = permute(%qr, eq="b s g d -> b g s d")
    %kr: f32[b, s, g, d] = reshape(%x)
    %kr2: f32[b, s, g, d] = neg(%kr)
    %z: f32[b, g, s, s] = einsum(%qh, %kr2, eq="b g s d, b t g d -> b g s t")
    %qp: i32[b, g, s, s] = broadcast(%p, eq="b s -> b g s t")
    %kp: i32[b, g, s, s] = broadcast(%p, eq="b t -> b g s t")
    %hide: i32[b, g, s, s] = less(%qp, %kp)
    %hf: f32[b, g, s, s] = cast(%hide, to=f32)
    %bias: f32[b, g, s, s] = scale(%hf, by=-1e5)
    %ms: f32[b, g, s, s] = add(%z, %bias)
    %m: f32[b, g, s] = reduce_max(%ms, eq="b g s t -> b g s")
    %low: f32[b, g, s, s] = sub(%ms, %m, eq="b g s t, b g s -> b g s t")
    %e: f32[b, g, s, s] = exp(%low)
    %t: f32[b, g, s] = reduce_sum(%e, eq="b g s t -> b g s")
    %w: f32[b, g, s, s] = div(%e, %t, eq="b g s t, b g s -> b g s t")
    %o: f32[b, g, s, d] = einsum(%w, %kr, eq="b g s t, b t g d -> b g s d")
    %oh: f32[b, s, g, d] = permute(%o, eq="b g s d -> b s g d")
    %y: f32[b, s, h] = reshape(%oh)"#,
    r#"
    %i: i32[2] = iota(dim=0)
    %if: f32[2] = cast(%i, to=f32)
    %ip: f32[2] = scale(%if, by=-1.5)
    %freq: f32[2] = exp(%ip)
    %pf: f32[b, s] = cast(%p, to=f32)
    %ang: f32[b, s, 2] = einsum(%pf, %freq, eq="b s, e -> b s e")
    %both: f32[b, s, h] = concat(%ang, %ang, dim=2)
    %cos: f32[b, s, h] = cos(%both)
    %sin: f32[b, s, h] = sin(%both)
    %x1: f32[b, s, 2] = slice(%x, dim=2, start=0, length=2)
    %x2: f32[b, s, 2] = slice(%x, dim=2, start=2, length=2)
    %neg: f32[b, s, h] = neg(%x)
    %nx2: f32[b, s, 2] = slice(%neg, dim=2, start=2, length=2)
    %rot: f32[b, s, h] = concat(%nx2, %x1, dim=2)
    %xc: f32[b, s, h] = mul(%x, %cos)
    %xs: f32[b, s, h] = mul(%rot, %sin)
    %y: f32[b, s, h] = add(%xc, %xs)
    %c: f32[b, s, 2] = cos(%ang)
    %si: f32[b, s, 2] = sin(%ang)
    %a1: f32[b, s, 2] = mul(%x1, %c)
    %a2: f32[b, s, 2] = mul(%x2, %si)
    %h1: f32[b, s, 2] = sub(%a1, %a2)
    %a3: f32[b, s, 2] = mul(%x2, %c)
    %a4: f32[b, s, 2] = mul(%x1, %si)
    %h2: f32[b, s, 2] = add(%a3, %a4)
    %y2: f32[b, s, h] = concat(%h1, %h2, dim=2)"#,
    r#"
    %q: f32[b, s] = einsum(%x, %x, eq="b s h, b s h -> b s")
    %m: f32[b, s] = scale(%q, by=0.25)
    %e: f32[b, s] = shift(%m, by=0.001)
    %log: f32[b, s] = log(%e)
    %ha: f32[b, s] = scale(%log, by=-0.5)
    %r: f32[b, s] = exp(%ha)
    %n: f32[b, s, h] = mul(%x, %r, eq="b s h, b s -> b s h")
    %n2: f32[b, s, h] = scale(%n, by=0.7)
    %hx: f32[b, s, h] = scale(%n, by=0.5)
    %ta: f32[b, s, h] = tanh(%hx)
    %tb: f32[b, s, h] = shift(%ta, by=1.0)
    %si: f32[b, s, h] = scale(%tb, by=0.5)
    %v: f32[b, s, g, d] = reshape(%n2)
    %z: f32[b, s, g, s] = einsum(%v, %v, eq="b s g d, b t g d -> b s g t")
    %qp: i32[b, s, s] = broadcast(%p, eq="b s -> b s t")
    %kp: i32[b, s, s] = broadcast(%p, eq="b t -> b s t")
    %see: i32[b, s, s] = less_equal(%kp, %qp)
    %same: i32[b, s, s] = equal(%qp, %qp)
    %f1: f32[b, s, s] = cast(%see, to=f32)
    %f2: f32[b, s, s] = cast(%same, to=f32)
    %both: f32[b, s, s] = mul(%f1, %f2)
    %low: f32[b, s, s] = shift(%f1, by=-1.0)
    %bias: f32[b, s, s] = scale(%low, by=1e5)
    %ms: f32[b, s, g, s] = add(%z, %bias, eq="b s g t, b s t -> b s g t")
    %w: f32[b, s, g, s] = softmax(%ms)
    %dw: f32[b, s, g, s] = dropout(%w, p=0.3, path="w")
    %o: f32[b, s, g, d] = einsum(%dw, %v, eq="b s g t, b t g d -> b s g d")"#,
];

fn block(body: &str) -> Block {
    let args = "%x: input f32[b, s, h], %gamma: input f32[h], %table: input f32[h, d], %p: input i32[b, s], %l: input i32[b, s]";
    let text = format!(
        "dims [b=2, s=3, g=2, d=2, h=4]
         model @m({args}) {{ call @block(%x, %gamma, %table, %p, %l) }}
         block @block({args}) -> metric f32[b, s, h] {{ {body}\n return %x }}"
    );
    let file = ir::text::parse(&text).unwrap_or_else(|error| panic!("{error:?}"));
    file.model.blocks.into_iter().next().unwrap().1
}

/// Elements of an argument: small floats, or integers from -1 (a label that is ignored) or 0.
fn argument(name: &str, node: &Node, dtype: DType) -> Tensor {
    let NodeKind::Leaf(_, shape) = &node.kind else { panic!("{node:?} is no leaf") };
    let sizes: Vec<usize> = shape.sizes.iter().map(|&size| size as usize).collect();
    let mut state = name.bytes().fold(7u64, |state, byte| state * 31 + u64::from(byte));
    Tensor::new(&sizes, |at| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = (state >> 40) as f64 / f64::from(1 << 24);
        match (dtype.is_float(), name) {
            (true, _) => 2.0 * random - 1.0,
            (false, "l") => (5.0 * random).floor() - 1.0,
            (false, _) => at.last().copied().unwrap_or(0) as f64,
        }
    })
}

/// The results of a node whose operands are known.
fn results(graph: &Graph, block: &Block, node: &Node, known: &HashMap<Id, Vec<Tensor>>, id: Id) -> Option<Vec<Tensor>> {
    let shape = &graph[id].data.shape;
    if let NodeKind::Leaf(value, _) = node.kind {
        return Some(vec![argument(block.value_name(value), node, shape.dtype)]);
    }
    let operands = node.operands.iter().map(|operand| known.get(&graph.find(*operand))).collect::<Option<Vec<_>>>()?;
    if let NodeKind::Out(place, _) = node.kind {
        return Some(vec![operands[0][place].clone()]);
    }
    Some(evaluate(node, &operands.iter().map(|results| &results[0]).collect::<Vec<_>>(), shape))
}

fn assert_near(graph: &Graph, node: &Node, found: &Tensor, wanted: &Tensor) {
    assert_eq!(found.sizes, wanted.sizes, "{node:?}");
    for (a, b) in found.data.iter().zip(&wanted.data) {
        let operands: Vec<_> = node.operands.iter().map(|&id| &graph[id].nodes).collect();
        assert!((a - b).abs() <= 1e-7 * (1.0 + b.abs()), "{node:?} of {operands:?}: {a} is not {b}");
    }
}

#[test]
fn all_nodes_of_a_class_are_equal() {
    for body in BODIES {
        let block = block(body);
        let mut graph = encode(&block, SectionKind::F).graph;
        saturate(&mut graph, &rules::all());
        let mut known: HashMap<Id, Vec<Tensor>> = HashMap::new();
        let mut is_new = true;
        while std::mem::take(&mut is_new) {
            for class in
                graph.classes().filter(|class| !known.contains_key(&class.id)).map(|class| class.id).collect::<Vec<_>>()
            {
                let found = graph[class].iter().find_map(|node| results(&graph, &block, node, &known, class));
                is_new |= found.map(|found| known.insert(class, found)).is_some();
            }
        }
        assert_eq!(known.len(), graph.number_of_classes());
        for class in graph.classes() {
            for node in class.iter() {
                let found = results(&graph, &block, node, &known, class.id).unwrap();
                assert_near(&graph, node, &found[0], &known[&class.id][0]);
            }
        }
    }
}

#[test]
fn each_recogniser_applies_in_a_body() {
    let mut applied = BTreeSet::new();
    for body in BODIES {
        let mut graph = encode(&block(body), SectionKind::F).graph;
        saturate(&mut graph, &rules::all());
        let look = Look::new(&graph);
        for rule in rules::all() {
            if graph.classes().any(|class| !rule.apply(&look, class.id).is_empty()) {
                applied.insert(rule.name);
            }
        }
    }
    let generated: Vec<&str> = egraph::rules::all().iter().chain(&rules::moved::RULES).map(|rule| rule.name).collect();
    applied.extend(generated);
    let missing: Vec<&str> = rules::all().iter().map(|rule| rule.name).filter(|name| !applied.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn moved_rows(draft: &mut Draft) -> egg::Id {
    let sizes = draft.sizes(4);
    let x = draft.leaf(&sizes);
    if draft.below(2) == 0 {
        return draft.node(NodeKind::Reshape(vec![sizes[0], sizes[1] * sizes[2], sizes[3]]), &[x]);
    }
    draft.permute(x, &[2, 0, 1, 3])
}

fn softmax(draft: &mut Draft) -> egg::Id {
    let x = moved_rows(draft);
    draft.node(NodeKind::Plain(PlainOp::Softmax), &[x])
}

fn norm(draft: &mut Draft) -> egg::Id {
    let x = moved_rows(draft);
    let shape = draft.shape(x);
    let gamma = draft.leaf(&shape.sizes[shape.rank() - 1..]);
    let op = draft.node(NodeKind::Made(Made::RmsNorm(Number::new(1e-3))), &[x, gamma]);
    draft.node(NodeKind::Out(0, shape), &[op])
}

fn rope(draft: &mut Draft) -> egg::Id {
    let sizes = [draft.sizes(4), vec![4]].concat();
    let x = draft.leaf(&sizes);
    let merged = vec![sizes[0], sizes[1], sizes[2] * sizes[3], 4];
    let moved = match draft.below(2) {
        0 => draft.node(NodeKind::Reshape(merged), &[x]),
        _ => draft.permute(x, &[0, 1, 3, 2, 4]),
    };
    let positions = draft.integers(&sizes[..2]);
    draft.node(NodeKind::Made(Made::Rope { theta: Number::new(100.0) }), &[moved, positions])
}

#[test]
fn moves_of_rows_are_exact() {
    let cases: [LeftSide; 3] = [("softmax-of-move", softmax), ("norm-of-move", norm), ("rope-of-move", rope)];
    check(&rules::moved::RULES, &cases);
}

/// The most nodes of a block in primitives. A dim of one element has more spellings, so a batch of one sample is among the cases.
const FEW: usize = 1_000;

#[test]
fn saturation_ends_far_below_its_limits() {
    let cases = ["tiny-llama", "tiny-gpt2"].into_iter().flat_map(|name| spell::STYLES.map(|style| (name, style)));
    for ((name, style), batch) in cases.flat_map(|case| [(case, 1), (case, 2)]) {
        let batch = Batch { batch, seq: 8, dtype: DType::BF16 };
        let mut model = preset(name).unwrap().config.build(&batch).unwrap();
        spell::spell(&mut model, style);
        for block in model.blocks.values() {
            let mut graph = encode(block, SectionKind::F).graph;
            let rounds = saturate(&mut graph, &rules::all());
            let nodes = graph.total_number_of_nodes();
            assert!(rounds < ROUNDS && nodes < FEW, "{name} {style:?} {}: {nodes} nodes, {rounds} rounds", block.name);
        }
    }
}
