//! GPT-2 and GPT-NeoX: queries, keys and values are one matrix. GPT-2 stores matrices with inputs in rows.

use super::build::{Rows, linear, part, plain, same, stepped};
use super::{Pieces, Scope};

/// The pieces of a parameter of GPT-2.
pub(super) fn gpt2(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Pieces> {
    let at = |name: &str| format!("transformer.{}{name}", scope.layer.map_or(String::new(), |n| format!("h.{n}.")));
    let fused = |number: u64, sizes: &[u64]| {
        let (inputs, outputs) = (sizes[0], sizes[1..].iter().product::<u64>());
        let mut dims = vec![(inputs, 3 * outputs)];
        dims.extend((1..sizes.len()).map(|d| (sizes[d], sizes[d + 1..].iter().product())));
        stepped(at("attn.c_attn.weight"), &[inputs, 3 * outputs], number * outputs, &dims)
    };
    let fused_bias = |number: u64, sizes: &[u64]| {
        let size: u64 = sizes.iter().product();
        let dims: Vec<(u64, u64)> = (0..sizes.len()).map(|d| (sizes[d], sizes[d + 1..].iter().product())).collect();
        stepped(at("attn.c_attn.bias"), &[3 * size], number * size, &dims)
    };
    let piece = match field {
        "wte" => same(at("wte.weight"), sizes),
        "wpe" => same(at("wpe.weight"), sizes),
        "final_norm" => same(at("ln_f.weight"), sizes),
        "final_bias" => same(at("ln_f.bias"), sizes),
        "out" => linear("lm_head.weight".into(), &sizes[..1], &sizes[1..]),
        "wq" => fused(0, sizes),
        "wk" => fused(1, sizes),
        "wv" => fused(2, sizes),
        "bq" => fused_bias(0, sizes),
        "bk" => fused_bias(1, sizes),
        "bv" => fused_bias(2, sizes),
        "wo" => {
            let (last, first) = sizes.split_last()?;
            plain(at("attn.c_proj.weight"), &[first.iter().product(), *last], sizes)
        }
        "bo" => same(at("attn.c_proj.bias"), sizes),
        "norm1" => same(at("ln_1.weight"), sizes),
        "norm1_bias" => same(at("ln_1.bias"), sizes),
        "norm2" => same(at("ln_2.weight"), sizes),
        "norm2_bias" => same(at("ln_2.bias"), sizes),
        "up" => same(at("mlp.c_fc.weight"), sizes),
        "up_bias" => same(at("mlp.c_fc.bias"), sizes),
        "down" => same(at("mlp.c_proj.weight"), sizes),
        "down_bias" => same(at("mlp.c_proj.bias"), sizes),
        _ => return None,
    };
    Some(piece.into())
}

/// The pieces of a parameter of GPT-NeoX. Each head has its rows of queries, keys and values one after the other.
pub(super) fn neox(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Pieces> {
    let at = |name: &str| format!("gpt_neox.{}{name}", scope.layer.map_or(String::new(), |n| format!("layers.{n}.")));
    let (width, heads) = (scope.llama()?.head, scope.llama()?.heads);
    // Distances of neighbours in rows: heads, the one query head of a key head, elements.
    let dims = |sizes: &[u64]| -> Vec<(u64, u64)> {
        let steps = if sizes.len() == 3 { vec![3 * width, width, 1] } else { vec![3 * width, 1] };
        sizes.iter().copied().zip(steps).collect()
    };
    let fused = |number: u64, sizes: &[u64]| {
        let dims = dims(&sizes[1..]);
        let rows = Rows::new(3 * heads * width, number * width, &dims);
        part(at("attention.query_key_value.weight"), &sizes[..1], &rows)
    };
    let fused_bias = |number: u64, sizes: &[u64]| {
        let shape = [3 * heads * width];
        stepped(at("attention.query_key_value.bias"), &shape, number * width, &dims(sizes))
    };
    let head = if scope.has("lm_head.weight") { "lm_head.weight" } else { "embed_out.weight" };
    let piece = match field {
        "emb" => same(at("embed_in.weight"), sizes),
        "final_norm" => same(at("final_layer_norm.weight"), sizes),
        "final_norm_bias" => same(at("final_layer_norm.bias"), sizes),
        "out" => linear(head.into(), &sizes[..1], &sizes[1..]),
        "wq" => fused(0, sizes),
        "wk" => fused(1, sizes),
        "wv" => fused(2, sizes),
        "bq" => fused_bias(0, sizes),
        "bk" => fused_bias(1, sizes),
        "bv" => fused_bias(2, sizes),
        "wo" => linear(at("attention.dense.weight"), &sizes[..3], &sizes[3..]),
        "bo" => same(at("attention.dense.bias"), sizes),
        "norm1" => same(at("input_layernorm.weight"), sizes),
        "norm1_bias" => same(at("input_layernorm.bias"), sizes),
        "norm2" => same(at("post_attention_layernorm.weight"), sizes),
        "norm2_bias" => same(at("post_attention_layernorm.bias"), sizes),
        "up" => linear(at("mlp.dense_h_to_4h.weight"), &sizes[..1], &sizes[1..]),
        "up_bias" => same(at("mlp.dense_h_to_4h.bias"), sizes),
        "down" => linear(at("mlp.dense_4h_to_h.weight"), &sizes[..1], &sizes[1..]),
        "down_bias" => same(at("mlp.dense_4h_to_h.bias"), sizes),
        _ => return None,
    };
    Some(piece.into())
}
