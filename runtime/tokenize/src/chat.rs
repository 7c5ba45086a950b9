//! Chat templates: conversations as the text that a model reads, and what the assistant says in it.
//!
//! A template is Jinja, as `transformers` renders it. Turns of the assistant are its `{% generation %}` blocks. Where it has none, a turn is what
//! the template adds to the messages before it, which it must render alike whatever follows them.

use super::error::Error;
use super::example_error::{ExampleError, TemplateError};
use super::python_json::to_json;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, ErrorKind, context};
use serde_json::Value as Json;
use std::ops::Range;
use std::path::{Path, PathBuf};
use support::files;

/// No template or configuration of a tokenizer is larger.
const MOST_BYTES: u64 = 1 << 26;

/// The begin and the end of what the assistant says, while a template is rendered: these are no characters of texts.
const BEGIN: char = '\u{fdd0}';
const END: char = '\u{fdd1}';

/// Tokens of a tokenizer's configuration that templates name.
const SPECIAL: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// A text of which parts count in the loss.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MarkedText {
    pub(crate) text: String,
    /// The bytes of these parts, in order.
    pub(crate) counted: Vec<Range<usize>>,
}

/// The chat template of a model.
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    /// True if blocks of the template say what the assistant says.
    has_blocks: bool,
}

/// A conversation.
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Value>,
    /// Messages that only ask: turns of the assistant among them do not count.
    pub(crate) asked: usize,
    pub(crate) tools: Value,
}

impl Conversation {
    /// The numbers of the assistant's messages.
    fn turns(&self) -> Vec<usize> {
        let messages = self.messages.iter().enumerate();
        let said = messages
            .filter(|(_, message)| message.get_attr("role").is_ok_and(|role| role.as_str() == Some("assistant")));
        said.map(|(at, _)| at).collect()
    }
}

impl ChatTemplate {
    /// Reads a template: that of a file, or of a tokenizer's folder. None if the folder has none.
    ///
    /// # Errors
    /// A file cannot be read, or is no template.
    pub(crate) fn open(named: Option<&Path>, tokenizer: &Path) -> Result<Option<ChatTemplate>, Error> {
        let folder = if tokenizer.is_dir() { tokenizer } else { tokenizer.parent().unwrap_or(Path::new("")) };
        let path = folder.join("tokenizer_config.json");
        let config = match path.is_file() {
            true => serde_json::from_str(&read(&path)?).map_err(|why| invalid(&path, why))?,
            false => Json::Null,
        };
        let beside = Some(folder.join("chat_template.jinja")).filter(|path| path.is_file());
        let (path, source) = match named.map(Path::to_path_buf).or(beside) {
            Some(path) => (path.clone(), read(&path)?),
            None => match default_template(&config["chat_template"]) {
                Some(source) => (path, source.to_string()),
                None => return Ok(None),
            },
        };
        ChatTemplate::of(&source, &config).map(Some).map_err(|why| invalid(&path, why))
    }

    /// A template with the tokens of a tokenizer's configuration.
    fn of(source: &str, config: &Json) -> Result<ChatTemplate, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(TemplateError::from)?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raised);
        environment.add_filter("tojson", json_text);
        environment.add_filter("generation", |text: String| format!("{BEGIN}{text}{END}"));
        let (source, has_blocks) = with_filters(source);
        environment.add_template_owned("chat", source).map_err(TemplateError::from)?;
        for (name, token) in SPECIAL.iter().filter_map(|&name| Some((name, token_text(&config[name])?))) {
            environment.add_global(name, token.to_string());
        }
        Ok(ChatTemplate { environment, has_blocks })
    }

    /// The text of a conversation, of which what the assistant says counts.
    ///
    /// # Errors
    /// The assistant says nothing, or the template refuses the conversation.
    pub(crate) fn render(&self, conversation: &Conversation) -> Result<MarkedText, ExampleError> {
        let turns = conversation.turns();
        if turns.iter().all(|&at| at < conversation.asked) {
            return Err(ExampleError::NoAssistant);
        }
        let count = conversation.messages.len();
        let whole = self.text(conversation, count, Prompt::Without)?;
        if self.has_blocks {
            return marked(&whole, turns.iter().filter(|&&at| at < conversation.asked).count());
        }
        let counted = turns.into_iter().filter(|&at| at >= conversation.asked);
        let counted = counted.map(|at| self.turn(conversation, at, &whole)).collect::<Result<_, _>>()?;
        Ok(MarkedText { text: whole, counted })
    }

    /// The bytes of a message of the assistant in the text of all.
    fn turn(&self, conversation: &Conversation, at: usize, whole: &str) -> Result<Range<usize>, ExampleError> {
        let before = self.text(conversation, at, Prompt::With)?;
        let after = self.text(conversation, at + 1, Prompt::Without)?;
        if !whole.starts_with(&after) || !after.starts_with(&before) {
            return Err(ExampleError::Differs { number: at + 1 });
        }
        Ok(before.len()..after.len())
    }

    /// The text of the first messages.
    fn text(&self, conversation: &Conversation, count: usize, prompt: Prompt) -> Result<String, ExampleError> {
        let Conversation { messages, tools, .. } = conversation;
        let given = context! {
            messages => &messages[..count],
            tools => tools,
            add_generation_prompt => prompt == Prompt::With,
        };
        self.environment
            .get_template("chat")
            .and_then(|template| template.render(given))
            .map_err(|why| ExampleError::Refused(why.into()))
    }
}

/// The prompt for the assistant's next turn behind the messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prompt {
    With,
    Without,
}

