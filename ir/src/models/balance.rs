//! Balance of routers in training: losses of uneven routing and of large logits, and biases that counts move.
//! Fedus et al. 2021 (Switch), Zoph et al. 2022 (ST-MoE), DeepSeek-AI 2024 (DeepSeek-V3), Qiu et al. 2025 (global batch).

use super::draft::{Body, DraftError, Weight};
use super::error::{ConfigError, invalid, not_negative};
use super::experts::{Experts, LEAST_SUM};
use super::fields::Fields;
use crate::graph::COUNTS;
use crate::ops::{Binary, BinaryKind, ChoiceCount, Iota, Reduce, TopK, TopKGrad, UnaryKind};
use crate::types::{DType, PartialKind};
use serde::Serialize;

/// The tokens over which a loss evens out routing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum BalanceScope {
    /// Tokens of each sequence (DeepSeek-V3, equations 17 to 20).
    Sequence,
    /// Tokens of a micro-batch, of all ranks (Switch).
    MicroBatch,
    /// Tokens of the step before, whose counts stand for those of this one.
    GlobalBatch,
    /// Tokens of a micro-batch in all layers together: `load_balancing_loss_func` of Hugging Face's `transformers`, which is the factor times
    /// the experts of a token where routing is even.
    Layers,
}

impl BalanceScope {
    /// The scopes by name.
    pub const ALL: [(&'static str, BalanceScope); 4] = [
        ("sequence", BalanceScope::Sequence),
        ("micro_batch", BalanceScope::MicroBatch),
        ("global_batch", BalanceScope::GlobalBatch),
        ("layers", BalanceScope::Layers),
    ];

    /// The scope of a name.
    pub fn named(name: &str) -> Option<BalanceScope> {
        BalanceScope::ALL.iter().find(|(known, _)| *known == name).map(|(_, scope)| *scope)
    }
}

/// The sums of counts and of scores that a layer is passed, and what it makes of them, if the loss spans layers.
pub(super) const PASSED: [&str; 2] = ["counts_before", "shares_before"];
pub(super) const ADDED: [&str; 2] = ["counts_so_far", "shares_so_far"];

/// A loss of uneven routing: `factor` times the number of experts, times the sum over experts of the share of choices and the mean
/// score; `factor` where routing is even.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct BalanceLoss {
    /// The tokens whose choices count.
    pub scope: BalanceScope,
    /// Its factor.
    pub factor: f64,
}

/// The means that keep the router of a layer balanced in training.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Balance {
    /// The loss of uneven routing.
    pub loss: Option<BalanceLoss>,
    /// The factor of the mean squared logarithm of the sum of exponentials of logits.
    pub z_loss: Option<f64>,
    /// How far a step moves the bias of each expert towards even counts.
    pub bias_rate: Option<f64>,
    /// True to note how many tokens each expert gets, which all but the losses of a micro-batch need anyway.
    pub counts: bool,
}

impl Balance {
    /// Nothing.
    pub const NONE: Balance = Balance { loss: None, z_loss: None, bias_rate: None, counts: false };

    /// True if there is nothing.
    pub fn is_none(&self) -> bool {
        *self == Balance::NONE
    }

    /// Reads the keys of a file.
    pub(super) fn read(fields: &Fields) -> Result<Balance, ConfigError> {
        let name: Option<String> = fields.optional("router_balance")?;
        let factor = fields.optional("router_balance_coef")?;
        let whole = match fields.optional("output_router_logits")? {
            Some(true) => fields.optional("router_aux_loss_coef")?,
            _ => None,
        };
        let whole = whole.map(|factor| BalanceLoss { scope: BalanceScope::Layers, factor });
        if let (Some(_), Some(name)) = (whole, &name) {
            let why = format!("`output_router_logits` asks for a loss already; leave out one of the two (`{name}`)");
            return Err(invalid("router_balance", why));
        }
        let loss = name.map(|name| match (BalanceScope::named(&name), factor) {
            (None, _) => {
                Err(invalid("router_balance", format!("`{name}` is not sequence, micro_batch, global_batch or layers")))
            }
            (_, None) => Err(ConfigError::Missing { field: "router_balance_coef" }),
            (Some(scope), Some(factor)) => Ok(BalanceLoss { scope, factor }),
        });
        Ok(Balance {
            loss: loss.transpose()?.or(whole).filter(|loss| loss.factor != 0.0),
            z_loss: fields.optional("router_z_loss_coef")?.filter(|factor| *factor != 0.0),
            bias_rate: fields.optional("router_bias_update_rate")?.filter(|rate| *rate != 0.0),
            counts: fields.optional("router_counts")?.unwrap_or(false),
        })
    }

