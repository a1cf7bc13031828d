//! A model's chat template: messages → the prompt's text.

use std::io::Write;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde_json::Value as Json;

use crate::error::{LearnError, Result};

/// The one template of a tokenizer, set up as `transformers` does.
#[derive(Debug)]
pub(crate) struct ChatTemplate {
    environment: Environment<'static>,
    path: PathBuf,
    bos: String,
    eos: String,
}

const NAME: &str = "chat";

/// Longest template, bytes. Those of today's models have up to 20,000.
const MAX_SOURCE: usize = 1 << 20;
/// Instructions of the template engine for one prompt. Two messages take today's models some hundreds.
const FUEL: u64 = 100_000;
/// Longest prompt, bytes.
const MAX_PROMPT: usize = 4 << 20;

impl ChatTemplate {
    /// chat_template.jinja if it is there, else `chat_template` of tokenizer_config.json (`config`).
    pub(crate) fn find(folder: &Path, config: &Json) -> Result<Self> {
        let file = folder.join("chat_template.jinja");
        let config_path = folder.join("tokenizer_config.json");
        let (path, source) = match file.exists() {
            true => (file.clone(), std::fs::read_to_string(&file).map_err(LearnError::io("read", &file))?),
            false => (
                config_path.clone(),
                in_config(config).ok_or_else(|| LearnError::Malformed {
                    path: config_path,
                    expected: "a `chat_template` here, or a file chat_template.jinja beside it".into(),
                    got: "neither; use an instruction-tuned model's folder, or add a template".into(),
                })?,
            ),
        };
        let token = |key: &str| match config.get(key) {
            Some(Json::String(text)) => text.clone(),
            Some(Json::Object(token)) => token.get("content").and_then(Json::as_str).unwrap_or_default().into(),
            _ => String::new(),
        };
        if source.len() > MAX_SOURCE {
            return Err(LearnError::Malformed {
                path,
                expected: format!("a chat template of at most {MAX_SOURCE} bytes"),
                got: format!("{} bytes", source.len()),
            });
        }
        let environment = environment(source).map_err(|source| LearnError::Template { path: path.clone(), source })?;
        Ok(Self { environment, path, bos: token("bos_token"), eos: token("eos_token") })
    }

    /// The prompt up to where the assistant's words begin.
    pub(crate) fn render(&self, system: Option<&str>, user: &str) -> Result<String> {
        let message = |role: &str, content: &str| context! { role, content };
        let messages: Vec<Value> =
            system.map(|s| message("system", s)).into_iter().chain([message("user", user)]).collect();
        let context = context! {
            messages, add_generation_prompt => true, bos_token => &self.bos, eos_token => &self.eos,
        };
        let mut prompt = Prompt(Vec::new());
        let template = self.environment.get_template(NAME);
        let rendered = template.and_then(|template| template.render_captured_to(context, &mut prompt).map(drop));
        rendered.map_err(|source| LearnError::Template { path: self.path.clone(), source })?;
        Ok(String::from_utf8(prompt.0).expect("a template writes text"))
    }
}

/// A prompt that is being written, up to [`MAX_PROMPT`].
struct Prompt(Vec<u8>);

impl Write for Prompt {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + text.len() > MAX_PROMPT {
            return Err(std::io::Error::other(format!("the prompt has more than {MAX_PROMPT} bytes")));
        }
        self.0.extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A string, or a list of named templates of which `default` is the one.
fn in_config(config: &Json) -> Option<String> {
    match config.get("chat_template")? {
        Json::String(source) => Some(source.clone()),
        Json::Array(named) => {
            let default = named.iter().find(|entry| entry.get("name").is_some_and(|name| name == "default"))?;
            default.get("template")?.as_str().map(str::to_owned)
        }
        _ => None,
    }
}

fn environment(source: String) -> std::result::Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", fixed_date);
    environment.add_template_owned(NAME, without_generation_marks(&source))?;
    Ok(environment)
}

/// `{% generation %}` marks the assistant's words for `transformers`; it prints nothing. Whitespace control stays.
fn without_generation_marks(source: &str) -> String {
    let mut out = source.to_owned();
    for (mark, stand_in) in [("generation", "if true"), ("endgeneration", "endif")] {
        for open in ["{%", "{%-", "{%+"] {
            for close in ["%}", "-%}", "+%}"] {
                out = out.replace(&format!("{open} {mark} {close}"), &format!("{open} {stand_in} {close}"));
            }
        }
    }
    out
}

