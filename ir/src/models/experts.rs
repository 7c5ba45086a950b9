//! MoE layers in place of a feed-forward net: a router, routed experts, and optionally a shared expert of all tokens.
//! Lepikhin et al. 2020 (GShard), Jiang et al. 2024 (Mixtral), Dai et al. 2024 (DeepSeekMoE).

use super::balance::Balance;
use super::draft::{Body, DraftError, Weight};
use super::error::{ConfigError, invalid, positive};
use super::feed_forward::{Activation, Clamp, Gated};
use super::layer_set::LayerSet;
use crate::dim_role::DimRole;
use crate::ops::{
    Binary, BinaryKind, Combine, Dispatch, Einsum, GroupLimit, Jitter, Reduce, Reshape, Softmax, TopK, UnaryKind,
};
use crate::types::{DimName, PartialKind};
use serde::Serialize;

/// Added to the sum of the scores of a token's experts, which sigmoids of very negative logits leave at 0; the constant of
/// `modeling_deepseek_v3.py` in Hugging Face's `transformers`. A softmax has no such sum.
pub(super) const LEAST_SUM: f64 = 1e-20;

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
    /// Experts have no gates: `down(f(up(x)))` (Nemotron-H).
    #[serde(skip_serializing_if = "is_false")]
    pub ungated: bool,
    /// The layers that have a feed-forward net instead.
    pub dense: LayerSet,
    /// Scores are sigmoids of each expert's own logit, not a softmax over all (DeepSeek-V3).
    pub sigmoid: bool,
    /// Experts are chosen by logits, plus the bias if there is one, and scores are sigmoids of the chosen ones (Kolibri).
    pub by_logits: bool,
    /// Weights are sigmoids of the chosen logits, and multiply what experts read instead of what they give (Llama 4).
    pub scaled_inputs: bool,
    /// The router and the matrices of experts have biases (gpt-oss).
    pub biases: bool,
    /// Experts compute `down((min(max(up(x), -limit), limit) + 1) g sigmoid(alpha g))` with `g = min(gate(x), limit)` (gpt-oss).
    pub clamp: Option<Clamp>,
    /// A number of each expert is added to its score for the choice only (DeepSeek-V3, equation 16). It has no gradient.
    pub bias: bool,
    /// Only some groups of experts are open to a token.
    pub limit: Option<GroupLimit>,
    /// The weights of a token's experts are made to add up to 1.
    pub renormalise: bool,
    /// Added to the sum of sigmoids by which weights are divided.
    pub least_sum: f64,
    /// The factor that multiplies the weights.
    pub scale: f64,
    /// Half of the sum of routed experts and the shared one is taken (Cohere).
    pub averaged: bool,
    /// The sum of what they give is normed (A.X K1).
    pub normed: bool,
    /// Capacity factor: the maximum number of tokens per expert, relative to uniform routing; further tokens are dropped.
    /// None: no limit.
    pub capacity: Option<f64>,
    /// Tokens of a routing group, which is routed independently; none: those of a sequence.
    pub group: Option<u64>,
    /// The most by which random factors of what router and experts read differ from 1 in training (Fedus et al. 2021).
    #[serde(skip_serializing_if = "is_zero")]
    pub jitter: f64,
    /// The means that keep the router balanced in training.
    #[serde(skip_serializing_if = "Balance::is_none")]
    pub balance: Balance,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