    pub(super) fn check(&self, has_bias: bool) -> Result<(), ConfigError> {
        let numbers = [
            ("router_balance_coef", self.loss.map(|loss| loss.factor)),
            ("router_z_loss_coef", self.z_loss),
            ("router_bias_update_rate", self.bias_rate),
        ];
        for (field, number) in numbers {
            not_negative(field, number.unwrap_or(0.0))?;
        }
        if self.bias_rate.is_some() && !has_bias {
            return Err(invalid("router_bias_update_rate", "the routers of this model have no bias".to_string()));
        }
        Ok(())
    }

    fn notes_counts(&self) -> bool {
        !self.is_none()
    }

    /// Its record, if it has one.
    pub(super) fn weights(&self) -> Option<Weight> {
        self.notes_counts().then(|| Weight::record(COUNTS, "n"))
    }

    /// The results of a layer that training lowers.
    pub(super) fn results(&self) -> Vec<&'static str> {
        let loss = self.loss.filter(|_| !self.spans_layers()).map(|_| "balance_loss");
        [loss, self.z_loss.map(|_| "z_loss")].into_iter().flatten().collect()
    }

    /// True if layers pass sums of counts and scores on, of which the head makes the loss.
    pub(super) fn spans_layers(&self) -> bool {
        self.loss.is_some_and(|loss| loss.scope == BalanceScope::Layers)
    }
}

/// Sizes and names of the routing of a layer: `%rl` logits, `%rs` scores, `%chosen`.
struct Router<'a> {
    experts: &'a Experts,
    /// Tokens of a sequence, and of a micro-batch.
    seq: f64,
    tokens: f64,
}

impl Experts {
    /// The values of [`Balance::results`], and the counts of the record.
    pub(super) fn balance(&self, b: &mut Body<'_>) -> Result<(), DraftError> {
        if self.balance.is_none() {
            return Ok(());
        }
        let [seq, tokens] = ["q t", "b q t"].map(|dims| b.dims(dims).iter().map(|dim| dim.size as f64).product());
        let router = Router { experts: self, seq, tokens };
        let (op, bias) = (ChoiceCount { rate: self.balance.bias_rate }, self.balance.bias_rate.map(|_| "router_bias"));
        b.op(&["counts"], op, &["chosen", COUNTS].into_iter().chain(bias).collect::<Vec<_>>())?;
        if let Some(loss) = self.balance.loss {
            let share = router.scores(b)?;
            match loss.scope {
                BalanceScope::Layers => router.add(b, &share)?,
                BalanceScope::Sequence => router.by_sequence(b, &share, loss.factor)?,
                BalanceScope::MicroBatch => {
                    router.by_counts(b, &share, "counts", loss.factor / self.chosen as f64 / tokens)?;
                }
                BalanceScope::GlobalBatch => {
                    b.op(&["count_sum"], Reduce::new(PartialKind::Sum, "n -> ()")?, &[COUNTS])?;
                    b.op(&["count_share"], Binary::spread(BinaryKind::Div, "n, () -> n")?, &[COUNTS, "count_sum"])?;
                    router.by_counts(b, &share, "count_share", loss.factor)?;
                }
            }
        }
        self.balance.z_loss.map_or(Ok(()), |factor| router.z_loss(b, factor))
    }
}

