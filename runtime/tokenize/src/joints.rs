//! Neighbours that a pattern may join: two characters that can follow each other in one match.
//!
//! A pattern is read as the automaton of its positions (Glushkov: The abstract theory of automata, 1961): which characters may begin a
//! match, and which may follow which. Between two characters that it does not join, no match goes on. If no lookahead sees the second one
//! from there either, the matches of a text are those of its two sides, wherever it is cut so.

use super::lookahead::{FIRST_MARK, Marked};
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Repetition};

/// The most positions of a pattern. Those of tokenizers have some dozens; the pairs of positions grow with their square.
const MOST_POSITIONS: usize = 1024;

/// The neighbours that a pattern may join.
#[derive(Debug)]
pub(crate) struct Joints {
    positions: Vec<ClassUnicode>,
    /// Pairs of positions that may follow each other.
    follow: Vec<(usize, usize)>,
    first: Vec<usize>,
    /// A match begins at these whatever is next to them.
    sure: ClassUnicode,
    lookaheads: Vec<Lookahead>,
}

/// A lookahead of a pattern.
#[derive(Debug)]
struct Lookahead {
    /// Its own pattern.
    joints: Joints,
    /// The positions that may be before it.
    after: Vec<usize>,
    /// True if it may be where a match begins.
    is_first: bool,
}

impl Joints {
    /// Reads a pattern; none if it may match no text at all, or has a part that is not understood.
    pub(crate) fn of(pattern: &str) -> Option<Joints> {
        let (joints, is_nullable) = Joints::read(pattern, true)?;
        (!is_nullable).then_some(joints)
    }

    /// The same of a text that stands for itself.
    pub(crate) fn literal(text: &str) -> Option<Joints> {
        Joints::of(&regex_syntax::escape(text))
    }

    fn read(pattern: &str, may_look: bool) -> Option<(Joints, bool)> {
        let marked = Marked::of(pattern).filter(|marked| may_look || marked.ahead.is_empty())?;
        let hir = regex_syntax::parse(&marked.pattern).ok()?;
        let mut builder = Builder::default();
        let whole = builder.part(&hir)?;
        let sure = builder.sure(&hir);
        let marks = builder.marks.clone();
        let lookahead = |(number, text): (usize, &String)| {
            let (joints, _) = Joints::read(text, false)?;
            let own = |position: usize| marks[position] == Some(number);
            let after = builder.follow.iter().filter(|(_, to)| own(*to)).map(|(from, _)| *from).collect();
            Some(Lookahead { joints, after, is_first: whole.first.iter().any(|&first| own(first)) })
        };
        let lookaheads = marked.ahead.iter().enumerate().map(lookahead).collect::<Option<Vec<_>>>()?;
        let Builder { positions, follow, .. } = builder;
        Some((Joints { positions, follow, first: whole.first, sure, lookaheads }, whole.is_nullable))
    }

    /// True if a match may have `x` and behind it `y`, or may depend on `y` where it ends with `x`.
    pub(crate) fn joins(&self, x: char, y: char) -> bool {
        let is_pair = |&(from, to): &(usize, usize)| self.has(from, x) && self.has(to, y);
        self.follow.iter().any(is_pair)
            || self.lookaheads.iter().any(|ahead| {
                let is_there = ahead.is_first || ahead.after.iter().any(|&from| self.has(from, x));
                ahead.joints.joins(x, y) || is_there && ahead.joints.begins(y)
            })
    }

    /// True if a match may begin with a character.
    fn begins(&self, y: char) -> bool {
        self.first.iter().any(|&first| self.has(first, y))
    }

    /// True if every text in which `y` is not within a match has one that begins with it.
    pub(crate) fn takes(&self, y: char) -> bool {
        has(&self.sure, y)
    }

    fn has(&self, position: usize, char: char) -> bool {
        has(&self.positions[position], char)
    }
}

/// True if a class has a character.
pub(crate) fn has(class: &ClassUnicode, char: char) -> bool {
    let ranges = class.ranges();
    let at = ranges.partition_point(|range| range.end() < char);
    ranges.get(at).is_some_and(|range| range.start() <= char)
}

