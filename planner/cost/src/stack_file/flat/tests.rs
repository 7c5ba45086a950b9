//! Files in the flat form.

use super::*;
use crate::presets::STACKS;
use crate::stack::Stack;
use crate::traits::{Accumulate, Capacity, GatherUpdated, Graphs, Hidden, Master, StackTraits};

/// Traits of a table `[facts]` over those of another one.
fn traits(base: &str, facts: &str) -> Result<StackTraits, String> {
    let table = |text: &str| toml::from_str::<Table>(&format!("[{FACTS}]\n{text}")).unwrap();
    let base = with_paths(table(base), &Table::new())?;
    let above = with_paths(table(facts), &base)?;
    let text = toml::to_string(&crate::base_file::over(base, above)).unwrap();
    let mut table: Table = toml::from_str(&text).unwrap();
    table.remove(TRAITS).unwrap().try_into().map_err(|why: toml::de::Error| why.to_string())
}

/// A preset whose traits are in the flat form is the same stack, also where it begins from a file in the nested form.
#[test]
fn presets_are_read_in_both_forms() {
    let flat: Table = toml::from_str(include_str!("facts.toml")).unwrap();
    for (name, facts) in flat {
        let preset = STACKS.iter().find(|preset| preset.name == name).unwrap();
        let mut table: Table = toml::from_str(preset.text).unwrap();
        table.remove(TRAITS).unwrap();
        table.insert(FACTS.to_string(), facts);
        let (mut read, preset) =
            (Stack::parse(&toml::to_string(&table).unwrap()).unwrap(), Stack::find(&name).unwrap());
        // A trait that the flat form has no name for.
        read.traits.network.hides_forward_under_sp = preset.traits.network.hides_forward_under_sp;
        assert_eq!(
            (read.traits, read.fitted, read.residual),
            (preset.traits, preset.fitted, preset.residual),
            "{name}"
        );
    }
}

/// Each name of the flat form is in the file of the test above, or in one of these tables.
#[test]
fn every_name_is_read() {
    let mut all: Table = toml::from_str(include_str!("facts.toml")).unwrap();
    let rare = "saved = { norm = 2.0, activation = 1.0, loss = 2.0, partitioned = 1.0 }";
    let saved = traits("", rare).unwrap().saved;
    assert_eq!((saved.norm, saved.activation, saved.loss, saved.partitioned_inputs), (2.0, 1.0, Some(2.0), true));
    all.insert("rare".to_string(), Value::Table(toml::from_str(rare).unwrap()));
    for alias in ALIASES {
        assert!(all.values().any(|facts| get(facts.as_table().unwrap(), alias.old).is_some()), "{}", alias.old);
    }
}

/// A boolean changes its part of a choice; the other part is that of the file below.
#[test]
fn the_other_part_of_a_choice_is_inherited() {
    let graphs = |base: &str, facts: &str| traits(base, facts).unwrap().launch.graphs;
    let both = "graphs = true\nexpert_graphs = true\n";
    assert_eq!(graphs("graphs = true", "expert_graphs = true"), Graphs::All);
    assert_eq!([graphs(both, "expert_graphs = false"), graphs(both, "graphs = false")], [Graphs::Dense, Graphs::None]);
    assert_eq!(graphs("", "expert_graphs = true"), Graphs::None);
    let capacity = |base: &str, facts: &str| traits(base, facts).unwrap().experts.capacity;
    assert_eq!(capacity("drops = true\npads_experts = true", "pads_experts = false"), Capacity::Drops);
    assert_eq!(capacity("drops = true", "pads_experts = true"), Capacity::Pads);
    let hides = traits("hides = [\"tp\"]\nhides_update = true", "hides = [\"dp\"]").unwrap().hides;
    assert_eq!(hides, [Hidden::Dp, Hidden::Update].into_iter().collect());
    let gathers = |base: &str, facts: &str| traits(base, facts).unwrap().zero.gathers;
    assert_eq!(gathers("gathers_each = 0.5", "broadcasts = true"), GatherUpdated::Broadcasts);
    assert_eq!(gathers("gathers_each = 0.5", "gathers_each = 0"), GatherUpdated::Together);
    let whole = traits("pipelines_whole = true", "accumulates_whole = true").unwrap();
    assert_eq!(whole.zero.accumulate, Accumulate::Unsharded);
    let master = traits("precision_aware = true", "pure = true").unwrap().formats.master;
    assert_eq!(master, Master::None);
}

#[test]
fn what_is_wrong_with_it_names_the_place() {
    let error = |facts: &str| traits("", facts).unwrap_err();
    assert_eq!(error("buckets = 1e6"), "unknown field `buckets` in `facts`, did you mean `bucket`?");
    assert_eq!(
        error("[facts.saved]\nropes = 1.0"),
        "unknown field `saved.ropes` in `facts`, did you mean `saved.rope`?"
    );
    assert_eq!(error("graphs = 1"), "`facts.graphs` is 1, expected true or false");
    assert!(error("[facts.saved]\nunread = nan").contains("`facts.saved.unread` is NaN, expected bytes of an element"));
    assert!(error("hides = [\"pp\"]").contains("`pp` is none of tp"));
}
