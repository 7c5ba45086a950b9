//! Patterns of tokenizers without their lookaheads, which stand in them as marks.
//!
//! Tokenizers write patterns for Oniguruma, and this crate reads them with `regex-syntax`. What the two read in different ways, or what
//! looks at more than the text ahead, has no reading here.

/// The first of the characters that stand for lookaheads. Text has none of these: they are for private use.
pub(crate) const FIRST_MARK: char = '\u{10ff00}';

/// The most lookaheads of a pattern.
const MOST_MARKS: usize = 64;

/// A pattern whose lookaheads are marks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Marked {
    /// The pattern. A mark is optional, since a lookahead takes no text.
    pub(crate) pattern: String,
    /// The patterns of the lookaheads, in the order of their marks.
    pub(crate) ahead: Vec<String>,
}

impl Marked {
    /// Takes the lookaheads out of a pattern; none if it has what is not read in the same way by both.
    pub(crate) fn of(pattern: &str) -> Option<Marked> {
        let mut reader = Reader { rest: pattern, marked: Marked { pattern: String::new(), ahead: Vec::new() } };
        // Options at the start hold for the whole pattern.
        if let Some(rest) = pattern.strip_prefix("(?i)") {
            reader.marked.pattern.push_str("(?i)");
            reader.rest = rest;
        }
        while !reader.rest.is_empty() {
            reader.step()?;
        }
        Some(reader.marked)
    }
}

struct Reader<'a> {
    rest: &'a str,
    marked: Marked,
}

impl Reader<'_> {
    /// Reads a group's begin, a class, or a character.
    fn step(&mut self) -> Option<()> {
        if self.rest.starts_with('[') {
            let class = self.rest.get(..class_end(self.rest)?)?;
            // Such classes are those of ASCII to one of the two.
            return if class.contains("[:") { None } else { self.keep(class.len()) };
        }
        if self.rest.starts_with("(?") {
            return self.group();
        }
        let first = self.rest.chars().next()?;
        let escaped = if first == '\\' { self.rest.chars().nth(1)?.len_utf8() } else { 0 };
        self.keep(first.len_utf8() + escaped)
    }

    fn group(&mut self) -> Option<()> {
        for (begin, kept) in [("(?:", "(?:"), ("(?i:", "(?i:"), ("(?>", "(?:")] {
            if let Some(rest) = self.rest.strip_prefix(begin) {
                self.marked.pattern.push_str(kept);
                self.rest = rest;
                return Some(());
            }
        }
        let inner = self.rest.strip_prefix("(?=").or_else(|| self.rest.strip_prefix("(?!"))?;
        let end = group_end(inner)?;
        let number = self.marked.ahead.len();
        let mark = char::from_u32(u32::from(FIRST_MARK) + number as u32).filter(|_| number < MOST_MARKS)?;
        self.marked.ahead.push(inner[..end].to_string());
        self.marked.pattern.push_str(&format!("(?:{mark})?"));
        self.rest = &inner[end + 1..];
        // What is repeated without taking text has no reading.
        if self.rest.starts_with(['?', '*', '+', '{']) { None } else { Some(()) }
    }

    fn keep(&mut self, bytes: usize) -> Option<()> {
        self.marked.pattern.push_str(self.rest.get(..bytes)?);
        self.rest = &self.rest[bytes..];
        Some(())
    }
}

/// The bytes of the class that a text begins with. Classes may be in classes.
fn class_end(text: &str) -> Option<usize> {
    let (mut depth, mut chars) = (0, text.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => drop(chars.next()?),
            '[' => depth += 1,
            ']' if depth == 1 => return Some(at + 1),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The place of the bracket that closes the group in which a text begins.
fn group_end(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0, 0);
    while let Some(char) = text[at..].chars().next() {
        match char {
            '\\' => at += text[at + 1..].chars().next()?.len_utf8(),
            '[' => {
                at += class_end(&text[at..])?;
                continue;
            }
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
        at += char.len_utf8();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookaheads_become_marks() {
        let marked = Marked::of(r"(?i:'s)|[^)\]([a]]+|\s+(?!\S)|(?>x(?=[)]\)y))\(?").unwrap();
        assert_eq!(marked.ahead, [r"\S", r"[)]\)y"]);
        let marks = ["\u{10ff00}", "\u{10ff01}"];
        let want = format!(r"(?i:'s)|[^)\]([a]]+|\s+(?:{})?|(?:x(?:{})?)\(?", marks[0], marks[1]);
        assert_eq!(marked.pattern, want);
    }

    #[test]
    fn what_has_two_readings_has_none() {
        for pattern in [r"(?<=a)b", r"(?<!a)b", "(?m:.)", "a(?i)b", "[[:alpha:]]", "(?=a)+b", "(?=a", "[a", "\\"] {
            assert_eq!(Marked::of(pattern), None, "{pattern}");
        }
    }
}