/// The text without the marks of what the assistant says, of which the first `asked` parts do not count.
fn marked(text: &str, asked: usize) -> Result<MarkedText, ExampleError> {
    let (mut plain, mut counted, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let Some((own, behind)) = behind.split_once(END) else { break };
        plain += before;
        counted.push(plain.len()..plain.len() + own.len());
        plain += own;
        rest = behind;
    }
    plain += rest;
    if plain.contains([BEGIN, END]) {
        return Err(ExampleError::Marks);
    }
    counted.drain(..asked.min(counted.len()));
    counted.retain(|part| !part.is_empty());
    if counted.is_empty() {
        return Err(ExampleError::EmptyBlocks);
    }
    Ok(MarkedText { text: plain, counted })
}

/// A template in which `{% generation %}` blocks are those of a filter, and whether it has any.
fn with_filters(source: &str) -> (String, bool) {
    let (mut text, mut rest, mut has_blocks) = (String::new(), source, false);
    while let Some(begin) = rest.find("{%") {
        let Some(length) = rest[begin..].find("%}") else { break };
        let tag = &rest[begin..begin + length];
        let name = tag[2..].trim_matches(|char: char| char.is_whitespace() || "+-".contains(char));
        text += &rest[..begin];
        text += &match name {
            "generation" => tag.replace("generation", "filter generation"),
            "endgeneration" => tag.replace("endgeneration", "endfilter"),
            _ => tag.to_string(),
        };
        has_blocks |= name == "generation";
        rest = &rest[begin + length..];
    }
    (text + rest, has_blocks)
}

/// The template that a tokenizer's configuration has: one, or that of the name `default`.
fn default_template(templates: &Json) -> Option<&str> {
    let named = templates.as_array().into_iter().flatten().find(|template| template["name"] == "default");
    templates.as_str().or_else(|| named?["template"].as_str())
}

/// The text of a token, which may stand with its properties.
fn token_text(token: &Json) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}

fn raised(why: String) -> Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, why))
}

/// The JSON of a value as Python writes it, in which nothing is escaped for web pages.
fn json_text(value: Value, options: Kwargs) -> Result<Value, minijinja::Error> {
    let indent = options.get::<Option<usize>>("indent")?;
    to_json(&value, indent)
        .map(Value::from_safe_string)
        .map_err(|why| minijinja::Error::new(ErrorKind::BadSerialization, why.to_string()))
}

fn read(path: &Path) -> Result<String, Error> {
    let bytes = files::read(path, MOST_BYTES).map_err(|why| invalid(path, why))?;
    String::from_utf8(bytes).map_err(|why| invalid(path, why))
}

fn invalid(path: &Path, why: impl ToString) -> Error {
    Error::Template { path: PathBuf::from(path), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str, messages: &str, asked: usize) -> Result<MarkedText, String> {
        let config = serde_json::json!({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}});
        let messages: Vec<Value> = serde_json::from_str(messages).unwrap();
        let template = ChatTemplate::of(template, &config).map_err(|why| why.to_string())?;
        template.render(&Conversation { messages, asked, tools: Value::from(()) }).map_err(|why| why.to_string())
    }

    fn parts(marked: &MarkedText) -> Vec<&str> {
        marked.counted.iter().map(|part| &marked.text[part.clone()]).collect()
    }

    const TWO: &str = r#"[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]"#;

    #[test]
    fn blocks_and_prefixes_say_the_same() {
        let blocks = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' -%} {%- generation -%}\
            {{ m.content }}{{ eos_token }}{%- endgeneration -%} {%- else %}{{ m.content }}{% endif %}{% endfor %}";
        let prefixes = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}\
            {{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
        for template in [blocks, prefixes] {
            let marked = rendered(template, TWO, 0).unwrap();
            assert_eq!(marked.text, "<s><user>a<assistant>b</s><user>c<assistant>d</s>");
            assert_eq!(parts(&marked), ["b</s>", "d</s>"]);
            assert_eq!(parts(&rendered(template, TWO, 3).unwrap()), ["d</s>"]);
        }
    }

    #[test]
    fn methods_and_json_are_those_of_python() {
        let template = "{{ messages[0].content.strip().split(',')[-1] }}{{ {'a<': [1, none, 'é']} | tojson }}\
            {% if add_generation_prompt %}>{% endif %}{% for m in messages[1:] %}>{{ m.content }}{% endfor %}";
        let messages = r#"[{"role": "user", "content": " x,y "}, {"role": "assistant", "content": "b"}]"#;
        let marked = rendered(template, messages, 0).unwrap();
        assert_eq!(marked.text, "y{\"a<\": [1, null, \"é\"]}>b");
        assert_eq!(parts(&marked), ["b"]);
    }

    #[test]
    fn what_a_template_refuses_is_told() {
        for (template, why) in [
            ("{% if true %}\n{{ raise_exception('roles must alternate') }}{% endif %}", "roles must alternate (line 2"),
            ("{{ strftime_now('%d') }}", "strftime_now"),
            ("{{ messages[0].content.vanish() }}", "vanish"),
            ("{% for m in messages %}{{ m.content }}{% generation %}{% endgeneration %}{% endfor %}", "have no text"),
            ("{% for %}", "(line 1 of the template)"),
        ] {
            let error = rendered(template, TWO, 0).unwrap_err();
            assert!(error.contains(why), "{template}: {error}");
        }
        let marked = r#"[{"role": "user", "content": "\ufdd0"}, {"role": "assistant", "content": "b"}]"#;
        let template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
        assert!(rendered(template, marked, 0).unwrap_err().contains("U+FDD0"));
    }
}
