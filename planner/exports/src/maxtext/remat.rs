//! Policies of recomputation by name: tensors that MaxText keeps (`layers/nnx_decoders.py`, get_remat_policy).

use ir::options::Recompute;

/// A policy with the modules that it recomputes.
struct Policy {
    name: &'static str,
    modules: &'static [&'static str],
}

/// Policies from what keeps most to what keeps least. All recompute what goes from element to element.
const POLICIES: [Policy; 6] = [
    Policy { name: "minimal_with_context", modules: &["layernorm"] },
    Policy { name: "minimal", modules: &["core_attn", "layernorm"] },
    Policy { name: "save_dot_with_context_except_mlp", modules: &["layernorm", "mlp"] },
    Policy { name: "save_dot_except_mlp", modules: &["core_attn", "layernorm", "mlp"] },
    Policy { name: "save_dot_except_mlpwi", modules: &["core_attn", "layernorm", "mlp"] },
    Policy { name: "save_qkv_proj", modules: &["core_attn", "layernorm", "mlp"] },
];

/// A policy for a recomputation.
pub(super) struct Chosen {
    pub(super) name: &'static str,
    /// True if it recomputes the same modules.
    pub(super) is_exact: bool,
}

/// The policy that is nearest to a recomputation: it recomputes all that is asked, and the least beyond.
pub(super) fn policy(recompute: &Recompute) -> Chosen {
    let asked: Vec<&str> = match recompute {
        Recompute::Full(stride) => return Chosen { name: "full", is_exact: stride.is_none() },
        Recompute::None | Recompute::Auto => Vec::new(),
        Recompute::Selective(modules) if modules.is_empty() => vec!["core_attn"],
        Recompute::Selective(modules) => modules.iter().map(String::as_str).collect(),
    };
    let nearest = POLICIES.iter().find(|policy| asked.iter().all(|module| policy.modules.contains(module)));
    let is_exact = nearest.is_some_and(|policy| policy.modules.len() == asked.len());
    Chosen { name: nearest.map_or("save_qkv_proj", |policy| policy.name), is_exact }
}

/// Policies that keep what another one keeps, or nearly so, with that one.
const NEAR: [(&str, &str); 6] = [
    ("minimal_flash", "minimal_with_context"),
    ("minimal_offloaded", "minimal"),
    ("minimal_with_quantization", "minimal"),
    ("minimal_with_context_and_quantization", "minimal_with_context"),
    ("qkv_proj_offloaded", "save_qkv_proj"),
    ("save_out_proj", "save_qkv_proj"),
];

/// The warning about a policy that predictions do not know.
pub(super) fn unknown(name: Option<&str>) -> Option<String> {
    let name = name.filter(|name| *name != "full" && !POLICIES.iter().any(|policy| policy.name == *name))?;
    Some(match NEAR.iter().find(|(own, _)| *own == name) {
        Some((_, near)) => format!("not modelled: remat_policy={name} touches recomputation: it is read as {near}"),
        None => {
            format!("not modelled: remat_policy={name} touches recomputation: nothing is predicted to be recomputed")
        }
    })
}

/// The recomputation of a policy, as the value of a key; `None` if predictions do not know the policy.
pub(super) fn recompute(name: &str) -> Option<String> {
    if name == "full" {
        return Some("full".to_string());
    }
    let name = NEAR.iter().find(|(own, _)| *own == name).map_or(name, |(_, near)| near);
    let policy = POLICIES.iter().find(|policy| policy.name == name)?;
    Some(format!("selective:{}", policy.modules.join("+")))
}
