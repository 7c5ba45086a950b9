//! Words of suggested commands, as a POSIX shell takes them.

use std::ffi::OsStr;

/// A word or a path for a shell: as it is if no shell reads it in another way, else between single quotes.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref().to_string_lossy();
    if !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "/._-+:@%,=".contains(c)) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let cases = [
            ("runs/a-1.5", "runs/a-1.5"),
            ("tp=2,dp=4", "tp=2,dp=4"),
            ("tp<=8,zero=1|3", "'tp<=8,zero=1|3'"),
            ("my runs/a", "'my runs/a'"),
            ("it's", r"'it'\''s'"),
            ("a;b", "'a;b'"),
            ("$(x)\n", "'$(x)\n'"),
            ("~", "'~'"),
            ("", "''"),
        ];
        for (word, text) in cases {
            assert_eq!(quoted(word), text);
        }
    }
}
