//! HTML pages that load no external resource.

use support::one_line::one_line;

const SHELL: &str = include_str!("html/shell.html");

/// A page: its title as plain text, its style as CSS, and its body as HTML.
pub fn page(title: &str, style: &str, body: &str) -> String {
    filled(SHELL, &[("title", &escaped(title)), ("style", style), ("body", body)])
}

/// A text with its marks `{{name}}` replaced by the parts of these names. A replacement is not searched for marks, and a
/// mark that no part has stays.
pub fn filled(text: &str, parts: &[(&str, &str)]) -> String {
    let mut whole = String::with_capacity(text.len() + parts.iter().map(|(_, part)| part.len()).sum::<usize>());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        whole.push_str(before);
        let part = after.split_once("}}").and_then(|(name, after)| {
            let (_, part) = parts.iter().find(|part| part.0 == name)?;
            Some((part, after))
        });
        let (part, after) = part.unwrap_or((&"{{", after));
        whole.push_str(part);
        rest = after;
    }
    whole + rest
}

/// Text with the special characters of HTML and SVG escaped, and on one line: XML has no control characters.
pub fn escaped(text: &str) -> String {
    one_line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_replaced_once() {
        let filled = filled("{{a}} {{ {{b}} {{c}}", &[("a", "{{b}}"), ("b", "2")]);
        assert_eq!(filled, "{{b}} {{ 2 {{c}}");
    }

    #[test]
    fn a_title_cannot_end_its_element() {
        let page = page("</title>\"&", "p { }", "<p>body</p>\n");
        assert!(page.contains("<title>&lt;/title&gt;&quot;&amp;</title>"), "{page}");
        assert!(page.contains("p { }</style>") && page.ends_with("<body>\n<p>body</p>\n</body>\n</html>\n"), "{page}");
    }
}
