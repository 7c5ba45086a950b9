//! Simplification of differentiated sections: what goes, what stays, and that built-in models do not change.

#[path = "recognise/shuffle.rs"]
mod shuffle;

use ir::graph::{Model, SectionKind};
use ir::optimizer::Optimizer;
use ir::text::{File, parse, print};
use meshwright_transforms::differentiate::differentiate;
use meshwright_transforms::simplify::simplify;

/// A model of one block whose loss is the sum of `%y`, differentiated.
fn trained(args: &str, params: &str, body: &str, sum: &str) -> Model {
    let names = |list: &str| {
        list.split("; ").map(|arg| format!("%{}", arg.split(':').next().unwrap())).collect::<Vec<_>>().join(", ")
    };
    let typed = |list: &str, kind: &str| {
        list.split("; ").map(|arg| format!("%{}", arg.replacen(": ", &format!(": {kind} "), 1))).collect::<Vec<_>>()
    };
    let declared: Vec<String> = params.split("; ").map(|param| format!("param %{param}")).collect();
    let text = format!(
        "dims [b=2, s=3, h=4, k=5, o=1]\n{}
         model @m({inputs}) {{ call @block({}; {}) }}
         block @block({inputs}; {}) -> loss f32[] {{ {body}\n%l: f32[] = reduce_sum(%y, eq=\"{sum} -> ()\")\nreturn %l }}",
        declared.join("\n"),
        names(args),
        names(params),
        typed(params, "param").join(", "),
        inputs = typed(args, "input").join(", "),
    );
    let file = parse(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    differentiate(file.model, &Optimizer::default()).unwrap()
}

/// The statements of a section, without names.
fn ops(model: &Model, kind: SectionKind) -> Vec<String> {
    let block = model.blocks.values().next().unwrap();
    block[kind].stmts.iter().map(|stmt| stmt.op.name().to_string()).collect()
}

fn text(model: &Model) -> String {
    print(&File { model: model.clone(), ..File::default() })
}

#[track_caller]
fn simplified(mut model: Model) -> Model {
    assert!(simplify(&mut model), "{}", text(&model));
    ir::verify::verify(&model).unwrap_or_else(|error| panic!("{error:?}\n{}", text(&model)));
    let again = text(&model);
    assert!(!simplify(&mut model), "{again}\n{}", text(&model));
    model
}

#[test]
fn permutes_become_indices_of_products() {
    let body = r#"
        %a: f32[b, s, k] = einsum(%x, %w, eq="b s h, h k -> b s k")
        %t: f32[s, k, b] = permute(%a, eq="b s k -> s k b")
        %g: f32[s, k, b] = silu(%t)
        %y: f32[s, h, b] = einsum(%g, %u, eq="s k b, k h -> s h b")"#;
    let model = simplified(trained("x: f32[b, s, h]", "w: f32[h, k]; u: f32[k, h]", body, "s h b"));
    assert_eq!(ops(&model, SectionKind::F), ["einsum", "silu", "einsum", "reduce_sum"]);
    let text = text(&model);
    assert!(
        text.contains(r#"%t: f32[s, k, b]                                = einsum(%x, %w, eq="b s h, h k -> s k b")"#),
        "{text}"
    );
    assert!(text.contains("silu_grad(%t, "), "what is saved keeps its name: {text}");
}

#[test]
fn gradients_of_narrow_products_stay_wide() {
    let body = r#"
        %a: bf16[b, s, k] = einsum(%x, %w, eq="b s h, h k -> b s k")
        %t: bf16[s, k, b] = permute(%a, eq="b s k -> s k b")
        %y: f32[s, k, b] = cast(%t, to=f32)"#;
    let model = simplified(trained("x: bf16[b, s, h]", "w: bf16[h, k]", body, "s k b"));
    let text = text(&model);
    assert!(!text.contains("permute"), "{text}");
    let sum = text.lines().find(|line| line.contains("+= einsum")).unwrap_or_else(|| panic!("{text}"));
    assert!(sum.contains("%w.grad: f32[h, k]"), "{sum}");
}

#[test]
fn scales_join_and_casts_cancel() {
    let body = r#"
        %a: f32[b, h] = mul(%x, %w, eq="b h, h -> b h")
        %c: f32[b, h] = scale(%a, by=0.5)
        %d: f32[b, h] = scale(%c, by=4.0)
        %e: f32[b, h] = neg(%d)
        %y: f32[b, h] = neg(%e)"#;
    let model = simplified(trained("x: f32[b, h]", "w: f32[h]", body, "b h"));
    assert_eq!(ops(&model, SectionKind::F), ["mul", "scale", "reduce_sum"]);
    assert!(text(&model).contains("by=2.0"), "{}", text(&model));
}

#[test]
fn repeated_terms_are_computed_once() {
    let body = r#"
        %a: f32[b, h] = mul(%x, %w, eq="b h, h -> b h")
        %c: f32[b, h] = neg(%a)
        %d: f32[b, h] = neg(%a)
        %y: f32[b, h] = add(%c, %d)"#;
    let model = simplified(trained("x: f32[b, h]", "w: f32[h]", body, "b h"));
    assert_eq!(ops(&model, SectionKind::F), ["mul", "neg", "add", "reduce_sum"]);
    let backward = [SectionKind::I, SectionKind::W].map(|kind| ops(&model, kind)).concat();
    assert_eq!(backward.iter().filter(|op| *op == "neg").count(), 1, "{backward:?}");
}

#[test]
fn products_and_sums_commute() {
    let body = r#"
        %a: f32[b, h] = mul(%x, %w, eq="b h, h -> b h")
        %c: f32[b, h] = add(%a, %z)
        %d: f32[b, h] = add(%z, %a)
        %e: f32[b, h] = sub(%a, %z)
        %f: f32[b, h] = sub(%z, %a)
        %g: f32[b, h] = add(%c, %e)
        %i: f32[b, h] = add(%f, %d)
        %y: f32[b, h] = add(%g, %i)"#;
    let model = simplified(trained("x: f32[b, h]; z: f32[b, h]", "w: f32[h]", body, "b h"));
    assert_eq!(ops(&model, SectionKind::F), ["mul", "add", "sub", "sub", "add", "add", "add", "reduce_sum"]);
    // With a repeated operand.
    let body = r#"
        %a: f32[b, h] = mul(%x, %w, eq="b h, h -> b h")
        %c: f32[b, h] = mul(%w, %x, eq="h, b h -> b h")
        %y: f32[b, h] = add(%a, %c)"#;
    let model = simplified(trained("x: f32[b, h]", "w: f32[h]", body, "b h"));
    assert_eq!(ops(&model, SectionKind::F), ["mul", "add", "reduce_sum"]);
}

#[test]
fn products_of_one_sample_stay_products() {
    let body = "%y: f32[o, k] = einsum(%x, %w, eq=\"o h, h k -> o k\")";
    let mut model = trained("x: f32[o, h]", "w: f32[h, k]", body, "o k");
    assert!(!simplify(&mut model), "{}", text(&model));
}

#[test]
fn the_order_of_independent_statements_does_not_matter() {
    let body = r#"
        %a: f32[b, s, k] = einsum(%x, %w, eq="b s h, h k -> b s k")
        %t: f32[s, b, k] = permute(%a, eq="b s k -> s b k")
        %g: f32[s, b, k] = silu(%t)
        %c: f32[s, b, k] = scale(%g, by=0.5)
        %d: f32[s, b, k] = scale(%c, by=4.0)
        %e: f32[b, s, k] = permute(%d, eq="s b k -> b s k")
        %n: f32[b, s, k] = neg(%a)
        %r: f32[b, s, k] = mul(%n, %e)
        %y: f32[b, s, h] = einsum(%r, %u, eq="b s k, k h -> b s h")"#;
    let model = trained("x: f32[b, s, h]", "w: f32[h, k]; u: f32[k, h]", body, "b s h");
    let file = |model: &Model| File { model: model.clone(), ..File::default() };
    let wanted = shuffle::statements(&file(&simplified(model.clone())));
    let mut state = 3;
    for _ in 0..100 {
        let mut model = model.clone();
        for block in model.blocks.values_mut() {
            for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
                block[kind].stmts = shuffle::shuffled(&block[kind].stmts, &mut state);
            }
        }
        assert_eq!(shuffle::statements(&file(&simplified(model))), wanted);
    }
}

#[test]
fn sums_keep_their_order() {
    // Joined shifts and products with a common factor round in another way.
    let body = r#"
        %a: f32[b, k] = einsum(%x, %w, eq="b h, h k -> b k")
        %c: f32[b, k] = einsum(%z, %w, eq="b h, h k -> b k")
        %d: f32[b, k] = add(%a, %c)
        %e: f32[b, k] = shift(%d, by=0.1)
        %y: f32[b, k] = shift(%e, by=0.2)"#;
    let mut model = trained("x: f32[b, h]; z: f32[b, h]", "w: f32[h, k]", body, "b k");
    let before = text(&model);
    assert!(!simplify(&mut model), "{}", text(&model));
    assert_eq!(text(&model), before);
}

#[test]
fn built_in_models_do_not_change() {
    for preset in ir::models::presets() {
        for dtype in [ir::types::DType::F32, ir::types::DType::BF16] {
            let batch = ir::models::Batch { batch: 2, seq: 16, dtype };
            let model = preset.config.build(&batch).unwrap();
            let mut model = differentiate(model, &Optimizer::default()).unwrap();
            let before = model.clone();
            assert!(!simplify(&mut model), "{}: {}", preset.name, text(&model));
            assert!(model == before);
        }
    }
}
