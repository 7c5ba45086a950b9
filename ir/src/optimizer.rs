//! The optimizer, as a user states it: `{"name": "adamw", "beta2": 0.95, "clip": 1.0}`.

use serde::{Deserialize, Serialize};

/// An update rule and the bound of the gradient norm.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Optimizer {
    /// The rule.
    #[serde(flatten)]
    pub kind: OptimizerKind,
    /// The largest global gradient norm that is not clipped; `None`: gradients are never clipped. 1 by default.
    #[serde(default = "default_clip")]
    pub clip: Option<f64>,
}

/// The update rules.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    AdamW {
        /// Decay of the mean of gradients.
        #[serde(default = "default_beta1")]
        beta1: f64,
        /// Decay of the mean of squared gradients.
        #[serde(default = "default_beta2")]
        beta2: f64,
        /// Added to the root of the second mean.
        #[serde(default = "default_eps")]
        eps: f64,
        /// For parameters declared with `decay=true`.
        #[serde(default = "default_weight_decay")]
        weight_decay: f64,
    },
    /// Muon for matrices of products (Jordan et al. 2024), AdamW for all other parameters.
    Muon {
        /// Decay of the mean of gradients.
        #[serde(default = "default_momentum")]
        momentum: f64,
        /// The update is the mean after one more move to the gradient (Nesterov's momentum).
        #[serde(default = "default_nesterov")]
        nesterov: bool,
        /// The matrices that are made orthogonal.
        #[serde(default)]
        matrices: Matrices,
        /// Decay of the mean of gradients of the other parameters.
        #[serde(default = "default_beta1")]
        beta1: f64,
        /// Decay of the mean of their squares.
        #[serde(default = "default_beta2")]
        beta2: f64,
        /// Added to the root of the second mean.
        #[serde(default = "default_eps")]
        eps: f64,
        /// For parameters declared with `decay=true`.
        #[serde(default = "default_weight_decay")]
        weight_decay: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Decay of the velocity; 0: no velocity.
        #[serde(default)]
        momentum: f64,
        /// The step looks ahead by one more decay of the velocity (Nesterov's momentum); without effect if there is none.
        #[serde(default)]
        nesterov: bool,
        /// For parameters declared with `decay=true`.
        #[serde(default)]
        weight_decay: f64,
    },
}

/// The matrices that Muon makes orthogonal, where a model has the parts of one apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Matrices {
    /// Each part, as Jordan et al. 2024 advise for queries, keys and values.
    #[default]
    Split,
    /// The matrix that [`Param::part_of`](crate::graph::Param::part_of) names: `q_b`, `kv_a` and `kv_b` of latent attention, as Liu et al. 2025
    /// (Moonlight) take them.
    Whole,
}

impl Matrices {
    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Matrices::Split => "split",
            Matrices::Whole => "whole",
        }
    }
}

/// AdamW with the settings of Touvron et al. 2023 (LLaMA, section 2.3): betas 0.9 and 0.95, decay 0.1, clip 1.
impl Default for Optimizer {
    fn default() -> Optimizer {
        Optimizer { kind: OptimizerKind::adamw(default_weight_decay()), clip: default_clip() }
    }
}

impl OptimizerKind {
    /// AdamW with default settings but for the decay.
    pub fn adamw(weight_decay: f64) -> OptimizerKind {
        OptimizerKind::AdamW { beta1: default_beta1(), beta2: default_beta2(), eps: default_eps(), weight_decay }
    }

    /// Muon with default settings.
    pub fn muon() -> OptimizerKind {
        OptimizerKind::Muon {
            momentum: default_momentum(),
            nesterov: default_nesterov(),
            matrices: Matrices::default(),
            beta1: default_beta1(),
            beta2: default_beta2(),
            eps: default_eps(),
            weight_decay: default_weight_decay(),
        }
    }

    /// Gradient descent without momentum or decay.
    pub fn sgd() -> OptimizerKind {
        OptimizerKind::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }

    /// The decay of parameters declared with `decay=true`.
    pub fn weight_decay_mut(&mut self) -> &mut f64 {
        match self {
            OptimizerKind::AdamW { weight_decay, .. }
            | OptimizerKind::Muon { weight_decay, .. }
            | OptimizerKind::Sgd { weight_decay, .. } => weight_decay,
        }
    }
}

/// Jordan et al. 2024.
fn default_momentum() -> f64 {
    0.95
}

/// Jordan et al. 2024.
fn default_nesterov() -> bool {
    true
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.95
}

/// Kingma and Ba 2015, algorithm 1.
fn default_eps() -> f64 {
    1e-8
}

fn default_weight_decay() -> f64 {
    0.1
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn default_clip() -> Option<f64> {
    Some(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_stated_has_its_default() {
        let optimizer: Optimizer = serde_json::from_str(r#"{"name": "adamw"}"#).unwrap();
        assert_eq!(optimizer, Optimizer::default());
        let optimizer: Optimizer = serde_json::from_str(r#"{"name": "sgd", "momentum": 0.9, "clip": null}"#).unwrap();
        let kind = OptimizerKind::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };
        assert_eq!(optimizer, Optimizer { kind, clip: None });
        let optimizer: Optimizer = serde_json::from_str(r#"{"name": "muon"}"#).unwrap();
        assert_eq!(optimizer, Optimizer { kind: OptimizerKind::muon(), ..Optimizer::default() });
        assert!(serde_json::from_str::<Optimizer>(r#"{"name": "adam"}"#).is_err());
    }

    #[test]
    fn json_comes_back() {
        let optimizer = Optimizer::default();
        let text = serde_json::to_string(&optimizer).unwrap();
        assert_eq!(serde_json::from_str::<Optimizer>(&text).unwrap(), optimizer);
    }
}
