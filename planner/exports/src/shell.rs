//! Words of a shell script, as far as flags need them: quotes, comments, variables and arrays.

use crate::flag_error::FlagError;
use std::collections::BTreeMap;

/// The most characters that variables may expand to: a variable can name itself twice.
const LONGEST: usize = 1 << 20;

/// Splits a script into words, with the variables that it sets. Arrays are read where they stand, so their names expand to nothing. A variable
/// that the script does not set stays as it is written. The word `--` stands where an array or a command ends: flags have no values behind it.
///
/// # Errors
/// A quotation has no end, or variables expand to more than a mebibyte.
pub(crate) fn words(text: &str) -> Result<Vec<String>, FlagError> {
    read(text).map(|reader| reader.words)
}

/// The variables that a script sets, with their last values. A word `name=value` behind a command is one of them too.
///
/// # Errors
/// As [`words`].
pub(crate) fn variables(text: &str) -> Result<BTreeMap<String, String>, FlagError> {
    read(text).map(|reader| reader.variables)
}

fn read(text: &str) -> Result<Reader<'_>, FlagError> {
    let mut reader = Reader { rest: text.chars().peekable(), ..Reader::default() };
    while let Some(character) = reader.rest.next() {
        reader.character(character)?;
        if reader.expanded > LONGEST {
            return Err(FlagError::Text("its variables expand to more than a mebibyte".into()));
        }
    }
    match reader.quote {
        Some(open) => Err(FlagError::Text(format!("the quotation that begins with {open} has no end"))),
        None if reader.arrays > 0 => Err(FlagError::Text("an array has no end: there is a ( without its )".into())),
        None => {
            reader.end();
            Ok(reader)
        }
    }
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    words: Vec<String>,
    /// The word at hand.
    word: Option<String>,
    /// The quotation that is open.
    quote: Option<char>,
    variables: BTreeMap<String, String>,
    /// Arrays that are open.
    arrays: usize,
    /// Characters that variables expanded to.
    expanded: usize,
}

impl Default for Reader<'_> {
    fn default() -> Self {
        let (words, variables) = (Vec::new(), BTreeMap::new());
        Reader { rest: "".chars().peekable(), words, word: None, quote: None, variables, arrays: 0, expanded: 0 }
    }
}

impl Reader<'_> {
    fn character(&mut self, character: char) -> Result<(), String> {
        match (self.quote, character) {
            (Some(open), _) if character == open => self.quote = None,
            (Some('\''), _) => self.push(character),
            (_, '$') => self.variable(),
            (Some(_), '\\') => match self.rest.next_if(|next| "\\\"$\n".contains(*next)) {
                Some('\n') => {}
                escaped => self.push(escaped.unwrap_or('\\')),
            },
            (Some(_), _) => self.push(character),
            (None, '"' | '\'') => {
                self.quote = Some(character);
                self.word.get_or_insert_default();
            }
            (None, '\\') => match self.rest.next() {
                None | Some('\n') => {}
                Some(escaped) => self.push(escaped),
            },
            (None, '#') if self.word.is_none() => drop(self.rest.by_ref().find(|next| *next == '\n')),
            // Parentheses of an array.
            (None, '(') if self.word.as_ref().is_none_or(|word| word.ends_with('=')) => {
                // What stands alone is a subshell, or the arguments of a function.
                self.arrays += usize::from(self.word.is_some());
                self.word = None;
            }
            (None, ')' | ';') => {
                self.end();
                self.arrays = self.arrays.saturating_sub(usize::from(character == ')'));
                self.words.push("--".to_string());
            }
            (None, _) if character.is_whitespace() => self.end(),
            (None, _) => self.push(character),
        }
        Ok(())
    }

    fn push(&mut self, character: char) {
        self.word.get_or_insert_default().push(character);
    }

    /// Ends the word at hand. One that sets a variable is none of the words.
    fn end(&mut self) {
        let Some(word) = self.word.take() else { return };
        let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_name(name.trim_end_matches('+'))) else {
            return self.words.push(word);
        };
        let (name, is_added) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
        let held = self.variables.entry(name.to_string()).or_default();
        if !is_added {
            held.clear();
        }
        held.push_str(value);
    }

    /// Expands what follows a dollar sign.
    fn variable(&mut self) {
        let Some(reference) = self.reference() else { return self.push('$') };
        let (name, default) = match reference.split_once([':', '-', '=']) {
            Some((name, default)) => (name, Some(default.trim_start_matches(['-', '=']).trim_matches(['"', '\'']))),
            None => (reference.as_str(), None),
        };
        if name.ends_with("[@]") || name.ends_with("[*]") {
            self.word = self.word.take().filter(|word| !word.is_empty());
            return;
        }
        let written = format!("${{{reference}}}");
        let value = self.variables.get(name).map(String::as_str).or(default).unwrap_or(&written).to_string();
        self.expanded += value.len();
        if self.quote.is_some() || self.word.as_ref().is_some_and(|word| word.contains('=') && !word.starts_with('-')) {
            self.word.get_or_insert_default().push_str(&value);
            return;
        }
        let mut parts = value.split_whitespace();
        self.word = parts.next().map(|part| self.word.take().unwrap_or_default() + part).or(self.word.take());
        for part in parts {
            self.words.extend(self.word.replace(part.to_string()));
        }
    }

    /// The name of a variable, or what stands between braces.
    fn reference(&mut self) -> Option<String> {
        if self.rest.next_if_eq(&'{').is_some() {
            return Some(self.rest.by_ref().take_while(|next| *next != '}').collect());
        }
        let mut name = String::from(self.rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '_')?);
        while !name.starts_with(|first: char| first.is_ascii_digit())
            && let Some(next) = self.rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '_')
        {
            name.push(next);
        }
        Some(name)
    }
}

