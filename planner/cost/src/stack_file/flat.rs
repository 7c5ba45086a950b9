//! Flat form of a stack's traits: the table `[facts]`, whose names become paths in the table `[traits]`.

use crate::preset_error::{PresetError, out_of_range};
use Meaning::{Choice, List, Member, Messages, Same, Switch};
use ir::catalogue::Code;
use ir::diag::nearest;
use toml::{Table, Value};

/// Name of the table of the flat form.
pub(super) const FACTS: &str = "facts";

/// Name of the table of the nested form.
const TRAITS: &str = "traits";

/// Name of the flat form, with the path of the nested form that has its value.
struct Alias {
    old: &'static str,
    new: &'static str,
    meaning: Meaning,
}

/// Meaning of a value of the flat form.
enum Meaning {
    /// The value itself.
    Same,
    /// A list, in the place of all members but those that have names of their own in the flat form.
    List(&'static [&'static str]),
    /// A boolean: whether a list has this member.
    Member(&'static str),
    /// A boolean that takes one choice of an enum to another. A table that states no choice has the default.
    Choice { default: &'static str, moves: &'static [Step] },
    /// A figure above 0 that is true.
    Switch,
    /// Messages per parameter, of which 0 is one message for all parameters. Broadcasts have none.
    Messages,
}

/// A choice of an enum that a boolean takes to another.
struct Step {
    flag: bool,
    from: &'static str,
    to: &'static str,
}

const fn on(from: &'static str, to: &'static str) -> Step {
    Step { flag: true, from, to }
}

const fn off(from: &'static str, to: &'static str) -> Step {
    Step { flag: false, from, to }
}

const fn same(old: &'static str, new: &'static str) -> Alias {
    Alias { old, new, meaning: Same }
}

const fn switch(old: &'static str, new: &'static str) -> Alias {
    Alias { old, new, meaning: Switch }
}

const fn choice(old: &'static str, new: &'static str, default: &'static str, moves: &'static [Step]) -> Alias {
    Alias { old, new, meaning: Choice { default, moves } }
}

