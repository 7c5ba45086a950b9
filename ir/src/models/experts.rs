//! MoE layers in place of a feed-forward net: a router, routed experts, and optionally a shared expert of all tokens.
//! Lepikhin et al. 2020 (GShard), Jiang et al. 2024 (Mixtral), Dai et al. 2024 (DeepSeekMoE).

use super::config::{ConfigError, invalid, positive};
use super::draft::{Body, Weight};
use super::feed_forward::gated;
use crate::dim_role::DimRole;
use crate::ops::{
    Binary, BinaryKind, Combine, Dispatch, Einsum, GroupLimit, Reduce, Reshape, Softmax, TopK, Unary, UnaryKind,
};
use crate::types::{DimName, PartialKind};
use serde::Serialize;

/// Added to the sum of the scores of a token's experts, which sigmoids of very negative logits leave at 0; the constant of
/// `modeling_deepseek_v3.py` in Hugging Face's `transformers`. A softmax has no such sum.
const LEAST_SUM: f64 = 1e-20;

/// The experts of a layer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Experts {
    /// The number of routed experts.
    pub experts: u64,
    /// The number of experts per token.
    pub chosen: u64,
    /// Size between the matrices of an expert.
    pub feed_forward: u64,
    /// Size between the matrices of the shared expert; 0: there is none.
    pub shared: u64,
    /// A number between 0 and 1 for each token scales what the shared expert gives (Qwen2-MoE).
    pub shared_gate: bool,
    /// The first layers have a feed-forward net instead.
    pub dense_layers: u32,
    /// Scores are sigmoids of each expert's own logit, not a softmax over all (DeepSeek-V3).
    pub sigmoid: bool,
    /// A number of each expert is added to its score for the choice only (DeepSeek-V3, equation 16). It has no gradient.
    pub bias: bool,
    /// Only some groups of experts are open to a token.
    pub limit: Option<GroupLimit>,
    /// The weights of a token's experts are made to add up to 1.
    pub renormalise: bool,
    /// The factor that multiplies the weights.
    pub scale: f64,
    /// Capacity factor: the maximum number of tokens per expert, relative to uniform routing; further tokens are dropped.
    /// None: no limit.
    pub capacity: Option<f64>,
    /// Tokens of a routing group, which is routed independently; none: those of a sequence.
    pub group: Option<u64>,
}

impl Experts {
    /// Mixtral's kind, without anything else: `experts` of size `feed_forward`; each token takes `chosen` of them by softmax.
    pub const fn softmax(experts: u64, chosen: u64, feed_forward: u64) -> Experts {
        Experts {
            experts,
            chosen,
            feed_forward,
            shared: 0,
            shared_gate: false,
            dense_layers: 0,
            sigmoid: false,
            bias: false,
            limit: None,
            renormalise: true,
            scale: 1.0,
            capacity: None,
            group: None,
        }
    }

    /// Checks the sizes.
    pub(super) fn check(&self, layers: u32) -> Result<(), ConfigError> {
        positive("moe_intermediate_size", self.feed_forward)?;
        positive("num_experts", self.experts)?;
        if !(1..=self.experts).contains(&self.chosen) {
            let why = format!("{} of {} experts cannot be chosen", self.chosen, self.experts);
            return Err(invalid("num_experts_per_tok", why));
        }
        if self.dense_layers >= layers {
            let why = format!("{} of {layers} layers leave none for experts", self.dense_layers);
            return Err(invalid("first_k_dense_replace", why));
        }
        if let Some(capacity) = self.capacity.filter(|capacity| !capacity.is_finite() || *capacity <= 0.0) {
            return Err(invalid("capacity_factor", format!("{capacity} must be above 0")));
        }
        positive("routing_group", self.group.unwrap_or(1))
    }

    /// The dims of a model with sequences of `seq` tokens. Routing: q groups of a sequence, t tokens of a group, e experts, c
    /// tokens of an expert, n experts of the router. Widths: m between an expert's matrices, u between those of the shared
    /// expert.
    pub(super) fn dims(&self, seq: u64) -> Result<Vec<DimName>, ConfigError> {
        let group = self.group.unwrap_or(seq).min(seq);
        if !seq.is_multiple_of(group) {
            let why = format!("sequences of {seq} tokens do not divide into routing groups of {group}");
            return Err(ConfigError::Contradiction(why));
        }
        let alike = (self.chosen * group) as f64 / self.experts as f64;
        // A token chooses an expert at most once, so the capacity is at most the number of tokens in the group.
        let capacity = self.capacity.map_or(group, |factor| ((factor * alike).ceil() as u64).clamp(1, group));
        let mut dims = vec![
            DimName::new("q", seq / group, Some(DimRole::RoutingGroups)),
            DimName::new("t", group, Some(DimRole::Tokens)),
            DimName::new("e", self.experts, Some(DimRole::Experts)).undivided(),
            DimName::new("c", capacity, Some(DimRole::Capacity)),
            DimName::new("n", self.experts, Some(DimRole::RouterLogits)),
            DimName::new("m", self.feed_forward, Some(DimRole::ExpertFeedForward)),
        ];
        if self.shared > 0 {
            dims.push(DimName::new("u", self.shared, Some(DimRole::SharedFeedForward)));
        }
        Ok(dims)
    }

