//! Stacks with single properties changed: `megatron-core-2025+launch.graphs=none+hides=tp|dp`.

use crate::preset_error::PresetError;
use crate::presets::STACKS;
use crate::stack::Stack;
use ir::catalogue::Code;
use ir::diag::nearest;
use toml::Value;

/// A stack by name or path, and the properties that are changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackExpression<'a> {
    /// Name or path of the stack.
    pub base: &'a str,
    /// Properties by their paths below `[traits]`, with their values.
    changes: Vec<(&'a str, &'a str)>,
}

impl<'a> StackExpression<'a> {
    /// The parts of an expression; a name alone is one without changes.
    pub fn of(text: &'a str) -> StackExpression<'a> {
        // A path may have a plus: changes have an equals sign too.
        let mut base = text;
        let mut changes = Vec::new();
        while let Some((rest, (key, value))) =
            base.rsplit_once('+').and_then(|(rest, last)| Some((rest, last.split_once('=')?)))
        {
            changes.insert(0, (key, value));
            base = rest;
        }
        StackExpression { base, changes }
    }

    /// True if the base is a preset.
    pub fn is_of_preset(&self) -> bool {
        STACKS.iter().any(|preset| preset.name == self.base)
    }

    /// The preset with the changes.
    ///
    /// # Errors
    /// The base is no preset, and as [`StackExpression::applied`].
    pub fn preset(&self) -> Result<Stack, PresetError> {
        self.applied(Stack::find(self.base)?)
    }

    /// The stack with the changes.
    ///
    /// # Errors
    /// There is no property of a path, or it does not take its value.
    pub fn applied(&self, stack: Stack) -> Result<Stack, PresetError> {
        if self.changes.is_empty() {
            return Ok(stack);
        }
        let mut traits = Value::try_from(&stack.traits).map_err(wrong)?;
        for (path, value) in &self.changes {
            let place = place(&mut traits, path)?;
            *place = read(place, value);
        }
        let told = self.changes.iter().map(|(path, value)| format!("{path}={value}")).collect::<Vec<_>>();
        let traits = traits.try_into().map_err(|why| {
            let why: toml::de::Error = why;
            wrong(format!("{}: {}", told.join(", "), why.message()))
        })?;
        let (name, about) = (&stack.name, &stack.about);
        let (name, about) = (format!("{name}+{}", told.join("+")), format!("{about}; with {}", told.join(", ")));
        Stack { name, about, traits, ..stack }.checked()
    }
}

fn wrong(message: impl ToString) -> PresetError {
    PresetError::wrong(Code::BadStack, message.to_string())
}

/// The property of a path.
///
/// # Errors
/// There is none.
fn place<'v>(traits: &'v mut Value, path: &str) -> Result<&'v mut Value, PresetError> {
    let mut place = traits;
    for name in path.split('.') {
        let known: Vec<String> = place.as_table().map(|table| table.keys().cloned().collect()).unwrap_or_default();
        if !known.iter().any(|key| key == name) {
            let near = nearest(name, known.iter().map(String::as_str));
            let near =
                near.map_or_else(|| format!("one of {}", known.join(", ")), |near| format!("did you mean `{near}`?"));
            return Err(wrong(format!("stacks have no property `{path}` ({near})")));
        }
        place = &mut place[name];
    }
    Ok(place)
}

/// A value of the kind that the property has: a list by `|`, a number, true or false, or a word.
fn read(kind: &Value, text: &str) -> Value {
    let parsed = match kind {
        Value::Array(_) => {
            Some(Value::Array(text.split('|').filter(|word| !word.is_empty()).map(Value::from).collect()))
        }
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Float(_) => text.parse().ok().map(Value::Float),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enum_set::EnumSet;
    use crate::traits::{Graphs, Hidden};

    fn changed(text: &str) -> Result<Stack, PresetError> {
        StackExpression::of(text).preset()
    }

    #[test]
    fn properties_are_changed_by_their_paths() {
        let stack = changed("megatron-core-2026+launch.graphs=none+hides=tp|dp").unwrap();
        assert_eq!(
            (stack.traits.launch.graphs, stack.traits.hides),
            (Graphs::None, [Hidden::Tp, Hidden::Dp].into_iter().collect())
        );
        assert_eq!(stack.name, "megatron-core-2026+launch.graphs=none+hides=tp|dp");
        assert_eq!(changed("megatron-core-2025+hides=").unwrap().traits.hides, EnumSet::default());
        assert_eq!(changed("fsdp-eager+network.hop=1e-5").unwrap().traits.network.hop, 1e-5);
        assert_eq!(StackExpression::of("a+b/c.toml").base, "a+b/c.toml");
    }

    #[test]
    fn wrong_changes_are_named() {
        let wrong = |text: &str| changed(text).unwrap_err().to_string();
        assert!(wrong("fsdp-eager+launch.graph=none").contains("did you mean `graphs`?"));
        assert!(wrong("fsdp-eager+launch.graphs=some").contains("unknown variant `some`"));
        assert!(wrong("fsdp-eager+network.hop=-1").contains("network.hop"));
        assert!(wrong("fsdp-egaer+hides=").contains("`fsdp-egaer`"));
    }
}
