//! The optimizer and the learning rate of a request: fields of their own, most of which one update rule alone has.

use super::request::{TrainRequest, option};
use crate::error::Error;
use crate::learning_rate::{Decay, LearningRate};
use ir::optimizer::{Matrices, Optimizer, OptimizerKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The fields of a request that are settings of one optimizer or another.
pub const SETTINGS: [&str; 6] = ["beta1", "beta2", "eps", "momentum", "nesterov", "matrices"];

/// Share of the steps in which a rate that was stable falls (Hu et al. 2024, MiniCPM, section 4: about a tenth).
const LAST: u64 = 10;

impl TrainRequest {
    /// The optimizer. A setting that is not given has the default of [`OptimizerKind`].
    ///
    /// # Errors
    /// The update rule is unknown, lacks a setting that is given, or a setting is out of its range.
    pub fn optimizer(&self) -> Result<Optimizer, Error> {
        let mut kind = match self.optimizer.as_str() {
            "adamw" => OptimizerKind::adamw(self.weight_decay),
            "sgd" => OptimizerKind::sgd(),
            "muon" => OptimizerKind::muon(),
            other => {
                let error = option(format!("there is no optimizer `{other}`"));
                return Err(error.help("--optimizer is adamw, muon or sgd"));
            }
        };
        *kind.weight_decay_mut() = self.weight_decay;
        let numbers = [("beta1", self.beta1), ("beta2", self.beta2), ("eps", self.eps), ("momentum", self.momentum)];
        if let Some((name, _)) = numbers.iter().find(|(_, value)| value.is_some_and(|value| !value.is_finite())) {
            return Err(option(format!("`{name}` must be finite")));
        }
        let mut fields = fields(&kind);
        let settings = json!({
            "beta1": self.beta1, "beta2": self.beta2, "eps": self.eps, "momentum": self.momentum, "nesterov": self.nesterov, "matrices": self.matrices,
        });
        for (name, value) in settings.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            match fields.get_mut(name) {
                Some(field) => *field = value.clone(),
                None => {
                    let known: Vec<&str> = SETTINGS.into_iter().filter(|name| fields.contains_key(*name)).collect();
                    let message = format!("`{name}` is {value}, but `{}` has no such setting", self.optimizer);
                    return Err(option(message).help(format!("its settings are {}", known.join(", "))));
                }
            }
        }
        let kind = serde_json::from_value(Value::Object(fields)).map_err(|why| Error::fault("optimizer", why))?;
        check(&kind)?;
        Ok(Optimizer { kind, clip: (self.clip > 0.0).then_some(self.clip) })
    }

    /// The learning-rate schedule.
    ///
    /// # Errors
    /// There is no schedule of this name.
    pub fn learning_rate(&self) -> Result<LearningRate, Error> {
        let decay = match self.lr_schedule.as_str() {
            "cosine" => Decay::Cosine,
            "linear" => Decay::Linear,
            "wsd" => Decay::Stable { last: self.decay_steps.unwrap_or(self.steps.div_ceil(LAST)) },
            "constant" => Decay::Constant,
            other => {
                let error = option(format!("there is no learning-rate schedule `{other}`"));
                return Err(error.help("--lr-schedule is cosine, linear, wsd (stable, then a line) or constant"));
            }
        };
        let floor = self.min_lr.unwrap_or(self.lr / 10.0);
        Ok(LearningRate { peak: self.lr, warmup_steps: self.warmup, total_steps: self.steps, floor, decay })
    }

    /// The request with every setting of its optimizer and of its learning rate.
    ///
    /// # Errors
    /// As [`optimizer`](Self::optimizer) and [`learning_rate`](Self::learning_rate).
    pub(super) fn with_settings(self) -> Result<TrainRequest, Error> {
        let (fields, rate) = (fields(&self.optimizer()?.kind), self.learning_rate()?);
        let decay_steps = if let Decay::Stable { last } = rate.decay { Some(last) } else { self.decay_steps };
        Ok(TrainRequest {
            beta1: number(&fields, "beta1"),
            beta2: number(&fields, "beta2"),
            eps: number(&fields, "eps"),
            momentum: number(&fields, "momentum"),
            nesterov: fields.get("nesterov").and_then(Value::as_bool),
            matrices: fields.get("matrices").and_then(|value| Matrices::deserialize(value).ok()),
            min_lr: Some(rate.floor),
            decay_steps,
            ..self
        })
    }
}

/// The settings of an optimizer that a resumed run must not change: all but its decay.
///
/// # Errors
/// The request has no optimizer.
pub(super) fn fixed_settings(request: &TrainRequest) -> Result<Map<String, Value>, Error> {
    let all = fields(&request.optimizer()?.kind);
    Ok(all.into_iter().filter(|(name, _)| SETTINGS.contains(&name.as_str())).collect())
}