impl Router<'_> {
    /// `%y`, a value in f32: sums over many tokens are exact in no narrower type.
    fn wide(b: &mut Body<'_>, y: &str, x: &'static str) -> Result<String, DraftError> {
        if b.dtype(x)? == DType::F32 {
            return Ok(x.to_string());
        }
        b.unary(y, UnaryKind::Cast(DType::F32), x)?;
        Ok(y.to_string())
    }

    /// The name of the scores of each token that add up to 1.
    fn scores(&self, b: &mut Body<'_>) -> Result<String, DraftError> {
        let Experts { sigmoid, scaled_inputs, .. } = *self.experts;
        let from = if scaled_inputs { "rl" } else { "rs" };
        let mut scores = Router::wide(b, "wide_scores", from)?;
        if scaled_inputs {
            b.sigmoid("all_scores", &scores)?;
            scores = "all_scores".to_string();
        } else if !sigmoid {
            return Ok(scores);
        }
        b.op(&["all_sum"], Reduce::new(PartialKind::Sum, "b q t n -> b q t")?, &[&scores])?;
        b.unary("all_floor", UnaryKind::Shift(LEAST_SUM), "all_sum")?;
        b.op(&["share"], Binary::spread(BinaryKind::Div, "b q t n, b q t -> b q t n")?, &[&scores, "all_floor"])?;
        Ok("share".to_string())
    }

    /// `%balance_loss`, `factor E sum_e c_e P_e` of some counts and the mean scores of the micro-batch.
    fn by_counts(&self, b: &mut Body<'_>, share: &str, counts: &str, factor: f64) -> Result<(), DraftError> {
        b.op(&["share_sum"], Reduce::new(PartialKind::Sum, "b q t n -> n")?, &[share])?;
        b.op(&["uneven"], Binary::of(BinaryKind::Mul), &["share_sum", counts])?;
        b.op(&["uneven_sum"], Reduce::new(PartialKind::Sum, "n -> ()")?, &["uneven"])?;
        b.scale("balance_loss", factor * self.experts.experts as f64 / self.tokens, "uneven_sum")
    }

    /// `%balance_loss`, the mean over sequences of the same sum of their counts and mean scores. Counts are those of the scores alone, without bias and groups.
    fn by_sequence(&self, b: &mut Body<'_>, share: &str, factor: f64) -> Result<(), DraftError> {
        let experts = self.experts;
        let mut index = "chosen";
        if experts.bias || experts.limit.is_some() {
            b.op(&["best", "unbiased"], TopK { k: experts.chosen, limit: None }, &[share])?;
            index = "unbiased";
        }
        b.unary("choice", UnaryKind::Cast(DType::F32), index)?;
        b.scale("zero", 0.0, "choice")?;
        b.unary("one", UnaryKind::Shift(1.0), "zero")?;
        b.op(&["choices"], TopKGrad { experts: b.dims("n").remove(0) }, &[index, "one"])?;
        for (sum, of) in [("seq_counts", "choices"), ("seq_shares", share)] {
            b.op(&[sum], Reduce::new(PartialKind::Sum, "b q t n -> b n")?, &[of])?;
        }
        b.op(&["uneven"], Binary::of(BinaryKind::Mul), &["seq_shares", "seq_counts"])?;
        b.op(&["uneven_sum"], Reduce::new(PartialKind::Sum, "b n -> ()")?, &["uneven"])?;
        let choices = experts.chosen as f64 * self.seq * self.tokens;
        b.scale("balance_loss", factor * experts.experts as f64 / choices, "uneven_sum")
    }

    /// Adds its counts and scores to those of the layers before.
    fn add(&self, b: &mut Body<'_>, share: &str) -> Result<(), DraftError> {
        b.op(&["share_sum"], Reduce::new(PartialKind::Sum, "b q t n -> n")?, &[share])?;
        let add = Binary::of(BinaryKind::Add);
        b.op(&[ADDED[0]], add.clone(), &[PASSED[0], "counts"])?;
        b.op(&[ADDED[1]], add, &[PASSED[1], "share_sum"])
    }

    /// `%z_loss`, the mean square of the logarithm of the sum of exponentials.
    fn z_loss(&self, b: &mut Body<'_>, factor: f64) -> Result<(), DraftError> {
        let logits = Router::wide(b, "wide_logits", "rl")?;
        b.op(&["z_max"], Reduce::new(PartialKind::Max, "b q t n -> b q t")?, &[&logits])?;
        b.op(&["z_below"], Binary::spread(BinaryKind::Sub, "b q t n, b q t -> b q t n")?, &[&logits, "z_max"])?;
        b.unary("z_exp", UnaryKind::Exp, "z_below")?;
        b.op(&["z_sum"], Reduce::new(PartialKind::Sum, "b q t n -> b q t")?, &["z_exp"])?;
        b.unary("z_log", UnaryKind::Log, "z_sum")?;
        b.op(&["z"], Binary::of(BinaryKind::Add), &["z_log", "z_max"])?;
        b.unary("z_square", UnaryKind::Square, "z")?;
        b.op(&["z_total"], Reduce::new(PartialKind::Sum, "b q t -> ()")?, &["z_square"])?;
        b.scale("z_loss", factor / self.tokens, "z_total")
    }
}

/// `%counts_before` and `%shares_before` of the first layer: zeros.
pub(super) fn first(b: &mut Body<'_>) -> Result<(), DraftError> {
    let iota = Iota { dim: 0, dims: b.dims("n"), dtype: DType::F32 };
    b.op(&["places"], iota, &[])?;
    PASSED.iter().try_for_each(|name| b.scale(name, 0.0, "places"))
}

/// `%balance_loss` of the sums over `layers` layers.
pub(super) fn last(b: &mut Body<'_>, factor: f64, layers: u32) -> Result<(), DraftError> {
    let [experts, tokens] = ["n", "b s"].map(|dims| b.dims(dims).iter().map(|dim| dim.size as f64).product::<f64>());
    b.op(&["uneven"], Binary::of(BinaryKind::Mul), &PASSED)?;
    b.op(&["uneven_sum"], Reduce::new(PartialKind::Sum, "n -> ()")?, &["uneven"])?;
    b.scale("balance_loss", factor * experts / (f64::from(layers) * tokens).powi(2), "uneven_sum")
}