    /// The parameters; matrices that write to the residual stream have the deviation `residual`.
    pub(super) fn weights(&self, deviation: f64, residual: f64) -> Vec<Weight> {
        let mut weights = vec![Weight::normal("router", "h n", deviation)];
        weights.extend(self.bias.then(|| Weight::constant("router_bias", "n", 0.0)));
        weights.extend([
            Weight::normal("expert_gate", "e h m", deviation),
            Weight::normal("expert_up", "e h m", deviation),
            Weight::normal("expert_down", "e m h", residual),
        ]);
        if self.shared > 0 {
            weights.extend([
                Weight::normal("shared_gate", "h u", deviation),
                Weight::normal("shared_up", "h u", deviation),
                Weight::normal("shared_down", "u h", residual),
            ]);
            weights.extend(self.shared_gate.then(|| Weight::normal("shared_share", "h", deviation)));
        }
        weights
    }

    /// `fd = sum over the chosen experts of weight expert(n)`, plus the shared expert.
    pub(super) fn build(&self, b: &mut Body<'_>) -> Result<(), String> {
        b.op(&["nt"], Reshape { dims: b.dims("b q t h") }, &["n"])?;
        self.route(b)?;
        let [experts, capacity] = ["e", "c"].map(|letter| b.dims(letter).remove(0));
        b.op(&["ex", "ex_count"], Dispatch { experts, capacity }, &["nt", "chosen"])?;
        let names = ["eg", "eu", "es", "ep", "ed"];
        gated(b, "ex", names, ["expert_gate", "expert_up", "expert_down"], ["b q e c", "e"], ["h", "m"])?;
        b.op(&["et"], Combine, &["ed", "chosen", "weight"])?;
        let sum = if self.shared > 0 { "er" } else { "fd" };
        b.op(&[sum], Reshape { dims: b.dims("b s h") }, &["et"])?;
        if self.shared == 0 {
            return Ok(());
        }
        let names = ["sg", "su", "ss", "sp", "sd"];
        gated(b, "n", names, ["shared_gate", "shared_up", "shared_down"], ["b s", ""], ["h", "u"])?;
        let mut shared = "sd";
        if self.shared_gate {
            b.op(&["sl"], Einsum::new("b s h, h -> b s")?, &["n", "shared_share"])?;
            b.sigmoid("sv", "sl")?;
            b.op(&["sw"], Binary::spread(BinaryKind::Mul, "b s h, b s -> b s h")?, &["sd", "sv"])?;
            shared = "sw";
        }
        b.op(&["fd"], Binary::of(BinaryKind::Add), &["er", shared])
    }

    /// The experts of each token, `chosen`, and their weights, `weight`.
    fn route(&self, b: &mut Body<'_>) -> Result<(), String> {
        b.op(&["rl"], Einsum::new("b q t h, h n -> b q t n")?, &["nt", "router"])?;
        if self.sigmoid {
            b.sigmoid("rs", "rl")?;
        } else {
            b.op(&["rs"], Softmax, &["rl"])?;
        }
        let scaled = self.scale != 1.0;
        let value = if self.renormalise || scaled { "score" } else { "weight" };
        let top_k = TopK { k: self.chosen, limit: self.limit };
        let scores: &[&str] = if self.bias { &["rs", "router_bias"] } else { &["rs"] };
        b.op(&[value, "chosen"], top_k, scores)?;
        let mut last = value;
        if self.renormalise {
            b.op(&["score_sum"], Reduce::new(PartialKind::Sum, "b q t k -> b q t")?, &[last])?;
            let mut sum = "score_sum";
            if self.sigmoid {
                b.op(&["score_floor"], Unary(UnaryKind::Shift(LEAST_SUM)), &[sum])?;
                sum = "score_floor";
            }
            let share = if scaled { "score_share" } else { "weight" };
            b.op(&[share], Binary::spread(BinaryKind::Div, "b q t k, b q t -> b q t k")?, &[last, sum])?;
            last = share;
        }
        if scaled { b.scale("weight", self.scale, last) } else { Ok(()) }
    }
}