/// Names of the flat form. Those of one path are applied in this order.
const ALIASES: &[Alias] = &[
    choice("graphs", "launch.graphs", "none", &[on("none", "dense"), off("dense", "none"), off("all", "none")]),
    choice("expert_graphs", "launch.graphs", "none", &[on("dense", "all"), off("all", "dense")]),
    same("dispatches", "launch.dispatches"),
    same("checkpoint", "launch.checkpoint"),
    same("attention", "kernels.attention"),
    same("pieces", "kernels.pieces"),
    same("fused", "kernels.fused"),
    same("quantise", "kernels.quantise"),
    same("grouped", "kernels.grouped"),
    same("grouped_transposed", "kernels.grouped_transposed"),
    same("comm_sms", "kernels.comm_sms"),
    Alias { old: "hides", new: "hides", meaning: List(&["update"]) },
    Alias { old: "hides_update", new: "hides", meaning: Member("update") },
    same("saved.dropout", "saved.dropout"),
    same("saved.norm", "saved.norm"),
    same("saved.rope", "saved.rope"),
    same("saved.activation", "saved.activation"),
    same("saved.gated", "saved.gated"),
    same("saved.loss", "saved.loss"),
    same("saved.loss_within", "saved.loss_within"),
    same("saved.loss_split", "saved.loss_split"),
    same("saved.operand", "saved.operand"),
    switch("saved.attention", "saved.selective_attention"),
    switch("saved.unread", "saved.unread"),
    switch("saved.whole", "saved.gathered_inputs"),
    switch("saved.partitioned", "saved.partitioned_inputs"),
    same("stops_early", "saved.stops_early"),
    same("block_by_block", "saved.block_by_block"),
    same("gradient_bytes", "formats.gradient_bytes"),
    same("wire_bytes", "formats.comm_bytes"),
    choice("precision_aware", "formats.master", "full", &[on("full", "remainder"), off("remainder", "full")]),
    choice("pure", "formats.master", "full", &[on("full", "none"), on("remainder", "none"), off("none", "full")]),
    same("update_bytes", "formats.update_bytes"),
    same("quantised_experts", "formats.quantised_experts"),
    same("bucket", "zero.bucket"),
    choice(
        "broadcasts",
        "zero.gathers",
        "together",
        &[on("together", "broadcasts"), on("messages", "broadcasts"), off("broadcasts", "together")],
    ),
    Alias { old: "gathers_each", new: "zero.gathers", meaning: Messages },
    choice(
        "pipelines_whole",
        "zero.accumulate",
        "sharded",
        &[on("sharded", "unsharded_in_pipelines"), off("unsharded_in_pipelines", "sharded")],
    ),
    choice(
        "accumulates_whole",
        "zero.accumulate",
        "sharded",
        &[on("sharded", "unsharded"), on("unsharded_in_pipelines", "unsharded"), off("unsharded", "sharded")],
    ),
    same("sums_whole", "zero.sums_whole"),
    same("scatters_runs", "zero.scatters_runs"),
    same("sums_groups_once", "zero.sums_groups_once"),
    same("updates_on_host", "zero.updates_on_host"),
    same("accumulates_wide", "zero.accumulates_wide"),
    same("keeps_gathered", "zero.keeps_gathered"),
    same("casts_gathered", "zero.casts_gathered"),
    same("keeps_ends", "zero.keeps_ends"),
    same("scatters_narrow", "zero.scatters_narrow"),
    same("sums_apart", "zero.sums_apart"),
    same("frees_gradients", "zero.frees_gradients"),
    same("shares_states", "zero.shares_states"),
    choice(
        "once_per_node",
        "experts.dispatch",
        "all_to_all",
        &[on("all_to_all", "once_per_node"), off("once_per_node", "all_to_all")],
    ),
    same("adjacent_experts", "experts.adjacent"),
    choice(
        "drops",
        "experts.capacity",
        "dropless",
        &[on("dropless", "drops"), off("drops", "dropless"), off("pads", "dropless")],
    ),
    choice(
        "pads_experts",
        "experts.capacity",
        "dropless",
        &[on("dropless", "pads"), on("drops", "pads"), off("pads", "drops")],
    ),
    same("weighs_inside", "experts.weighs_inside"),
    same("scaling_calls", "experts.scaling_calls"),
    same("hierarchical", "network.hierarchical"),
    same("hop", "network.hop"),
    same("peer", "network.peer"),
    same("cut", "cut"),
    same("reserve", "memory.reserve"),
    same("context", "memory.context"),
    same("workspace", "memory.workspace"),
    same("communicator", "memory.communicator"),
    same("communicators", "memory.communicators"),
    same("buffers", "memory.buffers"),
    same("waiting", "memory.waiting"),
];

/// Table of a file in the nested form. A boolean of the flat form may state a part of a choice; the other part is that of `base`, the
/// file that the table begins from.
///
/// # Errors
/// A name of the flat form is not known, or a value is of another kind. The message names the key.
pub(super) fn nested(table: Table, base: &Table) -> Result<Table, PresetError> {
    with_paths(table, base).map_err(|why| PresetError::wrong(Code::BadStack, why))
}

/// Moves the values of the flat form to their paths.
fn with_paths(mut table: Table, base: &Table) -> Result<Table, String> {
    let mut facts = match table.remove(FACTS) {
        None => return Ok(table),
        Some(Value::Table(facts)) => facts,
        Some(other) => return Err(format!("`{FACTS}` is {other}, expected a table")),
    };
    for alias in ALIASES {
        let Some(value) = take(&mut facts, alias.old) else { continue };
        let path = format!("{TRAITS}.{}", alias.new);
        let value = alias.nested(value, get(&table, &path).or_else(|| get(base, &path)))?;
        set(&mut table, &path, value);
    }
    match leftover(&facts) {
        None => Ok(table),
        Some(name) => Err(unknown(&name)),
    }
}

