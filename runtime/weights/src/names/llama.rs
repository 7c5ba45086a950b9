//! The names of Llama and the families that share them.

use super::build::{Rows, linear, part, plain, same, stepped};
use super::experts::{experts, shared};
use super::{Pieces, Scope};
use crate::layout::Piece;
use ir::models::{LlamaConfig, Norms};

/// The pieces of a parameter.
pub(super) fn llama(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Pieces> {
    let config = scope.llama()?;
    if scope.layer.is_none() {
        let piece = match field {
            "emb" => same("model.embed_tokens.weight".into(), sizes),
            "final_norm" => same("model.norm.weight".into(), sizes),
            "out" => linear("lm_head.weight".into(), &sizes[..1], &sizes[1..]),
            _ => return None,
        };
        return Some(piece.into());
    }
    if let Some(piece) = further(scope, field, sizes) {
        return Some(piece.into());
    }
    if let Some(norm) = norm(config, field) {
        return Some(same(scope.at(&format!("{norm}.weight")), sizes).into());
    }
    let attention =
        if config.latent.is_some() { latent(scope, config, field, sizes) } else { heads(scope, config, field, sizes) };
    attention
        .or_else(|| net(scope, field, sizes))
        .map(Into::into)
        .or_else(|| experts(scope, field, sizes))
        .or_else(|| shared(scope, field, sizes).map(Into::into))
}

/// Parameters of a layer that predicts further tokens, besides those of any layer: one matrix reads the token, then what is given.
fn further(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Piece> {
    let half = |first: u64| {
        let [from, to] = [sizes[0], sizes[1]];
        stepped(scope.at("eh_proj.weight"), &[to, 2 * from], first * from, &[(from, 1), (to, 2 * from)])
    };
    Some(match field {
        "enorm" => same(scope.at("enorm.weight"), sizes),
        "hnorm" => same(scope.at("hnorm.weight"), sizes),
        "token_proj" => half(0),
        "hidden_proj" => half(1),
        "head_norm" => same(scope.at("shared_head.norm.weight"), sizes),
        _ => return None,
    })
}

/// The name of a norm of a layer. The same name means another norm where branches have two, or only one behind them.
fn norm(config: &LlamaConfig, field: &str) -> Option<&'static str> {
    Some(match (config.norms, field) {
        (Norms::Before | Norms::Both, "norm1") => "input_layernorm",
        (Norms::Before, "norm2") => "post_attention_layernorm",
        (Norms::After | Norms::Both, "post_norm1") => "post_attention_layernorm",
        (Norms::After | Norms::Both, "post_norm2") => "post_feedforward_layernorm",
        (Norms::Both, "norm2") => "pre_feedforward_layernorm",
        _ => return None,
    })
}

/// Grouped queries, their keys and values. Phi-3 has the three in one matrix.
fn heads(scope: &Scope<'_>, config: &LlamaConfig, field: &str, sizes: &[u64]) -> Option<Piece> {
    let at = |name: &str| scope.at(&format!("self_attn.{name}"));
    let (queries, keys) = (config.heads * config.head, config.kv_heads * config.head);
    if scope.family == "phi3" && matches!(field, "wq" | "wk" | "wv") {
        let first = match field {
            "wq" => 0,
            "wk" => queries,
            _ => queries + keys,
        };
        let outputs = &sizes[1..];
        let steps = (0..outputs.len()).map(|d| outputs[d + 1..].iter().product());
        let dims: Vec<(u64, u64)> = outputs.iter().copied().zip(steps).collect();
        return Some(part(at("qkv_proj.weight"), &sizes[..1], &Rows::new(queries + 2 * keys, first, &dims)));
    }
    let vector = |name: &str| plain(at(name), &[sizes.iter().product()], sizes);
    if scope.is_interleaved && matches!(field, "wq" | "wk" | "bq" | "bk") {
        return Some(paired(at(if field.ends_with('q') { "q_proj" } else { "k_proj" }), field, sizes));
    }
    Some(match field {
        "wq" => linear(at("q_proj.weight"), &sizes[..1], &sizes[1..]),
        "wk" => linear(at("k_proj.weight"), &sizes[..1], &sizes[1..]),
        "wv" => linear(at("v_proj.weight"), &sizes[..1], &sizes[1..]),
        "wo" => linear(at("o_proj.weight"), &sizes[..3], &sizes[3..]),
        "bq" => vector("q_proj.bias"),
        "bk" => vector("k_proj.bias"),
        "bv" => vector("v_proj.bias"),
        "bo" => vector("o_proj.bias"),
        "q_norm" => vector("q_norm.weight"),
        "k_norm" => vector("k_norm.weight"),
        "sink" => vector("sinks"),
        _ => return None,
    })
}

/// Queries or keys of a layer, or their biases, whose heads have rotary pairs next to each other in files.
fn paired(module: String, field: &str, sizes: &[u64]) -> Piece {
    let is_bias = field.starts_with('b');
    let (inputs, outputs) = if is_bias { sizes.split_at(0) } else { sizes.split_at(1) };
    let steps = (0..outputs.len()).map(|d| outputs[d + 1..].iter().product());
    let dims: Vec<(u64, u64)> = outputs.iter().copied().zip(steps).collect();
    let rows = Rows { is_paired: true, ..Rows::new(outputs.iter().product(), 0, &dims) };
    let piece = part(module + if is_bias { ".bias" } else { ".weight" }, inputs, &rows);
    if is_bias { Piece { shape: vec![rows.total], ..piece } } else { piece }
}

/// Latent attention. Each head has its rows without positions, then those with them.
fn latent(scope: &Scope<'_>, config: &LlamaConfig, field: &str, sizes: &[u64]) -> Option<Piece> {
    let at = |name: &str| scope.at(&format!("self_attn.{name}"));
    let latent = config.latent.as_ref()?;
    let (plain, turned, value, is_paired) = (latent.plain, latent.turned, latent.value, scope.is_interleaved);
    let query = at(if latent.query_rank.is_some() { "q_b_proj.weight" } else { "q_proj.weight" });
    let of_queries = |first: u64, is_paired: bool| {
        let dims = [(sizes[1], plain + turned), (sizes[2], plain + turned), (sizes[3], 1)];
        let rows = Rows { is_paired, ..Rows::new(config.heads * (plain + turned), first, &dims) };
        part(query.clone(), &sizes[..1], &rows)
    };
    let of_keys = |first: u64| {
        let dims = [(sizes[1], plain + value), (sizes[2], 1)];
        part(at("kv_b_proj.weight"), &sizes[..1], &Rows::new(config.heads * (plain + value), first, &dims))
    };
    let down = |first: u64, is_paired: bool| {
        let dims = [(sizes[1], 1)];
        let rows = Rows { is_paired, ..Rows::new(latent.key_rank + turned, first, &dims) };
        part(at("kv_a_proj_with_mqa.weight"), &sizes[..1], &rows)
    };
    Some(match field {
        "wdq" => linear(at("q_a_proj.weight"), &sizes[..1], &sizes[1..]),
        "q_norm" => same(at("q_a_layernorm.weight"), sizes),
        "wqn" => of_queries(0, false),
        "wqr" => of_queries(plain, is_paired),
        "wdkv" => down(0, false),
        "wkr" => down(latent.key_rank, is_paired),
        "kv_norm" => same(at("kv_a_layernorm.weight"), sizes),
        "wkn" => of_keys(0),
        "wv" => of_keys(plain),
        "wo" => linear(at("o_proj.weight"), &sizes[..3], &sizes[3..]),
        _ => return None,
    })
}

/// The feed-forward net. Phi-3 has gate and factor in one matrix.
fn net(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Piece> {
    let module = if scope.family == "llama4_text" { "feed_forward" } else { "mlp" };
    let at = |name: &str| scope.at(&format!("{module}.{name}"));
    if scope.family == "phi3" && matches!(field, "gate" | "up") {
        let first = if field == "gate" { 0 } else { sizes[1] };
        let dims = [(sizes[1], 1)];
        return Some(part(at("gate_up_proj.weight"), &sizes[..1], &Rows::new(2 * sizes[1], first, &dims)));
    }
    Some(match field {
        "gate" => linear(at("gate_proj.weight"), &sizes[..1], &sizes[1..]),
        "up" => linear(at("up_proj.weight"), &sizes[..1], &sizes[1..]),
        "down" => linear(at("down_proj.weight"), &sizes[..1], &sizes[1..]),
        "gate_bias" => same(at("gate_proj.bias"), sizes),
        "up_bias" => same(at("up_proj.bias"), sizes),
        "down_bias" => same(at("down_proj.bias"), sizes),
        _ => return None,
    })
}