fn is_false(flag: &bool) -> bool {
    !flag
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
            ungated: false,
            dense: LayerSet::None,
            sigmoid: false,
            by_logits: false,
            scaled_inputs: false,
            biases: false,
            clamp: None,
            bias: false,
            limit: None,
            renormalise: true,
            least_sum: LEAST_SUM,
            scale: 1.0,
            averaged: false,
            normed: false,
            capacity: None,
            group: None,
            jitter: 0.0,
            balance: Balance::NONE,
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
        if self.dense.count(layers) == layers {
            let why = format!("none of {layers} layers has experts");
            return Err(invalid("first_k_dense_replace", why));
        }
        if let Some(capacity) = self.capacity.filter(|capacity| !capacity.is_finite() || *capacity <= 0.0) {
            return Err(invalid("capacity_factor", format!("{capacity} must be above 0")));
        }
        if let Some(Clamp { alpha, limit }) = self.clamp {
            for (field, number) in [("swiglu_alpha", alpha), ("swiglu_limit", limit)] {
                if !number.is_finite() || number <= 0.0 {
                    return Err(invalid(field, format!("{number} must be above 0")));
                }
            }
        }
        if !(0.0..1.0).contains(&self.jitter) {
            return Err(invalid("router_jitter_noise", format!("{} must be at least 0 and below 1", self.jitter)));
        }
        self.balance.check(self.bias)?;
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
        if self.biases {
            weights.extend(
                [
                    ("logit_bias", "n"),
                    ("expert_gate_bias", "e m"),
                    ("expert_up_bias", "e m"),
                    ("expert_down_bias", "e h"),
                ]
                .map(|(name, dims)| Weight::constant(name, dims, 0.0)),
            );
        }
        if self.shared > 0 {
            weights.extend([
                Weight::normal("shared_gate", "h u", deviation),
                Weight::normal("shared_up", "h u", deviation),
                Weight::normal("shared_down", "u h", residual),
            ]);
            weights.extend(self.shared_gate.then(|| Weight::normal("shared_share", "h", deviation)));
        }
        weights.extend(self.balance.weights());
        weights.retain(|weight| !(self.ungated && matches!(&*weight.name, "expert_gate" | "shared_gate")));
        weights
    }

    /// `fd = sum over the chosen experts of weight expert(x)`, plus the shared expert.
    pub(super) fn build(&self, activation: Activation, b: &mut Body<'_>, x: &str) -> Result<(), DraftError> {
        let mut read = x;
        if self.jitter != 0.0 {
            let (width, path) = (self.jitter, "layer.router".to_string());
            b.op(&["nj"], Jitter { width, path, piece: None }, &[x])?;
            read = "nj";
        }
        b.op(&["nt"], Reshape { dims: b.dims("b q t h") }, &[read])?;
        self.route(b)?;
        self.balance(b)?;
        let [experts, capacity] = ["e", "c"].map(|letter| b.dims(letter).remove(0));
        // Weights go to one of the two ways.
        let [to, from]: [&[&str]; 2] = if self.scaled_inputs {
            [&["nt", "chosen", "weight"], &["ed", "chosen"]]
        } else {
            [&["nt", "chosen"], &["ed", "chosen", "weight"]]
        };
        b.op(&["ex", "ex_count"], Dispatch { experts, capacity }, to)?;
        match self.clamp.filter(|_| self.biases) {
            Some(clamp) => self.clamped(b, clamp)?,
            None => {
                let (values, matrices, rows, clamp) = ("e", "expert_", "b q e c", self.clamp);
                let net = Gated { values, matrices, rows, shared: "e", outer: "h", inner: "m", clamp };
                self.net(&net, b, "ex", activation)?;
            }
        }
        b.op(&["et"], Combine, from)?;
        let sum = if self.shared > 0 { "er" } else { "fd" };
        b.op(&[sum], Reshape { dims: b.dims("b s h") }, &["et"])?;
        if self.shared == 0 {
            return Ok(());
        }
        let (values, matrices, clamp) = ("s", "shared_", self.clamp);
        let net = Gated { values, matrices, rows: "b s", shared: "", outer: "h", inner: "u", clamp };
        self.net(&net, b, x, activation)?;
        let mut shared = "sd";
        if self.shared_gate {
            b.op(&["sl"], Einsum::new("b s h, h -> b s")?, &[x, "shared_share"])?;
            b.sigmoid("sv", "sl")?;
            b.op(&["sw"], Binary::spread(BinaryKind::Mul, "b s h, b s -> b s h")?, &["sd", "sv"])?;
            shared = "sw";
        }
        let sum = if self.averaged { "ey_sum" } else { "fd" };
        b.op(&[sum], Binary::of(BinaryKind::Add), &["er", shared])?;
        if self.averaged { b.scale("fd", 0.5, sum) } else { Ok(()) }
    }

    /// A net of experts, with gates if they have any.
    fn net(&self, net: &Gated<'_>, b: &mut Body<'_>, x: &str, activation: Activation) -> Result<(), DraftError> {
        if self.ungated { net.build_ungated(b, x, activation) } else { net.build(b, x, activation) }
    }

    /// `ed` of `ex`, by experts with biases whose gates are bounded.
    fn clamped(&self, b: &mut Body<'_>, clamp: Clamp) -> Result<(), DraftError> {
        self.expert_product(b, "eg0", "ex", "expert_gate", "h", "m")?;
        self.expert_product(b, "eu0", "ex", "expert_up", "h", "m")?;
        clamp.build(b, "ep", "eg0", "eu0")?;
        self.expert_product(b, "ed", "ep", "expert_down", "m", "h")
    }

    /// A product of each expert, plus its bias, if they have any.
    fn expert_product(
        &self,
        b: &mut Body<'_>,
        y: &str,
        x: &str,
        w: &str,
        from: &str,
        to: &str,
    ) -> Result<(), DraftError> {
        let product = Einsum::new(&format!("b q e c {from}, e {from} {to} -> b q e c {to}"))?;
        if !self.biases {
            return b.op(&[y], product, &[x, w]);
        }
        let (unbiased, bias) = (format!("{y}w"), format!("{w}_bias"));
        b.op(&[&unbiased], product, &[x, w])?;
        let add = Binary::spread(BinaryKind::Add, &format!("b q e c {to}, e {to} -> b q e c {to}"))?;
        b.op(&[y], add, &[&unbiased, &bias])
    }

    /// The experts of each token, `chosen`, and their weights, `weight`.
    fn route(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        let product = Einsum::new("b q t h, h n -> b q t n")?;
        b.op(&[if self.biases { "rlw" } else { "rl" }], product, &["nt", "router"])?;
        if self.biases {
            let add = Binary::spread(BinaryKind::Add, "b q t n, n -> b q t n")?;
            b.op(&["rl"], add, &["rlw", "logit_bias"])?;
        }
        if self.scaled_inputs {
            b.op(&["score", "chosen"], TopK { k: self.chosen, limit: None }, &["rl"])?;
            return b.sigmoid("weight", "score");
        }
        if self.sigmoid && !self.by_logits {
            b.sigmoid("rs", "rl")?;
        } else if !self.by_logits {
            b.op(&["rs"], Softmax, &["rl"])?;
        }
        let scaled = self.scale != 1.0;
        let value = if self.renormalise || scaled { "score" } else { "weight" };
        let top_k = TopK { k: self.chosen, limit: self.limit };
        let scores = [if self.by_logits { "rl" } else { "rs" }, "router_bias"];
        let best = if self.by_logits { "logit" } else { value };
        b.op(&[best, "chosen"], top_k, &scores[..1 + usize::from(self.bias)])?;
        if self.by_logits {
            b.sigmoid(value, best)?;
        }
        let mut last = value;
        if self.renormalise {
            b.op(&["score_sum"], Reduce::new(PartialKind::Sum, "b q t k -> b q t")?, &[last])?;
            let mut sum = "score_sum";
            if self.sigmoid {
                b.unary("score_floor", UnaryKind::Shift(self.least_sum), sum)?;
                sum = "score_floor";
            }
            let share = if scaled { "score_share" } else { "weight" };
            b.op(&[share], Binary::spread(BinaryKind::Div, "b q t k, b q t -> b q t k")?, &[last, sum])?;
            last = share;
        }
        if scaled { b.scale("weight", self.scale, last) } else { Ok(()) }
    }
}
