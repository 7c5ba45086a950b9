//! Normalizers of a tokenizer, which change a text before it is parted into words, as far as they treat the two sides of a place apart.

use super::joints::{Joints, has};
use regex_syntax::hir::{Class, ClassUnicode, HirKind};
use std::sync::LazyLock;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// Characters whose kind all tables of Unicode in use agree on: those of version 6.0.
static SETTLED: LazyLock<ClassUnicode> =
    LazyLock::new(|| match regex_syntax::parse(r"\p{Age=6.0}").map(|hir| hir.into_kind()) {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        _ => ClassUnicode::empty(),
    });

/// True if a character may be the last one before a cut: it is settled, and has no case of several characters.
pub(crate) fn is_known(x: char) -> bool {
    is_anchor(x)
        || x.is_alphanumeric() && has(&SETTLED, x) && x.to_lowercase().count() == 1 && x.to_uppercase().count() == 1
}

/// True if a character may be the first one behind a cut: in all forms of Unicode it joins nothing before it.
pub(crate) fn is_anchor(y: char) -> bool {
    matches!(y, ' ' | '\n' | '!'..='~' | '\u{2581}' | '\u{3001}' | '\u{3002}' | '\u{3400}'..='\u{4db5}' | '\u{4e00}'..='\u{9fcb}' | '\u{ff01}'..='\u{ff5e}')
}

/// A normalizer.
#[derive(Debug)]
struct Rule {
    normalizer: NormalizerWrapper,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// It changes each character alone, or adds to the start of a text.
    Apart,
    /// It changes characters with those that are next to them, but for an anchor.
    Anchored,
    /// It takes spaces off the ends of a text.
    Strips,
    /// It replaces what matches a pattern, by nothing or by something.
    Replaces { joints: Joints, deletes: bool },
}

/// The normalizers of a tokenizer, in their order.
#[derive(Debug)]
pub(crate) struct Normalizers(Vec<Rule>);

/// The two characters at a place of a text, or what became of them.
pub(crate) type Neighbours = (char, char);

impl Normalizers {
    /// Reads normalizers; none if one is not understood.
    pub(crate) fn of(normalizer: Option<&NormalizerWrapper>) -> Option<Normalizers> {
        let mut rules = Vec::new();
        normalizer.map_or(Some(()), |normalizer| add(normalizer, &mut rules))?;
        Some(Normalizers(rules))
    }

    /// The characters around the place between two texts, as they become. None if its sides are not treated apart.
    pub(crate) fn apart(&self, before: &str, behind: &str) -> Option<Neighbours> {
        let (mut left, mut both) = (before.to_string(), [before, behind].concat());
        let (mut x, mut y) = neighbours(&left, &both)?;
        // What is before an anchor does not change what is behind it, so that the last character is that of the whole text.
        if !self.0.is_empty() && !left.chars().any(is_anchor) {
            return None;
        }
        for rule in &self.0 {
            let is_apart = match &rule.kind {
                Kind::Apart => true,
                Kind::Anchored => is_anchor(y),
                Kind::Strips => !x.is_whitespace(),
                Kind::Replaces { joints, .. } => !joints.joins(x, y),
            };
            if !is_apart {
                return None;
            }
            (left, both) = (changed(&rule.normalizer, &left)?, changed(&rule.normalizer, &both)?);
            let now = neighbours(&left, &both)?;
            if matches!(rule.kind, Kind::Replaces { deletes: true, .. }) && now != (x, y) {
                return None;
            }
            (x, y) = now;
        }
        Some((x, y))
    }
}

/// The last character of a text, and the first that another one has behind it.
fn neighbours(left: &str, both: &str) -> Option<Neighbours> {
    Some((left.chars().next_back()?, both.strip_prefix(left)?.chars().next()?))
}

/// A text as a normalizer changes it; none if it refuses.
pub(crate) fn changed(normalizer: &NormalizerWrapper, text: &str) -> Option<String> {
    let mut text = NormalizedString::from(text);
    normalizer.normalize(&mut text).ok()?;
    Some(text.get().to_string())
}

fn add(normalizer: &NormalizerWrapper, rules: &mut Vec<Rule>) -> Option<()> {
    let kind = match normalizer {
        NormalizerWrapper::Sequence(all) => {
            return all.as_ref().iter().try_for_each(|one| add(one, rules).ok_or(())).ok();
        }
        NormalizerWrapper::Lowercase(_)
        | NormalizerWrapper::StripAccents(_)
        | NormalizerWrapper::Nmt(_)
        | NormalizerWrapper::Prepend(_)
        | NormalizerWrapper::ByteLevel(_) => Kind::Apart,
        NormalizerWrapper::NFC(_)
        | NormalizerWrapper::NFD(_)
        | NormalizerWrapper::NFKC(_)
        | NormalizerWrapper::NFKD(_)
        | NormalizerWrapper::BertNormalizer(_)
        | NormalizerWrapper::Precompiled(_) => Kind::Anchored,
        NormalizerWrapper::StripNormalizer(_) => Kind::Strips,
        NormalizerWrapper::Replace(_) => replaces(normalizer)?,
    };
    rules.push(Rule { normalizer: normalizer.clone(), kind });
    Some(())
}

/// Reads a replacement, whose pattern the library gives as JSON alone.
fn replaces(normalizer: &NormalizerWrapper) -> Option<Kind> {
    let replace = serde_json::to_value(normalizer).ok()?;
    let pattern = &replace["pattern"];
    let joints = match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
        (Some(text), _) => Joints::literal(text)?,
        (None, Some(pattern)) => Joints::of(pattern)?,
        (None, None) => return None,
    };
    Some(Kind::Replaces { joints, deletes: replace["content"].as_str()?.is_empty() })
}