/// A part of a pattern.
struct Part {
    is_nullable: bool,
    first: Vec<usize>,
    last: Vec<usize>,
}

#[derive(Default)]
struct Builder {
    positions: Vec<ClassUnicode>,
    /// The number of the lookahead that a position stands for.
    marks: Vec<Option<usize>>,
    follow: Vec<(usize, usize)>,
}

impl Builder {
    fn part(&mut self, hir: &Hir) -> Option<Part> {
        match hir.kind() {
            HirKind::Empty => Some(Part { is_nullable: true, first: Vec::new(), last: Vec::new() }),
            // Where a line or a word ends depends on what is around it.
            HirKind::Look(_) => None,
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).ok()?;
                let parts = text.chars().map(|char| self.position(one(char), mark_of(char)));
                let parts = parts.collect::<Option<Vec<_>>>()?;
                Some(self.row(parts))
            }
            HirKind::Class(Class::Unicode(class)) => self.position(class.clone(), None),
            HirKind::Class(Class::Bytes(class)) => self.position(class.to_unicode_class()?, None),
            HirKind::Capture(capture) => self.part(&capture.sub),
            HirKind::Repetition(repetition) => self.repeated(repetition),
            HirKind::Concat(parts) => {
                let parts = parts.iter().map(|part| self.part(part)).collect::<Option<Vec<_>>>()?;
                Some(self.row(parts))
            }
            HirKind::Alternation(parts) => {
                let mut any = Part { is_nullable: false, first: Vec::new(), last: Vec::new() };
                for part in parts {
                    let part = self.part(part)?;
                    any.is_nullable |= part.is_nullable;
                    any.first.extend(part.first);
                    any.last.extend(part.last);
                }
                Some(any)
            }
        }
    }

    fn position(&mut self, class: ClassUnicode, mark: Option<usize>) -> Option<Part> {
        let number = self.positions.len();
        self.positions.push(if mark.is_some() { ClassUnicode::empty() } else { class });
        self.marks.push(mark);
        (number < MOST_POSITIONS).then(|| Part { is_nullable: false, first: vec![number], last: vec![number] })
    }

    /// Parts that follow each other.
    fn row(&mut self, parts: Vec<Part>) -> Part {
        let mut row = Part { is_nullable: true, first: Vec::new(), last: Vec::new() };
        for part in parts {
            self.join(&row.last, &part.first);
            if row.is_nullable {
                row.first.extend(&part.first);
            }
            if !part.is_nullable {
                row.last.clear();
            }
            row.last.extend(part.last);
            row.is_nullable &= part.is_nullable;
        }
        row
    }

    fn repeated(&mut self, repetition: &Repetition) -> Option<Part> {
        let mut part = self.part(&repetition.sub)?;
        if repetition.max != Some(1) {
            self.join(&part.last.clone(), &part.first.clone());
        }
        part.is_nullable |= repetition.min == 0;
        Some(part)
    }

    fn join(&mut self, last: &[usize], first: &[usize]) {
        last.iter().for_each(|&from| self.follow.extend(first.iter().map(|&to| (from, to))));
    }

    /// Characters that a part matches alone, whatever follows: the rest of it can be empty there.
    fn sure(&self, hir: &Hir) -> ClassUnicode {
        match hir.kind() {
            HirKind::Literal(literal) => {
                let mut chars = std::str::from_utf8(&literal.0).unwrap_or_default().chars();
                match (chars.next(), chars.next()) {
                    (Some(char), None) if mark_of(char).is_none() => one(char),
                    _ => ClassUnicode::empty(),
                }
            }
            HirKind::Class(Class::Unicode(class)) => class.clone(),
            HirKind::Capture(capture) => self.sure(&capture.sub),
            HirKind::Repetition(repetition) if repetition.min <= 1 && repetition.max != Some(0) => {
                self.sure(&repetition.sub)
            }
            HirKind::Alternation(parts) => parts.iter().fold(ClassUnicode::empty(), |mut all, part| {
                all.union(&self.sure(part));
                all
            }),
            HirKind::Concat(parts) => self.sure_of_row(parts),
            _ => ClassUnicode::empty(),
        }
    }

    fn sure_of_row(&self, parts: &[Hir]) -> ClassUnicode {
        let mut all = ClassUnicode::empty();
        // Parts before may take the character for themselves, and not give it back.
        let mut taken = ClassUnicode::empty();
        let is_skipped = |part: &Hir| part.properties().minimum_len() == Some(0) && !looks(part);
        for (at, part) in parts.iter().enumerate() {
            if parts.iter().enumerate().all(|(other, part)| other == at || is_skipped(part)) {
                let mut own = self.sure(part);
                own.difference(&taken);
                all.union(&own);
            }
            taken.union(&begins(part));
        }
        all
    }
}

