//! The figures of two clusters side by side.

use crate::cli::TableFormat;
use crate::error::Error;
use cost::Cluster;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::table::table;

/// The figures of two clusters, with the second relative to the first. Figures that only one of them states are left out.
pub(in crate::cli) fn compared(one: &Cluster, other: &Cluster, format: TableFormat) -> Result<String, Error> {
    let (ours, theirs) = (figures(one)?, figures(other)?);
    let both = ours.iter().filter_map(|(name, own)| Some((name, *own, *theirs.get(name)?)));
    match format {
        TableFormat::Table => {
            let row = |(name, own, other): (&String, f64, f64)| {
                [name.clone(), short(own), short(other), difference(own, other)]
            };
            let rows: Vec<[String; 4]> = both.map(row).collect();
            Ok(table(["FIGURE", &one.name, &other.name, "DIFFERENCE"], &rows))
        }
        TableFormat::Json => {
            let row = |(name, own, other)| json!({"figure": name, "first": own, "second": other});
            crate::cli::json(&both.map(row).collect::<Vec<Value>>())
        }
    }
}

/// The numbers of a cluster by their paths in its file: `device.flops_f32`, `links[0].share at 65536`.
fn figures(cluster: &Cluster) -> Result<BTreeMap<String, f64>, Error> {
    let value = serde_json::to_value(cluster).map_err(|why| Error::fault("clusters", why))?;
    let mut figures = BTreeMap::new();
    collect("", &value, &mut figures);
    Ok(figures)
}

fn collect(path: &str, value: &Value, figures: &mut BTreeMap<String, f64>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(&if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, value, figures);
            }
        }
        Value::Array(members) => {
            for (at, member) in members.iter().enumerate() {
                let point =
                    member.as_array().and_then(|pair| Some((pair.first()?.as_f64()?, pair.get(1)?, pair.len())));
                match point {
                    Some((size, value, 2)) => collect(&format!("{path} at {size}"), value, figures),
                    _ => collect(&format!("{path}[{at}]"), member, figures),
                }
            }
        }
        _ => figures.extend(value.as_f64().map(|number| (path.to_string(), number))),
    }
}

/// Four digits.
fn short(figure: f64) -> String {
    if (1e-3..1e4).contains(&figure.abs()) || figure == 0.0 {
        let rounded: f64 = format!("{figure:.3e}").parse().unwrap_or(figure);
        return rounded.to_string();
    }
    format!("{figure:.3e}")
}

/// How the second figure differs from the first: by a share, or as a multiple where that is more than twice or less than half.
fn difference(one: f64, other: f64) -> String {
    match other / one {
        _ if one == other => "-".to_string(),
        ratio if !ratio.is_finite() || ratio < 0.0 => "-".to_string(),
        ratio if (0.5..=2.0).contains(&ratio) => format!("{:+.1} %", 100.0 * (ratio - 1.0)),
        ratio => format!("x {}", short(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::CLUSTERS;

    #[test]
    fn figures_of_a_cluster_differ_where_they_were_changed() {
        let mut one = Cluster::parse(CLUSTERS[0].text).unwrap();
        let mut other = one.clone();
        other.device.flops_f32 *= 1.1;
        other.links[0].latency *= 3.0;
        other.name = "other".to_string();
        let text = compared(&one, &other, TableFormat::Table).unwrap();
        let changed: Vec<&str> = text.lines().skip(1).filter(|line| !line.trim_end().ends_with('-')).collect();
        assert_eq!(changed.len(), 2, "{text}");
        assert!(changed[0].starts_with("device.flops_f32 ") && changed[0].contains("+10.0 %"), "{text}");
        assert!(changed[1].starts_with("links[0].latency ") && changed[1].contains("x 3"), "{text}");
        one.links.clear();
        let figures: Value = serde_json::from_str(&compared(&one, &other, TableFormat::Json).unwrap()).unwrap();
        let named = |name: &str| figures.as_array().unwrap().iter().any(|figure| figure["figure"] == name);
        assert!(named("device.flops_f32") && !named("links[0].latency"));
    }
}
