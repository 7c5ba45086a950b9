//! The configurations that an answer knows: the best one, and others of other kinds.
//!
//! A complete search knows the best. After an unfinished one, explanations may find a better configuration, which becomes the best:
//! no part of an answer then states one that is better than its plan.

use super::pool::Pool;
use crate::plan::{Objective, PlanRequest};
use crate::search::{Kind, SPREAD, has_usual_sizes};
use compiler::deadline::Deadline;
use estimator::{EstimateReport, Estimator};
use std::collections::HashSet;

/// The best known configuration of a request and its alternatives.
pub(super) struct Known {
    /// The best one.
    pub(super) best: EstimateReport,
    /// The best of each other kind, best first.
    pub(super) others: Vec<EstimateReport>,
    /// Number of configurations to keep.
    wanted: usize,
    objective: Objective,
}

impl Known {
    pub(super) fn new(request: &PlanRequest, best: EstimateReport, others: Vec<EstimateReport>) -> Known {
        Known { best, others, wanted: request.top, objective: request.objective }
    }

    /// Objective of the best configuration: seconds or GiB.
    pub(super) fn value(&self) -> f64 {
        self.objective.value(&self.best.predicted)
    }

    /// Takes another configuration for the best one, which becomes the first of the others.
    pub(super) fn prefer(&mut self, plan: EstimateReport) {
        self.others.retain(|other| other.parallel != plan.parallel);
        let before = std::mem::replace(&mut self.best, plan);
        self.others.insert(0, before);
    }

    /// Takes over those of these configurations that fit and are the best of their kinds. Returns `true` if one is better than
    /// the best. Odd sizes are taken only if the best has some, since they are searched only if nothing else fits.
    pub(super) fn learn(&mut self, reports: impl IntoIterator<Item = EstimateReport>) -> bool {
        let (before, objective) = (self.value(), self.objective);
        let is_odd = !has_usual_sizes(&self.best.parallel);
        let is_useful =
            |report: &EstimateReport| report.predicted.keeps_headroom && (is_odd || has_usual_sizes(&report.parallel));
        let others = std::mem::take(&mut self.others);
        let new = reports.into_iter().filter(is_useful);
        let mut all: Vec<EstimateReport> = std::iter::once(self.best.clone()).chain(others).chain(new).collect();
        all.sort_by(|a, b| objective.value(&a.predicted).total_cmp(&objective.value(&b.predicted)));
        let mut kinds = HashSet::new();
        let mut all = all.into_iter().filter(|report| kinds.insert(Kind::of(&report.parallel)));
        self.best = all.next().unwrap_or_else(|| self.best.clone());
        let best = self.value();
        let close = all.take_while(|other| objective.value(&other.predicted) <= SPREAD * best);
        self.others = close.take(self.wanted.saturating_sub(1)).collect();
        best < before
    }

    /// Makes single changes of the best configuration as long as one is better, and returns the configurations near the last. At
    /// the deadline some of these are left out.
    pub(super) fn climb(&mut self, estimator: &Estimator, request: &PlanRequest, deadline: &Deadline) -> Pool {
        loop {
            let pool = Pool::around(estimator, request, &self.best, &self.others, deadline);
            if !self.learn(pool.reports().cloned()) {
                return pool;
            }
        }
    }
}