/// Characters with which a part may begin.
fn begins(hir: &Hir) -> ClassUnicode {
    let mut builder = Builder::default();
    let mut all = ClassUnicode::empty();
    let first = builder.part(hir).map(|part| part.first).unwrap_or_default();
    first.iter().for_each(|&position| all.union(&builder.positions[position]));
    all
}

/// True if a part has a lookahead.
fn looks(hir: &Hir) -> bool {
    let is_mark = |literal: &[u8]| {
        std::str::from_utf8(literal).is_ok_and(|text| text.chars().any(|char| mark_of(char).is_some()))
    };
    match hir.kind() {
        HirKind::Literal(literal) => is_mark(&literal.0),
        _ => hir.kind().subs().iter().any(looks),
    }
}

fn one(char: char) -> ClassUnicode {
    ClassUnicode::new([ClassUnicodeRange::new(char, char)])
}

/// The number of the lookahead that a character stands for.
fn mark_of(char: char) -> Option<usize> {
    u32::from(char).checked_sub(u32::from(FIRST_MARK)).map(|number| number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pattern of GPT-2.
    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

    #[test]
    fn words_join_what_they_may_have() {
        let joints = Joints::of(GPT2).unwrap();
        for (x, y) in
            [('a', 'b'), (' ', 'a'), ('\'', 's'), ('\'', 'r'), ('1', '2'), (' ', '.'), ('\n', '\n'), ('l', 'l')]
        {
            assert!(joints.joins(x, y), "{x:?} {y:?}");
        }
        for (x, y) in
            [('a', ' '), ('a', '1'), ('1', 'a'), ('a', '.'), ('.', 'a'), ('a', '\n'), ('.', ' '), ('字', '\n')]
        {
            assert!(!joints.joins(x, y), "{x:?} {y:?}");
        }
        // A run of spaces leaves its last one to a word.
        assert!(joints.joins('\n', 'a') && joints.joins('\n', '.'));
        assert!(['a', ' ', '\n', '7', '.', '字'].into_iter().all(|char| joints.takes(char)));
    }

    #[test]
    fn a_character_is_sure_if_the_rest_may_be_empty() {
        let joints = Joints::of(r"[^\r\n\p{L}]?\p{L}+|a1|x?1?2").unwrap();
        assert!(joints.takes('b') && joints.takes('2') && !joints.takes('1') && !joints.takes(' '));
        let possessive = Joints::of(r"[ab]?+b").unwrap();
        assert!(!possessive.takes('b'), "the first part may keep it");
        assert!(!Joints::of(r"a(?=b)").unwrap().takes('a'));
    }

    #[test]
    fn lookaheads_see_what_is_behind_a_match() {
        let joints = Joints::of(r"\d(?=-\w)|(?!q)\w").unwrap();
        assert!(joints.joins('1', '-') && joints.joins('-', 'a') && joints.joins('.', 'q'));
        assert!(!joints.joins('1', '.') && !joints.joins('.', '1'));
    }

    #[test]
    fn what_is_not_understood_has_no_joints() {
        for pattern in [r"a*", r"^a", r"a\b", r"(a)\1", r"(?<=a)b", r"a(?=(?=b)c)", r"\G"] {
            assert!(Joints::of(pattern).is_none(), "{pattern}");
        }
        assert!(Joints::literal(" {2}").unwrap().joins('{', '2'));
    }
}
