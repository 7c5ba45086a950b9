//! Page of an infeasible request: the conflict, the memory of the configuration that needs least, and the relaxations.

use super::{STYLE, bars, tables};
use crate::error::Error;
use crate::explain::brief::brief;
use crate::explain::compare::device_gib;
use crate::plan::Infeasible;
use estimator::Estimator;
use view::draw::{self, escaped, filled};

const BODY: &str = include_str!("infeasible.html");

/// Page of an infeasible request, or of one whose feasibility is not known.
///
/// # Errors
/// The cluster no longer exists.
pub fn page_of_conflict(estimator: &Estimator, answer: &Infeasible) -> Result<String, Error> {
    let limit = device_gib(&*estimator.cluster(&answer.inputs.cluster)?, answer.inputs.gpus.unwrap_or(1));
    let (model, cluster) = (&answer.inputs.model, &answer.inputs.cluster);
    let (title, verdict) = match answer.is_known() {
        true => (format!("{model} does not fit on {cluster}"), "No configuration satisfies the request."),
        false => (
            format!("Not known yet whether {model} fits on {cluster}"),
            "The search was stopped by its deadline before it found a configuration that fits.",
        ),
    };
    let least =
        if answer.closest_is_least { "Smallest configuration" } else { "Smallest configuration of those evaluated" };
    let closest = match &answer.closest {
        Some(report) => {
            format!("<p class=\"parallel\">{}</p>\n{}", escaped(&brief(&report.parallel)), bars::memory(report, limit))
        }
        None => "<p>Not known: the search was stopped by its deadline.</p>\n".to_string(),
    };
    let parts = [
        ("title", escaped(&title)),
        ("verdict", verdict.to_string()),
        ("least", least.to_string()),
        ("conflict", tables::conflict(answer)),
        ("closest", closest),
        ("relaxations", tables::relaxations(answer)),
        ("search", tables::search(Some(&answer.search))),
    ];
    let parts = parts.each_ref().map(|(name, text)| (*name, text.as_str()));
    Ok(draw::page(&title, STYLE, &filled(BODY, &parts)))
}
