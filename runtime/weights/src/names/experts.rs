//! Experts and their routers. Files have the matrices of each expert apart, under numbered names. The classes of
//! `transformers` join them in memory, and some files have that form.

use super::build::{linear, plain, same, stepped};
use super::{Pieces, Scope};
use crate::layout::Piece;

/// The pieces of a parameter of a router or of routed experts.
pub(super) fn experts(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Pieces> {
    if scope.family == "gpt_oss" {
        return biased(scope, field, sizes).map(Into::into);
    }
    if scope.family == "llama4_text" {
        return turned(scope, field, sizes).map(Into::into);
    }
    let is_mixtral = scope.family == "mixtral";
    let old = if is_mixtral { "block_sparse_moe" } else { "mlp" };
    let module = if is_mixtral && scope.has(&scope.at("mlp.gate.weight")) { "mlp" } else { old };
    let at = |name: &str| scope.at(&format!("{module}.{name}"));
    match field {
        "router" => Some(linear(at("gate.weight"), &sizes[..1], &sizes[1..]).into()),
        "router_bias" => Some(same(at("gate.e_score_correction_bias"), sizes).into()),
        "expert_gate" | "expert_up" | "expert_down" => {
            if scope.has(&at("experts.down_proj")) {
                return Some(joined(at("experts."), field, sizes).into());
            }
            let name = match (field, is_mixtral) {
                ("expert_gate", true) => "w1",
                ("expert_up", true) => "w3",
                (_, true) => "w2",
                ("expert_gate", false) => "gate_proj",
                ("expert_up", false) => "up_proj",
                (_, false) => "down_proj",
            };
            let expert =
                |number| linear(scope.at(&format!("{old}.experts.{number}.{name}.weight")), &sizes[1..2], &sizes[2..]);
            Some(Pieces { pieces: (0..sizes[0]).map(expert).collect(), is_split: true })
        }
        _ => None,
    }
}

/// The matrices of all experts in one tensor, those of gates before those of factors.
fn joined(prefix: String, field: &str, sizes: &[u64]) -> Piece {
    let [experts, from, to] = [sizes[0], sizes[1], sizes[2]];
    if field == "expert_down" {
        let dims = [(experts, from * to), (from, 1), (to, from)];
        return stepped(prefix + "down_proj", &[experts, to, from], 0, &dims);
    }
    let first = if field == "expert_gate" { 0 } else { to * from };
    let dims = [(experts, 2 * to * from), (from, 1), (to, from)];
    stepped(prefix + "gate_up_proj", &[experts, 2 * to, from], first, &dims)
}

/// The experts of gpt-oss: gates and factors alternate, and matrices go from inputs to outputs.
fn biased(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Piece> {
    let at = |name: &str| scope.at(&format!("mlp.{name}"));
    let first = u64::from(matches!(field, "expert_up" | "expert_up_bias"));
    Some(match field {
        "router" => linear(at("router.weight"), &sizes[..1], &sizes[1..]),
        "logit_bias" => same(at("router.bias"), sizes),
        "expert_gate" | "expert_up" => {
            let [experts, from, to] = [sizes[0], sizes[1], sizes[2]];
            let dims = [(experts, 2 * from * to), (from, 2 * to), (to, 2)];
            stepped(at("experts.gate_up_proj"), &[experts, from, 2 * to], first, &dims)
        }
        "expert_gate_bias" | "expert_up_bias" => {
            let [experts, to] = [sizes[0], sizes[1]];
            stepped(at("experts.gate_up_proj_bias"), &[experts, 2 * to], first, &[(experts, 2 * to), (to, 2)])
        }
        "expert_down" => same(at("experts.down_proj"), sizes),
        "expert_down_bias" => same(at("experts.down_proj_bias"), sizes),
        _ => return None,
    })
}

/// The experts of Llama 4: the gates of an expert before its factors, and matrices from inputs to outputs.
fn turned(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Piece> {
    let at = |name: &str| scope.at(&format!("feed_forward.{name}"));
    Some(match field {
        "router" => linear(at("router.weight"), &sizes[..1], &sizes[1..]),
        "expert_gate" | "expert_up" => {
            let [experts, from, to] = [sizes[0], sizes[1], sizes[2]];
            let first = if field == "expert_gate" { 0 } else { to };
            let dims = [(experts, 2 * from * to), (from, 2 * to), (to, 1)];
            stepped(at("experts.gate_up_proj"), &[experts, from, 2 * to], first, &dims)
        }
        "expert_down" => same(at("experts.down_proj"), sizes),
        _ => return None,
    })
}

/// The pieces of a parameter of the expert that all tokens share.
pub(super) fn shared(scope: &Scope<'_>, field: &str, sizes: &[u64]) -> Option<Piece> {
    let module = match scope.family {
        "qwen2_moe" => "mlp.shared_expert",
        "llama4_text" => "feed_forward.shared_expert",
        _ => "mlp.shared_experts",
    };
    let matrix = |name: &str| linear(scope.at(&format!("{module}.{name}.weight")), &sizes[..1], &sizes[1..]);
    Some(match field {
        "shared_gate" => matrix("gate_proj"),
        "shared_up" => matrix("up_proj"),
        "shared_down" => matrix("down_proj"),
        "shared_share" => plain(scope.at("mlp.shared_expert_gate.weight"), &[1, sizes[0]], sizes),
        _ => return None,
    })
}