impl Alias {
    /// Value of the nested form, in the place of the one that is there.
    fn nested(&self, value: Value, current: Option<&Value>) -> Result<Value, String> {
        match &self.meaning {
            Same => Ok(value),
            List(members) => Ok(self.list(value, current, members)),
            Member(member) => self.member(&value, current, member),
            Choice { default, moves } => self.choice(&value, current, default, moves),
            Switch => Ok(Value::Boolean(self.figure(&value, 64.0, "bytes of an element")? > 0.0)),
            Messages => {
                let messages = self.figure(&value, 1.0, "messages of a parameter")?;
                Ok(match current {
                    Some(current) if chosen(current) == Some("broadcasts") => current.clone(),
                    _ if messages == 0.0 => Value::from("together"),
                    _ => Value::from(Table::from_iter([("messages".to_string(), Value::Float(messages))])),
                })
            }
        }
    }

    fn list(&self, value: Value, current: Option<&Value>, members: &[&str]) -> Value {
        let Value::Array(mut list) = value else { return value };
        let stay = current.and_then(Value::as_array).into_iter().flatten();
        list.extend(stay.filter(|value| value.as_str().is_some_and(|name| members.contains(&name))).cloned());
        Value::Array(list)
    }

    fn member(&self, value: &Value, current: Option<&Value>, member: &str) -> Result<Value, String> {
        let flag = self.flag(value)?;
        let mut list = current.and_then(Value::as_array).cloned().unwrap_or_default();
        list.retain(|value| value.as_str() != Some(member));
        list.extend(flag.then(|| Value::from(member)));
        Ok(Value::Array(list))
    }

    fn choice(&self, value: &Value, current: Option<&Value>, default: &str, moves: &[Step]) -> Result<Value, String> {
        let flag = self.flag(value)?;
        let current = current.cloned().unwrap_or_else(|| Value::from(default));
        let step = moves.iter().find(|step| step.flag == flag && chosen(&current) == Some(step.from));
        Ok(step.map_or(current, |step| Value::from(step.to)))
    }

    fn flag(&self, value: &Value) -> Result<bool, String> {
        value.as_bool().ok_or_else(|| format!("`{FACTS}.{}` is {value}, expected true or false", self.old))
    }

    fn figure(&self, value: &Value, most: f64, unit: &str) -> Result<f64, String> {
        let number = value.as_float().or_else(|| value.as_integer().map(|integer| integer as f64));
        let number = number.ok_or_else(|| format!("`{FACTS}.{}` is {value}, expected a number", self.old))?;
        out_of_range(&format!("{FACTS}.{}", self.old), number, 0.0, most, unit).map_or(Ok(number), Err)
    }
}

/// Name of a choice: a string, or the key of its figure.
fn chosen(value: &Value) -> Option<&str> {
    match value {
        Value::Table(figures) => figures.keys().next().map(String::as_str),
        value => value.as_str(),
    }
}

/// Message about a name that the flat form does not have.
fn unknown(name: &str) -> String {
    let near = nearest(name, ALIASES.iter().map(|alias| alias.old));
    let near = near.map_or_else(String::new, |near| format!(", did you mean `{near}`?"));
    format!("unknown field `{name}` in `{FACTS}`{near}")
}

/// Path of the first value of a table and of the tables in it.
fn leftover(table: &Table) -> Option<String> {
    table.iter().find_map(|(key, value)| match value {
        Value::Table(inner) => leftover(inner).map(|path| format!("{key}.{path}")),
        _ => Some(key.clone()),
    })
}

/// Value at a path.
fn get<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((key, rest)) => get(table.get(key)?.as_table()?, rest),
    }
}

/// Removes the value at a path.
fn take(table: &mut Table, path: &str) -> Option<Value> {
    match path.split_once('.') {
        None => table.remove(path),
        Some((key, rest)) => take(table.get_mut(key)?.as_table_mut()?, rest),
    }
}

/// Writes a value at a path.
fn set(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(table.insert(path.to_string(), value)),
        Some((key, rest)) => {
            let inner = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests;