/// True if a shell takes this as the name of a variable.
fn is_name(text: &str) -> bool {
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::words;

    #[track_caller]
    fn check(text: &str, wanted: &[&str]) {
        assert_eq!(words(text).unwrap(), wanted, "{text}");
    }

    #[test]
    fn quotes_join_and_comments_end_lines() {
        check("a 'b c' \"d \\\"e\" # f\n--g=\"h i\" \\\n j", &["a", "b c", "d \"e", "--g=h i", "j"]);
        check("--layout='Et*3|t' x#y", &["--layout=Et*3|t", "x#y"]);
        assert!(words("--a 'b").unwrap_err().to_string().contains("begins with '"));
    }

    #[test]
    fn variables_have_their_last_value() {
        check("TP=2; TP=\"4\"\n--tp $TP --pp ${TP} '--cp' '$TP'", &["--", "--tp", "4", "--pp", "4", "--cp", "$TP"]);
        check("SEQ=${2:-8192} MORE=\"${SEQ}\"\n--seq $MORE", &["--seq", "8192"]);
        check("--tp $UNSET --pp=${ALSO}", &["--tp", "${UNSET}", "--pp=${ALSO}"]);
    }

    #[test]
    fn flags_in_a_variable_are_words() {
        let script =
            "ARGS=\"\n  --tp 4 \\\n  --bf16\n\"\nARGS+=' --pp 2'\ntorchrun train.py $ARGS --seq=${LENGTH:-\"16\"}";
        check(script, &["torchrun", "train.py", "--tp", "4", "--bf16", "--pp", "2", "--seq=16"]);
        check("ARGS=\"--name 'x'\"\nrun \"$ARGS\"", &["run", "--name 'x'"]);
    }

    #[test]
    fn an_array_is_read_where_it_stands() {
        check(
            "ARGS=(\n --tp 2 # two\n)\nARGS+=( --sp )\nrun \"${ARGS[@]}\" last",
            &["--tp", "2", "--", "--sp", "--", "run", "last"],
        );
    }

    #[test]
    fn variables_that_double_end() {
        let script = "A=aaaaaaaa\n".to_string() + &"A=$A$A\n".repeat(40);
        assert!(words(&script).unwrap_err().to_string().contains("mebibyte"));
    }
}