/// Templates that print today's date would give another prompt each day, and a run that cannot be repeated. They get
/// the date that Llama 3's own template falls back on: 26 July 2024.
fn fixed_date(format: &str) -> std::result::Result<String, Error> {
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        out.push_str(match characters.next() {
            Some('d') => "26",
            Some('b') => "Jul",
            Some('B') => "July",
            Some('m') => "07",
            Some('Y') => "2024",
            Some('y') => "24",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('H' | 'M' | 'S') => "00",
            Some('%') => "%",
            other => {
                let message = format!("strftime_now does not know the directive %{}", other.unwrap_or(' '));
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(template: &str, system: Option<&str>, user: &str) -> Result<String> {
        let config = json!({"chat_template": template, "bos_token": "<s>", "eos_token": {"content": "</s>"}});
        ChatTemplate::find(Path::new("/nowhere"), &config)?.render(system, user)
    }

    const CHATML: &str = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}\
                          {%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

    #[test]
    fn chatml() {
        let got = render(CHATML, Some("Be brief."), "Who?").unwrap();
        let expected =
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(got, expected);
        assert!(!render(CHATML, None, "Who?").unwrap().contains("system"));
    }

    #[test]
    fn python_methods_and_slices_work() {
        let template = "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'].strip() %}\
                        {% set messages = messages[1:] %}{% endif %}{{ bos_token }}{{ s }}|\
                        {{ messages[-1]['content'].upper() }}{{ eos_token }}";
        assert_eq!(render(template, Some("  hi "), "q").unwrap(), "<s>hi|Q</s>");
    }

    #[test]
    fn work_text_and_source_are_bounded() {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        let endless = render(loops, None, "q").unwrap_err().to_string();
        assert!(
            endless.contains("tokenizer_config.json: the chat template failed: engine ran out of fuel"),
            "{endless}"
        );
        let doubled =
            format!("{{% set s = '{}' %}}{}{{{{ s }}}}", "x".repeat(1 << 16), "{% set s = s ~ s %}".repeat(8));
        let long = render(&doubled, None, "q").unwrap_err();
        assert!(matches!(long, LearnError::Template { .. }), "{long}");
        let source = render(&" ".repeat(2 << 20), None, "q").unwrap_err().to_string();
        assert!(source.contains("at most 1048576 bytes"), "{source}");
    }

    /// The constructs that the templates of Llama 3 and Qwen3 are built from.
    #[test]
    fn the_usual_constructs_work() {
        let template = r#"{%- if not date is defined %}{%- set date = strftime_now("%d %b %Y") %}{%- endif %}
            {%- if not tools is defined %}{%- set tools = none %}{%- endif %}
            {%- set ns = namespace(open=true, last=messages|length - 1) %}
            {%- for m in messages[::-1] %}
                {%- set index = (messages|length - 1) - loop.index0 %}
                {%- if ns.open and m.role == "user" and m.content is string
                       and not (m.content.startswith('<x>') and m.content.endswith('</x>')) %}
                    {%- set ns.open = false %}{%- set ns.last = index %}
                {%- endif %}
            {%- endfor %}
            {%- if tools is not none %}{{- tools | tojson }}{%- endif %}
            {{- date + '|' ~ ns.last }}
            {%- for m in messages %}
                {%- if loop.last %}
                    {{- '|' + m.content.split('</think>')[-1].lstrip('\n') | trim }}
                {%- endif %}
            {%- endfor %}
            {%- if enable_thinking is defined and enable_thinking is false %}{{- '!' }}{%- endif %}"#;
        assert_eq!(render(template, Some("s"), "a</think>\nb ").unwrap(), "26 Jul 2024|1|b");
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let template = "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}";
        assert_eq!(render(template, None, "x").unwrap(), "x\n");
    }

    #[test]
    fn generation_marks_print_nothing() {
        assert_eq!(render("a{%- generation -%} b {%- endgeneration -%} c", None, "x").unwrap(), "abc");
    }

    #[test]
    fn the_date_is_fixed() {
        assert_eq!(render("{{ strftime_now('%d %b %Y') }}", None, "x").unwrap(), "26 Jul 2024");
        assert!(render("{{ strftime_now('%j') }}", None, "x").is_err());
    }

    #[test]
    fn the_templates_own_errors_come_through() {
        let error = render("{{ raise_exception('no system role') }}", None, "x").unwrap_err();
        assert!(
            matches!(&error, LearnError::Template { .. }) && error.to_string().contains("no system role"),
            "{error}"
        );
    }

    #[test]
    fn without_a_template_the_error_says_what_to_add() {
        let error = ChatTemplate::find(Path::new("/nowhere"), &json!({})).unwrap_err().to_string();
        assert!(error.contains("chat_template.jinja"), "{error}");
    }
}