/// The name and the settings of an optimizer.
fn fields(kind: &OptimizerKind) -> Map<String, Value> {
    let fields = serde_json::to_value(kind).ok().and_then(|value| value.as_object().cloned());
    fields.unwrap_or_default()
}

fn number(fields: &Map<String, Value>, name: &str) -> Option<f64> {
    fields.get(name).and_then(Value::as_f64)
}

/// Refuses settings out of their range: means decay by a factor below 1, and quotients must not be of 0.
fn check(kind: &OptimizerKind) -> Result<(), Error> {
    let fields = fields(kind);
    for name in ["beta1", "beta2", "momentum"] {
        if let Some(value) = number(&fields, name).filter(|value| !(0.0..1.0).contains(value)) {
            return Err(option(format!("`{name}` is {value}, but must be 0 or more and below 1")));
        }
    }
    if let Some(value) = number(&fields, "eps").filter(|value| !(1e-30..1.0).contains(value)) {
        return Err(option(format!("`eps` is {value}, but must be from 1e-30 to 1, so that f32 holds it")));
    }
    if let OptimizerKind::Sgd { momentum: 0.0, nesterov: true, .. } = kind {
        return Err(option("`nesterov` is true, but `momentum` is 0: there is no velocity to look ahead by".into())
            .help("give --momentum, for example 0.9, or leave --nesterov out"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(optimizer: &str) -> TrainRequest {
        TrainRequest { optimizer: optimizer.to_string(), ..TrainRequest::default() }
    }

    #[test]
    fn a_setting_that_is_given_is_that_of_the_optimizer() {
        let adamw = TrainRequest { beta2: Some(0.999), eps: Some(1e-6), ..request("adamw") };
        let kind = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-6, weight_decay: 0.1 };
        assert_eq!(adamw.optimizer().unwrap(), Optimizer { kind, clip: Some(1.0) });
        let sgd = TrainRequest { momentum: Some(0.9), nesterov: Some(true), clip: 0.0, ..request("sgd") };
        let kind = OptimizerKind::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.1 };
        assert_eq!(sgd.optimizer().unwrap(), Optimizer { kind, clip: None });
        let muon = TrainRequest { momentum: Some(0.8), nesterov: Some(false), beta1: Some(0.5), ..request("muon") };
        let OptimizerKind::Muon { momentum, nesterov, beta1, beta2, .. } = muon.optimizer().unwrap().kind else {
            panic!("another optimizer")
        };
        assert_eq!((momentum, nesterov, beta1, beta2), (0.8, false, 0.5, 0.95));
    }

    #[test]
    fn settings_without_meaning_are_refused() {
        for (request, part) in [
            (TrainRequest { momentum: Some(0.9), ..request("adamw") }, "`adamw` has no such setting"),
            (TrainRequest { beta1: Some(0.9), ..request("sgd") }, "its settings are momentum, nesterov"),
            (TrainRequest { beta1: Some(1.0), ..request("adamw") }, "below 1"),
            (TrainRequest { beta2: Some(f64::NAN), ..request("adamw") }, "`beta2`"),
            (TrainRequest { eps: Some(0.0), ..request("muon") }, "`eps` is 0"),
            (TrainRequest { nesterov: Some(true), ..request("sgd") }, "no velocity"),
            (TrainRequest { lr_schedule: "step".into(), ..request("sgd") }, "no learning-rate schedule `step`"),
            (TrainRequest { decay_steps: Some(0), lr_schedule: "wsd".into(), ..request("sgd") }, "`decay_steps` is 0"),
        ] {
            let message = request.resolved().unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_resolved_request_has_every_setting() {
        for (optimizer, settings) in [("adamw", 3), ("sgd", 2), ("muon", 6)] {
            let resolved = request(optimizer).resolved().unwrap();
            let numbers = [resolved.beta1, resolved.beta2, resolved.eps, resolved.momentum];
            let has =
                numbers.iter().flatten().count() + resolved.nesterov.iter().count() + resolved.matrices.iter().count();
            assert_eq!(has, settings, "{optimizer}");
            assert_eq!(resolved.resolved().unwrap(), resolved);
            assert_eq!(fixed_settings(&resolved).unwrap().len(), settings);
        }
        let stable = TrainRequest { lr_schedule: "wsd".into(), steps: 95, ..request("sgd") }.resolved().unwrap();
        assert_eq!((stable.decay_steps, stable.learning_rate().unwrap().decay), (Some(10), Decay::Stable { last: 10 }));
    }
}
